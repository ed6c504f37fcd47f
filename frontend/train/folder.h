/* The folder of a training run as the training uses it: what it puts there, and how it goes on from
 * there. frontend/run/ reads and writes the files. */
#ifndef F8_TRAIN_FOLDER_H
#define F8_TRAIN_FOLDER_H

#include "frontend/run/run.h"
#include "frontend/train/data/data.h"
#include "frontend/train/train.h"

typedef struct f8_folder {
    f8_train *t;
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
    bool failed;         /* a file could not be written, and that was said */
} f8_folder;

/* A record that steps.jsonl has of a step before the checkpoint. */
typedef void (*f8_folder_each)(void *user, const json_t *record);

/* ---- start.c ---- */

/* Opens the folder of t->options->resume and gives the options those of the run; or checks that of
 * `run`. t->file becomes the run's, if it was NULL. Close it in any case; the options may point
 * into it. */
bool f8_folder_open(f8_folder *f, f8_train *t);
/* Reads the folder of a run that nobody is to change, and gives the options those of the run. As
 * above. */
bool f8_folder_look(f8_folder *f, f8_train *t, const char *path);
/* Makes the folder of --run, with a first checkpoint of the initialized program; or gives it the
 * values of the newest checkpoint, and `each` the records up to there. f->at.step is where the
 * training begins. */
bool f8_folder_start(f8_folder *f, fp8c_context *ctx, fp8c_program *program, const f8_data *data,
                     f8_folder_each each, void *user);

/* ---- folder.c ---- */

void f8_folder_close(f8_folder *f);
/* Takes the module that was loaded, again if it got other rules. That of --resume must be the
 * run's. */
bool f8_folder_module(f8_folder *f, const fp8c_module *module);
/* Writes a record. Takes over the reference. After a failure, which is said once, false. */
bool f8_folder_record(f8_folder *f, json_t *record);
/* The same, and gives it to the caller. false: either could not be written. */
bool f8_folder_both(f8_folder *f, json_t *record);
/* Writes the checkpoint of a step unless there is one. batch: the number of the next batch. */
bool f8_folder_save(f8_folder *f, fp8c_program *program, int64_t step, uint64_t batch);
/* Writes a file whole or not at all. */
bool f8_folder_put(f8_folder *f, const char *name, const char *text);
/* The checksum of all state, as a value of a record. NULL after `failed`. */
json_t *f8_folder_checksum(f8_folder *f, fp8c_program *program);
/* Whether the options ask for a checkpoint, and for a checksum, after a step. `last`: the training
 * ends there. */
bool f8_folder_saves(const f8_folder *f, int64_t step, bool last);
bool f8_folder_sums(const f8_folder *f, int64_t step, bool last);

/* {"fp8c": "0.1.0", "LLVM 19": "19.1.7, for znver4", ...}: of the components that the target uses.
 * NULL after `failed`. */
json_t *f8_folder_versions(f8_folder *f, fp8c_context *ctx, const fp8c_program *program);
/* The records `decision` of the program, and the memory of its micro-step as JSON: "" if the target
 * has no plan. The caller frees the text. NULL after `failed`. */
char *f8_folder_decisions(f8_folder *f, const fp8c_program *program);
char *f8_folder_plan(f8_folder *f, const fp8c_program *program);

/* ---- resume.c ---- */

/* Gives the options those of the run; those that are given must fit (options.def). */
bool f8_folder_take_options(f8_folder *f);
/* Whether this machine, with these data, gives the bits that the run has, as far as can be told.
 * Another version of a library is said. */
bool f8_folder_fits(f8_folder *f, fp8c_context *ctx, const fp8c_program *program,
                    const f8_data *data);
/* Goes on from the newest checkpoint: the part of f8_folder_start for a run that is there. */
bool f8_folder_go_on(f8_folder *f, fp8c_context *ctx, fp8c_program *program, const f8_data *data,
                     f8_folder_each each, void *user);

#endif
