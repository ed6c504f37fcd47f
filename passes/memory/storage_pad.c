/* Rows aligned for GEMMs, and sizes of GEMMs padded: see storage.h.
 *
 * Some sizes are slow (target->gemm_multiple): a vocabulary of 50257 makes two GEMMs of a
 * training step six times slower than 50264 would, and a third 1.7 times. Padding costs no pass
 * over the data, for it is there already or nearly so: rows that GEMMs read or write are a multiple
 * of some bytes apart, and elements behind a row or behind the last row can be elements of the
 * GEMM.
 *
 *     n   the operand's padding makes columns in the padding of the result, which nobody reads
 *     m   the same with rows of the result
 *     k   the padding of both operands is zeros: the sum gets 0 * 0 more often
 *
 * The values themselves keep their types, so no pass, kernel or result sees other sizes. Whatever a
 * product reads there is zeros, and never what was in that memory before. Zeros behind rows are
 * stored by the row kernel that writes the rows (codegen/kernel/lower.c). Zeros behind the last row
 * are at most 7 rows, and a small copy kernel of their own (codegen/plan/copy.c). So only values
 * that row kernels write are padded as operands: roundings of weights, gradients of logits.
 *
 * Where a value could not have gaps only because a flat phase reads or writes it, that phase goes
 * by rows instead. Otherwise sizes, and so the library's algorithms and the bits, would depend on
 * what is fused.
 *
 * A size is padded only if it is the number of columns of an operand or of the result, for these
 * are the sizes that were measured; a number of rows in all three matrices decides no alignment.
 * m stays as it is where the result is a state, such as the gradient that chunks of the head add
 * to: the rows behind it belong to the next variable. */
#include "passes/memory/storage.h"

/* ---- which values can have gaps between their rows ---- */

/* Whether a phase is flat, but could go by the rows of t: all of its values have them. A flat phase
 * is made so where one of its values has gaps (codegen/kernel/lower.c). */
static bool could_go_by_rows(const f8_storage *s, const f8_phase *p, const f8_type *t)
{
    bool all = p->rows == 1 && p->cols == f8_type_elements(t);
    for (uint32_t k = 0; all && k < p->n_nodes; k++) {
        const f8_type *x = f8_type_of(s->g, p->node[k]);
        all = f8_type_elements(x) == 1 || f8_type_same_matrix(x, t);
    }
    return all;
}

/* Whether a row kernel reads base r row by row, as it is, wherever it reads it; `flat`: also if it
 * only could, as a phase by rows. */
static bool rows_read_gaps(const f8_storage *s, const f8_group *group, f8_ref r, bool flat)
{
    const f8_type *t = f8_type_of(s->g, r);
    for (uint32_t i = 0; i < group->n_phases; i++) {
        const f8_phase *p = &group->phase[i];
        if ((p->rows == f8_type_rows(t) && p->cols == f8_type_columns(t)) ||
            (flat && could_go_by_rows(s, p, t)))
            continue;
        for (uint32_t k = 0; k < p->n_nodes; k++) {
            const f8_node *n = f8_at(s->g, p->node[k]);
            for (uint32_t o = 0; o < n->n_in; o++)
                if (s->view[n->in[o]].base == r)
                    return false;
        }
    }
    return true;
}

/* Whether a group can read base r, under the view `seen`, with any gaps between its rows. */
static bool reads_gaps(const f8_storage *s, uint32_t index, f8_ref r, f8_ref seen, bool flat)
{
    if (index == F8_NO_GROUP || !f8_type_same_matrix(f8_type_of(s->g, seen), f8_type_of(s->g, r)) ||
        s->view[seen].offset != 0)
        return false;
    const f8_group *group = &s->lowered->group[index];
    if (group->kind == F8_GROUP_ROWS)
        return rows_read_gaps(s, group, r, flat);
    if (group->kind != F8_GROUP_GEMM)
        return false;
    const f8_gemm_operands o = f8_gemm_operands_of(f8_at(s->g, group->out[0]));
    /* arrays of scales have no gaps */
    const bool scales = o.a_scale && (s->view[o.a_scale].base == r || s->view[o.b_scale].base == r);
    return !scales && (!o.acc || s->view[o.acc].base != r);
}

/* Whether base r has an allocation of its own in the arena, which can grow. */
static bool has_own_memory(const f8_storage *s, f8_ref r)
{
    const f8_base *b = &s->base[r];
    return b->def != F8_NO_GROUP && b->root == r && !b->next && b->place.space == F8_SPACE_NONE;
}

