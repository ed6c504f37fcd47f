/* Memory that knows of every byte which step wrote it. Steps run on it by their accesses alone. Two
 * orders of the same steps give the same values if every read sees the same bytes. */
#ifndef TEST_BYTE_MEMORY_H
#define TEST_BYTE_MEMORY_H

#include "codegen/plan/parts.h"

/* Where bytes come from: they are `offset` bytes into what access `access` of step `step` wrote.
 * step -1: nothing wrote them. Then access is the port, and offset the address. */
typedef struct byte_source {
    int64_t step, access, offset;
} byte_source;

typedef struct byte_run {
    int space, port;
    int64_t begin, end;
    byte_source from;
} byte_run;

/* The bytes that were written, as runs that do not overlap, in no order. Nothing wrote the bytes
 * that are in no run. */
typedef struct byte_memory {
    byte_run *run;
    size_t n, room;
} byte_memory;

/* An access with gaps is written row by row. One with many rows is written as if it had no gaps. */
void byte_memory_write(byte_memory *m, const f8_build_access *a, byte_source from);
/* What an access reads: runs in order, at offsets into the access. Neighbours that come from
 * neighbours are one run. Arena that nothing wrote is left out: its address does not matter. The
 * caller frees `run`. */
byte_memory byte_memory_read(const byte_memory *m, const f8_build_access *a);

#endif
