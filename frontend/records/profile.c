/* Where the time of a program goes: its steps in order of time, with what they reached, and sums.
 * See records.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/limits.h"
#include "frontend/records/records.h"

/* ---- rows ---- */

/* The layer that a name tells: the first part between dots that is a number, as in h.3.mlp, x.3 or
 * "cast of h.3.attn.w". A launch for many tensors has "and N more" in its name. */
static int64_t layer_of(const char *name)
{
    if (strstr(name, " more"))
        return F8_PROFILE_MANY;
    for (const char *at = strchr(name, '.'); at; at = strchr(at + 1, '.')) {
        char *end;
        if (at[1] < '0' || at[1] > '9')
            continue;
        const long n = strtol(at + 1, &end, 10);
        if (!*end || *end == '.' || *end == ' ')
            return n;
    }
    return F8_PROFILE_NONE;
}

static const char *work_of(const fp8c_step *s, const char *function)
{
    return !strcmp(s->work, "rows") && !strncmp(function, "update", 6) ? "update" : s->work;
}

/* Whether a step of the function was timed. */
static bool has_run(const fp8c_program *p, int function)
{
    fp8c_step s;
    for (int i = 0; fp8c_program_step(p, function, i, &s) == FP8C_OK; i++)
        if (s.seconds > 0)
            return true;
    return false;
}

/* The turns in which a function ran: of one that has a form for the first turn, those behind it; of
 * such a form 0, if its function ran, too. */
static double turns_of(const fp8c_program *p, int function, double turns)
{
    const f8_plan *plan = &p->now->plan;
    const uint32_t base = f8_plan_base(plan->func, plan->n_funcs, (uint32_t)function);
    const uint32_t form = plan->func[function].first;
    if (base != (uint32_t)function)
        return has_run(p, (int)base) ? 0 : turns;
    return turns > 1 && form && has_run(p, (int)form - 1) ? turns - 1 : turns;
}

static f8_profile_row row_of(const fp8c_program *p, const f8_limits *limits, int function,
                             int index, fp8c_step *s, double runs, double turns)
{
    const char *name = fp8c_program_function_name(p, function);
    const double counted = f8_step_drop_first(p, function, index, s, runs), often = runs / turns,
                 all = often / counted; /* of what was counted, in a turn */
    const double bytes = (double)(s->bytes_read + s->bytes_written);
    const bool moves = strcmp(s->kind, "gemm") && strcmp(s->work, "attention");
    return (f8_profile_row){.function = name,
                            .name = s->name,
                            .algorithm = s->algorithm,
                            .work = work_of(s, name),
                            .layer = layer_of(s->name),
                            .steps = 1,
                            .beside = s->collective.goes_on,
                            .between = s->collective.beside,
                            .queued = s->collective.queued / turns,
                            .waited = s->collective.waited / turns,
                            .seconds = s->seconds * all,
                            .estimated = s->estimated * often,
                            .gap = s->gap * all,
                            .flops = s->flops * often,
                            .bytes = moves ? bytes * often : 0,
                            .limit = f8_limits_of(limits, p, function, index),
                            .at = {function, index}};
}

/* Makes a row of each step that took time, unless `to` is NULL. Returns how many there are. */
static size_t each(const fp8c_program *p, int except, fp8c_step *s, f8_profile_row *to,
                   const f8_limits *limits, f8_profile_runs runs, const void *user, double turns)
{
    size_t n = 0;
    for (int f = 0; fp8c_program_function_name(p, f); f++) {
        const double own = f == except ? 0 : turns_of(p, f, turns);
        for (int i = 0; own > 0 && fp8c_program_step(p, f, i, s) == FP8C_OK; i++) {
            if (!(s->seconds > 0))
                continue;
            if (to)
                to[n] = row_of(p, limits, f, i, s, runs(user, f), own);
            n++;
        }
    }
    return n;
}

/* The slowest first; equal ones as in the plan. */
static int by_time(const void *a, const void *b)
{
    const f8_profile_row *x = a, *y = b;
    if (x->seconds != y->seconds)
        return x->seconds < y->seconds ? 1 : -1;
    return x->at[0] != y->at[0] ? x->at[0] - y->at[0] : x->at[1] - y->at[1];
}

