/* Instructions and stages of a kernel description under construction. */
#include "codegen/kernel/build.h"

#include <string.h>

uint32_t f8_kb_fail(f8_kb *b, f8_ref at, const char *what)
{
    if (b->status != F8_OK)
        return 0;
    const char *op = at ? f8_op_facts(f8_at(b->graph, at)->op)->name : "";
    char type[160] = "";
    if (at)
        f8_type_print(f8_type_of(b->graph, at), type, sizeof type);
    b->status = f8_fail(b->diag, F8_ERR_INTERNAL, at ? b->graph->loc[at] : F8_NOWHERE,
                        "kernel '%s' (phase %u, %lld x %lld) of '%s': %s %s %%%u", b->group->name,
                        b->phase_index, (long long)b->phase->rows, (long long)b->phase->cols,
                        b->func->name, what, op, at);
    if (at && b->diag && b->diag->status == b->status && type[0]) {
        const size_t n = strlen(b->diag->text), m = strlen(type);
        if (n + m + 2 < sizeof b->diag->text) {
            b->diag->text[n] = ' ';
            memcpy(b->diag->text + n + 1, type, m + 1);
        }
    }
    return 0;
}

void f8_kb_out_of_memory(f8_kb *b)
{
    if (b->status == F8_OK)
        b->status = f8_arena_status(b->arena, b->diag);
}

/* ---- instructions ---- */

static bool same_instr(const f8_kinstr *x, const f8_kinstr *y)
{
    return x->op == y->op && x->sub == y->sub && x->a == y->a && x->b == y->b && x->c == y->c &&
           x->imm == y->imm && x->buffer == y->buffer && x->shift == y->shift &&
           x->group == y->group &&
           ((x->op != F8_K_BLOCKAMAX && x->op != F8_K_INDEX) || x->block == y->block);
}

/* The kind of the value, which follows from the operation. */
static uint8_t kind_of(const f8_kb *b, const f8_kinstr *i)
{
    switch ((f8_kop)i->op) {
    case F8_K_SCALAR: return f8_scalar_op(i->sub)->result;
    case F8_K_CALL: return f8_scalar_function(i->sub)->result_kind;
    case F8_K_INDEX: return F8_KIND_I;
    case F8_K_ROLL: return b->k->instr[i->a].kind;
    case F8_K_SUM:
    case F8_K_MAX:
    case F8_K_AMAX:
    case F8_K_BLOCKAMAX: return F8_KIND_F;
    case F8_K_LOAD:
        switch (b->k->buffer[i->buffer].dtype) {
        case F8_F32:
        case F8_BF16: return F8_KIND_F;
        case F8_BOOL: return F8_KIND_B;
        default: return F8_KIND_I;
        }
    default: return F8_KIND_N;
    }
}

/* Sets extent and stage from those of the operands and from the operation. */
static void place_instr(f8_kb *b, f8_kinstr *i)
{
    uint32_t operand[3];
    const int count = f8_kinstr_operands(i, operand);
    for (int o = 0; o < count; o++) {
        const f8_kinstr *x = &b->k->instr[operand[o]];
        i->ext |= x->ext;
        if (x->ext & F8_EXT_BLOCK && i->op != F8_K_BLOCKAMAX)
            i->block = x->block;
        if (f8_kinstr_known(x) > i->stage)
            i->stage = f8_kinstr_known(x);
    }
    if (i->op == F8_K_INDEX)
        i->ext = i->block ? F8_EXT_BLOCK : F8_EXT_COL;
    if (i->op == F8_K_ROLL)
        i->stage++;
    if (f8_kinstr_reduces(i))
        i->ext = F8_EXT_ROW;
    if (i->op == F8_K_BLOCKAMAX)
        i->ext = F8_EXT_ROW_BLOCK;
    if (i->buffer >= 0) {
        i->ext = b->k->buffer[i->buffer].ext;
        i->block = b->k->buffer[i->buffer].block;
    }
    /* one value for every column and block of rows, whatever the operand varies over */
    if (f8_kinstr_is_partial(i))
        i->ext = F8_EXT_FULL;
    if (i->ext & F8_EXT_COL) {
        i->ext &= F8_EXT_FULL;
        i->block = 0;
    }
}

