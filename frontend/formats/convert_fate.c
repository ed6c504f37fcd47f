/* What becomes of each weight of a folder that is converted: see convert_parts.h. */
#include "frontend/formats/convert_parts.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { SHOWN = 200 };

const char *f8_fate_name(f8_fate fate)
{
    static const char *const names[] = {"kept", "spread", "requantized", "merged", "dequantized"};
    return names[fate];
}

bool f8_convert_stops(void *user)
{
    const f8_convert_work *w = user;
    return w->c->stop && w->c->stop(w->c->stop_user);
}

/* ---- what a weight can be ---- */

/* Codes that are no linear's weight have scales that no name tells: experts in one tensor. */
static f8_status check_others(f8_convert_work *w)
{
    char shown[SHOWN];
    if (!w->c->from->n_other)
        return F8_OK;
    const f8_weight *t = w->c->from->other[0];
    return F8_CONVERT_FAIL(
        w, t->file->in.path,
        "'%s' is %s, but no linear's weight [out, in]: a conversion takes FP8 in matrices "
        "NAME.weight alone",
        f8_st_shown(t->name, shown, SHOWN), f8_st_dtype_name(t->tensor->dtype));
}

/* The granularity of the new folder: that of most weights, if the format has it. */
static f8_status choose_grain(f8_convert_work *w)
{
    const f8_model_folder *f = w->c->from;
    int64_t of[F8_N_GRAINS] = {0};
    int most = F8_BY_TENSOR;
    for (size_t i = 0; i < f->n_scaled; i++) {
        const f8_scaled *s = &f->scaled[i];
        char shown[SHOWN];
        if (!s->scale || !s->fits)
            return F8_CONVERT_FAIL(w, s->codes->file->in.path,
                                   "'%s' has no scales that go with it: `fp8c weights` says more",
                                   f8_st_shown(s->codes->name, shown, SHOWN));
        if (s->codes->tensor->dtype != F8_ST_F8_E4M3)
            return F8_CONVERT_FAIL(w, s->codes->file->in.path,
                                   "the codes of '%s' are %s, not F8_E4M3",
                                   f8_st_shown(s->codes->name, shown, SHOWN),
                                   f8_st_dtype_name(s->codes->tensor->dtype));
        of[s->grain]++;
    }
    for (int g = 0; g < F8_N_GRAINS; g++)
        most = of[g] > of[most] ? g : most;
    w->grain = f8_fp8_format_has(w->c->to, (f8_grain)most) ? (f8_grain)most : F8_BY_BLOCKS;
    return F8_OK;
}

/* Measures how near the new values are: the SQNR, and the same noise beside the squares of what the
 * adapter adds, `energy`. */
static void compare(f8_converted *x, double energy, const float *values, const float *to, int64_t n)
{
    double signal = 0, noise = 0;
    for (int64_t i = 0; i < n; i++) {
        const double off = (double)to[i] - (double)values[i];
        signal += (double)values[i] * (double)values[i];
        noise += off * off;
    }
    x->sqnr = noise > 0 ? 10 * log10(signal / noise) : (double)INFINITY;
    x->added = energy > 0 ? 10 * log10(energy / noise) : (double)NAN;
}

/* The scales of new codes. */
static f8_status scale(f8_convert_work *w, f8_converted *x, const f8_quantizer *q,
                       const float *values)
{
    const f8_st_tensor *t = x->from->codes->tensor;
    const int64_t n = f8_quantizer_scales(q, t->dim[0], t->dim[1]);
    x->scale = F8_NEW_ARRAY(&w->c->memory, float, (size_t)n + 1);
    x->inverse = F8_NEW_ARRAY(&w->c->memory, float, (size_t)n + 1);
    F8_TRY(f8_arena_status(&w->c->memory, w->diag));
    f8_matrix_amax(q->grain, values, t->dim[0], t->dim[1], x->scale);
    f8_scales_of(q, x->scale, n, x->scale, x->inverse);
    return F8_OK;
}

static f8_status check_finite(f8_convert_work *w, const f8_converted *x, const float *values)
{
    char shown[SHOWN];
    for (int64_t i = 0; i < f8_weight_elements(x->from->codes->tensor); i++)
        if (!isfinite(values[i]))
            return F8_CONVERT_FAIL(
                w, x->from->codes->file->in.path,
                x->adapter ? "'%s' with its adapter has values that are NaN or Inf"
                           : "'%s' has values that are NaN or Inf: `fp8c weights` says more",
                f8_st_shown(x->from->module, shown, SHOWN));
    return F8_OK;
}

/* Chooses the new scales, and measures what the new codes are worth. */
static f8_status quantize(f8_convert_work *w, f8_converted *x, double energy, f8_arena *memory)
{
    const f8_st_tensor *t = x->from->codes->tensor;
    const f8_quantizer q = f8_convert_quantizer(w, x);
    const int64_t n = f8_weight_elements(t);
    float *values, *to = F8_NEW_ARRAY(memory, float, (size_t)n + 1);
    F8_TRY(f8_convert_values(x, memory, &values, w->diag));
    F8_TRY(check_finite(w, x, values));
    F8_TRY(scale(w, x, &q, values));
    f8_matrix_dequantized(&q, values, t->dim[0], t->dim[1], x->scale, x->inverse, to, NULL);
    compare(x, energy, values, to, n);
    return F8_OK;
}

