/* Rematerialization: fits micro_step into a budget of memory by recomputing values that were kept.
 *
 * The pass works on groups, after fusion. So it prices what will lie in memory: an FP8 copy at a
 * quarter of its f32 value, and nothing for what lives inside a kernel. The grouped and ordered
 * function becomes a problem of steps and values (problem.c). The planner solves it (plan.c), and
 * the graph is made anew, with recomputed values as clones (rewrite.c), until the real arena fits
 * (fit.c). Of the plans that fit, the one whose groups take the least time is kept. Where none
 * fits, the error names the lowest arena that was found. Name patterns give a plan of their own
 * (names.c): it is carried out whatever it costs, and then compared with the budget.
 *
 * Scales, amaxes and histories are values: a clone reads the very scale that its original read.
 * What `update` does is done once, however often a value is recomputed.
 *
 * Requires group. Gives groups of micro_step, and unit->remat; schedule and memory follow, as for
 * any other function. */
#include "passes/remat/remat.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "passes/memory/report.h"
#include "passes/remat/fit.h"

/* ---- budgets that can't be met ---- */

/* The biggest tensors that the placed function holds at its peak, as text. *group is the group that
 * runs then. */
static f8_status peak_holders(const f8_remat *s, const char **group, const char **holders)
{
    enum { NAMED = 4 };
    f8_memory_report report;
    const char *text = "";
    uint32_t n = 0;
    F8_TRY(f8_memory_report_make(s->unit, s->func, s->scratch, &report));
    for (uint32_t i = 0; i < report.n_tensors && n < NAMED && text; i++) {
        const f8_memory_tensor *t = &report.tensor[i];
        if (t->category < F8_MEMORY_ACTIVATIONS)
            continue;
        text = f8_arena_printf(s->scratch, "%s%s%" PRId64 " bytes for '%s'", text, n ? ", " : "",
                               t->bytes, t->name);
        n++;
    }
    *group = report.at;
    *holders = text;
    return f8_arena_status(s->scratch, s->unit->diag);
}

/* Bytes of the program if micro_step has such an arena. Functions share one arena, so another
 * function may need more. */
static int64_t all_bytes(const f8_memory_outside *outside, int64_t arena)
{
    const int64_t own = outside->extra + arena;
    return outside->rest + (own > outside->others ? own : outside->others);
}

/* What the functions that fit no budget in bytes lack: the largest least budget of them, and the
 * message about it. All zeros: they fit. */
typedef struct lack {
    int64_t bytes;
    const char *text;
} lack;

static f8_status too_few_bytes(const f8_fit *x, lack *l)
{
    f8_unit *u = x->s.unit;
    const char *group, *holders;
    f8_memory_outside outside;
    F8_TRY(f8_memory_fixed(u, &outside));
    const int64_t bytes = all_bytes(&outside, x->lowest.arena);
    if (bytes <= l->bytes)
        return F8_OK;
    l->bytes = bytes;
    if (bytes == outside.rest + outside.others) {
        l->text = f8_arena_printf(x->s.scratch,
                                  "memory: the least possible budget is %" PRId64 " bytes, %" PRId64
                                  " were asked for. Functions other than micro_step need them, and "
                                  "only micro_step can recompute",
                                  bytes, x->budget.bytes);
        return f8_arena_status(x->s.scratch, u->diag);
    }
    F8_TRY(peak_holders(&x->s, &group, &holders));
    l->text =
        f8_arena_printf(x->s.scratch,
                        "memory: the least possible budget is %" PRId64 " bytes (%" PRId64
                        " of them the arena), %" PRId64 " were asked for. At '%s' %s holds %s",
                        bytes, x->lowest.arena, x->budget.bytes, group, x->s.func->name, holders);
    return f8_arena_status(x->s.scratch, u->diag);
}

static f8_status say_lack(f8_unit *u, const lack *l)
{
    return !l->text ? F8_OK : f8_fail(u->diag, F8_ERR_UNSUPPORTED, F8_NOWHERE, "%s", l->text);
}

