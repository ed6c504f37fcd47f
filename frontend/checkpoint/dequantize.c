/* FP8 codes of a file as values: see dequantize.h. */
#include "frontend/checkpoint/dequantize.h"

#include <stdio.h>

#include "frontend/checkpoint/values.h"

enum { NAME_ROOM = 1024 }; /* names of a module have 511 bytes at most */

static bool are_codes(f8_st_dtype t)
{
    return t == F8_ST_F8_E4M3 || t == F8_ST_F8_E5M2;
}

/* How many elements along an axis share a scale. 0: the sizes do not go together. */
static int64_t span(int64_t elements, int64_t scales, int64_t block)
{
    if (scales == elements)
        return 1;
    if (scales == 1)
        return elements;
    return scales == (elements + block - 1) / block ? block : 0;
}

/* The span of each axis. A single scale may have any rank. */
static bool spans(const f8_st_tensor *codes, const f8_st_tensor *scales,
                  int64_t out[F8_ST_MAX_RANK])
{
    const int64_t block = scales->dtype == F8_ST_F8_E8M0 ? 32 : 128;
    const bool one = scales->bytes == f8_st_dtype_bytes(scales->dtype);
    if (!one && scales->rank != codes->rank)
        return false;
    for (int32_t k = 0; k < codes->rank; k++) {
        out[k] = one ? codes->dim[k] : span(codes->dim[k], scales->dim[k], block);
        if (!out[k] && codes->dim[k])
            return false;
    }
    return true;
}

f8_weight *f8_dequantize_scales(const f8_weights *weights, const f8_weight *codes)
{
    static const char *const suffixes[] = {"_scale_inv", "_scale"};
    char name[NAME_ROOM];
    int64_t axis[F8_ST_MAX_RANK];
    for (int i = 0; i < 2 && are_codes(codes->tensor->dtype); i++) {
        if (snprintf(name, sizeof name, "%s%s", codes->name, suffixes[i]) >= (int)sizeof name)
            return NULL;
        f8_weight *t = f8_weights_find(weights, name);
        if (t && (t->tensor->dtype == F8_ST_F32 || t->tensor->dtype == F8_ST_F8_E8M0) &&
            spans(codes->tensor, t->tensor, axis))
            return t;
    }
    return NULL;
}

f8_status f8_dequantize(const f8_weight *codes, const f8_weight *scales, f8_arena *memory,
                        float *to, f8_diag *diag)
{
    int64_t axis[F8_ST_MAX_RANK];
    float *scale = F8_NEW_ARRAY(memory, float, (size_t)f8_weight_elements(scales->tensor) + 1);
    F8_TRY(f8_arena_status(memory, diag));
    if (!spans(codes->tensor, scales->tensor, axis))
        return F8_ERR_INTERNAL; /* f8_dequantize_scales has checked it */
    F8_TRY(f8_weight_values(codes, memory, to, diag));
    F8_TRY(f8_weight_values(scales, memory, scale, diag));
    f8_scale_values(to, codes->tensor, axis, scale);
    return F8_OK;
}
