/* Calibrate: samples of what the linears' GEMMs read, as further results of micro_step.
 *
 * The pass does something only in the program that a calibration compiles (options.calibrate). That
 * program runs in high precision, and its micro_step leaves all variables as they are. For each
 * linear the operands x and dy, and w where it is computed, are given out as two results each. I is
 * the linear's number: names of linears may hold characters that names of results can't.
 *
 *     calibrate.I.x        [S, C]  up to F8_SAMPLE_TILES times 128 rows, spread, in the
 *                                  operand's dtype
 *     calibrate.I.x.amax   [1, C]  max |x| of every column over all rows, f32
 *
 * The rows show how values are spread along k and, being whole blocks of 128, across it. The amaxes
 * give the scales of the tensor and of its columns. choose.c says what the compiler chooses from
 * them.
 *
 * Requires linears as MATMULs with a name and a role, and micro_step. */
#include "passes/scale/scaling.h"

#include <string.h>

/* The linear's record, made at its first GEMM. (A chunked head has several; the first is taken.) */
static f8_sampled *record(f8_unit *u, const char *linear)
{
    for (size_t i = 0; i < u->n_sampled; i++)
        if (u->sampled[i].linear == linear)
            return &u->sampled[i];
    f8_sampled *grown = f8_arena_grow(u->arena, u->sampled, u->n_sampled, &u->sampled_room,
                                      u->n_sampled + 1, sizeof *grown);
    if (!grown)
        return NULL;
    u->sampled = grown;
    grown[u->n_sampled] = (f8_sampled){.linear = linear, .w_var = -1};
    return &grown[u->n_sampled++];
}

/* All rows of a matrix, or whole tiles from its whole length. */
static f8_ref spread_tiles(f8_graph *g, f8_ref m)
{
    const int64_t rows = f8_type_of(g, m)->dim[0], tiles = rows / F8_SAMPLE_TILE;
    f8_ref part[F8_SAMPLE_TILES];
    if (rows <= F8_SAMPLE_TILE * F8_SAMPLE_TILES)
        return m;
    for (int64_t i = 0; i < F8_SAMPLE_TILES; i++) {
        const int64_t first = (2 * i + 1) * tiles / (2 * F8_SAMPLE_TILES) * F8_SAMPLE_TILE;
        part[i] = f8_slice(g, m, 0, first, first + F8_SAMPLE_TILE);
    }
    return f8_concat(g, part, F8_SAMPLE_TILES, 0);
}

static f8_status sample(f8_unit *u, f8_func *f, const f8_sampled *s, f8_operand_kind kind, f8_ref r,
                        const char **name)
{
    f8_graph *g = f->graph;
    const f8_type t = *f8_type_of(g, r);
    const f8_type matrix = {
        .dtype = t.dtype, .rank = 2, .dim = {f8_type_rows(&t), f8_type_columns(&t)}};
    const f8_ref m = f8_reshape(g, r, &matrix);
    const f8_ref part = kind == F8_OPERAND_W ? m : spread_tiles(g, m);
    const f8_ref amax = f8_reduce(g, F8_OP_REDUCE_AMAX, f8_cast(g, m, F8_F32), 0);
    const char *base = f8_arena_printf(u->arena, "calibrate.%zu.%s", (size_t)(s - u->sampled),
                                       f8_operand_name[kind]);
    const char *top = f8_arena_printf(u->arena, "%s.amax", base ? base : "");
    if (!base || !top)
        return f8_arena_status(u->arena, u->diag);
    *name = f8_intern(u->module, base);
    F8_TRY(f8_func_result(f, *name, part, -1));
    return f8_func_result(f, f8_intern(u->module, top), amax, -1);
}

/* The parameter that w is, or is rounded from; -1 if w is computed. */
static int32_t parameter_of(const f8_func *f, f8_ref w)
{
    const f8_graph *g = f->graph;
    while (f8_at(g, w)->op == F8_OP_CAST)
        w = f8_at(g, w)->in[0];
    for (size_t i = 0; i < f->n_in; i++)
        if (f->in[i].ref == w)
            return f->in[i].var;
    return -1;
}

static f8_status sample_fprop(f8_unit *u, f8_func *f, f8_ref r)
{
    const f8_node n = *f8_at(f->graph, r);
    const char *linear = f8_attr_s(f->graph, r, F8_A_NAME);
    f8_sampled *s = record(u, linear);
    if (!s || s->x)
        return f8_arena_status(u->arena, u->diag);
    s->loc = f->graph->loc[r];
    s->fprop = r;
    s->has[F8_FPROP] = true;
    s->w_is_nk = f8_attr_i(f->graph, r, F8_A_TRANSPOSE_B) != 0;
    const f8_gemm_sizes size = f8_type_gemm(f8_type_of(f->graph, n.in[0]), false,
                                            f8_type_of(f->graph, n.in[1]), s->w_is_nk);
    s->m = size.m;
    s->n = size.n;
    s->k = size.k;
    s->w_var = parameter_of(f, n.in[1]);
    if (s->w_var < 0)
        F8_TRY(sample(u, f, s, F8_OPERAND_W, n.in[1], &s->w));
    return sample(u, f, s, F8_OPERAND_X, n.in[0], &s->x);
}

/* dgrad reads dy. A linear whose input needs no gradient has dy in wgrad alone. */
static f8_status sample_gradient(f8_unit *u, f8_func *f, f8_ref r, f8_role role)
{
    const f8_graph *g = f->graph;
    f8_sampled *s = record(u, f8_attr_s(g, r, F8_A_NAME));
    if (!s)
        return f8_arena_status(u->arena, u->diag);
    s->has[role] = true;
    if (s->dy)
        return F8_OK;
    const f8_node *n = f8_at(g, r);
    f8_ref dy = n->in[0];
    if (role == F8_WGRAD && s->fprop && dy == f8_at(g, s->fprop)->in[0])
        dy = n->in[1];
    return sample(u, f, s, F8_OPERAND_DY, dy, &s->dy);
}

/* Nothing is trained: gradients are not accumulated, and what only they need is not computed. */
static f8_status drop_states(f8_func *f)
{
    size_t kept = 0;
    for (size_t i = 0; i < f->n_out; i++)
        if (f->out[i].var < 0)
            f->out[kept++] = f->out[i];
    f->n_out = kept;
    return f8_func_rewrite(f, NULL, NULL);
}

f8_status f8_pass_calibrate(f8_unit *u)
{
    f8_func *f = f8_module_find_func(u->module, "micro_step");
    if (!u->options.calibrate)
        return F8_OK;
    if (!f)
        return f8_fail(u->diag, F8_ERR_INPUT, F8_NOWHERE, "there is no micro_step to calibrate on");
    const f8_ref end = f->graph->n_nodes;
    for (f8_ref r = 1; r < end; r++) {
        if (f8_at(f->graph, r)->op != F8_OP_MATMUL)
            continue;
        const f8_role role = f8_role_by_name(f8_attr_s(f->graph, r, F8_A_ROLE));
        if (role == F8_FPROP)
            F8_TRY(sample_fprop(u, f, r));
        else if (role != F8_ROLES)
            F8_TRY(sample_gradient(u, f, r, role));
    }
    return drop_states(f);
}
