/* Dims that are bounds: a program for every value has, for each, the bits of a program compiled for
 * it alone, whatever the order; its variables and memory are those of the bound; values that shapes
 * tell; what is refused. */
#include "tests/api.h"
#include "tests/shared/bounds_case.h"
#include "tests/shared/cli.h"

/* ---- bits ---- */

static const struct {
    fp8c_compile_options options;
    bool reversed;
} programs[] = {
    {{.recipe = "bf16", .threads = 2}, false},
    {{.recipe = "delayed", .threads = 1}, false},
    {{.recipe = "block", .threads = 1, .memory_share = 0.7}, false},
    {{.recipe = "current", .threads = 1, .target = "reference"}, false},
    {{.recipe = "delayed", .threads = 2}, true},
};

START_TEST(bits)
{
    static const int order[] = {6, 3, 1, 5, 3, 6, 2, 4, 1};
    f8_bounds_case(&programs[_i].options, programs[_i].reversed, order,
                   sizeof order / sizeof *order);
}
END_TEST

/* ---- what a program keeps to make others ---- */

static char *read_model(void)
{
    static char text[4096];
    FILE *f = fopen(F8_BOUNDS_MODEL, "rb");
    ck_assert(f != NULL);
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
    return text;
}

static fp8c_program *compile_text(fp8c_context *ctx, const char *text, const fp8c_dim *dims,
                                  size_t n_dims, const char *rule, const fp8c_compile_options *o)
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

static void same_decisions(const fp8c_program *p, const fp8c_program *q)
{
    fp8c_decision a, b;
    int n = 0;
    for (; fp8c_program_decision(p, n, &a) == FP8C_OK; n++) {
        ck_assert_int_eq(fp8c_program_decision(q, n, &b), FP8C_OK);
        ck_assert_str_eq(a.linear, b.linear);
        ck_assert_str_eq(a.role, b.role);
        ck_assert_str_eq(a.scaling, b.scaling);
        ck_assert_str_eq(a.reason, b.reason);
        ck_assert(a.m == b.m && a.n == b.n && a.k == b.k);
    }
    ck_assert_int_ge(n, 9);
    ck_assert_int_eq(fp8c_program_decision(q, n, &b), FP8C_ERR_INPUT);
}

/* Text, dims, rules and options are the program's own: all were freed before another value is asked
 * for. */
START_TEST(kept)
{
    fp8c_context *ctx = new_context();
    const fp8c_dim dims[] = {{"T", 8}, {"B", 5}}, alone[] = {{"T", 8}, {"B", 3}};
    char recipe[] = "delayed", keep[] = "*.x", target[] = "cpu";
    fp8c_compile_options o = {.struct_size = sizeof o,
                              .recipe = recipe,
                              .keep = keep,
                              .target = target,
                              .threads = 1,
                              .pair = 1,
                              .lr = 0.5};
    fp8c_program *p = compile_text(ctx, read_model(), dims, 2, "\"h.0.mlp\" wgrad = current", &o);
    memset(recipe, '?', sizeof recipe - 1);
    memset(keep, '?', sizeof keep - 1);
    memset(target, '?', sizeof target - 1);
    fp8c_program_dim dim;
    ck_assert_int_eq(fp8c_program_dims(p, 0, &dim), FP8C_OK);
    ck_assert(dim.value == 5 && dim.bound == 5);
    ck_assert_msg(fp8c_program_set_dim(p, "B", 3) == FP8C_OK, "%s", fp8c_context_message(ctx));
    o.recipe = "delayed";
    o.keep = "*.x";
    o.target = NULL;
    fp8c_program *q = compile_text(ctx, read_model(), alone, 2, "\"h.0.mlp\" wgrad = current", &o);
    same_decisions(p, q);
    for (int f = 0; fp8c_program_function_name(q, f); f++) {
        ck_assert_str_eq(fp8c_program_function_name(p, f), fp8c_program_function_name(q, f));
        fp8c_step a, b;
        for (int i = 0; fp8c_program_step(q, f, i, &a) == FP8C_OK; i++) {
            ck_assert_int_eq(fp8c_program_step(p, f, i, &b), FP8C_OK);
            ck_assert_uint_eq(a.hash, b.hash);
            ck_assert_int_eq(a.bytes_read, b.bytes_read);
        }
    }
    fp8c_program_destroy(q);
    fp8c_program_destroy(p);
    fp8c_context_destroy(ctx);
}
END_TEST

