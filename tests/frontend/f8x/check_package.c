/* .f8x files. An opened file has the bits of the compiled program. Equal input gives equal bytes.
 * What cannot be compiled into a file, or opened on this machine, is an error that says why.
 * check_package_damage.c tests damaged files. */
#include <unistd.h>

#include "frontend/fp8c_diagnose.h"
#include "frontend/program.h"
#include "tests/shared/passes/compile.h"
#include "tests/shared/api/package_case.h"
#include "tests/shared/suite.h"

static const fp8c_dim small[] = {{"L", 2}, {"B", 2}, {"T", 32}, {"C", 64}};
enum { N_DIMS = sizeof small / sizeof *small };

static fp8c_module *gpt_as(const char *name)
{
    size_t n;
    fp8c_module *m;
    char *text = f8_test_read("frontend/models/gpt.f8", &n);
    ck_assert_msg(fp8c_module_parse(ctx, text, n, name, small, N_DIMS, &m) == FP8C_OK, "%s",
                  fp8c_context_message(ctx));
    free(text);
    return m;
}

static fp8c_compile_options options(const char *target, const char *name)
{
    return (fp8c_compile_options){.struct_size = sizeof(fp8c_compile_options),
                                  .recipe = name,
                                  .target = target,
                                  .threads = 2};
}

/* A file with the module for each of the targets; its path. */
static const char *file_of(const fp8c_module *m, const char *name, const char *const *target, int n,
                           const char *recipe_name)
{
    fp8c_compile_options o[8];
    const char *path = f8_cli_temp(name);
    for (int i = 0; i < n; i++)
        o[i] = options(target[i], recipe_name);
    ck_assert_msg(fp8c_compile_file(m, o, (size_t)n, path) == FP8C_OK, "%s",
                  fp8c_context_message(ctx));
    return path;
}

static const char *native_file(const fp8c_module *m, const char *name, const char *recipe_name)
{
    return file_of(m, name, (const char *const[]){"cpu"}, 1, recipe_name);
}

static fp8c_program *open_as(const char *path, const char *target, bool no_device)
{
    const fp8c_open_options o = {
        .struct_size = sizeof o, .target = target, .threads = 2, .no_device = no_device};
    fp8c_program *p;
    ck_assert_msg(fp8c_program_open(ctx, path, &o, &p) == FP8C_OK, "%s", fp8c_context_message(ctx));
    return p;
}

/* ---- what is computed ---- */

static void batch(fp8c_program *p, int step)
{
    static const char *const names[] = {"tokens", "targets"};
    for (int k = 0; k < 2; k++) {
        fp8c_port port;
        const int at = fp8c_program_find_port(p, step, FP8C_INPUT, names[k]);
        ck_assert_int_eq(fp8c_program_port(p, step, FP8C_INPUT, at, &port), FP8C_OK);
        int32_t *ids = fp8c_program_buffer(p, step, FP8C_INPUT, at);
        for (int64_t i = 0; i < fp8c_type_bytes(&port.type) / 4; i++)
            ids[i] = (int32_t)((7 * i * i + 3 * k) % 250);
    }
}

/* Initialize and train for two steps. */
static void train(fp8c_program *p)
{
    const int step = fp8c_program_function(p, "micro_step");
    ck_assert_msg(fp8c_program_initialize(p, 3) == FP8C_OK, "%s", fp8c_context_message(ctx));
    for (int i = 0; i < 2; i++) {
        batch(p, step);
        ck_assert_int_eq(fp8c_program_run(p, step), FP8C_OK);
        ck_assert_int_eq(fp8c_program_run(p, fp8c_program_function(p, "update")), FP8C_OK);
    }
}

static void same_variables(fp8c_program *a, fp8c_program *b)
{
    fp8c_variable x, y;
    int n = 0;
    bool moved = false;
    for (; fp8c_program_variable(a, n, &x) == FP8C_OK; n++) {
        ck_assert_int_eq(fp8c_program_variable(b, n, &y), FP8C_OK);
        ck_assert_str_eq(x.name, y.name);
        ck_assert_msg(!memcmp(x.data, y.data, (size_t)fp8c_type_bytes(&x.type)), "%s differs",
                      x.name);
        moved = moved || (!strncmp(x.name, "opt.m.", 6) && *(const float *)x.data != 0);
    }
    ck_assert_int_eq(fp8c_program_variable(b, n, &y), FP8C_ERR_INPUT);
    ck_assert_msg(moved, "nothing was trained");
}

