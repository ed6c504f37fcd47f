/* The command line: the tables of commands and options, and what the commands share. */
#ifndef F8_CMD_H
#define F8_CMD_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#include "frontend/fp8c.h"
#include "ir/base/file.h"
#include "ir/base/type.h"

enum {
    CLI_DONE = 0,
    CLI_FAILED = 1,
    CLI_USAGE = 2,
    CLI_SIGNALLED = 128, /* plus the number of the signal, as shells do: 130 or 143 */
    CLI_MAX_DIMS = 32,
    CLI_MAX_RECIPES = 16,
    CLI_MAX_RULES = 64,
    CLI_MAX_TEXTS = 64,
    CLI_MAX_SHARES = 64,
    CLI_RECIPE = 256, /* bytes of a recipe in canonical text */
    CLI_STEPS = 100   /* the default of --steps */
};

/* The commands as bits: an option lists those that take it. */
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
    ON_ALL = 255 | ON_RUN, /* the commands that read a module */
    ON_TARGET = ON_ALL & ~ON_EXPORT,
    ON_STEP = ON_PRINT | ON_TRAIN | ON_EXPLAIN | ON_COMPILE | ON_PLAN,
    ON_TUNE = 8192,
    ON_OPS = 16384,
    ON_REPORT = 32768,
    ON_TRIAGE = 65536,
    ON_DATA = ON_TRAIN | ON_EXPLAIN | ON_EVAL | ON_EXPORT,
    ON_WEIGHTS = ON_EVAL | ON_EXPORT | ON_RUN
};

/* COMMAND(name, bit, operand, "help"), in the order in which help lists them. The function
 * int cmd_NAME(const cli *) runs the command and returns the exit code. The operand says what the
 * `file` of cli is. An operand in [] may be left out, and of one that ends in ... there may be
 * several: `files` has them all. NULL means that the command takes none.
 * The help, the man page and the shells' completions are made from this table and the next. */
#define CLI_COMMANDS(COMMAND)                                                                      \
    COMMAND(check, ON_CHECK, "FILE.f8", "parse and verify a module")                               \
    COMMAND(print, ON_PRINT, "FILE.f8",                                                            \
            "print a module in canonical form, or as it is after a pass")                          \
    COMMAND(train, ON_TRAIN, "[FILE.f8]", "train a model on the tokens of files, or on tensors")   \
    COMMAND(eval, ON_EVAL, "FILE.f8",                                                              \
            "compute the held-out loss of a checkpoint under one or more recipes")                 \
    COMMAND(export, ON_EXPORT, "FILE.f8",                                                          \
            "write a checkpoint's weights as FP8 with their scales")                               \
    COMMAND(explain, ON_EXPLAIN, "FILE.f8",                                                        \
            "show the recipe of each GEMM and where it comes from, and list the kernels")          \
    COMMAND(plan, ON_PLAN, "FILE.f8",                                                              \
            "show the memory and estimated time of a training step, and what less memory costs")   \
    COMMAND(compile, ON_COMPILE, "FILE.f8",                                                        \
            "compile ahead of time into FILE.f8x, or write or report on the kernels of a GPU")     \
    COMMAND(inspect, ON_INSPECT, "FILE.f8x", "show what a compiled file holds, on any machine")    \
    COMMAND(run, ON_RUN, "FILE.f8x|FILE.f8", "run functions on tensors from files")                \
    COMMAND(report, ON_REPORT, "DIR ...",                                                          \
            "show training runs as one page: curves, what FP8 does to each tensor, memory, time")  \
    COMMAND(triage, ON_TRIAGE, "DIR",                                                              \
            "say why a step of a training run went wrong: numerics, hardware or data")             \
    COMMAND(tune, ON_TUNE, "[FILE.f8]",                                                            \
            "time the ways to compute each GEMM and kernel; later compiles take the fastest")      \
    COMMAND(ops, ON_OPS, "[OP]", "list the ops of the language, or show all about one of them")    \
    COMMAND(doctor, ON_DOCTOR, NULL,                                                               \
            "show what this machine has and lacks for each target, and test each target")          \
    COMMAND(completion, ON_COMPLETION, "SHELL",                                                    \
            "print the completion script for a shell: bash, zsh or fish")                          \
    COMMAND(help, ON_HELP, "[COMMAND]", "list the commands, or the options of one command")

