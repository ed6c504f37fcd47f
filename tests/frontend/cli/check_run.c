/* `fp8c run` computes what the API computes, bit for bit, from a text and from a .f8x file. What is
 * missing or wrong is named before anything runs; then nothing is written. */
#include "tests/shared/api/checkpoint.h"

#include <unistd.h>

#include "frontend/checkpoint/npy.h"
#include "tests/shared/api/api.h"
#include "tests/shared/suite.h"

#define GPT "frontend/models/gpt.f8"
#define SMALL "-D", "B=2", "-D", "T=32", "-D", "L=1", "-D", "C=32", "-D", "H=2"

static const char mixed[] =
    "module mixed\n"
    "dim N = 2\n"
    "param w: f32[3, 4] normal(1)\n"
    "func forward(%x: f32[N, 3], %ids: i32[N], %on: bool[N, 4]) -> "
    "(%loss: f32[], %y: f32[N, 4], %z: bf16[N, 4]) {\n"
    "  %a = select(%on, matmul(%x, w), embedding(w, %ids))\n"
    "  %s = reshape(reduce_sum(reshape(%a) {shape = [1, 4*N]})) {shape = []}\n"
    "  return %s, %a, cast(%a) {to = bf16}\n"
    "}\n"
    "optimizer adamw {lr = 0.1}\n";

static const float x_value[] = {1, -2, 3, 0.5f, 5, -6};
static const int64_t ids_value[] = {2, 0};
static const uint8_t on_value[] = {1, 0, 1, 1, 0, 1, 0, 0};

/* The file of that name with an array of it: its path. */
static const char *npy(const char *name, const char *descr, const char *shape, const void *bytes,
                       size_t n)
{
    char file[600];
    const int length =
        snprintf(file + 10, sizeof file - 10,
                 "{'descr': '%s', 'fortran_order': False, 'shape': %s}\n", descr, shape);
    memcpy(file, "\x93NUMPY\1", 8);
    file[8] = (char)length, file[9] = 0;
    memcpy(file + 10 + length, bytes, n);
    return f8_cli_write(name, file, 10 + (size_t)length + n);
}

/* The arguments of a run of `mixed`: text and inputs in files, kept in static rooms. */
typedef struct files {
    char module[4500], x[4500], ids[4500], on[4500], y[4500], z[4500], both[4500];
} files;

static files *write_files(void)
{
    static files f;
    snprintf(f.module, sizeof f.module, "%s", f8_cli_write("mixed.f8", mixed, sizeof mixed - 1));
    snprintf(f.x, sizeof f.x, "x=%s", npy("x.npy", "<f4", "(2, 3)", x_value, sizeof x_value));
    snprintf(f.ids, sizeof f.ids, "ids=%s",
             npy("ids.npy", "<i8", "(2,)", ids_value, sizeof ids_value));
    snprintf(f.on, sizeof f.on, "on=%s", npy("on.npy", "|b1", "(2, 4)", on_value, sizeof on_value));
    snprintf(f.y, sizeof f.y, "y=%s", f8_cli_temp("y.npy"));
    snprintf(f.z, sizeof f.z, "z=%s", f8_cli_temp("z.npy"));
    return &f;
}
#define INPUTS(f) "--input", (f)->x, "--input", (f)->ids, "--input", (f)->on

/* What the API makes of it. */
static void expected(float y[8], uint16_t z[8])
{
    fp8c_context *ctx = new_context();
    fp8c_module *m = parse(ctx, mixed);
    fp8c_compile_options o = recipe("bf16");
    o.inference = 1;
    fp8c_program *p = compile(ctx, m, &o);
    const int eval = fp8c_program_function(p, "eval");
    ck_assert_int_eq(fp8c_program_initialize(p, 5), FP8C_OK);
    memcpy(fp8c_program_buffer(p, eval, FP8C_INPUT, 0), x_value, sizeof x_value);
    for (int i = 0; i < 2; i++)
        ((int32_t *)fp8c_program_buffer(p, eval, FP8C_INPUT, 1))[i] = (int32_t)ids_value[i];
    memcpy(fp8c_program_buffer(p, eval, FP8C_INPUT, 2), on_value, sizeof on_value);
    ck_assert_int_eq(fp8c_program_run(p, eval), FP8C_OK);
    memcpy(y, fp8c_program_buffer(p, eval, FP8C_OUTPUT, 1), 32);
    memcpy(z, fp8c_program_buffer(p, eval, FP8C_OUTPUT, 2), 16);
    fp8c_program_destroy(p);
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
}

