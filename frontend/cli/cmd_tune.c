/* fp8c tune: times the ways to compute each GEMM and kernel of a module, or GEMMs alone, and saves
 * the times and the fastest way in the database. It also moves rows of the database to and from
 * files. */
#include <inttypes.h>
#include <string.h>

#include "frontend/cli/tune.h"

enum { MOST_LINES = 20 };

/* ---- the report ---- */

static void print_problem(const fp8c_tuning *t, int index, const fp8c_tuned *x, FILE *to,
                          cli_json *json)
{
    const double gain = x->model_seconds > 0 ? 100 * (1 - x->seconds / x->model_seconds) : 0;
    const char *text;
    double seconds;
    json_t *all = json_array(), *record = f8_record_tuned(json_object(), x);
    cli_say(to, "%-32.32s %5d %11.3f %11.3f %6.1f%%  %-28s %s\n", x->name, x->count,
            1e3 * x->model_seconds, 1e3 * x->seconds, gain, x->candidate, x->problem);
    for (int c = 0; fp8c_tuning_candidate(t, index, c, &text, &seconds) == FP8C_OK; c++)
        json_array_append_new(all, json_pack("{ss so}", "candidate", text, "seconds",
                                             seconds > 0 ? json_real(seconds) : json_null()));
    json_object_set_new(record, "candidates", all);
    cli_json_record(json, record);
}

static void print_tuning(const fp8c_tuning *t, FILE *to, cli_json *json)
{
    fp8c_tuned x;
    fp8c_tuning_info info = {.struct_size = sizeof info};
    fp8c_tuning_report(t, &info);
    cli_say(to, "%-32s %5s %11s %11s %7s  %-28s %s\n", "first step", "steps", "model ms",
            "chosen ms", "gain", "chosen", "problem");
    for (int i = 0; fp8c_tuning_problem(t, i, &x) == FP8C_OK; i++)
        print_problem(t, i, &x, i < MOST_LINES || strcmp(x.candidate, "model") ? to : NULL, json);
    if (info.problems > MOST_LINES)
        cli_say(to, "... and others that take less time and keep the model's choice (--json FILE "
                    "lists all)\n");
    cli_json_record(json, f8_record_tuning(json_object(), &info));
    cli_say(to,
            "\n%s\n%d problem%s: for %d a candidate is faster than the model's choice; %" PRId64
            " candidate%s timed, %" PRId64 " timed earlier, %" PRId64
            " dropped because they changed bits%s\n",
            info.device, info.problems, info.problems == 1 ? "" : "s", info.chosen, info.timed,
            info.timed == 1 ? "" : "s", info.kept, info.changed_bits,
            info.finished ? ""
            : info.timed  ? "; the time ran out: run this again to continue"
                          : "; the time ran out before a candidate was timed: a longer --time is "
                            "needed");
    if (info.tuned_seconds > 0)
        cli_say(to, "a step, timed in turns: %.3f ms untuned, %.3f ms tuned (%.1f%% less)\n",
                1e3 * info.untuned_seconds, 1e3 * info.tuned_seconds,
                100 * (1 - info.tuned_seconds / info.untuned_seconds));
    cli_say(to, "saved in %s\n", info.database);
}

/* ---- the command ---- */

static bool tune(cli_job *j)
{
    const cli *c = j->c;
    fp8c_compile_options compile = cli_compile_options(c, c->recipe);
    const fp8c_tune_options options = {.struct_size = sizeof options,
                                       .compile = &compile,
                                       .database = c->database,
                                       .only = c->only,
                                       .kernels = c->kernel_names,
                                       .seconds = c->time,
                                       .runs = (int32_t)(c->runs > 64 ? 65 : c->runs),
                                       .same_bits = c->same_bits,
                                       .again = c->again};
    fp8c_tuning *tuning = NULL;
    cli_interrupt_text("interrupted\nthe timings so far are saved; run this again to continue");
    if (!j->module)
        return cli_tune_gemms(j);
    const bool ok = cli_ok(j->ctx, fp8c_tune(j->ctx, j->module, &options, &tuning));
    if (ok)
        print_tuning(tuning, j->to, &j->json);
    fp8c_tuning_destroy(tuning);
    return ok;
}

/* Moves rows of the database from or to a file, and says how many. */
static bool move_file(const cli_job *j, const char *path, const char *what, fp8c_tuning_way way)
{
    fp8c_tuning_rows rows = {.struct_size = sizeof rows};
    if (!path)
        return true;
    if (!cli_ok(j->ctx, fp8c_tuning_move(j->ctx, way, j->c->database, path, &rows)))
        return false;
    cli_say(stdout,
            "%s: %" PRId64 " timings and %" PRId64 " choices %s, %" PRId64
            " skipped as the database is not older; %" PRId64 " of all are for other devices\n",
            path, rows.timings, rows.choices, what, rows.older, rows.others);
    return true;
}

static bool move_rows(cli_job *j)
{
    const cli *c = j->c;
    bool ok = move_file(j, c->rows_in, "added", FP8C_TUNING_IMPORT);
    for (size_t i = 0; ok && i < c->merge.n; i++)
        ok = move_file(j, c->merge.text[i], "added", FP8C_TUNING_MERGE);
    return ok && move_file(j, c->rows_out, "written", FP8C_TUNING_EXPORT);
}

int cmd_tune(const cli *c)
{
    const bool moves = c->rows_in || c->rows_out || c->merge.n,
               gemms = c->gemms.n || c->gemm_files.n || c->suites.n;
    if (!c->file + !gemms + !moves + !c->diffs.n != 3)
        return cli_usage(c, "give either FILE.f8, or --gemm, --gemm-file and --suite, or some of "
                            "--export, --import and --merge, or --diff twice");
    if (c->diffs.n && c->diffs.n != 2)
        return cli_usage(c, "--diff compares two files: give it twice");
    return cli_work(c, c->file != NULL, moves ? move_rows : c->diffs.n ? cli_tune_diff : tune);
}
