/* fp8c plan: shows where the memory of a training step goes, the estimated time of the step, and
 * what a budget of memory costs. It compiles no kernels, so no target needs a GPU, LLVM or NVRTC.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/cli/cmd_calibrate.h"
#include "frontend/cli/cmd_plan.h"

enum { ARENA_SHOWN = 16, OTHERS_SHOWN = 4 };

typedef struct plan {
    const cli *c;
    fp8c_context *ctx;
    const fp8c_module *module;
    FILE *to; /* NULL: stdout is for the records */
    cli_json json;
} plan;

static double mib(int64_t bytes)
{
    return (double)bytes / (1 << 20);
}

static fp8c_status compile(const plan *p, fp8c_program **out)
{
    fp8c_compile_options options = cli_compile_options(p->c, p->c->recipe);
    options.plan_only = 1;
    return fp8c_compile(p->module, &options, out);
}

/* ---- launches ---- */

/* The kinds of steps that launch something, as fp8c_step has them, and what many are called. */
static const struct {
    const char *kind, *name;
} launched[] = {{"kernel", "kernels"},
                {"gemm", "GEMMs"},
                {"copy", "copies"},
                {"attention", "attention"},
                {"collective", "collectives"}};
enum { KINDS = sizeof launched / sizeof *launched };

static void count_launches(const fp8c_program *program, int function, int n[KINDS])
{
    fp8c_step s;
    memset(n, 0, KINDS * sizeof *n);
    for (int i = 0; fp8c_program_step(program, function, i, &s) == FP8C_OK; i++)
        for (int k = 0; k < KINDS; k++)
            n[k] += !strcmp(s.kind, launched[k].kind);
}

static json_t *launches(const fp8c_program *program, int function)
{
    json_t *all = json_object();
    int n[KINDS];
    count_launches(program, function, n);
    for (int k = 0; k < KINDS; k++)
        json_object_set_new(all, launched[k].name, json_integer(n[k]));
    return all;
}

static void print_launches(FILE *to, const fp8c_program *program, int function)
{
    int n[KINDS];
    count_launches(program, function, n);
    fprintf(to, "a run of %s launches", fp8c_program_function_name(program, function));
    for (int k = 0; k < KINDS; k++)
        fprintf(to, "%s %d %s", k ? "," : "", n[k], launched[k].name);
    fputc('\n', to);
}

/* ---- memory ---- */

static json_t *categories(const fp8c_program *program, int function)
{
    json_t *all = json_object();
    fp8c_memory m;
    for (int i = 0; fp8c_program_memory(program, function, i, &m) == FP8C_OK; i++)
        if (json_object_set_new(all, m.category, json_integer(m.bytes))) {
            json_decref(all);
            return NULL;
        }
    return all;
}

bool cli_memory_record(const fp8c_program *program, int function, const char *recipe,
                       int64_t parameters, json_t **record)
{
    fp8c_info info = {.struct_size = sizeof info};
    fp8c_peak peak;
    if (fp8c_program_peak(program, function, &peak) != FP8C_OK)
        return false;
    fp8c_program_info(program, &info);
    *record = json_pack(
        "{ss ss ss sI ss ss si si sI sI sI sI sf so so}", "event", "memory", "target",
        fp8c_program_target(program), "recipe", recipe, "parameters", (json_int_t)parameters,
        "function", fp8c_program_function_name(program, function), "step", peak.step, "position",
        (int)peak.position, "positions", (int)peak.positions, "planned_bytes",
        (json_int_t)info.planned_bytes, "arena_bytes", (json_int_t)peak.arena_bytes, "alive_bytes",
        (json_int_t)peak.alive_bytes, "activation_bytes", (json_int_t)peak.activation_bytes,
        "seconds", peak.seconds, "bytes", categories(program, function), "launches",
        launches(program, function));
    return true;
}

static fp8c_module_info module_of(const plan *p)
{
    fp8c_module_info info = {.struct_size = sizeof info};
    fp8c_module_report(p->module, &info);
    return info;
}

