/* fp8c export: writes the weights of a checkpoint as FP8 codes with their scales, for inference. */
#include <inttypes.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "frontend/call/evaluate.h"
#include "frontend/checkpoint/export.h"
#include "frontend/cli/auto.h"
#include "frontend/cli/checkpoint.h"
#include "frontend/cli/formats.h"
#include "frontend/formats/write.h"

typedef struct export {
    cli_job job;
    f8_loader weights;
    f8_load load;
    f8_data data; /* to calibrate on */
    f8_export file;
    f8_fp8_format to; /* of -o; where it is another than native, `file` is written on the way */
    char between[PATH_MAX];
} export;

/* Calibrates scales on --data, on the CPU. Data that nothing uses are refused. */
static bool calibrate(export *e)
{
    fp8c_compile_options options = cli_compile_options(e->job.c, e->job.c->recipe);
    options.inference = 1;
    if (!cli_data_given(e->job.c))
        return true;
    if (!f8_load_needs_scales(e->job.program, &e->weights.files))
        return cli_error(e->weights.files.shown,
                         "there are no scales to calibrate on --data: the weights have all that %s "
                         "needs",
                         e->job.c->recipe);
    if (!cli_data_open(&e->data, e->job.c))
        return false;
    const f8_evaluating on = {e->job.module, &e->data, &e->weights, e->job.c->calibrate,
                              e->job.c->seed};
    f8_diag diag = {0};
    const fp8c_status status = f8_calibrate_on(&on, &options, e->job.program, &diag);
    return cli_weights_done(&e->weights, &e->job, e->file.recipe, status, &diag);
}

/* Uses the target reference, which has every recipe and compiles nothing. */
static bool quantize(export *e)
{
    const fp8c_compile_options options = {.struct_size = sizeof options,
                                          .target = "reference",
                                          .recipe = e->job.c->recipe,
                                          .inference = 1,
                                          .stored = e->job.c->recipe};
    f8_diag diag = {0};
    if (!cli_compile(&e->job, &options) || !calibrate(e))
        return false;
    const fp8c_status status = f8_loader_quantize(&e->weights, e->job.program, &e->load, &diag);
    return cli_weights_done(&e->weights, &e->job, e->file.recipe, status, &diag) &&
           (f8_export_write(&e->file, e->job.program, &e->load, &diag) == F8_OK ||
            cli_file_fail(&diag));
}

/* Opens both files before anything is computed. */
static bool open_files(export *e)
{
    f8_diag diag = {0};
    if (!cli_weights_open(&e->weights, e->job.c))
        return false;
    if (f8_weights_metadata(&e->weights.files, "fp8c.stored"))
        return cli_error(e->weights.files.shown,
                         "the weights are already FP8: export the checkpoint they came from");
    if ((e->to == F8_NATIVE ? f8_file_writable(cli_temporaries(), e->job.c->output, &diag)
                            : f8_model_folder_writable(e->job.c->output, &diag)) != F8_OK)
        return cli_file_fail(&diag);
    return cli_json_open(&e->job.json, e->job.c->json);
}

/* Reports what was written, as a sentence or as a record. */
static void report(export *e)
{
    const f8_export *f = &e->file;
    const char *from = e->weights.files.shown;
    cli_weights_report(&e->weights, &e->job, f->recipe);
    cli_json_record(&e->job.json, f8_export_record(f, from));
    if (cli_json_to_stdout(e->job.c))
        return;
    cli_say(stdout,
            "%s: %" PRId64 " of %" PRId64
            " parameters as FP8 under %s: %.2f MiB with their scales, %.2f MiB in %s\n",
            e->job.c->output, f->stored, f->parameters, f->recipe, cli_mib(f->bytes),
            cli_mib(f->bytes_before), from);
    cli_print_calibrated(f->recipe, e->weights.batches, f8_data_shown(&e->data));
}

/* Where the file lies from which the folder is made. Signals are held meanwhile: it is removed. */
static bool choose_between(export *e)
{
    if (e->to == F8_NATIVE)
        return true;
    if (!f8_model_folder_beside(e->job.c->output, ".native.tmp", e->between))
        return cli_error(e->job.c->output, "the name is too long");
    e->file.path = e->between;
    cli_hold(NULL);
    return true;
}

static bool convert(export *e)
{
    if (e->to == F8_NATIVE)
        return true;
    const bool ok = cli_convert(e->job.c, e->between, e->weights.files.shown, e->to, &e->job.json);
    unlink(e->between);
    return ok;
}

int cmd_export(const cli *c)
{
    export e = {.job.c = c,
                .file = {.path = c->output,
                         .recipe = c->recipe,
                         .rules = c->rules.text,
                         .n_rules = c->rules.n,
                         .dtype = F8_ST_N_DTYPES,
                         .list = cli_temporaries()}};
    if (!c->weights.n || !c->output)
        return cli_usage(c, c->weights.n ? "-o FILE is needed" : "--weights FILE is needed");
    if (c->recipe == f8_default_recipe)
        return cli_usage(
            c, "--recipe RECIPE is needed: the recipe under which the weights are stored");
    if (cli_refuses_auto(c))
        return CLI_USAGE;
    if ((c->calibrate || c->tokens) && !cli_data_given(c))
        return cli_usage(c, "%s needs --data FILE", c->tokens ? "--tokens" : "--calibrate");
    if (c->dtype && strcmp(c->dtype, "f32") && strcmp(c->dtype, "bf16"))
        return cli_usage(c, "--dtype takes f32 or bf16");
    if (c->dtype)
        e.file.dtype = strcmp(c->dtype, "f32") ? F8_ST_BF16 : F8_ST_F32;
    const int usage = cli_formats_check(c, &e.to);
    if (usage)
        return usage;
    if (e.to != F8_NATIVE && !c->model)
        return cli_usage(c, "--as %s needs --model DIR: the folder that the training began with",
                         c->as);
    if (!cli_load(c, &e.job.ctx, &e.job.module))
        return CLI_FAILED;
    bool ok = choose_between(&e) && open_files(&e) && quantize(&e);
    if (ok)
        report(&e);
    ok = ok && convert(&e);
    f8_load_end(&e.load);
    f8_loader_close(&e.weights);
    f8_data_close(&e.data);
    return cli_end(&e.job, ok);
}
