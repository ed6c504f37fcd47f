/* NVRTC's functions. Options are checked as NVRTC checks them. In addition, options that the
 * meaning of our texts depends on (--fmad=false) must be given. */
#include "tests/emulator/nvrtc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#pragma GCC visibility push(default)
F8_NVRTC_SYMBOLS(F8_EMU_PROTOTYPE)
int64_t f8_emulator_compiler_runs(void);
#pragma GCC visibility pop

struct _nvrtcProgram {
    char *text, *name;
    bool has_header, compiled;
    f8_emu_bytes log, cubin; /* cubin: an f8_emu_cubin and the object */
};

static const int archs[] = {75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121};
enum { N_ARCHS = sizeof archs / sizeof *archs };

int64_t f8_emulator_compiler_runs(void)
{
    return __atomic_load_n(&f8_emu_compiler_runs, __ATOMIC_RELAXED);
}

const char *nvrtcGetErrorString(nvrtcResult result)
{
    switch (result) {
    case NVRTC_SUCCESS: return "NVRTC_SUCCESS";
    case NVRTC_ERROR_OUT_OF_MEMORY: return "NVRTC_ERROR_OUT_OF_MEMORY";
    case NVRTC_ERROR_PROGRAM_CREATION_FAILURE: return "NVRTC_ERROR_PROGRAM_CREATION_FAILURE";
    case NVRTC_ERROR_INVALID_INPUT: return "NVRTC_ERROR_INVALID_INPUT";
    case NVRTC_ERROR_INVALID_PROGRAM: return "NVRTC_ERROR_INVALID_PROGRAM";
    case NVRTC_ERROR_INVALID_OPTION: return "NVRTC_ERROR_INVALID_OPTION";
    case NVRTC_ERROR_COMPILATION: return "NVRTC_ERROR_COMPILATION";
    case NVRTC_ERROR_INTERNAL_ERROR: return "NVRTC_ERROR_INTERNAL_ERROR";
    default: return "NVRTC_ERROR unknown";
    }
}

static nvrtcResult fails(const char *function)
{
    int code = NVRTC_ERROR_INTERNAL_ERROR;
    return f8_emu_fails(function, &code) ? code : NVRTC_SUCCESS;
}
#define F8_EMU_MAY_FAIL()                           \
    do {                                            \
        const nvrtcResult asked_ = fails(__func__); \
        if (asked_)                                 \
            return asked_;                          \
    } while (0)

nvrtcResult nvrtcVersion(int *major, int *minor)
{
    F8_EMU_MAY_FAIL();
    *major = F8_EMU_TOOLKIT_MAJOR;
    *minor = F8_EMU_TOOLKIT_MINOR;
    return NVRTC_SUCCESS;
}

nvrtcResult nvrtcGetNumSupportedArchs(int *count)
{
    F8_EMU_MAY_FAIL();
    *count = N_ARCHS;
    return NVRTC_SUCCESS;
}

nvrtcResult nvrtcGetSupportedArchs(int *out)
{
    F8_EMU_MAY_FAIL();
    memcpy(out, archs, sizeof archs);
    return NVRTC_SUCCESS;
}

/* Of the headers given only fp8c.cuh is known: it is replaced. */
nvrtcResult nvrtcCreateProgram(nvrtcProgram *program, const char *text, const char *name,
                               int n_headers, const char *const *headers,
                               const char *const *header_names)
{
    F8_EMU_MAY_FAIL();
    if (!program || !text || n_headers < 0 || (n_headers && (!headers || !header_names)))
        return NVRTC_ERROR_INVALID_INPUT;
    nvrtcProgram p = calloc(1, sizeof *p);
    if (!p)
        return NVRTC_ERROR_OUT_OF_MEMORY;
    p->text = strdup(text);
    p->name = strdup(name ? name : "default_program");
    for (int i = 0; i < n_headers; i++) {
        if (strcmp(header_names[i], "fp8c.cuh") != 0) {
            nvrtcDestroyProgram(&p);
            return NVRTC_ERROR_INVALID_INPUT;
        }
        p->has_header = true;
    }
    *program = p;
    return NVRTC_SUCCESS;
}

nvrtcResult nvrtcDestroyProgram(nvrtcProgram *program)
{
    if (!program || !*program)
        return NVRTC_ERROR_INVALID_PROGRAM;
    free((*program)->text);
    free((*program)->name);
    free((*program)->log.p);
    free((*program)->cubin.p);
    free(*program);
    *program = NULL;
    return NVRTC_SUCCESS;
}

static void set_log(nvrtcProgram p, const char *format, const char *what)
{
    free(p->log.p);
    p->log = (f8_emu_bytes){NULL, 0};
    const int n = asprintf(&p->log.p, format, what);
    p->log.n = n > 0 ? (size_t)n : 0;
}

/* "sm_90a" of an option's value; suffixes as the toolkit has them. */
static bool known_arch(const char *arch)
{
    char *end;
    if (strncmp(arch, "sm_", 3) != 0)
        return false;
    const long sm = strtol(arch + 3, &end, 10);
    bool known = false;
    for (int i = 0; i < N_ARCHS; i++)
        known = known || archs[i] == sm;
    return known && (!*end || (sm >= 90 && strcmp(end, "a") == 0) ||
                     (sm >= 100 && strcmp(end, "f") == 0));
}

