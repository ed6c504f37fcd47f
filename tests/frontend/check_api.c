/* The public API: versions, programs and their ports, memory that runs out at any allocation, and
 * contexts on several threads. check_builder.c tests building modules and misuse. */
#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "frontend/fp8c_diagnose.h"
#include "tests/shared/api/api.h"
#include "tests/shared/suite.h"

/* ---- versions ---- */

START_TEST(versions)
{
    int major, minor, patch, end = 0;
    ck_assert_int_eq(sscanf(fp8c_version(), "%d.%d.%d%n", &major, &minor, &patch, &end), 3);
    ck_assert_int_eq(fp8c_version()[end], 0);
    ck_assert_int_eq(10000 * major + 100 * minor + patch,
                     FP8C_VERSION_NUMBER); /* header and library are of one build */
}
END_TEST

/* ---- programs ---- */

/* Every index past the last ends a loop, with no message and no crash. */
START_TEST(walking)
{
    fp8c_context *ctx = new_context();
    fp8c_module *m = parse(ctx, model);
    const fp8c_compile_options o = recipe("delayed");
    fp8c_program *p = compile(ctx, m, &o);
    fp8c_module_destroy(m); /* a program is independent of its module */
    fp8c_port port;
    fp8c_variable v;
    fp8c_decision d;
    fp8c_step s;
    fp8c_pass pass;
    fp8c_info info = {.struct_size = sizeof info};
    int functions = 0, variables = 0, params = 0, decisions = 0, fp8 = 0;
    for (; fp8c_program_function_name(p, functions); functions++) {
        ck_assert_int_eq(fp8c_program_function(p, fp8c_program_function_name(p, functions)),
                         functions);
        for (int side = 0; side < 2; side++)
            for (int i = 0; fp8c_program_port(p, functions, side, i, &port) == FP8C_OK; i++) {
                ck_assert_int_eq(fp8c_program_find_port(p, functions, side, port.name), i);
                const void *buffer = fp8c_program_buffer(p, functions, side, i);
                ck_assert_msg(!buffer == (port.variable >= 0) && (uintptr_t)buffer % 64 == 0, "%s",
                              port.name);
            }
        const fp8c_side neither = (fp8c_side)7;
        fp8c_tensor_view view;
        ck_assert_int_eq(fp8c_program_port(p, functions, neither, 0, &port), FP8C_ERR_INPUT);
        ck_assert_int_eq(fp8c_program_find_port(p, functions, neither, "tokens"), -1);
        ck_assert_ptr_null(fp8c_program_buffer(p, functions, neither, 0));
        ck_assert_int_eq(fp8c_program_bind(p, functions, neither, 0, NULL), FP8C_ERR_INPUT);
        ck_assert_int_eq(fp8c_program_port_view(p, functions, neither, 0, &view), FP8C_ERR_INPUT);
        for (int i = 0; fp8c_program_step(p, functions, i, &s) == FP8C_OK; i++)
            ck_assert(s.name && s.kind && s.bytes_read >= 0);
    }
    for (; fp8c_program_variable(p, variables, &v) == FP8C_OK; variables++) {
        ck_assert(v.name && v.data && fp8c_type_bytes(&v.type) > 0);
        params += v.is_param;
    }
    for (; fp8c_program_decision(p, decisions, &d) == FP8C_OK; decisions++)
        fp8 += d.fp8 ? (int)d.count : 0;
    fp8c_program_info(p, &info);
    ck_assert_int_ge(functions, 3);
    ck_assert_int_eq(params, 3);
    ck_assert_int_gt(variables, 9); /* two moments each, and the histories */
    ck_assert_int_eq(decisions, 6);
    ck_assert_int_eq(fp8, 3);
    ck_assert_int_eq(info.fp8_gemms_planned, 3);
    ck_assert_int_eq(info.linears, 2);
    ck_assert_int_eq(info.threads, 1);
    ck_assert_int_eq(fp8c_program_pass(p, 0, &pass), FP8C_OK);
    ck_assert_str_eq(pass.name, fp8c_name(FP8C_NAME_PASS, 0));
    ck_assert_int_eq(fp8c_program_pass(p, 1000, &pass), FP8C_ERR_INPUT);
    ck_assert_ptr_null(fp8c_name(FP8C_NAME_PASS, 1000));
    ck_assert_ptr_null(fp8c_name(FP8C_NAME_PASS, -1));
    ck_assert_ptr_null(fp8c_name(FP8C_NAME_RECIPE, -1));
    ck_assert_ptr_null(fp8c_program_buffer(p, -1, FP8C_INPUT, 0));
    ck_assert_ptr_null(fp8c_program_buffer(p, 0, FP8C_INPUT, 1000));
    ck_assert_ptr_null(fp8c_program_function_name(p, 1000));
    ck_assert_int_eq(fp8c_program_run(p, 1000), FP8C_ERR_INPUT);
    said(ctx, "no function 1000");
    ck_assert_int_eq(fp8c_program_variable(p, -1, &v), FP8C_ERR_INPUT);
    ck_assert_int_eq(fp8c_program_step(p, 0, -1, &s), FP8C_ERR_INPUT);
    ck_assert_int_eq(fp8c_program_decision(p, -1, &d), FP8C_ERR_INPUT);
    fp8c_program_destroy(p);
    fp8c_context_destroy(ctx);
}
END_TEST

