/* What a program is made of, what it takes, and whether it goes well: decisions, steps and kernels;
 * memory; statistics of tensors, guards and the witness; names, ops, the cache and files.
 * fp8c.h has what holds of all calls: failures, ownership, threads. */
#ifndef FP8C_DIAGNOSE_H
#define FP8C_DIAGNOSE_H

#include "fp8c.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- what was decided, and figures ---- */

typedef struct fp8c_info {
    size_t struct_size; /* sizeof(fp8c_info), set by the caller */
    double compile_seconds;
    int64_t planned_bytes, peak_bytes;     /* known before the run; the most ever allocated */
    int64_t arena_bytes, arena_lower_bound; /* of the function that needs the most */
    int64_t linears, fp8_gemms_planned;    /* FP8 GEMMs per micro_step */
    int64_t gemms_executed, fp8_gemms_executed, kernels_executed; /* since creation */
    int64_t distinct_kernels, code_bytes;
    int64_t kernels_cached; /* of the distinct ones: found in the cache rather than compiled */
    int32_t threads;
    int64_t held_bytes; /* what is allocated now, with what forwards have saved */
    const char *tuning_table; /* a sentence on the table of cuBLASLt's algorithms that fp8c ships:
                                 how many it has for this device, or why it is not used; NULL:
                                 nothing to say. Lives as long as the program's variant */
} fp8c_info;
FP8C_API void fp8c_program_info(const fp8c_program *program, fp8c_info *out);
/* The FP8 GEMMs planned of a run of micro_step or of a form of it, such as micro_step.first. Under
 * a budget of memory each form recomputes what suits it, so the forms may differ. -1: another
 * function. */
FP8C_API int64_t fp8c_program_fp8_gemms(const fp8c_program *program, int function);
/* The target compiled for: "cpu", "sm_90a". "cuda" is resolved to the GPU's architecture. */
FP8C_API const char *fp8c_program_target(const fp8c_program *program);

/* The GPU a program runs on. */
typedef struct fp8c_device {
    size_t struct_size;         /* sizeof(fp8c_device), set by the caller */
    char name[128];
    int32_t compute_capability; /* times 10: 90 */
    int32_t driver;             /* the newest CUDA version that the driver takes: 13000 */
    int32_t multiprocessors;
    int64_t memory, memory_free; /* bytes; free: now */
} fp8c_device;
/* FP8C_ERR_INPUT: it does not run on a GPU. */
FP8C_API fp8c_status fp8c_program_device(fp8c_program *program, fp8c_device *out);

/* One line per GEMM of a linear. */
typedef struct fp8c_decision {
    const char *linear, *role;   /* role: fprop, dgrad, wgrad */
    const char *format_a, *format_b, *scaling, *reason;
    int64_t m, n, k, count;
    int32_t fp8;
} fp8c_decision;
/* Ends a loop. */
FP8C_API fp8c_status fp8c_program_decision(const fp8c_program *program, int index,
                                           fp8c_decision *out);

/* What a step of kind `collective` exchanges with the other ranks. */
typedef struct fp8c_collective {
    const char *op; /* all_gather, all_to_all; all_slice, which exchanges nothing; with reduce_order
                       "library" all_reduce and reduce_scatter. NULL: the step is no collective */
    int32_t ranks;
    int64_t bytes;    /* to each other rank, and as many from it; of an all_slice 0; of the last two
                         as a ring's, since the library chooses */
    fp8c_dtype dtype; /* of the elements that it moves */
    /* One that goes on beside the steps behind it, until a step waits for it: */
    int32_t wait;   /* the index of the step that waits; 0: none, the collective ends in its step */
    int32_t beside; /* how many other steps run in between */
    int32_t goes_on; /* 0: runs of this program wait in the call, as `on_caller` asks */
    /* with `profile`, of all runs together: from the start to the call of the engine, which earlier
     * ones may hold up; and how long the run then waited for its end */
    double queued, waited;
} fp8c_collective;

