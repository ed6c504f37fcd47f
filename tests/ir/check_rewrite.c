/* Rewriting a function, the uses of its values, and the verifier. */
#include "ir/ir.h"
#include "tests/shared/passes/one_func.h"
#include "tests/shared/suite.h"

/* ---- rewriting ---- */

START_TEST(rewrite_drops_the_dead)
{
    int32_t w = variable("w", 4, 8);
    f8_ref x = input("x", 4, 8);
    input("unused", 1, 1);
    f8_unary(g, F8_OP_EXP, x);
    g->at = (f8_loc){5, 9};
    f8_ref s = f8_binary(g, F8_OP_ADD, x, f8_func_var(f, w));
    f8_set_name(g, s, "sum");
    f8_ref c = f8_make_clone(g, F8_OP_NEG, &s, 1, NULL, 0, 7);
    f8_func_result(f, "y", c, -1);
    uint32_t before = g->n_nodes;
    ck_assert_int_eq(f8_func_rewrite(f, NULL, NULL), F8_OK);
    ck_assert_ptr_ne(f->graph, g);
    g = f->graph;
    ck_assert_uint_eq(g->n_nodes, before - 1); /* exp is gone, the unused input is not */
    ck_assert_uint_eq(f->n_in, 3);
    f8_ref neg = f->out[0].ref, sum = f8_at(g, neg)->in[0];
    ck_assert_uint_eq(f8_at(g, neg)->clone, 7);
    ck_assert_str_eq(g->name[sum], "sum");
    ck_assert_uint_eq(g->loc[sum].line, 5);
    ck_assert_uint_eq(f8_at(g, sum)->in[1], f8_func_var(f, w));
    ck_assert_int_eq(f8_verify(m, &diag), F8_OK);
}
END_TEST

/* mul(x, y) -> add(exp(x), v) with v a variable the function did not read before. */
static f8_ref to_add(void *user, f8_graph *to, const f8_graph *from, f8_ref old, const f8_ref *in)
{
    if (f8_at(from, old)->op != F8_OP_MUL)
        return 0;
    return f8_binary(to, F8_OP_ADD, f8_unary(to, F8_OP_EXP, in[0]),
                     f8_func_var(f, *(int32_t *)user));
}

START_TEST(rewrite_replaces)
{
    int32_t v = variable("v", 4, 8);
    f8_ref x = input("x", 4, 8), y = input("y", 4, 8);
    f8_ref p = f8_binary(g, F8_OP_MUL, x, y);
    f8_set_name(g, p, "product");
    f8_func_result(f, "p", p, -1);
    f8_func_result(f, "q", f8_unary(g, F8_OP_NEG, p), -1);
    ck_assert_int_eq(f8_func_rewrite(f, to_add, &v), F8_OK);
    g = f->graph;
    ck_assert_int_eq(f8_at(g, f->out[0].ref)->op, F8_OP_ADD);
    ck_assert_str_eq(g->name[f->out[0].ref], "product");
    ck_assert_uint_eq(f8_at(g, f->out[1].ref)->in[0], f->out[0].ref);
    ck_assert_uint_eq(f->n_in, 3);
    ck_assert_int_eq(f->in[2].var, v);
    ck_assert_int_eq(f8_verify(m, &diag), F8_OK);
}
END_TEST

static f8_ref to_nonsense(void *user, f8_graph *to, const f8_graph *from, f8_ref old,
                          const f8_ref *in)
{
    if (f8_at(from, old)->op != F8_OP_MUL)
        return 0;
    f8_func_var(f, *(int32_t *)user);
    return f8_unary(to, F8_OP_NOT, in[0]);
}

START_TEST(rewrite_fails_cleanly)
{
    int32_t v = variable("v", 4, 8);
    f8_ref x = input("x", 4, 8);
    f8_func_result(f, "p", f8_binary(g, F8_OP_MUL, x, x), -1);
    ck_assert_int_eq(f8_func_rewrite(f, to_nonsense, &v), F8_ERR_INPUT);
    ck_assert_ptr_eq(f->graph, g);
    ck_assert_uint_eq(f->n_in, 1);
    expect("not: f32[4, 8] (from %x): operand 1 must be bool, not f32");
    ck_assert_int_eq(f8_verify(m, &diag), F8_OK);
}
END_TEST