static void has_array(const char *name, f8_st_dtype dtype, const void *bytes, size_t n)
{
    f8_npy f;
    f8_diag diag = {0};
    char value[256];
    ck_assert_msg(f8_npy_open(&f, f8_cli_temp(name), &diag) == F8_OK, "%s", diag.text);
    ck_assert(f.tensor.dtype == dtype && f.tensor.bytes == n &&
              f8_npy_read(&f, value, NULL) == F8_OK);
    ck_assert(!memcmp(value, bytes, n));
    f8_npy_close(&f);
}

START_TEST(a_text)
{
    const files *f = write_files();
    float y[8];
    uint16_t z[8];
    expected(y, z);
    const f8_cli_result r =
        F8_CLI("run", f->module, INPUTS(f), "--output", f->y, "--output", f->z, "--seed", "5");
    ck_assert_msg(r.code == 0 && !*r.err, "%s", r.err);
    ck_assert_ptr_nonnull(
        strstr(r.out, "eval         y                    f32[2, 4]            min "));
    ck_assert_ptr_nonnull(
        strstr(r.out, "eval         z                    bf16[2, 4]           min "));
    has_array("y.npy", F8_ST_F32, y, sizeof y);
    has_array("z.npy", F8_ST_U16, z, sizeof z);
}
END_TEST

/* Inputs from a safetensors file, also under another name; outputs into one. */
START_TEST(safetensors)
{
    files *f = write_files();
    float y[8];
    uint16_t z[8];
    expected(y, z);
    copy *c = calloc(1, sizeof *c);
    memcpy(c->bytes[add(c, "x", F8_ST_F32, 2, (int64_t[]){2, 3})], x_value, sizeof x_value);
    memcpy(c->bytes[add(c, "a:b", F8_ST_I64, 1, (int64_t[]){2})], ids_value, sizeof ids_value);
    memcpy(c->bytes[add(c, "on", F8_ST_BOOL, 2, (int64_t[]){2, 4})], on_value, sizeof on_value);
    write_copy(c, "in.safetensors", true);
    snprintf(f->x, sizeof f->x, "x=%s", f8_cli_temp("in.safetensors"));
    snprintf(f->on, sizeof f->on, "on=%s", f8_cli_temp("in.safetensors"));
    snprintf(f->ids, sizeof f->ids, "ids=%s:a:b", f8_cli_temp("in.safetensors"));
    snprintf(f->y, sizeof f->y, "y=%s", f8_cli_temp("out.safetensors"));
    snprintf(f->z, sizeof f->z, "z=%s:other", f8_cli_temp("out.safetensors"));
    const f8_cli_result r =
        F8_CLI("run", f->module, INPUTS(f), "--output", f->y, "--output", f->z, "--seed", "5");
    ck_assert_msg(r.code == 0 && !*r.err, "%s", r.err);
    c = read_copy("out.safetensors");
    ck_assert_uint_eq(c->n, 2);
    ck_assert(c->tensor[at(c, "y")].dtype == F8_ST_F32 &&
              !memcmp(c->bytes[at(c, "y")], y, sizeof y));
    ck_assert(c->tensor[at(c, "other")].dtype == F8_ST_BF16 &&
              !memcmp(c->bytes[at(c, "other")], z, sizeof z));
    free_copy(c);
}
END_TEST

START_TEST(a_package)
{
    const files *f = write_files();
    float y[8];
    uint16_t z[8];
    char package[4500];
    expected(y, z);
    snprintf(package, sizeof package, "%s", f8_cli_temp("mixed.f8x"));
    f8_cli_result r = F8_CLI("compile", f->module, "--target", "cpu", "-o", package);
    ck_assert_msg(r.code == 0, "%s", r.err);
    r = F8_CLI("run", package, INPUTS(f), "--output", f->y, "--seed", "5", "--json", "-");
    ck_assert_msg(r.code == 0 && !*r.err, "%s", r.err);
    has_array("y.npy", F8_ST_F32, y, sizeof y);
    ck_assert_ptr_nonnull(strstr(
        r.out,
        "{\"event\":\"output\",\"function\":\"eval\",\"name\":\"y\",\"type\":\"f32[2, 4]\""));
    ck_assert_ptr_nonnull(strstr(r.out, "{\"event\":\"run\",\"target\":\"cpu\",\"times\":1,"));
    r = F8_CLI("run", package, INPUTS(f), "--recipe", "delayed");
    ck_assert_int_eq(r.code, 2);
    ck_assert_ptr_nonnull(strstr(r.err, "with a compiled file, run does not use '--recipe'"));
}
END_TEST

