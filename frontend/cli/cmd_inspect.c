/* fp8c inspect: shows what a .f8x file holds, also on a machine that cannot run it. */
#include <inttypes.h>
#include <string.h>

#include "frontend/cli/cli.h"

enum { LINE = 100 }; /* columns */

/* ---- a target ---- */

/* Prints "dims B <= 8: 3 plans, for B = 8; B = 3; B = 2", with as many sets on a line as fit. */
static void print_values(FILE *to, const fp8c_file_info *t, json_t *sets)
{
    int column = 0;
    size_t i;
    json_t *set, *value;
    const char *dim;
    if (!*t->dims)
        return;
    cli_say(to, "dims %s: %d plan%s, for", t->dims, t->variants, t->variants == 1 ? "" : "s");
    json_array_foreach (sets, i, set) {
        char text[512] = "";
        size_t n = 0;
        json_object_foreach (set, dim, value)
            if (n < sizeof text)
                n += (size_t)snprintf(text + n, sizeof text - n, "%s%s = %" JSON_INTEGER_FORMAT,
                                      n ? ", " : "", dim, json_integer_value(value));
        const bool next = i == 0 || column + (int)n + 2 > LINE;
        cli_say(to, "%s%s%s", i ? ";" : "", next ? "\n  " : " ", text);
        column = (next ? 2 : column + 2) + (int)strlen(text);
    }
    cli_say(to, "\n");
}

static void print_variables(cli_job *j)
{
    fp8c_variable v;
    char type[F8_TYPE_TEXT];
    int64_t bytes = 0;
    int n = 0;
    cli_say(j->to, "\nvariables\n");
    for (; fp8c_program_variable(j->program, n, &v) == FP8C_OK; n++) {
        bytes += fp8c_type_bytes(&v.type);
        cli_say(j->to, "  %-9s %-44s %s\n", v.is_param ? "parameter" : "state", v.name,
                f8_type_shown(&v.type, type));
        cli_json_record(
            &j->json,
            f8_record_variable(json_pack("{ss}", "target", fp8c_program_target(j->program)), &v));
    }
    cli_say(j->to, "%d variables, %.1f MiB\n", n, cli_mib(bytes));
}

static void print_ports(cli_job *j, int function)
{
    static const char *const sides[] = {[FP8C_INPUT] = "input", [FP8C_OUTPUT] = "output"};
    char type[F8_TYPE_TEXT];
    fp8c_port port;
    for (int side = FP8C_INPUT; side <= FP8C_OUTPUT; side++)
        for (int i = 0;
             fp8c_program_port(j->program, function, (fp8c_side)side, i, &port) == FP8C_OK; i++) {
            if (port.variable >= 0)
                continue;
            cli_say(j->to, "  %-6s %-20s %s\n", sides[side], port.name,
                    f8_type_shown(&port.type, type));
            cli_json_record(
                &j->json, f8_record_port(json_pack("{ss ss ss}", "target",
                                                   fp8c_program_target(j->program), "function",
                                                   fp8c_program_function_name(j->program, function),
                                                   "side", sides[side]),
                                         &port));
        }
}

static void print_function(cli_job *j, int function)
{
    json_t *record = f8_record_function(j->program, function), *count;
    const char *algorithm;
    cli_say(j->to, "\n%s: %" JSON_INTEGER_FORMAT " steps, arena %.1f MiB\n",
            fp8c_program_function_name(j->program, function),
            json_integer_value(json_object_get(record, "steps")),
            cli_mib(json_integer_value(json_object_get(record, "arena_bytes"))));
    json_object_foreach (json_object_get(record, "gemms"), algorithm, count)
        cli_say(j->to, "  %" JSON_INTEGER_FORMAT " GEMMs by %s\n", json_integer_value(count),
                algorithm);
    cli_json_record(&j->json, record);
    print_ports(j, function);
    if (j->c->kernels)
        cli_print_steps(j->program, function, j->to, &j->json);
}

static void print_memory(cli_job *j)
{
    fp8c_memory m;
    const int step = fp8c_program_function(j->program, "micro_step");
    const int function = step < 0 ? 0 : step;
    cli_say(j->to, "\nmemory at the peak of %s\n",
            fp8c_program_function_name(j->program, function));
    for (int i = 0; fp8c_program_memory(j->program, function, i, &m) == FP8C_OK; i++) {
        cli_say(j->to, "  %-20s %12.1f MiB%s\n", m.category, cli_mib(m.bytes),
                m.in_arena ? "  of the arena" : "");
        cli_json_record(
            &j->json,
            f8_record_category(json_pack("{ss}", "target", fp8c_program_target(j->program)), &m));
    }
}

static void print_target(cli_job *j, const fp8c_file_info *t)
{
    fp8c_info info = {.struct_size = sizeof info};
    json_t *record = f8_record_target(j->program, t);
    fp8c_program_info(j->program, &info);
    cli_say(j->to, "\ntarget %s%s%s%s\n", t->target, *t->missing ? ": needs " : "", t->missing,
            *t->missing ? ", which this CPU lacks" : "");
    cli_say(j->to,
            "%" PRId64 " distinct kernels, %.1f KiB of code, %.1f MiB planned; %" PRId64
            " linears, %" PRId64 " FP8 GEMMs a micro-step\n",
            info.distinct_kernels, (double)info.code_bytes / 1024, cli_mib(info.planned_bytes),
            info.linears, info.fp8_gemms_planned);
    print_values(j->to, t, json_object_get(record, "values"));
    cli_json_record(&j->json, record);
    for (int i = 0; fp8c_program_function_name(j->program, i); i++)
        print_function(j, i);
    print_variables(j);
    print_memory(j);
    cli_say(j->to, "\n");
    cli_print_decisions(j->program, j->to, &j->json);
}

/* ---- the file ---- */

static bool inspect(cli_job *j)
{
    const cli *c = j->c;
    fp8c_file_info info = {.struct_size = sizeof info};
    fp8c_file_info t = {.struct_size = sizeof t};
    bool found = !c->target;
    if (!cli_ok(j->ctx, fp8c_file_read_info(j->ctx, c->file, 0, &info)))
        return false;
    cli_say(j->to, "%s: fp8c %s, format %d.%d, %" PRId64 " bytes, checksum %s\n", c->file,
            info.version, info.format, info.plan_format, info.bytes, info.checksum);
    cli_json_record(&j->json, f8_record_file(json_pack("{ss}", "path", c->file), &info));
    for (int i = 0; fp8c_file_read_info(j->ctx, c->file, i, &t) == FP8C_OK; i++) {
        const fp8c_open_options options = {
            .struct_size = sizeof options, .target = t.target, .no_device = 1};
        if (c->target && strcmp(c->target, t.target))
            continue;
        found = true;
        fp8c_program_destroy(j->program);
        if (!cli_ok(j->ctx, fp8c_program_open(j->ctx, c->file, &options, &j->program)))
            return false;
        print_target(j, &t);
    }
    return found || cli_error(c->file, "it has no code for '%s'", c->target);
}

int cmd_inspect(const cli *c)
{
    return cli_work(c, false, inspect);
}
