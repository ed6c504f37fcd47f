/* The graph and the module: the tables of ops, hash-consing, builders, names, and each of them with
 * memory running out. check_rewrite.c tests rewriting and the verifier, check_infer.c type
 * inference, check_print.c the printer. */
#include "ir/ir.h"
#include "tests/shared/passes/one_func.h"
#include "tests/shared/suite.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- tables ---- */

START_TEST(op_table)
{
    for (int op = 1; op < F8_OP_COUNT; op++) {
        const f8_op_info *info = f8_op_facts((f8_op)op);
        ck_assert_int_eq(f8_op_by_name(info->name, strlen(info->name)), op);
        for (int i = 0; i < info->n_attrs; i++) {
            f8_attr_key key = info->attrs[i].key;
            ck_assert_int_eq(f8_attr_by_name(f8_attr_name(key), strlen(f8_attr_name(key))), key);
            ck_assert(f8_attr_kind_of(key) != F8_ATTR_STR || info->attrs[i].s);
        }
    }
    ck_assert_int_eq(f8_op_by_name("addd", 4), F8_OP_NONE);
    ck_assert_int_eq(f8_op_by_name("none", 4), F8_OP_NONE);
    ck_assert_int_eq(f8_attr_by_name("axi", 3), F8_A_COUNT);
    const f8_op_info *rope = f8_op_facts(F8_OP_ROPE), *gelu = f8_op_facts(F8_OP_GELU);
    ck_assert_int_eq(rope->n_attrs, 7);
    ck_assert_int_eq(rope->attrs[0].i, 1);
    ck_assert_double_eq(rope->attrs[1].f, 10000); /* an int in the table, a double by its kind */
    ck_assert_double_eq(f8_op_facts(F8_OP_LAYERNORM)->attrs[0].f, 1e-5);
    ck_assert_str_eq(gelu->attrs[0].s, "tanh");
    ck_assert_int_eq(f8_op_facts(F8_OP_ADD)->n_attrs, 0);
    ck_assert_int_eq(f8_op_facts(F8_OP_REDUCE_SUM)->attrs[0].i, -1);
    ck_assert_int_eq(f8_op_facts(F8_OP_FP8_SCALE)->attrs[0].i, F8_E4M3);
}
END_TEST

/* ---- hash-consing ---- */

START_TEST(equal_nodes_are_one)
{
    f8_ref x = input("x", 4, 8), y = input("y", 4, 8);
    f8_ref s = f8_binary(g, F8_OP_ADD, x, y);
    ck_assert_uint_eq(f8_binary(g, F8_OP_ADD, x, y), s);
    ck_assert_uint_ne(f8_binary(g, F8_OP_ADD, y, x), s);
    ck_assert_uint_ne(f8_binary(g, F8_OP_MUL, x, y), s);
    ck_assert_uint_eq(f8_reduce(g, F8_OP_REDUCE_SUM, x, -1), f8_reduce(g, F8_OP_REDUCE_SUM, x, 1));
    ck_assert_uint_eq(f8_reduce(g, F8_OP_REDUCE_SUM, x, -1), f8_unary(g, F8_OP_REDUCE_SUM, x));
    ck_assert_uint_ne(f8_reduce(g, F8_OP_REDUCE_SUM, x, 0), f8_unary(g, F8_OP_REDUCE_SUM, x));
    ck_assert_uint_eq(f8_const(g, 0.1), f8_const(g, (double)0.1f)); /* one f32 */
    ck_assert_uint_ne(f8_const(g, 0.0), f8_const(g, -0.0));
    ck_assert_uint_eq(f8_const(g, NAN), f8_const(g, NAN));
    f8_attr roll[] = {F8_INT(F8_A_SHIFT, -1)},
            same[] = {F8_INT(F8_A_GROUP, 8), F8_INT(F8_A_SHIFT, 7)};
    ck_assert_uint_eq(f8_make(g, F8_OP_ROLL, &x, 1, roll, 1),
                      f8_make(g, F8_OP_ROLL, &x, 1, same, 2));
    char name[] = "head", again[] = "head"; /* strings count, not their addresses */
    f8_attr a = F8_STR(F8_A_NAME, name), b = F8_STR(F8_A_NAME, again),
            c = F8_STR(F8_A_NAME, "tail");
    f8_ref w = f8_make(g, F8_OP_TRANSPOSE, &y, 1, &F8_INTS(F8_A_PERM, ((f8_ints){2, {1, 0}})), 1);
    f8_ref p = f8_make(g, F8_OP_MATMUL, (f8_ref[]){x, w}, 2, &a, 1);
    ck_assert_uint_eq(f8_make(g, F8_OP_MATMUL, (f8_ref[]){x, w}, 2, &b, 1), p);
    ck_assert_uint_ne(f8_make(g, F8_OP_MATMUL, (f8_ref[]){x, w}, 2, &c, 1), p);
    f8_ref copy = f8_make_clone(g, F8_OP_ADD, (f8_ref[]){x, y}, 2, NULL, 0, 1);
    ck_assert_uint_ne(copy, s);
    ck_assert_uint_eq(f8_make_clone(g, F8_OP_ADD, (f8_ref[]){x, y}, 2, NULL, 0, 1), copy);
    ck_assert_uint_eq(f8_at(g, copy)->clone, 1);
    ck_assert_int_eq(diag.status, F8_OK);
    ck_assert_int_eq(f8_verify(m, &diag), F8_OK);
}
END_TEST

