/* The problems of a program, and the candidates of each: see tune.h. */
#include <inttypes.h>
#include <string.h>

#include "codegen/kernel/config.h"
#include "frontend/tune/tune.h"
#include "ir/base/format.h"
#include "ir/base/hash.h"
#include "ir/recipe.h"
#include "runtime/cuda/cublaslt.h"

const f8_tuning_key *f8_tune_key(const fp8c_tuning *t, const tune_problem *p)
{
    return p->gemm ? &t->keys.gemm : &t->keys.kernel;
}

tune_problem *f8_tune_find(const fp8c_tuning *t, const char *text)
{
    for (size_t i = 0; i < t->n; i++)
        if (!strcmp(t->problem[i].text, text))
            return &t->problem[i];
    return NULL;
}

/* ---- candidates ---- */

static void add_candidate(fp8c_tuning *t, tune_problem *p, const char *text,
                          const f8_gemm_desc *desc)
{
    if (p->n == TUNE_CANDIDATES)
        return;
    tune_candidate *c = &p->candidate[p->n++];
    *c = (tune_candidate){.text = f8_arena_strdup(&t->arena, text)};
    if (desc)
        c->desc = *desc;
}

static void add_configs(fp8c_tuning *t, tune_problem *p, const f8_kernel *k,
                        const f8_target *target)
{
    f8_kernel_config all[F8_KERNEL_CONFIGS];
    char text[F8_KERNEL_CONFIG_TEXT];
    const bool wide = __builtin_cpu_supports("avx512f");
    const int n = f8_kernel_configs(k, target->kind == F8_TARGET_CPU ? NULL : target, wide, all);
    for (int i = 0; i < n; i++) {
        f8_kernel_config_text(&all[i], text);
        add_candidate(t, p, text, NULL);
    }
}

static void add_gemms(fp8c_tuning *t, tune_problem *p)
{
    f8_gemm_desc all[F8_GEMM_CANDIDATES];
    char text[F8_CANDIDATE_TEXT];
    const int n =
        f8_gemm_candidates(t->gemms, &p->desc, f8_pool_threads(t->pool), t->o.same_bits, all);
    for (int i = 0; i < n; i++) {
        f8_gemm_candidate_text(&all[i], all[0].algorithm, text);
        add_candidate(t, p, text, &all[i]);
    }
}

/* Add cuBLASLt's deterministic answers for the problem. The first is the model's. */
static f8_status add_algorithms(fp8c_tuning *t, tune_problem *p, f8_diag *diag)
{
    f8_gemm_tuning all[F8_GEMM_CANDIDATES];
    char text[F8_CANDIDATE_TEXT];
    int n = 0;
    add_candidate(t, p, "model", NULL);
    if (t->o.same_bits)
        return F8_OK;
    F8_TRY(f8_cublaslt_candidates(t->base->cuda, &t->ctx->allocator, &p->desc, 16,
                                  t->base->now->plan.gemm_workspace, false, p->name, all, &n,
                                  diag));
    for (int i = 1; i < n; i++) {
        f8_gemm_desc d = p->desc;
        if (f8_gemm_tuning_again(all, i))
            continue;
        d.tuning = all[i];
        f8_gemm_candidate_text(&d, d.algorithm, text);
        add_candidate(t, p, text, NULL);
    }
    return F8_OK;
}

/* ---- collecting ---- */

/* Whether the step of this name is to be tuned; a GEMM, or a kernel. */
static bool is_wanted(const fp8c_tuning *t, bool gemm, const char *name)
{
    if (t->gemms_alone || t->o.kernels)
        return gemm == t->gemms_alone && (gemm || f8_pattern_match(t->o.kernels, name));
    return !t->o.only || f8_pattern_match(t->o.only, name);
}