static void record_function(plan *p, const fp8c_program *program, int function)
{
    json_t *record;
    if (cli_memory_record(program, function, p->c->recipe, module_of(p).elements, &record))
        cli_json_record(&p->json, record);
}

static void print_memory(const plan *p, const fp8c_program *program, int function)
{
    fp8c_info info = {.struct_size = sizeof info};
    fp8c_peak peak;
    fp8c_memory m;
    const fp8c_module_info module = module_of(p);
    fp8c_program_info(program, &info);
    fp8c_program_peak(program, function, &peak);
    fprintf(p->to, "%s: %" PRId64 " parameters (%.2f M) in %" PRId64 " tensors\n", module.name,
            module.elements, 1e-6 * (double)module.elements, module.parameters);
    fprintf(p->to, "target %s, recipe %s: memory at the peak of %s, at '%s' (step %d of %d)\n",
            fp8c_program_target(program), p->c->recipe,
            fp8c_program_function_name(program, function), peak.step, peak.position,
            peak.positions);
    for (int i = 0; fp8c_program_memory(program, function, i, &m) == FP8C_OK; i++)
        fprintf(p->to, "%12.2f MiB  %s%s\n", mib(m.bytes), m.category,
                m.in_arena ? " (arena)" : "");
    fprintf(p->to, "%12.2f MiB  in all\n", mib(info.planned_bytes));
    print_launches(p->to, program, function);
    const int first = fp8c_program_function(program, "micro_step.first");
    if (first >= 0)
        print_launches(p->to, program, first);
}

static const char *print_type(const fp8c_type *t, char *text, size_t size)
{
    size_t n = (size_t)snprintf(text, size, "%s[", fp8c_name(FP8C_NAME_DTYPE, t->dtype));
    for (int i = 0; i < t->rank && n < size; i++)
        n += (size_t)snprintf(text + n, size - n, "%s%" PRId64, i ? ", " : "", t->dim[i]);
    if (n < size)
        snprintf(text + n, size - n, "]");
    return text;
}

static void print_tensor(const plan *p, const fp8c_tensor *t)
{
    char type[96];
    fprintf(p->to, "%12.2f MiB  %-13s %-40s %s", mib(t->bytes), t->category, t->name,
            print_type(&t->type, type, sizeof type));
    if (*t->made)
        fprintf(p->to, "  %s -> %s", t->made, *t->read ? t->read : "the end");
    fputc('\n', p->to);
}

/* Prints the largest tensors: those in the arena, or the variables and buffers. */
static void print_tensors(const plan *p, const fp8c_program *program, int function, bool arena,
                          int most)
{
    fp8c_tensor t;
    int n = 0;
    for (int i = 0; fp8c_program_tensor(program, function, i, &t) == FP8C_OK; i++)
        if ((*t.made != 0) == arena && n++ < most)
            print_tensor(p, &t);
    if (n > most)
        fprintf(p->to, "%12s      and %d more\n", "", n - most);
}

bool cli_tensor_record(const fp8c_program *program, int function, int index, json_t **record)
{
    fp8c_tensor t;
    char type[96];
    if (fp8c_program_tensor(program, function, index, &t) != FP8C_OK)
        return false;
    *record = json_pack("{ss ss ss ss ss sI ss ss si si}", "event", "tensor", "function",
                        fp8c_program_function_name(program, function), "name", t.name, "category",
                        t.category, "type", print_type(&t.type, type, sizeof type), "bytes",
                        (json_int_t)t.bytes, "made", t.made, "read", t.read, "first", (int)t.first,
                        "last", (int)t.last);
    return true;
}

static void record_tensors(plan *p, const fp8c_program *program, int function)
{
    json_t *record;
    for (int i = 0; cli_tensor_record(program, function, i, &record); i++)
        cli_json_record(&p->json, record);
}

static void show_tensors(plan *p, const fp8c_program *program, int function)
{
    record_tensors(p, program, function);
    if (!p->to)
        return;
    fprintf(p->to, "\nthe largest tensors in the arena at the peak: made by -> last read by\n");
    print_tensors(p, program, function, true, ARENA_SHOWN);
    fprintf(p->to, "the largest variables and buffers, which always take memory\n");
    print_tensors(p, program, function, false, OTHERS_SHOWN);
}

