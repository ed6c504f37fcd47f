/* Kernel descriptions: what all printers ask of one, and its text. */
#include "codegen/kernel.h"

#include <inttypes.h>
#include <string.h>

#include "ir/format.h"
#include "ir/hash.h"

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

/* Fewer where no block asks for more: there are only so many tasks. */
int64_t f8_kernel_task_rows(const f8_kernel *k)
{
    int64_t rows = k->n_partials ? F8_COLAMAX_TASK : 0;
    for (uint32_t n = 0; n < k->n_instrs; n++)
        if (f8_kinstr_is_partial(&k->instr[n]) && k->instr[n].imm > rows)
            rows = k->instr[n].imm;
    return rows;
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
            continue; /* loaded from its slot */
        uint32_t operand[3];
        const int n_operands = f8_kinstr_operands(i, operand);
        for (int o = 0; o < n_operands; o++)
            /* ROLL reads its operand's slot, not its register */
            if (i->op != F8_K_ROLL && (k->instr[operand[o]].ext & F8_EXT_COL))
                needed[operand[o]] = true;
    }
    return count;
}

/* ---- text ---- */

typedef struct printer {
    f8_arena *arena;
    char *text;
    size_t used, room;
} printer;

__attribute__((format(printf, 2, 3))) static void put(printer *p, const char *fmt, ...)
{
    char line[256];
    va_list args;
    va_start(args, fmt);
    const int n = f8_vformat(line, sizeof line, fmt, args);
    va_end(args);
    const size_t length = n < 0 ? 0 : (size_t)n < sizeof line ? (size_t)n : sizeof line - 1;
    char *grown = f8_arena_grow(p->arena, p->text, p->used, &p->room, p->used + length + 1, 1);
    if (!grown)
        return; /* the arena remembers */
    p->text = grown;
    memcpy(p->text + p->used, line, length + 1);
    p->used += length;
}

static const char *ext_name(int ext)
{
    static const char *const names[] = {"one", "row", "col", "full", "block", "row block"};
    return names[ext % 6];
}

static void put_buffers(printer *p, const f8_kernel *k)
{
    for (uint32_t n = 0; n < k->n_buffers; n++) {
        const f8_kbuffer *b = &k->buffer[n];
        put(p, "  buffer %u: %s %s %s", n, b->write ? "write" : "read", f8_dtype_name(b->dtype),
            ext_name(b->ext));
        if (b->block)
            put(p, " of %d", b->block);
        if (b->stride >= 0)
            put(p, " stride i%d", b->stride);
        if (b->transposed)
            put(p, " transposed");
        if (b->map >= 0 && k->map[b->map].shift >= 0)
            put(p, " row >> %d", k->map[b->map].shift);
        else if (b->map >= 0)
            put(p, " row / i%d %% i%d", k->map[b->map].div, k->map[b->map].mod);
        if (b->ids >= 0)
            put(p, " rows by buffer %d below i%d", b->ids, b->limit);
        put(p, "\n");
    }
}

static void put_instr(printer *p, const f8_kernel *k, uint32_t n)
{
    static const char kinds[] = "-FIB";
    static const char *const names[] = {
#define X(op, name) name,
        F8_KOPS(X)
#undef X
    };
    const f8_kinstr *i = &k->instr[n];
    put(p, "  %%%u.%d %c %s = %s", n, i->stage, kinds[i->kind & 3], ext_name(i->ext), names[i->op]);
    if (i->op == F8_K_SCALAR)
        put(p, "%s", f8_scalar_op(i->sub)->name);
    if (i->op == F8_K_CALL)
        put(p, " %s", f8_scalar_program(i->sub)->name);
    if (i->op == F8_K_SCALAR && (i->sub == F8_S_CONST_F || i->sub == F8_S_CONST_I))
        put(p, " 0x%08" PRIx32, i->imm);
    uint32_t operand[3];
    const int count = f8_kinstr_operands(i, operand);
    for (int o = 0; o < count; o++)
        put(p, " %%%u", operand[o]);
    if (i->buffer >= 0)
        put(p, " buffer %d", i->buffer);
    if (i->op == F8_K_BLOCKAMAX)
        put(p, " by %d", i->block);
    if (f8_kinstr_is_partial(i))
        put(p, " by %" PRIu32, i->imm);
    if (i->group)
        put(p, " roll %" PRId64 " of %" PRId64, i->shift, i->group);
    if (i->near >= 0)
        put(p, " near %d", i->near);
    put(p, "\n");
}

f8_status f8_kernel_print(f8_kernel *k, f8_arena *arena, f8_diag *d)
{
    printer p = {.arena = arena};
    if (k->flat)
        put(&p, "kernel flat {\n");
    else
        put(&p, "kernel rows x %" PRId64 " {\n", k->cols);
    put_buffers(&p, k);
    for (uint32_t n = 0; n < k->n_instrs; n++)
        put_instr(&p, k, n);
    put(&p, "}\n");
    if (arena->failed)
        return f8_arena_status(arena, d);
    k->text = p.text;
    k->hash = f8_fnv(F8_FNV, p.text);
    return F8_OK;
}
