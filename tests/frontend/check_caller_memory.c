/* Memory of the caller on targets with variables in host memory: variables bound to its tensors,
 * and variables that programs share. check_external has what has no memory of ours,
 * check_cuda_memory the same on a GPU. */
#include "tests/shared/api/api_run.h"
#include "tests/shared/api/bounds_case.h"
#include "tests/shared/api/caller_memory.h"
#include "tests/shared/api/cli.h"
#include "tests/shared/suite.h"

enum { CPU = 1 }; /* DLPack's device */

static const fp8c_dim small[] = {{"B", 2}, {"T", 16}, {"L", 1}, {"C", 32}, {"H", 2}};

static void open_gpt(f8_api_run *r, const char *target, const char *recipe)
{
    const f8_api_setup setup = {.file = "frontend/models/gpt.f8",
                                .dims = small,
                                .n_dims = sizeof small / sizeof *small,
                                .options = {.target = target, .recipe = recipe, .threads = 2}};
    ck_assert_msg(f8_api_open(r, &setup), "%s", r->failed);
}

/* ---- bits ---- */

static const struct {
    const char *target, *recipe;
} programs[] = {{"cpu", "delayed"},   {"cpu", "current"},       {"cpu", "mxfp8"},
                {"cpu", "f32"},       {"reference", "delayed"}, {"reference", "bf16"}};

/* Variables in the caller's tensors give the bits of those in ours, at any address. Ours keep what
 * they held. */
START_TEST(bits)
{
    f8_api_run own, bound;
    caller_tensors t;
    size_t n;
    open_gpt(&own, programs[_i].target, programs[_i].recipe);
    open_gpt(&bound, programs[_i].target, programs[_i].recipe);
    unsigned char *before = f8_api_state(&bound, &n);
    caller_make(&t, bound.program);
    caller_move_all(bound.ctx, bound.program, &t, CPU);
    for (int step = 0; step < 3; step++) {
        const float want = f8_api_step(&own, 256, (uint64_t)step),
                    got = f8_api_step(&bound, 256, (uint64_t)step);
        ck_assert_msg(want > 0 && !memcmp(&want, &got, sizeof want), "step %d: %g, %g", step,
                      (double)want, (double)got);
        ck_assert_pstr_eq(f8_api_differs(&own, &bound), NULL);
    }
    unsigned char *after = before;
    for (int i = 0; i < t.n; i++) {
        fp8c_variable v;
        fp8c_tensor_view view;
        ck_assert_int_eq(fp8c_program_variable(bound.program, i, &v), FP8C_OK);
        ck_assert_ptr_eq(v.data, t.at[i]);
        ck_assert_int_eq(fp8c_program_variable_view(bound.program, i, &view), FP8C_OK);
        ck_assert_ptr_eq(view.data, t.at[i]);
        ck_assert(t.at[i][-1] == 0x5a && t.at[i][t.bytes[i]] == 0x5a);
        ck_assert_int_eq(fp8c_program_bind_variable(bound.program, i, NULL), FP8C_OK);
        ck_assert_int_eq(fp8c_program_variable(bound.program, i, &v), FP8C_OK);
        if (after < before + n) { /* codes, which are not in the state, come last */
            ck_assert_mem_eq(v.data, after, t.bytes[i]);
            after += t.bytes[i];
        }
    }
    free(before);
    caller_free(&t);
    f8_api_close(&own);
    f8_api_close(&bound);
}
END_TEST