static const char *const recipes[] = {"bf16", "delayed", "block"};

START_TEST(same_results)
{
    fp8c_module *m = gpt_as("gpt.f8");
    const fp8c_compile_options o = options("cpu", recipes[_i]);
    fp8c_program *direct = compile(ctx, m, &o), *opened, *copied;
    const char *path = native_file(m, "gpt.f8x", recipes[_i]);
    size_t n;
    fp8c_module_destroy(m);
    opened = open_as(path, NULL, false);
    char *bytes = f8_cli_read(path, &n);
    const fp8c_open_options from = {.struct_size = sizeof from, .bytes = bytes, .n_bytes = n};
    ck_assert_int_eq(fp8c_program_open(ctx, NULL, NULL, &copied), FP8C_ERR_INPUT);
    ck_assert_int_eq(fp8c_program_open(ctx, NULL, &from, &copied), FP8C_OK);
    memset(bytes, 0, n); /* they were copied */
    free(bytes);
    unlink(path); /* and the file is open */
    train(direct);
    train(opened);
    train(copied);
    same_variables(direct, opened);
    same_variables(direct, copied);
    ck_assert_str_eq(fp8c_program_target(opened), "cpu");
    fp8c_program_destroy(direct);
    fp8c_program_destroy(opened);
    fp8c_program_destroy(copied);
}
END_TEST

/* Code for levels: vectors of other widths, the same bits, as the GEMMs' algorithm is the same. */
START_TEST(levels)
{
    static const char *const targets[] = {"cpu:x86-64-v3", "cpu:x86-64-v4"};
    fp8c_module *m = gpt_as("gpt.f8");
    const char *path = file_of(m, "levels.f8x", targets, 2, "delayed");
    const fp8c_compile_options o = options(targets[0], "delayed");
    fp8c_program *direct = compile(ctx, m, &o), *p[2];
    ck_assert_str_eq(fp8c_program_target(direct), targets[0]);
    train(direct);
    fp8c_file_info t = {.struct_size = sizeof t};
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(fp8c_file_read_info(ctx, path, i, &t), FP8C_OK);
        ck_assert_str_eq(t.target, targets[i]);
        if (*t.missing) {
            test_skip("running the code of a file", "%s needs %s", t.target, t.missing);
            p[i] = NULL;
            continue;
        }
        p[i] = open_as(path, targets[i], false);
        ck_assert_str_eq(fp8c_program_target(p[i]), targets[i]);
        train(p[i]);
        same_variables(direct, p[i]);
    }
    ck_assert_int_eq(fp8c_file_read_info(ctx, path, 2, &t), FP8C_ERR_INPUT);
    if (p[1]) { /* "cpu" is the one that uses most of the CPU */
        ck_assert(p[0]->now->plan.blob_bytes != p[1]->now->plan.blob_bytes ||
                  memcmp(p[0]->now->plan.blob, p[1]->now->plan.blob,
                         (size_t)p[0]->now->plan.blob_bytes) != 0);
        fp8c_program *best = open_as(path, "cpu", false), *any = open_as(path, NULL, false);
        ck_assert_str_eq(fp8c_program_target(best), targets[1]);
        ck_assert_str_eq(fp8c_program_target(any), targets[1]);
        fp8c_program_destroy(best);
        fp8c_program_destroy(any);
    }
    for (int i = 0; i < 2; i++)
        fp8c_program_destroy(p[i]);
    fp8c_program_destroy(direct);
    fp8c_module_destroy(m);
}
END_TEST

/* ---- what is told ---- */

static void same_text(const char *a, const char *b)
{
    ck_assert_msg((!a && !b) || (a && b && !strcmp(a, b)), "'%s' is not '%s'", a ? a : "NULL",
                  b ? b : "NULL");
}

