/* Recipes as text, and the rules that name them: see recipe.h. */
#include "passes/recipe.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const f8_operand_name[F8_OPERANDS] = {"x", "w", "dy"};
const char *const f8_role_name[F8_ROLES] = {"fprop", "dgrad", "wgrad"};

/* ---- the named recipes ---- */

/* Histories of 16: shorter than Transformer Engine's 1024 they adapt faster and cost less. E4M3 forward, E5M2
 * gradients: arXiv 2209.05433 section 3; E4M3 for all where scales are fine: arXiv 2412.19437 section 3.3. */
static const f8_recipe recipes[] = {
    {.name = "f32", .activation = F8_F32, .forward = F8_F32, .gradient = F8_F32},
    {.name = "bf16", .activation = F8_BF16, .forward = F8_BF16, .gradient = F8_BF16},
    {.name = "delayed", .activation = F8_BF16, .scaling = F8_SCALING_DELAYED, .forward = F8_E4M3,
     .gradient = F8_E5M2, .history = 16, .saturate = true},
    {.name = "current", .activation = F8_BF16, .scaling = F8_SCALING_CURRENT, .forward = F8_E4M3,
     .gradient = F8_E5M2, .saturate = true},
    {.name = "rowwise", .activation = F8_BF16, .scaling = F8_SCALING_ROWWISE, .forward = F8_E4M3,
     .gradient = F8_E4M3, .saturate = true},
    {.name = "rowwise_gw_hp", .activation = F8_BF16, .scaling = F8_SCALING_ROWWISE, .forward = F8_E4M3,
     .gradient = F8_E4M3, .saturate = true, .wgrad_high = true},
    {.name = "block", .activation = F8_BF16, .scaling = F8_SCALING_BLOCK, .forward = F8_E4M3,
     .gradient = F8_E4M3, .saturate = true},
    {.name = "mxfp8", .activation = F8_BF16, .scaling = F8_SCALING_MX, .forward = F8_E4M3,
     .gradient = F8_E4M3, .saturate = true},
    {.name = "fake", .activation = F8_BF16, .scaling = F8_SCALING_CURRENT, .forward = F8_E4M3,
     .gradient = F8_E5M2, .saturate = true, .fake = true},
    {.name = "auto", .activation = F8_BF16, .scaling = F8_SCALING_AUTO, .forward = F8_BF16,
     .gradient = F8_BF16},
};

enum { N_RECIPES = sizeof recipes / sizeof recipes[0] };

static const f8_recipe *named(const char *name, size_t length)
{
    for (size_t i = 0; i < N_RECIPES; i++)
        if (strlen(recipes[i].name) == length && !memcmp(recipes[i].name, name, length))
            return &recipes[i];
    return NULL;
}

const f8_recipe *f8_recipe_by_name(const char *name)
{
    return named(name, strlen(name));
}

const char *f8_recipe_name(size_t index)
{
    return index < N_RECIPES ? recipes[index].name : NULL;
}

const char *f8_recipe_names(void)
{
    return "f32, bf16, delayed, current, rowwise, rowwise_gw_hp, block, mxfp8, fake, auto";
}

/* ---- options ---- */

/* Which scalings an option means something for. */
#define ON(scaling) (1u << F8_SCALING_##scaling)
enum {
    ON_DELAYED = ON(DELAYED),
    ON_SCALED = ON(DELAYED) | ON(CURRENT) | ON(ROWWISE) | ON(BLOCK),
    ON_FP8 = ON_SCALED | ON(MX),
};

typedef enum option_kind { OPTION_INT, OPTION_CHOICE } option_kind;

/* One row an option: `get` and `set` see it as a number, for CHOICE an index into `words`. */
typedef struct option {
    const char *key;
    option_kind kind;
    unsigned scalings;
    int64_t least, most;
    const char *words[3];
    int64_t (*get)(const f8_recipe *r);
    void (*set)(f8_recipe *r, int64_t v);
} option;

static int64_t get_format(const f8_recipe *r)
{
    return r->gradient == F8_E5M2;
}
static void set_format(f8_recipe *r, int64_t v)
{
    r->gradient = v ? F8_E5M2 : F8_E4M3;
}
static int64_t get_history(const f8_recipe *r)
{
    return r->history;
}
static void set_history(f8_recipe *r, int64_t v)
{
    r->history = v;
}
static int64_t get_amax(const f8_recipe *r)
{
    return r->most_recent;
}
static void set_amax(f8_recipe *r, int64_t v)
{
    r->most_recent = v;
}
static int64_t get_margin(const f8_recipe *r)
{
    return r->margin;
}
static void set_margin(f8_recipe *r, int64_t v)
{
    r->margin = v;
}
static int64_t get_pow2(const f8_recipe *r)
{
    return r->pow2;
}
static void set_pow2(f8_recipe *r, int64_t v)
{
    r->pow2 = v;
}
static int64_t get_fake(const f8_recipe *r)
{
    return r->fake;
}
static void set_fake(f8_recipe *r, int64_t v)
{
    r->fake = v;
}

