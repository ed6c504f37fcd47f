/* fp8c: an embeddable FP8 tensor-op compiler and JIT. This header has what every embedder needs:
 * modules, compiling, running, variables, a layer in the caller's loop. Beside it are
 *
 *     fp8c_ranks.h     several ranks, joined by MPI, by NCCL or by the caller
 *     fp8c_train.h     a training run: data, steps, guards, a folder to go on from
 *     fp8c_tune.h      choosing by measuring: recipes, and ways to compute
 *     fp8c_diagnose.h  figures, decisions, memory, statistics, guards, ops, files
 *     fp8c_weights.h   FP8 weights in the formats of other stacks
 *     fp8c_machine.h   what the machine has, whether it computes right, its health
 *
 * A whole program:
 *
 *     #include <fp8c.h>
 *     #include <stdio.h>
 *     #include <stdlib.h>
 *     #include <string.h>
 *
 *     // A model of 64 bytes at a time; frontend/text/README.md of the sources has the language.
 *     static const char text[] =
 *         "module mlp\n"
 *         "dim T = 64, C = 32, V = 256\n"
 *         "param wte: f32[V, C] normal(0.1)\n"
 *         "param up: f32[C, 4*C] normal(0.1)\n"
 *         "param down: f32[4*C, C] normal(0.1)\n"
 *         "func forward(%tokens: i32[T], %targets: i32[T]) -> (%loss: f32[]) {\n"
 *         "  %x = embedding(wte, %tokens)\n"
 *         "  %y = add(%x, linear(gelu(linear(%x, up)), down))\n"
 *         "  return cross_entropy(linear(%y, wte) {transpose_b = true, name = \"head\"},"
 *         " %targets)\n"
 *         "}\n"
 *         "optimizer adamw {lr = 0.01}\n"
 *         "recipe \"head\" = bf16\n";
 *
 *     static fp8c_context *ctx;
 *
 *     static void check(fp8c_status status)
 *     {
 *         if (status != FP8C_OK) {
 *             fprintf(stderr, "%s\n", ctx ? fp8c_context_message(ctx) : "no context");
 *             exit(1);
 *         }
 *     }
 *
 *     int main(void)
 *     {
 *         const fp8c_compile_options options = {.struct_size = sizeof options,
 *                                               .recipe = "delayed"};
 *         fp8c_module *module;
 *         fp8c_program *program;
 *         check(fp8c_context_create(NULL, &ctx));
 *         check(fp8c_module_parse(ctx, text, strlen(text), "mlp.f8", NULL, 0, &module));
 *         check(fp8c_compile(module, &options, &program));
 *         check(fp8c_program_initialize(program, 1));
 *         const int step = fp8c_program_function(program, "micro_step");
 *         const int update = fp8c_program_function(program, "update");
 *         int32_t *tokens = fp8c_program_buffer(program, step, FP8C_INPUT, 0);
 *         int32_t *targets = fp8c_program_buffer(program, step, FP8C_INPUT, 1);
 *         const float *loss = fp8c_program_buffer(program, step, FP8C_OUTPUT, 0);
 *         for (int i = 1; i <= 100; i++) {
 *             for (int t = 0; t < 64; t++) { // the target is always the token plus 3
 *                 tokens[t] = (7 * i + t) % 256;
 *                 targets[t] = (tokens[t] + 3) % 256;
 *             }
 *             check(fp8c_program_run(program, step));   // forward and backward
 *             check(fp8c_program_run(program, update)); // the optimizer
 *             if (i % 20 == 0)
 *                 printf("step %d loss %.4f\n", i, *loss);
 *         }
 *         check(fp8c_program_save(program, "mlp.safetensors", NULL));
 *         fp8c_program_destroy(program);
 *         fp8c_module_destroy(module);
 *         fp8c_context_destroy(ctx);
 *         return 0;
 *     }
 *
 * frontend/embedding.md of the sources, installed beside the license, has chapters on what stands
 * here in short. What holds of all calls:
 *
 * Failures: every call that can fail returns a status. fp8c_context_message then says what is wrong
 * and where. No call prints or exits. A call whose comment says "ends a loop" returns
 * FP8C_ERR_INPUT for an index past the last, and leaves no message.
 *
 * Pointers: every destroy function accepts NULL. No other pointer may be NULL unless its comment
 * says so. Strings that a call returns belong to the object that was asked, and live as long as it.
 *
 * Structs that begin with struct_size: set it to the sizeof of the struct. Fields that the caller's
 * version of this header lacks count as zero. Options with struct_size 0 are FP8C_ERR_INPUT.
 *
 * Ownership: an object made with a context keeps it alive. fp8c_context_destroy gives up the
 * caller's hold, and no new object can be made: FP8C_ERR_INPUT. A program is independent of its
 * module. A handle must not be used or destroyed after its destroy call.
 *
 * Threads: any number may use one context at the same time. A module, a program, a lender, a
 * training, a calibration, a doctor, a tuning or a guard belongs to one thread at a time. Several
 * threads may compile one module at the same time if no thread changes it any more. */
#ifndef FP8C_H
#define FP8C_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FP8C_VERSION_MAJOR 0
#define FP8C_VERSION_MINOR 1
#define FP8C_VERSION_PATCH 0
/* The number of the binary interface, raised when a function goes or changes. The soname and the
 * symbol version carry it, so the loader refuses a library of another one. What an older version
 * lacks shows when the loader misses a function, or by struct_size. */
#define FP8C_ABI 1

#if defined(__GNUC__)
#define FP8C_API __attribute__((visibility("default")))
#else
#define FP8C_API
#endif

/* The version of this header: MAJOR * 10000 + MINOR * 100 + PATCH. */
#define FP8C_VERSION_NUMBER                                                                        \
    (FP8C_VERSION_MAJOR * 10000 + FP8C_VERSION_MINOR * 100 + FP8C_VERSION_PATCH)

/* The version of the library that is linked, "0.1.0". */
FP8C_API const char *fp8c_version(void);

typedef enum fp8c_status {
    FP8C_OK = 0,
    FP8C_ERR_INPUT,       /* the text, graph, option or data given is wrong */
    FP8C_ERR_UNSUPPORTED, /* the input is well-formed, but this target or recipe can't do it */
    FP8C_ERR_MEMORY,      /* an allocation failed */
    FP8C_ERR_IO,          /* a file or the system failed */
    FP8C_ERR_LIBRARY,     /* a component (LLVM, oneDNN, the GPU's driver) is missing or refused */
    FP8C_ERR_INTERNAL,    /* a bug in fp8c */
    FP8C_ERR_CANCELLED    /* a callback asked to stop */
} fp8c_status;

typedef enum fp8c_dtype {
    FP8C_F32, FP8C_BF16, FP8C_F16, FP8C_I32, FP8C_BOOL, FP8C_F8E4M3, FP8C_F8E5M2, FP8C_F8E8M0,
    FP8C_I64
} fp8c_dtype;

