/* See choose.h. */
#include "tests/faults/choose.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/faults/damage.h"

bool f8_fault_has_function(const f8_fault *f, const char *function)
{
    const size_t n = strlen(f->function);
    return !strncmp(function, f->function, n) && (!function[n] || function[n] == '.');
}

static const f8_fault_value *nth(const f8_fault_values *all, const char *name, int64_t n)
{
    for (size_t i = 0; i < all->n; i++)
        if (!strcmp(all->value[i].name, name) && !n--)
            return &all->value[i];
    return NULL;
}

/* ---- by number ---- */

f8_status f8_fault_pin(f8_fault *f, const f8_variant *v, uint32_t func)
{
    f8_arena arena;
    f8_fault_values all;
    f8_arena_init(&arena, NULL);
    const f8_status status = f8_fault_values_of(v, func, &arena, &all);
    const size_t k = (size_t)strtoull(f->value + 1, NULL, 10);
    if (status == F8_OK && k < all.n) {
        snprintf(f->value, sizeof f->value, "%s", all.value[k].name);
        f->nth = 0;
        for (size_t i = 0; i < k; i++)
            f->nth += !strcmp(all.value[i].name, f->value);
    }
    f8_arena_end(&arena);
    return status;
}

/* ---- by name ---- */

static bool is_variable(const f8_fault *f, const f8_fault_value *v, const char *name)
{
    const char *own = v->variable;
    if (!own)
        return false;
    if (f->kind == F8_FAULT_ZERO && !strncmp(own, "grad.", 5) && !strcmp(own + 5, name))
        return true;
    return !strcmp(own, name);
}

/* The last value that the variable gets. */
static const f8_fault_value *last_of(const f8_fault *f, const f8_fault_values *all,
                                     const char *name)
{
    const f8_fault_value *found = NULL;
    for (size_t i = 0; i < all->n; i++)
        if (is_variable(f, &all->value[i], name))
            found = &all->value[i];
    return found;
}

static const f8_fault_value *by_name(const f8_fault *f, const f8_fault_values *all)
{
    const f8_fault_value *v = f->nth < 0 ? last_of(f, all, f->value) : NULL;
    return v ? v : nth(all, f->value, f->nth < 0 ? 0 : f->nth);
}

/* ---- all ---- */

static bool add(const f8_fault *f, const f8_fault_value *v, f8_fault_values *out,
                char why[F8_FAULT_WHY])
{
    const char *misfit = f8_fault_misfit(f, &v->type);
    if (f->kind == F8_FAULT_GEMM && !v->product)
        misfit = "no GEMM makes it";
    if (f->kind == F8_FAULT_STALE && !v->variable)
        misfit = "it is no variable's";
    if (misfit)
        snprintf(why, F8_FAULT_WHY, "kind=%s,value=%s: %s", f8_fault_kind_name(f->kind), v->name,
                 misfit);
    else
        out->value[out->n++] = *v;
    return !misfit;
}

f8_status f8_fault_choose(const f8_fault *f, const f8_variant *v, uint32_t func, f8_arena *arena,
                          f8_fault_values *out, char why[F8_FAULT_WHY])
{
    static const char *const states[] = {"fp8.scale", "fp8.amax_history"};
    f8_fault_values all;
    F8_TRY(f8_fault_values_of(v, func, arena, &all));
    *out = (f8_fault_values){F8_NEW_ARRAY(arena, f8_fault_value, 2), 0};
    if (!out->value)
        return F8_ERR_MEMORY;
    const f8_fault_value *one = *f->value ? by_name(f, &all) : NULL;
    if (one && !add(f, one, out, why))
        return F8_ERR_INPUT;
    for (int i = 0; i < 2 && !*f->value; i++) {
        const f8_fault_value *state = last_of(f, &all, states[i]);
        if (state)
            add(f, state, out, why);
    }
    if (out->n)
        return F8_OK;
    snprintf(why, F8_FAULT_WHY, "%s writes no value '%s'", v->plan.func[func].name,
             *f->value ? f->value : "fp8.scale");
    return F8_ERR_INPUT;
}
