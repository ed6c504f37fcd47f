/* fp8c: an embeddable FP8 tensor-op compiler and JIT. This header has what every embedder needs:
 * modules, compiling, running, variables, a layer in the caller's loop. Beside it are
 *
 *     fp8c_ranks.h     several ranks, joined by MPI, by NCCL or by the caller
 *     fp8c_train.h     a training run: data, steps, guards, a folder to go on from
 *     fp8c_tune.h      choosing by measuring: recipes, and ways to compute
 *     fp8c_diagnose.h  decisions, memory, statistics, guards, the machine
 *
 * A whole program:
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
 *         "  return cross_entropy(linear(%y, wte) {transpose_b = true, name = \"head\"},"
 *         " %targets)\n"
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
 *             for (int t = 0; t < 64; t++) { // the target is always the token plus 3
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
 *         const fp8c_compile_options options = {.struct_size = sizeof options,
 *                                               .recipe = "delayed"};
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
 *             status = fp8c_program_save(program, "mlp.safetensors", NULL);
 *         if (status != FP8C_OK)
 *             fprintf(stderr, "%s\n", ctx ? fp8c_context_message(ctx) : "no context");
 *         fp8c_program_destroy(program);
 *         fp8c_module_destroy(module);
 *         fp8c_context_destroy(ctx);
 *         return status != FP8C_OK;
 *     }
 *
 * Failures: every call that can fail returns a status. fp8c_context_message then says what is wrong
 * and where. No call prints or exits. A call whose comment says "ends a loop" returns
 * FP8C_ERR_INPUT for an index past the last, and leaves no message.
 *
 * Environment: fp8c reads it once, when a context is created. Each variable that it reads has a
 * context option that replaces it. In a process with rights that its user lacks (set-uid) it reads
 * no variable, and the log says so. (NCCL has variables of its own, which it reads when it likes;
 * fp8c_nccl_open looks whether NCCL_COMM_ID is there.) The locale of the process changes nothing
 * that fp8c reads or writes.
 *
 * Pointers: every destroy function accepts NULL. No other pointer may be NULL unless its comment
 * says so. Strings that a call returns belong to the object that was asked, and live as long as it.
 *
 * Structs that begin with struct_size: set it to the sizeof of the struct. It tells the library
 * which version of this header the caller was compiled with. Fields that the caller's version lacks
 * count as zero. Options with struct_size 0 are FP8C_ERR_INPUT.
 *
 * Ownership: an object made with a context keeps that context alive. fp8c_context_destroy gives up
 * the caller's hold, and the context goes with the last module, program, lender, calibration,
 * doctor, tuning, burn or health. Until then its callbacks, its allocator and fp8c_context_message
 * serve these objects. No new object can be made with it: FP8C_ERR_INPUT. A program is independent
 * of its module. A handle must not be used or destroyed after its destroy call: its memory is gone,
 * and fp8c cannot tell.
 *
 * Threads: any number of threads may use one context at the same time. A module, a program, a
 * lender, a calibration, a doctor or a tuning belongs to one thread at a time. Different objects
 * may be used at the same time, also those of one context and of one GPU. Several threads may
 * compile one module at the same time if no thread changes it any more.
 *
 * GPUs: a program for a CUDA target keeps its variables in device memory, so `data` of a variable
 * is NULL there. fp8c_program_read and fp8c_program_write copy variables on every target. The
 * buffers of ports are host memory on every target. */
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

/* Lists of names: what an option may have, and what values of an enum are called. */
typedef enum fp8c_name_kind {
    FP8C_NAME_DTYPE,          /* by fp8c_dtype: "f32", ... */
    FP8C_NAME_OP,             /* the ops in the order of the manual */
    FP8C_NAME_PASS,           /* the passes in their order, as print_after names them */
    FP8C_NAME_RECIPE,         /* that `recipe` may have */
    FP8C_NAME_TARGET,         /* that `target` may have */
    FP8C_NAME_ALARM,          /* by fp8c_alarm_kind: "loss_nonfinite", ... */
    FP8C_NAME_COMPONENT_STATE /* by fp8c_component_state: "ok", "missing", "does not load", "wrong
                                 version", "mismatched" */
} fp8c_name_kind;
/* NULL past the last. */
FP8C_API const char *fp8c_name(fp8c_name_kind kind, int index);

/* Receives text. If it returns non-zero, the call that wrote fails with FP8C_ERR_IO. */
typedef int (*fp8c_write_fn)(void *user, const char *text, size_t size);

/* ---- context ---- */

typedef struct fp8c_context fp8c_context;

typedef enum fp8c_log_level { FP8C_LOG_WARNING, FP8C_LOG_INFO, FP8C_LOG_DEBUG } fp8c_log_level;
/* Receives one line without a newline. */
typedef void (*fp8c_log_fn)(void *user, fp8c_log_level level, const char *text);

/* How far a long call is. */
typedef struct fp8c_progress {
    size_t struct_size;
    const char *phase;   /* "passes", "steps", "kernels", "report"; "budget", "tune", "burn" */
    const char *item;    /* the next item: a pass, a function, a kernel; "" once all are done */
    int64_t done, total; /* items of the phase */
    double seconds_left; /* of the phase, estimated; < 0: not known */
} fp8c_progress;
/* The thread that made the call calls this before and after each phase, between items, and within a
 * pass that takes long. Items that other threads finished count as done. A non-zero result cancels:
 * the call fails with FP8C_ERR_CANCELLED, and everything is as it was before the call. Kernels that
 * were ready by then stay in the cache. */
typedef int (*fp8c_progress_fn)(void *user, const fp8c_progress *progress);

/* The embedder's threads. fp8c_parallel_fn runs task(job, thread, begin, end) over parts that make
 * up [0, n_tasks), each part once. It returns when all parts are done and their writes are visible.
 * `thread` is in [0, parallel_threads), and two parts that run at the same time have different
 * ones. Which thread runs which part changes no bit. fp8c does not call it from within a task.
 * Several threads call it at the same time only if several programs run at the same time. If a task
 * was left out or done twice, the fp8c call fails with FP8C_ERR_INPUT. Parts outside [0, n_tasks)
 * or of other threads do nothing. */
typedef void (*fp8c_task_fn)(void *job, int32_t thread, int64_t begin, int64_t end);
typedef void (*fp8c_parallel_fn)(void *user, fp8c_task_fn task, void *job, int64_t n_tasks);

