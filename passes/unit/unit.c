/* What passes ask of their unit: its target, whether to go on, and which recipe an operand of a
 * linear's GEMM gets by the module's rules, the options and a calibration. */
#include "passes/unit/pass.h"

#include <string.h>

#include "ir/base/hash.h"

const char *const f8_watched_kind_name[F8_WATCHED_KINDS] = {"x", "w", "dy", "y", "dx", "dw"};

int32_t f8_unit_ranks(const f8_unit *u)
{
    return u->options.ranks > 1 ? u->options.ranks : 1;
}

int32_t f8_unit_zero(const f8_unit *u)
{
    const int64_t stage = u->options.zero ? u->options.zero : u->module->zero;
    return f8_unit_ranks(u) > 1 && stage > 0 ? (int32_t)stage : 0;
}

void f8_names_add(f8_names *list, const char *name)
{
    const size_t n = strlen(name), comma = list->n ? 2 : 0;
    if (list->n + comma + n >= sizeof list->text)
        return;
    memcpy(list->text + list->n, ", ", comma);
    memcpy(list->text + list->n + comma, name, n + 1);
    list->n += comma + n;
}

f8_optimizer f8_unit_optimizer(const f8_unit *u)
{
    f8_optimizer o = u->module->optimizer;
    if (u->options.lr > 0)
        o.lr = u->options.lr;
    if (u->options.optimizer_steps > 0)
        o.steps = u->options.optimizer_steps;
    return o;
}

const f8_target *f8_unit_target(const f8_unit *u)
{
    return u->options.target ? u->options.target : f8_target_by_name("cpu");
}

f8_gemm_sizes f8_fp8_padded(const f8_target *t, f8_gemm_sizes size)
{
    size.m = f8_aligned(size.m, t->fp8_multiple);
    size.k = f8_aligned(size.k, t->fp8_multiple);
    return size;
}

bool f8_fp8_takes(const f8_target *t, f8_role role, const f8_gemm_sizes *size, const char **names)
{
    const int64_t by = t->fp8_multiple;
    *names = role == F8_WGRAD ? "m and n" : role == F8_ROLES ? "n" : "n and k";
    return size->n % by == 0 &&
           (role == F8_ROLES || (role == F8_WGRAD ? size->m : size->k) % by == 0);
}

void f8_unit_listen(f8_unit *u, const char *phase, int64_t total)
{
    u->phase = f8_progress_begin(u->options.progress, phase, total);
    u->module->phase = &u->phase;
}

f8_status f8_unit_end(f8_unit *u, f8_status status)
{
    u->module->phase = NULL;
    return status == F8_OK ? f8_progress_at(&u->phase, u->phase.total, "", u->diag) : status;
}

f8_status f8_unit_go_on(f8_unit *u)
{
    return f8_progress_at(&u->phase, (int64_t)u->n_times, u->pass, u->diag);
}

f8_status f8_unit_within(f8_unit *u)
{
    return f8_progress_within(u->module->phase, u->diag);
}

bool f8_is_micro_step(const char *name)
{
    return !strcmp(name, "micro_step") || !strncmp(name, "micro_step.", 11);
}

bool f8_is_weight_codes(const char *name)
{
    return !strncmp(name, F8_WEIGHT_CODES, sizeof F8_WEIGHT_CODES - 1) ||
           !strncmp(name, F8_WEIGHT_SCALE_INV, sizeof F8_WEIGHT_SCALE_INV - 1);
}

bool f8_is_cotangent(const f8_unit *u, const f8_port *p)
{
    for (size_t i = 0; p->var < 0 && i < u->pair.n_cotangents; i++)
        if (!strcmp(u->pair.cotangent[i], p->name))
            return true;
    return false;
}

/* ---- names of linears ---- */

uint32_t f8_unit_find_linear(const f8_unit *u, const char *name)
{
    uint32_t i = f8_index_first(&u->named_index, f8_fnv(F8_FNV, name));
    while (i != F8_INDEX_END && strcmp(u->named[i].name, name))
        i = f8_index_next(&u->named_index, i);
    return i;
}

/* How many of the layers are lower. */
static size_t layers_below(const f8_unit *u, int64_t layer)
{
    size_t low = 0, high = u->n_layers;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (u->layer[middle] < layer)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool add_layer(f8_unit *u, int64_t layer)
{
    const size_t at = layers_below(u, layer);
    if (layer < 0 || (at < u->n_layers && u->layer[at] == layer))
        return true;
    int64_t *grown = f8_arena_grow(u->arena, u->layer, u->n_layers, &u->layer_room, u->n_layers + 1,
                                   sizeof *grown);
    if (!grown)
        return false;
    u->layer = grown;
    memmove(grown + at + 1, grown + at, (u->n_layers++ - at) * sizeof *grown);
    grown[at] = layer;
    return true;
}

bool f8_unit_name_linear(f8_unit *u, const char *name, const char *shared)
{
    f8_linear_name_pair *grown = f8_arena_grow(u->arena, u->named, u->n_named, &u->named_room,
                                               u->n_named + 1, sizeof *grown);
    u->named_index.arena = u->arena;
    if (!grown || !f8_index_add(&u->named_index, f8_fnv(F8_FNV, name)) ||
        !add_layer(u, f8_layer_of(shared)))
        return false;
    u->named = grown;
    grown[u->n_named++] = (f8_linear_name_pair){name, shared};
    return true;
}

/* ---- rules ---- */

/* The name that rules match: the one before linears that share it were numbered. */
static const char *shared_name(const f8_unit *u, const char *linear)
{
    const uint32_t i = f8_unit_find_linear(u, linear);
    return i == F8_INDEX_END ? linear : u->named[i].shared;
}

/* Whether a rule applies. A pattern matches the name that linears share, and so all of them; a
 * pattern that is exactly one linear's numbered name matches that linear. */
static bool applies(const f8_unit *u, const f8_recipe_rule *rule, const char *linear,
                    const char *name, f8_role role, f8_operand_kind operand)
{
    if ((rule->role && strcmp(rule->role, f8_role_name[role])) ||
        (rule->operand && strcmp(rule->operand, f8_operand_name[operand])))
        return false;
    if (rule->pattern)
        return f8_pattern_match(rule->pattern, name) || !strcmp(rule->pattern, linear);
    const int64_t layer = f8_layer_of(name);
    if (layer < 0)
        return false;
    /* places among the layers, counted from either end; 0 is the outermost */
    const int64_t before = (int64_t)layers_below(u, layer),
                  after = (int64_t)(u->n_layers - layers_below(u, layer + 1));
    return before < rule->first || after < rule->last;
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
    const char *name = shared_name(u, linear);
    const f8_recipe_rule *last = NULL;
    for (size_t i = m->n_rules; i-- > 0 && !last;)
        if (applies(u, &m->rule[i], linear, name, role, operand))
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
