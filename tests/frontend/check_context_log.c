/* What a context says and writes: the log and its levels, warnings, files that are given up, dumps.
 */
#include <dirent.h>
#include <sys/stat.h>

#include "tests/shared/api/context_case.h"
#include "tests/shared/suite.h"

/* ---- the log ---- */

static lines compile_with(int32_t verbose, const char *variable, const char *cache)
{
    lines l = new_lines();
    const fp8c_context_options o = {.struct_size = sizeof o,
                                    .log = note,
                                    .log_user = &l,
                                    .verbose = verbose,
                                    .cache_dir = cache};
    if (variable)
        setenv("FP8C_VERBOSE", variable, 1);
    else
        unsetenv("FP8C_VERBOSE");
    fp8c_context *ctx = create(&o);
    compile_once(ctx);
    fp8c_context_destroy(ctx);
    return l;
}

START_TEST(levels)
{
    const struct {
        int32_t verbose;
        const char *variable;
        int level; /* the highest that is said */
    } at[] = {{2, NULL, 2}, {0, NULL, 0}, {1, NULL, 1}, {100, NULL, 2}, {-1, "2", 0},
              {0, "1", 1},  {0, "2", 2},  {1, "2", 1},  {0, "", 0}};
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        const lines l = compile_with(at[i].verbose, at[i].variable, below("kernels"));
        ck_assert_int_eq(l.count[FP8C_LOG_WARNING], 0);
        ck_assert_int_eq(l.count[FP8C_LOG_INFO] > 0, at[i].level >= 1);
        ck_assert_int_eq(l.count[FP8C_LOG_DEBUG] > 10, at[i].level >= 2);
        ck_assert_int_eq(strstr(l.text, "module tiny for cpu: ") != NULL, at[i].level >= 1);
        ck_assert_int_eq(strstr(l.text, "pass autodiff: ") != NULL, at[i].level >= 2);
        ck_assert_int_eq(strstr(l.text, "kernel ") != NULL,
                         i == 0); /* later they are in the cache */
    }
    static const char *const wrong[] = {"yes", "3", "-1", "1x"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const lines l = compile_with(0, wrong[i], below("kernels"));
        ck_assert_int_eq(l.count[FP8C_LOG_WARNING], 1);
        ck_assert_int_eq(l.count[FP8C_LOG_INFO], 0);
        ck_assert_str_eq(l.text, "FP8C_VERBOSE is not 0, 1 or 2: it counts as 0\n");
    }
}
END_TEST

/* Under recipe bf16 or f32 no rule counts. The log warns of each rule that fp8c_module_rule has
 * added, unless the rule asks for that recipe itself. */