enum { FP8C_MAX_RANK = 8 };

typedef struct fp8c_type {
    fp8c_dtype dtype;
    int32_t rank; /* 0: a scalar */
    int64_t dim[FP8C_MAX_RANK];
} fp8c_type;

FP8C_API int64_t fp8c_type_bytes(const fp8c_type *type);

/* Receives text. If it returns non-zero, the call that wrote fails with FP8C_ERR_IO. */
typedef int (*fp8c_write_fn)(void *user, const char *text, size_t size);

/* ---- context ---- */

typedef struct fp8c_context fp8c_context;

typedef enum fp8c_log_level { FP8C_LOG_WARNING, FP8C_LOG_INFO, FP8C_LOG_DEBUG } fp8c_log_level;
/* Receives one line without a newline. */
typedef void (*fp8c_log_fn)(void *user, fp8c_log_level level, const char *text);

typedef struct fp8c_progress { /* how far a long call is */
    size_t struct_size;
    const char *phase;   /* "passes", "steps", "kernels", "report"; "budget", "tune", "burn" */
    const char *item;    /* the next item: a pass, a function, a kernel; "" once all are done */
    int64_t done, total; /* items of the phase */
    double seconds_left; /* of the phase, estimated; < 0: not known */
} fp8c_progress;
/* Called by the thread that made the call: before and after each phase, between items, and within a
 * pass that takes long. A non-zero result cancels: the call fails with FP8C_ERR_CANCELLED, and
 * everything is as it was before, but that kernels stay in the cache. */
typedef int (*fp8c_progress_fn)(void *user, const fp8c_progress *progress);

/* The embedder's threads. fp8c_parallel_fn runs task(job, thread, begin, end) over parts that make
 * up [0, n_tasks), each part once, and returns when all are done and their writes are visible.
 * `thread` is in [0, parallel_threads), and two parts that run at the same time have different
 * ones. Which thread runs which part changes no bit. FP8C_ERR_INPUT: a task was left out, or done
 * twice. */
typedef void (*fp8c_task_fn)(void *job, int32_t thread, int64_t begin, int64_t end);
typedef void (*fp8c_parallel_fn)(void *user, fp8c_task_fn task, void *job, int64_t n_tasks);

typedef struct fp8c_context_options {
    size_t struct_size; /* sizeof(fp8c_context_options) */
    /* The embedder's allocator: give both functions or neither. alloc returns memory aligned to
     * `align`, or NULL. Several threads may call them at the same time. All memory of fp8c itself
     * comes from it; LLVM, oneDNN, CUDA's libraries, SQLite and jansson use malloc, and the first
     * two mostly end the process where it fails ("Out of memory" in frontend/README.md). */
    void *(*alloc)(void *user, size_t size, size_t align);
    void (*free)(void *user, void *ptr, size_t size);
    void *allocator_user;
    /* Where the GPU's libraries are, absolute paths. Each option replaces an environment variable:
     * NULL takes the variable, "" counts as unset. The strings are copied. */
    const char *gpu_library_path; /* FP8C_CUDA_PATH: fp8c looks in this folder and no other */
    const char *cuda_home;        /* CUDA_HOME: a toolkit's folder */
    const char *cuda_path;        /* CUDA_PATH: another toolkit's folder */
    const char *python_env;       /* VIRTUAL_ENV: a Python environment whose wheels have them */
    const char *home;             /* HOME: the user's own wheels, and the cache's default place */
    /* The folder of the kernel cache, which several processes may share. NULL takes FP8C_CACHE_DIR,
     * else XDG_CACHE_HOME/fp8c, else HOME/.cache/fp8c; "" turns the cache off. */
    const char *cache_dir;
    int64_t cache_bytes; /* the most it may hold; entries used longest ago go first. 0: 1 GiB */
    const char *tuning; /* FP8C_TUNING: the file of the tuning database. NULL takes the variable,
                           else `tuning.db` in the cache's folder; "": none */
    fp8c_log_fn log;    /* NULL: no log. Any thread that works for a call may call it */
    void *log_user;
    int32_t verbose; /* FP8C_VERBOSE: the highest fp8c_log_level that is logged, 0 to 2. 0 takes the
                        variable; < 0: only warnings */
    const char *dump; /* FP8C_DUMP: a folder for texts of what each compile makes. NULL takes the
                         variable; "": none */
    fp8c_progress_fn progress;    /* may be NULL */
    void *progress_user;
    fp8c_parallel_fn parallel; /* may be NULL. Runs programs, and the caller compiles kernels */
    void *parallel_user;
    int32_t parallel_threads;     /* how many there are, 1 to 256 */
    int32_t threads; /* for programs whose option is 0; 0: the CPUs this process may run on */
} fp8c_context_options;

/* options may be NULL. FP8C_ERR_INPUT: an option is wrong. There is no context that could hold the
 * message, so `log` receives it, if given. FP8C_ERR_MEMORY. */
FP8C_API fp8c_status fp8c_context_create(const fp8c_context_options *options, fp8c_context **out);
FP8C_API void fp8c_context_destroy(fp8c_context *ctx);

/* For a signal handler that ends the process: removes the temporary files of all calls that are
 * running on this context, and keeps it from writing any afterwards (FP8C_ERR_CANCELLED). What has
 * its final name stays. Async-signal-safe; any thread may call it while the context lives. */
FP8C_API void fp8c_context_abandon_files(fp8c_context *ctx);

/* The last failure of the calling thread on this context. If it has a place in a text, the message
 * is "file:line:column: error: message" with the line and a caret, else "error: message". "" if no
 * call failed yet. Valid until the thread's next failing call on the context, or its end. */
FP8C_API const char *fp8c_context_message(const fp8c_context *ctx);

/* ---- modules ---- */

typedef struct fp8c_module fp8c_module;

typedef struct fp8c_dim {
    const char *name;
    int64_t value;
} fp8c_dim;

/* Parse the textual language (frontend/text/README.md). `dims` replace the values of `dim` lines;
 * for a dim that is a bound, `dim B <= 32`, they replace the bound. Messages show `file`. */
FP8C_API fp8c_status fp8c_module_parse(fp8c_context *ctx, const char *text, size_t size,
                                       const char *file, const fp8c_dim *dims, size_t n_dims,
                                       fp8c_module **out);
FP8C_API void fp8c_module_destroy(fp8c_module *module);

typedef struct fp8c_module_info {
    size_t struct_size;           /* sizeof(fp8c_module_info), set by the caller */
    const char *name;             /* the module's */
    int64_t parameters, elements; /* how many; the sum of their elements */
    int64_t accumulate;           /* micro-steps per update */
    int64_t optimizer_steps;      /* the length of the optimizer's schedule; 0: none is declared */
    int32_t needs_steps; /* the schedule has an end and the module does not say where: a compile of
                            `update` needs fp8c_compile_options.optimizer_steps */
} fp8c_module_info;
FP8C_API void fp8c_module_report(const fp8c_module *module, fp8c_module_info *out);

