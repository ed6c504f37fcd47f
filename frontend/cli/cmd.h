/* The command line: its one option table, and what sub-commands share. Uses only fp8c.h. */
#ifndef F8_CMD_H
#define F8_CMD_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#include "frontend/fp8c.h"

enum {
    CLI_DONE = 0,
    CLI_FAILED = 1,
    CLI_USAGE = 2,
    CLI_INTERRUPTED = 130, /* as shells have it for SIGINT */
    CLI_MAX_DIMS = 32,
    CLI_MAX_RECIPES = 16,
    CLI_MAX_RULES = 64,
    CLI_MAX_TEXTS = 64,
    CLI_RECIPE = 256 /* bytes of a recipe in canonical text */
};

/* Which sub-commands take an option: a bit for each. */
enum {
    ON_CHECK = 1,
    ON_PRINT = 2,
    ON_TRAIN = 4,
    ON_EXPLAIN = 8,
    ON_COMPILE = 16,
    ON_EVAL = 32,
    ON_EXPORT = 64,
    ON_PLAN = 128,
    ON_HELP = 256,
    ON_COMPLETION = 512,
    ON_DOCTOR = 1024,
    ON_INSPECT = 2048,
    ON_RUN = 4096,
    ON_ALL = 255 | ON_RUN, /* those that read a module */
    ON_TARGET = ON_ALL & ~ON_EXPORT,
    ON_STEP = ON_PRINT | ON_TRAIN | ON_EXPLAIN | ON_COMPILE | ON_PLAN,
    ON_TUNE = 8192
};

/* COMMAND(name, bit, operand, "help"), in the order they are listed in; int cmd_NAME(const cli *)
 * runs it and gives the exit code. The operand: what `file` of cli is; in [] it may be left out,
 * NULL: there is none. Help, the man page and the shells' completions are made from this table and
 * the next. */
#define CLI_COMMANDS(COMMAND)                                                                      \
    COMMAND(check, ON_CHECK, "FILE.f8", "parse and verify a module")                               \
    COMMAND(print, ON_PRINT, "FILE.f8",                                                            \
            "print a module in canonical form, or what a pass made of it")                         \
    COMMAND(train, ON_TRAIN, "FILE.f8", "train a language model on the bytes of a text")           \
    COMMAND(eval, ON_EVAL, "FILE.f8", "the held-out loss of a checkpoint under any recipe")        \
    COMMAND(export, ON_EXPORT, "FILE.f8", "a checkpoint's weights as FP8 with their scales")       \
    COMMAND(explain, ON_EXPLAIN, "FILE.f8", "what was decided for each GEMM, and the kernels")     \
    COMMAND(plan, ON_PLAN, "FILE.f8",                                                              \
            "memory and time of a training step, and what a budget of memory costs")               \
    COMMAND(                                                                                       \
        compile, ON_COMPILE, "FILE.f8",                                                            \
        "ahead of time, into FILE.f8x; or a GPU's kernels as text or code, and a report on them")  \
    COMMAND(inspect, ON_INSPECT, "FILE.f8x", "what a compiled file holds, on any machine")         \
    COMMAND(run, ON_RUN, "FILE.f8x|FILE.f8", "run functions on tensors of files")                  \
    COMMAND(tune, ON_TUNE, "[FILE.f8]",                                                            \
            "time the ways to do each GEMM and kernel here; compiles then take the fastest")       \
    COMMAND(                                                                                       \
        doctor, ON_DOCTOR, NULL,                                                                   \
        "what this machine has for each target, what is missing, how to get it; a test of each")   \
    COMMAND(completion, ON_COMPLETION, "SHELL", "what bash, zsh or fish completes a command with") \
    COMMAND(help, ON_HELP, "[COMMAND]", "the commands, or the options of one")

/* OPTION(field, "--name", "ARGUMENT" or NULL, kind, commands, "help")
 * kinds: TEXT const char *, TEXTS and RECIPES given any number of times, COUNT int64_t >= 1,
 * THREADS int32_t 1 to 256, ORDINAL int32_t >= 0, NUMBER double > 0, SEED uint64_t, FLAG bool,
 * LEVEL int32_t that counts, DIM NAME=N, RULE a recipe rule, LAYERS FIRST,LAST, MEMORY bytes (6G,
 * 512MiB) or a share (0.5) */