typedef struct fp8c_context_options {
    size_t struct_size; /* sizeof(fp8c_context_options) */
    /* The embedder's allocator: give both functions or neither. alloc returns memory aligned to
     * `align`, or NULL. Several threads call them at the same time if several use the context, and
     * while kernels compile. All memory of fp8c itself comes from it. Other libraries (LLVM,
     * oneDNN, CUDA's, SQLite, and jansson, which reads and writes JSON) use malloc. Where it fails
     * inside LLVM, while kernels of the CPU compile, or inside oneDNN, while a program of the CPU
     * is made or runs, that library mostly ends the process: SIGABRT, SIGSEGV, exit code 127, or
     * std::bad_alloc, which must not be caught. Who must survive it compiles and runs in a child
     * process ("Out of memory" in frontend/README.md). An opened .f8x file needs no LLVM. */
    void *(*alloc)(void *user, size_t size, size_t align);
    void (*free)(void *user, void *ptr, size_t size);
    void *allocator_user;
    /* Where the GPU's libraries are. Each option replaces an environment variable: NULL takes the
     * variable, "" counts as unset. The strings are copied. A path that is not absolute is passed
     * over, and a message says so. fp8c looks for these libraries only when a CUDA target is first
     * used. */
    const char *gpu_library_path; /* FP8C_CUDA_PATH: fp8c looks in this folder and no other */
    const char *cuda_home;        /* CUDA_HOME: a toolkit's folder */
    const char *cuda_path;        /* CUDA_PATH: another toolkit's folder */
    const char *python_env;       /* VIRTUAL_ENV: a Python environment whose wheels have them */
    const char *home;             /* HOME: the user's own wheels, and the cache's default place */
    /* The folder of the kernel cache. Several processes may share it. NULL takes FP8C_CACHE_DIR,
     * else XDG_CACHE_HOME/fp8c, else HOME/.cache/fp8c; "" turns the cache off. fp8c only reads a
     * folder that it can't write. It does not use a folder that it can't read or that belongs to
     * another user. The log says so in both cases. */
    const char *cache_dir;
    int64_t cache_bytes; /* the most it may hold; entries used longest ago go first. 0: 1 GiB */
    const char *tuning; /* FP8C_TUNING: the file of the tuning database. NULL takes the variable,
                           else `tuning.db` in the cache's folder; "": none */
    fp8c_log_fn log;    /* NULL: no log. Any thread that works for a call may call it */
    void *log_user;
    int32_t verbose; /* FP8C_VERBOSE, 0 to 2: the highest fp8c_log_level that is logged. 0 takes the
                        variable; < 0: only warnings, whatever the variable says */
    const char *dump; /* FP8C_DUMP: a folder. Each compile makes a new folder MODULE.TARGET.N in it
                         and writes there the module after each pass and the kernels' descriptions
                         and texts. NULL takes the variable; "": none */
    fp8c_progress_fn progress;    /* may be NULL */
    void *progress_user;
    fp8c_parallel_fn parallel; /* may be NULL. The embedder's threads then run programs, and the
                                  option `threads` of programs has no effect. fp8c starts no thread
                                  of its own, but for collectives (fp8c_comm.on_caller): the calling
                                  thread compiles the kernels */
    void *parallel_user;
    int32_t parallel_threads;     /* how many there are, 1 to 256 */
    int32_t threads; /* for programs whose option is 0; 0: the CPUs this process may run on */
} fp8c_context_options;

/* options may be NULL. FP8C_ERR_INPUT: an option is wrong. There is no context that could hold the
 * message, so `log` receives it, if given. FP8C_ERR_MEMORY. */
FP8C_API fp8c_status fp8c_context_create(const fp8c_context_options *options, fp8c_context **out);
/* Of a GPU that was used, the device's primary context stays retained once until the process ends,
 * also after the last destroy: CUDA's libraries stay mapped, with state in it. It then holds
 * nothing but what the driver and these libraries keep. */
FP8C_API void fp8c_context_destroy(fp8c_context *ctx);

/* For a signal handler that ends the process. fp8c writes a file (.f8x, a checkpoint, an entry of
 * the cache) under a temporary name and renames it when it is whole. This removes the temporary
 * files of all calls that are running on this context. What has its final name stays. The context
 * writes no file afterwards: such calls fail with FP8C_ERR_CANCELLED, and what is compiled is not
 * cached. It is async-signal-safe; any thread may call it while the context lives. fp8c installs no
 * handler, and its own threads take no signals. Handlers of a thread that runs programs on a CPU
 * need a stack of their own (sigaltstack, SA_ONSTACK): in a GEMM of oneDNN for AVX2 the stack
 * pointer may point into the heap. */
FP8C_API void fp8c_context_abandon_files(fp8c_context *ctx);

/* The last failure of the calling thread on this context. If it has a place in a text, the message
 * is "file:line:column: error: message" with the line and a caret, else "error: message". "" if no
 * call failed yet. Valid until the thread's next failing call on the context, or its end. */
FP8C_API const char *fp8c_context_message(const fp8c_context *ctx);

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

/* ---- modules ---- */

typedef struct fp8c_module fp8c_module;

typedef struct fp8c_dim {
    const char *name;
    int64_t value;
} fp8c_dim;

/* Parse the textual language (frontend/text/README.md). `dims` replace the values of `dim` lines;
 * for a dim that is a bound, `dim B <= 32`, they replace the bound. `file` is the name that
 * messages show. */
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

/* The functions below copy what they are given. */
FP8C_API fp8c_status fp8c_module_create(fp8c_context *ctx, const char *name, fp8c_module **out);
/* Declare a parameter. `argument` is the number of CONST, NORMAL or UNIFORM. */
FP8C_API fp8c_status fp8c_module_param(fp8c_module *module, const char *name, const fp8c_type *type,
                                       fp8c_init init, double argument);
/* Set fields of the optimizer by name, as the text's `optimizer adamw {...}`. */
FP8C_API fp8c_status fp8c_module_optimizer(fp8c_module *module, const fp8c_attr *fields, size_t n);
/* Add a rule after all others, so that it wins. `rule` is what the text has after `recipe`, as
 * "\"h.*\" wgrad = bf16" or "layers 1, 1 = bf16". `origin` is what messages and decisions call the
 * rule's place, as "--rule" or a file's name; it may be NULL. A program in bf16 or f32 is so
 * everywhere: the log warns where that overrides an added rule. */
FP8C_API fp8c_status fp8c_module_rule(fp8c_module *module, const char *rule, const char *origin);
/* Check the whole module: every rule must match a linear. fp8c_module_parse and fp8c_compile do
 * this as well. */
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

/* ---- compiling ---- */

typedef struct fp8c_program fp8c_program;
typedef struct fp8c_comm fp8c_comm; /* fp8c_ranks.h */

/* A parameter of a linear, and the recipe under which it is stored as FP8. */
typedef struct fp8c_stored_as {
    const char *name, *recipe;
} fp8c_stored_as;

