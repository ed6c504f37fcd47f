/* Choosing by measuring: the recipe of each GEMM (recipe "auto"), and the way in which GEMMs and
 * kernels are computed (tuning). fp8c.h has what holds of all calls: failures, ownership, threads. */
#ifndef FP8C_TUNE_H
#define FP8C_TUNE_H

#include "fp8c.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- choosing recipes by measured error and cost: recipe "auto" ---- */

/* A calibration has a program in bf16 whose micro_step also samples what the GEMMs of every linear
 * read. The caller gives its variables values (initialize, or write). Then, for each of a few
 * batches, it fills the inputs, runs micro_step and calls observe. With two batches or more, fp8c
 * can measure what a scale from an earlier batch is worth. A compile with recipe "auto" and this
 * calibration then gives every GEMM the cheapest recipe whose result has an error within the
 * budget, else bf16. A run of the compiled program costs nothing more for it.
 *     options       of the program to come. fp8c chooses for its target, and calibrates on that
 *                   target, or on the CPU for a CUDA target with no_device
 *     error_budget  relative error of a GEMM's result, from 0 to 1: the root mean square over
 *                   its rows, or its columns, of |Q(a)Q(b) - ab| / |ab|. 0: the default, 0.1 (E4M3
 *                   by E5M2 operands that are scaled well give 0.06)
 * It may be destroyed once the programs that use it are compiled. */
typedef struct fp8c_calibration fp8c_calibration;
FP8C_API fp8c_status fp8c_calibration_create(const fp8c_module *module,
                                             const struct fp8c_compile_options *options,
                                             double error_budget, fp8c_calibration **out);
FP8C_API void fp8c_calibration_destroy(fp8c_calibration *calibration);
/* The program to run; it belongs to the calibration. */
FP8C_API fp8c_program *fp8c_calibration_program(fp8c_calibration *calibration);
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
    double error; /* relative, of the GEMM's result; NaN: the result was zero in every batch, or not
                     finite */
    /* Of the operands a and b: */
    double sqnr[2];                 /* dB */
    double underflow[2], overflow[2]; /* shares of elements that became 0, that exceed the format */
    double seconds, gemm_seconds;   /* estimates from the target's rates */
    double bytes;                   /* moved to make the operands */
} fp8c_candidate;

/* Candidate 0 is bf16. Both end a loop. */
FP8C_API fp8c_status fp8c_calibration_trial(const fp8c_calibration *calibration, int index,
                                            fp8c_trial *out);
FP8C_API fp8c_status fp8c_calibration_candidate(const fp8c_calibration *calibration, int index,
                                                int candidate, fp8c_candidate *out);
/* Write what was chosen as lines of the text, to be put after the other lines of a module. */
FP8C_API fp8c_status fp8c_calibration_rules(const fp8c_calibration *calibration,
                                            fp8c_write_fn write, void *user);

/* ---- tuning: which way is fastest here ----
 *
 * A GEMM can be cut, packed and computed in several ways, and a kernel can be printed in several
 * configurations. The compiler's model takes one. A tuner times the others on the device, in the
 * program's own steps and buffers, and keeps the times in a database file. Every later compile of
 * this context reads it: it takes the database's choice for the same problem, device and versions
 * of the libraries, else the model's. Only another algorithm of a GEMM changes bits of a result;
 * fp8c_program_choice names those. What was timed once is not timed again. */
typedef struct fp8c_tuning fp8c_tuning;

typedef struct fp8c_tune_options {
    size_t struct_size;   /* sizeof(fp8c_tune_options) */
    const fp8c_compile_options *compile; /* of the programs to come; NULL: the defaults. A CUDA
      target needs its device. Target reference, no_device, text_only, plan_only and several ranks
      can't be had */
    const char *database; /* NULL: the context's */
    const char *only;     /* name pattern: the steps to tune. NULL: all */
    double seconds;       /* > 0: start no new timing after so many seconds, but for a few runs that
                             choose among what was timed. What takes longer is left for the next
                             call */
    int32_t runs;         /* of each candidate, and of the model's choice in turn with it; 0: 7 */
    int32_t same_bits;    /* leave out candidates that change bits: other algorithms */
    int32_t again;        /* time what was timed before a second time */
    const char *gemm; /* without a module: "MxNxK:FORMAT". M and N are rows and columns of the
                         result, K is the length of the sums. FORMAT, the dtype of both operands, is
                         f32, bf16, f8e4m3 or f8e5m2, or two of these, as f8e5m2xf8e4m3. Behind it
                         may stand, each with a colon before it, a scaling (tensor, row, block, mx),
                         a role (fprop, dgrad, wgrad), an epilogue (f32, bf16, bias, accumulate) and
                         a layout (nn, nt, tn, tt); without role and layout the second operand is
                         [N, K]. Of `compile` only target, threads and device count.
                         FP8C_ERR_UNSUPPORTED: the target has no such GEMM */
    const char *kernels; /* name pattern: tune row kernels with these names alone, and no GEMM; time
                            attention, by its step's name or by this word, which has one way.
                            FP8C_ERR_INPUT: there is none, or `only` is given, too */
} fp8c_tune_options;

