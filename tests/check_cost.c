/* Costs: what must hold of any estimate, and a few worked out by hand from the target's figures. */
#include "tests/shared/compile.h"
#include "tests/shared/suite.h"
#include "tests/shared/unit.h"

#include "frontend/text/parse.h"
#include "passes/cost.h"
#include "passes/rows.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The reference target groups nothing; it has the CPU's figures. */
static const char *const names[] = {"cpu", "sm_89", "sm_90a", "sm_100a", "sm_120a"};
static const char *const recipes[] = {"bf16", "delayed", "current"};

enum { TARGETS = sizeof names / sizeof *names, RECIPES = sizeof recipes / sizeof *recipes };

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

/* A function of primitives, grouped: neither ordered nor placed. */
static const f8_func *grouped(test_unit *t, const char *target, const char *text)
{
    char whole[8192];
    snprintf(whole, sizeof whole, "module m\n%s", text);
    test_unit_parse(t, whole, "f32");
    t->unit.options.target = f8_target_by_name(target);
    test_pass(t, f8_pass_canonicalize);
    test_pass(t, f8_pass_legalize);
    test_pass(t, f8_pass_group);
    const f8_func *f = &t->unit.module->func[0];
    ck_assert_ptr_null(f->program->place);
    ck_assert_ptr_null(f->program->order);
    return f;
}

/* The seconds of the only group of such a function. */
static double seconds(const char *target, const char *text)
{
    test_unit t;
    const f8_func *f = grouped(&t, target, text);
    ck_assert_uint_eq(f->program->n_groups, 1);
    const double s = f8_cost_group(f, f8_target_by_name(target), 0);
    ck_assert_msg(isfinite(s) && s > 0, "%s: %g s", target, s);
    test_unit_end(&t);
    return s;
}

static double gemm_of_role(const f8_func *f, const f8_target *target, const char *name,
                           const char *role)
{
    for (uint32_t i = 0; i < f->program->n_groups; i++) {
        const f8_group *g = &f->program->group[i];
        if (g->kind == F8_GROUP_GEMM && !strcmp(f8_attr_s(f->graph, g->out[0], F8_A_NAME), name) &&
            !strcmp(f8_attr_s(f->graph, g->out[0], F8_A_ROLE), role))
            return f8_cost_group(f, target, i);
    }
    ck_abort_msg("no GEMM %s.%s", name, role);
}

static double of_kind(const f8_func *f, const f8_target *target, f8_group_kind kind)
{
    double s = 0;
    for (uint32_t i = 0; i < f->program->n_groups; i++)
        if (f->program->group[i].kind == kind)
            s += f8_cost_group(f, target, i);
    return s;
}

/* ---- what must hold ---- */

/* Every group of every function, with and without FP8. A concatenation whose parts are made where
 * it lies is free. */