typedef struct fp8c_compile_options {
    size_t struct_size;      /* sizeof(fp8c_compile_options) */
    const char *target;      /* an FP8C_NAME_TARGET: "cpu" (default), "reference", "cuda" (the
                                GPU of this machine), or an architecture as "sm_90a". Or
                                "cpu:x86-64-v3", "cpu:x86-64-v4": code for any CPU of that level */
    const char *recipe; /* "bf16" (default), or any recipe of the text, as "block {pow2 = true}" */
    int32_t threads;         /* 0: the CPUs this process may run on */
    int32_t no_fuse;         /* one kernel per node: slower, the same bits; for tests */
    int32_t inference; /* only `eval`. forward's results may then be anything; otherwise the first
                          must be the loss, and depend on a parameter. Inputs get no gradient: the
                          log warns of each input that is a linear's weight, and of each parameter
                          that no gradient reaches */
    int32_t pair;      /* a pair: `forward` and `backward` for a caller that owns the loop and the
                          optimizer. "a layer in the caller's loop" below describes it. Forward's
                          results may then be anything, and the log warns of nothing.
                          FP8C_ERR_INPUT with `inference`: that has no backward */
    int32_t profile;         /* measure the time of every step */
    double lr;               /* > 0: replaces the optimizer's learning rate */
    int64_t optimizer_steps; /* > 0: the length of the schedule, instead of the module's */
    const char *keep;        /* name pattern: FP8 operands that micro_step also gives out; for
                                tests. See `stats` and `dump` below */
    const char *print_after; /* a pass's name: print the module after it through `write` */
    fp8c_write_fn write;
    void *write_user;
    int32_t no_device; /* only compile, so that no such GPU or CPU need be there. There are listings
                          and figures, but no memory and no runs. "cuda" still asks a GPU what it
                          is */
    /* Only for CUDA targets: */
    int32_t device;          /* the GPU's ordinal, as the driver counts */
    int32_t listings;  /* keep what fp8c_program_image gives; all kernels are then in one image */
    int32_t text_only; /* stop at CUDA C, which needs no NVRTC; implies no_device and listings */
    void *stream;      /* the embedder's CUstream: a run is enqueued there, and fp8c_program_wait
                          waits. NULL: the program has its own, and a run returns when it is done;
                          it begins after what the default stream was given before */
    /* The embedder's device memory: give both functions or neither. device_alloc returns memory
     * aligned to 256 bytes, or NULL. device_free is given the size as well. */
    void *(*device_alloc)(void *user, size_t size);
    void (*device_free)(void *user, void *ptr, size_t size);
    void *device_user;
    const char *attention; /* who computes attention: "table" (default: a table decides), "own"
                              (fp8c's kernels) or "cudnn". What can't be had is an error */
    const struct fp8c_calibration *calibration; /* for recipe "auto" */
    /* With `inference`: keep weights in memory as FP8 codes. Each has its scales in a variable
     * NAME_scale, or NAME_scale_inv for 128-blocks. `stored` is the recipe, and the module's rules
     * count; NULL: weights are f32. `stored_weights` instead names exactly these weights, as an
     * exported file lists them. `recipe` still says what the GEMMs do, which may be bf16. Where it
     * scales a weight as it is stored, codes and scales are the operand; elsewhere the weight
     * counts for what they dequantize to. */
    const char *stored;
    const fp8c_stored_as *stored_weights;
    size_t n_stored_weights;
    /* A memory budget: give memory_bytes or memory_share, and leave the other 0. fp8c recomputes
     * activations in the backward until the program fits. The results are the same bit for bit. If
     * the budget can't be met, FP8C_ERR_UNSUPPORTED names the least that can. The budget and the
     * two patterns are FP8C_ERR_UNSUPPORTED with `inference` or target reference.
     * With `pair`, memory_share and the patterns say which values `forward` saves. memory_bytes is
     * FP8C_ERR_UNSUPPORTED with it, since saved values lie in memory of the caller or of handles.
     * With `train_step` all four are. */
    int64_t memory_bytes; /* of everything: variables, buffers and arena, as planned_bytes of
                             fp8c_info */
    double memory_share; /* in (0, 1): the share to keep of the activation bytes that micro_step has
                            at its peak without a budget. The arena shrinks by the rest of them.
                            With `pair`: of the bytes that `forward` saves without a budget */
    const char *checkpoint; /* name pattern: of the activations, keep only the matching ones for the
                               backward, whatever the budget. In the models here "x.*" keeps one at
                               every layer. NULL: no such wish */
    const char *recompute;  /* name pattern: recompute the matching values in the backward. NULL:
                               none. A pattern that matches nothing is FP8C_ERR_INPUT */
    int32_t plan_only;      /* stop before code is made: there are decisions, steps, memory and
                               estimates, but nothing to run. It needs no LLVM, NVRTC or GPU, but
                               "cuda" asks a GPU what it is. For a CPU it needs oneDNN, which knows how
                               much scratch GEMMs take. fp8c_program_remat then says what less memory
                               costs */
    const char *values; /* fp8c_compile_file of a module with bounds: the values to put into the
                           file, "B=1,2,4,8", with spaces between dims. A dim that is not named has
                           every value from 1 to its bound. At most 64 sets of values. NULL: every
                           one */
    int32_t observe; /* with `inference`: make a program that calibrates scales of `delayed`, which
                        fp8c_program_load_weights takes */
    /* The next four need `pair`. The first two are name patterns: * stands for any run of
     * characters, ? for one, and commas separate several patterns. FP8C_ERR_INPUT: they match no
     * float (f32, bf16 or f16), or name an integer without * or ?. */
    const char *cotangents;   /* the results of forward that have a cotangent. The others have the
                                 cotangent 0, and nothing is computed for them. NULL: every float */
    const char *gradients_of; /* the inputs whose gradients backward gives. NULL: none */
    int32_t add_gradients; /* backward adds the gradients of parameters to variables grad.NAME
                              instead of returning them */
    int32_t train_step;    /* also `micro_step` and `update`, as without `pair` */
    const char *external; /* name patterns, with commas between them: variables and ports that get
                             no memory from fp8c. See "memory of the caller" below. A pattern that
                             matches nothing is FP8C_ERR_INPUT. A calibration and a tuner ignore
                             it, and fp8c_compile_file refuses it: it is for those who open the
                             file */
    /* Watch what the linears' GEMMs read and write: "statistics" of fp8c_diagnose.h. Name patterns,
     * with commas between them, of LINEAR.x, .w and .dy (operands) and LINEAR.y, .dx and .dw
     * (results). FP8C_ERR_INPUT: they match none. fp8c_compile_file refuses all three. */
    const char *stats;        /* add the function micro_step.stats, which also computes figures of
                                 the matching values; with `pair` forward.stats and backward.stats
                                 likewise */
    const char *stats_recipe; /* with `stats`: also the figures of the matching operands as they
                                 would be if this recipe scaled them. One without a history:
                                 current, rowwise, block or mxfp8, with its options */
    const char *dump; /* add the function micro_step.dump: micro_step, or micro_step.stats with
                         `stats`, with the matching values as further results. NAME is the value as
                         f32; if it is quantized, NAME.q has its codes and NAME.scale_inv their
                         inverse scales */
    /* Train with several ranks (data parallel): each micro_step adds the gradients summed over the
     * ranks, and the loss is the mean over the ranks. Every rank has all variables, and the same
     * bits in them, but for those that `zero` shares. FP8C_ERR_UNSUPPORTED with `pair`, recipe
     * "auto", states of the module's own, and on a GPU without comm->nccl. The struct is copied;
     * what `user` and `nccl` stand for must outlive the program. NULL: the rank is alone */
    const fp8c_comm *comm;
    int32_t ranks; /* with no_device or plan_only: compile for so many, without `comm`. 0: as many as
                      `comm` says, else one */
    /* The stage of ZeRO (arXiv 1910.02054): which variables the ranks share, instead of each having
     * the whole. 1: the moments; 2: also the gradients; 3: also the parameters. 0: as the module's
     * line `zero N` says, else no stage; -1: none, whatever it says. All stages give the same bits.
     * Of a shared variable a program has one rank's rows (fp8c_variable.rows). One rank has all */
    int32_t zero;
    /* How gradients are summed over the ranks; both change bits. reduce_dtype: "f32" (default), or
     * "bf16": they travel as bf16, half the bytes, and are summed as f32. reduce_at: "micro_step"
     * (default), or "update": each rank adds up its own micro_steps, and update sums once; stages 0
     * and 1 alone */
    const char *reduce_dtype, *reduce_at;
    /* Who adds gradients: "ranks" (default), fp8c in the order of the ranks, so that all stages and
     * all runs give the same bits. Or "library": MPI, NCCL or `comm` in an order of its own, so the
     * bits may differ from library to library, from stage to stage and from run to run.
     * reduce_dtype is then "f32" */
    const char *reduce_order;
    int32_t witness; /* 1: keep the module after the passes, for fp8c_program_run_witnessed. On a
                        GPU every step is then a launch of its own, with the same bits.
                        FP8C_ERR_UNSUPPORTED for target reference; fp8c_compile_file refuses it */
    /* With `pair`: name patterns, separated by commas, of parameters that are not trained. backward
     * gives no gradients of these parameters, and nothing is computed or saved for them.
     * FP8C_ERR_INPUT: a pattern that matches no parameter; `train_step`. NULL: every parameter is
     * trained */
    const char *frozen;
} fp8c_compile_options;

