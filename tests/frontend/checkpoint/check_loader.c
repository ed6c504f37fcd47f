/* Files loaded into several programs, without the command: the account of each tensor, what is
 * wrong with files that do not fit, scales that are calibrated, and an export that is loaded back.
 */
#include "frontend/checkpoint/export.h"
#include "frontend/checkpoint/loader.h"
#include "tests/shared/api/api.h"
#include "tests/shared/api/cli.h"
#include "tests/shared/suite.h"

static fp8c_context *ctx;
static fp8c_module *module;
static char checkpoint[200], exported[200];

/* A checkpoint of initial values, which has no scales of `delayed`. */
static void begin(void)
{
    f8_cli_setup();
    const fp8c_compile_options o = recipe("bf16");
    ctx = new_context();
    module = parse(ctx, model);
    fp8c_program *p = compile(ctx, module, &o);
    snprintf(checkpoint, sizeof checkpoint, "%s", f8_cli_temp("w.safetensors"));
    snprintf(exported, sizeof exported, "%s", f8_cli_temp("e.safetensors"));
    ck_assert_int_eq(fp8c_program_initialize(p, 3), FP8C_OK);
    ck_assert_int_eq(fp8c_program_save(p, checkpoint, NULL), FP8C_OK);
    fp8c_program_destroy(p);
}

static void end(void)
{
    fp8c_module_destroy(module);
    fp8c_context_destroy(ctx);
    f8_cli_teardown();
}

static f8_loader opened(const char *path, const char *ignore)
{
    static const char *file, *pattern;
    const fp8c_load_options o = {.struct_size = sizeof o,
                                 .files = &file,
                                 .n_files = 1,
                                 .ignore = &pattern,
                                 .n_ignore = ignore != NULL};
    f8_loader l;
    f8_diag diag = {0};
    file = path;
    pattern = ignore;
    ck_assert_msg(f8_loader_open(&l, &o, 1, &diag) == F8_OK, "%s", diag.text);
    return l;
}

static fp8c_compile_options inference(const char *name)
{
    fp8c_compile_options o = recipe(name);
    o.inference = 1;
    return o;
}

static size_t taken(const f8_loader *l)
{
    return json_array_size(json_object_get(l->lists, "taken"));
}

START_TEST(accounts)
{
    const fp8c_compile_options o = inference("bf16");
    fp8c_program *p = compile(ctx, module, &o);
    f8_diag diag = {0};
    f8_loader l = opened(checkpoint, NULL);
    for (int again = 0; again < 2; again++) { /* a loader serves one program after another */
        ck_assert_int_eq(f8_loader_load(&l, p, &diag), FP8C_OK);
        ck_assert_uint_eq(taken(&l), 3);
        ck_assert_uint_eq(json_array_size(l.problems), 0);
    }
    json_t *record = f8_loader_record(&l, "bf16");
    ck_assert_str_eq(json_string_value(json_object_get(record, "event")), "weights");
    ck_assert_uint_eq(json_array_size(json_object_get(record, "taken")), 3);
    json_decref(record);
    f8_loader_close(&l);
    /* a tensor that is not there is a problem, not a message */
    l = opened(checkpoint, "fc.*");
    ck_assert_int_eq(f8_loader_load(&l, p, &diag), FP8C_ERR_INPUT);
    ck_assert_uint_eq(json_array_size(l.problems), 2);
    const json_t *first = json_array_get(l.problems, 0);
    ck_assert_str_eq(json_string_value(json_object_get(first, "fate")), "missing");
    ck_assert_str_eq(json_string_value(json_object_get(first, "name")), "fc.weight");
    ck_assert(!l.scales_missing);
    f8_loader_close(&l);
    fp8c_program_destroy(p);
}
END_TEST

static f8_status fill(void *user, fp8c_program *p, int eval, int64_t index, f8_diag *diag)
{
    int *batches = user;
    ck_assert_int_eq(index, (*batches)++);
    if (index == 3)
        return f8_fail(diag, F8_ERR_IO, F8_NOWHERE, "there is no batch 3");
    fill_batch(p, eval);
    return F8_OK;
}

START_TEST(observes)
{
    const fp8c_compile_options o = inference("delayed");
    fp8c_program *p = compile(ctx, module, &o);
    f8_diag diag = {0};
    int batches = 0;
    f8_loader l = opened(checkpoint, NULL);
    ck_assert_int_eq(f8_loader_load(&l, p, &diag), FP8C_ERR_INPUT);
    ck_assert(l.scales_missing);
    ck_assert_int_eq(f8_loader_observe(&l, module, &o, p, 2, fill, &batches, &diag), FP8C_OK);
    ck_assert(batches == 2 && l.batches == 2 && l.observer);
    diag = (f8_diag){0};
    ck_assert_msg(f8_loader_load(&l, p, &diag) == FP8C_OK, "%s", diag.text);
    ck_assert_ptr_null(l.observer);
    ck_assert_uint_eq(json_array_size(json_object_get(l.lists, "calibrated")), 1);
    /* a batch that can't be had ends it */
    batches = 0;
    ck_assert_int_eq(f8_loader_observe(&l, module, &o, p, 9, fill, &batches, &diag), FP8C_ERR_IO);
    ck_assert_str_eq(diag.text, "there is no batch 3");
    ck_assert_int_eq(l.batches, 0);
    f8_loader_close(&l);
    fp8c_program_destroy(p);
}
END_TEST