/* What a calibration chose is kept too. */
START_TEST(chosen)
{
    fp8c_context *ctx = new_context();
    fp8c_module *m = parse(ctx, read_model());
    fp8c_compile_options o = {.struct_size = sizeof o, .recipe = "auto", .threads = 1};
    fp8c_calibration *c;
    ck_assert_msg(fp8c_calibration_create(m, &o, 0.2, &c) == FP8C_OK, "%s",
                  fp8c_context_message(ctx));
    fp8c_program *sampled = fp8c_calibration_program(c);
    ck_assert_int_eq(fp8c_program_initialize(sampled, 1), FP8C_OK);
    const int step = fp8c_program_function(sampled, "micro_step");
    for (int batch = 0; batch < 2; batch++) {
        ck_assert_int_eq(fp8c_program_run(sampled, step), FP8C_OK);
        ck_assert_msg(fp8c_calibration_observe(c) == FP8C_OK, "%s", fp8c_context_message(ctx));
    }
    o.calibration = c;
    fp8c_program *p = compile(ctx, m, &o);
    fp8c_calibration_destroy(c);
    fp8c_module_destroy(m);
    fp8c_decision a[64], b;
    int n = 0, fp8 = 0;
    while (n < 64 && fp8c_program_decision(p, n, &a[n]) == FP8C_OK)
        n++;
    ck_assert_msg(fp8c_program_set_dim(p, "B", 2) == FP8C_OK, "%s", fp8c_context_message(ctx));
    for (int i = 0; i < n; i++) {
        ck_assert_int_eq(fp8c_program_decision(p, i, &b), FP8C_OK);
        ck_assert_str_eq(a[i].linear, b.linear);
        ck_assert_str_eq(a[i].scaling, b.scaling);
        ck_assert_int_eq(a[i].fp8, b.fp8);
        fp8 += b.fp8;
    }
    ck_assert_int_gt(fp8, 0);
    fp8c_program_destroy(p);
    fp8c_context_destroy(ctx);
}
END_TEST

/* ---- memory ---- */

/* What was asked for holds for the program: no value takes more of the arena than the bound left
 * it. */
START_TEST(budget)
{
    f8_api_run r;
    fp8c_info info = {.struct_size = sizeof info};
    f8_bounds_open(&r, 0, false, (fp8c_compile_options){.recipe = "bf16", .threads = 1});
    fp8c_program_info(r.program, &info);
    f8_api_close(&r);
    const int64_t most = info.planned_bytes - info.arena_bytes / 4;
    f8_bounds_open(&r, 0, false,
                   (fp8c_compile_options){.recipe = "bf16", .threads = 1, .memory_bytes = most});
    for (int b = F8_BOUNDS_MOST; b >= 1; b--) {
        f8_bounds_set(&r, b);
        fp8c_program_info(r.program, &info);
        ck_assert_int_le(info.planned_bytes, most);
        ck_assert_int_le(info.peak_bytes, most);
    }
    f8_api_close(&r);
}
END_TEST

/* ---- values that shapes tell ---- */

static const char shapes[] =
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

static tensor make(int32_t rank, int64_t a, int64_t b)
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
static fp8c_status call(fp8c_program *p, int64_t b, int64_t y, int64_t z, float *loss)
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

static void dims_are(const fp8c_program *p, int64_t b, int64_t s)
{
    fp8c_program_dim dim[2];
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(fp8c_program_dims(p, i, &dim[i]), FP8C_OK);
    ck_assert_int_eq(dim[0].value, b);
    ck_assert_int_eq(dim[1].value, s);
}