/* One step of a function's plan. */
typedef struct fp8c_step {
    const char *name, *kind; /* kind: kernel, gemm, copy, attention (by a library), collective, wait
                                (for a collective of that name) */
    int32_t phases;
    uint64_t hash;           /* of a kernel: equal ones share code */
    int64_t bytes_read, bytes_written; /* of distinct inputs and outputs */
    double seconds;          /* with `profile`: of all runs together */
    const char *algorithm; /* how the library computes this GEMM, in its own words, or the algorithm
                              that a file fixed. NULL: another step, or neither is known */
    fp8c_collective collective;
    const char *work; /* what kind of work it is: as `kind`, but a kernel is rows, attention or copy */
    double flops;     /* operations of the products of a GEMM and of attention */
    double estimated; /* seconds of a run, as the compiler estimates them; 0: not known */
    double gap; /* with `profile`, on a GPU, of all runs together: the part of `seconds` in which the
                   GPU waited, as the host had not enqueued the step yet */
} fp8c_step;
/* Ends a loop. */
FP8C_API fp8c_status fp8c_program_step(const fp8c_program *program, int function, int index,
                                       fp8c_step *out);

/* With `listings`: one image (a cubin) of a CUDA target, and what it was made from. Its text compiles
 * as it is. On a CPU one image has the text of all kernels, and nothing else. */
typedef struct fp8c_image {
    const char *llvm;             /* a CPU's: LLVM IR as fp8c writes it, before LLVM's passes */
    const char *cuda, *ptx, *log; /* log: the compiler's messages, registers and spills by kernel */
    const void *cubin;            /* with text_only: NULL, and so are ptx and log */
    size_t cubin_size;
} fp8c_image;
/* Ends a loop. */
FP8C_API fp8c_status fp8c_program_image(const fp8c_program *program, int index, fp8c_image *out);

/* A kernel of a CUDA target: a __global__ function. With text_only `registers` is 0, since no
 * compiler has seen it yet. */
typedef struct fp8c_kernel {
    const char *name, *symbol; /* of the first step that runs it; in its image */
    uint64_t hash;             /* of its description */
    int32_t image, launches;   /* launches: over all functions */
    int32_t threads, multi;    /* threads of a block; multi: one launch runs it on many tensors */
    int64_t registers, stack, spill_stores, spill_loads; /* of a thread; the last three in bytes */
    int64_t shared, shared_dynamic;                      /* bytes of a block */
    int64_t bulk;   /* bytes of asynchronous copies that a block has under way; 0: it has none */
    double seconds; /* its share of the time to compile its image */
} fp8c_kernel;
/* Ends a loop. */
FP8C_API fp8c_status fp8c_program_kernel(const fp8c_program *program, int index, fp8c_kernel *out);

typedef struct fp8c_pass {
    const char *name;
    double seconds;
    int64_t nodes;
} fp8c_pass;
/* Ends a loop. */
FP8C_API fp8c_status fp8c_program_pass(const fp8c_program *program, int index, fp8c_pass *out);

/* ---- memory: where the bytes go, and what a budget costs ----
 *
 * Compiling alone gives these figures, also with plan_only. Strings live as long as the program. */

/* The arena of a function at its peak: the position in its order where most bytes are in use. */
typedef struct fp8c_peak {
    const char *step;            /* what runs there */
    int32_t position, positions; /* the peak's; how many there are */
    int64_t arena_bytes;         /* the function's */
    int64_t alive_bytes;         /* of these, in use at the peak */
    int64_t activation_bytes;    /* of those, activations and FP8 copies: kept for the backward */
    double seconds;              /* of a run of the function, estimated from the target's rates */
} fp8c_peak;
/* FP8C_ERR_INPUT past the last function, and for target reference, which has no arena. */
FP8C_API fp8c_status fp8c_program_peak(const fp8c_program *program, int function, fp8c_peak *out);

/* Bytes by category at that peak. Outside the arena: parameters, gradients, optimizer, states,
 * weight codes, inputs and results, constants. In the arena: activations, FP8 copies, weight
 * copies, recomputed, workspace. Then scratch (room that kernels and GEMMs work in), and unused
 * (bytes of the arena that other functions or other moments need). They add up to planned_bytes of
 * fp8c_info: what is external is left out. */
typedef struct fp8c_memory {
    const char *category;
    int64_t bytes;
    int32_t in_arena;
} fp8c_memory;
/* Ends a loop. */
FP8C_API fp8c_status fp8c_program_memory(const fp8c_program *program, int function, int index,
                                         fp8c_memory *out);

/* What is in memory at that peak, the biggest first: variables, ports, and allocations of the
 * arena. The category of what is external is "external". An allocation may hold several values one
 * after the other. */
typedef struct fp8c_tensor {
    const char *name, *category;
    fp8c_type type;
    int64_t bytes;           /* in memory, with padding */
    const char *made, *read; /* in the arena: the first step that writes it, the last that reads it;
                                else "" */
    int32_t first, last;     /* the positions of these steps */
} fp8c_tensor;
/* Ends a loop. */
FP8C_API fp8c_status fp8c_program_tensor(const fp8c_program *program, int function, int index,
                                         fp8c_tensor *out);