static int stop(void *user, const f8_progress_state *state)
{
    return !strcmp(state->item, user);
}

/* While a call works on the module, rewriting and verifying ask whether to go on. */
START_TEST(both_can_be_cancelled)
{
    const f8_progress to = {stop, "canonicalize"};
    f8_progress_phase phase = f8_progress_begin(&to, "passes", 9);
    f8_ref x = input("x", 4, 8);
    f8_func_result(f, "p", f8_binary(g, F8_OP_MUL, x, f8_unary(g, F8_OP_EXP, x)), -1);
    f8_unary(g, F8_OP_NEG, x); /* else nothing is copied */
    phase.item = "canonicalize";
    phase.done = 3;
    m->phase = &phase;
    ck_assert_int_eq(f8_verify(m, &diag), F8_OK); /* it asked just now */
    for (int i = 0; i < 2; i++) {
        phase.asked = -1e9; /* long ago */
        ck_assert_int_eq(i ? f8_verify(m, &diag) : f8_func_rewrite(f, NULL, NULL),
                         F8_ERR_CANCELLED);
        ck_assert_ptr_eq(f->graph, g);
        expect("cancelled by the progress callback: passes, 3 of 9 done");
    }
    m->phase = NULL;
    ck_assert_int_eq(f8_func_rewrite(f, NULL, NULL), F8_OK);
}
END_TEST

/* Sums of bytes are made in int64: what could overflow there is refused, with its place. */
START_TEST(too_many_bytes)
{
    const f8_type most = type2(F8_F32, F8_MOST_BYTES / 4, 1),
                  more = type2(F8_F32, F8_MOST_BYTES / 4, 2);
    ck_assert_int_eq(f8_type_bytes(&most), F8_MOST_BYTES);
    ck_assert_int_eq(f8_type_bytes(&more), -1);
    ck_assert(f8_type_valid(&most) && !f8_type_valid(&more));
    /* the input and what comes of it are 4096 values of 2^47 bytes: just 2^59 */
    f8_ref x = f8_func_input(f, "x", &most, -1);
    uint32_t line = 1;
    for (; line < 4096; line++) {
        g->at = (f8_loc){line, 3};
        x = f8_unary(g, F8_OP_EXP, x);
    }
    f8_func_result(f, "p", x, -1);
    ck_assert_msg(f8_verify(m, &diag) == F8_OK, "%s", diag.text);
    g->at = (f8_loc){line, 3};
    f8_func_result(f, "q", f8_unary(g, F8_OP_EXP, input("y", 1, 1)), -1); /* 8 bytes more */
    ck_assert_int_eq(f8_verify(m, &diag), F8_ERR_UNSUPPORTED);
    ck_assert_uint_eq(diag.loc.line, 4096);
    expect("the module's values have more than 2^59 bytes");
}
END_TEST

/* Where a copy would be the same graph, the graph stays: nothing is dead, and inputs come first. */
START_TEST(nothing_to_copy)
{
    const f8_ref x = input("x", 4, 8);
    f8_func_result(f, "y", f8_unary(g, F8_OP_NEG, x), -1);
    ck_assert_int_eq(f8_func_rewrite(f, NULL, NULL), F8_OK);
    ck_assert_ptr_eq(f->graph, g);
    f8_unary(g, F8_OP_EXP, x); /* dead */
    ck_assert_int_eq(f8_func_rewrite(f, NULL, NULL), F8_OK);
    ck_assert_ptr_ne(f->graph, g);
    ck_assert_uint_eq(f->graph->n_nodes, 3);
    const f8_graph *before = g = f->graph;
    const f8_ref late = input("z", 4, 8); /* behind the nodes */
    f8_func_result(f, "w", f8_unary(g, F8_OP_NEG, late), -1);
    ck_assert_int_eq(f8_func_rewrite(f, NULL, NULL), F8_OK);
    ck_assert_ptr_ne(f->graph, before);
    ck_assert_uint_eq(f->in[1].ref, 2);
    ck_assert_int_eq(f8_verify(m, &diag), F8_OK);
}
END_TEST

