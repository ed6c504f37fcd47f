/* Recipes as text, and which linears a rule matches: see recipe.h. */
#include "ir/recipe.h"
#include "ir/base/suggest.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const f8_operand_name[F8_OPERANDS] = {"x", "w", "dy"};
const char *const f8_role_name[F8_ROLES] = {"fprop", "dgrad", "wgrad"};

/* ---- the named recipes ---- */

/* X(name, scaling, activation, format of x and w, format of dy, what else differs)
 *
 * Histories have 16 steps: shorter than Transformer Engine's 1024, they adapt faster and cost less.
 * E4M3 forward and E5M2 for gradients: arXiv 2209.05433 section 3. E4M3 for all where scales are
 * fine: arXiv 2412.19437 section 3.3. */
#define RECIPES(X)                                                                               \
    X("f32", NONE, F8_F32, F8_F32, F8_F32, )                                                     \
    X("bf16", NONE, F8_BF16, F8_BF16, F8_BF16, )                                                 \
    X("delayed", DELAYED, F8_BF16, F8_E4M3, F8_E5M2, .saturate = true, .history = 16)            \
    X("current", CURRENT, F8_BF16, F8_E4M3, F8_E5M2, .saturate = true)                           \
    X("rowwise", ROWWISE, F8_BF16, F8_E4M3, F8_E4M3, .saturate = true)                           \
    X("rowwise_gw_hp", ROWWISE, F8_BF16, F8_E4M3, F8_E4M3, .saturate = true, .wgrad_high = true) \
    X("block", BLOCK, F8_BF16, F8_E4M3, F8_E4M3, .saturate = true)                               \
    X("mxfp8", MX, F8_BF16, F8_E4M3, F8_E4M3, .saturate = true)                                  \
    X("fake", CURRENT, F8_BF16, F8_E4M3, F8_E5M2, .saturate = true, .fake = true)                \
    X("auto", AUTO, F8_BF16, F8_BF16, F8_BF16, )

static const f8_recipe recipes[] = {
#define X(n, s, a, f, g, ...)                                                                      \
    {.name = n,                                                                                    \
     .scaling = F8_SCALING_##s,                                                                    \
     .activation = a,                                                                              \
     .forward = f,                                                                                 \
     .gradient = g,                                                                                \
     __VA_ARGS__},
    RECIPES(X)
#undef X
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
#define X(n, ...) ", " n
    return &(RECIPES(X))[2]; /* after the leading ", " */
#undef X
}

/* ---- options ---- */

/* The scalings that an option applies to. */
#define ON(scaling) (1u << F8_SCALING_##scaling)
enum {
    ON_DELAYED = ON(DELAYED),
    ON_SCALED = ON(DELAYED) | ON(CURRENT) | ON(ROWWISE) | ON(BLOCK),
    ON_FP8 = ON_SCALED | ON(MX),
};

typedef enum option_kind { OPTION_INT, OPTION_CHOICE } option_kind;

/* An option. `get` and `set` see it as a number; for CHOICE that is an index into `words`. */
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
#define FIELD(key, field)                          \
    static int64_t get_##key(const f8_recipe *r)   \
    {                                              \
        return r->field;                           \
    }                                              \
    static void set_##key(f8_recipe *r, int64_t v) \
    {                                              \
        r->field = v;                              \
    }
FIELD(history, history)
FIELD(amax, most_recent)
FIELD(margin, margin)
FIELD(pow2, pow2)
FIELD(fake, fake)
#undef FIELD

static const option options[] = {
    {"format", OPTION_CHOICE, ON_FP8, 0, 1, {"e4m3", "hybrid"}, get_format, set_format},
    {"history", OPTION_INT, ON_DELAYED, 1, F8_MAX_HISTORY, {NULL}, get_history, set_history},
    {"amax", OPTION_CHOICE, ON_DELAYED, 0, 1, {"max", "most_recent"}, get_amax, set_amax},
    {"margin", OPTION_INT, ON_SCALED, 0, 64, {NULL}, get_margin, set_margin},
    {"pow2", OPTION_CHOICE, ON_SCALED, 0, 1, {"false", "true"}, get_pow2, set_pow2},
    {"fake", OPTION_CHOICE, ON_FP8, 0, 1, {"false", "true"}, get_fake, set_fake},
};

enum { N_OPTIONS = sizeof options / sizeof options[0] };

/* ---- setting options ---- */

