/* Recipe rules against the linears of a module: see parse.h. */
#include <stdio.h>
#include <string.h>

#include "frontend/parse.h"
#include "passes/pass.h"

/* The variable `r` reads, through casts; NULL if it is none. */
static const char *variable_of(const f8_func *f, f8_ref r)
{
    const f8_graph *g = f->graph;
    while (f8_at(g, r)->op == F8_OP_CAST)
        r = f8_at(g, r)->in[0];
    if (f8_at(g, r)->op != F8_OP_INPUT)
        return NULL;
    int64_t port = f8_attr_i(g, r, F8_A_INDEX);
    if (port < 0 || (size_t)port >= f->n_in || f->in[port].var < 0)
        return NULL;
    return f->in[port].name;
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
    name = n->op == F8_OP_LINEAR ? variable_of(f, n->in[1]) : NULL;
    if (!name)
        return NULL;
    size_t length = strlen(name), cut = sizeof suffix - 1;
    if (length > cut && !strcmp(name + length - cut, suffix))
        length -= cut;
    snprintf(buf, size, "%.*s", (int)length, name);
    return buf;
}

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
