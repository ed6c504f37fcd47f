/* The GPU's libraries as components, and whether they fit together: see component.h. */
#include <stdio.h>
#include <string.h>

#include "runtime/probe/component.h"
#include "runtime/cuda/internal.h"
#include "runtime/cuda/cudnn.h"

/* What each is for, where it comes from, and patterns of its other versions. Names of packages:
 * Python wheels of NVIDIA's, its apt repository, Debian's non-free. */
static const struct {
    const char *enables, *get, *others;
} about[F8_CUDA_N_LIBRARIES] = {
    [F8_CUDA_DRIVER] =
        {"running on a GPU",
         "Debian package nvidia-driver (non-free), or cuda-drivers of NVIDIA's apt "
         "repository; in a container: NVIDIA's container toolkit (docker run --gpus all)",
         NULL},
    [F8_CUDA_NVRTC] = {"compiling for a GPU, which need not be there",
                       "pip: nvidia-cuda-nvrtc (CUDA 13) or nvidia-cuda-nvrtc-cu12; NVIDIA's apt "
                       "repository: cuda-nvrtc-13-0 or cuda-nvrtc-12-9",
                       "libnvrtc.so.[0-9]*"},
    [F8_CUDA_CUBLASLT] =
        {"GEMMs on a GPU",
         "pip: nvidia-cublas (CUDA 13) or nvidia-cublas-cu12; NVIDIA's apt repository: "
         "libcublas-13-0 or libcublas-12-9",
         "libcublasLt.so.[0-9]*"},
    [F8_CUDA_CUDNN] = {"attention by cuDNN on a GPU; our own kernels do without",
                       "pip: nvidia-cudnn-cu13 or nvidia-cudnn-cu12; NVIDIA's apt repository: "
                       "libcudnn9-cuda-13 or libcudnn9-cuda-12",
                       "libcudnn.so.[0-9]*"},
    [F8_CUDA_NCCL] =
        {"training on several GPUs",
         "pip: nvidia-nccl-cu13 or nvidia-nccl-cu12; NVIDIA's apt repository: libnccl2", NULL},
    [F8_CUDA_NVML] = {"what doctor says of a GPU's state",
                      "part of the NVIDIA driver; Debian package libnvidia-ml1 (non-free)", NULL},
};

static f8_component *add_library(f8_components *all, f8_cuda *cuda, f8_cuda_library_id id)
{
    /* Told before it is loaded, in case it does not come back. */
    static const char *const names[] = {
#define X(e, name, ...) name,
        F8_CUDA_LIBRARIES(X)
#undef X
    };
    f8_component *c = f8_component_add(all, "cuda", names[id], about[id].enables, about[id].get);
    f8_cuda_library l;
    const char *const others[] = {about[id].others, NULL};
    f8_cuda_describe(cuda, (int)id, &l);
    c->path = l.path;
    c->version = l.version;
    c->major = l.major;
    if (!l.why)
        f8_component_ok(c);
    f8_component_copies(all, c, l.sonames, f8_cuda_looked_in(cuda),
                        about[id].others ? others : NULL, l.refused);
    if (l.path && l.why)
        f8_component_fail(c, F8_COMPONENT_REFUSED, l.why);
    return c;
}

/* ---- NVRTC's builtins: a library of its own, which NVRTC loads at its first compilation ---- */