START_TEST(exports)
{
    static const char *const rules[] = {"\"head\" = bf16"};
    fp8c_compile_options o = inference("block");
    o.target = "reference";
    o.stored = "block";
    fp8c_program *p = compile(ctx, module, &o);
    f8_diag diag = {0};
    f8_load load;
    f8_stored stored;
    f8_export e = {
        .path = exported, .recipe = "block", .rules = rules, .n_rules = 1, .dtype = F8_ST_BF16};
    f8_loader l = opened(checkpoint, NULL);
    ck_assert_msg(f8_loader_quantize(&l, p, &load, &diag) == FP8C_OK, "%s", diag.text);
    ck_assert_msg(f8_export_write(&e, p, &load, &diag) == F8_OK, "%s", diag.text);
    f8_load_end(&load);
    f8_loader_close(&l);
    fp8c_program_destroy(p);
    ck_assert_int_eq(e.parameters, 3);
    ck_assert_int_eq(e.stored, 1); /* an embedding reads the head's weight as well */
    ck_assert_int_eq(e.bytes_before, 4 * (16 * 32 + 32 * 32 + 32));
    ck_assert_int_eq(e.bytes, 2 * (16 * 32 + 32) + 32 * 32 + 4);
    /* it says how it stores them, and a program that is compiled so takes it */
    l = opened(exported, NULL);
    ck_assert_str_eq(f8_weights_metadata(&l.files, "fp8c.rules"), "[\"\\\"head\\\" = bf16\"]");
    ck_assert_msg(f8_stored_read(&stored, &l.files, ctx, &diag) == F8_OK, "%s", diag.text);
    ck_assert_uint_eq(stored.n, 1);
    ck_assert_str_eq(stored.weight[0].name, "fc.weight");
    ck_assert_str_eq(stored.weight[0].recipe, "block");
    o = inference("block");
    o.stored_weights = stored.weight;
    o.n_stored_weights = stored.n;
    p = compile(ctx, module, &o);
    ck_assert_msg(f8_loader_load(&l, p, &diag) == FP8C_OK, "%s", diag.text);
    ck_assert_uint_eq(taken(&l), 4); /* with the scales */
    f8_stored_free(&stored);
    f8_loader_close(&l);
    fp8c_program_destroy(p);
}
END_TEST

static f8_status fill_bytes(void *user, size_t index, void *to, f8_diag *diag)
{
    (void)user, (void)index, (void)diag;
    memset(to, 0, 4);
    return F8_OK;
}

START_TEST(stored_that_is_not)
{
    static const struct {
        const char *value, *message;
    } cases[] = {{"[]", "is not a JSON object of weights and recipes"},
                 {"{}", "is not a JSON object of weights and recipes"},
                 {"{\"w\":3}", "of 'w': it has no recipe"},
                 {"{\"w\":\"nothing\"}", "of 'w': \nerror: no recipe 'nothing'"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const f8_st_tensor tensor = {.name = "w", .dtype = F8_ST_F32};
        const f8_st_pair pair = {"fp8c.stored", cases[i].value};
        const f8_st_contents contents = {
            .tensor = &tensor, .n = 1, .metadata = &pair, .n_metadata = 1, .fill = fill_bytes};
        f8_diag diag = {0};
        f8_stored stored;
        ck_assert_int_eq(f8_st_write(exported, &contents, NULL, &diag), F8_OK);
        f8_loader l = opened(exported, NULL);
        ck_assert_int_eq(f8_stored_read(&stored, &l.files, ctx, &diag), F8_ERR_INPUT);
        ck_assert_msg(strstr(diag.text, cases[i].message) != NULL, "%s", diag.text);
        f8_stored_free(&stored);
        f8_loader_close(&l);
    }
}
END_TEST

Suite *f8_suite(void)
{
    Suite *suite = suite_create("loader");
    TCase *tc = tcase_create("loader");
    tcase_set_timeout(tc, TIMEOUT);
    tcase_add_checked_fixture(tc, begin, end);
    tcase_add_test(tc, accounts);
    tcase_add_test(tc, observes);
    tcase_add_test(tc, exports);
    tcase_add_test(tc, stored_that_is_not);
    suite_add_tcase(suite, tc);
    return suite;
}
