/* Choosing recipes: what `auto` stands for.
 *
 * Every GEMM of a linear is a trial with one candidate a recipe. A candidate that the target has is
 * measured on samples of the operands (frontend/calibration.c does): the error of the GEMM's
 * result, and of each operand. Its cost is estimated from the target's rates: the GEMM, and the
 * bytes that making its operands moves. The cheapest candidate whose error is within the budget
 * wins; where none is, bf16.
 *
 * The error is that of the result, y = a b, row by row and column by column of a part of it: the
 * root of the mean over rows of |Q(a) Q(b) - y|^2 / |y|^2, or over columns, whichever is larger. It
 * is the result's and not the operands' because outliers hide what they drown: one channel a
 * million times larger than the others keeps a tensor's SQNR high while the others become zero, and
 * it is their products that the result then lacks. And it is of lines and not of the whole for the
 * same reason: tokens whose values are a millionth of other tokens' may be scaled up again later.
 * E4M3 operands with fitting scales give 3.7% (2.65% each, rounding error uniform over 2^-4 of a
 * binade), E4M3 by E5M2 5.9%, and lines of 16 elements a tenth more. A line that is zero in both
 * says nothing of what it will be and isn't counted; a GEMM without any other (a projection that
 * begins at zero, the gradients behind it) stays bf16. */
#ifndef F8_CHOOSE_H
#define F8_CHOOSE_H

#include "passes/unit/pass.h"

/* Largest relative error of a GEMM's result: half as much again as E4M3 by E5M2 gives when nothing
 * is lost. */
#define F8_ERROR_BUDGET 0.1

/* The trials of what calibrate sampled, with their candidates excluded where the target, the sizes
 * or a rule says so, and costs. In u->arena; u->options are those of the calibration's program,
 * `rules` says what the module's rules leave to auto. NULL on failure. */
f8_trial *f8_trials(f8_unit *u, const f8_target *target, size_t *n);

/* Set winner and reason; errors are measured. */
void f8_choose(f8_trial *t, double budget, f8_arena *arena);

/* The winners as rules, one a linear where its GEMMs agree; strings in m. */
f8_status f8_chosen_rules(const f8_trial *trial, size_t n, f8_module *m, f8_recipe_rule **rules,
                          size_t *n_rules);

#endif
