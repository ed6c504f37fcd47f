/* The folder of `fp8c train --run` and `--resume`: what the command line adds to frontend/run/. */
#ifndef F8_CMD_FOLDER_H
#define F8_CMD_FOLDER_H

#include "frontend/cli/data.h"
#include "frontend/run/run.h"

enum { CLI_KEEP = 2 }; /* the default of --keep */

typedef struct cli_folder {
    const char *path; /* NULL: there is none, and nothing below is used */
    bool resumed;
    f8_run run;
    json_t *options;    /* of the run so far; the texts of a resumed run's options */
    f8_run_position at; /* of the newest checkpoint */
    char *text;         /* the module's */
    size_t n_text;
    int64_t parameters;  /* the module's */
    int64_t steps;       /* --steps of the run so far */
    char file[PATH_MAX]; /* module.f8 */
    FILE *dropped;       /* while a checkpoint of another recipe is loaded */
    bool triage;         /* it is to be triaged, once it is closed */
    bool failed;         /* a file could not be written, and stderr says so */
} cli_folder;

/* A record that steps.jsonl has of a step before the checkpoint. */
typedef void (*cli_folder_each)(void *user, const json_t *record);

/* Whether the options ask for what a folder can't have; a message on stderr says so. */
bool cli_folder_refused(const cli *c);
/* Opens the folder of --resume and gives `c` the options of the run; or checks that of --run. false
 * after a message on stderr. Close it in any case; the options may point into it. */
bool cli_folder_open(cli_folder *f, cli *c);
/* Reads the folder of a run that nobody is to change, and gives `c` its options. As above. */
bool cli_folder_look(cli_folder *f, cli *c, const char *path);
void cli_folder_close(cli_folder *f);
/* Takes the module that was loaded, again if it got other rules. That of --resume must be the
 * run's. */
bool cli_folder_module(cli_folder *f, const fp8c_module *module);
/* Whether this machine, with these data, gives the bits that the run has, as far as can be told.
 * false after a message on stderr; another version of a library is warned of. */
bool cli_folder_fits(const cli_folder *f, fp8c_context *ctx, const fp8c_program *program,
                     const f8_data *data);
/* Makes the folder of --run, with a first checkpoint of the initialized program; or gives it the
 * values of the newest checkpoint, and `each` the records up to there. f->at.step is where the
 * training begins. false after a message on stderr. */
bool cli_folder_start(cli_folder *f, const cli *c, fp8c_context *ctx, fp8c_program *program,
                      const f8_data *data, cli_folder_each each, void *user);
/* Writes a record. Takes over the reference. After a failure, which is said on stderr once, false.
 */
bool cli_folder_record(cli_folder *f, json_t *record);
/* Writes the checkpoint of a step unless there is one. batch: the number of the next batch. */
bool cli_folder_save(cli_folder *f, const cli *c, fp8c_program *program, int64_t step,
                     uint64_t batch);
/* Writes a file whole or not at all. false after a message on stderr. */
bool cli_folder_put(cli_folder *f, const char *name, const char *text);
/* The checksum of all state, as a value of a record. NULL after a message on stderr. */
json_t *cli_folder_checksum(cli_folder *f, fp8c_program *program);
/* Whether the options ask for a checkpoint, and for a checksum, after a step. `last`: the training
 * ends there. */
bool cli_folder_saves(const cli_folder *f, const cli *c, int64_t step, bool last);
bool cli_folder_sums(const cli_folder *f, const cli *c, int64_t step, bool last);

/* A number as text that has all its bits: "0x1.8p+1", "inf", "nan". */
const char *cli_hex(double x, char text[40]);

#endif
