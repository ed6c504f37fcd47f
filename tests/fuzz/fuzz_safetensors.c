/* Fuzz target of the safetensors reader: any bytes give a message, or a file whose tensors cover
 * its data once and can be read.
 *
 * usage: fuzz_safetensors -max_total_time=60 -timeout=5 -dict=tests/fuzz/safetensors.dict CORPUS,
 * where CORPUS is a folder of its own for what it finds. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "frontend/checkpoint/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool ok, const char *what, const char *message)
{
    if (ok)
        return;
    fprintf(stderr, "%s: %s\n", what, message);
    abort();
}

static bool open_bytes(f8_st_file *f, const void *bytes, size_t n, f8_diag *diag)
{
    const int fd = memfd_create("input", MFD_CLOEXEC);
    require(fd >= 0 && write(fd, bytes, n) == (ssize_t)n, "no file in memory", "");
    return f8_st_open_fd(f, "input", fd, NULL, diag) == F8_OK;
}

static void check_tensors(f8_st_file *f, size_t size)
{
    uint64_t end = 0;
    uint8_t *bytes = malloc(size);
    for (size_t i = 0; i < f->n; i++) {
        const f8_st_tensor *t = &f->tensor[i];
        char type[16];
        require(t->begin == end && t->bytes <= size, "a hole or an overlap", t->name);
        end += t->bytes;
        require(f8_st_read(f, t, bytes, NULL) == F8_OK, "can't be read", t->name);
        require(f8_st_find(f, t->name) == t, "not found by its name", t->name);
        f8_st_type_text(t, type, sizeof type);
    }
    require(f->data + end == size, "bytes of no tensor", "");
    free(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    f8_st_file f;
    f8_diag diag = {0};
    if (open_bytes(&f, data, size, &diag)) {
        check_tensors(&f, size);
        f8_st_close(&f);
    } else {
        require(diag.status != F8_OK && diag.file && *diag.text && f.n == 0,
                "a failure without a message", diag.text);
    }
    /* The same as a header of its true length, which a fuzzer seldom finds. */
    uint8_t *whole = malloc(size + 8);
    const uint64_t length = size;
    memcpy(whole, &length, 8);
    memcpy(whole + 8, data, size);
    if (open_bytes(&f, whole, size + 8, NULL))
        check_tensors(&f, size + 8);
    f8_st_close(&f);
    free(whole);
    return 0;
}
