/* `fp8c ops`: the list, one op, records, and the page frontend/text/OPS.md. tests/ir/check_ops.c
 * holds what they say against inference. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/fp8c_diagnose.h"
#include "tests/shared/api/cli.h"
#include "tests/shared/suite.h"

/* The page in the tree is what the command prints. To write it again:
 * build/fp8c ops --markdown >frontend/text/OPS.md */
START_TEST(ops_page)
{
    size_t n;
    char *page = f8_cli_read("frontend/text/OPS.md", &n);
    const f8_cli_result r = F8_CLI("ops", "--markdown");
    f8_cli_ok(r);
    ck_assert_msg(!strcmp(r.out, page),
                  "frontend/text/OPS.md is not what fp8c ops --markdown prints");
    free(page);
}
END_TEST

START_TEST(ops_listed)
{
    const f8_cli_result r = F8_CLI("ops");
    f8_cli_ok(r);
    const char *name;
    for (int i = 0; (name = fp8c_name(FP8C_NAME_OP, i)); i++) {
        char line[64];
        snprintf(line, sizeof line, "\n  %s ", name);
        ck_assert_msg(strstr(r.out, line) != NULL, "no '%s' in %s", name, r.out);
    }
    ck_assert_msg(!strncmp(r.out, "Leaves: no operands\n  const ", 28), "%s", r.out);
}
END_TEST

START_TEST(one_op)
{
    f8_cli_result r = F8_CLI("ops", "linear");
    f8_cli_ok(r);
    ck_assert_str_eq(
        r.out, "linear(x, w[, bias])\n"
               "    x w + bias; recipes say in which format its three GEMMs are\n\n"
               "    types       f32[.., K], t[K, N], u[N] -> f32[.., N]; t: f32, bf16; "
               "u: f32, bf16\n"
               "    gradient    yes\n"
               "    attributes  transpose_b = false         the second operand is stored [N, K]\n"
               "                name = \"\"                   a linear's name, which recipe "
               "rules match\n");
    r = F8_CLI("ops", "floor");
    f8_cli_ok(r);
    ck_assert_msg(strstr(r.out, "floor(x)\n") &&
                      strstr(r.out, "types       f32[..] -> f32[..]\n") &&
                      strstr(r.out, "gradient    zero everywhere\n"),
                  "%s", r.out);
    r = F8_CLI("ops", "gelu", "--json", "-");
    f8_cli_ok(r);
    ck_assert_str_eq(
        r.out,
        "{\"event\":\"op\",\"name\":\"gelu\",\"group\":\"composite\",\"operands\":[\"x\"],"
        "\"min_operands\":1,\"max_operands\":1,\"results\":1,"
        "\"types\":\"f32[..] -> f32[..]\",\"gradient\":\"yes\","
        "\"text\":\"x times the normal distribution's share below x\","
        "\"attributes\":[{\"name\":\"approximate\",\"kind\":\"string\",\"default\":"
        "\"tanh\",\"text\":\"\\\"tanh\\\" or \\\"none\\\" (by erf)\"},"
        "{\"name\":\"rounded\",\"kind\":\"dtype\",\"default\":\"f32\",\"text\":\"bf16: readers "
        "round the result and its gradient to bf16 or less, so both are approximated; f32: they do "
        "not\"}]}\n");
    f8_cli_fails(F8_CLI("ops", "gleu"), 2, "fp8c ops: no such op 'gleu': `fp8c ops` lists all");
    f8_cli_fails(F8_CLI("ops", "input"), 2, "no such op 'input'");
    f8_cli_fails(F8_CLI("ops", "--markdown", "--json", "-"), 2, "both write to stdout");
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("cli_ops");
    TCase *t = tcase_create("cli_ops");
    tcase_add_checked_fixture(t, f8_cli_setup, f8_cli_teardown);
    tcase_add_test(t, ops_page);
    tcase_add_test(t, ops_listed);
    tcase_add_test(t, one_op);
    suite_add_tcase(s, t);
    return s;
}
