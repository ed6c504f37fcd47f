/* fp8c train: trains a language model on the bytes of a text, under one or more recipes. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "frontend/cli/cmd_calibrate.h"
#include "frontend/cli/cmd_checkpoint.h"
#include "ir/base/clock.h"

enum { TAIL = 20, BAR = 24 };

/* ---- one run ---- */

typedef struct result {
    const char *recipe;
    double final_loss, heldout_loss, tokens_per_second;
    fp8c_info info;
    fp8c_peak peak;                 /* of micro_step */
    fp8c_remat remat;
    char target[24];
    fp8c_device device;             /* its name is "" if there is none */
    int64_t micro_steps, fp8_gemms; /* fp8_gemms: executed by the last micro-step */
    int64_t done;                   /* steps */
    bool saved;                     /* the checkpoint is written */
} result;

typedef struct run {
    const cli *c;
    fp8c_context *ctx;
    fp8c_program *program;
    const cli_corpus *corpus;
    cli_json *json;
    int step, update, eval;
    int64_t accumulate;
    result *out;
} run;

static bool find_functions(run *r)
{
    static const char *const needed[] = {"micro_step", "update", "eval"};
    int *const index[] = {&r->step, &r->update, &r->eval};
    for (int i = 0; i < 3; i++) {
        *index[i] = fp8c_program_function(r->program, needed[i]);
        if (*index[i] < 0) {
            fprintf(stderr, "%s: error: the module has no '%s'%s\n", r->c->file, needed[i],
                    i == 1 ? ": it declares no optimizer" : "");
            return false;
        }
    }
    return true;
}

static void progress(const run *r, int64_t step, double loss, double seconds)
{
    const double rate = (double)(step * r->accumulate * r->corpus->B * r->corpus->T) / seconds;
    const double left = seconds / (double)step * (double)(r->c->steps - step);
    char bar[BAR + 1];
    for (int i = 0; i < BAR; i++)
        bar[i] = i < BAR * step / r->c->steps ? '#' : '.';
    bar[BAR] = 0;
    fprintf(stderr,
            "\r%-8s [%s] %" PRId64 "/%" PRId64 "  loss %.4f  %.0f tokens/s  %.0f s left \033[K%s",
            r->out->recipe, bar, step, r->c->steps, loss, rate, left,
            step == r->c->steps ? "\n" : "");
}

/* One optimizer step: `accumulate` micro-steps on random windows, then update. */
static fp8c_status train_step(run *r, int64_t step, double *loss)
{
    int32_t *tokens = cli_buffer(r->program, r->step, FP8C_INPUT, "tokens");
    int32_t *targets = cli_buffer(r->program, r->step, FP8C_INPUT, "targets");
    const float *value = cli_buffer(r->program, r->step, FP8C_OUTPUT, "loss");
    *loss = 0;
    for (int64_t a = 0; a < r->accumulate; a++) {
        for (int64_t b = 0; b < r->corpus->B; b++) {
            const uint64_t draw = (uint64_t)((step * r->accumulate + a) * r->corpus->B + b);
            cli_corpus_draw(r->corpus, r->c->seed, draw, b, tokens, targets);
        }
        fp8c_info before = {.struct_size = sizeof before}, after = before;
        fp8c_program_info(r->program, &before);
        const fp8c_status status = fp8c_program_run(r->program, r->step);
        if (status != FP8C_OK)
            return status;
        fp8c_program_info(r->program, &after);
        r->out->fp8_gemms = after.fp8_gemms_executed - before.fp8_gemms_executed;
        *loss += (double)*value / (double)r->accumulate;
    }
    return fp8c_program_run(r->program, r->update);
}

