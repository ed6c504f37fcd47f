/* A plan that recomputes at more places than 16 bits count: each place has a clone number of its
 * own, and fusion tells it from all others. No planner is asked, for a function of so many steps
 * takes minutes; the plan runs the last step of a short one again and again. */
#include "tests/shared/passes/unit.h"
#include "tests/shared/suite.h"

#include <string.h>

#include "ir/lowered.h"
#include "passes/remat/remat.h"

static const char text[] = "module m\n"
                           "func forward(%x: f32[4, 4], %w: f32[4, 4]) -> (%y: f32[4, 4]) {\n"
                           "  %a = exp(%x)\n"
                           "  %b = matmul(%a, %w)\n"
                           "  return mul(%a, tanh(%b))\n}\n";

static f8_ref first_of(const f8_graph *g, f8_op op)
{
    f8_ref r = 1;
    while (r < g->n_nodes && g->node[r].op != op)
        r++;
    ck_assert_uint_lt(r, g->n_nodes);
    return r;
}

/* The action at each place is to recompute %a, which the step after it reads. */
static f8_remat_plan plan_of(f8_remat *s, f8_ref a, uint32_t places)
{
    const f8_lowered *p = s->lowered;
    f8_remat_plan plan = {
        .action = F8_NEW_ARRAY(s->scratch, f8_remat_action, p->n_groups + 2 * (size_t)places)};
    ck_assert_ptr_nonnull(plan.action);
    for (uint32_t i = 0; i < p->n_groups; i++)
        plan.action[plan.n_actions++] = (f8_remat_action){.index = i};
    for (uint32_t i = 0; i < places; i++) {
        plan.action[plan.n_actions++] = (f8_remat_action){.recompute = true, .index = s->value[a]};
        plan.action[plan.n_actions++] = (f8_remat_action){.index = p->n_groups - 1};
    }
    return plan;
}

static const uint32_t places[] = {65535, 65536, 65537};
static const char *const wanted[] = {"exp#4294901760(%x)", "exp#4294967296(%x)",
                                     "exp#4295032832(%x)"};

START_TEST(more_places_than_16_bits)
{
    test_unit t;
    f8_arena scratch;
    f8_remat s;
    f8_arena_init(&scratch, NULL);
    test_unit_parse(&t, text, "f32");
    test_pass(&t, f8_pass_canonicalize);
    test_place(&t);
    f8_func *f = &t.unit.module->func[0];
    ck_assert_msg(f8_remat_problem_make(&s, &t.unit, f, &scratch) == F8_OK, "%s", t.diag.text);
    const f8_remat_plan plan = plan_of(&s, first_of(s.g, F8_OP_EXP), places[_i]);
    ck_assert_msg(f8_remat_rewrite(&s, &plan) == F8_OK, "%s", t.diag.text);
    /* the product reads the clone of the last place; the tanh belongs to no place */
    const f8_graph *g = f->graph;
    const f8_ref product = first_of(g, F8_OP_MUL), copy = g->node[product].in[0];
    ck_assert_int_eq(g->node[copy].op, F8_OP_EXP);
    ck_assert_uint_eq(g->node[copy].clone, places[_i] * (uint64_t)F8_CLONE_RECOMPUTED);
    ck_assert_uint_ne(copy, first_of(g, F8_OP_EXP)); /* which the GEMM reads */
    ck_assert_msg(f8_group_function(&t.unit, f, false) == F8_OK, "%s", t.diag.text);
    ck_assert(f8_is_recomputed(g, copy));
    ck_assert_ptr_nonnull(strstr(test_print(&t, "forward"), wanted[_i]));
    f8_arena_end(&scratch);
    test_unit_end(&t);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("remat_places");
    TCase *t = tcase_create("remat_places");
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, more_places_than_16_bits, 0, sizeof places / sizeof *places);
    suite_add_tcase(s, t);
    return s;
}
