/* Models as deep as real ones, and tiny otherwise: Llama and BERT of 12 layers under `delayed`, on
 * every target and through every front door of the library and the command.
 * tests/torch/test_depth.py has the same through torch.compile. What a kernel, a phase or a launch
 * can hold shows only here. */
#include "frontend/fp8c_diagnose.h"
#include "tests/shared/api/bounds.h"
#include "tests/shared/api/cli.h"
#include "tests/shared/api/pair_case.h"
#include "tests/shared/cuda/gpu.h"
#include "tests/shared/suite.h"

#include <math.h>

#define LLAMA "frontend/models/llama_block.f8"
#define BERT "tests/models/bert.f8"

enum { LAYERS = 12, LLAMA_LINEARS = 7 * LAYERS, BERT_LINEARS = 6 * LAYERS };

static const char *const targets[] = {"reference", "cpu", "cuda"};
enum { N_TARGETS = sizeof targets / sizeof *targets };

/* ---- the models ---- */

static const fp8c_dim llama_dims[] = {{"L", LAYERS}, {"B", 1},  {"T", 16}, {"C", 32},
                                      {"F", 32},     {"V", 32}, {"H", 2},  {"KV", 1}};
static const fp8c_dim bert_dims[] = {{"L", LAYERS}, {"B", 1},  {"T", 16}, {"C", 32},
                                     {"F", 32},     {"S", 16}, {"H", 2},  {"P", 16}};
enum { N_DIMS = 8 };

static fp8c_program *program_of(fp8c_context *ctx, const char *path, const fp8c_dim *dims,
                                const char *rule, const fp8c_compile_options *o)
{
    size_t size;
    char *text = f8_cli_read(path, &size);
    fp8c_program *p = compile_text(ctx, text, dims, N_DIMS, rule, o);
    free(text);
    ck_assert_int_eq(fp8c_program_initialize(p, 7), FP8C_OK);
    return p;
}

static fp8c_compile_options delayed(const char *target)
{
    fp8c_compile_options o = recipe("delayed");
    o.target = target;
    return o;
}

/* The auto rule of the text needs data; this one comes after it. */
static const char all_delayed[] = "\"model.layers.*\" = delayed";

/* Two steps of training; the losses. */
static void train(fp8c_context *ctx, fp8c_program *p, float loss[2])
{
    const int step = fp8c_program_function(p, "micro_step");
    for (int i = 0; i < 2; i++) {
        for (int port = 0; port < 2; port++) {
            int32_t *ids = fp8c_program_buffer(p, step, FP8C_INPUT, port);
            for (int k = 0; k < 16; k++)
                ids[k] = (5 * k + 3 * port) % 32;
        }
        ck_assert_msg(fp8c_program_run(p, step) == FP8C_OK, "%s", fp8c_context_message(ctx));
        loss[i] = *(const float *)fp8c_program_buffer(p, step, FP8C_OUTPUT, 0);
        ck_assert_msg(fp8c_program_run(p, fp8c_program_function(p, "update")) == FP8C_OK, "%s",
                      fp8c_context_message(ctx));
    }
}

/* ---- training, on every target ---- */

/* Each target trains with all linears in FP8. The first loss is near the interpreter's: it follows
 * from logits of about 0.1 (weights of 0.02), whose two dozen bf16 roundings of the residual stream
 * are off by less than 24 * 2^-9 of that each, so the loss is by less than 0.01. */
START_TEST(llama_trains)
{
    static float first[2];
    fp8c_context *ctx = new_context();
    for (int i = 0; i < N_TARGETS; i++) {
        float loss[2];
        const fp8c_compile_options o = delayed(targets[i]);
        fp8c_program *p = program_of(ctx, LLAMA, llama_dims, all_delayed, &o);
        train(ctx, p, loss);
        fp8c_info info = {.struct_size = sizeof info};
        fp8c_program_info(p, &info);
        ck_assert_int_eq(info.fp8_gemms_planned, 3 * LLAMA_LINEARS);
        if (i > 0) /* the interpreter counts none */
            ck_assert_int_eq(info.fp8_gemms_executed, 2 * 3 * LLAMA_LINEARS);
        if (i == 0)
            memcpy(first, loss, sizeof first);
        printf("%s: losses %.6g %.6g\n", targets[i], (double)loss[0], (double)loss[1]);
        ck_assert_float_le(fabsf(loss[0] - first[0]), 0.01f);
        ck_assert_msg(loss[1] < loss[0], "%s: %g after %g", targets[i], (double)loss[1],
                      (double)loss[0]);
        fp8c_program_destroy(p);
    }
    fp8c_context_destroy(ctx);
}
END_TEST

