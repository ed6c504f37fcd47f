/* GEMMs to tune: what one is, as text and in bytes; lists. See gemms.h. */
#include "frontend/tune/gemms.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

const char *const f8_tune_how_name[F8_TUNE_KINDS] = {
#define X(kind, name, ...) name,
    F8_TUNE_HOWS(X)
#undef X
};

static const char *const words[F8_TUNE_KINDS][F8_TUNE_WORDS + 1] = {
#define X(kind, name, ...) {__VA_ARGS__},
    F8_TUNE_HOWS(X)
#undef X
};

const char *f8_tune_word(int kind, int index)
{
    return words[kind][index];
}

int f8_tune_find_word(int kind, const char *word, size_t length)
{
    for (int i = 0; words[kind][i]; i++)
        if (strlen(words[kind][i]) == length && !memcmp(words[kind][i], word, length))
            return i;
    return -1;
}

const char *f8_tune_list_words(int kind, char text[F8_TUNE_LISTED])
{
    size_t n = 0;
    for (int i = 0; words[kind][i]; i++)
        if (*words[kind][i])
            n += (size_t)snprintf(text + n, F8_TUNE_LISTED - n, "%s%s", n ? ", " : "",
                                  words[kind][i]);
    return text;
}

const char f8_tune_formats[] = "f32, bf16, f8e4m3 or f8e5m2, or two of them, as f8e5m2xf8e4m3";

static bool operand_dtype(const char *text, size_t length, f8_dtype *out)
{
    *out = f8_dtype_by_name(text, length);
    return *out == F8_F32 || *out == F8_BF16 || f8_dtype_is_fp8(*out);
}

bool f8_tune_format(const char *text, size_t length, f8_dtype *a, f8_dtype *b)
{
    const char *x = memchr(text, 'x', length);
    const size_t first = x ? (size_t)(x - text) : length;
    if (!operand_dtype(text, first, a))
        return false;
    *b = *a;
    return !x || operand_dtype(x + 1, length - first - 1, b);
}

void f8_tune_transposed(const f8_tune_gemm *g, bool transposed[2])
{
    static const char *const usual[] = {[F8_TUNE_NO_ROLE] = "nt",
                                        [F8_TUNE_FPROP] = "nt",
                                        [F8_TUNE_DGRAD] = "nn",
                                        [F8_TUNE_WGRAD] = "tn"};
    const int own = g->how[F8_TUNE_LAYOUT];
    const char *layout = own ? words[F8_TUNE_LAYOUT][own] : usual[g->how[F8_TUNE_ROLE]];
    for (int i = 0; i < 2; i++)
        transposed[i] = layout[i] == 't';
}

const char *f8_tune_impossible(const f8_tune_gemm *g)
{
    const bool fp8 = f8_dtype_is_fp8(g->a);
    if (fp8 != f8_dtype_is_fp8(g->b) || (!fp8 && g->a != g->b))
        return "the formats of two operands are the same, or FP8 both";
    if (!fp8 && g->how[F8_TUNE_SCALING])
        return "only FP8 formats have scales";
    return NULL;
}

const char *f8_tune_gemm_text(const f8_tune_gemm *g, char text[F8_TUNE_GEMM_TEXT])
{
    int n = snprintf(text, F8_TUNE_GEMM_TEXT, "%" PRId64 "x%" PRId64 "x%" PRId64 ":%s", g->m, g->n,
                     g->k, f8_dtype_name(g->a));
    if (g->b != g->a)
        n += snprintf(text + n, (size_t)(F8_TUNE_GEMM_TEXT - n), "x%s", f8_dtype_name(g->b));
    for (int kind = 0; kind < F8_TUNE_KINDS; kind++)
        if (g->how[kind])
            n += snprintf(text + n, (size_t)(F8_TUNE_GEMM_TEXT - n), ":%s",
                          words[kind][g->how[kind]]);
    return text;
}

double f8_tune_gemm_bytes(const f8_tune_gemm *g)
{
    static const double scale[] = {[F8_TUNE_TENSOR] = 0,
                                   [F8_TUNE_ROW] = 0,
                                   [F8_TUNE_BLOCK] = 4. / 128,
                                   [F8_TUNE_MX] = 1. / 32};
    const double m = (double)g->m, n = (double)g->n, k = (double)g->k,
                 more = scale[g->how[F8_TUNE_SCALING]];
    const int epilogue = g->how[F8_TUNE_EPILOGUE];
    const double result = epilogue == F8_TUNE_F32 ? 4 : epilogue == F8_TUNE_ACCUMULATE ? 8 : 2;
    return m * k * ((double)f8_dtype_size(g->a) + more) +
           n * k * ((double)f8_dtype_size(g->b) + more) + m * n * result;
}

f8_status f8_tune_gemms_add(f8_tune_gemms *list, const f8_tune_gemm *g, f8_diag *diag)
{
    if (list->n == F8_TUNE_MOST_GEMMS)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE, "more than %d GEMMs", F8_TUNE_MOST_GEMMS);
    f8_tune_gemm *grown =
        f8_arena_grow(&list->arena, list->gemm, list->n, &list->room, list->n + 1, sizeof *grown);
    if (grown) {
        list->gemm = grown;
        grown[list->n] = *g;
        grown[list->n].name = f8_arena_strdup(&list->arena, g->name ? g->name : "");
        list->n++;
    }
    return f8_arena_status(&list->arena, diag);
}
