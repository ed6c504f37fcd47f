/* Modules and declarations: see parse.h and parser.h. */
#include "frontend/text/parse.h"
#include "ir/base/suggest.h"

#include <string.h>

#include "frontend/text/parser.h"
#include "ir/recipe.h"

const f8_parse_limits f8_default_parse_limits = {
    .nodes = 1000000,
    .declarations = 65536,
    .unrolled = (uint64_t)1 << 28,
    .depth = 200,
};

static f8_status parse_item(f8_parser *p);

/* ---- params and states ---- */

static const char *init_name(const void *user, size_t i)
{
    (void)user;
    return f8_init_name[i];
}

/* init = "zeros" | "ones" | ("const" | "normal" | "uniform") "(" real ")" */
static f8_status parse_init(f8_parser *p, f8_var *v)
{
    size_t i = 0;
    char hint[80], found[160];
    if (p->tok.kind != F8_T_NAME)
        return f8_p_unexpected(
            p, "an initializer: zeros, ones, const(x), normal(deviation) or uniform(half width)");
    while (i < F8_INITS && !f8_p_at_word(p, f8_init_name[i]))
        i++;
    if (i == F8_INITS)
        return f8_p_fail(p, p->tok.loc, "there is no initializer %s%s",
                         f8_lex_quote(&p->tok, found, sizeof found),
                         f8_suggest(p->tok.text, p->tok.length, init_name, NULL, F8_INITS, "", hint,
                                    sizeof hint));
    F8_TRY(f8_p_advance(p));
    v->init = (f8_init_kind)i;
    if (!f8_init_takes_number(v->init))
        return F8_OK;
    F8_TRY(f8_p_expect(p, '(', "'(' and a number"));
    f8_loc loc = p->tok.loc;
    F8_TRY(f8_p_real(p, &v->init_arg));
    if (!f8_init_has_number(v->init, v->init_arg))
        return f8_p_fail(p, loc, "%s(%g): the width must be finite and not negative",
                         f8_init_name[i], v->init_arg);
    return f8_p_expect(p, ')', "')'");
}

/* param = ("param" | "state") NAME ":" type init */
static f8_status parse_param(f8_parser *p, f8_var_kind kind)
{
    static const char shared[] = "all values of a bound share the variables";
    F8_TRY(f8_p_advance(p));
    f8_var v = {.kind = kind, .loc = p->tok.loc};
    F8_TRY(f8_p_count_declaration(p, v.loc));
    F8_TRY(f8_p_name(p, kind == F8_VAR_PARAM ? "the param's name" : "the state's name", &v.name));
    int32_t other = f8_module_find_var(p->m, v.name);
    if (other >= 0)
        return f8_p_fail(p, v.loc, "'%s' is already declared, at %u:%u", v.name,
                         p->m->var[other].loc.line, p->m->var[other].loc.column);
    F8_TRY(f8_p_expect(p, ':', "':' and a type"));
    f8_p_begin_fixed(p);
    F8_TRY(f8_p_type(p, &v.type));
    F8_TRY(
        f8_p_check_fixed(p, kind == F8_VAR_PARAM ? "a param's shape" : "a state's shape", shared));
    F8_TRY(parse_init(p, &v));
    F8_TRY(f8_p_check_fixed(p, "an initial value", shared));
    return f8_module_var(p->m, &v) >= 0 ? F8_OK : p->diag->status;
}

/* ---- recipes and accumulation ---- */

/* option = NAME "=" (NAME | INT) */
static f8_status parse_option(f8_parser *p, f8_recipe *recipe, unsigned *seen)
{
    if (p->tok.kind != F8_T_NAME)
        return f8_p_unexpected(p, "an option of the recipe");
    const f8_token key = p->tok;
    F8_TRY(f8_p_advance(p));
    F8_TRY(f8_p_expect(p, '=', "'=' and the option's value"));
    const f8_token value = p->tok;
    if (value.kind != F8_T_NAME && value.kind != F8_T_INT && value.kind != F8_T_FLOAT)
        return f8_p_unexpected(p, "the option's value: a word or a number");
    F8_TRY(f8_recipe_set(recipe, (f8_word){key.text, key.length, key.loc},
                         (f8_word){value.text, value.length, value.loc}, seen, p->diag));
    return f8_p_advance(p);
}

