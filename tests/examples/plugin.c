/* A program that uses fp8c as a plug-in: it opens the library at run time, compiles and runs
 * something, and closes the library, several times. Afterwards no part of the library is mapped and
 * none of its threads runs.
 *
 *     plugin LIBFP8C */
#include <dirent.h>
#include <dlfcn.h>
#include <fp8c.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 3, N = 64 };

static const char text[] = "module one\n"
                           "func forward(%x: f32[64]) -> (%y: f32[64]) {\n"
                           "  return mul(%x, %x)\n"
                           "}\n";

static void want(int ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "wrong: %s\n", what);
    exit(1);
}

/* Lines of /proc/self/maps with the word. */
static int mapped(const char *word)
{
    char line[4096];
    int n = 0;
    FILE *f = fopen("/proc/self/maps", "r");
    want(f != NULL, "/proc/self/maps");
    while (fgets(line, sizeof line, f))
        n += strstr(line, word) != NULL;
    fclose(f);
    return n;
}

static int threads(void)
{
    int n = 0;
    DIR *d = opendir("/proc/self/task");
    want(d != NULL, "/proc/self/task");
    for (const struct dirent *e; (e = readdir(d));)
        n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

#define IMPORT(name)                                                                               \
    __typeof__(fp8c_##name) *name = (__typeof__(fp8c_##name) *)dlsym(library, "fp8c_" #name)

static void use(void *library)
{
    IMPORT(context_create);
    IMPORT(context_destroy);
    IMPORT(module_parse);
    IMPORT(module_destroy);
    IMPORT(compile);
    IMPORT(program_initialize);
    IMPORT(program_function);
    IMPORT(program_buffer);
    IMPORT(program_run);
    IMPORT(program_destroy);
    fp8c_context *ctx;
    fp8c_module *m;
    fp8c_program *p;
    const fp8c_compile_options options = {
        .struct_size = sizeof options, .recipe = "f32", .inference = 1, .threads = 3};
    want(context_create(NULL, &ctx) == FP8C_OK, "context");
    want(module_parse(ctx, text, strlen(text), "one.f8", NULL, 0, &m) == FP8C_OK, "parse");
    want(compile(m, &options, &p) == FP8C_OK && program_initialize(p, 1) == FP8C_OK, "compile");
    const int eval = program_function(p, "eval");
    float *x = program_buffer(p, eval, FP8C_INPUT, 0);
    for (int i = 0; i < N; i++)
        x[i] = (float)i;
    want(program_run(p, eval) == FP8C_OK, "run");
    const float *y = program_buffer(p, eval, FP8C_OUTPUT, 0);
    for (int i = 0; i < N; i++)
        want(y[i] == (float)(i * i), "i * i");
    program_destroy(p);
    module_destroy(m);
    context_destroy(ctx);
}

int main(int argc, char **argv)
{
    want(argc == 2, "usage: plugin LIBFP8C");
    want(mapped("libfp8c") == 0, "linked already");
    for (int i = 0; i < ROUNDS; i++) {
        void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
        want(library != NULL, dlerror());
        want(mapped("libfp8c") > 0, "not mapped");
        use(library);
        want(dlclose(library) == 0, "dlclose");
        want(mapped("libfp8c") == 0, "still mapped");
        want(threads() == 1, "threads are left");
    }
    puts("ok");
    return 0;
}
