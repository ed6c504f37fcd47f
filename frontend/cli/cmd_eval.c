/* fp8c eval: the held-out loss of a checkpoint under one or more recipes. It shows what a model
 * loses if it is used in another precision than it was trained in. */
#include <inttypes.h>
#include <string.h>

#include "frontend/cli/auto.h"
#include "frontend/cli/cmd_checkpoint.h"

typedef struct result {
    double loss;
    int64_t batches, fp8_gemms; /* fp8_gemms: executed by each batch */
    int64_t calibration;        /* batches that scales were calibrated on; 0: they were not */
    int64_t weights_bytes;      /* the parameters in memory, with the scales of those in FP8 */
    fp8c_info info;
    char target[24];
} result;

typedef struct eval {
    const cli *c;
    fp8c_context *ctx;
    const fp8c_module *module;
    f8_data data;
    f8_loader weights;
    f8_stored stored; /* the recipes under which the files store them */
    cli_json json;
    result results[1 + F8_MOST_RECIPES];
} eval;

static void record(eval *e, const char *recipe, const result *r)
{
    const char *trained = f8_weights_metadata(&e->weights.files, "fp8c.recipe");
    const char *stored = e->stored.n ? f8_weights_metadata(&e->weights.files, "fp8c.export") : NULL;
    cli_json_record(
        &e->json,
        json_pack("{ss ss ss ss ss? ss? sI so sI sI sI sI sf sI}", "event", "eval", "recipe",
                  recipe, "target", r->target, "weights", e->weights.files.shown, "trained",
                  trained, "stored", stored, "weights_bytes", (json_int_t)r->weights_bytes,
                  "heldout_loss", cli_json_number(r->loss), "batches", (json_int_t)r->batches,
                  f8_data_items_name(&e->data), (json_int_t)(r->batches * f8_data_items(&e->data)),
                  "fp8_gemms_planned", (json_int_t)r->info.fp8_gemms_planned, "fp8_gemms_executed",
                  (json_int_t)r->fp8_gemms, "compile_seconds", r->info.compile_seconds,
                  "peak_bytes", (json_int_t)r->info.peak_bytes));
}

static int64_t weights_bytes(fp8c_program *program)
{
    fp8c_variable v;
    int64_t bytes = 0;
    for (int i = 0; fp8c_program_variable(program, i, &v) == FP8C_OK; i++)
        bytes += v.is_param ? fp8c_type_bytes(&v.type) : 0;
    return bytes;
}

/* Whether any recipe used the batches of --calibrate. Known once the weights of the last recipe are
 * loaded; if none did, the option is refused. */
static bool uses_calibrate(const eval *e, const result *r)
{
    int64_t calibrated = 0;
    for (size_t i = 0; i <= e->c->compare.n; i++)
        calibrated += e->results[i].calibration;
    if (!e->c->calibrate || calibrated || r != &e->results[e->c->compare.n])
        return true;
    fprintf(stderr,
            "%s: error: --calibrate: there are no scales to calibrate: the weights have all that "
            "%s need%s\n",
            e->weights.files.shown, e->c->compare.n ? "these recipes" : e->c->recipe,
            e->c->compare.n ? "" : "s");
    return false;
}

/* false after a message on stderr. */
static bool eval_program(eval *e, const fp8c_compile_options *options, fp8c_program *program,
                         result *r)
{
    const char *recipe = options->recipe;
    const int function = fp8c_program_function(program, "eval");
    fp8c_info before = {.struct_size = sizeof before};
    snprintf(r->target, sizeof r->target, "%s", fp8c_program_target(program));
    if (!cli_data_fit(&e->data, e->module, program, function) ||
        !cli_weights_observe(&e->weights, e->c, e->ctx, e->module, options, program, &e->data) ||
        !cli_weights_load(&e->weights, e->c, e->ctx, program, recipe))
        return false;
    r->calibration = e->weights.batches;
    if (!uses_calibrate(e, r))
        return false;
    r->weights_bytes = weights_bytes(program);
    fp8c_program_info(program, &before);
    if (cli_data_held_out(&e->data, program, function, &r->loss, &r->batches) != FP8C_OK)
        return !e->data.failed && cli_fail(e->ctx) == CLI_DONE;
    r->info.struct_size = sizeof r->info;
    fp8c_program_info(program, &r->info);
    r->fp8_gemms = (r->info.fp8_gemms_executed - before.fp8_gemms_executed) / r->batches;
    cli_weights_report(&e->weights, e->c, recipe, &e->json);
    record(e, recipe, r);
    return true;
}

