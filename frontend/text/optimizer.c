/* The declaration of the optimizer: its fields, their defaults and ranges. */
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "frontend/text/parser.h"
#include "ir/base/suggest.h"

/* AdamW's fields, in canonical order. */
static const struct {
    const char *name;
    enum { REAL, INTEGER, TEXT } kind;
    size_t offset;
} fields[] = {
    {"lr", REAL, offsetof(f8_optimizer, lr)},
    {"beta1", REAL, offsetof(f8_optimizer, beta1)},
    {"beta2", REAL, offsetof(f8_optimizer, beta2)},
    {"eps", REAL, offsetof(f8_optimizer, eps)},
    {"weight_decay", REAL, offsetof(f8_optimizer, weight_decay)},
    {"clip", REAL, offsetof(f8_optimizer, clip)},
    {"schedule", TEXT, offsetof(f8_optimizer, schedule)},
    {"warmup", INTEGER, offsetof(f8_optimizer, warmup)},
    {"steps", INTEGER, offsetof(f8_optimizer, steps)},
    {"min_lr", REAL, offsetof(f8_optimizer, min_lr)},
};

enum { N_FIELDS = sizeof fields / sizeof fields[0] };

f8_optimizer f8_optimizer_defaults(void)
{
    return (f8_optimizer){.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .schedule = "constant"};
}

f8_status f8_check_optimizer(const f8_optimizer *o, f8_diag *diag)
{
    const struct {
        bool ok;
        const char *rule;
    } rules[] = {
        {o->lr > 0 && isfinite(o->lr), "lr must be positive"},
        {o->beta1 >= 0 && o->beta1 < 1, "beta1 must lie in [0, 1)"},
        {o->beta2 >= 0 && o->beta2 < 1, "beta2 must lie in [0, 1)"},
        {o->eps > 0 && isfinite(o->eps), "eps must be positive"},
        {o->weight_decay >= 0 && isfinite(o->weight_decay), "weight_decay must not be negative"},
        {o->clip >= 0 && isfinite(o->clip), "clip must not be negative (0 = none)"},
        {o->min_lr >= 0 && o->min_lr <= 1, "min_lr is a share of lr: it must lie in [0, 1]"},
        {o->warmup >= 0, "warmup must not be negative"},
        {o->steps >= 0, "steps must not be negative"},
        {o->schedule && (!strcmp(o->schedule, "constant") || !strcmp(o->schedule, "linear") ||
                         !strcmp(o->schedule, "cosine")),
         "schedule must be \"constant\", \"linear\" or \"cosine\""},
    };
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
        if (!rules[i].ok)
            return f8_fail(diag, F8_ERR_INPUT, o->loc, "optimizer: %s", rules[i].rule);
    return F8_OK;
}

static const char *field_name(const void *user, size_t i)
{
    (void)user;
    return fields[i].name;
}

/* What others call a field. */
static const struct {
    const char *theirs, *ours;
} synonyms[] = {
    {"learning_rate", "lr"},    {"betas", "beta1"},        {"epsilon", "eps"},
    {"wd", "weight_decay"},     {"decay", "weight_decay"}, {"grad_clip", "clip"},
    {"clip_norm", "clip"},      {"max_norm", "clip"},      {"max_grad_norm", "clip"},
    {"warmup_steps", "warmup"}, {"max_steps", "steps"},    {"total_steps", "steps"},
};

static const char *suggest_field(const f8_parser *p, char *hint, size_t size)
{
    for (size_t i = 0; i < sizeof synonyms / sizeof *synonyms; i++)
        if (f8_p_at_word(p, synonyms[i].theirs)) {
            snprintf(hint, size, " (did you mean '%s'?)", synonyms[i].ours);
            return hint;
        }
    return f8_suggest(p->tok.text, p->tok.length, field_name, NULL, N_FIELDS, "", hint, size);
}

/* field = NAME "=" (real | expr | STRING); the field decides which of these */
static f8_status parse_field(f8_parser *p, f8_optimizer *o, uint32_t *seen)
{
    size_t i = 0;
    char hint[80], found[160];
    if (p->tok.kind != F8_T_NAME)
        return f8_p_unexpected(p, "an optimizer's field");
    while (i < N_FIELDS && !f8_p_at_word(p, fields[i].name))
        i++;
    if (i == N_FIELDS)
        return f8_p_fail(p, p->tok.loc, "adamw has no field %s%s",
                         f8_lex_quote(&p->tok, found, sizeof found),
                         suggest_field(p, hint, sizeof hint));
    if (*seen & 1u << i)
        return f8_p_fail(p, p->tok.loc, "field '%s' is given twice", fields[i].name);
    *seen |= 1u << i;
    F8_TRY(f8_p_advance(p));
    F8_TRY(f8_p_expect(p, '=', "'=' after the field's name"));
    void *at = (char *)o + fields[i].offset;
    o->loc = p->tok.loc; /* messages point at the value that is wrong */
    f8_p_begin_fixed(p);
    switch (fields[i].kind) {
    case REAL: F8_TRY(f8_p_real(p, at)); break;
    case INTEGER: F8_TRY(f8_p_int(p, at)); break;
    case TEXT: F8_TRY(f8_p_string(p, "a string", at)); break;
    }
    F8_TRY(f8_p_check_fixed(p, "an optimizer's field", "all values of a bound share one update"));
    double lr = o->lr;
    if (!(*seen & 1)) /* lr may follow: check the others now */
        o->lr = 1;
    F8_TRY(f8_check_optimizer(o, p->diag));
    o->lr = *seen & 1 ? o->lr : lr;
    return F8_OK;
}

/* optimizer = "optimizer" "adamw" "{" [field {"," field}] "}" */
f8_status f8_p_optimizer(f8_parser *p)
{
    f8_optimizer *declared = &p->m->optimizer, o = f8_optimizer_defaults();
    f8_loc loc = p->tok.loc;
    uint32_t seen = 0;
    if (declared->declared)
        return f8_p_fail(p, loc, "an optimizer is already declared, at %u:%u", declared->loc.line,
                         declared->loc.column);
    F8_TRY(f8_p_advance(p));
    if (!f8_p_at_word(p, "adamw"))
        return f8_p_unexpected(p, "an optimizer: adamw");
    F8_TRY(f8_p_advance(p));
    if (!(o.schedule = f8_intern(p->m, o.schedule)))
        return f8_p_memory(p);
    F8_TRY(f8_p_expect(p, '{', "'{' and the optimizer's fields"));
    for (bool first = true; !f8_p_at(p, '}'); first = false) {
        if (!first)
            F8_TRY(f8_p_expect(p, ',', "',' or '}'"));
        F8_TRY(parse_field(p, &o, &seen));
    }
    o.loc = loc;
    o.declared = true;
    F8_TRY(f8_check_optimizer(&o, p->diag));
    *declared = o;
    return f8_p_advance(p);
}
