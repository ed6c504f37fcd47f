/* Guards: fp8c_guard_*, see fp8c_diagnose.h. What is looked at, and how an alarm is put. The rules
 * are in judge.c. */
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "frontend/figures.h"
#include "frontend/diagnose/guard/guard.h"
#include "frontend/diagnose/guard/judge.h"
#include "frontend/program.h"
#include "ir/base/format.h"
#include "ir/num/fp8.h"

enum { KINDS = FP8C_ALARM_RANGE + 1, GPU_EVERY = 10 };

/* What is kept of a statistic. */
typedef struct looks {
    struct {
        uint8_t in_row; /* bad ones */
        int64_t since;  /* the first step that may have done the first of them */
    } of[F8_FIGURES];
    f8_used_judge used;
} looks;

struct fp8c_guard {
    fp8c_context *ctx;
    fp8c_guard_options options;
    f8_arena arena;
    f8_loss_judge loss;
    f8_alarm_state state[KINDS];
    bool looked_at[KINDS], bad[KINDS]; /* in this step */
    fp8c_alarm alarm[KINDS];
    int n_alarms;
    bool far;         /* fp8c_guard_info */
    int64_t step;     /* the last */
    int64_t suspects; /* fp8c_guard_info */
    int scale;        /* the variable; -1: there is none; -2: not looked for yet */
    int64_t n_scales;
    int64_t scale_looks;
    float *ring;   /* [n_scales, F8_SCALE_KEPT] */
    float *copy;   /* [n_scales], for scales that are not in host memory */
    looks *looked; /* by statistic */
    int64_t last_look;
    size_t n_looked;
};

bool f8_alarm_is_bad(const char *kind)
{
    return !kind || strcmp(kind, fp8c_name(FP8C_NAME_ALARM, FP8C_ALARM_RANGE));
}

fp8c_status fp8c_guard_create(fp8c_context *ctx, const fp8c_guard_options *options,
                              fp8c_guard **out)
{
    f8_diag diag = {0};
    *out = NULL;
    fp8c_guard *g = f8_api_new(ctx, sizeof *g, 16, &diag);
    if (!g)
        return f8_api_result(ctx, &diag, diag.status);
    g->ctx = ctx;
    g->scale = -2;
    f8_arena_init(&g->arena, &ctx->allocator);
    g->options.struct_size = sizeof g->options;
    const f8_status status = f8_api_options(&g->options, options, "fp8c_guard_options", &diag);
    if (status != F8_OK) {
        fp8c_guard_destroy(g);
        return f8_api_result(ctx, &diag, status);
    }
    g->options.underflow = g->options.underflow > 0 ? g->options.underflow : 0.1;
    g->options.overflow = g->options.overflow > 0 ? g->options.overflow : 0.01;
    *out = g;
    return FP8C_OK;
}

void fp8c_guard_destroy(fp8c_guard *g)
{
    if (!g)
        return;
    f8_arena_end(&g->arena);
    f8_api_delete(g->ctx, g, sizeof *g);
}

/* ---- alarms ---- */

/* Notes that a kind is bad in this step. The alarm to fill in, or NULL: it was raised already, or
 * this step has one of the kind, which then has another tensor. */
static fp8c_alarm *raised(fp8c_guard *g, fp8c_alarm_kind kind)
{
    if (g->bad[kind]) {
        for (int i = 0; i < g->n_alarms; i++)
            g->alarm[i].others += g->alarm[i].kind == kind;
        return NULL;
    }
    g->bad[kind] = true;
    if (!f8_judge_raises(&g->state[kind], true))
        return NULL;
    fp8c_alarm *a = &g->alarm[g->n_alarms++];
    *a = (fp8c_alarm){.struct_size = sizeof *a,
                      .kind = kind,
                      .step = g->step,
                      .since = g->step,
                      .value = NAN,
                      .limit = NAN};
    return a;
}

static int64_t at_least_1(int64_t step)
{
    return step > 1 ? step - 1 : 1;
}

/* ---- not finite ---- */

