/* Estimated costs: what must hold of every estimate. check_cost_by_hand.c has figures. */
#include "tests/shared/passes/compile.h"
#include "tests/shared/passes/cost_case.h"
#include "tests/shared/suite.h"

#include "frontend/text/parse.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const recipes[] = {"bf16", "delayed", "current"};

enum { RECIPES = sizeof recipes / sizeof *recipes };

/* ---- setting up ---- */

/* GPT-2's width and two of its layers through all passes. */
static void model(test_unit *t, const char *recipe, const char *target, int64_t tokens)
{
    static const char file[] = "frontend/models/gpt2_124m.f8";
    size_t size;
    char *text = f8_test_read(file, &size);
    ck_assert_ptr_nonnull(text);
    *t = (test_unit){0};
    f8_arena_init(&t->arena, NULL);
    f8_module *m = NULL;
    const f8_dim_override dims[] = {{"L", 2}, {"T", tokens}, {"V", 1024}};
    f8_parse(text, size, file, dims, 3, &t->arena, &t->diag, &m);
    ck_assert_msg(m, "%s", t->diag.text);
    t->unit = (f8_unit){.module = m, .arena = &t->arena, .diag = &t->diag};
    t->unit.options.recipe = f8_recipe_by_name(recipe);
    t->unit.options.target = f8_target_by_name(target);
    ck_assert_msg(f8_run_passes(&t->unit) == F8_OK, "%s", t->diag.text);
    free(text);
}

static double gemm_of_role(const f8_func *f, const f8_target *target, const char *name,
                           const char *role)
{
    for (uint32_t i = 0; i < f->lowered->n_groups; i++) {
        const f8_group *g = &f->lowered->group[i];
        if (g->kind == F8_GROUP_GEMM && !strcmp(f8_attr_s(f->graph, g->out[0], F8_A_NAME), name) &&
            !strcmp(f8_attr_s(f->graph, g->out[0], F8_A_ROLE), role))
            return f8_cost_group(f, target, i);
    }
    ck_abort_msg("no GEMM %s.%s", name, role);
}

/* ---- what must hold ---- */

/* Every group of every function, with and without FP8. A concatenation whose parts are made where
 * it lies is free. */
START_TEST(finite_and_positive)
{
    const f8_target *target = f8_target_by_name(cost_target[_i % COST_TARGETS]);
    test_unit t;
    model(&t, recipes[_i / COST_TARGETS], target->name, 256);
    int seen = 0;
    for (size_t k = 0; k < t.unit.module->n_funcs; k++) {
        const f8_func *f = &t.unit.module->func[k];
        for (uint32_t i = 0; f->lowered && i < f->lowered->n_groups; i++, seen++) {
            const f8_group *g = &f->lowered->group[i];
            const double s = f8_cost_group(f, target, i);
            const bool free = f8_at(f->graph, g->out[0])->op == F8_OP_CONCAT;
            ck_assert_msg(isfinite(s) && (free ? s >= 0 : s > 0), "%s of %s: %g s", g->name,
                          f->name, s);
        }
    }
    ck_assert_int_gt(seen, 50);
    test_unit_end(&t);
}
END_TEST

/* Of everything there is twice as much: no kind of group gets cheaper, the step dearer, but less
 * than twice where launches and weights stay the same. Attention, whose pairs quadruple, more than
 * twice less launches. */
START_TEST(more_takes_longer)
{
    const f8_target *target = f8_target_by_name(cost_target[_i % COST_TARGETS]);
    double before[F8_GROUP_COPY + 1] = {0};
    for (int64_t tokens = 1024; tokens <= 2048; tokens *= 2) {
        test_unit t;
        model(&t, recipes[_i / COST_TARGETS], target->name, tokens);
        const f8_func *f = test_func(&t, "micro_step");
        for (int kind = F8_GROUP_ROWS; kind < F8_GROUP_COLLECTIVE; kind++) {
            const double s = cost_of_kind(f, target, (f8_group_kind)kind);
            ck_assert_double_gt(s, before[kind]);
            before[kind] = tokens == 1024 ? s : s / before[kind];
        }
        test_unit_end(&t);
    }
    ck_assert_double_lt(before[F8_GROUP_ROWS], 2.01);
    ck_assert_double_lt(before[F8_GROUP_GEMM], 2);
    if (target->kind != F8_TARGET_CUDA) /* there launches weigh as much at this size */
        ck_assert_double_gt(before[F8_GROUP_ATTENTION], 3);
    ck_assert_double_gt(before[F8_GROUP_ATTENTION], 1.5);
    ck_assert_double_lt(before[F8_GROUP_ATTENTION_GRAD], 4);
}
END_TEST

