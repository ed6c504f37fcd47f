/* The command line as a user meets it: usage, the models, the output of `print`, and bad input,
 * which gives one message with its place on stderr, exit code 1 (2 for wrong usage), and no partial
 * result. Other tests of this folder test single commands. */
#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "frontend/fp8c_diagnose.h"
#include "tests/shared/api/cli.h"
#include "tests/shared/suite.h"

#define GPT "frontend/models/gpt.f8"
#define SMALL "-D", "B=2", "-D", "T=32", "-D", "L=1", "-D", "C=32", "-D", "H=2"

enum { TIMEOUT = 600 };

static void each_f8(const char *folder, void (*test)(const char *path))
{
    DIR *d = opendir(folder);
    int count = 0;
    ck_assert_msg(d != NULL, "%s is missing: run from the top of the tree", folder);
    for (struct dirent *e; (e = readdir(d));) {
        char path[512];
        const char *dot = strrchr(e->d_name, '.');
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        if (!dot || strcmp(dot, ".f8"))
            continue;
        test(path);
        count++;
    }
    closedir(d);
    ck_assert_int_gt(count, 0);
}

/* ---- usage ---- */

START_TEST(help_and_version)
{
    static const char *const commands[] = {"check", "print", "train", "eval",
                                           "explain", "plan", "compile"};
    f8_cli_result r = F8_CLI("--version");
    f8_cli_ok(r);
    char version[64];
    snprintf(version, sizeof version, "fp8c %s\n", fp8c_version());
    ck_assert_str_eq(r.out, version);
    r = F8_CLI("--help");
    f8_cli_ok(r);
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        ck_assert_msg(strstr(r.out, commands[i]) != NULL, "help is silent on %s", commands[i]);
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        r = F8_CLI(commands[i], "--help");
        f8_cli_ok(r);
        ck_assert_ptr_nonnull(strstr(r.out, "usage: fp8c "));
        ck_assert_ptr_nonnull(strstr(r.out, "-D NAME=N"));
    }
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        r = F8_CLI(commands[i], "--help");
        const char *recipe;
        for (int k = 0; (recipe = fp8c_name(FP8C_NAME_RECIPE, k)); k++)
            ck_assert_msg(strstr(r.out, recipe) != NULL, "%s: %s", commands[i], recipe);
        ck_assert_ptr_nonnull(strstr(r.out, "\n  --rule RULE  "));
    }
    ck_assert_ptr_nonnull(strstr(F8_CLI("train", "--help").out, "--save-state FILE"));
    ck_assert_ptr_null(strstr(F8_CLI("check", "--help").out, "--save-state FILE"));
}
END_TEST

