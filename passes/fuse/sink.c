/* Grouping of recomputed values (f8_is_recomputed): clones sink to the latest moment that their
 * readers allow.
 *
 * analyze.c gives each value the first moment at which it can be had. For a clone that would be the
 * original's moment, in the original's kernel, and the clone would lie in memory all the while:
 * just what recomputing is to avoid. So, from the last value to the first, each clone moves to the
 * latest moment at which all that is computed from it can still read it. That is the moment of a
 * reader over the same rows and columns, in whose phase the clone is then computed and perhaps
 * never stored; otherwise a moment early enough to have it in memory.
 *
 * A reader is wherever a value is really computed. A node that is recomputed inside later kernels,
 * and nowhere else, has a moment that means nothing. What those kernels read for it, its sources,
 * must be in memory before they run.
 *
 * Nothing moves before its first moment, and originals do not move. So the numbering keeps what
 * makes fusion legal: an operand is of the same moment, or in memory before it. */
#include "passes/fuse/grouping.h"

#define NEVER UINT64_MAX

typedef struct use {
    /* first moment of a reader over the same rows and columns that does not read memory */
    f8_when same;
    f8_when
        /* first moment of a reader over other rows or columns: it reads the value, or its sources,
         * from memory */
        other;
    /* last moment at which it can be written in time for those who read it from memory */
    f8_when memory;
} use;

typedef struct sinking {
    f8_grouping *s;
    use *use;         /* by base */
    f8_when *sibling; /* by ref: the moment of a kernel to share, or 0 */
} sinking;

static void sooner(f8_when *a, f8_when b)
{
    *a = b < *a ? b : *a;
}

/* Note that a row kernel or, if `whole`, a whole group at `when` reads `base` from memory. */
static void read_memory(sinking *x, f8_ref base, f8_when when, bool whole)
{
    const uint32_t level = F8_LEVEL(when);
    if (x->s->node[base].role == F8_ROLE_PROJECT)
        base = x->s->g->node[base].in[0];
    if (x->s->node[base].role == F8_ROLE_FUSED)
        sooner(&x->use[base].memory, whole ? F8_WHEN(level, UINT32_MAX) : when - 1);
    else if (x->s->node[base].role == F8_ROLE_WHOLE)
        sooner(&x->use[base].memory, F8_WHEN(level - 1, 0));
}

static void read_operands(sinking *x, f8_ref r)
{
    const f8_grouping *s = x->s;
    const f8_group_node *n = &s->node[r];
    const bool whole = n->role == F8_ROLE_WHOLE;
    for (uint32_t i = 0; i < s->g->node[r].n_in; i++) {
        const f8_ref o = s->g->node[r].in[i], base = s->view[o].base;
        if (!f8_group_computed(&s->node[o]) || f8_group_memory_edge(s, r, i))
            read_memory(x, base, n->when, whole);
        else if (n->rows == s->node[o].rows && n->cols == s->node[o].cols &&
                 !f8_group_output_only(s, base))
            sooner(&x->use[base].same, n->when);
        else
            sooner(&x->use[base].other, n->when);
    }
}

static f8_status move(sinking *x, f8_ref r, f8_when latest)
{
    f8_group_node *n = &x->s->node[r];
    if (!f8_is_recomputed(x->s->g, r) || latest == NEVER)
        return F8_OK;
    if (x->sibling[r] && n->when <= x->sibling[r] && x->sibling[r] <= latest) {
        latest = x->sibling[r];
        n->joins = true;
    }
    if (latest < n->when)
        return f8_fail(x->s->unit->diag, F8_ERR_INTERNAL, x->s->g->loc[r],
                       "group: '%s' is read before it can be computed",
                       f8_op_facts(x->s->g->node[r].op)->name);
    n->when = latest;
    return F8_OK;
}

