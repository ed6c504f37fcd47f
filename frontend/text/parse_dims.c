/* Dims and bounds: see parser.h.
 *
 * A module with bounds stands for many modules, one for each set of values of the bounds. The text
 * is parsed once for each set (frontend/variants.c); this file parses it with the bounds as values.
 * What must be the same for all sets may not depend on a bound: f8_p_check_fixed checks that. */
#include <stdio.h>
#include <string.h>

#include "frontend/text/parser.h"

/* ---- declarations ---- */

static const f8_dim_override *find_override(f8_parser *p, const char *name)
{
    const f8_dim_override *found = NULL;
    for (size_t i = 0; i < p->n_overrides; i++)
        if (!strcmp(p->override[i].name, name)) {
            found = &p->override[i]; /* the last override of a name counts */
            p->override_used[i] = true;
        }
    return found;
}

static size_t count_bounds(const f8_module *m)
{
    size_t n = 0;
    for (size_t i = 0; i < m->n_dims; i++)
        n += m->dim[i].bound;
    return n;
}

/* from: where the value of the dim begins in the text. It ends before the next token. */
static f8_status add_dim(f8_parser *p, const f8_dim *dim, const char *from)
{
    f8_module *m = p->m;
    uint32_t other = f8_map_get(&p->dims, f8_map_key(dim->name));
    if (other)
        return f8_p_fail(p, dim->loc, "dim '%s' is already declared, at %u:%u", dim->name,
                         m->dim[other - 1].loc.line, m->dim[other - 1].loc.column);
    f8_dim *grown =
        f8_arena_grow(m->arena, m->dim, m->n_dims, &m->dim_room, m->n_dims + 1, sizeof *grown);
    if (!grown)
        return f8_p_memory(p);
    m->dim = grown;
    f8_dim_text *texts = f8_arena_grow(&p->scratch, p->dim_text, m->n_dims, &p->dim_text_room,
                                       m->n_dims + 1, sizeof *texts);
    if (!texts)
        return f8_p_memory(p);
    p->dim_text = texts;
    texts[m->n_dims] = (f8_dim_text){from, p->tok.text};
    grown[m->n_dims++] = *dim;
    return f8_map_set(&p->dims, &p->scratch, f8_map_key(dim->name), (uint32_t)m->n_dims, p->diag);
}

/* ["=" expr | "<=" expr], into d. *found: there is a value; *at: where it stands. */
static f8_status parse_value(f8_parser *p, f8_dim *d, f8_loc *at, bool *found)
{
    d->bound = f8_p_at(p, '<');
    *found = d->bound || f8_p_at(p, '=');
    if (!*found)
        return F8_OK;
    F8_TRY(f8_p_advance(p));
    if (d->bound)
        F8_TRY(f8_p_expect(p, '=', "'<=' and a bound"));
    *at = p->tok.loc;
    f8_p_begin_fixed(p);
    F8_TRY(f8_p_int_form(p, &d->value, &d->form));
    return d->bound ? f8_p_check_fixed(p, "a bound", "each bound takes its values independently")
                    : F8_OK;
}

/* binding = NAME ["=" expr | "<=" expr] */
static f8_status parse_binding(f8_parser *p)
{
    f8_dim d = {.loc = p->tok.loc};
    bool found;
    F8_TRY(f8_p_count_declaration(p, d.loc));
    F8_TRY(f8_p_plain_name(p, "a dim's name", &d.name));
    const char *from = p->tok.text;
    f8_loc at = d.loc;
    F8_TRY(parse_value(p, &d, &at, &found));
    const f8_dim_override *override = find_override(p, d.name);
    if (!override && !found)
        return f8_p_fail(p, d.loc, "dim '%s' has no value: write '%s = N' or give -D %s=N", d.name,
                         d.name, d.name);
    if (override) {
        d.value = override->value;
        d.given = true;
        d.form = (f8_form){0};
    }
    if (override && d.value <= 0)
        return f8_p_fail(p, d.loc, "dim '%s' is %lld (by -D): it must be positive", d.name,
                         (long long)d.value);
    if (d.value <= 0)
        return f8_p_fail(p, at,
                         d.bound ? "the bound of '%s' is %lld: it must be positive"
                                 : "dim '%s' is %lld: it must be positive",
                         d.name, (long long)d.value);
    if (d.bound && count_bounds(p->m) == F8_MAX_BOUNDS)
        return f8_p_fail(p, d.loc, "a module has at most %d bounds", F8_MAX_BOUNDS);
    if (d.bound)
        d.form = (f8_form){.dim = (int32_t)p->m->n_dims + 1, .scale = 1};
    return add_dim(p, &d, from);
}