static void summary(run *r)
{
    const result *o = r->out;
    cli_json_record(
        r->json,
        json_pack("{ss ss ss ss? sI so so sf sf sI sI sI sI sI sf sI sI sf sI}", "event", "summary",
                  "recipe", o->recipe, "target", o->target, "device",
                  *o->device.name ? o->device.name : NULL, "steps", (json_int_t)r->c->steps,
                  "final_loss", cli_json_number(o->final_loss), "heldout_loss",
                  cli_json_number(o->heldout_loss), "unigram_entropy", r->corpus->unigram,
                  "compile_seconds", o->info.compile_seconds, "peak_bytes",
                  (json_int_t)o->info.peak_bytes, "planned_peak_bytes",
                  (json_int_t)o->info.planned_bytes, "arena_bytes", (json_int_t)o->info.arena_bytes,
                  "activation_bytes", (json_int_t)o->peak.activation_bytes, "recomputed",
                  (json_int_t)o->remat.recomputed, "extra_seconds", o->remat.extra_seconds,
                  "fp8_gemms_planned", (json_int_t)o->info.fp8_gemms_planned, "fp8_gemms_executed",
                  (json_int_t)o->fp8_gemms, "tokens_per_second", o->tokens_per_second, "seed",
                  (json_int_t)r->c->seed));
}

static fp8c_status train(run *r)
{
    const bool terminal = isatty(STDERR_FILENO);
    const int64_t tokens = r->accumulate * r->corpus->B * r->corpus->T;
    const int64_t tail = r->c->steps < TAIL ? r->c->steps : TAIL;
    double last = 0, tail_sum = 0;
    cli_hold(r->c->save ? "interrupted: this step is finished and saved; once more ends at once"
                        : "interrupted: this step is finished; once more ends at once");
    const double start = f8_seconds_now();
    for (int64_t step = 0; step < r->c->steps; step++) {
        double loss;
        const double begin = f8_seconds_now();
        const fp8c_status status =
            cli_interrupted() ? FP8C_ERR_CANCELLED : train_step(r, step, &loss);
        if (status != FP8C_OK)
            return status;
        const double end = f8_seconds_now();
        r->out->done = step + 1;
        if (step >= r->c->steps - tail)
            tail_sum += loss;
        cli_json_record(r->json,
                        json_pack("{ss ss sI so sf}", "event", "step", "recipe", r->out->recipe,
                                  "step", (json_int_t)(step + 1), "loss", cli_json_number(loss),
                                  "tokens_per_second", (double)tokens / (end - begin)));
        if (r->json->failed) /* nobody would read how this ends */
            return FP8C_ERR_IO;
        if (terminal && (end - last > 0.1 || step + 1 == r->c->steps)) {
            progress(r, step + 1, loss, end - start);
            last = end;
        }
    }
    r->out->final_loss = tail_sum / (double)tail;
    r->out->tokens_per_second = (double)(tokens * r->c->steps) / (f8_seconds_now() - start);
    int64_t batches;
    const fp8c_status status =
        cli_held_out(r->corpus, r->program, r->eval, &r->out->heldout_loss, &batches);
    r->out->info.struct_size = sizeof r->out->info;
    fp8c_program_info(r->program, &r->out->info);
    if (status == FP8C_OK)
        summary(r);
    return status;
}

/* ---- after a run ---- */

/* Writes the bytes of a variable. If it fails without setting out->diag, the context has the
 * message. */
static bool put_variable(const run *r, f8_file_out *out, int index, const fp8c_variable *v)
{
    const size_t bytes = (size_t)fp8c_type_bytes(&v->type);
    void *copy = malloc(bytes + 1);
    if (!copy)
        f8_file_fail(out->diag, F8_ERR_MEMORY, out->path, "out of memory: %zu bytes were wanted",
                     bytes);
    const bool ok = copy && fp8c_program_read(r->program, index, copy) == FP8C_OK &&
                    f8_file_put(out, copy, bytes) == F8_OK;
    free(copy);
    return ok;
}

/* Writes all variables, whole or not at all. */
static bool save_state(const run *r)
{
    f8_file_out out;
    f8_diag diag = {0};
    fp8c_variable v;
    bool ok = f8_file_begin(&out, cli_temporaries(), r->c->save_state, false, &diag) == F8_OK;
    for (int i = 0; ok && fp8c_program_variable(r->program, i, &v) == FP8C_OK; i++)
        ok = put_variable(r, &out, i, &v);
    ok = ok && f8_file_commit(&out) == F8_OK;
    f8_file_end(&out);
    if (ok)
        return true;
    return diag.status != F8_OK ? cli_file_fail(&diag) : cli_fail(r->ctx) == CLI_DONE;
}

