/* group and schedule with recomputed values (f8_is_recomputed): they run last, and inside the
 * kernels of their readers where that is possible. check_regroup_random.c does the same on random
 * graphs. */
#include "tests/shared/remat/recompute.h"
#include "tests/shared/passes/compile.h"
#include "tests/shared/passes/program_check.h"
#include "tests/shared/suite.h"
#include "tests/shared/passes/unit.h"

#include "codegen/kernel/kernel.h"
#include "frontend/text/parse.h"
#include "ir/lowered.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- setting up ---- */

/* A function of primitives as it stands, placed; `name#65536` in the text is a node recomputed at
 * one place, #131072 one at the next. */
static f8_func *placed(test_unit *t, const char *text, const char *target, bool no_fuse)
{
    char whole[4096];
    snprintf(whole, sizeof whole, "module m\n%s", text);
    test_unit_parse(t, whole, "f32");
    t->unit.options.target = f8_target_by_name(target);
    t->unit.options.no_fuse = no_fuse;
    test_place(t);
    return &t->unit.module->func[0];
}

static f8_ref named(const f8_func *f, const char *name)
{
    f8_ref found = 0;
    for (f8_ref r = 1; r < f->graph->n_nodes; r++)
        if (f->graph->name[r] && !strcmp(f->graph->name[r], name)) {
            ck_assert_msg(!found, "%s twice", name);
            found = r;
        }
    ck_assert_msg(found, "no %s", name);
    return found;
}

/* Where in the order a value is written; -1: nowhere. */
static int position(const f8_func *f, const char *name)
{
    const f8_ref r = named(f, name);
    for (uint32_t i = 0; i < f->lowered->n_groups; i++) {
        const f8_group *group = &f->lowered->group[f->lowered->order[i]];
        for (uint32_t k = 0; k < group->n_out; k++)
            if (group->out[k] == r)
                return (int)i;
    }
    return -1;
}

static const f8_group *writer(const f8_func *f, const char *name)
{
    const int at = position(f, name);
    ck_assert_msg(at >= 0, "%s is not written", name);
    return &f->lowered->group[f->lowered->order[at]];
}

/* Whether a phase of the group computes the value. */
static bool computes(const f8_func *f, const f8_group *group, const char *name)
{
    const f8_ref r = named(f, name);
    for (uint32_t i = 0; i < group->n_phases; i++)
        for (uint32_t k = 0; k < group->phase[i].n_nodes; k++)
            if (group->phase[i].node[k] == r)
                return true;
    return false;
}

static bool is_recomputed(const f8_group *group)
{
    const char *mark = strstr(group->name, " (recomputed)");
    return mark && !mark[strlen(" (recomputed)")];
}

static int count_recomputed(const f8_func *f)
{
    int n = 0;
    for (uint32_t i = 0; i < f->lowered->n_groups; i++)
        n += is_recomputed(&f->lowered->group[i]);
    return n;
}

/* ---- when ---- */

#define CHAIN                                                                                      \
    "func f(%x: f32[30, 20], %w: f32[20, 40], %v: f32[40, 20]) -> (%y: f32[20, 40], %z: f32[30, "  \
    "40]) {\n"                                                                                     \
    "  %d = sub(%x, reduce_sum(%x))\n  %n = mul(%d, rsqrt(reduce_sum(mul(%d, %d))))\n"             \
    "  %a = exp(matmul(%n, %w))\n  %b = matmul(%a, %v)\n  %c = matmul(tanh(%b), %w)\n"
/* the same norm, recomputed */
#define AGAIN                                                                                     \
    "  %d2 = sub#65536(%x, reduce_sum#65536(%x))\n"                                               \
    "  %m = mul#65536(%d2, rsqrt#65536(reduce_sum#65536(mul#65536(%d2, %d2))))\n"

/* A recomputed norm is read by the last GEMM, its original by an early one. It is computed right
 * before the last GEMM, in one kernel, by a group that is marked as recomputing. The same with a
 * kernel for each node. */