/* What memory_bytes, memory_share, checkpoint or recompute changed: bytes of micro_step's arena,
 * and estimated seconds of a micro_step. All zeros if none of them was given. Of a pair, the
 * activations are the bytes that `forward` saves, `recomputed` counts the values that it no longer
 * saves, and the seconds are of forward and backward. There arena_before, arena_after and fp8_gemms
 * are 0, and arena_budget is INT64_MAX. */
typedef struct fp8c_remat {
    size_t struct_size;   /* sizeof(fp8c_remat), set by the caller */
    int64_t arena_before; /* without them */
    int64_t arena_budget; /* allowed; INT64_MAX: only patterns were given */
    int64_t arena_after;  /* planned */
    int64_t activations_before, activations_after; /* of these, activations and FP8 copies at the
                                                      peak */
    int64_t recomputed;   /* values that are recomputed, each counted as often as that */
    int64_t fp8_gemms;    /* FP8 GEMMs among them */
    double seconds;       /* without them */
    double extra_seconds; /* what recomputing adds */
    int32_t rounds;       /* plans that were laid out to find the best */
    int64_t planned_bytes; /* as in fp8c_info, with that budget */
} fp8c_remat;
/* What memory_bytes or memory_share, as in fp8c_compile_options and the other 0, would change. Both
 * 0: what the options of the program's compile have changed; that never fails. For another budget
 * the program must be compiled with plan_only, for training, without a budget, patterns and `pair`;
 * else FP8C_ERR_INPUT. It stays as it is. One budget after another takes far less time than a
 * compile for each (which keeps no codes of weights: `requantize`): what they have in common is
 * found once, and the search for a plan starts at the plan of the call before. So a plan can differ
 * a little from that of a compile. A budget that can't be met is FP8C_ERR_UNSUPPORTED, and the
 * message names the least that can. */
FP8C_API fp8c_status fp8c_program_remat(const fp8c_program *program, int64_t memory_bytes,
                                        double memory_share, fp8c_remat *out);

/* ---- statistics ----
 *
 * A program compiled with `stats` has functions that also compute figures of the values that
 * `stats` names: micro_step.stats, forward.stats, backward.stats. "Statistics" in
 * frontend/embedding.md says when to run them, and how values are named. Figures are of x, the
 * value. Those of codes also take d, the value quantized and dequantized: they are NaN if it is not
 * quantized. */
typedef struct fp8c_statistic {
    size_t struct_size;           /* sizeof(fp8c_statistic), set by the caller */
    const char *name, *linear;    /* the program's, as all texts here */
    const char *operand;          /* "x", "w", "dy", "y", "dx" or "dw" */
    const char *recipe;           /* what the figures of codes are of; NULL: not quantized */
    const char *format;           /* of the codes: "f8e4m3", "f8e5m2"; NULL: not quantized */
    char granularity[48];         /* what a scale covers: "tensor", "row", "block(1,128)"; "":
                                     not quantized */
    int32_t what_if;              /* quantized by stats_recipe, for its figures alone */
    int64_t elements;
    const char *gemms;            /* the GEMMs of the linear that read it, or made it: "fprop",
                                     "fprop, wgrad" */
    const char *const *aliases;   /* its names in other linears that read it, then NULL */
    /* figures.def begins */
    /* the smallest |x| that is not 0; NaN if all are 0 */
    double amin;
    /* the largest |x| */
    double amax;
    /* log2(amax / amin): binades */
    double range;
    /* how many are NaN or Inf */
    int64_t nonfinite;
    /* the share of elements that are not 0 but quantized to 0 */
    double underflow;
    /* the share of elements too large to round to the format's maximum, so that they saturate */
    double overflow;
    /* the mean of (d - x)^2 */
    double mse;
    /* sum of x d / sqrt(sum of x^2 * sum of d^2) */
    double cosine;
    /* 10 log10(sum of x^2 / sum of (d - x)^2): decibels; E4M3 gives 31, E5M2 25 */
    double sqnr;
    /* what x is multiplied by; NaN where there is a scale for each row or block */
    double scale;
    /* the scale that the value's own amax asks for; NaN as scale, and under a scale of 1 */
    double scale_wanted;
    /* the largest |code| as a share of the format's maximum: how much of its range is in use. A
     * scale that is 256 times too small shows here, and hardly in sqnr */
    double used;
    /* figures.def ends */
} fp8c_statistic;
/* Statistic `index`, as the last run of `function` left it: micro_step.stats, micro_step.dump, or
 * one of a pair's. (fp8c_program_call gives the figures to the caller instead, as the result
 * "stats".) On a CUDA target with a stream of the caller's, wait first. FP8C_ERR_INPUT past the
 * last, or if the function has no figures: that ends a loop, and sets no message. */