#define CLI_OPTIONS(OPTION)                                                                        \
    OPTION(recipe, "--recipe", "RECIPE", TEXT, ON_ALL | ON_TUNE,                                   \
           "%s, or with options: 'block {pow2 = true}'")                                           \
    OPTION(rules, "--rule", "RULE", RULE, ON_ALL | ON_TUNE,                                        \
           "after the text's rules, what these have behind `recipe`: '\"h.*\" wgrad = bf16'")      \
    OPTION(target, "--target", "TARGET", TEXT, ON_TARGET | ON_TUNE,                                \
           "cpu (default), cpu:x86-64-v3, cpu:x86-64-v4, reference, cuda (the GPU present), %s; "  \
           "compile -o NAME.f8x: some of them, with commas between")                               \
    OPTION(attention, "--attention", "NAME", TEXT, ON_TARGET | ON_TUNE,                            \
           "on a GPU: table (default), own or cudnn")                                              \
    OPTION(device, "--device", "N", ORDINAL, ON_TARGET | ON_TUNE, "which GPU (default 0)")         \
    OPTION(memory, "--memory", "SIZE", MEMORY, ON_STEP | ON_TUNE,                                  \
           "what it may take in all (6G, 512M, 4096K, bytes), or of activation bytes at the peak " \
           "(0.5):"                                                                                \
           " activations are computed again until it fits")                                        \
    OPTION(checkpoint, "--checkpoint", "PATTERN", TEXT, ON_STEP | ON_TUNE,                         \
           "keep only activations of these names for the backward: 'x.*' is one a layer")          \
    OPTION(recompute, "--recompute", "PATTERN", TEXT, ON_STEP | ON_TUNE,                           \
           "compute values of these names again in the backward")                                  \
    OPTION(data, "--data", "FILE", TEXT, ON_TRAIN | ON_EXPLAIN | ON_EVAL,                          \
           "the text; its last tenth is held out of training. explain: to calibrate auto on")      \
    OPTION(weights, "--weights", "FILE", TEXT, ON_EVAL | ON_EXPORT | ON_RUN,                       \
           "a checkpoint (safetensors) of train --save, or of others; eval, run: of export too")   \
    OPTION(                                                                                        \
        functions, "--function", "NAME", TEXTS, ON_RUN,                                            \
        "what to run (default eval); repeatable: one after the other. What one gives out under a"  \
        " name that a later one takes, that one takes")                                            \
    OPTION(inputs, "--input", "NAME=FILE", TEXTS, ON_RUN,                                          \
           "an input's tensor: a .npy, or FILE.safetensors[:TENSOR]; repeatable")                  \
    OPTION(outputs, "--output", "NAME=FILE", TEXTS, ON_RUN,                                        \
           "where to write an output, the last of that name: as --input; repeatable")              \
    OPTION(repeat, "--repeat", "N", COUNT, ON_RUN,                                                 \
           "all of it so many times, and what a time took")                                        \
    OPTION(steps, "--steps", "N", COUNT, ON_TRAIN,                                                 \
           "optimizer steps (default 100); the schedule's length")                                 \
    OPTION(compare, "--compare", "RECIPE", RECIPES, ON_TRAIN | ON_EVAL,                            \
           "the same again under this recipe; repeatable")                                         \
    OPTION(calibrate, "--calibrate", "N", COUNT, ON_TRAIN | ON_EXPLAIN,                            \
           "auto: batches to learn from (default 2)")                                              \
    OPTION(budget, "--error-budget", "E", NUMBER, ON_TRAIN | ON_EXPLAIN,                           \
           "auto: largest relative error of a GEMM's result (default 0.1)")                        \
    OPTION(write_rules, "--write-rules", "FILE", TEXT, ON_TRAIN | ON_EXPLAIN,                      \
           "auto: the choice as lines of the text; - is stdout")                                   \
    OPTION(seed, "--seed", "S", SEED, ON_TRAIN | ON_EXPLAIN | ON_RUN,                              \
           "of initial values and batches (default 1)")                                            \
    OPTION(lr, "--lr", "RATE", NUMBER, ON_TRAIN, "replaces the optimizer's learning rate")         \
    OPTION(threads, "--threads", "N", THREADS,                                                     \
           ON_TRAIN | ON_EXPLAIN | ON_COMPILE | ON_EVAL | ON_PLAN | ON_RUN | ON_TUNE,              \
           "1 to 256 (default: all CPUs)")                                                         \
    OPTION(json, "--json", "FILE", TEXT,                                                           \
           ON_TRAIN | ON_EXPLAIN | ON_COMPILE | ON_EVAL | ON_EXPORT | ON_PLAN | ON_DOCTOR |        \
               ON_INSPECT | ON_RUN,                                                                \
           "JSON Lines; - is stdout")                                                              \
    OPTION(emit, "--emit", "WHAT", TEXT, ON_COMPILE,                                               \
           "cuda, ptx, cubin or report (default report)")                                          \
    OPTION(output, "-o", "FILE", TEXT, ON_COMPILE | ON_EXPORT,                                     \
           "where to; compile: default stdout,"                                                    \
           " NAME.f8x without --emit is compiled ahead of time for each --target")                 \
    OPTION(values, "--values", "NAME=N,...", TEXT, ON_COMPILE,                                     \
           "-o NAME.f8x: what dims that are bounds may be, 'B=1,2,4 T=64'; default every value, "  \
           "64 sets at most")                                                                      \
    OPTION(inference, "--inference", NULL, FLAG, ON_COMPILE,                                       \
           "only eval; forward may then return anything, else the loss, f32[], comes first")       \
    OPTION(dtype, "--dtype", "TYPE", TEXT, ON_EXPORT,                                              \
           "f32 or bf16: of the parameters that stay high precision (default: the checkpoint's)")  \
    OPTION(save, "--save", "FILE", TEXT, ON_TRAIN | ON_RUN,                                        \
           "write a checkpoint at the end (safetensors), of --recipe's run")                       \
    OPTION(save_state, "--save-state", "FILE", TEXT, ON_TRAIN,                                     \
           "write all variables' bytes at the end")                                                \
    OPTION(kernels, "--kernels", NULL, FLAG, ON_EXPLAIN | ON_INSPECT,                              \
           "list each kernel with the bytes it moves")                                             \
    OPTION(profile, "--profile", NULL, FLAG, ON_TRAIN, "time by step of the plan, at the end")     \
    OPTION(no_fuse, "--no-fuse", NULL, FLAG, ON_STEP | ON_EVAL | ON_TUNE,                          \
           "one kernel per node: same bits, slower")                                               \
    OPTION(print_after, "--print-after", "PASS", TEXT, ON_PRINT,                                   \
           "compile, and print after that pass")                                                   \
    OPTION(verbose, "-v", NULL, LEVEL, ON_ALL | ON_TUNE,                                           \
           "say on stderr what is done; twice: each pass and kernel (FP8C_VERBOSE=1, 2)")          \
    OPTION(man, "--man", NULL, FLAG, ON_HELP, "the man page, as roff")                             \
    OPTION(database, "--database", "FILE", TEXT, ON_TUNE,                                          \
           "the tuning database (default: FP8C_TUNING, or in the cache)")                          \
    OPTION(gemm, "--gemm", "MxNxK:FORMAT", TEXT, ON_TUNE,                                          \
           "this GEMM alone: f32, bf16, f8e4m3 or f8e5m2 operands")                                \
    OPTION(only, "--only", "PATTERN", TEXT, ON_TUNE, "only steps of these names")                  \
    OPTION(time, "--time", "SECONDS", NUMBER, ON_TUNE, "begin to time nothing new after so long")  \
    OPTION(runs, "--runs", "N", COUNT, ON_TUNE, "runs of each candidate (default 7)")              \
    OPTION(same_bits, "--same-bits", NULL, FLAG, ON_TUNE,                                          \
           "leave out other algorithms: they change bits")                                         \
    OPTION(again, "--again", NULL, FLAG, ON_TUNE, "time again what was timed before")              \
    OPTION(rows_out, "--export", "FILE", TEXT, ON_TUNE, "write the database's rows as JSON Lines") \
    OPTION(rows_in, "--import", "FILE", TEXT, ON_TUNE, "take over the rows of such a file")        \
    OPTION(merge, "--merge", "FILE", RECIPES, ON_TUNE,                                             \
           "take over the rows of another database; repeatable")                                   \
    OPTION(dims, "-D", "NAME=N", DIM, ON_ALL | ON_TUNE, "replace the value of a dim")

