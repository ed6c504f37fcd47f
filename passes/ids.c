/* Ids: makes i32 of i64 values where they come in.
 *
 * Frameworks have ids of i64. No table has 2^31 rows, so nothing is lost by the nearest i32 of an
 * id: one that is outside of the table stays outside. After this pass two kinds of i64 are left. An
 * input is read only by casts to i32. A cast from i32 is read only by a result. Values inside a
 * kernel have 32 bits, so a kernel loads an i64 as the nearest i32, and stores an i32 with its sign
 * extended. Ops that move elements move i32. So an i64 input can't be a result.
 *
 * Requires: nothing. Breaks: nothing. */
#include "passes/pipeline.h"
#include "passes/unit/formulas.h"

static f8_ref narrow(f8_graph *g, f8_ref x)
{
    const f8_node *n = f8_at(g, x);
    if (n->type.dtype != F8_I64)
        return x;
    return n->op == F8_OP_CAST ? n->in[0] : f8_cast(g, x, F8_I32);
}

static f8_ref rewrite(void *user, f8_graph *to, const f8_graph *from, f8_ref old, const f8_ref *in)
{
    (void)user;
    const f8_node *n = f8_at(from, old);
    bool any = false;
    for (uint32_t i = 0; i < n->n_in; i++)
        any |= in[i] && f8_type_of(to, in[i])->dtype == F8_I64;
    if (n->op == F8_OP_CAST && n->type.dtype != F8_I64)
        return any ? narrow(to, in[0]) : 0;
    if (!any)
        return 0;
    f8_ref *narrowed = F8_NEW_ARRAY(to->arena, f8_ref, n->n_in);
    if (!narrowed) {
        f8_arena_status(to->arena, to->diag);
        return 0;
    }
    for (uint32_t i = 0; i < n->n_in; i++)
        narrowed[i] = narrow(to, in[i]);
    return f8_make_clone(to, n->op, narrowed, (int)n->n_in, n->attr, f8_op_facts(n->op)->n_attrs,
                         n->clone);
}

/* A result of i64 must be a cast. */
static f8_status check_results(f8_unit *u, const f8_func *f)
{
    for (size_t i = 0; i < f->n_out; i++) {
        const f8_node *n = f8_at(f->graph, f->out[i].ref);
        if (n->type.dtype == F8_I64 && n->op != F8_OP_CAST)
            return f8_fail(u->diag, F8_ERR_INPUT, f->out[i].loc,
                           "result '%s': an i64 must be a cast of an i32, not what '%s' gives",
                           f->out[i].name, f8_op_facts(n->op)->name);
    }
    return F8_OK;
}

static bool has_i64(const f8_graph *g)
{
    for (f8_ref r = 1; r < g->n_nodes; r++)
        if (f8_type_of(g, r)->dtype == F8_I64)
            return true;
    return false;
}

f8_status f8_pass_ids(f8_unit *u)
{
    for (size_t i = 0; i < u->module->n_funcs; i++) {
        f8_func *f = &u->module->func[i];
        if (!has_i64(f->graph))
            continue;
        F8_TRY(check_results(u, f));
        F8_TRY(f8_func_rewrite(f, rewrite, NULL));
    }
    return u->diag->status;
}