START_TEST(attributes_and_names)
{
    f8_ref x = input("x", 4, 8);
    f8_attr attr[] = {F8_INT(F8_A_HEADS, 2), F8_FLOAT(F8_A_BASE, 500)};
    f8_ref r = f8_make(g, F8_OP_ROPE, &x, 1, attr, 2);
    ck_assert_int_eq(f8_attr_i(g, r, F8_A_HEADS), 2);
    ck_assert_double_eq(f8_attr_f(g, r, F8_A_BASE), 500);
    ck_assert_int_eq(f8_attr_i(g, r, F8_A_INVERSE), 0);
    ck_assert_ptr_null(f8_attr_get(g, r, F8_A_EPS));
    ck_assert_str_eq(f8_attr_s(g, r, F8_A_NAME), "");
    ck_assert_int_eq(f8_attr_ints(g, r, F8_A_SHAPE).n, 0);
    f8_set_name(g, r, "turned");
    f8_set_name(g, r, "other");
    ck_assert_str_eq(g->name[r], "turned");
    ck_assert_ptr_eq(f8_intern(m, "turned"), g->name[r]);
    ck_assert_ptr_eq(f8_intern_n(m, "turned around", 6), g->name[r]);
}
END_TEST

/* 2^30 nodes take minutes and 100 GiB, so this test lowers the limit of its graph. */
START_TEST(most_nodes)
{
    enum { MOST = 100 };
    ck_assert_uint_eq(g->most_nodes, F8_MAX_NODES);
    ck_assert_uint_eq(F8_MAX_NODES, 1u << 30);
    g->most_nodes = MOST;
    f8_ref r = input("x", 4, 8);
    for (uint32_t i = 2; i <= MOST; i++)
        r = f8_unary(g, F8_OP_EXP, r);
    ck_assert_uint_eq(r, MOST);
    ck_assert_int_eq(f8_verify(m, &diag), F8_OK);
    g->at = (f8_loc){7, 3};
    ck_assert_uint_eq(f8_unary(g, F8_OP_EXP, r - 1), r); /* one that is there is not made again */
    ck_assert_uint_eq(f8_unary(g, F8_OP_EXP, r), 0);
    ck_assert_int_eq(diag.status, F8_ERR_UNSUPPORTED);
    ck_assert_uint_eq(diag.loc.line, 7);
    expect("the graph has more than 100 nodes");
}
END_TEST

