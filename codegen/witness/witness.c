/* Judging group after group: see witness.h. */
#include "codegen/witness/parts.h"

#include <string.h>

#include "codegen/reference/reference.h"

/* ---- life ---- */

/* The most operands of a node. */
static size_t most_operands(const f8_graph *g)
{
    size_t most = 0;
    for (f8_ref r = 1; r < g->n_nodes; r++)
        most = f8_at(g, r)->n_in > most ? f8_at(g, r)->n_in : most;
    return most;
}

static size_t state_bytes(const f8_graph *g)
{
    return sizeof(struct f8_witness_state) +
           g->n_nodes * (sizeof(f8_witness_value) + sizeof(f8_ref)) +
           most_operands(g) * (sizeof(f8_type) + sizeof(void *));
}

f8_status f8_witness_begin(f8_witness *w, f8_diag *diag)
{
    const f8_allocator a = w->allocator ? *w->allocator : f8_default_allocator();
    const f8_graph *g = w->f->graph;
    const size_t bytes = state_bytes(g), most = most_operands(g);
    w->state = a.alloc(a.user, bytes, 64);
    if (!w->state)
        return f8_fail(diag, F8_ERR_MEMORY, F8_NOWHERE, "out of memory: %zu bytes were wanted",
                       bytes);
    memset(w->state, 0, bytes);
    w->state->allocator = a;
    w->state->g = g;
    w->state->value = (f8_witness_value *)(w->state + 1);
    w->state->operand_type = (f8_type *)(w->state->value + g->n_nodes);
    w->state->operand = (const void **)(w->state->operand_type + most);
    w->state->ref = (f8_ref *)(w->state->operand + most);
    return F8_OK;
}

void f8_witness_end(f8_witness *w)
{
    if (!w->state)
        return;
    f8_witness_forget(w);
    const f8_allocator a = w->state->allocator;
    a.free(a.user, w->state, state_bytes(w->state->g));
    w->state = NULL;
}

/* ---- one group ---- */

static const f8_group *group_of(const f8_witness *w, uint32_t group)
{
    const f8_lowered *p = w->f->lowered;
    return group >= 1 && group <= p->n_groups ? &p->group[p->order[group - 1]] : NULL;
}

/* Whether it computes sums whose order is its library's, or of its own. */
static bool is_bounded(const f8_group *g)
{
    return g->kind == F8_GROUP_GEMM || g->kind == F8_GROUP_ATTENTION ||
           g->kind == F8_GROUP_ATTENTION_GRAD;
}

static bool judges(const f8_witness *w, const f8_group *g)
{
    return w->judges && g->kind != F8_GROUP_COLLECTIVE;
}

f8_status f8_witness_before(f8_witness *w, uint32_t group, f8_diag *diag)
{
    const f8_group *g = group_of(w, group);
    f8_witness_forget(w);
    return g && judges(w, g) ? f8_witness_read(w, g, diag) : F8_OK;
}

bool f8_witness_is_overwritten(const f8_func *f, const f8_group *group, f8_ref r)
{
    const f8_place *place = f->lowered->place, *p = &place[r];
    bool behind = false;
    for (uint32_t k = 0; k < group->n_phases; k++) {
        const f8_phase *phase = &group->phase[k];
        for (uint32_t i = 0; behind && i < phase->n_out; i++) {
            const f8_place *q = &place[phase->out[i]];
            if (q->space == p->space && q->port == p->port && q->offset == p->offset)
                return true;
        }
        behind |= f8_listed(phase->out, phase->n_out, r);
    }
    return false;
}

/* `by` is r, or the op that has several results. */
static void report(f8_witness *w, uint32_t group, f8_ref r, f8_ref by, const f8_type *t,
                   const void *bytes, const f8_judgement *j)
{
    f8_witnessed said = {.group = group, .ref = r, .type = *t, .bytes = bytes, .judged = j != NULL};
    if (j)
        said.judgement = *j;
    said.nonfinite = f8_witness_nonfinite(t, bytes, &said.first);
    if (said.nonfinite)
        f8_witness_trace(w, by, &said.from, &said.made);
    w->report(w->user, &said);
}

/* A value that the group has written, beside what the interpreter made. */
static f8_status look(f8_witness *w, uint32_t group, f8_ref r, const void *want, f8_diag *diag)
{
    const f8_type *t = f8_type_of(w->state->g, r);
    f8_witness_seen got;
    const f8_status status = f8_witness_see(w, &w->f->lowered->place[r], t, false, &got, diag);
    if (status == F8_OK && want)
        f8_judge_bits(t, got.data, want, &got.judgement);
    if (status == F8_OK)
        report(w, group, r, r, t, got.data, want ? &got.judgement : NULL);
    f8_witness_release(w, &got);
    return status;
}

/* Fills f8_witness_state.seen with the values that the group has written. Those that it wrote over
 * later are left out. */