/* Whether a flat phase writes base r, and could go by rows instead. */
static bool flat_writes_gaps(const f8_storage *s, f8_ref r)
{
    const f8_group *group = &s->lowered->group[s->base[r].def];
    for (uint32_t i = 0; group->kind == F8_GROUP_ROWS && i < group->n_phases; i++)
        for (uint32_t k = 0; k < group->phase[i].n_out; k++)
            if (group->phase[i].out[k] == r)
                return could_go_by_rows(s, &group->phase[i], f8_type_of(s->g, r));
    return false;
}

/* Whether all that write or read base r can take gaps between its rows. A GEMM that adds to its
 * result works in the place of what it adds to. `flat`: also if they only could. *gemm: whether a
 * GEMM is among them. */
static bool takes_gaps(const f8_storage *s, f8_ref r, bool flat, bool *gemm)
{
    const f8_base *b = &s->base[r];
    const f8_type *t = f8_type_of(s->g, r);
    if (f8_type_rows(t) == 1 || !has_own_memory(s, r) || b->stride != f8_type_columns(t) ||
        !(f8_storage_writes_gaps(s, r) || (flat && flat_writes_gaps(s, r))) ||
        f8_accumulator(s->g, r))
        return false;
    const f8_group *def = &s->lowered->group[b->def];
    *gemm = def->kind == F8_GROUP_GEMM;
    if (def->kind == F8_GROUP_ROWS && !rows_read_gaps(s, def, r, flat)) /* a later phase */
        return false;
    for (uint32_t i = 0; i < b->n_readers; i++) {
        if (!reads_gaps(s, b->reader[i].group, r, b->reader[i].ref, flat))
            return false;
        *gemm |= s->lowered->group[b->reader[i].group].kind == F8_GROUP_GEMM;
    }
    return true;
}

/* ---- sizes of GEMMs ---- */

static int32_t missing(const f8_storage *s, int64_t size)
{
    return (int32_t)(f8_aligned(size, s->target->gemm_multiple) - size);
}

/* A base and one of its axes. */
typedef struct side {
    f8_ref r; /* 0: cannot be padded */
    bool rows;
} side;

/* The axis of the operand that `ref` shows, if its padding can be zeros. */
static side operand_side(const f8_storage *s, f8_ref ref, bool rows)
{
    const f8_view *v = &s->view[ref];
    const f8_base *b = &s->base[v->base];
    bool gemm;
    if (b->def == F8_NO_GROUP || s->lowered->group[b->def].kind != F8_GROUP_ROWS ||
        v->offset != 0 || !f8_type_same_matrix(f8_type_of(s->g, ref), f8_type_of(s->g, v->base)) ||
        !(rows ? has_own_memory(s, v->base)
               : s->g->node[v->base].op != F8_OP_TRANSPOSE && takes_gaps(s, v->base, true, &gemm)))
        return (side){0};
    return (side){v->base, rows};
}

static side result_side(const f8_storage *s, f8_ref r, bool rows)
{
    bool gemm;
    if (s->view[r].base != r || f8_accumulator(s->g, r) ||
        !(rows ? has_own_memory(s, r) : takes_gaps(s, r, true, &gemm)))
        return (side){0};
    return (side){r, rows};
}

/* Pads both sides by what is missing, or neither. */
static void pad(f8_storage *s, side x, side y, int64_t size)
{
    const side of[] = {x, y};
    for (int i = 0; x.r && y.r && i < 2; i++)
        *(of[i].rows ? &s->base[of[i].r].pad.rows : &s->base[of[i].r].pad.cols) = missing(s, size);
}

static void pad_gemm(f8_storage *s, f8_ref r)
{
    const f8_node *n = f8_at(s->g, r);
    const f8_ref a = n->in[0], b = n->in[1];
    if (n->op != F8_OP_MATMUL || f8_type_of(s->g, a)->dtype != F8_BF16 ||
        f8_type_of(s->g, b)->dtype != F8_BF16)
        return;
    const bool trans_a = f8_attr_i(s->g, r, F8_A_TRANSPOSE_A) != 0;
    const bool trans_b = f8_attr_i(s->g, r, F8_A_TRANSPOSE_B) != 0;
    const f8_gemm_sizes size =
        f8_type_gemm(f8_type_of(s->g, a), trans_a, f8_type_of(s->g, b), trans_b);
    pad(s, operand_side(s, b, trans_b), result_side(s, r, false), size.n);
    if (trans_a)
        pad(s, operand_side(s, a, false), result_side(s, r, true), size.m);
    if (!trans_a || trans_b)
        pad(s, operand_side(s, a, trans_a), operand_side(s, b, !trans_b), size.k);
}

/* ---- recomputed products ---- */

