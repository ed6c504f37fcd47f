/* Measurements of GEMMs and kernels that others can check: every run of every way, in fresh
 * processes, with what the machine was and could do. Internal to frontend/.
 *
 *     measurements.c             a set of measurements: adding, merging processes, figures
 *     records.c read.c           sets as JSON Lines, and back
 *     machine.c                  what a process says of its machine
 *     table.c                    a set as a table for people
 *     headlines.c                what a set says as a whole, and what peers say
 *     csv.c markdown.c t4.c      a set as files of other formats
 *     command.c                  the command line that measures a row again
 *     interval.c student.c       the ratio of two measurements, with its interval
 *     diff.c diff_table.c        two sets: ratios of all problems; for people, and as records
 *     model.h                    the GEMMs and kernels of a model's step
 *     inputs.c operands.c        operands by distribution; their exact product, and how far a
 *                                result may be off
 *     peer.h                     other libraries, which take turns with fp8c's ways
 *     session.h                  a process that measures
 *
 * Nouns: a PROBLEM is a GEMM (or a kernel) with its sizes, formats and all else that its result
 * depends on. A WAY is a candidate of the tuner, or another library (a peer). The model's way is
 * what a compile takes without a database. A MEASUREMENT is a way of a problem under a state of
 * the cache, with the seconds of every run. A run computes the problem once. */
#ifndef F8_MEASURE_H
#define F8_MEASURE_H

#include <jansson.h>

#include "ir/base/table.h"

enum { F8_MEASURE_SCHEMA = 1 };

/* ---- what was measured ---- */

/* The runs of a measurement in one process, in the order in which they were made. */
typedef struct f8_measure_runs {
    const char *process; /* the id of an f8_measure_process */
    const double *seconds;
    size_t n; /* at least 1 */
} f8_measure_runs;

/* A problem, as --gemm takes it. A kernel has a name, and no sizes. */
typedef struct f8_measure_problem {
    const char *text; /* "64x768x3072:f8e4m3:fprop:bf16": what finds it again in another file */
    const char *name; /* "": none */
    int64_t m, n, k, count;                                 /* count: how often a step has it */
    const char *a, *b, *scaling, *role, *epilogue, *layout; /* scaling: "none" without FP8 */
    double flops, bytes;                                    /* of a run; flops 0: a kernel */
} f8_measure_problem;

typedef enum f8_measure_kind {
    F8_MEASURE_MODEL,     /* the model's way: candidate "model" */
    F8_MEASURE_CANDIDATE, /* another of fp8c's */
    F8_MEASURE_PEER       /* another library */
} f8_measure_kind;        /* in files "model", "candidate", "peer" */

typedef enum f8_measure_state {
    F8_MEASURE_TIMED,
    F8_MEASURE_LACKING, /* this target, machine or library can't: `reason` */
    F8_MEASURE_LATE     /* the time was up before it had a run */
} f8_measure_state;     /* in files "timed", "lacking", "out of time" */

typedef enum f8_measure_answer {
    F8_MEASURE_UNKNOWN = -1,
    F8_MEASURE_NO,
    F8_MEASURE_YES
} f8_measure_answer;

/* A way of a problem under a state of the cache. */
typedef struct f8_measurement {
    f8_measure_problem problem;
    const char *cache;     /* "cold", "warm"; "step": as a step of its model finds it */
    const char *candidate; /* "model", a candidate's text, or a peer: "oneDNN matmul bf16" */
    const char *operands;  /* what was multiplied: "f8e4m3 x f8e4m3", "bf16, decoded from f8e4m3" */
    f8_measure_kind kind;
    f8_measure_state state;
    const char *reason;          /* of LACKING; else "" */
    const char *unit;            /* whose peak limits it: "f32", "bf16", "fp8"; "": not known */
    bool chosen;                 /* a compile that reads the database takes it */
    f8_measure_answer same_bits; /* as the model's way; of a peer always UNKNOWN */
    double error; /* the largest of 4,096 elements, in units of its bound; NaN: not known */
    double compile_seconds; /* to make it ready the first time; NaN: not known */
    f8_measure_runs *process;
    size_t n_processes;
    /* Figures of all runs; NaN without runs. (f8_measure_figures) */
    size_t runs;
    double median, quartile[2], least; /* seconds */
    double rate;                       /* flops / median, or bytes / median of a kernel */
    double limit; /* the most the machine can do of it, by flops, bytes and the limits measured */
    double share; /* rate / limit */
} f8_measurement;

