/* fp8c eval: the held-out loss of a checkpoint under one or more recipes. It shows what a model
 * loses if it is used in another precision than it was trained in. */
#include <inttypes.h>

#include "frontend/call/evaluate.h"
#include "frontend/cli/auto.h"
#include "frontend/cli/checkpoint.h"

typedef struct eval {
    cli_job job;
    f8_evaluating on;
    f8_data data;
    f8_loader weights;
    f8_stored stored; /* the recipes under which the files store them */
    f8_evaluation results[1 + F8_MOST_RECIPES];
} eval;

/* Whether any recipe used the batches of --calibrate. Known once the weights of the last recipe,
 * number `index`, are loaded; if none did, the option is refused. */
static bool uses_calibrate(const eval *e, size_t index)
{
    const cli *c = e->job.c;
    int64_t calibrated = 0;
    for (size_t i = 0; i <= c->compare.n; i++)
        calibrated += e->results[i].calibrated;
    return !c->calibrate || calibrated || index < c->compare.n ||
           cli_error(e->weights.files.shown,
                     "--calibrate: there are no scales to calibrate: the weights have all that %s "
                     "need%s",
                     c->compare.n ? "these recipes" : c->recipe, c->compare.n ? "" : "s");
}

static double batches_of(const void *evaluation, int function)
{
    (void)function;
    return (double)((const f8_evaluation *)evaluation)->batches;
}

static bool eval_program(eval *e, const fp8c_compile_options *options, size_t index)
{
    fp8c_program *program = e->job.program;
    f8_evaluation *x = &e->results[index];
    f8_diag diag = {0};
    const fp8c_status loaded = f8_evaluate_load(&e->on, options, program, x, &diag);
    if (!cli_weights_done(&e->weights, &e->job, options->recipe, loaded, &diag) ||
        !uses_calibrate(e, index) ||
        !cli_done(e->job.ctx, f8_evaluate(&e->on, program, x, &diag), &diag))
        return false;
    cli_weights_report(&e->weights, &e->job, options->recipe);
    cli_json_record(&e->job.json,
                    f8_evaluation_record(&e->on, options->recipe,
                                         f8_stored_under(&e->stored, &e->weights.files), x));
    return cli_profile(e->job.c, program, batches_of, x, -1, "batch", (double)x->batches,
                       &e->job.json, json_pack("{ss}", "recipe", options->recipe));
}

static bool eval_recipe(eval *e, size_t index)
{
    fp8c_compile_options options = cli_compile_options(e->job.c, cli_recipe(e->job.c, index));
    options.inference = 1;
    options.stored_weights = e->stored.weight;
    options.n_stored_weights = e->stored.n;
    fp8c_program_destroy(e->job.program);
    return cli_compile(&e->job, &options) && eval_program(e, &options, index);
}

/* What the files say of themselves, as text that can be printed; "?": nothing. */
static const char *said(const eval *e, const char *key, char shown[200])
{
    const char *text = f8_weights_metadata(&e->weights.files, key);
    return text ? f8_st_shown(text, shown, 200) : "?";
}

static void print_table(const eval *e)
{
    const size_t base = cli_baseline(e->job.c);
    const char *files = e->weights.files.shown;
    const int width = cli_recipe_width(e->job.c, 24);
    char shown[2][200], compared[80];
    cli_say(stdout, "%-*s %11s %10s %12s %12s %9s  %s\n", width, "recipe", "held out", "gap",
            "weights", "peak memory", "compile", "FP8 GEMMs a batch (planned)");
    for (size_t i = 0; i <= e->job.c->compare.n; i++) {
        const f8_evaluation *x = &e->results[i];
        char gap[24] = "-";
        if (i != base)
            snprintf(gap, sizeof gap, "%+.3f%%", 100 * (x->loss / e->results[base].loss - 1));
        cli_say(stdout, "%-*s %11.4f %10s %8.2f MiB %8.1f MiB %7.2f s  %" PRId64 " (%" PRId64 ")\n",
                width, cli_recipe(e->job.c, i), x->loss, gap, cli_mib(x->weights_bytes),
                cli_mib(x->info.peak_bytes), x->info.compile_seconds, x->fp8_gemms,
                x->info.fp8_gemms_planned);
    }
    if (f8_weights_metadata(&e->weights.files, "fp8c.recipe"))
        cli_say(stdout, "%s: trained under %s, %s steps\n", files, said(e, "fp8c.recipe", shown[0]),
                said(e, "fp8c.steps", shown[1]));
    if (e->stored.n)
        cli_say(
            stdout, "%s: %zu weights stored in FP8 under %s\n", files, e->stored.n,
            f8_st_shown(f8_stored_under(&e->stored, &e->weights.files), shown[0], sizeof shown[0]));
    for (size_t i = 0; i <= e->job.c->compare.n; i++)
        cli_print_calibrated(cli_recipe(e->job.c, i), e->results[i].calibrated,
                             f8_data_shown(&e->data));
    cli_say(stdout, "%s, of %" PRId64 " held-out %s of %s%s\n", f8_data_losses(&e->data),
            e->results[0].batches * f8_data_items(&e->data), f8_data_unit(&e->data),
            f8_data_held_out_shown(&e->data), f8_data_compared(&e->data, compared));
}

int cmd_eval(const cli *c)
{
    if (!c->weights.n || !cli_data_given(c))
        return cli_usage(c, "%sFILE is needed",
                         c->weights.n ? "--data FILE or --batch NAME=" : "--weights ");
    if (cli_refuses_auto(c))
        return CLI_USAGE;
    eval e = {.job.c = c};
    if (!cli_load(c, &e.job.ctx, &e.job.module))
        return CLI_FAILED;
    e.on = (f8_evaluating){e.job.module, &e.data, &e.weights, c->calibrate, c->seed};
    bool ok = cli_data_open(&e.data, c) && cli_weights_open(&e.weights, c) &&
              cli_stored_read(&e.stored, &e.weights, e.job.ctx) &&
              cli_json_open(&e.job.json, c->json);
    for (size_t i = 0; ok && i <= c->compare.n; i++)
        ok = eval_recipe(&e, i);
    ok &= cli_json_close(&e.job.json);
    if (ok && !cli_json_to_stdout(c))
        print_table(&e);
    f8_stored_free(&e.stored);
    f8_loader_close(&e.weights);
    f8_data_close(&e.data);
    return cli_end(&e.job, ok);
}
