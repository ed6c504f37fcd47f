/* Instrument: entry points that watch what the linears' GEMMs read and write.
 *
 *   micro_step.stats   micro_step with a further result, "stats": the figures of the values that
 *                      options.stats names, a row for each (f8_figure in unit/pass.h)
 *   forward.stats      likewise forward and backward of a pair: each has the figures of the values
 *   backward.stats     that it computes. Until the pass `split` they are one function, joint.stats.
 *                      joint.first.stats is that of the first pair, if there is one, as
 *                      micro_step.first.stats is that of micro_step.first
 *   micro_step.dump    micro_step, or micro_step.stats where there is one, with the values that
 *                      options.dump names as further results: NAME as f32, and of an operand that
 *                      is quantized its codes NAME.q and inverse scales NAME.scale_inv
 *
 * All are copies, so micro_step and the pair launch nothing more. They compute the same nodes and
 * others that only the further results need. No pass changes a bit of a value for what else is
 * computed, so a step gives the same bits through each of them.
 *
 * options.keep gives operands that are quantized out of micro_step itself, in the same way.
 *
 * Requires the nodes that scaling made. */
#include "passes/instrument/instrument.h"

#include <string.h>

#include "passes/instrument/values.h"
#include "passes/unit/copy.h"

/* ---- a pattern's values ---- */

static f8_status add_alias(f8_gemm_value *v, const char *name, f8_arena *scratch, f8_diag *diag)
{
    const char **grown = f8_arena_grow(scratch, v->alias, v->n_aliases, &v->alias_room,
                                       v->n_aliases + 1, sizeof *grown);
    if (!grown)
        return f8_arena_status(scratch, diag);
    v->alias = grown;
    v->alias[v->n_aliases++] = name;
    return F8_OK;
}

/* Keep those of the list that match, each value once: linears that read one value have it under
 * several names, of which all but the first become aliases. */
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
        if (k != F8_INDEX_END) {
            F8_TRY(add_alias(&l->value[k], v.name, scratch, u->diag));
            continue;
        }
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

/* ---- figures ---- */

/* The GEMMs of a set of roles, by its bits. */
static const char *const gemms_of[1 << F8_ROLES] = {
    "", "fprop", "dgrad", "fprop, dgrad", "wgrad", "fprop, wgrad", "dgrad, wgrad",
    "fprop, dgrad, wgrad"};

static f8_watched watched(const f8_graph *g, const f8_gemm_value *v, const char *function)
{
    return (f8_watched){.function = function,
                        .name = v->name,
                        .linear = v->linear,
                        .alias = v->alias,
                        .n_aliases = v->n_aliases,
                        .gemms = gemms_of[v->roles],
                        .kind = v->kind,
                        .recipe = v->recipe,
                        .what_if = v->what_if,
                        .quantized = v->q != 0,
                        .format = v->q ? f8_type_of(g, v->q)->dtype : F8_F32,
                        .grain = v->grain,
                        .elements = f8_type_elements(f8_type_of(g, v->x))};
}

/* Row `row` of a function's figures: note it, or see that it is what was noted before, as the first
 * pair has the rows of the other. */
static f8_status note_row(f8_unit *u, size_t row, f8_watched w)
{
    size_t n = 0;
    for (size_t i = 0; i < u->n_watched; i++)
        if (!strcmp(u->watched[i].function, w.function) && n++ == row)
            return !strcmp(u->watched[i].name, w.name)
                       ? F8_OK
                       : f8_fail(u->diag, F8_ERR_INTERNAL, F8_NOWHERE,
                                 "stats: row %zu of %s is both '%s' and '%s'", row, w.function,
                                 u->watched[i].name, w.name);
    f8_watched *grown = f8_arena_grow(u->arena, u->watched, u->n_watched, &u->watched_room,
                                      u->n_watched + 1, sizeof *grown);
    const char **alias = F8_NEW_ARRAY(u->arena, const char *, w.n_aliases);
    if (!grown || !alias)
        return f8_arena_status(u->arena, u->diag);
    for (size_t i = 0; i < w.n_aliases; i++)
        alias[i] = w.alias[i];
    w.alias = alias;
    u->watched = grown;
    u->watched[u->n_watched++] = w;
    return F8_OK;
}

/* Add the figures of the values as a result, unless there are none. */
static f8_status add_figures(f8_unit *u, f8_func *f, f8_arena *scratch, const f8_gemm_values *l,
                             const char *function, const char *result)
{
    f8_ref *row = F8_NEW_ARRAY(scratch, f8_ref, l->n);
    if (!row)
        return f8_arena_status(scratch, u->diag);
    for (size_t i = 0; i < l->n; i++) {
        F8_TRY(note_row(u, i, watched(f->graph, &l->value[i], function)));
        row[i] = f8_figures_of(f->graph, &l->value[i]);
    }
    return l->n ? f8_func_result(f, result, f8_concat(f->graph, row, l->n, 0), -1) : F8_OK;
}

