/* Variables and ports that have no memory of ours: option `external`. check_cuda_memory has the
 * same on a GPU. */
#include "frontend/fp8c_diagnose.h"
#include "frontend/fp8c_tune.h"
#include "tests/shared/api/api_run.h"
#include "tests/shared/api/bounds_case.h"
#include "tests/shared/api/caller_memory.h"
#include "tests/shared/api/cli.h"
#include "tests/shared/api/pair_case.h"
#include "tests/shared/suite.h"

enum { CPU = 1 }; /* DLPack's device */

/* Compares what fp8c_program_memory lists for a program whose data is all external with a program
 * whose data is in memory of ours. */
static void same_but_external(const fp8c_program *p, const fp8c_program *own, int function)
{
    static const char *const left_out[] = {"parameters",   "gradients", "optimizer",
                                           "weight codes", "states",    "inputs and results"};
    fp8c_memory m, n;
    int64_t bytes = 0;
    for (int i = 0; fp8c_program_memory(p, function, i, &m) == FP8C_OK; i++) {
        bool out = false;
        ck_assert_int_eq(fp8c_program_memory(own, function, i, &n), FP8C_OK);
        for (int k = 0; k < 6; k++)
            out |= !strcmp(m.category, left_out[k]);
        /* not every program keeps codes */
        const bool some = n.bytes > 0 || !strcmp(m.category, "weight codes");
        ck_assert_msg(out ? m.bytes == 0 && some : m.bytes == n.bytes, "%s: %lld, %lld", m.category,
                      (long long)m.bytes, (long long)n.bytes);
        bytes += m.bytes;
    }
    ck_assert_int_eq(bytes, planned(p));
}

static int64_t external_bytes(const fp8c_program *p, int function)
{
    fp8c_tensor t;
    int64_t bytes = 0;
    for (int i = 0; fp8c_program_tensor(p, function, i, &t) == FP8C_OK; i++)
        bytes += strcmp(t.category, "external") ? 0 : t.bytes;
    return bytes;
}

static void bind_ports(fp8c_program *p, int function, char (*memory)[256])
{
    fp8c_port port;
    int n = 0;
    for (int side = 0; side < 2; side++)
        for (int i = 0; fp8c_program_port(p, function, side, i, &port) == FP8C_OK; i++) {
            if (port.variable >= 0)
                continue;
            ck_assert_ptr_null(fp8c_program_buffer(p, function, side, i));
            ck_assert_int_le(fp8c_type_bytes(&port.type), sizeof *memory);
            ck_assert_int_eq(fp8c_program_bind(p, function, side, i, memory[n++]), FP8C_OK);
        }
}