START_TEST(failures_travel)
{
    f8_ref x = input("x", 4, 8), y = input("y", 3, 8);
    ck_assert_uint_eq(f8_binary(g, F8_OP_ADD, x, y), 0);
    f8_diag first = diag;
    ck_assert_int_eq(first.status, F8_ERR_INPUT);
    ck_assert_uint_eq(f8_unary(g, F8_OP_EXP, 0), 0);
    ck_assert_uint_eq(f8_cast(g, 0, F8_BF16), 0);
    ck_assert_uint_eq(f8_sum_all(g, 0), 0);
    ck_assert_uint_eq(f8_sum_to(g, 0, &(f8_type){0}), 0);
    ck_assert_uint_eq(f8_slice(g, 0, 0, 0, 1), 0);
    ck_assert_uint_eq(f8_unary(g, F8_OP_EXP, 12345), 0);
    ck_assert_str_eq(diag.text, first.text);
    ck_assert_int_eq(f8_func_result(f, "z", 0, -1), F8_ERR_INPUT); /* of the first */
    ck_assert_int_eq(f8_func_rewrite(f, NULL, NULL), F8_ERR_INPUT);
}
END_TEST

/* ---- builders ---- */

START_TEST(sums_undo_broadcasting)
{
    static const f8_type from[] = {
        {.rank = 3, .dim = {2, 3, 4}},
        {.rank = 1, .dim = {4}},
        {.rank = 0},
        {.rank = 4, .dim = {2, 1, 3, 1}},
    };
    static const f8_type to[] = {
        {.rank = 3, .dim = {2, 3, 4}},    {.rank = 3, .dim = {2, 3, 1}},
        {.rank = 3, .dim = {2, 1, 4}},    {.rank = 3, .dim = {1, 3, 4}},
        {.rank = 3, .dim = {1, 1, 4}},    {.rank = 3, .dim = {2, 1, 1}},
        {.rank = 3, .dim = {1, 3, 1}},    {.rank = 2, .dim = {3, 4}},
        {.rank = 2, .dim = {3, 1}},       {.rank = 1, .dim = {4}},
        {.rank = 1, .dim = {1}},          {.rank = 0},
        {.rank = 4, .dim = {2, 1, 1, 1}},
    };
    int done = 0;
    for (size_t i = 0; i < sizeof from / sizeof *from; i++)
        for (size_t j = 0; j < sizeof to / sizeof *to; j++) {
            bool fits = to[j].rank <= from[i].rank;
            for (int d = 0; fits && d < to[j].rank; d++) {
                int64_t have = from[i].dim[d + from[i].rank - to[j].rank];
                fits = to[j].dim[d] == 1 || to[j].dim[d] == have;
            }
            if (!fits)
                continue;
            char name[16];
            snprintf(name, sizeof name, "x%zu_%zu", i, j);
            f8_ref s = f8_sum_to(g, f8_func_input(f, name, &from[i], -1), &to[j]);
            ck_assert_msg(s != 0, "%s: %s", name, diag.text);
            ck_assert_msg(f8_type_equal(f8_type_of(g, s), &to[j]), "%s", name);
            done++;
        }
    ck_assert_int_ge(done, 16);
    f8_ref x = input("x", 4, 8);
    ck_assert_uint_eq(f8_sum_to(g, x, f8_type_of(g, x)), x);
    ck_assert_uint_eq(f8_reshape(g, x, f8_type_of(g, x)), x);
    ck_assert_uint_eq(f8_broadcast(g, x, f8_type_of(g, x)), x);
    ck_assert_uint_eq(f8_cast(g, x, F8_F32), x);
    ck_assert_uint_eq(f8_slice(g, x, -1, 0, 8), x);
    ck_assert_uint_eq(f8_concat(g, &x, 1, 0), x);
    ck_assert_int_eq(f8_at(g, f8_sum_all(g, x))->op, F8_OP_RESHAPE);
    ck_assert_int_eq(f8_verify(m, &diag), F8_OK);
}
END_TEST

/* ---- module ---- */

