/* Estimated costs that are computed by hand from the target's rates. */
#include "tests/shared/passes/cost_case.h"
#include "tests/shared/suite.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Microseconds, from these rates, which are products of figures of ir/target.c. Operations and
 * bytes are in millions, so that a quotient is in microseconds. A GPU's kernel takes the longer
 * of its operations and its bytes, a host's the sum.
 *
 *            memory, TB/s            scalar operations, 10^12/s   bf16 GEMM, TFLOP/s   launch, us
 *   cpu      5 * 0.02     = 0.1      0.14                         4.5 * 0.4  = 1.8     0.5
 *   sm_89    0.85 * 0.864 = 0.7344   0.5 * 91.6 / 2  = 22.9       0.7 * 362  = 253.4   2.5
 *   sm_90a   0.85 * 3.35  = 2.8475   0.5 * 67 / 2    = 16.75      0.7 * 989  = 692.3   2.5
 *   sm_100a  0.85 * 8     = 6.8      0.5 * 75 / 2    = 18.75      0.7 * 2250 = 1575    2.5
 *   sm_120a  0.85 * 1.79  = 1.5215   0.5 * 104.8 / 2 = 26.2       0.7 * 209  = 146.3   2.5
 *
 * Eight flat kernels of a GPU share a launch: 2.5 / 8 = 0.3125. */
static void close_to(double got, double us)
{
    ck_assert_msg(fabs(1e6 * got - us) <= 1e-6 * us, "%.7g us, by hand %.7g us", 1e6 * got, us);
}

/* (x + 1) * x over 2^20 elements: two operations each; x is read once, 4 bytes in, 4 out. The flat
 * kernel shares its launch. */
static const double us_addition[COST_TARGETS] = {
    99.36574, /* cpu: 0.5 + 2.09715 / 0.14 + 8.38861 / 0.1 */
    11.7349,  /* sm_89: 0.3125 + 8.38861 / 0.7344 */
    3.258455, /* sm_90a: 0.3125 + 8.38861 / 2.8475 */
    1.546119, /* sm_100a: 0.3125 + 8.38861 / 6.8 */
    5.82588,  /* sm_120a: 0.3125 + 8.38861 / 1.5215 */
};

START_TEST(an_addition)
{
    close_to(cost_seconds(cost_target[_i],
                          "func forward(%x: f32[1024, 1024]) -> (%y: f32[1024, 1024]) {\n"
                          "  return mul(add(%x, 1), %x)\n}\n"),
             us_addition[_i]);
}
END_TEST

/* Rows [4096, 512] less their sum, which stays inside: a reduction and a subtraction for each
 * of 2^21 elements, 4 bytes in, 4 out. A row kernel has a launch of its own. */
static const double us_row_sum[COST_TARGETS] = {
    198.2315, /* cpu: 0.5 + 4.1943 / 0.14 + 16.7772 / 0.1 */
    25.34479, /* sm_89: 2.5 + 16.7772 / 0.7344 */
    8.391911, /* sm_90a: 2.5 + 16.7772 / 2.8475 */
    4.967238, /* sm_100a: 2.5 + 16.7772 / 6.8 */
    13.52676, /* sm_120a: 2.5 + 16.7772 / 1.5215 */
};

START_TEST(a_row_sum)
{
    close_to(cost_seconds(cost_target[_i],
                          "func forward(%x: f32[4096, 512]) -> (%y: f32[4096, 512]) {\n"
                          "  return sub(%x, reduce_sum(%x))\n}\n"),
             us_row_sum[_i]);
}
END_TEST

/* 256 rows of 512 are picked: they are read, not the table, with 256 ids of 4 bytes: 131072
 * operations, 8 * 131072 + 1024 bytes. */
static const double us_gather[COST_TARGETS] = {
    11.93223, /* cpu: 0.5 + 0.131072 / 0.14 + 1.0496 / 0.1 */
    3.929194, /* sm_89: 2.5 + 1.0496 / 0.7344 */
    2.868604, /* sm_90a: 2.5 + 1.0496 / 2.8475 */
    2.654353, /* sm_100a: 2.5 + 1.0496 / 6.8 */
    3.189846, /* sm_120a: 2.5 + 1.0496 / 1.5215 */
};

START_TEST(a_gather)
{
    close_to(cost_seconds(cost_target[_i],
                     "func forward(%w: f32[4096, 512], %i: i32[256]) -> (%y: f32[256, 512]) {\n"
                     "  return embedding(%w, %i)\n}\n"),
             us_gather[_i]);
}
END_TEST

/* m = 4096, n = 1024, k = 2048: 2 m n k operations; operands of 2 (m k + k n) bytes, which a
 * host packs at 0.01 TB/s, and a result of 4 m n. */
