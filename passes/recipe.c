/* The named recipes, and which one a linear gets. */
#include "passes/pass.h"

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

f8_choice f8_recipe_for(const f8_unit *u, const char *linear)
{
    const f8_recipe *global = u->options.recipe;
    f8_choice choice = {global, "the recipe asked for"};
    if (global->scaling == F8_SCALING_NONE)
        return choice; /* a high-precision run is so everywhere: it is what FP8 is compared with */
    const f8_module *m = u->module;
    for (size_t i = 0; i < m->n_rules; i++) {
        if (!f8_pattern_match(m->rule[i].pattern, linear))
            continue;
        const f8_recipe *named = f8_recipe_by_name(m->rule[i].recipe);
        choice.recipe = named ? named : global; /* `auto` */
        choice.reason = f8_arena_printf(u->arena, "recipe \"%s\" = %s (line %u)", m->rule[i].pattern,
                                        m->rule[i].recipe, m->rule[i].loc.line);
    }
    return choice;
}
