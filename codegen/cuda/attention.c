/* Attention on CUDA (emit.h). The algorithm is text (attention*.cuh): templates over a struct of
 * constants. Here the constants are chosen and printed, and each kernel gets its name.
 *
 * bf16 runs on tensor cores. Products are sums in f32 of bf16 operands, in the order of the
 * hardware. P and dS are rounded to bf16 before they enter a product. Everything else stays in f32
 * and is rounded once, on the way out. lse is f32, and two rows of it with an f32 mask. f32 uses
 * plain multiply-adds in the order of d, of keys and of queries.
 *
 * A NaN or Inf of a query reaches its own row and the keys that it sees; one of a key or value
 * reaches the queries that see it. It reaches nothing else, also within the 16 x 16 blocks on the
 * diagonal, where 0 * NaN is kept out (f8_att_add_diagonal).
 *
 * Backward: first delta and lse go to the workspace (_0), what is added to exponents in units of
 * log2. Then dk and dv are computed by blocks of keys, with the query heads of the group and their
 * queries in order (_1), then dq by blocks of queries (_2). The workspace is 16-byte aligned;
 * tensors need only the alignment of their element. */
#include "codegen/cuda/emit.h"

#include <math.h>
#include <stdio.h>

enum {
    ROWS_MULTIPLE = 128, /* workspace rows of a head: a multiple of every tile */
    PREPARE_ROWS = 32,   /* of a task of the first backward kernel */
    F32_ROWS = 32,
    F32_COLS = 16,
    MAX_D = 128,
    PAD = 8, /* elements between rows of a tile in shared memory */
};

typedef enum phase_kind { FORWARD, PREPARE, KEYS, QUERIES } phase_kind;

/* The shape of one kernel. */
typedef struct shape {
    int warps;
    int pieces; /* of 16 rows, that a warp has */
    int cols;   /* of a tile */
    int sub;    /* backward: columns that a warp takes at once */
    bool hold;  /* forward: the fragments of its rows stay in registers */
} shape;

static int64_t padded_rows(const f8_attention_desc *x)
{
    return f8_aligned(x->T, ROWS_MULTIPLE);
}

static int padded_d(const f8_attention_desc *x)
{
    return (int)(x->D + 15) / 16 * 16;
}

static shape shape_of(const f8_target *target, const f8_attention_desc *x, phase_kind kind)
{
    /* A mask wants registers: with larger tiles fragments spill (measured with NVRTC 13). So does
     * dropout, whose kept elements of a tile must fit one word (f8_att_keep). */
    const bool wants_registers = x->masking || x->dropout > 0;
    const bool narrow = x->D <= 64, large_tiles = target->shared_large && !wants_registers;
    const int cols = large_tiles ? 64 : 32;
    shape s = {.warps = 4, .pieces = 1, .cols = cols, .sub = cols};
    if (x->dtype == F8_F32) {
        s.cols = s.sub = F32_COLS;
    } else if (kind == FORWARD) {
        s.pieces = wants_registers && !narrow ? 1 : 2;
        s.cols = s.sub = narrow ? cols : 32;
        s.hold = narrow;
    } else if (kind != PREPARE) {
        s.pieces = narrow && large_tiles ? 2 : 1;
        s.sub = 32;
    }
    return s;
}

static int rows_of(const f8_attention_desc *x, phase_kind kind, const shape *s)
{
    if (kind == PREPARE)
        return PREPARE_ROWS;
    return x->dtype == F8_F32 ? F32_ROWS : s->warps * s->pieces * 16;
}

/* The rows of the workspace: lse or top, delta, rest. */
static int stats_of(const f8_attention_desc *x)
{
    return 1 + (int)f8_attention_lse_rows(x);
}

/* Bytes of shared memory: rows (forward: q; backward: two tensors), then two stages of two tensors'
 * columns, and for keys of the workspace's rows. */
static uint32_t shared_of(const f8_attention_desc *x, phase_kind kind, const shape *s)
{
    if (kind == PREPARE)
        return 0;
    if (x->dtype == F8_F32)
        return (uint32_t)(2 * F32_COLS * ((x->D + 3) / 4 * 4) * 4);
    const int pitch = (padded_d(x) + PAD) * 2, rows = rows_of(x, kind, s);
    const int stats = kind == KEYS ? 2 * stats_of(x) * s->cols * 4 : 0;
    return (uint32_t)((kind == FORWARD ? 1 : 2) * rows * pitch + 4 * s->cols * pitch + stats);
}

static int64_t tasks_of(const f8_attention_desc *x, phase_kind kind, const shape *s)
{
    const int64_t rows = rows_of(x, kind, s), all = kind == PREPARE ? padded_rows(x)
                                                    : kind == KEYS  ? x->Tk
                                                                    : x->T;
    return x->B * (kind == KEYS ? x->Hkv : x->H) * ((all + rows - 1) / rows);
}