FP8C_API fp8c_status fp8c_program_statistic(fp8c_program *program, int function, int index,
                                            fp8c_statistic *out);

/* ---- guards: a training that goes wrong ----
 *
 * A guard judges each step by what a training computes anyway, and says what is wrong. It changes
 * nothing. "Guards" in frontend/embedding.md has a loop with one; frontend/diagnose/guard/README.md
 * has the rules, their limits and what they cost. */

/* The first tensor that is not finite. Texts are the program's. */
typedef struct fp8c_found {
    size_t struct_size; /* sizeof(fp8c_found), set by the caller */
    const char *tensor; /* of a state of FP8 scales the operand, "h.0.mlp.c_fc.w"; NULL: none */
    const char *role;   /* "input", "parameter", "state", "scale" or "gradient" */
    int64_t index;      /* of its first element that is not finite, in row-major order */
    double value;       /* of that element */
    int64_t nonfinite;  /* how many are not; 0: all gradients are finite, but the square of this
                           element is not, nor is their norm */
    int64_t elements;
    int64_t others;     /* further tensors of this role of which the same is true */
} fp8c_found;
/* Look for it: in the buffers of the inputs of `function`, which a caller has run last, then in
 * parameters, states and gradients (grad.NAME), each in the order of the ports or variables. Inputs
 * in a GPU's memory are left out.
 * With again = 0 the call looks at gradients as they are. Make it before `update`, which makes them
 * zero. With again = 1 it runs `function` once more on its buffers, looks at the gradients that
 * this makes, and then gives all variables back the values that they had. That is for a step that
 * `update` has skipped: its variables are as they were, so the gradients have the same bits again.
 * If none is found then, the step gave another result than before: the machine may compute wrong.
 * All ranks call it together with again = 1. Both read all variables, and wait for the runs before.
 * FP8C_OK also if there is none: out->tensor is NULL. */
FP8C_API fp8c_status fp8c_program_find_nonfinite(fp8c_program *program, int function,
                                                 int32_t again, fp8c_found *out);

typedef enum fp8c_alarm_kind {
    FP8C_ALARM_LOSS_NONFINITE,
    FP8C_ALARM_NORM_NONFINITE, /* of the gradients; the loss is finite */
    FP8C_ALARM_LOSS_EXPLODES,
    FP8C_ALARM_SCALE,            /* 0, not finite, or far from what it was */
    FP8C_ALARM_TENSOR_NONFINITE, /* this and what follows: of statistics */
    FP8C_ALARM_UNDERFLOW,
    FP8C_ALARM_OVERFLOW,
    FP8C_ALARM_RANGE /* little of the format's range is in use: scales are too small */
} fp8c_alarm_kind;

typedef struct fp8c_guard fp8c_guard;

typedef struct fp8c_guard_options {
    size_t struct_size;  /* sizeof(fp8c_guard_options) */
    int32_t scale_every; /* look at scales in every Nth step; -1: never; 0: in every step, on a GPU
                            in every 10th, since it has to wait there */
    double underflow, overflow; /* the shares of elements that are too many; 0: 0.1 and 0.01 */
} fp8c_guard_options;

/* `options` may be NULL. FP8C_ERR_MEMORY. */
FP8C_API fp8c_status fp8c_guard_create(fp8c_context *ctx, const fp8c_guard_options *options,
                                       fp8c_guard **out);
FP8C_API void fp8c_guard_destroy(fp8c_guard *guard);

/* What a step was like. */
typedef struct fp8c_guard_facts {
    size_t struct_size;      /* sizeof(fp8c_guard_facts) */
    int64_t step;            /* from 1 */
    double loss, grad_norm;  /* grad_norm: 0 if it is not known */
    fp8c_program *program;   /* NULL: scales and statistics are not looked at. The same one in all
                                steps of a guard, and it outlives the guard's alarms */
    int32_t function;        /* of the last micro-step: micro_step.stats has figures to judge */
    const fp8c_found *found; /* what is not finite, as far as the caller has looked; or NULL */
} fp8c_guard_facts;
/* Judge a step. The alarms of the step before are gone. FP8C_ERR_MEMORY; or the program's scales
 * can't be read. */