enum { SHOWN = 40 }; /* the most bytes of a wrong word that a message shows */
#define SPACE " \t\r\n\v\f"

static bool is_word(f8_word word, const char *text)
{
    return text && strlen(text) == word.length && !memcmp(word.text, text, word.length);
}

static bool read_value(const option *o, f8_word word, int64_t *v)
{
    *v = -1;
    for (int64_t i = o->least; o->kind == OPTION_CHOICE && i <= o->most; i++)
        if (is_word(word, o->words[i]))
            *v = i;
    for (size_t i = 0; o->kind == OPTION_INT && i < word.length && word.length < 10; i++) {
        if (word.text[i] < '0' || word.text[i] > '9')
            return false;
        *v = (*v < 0 ? 0 : *v * 10) + (word.text[i] - '0');
    }
    return *v >= o->least && *v <= o->most;
}

static f8_status no_option(const f8_recipe *r, f8_word key, f8_diag *diag)
{
    char list[80] = "none", hint[80];
    int at = 0;
    for (size_t i = 0; i < N_OPTIONS; i++)
        if (options[i].scalings & 1u << r->scaling)
            at += snprintf(list + at, sizeof list - (size_t)at, "%s%s", at ? ", " : "",
                           options[i].key);
    return f8_fail(diag, F8_ERR_INPUT, key.loc, "recipe '%s' has no option '%.*s'%s: it has %s",
                   r->name, (int)(key.length < SHOWN ? key.length : SHOWN), key.text,
                   f8_suggest_listed(key.text, key.length, list, hint, sizeof hint), list);
}

static f8_status bad_value(const option *o, f8_word value, f8_diag *diag)
{
    const int n = (int)(value.length < SHOWN ? value.length : SHOWN);
    if (o->kind == OPTION_INT)
        return f8_fail(diag, F8_ERR_INPUT, value.loc,
                       "%s = %.*s: a number from %lld to %lld is expected", o->key, n, value.text,
                       (long long)o->least, (long long)o->most);
    return f8_fail(diag, F8_ERR_INPUT, value.loc, "%s = %.*s: %s or %s is expected", o->key, n,
                   value.text, o->words[0], o->words[1]);
}

f8_status f8_recipe_set(f8_recipe *r, f8_word key, f8_word value, unsigned *seen, f8_diag *diag)
{
    size_t i = 0;
    int64_t number;
    while (i < N_OPTIONS &&
           !(options[i].scalings & 1u << r->scaling && is_word(key, options[i].key)))
        i++;
    if (i == N_OPTIONS)
        return no_option(r, key, diag);
    if (*seen & 1u << i)
        return f8_fail(diag, F8_ERR_INPUT, key.loc, "option '%s' is given twice", options[i].key);
    *seen |= 1u << i;
    if (!read_value(&options[i], value, &number))
        return bad_value(&options[i], value, diag);
    options[i].set(r, number);
    return F8_OK;
}

/* ---- reading ---- */

/* Reads the words of a recipe. */
typedef struct reader {
    const char *at;
    f8_loc loc;
    f8_diag *diag;
} reader;

static bool take(reader *r, char c)
{
    r->at += strspn(r->at, SPACE);
    if (*r->at != c)
        return false;
    r->at++;
    return true;
}

/* The characters up to a space or a sign of the grammar; empty if one of those comes first. */
static f8_word take_word(reader *r)
{
    r->at += strspn(r->at, SPACE);
    const f8_word word = {r->at, strcspn(r->at, SPACE "{}=,"), r->loc};
    r->at += word.length;
    return word;
}

static f8_status unexpected(reader *r, const char *name, const char *expected)
{
    if (!*r->at)
        return f8_fail(r->diag, F8_ERR_INPUT, r->loc, "recipe '%s': %s is missing at the end", name,
                       expected);
    return f8_fail(r->diag, F8_ERR_INPUT, r->loc, "recipe '%s': %s is expected before '%.20s'",
                   name, expected, r->at);
}

/* key = value */
static f8_status read_option(reader *r, f8_recipe *out, unsigned *seen)
{
    const f8_word key = take_word(r);
    if (!key.length)
        return unexpected(r, out->name, "an option");
    if (!take(r, '='))
        return unexpected(r, out->name, "'='");
    const f8_word value = take_word(r);
    if (!value.length)
        return unexpected(r, out->name, "a value");
    return f8_recipe_set(out, key, value, seen, r->diag);
}