/* One program trains two models in turn: two sets of tensors, bound before each step. */
START_TEST(two_sets)
{
    f8_api_run first, second, both;
    caller_tensors t[2];
    open_gpt(&first, "cpu", "delayed");
    open_gpt(&second, "cpu", "delayed");
    open_gpt(&both, "cpu", "delayed");
    for (int i = 0; i < 2; i++) {
        caller_make(&t[i], both.program);
        caller_bind_all(both.ctx, both.program, &t[i], CPU);
        ck_assert_int_eq(fp8c_program_initialize(both.program, i ? 77 : 1), FP8C_OK);
    }
    ck_assert_int_eq(fp8c_program_initialize(second.program, 77), FP8C_OK);
    for (int step = 0; step < 3; step++)
        for (int i = 0; i < 2; i++) {
            f8_api_run *alone = i ? &second : &first;
            caller_bind_all(both.ctx, both.program, &t[i], CPU);
            const float want = f8_api_step(alone, 256, (uint64_t)step),
                        got = f8_api_step(&both, 256, (uint64_t)step);
            ck_assert(!memcmp(&want, &got, sizeof want));
            ck_assert_pstr_eq(f8_api_differs(alone, &both), NULL);
        }
    for (int i = 0; i < 2; i++)
        caller_free(&t[i]);
    f8_api_close(&first);
    f8_api_close(&second);
    f8_api_close(&both);
}
END_TEST

/* All values of dims that are bounds use what is bound. */
START_TEST(bounds)
{
    f8_api_run own, bound;
    caller_tensors t;
    const fp8c_compile_options o = {.recipe = "delayed", .threads = 1};
    f8_bounds_open(&own, 0, false, o);
    f8_bounds_open(&bound, 0, false, o);
    f8_bounds_set(&bound, 3); /* this variant exists before, the next one is made after */
    caller_make(&t, bound.program);
    caller_move_all(bound.ctx, bound.program, &t, CPU);
    for (int b = 2; b <= 4; b++) {
        f8_bounds_set(&own, b);
        f8_bounds_set(&bound, b);
        const float want = f8_api_step(&own, 64, 1), got = f8_api_step(&bound, 64, 1);
        ck_assert(want > 0 && !memcmp(&want, &got, sizeof want));
        ck_assert_pstr_eq(f8_api_differs(&own, &bound), NULL);
    }
    caller_free(&t);
    f8_api_close(&own);
    f8_api_close(&bound);
}
END_TEST

/* ---- values ---- */

/* What is bound has a value; a variable in memory of ours has one once it is initialized, loaded or
 * written. */
START_TEST(values)
{
    fp8c_context *ctx = new_context();
    fp8c_module *m = parse(ctx, model);
    const fp8c_compile_options o = recipe("f32");
    fp8c_program *p = compile(ctx, m, &o), *q = compile(ctx, m, &o);
    caller_tensors t;
    caller_make(&t, p);
    ck_assert_int_eq(fp8c_program_initialize(q, 5), FP8C_OK);
    ck_assert_int_eq(fp8c_program_run(p, fp8c_program_function(p, "eval")), FP8C_ERR_INPUT);
    said(ctx, "the variables have no values: call fp8c_program_initialize");
    for (int i = 0; i < t.n; i++) {
        ck_assert_int_eq(fp8c_program_read(q, i, t.at[i]), FP8C_OK);
        if (i % 2)
            ck_assert_int_eq(caller_bind(p, i, t.at[i], CPU), FP8C_OK);
    }
    ck_assert_int_eq(fp8c_program_run(p, fp8c_program_function(p, "eval")), FP8C_ERR_INPUT);
    said(ctx, "variable 'wte' has no value: initialize or write it, or bind a tensor");
    const char *path = f8_cli_temp("values.safetensors");
    ck_assert_int_eq(fp8c_program_save(p, path, NULL), FP8C_ERR_INPUT);
    for (int i = 0; i < t.n; i += 2)
        ck_assert_int_eq(fp8c_program_write(p, i, t.at[i]), FP8C_OK);
    float loss = train_step(p), want = train_step(q);
    ck_assert(loss > 0 && !memcmp(&loss, &want, sizeof loss));
    ck_assert_int_eq(fp8c_program_bind_variable(p, 1, NULL), FP8C_OK); /* ours has no value */
    ck_assert_int_eq(fp8c_program_run(p, fp8c_program_function(p, "eval")), FP8C_ERR_INPUT);
    said(ctx, "' has no value");
    ck_assert_int_eq(caller_bind(p, 1, t.at[1], CPU), FP8C_OK);
    loss = train_step(p), want = train_step(q);
    ck_assert(!memcmp(&loss, &want, sizeof loss));

    /* a file's values go where variables are */
    ck_assert_int_eq(fp8c_program_save(q, path, NULL), FP8C_OK);
    for (int i = 0; i < t.n; i++) {
        memset(t.at[i], 0, t.bytes[i]);
        ck_assert_int_eq(caller_bind(p, i, t.at[i], CPU), FP8C_OK);
    }
    ck_assert_msg(fp8c_program_load(p, path, 0, NULL) == FP8C_OK, "%s", fp8c_context_message(ctx));
    for (int i = 0; i < t.n; i++) {
        char value[4096];
        ck_assert_uint_le(t.bytes[i], sizeof value);
        ck_assert_int_eq(fp8c_program_read(q, i, value), FP8C_OK);
        ck_assert_mem_eq(t.at[i], value, t.bytes[i]);
    }
    caller_free(&t);
    fp8c_program_destroy(p);
    fp8c_program_destroy(q);
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
}
END_TEST