static const double us_gemm[COST_TARGETS] = {
    11809.8,  /* cpu: 0.5 + 17179.9 / 1.8 + 20.9715 / 0.01 + 16.7772 / 0.1 */
    70.29743, /* sm_89: 2.5 + 17179.9 / 253.4 */
    27.31564, /* sm_90a: 2.5 + 17179.9 / 692.3 */
    13.40785, /* sm_100a: 2.5 + 17179.9 / 1575 */
    119.929,  /* sm_120a: 2.5 + 17179.9 / 146.3 */
};

START_TEST(a_gemm)
{
    close_to(
        cost_seconds(
            cost_target[_i],
            "func forward(%a: bf16[4096, 2048], %b: bf16[1024, 2048]) -> (%y: f32[4096, 1024]) {\n"
            "  return matmul(%a, %b) {transpose_b = true}\n}\n"),
        us_gemm[_i]);
}
END_TEST

/* On an H100, by the scales' rates, f32 operands by their own: 2 * 8192^3 = 1.09951e12
 * operations. */
START_TEST(a_gemm_of_each_kind)
{
    static const struct {
        const char *args, *body;
        double us;
    } kind[] = {
        {"%a: f32[8192, 8192], %b: f32[8192, 8192]", "matmul(%a, %b)",
         23446.24}, /* 2.5 + 1099512 / (0.7 * 67) */
        {"%a: f8e4m3[8192, 8192], %s: f32[], %b: f8e4m3[8192, 8192], %t: f32[]",
         "scaled_matmul(%a, %s, %b, %t) {transpose_b = true}",
         796.1993}, /* 2.5 + 1099512 / (0.7 * 1979) */
        {"%a: f8e4m3[8192, 8192], %s: f32[8192, 1], %b: f8e4m3[8192, 8192], %t: f32[8192, 1]",
         "scaled_matmul(%a, %s, %b, %t) {transpose_b = true, scale_a = \"row\", scale_b = \"row\"}",
         796.1993},
        {"%a: f8e4m3[8192, 8192], %s: f32[8192, 64], %b: f8e4m3[8192, 8192], %t: f32[64, 64]",
         "scaled_matmul(%a, %s, %b, %t) {transpose_b = true, scale_a = \"block(1,128)\", scale_b = "
         "\"block(128,128)\"}",
         1015.875}, /* 2.5 + 1099512 / (0.7 * 1550) */
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
    close_to(f8_cost_nodes(g, target, &product, 1), kind[_i].us);
    test_unit_end(&t);
}
END_TEST

/* H100, 8 x 2048 tokens of 16 heads of 128, causal: 4 * 8 * 16 * 128 * 2048 * 2049 / 2 = 137506e6
 * operations at 298 TFLOP/s: 2.5 + 137506 / 298. */
START_TEST(attention_on_an_h100)
{
    close_to(cost_seconds("sm_90a", "func forward(%q: bf16[8, 2048, 2048], %k: bf16[8, 2048, 2048],"
                               " %v: bf16[8, 2048, 2048]) -> (%y: bf16[8, 2048, 2048]) {\n"
                               "  return attention(%q, %k, %v) {heads = 16}\n}\n"),
             463.9297);
}
END_TEST

/* By counting ir/num/scalar.def: rounding to bf16 has eight operations, but is one instruction of a
 * GPU; 4 bytes in, 2 out. */
static const double us_rounding[COST_TARGETS] = {
    123.3332, /* cpu: 0.5 + 8.38861 / 0.14 + 6.29146 / 0.1 */
    8.879297, /* sm_89: 0.3125 + 6.29146 / 0.7344 */
    2.521967, /* sm_90a: 0.3125 + 6.29146 / 2.8475 */
    1.237714, /* sm_100a: 0.3125 + 6.29146 / 6.8 */
    4.447535, /* sm_120a: 0.3125 + 6.29146 / 1.5215 */
};

/* tanh has 21 operations that no constant or renaming is, a division among them that counts
 * eight: 28, four times. */
static const double us_tanh[COST_TARGETS] = {
    923.2469, /* cpu: 0.5 + 117.441 / 0.14 + 8.38861 / 0.1 */
    11.7349,  /* sm_89: 0.3125 + 8.38861 / 0.7344 */
    7.323874, /* sm_90a: 0.3125 + 117.441 / 16.75 */
    6.575994, /* sm_100a: 0.3125 + 117.441 / 18.75 */
    5.82588,  /* sm_120a: 0.3125 + 8.38861 / 1.5215 */
};

START_TEST(functions_and_conversions)
{
    close_to(cost_seconds(cost_target[_i],
                          "func forward(%x: f32[1024, 1024]) -> (%y: bf16[1024, 1024]) {\n"
                          "  return cast(%x) {to = bf16}\n}\n"),
             us_rounding[_i]);
    close_to(cost_seconds(cost_target[_i],
                          "func forward(%x: f32[1024, 1024]) -> (%y: f32[1024, 1024]) {\n"
                          "  return tanh(tanh(tanh(tanh(%x))))\n}\n"),
             us_tanh[_i]);
}
END_TEST

/* An addition, then thirty-two rounds, so that arithmetic is what takes time. A round is a
 * multiplication and two conversions: two operations where the hardware converts, on a host
 * eight and the shift that decodes. So 1 + 32 * 3 = 97 operations for each of 2^20 elements, or
 * 1 + 32 * 10 = 321. */
static const double us_conversions[COST_TARGETS] = {
    2488.621, /* cpu: 0.5 + 336.593 / 0.14 + 8.38861 / 0.1 */
    11.7349,  /* sm_89: 0.3125 + 8.38861 / 0.7344 */
    6.384851, /* sm_90a: 0.3125 + 101.712 / 16.75 */
    5.737133, /* sm_100a: 0.3125 + 101.712 / 18.75 */
    5.82588,  /* sm_120a: 0.3125 + 8.38861 / 1.5215 */
};

START_TEST(conversions_by_hardware)
{
    enum { ROUNDS = 32 };
    char text[4096] =
        "func forward(%x: f32[1024, 1024]) -> (%y: f32[1024, 1024]) {\n  %a0 = add(%x, 1)\n";
    for (int i = 0; i < ROUNDS; i++) {
        const size_t at = strlen(text);
        snprintf(text + at, sizeof text - at,
                 "  %%a%d = mul(cast(cast(%%a%d) {to = bf16}) {to = f32}, %%x)\n", i + 1, i);
    }
    const size_t at = strlen(text);
    snprintf(text + at, sizeof text - at, "  return %%a%d\n}\n", ROUNDS);
    close_to(cost_seconds(cost_target[_i], text), us_conversions[_i]);
}
END_TEST

/* 8 * 12 * 1024 * 1025 / 2 = 50.3808e6 pairs of query and key, each with 4 * 64 operations in
 * products, at these rates; on a host an exp besides, 23 scalar operations. q, k, v, o and lse
 * are moved: 4 * 2 * 8 * 1024 * 768 + 4 * 8 * 12 * 1024 bytes. */
static const double us_attention[COST_TARGETS] = {
    46718.37, /* cpu: 0.5 + 12897.5 / 0.34 + 1158.76 / 0.14 + 50.7249 / 0.1 */
    71.5698,  /* sm_89: 2.5 + 50.7249 / 0.7344 */
    45.78015, /* sm_90a: 2.5 + 12897.5 / 298 */
    41.11522, /* sm_100a: 2.5 + 12897.5 / 334 */
    105.6799, /* sm_120a: 2.5 + 12897.5 / 125 */
};

START_TEST(attention_by_the_pair)
{
    close_to(cost_seconds(cost_target[_i],
                          "func forward(%q: bf16[8, 1024, 768], %k: bf16[8, 1024, 768],"
                          " %v: bf16[8, 1024, 768]) -> (%y: bf16[8, 1024, 768]) {\n"
                          "  return attention(%q, %k, %v) {heads = 12}\n}\n"),
             us_attention[_i]);
}
END_TEST

/* On a host blocks of f32 scales cut k, so that 0.65 of the speed is left; E8M0 ones don't.
 * 2^31 operations, operands of 2 * 2^20 bytes, a result of 4 * 2^20, scales of 2 * 1024 * 8 * 4
 * = 65536 bytes or 2 * 1024 * 32 = 65536:
 *
 *   f32      0.5 + 2147.484 / (0.65 * 1.8) + 2.097152 / 0.01 + 4.25984 / 0.1
 *   E8M0     0.5 + 2147.484 / 1.8 + 2.097152 / 0.01 + 4.25984 / 0.1 */
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
    close_to(took[0], 2088.270);
    close_to(took[1], 1445.860);
}
END_TEST

