/* Steps planned by the passes. See memory.h. */
#include "bench/memory.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench/figures.h"
#include "frontend/text/parse.h"
#include "passes/unit/cost.h"
#include "passes/pipeline.h"

/* ---- output ---- */

void say(output *o, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vfprintf(o->table, format, args);
    va_end(args);
    fflush(o->table);
}

void record(output *o, double value, const char *unit, const char *format, ...)
{
    char name[160];
    va_list args;
    if (!o->json)
        return;
    va_start(args, format);
    vsnprintf(name, sizeof name, format, args);
    va_end(args);
    report(true, value, unit, "%s", name);
}

const char *bar(output *o, bool held)
{
    o->missed += !held;
    return held ? "held" : "NOT HELD";
}

const char *case_name(const plan_case *c, char *buf, size_t size)
{
    int n = snprintf(buf, size, "%s", c->model);
    if (c->layers)
        n += snprintf(buf + n, size - (size_t)n, " L=%lld", (long long)c->layers);
    if (c->batch)
        n += snprintf(buf + n, size - (size_t)n, " B=%lld", (long long)c->batch);
    if (c->tokens)
        n += snprintf(buf + n, size - (size_t)n, " T=%lld", (long long)c->tokens);
    snprintf(buf + n, size - (size_t)n, " %s %s", c->recipe, c->target);
    return buf;
}

/* ---- one plan ---- */

typedef struct job {
    f8_arena arena;
    f8_diag diag;
    f8_unit unit;
    bool whole;
    double start, remat; /* CPU seconds when the passes began, and when remat did */
    double took;         /* by remat */
} job;

/* CPU seconds of this thread, which does all of the planning: others may use the machine. */
static double cpu_now(void)
{
    struct timespec t;
    must(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t) == 0, "clock");
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Functions other than micro_step, once nothing is made from them any more: no part of these
 * figures. */
static f8_status drop_others(job *j, f8_unit *u, const char *pass)
{
    f8_module *m = u->module;
    size_t n = 0;
    if (j->whole || strcmp(pass, "legalize"))
        return F8_OK;
    for (size_t i = 0; i < m->n_funcs; i++)
        if (!strcmp(m->func[i].name, "micro_step"))
            m->func[n++] = m->func[i];
    m->n_funcs = n;
    return F8_OK;
}

static f8_status after_pass(void *user, f8_unit *u, const char *pass)
{
    job *j = user;
    if (!strcmp(pass, "group"))
        j->remat = cpu_now();
    if (!strcmp(pass, "remat"))
        j->took = cpu_now() - j->remat;
    return drop_others(j, u, pass);
}

/* So that f8_options.memory.bytes is of micro_step's arena. */
static f8_status arena_alone(void *user, const f8_unit *u, f8_code_bytes *out)
{
    (void)user, (void)u;
    *out = (f8_code_bytes){0};
    return F8_OK;
}

static void parse(job *j, const plan_case *c)
{
    char path[128];
    size_t size, n = 0;
    f8_dim_override dims[3];
    if (c->batch)
        dims[n++] = (f8_dim_override){"B", c->batch};
    if (c->tokens)
        dims[n++] = (f8_dim_override){"T", c->tokens};
    if (c->layers)
        dims[n++] = (f8_dim_override){"L", c->layers};
    snprintf(path, sizeof path, "frontend/models/%s.f8", c->model);
    char *text = read_file(path, &size);
    must(f8_parse(text, size, path, dims, n, &j->arena, &j->diag, &j->unit.module) == F8_OK,
         j->diag.text);
    free(text);
}

static void class_name(const char *name, char *out, size_t size)
{
    size_t at = 0;
    for (const char *c = name; *c && at + 1 < size; c++)
        if (!isdigit((unsigned char)*c) || c == name ||
            (c[-1] != '.' && !isdigit((unsigned char)c[-1])))
            out[at++] = *c;
        else if (out[at - 1] == '.')
            out[at++] = '#';
    out[at] = 0;
}