/* ---- pairs ---- */

static pair_values in, out, again, kept, kept_again;

/* Two steps of a pair, the first without a history: what they give, and the variables then. */
static void pair_of(fp8c_program *p, pair_values *gives, pair_values *keeps)
{
    pair_step(p, true, &in, gives);
    pair_step(p, false, &in, gives);
    pair_variables(p, "", keeps);
    pair_forget(&in, "saved.");
    pair_forget(gives, "saved.");
}

static void end_values(void)
{
    pair_values *const all[] = {&in, &out, &again, &kept, &kept_again};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        pair_end(all[i]);
}

/* NaN would equal NaN, whatever was computed. */
static void is_finite(const pair_value *v)
{
    const float *x = v->data;
    for (int64_t i = 0; v->type.dtype == FP8C_F32 && i < fp8c_type_bytes(&v->type) / 4; i++)
        ck_assert_msg(isfinite(x[i]), "%s[%lld] is %g", v->name, (long long)i, (double)x[i]);
}

static void same_values(const pair_values *a, const pair_values *b)
{
    ck_assert_int_eq(a->n, b->n);
    for (int i = 0; i < a->n; i++) {
        is_finite(&a->value[i]);
        ck_assert_msg(pair_equal(a, b, a->value[i].name), "%s differs", a->value[i].name);
    }
}

/* Fused and node by node: the same bits. */
static void fusion_keeps_bits(const char *text, const fp8c_dim *dims, size_t n_dims,
                              const char *rule, const char *target, int linears)
{
    fp8c_context *ctx = new_context();
    for (int i = 0; i < 2; i++) {
        fp8c_compile_options o = delayed(target);
        o.pair = 1;
        o.no_fuse = i;
        fp8c_program *p = compile_text(ctx, text, dims, n_dims, rule, &o);
        ck_assert_int_eq(fp8c_program_initialize(p, 7), FP8C_OK);
        pair_of(p, i ? &again : &out, i ? &kept_again : &kept);
        fp8c_info info = {.struct_size = sizeof info};
        fp8c_program_info(p, &info);
        ck_assert_int_ge(info.fp8_gemms_planned, 3 * linears - 1); /* %x has no gradient */
        fp8c_program_destroy(p);
    }
    same_values(&out, &again);
    same_values(&kept, &kept_again);
    end_values();
    fp8c_context_destroy(ctx);
}

static void model_keeps_bits(const char *path, const fp8c_dim *dims, const char *rule,
                             const char *target, int linears)
{
    size_t size;
    char *text = f8_cli_read(path, &size);
    fusion_keeps_bits(text, dims, N_DIMS, rule, target, linears);
    free(text);
}

START_TEST(pairs_of_models)
{
    model_keeps_bits(LLAMA, llama_dims, all_delayed, targets[_i], LLAMA_LINEARS);
    model_keeps_bits(BERT, bert_dims, NULL, targets[_i], BERT_LINEARS);
}
END_TEST

/* Scales follow from a history for each operand: so many maxima in one kernel. */
START_TEST(many_linears)
{
    static const int linears[] = {64, 65, 200};
    static const char text[] = "module many\n"
                               "dim L = 2, C = 16, T = 16\n"
                               "repeat l < L { param w.{l}: f32[C, C] normal(0.1) }\n"
                               "func forward(%x: f32[T, C]) -> (%y: f32[T, C]) {\n"
                               "  repeat l < L carry %h = %x {\n"
                               "    %h = add(%h, linear(%h, w.{l}))\n"
                               "  }\n"
                               "  return %h\n"
                               "}\n";
    const fp8c_dim dims[] = {{"L", linears[_i]}};
    fusion_keeps_bits(text, dims, 1, NULL, "cpu", linears[_i]);
    if (linears[_i] == 200)
        fusion_keeps_bits(text, dims, 1, NULL, "cuda", linears[_i]);
}
END_TEST

/* ---- the witness ---- */

static void count_wrong(void *user, const fp8c_witnessed *v)
{
    int *const n = user;
    n[v->verdict == FP8C_WRONG]++;
    n[2] += v->verdict == FP8C_NOT_JUDGED;
}