static void say_nonfinite(fp8c_alarm *a, const fp8c_found *f, const char *what)
{
    if (!f) {
        f8_format(a->text, sizeof a->text, "%s is not finite", what);
        return;
    }
    if (!f->tensor) {
        f8_format(a->text, sizeof a->text,
                  "%s is not finite, and all inputs, parameters, states and gradients are: its "
                  "kernels make it so, or the machine computes wrong",
                  what);
        return;
    }
    char others[64] = "";
    if (f->others)
        f8_format(others, sizeof others, ", and in %" PRId64 " more of its kind", f->others);
    a->tensor = f->tensor;
    a->role = f->role;
    a->others = f->others;
    if (!f->nonfinite) {
        f8_format(a->text, sizeof a->text,
                  "%s is not finite: all gradients are, but the square of %g, element %" PRId64
                  " of '%.120s', is not",
                  what, f->value, f->index, f->tensor);
        return;
    }
    f8_format(a->text, sizeof a->text,
              "%s is not finite: %s '%.120s' has %g at element %" PRId64 " (%" PRId64 " of %" PRId64
              "%s)",
              what, f->role, f->tensor, f->value, f->index, f->nonfinite, f->elements, others);
    if (strcmp(f->role, "input") && strcmp(f->role, "gradient"))
        a->since = at_least_1(a->step); /* the update before has left it so */
}

static void judge_nonfinite(fp8c_guard *g, const fp8c_guard_facts *facts)
{
    const bool loss = !isfinite(facts->loss);
    g->looked_at[FP8C_ALARM_LOSS_NONFINITE] = true;
    g->looked_at[FP8C_ALARM_NORM_NONFINITE] = !loss;
    if (!loss && isfinite(facts->grad_norm))
        return;
    fp8c_alarm *a = raised(g, loss ? FP8C_ALARM_LOSS_NONFINITE : FP8C_ALARM_NORM_NONFINITE);
    if (!a)
        return;
    a->value = loss ? facts->loss : facts->grad_norm;
    say_nonfinite(a, facts->found, loss ? "the loss" : "the norm of the gradients");
}

/* ---- the loss ---- */

static void judge_loss(fp8c_guard *g, const fp8c_guard_facts *facts)
{
    double limit;
    if (!isfinite(facts->loss))
        return;
    g->looked_at[FP8C_ALARM_LOSS_EXPLODES] = true;
    const bool explodes = f8_judge_loss(&g->loss, facts->loss, &limit);
    const int ago = f8_judge_since(&g->loss);
    g->far = ago >= 0 && g->loss.far & 1;
    g->suspects = ago < 0 ? 0 : at_least_1(g->step - ago);
    fp8c_alarm *a = explodes ? raised(g, FP8C_ALARM_LOSS_EXPLODES) : NULL;
    if (!a)
        return;
    a->since = g->suspects;
    a->value = facts->loss;
    a->limit = limit;
    f8_format(a->text, sizeof a->text,
              "the loss explodes: %.6g, far from its running median of %.6g (above %.6g)",
              facts->loss, g->loss.least, limit);
}

/* ---- scales ---- */

static f8_status begin_scales(fp8c_guard *g, fp8c_program *p, f8_diag *diag)
{
    fp8c_variable v;
    g->scale = fp8c_program_find_variable(p, "fp8.scale");
    if (g->scale < 0 || !fp8c_program_element(p, g->scale, 0, 0) ||
        fp8c_program_variable(p, g->scale, &v) != FP8C_OK || v.type.dtype != FP8C_F32) {
        g->scale = -1;
        return F8_OK;
    }
    g->n_scales = fp8c_type_bytes(&v.type) / (int64_t)sizeof(float);
    g->ring = F8_NEW_ARRAY(&g->arena, float, (size_t)g->n_scales *F8_SCALE_KEPT);
    g->copy = F8_NEW_ARRAY(&g->arena, float, (size_t)g->n_scales);
    return f8_arena_status(&g->arena, diag);
}

