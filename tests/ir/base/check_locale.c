/* Nothing that the library writes depends on the process's locale. Texts, compiled files, CUDA
 * kernels and messages have the same bytes where decimals have a comma and libc's messages are
 * translated. The test makes such a locale with libc's localedef, which needs the tables of
 * characters in Debian's package locales. */
#include <ctype.h>
#include <errno.h>
#include <ftw.h>
#include <libintl.h>
#include <locale.h>
#include <sys/stat.h>

#include "frontend/fp8c_diagnose.h"
#include "frontend/fp8c_tune.h"
#include "frontend/measure/measure.h"
#include "runtime/base/dynlib.h"
#include "tests/shared/api/api.h"
#include "tests/shared/api/cli.h"
#include "tests/shared/suite.h"

static const char locale_name[] = "comma";
static const char translated[] = "Nicht da"; /* what ENOENT is there */
static bool has_locale;
static int localedef_code;
static char root[4200]; /* where both are */

/* ---- the locale ---- */

/* libc.mo: a catalog of one message, as GNU gettext's manual has the format: magic, revision,
 * number of strings, offsets of the tables of originals and translations (length, offset), no hash
 * table; then the texts. */
static void write_catalog(const char *path)
{
    static const char original[] = "No such file or directory";
    enum { HEADER = 28, ROW = 8, AT = HEADER + 2 * ROW };
    const uint32_t head[] = {0x950412de,
                             0,
                             1,
                             HEADER,
                             HEADER + ROW,
                             0,
                             AT,
                             sizeof original - 1,
                             AT,
                             sizeof translated - 1,
                             AT + sizeof original};
    FILE *f = fopen(path, "wb");
    ck_assert_ptr_nonnull(f);
    ck_assert(fwrite(head, sizeof head, 1, f) == 1 &&
              fwrite(original, sizeof original, 1, f) == 1 &&
              fwrite(translated, sizeof translated, 1, f) == 1 && fclose(f) == 0);
}

static void setup(void)
{
    static const char source[] =
        "LC_NUMERIC\ndecimal_point \",\"\nthousands_sep \".\"\ngrouping 3;3\nEND LC_NUMERIC\n";
    char command[9000], folder[4300];
    f8_cli_setup();
    const char *from = f8_cli_write("source", source, sizeof source - 1);
    snprintf(root, sizeof root, "%s", from);
    *strrchr(root, '/') = 0;
    /* It has no other categories, says so, and ends with 1. */
    snprintf(command, sizeof command, "localedef -c -i '%s' '%s/%s' >/dev/null 2>&1", from, root,
             locale_name);
    localedef_code = system(command);
    ck_assert_int_eq(setenv("LOCPATH", root, 1), 0);
    has_locale = setlocale(LC_ALL, locale_name) != NULL && *localeconv()->decimal_point == ',';
    setlocale(LC_ALL, "C");
    if (!has_locale)
        return;
    static const char *const below[] = {"/texts", "/comma", "/LC_MESSAGES"};
    unsetenv("LANGUAGE");
    snprintf(folder, sizeof folder, "%s", root);
    for (size_t i = 0; i < 3; i++) {
        strcat(folder, below[i]);
        ck_assert_int_eq(mkdir(folder, 0777), 0);
        if (i == 0)
            ck_assert_ptr_nonnull(bindtextdomain("libc", folder));
    }
    write_catalog(strcat(folder, "/libc.mo"));
}

static int remove_one(const char *path, const struct stat *s, int kind, struct FTW *at)
{
    (void)s, (void)kind, (void)at;
    return remove(path);
}

static void teardown(void)
{
    nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    f8_cli_teardown();
}

/* ---- what is written, gathered ---- */

typedef struct text {
    char *s;
    size_t n;
} text;

static int add(void *user, const char *s, size_t n)
{
    text *t = user;
    t->s = realloc(t->s, t->n + n + 1);
    ck_assert_ptr_nonnull(t->s);
    memcpy(t->s + t->n, s, n);
    t->n += n;
    t->s[t->n] = 0;
    return 0;
}

static void add_line(text *t, const char *s)
{
    add(t, s, strlen(s));
    add(t, "\n", 1);
}

