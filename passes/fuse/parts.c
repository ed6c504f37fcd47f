/* Grouping, second half: what each cell (one moment, one domain) computes, split into connected
 * parts. A part that is too large is cut into pieces.
 *
 * Cells are visited from the last moment to the first, so that all demands on a cell are known when
 * its turn comes. A demand for a value that is not at home in a cell becomes a read of a stored
 * value and a demand on the cell that stores it, or a copy of the nodes that recompute it. */
#include "passes/fuse/grouping.h"

#include "passes/unit/cost.h"

#include <stdlib.h>
#include <string.h>

/* One cell under construction. Arrays by ref are shared by all cells and told apart by stamps. */
typedef struct cell {
    f8_grouping *s;
    f8_ref home; /* any node at home here: it has the cell's domain and moment */
    uint32_t id;
    uint32_t *stamp; /* by ref: == id when the node is computed in this cell */
    uint32_t *slot;  /* by ref: index into node[] */
    uint32_t *read_stamp,
        /* by ref: == reading where valid, and the last node that reads this stored value in full */
        *read_slot;
    uint32_t reading;
    f8_ref *node; /* computed here; then sorted */
    uint32_t n_nodes;
    uint32_t *leader;       /* by slot: union-find */
    uint32_t *recompute;    /* by slot, of leaders: as f8_part has it */
    uint32_t *first, *next; /* by slot of leaders: the first slot led; by slot: the next, or NONE */
    uint32_t *list;         /* the slots of the part under construction, ascending */
    uint32_t n_list;
    uint32_t *stack;
    uint32_t *mark; /* by slot: == marking when listed, or when in the piece at hand */
    uint32_t marking;
    uint32_t *piece; /* by slot, where listed: the piece that computes it first */
    uint32_t *last;  /* by slot, where listed: the last slot that reads it */
} cell;

enum { NONE = UINT32_MAX };

/* ---- what the cell computes ---- */

static bool stored_source(const f8_grouping *s, f8_ref o)
{
    const f8_ref base = s->view[o].base;
    const f8_sources *from = &s->node[base].sources;
    return s->node[base].role == F8_ROLE_FUSED && from->n == 1 && from->v[0] == base;
}

/* Whether operand i of r, which this cell computes, is computed here too; if not, it is read from
 * memory. */
static bool computed_here(const cell *c, f8_ref r, uint32_t i)
{
    const f8_grouping *s = c->s;
    const f8_ref o = s->g->node[r].in[i];
    if (!f8_group_computed(&s->node[o]) || f8_group_memory_edge(s, r, i))
        return false;
    if (f8_group_same_home(s, o, c->home) && !f8_group_output_only(s, s->view[o].base))
        return true;
    return !stored_source(s, o);
}

static void demand(cell *c, f8_ref r)
{
    if (c->stamp[r] == c->id)
        return;
    c->stamp[r] = c->id;
    c->node[c->n_nodes++] = r;
}

static int by_ref(const void *a, const void *b)
{
    const f8_ref x = *(const f8_ref *)a, y = *(const f8_ref *)b;
    return x < y ? -1 : x > y;
}

static void fill(cell *c, const f8_ref *home, uint32_t n_home)
{
    const f8_grouping *s = c->s;
    c->n_nodes = 0;
    for (uint32_t i = 0; i < n_home; i++)
        if (s->node[home[i]].stored)
            demand(c, home[i]);
    for (uint32_t at = 0; at < c->n_nodes; at++) {
        const f8_ref r = c->node[at];
        for (uint32_t i = 0; i < s->g->node[r].n_in; i++) {
            const f8_ref o = s->g->node[r].in[i];
            if (computed_here(c, r, i))
                demand(c, o);
            else if (s->node[s->view[o].base].role == F8_ROLE_FUSED)
                s->node[s->view[o].base].stored = true;
        }
    }
    qsort(c->node, c->n_nodes, sizeof *c->node, by_ref);
    for (uint32_t i = 0; i < c->n_nodes; i++)
        c->slot[c->node[i]] = i;
}

/* ---- connected parts ---- */

static uint32_t leader_of(cell *c, uint32_t i)
{
    while (c->leader[i] != i)
        i = c->leader[i] = c->leader[c->leader[i]];
    return i;
}