START_TEST(wrong_usage)
{
    f8_cli_fails(F8_CLI(NULL), 2, "usage: fp8c");
    f8_cli_fails(F8_CLI("chekc"), 2, "no such command 'chekc'");
    f8_cli_fails(F8_CLI("check"), 2, "an argument is missing: 'FILE.f8");
    f8_cli_fails(F8_CLI("check", GPT, GPT), 2, "this command takes one file, but is also given '");
    f8_cli_fails(F8_CLI("check", GPT, "--nope"), 2, "no such option '--nope'");
    f8_cli_fails(F8_CLI("check", GPT, "--steps", "1"), 2, "no such option '--steps'");
    f8_cli_fails(F8_CLI("print", GPT, "--recipes=x"), 2, "no such option");
    f8_cli_fails(F8_CLI("print", GPT, "--no-fuse=1"), 2, "no such option");
    f8_cli_fails(F8_CLI("print", GPT, "--recipe"), 2, "an argument is missing for '--recipe'");
    f8_cli_fails(F8_CLI("print", GPT, "--recipe="), 2, "bad value for --recipe");
    f8_cli_fails(F8_CLI("check", GPT, "-D"), 2, "an argument is missing for '-D'");
    f8_cli_fails(F8_CLI("check", GPT, "-D", "B"), 2, "bad value for -D");
    f8_cli_fails(F8_CLI("check", GPT, "-D", "B=x"), 2, "bad value for -D");
    f8_cli_fails(F8_CLI("check", GPT, "-D", "=3"), 2, "bad value for -D");
    f8_cli_fails(F8_CLI("check", GPT, "-D", "B=99999999999999999999"), 2, "bad value for -D");
    f8_cli_fails(F8_CLI("train", GPT), 2,
                 "--data FILE or --batch NAME=FILE is needed");
    f8_cli_fails(F8_CLI("eval", GPT), 2, "fp8c eval: --weights FILE is needed");
    f8_cli_fails(F8_CLI("eval", GPT, "--weights", "x"), 2,
                 "fp8c eval: --data FILE or --batch NAME=FILE is needed");
    f8_cli_fails(F8_CLI("eval", GPT, "--steps", "1"), 2, "no such option '--steps'");
    f8_cli_fails(F8_CLI("eval", GPT, "--weights", "x", "--data", GPT, "--recipe", "auto"), 2,
                 "fp8c eval: only train and explain take recipe auto");
    f8_cli_fails(F8_CLI("check", GPT, "--recipe", "auto"), 2,
                 "fp8c check: only train and explain take recipe auto");
    f8_cli_fails(F8_CLI("print", GPT, "--print-after", "scaling", "--recipe", "auto"), 2,
                 "fp8c print: only train and explain take recipe auto");
    f8_cli_fails(F8_CLI("compile", GPT, "--recipe", "auto", "--target", "sm_90a"), 2,
                 "fp8c compile: only train and explain take recipe auto");
    f8_cli_fails(F8_CLI("train", GPT, "--save"), 2, "an argument is missing for '--save'");
    f8_cli_fails(F8_CLI("train", GPT, "--compare="), 2, "bad value for --compare");
    f8_cli_fails(F8_CLI("check", GPT, "--rule"), 2, "an argument is missing for '--rule'");
    f8_cli_fails(F8_CLI("check", GPT, "--rule="), 2, "bad value for --rule: ''");
    f8_cli_fails(
        F8_CLI("explain", GPT, "--rule", "\"h.*\" = block"), 2,
        "fp8c explain: the default recipe, bf16, overrides all rules: give --recipe with '--rule'");
    f8_cli_fails(F8_CLI("print", GPT, "--print-after", "scaling", "--rule", "layers 1, 1 = bf16"),
                 2, "give --recipe with '--rule'");
    f8_cli_fails(F8_CLI("compile", GPT, "--bf16-layers", "1,1"), 2,
                 "no such option '--bf16-layers': write --rule 'layers FIRST, LAST = bf16'");
    f8_cli_fails(F8_CLI("compile", GPT, "--bf16-layers=1,2"), 2,
                 "no such option '--bf16-layers=1,2': write --rule 'layers FIRST, LAST = bf16'");
    f8_cli_fails(F8_CLI("compile", GPT, "--bf16-layers"), 2,
                 "no such option '--bf16-layers': write --rule 'layers FIRST, LAST = bf16'");
}
END_TEST