/* How many steps lie between two looks. */
static int64_t scale_every(const fp8c_guard *g, fp8c_program *p)
{
    fp8c_variable v;
    fp8c_program_variable(p, g->scale, &v);
    return g->options.scale_every ? g->options.scale_every : v.data ? 1 : GPU_EVERY;
}

/* since: the first step after the last look that was good. */
static void say_scale(fp8c_alarm *a, const char *operand, double scale, double limit, int64_t since)
{
    a->since = since > 1 ? since : 1;
    a->tensor = operand;
    a->role = "scale";
    a->value = isnan(scale) ? NAN : scale;
    a->limit = limit;
    if (isnan(limit))
        f8_format(a->text, sizeof a->text, "the scale of '%.120s' is %g", operand, a->value);
    else
        f8_format(a->text, sizeof a->text,
                  "the scale of '%.120s' is %g: its running median is more than 2^%d times as %s",
                  operand, scale, F8_SCALE_BITS, scale < limit ? "large" : "small");
}

/* Where the scales are: on a CPU where the program has them, else in a copy. */
static f8_status scales_of(fp8c_guard *g, fp8c_program *p, const float **out, f8_diag *diag)
{
    fp8c_variable v;
    fp8c_program_variable(p, g->scale, &v);
    *out = v.data ? v.data : g->copy;
    return v.data
               ? F8_OK
               : p->now->instance.kind->read(&p->now->instance, (uint32_t)g->scale, g->copy, diag);
}

static bool looks_at_scales(const fp8c_guard *g, fp8c_program *p)
{
    return g->scale >= 0 && g->options.scale_every >= 0 && g->step % scale_every(g, p) == 0;
}

static f8_status judge_scales(fp8c_guard *g, fp8c_program *p, f8_diag *diag)
{
    const float *scale;
    double limit;
    int64_t ago;
    if (g->scale == -2)
        F8_TRY(begin_scales(g, p, diag));
    if (!looks_at_scales(g, p))
        return F8_OK;
    F8_TRY(scales_of(g, p, &scale, diag));
    g->looked_at[FP8C_ALARM_SCALE] = true;
    for (int64_t i = 0; i < g->n_scales; i++)
        if (f8_judge_scale(g->ring + i * F8_SCALE_KEPT, g->scale_looks, scale[i], &limit, &ago)) {
            fp8c_alarm *a = raised(g, FP8C_ALARM_SCALE);
            if (a)
                say_scale(a, fp8c_program_element(p, g->scale, i, 0), (double)scale[i], limit,
                          g->step + 1 - (ago + 1) * scale_every(g, p));
        }
    g->scale_looks++;
    return F8_OK;
}

fp8c_status f8_guard_prime_scales(fp8c_guard *g, fp8c_program *p, int64_t steps)
{
    const float *scale;
    double limit;
    int64_t ago;
    f8_diag diag = {0};
    f8_status status = g->scale == -2 ? begin_scales(g, p, &diag) : F8_OK;
    if (status == F8_OK && g->scale >= 0)
        status = scales_of(g, p, &scale, &diag);
    if (status != F8_OK || g->scale < 0)
        return f8_api_result(g->ctx, &diag, status);
    for (int64_t n = 0; n < steps && n < F8_SCALE_KEPT; n++, g->scale_looks++)
        for (int64_t i = 0; i < g->n_scales; i++)
            f8_judge_scale(g->ring + i * F8_SCALE_KEPT, g->scale_looks, scale[i], &limit, &ago);
    return f8_api_result(g->ctx, &diag, F8_OK);
}

/* ---- statistics ---- */

static void say_share(fp8c_alarm *a, const fp8c_statistic *s, double share, double limit,
                      int64_t since, const char *does)
{
    if (!a)
        return;
    a->since = since;
    a->tensor = s->name;
    a->role = "operand";
    a->value = share;
    a->limit = limit;
    f8_format(a->text, sizeof a->text,
              "%.3g%% of '%.120s' %s in %d looks in a row: the limit is %.3g%%", 100 * share,
              s->name, does, F8_LOOKS, 100 * limit);
}

