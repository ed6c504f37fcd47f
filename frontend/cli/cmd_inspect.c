/* fp8c inspect: shows what a .f8x file holds, also on a machine that cannot run it. */
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#include "frontend/cli/cmd.h"

typedef struct inspect {
    const cli *c;
    fp8c_context *ctx;
    FILE *to; /* NULL: stdout is for the records */
    cli_json json;
} inspect;

static void say(const inspect *x, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void say(const inspect *x, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (x->to)
        vfprintf(x->to, format, args);
    va_end(args);
}

/* ---- values of dims that are bounds ---- */

enum { LINE = 100 }; /* columns */

typedef struct dims {
    fp8c_program_dim dim[FP8C_MAX_BOUNDS];
    int n;
} dims;

static dims read_dims(const fp8c_program *p)
{
    dims d = {.n = 0};
    while (d.n < FP8C_MAX_BOUNDS && fp8c_program_dims(p, d.n, &d.dim[d.n]) == FP8C_OK)
        d.n++;
    return d;
}

/* The sets of values that have a plan, each as {"B": 8, "S": 4}. */
static json_t *json_values(const fp8c_program *p)
{
    int64_t value[FP8C_MAX_BOUNDS];
    const dims d = read_dims(p);
    json_t *sets = json_array();
    for (int i = 0; fp8c_program_values(p, i, value) == FP8C_OK; i++) {
        json_t *set = json_object();
        for (int k = 0; k < d.n; k++)
            json_object_set_new(set, d.dim[k].name, json_integer(value[k]));
        json_array_append_new(sets, set);
    }
    return sets;
}

/* Prints "dims B <= 8: 3 plans, for B = 8; B = 3; B = 2", with as many sets on a line as fit. */
static void print_values(const inspect *x, const fp8c_program *p, const fp8c_file_info *t)
{
    int64_t value[FP8C_MAX_BOUNDS];
    const dims d = read_dims(p);
    int column = 0;
    if (!d.n)
        return;
    say(x, "dims %s: %d plan%s, for", t->dims, t->variants, t->variants == 1 ? "" : "s");
    for (int i = 0; fp8c_program_values(p, i, value) == FP8C_OK; i++) {
        char set[512];
        int n = 0;
        for (int k = 0; k < d.n && n < (int)sizeof set; k++)
            n += snprintf(set + n, sizeof set - (size_t)n, "%s%s = %" PRId64, k ? ", " : "",
                          d.dim[k].name, value[k]);
        const bool next = i == 0 || column + n + 2 > LINE;
        say(x, "%s%s%s", i ? ";" : "", next ? "\n  " : " ", set);
        column = (next ? 2 : column + 2) + (int)strlen(set);
    }
    say(x, "\n");
}

/* ---- a target ---- */

static void print_variables(inspect *x, fp8c_program *p)
{
    fp8c_variable v;
    char type[CLI_TYPE_TEXT];
    int64_t bytes = 0;
    int n = 0;
    say(x, "\nvariables\n");
    for (; fp8c_program_variable(p, n, &v) == FP8C_OK; n++) {
        bytes += fp8c_type_bytes(&v.type);
        say(x, "  %-9s %-44s %s\n", v.is_param ? "parameter" : "state", v.name,
            cli_type(&v.type, type));
        cli_json_record(&x->json, json_pack("{ss ss ss ss sI sb}", "event", "variable", "target",
                                            fp8c_program_target(p), "name", v.name, "type", type,
                                            "bytes", (json_int_t)fp8c_type_bytes(&v.type),
                                            "parameter", (int)v.is_param));
    }
    say(x, "%d variables, %.1f MiB\n", n, (double)bytes / (1 << 20));
}

static void print_ports(inspect *x, const fp8c_program *p, int function)
{
    static const char *const sides[] = {[FP8C_INPUT] = "input", [FP8C_OUTPUT] = "output"};
    char type[CLI_TYPE_TEXT];
    for (int side = FP8C_INPUT; side <= FP8C_OUTPUT; side++) {
        fp8c_port port;
        for (int i = 0; fp8c_program_port(p, function, (fp8c_side)side, i, &port) == FP8C_OK; i++) {
            if (port.variable >= 0)
                continue;
            say(x, "  %-6s %-20s %s\n", sides[side], port.name, cli_type(&port.type, type));
            cli_json_record(&x->json,
                            json_pack("{ss ss ss ss ss ss}", "event", "port", "target",
                                      fp8c_program_target(p), "function",
                                      fp8c_program_function_name(p, function), "side", sides[side],
                                      "name", port.name, "type", cli_type(&port.type, type)));
        }
    }
}

/* Counts the GEMMs of a function by algorithm, for up to 8 algorithms. */
typedef struct algorithms {
    const char *name[8];
    int64_t count[8];
    int n;
} algorithms;

static void count_algorithm(algorithms *a, const char *name)
{
    int i = 0;
    while (i < a->n && strcmp(a->name[i], name))
        i++;
    if (i == 8)
        return;
    if (i == a->n)
        a->name[a->n++] = name;
    a->count[i]++;
}

static void print_function(inspect *x, fp8c_program *p, int function)
{
    fp8c_step s;
    fp8c_peak peak = {.step = ""};
    algorithms gemms = {.n = 0};
    int64_t steps = 0;
    const char *name = fp8c_program_function_name(p, function);
    json_t *by = json_object();
    for (int i = 0; fp8c_program_step(p, function, i, &s) == FP8C_OK; i++, steps++)
        if (!strcmp(s.kind, "gemm"))
            count_algorithm(&gemms, s.algorithm ? s.algorithm : "?");
    fp8c_program_peak(p, function, &peak);
    say(x, "\n%s: %" PRId64 " steps, arena %.1f MiB\n", name, steps,
        (double)peak.arena_bytes / (1 << 20));
    for (int i = 0; i < gemms.n; i++) {
        say(x, "  %" PRId64 " GEMMs by %s\n", gemms.count[i], gemms.name[i]);
        json_object_set_new(by, gemms.name[i], json_integer(gemms.count[i]));
    }
    cli_json_record(&x->json,
                    json_pack("{ss ss ss sI sI sI so}", "event", "function", "target",
                              fp8c_program_target(p), "name", name, "steps", (json_int_t)steps,
                              "arena_bytes", (json_int_t)peak.arena_bytes, "peak_bytes",
                              (json_int_t)peak.alive_bytes, "gemms", by));
    print_ports(x, p, function);
    if (x->c->kernels)
        cli_print_steps(p, function, x->to, &x->json);
}

static void print_memory(inspect *x, const fp8c_program *p)
{
    fp8c_memory m;
    const int step = fp8c_program_function(p, "micro_step");
    const int function = step < 0 ? 0 : step;
    say(x, "\nmemory at the peak of %s\n", fp8c_program_function_name(p, function));
    for (int i = 0; fp8c_program_memory(p, function, i, &m) == FP8C_OK; i++) {
        say(x, "  %-20s %12.1f MiB%s\n", m.category, (double)m.bytes / (1 << 20),
            m.in_arena ? "  of the arena" : "");
        cli_json_record(&x->json, json_pack("{ss ss ss sI sb}", "event", "memory", "target",
                                            fp8c_program_target(p), "category", m.category, "bytes",
                                            (json_int_t)m.bytes, "in_arena", (int)m.in_arena));
    }
}

static int print_target(inspect *x, const fp8c_file_info *t)
{
    const fp8c_open_options options = {
        .struct_size = sizeof options, .target = t->target, .no_device = 1};
    fp8c_info info = {.struct_size = sizeof info};
    fp8c_program *p;
    if (fp8c_program_open(x->ctx, x->c->file, &options, &p) != FP8C_OK)
        return cli_fail(x->ctx);
    fp8c_program_info(p, &info);
    say(x, "\ntarget %s%s%s%s\n", t->target, *t->missing ? ": needs " : "", t->missing,
        *t->missing ? ", which this CPU lacks" : "");
    say(x,
        "%" PRId64 " distinct kernels, %.1f KiB of code, %.1f MiB planned; %" PRId64
        " linears, %" PRId64 " FP8 GEMMs a micro-step\n",
        info.distinct_kernels, (double)info.code_bytes / 1024,
        (double)info.planned_bytes / (1 << 20), info.linears, info.fp8_gemms_planned);
    print_values(x, p, t);
    cli_json_record(&x->json,
                    json_pack("{ss ss ss ss si so sI sI sI sI sI}", "event", "target", "target",
                              t->target, "missing", t->missing, "dims", t->dims, "variants",
                              (int)t->variants, "values", json_values(p), "kernels",
                              (json_int_t)info.distinct_kernels, "code_bytes",
                              (json_int_t)info.code_bytes, "planned_bytes",
                              (json_int_t)info.planned_bytes, "linears", (json_int_t)info.linears,
                              "fp8_gemms", (json_int_t)info.fp8_gemms_planned));
    for (int i = 0; fp8c_program_function_name(p, i); i++)
        print_function(x, p, i);
    print_variables(x, p);
    print_memory(x, p);
    say(x, "\n");
    cli_print_decisions(p, x->to, &x->json);
    fp8c_program_destroy(p);
    return CLI_DONE;
}

/* ---- the file ---- */

static int print_file(inspect *x)
{
    fp8c_file_info info = {.struct_size = sizeof info};
    bool found = !x->c->target;
    if (fp8c_file_read_info(x->ctx, x->c->file, 0, &info) != FP8C_OK)
        return cli_fail(x->ctx);
    say(x, "%s: fp8c %s, format %d.%d, %" PRId64 " bytes, checksum %s\n", x->c->file, info.version,
        info.format, info.plan_format, info.bytes, info.checksum);
    cli_json_record(&x->json,
                    json_pack("{ss ss ss si si sI ss si}", "event", "file", "path", x->c->file,
                              "version", info.version, "format", (int)info.format, "plan_format",
                              (int)info.plan_format, "bytes", (json_int_t)info.bytes, "checksum",
                              info.checksum, "targets", (int)info.targets));
    for (int i = 0; fp8c_file_read_info(x->ctx, x->c->file, i, &info) == FP8C_OK; i++) {
        if (x->c->target && strcmp(x->c->target, info.target))
            continue;
        found = true;
        const int code = print_target(x, &info);
        if (code != CLI_DONE)
            return code;
    }
    if (found)
        return CLI_DONE;
    fprintf(stderr, "%s: error: it has no code for '%s'\n", x->c->file, x->c->target);
    return CLI_FAILED;
}

int cmd_inspect(const cli *c)
{
    inspect x = {.c = c, .ctx = cli_context(), .to = cli_json_to_stdout(c) ? NULL : stdout};
    if (!x.ctx)
        return CLI_FAILED;
    int code = CLI_FAILED;
    if (cli_json_open(&x.json, c->json)) {
        code = print_file(&x);
        if (!cli_json_close(&x.json))
            code = CLI_FAILED;
    }
    fp8c_context_destroy(x.ctx);
    return code;
}