/* spec = NAME ["{" [option {"," option}] "}"] */
static f8_status parse_spec(f8_parser *p, const char **text)
{
    const f8_loc loc = p->tok.loc;
    const char *name;
    f8_recipe recipe;
    unsigned seen = 0;
    char buf[F8_RECIPE_TEXT];
    F8_TRY(f8_p_plain_name(p, "a recipe's name", &name));
    F8_TRY(f8_recipe_parse(name, loc, &recipe, p->diag));
    if (f8_p_at(p, '{')) {
        const f8_loc open = p->tok.loc;
        F8_TRY(f8_p_advance(p));
        for (bool first = true; !f8_p_at(p, '}'); first = false) {
            if (p->tok.kind == F8_T_END)
                return f8_p_unterminated(p, open, "recipe");
            if (!first)
                F8_TRY(f8_p_expect(p, ',', "',' or '}'"));
            F8_TRY(parse_option(p, &recipe, &seen));
        }
        F8_TRY(f8_p_advance(p));
    }
    *text = f8_intern(p->m, f8_recipe_print(&recipe, buf, sizeof buf));
    return *text ? F8_OK : f8_p_memory(p);
}

/* Takes one of `words`, if one stands here, and sets *taken to the table's string. */
static f8_status take_one_of(f8_parser *p, const char *const *words, int n, const char **taken)
{
    for (int i = 0; i < n; i++)
        if (f8_p_at_word(p, words[i])) {
            *taken = words[i];
            return f8_p_advance(p);
        }
    return F8_OK;
}

/* layers = "layers" expr "," expr */
static f8_status parse_layers(f8_parser *p, f8_recipe_rule *rule)
{
    F8_TRY(f8_p_advance(p));
    const f8_loc loc = p->tok.loc;
    f8_p_begin_fixed(p);
    F8_TRY(f8_p_int(p, &rule->first));
    F8_TRY(f8_p_expect(p, ',', "',' and the number of last layers"));
    F8_TRY(f8_p_int(p, &rule->last));
    F8_TRY(f8_p_check_fixed(p, "a recipe's rule", "all values of a bound share the states"));
    if (rule->first >= 0 && rule->last >= 0)
        return F8_OK;
    return f8_p_fail(p, loc, "layers %lld, %lld: the number of layers must not be negative",
                     (long long)rule->first, (long long)rule->last);
}

/* rule = (STRING [role] [which] | layers) "=" spec */
static f8_status parse_rule(f8_parser *p, f8_recipe_rule *rule)
{
    *rule = (f8_recipe_rule){.loc = p->tok.loc};
    if (f8_p_at_word(p, "layers")) {
        F8_TRY(parse_layers(p, rule));
    } else {
        F8_TRY(f8_p_string(p, "a pattern of names, such as \"h.*\", or 'layers'", &rule->pattern));
        F8_TRY(take_one_of(p, f8_role_name, F8_ROLES, &rule->role));
        F8_TRY(take_one_of(p, f8_operand_name, F8_OPERANDS, &rule->operand));
        if (p->tok.kind == F8_T_NAME)
            return f8_p_unexpected(p, rule->operand ? "'=' and a recipe"
                                      : rule->role
                                          ? "an operand (x, w or dy), or '=' and a recipe"
                                          : "a role (fprop, dgrad or wgrad), an operand (x, w or "
                                            "dy), or '=' and a recipe");
    }
    F8_TRY(f8_rule_check(rule, p->diag));
    F8_TRY(f8_p_expect(p, '=', "'=' and a recipe"));
    return parse_spec(p, &rule->recipe);
}

