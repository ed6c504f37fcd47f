/* fp8c compile: writes a CPU's kernels as LLVM IR, or those of a CUDA target as CUDA C, PTX or
 * machine code, or a report on them, or compiles ahead of time into a file. It needs no GPU. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "frontend/cli/auto.h"
#include "ir/base/suggest.h"

typedef enum emit_kind {
    EMIT_LLVM,
    EMIT_CUDA,
    EMIT_PTX,
    EMIT_CUBIN,
    EMIT_REPORT,
    EMIT_COUNT
} emit_kind;
static const char kinds[] = "llvm, cuda, ptx, cubin, report";
static const char *const emit_names[] = {"llvm", "cuda", "ptx", "cubin", "report"};

static emit_kind emit_of(const cli *c)
{
    int i = 0;
    while (c->emit && i < EMIT_COUNT && strcmp(c->emit, emit_names[i]))
        i++;
    return c->emit ? (emit_kind)i : EMIT_REPORT;
}

/* Checks that the options go together. Returns CLI_DONE, or an exit code after a message. */
static int check_options(const cli *c)
{
    const emit_kind kind = emit_of(c);
    char names[CLI_HELP_TEXT];
    if (kind == EMIT_COUNT)
        return cli_usage(c, "--emit takes llvm, cuda, ptx, cubin or report, not '%s'%s", c->emit,
                         f8_suggest_listed(c->emit, strlen(c->emit), kinds, names, sizeof names));
    if (kind == EMIT_LLVM && c->target && strncmp(c->target, "cpu", 3))
        return cli_usage(c, "--emit llvm writes a CPU's kernels: --target %s has none", c->target);
    if (kind != EMIT_LLVM &&
        (!c->target || !strncmp(c->target, "cpu", 3) || !strcmp(c->target, "reference")))
        return cli_usage(c, "--target must name a GPU: cuda, %s (or give -o NAME.f8x)",
                         cli_names(FP8C_NAME_TARGET, "sm_", NULL, names));
    if (c->json && kind != EMIT_REPORT)
        return cli_usage(c, "--json needs --emit report");
    if (cli_json_to_stdout(c) && c->output)
        return cli_usage(c, "--json - and -o can't go together: the report goes to one place");
    if (kind == EMIT_CUBIN && !c->output && isatty(STDOUT_FILENO))
        return cli_usage(c, "a terminal can't show machine code: give -o FILE");
    return CLI_DONE;
}

/* ---- the report ---- */

static void print_kernels(const fp8c_program *p, FILE *to, cli_json *json)
{
    fp8c_info info = {.struct_size = sizeof info};
    int64_t launches = 0;
    fp8c_kernel k;
    cli_say(to, "%-29s %8s %7s %9s %8s %8s %8s %6s %6s  %s\n", "kernel", "launches", "threads",
            "registers", "shared", "dynamic", "bulk", "stack", "spills", "name");
    for (int i = 0; fp8c_program_kernel(p, i, &k) == FP8C_OK; i++) {
        cli_say(to,
                "%-29s %8d %7d %9" PRId64 " %8" PRId64 " %8" PRId64 " %8" PRId64 " %6" PRId64
                " %6" PRId64 "  %s\n",
                k.symbol, k.launches, k.threads, k.registers, k.shared, k.shared_dynamic, k.bulk,
                k.stack, k.spill_stores + k.spill_loads, k.name);
        cli_json_record(json, f8_record_kernel(json_object(), &k));
        launches += k.launches;
    }
    fp8c_program_info(p, &info);
    cli_say(to,
            "\ntarget %s: %" PRId64 " distinct kernels for %" PRId64
            " launches, %.1f KiB of code; compiled in %.2f s\n",
            fp8c_program_target(p), info.distinct_kernels, launches, (double)info.code_bytes / 1024,
            info.compile_seconds);
    cli_json_record(json, f8_record_kernels(p, launches));
}

/* ---- source texts and machine code ---- */