/* Nothing of the program's data is in memory of ours. */
START_TEST(external)
{
    static const char *const targets[] = {"cpu", "reference"};
    static _Alignas(64) char ports[2][8][256];
    fp8c_context *ctx = new_context();
    fp8c_module *m = parse(ctx, model);
    fp8c_compile_options o = recipe("delayed");
    o.target = targets[_i];
    fp8c_program *own = compile(ctx, m, &o);
    o.external = "*";
    fp8c_program *p = compile(ctx, m, &o);
    fp8c_variable v;
    fp8c_tensor_view view;
    const int step = fp8c_program_function(p, "micro_step"),
              update = fp8c_program_function(p, "update");
    if (_i == 0) {
        ck_assert_int_gt(external_bytes(p, step), 0);
        ck_assert_int_eq(planned(own) - planned(p), external_bytes(p, step));
        same_but_external(p, own, step);
    }
    fp8c_info info = {.struct_size = sizeof info};
    fp8c_program_info(p, &info);
    ck_assert_int_eq(info.peak_bytes, info.planned_bytes);
    ck_assert_int_eq(fp8c_program_variable(p, 0, &v), FP8C_OK);
    ck_assert_ptr_null(v.data);
    const char *want = "variable 'wte' is external: it has no memory until a tensor is bound to it";
    ck_assert_int_eq(fp8c_program_variable_view(p, 0, &view), FP8C_ERR_INPUT);
    said(ctx, want);
    ck_assert_int_eq(fp8c_program_read(p, 0, ports), FP8C_ERR_INPUT);
    said(ctx, want);
    ck_assert_int_eq(fp8c_program_write(p, 0, ports), FP8C_ERR_INPUT);
    said(ctx, want);
    ck_assert_int_eq(fp8c_program_save(p, f8_cli_temp("external"), NULL), FP8C_ERR_INPUT);
    said(ctx, want);
    ck_assert_int_eq(fp8c_program_load(p, f8_cli_temp("external"), 0, NULL), FP8C_ERR_INPUT);
    said(ctx, want);
    ck_assert_int_eq(fp8c_program_initialize(p, 1), FP8C_OK); /* of nothing */
    ck_assert_int_eq(fp8c_program_run(p, step), FP8C_ERR_INPUT);
    said(ctx, " is external: it has no memory until a tensor is bound to it");

    caller_tensors t;
    caller_make(&t, p);
    caller_bind_all(ctx, p, &t, CPU);
    ck_assert_int_eq(fp8c_program_initialize(p, 1), FP8C_OK);
    ck_assert_int_eq(fp8c_program_initialize(own, 1), FP8C_OK);
    ck_assert_int_eq(fp8c_program_run(p, step), FP8C_ERR_INPUT);
    said(ctx,
         "input 'tokens' of 'micro_step' is external: it has no memory until a buffer is bound");
    ck_assert_int_eq(fp8c_program_port_view(p, step, FP8C_INPUT,
                                            fp8c_program_find_port(p, step, FP8C_INPUT, "tokens"),
                                            &view),
                     FP8C_ERR_INPUT);
    said(ctx, "input 'tokens' of 'micro_step' is external");
    bind_ports(p, step, ports[0]);
    bind_ports(p, update, ports[1]);
    for (int i = 0; i < 3; i++) {
        const float loss = train_step(p), other = train_step(own);
        ck_assert(loss > 0 && !memcmp(&loss, &other, sizeof loss));
    }
    ck_assert_int_eq(fp8c_program_bind_variable(p, 0, NULL), FP8C_ERR_INPUT);
    said(ctx, "variable 'wte' is external: the program has no memory of its own for it");
    const int tokens = fp8c_program_find_port(p, step, FP8C_INPUT, "tokens");
    ck_assert_int_eq(fp8c_program_bind(p, step, FP8C_INPUT, tokens, NULL), FP8C_OK);
    ck_assert_int_eq(fp8c_program_run(p, step), FP8C_ERR_INPUT);
    fp8c_program_destroy(p);
    caller_free(&t);

    o.external = "wte";
    p = compile(ctx, m, &o);
    ck_assert_int_eq(fp8c_program_initialize(p, 1), FP8C_OK);
    ck_assert_int_eq(fp8c_program_run(p, step), FP8C_ERR_INPUT);
    said(ctx, want);
    ck_assert_int_eq(fp8c_program_variable(p, 1, &v), FP8C_OK);
    ck_assert_ptr_nonnull(v.data);
    fp8c_program_destroy(p);
    fp8c_program_destroy(own);

    o.external = "wte,none.*";
    ck_assert_int_eq(fp8c_compile(m, &o, &p), FP8C_ERR_INPUT);
    said(ctx, "external 'none.*' matches no variable and no port of the program");
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
}
END_TEST

