/* What a person wants to see of runs: the folders of training runs read back (frontend/run), what
 * their statistics say, and the page, the trace and the records made from them. README.md says what
 * is on the page. Nothing here prints. Internal to frontend/.
 *
 *     f8_report report;
 *     f8_status status = f8_report_read(&report, F8_REPORT_RUNS, folders, n, &diag);
 *     if (status == F8_OK)
 *         status = f8_report_page(&report, 0, &text, &size, &diag);
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
    char *folder;
    f8_run run;           /* nothing but run.json and a path */
    char *name;           /* for people: unlike those of the other runs */
    f8_report_step *step; /* of step 1, 2, ... */
    size_t n_steps, room;
    const char *rate_name;                /* "tokens_per_second", "rows_per_second" */
    json_t *evals, *warnings, *health;    /* arrays of records */
    json_t *decisions;                    /* the same */
    json_t *plan, *profile, *verdict;     /* of plan.json, ...; NULL: not there, or not read */
    bool used;                            /* a process trains in the folder */
    bool brief;                           /* statistics, plan, ... were not asked for */
    bool early;                           /* it has not begun, or has no step yet */
    bool has_stats;                       /* there are records of them */
    f8_report_series *series;
    size_t n_series, series_room, last_series; /* last: of the record before */
    int64_t *watched;                          /* the steps of all series, each once, in order */
    size_t n_watched, watched_room;
} f8_report_run;

/* A run of an index that could not be read, and the message. */
typedef struct f8_report_unread {
    char *name, *why;
} f8_report_unread;

/* F8_REPORT_RUNS: the folders are runs. F8_REPORT_INDEX: every run in the folders and in those
 * below them, in the order of the paths. Of these no statistics are read. */
typedef enum f8_report_kind { F8_REPORT_RUNS, F8_REPORT_INDEX } f8_report_kind;

typedef struct f8_report {
    f8_report_kind kind;
    f8_report_run *run;
    size_t n, room;
    f8_report_unread *unread; /* of an index */
    size_t n_unread, unread_room;
    bool used;  /* a process trains in one of the folders */
    bool early; /* it could not be read because a run has not begun, or has no step yet */
} f8_report;

/* Read the folders. F8_ERR_INPUT: one is no folder of a run, or has no step yet, or a record is
 * damaged; the message has the place. Such a run of an index is in r->unread instead, and it is
 * F8_ERR_INPUT if a folder holds no run. Free the report in any case, after the message was used:
 * it may point to a path in it. */
f8_status f8_report_read(f8_report *r, f8_report_kind kind, const char *const *folders, size_t n,
                         f8_diag *diag);
void f8_report_free(f8_report *r);

/* ---- a run in a few numbers (summary.c) ---- */

/* The mean loss of the f8_run_tail(end) steps up to `end`, 1 or more. With end = n_steps: once a
 * run has all of its steps, what `train` prints as its final loss. */
double f8_report_loss(const f8_report_run *r, size_t end);
/* Steps in all, as `--steps` has it; 0: run.json does not say. */
int64_t f8_report_length(const f8_report_run *r);
/* "done"; "training", a process is at it; "stopped", before its last step. */
const char *f8_report_state(const f8_report_run *r);
/* Tokens or rows a second over all steps; NaN: no record has them. */
double f8_report_rate(const f8_report_run *r);
/* The recipe and the target of run.json; "?" if they are no texts. */
const char *f8_report_info(const f8_report_run *r, const char *name);

/* How far the loss of a run of an index is above that of a run under bf16: own / base - 1, over the
 * last steps that both have. The base has the same data and model; among several, one with the
 * module's hash, and then one with the seed, is preferred. base NULL: there is none. */
typedef struct f8_report_gap {
    const f8_report_run *base;
    int64_t step; /* the last step of both */
    double gap;
} f8_report_gap;
f8_report_gap f8_report_gap_of(const f8_report *r, size_t run);

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

/* The page, as text that the caller frees. A browser loads it again after `again` seconds; 0:
 * never. (page.c) */
f8_status f8_report_page(const f8_report *r, int again, char **text, size_t *size, f8_diag *diag);
/* What the page shows, as JSON. Pictures are thinned out so that it has about F8_REPORT_MOST bytes
 * at most. (data.c) */
enum { F8_REPORT_MOST = 4000000 };
f8_status f8_report_data(const f8_report *r, json_t **data, f8_diag *diag);
/* What is printed of the runs, lines of text that the caller frees. (words.c) */
f8_status f8_report_words(const f8_report *r, char **text, f8_diag *diag);
/* One optimizer step of each run as a trace of Chrome's. F8_ERR_INPUT: a folder has no profile.
 * (trace.c) */
f8_status f8_report_trace(const f8_report *r, json_t **trace, f8_diag *diag);
/* Pass the records of `fp8c report --json` to `each`, one by one. It owns what it gets. (records.c)
 */
f8_status f8_report_records(const f8_report *r, void (*each)(void *user, json_t *record),
                            void *user, f8_diag *diag);

/* ---- runs that go on (watch.c) ---- */

typedef struct f8_report_watched {
    f8_report_kind kind;
    const char *const *folders;
    size_t n;
    double every;    /* seconds from one reading to the next, or more where a reading is slow */
    double patience; /* it ends when for so many seconds no process has trained in a folder */
    /* Called after each reading, and once at the end, with again = 0: see f8_report_page. */
    f8_status (*write)(void *user, const f8_report *r, int again, f8_diag *diag);
    void (*waits)(void *user, const f8_diag *why); /* once: a run has not begun */
    int32_t (*stop)(void *user); /* asked several times a second: whether to end now */
    void *user;
} f8_report_watched;
/* Read the folders again and again, until their runs are done or no process trains in them. A run
 * that has not begun is waited for as long. *r is what was read last; free it in any case.
 * F8_ERR_INPUT: it did not begin, or what f8_report_read says. F8_ERR_CANCELLED: stop() ended it
 * before there was anything to write. */
f8_status f8_report_watch(const f8_report_watched *w, f8_report *r, f8_diag *diag);

#endif