START_TEST(late_for_a_gemm)
{
    test_unit t;
    const f8_func *f = placed(&t,
                              CHAIN AGAIN "  %g = matmul(%m, %c) {transpose_a = true}\n"
                                          "  return %g, tanh(%c)\n}\n",
                              "cpu", _i);
    ck_assert_int_eq(position(f, "m") + 1, position(f, "g"));
    ck_assert_int_gt(position(f, "m"), position(f, "c"));
    ck_assert_str_eq(writer(f, "m")->name, "m (recomputed)");
    ck_assert(!is_recomputed(writer(f, "n")) && !is_recomputed(writer(f, "g")));
    ck_assert_int_eq(count_recomputed(f), _i ? 6 : 1);
    ck_assert_uint_eq(writer(f, "m")->n_out, 1);
    ck_assert(!computes(f, writer(f, "n"), "m") && !computes(f, writer(f, "m"), "n"));
    test_unit_end(&t);
}
END_TEST

/* If a later row kernel over the same rows and columns is the only reader, the clone is computed in
 * it and never stored. If the reader has other rows or columns, it is stored right before. */
START_TEST(inside_its_reader)
{
    static const char *const end[] = {
        "  %g = add(matmul(%c, %w) {transpose_b = true}, %m)\n  return matmul(%g, %c) {transpose_a "
        "= true}, %c\n}\n",
        "  %g = add(%c, reduce_max#65536(%m))\n  return matmul(%n, %g) {transpose_a = true}, "
        "%c\n}\n",
    };
    char text[2048];
    test_unit t;
    snprintf(text, sizeof text, "%s%s", CHAIN AGAIN, end[_i]);
    const f8_func *f = placed(&t, text, "cpu", false);
    ck_assert_int_eq(position(f, "m"), -1);
    ck_assert_int_eq(computes(f, writer(f, "g"), "m"), _i == 0);
    ck_assert_int_eq(count_recomputed(f), _i);
    if (_i == 1) { /* the maxima, in one kernel with all of the norm */
        const int at = position(f, "g") - 1;
        ck_assert_int_ge(at, 0);
        ck_assert(computes(f, &f->lowered->group[f->lowered->order[at]], "m"));
    }
    test_unit_end(&t);
}
END_TEST

/* Fused with its first reader and stored for the second one, at a later level. */
START_TEST(between_its_readers)
{
    test_unit t;
    const f8_func *f =
        placed(&t,
               CHAIN AGAIN "  %g = add(%b, %m)\n  %h = matmul(%m, %c) {transpose_a = true}\n"
                           "  return %h, matmul(%g, %w)\n}\n",
               "cpu", false);
    ck_assert_int_eq(position(f, "m"), position(f, "g"));
    ck_assert_int_lt(position(f, "m"), position(f, "h"));
    ck_assert_int_eq(count_recomputed(f), 0);
    test_unit_end(&t);
}
END_TEST

/* A GEMM, a kernel and a GEMM are recomputed, each right before the next one. Between the original
 * and the clone others run that could wait, and before the clone what comes of it has to wait for
 * nothing else. */
START_TEST(chain_of_clones)
{
    test_unit t;
    const f8_func *f = placed(
        &t,
        CHAIN "  %p = matmul#65536(%n, %w)\n  %q = exp#65536(%p)\n  %r = matmul#65536(%q, %v)\n"
              "  %e = matmul(%c, %c) {transpose_b = true}\n  %k = exp(%e)\n"
              "  %g = matmul(matmul(%k, %r) {transpose_a = true}, %w)\n"
              "  return matmul(%n, %g) {transpose_a = true}, %c\n}\n",
        "cpu", _i);
    const int at = position(f, "r");
    ck_assert_int_eq(position(f, "q"), at - 1);
    ck_assert_int_eq(position(f, "p"), at - 2);
    ck_assert_int_gt(position(f, "p"), position(f, "k"));
    ck_assert_int_eq(count_recomputed(f), 3);
    test_unit_end(&t);
}
END_TEST

/* The last place has the same clone number as the first in 32 bits. */
static const uint64_t other_place[] = {1, 2, 65537};

