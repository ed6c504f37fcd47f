/* The pair of forward and backward: a function with its vector-Jacobian product, for embedders that
 * own the loop. Gradients are held against micro_step's of a loss that is the results times their
 * cotangents, by memcmp. */
#include "tests/shared/api/pair_layer.h"
#include "tests/shared/suite.h"

/* The same with x and w as parameters, and the loss y dy + z dz. */
static const char as_loss[] =
    "module loss\n" PARAMS "param x: f32[32, 128] zeros\nparam w: f32[128, 128] zeros\n"
    "func forward(%dy: f32[32, 128], %dz: f32[32, 128]) -> (%loss: f32[]) {\n"
    "  %n = rmsnorm(x, ln)\n"
    "  %h = gelu(linear(%n, up, up.bias) {name = \"up\"})\n"
    "  %y = add(x, linear(%h, down) {name = \"down\"})\n"
    "  %z = linear(%n, w) {name = \"side\"}\n"
    "  %p = add(mul(%y, %dy), mul(%z, %dz))\n"
    "  return reshape(reduce_sum(reshape(%p) {shape = [4096]})) {shape = []}\n}\n";

/* ---- gradients ---- */

static setup a, b;

/* Gradients of parameters and of inputs, one of them a linear's weight, are those of the loss that
 * the cotangents make. */
START_TEST(vector_jacobian_product)
{
    static const char *const params[] = {"ln", "up", "up.bias", "down"};
    fp8c_compile_options o = pair_options(recipes[_i]);
    o.cotangents = "y,z";
    o.gradients_of = "x,w";
    begin(&a, layer, &o);
    o = recipe(recipes[_i]);
    begin(&b, as_loss, &o);
    const bool delayed = !strcmp(recipes[_i], "delayed");
    pair_step(a.p, delayed, &a.in, &a.out);
    pair_set(&b.in, "x", &pair_find(&a.in, "x")->type, pair_find(&a.in, "x")->data);
    pair_set(&b.in, "w", &pair_find(&a.in, "w")->type, pair_find(&a.in, "w")->data);
    pair_write(b.p, &b.in);
    const int prepare = fp8c_program_function(b.p, "prepare");
    if (prepare >= 0)
        ck_assert_int_eq(fp8c_program_run(b.p, prepare), FP8C_OK);
    pair_run(b.p, "micro_step", &b.in, &b.out);
    pair_variables(b.p, "grad.", &b.out);
    for (int i = 0; i < 4; i++) {
        char name[32];
        snprintf(name, sizeof name, "grad.%s", params[i]);
        const pair_value *want = pair_find(&b.out, name);
        ck_assert_ptr_nonnull(want);
        pair_set(&b.out, params[i], &want->type, want->data);
        ck_assert_msg(pair_equal(&a.out, &b.out, params[i]), "%s under %s", params[i], recipes[_i]);
    }
    for (int i = 0; i < 2; i++) {
        const pair_value *want = pair_find(&b.out, i ? "grad.w" : "grad.x");
        pair_set(&b.out, i ? "dw" : "dx", &want->type, want->data);
        ck_assert_msg(pair_equal(&a.out, &b.out, i ? "dw" : "dx"), "d%c under %s", "xw"[i],
                      recipes[_i]);
    }
    end(&a);
    end(&b);
}
END_TEST

/* eval gives what forward gives. */
START_TEST(results_of_eval)
{
    static const char *const names[] = {"y", "z", "unused", "ids2"};
    const fp8c_compile_options o = pair_options(recipes[_i]);
    begin(&a, layer, &o);
    b.out.n = 0;
    pair_run(a.p, "forward", &a.in, &a.out);
    pair_run(a.p, "eval", &a.in, &b.out);
    for (int i = 0; i < 4; i++)
        ck_assert_msg(pair_equal(&a.out, &b.out, names[i]), "%s", names[i]);
    pair_end(&b.out);
    end(&a);
}
END_TEST