/* recipe = "recipe" rule */
static f8_status parse_recipe(f8_parser *p)
{
    f8_recipe_rule rule;
    F8_TRY(f8_p_advance(p));
    F8_TRY(f8_p_count_declaration(p, p->tok.loc));
    F8_TRY(parse_rule(p, &rule));
    return f8_add_rule(p->m, &rule);
}

/* accumulate = "accumulate" expr */
static f8_status parse_accumulate(f8_parser *p)
{
    if (p->accumulate_seen)
        return f8_p_fail(p, p->tok.loc, "'accumulate' is already declared, at %u:%u",
                         p->accumulate_loc.line, p->accumulate_loc.column);
    p->accumulate_seen = true;
    p->accumulate_loc = p->tok.loc;
    F8_TRY(f8_p_advance(p));
    f8_p_begin_fixed(p);
    F8_TRY(f8_p_count(p, "the number of micro-steps", &p->m->accumulate));
    return f8_p_check_fixed(p, "the number of micro-steps",
                            "all values of a bound share one update");
}

/* zero = "zero" expr */
static f8_status parse_zero(f8_parser *p)
{
    if (p->zero_loc.line)
        return f8_p_fail(p, p->tok.loc, "'zero' is already declared, at %u:%u", p->zero_loc.line,
                         p->zero_loc.column);
    p->zero_loc = p->tok.loc;
    F8_TRY(f8_p_advance(p));
    const f8_loc loc = p->tok.loc;
    f8_p_begin_fixed(p);
    F8_TRY(f8_p_int(p, &p->m->zero));
    if (p->m->zero < 0 || p->m->zero > 3)
        return f8_p_fail(p, loc, "the stage of ZeRO is %lld: there are 0, 1, 2 and 3",
                         (long long)p->m->zero);
    return f8_p_check_fixed(p, "the stage of ZeRO", "all values of a bound share the variables");
}

/* ---- modules ---- */

/* repeat = "repeat" NAME "<" expr "{" {item} "}"; items are params, states, recipes and repeats */
static f8_status parse_repeated_items(f8_parser *p)
{
    f8_repeat r;
    bool more;
    F8_TRY(f8_p_repeat_head(p, &r));
    F8_TRY(f8_p_repeat_open(p, &r));
    for (;;) {
        F8_TRY(f8_p_repeat_next(p, &r, &more));
        if (!more)
            break;
        while (!f8_p_at(p, '}') && p->tok.kind != F8_T_END)
            F8_TRY(parse_item(p));
    }
    return f8_p_repeat_close(p, &r);
}

/* item = dim | param | repeat | func | recipe | optimizer | accumulate | zero */
static f8_status parse_item(f8_parser *p)
{
    static const struct {
        const char *word;
        f8_status (*parse)(f8_parser *p);
    } once[] = {
        {"dim", f8_p_dim},
        {"func", f8_p_func},
        {"optimizer", f8_p_optimizer},
        {"accumulate", parse_accumulate},
        {"zero", parse_zero},
    };
    if (f8_p_at_word(p, "param"))
        return parse_param(p, F8_VAR_PARAM);
    if (f8_p_at_word(p, "state"))
        return parse_param(p, F8_VAR_STATE);
    if (f8_p_at_word(p, "repeat"))
        return parse_repeated_items(p);
    if (f8_p_at_word(p, "recipe"))
        return parse_recipe(p);
    if (p->n_loops > 0)
        return f8_p_unexpected(p, "param, state, recipe, repeat or '}'");
    for (size_t i = 0; i < sizeof once / sizeof once[0]; i++)
        if (f8_p_at_word(p, once[i].word))
            return once[i].parse(p);
    return f8_p_unexpected(
        p, "dim, param, state, repeat, func, recipe, optimizer, accumulate or zero");
}

