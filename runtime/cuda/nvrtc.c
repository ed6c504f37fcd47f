/* CUDA C text to machine code, in memory, without a device: see device.h. */
#include "runtime/cuda/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* No contraction, no approximate division or root, no flushing of subnormals: the IR decides what
 * is rounded, and how. ptxas' report has registers, spills and stack. */
static const char *const fixed_options[] = {
    "--fmad=false", "--ftz=false",     "--prec-div=true",    "--prec-sqrt=true",
    "--std=c++17",  "-default-device", "--ptxas-options=-v",
};
enum { N_FIXED = sizeof fixed_options / sizeof *fixed_options };

/* Where there is a driver, NVRTC caches what it compiled. A text from that cache has no log, so no
 * report of its registers. */
static const char no_cache[] = "--no-cache";
enum { CACHES_SINCE = 12090 };

static const char fast[] = "--Ofast-compile=mid";
enum { FAST_SINCE = 12090 };

f8_status f8_cuda_compiler(f8_cuda *c, f8_arena *arena, const char **out, f8_diag *diag)
{
    *out = NULL;
    F8_TRY(f8_cuda_load(c, F8_CUDA_NVRTC, diag));
    struct stat s = {0}; /* two files may both call themselves 13.0 and differ, so the size of the
                            file counts too */
    (void)stat(c->library[F8_CUDA_NVRTC].file.name, &s);
    const char *text = f8_arena_printf(arena, "nvrtc %s, a file of %lld bytes\n",
                                       c->library[F8_CUDA_NVRTC].version, (long long)s.st_size);
    for (int i = 0; i < N_FIXED && text; i++)
        text = f8_arena_printf(arena, "%s%s\n", text, fixed_options[i]);
    *out = text;
    return f8_arena_status(arena, diag);
}

static f8_status rtc_check(const f8_cuda *c, nvrtcResult r, const char *call, const char *name,
                           f8_diag *diag)
{
    if (r == NVRTC_SUCCESS)
        return F8_OK;
    const char *text = c->nvrtc.nvrtcGetErrorString(r);
    return f8_fail(diag, r == NVRTC_ERROR_OUT_OF_MEMORY ? F8_ERR_MEMORY : F8_ERR_LIBRARY,
                   F8_NOWHERE, "%s of '%s': %s", call, name, text ? text : "unknown error");
}

/* Fails if NVRTC does not know the architecture; its own message would only call an option invalid.
 */
static f8_status check_arch(const f8_cuda *c, const char *arch, f8_arena *arena, f8_diag *diag)
{
    const int wanted = strncmp(arch, "sm_", 3) ? 0 : atoi(arch + 3);
    int n = 0;
    F8_TRY(rtc_check(c, c->nvrtc.nvrtcGetNumSupportedArchs(&n), "nvrtcGetNumSupportedArchs", arch,
                     diag));
    int *known = F8_NEW_ARRAY(arena, int, (size_t)n);
    F8_TRY(f8_arena_status(arena, diag));
    F8_TRY(
        rtc_check(c, c->nvrtc.nvrtcGetSupportedArchs(known), "nvrtcGetSupportedArchs", arch, diag));
    const char *all = "";
    for (int i = 0; i < n && all; i++) {
        if (known[i] == wanted)
            return F8_OK;
        all = f8_arena_printf(arena, "%s%ssm_%d", all, i ? ", " : "", known[i]);
    }
    return f8_fail(diag, F8_ERR_UNSUPPORTED, F8_NOWHERE,
                   "NVRTC %s (%s) can't compile for %s; it knows %s",
                   c->library[F8_CUDA_NVRTC].version, c->library[F8_CUDA_NVRTC].file.name, arch,
                   all ? all : "?");
}

/* Fails with the first error and the lines that show it; the result has the whole log. */
static f8_status report(const char *name, const char *arch, const char *log, f8_diag *diag)
{
    enum { ROOM = 700, LINES = 6 };
    const char *at = strstr(log, "error");
    while (at && at > log && at[-1] != '\n')
        at--;
    if (!at)
        at = log;
    int n = 0;
    for (int lines = 0; at[n] && n < ROOM && lines < LINES; n++)
        lines += at[n] == '\n';
    while (n > 0 && at[n - 1] == '\n')
        n--;
    return f8_fail(diag, F8_ERR_INTERNAL, F8_NOWHERE,
                   "kernel text '%s' does not compile for %s:\n%.*s", name, arch, n,
                   n ? at : "(NVRTC left no message)");
}