static void add_builtins(f8_components *all, f8_cuda *cuda, const f8_component *nvrtc,
                         const f8_cuda_trial *trial)
{
    f8_component *c = f8_component_add(all, "cuda", "NVRTC builtins",
                                       "NVRTC, which loads them when it first compiles",
                                       "they come with NVRTC, in the same folder");
    f8_nvrtc_result r;
    f8_diag d = {0};
    if (nvrtc->state == F8_COMPONENT_MISSING || !nvrtc->path || !nvrtc->version) {
        c->problem = "there is no NVRTC that would load them";
        return;
    }
    const char *name = f8_arena_printf(all->arena, "libnvrtc-builtins.so.%s", nvrtc->version);
    const char *folder = f8_arena_strndup(
        all->arena, nvrtc->path,
        (size_t)(strrchr(nvrtc->path, '/') ? strrchr(nvrtc->path, '/') - nvrtc->path : 0));
    const char *const names[] = {name, NULL}, *const folders[] = {folder, "", NULL};
    if (name && folder)
        c->places = f8_component_places(all->arena, names, folders);
    const f8_status status =
        f8_cuda_compile(cuda, trial->text, "trial.cu", trial->header, trial->header_name, "sm_90",
                        (f8_nvrtc_options){0}, all->arena, &r, &d);
    c->path = f8_dynlib_mapped("libnvrtc-builtins.so", NULL, all->arena);
    if (status == F8_OK) {
        f8_component_ok(c);
        c->version = c->path ? strstr(strrchr(c->path, '/'), ".so.") : NULL;
        c->version = c->version ? c->version + 4 : NULL;
        c->major = nvrtc->major;
        c->note = c->path ? NULL : "none was loaded, and none was needed";
    } else {
        const char *log = status == F8_ERR_LIBRARY ? r.log : NULL; /* else the message has it */
        f8_component_fail(c, c->path ? F8_COMPONENT_REFUSED : F8_COMPONENT_MISSING,
                          f8_arena_printf(all->arena, "NVRTC compiles nothing: %s%s%s", d.text,
                                          log && *log ? ": " : "", log ? log : ""));
    }
}

/* ---- whether they go together ---- */

static void mismatched(f8_component *c, bool usable, const char *problem)
{
    if (c->state != F8_COMPONENT_OK)
        return;
    f8_component_fail(c, F8_COMPONENT_MISMATCHED, problem);
    c->usable = usable;
}

static void check_cudnn(f8_components *all, f8_cuda *cuda, f8_component *cudnn,
                        const f8_component *nvrtc)
{
    size_t (*built_for)(void); /* the CUDA version: 13000 */
    void *symbol = f8_dynlib_find(&cuda->library[F8_CUDA_CUDNN].file, "cudnnGetCudartVersion");
    memcpy(&built_for, &symbol, sizeof symbol);
    f8_cudnn table;
    f8_diag d = {0};
    if (cudnn->state != F8_COMPONENT_OK)
        return;
    if (f8_cudnn_open(&cuda->library[F8_CUDA_CUDNN].file, 0, &table, &d) != F8_OK) {
        f8_component_fail(cudnn, F8_COMPONENT_VERSION, f8_arena_strdup(all->arena, d.text));
        return;
    }
    const int major = built_for ? (int)(built_for() / 1000) : 0;
    if (major && nvrtc->major && major != nvrtc->major)
        mismatched(cudnn, false,
                   f8_arena_printf(all->arena,
                                   "cuDNN %s is built for CUDA %d, and the NVRTC found is %s "
                                   "(%s), which it can't use",
                                   cudnn->version, major, nvrtc->version, nvrtc->path));
}

static void check_together(f8_components *all, f8_cuda *cuda, f8_component *const *row)
{
    static const f8_cuda_library_id served[] = {F8_CUDA_NVRTC, F8_CUDA_CUBLASLT};
    f8_component *nvrtc = row[F8_CUDA_NVRTC], *lt = row[F8_CUDA_CUBLASLT];
    for (size_t i = 0; i < sizeof served / sizeof *served; i++) {
        f8_diag d = {0};
        if (row[F8_CUDA_DRIVER]->state == F8_COMPONENT_OK &&
            f8_cuda_served(cuda, served[i], &d) != F8_OK)
            mismatched(row[served[i]], false, f8_arena_strdup(all->arena, d.text));
    }
    if (nvrtc->version && lt->version && nvrtc->major != lt->major)
        mismatched(lt, true,
                   f8_arena_printf(all->arena,
                                   "cuBLASLt %s (%s) and NVRTC %s (%s) are parts of two toolkits: "
                                   "point FP8C_CUDA_PATH or CUDA_HOME at one",
                                   lt->version, lt->path, nvrtc->version, nvrtc->path));
    check_cudnn(all, cuda, row[F8_CUDA_CUDNN], nvrtc);
}

void f8_components_cuda(f8_components *all, f8_cuda *cuda, const f8_cuda_trial *trial)
{
    f8_component *row[F8_CUDA_N_LIBRARIES];
    for (int i = 0; i < F8_CUDA_N_LIBRARIES; i++) {
        row[i] = add_library(all, cuda, (f8_cuda_library_id)i);
        if (i == F8_CUDA_NVRTC)
            add_builtins(all, cuda, row[i], trial);
    }
    check_together(all, cuda, row);
}
