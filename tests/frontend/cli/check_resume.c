/* `fp8c train --run` and `--resume`: a run that was stopped and went on has the bits of one that
 * never stopped, whatever it was stopped by; and what can't go on is refused with nothing
 * changed. */
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "tests/shared/api/train_case.h"
#include "tests/shared/random.h"
#include "tests/shared/suite.h"

enum { TIMEOUT = 300 };

static void setup(void)
{
    /* the rate follows a schedule that has an end */
    train_setup("lr = 1e-2, schedule = \"cosine\", min_lr = 0.1");
}

/* ---- what a folder holds ---- */

static const char *checkpoint(int step)
{
    static char name[2][60];
    static int turn;
    turn = !turn;
    snprintf(name[turn], sizeof name[turn], "checkpoint-%d.safetensors", step);
    return name[turn];
}

static json_t *load(const char *name)
{
    json_t *value = json_load_file(in(folder, name), 0, NULL);
    ck_assert_msg(value != NULL, "%s is not JSON", name);
    return value;
}

/* The bits of losses and gradient norms, a step a line; *checksums: how many records have one. */
static char *bits(const char *of, int *checksums)
{
    size_t n, size;
    char *all = f8_cli_read(in(of, "steps.jsonl"), &n), *text, *save;
    FILE *to = open_memstream(&text, &size);
    int steps = 0;
    *checksums = 0;
    ck_assert(n > 0 && all[n - 1] == '\n');
    for (char *line = strtok_r(all, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        json_t *record = json_loads(line, 0, NULL);
        ck_assert_msg(record != NULL, "no JSON: %s", line);
        const char *event = json_string_value(json_object_get(record, "event"));
        if (!strcmp(event, "step")) {
            const char *loss = json_string_value(json_object_get(record, "loss_hex")),
                       *norm = json_string_value(json_object_get(record, "grad_norm_hex"));
            ck_assert_int_eq(json_integer_value(json_object_get(record, "step")), ++steps);
            ck_assert(loss && norm);
            ck_assert(strtod(loss, NULL) == json_real_value(json_object_get(record, "loss")));
            *checksums += json_object_get(record, "checksum") != NULL;
            fprintf(to, "%d %s %s\n", steps, loss, norm);
        } else {
            fprintf(to, "%s %s\n", event, line);
        }
        json_decref(record);
    }
    fclose(to);
    free(all);
    return text;
}

static void same_file(const char *name)
{
    size_t n, want_n;
    char *want = f8_cli_read(in(straight, name), &want_n), *got = f8_cli_read(in(folder, name), &n);
    ck_assert_msg(n == want_n && !memcmp(got, want, n), "%s differs", name);
    free(want);
    free(got);
}

/* The run has the state and the records of the straight one after `steps` steps. */
static void same_run(int steps)
{
    int sums;
    char *want = bits(straight, &sums), *got = bits(folder, &sums);
    ck_assert_str_eq(got, want);
    free(want);
    free(got);
    same_file(checkpoint(steps));
    same_file("module.f8");
    same_file("decisions.jsonl");
}

static void says(f8_cli_result r, int code, const char *words)
{
    ck_assert_msg(r.code == code, "exit %d, not %d: %s", r.code, code, r.err);
    ck_assert_msg(strstr(r.err, words) || strstr(r.out, words), "'%s' is not in: %s%s", words,
                  r.err, r.out);
    f8_cli_whole(folder);
}

/* The mean loss of a table: its line after the first, up to the rates. */
static void losses_of(f8_cli_result r, char to[60])
{
    const char *line = strchr(r.out, '\n');
    ck_assert_msg(r.code == 0 && line, "exit %d: %s", r.code, r.err);
    snprintf(to, 60, "%.38s", line + 1);
}

/* ---- bit for bit ---- */

/* 20 steps at once, and as 7 and 13. `more`: further arguments. */
static void halves(const char *recipe, const char *const *more)
{
    char want[60], got[60];
    const char *args[40] = {"train", GPT,        "--data", data,    SMALL,   "--steps",
                            "20",    "--recipe", recipe,   "--run", straight};
    size_t n = 0, at = 0;
    while (args[n])
        at = strcmp(args[n], "--run") ? at : n + 1, n++;
    for (; *more; more++)
        args[n++] = *more;
    f8_cli_forget(straight);
    f8_cli_forget(folder);
    losses_of(f8_cli_run(args), want);
    args[at] = folder;
    args[n++] = "--stop-at";
    args[n++] = "7";
    f8_cli_result r = f8_cli_run(args);
    says(r, 0, "stopped after step 7 of 20 under ");
    ck_assert_str_eq(r.err, "");
    ck_assert(there(folder, checkpoint(7)));
    r = F8_CLI("train", "--resume", folder);
    ck_assert_str_eq(r.err, "");
    losses_of(r, got);
    ck_assert_str_eq(got, want);
    same_run(20);
}

START_TEST(every_recipe)
{
    static const char *const recipes[] = {"f32", "bf16", "delayed", "current", "rowwise", "block"};
    for (size_t i = 0; i < sizeof recipes / sizeof *recipes; i++)
        halves(recipes[i], (const char *const[]){NULL});
}
END_TEST

/* What auto chose goes on, and is not chosen again. */
START_TEST(recipe_auto)
{
    halves("auto", (const char *const[]){"--calibrate", "1", NULL});
    f8_cli_result r = F8_CLI("train", "--resume", folder, "--recipe", "delayed");
    says(r, 1, "it can't go on under delayed");
    f8_cli_forget(folder);
    r = F8_CLI("train", file, "--data", data, "--run", folder, "--steps", "4", "--stop-at", "2");
    says(r, 0, "stopped after step 2");
    r = F8_CLI("train", "--resume", folder, "--recipe", "auto");
    says(r, 1, "recipe auto would have to measure");
}
END_TEST

START_TEST(with_options)
{
    halves("delayed", (const char *const[]){"--memory", "0.5", NULL});
    halves("delayed {history = 3}",
           (const char *const[]){"--rule", "\"h.*\" wgrad = bf16", "--rule", "layers 0, 0 = bf16",
                                 "--lr", "0.01", "--seed", "7", "--eval-every", "4", NULL});
    uint16_t tokens[3000];
    uint32_t seed = 3;
    for (int i = 0; i < 3000; i++)
        tokens[i] = (uint16_t)(test_random(&seed) % 256);
    char shards[PATH];
    snprintf(shards, sizeof shards, "%s", f8_cli_temp("part_*.bin"));
    f8_cli_write("part_0.bin", tokens, 3000);
    f8_cli_write("part_1.bin", tokens + 1500, 3000);
    snprintf(data, sizeof data, "%s", shards);
    halves("block", (const char *const[]){NULL});
}
END_TEST

/* With three micro-steps a step, stopped three times; and the options that change no bit may be
 * others each time. */
START_TEST(in_parts)
{
    F8_CLI("train", file, "--data", data, "-D", "A=3", "--steps", "12", "--recipe", "delayed",
           "--run", straight);
    f8_cli_result r = F8_CLI("train", file, "--data", data, "-D", "A=3", "--steps", "12",
                             "--recipe", "delayed", "--run", folder, "--stop-at", "3");
    says(r, 0, "stopped after step 3 of 12");
    r = F8_CLI("train", "--resume", folder, "--stop-at", "4", "--threads", "1");
    says(r, 0, "stopped after step 4 of 12");
    r = F8_CLI("train", file, "--resume", folder, "--stop-at", "9", "--data", data, "--recipe",
               "delayed", "-D", "A=3", "--memory", "0.7", "--seed", "1");
    says(r, 0, "stopped after step 9 of 12");
    f8_cli_ok(F8_CLI("train", "--resume", folder));
    same_run(12);
    /* a run that has ended says again how it ended, and changes nothing */
    f8_cli_ok(F8_CLI("train", "--resume", folder));
    same_run(12);
}
END_TEST

/* ---- what is kept ---- */

START_TEST(checkpoints)
{
    int sums;
    f8_cli_ok(F8_CLI("train", file, "--data", data, "--steps", "10", "--run", folder,
                     "--save-every", "3", "--keep", "2"));
    ck_assert(there(folder, checkpoint(10)) && there(folder, checkpoint(9)));
    ck_assert(!there(folder, checkpoint(6)) && !there(folder, checkpoint(3)));
    ck_assert(!there(folder, checkpoint(0)));
    free(bits(folder, &sums));
    ck_assert_int_eq(sums, 4);
    f8_cli_forget(folder);
    f8_cli_ok(F8_CLI("train", file, "--data", data, "--steps", "10", "--run", folder, "--keep", "9",
                     "--save-every", "4", "--checksum-every", "1"));
    ck_assert(there(folder, checkpoint(0)) && there(folder, checkpoint(4)));
    ck_assert(there(folder, checkpoint(8)) && there(folder, checkpoint(10)));
    free(bits(folder, &sums));
    ck_assert_int_eq(sums, 10);
    json_t *info = load("run.json"), *versions = json_object_get(info, "versions");
    ck_assert(json_is_string(json_object_get(versions, "fp8c")));
    ck_assert_int_ge((int)json_object_size(versions), 3); /* LLVM and oneDNN too */
    json_decref(info);
    /* eval reads a checkpoint of the folder like any other */
    f8_cli_ok(F8_CLI("eval", file, "--data", data, "--weights", in(folder, checkpoint(8))));
}
END_TEST

/* The newest checkpoint is damaged, cut or not there, or a variable in it has another name: the one
 * before is taken. */
START_TEST(damaged)
{
    size_t n;
    f8_cli_ok(F8_CLI("train", file, "--data", data, "--steps", "10", "--run", straight));
    for (int how = 0; how < 4; how++) {
        f8_cli_forget(folder);
        F8_CLI("train", file, "--data", data, "--steps", "10", "--run", folder, "--save-every", "4",
               "--stop-at", "6");
        char path[PATH + 300];
        snprintf(path, sizeof path, "%s", in(folder, checkpoint(6)));
        char *bytes = f8_cli_read(path, &n);
        char *name = how == 3 ? memmem(bytes, n, "opt.step", 8) : bytes + n - 100;
        ck_assert_ptr_nonnull(name);
        *name ^= 1;
        n -= how == 1;
        FILE *f = fopen(path, "wb");
        ck_assert_int_eq(fwrite(bytes, 1, n, f), n);
        fclose(f);
        free(bytes);
        if (how == 2)
            unlink(path);
        f = fopen(in(folder, "steps.jsonl"), "ab"); /* of a process that was killed */
        fputs("{\"event\":\"st", f);
        fclose(f);
        const f8_cli_result r = F8_CLI("train", "--resume", folder);
        says(r, 0, how == 2 ? "" : "warning: passed over: ");
        if (how == 0)
            says(r, 0, "its values do not have its checksum");
        if (how == 3)
            says(r, 0, "it does not fit the program");
        snprintf(path, sizeof path, "%s.damaged", in(folder, checkpoint(6)));
        ck_assert_int_eq(access(path, F_OK), how == 2 ? -1 : 0); /* kept, under another name */
        same_run(10);
    }
}
END_TEST

/* ---- another recipe ---- */

static void eight_steps(const char *to, const char *last)
{
    F8_CLI("train", GPT, SMALL, "--data", data, "--steps", "8", "--recipe", "delayed", "--run", to,
           "--stop-at", "4");
    F8_CLI("train", "--resume", to, "--recipe", "bf16", "--stop-at", "6");
    const f8_cli_result r = F8_CLI("train", "--resume", to, "--recipe", last, "--stop-at", "7");
    ck_assert_msg(r.code == 0, "%s", r.err);
}

/* A step's loss and gradient norm, all bits. */
static char *bits_of_step(const char *of, int step)
{
    int checksums;
    char *all = bits(of, &checksums), want[16], *line, *save, *found = NULL;
    snprintf(want, sizeof want, "%d ", step);
    for (line = strtok_r(all, "\n", &save); line && !found; line = strtok_r(NULL, "\n", &save))
        found = strncmp(line, want, strlen(want)) ? NULL : strdup(line);
    free(all);
    ck_assert_msg(found != NULL, "%s: no step %d", of, step);
    return found;
}

/* Histories that begin anew are empty: the step is as under `current`. */
START_TEST(another_recipe_is_first)
{
    eight_steps(folder, "delayed");
    eight_steps(straight, "current");
    char *got = bits_of_step(folder, 7), *want = bits_of_step(straight, 7);
    ck_assert_str_eq(got, want);
    free(got);
    free(want);
}
END_TEST

START_TEST(another_recipe)
{
    F8_CLI("train", GPT, SMALL, "--data", data, "--steps", "8", "--recipe", "delayed", "--run",
           folder, "--stop-at", "4");
    f8_cli_result r = F8_CLI("train", "--resume", folder, "--recipe", "bf16", "--stop-at", "6");
    says(r, 0, "from step 5 on under bf16; the checkpoint is of another recipe:\n");
    says(r, 0, "  dropped      fp8.scale  F32 ");
    ck_assert_msg(!strstr(r.err, "begun anew") && !strstr(r.err, "adamw") && !strstr(r.err, "wte"),
                  "%s", r.err);
    r = F8_CLI("train", "--resume", folder, "--recipe", "delayed", "--stop-at", "7");
    says(r, 0, "from step 7 on under delayed; the checkpoint is of another recipe:\n");
    says(r, 0, "  begun anew   fp8.scale  F32 ");
    ck_assert_msg(!strstr(r.err, "dropped"), "%s", r.err);
    f8_cli_ok(F8_CLI("train", "--resume", folder)); /* it stays with that */
    json_t *info = load("run.json"), *resumed = json_object_get(info, "resumed");
    ck_assert_str_eq(json_string_value(json_object_get(info, "recipe")), "delayed");
    ck_assert_int_eq((int)json_array_size(resumed), 3);
    json_decref(info);
    size_t n;
    char *steps = f8_cli_read(in(folder, "steps.jsonl"), &n);
    ck_assert(strstr(steps, "\"bf16\",\"seed\":1,\"step\":6,") &&
              strstr(steps, "\"delayed\",\"seed\":1,\"step\":7,"));
    free(steps);
}
END_TEST

/* A damaged checkpoint is not gone on from under another recipe either. */
START_TEST(another_recipe_damaged)
{
    size_t n;
    F8_CLI("train", GPT, SMALL, "--data", data, "--steps", "8", "--recipe", "delayed", "--run",
           folder, "--save-every", "2", "--stop-at", "4");
    char path[PATH + 300];
    snprintf(path, sizeof path, "%s", in(folder, checkpoint(4)));
    char *bytes = f8_cli_read(path, &n);
    bytes[n / 2] ^= 1;
    FILE *f = fopen(path, "wb");
    ck_assert_int_eq(fwrite(bytes, 1, n, f), n);
    fclose(f);
    free(bytes);
    const f8_cli_result r = F8_CLI("train", "--resume", folder, "--recipe", "block");
    says(r, 0, "warning: passed over: its values do not have its checksum");
    says(r, 0, "from step 3 on under block; the checkpoint is of another recipe:\n");
}
END_TEST

/* source.f8 has the bytes of the text, whatever memory held before. */
START_TEST(source)
{
    size_t n, want_n;
    setenv("MALLOC_PERTURB_", "85", 1);
    f8_cli_ok(F8_CLI("train", GPT, SMALL, "--data", data, "--steps", "1", "--run", folder));
    unsetenv("MALLOC_PERTURB_");
    char *want = f8_cli_read(GPT, &want_n), *got = f8_cli_read(in(folder, "source.f8"), &n);
    ck_assert_msg(n == want_n && !memcmp(got, want, n), "%zu bytes became %zu", want_n, n);
    free(want);
    free(got);
}
END_TEST

START_TEST(more_steps)
{
    f8_cli_ok(F8_CLI("train", file, "--data", data, "--steps", "5", "--run", folder));
    f8_cli_result r = F8_CLI("train", "--resume", folder, "--steps", "8");
    says(r, 0, "--steps is 8, and was 5: the schedule has the new length from step 6 on\n");
    ck_assert(there(folder, checkpoint(8)));
    says(F8_CLI("train", "--resume", folder, "--steps", "6"), 1,
         "the run is at step 8 already, after --steps 6\n");
    f8_cli_ok(F8_CLI("train", "--resume", folder)); /* 8 it is now */
}
END_TEST

/* --stats-recipe begins like --stats, and --dump-steps like --dump: neither takes the other's
 * place.
 */
START_TEST(options_that_begin_alike)
{
    f8_cli_ok(F8_CLI("train", file, "--data", data, "--steps", "2", "--stop-at", "1", "--stats",
                     "*.x", "--dump", "*.w", "--dump-steps", "9:9", "--run", folder));
    f8_cli_ok(
        F8_CLI("train", "--resume", folder, "--stats-recipe", "block", "--dump-steps", "8:8"));
    json_t *run = load("run.json"), *all = json_object_get(run, "resolved");
    ck_assert_str_eq(json_string_value(json_object_get(all, "--stats")), "*.x");
    ck_assert_str_eq(json_string_value(json_object_get(all, "--dump")), "*.w");
    ck_assert_str_eq(json_string_value(json_object_get(all, "--stats-recipe")), "block");
    json_decref(run);
}
END_TEST

/* ---- signals ---- */

static const char *const long_run[] = {"train",    file,      "--data", data,           "--steps",
                                       "400",      "--run",   folder,   "--save-every", "50",
                                       "--recipe", "delayed", NULL};

START_TEST(a_signal)
{
    f8_cli_ok(F8_CLI("train", file, "--data", data, "--steps", "400", "--run", straight,
                     "--save-every", "50", "--recipe", "delayed"));
    for (int i = 0; i < 2; i++) {
        char path[PATH + 300];
        snprintf(path, sizeof path, "%s", in(folder, "steps.jsonl"));
        f8_cli_forget(folder);
        const f8_cli_result r = f8_cli_run_signals(
            (f8_cli_signal[]){
                {.number = i ? SIGTERM : SIGINT, .path = path, .words = "\"step\":3,"}, {0}},
            long_run);
        const char *said = strstr(r.err, "interrupted after step ");
        says(r, 128 + (i ? SIGTERM : SIGINT), "/run has the checkpoint of step ");
        ck_assert_ptr_nonnull(said);
        ck_assert(there(folder, checkpoint(atoi(said + strlen("interrupted after step ")))));
        f8_cli_ok(F8_CLI("train", "--resume", folder));
        same_run(400);
    }
}
END_TEST

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* kill -9 at random moments, of the run and of what goes on with it: nothing is broken, and the end
 * is the same. Before the folder is a run there is nothing to go on with. */
START_TEST(killed)
{
    uint32_t seed = 11;
    int resumed = 0, begun = 0, hit = 0;
    const int times = f8_cli_sanitized() ? 4 : 10;
    printf("killed: seed %u\n", seed);
    f8_cli_ok(F8_CLI("train", file, "--data", data, "--steps", "400", "--run", straight,
                     "--save-every", "50", "--recipe", "delayed"));
    const double start = seconds(); /* kernels are cached now */
    f8_cli_ok(f8_cli_run(long_run));
    const double whole = seconds() - start;
    const char *const again[] = {"train", "--resume", folder, NULL};
    f8_cli_forget(folder);
    char path[PATH + 300];
    snprintf(path, sizeof path, "%s", in(folder, "steps.jsonl"));
    f8_cli_run_signals(
        (f8_cli_signal[]){{.number = SIGKILL, .path = path, .words = "\"step\":60,"}, {0}},
        long_run);
    for (int i = 1; i < times; i++) {
        if (i == times / 2 || !there(folder, "run.json"))
            f8_cli_forget(folder);
        const bool on = there(folder, "run.json");
        const long pause = 1000 + (long)(1e6 * whole * (test_random(&seed) % 1000) / 1000);
        hit += f8_cli_run_signals((f8_cli_signal[]){{.number = SIGKILL, .pause = pause}, {0}},
                                  on ? again : long_run)
                   .code == 128 + SIGKILL;
        resumed += on;
        begun += !on;
    }
    printf("killed: %d of %d new runs and runs that went on (%d) in time\n", hit, begun + resumed,
           resumed);
    ck_assert(hit > 0 && resumed > 0 && begun > 0);
    if (!there(folder, "run.json")) {
        says(F8_CLI("train", "--resume", folder), 1,
             there(folder, "lock") ? "it has no run.json" : "No such");
        f8_cli_forget(folder);
        f8_cli_ok(f8_cli_run(long_run));
    }
    f8_cli_ok(F8_CLI("train", "--resume", folder));
    f8_cli_whole(folder);
    same_run(400);
}
END_TEST

/* ---- a full disk ---- */

static f8_cli_result within(rlim_t most, const char *const *args)
{
    struct rlimit none;
    ck_assert(!getrlimit(RLIMIT_FSIZE, &none));
    const struct rlimit limit = {most, none.rlim_max};
    signal(SIGXFSZ, SIG_IGN); /* a full disk, as far as the command can tell */
    ck_assert(!setrlimit(RLIMIT_FSIZE, &limit));
    const f8_cli_result r = f8_cli_run(args);
    ck_assert(!setrlimit(RLIMIT_FSIZE, &none));
    return r;
}

/* Each file in turn is the first that does not fit. A run that could not begin leaves nothing; one
 * that could not go on is where its last checkpoint is, and goes on when there is room. */
START_TEST(full_disk)
{
    const char *const run[] = {"train",    file,    "--data", data,           "--steps",
                               "250",      "--run", folder,   "--save-every", "20",
                               "--recipe", "f32",   NULL};
    struct stat s;
    f8_cli_ok(F8_CLI("train", file, "--data", data, "--steps", "250", "--run", straight,
                     "--save-every", "20", "--recipe", "f32"));
    ck_assert(!stat(in(straight, checkpoint(250)), &s));
    const rlim_t whole = (rlim_t)s.st_size;
    ck_assert(!stat(in(straight, "steps.jsonl"), &s));
    ck_assert_msg((rlim_t)s.st_size > whole + 500, "the records are to be the last that fails");
    const rlim_t limits[] = {250, 700, 1200, whole - 1}; /* stderr has room */
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        says(within(limits[i], run), 1, "File too large\n");
        ck_assert_msg(stat(folder, &s), "a folder was left with %lu bytes",
                      (unsigned long)limits[i]);
    }
    says(within(whole + 200, run), 1, "steps.jsonl: error: File too large\n");
    const char *const again[] = {"train", "--resume", folder, NULL};
    says(within(whole + 200, again), 1, "steps.jsonl: error: File too large\n");
    says(within(300, again), 1, "File too large\n"); /* it would drop records, and can't */
    f8_cli_ok(f8_cli_run(again));
    same_run(250);
}
END_TEST

