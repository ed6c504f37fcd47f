/* Which loaders take a folder: see lint.h. What they need was read in their sources (README.md). */
#include "frontend/formats/lint.h"

#include <string.h>

/* Weights whose blocks transformers would place wrong. Whether there are any. */
static bool check_ragged(f8_lint *l)
{
    bool any = false;
    for (size_t i = 0; l->folder->format == F8_HF_FP8 && i < l->folder->n_scaled; i++) {
        const f8_scaled *s = &l->folder->scaled[i];
        const int64_t *dim = s->codes->tensor->dim;
        const int axis = s->fits && s->grain == F8_BY_BLOCKS ? f8_ragged_axis(dim) : -1;
        if (axis < 0)
            continue;
        any = true;
        f8_lint_add(
            l, "ragged-blocks", s->codes, f8_source_transformers,
            "axis %d has %lld elements, which is no multiple of 128: transformers takes blocks "
            "of %lld / %lld, and reads wrong values or refuses",
            axis, (long long)dim[axis], (long long)dim[axis],
            (long long)(dim[axis] + F8_BLOCK - 1) / F8_BLOCK);
    }
    return any;
}

static const char *not_transformers(const f8_lint *l, bool ragged, bool runs_fp8)
{
    const f8_model_folder *f = l->folder;
    if (!f->declared.any)
        return "config.json has no quantization_config";
    if (f->format == F8_MODELOPT)
        return "it has no loader of ModelOpt's files";
    if (ragged)
        return "a weight's size is no multiple of 128";
    if (f8_model_folder_conv1d(f) && (runs_fp8 || f->format != F8_HF_FP8))
        return "the model's linears are Conv1D, with weights [in, out]";
    return NULL;
}

static const char *not_vllm(const f8_lint *l)
{
    const f8_model_folder *f = l->folder;
    if (!f->declared.any)
        return "config.json has no quantization_config";
    if (f8_model_folder_conv1d(f))
        return "the model's linears are Conv1D, with weights [in, out]";
    return NULL;
}

void f8_lint_loaders(f8_lint *l)
{
    const bool sound = l->n == 0;
    const bool ragged = check_ragged(l); /* which concerns transformers alone */
    const f8_loader_verdict all[F8_LOADERS] = {
        {"transformers", not_transformers(l, ragged, false)},
        {"transformers, FP8 on a GPU", not_transformers(l, ragged, true)},
        {"vLLM", not_vllm(l)},
        {"fp8c", NULL},
    };
    for (int i = 0; i < F8_LOADERS; i++) {
        l->loader[i] = all[i];
        if (!l->loader[i].why_not && !sound)
            l->loader[i].why_not = "there are findings, see below";
    }
}
