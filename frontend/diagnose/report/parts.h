/* What the files of this folder share. */
#ifndef F8_REPORT_PARTS_H
#define F8_REPORT_PARTS_H

#include "frontend/diagnose/report/report.h"
#include "frontend/run/lines.h"

/* ---- reading (fields.c; frontend/run/lines.h) ---- */

/* A number of a record; NaN if it is null or not there. false: it is something else. */
bool f8_report_number(const json_t *record, const char *name, double *to);
/* A text of a record; "" if it is null or not there. NULL: it is something else. */
const char *f8_report_text(const json_t *record, const char *name);
/* Make room for one more element of an array of n. */
f8_status f8_report_grow(void *array, size_t *room, size_t n, size_t size, f8_diag *diag);
f8_status f8_report_no_memory(f8_diag *diag);

/* A record of steps.jsonl (steps.c); user: the f8_report_run. Those of statistics go to stats.c. */
f8_status f8_report_take_step(void *user, const f8_run_line *line, f8_diag *diag);
f8_status f8_report_take_stats(void *user, const f8_run_line *line, f8_diag *diag);
void f8_report_free_series(f8_report_run *run);

/* Reads the run in a folder (read.c). The caller has set r->run, name and brief, and all else to
 * zeros. Free the run also after a failure. */
f8_status f8_report_read_run(f8_report_run *r, const char *folder, f8_diag *diag);
void f8_report_free_run(f8_report_run *r);

/* ---- writing ---- */

/* How JSON is written: short numbers. */
enum { F8_REPORT_FLAGS = JSON_COMPACT | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(7) };
/* A number with `digits` significant digits (0: all), null for NaN and infinities; an integer if it
 * is a small one. (thin.c) */
json_t *f8_report_json(double x, int digits);
/* The statistics of a run with at most `most` points of each picture; NULL: out of memory.
 * (thin.c) */
json_t *f8_report_stats(const f8_report_run *run, size_t most);
/* The numbers that f8_report_stats would write for each point. (thin.c) */
size_t f8_report_columns(const f8_report_run *run);
/* The records `part` and `parted` of a run beside the good one, in an array. (records.c) */
f8_status f8_report_part_records(const f8_report_run *good, const f8_report_run *run, size_t most,
                                 json_t **out, f8_diag *diag);
/* The gap of a run of an index: gap, beside (the name of the base), gap_step; nulls: none. NULL:
 * out of memory. (summary.c) */
json_t *f8_report_gap_json(const f8_report *r, size_t run);
/* Whether a series has figures of a quantization. */
bool f8_report_quantized(const f8_report_series *s);

/* The text of the page, with the places for the rest: see page.c. */
extern const char f8_report_html[], f8_report_css[], f8_report_js_base[], f8_report_js_charts[],
    f8_report_js_curves[], f8_report_js_tensors[], f8_report_js_page[], f8_report_js_index[];

#endif