/* Heads in f32 have no tensor cores: multiply-adds at two operations a slot of the lanes.
 * 4 * 8 * 16 * 128 * 2048 * 2048 = 274878e6 operations: 2.5 + 274878 / (2 * 16.75). */
START_TEST(attention_in_f32)
{
    close_to(cost_seconds("sm_90a", "func forward(%q: f32[8, 2048, 2048], %k: f32[8, 2048, 2048],"
                               " %v: f32[8, 2048, 2048]) -> (%y: f32[8, 2048, 2048]) {\n"
                               "  return attention(%q, %k, %v) {heads = 16, causal = false}\n}\n"),
             8207.811);
}
END_TEST

/* 256 ids of 4 bytes, 256 * 512 gradients of 4, and as many elements read, added to and written:
 * 1024 + 3 * 4 * 131072 bytes. */
static const double us_scatter[COST_TARGETS] = {
    16.23888, /* cpu: 0.5 + 1.57389 / 0.1 */
    4.643094, /* sm_89: 2.5 + 1.57389 / 0.7344 */
    3.052726, /* sm_90a: 2.5 + 1.57389 / 2.8475 */
    2.731454, /* sm_100a: 2.5 + 1.57389 / 6.8 */
    3.534432, /* sm_120a: 2.5 + 1.57389 / 1.5215 */
};

