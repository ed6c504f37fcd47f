/* Tests of passes: see unit.h. */
#include "tests/shared/passes/unit.h"

#include "frontend/text/parse.h"
#include "tests/shared/passes/primitive.h"
#include "tests/shared/passes/program_check.h"

#include <check.h>
#include <math.h>
#include <string.h>

void test_unit_parse(test_unit *t, const char *text, const char *recipe)
{
    *t = (test_unit){0};
    f8_arena_init(&t->arena, NULL);
    f8_module *m = NULL;
    f8_parse(text, strlen(text), "test", NULL, 0, &t->arena, &t->diag, &m);
    ck_assert_msg(m, "%u:%u: %s\n%s", t->diag.loc.line, t->diag.loc.column, t->diag.text, text);
    t->unit = (f8_unit){.module = m, .arena = &t->arena, .diag = &t->diag};
    t->unit.options.recipe = f8_recipe_by_name(recipe);
    ck_assert_ptr_nonnull(t->unit.options.recipe);
}

void test_unit_end(test_unit *t)
{
    f8_arena_end(&t->arena);
}

f8_status test_pass_fails(test_unit *t, f8_status (*pass)(f8_unit *u))
{
    f8_status status = pass(&t->unit);
    return status == F8_OK ? f8_verify(t->unit.module, &t->diag) : status;
}

void test_pass(test_unit *t, f8_status (*pass)(f8_unit *u))
{
    ck_assert_msg(test_pass_fails(t, pass) == F8_OK, "%u:%u: %s", t->diag.loc.line,
                  t->diag.loc.column, t->diag.text);
}

void test_place(test_unit *t)
{
    test_pass(t, f8_pass_legalize);
    test_pass(t, f8_pass_group);
    test_pass(t, f8_pass_schedule);
    test_pass(t, f8_pass_memory);
    for (size_t i = 0; i < t->unit.module->n_funcs; i++)
        ck_assert_msg(f8_program_check(&t->unit.module->func[i], &t->diag) == F8_OK, "%s",
                      t->diag.text);
}

const f8_func *test_func(const test_unit *t, const char *name)
{
    const f8_func *f = f8_module_find_func(t->unit.module, name);
    ck_assert_msg(f, "there is no function %s", name);
    return f;
}

/* ---- printing and counting ---- */

typedef struct text_buffer {
    f8_arena *arena;
    char *text;
    size_t n, room;
} text_buffer;

static int append(void *user, const char *text, size_t n)
{
    text_buffer *b = user;
    char *grown = f8_arena_grow(b->arena, b->text, b->n, &b->room, b->n + n + 1, 1);
    if (!grown)
        return 1;
    b->text = grown;
    memcpy(b->text + b->n, text, n);
    b->n += n;
    b->text[b->n] = 0;
    return 0;
}

const char *test_print(test_unit *t, const char *func)
{
    text_buffer b = {.arena = &t->arena};
    ck_assert_int_eq(f8_print_module(t->unit.module, &(f8_writer){append, &b}), F8_OK);
    char *start = strstr(b.text, f8_arena_printf(&t->arena, "func %s(", func));
    ck_assert_msg(start, "%s is not printed", func);
    start = strchr(start, '\n') + 1;
    char *end = strstr(start, "\n}");
    return f8_arena_strndup(&t->arena, start, (size_t)(end + 1 - start));
}

int test_count(const f8_func *f, f8_op op, const char *role)
{
    int n = 0;
    for (f8_ref r = 1; r < f->graph->n_nodes; r++)
        n += f8_at(f->graph, r)->op == op &&
             (!role || !strcmp(f8_attr_s(f->graph, r, F8_A_ROLE), role));
    return n;
}

const f8_port *test_result(const f8_func *f, const char *name)
{
    for (size_t i = 0; i < f->n_out; i++)
        if (!strcmp(f->out[i].name, name))
            return &f->out[i];
    return NULL;
}

/* ---- values ---- */

/* Uniform in [-1, 1), from the name and position alone. */
static double noise(const char *name, int64_t i)
{
    uint64_t h = 0x9e3779b97f4a7c15u * (uint64_t)(i + 1);
    for (; *name; name++)
        h = (h ^ (unsigned char)*name) * 0x100000001b3u;
    h ^= h >> 29;
    h *= 0xbf58476d1ce4e5b9u;
    h ^= h >> 32;
    return (double)(h >> 11) / (double)(1ull << 52) - 1;
}

void *test_value(test_values *v, const char *name, const f8_type *type)
{
    for (int i = 0; i < v->n; i++)
        if (!strcmp(v->name[i], name))
            return v->data[i];
    ck_assert_int_lt(v->n, 256);
    int64_t n = f8_type_elements(type);
    double *d = f8_arena_array(&v->t->arena, (size_t)n, sizeof *d);
    int32_t *ids = (int32_t *)d;
    int64_t *wide = (int64_t *)d;
    for (int64_t i = 0; i < n; i++) {
        if (type->dtype == F8_I32)
            ids[i] = (int32_t)fabs(3 * noise(name, i));
        else if (type->dtype == F8_I64)
            wide[i] = (int64_t)fabs(3 * noise(name, i));
        else
            d[i] = noise(name, i);
    }
    v->name[v->n] = name;
    v->type[v->n] = *type;
    return v->data[v->n++] = d;
}

double *test_f64(test_values *v, const char *name)
{
    for (int i = 0; i < v->n; i++)
        if (!strcmp(v->name[i], name))
            return v->data[i];
    ck_abort_msg("there is no value %s", name);
}

void test_run_f64(const f8_func *f, test_values *in, test_values *out)
{
    const void **from = F8_NEW_ARRAY(&in->t->arena, const void *, f->n_in);
    void **to = F8_NEW_ARRAY(&in->t->arena, void *, f->n_out);
    for (size_t i = 0; i < f->n_in; i++)
        from[i] = test_value(in, f->in[i].name, &f->in[i].type);
    for (size_t i = 0; i < f->n_out; i++)
        to[i] = test_value(out, f->out[i].name, &f->out[i].type);
    f8_diag diag = {0};
    ck_assert_msg(test_reference_run_f64(f, from, to, &diag) == F8_OK, "%s", diag.text);
}
