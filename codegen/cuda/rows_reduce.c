/* Reductions of rows that groups of threads share: see rows.h and print.h.
 *
 * A warp, or a part of one, reduces its row by shuffles. A whole block reduces a wide row through
 * shared memory. Either way a thread's columns modulo 256 are fixed lanes of the sum, to which it
 * adds in the order of columns, and the lanes are joined by the one tree of ir/README.md. In the
 * widest rows a thread computes four columns but adds up one lane, and of more than 256 threads
 * only the first 256 do: the values to be summed are passed on in shared memory. */
#include "codegen/cuda/rows.h"

#include <stdio.h>

bool f8_cuda_rows_stage_reduces(const f8_kernel *k, int32_t stage)
{
    for (uint32_t n = 0; n < k->n_instrs; n++)
        if (f8_kinstr_reduces(&k->instr[n]) && k->instr[n].stage == stage)
            return true;
    return false;
}

int f8_cuda_rows_reduced_before(const f8_kernel *k, int32_t stage)
{
    int n = 0;
    for (uint32_t i = 0; i < k->n_instrs; i++)
        n += f8_kinstr_reduces(&k->instr[i]) && k->instr[i].stage < stage;
    return n;
}

static bool is_reduced(const f8_cuda_printer *p, uint32_t n)
{
    const f8_kinstr *i = &p->k->instr[n];
    uint32_t x, id;
    return p->needed[n] && f8_kinstr_reduces(i) && i->stage == p->stage &&
           !f8_kernel_picked(p->k, n, &x, &id);
}

/* Before any column of the stage: a later stage may store where x is. */
static void print_picked(f8_cuda_printer *p)
{
    for (uint32_t n = 0; n < p->k->n_instrs; n++) {
        uint32_t x, id;
        if (p->k->instr[n].stage != p->stage || !f8_kernel_picked(p->k, n, &x, &id))
            continue;
        const int32_t buffer = p->k->instr[x].buffer;
        const bool whole = p->k->buffer[buffer].dtype == F8_F32;
        f8_cuda_line(p, "const float v%u = v%u < %lldu ? %sq%d[v%u]%s + 0.0f : 0.0f;", n, id,
                     (long long)p->k->cols, whole ? "" : "f8_from_bf16(", buffer, id,
                     whole ? "" : ")");
    }
}

/* Whether the values of sum n are passed on in shared memory. */
static bool is_handed(const f8_cuda_printer *p, uint32_t n)
{
    return p->l.hand_words && is_reduced(p, n) && p->k->instr[n].op == F8_K_SUM;
}

/* SUMs of this stage that are handed on, before instruction n. */
static int handed_before(const f8_cuda_printer *p, uint32_t n)
{
    int count = 0;
    for (uint32_t i = 0; i < n; i++)
        count += is_handed(p, i);
    return count;
}

bool f8_cuda_rows_hands(const f8_cuda_printer *p)
{
    return handed_before(p, p->k->n_instrs) > 0;
}

void f8_cuda_rows_reduce_begin(f8_cuda_printer *p)
{
    print_picked(p);
    for (uint32_t n = 0; n < p->k->n_instrs; n++) {
        const f8_kinstr *i = &p->k->instr[n];
        if (!is_reduced(p, n))
            continue;
        if (i->op == F8_K_SUM) {
            const int lanes = p->l.hand_words ? 1 : p->l.vector;
            f8_cuda_line(p, "float s%u[%d];", n, lanes);
            f8_cuda_line(p, "F8_UNROLL for (int e = 0; e < %d; e++)", lanes);
            f8_cuda_line(p, "    s%u[e] = -0.0f;", n);
        } else if (i->op == F8_K_MAX) {
            f8_cuda_line(p, "float m%u = f8_from_bits(0xff800000u);", n);
        } else {
            f8_cuda_line(p, "f8_u32 m%u[2] = {0, 0};", n);
        }
    }
    if (handed_before(p, p->k->n_instrs) && !p->l.whole)
        f8_cuda_line(p, "int half%d = 0;", p->stage);
}

/* ---- handing on ---- */

void f8_cuda_rows_declare_handed(f8_cuda_printer *p, bool nothing)
{
    for (uint32_t n = 0; n < p->k->n_instrs; n++)
        if (is_handed(p, n)) {
            f8_cuda_line(p, "float g%u[%d];", n, p->l.vector);
            if (!nothing)
                continue;
            f8_cuda_line(p, "F8_UNROLL for (int e = 0; e < %d; e++)", p->l.vector);
            f8_cuda_line(p, "    g%u[e] = -0.0f;", n);
        }
}

