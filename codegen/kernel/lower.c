/* Turns the nodes of one phase into a kernel description. Each node becomes a few instructions, and
 * each value that the phase does not compute becomes a load. */
#include "codegen/kernel/build.h"

#include <string.h>

static uint32_t value(f8_kb *b, f8_ref ref, const f8_type *reader);
static uint32_t lower_node(f8_kb *b, f8_ref ref);

/* ---- what is known about values ---- */

static bool in_phase(const f8_kb *b, f8_ref ref)
{
    return f8_listed_ascending(b->phase->node, b->phase->n_nodes, ref);
}

static bool is_view(f8_op op)
{
    return op == F8_OP_RESHAPE || op == F8_OP_BROADCAST;
}

/* Whether this phase computes, row for row, what the view `ref` shows. A reshape to other rows and
 * columns shows it elsewhere. */
static bool shows_computed(const f8_kb *b, f8_ref ref)
{
    while (is_view(f8_at(b->graph, ref)->op) && !in_phase(b, ref)) {
        const f8_node *n = f8_at(b->graph, ref);
        const f8_type *from = f8_type_of(b->graph, n->in[0]);
        if (n->op == F8_OP_RESHAPE && (f8_type_rows(from) != f8_type_rows(&n->type) ||
                                       f8_type_columns(from) != f8_type_columns(&n->type)))
            return false;
        ref = n->in[0];
    }
    return in_phase(b, ref);
}

/* The value behind a chain of views, as far as the views have no memory of their own or show what
 * this phase computes. */
static f8_ref source_of(const f8_kb *b, f8_ref ref)
{
    while (is_view(f8_at(b->graph, ref)->op) && !in_phase(b, ref)) {
        if (b->lowered->place[ref].space != F8_SPACE_NONE && !shows_computed(b, ref))
            return ref;
        ref = f8_at(b->graph, ref)->in[0];
    }
    return ref;
}

static void remember(f8_kb *b, f8_ref ref, uint32_t instr)
{
    f8_kb_entry *grown = f8_arena_grow(b->arena, b->entry, b->n_entries, &b->entry_room,
                                       b->n_entries + 1, sizeof *grown);
    if (!grown) {
        if (b->status == F8_OK)
            b->status = f8_arena_status(b->arena, b->diag);
        return;
    }
    b->entry = grown;
    b->entry[b->n_entries++] = (f8_kb_entry){ref, instr};
}

/* Whether ref is made of constants alone. All chunks of a head share such a node, which comes
 * before all others of every chunk but the first. So it is lowered where it is first read: then the
 * chunks have one description. */
static bool is_of_constants(const f8_kb *b, f8_ref ref)
{
    const f8_node *n = f8_at(b->graph, ref);
    bool all = f8_op_facts(n->op)->cls == F8_POINTWISE;
    for (uint32_t i = 0; i < n->n_in; i++) {
        const f8_op op = f8_at(b->graph, n->in[i])->op;
        all &= op == F8_OP_CONST || op == F8_OP_IOTA;
    }
    return all;
}

static uint32_t computed(f8_kb *b, f8_ref ref)
{
    for (uint32_t i = b->n_entries; i-- > 0;)
        if (b->entry[i].ref == ref)
            return b->entry[i].instr;
    if (in_phase(b, ref) && is_of_constants(b, ref)) {
        const uint32_t v = lower_node(b, ref);
        remember(b, ref, v);
        return v;
    }
    return f8_kb_fail(b, ref, "a value is used before it is computed:");
}

/* ---- operands ---- */

static uint32_t constant(f8_kb *b, f8_ref ref)
{
    const double v = f8_attr_f(b->graph, ref, F8_A_VALUE);
    switch (f8_type_of(b->graph, ref)->dtype) {
    case F8_F32: return f8_kb_f32(b, (float)v);
    case F8_BF16: return f8_kb_f32(b, f8_scalar_f32(F8_FN_ROUND_BF16, (float)v));
    case F8_I32: return f8_kb_i32(b, (uint32_t)(int32_t)v);
    case F8_BOOL: return f8_kb_op(b, F8_S_IEQ, f8_kb_i32(b, v != 0), f8_kb_i32(b, 1), 0);
    default: return f8_kb_fail(b, ref, "kernels have no constant of this dtype:");
    }
}

