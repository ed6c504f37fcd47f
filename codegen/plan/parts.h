/* The parts of building a plan. build_registry.c: kernels, steps and what they touch;
 * build_steps.c, build_gemm.c, build_copy.c: groups to steps; build_merge.c: many steps to one;
 * build_cpu.c and cuda_build.c: the two targets; build.c: the order of things. Internal to
 * codegen. */
#ifndef F8_CODEGEN_BUILD_PARTS_H
#define F8_CODEGEN_BUILD_PARTS_H

#include "codegen/plan/options.h"
#include "codegen/kernel/attention.h"
#include "ir/lowered.h"

typedef enum f8_source_kind {
    F8_SOURCE_ROWS,
    F8_SOURCE_ATTENTION,
    F8_SOURCE_SCATTER,
    F8_SOURCE_COPY, /* on targets whose steps copy only what is contiguous */
} f8_source_kind;

/* One distinct kernel. Two with the same text are the same. */
typedef struct f8_kernel_source {
    f8_source_kind kind;
    const char *name, *text;
    f8_loc loc; /* in the module's text: of the first group that needs it */
    uint64_t hash;
    uint32_t launches;
    const f8_kernel *kernel;     /* ROWS */
    f8_attention_desc attention; /* ATTENTION */
    bool backward;
    f8_dtype dtype;                  /* SCATTER: of dy */
    const struct f8_copy_desc *copy; /* COPY (codegen/cuda/copy.h) */
    double seconds;
    struct f8_cpu_code *cpu;      /* the CPU's (codegen/cpu/build.c) */
    struct f8_cuda_code *cuda[2]; /* CUDA's (codegen/cuda/build.h): one instance, multi-tensor */
} f8_kernel_source;

/* A launch of a unit, by a step whose code is known only once all is compiled. */
typedef struct f8_build_launch {
    uint32_t source;
    uint32_t first_arg, first_int; /* within the step's; of its first instance */
    uint32_t n_args, n_ints;       /* of one instance */
    uint32_t n_instances;          /* instances follow one another in the step's args and ints */
    int64_t *n_tasks;              /* by instance; 0: the unit's own */
    uint32_t choice;               /* of its phase; 0: none */
} f8_build_launch;

/* Memory that a step reads or writes: bytes [begin, end). */
typedef struct f8_build_access {
    f8_space space; /* never INPUT or OUTPUT of a variable: that is STATE */
    int32_t port;
    int64_t begin, end;
    bool write;
    bool whole;    /* every byte of it */
    bool adds;     /* writes to what is there, which it so reads */
    uint32_t temp; /* the temporary it is all or a part of, + 1 (build_rename.c); 0: none */
    f8_ref value;  /* for messages; 0: not known */
    /* What of these bytes it touches: `width` at a time, `pitch` from one to the next (0: there is
     * one). */
    int64_t width, pitch;
} f8_build_access;

/* What is known of a step beside the step itself, until code exists. */
typedef struct f8_step_builder {
    f8_build_launch *launch; /* in the order they run, a barrier between */
    f8_build_access *access;
    uint32_t *origin; /* by instance: its step's index before any were merged */
    uint32_t n_launches, n_accesses, n_origins;
    size_t launch_room, access_room;
} f8_step_builder;

typedef struct f8_build f8_build;

typedef struct f8_copy_axes { /* to[i..] = from[i..] over size, strides in elements */
    int32_t rank;
    int64_t element; /* bytes */
    int64_t size[F8_COPY_RANK], from[F8_COPY_RANK], to[F8_COPY_RANK];
} f8_copy_axes;

typedef struct f8_copy_kernel { /* what copies so; args: from, to */
    f8_kernel_source source;
    int64_t ints[3 * F8_COPY_RANK + 4]; /* three an axis, and up to four of its own */
    uint32_t n_ints;
    int64_t n_tasks;
} f8_copy_kernel;

/* What differs between targets. */
typedef struct f8_build_target {
    bool split_phases; /* each phase of a row program is a step of its own */
    /* Before anything: what the target needs to be there. */
    f8_status (*begin)(f8_build *b);
    int64_t (*rows_tasks)(const f8_build *b, const f8_kernel *k, int64_t extent);
    int64_t (*scatter_tasks)(int64_t positions, int64_t columns);
    /* Refuse what the target can't do. NULL: compiling says so. */
    f8_status (*check_attention)(f8_build *b, f8_ref r, const f8_attention_desc *d);
    /* Whether a library does it, by the options or the table. NULL: never. */
    bool (*attention_by_library)(const f8_build *b, const f8_attention_desc *d, bool backward);
    /* The library's problem, or refuse. */
    f8_status (*library_attention)(f8_build *b, f8_ref r, const f8_attention_desc *d, bool backward,
                                   f8_cudnn_attention_desc *out);
    /* Bytes of arena the kernel is given, as its last argument. NULL: no such argument. */
    int64_t (*attention_workspace)(const f8_attention_desc *d, bool backward);
    /* Choose the algorithm, or refuse with the linear's name. */
    f8_status (*gemm)(f8_build *b, f8_ref r, f8_gemm_desc *d);
    /* A unit for a copy that is not contiguous, with its run-time integers. NULL: COPY steps do it.
     */
    f8_status (*copy)(f8_build *b, const f8_place *from, const f8_place *to,
                      const f8_copy_axes *axes, f8_copy_kernel *out);
    /* Refuse steps of the function just built that would not do in any order of their tasks what
     * they do in order. NULL: they run in order. */
    f8_status (*check_steps)(f8_build *b);
    /* The most instances of this unit in one launch. NULL: 1. */
    uint32_t (*most_instances)(const f8_kernel_source *u);
    f8_status (*compile)(f8_build *b); /* all units */
    /* Instead: the sizes of their phases. NULL: there are no phases then. */
    f8_status (*size)(f8_build *b);
    /* Fill a step's phases, once compiled. */
    f8_status (*finish)(f8_build *b, f8_step *s, const f8_step_builder *builder);
    f8_status (*fill_stats)(f8_build *b, f8_build_stats *stats);
} f8_build_target;

