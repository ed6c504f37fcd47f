/* fp8c tune FILE.f8: measures the GEMMs and kernels of a model's step, and shows what it found. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/cli/tune.h"
#include "frontend/measure/model.h"
#include "frontend/records/records.h"
#include "ir/base/format.h"

/* ---- the command line ---- */

/* " OPTION VALUE" behind the text; value NULL: it was not given; "": a flag. */
static void add(const char **text, f8_arena *arena, const char *option, const char *value)
{
    const char *quoted = value && *value ? f8_measure_quote(value, arena) : "";
    if (!value || !*text)
        return;
    *text = quoted ? f8_arena_printf(arena, *quoted ? "%s %s %s" : "%s %s%s", *text, option, quoted)
                   : NULL;
}

static void add_number(const char **text, f8_arena *arena, const char *option, double value)
{
    char number[32];
    f8_format(number, sizeof number, "%.17g", value);
    add(text, arena, option, value > 0 ? number : NULL);
}

static void add_dims(const char **text, f8_arena *arena, const f8_option_DIM *dims)
{
    for (size_t i = 0; i < dims->n; i++)
        add(text, arena, "-D",
            f8_arena_printf(arena, "%s=%" PRId64, dims->dim[i].name, dims->dim[i].value));
}

/* The command line that says the same again, but for the time, the database and the files. NULL: no
 * memory. */
static const char *command_of(const cli *c, f8_arena *arena)
{
    const char *text = "fp8c";
    add(&text, arena, "tune", c->file);
    add(&text, arena, "--recipe", c->given[CLI_AT_recipe] ? c->recipe : NULL);
    for (size_t i = 0; i < c->rules.n; i++)
        add(&text, arena, "--rule", c->rules.text[i]);
    add_dims(&text, arena, &c->dims);
    add(&text, arena, "--target", c->target);
    add(&text, arena, "--attention", c->attention);
    add_number(&text, arena, "--device", c->device);
    add_number(&text, arena, "--threads", c->threads);
    add_number(&text, arena, "--memory",
               c->memory.bytes ? (double)c->memory.bytes : c->memory.share);
    add(&text, arena, "--checkpoint", c->checkpoint);
    add(&text, arena, "--recompute", c->recompute);
    add(&text, arena, "--no-fuse", c->no_fuse ? "" : NULL);
    add(&text, arena, "--kernels", c->kernel_names);
    add(&text, arena, "--only", c->only);
    add_number(&text, arena, "--runs", (double)c->runs);
    add(&text, arena, "--same-bits", c->same_bits ? "" : NULL);
    return text;
}

/* ---- the report ---- */

static json_t *problem_record(const fp8c_tuning *t, int index, const fp8c_tuned *x)
{
    const char *text;
    double seconds;
    json_t *all = json_array(), *record = f8_record_tuned(json_object(), x);
    for (int c = 0; fp8c_tuning_candidate(t, index, c, &text, &seconds) == FP8C_OK; c++)
        json_array_append_new(all, json_pack("{ss so}", "candidate", text, "seconds",
                                             seconds > 0 ? json_real(seconds) : json_null()));
    json_object_set_new(record, "candidates", all);
    return record;
}

/* What the tuner says of each problem, and of all. */
static json_t *records_of(const fp8c_tuning *t, const fp8c_tuning_info *info)
{
    json_t *all = json_array();
    fp8c_tuned x;
    bool ok = all != NULL;
    for (int i = 0; ok && fp8c_tuning_problem(t, i, &x) == FP8C_OK; i++)
        ok = !json_array_append_new(all, problem_record(t, i, &x));
    if (ok && !json_array_append_new(all, f8_record_tuning(json_object(), info)))
        return all;
    json_decref(all);
    return NULL;
}

static void say_tuned(const fp8c_tuning_info *info, FILE *to)
{
    cli_say(to,
            "\n%d problem%s: for %d a candidate is faster than the model's choice; %" PRId64
            " candidate%s timed, %" PRId64 " timed earlier, %" PRId64
            " dropped because they changed bits%s\n",
            info->problems, info->problems == 1 ? "" : "s", info->chosen, info->timed,
            info->timed == 1 ? "" : "s", info->kept, info->changed_bits,
            info->finished ? ""
            : info->timed  ? "; the time ran out: run this again to continue"
                           : "; the time ran out before a candidate was timed: a longer --time is "
                             "needed");
    if (info->tuned_seconds > 0)
        cli_say(to, "a step, timed in turns: %.3f ms untuned, %.3f ms tuned (%.1f%% less)\n",
                1e3 * info->untuned_seconds, 1e3 * info->tuned_seconds,
                100 * (1 - info->tuned_seconds / info->untuned_seconds));
    cli_say(to, "saved in %s\n", info->database);
}

static bool report(cli_job *j, const fp8c_tuning *t, const f8_measure_set *set)
{
    fp8c_tuning_info info = {.struct_size = sizeof info};
    fp8c_tuning_report(t, &info);
    char *table = f8_measure_step_table(set, t);
    bool ok = table || cli_error(NULL, "out of memory");
    if (table)
        cli_say(j->to, "%s", table);
    free(table);
    say_tuned(&info, j->to);
    if (!j->c->json)
        return cli_tune_write(j->c, set, NULL) && ok;
    json_t *more = records_of(t, &info);
    ok &= more || cli_error(NULL, "out of memory");
    return cli_tune_write(j->c, set, more) && ok;
}

/* ---- the whole ---- */

bool cli_tune_model(cli_job *j)
{
    const cli *c = j->c;
    fp8c_compile_options compile = cli_compile_options(c, c->recipe);
    const fp8c_tune_options options = {.struct_size = sizeof options,
                                       .compile = &compile,
                                       .database = c->database,
                                       .only = c->only,
                                       .kernels = c->kernel_names,
                                       .seconds = c->time,
                                       .runs = (int32_t)(c->runs > INT32_MAX ? INT32_MAX : c->runs),
                                       .same_bits = c->same_bits,
                                       .again = c->again};
    fp8c_tuning *tuning = NULL;
    f8_measure_set set = {0};
    if (!cli_tune_may_write(c))
        return false;
    f8_arena_init(&set.arena, NULL);
    const char *command = command_of(c, &set.arena);
    bool ok = command || cli_error(NULL, "out of memory");
    ok = ok && cli_ok(j->ctx, f8_measure_model(j->ctx, j->module, &options, command, cli_commit,
                                               &set, &tuning));
    ok = ok && report(j, tuning, &set);
    f8_arena_end(&set.arena);
    fp8c_tuning_destroy(tuning);
    return ok;
}
