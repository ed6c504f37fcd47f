/* Printing kernel descriptions as CUDA C: how a kernel's work is laid over threads, and the pieces
 * that its loops are filled with. Internal to the printer of row kernels (rows.c).
 *
 * A thread works on vectors of `vector` neighbouring columns. Where rows are reduced (or rolled, or
 * summed over columns), `group` threads share a row. Thread t of them has the columns whose number
 * modulo group * vector is vector * t and up, in `vectors` vectors. group * vector is 256 for all
 * but narrow rows, so a thread's columns are always the same lanes of a sum. Where it is 1024 or
 * more, what is summed is passed to the lane's thread. Elsewhere every thread takes any vector of
 * the domain.
 *
 *     v7    the value of instruction 7          w2[u]  what was loaded of buffer 2, as 32-bit words
 *     b2    buffer 2; q2 its current row        s7[e]  lanes of sum 7      m7  a running maximum
 *     i1    run-time integer 1                  k0     near slot 0         y7  what store 7 writes
 *     o2    the thread's own vectors in the current row of buffer 2
 *     r7    value 7 of a vector as words of two bf16 each
 *     h7[u] maximum 7 of the block that vector u of a thread lies in
 *     chunk what the ring has of the warp's row for the vector at hand; g7 what LOAD 7 brings next
 *     j7    the maxima 7 of a row, by block */
#ifndef F8_CODEGEN_CUDA_PRINT_H
#define F8_CODEGEN_CUDA_PRINT_H

#include "codegen/cuda/emit.h"

enum {
    F8_CUDA_WARP = 32,
    F8_CUDA_NEAR_MAX = 64, /* near_values of every GPU (ir/target.c), so slots are no more */
    /* Reductions of rows for which a block has memory at once: of 256 f32 each, and of the 48 KiB
     * that static arrays may take. More take turns. */
    F8_CUDA_BLOCK_SLOTS = 40,
    F8_CUDA_SPLIT = 256 /* columns of a task where rows are split */
};

/* How a value that the description keeps near is kept. RECOMPUTED: it is not kept; recomputing it
 * gives the same bits. SHARED: in shared memory, where other threads may read it. OWN: there too,
 * as bf16 or f32 (near_bytes), by vectors of the thread that computed it. */
typedef enum f8_cuda_near {
    F8_CUDA_RECOMPUTED,
    F8_CUDA_REGISTERS,
    F8_CUDA_SHARED,
    F8_CUDA_OWN
} f8_cuda_near;

/* A warp's row comes to shared memory by asynchronous copies, a chunk of some vectors of all its
 * threads at once, into a ring of chunks that only this warp reads. When a chunk has been read, the
 * copies of the chunk that takes its place begin: of the same stage, or of the next stage that
 * loads, or of the warp's next row. */
typedef struct f8_cuda_ring {
    int chunks;       /* of a warp; 0: there is no ring */
    bool bulk;        /* one thread begins bulk copies for its warp; else each copies its vector */
    int vectors;      /* of a thread in a chunk: 1; or, bulk, all for which tiles are filled at once
                       */
    int64_t chunk;    /* bytes: of all loads, though a stage may take a part of them alone */
    int64_t at;       /* byte offset of all rings */
    int64_t barriers; /* bulk: byte offset of the barriers, 8 bytes a chunk */
} f8_cuda_ring;