static void same_functions(const fp8c_program *a, const fp8c_program *b)
{
    for (int f = 0; fp8c_program_function_name(a, f); f++) {
        fp8c_peak p, q;
        fp8c_tensor t, u;
        fp8c_step s, r;
        same_text(fp8c_program_function_name(a, f), fp8c_program_function_name(b, f));
        ck_assert_int_eq(fp8c_program_peak(a, f, &p), FP8C_OK);
        ck_assert_int_eq(fp8c_program_peak(b, f, &q), FP8C_OK);
        same_text(p.step, q.step);
        ck_assert(p.position == q.position && p.positions == q.positions &&
                  p.arena_bytes == q.arena_bytes && p.alive_bytes == q.alive_bytes &&
                  p.activation_bytes == q.activation_bytes && p.seconds == q.seconds);
        int i = 0;
        for (; fp8c_program_tensor(a, f, i, &t) == FP8C_OK; i++) {
            ck_assert_int_eq(fp8c_program_tensor(b, f, i, &u), FP8C_OK);
            same_text(t.name, u.name);
            same_text(t.made, u.made);
            same_text(t.read, u.read);
            same_text(t.category, u.category);
            ck_assert(t.bytes == u.bytes && t.first == u.first && t.last == u.last &&
                      t.type.rank == u.type.rank);
        }
        ck_assert_int_gt(i, 0);
        for (i = 0; fp8c_program_step(a, f, i, &s) == FP8C_OK; i++) {
            ck_assert_int_eq(fp8c_program_step(b, f, i, &r), FP8C_OK);
            same_text(s.name, r.name);
            same_text(s.kind, r.kind);
            ck_assert(s.hash == r.hash && s.bytes_read == r.bytes_read && s.phases == r.phases);
            const char *how = r.algorithm;
            ck_assert(strcmp(r.kind, "gemm") ? !how : how && strcmp(how, "auto") != 0);
        }
    }
}

static void same_decisions(const fp8c_program *a, const fp8c_program *b)
{
    fp8c_decision d, e;
    fp8c_pass p, q;
    int i = 0;
    for (; fp8c_program_decision(a, i, &d) == FP8C_OK; i++) {
        ck_assert_int_eq(fp8c_program_decision(b, i, &e), FP8C_OK);
        const char *const x[] = {d.linear, d.role, d.format_a, d.format_b, d.scaling, d.reason};
        const char *const y[] = {e.linear, e.role, e.format_a, e.format_b, e.scaling, e.reason};
        for (int k = 0; k < 6; k++)
            same_text(x[k], y[k]);
        ck_assert(d.m == e.m && d.n == e.n && d.k == e.k && d.count == e.count && d.fp8 == e.fp8);
    }
    ck_assert_int_gt(i, 0);
    ck_assert_int_eq(fp8c_program_decision(b, i, &e), FP8C_ERR_INPUT);
    for (i = 0; fp8c_program_pass(a, i, &p) == FP8C_OK; i++) {
        ck_assert_int_eq(fp8c_program_pass(b, i, &q), FP8C_OK);
        same_text(p.name, q.name);
        ck_assert(p.nodes == q.nodes && q.seconds == 0);
    }
    ck_assert_int_gt(i, 5);
}

START_TEST(same_reports)
{
    fp8c_module *m = gpt_as("gpt.f8");
    fp8c_compile_options o = options("cpu", "delayed");
    o.no_device = 1;
    o.memory_share = 0.5;
    fp8c_program *a = compile(ctx, m, &o), *b;
    const char *path = f8_cli_temp("reports.f8x");
    ck_assert_int_eq(fp8c_compile_file(m, &o, 1, path), FP8C_OK);
    fp8c_module_destroy(m);
    b = open_as(path, NULL, true);
    fp8c_info x = {.struct_size = sizeof x}, y = x;
    fp8c_remat r = {.struct_size = sizeof r}, s = r;
    fp8c_program_info(a, &x);
    fp8c_program_info(b, &y);
    ck_assert(x.linears == y.linears && x.fp8_gemms_planned == y.fp8_gemms_planned &&
              x.distinct_kernels == y.distinct_kernels && x.code_bytes == y.code_bytes &&
              x.arena_bytes == y.arena_bytes && x.linears > 0 && x.fp8_gemms_planned > 0);
    ck_assert(y.planned_bytes > y.arena_bytes && y.planned_bytes <= x.planned_bytes &&
              y.compile_seconds == 0);
    fp8c_program_remat(a, 0, 0, &r);
    fp8c_program_remat(b, 0, 0, &s);
    ck_assert(r.planned_bytes == x.planned_bytes && s.planned_bytes == y.planned_bytes);
    s.planned_bytes = r.planned_bytes;
    ck_assert(!memcmp(&r, &s, sizeof r) && r.recomputed > 0);
    same_functions(a, b);
    same_decisions(a, b);
    for (int v = 0, named = 0; v < (int)a->now->plan.n_vars; v++) {
        int64_t i = 0;
        for (; fp8c_program_element(a, v, i, 0); i++, named++) {
            same_text(fp8c_program_element(a, v, i, 0), fp8c_program_element(b, v, i, 0));
            for (int k = 0; k < 3; k++)
                same_text(fp8c_program_element(a, v, i, k + 1),
                          fp8c_program_element(b, v, i, k + 1));
        }
        ck_assert_ptr_null(fp8c_program_element(b, v, i, 0));
        ck_assert(v + 1 < (int)a->now->plan.n_vars || named > 0);
    }
    ck_assert_ptr_null(fp8c_program_buffer(b, 0, FP8C_INPUT, 0));
    ck_assert_int_eq(fp8c_program_initialize(b, 1), FP8C_ERR_INPUT);
    fp8c_program_destroy(a);
    fp8c_program_destroy(b);
}
END_TEST

