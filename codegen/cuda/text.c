/* The .cuh files inside the library: see text.h. */
#include "codegen/cuda/text.h"

#include <string.h>

#include "ir/base/embed.h"

/* What an image's text begins with. */
static const char define[] = "#define F8_DEPENDENT_LAUNCH\n", include[] = "#include \"fp8c.cuh\"\n";

void f8_cuda_text_begin(f8_text *t, bool dependent)
{
    f8_text_add(t, "%s%s", dependent ? define : "", include);
}

char *f8_cuda_text_whole(f8_arena *arena, const char *text)
{
    const size_t n = sizeof include - 1;
    const bool dependent = text && !strncmp(text, define, sizeof define - 1);
    const char *from = dependent ? text + sizeof define - 1 : text;
    if (!text || strncmp(from, include, n))
        return f8_arena_strdup(arena, text);
    /* 177: a kernel does not use all that the header and its own text declare */
    return f8_arena_printf(arena, "#pragma nv_diag_suppress 177\n%s%s%s", dependent ? define : "",
                           f8_cuda_header, from + n);
}

EMBED(f8_cuda_header, "codegen/cuda/fp8c.cuh")
EMBED(f8_cuda_divide_text, "codegen/cuda/divide.cuh")
EMBED(f8_cuda_rows_text, "codegen/cuda/rows.cuh")
EMBED(f8_cuda_ring_text, "codegen/cuda/ring.cuh")
EMBED(f8_cuda_attention_common, "codegen/cuda/attention.cuh")
EMBED(f8_cuda_attention_masks, "codegen/cuda/attention_masks.cuh")
EMBED(f8_cuda_attention_forward, "codegen/cuda/attention_forward.cuh")
EMBED(f8_cuda_attention_backward, "codegen/cuda/attention_backward.cuh")
EMBED(f8_cuda_attention_f32, "codegen/cuda/attention_f32.cuh")