/* Append an empty problem. NULL: no memory, which the arena reports after the compile. */
static tune_problem *add_problem(fp8c_tuning *t, const char *text, const char *name)
{
    tune_problem *grown =
        f8_arena_grow(&t->arena, t->problem, t->n, &t->room, t->n + 1, sizeof *grown);
    if (!grown)
        return NULL;
    t->problem = grown;
    tune_problem *p = &grown[t->n];
    p->text = f8_arena_strdup(&t->arena, text);
    p->name = f8_arena_strdup(&t->arena, name);
    if (!p->text || !p->name)
        return NULL;
    t->n++;
    p->chosen = -1;
    return p;
}

static const char *collect(void *user, const f8_build_problem *from, f8_choice_source *source)
{
    fp8c_tuning *t = user;
    *source = F8_CHOICE_DATABASE;
    if (f8_tune_find(t, from->text) || !is_wanted(t, from->gemm != NULL, from->name))
        return NULL;
    tune_problem *p = add_problem(t, from->text, from->name);
    if (!p)
        return NULL;
    p->gemm = from->gemm != NULL;
    if (p->gemm)
        p->desc = *from->gemm;
    else
        add_configs(t, p, from->kernel, from->target);
    return NULL;
}

enum { ATTENTION_TEXT = 64 };

/* The text of the attention that a step computes. False: it computes none. */
static bool attention_text(const f8_step *s, char text[ATTENTION_TEXT])
{
    const bool by_library = s->kind == F8_STEP_ATTENTION;
    if (!by_library && (s->kind != F8_STEP_KERNEL || s->does != F8_DOES_ATTENTION))
        return false;
    uint64_t hash = s->hash; /* of its kernel */
    if (by_library) {
        char what[96];
        f8_format(what, sizeof what, "cudnn %d %.17g %" PRId64 " %" PRId64, s->attention.backward,
                  s->flops, s->bytes_read, s->bytes_written);
        hash = f8_fnv(F8_FNV, what);
    }
    f8_format(text, ATTENTION_TEXT, "attention %016" PRIx64, hash);
    return true;
}

tune_problem *f8_tune_problem_at(const fp8c_tuning *t, const f8_plan *plan, const f8_step *s,
                                 uint32_t n)
{
    char text[ATTENTION_TEXT];
    const uint32_t choice = n < s->n_phases ? s->phase[n].choice : s->choice;
    if (choice)
        return f8_tune_find(t, plan->choice[choice - 1].problem);
    return n == s->n_phases && attention_text(s, text) ? f8_tune_find(t, text) : NULL;
}

/* Add attention, by its step's name or by this word. It has one way. */
static void add_attention(fp8c_tuning *t, const f8_step *s)
{
    char text[ATTENTION_TEXT];
    if (!attention_text(s, text) || f8_tune_find(t, text) ||
        !(is_wanted(t, false, s->name) || is_wanted(t, false, "attention")))
        return;
    tune_problem *p = add_problem(t, text, s->name);
    if (!p)
        return;
    p->attention = true;
    p->chosen = 0;
    add_candidate(t, p, "model", NULL);
}

/* Count a step, or a phase of it. */
static void count_one(tune_problem *p, const f8_step *s, uint32_t n)
{
    const bool part = n < s->n_phases && s->n_phases > 1;
    p->count++;
    p->flops += part ? 0 : s->flops;
    p->bytes += part ? (double)s->phase[n].bytes : (double)(s->bytes_read + s->bytes_written);
}

/* Count how often a step has each problem. Functions that a step does not run are not measured. */
static void count_problems(fp8c_tuning *t)
{
    const f8_plan *plan = &t->base->now->plan;
    for (int k = 0; k < t->n_functions; k++) {
        const f8_plan_func *f = &plan->func[t->function[k]];
        for (uint32_t i = 0; i < f->n_steps; i++) {
            const f8_step *s = &f->step[i];
            add_attention(t, s);
            for (uint32_t n = 0; n < s->n_phases + 1; n++) {
                tune_problem *p = f8_tune_problem_at(t, plan, s, n);
                if (p)
                    count_one(p, s, n);
            }
        }
    }
    size_t kept = 0;
    for (size_t i = 0; i < t->n; i++) {
        tune_problem p = t->problem[i];
        if (!p.count)
            continue;
        p.flops /= p.count;
        p.bytes /= p.count;
        t->problem[kept++] = p;
    }
    t->n = kept;
}

