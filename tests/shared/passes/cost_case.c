/* See cost_case.h. */
#include "tests/shared/passes/cost_case.h"

#include <math.h>
#include <stdio.h>

#include "tests/shared/suite.h"

const char *const cost_target[COST_TARGETS] = {"cpu", "sm_89", "sm_90a", "sm_100a", "sm_120a"};

const f8_func *cost_grouped(test_unit *t, const char *target, const char *text)
{
    char whole[8192];
    snprintf(whole, sizeof whole, "module m\n%s", text);
    test_unit_parse(t, whole, "f32");
    t->unit.options.target = f8_target_by_name(target);
    test_pass(t, f8_pass_canonicalize);
    test_pass(t, f8_pass_legalize);
    test_pass(t, f8_pass_group);
    const f8_func *f = &t->unit.module->func[0];
    ck_assert_ptr_null(f->lowered->place);
    ck_assert_ptr_null(f->lowered->order);
    return f;
}

double cost_seconds(const char *target, const char *text)
{
    test_unit t;
    const f8_func *f = cost_grouped(&t, target, text);
    ck_assert_uint_eq(f->lowered->n_groups, 1);
    const double s = f8_cost_group(f, f8_target_by_name(target), 0);
    ck_assert_msg(isfinite(s) && s > 0, "%s: %g s", target, s);
    test_unit_end(&t);
    return s;
}

double cost_of_kind(const f8_func *f, const f8_target *target, f8_group_kind kind)
{
    double s = 0;
    for (uint32_t i = 0; i < f->lowered->n_groups; i++)
        if (f->lowered->group[i].kind == kind)
            s += f8_cost_group(f, target, i);
    return s;
}
