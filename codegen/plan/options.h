/* What a build is asked for, and what it says of itself: types that callers of codegen/build.h
 * share with the targets. */
#ifndef F8_CODEGEN_BUILD_OPTIONS_H
#define F8_CODEGEN_BUILD_OPTIONS_H

#include "codegen/kernel/kernel.h"
#include "ir/base/log.h"
#include "ir/base/progress.h"
#include "ir/target.h"
#include "runtime/plan.h"

/* CUDA: what ptxas says of a kernel. */
typedef struct f8_cuda_report {
    int64_t registers; /* of a thread */
    int64_t shared;    /* bytes of a block, without dynamic ones */
    int64_t stack;     /* bytes of a thread: its kernel's and of functions not inlined */
    int64_t spill_stores, spill_loads; /* bytes */
} f8_cuda_report;

typedef struct f8_build_kernel {
    const char *name; /* of the first group that needs it */
    const char *text; /* its description */
    uint64_t hash;
    uint32_t launches; /* steps that run it, over all functions */
    double seconds;    /* to print and compile it */
    /* CUDA: one entry for each __global__ function */
    const char *symbol;
    const char *cuda;          /* its part of the image's text */
    uint32_t image;            /* index of the plan's */
    uint32_t threads, shared;  /* of a block; bytes of dynamic shared memory */
    bool multi;                /* many tensors in one launch */
    bool reported;             /* the compiler's log has: */
    f8_cuda_report report;
} f8_build_kernel;

/* CUDA: what one image of the plan was made from, in the build's arena. */
typedef struct f8_build_image {
    const char *cuda; /* the text given to NVRTC */
    const char *ptx;  /* NULL unless options.want_ptx */
    const char *log;  /* the compiler's messages and ptxas' report */
} f8_build_image;

typedef struct f8_build_stats {
    f8_build_kernel *kernel; /* in the build's arena */
    uint32_t n_kernels;
    f8_build_image *image; /* CUDA */
    uint32_t n_images;     /* the plan's, or with text_only what it would have */
    struct f8_step_builder **builders; /* for tests: by function and step (codegen/plan/parts.h) */
    double describe, compile, link; /* seconds; compile is elapsed time over all threads */
    int64_t code_bytes;
    uint32_t n_cached; /* kernels found in the cache, or made meanwhile by another process */
} f8_build_stats;

/* Who does attention. A number that is not the table's own is the algorithm's id. */
typedef enum f8_attention_algorithm {
    F8_ATTENTION_TABLE, /* as codegen/cuda/attention_choice.c says */
    F8_ATTENTION_OWN,   /* our kernels */
    F8_ATTENTION_CUDNN,
} f8_attention_algorithm;

/* A problem that there are several ways to do: one of gemm and kernel. */
typedef struct f8_build_problem {
    const char *text; /* runtime/base/gemm_desc.h, codegen/kernel/config.h */
    const char *name; /* of the step */
    const f8_gemm_desc *gemm;
    const f8_kernel *kernel; /* without a variant */
    const f8_target *target;
} f8_build_problem;

/* Asked by the thread that builds, once for each GEMM and each launch of a row program, in order.
 */
typedef struct f8_build_choices {
    /* The text of a candidate; NULL, or a text that is none of a candidate: the model's. */
    const char *(*find)(void *user, const f8_build_problem *problem);
    void *user;
} f8_build_choices;

typedef struct f8_build_options {
    const f8_target *target;  /* NULL: the CPU */
    const char *cpu;          /* NULL or "native": this machine; else an LLVM CPU name */
    const char *llvm;         /* path of LLVM's library; NULL: the usual names */
    int threads;              /* that compile; 0: 2 */
    const f8_build_choices *choices; /* NULL: the model's */
    uint32_t gemm_algorithm;  /* CPU: that of every GEMM; AUTO: as `gemms` has it */
    const struct f8_gemm_lib *gemms; /* records its choice of algorithm in GEMM steps; NULL: AUTO */
    const f8_allocator *
        allocator; /* for memory that ends with the call; from several threads; NULL: the default */
    struct f8_cuda
        *cuda; /* CUDA targets (runtime/cuda/device.h): whose NVRTC compiles; needs no device */
    f8_attention_algorithm attention; /* CUDA; one that can't be had is an error */
    bool want_ptx;         /* CUDA: keep the PTX, in stats->image; all kernels are then one image */
    uint32_t batch;        /* CUDA: kernels compiled together as one image; 0: by length of text */
    bool text_only;        /* CUDA: stop at CUDA C, which needs no NVRTC; the plan has no images */
    bool no_code;          /* stop once all steps are laid out: sizes are what they will be, and
                            * nothing can run. Kernels have no phases on CUDA, and phases without
                            * code on the CPU; needs no LLVM, no NVRTC */
    int64_t arena_most;    /* CUDA: merged launches, which take room in the arena, take no more than
                            * this leaves; 0: as much as they like */
    bool unmerged;         /* CUDA, for tests: a launch for every step, in the program's order */
    f8_build_stats *stats; /* filled when not NULL */
    struct f8_cache *cache; /* where kernels are looked for and kept (codegen/cache/cache.h); NULL:
                               all are made */
    double cache_wait;      /* seconds from the build's beginning for which what other processes are
                             * making is left to them; 0: 20 */
    const f8_log *log;     /* may be NULL; each kernel, from any thread that compiles */
    const f8_progress *progress; /* may be NULL; asked by the calling thread alone */
    /* Texts for people to look at, a file each: descriptions, LLVM IR, CUDA C. From any thread that
     * compiles; on the CPU nothing is then taken from the cache. NULL: none are wanted */
    void (*dump)(void *user, const char *file, const char *text);
    void *dump_user;
} f8_build_options;

#endif
