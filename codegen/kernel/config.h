/* Configurations of kernels: as text and back, which ones a kernel has, and the text by which the
 * tuner's database knows a kernel. */
#ifndef F8_CODEGEN_KERNEL_CONFIG_H
#define F8_CODEGEN_KERNEL_CONFIG_H

#include "codegen/kernel/kernel.h"

enum {
    F8_KERNEL_CONFIG_TEXT = 96,  /* bytes of its text at most, with the final NUL */
    F8_KERNEL_PROBLEM_TEXT = 96,  /* the same, of the text of a problem */
    F8_KERNEL_CONFIGS = 16,
};

/* "model" if all fields are zero. */
void f8_kernel_config_text(const f8_kernel_config *v, char text[F8_KERNEL_CONFIG_TEXT]);
/* False, and *v is unchanged, if the text is not a configuration of this version. */
bool f8_kernel_config_parse(const char *text, f8_kernel_config *v);

/* The configurations of a kernel on a target (NULL: the CPU) that differ from one another, the one
 * of the model first. wide: the CPU has vectors of 16 f32. Returns their number. */
int f8_kernel_configs(const f8_kernel *k, const f8_target *target, bool wide,
                      f8_kernel_config out[F8_KERNEL_CONFIGS]);

/* The text of a kernel without a configuration, launched with ints[0] == extent: "rows 0123... x
 * 2048". Extents are rounded up to a power of two, so extents within a factor of two are one
 * problem. */
void f8_kernel_problem_text(const f8_kernel *k, int64_t extent, char text[F8_KERNEL_PROBLEM_TEXT]);

/* The kernel with configuration *v. Its text has a line for it, unless it is that of the model. */
f8_status f8_kernel_with_config(const f8_kernel *k, const f8_kernel_config *v, f8_arena *arena,
                                f8_kernel **out, f8_diag *d);

#endif