START_TEST(figures)
{
    static const char *const recipes[] = {"bf16", "delayed"};
    fp8c_context *ctx = new_context();
    fp8c_module *m = parse(ctx, model);
    for (int i = 0; i < 2; i++) {
        fp8c_compile_options o = recipe(recipes[i]);
        o.profile = 1;
        fp8c_program *p = compile(ctx, m, &o);
        ck_assert_int_eq(fp8c_program_initialize(p, 1), FP8C_OK);
        fp8c_info before = {.struct_size = sizeof before}, after = before;
        fp8c_program_info(p, &before);
        const float first = train_step(p);
        fp8c_program_info(p, &after);
        ck_assert_int_eq(after.fp8_gemms_executed - before.fp8_gemms_executed, 3 * i);
        ck_assert_int_eq(after.gemms_executed - before.gemms_executed, 6);
        ck_assert_int_eq(after.peak_bytes, after.planned_bytes);
        float last = first;
        for (int k = 0; k < 30; k++)
            last = train_step(p);
        ck_assert_msg(last < first / 2, "%s: %g after %g", recipes[i], (double)last, (double)first);
        fp8c_program_destroy(p);
    }
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
}
END_TEST

static void bind_on(const char *target)
{
    fp8c_context *ctx = new_context();
    fp8c_module *m = parse(ctx, model);
    fp8c_compile_options o = recipe("bf16");
    o.target = target;
    fp8c_program *p = compile(ctx, m, &o);
    const int step = fp8c_program_function(p, "micro_step");
    ck_assert_int_eq(fp8c_program_run(p, step), FP8C_ERR_INPUT); /* nothing has a value yet */
    ck_assert_ptr_nonnull(strstr(fp8c_context_message(ctx), "fp8c_program_initialize"));
    ck_assert_int_eq(fp8c_program_initialize(p, 1), FP8C_OK);
    const int tokens = fp8c_program_find_port(p, step, FP8C_INPUT, "tokens");
    const int wte = fp8c_program_find_port(p, step, FP8C_INPUT, "wte");
    const int loss = fp8c_program_find_port(p, step, FP8C_OUTPUT, "loss");
    static _Alignas(64) int32_t mine[ROWS + 16];
    static _Alignas(64) float out[16];
    ck_assert_int_eq(fp8c_program_bind(p, step, FP8C_INPUT, tokens, (char *)mine + 1),
                     FP8C_ERR_INPUT);
    said(ctx,
         "the buffer for 'tokens' has an address that is no multiple of 4, its element's size");
    ck_assert_int_eq(fp8c_program_bind(p, step, FP8C_INPUT, wte, mine), FP8C_ERR_INPUT);
    said(ctx, "port 'wte' carries a variable");
    ck_assert_ptr_null(fp8c_program_buffer(p, step, FP8C_INPUT, wte));
    ck_assert_int_eq(fp8c_program_bind(p, step, FP8C_INPUT, 99, mine), FP8C_ERR_INPUT);
    ck_assert_int_eq(fp8c_program_bind(p, 99, FP8C_INPUT, 0, mine), FP8C_ERR_INPUT);
    ck_assert_int_eq(fp8c_program_bind(p, step, (fp8c_side)7, tokens, mine), FP8C_ERR_INPUT);
    ck_assert_int_eq(fp8c_program_bind(p, step, FP8C_INPUT, -1, mine), FP8C_ERR_INPUT);
    said(ctx, "there is no such port");

    fill_batch(p, step);
    void *own = fp8c_program_buffer(p, step, FP8C_INPUT, tokens);
    const float *own_loss = fp8c_program_buffer(p, step, FP8C_OUTPUT, loss);
    ck_assert_int_eq(fp8c_program_run(p, step), FP8C_OK);
    const float before = *own_loss;
    memcpy(mine, own, ROWS * sizeof *mine);
    ck_assert_int_eq(fp8c_program_bind(p, step, FP8C_INPUT, tokens, mine), FP8C_OK);
    ck_assert_int_eq(fp8c_program_bind(p, step, FP8C_OUTPUT, loss, out), FP8C_OK);
    ck_assert_ptr_eq(fp8c_program_buffer(p, step, FP8C_INPUT, tokens), mine);
    ck_assert_int_eq(fp8c_program_run(p, step), FP8C_OK);
    ck_assert_mem_eq(&out[0], &before, sizeof before);
    mine[0] = V; /* an id outside the table is no crash: it shows as NaN */
    ck_assert_int_eq(fp8c_program_run(p, step), FP8C_OK);
    ck_assert(isnan(out[0]));
    ck_assert_int_eq(fp8c_program_bind(p, step, FP8C_INPUT, tokens, NULL), FP8C_OK);
    ck_assert_int_eq(fp8c_program_bind(p, step, FP8C_OUTPUT, loss, NULL), FP8C_OK);
    ck_assert_ptr_eq(fp8c_program_buffer(p, step, FP8C_INPUT, tokens), own);
    ck_assert_int_eq(fp8c_program_run(p, step), FP8C_OK);
    ck_assert_mem_eq(own_loss, &before, sizeof before);
    fp8c_program_destroy(p);
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
}