static uint32_t load(f8_kb *b, f8_ref ref, const f8_type *reader, int64_t shift, int64_t group)
{
    const int32_t buffer = f8_kb_buffer(b, ref, reader, false);
    if (b->status != F8_OK)
        return 0;
    f8_kinstr i = {.op = F8_K_LOAD, .buffer = buffer};
    if (b->k->buffer[buffer].ext & F8_EXT_COL) {
        i.shift = shift;
        i.group = group;
    }
    return f8_kb_emit(b, i);
}

/* The instruction that holds operand `ref` of a node of type `reader`. */
static uint32_t value(f8_kb *b, f8_ref ref, const f8_type *reader)
{
    const f8_ref from = source_of(b, ref);
    if (in_phase(b, from) && !b->k->flat && !shows_computed(b, ref))
        return f8_kb_fail(b, ref, "a view shows other rows and columns of a value of this phase:");
    if (in_phase(b, from))
        return computed(b, from);
    switch (f8_at(b->graph, from)->op) {
    case F8_OP_CONST: return constant(b, from);
    case F8_OP_IOTA:
        return f8_type_columns(f8_type_of(b->graph, from)) == 1
                   ? f8_kb_i32(b, 0)
                   : f8_kb_emit(b,
                                (f8_kinstr){.op = F8_K_INDEX,
                                            .buffer = -1,
                                            .block = f8_kb_block_of(b, f8_type_columns(reader))});
    default: return load(b, from, reader, 0, 0);
    }
}

/* The same operand as an F: f16, FP8 and E8M0 values are decoded. */
static uint32_t value_f(f8_kb *b, f8_ref ref, const f8_type *reader)
{
    const f8_dtype t = f8_type_of(b->graph, ref)->dtype;
    const uint32_t v = value(b, ref, reader);
    return t == F8_F32 || t == F8_BF16 ? v : f8_kb_call(b, f8_scalar_decode_fn(t), v);
}

/* Rounds an F to dtype `to`, in the form in which instructions hold values of that dtype. */
static uint32_t rounded(f8_kb *b, uint32_t v, f8_dtype to, bool saturate)
{
    if (to == F8_F32)
        return v;
    return f8_kb_call(b, to == F8_BF16 ? F8_FN_ROUND_BF16 : f8_scalar_encode_fn(to, saturate), v);
}

/* ---- nodes ---- */

static uint32_t not_(f8_kb *b, uint32_t v)
{
    return f8_kb_op(b, F8_S_BNOT, v, 0, 0);
}

static uint32_t lower_cast(f8_kb *b, const f8_node *n, f8_ref in)
{
    const f8_dtype from = f8_type_of(b->graph, in)->dtype, to = n->type.dtype;
    uint32_t v;
    if (from == to)
        return value(b, in, &n->type);
    if ((from == F8_I64 && to == F8_I32) || (from == F8_I32 && to == F8_I64))
        return value(b, in, &n->type); /* a load or a store converts */
    switch (from) {
    case F8_I32:
        v = value(b, in, &n->type);
        if (to == F8_BOOL)
            return not_(b, f8_kb_op(b, F8_S_IEQ, v, f8_kb_i32(b, 0), 0));
        v = f8_kb_op(b, F8_S_I2F, v, 0, 0);
        break;
    case F8_BOOL:
        v = value(b, in, &n->type);
        if (to == F8_I32)
            return f8_kb_op(b, F8_S_SEL_I, v, f8_kb_i32(b, 1), f8_kb_i32(b, 0));
        v = f8_kb_op(b, F8_S_SEL_F, v, f8_kb_f32(b, 1), f8_kb_f32(b, 0));
        break;
    default: v = value_f(b, in, &n->type); break;
    }
    if (to == F8_BOOL)
        return not_(b, f8_kb_op(b, F8_S_FEQ, v, f8_kb_f32(b, 0), 0));
    if (to == F8_I32)
        return f8_kb_op(b, F8_S_F2I, v, 0, 0);
    return rounded(b, v, to, false);
}

/* Emits a form of ops.def as its instructions, and a scalar function as a CALL. The last operand
 * decides the kind: SELECT selects among values of that kind, and the operands of other ops all
 * have one kind. */
