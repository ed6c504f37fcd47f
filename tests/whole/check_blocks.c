/* Layers in the caller's loop: four blocks as four programs equal the four as one program's pair. */
#include "tests/shared/api/blocks_case.h"
#include "tests/shared/suite.h"

enum { STEPS = 20 };

static blocks one, four;

START_TEST(four_programs_equal_one)
{
    const char *name = fp8c_recipe_name(_i);
    fp8c_context *ctx = new_context();
    blocks_begin(&one, ctx, name, false, CUT_PROBED);
    blocks_begin(&four, ctx, name, true, CUT_PROBED);
    for (int i = 0; i < STEPS; i++) {
        blocks_step(&one);
        blocks_step(&four);
        const char *what = blocks_differ(&one, &four);
        ck_assert_msg(!what, "%s: step %d: %s differs", name, i, what);
        if (getenv("V")) printf("%s %d %g\n", name, i, *(float *)pair_find(&one.micro[0], "loss")->data);
    }
    blocks_end(&one);
    blocks_end(&four);
    fp8c_context_destroy(ctx);
}
END_TEST

Suite *f8_suite(void)
{
    int n = 0;
    while (fp8c_recipe_name(n))
        n++;
    Suite *s = suite_create("blocks");
    TCase *t = tcase_create("blocks");
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_loop_test(t, four_programs_equal_one, 0, n);
    suite_add_tcase(s, t);
    return s;
}