static void classify(plan_result *r, const f8_memory_tensor *t)
{
    char name[sizeof r->class->name];
    int i = 0;
    class_name(t->name, name, sizeof name);
    while (i < r->n_classes &&
           (strcmp(r->class[i].name, name) || r->class[i].category != t->category))
        i++;
    if (i == MAX_CLASSES)
        return; /* tensors come biggest first: what is left out is small */
    tensor_class *c = &r->class[i];
    if (i == r->n_classes) {
        r->n_classes++;
        *c = (tensor_class){.category = t->category, .dtype = f8_dtype_name(t->type.dtype)};
        memcpy(c->name, name, sizeof name);
    }
    c->n++;
    c->bytes += t->bytes;
}

static int by_bytes(const void *a, const void *b)
{
    const int64_t x = ((const tensor_class *)a)->bytes, y = ((const tensor_class *)b)->bytes;
    return (x < y) - (x > y);
}

static void look(job *j, const f8_func *f, plan_result *r)
{
    f8_memory_report report;
    must(f8_memory_report_make(&j->unit, f, &j->arena, &report) == F8_OK, j->diag.text);
    memcpy(r->category, report.bytes, sizeof r->category);
    for (uint32_t i = 0; i < report.n_tensors; i++)
        if (report.tensor[i].category >= F8_MEMORY_ACTIVATIONS)
            classify(r, &report.tensor[i]);
    qsort(r->class, (size_t)r->n_classes, sizeof *r->class, by_bytes);
}

/* Of a function for which remat had nothing to do. */
static void look_without(job *j, const f8_func *f, plan_result *r)
{
    r->before = r->after = f->lowered->arena_bytes;
    must(f8_memory_activations(f, &j->arena, &j->diag, &r->activations_before) == F8_OK,
         j->diag.text);
    r->activations_after = r->activations_before;
    r->seconds = f8_cost_function(f, f8_unit_target(&j->unit));
}

static void fill(job *j, plan_result *r)
{
    const f8_remat_summary *m = &j->unit.remat;
    const f8_func *f = f8_module_find_func(j->unit.module, "micro_step");
    r->remat_seconds = j->took;
    if (r->met)
        look(j, f, r);
    if (!m->ran) {
        look_without(j, f, r);
        return;
    }
    r->before = m->before;
    r->after = m->after;
    r->activations_before = m->activations_before;
    r->activations_after = m->activations_after;
    r->recomputed = m->recomputed;
    r->seconds = m->seconds;
    r->extra_seconds = m->extra_seconds;
    r->rounds = m->rounds;
}

void plan(const plan_case *c, const plan_wish *w, plan_result *out)
{
    job j = {.whole = w->whole};
    f8_recipe recipe;
    f8_arena_init(&j.arena, NULL);
    j.unit = (f8_unit){.arena = &j.arena, .diag = &j.diag};
    must(f8_recipe_parse(c->recipe, F8_NOWHERE, &recipe, &j.diag) == F8_OK, j.diag.text);
    j.unit.options = (f8_options){.recipe = &recipe,
                                  .target = f8_target_by_name(c->target),
                                  .memory = {w->arena, w->share},
                                  .checkpoint = w->checkpoint,
                                  .recompute = w->recompute,
                                  .code_bytes = w->arena ? arena_alone : NULL,
                                  .after = after_pass,
                                  .after_user = &j};
    must(j.unit.options.target != NULL, c->target);
    parse(&j, c);
    *out = (plan_result){.met = true};
    j.start = cpu_now();
    const f8_status status = f8_run_passes(&j.unit);
    out->pass_seconds = cpu_now() - j.start;
    out->met = status == F8_OK;
    must(out->met || (status == F8_ERR_UNSUPPORTED && j.unit.remat.ran), j.diag.text);
    fill(&j, out);
    f8_arena_end(&j.arena);
}

void plan_base(const plan_case *c, plan_result *out)
{
    plan(c, &(plan_wish){0}, out);
}

void plan_least(const plan_case *c, plan_result *out)
{
    plan_result least;
    plan(c, &(plan_wish){.arena = 1}, &least);
    plan(c, &(plan_wish){.arena = least.after}, out);
    if (!out->met)
        *out = least; /* the planner found it only when asked for nothing at all */
}

int64_t activations_left(const plan_result *r)
{
    return r->activations_before - (r->before - r->after);
}
