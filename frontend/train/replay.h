/* A replay: steps of a training run are trained again, from a checkpoint of its folder, on the
 * batches that the run had. */
#ifndef F8_TRAIN_REPLAY_H
#define F8_TRAIN_REPLAY_H

#include "frontend/fp8c_diagnose.h"
#include "frontend/train/watch.h"

typedef struct f8_replay f8_replay;
struct f8_replay {
    f8_train *t;
    f8_folder *folder;
    f8_data *data;
    fp8c_context *ctx;
    fp8c_module *module;
    fp8c_program *program; /* NULL: none is open */
    const char *recipe, *rule; /* rule: one more than the run has; NULL: none */
    int micro_step, update;
    int64_t accumulate, at; /* at: the step after which the variables are */
    int64_t passed_over;    /* checkpoints that could not be loaded */
    bool quiet;             /* says nothing of those */
    bool same;              /* the checkpoint was written under this recipe, and no rule more */
    int64_t since;          /* steps up to this one were trained under other conditions */
    f8_watch watched;       /* which steps run micro_step.stats */
    int function;           /* what the last micro-step ran */
    /* Changes the inputs of `function`, which have batch number `batch` for step `step`. false
     * after `failed`. NULL: they stay as they are. */
    bool (*alter)(f8_replay *r, int function, int64_t step, uint64_t batch, void *user);
    void *user;
};

/* The results of a replayed step. */
typedef struct f8_replayed {
    double loss, grad_norm;
    bool finite; /* both */
} f8_replayed;

/* In what a replay may differ from the run. */
typedef struct f8_replay_as {
    const char *recipe; /* NULL: the run's */
    const char *rule;   /* one rule more, as --rule takes it; NULL: none */
    double lr, eps;     /* > 0: the optimizer's, instead of the run's */
    bool witness;
    const char *stats; /* as in fp8c_compile_options; NULL: none */
    int64_t every;     /* > 0: every so many steps run with them; else those that the run had so */
} f8_replay_as;

/* Compiles the run's module. The caller has set t, folder and data. The texts of `as` must outlive
 * the replay. Close it in any case. */
bool f8_replay_open(f8_replay *r, const f8_replay_as *as);
void f8_replay_close(f8_replay *r);
/* Gives the variables the values of the newest checkpoint before step `step`, so r->at < step. */
bool f8_replay_load(f8_replay *r, int64_t step);
/* As f8_replay_load, but false without `failed` if there is no such checkpoint. */
bool f8_replay_load_older(f8_replay *r, int64_t step);
/* Fill the inputs of a function with a batch of the run's; a row of them (f8_data_put). */
bool f8_replay_fill(f8_replay *r, int function, uint64_t batch);
bool f8_replay_put(f8_replay *r, int function, uint64_t place, int64_t row);
/* Callbacks while a step is replayed, and what they are given; all may be NULL. */
typedef struct f8_replay_watch {
    bool judge; /* as in fp8c_program_run_witnessed */
    fp8c_witness_fn value;
    void (*begin)(void *user, int function, int64_t micro_step); /* before each function */
    void *user;
} f8_replay_watch;
/* Trains the next step, on the batch of the step `batch_of` (0: its own). watch NULL: the functions
 * run without observation. */
bool f8_replay_step(f8_replay *r, int64_t batch_of, const f8_replay_watch *watch, f8_replayed *out);
/* Trains the steps up to `step`, each on its own batch and without observation. *out becomes what
 * the last of them gave; it stays as it is if none is left. */
bool f8_replay_until(f8_replay *r, int64_t step, f8_replayed *out);

#endif
