/* Matching files of weights with a program: see load.h. */
#include <stdlib.h>
#include <string.h>

#include "frontend/checkpoint/dequantize.h"
#include "frontend/program.h"
#include "ir/base/format.h"
#include "ir/base/text.h"
#include "ir/recipe.h"

enum { NAME_ROOM = 1024 }; /* names of a module have 511 bytes at most */

/* ---- the report, and the list of what is wrong ---- */

static void say(const f8_load *l, const fp8c_load_item *item)
{
    if (l->o->report)
        l->o->report(l->o->user, item);
}

/* Add to the list, "'w' is missing: F32 [2]; ...". */
static void add_wrong(f8_load *l, const char *name, const char *what, const char *detail)
{
    char shown[200], one[640];
    l->n_wrong++;
    const int n = snprintf(one, sizeof one, "%s'%s' %s%s", l->n_shown ? "; " : "",
                           f8_st_shown(name, shown, sizeof shown), what, detail);
    if (l->n_shown + 1 != l->n_wrong || l->length + (size_t)n >= sizeof l->text)
        return;
    memcpy(l->text + l->length, one, (size_t)n + 1);
    l->length += (size_t)n;
    l->n_shown++;
}

static void missing(f8_load *l, const char *name, const char *what, const char *detail)
{
    say(l, &(fp8c_load_item){
               .fate = FP8C_LOAD_MISSING, .error = 1, .variable = name, .detail = detail});
    add_wrong(l, name, what, detail);
}

static void item_of(const f8_load *l, fp8c_load_fate fate, const char *variable, const f8_weight *t,
                    const char *detail)
{
    say(l, &(fp8c_load_item){.fate = fate,
                             .error = fate == FP8C_LOAD_DIFFERENT || fate == FP8C_LOAD_UNEXPECTED,
                             .variable = variable,
                             .tensor = t ? t->tensor->name : NULL,
                             .file = t ? t->file->in.path : NULL,
                             .detail = detail});
}

static void different(f8_load *l, const char *variable, const f8_weight *t,
                      const f8_st_tensor *want, const char *why)
{
    char here[128], there[128], detail[300];
    snprintf(detail, sizeof detail, "%s%s %s", f8_st_type_text(t->tensor, there, sizeof there),
             *why ? "" : ", not", *why ? why : f8_st_type_text(want, here, sizeof here));
    item_of(l, FP8C_LOAD_DIFFERENT, variable, t, detail);
    add_wrong(l, t->tensor->name, "is ", detail);
}

/* ---- where the files have it ---- */

static f8_weight *find(const f8_load *l, const char *prefix, const char *name)
{
    char whole[NAME_ROOM];
    return snprintf(whole, sizeof whole, "%s%s", prefix, name) < (int)sizeof whole
               ? f8_weights_find(l->weights, whole)
               : NULL;
}

f8_weight *f8_load_find_state(const f8_load *l, const char *name)
{
    f8_weight *t = find(l, f8_checkpoint_prefix, name);
    return t || l->exact ? t : find(l, l->prefix, name);
}

static bool is_narrow(f8_st_dtype t)
{
    return t == F8_ST_BF16 || t == F8_ST_F16;
}

/* Whether every value of one dtype is a value of the other. */
static bool widens(f8_st_dtype from, f8_st_dtype to)
{
    return from == to || (to == F8_ST_F32 && is_narrow(from));
}

bool f8_load_trains(const f8_load *l)
{
    return !l->exact && l->states != F8_LOAD_EVAL_STATES;
}

/* Whether the files have a variable, codes or scales, to the bit. */
static bool has_same(const f8_load *l, const fp8c_variable *v)
{
    const f8_weight *t = find(l, l->prefix, v->name);
    const f8_st_tensor want = f8_checkpoint_tensor(v);
    return t && widens(t->tensor->dtype, want.dtype) &&
           f8_checkpoint_same_shape(t->tensor, &want, 0);
}

/* A file of others has values, and no scales. In a program that trains, codes with scales of
 * another kind count for their values, too. */
static bool has_values(const f8_load *l, const fp8c_stored *s)
{
    fp8c_variable codes, scales;
    fp8c_program_variable(l->program, s->variable, &codes);
    fp8c_program_variable(l->program, s->scale_variable, &scales);
    const f8_weight *t = find(l, l->prefix, codes.name);
    if (!t)
        return false;
    if (f8_load_trains(l) && !(has_same(l, &codes) && has_same(l, &scales)) &&
        f8_dequantize_scales(l->weights, t))
        return true;
    return widens(t->tensor->dtype, F8_ST_F32) && !find(l, l->prefix, scales.name);
}

