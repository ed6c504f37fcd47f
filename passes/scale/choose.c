/* Choosing recipes: see choose.h. */
#include "passes/scale/choose.h"
#include "passes/unit/cost.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ir/base/format.h"

static const char *const names[F8_CANDIDATES] = {"bf16",    "delayed", "current",
                                                 "rowwise", "block",   "mxfp8"};

/* ---- cost ---- */

/* The bytes per element that are moved to make one GEMM's operand. What two GEMMs of a linear share
 * counts half: a bf16 activation (2 bytes), the codes of a weight. `own` is for scales that run
 * along the rows in which values are computed, `other` for scales along the other axis (wgrad; a
 * weight in one of fprop and dgrad). */
typedef struct operand_bytes {
    double own, other;
} operand_bytes;

static const struct {
    operand_bytes activation, weight;
} moved[] = {
    /* an activation is stored in bf16; a weight is read in f32 and stored in bf16 */
    [F8_SCALING_NONE] = {{1, 1}, {3, 3}},
    /* codes are made as values are computed; a weight is read once for the codes of both GEMMs */
    [F8_SCALING_DELAYED] = {{1, 1}, {3, 3}},
    /* an activation is stored in bf16 until its amax is known, and read again; a weight's amax is
     * known from the update */
    [F8_SCALING_CURRENT] = {{3, 3}, {3, 3}},
    /* a row is kept near; a column's amax needs all rows, so values are stored and read a second
     * time */
    [F8_SCALING_ROWWISE] = {{1, 5}, {5, 9}},
    /* runs of a row: values are recomputed from their source; runs of a column: as above. Tiles:
     * amax, then codes, for both */
    [F8_SCALING_BLOCK] = {{3, 5}, {5, 5}},
    [F8_SCALING_MX] = {{3, 5}, {5, 9}},
};

static void estimate(f8_candidate *c, const f8_target *target, const f8_trial *t)
{
    const f8_scaling scaling = c->recipe.scaling;
    const f8_gemm_sizes given = {t->m, t->n, t->k, 1},
                        size = scaling == F8_SCALING_NONE ? given : f8_fp8_padded(target, given);
    const double m = (double)size.m, n = (double)size.n, k = (double)size.k;
    const operand_bytes activation = moved[scaling].activation, weight = moved[scaling].weight;
    c->gemm_seconds = 2 * m * n * k / (f8_cost_rate(&target->rates, scaling) * 1e12);
    if (t->role == F8_WGRAD)
        c->bytes = (m * k + n * k) * activation.other;
    else
        c->bytes =
            m * k * activation.own + n * k * (t->role == F8_FPROP ? weight.own : weight.other);
    c->seconds = c->gemm_seconds + c->bytes / (target->rates.memory * 1e12);
}

/* ---- candidates that can't be chosen ---- */

static const char *missing(const f8_target *t, const f8_trial *trial, const f8_recipe *r,
                           f8_arena *a)
{
    const unsigned lacks = f8_recipe_lacks(r, t);
    const f8_gemm_sizes size = {trial->m, trial->n, trial->k, 1};
    const char *text = NULL, *names;
    if (r->scaling == F8_SCALING_NONE)
        return NULL;
    if (lacks)
        text = f8_arena_printf(a, "%s has no FP8 GEMM with %s", t->name,
                               lacks & F8_LACKS_ROWS     ? "scales of rows"
                               : lacks & F8_LACKS_BLOCKS ? "scales of 128-blocks"
                                                         : "MX scales");
    else if (!f8_fp8_takes(t, trial->role, &size, &names))
        text =
            f8_arena_printf(a, "%lld x %lld x %lld: %s are not multiples of %d, as %s wants them",
                            (long long)trial->m, (long long)trial->n, (long long)trial->k, names,
                            t->fp8_multiple, t->name);
    else
        return NULL;
    return text ? text : "";
}

/* The rule that decides a GEMM instead of auto, or NULL. */
static const char *fixed_by(const f8_unit *u, const char *linear, f8_role role)
{
    static const f8_recipe plain_auto = {
        .name = "auto", .activation = F8_BF16, .scaling = F8_SCALING_AUTO};
    f8_unit asking = *u;
    f8_operand_kind of[2];
    asking.options.recipe = &plain_auto;
    asking.options.n_chosen = 0;
    f8_role_operands(role, of);
    for (int i = 0; i < 2; i++) {
        const f8_assignment c = f8_recipe_for(&asking, linear, role, of[i]);
        if (c.recipe.scaling != F8_SCALING_AUTO)
            return c.reason;
    }
    return NULL;
}

