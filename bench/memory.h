/* Private to bench_memory: training steps planned by the passes alone under budgets of memory, and
 * tables of them. */
#ifndef BENCH_MEMORY_H
#define BENCH_MEMORY_H

#include <stdio.h>

#include "passes/memory/report.h"

/* ---- output ---- */

typedef struct output {
    bool json;   /* records on stdout */
    FILE *table; /* tables, as Markdown: stderr with json, else stdout */
    int missed;  /* bars not held so far */
} output;

/* A line of the table. */
void say(output *o, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A record, with json. */
void record(output *o, double value, const char *unit, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* "held" or "NOT HELD", which it counts. */
const char *bar(output *o, bool held);

static inline double mib(int64_t bytes)
{
    return (double)bytes / 1048576.0;
}

static inline double percent(double part, double of)
{
    return of != 0 ? 100 * part / of : 0;
}

/* ---- what is planned ---- */

typedef struct plan_case {
    const char *model;             /* frontend/models/NAME.f8 */
    const char *recipe, *target;   /* by name */
    int64_t batch, tokens, layers; /* 0: as in the text */
} plan_case;

/* "gpt2_124m B=8 bf16 cpu", in a buffer of the caller's. */
const char *case_name(const plan_case *c, char *buf, size_t size);

typedef struct plan_wish {
    double share;                       /* of activation bytes; 0: none */
    int64_t arena;                      /* bytes of micro_step's; 0: any */
    const char *checkpoint, *recompute; /* as in f8_options */
    bool whole; /* all functions go through all passes, as when compiling; else micro_step alone
                   after legalize */
} plan_wish;

enum { MAX_CLASSES = 24 };

/* Tensors whose names differ in numbers alone: "a.#". */
typedef struct tensor_class {
    char name[72];
    f8_memory_category category;
    const char *dtype; /* of the first, in memory */
    int n;
    int64_t bytes;
} tensor_class;

/* Bytes are of micro_step's arena, as in f8_remat_summary; extra_seconds is an estimate. */
typedef struct plan_result {
    bool met; /* else what follows is the least that the passes found instead */
    int64_t before, after;
    int64_t activations_before, activations_after; /* at the peak */
    int64_t recomputed;
    double seconds, extra_seconds;      /* of a micro_step */
    double pass_seconds, remat_seconds; /* of a CPU: all passes and the checks of what they give; of
                                         * them remat */
    int rounds;
    int64_t category[F8_MEMORY_CATEGORIES]; /* at the peak, when met */
    tensor_class class[MAX_CLASSES]; /* of the arena at the peak: most bytes first, when met */
    int n_classes;
} plan_result;

/* Ends the process where it fails by anything but a budget that can't be met. */
void plan(const plan_case *c, const plan_wish *w, plan_result *out);
/* Without recomputation. */
void plan_base(const plan_case *c, plan_result *out);
/* The least arena that the passes find, and with that as the budget the fastest. */
void plan_least(const plan_case *c, plan_result *out);

/* The activations' bytes without recomputation less what the arena shrank by: what a share is of.
 */
int64_t activations_left(const plan_result *r);

/* ---- the parts ---- */

void part_cost(output *o);
void part_measured(output *o, int rounds, int threads);
void part_bytes(output *o);
void part_quick(output *o);

#endif