static f8_status give_figures(f8_unit *u, f8_func *f, f8_arena *scratch)
{
    f8_gemm_values l;
    F8_TRY(named_values(u, f, "stats", u->options.stats, u->options.stats_recipe, scratch, &l));
    return add_figures(u, f, scratch, &l, "micro_step", F8_STATS);
}

/* ---- figures of a pair ---- */

/* By ref: whether a node of a joint function depends on a cotangent, so that it is the backward's. */
static bool *find_late(const f8_unit *u, const f8_func *f, f8_arena *scratch)
{
    const f8_graph *g = f->graph;
    bool *late = F8_NEW_ARRAY(scratch, bool, g->n_nodes);
    for (size_t i = 0; late && i < f->n_in; i++)
        late[f->in[i].ref] = f8_is_cotangent(u, &f->in[i]);
    for (f8_ref r = 1; late && r < g->n_nodes; r++)
        for (uint32_t i = 0; f8_at(g, r)->op != F8_OP_INPUT && i < f8_at(g, r)->n_in; i++)
            late[r] |= late[f8_at(g, r)->in[i]];
    return late;
}

/* Put the last result where the backward's begin. */
static void make_forwards(f8_func *f, size_t n_results)
{
    const f8_port last = f->out[f->n_out - 1];
    memmove(f->out + n_results + 1, f->out + n_results,
            (f->n_out - 1 - n_results) * sizeof *f->out);
    f->out[n_results] = last;
}

/* Of a joint function: each half gives the figures of what it computes. */
static f8_status give_halves(f8_unit *u, f8_func *f, f8_arena *scratch)
{
    f8_gemm_values l, half[2] = {0};
    F8_TRY(named_values(u, f, "stats", u->options.stats, u->options.stats_recipe, scratch, &l));
    const bool *late = find_late(u, f, scratch);
    for (int i = 0; i < 2; i++)
        half[i].value = F8_NEW_ARRAY(scratch, f8_gemm_value, l.n);
    if (!late || !half[0].value || !half[1].value)
        return f8_arena_status(scratch, u->diag);
    for (size_t i = 0; i < l.n; i++) {
        f8_gemm_values *to = &half[late[l.value[i].x] || late[l.value[i].q]];
        to->value[to->n++] = l.value[i];
    }
    const size_t n = f->n_out;
    F8_TRY(add_figures(u, f, scratch, &half[0], "forward", F8_STATS));
    if (f->n_out > n)
        make_forwards(f, u->pair.n_results);
    u->pair.n_watched_results = u->pair.n_results + (f->n_out - n);
    return add_figures(u, f, scratch, &half[1], "backward", F8_STATS_BACKWARD);
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

static f8_status add_stats(f8_unit *u, f8_arena *scratch)
{
    static const struct {
        const char *from, *name;
        giver give;
    } copy[] = {{"micro_step", "micro_step.stats", give_figures},
                {"micro_step.first", "micro_step.first.stats", give_figures},
                {"joint", "joint.stats", give_halves},
                {"joint.first", "joint.first.stats", give_halves}};
    for (size_t i = 0; i < sizeof copy / sizeof *copy; i++)
        if (f8_module_find_func(u->module, copy[i].from))
            F8_TRY(add_copy(u, copy[i].from, copy[i].name, copy[i].give, scratch));
    return F8_OK;
}

static f8_status add_dump(f8_unit *u, const char *step, f8_arena *scratch)
{
    const char *stats = f8_arena_printf(scratch, "%s." F8_STATS, step),
               *name = f8_arena_printf(scratch, "%s.dump", step);
    if (!stats || !name)
        return f8_arena_status(scratch, u->diag);
    return add_copy(u, u->options.stats ? stats : step, name, dump_values, scratch);
}

static f8_status instrument(f8_unit *u, f8_arena *scratch)
{
    static const char *const steps[] = {"micro_step", "micro_step.first"};
    const f8_options *o = &u->options;
    const f8_func *step = f8_module_find_func(u->module, "micro_step");
    if (o->stats && !step && !f8_module_find_func(u->module, "joint"))
        return f8_fail(u->diag, F8_ERR_UNSUPPORTED, F8_NOWHERE,
                       "stats: only a program that trains watches its GEMMs");
    if (o->dump && !step)
        return f8_fail(u->diag, F8_ERR_UNSUPPORTED, F8_NOWHERE,
                       "dump: only a program with micro_step gives out what its GEMMs read");
    for (size_t i = 0; o->keep && i < sizeof steps / sizeof *steps; i++) {
        f8_func *f = f8_module_find_func(u->module, steps[i]);
        if (f)
            F8_TRY(keep_operands(u, f, scratch));
    }
    if (o->stats)
        F8_TRY(add_stats(u, scratch));
    for (size_t i = 0; o->dump && i < sizeof steps / sizeof *steps; i++)
        if (f8_module_find_func(u->module, steps[i]))
            F8_TRY(add_dump(u, steps[i], scratch));
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
