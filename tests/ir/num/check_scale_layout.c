/* Layouts of scales for cuBLASLt, against the formulas of its documentation, which are written out
 * here from memory offset to scale; and scaled_matmul over such arrays, in the interpreter. */
#include "codegen/reference/reference.h"
#include "frontend/text/parse.h"
#include "ir/num/fp8.h"
#include "ir/num/scale_layout.h"
#include "tests/shared/random.h"
#include "tests/shared/suite.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- where each scale lies ---- */

typedef struct layout_case {
    f8_dtype dtype;
    int64_t block, across; /* along k (0: all), and across it */
    int64_t outer, k;
} layout_case;

static const layout_case cases[] = {
    {F8_F32, 0, 0, 48, 80},       {F8_F32, 0, 1, 48, 80},     {F8_F32, 0, 1, 1, 16},
    {F8_F32, 128, 1, 48, 80},     {F8_F32, 128, 1, 16, 640},  {F8_F32, 128, 1, 130, 300},
    {F8_F32, 128, 128, 130, 300}, {F8_F32, 128, 128, 48, 80}, {F8_F32, 128, 128, 384, 1024},
    {F8_E8M0, 32, 1, 48, 80},     {F8_E8M0, 32, 1, 128, 128}, {F8_E8M0, 32, 1, 400, 784},
};
enum { N_CASES = sizeof cases / sizeof *cases };

/* The numbers of the grid, [across, along k], where cuBLASLt wants them: walks the array and writes
 * down which scale belongs to each offset, -1 where none does. Returns its length. */
static int64_t expected(const layout_case *c, int64_t *scale, int64_t room)
{
    const int64_t along = c->block ? (c->k + c->block - 1) / c->block : 1;
    const int64_t across = c->across ? (c->outer + c->across - 1) / c->across : 1;
    int64_t n = 0;
    if (c->dtype == F8_E8M0) {
        const int64_t tiles_k = (along + 3) / 4, tiles = (across + 127) / 128 * tiles_k;
        ck_assert_int_le(tiles * 512, room);
        for (; n < tiles * 512; n++) {
            const int64_t offset = n % 512, tile = n / 512;
            const int64_t outer = offset % 16 / 4 * 32 + offset / 16 + tile / tiles_k * 128;
            const int64_t inner = offset % 4 + tile % tiles_k * 4;
            scale[n] = outer < across && inner < along ? outer * along + inner : -1;
        }
        return n;
    }
    if (c->block && c->across == 1) { /* the outer axis runs fastest */
        for (int64_t l = 0; l < along; l++)
            for (int64_t o = 0; o < across; o++)
                scale[n++] = o * along + l;
        return n;
    }
    for (int64_t o = 0; o < across; o++) { /* k runs fastest, its length a multiple of 4 in tiles */
        for (int64_t l = 0; l < along; l++)
            scale[n++] = o * along + l;
        while (c->block && n % 4)
            scale[n++] = -1;
    }
    return n;
}

static f8_scales scales_of(const layout_case *c, bool k_is_rows)
{
    return (f8_scales){.grain = k_is_rows ? (f8_granularity){c->block, c->across}
                                          : (f8_granularity){c->across, c->block},
                       .dtype = c->dtype,
                       .k_is_rows = k_is_rows};
}

static f8_type codes_of(const layout_case *c, bool k_is_rows)
{
    return (f8_type){.dtype = F8_E4M3,
                     .rank = 2,
                     .dim = {k_is_rows ? c->k : c->outer, k_is_rows ? c->outer : c->k}};
}

START_TEST(scales_lie_as_documented)
{
    enum { ROOM = 1 << 14 };
    static int64_t want[ROOM];
    const layout_case *c = &cases[_i / 2];
    const bool k_is_rows = _i % 2;
    const f8_scales s = scales_of(c, k_is_rows);
    const f8_type codes = codes_of(c, k_is_rows);
    const int64_t n = expected(c, want, ROOM);
    const int64_t along = c->block ? (c->k + c->block - 1) / c->block : 1;
    f8_type t;
    ck_assert(f8_scale_layout_type(F8_SCALES_CUBLASLT, &s, &codes, &t));
    ck_assert_int_eq(f8_type_elements(&t), n);
    ck_assert_int_eq(t.dtype, c->dtype);
    const int64_t across = c->across ? (c->outer + c->across - 1) / c->across : 1;
    for (int64_t o = 0; o < c->outer; o++)
        for (int64_t k = 0; k < c->k; k++) {
            const int64_t at = f8_scale_layout_at(F8_SCALES_CUBLASLT, &s, &codes, o, k);
            const int64_t grid = f8_scale_layout_at(F8_SCALES_GRID, &s, &codes, o, k);
            const int64_t l = c->block ? k / c->block : 0, p = c->across ? o / c->across : 0;
            if (at < 0 || at >= n || want[at] != p * along + l ||
                grid != (k_is_rows ? l * across + p : p * along + l))
                ck_abort_msg("[%d, %d]: at %d, in the grid at %d", (int)o, (int)k, (int)at,
                             (int)grid);
        }
}
END_TEST