START_TEST(overridden_rules)
{
    static const struct {
        const char *recipe, *rule[2], *text;
    } cases[] = {
        {"bf16",
         {"\"fc\" = current", "\"head\" = bf16"},
         "recipe bf16 overrides 1 added rule, as recipe \"fc\" = current\n"},
        {"f32",
         {"\"fc\" wgrad = current", "\"head\" = bf16"},
         "recipe f32 overrides 2 added rules, as recipe \"fc\" wgrad = current\n"},
        {NULL,
         {"\"fc\" = current", "\"head\" = delayed"},
         "recipe bf16 overrides 2 added rules, as recipe \"fc\" = current\n"},
        {"bf16", {"\"fc\" = bf16", NULL}, ""},
        {"bf16", {NULL, NULL}, ""}, /* the text's own rules */
        {"current", {"\"fc\" = bf16", NULL}, ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lines l = new_lines();
        const fp8c_context_options co = {
            .struct_size = sizeof co, .log = note, .log_user = &l, .verbose = -1};
        fp8c_context *ctx = create(&co);
        fp8c_module *m = parse(ctx, model);
        for (int k = 0; k < 2 && cases[i].rule[k]; k++)
            ck_assert_int_eq(fp8c_module_rule(m, cases[i].rule[k], "a call"), FP8C_OK);
        fp8c_compile_options o = recipe(cases[i].recipe);
        o.plan_only = 1;
        fp8c_program_destroy(compile(ctx, m, &o));
        ck_assert_str_eq(l.text, cases[i].text);
        fp8c_module_destroy(m);
        fp8c_context_destroy(ctx);
    }
}
END_TEST

/* The warnings of this text, n of them, are said in each compile that trains, and in no other. */
static void said_when_training(fp8c_context *ctx, const fp8c_module *m, const lines *l,
                               const char *text, int n)
{
    fp8c_compile_options o = recipe("bf16");
    o.plan_only = 1;
    fp8c_program_destroy(compile(ctx, m, &o));
    ck_assert_str_eq(l->text, text);
    fp8c_program_destroy(compile(ctx, m, &o));
    ck_assert_int_eq(l->count[FP8C_LOG_WARNING], 2 * n);
    o.inference = 1;
    fp8c_program_destroy(compile(ctx, m, &o));
    ck_assert_int_eq(l->count[FP8C_LOG_WARNING], 2 * n);
}

/* A weight that is an input gets no gradient. This is said in each compile that trains, once for
 * each such input; a module made by calls has no places. */
START_TEST(weight_as_input)
{
    const fp8c_type matrix = {FP8C_F32, 2, {4, 4}};
    lines l = new_lines();
    const fp8c_context_options o = {.struct_size = sizeof o, .log = note, .log_user = &l};
    fp8c_context *ctx = create(&o);
    fp8c_module *m;
    ck_assert_int_eq(fp8c_module_create(ctx, "fed", &m), FP8C_OK);
    ck_assert_int_eq(fp8c_module_param(m, "w", &matrix, FP8C_INIT_ONES, 0), FP8C_OK);
    ck_assert_int_eq(fp8c_func_begin(m, "forward"), FP8C_OK);
    const fp8c_value v = fp8c_func_input(m, "v", &matrix), w = fp8c_func_param(m, "w");
    const fp8c_value once = fp8c_func_op(m, "linear", (fp8c_value[]){w, v}, 2, NULL, 0);
    const fp8c_value twice = fp8c_func_op(m, "linear", (fp8c_value[]){once, v}, 2, NULL, 0);
    const fp8c_attr flat = {
        .name = "shape", .kind = FP8C_ATTR_INTS, .ints = (const int64_t[]){16}, .n_ints = 1};
    const fp8c_attr scalar = {.name = "shape", .kind = FP8C_ATTR_INTS};
    fp8c_value sum = fp8c_func_op(m, "reshape", &twice, 1, &flat, 1);
    sum = fp8c_func_op(m, "reduce_sum", &sum, 1, NULL, 0);
    sum = fp8c_func_op(m, "reshape", &sum, 1, &scalar, 1);
    ck_assert_int_eq(fp8c_func_result(m, "loss", sum), FP8C_OK);
    ck_assert_msg(fp8c_func_end(m) == FP8C_OK, "%s", fp8c_context_message(ctx));
    said_when_training(ctx, m, &l,
                       "input '%v' is the weight of a linear: inputs get no gradient; declare it "
                       "as a param to train it\n",
                       1);
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
}
END_TEST

/* A parameter that no gradient reaches is named with its place, once in each compile that trains.
 * `unused` is read by nothing, `told` by another result than the loss, `asked` by a comparison,
 * `still` where the gradient is stopped; so is that of the input %v, a weight. */
START_TEST(parameters_without_gradient)
{
    static const char text[] = "module lone\n"
                               "param w: f32[4] ones\n"
                               "param unused: f32[4] ones\n"
                               "param told: f32[4] ones\n"
                               "param asked: f32[4] ones\n"
                               "param still: f32[4] ones\n"
                               "func forward(%x: f32[4], %v: f32[4, 4])\n"
                               "  -> (%loss: f32[], %other: f32[4]) {\n"
                               "  %y = select(lt(%x, asked), mul(%x, w), w)\n"
                               "  %z = linear(add(%y, stop_gradient(still)), stop_gradient(%v))\n"
                               "  return reshape(reduce_sum(%z)) {shape = []}, mul(%x, told)\n"
                               "}\n";
    static const char said[] =
        "tiny.f8:3:7: no gradient of the loss reaches parameter 'unused': its gradient stays 0\n"
        "tiny.f8:4:7: no gradient of the loss reaches parameter 'told': its gradient stays 0\n"
        "tiny.f8:5:7: no gradient of the loss reaches parameter 'asked': its gradient stays 0\n"
        "tiny.f8:6:7: no gradient of the loss reaches parameter 'still': its gradient stays 0\n";
    lines l = new_lines();
    const fp8c_context_options o = {.struct_size = sizeof o, .log = note, .log_user = &l};
    fp8c_context *ctx = create(&o);
    fp8c_module *m = parse(ctx, text);
    said_when_training(ctx, m, &l, said, 4);
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
}
END_TEST

/* A cache that can't be used is said once, and why; compiling goes on. */
START_TEST(cache_of_no_use)
{
    FILE *f = fopen(below("file"), "w");
    ck_assert_ptr_nonnull(f);
    fclose(f);
    lines l = new_lines();
    const fp8c_context_options o = {
        .struct_size = sizeof o, .log = note, .log_user = &l, .cache_dir = below("file")};
    fp8c_cache_info info = {.struct_size = sizeof info};
    fp8c_context *ctx = create(&o);
    ck_assert_int_eq(l.count[FP8C_LOG_WARNING], 0);
    compile_once(ctx);
    compile_once(ctx);
    ck_assert_int_eq(l.count[FP8C_LOG_WARNING], 1);
    ck_assert_ptr_nonnull(strstr(l.text, "kernels are not cached: "));
    ck_assert_int_eq(fp8c_context_cache(ctx, &info), FP8C_OK);
    ck_assert_ptr_null(info.folder);
    ck_assert_ptr_nonnull(info.why_not);
    ck_assert_ptr_nonnull(strstr(l.text, info.why_not));
    fp8c_context_destroy(ctx);
}
END_TEST

START_TEST(cached_kernels_are_counted)
{
    fp8c_info info[2] = {{.struct_size = sizeof *info}, {.struct_size = sizeof *info}};
    for (int i = 0; i < 2; i++) {
        lines l = new_lines();
        const fp8c_context_options o = {.struct_size = sizeof o,
                                        .log = note,
                                        .log_user = &l,
                                        .verbose = 1,
                                        .cache_dir = below("kernels")};
        char want[64];
        fp8c_context *ctx = create(&o);
        fp8c_module *m = parse(ctx, model);
        const fp8c_compile_options options = recipe("delayed");
        fp8c_program *p = compile(ctx, m, &options);
        fp8c_program_info(p, &info[i]);
        snprintf(want, sizeof want, "%d compiled, %d from the cache",
                 (int)(info[i].distinct_kernels - info[i].kernels_cached),
                 (int)info[i].kernels_cached);
        ck_assert_msg(strstr(l.text, want) != NULL, "'%s' does not say '%s'", l.text, want);
        fp8c_program_destroy(p);
        fp8c_module_destroy(m);
        fp8c_context_destroy(ctx);
    }
    ck_assert_int_eq(info[0].kernels_cached, 0);
    ck_assert_int_gt(info[0].distinct_kernels, 3);
    ck_assert_int_eq(info[1].kernels_cached, info[1].distinct_kernels);
}
END_TEST

/* What a signal handler calls: afterwards the context computes on, and writes nothing. */
START_TEST(abandoned_files)
{
    const fp8c_context_options o = {.struct_size = sizeof o, .cache_dir = below("kernels")};
    fp8c_cache_info cache = {.struct_size = sizeof cache};
    struct stat s;
    fp8c_context *ctx = create(&o);
    fp8c_module *m = parse(ctx, model);
    fp8c_context_abandon_files(ctx);
    const fp8c_compile_options options = recipe("bf16");
    fp8c_program *p = compile(ctx, m, &options);
    ck_assert_int_eq(fp8c_program_initialize(p, 1), FP8C_OK);
    ck_assert_int_eq(fp8c_program_save(p, below("it"), NULL), FP8C_ERR_CANCELLED);
    ck_assert_ptr_nonnull(strstr(fp8c_context_message(ctx),
                                 "/it: error: not written: the context's files were given up"));
    ck_assert_int_eq(fp8c_compile_file(m, &options, 1, below("it.f8x")), FP8C_ERR_CANCELLED);
    ck_assert(stat(below("it"), &s) && stat(below("it.f8x"), &s));
    ck_assert_int_eq(fp8c_context_cache(ctx, &cache), FP8C_OK);
    ck_assert_int_eq(cache.entries, 0);
    ck_assert_int_eq(cache.stored, 0);
    fp8c_program_destroy(p);
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
}
END_TEST

/* ---- dumps ---- */

static int files_in(const char *path, const char *ending)
{
    DIR *d = opendir(path);
    int n = 0;
    struct dirent *e;
    ck_assert_msg(d != NULL, "%s", path);
    while ((e = readdir(d))) {
        const size_t length = strlen(e->d_name), tail = strlen(ending);
        struct stat s;
        char file[1024];
        if (e->d_name[0] == '.' || length < tail || strcmp(e->d_name + length - tail, ending))
            continue;
        snprintf(file, sizeof file, "%s/%s", path, e->d_name);
        ck_assert_int_eq(stat(file, &s), 0);
        ck_assert_msg(s.st_size > 0, "%s is empty", file);
        n++;
    }
    closedir(d);
    return n;
}

/* Each compile has a folder of its own, also where kernels come from the cache; a module that was
 * dumped can be read again. */
START_TEST(dumps)
{
    static const char *const folders[] = {"dump/deep/tiny.cpu.0", "dump/deep/tiny.cpu.1"};
    const fp8c_context_options o = {
        .struct_size = sizeof o, .dump = below("dump/deep"), .cache_dir = below("kernels")};
    fp8c_context *ctx = create(&o);
    for (int i = 0; i < 2; i++) {
        compile_once(ctx);
        ck_assert_int_eq(files_in(below(folders[i]), ".f8"), 19); /* the module, after 18 passes */
        ck_assert_int_gt(files_in(below(folders[i]), ".txt"), 3);
        ck_assert_int_gt(files_in(below(folders[i]), ".ll"), 0);
    }
    fp8c_module *m = parse(ctx, model);
    fp8c_compile_options cuda = recipe("bf16");
    cuda.target = "sm_90a";
    cuda.text_only = 1;
    fp8c_program_destroy(compile(ctx, m, &cuda));
    fp8c_module_destroy(m);
    ck_assert_int_eq(files_in(below("dump/deep/tiny.sm_90a.0"), ".f8"), 19);
    ck_assert_int_gt(files_in(below("dump/deep/tiny.sm_90a.0"), ".cu"), 0);
    char text[1 << 16], path[1024];
    snprintf(path, sizeof path, "%s/00_input.f8", below(folders[0]));
    FILE *f = fopen(path, "r");
    const size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = 0;
    fp8c_module_destroy(parse(ctx, text));
    fp8c_context_destroy(ctx);
}
END_TEST

/* A dump that can't be written is said once, and costs the compile nothing. */
START_TEST(dumps_that_fail)
{
    FILE *f = fopen(below("file"), "w");
    ck_assert_ptr_nonnull(f);
    fclose(f);
    lines l = new_lines();
    const fp8c_context_options o = {.struct_size = sizeof o,
                                    .log = note,
                                    .log_user = &l,
                                    .dump = below("file/dump"),
                                    .cache_dir = ""};
    fp8c_context *ctx = create(&o);
    compile_once(ctx);
    ck_assert_int_eq(l.count[FP8C_LOG_WARNING], 1);
    ck_assert_msg(strstr(l.text, "dump: ") && strstr(l.text, "Not a directory"), "%s", l.text);
    fp8c_context_destroy(ctx);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("context_log");
    TCase *t = tcase_create("log");
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, levels);
    tcase_add_test(t, overridden_rules);
    tcase_add_test(t, weight_as_input);
    tcase_add_test(t, parameters_without_gradient);
    tcase_add_test(t, cache_of_no_use);
    tcase_add_test(t, cached_kernels_are_counted);
    tcase_add_test(t, abandoned_files);
    tcase_add_test(t, dumps);
    tcase_add_test(t, dumps_that_fail);
    suite_add_tcase(s, t);
    return s;
}