static f8_status too_small_share(const f8_fit *x)
{
    f8_unit *u = x->s.unit;
    const f8_remat_summary *m = &u->remat;
    const double most = m->activations_before ? (double)m->activations_before : 1;
    const double share = ceil(1e4 * (1 - (double)(m->before - x->lowest.arena) / most)) / 1e4;
    const char *group, *holders;
    F8_TRY(peak_holders(&x->s, &group, &holders));
    return f8_fail(
        u->diag, F8_ERR_UNSUPPORTED, F8_NOWHERE,
        "memory: the least possible share of activation bytes is %.4f (an arena of %" PRId64
        " bytes), %g was asked for. At '%s' %s holds %s",
        share, x->lowest.arena, x->budget.share, group, x->s.func->name, holders);
}

/* ---- the pass ---- */

/* The number of FP8 GEMMs of a function. */
static int64_t fp8_gemms(const f8_func *f)
{
    int64_t n = 0;
    for (f8_ref r = 1; r < f->graph->n_nodes; r++)
        n += f->graph->node[r].op == F8_OP_SCALED_MATMUL;
    return n;
}

/* The number of values in memory that a grouped function recomputes. */
static int64_t count_recomputed(const f8_func *f)
{
    int64_t n = 0;
    for (uint32_t i = 0; i < f->lowered->n_groups; i++)
        for (uint32_t k = 0; k < f->lowered->group[i].n_out; k++)
            n += f8_is_recomputed(f->graph, f->lowered->group[i].out[k]);
    return n;
}

/* Give func that plan, and note what it costs. */
static f8_status keep(f8_fit *x, const f8_fit_outcome *o)
{
    f8_remat *s = &x->s;
    f8_unit *u = s->unit;
    const f8_func before = {.graph = s->g};
    f8_fit_keep(x, o);
    u->remat.after = o->arena;
    u->remat.budget = o->allowed;
    u->remat.extra_seconds = o->seconds - u->remat.seconds;
    u->remat.recomputed = count_recomputed(s->func);
    u->remat.fp8_gemms = fp8_gemms(s->func) - fp8_gemms(&before);
    return f8_memory_activations(s->func, s->scratch, u->diag, &u->remat.activations_after);
}

/* No plan: the function as it was. */
static void keep_all(f8_fit *x)
{
    f8_unit *u = x->s.unit;
    f8_remat_restore(&x->s);
    u->remat.after = u->remat.before;
    u->remat.budget = x->allowed;
    u->remat.activations_after = u->remat.activations_before;
    u->remat.extra_seconds = 0;
    u->remat.recomputed = u->remat.fp8_gemms = 0;
}

static f8_status fit_names(f8_fit *x)
{
    f8_unit *u = x->s.unit;
    f8_remat_plan plan;
    f8_fit_outcome o;
    F8_TRY(f8_remat_plan_by_name(&x->s, &plan));
    F8_TRY(f8_fit_carry_out(x, &plan, true, &o));
    F8_TRY(keep(x, &o));
    if (f8_fit_fits(&o))
        return F8_OK;
    int64_t bytes = o.arena;
    if (x->budget.bytes > 0) {
        f8_memory_outside outside;
        F8_TRY(f8_memory_fixed(u, &outside));
        bytes = all_bytes(&outside, o.arena);
    }
    return f8_fail(u->diag, F8_ERR_UNSUPPORTED, F8_NOWHERE,
                   "memory: recomputing the values that the patterns name takes %" PRId64
                   " bytes%s, more than the budget; without patterns the compiler chooses "
                   "the values to recompute",
                   bytes, x->budget.bytes > 0 ? "" : " of the arena");
}

static f8_status fit(f8_fit *x, const f8_budget *budget, lack *l)
{
    x->budget = *budget;
    F8_TRY(f8_fit_allowed(x, &x->allowed));
    if (x->s.unit->remat.before <= x->allowed) {
        keep_all(x);
        return F8_OK;
    }
    F8_TRY(f8_fit_find(x, budget));
    if (x->best.arena != INT64_MAX)
        return keep(x, &x->best);
    F8_TRY(keep(x, &x->lowest));
    if (budget->bytes > 0)
        return too_few_bytes(x, l);
    return f8_is_form(x->s.unit->module, x->s.func) ? F8_OK : too_small_share(x);
}

/* The budget of the form for the first steps. A share is of micro_step: the form gets the share of
 * its own bytes that makes its arena as large as micro_step's. */
