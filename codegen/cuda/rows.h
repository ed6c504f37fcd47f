/* Row kernels as CUDA C, the parts of the printer: rows.c (tasks, elementwise kernels, pointers),
 * rows_vector.c (loads, arithmetic and stores of a vector of columns), rows_blocks.c (values of
 * blocks of columns), rows_group.c (rows shared by groups of threads: stages), rows_reduce.c (their
 * reductions), rows_tiles.c (column reductions and transposed stores) and rows_tail.c (the end of a
 * launch), rows_ring.c (rows that come by asynchronous copies), rows_words.c (values as words of
 * two bf16). Internal to these files. */
#ifndef F8_CODEGEN_CUDA_ROWS_H
#define F8_CODEGEN_CUDA_ROWS_H

#include "codegen/cuda/print.h"

/* ---- rows_vector.c ---- */

void f8_cuda_rows_u(f8_cuda_printer *p); /* opens the loop over a thread's vectors */
/* Whether some vectors lie past the row's end, wholly or in part. */
bool f8_cuda_rows_ragged(const f8_cuda_printer *p);
/* o<i>: the thread's first vector of buffer i: of the row (`of_row`), or, where it moves on in a
 * loop over columns, of the turn. Then it is printed before the loop. */
void f8_cuda_rows_vector_pointers(f8_cuda_printer *p, bool of_row);
void f8_cuda_rows_vectors_move(f8_cuda_printer *p, int columns); /* at the end of a loop's turn */
/* Prints c, the vector's first column, and n, the number of columns from it to the row's end. */
void f8_cuda_rows_column(f8_cuda_printer *p);
void f8_cuda_rows_declare_words(f8_cuda_printer *p, uint32_t n); /* of LOAD n */
void f8_cuda_rows_declare_loads(f8_cuda_printer *p);
void f8_cuda_rows_loads(f8_cuda_printer *p);      /* for all vectors, before anything else */
/* Whether the vectors of a row take the same registers one round after the other, with loads always
 * one round ahead: where a staged row is not whole. The form for many tensors has no registers for
 * that. */
bool f8_cuda_rows_in_turns(const f8_cuda_printer *p);
/* Loads of that loop: `first` prints those of the first round, before it; `next` prints those of
 * one vector's next round, inside it. */
void f8_cuda_rows_loads_first(f8_cuda_printer *p);
void f8_cuda_rows_loads_next(f8_cuda_printer *p);
void f8_cuda_rows_late_loads(f8_cuda_printer *p); /* for one vector, before its arithmetic */
void f8_cuda_rows_declare_taken(f8_cuda_printer *p);
void f8_cuda_rows_elements(f8_cuda_printer *p);
/* `live`: a condition under which the row is stored, or NULL. */
void f8_cuda_rows_stores(f8_cuda_printer *p, const char *live);
/* Whether instruction n is a STORE to columns or a column reduction of this stage, whose elements
 * are gathered in y<n>. */
bool f8_cuda_rows_takes(const f8_cuda_printer *p, uint32_t n);

/* ---- rows_words.c: values that stand as words of two bf16 each ---- */

void f8_cuda_rows_find_pairs(f8_cuda_printer *p); /* fills p->pairs, before any stage */
/* The sums of this stage's vector that are added two at a time, before its elements. */
void f8_cuda_rows_add_pairs(f8_cuda_printer *p);
/* Whether what root n stores or sums stands as such words, and their name. */
bool f8_cuda_rows_words(const f8_cuda_printer *p, uint32_t n, f8_cuda_name *name);

/* ---- rows_ring.c: rows that come through a ring; nothing without one ---- */

void f8_cuda_ring_plan(f8_cuda_printer *p); /* finds what each stage takes from the ring */
bool f8_cuda_ring_brings(const f8_cuda_printer *p, uint32_t n); /* LOAD n to this stage */
bool f8_cuda_ring_stage(const f8_cuda_printer *p); /* whether it brings anything to this stage */
void f8_cuda_ring_begin(f8_cuda_printer *p);       /* `ring`, and which chunk of it is the next */
void f8_cuda_ring_first(f8_cuda_printer *p);       /* before the tasks: the first chunks */
void f8_cuda_ring_row(f8_cuda_printer *p);         /* what follows this row in its warp */
/* Whether the vectors of a turn are written out one after the other. */
bool f8_cuda_ring_unrolls(const f8_cuda_printer *p);
void f8_cuda_ring_before(f8_cuda_printer *p);      /* before a stage's vectors */
void f8_cuda_ring_turn(f8_cuda_printer *p);        /* at the beginning of a turn over columns */
void f8_cuda_ring_turned(f8_cuda_printer *p);      /* after its vectors */
void f8_cuda_ring_wait(f8_cuda_printer *p);        /* for `chunk`, with the vector at hand */
void f8_cuda_ring_load(f8_cuda_printer *p, uint32_t n);
void f8_cuda_ring_refill(f8_cuda_printer *p); /* after all loads of the vector */

