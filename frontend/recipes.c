/* Recipe rules against the linears of a module: see parse.h. */
#include <string.h>

#include "frontend/parse.h"
#include "passes/pass.h"

bool f8_is_rule_recipe(const char *name)
{
    return !strcmp(name, "auto") || f8_recipe_by_name(name);
}

static bool rule_matches(const f8_module *m, const f8_recipe_rule *rule)
{
    char name[1024];
    for (size_t i = 0; i < m->n_funcs; i++)
        for (f8_ref r = 1; r < m->func[i].graph->n_nodes; r++)
            if (f8_linear_name(&m->func[i], r, name, sizeof name) &&
                f8_pattern_match(rule->pattern, name))
                return true;
    return false;
}

f8_status f8_check_recipe_rules(const f8_module *m, f8_diag *diag)
{
    for (size_t i = 0; i < m->n_rules; i++) {
        if (!rule_matches(m, &m->rule[i]))
            return f8_fail(diag, F8_ERR_INPUT, m->rule[i].loc,
                           "recipe \"%.200s\" matches no linear of '%.200s'", m->rule[i].pattern,
                           m->name);
        if (!f8_is_rule_recipe(m->rule[i].recipe))
            return f8_fail(diag, F8_ERR_INPUT, m->rule[i].loc,
                           "there is no recipe '%.200s'; there are: %s, auto", m->rule[i].recipe,
                           f8_recipe_names());
    }
    return F8_OK;
}