/* Prints the values of this stage's n-th such sum, as f32 by column of `sets` vectors, to shared
 * memory from `hand` on. If not all vectors are in registers at once, there are two halves: one is
 * written while other threads still read the other. */
static void print_hand(f8_cuda_printer *p, uint32_t n)
{
    const int64_t words = (int64_t)handed_before(p, n) * p->l.group * p->l.vector * p->l.sets;
    f8_text_add(p->t, "%*sfloat *const hand = (float *)(memory + %lld) + %lld", 4 * p->indent, "",
                (long long)p->l.tile_at, (long long)words);
    if (!p->l.whole)
        f8_text_add(p->t, " + half%d", p->stage);
    f8_text_add(p->t, ";\n");
}

void f8_cuda_rows_hand(f8_cuda_printer *p)
{
    for (uint32_t n = 0; n < p->k->n_instrs; n++) {
        if (!is_handed(p, n))
            continue;
        f8_cuda_scope(p);
        print_hand(p, n);
        f8_cuda_line(p, "f8_u32 x[%d];", p->l.vector);
        f8_cuda_line(p, "f8_pack_f32<%d>(x, g%u);", p->l.vector, n);
        f8_cuda_line(p, "f8_put<4, %d>(hand + (u * %d + lane) * %d, x);", p->l.vector, p->l.group,
                     p->l.vector);
        f8_cuda_close(p);
    }
}

void f8_cuda_rows_add_handed(f8_cuda_printer *p)
{
    if (!handed_before(p, p->k->n_instrs))
        return;
    f8_cuda_line(p, "f8_sync();");
    for (uint32_t n = 0; n < p->k->n_instrs; n++) {
        if (!is_handed(p, n))
            continue;
        f8_cuda_scope(p);
        print_hand(p, n);
        if (p->l.group > F8_SUM_LANES)
            f8_cuda_open(p, "if (lane < %d)", F8_SUM_LANES);
        f8_cuda_line(p, "const float *const own = hand + lane;");
        f8_cuda_line(p, "F8_UNROLL for (int j = 0; j < %d; j++)",
                     p->l.sets * p->l.vector * (p->l.group / F8_SUM_LANES));
        f8_cuda_line(p, "    s%u[0] = s%u[0] + own[j * %d];", n, n, F8_SUM_LANES);
        if (p->l.group > F8_SUM_LANES)
            f8_cuda_close(p);
        f8_cuda_close(p);
    }
    if (!p->l.whole)
        f8_cuda_line(p, "half%d = %lld - half%d;", p->stage, (long long)p->l.hand_words, p->stage);
}

/* ---- elements ---- */

/* Which form an amax has (rows.cuh): a ring leaves a register more where one stage loads. */
static bool sees_bits(const f8_cuda_printer *p)
{
    return p->l.ring.chunks && f8_cuda_ring_unrolls(p);
}

/* What amax n has come to in a thread. */
static f8_cuda_name magnitude(const f8_cuda_printer *p, uint32_t n)
{
    f8_cuda_name name;
    snprintf(name.s, sizeof name.s, sees_bits(p) ? "f8_magnitude(m%u)" : "m%u[0]", n);
    return name;
}

/* Adds one element, unless it lies past the row's end: -0.0 is the identity of addition. */
static void reduce_element(f8_cuda_printer *p, uint32_t n, bool in)
{
    const f8_kinstr *i = &p->k->instr[n];
    const f8_cuda_name v = f8_cuda_value(p, i->a);
    if (is_handed(p, n))
        f8_cuda_line(p, in ? "g%u[e] = in ? %s : -0.0f;" : "g%u[e] = %s;", n, v.s);
    else if (i->op == F8_K_SUM)
        f8_cuda_line(p, in ? "s%u[e] = s%u[e] + (in ? %s : -0.0f);" : "s%u[e] = s%u[e] + %s;", n, n,
                     v.s);
    else if (i->op == F8_K_MAX)
        f8_cuda_line(p, in ? "m%u = in ? f8_maximum(m%u, %s) : m%u;" : "m%u = f8_maximum(m%u, %s);",
                     n, n, v.s, n);
    else
        f8_cuda_line(p, in ? "f8_see_%s(m%u, in ? %s : 0.0f);" : "f8_see_%s(m%u, %s);",
                     sees_bits(p) ? "bits" : "magnitude", n, v.s);
}

/* Whether a thread may read a row after another one has stored over it: those past the last row
 * repeat that row, and a store may be in place. */
