/* Kernel descriptions: questions that all printers ask of one, and its text. */
#include "codegen/kernel/kernel.h"

#include <inttypes.h>
#include <string.h>

#include "codegen/kernel/text.h"
#include "ir/base/hash.h"

int f8_kinstr_operands(const f8_kinstr *i, uint32_t operand[3])
{
    operand[0] = i->a;
    operand[1] = i->b;
    operand[2] = i->c;
    switch ((f8_kop)i->op) {
    case F8_K_LOAD:
    case F8_K_INDEX:
    case F8_KOP_COUNT: return 0;
    case F8_K_SCALAR: return f8_scalar_op(i->sub)->n_args;
    case F8_K_CALL:
    case F8_K_ROLL:
    case F8_K_SUM:
    case F8_K_MAX:
    case F8_K_AMAX:
    case F8_K_BLOCKAMAX:
    case F8_K_COLSUM:
    case F8_K_COLAMAX:
    case F8_K_STORE: return 1;
    }
    return 0;
}

bool f8_kinstr_reduces(const f8_kinstr *i)
{
    return i->op == F8_K_SUM || i->op == F8_K_MAX || i->op == F8_K_AMAX;
}

bool f8_kinstr_of_blocks(const f8_kinstr *i)
{
    return (i->ext & F8_EXT_BLOCK) && i->op != F8_K_BLOCKAMAX;
}

int64_t f8_kernel_blocks(const f8_kernel *k, int32_t block)
{
    return (k->cols + block - 1) / block;
}

int32_t f8_kinstr_known(const f8_kinstr *i)
{
    return i->stage + (f8_kinstr_reduces(i) || i->op == F8_K_BLOCKAMAX ? 1 : 0);
}

bool f8_kinstr_is_partial(const f8_kinstr *i)
{
    return i->op == F8_K_COLSUM || i->op == F8_K_COLAMAX;
}

bool f8_kinstr_is_root(const f8_kinstr *i)
{
    return f8_kinstr_reduces(i) || i->op == F8_K_BLOCKAMAX || f8_kinstr_is_partial(i) ||
           (i->op == F8_K_STORE && (i->ext & F8_EXT_COL));
}

/* If no reduction has larger blocks, a task has only F8_COLAMAX_TASK rows, so that there are more
 * tasks. */
int64_t f8_kernel_task_rows(const f8_kernel *k)
{
    int64_t rows = k->n_partials ? F8_COLAMAX_TASK : 0;
    for (uint32_t n = 0; n < k->n_instrs; n++)
        if (f8_kinstr_is_partial(&k->instr[n]) && k->instr[n].imm > rows)
            rows = k->instr[n].imm;
    return rows;
}

bool f8_kernel_transposes(const f8_kernel *k)
{
    for (uint32_t i = 0; i < k->n_buffers; i++)
        if (k->buffer[i].transposed)
            return true;
    return false;
}

int64_t f8_kernel_span(const f8_type *t, const f8_place *p)
{
    const int64_t size = (int64_t)f8_dtype_size(t->dtype), rows = f8_type_rows(t);
    return ((rows > 0 ? rows - 1 : 0) * p->stride + f8_type_columns(t)) * size;
}

uint32_t f8_kernel_needed(const f8_kernel *k, uint32_t stage, bool *needed)
{
    uint32_t count = 0;
    memset(needed, 0, k->n_instrs * sizeof *needed);
    for (uint32_t n = k->n_instrs; n-- > 0;) {
        const f8_kinstr *i = &k->instr[n];
        const bool kept = i->near >= 0 && f8_kinstr_known(i) == (int32_t)stage;
        if ((f8_kinstr_is_root(i) && i->stage == (int32_t)stage) || kept)
            needed[n] = true;
        if (!needed[n])
            continue;
        count++;
        if (i->near >= 0 && f8_kinstr_known(i) < (int32_t)stage)
            continue; /* it is loaded from its slot */
        uint32_t operand[3];
        const int n_operands = f8_kinstr_operands(i, operand);
        for (int o = 0; o < n_operands; o++)
            /* a ROLL reads the slot of its operand, not its register */
            if (i->op != F8_K_ROLL && (k->instr[operand[o]].ext & F8_EXT_COL))
                needed[operand[o]] = true;
    }
    return count;
}

/* ---- text ---- */

static const char *ext_name(int ext)
{
    static const char *const names[] = {"one", "row", "col", "full", "block", "row block"};
    return names[ext % 6];
}

/* Words and an integer behind them. */
static void put_count(f8_text *t, const char *words, int64_t value)
{
    f8_text_put(t, words);
    f8_text_int(t, value);
}