/* OPTION(field, "--name", "ARGUMENT" or NULL, kind, commands, "help")
 * The kinds of values:
 *     TEXT             const char *, not empty
 *     TOKENS           const char *: u16, u32 or bytes
 *     TEXTS, RECIPES   as TEXT; the option may be given any number of times
 *     TENSORS          the same: NAME=FILE.npy or NAME=FILE.safetensors[:TENSOR]
 *     COUNT, ORDINAL   int64_t of at least 1, int32_t of at least 0
 *     THREADS, RANKS   int32_t, 1 to 256, 1 to 1024
 *     STAGE            int32_t: 1 to 3, or -1 for the text 0
 *     PERIOD           int32_t of at least 1, or -1 for the text 0: never
 *     NUMBER, SEED     double above 0, uint64_t
 *     FLAG, LEVEL      bool; int32_t that counts how often the option is given
 *     DIM              NAME=N
 *     RULE, LAYERS     a recipe rule; FIRST,LAST
 *     MEMORY           bytes (6G, 512MiB) or a share (0.5)
 *     SHARES           numbers between 0 and 1, with commas between them */
#define CLI_OPTIONS(OPTION)                                                                        \
    OPTION(recipe, "--recipe", "RECIPE", TEXT, ON_ALL | ON_TUNE,                                   \
           "%s; options go in braces: 'block {pow2 = true}'")                                      \
    OPTION(rules, "--rule", "RULE", RULE, ON_ALL | ON_TUNE,                                        \
           "add a rule, written as in the text but without the word `recipe`: "                    \
           "'\"h.*\" wgrad = bf16'; repeatable")                                                   \
    OPTION(target, "--target", "TARGET", TEXT, ON_TARGET | ON_TUNE,                                \
           "cpu (default), cpu:x86-64-v3, cpu:x86-64-v4, reference, cuda (this machine's GPU), "   \
           "%s; compile -o NAME.f8x takes a list, with commas")                                    \
    OPTION(attention, "--attention", "NAME", TEXT, ON_TARGET | ON_TUNE,                            \
           "what computes attention on a GPU: own (fp8c's kernels), cudnn, or table (default), "   \
           "which takes cudnn where measurements say so")                                          \
    OPTION(device, "--device", "N", ORDINAL, ON_TARGET | ON_TUNE,                                  \
           "the number of the GPU to use (default 0)")                                             \
    OPTION(memory, "--memory", "SIZE", MEMORY, ON_STEP | ON_TUNE,                                  \
           "recompute activations until the memory in all fits SIZE (6G, 512M, 4096K or bytes) or "\
           "the activations fit a share of their bytes at the peak (0.5)")                         \
    OPTION(budgets, "--budgets", "LIST", SHARES, ON_PLAN,                                          \
           "the rows of the table of budgets: shares of the activation bytes at the peak, with "   \
           "commas (0.5,0.1)")                                                                     \
    OPTION(checkpoint, "--checkpoint", "PATTERN", TEXT, ON_STEP | ON_TUNE,                         \
           "keep only activations with these names for the backward, and recompute the others: "   \
           "'x.*' keeps one a layer")                                                              \
    OPTION(recompute, "--recompute", "PATTERN", TEXT, ON_STEP | ON_TUNE,                           \
           "recompute values with these names in the backward")                                    \
    OPTION(data, "--data", "FILE", TEXTS, ON_DATA,                                                 \
           "the tokens to train on: the bytes of a text, a .bin of nanoGPT or llm.c, or a .npy; "  \
           "repeatable, or a pattern: 'train_*.bin'. The last tenth is held out. explain: recipe " \
           "auto measures on them; export: the scales of delayed are calibrated on them")          \
    OPTION(tokens, "--tokens", "TYPE", TOKENS, ON_DATA,                                            \
           "the type of the tokens in all files: u16, u32 or bytes (default: by name and header)") \
    OPTION(batches, "--batch", "NAME=FILE", TENSORS, ON_DATA,                                      \
           "instead of --data: batches of the input NAME are rows of the tensor in FILE.npy or "   \
           "FILE.safetensors[:TENSOR]; one for each input of forward")                             \
    OPTION(validation, "--validation", "FILE", TEXTS, ON_TRAIN | ON_EVAL,                          \
           "hold these tokens out instead of the last tenth of --data; repeatable, or a pattern. " \
           "With --batch: NAME=FILE, these rows")                                                  \
    OPTION(weights, "--weights", "FILE", TEXTS, ON_WEIGHTS,                                        \
           "a checkpoint (safetensors) of train --save or of others, or the .index.json of one in "\
           "several files; eval and run also take what export writes; repeatable")                 \
    OPTION(ignore, "--ignore", "PATTERN", TEXTS, ON_WEIGHTS,                                       \
           "pass over the tensors of --weights with these names: 'pooler.*'; repeatable")          \
    OPTION(map, "--map", "FROM=TO", TEXTS, ON_WEIGHTS,                                             \
           "rename tensors of --weights for the model, each by the first map that matches: "       \
           "'bert.*=*' strips a prefix; repeatable")                                               \
    OPTION(allow_missing, "--allow-missing", "PATTERN", TEXTS, ON_WEIGHTS,                         \
           "let these parameters have their initial values if --weights lacks them; repeatable")   \
    OPTION(functions, "--function", "NAME", TEXTS, ON_RUN,                                         \
           "run this function (default eval); repeatable, in order: an output is the input of the "\
           "same name of a later function")                                                        \
    OPTION(inputs, "--input", "NAME=FILE", TEXTS, ON_RUN,                                          \
           "read an input from FILE.npy or FILE.safetensors[:TENSOR]; repeatable")                 \
    OPTION(outputs, "--output", "NAME=FILE", TEXTS, ON_RUN,                                        \
           "write an output to such a file, the last one of that name; repeatable")                \
    OPTION(repeat, "--repeat", "N", COUNT, ON_RUN,                                                 \
           "run all functions N times, and print the median and the least time")                   \
    OPTION(eval_every, "--eval-every", "N", COUNT, ON_TRAIN,                                       \
           "compute the held-out loss after every N steps too: a record `eval` of --json")         \
    OPTION(steps, "--steps", "N", COUNT, ON_TRAIN | ON_COMPILE | ON_RUN | ON_PRINT,                \
           "train: the number of optimizer steps (default 100). The schedule gets this length "    \
           "(elsewhere the default is the text's, else 100)")                                      \
    OPTION(compare, "--compare", "RECIPE", RECIPES, ON_TRAIN | ON_EVAL,                            \
           "do the same under this recipe too, and compare; repeatable")                           \
    OPTION(calibrate, "--calibrate", "N", COUNT, ON_TRAIN | ON_EXPLAIN | ON_EVAL | ON_EXPORT,      \
           "recipe auto: the number of batches to measure on (default 2); delayed with weights "   \
           "of others: the number that scales are calibrated on (default 8)")                      \
    OPTION(budget, "--error-budget", "E", NUMBER, ON_TRAIN | ON_EXPLAIN,                           \
           "recipe auto: the largest relative error of a GEMM's result (default 0.1)")             \
    OPTION(write_rules, "--write-rules", "FILE", TEXT, ON_TRAIN | ON_EXPLAIN,                      \
           "recipe auto: write what was chosen as rules for the text; - is stdout")                \
    OPTION(comm, "--comm", "NAME", TEXT, ON_TRAIN | ON_TRIAGE,                                     \
           "how processes that train together exchange data: none, mpi, openmpi, mpich or nccl "   \
           "(default: mpi under mpirun; nccl under torchrun; else none). On GPUs, mpi brings "     \
           "them together and NCCL moves the data. Each has a part of every batch")                \
    OPTION(n_ranks, "--ranks", "N", RANKS, ON_PRINT | ON_EXPLAIN | ON_PLAN,                        \
           "compile for N processes that train together, each on a batch of this size")            \
    OPTION(zero, "--zero", "STAGE", STAGE, ON_TRAIN | ON_PRINT | ON_EXPLAIN | ON_PLAN,             \
           "what several processes share, each keeping a part: 0 nothing (default), 1 the "        \
           "optimizer's moments, 2 also the gradients, 3 also the parameters; the same bits")      \
    OPTION(reduce_dtype, "--reduce-dtype", "DTYPE", TEXT,                                          \
           ON_TRAIN | ON_PRINT | ON_EXPLAIN | ON_PLAN,                                             \
           "how gradients travel between processes: f32 (default), or bf16, half the bytes")       \
    OPTION(reduce_at, "--reduce-at", "WHEN", TEXT, ON_TRAIN | ON_PRINT | ON_EXPLAIN | ON_PLAN,     \
           "when processes sum their gradients: in each micro_step (default), or once in update")  \
    OPTION(reduce_order, "--reduce-order", "WHO", TEXT,                                            \
           ON_TRAIN | ON_PRINT | ON_EXPLAIN | ON_PLAN,                                             \
           "who adds gradients: ranks (default), in their order, with the same bits in every run; "\
           "or library, MPI or NCCL in an order of its own: bits may differ")                      \
    OPTION(check_ranks, "--check-ranks", "N", PERIOD, ON_TRAIN,                                    \
           "after every N steps compare what all processes have, and name the one that has other " \
           "bits (default 100, on GPUs 1000; 0: never)")                                           \
    OPTION(rank_timeout, "--rank-timeout", "SECONDS", PERIOD, ON_TRAIN,                            \
           "end when a process has waited so long for others, and say which have not come "        \
           "(default 600; 0: wait for ever)")                                                      \
    OPTION(seed, "--seed", "S", SEED, ON_TRAIN | ON_EXPLAIN | ON_RUN,                              \
           "the seed of initial values and batches (default 1)")                                   \
    OPTION(seeds, "--seeds", "N", COUNT, ON_TRAIN,                                                 \
           "train each recipe with N seeds, from --seed on, and show means and their spread")      \
    OPTION(lr, "--lr", "RATE", NUMBER, ON_TRAIN, "replace the optimizer's learning rate")          \
    OPTION(threads, "--threads", "N", THREADS,                                                     \
           ON_TRAIN | ON_EXPLAIN | ON_COMPILE | ON_EVAL | ON_PLAN | ON_RUN | ON_TUNE |             \
               ON_TRIAGE | ON_DOCTOR,                                                              \
           "the number of CPU threads, 1 to 256 (default: all CPUs)")                              \
    OPTION(json, "--json", "FILE", TEXT,                                                           \
           ON_TRAIN | ON_EXPLAIN | ON_COMPILE | ON_EVAL | ON_EXPORT | ON_PLAN | ON_DOCTOR |        \
               ON_INSPECT | ON_RUN | ON_OPS | ON_REPORT | ON_TRIAGE,                               \
           "write JSON Lines; - is stdout")                                                        \
    OPTION(emit, "--emit", "WHAT", TEXT, ON_COMPILE,                                               \
           "what to write: cuda, ptx, cubin or report (default)")                                  \
    OPTION(output, "-o", "FILE", TEXT, ON_COMPILE | ON_EXPORT | ON_REPORT,                         \
           "where to write (compile: default stdout); compile -o NAME.f8x without --emit compiles "\
           "ahead of time for each --target; report: the page")                                    \
    OPTION(trace, "--trace", "FILE", TEXT, ON_REPORT,                                              \
           "write a step of each run as a trace for Perfetto or chrome://tracing")                 \
    OPTION(values, "--values", "NAME=N,...", TEXT, ON_COMPILE,                                     \
           "-o NAME.f8x: the values that dims with a bound may take, 'B=1,2,4 T=64' (default: "    \
           "every value, at most 64 sets)")                                                        \
    OPTION(inference, "--inference", NULL, FLAG, ON_COMPILE,                                       \
           "compile only eval; the first result of forward then need not be a loss")               \
    OPTION(dtype, "--dtype", "TYPE", TEXT, ON_EXPORT,                                              \
           "f32 or bf16: the dtype of parameters that stay out of FP8 (default: the checkpoint's)")\
    OPTION(save, "--save", "FILE", TEXT, ON_TRAIN | ON_RUN,                                        \
           "write a checkpoint (safetensors) at the end, of the run under --recipe with the first "\
           "seed")                                                                                 \
    OPTION(save_state, "--save-state", "FILE", TEXT, ON_TRAIN,                                     \
           "write the bytes of all variables at the end of the run with the first seed")           \
    OPTION(run, "--run", "DIR", TEXT, ON_TRAIN,                                                    \
           "keep the run in this new folder: options, model, decisions, a record of each step, "   \
           "checkpoints")                                                                          \
    OPTION(resume, "--resume", "DIR", TEXT, ON_TRAIN,                                              \
           "go on with the run in this folder from its newest checkpoint, bit for bit; with the "  \
           "options that it has, so FILE.f8 and they need not be given")                           \
    OPTION(stop_at, "--stop-at", "N", COUNT, ON_TRAIN,                                             \
           "end after step N with a checkpoint in the run's folder; --steps stays the schedule's") \
    OPTION(save_every, "--save-every", "N", COUNT, ON_TRAIN,                                       \
           "write a checkpoint into the run's folder after every N steps, not only at the end")    \
    OPTION(keep, "--keep", "K", COUNT, ON_TRAIN,                                                   \
           "keep the newest K checkpoints in the run's folder (default 2)")                        \
    OPTION(checksum_every, "--checksum-every", "N", COUNT, ON_TRAIN,                               \
           "add a checksum of all state to the record of every Nth step (default: of each step "   \
           "with a checkpoint)")                                                                   \
    OPTION(guard, "--guard", "MODE", TEXT, ON_TRAIN,                                               \
           "what to do when a run goes wrong, for example when its loss explodes: off, warn "      \
           "(default), stop, or triage: stop, and say why it went wrong; it needs --run")          \
    OPTION(fingerprint_every, "--fingerprint-every", "N", COUNT, ON_TRAIN,                         \
           "with --run: record hashes of all values that every Nth step writes, by which triage "  \
           "finds the value that a fault changed")                                                 \
    OPTION(bad_step, "--step", "N", COUNT, ON_TRIAGE,                                              \
           "the step that went wrong (default: the first one that the records show as bad)")       \
    OPTION(stats, "--stats", "PATTERN", TEXT, ON_TRAIN,                                            \
           "record statistics of what the GEMMs read and write: 'h.*.x,*.dy' (.x .w .dy, results " \
           ".y .dx .dw); for --json and --run")                                                    \
    OPTION(every, "--every", "N", COUNT, ON_TRAIN,                                                 \
           "--stats: in the first step and in every Nth (default 10)")                             \
    OPTION(stats_recipe, "--stats-recipe", "RECIPE", TEXT, ON_TRAIN,                               \
           "--stats: of operands also what current, rowwise, block or mxfp8 would do to them")     \
    OPTION(dump, "--dump", "PATTERN", TEXT, ON_TRAIN,                                              \
           "write the values, codes and scales of these tensors into the run's folder")            \
    OPTION(dump_steps, "--dump-steps", "FIRST:LAST", TEXT, ON_TRAIN,                               \
           "--dump: in these steps, a file each: dump-STEP.safetensors")                           \
    OPTION(kernels, "--kernels", NULL, FLAG, ON_EXPLAIN | ON_INSPECT,                              \
           "list each kernel with the bytes it reads and writes")                                  \
    OPTION(profile, "--profile", NULL, FLAG, ON_TRAIN,                                             \
           "print the time of each step of the plan at the end")                                   \
    OPTION(no_fuse, "--no-fuse", NULL, FLAG, ON_STEP | ON_EVAL | ON_TUNE,                          \
           "make one kernel per node: the same bits, slower")                                      \
    OPTION(print_after, "--print-after", "PASS", TEXT, ON_PRINT,                                   \
           "compile, and print the module as it is after this pass")                               \
    OPTION(verbose, "-v", NULL, LEVEL, ON_ALL | ON_TUNE | ON_TRIAGE,                               \
           "log what is done on stderr; twice: also each pass and kernel (FP8C_VERBOSE=1, 2)")     \
    OPTION(markdown, "--markdown", NULL, FLAG, ON_OPS, "print the page of the manual")             \
    OPTION(man, "--man", NULL, FLAG, ON_HELP, "print the man page, as roff")                       \
    OPTION(database, "--database", "FILE", TEXT, ON_TUNE,                                          \
           "the tuning database (default: FP8C_TUNING, else tuning.db in the cache's folder)")     \
    OPTION(gemm, "--gemm", "MxNxK:FORMAT", TEXT, ON_TUNE,                                          \
           "tune this GEMM alone; its operands are f32, bf16, f8e4m3 or f8e5m2")                   \
    OPTION(only, "--only", "PATTERN", TEXT, ON_TUNE, "tune only steps with these names")           \
    OPTION(time, "--time", "SECONDS", NUMBER, ON_TUNE, "start no timing after this many seconds")  \
    OPTION(runs, "--runs", "N", COUNT, ON_TUNE, "time each candidate N times (default 7)")         \
    OPTION(same_bits, "--same-bits", NULL, FLAG, ON_TUNE,                                          \
           "leave out other algorithms, because they change the bits of results")                  \
    OPTION(again, "--again", NULL, FLAG, ON_TUNE,                                                  \
           "time again what the database has timings of")                                          \
    OPTION(rows_out, "--export", "FILE", TEXT, ON_TUNE, "write the database's rows as JSON Lines") \
    OPTION(rows_in, "--import", "FILE", TEXT, ON_TUNE,                                             \
           "add the rows of such a file to the database")                                          \
    OPTION(merge, "--merge", "FILE", RECIPES, ON_TUNE,                                             \
           "add the rows of another database; repeatable")                                         \
    OPTION(burn, "--burn", "SECONDS", NUMBER, ON_DOCTOR,                                           \
           "instead: put the CPU, then each GPU under load for so long, and compare each result "  \
           "with a known answer; exit with 1 if one was wrong")                                    \
    OPTION(dims, "-D", "NAME=N", DIM, ON_ALL | ON_TUNE,                                            \
           "replace the value or the bound of a dim; repeatable")

