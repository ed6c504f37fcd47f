/* fp8c plan: shows where the memory of a training step goes, the estimated time of the step, and
 * what a budget of memory costs. It compiles no kernels, so no target needs a GPU, LLVM or NVRTC.
 */
#include <inttypes.h>
#include <string.h>

#include "frontend/cli/cmd_calibrate.h"

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

static fp8c_status compile(const plan *p, cli_MEMORY memory, fp8c_program **out)
{
    fp8c_compile_options options = cli_compile_options(p->c, p->c->recipe);
    options.plan_only = 1;
    options.memory_bytes = memory.bytes;
    options.memory_share = memory.share;
    return fp8c_compile(p->module, &options, out);
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

static void record_function(plan *p, const fp8c_program *program, int function)
{
    fp8c_info info = {.struct_size = sizeof info};
    fp8c_peak peak;
    if (fp8c_program_peak(program, function, &peak) != FP8C_OK)
        return;
    fp8c_program_info(program, &info);
    cli_json_record(&p->json,
                    json_pack("{ss ss ss ss ss si si sI sI sI sI sf so}", "event", "memory",
                              "target", fp8c_program_target(program), "recipe", p->c->recipe,
                              "function", fp8c_program_function_name(program, function), "step",
                              peak.step, "position", (int)peak.position, "positions",
                              (int)peak.positions, "planned_bytes", (json_int_t)info.planned_bytes,
                              "arena_bytes", (json_int_t)peak.arena_bytes, "alive_bytes",
                              (json_int_t)peak.alive_bytes, "activation_bytes",
                              (json_int_t)peak.activation_bytes, "seconds", peak.seconds, "bytes",
                              categories(program, function)));
}

static void print_memory(const plan *p, const fp8c_program *program, int function)
{
    fp8c_info info = {.struct_size = sizeof info};
    fp8c_peak peak;
    fp8c_memory m;
    fp8c_program_info(program, &info);
    fp8c_program_peak(program, function, &peak);
    fprintf(p->to, "target %s, recipe %s: memory at the peak of %s, at '%s' (step %d of %d)\n",
            fp8c_program_target(program), p->c->recipe,
            fp8c_program_function_name(program, function), peak.step, peak.position,
            peak.positions);
    for (int i = 0; fp8c_program_memory(program, function, i, &m) == FP8C_OK; i++)
        fprintf(p->to, "%12.2f MiB  %s%s\n", mib(m.bytes), m.category,
                m.in_arena ? " (arena)" : "");
    fprintf(p->to, "%12.2f MiB  in all\n", mib(info.planned_bytes));
}

static const char *print_type(const fp8c_type *t, char *text, size_t size)
{
    size_t n = (size_t)snprintf(text, size, "%s[", fp8c_dtype_name(t->dtype));
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

static void record_tensors(plan *p, const fp8c_program *program, int function)
{
    fp8c_tensor t;
    char type[96];
    for (int i = 0; fp8c_program_tensor(program, function, i, &t) == FP8C_OK; i++)
        cli_json_record(&p->json,
                        json_pack("{ss ss ss ss ss sI ss ss si si}", "event", "tensor", "function",
                                  fp8c_program_function_name(program, function), "name", t.name,
                                  "category", t.category, "type",
                                  print_type(&t.type, type, sizeof type), "bytes",
                                  (json_int_t)t.bytes, "made", t.made, "read", t.read, "first",
                                  (int)t.first, "last", (int)t.last));
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
    return (double)fp8c_module_accumulate(p->module) * micro->seconds + update->seconds;
}

static void print_time(const plan *p, const fp8c_program *program)
{
    fp8c_peak micro, update;
    const double step = step_seconds(p, program, &micro, &update);
    fprintf(
        p->to,
        "\nestimated: %.3f ms a step: %" PRId64 " x micro_step of %.3f ms, and update of %.3f ms\n",
        1e3 * step, fp8c_module_accumulate(p->module), 1e3 * micro.seconds, 1e3 * update.seconds);
}

/* ---- budgets ---- */

/* A budget that cannot be met is not an error of `plan`: the curve ends there. Prints the reason.
 */
static void print_failed_budget(plan *p, double share)
{
    if (cli_interrupted()) /* the budget is not to blame */
        return;
    static const char error[] = "error: memory: ";
    const char *message = fp8c_context_message(p->ctx), *text = strstr(message, error);
    message = text ? text + strlen(error) : message;
    if (p->to)
        fprintf(p->to, "%7.2f  %s\n", share, message);
    cli_json_record(&p->json,
                    json_pack("{ss sf ss}", "event", "budget", "share", share, "error", message));
}

/* Prints a line of the curve. share 1 is the line without a budget; it sets *base to the seconds of
 * its step. */
static void print_budget(plan *p, const fp8c_program *program, double share, double *base)
{
    fp8c_info info = {.struct_size = sizeof info};
    fp8c_peak micro, update;
    fp8c_remat remat = {.struct_size = sizeof remat};
    const double seconds = step_seconds(p, program, &micro, &update);
    fp8c_program_info(program, &info);
    fp8c_program_remat(program, &remat);
    if (share == 1)
        *base = seconds;
    const double extra = (double)fp8c_module_accumulate(p->module) * remat.extra_seconds / *base;
    if (p->to && share == 1)
        fprintf(p->to, "%7s", "none");
    else if (p->to)
        fprintf(p->to, "%7.2f", share);
    if (p->to)
        fprintf(p->to, "  %11.1f  %11.1f  %15.1f  %10" PRId64 "  %+8.2f%%\n",
                mib(info.planned_bytes), mib(micro.arena_bytes), mib(micro.activation_bytes),
                remat.recomputed, 100 * extra);
    cli_json_record(&p->json,
                    json_pack("{ss sf sI sI sI sI sI sI sf sf sf}", "event", "budget", "share",
                              share, "planned_bytes", (json_int_t)info.planned_bytes, "arena_bytes",
                              (json_int_t)micro.arena_bytes, "arena_budget",
                              (json_int_t)(share == 1 ? 0 : remat.arena_budget), "activation_bytes",
                              (json_int_t)micro.activation_bytes, "recomputed",
                              (json_int_t)remat.recomputed, "fp8_gemms_recomputed",
                              (json_int_t)remat.fp8_gemms, "seconds", seconds, "extra_seconds",
                              remat.extra_seconds, "extra", extra));
}

/* Prints what each budget costs, down to the first that cannot be met. */
static void print_budgets(plan *p)
{
    static const double shares[] = {1,   0.9, 0.8, 0.7,  0.6,  0.5, 0.4,
                                    0.3, 0.2, 0.1, 0.05, 0.02, 0.01};
    double base = 0;
    if (p->to)
        fprintf(p->to,
                "\nwhat a budget costs, given as a share of the activation bytes at the peak\n"
                "%7s  %11s  %11s  %15s  %10s  %9s\n",
                "budget", "in all MiB", "arena MiB", "activations MiB", "recomputed", "more time");
    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++) {
        const double share = shares[i];
        fp8c_program *program;
        const fp8c_status status = compile(p, (cli_MEMORY){.share = i ? share : 0}, &program);
        if (status == FP8C_OK)
            print_budget(p, program, share, &base);
        else
            print_failed_budget(p, share);
        fp8c_program_destroy(program);
        if (status != FP8C_OK)
            return;
    }
}

/* ---- the command ---- */

static int show(plan *p, const fp8c_program *program)
{
    const int step = fp8c_program_function(program, "micro_step");
    fp8c_remat remat = {.struct_size = sizeof remat};
    fp8c_program_remat(program, &remat);
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
    if (!cli_load(c, &p.ctx, &module))
        return CLI_FAILED;
    p.module = module;
    int code = CLI_FAILED;
    if (cli_json_open(&p.json, c->json)) {
        code = compile(&p, c->memory, &program) == FP8C_OK ? show(&p, program) : cli_fail(p.ctx);
        fp8c_program_destroy(program);
        if (code == CLI_DONE && !c->checkpoint && !c->recompute)
            print_budgets(&p);
        if (!cli_json_close(&p.json))
            code = CLI_FAILED;
    }
    fp8c_module_destroy(module);
    fp8c_context_destroy(p.ctx);
    return code;
}
