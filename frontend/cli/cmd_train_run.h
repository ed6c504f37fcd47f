/* One run of `fp8c train`: one recipe with one seed, from its first step to its last. cmd_train.c
 * makes the program, begins the folder and saves. */
#ifndef F8_CMD_TRAIN_RUN_H
#define F8_CMD_TRAIN_RUN_H

#include "frontend/cli/cmd_alarm.h"
#include "frontend/cli/cmd_health.h"
#include "frontend/cli/cmd_stats.h"
#include "frontend/cli/cmd_train.h"

enum { CLI_TRAIN_RAN = 8 };

typedef struct cli_train_run {
    const cli *c;
    fp8c_context *ctx;
    fp8c_program *program;
    f8_data *data;
    cli_json *json;
    cli_folder *folder;
    int64_t begin, end; /* the steps [begin, end) are trained; others were, or are left */
    bool stops;         /* a signal came to any rank; all know it at the same place */
    double tail_sum;    /* of the losses of the last steps */
    int step, update, eval;
    int64_t accumulate;
    /* How often each function ran, of all seeds: update, eval, and micro_step, the one with
     * statistics and the one that dumps, each in two forms. */
    struct {
        int function;
        int64_t runs;
    } ran[CLI_TRAIN_RAN];
    int n_ran;
    bool terminal; /* stderr is one */
    cli_train_result *out;
    cli_alarms alarms;
    int function; /* of the last micro-step */
    cli_stats watched;
    cli_health health;
} cli_train_run;

/* Finds the functions that a training runs. false after a message on stderr. */
bool cli_train_find_functions(cli_train_run *r);
/* How many of the last steps the final loss is the mean of. */
int64_t cli_train_tail(const cli *c);
/* Takes the record of a step that was trained before the run went on. */
void cli_train_replay(void *run, const json_t *record);
/* Trains the steps from r->begin to r->end. FP8C_ERR_CANCELLED: after a signal. FP8C_ERR_IO with a
 * message on stderr: a file failed. */
fp8c_status cli_train_steps(cli_train_run *r);
/* Tells what the device has said of its health since. last: the run ends. */
void cli_train_tell_health(cli_train_run *r, int64_t step, bool last);
/* Prints the time of each step of the plan, and keeps it in the run's folder. false after a message
 * on stderr. */
bool cli_train_put_profile(const cli_train_run *r);

#endif