/* ---- programs that share ---- */

/* A program that trains and one for inference have the parameters in common. */
START_TEST(shared)
{
    static const char *const recipes[] = {"bf16", "delayed", "mxfp8"};
    const char *name = recipes[_i];
    fp8c_context *ctx = new_context();
    fp8c_module *m = parse(ctx, model);
    fp8c_compile_options o = recipe(name);
    fp8c_program *train = compile(ctx, m, &o);
    o.inference = 1;
    fp8c_program *serve = compile(ctx, m, &o);
    const int eval = fp8c_program_function(train, "eval"),
              served = fp8c_program_function(serve, "eval");
    fp8c_variable v;
    caller_tensors t;
    caller_make(&t, train);
    ck_assert_int_eq(fp8c_program_initialize(train, 1), FP8C_OK);
    ck_assert_int_eq(fp8c_program_initialize(serve, 2), FP8C_OK);
    caller_move_all(ctx, train, &t, CPU);
    for (int i = 0; fp8c_program_variable(serve, i, &v) == FP8C_OK; i++)
        if (v.is_param)
            ck_assert_msg(caller_bind(serve, i, t.at[fp8c_program_find_variable(train, v.name)],
                                      CPU) == FP8C_OK,
                          "%s", fp8c_context_message(ctx));
    for (int step = 0; step < 3; step++) {
        train_step(train);
        fill_batch(train, eval);
        fill_batch(serve, served);
        for (int i = 0; fp8c_program_variable(serve, i, &v) == FP8C_OK; i++)
            if (!v.is_param &&
                fp8c_program_element(serve, i, 0, 0)) { /* the same scales, by name */
                const char *element;
                float *to = v.data, from[64];
                const int its = fp8c_program_find_variable(train, v.name);
                ck_assert_uint_le(t.bytes[its], sizeof from);
                memcpy(from, t.at[its], t.bytes[its]);
                for (int k = 0; (element = fp8c_program_element(serve, i, k, 0)); k++)
                    for (int j = 0; fp8c_program_element(train, its, j, 0); j++)
                        if (!strcmp(element, fp8c_program_element(train, its, j, 0)) &&
                            v.type.rank == 1)
                            to[k] = from[j];
            }
        ck_assert_int_eq(fp8c_program_run(train, eval), FP8C_OK);
        ck_assert_int_eq(fp8c_program_run(serve, served), FP8C_OK);
        ck_assert_mem_eq(fp8c_program_buffer(train, eval, FP8C_OUTPUT, 0),
                         fp8c_program_buffer(serve, served, FP8C_OUTPUT, 0), sizeof(float));
    }
    fp8c_program_destroy(train); /* the tensors stay */
    ck_assert_int_eq(fp8c_program_run(serve, served), FP8C_OK);
    fp8c_program_destroy(serve);
    caller_free(&t);
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
}
END_TEST

