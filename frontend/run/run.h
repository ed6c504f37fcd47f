/* The folder of a training run: what it was given, what it decided, a record of each step, and
 * checkpoints to go on from. README.md says what the files hold. Nothing here prints. Internal to
 * frontend/.
 *
 *     f8_run_create(&run, folder, list, &diag);       f8_run_open(&run, folder, list, &diag);
 *     f8_run_begin(&run, program, ..., &diag);        f8_run_load(&run, program, ..., &diag);
 *                                                     f8_run_continue(&run, step, ..., &diag);
 *     f8_run_record(&run, record, &diag);    after each step
 *     f8_run_save(&run, program, &at, &diag);
 *     f8_run_close(&run);
 *
 * One process writes a folder at a time. A failure leaves what was there, and no half file. */
#ifndef F8_RUN_H
#define F8_RUN_H

#include <limits.h>

#include "frontend/checkpoint/load.h"
#include "ir/base/hash.h"

enum { F8_RUN_VERSION = 1, F8_RUN_HASH = 33 }; /* of the folder; bytes of a hash as text */

/* All zeros but for the descriptors, which are -1: closed. */
typedef struct f8_run {
    const char *folder;    /* as given; borrowed */
    f8_temporaries *list;  /* borrowed */
    int lock, steps;       /* descriptors of the files `lock` and `steps.jsonl` */
    int64_t steps_size;    /* the bytes of whole records */
    json_t *info;          /* run.json */
    bool made, unfinished; /* the folder is new; it is not yet a run */
    bool follows;          /* another process writes the folder: see f8_run_follow */
    char path[PATH_MAX];   /* of the last file that a call used: messages point to it */
} f8_run;

#define F8_RUN_CLOSED ((f8_run){.lock = -1, .steps = -1})

/* What a checkpoint says of where it was made. */
typedef struct f8_run_position {
    int64_t step; /* steps that are finished */
    uint64_t seed;
    uint64_t batch;     /* the number of the next batch */
    const char *recipe; /* canonical */
    int64_t keep;       /* f8_run_save: how many checkpoints are kept */
    int64_t before;     /* f8_run_save: one from before this step is kept, too; 0: none */
    char module[F8_RUN_HASH];
} f8_run_position;

/* Whether a folder could be taken: it is empty, or is not there. */
f8_status f8_run_free(f8_run *r, const char *folder, f8_diag *diag);
/* Make a folder, or take an empty one, and lock it. Close `r` also after a failure. A run that was
 * not begun leaves nothing behind. */
f8_status f8_run_create(f8_run *r, const char *folder, f8_temporaries *list, f8_diag *diag);
/* Open the folder of a run and lock it. F8_ERR_INPUT: it is none, or none of this version. Files
 * that a killed process was writing are removed. */
f8_status f8_run_open(f8_run *r, const char *folder, f8_temporaries *list, f8_diag *diag);
/* Read run.json of a folder that another process may use: nothing is locked, nothing changes. The
 * checks are those of f8_run_open. Close `r` also after a failure. */
f8_status f8_run_look(f8_run *r, const char *folder, f8_diag *diag);
/* Whether the folder is a run's: it has a run.json. */
bool f8_run_is_there(const char *folder);
/* Whether a process has the folder locked. */
bool f8_run_is_used(const char *folder);
/* Read a file of the folder that holds one JSON value, which the caller owns. NULL: there is no
 * such file. F8_ERR_INPUT: it is not JSON. */
f8_status f8_run_json(f8_run *r, const char *name, json_t **out, f8_diag *diag);
/* Of several processes that train together, rank 0 writes the folder. The others call this, and
 * f8_run_put, f8_run_record and f8_run_continue then do nothing; f8_run_begin and f8_run_save give
 * rank 0 what they have of the variables. Read run.json if `there`: it is a run that goes on. */
f8_status f8_run_follow(f8_run *r, const char *folder, bool there, f8_diag *diag);
/* Write a file, whole or not at all; run.json from r->info. */
f8_status f8_run_put(f8_run *r, const char *name, const char *text, f8_diag *diag);
f8_status f8_run_put_info(f8_run *r, f8_diag *diag);
/* Unlock and close everything. */
void f8_run_close(f8_run *r);
/* The path of a file in the folder, in r->path. */
const char *f8_run_path(f8_run *r, const char *name);
/* Record errno as the failure of a path. */
f8_status f8_run_fail(const char *path, f8_diag *diag);
extern const char f8_run_format[]; /* what run.json says that it is */

/* ---- steps ---- (steps.c) */

/* Append a record as one line. If the line can't be written whole, nothing of it is kept. The
 * function takes over `record`; NULL says that there was no memory to make it, and fails. */
