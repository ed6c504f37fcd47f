/* Gathers the evidence why a step of a training run went wrong, as README.md describes it.
 * verdict.c draws the verdict.
 *
 * A function that returns false has called `failed` (frontend/train/train.h), unless it says what
 * its answer means. */
#ifndef F8_TRIAGE_SEARCH_H
#define F8_TRIAGE_SEARCH_H

#include "frontend/diagnose/triage/triage.h"
#include "frontend/train/fingerprint.h"
#include "frontend/train/replay.h"

enum { F8_TRIAGE_FAR = 1000003 }; /* batches ahead: another batch */

/* A step as it was trained. */
typedef struct f8_triage_step {
    double loss, grad_norm, lr;
    char loss_hex[40], norm_hex[40], checksum[F8_RUN_HASH]; /* "": there is none */
    json_t *fingerprint;                                    /* records of its functions, or NULL */
} f8_triage_step;

enum { F8_TRIAGE_HISTORY = 16 }; /* steps that the amax history of `delayed` has by default */

/* An alarm as the records have it. */
typedef struct f8_triage_alarm {
    int64_t step;   /* the first bad one; 0: there is no alarm */
    int64_t raised; /* the step that raised it */
    char text[120], kind[20], tensor[128];
    double value, limit;
} f8_triage_alarm;

typedef struct f8_triage_search {
    f8_train *t;
    int64_t asked;                                  /* the step that the caller names; 0: none */
    void (*progress)(void *user, const char *text); /* one or several lines, without the last end */
    void *user;
    f8_folder folder;
    f8_data data;         /* the caller opens them */
    f8_triage_step *step; /* by step, from 1 */
    int64_t n_steps;
    f8_triage_alarm alarm;  /* the one with the first bad step */
    const char *stats;      /* what the run watched; NULL: nothing */
    fp8c_guard *guard;      /* of the replay that goes on */
    uint32_t far;           /* of it; bit i: the loss i steps ago was far */
    int far_ago;            /* the first of those that explode together came so many steps ago */
    f8_fingerprint changed; /* the variables of the checkpoint of step found.changed */
    f8_triage found;
    f8_triage_verdict verdict;
    /* while a step is watched */
    f8_replay *watched;
    f8_fingerprint now;    /* of the function that runs */
    f8_triage_value other; /* the first of its values that differs */
    int64_t watched_step;
    int64_t earlier;  /* trials begin at a checkpoint before that of this step; 0: at the newest */
    int64_t too_late; /* the last trial was bad in the first step after this checkpoint */
    int64_t began_at; /* the last trial began at the checkpoint of this step */
    f8_triage_value *wrong; /* where the first wrong value goes */
    int64_t from;           /* the replay began after this step */
    f8_replayed bad;        /* what the bad step gave in the first replay */
    int threads;            /* on so many; 0: not on a CPU */
} f8_triage_search;

/* ---- search.c ---- */

/* Reads the folder of a run. The caller has set the fields before `folder`. The options become
 * those of the run. Close the search in any case. */
bool f8_triage_open(f8_triage_search *t, const char *folder);
/* Takes the module that was loaded, which must be the run's. */
bool f8_triage_module(f8_triage_search *t, const fp8c_module *module);
/* Finds the verdict: t->verdict, and the run's verdict.json. */
bool f8_triage_run(f8_triage_search *t);
/* All that was found, as the record `triage`. NULL: out of memory. */
json_t *f8_triage_record(const f8_triage_search *t);
void f8_triage_close(f8_triage_search *t);

/* ---- records.c ---- */

/* Reads the folder's records, and chooses the bad step. false: also if this process, or this number
 * of ranks, can't replay the run. */
bool f8_triage_read(f8_triage_search *t);
/* The step as it was recorded; NULL: it was not. */
f8_triage_step *f8_triage_step_at(f8_triage_search *t, int64_t step);
/* Whether a replayed loss is far from those before the bad step, whichever step it is of, by the
 * rule of train's guard; *at_once: so far that this alone raises an alarm. */