/* A text that no training can take: run as it is, and compiled for inference. */
static const char lossless[] = "module lossless\n"
                               "param w: f32[3, 4] normal(1)\n"
                               "func forward(%x: f32[2, 3]) -> (%y: f32[2, 4]) {\n"
                               "  return matmul(%x, w)\n"
                               "}\n";

START_TEST(without_a_loss)
{
    const char no_loss[] = "error: to train, 'forward' must return the loss, "
                           "f32[], as its first result, not f32[2, 4]";
    const files *f = write_files();
    char module[4500], package[4500];
    float y[8];
    f8_npy of_text;
    f8_diag diag = {0};
    snprintf(module, sizeof module, "%s",
             f8_cli_write("lossless.f8", lossless, sizeof lossless - 1));
    snprintf(package, sizeof package, "%s", f8_cli_temp("lossless.f8x"));
    f8_cli_ok(F8_CLI("run", module, "--input", f->x, "--output", f->y));
    ck_assert(f8_npy_open(&of_text, f8_cli_temp("y.npy"), &diag) == F8_OK &&
              of_text.tensor.bytes == sizeof y && f8_npy_read(&of_text, y, NULL) == F8_OK);
    f8_npy_close(&of_text);
    ck_assert(!unlink(f8_cli_temp("y.npy")));
    f8_cli_fails(F8_CLI("run", module, "--input", f->x, "--function", "micro_step"), 1, no_loss);
    f8_cli_fails(F8_CLI("compile", module, "-o", package), 1, no_loss);
    ck_assert(access(package, F_OK));
    f8_cli_ok(F8_CLI("compile", module, "-o", package, "--inference"));
    const f8_cli_result r = F8_CLI("inspect", package);
    ck_assert(r.code == 0 && strstr(r.out, "\neval: ") && !strstr(r.out, "micro_step"));
    f8_cli_ok(F8_CLI("run", package, "--input", f->x, "--output", f->y));
    has_array("y.npy", F8_ST_F32, y, sizeof y);
    f8_cli_fails(F8_CLI("run", package, "--input", f->x, "--function", "micro_step"), 1,
                 "there is no function 'micro_step'; there are: eval");
    f8_cli_fails(F8_CLI("compile", module, "-o", package, "--inference", "--memory", "1M"), 1,
                 "memory: a program for inference has no activations to recompute");
}
END_TEST

/* ---- what has no gradient ---- */

static const char *module_of(const char *declared, const char *loss)
{
    char text[512];
    const int n =
        snprintf(text, sizeof text,
                 "module untrained\n%s\nfunc forward(%%x: f32[2, 3]) -> (%%loss: f32[]) {\n"
                 "  return %s\n}\n",
                 declared, loss);
    return f8_cli_write("untrained.f8", text, (size_t)n);
}

/* Whatever trains refuses it, with the place of the loss; what only computes does not. */
static void check_untrained(const char *declared, const char *loss, const char *why)
{
    const files *f = write_files();
    char module[4500], package[4500], message[600];
    snprintf(module, sizeof module, "%s", module_of(declared, loss));
    snprintf(package, sizeof package, "%s", f8_cli_temp("untrained.f8x"));
    snprintf(message, sizeof message,
             "untrained.f8:4:10: error: to train, the loss must depend on a parameter, but %s",
             why);
    f8_cli_fails(F8_CLI("compile", module, "-o", package), 1, message);
    f8_cli_fails(F8_CLI("plan", module), 1, message);
    f8_cli_fails(F8_CLI("explain", module), 1, message);
    f8_cli_fails(F8_CLI("run", module, "--input", f->x, "--function", "micro_step"), 1, message);
    f8_cli_fails(
        F8_CLI("run", module, "--input", f->x, "--function", "forward", "--function", "backward"),
        1, "untrained.f8:4:10: error: 'backward' would give no gradient: no result with a "
           "cotangent depends on a parameter");
    ck_assert(access(package, F_OK));
    f8_cli_ok(F8_CLI("check", module));
    f8_cli_ok(F8_CLI("run", module, "--input", f->x));
    f8_cli_ok(F8_CLI("compile", module, "-o", package, "--inference"));
    ck_assert(!unlink(package));
}

