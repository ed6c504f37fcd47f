/* Loading what was compiled ahead of time: from the .f8x of gpt2_124m.f8 (eval, micro_step, update;
 * under delayed prepare too) to a program that can run, in a new process each time, which has no
 * library loaded yet; and of that the reading alone, without what running needs (oneDNN and its
 * kernels, memory). Medians; the files are in the page cache. Bar: 50 ms.
 *
 *     bench_load [--json] */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/figures.h"
#include "frontend/fp8c.h"
#include "frontend/fp8c_diagnose.h"
#include "ir/base/clock.h"

enum { LOADS = 15, BAR = 50 };

/* The level's GEMMs are onednn-f32, whose kernels take oneDNN longer to make. */
static const struct {
    const char *recipe, *target, *name;
} cases[] = {
    {"bf16", "cpu", "bf16"},
    {"delayed", "cpu", "delayed"},
    {"delayed", "cpu:x86-64-v3", "delayed_v3"},
};

/* In a process of its own: seconds of opening a file. */
static int load(const char *file, bool only_look)
{
    const fp8c_open_options options = {.struct_size = sizeof options, .no_device = only_look};
    fp8c_context *ctx;
    fp8c_program *program;
    const double start = f8_seconds_now();
    must(fp8c_context_create(NULL, &ctx) == FP8C_OK, "context");
    must(fp8c_program_open(ctx, file, &options, &program) == FP8C_OK, fp8c_context_message(ctx));
    printf("%.9f\n", f8_seconds_now() - start);
    fp8c_program_destroy(program);
    fp8c_context_destroy(ctx);
    return 0;
}

static double load_elsewhere(char *self, char *how, char *file)
{
    char out[64] = "";
    int ends[2], status;
    must(pipe(ends) == 0, "pipe");
    const pid_t child = fork();
    must(child >= 0, "fork");
    if (child == 0) {
        dup2(ends[1], 1);
        execv(self, (char *[]){self, how, file, NULL});
        _exit(127);
    }
    close(ends[1]);
    must(read(ends[0], out, sizeof out - 1) > 0, how);
    close(ends[0]);
    must(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0, how);
    return atof(out);
}

static void compile(const char *recipe, const char *target, const char *file)
{
    size_t size;
    char *text = read_file("frontend/models/gpt2_124m.f8", &size);
    fp8c_context *ctx;
    fp8c_module *module;
    const fp8c_compile_options options = {
        .struct_size = sizeof options, .recipe = recipe, .target = target};
    must(fp8c_context_create(NULL, &ctx) == FP8C_OK, "context");
    must(fp8c_module_parse(ctx, text, size, "gpt2_124m.f8", NULL, 0, &module) == FP8C_OK &&
             fp8c_compile_file(module, &options, 1, file) == FP8C_OK,
         fp8c_context_message(ctx));
    fp8c_module_destroy(module);
    fp8c_context_destroy(ctx);
    free(text);
}

static void measure(bool json, char *self, size_t i_case, char *file)
{
    static char *const how[] = {"--open", "--look"};
    fp8c_context *ctx;
    fp8c_file_info info = {.struct_size = sizeof info};
    const char *name = cases[i_case].name;
    compile(cases[i_case].recipe, cases[i_case].target, file);
    must(fp8c_context_create(NULL, &ctx) == FP8C_OK, "context");
    must(fp8c_file_read_info(ctx, file, 0, &info) == FP8C_OK, fp8c_context_message(ctx));
    fp8c_context_destroy(ctx);
    report(json, (double)info.bytes / 1024, "KiB", "f8x_size_%s", name);
    for (int k = 0; k < 2; k++) {
        double ms[LOADS];
        for (int i = 0; i < LOADS; i++)
            ms[i] = 1e3 * load_elsewhere(self, how[k], file);
        const double middle = median(ms, LOADS);
        report(json, middle, "ms", k ? "f8x_read_%s" : "f8x_load_%s", name);
        if (!k && middle >= BAR)
            fprintf(stderr, "NOT HELD: loading takes %g ms, the bar %d\n", middle, BAR);
    }
}

int main(int argc, char **argv)
{
    char self[PATH_MAX], file[] = "/tmp/bench_load.XXXXXX";
    if (argc == 3)
        return load(argv[2], !strcmp(argv[1], "--look"));
    const bool json = argc > 1 && !strcmp(argv[1], "--json");
    must(realpath("/proc/self/exe", self) != NULL, "/proc/self/exe");
    const int fd = mkstemp(file);
    must(fd >= 0, file);
    close(fd);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        measure(json, self, i, file);
    unlink(file);
    return 0;
}
