/* Kernel descriptions: what a fused row program does, before any target prints it.
 *
 * A description is plain data: buffers, run-time integers and a straight line of SSA instructions
 * over a domain of rows x cols. It says what is computed, in which rounding and which reduction
 * order, and nothing about vectors, threads or registers: cpu_rows.c prints it as LLVM IR, a GPU
 * printer prints the same thing. Two phases whose descriptions print the same text are the same
 * kernel and share one compiled function; what may differ between them (rows, strides, pointers) is
 * in the binding.
 *
 *     f8_kernel *k;
 *     f8_binding bound;
 *     f8_kernel_lower(func, group, phase, target, arena, &k, &bound, diag);
 *
 * Values. Every instruction has a kind (F f32, I 32 bits, B truth) and an extent: the axes it
 * varies over. A bf16 value is held as the F it equals (ROUND_BF16 made it); f16, FP8 and E8M0
 * values are held as I, their encoding, and decoded by a CALL. Loads and stores only widen and
 * narrow.
 *
 * Stages. A row is visited n_stages times. Stage s may use row reductions of stages < s;
 * instr.stage is the first stage in which a value can be known. For one row:
 *
 *     for s in 0 .. n_stages:
 *         ROW instructions of stage s, once
 *         BLOCK instructions of stage s, once for each block of columns
 *         for each column: what the roots of stage s need (f8_kernel_needed)
 *         reductions of rows and of their blocks of stage s are now complete
 *
 * Roots are STOREs, reductions and near values, each in its stage. A value of an earlier stage that
 * a later one needs is either recomputed from its operands or, if `near` >= 0, was kept in that
 * slot of a per-row memory of cols 32-bit words. Within one column all loads of a stage happen
 * before its stores: a STORE may write the memory a LOAD of the same row and column reads (in
 * place).
 *
 * Reductions of rows (orders in ir/README.md): SUM in 256 lanes then a tree; MAX; AMAX, an unsigned
 * max of the bits without sign; BLOCKAMAX, the same of each `block` columns, the last perhaps
 * fewer. What is made of such values alone varies over blocks of columns: column c's is number c /
 * block. Reductions of columns go over the rows of a block, first to last, and are stored as row
 * (row / block) of their buffer: COLSUM has blocks of 64 rows; COLAMAX blocks of a power of two up
 * to that. A task of a kernel with some is one or more blocks of each (f8_kernel_task_rows). */
#ifndef F8_CODEGEN_KERNEL_H
#define F8_CODEGEN_KERNEL_H

#include "ir/lowered.h"
#include "ir/num/scalar.h"
#include "ir/target.h"

enum { F8_SUM_LANES = 256, F8_COLSUM_BLOCK = 64, F8_COLAMAX_TASK = 32 };

/* Which axes something varies over: bit 0 rows, bit 1 columns, bit 2 blocks of columns (then not
 * bit 1). */
typedef enum f8_extent {
    F8_EXT_ONE = 0,
    F8_EXT_ROW = 1,
    F8_EXT_COL = 2,
    F8_EXT_FULL = 3,
    F8_EXT_BLOCK = 4,
    F8_EXT_ROW_BLOCK = 5
} f8_extent;

/* X(op, name) */
#define F8_KOPS(X)                                                                                 \
    X(LOAD, "load")   /* buffer at [row, column]; with group: column rolled, see f8_kinstr */      \
    X(INDEX, "index") /* I: the column's or block's number */                                      \
    X(SCALAR, "")     /* the f8_sop `sub` of a, b, c */                                            \
    X(CALL, "call")   /* the scalar program `sub` (f8_sfn) of a */                                 \
    X(ROLL, "roll")   /* near value a (of an earlier stage), rolled */                             \
    X(SUM, "sum")     /* F, over the row */                                                        \
    X(MAX, "max")     /* F, over the row: IEEE maximum, -inf for nothing */                        \
    X(AMAX, "amax")   /* F, over the row: max |x| on bits */                                       \
    X(BLOCKAMAX, "blockamax") /* F, the same over each block of columns */                         \
    X(COLSUM, "colsum")       /* F, a over the block's rows, to buffer */                          \
    X(COLAMAX, "colamax")     /* the same, max |a| on bits */                                      \
    X(STORE, "store")         /* a to buffer */

typedef enum f8_kop {
#define X(op, name) F8_K_##op,
    F8_KOPS(X)
#undef X
    F8_KOP_COUNT
} f8_kop;

typedef struct f8_kinstr {
    uint8_t op;    /* f8_kop */
    uint8_t sub;   /* SCALAR: f8_sop; CALL: f8_sfn */
    uint8_t kind;  /* f8_skind; N for COLSUM, COLAMAX and STORE */
    uint8_t ext;   /* f8_extent of the value; STORE: of its buffer */
    int32_t stage; /* roots: the stage they happen in; else the first that can know the value. A row
                    * reduction of stage s is known from s + 1 (f8_kinstr_known) */
    int32_t near;  /* slot, or -1 */
    int32_t block; /* columns of a block, where ext has F8_EXT_BLOCK; else 0 */
    int32_t buffer;       /* LOAD, STORE, COLSUM, COLAMAX; else -1 */
    uint32_t a, b, c;     /* operands: instruction numbers, below this one */
    uint32_t imm;         /* CONST_F, CONST_I; COLSUM, COLAMAX: rows of a block */
    int64_t shift, group; /* LOAD, ROLL: column c reads g + ((c - g - shift) mod group), g = c - c
                           * mod group; group 0: column c itself */
} f8_kinstr;

