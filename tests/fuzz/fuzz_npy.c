/* Fuzz target of the .npy reader: any bytes give a message, or a file whose elements can be read
 * and are all that follows its header.
 *
 * usage: fuzz_npy -max_total_time=60 -timeout=5 -dict=tests/fuzz/npy.dict CORPUS, where CORPUS is a
 * folder of its own for what it finds. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "frontend/checkpoint/npy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool ok, const char *what, const char *message)
{
    if (ok)
        return;
    fprintf(stderr, "%s: %s\n", what, message);
    abort();
}

static void try_bytes(const void *bytes, size_t n)
{
    f8_npy f;
    f8_diag diag = {0};
    const int fd = memfd_create("input", MFD_CLOEXEC);
    require(fd >= 0 && write(fd, bytes, n) == (ssize_t)n, "no file in memory", "");
    if (f8_npy_open_fd(&f, "input", fd, &diag) != F8_OK) {
        require(diag.status != F8_OK && diag.file && *diag.text, "a failure without a message",
                diag.text);
        return;
    }
    uint8_t *elements = malloc(n + 1);
    require(f.data + f.tensor.bytes == n, "bytes that are no elements", f.descr);
    require(f8_npy_read(&f, elements, &diag) == F8_OK, "can't be read", diag.text);
    f8_npy_close(&f);
    free(elements);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    try_bytes(data, size);
    /* The same as a header of its true length and no elements, which a fuzzer seldom finds. */
    uint8_t *whole = malloc(size + 10);
    memcpy(whole, "\x93NUMPY\1", 8);
    whole[8] = (uint8_t)size;
    whole[9] = (uint8_t)(size >> 8);
    memcpy(whole + 10, data, size);
    try_bytes(whole, size + 10);
    free(whole);
    return 0;
}
