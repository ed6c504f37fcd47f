/* The options of a training as JSON, and those of its compile: see options.h. */
#include "frontend/train/options.h"

#include <string.h>

const char f8_default_recipe[] = "bf16";

const char *const f8_option_expected[F8_KINDS] = {
#define KIND(kind, expected) expected,
    F8_OPTION_KINDS(KIND)
#undef KIND
};

const f8_train_option f8_train_option_rows[F8_TRAIN_OPTIONS] = {
#define OPTION(field, text, kind, sets, resume, between, folder, api)                              \
    {.name = text, .goes_on = resume, .ranks = between},
#include "frontend/train/options.def"
#undef OPTION
};

bool f8_train_patterns_add(f8_option_PATTERNS *to, const char *text)
{
    const size_t before = strlen(to->text), n = strlen(text), comma = before > 0;
    if (!n || before + comma + n >= sizeof to->text)
        return false;
    memcpy(to->text + before, ",", comma);
    memcpy(to->text + before + comma, text, n + 1);
    return true;
}

/* ---- a value of each kind as JSON: null where there is none ---- */

static json_t *from_TEXT(const char *const *v)
{
    return *v ? json_string(*v) : json_null();
}

static json_t *from_list(const char *const *text, size_t n)
{
    json_t *list = n ? json_array() : json_null();
    for (size_t i = 0; i < n && list; i++)
        if (json_array_append_new(list, json_string(text[i]))) {
            json_decref(list);
            list = NULL;
        }
    return list;
}

static json_t *from_TEXTS(const f8_option_TEXTS *v)
{
    return from_list(v->text, v->n);
}

static json_t *from_RECIPES(const f8_option_RECIPES *v)
{
    return from_list(v->text, v->n);
}

static json_t *from_PATTERNS(const f8_option_PATTERNS *v)
{
    return v->text[0] ? json_string(v->text) : json_null();
}

static json_t *from_COUNT(const int64_t *v)
{
    return *v ? json_integer(*v) : json_null();
}

static json_t *from_THREADS(const int32_t *v)
{
    return *v ? json_integer(*v) : json_null();
}

static json_t *from_STAGE(const int32_t *v)
{
    return *v ? json_integer(*v < 0 ? 0 : *v) : json_null();
}

static json_t *from_ORDINAL(const int32_t *v)
{
    return json_integer(*v);
}

static json_t *from_SEED(const uint64_t *v)
{
    return json_integer((json_int_t)*v);
}

static json_t *from_NUMBER(const double *v)
{
    return *v > 0 ? json_real(*v) : json_null();
}

static json_t *from_FLAG(const bool *v)
{
    return json_boolean(*v);
}

/* Bytes are an integer, a share is a real number. */
static json_t *from_MEMORY(const f8_option_MEMORY *v)
{
    return v->bytes ? json_integer(v->bytes) : v->share > 0 ? json_real(v->share) : json_null();
}

static json_t *from_DIM(const f8_option_DIM *v)
{
    json_t *dims = v->n ? json_object() : json_null();
    for (size_t i = 0; i < v->n; i++)
        json_object_set_new(dims, v->dim[i].name, json_integer(v->dim[i].value));
    return dims;
}

/* ---- and back ---- */

static bool to_TEXT(const char **to, const json_t *v)
{
    *to = json_string_value(v);
    return *to != NULL;
}

static bool to_list(const char **text, size_t *n, size_t most, const json_t *v)
{
    bool ok = json_is_array(v) && json_array_size(v) <= most;
    for (*n = 0; ok && *n < json_array_size(v); ++*n) {
        text[*n] = json_string_value(json_array_get(v, *n));
        ok = text[*n] != NULL;
    }
    return ok;
}

static bool to_TEXTS(f8_option_TEXTS *to, const json_t *v)
{
    return to_list(to->text, &to->n, F8_MOST_TEXTS, v);
}

static bool to_RECIPES(f8_option_RECIPES *to, const json_t *v)
{
    return to_list(to->text, &to->n, F8_MOST_RECIPES, v);
}

static bool to_PATTERNS(f8_option_PATTERNS *to, const json_t *v)
{
    to->text[0] = 0;
    return json_is_string(v) && f8_train_patterns_add(to, json_string_value(v));
}

static bool to_COUNT(int64_t *to, const json_t *v)
{
    *to = json_integer_value(v);
    return *to >= 1;
}

