/* The tuner through the API and the command line: what it times and what it does not time twice,
 * what compiles then choose and report, equal bits, cancelling, killing, and databases that cannot
 * be used. */
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "frontend/fp8c_tune.h"
#include "tests/shared/api/api.h"
#include "tests/shared/api/cli.h"
#include "tests/shared/suite.h"

#include <jansson.h>

static char database[128];
static int asked, most_asked, nap; /* nap: microseconds of sleep when first asked */
static char warned[1024];

static void setup(void)
{
    f8_cli_setup();
    snprintf(database, sizeof database, "%s", f8_cli_temp("tuning.db"));
    setenv("FP8C_TUNING", database, 1);
    setenv("FP8C_CACHE_DIR", f8_cli_temp("cache"), 0);
    asked = most_asked = nap = 0;
    warned[0] = 0;
}

static int progress(void *user, const fp8c_progress *p)
{
    (void)user;
    asked += !strcmp(p->phase, "tune");
    if (asked == 1 && nap) {
        usleep((useconds_t)nap);
        nap = 0;
    }
    return most_asked && asked >= most_asked;
}

static void log_line(void *user, fp8c_log_level level, const char *text)
{
    (void)user;
    if (level == FP8C_LOG_WARNING)
        snprintf(warned, sizeof warned, "%s", text);
}

static fp8c_context *context(void)
{
    const fp8c_context_options o = {.struct_size = sizeof o, .progress = progress, .log = log_line};
    fp8c_context *ctx;
    ck_assert_int_eq(fp8c_context_create(&o, &ctx), FP8C_OK);
    return ctx;
}

typedef struct found {
    fp8c_tuning_info info;
    fp8c_status status;
} found;

static found tune_with(fp8c_context *ctx, const fp8c_tune_options *more)
{
    const fp8c_compile_options compile_options = recipe("current");
    fp8c_tune_options o = *more;
    fp8c_module *m = parse(ctx, model);
    fp8c_tuning *t;
    found f = {.info.struct_size = sizeof f.info};
    o.struct_size = sizeof o;
    o.compile = &compile_options;
    o.runs = o.runs ? o.runs : 1;
    f.status = fp8c_tune(ctx, m, &o, &t);
    if (f.status == FP8C_OK) {
        fp8c_tuned x;
        const char *text;
        double seconds;
        ck_assert_int_gt(f.info.problems = 0, -1);
        fp8c_tuning_report(t, &f.info);
        ck_assert_str_eq(f.info.database, database);
        for (int i = 0; i < f.info.problems; i++) {
            ck_assert_int_eq(fp8c_tuning_problem(t, i, &x), FP8C_OK);
            ck_assert_int_ge(x.candidates, 2 - x.gemm);
            ck_assert_int_eq(fp8c_tuning_candidate(t, i, 0, &text, &seconds), FP8C_OK);
            ck_assert_str_eq(text, "model");
            ck_assert_int_eq(fp8c_tuning_candidate(t, i, x.candidates, &text, &seconds),
                             FP8C_ERR_INPUT);
        }
        ck_assert_int_eq(fp8c_tuning_problem(t, f.info.problems, &x), FP8C_ERR_INPUT);
        f.info.database = f.info.device = NULL; /* the tuning's */
    }
    fp8c_tuning_destroy(t);
    fp8c_module_destroy(m);
    return f;
}

static found tune(fp8c_context *ctx)
{
    const found f = tune_with(ctx, &(fp8c_tune_options){0});
    ck_assert_msg(f.status == FP8C_OK, "%s", fp8c_context_message(ctx));
    return f;
}

/* ---- rows, as an export has them ---- */

/* Every row given to `fn`, which may change it, or drop it by false; the database is then made of
 * what is left. */
