/* Handles of what `forward` saves for `backward` (fp8c_saved): several in flight, batches of
 * several sizes, states, what may not change meanwhile, and ends in any order. On the CPU, the
 * reference target, and CUDA (the emulator, or a GPU with FP8C_TEST_GPU). */
#include "tests/shared/api/pair_case.h"
#include "tests/shared/cuda/gpu.h"
#include "tests/shared/suite.h"

static const char *const targets[] = {"cpu", "reference", "cuda"};

static const char layer[] =
    "module layer\ndim B <= 64\nparam ln: f32[64] ones\nparam up: f32[64, 128] normal(0.1)\n"
    "param down: f32[128, 64] normal(0.1)\n"
    "func forward(%x: f32[B, 64]) -> (%y: bf16[B, 64]) {\n"
    "  %h = gelu(linear(rmsnorm(%x, ln), up) {name = \"up\"})\n"
    "  return cast(add(%x, linear(%h, down) {name = \"down\"})) {to = bf16}\n}\n";

static fp8c_program *make(fp8c_context *ctx, const char *text, const char *target,
                          const char *recipe_name)
{
    fp8c_compile_options o = recipe(recipe_name);
    o.target = target;
    o.pair = 1;
    o.gradients_of = "x";
    fp8c_module *m = parse(ctx, text);
    fp8c_program *p = compile(ctx, m, &o);
    fp8c_module_destroy(m);
    ck_assert_int_eq(fp8c_program_initialize(p, 7), FP8C_OK);
    return p;
}

static fp8c_saved *handle(fp8c_context *ctx, fp8c_program *p)
{
    fp8c_saved *s;
    ck_assert_msg(fp8c_saved_create(p, &s) == FP8C_OK, "%s", fp8c_context_message(ctx));
    return s;
}

/* Inputs of batch i, with `rows` rows. */
static void batch(pair_values *in, int i, int64_t rows)
{
    const fp8c_type x = {FP8C_F32, 2, {rows, 64}}, dy = {FP8C_BF16, 2, {rows, 64}};
    float *data = pair_get(in, "x", &x);
    for (int64_t k = 0; k < rows * 64; k++)
        data[k] *= (float)(i + 1);
    pair_get(in, "dy", &dy);
}

static const char *const gradients[] = {"y", "dx", "ln", "up", "down"};

static void check_equal(const pair_values *a, const pair_values *b, int i)
{
    for (int k = 0; k < 5; k++)
        ck_assert_msg(pair_equal(a, b, gradients[k]), "batch %d: %s", i, gradients[k]);
}

/* ---- in flight ---- */

static pair_values in[3], one[3], out[3];

static void end_values(void)
{
    for (int i = 0; i < 3; i++) {
        pair_end(&in[i]);
        pair_end(&one[i]);
        pair_end(&out[i]);
    }
}

/* Three forwards, then their backwards in another order, give the bits of one pair after the
 * other. */
static void three_in_flight(const char *target, const char *recipe_name, const int64_t rows[3])
{
    static const int order[] = {1, 0, 2};
    fp8c_context *ctx = new_context();
    fp8c_program *p = make(ctx, layer, target, recipe_name);
    fp8c_saved *s[3];
    for (int i = 0; i < 3; i++) {
        batch(&in[i], i, rows[i]);
        s[i] = handle(ctx, p);
        if (rows[i] != 64)
            ck_assert_msg(fp8c_program_set_dim(p, "B", rows[i]) == FP8C_OK, "%s",
                          fp8c_context_message(ctx));
        pair_forward(p, false, s[0], &in[i], &one[i]);
        pair_backward(p, s[0], &in[i], &one[i]);
        ck_assert_int_eq(fp8c_program_wait(p), FP8C_OK);
    }
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(fp8c_program_set_dim(p, "B", rows[i]), FP8C_OK);
        pair_forward(p, false, s[i], &in[i], &out[i]);
    }
    for (int i = 0; i < 3; i++) /* room for results of each batch's shapes */
        for (int k = 1; k < 5; k++) {
            const pair_value *v = pair_find(&one[i], gradients[k]);
            void *zeros = calloc(1, (size_t)fp8c_type_bytes(&v->type));
            pair_set(&out[i], v->name, &v->type, zeros);
            free(zeros);
        }
    for (int k = 0; k < 3; k++)
        pair_backward(p, s[order[k]], &in[order[k]], &out[order[k]]);
    ck_assert_int_eq(fp8c_program_wait(p), FP8C_OK);
    for (int i = 0; i < 3; i++) {
        check_equal(&one[i], &out[i], i);
        fp8c_saved_destroy(s[i]);
    }
    end_values();
    fp8c_program_destroy(p);
    fp8c_context_destroy(ctx);
}