/* ---- where it was measured ---- */

/* What a machine can do at most, measured beside the runs; 0: not known. */
typedef struct f8_measure_limits {
    double flops_f32, flops_bf16, flops_fp8; /* operations a second of the unit of these operands */
    double bytes;                            /* a second, of memory */
} f8_measure_limits;

/* A GPU at a moment; 0: not known. */
typedef struct f8_measure_clocks {
    double sm_mhz, memory_mhz, watts, celsius;
} f8_measure_clocks;

/* A process that measured. */
typedef struct f8_measure_process {
    const char *id;   /* "20261128T043718.123Z-4711": its begin and its number; unique */
    const char *date; /* of its begin, "2026-11-28T04:37:18Z" */
    double load;      /* of the machine in the minute before it; NaN: not known */
    int64_t cpus;     /* of the machine: a load above it disturbs */
    f8_measure_limits before, after;
    f8_measure_clocks begin, end; /* of a GPU */
} f8_measure_process;

/* What is the same in all processes of a set. Texts are "" where they say nothing. */
typedef struct f8_measure_about {
    const char *command;          /* the command line, which reproduces it */
    const char *version, *commit; /* fp8c's; commit "": it was not built from a repository */
    const char *device;           /* "cpu AMD EPYC, x86-64-v4, 2 threads" */
    const char *processor;        /* the CPU's or GPU's name */
    const char *target, *libraries, *driver, *governor, *system;
    int64_t threads;
    const char *inputs;  /* the distribution of the operands */
    const char *program; /* "fp8c", "torch" */
} f8_measure_about;

/* A set: what one call measured, or what a file holds. Zeros but for the arena, which owns all of
 * it and which the caller begins and ends. */
typedef struct f8_measure_set {
    f8_arena arena;
    f8_measure_about about;
    f8_measure_process *process;
    f8_measurement *measurement; /* a problem's are neighbours; the model's way first, peers last */
    size_t n_processes, n_measurements, room_processes, room_measurements;
    f8_table by_problem; /* of measurements */
} f8_measure_set;

/* ---- measurements.c ---- */

/* Append copies; NULL for a text is "". Runs of a measurement that is there (same problem text,
 * cache, candidate) are added to it; of its other facts those stay that are known, but other bits
 * in one process are other bits, and the largest error is its error. Figures are not made. A
 * measurement may move when another is added. F8_ERR_INPUT: the process is there already. */
f8_status f8_measure_add_process(f8_measure_set *set, const f8_measure_process *process,
                                 f8_diag *diag);
f8_status f8_measure_add(f8_measure_set *set, const f8_measurement *m, f8_diag *diag);
/* NULL: there is none. */
f8_measurement *f8_measure_find(const f8_measure_set *set, const char *problem, const char *cache,
                                const char *candidate);
/* A problem under a state of the cache by one way: the model's if it was timed, else the first that
 * was. NULL: none was. */
const f8_measurement *f8_measure_pick(const f8_measure_set *set, const char *problem,
                                      const char *cache);
/* Copy what is the same in all processes. */
f8_status f8_measure_set_about(f8_measure_set *set, const f8_measure_about *about, f8_diag *diag);
/* Whether a way was measured in every process that measured `other`, so that their medians compare. A
 * later process leaves out ways that were slower, and may run while the machine is slower. */
bool f8_measure_compares(const f8_measurement *m, const f8_measurement *other);
const f8_measure_process *f8_measure_find_process(const f8_measure_set *set, const char *id);
/* Make the figures of all measurements. A limit is the median of what its processes measured before
 * and after. For a GEMM it is the roofline: the least of the unit's peak and bytes a second times
 * operations for a byte; in a warm cache the peak alone. (Williams, Waterman, Patterson 2009) */
f8_status f8_measure_figures(f8_measure_set *set, f8_diag *diag);
/* Quantile q (0 to 1) of n >= 1 numbers, between neighbours in proportion (type 7 of Hyndman, Fan
 * 1996). `x` is sorted in place. */