/* ---- time ---- */

/* The seconds of an optimizer step: its micro-steps and the update. */
static double step_seconds(const plan *p, const fp8c_program *program, fp8c_peak *micro,
                           fp8c_peak *update)
{
    *micro = *update = (fp8c_peak){0};
    fp8c_program_peak(program, fp8c_program_function(program, "micro_step"), micro);
    fp8c_program_peak(program, fp8c_program_function(program, "update"), update);
    return (double)module_of(p).accumulate * micro->seconds + update->seconds;
}

static void print_time(const plan *p, const fp8c_program *program)
{
    fp8c_peak micro, update;
    const double step = step_seconds(p, program, &micro, &update);
    fprintf(p->to,
            "\nestimated: %.3f ms a step: %" PRId64
            " x micro_step of %.3f ms, and update of %.3f ms\n",
            1e3 * step, module_of(p).accumulate, 1e3 * micro.seconds, 1e3 * update.seconds);
}

/* ---- budgets ---- */

/* A row of the table: a share, and what that budget costs. */
typedef struct row {
    double share; /* 1: no budget */
    int64_t planned_bytes, arena_bytes, arena_budget, activation_bytes;
    fp8c_remat remat;
} row;

/* Two decimals, or more where the share has more. */
static void print_share(const plan *p, double share)
{
    char text[32];
    snprintf(text, sizeof text, "%.2f", share);
    if (strtod(text, NULL) != share)
        snprintf(text, sizeof text, "%g", share);
    if (p->to)
        fprintf(p->to, "%7s", share == 1 ? "none" : text);
}

/* A budget that cannot be met is not an error of `plan`: the table ends there. Prints the reason.
 */
static void print_failed_budget(plan *p, double share)
{
    if (cli_interrupted()) /* the budget is not to blame */
        return;
    static const char error[] = "error: memory: ";
    const char *message = fp8c_context_message(p->ctx), *text = strstr(message, error);
    message = text ? text + strlen(error) : message;
    print_share(p, share);
    if (p->to)
        fprintf(p->to, "  %s\n", message);
    cli_json_record(&p->json,
                    json_pack("{ss sf ss}", "event", "budget", "share", share, "error", message));
}

/* `seconds` is that of a step without a budget. */
static void print_budget(plan *p, const row *r, double seconds)
{
    const double more = (double)module_of(p).accumulate * r->remat.extra_seconds;
    const double extra = more / seconds;
    print_share(p, r->share);
    if (p->to)
        fprintf(p->to, "  %11.1f  %11.1f  %15.1f  %10" PRId64 "  %+8.2f%%\n", mib(r->planned_bytes),
                mib(r->arena_bytes), mib(r->activation_bytes), r->remat.recomputed, 100 * extra);
    cli_json_record(
        &p->json, json_pack("{ss sf sI sI sI sI sI sI sf sf sf}", "event", "budget", "share",
                            r->share, "planned_bytes", (json_int_t)r->planned_bytes, "arena_bytes",
                            (json_int_t)r->arena_bytes, "arena_budget", (json_int_t)r->arena_budget,
                            "activation_bytes", (json_int_t)r->activation_bytes, "recomputed",
                            (json_int_t)r->remat.recomputed, "fp8_gemms_recomputed",
                            (json_int_t)r->remat.fp8_gemms, "seconds", seconds + more,
                            "extra_seconds", r->remat.extra_seconds, "extra", extra));
}

/* The row without a budget. Gives the seconds of a step. */
static double print_no_budget(plan *p, const fp8c_program *program)
{
    fp8c_info info = {.struct_size = sizeof info};
    fp8c_peak micro, update;
    const double seconds = step_seconds(p, program, &micro, &update);
    fp8c_program_info(program, &info);
    if (p->to)
        fprintf(p->to,
                "\nwhat a budget costs, given as a share of the activation bytes at the peak\n"
                "%7s  %11s  %11s  %15s  %10s  %9s\n",
                "budget", "in all MiB", "arena MiB", "activations MiB", "recomputed", "more time");
    print_budget(p,
                 &(row){.share = 1,
                        .planned_bytes = info.planned_bytes,
                        .arena_bytes = micro.arena_bytes,
                        .activation_bytes = micro.activation_bytes},
                 seconds);
    return seconds;
}