START_TEST(equal_batches)
{
    static const char *const recipes[] = {"bf16", "delayed", "rowwise"};
    three_in_flight(targets[_i / 3], recipes[_i % 3], (const int64_t[]){64, 64, 64});
}
END_TEST

/* Each backward runs with the batch size of its own forward. In a batch of one row more tensors
 * have only one element. These are saved, so forward saves other values than for a larger batch. */
START_TEST(batches_of_sizes)
{
    static const int64_t rows[][3] = {{64, 16, 32}, {64, 1, 3}};
    three_in_flight(targets[_i / 2], _i % 2 ? "bf16" : "delayed", rows[_i % 2]);
}
END_TEST

/* The handle gives what named ports give. */
START_TEST(handle_or_ports)
{
    fp8c_context *ctx = new_context();
    fp8c_program *p = make(ctx, layer, targets[_i], "delayed");
    fp8c_saved *s = handle(ctx, p);
    batch(&in[0], 0, 64);
    batch(&in[1], 0, 64);
    for (int first = 1; first >= 0; first--) {
        pair_forward(p, first, s, &in[0], &out[0]);
        pair_backward(p, s, &in[0], &out[0]);
        pair_end(&in[1]);
        batch(&in[1], 0, 64);
        pair_step(p, first, &in[1], &out[1]);
        check_equal(&out[0], &out[1], first);
        pair_end(&out[1]);
    }
    fp8c_saved_destroy(s);
    end_values();
    fp8c_program_destroy(p);
    fp8c_context_destroy(ctx);
}
END_TEST

/* ---- what may not change ---- */

START_TEST(nothing_changes_in_flight)
{
    static const char waits[] = "may not change parameters or scales now: 1 forward waits for its "
                                "backward";
    fp8c_context *ctx = new_context();
    fp8c_program *p = make(ctx, layer, targets[_i], "delayed");
    fp8c_saved *s = handle(ctx, p);
    float *weights = calloc(64 * 128, sizeof *weights);
    const int up = fp8c_program_find_variable(p, "up");
    batch(&in[0], 0, 64);
    pair_forward(p, false, s, &in[0], &out[0]);
    for (int k = 0; k < 2; k++) {
        ck_assert_int_eq(
            fp8c_program_run(p, fp8c_program_function(p, k ? "prepare" : "update_scales")),
            FP8C_ERR_INPUT);
        said(ctx, waits);
    }
    ck_assert_int_eq(fp8c_program_call(p, fp8c_program_function(p, "update_scales"), NULL, 0, NULL,
                                       0),
                     FP8C_ERR_INPUT);
    said(ctx, waits);
    ck_assert_int_eq(fp8c_program_write(p, up, weights), FP8C_ERR_INPUT);
    said(ctx, waits);
    ck_assert_int_eq(fp8c_program_initialize(p, 1), FP8C_ERR_INPUT);
    said(ctx, waits);
    for (int k = 0; k < 2; k++) {
        fp8c_position at = {.struct_size = sizeof at};
        ck_assert_int_eq(fp8c_program_load(p, "nowhere.safetensors", 0, k ? &at : NULL),
                         FP8C_ERR_INPUT);
        said(ctx, waits);
    }
    fp8c_program *q = make(ctx, layer, targets[_i], "delayed");
    ck_assert_int_eq(fp8c_program_carry(p, q, NULL), FP8C_ERR_INPUT);
    said(ctx, waits);
    fp8c_program_destroy(q);
    pair_run(p, "eval", &in[0], &out[1]);
    ck_assert(pair_equal(&out[0], &out[1], "y"));
    pair_backward(p, s, &in[0], &out[0]);
    ck_assert_int_eq(fp8c_program_run(p, fp8c_program_function(p, "update_scales")), FP8C_OK);
    ck_assert_int_eq(fp8c_program_write(p, up, weights), FP8C_OK);
    pair_forward(p, false, s, &in[0], &out[0]);
    fp8c_saved_drop(s);
    fp8c_saved_drop(s);
    ck_assert_int_eq(fp8c_program_write(p, up, weights), FP8C_OK);
    pair_forward(p, false, s, &in[0], &out[0]);
    fp8c_saved_destroy(s); /* a forward goes with its handle */
    ck_assert_int_eq(fp8c_program_write(p, up, weights), FP8C_OK);
    free(weights);
    end_values();
    fp8c_program_destroy(p);
    fp8c_context_destroy(ctx);
}
END_TEST

