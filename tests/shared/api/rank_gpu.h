/* Ranks that are threads, each with a GPU of the emulator's. */
#ifndef F8_TEST_RANK_GPU_H
#define F8_TEST_RANK_GPU_H

#include <stdbool.h>

#include "frontend/fp8c.h"
#include "frontend/fp8c_ranks.h"

/* Makes the emulator have as many devices as there may be ranks. false: the tests run on a real
 * GPU, of which one is not enough; says that `what` is skipped. Call it before any context is made.
 */
bool rank_gpus(const char *what);

/* A rank joins the others over `comm` with device `comm->rank`. seconds: as in fp8c_nccl_options.
 */
fp8c_status rank_gpu_join(fp8c_context *ctx, const fp8c_comm *comm, double seconds,
                          fp8c_nccl **nccl, fp8c_comm *out);

/* Fails the test if streams, events, graphs or memory of the devices are left, or communicators
 * while the test itself keeps NCCL loaded. The primary context stays, and with it cuBLASLt's. */
void rank_gpu_nothing_left(void);

#endif