/* A budget is for memory of ours. */
START_TEST(external_budget)
{
    f8_api_run own;
    const fp8c_dim dims[] = {{"B", 2}, {"T", 16}, {"L", 1}, {"C", 32}, {"H", 2}};
    const f8_api_setup setup = {
        .file = "frontend/models/gpt.f8", .dims = dims, .n_dims = 5, .options = {.threads = 2}};
    ck_assert_msg(f8_api_open(&own, &setup), "%s", own.failed);
    fp8c_compile_options o = {.struct_size = sizeof o, .recipe = "bf16", .threads = 2};
    fp8c_program *p;
    o.external = "*";
    ck_assert_int_eq(fp8c_compile(own.module, &o, &p), FP8C_OK);
    const int64_t most = planned(p) * 95 / 100;
    ck_assert_int_lt(planned(p), planned(own.program));
    fp8c_program_destroy(p);
    o.memory_bytes = most;
    ck_assert_msg(fp8c_compile(own.module, &o, &p) == FP8C_OK, "%s", fp8c_context_message(own.ctx));
    ck_assert_int_le(planned(p), most);
    fp8c_program_destroy(p);
    o.external = "grad.*"; /* the budget now holds parameters and moments, which are too many */
    ck_assert_int_eq(fp8c_compile(own.module, &o, &p), FP8C_ERR_UNSUPPORTED);
    f8_api_close(&own);
}
END_TEST

/* A calibration's program is for running at once, whatever the program to come asks for. */
START_TEST(external_calibration)
{
    fp8c_context *ctx = new_context();
    fp8c_module *m = parse(ctx, model);
    fp8c_compile_options o = recipe("auto");
    fp8c_calibration *c;
    fp8c_variable v;
    o.external = "saved.*";
    ck_assert_msg(fp8c_calibration_create(m, &o, 0, &c) == FP8C_OK, "%s",
                  fp8c_context_message(ctx));
    ck_assert_int_eq(fp8c_program_variable(fp8c_calibration_program(c), 0, &v), FP8C_OK);
    ck_assert_ptr_nonnull(v.data);
    fp8c_calibration_destroy(c);
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
}
END_TEST

/* A layer in the caller's loop whose parameters, gradients, states and saved values are all the
 * caller's; with a handle, saved values are in memory of ours after all. */
START_TEST(external_pair)
{
    static const char *const targets[] = {"cpu", "reference"};
    static const char layer[] =
        "module layer\nparam up: f32[32, 64] normal(0.1)\nparam down: f32[64, 32] normal(0.1)\n"
        "func forward(%x: f32[16, 32]) -> (%y: f32[16, 32]) {\n"
        "  return linear(gelu(linear(%x, up) {name = \"up\"}), down) {name = \"down\"}\n}\n";
    static pair_values in[2], out[2];
    fp8c_context *ctx = new_context();
    fp8c_module *m = parse(ctx, layer);
    fp8c_compile_options o = recipe("delayed");
    o.target = targets[_i];
    o.pair = 1;
    o.gradients_of = "x";
    o.add_gradients = 1;
    fp8c_program *p[2] = {compile(ctx, m, &o)};
    o.external = "up,down,grad.*,fp8.*,saved.*,x,y,dx,dy";
    p[1] = compile(ctx, m, &o);
    caller_tensors t;
    fp8c_saved *s;
    caller_make(&t, p[1]);
    caller_bind_all(ctx, p[1], &t, CPU);
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(fp8c_program_initialize(p[i], 4), FP8C_OK);
        for (int step = 0; step < 3; step++) {
            pair_step(p[i], step == 0, &in[i], &out[i]);
            ck_assert_int_eq(fp8c_program_run(p[i], fp8c_program_function(p[i], "update_scales")),
                             FP8C_OK);
        }
        pair_variables(p[i], "", &out[i]);
    }
    for (int i = 0; i < out[0].n; i++)
        ck_assert_msg(pair_equal(&out[0], &out[1], out[0].value[i].name), "%s",
                      out[0].value[i].name);
    ck_assert(pair_find(&out[0], "dx") && pair_find(&out[0], "grad.up"));

    ck_assert_int_eq(fp8c_saved_create(p[1], &s), FP8C_OK);
    pair_forward(p[1], false, s, &in[1], &out[1]);
    ck_assert_int_eq(fp8c_program_bind_variable(p[1], 0, NULL), FP8C_ERR_INPUT);
    said(ctx,
         "fp8c_program_bind_variable may not change parameters or scales now: 1 forward waits");
    pair_backward(p[1], s, &in[1], &out[1]);
    pair_step(p[0], false, &in[0], &out[0]);
    ck_assert(pair_equal(&out[0], &out[1], "dx"));
    fp8c_saved_destroy(s);
    /* a pair that saves nothing has no such port; what is not of a pair names none in vain */
    fp8c_module *nothing =
        parse(ctx, "module nothing\nparam w: f32[4] ones\n"
                   "func forward(%x: f32[4]) -> (%y: f32[4]) {\n  return add(%x, w)\n}\n");
    fp8c_program *q;
    o = recipe("f32");
    o.target = targets[_i];
    o.external = "saved.*";
    o.inference = 1;
    ck_assert_int_eq(fp8c_compile(nothing, &o, &q), FP8C_ERR_INPUT);
    said(ctx, "external 'saved.*' matches no variable and no port");
    o.inference = 0;
    o.pair = 1;
    fp8c_program_destroy(compile(ctx, nothing, &o));
    o.external = "saved.*,saved.none*";
    ck_assert_int_eq(fp8c_compile(nothing, &o, &q), FP8C_ERR_INPUT);
    said(ctx, "external 'saved.none*' matches no variable and no port");
    fp8c_module_destroy(nothing);
    for (int i = 0; i < 2; i++) {
        fp8c_program_destroy(p[i]);
        pair_end(&in[i]);
        pair_end(&out[i]);
    }
    caller_free(&t);
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
}
END_TEST