/* ---- refused ---- */

static void refused(int code, const char *message, const char *const *more)
{
    const char *args[24] = {"train"};
    for (size_t n = 1; *more; n++, more++)
        args[n] = *more;
    f8_cli_fails(f8_cli_run(args), code, message);
}
#define REFUSED(code, message, ...) refused(code, message, (const char *const[]){__VA_ARGS__, NULL})

START_TEST(wrong_usage)
{
    struct stat s;
    REFUSED(2, "give one of the two", "--run", folder, "--resume", folder, file, "--data", data);
    REFUSED(2, "--compare makes several", file, "--data", data, "--run", folder, "--compare",
            "f32");
    REFUSED(2, "--seeds makes several", file, "--data", data, "--run", folder, "--seeds", "2");
    REFUSED(2, "does not use '--stop-at'", file, "--data", data, "--stop-at", "3");
    REFUSED(2, "does not use '--save-every'", file, "--data", data, "--save-every", "3");
    REFUSED(2, "an argument is missing: 'FILE.f8'", "--data", data, "--run", folder);
    REFUSED(2, "--data FILE or --batch", file, "--run", folder);
    REFUSED(1, "No such file", "--resume", folder);
    REFUSED(1, "No such file", file, "--data", data, "--run", in(folder, "deeper"));
    REFUSED(1, "Not a directory", file, "--data", data, "--run", data);
    REFUSED(1, "it is not a folder", "--resume", data);
    ck_assert(stat(folder, &s));
}
END_TEST