static uint32_t lower_pointwise(f8_kb *b, const f8_node *n)
{
    const f8_dtype t = f8_type_of(b->graph, n->in[n->n_in - 1])->dtype;
    const f8_skind kind = t == F8_F32 || t == F8_BF16 ? F8_KIND_F
                          : t == F8_BOOL              ? F8_KIND_B
                                                      : F8_KIND_I;
    const f8_sform form = f8_op_facts(n->op)->form[kind];
    const f8_scalar_body *p = f8_scalar_form(form);
    uint32_t v[F8_SCALAR_MAX_VALUES] = {0};
    for (uint32_t i = 0; i < n->n_in; i++)
        v[i] = value(b, n->in[i], &n->type);
    if (form >= F8_FORM_FUNCTIONS)
        return f8_kb_call(b, (f8_sfn)(form - F8_FORM_FUNCTIONS), v[0]);
    for (uint32_t i = 0; i < p->n_instrs; i++) {
        const f8_sinstr *s = &p->instrs[i];
        v[p->n_args + i] = s->op == F8_S_CONST_I ? f8_kb_i32(b, s->imm.u)
                           : s->op == F8_S_CONST_F
                               ? f8_kb_f32(b, s->imm.f)
                               : f8_kb_op(b, s->op, v[s->arg[0]], v[s->arg[1]], v[s->arg[2]]);
    }
    return v[p->result];
}

/* Whether an earlier phase or group has stored this value, so that it can be loaded. */
static bool stored_before(const f8_kb *b, f8_ref ref)
{
    for (uint32_t p = 0; p < b->phase_index; p++)
        if (f8_listed(b->group->phase[p].out, b->group->phase[p].n_out, ref))
            return true;
    return f8_listed(b->group->in, b->group->n_in, ref);
}

static uint32_t lower_roll(f8_kb *b, const f8_node *n, f8_ref self)
{
    const int64_t cols = f8_type_columns(&n->type);
    int64_t group = f8_attr_i(b->graph, self, F8_A_GROUP);
    int64_t shift = f8_attr_i(b->graph, self, F8_A_SHIFT);
    if (group <= 0)
        group = cols;
    if (b->cols % group)
        return f8_kb_fail(b, self, "the columns of the phase are no multiple of the group:");
    shift = ((shift % group) + group) % group;
    const f8_ref x = source_of(b, n->in[0]);
    if (!in_phase(b, x) || stored_before(b, x))
        return load(b, x, &n->type, shift, group);
    const f8_node *inner = f8_at(b->graph, x);
    const f8_ref stored = inner->op == F8_OP_CAST ? source_of(b, inner->in[0]) : 0;
    if (stored && !in_phase(b, stored) && inner->type.dtype == F8_F32 &&
        f8_type_of(b->graph, stored)->dtype == F8_BF16)
        /* loads what is stored with the roll, and widens it */
        return load(b, stored, &n->type, shift, group);
    const uint32_t v = computed(b, x);
    if (b->status != F8_OK || !(b->k->instr[v].ext & F8_EXT_COL))
        return v;
    if (b->k->instr[v].kind == F8_KIND_B)
        return f8_kb_fail(b, self, "truth values cannot be rolled:");
    return f8_kb_emit(
        b, (f8_kinstr){.op = F8_K_ROLL, .a = v, .buffer = -1, .shift = shift, .group = group});
}

/* The rows of a block that a reduction of columns adds up. Without the attribute the block has all
 * rows, and no kernel has it if they are many. */
static int64_t block_of(const f8_kb *b, f8_ref ref)
{
    const int64_t block = f8_attr_i(b->graph, ref, F8_A_BLOCK);
    return block > 0 ? block : b->rows <= F8_COLSUM_BLOCK ? F8_COLSUM_BLOCK : b->rows;
}

