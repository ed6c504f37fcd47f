/* What a build is asked for, and the statistics that it returns. The callers of codegen/build.h and
 * the targets share these types. */
#ifndef F8_CODEGEN_BUILD_OPTIONS_H
#define F8_CODEGEN_BUILD_OPTIONS_H

#include "codegen/kernel/kernel.h"
#include "ir/base/log.h"
#include "ir/base/progress.h"
#include "ir/target.h"
#include "runtime/plan.h"

/* CUDA: what ptxas reports of a kernel. */
typedef struct f8_cuda_report {
    int64_t registers; /* per thread */
    int64_t shared;    /* bytes per block, without dynamic shared memory */
    int64_t stack;     /* bytes per thread, of the kernel and of the functions it calls */
    int64_t spill_stores, spill_loads; /* bytes */
} f8_cuda_report;

typedef struct f8_build_kernel {
    const char *name; /* of the first group that uses it */
    const char *text; /* its description */
    uint64_t hash;
    uint32_t launches; /* number of steps that run it, over all functions */
    double seconds;    /* to print and compile it */
    /* CUDA: one entry for each __global__ function */
    const char *symbol;
    const char *cuda;          /* its part of the text of the image */
    uint32_t image;            /* its index among the images of the plan */
    uint32_t threads, shared;  /* threads of a block; bytes of dynamic shared memory */
    uint32_t bulk;             /* bytes of asynchronous copies a block has under way; 0: it loads */
    bool multi;                /* a multi-tensor launch */
    bool reported;             /* `report` was found in the log of the compiler */
    f8_cuda_report report;
} f8_build_kernel;

/* CUDA: what one image of the plan was made from. CPU, with want_texts: all of its kernels. In the
 * arena of the build. */
typedef struct f8_build_image {
    const char *llvm; /* CPU: the IR of all kernels, one module, as LLVM prints it */
    const char *cuda; /* the text given to NVRTC, with fp8c.cuh beside it */
    const char *ptx;  /* NULL unless options.want_texts */
    const char *log;  /* the messages of the compiler, and the report of ptxas */
} f8_build_image;

typedef struct f8_build_stats {
    f8_build_kernel *kernel; /* in the build's arena */
    uint32_t n_kernels;
    f8_build_image *image;
    uint32_t n_images; /* CUDA: those of the plan, with text_only those that it would have */
    struct f8_step_builder **builders; /* for tests: by function and step (codegen/plan/parts.h) */
    double describe, compile, link; /* seconds; compile is elapsed time, not the sum over threads */
    int64_t code_bytes;
    /* kernels that were in the cache, or that another process made during the build */
    uint32_t n_cached;
} f8_build_stats;

/* Which implementation computes attention. Every number but TABLE's is the id of an algorithm. */
typedef enum f8_attention_algorithm {
    F8_ATTENTION_TABLE, /* as codegen/cuda/attention_choice.c decides */
    F8_ATTENTION_OWN,   /* our kernels */
    F8_ATTENTION_CUDNN,
} f8_attention_algorithm;

/* A problem that the tuner can solve in several ways: either `gemm` or `kernel` is set. */
typedef struct f8_build_problem {
    const char *text; /* runtime/base/gemm_desc.h, codegen/kernel/config.h */
    const char *name; /* of the step */
    const f8_gemm_desc *gemm;
    const f8_kernel *kernel; /* without a configuration */
    const f8_target *target;
} f8_build_problem;

/* Called by the thread that builds, once for each GEMM and each launch of a row kernel, in
 * order. */
typedef struct f8_build_choices {
    /* Returns the text of a candidate. NULL, or a text that names no candidate: the model's choice
     * is taken. *source: where the text comes from. */
    const char *(*find)(void *user, const f8_build_problem *problem, f8_choice_source *source);
    void *user;
} f8_build_choices;

typedef struct f8_build_options {
    const f8_target *target;  /* NULL: the CPU */
    const char *cpu;          /* NULL or "native": this machine; else an LLVM CPU name */
    const char *llvm;         /* path of LLVM's library; NULL: the usual names */
    int threads;              /* number of threads that compile; 0: 2 */
    const f8_build_choices *choices; /* NULL: the model's choices */
    uint32_t gemm_algorithm;  /* CPU: the algorithm of every GEMM; AUTO: `gemms` decides */
    /* its choice of algorithm is recorded in GEMM steps; NULL: AUTO */
    const struct f8_gemm_lib *gemms;
    /* for memory that is freed before the call returns; used from several threads; NULL: the
     * default */
    const f8_allocator *allocator;
    /* CUDA: its NVRTC compiles (runtime/cuda/device.h); no device is needed */
    struct f8_cuda *cuda;
    /* CUDA; an implementation that is not available is an error */
    f8_attention_algorithm attention;
    /* CUDA, sm_90 and later: kernels may be launched before the one ahead has ended, and wait for
     * it themselves (f8_plan.dependent_launch) */
    bool dependent_launch;
    /* Keep LLVM IR or PTX in stats->image; on CUDA all kernels are then in one image */
    bool want_texts;
    /* CUDA: number of kernels compiled as one image; 0: decided by the length of their texts */
    uint32_t batch;
    /* Stop after printing CUDA C, which needs no NVRTC, or LLVM IR; the plan then has no code */
    bool text_only;
    /* Stop once all steps are laid out. Sizes are final, but nothing can run: on CUDA kernels have
     * no phases, on the CPU phases have no code. Needs neither LLVM nor NVRTC. */
    bool no_code;
    /* With no_code: only the bytes that the plan takes are wanted. Its kernels may be nameless. */
    bool only_bytes;
    /* CUDA: merged launches take no more bytes of the arena than would bring it to this size; 0: no
     * limit */
    int64_t arena_most;
    /* CUDA, for a witness and for tests: no merging; one launch for each step, in the original
     * order */
    bool unmerged;
    f8_build_stats *stats; /* filled if not NULL */
    /* kernels are looked for and kept here (codegen/cache/cache.h); NULL: all are compiled */
    struct f8_cache *cache;
    /* seconds from the start of the build during which it waits for kernels that other processes
     * compile; 0: 20 */
    double cache_wait;
    const f8_log *log; /* may be NULL; gets a line for each kernel, from any thread that compiles */
    const f8_progress *progress; /* may be NULL; called by the calling thread only */
    /* Receives texts for people to read, one file each: descriptions, LLVM IR, CUDA C. Called from
     * any thread that compiles. On the CPU, kernels are then not taken from the cache. NULL: no
     * texts are wanted. */
    void (*dump)(void *user, const char *file, const char *text);
    void *dump_user;
} f8_build_options;

#endif