/* dim = "dim" binding {"," binding} */
f8_status f8_p_dim(f8_parser *p)
{
    do {
        F8_TRY(f8_p_advance(p));
        F8_TRY(parse_binding(p));
    } while (f8_p_at(p, ','));
    return F8_OK;
}

f8_status f8_p_check_overrides(f8_parser *p)
{
    for (size_t i = 0; i < p->n_overrides; i++)
        if (!p->override_used[i])
            return f8_p_fail(p, F8_NOWHERE, "-D %s=%lld: the module '%s' has no dim of that name",
                             p->override[i].name, (long long)p->override[i].value, p->m->name);
    return F8_OK;
}

/* ---- axes that depend on bounds ---- */

f8_status f8_p_axes(f8_parser *p, const char *port, const f8_type *type)
{
    f8_module *m = p->m;
    for (int i = 0; i < type->rank; i++) {
        if (!p->axis_form[i].dim)
            continue;
        f8_axis *grown = f8_arena_grow(m->arena, m->axis, m->n_axes, &m->axis_room, m->n_axes + 1,
                                       sizeof *grown);
        if (!grown)
            return f8_p_memory(p);
        m->axis = grown;
        grown[m->n_axes++] = (f8_axis){p->f->name, port, i, p->axis_form[i]};
    }
    return F8_OK;
}

/* ---- the text, printed ---- */

/* The text is written twice: the first time only counts its bytes. */
typedef struct output {
    char *to; /* NULL: count only */
    size_t n;
} output;

static void put(output *o, const char *text, size_t n)
{
    if (o->to)
        memcpy(o->to + o->n, text, n);
    o->n += n;
}

/* Writes what stands between two tokens: at most one empty line, no comments, and the indentation
 * of the last line. Returns where the next token begins. */
static const char *put_gap(output *o, const char *at, const char *end)
{
    int lines = 0;
    bool empty = false, comment = false;
    const char *from = at;
    for (; at < end && (strchr(" \t\r\n", *at) || *at == '#'); at++) {
        if (*at == '#') {
            at = memchr(at, '\n', (size_t)(end - at));
            comment = true;
            if (!at)
                return end;
        }
        if (*at != '\n')
            continue;
        empty |= lines > 0 && !comment;
        comment = false;
        lines++;
        from = at + 1;
    }
    if (lines && o->n)
        put(o, "\n\n", empty ? 2 : 1);
    if (o->n && at < end)
        put(o, from, (size_t)(at - from));
    return at;
}

static void put_value(output *o, const f8_dim *d)
{
    char text[48];
    const int n =
        snprintf(text, sizeof text, " %s %lld", d->bound ? "<=" : "=", (long long)d->value);
    put(o, text, (size_t)n);
}

/* Writes all tokens. A dim whose value was overridden gets the new value. */
static f8_status put_source(const f8_parser *p, const char *text, size_t n, output *o)
{
    f8_lexer lex = f8_lex_begin(text, n);
    f8_token t;
    size_t next = 0;
    for (;;) {
        const char *from = lex.at;
        F8_TRY(f8_lex_next(&lex, &t, p->diag));
        if (next < p->m->n_dims && t.text == p->dim_text[next].from) {
            const bool given = p->m->dim[next].given;
            if (given)
                put_value(o, &p->m->dim[next]);
            while (given && t.text < p->dim_text[next].to) {
                from = lex.at;
                F8_TRY(f8_lex_next(&lex, &t, p->diag));
            }
            next++;
        }
        if (t.kind == F8_T_END)
            break;
        if (t.kind != F8_T_CLONE) /* a clone number follows the name directly */
            from = put_gap(o, from, lex.at);
        put(o, from, (size_t)(lex.at - from));
    }
    put(o, "\n", 1);
    return F8_OK;
}

f8_status f8_p_source(f8_parser *p, const char *text, size_t n)
{
    output count = {0}, written = {0};
    if (count_bounds(p->m) == 0)
        return F8_OK;
    F8_TRY(put_source(p, text, n, &count));
    char *source = f8_arena_array(p->arena, 1, count.n + 1);
    if (!source)
        return f8_p_memory(p);
    written.to = source;
    F8_TRY(put_source(p, text, n, &written));
    p->m->source = source;
    p->m->source_rules = p->m->n_rules;
    return F8_OK;
}