/* The architecture, or NULL with the reason in the log. */
static const char *check_options(nvrtcProgram p, int n, const char *const *option)
{
    static const char *const harmless[] = {
        "--ftz=false", "--prec-div=true", "--prec-sqrt=true", "--std=c++17",
        "-default-device", "--ptxas-options=-v", "--no-cache", "--generate-line-info", "-lineinfo",
        "--Ofast-compile=mid"};
    static const char arch_option[] = "--gpu-architecture=";
    const char *arch = NULL;
    bool fmad = true;
    for (int i = 0; i < n; i++) {
        bool known = false;
        for (size_t j = 0; j < sizeof harmless / sizeof *harmless; j++)
            known = known || strcmp(option[i], harmless[j]) == 0;
        if (strncmp(option[i], arch_option, sizeof arch_option - 1) == 0) {
            arch = option[i] + sizeof arch_option - 1;
            known = known_arch(arch);
        } else if (strcmp(option[i], "--fmad=false") == 0) {
            fmad = false;
            known = true;
        }
        if (!known) {
            set_log(p, "nvrtc: error: invalid value or option: %s\n", option[i]);
            return NULL;
        }
    }
    if (fmad)
        set_log(p, "emulated NVRTC: error: the texts' meaning needs %s\n", "--fmad=false");
    else if (!arch)
        set_log(p, "emulated NVRTC: error: %s must be given\n", arch_option);
    return fmad ? NULL : arch;
}

/* What ptxas would report, in its form: a line of names and figures per kernel, found by their
 * macro. */
static void add_report(nvrtcProgram p, const char *arch)
{
    char *report = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&report, &n);
    if (!f)
        return;
    fputs("ptxas info    : emulated: no figure below is a real one\n", f);
    for (const char *at = strstr(p->text, "F8_KERNEL("); at; at = strstr(at + 1, "F8_KERNEL(")) {
        const char *name = at + strlen("F8_KERNEL(");
        const int length = (int)strcspn(name, ", )");
        fprintf(f, "ptxas info    : Compiling entry function '%.*s' for '%s'\n", length, name,
                arch);
        fprintf(f, "ptxas info    : Function properties for %.*s\n", length, name);
        fputs("    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
              "ptxas info    : Used 64 registers, used 1 barriers, 0 bytes smem\n", f);
    }
    fclose(f);
    free(p->log.p);
    p->log = (f8_emu_bytes){report, n};
}

nvrtcResult nvrtcCompileProgram(nvrtcProgram p, int n_options, const char *const *options)
{
    F8_EMU_MAY_FAIL();
    if (!p)
        return NVRTC_ERROR_INVALID_PROGRAM;
    const char *arch = check_options(p, n_options, options);
    if (!arch)
        return NVRTC_ERROR_INVALID_OPTION;
    f8_emu_bytes object = {NULL, 0};
    free(p->log.p);
    p->log = (f8_emu_bytes){NULL, 0};
    nvrtcResult r = f8_emu_compile(p->text, p->name, p->has_header, &object, &p->log);
    free(p->cubin.p);
    p->cubin = (f8_emu_bytes){NULL, 0};
    p->compiled = false;
    if (r == NVRTC_SUCCESS) {
        f8_emu_cubin head = {.magic = F8_EMU_MAGIC,
                             .toolkit = F8_EMU_TOOLKIT_MAJOR * 1000 + F8_EMU_TOOLKIT_MINOR * 10,
                             .size = object.n,
                             .hash = f8_emu_hash(0, object.p, object.n)};
        snprintf(head.arch, sizeof head.arch, "%s", arch);
        p->cubin.p = malloc(sizeof head + object.n);
        if (p->cubin.p) {
            memcpy(p->cubin.p, &head, sizeof head);
            memcpy(p->cubin.p + sizeof head, object.p, object.n);
            p->cubin.n = sizeof head + object.n;
            p->compiled = true;
            add_report(p, arch);
        } else {
            r = NVRTC_ERROR_OUT_OF_MEMORY;
        }
    }
    free(object.p);
    return r;
}

/* ---- results: sizes of texts count the NUL ---- */

static const char ptx_note[] = "// emulated: the text itself, not PTX\n";

nvrtcResult nvrtcGetPTXSize(nvrtcProgram p, size_t *bytes)
{
    F8_EMU_MAY_FAIL();
    if (!p || !p->compiled)
        return NVRTC_ERROR_INVALID_PROGRAM;
    *bytes = sizeof ptx_note + strlen(p->text);
    return NVRTC_SUCCESS;
}

nvrtcResult nvrtcGetPTX(nvrtcProgram p, char *ptx)
{
    F8_EMU_MAY_FAIL();
    if (!p || !p->compiled)
        return NVRTC_ERROR_INVALID_PROGRAM;
    strcpy(stpcpy(ptx, ptx_note), p->text);
    return NVRTC_SUCCESS;
}

nvrtcResult nvrtcGetCUBINSize(nvrtcProgram p, size_t *bytes)
{
    F8_EMU_MAY_FAIL();
    if (!p || !p->compiled)
        return NVRTC_ERROR_INVALID_PROGRAM;
    *bytes = p->cubin.n;
    return NVRTC_SUCCESS;
}

nvrtcResult nvrtcGetCUBIN(nvrtcProgram p, char *cubin)
{
    F8_EMU_MAY_FAIL();
    if (!p || !p->compiled)
        return NVRTC_ERROR_INVALID_PROGRAM;
    memcpy(cubin, p->cubin.p, p->cubin.n);
    return NVRTC_SUCCESS;
}

nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram p, size_t *bytes)
{
    F8_EMU_MAY_FAIL();
    if (!p)
        return NVRTC_ERROR_INVALID_PROGRAM;
    *bytes = p->log.n + 1;
    return NVRTC_SUCCESS;
}

nvrtcResult nvrtcGetProgramLog(nvrtcProgram p, char *log)
{
    F8_EMU_MAY_FAIL();
    if (!p)
        return NVRTC_ERROR_INVALID_PROGRAM;
    if (p->log.n)
        memcpy(log, p->log.p, p->log.n);
    log[p->log.n] = '\0';
    return NVRTC_SUCCESS;
}
