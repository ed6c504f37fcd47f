/* Recipe rules against the linears of a module: see parse.h. */
#include <string.h>

#include "frontend/parse.h"
#include "passes/pass.h"

f8_status f8_add_rule(f8_module *m, const f8_recipe_rule *rule)
{
    f8_recipe_rule *grown =
        f8_arena_grow(m->arena, m->rule, m->n_rules, &m->rule_room, m->n_rules + 1, sizeof *grown);
    if (!grown)
        return f8_arena_status(m->arena, m->diag);
    m->rule = grown;
    grown[m->n_rules++] = *rule;
    return F8_OK;
}

static bool rule_matches(const f8_module *m, const f8_recipe_rule *rule)
{
    char name[1024];
    for (size_t i = 0; i < m->n_funcs; i++)
        for (f8_ref r = 1; r < m->func[i].graph->n_nodes; r++)
            if (f8_linear_name(&m->func[i], r, name, sizeof name) &&
                (rule->pattern ? f8_pattern_match(rule->pattern, name) : f8_layer_of(name) >= 0))
                return true;
    return false;
}

f8_status f8_check_recipe_rules(const f8_module *m, f8_diag *diag)
{
    for (size_t i = 0; i < m->n_rules; i++) {
        const f8_recipe_rule *rule = &m->rule[i];
        const char *origin = rule->origin ? rule->origin : "", *colon = rule->origin ? ": " : "";
        if (rule_matches(m, rule))
            continue;
        if (!rule->pattern)
            return f8_fail(diag, F8_ERR_INPUT, rule->loc,
                           "%s%srecipe layers: no linear of '%.200s' has a layer's number in its name",
                           origin, colon, m->name);
        return f8_fail(diag, F8_ERR_INPUT, rule->loc, "%s%srecipe \"%.200s\" matches no linear of '%.200s'",
                       origin, colon, rule->pattern, m->name);
    }
    return F8_OK;
}