/* Parameters that move while a forward waits: to other memory, with their values, one to where
 * another was; and what is refused. */
START_TEST(external_moves)
{
    static const char layer[] =
        "module layer\nparam up: f32[32, 32] normal(0.1)\nparam down: f32[32, 32] normal(0.1)\n"
        "func forward(%x: f32[16, 32]) -> (%y: f32[16, 32]) {\n"
        "  return linear(gelu(linear(%x, up) {name = \"up\"}), down) {name = \"down\"}\n}\n";
    static pair_values in[2], out[2];
    static _Alignas(64) float memory[3][32 * 32];
    static const int both[] = {0, 1};
    fp8c_context *ctx = new_context();
    fp8c_module *m = parse(ctx, layer);
    fp8c_compile_options o = recipe("current");
    fp8c_variable v;
    fp8c_saved *s;
    o.pair = 1;
    o.gradients_of = "x";
    fp8c_program *own = compile(ctx, m, &o);
    o.external = "up,down";
    fp8c_program *p = compile(ctx, m, &o);
    ck_assert_int_eq(fp8c_program_variable(p, 0, &v), FP8C_OK);
    ck_assert_str_eq(v.name, "up");
    fp8c_tensor_view place[3];
    for (int i = 0; i < 3; i++)
        place[i] = view_of(&v.type, memory[i], CPU);
    const fp8c_tensor_view *at[2] = {&place[0], &place[1]};
    ck_assert_int_eq(fp8c_program_move_variables(p, both, at, 2), FP8C_OK);
    ck_assert_int_eq(fp8c_program_initialize(p, 4), FP8C_OK);
    ck_assert_int_eq(fp8c_program_initialize(own, 4), FP8C_OK);
    pair_step(own, false, &in[0], &out[0]);

    ck_assert_int_eq(fp8c_saved_create(p, &s), FP8C_OK);
    pair_forward(p, 0, s, &in[1], &out[1]);
    ck_assert_int_eq(fp8c_program_move_variables(p, both, NULL, 2), FP8C_OK);
    ck_assert_int_eq(fp8c_program_run(p, fp8c_program_function(p, "eval")), FP8C_ERR_INPUT);
    said(ctx, "variable 'up' is external: it has no memory until a tensor is bound to it");
    memcpy(memory[2], memory[1], sizeof memory[1]); /* down; then up to where down was */
    memcpy(memory[1], memory[0], sizeof memory[0]);
    memset(memory[0], 0x7f, sizeof memory[0]);
    at[0] = &place[1], at[1] = &place[2];
    ck_assert_int_eq(fp8c_program_move_variables(p, both, at, 2), FP8C_OK);
    pair_backward(p, s, &in[1], &out[1]);
    for (int i = 0; i < out[0].n; i++)
        if (strncmp(out[0].value[i].name, "saved.", 6) != 0)
            ck_assert_msg(pair_equal(&out[0], &out[1], out[0].value[i].name), "%s",
                          out[0].value[i].name);
    ck_assert(pair_find(&out[1], "dx") && pair_find(&out[1], "up") && pair_find(&out[1], "y"));

    at[1] = &place[1]; /* both in one place */
    ck_assert_int_eq(fp8c_program_move_variables(p, both, at, 2), FP8C_ERR_INPUT);
    said(ctx, "variable 'down': its memory overlaps that of variable 'up'");
    ck_assert_int_eq(fp8c_program_run(p, fp8c_program_function(p, "eval")), FP8C_ERR_INPUT);
    said(ctx, "variable 'up' is external: it has no memory until a tensor is bound to it");
    ck_assert_int_eq(fp8c_program_move_variables(p, (int[]){99}, NULL, 1), FP8C_ERR_INPUT);
    said(ctx, "the program has no variable 99");
    ck_assert_int_eq(fp8c_program_move_variables(own, both, at, 1), FP8C_ERR_INPUT);
    said(ctx, "variable 'up' is not external: only those move");
    ck_assert_int_eq(fp8c_program_move_variables(p, both, NULL, 0), FP8C_OK);
    fp8c_saved_destroy(s);
    fp8c_program_destroy(p);
    fp8c_program_destroy(own);
    for (int i = 0; i < 2; i++) {
        pair_end(&in[i]);
        pair_end(&out[i]);
    }
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
}
END_TEST

