/* Dims that are bounds. For each value, in any order, a program with a bound gives the bits of a
 * program compiled for that value alone. Its variables and memory are those of the bound. Values
 * can follow from the shapes of inputs. Wrong values are refused. */
#include "frontend/fp8c_diagnose.h"
#include "frontend/fp8c_tune.h"
#include "tests/shared/api/bounds.h"
#include "tests/shared/api/bounds_case.h"
#include "tests/shared/suite.h"

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
                              .train_step = 1,
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
    said(ctx, "axis 0 of input 'x' makes 'B' 4, but axis 0 of 'y' makes it 3");
    ck_assert_int_eq(call(p, 9, 19, 36, &loss), FP8C_ERR_INPUT);
    said(ctx, "input 'x': axis 0 is 9, but it must be 1 * B + 0 with 'B' from 1 to 8");
    ck_assert_int_eq(call(p, 3, 8, 12, &loss), FP8C_ERR_INPUT);
    said(ctx, "input 'y': axis 0 is 8, but it must be 2 * B + 1 with 'B' from 1 to 8");
    ck_assert_int_eq(call(p, 4, 9, 8, &loss), FP8C_ERR_INPUT);
    said(ctx, "input 'z': axis 0 is 8, but it must be 16 with B = 4, S = 4; call "
              "fp8c_program_set_dim for a dim that no shape determines");
    dims_are(p, 3, 4);
    ck_assert_int_eq(fp8c_program_set_dim(p, "S", 2), FP8C_OK);
    ck_assert_msg(call(p, 4, 9, 8, &loss) == FP8C_OK, "%s", fp8c_context_message(ctx));
    dims_are(p, 4, 2);
    fp8c_program_destroy(p);
    fp8c_context_destroy(ctx);
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
    said(ctx, "dim 'B' can't be 0: it must be from 1 to 8");
    ck_assert_int_eq(fp8c_program_set_dim(p, "B", 9), FP8C_ERR_INPUT);
    said(ctx, "dim 'B' can't be 9: it must be from 1 to 8");
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

static int cancel(void *user, const fp8c_progress *progress)
{
    (void)progress;
    return *(int *)user;
}

START_TEST(cancelled)
{
    int now = 0;
    const fp8c_context_options with = {
        .struct_size = sizeof with, .progress = cancel, .progress_user = &now};
    fp8c_context *ctx;
    ck_assert_int_eq(fp8c_context_create(&with, &ctx), FP8C_OK);
    const fp8c_compile_options o = recipe("bf16");
    fp8c_program *p = compile_text(ctx, shapes, NULL, 0, NULL, &o);
    now = 1;
    ck_assert_int_eq(fp8c_program_set_dim(p, "B", 5), FP8C_ERR_CANCELLED);
    dims_are(p, 8, 4);
    now = 0;
    ck_assert_int_eq(fp8c_program_set_dim(p, "B", 5), FP8C_OK);
    dims_are(p, 5, 4);
    fp8c_program_destroy(p);
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

Suite *f8_suite(void)
{
    Suite *s = suite_create("bounds");
    TCase *t = tcase_create("bounds");
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_loop_test(t, bits, 0, sizeof programs / sizeof *programs);
    tcase_add_test(t, kept);
    tcase_add_test(t, chosen);
    tcase_add_test(t, budget);
    tcase_add_test(t, told_by_shapes);
    tcase_add_test(t, refused);
    tcase_add_test(t, cancelled);
    tcase_add_test(t, memory_runs_out);
    suite_add_tcase(s, t);
    return s;
}