/* ---- text ---- */

static void emit_constants(f8_text *t, const f8_attention_desc *x, phase_kind kind, const shape *s,
                           const char *symbol)
{
    const bool adds = x->masking == F8_MASK_ADD;
    const float factor = (float)(fabs((double)x->scale) * (adds ? 1 : 1.4426950408889634));
    f8_text_add(t, "\nstruct %s_shape {\n", symbol);
    f8_text_add(
        t,
        "    static constexpr int B = %lld, T = %lld, H = %lld, HKV = %lld, D = %lld, DP = %d;\n",
        (long long)x->B, (long long)x->T, (long long)x->H, (long long)x->Hkv, (long long)x->D,
        padded_d(x));
    f8_text_add(t, "    static constexpr int TK = %lld, ROW_N = %lld, COLUMN_N = %lld;\n",
                (long long)x->Tk, (long long)(kind == KEYS ? x->Tk : x->T),
                (long long)(kind == KEYS ? x->T : x->Tk));
    f8_text_add(t, "    static constexpr int TP = %lld, ROWS = %d;\n", (long long)padded_rows(x),
                rows_of(x, kind, s));
    f8_text_add(t,
                "    static constexpr int WARPS = %d, MT = %d, COLS = %d, SUB = %d, STATS = %d;\n",
                s->warps, s->pieces, s->cols, s->sub, stats_of(x));
    f8_text_add(
        t, "    static constexpr bool CAUSAL = %d, ROWS_ARE_KEYS = %d, HOLD = %d, NEGATIVE = %d;\n",
        x->causal, kind == KEYS, s->hold, x->scale < 0);
    /* scores are FACTOR times the product's, its sign changed when NEGATIVE; in units of log2,
     * unless a mask is added to them */
    f8_text_add(t, "    static constexpr float SCALE = %af, FACTOR = %af;\n", (double)x->scale,
                (double)factor);
    f8_text_add(t,
                "    static constexpr f8_i64 STRIDE_Q = %lld, STRIDE_K = %lld, STRIDE_V = %lld, ",
                (long long)x->stride.q, (long long)x->stride.k, (long long)x->stride.v);
    f8_text_add(t, "STRIDE_O = %lld,\n        STRIDE_DO = %lld, STRIDE_DQ = %lld, ",
                (long long)x->stride.o, (long long)x->stride.dout, (long long)x->stride.dq);
    f8_text_add(t, "STRIDE_DK = %lld, STRIDE_DV = %lld;\n", (long long)x->stride.dk,
                (long long)x->stride.dv);
    f8_text_add(t, "    typedef %s mask_type;\n    static constexpr int MASK = %d;\n",
                x->masking == F8_MASK_ADD ? "float" : "f8_u8", (int)x->masking);
    f8_text_add(t, "    static constexpr f8_i64 MASK_B = %lld, MASK_H = %lld, MASK_Q = %lld, ",
                (long long)x->mask.b, (long long)x->mask.h, (long long)x->mask.q);
    f8_text_add(t, "MASK_K = %lld;\n", (long long)x->mask.k);
    f8_text_add(t, "    static constexpr bool DROP = %d;\n", x->dropout > 0);
    f8_text_add(t,
                "    static constexpr f8_u32 STREAM = %uu, DROP_LIMIT = %uu;\n"
                "    static constexpr float DROP_FACTOR = %af;\n};\n",
                (unsigned)x->stream, (unsigned)f8_attention_drop_limit(x),
                (double)f8_attention_drop_factor(x));
}

static void emit_kernel(f8_text *t, const f8_target *target, const f8_attention_desc *x,
                        phase_kind kind, const char *symbol, f8_cuda_launch *launch, int64_t *tasks)
{
    static const char *const body[] = {"forward", "prepare", "keys", "queries"};
    const shape s = shape_of(target, x, kind);
    const char *type = x->dtype == F8_F32 ? "float" : "f8_u16";
    const bool backward = kind != FORWARD;
    snprintf(launch->symbol, sizeof launch->symbol, "%s", symbol);
    launch->threads = (uint32_t)s.warps * 32;
    launch->shared = shared_of(x, kind, &s);
    launch->n_args = (backward ? 10 : 6) + (x->masking != F8_MASK_NONE) + (x->dropout > 0);
    launch->n_ints = 0;
    *tasks = tasks_of(x, kind, &s);
    emit_constants(t, x, kind, &s, symbol);
    const char *mask = !x->masking                 ? ""
                       : x->masking == F8_MASK_ADD ? "    const float *mask;\n"
                                                   : "    const f8_u8 *mask;\n";
    const char *seed = x->dropout > 0 ? "    const f8_u32 *seed;\n" : "";
    f8_text_add(t, "struct %s_params {\n    const %s *q, *k, *v;\n", symbol, type);
    if (backward)
        f8_text_add(t,
                    "    const %s *o;\n    const float *lse;\n    const %s *dout;\n%s%s    %s *dq, "
                    "*dk, *dv;\n",
                    type, type, mask, seed, type);
    else
        f8_text_add(t, "%s%s    %s *o;\n    float *lse;\n", mask, seed, type);
    f8_text_add(t, "    float *workspace;\n    f8_i64 tasks;\n};\n");
    f8_text_add(t, "F8_KERNEL(%s, %u, 2)\n{\n", symbol, launch->threads);
    if (launch->shared)
        f8_text_add(t, "    F8_SHARED_DYNAMIC(room);\n");
    f8_text_add(t, "    f8_att_%s%s<%s_shape>(p%s);\n}\n",
                x->dtype == F8_F32 && kind != PREPARE ? "f32_" : "", body[kind], symbol,
                launch->shared ? ", room" : "");
}

