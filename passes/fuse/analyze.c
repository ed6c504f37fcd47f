/* Grouping, first half: when and over which domain each value can be computed, and which values to
 * store.
 *
 * A moment is (level, stage). Values of one level never wait for each other through a GEMM, so any
 * of them may share a kernel without a cycle. Values of one moment and one domain may share a
 * phase. So whether fusion is legal is a matter of numbering, and no cycle has to be searched for.
 *
 * A value used at a later moment is either stored, or recomputed there from what is stored anyway
 * (its sources): an f32 copy of a bf16 activation, a normalized row, a derivative of GELU. Both
 * ways give the same bits, so bytes decide: storing writes the value and reads it once; recomputing
 * reads the sources. */
#include "passes/fuse/grouping.h"

#include "passes/unit/cost.h"

/* ---- roles ---- */

/* Whether a row kernel stores a transpose's elements: the one that computes its operand over the
 * same rows and columns, if there is one, and else one that reads the operand. */
static bool stored_transposed(const f8_grouping *s, f8_ref r)
{
    return f8_unit_target(s->unit)->transposed_stores && !s->unit->options.no_fuse &&
           f8_is_matrix_transpose(s->g, r);
}

static f8_group_role role_of(const f8_grouping *s, f8_ref r)
{
    const f8_graph *g = s->g;
    const f8_node *n = f8_at(g, r);
    switch (n->op) {
    case F8_OP_CONST:
    case F8_OP_IOTA: return F8_ROLE_CALC;
    case F8_OP_INPUT:
    case F8_OP_ROPE_COS:
    case F8_OP_ROPE_SIN: return F8_ROLE_MEMORY;
    case F8_OP_PROJECT: return F8_ROLE_PROJECT;
    case F8_OP_SLICE: return s->view[r].base == r ? F8_ROLE_WHOLE : F8_ROLE_VIEW;
    case F8_OP_RESHAPE: {
        const f8_type *from = f8_type_of(g, n->in[0]);
        const f8_group_role in = s->node[n->in[0]].role;
        const bool same = f8_type_rows(from) == f8_type_rows(&n->type) &&
                          f8_type_columns(from) == f8_type_columns(&n->type);
        if (s->view[r].base == r)
            return F8_ROLE_WHOLE;
        return same && !s->unit->options.no_fuse &&
                       (in == F8_ROLE_FUSED || in == F8_ROLE_ALIAS || in == F8_ROLE_CALC)
                   ? F8_ROLE_ALIAS
                   : F8_ROLE_VIEW;
    }
    case F8_OP_BROADCAST:
        return f8_read_of(&n->type, f8_type_of(g, n->in[0])).kind == F8_READ_NONE ? F8_ROLE_WHOLE
                                                                                  : F8_ROLE_FUSED;
    case F8_OP_MATMUL:
    case F8_OP_BATCH_MATMUL:
    case F8_OP_SCALED_MATMUL:
    case F8_OP_ATTENTION:
    case F8_OP_ATTENTION_GRAD:
    case F8_OP_EMBEDDING_GRAD:
    case F8_OP_ALL_GATHER:
    case F8_OP_ALL_TO_ALL:
    case F8_OP_ALL_REDUCE: /* the library's, as the next */
    case F8_OP_REDUCE_SCATTER:
    case F8_OP_ALL_SLICE:
    case F8_OP_CONCAT: return F8_ROLE_WHOLE;
    case F8_OP_TRANSPOSE: return stored_transposed(s, r) ? F8_ROLE_FUSED : F8_ROLE_WHOLE;
    default: return F8_ROLE_FUSED;
    }
}

bool f8_group_memory_edge(const f8_grouping *s, f8_ref r, uint32_t i)
{
    const f8_node *n = f8_at(s->g, r);
    f8_granularity grain;
    if (s->node[r].role == F8_ROLE_WHOLE || s->node[r].role == F8_ROLE_VIEW)
        return true;
    if (f8_has_block_scales(s->g, r, &grain)) /* a scale for several rows is no value of one row */
        return i == 1 && grain.rows != 1;
    if (n->op == F8_OP_EMBEDDING || n->op == F8_OP_ROLL)
        return true;
    if (f8_is_reduce(n->op) || n->op == F8_OP_RESHAPE || n->op == F8_OP_TRANSPOSE ||
        s->g->node[n->in[i]].op == F8_OP_IOTA)
        return false;
    return f8_read_of(&n->type, f8_type_of(s->g, n->in[i])).kind == F8_READ_PERIODIC;
}

