/* The checks of recipes that every target must pass: scales and codes bit for bit as in
 * recipe_oracle.h, after one step and over many, and no Inf or NaN hidden. Sizes and recipes are
 * those that the target supports. Every function fails the running test on an error. */
#ifndef F8_TESTS_RECIPE_CHECK_H
#define F8_TESTS_RECIPE_CHECK_H

#include "tests/shared/recipe/recipe_case.h"

/* All recipes but the delayed, with their options, in the order of grain: their scales follow from
 * the operands at hand. The last four are fake. */
enum { RECIPE_SPECS = 16, RECIPE_FAKES = 4 };
extern const recipe_spec recipe_specs[RECIPE_SPECS];
enum { RECIPE_DELAYED = 6 };
extern const recipe_spec recipe_delayed[RECIPE_DELAYED];

/* How many operands a linear has under a recipe. */
int recipe_operands(const recipe_spec *s);

/* One step each on operands of every kind in turn (recipe_data), or of every `each`th, x, w and dy
 * of different ones; on the first also after an update. */
void recipe_check_bits(const recipe_spec *spec, int n_specs, const recipe_sizes *sizes, int each,
                       const char *target);

/* Delayed linears over a story of steps: growing, shrinking, zeros, several micro-steps an update,
 * an update skipped. */
void recipe_check_delayed(const recipe_spec *spec, int n_specs, const recipe_sizes *sizes,
                          const char *target);

/* An Inf or a NaN in one element of an operand shows in every product that has the operand, and the
 * update is skipped. */
void recipe_check_shown(const recipe_spec *spec, const recipe_sizes *sizes, const char *target);

#endif
