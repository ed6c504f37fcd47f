/* Guards of a program on a GPU (or in the emulator): scales are read in every 10th step alone, and
 * what is not finite is found in device memory, without a trace. */
#include <math.h>

#include "frontend/fp8c_diagnose.h"
#include "tests/shared/api/api.h"
#include "tests/shared/cuda/gpu.h"
#include "tests/shared/suite.h"

enum { WEIGHT = 3 };

/* That of api.h with 16 rows, which FP8 GEMMs of a GPU take without padding. */
static const char *wide_model(void)
{
    static char text[sizeof model + 8];
    const char *from = model, *at;
    *text = 0;
    while ((at = strstr(from, "i32[8]"))) {
        strncat(text, from, (size_t)(at - from));
        strcat(text, "i32[16]");
        from = at + 6;
    }
    return strcat(text, from);
}

static fp8c_program *new_program(fp8c_context *ctx)
{
    fp8c_compile_options o = recipe("delayed");
    o.target = "cuda";
    fp8c_module *m = parse(ctx, wide_model());
    fp8c_program *p = compile(ctx, m, &o);
    ck_assert_int_eq(fp8c_program_initialize(p, 1), FP8C_OK);
    fp8c_module_destroy(m);
    return p;
}

static void write_one(fp8c_program *p, const char *name, int64_t index, float value)
{
    float all[2048];
    fp8c_variable v;
    const int at = fp8c_program_find_variable(p, name);
    ck_assert_int_eq(fp8c_program_variable(p, at, &v), FP8C_OK);
    ck_assert(!v.data && fp8c_type_bytes(&v.type) <= (int64_t)sizeof all);
    ck_assert_int_eq(fp8c_program_read(p, at, all), FP8C_OK);
    all[index] = value;
    ck_assert_int_eq(fp8c_program_write(p, at, all), FP8C_OK);
}

START_TEST(scales_in_every_tenth_step)
{
    fp8c_context *ctx = new_context();
    fp8c_program *p = new_program(ctx);
    fp8c_guard *g;
    fp8c_alarm a = {.struct_size = sizeof a};
    ck_assert_int_eq(fp8c_guard_create(ctx, NULL, &g), FP8C_OK);
    for (int t = 1; t <= 40; t++) {
        const fp8c_guard_facts facts = {
            .struct_size = sizeof facts, .step = t, .loss = 2, .grad_norm = 1, .program = p};
        if (t == 21)
            write_one(p, "fp8.scale", 1, 0);
        ck_assert_int_eq(fp8c_guard_step(g, &facts), FP8C_OK);
        ck_assert((fp8c_guard_alarm(g, 0, &a) == FP8C_OK) == (t == 30));
    }
    ck_assert_int_eq(a.kind, FP8C_ALARM_SCALE);
    ck_assert_str_eq(a.tensor,
                     fp8c_program_element(p, fp8c_program_find_variable(p, "fp8.scale"), 1, 0));
    fp8c_guard_destroy(g);
    fp8c_program_destroy(p);
    fp8c_context_destroy(ctx);
}
END_TEST

START_TEST(found)
{
    fp8c_context *ctx = new_context();
    fp8c_program *p = new_program(ctx);
    const int step = fp8c_program_function(p, "micro_step");
    fp8c_found f = {.struct_size = sizeof f};
    float before[32], after[32];
    train_step(p);
    const int v = fp8c_program_find_variable(p, "grad.fc.bias");
    ck_assert_int_eq(fp8c_program_read(p, v, before), FP8C_OK);
    ck_assert_int_eq(fp8c_program_find_nonfinite(p, step, 1, &f), FP8C_OK);
    ck_assert_ptr_null(f.tensor);
    ck_assert_int_eq(fp8c_program_read(p, v, after), FP8C_OK);
    ck_assert(!memcmp(before, after, sizeof after));
    write_one(p, "grad.fc.bias", 5, INFINITY);
    ck_assert_int_eq(fp8c_program_find_nonfinite(p, step, 0, &f), FP8C_OK);
    ck_assert_pstr_eq(f.tensor, "grad.fc.bias");
    ck_assert(f.index == 5 && isinf(f.value) && f.nonfinite == 1);
    write_one(p, "fc.weight", WEIGHT, NAN);
    ck_assert_int_eq(fp8c_program_find_nonfinite(p, step, 0, &f), FP8C_OK);
    ck_assert_pstr_eq(f.tensor, "fc.weight");
    ck_assert_int_eq(f.index, WEIGHT);
    fp8c_program_destroy(p);
    fp8c_context_destroy(ctx);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("cuda_guard");
    TCase *t = tcase_create("cuda_guard");
    f8_test_gpu_emulated();
    tcase_set_timeout(t, 120);
    tcase_add_test(t, scales_in_every_tenth_step);
    tcase_add_test(t, found);
    suite_add_tcase(s, t);
    return s;
}
