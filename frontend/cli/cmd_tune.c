/* fp8c tune: times the ways to compute each GEMM and kernel of a module, or one GEMM, and saves the
 * times and the fastest way in the database. It also moves rows of the database to and from files.
 */
#include <inttypes.h>
#include <string.h>

#include "frontend/cli/cmd.h"

enum { MOST_LINES = 20 };

/* ---- the report ---- */

static void print_problem(const fp8c_tuning *t, int index, const fp8c_tuned *x, FILE *to,
                          cli_json *json)
{
    const double gain = x->model_seconds > 0 ? 100 * (1 - x->seconds / x->model_seconds) : 0;
    const char *text;
    double seconds;
    json_t *all = json_array();
    if (to)
        fprintf(to, "%-32.32s %5d %11.3f %11.3f %6.1f%%  %-28s %s\n", x->name, x->count,
                1e3 * x->model_seconds, 1e3 * x->seconds, gain, x->candidate, x->problem);
    for (int c = 0; fp8c_tuning_candidate(t, index, c, &text, &seconds) == FP8C_OK; c++)
        json_array_append_new(all, json_pack("{ss so}", "candidate", text, "seconds",
                                             seconds > 0 ? json_real(seconds) : json_null()));
    cli_json_record(json, json_pack("{ss ss ss sb si ss sf sf so}", "event", "tune", "problem",
                                    x->problem, "name", x->name, "gemm", (int)x->gemm, "count",
                                    (int)x->count, "candidate", x->candidate, "model_seconds",
                                    x->model_seconds, "seconds", x->seconds, "candidates", all));
}

static void print_tuning(const fp8c_tuning *t, FILE *to, cli_json *json)
{
    fp8c_tuned x;
    fp8c_tuning_info info = {.struct_size = sizeof info};
    fp8c_tuning_report(t, &info);
    if (to)
        fprintf(to, "%-32s %5s %11s %11s %7s  %-28s %s\n", "first step", "steps", "model ms",
                "chosen ms", "gain", "chosen", "problem");
    for (int i = 0; fp8c_tuning_problem(t, i, &x) == FP8C_OK; i++)
        print_problem(t, i, &x, i < MOST_LINES || strcmp(x.candidate, "model") ? to : NULL, json);
    if (to && info.problems > MOST_LINES)
        fprintf(to, "... and others that take less time and keep the model's choice (--json FILE "
                    "lists all)\n");
    cli_json_record(json, json_pack("{ss ss ss si si sI sI sI sf sf sb}", "event", "tuned",
                                    "device", info.device, "database", info.database, "problems",
                                    (int)info.problems, "chosen", (int)info.chosen, "timed",
                                    (json_int_t)info.timed, "kept", (json_int_t)info.kept,
                                    "changed_bits", (json_int_t)info.changed_bits,
                                    "untuned_seconds", info.untuned_seconds, "tuned_seconds",
                                    info.tuned_seconds, "finished", (int)info.finished));
    if (!to)
        return;
    fprintf(to,
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
        fprintf(to, "a step, timed in turns: %.3f ms untuned, %.3f ms tuned (%.1f%% less)\n",
                1e3 * info.untuned_seconds, 1e3 * info.tuned_seconds,
                100 * (1 - info.tuned_seconds / info.untuned_seconds));
    fprintf(to, "saved in %s\n", info.database);
}

/* ---- the command ---- */

static int tune(const cli *c, fp8c_context *ctx, const fp8c_module *module)
{
    fp8c_compile_options compile = cli_compile_options(c, c->recipe);
    const fp8c_tune_options options = {.struct_size = sizeof options,
                                       .compile = &compile,
                                       .database = c->database,
                                       .only = c->only,
                                       .seconds = c->time,
                                       .runs = (int32_t)(c->runs > 64 ? 65 : c->runs),
                                       .same_bits = c->same_bits,
                                       .again = c->again,
                                       .gemm = c->gemm};
    FILE *to = cli_json_to_stdout(c) ? NULL : stdout;
    fp8c_tuning *tuning;
    cli_json json;
    if (!cli_json_open(&json, c->json))
        return CLI_FAILED;
    cli_interrupt_text("interrupted\nthe timings so far are saved; run this again to continue");
    const fp8c_status status = fp8c_tune(ctx, module, &options, &tuning);
    int code = CLI_DONE;
    if (status == FP8C_OK)
        print_tuning(tuning, to, &json);
    else
        code = cli_fail(ctx);
    fp8c_tuning_destroy(tuning);
    return cli_json_close(&json) || code != CLI_DONE ? code : CLI_FAILED;
}

static int move_rows(const cli *c, fp8c_context *ctx)
{
    struct {
        fp8c_tuning_way way;
        const char *path, *what;
    } list[2 + CLI_MAX_RECIPES];
    int n = 0;
    if (c->rows_in)
        list[n].way = FP8C_TUNING_IMPORT, list[n].path = c->rows_in, list[n++].what = "added";
    for (size_t i = 0; i < c->merge.n; i++)
        list[n].way = FP8C_TUNING_MERGE, list[n].path = c->merge.text[i], list[n++].what = "added";
    if (c->rows_out)
        list[n].way = FP8C_TUNING_EXPORT, list[n].path = c->rows_out, list[n++].what = "written";
    for (int i = 0; i < n; i++) {
        fp8c_tuning_rows rows = {.struct_size = sizeof rows};
        if (fp8c_tuning_move(ctx, list[i].way, c->database, list[i].path, &rows) != FP8C_OK)
            return cli_fail(ctx);
        printf("%s: %" PRId64 " timings and %" PRId64 " choices %s, %" PRId64
               " skipped as the database is not older; %" PRId64 " of all are for other devices\n",
               list[i].path, rows.timings, rows.choices, list[i].what, rows.older, rows.others);
    }
    return CLI_DONE;
}

static int wrong(const char *what)
{
    fprintf(stderr, "fp8c tune: %s; see fp8c tune --help\n", what);
    return CLI_USAGE;
}

int cmd_tune(const cli *c)
{
    const bool moves = c->rows_in || c->rows_out || c->merge.n;
    fp8c_context *ctx;
    fp8c_module *module = NULL;
    if (!c->file + !c->gemm + !moves != 2)
        return wrong(
            "give either FILE.f8, or --gemm, or some of --export, --import and --merge");
    if (c->file ? !cli_load(c, &ctx, &module) : !(ctx = cli_context()))
        return CLI_FAILED;
    const int code = moves ? move_rows(c, ctx) : tune(c, ctx, module);
    fp8c_module_destroy(module);
    fp8c_context_destroy(ctx);
    return code;
}
