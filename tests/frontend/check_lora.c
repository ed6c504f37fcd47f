/* LoRA over a base that is stored as FP8 codes: the gradients of the adapters are those over the
 * values that the codes stand for, in f32, but for what FP8 rounds in the step. */
#include <math.h>

#include "ir/num/fp8.h"
#include "tests/shared/api/lora_case.h"
#include "tests/shared/suite.h"

static const char *const recipes[] = {"delayed", "current", "rowwise", "block", "mxfp8", "bf16"};
static const char *const stored[] = {"delayed", "current", "rowwise", "block", "mxfp8", "block"};
enum { N_RECIPES = sizeof recipes / sizeof *recipes };

/* Which scale of `n` along an axis of `size` elements belongs to element i. */
static int64_t scale_at(int64_t i, int64_t n, int64_t size, bool mx)
{
    return n == 1 ? 0 : n == size ? i : i / (mx ? 32 : 128);
}

static float scale_value(const void *scales, int64_t i, bool mx)
{
    return mx ? f8_decode(F8_E8M0, ((const uint8_t *)scales)[i]) : ((const float *)scales)[i];
}

/* The values that a stored weight's codes stand for, f32, which the caller frees. */
static float *values_of(fp8c_program *p, const fp8c_stored *s)
{
    fp8c_variable codes, scales;
    size_t n[2];
    fp8c_program_variable(p, s->variable, &codes);
    fp8c_program_variable(p, s->scale_variable, &scales);
    const int64_t rows = codes.type.dim[0], cols = codes.type.dim[1],
                  down = scales.type.rank ? scales.type.dim[0] : 1,
                  across = scales.type.rank ? scales.type.dim[1] : 1;
    const bool mx = scales.type.dtype == FP8C_F8E8M0;
    uint8_t *code = lora_read(p, codes.name, &n[0]);
    void *scale = lora_read(p, scales.name, &n[1]);
    float *value = malloc(sizeof *value * (size_t)(rows * cols));
    for (int64_t i = 0; i < rows * cols; i++) {
        const int64_t at =
            scale_at(i / cols, down, rows, mx) * across + scale_at(i % cols, across, cols, mx);
        value[i] = f8_decode(F8_E4M3, code[i]) * scale_value(scale, at, mx);
    }
    free(code);
    free(scale);
    return value;
}

/* A program with the same parameters, whose base has the values, all in f32. */
static fp8c_program *over_values(fp8c_context *ctx, fp8c_program *p)
{
    fp8c_program *f32 = lora_open(ctx, (fp8c_compile_options){.recipe = "f32"});
    fp8c_stored s;
    fp8c_variable v;
    for (int i = 0; fp8c_program_stored(p, i, &s) == FP8C_OK; i++) {
        float *value = values_of(p, &s);
        fp8c_program_variable(p, s.variable, &v);
        ck_assert_int_eq(fp8c_program_write(f32, fp8c_program_find_variable(f32, v.name), value),
                         FP8C_OK);
        free(value);
    }
    return f32;
}

/* Puts 1 / scale in the place of the first scale of base.down. */
static void invert(fp8c_program *p)
{
    fp8c_stored s;
    fp8c_variable v;
    size_t n;
    ck_assert_int_eq(fp8c_program_stored(p, 1, &s), FP8C_OK);
    fp8c_program_variable(p, s.scale_variable, &v);
    void *scales = lora_read(p, v.name, &n);
    if (v.type.dtype == FP8C_F8E8M0)
        *(uint8_t *)scales = (uint8_t)(254 - *(uint8_t *)scales);
    else
        *(float *)scales = 1 / *(float *)scales;
    ck_assert_int_eq(fp8c_program_write(p, s.scale_variable, scales), FP8C_OK);
    free(scales);
}

/* The least cosine of an adapter's gradient in one program to that in the other. */
static double least_cosine(fp8c_program *p, fp8c_program *f32)
{
    double least = 1;
    lora_run(p, "micro_step", 3);
    lora_run(f32, "micro_step", 3);
    for (int k = 0; k < LORA_TRAINED; k++) {
        char name[64];
        size_t n[2] = {0, 0};
        snprintf(name, sizeof name, "grad.%s", lora_trained[k]);
        float *a = lora_read(p, name, &n[0]), *b = lora_read(f32, name, &n[1]);
        ck_assert(a && b && n[0] == n[1]);
        double ab = 0, aa = 0, bb = 0;
        for (size_t i = 0; i < n[0] / sizeof *a; i++) {
            ab += (double)a[i] * (double)b[i];
            aa += (double)a[i] * (double)a[i];
            bb += (double)b[i] * (double)b[i];
        }
        const double cosine = ab / sqrt(aa * bb);
        least = cosine >= least ? least : cosine; /* a NaN is the least */
        free(a);
        free(b);
    }
    return least;
}

START_TEST(gradients)
{
    fp8c_context *ctx = new_context();
    const fp8c_compile_options o = {.recipe = recipes[_i], .stored = stored[_i]};
    fp8c_program *p = lora_open(ctx, o), *f32 = over_values(ctx, p), *wrong = lora_open(ctx, o);
    invert(wrong);
    const double cosine = least_cosine(p, f32), control = least_cosine(wrong, f32);
    ck_assert_msg(cosine >= 0.99, "%s: a cosine of %.5f", recipes[_i], cosine);
    ck_assert_msg(!(control >= 0.99), "%s: a cosine of %.5f with a scale inverted", recipes[_i],
                  control);
    fp8c_program_destroy(p);
    fp8c_program_destroy(f32);
    fp8c_program_destroy(wrong);
    fp8c_context_destroy(ctx);
}
END_TEST

/* Adapters learn: over the same batch the loss falls, and the base keeps its codes. */
START_TEST(learns)
{
    fp8c_context *ctx = new_context();
    fp8c_program *p =
        lora_open(ctx, (fp8c_compile_options){.recipe = "delayed", .stored = "delayed"});
    const float first = lora_run(p, "micro_step", 1);
    float loss = first;
    for (int i = 0; i < 30; i++) {
        lora_update(p);
        loss = lora_run(p, "micro_step", 1);
    }
    ck_assert_msg(loss < 0.5f * first, "a loss of %g, then of %g", (double)first, (double)loss);
    fp8c_program_destroy(p);
    fp8c_context_destroy(ctx);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("lora");
    TCase *t = tcase_create("lora");
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_loop_test(t, gradients, 0, N_RECIPES);
    tcase_add_test(t, learns);
    suite_add_tcase(s, t);
    return s;
}
