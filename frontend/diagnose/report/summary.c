/* A run in a few numbers, and its gap to another one. */
#include <math.h>
#include <string.h>

#include "frontend/diagnose/report/parts.h"

double f8_report_loss(const f8_report_run *r, size_t end)
{
    const size_t tail = (size_t)f8_run_tail((int64_t)end);
    double sum = 0;
    for (size_t i = end - tail; i < end; i++)
        sum += r->step[i].loss;
    return sum / (double)tail;
}

int64_t f8_report_length(const f8_report_run *r)
{
    const json_t *options = json_object_get(r->run.info, "resolved");
    return json_integer_value(json_object_get(options, "--steps"));
}

const char *f8_report_state(const f8_report_run *r)
{
    const int64_t length = f8_report_length(r);
    const bool done = length > 0 && (int64_t)r->n_steps >= length;
    return r->used ? "training" : done ? "done" : "stopped";
}

double f8_report_rate(const f8_report_run *r)
{
    double seconds = 0; /* for as many tokens as a step has */
    size_t n = 0;
    for (size_t i = 0; i < r->n_steps; i++)
        if (r->step[i].rate > 0) {
            seconds += 1 / r->step[i].rate;
            n++;
        }
    return n ? (double)n / seconds : NAN;
}

const char *f8_report_info(const f8_report_run *r, const char *name)
{
    const char *text = json_string_value(json_object_get(r->run.info, name));
    return text ? text : "?";
}

/* ---- the gap ---- */

static bool same(const f8_report_run *a, const f8_report_run *b, const char *name)
{
    const json_t *x = json_object_get(a->run.info, name);
    return x && json_equal(x, json_object_get(b->run.info, name));
}

static bool same_option(const f8_report_run *a, const f8_report_run *b, const char *name)
{
    const json_t *x = json_object_get(a->run.info, "resolved"),
                 *y = json_object_get(b->run.info, "resolved");
    x = json_object_get(x, name);
    y = json_object_get(y, name);
    return x == y || json_equal(x, y); /* both may lack it */
}

/* How well the losses of a run can be compared with those of the base; 0: not at all. Rules of the
 * command line change a module's hash, but neither its file nor its dims. */
static int fitness(const f8_report_run *base, const f8_report_run *r)
{
    const bool module = same(base, r, "module"),
               file = same(base, r, "file") && same_option(base, r, "-D");
    if (strcmp(f8_report_info(base, "recipe"), "bf16") || !same(base, r, "data") ||
        !(module || file))
        return 0;
    return 1 + 2 * module + same_option(base, r, "--seed");
}

f8_report_gap f8_report_gap_of(const f8_report *r, size_t run)
{
    const f8_report_run *own = &r->run[run];
    f8_report_gap g = {.gap = NAN};
    int best = 0;
    if (!strcmp(f8_report_info(own, "recipe"), "bf16"))
        return g;
    for (size_t i = 0; i < r->n; i++)
        if (fitness(&r->run[i], own) > best) {
            g.base = &r->run[i];
            best = fitness(g.base, own);
        }
    if (!g.base)
        return g;
    const size_t end = own->n_steps < g.base->n_steps ? own->n_steps : g.base->n_steps;
    g.step = (int64_t)end;
    g.gap = f8_report_loss(own, end) / f8_report_loss(g.base, end) - 1;
    return g;
}

json_t *f8_report_gap_json(const f8_report *r, size_t run)
{
    const f8_report_gap g = f8_report_gap_of(r, run);
    return json_pack("{so ss? so}", "gap", f8_report_json(g.gap, 0), "beside",
                     g.base ? g.base->name : NULL, "gap_step",
                     g.base ? json_integer((json_int_t)g.step) : json_null());
}