/* Print the module in canonical form. Parsing that text gives the identical module. */
FP8C_API fp8c_status fp8c_module_print(const fp8c_module *module, fp8c_write_fn write, void *user);

/* The value of a dim; the bound, if it is a bound; -1 if the module has no dim of that name. */
FP8C_API int64_t fp8c_module_dim(const fp8c_module *module, const char *name);

/* ---- building a module without text: the same graph, node for node ---- */

typedef uint32_t fp8c_value; /* a value of the function being built; 0: the call failed */

typedef enum fp8c_init {
    FP8C_INIT_ZEROS, FP8C_INIT_ONES, FP8C_INIT_CONST, FP8C_INIT_NORMAL, FP8C_INIT_UNIFORM
} fp8c_init;

typedef enum fp8c_attr_kind {
    FP8C_ATTR_INT, FP8C_ATTR_FLOAT, FP8C_ATTR_BOOL, FP8C_ATTR_DTYPE, FP8C_ATTR_STRING,
    FP8C_ATTR_INTS
} fp8c_attr_kind;

typedef struct fp8c_attr {
    const char *name;
    fp8c_attr_kind kind;
    int64_t i;         /* INT, BOOL, DTYPE */
    double f;          /* FLOAT */
    const char *s;     /* STRING */
    const int64_t *ints;
    int32_t n_ints;    /* INTS */
} fp8c_attr;

/* The functions below copy what they are given. */
FP8C_API fp8c_status fp8c_module_create(fp8c_context *ctx, const char *name, fp8c_module **out);
/* Declare a parameter. `argument` is the number of CONST, NORMAL or UNIFORM. */
FP8C_API fp8c_status fp8c_module_param(fp8c_module *module, const char *name, const fp8c_type *type,
                                       fp8c_init init, double argument);
/* Set fields of the optimizer by name, as the text's `optimizer adamw {...}`. */
FP8C_API fp8c_status fp8c_module_optimizer(fp8c_module *module, const fp8c_attr *fields, size_t n);
/* Add a rule after all others, so that it wins. `rule` is what the text has after `recipe`, as
 * "\"h.*\" wgrad = bf16". `origin` is what messages and decisions call its place, as "--rule"; it
 * may be NULL. The log warns where a program in bf16 or f32 overrides an added rule. */
FP8C_API fp8c_status fp8c_module_rule(fp8c_module *module, const char *rule, const char *origin);
/* Check the whole module, as fp8c_compile does: every rule must match a linear. */
FP8C_API fp8c_status fp8c_module_check(fp8c_module *module);

/* A function is built between begin and end, one at a time. */
FP8C_API fp8c_status fp8c_func_begin(fp8c_module *module, const char *name);
FP8C_API fp8c_value fp8c_func_input(fp8c_module *module, const char *name, const fp8c_type *type);
FP8C_API fp8c_value fp8c_func_param(fp8c_module *module, const char *name); /* reads a parameter */
FP8C_API fp8c_value fp8c_func_const(fp8c_module *module, double value);     /* f32 [] */
FP8C_API fp8c_value fp8c_func_op(fp8c_module *module, const char *op, const fp8c_value *inputs,
                                 size_t n_inputs, const fp8c_attr *attrs, size_t n_attrs);
FP8C_API fp8c_status fp8c_func_result(fp8c_module *module, const char *name, fp8c_value value);
/* Fails with the first failure since begin. The module then drops the function. */
FP8C_API fp8c_status fp8c_func_end(fp8c_module *module);

/* ---- compiling ---- */

typedef struct fp8c_program fp8c_program;
typedef struct fp8c_comm fp8c_comm; /* fp8c_ranks.h */

/* A parameter of a linear, and the recipe under which it is stored as FP8. */
typedef struct fp8c_stored_as {
    const char *name, *recipe;
} fp8c_stored_as;

/* "Options of a compile" in frontend/embedding.md says more of each. Name patterns: * stands for
 * any run of characters, ? for one, and commas separate several. One that matches nothing is
 * FP8C_ERR_INPUT. */