START_TEST(told_by_shapes)
{
    fp8c_context *ctx = new_context();
    const fp8c_compile_options o = recipe("bf16");
    fp8c_program *p = compile_text(ctx, shapes, NULL, 0, NULL, &o);
    float loss, expected;
    ck_assert_int_eq(fp8c_program_initialize(p, 3), FP8C_OK);
    dims_are(p, 8, 4);
    ck_assert_msg(call(p, 8, 17, 32, &loss) == FP8C_OK, "%s", fp8c_context_message(ctx));
    ck_assert_msg(call(p, 3, 7, 12, &loss) == FP8C_OK, "%s", fp8c_context_message(ctx));
    dims_are(p, 3, 4); /* x and y tell B; nothing tells S, which stays */
    const fp8c_dim alone[] = {{"B", 3}, {"S", 4}};
    fp8c_program *q = compile_text(ctx, shapes, alone, 2, NULL, &o);
    ck_assert_int_eq(fp8c_program_initialize(q, 3), FP8C_OK);
    ck_assert_int_eq(call(q, 3, 7, 12, &expected), FP8C_OK);
    ck_assert(!memcmp(&loss, &expected, sizeof loss));
    fp8c_program_destroy(q);
    /* what can't be, and the values stay */
    ck_assert_int_eq(call(p, 4, 7, 16, &loss), FP8C_ERR_INPUT);
    said(ctx, "axis 0 of input 'x' says that 'B' is 4, axis 0 of 'y' that it is 3");
    ck_assert_int_eq(call(p, 9, 19, 36, &loss), FP8C_ERR_INPUT);
    said(ctx, "input 'x': axis 0 is 9, but 1 * B + 0, and 'B' is 1 to 8");
    ck_assert_int_eq(call(p, 3, 8, 12, &loss), FP8C_ERR_INPUT);
    said(ctx, "input 'y': axis 0 is 8, but 2 * B + 1, and 'B' is 1 to 8");
    ck_assert_int_eq(call(p, 4, 9, 8, &loss), FP8C_ERR_INPUT);
    said(ctx, "input 'z': axis 0 is 8, but 16 with B = 4, S = 4; where shapes don't tell a value, "
              "fp8c_program_set_dim gives it");
    dims_are(p, 3, 4);
    ck_assert_int_eq(fp8c_program_set_dim(p, "S", 2), FP8C_OK);
    ck_assert_msg(call(p, 4, 9, 8, &loss) == FP8C_OK, "%s", fp8c_context_message(ctx));
    dims_are(p, 4, 2);
    fp8c_program_destroy(p);
    fp8c_context_destroy(ctx);
}
END_TEST

/* ---- files ---- */

static fp8c_status write_file(fp8c_context *ctx, const char *text, const char *values,
                              const char *path)
{
    fp8c_module *m;
    ck_assert_msg(fp8c_module_parse(ctx, text, strlen(text), "t.f8", NULL, 0, &m) == FP8C_OK, "%s",
                  fp8c_context_message(ctx));
    fp8c_compile_options o = recipe("bf16");
    o.values = values;
    const fp8c_status status = fp8c_compile_file(m, &o, 1, path);
    fp8c_module_destroy(m);
    return status;
}

/* A file serves the values that it was made for, from one state, with the bits of programs compiled
 * here; and tells by shapes which. */