/* Two programs that have all variables in common take the steps of one in turn. */
START_TEST(taken_in_turn)
{
    fp8c_context *ctx = new_context();
    fp8c_module *m = parse(ctx, model);
    const fp8c_compile_options o = recipe("delayed");
    fp8c_program *one = compile(ctx, m, &o), *two[2] = {compile(ctx, m, &o), compile(ctx, m, &o)};
    caller_tensors t;
    caller_make(&t, one);
    for (int i = 0; i < 2; i++)
        caller_bind_all(ctx, two[i], &t, CPU);
    ck_assert_int_eq(fp8c_program_initialize(one, 3), FP8C_OK);
    ck_assert_int_eq(fp8c_program_initialize(two[0], 3), FP8C_OK);
    for (int step = 0; step < 6; step++) {
        const float want = train_step(one), got = train_step(two[step % 2]);
        ck_assert_msg(want > 0 && !memcmp(&want, &got, sizeof want), "step %d: %g, %g", step,
                      (double)want, (double)got);
    }
    for (int i = 0; i < 2; i++)
        fp8c_program_destroy(two[i]);
    fp8c_program_destroy(one);
    caller_free(&t);
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
}
END_TEST

/* Another module has other elements, in the same number. */
static const char other_names[] =
    "module other\n"
    "param wte: f32[16, 32] normal(0.5)\n"
    "param fd.weight: f32[32, 32] normal(0.1)\n"
    "func forward(%tokens: i32[8], %targets: i32[8]) -> (%loss: f32[]) {\n"
    "  return cross_entropy(linear(gelu(linear(embedding(wte, %tokens), fd.weight)) "
    "{approximate = \"tanh\"}, wte) {transpose_b = true, name = \"head\"}, %targets)\n"
    "}\n"
    "optimizer adamw {lr = 0.05, clip = 1}\n"
    "recipe \"head\" = bf16\n";

static int find(const fp8c_program *p, const char *name)
{
    const int i = fp8c_program_find_variable(p, name);
    ck_assert_msg(i >= 0, "no %s", name);
    return i;
}

START_TEST(shared_scales)
{
    fp8c_context *ctx = new_context(), *elsewhere = new_context();
    fp8c_module *m = parse(ctx, model), *n = parse(ctx, other_names), *e = parse(elsewhere, model);
    const fp8c_compile_options o = recipe("delayed");
    fp8c_program *p = compile(ctx, m, &o), *same = compile(ctx, m, &o),
                 *other = compile(ctx, n, &o), *far = compile(elsewhere, e, &o);
    static _Alignas(64) char memory[4][4096];
    const char *name = "fp8.scale";
    ck_assert_ptr_nonnull(fp8c_program_element(p, find(p, name), 0, 0));
    ck_assert_int_eq(caller_bind(p, find(p, name), memory[0], CPU), FP8C_OK);
    ck_assert_int_eq(caller_bind(same, find(same, name), memory[0], CPU), FP8C_OK);
    ck_assert_int_eq(caller_bind(far, find(far, name), memory[0], CPU), FP8C_OK);
    ck_assert_int_eq(caller_bind(other, find(other, name), memory[0], CPU), FP8C_ERR_INPUT);
    said(ctx, "variable 'fp8.scale': its memory is also that of 'fp8.scale' of another program "
              "(module tiny), and element 0 is 'fd");
    ck_assert_int_eq(caller_bind(other, find(other, "opt.m.wte"), memory[0] + 4, CPU),
                     FP8C_ERR_INPUT);
    said(ctx, "variable 'opt.m.wte': its memory is also that of 'fp8.scale' of another program "
              "(module tiny), and the two are not the same bytes");
    ck_assert_int_eq(caller_bind(p, find(p, "fc.bias"), memory[1], CPU), FP8C_OK);
    ck_assert_int_eq(caller_bind(same, find(same, "opt.v.fc.bias"), memory[1], CPU),
                     FP8C_ERR_INPUT);
    said(ctx, "of 'fc.bias' of another program (module tiny), and only one of them is a parameter");
    ck_assert_int_eq(caller_bind(p, find(p, "wte"), memory[2], CPU), FP8C_OK);
    ck_assert_int_eq(caller_bind(other, find(other, "wte"), memory[2], CPU), FP8C_OK);

    /* a program that is gone uses nothing; ours counts as memory, too */
    fp8c_program_destroy(p);
    fp8c_program_destroy(same);
    ck_assert_int_eq(caller_bind(other, find(other, name), memory[0], CPU), FP8C_OK);
    p = compile(ctx, m, &o);
    fp8c_variable v;
    ck_assert_int_eq(fp8c_program_variable(p, find(p, name), &v), FP8C_OK);
    ck_assert_int_eq(caller_bind(other, find(other, name), v.data, CPU), FP8C_ERR_INPUT);
    said(ctx, "and element 0 is 'fd");
    fp8c_program_destroy(p);
    fp8c_program_destroy(other);
    fp8c_program_destroy(far);
    fp8c_module_destroy(m);
    fp8c_module_destroy(n);
    fp8c_module_destroy(e);
    fp8c_context_destroy(ctx);
    fp8c_context_destroy(elsewhere);
}
END_TEST