bool f8_load_quantizes(const f8_load *l, int i, fp8c_stored *to)
{
    for (int k = 0; !l->exact && fp8c_program_stored(l->program, k, to) == FP8C_OK; k++)
        if (to->variable == i || to->scale_variable == i)
            return l->quantize || has_values(l, to);
    return false;
}

const f8_weight *f8_load_kept(const f8_load *l, const char *element, int64_t *index)
{
    const f8_weight *t = find(l, f8_checkpoint_prefix, "fp8.scale");
    *index = f8_checkpoint_element(&l->names, "fp8.scale", element);
    return t && t->tensor->dtype == F8_ST_F32 && t->tensor->rank == 1 && *index >= 0 &&
                   (size_t)t->tensor->dim[0] == f8_checkpoint_count(&l->names, "fp8.scale")
               ? t
               : NULL;
}

f8_weight *f8_load_dequantizes(const f8_load *l, const f8_weight *t, f8_st_dtype want)
{
    return f8_load_trains(l) && want == F8_ST_F32 ? f8_dequantize_scales(l->weights, t) : NULL;
}

/* ---- parameters ---- */

static bool may_be_missing(const f8_load *l, const char *name)
{
    for (size_t i = 0; i < l->o->n_allow_missing; i++)
        if (f8_pattern_match(l->o->allow_missing[i], name))
            return true;
    return false;
}

/* Whether variable i is codes or scales, which have no initial values of any use. */
static bool is_stored(const f8_load *l, int i)
{
    fp8c_stored s;
    for (int k = 0; fp8c_program_stored(l->program, k, &s) == FP8C_OK; k++)
        if (s.variable == i || s.scale_variable == i)
            return true;
    return false;
}

static void absent(f8_load *l, int i, const fp8c_variable *v, const char *type)
{
    if (!may_be_missing(l, v->name) || is_stored(l, i)) {
        missing(l, v->name, "is missing: ", type);
        return;
    }
    l->kept = true;
    item_of(l, FP8C_LOAD_MISSING, v->name, NULL, type);
}

static void match_parameter(f8_load *l, int i, const fp8c_variable *v)
{
    char type[128], why[160];
    fp8c_stored stored;
    int64_t index;
    f8_st_tensor want = f8_checkpoint_tensor(v);
    f8_weight *t = find(l, l->prefix, v->name);
    if (f8_load_quantizes(l, i, &stored)) {
        if (stored.scale_variable == i) /* is made with the codes */
            return;
        want.dtype = F8_ST_F32;
        if (stored.kept && !f8_load_trains(l) && !f8_load_kept(l, stored.kept, &index) &&
            !l->calibrated) {
            missing(l, stored.kept, "is missing ", "in fp8.scale");
            l->scales_missing = true;
        }
    }
    f8_st_type_text(&want, type, sizeof type);
    if (!t) {
        absent(l, i, v, type);
        return;
    }
    t->used = true;
    f8_weight *scales = f8_load_dequantizes(l, t, want.dtype);
    if (scales)
        scales->used = true;
    snprintf(why, sizeof why, "can't become %s exactly", type);
    if (!f8_checkpoint_same_shape(t->tensor, &want, 0) ||
        (l->exact && t->tensor->dtype != want.dtype))
        different(l, v->name, t, &want, "");
    else if (!scales && !widens(t->tensor->dtype, want.dtype))
        different(l, v->name, t, &want, why);
    else {
        f8_st_type_text(t->tensor, type, sizeof type);
        snprintf(why, sizeof why, "%s%s", type, scales ? ", dequantized" : "");
        item_of(l, FP8C_LOAD_TAKEN, v->name, t, why);
    }
    l->from[i] = t;
}

/* ---- states ---- */

/* Whether a variable's scales come from the program that observes, which must have all of them. */
static bool match_observed(f8_load *l, int i, const fp8c_variable *v)
{
    const char *element;
    const fp8c_program *from = l->o->scales;
    const int variable = from ? fp8c_program_find_variable(from, v->name) : -1;
    if (variable < 0 || l->exact || !fp8c_program_element(l->program, i, 0, 0))
        return false;
    for (int64_t k = 0; (element = fp8c_program_element(l->program, i, k, 0)); k++)
        if (f8_program_match_element(l->program, i, k, from, variable) < 0)
            missing(l, element, "is missing ", "in the program that observes");
    item_of(l, FP8C_LOAD_CALIBRATED, v->name, NULL, "from the program that observes");
    return true;
}

/* The first element of variable i, from element *k on, that the files lack; NULL: they have all. */
static const char *lacked(const f8_load *l, int i, int64_t *k)
{
    const char *element;
    while ((element = fp8c_program_element(l->program, i, *k, 0)) &&
           f8_checkpoint_find(&l->names, l->program, i, *k) >= 0)
        ++*k;
    return element;
}