/* Every value of a step is judged, also where one of them is put together of many. */
START_TEST(many_operands_are_judged)
{
    static const char text[] = "module many\n"
                               "dim L = 2, C = 16, T = 16\n"
                               "repeat l < L { param w.{l}: f32[C, C] normal(0.1) }\n"
                               "param s: f32[L, C] ones\n"
                               "func forward(%x: f32[T, C]) -> (%loss: f32[], %h: f32[T, C]) {\n"
                               "  repeat l < L carry %h = %x {\n"
                               "    %n = mul(%h, slice(s) {axis = 0, start = l, stop = l + 1})\n"
                               "    %h = add(%h, linear(%n, w.{l}))\n"
                               "  }\n"
                               "  return reshape(reduce_sum(reshape(%h) {shape = [T * C]})) "
                               "{shape = []}, %h\n"
                               "}\n"
                               "optimizer adamw {lr = 1e-3}\n";
    static const int64_t layers[] = {64, 65, 200};
    const fp8c_dim depth = {"L", layers[_i]};
    static const char *const functions[] = {"micro_step", "update"};
    fp8c_context *ctx = new_context();
    for (int no_fuse = 0; no_fuse < 2; no_fuse++) {
        fp8c_compile_options o = delayed("cpu");
        o.witness = 1;
        o.no_fuse = no_fuse;
        fp8c_program *p = compile_text(ctx, text, &depth, 1, NULL, &o);
        ck_assert_int_eq(fp8c_program_initialize(p, 7), FP8C_OK);
        for (int i = 0; i < 2; i++) {
            int n[3] = {0};
            ck_assert_msg(fp8c_program_run_witnessed(p, fp8c_program_function(p, functions[i]), 1,
                                                     count_wrong, n) == FP8C_OK,
                          "%s of %lld: %s", functions[i], (long long)layers[_i],
                          fp8c_context_message(ctx));
            ck_assert(n[0] > 0 && n[1] == 0 && n[2] == 0);
        }
        fp8c_program_destroy(p);
    }
    fp8c_context_destroy(ctx);
}
END_TEST

/* ---- front doors ---- */

static fp8c_value op(fp8c_module *m, const char *name, fp8c_value a, fp8c_value b, fp8c_value c,
                     const fp8c_attr *attrs, size_t n_attrs)
{
    const fp8c_value v =
        fp8c_func_op(m, name, (fp8c_value[]){a, b, c}, (size_t)(1 + !!b + !!c), attrs, n_attrs);
    ck_assert_uint_ne(v, 0);
    return v;
}

static fp8c_value param(fp8c_module *m, int layer, const char *name)
{
    char whole[96];
    snprintf(whole, sizeof whole, "model.layers.%d.%s.weight", layer, name);
    const fp8c_value v = fp8c_func_param(m, whole);
    ck_assert_uint_ne(v, 0);
    return v;
}

static fp8c_value linear(fp8c_module *m, fp8c_value x, fp8c_value w)
{
    const fp8c_attr transposed = {.name = "transpose_b", .kind = FP8C_ATTR_BOOL, .i = 1};
    return op(m, "linear", x, w, 0, &transposed, 1);
}

static fp8c_value norm(fp8c_module *m, fp8c_value x, fp8c_value w)
{
    const fp8c_attr eps = {.name = "eps", .kind = FP8C_ATTR_FLOAT, .f = 1e-5};
    return op(m, "rmsnorm", x, w, 0, &eps, 1);
}

static fp8c_value rope(fp8c_module *m, fp8c_value x, int heads)
{
    const fp8c_attr attrs[] = {{.name = "heads", .kind = FP8C_ATTR_INT, .i = heads},
                               {.name = "base", .kind = FP8C_ATTR_FLOAT, .f = 10000}};
    return op(m, "rope", x, 0, 0, attrs, 2);
}

static fp8c_value block(fp8c_module *m, fp8c_value x, int l)
{
    const fp8c_attr heads[] = {{.name = "heads", .kind = FP8C_ATTR_INT, .i = 2},
                               {.name = "kv_heads", .kind = FP8C_ATTR_INT, .i = 1}};
    const fp8c_value n = norm(m, x, param(m, l, "input_layernorm"));
    const fp8c_value q = linear(m, n, param(m, l, "self_attn.q_proj")),
                     k = linear(m, n, param(m, l, "self_attn.k_proj")),
                     v = linear(m, n, param(m, l, "self_attn.v_proj"));
    const fp8c_value a = op(m, "attention", rope(m, q, 2), rope(m, k, 1), v, heads, 2);
    const fp8c_value r = op(m, "add", x, linear(m, a, param(m, l, "self_attn.o_proj")), 0, NULL, 0);
    const fp8c_value s = norm(m, r, param(m, l, "post_attention_layernorm"));
    const fp8c_value g = op(m, "silu", linear(m, s, param(m, l, "mlp.gate_proj")), 0, 0, NULL, 0);
    const fp8c_value both = op(m, "mul", g, linear(m, s, param(m, l, "mlp.up_proj")), 0, NULL, 0);
    return op(m, "add", r, linear(m, both, param(m, l, "mlp.down_proj")), 0, NULL, 0);
}

