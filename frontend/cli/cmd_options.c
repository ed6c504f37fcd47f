/* Options as JSON: see cmd_options.h. */
#include "frontend/cli/cmd_options.h"

#include <string.h>

/* ---- a value of each kind as JSON: null where there is none ---- */

static json_t *from_TEXT(const cli_TEXT *v)
{
    return *v ? json_string(*v) : json_null();
}

static json_t *from_TOKENS(const cli_TOKENS *v)
{
    return from_TEXT(v);
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

static json_t *from_TEXTS(const cli_TEXTS *v)
{
    return from_list(v->text, v->n);
}

static json_t *from_TENSORS(const cli_TENSORS *v)
{
    return from_TEXTS(v);
}

static json_t *from_RECIPES(const cli_RECIPES *v)
{
    return from_list(v->text, v->n);
}

static json_t *from_COUNT(const cli_COUNT *v)
{
    return *v ? json_integer(*v) : json_null();
}

static json_t *from_THREADS(const cli_THREADS *v)
{
    return *v ? json_integer(*v) : json_null();
}

static json_t *from_RANKS(const cli_RANKS *v)
{
    return from_THREADS(v);
}

static json_t *from_STAGE(const cli_STAGE *v)
{
    return *v ? json_integer(*v < 0 ? 0 : *v) : json_null();
}

static json_t *from_PERIOD(const cli_PERIOD *v)
{
    return from_STAGE(v);
}

static json_t *from_LEVEL(const cli_LEVEL *v)
{
    return from_THREADS(v);
}

static json_t *from_ORDINAL(const cli_ORDINAL *v)
{
    return json_integer(*v);
}

static json_t *from_SEED(const cli_SEED *v)
{
    return json_integer((json_int_t)*v);
}

static json_t *from_NUMBER(const cli_NUMBER *v)
{
    return *v > 0 ? json_real(*v) : json_null();
}

static json_t *from_FLAG(const cli_FLAG *v)
{
    return json_boolean(*v);
}

/* Bytes are an integer, a share is a real number. */
static json_t *from_MEMORY(const cli_MEMORY *v)
{
    return v->bytes ? json_integer(v->bytes) : v->share > 0 ? json_real(v->share) : json_null();
}

static json_t *from_SHARES(const cli_SHARES *v)
{
    json_t *list = v->n ? json_array() : json_null();
    for (size_t i = 0; i < v->n; i++)
        json_array_append_new(list, json_real(v->share[i]));
    return list;
}

static json_t *from_DIM(const cli_DIM *v)
{
    json_t *dims = v->n ? json_object() : json_null();
    for (size_t i = 0; i < v->n; i++)
        json_object_set_new(dims, v->dim[i].name, json_integer(v->dim[i].value));
    return dims;
}

static json_t *from_RULE(const cli_RULE *v)
{
    return from_list(v->text, v->n);
}

/* ---- and back ---- */

static bool to_TEXT(cli_TEXT *to, const json_t *v)
{
    *to = json_string_value(v);
    return *to != NULL;
}

static bool to_TOKENS(cli_TOKENS *to, const json_t *v)
{
    return to_TEXT(to, v);
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

static bool to_TEXTS(cli_TEXTS *to, const json_t *v)
{
    return to_list(to->text, &to->n, CLI_MAX_TEXTS, v);
}

static bool to_TENSORS(cli_TENSORS *to, const json_t *v)
{
    return to_TEXTS(to, v);
}

static bool to_RECIPES(cli_RECIPES *to, const json_t *v)
{
    return to_list(to->text, &to->n, CLI_MAX_RECIPES, v);
}

static bool to_COUNT(cli_COUNT *to, const json_t *v)
{
    *to = json_integer_value(v);
    return *to >= 1;
}

static bool to_up_to(int32_t *to, const json_t *v, json_int_t most)
{
    *to = (int32_t)json_integer_value(v);
    return json_integer_value(v) >= 1 && json_integer_value(v) <= most;
}

static bool to_THREADS(cli_THREADS *to, const json_t *v)
{
    return to_up_to(to, v, 256);
}

static bool to_RANKS(cli_RANKS *to, const json_t *v)
{
    return to_up_to(to, v, F8_MAX_RANKS);
}

static bool to_STAGE(cli_STAGE *to, const json_t *v)
{
    const json_int_t stage = json_integer_value(v);
    *to = stage ? (int32_t)stage : -1;
    return json_is_integer(v) && stage >= 0 && stage <= 3;
}

static bool to_PERIOD(cli_PERIOD *to, const json_t *v)
{
    const json_int_t n = json_integer_value(v);
    *to = n ? (int32_t)n : -1;
    return json_is_integer(v) && n >= 0 && n <= INT32_MAX;
}

static bool to_LEVEL(cli_LEVEL *to, const json_t *v)
{
    return to_THREADS(to, v);
}

static bool to_ORDINAL(cli_ORDINAL *to, const json_t *v)
{
    *to = (cli_ORDINAL)json_integer_value(v);
    return json_is_integer(v) && json_integer_value(v) >= 0 && json_integer_value(v) <= INT32_MAX;
}

static bool to_SEED(cli_SEED *to, const json_t *v)
{
    *to = (cli_SEED)json_integer_value(v);
    return json_is_integer(v) && json_integer_value(v) >= 0;
}

static bool to_NUMBER(cli_NUMBER *to, const json_t *v)
{
    *to = json_real_value(v);
    return *to > 0;
}

static bool to_FLAG(cli_FLAG *to, const json_t *v)
{
    *to = json_is_true(v);
    return json_is_boolean(v);
}

static bool to_MEMORY(cli_MEMORY *to, const json_t *v)
{
    *to = (cli_MEMORY){json_integer_value(v), json_real_value(v)};
    return to->bytes > 0 || (to->share > 0 && to->share < 1);
}

static bool to_SHARES(cli_SHARES *to, const json_t *v)
{
    const bool ok = json_is_array(v) && json_array_size(v) <= CLI_MAX_SHARES;
    for (to->n = 0; ok && to->n < json_array_size(v); to->n++)
        to->share[to->n] = json_real_value(json_array_get(v, to->n));
    return ok;
}

static bool to_DIM(cli_DIM *to, const json_t *v)
{
    const char *name;
    json_t *value;
    to->n = 0;
    if (!json_is_object(v) || json_object_size(v) > CLI_MAX_DIMS)
        return false;
    json_object_foreach ((json_t *)v, name, value)
        to->dim[to->n++] = (fp8c_dim){name, json_integer_value(value)};
    return true;
}

static bool to_RULE(cli_RULE *to, const json_t *v)
{
    return to_list(to->text, &to->n, CLI_MAX_RULES, v);
}

/* ---- by the table ---- */

json_t *cli_option_json(const cli *c, int at)
{
    switch (at) {
#define OPTION(field, name, argument, kind, on, sets, goes_on, ranks, unused, help)                \
    case CLI_AT_##field: return from_##kind(&c->field);
#define OTHER_HELP(field, name, argument, on, help)
#include "frontend/cli/options.def"
#undef OPTION
#undef OTHER_HELP
    default: return NULL;
    }
}

bool cli_option_set(cli *c, int at, const json_t *value)
{
    switch (at) {
#define OPTION(field, name, argument, kind, on, sets, goes_on, ranks, unused, help)                \
    case CLI_AT_##field: return to_##kind(&c->field, value);
#define OTHER_HELP(field, name, argument, on, help)
#include "frontend/cli/options.def"
#undef OPTION
#undef OTHER_HELP
    default: return false;
    }
}

const char *cli_option_name(int at)
{
    return cli_options[at].name; /* the table's options are the first ones, in its order */
}

json_t *cli_options_json(const cli *c, int bit, bool only_given)
{
    json_t *all = json_object();
    for (int at = 0; at < CLI_N_OPTIONS && all; at++)
        if (cli_options[at].on & bit && (!only_given || c->given[at]) &&
            json_object_set_new(all, cli_option_name(at), cli_option_json(c, at))) {
            json_decref(all);
            all = NULL;
        }
    return all;
}
