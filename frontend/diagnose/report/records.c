/* The records of `fp8c report --json`: runs, tensors, and where runs part. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/diagnose/report/parts.h"
#include "ir/base/format.h"

enum { DIGITS = 0 }; /* all */

static json_t *step_or_null(int64_t step)
{
    return step ? json_integer(step) : json_null();
}

/* ---- where runs part ---- */

static json_t *part_record(const f8_report_run *good, const f8_report_run *run,
                           const f8_report_parting *p)
{
    const f8_report_step *g = p->loss_step ? &good->step[p->loss_step - 1] : NULL,
                         *r = p->loss_step ? &run->step[p->loss_step - 1] : NULL;
    return json_pack("{ss ss ss so so so sI sI}", "event", "part", "good", good->name, "run",
                     run->name, "step", step_or_null(p->loss_step), "good_loss",
                     f8_report_json(g ? g->loss : NAN, DIGITS), "loss",
                     f8_report_json(r ? r->loss : NAN, DIGITS), "compared", (json_int_t)p->compared,
                     "parted", (json_int_t)p->n);
}

static json_t *parted_record(const f8_report_run *good, const f8_report_run *run, size_t rank,
                             const f8_report_parted *p)
{
    static const int figures[] = {F8_FIGURE_underflow, F8_FIGURE_mse, F8_FIGURE_amax};
    json_t *record =
        json_pack("{ss ss ss sI ss ss ss ss sb so so so so}", "event", "parted", "good", good->name,
                  "run", run->name, "rank", (json_int_t)rank, "tensor", p->run->tensor, "linear",
                  p->run->linear, "operand", p->run->operand, "quantized", p->run->quantized,
                  "good_what_if", (int)p->good->what_if, "step", step_or_null(p->step),
                  "underflow_step", step_or_null(p->underflow_step), "mse_step",
                  step_or_null(p->mse_step), "factor", f8_report_json(p->factor, DIGITS));
    for (size_t i = 0; i < sizeof figures / sizeof *figures && record; i++) {
        char name[40] = "good_";
        const char *figure = f8_figures[figures[i]].name;
        strncat(name, figure, sizeof name - 6);
        json_object_set_new(record, name, f8_report_json(p->good_at.figure[figures[i]], DIGITS));
        json_object_set_new(record, figure, f8_report_json(p->run_at.figure[figures[i]], DIGITS));
    }
    return record;
}

f8_status f8_report_part_records(const f8_report_run *good, const f8_report_run *run, size_t most,
                                 json_t **out, f8_diag *diag)
{
    f8_report_parting p;
    *out = NULL;
    f8_status status = f8_report_part(good, run, &p, diag);
    if (status == F8_OK) {
        *out = json_array();
        bool ok = !json_array_append_new(*out, part_record(good, run, &p));
        for (size_t i = 0; i < p.n && i < most && ok; i++)
            ok = !json_array_append_new(*out, parted_record(good, run, i + 1, &p.tensor[i]));
        if (!ok) {
            json_decref(*out);
            *out = NULL;
            status = f8_report_no_memory(diag);
        }
    }
    f8_report_part_free(&p);
    return status;
}

/* ---- runs and tensors ---- */

static json_t *run_record(const f8_report_run *r)
{
    const f8_report_step *last = &r->step[r->n_steps - 1];
    int64_t skipped = 0;
    int64_t health = 0;
    for (size_t i = 0; i < r->n_steps; i++)
        skipped += r->step[i].skipped;
    for (size_t i = 0; i < json_array_size(r->health); i++) /* those but the summaries */
        health += json_object_get(json_array_get(r->health, i), "message") != NULL;
    return json_pack("{ss ss ss sO? sO? ss sI so so so so sI sI sI}", "event", "run", "run",
                     r->name, "folder", r->folder, "recipe", json_object_get(r->run.info, "recipe"),
                     "target", json_object_get(r->run.info, "target"), "state", f8_report_state(r),
                     "steps", (json_int_t)r->n_steps, "loss", f8_report_json(last->loss, DIGITS),
                     "final_loss", f8_report_json(f8_report_loss(r, r->n_steps), DIGITS),
                     "grad_norm", f8_report_json(last->grad_norm, DIGITS), r->rate_name,
                     f8_report_json(f8_report_rate(r), DIGITS), "skipped", (json_int_t)skipped,
                     "warnings", (json_int_t)json_array_size(r->warnings), "health",
                     (json_int_t)health);
}