/* Why so little of the range is in use. */
static void say_reason(const f8_watched *w, const fp8c_statistic *s, char *to, size_t size)
{
    const double largest = (double)f8_dtype_max(w->format);
    if (w->recipe.margin >= F8_USED_BITS)
        f8_format(to, size, "'margin = %" PRId64 "' makes its scales 2^%" PRId64 " times smaller",
                  w->recipe.margin, w->recipe.margin);
    else if (s->amax * (double)FLT_MAX < largest)
        f8_format(to, size, "its largest value, %.3g, is too small for any scale in f32", s->amax);
    else if (s->scale * (1 << F8_USED_BITS) <= s->scale_wanted)
        f8_format(to, size, "its scale is %.3g, and its largest value, %.3g, asks for %.3g%s",
                  s->scale, s->amax, s->scale_wanted,
                  w->recipe.scaling == F8_SCALING_DELAYED ? ": its history has larger ones" : "");
    else
        f8_format(to, size, "its scales are too small for its largest value, %.3g", s->amax);
}

static void judge_used(fp8c_guard *g, const f8_watched *w, const fp8c_statistic *s,
                       f8_used_judge *j)
{
    double middle;
    char why[160];
    if (isnan(s->used) || !(s->amax > 0) || s->nonfinite)
        return; /* zeros use no code, and need none */
    const bool history = w->recipe.scaling == F8_SCALING_DELAYED;
    const double of_amax = history ? s->scale / (double)f8_dtype_max(w->format) : 0;
    if (!f8_judge_used(j, s->used, s->amax, of_amax, &middle))
        return;
    fp8c_alarm *a = raised(g, FP8C_ALARM_RANGE);
    if (!a)
        return;
    a->tensor = s->name;
    a->role = "operand";
    a->value = middle;
    a->limit = F8_USED_LEAST;
    say_reason(w, s, why, sizeof why);
    f8_format(a->text, sizeof a->text,
              "'%.96s' uses %.3g%% of the range of %s (median of its last looks; the limit is "
              "%.3g%%): %s",
              s->name, 100 * middle, s->format, 100 * F8_USED_LEAST, why);
}

/* Takes a look. *since: the step after the last look that was good, or the first look. */
static bool looks_bad(const fp8c_guard *g, uint8_t *in_row, int64_t *since, bool bad)
{
    if (bad && !*in_row)
        *since = g->last_look ? g->last_look + 1 : g->step;
    return f8_judge_look(in_row, bad);
}

static void judge_finite(fp8c_guard *g, const fp8c_statistic *s)
{
    fp8c_alarm *a = s->nonfinite ? raised(g, FP8C_ALARM_TENSOR_NONFINITE) : NULL;
    if (!a)
        return;
    a->tensor = s->name;
    a->role = "operand";
    a->value = (double)s->nonfinite;
    a->limit = 0;
    f8_format(a->text, sizeof a->text,
              "%" PRId64 " of %" PRId64 " elements of '%.120s' are not finite", s->nonfinite,
              s->elements, s->name);
}

static void judge_share(fp8c_guard *g, const fp8c_statistic *s, looks *l, int figure, double limit,
                        const char *does)
{
    const double share = f8_figure_of(s, figure);
    if (looks_bad(g, &l->of[figure].in_row, &l->of[figure].since, share > limit))
        say_share(raised(g, (fp8c_alarm_kind)f8_figures[figure].alarm), s, share, limit,
                  l->of[figure].since, does);
}

