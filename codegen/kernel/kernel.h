/* Kernel descriptions: what a fused row kernel computes, before any target prints it.
 *
 * A description is plain data: buffers, run-time integers, and a list of SSA instructions without
 * branches over a domain of rows x cols. It says what is computed, with which rounding and in which
 * order of reduction. It says nothing of vectors, threads or registers: codegen/cpu/rows.c prints
 * it as LLVM IR, codegen/cuda/rows.c as CUDA C. Two phases whose descriptions have the same text
 * are the same kernel and share one compiled function. What may differ between them (the number of
 * rows, strides, pointers) is in the binding.
 *
 *     f8_kernel *k;
 *     f8_binding bound;
 *     f8_kernel_lower(func, group, phase, target, arena, &k, &bound, diag);
 *
 * Values. Every instruction has a kind (F: f32, I: 32 bits, B: truth value) and an extent: the axes
 * it varies over. A bf16 value is held as the F that it equals (ROUND_BF16 made it). f16, FP8 and
 * E8M0 values are held as I, which is their encoding, and a CALL decodes them. Loads and stores
 * only widen and narrow.
 *
 * Stages. A row is visited n_stages times. Stage s may use row reductions of stages < s;
 * instr.stage is the first stage in which the value can be known. For one row:
 *
 *     for s in 0 .. n_stages:
 *         ROW instructions of stage s, once
 *         BLOCK instructions of stage s, once for each block of columns
 *         for each column: what the roots of stage s need (f8_kernel_needed)
 *         reductions of rows and of their blocks of stage s are now complete
 *
 * Roots are STOREs, reductions and near values, each in its stage. A value of an earlier stage that
 * a later stage needs is recomputed from its operands, or it was kept: if `near` >= 0, in that slot
 * of near memory, which has cols 32-bit words for each row and slot. Within one column all loads of
 * a stage happen before its stores, so a STORE may write the memory that a LOAD of the same row and
 * column reads (in place).
 *
 * Reductions of rows (ir/README.md has the orders): SUM has 256 lanes, then a tree. MAX is a
 * maximum. AMAX is an unsigned maximum of the bits without the sign. BLOCKAMAX is the same of each
 * `block` columns; the last block may have fewer. A value computed from such values alone varies
 * over blocks of columns: column c belongs to block c / block. Reductions of columns go over the
 * rows of a block, from first to last, and are stored as row (row / block) of their buffer. COLSUM
 * has blocks of 64 rows; COLAMAX has blocks of a power of two up to 64. A task of a kernel with
 * such reductions has one or more whole blocks of each (f8_kernel_task_rows). */
#ifndef F8_CODEGEN_KERNEL_H
#define F8_CODEGEN_KERNEL_H

#include "ir/lowered.h"
#include "ir/num/scalar.h"
#include "ir/target.h"

enum { F8_SUM_LANES = 256, F8_COLSUM_BLOCK = 64, F8_COLAMAX_TASK = 32 };

/* Which axes something varies over. Bit 0: rows. Bit 1: columns. Bit 2: blocks of columns; bit 1 is
 * then clear. */
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
    X(CALL, "call")   /* the scalar function `sub` (f8_sfn) of a */                                \
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
    uint8_t ext;   /* f8_extent of the value; for STORE, of its buffer */
    /* Roots: the stage in which they happen. Others: the first stage that can know the value. A row
     * reduction of stage s is known from stage s + 1 (f8_kinstr_known). */
    int32_t stage;
    int32_t near;  /* slot of near memory, or -1 */
    int32_t block; /* columns of a block, if ext has F8_EXT_BLOCK; else 0 */
    int32_t buffer;       /* LOAD, STORE, COLSUM, COLAMAX; else -1 */
    uint32_t a, b, c;     /* operands: instruction numbers, below this one */
    uint32_t imm;         /* CONST_F, CONST_I; COLSUM, COLAMAX: rows of a block */
    /* LOAD and ROLL: column c reads column g + ((c - g - shift) mod group), where g = c - c mod
     * group. group 0: column c itself. */
    int64_t shift, group;
} f8_kinstr;

/* args[i] is buffer i. Element [row, column] of a buffer lies at
 *     base + map(row) * stride + column           (terms that the extent lacks are 0)
 * map(row) is row; or what the map says; or ids[row] for a gather, where an id outside [0, limit)
 * reads as NaN. */