static const option options[] = {
    {"format", OPTION_CHOICE, ON_FP8, 0, 1, {"e4m3", "hybrid"}, get_format, set_format},
    {"history", OPTION_INT, ON_DELAYED, 1, F8_MAX_HISTORY, {NULL}, get_history, set_history},
    {"amax", OPTION_CHOICE, ON_DELAYED, 0, 1, {"max", "most_recent"}, get_amax, set_amax},
    {"margin", OPTION_INT, ON_SCALED, 0, 64, {NULL}, get_margin, set_margin},
    {"pow2", OPTION_CHOICE, ON_SCALED, 0, 1, {"false", "true"}, get_pow2, set_pow2},
    {"fake", OPTION_CHOICE, ON_FP8, 0, 1, {"false", "true"}, get_fake, set_fake},
};

enum { N_OPTIONS = sizeof options / sizeof options[0] };

/* ---- reading ---- */

/* Words of a recipe or rule; the first failure is kept. */
typedef struct reader {
    const char *at;
    f8_loc loc;
    f8_diag *diag;
} reader;

static void skip_space(reader *r)
{
    while (isspace((unsigned char)*r->at))
        r->at++;
}

static bool take(reader *r, char c)
{
    skip_space(r);
    if (*r->at != c)
        return false;
    r->at++;
    return true;
}

/* Letters, digits and _; its length, 0 if none stands there. */
static size_t take_word(reader *r, const char **word)
{
    skip_space(r);
    *word = r->at;
    while (isalnum((unsigned char)*r->at) || *r->at == '_')
        r->at++;
    return (size_t)(r->at - *word);
}

static bool is_word(const char *word, size_t length, const char *text)
{
    return text && strlen(text) == length && !memcmp(word, text, length);
}

static f8_status need(reader *r, char c, const char *where)
{
    if (take(r, c))
        return F8_OK;
    if (!*r->at)
        return f8_fail(r->diag, F8_ERR_INPUT, r->loc, "%s: '%c' is missing at the end", where, c);
    return f8_fail(r->diag, F8_ERR_INPUT, r->loc, "%s: '%c' expected, not '%.20s'", where, c, r->at);
}

static bool read_value(const option *o, const char *word, size_t length, int64_t *v)
{
    *v = -1;
    for (int64_t i = o->least; o->kind == OPTION_CHOICE && i <= o->most; i++)
        if (is_word(word, length, o->words[i]))
            *v = i;
    for (size_t i = 0; o->kind == OPTION_INT && i < length && length < 10; i++) {
        if (!isdigit((unsigned char)word[i]))
            return false;
        *v = (*v < 0 ? 0 : *v * 10) + (word[i] - '0');
    }
    return *v >= o->least && *v <= o->most;
}

static f8_status bad_value(reader *r, const option *o, const char *word, size_t length)
{
    if (o->kind == OPTION_INT)
        return f8_fail(r->diag, F8_ERR_INPUT, r->loc, "%s = %.*s: a number from %lld to %lld is expected",
                       o->key, (int)length, word, (long long)o->least, (long long)o->most);
    return f8_fail(r->diag, F8_ERR_INPUT, r->loc, "%s = %.*s: it is %s or %s", o->key, (int)length, word,
                   o->words[0], o->words[1]);
}

/* key = value */
static f8_status read_option(reader *r, f8_recipe *out, unsigned *seen)
{
    const char *key, *word;
    int64_t value;
    const size_t n_key = take_word(r, &key);
    for (size_t i = 0; i < N_OPTIONS; i++) {
        const option *o = &options[i];
        if (!is_word(key, n_key, o->key))
            continue;
        if (!(o->scalings & 1u << out->scaling))
            return f8_fail(r->diag, F8_ERR_INPUT, r->loc, "recipe '%s' has no %s", out->name, o->key);
        if (*seen & 1u << i)
            return f8_fail(r->diag, F8_ERR_INPUT, r->loc, "%s is given twice", o->key);
        *seen |= 1u << i;
        F8_TRY(need(r, '=', o->key));
        const size_t n_word = take_word(r, &word);
        if (!read_value(o, word, n_word, &value))
            return bad_value(r, o, word, n_word);
        o->set(out, value);
        return F8_OK;
    }
    return f8_fail(r->diag, F8_ERR_INPUT, r->loc,
                   "recipe '%s' has no '%.*s'; there are: format, history, amax, margin, pow2, fake", out->name,
                   (int)(n_key < 40 ? n_key : 40), key);
}