static f8_status see_all(f8_witness *w, const f8_group *g, f8_diag *diag)
{
    struct f8_witness_state *s = w->state;
    s->seen = s->allocator.alloc(s->allocator.user, g->n_out * sizeof *s->seen, 64);
    if (!s->seen)
        return f8_fail(diag, F8_ERR_MEMORY, F8_NOWHERE, "out of memory: %zu bytes were wanted",
                       g->n_out * sizeof *s->seen);
    memset(s->seen, 0, g->n_out * sizeof *s->seen);
    s->n_seen = g->n_out;
    for (uint32_t i = 0; i < g->n_out; i++)
        if (!f8_witness_is_overwritten(w->f, g, g->out[i]))
            F8_TRY(f8_witness_see(w, &w->f->lowered->place[g->out[i]], f8_type_of(s->g, g->out[i]),
                                  false, &s->seen[i], diag));
    return F8_OK;
}

/* A row kernel, judged some rows at a time. */
static f8_status look_at_rows(f8_witness *w, uint32_t group, const f8_group *g, f8_diag *diag)
{
    F8_TRY(see_all(w, g, diag));
    F8_TRY(f8_witness_judge_rows(w, g, diag));
    for (uint32_t i = 0; i < g->n_out; i++) {
        const f8_witness_seen *s = &w->state->seen[i];
        if (s->data)
            report(w, group, g->out[i], g->out[i], &s->type, s->data, &s->judgement);
    }
    f8_witness_forget(w);
    return F8_OK;
}

/* The results of a GEMM or an attention. The group's `out` lists the op first, and then the
 * PROJECTs that read its further results. */
typedef struct results {
    const f8_group *group;
    f8_ref ref[F8_MAX_RESULTS]; /* 0: nobody reads it */
    f8_witness_seen seen[F8_MAX_RESULTS];
    int n;
} results;

static f8_status fetch_results(f8_witness *w, results *s, f8_diag *diag)
{
    const f8_graph *g = w->state->g;
    const f8_ref op = s->group->out[0];
    const bool attention = f8_op_facts(f8_at(g, op)->op)->cls == F8_ATTENTION;
    s->n = f8_op_facts(f8_at(g, op)->op)->results;
    for (uint32_t i = 0; i < s->group->n_out; i++) {
        const f8_ref r = s->group->out[i];
        s->ref[f8_at(g, r)->op == F8_OP_PROJECT ? f8_attr_i(g, r, F8_A_INDEX) : 0] = r;
    }
    for (int i = 0; i < s->n; i++) {
        const f8_type t = f8_result_type(g, op, i);
        if (s->ref[i])
            F8_TRY(f8_witness_see(w, &w->f->lowered->place[s->ref[i]], &t, attention, &s->seen[i],
                                  diag));
    }
    return F8_OK;
}

/* `report` is given contiguous values, so a result whose rows lie apart is copied for it. */
static f8_status report_result(f8_witness *w, uint32_t group, const results *s, int i,
                               const f8_judgement *j, f8_diag *diag)
{
    const f8_witness_seen *seen = &s->seen[i];
    f8_witness_seen own = *seen;
    f8_status status = F8_OK;
    if (seen->stride)
        status =
            f8_witness_see(w, &w->f->lowered->place[s->ref[i]], &seen->type, false, &own, diag);
    if (status == F8_OK)
        report(w, group, s->ref[i], s->group->out[0], &own.type, own.data, j);
    if (seen->stride)
        f8_witness_release(w, &own);
    return status;
}

static void unload(void *user)
{
    f8_witness_unload(user);
}

static f8_status judge_results(f8_witness *w, uint32_t group, const results *s, f8_diag *diag)
{
    enum { MOST = 16 }; /* is_bounded(): an attention's gradient has the most */
    const f8_graph *g = w->state->g;
    const f8_ref op = s->group->out[0];
    const f8_node *n = f8_at(g, op);
    const void *operand[MOST], *result[F8_MAX_RESULTS];
    int64_t operand_stride[MOST], result_stride[F8_MAX_RESULTS];
    const f8_judge_rows strides = {operand_stride, result_stride, unload, w};
    f8_judgement j = {.ok = true};
    for (int i = 0; i < s->n; i++) {
        result[i] = s->seen[i].data;
        result_stride[i] = s->seen[i].stride;
    }
    for (uint32_t k = 0; w->judges && k < n->n_in && k < MOST; k++) {
        operand[k] = w->state->value[n->in[k]].data;
        operand_stride[k] = w->state->value[n->in[k]].stride;
    }
    if (w->judges)
        F8_TRY(f8_judge_strided(g, op, w->sums, operand, result, &strides, &w->state->allocator, &j,
                                diag));
    w->state->value[op].nonfinite = w->judges; /* so that a result's NaN or Inf is traced */
    for (int i = 0; i < s->n; i++) {
        f8_judgement own = j;
        own.ok |= own.result != i; /* the judgement has the first result that is off */
        if (s->ref[i])
            F8_TRY(report_result(w, group, s, i, w->judges ? &own : NULL, diag));
    }
    return F8_OK;
}

