/* Tails of row kernels (f8_kernel.tail): see rows.h. When the tasks of a kernel are done, the block
 * that ends last computes the tail: all its threads find the largest magnitude, if the tail has
 * one, and thread 0 stores. A largest magnitude does not depend on an order, and scalars are
 * printed as in any row kernel, so the bits are those of a launch of its own. */
#include "codegen/cuda/rows.h"

/* Words of shared memory: the maxima of the warps, then whether this block is the last. */
enum { WARPS = 32, WORDS = WARPS + 1 };
/* One block reads the row, with as few threads as the kernel has. For a longer row that takes
 * longer than the launch that is saved. */
enum { MOST_COLUMNS = 16384 };

/* ---- which kernels ---- */

/* Whether the one thread that computes the tail's scalars can do the instruction. */
static bool is_single(const f8_kernel *k, const f8_kinstr *i)
{
    if (i->ext != F8_EXT_ONE && i->ext != F8_EXT_ROW)
        return false;
    switch ((f8_kop)i->op) {
    case F8_K_LOAD: return k->buffer[i->buffer].ids < 0;
    case F8_K_SCALAR:
    case F8_K_CALL:
    case F8_K_STORE: return true;
    default: return false;
    }
}

/* Whether it is a load of a row of f32 for AMAX. */
static bool is_row(const f8_kernel *k, const f8_kinstr *i)
{
    return i->op == F8_K_LOAD && (i->ext == F8_EXT_COL || i->ext == F8_EXT_FULL) && !i->group &&
           k->buffer[i->buffer].ids < 0 && k->buffer[i->buffer].dtype == F8_F32;
}

bool f8_cuda_rows_takes_tail(const f8_kernel *k, const f8_kernel *tail)
{
    uint32_t maxima = 0;
    if (k->tail || tail->tail || tail->flat)
        return false;
    for (uint32_t n = 0; n < tail->n_instrs; n++) {
        const f8_kinstr *i = &tail->instr[n];
        const bool amax = i->op == F8_K_AMAX && is_row(tail, &tail->instr[i->a]);
        maxima += amax;
        if (!amax && !is_row(tail, i) && !is_single(tail, i))
            return false;
    }
    return maxima == 0 || (maxima == 1 && tail->cols <= MOST_COLUMNS);
}

/* ---- printing ---- */

/* Shared memory that the kernel has anyway, which is free when its tasks are done. */
static const char *own_words(const f8_cuda_printer *p)
{
    const f8_cuda_layout *l = &p->l;
    if (l->points)
        return NULL;
    if (l->group > F8_CUDA_WARP && f8_cuda_rows_reduced_before(p->k, (int32_t)p->k->n_stages))
        return "lanes";
    return l->shared >= 4 * WORDS ? "(float *)memory" : NULL;
}

void f8_cuda_rows_tail_shared(f8_cuda_printer *p)
{
    if (p->k->tail && !own_words(p))
        f8_cuda_line(p, "F8_SHARED(float, ends, %d);", WORDS);
}

void f8_cuda_rows_tail_params(f8_cuda_printer *p)
{
    const f8_kernel *tail = p->k->tail;
    for (uint32_t i = 0; tail && i < tail->n_buffers; i++)
        f8_cuda_line(p, "%s%s *t%u;", tail->buffer[i].write ? "" : "const ",
                     f8_cuda_element(tail->buffer[i].dtype), i);
    if (tail)
        f8_cuda_line(p, "f8_u32 *counter;");
}

/* The printer of the tail, which has no vectors and no layout of its own. */
static f8_cuda_printer of_tail(const f8_cuda_printer *p)
{
    return (f8_cuda_printer){
        .t = p->t, .k = p->k->tail, .arena = p->arena, .indent = p->indent, .l = {.vector = 1}};
}

void f8_cuda_rows_tail_functions(const f8_cuda_printer *p)
{
    f8_cuda_printer tail = of_tail(p);
    if (p->k->tail)
        f8_cuda_print_functions(&tail);
}

static void print_values(f8_cuda_printer *p, int threads)
{
    const f8_kernel *k = p->k;
    for (uint32_t n = 0; n < k->n_instrs; n++) {
        const f8_kinstr *i = &k->instr[n];
        if (i->op == F8_K_AMAX)
            f8_cuda_line(p, "const float v%u = f8_from_bits(f8_amax_of<%d>(q%d, %lld, words));", n,
                         threads, k->instr[i->a].buffer, (long long)k->cols);
        else if (i->op != F8_K_STORE && !is_row(k, i))
            f8_cuda_print_value(p, n);
    }
}

void f8_cuda_rows_tail(f8_cuda_printer *p)
{
    if (!p->k->tail)
        return;
    f8_cuda_scope(p);
    const char *own = own_words(p);
    f8_cuda_line(p, "/* tail */");
    f8_cuda_line(p, "float *const words = %s;", own ? own : "ends");
    f8_cuda_open(p, "if (f8_is_last(p.counter, (f8_u32 *)words + %d))", WARPS);
    f8_cuda_printer tail = of_tail(p);
    const f8_kernel *k = tail.k;
    for (uint32_t i = 0; i < k->n_buffers; i++)
        f8_cuda_line(&tail, "%s%s *const q%u = p.t%u;", k->buffer[i].write ? "" : "const ",
                     f8_cuda_element(k->buffer[i].dtype), i, i);
    print_values(&tail, p->l.threads);
    f8_cuda_open(&tail, "if (f8_thread() == 0)");
    for (uint32_t n = 0; n < k->n_instrs; n++)
        if (k->instr[n].op == F8_K_STORE)
            f8_cuda_print_store(&tail, n);
    f8_cuda_close(&tail);
    f8_cuda_close(p);
    f8_cuda_close(p);
}