/* Options that set a field of the table above. */
#define CLI_MORE_OPTIONS(OPTION)                                                                   \
    OPTION(verbose, "--verbose", NULL, LEVEL, ON_ALL | ON_TUNE | ON_TRIAGE, "the same as -v")      \
    OPTION(rules, "--bf16-layers", "FIRST,LAST", LAYERS, ON_ALL,                                   \
           "keep this many first and last layers in bf16, as --rule 'layers FIRST, LAST = bf16'")  \
    OPTION(target, "--target", "TARGET", TEXT, ON_INSPECT, "show only the code for this target")   \
    OPTION(json, "--json", "FILE", TEXT, ON_TUNE, "write JSON Lines; - is stdout")                 \
    OPTION(target, "--target", "TARGET,...", TEXT, ON_DOCTOR,                                      \
           "show and test only these, and exit with 1 unless all of them work (default: all, and " \
           "cpu must work)")

typedef const char *cli_TEXT, *cli_TOKENS;
typedef int64_t cli_COUNT;
typedef int32_t cli_THREADS, cli_RANKS, cli_STAGE;
typedef int32_t cli_ORDINAL, cli_PERIOD;
typedef double cli_NUMBER;
typedef uint64_t cli_SEED;
typedef bool cli_FLAG;
typedef int32_t cli_LEVEL;
typedef struct cli_MEMORY {
    int64_t bytes;
    double share; /* one of the two; the other is 0 */
} cli_MEMORY;
typedef struct cli_SHARES {
    double share[CLI_MAX_SHARES]; /* the largest first */
    size_t n;
} cli_SHARES;
typedef struct cli_RECIPES {
    const char *text[CLI_MAX_RECIPES];
    size_t n;
} cli_RECIPES;
typedef struct cli_TEXTS {
    const char *text[CLI_MAX_TEXTS];
    size_t n;
} cli_TEXTS, cli_TENSORS;
typedef struct cli_DIM {
    fp8c_dim dim[CLI_MAX_DIMS];
    size_t n;
} cli_DIM;
typedef struct cli_RULE {
    struct {
        const char *origin, *text; /* text NULL: the rule is `layers first, last = bf16` */
        int64_t first, last;
    } rule[CLI_MAX_RULES];
    size_t n;
} cli_RULE;
typedef cli_RULE cli_LAYERS;

