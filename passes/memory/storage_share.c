/* Sharing storage: parts inside concatenations, results in place, accumulators: see storage.h. */
#include "passes/memory/storage.h"

/* ---- writing over what the same group reads ---- */

/* The pass over the phase's rows in which each node is known: a value made from a row's reduction
 * needs another pass over the row. */
static uint32_t pass_of(const f8_storage *s, const f8_phase *p, uint32_t *pass, uint32_t i)
{
    const f8_node *n = f8_at(s->g, p->node[i]);
    uint32_t most = 0;
    for (uint32_t k = 0; k < n->n_in; k++)
        for (uint32_t j = i; j-- > 0;)
            if (p->node[j] == n->in[k]) {
                const uint32_t at = pass[j] + (f8_is_reduce(s->g->node[n->in[k]].op) ? 1 : 0);
                most = at > most ? at : most;
                break;
            }
    return pass[i] = most;
}

/* Whether `n` reads operand k element by element as `t` is written: at the same row and column. */
static bool reads_in_step(const f8_storage *s, const f8_node *n, uint32_t k, const f8_type *t)
{
    const f8_type *in = f8_type_of(s->g, n->in[k]);
    return n->op != F8_OP_ROLL && n->op != F8_OP_EMBEDDING && f8_type_rows(in) == f8_type_rows(t) &&
           f8_type_columns(in) == f8_type_columns(t) &&
           (f8_is_reduce(n->op) || f8_type_elements(&n->type) == f8_type_elements(t));
}

/* Whether every read of `from` in this phase is of the element that is being written. A kernel
 * stores such values in its last pass over the row, and loads before it stores. Row statistics are
 * not handled with that care, so for them the value must be known in that pass only. */
static bool phase_may_overwrite(const f8_storage *s, const f8_phase *p, f8_ref from, f8_ref to)
{
    const f8_type *t = f8_type_of(s->g, to);
    const bool full = f8_type_elements(t) == p->rows * p->cols;
    uint32_t *pass = F8_NEW_ARRAY(s->scratch, uint32_t, p->n_nodes);
    uint32_t last = 0, written = 0;
    bool reads = false;
    if (!pass)
        return false;
    if (!full && f8_type_columns(t) != 1 && f8_type_columns(t) != p->cols)
        return false; /* scales of blocks: all columns of a block read what one of them writes */
    for (uint32_t i = 0; i < p->n_nodes; i++) {
        const f8_ref r = p->node[i];
        const f8_node *n = f8_at(s->g, r);
        for (uint32_t k = 0; k < n->n_in; k++) {
            if (s->view[n->in[k]].base != from)
                continue;
            reads = true;
            if (!reads_in_step(s, n, k, t))
                return false;
        }
        if (full)
            continue;
        const uint32_t at = pass_of(s, p, pass, i);
        last = at > last ? at : last;
        written = r == to ? at : written;
        if (f8_is_column_reduce(s->g, r))
            return false;
    }
    return full || !reads || written == last;
}

static bool phase_reads(const f8_storage *s, const f8_phase *p, f8_ref base)
{
    for (uint32_t i = 0; i < p->n_nodes; i++)
        for (uint32_t k = 0; k < s->g->node[p->node[i]].n_in; k++)
            if (s->view[s->g->node[p->node[i]].in[k]].base == base)
                return true;
    return false;
}

/* Whether group `index` may write base `to` over base `from`, which it reads: it must never read an
 * element of `from` after that element's place is written. Both cover the same bytes. */
static bool group_may_overwrite(const f8_storage *s, uint32_t index, f8_ref from, f8_ref to)
{
    const f8_group *group = &s->lowered->group[index];
    const f8_node *n = f8_at(s->g, group->out[0]);
    if (group->kind == F8_GROUP_GEMM || group->kind == F8_GROUP_SCATTER) {
        const f8_ref acc = f8_accumulator(s->g, group->out[0]);
        uint32_t uses = 0;
        for (uint32_t i = 0; i < n->n_in; i++)
            uses += s->view[n->in[i]].base == from;
        return acc && s->view[acc].base == from && uses == 1;
    }
    if (group->kind != F8_GROUP_ROWS || s->g->node[to].op == F8_OP_TRANSPOSE)
        return false; /* a transpose is written at other rows and columns than are read */
    bool written = false;
    for (uint32_t i = 0; i < group->n_phases; i++) {
        const f8_phase *p = &group->phase[i];
        bool writes = false;
        for (uint32_t k = 0; k < p->n_out; k++)
            writes |= p->out[k] == to;
        if (writes ? !phase_may_overwrite(s, p, from, to) : written && phase_reads(s, p, from))
            return false;
        written |= writes;
    }
    return true;
}

