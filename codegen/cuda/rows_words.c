/* Values of a vector that stand as words of two bf16 each: see rows.h.
 *
 * A sum of two bf16 that is rounded to bf16 is added two at a time, by one rounding. These are the
 * bits of an f32 sum that is then rounded: f32 keeps 24 bits, more than the 2 * 8 + 2 from which on
 * the first of two roundings never changes what the second gives (Figueroa, "When is double
 * rounding innocuous?", 1995). Stores take such words as they are. */
#include "codegen/cuda/rows.h"

#include <stdio.h>
#include <string.h>

/* A LOAD of columns whose elements are bf16, as they lie in memory. */
static bool is_words(const f8_kernel *k, uint32_t n)
{
    const f8_kinstr *i = &k->instr[n];
    return i->op == F8_K_LOAD && (i->ext & F8_EXT_COL) && !(i->ext & F8_EXT_BLOCK) && i->near < 0 &&
           f8_cuda_is_bf16(k, i);
}

static int uses_of(const f8_kernel *k, uint32_t of)
{
    int count = 0;
    for (uint32_t n = of + 1; n < k->n_instrs; n++) {
        uint32_t operand[3];
        const int operands = f8_kinstr_operands(&k->instr[n], operand);
        for (int o = 0; o < operands; o++)
            count += operand[o] == of;
    }
    return count;
}

static bool is_pair_sum(const f8_kernel *k, uint32_t n)
{
    const f8_kinstr *i = &k->instr[n], *sum = &k->instr[i->a];
    return i->op == F8_K_CALL && i->sub == F8_FN_ROUND_BF16 && sum->op == F8_K_SCALAR &&
           sum->sub == F8_S_FADD && is_words(k, sum->a) && is_words(k, sum->b) &&
           uses_of(k, i->a) == 1;
}

void f8_cuda_rows_find_pairs(f8_cuda_printer *p)
{
    for (uint32_t n = 0; n < p->k->n_instrs; n++)
        p->pairs[n] = is_pair_sum(p->k, n);
}

/* Whether the vector of value n stands as words in this stage, and their name. */
static bool has_words(const f8_cuda_printer *p, uint32_t n, f8_cuda_name *name)
{
    const int32_t slot = p->k->instr[n].near;
    if (f8_cuda_is_kept(p, n)) {
        if (p->l.near[slot] != F8_CUDA_OWN || p->l.near_bytes[slot] != 2)
            return false;
        snprintf(name->s, sizeof name->s, "z%d", slot);
        return true;
    }
    /* where several stages load through a ring, no registers are left for words that are loaded */
    if (!p->pairs[n] && !(is_words(p->k, n) && f8_cuda_ring_unrolls(p)))
        return false;
    snprintf(name->s, sizeof name->s, p->pairs[n] ? "r%u" : "w%u[u]", n);
    return true;
}

bool f8_cuda_rows_words(const f8_cuda_printer *p, uint32_t n, f8_cuda_name *name)
{
    return !strcmp(p->put[n], "upper") && has_words(p, p->source[n], name);
}

void f8_cuda_rows_add_pairs(f8_cuda_printer *p)
{
    for (uint32_t n = 0; n < p->k->n_instrs; n++) {
        if (!p->needed[n] || !f8_cuda_adds_pairs(p, n))
            continue;
        const f8_kinstr *sum = &p->k->instr[p->k->instr[n].a];
        f8_cuda_line(p, "f8_u32 r%u[%d];", n, f8_cuda_words(F8_BF16, p->l.vector));
        f8_cuda_line(p, "f8_add_bf16<%d>(r%u, w%u[u], w%u[u]);", p->l.vector, n, sum->a, sum->b);
    }
}
