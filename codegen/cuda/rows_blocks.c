/* Values of blocks of columns, in rows that groups of threads share: see rows.h and print.h.
 *
 * A block has a power of two of columns, at least a thread's vector and at most what 32 threads
 * have at once. So a vector lies in one block, and a block's threads are neighbours in a warp. What
 * varies over blocks is computed once for each vector. Maxima of blocks are joined by shuffles.
 * They stay with the vector if all vectors of a row are unrolled, and else in shared memory. */
#include "codegen/cuda/rows.h"

#include <stdio.h>
#include <string.h>

bool f8_cuda_rows_stores_blocks(const f8_cuda_printer *p)
{
    for (uint32_t n = 0; n < p->k->n_instrs; n++) {
        const f8_kinstr *i = &p->k->instr[n];
        if (i->op == F8_K_STORE && (i->ext & F8_EXT_BLOCK) && i->stage == p->stage)
            return true;
    }
    return false;
}

/* The words of a row's maxima before those of instruction n. */
static int64_t words_before(const f8_cuda_printer *p, uint32_t n)
{
    int64_t words = 0;
    for (uint32_t i = 0; i < n; i++)
        if (p->k->instr[i].op == F8_K_BLOCKAMAX)
            words += f8_kernel_blocks(p->k, p->k->instr[i].block);
    return words;
}

void f8_cuda_rows_block_pointers(f8_cuda_printer *p)
{
    for (uint32_t n = 0; n < p->k->n_instrs; n++)
        if (p->k->instr[n].op == F8_K_BLOCKAMAX && !p->l.whole)
            f8_cuda_line(p,
                         "f8_u32 *const j%u = (f8_u32 *)memory + f8_thread() / %d * %lld + %lld;",
                         n, p->l.group, (long long)p->l.near_words,
                         (long long)(p->l.block_at + words_before(p, n)));
}

/* ---- values ---- */

/* Marks the values of blocks that this stage's elements or its stores of blocks need, and what
 * these are made of. Each stage that needs them computes them. */
static void mark_wanted(const f8_cuda_printer *p, bool *wanted)
{
    const f8_kernel *k = p->k;
    memset(wanted, 0, k->n_instrs * sizeof *wanted);
    for (uint32_t n = k->n_instrs; n-- > 0;) {
        const f8_kinstr *i = &k->instr[n];
        const bool store = i->op == F8_K_STORE && (i->ext & F8_EXT_BLOCK) && i->stage == p->stage;
        uint32_t operand[3];
        if (!store && !p->needed[n] && !(wanted[n] && i->op != F8_K_BLOCKAMAX))
            continue;
        if (p->needed[n] && f8_cuda_is_kept(p, n))
            continue;
        const int operands = f8_kinstr_operands(i, operand);
        if (i->op == F8_K_STORE && !store)
            operand[0] = p->source[n];
        for (int o = 0; o < operands; o++)
            wanted[operand[o]] |= (k->instr[operand[o]].ext & F8_EXT_BLOCK) != 0;
    }
}

void f8_cuda_rows_blocks(f8_cuda_printer *p)
{
    bool *wanted = F8_NEW_ARRAY(p->arena, bool, p->k->n_instrs + 1);
    if (!wanted)
        return; /* the arena remembers */
    mark_wanted(p, wanted);
    for (uint32_t n = 0; n < p->k->n_instrs; n++)
        if (wanted[n])
            f8_cuda_print_block(p, n);
}

/* By the thread with the block's first columns. */
void f8_cuda_rows_block_stores(f8_cuda_printer *p, const char *live)
{
    for (uint32_t n = 0; n < p->k->n_instrs; n++) {
        const f8_kinstr *i = &p->k->instr[n];
        if (i->op != F8_K_STORE || !(i->ext & F8_EXT_BLOCK) || i->stage != p->stage)
            continue;
        const f8_cuda_name v = f8_cuda_value(p, i->a);
        const f8_dtype t = p->k->buffer[i->buffer].dtype;
        f8_cuda_line(p, "if (%s%sc %% %d == 0 && n > 0%s)", live ? live : "", live ? " && " : "",
                     i->block, i->ext & F8_EXT_ROW ? "" : " && row == 0");
        if (t == F8_F32)
            f8_cuda_line(p, "    q%d[c / %d] = %s;", i->buffer, i->block, v.s);
        else if (t == F8_BF16)
            f8_cuda_line(p, "    q%d[c / %d] = (f8_u16)f8_bf16x2(%s, 0.0f);", i->buffer, i->block,
                         v.s);
        else
            f8_cuda_line(p, "    q%d[c / %d] = (%s)%s;", i->buffer, i->block, f8_cuda_element(t),
                         v.s);
    }
}

/* ---- maxima ---- */

static bool is_reduced(const f8_cuda_printer *p, uint32_t n)
{
    const f8_kinstr *i = &p->k->instr[n];
    return p->needed[n] && i->op == F8_K_BLOCKAMAX && i->stage == p->stage;
}

void f8_cuda_rows_block_begin(f8_cuda_printer *p)
{
    for (uint32_t n = 0; n < p->k->n_instrs; n++)
        if (is_reduced(p, n)) {
            f8_cuda_line(p, "f8_u32 h%u[%d];", n, p->l.sets);
            f8_cuda_line(p, "F8_UNROLL for (int u = 0; u < %d; u++)", p->l.sets);
            f8_cuda_line(p, "    h%u[u] = 0;", n);
        }
}

void f8_cuda_rows_block_elements(f8_cuda_printer *p)
{
    for (uint32_t n = 0; n < p->k->n_instrs; n++) {
        const f8_kinstr *i = &p->k->instr[n];
        const f8_cuda_name v = f8_cuda_value(p, i->a);
        if (!is_reduced(p, n))
            continue;
        if (p->k->cols % i->block)
            f8_cuda_line(p, "h%u[u] = %s ? f8_larger(h%u[u], f8_bits(f8_abs(%s))) : h%u[u];", n,
                         p->k->cols % p->l.vector ? "e < n" : "n > 0", n, v.s, n);
        else
            f8_cuda_line(p, "h%u[u] = f8_larger(h%u[u], f8_bits(f8_abs(%s)));", n, n, v.s);
    }
}

void f8_cuda_rows_block_join(f8_cuda_printer *p)
{
    for (uint32_t n = 0; n < p->k->n_instrs; n++) {
        const int32_t block = p->k->instr[n].block;
        if (!is_reduced(p, n))
            continue;
        f8_cuda_rows_u(p);
        f8_cuda_line(p, "h%u[u] = f8_amax<%d>(h%u[u]);", n, block / p->l.vector, n);
        if (!p->l.whole) {
            f8_cuda_rows_column(p);
            f8_cuda_line(p, "if (c %% %d == 0 && n > 0)", block);
            f8_cuda_line(p, "    j%u[c / %d] = h%u[u];", n, block, n);
        }
        f8_cuda_close(p);
    }
}