/* Clones that are recomputed at one place share a kernel if they read the same value. Those of
 * another place have another kernel. */
START_TEST(a_kernel_for_each_place)
{
    test_unit t;
    char text[2048];
    snprintf(text, sizeof text,
             "%s  %%p = exp#65536(%%a)\n  %%q = tanh#%" PRIu64 "(%%a)\n"
             "  return matmul(matmul(%%w, matmul(%%q, %%c) {transpose_a = true}), exp(matmul(%%p, "
             "%%c) {transpose_a = true})), %%c\n}\n",
             CHAIN, F8_CLONE_RECOMPUTED * other_place[_i]);
    const f8_func *f = placed(&t, text, "cpu", false);
    ck_assert_int_eq(count_recomputed(f), _i == 0 ? 1 : 2);
    ck_assert_int_eq(writer(f, "p") == writer(f, "q"), _i == 0);
    test_unit_end(&t);
}
END_TEST

/* ---- what is made of rows ---- */

/* A statistic that is recomputed from a kept statistic reads none of the rows. */
START_TEST(statistic_of_a_kept_one)
{
    test_unit t;
    const f8_func *f =
        placed(&t,
               "func f(%x: f32[30, 20], %w: f32[20, 20]) -> (%y: f32[1, 20], %z: f32[30, 1]) {\n"
               "  %s = reduce_sum(%x)\n  %n = sub(%x, exp(%s))\n  %g = matmul(%n, %w)\n"
               "  %t = exp#65536(%s)\n  return matmul(%t, %g) {transpose_a = true}, %s\n}\n",
               "cpu", false);
    const f8_group *group = writer(f, "t");
    ck_assert(is_recomputed(group));
    ck_assert_int_eq(group->phase[0].rows * group->phase[0].cols, 30);
    test_unit_end(&t);
}
END_TEST

/* Recomputed current scaling: magnitudes, scale and codes are in one kernel, as the originals are.
 */
START_TEST(visits_of_a_clone)
{
    test_unit t;
    const f8_func *f =
        placed(&t,
               "func f(%x: f32[32, 32], %w: f8e4m3[32, 32]) -> (%y: f32[32, 32]) {\n"
               "  %t = tanh(%x)\n  %m = reduce_amax(%t)\n"
               "  %a = reshape(reduce_amax(reshape(%m) {shape = [1, 32]})) {shape = []}\n"
               "  %s = div(448, %a)\n  %q = quantize(%t, %s)\n  %i = div(1, %s)\n"
               "  %g = scaled_matmul(%q, %i, %w, 1) {transpose_b = true}\n"
               "  %t2 = tanh#65536(%x)\n  %m2 = reduce_amax#65536(%t2)\n"
               "  %a2 = reshape#65536(reduce_amax#65536(reshape#65536(%m2) {shape = [1, 32]})) "
               "{shape = []}\n"
               "  %s2 = div#65536(448, %a2)\n  %q2 = quantize#65536(%t2, %s2)\n"
               "  %i2 = div#65536(1, %s2)\n  %h = quantize(tanh(%g), 448)\n"
               "  return scaled_matmul(%q2, %i2, %h, 1) {transpose_b = true}\n}\n",
               "cpu", false);
    const f8_group *first = writer(f, "q"), *recomputed = writer(f, "q2");
    ck_assert(is_recomputed(recomputed) && !is_recomputed(first));
    ck_assert_uint_eq(recomputed->n_phases, first->n_phases);
    ck_assert_uint_eq(recomputed->n_phases, 3);
    ck_assert_int_eq(position(f, "h"), position(f, "q2") - 1);
    test_unit_end(&t);
}
END_TEST

/* Recomputed codes and their transpose for two GEMMs, where kernels store transposes: one visit
 * computes both if they are read at the same place. */