typedef struct f8_kbuffer {
    f8_dtype dtype;
    uint8_t ext; /* f8_extent */
    bool write;
    /* columns of a block, if ext has F8_EXT_BLOCK, and `column` is then the number of the block;
     * else 0 */
    int32_t block;
    int32_t stride; /* index of the run-time integer, or -1 if there is no row term */
    int32_t map;    /* index into f8_kernel.map, or -1 */
    int32_t ids;    /* the i32 buffer of a gather (ids[row], contiguous), or -1 */
    int32_t limit;  /* gather: index of the run-time integer */
    /* Write only, ext FULL: element [row, column] lies at base + column * stride + row, and nothing
     * that the kernel reads overlaps it. */
    bool transposed;
} f8_kbuffer;

/* (row / div) % mod; or row >> shift, where runs of 2^shift rows read one row each and no row is
 * read by two runs. */
typedef struct f8_kmap {
    int32_t shift;    /* -1: div and mod are used */
    int32_t div, mod; /* indices of run-time integers, both >= 1; or -1 */
} f8_kmap;

/* The configuration of a kernel: how it is printed. Its time depends on this, and no bit of its
 * results. All zeros: the choice of the printers. As text: "lanes 8 unroll 2 grain -1", "threads
 * 512 unroll 4". */
typedef struct f8_kernel_config {
    uint8_t lanes;    /* CPU: 8 for vectors of 8 f32 where the machine has wider ones */
    /* CPU: vectors of columns that one iteration of the loop handles: 2, 4. CUDA: vectors that are
     * loaded before the first is used: 1, 2, 4. */
    uint8_t unroll;
    int8_t grain;     /* CPU: a task has 2^grain times the elements or rows: -3 to 3 */
    uint16_t threads; /* CUDA: threads of a block: 128, 256, 512 */
} f8_kernel_config;

typedef struct f8_kernel {
    bool flat;    /* one row of length ints[0]; otherwise ints[0] is the number of rows */
    int64_t cols; /* 0 when flat */
    f8_kbuffer *buffer;
    f8_kmap *map;
    f8_kinstr *instr;
    uint32_t n_buffers, n_maps, n_instrs;
    uint32_t n_ints, n_stages, n_near;
    uint32_t n_partials; /* number of COLSUMs and COLAMAXes */
    /* What is computed when all rows are done: another kernel, of one row, which may read what this
     * one writes. NULL: nothing. Its buffers follow this one's in a launch's arguments, and after
     * them comes the counter of the launch's blocks. It needs none of its run-time integers. */
    const struct f8_kernel *tail;
    f8_kernel_config config;
    /* CUDA: in every launch all vectors along rows lie at multiples of their bytes (at most 16), so
     * no code is printed for others (f8_cuda_rows_are_aligned). */
    bool aligned;
    /* The printed description, followed by the line of the configuration if there is one, and by
     * the word `aligned` if it is. Kernels with equal texts are equal. */
    const char *text;
    uint64_t hash;    /* of text */
} f8_kernel;

/* What one launch of a kernel receives. */
typedef struct f8_binding {
    f8_ref *value;                     /* by buffer */
    f8_place *place;                   /* by buffer */
    int64_t *ints;                     /* n_ints */
    int64_t bytes_read, bytes_written; /* of distinct values */
} f8_binding;

/* Describes phase `phase` of a ROWS group for `target` (NULL: the CPU). It stores those values of
 * the group's `out` that this phase is the first to compute. Rows of more than target->near_columns
 * columns keep nothing in near memory except what a ROLL reads; other values that a later stage
 * needs are recomputed. (Grouping makes no ROLL of a computed value; only descriptions made in
 * other ways have one.) F8_ERR_INTERNAL: the phase breaks the rules of ir/lowered.h, or it has a
 * TRANSPOSE that the kernels of the target cannot store. */
f8_status f8_kernel_lower(const f8_func *f, const f8_group *g, uint32_t phase,
                          const f8_target *target, f8_arena *arena, f8_kernel **out,
                          f8_binding *bound, f8_diag *d);
/* The same without text and hash. */
f8_status f8_kernel_describe(const f8_func *f, const f8_group *g, uint32_t phase,
                             const f8_target *target, f8_arena *arena, f8_kernel **out,
                             f8_binding *bound, f8_diag *d);

