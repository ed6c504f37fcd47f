/* The textual language: parses a text into a module. frontend/text/README.md has the grammar. */
#ifndef F8_PARSE_H
#define F8_PARSE_H

#include "ir/ir.h"

/* -D NAME=N: replaces the value or the bound of a declared dim. */
typedef struct f8_dim_override {
    const char *name;
    int64_t value;
} f8_dim_override;

/* The limits of one text. Exceeding one is an error. */
typedef struct f8_parse_limits {
    uint32_t nodes;        /* of all functions, with repeats unrolled */
    uint32_t declarations; /* the sum of dims, params, states, ports, recipe rules and functions */
    uint64_t unrolled;     /* bytes of text that repeats read a second time, over all iterations */
    uint32_t depth;        /* nesting of parentheses, calls and repeats */
} f8_parse_limits;

extern const f8_parse_limits f8_default_parse_limits;

/* Parses text[0..n) into *out, which lives in `arena`. `file` is for messages; the module and diag
 * borrow it. Every override must name a dim. Checks everything that can be checked with the text
 * alone, also that every recipe rule matches a linear. On failure *out is NULL and diag holds the
 * message and its place: F8_ERR_INPUT for a fault of the text, or F8_ERR_MEMORY. Any number of
 * threads may parse at the same time. */
f8_status f8_parse(const char *text, size_t n, const char *file, const f8_dim_override *overrides,
                   size_t n_overrides, f8_arena *arena, f8_diag *diag, f8_module **out);
f8_status f8_parse_limited(const char *text, size_t n, const char *file,
                           const f8_dim_override *overrides, size_t n_overrides,
                           const f8_parse_limits *limits, f8_arena *arena, f8_diag *diag,
                           f8_module **out);

/* Parses a recipe rule, written as in a module's text but without the word `recipe`. The rule may
 * use the dims of `m`, and `m` keeps its strings; `m` need not be complete. F8_ERR_INPUT has a
 * place in `text`. out->loc is F8_NOWHERE, because the rule is not in the module's text. */
f8_status f8_parse_rule(const char *text, f8_module *m, f8_diag *diag, f8_recipe_rule *out);

/* ---- recipe rules: frontend/text/recipes.c ---- */

/* Appends a rule. Its strings must belong to the module. */
f8_status f8_add_rule(f8_module *m, const f8_recipe_rule *rule);

/* Checks that every rule of the module matches a linear. F8_ERR_INPUT with the place of the rule
 * that does not. */
f8_status f8_check_recipe_rules(const f8_module *m, f8_diag *diag);

/* ---- the optimizer: frontend/text/optimizer.c ---- */

/* AdamW's defaults. lr is 0, which is invalid: a text or a builder must set it. */
f8_optimizer f8_optimizer_defaults(void);

/* Checks that every field is in its range. F8_ERR_INPUT at o->loc if not. */
f8_status f8_check_optimizer(const f8_optimizer *o, f8_diag *diag);

#endif