/* A product by what its operands are: k is long, so that its result is not what takes time. */
START_TEST(fp8_gemms_are_cheaper)
{
    const f8_target *target = f8_target_by_name(cost_target[_i]);
    double took[2];
    for (int i = 0; i < 2; i++) {
        test_unit t;
        model(&t, recipes[i], target->name, 4096);
        const f8_func *f = test_func(&t, "micro_step");
        took[i] = gemm_of_role(f, target, "h.1.mlp.c_proj", "fprop");
        test_unit_end(&t);
    }
    ck_assert_double_lt(took[1], took[0]);
    /* codes save at most the operands' bytes on a host, at most half of the time on a GPU */
    ck_assert_double_gt(took[1], 0.5 * took[0]);
    if (target->kind == F8_TARGET_CUDA)
        ck_assert_double_lt(took[1], 0.7 * took[0]);
}
END_TEST

/* What remat asks first: a normalization and its cast, next to the product that made what is
 * normalized. */
START_TEST(rows_are_cheaper_than_gemms)
{
    const f8_target *target = f8_target_by_name(cost_target[_i]);
    char text[1024];
    snprintf(text, sizeof text,
             "func forward(%%x: f32[%d, 768], %%w: f32[768]) -> (%%y: bf16[%d, 768]) {\n"
             "  %%m = mul(reduce_sum(%%x), 0.0013020833)\n  %%c = sub(%%x, %%m)\n"
             "  %%v = mul(reduce_sum(mul(%%c, %%c)), 0.0013020833)\n"
             "  return cast(mul(mul(%%c, rsqrt(add(%%v, 1e-05))), %%w)) {to = bf16}\n}\n",
             8192, 8192);
    const double rows = cost_seconds(target->name, text);
    const double gemm =
        cost_seconds(target->name, "func forward(%a: bf16[8192, 768], %b: bf16[768, 3072]) ->"
                              " (%y: f32[8192, 3072]) {\n  return matmul(%a, %b)\n}\n");
    ck_assert_msg(rows < gemm / 3, "%s: %g s against %g s", target->name, rows, gemm);
}
END_TEST

START_TEST(attention_forward_is_cheaper)
{
    const f8_target *target = f8_target_by_name(cost_target[_i]);
    double took[2][2]; /* by direction, whether causal */
    for (int causal = 0; causal < 2; causal++)
        for (int backward = 0; backward < 2; backward++) {
            char text[1024];
            snprintf(
                text, sizeof text,
                backward
                    ? "func forward(%%q: bf16[2, 2048, 768], %%k: bf16[2, 2048, 768], %%v: bf16[2, "
                      "2048, 768],"
                      " %%o: bf16[2, 2048, 768], %%l: f32[2, 12, 2048], %%d: bf16[2, 2048, 768]) ->"
                      " (%%y: bf16[2, 2048, 768]) {\n"
                      "  return attention_grad(%%q, %%k, %%v, %%o, %%l, %%d) {heads = 12, causal = "
                      "%s}\n}\n"
                    : "func forward(%%q: bf16[2, 2048, 768], %%k: bf16[2, 2048, 768], %%v: bf16[2, "
                      "2048, 768])"
                      " -> (%%y: bf16[2, 2048, 768]) {\n"
                      "  return attention(%%q, %%k, %%v) {heads = 12, causal = %s}\n}\n",
                causal ? "true" : "false");
            took[backward][causal] = cost_seconds(target->name, text);
        }
    for (int causal = 0; causal < 2; causal++) {
        ck_assert_double_gt(took[1][causal], 2 * took[0][causal]);
        ck_assert_double_lt(took[1][causal], 5 * took[0][causal]);
    }
    for (int backward = 0; backward < 2; backward++) {
        const double half = took[backward][1] / took[backward][0];
        ck_assert_msg(half > 0.5 && half < 0.6, "causal takes %g of all pairs", half);
    }
}
END_TEST