START_TEST(deep_and_wide)
{
    enum { DEPTH = 50000, WIDTH = 1024 };
    f8_ref x = input("x", 1, 2), r = x;
    for (int i = 0; i < DEPTH; i++)
        r = f8_binary(g, F8_OP_ADD, r, x);
    static f8_ref part[WIDTH];
    for (int i = 0; i < WIDTH; i++)
        part[i] = i % 2 ? r : x;
    f8_func_result(f, "y", f8_concat(g, part, WIDTH, 0), -1);
    ck_assert_int_eq(f8_func_rewrite(f, NULL, NULL), F8_OK);
    ck_assert_uint_eq(f->graph->n_nodes, DEPTH + 3);
    ck_assert_int_eq(f8_type_of(f->graph, f->out[0].ref)->dim[0], WIDTH);
    ck_assert_int_eq(f8_verify(m, &diag), F8_OK);
}
END_TEST

/* As many operands as a CONCAT takes are one node; more are concatenations of concatenations. */
START_TEST(wide_concat)
{
    enum { MOST = 1024, WIDTH = 2 * MOST + 1 };
    static f8_ref part[WIDTH];
    const f8_ref x = input("x", WIDTH + 1, 2);
    for (int i = 0; i < WIDTH; i++)
        part[i] = f8_slice(g, x, 0, WIDTH - i, WIDTH - i + 1);
    const f8_ref one = f8_concat(g, part, MOST, 0), all = f8_concat(g, part, WIDTH, 0);
    ck_assert_uint_eq(f8_at(g, one)->n_in, MOST);
    const f8_node *n = f8_at(g, all);
    ck_assert_uint_eq(n->n_in, 3);
    ck_assert_uint_eq(n->in[0], one);
    ck_assert_uint_eq(n->in[2], part[WIDTH - 1]);
    ck_assert_uint_eq(f8_at(g, n->in[1])->in[0], part[MOST]);
    ck_assert_int_eq(n->type.dim[0], WIDTH);
    f8_func_result(f, "y", all, -1);
    ck_assert_int_eq(f8_verify(m, &diag), F8_OK);
}
END_TEST

START_TEST(uses)
{
    f8_ref x = input("x", 4, 8), d = f8_binary(g, F8_OP_ADD, x, x), n = f8_unary(g, F8_OP_NEG, x);
    f8_func_result(f, "d", d, -1);
    f8_func_result(f, "again", d, -1);
    f8_func_result(f, "x", x, -1);
    f8_uses u;
    ck_assert_int_eq(f8_compute_uses(f, &arena, &u, &diag), F8_OK);
    const uint32_t want[] = {d, d, n, 0, 0, 0};
    ck_assert_uint_eq(u.start[x + 1] - u.start[x], 4);
    ck_assert_uint_eq(u.start[d + 1] - u.start[d], 2);
    ck_assert_uint_eq(u.start[n + 1] - u.start[n], 0);
    ck_assert_mem_eq(&u.user[u.start[x]], want, sizeof want);
}
END_TEST

/* ---- the verifier ---- */

static f8_node *node(f8_ref r)
{
    return &g->node[r];
}

static void corrupt(const char *text)
{
    ck_assert_int_eq(f8_verify(m, &diag), F8_ERR_INTERNAL);
    expect(text);
}

