/* What the page shows, as one JSON value. The pictures of a long run are thinned out to what fits
 * the page: first the steps, then the statistics by what is left. */
#include <math.h>
#include <stdlib.h>

#include "frontend/diagnose/report/parts.h"

enum {
    MOST_STEPS = 2000,  /* points of a curve */
    MOST_INDEXED = 500, /* the same on an index */
    MOST_WATCHED = 500, /* points of a tensor */
    MOST_PARTED = 40,
    NUMBER = 8, /* bytes of a number of the statistics, about */
    DIGITS = 7
};

/* ---- curves ---- */

static double mean_loss(const f8_report_step *s, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += s[i].loss;
    return sum / (double)n; /* NaN if one is */
}

static double mean_rate(const f8_report_step *s, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += s[i].rate;
    return sum / (double)n;
}

static double most_norm(const f8_report_step *s, size_t n)
{
    double most = s->grad_norm;
    for (size_t i = 1; i < n && !isnan(most); i++)
        most = isnan(s[i].grad_norm) ? NAN : fmax(most, s[i].grad_norm);
    return most;
}

static double last_lr(const f8_report_step *s, size_t n)
{
    return s[n - 1].lr;
}

static json_t *curve(const f8_report_run *r, size_t each,
                     double (*value)(const f8_report_step *s, size_t n))
{
    json_t *all = json_array();
    for (size_t i = 0; i < r->n_steps; i += each) {
        const size_t n = i + each < r->n_steps ? each : r->n_steps - i;
        json_array_append_new(all, f8_report_json(value(r->step + i, n), DIGITS));
    }
    return all;
}

static json_t *steps(const f8_report_run *r, size_t most)
{
    const size_t each = (r->n_steps + most - 1) / most;
    json_t *step = json_array(), *skipped = json_array();
    for (size_t i = 0; i < r->n_steps; i += each) {
        const size_t last = i + each < r->n_steps ? i + each : r->n_steps;
        json_array_append_new(step, json_integer((json_int_t)last));
    }
    for (size_t i = 0; i < r->n_steps && json_array_size(skipped) < MOST_STEPS; i++)
        if (r->step[i].skipped)
            json_array_append_new(skipped, json_integer((json_int_t)i + 1));
    return json_pack("{sI sI so so so so so so ss}", "n", (json_int_t)r->n_steps, "each",
                     (json_int_t)each, "step", step, "loss", curve(r, each, mean_loss), "grad_norm",
                     curve(r, each, most_norm), "lr", curve(r, each, last_lr), "rate",
                     curve(r, each, mean_rate), "skipped", skipped, "rate_name", r->rate_name);
}

/* ---- a run ---- */

/* What every page shows of a run. `most` points of a curve. */
static json_t *run_data(const f8_report_run *r, size_t most)
{
    return json_pack("{ss ss sO ss sI so sI so so sO sO sO sO?}", "name", r->name, "folder",
                     r->folder, "info", r->run.info, "state", f8_report_state(r), "length",
                     (json_int_t)f8_report_length(r), "final_loss",
                     f8_report_json(f8_report_loss(r, r->n_steps), DIGITS), "tail",
                     (json_int_t)f8_run_tail((int64_t)r->n_steps), "rate",
                     f8_report_json(f8_report_rate(r), DIGITS), "steps", steps(r, most), "evals",
                     r->evals, "warnings", r->warnings, "health", r->health, "verdict", r->verdict);
}

/* What a page of runs has beside it. */
static json_t *whole_run_data(const f8_report_run *r)
{
    json_t *data = run_data(r, MOST_STEPS),
           *more = json_pack("{sO? sO? sO?}", "decisions", r->decisions, "plan", r->plan, "profile",
                             r->profile);
    json_object_update(data, more);
    json_decref(more);
    return data;
}

static json_t *rule(void)
{
    return json_pack("{sf sf sf sf sf si si si}", "underflow_factor", F8_PART_UNDERFLOW_FACTOR,
                     "underflow_least", F8_PART_UNDERFLOW_LEAST, "mse_factor", F8_PART_MSE_FACTOR,
                     "loss_share", F8_PART_LOSS_SHARE, "loss_noise", F8_PART_LOSS_NOISE, "points",
                     F8_PART_POINTS, "steps", F8_PART_STEPS, "around", F8_PART_AROUND);
}

