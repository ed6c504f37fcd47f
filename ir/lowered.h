/* A function on its way to a plan: its nodes in fused groups, in order, with places.
 *
 * Filled by passes/fuse/group.c, schedule.c and memory.c; read by codegen. View nodes (RESHAPE of a
 * contiguous value, SLICE that is a strided view, PROJECT) belong to no group: they only have a
 * place. Leaves belong to none either: CONST and IOTA are computed inside kernels (a CONST that
 * must lie in memory and the ROPE tables get a place in F8_SPACE_CONST). */
#ifndef F8_LOWERED_H
#define F8_LOWERED_H

#include "ir/ir.h"
#include "ir/place.h"

typedef enum f8_group_kind {
    F8_GROUP_ROWS,           /* fused row programs: one kernel of one or more phases */
    F8_GROUP_GEMM,           /* one MATMUL or SCALED_MATMUL */
    F8_GROUP_ATTENTION,      /* one ATTENTION (o, lse) */
    F8_GROUP_ATTENTION_GRAD, /* one ATTENTION_GRAD (dq, dk, dv) */
    F8_GROUP_SCATTER,        /* one EMBEDDING_GRAD */
    F8_GROUP_COPY, /* one SHAPE node that moves bytes: TRANSPOSE, BROADCAST, CONCAT, ...; CONCAT
                    * inputs whose place already is their part of the result need no copy */
} f8_group_kind;

/* One fused row program over the domain [rows, cols]. Every node in it, and every value it reads,
 * has one of these shapes as a matrix: FULL [rows, cols]   ROW [rows, 1]   COL [1, cols]   ONE [1,
 * 1] BLOCK [rows, n] or [1, n], n = ceil(cols / b) > 1, b a power of two from 16 to 256: one for
 * each b columns or, only as a value read, a row-periodic one: rows' < rows, read at row (r / div)
 * % mod (broadcasts of leading and middle axes) by a node that has all the domain's rows. What is
 * made of such a value at its own rows, if only by a cast, is made and stored in a phase of that
 * domain; lowering refuses it in this one. Reductions along the last axis stay inside (results ROW,
 * or BLOCK where they have blocks, usable by later nodes of the same phase); QUANTIZE and
 * DEQUANTIZE spread BLOCK values, and read those of several rows from memory at [row / a, column /
 * b]. REDUCE_SUM along axis 0 ([rows, cols] -> [ceil(rows/64), cols] with block = 64, or rows <= 64
 * -> [1, cols]) may only be an output, and REDUCE_AMAX likewise, with blocks of 2, 4, ... 64 rows.
 * Nodes ascend (topological). A node may stand in several phases or groups (cheap pointwise
 * recomputed instead of stored); it is written by one only. Where the target stores transposes
 * (ir/target.h), a TRANSPOSE of a FULL value, [rows, cols] to [cols, rows], may stand in a phase,
 * only as an `out`: the domain stays its operand's, nothing in the phase uses it. A flat phase (no
 * reductions, no transposes, all values FULL or ONE) has rows = 1 and cols = all elements.
 *
 * An operand of a node in a phase is computed in the phase if it stands in `node`; CONST and IOTA
 * are computed on the spot when they have no place; anything else is read at its place. A RESHAPE
 * in `node` is its operand under another type (same matrix, so no code); a RESHAPE to another
 * matrix is read at its place, even where the phase makes its operand again. COL and ONE nodes are
 * never written by a phase of more than one row. Within one phase a FULL output may share its place
 * with a FULL input read at the same index only (in-place update): load before you store, element
 * by element. */
typedef struct f8_phase {
    int64_t rows, cols;
    f8_ref *node;
    uint32_t n_nodes;
    f8_ref *out;         /* those of `node` that this phase writes to memory */
    uint32_t n_out;
} f8_phase;

typedef struct f8_group {
    f8_group_kind kind;
    const char *name;    /* for listings: after its most telling node */
    f8_phase *phase;
    uint32_t n_phases;
    f8_ref *in;          /* values read from memory that other groups, ports or constants provide */
    f8_ref *out; /* values written to memory (also those only a later phase of this group reads) */
    uint32_t n_in, n_out;
} f8_group;

/* Copy value `from` to place `to` (same type, `to` contiguous) at the end of the function: results
 * that could not be computed in place. */
typedef struct f8_final_copy {
    f8_ref from;
    f8_place to;
} f8_final_copy;

/* A unit of storage in the arena: that of `root` and of all values that share it
 * (passes/memory/storage.h), from the first write of one to the last read; positions are indices
 * into `order`, n_groups the end of the function. */
typedef struct f8_allocation {
    f8_ref root;
    int64_t offset, bytes;
    uint32_t first, last; /* inclusive */
} f8_allocation;

/* Multi-result groups: `out` holds the op's own ref, then its PROJECT nodes, all of which exist. A
 * GEMM's or SCATTER's acc either has the result's place (accumulate in place) or must be copied
 * there first. */
typedef struct f8_lowered {
    f8_group *group;
    uint32_t n_groups;
    uint32_t *order;       /* execution order: group indices */
    f8_place *place;       /* by ref; space NONE for values that never lie in memory */
    f8_final_copy *copy;
    uint32_t n_copies;
    f8_allocation *allocation; /* what lies in the arena, by ascending root */
    uint32_t n_allocations;
    f8_ref *root; /* by ref, for values in the arena: the root of the unit they lie in; else 0 */
    int64_t arena_bytes;   /* peak of the arena as laid out */
    int64_t lower_bound;   /* most bytes live at once in this order */
    uint8_t *constants;    /* CONST space of this function: constants_bytes bytes */
    int64_t constants_bytes;
} f8_lowered;

/* Where each module variable lies in the state: offsets[i] for variable i (64-byte aligned, in
 * order of declaration; offsets may be NULL); returns the bytes of all. */
int64_t f8_module_layout(const f8_module *m, int64_t *offsets);

#endif
