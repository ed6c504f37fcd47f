/* fp8c explain: shows the recipe of each GEMM of a linear and where it comes from, and the kernels.
 */
#include <inttypes.h>
#include <string.h>

#include "frontend/cli/auto.h"

enum { CELLS = 5 };

/* Prints a line of the table: linear, role, formats, scaling, sizes, reason. Columns become as wide
 * as what was ever in them, so the table is made once for nobody. */
static void print_line(FILE *to, int width[CELLS], const char *const cell[CELLS],
                       const char *reason)
{
    for (int i = 0; i < CELLS; i++) {
        width[i] = (int)strlen(cell[i]) > width[i] ? (int)strlen(cell[i]) : width[i];
        cli_say(to, "%-*s  ", width[i], cell[i]);
    }
    cli_say(to, "%s\n", reason);
}

static void print_decision(FILE *to, int width[CELLS], const fp8c_decision *d)
{
    char formats[40], size[80], times[24] = "";
    snprintf(formats, sizeof formats, "%s x %s", d->format_a, d->format_b);
    if (d->count > 1)
        snprintf(times, sizeof times, " (x%" PRId64 ")", d->count);
    snprintf(size, sizeof size, "%" PRId64 "x%" PRId64 "x%" PRId64 "%s", d->m, d->n, d->k, times);
    const char *const cell[] = {d->linear, d->role, formats, d->scaling, size};
    print_line(to, width, cell, d->reason);
}

void cli_print_decisions(const fp8c_program *p, FILE *to, cli_json *json)
{
    static const char *const head[] = {"linear", "role", "formats", "scaling", "m x n x k"};
    int width[CELLS] = {0};
    fp8c_decision d;
    for (int i = 0; fp8c_program_decision(p, i, &d) == FP8C_OK; i++)
        print_decision(NULL, width, &d);
    print_line(to, width, head, "why");
    for (int i = 0; fp8c_program_decision(p, i, &d) == FP8C_OK; i++) {
        print_decision(to, width, &d);
        cli_json_record(json, f8_record_decision(json_object(), &d));
    }
}

void cli_print_steps(const fp8c_program *p, int function, FILE *to, cli_json *json)
{
    fp8c_step s;
    const char *name = fp8c_program_function_name(p, function);
    int64_t kernels = 0, gemms = 0, bytes = 0;
    cli_say(to, "\n%s\n%-10s %-44s %6s %12s %12s  %s\n", name, "kind", "name", "phases", "read KiB",
            "written KiB", "code");
    for (int i = 0; fp8c_program_step(p, function, i, &s) == FP8C_OK; i++) {
        char code[24] = "";
        if (s.hash)
            snprintf(code, sizeof code, "%016" PRIx64, s.hash);
        cli_say(to, "%-10s %-44s %6d %12.1f %12.1f  %s\n", s.kind, s.name, s.phases,
                (double)s.bytes_read / 1024, (double)s.bytes_written / 1024, code);
        kernels += s.kind[0] == 'k';
        gemms += s.kind[0] == 'g';
        bytes += s.kind[0] == 'g' ? 0 : s.bytes_read + s.bytes_written;
        cli_json_record(json, f8_record_step(json_pack("{ss}", "function", name), &s));
    }
    cli_say(to, "%" PRId64 " kernels, %" PRId64 " GEMMs; kernels move %.1f MiB\n", kernels, gemms,
            cli_mib(bytes));
}

/* Prints what became of the table that fp8c ships. */
static void print_table(cli_job *j)
{
    fp8c_info info = {.struct_size = sizeof info};
    fp8c_program_info(j->program, &info);
    if (info.tuning_table)
        cli_say(j->to, "%s\n", info.tuning_table);
}

/* Prints whether timings or the cost model chose algorithms and configurations, and which timings
 * chose something other than the model. */
static void print_choices(cli_job *j)
{
    enum { MODEL, DATABASE, TABLE, SOURCES }; /* of fp8c_choice */
    int n[SOURCES][2] = {0};
    fp8c_choice c;
    fp8c_cache_info cache = {.struct_size = sizeof cache};
    fp8c_context_cache(j->ctx, &cache);
    for (int i = 0; fp8c_program_choice(j->program, i, &c) == FP8C_OK; i++) {
        n[c.tuned][c.gemm != 0]++;
        cli_json_record(&j->json, f8_record_choice(json_object(), &c));
    }
    print_table(j);
    if (!n[DATABASE][0] && !n[DATABASE][1] && !n[TABLE][1]) {
        cli_say(j->to,
                "not tuned: the cost model chose the algorithms of %d GEMMs and the configurations "
                "of %d kernels\n",
                n[MODEL][1], n[MODEL][0]);
        return;
    }
    if (n[DATABASE][0] || n[DATABASE][1])
        cli_say(j->to,
                "tuned: timings in %s chose for %d GEMMs and %d kernels, the cost model for %d and "
                "%d\n",
                cache.tuning, n[DATABASE][1], n[DATABASE][0], n[MODEL][1], n[MODEL][0]);
    if (n[TABLE][1])
        cli_say(j->to, "by the table that fp8c ships: the algorithms of %d GEMMs, of %d\n",
                n[TABLE][1], n[MODEL][1] + n[DATABASE][1] + n[TABLE][1]);
    for (int i = 0; fp8c_program_choice(j->program, i, &c) == FP8C_OK; i++)
        if (c.tuned && strcmp(c.candidate, "model"))
            cli_say(j->to, "  %-24s %s (x%d)\n", c.candidate, c.problem, c.count);
}