static int count_ports(const fp8c_program *p, const char *function, fp8c_side side)
{
    fp8c_port port;
    int n = 0, i = 0;
    for (; fp8c_program_port(p, fp8c_program_function(p, function), side, i, &port) == FP8C_OK; i++)
        n += port.variable < 0 && strncmp(port.name, "saved.", 6);
    return n;
}

static bool has_port(const fp8c_program *p, const char *function, fp8c_side side, const char *name)
{
    return fp8c_program_find_port(p, fp8c_program_function(p, function), side, name) >= 0;
}

/* Results without a cotangent cost nothing: no port, and nothing saved for them. */
START_TEST(named_cotangents)
{
    int n[3];
    static const char *const patterns[] = {NULL, "y", "z"};
    for (int i = 0; i < 3; i++) {
        fp8c_compile_options o = pair_options("bf16");
        o.cotangents = patterns[i];
        begin(&a, layer, &o);
        n[i] = 0;
        pair_saved_bytes(a.p, "forward", &n[i]);
        ck_assert_int_eq(has_port(a.p, "backward", FP8C_INPUT, "dy"), i != 2);
        ck_assert_int_eq(has_port(a.p, "backward", FP8C_INPUT, "dz"), i != 1);
        ck_assert_int_eq(has_port(a.p, "backward", FP8C_INPUT, "dunused"), i == 0);
        ck_assert(!has_port(a.p, "backward", FP8C_INPUT, "dids2"));
        ck_assert_int_eq(count_ports(a.p, "backward", FP8C_OUTPUT), 4);
        ck_assert_int_lt(fp8c_program_function(a.p, "micro_step"), 0);
        ck_assert_int_lt(fp8c_program_function(a.p, "update"), 0);
        ck_assert_int_lt(fp8c_program_find_variable(a.p, "grad.up"), 0);
        end(&a);
    }
    ck_assert_int_lt(n[2], n[0]); /* z reads neither gelu nor the second linear */
}
END_TEST

/* A result that is a parameter's view or an input itself, and one that is given twice. */
START_TEST(odd_results)
{
    static const char text[] =
        "module odd\nparam w: f32[16, 16] normal(1)\nparam other: f32[4] ones\n"
        "func forward(%x: f32[16, 16]) -> (%same: f32[16, 16], %p: f32[256], %s: f32[16, 16],\n"
        "    %t: f32[16, 16]) {\n"
        "  %y = matmul(%x, w)\n"
        "  return %x, reshape(w) {shape = [256]}, %y, %y\n}\n";
    fp8c_compile_options o = pair_options("f32");
    o.gradients_of = "x";
    begin(&a, text, &o);
    pair_step(a.p, false, &a.in, &a.out);
    const float *dsame = pair_find(&a.in, "dsame")->data, *dp = pair_find(&a.in, "dp")->data;
    const float *ds = pair_find(&a.in, "ds")->data, *dt = pair_find(&a.in, "dt")->data;
    const float *x = pair_find(&a.in, "x")->data;
    const float *dx = pair_find(&a.out, "dx")->data, *dw = pair_find(&a.out, "w")->data;
    const float *w = pair_find(&a.out, "p")->data;
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 16; j++) {
            double to_x = dsame[16 * i + j], to_w = dp[16 * i + j];
            for (int k = 0; k < 16; k++) {
                to_x += ((double)ds[16 * i + k] + dt[16 * i + k]) * w[16 * j + k];
                to_w += ((double)ds[16 * k + j] + dt[16 * k + j]) * x[16 * k + i];
            }
            /* 16 products of magnitudes below 8, each rounded in f32, and two sums */
            ck_assert_double_eq_tol(dx[16 * i + j], to_x, 2e-4);
            ck_assert_double_eq_tol(dw[16 * i + j], to_w, 2e-4);
        }
    ck_assert_ptr_null(pair_find(&a.out, "other")); /* forward does not read it */
    end(&a);
}
END_TEST

