/* Files read from their beginning to their end: see stream.h. */
#include "frontend/train/data/stream.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "ir/base/file.h"
#include "ir/base/format.h"

static f8_status read_all(FILE *from, const char *path, char **bytes, size_t *size, f8_diag *diag)
{
    size_t room = 0;
    for (;;) {
        if (*size + 1 >= room) { /* the last byte is the NUL's */
            room = room ? room * 2 : 1 << 16;
            char *grown = realloc(*bytes, room);
            if (!grown)
                return f8_file_fail(diag, F8_ERR_MEMORY, path,
                                    "out of memory: %zu bytes were wanted", room);
            *bytes = grown;
        }
        const size_t n = fread(*bytes + *size, 1, room - *size - 1, from);
        *size += n;
        (*bytes)[*size] = 0;
        if (ferror(from))
            return f8_file_fail(diag, F8_ERR_IO, path, "%s", f8_errno_text(errno));
        if (n == 0 || feof(from))
            return F8_OK;
    }
}

f8_status f8_stream_read(const char *path, char **bytes, size_t *size, f8_diag *diag)
{
    *bytes = NULL;
    *size = 0;
    FILE *from = fopen(path, "rb");
    if (!from)
        return f8_file_fail(diag, F8_ERR_IO, path, "%s", f8_errno_text(errno));
    const f8_status status = read_all(from, path, bytes, size, diag);
    fclose(from);
    if (status != F8_OK) {
        free(*bytes);
        *bytes = NULL;
    }
    return status;
}