START_TEST(module_names)
{
    int32_t w = variable("w", 2, 2);
    ck_assert_int_eq(w, 0);
    ck_assert_int_eq(f8_module_find_var(m, "w"), w);
    ck_assert_int_eq(f8_module_find_var(m, "forward"), -1);
    f8_ref r = f8_func_var(f, w);
    ck_assert_uint_eq(f8_func_var(f, w), r);
    ck_assert_uint_eq(f->n_in, 1);
    ck_assert_uint_ne(input("w", 2, 2), 0); /* %w is not w */
    ck_assert_int_eq(f8_func_result(f, "w", r, -1), F8_OK);
    ck_assert_int_eq(f8_func_result(f, NULL, r, w), F8_OK);
    ck_assert_int_eq(diag.status, F8_OK);
    for (int i = 0; i < 700; i++) { /* the interner grows, the indices stay */
        char name[24];
        snprintf(name, sizeof name, "layer.%d", i);
        ck_assert_int_eq(variable(name, 1, 1), i + 1);
    }
    ck_assert_int_eq(f8_module_find_var(m, "layer.3"), 4);
    ck_assert_ptr_eq(f8_module_find_func(m, "forward"), f);
    ck_assert_int_eq(f8_verify(m, &diag), F8_OK);
}
END_TEST

START_TEST(module_errors)
{
    f8_var v = {.name = "w", .type = type2(F8_F32, 2, 2), .loc = {3, 1}};
    int32_t w = f8_module_var(m, &v);
    ck_assert_int_eq(f8_module_var(m, &v), -1);
    expect("'w' is already declared, at 3:1");
    v.name = "a b";
    f8_module_var(m, &v);
    expect("'a b' is not a name");
    v.name = "3x";
    f8_module_var(m, &v);
    expect("'3x' is not a name");
    v.name = "v";
    v.type.dim[1] = 0;
    f8_module_var(m, &v);
    expect("'v': size 0 of axis 1 is not positive");
    v.type = type2(F8_F32, INT64_MAX / 2, 2);
    f8_module_var(m, &v);
    expect("'v': it has more than 2^47 bytes");
    v.type.rank = 9;
    f8_module_var(m, &v);
    expect("'v': at most 8 axes");
    v.type = type2(F8_I32, 2, 2);
    v.init = F8_INIT_NORMAL;
    f8_module_var(m, &v);
    expect("only f32 and bf16 can be initialized at random, not i32");
    ck_assert_ptr_null(f8_module_func(m, "forward"));
    expect("function 'forward' is already defined");
    ck_assert_ptr_null(f8_module_func(m, ""));
    expect("'' is not a name for a function");
    f8_ref x = input("x", 4, 8);
    ck_assert_uint_eq(input("x", 4, 8), 0);
    expect("forward: there already is an input 'x'");
    ck_assert_uint_eq(input("y", 4, 0), 0);
    expect("input 'y' has no valid shape");
    ck_assert_uint_eq(f8_func_var(f, 5), 0);
    expect("there is no variable 5");
    f8_func_result(f, "out", x, -1);
    f8_func_result(f, "out", x, -1);
    expect("there already is a result 'out'");
    f8_func_result(f, NULL, x, w);
    expect("forward: 'w' is f32[2, 2] and can't be replaced by f32[4, 8]");
    f8_ref r = f8_func_var(f, w);
    f8_func_result(f, NULL, r, w);
    f8_func_result(f, NULL, r, w);
    expect("'w' is replaced twice");
    f8_func_result(f, "a-b", r, -1);
    expect("'a-b' is not a name");
}
END_TEST

/* ---- memory ---- */

typedef struct failing {
    int left; /* allocations that succeed */
} failing;

static void *failing_alloc(void *user, size_t size, size_t align)
{
    failing *a = user;
    if (a->left-- <= 0)
        return NULL;
    void *p = NULL;
    return posix_memalign(&p, align < sizeof p ? sizeof p : align, size) ? NULL : p;
}

