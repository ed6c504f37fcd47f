/* Instrument: entry points that watch what the linears' GEMMs read and write.
 *
 *   micro_step.stats   micro_step with a further result, "stats": the figures of the values that
 *                      options.stats names, a row for each (f8_figure in unit/pass.h)
 *   micro_step.dump    micro_step, or micro_step.stats where there is one, with the values that
 *                      options.dump names as further results: NAME as f32, and of an operand that
 *                      is quantized its codes NAME.q and inverse scales NAME.scale_inv
 *
 * Both are copies, so micro_step itself launches nothing more. They compute its nodes and others
 * that only the further results need. No pass changes a bit of a value for what else is computed,
 * so a step gives the same bits through each of the three.
 *
 * options.keep gives operands that are quantized out of micro_step itself, in the same way.
 *
 * Requires the nodes that scaling made. */
#include "passes/instrument/instrument.h"

#include "passes/instrument/values.h"
#include "passes/unit/copy.h"

/* ---- a pattern's values ---- */

/* Keep those of the list that match, each value once: linears that read one value have it under
 * several names. */
static f8_status select_values(f8_unit *u, f8_gemm_values *l, const char *patterns,
                               f8_arena *scratch)
{
    f8_index by_x = f8_index_in(scratch);
    size_t kept = 0;
    for (size_t i = 0; i < l->n; i++) {
        const f8_gemm_value v = l->value[i];
        if (!f8_patterns_match(patterns, v.name))
            continue;
        uint32_t k = f8_index_first(&by_x, v.x);
        while (k != F8_INDEX_END && !f8_same_gemm_value(&l->value[k], &v))
            k = f8_index_next(&by_x, k);
        if (k != F8_INDEX_END)
            continue;
        if (!f8_index_add(&by_x, v.x))
            return f8_arena_status(scratch, u->diag);
        l->value[kept++] = v;
    }
    l->n = kept;
    return F8_OK;
}

/* The values of the function that match; F8_ERR_INPUT if there is none. */
static f8_status named_values(f8_unit *u, f8_func *f, const char *what, const char *patterns,
                              const f8_recipe *what_if, f8_arena *scratch, f8_gemm_values *out)
{
    F8_TRY(f8_find_gemm_values(u, f, what_if, scratch, out));
    const char *first = out->n ? out->value[0].name : NULL;
    F8_TRY(select_values(u, out, patterns, scratch));
    if (out->n)
        return F8_OK;
    if (!first)
        return f8_fail(u->diag, F8_ERR_INPUT, F8_NOWHERE, "%s: the module has no linear", what);
    return f8_fail(u->diag, F8_ERR_INPUT, F8_NOWHERE,
                   "%s: '%s' matches no operand and no result of a linear's GEMM; they have names "
                   "such as '%s'",
                   what, patterns, first);
}

/* ---- micro_step.stats ---- */

static f8_watched watched(const f8_graph *g, const f8_gemm_value *v)
{
    return (f8_watched){.name = v->name,
                        .linear = v->linear,
                        .kind = v->kind,
                        .recipe = v->recipe,
                        .what_if = v->what_if,
                        .quantized = v->q != 0,
                        .format = v->q ? f8_type_of(g, v->q)->dtype : F8_F32,
                        .grain = v->grain,
                        .elements = f8_type_elements(f8_type_of(g, v->x))};
}

static f8_status give_figures(f8_unit *u, f8_func *f, f8_arena *scratch)
{
    f8_gemm_values l;
    F8_TRY(named_values(u, f, "stats", u->options.stats, u->options.stats_recipe, scratch, &l));
    f8_ref *row = F8_NEW_ARRAY(scratch, f8_ref, l.n);
    u->watched = F8_NEW_ARRAY(u->arena, f8_watched, l.n);
    if (!row || !u->watched)
        return f8_arena_status(row ? u->arena : scratch, u->diag);
    for (size_t i = 0; i < l.n; i++) {
        u->watched[i] = watched(f->graph, &l.value[i]);
        row[i] = f8_figures_of(f->graph, &l.value[i]);
    }
    u->n_watched = l.n;
    return f8_func_result(f, "stats", f8_concat(f->graph, row, l.n, 0), -1);
}