typedef struct fp8c_compile_options {
    size_t struct_size;      /* sizeof(fp8c_compile_options) */
    const char *target; /* "cpu" (default), "reference", "cuda" (the GPU of this machine), an
                           architecture as "sm_90a", or "cpu:x86-64-v3", "cpu:x86-64-v4": code for
                           any CPU of that level */
    const char *recipe; /* "bf16" (default), or any recipe of the text, as "block {pow2 = true}" */
    int32_t threads;         /* 0: the CPUs this process may run on */
    int32_t no_fuse;         /* one kernel per node: slower, the same bits; for tests */
    int32_t inference;       /* only `eval`: any results, no backward */
    int32_t pair;            /* `forward` and `backward` for a caller that owns the loop and the
                                optimizer: "a layer in the caller's loop" below */
    int32_t profile;         /* measure the time of every step */
    double lr;               /* > 0: replaces the optimizer's learning rate */
    int64_t optimizer_steps; /* > 0: the length of the schedule, instead of the module's */
    const char *keep;        /* pattern: FP8 operands that micro_step also gives out; for tests */
    const char *print_after; /* a pass's name: print the module after it through `write` */
    fp8c_write_fn write;
    void *write_user;
    int32_t no_device; /* only compile: no such GPU or CPU need be there, and nothing runs */
    /* Only for CUDA targets, but for listings and text_only: */
    int32_t device;    /* the GPU's ordinal, as the driver counts */
    int32_t listings;  /* keep what fp8c_program_image gives; all kernels are then in one image */
    int32_t text_only; /* stop at CUDA C, which needs no NVRTC, or at LLVM IR; implies no_device and
                          listings */
    void *stream;      /* the embedder's CUstream: a run is enqueued there, and fp8c_program_wait
                          waits. NULL: the program's own, and a run returns when it is done */
    /* The embedder's device memory: give both functions or neither. device_alloc returns memory
     * aligned to 256 bytes, or NULL. device_free is given the size as well. */
    void *(*device_alloc)(void *user, size_t size);
    void (*device_free)(void *user, void *ptr, size_t size);
    void *device_user;
    const char *attention; /* who computes it: "table" (default: a table decides), "own", "cudnn" */
    const struct fp8c_calibration *calibration; /* for recipe "auto" */
    /* Keep weights in memory as FP8 codes: with `inference`, or with `frozen` those that are not
     * trained. `stored` is the recipe, and the module's rules count; NULL: weights are f32.
     * `stored_weights` instead names the weights. */
    const char *stored;
    const fp8c_stored_as *stored_weights;
    size_t n_stored_weights;
    /* A memory budget, for training: one of the first two, the other 0. fp8c recomputes activations
     * in the backward until the program fits; the bits are the same. FP8C_ERR_UNSUPPORTED names the
     * least that can be met. */
    int64_t memory_bytes;   /* of everything, as planned_bytes of fp8c_info */
    double memory_share;    /* in (0, 1): the share to keep of the activations' bytes */
    const char *checkpoint; /* pattern: of the activations, keep only these for the backward */
    const char *recompute;  /* pattern: recompute the matching values in the backward */
    int32_t plan_only; /* stop before code is made: decisions, steps, memory and estimates, but
                          nothing to run. Needs no LLVM, NVRTC or GPU; for a CPU oneDNN */
    const char *values; /* fp8c_compile_file of a module with bounds: the values to put into the
                           file, "B=1,2,4,8". A dim that is not named, or NULL: every value */
    int32_t observe; /* with `inference`: calibrates `delayed`, for fp8c_load_options.scales */
    /* With `pair`: */
    const char *cotangents;   /* pattern: results of forward that have one. NULL: every float */
    const char *gradients_of; /* pattern: inputs whose gradients backward gives. NULL: none */
    int32_t add_gradients; /* backward adds gradients of parameters to variables grad.NAME */
    int32_t train_step;    /* also `micro_step` and `update`, as without `pair` */
    const char *external; /* pattern: variables and ports that get no memory from fp8c: "memory of
                             the caller" below. Not for a file, a calibration or a tuner */
    /* Watch what the linears' GEMMs read and write: "statistics" of fp8c_diagnose.h. Patterns of
     * LINEAR.x, .w, .dy (operands), .y, .dx and .dw (results). Not for a file. */
    const char *stats;        /* add functions with figures: micro_step.stats, forward.stats, ... */
    const char *stats_recipe; /* with `stats`: also figures as if this recipe scaled the operands */
    const char *dump; /* add micro_step.dump: with the values as further results NAME in f32, and if
                         they are quantized NAME.q and NAME.scale_inv */
    /* Train with several ranks (data parallel). The struct is copied; what `user` and `nccl` stand
     * for must outlive the program. NULL: the rank is alone. */
    const fp8c_comm *comm;
    int32_t ranks; /* with no_device or plan_only: compile for so many, without `comm` */
    int32_t zero;  /* the stage of ZeRO: ranks share 1 the moments, 2 also the gradients, 3 also the
                      parameters (fp8c_variable.rows). 0: the module's, else none; -1: none */
    const char *reduce_dtype; /* how gradients travel: "f32" (default) or "bf16" */
    const char *reduce_at;    /* when they are summed: "micro_step" (default) or "update" */
    const char *reduce_order; /* who adds: "ranks" (default: fp8c, in their order) or "library" */
    int32_t witness;    /* 1: for fp8c_program_run_witnessed. Not for "reference", a file */
    const char *frozen; /* patterns: parameters that are not trained. NULL: none */
    struct fp8c_arena *arena; /* of the module's context: "arenas" below. Not with `comm`, for a file,
                                 a calibration or a tuner. NULL: the program has its own memory */
    /* 1: steps quantize weights each time; no codes are kept between them, which saves a byte or two
     * a weight; so with a budget. The same bits */
    int32_t requantize;
    /* CUDA, sm_90a and later, driver 12.3 and later: programmatic dependent launch. The bits are the
     * same; what it gains no GPU has measured */
    int32_t dependent_launch;
    /* CUDA: the GEMMs of weights' gradients run beside the steps after them. The bits are the same;
     * it takes more memory, and no GPU has measured it */
    int32_t wgrad_branch;
} fp8c_compile_options;

/* options may be NULL. */
FP8C_API fp8c_status fp8c_compile(const fp8c_module *module, const fp8c_compile_options *options,
                                  fp8c_program **out);
FP8C_API void fp8c_program_destroy(fp8c_program *program);

/* ---- ahead of time: .f8x files, which frontend/f8x/README.md describes ---- */

/* Compile a module for each of `options` (at least one, each another target) and write PATH, whole
 * or not at all. no_device is implied. "cpu" is code for a CPU that has all features of this one.
 * FP8C_ERR_INPUT: target reference, and options that a file can't have. */
FP8C_API fp8c_status fp8c_compile_file(const fp8c_module *module,
                                       const fp8c_compile_options *options, size_t n_options,
                                       const char *path);

typedef struct fp8c_open_options {
    size_t struct_size;      /* sizeof(fp8c_open_options) */
    const char *target; /* one of the file's, or "cpu", "cuda"; NULL: the GPU of this machine if the
                           file has code for it, else the CPU */
    int32_t threads, profile, device; /* these and all below: as in fp8c_compile_options */
    int32_t no_device;       /* only look: code of any target, and nothing to run */
    void *stream;
    void *(*device_alloc)(void *user, size_t size);
    void (*device_free)(void *user, void *ptr, size_t size);
    void *device_user;
    const char *external;
    const fp8c_comm *comm; /* FP8C_ERR_INPUT: the file was compiled for more ranks, or for fewer */
    const void *bytes;     /* a file's bytes, if `path` is NULL */
    size_t n_bytes;
} fp8c_open_options;
/* Make a program from a file, or from a file's bytes, which are copied. options may be NULL.
 * FP8C_ERR_INPUT: it is damaged, or not such a file. FP8C_ERR_UNSUPPORTED: another version of fp8c
 * wrote it, or no target of it runs here. */
FP8C_API fp8c_status fp8c_program_open(fp8c_context *ctx, const char *path,
                                       const fp8c_open_options *options, fp8c_program **out);

/* ---- dims that are bounds: `dim B <= 32` ("Dims that are bounds" in frontend/README.md) ---- */

enum { FP8C_MAX_BOUNDS = 8 }; /* of one module */
typedef struct fp8c_program_dim {
    const char *name;
    int64_t value, bound; /* value: now */
} fp8c_program_dim;
/* Ends a loop. */
FP8C_API fp8c_status fp8c_program_dims(const fp8c_program *program, int index,
                                       fp8c_program_dim *out);
/* Set a dim's value. Types, steps and figures are then those of this value, and buffers that were
 * bound are so no longer. */
FP8C_API fp8c_status fp8c_program_set_dim(fp8c_program *program, const char *name, int64_t value);
/* Set all dims that the shapes of a function's inputs determine, as fp8c_program_call does. NULL,
 * or a tensor of another rank, determines nothing. */
struct fp8c_tensor_view;
FP8C_API fp8c_status fp8c_program_fit(fp8c_program *program, int function,
                                      const struct fp8c_tensor_view *const *inputs,
                                      size_t n_inputs);

/* ---- running ---- */

