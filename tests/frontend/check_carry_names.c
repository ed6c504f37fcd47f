/* The names of operands, by which fp8c_program_carry finds them: those that several linears share,
 * those of a chunked head, and those of a program from a file. */
#include "tests/shared/api/carry.h"
#include "tests/shared/suite.h"

/* ---- chunks ---- */

/* A chunked head has operands for each chunk. A number that the other lacks takes nothing. */
START_TEST(chunks)
{
    static const char text[] =
        "module head\ndim T = 64\nparam wte: f32[16, 2] normal(0.5)\n"
        "param head: f32[2, 1048576] normal(0.5)\n"
        "func forward(%tokens: i32[T], %targets: i32[T]) -> (%loss: f32[]) {\n"
        "  return cross_entropy(linear(embedding(wte, %tokens), head), %targets)\n}\n"
        "optimizer adamw {lr = 0.1}\n";
    const fp8c_compile_options o = recipe("delayed");
    fp8c_program *two = start(text, 64, NULL, &o), *three = start(text, 96, NULL, &o);
    float row[16] = {0};
    static const char *const names[] = {"head.x", "head.x.1", "head.dy", "head.dy.1", "head.w"};
    for (int i = 0; i < 5; i++) {
        row[0] = (float)(i + 2);
        write_history(two, names[i], row, 16);
    }
    carry(three, two, 5, 2, 0);
    for (int i = 0; i < 5; i++) {
        history_of(three, names[i], row);
        ck_assert_float_eq(row[0], (float)(i + 2));
    }
    ck_assert_float_eq(scale_of(three, "head.x.1"), 448 / 3.0f);
    ck_assert_float_eq(scale_of(three, "head.x.2"), 1);
    ck_assert_float_eq(scale_of(three, "head.dy.2"), 1);
    carry(two, three, 5, 0, 2);
    fp8c_program_destroy(two);
    fp8c_program_destroy(three);
}
END_TEST

/* ---- names of shared operands ---- */

static void aliases_are(fp8c_program *p, const char *name, const char *first, const char *second)
{
    static const char *const states[] = {"fp8.scale", "fp8.amax", "fp8.amax_history"};
    for (int i = 0; i < 3; i++) {
        const int variable = fp8c_program_find_variable(p, states[i]);
        const int64_t k = element(p, states[i], name);
        const char *const want[] = {first, second, NULL};
        ck_assert_int_ge(k, 0);
        for (int a = 0; a < 3; a++) {
            const char *alias = fp8c_program_element(p, variable, k, a + 1);
            ck_assert_msg(!want[a] == !alias && (!alias || !strcmp(alias, want[a])), "%s: %s", name,
                          alias);
        }
        ck_assert_ptr_null(fp8c_program_element(p, variable, k, -1));
        ck_assert_ptr_null(fp8c_program_element(p, variable, -1, 1));
        ck_assert_ptr_null(fp8c_program_element(p, variable, 1000, 1));
    }
}

/* What several linears share answers to each one's name, whichever of the programs has it shared,
 * and whichever linear is the first. */
START_TEST(shared_operands)
{
    float shared[16], own[16];
    fp8c_program *p = begin("delayed", NULL),
                 *k_alone = begin("delayed", "\"k\" = delayed {margin = 1}"),
                 *no_q = begin("delayed", "\"q\" = bf16"), *q = begin("delayed", NULL);
    ck_assert_ptr_null(fp8c_program_element(p, fp8c_program_find_variable(p, "fc"), 0, 1));
    aliases_are(p, "q.x", "k.x", "v.x");
    aliases_are(p, "fc.x", NULL, NULL);
    aliases_are(p, "q.dy", NULL, NULL);
    aliases_are(k_alone, "q.x", "v.x", NULL);
    aliases_are(k_alone, "k.x", NULL, NULL);
    aliases_are(no_q, "k.x", "v.x", NULL);
    train(p, 3);
    history_of(p, "q.x", shared);
    ck_assert(shared[2] > 0);
    carry(k_alone, p, OPERANDS + 1, 0, 0);
    history_of(k_alone, "k.x", own);
    ck_assert_mem_eq(own, shared, sizeof own);
    ck_assert_float_eq(scale_of(k_alone, "k.x"), scale_of(p, "q.x") / 2);
    ck_assert_float_eq(scale_of(k_alone, "q.x"), scale_of(p, "q.x"));
    carry(no_q, p, OPERANDS - 2, 0, 2); /* q.w and q.dy are left */
    history_of(no_q, "k.x", own);
    ck_assert_mem_eq(own, shared, sizeof own);
    carry(q, no_q, OPERANDS - 2, 2, 0);
    history_of(q, "q.x", own);
    ck_assert_mem_eq(own, shared, sizeof own);
    own[0] = 1234; /* of two that fit, the one of the first linear's name */
    write_history(k_alone, "k.x", own, 16);
    carry(q, k_alone, OPERANDS, 0, 1);
    history_of(q, "q.x", own);
    ck_assert_mem_eq(own, shared, sizeof own);
    fp8c_program_destroy(p);
    fp8c_program_destroy(q);
    fp8c_program_destroy(k_alone);
    fp8c_program_destroy(no_q);
}
END_TEST