/* ---- micro_step.dump, and keep ---- */

/* Add the value as results: NAME as f32, and of one that is quantized NAME.q and NAME.scale_inv.
 * pattern: only those whose whole name matches; NULL: all. */
static f8_status give_value(f8_unit *u, f8_func *f, f8_arena *scratch, const f8_gemm_value *v,
                            const char *pattern)
{
    const struct {
        const char *suffix;
        f8_ref r;
    } part[] = {{"", f8_cast(f->graph, v->x, F8_F32)}, {".q", v->q}, {".scale_inv", v->scale_inv}};
    for (size_t i = 0; i < (v->q ? 3 : 1); i++) {
        const char *name = f8_arena_printf(scratch, "%s%s", v->name, part[i].suffix);
        if (!name)
            return f8_arena_status(scratch, u->diag);
        if (!pattern || f8_pattern_match(pattern, name))
            F8_TRY(f8_func_result(f, f8_intern(u->module, name), part[i].r, -1));
    }
    return F8_OK;
}

static f8_status dump_values(f8_unit *u, f8_func *f, f8_arena *scratch)
{
    f8_gemm_values l;
    F8_TRY(named_values(u, f, "dump", u->options.dump, NULL, scratch, &l));
    for (size_t i = 0; i < l.n; i++)
        F8_TRY(give_value(u, f, scratch, &l.value[i], NULL));
    return F8_OK;
}

static f8_status keep_operands(f8_unit *u, f8_func *f, f8_arena *scratch)
{
    f8_gemm_values l;
    F8_TRY(f8_find_gemm_values(u, f, NULL, scratch, &l));
    F8_TRY(select_values(u, &l, "*", scratch));
    for (size_t i = 0; i < l.n; i++)
        if (l.value[i].q)
            F8_TRY(give_value(u, f, scratch, &l.value[i], u->options.keep));
    return F8_OK;
}

/* ---- the pass ---- */

typedef f8_status (*giver)(f8_unit *u, f8_func *f, f8_arena *scratch);

/* A copy of a function, with further results. */
static f8_status add_copy(f8_unit *u, const char *from, const char *name, giver give,
                          f8_arena *scratch)
{
    const f8_func *f = f8_module_find_func(u->module, from);
    F8_TRY(f8_copy_func(u->module, f, name, scratch));
    return give(u, f8_module_find_func(u->module, name), scratch);
}

static f8_status instrument(f8_unit *u, f8_arena *scratch)
{
    const f8_options *o = &u->options;
    f8_func *step = f8_module_find_func(u->module, "micro_step");
    if (!step && (o->stats || o->dump))
        return f8_fail(u->diag, F8_ERR_UNSUPPORTED, F8_NOWHERE,
                       "%s: only a program with micro_step watches its GEMMs",
                       o->stats ? "stats" : "dump");
    if (o->keep && step)
        F8_TRY(keep_operands(u, step, scratch));
    if (o->stats)
        F8_TRY(add_copy(u, "micro_step", "micro_step.stats", give_figures, scratch));
    if (o->dump)
        F8_TRY(add_copy(u, o->stats ? "micro_step.stats" : "micro_step", "micro_step.dump",
                        dump_values, scratch));
    return u->module->diag->status;
}

f8_status f8_pass_instrument(f8_unit *u)
{
    f8_arena scratch;
    if (!u->options.keep && !u->options.stats && !u->options.dump)
        return F8_OK;
    f8_arena_init(&scratch, &u->arena->allocator);
    const f8_status status = instrument(u, &scratch);
    f8_arena_end(&scratch);
    return status;
}