/* Give every variable that has memory its initial value, which depends on the seed and its name
 * alone, then run `prepare` if there is one: it makes the scales anew. A function can run once all
 * its variables have values: from this call, fp8c_program_load or _write, or a bound tensor.
 *
 * A caller that later writes parameters runs `prepare` again. A program that trains by itself keeps
 * codes of weights ("Codes of weights" in frontend/README.md). It runs `prepare` by itself after a
 * call that loads, writes or binds, and before each step while a parameter's memory is a tensor of
 * the caller's. It does not know what is written through fp8c_variable.data: run `prepare` then. */
FP8C_API fp8c_status fp8c_program_initialize(fp8c_program *program, uint64_t seed);

/* The index of a function (eval, micro_step, micro_step.first, update, prepare; in a pair forward,
 * backward and others, as below), or -1. */
FP8C_API int fp8c_program_function(const fp8c_program *program, const char *name);
FP8C_API const char *fp8c_program_function_name(const fp8c_program *program,
                                                int function); /* NULL past the last */

typedef enum fp8c_side { FP8C_INPUT = 0, FP8C_OUTPUT = 1 } fp8c_side;

typedef struct fp8c_port {
    const char *name;
    fp8c_type type;
    int32_t variable; /* >= 0: the port reads or replaces this variable; -1: the caller's buffer */
} fp8c_port;

/* Port `index` of a function. Ends a loop. */
FP8C_API fp8c_status fp8c_program_port(const fp8c_program *program, int function, fp8c_side side,
                                       int index, fp8c_port *out);
FP8C_API int fp8c_program_find_port(const fp8c_program *program, int function, fp8c_side side,
                                    const char *name); /* -1: none */
/* The buffer of a port is the program's own until the caller binds another, row-major and aligned
 * to its element, which the caller keeps alive; NULL: the program's own again. On a GPU buffers are
 * host memory that runs copy in and out; bound device memory is used in place. An output must not
 * overlap a variable: FP8C_ERR_INPUT. NULL: no such port, no memory, a port that carries a variable
 * (fp8c_program_read), or an external port with nothing bound. */
FP8C_API void *fp8c_program_buffer(fp8c_program *program, int function, fp8c_side side, int index);
FP8C_API fp8c_status fp8c_program_bind(fp8c_program *program, int function, fp8c_side side,
                                       int index, void *buffer);

/* Run a function. With the embedder's stream it only enqueues: leave the buffers alone until
 * fp8c_program_wait, or something else, has waited for the stream. An input of 4 or 8 bytes is read
 * before the call returns. After a failure on a GPU every later run fails too, and says so. */
FP8C_API fp8c_status fp8c_program_run(fp8c_program *program, int function);
/* The function that a run of `function` runs now: itself or, under recipe `delayed` while an amax
 * history is empty, its form NAME.first ("The first step" in frontend/embedding.md). Fails as a run
 * does, with *form = -1. */
FP8C_API fp8c_status fp8c_program_form(fp8c_program *program, int function, int *form);
/* Wait for the runs enqueued so far, and report what failed in them. On a CPU it does nothing. */
FP8C_API fp8c_status fp8c_program_wait(fp8c_program *program);

/* A tensor of the caller's. It has the layout of DLPack's DLTensor (v0.2 to v1.x), so a pointer to
 * one may be passed. */
typedef struct fp8c_tensor_view {
    void *data;
    struct {
        int32_t type, id;
    } device; /* kDLCPU 1, kDLCUDA 2, kDLCUDAHost 3, kDLCUDAManaged 13 */
    int32_t ndim;
    struct {
        uint8_t code, bits;
        uint16_t lanes;
    } dtype; /* f32 2,32; f16 2,16; bf16 4,16; i32 0,32; i64 0,64; bool 6,8 (or 1,8; bytes 0 and 1);
             f8e4m3 10,8; f8e5m2 12,8; f8e8m0 14,8; lanes 1 */
    int64_t *shape;
    int64_t *strides;      /* in elements; NULL: contiguous */
    uint64_t byte_offset;
} fp8c_tensor_view;

/* Bind tensors and run. `inputs` and `outputs` are for the function's ports that carry no variable,
 * in their order ("Tensors of the caller" in frontend/README.md). Each has its port's dtype and
 * shape, from which dims that are bounds take their values. It is contiguous and aligned, in host
 * memory or on the program's device. An output must not overlap another tensor or a variable.
 * Otherwise FP8C_ERR_INPUT: nothing has run, and the message says why. The tensors stay bound. */
FP8C_API fp8c_status fp8c_program_call(fp8c_program *program, int function,
                                       const fp8c_tensor_view *const *inputs, size_t n_inputs,
                                       const fp8c_tensor_view *const *outputs, size_t n_outputs);
/* A port's buffer, or a variable's memory (on a GPU: device memory), as a tensor with row-major
 * strides. Valid until other memory is bound, a dim changes its value, or the program is destroyed.
 * FP8C_ERR_INPUT: there is no such port or variable, or no memory. FP8C_ERR_MEMORY. */
FP8C_API fp8c_status fp8c_program_port_view(fp8c_program *program, int function, fp8c_side side,
                                            int index, fp8c_tensor_view *out);
FP8C_API fp8c_status fp8c_program_variable_view(fp8c_program *program, int variable,
                                                fp8c_tensor_view *out);

/* ---- memory that is lent ----
 *
 * Host memory for the results of a call as DLPack tensors, which is lent again once a framework has
 * deleted them ("Memory that is lent" in frontend/embedding.md). */
typedef struct fp8c_lender fp8c_lender;
/* DLPack's DLManagedTensorVersioned, version 1.0. Its holder gives the memory back by calling
 * tensor->deleter(tensor), once. */
typedef struct fp8c_managed_tensor {
    uint32_t major, minor;
    void *manager;
    void (*deleter)(struct fp8c_managed_tensor *self);
    uint64_t flags;
    fp8c_tensor_view tensor; /* its strides are row-major, never NULL */
} fp8c_managed_tensor;

/* For the n tensors of a call. FP8C_ERR_INPUT: the context was destroyed. FP8C_ERR_MEMORY. */
FP8C_API fp8c_status fp8c_lender_create(fp8c_context *ctx, size_t n, fp8c_lender **out);
/* What is lent is freed as it is given back; until then the context lives on. */
FP8C_API void fp8c_lender_destroy(fp8c_lender *lender);
/* views[i] gives dtype and shape of the i-th tensor: contiguous, on device {1, 0}, with elements of
 * whole bytes. Sets views[i]->data, aligned to 64 bytes, and out[i], whose holder gives the memory
 * back. The contents are undefined. FP8C_ERR_INPUT: a view is wrong. FP8C_ERR_MEMORY. After a
 * failure nothing is lent. */
FP8C_API fp8c_status fp8c_lender_lend(fp8c_lender *lender, fp8c_tensor_view *const *views,
                                      fp8c_managed_tensor **out);
/* The bytes of memory that the lender has, lent or idle. With `trim` it frees idle memory first. */
FP8C_API int64_t fp8c_lender_bytes(fp8c_lender *lender, int32_t trim);