static void write_image(const fp8c_program *p, emit_kind kind, FILE *to)
{
    fp8c_image image;
    for (int i = 0; fp8c_program_image(p, i, &image) == FP8C_OK; i++) {
        const char *text = kind == EMIT_LLVM   ? image.llvm
                           : kind == EMIT_CUDA ? image.cuda
                                               : image.ptx;
        const void *from = text;
        size_t size = text ? strlen(text) : 0;
        if (kind == EMIT_CUBIN) {
            from = image.cubin;
            size = image.cubin_size;
        }
        if (size && fwrite(from, 1, size, to) != size)
            return;
    }
}

static bool compile(cli_job *j)
{
    const cli *c = j->c;
    const emit_kind kind = emit_of(c);
    cli_text text;
    if (kind != EMIT_REPORT && !c->inference)
        cli_note_steps(c);
    fp8c_compile_options options = cli_listing_options(c, c->recipe);
    options.text_only = kind == EMIT_CUDA || kind == EMIT_LLVM;
    options.listings = kind != EMIT_REPORT;
    if (!cli_compile(j, &options))
        return false;
    cli_text_open(&text, c->output);
    if (text.to && kind == EMIT_REPORT)
        print_kernels(j->program, j->to ? text.to : NULL, &j->json);
    else if (text.to)
        write_image(j->program, kind, text.to);
    return cli_text_end(&text, true);
}

/* ---- NAME.f8x ---- */

enum { MOST_TARGETS = 16 };

/* Whether the list of --target can be taken. false after a message: there are too many, or one is
 * empty. */
static bool check_targets(const char *list)
{
    for (int n = 0; list; n++) {
        const size_t length = strcspn(list, ",");
        if (n == MOST_TARGETS) {
            cli_say(stderr, "fp8c compile: --target takes at most %d targets\n", MOST_TARGETS);
            return false;
        }
        if (!length) {
            cli_say(stderr, "fp8c compile: bad value for --target: name %d of the list is empty\n",
                    n + 1);
            return false;
        }
        list = list[length] ? list + length + 1 : NULL;
    }
    return true;
}

static bool report_file(cli_job *j)
{
    const char *path = j->c->output;
    fp8c_file_info info = {.struct_size = sizeof info};
    if (!cli_ok(j->ctx, fp8c_file_read_info(j->ctx, path, 0, &info)))
        return false;
    json_t *targets = json_array();
    cli_say(j->to, "%s: %" PRId64 " bytes, for", path, info.bytes);
    for (int i = 0; fp8c_file_read_info(j->ctx, path, i, &info) == FP8C_OK; i++) {
        cli_say(j->to, "%s %s", i ? "," : "", info.target);
        json_array_append_new(targets, json_string(info.target));
    }
    cli_say(j->to, "\n");
    cli_json_record(&j->json, json_pack("{ss ss sI ss so}", "event", "file", "path", path, "bytes",
                                        (json_int_t)info.bytes, "checksum", info.checksum,
                                        "targets", targets));
    return true;
}

static bool compile_package(cli_job *j)
{
    fp8c_compile_options options[MOST_TARGETS];
    const cli *c = j->c;
    size_t n = 0;
    char *list = strdup(c->target ? c->target : "cpu"), *rest;
    if (!list)
        return cli_error(NULL, "out of memory");
    if (!c->inference)
        cli_note_steps(c);
    for (char *name = strtok_r(list, ",", &rest); name; name = strtok_r(NULL, ",", &rest)) {
        options[n] = cli_listing_options(c, c->recipe);
        options[n].target = name;
        options[n++].values = c->values;
    }
    const bool ok = cli_ok(j->ctx, fp8c_compile_file(j->module, options, n, c->output));
    free(list);
    return ok && report_file(j);
}

/* ---- the command ---- */

int cmd_compile(const cli *c)
{
    const bool package = !c->emit && cli_is_package(c->output);
    const int code = package ? CLI_DONE : check_options(c);
    if (code != CLI_DONE)
        return code;
    if (cli_refuses_auto(c) || (package && !check_targets(c->target)))
        return CLI_USAGE;
    return cli_work(c, true, package ? compile_package : compile);
}