f8_status f8_run_record(f8_run *r, json_t *record, f8_diag *diag);
/* Open the records to go on after `step`: those of later steps are dropped, and so is a half one at
 * the end. `each` gets the others in their order. F8_ERR_INPUT: a line is no record, or the record
 * of a step is missing. */
f8_status f8_run_continue(f8_run *r, int64_t step, void (*each)(void *user, const json_t *record),
                          void *user, f8_diag *diag);

/* ---- positions ---- (position.c) */

/* The sum of the hashes of all variables, each with its name, as text. */
f8_status f8_run_checksum(fp8c_program *program, char text[F8_RUN_HASH], f8_diag *diag);
/* F8_ERR_INPUT: it is not the one that the metadata have. */
f8_status f8_run_check_sum(fp8c_program *program, const f8_weights *files, const char *path,
                           f8_diag *diag);
/* The same for the tensors of the files, whatever program they are for. */
f8_status f8_run_check_file(const f8_weights *files, const char *path, f8_diag *diag);

/* The metadata of a checkpoint that say where it was made, and the checksum. The pairs point into
 * the struct. */
enum { F8_RUN_MARKS = 4 };
typedef struct f8_run_marks {
    char step[24], seed[24], batch[24], sum[F8_RUN_HASH];
    f8_st_pair pair[F8_RUN_MARKS];
} f8_run_marks;
f8_status f8_run_mark(fp8c_program *program, int64_t step, uint64_t seed, uint64_t batch,
                      f8_run_marks *out, f8_diag *diag);
/* False if the files lack one of them, or it is no number. */
bool f8_run_read_marks(const f8_weights *files, int64_t *step, uint64_t *seed, uint64_t *batch);

/* ---- checkpoints, the first of which begins a run ---- (save.c) */

/* Write the files that a run has before its first step. run.json is written last, because a folder
 * with this file is a complete run.
 * info: what run.json holds beside its format and version. The function owns it from here on. NULL:
 * there was no memory to make it, and the function fails. */
typedef struct f8_run_texts {
    const char *module;    /* canonical, for all ranks together */
    const char *source;    /* as given: its dims have names still, so that ranks can divide B */
    const char *decisions; /* JSON Lines */
    const char *plan;      /* JSON, or "" if there is no plan */
} f8_run_texts;
f8_status f8_run_begin(f8_run *r, fp8c_program *program, const f8_run_texts *texts, json_t *info,
                       const f8_run_position *at, f8_diag *diag);
/* Write the checkpoint of a step, then remove the oldest until at->keep are left. With at->before
 * the newest one of an earlier step than that stays, or if there is none, the oldest. What was
 * recorded before is on the disk before. */
f8_status f8_run_save(f8_run *r, fp8c_program *program, const f8_run_position *at, f8_diag *diag);
/* Let a witness of the program put large values aside in files in the run's folder, where they take
 * no memory. The files have no names, so none is left over when the process ends. The run must stay
 * open as long as the program is used. */
void f8_run_lend_folder(const f8_run *r, fp8c_program *program);
/* Give the checkpoints of step `before` and of later ones another name, NAME.suspect, so that the
 * run goes on from an earlier one. The oldest keeps its name in any case. *step: the newest that is
 * left. */
f8_status f8_run_suspect(f8_run *r, int64_t before, int64_t *step, f8_diag *diag);
/* Give an initialized program the values of the newest checkpoint that is whole. at->module and
 * at->recipe are the program's; the rest of *at becomes the checkpoint's. If the checkpoint was
 * made under another recipe, the states that both have are taken, and `report` gets each of the
 * others (F8_LOAD_FITTING_STATES). Checkpoints that are damaged are passed over; `skipped` gets the
 * message of each. *same: the recipe is the same, so that all values are. Ranks call this together,
 * and load the same checkpoint: one that any of them can't read is passed over by all. */
f8_status f8_run_load(f8_run *r, fp8c_program *program, f8_run_position *at, bool *same,
                      void (*report)(void *user, const fp8c_load_item *item),
                      void (*skipped)(void *user, const f8_diag *why), void *user, f8_diag *diag);
/* The same from the newest checkpoint of a step below `below`. No file changes. */
f8_status f8_run_load_before(f8_run *r, fp8c_program *program, int64_t below, f8_run_position *at,
                             bool *same, void (*skipped)(void *user, const f8_diag *why), void *user,
                             f8_diag *diag);

/* How many of a run's last steps its final loss is the mean of. */
static inline int64_t f8_run_tail(int64_t steps)
{
    enum { TAIL = 20 };
    return steps < 2 ? 1 : steps / 2 < TAIL ? steps / 2 : TAIL;
}

#endif
