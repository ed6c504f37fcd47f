/* A training run as `fp8c train` has it: batches from files, optimizer steps, guards, statistics,
 * and a folder that keeps the run. A run that goes on from its folder has the bits of one that was
 * never stopped. fp8c.h has what holds of all calls: failures, ownership, threads. A training
 * belongs to one thread at a time.
 *
 *     #include <fp8c_train.h>
 *     #include <stdio.h>
 *
 *     static fp8c_status train(fp8c_context *ctx, const char *text, size_t size, const char *data)
 *     {
 *         fp8c_module *module = NULL;
 *         fp8c_training *training = NULL;
 *         fp8c_training_step step = {.struct_size = sizeof step};
 *         const fp8c_compile_options compile = {.struct_size = sizeof compile,
 *                                               .recipe = "delayed"};
 *         const fp8c_training_options options = {.struct_size = sizeof options,
 *                                                .compile = &compile,
 *                                                .data = &data, .n_data = 1,
 *                                                .steps = 20, .seed = 1,
 *                                                .run = "my-run"};
 *         fp8c_status status = fp8c_module_parse(ctx, text, size, "gpt.f8", NULL, 0, &module);
 *         if (status == FP8C_OK)
 *             status = fp8c_training_create(ctx, module, &options, &training);
 *         while (status == FP8C_OK && (status = fp8c_training_run(training, &step)) == FP8C_OK &&
 *                step.step)
 *             printf("step %d loss %.4f\n", (int)step.step, step.loss);
 *         if (status == FP8C_OK)
 *             status = fp8c_training_end(training);
 *         if (status != FP8C_OK)
 *             fprintf(stderr, "%s\n", fp8c_context_message(ctx));
 *         fp8c_training_destroy(training);
 *         fp8c_module_destroy(module);
 *         return status;
 *     }
 *
 *     int main(int argc, char **argv) // gpt.f8 tokens.bin
 *     {
 *         static char text[100000];
 *         fp8c_context *ctx = NULL;
 *         FILE *file = argc == 3 ? fopen(argv[1], "r") : NULL;
 *         const size_t size = file ? fread(text, 1, sizeof text, file) : 0;
 *         fp8c_status status = fp8c_context_create(NULL, &ctx);
 *         if (file)
 *             fclose(file);
 *         if (status == FP8C_OK)
 *             status = train(ctx, text, size, argv[2]);
 *         fp8c_context_destroy(ctx);
 *         return status != FP8C_OK;
 *     }
 *
 * The folder is one of `fp8c train --run`: the commands `report` and `triage` read it, and `train
 * --resume` goes on with it. Messages name options as the command does: --save-every is save_every.
 * One process trains here. The command can train with several. */
#ifndef FP8C_TRAIN_H
#define FP8C_TRAIN_H

#include "fp8c.h"