/* Runs with one file changed: the message, and the file, stays as it is. */
static void with_file(const char *name, const char *text, const char *message)
{
    size_t n, after;
    char path[PATH + 300];
    snprintf(path, sizeof path, "%s", in(folder, name));
    char *before = f8_cli_read(path, &n);
    FILE *f = fopen(path, "wb");
    fputs(text, f);
    fclose(f);
    REFUSED(1, message, "--resume", folder);
    char *now = f8_cli_read(path, &after);
    ck_assert_str_eq(now, text);
    f = fopen(path, "wb");
    fwrite(before, 1, n, f);
    fclose(f);
    free(before);
    free(now);
}

/* run.json with a member replaced. */
static void with_member(const char *name, json_t *value, const char *message)
{
    json_t *info = load("run.json");
    json_object_set_new(info, name, value);
    char *text = json_dumps(info, 0);
    with_file("run.json", text, message);
    free(text);
    json_decref(info);
}

START_TEST(not_a_run)
{
    F8_CLI("train", file, "--data", data, "--steps", "10", "--run", folder, "--stop-at", "4");
    REFUSED(1, "a new run needs an empty folder", file, "--data", data, "--run", folder);
    with_file("run.json", "", "it is not JSON");
    with_file("run.json", "{}", "it does not describe a run of fp8c");
    with_member("format", json_string("x"), "it does not describe a run of fp8c");
    with_member("version", json_integer(2), "has a format that this fp8c does not read");
    with_member("versions", json_pack("{ss}", "fp8c", "9.9.9"), "the run was made by fp8c 9.9.9");
    with_member("target", json_string("sm_90a"), "was compiled for sm_90a");
    with_member("resolved", json_object(), "its options lack --recipe");
    with_member("data", json_object(), "the data is {");
    with_member("data", json_pack("{si}", "tokens", TEXT),
                "an older fp8c kept no hash of the data");
    with_member("module", json_string("0"), "the model is not that of the run");
    with_file("module.f8", "module m\n", "");
    with_file("steps.jsonl", "", "it ends with step 0, and the checkpoint is of step 4");
    with_file("steps.jsonl", "{\"event\":\"step\",\"step\":2}\n", "line 1 is not of step 1");
    with_file("steps.jsonl", "x\n", "line 1 is no record: '[' or '{' expected near 'x'");
    with_file("steps.jsonl", "{\"event\":\"step\"}\n", "line 1 is no record of a step");
    REFUSED(1, "--seed is 2, and the run has 1", "--resume", folder, "--seed", "2");
    REFUSED(1, "--lr is 0.5, and the run has null", "--resume", folder, "--lr", "0.5");
    REFUSED(1, "--rule is [\"layers 1, 1 = bf16\"], and the run has null", "--resume", folder,
            "--rule", "layers 1, 1 = bf16");
    REFUSED(1, "-D is {\"C\":32}, and the run has null", "--resume", folder, "-D", "C=32");
    REFUSED(1, "the model is not that of the run", GPT, "--resume", folder);
    REFUSED(1, "already, after --stop-at 3", "--resume", folder, "--stop-at", "3");
    const char *other = f8_cli_write_words("other", TEXT + 1);
    REFUSED(1, "--data is [", "--resume", folder, "--data", other);
    f8_cli_ok(F8_CLI("train", "--resume", folder)); /* nothing of this did harm */
    f8_cli_write_words("text", TEXT + 1);
    REFUSED(1, "the data is {\"tokens\":6001", "--resume", folder);
    /* as many bytes of each kind, in another order */
    size_t n;
    char *words = f8_cli_read(f8_cli_write_words("text", TEXT), &n);
    ck_assert_uint_eq(n, TEXT);
    f8_cli_write("text", words + TEXT / 2, TEXT - TEXT / 2);
    FILE *text = fopen(data, "ab");
    ck_assert(text && fwrite(words, 1, TEXT / 2, text) == TEXT / 2 && !fclose(text));
    free(words);
    REFUSED(1, "the data is {\"tokens\":6000", "--resume", folder);
    f8_cli_write_words("text", TEXT);
    unlink(in(folder, checkpoint(10)));
    unlink(in(folder, checkpoint(4)));
    REFUSED(1, "it has no checkpoint that is whole", "--resume", folder);
    unlink(in(folder, "run.json"));
    REFUSED(1, "it has no run.json", "--resume", folder);
}
END_TEST

