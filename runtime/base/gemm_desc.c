/* Descriptions of GEMMs as text and back: see gemm_desc.h. */
#include "runtime/base/gemm_desc.h"

#include <inttypes.h>
#include <stdio.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { F64_MOST = 1 << 14 }; /* multiplications; runtime/cpu/README.md says why */

bool f8_gemm_sums_in_f64(const f8_gemm_desc *d)
{
    const bool f32 = (d->a == F8_F32 && !d->round_a) || (d->b == F8_F32 && !d->round_b);
    return f32 && !d->has_alpha && (double)d->m * (double)d->n * (double)d->k < F64_MOST;
}

const char *f8_gemm_algorithm_name(uint32_t id)
{
    switch (id) {
#define X(e, id, name, what) \
    case id:                 \
        return name;
        F8_GEMM_ALGORITHMS(X)
#undef X
    }
    return "?";
}

/* The rows of an operand as it is stored, its row stride, and the stride of a batch. */
static void extents(const f8_gemm_desc *d, int which, int64_t *rows, int64_t *ld, int64_t *stride)
{
    *rows = which == F8_GEMM_A   ? (d->trans_a ? d->k : d->m)
            : which == F8_GEMM_B ? (d->trans_b ? d->n : d->k)
                                 : d->m;
    *ld = which == F8_GEMM_A ? d->lda : which == F8_GEMM_B ? d->ldb : d->ldc;
    *stride = which == F8_GEMM_A ? d->stride_a : which == F8_GEMM_B ? d->stride_b : d->stride_c;
}

bool f8_gemm_batch_ok(const f8_gemm_desc *d)
{
    int64_t rows, ld, stride, far, all;
    if (d->batch < 2)
        return d->batch >= 0 && !d->stride_a && !d->stride_b && !d->stride_c;
    if (d->batch > INT32_MAX || d->has_alpha || d->bias || d->accumulate)
        return false;
    for (int i = F8_GEMM_A; i <= F8_GEMM_C; i++) {
        extents(d, i, &rows, &ld, &stride);
        if (__builtin_mul_overflow(rows, ld, &all) ||
            (stride < all && (stride || i == F8_GEMM_C)) ||
            __builtin_mul_overflow(d->batch, stride > all ? stride : all, &far) ||
            __builtin_mul_overflow(far, 8, &far))
            return false;
    }
    return true;
}

int64_t f8_gemm_elements(const f8_gemm_desc *d, int which)
{
    int64_t rows, ld, stride;
    extents(d, which, &rows, &ld, &stride);
    return (f8_gemm_batch(d) - 1) * stride + rows * ld;
}

bool f8_gemm_tuning_equal(const f8_gemm_tuning *x, const f8_gemm_tuning *y)
{
    return x->algorithm == y->algorithm && x->m_block == y->m_block &&
           x->n_block == y->n_block && x->share == y->share &&
           x->packed == y->packed && !memcmp(&x->lt, &y->lt, sizeof x->lt); /* it has no padding */
}

bool f8_gemm_tuning_again(const f8_gemm_tuning *all, int i)
{
    for (int k = 0; k < i; k++)
        if (f8_gemm_tuning_equal(&all[k], &all[i]))
            return true;
    return false;
}

/* ---- texts ---- */

void f8_gemm_problem_text(const f8_gemm_desc *d, char text[F8_GEMM_PROBLEM_TEXT])
{
    char a[48], b[48];
    int n = snprintf(text, F8_GEMM_PROBLEM_TEXT,
                     "gemm %" PRId64 "x%" PRId64 "x%" PRId64
                     " %s%s%s x %s%s%s -> %s%s strides %" PRId64 " %" PRId64 " %" PRId64,
                     d->m, d->n, d->k, f8_dtype_name(d->a), d->trans_a ? ".t" : "",
                     d->round_a ? ".round" : "", f8_dtype_name(d->b), d->trans_b ? ".t" : "",
                     d->round_b ? ".round" : "", f8_dtype_name(d->c),
                     d->accumulate ? " add"
                     : d->bias     ? " bias"
                                   : "",
                     d->lda, d->ldb, d->ldc);
    if (d->has_alpha)
        n += snprintf(text + n, (size_t)(F8_GEMM_PROBLEM_TEXT - n), " scales %s %s %s %s",
                      f8_dtype_name(d->scale), f8_granularity_print(d->scale_a, a, sizeof a),
                      f8_granularity_print(d->scale_b, b, sizeof b),
                      f8_scale_layout_name(d->scale_layout));
    if (d->batch > 1)
        n += snprintf(text + n, (size_t)(F8_GEMM_PROBLEM_TEXT - n),
                      " batch %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64, d->batch, d->stride_a,
                      d->stride_b, d->stride_c);
    if (d->fast_accumulate)
        snprintf(text + n, (size_t)(F8_GEMM_PROBLEM_TEXT - n), " fast");
}

static const struct {
    const char *word;
    size_t at; /* in an f8_cublaslt_config */
} lt_fields[] = {
#define X(field, word, attribute, type) {word, offsetof(f8_cublaslt_config, field)},
    F8_CUBLASLT_CONFIG(X)
#undef X
};
enum { N_LT_FIELDS = sizeof lt_fields / sizeof *lt_fields };