/* Layers in order, then what is of several, then of none. */
static int64_t place_of(int64_t layer)
{
    return layer >= 0 ? layer : INT64_MAX - (layer == F8_PROFILE_MANY);
}

static int by_layer(const void *a, const void *b)
{
    const int64_t x = place_of(((const f8_profile_row *)a)->layer),
                  y = place_of(((const f8_profile_row *)b)->layer);
    return (x > y) - (x < y);
}

/* ---- sums ---- */

static void add(f8_profile_row *sum, const f8_profile_row *r)
{
    sum->steps += r->steps;
    if (r->beside)
        return;
    sum->seconds += r->seconds;
    sum->estimated += r->estimated;
    sum->gap += r->gap;
    sum->flops += r->flops;
    sum->bytes += r->bytes;
    /* the limit of a sum is known if all its rows have one: then it is what they would do at theirs
     */
    sum->limit += r->limit > 0 ? (r->flops > 0 ? r->flops : r->bytes) / r->limit : 1e300;
}

/* A sum's limit, so far the seconds that its rows would take at theirs, as a rate. */
static void close_sum(f8_profile_row *sum, double all)
{
    const double work = sum->flops > 0 ? sum->flops : sum->bytes;
    sum->share = all > 0 ? sum->seconds / all : 0;
    const bool mixed = sum->flops > 0 && sum->bytes > 0;
    sum->limit = !mixed && sum->limit > 0 && sum->limit < 1e299 ? work / sum->limit : 0;
    if (mixed)
        sum->flops = sum->bytes = 0;
}

static f8_profile_row *sum_of(f8_profile_row *sums, size_t *n, const f8_profile_row *r, bool layers)
{
    for (size_t i = 0; i < *n; i++)
        if (layers ? sums[i].layer == r->layer : !strcmp(sums[i].work, r->work))
            return &sums[i];
    sums[*n] = (f8_profile_row){.work = layers ? NULL : r->work,
                                .layer = layers ? r->layer : F8_PROFILE_NONE};
    return &sums[(*n)++];
}

static void add_up(f8_profile *p)
{
    double sum = 0;
    for (size_t i = 0; i < p->n_rows; i++) {
        add(&p->all, &p->row[i]);
        add(sum_of(p->work, &p->n_works, &p->row[i], false), &p->row[i]);
        add(sum_of(p->layer, &p->n_layers, &p->row[i], true), &p->row[i]);
    }
    const double all = p->all.seconds;
    for (size_t i = 0; i < p->n_rows; i++) {
        f8_profile_row *r = &p->row[i];
        r->share = r->beside || !(all > 0) ? 0 : r->seconds / all;
        r->sum = sum += r->share;
    }
    for (size_t i = 0; i < p->n_works; i++)
        close_sum(&p->work[i], all);
    for (size_t i = 0; i < p->n_layers; i++)
        close_sum(&p->layer[i], all);
    close_sum(&p->all, all);
    qsort(p->work, p->n_works, sizeof *p->work, by_time);
    qsort(p->layer, p->n_layers, sizeof *p->layer, by_layer);
}

/* ---- the profile ---- */

f8_status f8_profile_make(const fp8c_program *program, f8_profile_runs runs, const void *user,
                          int except, const char *turn, double turns, f8_profile *out,
                          f8_diag *diag)
{
    fp8c_step s;
    f8_limits limits;
    *out = (f8_profile){.turn = turn, .turns = turns};
    const size_t n = each(program, except, &s, NULL, NULL, runs, user, turns);
    out->row = calloc(3 * n + 1, sizeof *out->row);
    if (!out->row)
        return f8_fail(diag, F8_ERR_MEMORY, F8_NOWHERE, "no memory for a profile of %zu steps", n);
    out->work = out->row + n;
    out->layer = out->work + n;
    F8_TRY(f8_limits_find(program, &limits, diag));
    out->limit_bytes = limits.bytes;
    out->limit_flops = limits.flops;
    out->limit_flops_bf16 = limits.flops_bf16;
    memcpy(out->limits_from, limits.from, sizeof out->limits_from);
    out->n_rows = each(program, except, &s, out->row, &limits, runs, user, turns);
    qsort(out->row, n, sizeof *out->row, by_time);
    add_up(out);
    return F8_OK;
}

