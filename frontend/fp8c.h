/* fp8c: an embeddable FP8 tensor-op compiler and JIT. The one public header. A whole program:
 *
 *     #include <fp8c.h>
 *     #include <stdio.h>
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
 *         "  return cross_entropy(linear(%y, wte) {transpose_b = true, name = \"head\"}, %targets)\n"
 *         "}\n"
 *         "optimizer adamw {lr = 0.01}\n"
 *         "recipe \"head\" = bf16\n";
 *
 *     static fp8c_status train(fp8c_program *program, int steps)
 *     {
 *         const int step = fp8c_program_function(program, "micro_step");
 *         const int update = fp8c_program_function(program, "update");
 *         int32_t *tokens = fp8c_program_buffer(program, step, FP8C_INPUT, 0);
 *         int32_t *targets = fp8c_program_buffer(program, step, FP8C_INPUT, 1);
 *         const float *loss = fp8c_program_buffer(program, step, FP8C_OUTPUT, 0);
 *         fp8c_status status = FP8C_OK;
 *         for (int i = 0; i < steps && status == FP8C_OK; i++) {
 *             for (int t = 0; t < 64; t++) { // every byte is followed by the next one but two
 *                 tokens[t] = (7 * i + t) % 256;
 *                 targets[t] = (tokens[t] + 3) % 256;
 *             }
 *             status = fp8c_program_run(program, step);        // forward and backward
 *             if (status == FP8C_OK)
 *                 status = fp8c_program_run(program, update);  // the optimizer
 *             if (status == FP8C_OK && (i + 1) % 20 == 0)
 *                 printf("step %d loss %.4f\n", i + 1, *loss);
 *         }
 *         return status;
 *     }
 *
 *     int main(void)
 *     {
 *         fp8c_context *ctx = NULL;
 *         fp8c_module *module = NULL;
 *         fp8c_program *program = NULL;
 *         const fp8c_compile_options options = {.struct_size = sizeof options, .recipe = "delayed"};
 *         fp8c_status status = fp8c_context_create(NULL, &ctx);
 *         if (status == FP8C_OK)
 *             status = fp8c_module_parse(ctx, text, strlen(text), "mlp.f8", NULL, 0, &module);
 *         if (status == FP8C_OK)
 *             status = fp8c_compile(module, &options, &program);
 *         if (status == FP8C_OK)
 *             status = fp8c_program_initialize(program, 1);
 *         if (status == FP8C_OK)
 *             status = train(program, 100);
 *         if (status == FP8C_OK)
 *             status = fp8c_program_save(program, "mlp.safetensors");
 *         if (status != FP8C_OK)
 *             fprintf(stderr, "%s\n", ctx ? fp8c_context_message(ctx) : "no context");
 *         fp8c_program_destroy(program);
 *         fp8c_module_destroy(module);
 *         fp8c_context_destroy(ctx);
 *         return status != FP8C_OK;
 *     }
 *
 * Every call that can fail returns a status; fp8c_context_message then says what and where. Nothing here prints or
 * exits. The environment is read once, when a context is created; the context's options stand in for each of its
 * variables. The process's locale changes nothing that is read or written. All destroy functions accept NULL; no
 * other pointer may be NULL unless it is said here. A struct that begins with struct_size is of the caller's version
 * of this header: what lies beyond it is as if zero; options whose size is 0, never set, are FP8C_ERR_INPUT.
 *
 * Ownership: whatever is made with a context keeps it alive: fp8c_context_destroy gives up the caller's hold, and the
 * context goes with the last module, program, calibration, doctor or tuning. Until then its callbacks, its allocator and
 * fp8c_context_message serve these; nothing new can be made with it: FP8C_ERR_INPUT. A program is
 * independent of the module it came from. Strings returned are owned by the object asked. A handle that was
 * destroyed must not be used again, nor destroyed a second time: its memory is gone, and nobody can tell.
 * Threads: a context may be used by any number of threads at once. A module, a program, a calibration
 * or a tuning belongs to one thread at a time; different ones may be used at once, also of one context
 * and with one GPU. A module that is no longer changed may be compiled by several threads at once.
 *
 * GPUs: a program for a CUDA target keeps its variables in the device's memory, so `data` of a variable
 * is NULL there: fp8c_program_read and fp8c_program_write copy them, on every target. The buffers of
 * ports are host memory on every target. */
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

#if defined(__GNUC__)
#define FP8C_API __attribute__((visibility("default")))
#else
#define FP8C_API
#endif

/* Of this header: MAJOR * 10000 + MINOR * 100 + PATCH. */
#define FP8C_VERSION_NUMBER                                                                        \
    (FP8C_VERSION_MAJOR * 10000 + FP8C_VERSION_MINOR * 100 + FP8C_VERSION_PATCH)

/* "0.1.0" of the library linked, and as FP8C_VERSION_NUMBER. The loader takes no library of another
 * major version (its soname and its symbols say it); what an older minor version lacks, the loader
 * or struct_size finds missing. A program that wants to know beforehand compares
 * fp8c_version_number() with FP8C_VERSION_NUMBER. */
FP8C_API const char *fp8c_version(void);
FP8C_API int32_t fp8c_version_number(void);

typedef enum fp8c_status {
    FP8C_OK = 0,
    FP8C_ERR_INPUT,       /* the text, graph, option or data given is wrong */
    FP8C_ERR_UNSUPPORTED, /* well-formed, but this target or recipe can't have it */
    FP8C_ERR_MEMORY,      /* an allocation failed */
    FP8C_ERR_IO,          /* a file or the system failed */
    FP8C_ERR_LIBRARY,     /* a component (LLVM, oneDNN, the GPU's driver) is missing or refused */
    FP8C_ERR_INTERNAL,    /* a bug in fp8c */
    FP8C_ERR_CANCELLED    /* a callback asked to stop */
} fp8c_status;

typedef enum fp8c_dtype {
    FP8C_F32, FP8C_BF16, FP8C_F16, FP8C_I32, FP8C_BOOL, FP8C_F8E4M3, FP8C_F8E5M2, FP8C_F8E8M0
} fp8c_dtype;

enum { FP8C_MAX_RANK = 5 };

typedef struct fp8c_type {
    fp8c_dtype dtype;
    int32_t rank; /* 0: a scalar */
    int64_t dim[FP8C_MAX_RANK];
} fp8c_type;

FP8C_API const char *fp8c_dtype_name(fp8c_dtype dtype);
FP8C_API int64_t fp8c_type_bytes(const fp8c_type *type);

/* Receives text; returning non-zero makes the call fail with FP8C_ERR_IO. */
typedef int (*fp8c_write_fn)(void *user, const char *text, size_t size);

/* ---- context ---- */

typedef struct fp8c_context fp8c_context;

typedef enum fp8c_log_level { FP8C_LOG_WARNING, FP8C_LOG_INFO, FP8C_LOG_DEBUG } fp8c_log_level;
/* One line without a newline. */
typedef void (*fp8c_log_fn)(void *user, fp8c_log_level level, const char *text);

