/* Functions with composites in the interpreter: see primitive.h. */
#include "tests/shared/passes/primitive.h"

#include "codegen/reference/reference.h"
#include "passes/pipeline.h"

#include <string.h>

bool test_has_composites(const f8_func *f)
{
    for (f8_ref r = 1; r < f->graph->n_nodes; r++) {
        const f8_op op = f8_at(f->graph, r)->op;
        if (f8_op_facts(op)->cls == F8_COMPOSITE || op == F8_OP_AMAX || op == F8_OP_FP8_SCALE ||
            op == F8_OP_HISTORY_PUSH)
            return true;
    }
    return false;
}

static f8_port *copied(f8_arena *arena, const f8_port *port, size_t n)
{
    f8_port *copy = F8_NEW_ARRAY(arena, f8_port, n);
    if (copy && n)
        memcpy(copy, port, n * sizeof *port);
    return copy;
}

/* All that the passes make lies in `arena`: a rewrite keeps a graph in its arena. Strings alone are
 * interned in the function's own module. */
static f8_status make_primitive(f8_arena *arena, const f8_func *f, f8_func *out, f8_diag *diag)
{
    f8_graph *g = F8_NEW_ARRAY(arena, f8_graph, 1);
    f8_module *m = F8_NEW_ARRAY(arena, f8_module, 1);
    *out = *f;
    out->in = copied(arena, f->in, f->n_in);
    out->out = copied(arena, f->out, f->n_out);
    F8_TRY(f8_arena_status(arena, diag));
    *g = *f->graph;
    g->arena = arena;
    g->diag = diag;
    *m = *f->graph->module;
    m->func = out;
    m->n_funcs = 1;
    out->graph = g;
    f8_unit u = {.module = m, .arena = arena, .diag = diag};
    F8_TRY(f8_pass_ids(&u));
    return f8_pass_decompose(&u);
}

typedef f8_status (*run)(const f8_func *f, const void *const *in, void *const *out,
                         const f8_allocator *allocator, f8_diag *diag);

static f8_status run_primitive(run run, const f8_func *f, const void *const *in, void *const *out,
                               f8_diag *diag)
{
    if (!test_has_composites(f))
        return run(f, in, out, NULL, diag);
    f8_arena arena;
    f8_func primitive;
    f8_arena_init(&arena, NULL);
    f8_status status = make_primitive(&arena, f, &primitive, diag);
    if (status == F8_OK)
        status = run(&primitive, in, out, NULL, diag);
    f8_arena_end(&arena);
    return status;
}

f8_status test_reference_run(const f8_func *f, const void *const *in, void *const *out,
                             f8_diag *diag)
{
    return run_primitive(f8_reference_run, f, in, out, diag);
}

f8_status test_reference_run_f64(const f8_func *f, const void *const *in, void *const *out,
                                 f8_diag *diag)
{
    return run_primitive(f8_reference_run_f64, f, in, out, diag);
}