static const char counting_text[] =
    "module counting\nparam w: f32[16, 16] normal(1)\nstate seen: f32[] ones\n"
    "func forward(%x: f32[16, 16]) -> (%y: f32[16, 16]) {\n"
    "  return mul(matmul(%x, w), seen), seen <- add(seen, 1)\n}\n";

/* A state that forward replaces: backward reads the value that forward had, and a second forward is
 * refused. */
START_TEST(replaced_states)
{
    fp8c_context *ctx = new_context();
    fp8c_program *p = make(ctx, counting_text, targets[_i], "f32");
    fp8c_saved *s = handle(ctx, p), *t = handle(ctx, p);
    const fp8c_type square = {FP8C_F32, 2, {16, 16}};
    fp8c_tensor_view view = {.data = pair_get(&in[0], "x", &square),
                             .device = {1, 0},
                             .ndim = 2,
                             .dtype = {2, 32, 1},
                             .shape = (int64_t *)square.dim};
    fp8c_tensor_view result = view;
    const fp8c_tensor_view *inputs[] = {&view}, *outputs[] = {&result};
    result.data = pair_get(&out[1], "y", &square);
    for (int step = 1; step <= 3; step++) {
        pair_forward(p, false, s, &in[0], &out[0]);
        ck_assert_int_eq(fp8c_program_forward(p, 0, t, inputs, 1, outputs, 1), FP8C_ERR_INPUT);
        said(ctx, "'forward' replaces state 'seen', so only one forward may wait for its backward");
        pair_backward(p, s, &in[0], &out[0]);
        if (step == 1)
            pair_set(&one[0], "w", &square, pair_find(&out[0], "w")->data);
        const float *dw = pair_find(&out[0], "w")->data, *first = pair_find(&one[0], "w")->data;
        for (int i = 0; i < 256; i++) /* 1, 2 and 3 times: 3 rounds each product of 16 once */
            ck_assert_float_eq_tol(dw[i], first[i] * (float)step, 1e-4f);
    }
    pair_variables(p, "seen", &out[0]);
    ck_assert_float_eq(*(float *)pair_find(&out[0], "seen")->data, 4);
    fp8c_saved_destroy(s);
    fp8c_saved_destroy(t);
    end_values();
    fp8c_program_destroy(p);
    fp8c_context_destroy(ctx);
}
END_TEST

/* ---- wrong use ---- */

typedef struct tensors {
    float data[3][64 * 64];
    int64_t shape[2];
    fp8c_tensor_view view[3];
    const fp8c_tensor_view *list[3];
} tensors;

