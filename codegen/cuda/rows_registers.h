/* About how many registers a thread of a row kernel takes in a layout, and so how many threads of a
 * multiprocessor can be resident. Internal to rows_layout.c. */
#ifndef F8_CODEGEN_CUDA_ROWS_REGISTERS_H
#define F8_CODEGEN_CUDA_ROWS_REGISTERS_H

#include "codegen/cuda/print.h"

enum {
    F8_CUDA_ROW_RESIDENT = 512,    /* threads of kernels by rows, with 128 registers each */
    F8_CUDA_RESIDENT_COLUMNS = 24, /* columns of a thread's whole row that leave it 64 registers */
    F8_CUDA_WHOLE_COLUMNS = 32,    /* a thread has all its columns of a row in registers up to this
                                      many */
    F8_CUDA_HELD_COLUMNS = 24,     /* maxima of columns that a thread keeps over rows */
    F8_CUDA_STAGED_SHARE = 64,     /* registers of each thread of a lean staged kernel */
    F8_CUDA_STAGED_INSTRS = 24     /* the most instructions that leave room for column reductions */
};

int f8_cuda_rows_count(const f8_kernel *k, f8_kop op); /* instructions */

/* Words of a thread's loads in flight. */
int64_t f8_cuda_rows_loaded_words(const f8_kernel *k, const f8_cuda_layout *l);

/* About how many registers a thread of a staged kernel takes: addresses and loads in flight, values
 * kept, and what is gathered. */
int f8_cuda_rows_registers(const f8_kernel *k, const f8_cuda_layout *l);

/* Threads of a multiprocessor that should be resident, of a kernel by rows without tiles. */
int f8_cuda_rows_resident(const f8_target *target, const f8_kernel *k, const f8_cuda_layout *l);

/* The most values that a thread of a staged kernel gathers and has in flight at once. */
int64_t f8_cuda_rows_staged_values(const f8_target *target, const f8_kernel *k,
                                   const f8_cuda_layout *l);

/* Whether a thread of a staged kernel can do with F8_CUDA_STAGED_SHARE registers. Where it has one
 * vector at a time, what it gathers and has in flight decides; a whole row of one vector can if it
 * keeps little. Where it has several, it cannot if column sums stay in registers with them. */
bool f8_cuda_rows_are_lean(const f8_target *target, const f8_kernel *k, const f8_cuda_layout *l);

#endif