/* Where a call that takes long has got to. */
typedef struct fp8c_progress {
    size_t struct_size;
    const char *phase;   /* "passes", "kernels", "tune" */
    const char *item;    /* what comes next: a pass, a kernel, a problem; "" once all are done */
    int64_t done, total; /* items of the phase */
    double seconds_left; /* of the phase, estimated; < 0: not known */
} fp8c_progress;
/* Called by the thread that made the call: before and after each phase, between items (those that
 * other threads are done with count), and within a pass that takes long. Non-zero cancels: the call
 * fails with FP8C_ERR_CANCELLED, and all is as before it; kernels that were ready stay in the
 * cache. */
typedef int (*fp8c_progress_fn)(void *user, const fp8c_progress *progress);

/* The embedder's threads: run task(job, thread, begin, end) over parts that make up [0, n_tasks),
 * each once, and return when all are done and what they wrote is visible. `thread` is in [0,
 * parallel_threads); two parts run at once have different ones. Which part runs where changes no
 * bit. Not called from within a task; called by several threads at once only when several programs
 * run at once. Where tasks were left out or done twice, the call that ran them fails with
 * FP8C_ERR_INPUT; parts beyond these bounds do nothing. */
typedef void (*fp8c_task_fn)(void *job, int32_t thread, int64_t begin, int64_t end);
typedef void (*fp8c_parallel_fn)(void *user, fp8c_task_fn task, void *job, int64_t n_tasks);

typedef struct fp8c_context_options {
    size_t struct_size; /* sizeof(fp8c_context_options) */
    /* The embedder's allocator; alloc returns memory aligned to `align` or NULL. All or none.
     * Called by several threads at once where the context is used by several, and while kernels
     * compile. Everything of fp8c's own comes from it; what other libraries take (LLVM, oneDNN,
     * CUDA's, SQLite, and jansson, which reads and writes JSON) is malloc's. */
    void *(*alloc)(void *user, size_t size, size_t align);
    void (*free)(void *user, void *ptr, size_t size);
    void *allocator_user;
    /* Where the GPU's libraries lie, each in place of an environment variable: NULL takes the
     * variable,
     * "" leaves it unset. Copied. Nothing is looked for before a CUDA target is compiled for. */
    const char *gpu_library_path; /* FP8C_CUDA_PATH: this folder and no other */
    const char *cuda_home;        /* CUDA_HOME: a toolkit's folder */
    const char *cuda_path;        /* CUDA_PATH: another */
    const char *python_env;       /* VIRTUAL_ENV: where Python wheels carry them */
    const char *home;             /* HOME: for the user's own wheels, and the cache's place */
    /* Compiled kernels are kept in a folder, and found there by what they were made from; several
     * processes may share it. NULL: FP8C_CACHE_DIR, else XDG_CACHE_HOME/fp8c, else
     * HOME/.cache/fp8c;
     * "": none is kept. One that can't be written is read; one that can't be read, or is another
     * user's, is not used; the log says so. */
    const char *cache_dir;
    int64_t cache_bytes; /* the most it may grow to: what was used longest ago goes. 0: 1 GiB */
    const char *tuning; /* FP8C_TUNING: the tuning database's file. NULL: `tuning.db` in the cache's
                           folder; "": none */
    fp8c_log_fn log;    /* NULL: nothing is said. Called by any thread of a call in progress */
    void *log_user;
    int32_t verbose; /* FP8C_VERBOSE, 0 to 2: the highest fp8c_log_level that is said. < 0: warnings
                        alone, whatever the environment says; 0 takes the variable */
    const char *dump; /* FP8C_DUMP: a folder into which each compile writes the module after each
                         pass, the kernels' descriptions and texts, in a new folder of its own,
                         MODULE.TARGET.N. NULL: the variable; "": none */
    fp8c_progress_fn progress;    /* may be NULL */
    void *progress_user;
    fp8c_parallel_fn parallel; /* or NULL. The embedder's threads run programs, whose options'
                                  `threads` then do not count; no thread of ours is started: kernels
                                  are compiled by the thread that calls */
    void *parallel_user;
    int32_t parallel_threads;     /* how many there are, 1 to 256 */
    int32_t threads; /* of programs whose options say 0; 0: the CPUs this process may run on */
} fp8c_context_options;

/* options may be NULL. FP8C_ERR_INPUT: one of them is wrong, and `log`, where there is one, has
 * been told which: there is no context to keep a message in. FP8C_ERR_MEMORY. */
FP8C_API fp8c_status fp8c_context_create(const fp8c_context_options *options, fp8c_context **out);
FP8C_API void fp8c_context_destroy(fp8c_context *ctx);

/* The calling thread's last failure on this context: "file:line:column: error: message" with the
 * line and a caret when there is a place in a text, else "error: message". "" when nothing failed
 * yet. Valid until the thread's next call on the context that fails, or the thread ends. */
FP8C_API const char *fp8c_context_message(const fp8c_context *ctx);

/* The kernel cache. */
typedef struct fp8c_cache_info { /* texts: the context's */
    size_t struct_size;     /* sizeof(fp8c_cache_info), set by the caller */
    const char *folder;     /* NULL: none is used */
    const char *why_not;    /* then: why; NULL when it is used, or none was wanted */
    int32_t read_only;
    int64_t hits, misses, stored; /* of this context, so far */
    int64_t bytes, entries; /* in the folder, now */
} fp8c_cache_info;
/* Opens it, if nothing was compiled yet. FP8C_ERR_MEMORY. */
FP8C_API fp8c_status fp8c_context_cache(fp8c_context *ctx, fp8c_cache_info *out);

/* ---- modules ---- */

typedef struct fp8c_module fp8c_module;

typedef struct fp8c_dim {
    const char *name;
    int64_t value;
} fp8c_dim;

/* Parse the textual IR (frontend/text/README.md has the grammar). `dims` replace values of `dim`
 * lines; for a bound, `dim B <= 32`, the bound. */
FP8C_API fp8c_status fp8c_module_parse(fp8c_context *ctx, const char *text, size_t size,
                                       const char *file, const fp8c_dim *dims, size_t n_dims,
                                       fp8c_module **out);
FP8C_API void fp8c_module_destroy(fp8c_module *module);

FP8C_API const char *fp8c_module_name(const fp8c_module *module);

/* Print in canonical form: parsing it gives the identical module. */
FP8C_API fp8c_status fp8c_module_print(const fp8c_module *module, fp8c_write_fn write, void *user);

/* Totals over parameters. */
FP8C_API int64_t fp8c_module_parameters(const fp8c_module *module, int64_t *elements);

/* The value of a dim, of a bound the bound; -1 when the module declares none of that name. */
FP8C_API int64_t fp8c_module_dim(const fp8c_module *module, const char *name);

