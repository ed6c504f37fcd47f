/* fp8c plan: shows where the memory of a training step goes, the estimated time of the step, and
 * what a budget of memory costs. It compiles no kernels, so no target needs a GPU, LLVM or NVRTC.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/cli/auto.h"

enum { ARENA_SHOWN = 16, OTHERS_SHOWN = 4 };

/* ---- memory ---- */

static void print_launches(FILE *to, const fp8c_program *program, int function)
{
    json_t *all = f8_launches(program, function), *count;
    const char *kind, *separator = "";
    cli_say(to, "a run of %s launches", fp8c_program_function_name(program, function));
    json_object_foreach (all, kind, count) {
        cli_say(to, "%s %" JSON_INTEGER_FORMAT " %s", separator, json_integer_value(count), kind);
        separator = ",";
    }
    cli_say(to, "\n");
    json_decref(all);
}

/* Of several ranks: how often update exchanges bytes, and what its buckets of new parameters take.
 */
static void print_update(const cli_job *j)
{
    const int update = fp8c_program_function(j->program, "update");
    fp8c_peak peak;
    if (update < 0 || fp8c_program_peak(j->program, update, &peak) != FP8C_OK)
        return;
    fp8c_step s;
    int n = 0;
    for (int i = 0; fp8c_program_step(j->program, update, i, &s) == FP8C_OK; i++)
        n += cli_moves(&s);
    if (n)
        cli_say(j->to,
                "a run of update exchanges bytes %d times, and takes %.2f MiB of the arena\n", n,
                cli_mib(peak.arena_bytes));
}

static void print_memory(const cli_job *j, int function)
{
    fp8c_info info = {.struct_size = sizeof info};
    fp8c_peak peak = {0};
    fp8c_memory m;
    const fp8c_module_info module = f8_module_info(j->module);
    fp8c_program_info(j->program, &info);
    fp8c_program_peak(j->program, function, &peak);
    cli_say(j->to, "%s: %" PRId64 " parameters (%.2f M) in %" PRId64 " tensors\n", module.name,
            module.elements, 1e-6 * (double)module.elements, module.parameters);
    cli_say(j->to, "target %s, recipe %s: memory at the peak of %s, at '%s' (step %d of %d)\n",
            fp8c_program_target(j->program), j->c->recipe,
            fp8c_program_function_name(j->program, function), peak.step, peak.position,
            peak.positions);
    for (int i = 0; fp8c_program_memory(j->program, function, i, &m) == FP8C_OK; i++)
        cli_say(j->to, "%12.2f MiB  %s%s\n", cli_mib(m.bytes), m.category,
                m.in_arena ? " (arena)" : "");
    cli_say(j->to, "%12.2f MiB  in all\n", cli_mib(info.planned_bytes));
    print_launches(j->to, j->program, function);
    const int first = fp8c_program_function(j->program, "micro_step.first");
    if (first >= 0)
        print_launches(j->to, j->program, first);
    print_update(j);
}

/* Prints the largest tensors: those in the arena, or the variables and buffers. */
static void print_tensors(const cli_job *j, int function, bool arena, int most)
{
    fp8c_tensor t;
    char type[F8_TYPE_TEXT];
    int n = 0;
    for (int i = 0; fp8c_program_tensor(j->program, function, i, &t) == FP8C_OK; i++) {
        if ((*t.made != 0) != arena || n++ >= most)
            continue;
        cli_say(j->to, "%12.2f MiB  %-13s %-40s %s", cli_mib(t.bytes), t.category, t.name,
                f8_type_shown(&t.type, type));
        if (*t.made)
            cli_say(j->to, "  %s -> %s", t.made, *t.read ? t.read : "the end");
        cli_say(j->to, "\n");
    }
    if (n > most)
        cli_say(j->to, "%12s      and %d more\n", "", n - most);
}