static f8_status look_at_results(f8_witness *w, uint32_t group, const f8_group *g, f8_diag *diag)
{
    results s = {.group = g};
    f8_status status = fetch_results(w, &s, diag);
    if (status == F8_OK && w->judges)
        status = f8_witness_compute(w, g, g->out[0], diag);
    if (status == F8_OK)
        status = judge_results(w, group, &s, diag);
    for (int i = 0; i < s.n; i++)
        f8_witness_release(w, &s.seen[i]);
    return status;
}

/* A copy at the end of the function: its place must hold what it has copied. */
static f8_status look_at_copy(f8_witness *w, uint32_t group, f8_diag *diag)
{
    const f8_lowered *p = w->f->lowered;
    const f8_final_copy *c = &p->copy[group - p->n_groups - 1];
    const f8_type *t = f8_type_of(w->state->g, c->from);
    f8_witness_seen from, to = {.data = NULL};
    f8_status status = f8_witness_see(w, &p->place[c->from], t, false, &from, diag);
    if (status == F8_OK)
        status = f8_witness_see(w, &c->to, t, false, &to, diag);
    if (status == F8_OK) {
        f8_judge_bits(t, to.data, from.data, &to.judgement);
        report(w, group, c->from, c->from, t, to.data, w->judges ? &to.judgement : NULL);
    }
    f8_witness_release(w, &from);
    f8_witness_release(w, &to);
    return status;
}

/* A scatter, judged some rows of its table at a time: a row depends on no other row. */
static f8_status look_at_scatter(f8_witness *w, uint32_t group, const f8_group *g, f8_diag *diag)
{
    enum { BYTES = 1 << 20, OPERANDS = 3 };
    const struct f8_witness_state *s = w->state;
    const f8_ref r = g->out[0];
    const f8_node *n = f8_at(s->g, r);
    const f8_type *t = &n->type;
    const int64_t row = f8_type_bytes(t) / t->dim[0], step = row < BYTES ? BYTES / row : 1;
    F8_TRY(see_all(w, g, diag));
    f8_witness_seen *seen = &s->seen[0];
    for (int64_t first = 0; first < t->dim[0]; first += step) {
        f8_type in[OPERANDS], part = *t;
        const void *operand[OPERANDS];
        part.dim[0] = t->dim[0] - first < step ? t->dim[0] - first : step;
        for (uint32_t k = 0; k < OPERANDS; k++) {
            in[k] = k ? *f8_type_of(s->g, n->in[k]) : part;
            operand[k] = (const char *)s->value[n->in[k]].data + (k ? 0 : first * row);
        }
        void *want = f8_witness_room(w, &part, diag);
        if (!want)
            return F8_ERR_MEMORY;
        const f8_part some = {.in = in, .out = &part, .first = first};
        const f8_status status =
            f8_reference_part(s->g, r, &some, operand, &want, &s->allocator, diag);
        int64_t at;
        s->value[r].nonfinite |= status == F8_OK && f8_witness_nonfinite(&part, want, &at) > 0;
        if (status == F8_OK)
            f8_witness_judge(seen, &part, first * f8_type_columns(t), want);
        f8_witness_free(w, &part, want);
        F8_TRY(status);
        f8_witness_unload(w);
    }
    report(w, group, r, r, t, seen->data, &seen->judgement);
    f8_witness_forget(w);
    return F8_OK;
}

/* Whether look_at_scatter can judge the group: the data of all operands are there. Those of a
 * constant that lies nowhere are not. */
static bool is_scatter(const f8_witness *w, const f8_group *g)
{
    const f8_node *n = f8_at(w->state->g, g->out[0]);
    bool is = g->kind == F8_GROUP_SCATTER && n->op == F8_OP_EMBEDDING_GRAD && g->n_out == 1;
    for (uint32_t k = 0; is && k < n->n_in; k++)
        is = w->state->value[n->in[k]].data != NULL;
    return is;
}

f8_status f8_witness_after(f8_witness *w, uint32_t group, f8_diag *diag)
{
    const f8_group *g = group_of(w, group);
    if (!g)
        return group > w->f->lowered->n_groups ? look_at_copy(w, group, diag) : F8_OK;
    if (is_bounded(g))
        return look_at_results(w, group, g, diag);
    const bool computes = judges(w, g);
    if (computes && f8_witness_has_rows(w, g))
        return look_at_rows(w, group, g, diag);
    if (computes && is_scatter(w, g))
        return look_at_scatter(w, group, g, diag);
    if (computes)
        F8_TRY(f8_witness_compute(w, g, 0, diag));
    for (uint32_t i = 0; i < g->n_out; i++)
        if (!f8_witness_is_overwritten(w->f, g, g->out[i]))
            F8_TRY(
                look(w, group, g->out[i], computes ? w->state->value[g->out[i]].data : NULL, diag));
    f8_witness_forget(w);
    return F8_OK;
}