START_TEST(transposed_store_of_a_clone)
{
    test_unit t;
    const f8_func *f = placed(
        &t,
        "func f(%x: bf16[32, 64], %w: f8e4m3[48, 64], %s: f32[]) -> (%y: f32[48, 64], %z: f32[48, "
        "32]) {\n"
        "  %q = quantize(%x, %s)\n  %g = scaled_matmul(%q, %s, %w, %s) {transpose_b = true}\n"
        "  %h = transpose(quantize(tanh(%g), %s)) {perm = [1, 0]}\n"
        "  %c = quantize#65536(%x, %s)\n  %k = transpose#65536(%c) {perm = [1, 0]}\n"
        "  %y = scaled_matmul(%h, %s, %k, %s) {transpose_b = true}\n"
        "  return %y, scaled_matmul(quantize(%y, %s), %s, %c, %s) {transpose_b = true}\n}\n",
        "sm_90a", false);
    const f8_group *group = writer(f, "k");
    ck_assert(is_recomputed(group));
    ck_assert_int_gt(position(f, "k"), position(f, "h"));
    ck_assert_int_eq(f8_at(f->graph, named(f, "k"))->op, F8_OP_TRANSPOSE);
    ck_assert_int_eq(group->kind, F8_GROUP_ROWS);
    test_unit_end(&t);
}
END_TEST

/* ---- products ---- */

/* Rows of a result, or of an operand, that somebody reads as one run of elements: not padded, nor
 * those of the same product where nobody does. */
#define PRODUCT "func f(%x: bf16[30, 24], %w: bf16[24, 37], %u: bf16[37, 8]) -> "
static const char *const products[] = {
    PRODUCT
    "(%y: f32[5, 222], %z: f32[30, 37]) {\n"
    "  %a = matmul(%x, %w)\n  %q = reshape(%a) {shape = [5, 222]}\n"
    "  %b = matmul#65536(%x, %w)\n  return sub(%q, reduce_max(%q)), mul(%b, reduce_sum(%b))\n}\n",
    PRODUCT "(%y: f32[5, 1], %z: f32[30, 8], %k: f32[30, 8]) {\n"
            "  %m = exp(matmul(%x, %w))\n  %p = cast(sub(%m, reduce_sum(%m))) {to = bf16}\n  %a = "
            "matmul(%p, %u)\n"
            "  %q = cast(reshape(%p) {shape = [5, 222]}) {to = f32}\n"
            "  %n = exp#65536(matmul#65536(%x, %w))\n  %s = cast#65536(sub#65536(%n, "
            "reduce_sum#65536(%n))) {to = bf16}\n"
            "  %b = matmul#65536(%s, %u)\n  return reduce_sum(sub(%q, reduce_max(%q))), exp(%a), "
            "exp(%b)\n}\n",
};

START_TEST(products_lie_alike)
{
    test_unit t;
    const f8_func *f = placed(&t, products[_i], "sm_90a", false);
    const f8_ref a = named(f, "a"), b = named(f, "b");
    ck_assert(f8_is_recomputed(f->graph, b));
    for (int i = 0; i < 3; i++) {
        const f8_ref x = i < 2 ? f8_at(f->graph, a)->in[i] : a,
                     y = i < 2 ? f8_at(f->graph, b)->in[i] : b;
        ck_assert_int_eq(f->lowered->place[x].stride, f->lowered->place[y].stride);
    }
    test_unit_end(&t);
}
END_TEST

/* ---- states ---- */

/* A state's old value is wanted after its next one is written: the clone is not hurried, nothing is
 * written in place. Where it stands first in the text, it runs first, also if all it is for has to
 * wait for the next value. */
static const char *const states[] = {
    "  %n = mul(%x, s)\n  %t = tanh(s)\n  %g = matmul(matmul(%n, %w), %t)\n  %m = mul#65536(%x, "
    "s)\n"
    "  return matmul(%m, exp(%g)), s <- %t\n}\n",
    "  %m = exp#65536(s)\n  %n = mul(%x, s)\n  %t = tanh(s)\n"
    "  return matmul(%m, matmul(%n, %t)), s <- %t\n}\n",
};

