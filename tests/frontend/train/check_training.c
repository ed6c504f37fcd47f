/* A training without the command, by fp8c_train.h: the losses and the folder of `fp8c train`, a run
 * that goes on from the command's folder and the command from its, what the caller hears, a caller
 * and a guard that end it, and what is refused; the options of the command are those of a training.
 */
#include <jansson.h>
#include <math.h>

#include "frontend/cli/cli.h"
#include "frontend/fp8c_train.h"
#include "frontend/train/spread.h"
#include "tests/shared/api/train_case.h"
#include "tests/shared/suite.h"

enum { STEPS = 8 };

static fp8c_context *ctx;
static fp8c_module *module;

static struct {
    char said[4000];
    int records, steps, evals, warnings, stats;
    int32_t stop;
    int asked, stop_from; /* stop_from: stops when it is asked for that time, from 1; 0: never */
} heard;

static void say(void *user, const char *text)
{
    (void)user;
    strncat(heard.said, text, sizeof heard.said - strlen(heard.said) - 2);
    strcat(heard.said, "\n");
}

static void record(void *user, const char *text)
{
    (void)user;
    json_t *r = json_loads(text, 0, NULL);
    ck_assert_msg(r != NULL, "no JSON: %s", text);
    const char *event = json_string_value(json_object_get(r, "event"));
    heard.records++;
    heard.steps += !strcmp(event, "step");
    heard.evals += !strcmp(event, "eval");
    heard.warnings += !strcmp(event, "warning");
    heard.stats += !strcmp(event, "stats");
    json_decref(r);
}

static int32_t stop(void *user)
{
    (void)user;
    heard.asked++;
    return heard.stop || (heard.stop_from && heard.asked >= heard.stop_from);
}

/* The model with other dims. */
static fp8c_module *parse(fp8c_context *in, const fp8c_dim *dims, size_t n_dims)
{
    fp8c_module *m;
    size_t n;
    char *text = f8_cli_read(file, &n);
    ck_assert_int_eq(fp8c_module_parse(in, text, n, file, dims, n_dims, &m), FP8C_OK);
    free(text);
    return m;
}

static void setup(void)
{
    train_setup("lr = 1e-2, schedule = \"cosine\", min_lr = 0.1");
    ck_assert_int_eq(fp8c_context_create(NULL, &ctx), FP8C_OK);
    module = parse(ctx, NULL, 0);
    memset(&heard, 0, sizeof heard);
}

static void teardown(void)
{
    fp8c_module_destroy(module);
    fp8c_context_destroy(ctx);
    train_teardown();
}

static const fp8c_compile_options delayed = {
    .struct_size = sizeof delayed, .recipe = "delayed", .threads = 1};

/* Options for STEPS steps on the text. */
static fp8c_training_options options(void)
{
    static const char *const files[] = {data};
    return (fp8c_training_options){.struct_size = sizeof(fp8c_training_options),
                                   .compile = &delayed,
                                   .data = files,
                                   .n_data = 1,
                                   .steps = STEPS,
                                   .seed = 1,
                                   .say = say,
                                   .record = record,
                                   .stop = stop};
}

static fp8c_training *create(const fp8c_training_options *o, fp8c_module *of)
{
    fp8c_training *t;
    ck_assert_msg(fp8c_training_create(ctx, of, o, &t) == FP8C_OK, "%s", fp8c_context_message(ctx));
    return t;
}

/* Runs all steps that are left, into `loss` by their number, and ends. Returns how many. */
static int run_all(fp8c_training *t, double loss[STEPS + 1])
{
    fp8c_training_step s = {.struct_size = sizeof s};
    int n = 0;
    for (;; n++) {
        ck_assert_msg(fp8c_training_run(t, &s) == FP8C_OK, "%s", fp8c_context_message(ctx));
        if (!s.step)
            break;
        ck_assert(s.step <= STEPS && s.steps == STEPS);
        loss[s.step] = s.loss;
    }
    ck_assert_msg(fp8c_training_end(t) == FP8C_OK, "%s", fp8c_context_message(ctx));
    return n;
}

