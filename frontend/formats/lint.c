/* What is wrong with a folder of FP8 weights: see lint.h. Here: names, dtypes and shapes. */
#include "frontend/formats/lint.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- single weights ---- */

static const char *source_of(const f8_model_folder *f)
{
    static const char *const sources[] = {
        [F8_NATIVE] = "fp8c, frontend/checkpoint/README.md",
        [F8_HF_FP8] = f8_source_deepseek,
        [F8_COMPRESSED_TENSORS] = f8_source_compressed,
        [F8_MODELOPT] = f8_source_modelopt,
        [F8_N_FORMATS] = f8_source_compressed,
    };
    return sources[f->format];
}

static void check_scale_is_there(f8_lint *l, const f8_scaled *s)
{
    if (s->scale)
        return;
    f8_lint_add(
        l, "missing-scale", s->codes, source_of(l->folder),
        "FP8 codes without a scale: there is no %s.weight_scale%s. A loader would take the codes "
        "for the values",
        s->module, l->folder->format == F8_HF_FP8 ? "_inv" : "");
}

static void check_codes_type(f8_lint *l, const f8_scaled *s)
{
    const f8_st_dtype t = s->codes->tensor->dtype;
    if (t == F8_ST_F8_E4M3FNUZ || t == F8_ST_F8_E5M2FNUZ)
        f8_lint_add(
            l, "fnuz", s->codes, f8_source_ocp,
            "codes of AMD's fnuz type: a loader that reads them as %s gets twice each value, and "
            "-0 for NaN. Write them again as E4M3FN",
            t == F8_ST_F8_E4M3FNUZ ? "E4M3FN" : "E5M2");
    if (t == F8_ST_F8_E5M2 && l->folder->format != F8_NATIVE)
        f8_lint_add(l, "codes-dtype", s->codes, source_of(l->folder),
                    "codes are E5M2: weights of %s are E4M3FN",
                    f8_fp8_format_name(l->folder->format));
}

static bool same_shape(const f8_st_tensor *a, const f8_st_tensor *b)
{
    return a->rank == b->rank && !memcmp(a->dim, b->dim, (size_t)a->rank * sizeof *a->dim);
}

static void check_scale_shape(f8_lint *l, const f8_scaled *s)
{
    const f8_model_folder *f = l->folder;
    char has[96], wants[96], codes[96];
    if (!s->scale)
        return;
    const bool known = f->format < F8_N_FORMATS && f->declared.grain < F8_N_GRAINS;
    const f8_scale_type t =
        f8_fp8_format_scale(known ? f->format : F8_COMPRESSED_TENSORS,
                            known ? f->declared.grain : F8_BY_TENSOR, s->codes->tensor->dim, false);
    f8_st_tensor want = {.dtype = t.dtype, .rank = t.rank};
    memcpy(want.dim, t.dim, sizeof t.dim);
    f8_st_type_text(s->scale->tensor, has, sizeof has);
    f8_st_type_text(&want, wants, sizeof wants);
    f8_st_type_text(s->codes->tensor, codes, sizeof codes);
    if (!s->fits && known && same_shape(s->scale->tensor, &want))
        f8_lint_add(l, "scale-dtype", s->scale, source_of(f),
                    "scales %s: by the config they are %s", has, wants);
    else if (!s->fits)
        f8_lint_add(
            l, "scale-shape", s->scale, source_of(f),
            "scales %s do not go with codes %s%s%s: if the weight was fused of several, they "
            "may be those of a part",
            has, codes, known ? "; by the config they are " : "", known ? wants : "");
    else if (known && s->grain != f->declared.grain)
        f8_lint_add(l, "granularity", s->scale, source_of(f),
                    "scales %s are by %s; the config says %s, which is %s", has,
                    f8_grains[s->grain].shown, f8_grains[f->declared.grain].shown, wants);
    else if (s->rows_are_inputs && f->format != F8_NATIVE)
        f8_lint_add(l, "scale-shape", s->scale, source_of(f),
                    "scales %s are of codes [in, out]; weights of %s are [out, in]", has,
                    f8_fp8_format_name(f->format));
    else if (known && f->format != F8_NATIVE && s->grain != F8_BY_TENSOR &&
             s->scale->tensor->rank != want.rank)
        f8_lint_add(l, "scale-shape", s->scale, source_of(f),
                    "scales %s have another rank than %s, which loaders expect", has, wants);
}