static int edit_rows(fp8c_context *ctx, bool (*fn)(json_t *row, void *user), void *user)
{
    const char *from = f8_cli_temp("rows.jsonl"), *to = f8_cli_temp("edited.jsonl");
    fp8c_tuning_rows rows = {.struct_size = sizeof rows};
    ck_assert_int_eq(fp8c_tuning_move(ctx, FP8C_TUNING_EXPORT, NULL, from, &rows), FP8C_OK);
    ck_assert_int_gt(rows.timings, 0);
    FILE *in = fopen(from, "r"), *out = fopen(to, "w");
    ck_assert(in && out);
    int kept = 0, line = 0;
    for (json_t *row; (row = json_loadf(in, JSON_DISABLE_EOF_CHECK, NULL));
         json_decref(row), line++)
        if (!line || fn(row, user)) {
            json_dumpf(row, out, JSON_COMPACT);
            fputc('\n', out);
            kept++;
        }
    fclose(in);
    fclose(out);
    unlink(database);
    ck_assert_msg(fp8c_tuning_move(ctx, FP8C_TUNING_IMPORT, NULL, to, &rows) == FP8C_OK, "%s",
                  fp8c_context_message(ctx));
    ck_assert_int_eq(rows.older, 0);
    return line - kept;
}

static bool drop_one(json_t *row, void *user)
{
    bool *dropped = user;
    const char *candidate = json_string_value(json_object_get(row, "candidate"));
    const bool this =
        !*dropped && !strcmp(json_string_value(json_object_get(row, "row")), "timing") &&
        strcmp(candidate, "model") && json_integer_value(json_object_get(row, "runs"));
    *dropped |= this;
    return !this;
}

/* A name mistyped makes no database. */
START_TEST(nothing_there)
{
    fp8c_context *ctx = context();
    const char *none = f8_cli_temp("none.db"), *fresh = f8_cli_temp("fresh.db"),
               *rows = f8_cli_temp("none.jsonl");
    ck_assert_int_eq(fp8c_tuning_move(ctx, FP8C_TUNING_EXPORT, none, rows, NULL), FP8C_ERR_IO);
    ck_assert_msg(strstr(fp8c_context_message(ctx), "none.db: error: No such file") != NULL, "%s",
                  fp8c_context_message(ctx));
    ck_assert_int_eq(fp8c_tuning_move(ctx, FP8C_TUNING_IMPORT, fresh, rows, NULL), FP8C_ERR_IO);
    ck_assert_int_eq(fp8c_tuning_move(ctx, FP8C_TUNING_MERGE, fresh, none, NULL), FP8C_ERR_IO);
    ck_assert(access(none, F_OK) && access(fresh, F_OK) && access(rows, F_OK));
    fp8c_context_destroy(ctx);
}
END_TEST

/* A candidate that the database lacks, as after an update that brings one, is timed, and nothing
 * else. */
START_TEST(times_once)
{
    fp8c_context *ctx = context();
    const found first = tune(ctx), second = tune(ctx);
    ck_assert_int_gt(first.info.problems, 10);
    ck_assert_int_gt(first.info.timed, 50);
    ck_assert_int_eq(first.info.kept, 0);
    ck_assert(first.info.finished);
    ck_assert_int_eq(second.info.timed, 0);
    ck_assert_int_eq(second.info.chosen, first.info.chosen);
    ck_assert_int_ge(second.info.kept, first.info.timed);
    bool dropped = false;
    ck_assert_int_eq(edit_rows(ctx, drop_one, &dropped), 1);
    const found third = tune(ctx);
    ck_assert_int_eq(third.info.timed, 1);
    ck_assert_int_eq(third.info.kept, second.info.kept - 1);
    const found again = tune_with(ctx, &(fp8c_tune_options){.again = 1, .only = "opt.*"});
    ck_assert_int_eq(again.status, FP8C_OK);
    ck_assert_int_gt(again.info.timed, 0);
    ck_assert_int_lt(again.info.problems, first.info.problems);
    fp8c_context_destroy(ctx);
}
END_TEST