enum {
#define OPTION(field, name, argument, kind, on, help) CLI_AT_##field,
    CLI_OPTIONS(OPTION)
#undef OPTION
    CLI_N_OPTIONS
};

typedef struct cli {
    const char *command, *file;
    cli_TEXTS files; /* `file` and those that follow it */
    char canonical[1 + CLI_MAX_RECIPES][CLI_RECIPE]; /* recipe and compare point into this */
#define OPTION(field, name, argument, kind, on, help) cli_##kind field;
    CLI_OPTIONS(OPTION)
#undef OPTION
    struct cli_ranks *ranks; /* the ranks that this process is one of (cmd_ranks.h), or NULL */
    fp8c_dim part;           /* of them: a dim, and what of it this rank has; no name: all */
    const char *given[CLI_N_OPTIONS]; /* the name under which an option was given, or NULL */
} cli;

/* ---- the tables as data (cmd_common.c) ---- */

typedef struct cli_command {
    const char *name, *operand, *help; /* operand: NULL for none */
    int bit;
} cli_command;

typedef struct cli_option {
    const char *name, *argument, *help; /* argument: NULL for none; help: see cli_option_help */
    int on;                             /* the bits of the commands that take it */
} cli_option;

/* Both arrays end with an entry whose name is NULL. */
extern const cli_command cli_commands[];
extern const cli_option cli_options[];