static void put_buffers(f8_text *t, const f8_kernel *k)
{
    for (uint32_t n = 0; n < k->n_buffers; n++) {
        const f8_kbuffer *b = &k->buffer[n];
        put_count(t, "  buffer ", n);
        f8_text_put(t, b->write ? ": write " : ": read ");
        f8_text_put(t, f8_dtype_name(b->dtype));
        f8_text_put(t, " ");
        f8_text_put(t, ext_name(b->ext));
        if (b->block)
            put_count(t, " of ", b->block);
        if (b->stride >= 0)
            put_count(t, " stride i", b->stride);
        if (b->transposed)
            f8_text_put(t, " transposed");
        if (b->map >= 0 && k->map[b->map].shift >= 0) {
            put_count(t, " row >> ", k->map[b->map].shift);
        } else if (b->map >= 0) {
            put_count(t, " row / i", k->map[b->map].div);
            put_count(t, " % i", k->map[b->map].mod);
        }
        if (b->ids >= 0) {
            put_count(t, " rows by buffer ", b->ids);
            put_count(t, " below i", b->limit);
        }
        f8_text_put(t, "\n");
    }
}

/* "%NUMBER.STAGE KIND EXTENT = OP" */
static void put_result(f8_text *t, const f8_kinstr *i, uint32_t n)
{
    static const char *const kinds[] = {" - ", " F ", " I ", " B "};
    static const char *const names[] = {
#define X(op, name) name,
        F8_KOPS(X)
#undef X
    };
    put_count(t, "  %", n);
    put_count(t, ".", i->stage);
    f8_text_put(t, kinds[i->kind & 3]);
    f8_text_put(t, ext_name(i->ext));
    f8_text_put(t, " = ");
    f8_text_put(t, names[i->op]);
}

static void put_instr(f8_text *t, const f8_kernel *k, uint32_t n)
{
    const f8_kinstr *i = &k->instr[n];
    put_result(t, i, n);
    if (i->op == F8_K_SCALAR)
        f8_text_put(t, f8_scalar_op(i->sub)->name);
    if (i->op == F8_K_CALL) {
        f8_text_put(t, " ");
        f8_text_put(t, f8_scalar_function(i->sub)->name);
    }
    if (i->op == F8_K_SCALAR && (i->sub == F8_S_CONST_F || i->sub == F8_S_CONST_I))
        f8_text_add(t, " 0x%08" PRIx32, i->imm);
    uint32_t operand[3];
    const int count = f8_kinstr_operands(i, operand);
    for (int o = 0; o < count; o++)
        put_count(t, " %", operand[o]);
    if (i->buffer >= 0)
        put_count(t, " buffer ", i->buffer);
    if (i->op == F8_K_BLOCKAMAX)
        put_count(t, " by ", i->block);
    if (f8_kinstr_is_partial(i))
        put_count(t, " by ", i->imm);
    if (i->group) {
        put_count(t, " roll ", i->shift);
        put_count(t, " of ", i->group);
    }
    if (i->near >= 0)
        put_count(t, " near ", i->near);
    f8_text_put(t, "\n");
}

f8_status f8_kernel_print(f8_kernel *k, f8_arena *arena, f8_diag *d)
{
    f8_text t = {.arena = arena};
    if (k->flat)
        f8_text_put(&t, "kernel flat");
    else
        put_count(&t, "kernel rows x ", k->cols);
    f8_text_put(&t, " {\n");
    put_buffers(&t, k);
    for (uint32_t n = 0; n < k->n_instrs; n++)
        put_instr(&t, k, n);
    f8_text_put(&t, "}\n");
    if (arena->failed)
        return f8_arena_status(arena, d);
    k->text = t.s;
    k->hash = f8_fnv(F8_FNV, k->text);
    return F8_OK;
}

/* ---- aligned launches ---- */

f8_status f8_kernel_for_aligned(const f8_kernel *k, f8_arena *arena, f8_kernel **out, f8_diag *d)
{
    *out = F8_NEW(arena, f8_kernel);
    const char *text = f8_arena_printf(arena, "%saligned\n", k->text);
    if (!*out || !text)
        return f8_arena_status(arena, d);
    **out = *k;
    (*out)->aligned = true;
    (*out)->text = text;
    (*out)->hash = f8_fnv(F8_FNV, text);
    return F8_OK;
}

/* ---- tails ---- */

uint32_t f8_kernel_args(const f8_kernel *k)
{
    return k->n_buffers + (k->tail ? k->tail->n_buffers + 1 : 0);
}

f8_status f8_kernel_add_tail(const f8_kernel *k, const f8_kernel *tail, f8_arena *arena,
                             f8_kernel **out, f8_diag *d)
{
    *out = F8_NEW(arena, f8_kernel);
    const char *text = f8_arena_printf(arena, "%stail %s", k->text, tail->text);
    if (!*out || !text)
        return f8_arena_status(arena, d);
    **out = *k;
    (*out)->tail = tail;
    (*out)->text = text;
    (*out)->hash = f8_fnv(F8_FNV, text);
    return F8_OK;
}
