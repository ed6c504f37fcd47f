/* What `fp8c train --guard` does: it asks the library's guard of each step, says what is wrong, and
 * ends the run if it is to. Of several ranks all decide alike: rank 0 judges loss, norm and scales,
 * which all have, and each judges its own statistics; what any of them raises all know of with the
 * exchange for signals, which every step has anyway. */
#ifndef F8_CMD_ALARM_H
#define F8_CMD_ALARM_H

#include "frontend/cli/cmd_folder.h"

typedef enum cli_guard_mode {
    CLI_GUARD_OFF,
    CLI_GUARD_WARN,
    CLI_GUARD_STOP,
    CLI_GUARD_TRIAGE
} cli_guard_mode;

/* What a rank has found that is not finite; its texts are its own, to be sent. */
typedef struct cli_alarm_found {
    fp8c_found found;
    char tensor[128], role[16];
    int32_t rank;
} cli_alarm_found;

/* A run: one recipe with one seed. */
typedef struct cli_alarms {
    const cli *c;
    fp8c_context *ctx;
    fp8c_program *program;
    fp8c_guard *guard; /* NULL: --guard off */
    cli_guard_mode mode;
    cli_alarm_found seen; /* in the step that is judged; tensor "": nothing */
    bool looks;           /* seen is to be told: the step has something that is not finite */
    char where[24];       /* ", rank 2": where it was found, if not on this rank */
    int64_t since;        /* of the first alarm of the run; 0: none was raised */
    bool any;             /* an alarm is raised on any rank, in the step that is judged */
    int64_t stopped;      /* `since` of what has ended the run; 0: it goes on */
} cli_alarms;

/* Whether --guard has another value, or can't do what is asked; a message on stderr says so. */
bool cli_alarm_refused(const cli *c);
/* Begins to watch a run. false after a message on stderr. End it in any case. */
bool cli_alarm_begin(cli_alarms *a, const cli *c, fp8c_context *ctx, fp8c_program *program);
void cli_alarm_end(cli_alarms *a);
/* Takes a record of the run's folder, from before the run goes on. */
void cli_alarm_replay(cli_alarms *a, const json_t *record);

/* In a step, in this order; each true, or false after a message on stderr. */

/* After each micro-step, whose inputs are still there. */
bool cli_alarm_micro_step(cli_alarms *a, int function, double loss);
/* After the update: whether micro-steps are to be run once more, to find what is not finite in
 * their gradients. All ranks have the same answer. */
bool cli_alarm_wants_again(cli_alarms *a, double loss, double norm);
/* For each of these, with its batch in place, until it returns true: nothing more is to be run. */
bool cli_alarm_again(cli_alarms *a, int function);
/* Judges the step. a->any then says whether this rank raises anything; cli_ranks_tell makes it that
 * of all. */
bool cli_alarm_judge(cli_alarms *a, int64_t step, int function, double loss, double norm);
/* Says and records what was raised. Checkpoints from before it are kept from here on. Sets
 * a->stopped if the run is to end. */
bool cli_alarm_report(cli_alarms *a, int64_t step, const char *recipe, uint64_t seed, double loss,
                      cli_json *json, cli_folder *folder, bool terminal);

/* Ends a run that was stopped: sets checkpoints aside that are not from before, and says what to
 * do.
 */
void cli_alarm_stop(const cli_alarms *a, cli_folder *folder);
/* After the folder is closed: --guard triage goes on from here, in one process with what `fp8c
 * triage` does. Returns the exit code, CLI_FAILED: the run went wrong. */
int cli_alarm_triage(const cli *c, const char *folder);

#endif