FP8C_API fp8c_status fp8c_guard_step(fp8c_guard *guard, const fp8c_guard_facts *facts);

typedef struct fp8c_alarm {
    size_t struct_size;  /* sizeof(fp8c_alarm), set by the caller */
    fp8c_alarm_kind kind;
    int64_t step, since; /* since: the first step whose update may have done it. What was saved
                            before this step is from before */
    const char *tensor;  /* an operand, an input or a variable; NULL: of no tensor */
    const char *role;    /* "operand", or as in fp8c_found; NULL */
    double value, limit; /* what was judged, and what it may be; NaN: there is no such number */
    int64_t others;      /* further tensors of which the same is true */
    char text[320];      /* all of it as a sentence without its end */
} fp8c_alarm;
/* Alarm `index` of the last step. Each kind is raised once, and again only after 8 steps in a row
 * without it. FP8C_ERR_INPUT past the last ends a loop, and sets no message. */
FP8C_API fp8c_status fp8c_guard_alarm(const fp8c_guard *guard, int index, fp8c_alarm *out);

/* What a guard has in mind between two steps. */
typedef struct fp8c_guard_info {
    size_t struct_size; /* sizeof(fp8c_guard_info), set by the caller */
    uint32_t raised;  /* bit 1 << KIND: the kind was raised and has not been quiet for long enough.
                         No alarm of this kind can come in the next step, so there is no need to
                         look for a tensor */
    int32_t far;      /* the loss of the last step was far from the running estimate: one such step
                         is no alarm */
    int64_t suspects; /* the `since` that an alarm would have which may come in the next steps,
                         because losses are far now but not yet enough of them. 0: none. A caller
                         that removes old checkpoints keeps the newest one from before this step,
                         too */
} fp8c_guard_info;
FP8C_API void fp8c_guard_report(const fp8c_guard *guard, fp8c_guard_info *out);

/* ---- the witness: which step of a plan computes a wrong value ----
 *
 * A program that was compiled with `witness` can run a function under observation: each step of its
 * plan runs alone, and a callback gets the values that it has written. With `judge` fp8c also
 * judges each value ("The witness" in frontend/embedding.md). Results are those of
 * fp8c_program_run. */
typedef enum fp8c_verdict {
    FP8C_NOT_JUDGED, /* `judge` was 0, or the step is a collective, which has no witness */
    FP8C_RIGHT,
    FP8C_WRONG
} fp8c_verdict;

/* A value that a step has just written. All pointers are good until the callback returns. */
typedef struct fp8c_witnessed {
    size_t struct_size;
    int32_t function, step; /* fp8c_program_step */
    const char *kind, *name; /* of the step */
    const char *value; /* its name: that of a port or a tensor of the text; or a GEMM's linear and
                          role; or an op and its operand, as "gelu of h.0.mlp.c_fc.fprop" */
    fp8c_type type;
    const void *data; /* the elements, in host memory and contiguous */
    uint64_t hash;    /* of these bytes: equal in every run that gives these bits */
    fp8c_verdict verdict;
    int64_t wrong, at; /* how many elements are wrong, and the index of the first */
    double got, want, allowed; /* of that element: |got - want| may be up to `allowed` */
    int64_t nonfinite, nonfinite_at; /* elements that are NaN or Inf, and the index of the first */
    const char *nonfinite_input; /* with `judge`: a value with NaN or Inf that the step has read,
                                    and from which those of this value come; NULL: none */
    const char *nonfinite_op;    /* with `judge`: the op in the step that made them of finite
                                    operands, such as "quantize"; NULL: none did */
} fp8c_witnessed;
typedef void (*fp8c_witness_fn)(void *user, const fp8c_witnessed *value);

/* Runs a function as fp8c_program_run does, but under observation. No collective goes on beside
 * other steps. The callback may read the program; it may not run, change or destroy it.
 * FP8C_ERR_INPUT: the program was compiled without `witness`, or a callback of the same program
 * calls this. After another failure the state is undefined, as after a failed run. */
FP8C_API fp8c_status fp8c_program_run_witnessed(fp8c_program *program, int function, int32_t judge,
                                                fp8c_witness_fn fn, void *user);

/* ---- names: what an option may have, and what values of an enum are called ---- */