f8_status f8_recipe_parse(const char *text, f8_loc loc, f8_recipe *out, f8_diag *diag)
{
    reader r = {text, loc, diag};
    unsigned seen = 0;
    char hint[80];
    const f8_word name = take_word(&r);
    const f8_recipe *found = named(name.text, name.length);
    if (!found)
        return f8_fail(
            diag, F8_ERR_INPUT, loc, "no recipe '%.*s'%s: there are %s",
            (int)(name.length < SHOWN ? name.length : SHOWN), name.text,
            f8_suggest_listed(name.text, name.length, f8_recipe_names(), hint, sizeof hint),
            f8_recipe_names());
    *out = *found;
    if (take(&r, '{') && !take(&r, '}')) {
        do
            F8_TRY(read_option(&r, out, &seen));
        while (take(&r, ','));
        if (!take(&r, '}'))
            return unexpected(&r, out->name, "',' or '}'");
    }
    r.at += strspn(r.at, SPACE);
    if (!*r.at)
        return F8_OK;
    return f8_fail(diag, F8_ERR_INPUT, loc, "recipe '%s': nothing may follow it, but '%.20s' does",
                   out->name, r.at);
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

unsigned f8_recipe_lacks(const f8_recipe *r, const f8_target *t)
{
    const f8_scales s = {.grain = f8_recipe_granularity(r, F8_OPERAND_X, false),
                         .dtype = r->scaling == F8_SCALING_MX ? F8_E8M0 : F8_F32};
    return f8_target_lacks(t, f8_scales_kind(&s), f8_scales_kind(&s));
}

const char *f8_recipe_gpus(const f8_recipe *r, char *names, size_t size)
{
    const char *has[16];
    size_t n = 0, at = 0;
    const f8_target *t;
    for (size_t i = 0; (t = f8_target_at(i)) && n < sizeof has / sizeof *has; i++)
        if (t->kind == F8_TARGET_CUDA && !f8_recipe_lacks(r, t))
            has[n++] = t->name;
    names[0] = 0;
    for (size_t i = 0; i < n && at < size; i++)
        at += (size_t)snprintf(names + at, size - at, "%s%s",
                               !i ? "" : i + 1 < n ? ", " : " and ", has[i]);
    return names;
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

/* ---- names of linears ---- */

/* The parameter a weight comes from, through casts and views, or NULL. */
static const char *parameter_of(const f8_func *f, f8_ref w)
{
    const f8_graph *g = f->graph;
    while (f8_at(g, w)->n_in == 1)
        w = f8_at(g, w)->in[0];
    if (f8_at(g, w)->op != F8_OP_INPUT)
        return NULL;
    const f8_port *p = &f->in[f8_attr_i(g, w, F8_A_INDEX)];
    return p->var >= 0 ? p->name : NULL;
}

const char *f8_linear_name(const f8_func *f, f8_ref r, char *buf, size_t size)
{
    static const char suffix[] = ".weight";
    const f8_node *n = f8_at(f->graph, r);
    if (n->op != F8_OP_LINEAR && n->op != F8_OP_MATMUL && n->op != F8_OP_SCALED_MATMUL)
        return NULL;
    const char *name = f8_attr_s(f->graph, r, F8_A_NAME);
    if (*name) {
        snprintf(buf, size, "%s", name);
        return buf;
    }
    name = n->op == F8_OP_LINEAR ? parameter_of(f, n->in[1]) : NULL;
    if (!name)
        return NULL;
    size_t length = strlen(name), cut = sizeof suffix - 1;
    if (length > cut && !strcmp(name + length - cut, suffix))
        length -= cut;
    snprintf(buf, size, "%.*s", (int)length, name);
    return buf;
}

/* ---- rules ---- */

f8_status f8_rule_check(const f8_recipe_rule *rule, f8_diag *diag)
{
    f8_operand_kind of[2];
    if (!rule->role || !rule->operand)
        return F8_OK;
    f8_role_operands(f8_role_by_name(rule->role), of);
    if (!strcmp(rule->operand, f8_operand_name[of[0]]) ||
        !strcmp(rule->operand, f8_operand_name[of[1]]))
        return F8_OK;
    return f8_fail(diag, F8_ERR_INPUT, rule->loc,
                   "%s has no operand %s: its operands are %s and %s", rule->role, rule->operand,
                   f8_operand_name[of[0]], f8_operand_name[of[1]]);
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
