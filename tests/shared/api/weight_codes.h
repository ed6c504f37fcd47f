/* Variables that hold codes of weights. They follow from the rest, come last, and belong to a
 * target's own layout. So most comparisons leave them out. */
#ifndef F8_TEST_WEIGHT_CODES_H
#define F8_TEST_WEIGHT_CODES_H

#include <stdbool.h>
#include <string.h>

/* Whether a variable of that name holds codes of a weight, or their scales. */
static inline bool is_weight_codes(const char *name)
{
    return !strncmp(name, "fp8.codes.", 10) || !strncmp(name, "fp8.scale_inv.", 14);
}

#endif