/* ---- arenas ----
 *
 * Programs that never run at the same time, as one for training and one for evaluation, can work in
 * one arena: memory as large as the program of them that needs most ("One arena for several
 * programs" in frontend/embedding.md). */
typedef struct fp8c_arena fp8c_arena;
typedef struct fp8c_arena_options {
    size_t struct_size; /* sizeof(fp8c_arena_options) */
    /* CUDA: who gives the memory, as in fp8c_compile_options; those of the programs do not count
     * for it. Both outlive the arena and its programs. */
    void *(*device_alloc)(void *user, size_t size);
    void (*device_free)(void *user, void *ptr, size_t size);
    void *device_user;
} fp8c_arena_options;

/* An arena without memory, to give to compiles of modules of this context. options may be NULL. */
FP8C_API fp8c_status fp8c_arena_create(fp8c_context *ctx, const fp8c_arena_options *options,
                                       fp8c_arena **out);
/* Its programs live on, and its memory with the last of them. */
FP8C_API void fp8c_arena_destroy(fp8c_arena *arena);
/* The bytes of memory that it holds now; 0 while no program has it. Any thread may ask. */
FP8C_API int64_t fp8c_arena_bytes(const fp8c_arena *arena);

/* ---- a layer in the caller's loop ----
 *
 * A program compiled with `pair` is a function with its vector-Jacobian product, for a caller that
 * owns the loop, the optimizer and the memory. Ports have names and stand in this order:
 *
 *     eval            the inputs -> the results
 *     forward         the inputs -> the results, then the saved values saved.0, saved.1, ...
 *     backward        dRESULT of each result that has a cotangent, the inputs that backward reads,
 *                     the saved values -> dINPUT of each input of `gradients_of`, then the gradient
 *                     of each parameter that is not `frozen`, by the parameter's name
 *     forward.first, backward.first    the same while an amax history is empty
 *     forward.stats, backward.stats    the same with figures, with `stats`
 *     update_scales   ends a step under `delayed` or `current`, after the optimizer
 *     prepare         makes scales from the histories and the weights as they are
 *
 * "A layer in the caller's loop" in frontend/embedding.md has the rules of gradients and of what is
 * saved. While a forward waits for its backward, no parameter and no scale may change.
 *
 * A whole program: two layers, three micro-batches a step, the caller's own gradient descent:
 *
 *     #include <fp8c.h>
 *     #include <math.h>
 *     #include <stdio.h>
 *     #include <stdlib.h>
 *     #include <string.h>
 *
 *     enum { LAYERS = 2, MICRO = 3, N = 64 * 64 }; // N: elements of [64, 64]
 *
 *     static const char text[] =
 *         "module block\n"
 *         "param norm: f32[64] ones\n"
 *         "param up: f32[64, 256] normal(0.05)\n"
 *         "param down: f32[256, 64] normal(0.05)\n"
 *         "func forward(%x: f32[64, 64]) -> (%y: f32[64, 64]) {\n"
 *         "  return add(%x, linear(gelu(linear(rmsnorm(%x, norm), up)), down))\n"
 *         "}\n";
 *
 *     static fp8c_context *ctx;
 *     static fp8c_program *layer[LAYERS];
 *     static fp8c_saved *saved[LAYERS][MICRO]; // handles of what forwards save for backwards
 *     static float x[MICRO][LAYERS + 1][N], dy[N], dx[N], goal[N];
 *
 *     static void check(fp8c_status status)
 *     {
 *         if (status != FP8C_OK) {
 *             fprintf(stderr, "%s\n", fp8c_context_message(ctx));
 *             exit(1);
 *         }
 *     }
 *
 *     static void compile(void)
 *     {
 *         const fp8c_compile_options options = {.struct_size = sizeof options,
 *                                               .recipe = "delayed",
 *                                               .pair = 1,
 *                                               .gradients_of = "x",
 *                                               .add_gradients = 1};
 *         fp8c_module *module;
 *         check(fp8c_module_parse(ctx, text, strlen(text), "block.f8", NULL, 0, &module));
 *         for (int l = 0; l < LAYERS; l++) {
 *             check(fp8c_compile(module, &options, &layer[l]));
 *             check(fp8c_program_initialize(layer[l], (uint64_t)l));
 *             for (int i = 0; i < MICRO; i++)
 *                 check(fp8c_saved_create(layer[l], &saved[l][i]));
 *         }
 *         fp8c_module_destroy(module);
 *     }
 *
 *     static fp8c_tensor_view tensor(float *data)
 *     {
 *         static int64_t shape[] = {64, 64};
 *         return (fp8c_tensor_view){.data = data, .device = {1, 0}, .ndim = 2, .dtype = {2, 32, 1},
 *                                   .shape = shape};
 *     }
 *
 *     // Forward and backward of micro-batch i. Its loss: the mean of (y - goal)^2.
 *     static double micro_batch(int i, int first)
 *     {
 *         double loss = 0;
 *         for (int l = 0; l < LAYERS; l++) {
 *             const fp8c_tensor_view in = tensor(x[i][l]), out = tensor(x[i][l + 1]);
 *             const fp8c_tensor_view *inputs[] = {&in}, *outputs[] = {&out};
 *             check(fp8c_program_forward(layer[l], first, saved[l][i], inputs, 1, outputs, 1));
 *         }
 *         for (int k = 0; k < N; k++) {
 *             const float d = x[i][LAYERS][k] - goal[k];
 *             loss += (double)d * d / N;
 *             dy[k] = 2 * d / N;
 *         }
 *         for (int l = LAYERS; l-- > 0; memcpy(dy, dx, sizeof dy)) { // dx is dy of the layer below
 *             const fp8c_tensor_view d = tensor(dy), in = tensor(x[i][l]), out = tensor(dx);
 *             const fp8c_tensor_view *inputs[] = {&d, &in}, *outputs[] = {&out};
 *             check(fp8c_program_backward(layer[l], saved[l][i], inputs, 2, outputs, 1));
 *         }
 *         return loss;
 *     }
 *
 *     // Gradient descent on the program's parameters, which lie in memory on a CPU.
 *     static void descend(fp8c_program *program)
 *     {
 *         fp8c_variable w, g;
 *         char name[64];
 *         for (int i = 0; fp8c_program_variable(program, i, &w) == FP8C_OK; i++) {
 *             if (!w.is_param)
 *                 continue;
 *             snprintf(name, sizeof name, "grad.%s", w.name);
 *             check(fp8c_program_variable(program, fp8c_program_find_variable(program, name), &g));
 *             for (int64_t k = 0; k < fp8c_type_bytes(&w.type) / 4; k++) {
 *                 ((float *)w.data)[k] -= 0.5f * ((float *)g.data)[k] / MICRO;
 *                 ((float *)g.data)[k] = 0;
 *             }
 *         }
 *         // Once a step, after the optimizer: histories, the next scales, the weights' amaxes.
 *         check(fp8c_program_run(program, fp8c_program_function(program, "update_scales")));
 *     }
 *
 *     int main(void)
 *     {
 *         check(fp8c_context_create(NULL, &ctx));
 *         compile();
 *         for (int k = 0; k < N; k++)
 *             goal[k] = sinf((float)(k % 64) / 7);
 *         for (int step = 1; step <= 20; step++) {
 *             double loss = 0;
 *             for (int i = 0; i < MICRO; i++) {
 *                 for (int k = 0; k < N; k++)
 *                     x[i][0][k] = cosf((float)(k + i) / 5);
 *                 // In the first step every history is empty: operands are scaled by own amaxes.
 *                 loss += micro_batch(i, step == 1) / MICRO;
 *             }
 *             for (int l = 0; l < LAYERS; l++)
 *                 descend(layer[l]);
 *             if (step == 1 || step % 10 == 0)
 *                 printf("step %d loss %.4f\n", step, loss);
 *         }
 *         for (int l = 0; l < LAYERS; l++) {
 *             for (int i = 0; i < MICRO; i++)
 *                 fp8c_saved_destroy(saved[l][i]);
 *             fp8c_program_destroy(layer[l]);
 *         }
 *         fp8c_context_destroy(ctx);
 *         return 0;
 *     }
 */

