/* A build in progress. registry.c has the distinct kernels, the steps and their accesses; steps.c,
 * gemm.c and copy.c turn groups into steps; merge.c and tails.c join steps; waits.c adds waits;
 * branch.c puts GEMMs beside other steps; codegen/cpu/build.c and codegen/cuda/build.c are the two
 * targets; codegen/build.c has the order of all this. Internal to codegen. */
#ifndef F8_CODEGEN_BUILD_PARTS_H
#define F8_CODEGEN_BUILD_PARTS_H

#include "codegen/plan/options.h"
#include "codegen/kernel/attention.h"
#include "ir/base/table.h"
#include "ir/lowered.h"

typedef enum f8_source_kind {
    F8_SOURCE_ROWS,
    F8_SOURCE_ATTENTION,
    F8_SOURCE_SCATTER,
    F8_SOURCE_COPY, /* on targets whose COPY steps copy only contiguous bytes */
} f8_source_kind;

/* The source of one distinct kernel of the build. Two kernels with equal texts are the same
 * kernel. */
typedef struct f8_kernel_source {
    f8_source_kind kind;
    const char *name, *text;
    f8_loc loc; /* of the first group that uses it, in the text of the module */
    uint64_t hash;
    /* the steps that launch it, and how many of them are of forms for an empty amax history
     * (ir/ir.h, f8_is_first_name) */
    uint32_t launches, first_launches;
    const f8_kernel *kernel;     /* ROWS */
    f8_attention_desc attention; /* ATTENTION */
    bool backward;
    f8_dtype dtype;                  /* SCATTER: of dy */
    const struct f8_copy_desc *copy; /* COPY (codegen/cuda/copy.h) */
    double seconds;
    struct f8_cpu_code *cpu;      /* its code on the CPU (codegen/cpu/build.c) */
    /* its code on CUDA (codegen/cuda/build.h): for one tensor, for many */
    struct f8_cuda_code *cuda[2];
} f8_kernel_source;

/* A launch of a kernel by a step. The code is known only when all kernels are compiled. */
typedef struct f8_build_launch {
    uint32_t source; /* the kernel: index into f8_build.source */
    /* index into the arguments and integers of the step, for the first instance */
    uint32_t first_arg, first_int;
    uint32_t n_args, n_ints;       /* of each instance */
    /* instances follow one another in the arguments and integers of the step */
    uint32_t n_instances;
    /* of the arguments of the one instance: how many at the end are its tail's (tails.c) */
    uint32_t tail_args;
    int64_t *n_tasks;              /* by instance; 0: the number that the kernel itself has */
    uint32_t choice;               /* index + 1 of the choice that its phase records; 0: none */
    int64_t bytes; /* row kernels: read and written by the first instance; for listings */
} f8_build_launch;

/* Memory that a step reads or writes: bytes [begin, end). */
typedef struct f8_build_access {
    f8_space space; /* never INPUT or OUTPUT of a variable, which is STATE */
    int32_t port;
    int64_t begin, end;
    bool write;
    bool whole;    /* every byte of [begin, end) is read or written */
    bool adds;     /* adds to what is there, so it also reads */
    /* index + 1 of the argument of the step that says where the bytes are; 0 if they must lie where
     * the memory pass put them, as matrices of GEMMs do (rename.c) */
    uint32_t arg;
    uint32_t temp; /* index + 1 of the temporary that it accesses (rename.c); 0: none */
    f8_ref value;  /* for messages; 0: unknown */
    /* Which of these bytes it accesses: runs of `width` bytes, `pitch` bytes from one to the next.
     * pitch 0: one run. */
    int64_t width, pitch;
} f8_build_access;

/* A step under construction: what is known of it besides the f8_step, until there is code. */
typedef struct f8_step_builder {
    f8_build_launch *launch; /* in the order in which they run, a barrier between two */
    f8_build_access *access;
    /* by instance, then of the tail if there is one: the index that its step had before merging */
    uint32_t *origin;
    uint32_t n_launches, n_accesses, n_origins;
    size_t launch_room, access_room;
} f8_step_builder;

typedef struct f8_build f8_build;

typedef struct f8_copy_axes { /* to[i..] = from[i..] over size, strides in elements */
    int32_t rank;
    int64_t element; /* bytes */
    int64_t size[F8_COPY_RANK], from[F8_COPY_RANK], to[F8_COPY_RANK];
} f8_copy_axes;