static f8_status take_log(const f8_cuda *c, nvrtcProgram p, const char *name, f8_arena *arena,
                          char **out, f8_diag *diag)
{
    size_t bytes = 0;
    F8_TRY(rtc_check(c, c->nvrtc.nvrtcGetProgramLogSize(p, &bytes), "nvrtcGetProgramLogSize", name,
                     diag));
    *out = f8_arena_array(arena, bytes + 1, 1);
    F8_TRY(f8_arena_status(arena, diag));
    return rtc_check(c, c->nvrtc.nvrtcGetProgramLog(p, *out), "nvrtcGetProgramLog", name, diag);
}

static f8_status take_code(const f8_cuda *c, nvrtcProgram p, const char *name, bool want_ptx,
                           f8_arena *arena, f8_nvrtc_result *out, f8_diag *diag)
{
    F8_TRY(rtc_check(c, c->nvrtc.nvrtcGetCUBINSize(p, &out->cubin_size), "nvrtcGetCUBINSize", name,
                     diag));
    out->cubin = f8_arena_array(arena, out->cubin_size, 1);
    F8_TRY(f8_arena_status(arena, diag));
    F8_TRY(
        rtc_check(c, c->nvrtc.nvrtcGetCUBIN(p, (char *)out->cubin), "nvrtcGetCUBIN", name, diag));
    if (!want_ptx)
        return F8_OK;
    size_t bytes = 0;
    F8_TRY(rtc_check(c, c->nvrtc.nvrtcGetPTXSize(p, &bytes), "nvrtcGetPTXSize", name, diag));
    out->ptx = f8_arena_array(arena, bytes + 1, 1);
    F8_TRY(f8_arena_status(arena, diag));
    return rtc_check(c, c->nvrtc.nvrtcGetPTX(p, out->ptx), "nvrtcGetPTX", name, diag);
}

static f8_status compile(const f8_cuda *c, nvrtcProgram p, const char *name, const char *arch,
                         f8_nvrtc_options o, f8_arena *arena, f8_nvrtc_result *out, f8_diag *diag)
{
    char architecture[64];
    snprintf(architecture, sizeof architecture, "--gpu-architecture=%s", arch);
    const char *options[N_FIXED + 3] = {architecture};
    memcpy(options + 1, fixed_options, sizeof fixed_options);
    int n = N_FIXED + 1;
    if (c->nvrtc_version >= CACHES_SINCE)
        options[n++] = no_cache;
    if (o.fast && c->nvrtc_version >= FAST_SINCE)
        options[n++] = fast;
    const nvrtcResult r = c->nvrtc.nvrtcCompileProgram(p, n, options);
    F8_TRY(take_log(c, p, name, arena, &out->log, diag));
    if (r == NVRTC_ERROR_COMPILATION)
        return report(name, arch, out->log, diag);
    F8_TRY(rtc_check(c, r, "nvrtcCompileProgram", name, diag));
    return take_code(c, p, name, o.want_ptx, arena, out, diag);
}

f8_status f8_cuda_knows(f8_cuda *c, const char *arch, f8_arena *arena, f8_diag *diag)
{
    F8_TRY(f8_cuda_load(c, F8_CUDA_NVRTC, diag));
    return check_arch(c, arch, arena, diag);
}

f8_status f8_cuda_compile(f8_cuda *c, const char *text, const char *name, const char *header,
                          const char *header_name, const char *arch, f8_nvrtc_options options,
                          f8_arena *arena, f8_nvrtc_result *out, f8_diag *diag)
{
    *out = (f8_nvrtc_result){0};
    F8_TRY(f8_cuda_load(c, F8_CUDA_NVRTC, diag));
    F8_TRY(check_arch(c, arch, arena, diag));
    nvrtcProgram p = NULL;
    F8_TRY(rtc_check(
        c, c->nvrtc.nvrtcCreateProgram(&p, text, name, header ? 1 : 0, &header, &header_name),
        "nvrtcCreateProgram", name, diag));
    const f8_status status = compile(c, p, name, arch, options, arena, out, diag);
    c->nvrtc.nvrtcDestroyProgram(&p);
    return status;
}
