/* For tests of `fp8c export`: a model with weights of every layout, and runs of the commands on it.
 */
#ifndef TEST_EXPORT_CASE_H
#define TEST_EXPORT_CASE_H

#include "tests/shared/api/checkpoint.h"

enum { TIMEOUT = 900 };

/* Sizes that are no multiples of a block, weights in both layouts, and one that an embedding reads
 * as well. */
static const char mixed[] =
    "module mixed\ndim V = 256\n"
    "param wte: f32[V, 144] normal(0.3)\n"
    "param up.weight: f32[144, 272] normal(0.1)\n"
    "param down.weight: f32[144, 272] normal(0.1)\n"
    "param norm: f32[144] ones\n"
    "func forward(%tokens: i32[2, 32], %targets: i32[2, 32]) -> (%loss: f32[]) {\n"
    "  %x = mul(embedding(wte, %tokens), norm)\n"
    "  %y = linear(gelu(linear(%x, up.weight)), down.weight) {transpose_b = true}\n"
    "  return cross_entropy(linear(%y, wte) {transpose_b = true, name = \"head\"}, %targets)\n}\n"
    "optimizer adamw {lr = 0.02, clip = 1}\n"
    "recipe \"head\" = bf16\n";

static char model[4200];

static inline void setup(void)
{
    f8_cli_setup();
    snprintf(model, sizeof model, "%s", f8_cli_write("mixed.f8", mixed, sizeof mixed - 1));
}

/* ---- running ---- */

/* The held-out loss of the training, whose checkpoint is at `name`. */
static inline double train(const char *recipe, const char *name)
{
    ok(RUN("train", model, "--steps", "4", "--recipe", recipe, "--save", f8_cli_temp(name)));
    return number("summary", 0, "heldout_loss");
}

static inline double eval(const char *recipe, const char *name)
{
    ok(RUN("eval", model, "--recipe", recipe, "--weights", f8_cli_temp(name)));
    return number("eval", 0, "heldout_loss");
}

static inline f8_cli_result run_export(const char *recipe, const char *from, const char *to)
{
    return RUN("export", model, "--recipe", recipe, "--weights", f8_cli_temp(from), "-o",
               f8_cli_temp(to));
}

static inline f8_cli_result run_eval(const char *recipe, const char *name)
{
    return RUN("eval", model, "--recipe", recipe, "--weights", f8_cli_temp(name));
}

#endif