static void make_tensors(tensors *t)
{
    *t = (tensors){.shape = {64, 64}};
    for (int i = 0; i < 3; i++) {
        t->view[i] = (fp8c_tensor_view){
            .data = t->data[i], .device = {1, 0}, .ndim = 2, .dtype = {2, 32, 1},
            .shape = t->shape};
        t->list[i] = &t->view[i];
    }
    t->view[1].dtype.code = 4;
    t->view[1].dtype.bits = 16;
}

START_TEST(refused)
{
    static tensors t;
    fp8c_context *ctx = new_context();
    fp8c_program *p = make(ctx, layer, targets[_i], "bf16"),
                 *q = make(ctx, layer, targets[_i], "bf16");
    fp8c_saved *s = handle(ctx, p), *none;
    const fp8c_tensor_view **x = &t.list[0], **y = &t.list[1];
    make_tensors(&t);
    ck_assert_int_eq(fp8c_program_backward(p, s, y, 1, x, 1), FP8C_ERR_INPUT);
    said(ctx, "the handle holds no forward");
    ck_assert_int_eq(fp8c_program_forward(q, 0, s, x, 1, y, 1), FP8C_ERR_INPUT);
    said(ctx, "the handle is of another program");
    ck_assert_int_eq(fp8c_program_forward(p, 0, s, x, 1, y, 0), FP8C_ERR_INPUT);
    said(ctx, "'forward' has 1 outputs of the caller's ('y'): 0 were given");
    ck_assert_int_eq(fp8c_program_forward(p, 0, s, x, 1, y, 1), FP8C_OK);
    ck_assert_int_eq(fp8c_program_forward(p, 0, s, x, 1, y, 1), FP8C_ERR_INPUT);
    said(ctx, "the handle holds a forward whose backward has not run");
    ck_assert_int_eq(fp8c_program_backward(q, s, y, 1, x, 1), FP8C_ERR_INPUT);
    said(ctx, "the handle is of another program");

    /* a cotangent of the wrong dtype, shape, stride and device; the forward still waits */
    fp8c_tensor_view wrong = t.view[1];
    const fp8c_tensor_view *cotangents[2] = {&wrong, x[0]};
    fp8c_port port;
    int inputs = 0;
    const int backward = fp8c_program_function(p, "backward");
    for (int i = 0; fp8c_program_port(p, backward, FP8C_INPUT, i, &port) == FP8C_OK; i++)
        inputs += port.variable < 0 && strncmp(port.name, "saved.", 6);
    ck_assert_int_eq(inputs, 2);
    wrong.dtype = t.view[0].dtype;
    ck_assert_int_eq(fp8c_program_backward(p, s, cotangents, 2, x, 1), FP8C_ERR_INPUT);
    said(ctx, "'backward' has 4 outputs");
    static float dx[64 * 64], ln[64], up[64 * 128], down[128 * 64];
    const int64_t up_shape[] = {64, 128}, down_shape[] = {128, 64};
    fp8c_tensor_view results[4] = {t.view[0], t.view[0], t.view[0], t.view[0]};
    const fp8c_tensor_view *list[4];
    void *const data[] = {dx, ln, up, down};
    for (int i = 0; i < 4; i++) {
        results[i].data = data[i];
        list[i] = &results[i];
    }
    results[1].ndim = 1;
    results[2].shape = (int64_t *)up_shape;
    results[3].shape = (int64_t *)down_shape;
    ck_assert_int_eq(fp8c_program_backward(p, s, cotangents, 2, list, 4), FP8C_ERR_INPUT);
    said(ctx, "input 'dy' of 'backward': it is of f32, and the port takes bf16");
    int64_t shape[] = {32, 64}, strides[] = {128, 1};
    wrong = t.view[1];
    wrong.shape = shape;
    ck_assert_int_eq(fp8c_program_backward(p, s, cotangents, 2, list, 4), FP8C_ERR_INPUT);
    said(ctx, "input 'dy' of 'backward': its shape is [32, 64], and the port takes [64, 64]");
    wrong = t.view[1];
    wrong.strides = strides;
    ck_assert_int_eq(fp8c_program_backward(p, s, cotangents, 2, list, 4), FP8C_ERR_INPUT);
    said(ctx, "input 'dy' of 'backward': its strides are [128, 1]");
    wrong = t.view[1];
    wrong.device.type = 10;
    ck_assert_int_eq(fp8c_program_backward(p, s, cotangents, 2, list, 4), FP8C_ERR_INPUT);
    said(ctx, "input 'dy' of 'backward': it is on device 10:0");
    wrong = t.view[1];
    ck_assert_msg(fp8c_program_backward(p, s, cotangents, 2, list, 4) == FP8C_OK, "%s",
                  fp8c_context_message(ctx));

    /* a program without a pair; a handle that outlives its program */
    fp8c_compile_options o = recipe("bf16");
    o.target = targets[_i];
    fp8c_module *m = parse(ctx, model);
    fp8c_program *plain = compile(ctx, m, &o);
    ck_assert_int_eq(fp8c_saved_create(plain, &none), FP8C_ERR_INPUT);
    said(ctx, "the program has no 'forward': it was compiled without `pair`");
    ck_assert_ptr_null(none);
    fp8c_module_destroy(m);
    fp8c_program_destroy(plain);
    fp8c_program_destroy(p);
    ck_assert_int_eq(fp8c_program_forward(q, 0, s, x, 1, y, 1), FP8C_ERR_INPUT);
    said(ctx, "the handle is of another program, which was destroyed");
    fp8c_saved_drop(s);
    fp8c_saved_destroy(s);
    fp8c_saved_destroy(NULL);
    fp8c_program_destroy(q);
    fp8c_context_destroy(ctx);
}
END_TEST

