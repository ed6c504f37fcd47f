/* Whether recipe rules match the linears of a module: see parse.h. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/text/parse.h"
#include "ir/recipe.h"

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

/* A pattern NAME.K matches if there are at least K linears of the name `shared`. Returns this K, or
 * 0 if `pattern` is not `shared` and such a number. */
static long wanted(const char *pattern, const char *shared)
{
    const size_t length = strlen(shared);
    char *end;
    if (strncmp(pattern, shared, length) || pattern[length] != '.' ||
        !isdigit((unsigned char)pattern[length + 1]))
        return 0;
    const long k = strtol(pattern + length + 1, &end, 10);
    return *end || k < 2 ? 0 : k;
}

static bool matches_in(const f8_func *f, const f8_recipe_rule *rule)
{
    char name[1024], numbered[32];
    int anonymous = 0;
    long same = 0;
    for (f8_ref r = 1; r < f->graph->n_nodes; r++) {
        const bool named = f8_linear_name(f, r, name, sizeof name);
        if (!named && f8_at(f->graph, r)->op != F8_OP_LINEAR)
            continue;
        if (!named) { /* the names that pass precision will give */
            snprintf(name, sizeof name, "linear");
            snprintf(numbered, sizeof numbered, "linear.%d", anonymous++);
        }
        if (rule->pattern ? f8_pattern_match(rule->pattern, name) : f8_layer_of(name) >= 0)
            return true;
        if (!named && rule->pattern && !strcmp(rule->pattern, numbered))
            return true;
        const long k = named && rule->pattern ? wanted(rule->pattern, name) : 0;
        same += k > 0; /* only one name fits the pattern */
        if (k > 0 && same >= k)
            return true;
    }
    return false;
}

static bool rule_matches(const f8_module *m, const f8_recipe_rule *rule)
{
    for (size_t i = 0; i < m->n_funcs; i++)
        if (matches_in(&m->func[i], rule))
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
            return f8_fail(
                diag, F8_ERR_INPUT, rule->loc,
                "%s%srecipe layers: no linear of '%.200s' has a layer's number in its name", origin,
                colon, m->name);
        return f8_fail(diag, F8_ERR_INPUT, rule->loc,
                       "%s%srecipe \"%.200s\" matches no linear of '%.200s'", origin, colon,
                       rule->pattern, m->name);
    }
    return F8_OK;
}