/* An f32 input that linears read as bf16 has a gradient that is not rounded; a bf16 one has one
 * that is. */
START_TEST(rounding_of_gradients)
{
    static const char text[] =
        "module rounding\nparam u: f32[32, 32] normal(1)\n"
        "func forward(%x: f32[32, 32], %h: bf16[32, 32]) -> (%y: f32[32, 32], %z: bf16[32, 32]) {\n"
        "  %a = linear(%x, u)\n  %b = linear(cast(%h) {to = f32}, u) {name = \"b\"}\n"
        "  return %a, cast(%b) {to = bf16}\n}\n";
    fp8c_compile_options o = pair_options("bf16");
    o.gradients_of = "*";
    begin(&a, text, &o);
    pair_step(a.p, false, &a.in, &a.out);
    ck_assert_int_eq(pair_find(&a.out, "dx")->type.dtype, FP8C_F32);
    ck_assert_int_eq(pair_find(&a.out, "dh")->type.dtype, FP8C_BF16);
    ck_assert_int_eq(pair_find(&a.in, "dz")->type.dtype, FP8C_BF16);
    const uint32_t *dx = pair_find(&a.out, "dx")->data;
    uint32_t low = 0;
    for (int i = 0; i < 1024; i++)
        low |= dx[i] & 0xffff;
    ck_assert_uint_ne(low, 0);
    end(&a);
}
END_TEST

/* ---- adding gradients ---- */

/* Several backwards add up as several micro_steps do; the same program has both. */
START_TEST(added_gradients)
{
    fp8c_compile_options o = pair_options(recipes[_i]);
    o.add_gradients = o.train_step = 1;
    begin(&a, model, &o);
    b.out.n = 0;
    const fp8c_type scalar = {FP8C_F32, 0, {0}};
    const float one = 1;
    pair_set(&a.in, "dloss", &scalar, &one);
    for (int i = 0; i < 3; i++)
        pair_step(a.p, !strcmp(recipes[_i], "delayed"), &a.in, &a.out);
    ck_assert_int_eq(count_ports(a.p, "backward", FP8C_OUTPUT), 0);
    pair_variables(a.p, "grad.", &a.out);
    ck_assert_int_eq(fp8c_program_initialize(a.p, 7), FP8C_OK);
    for (int i = 0; i < 3; i++)
        pair_run(a.p, "micro_step", &a.in, &b.out);
    pair_variables(a.p, "grad.", &b.out);
    ck_assert(pair_equal(&a.out, &b.out, "grad.wte"));
    ck_assert(pair_equal(&a.out, &b.out, "grad.fc.weight"));
    ck_assert(pair_equal(&a.out, &b.out, "grad.fc.bias"));
    pair_end(&b.out);
    end(&a);
}
END_TEST

/* ---- scales ---- */

static void update_scales(fp8c_program *p)
{
    ck_assert_int_eq(fp8c_program_run(p, fp8c_program_function(p, "update_scales")), FP8C_OK);
}

/* Forward changes no state, however often it runs; backward records amaxes; a forgotten
 * update_scales leaves them there. */
