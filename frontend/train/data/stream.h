/* Files that are read from their beginning to their end, of any kind: a pipe and a terminal have no
 * size and can't be mapped. */
#ifndef F8_STREAM_H
#define F8_STREAM_H

#include "ir/base/status.h"

/* Reads a whole file, and puts a NUL behind it. The caller frees *bytes; it is NULL after a
 * failure. */
f8_status f8_stream_read(const char *path, char **bytes, size_t *size, f8_diag *diag);

#endif