/* Whether a tensor can be the value of a state, and has all of its elements. */
static bool has_all(const f8_load *l, int i, const f8_weight *t)
{
    int64_t k = 0;
    return t && f8_checkpoint_fits(l->program, i, t->tensor, &l->names) && !lacked(l, i, &k);
}

static void match_state(f8_load *l, int i, const fp8c_variable *v)
{
    char type[128], where[NAME_ROOM + 16];
    const char *element;
    const f8_st_tensor want = f8_checkpoint_tensor(v);
    f8_weight *t = f8_load_find_state(l, v->name);
    f8_st_type_text(&want, type, sizeof type);
    if (l->states == F8_LOAD_FITTING_STATES && !has_all(l, i, t)) {
        l->compute = true; /* prepare may make it from what is loaded */
        item_of(l, FP8C_LOAD_MISSING, v->name, NULL, type);
        return;
    }
    if (!t && l->states == F8_LOAD_ALL_STATES && f8_checkpoint_is_computed(l->program, i)) {
        l->compute = true;
        return;
    }
    if (!t) {
        if (match_observed(l, i, v))
            return;
        l->scales_missing |= fp8c_program_element(l->program, i, 0, 0) != NULL;
        missing(l, v->name, "is missing: ", type);
        return;
    }
    t->used = true;
    if (!f8_checkpoint_fits(l->program, i, t->tensor, &l->names)) {
        different(l, v->name, t, &want, "");
        return;
    }
    l->from[i] = t;
    item_of(l, FP8C_LOAD_TAKEN, v->name, t, type);
    snprintf(where, sizeof where, "in %s", l->exact ? t->tensor->name : v->name);
    for (int64_t k = 0; (element = lacked(l, i, &k)); k++) {
        missing(l, element, "is missing ", where);
        l->scales_missing = true;
    }
}

/* ---- tensors that the program does not need ---- */

/* Whether a tensor is a tied head: it has the same bytes as the embedding. */
static bool is_tied(f8_load *l, const f8_weight *t)
{
    const f8_weight *wte = find(l, l->prefix, "wte.weight");
    if (!f8_text_ends_with(t->name, "lm_head.weight") || !wte ||
        wte->tensor->dtype != t->tensor->dtype ||
        !f8_checkpoint_same_shape(t->tensor, wte->tensor, 0))
        return false;
    const size_t n = (size_t)t->tensor->bytes;
    f8_arena scratch;
    f8_arena_init(&scratch, &l->memory.allocator);
    char *a = F8_NEW_ARRAY(&scratch, char, n + 1), *b = F8_NEW_ARRAY(&scratch, char, n + 1);
    const bool tied = a && b && f8_st_read(t->file, t->tensor, a, NULL) == F8_OK &&
                      f8_st_read(wte->file, wte->tensor, b, NULL) == F8_OK && !memcmp(a, b, n);
    f8_arena_end(&scratch);
    return tied;
}

/* Why a tensor that no variable takes is passed over; NULL: it is not. */
static const char *passed_over(f8_load *l, const f8_weight *t)
{
    const char *mask = f8_weights_mask(t);
    return mask ? mask : is_tied(l, t) ? "the same values as wte.weight" : NULL;
}

static void match_rest(f8_load *l)
{
    char type[128];
    for (size_t i = 0; i < l->weights->n; i++) {
        const f8_weight *t = &l->weights->weight[i];
        const char *why = NULL;
        if (t->used)
            continue;
        if (!strncmp(t->name, f8_checkpoint_prefix, strlen(f8_checkpoint_prefix))) {
            if (l->states == F8_LOAD_FITTING_STATES)
                item_of(l, FP8C_LOAD_IGNORED, NULL, t,
                        f8_st_type_text(t->tensor, type, sizeof type));
            continue;
        }
        if (t->ignored)
            why = f8_arena_printf(&l->memory, "ignore '%s'", t->ignored);
        else if (!l->exact)
            why = passed_over(l, t);
        if (why) {
            item_of(l, FP8C_LOAD_IGNORED, NULL, t, why);
            continue;
        }
        f8_st_type_text(t->tensor, type, sizeof type);
        item_of(l, FP8C_LOAD_UNEXPECTED, NULL, t, type);
        add_wrong(l, t->tensor->name, "is not a variable of the program: ", type);
    }
}

/* ---- the whole ---- */

f8_load_states f8_load_usual_states(fp8c_program *program, const f8_weights *weights)
{
    const bool trains = fp8c_program_function(program, "eval") < 0 ||
                        fp8c_program_function(program, "micro_step") >= 0 ||
                        fp8c_program_function(program, "forward") >= 0;
    if (!trains)
        return F8_LOAD_EVAL_STATES;
    return f8_weights_have_states(weights) ? F8_LOAD_ALL_STATES : F8_LOAD_NO_STATES;
}