/* Prints what each budget costs as it is known, down to the first that can't be met. */
static int print_budgets(plan *p, fp8c_program *program)
{
    static const cli_SHARES usual = {
        .share = {0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05, 0.02, 0.01}, .n = 12};
    const cli_SHARES *list = p->c->budgets.n ? &p->c->budgets : &usual;
    const double seconds = print_no_budget(p, program);
    for (size_t i = 0; i < list->n; i++) {
        row r = {.share = list->share[i], .remat.struct_size = sizeof r.remat};
        if (p->to)
            fflush(p->to);
        const fp8c_status status = fp8c_program_remat(program, 0, r.share, &r.remat);
        if (status == FP8C_ERR_UNSUPPORTED) {
            print_failed_budget(p, r.share);
            return CLI_DONE;
        }
        if (status != FP8C_OK)
            return cli_fail(p->ctx);
        r.planned_bytes = r.remat.planned_bytes;
        r.arena_bytes = r.remat.arena_after;
        r.arena_budget = r.remat.arena_budget;
        r.activation_bytes = r.remat.activations_after;
        print_budget(p, &r, seconds);
    }
    return CLI_DONE;
}

/* ---- the command ---- */

static int show(plan *p, const fp8c_program *program)
{
    const int step = fp8c_program_function(program, "micro_step");
    fp8c_remat remat = {.struct_size = sizeof remat};
    fp8c_program_remat(program, 0, 0, &remat);
    if (step < 0) {
        fprintf(stderr, "%s: error: the module has no 'micro_step'\n", p->c->file);
        return CLI_FAILED;
    }
    for (int f = 0; fp8c_program_function_name(program, f); f++)
        record_function(p, program, f);
    if (p->to)
        print_memory(p, program, step);
    show_tensors(p, program, step);
    if (p->to)
        print_time(p, program);
    if (p->to && remat.arena_before)
        fprintf(p->to,
                "each micro_step recomputes %" PRId64
                " values in %.3f ms: this reduces its arena from %.1f to %.1f MiB, and its "
                "activations from %.1f to %.1f MiB\n",
                remat.recomputed, 1e3 * remat.extra_seconds, mib(remat.arena_before),
                mib(remat.arena_after), mib(remat.activations_before),
                mib(remat.activations_after));
    if (p->to)
        fflush(p->to);
    return CLI_DONE;
}

int cmd_plan(const cli *c)
{
    plan p = {.c = c, .to = cli_json_to_stdout(c) ? NULL : stdout};
    fp8c_module *module;
    fp8c_program *program;
    if (c->target && !strcmp(c->target, "reference")) {
        fprintf(stderr, "fp8c plan: target reference has no plan: it interprets the graph\n");
        return CLI_USAGE;
    }
    if (cli_refuses_auto(c, c->recipe))
        return CLI_USAGE;
    const bool asked = c->memory.bytes || c->memory.share || c->checkpoint || c->recompute;
    if (asked && c->budgets.n) {
        fprintf(stderr, "fp8c plan: --budgets asks for a table, and --memory, --checkpoint and "
                        "--recompute for one plan\n");
        return CLI_USAGE;
    }
    if (!cli_load(c, &p.ctx, &module))
        return CLI_FAILED;
    p.module = module;
    int code = CLI_FAILED;
    if (cli_json_open(&p.json, c->json)) {
        code = compile(&p, &program) == FP8C_OK ? show(&p, program) : cli_fail(p.ctx);
        if (code == CLI_DONE && !asked)
            code = print_budgets(&p, program);
        fp8c_program_destroy(program);
        if (!cli_json_close(&p.json))
            code = CLI_FAILED;
    }
    fp8c_module_destroy(module);
    fp8c_context_destroy(p.ctx);
    return code;
}