/* Weights stored as FP8 can be quantized into a program that was opened. */
START_TEST(stored_weights)
{
    fp8c_module *m = gpt_as("gpt.f8");
    fp8c_compile_options o = options("cpu", "delayed");
    o.inference = 1;
    o.stored = "delayed";
    const char *path = f8_cli_temp("stored.f8x");
    fp8c_program *a = compile(ctx, m, &o), *b;
    ck_assert_msg(fp8c_compile_file(m, &o, 1, path) == FP8C_OK, "%s", fp8c_context_message(ctx));
    fp8c_module_destroy(m);
    b = open_as(path, NULL, false);
    ck_assert(fp8c_program_initialize(a, 1) == FP8C_OK && fp8c_program_initialize(b, 1) == FP8C_OK);
    fp8c_stored x, y;
    int n = 0;
    for (; fp8c_program_stored(a, n, &x) == FP8C_OK; n++) {
        fp8c_variable v, w;
        ck_assert_int_eq(fp8c_program_stored(b, n, &y), FP8C_OK);
        ck_assert(x.variable == y.variable && x.scale_variable == y.scale_variable);
        same_text(x.recipe, y.recipe);
        same_text(x.kept, y.kept);
        fp8c_program_variable(a, x.variable, &v);
        fp8c_program_variable(b, x.variable, &w);
        const size_t elements = (size_t)fp8c_type_bytes(&v.type);
        float *values = malloc(elements * sizeof *values);
        for (size_t i = 0; i < elements; i++)
            values[i] = (float)(i % 97) - 48;
        ck_assert_int_eq(fp8c_program_quantize(a, x.variable, values, NULL), FP8C_OK);
        ck_assert_int_eq(fp8c_program_quantize(b, x.variable, values, NULL), FP8C_OK);
        ck_assert_mem_eq(v.data, w.data, elements);
        free(values);
    }
    ck_assert_int_gt(n, 0);
    fp8c_program_destroy(a);
    fp8c_program_destroy(b);
}
END_TEST

/* ---- the same bytes ---- */

START_TEST(reproducible)
{
    size_t n, k;
    const fp8c_context_options no_cache = {.struct_size = sizeof no_cache, .cache_dir = ""};
    fp8c_context_destroy(ctx);
    ck_assert_int_eq(fp8c_context_create(&no_cache, &ctx),
                     FP8C_OK); /* neither takes the other's kernels */
    fp8c_module *m = gpt_as("gpt.f8"), *other = gpt_as("/another/place/model.f8");
    static const char *const targets[] = {"cpu:x86-64-v3", "cpu"};
    fp8c_compile_options o[2];
    char *first, *second, folder[4096];
    const char *path = f8_cli_temp("second.f8x");
    first = f8_cli_read(file_of(m, "first.f8x", targets, 2, "delayed"), &n);
    for (int i = 0; i < 2; i++) {
        o[i] = options(targets[i], "delayed");
        o[i].threads = 1;
    }
    ck_assert_ptr_nonnull(getcwd(folder, sizeof folder));
    ck_assert_int_eq(chdir("/"), 0);
    ck_assert_msg(fp8c_compile_file(other, o, 2, path) == FP8C_OK, "%s", fp8c_context_message(ctx));
    ck_assert_int_eq(chdir(folder), 0);
    second = f8_cli_read(path, &k);
    ck_assert_uint_eq(n, k);
    for (size_t i = 0; i < n; i++)
        ck_assert_msg(first[i] == second[i], "byte %zu differs", i);
    free(second);
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx); /* the same with kernels from a cache, some or all of them */
    ctx = new_context();
    m = gpt_as("gpt.f8");
    for (int i = 0; i < 2; i++) {
        second = f8_cli_read(file_of(m, "cached.f8x", targets, 2, "delayed"), &k);
        ck_assert(n == k && !memcmp(first, second, n));
        free(second);
    }
    free(first);
    fp8c_module_destroy(m);
    fp8c_module_destroy(other);
}
END_TEST