/* NULL if there is no command of that name. */
const cli_command *cli_find_command(const char *name);
/* The option's help. %s in it is replaced, in `buf`, by the GPUs of --target or by the names of all
 * recipes. */
enum { CLI_HELP_TEXT = 512 };
const char *cli_option_help(const cli_option *option, char buf[CLI_HELP_TEXT]);
/* Writes the names that begin with `start` into `buf` as "a, b (default) or c", and returns it.
 * `usual` is the default, or NULL. */
const char *cli_names(const char *(*name)(int index), const char *start, const char *usual,
                      char buf[CLI_HELP_TEXT]);
/* Print what `fp8c help` and `fp8c COMMAND --help` show (cmd_help.c). */
void cli_help(FILE *to);
void cli_help_command(const cli_command *command);
/* Prints the man page on stdout (cmd_man.c). */
int cli_man(void);

/* ---- the commands: each returns an exit code ---- */
#define COMMAND(name, bit, operand, help) int cmd_##name(const cli *c);
CLI_COMMANDS(COMMAND)
#undef COMMAND

/* ---- shared (cmd_common.c) ---- */

extern const char cli_default_recipe[]; /* c->recipe points here when --recipe is not given */
/* Refuses options that the command would not use: true after a message on stderr (cmd_unused.c). */
bool cli_refuses_unused(const cli *c, int bit);
/* Whether a path ends in .f8x, and fp8c compile -o NAME.f8x (cmd_compile_file.c). */
bool cli_is_package(const char *path);
int cli_compile_package(const cli *c);
/* Reads a whole file, and puts a NUL behind it. The caller frees the result. NULL after a message
 * on stderr. */
