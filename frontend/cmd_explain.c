/* fp8c explain: what was decided for each GEMM of a linear, and the kernels. */
#include <inttypes.h>

#include "frontend/cmd.h"

static void print_decisions(const fp8c_program *p, cli_json *json)
{
    fp8c_decision d;
    printf("%-28s %-6s %-17s %-8s %-20s %s\n", "linear", "role", "formats", "scaling", "m x n x k",
           "why");
    for (int i = 0; fp8c_program_decision(p, i, &d) == FP8C_OK; i++) {
        char formats[40], size[64], times[24] = "";
        snprintf(formats, sizeof formats, "%s x %s", d.format_a, d.format_b);
        if (d.count > 1)
            snprintf(times, sizeof times, " (x%" PRId64 ")", d.count);
        snprintf(size, sizeof size, "%" PRId64 "x%" PRId64 "x%" PRId64 "%s", d.m, d.n, d.k, times);
        printf("%-28s %-6s %-17s %-8s %-20s %s\n", d.linear, d.role, formats, d.scaling, size, d.reason);
        cli_json_record(json, json_pack("{ss ss ss s[ss] ss ss sI sI sI sI sb}", "event", "decision",
                                        "gemm", d.linear, "role", d.role, "format", d.format_a,
                                        d.format_b, "scaling", d.scaling, "reason", d.reason, "m",
                                        (json_int_t)d.m, "n", (json_int_t)d.n, "k", (json_int_t)d.k,
                                        "count", (json_int_t)d.count, "fp8", (int)d.fp8));
    }
}

static void print_steps(const fp8c_program *p, int function, cli_json *json)
{
    fp8c_step s;
    int64_t kernels = 0, gemms = 0, bytes = 0;
    printf("\n%s\n%-7s %-44s %6s %12s %12s  %s\n", fp8c_program_function_name(p, function), "kind", "name",
           "phases", "read KiB", "written KiB", "code");
    for (int i = 0; fp8c_program_step(p, function, i, &s) == FP8C_OK; i++) {
        char code[24] = "";
        if (s.hash)
            snprintf(code, sizeof code, "%016" PRIx64, s.hash);
        printf("%-7s %-44s %6d %12.1f %12.1f  %s\n", s.kind, s.name, s.phases, (double)s.bytes_read / 1024,
               (double)s.bytes_written / 1024, code);
        kernels += s.kind[0] == 'k';
        gemms += s.kind[0] == 'g';
        bytes += s.kind[0] == 'g' ? 0 : s.bytes_read + s.bytes_written;
        cli_json_record(json, json_pack("{ss ss ss ss si ss sI sI}", "event", "kernel", "function",
                                        fp8c_program_function_name(p, function), "kind", s.kind, "name",
                                        s.name, "phases", (int)s.phases, "hash", code, "bytes_read",
                                        (json_int_t)s.bytes_read, "bytes_written",
                                        (json_int_t)s.bytes_written));
    }
    printf("%" PRId64 " kernels, %" PRId64 " GEMMs; kernels move %.1f MiB\n", kernels, gemms,
           (double)bytes / (1 << 20));
}

static void print_counts(const fp8c_program *p)
{
    fp8c_info info;
    fp8c_program_info(p, &info);
    printf("\n%" PRId64 " linears, %" PRId64 " FP8 GEMMs planned for a micro-step\n", info.linears,
           info.fp8_gemms_planned);
    printf("%" PRId64 " distinct kernels, %.1f KiB of code; compiled in %.2f s\n", info.distinct_kernels,
           (double)info.code_bytes / 1024, info.compile_seconds);
    printf("memory: %.1f MiB planned, of it arena %.1f MiB (least possible in this order: %.1f MiB)\n",
           (double)info.planned_bytes / (1 << 20), (double)info.arena_bytes / (1 << 20),
           (double)info.arena_lower_bound / (1 << 20));
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
    const fp8c_compile_options options = cli_compile_options(c, c->recipe);
    fp8c_program *program;
    int code = CLI_DONE;
    if (fp8c_compile(module, &options, &program) == FP8C_OK) {
        print_decisions(program, &json);
        for (int f = 0; c->kernels && fp8c_program_function_name(program, f); f++)
            print_steps(program, f, &json);
        print_counts(program);
    } else {
        code = cli_fail(ctx);
    }
    fp8c_program_destroy(program);
    if (!cli_json_close(&json))
        code = CLI_FAILED;
    fp8c_module_destroy(module);
    fp8c_context_destroy(ctx);
    return code;
}