static f8_status read_recipe(reader *r, f8_recipe *out)
{
    const char *name;
    unsigned seen = 0;
    const size_t n = take_word(r, &name);
    const f8_recipe *found = named(name, n);
    if (!found)
        return f8_fail(r->diag, F8_ERR_INPUT, r->loc, "no recipe '%.*s': there are %s",
                       (int)(n < 60 ? n : 60), name, f8_recipe_names());
    *out = *found;
    if (!take(r, '{') || take(r, '}'))
        return F8_OK;
    do
        F8_TRY(read_option(r, out, &seen));
    while (take(r, ','));
    return need(r, '}', out->name);
}

static f8_status need_end(reader *r)
{
    skip_space(r);
    if (!*r->at)
        return F8_OK;
    return f8_fail(r->diag, F8_ERR_INPUT, r->loc, "a recipe ends before '%.40s'", r->at);
}

f8_status f8_recipe_parse(const char *text, f8_loc loc, f8_recipe *out, f8_diag *diag)
{
    reader r = {text, loc, diag};
    F8_TRY(read_recipe(&r, out));
    return need_end(&r);
}

/* ---- printing ---- */

const char *f8_recipe_print(const f8_recipe *r, char *buf, size_t size)
{
    const f8_recipe *plain = f8_recipe_by_name(r->name);
    int at = snprintf(buf, size, "%s", r->name), n = 0;
    for (size_t i = 0; plain && i < N_OPTIONS && at > 0 && (size_t)at < size; i++) {
        const option *o = &options[i];
        const int64_t v = o->get(r);
        if (!(o->scalings & 1u << r->scaling) || v == o->get(plain))
            continue;
        at += snprintf(buf + at, size - (size_t)at, "%s%s = ", n++ ? ", " : " {", o->key);
        if ((size_t)at >= size)
            break;
        at += o->kind == OPTION_INT ? snprintf(buf + at, size - (size_t)at, "%lld", (long long)v)
                                    : snprintf(buf + at, size - (size_t)at, "%s", o->words[v]);
    }
    if (n && at > 0 && (size_t)at < size)
        snprintf(buf + at, size - (size_t)at, "}");
    return buf;
}

bool f8_recipe_equal(const f8_recipe *a, const f8_recipe *b)
{
    return a->activation == b->activation && a->scaling == b->scaling && a->forward == b->forward &&
           a->gradient == b->gradient && a->history == b->history && a->margin == b->margin &&
           a->saturate == b->saturate && a->most_recent == b->most_recent && a->pow2 == b->pow2 &&
           a->fake == b->fake;
}

/* ---- what a scale covers ---- */

enum { BLOCK = 128, MX_BLOCK = 32 }; /* arXiv 2412.19437 section 3.3.1; OCP MX 1.0 section 5.2 */

f8_granularity f8_recipe_granularity(const f8_recipe *r, f8_operand_kind operand, bool k_is_rows)
{
    f8_granularity g = f8_per_tensor; /* k along columns */
    if (r->scaling == F8_SCALING_ROWWISE)
        g = (f8_granularity){1, 0};
    else if (r->scaling == F8_SCALING_BLOCK)
        g = (f8_granularity){operand == F8_OPERAND_W ? BLOCK : 1, BLOCK};
    else if (r->scaling == F8_SCALING_MX)
        g = (f8_granularity){1, MX_BLOCK};
    return k_is_rows ? f8_granularity_transposed(g) : g;
}

/* ---- roles ---- */

f8_role f8_role_by_name(const char *name)
{
    int i = 0;
    while (i < F8_ROLES && strcmp(f8_role_name[i], name))
        i++;
    return (f8_role)i;
}

void f8_role_operands(f8_role role, f8_operand_kind operand[2])
{
    static const f8_operand_kind of[F8_ROLES][2] = {[F8_FPROP] = {F8_OPERAND_X, F8_OPERAND_W},
                                               [F8_DGRAD] = {F8_OPERAND_DY, F8_OPERAND_W},
                                               [F8_WGRAD] = {F8_OPERAND_X, F8_OPERAND_DY}};
    operand[0] = of[role][0];
    operand[1] = of[role][1];
}

/* ---- rules ---- */

f8_status f8_rule_check(const f8_recipe_rule *rule, f8_diag *diag)
{
    f8_operand_kind of[2];
    if (!rule->role || !rule->operand)
        return F8_OK;
    f8_role_operands(f8_role_by_name(rule->role), of);
    if (!strcmp(rule->operand, f8_operand_name[of[0]]) || !strcmp(rule->operand, f8_operand_name[of[1]]))
        return F8_OK;
    return f8_fail(diag, F8_ERR_INPUT, rule->loc, "%s has no operand %s: it is of %s and %s", rule->role,
                   rule->operand, f8_operand_name[of[0]], f8_operand_name[of[1]]);
}

