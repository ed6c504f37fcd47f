/* For tests of dims that are bounds: a module of two bounds, one of which follows from its inputs,
 * and calls of it. */
#ifndef TEST_BOUNDS_H
#define TEST_BOUNDS_H

#include "tests/shared/api/api.h"

static inline fp8c_program *compile_text(fp8c_context *ctx, const char *text, const fp8c_dim *dims,
                                         size_t n_dims, const char *rule,
                                         const fp8c_compile_options *o)
{
    fp8c_module *m;
    char *copy = strdup(text);
    ck_assert_msg(fp8c_module_parse(ctx, copy, strlen(copy), "t.f8", dims, n_dims, &m) == FP8C_OK,
                  "%s", fp8c_context_message(ctx));
    free(copy);
    if (rule)
        ck_assert_msg(fp8c_module_rule(m, rule, "--rule") == FP8C_OK, "%s",
                      fp8c_context_message(ctx));
    fp8c_program *p = compile(ctx, m, o);
    fp8c_module_destroy(m);
    return p;
}

static const char shapes[] __attribute__((unused)) =
    "module shapes\n"
    "dim B <= 8, S <= 4\n"
    "param w: f32[4, 4] normal(0.5)\n"
    "func forward(%x: f32[B, 4], %y: f32[2*B + 1], %z: f32[B*S]) -> (%loss: f32[], %s: f32[B, 4]) "
    "{\n"
    "  %s = linear(%x, w) {name = \"fc\"}\n"
    "  %a = mul(reshape(mean(%y)) {shape = []}, reshape(mean(%z)) {shape = []})\n"
    "  return mul(reshape(mean(mean(%s)) {axis = 0}) {shape = []}, %a), %s\n"
    "}\n"
    "optimizer adamw {lr = 1e-3}\n";

typedef struct tensor {
    fp8c_tensor_view view;
    int64_t shape[2];
    float data[256];
} tensor;

static inline tensor make(int32_t rank, int64_t a, int64_t b)
{
    tensor t = {.shape = {a, b}};
    t.view.ndim = rank;
    t.view.device.type = 1;
    t.view.dtype.code = 2;
    t.view.dtype.bits = 32;
    t.view.dtype.lanes = 1;
    for (int i = 0; i < 256; i++)
        t.data[i] = (float)(i % 7) - 2;
    return t;
}

/* eval with x [b, 4], y [y], z [z]. */
static inline fp8c_status call(fp8c_program *p, int64_t b, int64_t y, int64_t z, float *loss)
{
    tensor in[3] = {make(2, b, 4), make(1, y, 0), make(1, z, 0)},
           out[2] = {make(0, 0, 0), make(2, b, 4)};
    const fp8c_tensor_view *from[3], *to[2];
    for (int i = 0; i < 3; i++) {
        in[i].view.data = in[i].data;
        in[i].view.shape = in[i].shape;
        from[i] = &in[i].view;
    }
    for (int i = 0; i < 2; i++) {
        out[i].view.data = out[i].data;
        out[i].view.shape = out[i].shape;
        to[i] = &out[i].view;
    }
    const fp8c_status status =
        fp8c_program_call(p, fp8c_program_function(p, "eval"), from, 3, to, 2);
    *loss = out[0].data[0];
    return status;
}

static inline void dims_are(const fp8c_program *p, int64_t b, int64_t s)
{
    fp8c_program_dim dim[2];
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(fp8c_program_dims(p, i, &dim[i]), FP8C_OK);
    ck_assert_int_eq(dim[0].value, b);
    ck_assert_int_eq(dim[1].value, s);
}

#endif