/* Histories are carried from a program whose parameters lie nowhere, but not to one. */
START_TEST(external_carries)
{
    static _Alignas(64) float memory[32 * 32];
    static const int weight[] = {0};
    fp8c_context *ctx = new_context();
    fp8c_module *m = parse(ctx, "module layer\nparam up: f32[32, 32] normal(0.1)\n"
                                "func forward(%x: f32[16, 32]) -> (%y: f32[16, 32]) {\n"
                                "  return linear(%x, up) {name = \"up\"}\n}\n");
    fp8c_compile_options o = recipe("delayed");
    fp8c_variable v;
    fp8c_carried carried = {.struct_size = sizeof carried};
    o.pair = 1;
    o.external = "up";
    fp8c_program *from = compile(ctx, m, &o), *to = compile(ctx, m, &o);
    ck_assert_int_eq(fp8c_program_variable(to, 0, &v), FP8C_OK);
    const fp8c_tensor_view place = view_of(&v.type, memory, CPU), *at[] = {&place};
    ck_assert_int_eq(fp8c_program_carry(to, from, NULL), FP8C_ERR_INPUT);
    said(ctx, "variable 'up' is external: it has no memory until a tensor is bound to it");
    ck_assert_int_eq(fp8c_program_move_variables(to, weight, at, 1), FP8C_OK);
    ck_assert_int_eq(fp8c_program_initialize(to, 1), FP8C_OK);
    ck_assert_int_eq(fp8c_program_carry(to, from, NULL), FP8C_ERR_INPUT);
    said(ctx, "the variables of the program to carry from have no values: call "
              "fp8c_program_initialize");
    ck_assert_int_eq(fp8c_program_initialize(from, 1), FP8C_OK);
    ck_assert_int_eq(fp8c_program_carry(to, from, &carried), FP8C_OK);
    ck_assert_int_eq(carried.carried, 3);
    ck_assert_int_eq(fp8c_program_carry(from, to, NULL), FP8C_ERR_INPUT);
    said(ctx, "variable 'up' is external: it has no memory until a tensor is bound to it");
    fp8c_program_destroy(from);
    fp8c_program_destroy(to);
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
}
END_TEST