/* Sets needed[i] (n_instrs entries) for every instruction that the column loop of `stage`
 * evaluates, roots included. A near value of an earlier stage is set, since it is loaded, but its
 * operands are not. Values without a column extent are not set, since they are computed outside the
 * loop. Returns the number of set entries: 0 if the stage has no column loop. */
uint32_t f8_kernel_needed(const f8_kernel *k, uint32_t stage, bool *needed);

/* The operands of an instruction; returns their number, 0 to 3. */
int f8_kinstr_operands(const f8_kinstr *i, uint32_t operand[3]);
/* Whether it is SUM, MAX or AMAX, a reduction of the whole row. */
bool f8_kinstr_reduces(const f8_kinstr *i);
/* Whether it is evaluated once for each block of columns: all instructions with that extent, except
 * BLOCKAMAX. */
bool f8_kinstr_of_blocks(const f8_kinstr *i);
/* The number of blocks of `block` columns in a row. */
int64_t f8_kernel_blocks(const f8_kernel *k, int32_t block);
/* The first stage in which the value can be used. */
int32_t f8_kinstr_known(const f8_kinstr *i);
/* Whether it is COLSUM or COLAMAX, a reduction over the rows of a block. */
bool f8_kinstr_is_partial(const f8_kinstr *i);
/* Whether a column loop runs for its sake: a reduction, or a store that varies over columns. */
bool f8_kinstr_is_root(const f8_kinstr *i);
/* Rows of a task of a kernel that reduces columns, a multiple of every block; else 0. */
int64_t f8_kernel_task_rows(const f8_kernel *k);
/* Whether it stores a value transposed. */
bool f8_kernel_transposes(const f8_kernel *k);

/* ---- visits.c: what need not be visited ---- */

/* Whether instruction n is a sum over c of (c == id ? x[c] : 0), with an id of the row and x as it
 * lies in memory: then the LOADs of both. It is x[id] + 0, or 0 where no column is id. */
bool f8_kernel_picked(const f8_kernel *k, uint32_t n, uint32_t *x, uint32_t *id);
/* The number of SUMs in the stage that has the most; those that are picked do not count. */
int64_t f8_kernel_most_sums(const f8_kernel *k);

/* The parts of a wide row's sum of exp(x - max x), as instructions. near: the maximum `top` of x
 * lies less than a constant above `first`, the maximum of the first columns. Then the sum is made
 * of `usual` = sum exp(x - first), and `rare` = sum exp(x - top) is not asked for; else the other
 * way round. above: the constant's bits. */
typedef struct f8_exp_sum {
    uint32_t x, top, first, near, usual, rare, above;
} f8_exp_sum;

/* Whether instruction n is such a sum. */
bool f8_kernel_exp_sum(const f8_kernel *k, uint32_t n, f8_exp_sum *s);
/* Whether instruction `difference` is x - first of such a sum, whose exp has no other reader than
 * `usual`, nor that another one than the sum. */
bool f8_kernel_exp_sum_term(const f8_kernel *k, uint32_t difference, f8_exp_sum *s);
/* How many columns, from the first on, the column loop of a stage has to visit: all, unless it
 * finds the maximum of the first columns alone, or nothing but picked elements. */
int64_t f8_kernel_reach(const f8_kernel *k, int32_t stage);
/* Whether the column loop of a stage may be left out for rows in which instruction *near holds. */
bool f8_kernel_may_skip(const f8_kernel *k, int32_t stage, uint32_t *near);
/* Called when all instructions exist: `first` is found before anything else, `top` in the stage of
 * `usual`, and `rare` in a later one. */
void f8_kernel_order_exp_sums(f8_kernel *k);

/* Bytes from the first element of a value to its last. */
int64_t f8_kernel_span(const f8_type *t, const f8_place *p);

/* Fills text and hash. f8_kernel_lower calls it. */
f8_status f8_kernel_print(f8_kernel *k, f8_arena *arena, f8_diag *d);
/* Makes *out, a copy of k that is for aligned launches alone. */
f8_status f8_kernel_for_aligned(const f8_kernel *k, f8_arena *arena, f8_kernel **out, f8_diag *d);
/* The arguments of a launch: buffers, and with a tail the tail's buffers and the counter. */
uint32_t f8_kernel_args(const f8_kernel *k);
/* Makes *out, a copy of k that has this tail. */
f8_status f8_kernel_add_tail(const f8_kernel *k, const f8_kernel *tail, f8_arena *arena,
                             f8_kernel **out, f8_diag *d);

#endif