static void choose_functions(fp8c_tuning *t)
{
    static const char *const sets[][TUNE_FUNCTIONS] = {
        {"micro_step", "update"}, {"forward", "backward"}, {"eval", NULL}};
    for (size_t i = 0; i < sizeof sets / sizeof *sets && !t->n_functions; i++)
        for (int k = 0; k < TUNE_FUNCTIONS && sets[i][k]; k++) {
            const int f = fp8c_program_function(t->base, sets[i][k]);
            if (f >= 0)
                t->function[t->n_functions++] = f;
        }
}

/* ---- what the database knows ---- */

static f8_status recall(fp8c_tuning *t, tune_problem *p, f8_diag *diag)
{
    f8_timing *timing;
    f8_tuning_choice choice;
    size_t n;
    bool found;
    if (t->o.again)
        return F8_OK;
    F8_TRY(f8_tuning_get(t->db, f8_tune_key(t, p), p->text, F8_TUNING_STEP, &t->arena, &timing, &n,
                         diag));
    for (int c = 0; c < p->n; c++)
        for (size_t i = 0; i < n; i++)
            if (!strcmp(timing[i].candidate, p->candidate[c].text)) {
                /* the database has seconds of once; those of schema 1 are a step's */
                p->candidate[c].seconds = timing[i].seconds * (timing[i].n_samples ? p->count : 1);
                p->candidate[c].runs = timing[i].runs;
                p->candidate[c].other_bits = timing[i].runs == 0;
                t->kept++;
            }
    for (int c = 0; c < p->n; c++)
        p->candidate[c].ratio =
            p->candidate[0].seconds > 0 ? p->candidate[c].seconds / p->candidate[0].seconds : 1;
    F8_TRY(f8_tuning_chosen(t->db, f8_tune_key(t, p), p->text, &t->arena, &choice, &found, diag));
    for (int c = 0; c < p->n && found; c++)
        if (!strcmp(choice.candidate, p->candidate[c].text)) {
            p->chosen = c;
            p->seconds = choice.seconds;
            p->model_seconds = choice.model_seconds;
        }
    return F8_OK;
}

f8_status f8_tune_collect(fp8c_tuning *t, f8_diag *diag)
{
    const f8_build_choices choices = {collect, t};
    const f8_tuner_compile compile = {.choices = &choices};
    const fp8c_status status = f8_compile_tuning(t->module, &t->compile, &compile, &t->base);
    if (status != FP8C_OK) /* the context has its message already */
        return (f8_status)status;
    F8_TRY(f8_arena_status(&t->arena, diag));
    if (!t->base->now->instance.kind || !f8_tuning_device(t->base, &t->keys))
        return f8_fail(diag, F8_ERR_UNSUPPORTED, F8_NOWHERE,
                       "no device here runs target %s: there is nothing to time",
                       t->base->target->name);
    F8_TRY(f8_tuning_versions(t->base, &t->gemms, &t->keys, diag));
    choose_functions(t);
    count_problems(t);
    F8_TRY(f8_arena_status(&t->arena, diag));
    if (t->o.kernels && !t->n)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                       "no row kernel and no attention of a step is named '%s'", t->o.kernels);
    for (size_t i = 0; i < t->n; i++) {
        tune_problem *p = &t->problem[i];
        if (p->gemm && t->base->target->kind == F8_TARGET_CPU)
            add_gemms(t, p);
        else if (p->gemm)
            F8_TRY(add_algorithms(t, p, diag));
        F8_TRY(f8_arena_status(&t->arena, diag));
        F8_TRY(recall(t, p, diag));
    }
    return F8_OK;
}