START_TEST(a_scatter)
{
    close_to(cost_seconds(cost_target[_i],
                     "func forward(%w: f32[4096, 512], %i: i32[256], %d: f32[256, 512]) ->"
                     " (%y: f32[4096, 512]) {\n  return embedding_grad(%w, %i, %d)\n}\n"),
             us_scatter[_i]);
}
END_TEST

/* Inputs are copied into a concatenation: 64 * 768 elements of 4 bytes, read and written. What is
 * computed is computed there. */
static const double us_concatenation[COST_TARGETS] = {
    4.43216,  /* cpu: 0.5 + 0.393216 / 0.1 */
    3.035425, /* sm_89: 2.5 + 0.393216 / 0.7344 */
    2.638092, /* sm_90a: 2.5 + 0.393216 / 2.8475 */
    2.557826, /* sm_100a: 2.5 + 0.393216 / 6.8 */
    2.75844,  /* sm_120a: 2.5 + 0.393216 / 1.5215 */
};

START_TEST(a_concatenation)
{
    const f8_target *t = f8_target_by_name(cost_target[_i]);
    close_to(cost_seconds(t->name,
                     "func forward(%a: f32[64, 512], %b: f32[64, 256]) -> (%y: f32[64, 768]) {\n"
                     "  return concat(%a, %b)\n}\n"),
             us_concatenation[_i]);
    test_unit u;
    const f8_func *f = cost_grouped(&u, t->name,
                               "func forward(%a: f32[64, 512]) -> (%y: f32[64, 1024]) {\n"
                               "  return concat(tanh(%a), exp(%a))\n}\n");
    ck_assert_double_eq(cost_of_kind(f, t, F8_GROUP_COPY), 0);
    test_unit_end(&u);
}
END_TEST

/* A value is read once, whatever shapes it is read in; of a slice only that. Two operations for
 * each of 2^20 elements, 8 bytes in, 4 out. */
static const double us_views[COST_TARGETS] = {
    141.3088, /* cpu: 0.5 + 2.09715 / 0.14 + 12.5829 / 0.1 */
    19.63359, /* sm_89: 2.5 + 12.5829 / 0.7344 */
    6.918933, /* sm_90a: 2.5 + 12.5829 / 2.8475 */
    4.350428, /* sm_100a: 2.5 + 12.5829 / 6.8 */
    10.77007, /* sm_120a: 2.5 + 12.5829 / 1.5215 */
};

START_TEST(views)
{
    const f8_target *t = f8_target_by_name(cost_target[_i]);
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
    close_to(f8_cost_nodes(g, t, all, n), us_views[_i]);
    /* and where the views are not among the nodes */
    close_to(f8_cost_nodes(g, t, &all[n - 2], 2), us_views[_i]);
    test_unit_end(&u);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("cost_by_hand");
    TCase *t = tcase_create("cost");
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, an_addition, 0, COST_TARGETS);
    tcase_add_loop_test(t, a_row_sum, 0, COST_TARGETS);
    tcase_add_loop_test(t, a_gather, 0, COST_TARGETS);
    tcase_add_loop_test(t, a_gemm, 0, COST_TARGETS);
    tcase_add_loop_test(t, a_gemm_of_each_kind, 0, 4);
    tcase_add_test(t, attention_on_an_h100);
    tcase_add_loop_test(t, functions_and_conversions, 0, COST_TARGETS);
    tcase_add_loop_test(t, conversions_by_hardware, 0, COST_TARGETS);
    tcase_add_loop_test(t, attention_by_the_pair, 0, COST_TARGETS);
    tcase_add_test(t, blocks_on_a_host);
    tcase_add_test(t, attention_in_f32);
    tcase_add_loop_test(t, a_scatter, 0, COST_TARGETS);
    tcase_add_loop_test(t, a_concatenation, 0, COST_TARGETS);
    tcase_add_loop_test(t, views, 0, COST_TARGETS);
    suite_add_tcase(s, t);
    return s;
}
