/* A shim of MPI (runtime/comm/shim/shim.h) that damages what one rank receives: tests/ranks_faults
 * puts it in the place of the real one, which it opens and calls.
 *
 *     FP8C_TEST_SHIM=PATH    the real shim
 *     FP8C_TEST_FLIP=R:N     of rank R, from its Nth all_gather of at least LARGE bytes on
 *
 * Small exchanges stay as they are: what ranks compare, amaxes, the norm. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/comm/shim/shim.h"

enum { LARGE = 2048 };

__attribute__((visibility("default"))) const f8_mpi_shim *f8_mpi_shim_table(void);

static const f8_mpi_shim *real;
static int rank = -1, from = 1, calls;

static int all_gather(f8_mpi_job *j, const void *send, void *receive, int64_t bytes,
                      char why[F8_SHIM_WHY])
{
    const int failed = real->all_gather(j, send, receive, bytes, why);
    if (!failed && bytes >= LARGE && j->rank == rank && ++calls == from)
        ((unsigned char *)receive)[bytes / 8 * 4 + 2] ^= 0x40; /* the mantissa of an f32 */
    return failed;
}

const f8_mpi_shim *f8_mpi_shim_table(void)
{
    static f8_mpi_shim table;
    const char *path = getenv("FP8C_TEST_SHIM"), *flip = getenv("FP8C_TEST_FLIP");
    void *library = path ? dlopen(path, RTLD_NOW) : NULL;
    void *symbol = library ? dlsym(library, F8_MPI_SHIM_SYMBOL) : NULL;
    const f8_mpi_shim *(*open)(void);
    if (!symbol || !flip || sscanf(flip, "%d:%d", &rank, &from) != 2)
        abort(); /* the test is wrong */
    memcpy(&open, &symbol, sizeof open);
    real = open();
    table = *real;
    table.all_gather = all_gather;
    return &table;
}