/* ---- what must be stored ---- */

static void need_in_memory(f8_grouping *s, f8_ref r)
{
    s->node[s->view[r].base].must = true;
}

static void mark_needs(f8_grouping *s)
{
    const f8_func *f = s->func;
    for (size_t i = 0; i < f->n_out; i++) {
        s->node[f->out[i].ref].live = true;
        need_in_memory(s, f->out[i].ref);
    }
    for (f8_ref r = s->g->n_nodes - 1; r > 0; r--) {
        const f8_node *n = f8_at(s->g, r);
        if (!s->node[r].live)
            continue;
        if ((s->node[r].role == F8_ROLE_FUSED && f8_group_output_only(s, r)) ||
            (s->unit->options.no_fuse && s->node[r].role == F8_ROLE_FUSED))
            s->node[r].must = true;
        for (uint32_t i = 0; i < n->n_in; i++) {
            s->node[n->in[i]].live = true;
            if (n->op != F8_OP_PROJECT && f8_group_memory_edge(s, r, i))
                need_in_memory(s, n->in[i]);
        }
    }
}

/* ---- domains and moments ---- */

static f8_when after(const f8_grouping *s, f8_ref base)
{
    const f8_group_node *n = &s->node[base];
    switch (n->role) {
    case F8_ROLE_FUSED: return n->when + 1;
    case F8_ROLE_WHOLE: return F8_WHEN(F8_LEVEL(n->when) + 1, 0);
    case F8_ROLE_PROJECT: return F8_WHEN(F8_LEVEL(s->node[s->g->node[base].in[0]].when) + 1, 0);
    default: return 0;
    }
}

static f8_when later(f8_when a, f8_when b)
{
    return a > b ? a : b;
}

/* Whether r finds its scales by the rows of its own matrix. Then it can be computed in no other
 * domain. */
static bool has_rows_of_scales(const f8_grouping *s, f8_ref r)
{
    f8_granularity grain;
    return f8_has_block_scales(s->g, r, &grain) && grain.rows != 1;
}

/* The first moment at which operand i is available to r, over r's domain. */
static f8_when operand_when(const f8_grouping *s, f8_ref r, uint32_t i)
{
    const f8_ref o = s->g->node[r].in[i];
    const f8_group_node *n = &s->node[r], *p = &s->node[o];
    if (p->role == F8_ROLE_CALC)
        return 0;
    if (!f8_group_computed(p) || f8_group_memory_edge(s, r, i))
        return after(s, s->view[o].base);
    if (n->rows == p->rows && n->cols == p->cols && !f8_group_output_only(s, s->view[o].base))
        return p->when;
    f8_when when = 0;
    for (uint32_t k = 0; k < p->sources.n; k++)
        when = later(when, after(s, s->view[p->sources.v[k]].base));
    return when;
}

f8_when f8_group_operands_when(const f8_grouping *s, f8_ref r)
{
    f8_when when = 0;
    for (uint32_t i = 0; i < s->g->node[r].n_in; i++)
        when = later(when, operand_when(s, r, i));
    return when;
}

/* A statistic, [R, 1] or [R, n] of n blocks of columns, belongs to the phase that computes what it
 * is made of: the latest operand that is a statistic like it. */
static f8_ref statistic_operand(const f8_grouping *s, f8_ref r)
{
    const f8_node *n = f8_at(s->g, r);
    const int64_t rows = f8_type_rows(&n->type), cols = f8_type_columns(&n->type);
    f8_ref best = 0;
    for (uint32_t i = 0; i < n->n_in; i++) {
        const f8_ref o = n->in[i];
        const f8_group_node *p = &s->node[o];
        const f8_type *t = f8_type_of(s->g, o);
        if (f8_is_recomputed(s->g, r) && !f8_is_recomputed(s->g, s->view[o].base))
            continue; /* it was computed at an earlier moment */
        if (!f8_group_computed(p) || f8_group_memory_edge(s, r, i) || p->rows != rows ||
            f8_type_columns(t) != cols || f8_type_rows(t) != rows ||
            (cols > 1 && p->cols == cols) || f8_group_output_only(s, s->view[o].base))
            continue;
        if (!best || p->when > s->node[best].when)
            best = o;
    }
    return best;
}