/* ---- rows_blocks.c: values of blocks of columns ---- */

/* Whether this stage stores a value of blocks. */
bool f8_cuda_rows_stores_blocks(const f8_cuda_printer *p);
void f8_cuda_rows_block_pointers(f8_cuda_printer *p); /* j<n> */
/* Prints the values of blocks that a vector's elements and the stores of this stage need. */
void f8_cuda_rows_blocks(f8_cuda_printer *p);
void f8_cuda_rows_block_stores(f8_cuda_printer *p, const char *live);
void f8_cuda_rows_block_begin(
    f8_cuda_printer *p); /* before the elements: the maxima of this stage start at zero */
void f8_cuda_rows_block_elements(f8_cuda_printer *p); /* one element more */
void f8_cuda_rows_block_join(f8_cuda_printer *p); /* after the loop over u: of a block's threads */

/* ---- rows_group.c ---- */

void f8_cuda_rows_shared(f8_cuda_printer *p); /* shared memory of the kernel */
void f8_cuda_rows_task(f8_cuda_printer *p);   /* `block` of rows and `begin` column of a task */
void f8_cuda_rows_begin(f8_cuda_printer *p);  /* what a row keeps */
void f8_cuda_rows_stage(f8_cuda_printer *p, int32_t stage);
void f8_cuda_rows_end(f8_cuda_printer *p);      /* of a row */

/* ---- rows_tiles.c ---- */

void f8_cuda_rows_tiles_begin(f8_cuda_printer *p); /* of a task: no rows yet */
void f8_cuda_rows_tiles_ahead(f8_cuda_printer *p); /* before the vectors that fill tiles */
void f8_cuda_rows_tiles_fill(f8_cuda_printer *p);  /* after a vector's stores */
void f8_cuda_rows_tiles_read(f8_cuda_printer *p);  /* after the vectors that fill tiles */
/* Whether this stage has tiles. */
bool f8_cuda_rows_has_tiles(const f8_cuda_printer *p);
void f8_cuda_rows_batch_end(f8_cuda_printer *p);   /* of a row: what is complete to memory */
void f8_cuda_rows_task_end(f8_cuda_printer *p);    /* column sums to memory */

/* ---- rows_reduce.c: the reductions of the current stage ---- */

bool f8_cuda_rows_stage_reduces(const f8_kernel *k, int32_t stage);
/* The number of reductions before this stage: in shared memory each has a part of its own. */
int f8_cuda_rows_reduced_before(const f8_kernel *k, int32_t stage);
void f8_cuda_rows_reduce_begin(f8_cuda_printer *p);
/* Whether sums of this stage are passed on in shared memory, between two barriers. */
bool f8_cuda_rows_hands(const f8_cuda_printer *p);
/* g<n>, inside the loop over u; if `nothing`, as for columns past the row's end. */
void f8_cuda_rows_declare_handed(f8_cuda_printer *p, bool nothing);
/* Adds one element. `in`: false if it lies past the row's end. */
void f8_cuda_rows_reduce(f8_cuda_printer *p, bool in);
void f8_cuda_rows_hand(f8_cuda_printer *p);       /* after a vector's elements */
void f8_cuda_rows_add_handed(f8_cuda_printer *p); /* after the loop over u */
void f8_cuda_rows_reduce_end(f8_cuda_printer *p); /* results in v<n> */

/* ---- rows_tail.c: nothing is printed of a kernel without a tail ---- */

void f8_cuda_rows_tail_functions(const f8_cuda_printer *p); /* before the kernel */
void f8_cuda_rows_tail_params(f8_cuda_printer *p);          /* after its buffers: t<n>, counter */
void f8_cuda_rows_tail_shared(f8_cuda_printer *p);          /* before its tasks */
void f8_cuda_rows_tail(f8_cuda_printer *p);                 /* after them */

#endif