static void join(cell *c, uint32_t a, uint32_t b)
{
    a = leader_of(c, a);
    b = leader_of(c, b);
    c->leader[a > b ? a : b] = a > b ? b : a;
}

/* Whether two nodes that both need o belong to one part. Not for scalars and vectors, which any
 * number of unrelated parts may need: each part recomputes those. */
static bool connects(const cell *c, f8_ref o)
{
    const f8_grouping *s = c->s;
    const f8_group_node *home = &s->node[c->home];
    const f8_type *t = f8_type_of(s->g, o);
    if (s->node[o].sources.n == 0)
        return false; /* made of constants */
    if (f8_type_rows(t) == home->rows && (home->rows > 1 || f8_type_columns(t) == home->cols))
        return true;
    return f8_group_same_home(s, o, c->home);
}

/* What each connected part recomputes: one number, or 0. */
static void number_parts(cell *c)
{
    const f8_grouping *s = c->s;
    for (uint32_t i = 0; i < c->n_nodes; i++)
        c->recompute[i] = UINT32_MAX;
    for (uint32_t i = 0; i < c->n_nodes; i++) {
        const f8_ref r = c->node[i];
        const uint32_t recompute = s->node[r].joins ? 0 : f8_group_recomputed(s, r);
        uint32_t *to = &c->recompute[leader_of(c, i)];
        if (s->node[r].stored && f8_group_same_home(s, r, c->home) && recompute < *to)
            *to = recompute;
    }
    for (uint32_t i = 0; i < c->n_nodes; i++)
        if (c->recompute[i] == UINT32_MAX) /* it stores nothing of its own */
            c->recompute[i] = 0;
}

static void join_readers(cell *c, uint32_t slot, f8_ref o)
{
    const f8_grouping *s = c->s;
    const f8_group_node *home = &s->node[c->home];
    const f8_ref base = s->view[o].base;
    const f8_type *t = f8_type_of(s->g, o);
    if (s->node[base].role == F8_ROLE_CALC || home->rows * home->cols == 1 ||
        f8_type_elements(t) != home->rows * home->cols)
        return;
    if (c->read_stamp[base] == c->reading)
        join(c, c->read_slot[base], slot);
    c->read_stamp[base] = c->reading;
    c->read_slot[base] = slot;
}

static bool is_at_home(const cell *c, f8_ref r)
{
    const f8_group_node *home = &c->s->node[c->home];
    return connects(c, r) || home->rows * home->cols == 1;
}

/* Parts that read the same value in full belong together. But a recomputing part joins only what is
 * recomputed for the same reader: any other part would make it wait, or be made to wait. */
static void connect_readers(cell *c)
{
    const f8_grouping *s = c->s;
    uint32_t next = 0;
    while (next != UINT32_MAX) {
        const uint32_t recompute = next;
        next = UINT32_MAX;
        c->reading++;
        for (uint32_t i = 0; i < c->n_nodes; i++) {
            const f8_ref r = c->node[i];
            const uint32_t own = c->recompute[leader_of(c, i)];
            if (own > recompute && own < next)
                next = own;
            for (uint32_t k = 0; own == recompute && is_at_home(c, r) && k < s->g->node[r].n_in;
                 k++)
                if (!computed_here(c, r, k))
                    join_readers(c, i, s->g->node[r].in[k]);
        }
    }
}

static void connect(cell *c)
{
    const f8_grouping *s = c->s;
    for (uint32_t i = 0; i < c->n_nodes; i++)
        c->leader[i] = i;
    for (uint32_t i = 0; i < c->n_nodes; i++) {
        const f8_ref r = c->node[i];
        for (uint32_t k = 0; is_at_home(c, r) && k < s->g->node[r].n_in; k++)
            if (computed_here(c, r, k) && connects(c, s->g->node[r].in[k]))
                join(c, i, c->slot[s->g->node[r].in[k]]);
    }
    number_parts(c);
    connect_readers(c);
}

/* ---- pieces of a part ---- */

/* Whether a later piece reads o from memory, and does not compute it once more. */
static bool read_later(const cell *c, f8_ref o)
{
    return f8_group_same_home(c->s, o, c->home) && stored_source(c->s, o);
}

static bool is_output(const cell *c, uint32_t slot)
{
    const f8_ref r = c->node[slot];
    return c->s->node[r].stored && f8_group_same_home(c->s, r, c->home);
}

