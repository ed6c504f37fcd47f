/* fp8c triage: says why a step of a training run went wrong. cmd_triage*.c gather the evidence, as
 * ../diagnose/triage/README.md describes it, and print. ../diagnose/triage/verdict.c draws the
 * verdict.
 *
 * A function that returns false has left a message on stderr, unless it says what its answer means.
 */
#ifndef F8_CMD_TRIAGE_H
#define F8_CMD_TRIAGE_H

#include "frontend/cli/cmd_fingerprint.h"
#include "frontend/cli/cmd_replay.h"
#include "frontend/diagnose/triage/triage.h"

enum { CLI_TRIAGE_FAR = 1000003 }; /* batches ahead: another batch */

/* A step as it was trained. */
typedef struct cli_triage_step {
    double loss, grad_norm, lr;
    char loss_hex[40], norm_hex[40], checksum[F8_RUN_HASH]; /* "": there is none */
    json_t *fingerprint;                                    /* records of its functions, or NULL */
} cli_triage_step;

enum { CLI_TRIAGE_HISTORY = 16 }; /* steps that the amax history of `delayed` has by default */

/* An alarm as the records have it. */
typedef struct cli_triage_alarm {
    int64_t step;   /* the first bad one; 0: there is no alarm */
    int64_t raised; /* the step that raised it */
    char text[120], kind[20], tensor[128];
    double value, limit;
} cli_triage_alarm;

typedef struct cli_triage {
    const cli *c;
    cli_folder folder;
    f8_data data;
    cli_json json;
    cli_triage_step *step; /* by step, from 1 */
    int64_t n_steps;
    cli_triage_alarm alarm;  /* the one with the first bad step */
    const char *stats;       /* what the run watched; NULL: nothing */
    fp8c_guard *guard;       /* of the replay that goes on */
    uint32_t far;            /* of it; bit i: the loss i steps ago was far */
    int far_ago;             /* the first of those that explode together came so many steps ago */
    cli_fingerprint changed; /* the variables of the checkpoint of step found.changed */
    f8_triage found;
    f8_triage_verdict verdict;
    /* while a step is watched */
    cli_replay *watched;
    cli_fingerprint now;   /* of the function that runs */
    f8_triage_value other; /* the first of its values that differs */
    int64_t watched_step;
    int64_t earlier;  /* trials begin at a checkpoint before that of this step; 0: at the newest */
    int64_t too_late; /* the last trial was bad in the first step after this checkpoint */
    int64_t began_at; /* the last trial began at the checkpoint of this step */
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
/* Whether a replayed loss is far from those before the bad step, whichever step it is of, by the
 * rule of train's guard; *at_once: so far that this alone raises an alarm. */
bool cli_triage_is_far(cli_triage *t, const cli_replayed *r, bool *at_once);
/* A replay of the run, to be opened. It says nothing of damaged checkpoints. */
cli_replay cli_triage_replay(cli_triage *t);
void cli_triage_copy_text(char *to, size_t room, const char *from); /* from: NULL is "" */
/* Whether `mine` is true on any rank: all must take the same branch. */
bool cli_triage_any_rank(const cli_triage *t, bool mine);
/* Prints a line of progress, unless stdout carries records. */
void cli_triage_say(const cli_triage *t, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* ---- cmd_triage_alarm.c: a guard runs over a replay as it ran over the run ---- */

/* Whether the stored alarm is of a scale; or of that or a statistic, whose number a replay must
 * have again in the step that raised it. */
bool cli_triage_has_value(const cli_triage *t);
bool cli_triage_is_scale(const cli_triage *t);
/* Whether it is of one that has grown. A scale of `delayed` grows when the outlier that made it
 * small leaves the amax history: the bad step is as many steps older as the history is long. */
bool cli_triage_returns(const cli_triage *t);
/* What statistics a replay needs for it. NULL: none. */
const char *cli_triage_stats(const cli_triage *t);
/* Begins with a replay that has loaded a checkpoint. End it before the replay is closed; also in
 * order to begin anew. false after a message on stderr. */
bool cli_triage_guard_begin(cli_triage *t, const cli_replay *r);
void cli_triage_guard_end(cli_triage *t);
/* Judges the step that was replayed last. *bad: its loss explodes, or from the bad step on a guard
 * raises another alarm, or the number of the stored alarm is still beyond its limit. */
bool cli_triage_guard_step(cli_triage *t, const cli_replay *r, const cli_replayed *out, bool *bad);
/* Whether the bad step, replayed last, has the stored alarm again, bit by bit. What does not is
 * noted in t->found. */
bool cli_triage_alarm_recurs(cli_triage *t, const cli_replay *r);

/* ---- cmd_triage_outliers.c: what stands out by its size ---- */

/* Notes a variable that is bad in the checkpoint that was loaded: t->found.state. */
bool cli_triage_look_at_state(cli_triage *t, const cli_replay *r);
/* Finds the row of the bad step's batches with the largest elements, for its size alone. The inputs
 * of the replay are then other ones. */
bool cli_triage_find_row(cli_triage *t, cli_replay *r);
/* Gives all ranks the row of the one that stands out most. */
bool cli_triage_share_row(cli_triage *t);
/* Whether that row of the inputs of `function` stands out as the one that was found does. */
bool cli_triage_stands_out(const cli_triage *t, const cli_replay *r, int function, int64_t row);
/* Notes in which row an element of an input is. */
void cli_triage_note_row(cli_triage *t, uint64_t batch, int64_t row);

/* ---- cmd_triage_replay.c: the run beside its records ---- */

void cli_triage_note_value(f8_triage_value *to, const fp8c_program *p, const fp8c_witnessed *v);
/* Replays up to step `end` and stops at the first that has other bits than its record. *bad, which
 * may be NULL: whether the last one is bad. */
bool cli_triage_replay_to(cli_triage *t, cli_replay *r, int64_t end, cli_replayed *last, bool *bad);
void cli_triage_say_replayed(const cli_triage *t, int64_t from, int64_t to);
/* Replays the run up to the bad step, beside its records and under a guard, which the caller ends.
 */
bool cli_triage_replay_run(cli_triage *t, cli_replay *r, cli_replayed *last);

/* ---- cmd_triage_device.c ---- */

/* Replays the run up to the bad step beside its records, and judges the step with a witness. All
 * ranks then have what one has found. */
bool cli_triage_device(cli_triage *t);

/* ---- cmd_triage_trials.c ---- */

/* Trains the steps under other conditions, where the device is right and the replay is bad, too. */
bool cli_triage_trials(cli_triage *t);

#endif
