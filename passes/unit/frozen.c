/* Parameters that are not trained: those that options.frozen names, and the scales of weights that
 * are stored as codes, which go with their codes. */
#include <string.h>

#include "ir/base/pattern.h"
#include "passes/unit/pass.h"

static bool is_scale(const f8_unit *u, int32_t var)
{
    for (size_t i = 0; i < u->n_stored; i++)
        if (u->stored[i].scale_var == var)
            return true;
    return false;
}

bool f8_unit_is_frozen(const f8_unit *u, int32_t var)
{
    const f8_var *v = &u->module->var[var];
    return v->kind == F8_VAR_PARAM &&
           (f8_patterns_match(u->options.frozen, v->name) || is_scale(u, var));
}

static bool matches_any(const f8_module *m, const char *pattern)
{
    for (size_t i = 0; i < m->n_vars; i++)
        if (m->var[i].kind == F8_VAR_PARAM && f8_pattern_match(pattern, m->var[i].name))
            return true;
    return false;
}

static f8_status no_match(const f8_unit *u, const char *pattern)
{
    f8_names list = {0};
    for (size_t i = 0; i < u->module->n_vars; i++)
        if (u->module->var[i].kind == F8_VAR_PARAM)
            f8_names_add(&list, u->module->var[i].name);
    return f8_fail(u->diag, F8_ERR_INPUT, F8_NOWHERE,
                   "frozen: no parameter matches '%s'; they are: %s", pattern,
                   list.n ? list.text : "none");
}

f8_status f8_unit_check_frozen(const f8_unit *u)
{
    for (const char *at = u->options.frozen; at && *at;) {
        const size_t n = strcspn(at, ",");
        const char *pattern = f8_arena_printf(u->arena, "%.*s", (int)n, at);
        if (!pattern)
            return f8_arena_status(u->arena, u->diag);
        if (n && !matches_any(u->module, pattern))
            return no_match(u, pattern);
        at += n + (at[n] == ',');
    }
    return F8_OK;
}