void f8_profile_free(f8_profile *p)
{
    free(p->row);
    *p = (f8_profile){0};
}

double f8_profile_rate(const f8_profile_row *r)
{
    const double work = r->flops > 0 ? r->flops : r->bytes;
    return r->seconds > 0 ? work / r->seconds : 0;
}

/* ---- records ---- */

/* A number that may be unknown, as 0 says. */
static json_t *known(double x)
{
    return x > 0 ? json_real(x) : json_null();
}

/* Adds what a row says to a record. */
static bool set_row(json_t *record, const f8_profile_row *r)
{
    const double rate = f8_profile_rate(r);
    json_t *fields = json_pack(
        "{ss? so sf so so so so so so so}", "work", r->work, "layer",
        r->layer >= 0 ? json_integer(r->layer) : json_null(), "turn_seconds", r->seconds, "share",
        r->beside ? json_null() : json_real(r->share), "flops_per_second",
        known(r->flops > 0 ? rate : 0), "bytes_per_second", known(r->flops > 0 ? 0 : rate),
        "limit_per_second", known(r->limit), "of_limit", known(r->limit > 0 ? rate / r->limit : 0),
        "estimated_seconds", known(r->estimated), "gap_seconds", json_real(r->gap));
    const bool ok = record && fields && !json_object_update(record, fields);
    json_decref(fields);
    return ok;
}

static json_t *sum_record(const f8_profile_row *r, const char *by, const char *name)
{
    json_t *record = json_pack("{ss ss ss sI}", "event", "profile_sum", "by", by, "name", name,
                               "steps", (json_int_t)r->steps);
    if (set_row(record, r))
        return record;
    json_decref(record);
    return NULL;
}

static json_t *summary(const f8_profile *p)
{
    return json_pack("{ss ss sf sI sf sf so so so so ss}", "event", "profile_summary", "turn",
                     p->turn, "turns", p->turns, "steps", (json_int_t)p->all.steps, "turn_seconds",
                     p->all.seconds, "gap_seconds", p->all.gap, "estimated_seconds",
                     known(p->all.estimated), "limit_bytes_per_second", known(p->limit_bytes),
                     "limit_flops_per_second", known(p->limit_flops), "limit_bf16_flops_per_second",
                     known(p->limit_flops_bf16), "limits", p->limits_from);
}

/* Takes the record over. */
static bool append(json_t *all, json_t *record, const json_t *begin)
{
    const bool ok = record && (!begin || !json_object_update_missing(record, (json_t *)begin));
    return (json_array_append_new(all, record) == 0) & ok;
}

json_t *f8_profile_records(const f8_profile *p, const fp8c_program *program, f8_profile_runs runs,
                           const void *user, json_t *begin)
{
    json_t *all = json_array();
    bool ok = all != NULL;
    for (size_t i = 0; i < p->n_rows && ok; i++) {
        const f8_profile_row *r = &p->row[i];
        json_t *record = f8_record_profile(program, r->at[0], r->at[1], runs(user, r->at[0]));
        ok = set_row(record, r) &&
             !json_object_set_new(record, "cumulative_share", json_real(r->sum));
        ok &= append(all, record, begin);
    }
    for (size_t i = 0; i < p->n_works && ok; i++)
        ok = append(all, sum_record(&p->work[i], "work", p->work[i].work), begin);
    for (size_t i = 0; i < p->n_layers && ok; i++) {
        char name[32] = "none";
        if (p->layer[i].layer >= 0)
            snprintf(name, sizeof name, "%lld", (long long)p->layer[i].layer);
        else if (p->layer[i].layer == F8_PROFILE_MANY)
            snprintf(name, sizeof name, "several");
        ok = append(all, sum_record(&p->layer[i], "layer", name), begin);
    }
    ok = ok && append(all, summary(p), begin);
    json_decref(begin);
    if (ok)
        return all;
    json_decref(all);
    return NULL;
}
