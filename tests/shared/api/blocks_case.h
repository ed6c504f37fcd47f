/* For tests of layers in the caller's loop: a transformer of four blocks as one program's pair or
 * as four programs, and a caller with an optimizer of its own. */
#ifndef TEST_BLOCKS_CASE_H
#define TEST_BLOCKS_CASE_H

#include "tests/shared/api/pair_case.h"

enum { BLOCKS = 4, MICRO = 3, BLOCKS_PARAMS = 80 };

/* What stands at the cuts of the one program. */
typedef enum blocks_cut {
    CUT_MARKED, /* a boundary */
    CUT_PROBED, /* a boundary of the sum with an input cutN of zeros, whose gradient dcutN is that
                   of the value at the cut */
    CUT_NONE
} blocks_cut;

typedef struct blocks_how {
    const char *target, *recipe;
    bool four; /* programs; else one, which also has micro_step */
    blocks_cut cut;
    bool budgets; /* each of the four programs saves another share of what it saves without */
} blocks_how;

/* A parameter as the caller's optimizer has it: the program's memory may be a GPU's. */
typedef struct blocks_param {
    char name[64];
    fp8c_program *program;
    int variable, grad_variable;
    int64_t n;
    float *value, *grad, *m, *v;
} blocks_param;

/* The model as a caller holds it. */
typedef struct blocks {
    bool bf16; /* what passes between programs is bf16, else f32 */
    int n;     /* programs: BLOCKS, or 1 */
    fp8c_program *p[BLOCKS];
    fp8c_saved *saved[BLOCKS][MICRO];
    pair_values micro[MICRO]; /* inputs, results and what passes between programs */
    blocks_param param[BLOCKS_PARAMS];
    int n_params;
    int step;
    bool train;  /* the one program's micro_step runs in place of its pair */
    int forgets; /* the program whose update_scales is left out in the second step; -1: none */
    bool twice;  /* each forward runs twice; the first has no backward */
} blocks;

/* The text of blocks [first, end) for the recipe: the embedding is in the first, the loss in the
 * last. With recipe "auto" every block has rules of its own. With `watch` the values that these
 * letters name in each block (put_block) are results too, "out.n0", rounded as they are anyway. */
void blocks_text(char *text, size_t room, const char *recipe, int first, int end, blocks_cut cut,
                 const char *watch);

/* Compile and initialize. */
void blocks_begin(blocks *b, fp8c_context *ctx, const blocks_how *how);
void blocks_end(blocks *b);

/* One step: MICRO forwards and backwards, clipping and AdamW on the mean of the gradients,
 * update_scales. Four programs run all forwards and then all backwards. One program runs a backward
 * after each forward, the first through named ports, the others through a handle. */
void blocks_step(blocks *b);

/* The first thing that differs after a step, or NULL: a loss, a gradient at a cut (where both have
 * them), a parameter's gradient, a parameter, an element of FP8 states. The text is static. */
const char *blocks_differ(const blocks *x, const blocks *y);

#endif