START_TEST(verify_catches)
{
    int32_t w = variable("w", 4, 8);
    f8_ref x = input("x", 4, 8), v = f8_func_var(f, w);
    f8_ref s = f8_binary(g, F8_OP_ADD, x, v), r = f8_unary(g, F8_OP_REDUCE_SUM, s);
    f8_func_result(f, "y", r, -1);
    f8_func_result(f, NULL, s, w);
    ck_assert_int_eq(f8_verify(m, &diag), F8_OK);
    f8_node sane = *node(s), sum = *node(r);

    node(s)->in = (f8_ref[]){x, r};
    corrupt("node 3 (add): an operand does not come before it");
    node(s)->in = (f8_ref[]){x, x};
    corrupt("node 3 (add): it changed after it was made");
    *node(s) = sane;
    node(s)->n_in = 1;
    corrupt("wrong number of operands");
    *node(s) = sane;
    node(s)->type.dim[0] = 5;
    corrupt("its type is not the one its operands give");
    *node(s) = sane;
    node(s)->op = F8_OP_COUNT;
    corrupt("there is no such op");
    node(s)->op = F8_OP_AND;
    ck_assert_int_eq(f8_verify(m, &diag), F8_ERR_INPUT);
    expect("and: f32[4, 8] (from %x)");
    *node(s) = sane;

    f8_attr attr[] = {F8_INT(F8_A_AXIS, -1), F8_INTS(F8_A_AXES, (f8_ints){0}),
                      F8_INT(F8_A_BLOCK, 0)};
    node(r)->attr = attr;
    corrupt("an attribute is not in canonical form");
    attr[0] = F8_INT(F8_A_START, 1);
    corrupt("attributes are not in table order");
    *node(r) = sum;

    f->in[0].ref = s;
    corrupt("port 'x': its node is not the INPUT of that port");
    f->in[0].ref = x;
    f->in[0].type.dim[0] = 1;
    corrupt("port 'x': its type is not its node's");
    f->in[0].type.dim[0] = 4;
    f->in[0].var = w;
    corrupt("port 'w': its variable has two ports");
    f->in[0].var = 9;
    corrupt("port 'x': there is no such variable");
    f->in[0].var = -1;
    f->out[0].ref = 99;
    corrupt("port 'y': its value is not a node");
    f->out[0].ref = r;
    f->out[1].var = -1;
    f->out[1].name = "y";
    corrupt("port 'y': another port has its name");
    f->out[1].var = w;
    m->var[w].type.dim[1] = 9;
    corrupt("its type is not its variable's");
    m->var[w].type.dim[1] = 8;
    f->n_in = 1;
    corrupt("no input port belongs to it");
    f->n_in = 2;
    m->accumulate = 0;
    corrupt("accumulate is 0");
    m->accumulate = 1;
    m->zero = 4;
    corrupt("zero is 4");
    m->zero = 0;
    ck_assert_int_eq(f8_verify(m, &diag), F8_OK);
}
END_TEST

START_TEST(verify_catches_projections)
{
    f8_type t = {.dtype = F8_F32, .rank = 3, .dim = {1, 2, 4}};
    f8_ref q = f8_func_input(f, "q", &t, -1);
    f8_ref o = f8_make(g, F8_OP_ATTENTION, (f8_ref[]){q, q, q}, 3, NULL, 0),
           lse = f8_project(g, o, 1);
    f8_func_result(f, "lse", lse, -1);
    ck_assert_int_eq(f8_verify(m, &diag), F8_OK);
    node(lse)->in = &q;
    corrupt("there is no such result to project");
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("rewrite");
    TCase *t = tcase_create("rewrite");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 60);
    tcase_add_test(t, rewrite_drops_the_dead);
    tcase_add_test(t, rewrite_replaces);
    tcase_add_test(t, rewrite_fails_cleanly);
    tcase_add_test(t, both_can_be_cancelled);
    tcase_add_test(t, too_many_bytes);
    tcase_add_test(t, nothing_to_copy);
    tcase_add_test(t, deep_and_wide);
    tcase_add_test(t, wide_concat);
    tcase_add_test(t, uses);
    tcase_add_test(t, verify_catches);
    tcase_add_test(t, verify_catches_projections);
    suite_add_tcase(s, t);
    return s;
}
