/* Which adapters are meant, and those among a file's own tensors: see adapters.h. */
#include <math.h>
#include <string.h>

#include "frontend/formats/adapters_parts.h"
#include "ir/base/format.h"

/* ---- among a file's own tensors ---- */

typedef struct sides {
    char *weight, *a, *b;
    double factor;
} sides;

/* A number such as 2, -0.5 or 1e-3, and nothing after it. */
static bool read_number(const char *text, double *to)
{
    static const char digits[] = "0123456789";
    const char *at = text + (*text == '-');
    size_t n = strspn(at, digits);
    at += n;
    if (*at == '.') {
        const size_t more = strspn(++at, digits);
        at += more;
        n += more;
    }
    if (n && (*at == 'e' || *at == 'E')) {
        at += 1 + (at[1] == '-' || at[1] == '+');
        n = strspn(at, digits);
        at += n;
    }
    *to = f8_number(text);
    return n && !*at && isfinite(*to);
}

/* Cuts "WEIGHT=A,B,FACTOR" up. */
static bool cut(char *text, sides *s)
{
    *s = (sides){.weight = text, .a = strchr(text, '='), .factor = 1};
    if (!s->a)
        return false;
    *s->a++ = 0;
    s->b = strchr(s->a, ',');
    if (!s->b)
        return false;
    *s->b++ = 0;
    char *factor = strchr(s->b, ',');
    if (factor) {
        *factor++ = 0;
        if (!read_number(factor, &s->factor))
            return false;
    }
    const size_t stars = f8_weights_stars(s->weight);
    return *s->weight && *s->a && *s->b && stars == f8_weights_stars(s->a) &&
           stars == f8_weights_stars(s->b);
}

static f8_status pick(f8_adapters *a, const f8_weights *weights, const sides *s, f8_diag *diag)
{
    const char *name_a, *name_b;
    char module[F8_MODULE];
    a->adapter = F8_NEW_ARRAY(&a->memory, f8_adapter, weights->n_named + 1);
    for (size_t i = 0; i < weights->n_named && a->adapter; i++) {
        const f8_weight *w = &weights->weight[i];
        if (!f8_linear_of(w->name, w->tensor->rank, module) ||
            !f8_weights_map(s->weight, s->a, w->name, &a->memory, &name_a) ||
            !f8_weights_map(s->weight, s->b, w->name, &a->memory, &name_b))
            continue;
        F8_TRY(f8_arena_status(&a->memory, diag));
        f8_adapter x = {.module = f8_arena_strdup(&a->memory, module),
                        .a = f8_weights_find(weights, name_a),
                        .b = f8_weights_find(weights, name_b),
                        .factor = s->factor,
                        .kind = F8_ADAPTER_TEXT};
        if (x.a && x.b)
            a->adapter[a->n++] = x;
        else if (x.a || x.b)
            return f8_file_fail(diag, F8_ERR_INPUT, weights->shown,
                                "--adapters: there is no '%s' beside '%s'", x.a ? name_b : name_a,
                                x.a ? name_a : name_b);
    }
    return F8_OK;
}

static f8_status pick_by(f8_adapters *a, const f8_weights *weights, f8_diag *diag)
{
    sides s;
    char *text = f8_arena_strdup(&a->memory, a->path);
    F8_TRY(f8_arena_status(&a->memory, diag));
    if (!cut(text, &s))
        return f8_file_fail(diag, F8_ERR_INPUT, weights->shown,
                            "--adapters takes a folder that peft wrote, or WEIGHT=A,B or "
                            "WEIGHT=A,B,FACTOR with as many * in each name, not '%s'",
                            a->path);
    F8_TRY(pick(a, weights, &s, diag));
    if (!a->n)
        return f8_file_fail(
            diag, F8_ERR_INPUT, weights->shown,
            "--adapters '%s': no matrix NAME.weight is called so and has both factors", a->path);
    return f8_adapters_finish(a, diag);
}

/* ---- the whole ---- */

f8_status f8_adapters_find(f8_adapters *a, const char *what, const f8_model_folder *from,
                           const f8_model_folder *model, const f8_allocator *allocator,
                           f8_diag *diag)
{
    const f8_allocator usual = f8_default_allocator();
    *a = (f8_adapters){.path = what};
    f8_arena_init(&a->memory, allocator ? allocator : &usual);
    return strchr(what, '=') && !f8_is_folder(what) ? pick_by(a, &from->weights, diag)
                                                    : f8_adapters_of_folder(a, from, model, diag);
}