START_TEST(nothing_to_train)
{
    const char sum[] = "reshape(reduce_sum(reshape(%x) {shape = [6]})) {shape = []}";
    const char floored[] = "reshape(reduce_sum(floor(reshape(w) {shape = [12]}))) {shape = []}";
    check_untrained("", sum, "module 'untrained' declares none; only inference needs none");
    check_untrained("param w: f32[3, 4] ones", sum, "no gradient reaches the only one\n");
    check_untrained("param w: f32[3, 4] ones param v: f32[2] ones", floored,
                    "no gradient reaches any of the module's 2 parameters\n");
}
END_TEST

static int count(const char *text, const char *word)
{
    int n = 0;
    while ((text = strstr(text, word))) {
        text++;
        n++;
    }
    return n;
}

/* A linear whose weight is an input: a warning, once for each input, where something is trained. */
START_TEST(weights_as_inputs)
{
    static const char text[] =
        "module fed\nparam w: f32[3, 4] ones\n"
        "func forward(%x: f32[2, 3], %up: f32[4, 4],\n             %down: f32[4, 4]) "
        "-> (%loss: f32[]) {\n"
        "  %y = linear(linear(%x, w), %up) {name = \"up\"}\n"
        "  %z = linear(linear(%y, transpose(%down) {perm = [1, 0]}), %up)\n"
        "  return reshape(reduce_sum(reshape(%z) {shape = [8]})) {shape = []}\n}\n";
    static const char up[] =
        "fed.f8:3:29: input '%up' is the weight of linear 'up': inputs get no gradient; declare it "
        "as a param to train it\n";
    static const char down[] = "fed.f8:4:14: input '%down' is the weight of a linear: inputs get "
                               "no gradient; declare it as a param to train it\n";
    char module[4500], package[4500];
    snprintf(module, sizeof module, "%s", f8_cli_write("fed.f8", text, sizeof text - 1));
    snprintf(package, sizeof package, "%s", f8_cli_temp("fed.f8x"));
    for (int i = 0; i < 2; i++) {
        const f8_cli_result r =
            i ? F8_CLI("plan", module) : F8_CLI("compile", module, "-o", package);
        ck_assert_int_eq(r.code, 0);
        ck_assert_msg(count(r.err, "warning: ") == 2 && count(r.err, up) == 1 &&
                          count(r.err, down) == 1,
                      "%s", r.err);
    }
    f8_cli_ok(F8_CLI("compile", module, "-o", package, "--inference"));
}
END_TEST

/* One that trains has eval alone then, with the bits of the one that trains. */
START_TEST(inference_alone)
{
    const files *f = write_files();
    float y[8];
    uint16_t z[8];
    char package[4500];
    expected(y, z);
    snprintf(package, sizeof package, "%s", f8_cli_temp("mixed.f8x"));
    f8_cli_ok(F8_CLI("compile", f->module, "-o", package, "--inference"));
    f8_cli_ok(F8_CLI("run", package, INPUTS(f), "--output", f->y, "--output", f->z, "--seed", "5"));
    has_array("y.npy", F8_ST_F32, y, sizeof y);
    has_array("z.npy", F8_ST_U16, z, sizeof z);
    const f8_cli_result r = F8_CLI("inspect", package);
    ck_assert(r.code == 0 && strstr(r.out, "\neval: ") && !strstr(r.out, "update: ") &&
              !strstr(r.out, "opt.m.w"));
}
END_TEST

/* ---- training, weights and what is saved ---- */

enum { TOKENS = 64 };