static uint32_t lower_reduce(f8_kb *b, const f8_node *n, f8_ref self)
{
    const f8_type *from = f8_type_of(b->graph, n->in[0]);
    int64_t axis = f8_attr_i(b->graph, self, F8_A_AXIS);
    if (axis < 0)
        axis += from->rank;
    const uint32_t x = value_f(b, n->in[0], from);
    if (b->status != F8_OK)
        return 0;
    if (axis == from->rank - 1) {
        const int64_t block = f8_attr_i(b->graph, self, F8_A_BLOCK);
        if (b->cols == 1) /* a row of one element is its own reduction */
            return n->op == F8_OP_REDUCE_AMAX ? f8_kb_op(b, F8_S_FABS, x, 0, 0) : x;
        if (block && block < b->cols)
            return f8_kb_emit(
                b,
                (f8_kinstr){.op = F8_K_BLOCKAMAX, .a = x, .buffer = -1, .block = (int32_t)block});
        const f8_kop op = n->op == F8_OP_REDUCE_SUM   ? F8_K_SUM
                          : n->op == F8_OP_REDUCE_MAX ? F8_K_MAX
                                                      : F8_K_AMAX;
        return f8_kb_emit(b, (f8_kinstr){.op = (uint8_t)op, .a = x, .buffer = -1});
    }
    const int64_t block = block_of(b, self), blocks = (b->rows + block - 1) / block;
    const bool sum = n->op == F8_OP_REDUCE_SUM;
    const f8_place *place = &b->lowered->place[self];
    if (n->op == F8_OP_REDUCE_MAX || f8_type_elements(&n->type) != blocks * b->cols ||
        block > F8_COLSUM_BLOCK || (sum ? block != F8_COLSUM_BLOCK : (block & (block - 1)) != 0) ||
        place->space == F8_SPACE_NONE || b->k->flat)
        return f8_kb_fail(b, self, "no kernel reduces columns in such blocks:");
    return x; /* store() emits the COLSUM or COLAMAX */
}

/* The instruction that reduces columns for node `ref`, or STORE if it reduces none. */
static f8_kop column_reduction(const f8_kb *b, f8_ref ref)
{
    const f8_node *n = f8_at(b->graph, ref);
    if (n->op != F8_OP_REDUCE_SUM && n->op != F8_OP_REDUCE_AMAX)
        return F8_K_STORE;
    const int64_t axis = f8_attr_i(b->graph, ref, F8_A_AXIS);
    const int rank = f8_type_of(b->graph, n->in[0])->rank;
    if (axis == -1 || axis == rank - 1)
        return F8_K_STORE;
    return n->op == F8_OP_REDUCE_SUM ? F8_K_COLSUM : F8_K_COLAMAX;
}

/* The scale that QUANTIZE or DEQUANTIZE `self` multiplies by. */
static uint32_t scale_of(f8_kb *b, const f8_node *n, f8_ref self)
{
    f8_granularity grain;
    const f8_type *t = f8_type_of(b->graph, n->in[1]);
    if (!f8_granularity_parse(f8_attr_s(b->graph, self, F8_A_GRANULARITY), &grain))
        return value_f(b, n->in[1], &n->type);
    if (grain.rows == 1)
        return value_f(b, n->in[1], t);
    const f8_ref from = source_of(b, n->in[1]);
    if (f8_at(b->graph, from)->op == F8_OP_CONST)
        return constant(b, from);
    const int32_t buffer = f8_kb_scales(b, n->in[1], grain);
    const uint32_t s = f8_kb_emit(b, (f8_kinstr){.op = F8_K_LOAD, .buffer = buffer});
    return t->dtype == F8_F32 ? s : f8_kb_call(b, f8_scalar_decode_fn(t->dtype), s);
}