/* What rows say of the runs of a tuning. */
typedef struct kept_runs {
    const fp8c_tuning *t;
    const char *process[2]; /* whose samples there may be, NULL: not known yet */
    int processes, timings, of_two, matched, several;
} kept_runs;

/* The tuner's seconds of a candidate, which are of all that a step computes: 0 if there is none. */
static double step_seconds(const fp8c_tuning *t, const json_t *row, int *count)
{
    const char *problem = json_string_value(json_object_get(row, "problem")),
               *candidate = json_string_value(json_object_get(row, "candidate")), *text;
    fp8c_tuned x;
    double seconds;
    for (int i = 0; fp8c_tuning_problem(t, i, &x) == FP8C_OK; i++)
        for (int c = 0; !strcmp(x.problem, problem) && c < x.candidates; c++)
            if (fp8c_tuning_candidate(t, i, c, &text, &seconds) == FP8C_OK &&
                !strcmp(text, candidate)) {
                *count = x.count;
                return seconds;
            }
    return 0;
}

static void check_samples(const json_t *row, kept_runs *k)
{
    const json_t *samples = json_object_get(row, "samples");
    json_int_t runs = 0;
    double least = 1e9, of_step;
    int count = 0;
    for (size_t i = 0; i < json_array_size(samples); i++) {
        const json_t *one = json_array_get(samples, i), *seconds = json_object_get(one, "seconds");
        const char *process = json_string_value(json_object_get(one, "process"));
        ck_assert_ptr_nonnull(process);
        ck_assert(!strcmp(process, k->process[0]) ||
                  (k->process[1] && !strcmp(process, k->process[1])));
        ck_assert_int_eq(json_array_size(seconds) % 3, 0);
        runs += (json_int_t)json_array_size(seconds);
        for (size_t r = 0; r < json_array_size(seconds); r++)
            least = fmin(least, json_number_value(json_array_get(seconds, r)));
    }
    ck_assert_int_ge(runs, 3);
    ck_assert_int_eq(json_integer_value(json_object_get(row, "runs")), runs);
    ck_assert(json_number_value(json_object_get(row, "seconds")) == least);
    k->of_two += json_array_size(samples) == 2;
    of_step = k->t ? step_seconds(k->t, row, &count) : 0;
    if (!of_step)
        return;
    /* one division and one product, each off by at most a half unit in the last place */
    ck_assert_double_le(fabs(least * count - of_step), 3e-16 * of_step);
    k->matched++;
    k->several += count > 1;
}

static bool look(json_t *row, void *user)
{
    kept_runs *k = user;
    const char *kind = json_string_value(json_object_get(row, "row")), *id;
    if (!strcmp(kind, "process")) { /* these come first */
        ck_assert_int_lt(k->processes, 2);
        id = json_string_value(json_object_get(row, "id"));
        ck_assert_ptr_nonnull(id);
        ck_assert_int_eq(atoi(strrchr(id, '-') + 1), (int)getpid());
        k->process[k->processes++] = strdup(id);
    } else if (!strcmp(kind, "timing") && json_integer_value(json_object_get(row, "runs"))) {
        ck_assert_str_eq(json_string_value(json_object_get(row, "how")), "step");
        k->timings++;
        check_samples(row, k);
    }
    return true;
}

static void look_at_rows(fp8c_context *ctx, kept_runs *k)
{
    edit_rows(ctx, look, k);
    for (int i = 0; i < k->processes; i++)
        free((char *)k->process[i]);
}

/* Every run of every candidate is in the database, as seconds of once; a later call has the same
 * seconds from there, and one that times again adds its runs. Of a model, and of a GEMM whose step
 * computes it several times. */