/* Write a recipe, NAME or NAME {key = value, ...}, in canonical form into `text`, cut to `size`.
 * That form has only the options that differ from the name's defaults. FP8C_ERR_INPUT: it is not a
 * recipe. */
FP8C_API fp8c_status fp8c_recipe_canonical(fp8c_context *ctx, const char *recipe, char *text,
                                           size_t size);

/* options may be NULL. */
FP8C_API fp8c_status fp8c_compile(const fp8c_module *module, const fp8c_compile_options *options,
                                  fp8c_program **out);
FP8C_API void fp8c_program_destroy(fp8c_program *program);

/* ---- ahead of time ----
 *
 * A .f8x file holds programs compiled for one or more targets: plans, native code or cubins, the
 * layout of variables, and the compile reports. Its bytes depend on the module, the options, the
 * target, the versions of fp8c and of the compilers, and the tuning database's rows for this device
 * and number of threads. The same input gives the same bytes. Opening a file loads no compiler. */

/* Compile a module for each of `options` (at least one) and write PATH, whole or not at all.
 * no_device is implied. Targets of a CPU are "cpu:x86-64-v3", "cpu:x86-64-v4", and "cpu:native" (or
 * "cpu"), whose code runs only on a CPU that has all features of this one. FP8C_ERR_INPUT: two
 * options have the same target, or one asks for target reference, `keep`, `print_after`,
 * `plan_only`, `listings`, `text_only` or `external`. */
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
/* Make a program from a file, or from a file's bytes. The file is read whole and the bytes are
 * copied, so later changes to either do not reach the program. options may be NULL. FP8C_ERR_INPUT:
 * it is damaged, or not such a file. FP8C_ERR_UNSUPPORTED: another version of fp8c wrote it, or no
 * target of it runs here; the message names both sides. */
FP8C_API fp8c_status fp8c_program_open(fp8c_context *ctx, const char *path,
                                       const fp8c_open_options *options, fp8c_program **out);

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

/* ---- dims that are bounds ----
 *
 * Where the text says `dim B <= 32`, one program serves every value of B from 1 to 32. All values
 * share the variables and the memory. Each gives the bits of a program compiled for it alone.
 * fp8c_compile makes the plan for the bound. The plan for another value is made when it is first
 * asked for, and most of its kernels exist by then. A .f8x file has all its plans. */
enum { FP8C_MAX_BOUNDS = 8 }; /* of one module */
typedef struct fp8c_program_dim {
    const char *name;
    int64_t value, bound; /* value: now */
} fp8c_program_dim;
/* Ends a loop. */
FP8C_API fp8c_status fp8c_program_dims(const fp8c_program *program, int index,
                                       fp8c_program_dim *out);
/* A set of values for which the program has a plan; set 0 is the one it began with. A program from
 * a file has all the file's, another one those asked for so far. value[i] is the value of dim i of
 * fp8c_program_dims. Ends a loop. */
FP8C_API fp8c_status fp8c_program_values(const fp8c_program *program, int index, int64_t *value);
/* Set a dim's value. From now on types and sizes of ports, steps and figures are those of this
 * value, and buffers bound before are no longer bound. */
FP8C_API fp8c_status fp8c_program_set_dim(fp8c_program *program, const char *name, int64_t value);
/* Set all dims that the shapes of a function's inputs determine, as fp8c_program_call does.
 * `inputs` are for the ports that carry no variable, in their order. Only shapes count. NULL, or a
 * tensor of another rank, determines nothing. */
struct fp8c_tensor_view;
FP8C_API fp8c_status fp8c_program_fit(fp8c_program *program, int function,
                                      const struct fp8c_tensor_view *const *inputs,
                                      size_t n_inputs);

/* ---- running ---- */

/* Give every variable that has memory its initial value, which depends on the seed and its name
 * alone. Then run `prepare` if the program has it and all its variables have values: it makes the
 * scales anew, from amax histories and from the weights as they are. The first run of a function
 * needs values for all its variables, from this call, fp8c_program_load or fp8c_program_write, or
 * from a tensor that is bound. A caller that then writes parameters of its own runs `prepare`
 * again. (After an optimizer of the caller's `update_scales` does it.) */
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
/* The buffer of a port is the program's own until the caller binds another; binding NULL goes back
 * to the program's own. A bound buffer is row-major and aligned to its element, and the caller
 * keeps it alive. On a GPU the program's own is pinned host memory: a run copies inputs in and
 * outputs out. It copies bound host memory likewise, and uses bound device memory in place. A
 * buffer for an output must not overlap a variable: FP8C_ERR_INPUT. fp8c_program_buffer gives NULL
 * if there is no such port, if the port is external and nothing is bound to it, or if the program
 * was compiled with no_device or plan_only. */
FP8C_API void *fp8c_program_buffer(fp8c_program *program, int function, fp8c_side side, int index);
FP8C_API fp8c_status fp8c_program_bind(fp8c_program *program, int function, fp8c_side side,
                                       int index, void *buffer);

/* Run a function. With the embedder's stream it only enqueues: leave the buffers alone until
 * fp8c_program_wait, or something else, has waited for the stream. After a failure on a GPU every
 * later run fails too, and says so. */
