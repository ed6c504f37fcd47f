/* GEMMs as the command line has them: see gemms.h. */
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/tune/gemms.h"
#include "ir/base/format.h"

enum { MOST_FORMATS = 16 };

/* A text that is read, and what it has so far. */
typedef struct spec {
    const char *text, *at;
    f8_tune_gemms *list;
    int64_t *size[3];
    size_t n_sizes[3], room[3];
    f8_dtype format[MOST_FORMATS][2];
    int n_formats;
    uint8_t word[F8_TUNE_KINDS][F8_TUNE_WORDS];
    int n_words[F8_TUNE_KINDS]; /* 0: the kind is not named */
    f8_diag *diag;
} spec;

__attribute__((format(printf, 3, 4))) static f8_status wrong(const spec *s, const char *at,
                                                             const char *format, ...)
{
    char why[256];
    va_list args;
    va_start(args, format);
    f8_vformat(why, sizeof why, format, args);
    va_end(args);
    return f8_fail(s->diag, F8_ERR_INPUT, F8_NOWHERE,
                   "GEMM '%s' is not MxNxK:FORMAT, as 2048x768x3072:f8e4m3: at character %d, %s",
                   s->text, (int)(at - s->text) + 1, why);
}

/* What stands at `at` until the end of its part, for a message. */
static int part_length(const char *at)
{
    return (int)strcspn(at, ",:");
}

static f8_status read_size(spec *s, int64_t *out)
{
    char *end;
    const char *at = s->at;
    if (!isdigit((unsigned char)*at))
        return wrong(s, at, "a size is missing");
    *out = strtoll(at, &end, 10);
    s->at = end;
    if (*out < 1 || *out > INT32_MAX)
        return wrong(s, at, "%.*s is not a size from 1 to %d", (int)(end - at), at, INT32_MAX);
    return F8_OK;
}

static f8_status add_size(spec *s, int axis, const char *at, int64_t size)
{
    if (s->n_sizes[axis] == F8_TUNE_MOST_GEMMS)
        return wrong(s, at, "there are more than %d sizes", F8_TUNE_MOST_GEMMS);
    int64_t *grown = f8_arena_grow(&s->list->arena, s->size[axis], s->n_sizes[axis], &s->room[axis],
                                   s->n_sizes[axis] + 1, sizeof *grown);
    if (!grown)
        return f8_arena_status(&s->list->arena, s->diag);
    s->size[axis] = grown;
    grown[s->n_sizes[axis]++] = size;
    return F8_OK;
}

/* size = N | N ".." N "*" N | N ".." N "+" N */
static f8_status read_range(spec *s, int axis)
{
    const char *begin = s->at;
    int64_t first, last, by;
    F8_TRY(read_size(s, &first));
    if (strncmp(s->at, "..", 2))
        return add_size(s, axis, begin, first);
    s->at += 2;
    F8_TRY(read_size(s, &last));
    const char *step = s->at;
    if (*step != '*' && *step != '+')
        return wrong(s, step, "a range needs *N or +N behind it, as 1..4096*2");
    s->at++;
    F8_TRY(read_size(s, &by));
    if (*step == '*' && by == 1)
        return wrong(s, step, "a range that is multiplied by 1 never ends");
    if (last < first)
        return wrong(s, begin, "the range begins above its end");
    for (int64_t size = first; size <= last; size = *step == '*' ? size * by : size + by)
        F8_TRY(add_size(s, axis, begin, size));
    return F8_OK;
}

/* sizes "x" sizes "x" sizes ":" */
static f8_status read_sizes(spec *s)
{
    for (int axis = 0; axis < 3; axis++) {
        do
            F8_TRY(read_range(s, axis));
        while (*s->at == ',' && s->at++);
        const char next = axis < 2 ? 'x' : ':';
        if (*s->at != next)
            return wrong(s, s->at, "'%c' is missing", next);
        s->at++;
    }
    return F8_OK;
}

/* formats = format { "," format } */
static f8_status read_formats(spec *s)
{
    do {
        const int n = part_length(s->at);
        f8_dtype *to = s->format[s->n_formats];
        if (!f8_tune_format(s->at, (size_t)n, &to[0], &to[1]))
            return wrong(s, s->at, "'%.*s' is not %s", n, s->at, f8_tune_formats);
        const f8_tune_gemm g = {.a = to[0], .b = to[1]};
        if (f8_tune_impossible(&g))
            return wrong(s, s->at, "%s", f8_tune_impossible(&g));
        if (++s->n_formats == MOST_FORMATS)
            return wrong(s, s->at, "there are more than %d formats", MOST_FORMATS - 1);
        s->at += n;
    } while (*s->at == ',' && s->at++);
    return F8_OK;
}