static void failing_free(void *user, void *p, size_t size)
{
    (void)user;
    (void)size;
    free(p);
}

static int discard(void *user, const char *bytes, size_t n)
{
    (void)user;
    (void)bytes;
    (void)n;
    return 0;
}

/* All that allocates, but for what takes a scratch arena; `size` scales it. */
static f8_status exercise(f8_arena *a, int size, f8_diag *d)
{
    m = f8_module_create(a, d, "test", "test.f8");
    f = m ? f8_module_func(m, "forward") : NULL;
    if (!f)
        return d->status;
    g = f->graph;
    f8_ref x = input("x", 4, 8), r = x;
    for (int i = 0; i < size; i++) {
        char name[24];
        snprintf(name, sizeof name, "w.%d", i);
        int32_t w = variable(name, 4, 8);
        r = f8_binary(g, F8_OP_ADD, r, w < 0 ? 0 : f8_func_var(f, w));
        f8_set_name(g, r, name);
        r = f8_reshape(g, r, &(f8_type){.rank = 1, .dim = {32}});
        r = f8_reshape(g, r, &(f8_type){.rank = 2, .dim = {4, 8}});
        if (w >= 0)
            f8_func_result(f, NULL, r, w);
    }
    f8_func_result(f, "sum", f8_sum_all(g, r), -1);
    if (d->status != F8_OK)
        return d->status;
    f8_uses u;
    f8_status status = f8_func_rewrite(f, NULL, NULL);
    return status == F8_OK ? f8_compute_uses(f, a, &u, d) : status;
}

/* The allocator fails at its k-th call. */
START_TEST(memory_runs_out_by_chunks)
{
    for (int k = 0;; k++) {
        failing user = {k};
        f8_allocator allocator = {failing_alloc, failing_free, &user};
        f8_diag d = {0};
        f8_arena a;
        f8_arena_init(&a, &allocator);
        f8_status status = exercise(&a, 2000, &d);
        if (status == F8_OK)
            status = f8_verify(m, &d);
        if (status == F8_OK)
            status = f8_print_module(m, &(f8_writer){discard, NULL});
        f8_arena_end(&a);
        ck_assert_msg(status == F8_OK || status == F8_ERR_MEMORY, "k = %d: %s", k, d.text);
        if (status == F8_OK)
            break;
        ck_assert_int_lt(k, 100);
    }
}
END_TEST

/* All but the last `room` bytes of the first chunk are taken and there is no second: any single
 * allocation of the arena gets to fail. */
START_TEST(memory_runs_out_by_bytes)
{
    bool done = false;
    for (size_t room = 0; room < 120000 && !done; room += 80) {
        failing user = {1};
        f8_allocator allocator = {failing_alloc, failing_free, &user};
        f8_diag d = {0};
        f8_arena a;
        f8_arena_init(&a, &allocator);
        f8_arena_array(&a, 131000 - room, 1);
        user.left = 0;
        f8_status status = exercise(&a, 4, &d);
        done = status == F8_OK;
        ck_assert_msg(status == d.status && (done || status == F8_ERR_MEMORY), "%zu bytes: %s",
                      room, d.text);
        f8_arena_end(&a);
    }
    ck_assert(done);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("ir");
    TCase *t = tcase_create("ir");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 60);
    tcase_add_test(t, op_table);
    tcase_add_test(t, equal_nodes_are_one);
    tcase_add_test(t, attributes_and_names);
    tcase_add_test(t, most_nodes);
    tcase_add_test(t, failures_travel);
    tcase_add_test(t, sums_undo_broadcasting);
    tcase_add_test(t, module_names);
    tcase_add_test(t, module_errors);
    suite_add_tcase(s, t);
    TCase *memory = tcase_create("memory");
    tcase_set_timeout(memory, 120);
    tcase_add_test(memory, memory_runs_out_by_chunks);
    tcase_add_test(memory, memory_runs_out_by_bytes);
    suite_add_tcase(s, memory);
    return s;
}