/* Whether two GEMMs are the same product, but perhaps of other values. */
static bool same_product(const f8_graph *g, f8_ref x, f8_ref y)
{
    const f8_node *a = f8_at(g, x), *b = f8_at(g, y);
    if (a->op != b->op || a->n_in != b->n_in || !f8_type_equal(&a->type, &b->type))
        return false;
    for (uint32_t i = 0; i < a->n_in; i++)
        if (!f8_type_equal(f8_type_of(g, a->in[i]), f8_type_of(g, b->in[i])))
            return false;
    for (int i = 0; i < f8_op_facts(a->op)->n_attrs; i++)
        if (!f8_attr_equal(&a->attr[i], &b->attr[i]))
            return false;
    return true;
}

/* How many elements further apart the rows of base r are than they must be; 0 if padding them was
 * not decided here. */
static int64_t excess(const f8_storage *s, const bool *padded, f8_ref r)
{
    return padded[r] ? s->base[r].stride - f8_type_columns(f8_type_of(s->g, r)) : 0;
}

static bool unpad(f8_storage *s, const bool *padded, f8_ref r)
{
    if (padded[r]) {
        s->base[r].stride = f8_type_columns(f8_type_of(s->g, r));
        s->base[r].pad = (f8_pad){0};
    }
    return padded[r];
}

/* Remove the padding of x and of y if they differ in it. Whether any was removed. */
static bool level(f8_storage *s, const bool *padded, f8_ref x, f8_ref y)
{
    x = s->view[x].base;
    y = s->view[y].base;
    const f8_pad *p = &s->base[x].pad, *q = &s->base[y].pad;
    if (excess(s, padded, x) == excess(s, padded, y) && p->rows == q->rows && p->cols == q->cols &&
        p->zeros == q->zeros)
        return false;
    const bool removed = unpad(s, padded, x);
    return unpad(s, padded, y) || removed;
}

/* A GPU's library may choose another algorithm, with other bits, for rows that begin elsewhere. A
 * recomputed product must have its original's bits. So if their paddings differ, neither gets any.
 */
static void level_products(f8_storage *s, const bool *padded)
{
    const f8_lowered *p = s->lowered;
    bool any = true;
    while (any) {
        any = false;
        for (uint32_t i = 0; i < p->n_groups; i++) {
            const f8_ref x = p->group[i].out[0];
            if (p->group[i].kind != F8_GROUP_GEMM || !f8_is_recomputed(s->g, x))
                continue;
            for (uint32_t k = 0; k < p->n_groups; k++) {
                const f8_ref y = p->group[k].out[0];
                if (k == i || p->group[k].kind != F8_GROUP_GEMM || !same_product(s->g, x, y))
                    continue;
                any |= level(s, padded, x, y);
                for (uint32_t o = 0; o < s->g->node[x].n_in; o++)
                    any |= level(s, padded, s->g->node[x].in[o], s->g->node[y].in[o]);
            }
        }
    }
}

/* ---- all of it ---- */

/* The row stride of base r: padded if a GEMM reads or writes r and nothing is against it. */
static int64_t padded_stride(const f8_storage *s, f8_ref r)
{
    const f8_base *b = &s->base[r];
    const f8_type *t = f8_type_of(s->g, r);
    const int64_t by = s->target->row_bytes, size = (int64_t)f8_dtype_size(t->dtype);
    const int64_t bytes = f8_type_columns(t) * size, wide = f8_aligned(bytes, by);
    bool gemm;
    if (b->pad.cols)
        return f8_aligned(f8_type_columns(t) + b->pad.cols, by / size);
    return wide != bytes && wide % size == 0 && takes_gaps(s, r, false, &gemm) && gemm ? wide / size
                                                                                       : b->stride;
}

f8_status f8_storage_pad(f8_storage *s)
{
    if (s->target->row_bytes == 1)
        return F8_OK;
    int64_t *stride = F8_NEW_ARRAY(s->scratch, int64_t, s->g->n_nodes);
    bool *padded = F8_NEW_ARRAY(s->scratch, bool, s->g->n_nodes);
    bool any = false;
    F8_TRY(f8_arena_status(s->scratch, s->diag));
    for (uint32_t i = 0; s->target->gemm_multiple > 1 && i < s->lowered->n_groups; i++)
        if (s->lowered->group[i].kind == F8_GROUP_GEMM)
            pad_gemm(s, s->lowered->group[i].out[0]);
    for (f8_ref r = 1; r < s->g->n_nodes; r++)
        stride[r] = padded_stride(s, r);
    for (f8_ref r = 1; r < s->g->n_nodes; r++) {
        f8_base *b = &s->base[r];
        padded[r] = stride[r] != b->stride || b->pad.rows;
        any |= padded[r];
        b->pad.zeros =
            (b->pad.rows || b->pad.cols) && s->lowered->group[b->def].kind == F8_GROUP_ROWS;
        b->stride = stride[r];
    }
    if (any)
        level_products(s, padded);
    return F8_OK;
}
