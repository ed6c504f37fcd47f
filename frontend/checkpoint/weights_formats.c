/* FP8 weights that other stacks wrote, as fp8c's own files have them: see weights.h. The bytes of
 * scales are the same in all formats; names, dtypes and shapes differ (format.h). */
#include <string.h>

#include "frontend/checkpoint/format.h"
#include "frontend/checkpoint/weights.h"
#include "ir/base/text.h"

enum { NAME_ROOM = 1024 };

static bool are_codes(const f8_weight *w)
{
    return w->tensor->dtype == F8_ST_F8_E4M3 && w->tensor->rank == 2;
}

static f8_weight *beside(const f8_weights *w, const f8_weight *codes, const char *suffix)
{
    char name[NAME_ROOM];
    return snprintf(name, sizeof name, "%s%s", codes->name, suffix) < (int)sizeof name
               ? f8_weights_find(w, name)
               : NULL;
}

/* Scales of rank 2 are blocks where sizes leave a choice; others are what they look like. */
static bool grain_of(const f8_weight *codes, const f8_weight *scale, f8_grain *grain, bool *inputs)
{
    const f8_grain like = scale->tensor->rank >= 2 ? F8_BY_BLOCKS : F8_BY_TENSOR;
    return f8_grain_of(scale->tensor, codes->tensor->dim, like, grain, inputs);
}

static f8_weight *scales_of(const f8_weights *w, const f8_weight *codes, f8_grain *grain,
                            bool *inputs)
{
    static const char *const suffixes[] = {"_scale_inv", "_scale"};
    for (int i = 0; i < 2 && are_codes(codes); i++) {
        f8_weight *scale = beside(w, codes, suffixes[i]);
        if (scale && grain_of(codes, scale, grain, inputs))
            return scale;
    }
    return NULL;
}

/* Gives scales the name, dtype and shape that they have in a file of fp8c's own. BF16 and F16 stay:
 * they widen as values do. */
static bool rename_scale(f8_weights *w, const f8_weight *codes, f8_weight *scale, f8_grain grain,
                         bool inputs)
{
    const f8_scale_type own = f8_fp8_format_scale(F8_NATIVE, grain, codes->tensor->dim, inputs);
    f8_st_tensor *t = F8_NEW(&w->memory, f8_st_tensor);
    const char *name = f8_arena_printf(&w->memory, "%s%s", codes->name, own.suffix);
    if (!t || !name)
        return false;
    *t = *scale->tensor;
    t->rank = own.rank;
    memset(t->dim, 0, sizeof t->dim);
    memcpy(t->dim, own.dim, sizeof own.dim);
    if (grain == F8_BY_MX)
        t->dtype = own.dtype;
    scale->tensor = t;
    scale->name = name;
    return true;
}

/* The scale of a linear's input is no variable of a program: `delayed` has its own states. */
static bool is_input_scale(const f8_weights *w, const f8_weight *t)
{
    char name[F8_MODULE + 8], module[F8_MODULE];
    if (!f8_text_ends_with(t->name, ".input_scale") || !f8_scale_of(t->name, module))
        return false;
    snprintf(name, sizeof name, "%s.weight", module);
    const f8_weight *codes = f8_weights_find(w, name);
    return codes && are_codes(codes);
}

bool f8_weights_as_native(f8_weights *w)
{
    f8_grain grain;
    bool inputs, all = true;
    if (f8_weights_metadata(w, "fp8c.stored"))
        return true;
    for (size_t i = 0; i < w->n_named; i++)
        if (is_input_scale(w, &w->weight[i]))
            w->weight[i].ignored = "*.input_scale";
    /* all are found before names change, and with them the order */
    const size_t n = w->n_named;
    f8_weight **scale = F8_NEW_ARRAY(&w->memory, f8_weight *, n + 1);
    if (!scale)
        return false;
    for (size_t i = 0; i < n; i++)
        scale[i] = scales_of(w, &w->weight[i], &grain, &inputs);
    for (size_t i = 0; i < n && all; i++)
        if (scale[i] && grain_of(&w->weight[i], scale[i], &grain, &inputs))
            all = rename_scale(w, &w->weight[i], scale[i], grain, inputs);
    return all;
}

json_t *f8_weights_stored(const f8_weights *w)
{
    f8_grain grain;
    bool inputs;
    json_t *all = json_object();
    for (size_t i = 0; all && i < w->n_named; i++)
        if (scales_of(w, &w->weight[i], &grain, &inputs))
            json_object_set_new(all, w->weight[i].name, json_string(f8_grains[grain].recipe));
    return all;
}
