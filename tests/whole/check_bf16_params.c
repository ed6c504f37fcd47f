/* Parameters of bf16, as a model has them after PyTorch's `bfloat16()`, on every target. The twin
 * declares the same parameters as f32 and has the same values. Nothing is rounded twice: results
 * and gradients of inputs equal the twin's bit for bit. The gradient of a parameter is that of the
 * twin, rounded once. */
#include "frontend/fp8c_ranks.h"
#include "frontend/fp8c_tune.h"
#include "tests/shared/api/pair_layer.h"
#include "tests/shared/cuda/gpu.h"
#include "tests/shared/suite.h"

#include <unistd.h>

static const char *targets[] = {"reference", "cpu", "cuda"};
static const char *const names[] = {"wte", "ln", "up", "up.bias", "down", "ln_f", "ln_f.bias"};
enum { N_TARGETS = 3, N_NAMES = 7, MOST_ELEMENTS = 4096 * 32 };

/* The embedding is tied to the head. */
#define PARAMETERS(T)                                                                              \
    "param wte: " T "[64, 128] normal(0.5)\nparam ln: " T "[128] normal(1)\n"                      \
    "param up: " T "[128, 256] normal(0.1)\nparam up.bias: " T "[256] normal(0.1)\n"               \
    "param down: " T "[256, 128] normal(0.1)\n"                                                    \
    "param ln_f: " T "[128] ones\nparam ln_f.bias: " T "[128] normal(0.1)\n"
#define MODEL(T)                                                                                   \
    "module model\n" PARAMETERS(                                                                   \
        T) "func forward(%ids: i32[32], %targets: i32[32], %x: f32[32, 128])\n"                    \
           "  -> (%loss: f32[], %y: f32[32, 128]) {\n"                                             \
           "  %e = add(embedding(wte, %ids), %x)\n"                                                \
           "  %h = gelu(linear(rmsnorm(%e, ln), up, up.bias) {name = \"up\"})\n"                   \
           "  %y = add(%e, linear(%h, down) {name = \"down\"})\n"                                  \
           "  %n = layernorm(%y, ln_f, ln_f.bias)\n"                                               \
           "  return cross_entropy(linear(%n, wte) {transpose_b = true, name = \"head\"}, "        \
           "%targets), %y\n"                                                                       \
           "}\noptimizer adamw {lr = 0.01, weight_decay = 0.1, clip = 1}\n"

