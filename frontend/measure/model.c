/* A tuning of a model's step as a set of measurements: see model.h. The runs are those that the
 * tuning database has, so that what was timed earlier is there, too. */
#include "frontend/measure/model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/measure/machine.h"
#include "frontend/tune/gemms.h"

/* What is being made. */
typedef struct making {
    fp8c_tuning *t;
    const char *process; /* this one's id */
    f8_measure_set *set;
    f8_diag *diag;
} making;

static bool is_cpu(const fp8c_tuning *t)
{
    return t->base->target->kind == F8_TARGET_CPU;
}

/* ---- problems ---- */

static const char *scaling_of(const f8_gemm_desc *d)
{
    const bool fp8 = f8_dtype_is_fp8(d->a) || f8_dtype_is_fp8(d->b);
    const bool blocks =
        f8_granularity_has_blocks(d->scale_a) || f8_granularity_has_blocks(d->scale_b);
    const bool tensor = f8_granularity_equal(d->scale_a, f8_per_tensor) &&
                        f8_granularity_equal(d->scale_b, f8_per_tensor);
    const int index = d->scale == F8_E8M0 ? F8_TUNE_MX
                      : blocks            ? F8_TUNE_BLOCK
                      : tensor            ? F8_TUNE_TENSOR
                                          : F8_TUNE_ROW;
    return fp8 ? f8_tune_word(F8_TUNE_SCALING, index) : "none";
}

/* The steps of a linear are named by their role: "h.0.mlp.c_fc.dgrad". */
static const char *role_of(const char *name)
{
    const char *dot = strrchr(name, '.');
    const int index = dot ? f8_tune_find_word(F8_TUNE_ROLE, dot + 1, strlen(dot + 1)) : -1;
    return index > 0 ? f8_tune_word(F8_TUNE_ROLE, index) : "";
}

static const char *epilogue_of(const f8_gemm_desc *d)
{
    return f8_tune_word(F8_TUNE_EPILOGUE, d->accumulate     ? F8_TUNE_ACCUMULATE
                                          : d->bias         ? F8_TUNE_BIAS
                                          : d->c == F8_BF16 ? F8_TUNE_BF16
                                                            : F8_TUNE_F32);
}

static f8_measure_problem problem_of(const tune_problem *p)
{
    static const char *const layouts[] = {"nn", "nt", "tn", "tt"};
    const f8_gemm_desc *d = &p->desc;
    f8_measure_problem to = {
        .text = p->text, .name = p->name, .count = p->count, .flops = p->flops, .bytes = p->bytes};
    if (!p->gemm)
        return to;
    to.m = d->m;
    to.n = d->n;
    to.k = d->k;
    to.a = f8_dtype_name(d->a);
    to.b = f8_dtype_name(d->b);
    to.scaling = scaling_of(d);
    to.role = role_of(p->name);
    to.epilogue = epilogue_of(d);
    to.layout = layouts[2 * d->trans_a + d->trans_b];
    to.flops = 2. * (double)f8_gemm_batch(d) * (double)d->m * (double)d->n * (double)d->k;
    return to;
}

/* ---- ways ---- */

/* "f8e4m3 x f8e5m2"; an f32 operand that is rounded while it is read is multiplied as bf16. */
static const char *operands_of(const f8_gemm_desc *d, f8_arena *arena)
{
    return f8_arena_printf(arena, "%s x %s", d->round_a ? "bf16" : f8_dtype_name(d->a),
                           d->round_b ? "bf16" : f8_dtype_name(d->b));
}

/* The unit that a way needs. Attention of a CPU multiplies in f32 (codegen/cpu/); which unit a GPU
 * takes for it depends on the kernel. */
static const char *unit_of(const fp8c_tuning *t, const tune_problem *p, const tune_candidate *c)
{
    if (p->gemm)
        return f8_measure_unit(t->base, c->desc.algorithm, p->desc.a, p->desc.b);
    return p->attention && is_cpu(t) ? "f32" : "";
}

/* Whether a way can't have other bits: no configuration of a kernel changes one, and those of a
 * GEMM's algorithm that do were dropped. Each of cuBLASLt's answers may. */
static bool has_same_bits(const fp8c_tuning *t, const tune_problem *p, int c)
{
    return !c || !p->gemm ||
           (is_cpu(t) && p->candidate[c].desc.algorithm == p->candidate[0].desc.algorithm);
}