START_TEST(states_are_not_hurried)
{
    test_unit t;
    char text[1024];
    void *out[2][2];
    snprintf(text, sizeof text,
             "state s: f32[20, 20] normal(1)\nfunc f(%%x: f32[20, 20], %%w: f32[20, 20]) -> (%%y: "
             "f32[20, 20]) {\n%s",
             states[_i]);
    const f8_func *f = placed(&t, text, "cpu", false);
    ck_assert_int_eq(position(f, "m") > position(f, "t"), _i == 0);
    ck_assert_uint_eq(f->lowered->n_copies, _i == 0);
    for (int i = 0; i < 2; i++)
        ck_assert_msg(recompute_run(t.unit.module, 1, i ? f8_target_by_name("cpu") : NULL, out[i],
                                &t.diag) == F8_OK,
                      "%s", t.diag.text);
    for (int i = 0; i < 2; i++)
        ck_assert(!memcmp(out[0][i], out[1][i], 20 * 20 * sizeof(float)));
    test_unit_end(&t);
}
END_TEST

/* ---- nodes ---- */

/* Each result of an op is one node, whoever asks for it: the op's number is its own. */
START_TEST(results_of_a_clone)
{
    test_unit t;
    const f8_func *f = placed(
        &t,
        "func f(%x: f32[1, 8, 16], %w: f32[8, 8]) -> (%y: f32[1, 8, 16], %z: f32[1, 2, 8]) {\n"
        "  %a = attention(%x, %x, %x) {heads = 2}\n"
        "  %b = attention#65536(%x, exp(%a), %x) {heads = 2}\n"
        "  %k = project#65536(%b) {index = 1}\n  %l = project(%b) {index = 1}\n"
        "  return %b, add(%k, %l)\n}\n",
        "cpu", false);
    f8_graph *g = f->graph;
    int projects = 0;
    for (f8_ref r = 1; r < g->n_nodes; r++)
        if (g->node[r].op == F8_OP_PROJECT && f8_is_recomputed(g, g->node[r].in[0])) {
            ck_assert(f8_is_recomputed(g, r));
            ck_assert_uint_eq(f8_project(g, g->node[r].in[0], 1), r);
            projects++;
        }
    ck_assert_int_eq(projects, 1);
    ck_assert_int_eq(count_recomputed(f), 1);
    test_unit_end(&t);
}
END_TEST

/* ---- models ---- */

static void model(test_unit *t, const char *recipe, const char *target, int64_t layers)
{
    size_t size;
    char *text = f8_test_read("frontend/models/gpt.f8", &size);
    ck_assert_ptr_nonnull(text);
    *t = (test_unit){0};
    f8_arena_init(&t->arena, NULL);
    f8_module *m = NULL;
    const f8_dim_override depth = {"L", layers};
    f8_parse(text, size, "gpt", &depth, 1, &t->arena, &t->diag, &m);
    ck_assert_msg(m, "%s", t->diag.text);
    t->unit = (f8_unit){.module = m, .arena = &t->arena, .diag = &t->diag};
    t->unit.options = (f8_options){.recipe = f8_recipe_by_name(recipe),
                                   .target = f8_target_by_name(target),
                                   .checkpoint = "x*"};
    ck_assert_msg(f8_run_passes(&t->unit) == F8_OK, "%s", t->diag.text);
    free(text);
}

/* Equal layers are grouped equally: each further layer adds the same number of groups, and the same
 * number of recomputing ones. */
START_TEST(layers_are_equal)
{
    static const char *const recipes[] = {"bf16", "delayed", "current"}, *const targets[] = {
                                                                             "cpu", "sm_90a"};
    int groups[3], recomputed[3];
    for (int i = 0; i < 3; i++) {
        test_unit t;
        model(&t, recipes[_i % 3], targets[_i / 3], 3 + i);
        const f8_func *f = test_func(&t, "micro_step");
        ck_assert_msg(f8_program_check(f, &t.diag) == F8_OK, "%s", t.diag.text);
        groups[i] = (int)f->lowered->n_groups;
        recomputed[i] = count_recomputed(f);
        test_unit_end(&t);
    }
    printf("%s, %s: a layer is %d groups, %d of them recompute\n", recipes[_i % 3],
           targets[_i / 3], groups[1] - groups[0], recomputed[1] - recomputed[0]);
    ck_assert_int_gt(recomputed[1] - recomputed[0], 5);
    ck_assert_int_eq(groups[1] - groups[0], groups[2] - groups[1]);
    ck_assert_int_eq(recomputed[1] - recomputed[0], recomputed[2] - recomputed[1]);
}
END_TEST

