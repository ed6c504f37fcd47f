/* Compiled kernels in memory: map an image of code and constants, call into it, unmap it.
 *
 * codegen/cpu/link.h makes the image, and a .f8x file stores it: position-independent x86-64
 * without imports or relocations. It is written while it is private and writable, and then sealed:
 * code pages become read-execute, constant pages read-only. No page is ever writable and executable
 * at once. */
#ifndef F8_RUNTIME_BLOB_H
#define F8_RUNTIME_BLOB_H

#include "ir/base/status.h"

enum { F8_BLOB_PAGE = 4096 }; /* x86-64's page; code and constants start on one */

/* One phase of a kernel: runs tasks [task_begin, task_end). args are buffers, ints are run-time
 * extents, scratch belongs to this thread and is 64-byte aligned. */
typedef void (*f8_phase_fn)(void *const *args, const int64_t *ints, int64_t task_begin,
                            int64_t task_end, void *scratch);

typedef struct f8_blob {
    uint8_t *base; /* NULL when empty */
    size_t size, code_size;
} f8_blob;

/* Copies `size` bytes, of which the first code_size (a multiple of F8_BLOB_PAGE) are code, into
 * fresh sealed pages. An empty image maps nothing. F8_ERR_INPUT for impossible sizes; F8_ERR_MEMORY
 * or F8_ERR_IO if the system refuses. */
f8_status f8_blob_map(f8_blob *out, const void *bytes, size_t size, size_t code_size, f8_diag *d);
void f8_blob_unmap(f8_blob *blob);

/* The phase that starts at `offset`, or NULL when that is not inside the code. */
f8_phase_fn f8_blob_phase(const f8_blob *blob, uint64_t offset);

#endif
