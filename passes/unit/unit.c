/* What passes ask of their unit: its target, whether to go on, and which recipe an operand of a
 * linear's GEMM gets by the module's rules, the options and a calibration. */
#include "passes/unit/pass.h"

#include <string.h>

const char *const f8_watched_kind_name[F8_WATCHED_KINDS] = {"x", "w", "dy", "y", "dx", "dw"};

const f8_target *f8_unit_target(const f8_unit *u)
{
    return u->options.target ? u->options.target : f8_target_by_name("cpu");
}

f8_status f8_unit_go_on(f8_unit *u)
{
    return f8_progress_at(&u->phase, (int64_t)u->n_times, u->pass, u->diag);
}

bool f8_is_micro_step(const char *name)
{
    return !strcmp(name, "micro_step") || !strncmp(name, "micro_step.", 11);
}

/* ---- rules ---- */

/* The name that rules match: the one before linears that share it were numbered. */
static const char *shared_name(const f8_unit *u, const char *linear)
{
    for (size_t i = 0; i < u->n_named; i++)
        if (!strcmp(u->named[i].name, linear))
            return u->named[i].shared;
    return linear;
}

/* The place of a layer among the layers of the module's linears, counted from either end; 0 is the
 * outermost. */
static void place_of(const f8_unit *u, int64_t layer, int64_t *from_first, int64_t *from_last)
{
    *from_first = *from_last = 0;
    for (size_t i = 0; i < u->n_named; i++) {
        const int64_t other = f8_layer_of(u->named[i].shared);
        bool counted = other < 0 || other == layer;
        for (size_t k = 0; k < i && !counted; k++)
            counted = f8_layer_of(u->named[k].shared) == other;
        *from_first += !counted && other < layer;
        *from_last += !counted && other > layer;
    }
}

/* Whether a rule applies. A pattern matches the name that linears share, and so all of them; a
 * pattern that is exactly one linear's numbered name matches that linear. */
static bool applies(const f8_unit *u, const f8_recipe_rule *rule, const char *linear, f8_role role,
                    f8_operand_kind operand)
{
    const char *name = shared_name(u, linear);
    if ((rule->role && strcmp(rule->role, f8_role_name[role])) ||
        (rule->operand && strcmp(rule->operand, f8_operand_name[operand])))
        return false;
    if (rule->pattern)
        return f8_pattern_match(rule->pattern, name) || !strcmp(rule->pattern, linear);
    const int64_t layer = f8_layer_of(name);
    int64_t from_first, from_last;
    if (layer < 0)
        return false;
    place_of(u, layer, &from_first, &from_last);
    return from_first < rule->first || from_last < rule->last;
}

/* ---- choosing ---- */

/* Where `auto` is asked for: take what the calibration chose for this linear's GEMM. */
static void take_chosen(const f8_unit *u, const char *linear, f8_role role,
                        f8_assignment *assignment)
{
    for (size_t i = 0; i < u->options.n_chosen; i++) {
        const f8_trial *t = &u->options.chosen[i];
        if (t->role != role || t->fixed || strcmp(t->linear, linear))
            continue;
        assignment->recipe = t->candidate[t->winner].recipe;
        assignment->reason = f8_arena_strdup(u->arena, t->reason);
        if (!assignment->reason)
            assignment->reason = "";
    }
}

/* rowwise_gw_hp keeps wgrad in high precision, whoever decided on that recipe. */
static f8_assignment without_wgrad(const f8_unit *u, f8_assignment assignment, f8_role role)
{
    if (!assignment.recipe.wgrad_high || role != F8_WGRAD)
        return assignment;
    const char *reason = f8_arena_printf(u->arena, "%s: %s keeps wgrad in bf16", assignment.reason,
                                         assignment.recipe.name);
    return (f8_assignment){*f8_recipe_by_name("bf16"), reason ? reason : ""};
}

/* "recipe RULE", and its line or its origin. */
static const char *reason_of(const f8_unit *u, const f8_recipe_rule *rule)
{
    char text[512];
    const char *reason =
        f8_arena_printf(u->arena, "recipe %s", f8_rule_print(rule, text, sizeof text));
    if (reason && rule->loc.line)
        reason = f8_arena_printf(u->arena, "%s (line %u)", reason, rule->loc.line);
    else if (reason && rule->origin)
        reason = f8_arena_printf(u->arena, "%s (%s)", reason, rule->origin);
    return reason ? reason : "";
}

f8_assignment f8_recipe_for(const f8_unit *u, const char *linear, f8_role role,
                            f8_operand_kind operand)
{
    f8_assignment assignment = {*u->options.recipe, "the recipe asked for"};
    if (assignment.recipe.scaling == F8_SCALING_NONE)
        return assignment; /* a high-precision run is so everywhere: FP8 is compared with it */
    const f8_module *m = u->module;
    const f8_recipe_rule *last = NULL;
    for (size_t i = 0; i < m->n_rules; i++)
        if (applies(u, &m->rule[i], linear, role, operand))
            last = &m->rule[i];
    if (last) {
        f8_recipe named;
        if (f8_recipe_parse(last->recipe, last->loc, &named, u->diag) != F8_OK)
            return assignment;
        if (named.scaling != F8_SCALING_AUTO)
            assignment.recipe = named;
        assignment.reason = reason_of(u, last);
    }
    if (assignment.recipe.scaling == F8_SCALING_AUTO)
        take_chosen(u, linear, role, &assignment);
    return without_wgrad(u, assignment, role);
}