START_TEST(finite_and_positive)
{
    const f8_target *target = f8_target_by_name(names[_i % TARGETS]);
    test_unit t;
    model(&t, recipes[_i / TARGETS], target->name, 256);
    int seen = 0;
    for (size_t k = 0; k < t.unit.module->n_funcs; k++) {
        const f8_func *f = &t.unit.module->func[k];
        for (uint32_t i = 0; f->program && i < f->program->n_groups; i++, seen++) {
            const f8_group *g = &f->program->group[i];
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
    const f8_target *target = f8_target_by_name(names[_i % TARGETS]);
    double before[F8_GROUP_COPY + 1] = {0};
    for (int64_t tokens = 1024; tokens <= 2048; tokens *= 2) {
        test_unit t;
        model(&t, recipes[_i / TARGETS], target->name, tokens);
        const f8_func *f = test_func(&t, "micro_step");
        for (int kind = F8_GROUP_ROWS; kind < F8_GROUP_COPY; kind++) {
            const double s = of_kind(f, target, (f8_group_kind)kind);
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
    const f8_target *target = f8_target_by_name(names[_i]);
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

/* What remat asks first: a normalization and its cast, beside the product that made what is
 * normalized. */
START_TEST(rows_are_cheaper_than_gemms)
{
    const f8_target *target = f8_target_by_name(names[_i]);
    char text[1024];
    snprintf(text, sizeof text,
             "func forward(%%x: f32[%d, 768], %%w: f32[768]) -> (%%y: bf16[%d, 768]) {\n"
             "  %%m = mul(reduce_sum(%%x), 0.0013020833)\n  %%c = sub(%%x, %%m)\n"
             "  %%v = mul(reduce_sum(mul(%%c, %%c)), 0.0013020833)\n"
             "  return cast(mul(mul(%%c, rsqrt(add(%%v, 1e-05))), %%w)) {to = bf16}\n}\n",
             8192, 8192);
    const double rows = seconds(target->name, text);
    const double gemm =
        seconds(target->name, "func forward(%a: bf16[8192, 768], %b: bf16[768, 3072]) ->"
                              " (%y: f32[8192, 3072]) {\n  return matmul(%a, %b)\n}\n");
    ck_assert_msg(rows < gemm / 3, "%s: %g s beside %g s", target->name, rows, gemm);
}
END_TEST

START_TEST(attention_forward_is_cheaper)
{
    const f8_target *target = f8_target_by_name(names[_i]);
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
            took[backward][causal] = seconds(target->name, text);
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
    const f8_target *target = f8_target_by_name(names[_i % TARGETS]);
    test_unit t;
    model(&t, recipes[_i / TARGETS], target->name, 256);
    const f8_func *f = test_func(&t, "micro_step");
    int rows = 0, whole = 0;
    for (uint32_t i = 0; i < f->program->n_groups; i++) {
        const f8_group *g = &f->program->group[i];
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

/* A product among the nodes is a kernel of its own, and what it reads of them is made by one before
 * it. */
START_TEST(nodes_around_a_gemm)
{
    const f8_target *target = f8_target_by_name(names[_i]);
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

/* ---- by hand ---- */

static double memory_of(const f8_target *t, double bytes)
{
    return bytes / (t->rates.memory * t->speeds.memory * 1e12);
}

static double both(const f8_target *t, double ops, double bytes)
{
    return t->speeds.overlap ? fmax(ops, bytes) : ops + bytes;
}

static void close_to(double got, double expected)
{
    ck_assert_msg(fabs(got - expected) <= 1e-9 * expected, "%.12g s, by hand %.12g s", got,
                  expected);
}

/* x + x read once: 4 bytes in, 4 out; one operation. The flat kernel shares its launch. */
START_TEST(an_addition)
{
    const f8_target *t = f8_target_by_name(names[_i]);
    const double n = 1 << 20;
    const double ops = 2 * n / (t->speeds.vector * 1e12);
    close_to(seconds(t->name, "func forward(%x: f32[1024, 1024]) -> (%y: f32[1024, 1024]) {\n"
                              "  return mul(add(%x, 1), %x)\n}\n"),
             t->speeds.launch / t->speeds.merged + both(t, ops, memory_of(t, 8 * n)));
}
END_TEST

/* Rows [4096, 512] less their sum: [4096, 1] stays inside; reduce, subtract. A row kernel has a
 * launch of its own. */
START_TEST(a_row_sum)
{
    const f8_target *t = f8_target_by_name(names[_i]);
    const double n = 4096 * 512;
    close_to(seconds(t->name, "func forward(%x: f32[4096, 512]) -> (%y: f32[4096, 512]) {\n"
                              "  return sub(%x, reduce_sum(%x))\n}\n"),
             t->speeds.launch + both(t, 2 * n / (t->speeds.vector * 1e12), memory_of(t, 8 * n)));
}
END_TEST

/* Rows picked are read, not the table. */
START_TEST(a_gather)
{
    const f8_target *t = f8_target_by_name(names[_i]);
    const double n = 256 * 512;
    close_to(
        seconds(t->name, "func forward(%w: f32[4096, 512], %i: i32[256]) -> (%y: f32[256, 512]) {\n"
                         "  return embedding(%w, %i)\n}\n"),
        t->speeds.launch + both(t, n / (t->speeds.vector * 1e12), memory_of(t, 8 * n + 4 * 256)));
}
END_TEST

START_TEST(a_gemm)
{
    const f8_target *t = f8_target_by_name(names[_i]);
    const double m = 4096, n = 1024, k = 2048;
    const double ops = 2 * m * n * k / (t->rates.bf16 * t->speeds.gemm * 1e12),
                 operands = 2 * (m * k + k * n);
    const double bytes = t->speeds.operands > 0
                             ? operands / (t->speeds.operands * 1e12) + memory_of(t, 4 * m * n)
                             : memory_of(t, operands + 4 * m * n);
    close_to(
        seconds(
            t->name,
            "func forward(%a: bf16[4096, 2048], %b: bf16[1024, 2048]) -> (%y: f32[4096, 1024]) {\n"
            "  return matmul(%a, %b) {transpose_b = true}\n}\n"),
        t->speeds.launch + both(t, ops, bytes));
}
END_TEST

/* Rates of the scales, and f32 operands by their own. */
START_TEST(a_gemm_of_each_kind)
{
    static const struct {
        const char *args, *body;
        double rate;
    } kind[] = {
        {"%a: f32[8192, 8192], %b: f32[8192, 8192]", "matmul(%a, %b)", 0.7 * 67},
        {"%a: f8e4m3[8192, 8192], %s: f32[], %b: f8e4m3[8192, 8192], %t: f32[]",
         "scaled_matmul(%a, %s, %b, %t) {transpose_b = true}", 0.7 * 1979},
        {"%a: f8e4m3[8192, 8192], %s: f32[8192, 1], %b: f8e4m3[8192, 8192], %t: f32[8192, 1]",
         "scaled_matmul(%a, %s, %b, %t) {transpose_b = true, scale_a = \"row\", scale_b = \"row\"}",
         0.7 * 1979},
        {"%a: f8e4m3[8192, 8192], %s: f32[8192, 64], %b: f8e4m3[8192, 8192], %t: f32[64, 64]",
         "scaled_matmul(%a, %s, %b, %t) {transpose_b = true, scale_a = \"block(1,128)\", scale_b = "
         "\"block(128,128)\"}",
         0.7 * 1550},
    };
    char text[1024];
    snprintf(text, sizeof text,
             "module m\nfunc forward(%s) -> (%%y: f32[8192, 8192]) {\n  return %s\n}\n",
             kind[_i].args, kind[_i].body);
    test_unit t;
    test_unit_parse(&t, text, "f32");
    const f8_graph *g = t.unit.module->func[0].graph;
    const f8_ref product = t.unit.module->func[0].out[0].ref;
    const f8_target *target = f8_target_by_name("sm_90a");
    close_to(f8_cost_nodes(g, target, &product, 1),
             2.5e-6 + 2 * 8192.0 * 8192 * 8192 / (kind[_i].rate * 1e12));
    test_unit_end(&t);
}
END_TEST

/* H100, 8 x 2048 tokens of 16 heads of 128: 4 * 8 * 16 * 128 * 2048 * 2049 / 2 operations at 298
 * TFLOP/s. */
START_TEST(attention_on_an_h100)
{
    close_to(seconds("sm_90a", "func forward(%q: bf16[8, 2048, 2048], %k: bf16[8, 2048, 2048],"
                               " %v: bf16[8, 2048, 2048]) -> (%y: bf16[8, 2048, 2048]) {\n"
                               "  return attention(%q, %k, %v) {heads = 16}\n}\n"),
             2.5e-6 + 4.0 * 8 * 16 * 128 * 2048 * 2049 / 2 / 298e12);
}
END_TEST

/* By counting ir/scalar.def: tanh has 21 operations that no constant or renaming is, a division
 * among them that counts eight; rounding to bf16 has eight, but is one instruction of a GPU. */
START_TEST(functions_and_conversions)
{
    const f8_target *t = f8_target_by_name(names[_i]);
    const double n = 1 << 20, launch = t->speeds.launch / t->speeds.merged;
    const double round = t->kind == F8_TARGET_CUDA ? 1 : 8, tanh = 20 + 8;
    close_to(seconds(t->name, "func forward(%x: f32[1024, 1024]) -> (%y: bf16[1024, 1024]) {\n"
                              "  return cast(%x) {to = bf16}\n}\n"),
             launch + both(t, round * n / (t->speeds.vector * 1e12), memory_of(t, 6 * n)));
    close_to(seconds(t->name, "func forward(%x: f32[1024, 1024]) -> (%y: f32[1024, 1024]) {\n"
                              "  return tanh(tanh(tanh(tanh(%x))))\n}\n"),
             launch + both(t, 4 * tanh * n / (t->speeds.vector * 1e12), memory_of(t, 8 * n)));
}
END_TEST

/* Where the hardware converts, rounding to bf16 and back is two operations; on a host eight and the
 * shift that decodes. Thirty-two rounds, so that arithmetic is what takes time. */
START_TEST(conversions_by_hardware)
{
    enum { ROUNDS = 32 };
    const f8_target *t = f8_target_by_name(names[_i]);
    char text[4096] =
        "func forward(%x: f32[1024, 1024]) -> (%y: f32[1024, 1024]) {\n  %a0 = add(%x, 1)\n";
    for (int i = 0; i < ROUNDS; i++) {
        const size_t at = strlen(text);
        snprintf(text + at, sizeof text - at,
                 "  %%a%d = mul(cast(cast(%%a%d) {to = bf16}) {to = f32}, %%x)\n", i + 1, i);
    }
    const size_t at = strlen(text);
    snprintf(text + at, sizeof text - at, "  return %%a%d\n}\n", ROUNDS);
    const double n = 1 << 20, round = t->kind == F8_TARGET_CUDA ? 3 : 8 + 1 + 1;
    close_to(
        seconds(t->name, text),
        t->speeds.launch / t->speeds.merged +
            both(t, (1 + ROUNDS * round) * n / (t->speeds.vector * 1e12), memory_of(t, 8 * n)));
}
END_TEST

/* A pair of query and key has 4 * 64 operations in products, and where softmax is not among them an
 * exp, 23 operations; q, k, v, o and lse are moved. */
START_TEST(attention_by_the_pair)
{
    const f8_target *t = f8_target_by_name(names[_i]);
    const double pairs = 8.0 * 12 * 1024 * 1025 / 2;
    const double softmax = t->kind == F8_TARGET_CUDA ? 0 : 23;
    close_to(seconds(t->name, "func forward(%q: bf16[8, 1024, 768], %k: bf16[8, 1024, 768],"
                              " %v: bf16[8, 1024, 768]) -> (%y: bf16[8, 1024, 768]) {\n"
                              "  return attention(%q, %k, %v) {heads = 12}\n}\n"),
             t->speeds.launch + both(t,
                                     pairs * 256 / (t->speeds.attention * 1e12) +
                                         pairs * softmax / (t->speeds.vector * 1e12),
                                     memory_of(t, 4.0 * 2 * 8 * 1024 * 768 + 4.0 * 8 * 12 * 1024)));
}
END_TEST

/* On a host blocks of f32 scales cut k and cost a third of the speed; E8M0 ones don't. */
START_TEST(blocks_on_a_host)
{
    const f8_target *t = f8_target_by_name("cpu");
    double took[2];
    for (int mx = 0; mx < 2; mx++) {
        test_unit u;
        test_unit_parse(
            &u,
            mx ? "module m\nfunc forward(%a: f8e4m3[1024, 1024], %s: f8e8m0[1024, 32],"
                 " %b: f8e4m3[1024, 1024], %t: f8e8m0[1024, 32]) -> (%y: f32[1024, 1024]) {\n"
                 "  return scaled_matmul(%a, %s, %b, %t) {transpose_b = true,"
                 " scale_a = \"block(1,32)\", scale_b = \"block(1,32)\"}\n}\n"
               : "module m\nfunc forward(%a: f8e4m3[1024, 1024], %s: f32[1024, 8],"
                 " %b: f8e4m3[1024, 1024], %t: f32[1024, 8]) -> (%y: f32[1024, 1024]) {\n"
                 "  return scaled_matmul(%a, %s, %b, %t) {transpose_b = true,"
                 " scale_a = \"block(1,128)\", scale_b = \"block(1,128)\"}\n}\n",
            "f32");
        const f8_ref product = u.unit.module->func[0].out[0].ref;
        took[mx] = f8_cost_nodes(u.unit.module->func[0].graph, t, &product, 1);
        test_unit_end(&u);
    }
    const double rate = t->rates.fp8_mx * t->speeds.gemm * 1e12, ops = 2.0 * (1 << 30);
    close_to(took[1], t->speeds.launch + ops / rate +
                          2.0 * (1 << 20) / (t->speeds.operands * 1e12) +
                          memory_of(t, 4.0 * (1 << 20) + 2 * 1024 * 32));
    close_to(took[0] - took[1], ops / rate * (1 / t->speeds.blocks - 1));
}
END_TEST

/* Heads in f32 have no tensor cores: multiply-adds at two operations a slot. */
START_TEST(attention_in_f32)
{
    const f8_target *t = f8_target_by_name("sm_90a");
    close_to(seconds("sm_90a", "func forward(%q: f32[8, 2048, 2048], %k: f32[8, 2048, 2048],"
                               " %v: f32[8, 2048, 2048]) -> (%y: f32[8, 2048, 2048]) {\n"
                               "  return attention(%q, %k, %v) {heads = 16, causal = false}\n}\n"),
             2.5e-6 + 4.0 * 8 * 16 * 128 * 2048 * 2048 / (2 * t->speeds.vector * 1e12));
}
END_TEST

/* Ids, gradients, and each of 256 rows read, added to and written. */
START_TEST(a_scatter)
{
    const f8_target *t = f8_target_by_name(names[_i]);
    close_to(seconds(t->name, "func forward(%w: f32[4096, 512], %i: i32[256], %d: f32[256, 512]) ->"
                              " (%y: f32[4096, 512]) {\n  return embedding_grad(%w, %i, %d)\n}\n"),
             t->speeds.launch + memory_of(t, 4 * 256 + 3 * 4 * 256 * 512));
}
END_TEST

/* Inputs are copied into a concatenation; what is computed is computed there. */
START_TEST(a_concatenation)
{
    const f8_target *t = f8_target_by_name(names[_i]);
    close_to(seconds(t->name,
                     "func forward(%a: f32[64, 512], %b: f32[64, 256]) -> (%y: f32[64, 768]) {\n"
                     "  return concat(%a, %b)\n}\n"),
             t->speeds.launch + memory_of(t, 2 * 4 * 64 * 768));
    test_unit u;
    const f8_func *f = grouped(&u, t->name,
                               "func forward(%a: f32[64, 512]) -> (%y: f32[64, 1024]) {\n"
                               "  return concat(tanh(%a), exp(%a))\n}\n");
    ck_assert_double_eq(of_kind(f, t, F8_GROUP_COPY), 0);
    test_unit_end(&u);
}
END_TEST

/* A value is read once, whatever shapes it is read in; of a slice only that. */
START_TEST(views)
{
    const f8_target *t = f8_target_by_name(names[_i]);
    test_unit u;
    test_unit_parse(&u,
                    "module m\nfunc forward(%x: f32[4, 256, 1024], %w: f32[1024, 4096]) -> (%y: "
                    "f32[1024, 1024]) {\n"
                    "  %r = reshape(%x) {shape = [1024, 1024]}\n"
                    "  %s = reshape(%x) {shape = [1024, 1024, 1]}\n"
                    "  %c = reshape(%s) {shape = [1024, 1024]}\n"
                    "  %p = slice(%w) {start = 1024, stop = 2048}\n"
                    "  return add(mul(%r, %c), %p)\n}\n",
                    "f32");
    const f8_graph *g = u.unit.module->func[0].graph;
    f8_ref all[16];
    uint32_t n = 0;
    for (f8_ref r = 1; r < g->n_nodes; r++)
        if (g->node[r].op != F8_OP_INPUT)
            all[n++] = r;
    ck_assert_uint_ge(n, 4);
    const double m = 1 << 20;
    close_to(f8_cost_nodes(g, t, all, n),
             t->speeds.launch + both(t, 2 * m / (t->speeds.vector * 1e12), memory_of(t, 12 * m)));
    /* and where the views are not among the nodes */
    close_to(f8_cost_nodes(g, t, &all[n - 2], 2),
             t->speeds.launch + both(t, 2 * m / (t->speeds.vector * 1e12), memory_of(t, 12 * m)));
    test_unit_end(&u);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("cost");
    TCase *t = tcase_create("cost");
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, finite_and_positive, 0, TARGETS * RECIPES);
    tcase_add_loop_test(t, more_takes_longer, 0, TARGETS * RECIPES);
    tcase_add_loop_test(t, fp8_gemms_are_cheaper, 0, TARGETS);
    tcase_add_loop_test(t, rows_are_cheaper_than_gemms, 0, TARGETS);
    tcase_add_loop_test(t, attention_forward_is_cheaper, 0, TARGETS);
    tcase_add_loop_test(t, nodes_agree_with_groups, 0, TARGETS * RECIPES);
    tcase_add_loop_test(t, nodes_around_a_gemm, 0, TARGETS);
    tcase_add_loop_test(t, an_addition, 0, TARGETS);
    tcase_add_loop_test(t, a_row_sum, 0, TARGETS);
    tcase_add_loop_test(t, a_gather, 0, TARGETS);
    tcase_add_loop_test(t, a_gemm, 0, TARGETS);
    tcase_add_loop_test(t, a_gemm_of_each_kind, 0, 4);
    tcase_add_test(t, attention_on_an_h100);
    tcase_add_loop_test(t, functions_and_conversions, 0, TARGETS);
    tcase_add_loop_test(t, conversions_by_hardware, 0, TARGETS);
    tcase_add_loop_test(t, attention_by_the_pair, 0, TARGETS);
    tcase_add_test(t, blocks_on_a_host);
    tcase_add_test(t, attention_in_f32);
    tcase_add_loop_test(t, a_scatter, 0, TARGETS);
    tcase_add_loop_test(t, a_concatenation, 0, TARGETS);
    tcase_add_loop_test(t, views, 0, TARGETS);
    suite_add_tcase(s, t);
    return s;
}