static json_t *watched_record(const f8_report_run *r)
{
    json_t *record = run_record(r);
    json_object_set_new(record, "watched", json_integer((json_int_t)r->n_watched));
    json_object_set_new(record, "series", json_integer((json_int_t)r->n_series));
    return record;
}

static json_t *indexed_record(const f8_report *r, size_t i)
{
    json_t *record = run_record(&r->run[i]), *gap = f8_report_gap_json(r, i);
    json_object_update(record, gap);
    json_decref(gap);
    return record;
}

/* Adds the figure at its worst, and the step. */
static void add_worst(json_t *record, const f8_report_series *s, int figure)
{
    const bool most = f8_figures[figure].kept == F8_KEPT_MOST;
    double worst = NAN;
    int64_t step = 0;
    char name[64];
    for (size_t i = 0; i < s->n; i++) {
        const double x = s->point[i].figure[figure];
        if (!isnan(x) && (isnan(worst) || (most ? x > worst : x < worst))) {
            worst = x;
            step = s->point[i].step;
        }
    }
    f8_format(name, sizeof name, "%s_%s", most ? "most" : "least", f8_figures[figure].name);
    json_object_set_new(record, name, f8_report_json(worst, DIGITS));
    strncat(name, "_step", sizeof name - strlen(name) - 1);
    json_object_set_new(record, name, step_or_null(step));
}

static json_t *tensor_record(const f8_report_run *r, const f8_report_series *s)
{
    json_t *record = json_pack(
        "{ss ss ss ss ss ss ss ss sb sI}", "event", "tensor", "run", r->name, "tensor", s->tensor,
        "linear", s->linear, "operand", s->operand, "quantized", s->quantized, "format", s->format,
        "granularity", s->granularity, "what_if", (int)s->what_if, "watched", (json_int_t)s->n);
    for (int i = 0; i < F8_FIGURES && record; i++)
        if (f8_figures[i].has_worst)
            add_worst(record, s, i);
    return record;
}

/* Of an index: the runs, and those that could not be read. */
static void index_records(const f8_report *r, void (*each)(void *user, json_t *record), void *user)
{
    for (size_t i = 0; i < r->n; i++)
        each(user, indexed_record(r, i));
    for (size_t i = 0; i < r->n_unread; i++)
        each(user, json_pack("{ss ss ss}", "event", "unread", "run", r->unread[i].name, "message",
                             r->unread[i].why));
}

f8_status f8_report_records(const f8_report *r, void (*each)(void *user, json_t *record),
                            void *user, f8_diag *diag)
{
    if (r->kind == F8_REPORT_INDEX) {
        index_records(r, each, user);
        return F8_OK;
    }
    for (size_t i = 0; i < r->n; i++)
        each(user, watched_record(&r->run[i]));
    for (size_t i = 1; i < r->n; i++) {
        json_t *all, *record;
        size_t k;
        F8_TRY(f8_report_part_records(&r->run[0], &r->run[i], SIZE_MAX, &all, diag));
        json_array_foreach (all, k, record)
            each(user, json_incref(record));
        json_decref(all);
    }
    for (size_t i = 0; i < r->n; i++)
        for (size_t k = 0; k < r->run[i].n_series; k++)
            each(user, tensor_record(&r->run[i], &r->run[i].series[k]));
    return F8_OK;
}
