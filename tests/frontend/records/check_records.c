/* Records as JSON: what the rows of records.def make of a struct, what programs give, and JSON
 * Lines. */
#include <math.h>

#include "frontend/records/records.h"
#include "tests/shared/api/api.h"
#include "tests/shared/suite.h"

static void is(json_t *record, const char *want)
{
    char *text = json_dumps(record, JSON_COMPACT | JSON_PRESERVE_ORDER);
    ck_assert_ptr_nonnull(text);
    ck_assert_str_eq(text, want);
    free(text);
    json_decref(record);
}

START_TEST(rows)
{
    const fp8c_decision d = {.linear = "fc",
                             .role = "fprop",
                             .format_a = "a",
                             .format_b = "b",
                             .scaling = "tensor",
                             .reason = "it is so",
                             .m = 1,
                             .n = 2,
                             .k = (int64_t)1 << 40,
                             .count = 3,
                             .fp8 = 1};
    is(f8_record_decision(json_object(), &d),
       "{\"event\":\"decision\",\"gemm\":\"fc\",\"role\":\"fprop\",\"format\":[\"a\",\"b\"],"
       "\"scaling\":\"tensor\",\"reason\":\"it is so\",\"m\":1,\"n\":2,\"k\":1099511627776,"
       "\"count\":3,\"fp8\":true}");
    /* a hash is a text, a number that JSON lacks is null, and so is a text that is not there */
    const fp8c_step s = {.kind = "kernel", .name = "k", .hash = 0xabc, .seconds = NAN};
    is(f8_record_step(json_pack("{ss}", "function", "eval"), &s),
       "{\"event\":\"kernel\",\"function\":\"eval\",\"kind\":\"kernel\",\"name\":\"k\",\"phases\":"
       "0,"
       "\"hash\":\"0000000000000abc\",\"seconds\":null,\"bytes_read\":0,\"bytes_written\":0}");
    const fp8c_fact f = {.group = "CPU", .name = "level", .value = "x86-64-v4"};
    is(f8_record_fact(json_object(), &f),
       "{\"event\":\"fact\",\"group\":\"CPU\",\"name\":\"level\",\"value\":\"x86-64-v4\","
       "\"advice\":null}");
    const fp8c_variable v = {.name = "w", .type = {FP8C_BF16, 2, {3, 4}}, .is_param = 1};
    is(f8_record_variable(json_object(), &v),
       "{\"event\":\"variable\",\"name\":\"w\",\"type\":\"bf16[3, 4]\",\"bytes\":24,"
       "\"parameter\":true}");
}
END_TEST

/* A field that can't be made gives no record: half of one would be taken for the whole. */
START_TEST(no_half_record)
{
    const fp8c_fact f = {.group = "CPU", .name = "\xff", .value = "not UTF-8"};
    ck_assert_ptr_null(f8_record_fact(json_object(), &f));
    ck_assert_ptr_null(f8_record_fact(NULL, &(fp8c_fact){.group = "", .name = "", .value = ""}));
    ck_assert_ptr_null(f8_record_lines(NULL));
}
END_TEST

START_TEST(lines)
{
    char *text = f8_record_lines(json_pack("[{si}{}]", "a", 1));
    ck_assert_str_eq(text, "{\"a\":1}\n{}\n");
    free(text);
    text = f8_record_lines(json_array());
    ck_assert_str_eq(text, "");
    free(text);
}
END_TEST

static int64_t count(const json_t *record, const char *name)
{
    const json_t *value = json_object_get(record, name);
    ck_assert_msg(json_is_integer(value), "no number '%s'", name);
    return json_integer_value(value);
}

