/* What the table of ops says of types (DOC of ir/ops.def), held against inference. Each line, as
 * "f32[.., K], f32[K, N] -> f32[.., N]; ...", is read with random sizes and with every dtype. What
 * it allows must be inferred as it says. A dtype that it does not list must be refused, and so must
 * a size that differs where one letter stands twice. */
#include "ir/ir.h"
#include "tests/shared/suite.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 8, ROUNDS = 6, TEXT = 400 };

/* One reading of a line: values of its letters. */
typedef struct reading {
    f8_op op;
    int64_t size[26];   /* A to Z */
    f8_dtype dtype[26]; /* a to z */
    f8_ints any;        /* what `..` stands for */
    bool there[26];     /* an operand has the letter as its dtype */
    f8_attr attr[F8_MAX_ATTRS];
} reading;

/* An operand's type, and which letters its sizes have: bit 26 is `..`. */
typedef struct port {
    f8_type type;
    unsigned letters[F8_MAX_RANK];
    bool fixed; /* the dtype is named, not a letter */
} port;

static unsigned state;

static int draw(int n)
{
    state = state * 1103515245u + 12345u;
    return (int)(state >> 16) % n;
}

/* ---- reading a line ---- */

static f8_attr *attribute(reading *r, const char *name, size_t length)
{
    for (int i = 0; i < f8_op_facts(r->op)->n_attrs; i++) {
        const char *is = f8_attr_name(r->attr[i].key);
        if (strlen(is) == length && !memcmp(is, name, length))
            return &r->attr[i];
    }
    ck_abort_msg("%s: '%.*s' is no attribute", f8_op_facts(r->op)->name, (int)length, name);
    return NULL;
}

static f8_dtype read_dtype(reading *r, const char *at, size_t n, bool *fixed)
{
    const f8_dtype d = f8_dtype_by_name(at, n);
    *fixed = d != F8_DTYPE_COUNT;
    if (*fixed)
        return d;
    return n == 1 ? r->dtype[*at - 'a'] : (f8_dtype)attribute(r, at, n)->i;
}

/* A size: letters, numbers and attributes with + - * between them, from left to right. */
static int64_t read_size(reading *r, const char *at, size_t n, unsigned *letters)
{
    int64_t value = 0;
    char before = '+';
    for (const char *end = at + n; at < end;) {
        size_t word = strcspn(at, "+-*,]");
        int64_t x;
        if (isupper((unsigned char)*at) && word == 1) {
            x = r->size[*at - 'A'];
            *letters |= 1u << (*at - 'A');
        } else {
            x = isdigit((unsigned char)*at) ? atoll(at) : attribute(r, at, word)->i;
        }
        value = before == '+' ? value + x : before == '-' ? value - x : value * x;
        at += word;
        if (at < end)
            before = *at++;
    }
    return value;
}

/* "t[.., K]" at *at, which moves behind it. */
static port read_one(reading *r, const char **at)
{
    port p = {.type = {.rank = 0}};
    const size_t n = strcspn(*at, "[");
    p.type.dtype = read_dtype(r, *at, n, &p.fixed);
    for (const char *s = *at + n + 1;;) {
        const size_t length = strcspn(s, ",]");
        const bool list = length && !isupper((unsigned char)*s) && *s != '.' && s[length] == ']' &&
                          isalpha((unsigned char)*s) && !memchr(s, '-', length) &&
                          !memchr(s, '*', length) &&
                          f8_attr_kind_of(attribute(r, s, length)->key) == F8_ATTR_INTS;
        const f8_ints *many = list ? &attribute(r, s, length)->ints : &r->any;
        if (list || (length == 2 && !memcmp(s, "..", 2))) {
            for (int i = 0; i < many->n; i++) {
                p.letters[p.type.rank] = 1u << 26;
                p.type.dim[p.type.rank++] = many->v[i];
            }
        } else if (length) {
            const int64_t size = read_size(r, s, length, &p.letters[p.type.rank]);
            p.type.dim[p.type.rank++] = size;
        }
        s += length;
        if (*s == ']') {
            *at = s + 1;
            return p;
        }
        s += 2;
    }
}