START_TEST(keeps_every_run)
{
    fp8c_context *ctx = context();
    const fp8c_compile_options compile_options = recipe("current");
    fp8c_tune_options o = {.struct_size = sizeof o, .compile = &compile_options, .runs = 3};
    fp8c_module *m = _i ? NULL : parse(ctx, model);
    o.gemm = _i ? "64x96x160:f8e4m3" : NULL;
    for (int turn = 0; turn < 3; turn++) {
        fp8c_tuning *t;
        kept_runs k = {0};
        o.again = turn == 2;
        o.only = o.again && m ? "opt.*" : NULL;
        ck_assert_msg(fp8c_tune(ctx, m, &o, &t) == FP8C_OK, "%s", fp8c_context_message(ctx));
        k.t = turn < 2 ? t : NULL;
        look_at_rows(ctx, &k);
        ck_assert_int_ge(k.timings, m ? 50 : 2);
        ck_assert_int_eq(k.processes, 1 + (turn == 2));
        ck_assert_int_eq(k.of_two > 0, turn == 2);
        ck_assert_int_le(k.of_two, k.timings - (m != NULL));
        ck_assert_int_eq(k.matched, k.t ? k.timings : 0);
        ck_assert_int_eq(k.several > 0, k.t && !m);
        fp8c_tuning_destroy(t);
    }
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
}
END_TEST

/* ---- compiles ---- */

static bool choose_other(json_t *row, void *user)
{
    static const char *const ways[] = {"unroll 2", "lanes 8", "grain -1"};
    int *n = user;
    if (strcmp(json_string_value(json_object_get(row, "row")), "choice"))
        return true;
    const bool gemm = !strncmp(json_string_value(json_object_get(row, "problem")), "gemm ", 5);
    json_object_set_new(row, "candidate",
                        json_string(gemm ? *n % 2 ? "share b" : "share a" : ways[*n % 3]));
    ++*n;
    return true;
}

typedef struct state {
    float *parameter;
    int64_t n;
    int tuned, choices;
    char message[256];
} state;

/* All parameters after a few steps, and who chose. */
static state train(fp8c_context *ctx)
{
    fp8c_module *m = parse(ctx, model);
    const fp8c_compile_options o = recipe("current");
    fp8c_program *p = compile(ctx, m, &o);
    const int step = fp8c_program_function(p, "micro_step"),
              update = fp8c_program_function(p, "update");
    state s = {0};
    fp8c_variable v;
    fp8c_choice c;
    ck_assert_int_eq(fp8c_program_initialize(p, 3), FP8C_OK);
    for (int side = 0; side < 2; side++)
        for (int i = 0; i < ROWS; i++)
            ((int32_t *)fp8c_program_buffer(p, step, FP8C_INPUT, side))[i] = (5 * i + side) % V;
    for (int i = 0; i < 4; i++) {
        ck_assert_int_eq(fp8c_program_run(p, step), FP8C_OK);
        ck_assert_int_eq(fp8c_program_run(p, update), FP8C_OK);
    }
    for (int i = 0; fp8c_program_variable(p, i, &v) == FP8C_OK; i++) {
        const int64_t n = fp8c_type_bytes(&v.type) / 4;
        if (!v.is_param)
            continue;
        s.parameter = realloc(s.parameter, (size_t)(s.n + n) * 4);
        memcpy(s.parameter + s.n, v.data, (size_t)n * 4);
        s.n += n;
    }
    for (; fp8c_program_choice(p, s.choices, &c) == FP8C_OK; s.choices++) {
        s.tuned += c.tuned;
        ck_assert_int_gt(c.count, 0);
    }
    fp8c_program_destroy(p);
    fp8c_module_destroy(m);
    return s;
}

/* Choices of the database are taken, and no bit is another. */
START_TEST(compiles_use_it)
{
    fp8c_context *ctx = context();
    const state plain = train(ctx);
    ck_assert_int_eq(plain.tuned, 0);
    ck_assert_int_eq(access(database, F_OK), -1); /* reading makes no file */
    const found f = tune(ctx);
    int n = 0;
    edit_rows(ctx, choose_other, &n);
    ck_assert_int_ge(n, f.info.problems);
    const state tuned = train(ctx);
    ck_assert_int_ge(tuned.tuned, f.info.problems);
    ck_assert_int_eq(tuned.choices, plain.choices);
    ck_assert(plain.n == tuned.n && !memcmp(plain.parameter, tuned.parameter, (size_t)plain.n * 4));
    ck_assert_str_eq(warned, "");
    free(plain.parameter);
    free(tuned.parameter);
    fp8c_context_destroy(ctx);
}
END_TEST