static f8_status read_pattern(reader *r, f8_module *m, f8_recipe_rule *out)
{
    F8_TRY(need(r, '"', "a rule begins with a pattern in quotes, or with layers"));
    const char *end = strchr(r->at, '"');
    if (!end)
        return f8_fail(r->diag, F8_ERR_INPUT, r->loc, "the pattern \"%.40s is not closed", r->at);
    out->pattern = f8_intern_n(m, r->at, (size_t)(end - r->at));
    r->at = end + 1;
    return out->pattern ? F8_OK : f8_arena_status(m->arena, r->diag);
}

/* [fprop|dgrad|wgrad] [x|w|dy] */
static f8_status read_where(reader *r, f8_recipe_rule *out)
{
    const char *word;
    for (size_t n; (n = take_word(r, &word)) > 0;) {
        bool known = false;
        for (int i = 0; i < F8_ROLES && !out->role && !out->operand; i++)
            if (is_word(word, n, f8_role_name[i])) {
                out->role = f8_role_name[i];
                known = true;
            }
        for (int i = 0; i < F8_OPERANDS && !out->operand && !known; i++)
            if (is_word(word, n, f8_operand_name[i])) {
                out->operand = f8_operand_name[i];
                known = true;
            }
        if (!known)
            return f8_fail(r->diag, F8_ERR_INPUT, r->loc,
                           "'%.*s': a role (fprop, dgrad, wgrad), an operand (x, w, dy) or '=' is expected",
                           (int)(n < 40 ? n : 40), word);
    }
    return f8_rule_check(out, r->diag);
}

/* FIRST, LAST */
static f8_status read_layers(reader *r, f8_recipe_rule *out)
{
    const option count = {.kind = OPTION_INT, .most = 999999999};
    const char *word;
    size_t n = take_word(r, &word);
    if (!read_value(&count, word, n, &out->first) || !take(r, ','))
        return f8_fail(r->diag, F8_ERR_INPUT, r->loc, "layers FIRST, LAST: two numbers are expected");
    n = take_word(r, &word);
    if (!read_value(&count, word, n, &out->last))
        return f8_fail(r->diag, F8_ERR_INPUT, r->loc, "layers FIRST, LAST: two numbers are expected");
    return F8_OK;
}

f8_status f8_rule_parse(f8_module *m, const char *text, f8_loc loc, f8_recipe_rule *out, f8_diag *diag)
{
    static const char layers[] = "layers";
    reader r = {text, loc, diag};
    f8_recipe recipe;
    char buf[F8_RECIPE_TEXT];
    *out = (f8_recipe_rule){.loc = loc};
    skip_space(&r);
    if (!strncmp(r.at, layers, sizeof layers - 1)) {
        r.at += sizeof layers - 1;
        F8_TRY(read_layers(&r, out));
    } else {
        F8_TRY(read_pattern(&r, m, out));
        F8_TRY(read_where(&r, out));
    }
    F8_TRY(need(&r, '=', "a rule"));
    F8_TRY(read_recipe(&r, &recipe));
    F8_TRY(need_end(&r));
    out->recipe = f8_intern(m, f8_recipe_print(&recipe, buf, sizeof buf));
    return out->recipe ? F8_OK : f8_arena_status(m->arena, diag);
}

const char *f8_rule_print(const f8_recipe_rule *rule, char *buf, size_t size)
{
    if (rule->pattern)
        snprintf(buf, size, "\"%s\"%s%s%s%s = %s", rule->pattern, rule->role ? " " : "",
                 rule->role ? rule->role : "", rule->operand ? " " : "", rule->operand ? rule->operand : "",
                 rule->recipe);
    else
        snprintf(buf, size, "layers %lld, %lld = %s", (long long)rule->first, (long long)rule->last,
                 rule->recipe);
    return buf;
}

int64_t f8_layer_of(const char *linear)
{
    for (const char *part = linear; part; part = strchr(part, '.') ? strchr(part, '.') + 1 : NULL) {
        char *end;
        if (!isdigit((unsigned char)*part))
            continue;
        const long long n = strtoll(part, &end, 10);
        if (*end == '.' || !*end)
            return n;
    }
    return -1;
}

bool f8_pattern_match(const char *pattern, const char *name)
{
    const char *star = NULL, *retry = NULL;
    while (*name) {
        if (*pattern == '*') {
            star = pattern++;
            retry = name;
        } else if (*pattern == '?' || *pattern == *name) {
            pattern++;
            name++;
        } else if (star) {
            pattern = star + 1;
            name = ++retry;
        } else {
            return false;
        }
    }
    while (*pattern == '*')
        pattern++;
    return !*pattern;
}
