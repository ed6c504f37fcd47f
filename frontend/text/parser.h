/* The parser's state, and what its files need from each other. Nothing else includes this.
 *
 * The parser is a recursive descent with one token of look-ahead, and up to three where a name may
 * begin a call or a "{" a body; each function parses one rule of
 * the grammar. There is no syntax tree: values go straight into the graph. A `repeat` is unrolled
 * by reading the text of its body once for each iteration. */
#ifndef F8_PARSER_H
#define F8_PARSER_H

#include "frontend/text/lex.h"
#include "frontend/text/parse.h"
#include "ir/base/table.h"

enum { F8_MAX_LOOPS = 32 };

/* An operand that has been read. A variable or a constant becomes a node only when the call it
 * stands in becomes one, so that `f(w, g(%x))` and its canonical form number their nodes alike. */
typedef struct f8_operand {
    enum { F8_OPERAND_REF, F8_OPERAND_VAR, F8_OPERAND_CONST } kind;
    f8_ref ref;
    int32_t var;
    double value;
    f8_loc loc;
} f8_operand;

/* A name that is visible now. `%w = wte` and `%half = 0.5` remain operands, and become nodes when a
 * call uses them. */
typedef struct f8_binding {
    const char *name; /* interned */
    f8_operand value;
    f8_loc loc; /* of the definition */
    enum { F8_FIXED, F8_CARRIED, F8_CARRIED_OUTSIDE } kind; /* only F8_CARRIED may change */
    bool assigned; /* in this iteration */
} f8_binding;

typedef struct f8_loop {
    const char *name; /* interned */
    int64_t value;
    f8_loc loc;
} f8_loop;

/* Where the "= expr" of a dim stands in the text, up to the next token. from == to: it has none. */
typedef struct f8_dim_text {
    const char *from, *to;
} f8_dim_text;

typedef struct f8_parser {
    f8_lexer lex;
    f8_token tok; /* the next token */
    f8_diag *diag;
    f8_arena *arena;  /* of the module */
    f8_arena scratch; /* freed when the parse ends */
    const f8_parse_limits *limits;
    f8_module *m;
    f8_func *f; /* the function that is being parsed, or NULL */
    const f8_dim_override *override;
    size_t n_overrides;
    bool *override_used;
    f8_map dims, values;      /* of interned names: indices + 1 into m->dim and into binding */
    f8_binding *binding;      /* the names in scope, oldest first */
    size_t n_bindings, binding_room;
    f8_operand *operand; /* a stack: the operands of the calls that are being read */
    size_t n_operands, operand_room;
    f8_loop loop[F8_MAX_LOOPS]; /* the repeats around this place, outermost first */
    uint32_t n_loops;
    f8_loc *func_loc; /* one for each of m->func */
    size_t func_loc_room;
    uint32_t depth, declarations;
    f8_dim_text *dim_text;          /* one for each of m->dim */
    size_t dim_text_room;
    uint32_t bound_read; /* index + 1 of a dim that depends on a bound, read since begin_fixed */
    f8_loc bound_loc;    /* where it was read */
    f8_form axis_form[F8_MAX_RANK]; /* of the type that was read last */
    uint64_t nodes_before; /* the nodes of earlier functions */
    uint64_t unrolled;
    bool in_carry; /* reading the first values of a carry */
    bool accumulate_seen;
    f8_loc accumulate_loc, zero_loc;
} f8_parser;

/* ---- parse_token.c: tokens and name maps ---- */

f8_status f8_p_fail(f8_parser *p, f8_loc loc, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
f8_status f8_p_memory(f8_parser *p); /* fails with the arena's failure */
f8_status f8_p_advance(f8_parser *p);
bool f8_p_at(const f8_parser *p, char punct);
bool f8_p_at_word(const f8_parser *p, const char *word);
/* Takes the token `punct`. If another stands here, fails with "expected WHAT, found ...". */
f8_status f8_p_expect(f8_parser *p, char punct, const char *what);
f8_status f8_p_unexpected(f8_parser *p, const char *expected);
f8_status f8_p_enter(f8_parser *p); /* one level deeper; p->depth-- leaves it */
f8_status f8_p_count_declaration(f8_parser *p, f8_loc loc);

/* ---- parse_expr.c: numbers and types ---- */

/* An expr: a 64-bit integer, from integers, dims and repeat variables. A real: the same in double,
 * with sqrt(), inf and nan. */
f8_status f8_p_int(f8_parser *p, int64_t *value);
f8_status f8_p_int_form(f8_parser *p, int64_t *value, f8_form *form);
f8_status f8_p_real(f8_parser *p, double *value);
f8_status f8_p_count(f8_parser *p, const char *what, int64_t *value); /* an integer above zero */
/* What is read between these two calls must not depend on a bound. `what` begins the message, `why`
 * ends it. */
void f8_p_begin_fixed(f8_parser *p);
f8_status f8_p_check_fixed(f8_parser *p, const char *what, const char *why);
f8_status f8_p_dtype(f8_parser *p, f8_dtype *dtype);
f8_status f8_p_type(f8_parser *p, f8_type *type);

/* ---- parse_name.c: names and strings ---- */

/* Takes a NAME and replaces its {expr} parts. The result is interned. */
f8_status f8_p_name(f8_parser *p, const char *what, const char **name);
/* Takes a NAME that has no dots and braces. */
f8_status f8_p_plain_name(f8_parser *p, const char *what, const char **name);
/* Takes a STRING and replaces escapes and {expr} parts. The result is interned. */
f8_status f8_p_string(f8_parser *p, const char *what, const char **text);
/* Takes a VALUE. The result is interned. */
f8_status f8_p_value_name(f8_parser *p, const char *what, const char **name);

/* ---- parse_dims.c: dims, and those that are bounds ---- */

f8_status f8_p_dim(f8_parser *p);
f8_status f8_p_check_overrides(f8_parser *p);
/* Records which axes of the input that was just read depend on bounds. */
f8_status f8_p_axes(f8_parser *p, const char *port, const f8_type *type);
/* Sets m->source if the module has bounds. */
f8_status f8_p_source(f8_parser *p, const char *text, size_t n);

/* ---- parse_call.c: operands and attributes ---- */

f8_status f8_p_operand(f8_parser *p, f8_operand *o);
/* Takes an operand and makes it a node. */
f8_status f8_p_value(f8_parser *p, f8_ref *ref);

/* ---- parse_repeat.c: shared by declarations and statements ---- */

/* repeat = "repeat" NAME "<" expr [carry] "{" body "}"
 * `head` takes everything before carry, and `open` takes "{". As long as `next` sets *more, the
 * caller reads the body up to its "}". `close` takes the "}". */
typedef struct f8_repeat {
    f8_loc loc, open;
    const char *name;
    int64_t count, i;
    f8_lexer start; /* of the body */
    f8_token first;
} f8_repeat;

f8_status f8_p_repeat_head(f8_parser *p, f8_repeat *r);
f8_status f8_p_repeat_open(f8_parser *p, f8_repeat *r);
f8_status f8_p_repeat_next(f8_parser *p, f8_repeat *r, bool *more);
f8_status f8_p_repeat_close(f8_parser *p, f8_repeat *r);

/* Fails because the block that begins at `open` has no end. */
f8_status f8_p_unterminated(f8_parser *p, f8_loc open, const char *what);

/* ---- parse_func.c, optimizer.c ---- */

f8_status f8_p_func(f8_parser *p);
f8_status f8_p_optimizer(f8_parser *p);

#endif