static bool spoil(json_t *row, void *user)
{
    static const char cublaslt[] = "cublaslt 1 tile 1 stages 1 split 1 scheme 0 swizzle 0 "
                                   "custom 0 inner 0 cluster 1",
                      *const bad[] = {"m 17", "lanes 99", "from the future", cublaslt};
    int *n = user;
    if (!strcmp(json_string_value(json_object_get(row, "row")), "choice"))
        json_object_set_new(row, "candidate", json_string(bad[(*n)++ % 4]));
    return true;
}

static bool other_device(json_t *row, void *user)
{
    (void)user;
    json_object_set_new(row, "device", json_string("cpu of somebody else, 2 threads"));
    return true;
}

/* Rows of another device, or that mean nothing here, are not used; nothing fails. */
START_TEST(rows_of_no_use)
{
    fp8c_context *ctx = context();
    int n = 0;
    tune(ctx);
    edit_rows(ctx, spoil, &n);
    ck_assert_int_gt(n, 4);
    state s = train(ctx);
    ck_assert_int_eq(s.tuned, 0);
    free(s.parameter);
    edit_rows(ctx, other_device, NULL);
    s = train(ctx);
    ck_assert_int_eq(s.tuned, 0);
    free(s.parameter);
    ck_assert_str_eq(warned, "");
    fp8c_context_destroy(ctx);
}
END_TEST

/* A compile says so and goes on; tuning fails, and the file is as it was. */
START_TEST(database_of_no_use)
{
    static const char text[] =
        "no database, for whatever reason, but more than a hundred bytes of text, which is how "
        "long the header of one is";
    fp8c_context *ctx = context();
    size_t n;
    f8_cli_write("tuning.db", text, sizeof text);
    const state s = train(ctx);
    ck_assert_int_eq(s.tuned, 0);
    ck_assert_msg(
        strstr(warned, database) &&
            strstr(warned, "this is no tuning database; the compile goes on without tuning"),
        "%s", warned);
    const found f = tune_with(ctx, &(fp8c_tune_options){0});
    ck_assert_int_eq(f.status, FP8C_ERR_IO);
    ck_assert_ptr_nonnull(
        strstr(fp8c_context_message(ctx), "tuning.db: error: this is no tuning database"));
    char *after = f8_cli_read(database, &n);
    ck_assert(n == sizeof text && !memcmp(after, text, n));
    free(after);
    free(s.parameter);
    fp8c_context_destroy(ctx);
}
END_TEST

/* ---- cut short ---- */

START_TEST(cancelled)
{
    fp8c_context *ctx = context();
    const found all = tune(ctx);
    unlink(database);
    int64_t known = 0;
    for (int i = 0; i < 3; i++) {
        asked = 0;
        most_asked = (int)all.info.problems + 8 + i; /* past the first round */
        const found f = tune_with(ctx, &(fp8c_tune_options){0});
        ck_assert_int_eq(f.status, FP8C_ERR_CANCELLED);
        ck_assert_ptr_nonnull(strstr(fp8c_context_message(ctx), "tune"));
    }
    most_asked = 0;
    const found rest = tune(ctx);
    known = rest.info.kept;
    ck_assert_int_gt(known, 0);
    ck_assert_int_lt(rest.info.timed, all.info.timed);
    const found none = tune_with(ctx, &(fp8c_tune_options){.seconds = 1e-9, .again = 1});
    ck_assert_int_eq(none.status, FP8C_OK); /* out of time at once */
    ck_assert_int_eq(none.info.timed, 0);
    ck_assert(!none.info.finished);
    fp8c_context_destroy(ctx);
}
END_TEST

