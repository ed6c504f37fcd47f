/* Grouping of recomputed values: sibling fusion, into a kernel that reads the same values.
 *
 * up' = gelu(pre), recomputed for the weight's gradient up'^T dy, can be had from the kernel that
 * computes the derivative of gelu from pre, a GEMM later. Then only its writing costs time. The
 * GEMM must wait for that kernel. Nothing else waits, since only results read the GEMM; but dy and
 * up' lie in memory longer. So for each clone that only such GEMMs read, this file finds the next
 * moment at which an original over the same rows and columns reads what the clone is made from.
 * sink.c moves the clone there if all of its readers can still have it; remat/remat.c decides
 * whether that pays. */
#include "passes/fuse/grouping.h"

#include <string.h>

enum { MOST_READS = 6 };

typedef struct read {
    f8_when when;
    int64_t rows, cols;
} read;

typedef struct reads {
    read at[MOST_READS]; /* distinct, ascending */
    uint32_t n;
} reads;

typedef struct siblings {
    f8_grouping *s;
    reads *of;       /* by base: when originals read it */
    uint32_t *stamp; /* by ref: the last walk that visited it */
    uint32_t walk;
    f8_ref *stack;
    f8_ref *base; /* the full-size bases at which the latest walk ended */
    uint32_t n_bases;
    uint8_t *user; /* by base: LEAF, OTHER or both read it */
} siblings;

enum { LEAF = 1, OTHER = 2 };

/* Whether a phase that computes r also computes o, which one of its nodes reads. A clone still has
 * its first moment here, and will not keep the moment of the originals it is made from. */
static bool computed_with(const f8_grouping *s, f8_ref r, f8_ref o)
{
    const f8_group_node *home = &s->node[r], *n = &s->node[o];
    const bool recompute = f8_is_recomputed(s->g, r);
    if (!f8_group_computed(n) || n->rows != home->rows || n->cols != home->cols)
        return false;
    return (recompute ? f8_is_recomputed(s->g, o) : n->when == home->when) || n->sources.n != 1 ||
           n->sources.v[0] != s->view[o].base;
}

/* Collect into t->base what a phase that computes r reads from memory over all its rows and
 * columns. */
static void walk(siblings *t, f8_ref r)
{
    const f8_grouping *s = t->s;
    const f8_group_node *home = &s->node[r];
    uint32_t depth = 0;
    t->walk++;
    t->n_bases = 0;
    t->stack[depth++] = r;
    t->stamp[r] = t->walk;
    while (depth > 0) {
        const f8_ref at = t->stack[--depth];
        for (uint32_t i = 0; i < s->g->node[at].n_in; i++) {
            const f8_ref o = s->g->node[at].in[i], base = s->view[o].base;
            const bool inside = computed_with(s, r, o) && !f8_group_memory_edge(s, at, i);
            const f8_ref next = inside ? o : base;
            if (t->stamp[next] == t->walk)
                continue;
            t->stamp[next] = t->walk;
            if (inside)
                t->stack[depth++] = o;
            else if (f8_type_elements(f8_type_of(s->g, base)) == home->rows * home->cols)
                t->base[t->n_bases++] = base;
        }
    }
}

static void add_read(reads *set, const f8_group_node *n)
{
    uint32_t i = 0;
    while (i < set->n && set->at[i].when < n->when)
        i++;
    if ((i < set->n && set->at[i].when == n->when) || set->n == MOST_READS)
        return;
    for (uint32_t k = set->n++; k > i; k--)
        set->at[k] = set->at[k - 1];
    set->at[i] = (read){n->when, n->rows, n->cols};
}

/* The first moment from `from` on at which an original reads what clone r is made from. 0: none
 * early enough. */
static f8_when find_sibling(siblings *t, f8_ref r, f8_when from)
{
    const f8_group_node *n = &t->s->node[r];
    f8_when best = 0;
    walk(t, r);
    for (uint32_t b = 0; b < t->n_bases; b++)
        for (uint32_t i = 0; i < t->of[t->base[b]].n; i++) {
            const read *at = &t->of[t->base[b]].at[i];
            if (at->when >= from && at->when >= n->when && at->rows == n->rows &&
                at->cols == n->cols && F8_LEVEL(at->when) <= F8_LEVEL(from) + F8_MOST_WAIT &&
                (!best || at->when < best))
                best = at->when;
        }
    return best;
}

static void wait_for_siblings(siblings *t, f8_ref r, f8_when *sibling)
{
    f8_grouping *s = t->s;
    const f8_node *n = f8_at(s->g, r);
    const f8_when from = F8_WHEN(F8_LEVEL(s->node[r].when), 0);
    f8_when last = 0;
    for (uint32_t i = 0; i < n->n_in; i++) {
        const f8_ref base = s->view[n->in[i]].base;
        if (s->node[base].role != F8_ROLE_FUSED || !f8_is_recomputed(s->g, base) ||
            t->user[base] != LEAF)
            continue;
        sibling[base] = find_sibling(t, base, from);
        last = sibling[base] > last ? sibling[base] : last;
    }
    if (last > from)
        s->node[r].when = F8_WHEN(F8_LEVEL(last), 0);
}

/* By base, through views: who reads it. leaf[r]: a GEMM whose result only the function's results
 * need. */
static void find_users(siblings *t, bool *leaf)
{
    const f8_grouping *s = t->s;
    for (int pass = 0; pass < 2; pass++) {
        for (f8_ref r = 1; r < s->g->n_nodes; r++) {
            if (!s->node[r].live || s->view[r].base != r)
                continue;
            for (uint32_t i = 0; i < s->g->node[r].n_in; i++)
                t->user[s->view[s->g->node[r].in[i]].base] |= pass == 1 && leaf[r] ? LEAF : OTHER;
        }
        for (f8_ref r = 1; r < s->g->n_nodes && pass == 0; r++) {
            leaf[r] = s->node[r].live && s->node[r].role == F8_ROLE_WHOLE &&
                      !f8_is_recomputed(s->g, r) && !t->user[r] &&
                      f8_op_facts(s->g->node[r].op)->cls == F8_GEMM;
        }
        if (pass == 0)
            memset(t->user, 0, s->g->n_nodes * sizeof *t->user);
    }
}

static void find_reads(siblings *t)
{
    const f8_grouping *s = t->s;
    for (f8_ref r = 1; r < s->g->n_nodes; r++) {
        const f8_group_node *n = &s->node[r];
        if (!n->live || !n->must || n->role != F8_ROLE_FUSED || f8_is_recomputed(s->g, r))
            continue;
        walk(t, r);
        for (uint32_t b = 0; b < t->n_bases; b++)
            add_read(&t->of[t->base[b]], n);
    }
}

f8_status f8_group_siblings(f8_grouping *s, f8_when *sibling)
{
    const uint32_t n = s->g->n_nodes;
    siblings t = {.s = s};
    t.of = F8_NEW_ARRAY(&s->scratch, reads, n);
    t.stamp = F8_NEW_ARRAY(&s->scratch, uint32_t, n);
    t.stack = F8_NEW_ARRAY(&s->scratch, f8_ref, n);
    t.base = F8_NEW_ARRAY(&s->scratch, f8_ref, n);
    t.user = F8_NEW_ARRAY(&s->scratch, uint8_t, n);
    bool *leaf = F8_NEW_ARRAY(&s->scratch, bool, n);
    F8_TRY(f8_arena_status(&s->scratch, s->unit->diag));
    find_users(&t, leaf);
    find_reads(&t);
    for (f8_ref r = 1; r < n; r++)
        if (leaf[r])
            wait_for_siblings(&t, r, sibling);
    return F8_OK;
}