char *cli_read_file(const char *path, size_t *size);
/* Makes the recipes of --recipe and --compare canonical. CLI_FAILED after a message on stderr if a
 * text is not a recipe. */
int cli_read_recipes(cli *c);
/* Rule `index` of c->rules as text. A rule given as numbers is written into `buf`. */
const char *cli_rule(const cli *c, size_t index, char *buf, size_t size);
/* Creates a context and parses c->file. The rules of c->rules follow those of the text. false after
 * a message on stderr; then there is nothing to destroy. */
bool cli_load(const cli *c, fp8c_context **ctx, fp8c_module **module);
/* Prints the context's message on stderr, unless a signal stopped the call: then cli_settle prints.
 * Returns CLI_FAILED. */
int cli_fail(const fp8c_context *ctx);
/* Warns of a schedule that got the default length, as neither the text nor --steps give one. Call
 * it where the schedule is to be used. */
void cli_note_steps(const cli *c);
/* The options for a program that runs: a CUDA target opens its device. The module was loaded. */
fp8c_compile_options cli_compile_options(const cli *c, const char *recipe);
/* The options for a listing: a CUDA target that is named by its architecture needs no device. */
fp8c_compile_options cli_listing_options(const cli *c, const char *recipe);
/* An fp8c_write_fn whose `user` is a FILE. */
int cli_write_file(void *file, const char *text, size_t size);
/* Writes what is left in the buffer of stdout. Returns `code`; CLI_FAILED after a message on stderr
 * if something could not be written and nothing else failed. */