/* What the database says of it. */
static f8_status recall_bits(making *k, const f8_timing *row, f8_measurement *m)
{
    f8_measurement kept = {.same_bits = F8_MEASURE_UNKNOWN};
    if (row->facts && *row->facts)
        F8_TRY(f8_measure_read_way(k->set, row->facts, &kept, k->diag));
    m->same_bits = kept.same_bits;
    return F8_OK;
}

/* Put what is known of a way beside its runs. */
static f8_status keep_facts(making *k, const tune_problem *p, const f8_timing *row,
                            const f8_measurement *m)
{
    char *facts = f8_measure_way_text(m);
    if (!facts)
        return f8_fail(k->diag, F8_ERR_MEMORY, F8_NOWHERE,
                       "no memory for the facts of a candidate");
    const f8_timing same = {.candidate = row->candidate,
                            .seconds = row->seconds,
                            .median = row->median,
                            .runs = row->runs,
                            .facts = facts};
    const f8_status status =
        f8_tuning_put(k->t->db, f8_tune_key(k->t, p), p->text, p->name, &same, 1, NULL, k->diag);
    free(facts);
    return status;
}

/* Find out whether another algorithm gives the model's bits. */
static f8_status find_bits(making *k, const tune_problem *p, int c, const f8_timing *row,
                           f8_measurement *m)
{
    fp8c_tuning *t = k->t;
    bool same;
    if (has_same_bits(t, p, c)) {
        m->same_bits = F8_MEASURE_YES;
        return F8_OK;
    }
    F8_TRY(recall_bits(k, row, m));
    if (m->same_bits != F8_MEASURE_UNKNOWN || !is_cpu(t) || f8_tune_late(t))
        return F8_OK;
    F8_TRY(f8_progress_at(&t->progress, t->progress.total, p->name, k->diag));
    F8_TRY(f8_gemm_same_bits(t->gemms, &p->candidate[0].desc, &p->candidate[c].desc, t->pool,
                             &t->ctx->allocator, &same, k->diag));
    m->same_bits = same ? F8_MEASURE_YES : F8_MEASURE_NO;
    return keep_facts(k, p, row, m);
}

/* ---- runs ---- */

/* The process of earlier runs, as far as it is known: one that was killed has left only runs. */
static f8_status add_process(making *k, const char *id)
{
    f8_tuning_process found;
    bool any;
    if (f8_measure_find_process(k->set, id))
        return F8_OK;
    F8_TRY(f8_tuning_get_process(k->t->db, id, &k->set->arena, &found, &any, k->diag));
    if (any && *found.facts)
        return f8_measure_read_process(k->set, found.facts, k->diag);
    return f8_measure_add_process(k->set, &(f8_measure_process){.id = id, .date = "", .load = NAN},
                                  k->diag);
}

static f8_status add_runs(making *k, const f8_timing *row, f8_measurement *m)
{
    m->process = F8_NEW_ARRAY(&k->set->arena, f8_measure_runs, row->n_samples + 1);
    F8_TRY(f8_arena_status(&k->set->arena, k->diag));
    for (size_t i = 0; i < row->n_samples; i++) {
        const f8_tuning_runs *r = &row->samples[i];
        if (k->t->o.again && strcmp(r->process, k->process))
            continue;
        F8_TRY(add_process(k, r->process));
        m->process[m->n_processes++] = (f8_measure_runs){r->process, r->seconds, r->n};
    }
    return F8_OK;
}

static f8_measurement lacking(const f8_measurement *m, const char *reason)
{
    f8_measurement to = *m;
    to.state = F8_MEASURE_LACKING;
    to.reason = reason;
    return to;
}

/* Add a candidate of which the database has a row, or none (NULL). */
static f8_status add_way(making *k, const tune_problem *p, int c, const f8_timing *row)
{
    const tune_candidate *from = &p->candidate[c];
    f8_measurement m = {.problem = problem_of(p),
                        .cache = "step",
                        .candidate = from->text,
                        .operands = p->gemm ? operands_of(&p->desc, &k->set->arena) : "",
                        .kind = c ? F8_MEASURE_CANDIDATE : F8_MEASURE_MODEL,
                        .state = F8_MEASURE_LATE,
                        .reason = "",
                        .unit = unit_of(k->t, p, from),
                        .chosen = c == (p->chosen > 0 ? p->chosen : 0),
                        .same_bits = F8_MEASURE_UNKNOWN,
                        .error = NAN,
                        .compile_seconds = NAN};
    F8_TRY(f8_arena_status(&k->set->arena, k->diag));
    if (from->other_bits) {
        m = lacking(&m, "its sums are in another order, which changes bits");
        m.same_bits = F8_MEASURE_NO;
    } else if (row && row->runs && !row->n_samples) {
        m = lacking(&m, "an earlier version timed it, which kept no runs (--again times it)");
    } else if (row && row->runs && from->runs) {
        F8_TRY(add_runs(k, row, &m));
        if (m.n_processes) {
            m.state = F8_MEASURE_TIMED;
            F8_TRY(find_bits(k, p, c, row, &m));
        }
    }
    return f8_measure_add(k->set, &m, k->diag);
}