static uint16_t rounded(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

static float widened(uint16_t bits)
{
    const uint32_t u = (uint32_t)bits << 16;
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static void run(fp8c_context *ctx, fp8c_program *p, const char *name)
{
    const int f = fp8c_program_function(p, name);
    ck_assert_msg(f < 0 || (fp8c_program_run(p, f) == FP8C_OK && fp8c_program_wait(p) == FP8C_OK),
                  "%s: %s", name, fp8c_context_message(ctx));
}

static int64_t elements(fp8c_program *p, const char *name, fp8c_dtype dtype)
{
    fp8c_variable v;
    ck_assert_int_eq(fp8c_program_variable(p, fp8c_program_find_variable(p, name), &v), FP8C_OK);
    ck_assert_msg(v.type.dtype == dtype, "%s is %s", name,
                  fp8c_name(FP8C_NAME_DTYPE, v.type.dtype));
    return fp8c_type_bytes(&v.type) / (dtype == FP8C_BF16 ? 2 : 4);
}

static void read_var(const setup *s, const char *name, void *to)
{
    ck_assert_int_eq(fp8c_program_read(s->p, fp8c_program_find_variable(s->p, name), to), FP8C_OK);
}

static void write_var(const setup *s, const char *name, const void *from)
{
    ck_assert_int_eq(fp8c_program_write(s->p, fp8c_program_find_variable(s->p, name), from),
                     FP8C_OK);
}

/* ---- the twin ---- */

static uint16_t narrow[MOST_ELEMENTS];
static float wide[MOST_ELEMENTS];

/* Write variable `prefix`NAME of the bf16 program to that of its twin. */
static void give(const setup *from, const setup *to, const char *prefix)
{
    for (int i = 0; i < N_NAMES; i++) {
        char name[40];
        snprintf(name, sizeof name, "%s%s", prefix, names[i]);
        const int64_t n = elements(from->p, name, FP8C_BF16);
        read_var(from, name, narrow);
        for (int64_t k = 0; k < n; k++)
            wide[k] = widened(narrow[k]);
        write_var(to, name, wide);
    }
}

/* The bf16 program's values are the twin's, rounded. */
static void same_rounded(const char *what, const char *name, const uint16_t *is, const float *want,
                         int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        ck_assert_msg(is[i] == rounded(want[i]), "%s: %s[%lld] is %.9g, not %.9g", what, name,
                      (long long)i, (double)widened(is[i]), (double)widened(rounded(want[i])));
}

static setup a, b; /* bf16, and its twin */

static void begin_twins(fp8c_compile_options *o, const char *target)
{
    o->target = target;
    begin(&a, MODEL("bf16"), o);
    begin(&b, MODEL("f32"), o);
    give(&a, &b, "");
    run(a.ctx, a.p, "prepare");
    run(b.ctx, b.p, "prepare");
}

static void end_twins(void)
{
    end(&a);
    end(&b);
}

static void same_gradients(const char *what)
{
    for (int i = 0; i < N_NAMES; i++) {
        const pair_value *x = pair_find(&a.out, names[i]), *y = pair_find(&b.out, names[i]);
        ck_assert_msg(x && y && x->type.dtype == FP8C_BF16 && y->type.dtype == FP8C_F32, "%s",
                      names[i]);
        same_rounded(what, names[i], x->data, y->data, elements(a.p, names[i], FP8C_BF16));
    }
}

START_TEST(gradients)
{
    const char *target = targets[_i % N_TARGETS], *name = recipes[_i / N_TARGETS];
    fp8c_compile_options o = pair_options(name);
    char what[80];
    if (!strcmp(target, "cuda") && !strcmp(name, "mxfp8"))
        return; /* GEMMs of MX exist on sm_100a alone */
    snprintf(what, sizeof what, "on %s under %s", target, name);
    o.cotangents = "loss,y";
    o.gradients_of = "x";
    begin_twins(&o, target);
    pair_step(a.p, false, &a.in, &a.out);
    pair_step(b.p, false, &b.in, &b.out);
    ck_assert_msg(pair_equal(&a.out, &b.out, "loss"), "loss %s", what);
    ck_assert_msg(pair_equal(&a.out, &b.out, "y"), "y %s", what);
    ck_assert_msg(pair_equal(&a.out, &b.out, "dx"), "dx %s", what);
    same_gradients(what);
    end_twins();
}
END_TEST

/* This head has so many logits that fp8c computes its gradient in chunks of rows. */
#define HEAD(T)                                                                                    \
    "module head\nparam wte: " T "[4096, 32] normal(0.5)\n"                                        \
    "func forward(%ids: i64[528], %targets: i64[528]) -> (%loss: f32[]) {\n"                       \
    "  %e = embedding(wte, %ids) {padding = 3}\n"                                                  \
    "  return cross_entropy(linear(%e, wte) {transpose_b = true, name = \"head\"}, %targets)\n}\n"

START_TEST(large_head)
{
    fp8c_compile_options o = pair_options(_i ? "current" : "bf16");
    o.target = "cpu";
    int64_t ids[528];
    for (int i = 0; i < 528; i++)
        ids[i] = i * 37 % 4096;
    begin(&a, HEAD("bf16"), &o);
    begin(&b, HEAD("f32"), &o);
    read_var(&a, "wte", narrow);
    for (int i = 0; i < MOST_ELEMENTS; i++)
        wide[i] = widened(narrow[i]);
    write_var(&b, "wte", wide);
    run(b.ctx, b.p, "prepare");
    for (int k = 0; k < 2; k++) {
        setup *s = k ? &b : &a;
        pair_set(&s->in, "ids", &(fp8c_type){FP8C_I64, 1, {528}}, ids);
        pair_set(&s->in, "targets", &(fp8c_type){FP8C_I64, 1, {528}}, ids);
        pair_step(s->p, false, &s->in, &s->out);
    }
    ck_assert(pair_equal(&a.out, &b.out, "loss"));
    same_rounded("large head", "wte", pair_find(&a.out, "wte")->data,
                 pair_find(&b.out, "wte")->data, MOST_ELEMENTS);
    end_twins();
}
END_TEST

/* backward adds to grad.NAME, of bf16: the old value and the f32 gradient, rounded once. */
START_TEST(added)
{
    const char *target = targets[_i];
    fp8c_compile_options o = pair_options("bf16");
    o.cotangents = "loss,y";
    begin_twins(&o, target); /* b: the gradients on their own */
    end(&a);
    o.add_gradients = 1;
    begin(&a, MODEL("bf16"), &o);
    for (int step = 0; step < 3; step++) {
        pair_step(a.p, false, &a.in, &a.out);
        pair_step(b.p, false, &b.in, &b.out);
        for (int i = 0; i < N_NAMES; i++) {
            char name[40];
            snprintf(name, sizeof name, "grad.%s", names[i]);
            const int64_t n = elements(a.p, name, FP8C_BF16);
            const float *d = pair_find(&b.out, names[i])->data;
            const pair_value *before = pair_find(&a.in, name);
            const uint16_t *old = before ? before->data : NULL;
            read_var(&a, name, narrow);
            for (int64_t k = 0; k < n; k++)
                wide[k] = old ? widened(old[k]) + d[k] : d[k];
            same_rounded(target, name, narrow, wide, n);
            pair_set(&a.in, name, &(fp8c_type){FP8C_BF16, 1, {n}}, narrow);
        }
    }
    end_twins();
}
END_TEST

/* ---- an optimizer of fp8c's own ---- */

static void batch(fp8c_program *p, int step)
{
    static const char *const ports[] = {"ids", "targets", "x"};
    for (int k = 0; k < 3; k++) {
        void *to = fp8c_program_buffer(p, step, FP8C_INPUT,
                                       fp8c_program_find_port(p, step, FP8C_INPUT, ports[k]));
        for (int i = 0; i < (k < 2 ? 32 : 32 * 128); i++)
            if (k < 2)
                ((int32_t *)to)[i] = (7 * i + 11 * k) % 64;
            else
                ((float *)to)[i] = (float)(i % 17 - 8) / 16;
    }
}

static float micro_step(const setup *s)
{
    const int step = fp8c_program_function(s->p, "micro_step");
    batch(s->p, step);
    run(s->ctx, s->p, "micro_step");
    return *(float *)fp8c_program_buffer(s->p, step, FP8C_OUTPUT,
                                         fp8c_program_find_port(s->p, step, FP8C_OUTPUT, "loss"));
}

/* update takes the twin's step from the same gradients, in f32, and rounds each parameter once. */
START_TEST(updates)
{
    const char *target = targets[_i % N_TARGETS], *name = _i / N_TARGETS ? "delayed" : "bf16";
    fp8c_compile_options o = recipe(name);
    float first = 0, last = 0;
    begin_twins(&o, target);
    for (int step = 0; step < 4; step++) {
        last = micro_step(&a);
        first = step ? first : last;
        ck_assert(micro_step(&b) == last);
        give(&a, &b, "grad.");
        run(a.ctx, a.p, "update");
        run(b.ctx, b.p, "update");
        for (int i = 0; i < N_NAMES; i++) {
            read_var(&a, names[i], narrow);
            read_var(&b, names[i], wide);
            same_rounded(target, names[i], narrow, wide, elements(a.p, names[i], FP8C_BF16));
        }
        give(&a, &b, "");
        if (_i < N_TARGETS)
            continue;
        read_var(&a, "fp8.amax_history", wide); /* b's has the amaxes of unrounded weights */
        write_var(&b, "fp8.amax_history", wide);
        run(b.ctx, b.p, "prepare");
    }
    ck_assert_msg(last < first, "the loss goes from %g to %g", (double)first, (double)last);
    end_twins();
}
END_TEST

/* ---- files ---- */

static char folder[300];

static const char *const files[] = {"state.safetensors", "narrow.safetensors", "wide.safetensors",
                                    "program.f8x"};
enum { STATE, NARROW, WIDE, PROGRAM, N_FILES };

static const char *path(int file)
{
    static char at[N_FILES][400];
    snprintf(at[file], sizeof at[file], "%s/%s", folder, files[file]);
    return at[file];
}

static void make_folder(void)
{
    const char *base = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/fp8c-bf16-XXXXXX", base ? base : "/tmp");
    ck_assert_ptr_nonnull(mkdtemp(folder));
}

static void remove_folder(void)
{
    for (int i = 0; i < N_FILES; i++)
        remove(path(i));
    rmdir(folder);
}

static float eval(const setup *s)
{
    const int f = fp8c_program_function(s->p, "eval");
    batch(s->p, f);
    run(s->ctx, s->p, "eval");
    return *(float *)fp8c_program_buffer(s->p, f, FP8C_OUTPUT, 0);
}

#define OK(s, call) ck_assert_msg((call) == FP8C_OK, "%s", fp8c_context_message((s).ctx))

/* A saved program goes on with the same bits, also as a program of an .f8x file. */
START_TEST(saved)
{
    fp8c_compile_options o = recipe("delayed");
    o.target = "cpu";
    begin(&a, MODEL("bf16"), &o);
    micro_step(&a);
    run(a.ctx, a.p, "update");
    OK(a, fp8c_program_save(a.p, path(STATE), NULL));
    const float want = micro_step(&a);
    begin(&b, MODEL("bf16"), &o);
    OK(b, fp8c_program_load(b.p, path(STATE), 0, NULL));
    ck_assert(micro_step(&b) == want);
    fp8c_program_destroy(b.p);

    fp8c_module *m = parse(b.ctx, MODEL("bf16"));
    OK(b, fp8c_compile_file(m, &o, 1, path(PROGRAM)));
    fp8c_module_destroy(m);
    OK(b, fp8c_program_open(b.ctx, path(PROGRAM), NULL, &b.p));
    OK(b, fp8c_program_load(b.p, path(STATE), 0, NULL));
    ck_assert(micro_step(&b) == want);
    end_twins();
}
END_TEST

static fp8c_status load(const setup *s, int file)
{
    const char *at = path(file);
    const fp8c_load_options l = {.struct_size = sizeof l, .files = &at, .n_files = 1};
    return fp8c_program_load_weights(s->p, &l);
}

/* Weights are stored as FP8 from a file of bf16 as from one of f32 with the same values. A file of
 * f32 does not become bf16 in silence. */
START_TEST(stored)
{
    fp8c_compile_options o = recipe("bf16");
    begin_twins(&o, "cpu");
    OK(a, fp8c_program_save(a.p, path(NARROW), NULL));
    OK(b, fp8c_program_save(b.p, path(WIDE), NULL));
    ck_assert_int_eq(load(&a, WIDE), FP8C_ERR_INPUT);
    said(a.ctx, "can't become BF16 [256, 128] exactly");
    end_twins();
    o.inference = 1;
    for (int i = 0; i < 2; i++) {
        o.recipe = i ? "block" : "bf16";
        o.stored = "block";
        begin(&a, MODEL("bf16"), &o);
        begin(&b, MODEL("f32"), &o);
        OK(a, load(&a, NARROW));
        OK(b, load(&b, WIDE));
        fp8c_stored s;
        ck_assert_int_eq(fp8c_program_stored(a.p, 1, &s), FP8C_OK); /* up and down */
        ck_assert(eval(&a) == eval(&b));
        end_twins();
    }
}
END_TEST

static fp8c_calibration *observed(setup *s, const char *text, const setup *values)
{
    fp8c_compile_options o = recipe("auto");
    fp8c_calibration *c;
    o.target = "cpu";
    s->ctx = new_context();
    fp8c_module *m = parse(s->ctx, text);
    OK(*s, fp8c_calibration_create(m, &o, 0.05, &c));
    fp8c_module_destroy(m);
    s->p = fp8c_calibration_program(c);
    OK(*s, fp8c_program_initialize(s->p, 7));
    if (values)
        give(values, s, "");
    micro_step(s);
    OK(*s, fp8c_calibration_observe(c));
    return c;
}

/* `auto` measures the values of weights, and finds the twin's errors. */
START_TEST(calibrated)
{
    fp8c_calibration *x = observed(&a, MODEL("bf16"), NULL), *y = observed(&b, MODEL("f32"), &a);
    fp8c_trial t;
    fp8c_candidate p, q;
    int n = 0;
    for (int i = 0; fp8c_calibration_trial(x, i, &t) == FP8C_OK; i++)
        for (int k = 0; fp8c_calibration_candidate(x, i, k, &p) == FP8C_OK; k++, n++) {
            ck_assert_int_eq(fp8c_calibration_candidate(y, i, k, &q), FP8C_OK);
            ck_assert_msg(p.error == q.error && p.sqnr[1] == q.sqnr[1], "%s %s as %s: %g, %g",
                          t.linear, t.role, p.recipe, p.error, q.error);
        }
    ck_assert_int_ge(n, 3 * 3 * 2); /* three GEMMs of three linears, bf16 and others */
    fp8c_calibration_destroy(x);
    fp8c_calibration_destroy(y);
    fp8c_context_destroy(a.ctx);
    fp8c_context_destroy(b.ctx);
}
END_TEST

/* ---- refused ---- */

static int unused(void *user, const void *send, void *receive, size_t bytes)
{
    (void)user, (void)send, (void)receive, (void)bytes;
    return 1;
}

START_TEST(other_dtypes)
{
    fp8c_context *ctx = new_context();
    fp8c_compile_options o = recipe("f32");
    refused(ctx,
            "module t\nparam w: f16[4] ones\nfunc forward(%x: f32[2, 4]) -> f32[] {\n"
            "  return reshape(mean(mul(%x, cast(w) {to = f32})) {axes = [0, 1]}) {shape = []}\n}\n",
            &o, FP8C_ERR_UNSUPPORTED,
            "tiny.f8:2:7: error: parameter 'w' is f16; only f32 and bf16 can be trained");
    const fp8c_comm comm = {
        .struct_size = sizeof comm, .ranks = 2, .all_gather = unused, .all_to_all = unused};
    o.comm = &comm;
    refused(ctx, MODEL("bf16"), &o, FP8C_ERR_UNSUPPORTED,
            "tiny.f8:2:7: error: parameter 'wte' is bf16; several ranks train only f32");
    fp8c_context_destroy(ctx);
}
END_TEST

Suite *f8_suite(void)
{
    f8_test_gpu_emulated();
    if (getenv("FP8C_TEST_PEER")) /* where there is no LLVM */
        targets[1] = getenv("FP8C_TEST_PEER");
    Suite *s = suite_create("bf16 parameters");
    TCase *t = tcase_create("bf16 parameters");
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_loop_test(t, gradients, 0, N_TARGETS * N_RECIPES);
    tcase_add_loop_test(t, large_head, 0, 2);
    tcase_add_loop_test(t, added, 0, N_TARGETS);
    tcase_add_loop_test(t, updates, 0, 2 * N_TARGETS);
    tcase_add_checked_fixture(t, make_folder, remove_folder);
    tcase_add_test(t, saved);
    tcase_add_test(t, stored);
    tcase_add_test(t, calibrated);
    tcase_add_test(t, other_dtypes);
    suite_add_tcase(s, t);
    return s;
}
