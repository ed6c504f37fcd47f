/* Kernels as CUDA C: what each kind of kernel becomes, and how it is launched.
 *
 * An emitter appends the text of one kernel: a params struct SYMBOL_params and F8_KERNEL(SYMBOL,
 * ...) (codegen/cuda/fp8c.cuh). It also says how to launch the kernel. The text depends on the
 * description and the target alone. Results depend neither on the grid nor on the number of blocks.
 * The params are laid out as f8_launch in runtime/plan.h says. */
#ifndef F8_CODEGEN_CUDA_H
#define F8_CODEGEN_CUDA_H

#include "codegen/cuda/text.h"
#include "codegen/kernel/kernel.h"
#include "codegen/kernel/attention.h"
#include "codegen/kernel/text.h"
#include "ir/target.h"
#include "runtime/plan.h"

/* How one kernel is launched, whatever its run-time integers. */
typedef struct f8_cuda_launch {
    char symbol[40];
    uint32_t threads, shared; /* f8_launch */
    uint32_t bulk;            /* f8_build_kernel */
    uint32_t n_args, n_ints;  /* of one instance, without its number of tasks */
    int64_t max_blocks;       /* f8_launch; 0: what is resident at once */
} f8_cuda_launch;

/* A row kernel (rows.c). `multi`: the multi-tensor form. F8_ERR_UNSUPPORTED with the reason. */
f8_status f8_cuda_rows_emit(f8_text *t, const f8_target *target, const f8_kernel *k, bool multi,
                            const char *symbol, f8_cuda_launch *out, f8_diag *d);
/* Whether every vector along rows that k accesses lies at a multiple of its bytes, or of 16 if it
 * has more, in a launch with these arguments and integers: a kernel for such launches alone
 * (f8_kernel.aligned) may be used. All memory that arguments are offsets in is 16-byte aligned. */
bool f8_cuda_rows_are_aligned(const f8_target *target, const f8_kernel *k, const f8_arg *arg,
                              const int64_t *ints);
/* The number of tasks of a launch over `extent` rows (flat kernels: elements). */
int64_t f8_cuda_rows_tasks(const f8_target *target, const f8_kernel *k, int64_t extent);
/* The most instances that one launch of the multi-tensor form takes. */
uint32_t f8_cuda_rows_most_instances(const f8_kernel *k);
/* Whether `tail`, launched over one row, can be the tail of k (rows_tail.c): it has at most one
 * reduction, the largest magnitude of a row of f32, and else only single values. */
bool f8_cuda_rows_takes_tail(const f8_kernel *k, const f8_kernel *tail);

/* Attention (attention.c): up to F8_CUDA_ATTENTION_PHASES kernels, SYMBOL_0, SYMBOL_1, ..., which
 * are launched one after the other; out has a launch and a number of tasks for each. Every kernel
 * gets all arguments of codegen/kernel/attention.h and after them `workspace` bytes of the arena
 * (NULL if there are none). */
enum { F8_CUDA_ATTENTION_PHASES = 3 };
typedef struct f8_cuda_attention {
    f8_cuda_launch launch[F8_CUDA_ATTENTION_PHASES];
    int64_t tasks[F8_CUDA_ATTENTION_PHASES];
    int n;
} f8_cuda_attention;
int64_t f8_cuda_attention_workspace(const f8_attention_desc *desc, bool backward); /* bytes */
f8_status f8_cuda_attention_emit(f8_text *t, const f8_target *target, const f8_attention_desc *desc,
                                 bool backward, const char *symbol, f8_cuda_attention *out,
                                 f8_diag *d);

/* Whether this target has such an attention, before anything is printed: F8_ERR_UNSUPPORTED with
 * the reason. */
f8_status f8_cuda_attention_supports(const f8_target *target, const f8_attention_desc *desc,
                                     f8_diag *d);

#endif