/* ---- refused ---- */

START_TEST(refusals)
{
    fp8c_context *ctx = new_context();
    fp8c_module *m = parse(ctx, model);
    fp8c_compile_options o = recipe("bf16");
    fp8c_program *p = compile(ctx, m, &o);
    static _Alignas(64) char memory[8192];
    int64_t strides[] = {1, 32};
    fp8c_variable v;
    const int weight = find(p, "fc.weight"), bias = find(p, "fc.bias"),
              step = fp8c_program_function(p, "micro_step");
    ck_assert_int_eq(fp8c_program_variable(p, weight, &v), FP8C_OK);
    void *const own = v.data;
    fp8c_type type = v.type;
    const fp8c_tensor_view good = view_of(&type, memory, CPU);
    fp8c_tensor_view bad = good;
#define REFUSED(text)                                                                  \
    ck_assert_int_eq(fp8c_program_bind_variable(p, weight, &bad), FP8C_ERR_INPUT);     \
    said(ctx, "variable 'fc.weight': " text);                                          \
    bad = good;                                                                        \
    fp8c_program_variable(p, weight, &v);                                              \
    ck_assert_ptr_eq(v.data, own)
    bad.dtype.code = 0;
    REFUSED("it is of i32, and the variable takes f32");
    bad.dtype.bits = 64;
    REFUSED("its dtype is code 2 of 64 bits and 1 lanes, and the variable takes f32: code 2 of 32");
    type.dim[1] = 31;
    ck_assert_int_eq(fp8c_program_bind_variable(p, weight, &good), FP8C_ERR_INPUT);
    said(ctx, "variable 'fc.weight': its shape is [32, 31], and the variable takes [32, 32]");
    type.dim[1] = 32;
    bad.ndim = 1;
    REFUSED("its shape is [32], and the variable takes [32, 32]");
    bad.strides = strides;
    REFUSED("its strides are [1, 32], and a contiguous tensor has [32, 1]");
    bad.device.type = 2;
    REFUSED("it is on device 2:0 (CUDA), and the program runs on the CPU");
    bad.byte_offset = 2;
    REFUSED("its address is no multiple of 4, the size of its elements");
    bad.data = NULL;
    REFUSED("it has no data");
    ck_assert_int_eq(fp8c_program_variable(p, bias, &v), FP8C_OK);
    bad.data = (char *)v.data - 64;
    REFUSED("its memory overlaps that of variable 'fc.");
    ck_assert_int_eq(caller_bind(p, bias, memory + 1024, CPU), FP8C_OK);
    REFUSED("its memory overlaps that of variable 'fc.bias'");
    ck_assert_int_eq(fp8c_program_bind_variable(p, bias, NULL), FP8C_OK);
    const int tokens = fp8c_program_find_port(p, step, FP8C_INPUT, "tokens"),
              loss = fp8c_program_find_port(p, step, FP8C_OUTPUT, "loss");
    ck_assert_int_eq(fp8c_program_bind(p, step, FP8C_INPUT, tokens, memory + 4092), FP8C_OK);
    REFUSED("its memory overlaps that of input 'tokens' of 'micro_step'");
    ck_assert_int_eq(fp8c_program_bind(p, step, FP8C_INPUT, tokens, NULL), FP8C_OK);
    ck_assert_int_eq(fp8c_program_bind(p, step, FP8C_OUTPUT, loss, memory), FP8C_OK);
    REFUSED("its memory overlaps that of output 'loss' of 'micro_step'");
    ck_assert_int_eq(fp8c_program_bind(p, step, FP8C_OUTPUT, loss, NULL), FP8C_OK);
    bad.data = fp8c_program_buffer(p, step, FP8C_OUTPUT, loss);
    bad.data = (char *)bad.data - 256;
    ck_assert_int_eq(fp8c_program_bind_variable(p, weight, &bad), FP8C_ERR_INPUT);
    ck_assert_int_eq(fp8c_program_bind_variable(p, -1, &good), FP8C_ERR_INPUT);
    said(ctx, "the program has no variable -1");
    ck_assert_int_eq(fp8c_program_bind_variable(p, 1000, NULL), FP8C_ERR_INPUT);
    said(ctx, "the program has no variable 1000");
    ck_assert_int_eq(fp8c_program_set_stream(p, memory), FP8C_ERR_INPUT);
    said(ctx, "the program runs on target cpu, which has no streams");

    /* an output of a call may not overlap what is bound */
    const int eval = fp8c_program_function(p, "eval");
    const fp8c_type ids = {FP8C_I32, 1, {ROWS}}, scalar = {.dtype = FP8C_F32};
    const fp8c_tensor_view in = view_of(&ids, memory + 4096, CPU),
                           out = view_of(&scalar, memory + 64, CPU);
    const fp8c_tensor_view *const ins[] = {&in, &in}, *const outs[] = {&out};
    memset(memory, 0, sizeof memory);
    ck_assert_int_eq(fp8c_program_bind_variable(p, weight, &good), FP8C_OK);
    ck_assert_int_eq(fp8c_program_initialize(p, 1), FP8C_OK);
    ck_assert_int_eq(fp8c_program_call(p, eval, ins, 2, outs, 1), FP8C_ERR_INPUT);
    said(ctx, "output 'loss' of 'eval': its memory overlaps that of variable 'fc.weight'");
    ck_assert_int_eq(fp8c_program_bind(p, eval, FP8C_OUTPUT, 0, memory + 64), FP8C_ERR_INPUT);
    said(ctx, "the buffer for 'loss' overlaps the memory of variable 'fc.weight'");
    ck_assert_int_eq(fp8c_program_bind_variable(p, weight, NULL), FP8C_OK);
    ck_assert_int_eq(fp8c_program_initialize(p, 1), FP8C_OK);
    ck_assert_msg(fp8c_program_call(p, eval, ins, 2, outs, 1) == FP8C_OK, "%s",
                  fp8c_context_message(ctx));
    fp8c_program_destroy(p);
    o.no_device = 1;
    p = compile(ctx, m, &o);
    ck_assert_int_eq(fp8c_program_bind_variable(p, weight, &good), FP8C_ERR_INPUT);
    said(ctx, "compiled with no_device");
    fp8c_program_destroy(p);
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
}
END_TEST

