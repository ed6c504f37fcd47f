/* The command line: the tables of commands and options, and what the commands share. */
#ifndef F8_CLI_H
#define F8_CLI_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#include "frontend/fp8c.h"
#include "frontend/fp8c_diagnose.h"
#include "frontend/fp8c_machine.h"
#include "frontend/fp8c_ranks.h"
#include "frontend/fp8c_tune.h"
#include "frontend/train/options.h"
#include "frontend/records/records.h"
#include "ir/base/file.h"
#include "ir/base/type.h"

enum {
    CLI_DONE = 0,
    CLI_FAILED = 1,
    CLI_USAGE = 2,
    CLI_SIGNALLED = 128, /* plus the number of the signal, as shells do: 130 or 143 */
    CLI_MAX_SHARES = 64,
    CLI_RECIPE = 256 /* bytes of a recipe in canonical text */
};

/* The bits of the commands (commands.def), and of some together. */
enum {
#define COMMAND(name, bit, operand, help) CLI_AT_##bit,
#include "frontend/cli/commands.def"
};
enum {
#define COMMAND(name, bit, operand, help) bit = 1 << CLI_AT_##bit,
#include "frontend/cli/commands.def"
    ON_STEP = ON_PRINT | ON_TRAIN | ON_EXPLAIN | ON_COMPILE | ON_PLAN,
    ON_WEIGHTS = ON_EVAL | ON_EXPORT | ON_RUN,
    ON_ALL = ON_STEP | ON_WEIGHTS | ON_CHECK, /* the commands that read a module */
    ON_TARGET = ON_ALL & ~ON_EXPORT,
    ON_DATA = ON_TRAIN | ON_EXPLAIN | ON_EVAL | ON_EXPORT
};

typedef int32_t f8_option_RANKS;
typedef struct f8_option_SHARES {
    double share[CLI_MAX_SHARES]; /* the largest first */
    size_t n;
} f8_option_SHARES;

/* The ways to work (ways.def) in which an option is unused, as bits. */
enum {
#define WAY(way, on, when, who) CLI_AT_##way,
#include "frontend/cli/ways.def"
};
enum {
    USED = 0,
#define WAY(way, on, when, who) way = 1 << CLI_AT_##way,
#include "frontend/cli/ways.def"
};

enum {
#define OPTION(field, name, argument, kind, on, where, unused, help) CLI_AT_##field,
#define OTHER_HELP(field, name, argument, on, help)
#include "frontend/cli/options.def"
    CLI_N_OPTIONS
};

typedef struct cli {
    const char *command, *file;
    f8_option_TEXTS files;                           /* `file` and those that follow it */
    char canonical[1 + F8_MOST_RECIPES][CLI_RECIPE]; /* recipe and compare point into this */
    union {
        f8_train_options train;
        struct { /* the same, by their names */
#define OPTION(field, name, kind, sets, goes_on, ranks, folder, api) f8_option_##kind field;
#include "frontend/train/options.def"
#undef OPTION
        };
    };
#define TRAINS(kind, field)
#define OWN(kind, field) f8_option_##kind field;
#define OPTION(field, name, argument, kind, on, where, unused, help) where(kind, field)
#define OTHER_HELP(field, name, argument, on, help)
#include "frontend/cli/options.def"
#undef TRAINS
#undef OWN
    struct f8_ranks *ranks;  /* the ranks that this process is one of, or NULL */
    fp8c_dim part;           /* of them: a dim, and what of it this rank has; no name: all */
    const char *given[CLI_N_OPTIONS]; /* the name under which an option was given, or NULL */
} cli;

/* ---- the tables as data (tables.c) ---- */

typedef struct cli_command {
    const char *name, *operand, *help; /* operand: NULL for none */
    int bit;
} cli_command;

typedef struct cli_option {
    const char *argument, *help; /* argument: NULL for none; help: see cli_option_help */
    int at;                      /* CLI_AT_x */
    int on;                      /* the bits of the commands that take it */
    int trains;                  /* F8_TRAIN_AT_x; -1: it is no option of a training */
    int unused;
    const char *name, *also; /* also: its other name, or NULL */
} cli_option;

/* Both arrays end with an entry whose name is NULL. The first CLI_N_OPTIONS options are the rows of
 * the table in its order; behind them are those that other commands take, with a help of their own.
 */
extern const cli_command cli_commands[];
extern const cli_option cli_options[];

/* NULL if there is no command of that name. */
const cli_command *cli_find_command(const char *name);
/* For messages: " (did you mean 'train'?)" or "". Returns buf. */
const char *cli_suggest_command(const char *name, char *buf, size_t size);
/* The option's help. %s in it is replaced, in `buf`, by the GPUs of --target or by the names of all
 * recipes. */
