/* One small function run through codegen and through the interpreter: for tests of kernels.
 *
 *     kcase c;
 *     kc_begin(&c);
 *     f8_ref x = kc_input(&c, F8_F32, 2, 5, 7);
 *     f8_ref y = f8_unary(c.g, F8_OP_EXP, x);
 *     kc_out(&c, y);
 *     kc_phase(&c, 5, 7);                 // all nodes made since the last phase
 *     kc_check(&c);                       // build, run under several task splits, compare
 *     kc_end(&c);
 *
 * Values lie in one buffer with guard bytes between them. */
#ifndef F8_TESTS_KERNEL_CASE_H
#define F8_TESTS_KERNEL_CASE_H

#include "codegen/build.h"
#include "ir/lowered.h"
#include "runtime/base/blob.h"

enum { KC_GROUPS = 64, KC_LIST = 512 };

typedef struct kcase {
    f8_arena arena;
    f8_diag diag;
    f8_module *m;
    f8_func *f;
    f8_graph *g;
    f8_lowered program;
    f8_group group[KC_GROUPS];
    f8_ref first; /* nodes from here on belong to the next phase */
    f8_ref out[KC_LIST], input[KC_LIST];
    uint32_t n_out, outs_used, n_input;
    f8_place place[8 * KC_LIST];
    uint32_t **value; /* by ref, after kc_evaluate: held forms (f32 bits, i32, 0/1, encodings) */
    uint8_t *memory;
    int64_t bytes;
    uint64_t seed;
    f8_plan plan;
    f8_build_stats stats;
    f8_blob blob;
    bool specials; /* inputs hold NaN, infinities, zeros and subnormals too */
} kcase;

extern const char *kc_cpu; /* what to compile for: NULL is this machine */
extern const f8_build_choices *kc_choices; /* which variants; NULL: the model's */

void kc_begin(kcase *c);
void kc_end(kcase *c);

f8_ref kc_input(kcase *c, f8_dtype dtype, int rank, ...); /* int dims */
f8_ref kc_ids(kcase *c, int64_t limit, int rank, ...);    /* i32 in [-1, limit] */
/* A place of its own, or inside another (offset and stride in elements). */
void kc_place(kcase *c, f8_ref r);
void kc_place_in(kcase *c, f8_ref r, f8_ref host, int64_t offset, int64_t stride);
void kc_alias(kcase *c, f8_ref r, f8_ref host); /* the same place: in-place update */

void kc_out(kcase *c, f8_ref r); /* written by the next phase; placed if it has no place yet */
void kc_phase(kcase *c, int64_t rows, int64_t cols);      /* a group of one phase */
void kc_next_phase(kcase *c, int64_t rows, int64_t cols); /* a further phase of the last group */
void kc_single(kcase *c, f8_group_kind kind, f8_ref r);   /* COPY, SCATTER, ... */

f8_status kc_build(kcase *c);
void kc_evaluate(kcase *c);
void kc_fill(kcase *c); /* inputs to memory, the rest to a guard pattern */
void kc_run(kcase *c, int64_t tasks_a_call, bool backwards);
void kc_compare(kcase *c, const char *what);
void kc_check(kcase *c);
/* Lower every row kernel for `target` and interpret the descriptions (kernel_desc.h): nothing is
 * compiled. A TRANSPOSE made in a phase and given to kc_out is its transposed store. */
void kc_check_described(kcase *c, const f8_target *target);

#endif