static void sizes(const f8_sampled *s, f8_role role, f8_trial *t)
{
    t->m = role == F8_WGRAD ? s->k : s->m;
    t->n = role == F8_DGRAD ? s->k : s->n;
    t->k = role == F8_FPROP ? s->k : role == F8_DGRAD ? s->n : s->m;
}

f8_trial *f8_trials(f8_unit *u, const f8_target *target, size_t *n)
{
    f8_trial *trial = F8_NEW_ARRAY(u->arena, f8_trial, u->n_sampled * F8_ROLES);
    *n = 0;
    if (!trial)
        return NULL;
    for (size_t i = 0; i < u->n_sampled; i++)
        for (f8_role role = F8_FPROP; role < F8_ROLES; role++) {
            const f8_sampled *s = &u->sampled[i];
            if (!s->has[role])
                continue;
            f8_trial *t = &trial[(*n)++];
            *t = (f8_trial){.linear = s->linear, .role = role, .loc = s->loc,
                            .fixed = fixed_by(u, s->linear, role)};
            sizes(s, role, t);
            for (int k = 0; k < F8_CANDIDATES; k++) {
                f8_candidate *c = &t->candidate[k];
                c->recipe = *f8_recipe_by_name(names[k]);
                c->excluded = t->fixed ? t->fixed : missing(target, t, &c->recipe, u->arena);
                if (f8_cost_rate(&target->rates, c->recipe.scaling) > 0)
                    estimate(c, target, t);
            }
        }
    return u->diag->status == F8_OK ? trial : NULL;
}

/* ---- the choice ---- */

void f8_choose(f8_trial *t, double budget, f8_arena *arena)
{
    double least = INFINITY;
    int nearest = 0;
    bool measurable = false;
    char text[160];
    t->winner = 0;
    if (t->fixed) {
        t->reason = t->fixed;
        return;
    }
    for (int i = 1; i < F8_CANDIDATES; i++) {
        const f8_candidate *c = &t->candidate[i];
        measurable |= !c->excluded;
        if (c->excluded || isnan(c->error))
            continue;
        if (!nearest || c->error < t->candidate[nearest].error)
            nearest = i;
        if (c->error <= budget && c->seconds < least) {
            least = c->seconds;
            t->winner = i;
        }
    }
    const f8_candidate *c = &t->candidate[t->winner ? t->winner : nearest];
    if (t->winner)
        f8_format(text, sizeof text, "auto: the cheapest within %.3g%%: error %.2f%%", 100 * budget,
                 100 * c->error);
    else if (nearest)
        f8_format(text, sizeof text, "auto: no FP8 recipe is within %.3g%%: %s has %.2f%%",
                  100 * budget, c->recipe.name, 100 * c->error);
    else if (measurable)
        snprintf(text, sizeof text, "auto: nothing to measure: the result was zero, or beyond f32");
    else
        snprintf(text, sizeof text, "auto: %s", t->candidate[1].excluded);
    t->reason = f8_arena_strdup(arena, text);
    if (!t->reason)
        t->reason = "";
}

f8_status f8_chosen_rules(const f8_trial *trial, size_t n, f8_module *m, f8_recipe_rule **rules,
                          size_t *n_rules)
{
    *n_rules = 0;
    *rules = F8_NEW_ARRAY(m->arena, f8_recipe_rule, n);
    if (!*rules)
        return f8_arena_status(m->arena, m->diag);
    for (size_t first = 0, end; first < n; first = end) {
        bool agree = true;
        for (end = first; end < n && trial[end].linear == trial[first].linear; end++)
            agree &= trial[end].winner == trial[first].winner && !trial[end].fixed;
        for (size_t i = first; i < (agree ? first + 1 : end); i++) {
            const f8_trial *t = &trial[i];
            if (t->fixed)
                continue;
            (*rules)[(*n_rules)++] =
                (f8_recipe_rule){.pattern = f8_intern(m, t->linear),
                                 .recipe = f8_intern(m, t->candidate[t->winner].recipe.name),
                                 .role = agree ? NULL : f8_role_name[t->role]};
        }
    }
    return f8_arena_status(m->arena, m->diag);
}