START_TEST(files)
{
    fp8c_context *ctx = new_context();
    char *again;
    size_t n, m;
    const char *path = f8_cli_temp("bounds.f8x"), *other = f8_cli_temp("again.f8x");
    ck_assert_msg(write_file(ctx, shapes, "B=2,8,3 S=4,2", path) == FP8C_OK, "%s",
                  fp8c_context_message(ctx));
    ck_assert_int_eq(write_file(ctx, shapes, " S=2,4,4  B=8,3,2", other), FP8C_OK);
    char *bytes = f8_cli_read(path, &n);
    again = f8_cli_read(other, &m);
    ck_assert(n == m && !memcmp(bytes, again, n));
    free(bytes);
    free(again);
    const fp8c_compile_options o = recipe("bf16");
    fp8c_program *p, *q = compile_text(ctx, shapes, NULL, 0, NULL, &o);
    ck_assert_msg(fp8c_program_open(ctx, path, NULL, &p) == FP8C_OK, "%s",
                  fp8c_context_message(ctx));
    fp8c_program_dim dim;
    ck_assert_int_eq(fp8c_program_dims(p, 0, &dim), FP8C_OK);
    ck_assert(!strcmp(dim.name, "B") && dim.bound == 8);
    dims_are(p, 8, 4);
    ck_assert_int_eq(fp8c_program_initialize(p, 3), FP8C_OK);
    ck_assert_int_eq(fp8c_program_initialize(q, 3), FP8C_OK);
    for (int64_t b = 2; b <= 8; b += b == 3 ? 5 : 1) {
        float loss, expected;
        ck_assert_msg(call(p, b, 2 * b + 1, 4 * b, &loss) == FP8C_OK, "%s",
                      fp8c_context_message(ctx));
        ck_assert_int_eq(call(q, b, 2 * b + 1, 4 * b, &expected), FP8C_OK);
        ck_assert(!memcmp(&loss, &expected, sizeof loss));
        dims_are(p, b, 4);
    }
    ck_assert_int_eq(fp8c_program_set_dim(p, "B", 4), FP8C_ERR_UNSUPPORTED);
    said(ctx, "the file has no code for B = 4, S = 4: it has it for B = 8, S = 4; B = 8, S = 2; B "
              "= 3, S = 4; "
              "B = 3, S = 2; B = 2, S = 4; B = 2, S = 2");
    dims_are(p, 8, 4);
    ck_assert_int_eq(fp8c_program_set_dim(p, "S", 2), FP8C_OK);
    fp8c_program_destroy(p);
    fp8c_program_destroy(q);
    /* the bound itself need not be there */
    ck_assert_int_eq(write_file(ctx, shapes, "S=1 B=3,5", path), FP8C_OK);
    ck_assert_int_eq(fp8c_program_open(ctx, path, NULL, &p), FP8C_OK);
    dims_are(p, 5, 1);
    fp8c_program_destroy(p);
    fp8c_context_destroy(ctx);
}
END_TEST

static const struct {
    const char *values, *said;
} bad_values[] = {
    {"B=9", "values 'B=9': 'B' is 1 to 8"},
    {"B=0", "values 'B=0': 'B' is 1 to 8"},
    {"C=1", "values 'C=1': no dim 'C' is a bound"},
    {"B=1,", "values 'B=1,': a number is wanted after '=' and ','"},
    {"B=1;S=2", "a number is wanted after '=' and ','"},
    {"B", "NAME=N,N,... is wanted"},
    {"=3", "no dim '' is a bound"},
};

START_TEST(values)
{
    fp8c_context *ctx = new_context();
    const char *path = f8_cli_temp("bounds.f8x");
    for (size_t i = 0; i < sizeof bad_values / sizeof *bad_values; i++) {
        ck_assert_int_eq(write_file(ctx, shapes, bad_values[i].values, path), FP8C_ERR_INPUT);
        said(ctx, bad_values[i].said);
    }
    char many[sizeof shapes + 8];
    snprintf(many, sizeof many, "module shapes\ndim B <= 65, S <= 2%s",
             strchr(strstr(shapes, "S <= 4"), '\n'));
    ck_assert_int_eq(write_file(ctx, many, "S=1", path), FP8C_ERR_INPUT);
    said(ctx, "a file holds code for at most 64 sets of values of bounds, and 'B' alone has 65 "
              "here: say for which it "
              "shall be (--values B=1,2,4)");
    ck_assert_int_eq(write_file(ctx, model, "B=1", path), FP8C_ERR_INPUT);
    said(ctx, "values 'B=1': the module has no dims that are bounds");
    fp8c_context_destroy(ctx);
}
END_TEST

/* ---- the command line ---- */

/* A .npy of f32 ones. */
static const char *write_ones(const char *name, const char *shape, size_t n)
{
    char file[1024] = "\x93NUMPY\1", header[118];
    const float one = 1;
    memset(header, ' ', sizeof header);
    header[snprintf(header, sizeof header,
                    "{'descr': '<f4', 'fortran_order': False, 'shape': %s, }", shape)] = ' ';
    header[sizeof header - 1] = '\n';
    file[8] = sizeof header;
    memcpy(file + 10, header, sizeof header);
    for (size_t i = 0; i < n; i++)
        memcpy(file + 10 + sizeof header + i * sizeof one, &one, sizeof one);
    return f8_cli_write(name, file, 10 + sizeof header + n * sizeof one);
}