double f8_measure_quantile(double *x, size_t n, double q);
/* Whether any process began under a load above its CPUs. */
bool f8_measure_was_loaded(const f8_measure_set *set);

/* ---- records.c, read.c ----
 * JSON Lines: a record `benchmark` (f8_measure_about, with "schema"), `process` for each process,
 * `timing` for each measurement. Records of other events are passed over. What is not known is
 * null, but 0 of limits and clocks; an error without bound is the largest double. */

/* An array of all records, NULL without memory. The caller owns it. */
json_t *f8_measure_records(const f8_measure_set *set);
/* Read a file into an empty set, and make its figures. F8_ERR_INPUT names file, line and what is
 * wrong with it. */
f8_status f8_measure_read(f8_measure_set *set, const char *path, f8_diag *diag);

/* Parts of it as texts of JSON, for the tuning database: a process, and the facts of a way without
 * its problem and runs. The caller frees a text; NULL without memory. Reading a process adds it to
 * the set; texts of a way lie in the set's arena. */
char *f8_measure_process_text(const f8_measure_process *process);
char *f8_measure_way_text(const f8_measurement *m);
f8_status f8_measure_read_process(f8_measure_set *set, const char *text, f8_diag *diag);
f8_status f8_measure_read_way(f8_measure_set *set, const char *text, f8_measurement *m,
                              f8_diag *diag);

/* ---- command.c ---- */

/* A word as a shell takes it: in quotes if a shell could see more in it than letters. It is `word`,
 * or lies in `arena`; NULL without memory. */
const char *f8_measure_quote(const char *word, f8_arena *arena);

/* The command line that measures this problem alone again: `fp8c tune --gemm ...`. For what has
 * none, the set's: kernels, GEMMs as a model's step finds them, what another program measured. The
 * text lies in the set or in `arena`; NULL without memory. */
const char *f8_measure_command(const f8_measure_set *set, const f8_measurement *m, f8_arena *arena);

/* ---- table.c ---- */

/* For a terminal: a line for each problem, or of one problem a line for each way; then the machine
 * and the headlines. The caller frees it; NULL without memory. */
char *f8_measure_table(const f8_measure_set *set);

/* ---- csv.c markdown.c t4.c ----
 * A set with its figures as a text, which the caller frees; NULL without memory. */

/* Comma-separated, by RFC 4180: a row for each measurement, which has all figures and all of
 * f8_measure_about, and of its processes the number, dates, loads and limits. */
char *f8_measure_csv(const f8_measure_set *set);
/* Tables of Markdown: where and how, the headlines, a row for each measurement. */
char *f8_measure_markdown(const f8_measure_set *set);
/* The T4 format of Kernel Tuner's auto-tuning results: schema 1.0.0. */
char *f8_measure_t4(const f8_measure_set *set);

/* ---- headlines.c ---- */

/* What a set says as a whole, under one state of the cache. Seconds are of a step: each problem
 * `count` times, by its median, over the problems whose model's way was timed. Where no other way
 * of fp8c's was, nothing is known of the best: NaN. */
typedef struct f8_measure_headline {
    const char *cache;
    int64_t problems, timed, lacking, late;
    double model, best, best_same_bits; /* seconds of the model's ways; of the fastest of fp8c's;
                                           of the fastest with the model's bits */
    double regret;     /* model / best - 1: what the heuristic loses, weighted by count */
    double share;      /* geometric mean of the shares of the model's ways; NaN: none known */
    double best_share; /* of the fastest ways */
} f8_measure_headline;
/* False ends a loop: there is no state of the cache number `index` in the set. */
bool f8_measure_headline_at(const f8_measure_set *set, int index, f8_measure_headline *out);

/* What a set says as a whole as records: `headline` for each state of the cache, `peer` for each
 * peer under it. The caller owns the array; NULL without memory. */
json_t *f8_measure_headline_records(const f8_measure_set *set);

