/* The .cuh files inside the library: see text.h. */
#include "codegen/cuda/text.h"

#include <string.h>

#include "ir/base/embed.h"

/* What an image's text begins with. */
static const char include[] = "#include \"fp8c.cuh\"\n";

void f8_cuda_text_begin(f8_text *t)
{
    f8_text_add(t, "%s", include);
}

char *f8_cuda_text_whole(f8_arena *arena, const char *text)
{
    const size_t n = sizeof include - 1;
    if (!text || strncmp(text, include, n))
        return f8_arena_strdup(arena, text);
    /* 177: a kernel does not use all that the header and its own text declare */
    return f8_arena_printf(arena, "#pragma nv_diag_suppress 177\n%s%s", f8_cuda_header, text + n);
}

EMBED(f8_cuda_header, "codegen/cuda/fp8c.cuh")
EMBED(f8_cuda_divide_text, "codegen/cuda/divide.cuh")
EMBED(f8_cuda_rows_text, "codegen/cuda/rows.cuh")
EMBED(f8_cuda_attention_common, "codegen/cuda/attention.cuh")
EMBED(f8_cuda_attention_masks, "codegen/cuda/attention_masks.cuh")
EMBED(f8_cuda_attention_forward, "codegen/cuda/attention_forward.cuh")
EMBED(f8_cuda_attention_backward, "codegen/cuda/attention_backward.cuh")
EMBED(f8_cuda_attention_f32, "codegen/cuda/attention_f32.cuh")