/* All readers have their moments: give r its own, and note r as a reader of its operands. */
static f8_status settle_fused(sinking *x, f8_ref r)
{
    const f8_grouping *s = x->s;
    const f8_group_node *n = &s->node[r];
    const f8_sources *from = &n->sources;
    const use *u = &x->use[r];
    const bool self = from->n == 1 && from->v[0] == r;
    f8_when latest = u->same;
    sooner(&latest, u->memory);
    if (self && u->other != NEVER)
        sooner(&latest, u->other - 1);
    F8_TRY(move(x, r, latest));
    /* readers that have it neither from memory nor in their own phase recompute it */
    f8_when recompute = u->other;
    if (u->same != n->when)
        sooner(&recompute, u->same);
    if (!self && recompute != NEVER)
        for (uint32_t k = 0; k < from->n; k++)
            read_memory(x, s->view[from->v[k]].base, recompute, false);
    if (n->must || u->memory != NEVER || u->same == n->when || (self && recompute != NEVER))
        read_operands(x, r);
    return F8_OK;
}

static f8_status settle(sinking *x, f8_ref r)
{
    switch (x->s->node[r].role) {
    case F8_ROLE_FUSED: return settle_fused(x, r);
    case F8_ROLE_WHOLE:
        F8_TRY(move(x, r, x->use[r].memory));
        read_operands(x, r);
        return F8_OK;
    default: return F8_OK;
    }
}

/* Whether the operands of r are computed at `when`, over the same rows and columns, for the same
 * reader. */
static bool made_in_phase(const f8_grouping *s, f8_ref r, f8_when when)
{
    const f8_group_node *n = &s->node[r];
    for (uint32_t i = 0; i < s->g->node[r].n_in; i++) {
        const f8_ref o = s->g->node[r].in[i], base = s->view[o].base;
        const f8_group_node *p = &s->node[o];
        if (f8_group_computed(p) && !f8_group_memory_edge(s, r, i) && p->when == when &&
            p->rows == n->rows && p->cols == n->cols && !f8_group_output_only(s, base) &&
            f8_group_recomputed(s, base) == f8_group_recomputed(s, r))
            return true;
    }
    return false;
}

/* A value that is read from memory at this level, and could be written in the phase that makes its
 * operands, is written there: it takes no phase of its own. */
static void hoist_into_phase(sinking *x, f8_ref r)
{
    f8_group_node *n = &x->s->node[r];
    if (!f8_is_recomputed(x->s->g, r) || x->use[r].same == n->when || x->use[r].memory == NEVER ||
        n->joins)
        return;
    const f8_when first = f8_group_operands_when(x->s, r);
    if (first < n->when && F8_LEVEL(first) == F8_LEVEL(n->when) && made_in_phase(x->s, r, first))
        n->when = first;
}

f8_status f8_group_sink(f8_grouping *s)
{
    const uint32_t n = s->g->n_nodes;
    sinking x = {.s = s,
                  .use = F8_NEW_ARRAY(&s->scratch, use, n),
                  .sibling = F8_NEW_ARRAY(&s->scratch, f8_when, n)};
    bool any = false;
    F8_TRY(f8_arena_status(&s->scratch, s->unit->diag));
    for (f8_ref r = 1; r < n; r++) {
        any |= f8_is_recomputed(s->g, r);
        x.use[r] = (use){NEVER, NEVER, NEVER};
    }
    if (any && s->share_kernels)
        F8_TRY(f8_group_siblings(s, x.sibling));
    for (f8_ref r = n - 1; any && r > 0; r--)
        if (s->node[r].live)
            F8_TRY(settle(&x, r));
    for (f8_ref r = 1; any && r < n; r++) {
        if (s->node[r].live && s->node[r].role == F8_ROLE_FUSED)
            hoist_into_phase(&x, r);
        else if (s->node[r].role == F8_ROLE_ALIAS &&
                 s->node[s->g->node[r].in[0]].role != F8_ROLE_CALC)
            s->node[r].when =
                s->node[s->g->node[r].in[0]].when; /* inside kernels it is a view of its operand */
    }
    return F8_OK;
}
