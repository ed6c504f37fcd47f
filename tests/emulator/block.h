/* Running a kernel: blocks one after the other, a block's threads as fibers.
 *
 * A thread runs until it must wait for others (f8_sync, or a warp's operation until all 32 lanes
 * are at it) and then switches straight to the next that can run; the last to arrive does the work
 * for all. A thread that never waits leaves its stack to the next one.
 *
 * With a seed, blocks, warps and lanes run in a random order that changes at every wait, and an
 * asynchronous copy lands at a random one of the two ends of its time; without, all in order,
 * copies at the wait. One kernel at a time: the caller holds the driver's lock. */
#ifndef F8_EMU_BLOCK_H
#define F8_EMU_BLOCK_H

#include "tests/emulator/image.h"

#include <stdbool.h>
#include <stdint.h>

enum { F8_EMU_WARP = 32, F8_EMU_MAX_THREADS = 1024, F8_EMU_MAX_SHARED = 256 * 1024 };
enum { F8_EMU_REDZONE = 128 }; /* between arrays in shared memory */

typedef struct f8_emu_launch {
    const f8_emu_kernel *kernel;
    f8_emu_context **context; /* the piece's */
    const void *params;
    int64_t blocks;
    uint32_t threads;
    uint32_t static_bytes, dynamic_bytes; /* static: laid out with redzones, F8_EMU_REDZONE first */
    f8_emu_array *const *array;           /* in the order of their offsets */
    unsigned n_arrays;
    uint64_t seed; /* 0: in order */
    /* Launched before the kernel ahead of it has ended. Each thread has to wait for that one. Until
     * those of the first block, and of the last, have done so, device memory is out of their reach,
     * if the launch is apart. */
    bool dependent, apart;
    void (*reach)(bool on); /* makes device memory accessible, or not */
} f8_emu_launch;

/* 0 or the error that the real driver would show later (CUDA_ERROR_LAUNCH_FAILED ...). */
int f8_emu_run(const f8_emu_launch *launch);

/* ---- for the operations of a warp (warp.c) ---- */

typedef enum f8_emu_op {
    F8_EMU_OP_NONE,
    F8_EMU_OP_SYNC,
    F8_EMU_OP_SHFL,
    F8_EMU_OP_SHFL_XOR,
    F8_EMU_OP_MMA_BF16,
    F8_EMU_OP_LDMATRIX,
    F8_EMU_OP_LDMATRIX_TRANS
} f8_emu_op;

/* What a lane brought to the operation, and what it takes from it. */
typedef struct f8_emu_lane {
    f8_emu_op op;
    uint32_t value;
    int lane;
    void *out;         /* MMA: d[4]; LDMATRIX: r[4] */
    const void *in[2]; /* MMA: a[4], b[2]; LDMATRIX: the row */
} f8_emu_lane;

/* All 32 lanes are at it. */
void f8_emu_warp_op(f8_emu_lane lane[F8_EMU_WARP]);

#endif