typedef struct f8_cuda_layout {
    bool points;    /* elementwise: every thread takes any vector of any row; if false, groups of
                       threads have rows */
    bool columns;   /* there is something to do for each column */
    bool staged;    /* column reductions or transposed stores: through tiles in shared memory */
    bool split;     /* a task has F8_CUDA_SPLIT columns, because no row is reduced, only blocks of
                       columns are */
    bool whole;     /* a thread's vectors of a row are all in registers at once: sets == vectors */
    bool branches;  /* addresses are tested even if all launches are aligned: without branches the
                       compiler interleaves more than registers allow */
    bool holds;     /* threads keep the maxima of their own columns (f8_cuda_layout_holds) */
    int vector;     /* columns a thread takes at once: 1, 2, 4 or 8 */
    int sets;       /* vectors whose loads are in flight at once */
    int group;      /* threads of a row */
    int threads;    /* of a block */
    int rows;       /* of a block at once: threads / group */
    int task_rows;  /* of a task: `rows`, or f8_kernel_task_rows */
    int min_blocks; /* of a multiprocessor */
    int64_t vectors; /* of a thread in a row; points: of a row (0: flat) */
    int64_t cols;    /* of a task */
    f8_cuda_near near[F8_CUDA_NEAR_MAX];
    int64_t near_at[F8_CUDA_NEAR_MAX]; /* SHARED: word offset of the slot, for one row; OWN: byte
                                          offset, for all rows */
    int64_t
        block_at; /* in rows that are not whole: word offset of the maxima of blocks, for one row */
    int64_t near_words; /* of shared memory a row needs, those maxima included */
    int64_t
        tile_at; /* staged: byte offset of the tiles in dynamic shared memory; hand_words: there */
    int64_t tile_size; /* bytes of the tiles that are filled at once */
    int turns; /* how many of those there are: of 2, one is filled while the other is read */
    int parts; /* vectors of a thread for which tiles are filled before they are read */
    f8_cuda_ring ring; /* staged: where the vectors that rows are loaded from come through */
    int64_t
        hand_words;  /* what the sums of a stage take of `sets` vectors handed on; 0: nothing is */
    int64_t shared;  /* bytes of dynamic shared memory */
    int64_t max_blocks; /* f8_launch */
    int near_bytes[F8_CUDA_NEAR_MAX]; /* OWN: of a value: 2 of a bf16, else 4 */
} f8_cuda_layout;

/* Lays out a kernel. The result is a function of the description and the target alone.
 * F8_ERR_UNSUPPORTED if the target has not enough shared memory. */
f8_status f8_cuda_rows_layout(const f8_target *target, const f8_kernel *k, f8_cuda_layout *l,
                              f8_diag *d);
/* The same without rings, for the form for many tensors. A task's rows and columns are the same. */
f8_status f8_cuda_rows_layout_many(const f8_target *target, const f8_kernel *k, f8_cuda_layout *l,
                                   f8_diag *d);

/* Whether instruction i is a COLAMAX whose maxima threads keep for their own columns, over the rows
 * of a block. */
bool f8_cuda_layout_holds(const f8_cuda_layout *l, const f8_kinstr *i);

/* Whether instruction n is a LOAD of the kind that a ring brings. */
bool f8_cuda_ring_takes(const f8_kernel *k, uint32_t n);

/* The bytes that stand side by side in a transposed store, for which its memory is aligned. */
int f8_cuda_tall_bytes(const f8_cuda_layout *l, int bytes);

/* Staged kernels: the columns of a row whose values are kept as F8_CUDA_OWN. The last turn of a
 * loop over `sets` vectors may have some past the row's end; they have room too. */
int64_t f8_cuda_own_columns(const f8_cuda_layout *l);

/* Staged kernels: the bytes from a row to the next in a tile of elements of `bytes` bytes. In tiles
 * of bytes that are read in squares, rows begin a few banks apart. */
int64_t f8_cuda_tile_pitch(const f8_cuda_layout *l, int bytes);

