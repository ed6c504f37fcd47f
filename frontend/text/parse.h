/* The textual language: text in, module out. frontend/text/README.md has the grammar. */
#ifndef F8_PARSE_H
#define F8_PARSE_H

#include "ir/ir.h"

/* -D NAME=N: replaces the value of a declared dim. */
typedef struct f8_dim_override {
    const char *name;
    int64_t value;
} f8_dim_override;

/* What one text may ask for before it is refused. */
typedef struct f8_parse_limits {
    uint32_t nodes;        /* over all functions, after `repeat` is unrolled */
    uint32_t declarations; /* dims, params, states, ports, recipe rules, functions: all together */
    uint64_t unrolled;     /* bytes of text read again by `repeat`, all iterations together */
    uint32_t depth;        /* nesting of parentheses, calls and repeats */
} f8_parse_limits;

extern const f8_parse_limits f8_default_parse_limits;

/* Parses text[0..n) into *out, which lives in `arena`. `file` (borrowed by the module and by
 * diag) is for messages. Every override must name a dim. Checks everything that the text alone
 * can be wrong about, recipe patterns included. On failure *out is NULL and diag holds the
 * message and its place: F8_ERR_INPUT for the text's faults, F8_ERR_MEMORY. Reads nothing but
 * its arguments; any number of threads may parse at once. */
f8_status f8_parse(const char *text, size_t n, const char *file, const f8_dim_override *overrides,
                   size_t n_overrides, f8_arena *arena, f8_diag *diag, f8_module **out);
f8_status f8_parse_limited(const char *text, size_t n, const char *file,
                           const f8_dim_override *overrides, size_t n_overrides,
                           const f8_parse_limits *limits, f8_arena *arena, f8_diag *diag,
                           f8_module **out);

/* Read a recipe rule as it stands in a text behind the word `recipe`; `m`, complete or not, gives
 * dims and keeps the strings. F8_ERR_INPUT at a place in `text`. out->loc is nowhere: it is not of
 * the module's text. */
f8_status f8_parse_rule(const char *text, f8_module *m, f8_diag *diag, f8_recipe_rule *out);

/* ---- recipe rules: frontend/text/recipes.c ---- */

/* Append a rule; its strings are the module's. */
f8_status f8_add_rule(f8_module *m, const f8_recipe_rule *rule);

/* Every rule of the module must match at least one linear; F8_ERR_INPUT with the rule's place. */
f8_status f8_check_recipe_rules(const f8_module *m, f8_diag *diag);

/* ---- the optimizer: frontend/text/optimizer.c ---- */

/* AdamW's defaults, with lr 0 (which a text or builder must replace). */
f8_optimizer f8_optimizer_defaults(void);

/* Whether the fields make sense together; F8_ERR_INPUT at o->loc otherwise. */
f8_status f8_check_optimizer(const f8_optimizer *o, f8_diag *diag);

#endif