/* Those that add to the field of one above. */
#define CLI_MORE_OPTIONS(OPTION)                                                                   \
    OPTION(verbose, "--verbose", NULL, LEVEL, ON_ALL | ON_TUNE, "the same as -v")                  \
    OPTION(rules, "--bf16-layers", "FIRST,LAST", LAYERS, ON_ALL,                                   \
           "so many first and last layers in bf16: --rule 'layers FIRST, LAST = bf16'")            \
    OPTION(target, "--target", "TARGET", TEXT, ON_INSPECT, "look at the code for this one alone")  \
    OPTION(json, "--json", "FILE", TEXT, ON_TUNE, "JSON Lines; - is stdout")                       \
    OPTION(target, "--target", "TARGET,...", TEXT, ON_DOCTOR,                                      \
           "look at these alone, and end with 1 unless all of them work (default: look at all, "   \
           "cpu must work)")

typedef const char *cli_TEXT;
typedef int64_t cli_COUNT;
typedef int32_t cli_THREADS;
typedef int32_t cli_ORDINAL;
typedef double cli_NUMBER;
typedef uint64_t cli_SEED;
typedef bool cli_FLAG;
typedef int32_t cli_LEVEL;
typedef struct cli_MEMORY {
    int64_t bytes;
    double share; /* one of the two, or 0 */
} cli_MEMORY;
typedef struct cli_RECIPES {
    const char *text[CLI_MAX_RECIPES];
    size_t n;
} cli_RECIPES;
typedef struct cli_TEXTS {
    const char *text[CLI_MAX_TEXTS];
    size_t n;
} cli_TEXTS;
typedef struct cli_DIM {
    fp8c_dim dim[CLI_MAX_DIMS];
    size_t n;
} cli_DIM;
typedef struct cli_RULE {
    struct {
        const char *origin, *text; /* text NULL: layers */
        int64_t first, last;
    } rule[CLI_MAX_RULES];
    size_t n;
} cli_RULE;
typedef cli_RULE cli_LAYERS;