/* An option that the command takes, but does not use in this way, is refused by name. */
START_TEST(unused_options)
{
    static const struct {
        const char *args[8], *who, *option;
    } bad[] = {
        {{"print", GPT, "--recipe", "f32"}, "without --print-after, print", "--recipe"},
        {{"print", GPT, "--memory=0.5"}, "without --print-after, print", "--memory"},
        {{"print", GPT, "--steps=3"}, "without --print-after, print", "--steps"},
        {{"check", GPT, "--device", "1"}, "a --target that is no GPU", "--device"},
        {{"train", GPT, "--data", "x", "--device=0"}, "a --target that is no GPU", "--device"},
        {{"train", GPT, "--data", "x", "--calibrate", "3"},
         "without --recipe auto, it",
         "--calibrate"},
        {{"train", GPT, "--data", "x", "--write-rules", "f"},
         "without --recipe auto, it",
         "--write-rules"},
        {{"explain", GPT, "--error-budget=1"}, "without --recipe auto, it", "--error-budget"},
        {{"explain", GPT, "--data", "x"}, "without --recipe auto, explain", "--data"},
        {{"explain", GPT, "--seed", "3"}, "without --recipe auto, explain", "--seed"},
        {{"compile", GPT, "--target=sm_90a", "--values", "B=1"},
         "without -o NAME.f8x, compile",
         "--values"},
        {{"compile", GPT, "--emit", "cuda", "-o", "x.f8x", "--values=B=1"},
         "without -o NAME.f8x, compile",
         "--values"},
        {{"compile", GPT, "-o", "x.f8x", "--inference", "--steps", "3"},
         "with --inference, compile",
         "--steps"},
        {{"run", "x.f8x", "--recipe", "block"}, "with a compiled file, run", "--recipe"},
        {{"run", "x.f8x", "--rule", "layers 1, 1 = bf16"}, "with a compiled file, run", "--rule"},
        {{"run", "x.f8x", "--steps", "3"}, "with a compiled file, run", "--steps"},
        {{"run", GPT, "--steps", "3"}, "without the function update, run", "--steps"},
        {{"tune", "--gemm", "8x8x8:f32", "--recipe", "block"},
         "with --gemm, --gemm-file and --suite, tune",
         "--recipe"},
        {{"tune", "--gemm", "8x8x8:f32", "--rule", "\"nope\" = bf16"},
         "with --gemm, --gemm-file and --suite, tune",
         "--rule"},
        {{"tune", "--gemm", "8x8x8:f32", "-DB=1"},
         "with --gemm, --gemm-file and --suite, tune",
         "-D"},
        {{"tune", "--export", "x", "--time", "3"},
         "with --export, --import and --merge, tune",
         "--time"},
        {{"tune", "--import", "x", "--json=-"},
         "with --export, --import and --merge, tune",
         "--json"},
        {{"help", "train", "--man"}, "with a COMMAND, help", "--man"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char want[200];
        snprintf(want, sizeof want, "fp8c %s: %s does not use '%s'; see fp8c %s --help\n",
                 bad[i].args[0], bad[i].who, bad[i].option, bad[i].args[0]);
        const f8_cli_result r = f8_cli_run(bad[i].args);
        f8_cli_fails(r, 2, want);
        ck_assert_str_eq(r.err, want);
    }
}
END_TEST

START_TEST(wrong_values)
{
    static const char *const bad[][2] = {
        {"--threads", "0"},  {"--threads", "257"}, {"--threads", "4294967297"},
        {"--threads", "-1"}, {"--threads", "2x"},  {"--steps", "0"},
        {"--steps", "-3"},   {"--steps", ""},      {"--steps", "1e3"},
        {"--seed", "-1"},    {"--seed", "x"},      {"--seed", "9223372036854775808"},
        {"--lr", "0"},       {"--lr", "-1"},       {"--lr", "nan"},
        {"--lr", "inf"},     {"--lr", "1,5"},      {"--device", "-1"},
        {"--device", "x"},   {"--device", "2147483648"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char want[64];
        snprintf(want, sizeof want, "bad value for %s: '%s'", bad[i][0], bad[i][1]);
        f8_cli_fails(F8_CLI("train", GPT, "--data", GPT, bad[i][0], bad[i][1]), 2, want);
    }
}
END_TEST

/* ---- check and print ---- */

static void model_prints_the_same(const char *path)
{
    f8_cli_ok(F8_CLI("check", path));
    f8_cli_result r = F8_CLI("print", path);
    f8_cli_ok(r);
    char *first = strdup(r.out);
    r = F8_CLI("print", f8_cli_write("printed.f8", first, strlen(first)));
    f8_cli_ok(r);
    ck_assert_msg(!strcmp(first, r.out), "%s prints differently after parsing its print", path);
    free(first);
}

START_TEST(models)
{
    each_f8("frontend/models", model_prints_the_same);
    const f8_cli_result r = F8_CLI("check", GPT);
    ck_assert_ptr_nonnull(strstr(r.out, GPT ": ok, 52 parameter tensors, "));
    static const char one[] = "module one\nparam w: f32[1] ones\n"
                              "func forward(%x: f32[1]) -> f32[1] { return mul(%x, w) }\n";
    const char *file = f8_cli_write("one.f8", one, sizeof one - 1);
    ck_assert_ptr_nonnull(strstr(F8_CLI("check", file).out, ": ok, 1 parameter tensor, 1 parameter\n"));
    ck_assert_ptr_nonnull(strstr(F8_CLI("check", "frontend/models/mpt_1b.f8").out,
                                 ": ok, 292 parameter tensors, 1315950592 parameters"));
    f8_cli_ok(F8_CLI("check", GPT, "--target", "cpu", "--recipe", "delayed", SMALL));
    f8_cli_fails(F8_CLI("check", GPT, "--recipe", "fp4"), 1, "no recipe 'fp4'");
}
END_TEST

START_TEST(dims_in_every_spelling)
{
    char *first = strdup(F8_CLI("print", GPT, "-D", "B=2").out);
    ck_assert_ptr_nonnull(strstr(first, "i32[2, 128]"));
    ck_assert_str_eq(first, F8_CLI("print", "-DB=2", GPT).out);
    ck_assert_str_eq(first, F8_CLI("print", GPT, "-D=B=2").out);
    free(first);
}
END_TEST

/* Every pass of the pipeline can be printed, for each kind of recipe; what a pass leaves is a
 * module. No kernel is compiled for it. */
START_TEST(print_after)
{
    static const char *const recipes[] = {"bf16", "delayed"};
    const char *pass;
    for (int k = 0; k < 2; k++)
        for (int i = 0; (pass = fp8c_name(FP8C_NAME_PASS, i)); i++) {
            f8_cli_result r =
                F8_CLI("print", GPT, "--print-after", pass, "--recipe", recipes[k], SMALL);
            f8_cli_ok(r);
            ck_assert_msg(!strncmp(r.out, "module gpt\n", 11), "%s: %.200s", pass, r.out);
            char *first = strdup(r.out);
            r = F8_CLI("print", f8_cli_write("after.f8", first, strlen(first)));
            ck_assert_msg(r.code == 0, "after %s: %s", pass, r.err);
            ck_assert_msg(!strcmp(first, r.out), "after %s: prints differently", pass);
            free(first);
        }
    f8_cli_fails(F8_CLI("print", GPT, "--print-after", "nonsense"), 1, "no pass 'nonsense'");
    setenv("FP8C_VERBOSE", "1", 1);
    const f8_cli_result r = F8_CLI("print", GPT, "--print-after", "scaling", SMALL);
    ck_assert_msg(r.code == 0 && strstr(r.err, "module gpt for cpu: 0 kernels, "),
                  "print compiles kernels: %s", r.err);
}
END_TEST

/* ---- schedules ---- */

static const char *module_with(const char *name, const char *schedule)
{
    char text[1000];
    snprintf(text, sizeof text,
             "module m\nparam wte: f32[128, 16] normal(0.02)\nparam up: f32[16, 16] normal(0.02)\n"
             "func forward(%%tokens: i32[2, 16], %%targets: i32[2, 16]) -> (%%loss: f32[]) {\n"
             "  %%y = linear(embedding(wte, %%tokens), up)\n"
             "  return cross_entropy(linear(%%y, wte) {transpose_b = true, name = \"head\"}, "
             "%%targets)\n}\noptimizer adamw {lr = 1e-3, clip = 1%s}\n",
             schedule);
    return f8_cli_write(name, text, strlen(text));
}

/* A schedule without its length: whatever `check` passes, every command takes. What is to be used
 * gets the length of --steps; without that, a warning says which. */
START_TEST(schedule_without_steps)
{
    static const char *const warning =
        "fp8c: warning: the optimizer's schedule has no `steps`: it gets 100; --steps N gives it "
        "others\n";
    char *words = strdup(f8_cli_write_words("words", 6000)),
         *save = strdup(f8_cli_temp("m.safetensors")),
         *open = strdup(module_with("open.f8", ", schedule = \"cosine\", warmup = 3")),
         *closed =
             strdup(module_with("closed.f8", ", schedule = \"cosine\", warmup = 3, steps = 7"));
    f8_cli_ok(F8_CLI("check", open));
    f8_cli_ok(F8_CLI("check", open, "--target", "cpu", "--recipe", "delayed"));
    f8_cli_ok(F8_CLI("print", open));
    f8_cli_ok(F8_CLI("explain", open));
    f8_cli_ok(F8_CLI("plan", open));
    f8_cli_ok(F8_CLI("train", open, "--data", words, "--steps", "2", "--save", save));
    f8_cli_ok(F8_CLI("eval", open, "--data", words, "--weights", save));
    f8_cli_ok(F8_CLI("export", open, "--weights", save, "--recipe", "block", "-o",
                     f8_cli_temp("e.safetensors")));
    char *got = strdup(F8_CLI("print", open, "--print-after", "autodiff", "--steps", "7").out);
    const char *want = F8_CLI("print", closed, "--print-after", "autodiff").out;
    ck_assert_str_eq(strstr(got, "func"), strstr(want, "func"));
    free(got);
    got = strdup(F8_CLI("print", open, "--print-after", "autodiff").out);
    ck_assert_str_ne(strstr(got, "func"),
                     strstr(F8_CLI("print", closed, "--print-after", "autodiff").out, "func"));
    free(got);
    f8_cli_result r = F8_CLI("compile", open, "-o", f8_cli_temp("m.f8x"));
    ck_assert_int_eq(r.code, 0);
    ck_assert_str_eq(r.err, warning);
    f8_cli_ok(F8_CLI("compile", open, "-o", f8_cli_temp("m.f8x"), "--steps", "7"));
    f8_cli_ok(F8_CLI("compile", open, "-o", f8_cli_temp("m.f8x"), "--inference"));
    f8_cli_ok(F8_CLI("compile", closed, "-o", f8_cli_temp("m.f8x")));
    f8_cli_ok(F8_CLI("compile", module_with("constant.f8", ""), "-o", f8_cli_temp("m.f8x")));
    r = F8_CLI("run", open, "--function", "update");
    ck_assert_int_eq(r.code, 0);
    ck_assert_str_eq(r.err, warning);
    free(words);
    free(save);
    free(open);
    free(closed);
}
END_TEST

/* ---- bad input ---- */

/* tests/bad/NAME.f8 begins with the error it must give: `# error: LINE:COLUMN: MESSAGE`, or
 * without the place where there is none (a -D that names no dim). */
static void bad_file(const char *path)
{
    size_t n;
    char *text = f8_cli_read(path, &n), want[1500], message[1200], dim[80] = "";
    int line = 1, column = 1;
    bool place = true;
    snprintf(message, sizeof message, "the file is empty; a module begins with 'module NAME'");
    if (n > 0)
        place = sscanf(text, "# error: %d:%d: %1199[^\n]", &line, &column, message) == 3;
    ck_assert_msg(place || sscanf(text, "# error: %1199[^\n]", message) == 1, "%s says no error",
                  path);
    const char *given = strstr(text, "\n# -D ");
    if (given)
        sscanf(given, "\n# -D %79s", dim);
    if (place)
        snprintf(want, sizeof want, "%s:%d:%d: error: %s\n", path, line, column, message);
    else
        snprintf(want, sizeof want, "%s: error: %s\n", path, message);
    const f8_cli_result r = *dim ? F8_CLI("check", path, "-D", dim) : F8_CLI("check", path);
    f8_cli_fails(r, 1, want);
    ck_assert_msg(r.err == strstr(r.err, want), "%s", r.err);
    if (n > 0 && place) /* the line and a caret under the place */
        ck_assert_msg(strstr(r.err, " | ") && strrchr(r.err, '^'), "%s: no caret: %s", path, r.err);
    free(text);
}

START_TEST(bad_texts)
{
    each_f8("tests/bad", bad_file);
}
END_TEST

START_TEST(huge_texts)
{
    const size_t size = (size_t)100 << 20;
    char *text = malloc(size);
    ck_assert_ptr_nonnull(text);
    memset(text, 'a', size);
    memcpy(text, "module t\n", 9);
    f8_cli_fails(F8_CLI("check", f8_cli_write("line.f8", text, size)), 1, ":2:1: error: ");
    memset(text + 9, '(', 10000);
    memcpy(text + 9, "dim N = ", 8);
    f8_cli_fails(F8_CLI("check", f8_cli_write("nested.f8", text, 10009)), 1, ":2:");
    free(text);
}
END_TEST

START_TEST(bad_files)
{
    f8_cli_fails(F8_CLI("check", "no/such.f8"), 1, "no/such.f8: error: No such file or directory");
    f8_cli_fails(F8_CLI("check", "frontend"), 1, "frontend: error: Is a directory");
    f8_cli_fails(F8_CLI("check", GPT, "-D", "Z=3"), 1, "error: ");
    f8_cli_fails(F8_CLI("check", GPT, "-D", "B=0"), 1, "dim 'B' is 0 (by -D): it must be positive");
    f8_cli_fails(F8_CLI("check", GPT, "-D", "B=-2"), 1,
                 "dim 'B' is -2 (by -D): it must be positive");
    f8_cli_fails(F8_CLI("explain", GPT, "--recipe", "fp4"), 1,
                 "no recipe 'fp4': there are f32, bf16, delayed, current");
    f8_cli_fails(F8_CLI("explain", GPT, "--target", "tpu"), 1,
                 "no target 'tpu': there are cpu, reference, sm_89, sm_90a, ");
    f8_cli_fails(F8_CLI("explain", GPT, "--json", "no/such/file", SMALL), 1,
                 "no/such/file: error: No such file or directory");
}
END_TEST

/* Not f8_cli_fails: the table for people has gone out by the time the records can't. */
START_TEST(full_disk)
{
    struct stat s;
    if (stat("/dev/full", &s)) {
        test_skip("a full disk", "there is no /dev/full");
        return;
    }
    f8_cli_result r = F8_CLI("explain", GPT, "--json", "/dev/full", SMALL);
    ck_assert_int_eq(r.code, 1);
    ck_assert_str_eq(r.err, "/dev/full: error: the JSON records could not be written: "
                            "No space left on device\n");
}
END_TEST

/* A text goes to its file whole, or the file keeps what it had. What is no regular file is written
 * to as it is. */
START_TEST(texts_in_files)
{
    struct stat s;
    size_t n;
    const char *path = f8_cli_write("kernels.cu", "before", 6);
    f8_cli_fails(F8_CLI("compile", GPT, SMALL, "--emit", "cuda", "--target", "sm_90a", "-o",
                        "no/such/kernels.cu"),
                 1, "no/such/kernels.cu: error: No such file or directory");
    f8_cli_ok(F8_CLI("compile", GPT, SMALL, "--emit", "cuda", "--target", "sm_90a", "-o", path));
    char *text = f8_cli_read(path, &n);
    ck_assert_msg(n > 1000 && strstr(text, "F8_KERNEL("), "%zu bytes", n);
    free(text);
    if (stat("/dev/full", &s)) {
        test_skip("a full disk", "there is no /dev/full");
        return;
    }
    f8_cli_result r = F8_CLI("compile", GPT, SMALL, "--emit", "cuda", "--target", "sm_90a", "-o",
                             "/dev/stdout"); /* which is a file here: not replaced */
    ck_assert_msg(r.code == 0 && strstr(r.out, "F8_KERNEL("), "%s", r.err);
    r = F8_CLI("compile", GPT, SMALL, "--emit", "cuda", "--target", "sm_90a", "-o", "/dev/full");
    ck_assert_int_eq(r.code, 1);
    ck_assert_str_eq(r.err, "/dev/full: error: No space left on device\n");
}
END_TEST

/* ---- memory ---- */

/* A budget that is too small because of cuDNN's workspace: the message says what to do without. */
START_TEST(budget_of_cudnn)
{
    const f8_cli_result r = F8_CLI("plan", GPT, "--target", "sm_90a", "-D", "L=1", "-D", "T=2048",
                                   "-D", "H=1", "--memory", "150M");
    ck_assert_int_eq(r.code, 1);
    ck_assert_msg(strstr(r.err, "least possible budget") &&
                      strstr(r.err, "cuDNN's attention takes a workspace of 134479872 bytes") &&
                      strstr(r.err, "attention 'own' takes none"),
                  "%s", r.err);
}
END_TEST

/* More than any machine has: explained, since that takes none of it; refused with the bytes wanted,
 * by the plan, not by the kernel's killer. */
START_TEST(too_large_to_plan)
{
    f8_cli_result r = F8_CLI("explain", GPT, SMALL, "-D", "B=1000000", "-D", "C=1024");
    f8_cli_ok(r);
    const char *words = f8_cli_write_words("words.txt", 10000);
    r = F8_CLI("train", GPT, "--data", words, "--steps", "1", SMALL, "-D", "B=1000000", "-D",
               "C=1024");
    ck_assert_msg(r.code == 1, "exit %d: %s", r.code, r.err);
    const char *said = strstr(r.err, "out of memory: ");
    long long bytes = 0;
    ck_assert_msg(said && sscanf(said, "out of memory: %lld bytes were wanted", &bytes) == 1, "%s",
                  r.err);
    ck_assert_msg(bytes > 1000000LL * 32 * 1024, "%s", r.err);
    r = F8_CLI("explain", GPT, "-D", "B=1000000000000000000");
    ck_assert_msg(r.code == 1 && strstr(r.err, "error: "), "%s", r.err);
}
END_TEST

/* First a limit of memory with room for the libraries (which abort if they get none), but not for
 * the plan. Then texts under limits with little room beyond the program itself; below that its
 * loader may fail in any way. */
START_TEST(little_memory)
{
    if (f8_cli_sanitized()) {
        test_skip("little memory", "sanitizers need more than the limit");
        return;
    }
    static const char *const parse[] = {"check", GPT, NULL};
    const char *const compile[] = {"train", GPT, "--data", f8_cli_write_words("words.txt", 10000),
                                   "--steps", "1", "-D", "B=1024", NULL};
    bool done = false;
    static const char *const version[] = {"--version", NULL};
    size_t least = (size_t)2 << 20;
    while (least < (size_t)64 << 20 && f8_cli_run_within(least, version).code != 0)
        least += (size_t)64 << 10;
    for (size_t more = 0; more <= (size_t)64 << 20; more = more ? 2 * more : (size_t)32 << 10) {
        const f8_cli_result r = f8_cli_run_within(least + more, parse);
        ck_assert_msg(r.code <= 1, "%zu KiB: exit %d: %s", (least + more) >> 10, r.code, r.err);
        done |= r.code == 0;
    }
    ck_assert(done);
    static const char *const explain[] = {"explain", GPT, SMALL, NULL};
    setenv("FP8C_CACHE_DIR", "", 1); /* LLVM is needed */
    f8_cli_result r = f8_cli_run_within(least + ((size_t)48 << 20), explain);
    f8_cli_fails(r, 1, "error: out of memory: LLVM 19 could not be loaded (");
    long long bytes = 0;
    r = f8_cli_run_within((size_t)1 << 30, compile);
    const char *said = strstr(r.err, "out of memory: ");
    ck_assert_msg(r.code == 1 && said &&
                      sscanf(said, "out of memory: %lld bytes were wanted for ", &bytes) == 1,
                  "exit %d: %s", r.code, r.err);
    ck_assert_msg(bytes > 500000000, "%s", r.err);
    ck_assert_str_eq(r.out, "");
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("cli");
    TCase *t = tcase_create("cli");
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_checked_fixture(t, f8_cli_setup, f8_cli_teardown);
    tcase_add_test(t, help_and_version);
    tcase_add_test(t, wrong_usage);
    tcase_add_test(t, wrong_values);
    tcase_add_test(t, unused_options);
    tcase_add_test(t, models);
    tcase_add_test(t, dims_in_every_spelling);
    tcase_add_test(t, print_after);
    tcase_add_test(t, schedule_without_steps);
    tcase_add_test(t, bad_texts);
    tcase_add_test(t, huge_texts);
    tcase_add_test(t, bad_files);
    tcase_add_test(t, full_disk);
    tcase_add_test(t, texts_in_files);
    tcase_add_test(t, budget_of_cudnn);
    tcase_add_test(t, too_large_to_plan);
    tcase_add_test(t, little_memory);
    suite_add_tcase(s, t);
    return s;
}
