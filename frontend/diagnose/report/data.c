/* What the page shows, as one JSON value. The pictures of a long run are thinned out to what fits
 * the page: first the steps, then the statistics by what is left. */
#include <math.h>
#include <stdlib.h>

#include "frontend/diagnose/report/parts.h"

enum {
    MOST_STEPS = 2000,  /* points of a curve */
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

static json_t *steps(const f8_report_run *r)
{
    const size_t each = (r->n_steps + MOST_STEPS - 1) / MOST_STEPS;
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

static json_t *run_data(const f8_report_run *r)
{
    return json_pack(
        "{ss ss sO so sI so sO sO sO sO sO sO}", "name", r->name, "folder", r->run.folder, "info",
        r->run.info, "final_loss", f8_report_json(f8_report_final_loss(r), DIGITS), "tail",
        (json_int_t)f8_run_tail((int64_t)r->n_steps), "steps", steps(r), "evals", r->evals,
        "warnings", r->warnings, "health", r->health, "decisions",
        r->decisions ? r->decisions : json_null(), "plan", r->plan ? r->plan : json_null(),
        "profile", r->profile ? r->profile : json_null());
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

/* Everything but the statistics. */
static f8_status frame(const f8_report *r, json_t **data, f8_diag *diag)
{
    json_t *runs = json_array(), *parts = json_array();
    bool ok = runs && parts;
    f8_status status = F8_OK;
    for (size_t i = 0; i < r->n && ok; i++)
        ok = !json_array_append_new(runs, run_data(&r->run[i]));
    for (size_t i = 1; i < r->n && ok && status == F8_OK; i++) {
        json_t *records = NULL;
        status = f8_report_part_records(&r->run[0], &r->run[i], MOST_PARTED, &records, diag);
        ok = status != F8_OK || !json_array_append_new(parts, records);
    }
    *data = json_pack("{ss si ss so so so so}", "format", "fp8c report", "version", 1, "fp8c",
                      fp8c_version(), "figures", figures(), "rule", rule(), "runs", runs, "parts",
                      parts);
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

f8_status f8_report_data(const f8_report *r, json_t **data, f8_diag *diag)
{
    size_t columns = 0, most = MOST_WATCHED;
    F8_TRY(frame(r, data, diag));
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