START_TEST(binding)
{
    bind_on("cpu");
    bind_on("reference");
}
END_TEST

/* ---- memory ---- */

static fp8c_status life_on(const void *target, counting *c, char *message, size_t room)
{
    fp8c_compile_options options = recipe("delayed");
    options.target = target;
    options.threads = 2;
    const fp8c_status status = whole_life(c, &options, message, room);
    if (status == FP8C_ERR_MEMORY && c->fail_at > 1) /* the first is the context itself */
        ck_assert_msg(strstr(message, " bytes") || strstr(message, "no memory"),
                      "allocation %ld: %s", c->fail_at, message);
    return status;
}

START_TEST(memory_cpu)
{
    fail_each_allocation(life_on, "cpu", 0);
}
END_TEST

START_TEST(memory_reference)
{
    fail_each_allocation(life_on, "reference", 0);
}
END_TEST

/* ---- threads ---- */

typedef struct worker {
    const char *recipe;
    int32_t threads;
    float loss[4];
    bool ok;
} worker;

/* No Check assertions: they belong to the test's own thread. */
static void *work(void *user)
{
    worker *w = user;
    fp8c_context *ctx = NULL;
    fp8c_module *m = NULL;
    fp8c_program *p = NULL;
    fp8c_compile_options o = recipe(w->recipe);
    o.threads = w->threads;
    w->ok = fp8c_context_create(NULL, &ctx) == FP8C_OK &&
            fp8c_module_parse(ctx, model, strlen(model), "tiny.f8", NULL, 0, &m) == FP8C_OK &&
            fp8c_compile(m, &o, &p) == FP8C_OK && fp8c_program_initialize(p, 3) == FP8C_OK;
    for (int i = 0; w->ok && i < 4; i++)
        w->loss[i] = train_step(p);
    fp8c_program_destroy(p);
    fp8c_module_destroy(m);
    if (ctx)
        fp8c_context_destroy(ctx);
    return NULL;
}