/* ---- allocations ---- */

static void own_allocation(f8_storage *s, f8_ref r)
{
    f8_base *b = &s->base[r];
    b->root = r;
    b->offset = b->next = b->inside = 0;
    b->stride = f8_type_columns(f8_type_of(s->g, r));
    b->place = (f8_place){.space = F8_SPACE_NONE};
    b->pad = (f8_pad){0};
    b->start = UINT32_MAX;
    b->end = 0;
}

/* Move root `r` and all bases in its allocation to `offset` of the allocation of `to`. */
static void move_allocation(f8_storage *s, f8_ref r, f8_ref to, int64_t offset)
{
    const f8_ref root = s->base[to].root;
    f8_ref last = r;
    for (f8_ref m = r; m; m = s->base[m].next) {
        s->base[m].root = root;
        s->base[m].offset += offset;
        last = m;
    }
    s->base[last].next = s->base[root].next;
    s->base[root].next = r;
}

/* ---- concatenations ---- */

/* Place operand `part` of concatenation c at `offset` elements of it, if it can be computed there.
 */
static void put_inside(f8_storage *s, f8_ref c, f8_ref part, int64_t offset, bool columns)
{
    const f8_ref r = s->view[part].base;
    f8_base *b = &s->base[r], *whole = &s->base[c];
    const f8_type *t = f8_type_of(s->g, r);
    /* the type that is concatenated; t is the type that is written */
    const f8_type *seen = f8_type_of(s->g, part);
    const bool gaps = (columns && f8_type_rows(seen) > 1) ||
                      whole->stride != f8_type_columns(f8_type_of(s->g, c));
    if (b->def == F8_NO_GROUP || b->root != r || b->next ||
        f8_type_elements(t) != f8_type_elements(seen))
        return;
    if (gaps && (b->n_readers != 1 || !f8_storage_writes_gaps(s, r) ||
                 f8_type_columns(t) != f8_type_columns(seen)))
        return;
    for (uint32_t i = 0; i < b->n_readers; i++)
        if (b->reader[i].group == F8_NO_GROUP)
            return; /* a result of its own */
    if (gaps)
        b->stride = whole->stride;
    b->inside = c;
    move_allocation(s, r, c, whole->offset + offset);
}

/* Users have higher refs, so the outermost concatenation is seen first, and a part that is itself a
 * concatenation is still without parts when it is placed. `uses` is zero, by ref. */
static void share_concat(f8_storage *s, f8_ref c, uint32_t *uses)
{
    const f8_node *n = f8_at(s->g, c);
    const int rank = n->type.rank;
    int64_t axis = f8_attr_i(s->g, c, F8_A_AXIS);
    axis += axis < 0 ? rank : 0;
    int64_t outer = 1, at = 0;
    for (int i = 0; i < axis; i++)
        outer *= n->type.dim[i];
    const bool columns = axis == rank - 1 && outer > 1;
    if (!columns && outer > 1)
        return;
    for (uint32_t i = 0; i < n->n_in; i++)
        uses[s->view[n->in[i]].base]++;
    for (uint32_t i = 0; i < n->n_in; i++) {
        const f8_type *t = f8_type_of(s->g, n->in[i]);
        /* whole rows are whole->stride apart, columns next to each other */
        const int64_t step = columns            ? f8_type_columns(t)
                             : axis == rank - 1 ? f8_type_elements(t)
                                                : f8_type_rows(t) * s->base[c].stride;
        if (uses[s->view[n->in[i]].base] == 1)
            put_inside(s, c, n->in[i], at, columns);
        at += step;
    }
    for (uint32_t i = 0; i < n->n_in; i++)
        uses[s->view[n->in[i]].base] = 0;
}

/* ---- writing over a state ---- */

/* The first element, and one past the last, of the root's storage that rows of `t` at `offset`
 * cover. */
static void range_of(const f8_type *t, int64_t offset, int64_t stride, int64_t *low, int64_t *high)
{
    *low = offset;
    *high = offset + (f8_type_rows(t) - 1) * stride + f8_type_columns(t);
}