/* Seconds differ from run to run: their digits are left out, the point is not. */
static void add_log(void *user, fp8c_log_level level, const char *line)
{
    char copy[1100];
    (void)level;
    if (!strstr(line, "ready in"))
        return;
    size_t n = 0;
    for (const char *p = line; *p && n + 1 < sizeof copy; p++)
        if (!isdigit((unsigned char)*p))
            copy[n++] = *p;
    copy[n] = 0;
    add_line(user, copy);
}

static fp8c_context *silent_context(text *log)
{
    fp8c_context *ctx;
    const fp8c_context_options o = {.struct_size = sizeof o,
                                    .cache_dir = "",
                                    .tuning = "",
                                    .log = add_log,
                                    .log_user = log,
                                    .verbose = 1};
    ck_assert_int_eq(fp8c_context_create(&o, &ctx), FP8C_OK);
    return ctx;
}

static void add_file(text *t, const char *path)
{
    size_t n;
    char *bytes = f8_cli_read(path, &n);
    add(t, bytes, n);
    free(bytes);
}

/* ---- what is done ---- */

static void auto_program(text *t)
{
    fp8c_context *ctx = silent_context(t);
    fp8c_module *m = parse(ctx, model);
    fp8c_compile_options o = recipe("auto");
    fp8c_calibration *c;
    fp8c_decision d;
    ck_assert_int_eq(fp8c_module_print(m, add, t), FP8C_OK);
    ck_assert_int_eq(fp8c_calibration_create(m, &o, 0.125, &c), FP8C_OK);
    fp8c_program *p = fp8c_calibration_program(c);
    const int step = fp8c_program_function(p, "micro_step");
    ck_assert_int_eq(fp8c_program_initialize(p, 1), FP8C_OK);
    for (int i = 0; i < 2; i++) {
        fill_batch(p, step);
        ck_assert_int_eq(fp8c_program_run(p, step), FP8C_OK);
        ck_assert_int_eq(fp8c_calibration_observe(c), FP8C_OK);
    }
    o.calibration = c;
    ck_assert_int_eq(fp8c_calibration_rules(c, add, t), FP8C_OK);
    p = compile(ctx, m, &o);
    for (int i = 0; fp8c_program_decision(p, i, &d) == FP8C_OK; i++)
        add_line(t, d.reason);
    fp8c_program_destroy(p);
    const char *file = f8_cli_temp("auto.f8x");
    ck_assert_msg(fp8c_compile_file(m, &o, 1, file) == FP8C_OK, "%s", fp8c_context_message(ctx));
    add_file(t, file);
    fp8c_calibration_destroy(c);
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
}

/* Scales that are no whole numbers, as constants of kernels. */
static const char attends[] =
    "module attends\n"
    "param w: f32[64, 64] normal(0.1)\n"
    "func forward(%x: f32[2, 32, 64]) -> (%loss: f32[]) {\n"
    "  %h = cast(linear(mul(%x, 0.3), w)) {to = bf16}\n"
    "  %y = attention(%h, %h, %h) {heads = 2, scale = 0.3}\n"
    "  return reshape(reduce_sum(reshape(cast(%y) {to = f32}) {shape = [1, 4096]})) {shape = []}\n"
    "}\n";

static void cuda_texts(text *t)
{
    fp8c_context *ctx = silent_context(t);
    fp8c_module *m = parse(ctx, attends);
    fp8c_compile_options o = recipe("current");
    fp8c_image image;
    o.target = "sm_90a";
    o.text_only = 1;
    fp8c_program *p = compile(ctx, m, &o);
    for (int i = 0; fp8c_program_image(p, i, &image) == FP8C_OK; i++)
        add_line(t, image.cuda);
    fp8c_program_destroy(p);
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
}

static const char *const wrong[] = {
    "module m\nparam w: f32[2, 2] normal(-0.5)\nfunc forward(%x: f32[2, 2]) -> (%y: f32[2, 2]) {\n "
    " return %x\n}\n",
    "module m\nfunc forward(%x: f32[2, 2]) -> (%y: f32[2, 2]) {\n  return rope(%x) {heads = 1, "
    "base = -0.5}\n}\n",
};