START_TEST(amaxes_by_backward_alone)
{
    fp8c_compile_options o = pair_options("delayed");
    begin(&a, layer, &o);
    b.out.n = b.in.n = 0;
    pair_run(a.p, "forward", &a.in, &a.out);
    pair_run(a.p, "forward", &a.in, &b.out);
    for (int i = 0; i < a.out.n; i++)
        ck_assert_msg(pair_equal(&a.out, &b.out, a.out.value[i].name), "%s",
                      a.out.value[i].name);
    pair_variables(a.p, "fp8.", &b.in);
    const pair_value *amax = pair_find(&b.in, "fp8.amax");
    for (int64_t i = 0; i < amax->type.dim[0]; i++)
        ck_assert_float_eq(((float *)amax->data)[i], 0);
    pair_step(a.p, false, &a.in, &a.out);
    pair_variables(a.p, "fp8.", &b.in);
    float most = 0;
    for (int64_t i = 0; i < amax->type.dim[0]; i++)
        most = ((float *)amax->data)[i] > most ? ((float *)amax->data)[i] : most;
    ck_assert_float_gt(most, 0);
    update_scales(a.p);
    pair_variables(a.p, "fp8.", &b.in);
    for (int64_t i = 0; i < amax->type.dim[0]; i++)
        ck_assert_float_eq(((float *)amax->data)[i], 0);
    pair_end(&b.in);
    pair_end(&b.out);
    end(&a);
}
END_TEST

/* Before anything is observed, `.first` gives what `current` gives; once it is, what the plain pair
 * gives. */
START_TEST(first_steps)
{
    static const char *const names[] = {"y", "z", "up", "down", "ln", "up.bias", "dx", "dw"};
    fp8c_compile_options o = pair_options("delayed");
    o.gradients_of = "x,w";
    begin(&a, layer, &o);
    o.recipe = "current";
    begin(&b, layer, &o);
    ck_assert_int_lt(fp8c_program_function(b.p, "forward.first"), 0);
    pair_step(a.p, true, &a.in, &a.out);
    pair_step(b.p, false, &b.in, &b.out);
    for (int i = 0; i < 8; i++)
        ck_assert_msg(pair_equal(&a.out, &b.out, names[i]), "%s", names[i]);
    update_scales(a.p);
    pair_end(&a.out);
    pair_end(&b.out);
    for (int i = 0; i < a.in.n; i++) /* the saved values of the two pairs may differ */
        if (!strncmp(a.in.value[i].name, "saved.", 6))
            snprintf(a.in.value[i].name, sizeof a.in.value[i].name, "old.%d", i);
    pair_step(a.p, true, &a.in, &a.out);
    for (int i = 0; i < a.in.n; i++)
        if (!strncmp(a.in.value[i].name, "saved.", 6))
            snprintf(a.in.value[i].name, sizeof a.in.value[i].name, "older.%d", i);
    pair_step(a.p, false, &a.in, &b.out);
    for (int i = 0; i < 8; i++)
        ck_assert_msg(pair_equal(&a.out, &b.out, names[i]), "%s", names[i]);
    end(&a);
    end(&b);
}
END_TEST

/* ---- wrong options ---- */

