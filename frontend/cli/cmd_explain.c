/* fp8c explain: shows the recipe of each GEMM of a linear and where it comes from, and the kernels.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#include "frontend/cli/cmd_calibrate.h"

/* Prints to the table. `to` is NULL if stdout is for the records. */
static void say(FILE *to, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void say(FILE *to, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (to)
        vfprintf(to, format, args);
    va_end(args);
}

enum { CELLS = 5 };

/* A line of the table without its reason: linear, role, formats, scaling, sizes. */
typedef struct line {
    char formats[40], size[80];
    const char *cell[CELLS];
} line;

static void make_line(const fp8c_decision *d, line *l)
{
    char times[24] = "";
    snprintf(l->formats, sizeof l->formats, "%s x %s", d->format_a, d->format_b);
    if (d->count > 1)
        snprintf(times, sizeof times, " (x%" PRId64 ")", d->count);
    snprintf(l->size, sizeof l->size, "%" PRId64 "x%" PRId64 "x%" PRId64 "%s", d->m, d->n, d->k,
             times);
    const char *const cell[] = {d->linear, d->role, l->formats, d->scaling, l->size};
    memcpy(l->cell, cell, sizeof cell);
}

static void widen(int width[CELLS], const line *l)
{
    for (int i = 0; i < CELLS; i++)
        width[i] = (int)strlen(l->cell[i]) > width[i] ? (int)strlen(l->cell[i]) : width[i];
}

static void print_line(FILE *to, const int width[CELLS], const line *l, const char *reason)
{
    for (int i = 0; i < CELLS; i++)
        say(to, "%-*s  ", width[i], l->cell[i]);
    say(to, "%s\n", reason);
}

void cli_print_decisions(const fp8c_program *p, FILE *to, cli_json *json)
{
    const line head = {.cell = {"linear", "role", "formats", "scaling", "m x n x k"}};
    int width[CELLS] = {0};
    fp8c_decision d;
    line l;
    widen(width, &head);
    for (int i = 0; fp8c_program_decision(p, i, &d) == FP8C_OK; i++) {
        make_line(&d, &l);
        widen(width, &l);
    }
    print_line(to, width, &head, "why");
    for (int i = 0; fp8c_program_decision(p, i, &d) == FP8C_OK; i++) {
        make_line(&d, &l);
        print_line(to, width, &l, d.reason);
        cli_json_record(json,
                        json_pack("{ss ss ss s[ss] ss ss sI sI sI sI sb}", "event", "decision",
                                  "gemm", d.linear, "role", d.role, "format", d.format_a,
                                  d.format_b, "scaling", d.scaling, "reason", d.reason, "m",
                                  (json_int_t)d.m, "n", (json_int_t)d.n, "k", (json_int_t)d.k,
                                  "count", (json_int_t)d.count, "fp8", (int)d.fp8));
    }
}

void cli_print_steps(const fp8c_program *p, int function, FILE *to, cli_json *json)
{
    fp8c_step s;
    int64_t kernels = 0, gemms = 0, bytes = 0;
    say(to, "\n%s\n%-10s %-44s %6s %12s %12s  %s\n", fp8c_program_function_name(p, function),
        "kind", "name", "phases", "read KiB", "written KiB", "code");
    for (int i = 0; fp8c_program_step(p, function, i, &s) == FP8C_OK; i++) {
        char code[24] = "";
        if (s.hash)
            snprintf(code, sizeof code, "%016" PRIx64, s.hash);
        say(to, "%-10s %-44s %6d %12.1f %12.1f  %s\n", s.kind, s.name, s.phases,
            (double)s.bytes_read / 1024, (double)s.bytes_written / 1024, code);
        kernels += s.kind[0] == 'k';
        gemms += s.kind[0] == 'g';
        bytes += s.kind[0] == 'g' ? 0 : s.bytes_read + s.bytes_written;
        cli_json_record(json,
                        json_pack("{ss ss ss ss si ss sf sI sI}", "event", "kernel", "function",
                                  fp8c_program_function_name(p, function), "kind", s.kind, "name",
                                  s.name, "phases", (int)s.phases, "hash", code, "seconds",
                                  s.seconds, "bytes_read", (json_int_t)s.bytes_read,
                                  "bytes_written", (json_int_t)s.bytes_written));
    }
    say(to, "%" PRId64 " kernels, %" PRId64 " GEMMs; kernels move %.1f MiB\n", kernels, gemms,
        (double)bytes / (1 << 20));
}

/* The number of GEMMs of linears that a micro-step does not run in FP8. */
static int64_t count_excluded(const fp8c_program *p)
{
    fp8c_decision d;
    int64_t n = 0;
    for (int i = 0; fp8c_program_decision(p, i, &d) == FP8C_OK; i++)
        n += d.fp8 ? 0 : d.count;
    return n;
}

/* Prints what micro_step keeps for its backward, and what it recomputes for a budget. */
static void print_remat(const fp8c_peak *peak, const fp8c_remat *r, FILE *to)
{
    if (!peak->positions)
        return;
    say(to,
        "micro_step: at the peak, step '%s', the arena holds %.1f MiB of activations and FP8 "
        "copies "
        "for the backward\n",
        peak->step, (double)peak->activation_bytes / (1 << 20));
    if (r->arena_before)
        say(to,
            "for the budget, micro_step recomputes %" PRId64
            " values: this reduces the arena from %.1f to %.1f MiB and takes an estimated %.2f%% "
            "more time\n",
            r->recomputed, (double)r->arena_before / (1 << 20), (double)r->arena_after / (1 << 20),
            100 * r->extra_seconds / r->seconds);
}

/* Prints whether timings or the cost model chose algorithms and configurations, and which timings
 * chose something other than the model. */
static void print_choices(fp8c_context *ctx, const fp8c_program *p, FILE *to, cli_json *json)
{
    int tuned[2] = {0}, all[2] = {0};
    fp8c_choice c;
    for (int i = 0; fp8c_program_choice(p, i, &c) == FP8C_OK; i++) {
        all[c.gemm != 0]++;
        tuned[c.gemm != 0] += c.tuned != 0;
        cli_json_record(json, json_pack("{ss ss ss sb si sb}", "event", "choice", "problem",
                                        c.problem, "candidate", c.candidate, "gemm", (int)c.gemm,
                                        "count", (int)c.count, "tuned", (int)c.tuned));
    }
    if (!tuned[0] && !tuned[1]) {
        say(to,
            "not tuned: the cost model chose the algorithms of %d GEMMs and the configurations of "
            "%d kernels\n",
            all[1], all[0]);
        return;
    }
    fp8c_cache_info info = {.struct_size = sizeof info};
    fp8c_context_cache(ctx, &info);
    say(to,
        "tuned: timings in %s chose for %d GEMMs and %d kernels, the cost model for %d and %d\n",
        info.tuning, tuned[1], tuned[0], all[1] - tuned[1], all[0] - tuned[0]);
    for (int i = 0; fp8c_program_choice(p, i, &c) == FP8C_OK; i++)
        if (c.tuned && strcmp(c.candidate, "model"))
            say(to, "  %-24s %s (x%d)\n", c.candidate, c.problem, c.count);
}

/* What a micro_step (of a program for inference an eval) launches. A kernel of several phases is
 * launched once for each. */
static json_t *count_launches(const fp8c_program *p)
{
    enum { KINDS = 5 };
    static const char *const kinds[KINDS] = {"kernel", "gemm", "copy", "attention", "collective"};
    json_int_t n[KINDS] = {0};
    fp8c_step s;
    int function = fp8c_program_function(p, "micro_step");
    function = function < 0 ? fp8c_program_function(p, "eval") : function;
    for (int i = 0; fp8c_program_step(p, function, i, &s) == FP8C_OK; i++)
        for (int k = 0; k < KINDS; k++)
            if (!strcmp(s.kind, kinds[k]))
                n[k] += k ? 1 : s.phases;
    return json_pack("{sI sI sI sI sI}", "kernels", n[0], "gemms", n[1], "copies", n[2],
                     "attention", n[3], "collectives", n[4]);
}

static void print_counts(const fp8c_program *p, FILE *to, cli_json *json)
{
    fp8c_info info = {.struct_size = sizeof info};
    fp8c_peak peak = {0};
    fp8c_remat remat = {.struct_size = sizeof remat};
    fp8c_program_info(p, &info);
    fp8c_program_peak(p, fp8c_program_function(p, "micro_step"), &peak);
    fp8c_program_remat(p, 0, 0, &remat);
    say(to,
        "\ntarget %s: %" PRId64 " linears; of their GEMMs in a micro-step %" PRId64
        " are planned in FP8, %" PRId64 " not\n",
        fp8c_program_target(p), info.linears, info.fp8_gemms_planned, count_excluded(p));
    const int first = fp8c_program_function(p, "micro_step.first");
    if (first >= 0)
        say(to,
            "while an amax history is empty, as in step 1, micro_step.first runs in place of "
            "micro_step: it scales such an operand by its own amax; %" PRId64
            " of its GEMMs are planned in FP8\n",
            fp8c_program_fp8_gemms(p, first));
    say(to, "%" PRId64 " distinct kernels, %.1f KiB of code; compiled in %.2f s\n",
        info.distinct_kernels, (double)info.code_bytes / 1024, info.compile_seconds);
    say(to,
        "memory: %.1f MiB planned, of which the arena takes %.1f MiB (with this order of steps at "
        "least %.1f MiB)\n",
        (double)info.planned_bytes / (1 << 20), (double)info.arena_bytes / (1 << 20),
        (double)info.arena_lower_bound / (1 << 20));
    print_remat(&peak, &remat, to);
    cli_json_record(json,
                    json_pack("{ss ss sI sI sI sI sI sf sI sI sI sI sI sf so}", "event", "plan",
                              "target", fp8c_program_target(p), "linears", (json_int_t)info.linears,
                              "fp8_gemms_planned", (json_int_t)info.fp8_gemms_planned,
                              "gemms_excluded", (json_int_t)count_excluded(p), "distinct_kernels",
                              (json_int_t)info.distinct_kernels, "code_bytes",
                              (json_int_t)info.code_bytes, "compile_seconds", info.compile_seconds,
                              "planned_peak_bytes", (json_int_t)info.planned_bytes, "arena_bytes",
                              (json_int_t)info.arena_bytes, "arena_lower_bound",
                              (json_int_t)info.arena_lower_bound, "activation_bytes",
                              (json_int_t)peak.activation_bytes, "recomputed",
                              (json_int_t)remat.recomputed, "extra_seconds", remat.extra_seconds,
                              "launches", count_launches(p)));
}

static fp8c_calibration *calibrate(const cli *c, fp8c_context *ctx, const fp8c_module *module,
                                   const fp8c_compile_options *options)
{
    f8_data data = {0};
    fp8c_calibration *calibration = NULL;
    if (!cli_data_given(c))
        fprintf(stderr, "fp8c explain: recipe auto measures on data: --data FILE is needed\n");
    else if (cli_data_open(&data, c))
        calibration = cli_calibrate(c, ctx, module, options, &data);
    f8_data_close(&data);
    return calibration;
}

int cmd_explain(const cli *c)
{
    fp8c_context *ctx;
    fp8c_module *module;
    cli_json json;
    if (!cli_load(c, &ctx, &module))
        return CLI_FAILED;
    if (!cli_json_open(&json, c->json)) {
        fp8c_module_destroy(module);
        fp8c_context_destroy(ctx);
        return CLI_FAILED;
    }
    fp8c_compile_options options = cli_listing_options(c, c->recipe);
    FILE *to = cli_json_to_stdout(c) ? NULL : stdout;
    fp8c_program *program = NULL;
    fp8c_calibration *calibration = NULL;
    int code = CLI_DONE;
    if (cli_is_auto(c->recipe) && !(calibration = calibrate(c, ctx, module, &options)))
        code = CLI_FAILED;
    options.calibration = calibration;
    if (calibration)
        cli_print_trials(calibration, to, &json);
    if (code == CLI_DONE && fp8c_compile(module, &options, &program) == FP8C_OK) {
        cli_print_decisions(program, to, &json);
        for (int f = 0; c->kernels && fp8c_program_function_name(program, f); f++)
            cli_print_steps(program, f, to, &json);
        print_choices(ctx, program, to, &json);
        print_counts(program, to, &json);
        cli_print_collectives(program, to, &json);
    } else if (code == CLI_DONE) {
        code = cli_fail(ctx);
    }
    fp8c_program_destroy(program);
    fp8c_calibration_destroy(calibration);
    if (!cli_json_close(&json))
        code = CLI_FAILED;
    fp8c_module_destroy(module);
    fp8c_context_destroy(ctx);
    return code;
}