START_TEST(command)
{
    char text[512], file[512], x[512], y[512], z[512];
    snprintf(text, sizeof text, "%s", f8_cli_write("shapes.f8", shapes, strlen(shapes)));
    snprintf(file, sizeof file, "%s", f8_cli_temp("shapes.f8x"));
    f8_cli_ok(F8_CLI("compile", text, "-o", file, "--values", "B=2,3"));
    f8_cli_result r = F8_CLI("inspect", file);
    f8_cli_ok(r);
    ck_assert_msg(strstr(r.out, "B <= 8, S <= 4: 8 plans") != NULL, "%s", r.out);
    f8_cli_fails(F8_CLI("compile", text, "-o", file, "--values", "B=2:3"), 1,
                 "a number is wanted after");
    snprintf(x, sizeof x, "x=%s", write_ones("x.npy", "(3, 4)", 12));
    snprintf(y, sizeof y, "y=%s", write_ones("y.npy", "(7,)", 7));
    snprintf(z, sizeof z, "z=%s", write_ones("z.npy", "(6,)", 6));
    r = F8_CLI("run", file, "-D", "S=2", "--input", x, "--input", y, "--input", z);
    f8_cli_ok(r);
    ck_assert_msg(strstr(r.out, "f32[3, 4]") != NULL, "%s", r.out); /* the files tell B */
    char *out = strdup(r.out);
    r = F8_CLI("run", text, "-D", "S=2", "--input", x, "--input", y, "--input", z);
    f8_cli_ok(r);
    ck_assert_str_eq(r.out, out);
    free(out);
    snprintf(y, sizeof y, "y=%s", write_ones("y.npy", "(9,)", 9));
    f8_cli_fails(F8_CLI("run", text, "--input", x, "--input", y, "--input", z), 1,
                 "axis 0 of input 'x' says that 'B' is 3, axis 0 of 'y' that it is 4");
}
END_TEST

/* ---- what is refused ---- */

START_TEST(refused)
{
    fp8c_context *ctx = new_context();
    const fp8c_compile_options o = recipe("bf16");
    fp8c_program *p = compile_text(ctx, shapes, NULL, 0, NULL, &o);
    ck_assert_int_eq(fp8c_program_set_dim(p, "C", 1), FP8C_ERR_INPUT);
    said(ctx, "the program has no dim 'C' that is a bound");
    ck_assert_int_eq(fp8c_program_set_dim(p, NULL, 1), FP8C_ERR_INPUT);
    ck_assert_int_eq(fp8c_program_set_dim(p, "B", 0), FP8C_ERR_INPUT);
    said(ctx, "dim 'B' can't be 0: the program serves 1 to 8");
    ck_assert_int_eq(fp8c_program_set_dim(p, "B", 9), FP8C_ERR_INPUT);
    said(ctx, "dim 'B' can't be 9: the program serves 1 to 8");
    dims_are(p, 8, 4);
    fp8c_program_destroy(p);
    /* a value that the text can't have: its place, and the program is as it was */
    static const char halves[] = "module halves\n"
                                 "dim B <= 4\n"
                                 "param w: f32[4, 4] normal(0.5)\n"
                                 "func forward(%x: f32[B, 4]) -> (%loss: f32[]) {\n"
                                 "  %h = reshape(linear(%x, w)) {shape = [B/2, 8]}\n"
                                 "  return reshape(mean(mean(%h)) {axis = 0}) {shape = []}\n"
                                 "}\n"
                                 "optimizer adamw {lr = 1e-3}\n";
    p = compile_text(ctx, halves, NULL, 0, NULL, &o);
    ck_assert_int_eq(fp8c_program_initialize(p, 1), FP8C_OK);
    ck_assert_int_eq(fp8c_program_set_dim(p, "B", 3), FP8C_ERR_INPUT);
    said(ctx, "t.f8:5:8: error: with B = 3: reshape");
    fp8c_program_dim dim;
    ck_assert_int_eq(fp8c_program_dims(p, 0, &dim), FP8C_OK);
    ck_assert_int_eq(dim.value, 4);
    ck_assert_int_eq(fp8c_program_run(p, fp8c_program_function(p, "eval")), FP8C_OK);
    ck_assert_msg(fp8c_program_set_dim(p, "B", 2) == FP8C_OK, "%s", fp8c_context_message(ctx));
    ck_assert_int_eq(fp8c_program_run(p, fp8c_program_function(p, "eval")), FP8C_OK);
    fp8c_program_destroy(p);
    /* such a module is its text */
    fp8c_module *m = parse(ctx, shapes);
    const fp8c_type type = {.dtype = FP8C_F32, .rank = 1, .dim = {4}};
    ck_assert_int_eq(fp8c_module_param(m, "v", &type, FP8C_INIT_ZEROS, 0), FP8C_ERR_INPUT);
    said(ctx, "the module's text has dims that are bounds: only rules can be added to it");
    ck_assert_int_eq(fp8c_func_begin(m, "more"), FP8C_ERR_INPUT);
    ck_assert_int_eq(fp8c_module_optimizer(m, NULL, 0), FP8C_ERR_INPUT);
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
}
END_TEST

