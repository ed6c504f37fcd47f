/* Calibration for recipe auto: a few batches of the data run through the model in bf16, and
 * fp8c_calibration_* observes them. */
#include "frontend/train/calibrate.h"
#include "frontend/train/weights.h"

#include <stdlib.h>
#include <string.h>

enum { DEFAULT_BATCHES = 2 };

bool f8_is_auto(const char *recipe)
{
    return recipe && !strcmp(recipe, "auto");
}

static bool observe(f8_train *t, fp8c_context *ctx, fp8c_calibration *calibration, f8_data *data,
                    int step)
{
    fp8c_program *p = fp8c_calibration_program(calibration);
    const f8_train_options *o = t->options;
    const int64_t batches = o->calibrate ? o->calibrate : DEFAULT_BATCHES;
    f8_diag diag = {0};
    bool ok = f8_train_initialize(t, ctx, p, NULL, o->seed);
    for (int64_t i = 0; i < batches && ok; i++)
        ok = f8_train_done(t, f8_data_fill(data, p, step, o->seed, (uint64_t)i, &diag), &diag) &&
             !t->call.stopped(t->call.user) && f8_train_ok(t, ctx, fp8c_program_run(p, step)) &&
             f8_train_ok(t, ctx, fp8c_calibration_observe(calibration));
    return ok;
}

fp8c_calibration *f8_train_calibrate(f8_train *t, fp8c_context *ctx, const fp8c_module *module,
                                     const fp8c_compile_options *options, f8_data *data)
{
    fp8c_calibration *calibration;
    f8_diag diag = {0};
    if (!f8_train_ok(
            t, ctx,
            fp8c_calibration_create(module, options, t->options->error_budget, &calibration)))
        return NULL;
    fp8c_program *p = fp8c_calibration_program(calibration);
    const int step = fp8c_program_function(p, "micro_step");
    if (f8_train_done(t, f8_data_fit(data, module, p, step, &diag), &diag) &&
        observe(t, ctx, calibration, data, step))
        return calibration;
    fp8c_calibration_destroy(calibration);
    return NULL;
}

bool f8_train_take_rules(f8_train *t, fp8c_context *ctx, fp8c_module *module,
                         const fp8c_calibration *calibration)
{
    static const char word[] = "recipe ";
    char *text = NULL, *save;
    size_t n;
    FILE *to = open_memstream(&text, &n);
    const bool written = to && fp8c_calibration_rules(calibration, f8_write_stream, to) == FP8C_OK;
    bool ok = to && !fclose(to) && written;
    if (!ok)
        f8_train_no_memory(t);
    for (char *line = ok ? strtok_r(text, "\n", &save) : NULL; line && ok;
         line = strtok_r(NULL, "\n", &save))
        ok = f8_train_ok(t, ctx, fp8c_module_rule(module, line + sizeof word - 1, "recipe auto"));
    free(text);
    return ok;
}