uint32_t f8_kb_emit(f8_kb *b, f8_kinstr i)
{
    f8_kernel *k = b->k;
    if (b->status != F8_OK)
        return 0;
    if (i.op != F8_K_STORE && !f8_kinstr_is_partial(&i))
        for (uint32_t n = 0; n < k->n_instrs; n++)
            if (same_instr(&k->instr[n], &i))
                return n;
    f8_kinstr *grown = f8_arena_grow(b->arena, k->instr, k->n_instrs, &b->instr_room,
                                     k->n_instrs + 1, sizeof *grown);
    if (!grown) {
        f8_kb_out_of_memory(b);
        return 0;
    }
    k->instr = grown;
    i.kind = kind_of(b, &i);
    i.near = -1;
    place_instr(b, &i);
    k->instr[k->n_instrs] = i;
    return k->n_instrs++;
}

uint32_t f8_kb_op(f8_kb *b, f8_sop op, uint32_t x, uint32_t y, uint32_t z)
{
    const int n = f8_scalar_op(op)->n_args;
    return f8_kb_emit(b, (f8_kinstr){.op = F8_K_SCALAR,
                                     .sub = (uint8_t)op,
                                     .buffer = -1,
                                     .a = n > 0 ? x : 0,
                                     .b = n > 1 ? y : 0,
                                     .c = n > 2 ? z : 0});
}

uint32_t f8_kb_call(f8_kb *b, f8_sfn fn, uint32_t x)
{
    return f8_kb_emit(b, (f8_kinstr){.op = F8_K_CALL, .sub = (uint8_t)fn, .buffer = -1, .a = x});
}

uint32_t f8_kb_f32(f8_kb *b, float v)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    return f8_kb_emit(
        b, (f8_kinstr){.op = F8_K_SCALAR, .sub = F8_S_CONST_F, .buffer = -1, .imm = bits});
}

uint32_t f8_kb_i32(f8_kb *b, uint32_t v)
{
    return f8_kb_emit(b,
                      (f8_kinstr){.op = F8_K_SCALAR, .sub = F8_S_CONST_I, .buffer = -1, .imm = v});
}

/* ---- stages ---- */

static bool overlaps(const f8_kb *b, int32_t x, int32_t y)
{
    const f8_place *p = &b->bound->place[x], *q = &b->bound->place[y];
    if (p->space != q->space || p->port != q->port)
        return false;
    return p->offset < q->offset + f8_kernel_span(f8_type_of(b->graph, b->bound->value[y]), q) &&
           q->offset < p->offset + f8_kernel_span(f8_type_of(b->graph, b->bound->value[x]), p);
}

bool f8_kb_same_place(const f8_place *x, const f8_place *y)
{
    return x->space == y->space && x->port == y->port && x->offset == y->offset &&
           x->stride == y->stride;
}

/* Moves a store to the last stage that visits columns, if a load of this kernel may read the same
 * memory in a later stage. A rolled load reads other columns than the store writes, so in place is
 * refused there. */
static void delay_stores(f8_kb *b)
{
    f8_kernel *k = b->k;
    int32_t last = 0;
    for (uint32_t n = 0; n < k->n_instrs; n++)
        if (f8_kinstr_is_root(&k->instr[n]) && k->instr[n].stage > last)
            last = k->instr[n].stage;
    for (uint32_t n = 0; n < k->n_instrs; n++) {
        f8_kinstr *s = &k->instr[n];
        if (s->op != F8_K_STORE || !(s->ext & F8_EXT_COL))
            continue;
        for (uint32_t i = 0; i < k->n_instrs; i++) {
            const f8_kinstr *l = &k->instr[i];
            if (l->op != F8_K_LOAD || !overlaps(b, s->buffer, l->buffer))
                continue;
            s->stage = last;
            if (k->buffer[s->buffer].transposed)
                f8_kb_fail(b, b->bound->value[s->buffer],
                           "a transposed store would overwrite what the kernel reads:");
            if (l->group &&
                f8_kb_same_place(&b->bound->place[s->buffer], &b->bound->place[l->buffer]))
                f8_kb_fail(b, b->bound->value[s->buffer],
                           "a store would overwrite what a rolled load reads:");
        }
    }
}

enum { CHEAP = 8, CHEAP_LOADS = 2 };

typedef struct price {
    int ops, loads;
} price;