static int by_slot(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

/* List the slots led by each leader. */
static void list_led(cell *c)
{
    for (uint32_t i = 0; i < c->n_nodes; i++)
        c->first[i] = NONE;
    for (uint32_t i = c->n_nodes; i-- > 0;) {
        uint32_t *first = &c->first[leader_of(c, i)];
        c->next[i] = *first;
        *first = i;
    }
}

/* List what computing all outputs led by `leader` takes. */
static void list_part(cell *c, uint32_t leader)
{
    const f8_grouping *s = c->s;
    c->n_list = 0;
    c->marking++;
    for (uint32_t i = c->first[leader]; i != NONE; i = c->next[i])
        if (is_output(c, i)) {
            c->list[c->n_list++] = i;
            c->mark[i] = c->marking;
        }
    for (uint32_t at = 0; at < c->n_list; at++) {
        const f8_ref r = c->node[c->list[at]];
        for (uint32_t k = 0; k < s->g->node[r].n_in; k++) {
            if (!computed_here(c, r, k))
                continue;
            const uint32_t from = c->slot[s->g->node[r].in[k]];
            if (c->mark[from] != c->marking) {
                c->mark[from] = c->marking;
                c->list[c->n_list++] = from;
            }
        }
    }
    qsort(c->list, c->n_list, sizeof *c->list, by_slot);
}

static void count_buffer(const cell *c, f8_ref r, f8_phase_size *size)
{
    size->buffers++;
    size->words += f8_type_rows(f8_type_of(c->s->g, r)) > 1 ? 2 : 1;
}

/* The size of the node at `slot` in piece `piece`: what it computes, its result if that is stored,
 * and what it reads from memory that the piece has not read yet. */
static f8_phase_size size_of(cell *c, uint32_t slot, uint32_t piece)
{
    const f8_grouping *s = c->s;
    const f8_ref r = c->node[slot];
    f8_phase_size size = {.work = f8_op_work(s->g->node[r].op)};
    if (is_output(c, slot))
        count_buffer(c, r, &size);
    for (uint32_t k = 0; k < s->g->node[r].n_in; k++) {
        const f8_ref o = s->g->node[r].in[k], base = s->view[o].base;
        if (computed_here(c, r, k) && (c->piece[c->slot[o]] == piece || !read_later(c, o)))
            continue;
        if (s->node[base].role == F8_ROLE_CALC || c->read_stamp[base] == c->reading)
            continue;
        c->read_stamp[base] = c->reading;
        count_buffer(c, o, &size);
    }
    return size;
}

static void note_last_reads(cell *c)
{
    for (uint32_t at = 0; at < c->n_list; at++) {
        const uint32_t i = c->list[at];
        const f8_node *n = f8_at(c->s->g, c->node[i]);
        c->last[i] = i;
        for (uint32_t k = 0; k < n->n_in; k++)
            if (computed_here(c, c->node[i], k))
                c->last[c->slot[n->in[k]]] = i;
    }
}

/* How many values of piece `piece` would be stored for a later one if it ended with the node at
 * `slot`, beyond those for which it would if it ended before that node. */
static int32_t kept_change(cell *c, uint32_t slot, uint32_t piece)
{
    const f8_grouping *s = c->s;
    const f8_ref r = c->node[slot];
    int32_t n = c->last[slot] > slot && read_later(c, r) && !s->node[r].stored;
    for (uint32_t k = 0; k < s->g->node[r].n_in; k++) {
        const f8_ref o = s->g->node[r].in[k];
        if (!computed_here(c, r, k))
            continue;
        const uint32_t from = c->slot[o];
        if (c->last[from] != slot || c->piece[from] != piece)
            continue;
        c->last[from] = 0; /* once, if r reads o twice */
        n -= read_later(c, o) && !s->node[o].stored;
    }
    return n;
}

/* Number the pieces of what is listed, from the first node on: a piece ends before the node with
 * which it would be too large. With `whole` all is one piece, of which *size is told. The number of
 * the last piece. */
static uint32_t number_pieces(cell *c, bool whole, f8_phase_size *size)
{
    uint32_t piece = 0;
    int32_t kept = 0;
    *size = (f8_phase_size){0};
    c->reading++;
    note_last_reads(c);
    for (uint32_t at = 0; at < c->n_list; at++) {
        const uint32_t i = c->list[at];
        c->piece[i] = piece;
        f8_phase_size own = size_of(c, i, piece);
        const f8_phase_size at_end = {size->work, size->buffers + (uint32_t)kept,
                                      size->words + 2 * (uint32_t)kept};
        if (!whole && size->work > 0 && !f8_phase_fits(at_end, own)) {
            c->reading++;
            c->piece[i] = ++piece;
            kept = 0;
            *size = (f8_phase_size){0};
            own = size_of(c, i, piece);
        }
        kept += kept_change(c, i, piece);
        *size = f8_phase_sum(*size, own);
    }
    return piece;
}

/* ---- the parts ---- */

static f8_part *new_part(cell *c)
{
    f8_grouping *s = c->s;
    const f8_group_node *home = &s->node[c->home];
    f8_part *grown = f8_arena_grow(&s->scratch, s->part, s->n_parts, &s->part_room, s->n_parts + 1,
                                   sizeof *s->part);
    if (!grown)
        return NULL;
    s->part = grown;
    s->part[s->n_parts] = (f8_part){.when = home->when, .rows = home->rows, .cols = home->cols};
    return &s->part[s->n_parts++];
}

/* Whether computing r in piece `piece` takes computing its operand i there. A value of an earlier
 * piece that is not computed once more is stored. */
static bool in_piece(cell *c, f8_ref r, uint32_t i, uint32_t piece)
{
    const f8_ref o = c->s->g->node[r].in[i];
    if (!computed_here(c, r, i))
        return false;
    if (c->piece[c->slot[o]] == piece || !read_later(c, o))
        return true;
    c->s->node[c->s->view[o].base].stored = true;
    return false;
}

/* The outputs of a piece, in c->stack: how many. What is made of constants may be an output of
 * another part. */
static uint32_t list_outputs(cell *c, uint32_t leader, uint32_t piece)
{
    uint32_t n = 0;
    c->marking++;
    for (uint32_t at = 0; at < c->n_list; at++) {
        const uint32_t i = c->list[at];
        if (c->piece[i] != piece || !is_output(c, i) || leader_of(c, i) != leader)
            continue;
        c->stack[n++] = i;
        c->mark[i] = c->marking;
    }
    return n;
}

/* Mark what computing the `depth` values in c->stack takes: how many nodes. */
static uint32_t mark_piece(cell *c, uint32_t depth, uint32_t piece)
{
    uint32_t n_nodes = 0;
    while (depth > 0) {
        const f8_ref r = c->node[c->stack[--depth]];
        n_nodes++;
        for (uint32_t k = 0; k < c->s->g->node[r].n_in; k++) {
            if (!in_piece(c, r, k, piece))
                continue;
            const uint32_t from = c->slot[c->s->g->node[r].in[k]];
            if (c->mark[from] != c->marking) {
                c->mark[from] = c->marking;
                c->stack[depth++] = from;
            }
        }
    }
    return n_nodes;
}

/* The outputs of a piece and everything that it computes for them. */
static f8_status make_piece(cell *c, uint32_t leader, uint32_t piece, f8_phase_size size)
{
    f8_grouping *s = c->s;
    const uint32_t n_out = list_outputs(c, leader, piece);
    if (n_out == 0)
        return F8_OK; /* later pieces compute all of it once more */
    f8_part *p = new_part(c);
    f8_ref *out = F8_NEW_ARRAY(&s->scratch, f8_ref, n_out);
    if (!p || !out)
        return f8_arena_status(&s->scratch, s->unit->diag);
    p->out = out;
    p->n_out = n_out;
    p->piece = piece;
    p->size = size;
    p->recompute = c->recompute[leader];
    for (uint32_t i = 0; i < n_out; i++) {
        out[i] = c->node[c->stack[i]];
        s->node[out[i]].part = (uint32_t)s->n_parts;
    }
    const uint32_t n_nodes = mark_piece(c, n_out, piece);
    p->node = F8_NEW_ARRAY(&s->scratch, f8_ref, n_nodes);
    if (!p->node)
        return f8_arena_status(&s->scratch, s->unit->diag);
    for (uint32_t at = 0; at < c->n_list; at++)
        if (c->mark[c->list[at]] == c->marking)
            p->node[p->n_nodes++] = c->node[c->list[at]];
    return F8_OK;
}

/* The part of all stored nodes led by `leader`, with everything they compute. Pieces go from the
 * last to the first, so that all that later ones read is known. Each is given the size of the
 * whole, which fits into no phase with anything else. */
static f8_status make_part(cell *c, uint32_t leader)
{
    f8_phase_size size, last;
    list_part(c, leader);
    uint32_t piece = number_pieces(c, true, &size);
    if (!f8_phase_fits(size, (f8_phase_size){0}))
        piece = number_pieces(c, false, &last);
    for (uint32_t i = piece + 1; i-- > 0;)
        F8_TRY(make_piece(c, leader, i, size));
    return F8_OK;
}

static f8_status make_parts(cell *c)
{
    const f8_grouping *s = c->s;
    list_led(c);
    for (uint32_t i = 0; i < c->n_nodes; i++) {
        const f8_ref r = c->node[i];
        if (!s->node[r].stored || !f8_group_same_home(s, r, c->home) || s->node[r].part)
            continue;
        F8_TRY(make_part(c, leader_of(c, i)));
    }
    return F8_OK;
}

/* ---- all cells ---- */

typedef struct sort_key {
    f8_when when;
    int64_t rows, cols;
    f8_ref ref;
} sort_key;

/* Latest moment first; within a cell by ref. */
static int by_cell(const void *a, const void *b)
{
    const sort_key *x = a, *y = b;
    if (x->when != y->when)
        return x->when > y->when ? -1 : 1;
    if (x->rows != y->rows)
        return x->rows < y->rows ? -1 : 1;
    if (x->cols != y->cols)
        return x->cols < y->cols ? -1 : 1;
    return x->ref < y->ref ? -1 : x->ref > y->ref;
}

static f8_status setup(cell *c, f8_grouping *s)
{
    const size_t n = s->g->n_nodes;
    *c = (cell){.s = s};
    c->stamp = F8_NEW_ARRAY(&s->scratch, uint32_t, n);
    c->slot = F8_NEW_ARRAY(&s->scratch, uint32_t, n);
    c->read_stamp = F8_NEW_ARRAY(&s->scratch, uint32_t, n);
    c->read_slot = F8_NEW_ARRAY(&s->scratch, uint32_t, n);
    c->node = F8_NEW_ARRAY(&s->scratch, f8_ref, n);
    c->leader = F8_NEW_ARRAY(&s->scratch, uint32_t, n);
    c->recompute = F8_NEW_ARRAY(&s->scratch, uint32_t, n);
    c->first = F8_NEW_ARRAY(&s->scratch, uint32_t, n);
    c->next = F8_NEW_ARRAY(&s->scratch, uint32_t, n);
    c->list = F8_NEW_ARRAY(&s->scratch, uint32_t, n);
    c->stack = F8_NEW_ARRAY(&s->scratch, uint32_t, n);
    c->mark = F8_NEW_ARRAY(&s->scratch, uint32_t, n);
    c->piece = F8_NEW_ARRAY(&s->scratch, uint32_t, n);
    c->last = F8_NEW_ARRAY(&s->scratch, uint32_t, n);
    return f8_arena_status(&s->scratch, s->unit->diag);
}

f8_status f8_group_parts(f8_grouping *s)
{
    cell c;
    uint32_t n = 0;
    F8_TRY(setup(&c, s));
    sort_key *key = F8_NEW_ARRAY(&s->scratch, sort_key, s->g->n_nodes);
    f8_ref *home = F8_NEW_ARRAY(&s->scratch, f8_ref, s->g->n_nodes);
    F8_TRY(f8_arena_status(&s->scratch, s->unit->diag));
    for (f8_ref r = 1; r < s->g->n_nodes; r++)
        if (s->node[r].live && s->node[r].role == F8_ROLE_FUSED)
            key[n++] = (sort_key){s->node[r].when, s->node[r].rows, s->node[r].cols, r};
    qsort(key, n, sizeof *key, by_cell);
    for (uint32_t i = 0, end; i < n; i = end) {
        uint32_t n_home = 0;
        for (end = i; end < n && key[end].when == key[i].when && key[end].rows == key[i].rows &&
                      key[end].cols == key[i].cols;
             end++)
            home[n_home++] = key[end].ref;
        c.home = home[0];
        c.id++;
        fill(&c, home, n_home);
        if (c.n_nodes == 0)
            continue;
        connect(&c);
        F8_TRY(make_parts(&c));
    }
    return F8_OK;
}