/* Time what was not timed yet for a module, or for one GEMM if `module` is NULL. Choose, and keep
 * both in the database. ctx is the module's. Only with a module may options be NULL. The context's
 * progress callback is called between runs (phase "tune"). If it cancels, or the process dies, what
 * was timed by then stays. FP8C_ERR_IO: the database can't be used; its file is unchanged. */
FP8C_API fp8c_status fp8c_tune(fp8c_context *ctx, const fp8c_module *module,
                               const fp8c_tune_options *options, fp8c_tuning **out);
FP8C_API void fp8c_tuning_destroy(fp8c_tuning *tuning);

typedef struct fp8c_tuning_info {
    size_t struct_size;        /* sizeof(fp8c_tuning_info), set by the caller */
    const char *database, *device;
    int32_t problems, chosen; /* chosen: problems for which something beats the model's choice */
    int64_t timed, kept;       /* candidates timed now; known from before */
    int64_t changed_bits;      /* candidates dropped: the same algorithm gave other bits */
    double untuned_seconds, tuned_seconds; /* of a step, the least of several runs in turns at the
                                              end; 0: nothing new was chosen */
    int32_t finished;          /* 0: `seconds` ran out first */
} fp8c_tuning_info;
FP8C_API void fp8c_tuning_report(const fp8c_tuning *tuning, fp8c_tuning_info *out);

/* A problem: a GEMM, a kernel at an extent, or attention. Seconds are of all its runs in a step, the least. */
typedef struct fp8c_tuned {
    const char *problem, *name;  /* name: of the first step that has it */
    const char *candidate;       /* the chosen one; "model" */
    int32_t gemm, count;         /* count: how often a step has it */
    int32_t candidates;          /* with the model's */
    double model_seconds, seconds; /* 0: not timed */
} fp8c_tuned;
/* Ends a loop. */
FP8C_API fp8c_status fp8c_tuning_problem(const fp8c_tuning *tuning, int index, fp8c_tuned *out);
/* A candidate of a problem and its seconds; 0: not known. Ends a loop. */
FP8C_API fp8c_status fp8c_tuning_candidate(const fp8c_tuning *tuning, int index, int candidate,
                                           const char **text, double *seconds);

/* Rows of the database, to and from a file. Each way does all or nothing. Rows of other devices or
 * versions are kept for them. */
typedef enum fp8c_tuning_way {
    FP8C_TUNING_EXPORT, /* write them as JSON Lines. A file that is a database is not replaced */
    FP8C_TUNING_IMPORT, /* take them over from such a file, where they are newer */
    FP8C_TUNING_MERGE   /* the same from another database */
} fp8c_tuning_way;
typedef struct fp8c_tuning_rows {
    size_t struct_size;      /* sizeof(fp8c_tuning_rows), set by the caller */
    int64_t timings, choices;
    int64_t older;           /* not taken over, since the database has rows as new */
    int64_t others; /* of other devices than this CPU with `threads` of the context */
} fp8c_tuning_rows;
/* `database` NULL: the context's. `rows` may be NULL. FP8C_ERR_INPUT: an export would replace a
 * database, or the rows come from the database itself. */
FP8C_API fp8c_status fp8c_tuning_move(fp8c_context *ctx, fp8c_tuning_way way, const char *database,
                                      const char *path, fp8c_tuning_rows *rows);

/* How a program computes a problem, and who chose that. */
typedef struct fp8c_choice {
    const char *problem, *candidate; /* as in fp8c_tuned */
    int32_t gemm, count;             /* count: steps that have it, over all functions */
    int32_t tuned; /* 1: the database chose; 2: the table that fp8c ships; 0: the model */
} fp8c_choice;
/* Ends a loop. */
FP8C_API fp8c_status fp8c_program_choice(const fp8c_program *program, int index, fp8c_choice *out);

#ifdef __cplusplus
}
#endif

#endif