enum { CLI_HELP_TEXT = 512 };
const char *cli_option_help(const cli_option *option, char buf[CLI_HELP_TEXT]);
/* Writes the names that begin with `start` into `buf` as "a, b (default) or c", and returns it.
 * `usual` is the default, or NULL. */
const char *cli_names(fp8c_name_kind kind, const char *start, const char *usual,
                      char buf[CLI_HELP_TEXT]);
/* The next option that a command takes. o NULL: the first; NULL: there is no other. */
const cli_option *cli_next_option(const cli_option *o, int bit);
/* Prints a format in which each % stands for the next text, escaped: a character that begins an
 * entry of `of` is replaced by the rest of the entry. A text that begins with one of `first` gets
 * "\\&" in front. */
enum { CLI_ESCAPES = 6 };
typedef struct cli_escapes {
    const char *first, *of[CLI_ESCAPES];
} cli_escapes;
void cli_put(const cli_escapes *e, const char *format, ...);
/* Print what `fp8c help` and `fp8c COMMAND --help` show (cmd_help.c). */
/* The commit that this was built from, "1a2b3c4d5e6f" or, of edited files, "1a2b3c4d5e6f-dirty"; "":
 * there was no repository. */
extern const char cli_commit[];
void cli_help(FILE *to);
void cli_help_command(const cli_command *command);
/* Prints the man page on stdout (man.c). */
int cli_man(void);

/* ---- the commands: each returns an exit code ---- */
#define COMMAND(name, bit, operand, help) int cmd_##name(const cli *c);
#include "frontend/cli/commands.def"

/* ---- words (messages.c) ---- */

/* Prints, and returns how much. NULL takes nothing. What a text quotes may have control characters:
 * but for newlines and tabs they become question marks, here and in messages. */