/* ---- a product over them ---- */

typedef struct operand {
    layout_case c;
    bool k_is_rows;
    uint8_t *codes;
    float *scale; /* [across, along] */
    void *array;  /* the same in the layout, padding NaN */
    int64_t along;
} operand;

static operand make_operand(const layout_case *c, bool k_is_rows, uint32_t *seed)
{
    enum { ROOM = 1 << 14 };
    static int64_t at[ROOM];
    operand x = {.c = *c, .k_is_rows = k_is_rows};
    const int64_t n = expected(c, at, ROOM), size = c->outer * c->k;
    const int64_t across = c->across ? (c->outer + c->across - 1) / c->across : 1;
    x.along = c->block ? (c->k + c->block - 1) / c->block : 1;
    x.codes = malloc((size_t)size);
    x.scale = malloc((size_t)(x.along * across) * sizeof *x.scale);
    x.array = malloc((size_t)n * 4);
    for (int64_t i = 0; i < size; i++)
        x.codes[i] =
            (uint8_t)f8_encode(F8_E4M3, (float)(test_random(seed) % 1000) * 0.01f - 5, true);
    for (int64_t i = 0; i < x.along * across; i++)
        x.scale[i] = c->dtype == F8_E8M0 ? ldexpf(1, (int)(test_random(seed) % 9) - 4)
                                         : 0.25f + (float)(test_random(seed) % 1000) * 0.003f;
    for (int64_t i = 0; i < n; i++) {
        const float v = at[i] < 0 ? NAN : x.scale[at[i]];
        if (c->dtype == F8_E8M0)
            ((uint8_t *)x.array)[i] = (uint8_t)f8_encode(F8_E8M0, v, false);
        else
            ((float *)x.array)[i] = v;
    }
    return x;
}

static double value_of(const operand *x, int64_t o, int64_t k)
{
    const uint8_t code = x->codes[x->k_is_rows ? k * x->c.outer + o : o * x->c.k + k];
    const int64_t p = x->c.across ? o / x->c.across : 0, l = x->c.block ? k / x->c.block : 0;
    return (double)f8_decode(F8_E4M3, code) * (double)x->scale[p * x->along + l];
}

static void free_operand(operand *x)
{
    free(x->codes);
    free(x->scale);
    free(x->array);
}

static void declare(char *to, size_t size, const char *name, const operand *x)
{
    char type[160];
    const f8_scales s = scales_of(&x->c, x->k_is_rows);
    const f8_type codes = codes_of(&x->c, x->k_is_rows);
    f8_type t;
    ck_assert(f8_scale_layout_type(F8_SCALES_CUBLASLT, &s, &codes, &t));
    snprintf(to, size, "%%q%s: f8e4m3[%d, %d], %%s%s: %s", name, (int)codes.dim[0],
             (int)codes.dim[1], name, f8_type_print(&t, type, sizeof type));
}

/* What runs in a test: text with the types and granularities of two operands. */
static void multiply(const operand *a, const operand *b, float *out)
{
    char pa[256], pb[256], ga[48], gb[48], text[1024];
    declare(pa, sizeof pa, "a", a);
    declare(pb, sizeof pb, "b", b);
    snprintf(text, sizeof text,
             "module m\nfunc f(%s, %s) -> (%%y: f32[%d, %d]) {\n  return scaled_matmul(%%qa, %%sa, "
             "%%qb, "
             "%%sb) {transpose_a = %s, transpose_b = %s, scale_a = \"%s\", scale_b = \"%s\", "
             "scale_layout = "
             "\"cublaslt\"}\n}\n",
             pa, pb, (int)a->c.outer, (int)b->c.outer, a->k_is_rows ? "true" : "false",
             b->k_is_rows ? "false" : "true",
             f8_granularity_print(scales_of(&a->c, a->k_is_rows).grain, ga, sizeof ga),
             f8_granularity_print(scales_of(&b->c, b->k_is_rows).grain, gb, sizeof gb));
    f8_arena arena;
    f8_diag diag = {0};
    f8_module *m = NULL;
    f8_arena_init(&arena, NULL);
    f8_parse(text, strlen(text), "t", NULL, 0, &arena, &diag, &m);
    ck_assert_msg(m, "%s\n%s", diag.text, text);
    const void *const in[] = {a->codes, a->array, b->codes, b->array};
    void *const result[] = {out};
    ck_assert_msg(f8_reference_run(&m->func[0], in, result, NULL, &diag) == F8_OK, "%s", diag.text);
    f8_arena_end(&arena);
}