/* Killed at any moment: what was timed is there, and the next goes on from it. */
START_TEST(killed)
{
    uint32_t seed = 1;
    for (int turn = 0; turn < 12; turn++) {
        const pid_t child = fork();
        if (!child) {
            fp8c_context *ctx = context();
            tune(ctx);
            _exit(0);
        }
        seed = seed * 1664525u + 1013904223u;
        usleep((seed >> 8) % 400000);
        kill(child, SIGKILL);
        int how;
        ck_assert_int_eq(waitpid(child, &how, 0), child);
    }
    fp8c_context *ctx = context();
    const found f = tune(ctx);
    ck_assert_int_gt(f.info.timed + f.info.kept, 50);
    const state s = train(ctx);
    ck_assert_str_eq(warned, "");
    ck_assert_int_eq(s.tuned, f.info.problems);
    free(s.parameter);
    fp8c_context_destroy(ctx);
}
END_TEST

/* The time is up in the middle of the first round, as the callback sleeps: nothing more is run. The
 * next call starts over. */
START_TEST(out_of_time)
{
    fp8c_context *ctx = context();
    for (int again = 0; again < 2; again++) {
        const fp8c_tune_options o = {
            .struct_size = sizeof o, .runs = 3, .seconds = again ? 0 : 0.5, .gemm = "64x64x64:f32"};
        fp8c_tuning_info info = {.struct_size = sizeof info};
        fp8c_tuning *t;
        asked = 0;
        nap = again ? 0 : 600000;
        ck_assert_msg(fp8c_tune(ctx, NULL, &o, &t) == FP8C_OK, "%s", fp8c_context_message(ctx));
        fp8c_tuning_report(t, &info);
        ck_assert_int_eq(info.finished, again);
        ck_assert_int_eq(info.timed > 0, again);
        ck_assert_int_eq(info.problems, 1);
        ck_assert_int_eq(asked > 4, again);
        fp8c_tuning_destroy(t);
    }
    fp8c_context_destroy(ctx);
}
END_TEST

/* ---- options, one GEMM, the command line ---- */

