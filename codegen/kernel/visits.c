/* Which columns and which rows the stages of a kernel have to visit. What is found here changes no
 * value.
 *
 * A sum over c of (c == id ? x[c] : 0) is x[id] + 0, so no stage visits a column for its sake. The
 * sum of exp(x - max x) of a wide row is, as the cross-entropy has it (passes/unit/formulas.c),
 *
 *     top = max x;  first = max (column < F ? x : -inf);  near = top - first < C
 *     near ? sum exp(x - first) * exp(first - top) : sum exp(x - top)
 *
 * so one stage visits F columns, and another one is for the few rows that are not near. */
#include "codegen/kernel/kernel.h"

static bool is_scalar(const f8_kinstr *i, f8_sop op)
{
    return i->op == F8_K_SCALAR && i->sub == op;
}

/* ---- picked elements ---- */

/* Whether something is stored to columns up to this stage: perhaps to where the row is. */
static bool has_stored(const f8_kernel *k, int32_t stage)
{
    for (uint32_t n = 0; n < k->n_instrs; n++)
        if (k->instr[n].op == F8_K_STORE && k->instr[n].stage <= stage &&
            (k->instr[n].ext & (F8_EXT_COL | F8_EXT_BLOCK)))
            return true;
    return false;
}

/* All that is added but x[id] is +0, which changes nothing but the sign of a zero. */
bool f8_kernel_picked(const f8_kernel *k, uint32_t n, uint32_t *x, uint32_t *id)
{
    const f8_kinstr *all = k->instr;
    if (all[n].op != F8_K_SUM || k->cols < 2)
        return false;
    const f8_kinstr *sel = &all[all[n].a];
    if (!is_scalar(sel, F8_S_SEL_F))
        return false;
    const f8_kinstr *same = &all[sel->a], *from = &all[sel->b], *zero = &all[sel->c];
    if (!is_scalar(same, F8_S_IEQ) || !is_scalar(zero, F8_S_CONST_F) || zero->imm)
        return false;
    const bool left = all[same->a].op == F8_K_INDEX;
    *x = sel->b;
    *id = left ? same->b : same->a;
    if (all[left ? same->a : same->b].op != F8_K_INDEX || all[*id].op != F8_K_LOAD ||
        all[*id].ext != F8_EXT_ROW || from->op != F8_K_LOAD || from->ext != F8_EXT_FULL ||
        from->group)
        return false;
    const f8_kbuffer *b = &k->buffer[from->buffer];
    return b->ids < 0 && (b->dtype == F8_F32 || b->dtype == F8_BF16) &&
           !has_stored(k, all[n].stage);
}

int64_t f8_kernel_most_sums(const f8_kernel *k)
{
    int64_t most = 0;
    for (int32_t stage = 0; stage < (int32_t)k->n_stages; stage++) {
        int64_t sums = 0;
        uint32_t x, id;
        for (uint32_t n = 0; n < k->n_instrs; n++)
            sums += k->instr[n].op == F8_K_SUM && k->instr[n].stage == stage &&
                    !f8_kernel_picked(k, n, &x, &id);
        most = sums > most ? sums : most;
    }
    return most;
}

/* ---- sums of wide rows ---- */

/* Whether i is exp(x - y); then they are in *x and *y. */
static bool is_exp_of_difference(const f8_kernel *k, uint32_t i, uint32_t *x, uint32_t *y)
{
    const f8_kinstr *call = &k->instr[i], *less = &k->instr[call->a];
    if (call->op != F8_K_CALL || call->sub != F8_FN_EXP || !is_scalar(less, F8_S_FSUB))
        return false;
    *x = less->a;
    *y = less->b;
    return true;
}

/* Whether i is the sum of exp(x - y). */
static bool is_sum_of_exp(const f8_kernel *k, uint32_t i, uint32_t *x, uint32_t *y)
{
    return k->instr[i].op == F8_K_SUM && is_exp_of_difference(k, k->instr[i].a, x, y);
}

/* The columns that root i has to see: all, or the first ones if it is their maximum, or none if it
 * is picked. *x: of what it is the maximum. */
static int64_t columns_of(const f8_kernel *k, uint32_t i, uint32_t *x)
{
    const f8_kinstr *sel = &k->instr[k->instr[i].a];
    const uint32_t minus_inf = 0xff800000u;
    uint32_t id;
    if (f8_kernel_picked(k, i, x, &id))
        return 0;
    *x = k->instr[i].a;
    if (k->instr[i].op != F8_K_MAX || !is_scalar(sel, F8_S_SEL_F))
        return k->cols;
    const f8_kinstr *before = &k->instr[sel->a], *none = &k->instr[sel->c];
    if (!is_scalar(before, F8_S_ILT) || !is_scalar(none, F8_S_CONST_F) || none->imm != minus_inf)
        return k->cols;
    const f8_kinstr *column = &k->instr[before->a], *end = &k->instr[before->b];
    if (column->op != F8_K_INDEX || column->ext != F8_EXT_COL || !is_scalar(end, F8_S_CONST_I) ||
        end->imm == 0 || end->imm >= k->cols)
        return k->cols;
    *x = sel->b;
    return end->imm;
}

/* Whether i, a product in any order, is usual = sum exp(x - first) times exp(first - top). */
static bool is_usual(const f8_kernel *k, uint32_t i, f8_exp_sum *s)
{
    const f8_kinstr *product = &k->instr[i];
    if (!is_scalar(product, F8_S_FMUL))
        return false;
    for (int turned = 0; turned < 2; turned++) {
        uint32_t first, top;
        s->usual = turned ? product->b : product->a;
        if (is_sum_of_exp(k, s->usual, &s->x, &s->first) &&
            is_exp_of_difference(k, turned ? product->a : product->b, &first, &top) &&
            first == s->first && top == s->top)
            return true;
    }
    return false;
}

