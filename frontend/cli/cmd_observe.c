/* Calibrating the scales of `delayed` for weights that have none: see cmd_observe.h. */
#include "frontend/cli/cmd_observe.h"

#include <inttypes.h>

enum { DEFAULT_BATCHES = 8 };

static bool observe_batches(const cli_weights *w, fp8c_context *ctx, int64_t batches, cli_fill fill,
                            void *user)
{
    const int eval = fp8c_program_function(w->observer, "eval");
    for (int64_t i = 0; i < batches; i++) {
        if (!fill(user, w->observer, eval, i))
            return false;
        if (fp8c_program_run(w->observer, eval) != FP8C_OK)
            return cli_fail(ctx) == CLI_DONE;
    }
    return true;
}

bool cli_observe(cli_weights *w, fp8c_context *ctx, const fp8c_module *module,
                 const fp8c_compile_options *options, fp8c_program *program, int64_t batches,
                 cli_fill fill, void *user)
{
    fp8c_compile_options own = *options;
    fp8c_program_dim dim;
    fp8c_program_destroy(w->observer); /* of another recipe */
    w->observer = NULL;
    w->batches = 0;
    if (!f8_load_needs_scales(program, &w->files))
        return true;
    own.observe = 1;
    fp8c_program *observer;
    if (fp8c_compile(module, &own, &observer) != FP8C_OK)
        return cli_fail(ctx) == CLI_DONE;
    bool ok = true;
    for (int i = 0; ok && fp8c_program_dims(program, i, &dim) == FP8C_OK; i++)
        ok = fp8c_program_set_dim(observer, dim.name, dim.value) == FP8C_OK ||
             cli_fail(ctx) == CLI_DONE;
    ok = ok && cli_weights_load(w, ctx, observer, options->recipe);
    w->observer = observer;
    ok = ok && observe_batches(w, ctx, batches, fill, user);
    w->batches = ok ? batches : 0;
    return ok;
}

typedef struct source {
    const cli *c;
    const fp8c_module *module;
    f8_data *data;
} source;

static bool fill_from_data(void *user, fp8c_program *observer, int eval, int64_t index)
{
    const source *s = user;
    return cli_data_fit(s->data, s->module, observer, eval) &&
           cli_data_fill(s->data, observer, eval, s->c->seed, (uint64_t)index);
}

bool cli_observe_data(cli_weights *w, fp8c_context *ctx, const fp8c_module *module,
                      const fp8c_compile_options *options, fp8c_program *program, f8_data *data)
{
    source s = {w->c, module, data};
    const int64_t batches = w->c->calibrate ? w->c->calibrate : DEFAULT_BATCHES;
    return cli_observe(w, ctx, module, options, program, batches, fill_from_data, &s);
}

void cli_print_calibrated(const char *recipe, int64_t batches, const char *what)
{
    if (batches)
        printf("%s: the scales were calibrated on %" PRId64 " batch%s of %s\n", recipe, batches,
               batches == 1 ? "" : "es", what);
}