static void show_tensors(cli_job *j, int function)
{
    json_t *record;
    for (int i = 0; f8_record_tensor_at(j->program, function, i, &record); i++)
        cli_json_record(&j->json, record);
    cli_say(j->to, "\nthe largest tensors in the arena at the peak: made by -> last read by\n");
    print_tensors(j, function, true, ARENA_SHOWN);
    cli_say(j->to, "the largest variables and buffers, which always take memory\n");
    print_tensors(j, function, false, OTHERS_SHOWN);
}

/* ---- time ---- */

/* The seconds of an optimizer step: its micro-steps and the update. */
static double step_seconds(const cli_job *j, fp8c_peak *micro, fp8c_peak *update)
{
    const fp8c_program *p = j->program;
    *micro = *update = (fp8c_peak){0};
    fp8c_program_peak(p, fp8c_program_function(p, "micro_step"), micro);
    fp8c_program_peak(p, fp8c_program_function(p, "update"), update);
    return (double)f8_module_info(j->module).accumulate * micro->seconds + update->seconds;
}

static void print_time(const cli_job *j)
{
    fp8c_peak micro, update;
    fp8c_remat r = {.struct_size = sizeof r};
    const double step = step_seconds(j, &micro, &update);
    cli_say(j->to,
            "\nestimated: %.3f ms a step: %" PRId64
            " x micro_step of %.3f ms, and update of %.3f ms\n",
            1e3 * step, f8_module_info(j->module).accumulate, 1e3 * micro.seconds,
            1e3 * update.seconds);
    fp8c_program_remat(j->program, 0, 0, &r);
    if (r.arena_before)
        cli_say(j->to,
                "each micro_step recomputes %" PRId64
                " values in %.3f ms: this reduces its arena from %.1f to %.1f MiB, and its "
                "activations from %.1f to %.1f MiB\n",
                r.recomputed, 1e3 * r.extra_seconds, cli_mib(r.arena_before),
                cli_mib(r.arena_after), cli_mib(r.activations_before),
                cli_mib(r.activations_after));
}

/* ---- budgets ---- */

/* Two decimals, or more where the share has more. 1: no budget. */
static void print_share(const cli_job *j, double share)
{
    char text[32];
    snprintf(text, sizeof text, "%.2f", share);
    if (strtod(text, NULL) != share)
        snprintf(text, sizeof text, "%g", share);
    cli_say(j->to, "%7s", share == 1 ? "none" : text);
}

/* A budget that cannot be met is not an error of `plan`: the table ends there. Prints the reason.
 */
static void print_failed_budget(cli_job *j, double share)
{
    if (cli_interrupted()) /* the budget is not to blame */
        return;
    static const char error[] = "error: memory: ";
    const char *message = fp8c_context_message(j->ctx), *text = strstr(message, error);
    message = text ? text + strlen(error) : message;
    print_share(j, share);
    cli_say(j->to, "  %s\n", message);
    cli_json_record(&j->json,
                    json_pack("{ss sf ss}", "event", "budget", "share", share, "error", message));
}

/* `seconds` is that of a step without a budget; `more` is what it takes longer. */
static void print_budget(cli_job *j, double share, int64_t planned_bytes, const fp8c_remat *r,
                         double seconds, double more)
{
    print_share(j, share);
    cli_say(j->to, "  %11.1f  %11.1f  %15.1f  %10" PRId64 "  %+8.2f%%\n", cli_mib(planned_bytes),
            cli_mib(r->arena_after), cli_mib(r->activations_after), r->recomputed,
            100 * more / seconds);
    cli_json_record(&j->json, f8_record_budget(share, planned_bytes, r, seconds, more));
}