static bool eval_recipe(eval *e, size_t index)
{
    const char *recipe = cli_recipe(e->c, index);
    fp8c_program *program;
    fp8c_compile_options options = cli_compile_options(e->c, recipe);
    options.inference = 1;
    options.stored_weights = e->stored.weight;
    options.n_stored_weights = e->stored.n;
    const bool ok = fp8c_compile(e->module, &options, &program) == FP8C_OK
                        ? eval_program(e, &options, program, &e->results[index])
                        : cli_fail(e->ctx) == CLI_DONE;
    fp8c_program_destroy(program);
    return ok;
}

static void print_table(const eval *e)
{
    const size_t base = cli_baseline(e->c);
    const result *first = &e->results[0];
    const char *trained = f8_weights_metadata(&e->weights.files, "fp8c.recipe"),
               *steps = f8_weights_metadata(&e->weights.files, "fp8c.steps"),
               *stored = f8_weights_metadata(&e->weights.files, "fp8c.export");
    const int width = cli_recipe_width(e->c, 24);
    printf("%-*s %11s %10s %12s %12s %9s  %s\n", width, "recipe", "held out", "gap", "weights",
           "peak memory", "compile", "FP8 GEMMs a batch (planned)");
    for (size_t i = 0; i <= e->c->compare.n; i++) {
        const result *r = &e->results[i];
        char gap[24] = "-";
        if (i != base)
            snprintf(gap, sizeof gap, "%+.3f%%", 100 * (r->loss / e->results[base].loss - 1));
        printf("%-*s %11.4f %10s %8.2f MiB %8.1f MiB %7.2f s  %" PRId64 " (%" PRId64 ")\n", width,
               cli_recipe(e->c, i), r->loss, gap, (double)r->weights_bytes / (1 << 20),
               (double)r->info.peak_bytes / (1 << 20), r->info.compile_seconds, r->fp8_gemms,
               r->info.fp8_gemms_planned);
    }
    char shown[2][200];
    if (trained)
        printf("%s: trained under %s, %s steps\n", e->weights.files.shown,
               f8_st_shown(trained, shown[0], sizeof shown[0]),
               steps ? f8_st_shown(steps, shown[1], sizeof shown[1]) : "?");
    if (e->stored.n)
        printf("%s: %zu weights stored in FP8 under %s\n", e->weights.files.shown, e->stored.n,
               stored ? f8_st_shown(stored, shown[0], sizeof shown[0]) : "?");
    for (size_t i = 0; i <= e->c->compare.n; i++)
        cli_print_calibrated(cli_recipe(e->c, i), e->results[i].calibration,
                             f8_data_shown(&e->data));
    char compared[80];
    printf("%s, of %" PRId64 " held-out %s of %s%s\n", f8_data_losses(&e->data),
           first->batches * f8_data_items(&e->data), f8_data_unit(&e->data),
           f8_data_held_out_shown(&e->data), f8_data_compared(&e->data, compared));
}

static int run(eval *e)
{
    bool ok = cli_data_open(&e->data, e->c) && cli_weights_open(&e->weights, e->c) &&
              cli_stored_read(&e->stored, &e->weights, e->ctx) &&
              cli_json_open(&e->json, e->c->json);
    for (size_t i = 0; ok && i <= e->c->compare.n; i++)
        ok = eval_recipe(e, i);
    ok &= cli_json_close(&e->json);
    if (ok && !cli_json_to_stdout(e->c))
        print_table(e);
    return ok ? CLI_DONE : CLI_FAILED;
}

int cmd_eval(const cli *c)
{
    if (!c->weights.n || !cli_data_given(c)) {
        fprintf(stderr, "fp8c eval: %sFILE is needed; see fp8c eval --help\n",
                c->weights.n ? "--data FILE or --batch NAME=" : "--weights ");
        return CLI_USAGE;
    }
    for (size_t i = 0; i <= c->compare.n; i++)
        if (cli_refuses_auto(c, cli_recipe(c, i)))
            return CLI_USAGE;
    eval e = {.c = c};
    fp8c_module *module;
    if (!cli_load(c, &e.ctx, &module))
        return CLI_FAILED;
    e.module = module;
    const int code = run(&e);
    f8_stored_free(&e.stored);
    f8_loader_close(&e.weights);
    f8_data_close(&e.data);
    fp8c_module_destroy(module);
    fp8c_context_destroy(e.ctx);
    return code;
}