/* Micro-steps per update the module asks for; the optimizer's schedule length (0: none declared).
 */
FP8C_API int64_t fp8c_module_accumulate(const fp8c_module *module);
FP8C_API int64_t fp8c_module_optimizer_steps(const fp8c_module *module);

/* ---- building a module without text: the same graph, node for node ---- */

typedef uint32_t fp8c_value; /* of the function being built; 0 = failed */

typedef enum fp8c_init {
    FP8C_INIT_ZEROS, FP8C_INIT_ONES, FP8C_INIT_CONST, FP8C_INIT_NORMAL, FP8C_INIT_UNIFORM
} fp8c_init;

typedef enum fp8c_attr_kind {
    FP8C_ATTR_INT,
    FP8C_ATTR_FLOAT,
    FP8C_ATTR_BOOL,
    FP8C_ATTR_DTYPE,
    FP8C_ATTR_STRING,
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

FP8C_API fp8c_status fp8c_module_create(fp8c_context *ctx, const char *name, fp8c_module **out);
FP8C_API fp8c_status fp8c_module_param(fp8c_module *module, const char *name, const fp8c_type *type,
                                       fp8c_init init, double argument);
/* Fields by name as in the text's `optimizer adamw {...}`. */
FP8C_API fp8c_status fp8c_module_optimizer(fp8c_module *module, const fp8c_attr *fields, size_t n);
/* The rule `recipe "PATTERN" = RECIPE` of the text. */
FP8C_API fp8c_status fp8c_module_recipe(fp8c_module *module, const char *pattern,
                                        const char *recipe);
/* A rule after those there are, so that it wins: what the text has after `recipe`, as "\"h.*\"
 * wgrad = bf16" or "layers 1, 1 = bf16". `origin` (may be NULL) is what messages and decisions call
 * the place it comes from, as
 * "--rule" or a file's name. */
FP8C_API fp8c_status fp8c_module_rule(fp8c_module *module, const char *rule, const char *origin);
/* What fp8c_module_parse and fp8c_compile check of a whole module: that every rule matches a
 * linear. */
FP8C_API fp8c_status fp8c_module_check(fp8c_module *module);

/* A function is built between begin and end; one at a time. */
FP8C_API fp8c_status fp8c_func_begin(fp8c_module *module, const char *name);
FP8C_API fp8c_value fp8c_func_input(fp8c_module *module, const char *name, const fp8c_type *type);
FP8C_API fp8c_value fp8c_func_param(fp8c_module *module, const char *name); /* reads a parameter */
FP8C_API fp8c_value fp8c_func_const(fp8c_module *module, double value);     /* f32 [] */
FP8C_API fp8c_value fp8c_func_op(fp8c_module *module, const char *op, const fp8c_value *inputs,
                                 size_t n_inputs, const fp8c_attr *attrs, size_t n_attrs);
FP8C_API fp8c_status fp8c_func_result(fp8c_module *module, const char *name, fp8c_value value);
/* Fails with the first failure since begin; the function is then dropped from the module. */
FP8C_API fp8c_status fp8c_func_end(fp8c_module *module);

/* ---- compiling ---- */

typedef struct fp8c_program fp8c_program;

/* A parameter of a linear, and the recipe that it is stored under. */
typedef struct fp8c_stored_as {
    const char *name, *recipe;
} fp8c_stored_as;

typedef struct fp8c_compile_options {
    size_t struct_size;      /* sizeof(fp8c_compile_options) */
    const char *target;      /* fp8c_target_name: "cpu" (default), "reference", "cuda" (the GPU
                                present), an architecture as "sm_90a", or
                                "cpu:x86-64-v3", "cpu:x86-64-v4": for any CPU of that level */
    const char *recipe; /* "bf16" (default), or any recipe of the text, as "block {pow2 = true}" */
    int32_t threads;         /* 0: the CPUs this process may run on */
    int32_t no_fuse;         /* one kernel per node: same bits, slower; for tests */
    int32_t inference; /* only `eval`; forward's results may then be anything, else the first is the
                          loss */
    int32_t pair;      /* also `forward` and `backward`: the caller owns the optimizer, and calls
                          `update_scales` once a step under a recipe that has it */
    int32_t profile;         /* note the time of every step */
    double lr;               /* > 0: replaces the optimizer's */
    int64_t optimizer_steps; /* > 0: replaces the schedule's length */
    const char *keep;        /* name pattern: FP8 operands to give out of micro_step */
    const char *print_after; /* a pass's name: print the module after it through `write` */
    fp8c_write_fn write;
    void *write_user;
    int32_t no_device; /* compile alone, so that neither GPU nor such a CPU need be there ("cuda"
                          still asks one what it is): there are listings and figures, but no memory
                          and no runs */
    /* CUDA targets only: */
    int32_t device;          /* the GPU's ordinal, as the driver counts */
    int32_t listings;  /* keep what fp8c_program_image gives; all kernels are then one image */
    int32_t text_only; /* stop at CUDA C, which needs no NVRTC; implies no_device and listings */
    void *stream;      /* the embedder's CUstream: runs are enqueued there, fp8c_program_wait waits.
                          NULL: a stream of the program's own, and a run returns when it is done */
    /* The embedder's device memory, 256-byte aligned, or NULL; both or none. free is given the
     * size. */
    void *(*device_alloc)(void *user, size_t size);
    void (*device_free)(void *user, void *ptr, size_t size);
    void *device_user;
    const char *attention; /* who does it: "table" (default), "own", our kernels, or "cudnn"; one
                              that can't be had is an error */
    const struct fp8c_calibration *calibration; /* for recipe "auto" */
    const char *
        stored; /* inference: the recipe under which weights lie in memory as FP8 codes, each with a
                   variable of its scales beside it (NAME_scale, or NAME_scale_inv for 128-blocks);
                   the module's rules count. NULL: as f32. `recipe` is what the GEMMs then do, bf16
                   too: where it scales as a weight is stored, codes and scales are the operand */
    const fp8c_stored_as
        *stored_weights; /* instead: exactly these, as an exported file lists them */
    size_t n_stored_weights;
    /* Memory: activations are computed again in the backward until the program fits, the results
     * the same bit for bit. What can't be met is FP8C_ERR_UNSUPPORTED, with the least that can; so
     * are these four with `inference`, `pair` or target reference. One of the two, the other 0. */
    int64_t
        memory_bytes; /* of everything: variables, buffers and arena (fp8c_info's planned_bytes) */
    double memory_share; /* in (0, 1): of the activation bytes at the peak of micro_step without a
                            budget; the arena shrinks by the rest of them */
    const char *checkpoint; /* name pattern: of activations only values matching are kept for the
                               backward, whatever the budget; "x.*" of the models here is a
                               checkpoint at every layer. NULL: no wish */
    const char *recompute;  /* name pattern: values matching are computed again in the backward.
                               NULL:  none. A pattern that matches nothing is FP8C_ERR_INPUT */
    int32_t plan_only; /* stop before code: there are decisions, steps, memory and estimates, and
                          nothing to run. Needs no LLVM, NVRTC or GPU, unless target is "cuda",
                          which asks one; for the CPU oneDNN, which knows what room GEMMs want */
    const char
        *values; /* fp8c_compile_file of a module with bounds: the values that the file is to serve,
                    "B=1,2,4,8", several dims with spaces between; of those not named every one from
                    1 to the bound. At most 64 sets of values. NULL: every one */
} fp8c_compile_options;

/* ---- choosing recipes by measured error and cost: recipe "auto" ---- */

/* A program in bf16 whose micro_step also gives samples of what every linear's GEMMs read. The caller
 * gives its variables values (initialize, or write), then for each of a few batches fills the inputs, runs
 * micro_step and observes; two batches or more show what a scale from earlier ones is worth. Compiling with
 * recipe "auto" and this calibration then gives every GEMM the cheapest recipe whose result has an
 * error within the budget, else bf16; a run costs nothing more for it.
 *     options       of the program to come: its target is chosen for, and calibrated on, or on the CPU where it
 *                   is a CUDA target with no_device
 *     error_budget  of a GEMM's result, relative, from 0 to 1: the mean over its rows, or its columns, of
 *                   |Q(a)Q(b) - ab| / |ab|, in the root mean square; 0: the default, 0.1 (E4M3 by E5M2 operands
 *                   that lose nothing give 0.06)
 * May be destroyed once the programs that use it are compiled. */
typedef struct fp8c_calibration fp8c_calibration;
FP8C_API fp8c_status fp8c_calibration_create(const fp8c_module *module,
                                             const struct fp8c_compile_options *options,
                                             double error_budget, fp8c_calibration **out);
FP8C_API void fp8c_calibration_destroy(fp8c_calibration *calibration);
FP8C_API fp8c_program *
fp8c_calibration_program(fp8c_calibration *calibration); /* the calibration's */
FP8C_API fp8c_status fp8c_calibration_observe(fp8c_calibration *calibration);

typedef struct fp8c_trial {
    const char *linear, *role; /* as in fp8c_decision */
    int64_t m, n, k;
    int32_t winner;            /* index of a candidate */
    const char *reason;
    int32_t fixed;             /* a rule of the module decided */
} fp8c_trial;

typedef struct fp8c_candidate {
    const char *recipe;
    const char *excluded;           /* why it can't be chosen, or NULL */
    double error; /* of the GEMM's result, relative; NaN: it was zero in every batch, or not
                     finite. What follows is of its operands */
    double sqnr[2];                 /* dB */
    double underflow[2], overflow[2]; /* shares of elements that became 0, that exceed the format */
    double seconds, gemm_seconds;   /* estimates from the target's rates */
    double bytes;                   /* moved to make the operands */
} fp8c_candidate;

/* FP8C_ERR_INPUT past the last, with no message. Candidate 0 is bf16. */
FP8C_API fp8c_status fp8c_calibration_trial(const fp8c_calibration *calibration, int index,
                                            fp8c_trial *out);
FP8C_API fp8c_status fp8c_calibration_candidate(const fp8c_calibration *calibration, int index,
                                                int candidate, fp8c_candidate *out);
/* The choice as lines of the text, to be pasted behind the others of a module. */
FP8C_API fp8c_status fp8c_calibration_rules(const fp8c_calibration *calibration,
                                            fp8c_write_fn write, void *user);

/* The targets `target` may name; NULL past the last. */
FP8C_API const char *fp8c_target_name(int index);

/* options may be NULL. */
FP8C_API fp8c_status fp8c_compile(const fp8c_module *module, const fp8c_compile_options *options,
                                  fp8c_program **out);
FP8C_API void fp8c_program_destroy(fp8c_program *program);

/* ---- ahead of time ----
 *
 * A .f8x file holds programs compiled for one or more targets: plans, native code or cubins, the
 * layout of variables, and what was decided. It depends on the module, the options, the target, the
 * versions of fp8c and of the compilers, and what the tuning database holds for this device and
 * number of threads (none where it was not tuned): the same input gives the same bytes. Opening one
 * loads no compiler. */

/* Compile a module for each of `options` (at least one; no_device is implied) and write PATH, whole
 * or not at all. Targets of a CPU: "cpu:x86-64-v3", "cpu:x86-64-v4", or "cpu:native" (as "cpu"),
 * which runs only on a CPU with all this one has. No two of one target; target reference, `keep`,
 * `print_after`, `plan_only`, `listings` and `text_only` can't be had. */
FP8C_API fp8c_status fp8c_compile_file(const fp8c_module *module,
                                       const fp8c_compile_options *options, size_t n_options,
                                       const char *path);

typedef struct fp8c_open_options {
    size_t struct_size;      /* sizeof(fp8c_open_options) */
    const char *target; /* one of the file's, or "cpu", "cuda"; NULL: the GPU present if the file
                           has code for it, else the CPU */
    int32_t threads, profile, device; /* from here on as fp8c_compile_options */
    int32_t no_device;       /* only to look: code of any target, and nothing to run */
    void *stream;
    void *(*device_alloc)(void *user, size_t size);
    void (*device_free)(void *user, void *ptr, size_t size);
    void *device_user;
} fp8c_open_options;
/* A program from a file, which is read whole: what is done to it afterwards does not reach the
 * program; or from its bytes, which are copied. options may be NULL. FP8C_ERR_INPUT: it is damaged
 * or no such file; FP8C_ERR_UNSUPPORTED: it is of another version of fp8c, or no target of it can
 * run here: the message names both. */
FP8C_API fp8c_status fp8c_program_open(fp8c_context *ctx, const char *path,
                                       const fp8c_open_options *options, fp8c_program **out);
FP8C_API fp8c_status fp8c_program_open_bytes(fp8c_context *ctx, const void *bytes, size_t size,
                                             const fp8c_open_options *options, fp8c_program **out);

/* What a file holds, on whatever machine: each call reads it anew, and fails as opening it does. */
typedef struct fp8c_file_info {
    size_t struct_size;          /* sizeof(fp8c_file_info), set by the caller */
    const char *version;         /* of fp8c: another's is refused */
    int32_t format, plan_format;
    int64_t bytes;
    char checksum[33];           /* of its contents, as hexadecimal digits */
    int32_t targets;
} fp8c_file_info;
FP8C_API fp8c_status fp8c_file_read_info(fp8c_context *ctx, const char *path, fp8c_file_info *out);
typedef struct fp8c_file_target {
    char target[32];
    char missing[160]; /* what its code needs and this CPU lacks; "": nothing, or it is a GPU's */
    char dims[192];              /* "B <= 32, T <= 128"; "": none is a bound */
    int32_t variants;            /* plans: one for each set of values of these */
} fp8c_file_target;
/* FP8C_ERR_INPUT past the last, with no message. */
FP8C_API fp8c_status fp8c_file_read_target(fp8c_context *ctx, const char *path, int index,
                                           fp8c_file_target *out);

/* ---- tuning: which way is fastest here ----
 *
 * A GEMM can be cut, packed and computed in several ways, a kernel printed in several variants. The
 * compiler's model chooses one; a tuner times them all on the device, in the program's own steps
 * with its own buffers, and keeps what it finds in a database file, which every later compile of
 * this context reads: it then takes the database's choice where there is one for the same problem,
 * device and versions of the libraries, else the model's. No bit of a result changes but by another
 * algorithm of a GEMM, which fp8c_program_choice names. What was timed once is not timed again. */
typedef struct fp8c_tuning fp8c_tuning;

typedef struct fp8c_tune_options {
    size_t struct_size;   /* sizeof(fp8c_tune_options) */
    const fp8c_compile_options
        *compile; /* of the programs to come; NULL: as there. A CUDA target needs its device;
      target reference, no_device, text_only and plan_only can't be had */
    const char *database; /* NULL: the context's */
    const char *only;     /* name pattern: of steps. NULL: all */
    double seconds;       /* > 0: begins to time nothing new after so long */
    int32_t runs;         /* of each candidate and of the model's choice beside it; 0: 7 */
    int32_t same_bits;    /* leave out what changes bits: other algorithms */
    int32_t again;        /* time again what was timed before */
} fp8c_tune_options;

/* Time what was not timed yet for this module, choose, and keep both; options may be NULL. The
 * context's progress callback is asked between runs (phase "tune"): where it cancels, or the
 * process dies, what was timed by then stays. FP8C_ERR_IO: the database can't be used; the file is
 * then as it was. */
FP8C_API fp8c_status fp8c_tune(const fp8c_module *module, const fp8c_tune_options *options,
                               fp8c_tuning **out);
/* The same for one GEMM, "MxNxK:FORMAT": rows and columns of the result, the length of the sums,
 * and f32, bf16, f8e4m3 or f8e5m2, the dtype of both operands; the second is [N, K]. `compile`
 * gives target and threads alone. */
FP8C_API fp8c_status fp8c_tune_gemm(fp8c_context *ctx, const char *gemm,
                                    const fp8c_tune_options *options, fp8c_tuning **out);
FP8C_API void fp8c_tuning_destroy(fp8c_tuning *tuning);

typedef struct fp8c_tuning_info {
    size_t struct_size;        /* sizeof(fp8c_tuning_info), set by the caller */
    const char *database, *device;
    int32_t problems,
        chosen; /* chosen: those for which something other than the model's choice is faster */
    int64_t timed, kept;       /* candidates timed now; known from before */
    int64_t changed_bits;      /* candidates dropped: other bits by the same algorithm */
    double untuned_seconds, tuned_seconds; /* of a step, the least of several in turns at the end;
                                              0: nothing new was chosen */
    int32_t finished;          /* 0: `seconds` ran out first */
} fp8c_tuning_info;
FP8C_API void fp8c_tuning_report(const fp8c_tuning *tuning, fp8c_tuning_info *out);

/* A problem: a GEMM, or a kernel at an extent. Seconds: of all its runs in a step, the least. */
typedef struct fp8c_tuned {
    const char *problem, *name;  /* name: of the first step that has it */
    const char *candidate;       /* chosen; "model" */
    int32_t gemm, count;         /* count: how often a step has it */
    int32_t candidates;          /* the model's among them */
    double model_seconds, seconds; /* 0: not timed */
} fp8c_tuned;
/* FP8C_ERR_INPUT past the last, with no message. */
FP8C_API fp8c_status fp8c_tuning_problem(const fp8c_tuning *tuning, int index, fp8c_tuned *out);
/* Candidate `candidate` of it: its seconds, 0 where they are not known. */
FP8C_API fp8c_status fp8c_tuning_candidate(const fp8c_tuning *tuning, int index, int candidate,
                                           const char **text, double *seconds);

/* Rows of the database (NULL: the context's) as a file of JSON Lines; and taken over from such a
 * file, or from another database, where they are newer. All or nothing. Rows about other devices or
 * versions are kept for them. FP8C_ERR_INPUT: an export would replace a database, or the rows to
 * take over are the database's own. */
typedef struct fp8c_tuning_rows {
    size_t struct_size;      /* sizeof(fp8c_tuning_rows), set by the caller */
    int64_t timings, choices;
    int64_t older;           /* not taken over: those there are as new */
    int64_t others; /* about other devices than the CPU here with `threads` of the context */
} fp8c_tuning_rows;
FP8C_API fp8c_status fp8c_tuning_export(fp8c_context *ctx, const char *database, const char *path,
                                        fp8c_tuning_rows *rows);
FP8C_API fp8c_status fp8c_tuning_import(fp8c_context *ctx, const char *database, const char *path,
                                        fp8c_tuning_rows *rows);
FP8C_API fp8c_status fp8c_tuning_merge(fp8c_context *ctx, const char *database, const char *path,
                                       fp8c_tuning_rows *rows);

/* The database that compiles of this context read, if it is there; NULL: none. */
FP8C_API const char *fp8c_context_tuning(const fp8c_context *ctx);

/* Which way a program does a problem, and who chose. FP8C_ERR_INPUT past the last, with no message.
 */
typedef struct fp8c_choice {
    const char *problem, *candidate; /* as in fp8c_tuned */
    int32_t gemm, count;             /* count: steps that have it, over all functions */
    int32_t tuned;                   /* the database; else the model */
} fp8c_choice;
FP8C_API fp8c_status fp8c_program_choice(const fp8c_program *program, int index, fp8c_choice *out);

/* ---- dims that are bounds ----
 *
 * Where the text says `dim B <= 32`, one program serves every value from 1 to 32, with the
 * variables and the memory of all: each with the bits of a program compiled for it alone.
 * fp8c_compile plans for the bound; another value is planned for when it is first asked for (a .f8x
 * file has all), and its kernels are mostly there already. */
enum { FP8C_MAX_BOUNDS = 8 }; /* of one module */
typedef struct fp8c_program_dim {
    const char *name;
    int64_t value, bound; /* value: now */
} fp8c_program_dim;
/* FP8C_ERR_INPUT past the last, with no message. */
FP8C_API fp8c_status fp8c_program_dims(const fp8c_program *program, int index,
                                       fp8c_program_dim *out);
/* A set of values that the program has a plan for, the first the one it began with: of a file all
 * there are, else those asked for so far. value[i]: of dim i of fp8c_program_dims. FP8C_ERR_INPUT
 * past the last, with no message. */
FP8C_API fp8c_status fp8c_program_values(const fp8c_program *program, int index, int64_t *value);
/* What ports and runs are from now on: types and sizes of ports, steps and figures are those of
 * this value; buffers bound before are no longer. */
FP8C_API fp8c_status fp8c_program_set_dim(fp8c_program *program, const char *name, int64_t value);
/* The same for all dims that the shapes of a function's inputs tell, as fp8c_program_call takes
 * them: of the ports that carry no variable, in their order. Shapes alone are looked at; NULL, or
 * one of another rank, tells nothing. */
struct fp8c_tensor_view;
FP8C_API fp8c_status fp8c_program_fit(fp8c_program *program, int function,
                                      const struct fp8c_tensor_view *const *inputs,
                                      size_t n_inputs);

/* ---- running ---- */

/* Give every variable its initial value (a function of seed and name alone), then run `prepare`, if
 * the recipe has it. Needed before the first run; whoever then writes parameters of its own runs
 * `prepare` again. */
FP8C_API fp8c_status fp8c_program_initialize(fp8c_program *program, uint64_t seed);

/* The index of a function (eval, micro_step, update, forward, backward, prepare), or -1. */
FP8C_API int fp8c_program_function(const fp8c_program *program, const char *name);
FP8C_API const char *fp8c_program_function_name(const fp8c_program *program,
                                                int function); /* NULL past the last */

typedef enum fp8c_side { FP8C_INPUT = 0, FP8C_OUTPUT = 1 } fp8c_side;

typedef struct fp8c_port {
    const char *name;
    fp8c_type type;
    int32_t variable; /* >= 0: the port reads or replaces this variable; -1: the caller's buffer */
} fp8c_port;

/* Port `index` of a function; FP8C_ERR_INPUT past the last (no message is recorded: it ends loops).
 */
FP8C_API fp8c_status fp8c_program_port(const fp8c_program *program, int function, fp8c_side side,
                                       int index, fp8c_port *out);
FP8C_API int fp8c_program_find_port(const fp8c_program *program, int function, fp8c_side side,
                                    const char *name); /* -1: none */
/* Its buffer: the program's own until another is bound (row-major, aligned to its element, the
 * caller's to keep alive; NULL goes back to the program's own). On a GPU the program's own is
 * pinned host memory: a run copies inputs in and outputs out; host memory bound is copied likewise,
 * device memory is used in place. NULL from fp8c_program_buffer: there is no such port, or the
 * program was compiled with no_device or plan_only. */
FP8C_API void *fp8c_program_buffer(fp8c_program *program, int function, fp8c_side side, int index);
FP8C_API fp8c_status fp8c_program_bind(fp8c_program *program, int function, fp8c_side side,
                                       int index, void *buffer);

/* With the embedder's stream it only enqueues: buffers are the run's until fp8c_program_wait or
 * whatever else waits for the stream. After a failure on a GPU every later run fails too, and says
 * so. */
FP8C_API fp8c_status fp8c_program_run(fp8c_program *program, int function);
/* Wait for the runs enqueued so far and report what failed in them. Nothing to do on the CPU. */
FP8C_API fp8c_status fp8c_program_wait(fp8c_program *program);

/* A tensor of the caller's: the layout of DLPack's DLTensor (v0.2 to v1.x), so a pointer to one may
 * be passed. */
typedef struct fp8c_tensor_view {
    void *data;
    struct {
        int32_t type, id;
    } device; /* kDLCPU 1, kDLCUDA 2, kDLCUDAHost 3, kDLCUDAManaged 13 */
    int32_t ndim;
    struct {
        uint8_t code, bits;
        uint16_t lanes;
    } dtype; /* f32 2,32; f16 2,16; bf16 4,16; i32 0,32; bool 6,8 (or 1,8; bytes 0 and 1);
             f8e4m3 10,8; f8e5m2 12,8; f8e8m0 14,8; lanes 1 */
    int64_t *shape;
    int64_t *strides;      /* in elements; NULL: contiguous */
    uint64_t byte_offset;
} fp8c_tensor_view;

/* Bind tensors and run: `inputs` and `outputs` are for the function's ports that carry no variable,
 * in their order. A dim that is a bound takes its value from their shapes. Each must be of its
 * port's dtype and shape, contiguous (strides of axes of size 1 are free), aligned to its element,
 * in a GPU's memory to 16 bytes, and of host memory or the program's device; else FP8C_ERR_INPUT
 * with port, what was given and what was wanted, and nothing has run. An output that overlaps
 * another tensor, or a variable of the program, is refused. The tensors stay bound. */
FP8C_API fp8c_status fp8c_program_call(fp8c_program *program, int function,
                                       const fp8c_tensor_view *const *inputs, size_t n_inputs,
                                       const fp8c_tensor_view *const *outputs, size_t n_outputs);
/* A port's buffer, or a variable's memory (on a GPU: the device's), as a tensor: valid, with the
 * shape and the strides that it points to, until another is bound, the value of a dim changes, or
 * the program is destroyed. The strides are never NULL, as DLPack wants it from 1.2 on: those of
 * row-major order; of a scalar, no more than an address. FP8C_ERR_INPUT: there is none.
 * FP8C_ERR_MEMORY: for the strides. */
FP8C_API fp8c_status fp8c_program_port_view(fp8c_program *program, int function, fp8c_side side,
                                            int index, fp8c_tensor_view *out);
FP8C_API fp8c_status fp8c_program_variable_view(fp8c_program *program, int variable,
                                                fp8c_tensor_view *out);

/* Variables: parameters and states. Valid for the program's life. */
typedef struct fp8c_variable {
    const char *name;
    fp8c_type type;
    int32_t is_param;
    void *data; /* NULL on a GPU: use read and write */
} fp8c_variable;
FP8C_API fp8c_status fp8c_program_variable(fp8c_program *program, int index, fp8c_variable *out);
FP8C_API int fp8c_program_find_variable(const fp8c_program *program,
                                        const char *name); /* -1: none */
/* Copy a whole variable, contiguous, fp8c_type_bytes of its type, out of or into the program. Both
 * wait for the runs before them. */
FP8C_API fp8c_status fp8c_program_read(fp8c_program *program, int variable, void *to);
FP8C_API fp8c_status fp8c_program_write(fp8c_program *program, int variable, const void *from);
/* All variables as a safetensors file, written whole or not at all, and back: parameters under
 * their names, states as "fp8c.state.NAME", elements of FP8 states by name (fp8c_program_element)
 * in the metadata. Loading finds each variable of the program in the file, of its dtype and shape,
 * or fails before anything is changed, naming what is missing or different; tensors that are no
 * variable of the program are an error but for "fp8c.state." ones. A state that `prepare` computes
 * from the parameters alone may be missing: it is computed. With params_only states are left as
 * they are (so they must have values: initialize before), and `prepare` runs where the program has
 * it. */
FP8C_API fp8c_status fp8c_program_save(fp8c_program *program, const char *path);
FP8C_API fp8c_status fp8c_program_load(fp8c_program *program, const char *path,
                                       int32_t params_only);
/* What element `index` along a state's first axis stands for: of FP8 scales and amaxes an operand
 * of a linear's GEMMs, "h.0.attn.c_attn.x" (operands x, w and dy). These names, not the indices,
 * are the same in a program that trains and one for inference. NULL past the last, and for other
 * variables. */
FP8C_API const char *fp8c_program_element(const fp8c_program *program, int variable, int64_t index);

/* A weight that `stored` or `stored_weights` made FP8. FP8C_ERR_INPUT past the last, with no
 * message. */
typedef struct fp8c_stored {
    int32_t variable,
        scale_variable; /* its codes; what they are multiplied with to be values again */
    char recipe[160];                 /* in canonical text */
    const char *kept; /* `delayed`: the element of fp8.scale that training keeps for it,
                         "h.0.attn.c_attn.w"; else NULL */
} fp8c_stored;
FP8C_API fp8c_status fp8c_program_stored(const fp8c_program *program, int index, fp8c_stored *out);
/* Quantize f32 values, [rows, columns] as the variable, into such a variable and its scales, as its
 * recipe says. `scale` is for `delayed` alone: what to multiply with, as training kept it; NULL:
 * from the values' own largest. Of an Inf or a NaN come scales that are NaN. FP8C_ERR_INPUT: the
 * variable is none. */
FP8C_API fp8c_status fp8c_program_quantize(fp8c_program *program, int variable, const float *from,
                                           const float *scale);

/* ---- what was decided, and figures ---- */

typedef struct fp8c_info {
    size_t struct_size; /* sizeof(fp8c_info), set by the caller */
    double compile_seconds;
    int64_t planned_bytes, peak_bytes;     /* known before the run; the most ever allocated */
    int64_t arena_bytes, arena_lower_bound; /* of the hungriest function */
    int64_t linears, fp8_gemms_planned;    /* fp8 GEMMs per micro_step */
    int64_t gemms_executed, fp8_gemms_executed, kernels_executed; /* since creation */
    int64_t distinct_kernels, code_bytes;
    int64_t kernels_cached; /* of the distinct ones, found in the cache rather than compiled */
    int32_t threads;
} fp8c_info;
FP8C_API void fp8c_program_info(const fp8c_program *program, fp8c_info *out);
/* The target compiled for, "cuda" resolved: "cpu", "sm_90a". */
FP8C_API const char *fp8c_program_target(const fp8c_program *program);

/* The GPU a program runs on. */
typedef struct fp8c_device {
    size_t struct_size;         /* sizeof(fp8c_device), set by the caller */
    char name[128];
    int32_t compute_capability; /* times 10: 90 */
    int32_t driver;             /* the CUDA version it takes: 13000 */
    int32_t multiprocessors;
    int64_t memory, memory_free; /* bytes; free: now */
} fp8c_device;
/* FP8C_ERR_INPUT when it runs on none. */
FP8C_API fp8c_status fp8c_program_device(fp8c_program *program, fp8c_device *out);

/* One line per GEMM of a linear. FP8C_ERR_INPUT past the last. */
typedef struct fp8c_decision {
    const char *linear, *role;   /* role: fprop, dgrad, wgrad */
    const char *format_a, *format_b, *scaling, *reason;
    int64_t m, n, k, count;
    int32_t fp8;
} fp8c_decision;
FP8C_API fp8c_status fp8c_program_decision(const fp8c_program *program, int index,
                                           fp8c_decision *out);

/* One step of a function's plan. */
typedef struct fp8c_step {
    const char *name, *kind; /* kind: kernel, gemm, copy, attention (by a library) */
    int32_t phases;
    uint64_t hash;           /* kernels: equal ones share code */
    int64_t bytes_read, bytes_written; /* of distinct inputs and outputs */
    double seconds;          /* with `profile`: over all runs */
} fp8c_step;
FP8C_API fp8c_status fp8c_program_step(const fp8c_program *program, int function, int index,
                                       fp8c_step *out);
/* How the library behind a GEMM computes it, as it says itself, or the algorithm that a file fixed;
 * NULL for other steps and where neither says. */
FP8C_API const char *fp8c_program_algorithm(const fp8c_program *program, int function, int index);

/* What the kernels of one image (a cubin) of a CUDA target were made from; with `listings`.
 * FP8C_ERR_INPUT past the last. */
typedef struct fp8c_image {
    const char *cuda, *ptx, *log; /* log: the compiler's messages, registers and spills by kernel */
    const void *cubin;            /* with text_only: NULL, as ptx and log */
    size_t cubin_size;
} fp8c_image;
FP8C_API fp8c_status fp8c_program_image(const fp8c_program *program, int index, fp8c_image *out);

/* A kernel of a CUDA target: a __global__ function. With text_only the compiler has said nothing
 * yet, and `registers` is 0. FP8C_ERR_INPUT past the last. */
typedef struct fp8c_kernel {
    const char *name, *symbol; /* of the first step that runs it; in its image */
    uint64_t hash;             /* of its description */
    int32_t image, launches;   /* launches: over all functions */
    int32_t threads, multi;    /* of a block; many tensors in one launch */
    int64_t registers, stack, spill_stores, spill_loads; /* of a thread; the last three in bytes */
    int64_t shared, shared_dynamic;                      /* bytes of a block */
    double seconds;            /* its share of its image's compilation */
} fp8c_kernel;
FP8C_API fp8c_status fp8c_program_kernel(const fp8c_program *program, int index, fp8c_kernel *out);

/* ---- memory: where the bytes go, and what a budget costs ----
 *
 * Known from compiling alone, also with plan_only. Texts live as long as the program. */

/* The arena of a function, at its peak: the place in its order where most bytes are alive. */
typedef struct fp8c_peak {
    const char *step;            /* what runs there */
    int32_t position, positions; /* of so many */
    int64_t arena_bytes;         /* the function's */
    int64_t alive_bytes;         /* of these, in use at the peak */
    int64_t activation_bytes;    /* of those, activations and FP8 copies: kept for the backward */
    double seconds;              /* of a run of the function, estimated from the target's rates */
} fp8c_peak;
/* FP8C_ERR_INPUT past the last function, and for target reference, which has no arena. */
FP8C_API fp8c_status fp8c_program_peak(const fp8c_program *program, int function, fp8c_peak *out);

/* Bytes by category, at that peak: parameters, gradients, optimizer, states, inputs and results,
 * constants; of the arena activations, FP8 copies, weight copies, recomputed, workspace; then
 * scratch (room that kernels and GEMMs work in), and unused (of the arena: what other functions, or
 * other moments, need). They add up to planned_bytes of fp8c_info. FP8C_ERR_INPUT past the last. */
typedef struct fp8c_memory {
    const char *category;
    int64_t bytes;
    int32_t in_arena;
} fp8c_memory;
FP8C_API fp8c_status fp8c_program_memory(const fp8c_program *program, int function, int index,
                                         fp8c_memory *out);

/* What is in memory at that peak, the biggest first: variables, ports, and tensors of the arena,
 * each a unit of storage that may hold several values one after the other. FP8C_ERR_INPUT past the
 * last. */
typedef struct fp8c_tensor {
    const char *name, *category;
    fp8c_type type;
    int64_t bytes;           /* in memory, padding included */
    const char *made, *read; /* of the arena: the first step that writes it, the last that reads it;
                                else "" */
    int32_t first, last;     /* their positions */
} fp8c_tensor;
FP8C_API fp8c_status fp8c_program_tensor(const fp8c_program *program, int function, int index,
                                         fp8c_tensor *out);

/* What was done for memory_bytes, memory_share, checkpoint or recompute: bytes of micro_step's
 * arena, seconds of a micro_step, estimated. Zeros where nothing asked for it. */
typedef struct fp8c_remat {
    size_t struct_size;   /* sizeof(fp8c_remat), set by the caller */
    int64_t arena_before; /* without it */
    int64_t arena_budget; /* allowed; INT64_MAX: patterns alone */
    int64_t arena_after;  /* planned */
    int64_t activations_before,
        activations_after; /* of these, activations and FP8 copies at the peak */
    int64_t recomputed;   /* values computed again, each time counted */
    int64_t fp8_gemms;    /* FP8 GEMMs among them */
    double seconds;       /* without it */
    double extra_seconds; /* what it adds */
    int32_t rounds;       /* plans that were laid out to find the best */
} fp8c_remat;
FP8C_API void fp8c_program_remat(const fp8c_program *program, fp8c_remat *out);

typedef struct fp8c_pass {
    const char *name;
    double seconds;
    int64_t nodes;
} fp8c_pass;
FP8C_API fp8c_status fp8c_program_pass(const fp8c_program *program, int index, fp8c_pass *out);
/* The passes of the pipeline in order, for --print-after; NULL past the last. */
FP8C_API const char *fp8c_pass_name(int index);
/* The recipes `recipe` may name; NULL past the last. */
FP8C_API const char *fp8c_recipe_name(int index);
/* A recipe, NAME or NAME {key = value, ...}, as the compiler writes it, with only what differs from
 * the name's defaults, into text, cut to size. FP8C_ERR_INPUT for what is none. */
FP8C_API fp8c_status fp8c_recipe_canonical(fp8c_context *ctx, const char *recipe, char *text,
                                           size_t size);

/* ---- doctor: what is on this machine, what it is good for, what is missing and how to get it ----
 */

/* Everything the library can use, looked for as a program would look: with the context's settings
 * and environment. Libraries found are loaded, asked for their version, and stay mapped, as those
 * of programs do. One thread at a time; strings are the doctor's. */
typedef struct fp8c_doctor fp8c_doctor;

typedef struct fp8c_doctor_options {
    size_t struct_size; /* sizeof(fp8c_doctor_options) */
    /* Called before each component is looked at and each target is tested: a library that kills the
     * process as it is loaded can be named then. NULL: not. */
    void (*before)(void *user, const char *what);
    void *user;
} fp8c_doctor_options;

/* `options` may be NULL. What is missing is no failure, but what is reported. FP8C_ERR_MEMORY. */
FP8C_API fp8c_status fp8c_doctor_create(fp8c_context *ctx, const fp8c_doctor_options *options,
                                        fp8c_doctor **out);
FP8C_API void fp8c_doctor_destroy(fp8c_doctor *doctor);

typedef enum fp8c_component_state {
    FP8C_COMPONENT_OK,
    FP8C_COMPONENT_MISSING, /* nowhere */
    FP8C_COMPONENT_REFUSED, /* there, but it does not load, lacks a function, or fails when asked */
    FP8C_COMPONENT_VERSION, /* there, but too old, or of another major version */
    FP8C_COMPONENT_MISMATCHED /* fine alone, but not beside what else is here */
} fp8c_component_state;
/* "ok", "missing", "does not load", "wrong version", "mismatched" */
FP8C_API const char *fp8c_component_state_name(fp8c_component_state state);

typedef struct fp8c_component {
    const char *name;    /* "NVRTC" */
    const char *kind;    /* "cpu", "cuda" or "more": which targets use it */
    fp8c_component_state state;
    const char *version; /* as it says itself; NULL: it could not be asked */
    int32_t major;       /* of the version: of CUDA's libraries 12 or 13; 0: unknown, or none */
    const char *path;    /* the file that is mapped; NULL: none */
    const char *problem; /* what is wrong, in the loader's or the library's words where they are;
                            NULL when ok */
    const char *note;    /* what does no harm: other copies that are there; NULL */
    const char *enables; /* what it is for */
    const char *places;  /* file names and every folder they were looked for in; "": nothing was
                            looked for */
    const char *get;     /* packages it comes in */
} fp8c_component;
/* FP8C_ERR_INPUT past the last. */
FP8C_API fp8c_status fp8c_doctor_component(const fp8c_doctor *doctor, int index,
                                           fp8c_component *out);

/* Facts: the CPU, memory and their limits, each GPU's state, the cache, the variables of the
 * environment that have an effect and are set. FP8C_ERR_INPUT past the last. */
typedef struct fp8c_fact {
    const char *group, *name, *value; /* "CPU", "level", "x86-64-v4" */
    const char *advice;               /* NULL: there is none to give */
} fp8c_fact;
FP8C_API fp8c_status fp8c_doctor_fact(const fp8c_doctor *doctor, int index, fp8c_fact *out);

/* What can be done for a target: those of fp8c_target_name, "cuda" being the first GPU here. */
typedef struct fp8c_target_report {
    const char *name;
    const char *is;              /* "cuda": the architecture of the GPU present; else NULL */
    int32_t can_compile, can_run;
    const char *compile_missing; /* why not, and how to mend it; NULL when it can */
    const char *run_missing;
} fp8c_target_report;
/* FP8C_ERR_INPUT past the last. */
FP8C_API fp8c_status fp8c_doctor_target(const fp8c_doctor *doctor, int index,
                                        fp8c_target_report *out);

typedef enum fp8c_test_result {
    FP8C_TEST_FAILED,
    FP8C_TEST_PASSED,
    FP8C_TEST_COMPILED, /* as far as it goes where code can't be run here */
    FP8C_TEST_NOT_RUN   /* nothing can be tested: the target's report says why */
} fp8c_test_result;
typedef struct fp8c_self_test {
    fp8c_test_result result;
    double seconds;
    const char *detail; /* of a failure: its message, or the first difference; NULL */
} fp8c_self_test;
/* Compile a small module for the target, with no cache, and run it: FP8 GEMMs, quantizing fused
 * with what comes before, reductions. All sums in it are exact, so its results are those of
 * integers, and those of target `reference`, bit for bit. FP8C_ERR_INPUT: there is no such target.
 * A test that fails is a result, no error. */
FP8C_API fp8c_status fp8c_doctor_test(fp8c_doctor *doctor, int target, fp8c_self_test *out);

#ifdef __cplusplus
}
#endif

#endif
