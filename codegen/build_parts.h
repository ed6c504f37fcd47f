/* The parts of building a plan. build.c: the order of things and the kernels' registry;
 * build_steps.c: groups to steps; build_compile.c: kernels to one blob. Internal to codegen. */
#ifndef F8_CODEGEN_BUILD_PARTS_H
#define F8_CODEGEN_BUILD_PARTS_H

#include "codegen/build.h"
#include "codegen/cpu_attention.h"
#include "codegen/kernel.h"

typedef enum f8_unit_kind { F8_UNIT_ROWS, F8_UNIT_ATTENTION, F8_UNIT_SCATTER } f8_unit_kind;

/* One distinct kernel. Two with the same text are the same. */
typedef struct f8_build_unit {
    f8_unit_kind kind;
    const char *name, *text;
    uint64_t hash;
    uint32_t launches;
    const f8_kernel *kernel;     /* ROWS */
    f8_attention_desc attention; /* ATTENTION */
    bool backward;
    f8_dtype dtype; /* SCATTER: of dy */
    double seconds;
    f8_cpu_phase phase[F8_ATTENTION_MAX_PHASES]; /* by compiling; ROWS: n_tasks is the launch's */
    int n_phases;
    uint64_t entry[F8_ATTENTION_MAX_PHASES]; /* filled by linking */
} f8_build_unit;

/* A kernel step whose entries are known only once its unit is linked. */
typedef struct f8_build_patch {
    uint32_t func, step, unit;
    uint32_t first_arg, first_int;
    int64_t n_tasks; /* 0: the unit's own */
} f8_build_patch;

typedef struct f8_build {
    const f8_module *module;
    const f8_build_options *options;
    f8_arena *arena; /* the plan's */
    f8_diag *diag;
    f8_plan *plan;
    f8_build_unit *unit;
    f8_build_patch *patch;
    uint32_t n_units, n_patches;
    uint32_t *table; /* units by hash: open addressing of index + 1 */
    uint32_t table_size;
    size_t unit_room, patch_room, step_room;
    /* the function being built */
    const f8_func *func;
    f8_plan_func *out;
    uint32_t out_index;
    int64_t constants_base; /* of this function, in the plan's constants */
    int64_t spare;          /* arena bytes beyond the program's own, for results nobody reads */
} f8_build;

f8_status f8_build_kernels(f8_build *b);                  /* build_compile.c: fills plan->blob */
f8_status f8_build_group(f8_build *b, const f8_group *g); /* build_steps.c: appends steps */
f8_status f8_build_final_copy(f8_build *b, const f8_final_copy *c); /* build_steps.c */

/* The unit with this text, registered if new; *index is its number. */
f8_status f8_build_intern(f8_build *b, const f8_build_unit *unit, uint32_t *index);
/* A zeroed step at the end of the function's list, valid until the next. */
f8_step *f8_build_step(f8_build *b, f8_step_kind kind, const char *name, uint32_t n_args,
                       uint32_t n_ints);
/* A launch of the step made last, whose arguments start at first_arg and first_int of the step's. A
 * step's launches run in the order they are made, with a barrier between. */
f8_status f8_build_launch(f8_build *b, uint32_t unit, int64_t n_tasks, uint32_t first_arg,
                          uint32_t first_int);
f8_arg f8_build_arg(const f8_build *b, const f8_place *p);

#endif