static uint32_t lower_node(f8_kb *b, f8_ref ref)
{
    const f8_node *n = f8_at(b->graph, ref);
    const f8_type *t = &n->type;
    switch (n->op) {
    case F8_OP_CAST: return lower_cast(b, n, n->in[0]);
    case F8_OP_QUANTIZE: {
        const uint32_t x = value_f(b, n->in[0], t), s = scale_of(b, n, ref);
        return rounded(b, f8_kb_op(b, F8_S_FMUL, x, s, 0), t->dtype,
                       f8_attr_i(b->graph, ref, F8_A_SATURATE) != 0);
    }
    case F8_OP_DEQUANTIZE: {
        const uint32_t x = value_f(b, n->in[0], t), s = scale_of(b, n, ref);
        return f8_kb_op(b, F8_S_FMUL, x, s, 0);
    }
    case F8_OP_REDUCE_SUM:
    case F8_OP_REDUCE_MAX:
    case F8_OP_REDUCE_AMAX: return lower_reduce(b, n, ref);
    case F8_OP_ROLL: return lower_roll(b, n, ref);
    case F8_OP_RESHAPE:
    case F8_OP_BROADCAST:
    case F8_OP_TRANSPOSE: return value(b, n->in[0], t); /* TRANSPOSE: only its store differs */
    case F8_OP_EMBEDDING: {
        const int32_t rows = f8_kb_gather(b, n->in[0], n->in[1]);
        return f8_kb_emit(b, (f8_kinstr){.op = F8_K_LOAD, .buffer = rows});
    }
    default:
        return f8_op_facts(n->op)->cls == F8_POINTWISE
                   ? lower_pointwise(b, n)
                   : f8_kb_fail(b, ref, "no kernel computes this op:");
    }
}

/* ---- the phase ---- */

/* Whether this phase writes `ref`. A phase lists the values that it writes. If the list is empty,
 * the first phase of the group that computes a result of the group writes it. */
static bool writes(const f8_kb *b, f8_ref ref)
{
    if (b->phase->n_out > 0)
        return f8_listed(b->phase->out, b->phase->n_out, ref);
    if (!f8_listed(b->group->out, b->group->n_out, ref))
        return false;
    for (uint32_t p = 0; p < b->phase_index; p++)
        if (f8_listed(b->group->phase[p].node, b->group->phase[p].n_nodes, ref))
            return false;
    return true;
}

/* Stores the zeros behind each row of `ref`: values of the row, in as few elements as their
 * alignment allows. */
static void store_zeros(f8_kb *b, f8_ref ref)
{
    const f8_pad *pad = b->lowered->pad ? &b->lowered->pad[ref] : NULL;
    const f8_type *t = f8_type_of(b->graph, ref);
    if (!pad || !pad->cols || !pad->zeros)
        return;
    if (b->k->flat || f8_type_rows(t) != b->rows || f8_type_columns(t) != b->cols) {
        f8_kb_fail(b, ref, "no zeros can be stored behind these rows:");
        return;
    }
    const int64_t size = (int64_t)f8_dtype_size(t->dtype);
    const int64_t end = (b->cols + pad->cols) * size;
    for (int64_t at = b->cols * size; at < end;) {
        const f8_dtype element = at % 4 || end - at < 4 ? t->dtype : F8_F32;
        const int32_t buffer = f8_kb_behind(b, ref, element, at);
        const uint32_t zero =
            f8_kb_f32(b, 0); /* bf16 and f32; no GEMM of other operands is padded */
        f8_kb_emit(b, (f8_kinstr){.op = F8_K_STORE, .a = zero, .buffer = buffer});
        at += (int64_t)f8_dtype_size(element);
    }
}

static void store(f8_kb *b, f8_ref ref)
{
    uint32_t v = computed(b, ref);
    if (b->status != F8_OK)
        return;
    const f8_kop op = column_reduction(b, ref);
    const uint32_t block = op == F8_K_STORE ? 0 : (uint32_t)block_of(b, ref);
    f8_kbuffer out = {.dtype = F8_F32,
                      .ext = F8_EXT_FULL,
                      .write = true,
                      .stride = -1,
                      .map = -1,
                      .ids = -1,
                      .limit = -1};
    int32_t buffer;
    if (block) {
        buffer = f8_kb_partials(b, ref, &out);
    } else if (f8_at(b->graph, ref)->op == F8_OP_TRANSPOSE) {
        buffer = f8_kb_transposed(b, ref);
    } else {
        buffer = f8_kb_buffer(b, ref, NULL, true);
        /* a value of one element may be held once for each row; row 0 stores it */
        const int extra =
            b->status == F8_OK ? b->k->instr[v].ext & ~b->k->buffer[buffer].ext & ~F8_EXT_ROW : 0;
        if (extra)
            f8_kb_fail(b, ref, "the place to store is smaller than the value:");
    }
    f8_kb_emit(b, (f8_kinstr){.op = (uint8_t)op, .a = v, .buffer = buffer, .imm = block});
    store_zeros(b, ref);
}