static int kind_of(const char *word, size_t length, int *index)
{
    for (int kind = 0; kind < F8_TUNE_KINDS && length; kind++)
        if ((*index = f8_tune_find_word(kind, word, length)) >= 0)
            return kind;
    return F8_TUNE_KINDS;
}

static f8_status no_word(const spec *s, int length)
{
    char list[F8_TUNE_LISTED], all[4 * F8_TUNE_LISTED];
    size_t n = 0;
    for (int kind = 0; kind < F8_TUNE_KINDS; kind++)
        n += (size_t)snprintf(all + n, sizeof all - n, "%s%s (%s)",
                              !kind                      ? ""
                              : kind < F8_TUNE_KINDS - 1 ? ", "
                                                         : " or ",
                              f8_tune_how_name[kind], f8_tune_list_words(kind, list));
    return wrong(s, s->at, "'%.*s' is no %s", length, s->at, all);
}

/* hows = how { "," how } */
static f8_status read_hows(spec *s)
{
    int of = F8_TUNE_KINDS;
    do {
        int index = -1;
        const int n = part_length(s->at), kind = kind_of(s->at, (size_t)n, &index);
        if (kind == F8_TUNE_KINDS)
            return no_word(s, n);
        if (of != F8_TUNE_KINDS && kind != of)
            return wrong(s, s->at, "'%.*s' is no %s, as the words before it in this list are", n,
                         s->at, f8_tune_how_name[of]);
        if (of == F8_TUNE_KINDS && s->n_words[kind])
            return wrong(s, s->at, "the %s is given twice", f8_tune_how_name[kind]);
        for (int i = 0; i < s->n_words[kind]; i++)
            if (s->word[kind][i] == index)
                return wrong(s, s->at, "'%.*s' is given twice", n, s->at);
        of = kind;
        s->word[kind][s->n_words[kind]++] = (uint8_t)index;
        s->at += n;
    } while (*s->at == ',' && s->at++);
    return F8_OK;
}

/* Append a GEMM. In a list of scalings those that its format can't have are passed over, but for
 * the first: bf16 is one GEMM there. */
static f8_status add(spec *s, f8_tune_gemm *g, const int index[F8_TUNE_KINDS])
{
    for (int kind = 0; kind < F8_TUNE_KINDS; kind++)
        g->how[kind] = s->word[kind][index[kind]];
    if (!f8_dtype_is_fp8(g->a) && s->n_words[F8_TUNE_SCALING] > 1) {
        if (index[F8_TUNE_SCALING])
            return F8_OK;
        g->how[F8_TUNE_SCALING] = F8_TUNE_TENSOR;
    }
    const char *why = f8_tune_impossible(g);
    return why ? wrong(s, s->at, "%s", why) : f8_tune_gemms_add(s->list, g, s->diag);
}

/* Append one size and format in every way that is listed. */
static f8_status add_hows(spec *s, f8_tune_gemm *g)
{
    int index[F8_TUNE_KINDS] = {0};
    for (int kind = 0; kind >= 0;) {
        F8_TRY(add(s, g, index));
        for (kind = F8_TUNE_KINDS - 1; kind >= 0 && ++index[kind] >= s->n_words[kind]; kind--)
            index[kind] = 0;
    }
    return F8_OK;
}

static f8_status add_all(spec *s)
{
    f8_tune_gemm g = {.count = 1};
    for (size_t i = 0; i < s->n_sizes[0]; i++)
        for (size_t j = 0; j < s->n_sizes[1]; j++)
            for (size_t l = 0; l < s->n_sizes[2]; l++)
                for (int f = 0; f < s->n_formats; f++) {
                    g.m = s->size[0][i];
                    g.n = s->size[1][j];
                    g.k = s->size[2][l];
                    g.a = s->format[f][0];
                    g.b = s->format[f][1];
                    F8_TRY(add_hows(s, &g));
                }
    return F8_OK;
}

f8_status f8_tune_gemms_parse(f8_tune_gemms *list, const char *text, f8_diag *diag)
{
    spec s = {.text = text, .at = text, .list = list, .diag = diag};
    F8_TRY(read_sizes(&s));
    F8_TRY(read_formats(&s));
    while (*s.at == ':') {
        s.at++;
        F8_TRY(read_hows(&s));
    }
    for (int kind = 0; kind < F8_TUNE_KINDS; kind++)
        s.n_words[kind] += !s.n_words[kind]; /* its default, word 0 */
    return add_all(&s);
}