/* ---- memory ---- */

/* A handle takes the bytes that the ports have, each rounded up to 256, and gives them back. */
START_TEST(bytes_of_handles)
{
    fp8c_context *ctx = new_context();
    fp8c_program *p = make(ctx, layer, targets[2 * _i], "delayed");
    fp8c_info before = {.struct_size = sizeof before}, after = before;
    int n, n_first;
    const int64_t plain = pair_saved_bytes(p, "forward", &n);
    const int64_t first = pair_saved_bytes(p, "forward.first", &n_first);
    fp8c_program_info(p, &before);
    fp8c_saved *s = handle(ctx, p);
    fp8c_program_info(p, &after);
    const int64_t bytes = after.peak_bytes - before.peak_bytes;
    ck_assert_int_ge(bytes, plain > first ? plain : first);
    ck_assert_int_le(bytes, (plain > first ? plain : first) + 255 * (n > n_first ? n : n_first));
    fp8c_saved_destroy(s);
    s = handle(ctx, p);
    fp8c_program_info(p, &after);
    ck_assert_int_eq(after.peak_bytes - before.peak_bytes, bytes);
    batch(&in[0], 0, 64);
    pair_forward(p, false, s, &in[0], &out[0]);
    fp8c_saved_destroy(s);
    pair_step(p, false, &in[0], &out[0]); /* no port still has the handle's memory */
    end_values();
    fp8c_program_destroy(p);
    fp8c_context_destroy(ctx);
}
END_TEST

Suite *f8_suite(void)
{
    f8_test_gpu_emulated();
    Suite *s = suite_create("saved");
    TCase *t = tcase_create("saved");
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_loop_test(t, equal_batches, 0, 9);
    tcase_add_loop_test(t, batches_of_sizes, 0, 6);
    tcase_add_loop_test(t, handle_or_ports, 0, 3);
    tcase_add_loop_test(t, nothing_changes_in_flight, 0, 3);
    tcase_add_loop_test(t, replaced_states, 0, 3);
    tcase_add_loop_test(t, refused, 0, 3);
    tcase_add_loop_test(t, bytes_of_handles, 0, 2);
    suite_add_tcase(s, t);
    return s;
}
