/* Casts and quantizes beside reshapes that regroup rows and columns: legalize moves the reshape to
 * the narrower side, since a regrouped value must lie in memory. */
#include "tests/shared/passes/unit.h"
#include "tests/shared/suite.h"

#include <stdio.h>

static const struct {
    const char *text, *body;
} reshapes[] = {
    /* the narrow value is regrouped */
    {"func forward(%x: f32[2, 44]) -> (%y: bf16[88]) {\n"
     "  return cast(reshape(%x) {shape = [88]}) {to = bf16}\n}\n",
     "  %1 = cast(%x) {to = bf16}\n  %2 = reshape(%1) {shape = [88]}\n  return %2\n"},
    {"func forward(%x: bf16[2, 44]) -> (%y: f32[88]) {\n"
     "  return reshape(cast(%x)) {shape = [88]}\n}\n",
     "  %1 = reshape(%x) {shape = [88]}\n  %2 = cast(%1)\n  return %2\n"},
    {"func forward(%x: f32[2, 44], %s: f32[]) -> (%y: f8e4m3[44, 2]) {\n"
     "  return quantize(reshape(%x) {shape = [44, 2]}, %s)\n}\n",
     "  %1 = quantize(%x, %s)\n  %2 = reshape(%1) {shape = [44, 2]}\n  return %2\n"},
    /* but codes with scales of blocks are not, even if there is one block: another shape has other
     * blocks */
    {"func forward(%x: f32[1, 44], %s: f32[1, 1]) -> (%y: f8e4m3[1, 44, 1]) {\n"
     "  return quantize(reshape(%x) {shape = [1, 44, 1]}, %s) {granularity = "
     "\"block(128,1)\"}\n}\n",
     "  %1 = reshape(%x) {shape = [1, 44, 1]}\n"
     "  %2 = quantize(%1, %s) {granularity = \"block(128,1)\"}\n  return %2\n"},
};
enum { N_RESHAPES = sizeof reshapes / sizeof *reshapes };

START_TEST(narrow_values_are_regrouped)
{
    test_unit t;
    char whole[1024];
    snprintf(whole, sizeof whole, "module m\n%s", reshapes[_i].text);
    test_unit_parse(&t, whole, "f32");
    t.unit.options.target = f8_target_by_name("cpu");
    test_pass(&t, f8_pass_legalize);
    ck_assert_str_eq(test_print(&t, "forward"), reshapes[_i].body);
    test_unit_end(&t);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("reshapes");
    TCase *t = tcase_create("reshapes");
    tcase_add_loop_test(t, narrow_values_are_regrouped, 0, N_RESHAPES);
    suite_add_tcase(s, t);
    return s;
}