static void write_batch(char tokens[4500], char targets[4500], int32_t value[2][TOKENS])
{
    for (int i = 0; i < TOKENS; i++) {
        value[0][i] = i * 7 % 200;
        value[1][i] = (i + 1) * 7 % 200;
    }
    snprintf(tokens, 4500, "tokens=%s",
             npy("tokens.npy", "<i4", "(2, 32)", value[0], sizeof value[0]));
    snprintf(targets, 4500, "targets=%s",
             npy("targets.npy", "<i4", "(2, 32)", value[1], sizeof value[1]));
}

static fp8c_program *gpt(fp8c_context *ctx, const fp8c_compile_options *o)
{
    const fp8c_dim dims[] = {{"B", 2}, {"T", 32}, {"L", 1}, {"C", 32}, {"H", 2}};
    size_t size;
    char *file = f8_cli_read(GPT, &size);
    fp8c_module *m;
    ck_assert_int_eq(fp8c_module_parse(ctx, file, size, GPT, dims, 5, &m), FP8C_OK);
    fp8c_program *p = compile(ctx, m, o);
    fp8c_module_destroy(m);
    free(file);
    return p;
}

static void same_files(const char *a, const char *b)
{
    size_t n[2];
    char *x = f8_cli_read(f8_cli_temp(a), &n[0]), *y = f8_cli_read(f8_cli_temp(b), &n[1]);
    ck_assert_msg(n[0] == n[1] && !memcmp(x, y, n[0]), "%s and %s differ", a, b);
    free(x);
    free(y);
}

/* Two functions in turn, three times; what is saved is what the API saves, and goes on from. */
START_TEST(trains)
{
    char tokens[4500], targets[4500], saved[4500], next[4500];
    int32_t value[2][TOKENS];
    write_batch(tokens, targets, value);
    snprintf(saved, sizeof saved, "%s", f8_cli_temp("saved.safetensors"));
    snprintf(next, sizeof next, "%s", f8_cli_temp("next.safetensors"));
    f8_cli_result r = F8_CLI("run", GPT, SMALL, "--recipe", "delayed", "--seed", "4", "--input",
                             tokens, "--input", targets, "--function", "micro_step", "--function",
                             "update", "--repeat", "3", "--save", saved);
    ck_assert_msg(r.code == 0 && !*r.err, "%s", r.err);
    ck_assert_ptr_nonnull(strstr(r.out, "3 times on cpu: "));
    r = F8_CLI("run", GPT, SMALL, "--recipe", "delayed", "--input", tokens, "--input", targets,
               "--weights", saved, "--function", "micro_step", "--function", "update", "--save",
               next);
    ck_assert_msg(r.code == 0 && !*r.err, "%s", r.err);

    fp8c_context *ctx = new_context();
    const fp8c_compile_options o = recipe("delayed");
    fp8c_program *p = gpt(ctx, &o);
    const int step = fp8c_program_function(p, "micro_step"),
              update = fp8c_program_function(p, "update");
    ck_assert_int_eq(fp8c_program_initialize(p, 4), FP8C_OK);
    static const char *const names[] = {"tokens", "targets"};
    for (int i = 0; i < 2; i++)
        memcpy(fp8c_program_buffer(p, step, FP8C_INPUT,
                                   fp8c_program_find_port(p, step, FP8C_INPUT, names[i])),
               value[i], sizeof value[i]);
    for (int i = 0; i < 4; i++) {
        ck_assert_int_eq(fp8c_program_run(p, step), FP8C_OK);
        ck_assert_int_eq(fp8c_program_run(p, update), FP8C_OK);
        if (i >= 2)
            ck_assert_int_eq(fp8c_program_save(p, f8_cli_temp(i == 2 ? "api3" : "api4"), NULL),
                             FP8C_OK);
    }
    same_files("saved.safetensors", "api3");
    same_files("next.safetensors", "api4");

    /* And eval takes of it what it needs. */
    const int eval = fp8c_program_function(p, "eval");
    for (int i = 0; i < 2; i++)
        memcpy(fp8c_program_buffer(p, eval, FP8C_INPUT,
                                   fp8c_program_find_port(p, eval, FP8C_INPUT, names[i])),
               value[i], sizeof value[i]);
    ck_assert_int_eq(fp8c_program_run(p, eval), FP8C_OK);
    char loss[4500];
    snprintf(loss, sizeof loss, "loss=%s", f8_cli_temp("loss.npy"));
    r = F8_CLI("run", GPT, SMALL, "--recipe", "delayed", "--input", tokens, "--input", targets,
               "--weights", next, "--output", loss);
    ck_assert_msg(r.code == 0 && !*r.err, "%s", r.err);
    has_array("loss.npy", F8_ST_F32, fp8c_program_buffer(p, eval, FP8C_OUTPUT, 0), 4);
    fp8c_program_destroy(p);
    fp8c_context_destroy(ctx);
}
END_TEST

