/* Whether the values of FP8 weights can be right: see lint.h. */
#include "frontend/formats/lint.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ir/base/text.h"

/* Bounds of the root mean square of a linear's weights. Models that are used have 1e-3 to 1e-1; an
 * inverted scale, of 448 / amax instead of amax / 448, makes 1e4 and more of that. */
static const double least_rms = 1e-5, most_rms = 10;
static const double apart = 1e3;     /* a layer's root mean square over the others' median */
static const double least_sqnr = 10; /* dB; E4M3 has 25 and more */

typedef struct figures {
    double rms, likeness; /* likeness: SQNR; NaN: not known */
    bool known;
} figures;

static int by_number(const void *x, const void *y)
{
    const double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

/* ---- codes and scales ---- */

static f8_status check_codes(f8_lint *l, const f8_scaled *s, f8_arena *memory, f8_diag *diag)
{
    const f8_st_tensor *t = s->codes->tensor;
    int64_t nan = 0;
    if (t->dtype != F8_ST_F8_E4M3)
        return F8_OK;
    uint8_t *code = f8_arena_array(memory, 1, (size_t)t->bytes + 1);
    F8_TRY(f8_arena_status(memory, diag));
    F8_TRY(f8_st_read(s->codes->file, t, code, diag));
    for (uint64_t i = 0; i < t->bytes; i++)
        nan += (code[i] & 0x7f) == 0x7f;
    if (nan)
        f8_lint_add(
            l, "nan-codes", s->codes, f8_source_ocp,
            "%lld codes are NaN in E4M3FN (0x7f, 0xff): if fnuz codes were given this dtype, they "
            "are its largest values",
            (long long)nan);
    return F8_OK;
}

/* Counts scales that no quantizer makes. */
static void check_scales(f8_lint *l, const f8_weight *w, const char *kind, const float *scale,
                         int64_t n)
{
    int64_t wrong = 0, first = -1;
    for (int64_t i = 0; i < n; i++)
        if (!(scale[i] > 0) || isinf(scale[i])) {
            wrong++;
            first = first < 0 ? i : first;
        }
    if (wrong)
        f8_lint_add(l, kind, w, f8_source_vllm,
                    "%lld of %lld scales are not positive and finite: number %lld is %g",
                    (long long)wrong, (long long)n, (long long)first, (double)scale[first]);
}

/* The same of a scale that is one number. */
static f8_status check_number(f8_lint *l, const f8_weight *w, const char *kind, f8_arena *memory,
                              f8_diag *diag)
{
    float x;
    if (!f8_weight_reads(w->tensor))
        f8_lint_add(l, kind, w, f8_source_vllm, "a scale of %s is no number that a loader takes",
                    f8_st_dtype_name(w->tensor->dtype));
    else if (f8_weight_elements(w->tensor) == 1) {
        F8_TRY(f8_weight_values(w, memory, &x, diag));
        check_scales(l, w, kind, &x, 1);
    }
    return F8_OK;
}

/* Scales of a cache of keys and values, which vLLM takes from the files. */
static f8_status check_cache(f8_lint *l, const f8_weight *w, f8_diag *diag)
{
    static const char *const names[] = {".k_scale", ".v_scale", ".kv_scale"};
    f8_arena memory;
    f8_status status = F8_OK;
    f8_arena_init(&memory, &l->folder->memory.allocator);
    for (int i = 0; i < 3 && status == F8_OK; i++)
        if (f8_text_ends_with(w->name, names[i]))
            status = check_number(l, w, "scale-value", &memory, diag);
    f8_arena_end(&memory);
    return status;
}

/* ---- values ---- */

/* Compares with the same weight of the other folder. */
static f8_status compare(f8_lint *l, const f8_scaled *s, const float *x, f8_arena *memory,
                         figures *out, f8_diag *diag)
{
    const f8_weight *other =
        l->beside ? f8_weights_find(&l->beside->weights, s->codes->name) : NULL;
    const int64_t n = f8_weight_elements(s->codes->tensor);
    double signal = 0, noise = 0;
    out->likeness = NAN;
    if (!other || f8_model_folder_scaled(l->beside, s->module))
        return F8_OK;
    if (f8_weight_elements(other->tensor) != n ||
        memcmp(other->tensor->dim, s->codes->tensor->dim, 2 * sizeof(int64_t))) {
        f8_lint_add(l, "beside", s->codes, l->beside->path,
                    "this weight has another shape in the folder of --beside");
        return F8_OK;
    }
    float *y = F8_NEW_ARRAY(memory, float, (size_t)n + 1);
    F8_TRY(f8_arena_status(memory, diag));
    F8_TRY(f8_weight_values(other, memory, y, diag));
    for (int64_t i = 0; i < n; i++) {
        signal += (double)y[i] * y[i];
        noise += ((double)x[i] - y[i]) * ((double)x[i] - y[i]);
    }
    out->likeness = noise > 0 ? 10 * log10(signal / noise) : INFINITY;
    if (!(out->likeness >= least_sqnr))
        f8_lint_add(l, "beside", s->codes, l->beside->path,
                    "SQNR of %.1f dB to the weight beside it (FP8 of it has 25 and more)",
                    out->likeness);
    return F8_OK;
}

static f8_status look(f8_lint *l, const f8_scaled *s, f8_arena *memory, figures *out, f8_diag *diag)
{
    const int64_t n = f8_weight_elements(s->codes->tensor);
    float *scale, *x;
    int64_t n_scales;
    double sum = 0;
    F8_TRY(check_codes(l, s, memory, diag));
    if (s->input)
        F8_TRY(check_number(l, s->input, "input-scale", memory, diag));
    if (!s->fits || !f8_weight_reads(s->scale->tensor))
        return F8_OK;
    F8_TRY(f8_model_folder_scales(s, memory, &scale, &n_scales, diag));
    check_scales(l, s->scale, "scale-value", scale, n_scales);
    if (s->codes->tensor->dtype != F8_ST_F8_E4M3 && s->codes->tensor->dtype != F8_ST_F8_E5M2)
        return F8_OK;
    x = F8_NEW_ARRAY(memory, float, (size_t)n + 1);
    F8_TRY(f8_arena_status(memory, diag));
    F8_TRY(f8_model_folder_values(s, memory, x, diag));
    for (int64_t i = 0; i < n; i++)
        sum += (double)x[i] * x[i];
    out->rms = n ? sqrt(sum / (double)n) : 0;
    out->known = n > 0 && isfinite(out->rms);
    return compare(l, s, x, memory, out, diag);
}

static bool shares_a_name(const f8_lint *l)
{
    for (size_t i = 0; i < l->folder->n_scaled; i++)
        if (f8_weights_find(&l->beside->weights, l->folder->scaled[i].codes->name))
            return true;
    return false;
}

static void judge(f8_lint *l, const f8_scaled *s, const figures *x, double median)
{
    if (!x->known)
        return;
    if (x->rms != 0 && (x->rms < least_rms || x->rms > most_rms))
        f8_lint_add(
            l, "implausible", s->scale, f8_source_vllm,
            "values have a root mean square of %.3g (linears have 1e-5 to 10): the scale may be "
            "inverted, or of another weight",
            x->rms);
    else if (x->rms != 0 && (x->rms > median * apart || x->rms < median / apart))
        f8_lint_add(
            l, "implausible", s->scale, f8_source_vllm,
            "values have a root mean square of %.3g, the median of the others is %.3g: the scale "
            "may be inverted, or of another weight",
            x->rms, median);
}

static int worst_first(const void *x, const void *y)
{
    const f8_likeness *a = x, *b = y;
    return (a->sqnr > b->sqnr) - (a->sqnr < b->sqnr);
}

f8_status f8_lint_values(f8_lint *l, f8_diag *diag)
{
    const f8_model_folder *f = l->folder;
    figures *all = F8_NEW_ARRAY(&l->memory, figures, f->n_scaled + 1);
    double *known = F8_NEW_ARRAY(&l->memory, double, f->n_scaled + 1);
    size_t n = 0;
    l->likeness = F8_NEW_ARRAY(&l->memory, f8_likeness, f->n_scaled + 1);
    F8_TRY(f8_arena_status(&l->memory, diag));
    for (size_t i = 0; i < f->n_scaled; i++) {
        f8_arena memory; /* of one weight at a time */
        f8_arena_init(&memory, &f->memory.allocator);
        all[i] = (figures){.likeness = NAN};
        const f8_status status = look(l, &f->scaled[i], &memory, &all[i], diag);
        f8_arena_end(&memory);
        F8_TRY(status);
        if (all[i].known && all[i].rms > 0) /* zeros say nothing of the others */
            known[n++] = all[i].rms;
        if (!isnan(all[i].likeness))
            l->likeness[l->n_likeness++] = (f8_likeness){f->scaled[i].module, all[i].likeness};
    }
    for (size_t i = 0; i < f->weights.n_named; i++)
        F8_TRY(check_cache(l, &f->weights.weight[i], diag));
    if (l->beside && f->n_scaled && !shares_a_name(l))
        f8_lint_add(
            l, "beside", NULL, l->beside->path,
            "none of the FP8 weights has its name in the folder of --beside, so nothing was "
            "compared: give the folder of the same model");
    qsort(known, n, sizeof *known, by_number);
    for (size_t i = 0; i < f->n_scaled; i++)
        judge(l, &f->scaled[i], &all[i], n ? known[n / 2] : 0);
    qsort(l->likeness, l->n_likeness, sizeof *l->likeness, worst_first);
    return F8_OK;
}