static const char *kernel_text(const f8_func *f, uint32_t i, test_unit *t)
{
    f8_kernel *k;
    f8_binding bound;
    ck_assert_msg(f8_kernel_lower(f, &f->lowered->group[i], 0, t->unit.options.target, &t->arena,
                                  &k, &bound, &t->diag) == F8_OK,
                  "%s", t->diag.text);
    return k->text;
}

/* A kernel that recomputes has the same text as the kernel of the originals. */
START_TEST(kernels_are_the_same)
{
    test_unit t;
    int same = 0;
    model(&t, "bf16", "cpu", 3);
    const f8_func *f = test_func(&t, "micro_step");
    for (uint32_t i = 0; i < f->lowered->n_groups; i++)
        for (uint32_t k = 0; k < f->lowered->n_groups; k++) {
            const f8_group *a = &f->lowered->group[i], *b = &f->lowered->group[k];
            const size_t length = strlen(b->name);
            if (a->kind != F8_GROUP_ROWS || b->kind != F8_GROUP_ROWS ||
                a->n_phases != b->n_phases || a->n_in != b->n_in || a->n_out != b->n_out ||
                a->phase[0].n_nodes != b->phase[0].n_nodes || strncmp(a->name, b->name, length) ||
                strcmp(a->name + length, " (recomputed)"))
                continue;
            ck_assert_str_eq(kernel_text(f, i, &t), kernel_text(f, k, &t));
            same++;
        }
    ck_assert_int_ge(same, 3);
    test_unit_end(&t);
}
END_TEST

/* Results that are zeros have a clone number each. They do not count as recomputed for that: a big
 * model's `update` has thousands. */
START_TEST(zeros_are_originals)
{
    enum { RESULTS = 3000 };
    test_unit t;
    test_unit_parse(&t,
                    "module m\nfunc f(%x: f32[2]) -> (%y: f32[2]) {\n"
                    "  return broadcast(0) {shape = [2]}\n}\n",
                    "f32");
    f8_func *f = &t.unit.module->func[0];
    for (int i = 0; i < RESULTS; i++)
        ck_assert_int_eq(f8_func_result(f, f8_arena_printf(&t.arena, "z%d", i), f->out[0].ref, -1),
                         F8_OK);
    test_pass(&t, f8_pass_legalize);
    ck_assert_uint_gt(f->graph->n_nodes, RESULTS);
    for (f8_ref r = 1; r < f->graph->n_nodes; r++)
        ck_assert_msg(!f8_is_recomputed(f->graph, r), "clone %" PRIu64, f8_at(f->graph, r)->clone);
    test_unit_end(&t);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("regroup");
    TCase *t = tcase_create("regroup");
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, late_for_a_gemm, 0, 2);
    tcase_add_loop_test(t, inside_its_reader, 0, 2);
    tcase_add_test(t, between_its_readers);
    tcase_add_loop_test(t, chain_of_clones, 0, 2);
    tcase_add_loop_test(t, a_kernel_for_each_place, 0, sizeof other_place / sizeof *other_place);
    tcase_add_test(t, statistic_of_a_kept_one);
    tcase_add_test(t, visits_of_a_clone);
    tcase_add_test(t, transposed_store_of_a_clone);
    tcase_add_loop_test(t, products_lie_alike, 0, 2);
    tcase_add_loop_test(t, states_are_not_hurried, 0, 2);
    tcase_add_test(t, results_of_a_clone);
    tcase_add_loop_test(t, layers_are_equal, 0, 6);
    tcase_add_test(t, kernels_are_the_same);
    tcase_add_test(t, zeros_are_originals);
    suite_add_tcase(s, t);
    return s;
}