static f8_status choose_fate(f8_convert_work *w, f8_converted *x)
{
    const f8_scaled *s = x->from;
    const double energy = x->adapter ? f8_adapter_energy(x->adapter, s->codes->tensor->dim) : 0;
    x->grain = w->grain;
    x->fate = s->grain == w->grain ? F8_KEPT : F8_REQUANTIZED;
    if (w->c->to == F8_HF_FP8 && f8_ragged_axis(s->codes->tensor->dim) >= 0) {
        x->fate = F8_DEQUANTIZED;
        x->why = "a size above 128 that is no multiple of it: transformers would read wrong values";
    } else if (s->grain == F8_BY_TENSOR && (w->grain == F8_BY_BLOCKS || w->grain == F8_BY_ROWS)) {
        x->fate = F8_SPREAD;
    } else if (x->fate == F8_REQUANTIZED) {
        x->why = f8_fp8_format_has(w->c->to, s->grain)
                     ? "all weights of the new folder get the granularity that most of them have"
                     : "the format has no scales of this granularity";
    }
    if (energy > 0 && x->fate != F8_DEQUANTIZED) {
        x->fate = F8_MERGED;
        x->why = NULL;
    }
    if (x->fate == F8_REQUANTIZED || x->fate == F8_MERGED) {
        f8_arena memory;
        f8_arena_init(&memory, &w->c->memory.allocator);
        const f8_status status = quantize(w, x, energy, &memory);
        f8_arena_end(&memory);
        F8_TRY(status);
    }
    w->c->of_fate[x->fate]++;
    return F8_OK;
}

static bool is_ragged_module(const f8_convert_work *w, const char *module)
{
    const f8_scaled *s = f8_model_folder_scaled(w->c->from, module);
    return s && f8_ragged_axis(s->codes->tensor->dim) >= 0;
}

/* A weight stays out if one that loaders fuse it with does: k is ragged, and q is not. */
static void leave_with_others(f8_convert_work *w, f8_converted *x)
{
    char module[F8_MODULE];
    if (w->c->to != F8_HF_FP8 || x->fate == F8_DEQUANTIZED)
        return;
    for (int i = 0; f8_model_folder_fused(x->from->module, i, module); i++)
        if (is_ragged_module(w, module)) {
            w->c->of_fate[x->fate]--;
            w->c->of_fate[x->fate = F8_DEQUANTIZED]++;
            x->why = "loaders make one linear of it and a weight that stays out";
            x->sqnr = x->added = NAN;
            x->scale = x->inverse = NULL;
            return;
        }
}

/* Checks that there is a weight for each adapter, and that it fits. */
static f8_status check_adapters(const f8_convert_work *w)
{
    const f8_adapters *a = w->c->adapters;
    char name[F8_MODULE + 8], shown[SHOWN];
    for (size_t i = 0; a && i < a->n; i++) {
        snprintf(name, sizeof name, "%s.weight", a->adapter[i].module);
        const f8_weight *t = f8_weights_find(&w->c->from->weights, name);
        if (!t || t->tensor->rank != 2)
            return F8_CONVERT_FAIL(w, a->path,
                                   "there is an adapter for '%s', which is no matrix of %s",
                                   f8_st_shown(name, shown, SHOWN), w->c->shown);
        F8_TRY(f8_adapter_fits(&a->adapter[i], t->tensor->dim, w->diag));
    }
    return F8_OK;
}

static f8_status choose_fates(f8_convert_work *w)
{
    f8_conversion *c = w->c;
    c->weight = F8_NEW_ARRAY(&c->memory, f8_converted, c->from->n_scaled + 1);
    F8_TRY(f8_arena_status(&c->memory, w->diag));
    for (size_t i = 0; i < c->from->n_scaled; i++) {
        const f8_scaled *from = &c->from->scaled[i];
        c->weight[c->n] = (f8_converted){.from = from,
                                         .adapter = f8_adapters_of(c->adapters, from->module),
                                         .sqnr = NAN,
                                         .added = NAN};
        F8_TRY(choose_fate(w, &c->weight[c->n++]));
        if (f8_convert_stops(w))
            return f8_file_fail(w->diag, F8_ERR_CANCELLED, c->path, "interrupted");
    }
    for (size_t i = 0; i < c->n; i++)
        leave_with_others(w, &c->weight[i]);
    if (c->of_fate[F8_DEQUANTIZED] == (int64_t)c->n)
        return F8_CONVERT_FAIL(w, c->shown, "no weight can be FP8 in %s; '%s': %s",
                               f8_fp8_format_name(c->to), c->weight[0].from->module,
                               c->weight[0].why);
    return F8_OK;
}

/* ---- the whole ---- */

f8_status f8_convert_fates(f8_convert_work *w)
{
    F8_TRY(check_others(w));
    F8_TRY(check_adapters(w));
    F8_TRY(choose_grain(w));
    return choose_fates(w);
}