static bool to_THREADS(int32_t *to, const json_t *v)
{
    *to = (int32_t)json_integer_value(v);
    return json_integer_value(v) >= 1 && json_integer_value(v) <= F8_MOST_THREADS;
}

static bool to_ORDINAL(int32_t *to, const json_t *v)
{
    *to = (int32_t)json_integer_value(v);
    return json_is_integer(v) && json_integer_value(v) >= 0 && json_integer_value(v) <= INT32_MAX;
}

static bool to_PERIOD(int32_t *to, const json_t *v)
{
    const bool ok = to_ORDINAL(to, v);
    *to = *to ? *to : -1;
    return ok;
}

static bool to_STAGE(int32_t *to, const json_t *v)
{
    return to_PERIOD(to, v) && *to <= 3;
}

static bool to_SEED(uint64_t *to, const json_t *v)
{
    *to = (uint64_t)json_integer_value(v);
    return json_is_integer(v) && json_integer_value(v) >= 0;
}

static bool to_NUMBER(double *to, const json_t *v)
{
    *to = json_real_value(v);
    return *to > 0;
}

static bool to_FLAG(bool *to, const json_t *v)
{
    *to = json_is_true(v);
    return json_is_boolean(v);
}

static bool to_MEMORY(f8_option_MEMORY *to, const json_t *v)
{
    *to = (f8_option_MEMORY){json_integer_value(v), json_real_value(v)};
    return to->bytes > 0 || (to->share > 0 && to->share < 1);
}

static bool to_DIM(f8_option_DIM *to, const json_t *v)
{
    const char *name;
    json_t *value;
    to->n = 0;
    if (!json_is_object(v) || json_object_size(v) > F8_MOST_DIMS)
        return false;
    json_object_foreach ((json_t *)v, name, value)
        to->dim[to->n++] = (fp8c_dim){name, json_integer_value(value)};
    return true;
}

/* Kinds that JSON has alike. */
#define from_TOKENS from_TEXT
#define to_TOKENS to_TEXT
#define from_TENSORS from_TEXTS
#define to_TENSORS to_TEXTS
#define from_RULE from_TEXTS
#define to_RULE to_TEXTS
#define from_PERIOD from_STAGE
#define from_ROWS from_STAGE
#define to_ROWS to_PERIOD
#define from_LEVEL from_THREADS
#define to_LEVEL to_THREADS

/* ---- by the table ---- */

json_t *f8_train_option_json(const f8_train_options *o, int at)
{
    switch (at) {
#define OPTION(field, name, kind, sets, goes_on, ranks, folder, api)                               \
    case F8_TRAIN_AT_##field: return from_##kind(&o->field);
#include "frontend/train/options.def"
#undef OPTION
    default: return NULL;
    }
}

bool f8_train_option_set(f8_train_options *o, int at, const json_t *value)
{
    switch (at) {
#define OPTION(field, name, kind, sets, goes_on, ranks, folder, api)                               \
    case F8_TRAIN_AT_##field: return to_##kind(&o->field, value);
#include "frontend/train/options.def"
#undef OPTION
    default: return false;
    }
}

json_t *f8_train_options_json(const f8_train_options *o, bool only_given)
{
    json_t *all = json_object();
    for (int at = 0; at < F8_TRAIN_OPTIONS && all; at++)
        if ((!only_given || o->given[at]) &&
            json_object_set_new(all, f8_train_option_rows[at].name, f8_train_option_json(o, at))) {
            json_decref(all);
            all = NULL;
        }
    return all;
}

fp8c_compile_options f8_train_compile_options(const f8_train_options *o, const char *recipe,
                                              bool needs_steps)
{
    fp8c_compile_options options = {.struct_size = sizeof options, .recipe = recipe};
#define SETS(field) options.field = o->field;
#define SETS_PATTERNS(field) options.field = o->field.text[0] ? o->field.text : NULL;
#define SETS_MEMORY(field)                                                                         \
    options.memory_bytes = o->field.bytes;                                                         \
    options.memory_share = o->field.share;
#define SETS_STEPS(field)                                                                          \
    options.optimizer_steps = o->field ? o->field : needs_steps ? F8_DEFAULT_STEPS : 0;
#define SETS_NOTHING(field)
#define OPTION(field, name, kind, sets, goes_on, ranks, folder, api) sets(field)
#include "frontend/train/options.def"
#undef OPTION
    return options;
}
