/* Quantizing on the host (ir/num/quantize.h) against the graph that the compiler makes,
 * interpreted: the same scales and codes, bit for bit, NaNs by class. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/text/parse.h"
#include "ir/num/fp8.h"
#include "ir/num/quantize.h"
#include "tests/shared/passes/primitive.h"
#include "tests/shared/random.h"
#include "tests/shared/suite.h"

enum { MOST = 300 * 300 };

static const char *const grains[] = {"tensor", "row", "column", "block(1,128)", "block(128,1)",
                                     "block(128,128)", "block(1,32)", "block(32,1)"};
enum { GRAINS = sizeof grains / sizeof *grains };

static const struct {
    int64_t rows, cols;
} shapes[] = {{1, 1}, {1, 128}, {3, 129}, {64, 96}, {130, 257}, {300, 40}};

typedef struct tensor {
    int64_t rows, cols;
    float x[MOST];
} tensor;

static float adverse(uint32_t *state, int kind)
{
    const float u = (float)test_random(state) * 0x1p-23f - 1;
    switch (kind) {
    case 0: return u;
    case 1:
        return u * ldexpf(1, (int)(test_random(state) % 250) -
                                 140); /* every magnitude, denormals too */
    case 2: return test_random(state) % 50 ? 0 : u;                      /* blocks of nothing */
    case 3: return test_random(state) % 97 ? u : INFINITY;
    default: return test_random(state) % 89 ? u * 1e-42f : NAN;
    }
}

/* The graph's: amax -> scale -> codes, as passes/scale/scaling.c writes it. */
static void graph(const tensor *t, const f8_quantizer *q, const char *grain, float *amax,
                  float *scale, float *inv, uint8_t *codes)
{
    char text[1500];
    const bool blocks = f8_granularity_has_blocks(q->grain);
    const char *format = f8_dtype_name(q->format);
    snprintf(text, sizeof text,
             "module m\nfunc forward(%%x: f32[%lld, %lld]) -> (%%a: f32[1], %%s: f32[1], %%i: "
             "f32[1], %%q: %s[%lld, %lld]) {\n"
             "  %%a = amax(%%x) {granularity = \"%s\"}\n"
             "%s"
             "  %%q = quantize(%%x, %%s) {format = %s, granularity = \"%s\"}\n"
             "  return %%a, %%s, %%i, %%q\n}\n",
             (long long)t->rows, (long long)t->cols, format, (long long)t->rows, (long long)t->cols,
             grain,
             q->mx ? q->format == F8_E4M3 ? "  %e = quantize(%a, 0.002232142857142857) {format = "
                                            "f8e8m0, saturate = false}\n"
                                            "  %i = cast(%e) {to = f32}\n  %s = div(1, %i)\n"
                                          : "  %e = quantize(%a, 1.743861607142857e-05) {format = "
                                            "f8e8m0, saturate = false}\n"
                                            "  %i = cast(%e) {to = f32}\n  %s = div(1, %i)\n"
                   : "@",
             format, blocks ? grain : "broadcast");
    char whole[2000], *at = strchr(text, '@');
    if (at) {
        *at = 0;
        snprintf(whole, sizeof whole,
                 "%s  %%s = fp8_scale(%%a) {format = %s, margin = %d, pow2 = %s}\n"
                 "  %%i = add(div(1, %%s), sub(%%a, %%a))\n%s",
                 text, format, (int)q->margin, q->pow2 ? "true" : "false", at + 1);
    } else {
        snprintf(whole, sizeof whole, "%s", text);
    }
    /* the results' shapes follow from the grain: write them in */
    const f8_type like = {.dtype = F8_F32, .rank = 2, .dim = {t->rows, t->cols}};
    const f8_type s = f8_granularity_type(q->grain, &like, F8_F32);
    char shape[160], full[3000];
    f8_type_print(&s, shape, sizeof shape);
    full[0] = 0;
    for (const char *p = whole; *p;) {
        const char *hole = strstr(p, "f32[1]");
        if (!hole) {
            strcat(full, p);
            break;
        }
        strncat(full, p, (size_t)(hole - p));
        strcat(full, shape);
        p = hole + strlen("f32[1]");
    }
    f8_arena arena;
    f8_diag diag = {0};
    f8_module *m;
    f8_arena_init(&arena, NULL);
    f8_parse(full, strlen(full), "t", NULL, 0, &arena, &diag, &m);
    ck_assert_msg(m, "%u:%u %s\n%s", diag.loc.line, diag.loc.column, diag.text, full);
    const void *in[] = {t->x};
    void *out[] = {amax, scale, inv, codes};
    ck_assert_msg(test_reference_run(&m->func[0], in, out, &diag) == F8_OK, "%s", diag.text);
    f8_arena_end(&arena);
}