/* What is counted is what the API lists, and a target without a plan has no memory. */
START_TEST(programs)
{
    fp8c_context *ctx = new_context();
    fp8c_module *m = parse(ctx, model);
    fp8c_compile_options o = recipe("current");
    fp8c_program *p = compile(ctx, m, &o);
    const int step = fp8c_program_function(p, "micro_step");
    int64_t kernels = 0, gemms = 0, phases = 0;
    fp8c_step s;
    for (int i = 0; fp8c_program_step(p, step, i, &s) == FP8C_OK; i++) {
        kernels += !strcmp(s.kind, "kernel");
        phases += strcmp(s.kind, "kernel") ? 0 : s.phases;
        gemms += !strcmp(s.kind, "gemm");
    }
    json_t *launches = f8_launches(p, step), *plan = f8_record_plan(p), *memory;
    ck_assert_int_gt(kernels, 0);
    ck_assert_int_gt(gemms, 0);
    ck_assert_int_eq(count(launches, "kernels"), kernels);
    ck_assert_int_eq(count(launches, "GEMMs"), gemms);
    ck_assert_int_eq(count(json_object_get(plan, "launches"), "kernels"), phases);
    ck_assert_int_eq(count(plan, "gemms_excluded"), f8_gemms_excluded(p));
    ck_assert_int_gt(f8_gemms_excluded(p), 0); /* those of the head */
    ck_assert(f8_record_memory(p, step, "current", 7, &memory));
    ck_assert_int_eq(count(memory, "parameters"), 7);
    ck_assert_int_gt(count(json_object_get(memory, "bytes"), "parameters"), 0);
    json_decref(memory);
    json_decref(plan);
    json_decref(launches);
    fp8c_program_destroy(p);
    o.target = "reference";
    p = compile(ctx, m, &o);
    ck_assert(!f8_record_memory(p, fp8c_program_function(p, "micro_step"), "current", 7, &memory));
    fp8c_program_destroy(p);
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
}
END_TEST

/* The seconds that step `index` of the function has taken. */
static double seconds_of(const fp8c_program *p, int function, int index)
{
    fp8c_step s;
    ck_assert_int_eq(fp8c_program_step(p, function, index, &s), FP8C_OK);
    return s.seconds;
}

static double four_turns(const void *user, int function)
{
    (void)user;
    (void)function;
    return 4;
}

/* A profile leaves out the first run of a function, which is slower, and all of a form that runs in
 * the first turn alone. */
START_TEST(first_run)
{
    fp8c_context *ctx = new_context();
    fp8c_module *m = parse(ctx, model);
    fp8c_compile_options o = recipe("delayed");
    f8_profile profile;
    fp8c_step s;
    o.profile = 1;
    fp8c_program *p = compile(ctx, m, &o);
    const int step = fp8c_program_function(p, "micro_step"),
              update = fp8c_program_function(p, "update"),
              form = fp8c_program_function(p, "micro_step.first");
    ck_assert_int_eq(fp8c_program_initialize(p, 1), FP8C_OK);
    double first = 0, second = 0, fourth = 0;
    for (int turn = 0; turn < 4; turn++) {
        ck_assert_int_eq(fp8c_program_run(p, step), FP8C_OK);
        ck_assert_int_eq(fp8c_program_run(p, update), FP8C_OK);
        first = turn ? first : seconds_of(p, update, 0);
        second = turn == 1 ? seconds_of(p, step, 0) : second;
    }
    fourth = seconds_of(p, update, 0);
    ck_assert_double_gt(first, 0);
    ck_assert_double_eq_tol(f8_step_mean(p, update, 0, 4), (fourth - first) / 3, 1e-12);
    ck_assert_double_eq_tol(f8_step_mean(p, update, 0, 1), fourth, 1e-12); /* there is no other */
    ck_assert_int_ge(form, 0);
    ck_assert_double_gt(seconds_of(p, form, 0), 0);
    ck_assert_int_eq(f8_profile_make(p, four_turns, NULL, -1, "turn", 4, &profile, &(f8_diag){0}),
                     F8_OK);
    bool found = false;
    for (size_t i = 0; i < profile.n_rows; i++) {
        const f8_profile_row *r = &profile.row[i];
        ck_assert_int_ne(r->at[0], form);
        if (r->at[0] != step || r->at[1] != 0)
            continue;
        found =
            true; /* micro_step has run in the last three turns alone, which this is a mean of */
        ck_assert_int_eq(fp8c_program_step(p, step, 0, &s), FP8C_OK);
        ck_assert_double_eq_tol(r->seconds, (s.seconds - second) / 3 * 4 / 3, 1e-12);
    }
    ck_assert(found);
    f8_profile_free(&profile);
    fp8c_program_destroy(p);
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *suite = suite_create("records");
    TCase *tc = tcase_create("records");
    tcase_set_timeout(tc, TIMEOUT);
    tcase_add_test(tc, rows);
    tcase_add_test(tc, no_half_record);
    tcase_add_test(tc, lines);
    tcase_add_test(tc, programs);
    tcase_add_test(tc, first_run);
    suite_add_tcase(suite, tc);
    return suite;
}
