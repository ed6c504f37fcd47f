/* Made-up installations of libraries: see stub_library.h. */
#include "tests/shared/stub_library.h"

#include <check.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char temp[64];

int f8_stub_shell(const char *format, ...)
{
    char command[2048];
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(command, sizeof command, format, args);
    va_end(args);
    ck_assert(n > 0 && n < (int)sizeof command);
    return system(command);
}

void f8_stub_setup(void)
{
    snprintf(temp, sizeof temp, "/tmp/fp8c-XXXXXX");
    ck_assert(mkdtemp(temp) != NULL);
}

void f8_stub_teardown(void)
{
    ck_assert(f8_stub_shell("rm -rf '%s'", temp) == 0);
}

const char *f8_stub_path(const char *name)
{
    static char path[8][256];
    static int next;
    char *p = path[next++ % 8];
    snprintf(p, sizeof path[0], "%s/%s", temp, name);
    return p;
}

void f8_stub_file(const char *name, const char *text)
{
    const char *path = f8_stub_path(name);
    ck_assert(f8_stub_shell("mkdir -p \"$(dirname '%s')\"", path) == 0);
    FILE *f = fopen(path, "w");
    ck_assert(f != NULL);
    fputs(text, f);
    ck_assert(fclose(f) == 0);
}

static void compile(const char *folder, const char *soname, const char *sources,
                    const char *arguments)
{
    ck_assert(f8_stub_shell("mkdir -p '%s/%s'", temp, folder) == 0);
    ck_assert(
        f8_stub_shell("cd '%s' && cc -std=gnu17 -w -shared -fPIC -I\"$OLDPWD\" -o '%s/%s' %s %s",
                      temp, folder, soname, sources, arguments) == 0);
}

static const char functions[] =
    "#include \"runtime/cuda/api.h\"\n#include \"runtime/cuda/cudnn_api.h\"\n"
    "#define F(r, n, p) __attribute__((weak)) r n p { return (r)0; }\n"
    "TABLE(F)\n";

void f8_stub_library(const char *folder, const char *soname, const char *table, const char *extra)
{
    char arguments[64];
    f8_stub_file("functions.c", functions);
    f8_stub_file("extra.c", extra);
    snprintf(arguments, sizeof arguments, "-DTABLE=%s", table);
    compile(folder, soname, "functions.c extra.c", arguments);
}

void f8_stub_compile(const char *folder, const char *soname, const char *text,
                     const char *arguments)
{
    f8_stub_file("alone.c", text);
    compile(folder, soname, "alone.c", arguments);
}

void f8_stub_nvrtc(const char *folder, const char *soname, int major)
{
    char extra[128];
    snprintf(extra, sizeof extra,
             "int nvrtcVersion(int *a, int *b) { *a = %d; *b = 0; return 0; }\n", major);
    f8_stub_library(folder, soname, "F8_NVRTC_SYMBOLS", extra);
}

void f8_stub_driver(const char *folder, int version, int init)
{
    char extra[160];
    snprintf(extra, sizeof extra,
             "int cuDriverGetVersion(int *v) { *v = %d; return 0; }\nint cuInit(unsigned f) { "
             "return %d; }\n",
             version, init);
    f8_stub_library(folder, "libcuda.so.1", "F8_CUDA_SYMBOLS", extra);
}

void f8_stub_over_emulator(const char *folder, const char *text)
{
    static const char *const others[] = {"libnvrtc.so.13", "libcublasLt.so.13"};
    char arguments[1024], path[256], to[128];
    const char *emulator = getenv("FP8C_CUDA_PATH");
    snprintf(arguments, sizeof arguments,
             "-DREAL -Wl,--no-as-needed '%s/libcuda.so.1' -Wl,-rpath,'%s' -ldl", emulator,
             emulator);
    f8_stub_compile(folder, "libcuda.so.1", text, arguments);
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", emulator, others[i]);
        snprintf(to, sizeof to, "%s/%s", folder, others[i]);
        ck_assert_int_eq(symlink(path, f8_stub_path(to)), 0);
    }
    setenv("FP8C_CUDA_PATH", f8_stub_path(folder), 1);
}
