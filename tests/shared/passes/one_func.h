/* A module with one function, "forward", as a fixture for tests that build graphs by calls. */
#ifndef F8_TEST_ONE_FUNC_H
#define F8_TEST_ONE_FUNC_H

#include "ir/ir.h"

#include <check.h>
#include <string.h>

static f8_diag diag;
static f8_arena arena;
static f8_module *m;
static f8_func *f;
static f8_graph *g;

static f8_type type2(f8_dtype d, int64_t rows, int64_t columns)
{
    return (f8_type){.dtype = d, .rank = 2, .dim = {rows, columns}};
}

static void setup(void)
{
    diag = (f8_diag){0};
    f8_arena_init(&arena, NULL);
    m = f8_module_create(&arena, &diag, "test", "test.f8");
    f = f8_module_func(m, "forward");
    g = f->graph;
}

static void teardown(void)
{
    f8_arena_end(&arena);
}

static f8_ref input(const char *name, int64_t rows, int64_t columns)
{
    f8_type t = type2(F8_F32, rows, columns);
    return f8_func_input(f, name, &t, -1);
}

static int32_t variable(const char *name, int64_t rows, int64_t columns)
{
    f8_var v = {.name = name,
                .type = type2(F8_F32, rows, columns),
                .init = F8_INIT_NORMAL,
                .init_arg = 0.02};
    return f8_module_var(m, &v);
}

/* The last call failed, with this in its message; the diag is clean again. */
static inline void expect(const char *text)
{
    ck_assert_msg(diag.status != F8_OK && strstr(diag.text, text), "'%s' in '%s'", text, diag.text);
    diag = (f8_diag){0};
}

#endif
