/* The plan: what the runtime executes. It is flat lists of steps over places, and compiled kernels.
 * It has no graph.
 *
 * A plan is plain data that one arena owns (the compile result's). It can be written to a file and
 * read back. No step is looked up by name: the executor turns places into pointers once, when it is
 * created or when a buffer is bound. */
#ifndef F8_PLAN_H
#define F8_PLAN_H

#include "ir/place.h"
#include "ir/base/type.h"
#include "runtime/base/attention_desc.h"
#include "runtime/base/cpu.h"
#include "runtime/base/gemm_desc.h"
#include "runtime/comm/comm.h"

/* ATTENTION is cuDNN's, on CUDA alone. Attention by our own kernels is a KERNEL step.
 *
 * A COLLECTIVE that travels (f8_collective_travels) only starts where it stands: the next steps run
 * while its bytes are under way. Its WAIT is a later step of the same function. In between no step
 * writes what it sends, and none reads or writes what it receives. */
typedef enum f8_step_kind {
    F8_STEP_KERNEL,
    F8_STEP_GEMM,
    F8_STEP_COPY,
    F8_STEP_ATTENTION,
    F8_STEP_COLLECTIVE,
    F8_STEP_WAIT
} f8_step_kind;
/* What a KERNEL computes, for who looks on. */
typedef enum f8_step_does { F8_DOES_ROWS, F8_DOES_ATTENTION, F8_DOES_COPY } f8_step_does;
enum { F8_STEP_DOES = F8_DOES_COPY + 1 };
enum {
    F8_STEP_KINDS = F8_STEP_WAIT + 1,
    F8_MOST_UNDER_WAY = 64 /* collectives that a function has started and not yet waited for */
};

typedef struct f8_arg {
    f8_space space; /* NONE: a null pointer */
    int32_t port;
    int64_t offset; /* bytes */
} f8_arg;

/* How a phase is launched on CUDA. Its parameters are one block of 64-bit words, passed by value:
 *
 *     one instance:  its n_args pointers, then its n_ints integers
 *     multi:         n_instances, then the same for each instance in turn
 *
 * The last integer of an instance is its number of tasks; in a multi-tensor launch it is the
 * running total of tasks up to and including this instance. Blocks take tasks blockIdx, blockIdx +
 * gridDim, ...: any grid gives the same bits. */
enum { F8_MULTI_WORDS = 512 }; /* room of a multi kernel's parameters, used or not: 4096 bytes */

typedef struct f8_launch {
    const char *symbol; /* of the kernel in plan->image[image]; NULL on the CPU */
    uint32_t image;
    uint32_t threads;     /* a block, one-dimensional */
    uint32_t shared;      /* bytes of dynamic shared memory */
    uint32_t n_instances; /* at least 1 */
    uint32_t n_args, n_ints; /* of one instance */
    bool multi; /* a multi-tensor kernel: many tensors of one shape of work in one launch */
    /* The last argument of its one instance is a word of the constants in which blocks count
     * themselves, so that the last one knows it. It is zero before and after each launch. */
    bool counts;
    /* The number of blocks, never more than tasks. 0: as many as are resident at once; each takes
     * several tasks in turn. Below 0: one block for each task, started in order as others end, for
     * tasks that differ in weight. Above 0: resident blocks, but no more than this, for kernels
     * whose rows should stay in a cache from visit to visit. */
    int64_t max_blocks;
} f8_launch;

typedef struct f8_step_phase {
    uint64_t entry;   /* CPU: offset of the function in the blob */
    int64_t n_tasks;
    int64_t scratch;  /* CPU: bytes per thread */
    uint32_t first_arg, first_int; /* this phase's arguments, within the step's */
    f8_launch launch; /* CUDA */
    uint32_t choice;  /* row kernels: index + 1 into the plan's choices; 0: none */
    int64_t bytes; /* row kernels: of what the step reads and writes, the bytes of this phase. They
                      are not in files: there they are 0 */
} f8_step_phase;

enum { F8_COPY_RANK = F8_MAX_RANK };