bool f8_triage_is_far(f8_triage_search *t, const f8_replayed *r, bool *at_once);
/* A replay of the run, to be opened. It says nothing of damaged checkpoints. */
f8_replay f8_triage_replay(f8_triage_search *t);
void f8_triage_copy_text(char *to, size_t room, const char *from); /* from: NULL is "" */
/* Whether `mine` is true on any rank: all must take the same branch. */
bool f8_triage_any_rank(const f8_triage_search *t, bool mine);
/* Says a line of progress; on ranks above 0, nothing. */
void f8_triage_say(const f8_triage_search *t, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* ---- alarm.c: a guard runs over a replay as it ran over the run ---- */

/* Whether the stored alarm is of a scale; or of that or a statistic, whose number a replay must
 * have again in the step that raised it. */
bool f8_triage_has_value(const f8_triage_search *t);
bool f8_triage_is_scale(const f8_triage_search *t);
/* Whether it is of one that has grown. A scale of `delayed` grows when the outlier that made it
 * small leaves the amax history: the bad step is as many steps older as the history is long. */
bool f8_triage_returns(const f8_triage_search *t);
/* What statistics a replay needs for it. NULL: none. */
const char *f8_triage_stats(const f8_triage_search *t);
/* Begins with a replay that has loaded a checkpoint. End it before the replay is closed; also in
 * order to begin anew. */
bool f8_triage_guard_begin(f8_triage_search *t, const f8_replay *r);
void f8_triage_guard_end(f8_triage_search *t);
/* Judges the step that was replayed last. *bad: its loss explodes, or from the bad step on a guard
 * raises another alarm, or the number of the stored alarm is still beyond its limit. */
bool f8_triage_guard_step(f8_triage_search *t, const f8_replay *r, const f8_replayed *out,
                          bool *bad);
/* Whether the bad step, replayed last, has the stored alarm again, bit by bit. What does not is
 * noted in t->found. */
bool f8_triage_alarm_recurs(f8_triage_search *t, const f8_replay *r);

/* ---- outliers.c: what stands out by its size ---- */

/* Notes a variable that is bad in the checkpoint that was loaded: t->found.state. */
bool f8_triage_look_at_state(f8_triage_search *t, const f8_replay *r);
/* Finds the row of the bad step's batches with the largest elements, for its size alone. The inputs
 * of the replay are then other ones. */
bool f8_triage_find_row(f8_triage_search *t, f8_replay *r);
/* Gives all ranks the row of the one that stands out most. */
bool f8_triage_share_row(f8_triage_search *t);
/* Whether that row of the inputs of `function` stands out as the one that was found does. */
bool f8_triage_stands_out(const f8_triage_search *t, const f8_replay *r, int function, int64_t row);
/* Notes in which row an element of an input is. */
void f8_triage_note_row(f8_triage_search *t, uint64_t batch, int64_t row);

/* ---- replay.c: the run beside its records ---- */

void f8_triage_note_value(f8_triage_value *to, const fp8c_program *p, const fp8c_witnessed *v);
/* Replays up to step `end` and stops at the first that has other bits than its record. *bad, which
 * may be NULL: whether the last one is bad. */
bool f8_triage_replay_to(f8_triage_search *t, f8_replay *r, int64_t end, f8_replayed *last,
                         bool *bad);
void f8_triage_say_replayed(const f8_triage_search *t, int64_t from, int64_t to);
/* Replays the run up to the bad step, beside its records and under a guard, which the caller ends.
 */
bool f8_triage_replay_run(f8_triage_search *t, f8_replay *r, f8_replayed *last);

/* ---- device.c ---- */

/* Replays the run up to the bad step beside its records, and judges the step with a witness. All
 * ranks then have what one has found. */
bool f8_triage_device(f8_triage_search *t);

/* ---- trials.c ---- */

/* Trains the steps under other conditions, where the device is right and the replay is bad, too. */
bool f8_triage_trials(f8_triage_search *t);

#endif
