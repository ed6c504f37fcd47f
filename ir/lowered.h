/* A lowered function: its nodes in groups, the groups' order, and the place of every value.
 *
 * passes/fuse/group.c, passes/memory/schedule.c and passes/memory/memory.c fill it; codegen reads
 * it. Views (a RESHAPE of a contiguous value, a SLICE that is a strided view, PROJECT) belong to no
 * group; they only have a place. Leaves belong to no group either: CONST and IOTA are computed
 * inside kernels, and a CONST that must lie in memory and the tables of ROPE get a place in
 * F8_SPACE_CONST. */
#ifndef F8_LOWERED_H
#define F8_LOWERED_H

#include "ir/ir.h"
#include "ir/place.h"
#include "ir/target.h"

typedef enum f8_group_kind {
    F8_GROUP_ROWS,           /* a row kernel, of one or more phases */
    F8_GROUP_GEMM,           /* one MATMUL, BATCH_MATMUL or SCALED_MATMUL */
    F8_GROUP_ATTENTION,      /* one ATTENTION (o, lse) */
    F8_GROUP_ATTENTION_GRAD, /* one ATTENTION_GRAD (dq, dk, dv) */
    F8_GROUP_SCATTER,        /* one EMBEDDING_GRAD */
    F8_GROUP_COLLECTIVE,     /* one ALL_GATHER, ALL_TO_ALL or ALL_SLICE */
    F8_GROUP_COPY, /* one SHAPE node that moves bytes: TRANSPOSE, BROADCAST, CONCAT, ... An input of
                    * CONCAT that already lies at its part of the result is not copied */
} f8_group_kind;

/* One phase of a row kernel, over its domain [rows, cols].
 *
 * Every node in it, and every value it reads, has one of these shapes as a matrix:
 *
 *     FULL   [rows, cols]
 *     ROW    [rows, 1]
 *     COL    [1, cols]
 *     ONE    [1, 1]
 *     BLOCK  [rows, n] or [1, n], n = ceil(cols / b) > 1, b a power of two from 16 to 256: one
 *            element for each b columns
 *
 * A value that is only read may also be row-periodic: it has rows' < rows and is read at row (r /
 * div) % mod, which expresses broadcasts of leading and middle axes. Its reader must have all rows
 * of the domain. What is computed of such a value at its own rows, even a cast alone, is computed
 * and stored in a phase of that domain; lowering refuses it in this one.
 *
 * Reductions along the last axis stay inside the phase. Their results are ROW, or BLOCK where they
 * have blocks, and later nodes of the same phase may use them. QUANTIZE and DEQUANTIZE spread BLOCK
 * values over the columns; a scale for blocks of several rows they read from memory, at [row / a,
 * column / b]. A REDUCE_SUM along axis 0 ([rows, cols] -> [ceil(rows/64), cols] with block = 64, or
 * rows <= 64 -> [1, cols]) may only be an output. So may a REDUCE_AMAX along axis 0, with blocks of
 * 2, 4, ... 64 rows.
 *
 * Nodes ascend, which is a topological order. A node may stand in several phases or groups (a cheap
 * pointwise op is computed twice instead of stored), but only one of them writes it. Where the
 * target stores transposes (ir/target.h), a TRANSPOSE of a FULL value, [rows, cols] to [cols,
 * rows], may stand in a phase, only as an `out`: the domain is that of its operand, and nothing in
 * the phase uses it. A flat phase (no reductions, no transposes, all values FULL or ONE) has rows =
 * 1 and cols = all elements.
 *
 * An operand of a node in a phase is computed in the phase if it stands in `node`. CONST and IOTA
 * are computed on the spot when they have no place. Anything else is read at its place. A RESHAPE
 * in `node` is its operand under another type (the same matrix, so no code). A RESHAPE to another
 * matrix is read at its place, even where the phase computes its operand too. A phase of more than
 * one row never writes COL and ONE nodes.
 *
 * Within one phase a FULL output may share its place with a FULL input that is read at the same
 * index (an in-place update), so each element is loaded before it is stored. */
typedef struct f8_phase {
    int64_t rows, cols;
    f8_ref *node;
    uint32_t n_nodes;
    f8_ref *out;         /* those of `node` that this phase writes to memory */
    uint32_t n_out;
} f8_phase;

