/* The largest phase and the largest kernel: a function of just that size is one, and what is one
 * larger is split. The sizes are those of the table "Limits" in ir/README.md. */
#include "tests/shared/passes/unit.h"
#include "tests/shared/say.h"
#include "tests/shared/suite.h"

#include "ir/lowered.h"
#include "passes/unit/cost.h"

/* What grouping made of the text's function. */
typedef struct grouped {
    uint32_t kernels, phases, nodes;
    double work;      /* of all nodes */
    uint32_t buffers; /* of the first kernel */
} grouped;

static grouped group(const text *text)
{
    test_unit t;
    grouped made = {0};
    test_unit_parse(&t, text->s, "f32");
    test_pass(&t, f8_pass_canonicalize);
    test_place(&t);
    const f8_func *f = &t.unit.module->func[0];
    made.kernels = f->lowered->n_groups;
    made.buffers = f->lowered->group[0].n_in + f->lowered->group[0].n_out;
    for (uint32_t i = 0; i < f->lowered->n_groups; i++)
        for (uint32_t j = 0; j < f->lowered->group[i].n_phases; j++) {
            const f8_phase *p = &f->lowered->group[i].phase[j];
            made.phases++;
            made.nodes += p->n_nodes;
            for (uint32_t k = 0; k < p->n_nodes; k++)
                made.work += f8_op_work(f8_at(f->graph, p->node[k])->op);
        }
    test_unit_end(&t);
    return made;
}

/* `steps` additions, one after the other. */
static grouped chain(int steps)
{
    text t = {0};
    say(&t,
        "module m\nfunc forward(%%x: f32[8], %%w: f32[8]) -> (%%y: f32[8]) {\n"
        "  repeat i < %d carry %%y = %%x {\n    %%y = add(%%y, %%w)\n  }\n  return %%y\n}\n",
        steps);
    return group(&t);
}

START_TEST(work_of_a_phase)
{
    const grouped most = chain(2560), more = chain(2561);
    ck_assert_double_eq(most.work, 2560);
    ck_assert_uint_eq(most.phases, 1);
    ck_assert_double_eq(more.work, 2561);
    ck_assert_uint_eq(more.phases, 2);
}
END_TEST

/* The sum of `values` inputs of a type and, where asked for, of a vector. */
static grouped sum_of(int values, const char *type, bool vector)
{
    text t = {0};
    say(&t, "module m\nfunc forward(%%v: f32[8]");
    for (int i = 0; i < values; i++)
        say(&t, ", %%x%d: %s", i, type);
    say(&t, ") -> (%%y: %s) {\n  %%s0 = exp(%%x0)\n", type);
    for (int i = 1; i < values; i++)
        say(&t, "  %%s%d = add(%%s%d, %%x%d)\n", i, i - 1, i);
    say(&t, "  return add(%%s%d, %s)\n}\n", values - 1, vector ? "%v" : "1");
    return group(&t);
}

START_TEST(buffers_of_a_phase)
{
    const grouped most = sum_of(319, "f32[8]", false), more = sum_of(319, "f32[8]", true);
    ck_assert_uint_eq(most.buffers, 320);
    ck_assert_uint_eq(most.phases, 1);
    ck_assert_uint_eq(more.phases, 2);
}
END_TEST

/* A value of several rows takes two words, its address and the distance between rows. */
START_TEST(words_of_a_phase)
{
    const grouped most = sum_of(223, "f32[2, 8]", false), more = sum_of(223, "f32[2, 8]", true);
    ck_assert_uint_eq(2 * most.buffers, 448);
    ck_assert_uint_eq(most.phases, 1);
    ck_assert_uint_eq(more.phases, 2);
}
END_TEST

/* Each sum over rows ends a phase: what reads it waits for all rows. */
static grouped visits(int phases, int before, int after)
{
    text t = {0};
    say(&t,
        "module m\nfunc forward(%%x: f32[8, 8], %%w: f32[8, 8]) -> (%%y: f32[8, 8]) {\n"
        "  repeat i < %d carry %%b = %%x {\n    %%b = add(%%b, %%w)\n  }\n"
        "  repeat i < %d carry %%v = %%b {\n"
        "    %%v = mul(%%v, reduce_sum(%%v) {axis = 0})\n  }\n"
        "  repeat i < %d carry %%y = %%v {\n    %%y = add(%%y, %%w)\n  }\n"
        "  return %%y\n}\n",
        before, phases - 1, after);
    return group(&t);
}

START_TEST(phases_of_a_kernel)
{
    const grouped most = visits(16, 1, 1), more = visits(17, 1, 1);
    ck_assert_uint_eq(most.phases, 16);
    ck_assert_uint_eq(most.kernels, 1);
    ck_assert_uint_eq(more.phases, 17);
    ck_assert_uint_eq(more.kernels, 2);
}
END_TEST

START_TEST(nodes_of_a_kernel)
{
    const grouped most = visits(2, 1023, 1023), more = visits(2, 1023, 1024);
    ck_assert_uint_eq(most.nodes, 2048);
    ck_assert_uint_eq(most.phases, 2);
    ck_assert_uint_eq(most.kernels, 1);
    ck_assert_uint_eq(more.nodes, 2049);
    ck_assert_uint_eq(more.phases, 2);
    ck_assert_uint_eq(more.kernels, 2);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("kernel_size");
    TCase *t = tcase_create("kernel_size");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, work_of_a_phase);
    tcase_add_test(t, buffers_of_a_phase);
    tcase_add_test(t, words_of_a_phase);
    tcase_add_test(t, phases_of_a_kernel);
    tcase_add_test(t, nodes_of_a_kernel);
    suite_add_tcase(s, t);
    return s;
}