/* Whether the config says that the scales of blocks are powers of two, and their dtype E8M0. */
static bool says_exponents(const f8_model_folder *f)
{
    const char *text = json_string_value(json_object_get(f->declared.quantization, "scale_fmt"));
    return f->format == F8_HF_FP8 && text && !strcmp(text, "ue8m0");
}

static void check_scale_type(f8_lint *l, const f8_scaled *s)
{
    if (!s->scale || !s->fits)
        return;
    const f8_st_dtype t = s->scale->tensor->dtype;
    const bool floats = t == F8_ST_F32 || t == F8_ST_BF16 || t == F8_ST_F16;
    if (s->grain == F8_BY_MX || floats || (t == F8_ST_F8_E8M0 && says_exponents(l->folder)))
        return;
    f8_lint_add(l, "scale-dtype", s->scale, source_of(l->folder),
                "scales of %s: they are F32, BF16 or F16", f8_st_dtype_name(t));
}

/* ---- scales and weights that have lost each other ---- */

static void check_stray(f8_lint *l, const f8_weight *scale)
{
    const f8_model_folder *f = l->folder;
    const char *dot = strrchr(scale->name, '.');
    char weight[1024];
    snprintf(weight, sizeof weight, "%.*s.weight", (int)(dot - scale->name), scale->name);
    const f8_weight *w = f8_weights_find(&f->weights, weight);
    if (w)
        f8_lint_add(l, "scale-of-values", scale, source_of(f),
                    "a scale beside %s, which is %s and not FP8: a loader that multiplies would "
                    "scale it twice",
                    weight, f8_st_dtype_name(w->tensor->dtype));
    else
        f8_lint_add(
            l, "scale-without-weight", scale, source_of(f),
            "there is no %s: if it was fused into another weight, store the fused weight's scale "
            "under that weight's name",
            weight);
}

/* ---- the whole ---- */

static void count(f8_lint *l)
{
    const f8_model_folder *f = l->folder;
    for (size_t i = 0; i < f->weights.n; i++)
        l->plain_bytes += (int64_t)f->weights.weight[i].tensor->bytes;
    for (size_t i = 0; i < f->n_scaled; i++) {
        const f8_scaled *s = &f->scaled[i];
        const int64_t bytes =
            (int64_t)(s->codes->tensor->bytes + (s->scale ? s->scale->tensor->bytes : 0));
        l->scaled_bytes += bytes;
        l->plain_bytes -= bytes;
        if (s->fits)
            l->of_grain[s->grain]++;
    }
}

f8_status f8_lint_run(f8_lint *l, const f8_model_folder *folder, const f8_model_folder *beside,
                      f8_diag *diag)
{
    *l = (f8_lint){.folder = folder, .beside = beside};
    f8_arena_init(&l->memory, &folder->memory.allocator);
    count(l);
    f8_lint_config(l);
    F8_TRY(f8_lint_index(l, diag));
    for (size_t i = 0; i < folder->n_scaled; i++) {
        check_scale_is_there(l, &folder->scaled[i]);
        check_codes_type(l, &folder->scaled[i]);
        check_scale_shape(l, &folder->scaled[i]);
        check_scale_type(l, &folder->scaled[i]);
    }
    for (size_t i = 0; i < folder->n_stray; i++)
        check_stray(l, folder->stray[i]);
    F8_TRY(f8_lint_values(l, diag));
    f8_lint_loaders(l);
    return f8_arena_status(&l->memory, diag);
}

void f8_lint_end(f8_lint *l)
{
    if (l->memory.allocator.alloc)
        f8_arena_end(&l->memory);
    *l = (f8_lint){0};
}