/* Weights without scales under `delayed`: a text calibrates on the inputs given, and says so. What
 * it saves needs no more of that, also in a compiled file, which can't calibrate. */
START_TEST(calibrates)
{
    char tokens[4500], targets[4500], plain[4500], saved[4500], package[4500], loss[2][96];
    int32_t value[2][TOKENS];
    write_batch(tokens, targets, value);
    snprintf(plain, sizeof plain, "%s", f8_cli_temp("plain.safetensors"));
    snprintf(saved, sizeof saved, "%s", f8_cli_temp("saved.safetensors"));
    snprintf(package, sizeof package, "%s", f8_cli_temp("gpt.f8x"));
    f8_cli_ok(F8_CLI("run", GPT, SMALL, "--seed", "3", "--input", tokens, "--input", targets,
                     "--save", plain));
    f8_cli_ok(F8_CLI("compile", GPT, SMALL, "--recipe", "delayed", "--inference", "-o", package));
    f8_cli_result r = F8_CLI("run", GPT, SMALL, "--recipe", "delayed", "--weights", plain,
                             "--input", tokens, "--input", targets, "--save", saved);
    f8_cli_ok(r);
    ck_assert_ptr_nonnull(
        strstr(r.out, "\ndelayed: the scales were calibrated on 1 batch of the inputs given\n"));
    snprintf(loss[0], sizeof loss[0], "%.*s", (int)strcspn(r.out, "\n"), r.out);
    f8_cli_fails(F8_CLI("run", package, "--weights", plain, "--input", tokens, "--input", targets),
                 1, "the file has none: `fp8c run` of the text calibrates them, and its --save");
    r = F8_CLI("run", package, "--weights", saved, "--input", tokens, "--input", targets);
    f8_cli_ok(r);
    ck_assert_ptr_null(strstr(r.out, "calibrated"));
    snprintf(loss[1], sizeof loss[1], "%.*s", (int)strcspn(r.out, "\n"), r.out);
    ck_assert_str_eq(loss[0], loss[1]);
}
END_TEST

/* What forward gives out, backward takes by name. */
START_TEST(one_after_the_other)
{
    char tokens[4500], targets[4500], dloss[4500], grad[4500];
    int32_t value[2][TOKENS];
    const float one = 1;
    write_batch(tokens, targets, value);
    snprintf(dloss, sizeof dloss, "dloss=%s", npy("dloss.npy", "<f4", "()", &one, 4));
    fp8c_context *ctx = new_context();
    fp8c_compile_options o = recipe("bf16");
    o.pair = 1;
    fp8c_program *p = gpt(ctx, &o);
    const int backward = fp8c_program_function(p, "backward");
    fp8c_port port, kept = {0};
    for (int i = 0; fp8c_program_port(p, backward, FP8C_OUTPUT, i, &port) == FP8C_OK; i++)
        if (port.variable < 0)
            kept = port;
    f8_cli_result r;
    if (kept.name) {
        snprintf(grad, sizeof grad, "%s=%s", kept.name, f8_cli_temp("grad.npy"));
        r = F8_CLI("run", GPT, SMALL, "--input", tokens, "--input", targets, "--input", dloss,
                   "--function", "forward", "--function", "backward", "--output", grad);
    } else {
        r = F8_CLI("run", GPT, SMALL, "--input", tokens, "--input", targets, "--input", dloss,
                   "--function", "forward", "--function", "backward");
    }
    ck_assert_msg(r.code == 0 && !*r.err, "%s", r.err);
    ck_assert_ptr_nonnull(strstr(r.out, "forward      loss "));
    r = F8_CLI("run", GPT, SMALL, "--input", tokens, "--input", targets, "--input", dloss,
               "--function", "backward");
    ck_assert_int_eq(r.code, 1);
    ck_assert_ptr_nonnull(strstr(r.err, "inputs are missing: "));
    fp8c_program_destroy(p);
    fp8c_context_destroy(ctx);
}
END_TEST