static void messages(text *t)
{
    fp8c_context *ctx = silent_context(t);
    fp8c_module *m;
    fp8c_program *p;
    fp8c_calibration *c;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        ck_assert_int_ne(fp8c_module_parse(ctx, wrong[i], strlen(wrong[i]), "m.f8", NULL, 0, &m),
                         FP8C_OK);
        add_line(t, fp8c_context_message(ctx));
    }
    m = parse(ctx, model);
    fp8c_compile_options o = recipe("bf16");
    ck_assert_int_eq(fp8c_calibration_create(m, &o, 1.5, &c), FP8C_ERR_INPUT);
    add_line(t, fp8c_context_message(ctx));
    o.memory_share = 0.015625;
    ck_assert_int_ne(fp8c_compile(m, &o, &p), FP8C_OK);
    add_line(t, fp8c_context_message(ctx));
    o.memory_share = 1.5;
    ck_assert_int_eq(fp8c_compile(m, &o, &p), FP8C_ERR_INPUT);
    add_line(t, fp8c_context_message(ctx));
    ck_assert_int_eq(fp8c_program_open(ctx, "/nowhere/at/all.f8x", NULL, &p), FP8C_ERR_IO);
    add_line(t, fp8c_context_message(ctx));
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
    static const char *const library[] = {"libnowhere-at-all.so", NULL};
    f8_dynlib lib;
    f8_diag diag = {0};
    ck_assert_int_eq(f8_dynlib_open("nothing", library, &lib, &diag), F8_ERR_LIBRARY);
    add_line(t, diag.text);
}

/* A measurement in each of its files. */
static void measured(text *t)
{
    static char *(*const writers[])(const f8_measure_set *) = {f8_measure_csv, f8_measure_markdown,
                                                               f8_measure_t4};
    static const double seconds[] = {1.5e-3, 2.25, 1.0 / 3};
    f8_measure_set set = {.about.program = "fp8c"};
    f8_measure_runs runs = {"one", seconds, 3};
    const f8_measure_process process = {
        .id = "one", .load = 0.25, .cpus = 2, .before = {.flops_f32 = 1.5e9, .bytes = 2.5e9}};
    const f8_measurement m = {.problem = {.text = "2x2x2:f32",
                                          .m = 2,
                                          .n = 2,
                                          .k = 2,
                                          .count = 1,
                                          .flops = 16,
                                          .bytes = 48},
                              .cache = "cold",
                              .candidate = "model",
                              .unit = "f32",
                              .error = 0.125,
                              .compile_seconds = 0.0625,
                              .process = &runs,
                              .n_processes = 1};
    f8_arena_init(&set.arena, NULL);
    ck_assert_int_eq(f8_measure_add_process(&set, &process, NULL), F8_OK);
    ck_assert_int_eq(f8_measure_add(&set, &m, NULL), F8_OK);
    ck_assert_int_eq(f8_measure_figures(&set, NULL), F8_OK);
    for (size_t i = 0; i < sizeof writers / sizeof *writers; i++) {
        char *file = writers[i](&set);
        ck_assert_ptr_nonnull(file);
        add_line(t, file);
        free(file);
    }
    f8_arena_end(&set.arena);
}

/* ---- the tests ---- */

static const struct {
    void (*run)(text *t);
    const char *shows; /* what is there only if it was a case in point */
} part[] = {{auto_program, "within 12.5%"},
            {cuda_texts, "SCALE = 0x1.3"},
            {messages, "an error budget of 1.5 is no"},
            {measured, "0.0015 2.25 0.3333333333333333,"}};

static void same_bytes(const text *a, const text *b)
{
    size_t at = 0;
    while (at < a->n && at < b->n && a->s[at] == b->s[at])
        at++;
    const size_t from = at < 40 ? 0 : at - 40;
    ck_assert_msg(a->n == b->n && at == a->n, "byte %zu: '%.80s' in C, '%.80s' there", at,
                  a->s + from, b->s + from);
}

static void is_there(void)
{
    char x[8];
    snprintf(x, sizeof x, "%.1f", 1.5);
    ck_assert_str_eq(x, "1,5");
    ck_assert_str_eq(strerror(ENOENT), translated);
}