typedef struct cli {
    const char *command, *file;
    char canonical[1 + CLI_MAX_RECIPES][CLI_RECIPE]; /* what recipe and compare point into */
#define OPTION(field, name, argument, kind, on, help) cli_##kind field;
    CLI_OPTIONS(OPTION)
#undef OPTION
} cli;

/* ---- the tables as data (cmd_common.c) ---- */

typedef struct cli_command {
    const char *name, *operand, *help; /* operand: NULL for none */
    int bit;
} cli_command;

typedef struct cli_option {
    const char *name, *argument, *help; /* argument: NULL for none; help: see cli_option_help */
    int on;                             /* bits of the commands that take it */
} cli_option;

/* Both end with a name that is NULL. */
extern const cli_command cli_commands[];
extern const cli_option cli_options[];

/* NULL where there is none of that name. */
const cli_command *cli_find_command(const char *name);
/* The option's help, in `buf`: %s becomes the GPUs of --target or the names of all recipes. */
enum { CLI_HELP_TEXT = 512 };
const char *cli_option_help(const cli_option *option, char buf[CLI_HELP_TEXT]);
/* "a, b (default) or c": the names that begin with `start`; `usual` is the default, or NULL. In
 * `buf`. */
const char *cli_names(const char *(*name)(int index), const char *start, const char *usual,
                      char buf[CLI_HELP_TEXT]);