/* Prints what micro_step keeps for its backward, and what it recomputes for a budget. */
static void print_remat(const fp8c_program *p, FILE *to)
{
    fp8c_peak peak = {0};
    fp8c_remat r = {.struct_size = sizeof r};
    fp8c_program_peak(p, fp8c_program_function(p, "micro_step"), &peak);
    fp8c_program_remat(p, 0, 0, &r);
    if (!peak.positions)
        return;
    cli_say(to,
            "micro_step: at the peak, step '%s', the arena holds %.1f MiB of activations and FP8 "
            "copies for the backward\n",
            peak.step, cli_mib(peak.activation_bytes));
    if (r.arena_before)
        cli_say(to,
                "for the budget, micro_step recomputes %" PRId64
                " values: this reduces the arena from %.1f to %.1f MiB and takes an estimated "
                "%.2f%% more time\n",
                r.recomputed, cli_mib(r.arena_before), cli_mib(r.arena_after),
                100 * r.extra_seconds / r.seconds);
}

/* How rows come to the kernels of a GPU, where they do so by bulk or other asynchronous copies. */
static void print_bulk(const fp8c_program *p, FILE *to)
{
    int64_t least = INT64_MAX, most = 0;
    int kernels = 0;
    fp8c_kernel k;
    for (int i = 0; fp8c_program_kernel(p, i, &k) == FP8C_OK; i++)
        if (k.bulk) {
            kernels++;
            least = k.bulk < least ? k.bulk : least;
            most = k.bulk > most ? k.bulk : most;
        }
    if (kernels)
        cli_say(to,
                "the rows of %d kernels come to shared memory by asynchronous copies, of which a "
                "block has at least %" PRId64 " and at most %" PRId64 " KiB under way\n",
                kernels, least / 1024, most / 1024);
}

static void print_counts(cli_job *j)
{
    const fp8c_program *p = j->program;
    fp8c_info info = {.struct_size = sizeof info};
    fp8c_program_info(p, &info);
    cli_say(j->to,
            "\ntarget %s: %" PRId64 " linears; of their GEMMs in a micro-step %" PRId64
            " are planned in FP8, %" PRId64 " not\n",
            fp8c_program_target(p), info.linears, info.fp8_gemms_planned, f8_gemms_excluded(p));
    const int first = fp8c_program_function(p, "micro_step.first");
    if (first >= 0)
        cli_say(j->to,
                "while an amax history is empty, as in step 1, micro_step.first runs in place of "
                "micro_step: it scales such an operand by its own amax; %" PRId64
                " of its GEMMs are planned in FP8\n",
                fp8c_program_fp8_gemms(p, first));
    cli_say(j->to, "%" PRId64 " distinct kernels, %.1f KiB of code; compiled in %.2f s\n",
            info.distinct_kernels, (double)info.code_bytes / 1024, info.compile_seconds);
    print_bulk(p, j->to);
    cli_say(j->to,
            "memory: %.1f MiB planned, of which the arena takes %.1f MiB (with this order of steps "
            "at least %.1f MiB)\n",
            cli_mib(info.planned_bytes), cli_mib(info.arena_bytes),
            cli_mib(info.arena_lower_bound));
    print_remat(p, j->to);
    cli_json_record(&j->json, f8_record_plan(p));
}

static fp8c_calibration *calibrate(cli_job *j, const fp8c_compile_options *options)
{
    f8_data data = {0};
    fp8c_calibration *calibration = NULL;
    if (!cli_data_given(j->c))
        cli_usage(j->c, "recipe auto measures on data: --data FILE is needed");
    else if (cli_data_open(&data, j->c))
        calibration = cli_calibrate(j, options, &data);
    f8_data_close(&data);
    return calibration;
}

static bool explain(cli_job *j)
{
    fp8c_compile_options options = cli_listing_options(j->c, j->c->recipe);
    fp8c_calibration *calibration = NULL;
    if (f8_is_auto(j->c->recipe) && !(calibration = calibrate(j, &options)))
        return false;
    options.calibration = calibration;
    if (calibration)
        cli_print_trials(calibration, j->to, &j->json);
    const bool ok = cli_compile(j, &options);
    if (ok) {
        cli_print_decisions(j->program, j->to, &j->json);
        for (int f = 0; j->c->kernels && fp8c_program_function_name(j->program, f); f++)
            cli_print_steps(j->program, f, j->to, &j->json);
        print_choices(j);
        print_counts(j);
        cli_print_collectives(j->program, j->to, &j->json);
    }
    fp8c_calibration_destroy(calibration);
    return ok;
}

int cmd_explain(const cli *c)
{
    return cli_work(c, true, explain);
}
