/* Programs: plans, what they run on, and what was decided about them. Internal to frontend/. */
#ifndef F8_PROGRAM_H
#define F8_PROGRAM_H

#include "frontend/api.h"
#include "frontend/instance.h"
#include "frontend/f8x/package.h"
#include "frontend/f8x/compile_report.h"
#include "ir/base/file.h"
#include "frontend/variables.h"
#include "frontend/variants.h"

/* A variant: the program for one set of values of the dims that are bounds. Most programs have no
 * such dims, and one variant. Plan and compile report are all there is to know of it. It was
 * compiled here, or read from a file. */
typedef struct f8_variant {
    struct f8_variant *next;
    int64_t *value; /* by bound; NULL: there are none */
    f8_arena arena; /* holds the plan and the report */
    f8_plan plan;   /* reference target: only variables, functions and ports */
    f8_compile_report report;
    f8_instance instance; /* kind NULL: compiled with no_device or plan_only */
    f8_arena graph; /* holds the module after the passes and what they made, if that is still
                       needed: the reference target and a witness interpret it, and a calibration
                       reads its samples */
    const f8_module *lowered; /* with the option `witness`: that module, in `graph`; else NULL */
    struct f8_planning *planning; /* in `graph`: what budgets are planned with (compile.h); NULL:
                                     they can't be */
    struct f8_gemm_lib *gemms;    /* the planning's */
} f8_variant;

/* How a program runs, apart from its target and its threads. From the options for compiling, or for
 * opening a file. */
typedef struct f8_run_options {
    bool no_device; /* it does not run: it was compiled, or opened, to be looked at */
    bool profile;
    int32_t device;
    void *stream;
    void *(*device_alloc)(void *user, size_t size);
    void (*device_free)(void *user, void *ptr, size_t size);
    void *device_user;
    const char *external; /* name pattern, or NULL */
    f8_work *work;        /* an arena's, until the first variant has started; or NULL */
} f8_run_options;

/* A compile for a tuner. Its choices replace the database's. `like` is the program whose executors
 * share what they can with this one's (NULL: none). */
typedef struct f8_tuner_compile {
    const f8_build_choices *choices;
    const fp8c_program *like;
} f8_tuner_compile;

/* Strides that a view points to (tensor.c). All tensors of one shape share them. */
typedef struct f8_strides {
    struct f8_strides *next;
    int64_t axis[F8_MAX_RANK]; /* in elements; 0 from the rank on */
} f8_strides;

/* A port that carries no variable, with the tensor given for it in a call. */
typedef struct f8_given {
    const f8_plan_port *port;
    uint32_t index; /* index among all ports of its side */
    fp8c_side side;
    const fp8c_tensor_view *view;
} f8_given;

/* An object of the caller's that has memory of a program. `leave` is called when the program is
 * destroyed first. `unbind` binds the program's own buffers to ports that have the object's. */
typedef struct f8_dependent {
    struct f8_dependent *next;
    void (*leave)(struct f8_dependent *d);
    void (*unbind)(struct f8_dependent *d);
} f8_dependent;

struct fp8c_program {
    fp8c_context *ctx;
    const f8_tuner_compile *tuner; /* NULL, except while a tuner compiles */
    f8_arena arena; /* holds what all variants share */
    f8_variant *first, *now; /* all variants; the one that runs and is reported on */
    const f8_target *target;
    const f8_cpu_level *level; /* the CPU level that the code is for; NULL: this machine's, or no
                                  CPU's */
    f8_run_options run;
    fp8c_comm given_comm; /* the caller's; all zeros: the rank is alone */
    f8_comm comm;         /* its calls, for executors */
    f8_hash digest;       /* of what all ranks must have in common */
    bool met;             /* they were compared */
    f8_cuda *cuda;  /* CUDA targets; the context lends it */
    f8_bounds bounds;
    f8_file_bytes file; /* of a program that was opened; its plans point into it */
    f8_package package;
    const f8_package_program *opened; /* its program in the package; NULL: it was compiled */
    f8_unit *unit;  /* a calibration's, in the arena now->graph; else NULL */
    int32_t threads; /* of runs; 0: the CPUs this process may run on */
    f8_strides *strides; /* in the arena, so they live as long as the program */
    f8_given *given;     /* room for a call's tensors, in the arena */
    size_t given_room;
    f8_dependent *dependents;
    uint64_t lent;       /* bit i: ports of function i may have memory of a dependent */
    const char *aside;    /* where a witness puts large values aside: a folder; NULL: none */
    bool watched;         /* a run is under observation: its callback may begin no other */
    int32_t in_flight;   /* handles with a forward whose backward is still to run */
    bool plan_only;
    f8_histories histories;
    f8_gradient_sums sums;
    f8_kept_codes codes;
    f8_program_variable *var; /* NULL: the program has no memory, or is not whole yet */
    uint32_t n_without_value; /* of these */
    fp8c_program *next;       /* of the context's */
};

/* From options for compiling or for opening a file: both structs have these fields. */
#define F8_RUN_OPTIONS(o)                                                                          \
    ((f8_run_options){.no_device = (o)->no_device,                                                 \
                      .profile = (o)->profile,                                                     \
                      .device = (o)->device,                                                       \
                      .stream = (o)->stream,                                                       \
                      .device_alloc = (o)->device_alloc,                                           \
                      .device_free = (o)->device_free,                                             \
                      .device_user = (o)->device_user,                                             \
                      .external = (o)->external})

/* Keep the caller's way to other ranks; NULL: the rank is alone. F8_ERR_INPUT: it is not whole.
 * (comm.c) */
f8_status f8_program_set_comm(fp8c_program *p, const fp8c_comm *comm, f8_diag *diag);
/* The communicator that a GPU's collectives go to; NULL: the rank is alone. F8_ERR_UNSUPPORTED: the
 * caller's comm has none, and moves bytes of host memory alone. nccl.c. */