/* ---- flat ---- */

/* Steps allocate nothing and move nothing, and neither does binding. */
START_TEST(flat)
{
    counting c = {0};
    const fp8c_context_options co = counted_options(&c);
    fp8c_context *ctx;
    ck_assert_int_eq(fp8c_context_create(&co, &ctx), FP8C_OK);
    fp8c_module *m = parse(ctx, model);
    const fp8c_compile_options o = recipe("delayed");
    fp8c_program *p = compile(ctx, m, &o);
    caller_tensors t, u;
    caller_make(&t, p);
    caller_make(&u, p);
    ck_assert_int_eq(fp8c_program_initialize(p, 1), FP8C_OK);
    caller_move_all(ctx, p, &t, CPU);
    for (int i = 0; i < t.n; i++)
        memcpy(u.at[i], t.at[i], t.bytes[i]);
    train_step(p);
    fp8c_info before = {.struct_size = sizeof before}, after = before;
    fp8c_program_info(p, &before);
    const long n = c.n;
    const size_t bytes = c.bytes;
    for (int step = 0; step < 1000; step++) {
        if (step % 100 == 50)
            caller_bind_all(ctx, p, step % 200 == 50 ? &u : &t, CPU);
        train_step(p);
    }
    fp8c_program_info(p, &after);
    ck_assert_msg(c.n == n && c.bytes == bytes, "%ld allocations", c.n - n);
    ck_assert_int_eq(after.peak_bytes, before.peak_bytes);
    for (int i = 0; i < t.n; i++) {
        fp8c_variable v;
        ck_assert_int_eq(fp8c_program_variable(p, i, &v), FP8C_OK);
        ck_assert_ptr_eq(v.data, t.at[i]);
    }
    fp8c_program_destroy(p);
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
    ck_assert(c.live == 0 && c.bytes == 0);
    caller_free(&t);
    caller_free(&u);
}
END_TEST

