/* The named recipes, and which one a linear gets. */
#include "passes/pass.h"

#include <stdio.h>
#include <string.h>

/* margin 0, history 16: shorter histories than Transformer Engine's 1024 adapt faster and cost less
 * (shared notes: 16 and 32 are in use); E4M3 forward, E5M2 gradients: arXiv 2209.05433 section 3. */
static const f8_recipe recipes[] = {
    {"f32", F8_F32, F8_SCALING_NONE, F8_F32, F8_F32, 0, 0, true},
    {"bf16", F8_BF16, F8_SCALING_NONE, F8_BF16, F8_BF16, 0, 0, true},
    {"delayed", F8_BF16, F8_SCALING_DELAYED, F8_E4M3, F8_E5M2, 16, 0, true},
    {"current", F8_BF16, F8_SCALING_CURRENT, F8_E4M3, F8_E5M2, 0, 0, true},
};

enum { N_RECIPES = sizeof recipes / sizeof recipes[0] };

const f8_recipe *f8_recipe_by_name(const char *name)
{
    for (size_t i = 0; i < N_RECIPES; i++)
        if (!strcmp(recipes[i].name, name))
            return &recipes[i];
    return NULL;
}

const char *f8_recipe_name(size_t index)
{
    return index < N_RECIPES ? recipes[index].name : NULL;
}

const char *f8_recipe_names(void)
{
    return "f32, bf16, delayed, current";
}

bool f8_pattern_match(const char *pattern, const char *name)
{
    const char *star = NULL, *retry = NULL;
    while (*name) {
        if (*pattern == '*') {
            star = pattern++;
            retry = name;
        } else if (*pattern == '?' || *pattern == *name) {
            pattern++;
            name++;
        } else if (star) {
            pattern = star + 1;
            name = ++retry;
        } else {
            return false;
        }
    }
    while (*pattern == '*')
        pattern++;
    return !*pattern;
}

/* ---- names of linears ---- */

/* The parameter a weight comes from, through casts and views, or NULL. */
static const char *parameter_of(const f8_func *f, f8_ref w)
{
    const f8_graph *g = f->graph;
    while (f8_at(g, w)->n_in == 1)
        w = f8_at(g, w)->in[0];
    for (size_t i = 0; i < f->n_in; i++)
        if (f->in[i].ref == w && f->in[i].var >= 0)
            return f->in[i].name;
    return NULL;
}

const char *f8_linear_name(const f8_func *f, f8_ref r, char *buf, size_t size)
{
    static const char suffix[] = ".weight";
    const f8_node *n = f8_at(f->graph, r);
    if (n->op != F8_OP_LINEAR && n->op != F8_OP_MATMUL && n->op != F8_OP_SCALED_MATMUL)
        return NULL;
    const char *name = f8_attr_s(f->graph, r, F8_A_NAME);
    if (*name) {
        snprintf(buf, size, "%s", name);
        return buf;
    }
    name = n->op == F8_OP_LINEAR ? parameter_of(f, n->in[1]) : NULL;
    if (!name)
        return NULL;
    size_t length = strlen(name), cut = sizeof suffix - 1;
    if (length > cut && !strcmp(name + length - cut, suffix))
        length -= cut;
    snprintf(buf, size, "%.*s", (int)length, name);
    return buf;
}

/* What rules match: the name before linears that share it were numbered. */
static const char *shared_name(const f8_unit *u, const char *linear)
{
    for (size_t i = 0; i < u->n_named; i++)
        if (!strcmp(u->named[i].name, linear))
            return u->named[i].shared;
    return linear;
}

/* ---- choosing ---- */

f8_choice f8_recipe_for(const f8_unit *u, const char *linear)
{
    const f8_recipe *global = u->options.recipe;
    f8_choice choice = {global, "the recipe asked for"};
    if (global->scaling == F8_SCALING_NONE)
        return choice; /* a high-precision run is so everywhere: it is what FP8 is compared with */
    const f8_module *m = u->module;
    const char *name = shared_name(u, linear);
    for (size_t i = 0; i < m->n_rules; i++) {
        if (!f8_pattern_match(m->rule[i].pattern, name))
            continue;
        const f8_recipe *named = f8_recipe_by_name(m->rule[i].recipe);
        choice.recipe = named ? named : global; /* `auto` */
        choice.reason = f8_arena_printf(u->arena, "recipe \"%s\" = %s (line %u)", m->rule[i].pattern,
                                        m->rule[i].recipe, m->rule[i].loc.line);
    }
    return choice;
}