int cli_flush_stdout(int code);
/* Creates a context from the environment and cli_context_options. NULL after a message on stderr.
 */
fp8c_context *cli_context(void);
/* The program's own buffer for the port of that name; NULL if there is no such port. */
void *cli_buffer(fp8c_program *program, int function, fp8c_side side, const char *name);
/* Writes a type into `text` as "f32[8, 256]", and returns it. */
enum { CLI_TYPE_TEXT = 160 };
const char *cli_type(const fp8c_type *type, char text[CLI_TYPE_TEXT]);

/* The recipe that gaps are relative to, as an index for cli_recipe: bf16 if it is there, else the
 * first --compare; 0 if there is no --compare. */
size_t cli_baseline(const cli *c);
/* Index 0 is --recipe, index i the i-th --compare. */
const char *cli_recipe(const cli *c, size_t index);
/* The width of the longest recipe's text, and at least `least`. */
int cli_recipe_width(const cli *c, int least);

/* ---- progress and log (cmd_progress.c) ---- */

/* Called before the command runs. Sets what cli_context_options returns. bar: show the progress of
 * a long call, if stderr is a terminal. */
void cli_watch(int32_t verbose, bool bar);
const fp8c_context_options *cli_context_options(void);
/* How many columns a line on the terminal may have. */
int cli_columns(void);