/* The row without a budget. Gives the seconds of a step. */
static double print_no_budget(cli_job *j)
{
    fp8c_info info = {.struct_size = sizeof info};
    fp8c_peak micro, update;
    const double seconds = step_seconds(j, &micro, &update);
    const fp8c_remat none = {.arena_after = micro.arena_bytes,
                             .activations_after = micro.activation_bytes};
    fp8c_program_info(j->program, &info);
    cli_say(j->to,
            "\nwhat a budget costs, given as a share of the activation bytes at the peak\n"
            "%7s  %11s  %11s  %15s  %10s  %9s\n",
            "budget", "in all MiB", "arena MiB", "activations MiB", "recomputed", "more time");
    print_budget(j, 1, info.planned_bytes, &none, seconds, 0);
    return seconds;
}

static bool keeps_codes(const cli_job *j)
{
    const int step = fp8c_program_function(j->program, "micro_step");
    fp8c_memory m;
    bool any = false;
    for (int i = 0; fp8c_program_memory(j->program, step, i, &m) == FP8C_OK && !any; i++)
        any = !strcmp(m.category, "weight codes") && m.bytes > 0;
    return any;
}

/* A program with a budget keeps no codes of weights. So the budgets are planned for a program that
 * keeps none. */
static bool compile_without_codes(cli_job *j, const fp8c_compile_options *options)
{
    fp8c_compile_options without = *options;
    fp8c_program *with = j->program;
    if (!keeps_codes(j))
        return true;
    without.requantize = 1;
    j->program = NULL;
    fp8c_program_destroy(with);
    return cli_compile(j, &without);
}

/* Prints what each budget costs as it is known, down to the first that can't be met. */
static bool print_budgets(cli_job *j, const fp8c_compile_options *options)
{
    static const f8_option_SHARES usual = {
        .share = {0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05, 0.02, 0.01}, .n = 12};
    const f8_option_SHARES *list = j->c->budgets.n ? &j->c->budgets : &usual;
    const double seconds = print_no_budget(j);
    fp8c_peak micro, update;
    if (!compile_without_codes(j, options))
        return false;
    const double more = step_seconds(j, &micro, &update) - seconds;
    for (size_t i = 0; i < list->n; i++) {
        fp8c_remat remat = {.struct_size = sizeof remat};
        fflush(stdout);
        const fp8c_status status = fp8c_program_remat(j->program, 0, list->share[i], &remat);
        if (status == FP8C_ERR_UNSUPPORTED) {
            print_failed_budget(j, list->share[i]);
            return true;
        }
        if (!cli_ok(j->ctx, status))
            return false;
        const double extra = (double)f8_module_info(j->module).accumulate * remat.extra_seconds;
        print_budget(j, list->share[i], remat.planned_bytes, &remat, seconds, more + extra);
    }
    return true;
}

/* ---- the command ---- */

static bool asks_for_one(const cli *c)
{
    return c->memory.bytes || c->memory.share > 0 || c->checkpoint || c->recompute;
}

static bool plan(cli_job *j)
{
    fp8c_compile_options options = cli_compile_options(j->c, j->c->recipe);
    json_t *record;
    options.plan_only = 1;
    if (!cli_compile(j, &options))
        return false;
    const int step = fp8c_program_function(j->program, "micro_step");
    if (step < 0)
        return cli_error(j->c->file, "the module has no 'micro_step'");
    const int64_t parameters = f8_module_info(j->module).elements;
    for (int f = 0; fp8c_program_function_name(j->program, f); f++)
        if (f8_record_memory(j->program, f, j->c->recipe, parameters, &record))
            cli_json_record(&j->json, record);
    print_memory(j, step);
    show_tensors(j, step);
    print_time(j);
    fflush(stdout);
    return asks_for_one(j->c) || print_budgets(j, &options);
}

int cmd_plan(const cli *c)
{
    if (c->target && !strcmp(c->target, "reference"))
        return cli_usage(c, "target reference has no plan: it interprets the graph");
    if (cli_refuses_auto(c))
        return CLI_USAGE;
    if (asks_for_one(c) && c->budgets.n)
        return cli_usage(c, "--budgets asks for a table, and --memory, --checkpoint and "
                            "--recompute for one plan");
    return cli_work(c, true, plan);
}
