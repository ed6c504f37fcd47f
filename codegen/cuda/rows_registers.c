/* About how many registers a thread of a row kernel takes: see rows_registers.h. The bounds are
 * what NVRTC 13.0 compiles without spills for all targets. */
#include "codegen/cuda/rows_registers.h"

enum {
    /* Of kernels by rows for aligned launches: without branches the compiler interleaves all of a
     * row's vectors, and takes registers that other threads should have. So many threads have
     * registers enough, if each keeps and has in flight no more values than this, on targets whose
     * shared memory is large: addresses take more where it is small. */
    LIGHT_RESIDENT = 1280, /* with 48 */
    LIGHT_VALUES = 20,
    WHOLE_RESIDENT = 1024, /* with 64: rows that are whole, of F8_CUDA_RESIDENT_COLUMNS a thread */
    WIDE_RESIDENT = 896,   /* with 72: the same of up to F8_CUDA_WHOLE_COLUMNS */
    WIDE_WORDS = 32,       /* the most words in flight of both */
    STAGED_REGISTERS = 88,
    STAGED_VALUES = 45, /* gathered values and words in flight that fit in F8_CUDA_STAGED_SHARE */
    STAGED_VALUES_SMALL = 36, /* the same where shared memory is small: addresses take more there */
    BLOCK_VALUES = 2,         /* of those for each column, what follows from a block's maximum */
    STAGED_KEPT = 48,         /* values of a row that fit in F8_CUDA_STAGED_SHARE */
    STAGED_WORDS = 24,  /* words of a whole row in flight that fit there: AdamW reads four f32 */
    STAGED_COLUMNS = 24 /* columns under way at once */
};

int f8_cuda_rows_count(const f8_kernel *k, f8_kop op)
{
    int all = 0;
    for (uint32_t n = 0; n < k->n_instrs; n++)
        all += k->instr[n].op == op;
    return all;
}

int64_t f8_cuda_rows_loaded_words(const f8_kernel *k, const f8_cuda_layout *l)
{
    int64_t words = 0;
    for (uint32_t n = 0; n < k->n_instrs; n++)
        if (k->instr[n].op == F8_K_LOAD && k->instr[n].ext == F8_EXT_FULL)
            words += l->sets * l->vector * f8_cuda_bytes(k->buffer[k->instr[n].buffer].dtype) / 4;
    return words;
}

/* Values that a thread keeps over stages or rows. */
static int64_t kept_values(const f8_kernel *k, const f8_cuda_layout *l)
{
    int64_t kept = l->holds ? f8_cuda_rows_count(k, F8_K_COLAMAX) : 0;
    for (uint32_t s = 0; s < k->n_near; s++)
        kept += l->near[s] == F8_CUDA_REGISTERS;
    return kept * l->vectors * l->vector;
}

/* The most that a stage's stores, sums and column sums gather at once in a thread. */
static int64_t gathered_values(const f8_kernel *k, const f8_cuda_layout *l)
{
    int64_t most = 0;
    for (int32_t stage = 0; stage < (int32_t)k->n_stages; stage++) {
        int64_t gathered = 0;
        for (uint32_t n = 0; n < k->n_instrs; n++)
            if (f8_kinstr_is_root(&k->instr[n]) && k->instr[n].stage == stage)
                gathered +=
                    k->instr[n].op == F8_K_MAX || k->instr[n].op == F8_K_AMAX ? 1 : l->vector;
        most = gathered > most ? gathered : most;
    }
    return most;
}

/* Whether an earlier root of its stage gathers the values of root n. */
static bool is_gathered_before(const f8_kernel *k, uint32_t n)
{
    const f8_kinstr *i = &k->instr[n];
    for (uint32_t o = 0; o < n; o++)
        if (f8_kinstr_is_root(&k->instr[o]) && k->instr[o].stage == i->stage &&
            k->instr[o].a == i->a && !f8_kinstr_reduces(&k->instr[o]) &&
            k->instr[o].op != F8_K_BLOCKAMAX)
            return true;
    return false;
}

/* The same as gathered_values, closer, of a kernel with maxima of blocks: roots that gather the
 * same values count once, and what follows from the maxima counts in the stages that follow them.
 */