FP8C_API fp8c_status fp8c_program_run(fp8c_program *program, int function);
/* The first step under recipe `delayed`. While the amax history of an operand is empty (all zeros),
 * there is no scale to take from it. A run of micro_step then runs micro_step.first, which scales
 * such an operand by the amax of the tensor itself, as `current` does, and every other operand as
 * micro_step does. In the same way a run of micro_step.stats runs micro_step.first.stats, and one
 * of micro_step.dump micro_step.first.dump. The histories alone decide, before each run. So every
 * micro-step of the first update runs micro_step.first, and so do steps after a load or a carry
 * that leaves a history empty. Both forms have the same buffers, those of micro_step.
 * micro_step.first can be run by its own name, too: with no history empty it gives the bits of
 * micro_step, and takes longer.
 *
 * eval has no such form: where a history is empty it scales by 1. For initial values that changes
 * the loss by about 0.01%. For weights of others carry the scales from a program that observes
 * (fp8c_compile_options.observe).
 *
 * On a GPU a look at the histories waits for the runs before it. fp8c looks only when an update may
 * have emptied one: in the first steps, and then once in as many updates as a history has elements.
 * If the caller has the memory of the histories, by fp8c_program_variable_view or
 * fp8c_program_bind_variable, it looks before each run.
 *
 * fp8c_program_form: the function that a run of `function` runs now, to look it up in the plan or
 * in a profile. Fails as a run does, with *form = -1. */
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
 * in their order. A dim that is a bound takes its value from their shapes. Each tensor has its
 * port's dtype and shape. It is contiguous (strides of axes of size 1 do not count) and aligned to
 * its element, in a GPU's memory to 16 bytes. It lies in host memory or on the program's device. An
 * output must not overlap another tensor or a variable of the program. Otherwise FP8C_ERR_INPUT:
 * nothing has run, and the message says which port, what was given and what it takes. The tensors
 * stay bound. */
FP8C_API fp8c_status fp8c_program_call(fp8c_program *program, int function,
                                       const fp8c_tensor_view *const *inputs, size_t n_inputs,
                                       const fp8c_tensor_view *const *outputs, size_t n_outputs);
/* A port's buffer, or a variable's memory (on a GPU: device memory), as a tensor. The view, its
 * shape and its strides are valid until other memory is bound, a dim changes its value, or the
 * program is destroyed. The strides are never NULL, as DLPack 1.2 demands: they are row-major. A
 * scalar has an address there with nothing to read. FP8C_ERR_INPUT: there is no such port or
 * variable, or no memory. FP8C_ERR_MEMORY: for the strides. */
FP8C_API fp8c_status fp8c_program_port_view(fp8c_program *program, int function, fp8c_side side,
                                            int index, fp8c_tensor_view *out);
FP8C_API fp8c_status fp8c_program_variable_view(fp8c_program *program, int variable,
                                                fp8c_tensor_view *out);

/* ---- memory that is lent ----
 *
 * A call needs memory for its results. A caller that gives its results away as DLPack tensors, as a
 * front end of a framework does, would need new memory at each call, and the system would have to
 * map and clear it. A lender lends the same memory again once the framework has deleted the tensor,
 * and never before:
 *
 *     fp8c_lender_lend(lender, views, tensors);        // sets views[i]->data
 *     fp8c_program_call(program, f, in, n_in, views, n);
 *     ...                                              // the framework takes tensors[i]
 *
 * For each tensor of a call a lender keeps at most as many blocks of memory as were lent for it at
 * one time. It frees those that 64 calls in a row did not need. Any thread may give a tensor back
 * at any time, also while another thread uses the lender, and after the lender was destroyed. */
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

/* A lender of host memory for the n tensors of a call. The caller destroys *out. FP8C_ERR_INPUT:
 * the context was destroyed. FP8C_ERR_MEMORY: out of memory. */
FP8C_API fp8c_status fp8c_lender_create(fp8c_context *ctx, size_t n, fp8c_lender **out);
/* Frees idle memory. What is lent is freed as it is given back; until then the context lives on.
 * NULL does nothing. */
FP8C_API void fp8c_lender_destroy(fp8c_lender *lender);
/* Lend memory for the lender's n tensors. views[i] gives dtype and shape of the i-th. It must be
 * contiguous, on device {1, 0}, with elements of whole bytes. The call sets views[i]->data, aligned
 * to 64 bytes, and out[i], whose holder gives the memory back. The contents are undefined. While
 * sizes stay the same, the i-th tensor gets memory that the i-th had before, if any was given back.
 * FP8C_ERR_INPUT: a view is wrong. FP8C_ERR_MEMORY: out of memory. After a failure nothing is lent,
 * and `data` of the views and `out` must not be used. */
FP8C_API fp8c_status fp8c_lender_lend(fp8c_lender *lender, fp8c_tensor_view *const *views,
                                      fp8c_managed_tensor **out);
/* The bytes of memory that the lender has, lent or idle. With `trim` it frees idle memory first. */
FP8C_API int64_t fp8c_lender_bytes(fp8c_lender *lender, int32_t trim);

