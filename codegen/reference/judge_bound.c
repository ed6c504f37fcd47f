/* The judge: one element within its bound, and parts of a result. See judge_parts.h. */
#include "codegen/reference/judge_parts.h"

#include <math.h>

double f8_judge_at(const f8_rvalue *v, int64_t i)
{
    static const f8_interp narrow = {0}; /* values have their own dtypes */
    double element;
    f8_interp_load(&narrow, v, i, 1, &element);
    return element;
}

f8_rvalue f8_judge_view(const f8_type *t, const void *data)
{
    return (f8_rvalue){*t, (void *)(uintptr_t)data}; /* only read */
}

/* ---- one element ---- */

void f8_judge_note(f8_judgement *j, int result, int64_t i, double got, double want, double allowed)
{
    if (!j->off++) {
        j->ok = false;
        j->result = result;
        j->at = i;
        j->got = got;
        j->want = want;
        j->allowed = allowed;
    }
}

/* `allowed` is NaN where an operand is NaN, or Inf meets zero. Then the result must be NaN. */
static void judge_element(f8_judgement *j, int result, int64_t i, double got, double want,
                          double allowed)
{
    if (got == want || (isnan(got) && isnan(want)))
        return;
    if (allowed >= F8_LARGEST) {
        j->unbounded++;
        return;
    }
    const double off = fabs(got - want), ratio = off / allowed;
    j->worst = isnan(ratio) ? INFINITY : ratio > j->worst ? ratio : j->worst;
    if (!(off <= allowed))
        f8_judge_note(j, result, i, got, want, allowed);
}

/* ---- bounds ---- */

f8_rvalue f8_judge_room(f8_judging *j, const f8_type *t)
{
    return (f8_rvalue){*t, f8_arena_array(&j->arena, 1, (size_t)f8_type_bytes(t))};
}

void f8_judge_clear(f8_judging *j)
{
    const f8_allocator a = j->arena.allocator;
    f8_arena_end(&j->arena);
    f8_arena_init(&j->arena, &a);
    if (j->strides && j->strides->between)
        j->strides->between(j->strides->user);
}

static double allowed_at(const f8_bound *b, int64_t i, double want)
{
    const double sum = b->sums.data ? f8_judge_at(&b->sums, i) : 0;
    double allowed = b->error * sum + b->absolute;
    if (sum >= F8_LARGEST)
        return INFINITY;
    for (int l = 0; l < F8_BOUND_LOSSES; l++) {
        const double lost = b->lost[l].data ? f8_judge_at(&b->lost[l], i) : 0;
        allowed += isnan(lost) ? 0 : lost;
    }
    return isfinite(want) ? allowed + b->relative * fabs(want) : allowed;
}

void f8_judge_result(f8_judging *j, int result, int64_t first, const f8_rvalue *got,
                     const f8_rvalue *want, const f8_bound *b)
{
    for (int64_t i = 0; i < f8_type_elements(&want->type); i++) {
        const double exact = f8_judge_at(want, i);
        judge_element(j->out, result, first + i, f8_judge_at(got, i), exact,
                      allowed_at(b, i, exact));
    }
}