typedef struct f8_copy_kernel { /* the kernel of a strided copy; its arguments: from, to */
    f8_kernel_source source;
    int64_t ints[3 * F8_COPY_RANK + 4]; /* three for each axis, and up to four more */
    uint32_t n_ints;
    int64_t n_tasks;
} f8_copy_kernel;

/* What a target supplies. */
typedef struct f8_build_target {
    bool split_phases; /* each phase of a row kernel is a step */
    /* Called first: checks that what the target needs is there. NULL: nothing is needed. */
    f8_status (*begin)(f8_build *b);
    int64_t (*rows_tasks)(const f8_build *b, const f8_kernel *k, int64_t extent);
    int64_t (*scatter_tasks)(int64_t positions, int64_t columns);
    /* Refuses attention that the target cannot do. NULL: compiling refuses it. */
    f8_status (*check_attention)(f8_build *b, f8_ref r, const f8_attention_desc *d);
    /* Whether a library computes this attention, by the options or the table. NULL: never. */
    bool (*attention_by_library)(const f8_build *b, const f8_attention_desc *d, bool backward);
    /* Describes the problem for the library, or refuses it. */
    f8_status (*library_attention)(f8_build *b, f8_ref r, const f8_attention_desc *d, bool backward,
                                   f8_cudnn_attention_desc *out);
    /* Bytes of the arena that the kernel gets as its last argument. NULL: there is no such
     * argument. */
    int64_t (*attention_workspace)(const f8_attention_desc *d, bool backward);
    /* Chooses the algorithm of a GEMM, or refuses it by the name of its linear. */
    f8_status (*gemm)(f8_build *b, f8_ref r, f8_gemm_desc *d);
    /* Makes the kernel of a copy that is not contiguous, with its run-time integers. NULL: COPY
     * steps can do it. */
    f8_status (*copy)(f8_build *b, const f8_place *from, const f8_place *to,
                      const f8_copy_axes *axes, f8_copy_kernel *out);
    /* Checks the steps of the function just built. Steps whose tasks access the same bytes are
     * refused: run in any order, they would not give the result of running them in sequence. NULL:
     * no check. */
    f8_status (*check_steps)(f8_build *b);
    /* The most instances that one launch of this kernel can have. NULL: 1. */
    uint32_t (*most_instances)(const f8_kernel_source *u);
    /* Whether every vector that kernel k accesses is aligned in a launch with these arguments and
     * integers, so that a kernel for such launches alone may be used. NULL: the target has no such
     * kernels. */
    bool (*is_aligned)(const f8_build *b, const f8_kernel *k, const f8_arg *arg,
                       const int64_t *ints);
    /* Whether a launch of kernel k can end with the work of `tail`, whose domain is one row. NULL:
     * none can. */
    bool (*takes_tail)(const f8_kernel *k, const f8_kernel *tail);
    f8_status (*compile)(f8_build *b); /* compiles all kernels */
    /* Called instead with options.no_code: the sizes of all phases. NULL: there are no phases
     * then. */
    f8_status (*size)(f8_build *b);
    /* Fills in the phases of a step, once all kernels are compiled. */
    f8_status (*finish)(f8_build *b, f8_step *s, const f8_step_builder *builder);
    f8_status (*fill_stats)(f8_build *b, f8_build_stats *stats);
} f8_build_target;

struct f8_build {
    const f8_module *module;
    const f8_build_options *options;
    const f8_build_target *target;
    const f8_target *facts; /* the target's row in ir/target.c */
    f8_arena *arena;        /* the arena of the plan */
    /* Row kernels have no text, and each launch has a kernel of its own: enough where only bytes
     * are wanted. */
    bool nameless;
    f8_diag *diag;
    f8_plan *plan;
    f8_kernel_source *source;
    uint32_t n_sources;
    f8_table named; /* those that have a text, by its hash */
    size_t source_room, step_room, builder_room, choice_room;
    f8_step_builder **builders; /* by function of the plan, by step */
    f8_build_image *image;      /* images of the plan, or what they would be made from */
    uint32_t n_images;
    f8_progress_phase *phase; /* asked while functions are built: of this build, or of the passes */
    /* the function being built */
    const f8_func *func;
    f8_plan_func *out;
    f8_step_builder *builder; /* by step */
    uint32_t out_index;
    int64_t constants_base; /* where the constants of this function begin in those of the plan */
    uint32_t n_counters;    /* of all functions so far: words of zero after all constants */
    /* bytes of scratch that the step being built uses, after the arena of the lowered function */
    int64_t scratch;
    int64_t most_scratch; /* the largest of any step */
    int64_t renamed;      /* bytes of renamed temporaries, after the scratch */
};

