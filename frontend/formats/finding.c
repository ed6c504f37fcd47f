/* Findings, and the conventions that they name: see lint.h. */
#include <stdarg.h>
#include <stdio.h>

#include "frontend/formats/lint.h"
#include "ir/base/format.h"

enum { TEXT = 640, SHOWN = 200 };

const char f8_source_deepseek[] = "DeepSeek-V3, README_WEIGHTS.md",
           f8_source_transformers[] = "transformers, integrations/finegrained_fp8.py",
           f8_source_compressed[] = "compressed-tensors, quantization/quant_scheme.py",
           f8_source_modelopt[] = "ModelOpt, torch/export/quant_utils.py",
           f8_source_vllm[] = "vLLM, model_executor/layers/quantization",
           f8_source_ocp[] = "OCP 8-bit Floating Point Specification (OFP8), 5.1";

void f8_lint_add(f8_lint *l, const char *kind, const f8_weight *w, const char *source,
                 const char *format, ...)
{
    char text[TEXT], shown[SHOWN];
    va_list values;
    f8_finding *grown =
        f8_arena_grow(&l->memory, l->finding, l->n, &l->room, l->n + 1, sizeof *grown);
    if (!grown)
        return; /* the arena keeps the failure */
    va_start(values, format);
    f8_vformat(text, sizeof text, format, values);
    va_end(values);
    l->finding = grown;
    l->finding[l->n++] = (f8_finding){
        .kind = kind,
        .tensor = w ? f8_arena_strdup(&l->memory, f8_st_shown(w->tensor->name, shown, SHOWN)) : "",
        .file = w                         ? w->file->in.path
                : l->folder->declared.any ? l->folder->declared.file
                                          : l->folder->path,
        .text = f8_arena_strdup(&l->memory, text),
        .source = source};
}