/* Whether a flat kernel, one loop over all elements, can hold this value: it is whole and
 * contiguous, or has one element. */
static bool flat_value(const f8_kb *b, f8_ref ref, int64_t all)
{
    const f8_ref from = source_of(b, ref);
    const f8_type *t = f8_type_of(b->graph, from);
    const f8_op op = f8_at(b->graph, from)->op;
    if (f8_type_elements(t) == 1)
        return true;
    if (op == F8_OP_IOTA || f8_type_elements(t) != all ||
        f8_type_elements(f8_type_of(b->graph, ref)) != all)
        return false;
    const f8_place *p = &b->lowered->place[from];
    return p->space == F8_SPACE_NONE || f8_type_rows(t) == 1 || p->stride == f8_type_columns(t);
}

static bool is_flat(const f8_kb *b)
{
    const int64_t all = b->rows * b->cols;
    if (all <= 1)
        return false;
    for (uint32_t i = 0; i < b->phase->n_nodes; i++) {
        const f8_ref ref = b->phase->node[i];
        const f8_node *n = f8_at(b->graph, ref);
        const f8_class cls = f8_op_facts(n->op)->cls;
        if (cls != F8_POINTWISE && n->op != F8_OP_QUANTIZE && !is_view(n->op))
            return false;
        if (!flat_value(b, ref, all))
            return false;
        for (uint32_t o = 0; o < n->n_in; o++)
            if (!flat_value(b, n->in[o], all))
                return false;
    }
    return true;
}

/* Chooses rows and columns. A flat phase whose values are strided, or which needs column numbers,
 * gets the rows and columns of its values. */
static void choose_domain(f8_kb *b)
{
    b->rows = b->phase->rows;
    b->cols = b->phase->cols;
    b->k->flat = is_flat(b);
    if (b->k->flat) {
        b->cols *= b->rows;
        b->rows = 1;
        return;
    }
    if (b->rows == 1 && b->cols > 1) {
        const int64_t all = b->cols;
        for (uint32_t i = 0; i < b->phase->n_nodes; i++) {
            const f8_type *t = f8_type_of(b->graph, b->phase->node[i]);
            const bool turned = f8_at(b->graph, b->phase->node[i])->op == F8_OP_TRANSPOSE;
            if (f8_type_elements(t) == all && f8_type_rows(t) > 1 && !turned) {
                b->rows = f8_type_rows(t);
                b->cols = f8_type_columns(t);
                return;
            }
        }
    }
}

f8_status f8_kernel_describe(const f8_func *f, const f8_group *g, uint32_t phase,
                             const f8_target *target, f8_arena *arena, f8_kernel **out,
                             f8_binding *bound, f8_diag *d)
{
    f8_kernel *k = F8_NEW(arena, f8_kernel);
    if (!k)
        return f8_arena_status(arena, d);
    *bound = (f8_binding){0};
    f8_kb b = {.func = f,
               .graph = f->graph,
               .lowered = f->lowered,
               .group = g,
               .phase = &g->phase[phase],
               .target = target ? target : f8_target_by_name("cpu"),
               .phase_index = phase,
               .arena = arena,
               .diag = d,
               .k = k,
               .bound = bound};
    choose_domain(&b);
    f8_kb_begin(&b);
    for (uint32_t i = 0; i < b.phase->n_nodes && b.status == F8_OK; i++)
        if (!is_of_constants(&b, b.phase->node[i]))
            remember(&b, b.phase->node[i], lower_node(&b, b.phase->node[i]));
    for (uint32_t i = 0; i < b.phase->n_nodes && b.status == F8_OK; i++)
        if (writes(&b, b.phase->node[i]))
            store(&b, b.phase->node[i]);
    k->cols = k->flat ? 0 : b.cols;
    f8_kb_finish(&b);
    if (b.status != F8_OK)
        return b.status;
    *out = k;
    return F8_OK;
}

f8_status f8_kernel_lower(const f8_func *f, const f8_group *g, uint32_t phase,
                          const f8_target *target, f8_arena *arena, f8_kernel **out,
                          f8_binding *bound, f8_diag *d)
{
    F8_TRY(f8_kernel_describe(f, g, phase, target, arena, out, bound, d));
    return f8_kernel_print(*out, arena, d);
}
