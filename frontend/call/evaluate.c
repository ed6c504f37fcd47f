/* The held-out loss of weights: see evaluate.h. */
#include <stdio.h>

#include "frontend/call/evaluate.h"
#include "frontend/records/records.h"

enum { DEFAULT_BATCHES = 8 };

static f8_status fill(void *user, fp8c_program *observer, int eval, int64_t index, f8_diag *diag)
{
    const f8_evaluating *e = user;
    F8_TRY(f8_data_fit(e->data, e->module, observer, eval, diag));
    return f8_data_fill(e->data, observer, eval, e->seed, (uint64_t)index, diag);
}

fp8c_status f8_calibrate_on(const f8_evaluating *e, const fp8c_compile_options *options,
                            fp8c_program *program, f8_diag *diag)
{
    f8_evaluating own = *e;
    return f8_loader_observe(e->weights, e->module, options, program,
                             e->calibrate ? e->calibrate : DEFAULT_BATCHES, fill, &own, diag);
}

fp8c_status f8_evaluate_load(const f8_evaluating *e, const fp8c_compile_options *options,
                             fp8c_program *program, f8_evaluation *out, f8_diag *diag)
{
    const int function = fp8c_program_function(program, "eval");
    fp8c_variable v;
    *out = (f8_evaluation){.info.struct_size = sizeof out->info};
    snprintf(out->target, sizeof out->target, "%s", fp8c_program_target(program));
    fp8c_status status = (fp8c_status)f8_data_fit(e->data, e->module, program, function, diag);
    if (status == FP8C_OK)
        status = f8_calibrate_on(e, options, program, diag);
    if (status == FP8C_OK)
        status = f8_loader_load(e->weights, program, diag);
    out->calibrated = e->weights->batches;
    for (int i = 0; fp8c_program_variable(program, i, &v) == FP8C_OK; i++)
        out->weights_bytes += v.is_param ? fp8c_type_bytes(&v.type) : 0;
    return status;
}

fp8c_status f8_evaluate(const f8_evaluating *e, fp8c_program *program, f8_evaluation *out,
                        f8_diag *diag)
{
    fp8c_info before = {.struct_size = sizeof before};
    fp8c_program_info(program, &before);
    const fp8c_status status = f8_data_held_out(
        e->data, program, fp8c_program_function(program, "eval"), &out->loss, &out->batches, diag);
    fp8c_program_info(program, &out->info);
    if (status == FP8C_OK)
        out->fp8_gemms = (out->info.fp8_gemms_executed - before.fp8_gemms_executed) / out->batches;
    return status;
}

json_t *f8_evaluation_record(const f8_evaluating *e, const char *recipe, const char *stored,
                             const f8_evaluation *x)
{
    const f8_weights *files = &e->weights->files;
    return json_pack("{ss ss ss ss ss? ss? sI so sI sI sI sI sf sI}", "event", "eval", "recipe",
                     recipe, "target", x->target, "weights", files->shown, "trained",
                     f8_weights_metadata(files, "fp8c.recipe"), "stored", stored, "weights_bytes",
                     (json_int_t)x->weights_bytes, "heldout_loss", f8_json_number(x->loss),
                     "batches", (json_int_t)x->batches, f8_data_items_name(e->data),
                     (json_int_t)(x->batches * f8_data_items(e->data)), "fp8_gemms_planned",
                     (json_int_t)x->info.fp8_gemms_planned, "fp8_gemms_executed",
                     (json_int_t)x->fp8_gemms, "compile_seconds", x->info.compile_seconds,
                     "peak_bytes", (json_int_t)x->info.peak_bytes);
}