/* choice.c: sets the algorithm and tuning of a GEMM in *d; makes *out, the kernel to launch, with
 * its configuration. *choice is the index + 1 of what the plan records. */
f8_status f8_build_choose_gemm(f8_build *b, const char *name, f8_gemm_desc *d, uint32_t *choice);
f8_status f8_build_choose_kernel(f8_build *b, const char *name, f8_kernel *k, int64_t extent,
                                 f8_kernel **out, uint32_t *choice);

/* steps.c: appends the steps of a group */
f8_status f8_build_group(f8_build *b, const f8_group *g);
f8_status f8_build_gemm(f8_build *b, const f8_group *g);   /* gemm.c */
f8_status f8_build_copies(f8_build *b, const f8_group *g); /* copy.c */
f8_status f8_build_final_copy(f8_build *b, const f8_final_copy *c); /* copy.c */
f8_status f8_build_zeros(f8_build *b, const f8_group *g);           /* copy.c */
/* Copies the accumulator `acc` to the place of `to`, unless it lies there already; a step that adds
 * to `to` follows. */
f8_status f8_build_copy_operand(f8_build *b, const f8_group *g, f8_ref acc, f8_ref to);
/* merge.c: joins steps of the function just built that run the same kernel, where no value can
 * differ. */
f8_status f8_build_merge(f8_build *b);
/* tails.c: small steps that finish what a launch computed become its tail. */
f8_status f8_build_tails(f8_build *b);

/* waits.c: gives each collective that travels a WAIT, as late as the bytes allow that other steps
 * access. */
f8_status f8_build_waits(f8_build *b);

/* branch.c: says where steps have to wait for GEMMs that run beside them (f8_group.beside). After
 * all that changes the order of steps. */
f8_status f8_build_branch(f8_build *b);

/* ---- registry.c ---- */

/* F8_OK, or the failure of the arena if it ran out of memory. */
f8_status f8_build_memory(const f8_build *b);
/* Whether only forms for an empty amax history launch kernel `u`. They run in a step or two, so the
 * compiler takes less time for it and makes slower code, which gives the same bits. */
bool f8_build_compiles_fast(const f8_kernel_source *u);
/* Adds a kernel, whether or not it is there already. */
f8_status f8_build_add_source(f8_build *b, const f8_kernel_source *source, uint32_t *index);
/* Finds the kernel with this text, or adds it. *index is its number. Sets its hash. */
f8_status f8_build_intern(f8_build *b, const f8_kernel_source *source, uint32_t *index);
/* Appends a zeroed step to the list of the function; the pointer is valid until the next step. */
f8_step *f8_build_step(f8_build *b, f8_step_kind kind, const char *name, uint32_t n_args,
                       uint32_t n_ints);
/* The builder of the last step. */
f8_step_builder *f8_build_last(const f8_build *b);
/* Adds a launch to the last step. The launches of a step run in the order in which they are
 * added. */
f8_status f8_build_add_launch(f8_build *b, const f8_build_launch *launch, int64_t n_tasks);
/* Adds an access to the last step: of value `r` at place `p`; or of a part of a result of `r`,
 * which has type `t`; or of `bytes` bytes from `p` on, where r may be 0. */
f8_status f8_build_add_access(f8_build *b, const f8_place *p, f8_ref r, bool write);
f8_status f8_build_add_access_part(f8_build *b, const f8_place *p, f8_ref r, const f8_type *t,
                                   bool write);
f8_status f8_build_add_access_some(f8_build *b, const f8_place *p, f8_ref r, int64_t bytes,
                                   bool write);
f8_arg f8_build_arg(const f8_build *b, const f8_place *p);
/* Offset of the renamed temporaries in the arena, once all steps of the function are built. */
int64_t f8_build_renamed_base(const f8_build *b);
/* Bytes of the arena that only the step being built uses. */
f8_place f8_build_scratch(f8_build *b, int64_t bytes, int64_t stride);

/* Shorthands for the function being built. */
const f8_place *f8_build_place(const f8_build *b, f8_ref r);
const f8_type *f8_build_type(const f8_build *b, f8_ref r);
f8_ref f8_build_only_node(const f8_group *g); /* of a group that is not ROWS */
/* F8_ERR_INTERNAL: node `at` breaks the rules of ir/lowered.h, in the way that `what` says. */
f8_status f8_build_broken(f8_build *b, f8_ref at, const char *what);

#endif