/* args[i] is buffer i. Element [row, column] of a buffer lies at
 *     base + map(row) * stride + column           (terms the extent lacks are 0)
 * map(row) = row, or what the map says, or ids[row] with a gather: an id outside
 * [0, limit) reads as NaN. */
typedef struct f8_kbuffer {
    f8_dtype dtype;
    uint8_t ext; /* f8_extent */
    bool write;
    int32_t
        block; /* columns of a block, where ext has F8_EXT_BLOCK: `column` is its number; else 0 */
    int32_t stride; /* index of the run-time integer, or -1 when there is no row term */
    int32_t map;    /* index into f8_kernel.map, or -1 */
    int32_t ids;    /* the i32 buffer of a gather (ids[row], contiguous), or -1 */
    int32_t limit;  /* gather: index of the run-time integer */
    /* Write only, ext FULL: element [row, column] lies at base + column * stride + row; nothing
     * that the kernel reads overlaps it. */
    bool transposed;
} f8_kbuffer;

/* (row / div) % mod; or row >> shift, where rows come in runs of a power of two and none comes
 * again. */
typedef struct f8_kmap {
    int32_t shift;    /* -1: div and mod */
    int32_t div, mod; /* indices of run-time integers, both >= 1; or -1 */
} f8_kmap;

/* How a kernel is printed: what its time depends on, and no bit of its results. All zeros: as the
 * printers have it. Words in texts: "lanes 8 unroll 2 grain -1", "threads 512 unroll 4". */
typedef struct f8_kernel_config {
    uint8_t lanes;    /* CPU: f32 of a vector, where the machine has wider ones: 8 */
    uint8_t unroll;   /* CPU: vectors of columns that a turn of the loop does: 2, 4; CUDA: vectors
                       * whose   loads are under way together: 1, 2, 4 */
    int8_t grain;     /* CPU: a task has 2^grain times the elements, or the rows: -3 to 3 */
    uint16_t threads; /* CUDA: of a block: 128, 256, 512 */
} f8_kernel_config;

typedef struct f8_kernel {
    bool flat;    /* one row whose length is ints[0]; else ints[0] is the number of rows */
    int64_t cols; /* 0 when flat */
    f8_kbuffer *buffer;
    f8_kmap *map;
    f8_kinstr *instr;
    uint32_t n_buffers, n_maps, n_instrs;
    uint32_t n_ints, n_stages, n_near;
    uint32_t n_partials; /* COLSUMs and COLAMAXes */
    f8_kernel_config config;
    const char *text; /* the printed description, and the variant's line if it has one; equal text
                       * means equal kernel */
    uint64_t hash;    /* of text */
} f8_kernel;

/* What one launch of a kernel is given. */
typedef struct f8_binding {
    f8_ref *value;                     /* by buffer */
    f8_place *place;                   /* by buffer */
    int64_t *ints;                     /* n_ints */
    int64_t bytes_read, bytes_written; /* of distinct values */
} f8_binding;

/* Describe phase `phase` of a ROWS group for `target` (NULL: the CPU). Values of the group's `out`
 * that this phase is the first to compute are stored. Rows of more than target->near_columns
 * columns keep nothing near but what a ROLL reads: what a later stage needs is computed again.
 * (Grouping has no ROLL of a computed value; only descriptions made otherwise do.) F8_ERR_INTERNAL
 * when the phase breaks the rules of ir/lowered.h or has a TRANSPOSE that the target's kernels
 * can't store. */
f8_status f8_kernel_lower(const f8_func *f, const f8_group *g, uint32_t phase,
                          const f8_target *target, f8_arena *arena, f8_kernel **out,
                          f8_binding *bound, f8_diag *d);

/* needed[i] (n_instrs entries) is set for every instruction that the column loop of `stage`
 * evaluates, roots included; a near value of an earlier stage is set (it is loaded) but not
 * followed. Values without a column extent are not set: they are computed outside the loop. Returns
 * how many: 0 when the stage has no column loop. */
uint32_t f8_kernel_needed(const f8_kernel *k, uint32_t stage, bool *needed);

/* Operands of an instruction, 0 to 3. */
int f8_kinstr_operands(const f8_kinstr *i, uint32_t operand[3]);
/* SUM, MAX and AMAX: of the whole row. */
bool f8_kinstr_reduces(const f8_kinstr *i);
/* An instruction of blocks of columns but BLOCKAMAX, and its value: evaluated once for each block.
 */
bool f8_kinstr_of_blocks(const f8_kinstr *i);
/* Blocks of `block` columns in a row. */
int64_t f8_kernel_blocks(const f8_kernel *k, int32_t block);
/* The first stage in which the value can be used. */
int32_t f8_kinstr_known(const f8_kinstr *i);
/* COLSUM and COLAMAX: a reduction over the rows of a block. */
bool f8_kinstr_is_partial(const f8_kinstr *i);
/* Happens in a column loop for its own sake: a reduction, or a store to columns. */
bool f8_kinstr_is_root(const f8_kinstr *i);
/* Rows of a task where columns are reduced, a multiple of every block; else 0. */
int64_t f8_kernel_task_rows(const f8_kernel *k);

/* The bytes a value covers, from its first to its last element. */
int64_t f8_kernel_span(const f8_type *t, const f8_place *p);
/* SUMs of the stage that has the most. */
int64_t f8_kernel_most_sums(const f8_kernel *k);

/* Fill text and hash; f8_kernel_lower does it. */
f8_status f8_kernel_print(f8_kernel *k, f8_arena *arena, f8_diag *d);

#endif
