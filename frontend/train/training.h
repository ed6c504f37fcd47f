/* A training: one recipe, one program, one seed after the other, step by step.
 *
 *     f8_training_open(&r, module, recipe, NULL, NULL);       once
 *     f8_training_begin(&r, seed, &result);                   for each seed
 *     while (f8_training_goes_on(&r) && f8_training_step(&r, &step))
 *         ...
 *     f8_training_end(&r);
 *     f8_training_close(&r);
 */
#ifndef F8_TRAINING_H
#define F8_TRAINING_H

#include "frontend/diagnose/health/device.h"
#include "frontend/fp8c_tune.h"
#include "frontend/train/alarm.h"
#include "frontend/train/watch.h"

/* How a run ended: one recipe with one seed. */
typedef struct f8_train_result {
    const char *recipe;
    uint64_t seed;
    double final_loss, heldout_loss, items_per_second; /* tokens or rows */
    fp8c_info info;
    fp8c_peak peak; /* of micro_step */
    fp8c_remat remat;
    char target[24];
    fp8c_device device;             /* its name is "" if there is none */
    int64_t fp8_planned, fp8_gemms; /* FP8 GEMMs of the last micro-step: planned, executed */
    int64_t skipped;                /* steps whose gradient norm was not finite */
    int64_t done;                   /* steps */
    bool saved;                     /* the checkpoint is written */
} f8_train_result;

/* What an optimizer step says of itself. NaN: the module's own `update` does not say it. */
typedef struct f8_train_step {
    int64_t step; /* from 1 */
    double loss, grad_norm, lr;
    bool skipped;   /* the gradient norm was not finite */
    double seconds; /* since the training went on, without evaluations and checkpoints */
    bool evaluated; /* the held-out loss after it is in the result */
} f8_train_step;

/* micro_step, the one with statistics and the one that dumps, each in two forms; update; eval */
enum { F8_TRAINING_RAN = 8 };

typedef struct f8_training {
    f8_train *t;
    fp8c_context *ctx;
    f8_data *data;
    f8_folder *folder;
    const char *recipe;
    fp8c_program *program;
    int micro_step, update, eval; /* functions */
    int64_t accumulate;
    f8_watch watched;
    struct {
        int function;
        int64_t runs;
    } ran[F8_TRAINING_RAN]; /* how often each function ran, of all seeds */
    int n_ran;

    /* of the seed */
    f8_train_result *out;
    int64_t begin, end; /* the steps [begin, end) are trained; others were, or are left */
    int64_t evaluated;  /* out->heldout_loss is that after this step */
    bool stops;         /* any rank wants to stop; all know it at the same place */
    bool failed;
    double tail_sum; /* of the losses of the last steps */
    double start;    /* when the steps began; evaluations move it on: a rate is that of training */
    int function;    /* of the last micro-step */
    f8_alarms alarms;
    int64_t
        left; /* alarms.stopped: the step of the newest checkpoint from before; -1: none is known */
    f8_device_health health;
} f8_training;

/* F8_ERR_INPUT: options that can't be had together. */
f8_status f8_training_check(const f8_train_options *o, f8_diag *diag);
/* Compiles the module under a recipe, and checks the data against it. The caller has set t, ctx,
 * data and folder; r->recipe must live as long. Recipe auto first measures on the data, and with a
 * folder it adds a rule for each GEMM to the module, so that a run that goes on does not measure
 * again. `measured` gets what it measured; NULL: nobody does. Close *r in any case. */
bool f8_training_open(f8_training *r, fp8c_module *module, const char *recipe,
                      bool (*measured)(void *user, const fp8c_calibration *calibration),
                      void *user);
void f8_training_close(f8_training *r);
/* Initializes the variables with the seed, or goes on where the folder is. *out is filled as the
 * run goes on, and must live until its end. End it in any case. */
bool f8_training_begin(f8_training *r, uint64_t seed, f8_train_result *out);
/* Whether there are steps left, nothing has failed, and no rank wants to stop. */
bool f8_training_goes_on(const f8_training *r);
/* One optimizer step with what follows it: alarms, records, the held-out loss, a checkpoint. After
 * the last of all steps also the results. false: it failed, or r->alarms.stopped. */
bool f8_training_step(f8_training *r, f8_train_step *step);
/* Tells the device's health, and saves the folder's checkpoint. false: the run has failed, or an
 * alarm has ended it. */
bool f8_training_end(f8_training *r);

/* How many of the last steps the final loss is the mean of. */
int64_t f8_training_tail(const f8_train_options *o);
/* How often a function ran, and at least 1: an f8_profile_runs whose `user` is the training. */
double f8_training_runs(const void *training, int function);
/* Optimizer steps of all seeds together. */
double f8_training_steps(const f8_training *r);
/* Puts the time of each step of the plan into the run's folder. */
bool f8_training_put_profile(f8_training *r);

#endif