/* The same, or the other type of "f32[T] (f32 m: f32[2, T])". */
static port read_port(reading *r, const char **at)
{
    port p = read_one(r, at);
    if (strncmp(*at, " (", 2))
        return p;
    const char *s = *at + 2;
    const size_t n = strcspn(s, " ");
    const char letter = s[n + 1];
    const bool is = r->there[letter - 'a'] && r->dtype[letter - 'a'] == f8_dtype_by_name(s, n);
    *at = s + n + 4; /* behind "f32 m: " */
    const port other = read_one(r, at);
    ck_assert_int_eq(**at, ')');
    ++*at;
    return is ? other : p;
}

static int read_ports(reading *r, const char **at, port *out)
{
    int n = 0;
    while (isalpha((unsigned char)**at)) {
        ck_assert_int_lt(n, MOST);
        out[n++] = read_port(r, at);
        if (strncmp(*at, ", ", 2))
            break;
        *at += 2;
    }
    return n;
}

/* ---- values for letters and attributes ---- */

static const char *choices(const char *line, char letter)
{
    for (const char *s = line; (s = strstr(s, "; ")); s += 2)
        if (s[2] == letter && s[3] == ':')
            return s + 5;
    return NULL;
}

/* Whether the list of a letter has the dtype. */
static bool allows(const char *line, char letter, f8_dtype d)
{
    const char *s = choices(line, letter);
    if (!s || !strncmp(s, "any", 3))
        return true;
    for (size_t n; *s && *s != ';'; s += n + strspn(s + n, ", ")) {
        n = strcspn(s, ",;");
        if (f8_dtype_by_name(s, n) == d)
            return true;
    }
    return false;
}

static void set_ints(reading *r, f8_attr_key key, const f8_ints *v)
{
    for (int i = 0; i < f8_op_facts(r->op)->n_attrs; i++)
        if (r->attr[i].key == key)
            r->attr[i].ints = *v;
}

static void set_int(reading *r, f8_attr_key key, int64_t v)
{
    for (int i = 0; i < f8_op_facts(r->op)->n_attrs; i++)
        if (r->attr[i].key == key)
            r->attr[i].i = v;
}

static reading new_reading(f8_op op)
{
    reading r = {.op = op};
    memcpy(r.attr, f8_op_facts(op)->attrs, sizeof r.attr);
    for (int i = 0; i < 26; i++)
        r.size[i] = 2 * (2 + draw(7)); /* even, and none is 1, which would broadcast */
    r.any.n = draw(3);
    for (int i = 0; i < r.any.n; i++)
        r.any.v[i] = 2 + draw(5);
    set_int(&r, F8_A_HEADS, 4);
    set_int(&r, F8_A_KV_HEADS, 2);
    set_int(&r, F8_A_START, 1);
    set_int(&r, F8_A_STOP, 3);
    f8_ints shape = {.n = 2, .v = {3, 4}}, perm = {.n = r.any.n};
    for (int i = 0; i < perm.n; i++)
        perm.v[i] = i;
    if (op == F8_OP_RESHAPE || op == F8_OP_BROADCAST)
        shape = r.any;
    set_ints(&r, F8_A_SHAPE, &shape);
    set_ints(&r, F8_A_PERM, &perm);
    return r;
}

/* ---- trying it ---- */

/* Makes the node in a module of its own. Whether inference takes it with these results; NULL: with
 * any. */
