/* Random modules as users write them: the text of a training, which a seed determines. Every module
 * is legal. The values are matrices of any sizes, and what is made of them are the combinations
 * that hand-written models do not have: linears whose weight or x is a parameter, a dropout, a
 * view or a product of others, tied weights, sums and amaxes in blocks, casts to and fro. */
#ifndef F8_TESTS_MODULEGEN_H
#define F8_TESTS_MODULEGEN_H

#include <stdint.h>

#include "tests/shared/say.h"

void modulegen_make(uint32_t seed, text *to);

#endif