static int own_cost(const f8_kinstr *i)
{
    switch ((f8_kop)i->op) {
    case F8_K_LOAD: return i->group ? 4 : 1;
    case F8_K_CALL: return f8_scalar_function(i->sub)->n_instrs;
    case F8_K_SCALAR:
        switch ((f8_sop)i->sub) {
        case F8_S_CONST_F:
        case F8_S_CONST_I: return 0;
        case F8_S_FDIV:
        case F8_S_FSQRT: return 8;
        case F8_S_FMAX:
        case F8_S_FMIN: return 4;
        default: return 1;
        }
    default: return 1;
    }
}

/* The price of recomputing the value in a later stage. Shared operands count each time. */
static price price_of(const f8_kernel *k, const price *known, uint32_t n)
{
    const f8_kinstr *i = &k->instr[n];
    price p = {0, 0};
    if (!(i->ext & F8_EXT_COL))
        return p; /* in a register already */
    p.ops = own_cost(i);
    p.loads = i->op == F8_K_LOAD;
    uint32_t operand[3];
    const int count = f8_kinstr_operands(i, operand);
    for (int o = 0; o < count; o++) {
        p.ops += known[operand[o]].ops;
        p.loads += known[operand[o]].loads;
    }
    if (p.ops > 1000)
        p.ops = 1000;
    if (p.loads > 1000)
        p.loads = 1000;
    return p;
}

/* Moves each value to the first stage that needs it; until here it had the first stage that could
 * compute it. */
static void sink(f8_kernel *k, bool *needed, bool *sunk)
{
    for (uint32_t stage = 0; stage < k->n_stages; stage++) {
        f8_kernel_needed(k, stage, needed);
        for (uint32_t n = 0; n < k->n_instrs; n++)
            if (needed[n] && !sunk[n]) {
                sunk[n] = true;
                if (!f8_kinstr_is_root(&k->instr[n]))
                    k->instr[n].stage = (int32_t)stage;
            }
    }
}

/* Gives a slot to each costly value of an earlier stage that a later stage needs. The operands of a
 * cheap value are visited instead. */
static void choose_near(f8_kb *b)
{
    f8_kernel *k = b->k;
    price *cost = F8_NEW_ARRAY(b->arena, price, k->n_instrs + 1);
    bool *needed = F8_NEW_ARRAY(b->arena, bool, k->n_instrs + 1);
    bool *sunk = F8_NEW_ARRAY(b->arena, bool, k->n_instrs + 1);
    if (!cost || !needed || !sunk) {
        f8_kb_out_of_memory(b);
        return;
    }
    for (uint32_t n = 0; n < k->n_instrs; n++) {
        cost[n] = price_of(k, cost, n);
        if (k->instr[n].op == F8_K_ROLL && k->instr[k->instr[n].a].near < 0)
            k->instr[k->instr[n].a].near = (int32_t)k->n_near++;
    }
    sink(k, needed, sunk);
    if (b->cols > b->target->near_columns)
        return;
    /* from the last stage on: a value that is kept becomes a root of its own, earlier stage */
    for (int32_t stage = (int32_t)k->n_stages - 1; stage > 0; stage--)
        for (bool more = true; more;) {
            more = false;
            f8_kernel_needed(k, (uint32_t)stage, needed);
            for (uint32_t n = k->n_instrs; n-- > 0 && !more;) {
                f8_kinstr *i = &k->instr[n];
                if (!needed[n] || f8_kinstr_known(i) >= stage || i->near >= 0 ||
                    f8_kinstr_is_root(i) || i->kind == F8_KIND_B ||
                    (cost[n].ops <= CHEAP && cost[n].loads <= CHEAP_LOADS))
                    continue;
                if (k->n_near >= b->target->near_values)
                    return;
                i->near = (int32_t)k->n_near++;
                more = true;
            }
        }
}

void f8_kb_finish(f8_kb *b)
{
    f8_kernel *k = b->k;
    if (b->status != F8_OK)
        return;
    f8_kernel_order_exp_sums(k);
    k->n_stages = 1;
    for (uint32_t n = 0; n < k->n_instrs; n++) {
        if ((uint32_t)f8_kinstr_known(&k->instr[n]) >= k->n_stages)
            k->n_stages = (uint32_t)f8_kinstr_known(&k->instr[n]) + 1;
        k->n_partials += f8_kinstr_is_partial(&k->instr[n]);
    }
    delay_stores(b);
    choose_near(b);
}