static void declare(fp8c_module *m, const char *name, int64_t a, int64_t b, double std)
{
    const fp8c_type t = {FP8C_F32, b ? 2 : 1, {a, b}};
    ck_assert_int_eq(
        fp8c_module_param(m, name, &t, std > 0 ? FP8C_INIT_NORMAL : FP8C_INIT_ONES, std), FP8C_OK);
}

static void declare_layer(fp8c_module *m, int l, double last)
{
    const struct {
        const char *name;
        int64_t a, b;
        double std;
    } params[] = {{"input_layernorm", 32, 0, 0},      {"self_attn.q_proj", 32, 32, 0.02},
                  {"self_attn.k_proj", 16, 32, 0.02}, {"self_attn.v_proj", 16, 32, 0.02},
                  {"self_attn.o_proj", 32, 32, last}, {"post_attention_layernorm", 32, 0, 0},
                  {"mlp.gate_proj", 32, 32, 0.02},    {"mlp.up_proj", 32, 32, 0.02},
                  {"mlp.down_proj", 32, 32, last}};
    for (size_t i = 0; i < sizeof params / sizeof *params; i++) {
        char whole[96];
        snprintf(whole, sizeof whole, "model.layers.%d.%s.weight", l, params[i].name);
        declare(m, whole, params[i].a, params[i].b, params[i].std);
    }
}

/* The Llama of the text, by calls, without an optimizer. */
static fp8c_module *built(fp8c_context *ctx)
{
    fp8c_module *m;
    const fp8c_type ids = {FP8C_I32, 2, {1, 16}};
    ck_assert_int_eq(fp8c_module_create(ctx, "llama_block", &m), FP8C_OK);
    declare(m, "model.embed_tokens.weight", 32, 32, 0.02);
    for (int l = 0; l < LAYERS; l++)
        declare_layer(m, l, 0.02 / sqrt(2 * LAYERS));
    declare(m, "model.norm.weight", 32, 0, 0);
    declare(m, "lm_head.weight", 32, 32, 0.02);
    ck_assert_int_eq(fp8c_func_begin(m, "forward"), FP8C_OK);
    const fp8c_value tokens = fp8c_func_input(m, "tokens", &ids),
                     targets_of = fp8c_func_input(m, "targets", &ids);
    fp8c_value x =
        op(m, "embedding", fp8c_func_param(m, "model.embed_tokens.weight"), tokens, 0, NULL, 0);
    for (int l = 0; l < LAYERS; l++)
        x = block(m, x, l);
    x = norm(m, x, fp8c_func_param(m, "model.norm.weight"));
    const fp8c_value logits = linear(m, x, fp8c_func_param(m, "lm_head.weight"));
    ck_assert_int_eq(
        fp8c_func_result(m, "loss", op(m, "cross_entropy", logits, targets_of, 0, NULL, 0)),
        FP8C_OK);
    ck_assert_msg(fp8c_func_end(m) == FP8C_OK, "%s", fp8c_context_message(ctx));
    ck_assert_int_eq(fp8c_module_rule(m, "\"lm_head\" = bf16", NULL), FP8C_OK);
    return m;
}

/* The builder's module computes what the text's does, forward and backward. */
START_TEST(by_calls)
{
    fp8c_context *ctx = new_context();
    fp8c_compile_options o = delayed("cpu");
    o.pair = 1;
    fp8c_program *p = program_of(ctx, LLAMA, llama_dims, all_delayed, &o);
    pair_of(p, &out, &kept);
    fp8c_program_destroy(p);
    fp8c_module *m = built(ctx);
    p = compile(ctx, m, &o);
    fp8c_module_destroy(m);
    ck_assert_int_eq(fp8c_program_initialize(p, 7), FP8C_OK);
    pair_of(p, &again, &kept_again);
    fp8c_program_destroy(p);
    ck_assert_ptr_nonnull(pair_find(&out, "model.layers.0.mlp.down_proj.weight"));
    same_values(&out, &again);
    end_values();
    fp8c_context_destroy(ctx);
}
END_TEST