typedef struct f8_group {
    f8_group_kind kind;
    const char *name;    /* for listings: that of its most characteristic node */
    f8_phase *phase;
    uint32_t n_phases;
    f8_ref *in;          /* values read from memory that others provide: groups, ports, constants */
    f8_ref *out;         /* values written to memory, also those that only later phases read */
    uint32_t n_in, n_out;
    /* GEMM: it may run beside the groups after it (f8_step.branch in runtime/plan.h) */
    bool beside;
    /* estimated by f8_cost_note (passes/unit/cost.h); the second: operations of its products */
    double seconds, flops;
} f8_group;

/* Memory behind a value, as a matrix, that GEMMs compute with (passes/memory/storage_pad.c):
 * columns behind each row, within the row's stride, and rows behind the last. */
typedef struct f8_pad {
    int32_t rows, cols;
    /* The padding is zeros as soon as the group that writes the value is done. If not set, it has
     * nothing that may be read. */
    bool zeros;
} f8_pad;

/* A copy at the end of the function, for a result that could not be computed at its place: value
 * `from` to place `to`, which is contiguous. */
typedef struct f8_final_copy {
    f8_ref from;
    f8_place to;
} f8_final_copy;

/* Bytes of the arena that `root` and all values that share them take (passes/memory/storage.h),
 * from the first write of one to the last read. first and last are indices into `order`; n_groups
 * stands for the end of the function. */
typedef struct f8_allocation {
    f8_ref root;
    int64_t offset, bytes;
    uint32_t first, last; /* inclusive */
} f8_allocation;

/* In a group of an op with several results, `out` holds the op's own ref and then all its PROJECT
 * nodes. The acc of a GEMM or SCATTER either has the result's place (accumulation in place) or must
 * be copied there first. */
typedef struct f8_lowered {
    f8_group *group;
    uint32_t n_groups;
    uint32_t *order;       /* execution order: group indices */
    f8_place *place;       /* by ref; the space is NONE for values that never lie in memory */
    f8_pad *pad;           /* by ref */
    int64_t zero;          /* offset of a constant 0, if a value has rows of zeros behind it */
    f8_final_copy *copy;
    uint32_t n_copies;
    f8_allocation *allocation; /* of the arena, by ascending root */
    uint32_t n_allocations;
    f8_ref *root;          /* by ref: the root of the value's allocation; 0 outside the arena */
    int64_t arena_bytes;   /* size of the arena */
    int64_t lower_bound;   /* the most bytes live at once in this order */
    /* less than arena_bytes: of an order that was changed for one in which more travels at once,
     * because other functions need that much */
    int64_t least_bytes;
    bool has_gate;         /* there may be such an order (passes/memory/overlap.c) */
    uint8_t *constants;    /* CONST space of this function: constants_bytes bytes */
    int64_t constants_bytes;
} f8_lowered;

/* Lay out the module's variables: offsets[i] is that of variable i, 64-byte aligned, in order of
 * declaration. offsets may be NULL. Returns the bytes of all variables. */
int64_t f8_module_layout(const f8_module *m, int64_t *offsets);

/* Copies a module's lowered functions to `arena`: ports, graphs with the same refs, groups, order,
 * places and constants. It leaves out variables and what only planning reads
 * (f8_lowered.allocation, root). No node can be added to the copy. After it, the caller can free the
 * module's own arena, which also holds every graph that the passes replaced. `diag` must live as
 * long as the copy. NULL: out of memory, as `diag` says. */
f8_module *f8_lowered_copy(const f8_module *from, f8_arena *arena, f8_diag *diag);

/* The sizes of a node of class GEMM, as its operands say. Those of a BATCH_MATMUL are of one
 * product.
 */
f8_gemm_sizes f8_gemm_sizes_of(const f8_graph *g, f8_ref r);

/* The sizes of the GEMM that computes `r`: those of its operands, and the padding that they have in
 * common (a BATCH_MATMUL computes with none). A larger m or n adds elements in the padding of r. A
 * larger k adds products of zeros. */
f8_gemm_sizes f8_lowered_gemm(const f8_graph *g, const f8_lowered *p, f8_ref r);

/* How many rows of the result the first GEMM of `r` makes, whose sizes these are. It is m, or the
 * largest multiple of target->gemm_multiple below m; then a second GEMM makes the rest. */
int64_t f8_lowered_split(const f8_graph *g, const f8_target *target, f8_ref r,
                         const f8_gemm_sizes *size);

#endif