/* What a peer says, under one state of the cache: over problems where it and fp8c were timed. */
typedef struct f8_measure_peer_line {
    const char *cache, *peer;
    int64_t problems, slower; /* slower: of those, where fp8c's best is slower beyond its interval
                                 (f8_measure_interval, 95%) */
    int64_t unknown;          /* of those, without an interval: one process measured */
    double model, best;       /* geometric means of fp8c's seconds over the peer's */
} f8_measure_peer_line;
bool f8_measure_peer_at(const f8_measure_set *set, int index, f8_measure_peer_line *out);

/* ---- interval.c ---- */

typedef struct f8_measure_options {
    uint64_t seed; /* of the bootstrap */
    int64_t draws; /* of it; 0: 2,000 */
    double level;  /* of the intervals; 0: 0.95 */
    double drift;  /* what else makes the two differ: its standard deviation, of the logarithm */
} f8_measure_options;
/* Options as they are used; NULL: the defaults. F8_ERR_INPUT: they make no sense. */
f8_status f8_measure_settle(const f8_measure_options *options, f8_measure_options *out,
                            f8_diag *diag);

/* A ratio of two measurements' seconds (b over a), with the interval that holds it. With one
 * process on a side nothing is known of how processes differ: interval and p are NaN. So they are
 * where a clock is too coarse for a run, which took 0 seconds. */
typedef struct f8_measure_ratio {
    double ratio, low, high;
    double p;     /* of no difference */
    double error; /* the standard error of its logarithm */
} f8_measure_ratio;
/* The ratio of medians. Its standard error is of a bootstrap over processes, then runs; the
 * interval is Student's, by how many processes there are. NULL for options: the defaults. */
f8_status f8_measure_interval(const f8_measurement *a, const f8_measurement *b,
                              const f8_measure_options *options, f8_arena *arena,
                              f8_measure_ratio *out, f8_diag *diag);

/* ---- diff.c ---- */

/* A problem under a state of the cache that both sets have. */
typedef struct f8_measure_change {
    const f8_measurement *a, *b; /* the model's way; without one the first that was timed */
    f8_measure_ratio ratio;
    bool marked; /* it differs from 1: p is below 1 - level after Holm's correction over all
                    changes (Holm 1979) */
} f8_measure_change;

/* A limit of the machine that differs between two sets of one device. */
typedef struct f8_measure_drift {
    const char *limit;      /* "f32", "bf16", "fp8", "memory"; NULL: none differs */
    f8_measure_ratio ratio; /* of the seconds for as much work: above 1, b's machine did less */
} f8_measure_drift;

typedef struct f8_measure_diff {
    const f8_measure_set *a, *b;
    f8_measure_options options; /* as used; the drift is that of the machine */
    f8_measure_drift drift;     /* the limit that differs most */
    double scatter; /* what the problems together differ by, beyond what their runs explain, as a
                       deviation of the logarithm; at most 0.03; 0: nothing, or few problems */
    f8_measure_change *change; /* in a's order */
    const f8_measurement *
        *only[2]; /* measured in a alone, in b alone: one for a problem and cache */
    size_t n_changes, n_only[2];
    double mean; /* the geometric mean of the ratios; NaN: there is none */
} f8_measure_diff;
/* Compare two sets. What is made lies in `arena`. Where both name one device and a limit that their
 * processes measured differs (p < 0.01 over all limits; that of memory by 15%), the machine was in
 * another state. It may be the cause of as large a change: the drift of all intervals is the
 * logarithm of that limit's ratio. A smaller change of the machine shows in the problems together:
 * the drift is at least `scatter`. F8_ERR_INPUT: they have no problem in common. */
f8_status f8_measure_compare(const f8_measure_set *a, const f8_measure_set *b,
                             const f8_measure_options *options, f8_arena *arena,
                             f8_measure_diff *out, f8_diag *diag);
/* Whether a problem is slower in b by more than `percent`, with its whole interval, and marked: of
 * many problems, intervals of some exclude 1 by chance. */
bool f8_measure_is_slower(const f8_measure_change *c, double percent);
/* (diff_table.c) A diff for people: versions and devices that differ on top, then a row for each
 * problem. The caller frees it; NULL without memory. */
char *f8_measure_diff_table(const f8_measure_diff *d);
/* A diff as records: `change` for each problem, `only`, `diff`. */
json_t *f8_measure_diff_records(const f8_measure_diff *d);

#endif