static f8_status add_problem(making *k, const tune_problem *p)
{
    f8_timing *row;
    size_t n;
    F8_TRY(f8_tuning_get(k->t->db, f8_tune_key(k->t, p), p->text, F8_TUNING_STEP, &k->set->arena,
                         &row, &n, k->diag));
    for (int c = 0; c < p->n; c++) {
        const f8_timing *of = NULL;
        for (size_t i = 0; i < n; i++)
            if (!strcmp(row[i].candidate, p->candidate[c].text))
                of = &row[i];
        F8_TRY(add_way(k, p, c, of));
    }
    return F8_OK;
}

f8_status f8_measure_of_tuning(fp8c_tuning *t, const char *process, f8_measure_set *set,
                               f8_diag *diag)
{
    making k = {t, process, set, diag};
    for (size_t i = 0; i < t->n; i++)
        F8_TRY(add_problem(&k, &t->problem[i]));
    return F8_OK;
}

/* ---- the whole ---- */

/* Keep what is known of this process, which has put runs there. */
static f8_status keep_process(fp8c_tuning *t, const f8_measure_process *p, f8_diag *diag)
{
    char *facts = f8_measure_process_text(p);
    if (!facts)
        return f8_fail(diag, F8_ERR_MEMORY, F8_NOWHERE, "no memory for the facts of this process");
    const f8_tuning_process row = {.id = p->id, .device = t->keys.device, .facts = facts};
    const f8_status status = f8_tuning_put_process(t->db, &row, diag);
    free(facts);
    return status;
}

static f8_status begin(fp8c_tuning *t, f8_measure_set *set, f8_measure_process *p, f8_diag *diag)
{
    F8_TRY(f8_measure_begin(&set->arena, p, diag));
    p->id = t->process; /* by which the tuner's runs are known */
    f8_measure_find_clocks(t->base, &p->begin);
    return f8_measure_find_limits(t->base, &p->before, diag);
}

/* A process that timed nothing is not among those that measured. */
static f8_status end(fp8c_tuning *t, f8_measure_set *set, f8_measure_process *p, f8_diag *diag)
{
    if (!t->process_kept)
        return F8_OK;
    f8_measure_find_clocks(t->base, &p->end);
    F8_TRY(f8_measure_find_limits(t->base, &p->after, diag));
    F8_TRY(f8_measure_add_process(set, p, diag));
    return keep_process(t, p, diag);
}

static f8_status measure(fp8c_tuning *t, const char *command, const char *commit,
                         f8_measure_set *set, f8_diag *diag)
{
    f8_measure_about about;
    f8_measure_process process;
    F8_TRY(begin(t, set, &process, diag));
    F8_TRY(f8_tune_finish(t, diag));
    F8_TRY(end(t, set, &process, diag));
    F8_TRY(f8_measure_describe(t->base, commit, command, "as in the step", t->keys.gemm_versions,
                               "", &set->arena, &about, diag));
    F8_TRY(f8_measure_set_about(set, &about, diag));
    F8_TRY(f8_measure_of_tuning(t, process.id, set, diag));
    return f8_measure_figures(set, diag);
}

fp8c_status f8_measure_model(fp8c_context *ctx, const fp8c_module *module,
                             const fp8c_tune_options *options, const char *command,
                             const char *commit, f8_measure_set *set, fp8c_tuning **out)
{
    f8_diag diag = {0};
    fp8c_tuning *t;
    *out = NULL;
    const fp8c_status opened = f8_tune_open(ctx, module, options, false, &t);
    if (opened != FP8C_OK)
        return opened;
    const f8_status status = measure(t, command, commit, set, &diag);
    if (status == F8_OK) {
        *out = t;
        return FP8C_OK;
    }
    if (diag.status != F8_OK) /* otherwise a compile has left its message */
        f8_api_fail(ctx, &diag, status, module->text, module->text_size);
    fp8c_tuning_destroy(t);
    return (fp8c_status)status;
}