static f8_budget budget_of_form(const f8_remat_summary *form, int64_t arena, const f8_budget *b)
{
    enum { ROUNDING = F8_ARENA_ALIGN }; /* no arena ends within */
    f8_budget own = *b;
    const double saved = (double)(form->before - arena - ROUNDING),
                 most = (double)form->activations_before;
    if (b->share > 0)
        own.share = most > 0 && saved < most ? 1 - saved / most : b->share;
    return own;
}

static f8_status remat_function(f8_unit *u, f8_func *f, f8_arena *scratch, int64_t arena, lack *l)
{
    f8_fit x;
    F8_TRY(f8_fit_begin(&x, u, f, scratch));
    x.budget = f8_is_form(u->module, f) ? budget_of_form(&u->remat, arena, &u->options.memory)
                                        : u->options.memory;
    const f8_status status =
        u->options.checkpoint || u->options.recompute ? fit_names(&x) : fit(&x, &x.budget, l);
    u->remat.rounds = x.rounds;
    return status;
}

static bool is_asked(const f8_options *o)
{
    return o->memory.bytes > 0 || o->memory.share > 0 || o->checkpoint || o->recompute;
}

/* Fit micro_step, and the copies of it that watch. The unit keeps what it says of micro_step. */
static f8_status remat_steps(f8_unit *u, f8_arena *scratch)
{
    f8_remat_summary own = {0};
    lack l = {0};
    for (size_t i = 0; i < u->module->n_funcs; i++) {
        f8_func *f = &u->module->func[i];
        if (!f8_is_micro_step(f->name))
            continue;
        F8_TRY(remat_function(u, f, scratch, own.after, &l));
        if (!strcmp(f->name, "micro_step"))
            own = u->remat;
    }
    u->remat = own;
    u->fp8_gemms += own.fp8_gemms;
    return say_lack(u, &l);
}

f8_status f8_pass_remat(f8_unit *u)
{
    const f8_options *o = &u->options;
    f8_arena scratch;
    if (!is_asked(o) || o->pair) /* what a pair saves, grad/saved.c has chosen */
        return F8_OK;
    if (!f8_module_find_func(u->module, "micro_step"))
        return f8_fail(u->diag, F8_ERR_UNSUPPORTED, F8_NOWHERE,
                       "memory: a program for inference has no activations to recompute");
    f8_arena_init(&scratch, &u->arena->allocator);
    const f8_status status = remat_steps(u, &scratch);
    f8_arena_end(&scratch);
    return status;
}

/* ---- budgets one after another ---- */

/* micro_step, and its form for the first steps if there is one: both have the arena. */
struct f8_remat_budgets {
    f8_unit *unit;
    int n;
    f8_fit fit[2];
    f8_remat_summary before[2];
};

f8_status f8_remat_budgets_make(f8_unit *u, f8_arena *scratch, f8_remat_budgets **out)
{
    static const char *const names[] = {"micro_step", "micro_step.first"};
    f8_remat_budgets *b = *out = F8_NEW(scratch, f8_remat_budgets);
    if (!b)
        return f8_arena_status(scratch, u->diag);
    b->unit = u;
    for (int i = 0; i < 2; i++) {
        f8_func *f = f8_module_find_func(u->module, names[i]);
        if (!f)
            continue;
        F8_TRY(f8_fit_begin(&b->fit[b->n], u, f, scratch));
        b->before[b->n++] = u->remat;
    }
    return F8_OK;
}

f8_status f8_remat_budget(f8_remat_budgets *b, const f8_budget *budget, f8_remat_summary *out,
                          int64_t *planned)
{
    f8_memory_outside outside;
    f8_unit *u = b->unit;
    int64_t most = 0;
    lack l = {0};
    for (int i = 0; i < b->n; i++) {
        const int rounds = b->fit[i].rounds;
        u->remat = b->before[i];
        const f8_budget own = i == 0 ? *budget : budget_of_form(&u->remat, out->after, budget);
        F8_TRY(fit(&b->fit[i], &own, &l));
        u->remat.rounds = b->fit[i].rounds - rounds;
        most = u->remat.after > most ? u->remat.after : most;
        if (i == 0)
            *out = u->remat;
    }
    u->remat = *out;
    F8_TRY(say_lack(u, &l));
    F8_TRY(f8_memory_fixed(u, &outside));
    *planned = all_bytes(&outside, most);
    return F8_OK;
}
