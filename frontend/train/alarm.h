/* What a training does with a guard (--guard): it asks the guard of each step, says what is wrong,
 * and ends the run if it is to. Of several ranks all decide alike: rank 0 judges loss, norm and
 * scales, which all have, and each judges its own statistics; what any of them raises all know of
 * with the exchange for signals, which every step has anyway. */
#ifndef F8_TRAIN_ALARM_H
#define F8_TRAIN_ALARM_H

#include "frontend/fp8c_diagnose.h"
#include "frontend/train/folder.h"

typedef enum f8_guard_mode {
    F8_GUARD_OFF,
    F8_GUARD_WARN,
    F8_GUARD_STOP,
    F8_GUARD_TRIAGE
} f8_guard_mode;

/* What a rank has found that is not finite; its texts are its own, to be sent. */
typedef struct f8_alarm_found {
    fp8c_found found;
    char tensor[128], role[16];
    int32_t rank;
} f8_alarm_found;

/* A run: one recipe with one seed. */
typedef struct f8_alarms {
    f8_train *t;
    fp8c_context *ctx;
    fp8c_program *program;
    fp8c_guard *guard; /* NULL: --guard off */
    f8_guard_mode mode;
    f8_alarm_found seen; /* in the step that is judged; tensor "": nothing */
    bool looks;          /* seen is to be told: the step has something that is not finite */
    char where[24];      /* ", rank 2": where it was found, if not on this rank */
    int64_t since;       /* of the first alarm of the run; 0: none was raised */
    bool any;            /* an alarm is raised on any rank, in the step that is judged */
    int64_t stopped;     /* `since` of what has ended the run; 0: it goes on */
} f8_alarms;

/* F8_ERR_INPUT: --guard has no such mode, or it can't do what is asked. */
f8_status f8_alarms_check(const f8_train_options *o, f8_diag *diag);
const char *f8_alarms_mode(const f8_alarms *a); /* off, warn, stop or triage */
/* Begins to watch a run. End it in any case. */
bool f8_alarms_begin(f8_alarms *a, f8_train *t, fp8c_context *ctx, fp8c_program *program);
void f8_alarms_end(f8_alarms *a);
/* Takes a record of the run's folder, from before the run goes on. */
void f8_alarms_replay(f8_alarms *a, const json_t *record);

/* In a step, in this order. */

/* After each micro-step, whose inputs are still there. */
bool f8_alarms_micro_step(f8_alarms *a, int function, double loss);
/* After the update: whether micro-steps are to be run once more, to find what is not finite in
 * their gradients. All ranks have the same answer. */
bool f8_alarms_want_again(f8_alarms *a, double loss, double norm);
/* For each of these, with its batch in place, until it returns true: nothing more is to be run. */
bool f8_alarms_again(f8_alarms *a, int function);
/* Judges the step. a->any then says whether this rank raises anything; f8_train_stops makes it that
 * of all. */
bool f8_alarms_judge(f8_alarms *a, int64_t step, int function, double loss, double norm);
/* Says and records what was raised. Checkpoints from before it are kept from here on. Sets
 * a->stopped if the run is to end. */
bool f8_alarms_report(f8_alarms *a, int64_t step, const char *recipe, uint64_t seed, double loss,
                      f8_folder *folder);

/* Of a run that a->stopped has ended: sets checkpoints aside that are not from before. *step: the
 * newest that is left. */
bool f8_alarms_stop(f8_alarms *a, f8_folder *folder, int64_t *step);

#endif