/* The losses that steps.jsonl of a folder has, to the bit. Returns how many. */
static int losses_of(const char *of, double loss[STEPS + 1])
{
    size_t n;
    char *all = f8_cli_read(in(of, "steps.jsonl"), &n), *save;
    int steps = 0;
    for (char *line = strtok_r(all, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        json_t *r = json_loads(line, 0, NULL);
        if (!strcmp(json_string_value(json_object_get(r, "event")), "step")) {
            loss[json_integer_value(json_object_get(r, "step"))] =
                strtod(json_string_value(json_object_get(r, "loss_hex")), NULL);
            steps++;
        }
        json_decref(r);
    }
    free(all);
    return steps;
}

static void by_command(const char *where)
{
    f8_cli_ok(F8_CLI("train", file, "--data", data, "--recipe", "delayed", "--steps", "8", "--run",
                     where, "--threads", "1"));
}

static void same_file(const char *name)
{
    size_t n[2];
    char *a = f8_cli_read(in(straight, name), &n[0]), *b = f8_cli_read(in(folder, name), &n[1]);
    ck_assert_msg(n[0] == n[1] && !memcmp(a, b, n[0]), "%s differs", name);
    free(a);
    free(b);
}

/* ---- beside the command ---- */

START_TEST(bits_of_the_command)
{
    double theirs[STEPS + 1] = {0}, own[STEPS + 1] = {0};
    fp8c_training_options o = options();
    fp8c_training_result result = {.struct_size = sizeof result};
    o.run = folder;
    by_command(straight);
    fp8c_training *t = create(&o, module);
    ck_assert_int_eq(run_all(t, own), STEPS);
    fp8c_training_report(t, &result);
    fp8c_training_destroy(t);
    ck_assert_int_eq(losses_of(straight, theirs), STEPS);
    ck_assert_mem_eq(theirs, own, sizeof own);
    ck_assert(own[1] != own[STEPS] && own[STEPS] > 0);
    for (int i = 1; i <= 2; i++)
        same_file(i == 1 ? "module.f8" : "source.f8");
    same_file("checkpoint-8.safetensors");
    same_file("decisions.jsonl");
    same_file("plan.json");
    ck_assert(result.done == STEPS && result.begun_at == 0 && result.skipped == 0);
    ck_assert(result.fp8_gemms > 0 && result.items_per_second > 0 && result.heldout_loss > 0);
    double mean = 0;
    for (int i = STEPS / 2 + 1; i <= STEPS; i++)
        mean += own[i] / (STEPS / 2);
    ck_assert_double_eq_tol(result.final_loss, mean, 1e-12);
    ck_assert(heard.steps == STEPS && !heard.warnings && !*heard.said);
}
END_TEST

/* Begins here, goes on in the command, and the other way round. */
START_TEST(goes_on_by_the_command)
{
    double first[STEPS + 1] = {0}, all[STEPS + 1] = {0};
    fp8c_training_options o = options();
    o.run = folder;
    o.stop_at = 3;
    by_command(straight);
    fp8c_training *t = create(&o, module);
    ck_assert_int_eq(run_all(t, first), 3);
    fp8c_training_destroy(t);
    f8_cli_ok(F8_CLI("train", "--resume", folder));
    losses_of(folder, all);
    ck_assert_mem_eq(&all[1], &first[1], 3 * sizeof *all);
    same_file("checkpoint-8.safetensors");
}
END_TEST

START_TEST(goes_on_with_the_command)
{
    double all[STEPS + 1] = {0}, own[STEPS + 1] = {0};
    const fp8c_training_options resume = {
        .struct_size = sizeof resume, .resume = folder, .say = say};
    by_command(straight);
    f8_cli_ok(F8_CLI("train", file, "--data", data, "--recipe", "delayed", "--steps", "8", "--run",
                     folder, "--stop-at", "5", "--threads", "1"));
    fp8c_training *t = create(&resume, NULL);
    ck_assert_int_eq(run_all(t, own), STEPS - 5);
    fp8c_training_destroy(t);
    losses_of(folder, all);
    ck_assert_mem_eq(&all[6], &own[6], 3 * sizeof *all);
    same_file("checkpoint-8.safetensors");
    /* a run that has all its steps has none left */
    t = create(&resume, NULL);
    ck_assert_int_eq(run_all(t, own), 0);
    fp8c_training_destroy(t);
    ck_assert_str_eq(heard.said, "");
    f8_cli_ok(F8_CLI("report", folder, "-o", f8_cli_temp("page.html")));
}
END_TEST

/* The folder has the dims and rules that the text was given: ranks that go on parse it again. */
START_TEST(keeps_dims_and_rules)
{
    double own[STEPS + 1];
    char *name = strdup("B");
    const fp8c_dim dims[] = {{name, 4}};
    fp8c_module *wide = parse(ctx, dims, 1);
    fp8c_training_options o = options();
    free(name);
    ck_assert_int_eq(fp8c_module_rule(wide, "\"head\" wgrad = bf16", "test"), FP8C_OK);
    o.run = folder;
    o.stop_at = 3;
    fp8c_training *t = create(&o, wide);
    fp8c_module_destroy(wide);
    ck_assert_int_eq(run_all(t, own), 3);
    fp8c_training_destroy(t);
    size_t n;
    char *text = f8_cli_read(in(folder, "run.json"), &n);
    json_t *all = json_loadb(text, n, 0, NULL), *of = json_object_get(all, "resolved");
    free(text);
    const json_t *with = json_object_get(of, "-D"), *rules = json_object_get(of, "--rule");
    ck_assert(json_object_size(with) == 1 && json_integer_value(json_object_get(with, "B")) == 4);
    ck_assert_uint_eq(json_array_size(rules), 1);
    const char *rule = json_string_value(json_array_get(rules, 0));
    ck_assert_int_eq(fp8c_module_rule(module, rule, "test"), FP8C_OK);
    json_decref(all);
    f8_cli_ok(F8_CLI("train", "--resume", folder));
}
END_TEST

/* ---- what the caller hears ---- */

START_TEST(records)
{
    double own[STEPS + 1];
    fp8c_compile_options compile = delayed;
    fp8c_training_options o = options();
    compile.stats = "*";
    o.compile = &compile;
    o.every = 4;
    o.eval_every = 2;
    fp8c_training *t = create(&o, module);
    run_all(t, own);
    fp8c_training_destroy(t);
    ck_assert_int_eq(heard.steps, STEPS);
    ck_assert_int_eq(heard.evals, STEPS / 2);
    ck_assert(heard.stats > 0 && heard.stats % 3 == 0); /* steps 1, 4 and 8 */
}
END_TEST

START_TEST(caller_stops)
{
    fp8c_training_step s = {.struct_size = sizeof s};
    fp8c_training_options o = options();
    double rest[STEPS + 1];
    o.run = folder;
    fp8c_training *t = create(&o, module);
    ck_assert_int_eq(fp8c_training_run(t, &s), FP8C_OK);
    ck_assert_int_eq(s.step, 1);
    heard.stop = 1;
    ck_assert_int_eq(fp8c_training_run(t, &s), FP8C_OK);
    ck_assert_int_eq(s.step, 0);
    ck_assert_int_eq(fp8c_training_end(t), FP8C_OK);
    ck_assert_int_eq(fp8c_training_end(t), FP8C_OK);
    fp8c_training_destroy(t);
    ck_assert(there(folder, "checkpoint-1.safetensors"));
    heard.stop = 0;
    o = options();
    o.run = NULL;
    o.resume = folder;
    t = create(&o, module);
    ck_assert_int_eq(run_all(t, rest), STEPS - 1);
    fp8c_training_destroy(t);
    by_command(straight);
    same_file("checkpoint-8.safetensors");
}
END_TEST

/* Whenever it is stopped while it is created, there is a training without steps, or none and a
 * message. */
START_TEST(stopped_before_its_first_step)
{
    fp8c_compile_options compile = delayed;
    fp8c_training_options o = options();
    fp8c_training_step s = {.struct_size = sizeof s};
    int none = 0;
    compile.recipe = "auto";
    o.compile = &compile;
    o.calibrate = 3;
    for (heard.stop_from = 1; s.step != 1; heard.stop_from++) {
        fp8c_training *t;
        heard.asked = 0;
        f8_cli_forget(folder);
        o.run = folder;
        const fp8c_status status = fp8c_training_create(ctx, module, &o, &t);
        if (status == FP8C_OK) {
            ck_assert_ptr_nonnull(fp8c_training_program(t));
            ck_assert_int_eq(fp8c_training_run(t, &s), FP8C_OK);
            ck_assert_int_eq(fp8c_training_end(t), FP8C_OK);
            fp8c_training_destroy(t);
            continue;
        }
        ck_assert_int_eq(status, FP8C_ERR_CANCELLED);
        ck_assert_ptr_null(t);
        ck_assert_str_eq(fp8c_context_message(ctx),
                         "the training was stopped before its first step");
        ck_assert(!there(folder, "run.json"));
        none++;
    }
    ck_assert_int_ge(none, 4);
}
END_TEST

/* Wherever it is stopped, the held-out loss is that after its step, or there is none. */
START_TEST(stopped_while_it_evaluates)
{
    fp8c_training_options o = options();
    fp8c_training_step s = {.struct_size = sizeof s};
    double loss[4] = {0};
    int without = 0;
    o.eval_every = 1;
    o.steps = 3;
    for (int from = 0; from == 0 || heard.asked >= from; from++) {
        heard.stop_from = from ? from + 4 : 0; /* after what creates it has asked */
        heard.asked = 0;
        fp8c_training *t = create(&o, module);
        for (;;) {
            ck_assert_int_eq(fp8c_training_run(t, &s), FP8C_OK);
            if (!s.step)
                break;
            if (!from)
                loss[s.step] = s.heldout_loss;
            without += isnan(s.heldout_loss);
            ck_assert(isnan(s.heldout_loss) ? from : s.heldout_loss == loss[s.step]);
        }
        fp8c_training_destroy(t);
    }
    ck_assert(loss[1] > 0 && loss[1] != loss[2] && loss[2] != loss[3]);
    ck_assert_int_ge(without, 3);
}
END_TEST

START_TEST(guard_ends_it)
{
    fp8c_training_step s = {.struct_size = sizeof s};
    fp8c_compile_options compile = delayed;
    fp8c_training_options o = options();
    fp8c_status status = FP8C_OK;
    compile.lr = 1e30;
    o.compile = &compile;
    o.steps = 40;
    o.guard = "stop";
    o.run = folder;
    fp8c_training *t = create(&o, module);
    while (status == FP8C_OK && (status = fp8c_training_run(t, &s)) == FP8C_OK)
        ck_assert(s.step > 0 && s.step < 40);
    ck_assert_int_eq(status, FP8C_ERR_CANCELLED);
    ck_assert(s.step > 1 && s.alarms > 0 && heard.warnings > 0);
    ck_assert_msg(strstr(fp8c_context_message(ctx), "the guard ended the run: the "), "%s",
                  fp8c_context_message(ctx));
    ck_assert_int_eq(fp8c_training_run(t, &s), FP8C_ERR_CANCELLED);
    ck_assert_int_eq(fp8c_training_end(t), FP8C_ERR_CANCELLED);
    ck_assert_int_eq(fp8c_training_end(t), FP8C_ERR_CANCELLED);
    fp8c_training_destroy(t);
    ck_assert(there(folder, "checkpoint-0.safetensors"));
    const f8_cli_result r = F8_CLI("triage", folder);
    ck_assert_msg(r.code == 0 && strstr(r.out, "verdict:"), "%s%s", r.out, r.err);
}
END_TEST

/* What was saved since the first bad step is set aside, also without an end. */
START_TEST(guard_sets_aside)
{
    fp8c_training_step s = {.struct_size = sizeof s};
    fp8c_compile_options compile = {.struct_size = sizeof compile, .recipe = "f32", .lr = 300};
    fp8c_training_options o = options();
    fp8c_status status = FP8C_OK;
    char name[60];
    o.compile = &compile;
    o.steps = 60;
    o.guard = "stop";
    o.run = folder;
    o.save_every = 1;
    fp8c_training *t = create(&o, module);
    while (status == FP8C_OK)
        status = fp8c_training_run(t, &s);
    ck_assert_int_eq(status, FP8C_ERR_CANCELLED);
    fp8c_training_destroy(t);
    snprintf(name, sizeof name, "checkpoint-%d.safetensors", (int)s.step - 1);
    ck_assert_msg(!there(folder, name), "the alarm of step %d: %s", (int)s.step,
                  fp8c_context_message(ctx));
    strcat(name, ".suspect");
    ck_assert(there(folder, name));
}
END_TEST

/* Without its end the folder has what was saved on the way. */
START_TEST(destroyed_without_an_end)
{
    fp8c_training_options o = options();
    o.run = folder;
    o.save_every = 2;
    fp8c_training *t = create(&o, module);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(fp8c_training_run(t, NULL), FP8C_OK);
    ck_assert_ptr_nonnull(fp8c_training_program(t));
    fp8c_training_destroy(t);
    fp8c_training_destroy(NULL);
    ck_assert(there(folder, "checkpoint-2.safetensors") &&
              !there(folder, "checkpoint-3.safetensors"));
    by_command(straight);
    f8_cli_ok(F8_CLI("train", "--resume", folder));
    same_file("checkpoint-8.safetensors");
}
END_TEST

/* ---- what is refused ---- */

static void refused(const char *what, fp8c_status status, fp8c_module *of,
                    const fp8c_training_options *o)
{
    fp8c_training *t;
    ck_assert_int_eq(fp8c_training_create(ctx, of, o, &t), status);
    ck_assert_ptr_null(t);
    ck_assert_msg(strstr(fp8c_context_message(ctx), what), "%s: %s", what,
                  fp8c_context_message(ctx));
    struct stat s;
    ck_assert(stat(folder, &s) != 0);
}

START_TEST(bad_options)
{
    fp8c_compile_options compile = delayed;
    fp8c_training_options o = options(), good = o;
    refused("a module is needed", FP8C_ERR_INPUT, NULL, &o);
#define BAD(what, ...)                                                                             \
    o = good;                                                                                      \
    compile = delayed;                                                                             \
    o.compile = &compile;                                                                          \
    o.run = folder;                                                                                \
    __VA_ARGS__;                                                                                   \
    refused(what, FP8C_ERR_INPUT, module, &o)
    BAD("struct_size", o.struct_size = 3);
    BAD("data or batches", o.n_data = 0);
    BAD("run or resume", o.run = NULL, o.stop_at = 3);
    BAD("one of the two", o.resume = folder);
    BAD("below 0", o.save_every = -1);
    BAD("off, warn or stop", o.guard = "triage");
    BAD("--guard loud", o.guard = "loud");
    BAD("--dump-steps", compile.dump = "*");
    BAD("--stats PATTERN", o.every = 3);
    BAD("no compile option 'pair'", compile.pair = 1);
    BAD("no compile option 'external'", compile.external = "*");
    BAD("steps", compile.optimizer_steps = 9);
    BAD("one process trains", compile.zero = 1);
    BAD("2^63 - 1", o.seed = UINT64_MAX);
    BAD("recipe", compile.recipe = "delaid");
    BAD("cpux", compile.target = "cpux");
    BAD("one process trains", compile.reduce_dtype = "f32");
    BAD("u16, u32 or bytes", o.tokens = "u8");
    const char *const none[] = {NULL};
    BAD("data[0] is NULL", o.data = none);
    BAD("data[0] is NULL", o.data = NULL);
    BAD("batches[0] is NULL", o.n_data = 0, o.batches = none, o.n_batches = 1);
    BAD("validation[0] is NULL", o.validation = none, o.n_validation = 1);
    BAD("dump needs a folder", o.run = NULL, compile.dump = "*", o.dump_steps = "1:1");
    BAD("save_every needs a folder", o.run = NULL, o.save_every = 1);
    fp8c_context *other;
    ck_assert_int_eq(fp8c_context_create(NULL, &other), FP8C_OK);
    fp8c_module *theirs = parse(other, NULL, 0);
    o = good;
    refused("the module is of another context", FP8C_ERR_INPUT, theirs, &o);
    fp8c_module_destroy(theirs);
    fp8c_context_destroy(other);
}
END_TEST

START_TEST(bad_files)
{
    const char *missing[] = {"nowhere"};
    fp8c_training_options o = options();
    o.run = folder;
    o.data = missing;
    refused("nowhere: error: ", FP8C_ERR_IO, module, &o);
    o = options();
    o.run = in(folder, "\xff");
    refused("\xff: error: the path is not UTF-8", FP8C_ERR_INPUT, module, &o);
    missing[0] = "nowhere\xff";
    o.run = folder;
    o.data = missing;
    refused("nowhere\xff: error: the path is not UTF-8", FP8C_ERR_INPUT, module, &o);
    o = options();
    o.resume = folder;
    refused("No such file", FP8C_ERR_IO, module, &o);
}
END_TEST

/* What a run that is there says of another seed, data and model. */
START_TEST(bad_resume)
{
    fp8c_training *t;
    double own[STEPS + 1];
    fp8c_training_options o = options();
    o.run = straight;
    o.stop_at = 2;
    t = create(&o, module);
    run_all(t, own);
    fp8c_training_destroy(t);
    o.run = NULL;
    o.resume = straight;
    o.seed = 5;
    refused("--seed is 5, and the run has 1", FP8C_ERR_INPUT, module, &o);
    o = options();
    o.run = straight;
    refused("a new run needs an empty folder", FP8C_ERR_INPUT, module, &o);
    ck_assert_int_eq(fp8c_module_rule(module, "\"up\" = bf16", "test"), FP8C_OK);
    o.run = NULL;
    o.resume = straight;
    refused("the model is not that of the run", FP8C_ERR_INPUT, module, &o);
}
END_TEST

/* ---- several seeds ---- */

START_TEST(spreads)
{
    const f8_train_result base[] = {{.final_loss = 2, .heldout_loss = 4, .items_per_second = 10},
                                    {.final_loss = 4, .heldout_loss = 8, .items_per_second = 30}};
    const f8_train_result own[] = {{.final_loss = 3, .heldout_loss = NAN}, {.final_loss = 3}};
    f8_spreads s = f8_spreads_of(base, base, 2);
    ck_assert(s.final_loss.mean == 3 && s.heldout_loss.mean == 6 && s.items_per_second.mean == 20);
    ck_assert_double_eq_tol(s.final_loss.deviation, sqrt(2), 1e-15);
    ck_assert(!s.inside && s.gap.mean == 0);
    s = f8_spreads_of(own, base, 2); /* the gaps are 1/2 and -1/4 */
    ck_assert(s.gap.mean == 0.125 && s.inside && isnan(s.heldout_loss.mean));
    ck_assert_double_eq_tol(s.gap.deviation, 0.375 * sqrt(2), 1e-15);
    s = f8_spreads_of(own, base, 1);
    ck_assert(s.gap.mean == 0.5 && s.gap.deviation == 0 && !s.inside);
}
END_TEST

/* ---- the tables ---- */

/* The command's options of a training have their names. */
START_TEST(names_of_options)
{
    int n = 0;
    const char *const names[] = {
#define TRAINS(name) name,
#define OWN(name)
#define ALSO "\0"
#define OPTION(field, name, argument, kind, on, where, unused, help) where(name)
#define OTHER_HELP(field, name, argument, on, help)
#include "frontend/cli/options.def"
#undef OPTION
#undef OTHER_HELP
#undef ALSO
    };
    const char *const own[] = {
#define OPTION(field, name, kind, sets, goes_on, ranks, folder, api) name,
#include "frontend/train/options.def"
#undef OPTION
    };
    ck_assert_uint_eq(sizeof names, sizeof own);
    for (; n < F8_TRAIN_OPTIONS; n++)
        ck_assert_str_eq(names[n], own[n]);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("training");
    TCase *t = tcase_create("training");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 120);
    tcase_add_test(t, bits_of_the_command);
    tcase_add_test(t, goes_on_by_the_command);
    tcase_add_test(t, goes_on_with_the_command);
    tcase_add_test(t, keeps_dims_and_rules);
    tcase_add_test(t, records);
    tcase_add_test(t, caller_stops);
    tcase_add_test(t, stopped_before_its_first_step);
    tcase_add_test(t, stopped_while_it_evaluates);
    tcase_add_test(t, guard_ends_it);
    tcase_add_test(t, guard_sets_aside);
    tcase_add_test(t, destroyed_without_an_end);
    tcase_add_test(t, bad_options);
    tcase_add_test(t, bad_files);
    tcase_add_test(t, bad_resume);
    tcase_add_test(t, spreads);
    tcase_add_test(t, names_of_options);
    suite_add_tcase(s, t);
    return s;
}