START_TEST(bad_options)
{
    fp8c_context *ctx = context();
    const fp8c_context_options none = {.struct_size = sizeof none, .tuning = ""};
    fp8c_context *without;
    fp8c_module *m = parse(ctx, model);
    fp8c_tuning *t;
    struct {
        fp8c_tune_options o;
        fp8c_compile_options c;
        const char *why;
    } bad[] = {{.o.runs = 65, .why = "runs: 65 is not from 0 to 64"},
               {.o.runs = -1, .why = "runs: -1 is not from 0 to 64"},
               {.o.seconds = -1, .why = "seconds: -1"},
               {.c.target = "reference", .why = "target reference has nothing to tune"},
               {.c.plan_only = 1, .why = "tuning needs the device"},
               {.o.only = "*", .o.kernels = "*", .why = "give one of them"},
               {.c.target = "nonsense", .why = "no target 'nonsense'"},
               {.o.database = "/proc/nothing/tuning.db", .why = "unable to open database file"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        bad[i].o.struct_size = sizeof bad[i].o;
        bad[i].c.struct_size = sizeof bad[i].c;
        bad[i].o.compile = &bad[i].c;
        t = (fp8c_tuning *)m;
        ck_assert_int_ne(fp8c_tune(ctx, m, &bad[i].o, &t), FP8C_OK);
        ck_assert_ptr_null(t);
        ck_assert_msg(strstr(fp8c_context_message(ctx), bad[i].why) != NULL, "%s",
                      fp8c_context_message(ctx));
    }
    static const char *const gemms[] = {
        "",           "1x2x3",      "1x2:f32",    "0x2x3:f32",           "1x2x3:f64",
        "1x2x3:f32x", "-1x2x3:f32", "1 x2x3:f32", "99999999999x1x1:f32", "1x2x3x4:f32"};
    for (size_t i = 0; i < sizeof gemms / sizeof *gemms; i++) {
        const fp8c_tune_options o = {.struct_size = sizeof o, .gemm = gemms[i]};
        ck_assert_int_eq(fp8c_tune(ctx, NULL, i ? &o : NULL, &t), FP8C_ERR_INPUT);
        ck_assert_ptr_nonnull(strstr(fp8c_context_message(ctx), "is not MxNxK:FORMAT"));
    }
    const fp8c_tune_options two = {.struct_size = sizeof two, .gemm = "1,2x3x4:f32"};
    ck_assert_int_eq(fp8c_tune(ctx, NULL, &two, &t), FP8C_ERR_INPUT);
    ck_assert_ptr_nonnull(strstr(fp8c_context_message(ctx), "are 2 GEMMs; one call tunes one"));
    fp8c_module_destroy(m);
    ck_assert_int_eq(fp8c_context_create(&none, &without), FP8C_OK);
    const fp8c_tune_options small = {.struct_size = sizeof small, .gemm = "16x16x16:f32"};
    ck_assert_int_eq(fp8c_tune(without, NULL, &small, &t), FP8C_ERR_INPUT);
    ck_assert_ptr_nonnull(
        strstr(fp8c_context_message(without), "no tuning database: none was named"));
    fp8c_cache_info info = {.struct_size = sizeof info, .tuning = "unset"};
    ck_assert_int_eq(fp8c_context_cache(without, &info), FP8C_OK);
    ck_assert_ptr_null(info.tuning);
    fp8c_context_destroy(without);
    fp8c_tuning_destroy(NULL);
    fp8c_context_destroy(ctx);
}
END_TEST

/* Any allocation may fail: a message and a status, nothing is left. */
START_TEST(no_memory)
{
    long all = 0;
    int failed = 0;
    for (long at = 0; at <= all; at += 1 + at / 8) {
        counting c = {.fail_at = at ? at : LONG_MAX};
        const fp8c_context_options o = counted_options(&c);
        const fp8c_tune_options tune_options = {
            .struct_size = sizeof tune_options, .runs = 1, .again = 1, .gemm = "32x32x32:f8e4m3"};
        fp8c_context *ctx;
        fp8c_tuning *t = NULL;
        if (fp8c_context_create(&o, &ctx) == FP8C_OK) {
            const fp8c_status status = fp8c_tune(ctx, NULL, &tune_options, &t);
            ck_assert_msg(status == FP8C_OK || status == FP8C_ERR_MEMORY, "%ld: %d: %s", at, status,
                          fp8c_context_message(ctx));
            ck_assert((status == FP8C_OK) == (t != NULL));
            failed += status != FP8C_OK;
            fp8c_tuning_destroy(t);
            fp8c_context_destroy(ctx);
        }
        ck_assert_msg(c.live == 0, "%ld: %ld are left", at, c.live);
        all = at ? all : c.n;
    }
    ck_assert_int_gt(failed, 10);
}
END_TEST

START_TEST(one_gemm)
{
    static const char *const gemms[] = {"64x96x160:f32", "64x96x160:bf16", "64x96x160:f8e4m3",
                                        "33x7x65:f8e5m2"};
    fp8c_context *ctx = context();
    for (size_t i = 0; i < sizeof gemms / sizeof *gemms; i++) {
        const fp8c_tune_options o = {.struct_size = sizeof o, .runs = 2, .gemm = gemms[i]};
        fp8c_tuning *t;
        fp8c_tuned x;
        char start[64];
        ck_assert_msg(fp8c_tune(ctx, NULL, &o, &t) == FP8C_OK, "%s", fp8c_context_message(ctx));
        ck_assert_int_eq(fp8c_tuning_problem(t, 0, &x), FP8C_OK);
        snprintf(start, sizeof start, "gemm %.*s %s x ", (int)strcspn(gemms[i], ":"), gemms[i],
                 strchr(gemms[i], ':') + 1);
        ck_assert_msg(!strncmp(x.problem, start, strlen(start)), "%s", x.problem);
        ck_assert_int_gt(x.count, 1); /* operands enough that none stays in a cache */
        ck_assert_int_eq(fp8c_tuning_problem(t, 1, &x), FP8C_ERR_INPUT);
        fp8c_tuning_destroy(t);
    }
    fp8c_context_destroy(ctx);
}
END_TEST

START_TEST(command_line)
{
    const char *file = f8_cli_write("tiny.f8", model, strlen(model));
    f8_cli_result r =
        F8_CLI("tune", file, "--recipe", "current", "--runs", "1", "--json", "-", "--threads", "1");
    f8_cli_ok(r);
    ck_assert_ptr_nonnull(strstr(r.out, "{\"event\":\"tune\",\"problem\":\"gemm "));
    ck_assert_ptr_nonnull(strstr(r.out, "{\"event\":\"tuned\",\"device\":\"cpu "));
    r = F8_CLI("tune", file, "--recipe", "current", "--runs", "1", "--threads", "1");
    f8_cli_ok(r);
    ck_assert_ptr_nonnull(strstr(r.out, " 0 candidates timed, "));
    r = F8_CLI("explain", file, "--recipe", "current", "--threads", "1");
    f8_cli_ok(r);
    ck_assert_ptr_nonnull(strstr(r.out, "tuned: "));
    ck_assert_ptr_nonnull(strstr(r.out, database));
    const char *rows = f8_cli_temp("rows.jsonl");
    r = F8_CLI("tune", "--export", rows);
    f8_cli_ok(r);
    ck_assert_ptr_nonnull(strstr(r.out, " choices written"));
    f8_cli_ok(F8_CLI("tune", "--import", rows, "--database", f8_cli_temp("second.db")));
    f8_cli_ok(
        F8_CLI("tune", "--merge", f8_cli_temp("second.db"), "--merge", f8_cli_temp("second.db")));
    r = F8_CLI("tune", "--gemm", "16x16x16:f32", "--runs", "1", "--processes", "1");
    f8_cli_ok(r);
    ck_assert_msg(!strncmp(r.out, "16x16x16:f32\ncache ", 19), "%s", r.out);
    ck_assert_msg(strstr(r.out, "\ncold: 1 of 1 GEMMs timed, ") != NULL, "%s", r.out);
    f8_cli_fails(F8_CLI("tune"), 2,
                 "give either FILE.f8, or --gemm, --gemm-file and --suite, or some of --export, "
                 "--import and --merge");
    f8_cli_fails(F8_CLI("tune", file, "--gemm", "1x1x1:f32"), 2, "give either FILE.f8");
    f8_cli_fails(F8_CLI("tune", "--gemm", "1x1:f32"), 1, "is not MxNxK:FORMAT");
    f8_cli_fails(F8_CLI("tune", "--import", f8_cli_temp("none")), 1, "No such file");
    f8_cli_write("tuning.db", "x", 1);
    f8_cli_fails(F8_CLI("tune", "--gemm", "16x16x16:f32"), 1, "this is no tuning database");
    f8_cli_write("broken.f8", "module", 6);
    f8_cli_fails(F8_CLI("tune", f8_cli_temp("broken.f8")), 1, "error");
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("tune");
    TCase *t = tcase_create("tune");
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_checked_fixture(t, setup, f8_cli_teardown);
    tcase_add_test(t, nothing_there);
    tcase_add_test(t, times_once);
    tcase_add_loop_test(t, keeps_every_run, 0, 2);
    tcase_add_test(t, compiles_use_it);
    tcase_add_test(t, rows_of_no_use);
    tcase_add_test(t, database_of_no_use);
    tcase_add_test(t, cancelled);
    tcase_add_test(t, killed);
    tcase_add_test(t, out_of_time);
    tcase_add_test(t, bad_options);
    tcase_add_test(t, no_memory);
    tcase_add_test(t, one_gemm);
    tcase_add_test(t, command_line);
    suite_add_tcase(s, t);
    return s;
}