START_TEST(two_contexts_at_once)
{
    worker alone[2] = {{.recipe = "delayed", .threads = 1}, {.recipe = "bf16", .threads = 1}};
    worker many[4] = {{.recipe = "delayed", .threads = 2},
                      {.recipe = "bf16", .threads = 2},
                      {.recipe = "delayed", .threads = 1},
                      {.recipe = "bf16", .threads = 3}};
    pthread_t thread[4];
    for (int i = 0; i < 2; i++)
        work(&alone[i]);
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(pthread_create(&thread[i], NULL, work, &many[i]), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(thread[i], NULL);
    for (int i = 0; i < 4; i++) {
        ck_assert(many[i].ok && alone[i % 2].ok);
        ck_assert_mem_eq(many[i].loss, alone[i % 2].loss, sizeof alone[0].loss);
    }
}
END_TEST

/* ---- ops ---- */

START_TEST(ops)
{
    fp8c_op_info o = {.struct_size = sizeof o};
    fp8c_op_attr a = {.struct_size = sizeof a};
    int n = 0;
    for (const char *name; (name = fp8c_name(FP8C_NAME_OP, n)); n++) {
        ck_assert_int_eq(fp8c_op(name, &o), FP8C_OK);
        ck_assert_str_eq(o.name, name);
        ck_assert(*o.text && *o.group && o.results >= 1 && o.min_operands <= o.max_operands);
        int attributes = 0;
        for (; fp8c_op_attribute(name, attributes, &a) == FP8C_OK; attributes++)
            ck_assert(*a.attr.name && *a.text);
        ck_assert_int_eq(attributes, o.attributes);
    }
    ck_assert_int_gt(n, 50);
    ck_assert_ptr_null(fp8c_name(FP8C_NAME_OP, -1));
    ck_assert_int_eq(fp8c_op("rmsnorm", &o), FP8C_OK);
    ck_assert_str_eq(o.operands, "x weight");
    ck_assert_str_eq(o.types, "f32[.., C], t[C] -> f32[.., C]; t: f32, bf16");
    ck_assert_str_eq(o.gradient, "yes");
    ck_assert_int_eq(fp8c_op_attribute("rmsnorm", 0, &a), FP8C_OK);
    ck_assert(!strcmp(a.attr.name, "eps") && a.attr.kind == FP8C_ATTR_FLOAT && a.attr.f == 1e-5);
    ck_assert_int_eq(fp8c_op_attribute("rmsnorm", 1, &a), FP8C_ERR_INPUT);
    ck_assert_int_eq(fp8c_op_attribute("rmsnorm", -1, &a), FP8C_ERR_INPUT);
    ck_assert_int_eq(fp8c_op("rmsnrom", &o), FP8C_ERR_INPUT);
    ck_assert_int_eq(fp8c_op_attribute("", 0, &a), FP8C_ERR_INPUT);
    /* a caller with an older header gets what its struct has room for */
    fp8c_op_info old = {.struct_size = offsetof(fp8c_op_info, types)};
    old.types[0] = '!';
    ck_assert_int_eq(fp8c_op("eq", &old), FP8C_OK);
    ck_assert(!strcmp(old.gradient, "zero") && old.types[0] == '!');
    old.struct_size = 0;
    ck_assert_int_eq(fp8c_op("eq", &old), FP8C_ERR_INPUT);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("api");
    TCase *t = tcase_create("api");
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_test(t, versions);
    tcase_add_test(t, walking);
    tcase_add_test(t, ops);
    tcase_add_test(t, figures);
    tcase_add_test(t, binding);
    tcase_add_test(t, memory_cpu);
    tcase_add_test(t, memory_reference);
    suite_add_tcase(s, t);
    TCase *threads = tcase_create("threads"); /* a case of its own: TSan runs it alone */
    tcase_set_timeout(threads, TIMEOUT);
    tcase_add_test(threads, two_contexts_at_once);
    suite_add_tcase(s, threads);
    return s;
}