static bool takes(const reading *r, const port *in, int n_in, const port *results, int n_results)
{
    f8_diag diag = {0};
    f8_arena arena;
    f8_arena_init(&arena, NULL);
    f8_module *m = f8_module_create(&arena, &diag, "m", "test");
    f8_func *f = f8_module_func(m, "f");
    f8_ref ref[MOST];
    for (int i = 0; i < n_in; i++) {
        char name[8];
        snprintf(name, sizeof name, "x%d", i);
        ref[i] = f8_func_input(f, name, &in[i].type, -1);
    }
    const f8_op_info *o = f8_op_facts(r->op);
    const f8_ref y = f8_make(f->graph, r->op, ref, n_in, r->attr, o->n_attrs);
    bool ok = y != 0;
    for (int i = 0; i < n_results && ok; i++) {
        const f8_ref result = i ? f8_project(f->graph, y, i) : y;
        ok = f8_type_equal(f8_type_of(f->graph, result), &results[i].type);
    }
    f8_arena_end(&arena);
    return ok;
}

static bool stands_twice(const port *in, int n, unsigned letters, int of)
{
    for (int i = 0; i < n; i++)
        for (int d = 0; d < in[i].type.rank && i != of; d++)
            if (in[i].letters[d] & letters)
                return true;
    return false;
}

/* Every size that must be equal to another is changed, and every dtype that is named. */
static void refuses_others(const reading *r, const char *line, const port *in, int n)
{
    const char *op = f8_op_facts(r->op)->name;
    for (int i = 0; i < n; i++) {
        port other[MOST];
        for (int d = 0; d < in[i].type.rank; d++) {
            memcpy(other, in, sizeof other);
            other[i].type.dim[d]++;
            if (in[i].letters[d] && r->op != F8_OP_CONCAT &&
                stands_twice(in, n, in[i].letters[d], i))
                ck_assert_msg(!takes(r, other, n, NULL, 0),
                              "%s takes another size as axis %d of operand %d: %s", op, d, i, line);
        }
        for (int t = 0; t < F8_DTYPE_COUNT && in[i].fixed; t++) {
            memcpy(other, in, sizeof other);
            other[i].type.dtype = (f8_dtype)t;
            if (t != (int)in[i].type.dtype)
                ck_assert_msg(!takes(r, other, n, NULL, 0), "%s takes %s as operand %d: %s", op,
                              f8_dtype_name((f8_dtype)t), i, line);
        }
    }
}

/* Which letters the first k operands have as dtypes. A dtype stands behind the start or ", ". */
static void set_there(reading *r, const char *line, int k)
{
    const char *end = strstr(line, "-> ");
    memset(r->there, 0, sizeof r->there);
    for (const char *s = line; k > 0 && s < end; s++) {
        const bool begins = s == line || (s > line + 1 && !strncmp(s - 2, ", ", 2));
        if (!begins || !islower((unsigned char)*s))
            continue;
        const size_t n = strcspn(s, "[,] (");
        if (s[n] != '[') /* an attribute among sizes */
            continue;
        if (n == 1)
            r->there[*s - 'a'] = true;
        k--;
    }
}

/* One line under one reading, with k operands. Returns how many it has in all. */
static int read_line(reading *r, const char *line, int k, port *in, port *out)
{
    const f8_op_info *o = f8_op_facts(r->op);
    const char *at = line;
    set_there(r, line, k);
    const int n = read_ports(r, &at, in);
    at += *at == ' ';
    ck_assert_msg(!strncmp(at, "-> ", 3), "%s: no arrow in '%s'", o->name, line);
    at += 3;
    const int results = read_ports(r, &at, out);
    ck_assert_msg(!*at || *at == ';', "%s: '%s' in '%s'", o->name, at, line);
    ck_assert_msg(results == o->results, "%s has %d results: %s", o->name, o->results, line);
    return n;
}