/* ---- a layer in the caller's loop ----
 *
 * A program compiled with `pair` is a function with its vector-Jacobian product. It is for a caller
 * that owns the loop, the optimizer and the memory. Its functions:
 *
 *     eval            in:  the inputs. out: the results. It keeps nothing
 *     forward         in:  the inputs
 *                     out: the results, then the saved values saved.0, saved.1, ...
 *     backward        in:  a cotangent dRESULT for each result that has one; those inputs of
 *                          forward that backward reads; saved.0, saved.1, ...
 *                     out: the gradient dINPUT of each input that `gradients_of` names; the
 *                          gradient of each parameter that forward reads, by the parameter's name,
 *                          except those that `frozen` names
 *     forward.first   the same ports as forward and backward. Only with recipe `delayed`: an
 *     backward.first  operand whose amax history is empty is scaled by its own amax
 *     forward.stats   only with `stats`: forward and backward with figures ("statistics" of
 *     ...             fp8c_diagnose.h), and those of the first pair with figures
 *     update_scales   only if a linear is `delayed` or `current`: ends a step. It pushes the amaxes
 *                     that the backwards have seen on the histories, makes the next scales, and
 *                     takes the amaxes of the weights
 *     prepare         likewise: makes scales from the histories and from the weights as they are,
 *                     without ending a step. fp8c_program_initialize runs it
 *
 * Ports. Each side has them in the order given here. Results and inputs are in the order of their
 * declaration, parameters in the order in which forward first reads them. fp8c_program_find_port
 * finds a port by its name. A first result that is f32[] is named `loss`, and its cotangent
 * `dloss`. Inputs and results may not have names that begin with "saved.". A result or an input has
 * the dtype that it is declared with under every recipe, and so has its cotangent or its gradient.
 * An f32 one is not rounded, and a bf16 or f16 one is rounded once.
 *
 * Gradients. Without `add_gradients`, `backward` returns the gradients of parameters. With it,
 * `backward` adds them to the variables grad.NAME, inside the GEMMs where GEMMs make them. The
 * gradient of a parameter has its dtype: f32, or bf16, as a model has it after PyTorch's
 * bfloat16(). A bf16 one is the f32 gradient, rounded once; grad.NAME becomes bf16(grad.NAME + f32
 * gradient), so it is rounded once a backward, as PyTorch rounds what it accumulates. These
 * variables begin as zeros, and the caller sets them to zero after each step. An optimizer works on
 * parameters and grad.NAME where they lie: fp8c_variable.data on a CPU, device memory by
 * fp8c_program_variable_view on a GPU.
 *
 * A step is any number of forwards, each with its backward, then the caller's optimizer, then
 * update_scales once if the program has it. Where it is forgotten, the scales of `delayed` and the
 * weights' amaxes of `current` stay those of an earlier step. If an amax under `delayed` is not
 * finite, update_scales changes no history and no scale, and forgets the amaxes of the step. A
 * weight that is an input, or is computed, is scaled as an activation is.
 *
 * Saved values. `forward` changes no scale, so the same inputs give the same bits again. `backward`
 * needs what its own forward has saved, either in a handle (fp8c_saved below) or in tensors of the
 * caller: the same tensor is bound to saved.N of forward and of backward. Several forwards may wait
 * for their backwards, which may come in any order. While a forward waits, no parameter and no
 * scale may change. With handles these fail then: the functions update, update_scales and prepare,
 * and fp8c_program_initialize, _write, _quantize, _load, _load_weights and _carry (to the program).
 * fp8c can't see a write through fp8c_variable.data or a device address, nor a forward whose saved
 * values are in tensors of the caller: there the caller sees to it. A state that the module's
 * `forward` replaces is replaced by every forward of the pair. So with handles only one forward of
 * such a module may wait.
 *
 * What is saved: codes of FP8 operands with their inverse scales, results of GEMMs and attention,
 * values rounded to bf16, and tensors of one element. `backward` computes the rest again, also the
 * logits that cross_entropy reads, which are never saved. memory_share, checkpoint and recompute of
 * the compile options save less. Of a dim that is a bound each value has saved.N of its own: their
 * number may differ.
 *
 * Parameters, gradients, scales and saved values may lie in tensors of the caller's, and programs
 * may share parameters: "memory of the caller" below.
 *
 * A whole program: two transformer blocks as two programs, three micro-batches a step, the caller's
 * own AdamW, delayed scaling:
 *
 *     #include <fp8c.h>
 *     #include <math.h>
 *     #include <stdio.h>
 *     #include <stdlib.h>
 *     #include <string.h>
 *
 *     enum { LAYERS = 2, MICRO = 3, N = 2 * 32 * 64 }; // N: elements of [2, 32, 64]
 *
 *     static const char text[] = // %d: the layer's number
 *         "module block\n"
 *         "param h.%d.ln_1: f32[64] ones\nparam h.%d.qkv: f32[64, 192] normal(0.05)\n"
 *         "param h.%d.proj: f32[64, 64] normal(0.05)\nparam h.%d.ln_2: f32[64] ones\n"
 *         "param h.%d.up: f32[64, 256] normal(0.05)\nparam h.%d.down: f32[256, 64] normal(0.05)\n"
 *         "func forward(%%x: f32[2, 32, 64]) -> (%%y: f32[2, 32, 64]) {\n"
 *         "  %%qkv = linear(rmsnorm(%%x, h.%d.ln_1), h.%d.qkv)\n"
 *         "  %%q = slice(%%qkv) {start = 0, stop = 64}\n"
 *         "  %%k = slice(%%qkv) {start = 64, stop = 128}\n"
 *         "  %%v = slice(%%qkv) {start = 128, stop = 192}\n"
 *         "  %%a = attention(%%q, %%k, %%v) {heads = 4, causal = true}\n"
 *         "  %%r = add(%%x, linear(%%a, h.%d.proj))\n"
 *         "  %%h = gelu(linear(rmsnorm(%%r, h.%d.ln_2), h.%d.up))\n"
 *         "  return add(%%r, linear(%%h, h.%d.down))\n"
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
 *     static fp8c_program *compile(int l)
 *     {
 *         char own[2000];
 *         fp8c_module *module;
 *         fp8c_program *program;
 *         const fp8c_compile_options options = {.struct_size = sizeof options,
 *                                               .recipe = "delayed",
 *                                               .pair = 1,
 *                                               .gradients_of = "x",
 *                                               .add_gradients = 1};
 *         snprintf(own, sizeof own, text, l, l, l, l, l, l, l, l, l, l, l, l);
 *         check(fp8c_module_parse(ctx, own, strlen(own), "block.f8", NULL, 0, &module));
 *         check(fp8c_compile(module, &options, &program));
 *         check(fp8c_program_initialize(program, 1));
 *         fp8c_module_destroy(module);
 *         for (int i = 0; i < MICRO; i++)
 *             check(fp8c_saved_create(program, &saved[l][i]));
 *         return program;
 *     }
 *
 *     static fp8c_tensor_view tensor(float *data)
 *     {
 *         static int64_t shape[] = {2, 32, 64};
 *         return (fp8c_tensor_view){.data = data, .device = {1, 0}, .ndim = 3, .dtype = {2, 32, 1},
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
 *     // AdamW on the program's parameters, which lie in memory on a CPU; gradients back to zero.
 *     static void adamw(fp8c_program *program, float *moments, int step)
 *     {
 *         fp8c_variable w, g;
 *         char name[64];
 *         for (int i = 0; fp8c_program_variable(program, i, &w) == FP8C_OK; i++) {
 *             const int64_t n = fp8c_type_bytes(&w.type) / 4;
 *             if (!w.is_param)
 *                 continue;
 *             snprintf(name, sizeof name, "grad.%s", w.name);
 *             check(fp8c_program_variable(program, fp8c_program_find_variable(program, name), &g));
 *             for (int64_t k = 0; k < n; k++, moments += 2) {
 *                 float *p = (float *)w.data + k, d = ((float *)g.data)[k] / MICRO;
 *                 moments[0] = 0.9f * moments[0] + 0.1f * d;
 *                 moments[1] = 0.95f * moments[1] + 0.05f * d * d;
 *                 const float mean = moments[0] / (1 - powf(0.9f, (float)step));
 *                 const float square = moments[1] / (1 - powf(0.95f, (float)step));
 *                 *p -= 3e-3f * (mean / (sqrtf(square) + 1e-8f) + 0.1f * *p);
 *             }
 *             memset(g.data, 0, (size_t)n * 4);
 *         }
 *         // Once a step, after the optimizer: histories, the next scales, the weights' amaxes.
 *         check(fp8c_program_run(program, fp8c_program_function(program, "update_scales")));
 *     }
 *
 *     int main(void)
 *     {
 *         static float moments[LAYERS][2 * 64 * 1000];
 *         check(fp8c_context_create(NULL, &ctx));
 *         for (int l = 0; l < LAYERS; l++)
 *             layer[l] = compile(l);
 *         for (int k = 0; k < N; k++)
 *             goal[k] = sinf((float)k / 7);
 *         for (int step = 1; step <= 20; step++) {
 *             double loss = 0;
 *             for (int i = 0; i < MICRO; i++) {
 *                 for (int k = 0; k < N; k++)
 *                     x[i][0][k] = cosf((float)(k + i) / 5);
 *                 // In the first step every history is empty: operands are scaled by own amaxes.
 *                 loss += micro_batch(i, step == 1) / MICRO;
 *             }
 *             for (int l = 0; l < LAYERS; l++)
 *                 adamw(layer[l], moments[l], step);
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
 * the backward of that forward has run, and then serves the next one. It belongs to the thread that
 * its program belongs to, and may be destroyed before or after the program. In fp8c_info its bytes
 * are among peak_bytes, not planned_bytes. They grow if a dim that is a bound gets a value for
 * which forward saves more. */