int cli_say(FILE *to, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Prints a line on stderr. */
void cli_message(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Print "WHERE: error: ..." on stderr (where NULL: "error: ..."), and return false. */
bool cli_error(const char *where, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool cli_file_fail(const f8_diag *diag);
/* Prints that the command line is wrong: "fp8c COMMAND: ...; see fp8c COMMAND --help". Returns
 * CLI_USAGE. */
int cli_usage(const cli *c, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- shared (common.c) ---- */

/* Prints the context's message on stderr, unless a signal stopped the call: then cli_settle prints.
 * Returns CLI_FAILED. */
int cli_fail(const fp8c_context *ctx);
/* Whether a call of the library did well. false after its message. */
bool cli_ok(const fp8c_context *ctx, fp8c_status status);
/* The same where the diag may have the message instead. Of a signal nothing is said here. */
bool cli_done(const fp8c_context *ctx, fp8c_status status, const f8_diag *diag);
/* Creates a context from the environment and cli_context_options. NULL after a message on stderr.
 */
fp8c_context *cli_context(void);
/* Refuses options that the command would not use: true after a message on stderr (unused.c). */
bool cli_refuses_unused(const cli *c, int bit);
/* Whether a path ends in .f8x, and whether a list, with commas, has a name. */
bool cli_is_package(const char *path);
bool cli_lists(const char *list, const char *name);
/* Whether --function names one of the two. */
bool cli_asks_for(const cli *c, const char *a, const char *b);
/* Makes the recipes of --recipe and --compare canonical. CLI_FAILED after a message on stderr if a
 * text is not a recipe. */
int cli_read_recipes(cli *c);
/* Index 0 is --recipe, index i the i-th --compare. */
const char *cli_recipe(const cli *c, size_t index);
/* The recipe that gaps are relative to, as such an index: bf16 if it is there, else the first
 * --compare; 0 if there is no --compare. */
size_t cli_baseline(const cli *c);
/* The width of the longest recipe's text, and at least `least`. */
int cli_recipe_width(const cli *c, int least);

/* ---- what commands write (output.c) ---- */

/* Writes JSON Lines. With path NULL nothing is written and every call succeeds. A failed write is
 * remembered: cli_json_close reports it on stderr and returns false. */
typedef struct cli_json {
    FILE *file;
    const char *path;
    bool begun, failed;
    int error; /* errno of the write that failed */
} cli_json;
/* The file keeps what it has until the first record. */
bool cli_json_open(cli_json *j, const char *path);
/* Takes over the reference. A record that is NULL counts as a failed write. */
void cli_json_record(cli_json *j, json_t *record);
bool cli_json_close(cli_json *j);
bool cli_json_to_stdout(const cli *c); /* if so, stdout carries nothing but records */

/* Where tables go: stdout, or NULL if stdout is for records. */
FILE *cli_table(const cli *c);
static inline double cli_mib(int64_t bytes)
{
    return (double)bytes / (1 << 20);
}

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
/* Writes what is left in the buffer of stdout. Returns `code`; CLI_FAILED after a message on stderr
 * if something could not be written and nothing else failed. */
int cli_flush_stdout(int code);

/* ---- a command at work (model.c) ---- */

/* Creates a context and parses c->file. The rules of c->rules follow those of the text. false after
 * a message on stderr; then there is nothing to destroy. */
bool cli_load(const cli *c, fp8c_context **ctx, fp8c_module **module);
/* Warns of a schedule that got the default length, as neither the text nor --steps give one. Call
 * it where the schedule is to be used. */
void cli_note_steps(const cli *c);
/* The options for a program that runs: a CUDA target opens its device. The module was loaded. */
fp8c_compile_options cli_compile_options(const cli *c, const char *recipe);
/* The options for a listing: a CUDA target that is named by its architecture needs no device. */
fp8c_compile_options cli_listing_options(const cli *c, const char *recipe);

/* What most commands work with. */
typedef struct cli_job {
    const cli *c;
    fp8c_context *ctx;
    fp8c_module *module;   /* of c->file, if it is a text */
    fp8c_program *program; /* what the command made of it */
    FILE *to;              /* as cli_table gives it */
    cli_json json;
} cli_job;
/* A whole command: makes a context, with `loads` loads c->file, and opens --json. `work` then says
 * whether all went well; if not, stderr has a message. Returns the exit code. */
int cli_work(const cli *c, bool loads, bool (*work)(cli_job *j));
/* Closes the records and destroys what there is. Returns the exit code. */
int cli_end(cli_job *j, bool ok);
/* Makes the program. false after a message on stderr. */
bool cli_compile(cli_job *j, const fp8c_compile_options *options);

/* ---- progress and log (progress.c) ---- */

/* Called before the command runs. Sets what cli_context_options returns. bar: show the progress of
 * a long call, if stderr is a terminal. */
void cli_watch(int32_t verbose, bool bar);
const fp8c_context_options *cli_context_options(void);
/* How many columns a line on the terminal may have. */
int cli_columns(void);

/* ---- signals (signal.c has what they do) ---- */

/* Watches for signals from here on: the first thing that main does. */
void cli_signals(void);
/* The number of the signal that was noted: the command should end soon. 0: none. */
int cli_interrupted(void);
/* Whether a call of the library runs that will ask whether to continue. */
void cli_ask(bool asking);
/* From now on signals are only noted. `notice` is said at once; it must live on. NULL: nothing. */
void cli_hold(const char *notice);
/* In a process that was just forked: from now on, also behind an exec, SIGTERM ends it when its
 * parent ends. false: the parent has ended already. Async-signal-safe. */
bool cli_end_with(pid_t parent);
/* What is said when a signal ends the process, instead of "interrupted"; "": nothing. It must live
 * on. */
void cli_interrupt_text(const char *text);
/* Notes a signal that another rank got. */
void cli_note_signal(int number);
/* What f8_file_begin gets: the files that a signal removes. */
f8_temporaries *cli_temporaries(void);
/* The context whose unfinished files a signal removes. It stays alive until cli_settle or the next
 * call of this, though the command destroys it before: a signal may come at any time. False: out of
 * memory. */
bool cli_keep(fp8c_context *ctx);
/* Ends the command: signals are no longer held. Returns `code`, or after a signal its exit code,
 * having said the text. */
int cli_settle(int code);

/* ---- what several commands print ---- */

/* Burns each device that --target names: the CPU and all GPUs, if it names none. `before` is called
 * before each. false if anything was wrong. (burn.c) */
bool cli_burn(cli_job *j, fp8c_doctor *doctor, void (*before)(void *user, const char *what),
              void *user);

/* Print a line for each GEMM of a linear, and for each step of a function, as a table to `to`
 * (unless NULL) and as records. explain and inspect share them (cmd_explain.c). */
void cli_print_decisions(const fp8c_program *p, FILE *to, cli_json *json);
void cli_print_steps(const fp8c_program *p, int function, FILE *to, cli_json *json);
/* The same for each collective that moves bytes, and for the steps beside which it does
 * (steps.c). */
void cli_print_collectives(const fp8c_program *p, FILE *to, cli_json *json);
/* Whether a step is a collective that moves bytes. */
bool cli_moves(const fp8c_step *s);
/* Prints where the time of a program went, in so many turns, as f8_profile_make has it; and all of
 * it as records, which have the fields of `begin` (taken over; NULL: none). Without --profile
 * nothing happens. false after a message on stderr. (profile.c) */
bool cli_profile(const cli *c, const fp8c_program *program, f8_profile_runs runs, const void *user,
                 int except, const char *turn, double turns, cli_json *json, json_t *begin);

#endif