/* ---- what is wrong ---- */

START_TEST(refused_runs)
{
    files *f = write_files();
    char other[4500], wide[4500], same[4500], there[4500], spare[4500];
    snprintf(other, sizeof other, "nobody=%s", strchr(f->x, '=') + 1);
    snprintf(wide, sizeof wide, "x=%s", npy("wide.npy", "<f4", "(3, 2)", x_value, sizeof x_value));
    snprintf(same, sizeof same, "z=%s", strchr(f->y, '=') + 1);
    snprintf(there, sizeof there, "y=no/such/y.npy");
    snprintf(spare, sizeof spare, "ids=%s",
             npy("far.npy", "<i8", "(2,)", (int64_t[]){1, INT64_MAX}, 16));
#define FAILS(code, message, ...)                                                                  \
    f8_cli_fails(F8_CLI("run", f->module, __VA_ARGS__, "--output", f->y), code, message)
    FAILS(1,
          "inputs are missing: x of eval, f32[2, 3]; ids of eval, i32[2]; on of eval, bool[2, 4] "
          "(give --input NAME=FILE)",
          "--seed", "1");
    FAILS(1, "inputs are missing: ids of eval, i32[2] (give --input NAME=FILE)", "--input", f->x,
          "--input", f->on);
    FAILS(1, "--input nobody: none of the functions has an input of this name", INPUTS(f),
          "--input", other);
    FAILS(1,
          "inputs are missing: ids of eval, i32[2] (give --input NAME=FILE); and none of the "
          "functions has an input 'nobody', which --input gives\n",
          "--input", f->x, "--input", f->on, "--input", other);
    FAILS(1, "fp8c run: --input ids: no/such/z.npy: error: No such file or directory\n", "--input",
          f->x, "--input", "ids=no/such/z.npy", "--input", f->on);
    FAILS(1, "--output y2: none of the functions has an output of this name", INPUTS(f), "--output",
          "y2=a.npy");
    FAILS(1, "there is no function 'backwards'; there are: eval", INPUTS(f), "--function", "eval",
          "--function", "backwards");
    FAILS(1, "it is F32 [3, 2], but 'x' needs F32 [2, 3]", "--input", wide, "--input", f->ids,
          "--input", f->on);
    FAILS(1, "for 'ids': element 1 does not fit into i32", "--input", f->x, "--input", spare,
          "--input", f->on);
    FAILS(1, "'z' and 'y' would be written to the same place", INPUTS(f), "--output", same);
    FAILS(1, "no/such/y.npy: error: No such file or directory", INPUTS(f), "--output", there);
    FAILS(1, "no/such/w.safetensors: error: No such file or directory", INPUTS(f), "--weights",
          "no/such/w.safetensors");
    FAILS(1, "no/such/s: error: No such file or directory", INPUTS(f), "--save", "no/such/s");
    FAILS(1, "it is F32 [2, 3], but 'x' needs F32 [3, 3]", INPUTS(f), "-D", "N=3");
    FAILS(2, "--input 'x' is not NAME=FILE.npy or NAME=FILE.safetensors[:TENSOR]", "--input", "x");
    FAILS(2, "--output 'y=y.txt' is not NAME=FILE.npy or NAME=FILE.safetensors[:TENSOR]",
          "--output", "y=y.txt");
    FAILS(2, "--input 'x' is given twice", INPUTS(f), "--input", f->x);
    FAILS(2, "bad value for --repeat:", INPUTS(f), "--repeat", "0");
    struct stat s;
    ck_assert(stat(f8_cli_temp("y.npy"), &s));
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("run");
    TCase *t = tcase_create("run");
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_checked_fixture(t, f8_cli_setup, f8_cli_teardown);
    tcase_add_test(t, a_text);
    tcase_add_test(t, safetensors);
    tcase_add_test(t, a_package);
    tcase_add_test(t, without_a_loss);
    tcase_add_test(t, nothing_to_train);
    tcase_add_test(t, weights_as_inputs);
    tcase_add_test(t, inference_alone);
    tcase_add_test(t, trains);
    tcase_add_test(t, calibrates);
    tcase_add_test(t, one_after_the_other);
    tcase_add_test(t, refused_runs);
    suite_add_tcase(s, t);
    return s;
}