bool f8_kernel_exp_sum(const f8_kernel *k, uint32_t n, f8_exp_sum *s)
{
    const f8_kinstr *all = k->instr, *sel = &all[n];
    if (!is_scalar(sel, F8_S_SEL_F) || !is_scalar(&all[sel->a], F8_S_FLT))
        return false;
    uint32_t x;
    s->near = sel->a;
    s->rare = sel->c;
    if (!is_sum_of_exp(k, s->rare, &x, &s->top) || !is_usual(k, sel->b, s) || s->x != x)
        return false;
    const f8_kinstr *near = &all[s->near], *above = &all[near->a], *most = &all[near->b];
    s->above = most->imm;
    return is_scalar(above, F8_S_FSUB) && above->a == s->top && above->b == s->first &&
           is_scalar(most, F8_S_CONST_F) && all[s->top].op == F8_K_MAX && all[s->top].a == x &&
           columns_of(k, s->first, &x) < k->cols && s->x == x;
}

/* Whether nothing reads instruction n but `reader`. */
static bool is_read_by(const f8_kernel *k, uint32_t n, uint32_t reader)
{
    for (uint32_t i = n + 1; i < k->n_instrs; i++) {
        uint32_t operand[3];
        const int count = f8_kinstr_operands(&k->instr[i], operand);
        for (int o = 0; o < count; o++)
            if (operand[o] == n && i != reader)
                return false;
    }
    return true;
}

bool f8_kernel_exp_sum_term(const f8_kernel *k, uint32_t difference, f8_exp_sum *s)
{
    for (uint32_t n = difference + 1; n < k->n_instrs; n++) {
        if (!f8_kernel_exp_sum(k, n, s))
            continue;
        const uint32_t product = k->instr[n].b, term = k->instr[s->usual].a;
        if (k->instr[term].a == difference && is_read_by(k, term, s->usual) &&
            is_read_by(k, s->usual, product) && is_read_by(k, product, n))
            return true;
    }
    return false;
}

/* ---- stages ---- */

/* Whether instruction r needs the column loop of the stage: as a root, or to be kept. */
static bool is_made_in(const f8_kinstr *i, int32_t stage)
{
    return (f8_kinstr_is_root(i) && i->stage == stage) ||
           (i->near >= 0 && f8_kinstr_known(i) == stage);
}

int64_t f8_kernel_reach(const f8_kernel *k, int32_t stage)
{
    int64_t reach = 0;
    for (uint32_t n = 0; n < k->n_instrs && reach < k->cols; n++) {
        uint32_t x;
        const int64_t columns = is_made_in(&k->instr[n], stage) ? columns_of(k, n, &x) : 0;
        reach = columns > reach ? columns : reach;
    }
    return reach;
}

/* If sum n is needed where a condition fails and nowhere else: that condition; else -1. */
static int64_t condition_of(const f8_kernel *k, uint32_t n)
{
    int64_t near = -1;
    for (uint32_t i = n + 1; i < k->n_instrs; i++) {
        f8_exp_sum s;
        uint32_t operand[3];
        const int count = f8_kinstr_operands(&k->instr[i], operand);
        for (int o = 0; o < count; o++)
            if (operand[o] == n) {
                if (o != 2 || !f8_kernel_exp_sum(k, i, &s) || s.rare != n)
                    return -1;
                near = s.near;
            }
    }
    return near;
}

bool f8_kernel_may_skip(const f8_kernel *k, int32_t stage, uint32_t *near)
{
    int64_t found = -1;
    uint32_t x;
    for (uint32_t n = 0; n < k->n_instrs; n++) {
        if (!is_made_in(&k->instr[n], stage) || columns_of(k, n, &x) == 0)
            continue;
        const int64_t condition = condition_of(k, n);
        if (condition < 0 || (found >= 0 && found != condition) ||
            f8_kinstr_known(&k->instr[condition]) > stage)
            return false;
        found = condition;
    }
    *near = found < 0 ? 0 : (uint32_t)found;
    return found >= 0;
}

/* Moves what reduces whole rows in the stage of `first` to the next one. */
static void delay_others(f8_kernel *k, uint32_t first)
{
    const int32_t stage = k->instr[first].stage;
    uint32_t x;
    for (uint32_t n = 0; n < k->n_instrs; n++)
        if (f8_kinstr_reduces(&k->instr[n]) && k->instr[n].stage == stage &&
            columns_of(k, n, &x) == k->cols)
            k->instr[n].stage = stage + 1;
}

void f8_kernel_order_exp_sums(f8_kernel *k)
{
    for (uint32_t n = 0; n < k->n_instrs; n++) {
        f8_exp_sum s;
        if (!f8_kernel_exp_sum(k, n, &s))
            continue;
        delay_others(k, s.first);
        if (k->instr[s.rare].stage <= k->instr[s.top].stage)
            k->instr[s.rare].stage = k->instr[s.top].stage + 1;
    }
    for (uint32_t n = 0; n < k->n_instrs; n++) {
        uint32_t operand[3];
        const int count = f8_kinstr_operands(&k->instr[n], operand);
        for (int o = 0; o < count; o++) {
            const int32_t known =
                f8_kinstr_known(&k->instr[operand[o]]) + (k->instr[n].op == F8_K_ROLL);
            if (known > k->instr[n].stage)
                k->instr[n].stage = known;
        }
    }
}
