/* Costs: what must hold of any estimate, and a few worked out by hand from the target's figures. */
#include "tests/shared/compile.h"
#include "tests/shared/unit.h"

#include "frontend/parse.h"
#include "passes/cost.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>

/* ---- setting up ---- */

static void model(test_unit *t, const char *recipe, const f8_target *target, int64_t tokens)
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
    t->unit.options.target = target;
    ck_assert_msg(f8_run_passes(&t->unit) == F8_OK, "%s", t->diag.text);
    free(text);
}

static double all_groups(const f8_func *f, const f8_target *target)
{
    double seconds = 0;
    for (uint32_t i = 0; i < f->program->n_groups; i++) {
        const double s = f8_cost_group(f, target, i);
        /* a concatenation whose parts are made where it lies moves nothing */
        const bool nothing = f8_at(f->graph, f->program->group[i].out[0])->op == F8_OP_CONCAT;
        ck_assert_msg(isfinite(s) && (nothing ? s >= 0 : s > 0), "%s: %g s", f->program->group[i].name, s);
        seconds += s;
    }
    return seconds;
}

/* ---- what must hold ---- */

static const char *const names[] = {"cpu", "sm_89", "sm_90a", "sm_100a", "sm_120a"};

START_TEST(more_takes_longer)
{
    const f8_target *target = f8_target_by_name(names[_i % 5]);
    const char *recipe = _i / 5 ? "delayed" : "bf16";
    double before = 0;
    for (int64_t tokens = 256; tokens <= 1024; tokens *= 2) {
        test_unit t;
        model(&t, recipe, target, tokens);
        const double seconds = all_groups(test_func(&t, "micro_step"), target);
        ck_assert_double_gt(seconds, before);
        before = seconds;
        test_unit_end(&t);
    }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cost");
    TCase *t = tcase_create("cost");
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, more_takes_longer, 0, 10);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    const int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}
