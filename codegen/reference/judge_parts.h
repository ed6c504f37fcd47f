/* What the files of the judge share: bounds, and judging some elements of a result by them. */
#ifndef F8_JUDGE_PARTS_H
#define F8_JUDGE_PARTS_H

#include <float.h>

#include "codegen/reference/interp.h"
#include "codegen/reference/judge.h"

static const double F8_U = 0x1p-24;             /* half an ulp of 1 in f32 */
static const double F8_U_BF16 = 0x1p-8;         /* the same in bf16 */
static const double F8_SMALLEST = 0x1p-126;     /* what lies below it may count as zero */
static const double F8_LARGEST = FLT_MAX / 4.0; /* larger sums may overflow on the way */

enum { F8_BOUND_LOSSES = 3 };

/* An element may be off by error * sums + the sum of `lost` + relative * |want| + absolute. Where
 * that is Inf, the element has no bound. sums and lost have an element for each of the result;
 * where their data is NULL they are 0. */
typedef struct f8_bound {
    double error, relative, absolute;
    f8_rvalue sums, lost[F8_BOUND_LOSSES];
} f8_bound;

typedef struct f8_judging {
    const f8_graph *g;
    f8_ref r;
    f8_sums sums;
    const void *const *operand, *const *result;
    const f8_judge_rows *strides; /* NULL: all values are contiguous */
    f8_arena arena;
    f8_judgement *out;
    f8_diag *diag;
} f8_judging;

/* ---- judge_bound.c ---- */
double f8_judge_at(const f8_rvalue *v, int64_t i);
f8_rvalue f8_judge_view(const f8_type *t, const void *data); /* only to be read */
f8_rvalue f8_judge_room(f8_judging *j, const f8_type *t);    /* in the arena */
void f8_judge_clear(f8_judging *j);                          /* frees what judging a part took */
/* Notes an element that is off. */
void f8_judge_note(f8_judgement *j, int result, int64_t i, double got, double want, double allowed);
/* Judges some elements of a result, from element `first` on: those in `got`, `want` and `b`. */
void f8_judge_result(f8_judging *j, int result, int64_t first, const f8_rvalue *got,
                     const f8_rvalue *want, const f8_bound *b);

/* ---- judge_product.c ---- */
/* `product` is the node of class GEMM that is judged, or that the judged node casts. */
f8_status f8_judge_product(f8_judging *j, f8_ref product);

#endif