bool f8_load_needs_scales(fp8c_program *program, const f8_weights *weights)
{
    fp8c_variable v;
    const f8_load l = {.program = program, .weights = (f8_weights *)weights, .prefix = ""};
    for (int i = 0; fp8c_program_variable(program, i, &v) == FP8C_OK; i++)
        if (!v.is_param && fp8c_program_element(program, i, 0, 0) &&
            f8_checkpoint_is_needed(program, i) && !f8_load_find_state(&l, v.name))
            return true;
    return false;
}

static void find_prefix(f8_load *l)
{
    fp8c_variable v;
    int plain = 0, prefixed = 0;
    l->prefix = "";
    for (int i = 0; !l->exact && fp8c_program_variable(l->program, i, &v) == FP8C_OK; i++) {
        plain += v.is_param && find(l, "", v.name);
        prefixed += v.is_param && find(l, f8_weights_gpt_prefix, v.name);
    }
    if (prefixed > plain)
        l->prefix = f8_weights_gpt_prefix;
}

/* Every pattern of allow_missing must be of a parameter. */
static f8_status check_allowed(f8_load *l)
{
    for (size_t k = 0; k < l->o->n_allow_missing; k++) {
        fp8c_variable v;
        bool any = false;
        for (int i = 0; fp8c_program_variable(l->program, i, &v) == FP8C_OK; i++)
            any |= v.is_param && f8_pattern_match(l->o->allow_missing[k], v.name);
        if (!any)
            return f8_fail(l->diag, F8_ERR_INPUT, F8_NOWHERE,
                           "allow_missing '%s': the program has no such parameter",
                           l->o->allow_missing[k]);
    }
    return F8_OK;
}

static f8_status read_metadata(f8_load *l)
{
    for (size_t i = 0; i < l->weights->n_files; i++)
        F8_TRY(f8_checkpoint_read_metadata(&l->weights->file[i], &l->names, l->diag));
    return F8_OK;
}

/* What keeps its value must have one. */
static f8_status check_initialized(const f8_load *l)
{
    fp8c_variable v;
    if (f8_variables_valued(l->program))
        return F8_OK;
    for (int i = 0;
         l->states == F8_LOAD_NO_STATES && fp8c_program_variable(l->program, i, &v) == FP8C_OK; i++)
        if (!v.is_param && !f8_checkpoint_is_computed(l->program, i))
            return f8_fail(
                l->diag, F8_ERR_INPUT, F8_NOWHERE,
                "the state '%s' has no value, and only parameters are to be loaded: call "
                "fp8c_program_initialize first",
                v.name);
    return l->kept ? f8_fail(l->diag, F8_ERR_INPUT, F8_NOWHERE,
                             "parameters that may be missing have no values to keep: call "
                             "fp8c_program_initialize first")
                   : F8_OK;
}

static f8_status fail(f8_load *l)
{
    char more[40] = "";
    if (l->n_wrong > l->n_shown)
        snprintf(more, sizeof more, "; and %d more", l->n_wrong - l->n_shown);
    return f8_file_fail(l->diag, F8_ERR_INPUT, l->weights->shown,
                        "it does not fit the program: %s%s%s", l->text, more,
                        l->scales_missing && !l->exact
                            ? ". Scales of `delayed` come from a training under it, or from a "
                              "program with `observe`"
                            : "");
}

f8_status f8_load_match(f8_load *l)
{
    fp8c_variable v;
    f8_arena_init(&l->memory, &l->program->ctx->allocator);
    l->n = (int)l->program->now->plan.n_vars;
    F8_TRY(check_allowed(l));
    F8_TRY(read_metadata(l));
    l->from = F8_NEW_ARRAY(&l->memory, const f8_weight *, (size_t)l->n + 1);
    F8_TRY(f8_arena_status(&l->memory, l->diag));
    for (size_t i = 0; i < l->weights->n; i++)
        l->weights->weight[i].used = false;
    find_prefix(l);
    l->calibrated = l->o->scales && f8_load_needs_scales(l->program, l->weights);
    for (int i = 0; fp8c_program_variable(l->program, i, &v) == FP8C_OK; i++)
        if (v.is_param)
            match_parameter(l, i, &v);
        else if (l->states == F8_LOAD_ALL_STATES || l->states == F8_LOAD_FITTING_STATES ||
                 (l->states == F8_LOAD_EVAL_STATES && f8_checkpoint_is_needed(l->program, i)))
            match_state(l, i, &v);
    match_rest(l);
    F8_TRY(f8_arena_status(&l->memory, l->diag));
    return l->n_wrong ? fail(l) : check_initialized(l);
}

void f8_load_end(f8_load *l)
{
    f8_checkpoint_release_names(&l->names);
    if (l->memory.allocator.alloc)
        f8_arena_end(&l->memory);
    l->memory = (f8_arena){0};
}