static const struct {
    layout_case a, b;
} pairs[] = {
    {{F8_F32, 0, 1, 19, 300}, {F8_F32, 0, 1, 21, 300}},
    {{F8_F32, 128, 1, 19, 300}, {F8_F32, 128, 128, 140, 300}},
    {{F8_F32, 128, 128, 140, 300}, {F8_F32, 128, 1, 9, 300}},
    {{F8_E8M0, 32, 1, 140, 300}, {F8_E8M0, 32, 1, 35, 300}},
};
enum { N_PAIRS = sizeof pairs / sizeof *pairs };

/* Padding is never read: it is NaN here. */
START_TEST(products_over_the_layout)
{
    uint32_t seed = 77u + (uint32_t)_i;
    operand a = make_operand(&pairs[_i / 4].a, _i & 1, &seed),
            b = make_operand(&pairs[_i / 4].b, _i & 2, &seed);
    const int64_t m = a.c.outer, n = b.c.outer;
    float *got = malloc((size_t)(m * n) * sizeof *got);
    multiply(&a, &b, got);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            double sum = 0, absolute = 0;
            for (int64_t k = 0; k < a.c.k; k++) {
                sum += value_of(&a, i, k) * value_of(&b, j, k);
                absolute += fabs(value_of(&a, i, k) * value_of(&b, j, k));
            }
            if (!(fabs((double)got[i * n + j] - sum) <= absolute * 0x1p-23))
                ck_abort_msg("[%d, %d]: %g, not %g", (int)i, (int)j, (double)got[i * n + j], sum);
        }
    free(got);
    free_operand(&a);
    free_operand(&b);
}
END_TEST

/* ---- what is refused ---- */

static const struct {
    const char *in, *attrs, *message;
} refused[] = {
    {"%a: f8e4m3[32, 64], %s: f32[], %b: f8e4m3[64, 16], %t: f32[]", "scale_layout = \"cublas\"",
     "scale_layout = \"cublas\" is neither grid nor cublaslt"},
    {"%a: f8e4m3[32, 256], %s: f32[32, 2], %b: f8e4m3[256, 16], %t: f32[2, 16]",
     "scale_a = \"block(1,128)\", scale_b = \"block(128,1)\", scale_layout = \"cublaslt\"",
     "operand 2 must be f32[2, 32]"},
    {"%a: f8e4m3[32, 64], %s: f8e8m0[32, 1], %b: f8e4m3[64, 16], %t: f8e8m0[1, 16]",
     "scale_a = \"row\", scale_b = \"column\", scale_layout = \"cublaslt\"",
     "with scale_layout = \"cublaslt\" f8e8m0 scales must be runs along k"},
};

START_TEST(refusals)
{
    char text[512];
    snprintf(text, sizeof text,
             "module m\nfunc f(%s) -> (%%y: f32[32, 16]) {\n  return scaled_matmul(%%a, %%s, %%b, "
             "%%t) {%s}\n}\n",
             refused[_i].in, refused[_i].attrs);
    f8_arena arena;
    f8_diag diag = {0};
    f8_module *m = NULL;
    f8_arena_init(&arena, NULL);
    f8_parse(text, strlen(text), "t", NULL, 0, &arena, &diag, &m);
    ck_assert_msg(!m && strstr(diag.text, refused[_i].message), "%s", diag.text);
    f8_arena_end(&arena);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("scale_layout");
    TCase *t = tcase_create("scale_layout");
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, scales_lie_as_documented, 0, 2 * N_CASES);
    tcase_add_loop_test(t, products_over_the_layout, 0, 4 * N_PAIRS);
    tcase_add_loop_test(t, refusals, 0, sizeof refused / sizeof *refused);
    suite_add_tcase(s, t);
    return s;
}