struct f8_build {
    const f8_module *module;
    const f8_build_options *options;
    const f8_build_target *target;
    const f8_target *facts; /* the target's row */
    f8_arena *arena;        /* the plan's */
    f8_diag *diag;
    f8_plan *plan;
    f8_kernel_source *source;
    uint32_t n_sources;
    uint32_t *table; /* units by hash: open addressing of index + 1 */
    uint32_t table_size;
    size_t source_room, step_room, builder_room, choice_room;
    f8_step_builder **builders; /* by function of the plan: its steps' */
    f8_build_image *image;   /* CUDA: the plan's, or what they would be made from */
    uint32_t n_images;
    /* the function being built */
    const f8_func *func;
    f8_plan_func *out;
    f8_step_builder *builder; /* by step */
    uint32_t out_index;
    int64_t constants_base; /* of this function, in the plan's constants */
    int64_t scratch;      /* arena bytes beyond the program's own that the step being built uses */
    int64_t most_scratch; /* of any step */
    int64_t renamed;      /* bytes of temporaries beyond these */
};

/* build_choice.c: how a GEMM is done, in d and *choice; and a kernel: the one to launch. */
f8_status f8_build_choose_gemm(f8_build *b, const char *name, f8_gemm_desc *d, uint32_t *choice);
f8_status f8_build_choose_kernel(f8_build *b, const char *name, f8_kernel *k, int64_t extent,
                                 f8_kernel **out, uint32_t *choice);

f8_status f8_build_group(f8_build *b, const f8_group *g);  /* build_steps.c: appends steps */
f8_status f8_build_gemm(f8_build *b, const f8_group *g);   /* build_gemm.c */
f8_status f8_build_copies(f8_build *b, const f8_group *g); /* build_copy.c */
f8_status f8_build_final_copy(f8_build *b, const f8_final_copy *c); /* build_copy.c */
/* Before something adds to `to`: bring the accumulator there, unless it lies there already. */
f8_status f8_build_copy_operand(f8_build *b, const f8_group *g, f8_ref acc, f8_ref to);
/* Steps of the function just built that run the same kernel become one where no value can tell. */
f8_status f8_build_merge(f8_build *b);

/* ---- build_registry.c ---- */

/* Whether all that was asked of the build's arena was there: F8_OK or its failure. */
f8_status f8_build_memory(const f8_build *b);
/* The unit with this text, registered if new; *index is its number. Fills the hash. */
f8_status f8_build_intern(f8_build *b, const f8_kernel_source *source, uint32_t *index);
/* A zeroed step at the end of the function's list, valid until the next. */
f8_step *f8_build_step(f8_build *b, f8_step_kind kind, const char *name, uint32_t n_args,
                       uint32_t n_ints);
/* What is known of the step made last. */
f8_step_builder *f8_build_last(const f8_build *b);
/* A launch of that step. A step's launches run in the order they are made. */
f8_status f8_build_add_launch(f8_build *b, const f8_build_launch *launch, int64_t n_tasks);
/* The step made last reads or writes value `r` at `p`; or some of a result of it that has type `t`,
 * or of `bytes` bytes from p on (r may be 0). */
f8_status f8_build_add_access(f8_build *b, const f8_place *p, f8_ref r, bool write);
f8_status f8_build_add_access_part(f8_build *b, const f8_place *p, f8_ref r, const f8_type *t,
                              bool write);
f8_status f8_build_add_access_some(f8_build *b, const f8_place *p, f8_ref r, int64_t bytes, bool write);
f8_arg f8_build_arg(const f8_build *b, const f8_place *p);
/* Where the arena's part for renamed temporaries begins: all steps of the function are built. */
int64_t f8_build_renamed_base(const f8_build *b);
/* Arena that only the step being built uses. */
f8_place f8_build_scratch(f8_build *b, int64_t bytes, int64_t stride);

/* Short forms for the function being built. */
const f8_place *f8_build_place(const f8_build *b, f8_ref r);
const f8_type *f8_build_type(const f8_build *b, f8_ref r);
f8_ref f8_build_only_node(const f8_group *g); /* of a group that is no row program */
f8_status f8_build_broken(f8_build *b, f8_ref at, const char *what);

#endif
