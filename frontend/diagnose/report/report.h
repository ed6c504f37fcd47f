/* What a person wants to see of runs: the folders of training runs read back (frontend/run), what
 * their statistics say, and the page, the trace and the records made from them. README.md says what
 * is on the page. Nothing here prints. Internal to frontend/.
 *
 *     f8_report report;
 *     f8_status status = f8_report_read(&report, folders, n, &diag);
 *     if (status == F8_OK)
 *         status = f8_report_page(&report, &text, &size, &diag);
 *     f8_report_free(&report);
 *
 * A folder is read as it is at that moment, also while a process trains in it. */
#ifndef F8_REPORT_H
#define F8_REPORT_H

#include "frontend/figures.h"
#include "frontend/fp8c.h"
#include "frontend/run/run.h"

/* The figures of a tensor at a step; NaN: it has none. */
typedef struct f8_report_point {
    int64_t step;
    double figure[F8_FIGURES];
} f8_report_point;

/* A tensor under one recipe over the steps at which it was watched. Texts are "" where the records
 * have none. */
typedef struct f8_report_series {
    char *tensor, *linear, *operand;
    char *quantized, *format, *granularity; /* as the last record has them */
    bool what_if;                           /* the recipe is not in use */
    int64_t elements;
    f8_report_point *point; /* by step */
    size_t n, room;
} f8_report_series;

/* NaN: the record has none. */
typedef struct f8_report_step {
    double loss, grad_norm, lr, rate;
    bool skipped;
} f8_report_step;

typedef struct f8_report_run {
    f8_run run;           /* nothing but run.json and a path */
    char *name;           /* for people: unlike those of the other runs */
    f8_report_step *step; /* of step 1, 2, ... */
    size_t n_steps, room;
    const char *rate_name;                /* "tokens_per_second", "rows_per_second" */
    json_t *evals, *warnings, *health;    /* arrays of records */
    json_t *decisions;                    /* the same */
    json_t *plan, *profile;               /* of plan.json and profile.jsonl; NULL: not there */
    bool has_stats;                       /* there are records of them */
    f8_report_series *series;
    size_t n_series, series_room, last_series; /* last: of the record before */
    int64_t *watched;                          /* the steps of all series, each once, in order */
    size_t n_watched, watched_room;
} f8_report_run;

typedef struct f8_report {
    f8_report_run *run;
    size_t n;
} f8_report;

/* Read the folders. F8_ERR_INPUT: one is no folder of a run, or has no step yet, or a record is
 * damaged; the message has the place. The paths are borrowed. Free the report in any case. */
f8_status f8_report_read(f8_report *r, const char *const *folders, size_t n, f8_diag *diag);
void f8_report_free(f8_report *r);
/* The mean loss of the last f8_run_tail(n_steps) steps: once a run has all of its steps, what
 * `train` prints as its final loss. */
double f8_report_final_loss(const f8_report_run *r);

/* ---- two runs (part.c) ---- */

/* The rule by which a run parts from a good one: README.md, "Where runs part". */
#define F8_PART_UNDERFLOW_FACTOR 4.0
#define F8_PART_UNDERFLOW_LEAST 0.01
#define F8_PART_MSE_FACTOR 16.0
#define F8_PART_LOSS_SHARE 0.02
#define F8_PART_LOSS_NOISE 4.0
enum {
    F8_PART_POINTS = 3, /* so many watched steps in a row */
    F8_PART_AROUND = 2, /* watched steps of the good run on each side */
    F8_PART_STEPS = 10, /* steps of the loss in a row */
    F8_PART_BEFORE = 32 /* steps by which the noise of the loss is known */
};

/* A tensor that left the good run. 0: that figure did not. */
typedef struct f8_report_parted {
    const f8_report_series *good, *run;
    int64_t underflow_step, mse_step;
    int64_t step;                    /* the later of the two, or the one */
    f8_report_point good_at, run_at; /* the figures there */
    double factor;                   /* how far apart they are there: the larger of both ratios */
} f8_report_parted;

typedef struct f8_report_parting {
    int64_t loss_step;        /* 0: the losses do not part */
    size_t compared;          /* tensors that have figures in both runs */
    f8_report_parted *tensor; /* those of which both figures part, then the others; first by step */
    size_t n;
} f8_report_parting;

f8_status f8_report_part(const f8_report_run *good, const f8_report_run *run,
                         f8_report_parting *out, f8_diag *diag);
void f8_report_part_free(f8_report_parting *p);

/* ---- what is made from it ---- */

/* The page, as text that the caller frees. (page.c) */
f8_status f8_report_page(const f8_report *r, char **text, size_t *size, f8_diag *diag);
/* What the page shows, as JSON. Pictures are thinned out so that it has about F8_REPORT_MOST bytes
 * at most. (data.c) */
enum { F8_REPORT_MOST = 4000000 };
f8_status f8_report_data(const f8_report *r, json_t **data, f8_diag *diag);
/* One optimizer step of each run as a trace of Chrome's. F8_ERR_INPUT: a folder has no profile.
 * (trace.c) */
f8_status f8_report_trace(const f8_report *r, json_t **trace, f8_diag *diag);
/* Pass the records of `fp8c report --json` to `each`, one by one. It owns what it gets. (records.c)
 */
f8_status f8_report_records(const f8_report *r, void (*each)(void *user, json_t *record),
                            void *user, f8_diag *diag);

#endif