/* Of the process, and of the thread alone. */
static void in_the_locale(void (*run)(text *t), text *to, bool thread)
{
    ck_assert_ptr_nonnull(setlocale(LC_ALL, locale_name));
    const locale_t l = thread ? duplocale(LC_GLOBAL_LOCALE) : LC_GLOBAL_LOCALE;
    ck_assert(l != (locale_t)0 && uselocale(l) != (locale_t)0);
    if (thread)
        setlocale(LC_ALL, "C");
    is_there();
    run(to);
    is_there(); /* still: what the caller chose is left as it was */
    ck_assert(uselocale((locale_t)0) == l);
    setlocale(LC_ALL, "C");
    uselocale(LC_GLOBAL_LOCALE);
    if (thread)
        freelocale(l);
}

START_TEST(same_in_every_locale)
{
    text plain = {0}, there = {0};
    if (!has_locale) {
        test_skip("a locale with a decimal comma", "localedef made none (exit %d; Debian package locales)",
                  WEXITSTATUS(localedef_code));
        return;
    }
    part[_i / 2].run(&plain);
    in_the_locale(part[_i / 2].run, &there, _i % 2);
    ck_assert_msg(strstr(plain.s, part[_i / 2].shows), "'%s' shows nothing", plain.s);
    same_bytes(&plain, &there);
    free(plain.s);
    free(there.s);
}
END_TEST

/* ---- the rule that gives it ---- */

/* The end of the call whose arguments begin at p, and whether a literal in it has a floating
 * conversion. */
static const char *end_of_call(const char *p, bool *floating)
{
    int depth = 1;
    bool literal = false;
    for (; *p && depth; p++) {
        if (literal && *p == '\\')
            p++;
        else if (*p == '"')
            literal = !literal;
        else if (literal && *p == '%') {
            p += 1 + strspn(p + 1, "-+ #0123456789.*lL");
            *floating |= *p && strchr("aAeEfFgG", *p);
            p -= *p == '"';
        } else if (!literal)
            depth += (*p == '(') - (*p == ')');
    }
    return p;
}

static void follows_no_locale(const char *path)
{
    static const char *const never[] = {"vsnprintf(", " strerror(", "(strerror(",
                                        "vasprintf(", " strtod(",   " atof("};
    size_t n;
    char *source = f8_cli_read(path, &n);
    for (size_t i = 0; i < sizeof never / sizeof *never; i++)
        ck_assert_msg(!strstr(source, never[i]), "%s calls %s...): see ir/base/format.h", path,
                      never[i]);
    for (const char *p = source; (p = strstr(p, "snprintf("));) {
        bool floating = false;
        const char *call = p;
        p = end_of_call(p + strlen("snprintf("), &floating);
        ck_assert_msg(!floating, "%s: '%.*s': see ir/base/format.h", path, (int)(p - call), call);
    }
    free(source);
}

static int looked_at;

/* The command writes for people: it may follow their locale. */
static int read_source(const char *path, const struct stat *s, int kind, struct FTW *at)
{
    const char *name = path + at->base, *end = strrchr(name, '.');
    (void)s;
    if (kind != FTW_F || !end || strcmp(end, ".c") || !strcmp(name, "format.c") ||
        !strncmp(path, "frontend/cli/", 13))
        return 0;
    follows_no_locale(path);
    looked_at++;
    return 0;
}

START_TEST(sources)
{
    static const char *const folders[] = {"ir", "passes", "codegen", "runtime", "frontend"};
    looked_at = 0;
    for (size_t f = 0; f < sizeof folders / sizeof *folders; f++)
        ck_assert_int_eq(nftw(folders[f], read_source, 8, FTW_PHYS), 0);
    ck_assert_int_gt(looked_at, 100);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("locale");
    TCase *t = tcase_create("locale");
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_unchecked_fixture(t, setup, teardown);
    tcase_add_loop_test(t, same_in_every_locale, 0, 2 * (int)(sizeof part / sizeof *part));
    tcase_add_test(t, sources);
    suite_add_tcase(s, t);
    return s;
}