typedef struct f8_step {
    f8_step_kind kind; /* which member of the union is meant; nothing reads another */
    f8_step_does does; /* KERNEL */
    const char *name;
    f8_arg *arg; /* KERNEL: as the kernel wants; GEMM: F8_GEMM_ARGS; COPY: from, to;
                  * ATTENTION: q, k, v, o, lse, and backward do, dq, dk, dv;
                  * COLLECTIVE: what is sent, what is received */
    uint32_t n_args, n_ints, n_phases; /* ints, phases: of a KERNEL; others have none */
    int64_t *ints;                     /* run-time extents, phase by phase as arg */
    f8_step_phase *phase;
    union {
        f8_gemm_desc gemm;                 /* GEMM */
        f8_cudnn_attention_desc attention; /* ATTENTION */
        f8_collective_desc collective;     /* COLLECTIVE */
        uint32_t waits; /* WAIT: the index of the collective's step in the function */
        struct {        /* COPY: to[i..] = from[i..] over `size`, strides in elements */
            int32_t rank;
            uint32_t element;
            int64_t size[F8_COPY_RANK], from[F8_COPY_RANK], to[F8_COPY_RANK];
        } copy;
    };
    uint32_t choice; /* GEMM: index + 1 into the plan's choices; 0: none */
    /* CUDA: within a graph a GEMM with `branch` runs in a second stream. It begins after all steps
     * before it that have none, and after the branch's own. A step without it first waits for the
     * branch up to its step `joins` - 1 (0: for none). So does the end of a graph, for all of it.
     */
    bool branch;
    uint32_t joins;
    /* Of which group of the lowered function it is a step: 1 + its position in the order of groups,
     * or 1 + the number of groups + the index of a copy at the end. For who looks on (observer.h).
     * It counts in plans that were built unmerged. It is not in files: there it is 0 */
    uint32_t group;
    /* of distinct inputs and outputs: for listings. Of a GEMM with ADDS, as most of its runs read:
     * where each micro-step has an update, none reads C */
    int64_t bytes_read, bytes_written;
    uint64_t hash;    /* KERNEL: of its description: equal kernels share code */
    int64_t fp8;      /* GEMM: 1 when both operands are FP8 */
    /* seconds, as the passes estimate them, and operations of products, of a GEMM and of attention:
     * for listings; 0: not known, or none */
    double seconds, flops;
} f8_step;

typedef struct f8_plan_port {
    const char *name;
    f8_type type;
    int32_t var; /* >= 0: index into the plan's variables; -1: the caller binds a buffer */
} f8_plan_port;

typedef struct f8_plan_func {
    const char *name;
    f8_step *step;
    uint32_t n_steps;
    f8_plan_port *in, *out;
    uint32_t n_in, n_out;
    int64_t arena_bytes, lower_bound;
    /* 1 + the index of the function that runs in its place while an amax history is empty; 0: there
     * is none. It uses the buffers of this one: at their indices it has the same ports. Where this
     * one's ports carry variables, and behind them, its ports carry some, too. */
    uint32_t first;
} f8_plan_func;

/* The ports of a function's side, 0 its inputs and 1 its outputs. *n: how many. */
static inline f8_plan_port *f8_plan_ports(const f8_plan_func *f, int side, uint32_t *n)
{
    *n = side ? f->n_out : f->n_in;
    return side ? f->out : f->in;
}

/* The function whose buffers function `form` uses, or `form` itself. */
static inline uint32_t f8_plan_base(const f8_plan_func *func, uint32_t n_funcs, uint32_t form)
{
    uint32_t f = 0;
    while (f < n_funcs && func[f].first != form + 1)
        f++;
    return f < n_funcs ? f : form;
}

typedef struct f8_plan_var {
    const char *name;
    f8_type type;
    bool is_param;
    int32_t init;    /* f8_init_kind of ir/ir.h */
    double init_arg;
    int64_t offset;  /* bytes into the state */
    /* 0: every rank has all of it. Else the rows that all ranks have together: `type` is one rank's
     * part, the rows from rank * type.dim[0] on, and zeros behind the last. */
    int64_t rows;
} f8_plan_var;

/* Compiled kernels of a CUDA target: a cubin. */
typedef struct f8_image {
    uint8_t *bytes;
    int64_t size;
} f8_image;

/* Who chose. */
typedef enum f8_choice_source {
    F8_CHOICE_MODEL,
    F8_CHOICE_DATABASE, /* a tuning database */
    F8_CHOICE_TABLE,    /* the table that fp8c ships (runtime/tune/shipped.jsonl) */
    F8_CHOICE_SOURCES
} f8_choice_source;

/* A problem that can be computed in several ways, and the way that was chosen: texts of gemm_desc.h
 * and of codegen/kernel/config.h. The step itself holds what the choice means; this is for listings
 * and the tuner. */
typedef struct f8_plan_choice {
    const char *problem, *candidate;
    f8_choice_source source;
} f8_plan_choice;

typedef struct f8_plan {
    const char *module;
    const char *target; /* "cpu", "cpu:x86-64-v3", "sm_90a" */
    f8_cpu_features needs; /* CPU: what its code uses */
    f8_plan_var *var;
    uint32_t n_vars, n_funcs;
    f8_plan_func *func;
    int64_t state_bytes;
    uint8_t *constants;
    int64_t constants_bytes;
    uint8_t *blob;
    int64_t blob_bytes, blob_code_bytes; /* code first, page aligned, then constants */
    f8_image *image;                     /* CUDA */
    uint32_t n_images;
    uint32_t n_kernels;                  /* distinct kernels */
    int64_t gemm_workspace;              /* CUDA: bytes every GEMM may use */
    int64_t attention_workspace; /* CUDA: bytes that cuDNN's attention is expected to want. They and
                                    the GEMMs' are one allocation */
    f8_plan_choice *choice;
    uint32_t n_choices;
    int32_t ranks; /* how many run it together; 0: one */
    /* CUDA: every kernel waits, before all else, for the one that it is launched behind
     * (F8_DEPENDENT_LAUNCH in codegen/cuda/fp8c.cuh), so it may be launched before that one ends */
    bool dependent_launch;
} f8_plan;

#endif