/* Whether r, and what is recomputed with it, goes element by element. */
static bool is_elementwise(const f8_grouping *s, f8_ref r)
{
    const f8_node *n = f8_at(s->g, r);
    const bool scaled = n->op == F8_OP_QUANTIZE || n->op == F8_OP_DEQUANTIZE;
    f8_granularity grain;
    if (f8_op_facts(n->op)->cls != F8_POINTWISE && n->op != F8_OP_BROADCAST &&
        n->op != F8_OP_RESHAPE && (!scaled || f8_has_block_scales(s->g, r, &grain)))
        return false;
    for (uint32_t i = 0; i < n->n_in; i++) {
        const f8_ref o = n->in[i];
        const f8_group_node *p = &s->node[o];
        const bool recompute = f8_group_computed(p) && !f8_group_memory_edge(s, r, i) &&
                               !(p->sources.n == 1 && p->sources.v[0] == s->view[o].base);
        if (recompute && !p->elementwise)
            return false;
    }
    return true;
}

static void place_in_time(f8_grouping *s, f8_ref r)
{
    const f8_node *n = f8_at(s->g, r);
    f8_group_node *p = &s->node[r];
    /* nodes that are computed over their operand's shape, not over their own */
    const bool other = f8_is_reduce(n->op) || n->op == F8_OP_TRANSPOSE;
    const f8_type *shape = other ? f8_type_of(s->g, n->in[0]) : &n->type;
    const int64_t cols = f8_type_columns(shape);
    p->rows = f8_type_rows(shape);
    p->cols = cols;
    if ((cols == 1 || p->elementwise) && !has_rows_of_scales(s, r) && !s->unit->options.no_fuse) {
        const f8_ref o = statistic_operand(s, r);
        if (o) {
            p->cols = s->node[o].cols;
            p->when = f8_group_operands_when(s, r);
            if (p->when == s->node[o].when)
                return;
            /* another operand makes it wait anyway, so the rows need not be recomputed */
            p->cols = cols;
        }
    }
    p->when = f8_group_operands_when(s, r);
}

/* ---- sources ---- */

static double bytes_of(const f8_grouping *s, f8_ref r)
{
    return (double)f8_type_bytes(f8_type_of(s->g, r));
}

/* What having `r` in memory costs in bytes: it is read once, and written once unless it is there
 * anyway. */
static double memory_cost(const f8_grouping *s, f8_ref r)
{
    const f8_group_node *base = &s->node[s->view[r].base];
    return bytes_of(s, r) * (base->role == F8_ROLE_FUSED && !base->must ? 2 : 1);
}

static double op_work(f8_op op)
{
    const double work = f8_op_work(op);
    if (op == F8_OP_RESHAPE || op == F8_OP_BROADCAST)
        return 0;
    return work > 2 * F8_WORK_DIVISION ? 10 : work < F8_WORK_DIVISION ? 1 : 3;
}

static bool add_source(f8_sources *set, f8_ref r)
{
    for (uint32_t i = 0; i < set->n; i++)
        if (set->v[i] == r)
            return true;
    if (set->n == F8_MAX_SOURCES)
        return false;
    set->v[set->n++] = r;
    return true;
}

static bool recomputable(const f8_grouping *s, f8_ref r)
{
    const f8_op op = s->g->node[r].op;
    const f8_type *t = f8_type_of(s->g, r);
    const bool narrow = f8_type_rows(t) == 1 || f8_type_columns(t) == 1; /* for other domains too */
    if (s->unit->options.no_fuse || f8_group_output_only(s, r) ||
        (narrow && has_rows_of_scales(s, r)))
        return false;
    return f8_op_facts(op)->cls == F8_POINTWISE || op == F8_OP_ROLL || op == F8_OP_BROADCAST ||
           op == F8_OP_DEQUANTIZE;
}