static void print_step(FILE *to, const run *r, int function, int index, const fp8c_step *s)
{
    const char *algorithm = fp8c_program_algorithm(r->program, function, index);
    fprintf(to, "profile %s %s %s %.6f s %.3f GB/s%s%s\n",
            fp8c_program_function_name(r->program, function), s->kind, s->name,
            s->seconds / (double)r->c->steps,
            (double)(s->bytes_read + s->bytes_written) * (double)r->c->steps / s->seconds / 1e9,
            algorithm ? " " : "", algorithm ? algorithm : "");
}

static void print_profile(const run *r)
{
    FILE *to = cli_json_to_stdout(r->c) ? stderr : stdout;
    fp8c_step s;
    for (int f = 0; fp8c_program_function_name(r->program, f); f++)
        for (int i = 0; fp8c_program_step(r->program, f, i, &s) == FP8C_OK; i++)
            if (s.seconds > 0)
                print_step(to, r, f, i, &s);
}

/* Losses that are not finite are shown as they are: a diverged run must look like one. */
static void print_table(const cli *c, const result *results, const cli_corpus *corpus)
{
    const size_t base = cli_baseline(c);
    const int width = cli_recipe_width(c, 10);
    printf("%-*s %11s %11s %10s %10s %12s %9s  %s\n", width, "recipe", "final loss", "held out",
           "gap", "tokens/s", "peak memory", "compile", "FP8 GEMMs a step (planned)");
    for (size_t i = 0; i <= c->compare.n; i++) {
        const result *o = &results[i];
        char gap[24] = "-";
        if (i != base)
            snprintf(gap, sizeof gap, "%+.3f%%",
                     100 * (o->final_loss / results[base].final_loss - 1));
        printf("%-*s %11.4f %11.4f %10s %10.0f %8.1f MiB %7.2f s  %" PRId64 " (%" PRId64 ")\n",
               width, o->recipe, o->final_loss, o->heldout_loss, gap, o->tokens_per_second,
               (double)o->info.peak_bytes / (1 << 20), o->info.compile_seconds, o->fp8_gemms,
               o->info.fp8_gemms_planned);
    }
    for (size_t i = 0; i <= c->compare.n; i++) {
        const fp8c_remat *m = &results[i].remat;
        if (m->arena_before)
            printf("%s: micro_step recomputes %" PRId64
                   " values: this reduces the arena from %.1f to %.1f MiB and takes an estimated "
                   "%.2f%% more time\n",
                   results[i].recipe, m->recomputed, (double)m->arena_before / (1 << 20),
                   (double)m->arena_after / (1 << 20), 100 * m->extra_seconds / m->seconds);
    }
    const fp8c_device *d = &results[0].device;
    if (*d->name)
        printf("on %s (%s), %" PRId32 " multiprocessors, %.1f GiB\n", d->name, results[0].target,
               d->multiprocessors, (double)d->memory / (1 << 30));
    printf("losses in nats per byte; final loss is the mean of the last %d steps; the text's "
           "unigram entropy is %.4f\n",
           TAIL, corpus->unigram);
}

/* ---- the command ---- */

enum { STOPPED = 2 * CLI_RECIPE + 8192 };

/* Sets what a signal that ends the command makes it say. at: the last run, or NULL. */
static void say_stopped(const cli *c, const result *results, const result *at, char text[STOPPED])
{
    char where[CLI_RECIPE + 100] = "interrupted before the first step", what[CLI_RECIPE + 100] = "";
    if (at && at->done)
        snprintf(where, sizeof where, "interrupted after step %" PRId64 " of %" PRId64 " under %s",
                 at->done, c->steps, at->recipe);
    if (results->saved)
        snprintf(what, sizeof what, "has the checkpoint of step %" PRId64 " under %s",
                 results->done, results->recipe);
    if (c->save)
        snprintf(text, STOPPED, "%s: %.4096s %s", where, c->save,
                 results->saved ? what : "is not written");
    else
        snprintf(text, STOPPED, "%s", where);
    cli_interrupt_text(text);
}

/* What --save and --save-state ask for. checkpoint: where to write it, or NULL. After a signal it
 * is that of the last step. */
static int save(run *r, const char *checkpoint)
{
    const result *o = r->out;
    if ((r->c->save_state && !save_state(r)) ||
        (checkpoint && !cli_checkpoint_save(r->c, checkpoint, r->program, o->recipe, o->done)))
        return CLI_FAILED;
    r->out->saved = checkpoint != NULL;
    return CLI_DONE;
}

