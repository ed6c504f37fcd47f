/* The emulator's libraries (tests/emulator/), loaded and called directly: for tests of itself and
 * of single kernels. A failure that a test did not ask for fails the running Check test. */
#ifndef F8_TESTS_EMULATOR_H
#define F8_TESTS_EMULATOR_H

#include "tests/emulator/api.h"

typedef struct emu {
    f8_cuda_api cu;
    f8_nvrtc_api rtc;
    int64_t (*count)(const char *what); /* f8_emulator_count */
    CUstream stream;
} emu;

/* The libraries in build/emulator (the working folder is the project's), a current context, a
 * stream. */
void emu_open(emu *e);
void emu_close(emu *e); /* everything on the device goes */

/* cuBLASLt too. */
void emu_open_gemm(f8_cublaslt_api *lt);

/* Device memory, fresh or with these bytes; gone with the context. */
CUdeviceptr emu_alloc(emu *e, size_t bytes);
CUdeviceptr emu_upload(emu *e, const void *from, size_t bytes);
void emu_download(emu *e, void *to, CUdeviceptr from, size_t bytes);

/* The cubin of a text (the caller frees), its size unless NULL. */
char *emu_compile(emu *e, const char *text, const char *arch, size_t *size);
/* Compile for sm_90a, load, find. */
void emu_load(emu *e, const char *text, const char *name, CUmodule *module, CUfunction *function);
/* All that, launched and waited for: the error the launch ended in. */
int emu_run(emu *e, const char *text, const char *name, int grid, int threads, size_t shared,
            void *params);

/* Kernel "add" of 64 threads, c = a + b. Its parameters, as the host sees them:
 * struct { CUdeviceptr a, b, c; int64_t n, tasks; }. */
extern const char emu_add_text[];

char *emu_read_file(const char *path); /* a text; the caller frees */

#endif