/* A handle: memory for what one forward saves, on the program's device. It holds a forward until
 * the backward of that forward has run, and then serves the next one. It belongs to the thread of
 * its program, and may be destroyed before or after it. */
typedef struct fp8c_saved fp8c_saved;
/* FP8C_ERR_INPUT: the program has no `forward`, or no memory. FP8C_ERR_MEMORY. */
FP8C_API fp8c_status fp8c_saved_create(fp8c_program *program, fp8c_saved **out);
FP8C_API void fp8c_saved_destroy(fp8c_saved *saved);
/* Give up the forward that it holds, if any: its backward will not run. */
FP8C_API void fp8c_saved_drop(fp8c_saved *saved);

/* fp8c_program_call of forward, or of another function that `which` names: 0, or a sum of these. */
typedef enum fp8c_forward {
    FP8C_FORWARD_FIRST = 1, /* forward.first, if the program has it */
    FP8C_FORWARD_STATS = 2, /* the one with figures, whose backward has them too */
} fp8c_forward;
/* The handle takes what is saved: `outputs` are for the results alone. A call that fails leaves it
 * as it was. FP8C_ERR_INPUT also: it is another program's, or holds a forward; this forward would
 * replace a state while another waits; there is no function that watches. */
FP8C_API fp8c_status fp8c_program_forward(fp8c_program *program, int32_t which, fp8c_saved *saved,
                                          const fp8c_tensor_view *const *inputs, size_t n_inputs,
                                          const fp8c_tensor_view *const *outputs,
                                          size_t n_outputs);
/* fp8c_program_call of the backward that belongs to the handle's forward. `inputs` are the
 * cotangents, then the inputs of forward that backward reads, with the values that they had. The
 * handle is free then; a call that fails leaves it as it was. FP8C_ERR_INPUT also: it is another
 * program's, or holds no forward. */
FP8C_API fp8c_status fp8c_program_backward(fp8c_program *program, fp8c_saved *saved,
                                           const fp8c_tensor_view *const *inputs, size_t n_inputs,
                                           const fp8c_tensor_view *const *outputs,
                                           size_t n_outputs);

/* ---- variables ---- */

/* A variable: a parameter or a state. Valid for the program's life. */
typedef struct fp8c_variable {
    const char *name;
    fp8c_type type;
    int32_t is_param;
    void *data; /* NULL on a GPU: use read and write. Until other memory is bound. Who writes a
                   parameter here runs `prepare` afterwards */
    /* 0: this rank has all of it. Else (see `zero`) the rows of the whole: `type` is a rank's part,
     * the rows from rank * type.dim[0] on. Where the whole ends before the part, zeros follow */
    int64_t rows;
} fp8c_variable;
/* Ends a loop. */
FP8C_API fp8c_status fp8c_program_variable(fp8c_program *program, int index, fp8c_variable *out);
FP8C_API int fp8c_program_find_variable(const fp8c_program *program,
                                        const char *name); /* -1: none */
/* Copy a variable out of the program, or into it: contiguous, fp8c_type_bytes of its type. Both
 * wait for the runs before them. */
FP8C_API fp8c_status fp8c_program_read(fp8c_program *program, int variable, void *to);
FP8C_API fp8c_status fp8c_program_write(fp8c_program *program, int variable, const void *from);
/* Where in a training a state was saved. The meaning of the numbers is the caller's. */
typedef struct fp8c_position {
    size_t struct_size;   /* sizeof(fp8c_position), set by the caller */
    int64_t step;         /* optimizer steps that are done; not negative */
    uint64_t seed, batch; /* of the order of the data; the number of the next batch */
} fp8c_position;
/* Write all variables as a safetensors file, whole or not at all. With `at`, which may be NULL, it
 * has the position and a checksum, as the checkpoints of `fp8c train --run`. Where ranks share
 * variables (`zero`), all of them call this together: rank 0 writes the whole of each. Any number
 * of ranks can load the file, at any stage. */
FP8C_API fp8c_status fp8c_program_save(fp8c_program *program, const char *path,
                                       const fp8c_position *at);
/* Read all variables back. The file has each variable of the program, with its dtype and shape, and
 * no other tensors but states. Otherwise the call fails before it changes anything. If it fails
 * while it writes values, the variables have none afterwards. With params_only the states keep
 * their values, so they must have some, and then `prepare` runs. `at` may be NULL. Else *at becomes
 * the file's position. FP8C_ERR_INPUT also: params_only; the file has no position; or its checksum
 * shows damage. Then the variables have its values nevertheless. */
FP8C_API fp8c_status fp8c_program_load(fp8c_program *program, const char *path, int32_t params_only,
                                       fp8c_position *at);

/* ---- weights of others ----
 *
 * From several files, under other names, with tensors that the program does not need:
 * frontend/checkpoint/README.md describes what is taken, and from which formats. */

/* What became of a tensor of the files, or of a variable of the program. */
typedef enum fp8c_load_fate {
    FP8C_LOAD_TAKEN,      /* the variable gets the tensor's value */
    FP8C_LOAD_IGNORED,    /* the tensor is passed over */
    FP8C_LOAD_CALIBRATED, /* the variable gets scales that follow from `scales` */
    FP8C_LOAD_MISSING,    /* no file has the variable */
    FP8C_LOAD_UNEXPECTED, /* no variable has the tensor's name */
    FP8C_LOAD_DIFFERENT   /* the tensor's shape or dtype is not the variable's */
} fp8c_load_fate;