START_TEST(refused_options)
{
    fp8c_context *ctx = new_context();
    fp8c_compile_options o = recipe("bf16");
    o.gradients_of = "x";
    refused(ctx, layer, &o, FP8C_ERR_INPUT, "gradients_of needs `pair`");
    o = pair_options("bf16");
    o.gradients_of = "ids";
    refused(ctx, layer, &o, FP8C_ERR_INPUT,
            "gradients_of: input 'ids' is i32[32]; only f32, bf16 and f16 have a gradient");
    o.gradients_of = "q,r*";
    refused(ctx, layer, &o, FP8C_ERR_INPUT,
            "gradients_of: no float input of 'forward' matches 'q,r*'; its inputs are: x, w, ids");
    o.gradients_of = NULL;
    o.cotangents = "ids2";
    refused(ctx, layer, &o, FP8C_ERR_INPUT, "cotangents: result 'ids2' is i32[32]");
    o.cotangents = "loss";
    refused(ctx, layer, &o, FP8C_ERR_INPUT,
            "cotangents: no float result of 'forward' matches 'loss'; its results are: y, z, "
            "unused, ids2");
    o.cotangents = "unused";
    refused(ctx, layer, &o, FP8C_ERR_INPUT, "'backward' would give no gradient");
    o = pair_options("bf16");
    o.memory_bytes = 1 << 20;
    refused(ctx, layer, &o, FP8C_ERR_UNSUPPORTED, "a pair takes no budget in bytes");
    o.memory_bytes = 0;
    o.inference = 1;
    refused(ctx, layer, &o, FP8C_ERR_INPUT,
            "`pair` and `inference` are both given: give one of them");
    o.inference = 0;
    o.keep = "*";
    refused(ctx, layer, &o, FP8C_ERR_INPUT, "keep names operands of micro_step");
    o = pair_options("bf16");
    o.train_step = 1;
    refused(ctx, layer, &o, FP8C_ERR_INPUT, "to train, 'forward' must return the loss");
    o.memory_share = 0.5;
    refused(ctx, model, &o, FP8C_ERR_UNSUPPORTED, "the program has both; compile two programs");
    static const char clash[] = "module clash\nparam dx: f32[4, 4] ones\n"
                                "func forward(%x: f32[4, 4]) -> (%y: f32[4, 4]) {\n"
                                "  return matmul(%x, dx)\n}\n";
    o = pair_options("bf16");
    o.gradients_of = "x";
    refused(ctx, clash, &o, FP8C_ERR_INPUT,
            "tiny.f8:3:14: error: backward would have two results 'dx'");
    static const char named[] = "module named\nparam p: f32[4, 4] ones\n"
                                "func forward(%saved.1: f32[4, 4]) -> (%y: f32[4, 4]) {\n"
                                "  return matmul(%saved.1, p)\n}\n";
    o.gradients_of = NULL;
    refused(ctx, named, &o, FP8C_ERR_INPUT, "names that begin with 'saved.'");
    fp8c_context_destroy(ctx);
}
END_TEST

/* Names that two ports of backward, or a result and a gradient, would have. */
START_TEST(refused_names)
{
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"module n\nparam saved.0: f32[4, 4] ones\n"
         "func forward(%x: f32[4, 4]) -> (%y: f32[4, 4]) {\n  return matmul(%x, saved.0)\n}\n",
         "tiny.f8:4:21: error: 'saved.0': in a pair, names that begin with 'saved.'"},
        {"module n\nparam y: f32[4, 4] ones\n"
         "func forward(%x: f32[4, 4]) -> (%y: f32[4, 4]) {\n  return matmul(%x, y)\n}\n",
         "'y' would be a result of forward and a gradient that backward gives"},
        {"module n\nparam p: f32[4, 4] ones\n"
         "func forward(%x: f32[4, 4]) -> (%dx: f32[4, 4]) {\n  return matmul(%x, p)\n}\n",
         "'dx' would be a result of forward and a gradient that backward gives"},
        {"module n\nparam p: f32[4, 4] ones\n"
         "func forward(%x: f32[4, 4], %dy: f32[4, 4]) -> (%y: f32[4, 4]) {\n"
         "  return matmul(add(%x, %dy), p)\n}\n",
         "tiny.f8:3:29: error: backward would have two inputs 'dy': the cotangent of result 'y'"},
    };
    fp8c_context *ctx = new_context();
    fp8c_compile_options o = pair_options("bf16");
    o.gradients_of = "x";
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        refused(ctx, cases[i].text, &o, FP8C_ERR_INPUT, cases[i].says);
    fp8c_context_destroy(ctx);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("pair");
    TCase *t = tcase_create("pair");
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_loop_test(t, vector_jacobian_product, 0, N_RECIPES);
    tcase_add_loop_test(t, results_of_eval, 0, N_RECIPES);
    tcase_add_test(t, named_cotangents);
    tcase_add_test(t, odd_results);
    tcase_add_test(t, rounding_of_gradients);
    tcase_add_loop_test(t, added_gradients, 0, 4);
    tcase_add_test(t, amaxes_by_backward_alone);
    tcase_add_test(t, first_steps);
    tcase_add_test(t, refused_options);
    tcase_add_test(t, refused_names);
    suite_add_tcase(s, t);
    return s;
}
