/* fp8c triage: says why a step of a training run went wrong. cmd_triage*.c gather the evidence, as
 * ../triage/README.md describes it, and print. ../triage/verdict.c draws the verdict.
 *
 * A function that returns false has left a message on stderr, unless it says what its answer means.
 */
#ifndef F8_CMD_TRIAGE_H
#define F8_CMD_TRIAGE_H

#include "frontend/cli/cmd_fingerprint.h"
#include "frontend/cli/cmd_replay.h"
#include "frontend/triage/triage.h"

/* A step as it was trained. */
typedef struct cli_triage_step {
    double loss, grad_norm, lr;
    char loss_hex[40], norm_hex[40], checksum[F8_RUN_HASH]; /* "": there is none */
    json_t *fingerprint;                                    /* records of its functions, or NULL */
} cli_triage_step;

typedef struct cli_triage {
    const cli *c;
    cli_folder folder;
    cli_data data;
    cli_json json;
    cli_triage_step *step; /* by step, from 1 */
    int64_t n_steps;
    int64_t alarm; /* the step of the first record `warning`; 0: none */
    char alarm_text[120];
    f8_triage found;
    f8_triage_verdict verdict;
    /* while a step is watched */
    cli_replay *watched;
    cli_fingerprint now;   /* of the function that runs */
    f8_triage_value other; /* the first of its values that differs */
    int64_t watched_step;
    int64_t earlier;  /* trials begin at a checkpoint before that of this step; 0: at the newest */
    int64_t too_late; /* the last trial was bad in the first step after this checkpoint */
    f8_triage_value *wrong; /* where the first wrong value goes */
    int64_t from;           /* the replay began after this step */
    cli_replayed bad;       /* what the bad step gave in the first replay */
    int threads;            /* on so many; 0: not on a CPU */
} cli_triage;

/* ---- cmd_triage_records.c ---- */

/* Reads the folder's records, and chooses the bad step. false: also if this process, or this number
 * of ranks, can't replay the run. */
bool cli_triage_read(cli_triage *t);
/* The step as it was recorded; NULL: it was not. */
cli_triage_step *cli_triage_step_at(cli_triage *t, int64_t step);
/* Whether a replayed loss is bad beside those before the bad step, whichever step it is of: by the
 * rule of train's guard. */
bool cli_triage_is_bad(cli_triage *t, const cli_replayed *r);
/* A replay of the run, to be opened. It says nothing of damaged checkpoints. */
cli_replay cli_triage_replay(cli_triage *t);
void cli_triage_copy_text(char *to, size_t room, const char *from); /* from: NULL is "" */
/* Prints a line of progress, unless stdout carries records. */
void cli_triage_say(const cli_triage *t, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* ---- cmd_triage_device.c ---- */

/* Replays the run up to the bad step beside its records, and judges the step with a witness. All
 * ranks then have what one has found. */
bool cli_triage_device(cli_triage *t);

/* ---- cmd_triage_trials.c ---- */

/* Trains the steps under other conditions, where the device is right and the replay is bad, too. */
bool cli_triage_trials(cli_triage *t);

#endif