/* ---- refused ---- */

START_TEST(no_such_target)
{
    fp8c_module *m = parse(ctx, model);
    const char *path =
        file_of(m, "two.f8x", (const char *const[]){"cpu", "cpu:x86-64-v3"}, 2, "bf16");
    static const struct {
        const char *target;
        fp8c_status status;
        const char *says;
    } bad[] = {
        {"sm_90a", FP8C_ERR_INPUT, "it has no code for 'sm_90a': it has cpu, cpu:x86-64-v3"},
        {"tpu", FP8C_ERR_INPUT, "it has no code for 'tpu'"},
        {"cpu:x86-64-v4", FP8C_ERR_INPUT, "it has no code for 'cpu:x86-64-v4'"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const fp8c_open_options o = {.struct_size = sizeof o, .target = bad[i].target};
        fp8c_program *p;
        ck_assert_int_eq(fp8c_program_open(ctx, path, &o, &p), bad[i].status);
        said(ctx, bad[i].says);
        said(ctx, "two.f8x: error: ");
    }
    fp8c_program *p = open_as(path, "cpu:native", false);
    ck_assert_str_eq(fp8c_program_target(p), "cpu");
    fp8c_program_destroy(p);
    fp8c_module_destroy(m);
}
END_TEST

/* ---- compiling that fails ---- */

START_TEST(refused_options)
{
    fp8c_module *m = parse(ctx, model);
    fp8c_compile_options o[3] = {recipe("bf16"), recipe("bf16"), recipe("bf16")};
    const char *path = f8_cli_write("kept.f8x", "old", 3);
    size_t n;
#define REFUSED(count, status, words)                                                              \
    do {                                                                                           \
        ck_assert_int_eq(fp8c_compile_file(m, o, count, path), status);                            \
        said(ctx, words);                                                                          \
        char *old = f8_cli_read(path, &n);                                                         \
        ck_assert(n == 3 && !memcmp(old, "old", 3));                                               \
        free(old);                                                                                 \
    } while (0)
    REFUSED(0, FP8C_ERR_INPUT, "at least one target");
    REFUSED(2, FP8C_ERR_INPUT, "target cpu is given twice");
    o[1].target = "cpu:native";
    REFUSED(2, FP8C_ERR_INPUT, "target cpu is given twice");
    o[1].target = "reference";
    REFUSED(2, FP8C_ERR_UNSUPPORTED, "target reference interprets");
    o[1].target = "cpu:x86-64-v2";
    REFUSED(2, FP8C_ERR_INPUT, "no target 'cpu:x86-64-v2'");
    o[1] = recipe("nonsense");
    o[1].target = "cpu:x86-64-v3";
    REFUSED(2, FP8C_ERR_INPUT, "nonsense"); /* when one target is compiled already */
    o[0].plan_only = 1;
    REFUSED(1, FP8C_ERR_INPUT, "a file can't have plan_only");
    o[0] = recipe("bf16");
    o[0].witness = 1;
    REFUSED(1, FP8C_ERR_INPUT, "a file can't have witness");
    o[0] = recipe("bf16");
    o[0].keep = "*";
    REFUSED(1, FP8C_ERR_INPUT, "a file can't have keep");
    o[0] = recipe("bf16");
    path = f8_cli_temp("no/such/folder.f8x");
    ck_assert_int_eq(fp8c_compile_file(m, o, 1, path), FP8C_ERR_IO);
    said(ctx, "folder.f8x: error: ");
    fp8c_program *p;
    ck_assert_int_eq(fp8c_program_open(ctx, path, NULL, &p), FP8C_ERR_IO);
    ck_assert_int_eq(fp8c_program_open(ctx, f8_cli_temp("."), NULL, &p), FP8C_ERR_IO);
    fp8c_module_destroy(m);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("package");
    TCase *t = tcase_create("package");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_loop_test(t, same_results, 0, sizeof recipes / sizeof *recipes);
    tcase_add_test(t, levels);
    tcase_add_test(t, same_reports);
    tcase_add_test(t, stored_weights);
    tcase_add_test(t, reproducible);
    tcase_add_test(t, no_such_target);
    tcase_add_test(t, refused_options);
    suite_add_tcase(s, t);
    return s;
}