/* ---- the interface ---- */

static f8_status check_sizes(const f8_attention_desc *x, f8_diag *d)
{
    F8_TRY(f8_attention_check_sizes(x, d));
    if (x->D > MAX_D)
        return f8_fail(d, F8_ERR_UNSUPPORTED, F8_NOWHERE,
                       "attention on CUDA takes heads of 1 to %d elements, not %lld: gradients of "
                       "longer ones do not fit in registers",
                       MAX_D, (long long)x->D);
    /* rows, blocks and heads are 32-bit integers in the kernels */
    if (x->T > INT32_MAX / 2 || x->Tk > INT32_MAX / 2 || x->B > INT32_MAX / x->H ||
        x->B * x->H > INT32_MAX / (padded_rows(x) / PREPARE_ROWS))
        return f8_fail(d, F8_ERR_UNSUPPORTED, F8_NOWHERE,
                       "attention on CUDA: %lld sequences of %lld tokens, %lld keys and %lld heads "
                       "are too many",
                       (long long)x->B, (long long)x->T, (long long)x->Tk, (long long)x->H);
    if (!isfinite(x->scale) || !(fabsf(x->scale) >= 0x1p-100f && fabsf(x->scale) <= 0x1p100f))
        return f8_fail(d, F8_ERR_UNSUPPORTED, F8_NOWHERE,
                       "attention on CUDA takes scales of 2^-100 to 2^100, not %g",
                       (double)x->scale);
    return F8_OK;
}

f8_status f8_cuda_attention_supports(const f8_target *target, const f8_attention_desc *x,
                                     f8_diag *d)
{
    if (target->kind != F8_TARGET_CUDA)
        return f8_fail(d, F8_ERR_UNSUPPORTED, F8_NOWHERE, "attention on CUDA: %s is no CUDA target",
                       target->name);
    if (x->dtype != F8_F32 && x->dtype != F8_BF16)
        return f8_fail(d, F8_ERR_UNSUPPORTED, F8_NOWHERE,
                       "attention on CUDA takes f32 and bf16, not %s", f8_dtype_name(x->dtype));
    return check_sizes(x, d);
}

int64_t f8_cuda_attention_workspace(const f8_attention_desc *x, bool backward)
{
    return backward ? stats_of(x) * 4 * x->B * x->H * padded_rows(x) : 0;
}

f8_status f8_cuda_attention_emit(f8_text *t, const f8_target *target, const f8_attention_desc *x,
                                 bool backward, const char *symbol, f8_cuda_attention *out,
                                 f8_diag *d)
{
    static const phase_kind phases[2][F8_CUDA_ATTENTION_PHASES] = {{FORWARD},
                                                                   {PREPARE, KEYS, QUERIES}};
    F8_TRY(f8_cuda_attention_supports(target, x, d));
    F8_TRY(f8_attention_check_strides(x, backward, d));
    *out = (f8_cuda_attention){.n = backward ? 3 : 1};
    f8_text_add(t, "%s%s", f8_cuda_attention_common, f8_cuda_attention_masks);
    if (x->dtype == F8_F32)
        f8_text_add(t, "%s", f8_cuda_attention_f32);
    if (backward)
        f8_text_add(t, "%s", f8_cuda_attention_backward);
    else if (x->dtype == F8_BF16)
        f8_text_add(t, "%s", f8_cuda_attention_forward);
    for (int i = 0; i < out->n; i++) {
        char name[sizeof out->launch[i].symbol];
        const int n = snprintf(name, sizeof name, "%s_%d", symbol, i);
        if (n < 0 || (size_t)n >= sizeof name)
            return f8_fail(d, F8_ERR_INTERNAL, F8_NOWHERE, "attention: symbol '%s' is too long",
                           symbol);
        emit_kernel(t, target, x, phases[backward][i], name, &out->launch[i], &out->tasks[i]);
    }
    return F8_OK;
}