typedef struct f8_cuda_printer {
    f8_text *t;
    const f8_kernel *k;
    f8_cuda_layout l;
    f8_arena *arena;
    bool multi, inside; /* inside: this loop's vectors are aligned, and within their row */
    bool aligned;       /* no code is printed for vectors that are not */
    int indent;
    int32_t stage;
    bool *needed;  /* by instruction: what this stage's column loop evaluates */
    uint8_t *raw;  /* by instruction: F8_CUDA_RAW_* of a LOAD */
    bool *loaded;  /* by instruction: a LOAD that an earlier stage has done */
    bool *ahead;   /* by instruction: a LOAD of this stage that is done before anything else */
    bool *late;    /* by instruction: one that is done with its vector's arithmetic */
    uint64_t *brought; /* by instruction: the stages that take a LOAD from the ring, as bits */
    uint32_t
        *source; /* by instruction: what a STORE takes its elements from (f8_cuda_store_plan) */
    const char **put; /* by instruction: the function a STORE writes with */
    bool *pairs;      /* by instruction: a sum of two bf16 that is rounded to bf16 */
} f8_cuda_printer;

/* KEPT: the words of a LOAD stay in registers for the whole row. LOADED: they are in registers now.
 */
enum { F8_CUDA_RAW_KEPT = 1, F8_CUDA_RAW_LOADED = 2 };

typedef struct f8_cuda_name {
    char s[96];
} f8_cuda_name;

/* ---- text ---- */

/* One line, indented. */
void f8_cuda_line(f8_cuda_printer *p, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* A line that opens a block, or "{" alone, and the one that closes it. */
void f8_cuda_open(f8_cuda_printer *p, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void f8_cuda_scope(f8_cuda_printer *p);
void f8_cuda_close(f8_cuda_printer *p);

/* ---- print.c: functions and single instructions ---- */

/* Prints the functions that the kernel needs and the text does not have yet. */
void f8_cuda_print_functions(f8_cuda_printer *p);

/* The tasks that a block of rows has: more than one if rows are split. */
int64_t f8_cuda_layout_splits(const f8_kernel *k, const f8_cuda_layout *l);
int f8_cuda_rows_step(const f8_cuda_printer *p); /* columns of a vector of all threads of a row */
const char *f8_cuda_element(f8_dtype t); /* "float", "f8_u16", ... */
int f8_cuda_bytes(f8_dtype t);
/* The 32-bit words that n elements fill in registers: an i64 is held as the nearest i32. */
int f8_cuda_words(f8_dtype t, int n);
f8_cuda_name f8_cuda_value(const f8_cuda_printer *p, uint32_t n); /* v7, or a literal */
/* "const float v7 = ...;" of a SCALAR, CALL or (without columns) LOAD. */
void f8_cuda_print_value(f8_cuda_printer *p, uint32_t n);
/* "*q2 = v7;" of a STORE without columns. */
void f8_cuda_print_store(f8_cuda_printer *p, uint32_t n);
/* Values of blocks of columns, inside the loop over vectors u at column c. */
void f8_cuda_print_block(f8_cuda_printer *p, uint32_t n);
/* The same inside the loops over vectors u and elements e at column c. */
void f8_cuda_print_element(f8_cuda_printer *p, uint32_t n);

/* Whether this stage adds instruction n two elements at a time, as words (rows_words.c). */
bool f8_cuda_adds_pairs(const f8_cuda_printer *p, uint32_t n);

/* Whether every value of instruction i is a bf16. */
bool f8_cuda_is_bf16(const f8_kernel *k, const f8_kinstr *i);

/* Staged kernels: the bytes of an element of instruction i, a column reduction or a transposed
 * store, in its tile. Values that are bf16 are added from 2 bytes. */
int f8_cuda_tile_element(const f8_kernel *k, const f8_kinstr *i);
/* Finds which instruction each STORE reads and with which function it writes: conversions become
 * part of the store. */
void f8_cuda_store_plan(f8_cuda_printer *p);
/* Fills needed[] for `stage` and returns how many instructions it has. */
uint32_t f8_cuda_needed(f8_cuda_printer *p, int32_t stage);
/* is_kept: instruction n is read from its near slot in this stage. keeps: this stage puts it there.
 */
bool f8_cuda_is_kept(const f8_cuda_printer *p, uint32_t n);
bool f8_cuda_keeps(const f8_cuda_printer *p, uint32_t n);

#endif