typedef struct fp8c_saved fp8c_saved;
/* FP8C_ERR_INPUT: the program has no `forward`, or no memory. FP8C_ERR_MEMORY. */
FP8C_API fp8c_status fp8c_saved_create(fp8c_program *program, fp8c_saved **out);
FP8C_API void fp8c_saved_destroy(fp8c_saved *saved);
/* Give up the forward that it holds, if any: its backward will not run. */
FP8C_API void fp8c_saved_drop(fp8c_saved *saved);

/* fp8c_program_call of forward, or of another function that `which` names: 0, or a sum of these. */
typedef enum fp8c_forward {
    FP8C_FORWARD_FIRST = 1, /* forward.first, if the program has it */
    FP8C_FORWARD_STATS = 2, /* the one that watches: forward.stats, or forward.first.stats. Its
                               backward watches too. See "statistics" of fp8c_diagnose.h */
} fp8c_forward;
/* The handle takes what is saved: `outputs` are for the results alone. A call that fails leaves the
 * handle as it was. FP8C_ERR_INPUT also: the handle is another program's; it holds a forward; this
 * forward would replace a state, and another one waits; there is no function that watches. */
FP8C_API fp8c_status fp8c_program_forward(fp8c_program *program, int32_t which, fp8c_saved *saved,
                                          const fp8c_tensor_view *const *inputs, size_t n_inputs,
                                          const fp8c_tensor_view *const *outputs,
                                          size_t n_outputs);
/* fp8c_program_call of the backward that belongs to the handle's forward: backward, backward.first,
 * or one that watches, with the values that dims that are bounds had there. `inputs` are the
 * cotangents, then the inputs of forward that backward reads, with the values that they had. The
 * handle is free then. A call that fails leaves the handle as it was. FP8C_ERR_INPUT also: the
 * handle is another program's, or it holds no forward. */
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
    void *data; /* NULL on a GPU: use read and write. Until other memory is bound */
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
/* Where in a training a state was saved: what a caller needs to go on bit for bit. fp8c gives the
 * numbers back as they were; their meaning is the caller's. */
typedef struct fp8c_position {
    size_t struct_size;   /* sizeof(fp8c_position), set by the caller */
    int64_t step;         /* optimizer steps that are done; not negative */
    uint64_t seed, batch; /* of the order of the data; the number of the next batch */
} fp8c_position;
/* Write all variables as a safetensors file, whole or not at all. Parameters have their own names,
 * states "fp8c.state.NAME". The metadata name the elements of FP8 states (fp8c_program_element).
 * With `at`, which may be NULL, they have the position and a checksum of all variables, as the
 * checkpoints of `fp8c train --run` have them. Where ranks share variables (`zero`), all of them
 * call this together: rank 0 writes the whole of each, and all fail if it does. Any number of ranks
 * can load the file, at any stage. */
FP8C_API fp8c_status fp8c_program_save(fp8c_program *program, const char *path,
                                       const fp8c_position *at);
/* Read all variables back. The file must have each variable of the program, with its dtype and
 * shape, and no other tensors but "fp8c.state." ones. Otherwise the call fails before it changes
 * anything, and the message names what is missing or different. If the call fails while it writes
 * values, the variables have none afterwards. A state that `prepare` computes from the parameters
 * alone may be missing: then it is computed. With params_only the states keep their values, so they
 * must have some: initialize first. `prepare` then runs if the program has it.
 * `at` may be NULL. Else *at becomes the file's position. FP8C_ERR_INPUT also: params_only; the
 * file has no position, which is seen before anything changes; or the values do not have the
 * checksum, so that the file is damaged. Then the variables have its values nevertheless. */
FP8C_API fp8c_status fp8c_program_load(fp8c_program *program, const char *path, int32_t params_only,
                                       fp8c_position *at);

/* ---- weights of others ----
 *
 * fp8c_program_load reads fp8c's own checkpoints. fp8c_program_load_weights also reads weights that
 * others wrote: from several files, under other names, with tensors that the program does not need.
 * frontend/checkpoint/README.md describes what it takes, and from which formats. */

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
    int32_t error;        /* the load fails for it: UNEXPECTED, DIFFERENT, and MISSING ones that
                             allow_missing does not name */
    const char *variable; /* NULL: IGNORED, UNEXPECTED */
    const char *tensor;   /* its name in its file; NULL: MISSING */
    const char *file;     /* NULL: MISSING */
    const char *detail;   /* the dtype and shape that the tensor has or the variable wants; of a
                             difference both; why it is ignored */
} fp8c_load_item;

typedef struct fp8c_load_options {
    size_t struct_size;       /* sizeof(fp8c_load_options) */
    const char *const *files; /* safetensors files, or Hugging Face's NAME.safetensors.index.json,
                                 which stands for the files that it lists */
    size_t n_files;           /* at least 1 */
    /* Patterns, in which * stands for any run of characters.
     *     ignore         tensors of the files whose names match are passed over
     *     map            texts FROM=TO: a tensor whose name in the file matches FROM gets the name
     *                    TO, whose stars stand for what the stars of FROM stood for, in their
     *                    order; the first FROM that matches decides
     *     allow_missing  parameters of the program whose names match may be missing: they keep
     *                    their values
     * FP8C_ERR_INPUT: a pattern of `ignore` or `map` changes nothing, or one of `allow_missing`
     * matches no parameter. */
    const char *const *ignore;
    size_t n_ignore;
    const char *const *map;
    size_t n_map;
    const char *const *allow_missing;
    size_t n_allow_missing;
    /* Calibrates the scales of activations that `delayed` needs, if no file has them. This program
     * was compiled with `observe` from the same module and recipe; the scales follow from the
     * largest magnitudes that its eval has observed. NULL: files without scales are
     * FP8C_ERR_INPUT. */
    fp8c_program *scales;
    /* Called for each tensor and each variable that is missing, before anything changes, also if
     * the load then fails. May be NULL. */
    void (*report)(void *user, const fp8c_load_item *item);
    void *user;
} fp8c_load_options;
/* Give a program the values of files. Its parameters must be there, with their shapes. F32, BF16
 * and F16 become f32 exactly, and a bf16 parameter takes BF16 alone; a weight that the program
 * stores as FP8 is quantized. A program for inference takes the states that its eval reads as well.
 * One that trains takes all states if the files have states of fp8c, else none: initialize it
 * first. Then `prepare` runs. If anything does not fit, FP8C_ERR_INPUT: nothing has changed, and
 * the message names all of it. If a file can't be read half way, the program has no values any
 * more, and must be loaded again.
 *
 * Scales for inference under `delayed` with weights that were trained elsewhere:
 *
 *     options.recipe = "delayed", options.inference = 1, options.observe = 1;
 *     fp8c_compile(module, &options, &observer);
 *     fp8c_program_load_weights(observer, &load);
 *     for (each of a few batches of inputs)     // fill the inputs of eval
 *         fp8c_program_run(observer, fp8c_program_function(observer, "eval"));
 *     options.observe = 0;
 *     fp8c_compile(module, &options, &program);
 *     load.scales = observer;
 *     fp8c_program_load_weights(program, &load); // fp8c_program_save then keeps the scales
 *
 * The eval of a program with `observe` computes in high precision and has the same results. It
 * keeps the largest magnitudes over all its runs. */