/* From a file, with and without a device; and for every value of a bound. */
START_TEST(external_file)
{
    f8_api_run r;
    const fp8c_compile_options o = {
        .struct_size = sizeof o, .recipe = "current", .threads = 1, .values = "B=3,2"};
    fp8c_compile_options refused = o;
    fp8c_program *p, *without, *whole;
    fp8c_open_options open = {.struct_size = sizeof open, .threads = 1, .external = "*"};
    const char *path = f8_cli_temp("external.f8x");
    f8_bounds_open(&r, 0, false, (fp8c_compile_options){.recipe = "current", .threads = 1});
    refused.external = "*";
    ck_assert_int_eq(fp8c_compile_file(r.module, &refused, 1, path), FP8C_ERR_INPUT);
    said(r.ctx, "a file can't have external");
    ck_assert_int_eq(fp8c_compile_file(r.module, &o, 1, path), FP8C_OK);
    ck_assert_msg(fp8c_program_open(r.ctx, path, &open, &p) == FP8C_OK, "%s",
                  fp8c_context_message(r.ctx));
    const int step = fp8c_program_function(p, "micro_step");
    for (int i = 0; i < 2; i++) { /* the same where it only looks */
        open.no_device = i;
        open.external = "*";
        ck_assert_int_eq(fp8c_program_open(r.ctx, path, &open, &without), FP8C_OK);
        open.external = NULL;
        ck_assert_int_eq(fp8c_program_open(r.ctx, path, &open, &whole), FP8C_OK);
        same_but_external(without, whole, step);
        ck_assert_int_eq(planned(whole) - planned(without), external_bytes(without, step));
        fp8c_program_destroy(without);
        fp8c_program_destroy(whole);
    }
    open.external = "nobody";
    ck_assert_int_eq(fp8c_program_open(r.ctx, path, &open, &whole), FP8C_ERR_INPUT);
    said(r.ctx, "external 'nobody' matches no variable");

    caller_tensors t;
    caller_make(&t, p);
    caller_bind_all(r.ctx, p, &t, CPU);
    ck_assert_int_eq(fp8c_program_initialize(p, 1), FP8C_OK);
    fp8c_program *own = r.program;
    for (int b = 2; b <= 3; b++) {
        static _Alignas(64) char memory[16][256], more[16][256];
        f8_bounds_set(&r, b);
        const float want = f8_api_step(&r, 64, 1);
        f8_api_run x = r;
        x.program = p;
        f8_bounds_set(&x, b);
        bind_ports(p, step, memory);
        bind_ports(p, x.update, more);
        const float got = f8_api_step(&x, 64, 1);
        ck_assert_msg(want > 0 && !memcmp(&want, &got, sizeof want), "%s",
                      fp8c_context_message(r.ctx));
    }
    r.program = own;
    fp8c_program_destroy(p);
    caller_free(&t);
    f8_api_close(&r);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("external");
    TCase *t = tcase_create("external");
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_unchecked_fixture(t, f8_cli_setup, f8_cli_teardown);
    tcase_add_loop_test(t, external, 0, 2);
    tcase_add_test(t, external_budget);
    tcase_add_test(t, external_calibration);
    tcase_add_loop_test(t, external_pair, 0, 2);
    tcase_add_test(t, external_moves);
    tcase_add_test(t, external_carries);
    tcase_add_test(t, external_file);
    suite_add_tcase(s, t);
    return s;
}