/* Programs of one context bind at the same time. */
static void *bind_often(void *user)
{
    fp8c_program *p = user;
    caller_tensors t;
    caller_make(&t, p);
    for (int i = 0; i < 200; i++) {
        for (int v = 0; v < t.n; v++)
            ck_assert_int_eq(caller_bind(p, v, t.at[v], CPU), FP8C_OK);
        for (int v = 0; v < t.n; v++)
            ck_assert_int_eq(fp8c_program_bind_variable(p, v, NULL), FP8C_OK);
    }
    fp8c_program_destroy(p);
    caller_free(&t);
    return NULL;
}

START_TEST(threads)
{
    enum { N = 4 };
    fp8c_context *ctx = new_context();
    fp8c_module *m = parse(ctx, model);
    const fp8c_compile_options o = recipe("delayed");
    fp8c_program *p[N];
    pthread_t thread[N];
    for (int i = 0; i < N; i++)
        p[i] = compile(ctx, m, &o);
    for (int i = 0; i < N; i++)
        ck_assert_int_eq(pthread_create(&thread[i], NULL, bind_often, p[i]), 0);
    for (int i = 0; i < N; i++)
        pthread_join(thread[i], NULL);
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("caller memory");
    TCase *t = tcase_create("caller memory"), *c = tcase_create("threads");
    tcase_set_timeout(t, TIMEOUT);
    tcase_set_timeout(c, TIMEOUT);
    tcase_add_unchecked_fixture(t, f8_cli_setup, f8_cli_teardown);
    tcase_add_loop_test(t, bits, 0, sizeof programs / sizeof *programs);
    tcase_add_test(t, two_sets);
    tcase_add_test(t, bounds);
    tcase_add_test(t, values);
    tcase_add_loop_test(t, shared, 0, 3);
    tcase_add_test(t, taken_in_turn);
    tcase_add_test(t, shared_scales);
    tcase_add_test(t, refusals);
    tcase_add_test(t, flat);
    tcase_add_test(c, threads);
    suite_add_tcase(s, t);
    suite_add_tcase(s, c);
    return s;
}
