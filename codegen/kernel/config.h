/* Variants of kernels: as text and back, which there are for a kernel, and the text by which the
 * tuner's database knows a kernel. */
#ifndef F8_CODEGEN_KERNEL_CONFIG_H
#define F8_CODEGEN_KERNEL_CONFIG_H

#include "codegen/kernel/kernel.h"

enum {
    F8_KERNEL_CONFIG_TEXT = 96,         /* bytes of a variant's text at most, its end included */
    F8_KERNEL_PROBLEM_TEXT = 96,  /* of a problem's */
    F8_KERNEL_CONFIGS = 16,
};

/* "model" for all zeros. */
void f8_kernel_config_text(const f8_kernel_config *v, char text[F8_KERNEL_CONFIG_TEXT]);
/* False, and *v as it was: for a text that is none, as one of a later version. */
bool f8_kernel_config_parse(const char *text, f8_kernel_config *v);

/* The variants of a kernel on a target (NULL: the CPU) that differ from one another, the model's
 * first. wide: the CPU has vectors of 16 f32. Returns how many. */
int f8_kernel_configs(const f8_kernel *k, const f8_target *target, bool wide,
                       f8_kernel_config out[F8_KERNEL_CONFIGS]);

/* Of a kernel without a variant, launched with ints[0] == extent: "rows 0123... x 2048". Extents
 * within a factor of two are one problem, called by the larger power of two. */
void f8_kernel_problem_text(const f8_kernel *k, int64_t extent, char text[F8_KERNEL_PROBLEM_TEXT]);

/* The kernel with another variant, whose text says so unless it is the model's. */
f8_status f8_kernel_with_config(const f8_kernel *k, const f8_kernel_config *v, f8_arena *arena,
                                 f8_kernel **out, f8_diag *d);

#endif