/* A program whose further value can't be made for want of memory stays what it was. */
typedef struct limited {
    long left; /* allocations until one fails; < 0: none does */
} limited;

static void *limited_alloc(void *user, size_t size, size_t align)
{
    limited *l = user;
    if (__atomic_fetch_sub(&l->left, 1, __ATOMIC_RELAXED) == 0)
        return NULL;
    align = align < sizeof(void *) ? sizeof(void *) : align;
    return aligned_alloc(align, (size + align - 1) / align * align);
}

static void limited_free(void *user, void *p, size_t size)
{
    (void)user, (void)size;
    free(p);
}

START_TEST(memory_runs_out)
{
    limited l = {-1};
    const fp8c_context_options with = {.struct_size = sizeof with,
                                       .alloc = limited_alloc,
                                       .free = limited_free,
                                       .allocator_user = &l};
    fp8c_context *ctx;
    ck_assert_int_eq(fp8c_context_create(&with, &ctx), FP8C_OK);
    const fp8c_compile_options o = recipe("bf16");
    fp8c_program *p = compile_text(ctx, shapes, NULL, 0, NULL, &o);
    ck_assert_int_eq(fp8c_program_initialize(p, 3), FP8C_OK);
    float loss, again;
    ck_assert_int_eq(call(p, 8, 17, 32, &loss), FP8C_OK);
    int failed = 0;
    for (long allowed = 0;; allowed += 1 + allowed / 3) {
        l.left = allowed;
        const fp8c_status status = fp8c_program_set_dim(p, "B", 5);
        l.left = -1;
        if (status == FP8C_OK)
            break;
        failed++;
        ck_assert_msg(status == FP8C_ERR_MEMORY, "%d: %s", (int)status, fp8c_context_message(ctx));
        dims_are(p, 8, 4);
        ck_assert_int_eq(call(p, 8, 17, 32, &again), FP8C_OK);
        ck_assert(!memcmp(&loss, &again, sizeof loss));
    }
    ck_assert_int_ge(failed, 5);
    dims_are(p, 5, 4);
    ck_assert_int_eq(call(p, 5, 11, 20, &again), FP8C_OK);
    fp8c_program_destroy(p);
    fp8c_context_destroy(ctx);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("bounds");
    TCase *t = tcase_create("bounds");
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_unchecked_fixture(t, f8_cli_setup, f8_cli_teardown);
    tcase_add_loop_test(t, bits, 0, sizeof programs / sizeof *programs);
    tcase_add_test(t, kept);
    tcase_add_test(t, chosen);
    tcase_add_test(t, budget);
    tcase_add_test(t, told_by_shapes);
    tcase_add_test(t, files);
    tcase_add_test(t, values);
    tcase_add_test(t, command);
    tcase_add_test(t, refused);
    tcase_add_test(t, memory_runs_out);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    const int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}