#ifdef __cplusplus
extern "C" {
#endif

/* fp8c copies what these point to. Zeros are the defaults. */
typedef struct fp8c_training_options {
    size_t struct_size; /* sizeof(fp8c_training_options), set by the caller */
    /* Of these options: recipe, target, threads, device, attention, dependent_launch, wgrad_branch,
     * lr, memory_bytes, memory_share, checkpoint, recompute, stats, stats_recipe, dump, profile,
     * no_fuse, requantize, frozen, stored. Others are refused, and so is dump without a folder.
     * NULL: the defaults, or those of the run that goes on. */
    const fp8c_compile_options *compile;

    /* Either files of tokens (`data`), or rows of tensors (`batches`): "NAME=FILE.npy" or
     * "NAME=FILE.safetensors[:TENSOR]", one for each input of forward. The last tenth is held out.
     * frontend/cli/data.md has the formats. */
    const char *const *data;
    size_t n_data;
    const char *const *batches;
    size_t n_batches;
    const char *const *validation; /* of the same kind, to hold out instead of the last tenth */
    size_t n_validation;
    const char *tokens; /* "u16", "u32" or "bytes"; NULL: each file's name and header tell */

    int64_t steps;      /* optimizer steps, and the length of the schedule; 0: 100 */
    int64_t stop_at;    /* with a folder: end after this step, to go on later; 0: no */
    int64_t eval_every; /* also compute the held-out loss every so many steps; 0: at the end */
    uint64_t seed;      /* of initial values and batches; up to 2^63 - 1 */

    const char *run;    /* a new folder, or an empty one, to keep the run in; NULL: none */
    const char *resume; /* or the folder of a run, to go on from its newest checkpoint with its
                           options. Those that are given and change bits must be equal to its own,
                           but for the recipe and `steps` */
    /* Of the folder, and refused without one: */
    int64_t save_every; /* a checkpoint in the folder after every so many steps; 0: at the end */
    int64_t keep;       /* how many checkpoints are kept; 0: 2 */
    /* After every so many steps its records have a checksum of all variables (0: with each
     * checkpoint), and a hash of each value of the step, for `triage` (0: never). */
    int64_t checksum_every, fingerprint_every;

    const char *guard; /* what to do when the run goes wrong: "off", "warn" (NULL), or "stop" */
    int64_t every;     /* of compile->stats: in the first step and in every so many; 0: 10 */
    const char *dump_steps; /* of compile->dump: "FIRST:LAST" */

    int64_t calibrate;   /* recipe auto: batches to measure on; 0: 2 */
    double error_budget; /* recipe auto: fp8c_calibration_create has it; 0: 0.1 */

    /* Called in the thread that calls; each may be NULL. `text` and `json` are valid during the
     * call. */
    void (*say)(void *user, const char *text);    /* lines: warnings, and with what a run goes on */
    void (*record)(void *user, const char *json); /* the records of `train --json`, one by one */
    int32_t (*stop)(void *user); /* asked before and after a step: not 0, and no step follows */
    void *user;

    /* Parameters begin with the values of these files instead of their initial ones. Each field is
     * as in fp8c_load_options, but scales, moments and states begin anew, and FP8 codes that have
     * scales beside them become values. A run that goes on has its own: refused with `resume`. */
    const char *const *weights;
    size_t n_weights;
    const char *const *ignore;
    size_t n_ignore;
    const char *const *map;
    size_t n_map;
    const char *const *allow_missing;
    size_t n_allow_missing;
} fp8c_training_options;

typedef struct fp8c_training fp8c_training;

/* Compiles the module, and initializes its variables with the seed or goes on with a run. `module`
 * NULL: that of the run in `resume`. With recipe auto and `run` the module gets a rule for each
 * GEMM. The training keeps the context alive, and does not need the module.
 * FP8C_ERR_INPUT: data or options that do not fit, or a module of another context; FP8C_ERR_IO:
 * files; FP8C_ERR_CANCELLED: `stop` was not 0 meanwhile; those of fp8c_compile. After a failure
 * there is no training, and a new folder is not left behind. */
FP8C_API fp8c_status fp8c_training_create(fp8c_context *ctx, fp8c_module *module,
                                          const fp8c_training_options *options,
                                          fp8c_training **out);
/* Without fp8c_training_end, steps since the folder's last checkpoint are lost. */
FP8C_API void fp8c_training_destroy(fp8c_training *training);

/* What a step gave. grad_norm and lr are NaN where the module has an `update` of its own that does
 * not give them. */
typedef struct fp8c_training_step {
    size_t struct_size; /* sizeof(fp8c_training_step), set by the caller */
    int64_t step, steps; /* its number, from 1; how many there are. step 0: none was left */
    double loss, grad_norm, lr;
    double heldout_loss; /* NaN: it was not computed after this step */
    double seconds;      /* since it began or went on, without evaluations and checkpoints */
    int32_t skipped;     /* the gradient norm was not finite, so the variables are as before */
    int32_t alarms;      /* that the guard has raised in this step */
} fp8c_training_step;

/* One optimizer step and what follows it: alarms, records, the held-out loss, a checkpoint. Where
 * no step is left, as all are done, or those up to `stop_at`, or `stop` was not 0, out->step is 0.
 * `out` may be NULL. FP8C_ERR_CANCELLED: the guard ended the run in this step; *out has the step,
 * and the message says why. Checkpoints that are not from before then have the name NAME.suspect,
 * and no run goes on from them. After any failure the folder is left to others, and later calls
 * give the failure again. */
FP8C_API fp8c_status fp8c_training_run(fp8c_training *training, fp8c_training_step *out);

/* Saves the checkpoint of the last step and the times of steps in the folder, and leaves the folder
 * to others. Call it after the last step that is wanted; a second call does nothing. After a
 * failure it saves nothing, and gives the failure again. */
FP8C_API fp8c_status fp8c_training_end(fp8c_training *training);

typedef struct fp8c_training_result {
    size_t struct_size; /* sizeof(fp8c_training_result), set by the caller */
    int64_t begun_at, done, skipped; /* steps: before it went on; done in all; skipped in all */
    double final_loss;   /* the mean of the last 20 steps, or of half of fewer than 40; NaN: steps
                            are left */
    double heldout_loss; /* the last one; NaN: there is none */
    double items_per_second; /* tokens, or rows of batches; NaN: steps are left */
    int64_t fp8_gemms; /* that the last micro-step ran */
} fp8c_training_result;
FP8C_API void fp8c_training_report(const fp8c_training *training, fp8c_training_result *out);

/* The program, to read its variables or save them between steps. It belongs to the training. */
FP8C_API fp8c_program *fp8c_training_program(fp8c_training *training);

#ifdef __cplusplus
}
#endif
#endif