/* Whether every element of concatenation c is computed in place, so that it writes nothing itself.
 */
static bool writes_nothing(const f8_storage *s, f8_ref c)
{
    const f8_node *n = f8_at(s->g, c);
    if (n->op != F8_OP_CONCAT)
        return false;
    for (uint32_t i = 0; i < n->n_in; i++)
        if (s->base[s->view[n->in[i]].base].inside != c)
            return false;
    return true;
}

/* Whether all writes of `member`, which lies in the storage of variable input `old`, come after
 * every read of what they overwrite. */
static bool write_is_safe(const f8_storage *s, const uint32_t *position, f8_ref old, f8_ref member)
{
    const f8_base *b = &s->base[member], *from = &s->base[old];
    int64_t low, high, read_low, read_high;
    range_of(f8_type_of(s->g, member), b->offset, b->stride, &low, &high);
    if (writes_nothing(s, member))
        return true;
    for (uint32_t i = 0; i < from->n_readers; i++) {
        const f8_reader *reader = &from->reader[i];
        const f8_view *v = &s->view[reader->ref];
        range_of(f8_type_of(s->g, reader->ref), v->offset, v->stride, &read_low, &read_high);
        if (read_high <= low || high <= read_low)
            continue;
        if (reader->group == F8_NO_GROUP)
            return false;
        if (position[reader->group] < position[b->def])
            continue;
        if (position[reader->group] > position[b->def] || read_low != low || read_high != high ||
            !group_may_overwrite(s, reader->group, old, member))
            return false;
    }
    return true;
}

static bool allocation_is_safe(const f8_storage *s, const uint32_t *position, f8_ref old,
                               f8_ref first)
{
    for (f8_ref m = first; m; m = s->base[m].next)
        if (!write_is_safe(s, position, old, m))
            return false;
    return true;
}

/* ---- results ---- */

static void share_result(f8_storage *s, const uint32_t *position, size_t index, const f8_ref *input)
{
    const f8_port *p = &s->func->out[index];
    const f8_view *v = &s->view[p->ref];
    f8_base *b = &s->base[v->base];
    const f8_type *t = f8_type_of(s->g, v->base);
    if (b->def == F8_NO_GROUP || b->root != v->base || b->place.space != F8_SPACE_NONE ||
        v->offset != 0 || f8_type_elements(t) != f8_type_elements(&p->type) ||
        !f8_view_contiguous(v, &p->type))
        return;
    if (p->var < 0) {
        b->place = (f8_place){.space = F8_SPACE_OUTPUT, .port = (int32_t)index};
        return;
    }
    const f8_ref old = input[p->var];
    if (old && !allocation_is_safe(s, position, old, v->base))
        return;
    b->place = (f8_place){.space = F8_SPACE_STATE, .port = p->var, .offset = s->var_offset[p->var]};
}

/* ---- accumulators ---- */

static void share_accumulator(f8_storage *s, const uint32_t *position, f8_ref r,
                              const f8_ref *input)
{
    const f8_ref operand = f8_accumulator(s->g, r);
    const f8_ref acc = operand ? s->view[operand].base : 0;
    const f8_base *to = &s->base[r];
    f8_base *b = &s->base[acc];
    if (!acc || b->def == F8_NO_GROUP || b->root != acc || b->place.space != F8_SPACE_NONE ||
        to->root == acc || to->stride != f8_type_columns(f8_type_of(s->g, r)) ||
        f8_type_elements(f8_type_of(s->g, acc)) != f8_type_elements(f8_type_of(s->g, r)))
        return;
    for (uint32_t i = 0; i < b->n_readers; i++) {
        const uint32_t group = b->reader[i].group;
        if (group == F8_NO_GROUP || position[group] > position[to->def] ||
            (group == to->def && !group_may_overwrite(s, group, acc, r)))
            return;
    }
    const f8_place *place = &s->base[to->root].place;
    if (place->space == F8_SPACE_STATE) {
        const f8_ref old = input[place->port];
        if (b->next) /* parts of a concatenation would each have to be checked */
            return;
        b->offset = to->offset;
        const bool safe = !old || write_is_safe(s, position, old, acc);
        b->offset = 0;
        if (!safe)
            return;
    }
    move_allocation(s, acc, r, to->offset);
}

/* ---- lifetimes ---- */