f8_status f8_program_nccl(const fp8c_program *p, f8_nccl **out, f8_diag *diag);
/* F8_ERR_INPUT: the comm is of another rank than the handle. */
f8_status f8_nccl_handle_fits(const fp8c_nccl *nccl, const fp8c_comm *comm, f8_diag *diag);
/* The handle's collectives are told to the comm's `observe`, if it has one. */
void f8_nccl_handle_observe(fp8c_nccl *nccl, const fp8c_comm *comm);

/* Notes what all ranks must have in common: the module and what options change of its results, or
 * the file that the program was opened from. */
f8_status f8_program_note_module(fp8c_program *p, const f8_module *m,
                                 const fp8c_compile_options *o, f8_diag *diag);
void f8_program_note_file(fp8c_program *p, const void *bytes, size_t size);
/* Before the first run of a function that all ranks run together: compares that over the ranks.
 * F8_ERR_INPUT names a rank that has other things. */
f8_status f8_program_meet(fp8c_program *p, int function, f8_diag *diag);
/* NULL: the rank is alone. */
const f8_comm *f8_program_comm(const fp8c_program *p);

/* Make a program of `ctx` without variants. NULL: out of memory, as diag says. */
fp8c_program *f8_program_create(fp8c_context *ctx, f8_diag *diag);
/* Add a variant without a plan at the end of p's list. NULL as above. The caller sets p->now. */
f8_variant *f8_program_add(fp8c_program *p, f8_diag *diag);

/* Set p->run and p->threads from the options. F8_ERR_INPUT: `threads` is out of range. */
f8_status f8_program_set_run(fp8c_program *p, f8_run_options run, int32_t threads, f8_diag *diag);

/* Ports that a call binds itself, after the caller's tensors are found good: those of saved values.
 * `fits`: the shapes of the caller's tensors may change dims that are bounds. */
typedef struct f8_call_bind {
    bool (*is_own)(const f8_plan_port *port); /* of ports that carry no variable */
    f8_status (*bind)(struct f8_call_bind *b, fp8c_program *p, int function, f8_diag *diag);
    bool fits;
} f8_call_bind;
/* fp8c_program_call of a function that can run. `bind` may be NULL. */
f8_status f8_program_call(fp8c_program *p, int function, const fp8c_tensor_view *const *inputs,
                          size_t n_inputs, const fp8c_tensor_view *const *outputs, size_t n_outputs,
                          f8_call_bind *bind, f8_diag *diag);

/* F8_ERR_INPUT: a forward waits for its backward, so parameters and scales may not change. `what`
 * would change them. */
f8_status f8_program_may_change(const fp8c_program *p, const char *what, f8_diag *diag);

/* F8_ERR_INPUT: `what` was called by a callback of fp8c_program_run_witnessed, whose run it would
 * change. */
f8_status f8_program_unwatched(const fp8c_program *p, const char *what, f8_diag *diag);

/* What row `index` of a function's figures is of; NULL: there is none. */
const f8_watched *f8_program_watched(const fp8c_program *p, int function, int index);

/* F8_ERR_INPUT: the program was compiled only to be looked at. The second also fails if there is no
 * such function, or if one of its variables has no value. */
f8_status f8_program_has_memory(const fp8c_program *p, f8_diag *diag);
f8_status f8_program_can_run(const fp8c_program *p, int function, f8_diag *diag);

/* Check a tensor for a variable: dtype, shape, strides, device, address. *at: where its elements
 * are. */
f8_status f8_tensor_check_variable(fp8c_program *p, uint32_t variable, const fp8c_tensor_view *view,
                                   void **at, f8_diag *diag);

/* Before a use of a function's ports that is no dependent's: bind the program's own buffers to
 * those that have a dependent's memory. */
void f8_program_own_ports(fp8c_program *p, int function);

/* The element of the other program's variable `its` that is the same operand as an element of p's
 * variable: they have a name or an alias in common. -1: there is none. carry.c. */
int64_t f8_program_match_element(const fp8c_program *p, int variable, int64_t index,
                                 const fp8c_program *other, int its);

/* ---- first.c ---- */

/* Runs `prepare`, for codes that may be stale. */
f8_status f8_program_renew(fp8c_program *p, f8_diag *diag);
/* Before a run of a function (f8_codes_run): codes that it reads are those of the weights. *form:
 * the function to run in its place, of the same buffers: itself, or its form for an empty amax
 * history while one is empty. */
f8_status f8_program_form(fp8c_program *p, int function, uint32_t *form, f8_diag *diag);
/* The same without a run. */
f8_status f8_program_choose(fp8c_program *p, int function, uint32_t *form, f8_diag *diag);

/* stored.c: fp8c_program_quantize of a program that has memory. */
f8_status f8_program_quantize(fp8c_program *p, int variable, const float *from, const float *scale,
                              f8_diag *diag);
/* Weights that a program stores and begins with by the text get these values, quantized. */
f8_status f8_stored_initialize(fp8c_program *p, uint64_t seed, f8_diag *diag);

/* What fp8c_witnessed calls a value of a lowered function. In `arena`, or the graph's own. */
const char *f8_program_value_name(const f8_func *f, f8_ref r, f8_arena *arena);

/* fp8c_compile in high precision, with samples of operands (f8_pass_calibrate). */
fp8c_status f8_compile_calibrating(const fp8c_module *module, const fp8c_compile_options *options,
                                   fp8c_program **out);
/* fp8c_compile for a tuner. */
fp8c_status f8_compile_tuning(const fp8c_module *module, const fp8c_compile_options *options,
                              const f8_tuner_compile *tuner, fp8c_program **out);

#endif