/* Collect what recomputing r reads. False where that is too much to follow. */
static bool collect(const f8_grouping *s, f8_ref r, f8_sources *set)
{
    const f8_node *n = f8_at(s->g, r);
    set->work = op_work(n->op);
    for (uint32_t i = 0; i < n->n_in; i++) {
        const f8_ref o = n->in[i];
        const f8_group_node *p = &s->node[o];
        if (p->role == F8_ROLE_CALC)
            continue;
        if (!f8_group_computed(p) || f8_group_memory_edge(s, r, i)) {
            if (!add_source(set, o))
                return false;
            continue;
        }
        for (uint32_t k = 0; k < p->sources.n; k++)
            if (!add_source(set, p->sources.v[k]))
                return false;
        if (p->sources.n != 1 || p->sources.v[0] != o)
            set->work += p->sources.work;
    }
    for (uint32_t k = 0; k < set->n; k++)
        set->cost += memory_cost(s, set->v[k]);
    return true;
}

static void choose_sources(f8_grouping *s, f8_ref r)
{
    enum { WORK_MAX = 64, SCALAR_WORK_MAX = 4 };
    const double bytes_per_op = 0.02; /* the weight of one operation in bytes of memory traffic */
    f8_sources made = {0};
    f8_sources *kept = &s->node[r].sources;
    *kept = (f8_sources){.n = 1, .v = {r}, .cost = memory_cost(s, r)};
    if (!recomputable(s, r) || !collect(s, r, &made))
        return;
    if (f8_type_elements(f8_type_of(s->g, r)) == 1 && made.work > SCALAR_WORK_MAX)
        return; /* few bytes in any case: keep the code short */
    if (made.work > WORK_MAX)
        made.work = WORK_MAX;
    made.cost += made.work * bytes_per_op * (double)f8_type_elements(f8_type_of(s->g, r));
    if (made.cost < kept->cost)
        *kept = made;
}

/* ---- the whole ---- */

static void analyze_node(f8_grouping *s, f8_ref r)
{
    const f8_node *n = f8_at(s->g, r);
    f8_group_node *p = &s->node[r];
    p->elementwise = f8_group_computed(p) && is_elementwise(s, r);
    if (p->role == F8_ROLE_FUSED) {
        place_in_time(s, r);
        choose_sources(s, r);
    } else if (p->role == F8_ROLE_ALIAS) {
        const f8_group_node *in = &s->node[n->in[0]];
        p->rows = f8_type_rows(&n->type);
        p->cols = f8_type_columns(&n->type);
        if (in->role != F8_ROLE_CALC) {
            p->rows = in->rows;
            p->cols = in->cols;
            p->when = in->when;
            p->sources = in->sources;
        }
    } else if (p->role == F8_ROLE_WHOLE) {
        for (uint32_t i = 0; i < n->n_in; i++) {
            const f8_ref base = s->view[n->in[i]].base;
            const f8_when when =
                s->node[base].role == F8_ROLE_FUSED ? s->node[base].when : after(s, base);
            p->when = later(p->when, F8_WHEN(F8_LEVEL(when), 0));
        }
    }
}

f8_status f8_group_analyze(f8_grouping *s)
{
    for (f8_ref r = 1; r < s->g->n_nodes; r++) {
        s->node[r].role = role_of(s, r);
        const f8_op op = s->g->node[r].op;
        if (f8_op_facts(op)->cls == F8_COMPOSITE || op == F8_OP_AMAX || op == F8_OP_FP8_SCALE ||
            op == F8_OP_HISTORY_PUSH)
            return f8_fail(s->unit->diag, F8_ERR_INTERNAL, s->g->loc[r],
                           "group: '%s' was not decomposed", f8_op_facts(op)->name);
    }
    mark_needs(s);
    for (f8_ref r = 1; r < s->g->n_nodes; r++)
        if (s->node[r].live) {
            analyze_node(s, r);
            s->node[r].stored = s->node[r].must && s->node[r].role == F8_ROLE_FUSED;
        }
    if (s->unit->options.no_fuse) /* each node gets a moment of its own */
        for (f8_ref r = 1; r < s->g->n_nodes; r++)
            if (s->node[r].role == F8_ROLE_FUSED)
                s->node[r].when = F8_WHEN(0, r);
    return F8_OK;
}