static uint32_t *lt_field(f8_cublaslt_config *c, int i)
{
    return (uint32_t *)(void *)((char *)c + lt_fields[i].at);
}

static const char *const shares[] = {"", " share a", " share b"};

void f8_gemm_candidate_text(const f8_gemm_desc *d, uint32_t model, char text[F8_CANDIDATE_TEXT])
{
    const f8_gemm_tuning *t = &d->tuning;
    const f8_gemm_tuning none = {0};
    f8_cublaslt_config lt = t->lt;
    int n = 0;
    text[0] = 0;
    if (d->algorithm != model || lt.id)
        n = snprintf(text, F8_CANDIDATE_TEXT, " %s", f8_gemm_algorithm_name(d->algorithm));
    if (f8_gemm_tuning_equal(t, &none)) {
        if (!n)
            snprintf(text, F8_CANDIDATE_TEXT, " model");
    } else if (lt.id) {
        n += snprintf(text + n, (size_t)(F8_CANDIDATE_TEXT - n), " %u", lt.id);
        for (int i = 0; i < N_LT_FIELDS; i++)
            n += snprintf(text + n, (size_t)(F8_CANDIDATE_TEXT - n), " %s %u", lt_fields[i].word,
                          *lt_field(&lt, i));
    } else {
        if (t->m_block)
            n += snprintf(text + n, (size_t)(F8_CANDIDATE_TEXT - n), " m %u", t->m_block);
        if (t->n_block)
            n += snprintf(text + n, (size_t)(F8_CANDIDATE_TEXT - n), " n %u", t->n_block);
        snprintf(text + n, (size_t)(F8_CANDIDATE_TEXT - n), "%s%s",
                 shares[t->share <= F8_GEMM_SHARE_B ? t->share : 0], t->packed ? " packed" : "");
    }
    memmove(text, text + 1, strlen(text)); /* the space before the first word */
}

/* Copies the next word of *at and moves *at behind it. False if there is no word or it does not
 * fit. */
static bool next_word(const char **at, char word[24])
{
    size_t n = strcspn(*at, " ");
    if (!n || n >= 24)
        return false;
    memcpy(word, *at, n);
    word[n] = 0;
    *at += n;
    *at += **at == ' ' && (*at)[1] != 0;
    return true;
}

static bool next_number(const char **at, uint32_t most, uint32_t *out)
{
    char word[24], *end;
    if (!next_word(at, word) || word[0] < '0' || word[0] > '9')
        return false;
    const unsigned long long x = strtoull(word, &end, 10);
    *out = (uint32_t)x;
    return !*end && x <= most;
}

/* "66 tile 15 stages 35 ..." */
static bool parse_lt(const char **at, f8_gemm_tuning *t)
{
    f8_cublaslt_config lt = {0};
    char word[24];
    if (!next_number(at, INT32_MAX, &lt.id) || !lt.id)
        return false;
    for (int i = 0; i < N_LT_FIELDS; i++)
        if (!next_word(at, word) || strcmp(word, lt_fields[i].word) ||
            !next_number(at, INT32_MAX, lt_field(&lt, i)))
            return false;
    t->lt = lt;
    return true;
}

static bool parse_block(const char **at, uint32_t most, uint16_t *out)
{
    uint32_t size;
    if (!next_number(at, most, &size) || !size || size % 16)
        return false;
    *out = (uint16_t)size;
    return true;
}

static bool parse_word(const char *word, const char **at, f8_gemm_desc *d)
{
    f8_gemm_tuning *t = &d->tuning;
    char side[24];
    if (!strcmp(word, "model"))
        return true;
    if (!strcmp(word, "m"))
        return parse_block(at, F8_GEMM_M_MOST, &t->m_block);
    if (!strcmp(word, "n"))
        return parse_block(at, F8_GEMM_N_MOST, &t->n_block);
    if (!strcmp(word, "packed"))
        return t->packed = true;
    if (!strcmp(word, "share")) {
        if (!next_word(at, side) || (strcmp(side, "a") && strcmp(side, "b")))
            return false;
        t->share = side[0] == 'a' ? F8_GEMM_SHARE_A : F8_GEMM_SHARE_B;
        return true;
    }
    static const uint32_t ids[] = {F8_GEMM_ONEDNN_F32, F8_GEMM_ONEDNN_BF16, F8_GEMM_F64,
                                   F8_GEMM_CUBLASLT};
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++)
        if (!strcmp(word, f8_gemm_algorithm_name(ids[i]))) {
            d->algorithm = ids[i];
            return ids[i] != F8_GEMM_CUBLASLT || parse_lt(at, t);
        }
    return false;
}

bool f8_gemm_candidate_parse(const char *text, f8_gemm_desc *desc)
{
    f8_gemm_desc d = *desc;
    char word[24];
    if (!*text)
        return false;
    d.tuning = (f8_gemm_tuning){0};
    while (*text)
        if (!next_word(&text, word) || !parse_word(word, &text, &d))
            return false;
    *desc = d;
    return true;
}