/* What `fp8c help` and `fp8c COMMAND --help` print (cmd_help.c). */
void cli_help(FILE *to);
void cli_help_command(const cli_command *command);
/* The man page, on stdout (cmd_man.c). */
int cli_man(void);

/* ---- sub-commands: exit codes ---- */
#define COMMAND(name, bit, operand, help) int cmd_##name(const cli *c);
CLI_COMMANDS(COMMAND)
#undef COMMAND

/* ---- shared (cmd_common.c) ---- */

extern const char cli_default_recipe[]; /* what c->recipe points to when none was given */
/* fp8c compile -o NAME.f8x: the module as a package (cmd_compile_file.c). */
bool cli_is_package(const char *path);
int cli_compile_package(const cli *c);
/* Read a whole file; NULL with a message on stderr. The caller frees. */
char *cli_read_file(const char *path, size_t *size);
/* Make the recipes of --recipe and --compare canonical; CLI_FAILED after a message on stderr where
 * one is none. */
int cli_read_recipes(cli *c);
/* Rule `index` of c->rules as text, in `buf` where it was given as numbers. */
const char *cli_rule(const cli *c, size_t index, char *buf, size_t size);
/* Context and parsed module of c->file with c->rules behind its own, or a message on stderr and
 * false. */
bool cli_load(const cli *c, fp8c_context **ctx, fp8c_module **module);
/* Print the context's message on stderr, or that the call was interrupted, and give CLI_FAILED. */
int cli_fail(const fp8c_context *ctx);
/* For runs: a CUDA target takes its device. */
fp8c_compile_options cli_compile_options(const cli *c, const char *recipe);
/* For listings: a CUDA target named by its architecture needs no device. */
fp8c_compile_options cli_listing_options(const cli *c, const char *recipe);
int cli_write_stdout(void *user, const char *text, size_t size);
/* A context as the environment and cli_context_options say, or NULL with a message on stderr. */
fp8c_context *cli_context(void);
/* Into `text`, "f32[8, 256]". Returns it. */
enum { CLI_TYPE_TEXT = 160 };
const char *cli_type(const fp8c_type *type, char text[CLI_TYPE_TEXT]);

/* Of --recipe and each --compare, in their order, what a gap is against: bf16, else the first
 * --compare; 0 where there is none to compare with. */
size_t cli_baseline(const cli *c);
/* Recipe `index` of those, 0 for --recipe. */
const char *cli_recipe(const cli *c, size_t index);
/* How wide a table's column of them is, at least `least`. */
int cli_recipe_width(const cli *c, int least);

/* ---- progress, log and Ctrl-C (cmd_progress.c) ---- */

/* Before the command runs: what contexts are created with from then on. bar: on a terminal, show
 * how far a long call is. */
void cli_watch(int32_t verbose, bool bar);
const fp8c_context_options *cli_context_options(void);
/* Whether Ctrl-C stopped a call: main then gives CLI_INTERRUPTED. */
bool cli_interrupted(void);

/* JSON Lines. path NULL: nothing is written and every call succeeds. A failed write is remembered;
 * close reports it on stderr and returns false. */
typedef struct cli_json {
    FILE *file;
    const char *path;
    bool failed;
    int error; /* errno of the write that failed */
} cli_json;
bool cli_json_open(cli_json *j, const char *path);
void cli_json_record(cli_json *j,
                     json_t *record); /* takes the reference; NULL counts as a failure */
bool cli_json_close(cli_json *j);
bool cli_json_to_stdout(const cli *c); /* then stdout carries nothing but records */
json_t *cli_json_number(double x);     /* JSON knows no NaN and no infinity: they are null */

/* What explain and inspect share (cmd_explain.c): a line for each GEMM of a linear, and for each
 * step; a table, but where `to` is NULL, and records. */
void cli_print_decisions(const fp8c_program *p, FILE *to, cli_json *json);
void cli_print_steps(const fp8c_program *p, int function, FILE *to, cli_json *json);

#endif