static json_t *figures(void)
{
    static const char *const better[] = {[F8_BETTER_NEITHER] = "neither",
                                         [F8_BETTER_LOWER] = "lower",
                                         [F8_BETTER_HIGHER] = "higher"};
    json_t *all = json_array();
    for (int i = 0; i < F8_FIGURES; i++) {
        const f8_figure *f = &f8_figures[i];
        json_array_append_new(all, json_pack("{ss ss ss ss ss}", "name", f->name, "label", f->label,
                                             "unit", f->unit, "better", better[f->better], "beside",
                                             f8_figures[f->beside].name));
    }
    return all;
}

/* What no page lacks. The references of the arrays are given away. */
static json_t *frame(const char *format, json_t *runs, json_t *parts)
{
    return json_pack("{ss si ss so so so so}", "format", format, "version", 1, "fp8c",
                     fp8c_version(), "figures", figures(), "rule", rule(), "runs", runs, "parts",
                     parts);
}

/* Everything but the statistics. */
static f8_status runs_data(const f8_report *r, json_t **data, f8_diag *diag)
{
    json_t *runs = json_array(), *parts = json_array();
    bool ok = runs && parts;
    f8_status status = F8_OK;
    for (size_t i = 0; i < r->n && ok; i++)
        ok = !json_array_append_new(runs, whole_run_data(&r->run[i]));
    for (size_t i = 1; i < r->n && ok && status == F8_OK; i++) {
        json_t *records = NULL;
        status = f8_report_part_records(&r->run[0], &r->run[i], MOST_PARTED, &records, diag);
        ok = status != F8_OK || !json_array_append_new(parts, records);
    }
    *data = frame("fp8c report", runs, parts);
    return status == F8_OK && (!ok || !*data) ? f8_report_no_memory(diag) : status;
}

/* Gives every run its statistics, with at most `most` points of each tensor. */
static bool add_stats(const f8_report *r, json_t *data, size_t most)
{
    for (size_t i = 0; i < r->n; i++) {
        json_t *stats = r->run[i].has_stats ? f8_report_stats(&r->run[i], most) : json_null();
        if (json_object_set_new(json_array_get(json_object_get(data, "runs"), i), "stats", stats))
            return false;
    }
    return true;
}

/* Many runs have fewer points each. */
static f8_status index_data(const f8_report *r, json_t **data, f8_diag *diag)
{
    enum { LEAST = 20, CURVES = 5 }; /* points of a curve; numbers a point */
    size_t most = F8_REPORT_MOST / (r->n + 1) / (CURVES * NUMBER);
    most = most > MOST_INDEXED ? MOST_INDEXED : most < LEAST ? LEAST : most;
    json_t *runs = json_array(), *unread = json_array();
    bool ok = true;
    for (size_t i = 0; i < r->n && ok; i++) {
        json_t *run = run_data(&r->run[i], most), *gap = f8_report_gap_json(r, i);
        ok = !json_object_update(run, gap) && !json_array_append_new(runs, run);
        json_decref(gap);
    }
    for (size_t i = 0; i < r->n_unread && ok; i++)
        ok = !json_array_append_new(
            unread, json_pack("{ss ss}", "name", r->unread[i].name, "why", r->unread[i].why));
    *data = frame("fp8c index", runs, json_array());
    return ok && !json_object_set_new(*data, "unread", unread) ? F8_OK : f8_report_no_memory(diag);
}

f8_status f8_report_data(const f8_report *r, json_t **data, f8_diag *diag)
{
    size_t columns = 0, most = MOST_WATCHED;
    if (r->kind == F8_REPORT_INDEX)
        return index_data(r, data, diag);
    F8_TRY(runs_data(r, data, diag));
    for (size_t i = 0; i < r->n; i++)
        columns += f8_report_columns(&r->run[i]);
    const size_t taken = json_dumpb(*data, NULL, 0, F8_REPORT_FLAGS),
                 left = taken < F8_REPORT_MOST ? F8_REPORT_MOST - taken : 0;
    if (columns && most > left / columns / NUMBER)
        most = left / columns / NUMBER;
    if (add_stats(r, *data, most ? most : 1))
        return F8_OK;
    return f8_report_no_memory(diag);
}