/* One line under one reading: `listed` says whether it allows the letters' dtypes. */
static void hold(reading *r, const char *line, bool listed)
{
    const f8_op_info *o = f8_op_facts(r->op);
    port in[MOST] = {0}, out[MOST];
    const int n = read_line(r, line, MOST, in, out), results = o->results;
    ck_assert_msg(n >= o->min_in && (n == o->max_in || strstr(o->operands, "...")), "%s: %s",
                  o->name, line);
    for (int k = o->min_in > 0 ? o->min_in : n; k <= n; k++) {
        read_line(r, line, k, in, out);
        /* a letter may be that of an optional operand alone: with all of them it is held */
        if (k == n || (listed && r->op != F8_OP_CONCAT))
            ck_assert_msg(takes(r, in, k, out, results) == listed, "%s with %d operands %s: %s",
                          o->name, k, listed ? "is refused or gives other types" : "is taken",
                          line);
    }
    if (listed)
        refuses_others(r, line, in, n);
}

/* Every dtype for each letter of the line (at most 3), from the `at`-th on. */
static void each_dtype(reading *r, const char *line, const char *letters, bool listed)
{
    if (!*letters) {
        hold(r, line, listed);
        return;
    }
    for (int d = 0; d < F8_DTYPE_COUNT; d++) {
        r->dtype[*letters - 'a'] = (f8_dtype)d;
        each_dtype(r, line, letters + 1, listed && allows(line, *letters, (f8_dtype)d));
    }
}

START_TEST(types)
{
    const f8_op op = (f8_op)_i;
    const f8_op_info *o = f8_op_facts(op);
    char buf[TEXT], letters[4] = "";
    const char *line = f8_op_types(op, buf, sizeof buf);
    ck_assert_uint_lt(strlen(line), 320); /* fp8c_op_info has so much room */
    if (op == F8_OP_INPUT || op == F8_OP_PROJECT)
        return;
    state = 7u * (unsigned)op;
    for (const char *s = line; (s = strstr(s, "; ")); s += 2)
        if (s[3] == ':')
            strncat(letters, s + 2, 1);
    for (int round = 0; round < ROUNDS; round++) {
        reading r = new_reading(op);
        each_dtype(&r, line, letters, true);
    }
    const char *to = strstr(line, "; to: ");
    for (int d = 0; d < F8_DTYPE_COUNT && to; d++) {
        reading r = new_reading(op);
        set_int(&r, F8_A_TO, d);
        hold(&r, line, strstr(to, f8_dtype_name((f8_dtype)d)) != NULL);
    }
    ck_assert_msg(*o->text && o->text[strlen(o->text) - 1] != '.', "%s: '%s'", o->name, o->text);
}
END_TEST

/* As many names as operands, or "..." at the end; a text for each attribute. */
START_TEST(names)
{
    for (int op = F8_OP_NONE + 1; op < F8_OP_COUNT; op++) {
        const f8_op_info *o = f8_op_facts((f8_op)op);
        int n = *o->operands != 0;
        for (const char *s = o->operands; *s; s++)
            n += *s == ' ';
        const bool any = n > 0 && strstr(o->operands, " ...");
        ck_assert_msg(any ? o->max_in > n : o->max_in == n, "%s: '%s'", o->name, o->operands);
    }
    for (int key = 0; key < F8_A_COUNT; key++)
        ck_assert_msg(*f8_attr_text((f8_attr_key)key), "%s", f8_attr_name((f8_attr_key)key));
}
END_TEST

START_TEST(gradients)
{
    ck_assert_int_eq(f8_op_gradient_of(F8_OP_LINEAR), F8_GRADIENT_RULE);
    ck_assert_int_eq(f8_op_gradient_of(F8_OP_FLOOR), F8_GRADIENT_ZERO);
    ck_assert_int_eq(f8_op_gradient_of(F8_OP_QUANTIZE), F8_GRADIENT_ERROR);
    ck_assert_int_eq(f8_op_gradient_of(F8_OP_PROJECT), F8_GRADIENT_ERROR);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("ops");
    TCase *t = tcase_create("ops");
    tcase_add_loop_test(t, types, F8_OP_NONE + 1, F8_OP_COUNT);
    tcase_add_test(t, names);
    tcase_add_test(t, gradients);
    suite_add_tcase(s, t);
    return s;
}