/* Where a collective is over that no group reads: where the second one behind it starts. */
static uint32_t second_behind(const f8_storage *s, const uint32_t *position, uint32_t group)
{
    uint32_t next[2] = {s->lowered->n_groups, s->lowered->n_groups};
    for (uint32_t i = 0; i < s->lowered->n_groups; i++)
        if (position[i] > position[group] && position[i] < next[1] && f8_storage_travels(s, i)) {
            next[1] = position[i] < next[0] ? next[0] : position[i];
            next[0] = position[i] < next[0] ? position[i] : next[0];
        }
    return next[1];
}

/* The first position after `from` of a group that takes long, or of one that does not, but for
 * GEMMs that run beside others. */
static uint32_t next_of(const f8_storage *s, const uint32_t *position, uint32_t from, bool is_long)
{
    uint32_t next = s->lowered->n_groups - 1;
    for (uint32_t i = 0; i < s->lowered->n_groups; i++) {
        const f8_group *group = &s->lowered->group[i];
        const bool takes_long = group->kind == F8_GROUP_GEMM || group->kind == F8_GROUP_ATTENTION ||
                                group->kind == F8_GROUP_ATTENTION_GRAD;
        if (!group->beside && takes_long == is_long && position[i] > from && position[i] < next)
            next = position[i];
    }
    return next;
}

/* The last position at which group i accesses what it reads and writes. */
static uint32_t until(const f8_storage *s, const uint32_t *position, uint32_t i)
{
    /* A GEMM that runs beside others has the time of the row kernels after it, and of the GEMM or
     * attention behind them if it needs it. */
    if (s->lowered->group[i].beside)
        return next_of(s, position, next_of(s, position, position[i], false), true);
    if (!f8_storage_travels(s, i))
        return position[i];
    const f8_base *b = &s->base[s->lowered->group[i].out[0]];
    uint32_t first = UINT32_MAX;
    for (uint32_t k = 0; k < b->n_readers; k++)
        if (b->reader[k].group != F8_NO_GROUP && position[b->reader[k].group] < first)
            first = position[b->reader[k].group];
    return (first == UINT32_MAX ? second_behind(s, position, i) : first) - 1;
}

static void live_ranges(f8_storage *s, const uint32_t *position)
{
    const uint32_t at_end = s->lowered->n_groups;
    for (f8_ref r = 1; r < s->g->n_nodes; r++) {
        const f8_base *b = &s->base[r];
        if (b->def == F8_NO_GROUP)
            continue;
        f8_base *root = &s->base[b->root];
        const uint32_t made = position[b->def], written = until(s, position, b->def);
        root->start = made < root->start ? made : root->start;
        root->end = written > root->end ? written : root->end;
        for (uint32_t i = 0; i < b->n_readers; i++) {
            const uint32_t group = b->reader[i].group;
            const uint32_t at = group == F8_NO_GROUP ? at_end : until(s, position, group);
            root->end = at > root->end ? at : root->end;
        }
    }
}

f8_status f8_storage_share(f8_storage *s, const uint32_t *position)
{
    f8_ref *input = F8_NEW_ARRAY(s->scratch, f8_ref, s->g->module->n_vars);
    uint32_t *uses = F8_NEW_ARRAY(s->scratch, uint32_t, s->g->n_nodes);
    F8_TRY(f8_arena_status(s->scratch, s->diag));
    for (size_t i = 0; i < s->func->n_in; i++)
        if (s->func->in[i].var >= 0)
            input[s->func->in[i].var] = s->func->in[i].ref;
    for (f8_ref r = 1; r < s->g->n_nodes; r++)
        own_allocation(s, r);
    for (f8_ref r = s->g->n_nodes - 1; r > 0; r--)
        if (s->g->node[r].op == F8_OP_CONCAT && s->base[r].def != F8_NO_GROUP)
            share_concat(s, r, uses);
    for (size_t i = 0; i < s->func->n_out; i++)
        share_result(s, position, i, input);
    for (uint32_t i = s->lowered->n_groups; i-- > 0;) {
        const f8_group *group = &s->lowered->group[i];
        if (group->kind == F8_GROUP_GEMM || group->kind == F8_GROUP_SCATTER)
            share_accumulator(s, position, group->out[0], input);
    }
    F8_TRY(f8_storage_pad(s));
    live_ranges(s, position);
    return F8_OK;
}