/* Trains under out->recipe. */
static int train_recipe(const cli *c, fp8c_context *ctx, const fp8c_module *module,
                        cli_corpus *corpus, cli_json *json, const char *checkpoint, result *out)
{
    fp8c_compile_options options = cli_compile_options(c, out->recipe);
    run r = {.c = c, .ctx = ctx, .corpus = corpus, .json = json, .out = out,
             .accumulate = fp8c_module_accumulate(module)};
    fp8c_calibration *calibration = NULL;
    if (cli_is_auto(out->recipe) &&
        !(calibration = cli_calibrate(c, ctx, module, &options, corpus)))
        return CLI_FAILED;
    options.calibration = calibration;
    const fp8c_status compiled = fp8c_compile(module, &options, &r.program);
    fp8c_calibration_destroy(calibration);
    if (compiled != FP8C_OK)
        return cli_fail(ctx);
    snprintf(out->target, sizeof out->target, "%s", fp8c_program_target(r.program));
    out->device.struct_size = sizeof out->device;
    fp8c_program_device(r.program, &out->device); /* fails if there is no device */
    out->remat.struct_size = sizeof out->remat;
    fp8c_program_remat(r.program, &out->remat);
    fp8c_program_peak(r.program, fp8c_program_function(r.program, "micro_step"), &out->peak);
    int code = CLI_FAILED;
    if (!find_functions(&r) || !cli_corpus_cut(corpus, c, module, r.program, r.step))
        goto end;
    fp8c_status status = fp8c_program_initialize(r.program, c->seed);
    if (status == FP8C_OK)
        status = train(&r);
    if (status != FP8C_OK && status != FP8C_ERR_CANCELLED) {
        if (!json->failed) /* cli_json_close reports that */
            fprintf(stderr, "%s\n", fp8c_context_message(ctx));
        goto end;
    }
    if (c->profile && status == FP8C_OK)
        print_profile(&r);
    code = out->done ? save(&r, checkpoint) : CLI_DONE;
end:
    fp8c_program_destroy(r.program);
    return code;
}

static bool can_save(const cli *c)
{
    const char *const paths[] = {c->save, c->save_state};
    f8_diag diag = {0};
    for (int i = 0; i < 2; i++)
        if (paths[i] && f8_file_writable(cli_temporaries(), paths[i], &diag) != F8_OK)
            return cli_file_fail(&diag);
    return true;
}

int cmd_train(const cli *given)
{
    cli own = *given;
    const cli *c = &own;
    fp8c_context *ctx;
    fp8c_module *module;
    if (!c->data) {
        fprintf(stderr, "fp8c train: --data FILE is needed; see fp8c train --help\n");
        return CLI_USAGE;
    }
    own.steps = own.steps ? own.steps : CLI_STEPS;
    if (!cli_load(c, &ctx, &module))
        return CLI_FAILED;
    cli_json json = {0};
    cli_corpus corpus = {0};
    result results[1 + CLI_MAX_RECIPES] = {{0}};
    static char stopped[STOPPED]; /* it outlives the command */
    say_stopped(c, results, NULL, stopped);
    /* Everything that can be checked is checked before the first run. */
    const bool ready =
        can_save(c) && cli_corpus_read(&corpus, c->data) && cli_json_open(&json, c->json);
    int code = ready ? CLI_DONE : CLI_FAILED;
    if (ready)
        cli_hold(NULL);
    for (size_t i = 0; i <= c->compare.n && code == CLI_DONE && !cli_interrupted(); i++) {
        results[i].recipe = cli_recipe(c, i);
        code = train_recipe(c, ctx, module, &corpus, &json, i ? NULL : c->save, &results[i]);
        say_stopped(c, results, &results[i], stopped);
    }
    if (!cli_json_close(&json))
        code = CLI_FAILED;
    if (code == CLI_DONE && !cli_json_to_stdout(c) && !cli_interrupted())
        print_table(c, results, &corpus);
    cli_corpus_free(&corpus);
    fp8c_module_destroy(module);
    fp8c_context_destroy(ctx);
    return code;
}
