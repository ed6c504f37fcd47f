/* Which values share an allocation: what schedule and memory both need to know.
 *
 * A base is a value with storage of its own (unit/rows.h has the views of it). Bases share an
 * allocation where one is a part of a concatenation, or where one is overwritten by another: a
 * state by its next value, an accumulator by the GEMM or scatter that adds to it. */
#ifndef F8_STORAGE_H
#define F8_STORAGE_H

#include "passes/unit/pass.h"
#include "passes/unit/rows.h"

enum { F8_NO_GROUP = UINT32_MAX };

/* A group that reads a value, through the view `ref`; F8_NO_GROUP: the end of the function. */
typedef struct f8_reader {
    uint32_t group;
    f8_ref ref;
} f8_reader;

typedef struct f8_base {
    uint32_t def; /* the group that writes it, or F8_NO_GROUP */
    uint32_t n_readers;
    f8_reader *reader;
    bool read; /* whether a group reads it */
    /* Its place: `offset` elements into the allocation of `root` (itself for a root), rows `stride`
     * elements apart. */
    f8_ref root;
    int64_t offset, stride;
    f8_ref inside; /* the concatenation it is a part of, or 0 */
    f8_ref next;   /* the next base of the same allocation, from the root on; 0 ends the list */
    /* Of roots: a fixed place, or the arena (space NONE until packed). */
    f8_place place;
    uint32_t start, end; /* positions in the order, inclusive */
    f8_pad pad;
} f8_base;

typedef struct f8_storage {
    const f8_func *func;
    const f8_graph *g;
    const f8_target *target;
    f8_lowered *lowered;
    f8_diag *diag;
    f8_arena *scratch;
    f8_view *view;
    f8_base *base; /* by ref; meaningful where view[r].base == r */
    int64_t *var_offset;
} f8_storage;

/* Views, definitions and readers of func->lowered; arrays in `scratch`. */
f8_status f8_storage_build(f8_storage *s, const f8_func *f, const f8_target *target,
                           f8_arena *scratch, f8_diag *diag);

/* Decide sharing under an order, position[group]. Fills all other fields of bases. */
f8_status f8_storage_share(f8_storage *s, const uint32_t *position);

/* The last part of sharing (storage_pad.c). Where a GEMM reads or writes a value and nothing else
 * fixes its shape in memory, its rows begin at multiples of target->row_bytes, and sizes of bf16
 * GEMMs are padded to multiples of target->gemm_multiple. A recomputed product lies as its original
 * does. */
f8_status f8_storage_pad(f8_storage *s);

/* Whether the group that writes base r can write rows with gaps between them. */
bool f8_storage_writes_gaps(const f8_storage *s, f8_ref r);

/* The accumulator operand of a MATMUL, SCALED_MATMUL or EMBEDDING_GRAD node, or 0. */
f8_ref f8_accumulator(const f8_graph *g, f8_ref r);

/* Whether group i exchanges bytes with other ranks. It then accesses its operand and its result until
 * the first group that reads the result has its turn. */
bool f8_storage_travels(const f8_storage *s, uint32_t i);

/* Bytes of a root, gaps between its rows included, rounded up to the arena's alignment. */
int64_t f8_storage_bytes(const f8_storage *s, f8_ref root);

#endif