/* module = "module" NAME {item} */
static f8_status parse_module(f8_parser *p, const char *file)
{
    F8_TRY(f8_p_advance(p));
    if (!f8_p_at_word(p, "module"))
        return f8_p_unexpected(p, "'module NAME'");
    F8_TRY(f8_p_advance(p));
    if (p->tok.kind != F8_T_NAME)
        return f8_p_unexpected(p, "the module's name");
    if (memchr(p->tok.text, '{', p->tok.length))
        return f8_p_fail(p, p->tok.loc, "a module's name can't have braces");
    char name[F8_MAX_NAME + 1] = {0};
    memcpy(name, p->tok.text, p->tok.length);
    p->m = f8_module_create(p->arena, p->diag, name, file);
    if (!p->m)
        return p->diag->status;
    F8_TRY(f8_p_advance(p));
    while (p->tok.kind != F8_T_END)
        F8_TRY(parse_item(p));
    F8_TRY(f8_p_check_overrides(p));
    return f8_check_recipe_rules(p->m, p->diag);
}

f8_status f8_parse_limited(const char *text, size_t n, const char *file,
                           const f8_dim_override *overrides, size_t n_overrides,
                           const f8_parse_limits *limits, f8_arena *arena, f8_diag *diag,
                           f8_module **out)
{
    f8_diag own = {0};
    f8_parser p = {.diag = diag ? diag : &own,
                   .arena = arena,
                   .limits = limits,
                   .override = overrides,
                   .n_overrides = n_overrides};
    *out = NULL;
    if (!p.diag->file)
        p.diag->file = file;
    F8_TRY(f8_lex_check_text(text, n, p.diag));
    f8_arena_init(&p.scratch, &arena->allocator);
    p.lex = f8_lex_begin(text, n);
    p.override_used = F8_NEW_ARRAY(&p.scratch, bool, n_overrides);
    f8_status s = p.override_used ? parse_module(&p, file) : f8_p_memory(&p);
    if (s == F8_OK)
        s = f8_p_source(&p, text, n);
    f8_arena_end(&p.scratch);
    if (s == F8_OK)
        *out = p.m;
    return s;
}

f8_status f8_parse(const char *text, size_t n, const char *file, const f8_dim_override *overrides,
                   size_t n_overrides, f8_arena *arena, f8_diag *diag, f8_module **out)
{
    return f8_parse_limited(text, n, file, overrides, n_overrides, &f8_default_parse_limits, arena,
                            diag, out);
}

/* ---- a rule alone ---- */

/* Expressions in the rule may use the module's dims. */
static f8_status know_dims(f8_parser *p)
{
    for (size_t i = 0; i < p->m->n_dims; i++)
        F8_TRY(f8_map_set(&p->dims, &p->scratch, f8_map_key(p->m->dim[i].name), (uint32_t)i + 1,
                          p->diag));
    return F8_OK;
}

static f8_status parse_only_rule(f8_parser *p, f8_recipe_rule *rule)
{
    F8_TRY(know_dims(p));
    F8_TRY(f8_p_advance(p));
    F8_TRY(parse_rule(p, rule));
    return p->tok.kind == F8_T_END ? F8_OK : f8_p_unexpected(p, "the end of the rule");
}

f8_status f8_parse_rule(const char *text, f8_module *m, f8_diag *diag, f8_recipe_rule *out)
{
    const size_t n = strlen(text);
    f8_parser p = {.diag = diag, .arena = m->arena, .limits = &f8_default_parse_limits, .m = m};
    if (strspn(text, " \t\r\n") == n)
        return f8_fail(diag, F8_ERR_INPUT, (f8_loc){1, 1}, "the rule is empty");
    F8_TRY(f8_lex_check_text(text, n, diag));
    f8_arena_init(&p.scratch, &m->arena->allocator);
    p.lex = f8_lex_begin(text, n);
    const f8_status s = parse_only_rule(&p, out);
    f8_arena_end(&p.scratch);
    out->loc = F8_NOWHERE;
    return s;
}