/* Operands of one kind in one linear are numbered, whether they are shared or not. */
START_TEST(numbered_aliases)
{
    static const char rule[] = "\"*\" wgrad = delayed {margin = 1}";
    fp8c_compile_options o = recipe("delayed");
    o.pair = 1;
    fp8c_program *all = begin("delayed", rule), *pair = start(net, ROWS_OF_NET, rule, &o),
                 *one = begin("delayed", "\"k\" fprop = delayed {margin = 1}");
    aliases_are(all, "q.x", "k.x", "v.x");
    aliases_are(all, "v.x.1", "k.x.1", "q.x.1"); /* the backward begins with v */
    aliases_are(all, "q.dy.1", NULL, NULL);
    aliases_are(one, "q.x", "v.x", "k.x.1");
    aliases_are(one, "k.x", NULL, NULL);
    train(all, 2);
    copy_training(pair, all);
    carry(pair, all, OPERANDS + 8, 0, 0); /* wgrad's own: x of three values, dy of five linears */
    same_variables(all, pair, true);
    fp8c_program_destroy(pair);
    fp8c_program_destroy(all);
    fp8c_program_destroy(one);
}
END_TEST

/* A program from a file has the names and the recipes of the one that was compiled. */
START_TEST(from_a_file)
{
    fp8c_program *p = begin("delayed", NULL), *opened;
    fp8c_compile_options o = recipe("delayed");
    fp8c_module *m = parse(ctx, net);
    const char *path = f8_cli_temp("net.f8x");
    const float zero[16] = {0};
    ck_assert_msg(fp8c_module_rule(m, "\"k\" = delayed {margin = 1}", "rule") == FP8C_OK, "%s",
                  fp8c_context_message(ctx));
    o.threads = 0;
    ck_assert_msg(fp8c_compile_file(m, &o, 1, path) == FP8C_OK, "%s", fp8c_context_message(ctx));
    fp8c_module_destroy(m);
    ck_assert_int_eq(fp8c_program_open(ctx, path, NULL, &opened), FP8C_OK);
    refused(opened, p, "the variables of the program to carry to have no values");
    ck_assert_int_eq(fp8c_program_initialize(opened, 1), FP8C_OK);
    aliases_are(opened, "q.x", "v.x", NULL);
    aliases_are(opened, "k.x", NULL, NULL);
    train(p, 3);
    write_history(p, "fc.dy", zero, 16);
    copy_training(opened, p);
    carry(opened, p, OPERANDS + 1, 0, 0);
    ck_assert_float_eq(scale_of(opened, "k.x"), scale_of(p, "q.x") / 2);
    ck_assert_float_eq(scale_of(opened, "q.x"), scale_of(p, "q.x"));
    ck_assert_float_eq(scale_of(opened, "fc.dy"), scale_of(p, "fc.dy"));
    fp8c_program_destroy(p);
    fp8c_program_destroy(opened);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("carry names");
    TCase *t = tcase_create("carry names");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_test(t, chunks);
    tcase_add_test(t, shared_operands);
    tcase_add_test(t, numbered_aliases);
    tcase_add_test(t, from_a_file);
    suite_add_tcase(s, t);
    return s;
}