START_TEST(in_use)
{
    F8_CLI("train", file, "--data", data, "--steps", "10", "--run", folder, "--stop-at", "4");
    const int fd = open(in(folder, "lock"), O_RDWR | O_CLOEXEC);
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
    ck_assert(fd >= 0 && !fcntl(fd, F_OFD_SETLK, &lock));
    REFUSED(1, "another process is using it", "--resume", folder);
    close(fd);
    f8_cli_ok(F8_CLI("train", "--resume", folder));
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("resume");
    TCase *t = tcase_create("resume");
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_checked_fixture(t, setup, train_teardown);
    tcase_add_test(t, every_recipe);
    tcase_add_test(t, recipe_auto);
    tcase_add_test(t, with_options);
    tcase_add_test(t, in_parts);
    tcase_add_test(t, checkpoints);
    tcase_add_test(t, damaged);
    tcase_add_test(t, source);
    tcase_add_test(t, another_recipe);
    tcase_add_test(t, another_recipe_is_first);
    tcase_add_test(t, another_recipe_damaged);
    tcase_add_test(t, more_steps);
    tcase_add_test(t, options_that_begin_alike);
    tcase_add_test(t, a_signal);
    tcase_add_test(t, killed);
    tcase_add_test(t, full_disk);
    tcase_add_test(t, wrong_usage);
    tcase_add_test(t, not_a_run);
    tcase_add_test(t, in_use);
    suite_add_tcase(s, t);
    return s;
}