/* A group's nodes as a kernel of their own: the same but for launches, which groups may share. */
START_TEST(nodes_agree_with_groups)
{
    const f8_target *target = f8_target_by_name(cost_target[_i % COST_TARGETS]);
    test_unit t;
    model(&t, recipes[_i / COST_TARGETS], target->name, 256);
    const f8_func *f = test_func(&t, "micro_step");
    int rows = 0, whole = 0;
    for (uint32_t i = 0; i < f->lowered->n_groups; i++) {
        const f8_group *g = &f->lowered->group[i];
        const double group = f8_cost_group(f, target, i);
        if (g->kind == F8_GROUP_ROWS) {
            const f8_phase *p = &g->phase[0];
            if (g->n_phases > 1 || p->n_out > 1 || p->out[0] != p->node[p->n_nodes - 1])
                continue;
            const double nodes = f8_cost_nodes(f->graph, target, p->node, p->n_nodes);
            ck_assert_msg(fabs(nodes - group) <= target->speeds.launch, "%s: %g s and %g s",
                          g->name, nodes, group);
            rows++;
        } else {
            ck_assert_double_eq(f8_cost_nodes(f->graph, target, &g->out[0], 1), group);
            whole++;
        }
    }
    ck_assert_int_gt(rows, 3);
    ck_assert_int_gt(whole, 20);
    test_unit_end(&t);
}
END_TEST

/* A product among the nodes is a kernel of its own. Those of the nodes that it reads are computed
 * by a kernel before it. */
START_TEST(nodes_around_a_gemm)
{
    const f8_target *target = f8_target_by_name(cost_target[_i]);
    test_unit t;
    test_unit_parse(
        &t,
        "module m\nfunc forward(%x: f32[512, 256], %w: bf16[256, 128]) -> (%y: f32[512, 128]) {\n"
        "  %a = cast(%x) {to = bf16}\n  return matmul(%a, %w)\n}\n",
        "f32");
    const f8_graph *g = t.unit.module->func[0].graph;
    f8_ref node[2] = {0, 0};
    for (f8_ref r = 1; r < g->n_nodes; r++)
        if (g->node[r].op == F8_OP_CAST || g->node[r].op == F8_OP_MATMUL)
            node[g->node[r].op == F8_OP_MATMUL] = r;
    ck_assert_uint_lt(node[0], node[1]);
    ck_assert_uint_gt(node[0], 0);
    const double apart =
        f8_cost_nodes(g, target, &node[0], 1) + f8_cost_nodes(g, target, &node[1], 1);
    ck_assert_double_eq_tol(f8_cost_nodes(g, target, node, 2), apart, 1e-6 * apart);
    test_unit_end(&t);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("cost");
    TCase *t = tcase_create("cost");
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, finite_and_positive, 0, COST_TARGETS * RECIPES);
    tcase_add_loop_test(t, more_takes_longer, 0, COST_TARGETS * RECIPES);
    tcase_add_loop_test(t, fp8_gemms_are_cheaper, 0, COST_TARGETS);
    tcase_add_loop_test(t, rows_are_cheaper_than_gemms, 0, COST_TARGETS);
    tcase_add_loop_test(t, attention_forward_is_cheaper, 0, COST_TARGETS);
    tcase_add_loop_test(t, nodes_agree_with_groups, 0, COST_TARGETS * RECIPES);
    tcase_add_loop_test(t, nodes_around_a_gemm, 0, COST_TARGETS);
    suite_add_tcase(s, t);
    return s;
}
