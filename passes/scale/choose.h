/* Choosing recipes: what `auto` stands for.
 *
 * Every GEMM of a linear is a trial with one candidate per recipe. A candidate that the target has
 * is measured on samples of the operands (frontend/calibration.c does that): the error of the
 * GEMM's result, and of each operand. Its cost is estimated from the target's rates: the seconds of
 * the GEMM, and the bytes moved to make its operands. The cheapest candidate whose error is within
 * the budget wins. Where there is none, bf16 wins.
 *
 * The error is that of the result, y = a b, taken row by row and column by column over a part of
 * it: the root of the mean over rows of |Q(a) Q(b) - y|^2 / |y|^2, or the same over columns,
 * whichever is larger. It is the error of the result and not of the operands because outliers hide
 * the values that they drown: one channel a million times larger than the others keeps a tensor's
 * SQNR high while the others become zero, and the result lacks the products of those. It is the
 * error of lines and not of the whole for the same reason: tokens whose values are a millionth of
 * other tokens' may be scaled up again later.
 *
 * E4M3 operands with fitting scales give 3.7% (2.65% each, rounding error uniform over 2^-4 of a
 * binade), E4M3 by E5M2 5.9%, and lines of 16 elements a tenth more. A line that is zero in both
 * results says nothing of later values and is not counted. A GEMM without any other line (a
 * projection that begins at zero, the gradients behind it) stays bf16. */
#ifndef F8_CHOOSE_H
#define F8_CHOOSE_H

#include "passes/unit/pass.h"

/* The largest relative error of a GEMM's result: half as much again as E4M3 by E5M2 gives when
 * nothing is lost. */
#define F8_ERROR_BUDGET 0.1

/* The trials of what calibrate sampled, with costs. A candidate is excluded where the target, the
 * sizes or a rule says so. In u->arena. u->options are those of the calibration's program; the
 * module's rules say what is left to auto. NULL on failure. */
f8_trial *f8_trials(f8_unit *u, const f8_target *target, size_t *n);

/* Set winner and reason. The errors must have been measured. */
void f8_choose(f8_trial *t, double budget, f8_arena *arena);

/* The winners as rules: one rule per linear where its GEMMs agree, else one per GEMM. Strings are
 * in m. */
f8_status f8_chosen_rules(const f8_trial *trial, size_t n, f8_module *m, f8_recipe_rule **rules,
                          size_t *n_rules);

#endif