typedef enum fp8c_name_kind {
    FP8C_NAME_DTYPE,          /* by fp8c_dtype: "f32", ... */
    FP8C_NAME_OP,             /* the ops in the order of the manual */
    FP8C_NAME_PASS,           /* the passes in their order, as print_after names them */
    FP8C_NAME_RECIPE,         /* that `recipe` may have */
    FP8C_NAME_TARGET,         /* that `target` may have */
    FP8C_NAME_ALARM,          /* by fp8c_alarm_kind: "loss_nonfinite", ... */
    FP8C_NAME_COMPONENT_STATE /* by fp8c_component_state: "ok", "missing", ... */
} fp8c_name_kind;
/* NULL past the last. */
FP8C_API const char *fp8c_name(fp8c_name_kind kind, int index);

/* ---- the ops that functions may call: what `fp8c ops` shows ---- */

typedef struct fp8c_op_info {
    size_t struct_size;       /* sizeof(fp8c_op_info), set by the caller */
    const char *name, *group; /* group: "pointwise", "reduction", "gemm", ... */
    const char *operands; /* their names with a space between two: "x w bias". "x ...": any number
                             of them */
    int32_t min_operands, max_operands, results, attributes;
    const char *gradient; /* "yes"; "zero": it is zero everywhere; "none": differentiating fails */
    const char *text;     /* what it computes */
    char types[320]; /* of operands and results: "f32[.., K], f32[K, N], f32[N] -> f32[.., N]".
                        frontend/text/OPS.md of the sources says how to read it */
} fp8c_op_info;
typedef struct fp8c_op_attr {
    size_t struct_size; /* sizeof(fp8c_op_attr), set by the caller */
    fp8c_attr attr;     /* with the value that it has if it is not given */
    const char *text;   /* what it says */
} fp8c_op_attr;
/* FP8C_ERR_INPUT: there is no such op, or struct_size is 0. */
FP8C_API fp8c_status fp8c_op(const char *name, fp8c_op_info *out);
/* Attribute `index` of an op. Ends a loop. */
FP8C_API fp8c_status fp8c_op_attribute(const char *name, int index, fp8c_op_attr *out);

/* Write a recipe, NAME or NAME {key = value, ...}, into `text`, cut to `size`: with only the
 * options that differ from the name's defaults. FP8C_ERR_INPUT: it is not a recipe. */
FP8C_API fp8c_status fp8c_recipe_canonical(fp8c_context *ctx, const char *recipe, char *text,
                                           size_t size);

/* ---- the cache, and files ---- */

/* The kernel cache, and the tuning database. */
typedef struct fp8c_cache_info { /* the strings are the context's */
    size_t struct_size;     /* sizeof(fp8c_cache_info), set by the caller */
    const char *folder;     /* NULL: no cache is used */
    const char *why_not;    /* why no cache is used; NULL: one is used, or it was turned off */
    int32_t read_only;
    int64_t hits, misses, stored; /* of this context, so far */
    int64_t bytes, entries; /* in the folder, now */
    const char *tuning;     /* the database that compiles read if it exists; NULL: none */
} fp8c_cache_info;
/* Opens the cache if nothing was compiled yet. FP8C_ERR_MEMORY. */
FP8C_API fp8c_status fp8c_context_cache(fp8c_context *ctx, fp8c_cache_info *out);

/* What a file holds, and its target `index`, on any machine. */
typedef struct fp8c_file_info {
    size_t struct_size;          /* sizeof(fp8c_file_info), set by the caller */
    const char *version;         /* of fp8c; a file of another version is refused */
    int32_t format, plan_format;
    int64_t bytes;
    char checksum[33];           /* of its contents, as hexadecimal digits */
    int32_t targets;             /* how many; at least 1 */
    char target[32];             /* of this target, and so the rest: its name */
    char missing[160]; /* features that its code needs and this CPU lacks; "": none, or a GPU's */
    char dims[192];              /* "B <= 32, T <= 128"; "": no dim is a bound */
    int32_t variants;            /* plans: one for each set of values of these dims */
} fp8c_file_info;
/* Reads the file again in each call, and fails as opening does. Ends a loop. */
FP8C_API fp8c_status fp8c_file_read_info(fp8c_context *ctx, const char *path, int index,
                                         fp8c_file_info *out);

/* Set `index` of the values for which the program has a plan; 0 is the one it began with. value[i]
 * is that of dim i of fp8c_program_dims. Ends a loop. */
FP8C_API fp8c_status fp8c_program_values(const fp8c_program *program, int index, int64_t *value);

#ifdef __cplusplus
}
#endif

#endif