/* ---- signals (cmd_signal.c has what they do) ---- */

/* Watches for signals from here on: the first thing that main does. */
void cli_signals(void);
/* The number of the signal that was noted: the command should end soon. 0: none. */
int cli_interrupted(void);
/* Whether a call of the library runs that will ask whether to continue. */
void cli_ask(bool asking);
/* From now on signals are only noted. `notice` is said at once; it must live on. NULL: nothing. */
void cli_hold(const char *notice);
/* What is said when a signal ends the process, instead of "interrupted". It must live on. */
void cli_interrupt_text(const char *text);
/* Notes a signal that another rank got. */
void cli_note_signal(int number);
/* What f8_file_begin gets: the files that a signal removes. */
f8_temporaries *cli_temporaries(void);
/* Keeps the context alive up to cli_settle, or up to the next context, for a signal. */
bool cli_keep(fp8c_context *ctx);
/* Ends the command: signals are no longer held. Returns `code`, or after a signal its exit code,
 * having said the text. */
int cli_settle(int code);

/* Writes JSON Lines. With path NULL nothing is written and every call succeeds. A failed write is
 * remembered: cli_json_close reports it on stderr and returns false. */
typedef struct cli_json {
    FILE *file;
    const char *path;
    bool failed;
    int error; /* errno of the write that failed */
} cli_json;
bool cli_json_open(cli_json *j, const char *path);
/* Takes over the reference. A record that is NULL counts as a failed write. */
void cli_json_record(cli_json *j, json_t *record);
bool cli_json_close(cli_json *j);

/* Prints the failure of a file on stderr, and returns false. */
bool cli_file_fail(const f8_diag *diag);

/* A text that goes to the file `path`, or to stdout if that is NULL or "-". A regular file gets it
 * whole at the end, or keeps what it had. cli_text_end says on stderr why nothing, or not
 * everything, was written, and then returns false. `wanted`: false after a failure, which leaves
 * the file as it was. */
typedef struct cli_text {
    const char *path;
    FILE *to; /* to write to; NULL: it can't be opened, which cli_text_end tells */
    char *bytes;
    size_t size;
    bool gathered; /* in `bytes` until the end */
} cli_text;
void cli_text_open(cli_text *t, const char *path);
bool cli_text_end(cli_text *t, bool wanted);
bool cli_json_to_stdout(const cli *c); /* if so, stdout carries nothing but records */
json_t *cli_json_number(double x);     /* NaN and infinities become null: JSON has neither */

/* Print a line for each GEMM of a linear, and for each step of a function, as a table to `to`
 * (unless NULL) and as records. explain and inspect share them (cmd_explain.c). */
void cli_print_decisions(const fp8c_program *p, FILE *to, cli_json *json);
void cli_print_steps(const fp8c_program *p, int function, FILE *to, cli_json *json);
/* The same for each collective that moves bytes, and for the steps beside which it does
 * (cmd_collectives.c). */
void cli_print_collectives(const fp8c_program *p, FILE *to, cli_json *json);

#endif