typedef struct fp8c_load_item { /* the strings are valid during the call */
    fp8c_load_fate fate;
    int32_t error;        /* the load fails for it */
    const char *variable; /* NULL: IGNORED, UNEXPECTED */
    const char *tensor;   /* its name in its file; NULL: MISSING */
    const char *file;     /* NULL: MISSING */
    const char *detail;   /* dtype and shape; of a difference both; why it is ignored */
} fp8c_load_item;

typedef struct fp8c_load_options {
    size_t struct_size;       /* sizeof(fp8c_load_options) */
    const char *const *files; /* safetensors files, or Hugging Face's NAME.safetensors.index.json,
                                 which stands for the files that it lists */
    size_t n_files;           /* at least 1 */
    /* Patterns, in which * stands for any run of characters. FP8C_ERR_INPUT: one of `ignore` or
     * `map` changes nothing, or one of `allow_missing` matches no parameter.
     *     ignore         tensors of the files that are passed over
     *     map            texts FROM=TO: a tensor whose name matches FROM gets the name TO, with
     *                    what its stars stood for; the first that matches decides
     *     allow_missing  parameters that may be missing, and keep their values */
    const char *const *ignore;
    size_t n_ignore;
    const char *const *map;
    size_t n_map;
    const char *const *allow_missing;
    size_t n_allow_missing;
    /* Where scales of activations for `delayed` come from, if no file has them: a program that was
     * compiled with `observe` from the same module and recipe, and whose eval has run. Or NULL. */
    fp8c_program *scales;
    /* Called for each tensor and each missing variable, before anything changes. May be NULL. */
    void (*report)(void *user, const fp8c_load_item *item);
    void *user;
} fp8c_load_options;
/* Give a program the values of files, then run `prepare`. Its parameters must be there, with their
 * shapes. If anything does not fit, FP8C_ERR_INPUT: nothing has changed, and the message names all
 * of it. If a file can't be read half way, the program has no values any more. "Weights of others"
 * in frontend/embedding.md has dtypes and states. */
FP8C_API fp8c_status fp8c_program_load_weights(fp8c_program *program,
                                               const fp8c_load_options *options);

/* What element `index` along a state's first axis stands for. For FP8 scales and amaxes it is an
 * operand of a linear's GEMMs, "h.0.attn.q.x" (operands x, w and dy). Number 0 is its name; where
 * several linears read one value under one recipe, 1, 2, ... are its names in the others, its
 * aliases. NULL past the last element or name, and for other variables. */
FP8C_API const char *fp8c_program_element(const fp8c_program *program, int variable, int64_t index,
                                          int number);

/* Copy to program `to` what program `from` has observed of its operands under `delayed`, found by
 * name and alias, then run `prepare` of `to`. Shapes, recipes, contexts and targets may differ
 * ("Carrying histories" in frontend/embedding.md). Both have values (of `from`, parameters that
 * have moved away need none) and belong to the calling thread. A failure's message is in the
 * context of `to`. FP8C_ERR_INPUT, and nothing has changed: no history was carried, a forward of
 * `to` waits, or an observed amax is not finite. */
typedef struct fp8c_carried {
    size_t struct_size; /* sizeof(fp8c_carried), set by the caller */
    int64_t carried;    /* operands of `to` that took the history of an operand of `from` */
    int64_t missing;    /* operands of `to` that `from` lacks: they keep theirs */
    int64_t left;       /* operands of `from` whose history no operand of `to` took */
} fp8c_carried;
/* `out` may be NULL. */
FP8C_API fp8c_status fp8c_program_carry(fp8c_program *to, const fp8c_program *from,
                                        fp8c_carried *out);

/* A weight that `stored` or `stored_weights` made FP8. */
typedef struct fp8c_stored {
    int32_t variable, scale_variable; /* its codes; the scales to multiply them with for values */
    char recipe[160];                 /* in canonical text */
    const char *kept; /* `delayed`: the element of fp8.scale that training keeps for this weight,
                         "h.0.attn.c_attn.w"; else NULL */
} fp8c_stored;
/* Ends a loop. */
FP8C_API fp8c_status fp8c_program_stored(const fp8c_program *program, int index, fp8c_stored *out);
/* Quantize f32 values, [rows, columns] like the variable, into it and its scales, as its recipe
 * says, of a variable that ranks share the whole. `scale`, for `delayed` alone: the factor that
 * training kept; NULL: from the largest magnitude. An Inf or a NaN gives scales that are NaN.
 * FP8C_ERR_INPUT: the variable is not a stored weight. */
FP8C_API fp8c_status fp8c_program_quantize(fp8c_program *program, int variable, const float *from,
                                           const float *scale);

/* ---- memory of the caller ----
 *
 * A bound variable lives in the caller's tensor, for every function and every call. What matches
 * the option `external` has no memory of fp8c's at all. Addresses change no bit. "Memory of the
 * caller" in frontend/embedding.md has the rules of values and of sharing between programs. */

/* Bind a tensor to a variable until another one is bound, or NULL: then the variable is in memory
 * of fp8c's again. Nothing is copied. The tensor has the variable's dtype and shape; it is
 * contiguous, aligned and on the program's device as fp8c_program_call demands, on a GPU in device
 * memory. The caller keeps it alive. FP8C_ERR_INPUT, and nothing changes: it does not fit; it
 * overlaps another variable or a port's buffer; another program of the context uses the memory
 * otherwise; NULL for an external variable; a forward waits for its backward. */
FP8C_API fp8c_status fp8c_program_bind_variable(fp8c_program *program, int variable,
                                                const fp8c_tensor_view *tensor);
/* The values of n external variables lie elsewhere from now on: a framework frees a parameter that
 * is sharded over ranks, and gathers it again at another address. The values must be those that the
 * variables had. So forwards may wait, and their backwards read the values at the new place.
 * tensors[i] is as fp8c_program_bind_variable takes it, but buffers of earlier calls may have been
 * there: their ports give them up. NULL, or `tensors` NULL: the value lies nowhere now, and
 * functions that use it fail with FP8C_ERR_INPUT until it has a place again. FP8C_ERR_INPUT: a
 * variable is not external, and nothing changes; or bind_variable would refuse a tensor, and all n
 * lie nowhere. */
FP8C_API fp8c_status fp8c_program_move_variables(fp8c_program *program, const int *variables,
                                                 const fp8c_tensor_view *const *tensors, size_t n);
/* Enqueue later runs on `stream`, a CUstream of the program's GPU, as with the option `stream`;
 * NULL: on the program's own. The stream, not the host, waits for the runs that were enqueued
 * before. CUDA's default stream is CU_STREAM_LEGACY (1) here. FP8C_ERR_INPUT: the program does not
 * run on a GPU. FP8C_ERR_LIBRARY: the driver refuses the stream. */
FP8C_API fp8c_status fp8c_program_set_stream(fp8c_program *program, void *stream);

#ifdef __cplusplus
}
#endif

#endif