FP8C_API fp8c_status fp8c_program_load_weights(fp8c_program *program,
                                               const fp8c_load_options *options);

/* What element `index` along a state's first axis stands for. For FP8 scales and amaxes it is an
 * operand of a linear's GEMMs, "h.0.attn.c_attn.x" (operands x, w and dy). A program that trains
 * and one for inference have the same names, but not the same indices. Linears that read one value
 * under one recipe share one operand, as those that make q, k and v of attention do: then the
 * element has several names. Number 0 is that in the first of the linears, "attn.q.x"; 1, 2, ...
 * are its aliases, "attn.k.x" and "attn.v.x". NULL past the last element or name, and for other
 * variables. */
FP8C_API const char *fp8c_program_element(const fp8c_program *program, int variable, int64_t index,
                                          int number);

/* Copy to program `to` what program `from` has observed of its operands under `delayed`: the amax
 * histories (fp8.amax_history) and the amaxes since the last update (fp8.amax). Then `to` can have
 * other shapes or recipes, or be for inference where `from` trains, and the reverse. Operands are
 * found by name and alias. Those of a head in chunks are numbered ("head.x.1"); one whose number
 * `from` lacks is missing.
 *
 * Of a longer history the newest amaxes are taken, and a shorter one is filled up with zeros. Then
 * `prepare` of `to` runs. It makes all scales of `to` anew by its own recipes, from the histories
 * and from its weights as they are. So where recipe and weights are those of `from`, the scales
 * have the same bits. Where a history is empty, an operand takes the scale of `from` if both have
 * the same recipe, and else keeps its own. If `from` was compiled with `observe` and `to` was not,
 * what `from` has seen becomes the newest entry of each history.
 *
 * The variables of both programs have values. Both programs belong to the calling thread, and may
 * be of different contexts and targets. If neither has operands with histories, only `prepare`
 * runs, if `to` has it. A failure's message is in the context of `to`. FP8C_ERR_INPUT, and nothing
 * has changed:
 *   - one of the programs has no memory, or its variables have no values; both are the same
 *   - a forward of `to` waits for its backward
 *   - there are operands with histories, and none was carried
 *   - an amax that a program with `observe` has seen is not finite */
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
/* Quantize f32 values, [rows, columns] like the variable, into such a variable and its scales, as
 * its recipe says. `scale` is for `delayed` alone: the factor that training kept; NULL takes it
 * from the largest magnitude of the values. An Inf or a NaN gives scales that are NaN.
 * FP8C_ERR_INPUT: the variable is not a stored weight. */
FP8C_API fp8c_status fp8c_program_quantize(fp8c_program *program, int variable, const float *from,
                                           const float *scale);

/* ---- memory of the caller ----
 *
 * Ports are bound by fp8c_program_call and fp8c_program_bind, variables by
 * fp8c_program_bind_variable. A bound variable lives in the caller's tensor: every function of the
 * program reads and writes it there, for every value of dims that are bounds, and so do
 * fp8c_program_read, write, save, load and initialize. Addresses change no bit.
 *
 * What matches the option `external` has no memory of fp8c's at all. planned_bytes and peak_bytes
 * leave it out. Until a tensor is bound to it, a run of a function that uses it is FP8C_ERR_INPUT,
 * and the message has its name; fp8c_program_buffer and `data` of fp8c_program_variable are NULL.
 * On a GPU an external port takes device memory alone: there is nothing to copy host memory to.
 *
 * Values: binding copies nothing. What the tensor holds is the variable's value from then on, and
 * what memory of fp8c's holds stays there until NULL is bound. A function can run once each of its
 * variables has a value: initialized, loaded, written or bound. fp8c_program_initialize gives
 * values to all variables that have memory, the caller's included. So a caller who has values of
 * its own initializes first, then binds, and then runs `prepare` if there is one: initialize runs
 * it only if all its variables have values.
 *
 * Sharing: two programs of one context may have one variable in the same memory if their types are
 * equal, and both or neither are parameters. A variable with elements (fp8c_program_element), such
 * as FP8 scales, can be shared only if both programs have the same elements in the same order.
 * Memory of two variables that overlaps in any other way is refused. While a program that writes a
 * shared variable runs, no other one that has it may run. */

/* Bind a tensor to a variable, until another one is bound, or NULL: then the variable is in memory
 * of fp8c's again. The tensor has the variable's dtype and shape. It is contiguous, aligned and on
 * the program's device as fp8c_program_call demands; on a GPU it is in device memory. The caller
 * keeps it alive until the program is destroyed or another tensor is bound. FP8C_ERR_INPUT, and
 * nothing changes: the tensor does not fit, which the message explains; its memory overlaps another
 * variable's or the buffer of a port (of fp8c's, or bound to it: bind NULL to a port whose buffer
 * is gone); another program of the context uses the memory otherwise; NULL for an external
 * variable; a forward waits for its backward (fp8c_saved). Runs that were enqueued before use the
 * memory that was bound then. */
FP8C_API fp8c_status fp8c_program_bind_variable(fp8c_program *program, int variable,
                                                const fp8c_tensor_view *tensor);
/* Enqueue later runs on `stream`, a CUstream of the program's GPU, as with the option `stream`.
 * NULL: on the program's own, and a run returns when it is done. The new stream waits for the runs
 * that were enqueued on the stream before it, which must still exist. The default stream is
 * CU_STREAM_LEGACY or CU_STREAM_PER_THREAD here. FP8C_ERR_INPUT: the program does not run on a GPU.
 * FP8C_ERR_LIBRARY: the driver refuses the stream, and the program keeps the one it has. */
FP8C_API fp8c_status fp8c_program_set_stream(fp8c_program *program, void *stream);

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

#ifdef __cplusplus
}
#endif

#endif
