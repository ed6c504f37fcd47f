/* Kernels: described, printed, compiled, run, and compared bit by bit with a naive evaluation, over
 * ragged sizes, all dtypes and any split into tasks. */
#include "tests/shared/kernel_case.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static const int ragged[] = {1, 2, 7, 15, 16, 17, 31, 33, 64, 255, 256, 257, 300, 1000};
enum { N_RAGGED = sizeof ragged / sizeof *ragged };

static f8_ref row_mean(kcase *c, f8_ref x)
{
    const int64_t n = f8_type_columns(f8_type_of(c->g, x));
    return f8_binary(c->g, F8_OP_DIV, f8_reduce(c->g, F8_OP_REDUCE_SUM, x, -1), f8_const(c->g, (double)n));
}

/* y = (x - mean) * rstd * w + b, rounded to bf16; statistics are results too */
static void layernorm(kcase *c, f8_dtype t, int rows, int cols)
{
    const f8_ref x0 = kc_input(c, t, 2, rows, cols), w = kc_input(c, F8_F32, 1, cols),
                 bias = kc_input(c, F8_F32, 1, cols);
    f8_graph *g = c->g;
    const f8_ref x = f8_cast(g, x0, F8_F32);
    const f8_ref mean = row_mean(c, x), off = f8_binary(g, F8_OP_SUB, x, mean);
    const f8_ref var = row_mean(c, f8_binary(g, F8_OP_MUL, off, off));
    const f8_ref rstd = f8_unary(g, F8_OP_RSQRT, f8_binary(g, F8_OP_ADD, var, f8_const(g, 1e-5)));
    const f8_ref xhat = f8_binary(g, F8_OP_MUL, off, rstd);
    const f8_ref y = f8_binary(g, F8_OP_ADD, f8_binary(g, F8_OP_MUL, xhat, w), bias);
    kc_out(c, f8_cast(g, y, F8_BF16));
    kc_out(c, mean);
    kc_out(c, rstd);
    kc_phase(c, rows, cols);
}

START_TEST(norm_rows)
{
    kcase c;
    kc_begin(&c);
    layernorm(&c, F8_BF16, 70, ragged[_i]);
    kc_check(&c);
    kc_end(&c);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("kernel");
    TCase *rows = tcase_create("rows");
    tcase_set_timeout(rows, 120);
    tcase_add_loop_test(rows, norm_rows, 0, N_RAGGED);
    suite_add_tcase(s, rows);
    return s;
}

int main(void)
{
    SRunner *r = srunner_create(suite());
    srunner_run_all(r, CK_ENV);
    const int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
