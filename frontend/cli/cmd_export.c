/* fp8c export: writes the weights of a checkpoint as FP8 codes with their scales, for inference. */
#include <inttypes.h>
#include <string.h>

#include "frontend/checkpoint/export.h"
#include "frontend/cli/auto.h"
#include "frontend/cli/cmd_checkpoint.h"

typedef struct export {
    const cli *c;
    fp8c_context *ctx;
    fp8c_module *module;
    fp8c_program *program;
    f8_loader weights;
    f8_load load;
    f8_data data; /* to calibrate on */
    f8_export file;
    cli_json json;
} export;

/* Calibrates scales on --data, on the CPU. Data that nothing uses are refused. */
static bool calibrate(export *e)
{
    fp8c_compile_options options = cli_compile_options(e->c, e->c->recipe);
    options.inference = 1;
    if (!cli_data_given(e->c))
        return true;
    if (!f8_load_needs_scales(e->program, &e->weights.files))
        return cli_error(e->weights.files.shown,
                         "there are no scales to calibrate on --data: the weights have all that %s "
                         "needs",
                         e->c->recipe);
    return cli_data_open(&e->data, e->c) &&
           cli_weights_observe(&e->weights, e->c, e->ctx, e->module, &options, e->program,
                               &e->data);
}

/* Uses the target reference, which has every recipe and compiles nothing. */
static bool quantize(export *e)
{
    const fp8c_compile_options options = {.struct_size = sizeof options,
                                          .target = "reference",
                                          .recipe = e->c->recipe,
                                          .inference = 1,
                                          .stored = e->c->recipe};
    f8_diag diag = {0};
    if (!cli_ok(e->ctx, fp8c_compile(e->module, &options, &e->program)) || !calibrate(e))
        return false;
    const fp8c_status status = f8_loader_quantize(&e->weights, e->program, &e->load, &diag);
    return cli_weights_done(&e->weights, e->c, e->ctx, e->c->recipe, status, &diag) &&
           (f8_export_write(&e->file, e->program, &e->load, &diag) == F8_OK ||
            cli_file_fail(&diag));
}

/* Opens both files before anything is computed. */
static bool open_files(export *e)
{
    f8_diag diag = {0};
    if (!cli_weights_open(&e->weights, e->c))
        return false;
    if (f8_weights_metadata(&e->weights.files, "fp8c.stored"))
        return cli_error(e->weights.files.shown,
                         "the weights are already FP8: export the checkpoint they came from");
    if (f8_file_writable(cli_temporaries(), e->c->output, &diag) != F8_OK)
        return cli_file_fail(&diag);
    return cli_json_open(&e->json, e->c->json);
}

/* Reports what was written, as a sentence or as a record. */
static void report(export *e)
{
    const f8_export *f = &e->file;
    const char *from = e->weights.files.shown;
    cli_weights_report(&e->weights, e->c, f->recipe, &e->json);
    cli_json_record(&e->json, json_pack("{ss ss ss ss sI sI sI sI}", "event", "export", "recipe",
                                        f->recipe, "weights", from, "file", f->path, "parameters",
                                        (json_int_t)f->parameters, "stored", (json_int_t)f->stored,
                                        "checkpoint_bytes", (json_int_t)f->bytes_before, "bytes",
                                        (json_int_t)f->bytes));
    if (cli_json_to_stdout(e->c))
        return;
    printf("%s: %" PRId64 " of %" PRId64
           " parameters as FP8 under %s: %.2f MiB with their scales, %.2f MiB in %s\n",
           f->path, f->stored, f->parameters, f->recipe, cli_mib(f->bytes),
           cli_mib(f->bytes_before), from);
    cli_print_calibrated(f->recipe, e->weights.batches, f8_data_shown(&e->data));
}

int cmd_export(const cli *c)
{
    export e = {.c = c,
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
    if (cli_refuses_auto(c, c->recipe))
        return CLI_USAGE;
    if ((c->calibrate || c->tokens) && !cli_data_given(c))
        return cli_usage(c, "%s needs --data FILE", c->tokens ? "--tokens" : "--calibrate");
    if (c->dtype && strcmp(c->dtype, "f32") && strcmp(c->dtype, "bf16"))
        return cli_usage(c, "--dtype takes f32 or bf16");
    if (c->dtype)
        e.file.dtype = strcmp(c->dtype, "f32") ? F8_ST_BF16 : F8_ST_F32;
    if (!cli_load(c, &e.ctx, &e.module))
        return CLI_FAILED;
    bool ok = open_files(&e) && quantize(&e);
    if (ok)
        report(&e);
    ok &= cli_json_close(&e.json);
    f8_load_end(&e.load);
    f8_loader_close(&e.weights);
    f8_data_close(&e.data);
    fp8c_program_destroy(e.program);
    fp8c_module_destroy(e.module);
    fp8c_context_destroy(e.ctx);
    return ok ? CLI_DONE : CLI_FAILED;
}