static bool may_read_late(const f8_cuda_printer *p)
{
    for (uint32_t n = 0; n < p->k->n_instrs && p->l.group <= F8_CUDA_WARP; n++)
        if (p->k->instr[n].op == F8_K_STORE)
            return true;
    return false;
}

void f8_cuda_rows_reduce(f8_cuda_printer *p, bool in)
{
    const char *const live = may_read_late(p) ? "if (live) " : "";
    for (uint32_t n = 0; n < p->k->n_instrs; n++)
        if (is_reduced(p, n))
            reduce_element(p, n, in);
    for (uint32_t n = 0; n < p->k->n_instrs; n++)
        if (p->needed[n] &&
            f8_cuda_layout_holds(
                &p->l, &p->k->instr[n])) /* past the row's end it is a column nobody asks for */
            f8_cuda_line(p, "%sm%u[u][e] = f8_larger(m%u[u][e], f8_bits(f8_abs(%s)));", live, n, n,
                         f8_cuda_value(p, p->k->instr[n].a).s);
}

/* ---- results ---- */

static void finish_in_warp(f8_cuda_printer *p)
{
    for (uint32_t n = 0; n < p->k->n_instrs; n++) {
        const f8_kinstr *i = &p->k->instr[n];
        if (!is_reduced(p, n))
            continue;
        if (i->op == F8_K_SUM)
            f8_cuda_line(p, "const float v%u = f8_sum<%d>(s%u);", n, p->l.group, n);
        else if (i->op == F8_K_MAX)
            f8_cuda_line(p, "const float v%u = f8_max<%d>(m%u);", n, p->l.group, n);
        else
            f8_cuda_line(p, "const float v%u = f8_from_bits(f8_amax<%d>(%s));", n, p->l.group,
                         magnitude(p, n).s);
    }
}

static void give_to_block(f8_cuda_printer *p, uint32_t n, int at)
{
    switch (p->k->instr[n].op) {
    case F8_K_SUM:
        f8_cuda_line(p, "f8_block_give<%d>(lanes + %d, s%u);", p->l.threads, at, n);
        break;
    case F8_K_MAX: f8_cuda_line(p, "f8_block_give(lanes + %d, f8_max<32>(m%u));", at, n); break;
    default:
        f8_cuda_line(p, "f8_block_give(lanes + %d, f8_from_bits(f8_amax<32>(%s)));", at,
                     magnitude(p, n).s);
        break;
    }
}

static void take_from_block(f8_cuda_printer *p, uint32_t n, int at)
{
    const int threads = p->l.threads;
    switch (p->k->instr[n].op) {
    case F8_K_SUM: f8_cuda_line(p, "const float v%u = f8_block_sum(lanes + %d);", n, at); break;
    case F8_K_MAX:
        f8_cuda_line(p, "const float v%u = f8_block_max<%d>(lanes + %d);", n, threads, at);
        break;
    default:
        f8_cuda_line(p, "const float v%u = f8_from_bits(f8_block_amax<%d>(lanes + %d));", n,
                     threads, at);
        break;
    }
}

/* Gives, or takes, the reductions of this stage from number `first` on, as many as have slots from
 * slot `slot` on. Returns the number of the next one; 0: there is none. */
static int pass_slots(f8_cuda_printer *p, int first, int slot, bool give)
{
    int number = 0;
    for (uint32_t n = 0; n < p->k->n_instrs; n++) {
        if (!is_reduced(p, n) || number++ < first)
            continue;
        if (slot == F8_CUDA_BLOCK_SLOTS)
            return number - 1;
        (give ? give_to_block : take_from_block)(p, n, slot++ * F8_SUM_LANES);
    }
    return 0;
}

/* Where all reductions of the kernel have slots, each has its own: no stage writes what another one
 * still reads. Otherwise all stages use the same slots, in turns between barriers. */
static void finish_in_block(f8_cuda_printer *p)
{
    const int all = f8_cuda_rows_reduced_before(p->k, (int32_t)p->k->n_stages);
    const bool own = all <= F8_CUDA_BLOCK_SLOTS;
    const int slot = own ? f8_cuda_rows_reduced_before(p->k, p->stage) : 0;
    for (int first = 0, next = 1; next > 0; first = next) {
        if (!own)
            f8_cuda_line(p, "f8_sync();");
        next = pass_slots(p, first, slot, true);
        f8_cuda_line(p, "f8_sync();");
        pass_slots(p, first, slot, false);
    }
}

void f8_cuda_rows_reduce_end(f8_cuda_printer *p)
{
    if (p->l.group > F8_CUDA_WARP)
        finish_in_block(p);
    else
        finish_in_warp(p);
}
