/* Mapping compiled kernels: see blob.h. */
#include "runtime/base/blob.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ir/base/format.h"

f8_status f8_blob_map(f8_blob *out, const void *bytes, size_t size, size_t code_size, f8_diag *d)
{
    *out = (f8_blob){0};
    if (code_size > size || code_size % F8_BLOB_PAGE || sysconf(_SC_PAGESIZE) != F8_BLOB_PAGE)
        return f8_fail(d, F8_ERR_INPUT, F8_NOWHERE,
                       "can't map %zu bytes of compiled code in an image of %zu bytes", code_size,
                       size);
    if (size == 0)
        return F8_OK;
    uint8_t *base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED)
        return f8_fail(d, F8_ERR_MEMORY, F8_NOWHERE, "can't map %zu bytes for compiled code: %s",
                       size, f8_errno_text(errno));
    memcpy(base, bytes, size);
    if ((code_size && mprotect(base, code_size, PROT_READ | PROT_EXEC)) ||
        (size > code_size && mprotect(base + code_size, size - code_size, PROT_READ))) {
        f8_status s = f8_fail(d, F8_ERR_IO, F8_NOWHERE,
                              "the system refuses to make compiled code executable: %s",
                              f8_errno_text(errno));
        munmap(base, size);
        return s;
    }
    *out = (f8_blob){base, size, code_size};
    return F8_OK;
}

void f8_blob_unmap(f8_blob *blob)
{
    if (blob->base)
        munmap(blob->base, blob->size);
    *blob = (f8_blob){0};
}

f8_phase_fn f8_blob_phase(const f8_blob *blob, uint64_t offset)
{
    if (offset >= blob->code_size)
        return NULL;
    void *address = blob->base + offset;
    f8_phase_fn fn;
    _Static_assert(sizeof fn == sizeof address, "functions are called by address");
    memcpy(&fn, &address, sizeof fn);
    return fn;
}