#define DIMS                                                                                       \
    "-D", "L=12", "-D", "B=1", "-D", "T=16", "-D", "C=32", "-D", "F=32", "-D", "V=256", "-D",      \
        "H=2", "-D", "KV=1"
#define RULE "--rule", "\"model.layers.*\" = delayed"

/* The path of a .npy file of i32[1, 16]. */
static const char *write_ids(const char *name, const int32_t id[16])
{
    char file[128 + 16 * sizeof *id];
    memset(file, ' ', 128);
    memcpy(file, "\x93NUMPY\x01\x00\x76\x00", 10);
    static const char head[] = "{'descr': '<i4', 'fortran_order': False, 'shape': (1, 16), }";
    memcpy(file + 10, head, sizeof head - 1);
    file[127] = '\n';
    memcpy(file + 128, id, 16 * sizeof *id);
    return f8_cli_write(name, file, sizeof file);
}

/* The command trains it, and runs its steps from the text and from a .f8x file, with the same bits.
 */
START_TEST(by_command)
{
    char data[2048], file[512], ids[2][640], loss[2][640], bytes[2][256];
    int32_t id[16];
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (char)('a' + i * i % 23);
    f8_cli_result r = F8_CLI("train", LLAMA, DIMS, RULE, "--recipe", "delayed", "--data",
                             f8_cli_write("data.txt", data, sizeof data), "--steps", "2");
    ck_assert_msg(r.code == 0, "%s", r.err);
    for (int i = 0; i < 16; i++)
        id[i] = 11 * i % 32;
    for (int i = 0; i < 2; i++)
        snprintf(ids[i], sizeof ids[i], "%s=%s", i ? "targets" : "tokens",
                 write_ids(i ? "b.npy" : "a.npy", id));
    snprintf(file, sizeof file, "%s", f8_cli_temp("llama.f8x"));
    r = F8_CLI("compile", LLAMA, DIMS, RULE, "--recipe", "delayed", "-o", file);
    ck_assert_msg(r.code == 0, "%s", r.err);
    for (int i = 0; i < 2; i++) {
        snprintf(loss[i], sizeof loss[i], "loss=%s", f8_cli_temp(i ? "f.npy" : "t.npy"));
#define STEPS                                                                                      \
    "--function", "micro_step", "--function", "update", "--function", "micro_step", "--input",     \
        ids[0], "--input", ids[1], "--output", loss[i]
        r = i ? F8_CLI("run", file, STEPS)
              : F8_CLI("run", LLAMA, DIMS, RULE, "--recipe", "delayed", STEPS);
        ck_assert_msg(r.code == 0, "%s", r.err);
        size_t n;
        char *got = f8_cli_read(loss[i] + strlen("loss="), &n);
        ck_assert_uint_le(n, sizeof bytes[i]);
        memset(bytes[i], 0, sizeof bytes[i]);
        memcpy(bytes[i], got, n);
        free(got);
    }
    ck_assert_mem_eq(bytes[0], bytes[1], sizeof bytes[0]);
}
END_TEST

/* Its kernels can be printed for every GPU. */
START_TEST(kernels_of_every_gpu)
{
    static const char *const gpus[] = {"sm_89", "sm_90a", "sm_100a", "sm_120a"};
    const f8_cli_result r = F8_CLI("compile", LLAMA, DIMS, RULE, "--recipe", "delayed", "--target",
                                   gpus[_i], "--emit", "cuda");
    ck_assert_msg(r.code == 0, "%s", r.err);
    ck_assert_ptr_nonnull(strstr(r.out, "F8_KERNEL(rows_"));
}
END_TEST

Suite *f8_suite(void)
{
    f8_test_gpu_emulated();
    Suite *s = suite_create("depth");
    TCase *t = tcase_create("depth");
    tcase_set_timeout(t, 300);
    tcase_add_checked_fixture(t, f8_cli_setup, f8_cli_teardown);
    tcase_add_test(t, llama_trains);
    tcase_add_loop_test(t, pairs_of_models, 0, N_TARGETS);
    tcase_add_loop_test(t, many_linears, 0, 3);
    tcase_add_loop_test(t, many_operands_are_judged, 0, 3);
    tcase_add_test(t, by_calls);
    tcase_add_test(t, by_command);
    tcase_add_loop_test(t, kernels_of_every_gpu, 0, 4);
    suite_add_tcase(s, t);
    return s;
}