static bool same(float a, float b)
{
    return f8_bits(a) == f8_bits(b) || (isnan(a) && isnan(b));
}

static tensor input;
static float amax[2][MOST], scale[2][MOST], inv[2][MOST], back[MOST];
static uint8_t codes[2][MOST];

static void compare(const f8_quantizer *q, const char *grain, int kind)
{
    const int64_t n = f8_quantizer_scales(q, input.rows, input.cols), all = input.rows * input.cols;
    graph(&input, q, grain, amax[0], scale[0], inv[0], codes[0]);
    f8_matrix_amax(q->grain, input.x, input.rows, input.cols, amax[1]);
    f8_scales_of(q, amax[1], n, scale[1], inv[1]);
    f8_matrix_encode(q, input.x, input.rows, input.cols, scale[1], codes[1]);
    for (int64_t i = 0; i < n; i++)
        ck_assert_msg(same(amax[0][i], amax[1][i]) && same(scale[0][i], scale[1][i]) &&
                          same(inv[0][i], inv[1][i]),
                      "%s, kind %d, scale %lld: amax %a and %a, scale %a and %a, inverse %a and %a",
                      grain, kind, (long long)i, (double)amax[0][i], (double)amax[1][i],
                      (double)scale[0][i], (double)scale[1][i], (double)inv[0][i],
                      (double)inv[1][i]);
    for (int64_t i = 0; i < all; i++)
        ck_assert_msg(codes[0][i] == codes[1][i], "%s, kind %d, element %lld (%a): %02x and %02x",
                      grain, kind, (long long)i, (double)input.x[i], codes[0][i], codes[1][i]);
}

/* Without the codes: what decoding them gives, and counts of them. */
static void dequantized(const f8_quantizer *q)
{
    f8_quantize_error e = {0};
    const int64_t all = input.rows * input.cols, cols = f8_granularity_columns(
        q->grain, &(f8_type){.rank = 2, .dim = {input.rows, input.cols}});
    int64_t underflow = 0;
    f8_matrix_dequantized(q, input.x, input.rows, input.cols, scale[1], inv[1], back, &e);
    for (int64_t i = 0; i < all; i++) {
        const int64_t at = f8_granularity_block(q->grain.rows, i / input.cols) * cols +
                           f8_granularity_block(q->grain.cols, i % input.cols);
        const float want = f8_decode(q->format, codes[1][i]) * inv[1][at];
        ck_assert_msg(back[i] == want, "element %lld (%a): %a is not %a", (long long)i,
                      (double)input.x[i], (double)back[i], (double)want);
        underflow += input.x[i] != 0 && (codes[1][i] & 0x7f) == 0;
    }
    ck_assert_int_eq(e.n, all);
    ck_assert_int_eq(e.underflow, underflow);
    ck_assert_int_eq(e.overflow, 0);
}

START_TEST(same_as_the_graph)
{
    uint32_t state = 20 + (uint32_t)_i;
    printf("seed %u\n", state);
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int kind = 0; kind < 5; kind++) {
            input.rows = shapes[s].rows;
            input.cols = shapes[s].cols;
            for (int64_t i = 0; i < input.rows * input.cols; i++)
                input.x[i] = adverse(&state, kind);
            f8_quantizer q = {.format = test_random(&state) % 2 ? F8_E4M3 : F8_E5M2,
                              .pow2 = test_random(&state) % 2,
                              .margin = (int64_t)(test_random(&state) % 3)};
            ck_assert(f8_granularity_parse(grains[_i], &q.grain));
            compare(&q, grains[_i], kind);
            if (kind < 3)
                dequantized(&q);
            q.mx = true;
            q.pow2 = false;
            q.margin = 0;
            compare(&q, grains[_i], kind);
            if (kind < 3)
                dequantized(&q);
        }
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("quantize");
    TCase *t = tcase_create("host");
    tcase_set_timeout(t, 900);
    tcase_add_loop_test(t, same_as_the_graph, 0, GRAINS);
    suite_add_tcase(s, t);
    return s;
}