/* A row's alarm is one that judge_figure knows. Two of them are rules for one figure. */
enum { NO_ALARM = -1 };
#define FIGURE(name, unit, has, better, kept, worst, beside, alarm, formula, label, sentence)      \
    _Static_assert(                                                                                \
        (int)(alarm) == NO_ALARM || (int)(alarm) == FP8C_ALARM_UNDERFLOW ||                        \
            (int)(alarm) == FP8C_ALARM_OVERFLOW ||                                                 \
            ((int)(alarm) == FP8C_ALARM_TENSOR_NONFINITE &&                                        \
             (int)F8_FIGURE_##name == F8_FIGURE_nonfinite) ||                                      \
            ((int)(alarm) == FP8C_ALARM_RANGE && (int)F8_FIGURE_##name == F8_FIGURE_used),         \
        "no rule judges " #name " for " #alarm);
#include "frontend/figures.def"
#undef FIGURE

static void judge_figure(fp8c_guard *g, const f8_watched *w, const fp8c_statistic *s, looks *l,
                         int figure)
{
    switch (f8_figures[figure].alarm) {
    case FP8C_ALARM_TENSOR_NONFINITE: judge_finite(g, s); break;
    case FP8C_ALARM_UNDERFLOW:
        judge_share(g, s, l, figure, g->options.underflow, "underflows");
        break;
    case FP8C_ALARM_OVERFLOW: judge_share(g, s, l, figure, g->options.overflow, "saturates"); break;
    case FP8C_ALARM_RANGE: judge_used(g, w, s, &l->used); break;
    default: break;
    }
}

static f8_status judge_statistics(fp8c_guard *g, fp8c_program *p, int function, f8_diag *diag)
{
    fp8c_statistic s = {.struct_size = sizeof s};
    if (!g->looked && p->now->report.n_watched) {
        g->n_looked = p->now->report.n_watched;
        g->looked = F8_NEW_ARRAY(&g->arena, looks, g->n_looked);
        F8_TRY(f8_arena_status(&g->arena, diag));
        memset(g->looked, 0, g->n_looked * sizeof *g->looked);
    }
    for (size_t i = 0; i < g->n_looked; i++) {
        if (fp8c_program_statistic(p, function, (int)i, &s) != FP8C_OK)
            return F8_OK; /* not in this step */
        for (int k = 0; k < F8_FIGURES && !s.what_if; k++) /* nothing was computed with a what-if */
            judge_figure(g, f8_program_watched(p, function, (int)i), &s, &g->looked[i], k);
    }
    for (int i = FP8C_ALARM_TENSOR_NONFINITE; i < KINDS && g->n_looked; i++)
        g->looked_at[i] = true;
    g->last_look = g->n_looked ? g->step : g->last_look;
    return F8_OK;
}

/* ---- a step ---- */

fp8c_status fp8c_guard_step(fp8c_guard *g, const fp8c_guard_facts *facts)
{
    fp8c_guard_facts own = {.struct_size = sizeof own};
    f8_diag diag = {0};
    f8_status status = f8_api_options(&own, facts, "fp8c_guard_facts", &diag);
    if (status != F8_OK)
        return f8_api_result(g->ctx, &diag, status);
    g->n_alarms = 0;
    memset(g->bad, 0, sizeof g->bad);
    memset(g->looked_at, 0, sizeof g->looked_at);
    g->far = false;
    g->step = own.step;
    judge_nonfinite(g, &own);
    judge_loss(g, &own);
    if (own.program)
        status = judge_scales(g, own.program, &diag);
    if (own.program && status == F8_OK)
        status = judge_statistics(g, own.program, own.function, &diag);
    for (int i = 0; i < KINDS; i++)
        if (g->looked_at[i] && !g->bad[i])
            f8_judge_raises(&g->state[i], false);
    return f8_api_result(g->ctx, &diag, status);
}

fp8c_status fp8c_guard_alarm(const fp8c_guard *g, int index, fp8c_alarm *out)
{
    if (index < 0 || index >= g->n_alarms)
        return FP8C_ERR_INPUT;
    f8_api_give(out, &g->alarm[index]);
    return FP8C_OK;
}

void fp8c_guard_report(const fp8c_guard *g, fp8c_guard_info *out)
{
    fp8c_guard_info own = {.struct_size = sizeof own, .far = g->far, .suspects = g->suspects};
    for (int i = 0; i < KINDS; i++)
        own.raised |= (uint32_t)g->state[i].raised << i;
    f8_api_give(out, &own);
}