static int64_t block_values(const f8_kernel *k, const f8_cuda_layout *l)
{
    int64_t most = 0;
    bool follows = false;
    for (int32_t stage = 0; stage < (int32_t)k->n_stages; stage++) {
        int64_t values = follows ? BLOCK_VALUES * l->vector : 0;
        for (uint32_t n = 0; n < k->n_instrs; n++) {
            const f8_kinstr *i = &k->instr[n];
            if (!f8_kinstr_is_root(i) || i->stage != stage)
                continue;
            follows |= i->op == F8_K_BLOCKAMAX;
            if (i->op == F8_K_MAX || i->op == F8_K_AMAX || i->op == F8_K_BLOCKAMAX)
                values++;
            else if (f8_kinstr_reduces(i) || !is_gathered_before(k, n))
                values += l->vector;
        }
        most = values > most ? values : most;
    }
    return most;
}

int f8_cuda_rows_registers(const f8_kernel *k, const f8_cuda_layout *l)
{
    return (int)(STAGED_REGISTERS + kept_values(k, l) + gathered_values(k, l));
}

/* Whether a kernel has a scalar function that needs more registers than a conversion. GELU's
 * polynomials do not: no kernel of GPT-2 or MPT-1B spills on sm_89, sm_90a and sm_100a. */
static bool has_long_function(const f8_kernel *k)
{
    for (uint32_t n = 0; n < k->n_instrs; n++)
        if (k->instr[n].op == F8_K_CALL &&
            (k->instr[n].sub == F8_FN_EXP || k->instr[n].sub == F8_FN_LOG ||
             k->instr[n].sub == F8_FN_TANH || k->instr[n].sub == F8_FN_ERF ||
             k->instr[n].sub == F8_FN_SIGMOID))
            return true;
    return false;
}

int f8_cuda_rows_resident(const f8_target *target, const f8_kernel *k, const f8_cuda_layout *l)
{
    const int64_t columns = l->vectors * l->vector, words = f8_cuda_rows_loaded_words(k, l);
    if (!k->aligned || has_long_function(k) || f8_cuda_rows_count(k, F8_K_BLOCKAMAX) ||
        !target->shared_large)
        return F8_CUDA_ROW_RESIDENT;
    if (!l->whole)
        return l->group <= F8_CUDA_WARP && words + gathered_values(k, l) <= LIGHT_VALUES
                   ? LIGHT_RESIDENT
                   : F8_CUDA_ROW_RESIDENT;
    if (words > WIDE_WORDS)
        return F8_CUDA_ROW_RESIDENT;
    return columns <= F8_CUDA_RESIDENT_COLUMNS ? WHOLE_RESIDENT
           : columns <= F8_CUDA_WHOLE_COLUMNS  ? WIDE_RESIDENT
                                               : F8_CUDA_ROW_RESIDENT;
}

int64_t f8_cuda_rows_staged_values(const f8_target *target, const f8_kernel *k,
                                   const f8_cuda_layout *l)
{
    const bool blocks = f8_cuda_rows_count(k, F8_K_BLOCKAMAX) > 0;
    const bool parts = !l->whole && target->shared_large;
    int64_t values = blocks && parts ? block_values(k, l) : gathered_values(k, l);
    if (has_long_function(k)) /* NVRTC 13.0 interleaves more of it for sm_100a */
        values += l->vector * (target->sm < 100 ? 1 : 2);
    if (has_long_function(k) && k->aligned && l->whole) /* the same where nothing branches */
        values += l->vector;
    if (blocks && !parts)
        values += BLOCK_VALUES * l->vector;
    return values + f8_cuda_rows_loaded_words(k, l);
}

bool f8_cuda_rows_are_lean(const f8_target *target, const f8_kernel *k, const f8_cuda_layout *l)
{
    const int sums = f8_cuda_rows_count(k, F8_K_COLSUM);
    const int maxima = f8_cuda_rows_count(k, F8_K_COLAMAX);
    if (!l->whole || (l->vectors == 1 && sums && !maxima))
        return f8_cuda_rows_staged_values(target, k, l) <=
               (target->shared_large ? STAGED_VALUES : STAGED_VALUES_SMALL);
    const int64_t kept = kept_values(k, l);
    if (f8_cuda_rows_loaded_words(k, l) > STAGED_WORDS)
        return false;
    /* a row of one vector has few values; a bound keeps the compiler from interleaving more */
    if (l->vectors == 1 && kept <= F8_CUDA_HELD_COLUMNS && target->shared_large)
        return true;
    if (kept > STAGED_KEPT || l->sets * l->vector > STAGED_COLUMNS || sums)
        return false;
    return !l->holds || !maxima ||
           (kept <= F8_CUDA_HELD_COLUMNS && k->n_instrs <= F8_CUDA_STAGED_INSTRS);
}
