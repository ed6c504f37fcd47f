/* Whole plans: the same bytes whoever compiles their kernels, code whose size does not grow with a
 * model's depth, and statistics that are true. Other tests run the plans. */
#include "codegen/build.h"
#include "frontend/text/parse.h"
#include "tests/shared/passes/passes.h"
#include "tests/shared/passes/compile.h"
#include "tests/shared/suite.h"

#include <stdlib.h>
#include <string.h>

typedef struct built {
    f8_arena arena;
    f8_diag diag;
    f8_unit unit;
    f8_plan plan;
    f8_build_stats stats;
} built;

static void build(built *b, const char *layers, const char *recipe, int threads, const char *cpu)
{
    *b = (built){0};
    f8_arena_init(&b->arena, NULL);
    size_t size;
    char *text = f8_test_read("frontend/models/gpt.f8", &size);
    ck_assert_ptr_nonnull(text);
    const f8_dim_override dims[] = {{"L", atoll(layers)}, {"B", 2}, {"T", 32}, {"C", 128}};
    b->unit = (f8_unit){.arena = &b->arena, .diag = &b->diag};
    b->unit.options.recipe = f8_recipe_by_name(recipe);
    f8_status s = f8_parse(text, size, "gpt.f8", dims, 4, &b->arena, &b->diag, &b->unit.module);
    if (s == F8_OK)
        s = f8_run_passes(&b->unit);
    const f8_build_options o = {.threads = threads, .cpu = cpu, .stats = &b->stats};
    if (s == F8_OK)
        s = f8_build_plan(b->unit.module, &o, &b->arena, &b->plan, &b->diag);
    ck_assert_msg(s == F8_OK, "%s", b->diag.text);
    free(text);
}

static void end(built *b)
{
    f8_arena_end(&b->arena);
}

static bool same_steps(const f8_plan_func *a, const f8_plan_func *b)
{
    bool same = a->n_steps == b->n_steps;
    for (uint32_t i = 0; same && i < a->n_steps; i++) {
        const f8_step *x = &a->step[i], *y = &b->step[i];
        same = x->kind == y->kind && !strcmp(x->name, y->name) && x->hash == y->hash &&
               x->n_args == y->n_args && x->n_ints == y->n_ints && x->n_phases == y->n_phases &&
               !memcmp(x->ints, y->ints, x->n_ints * sizeof *x->ints) &&
               !memcmp(&x->copy, &y->copy, sizeof x->copy);
        for (uint32_t k = 0; same && k < x->n_phases; k++)
            same = x->phase[k].entry == y->phase[k].entry &&
                   x->phase[k].n_tasks == y->phase[k].n_tasks &&
                   x->phase[k].scratch == y->phase[k].scratch;
        for (uint32_t k = 0; same && k < x->n_args; k++)
            same = x->arg[k].space == y->arg[k].space && x->arg[k].offset == y->arg[k].offset;
    }
    return same;
}

START_TEST(same_bytes_on_any_threads)
{
    built a, b;
    build(&a, "2", "delayed", 1, NULL);
    build(&b, "2", "delayed", 3, NULL);
    ck_assert_int_eq(a.plan.blob_bytes, b.plan.blob_bytes);
    ck_assert(!memcmp(a.plan.blob, b.plan.blob, (size_t)a.plan.blob_bytes));
    ck_assert_uint_eq(a.plan.n_funcs, b.plan.n_funcs);
    for (uint32_t i = 0; i < a.plan.n_funcs; i++)
        ck_assert(same_steps(&a.plan.func[i], &b.plan.func[i]));
    end(&a);
    end(&b);
}
END_TEST

START_TEST(depth_adds_no_code)
{
    static const char *const recipes[] = {"f32", "bf16", "delayed", "current"};
    built a, b;
    build(&a, "3", recipes[_i], 2, NULL);
    build(&b, "7", recipes[_i], 2, NULL);
    for (uint32_t i = 0; i < b.stats.n_kernels; i++) {
        bool found = false;
        for (uint32_t k = 0; k < a.stats.n_kernels && !found; k++)
            found = !strcmp(a.stats.kernel[k].text, b.stats.kernel[i].text);
        /* a kernel over one number for each parameter or linear has another length; micro_step and
         * its form for the first step launch it once each */
        ck_assert_msg(found || b.stats.kernel[i].launches <= (uint32_t)(1 + (_i == 2)),
                      "new at depth 7: %s, %u launches", b.stats.kernel[i].name,
                      b.stats.kernel[i].launches);
    }
    ck_assert_uint_le(b.stats.n_kernels, a.stats.n_kernels);
    end(&a);
    end(&b);
}
END_TEST

START_TEST(counts)
{
    built b;
    build(&b, "2", "delayed", 2, "x86-64-v3");
    uint32_t launches = 0, kernels = 0, fp8 = 0;
    for (uint32_t i = 0; i < b.stats.n_kernels; i++)
        launches += b.stats.kernel[i].launches;
    for (uint32_t f = 0; f < b.plan.n_funcs; f++)
        for (uint32_t i = 0; i < b.plan.func[f].n_steps; i++) {
            const f8_step *s = &b.plan.func[f].step[i];
            /* one launch a phase, but for attention, which is one launch of one or two phases */
            kernels += s->n_phases;
            fp8 += s->fp8 != 0;
            ck_assert_int_gt(s->bytes_written, 0);
            for (uint32_t k = 0; k < s->n_phases; k++) {
                ck_assert_uint_lt(s->phase[k].entry, (uint64_t)b.plan.blob_code_bytes);
                ck_assert_int_gt(s->phase[k].n_tasks, 0);
            }
        }
    ck_assert_uint_le(launches, kernels);
    ck_assert_uint_gt(2 * launches, kernels);
    ck_assert_uint_gt(fp8, 0);
    ck_assert_uint_eq(b.plan.n_kernels, b.stats.n_kernels);
    ck_assert_uint_eq(b.plan.n_vars, b.unit.module->n_vars);
    for (uint32_t i = 0; i < b.plan.n_vars; i++) {
        ck_assert_int_ge(b.plan.var[i].offset, 0);
        ck_assert_int_le(b.plan.var[i].offset + f8_type_bytes(&b.plan.var[i].type),
                         b.plan.state_bytes);
    }
    end(&b);
}
END_TEST

START_TEST(no_llvm)
{
    built b;
    build(&b, "1", "bf16", 2, NULL);
    f8_plan plan;
    f8_diag d = {0};
    const f8_build_options o = {.llvm = "no/such/libLLVM.so"};
    ck_assert_int_eq(f8_build_plan(b.unit.module, &o, &b.arena, &plan, &d), F8_ERR_LIBRARY);
    ck_assert_ptr_nonnull(strstr(d.text, "LLVM"));
    const f8_build_options old = {.cpu = "pentium"};
    f8_diag e = {0};
    ck_assert_int_eq(f8_build_plan(b.unit.module, &old, &b.arena, &plan, &e), F8_ERR_UNSUPPORTED);
    end(&b);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("build");
    TCase *t = tcase_create("plans");
    tcase_set_timeout(t, 120);
    tcase_add_test(t, same_bytes_on_any_threads);
    tcase_add_loop_test(t, depth_adds_no_code, 0, 4);
    tcase_add_test(t, counts);
    tcase_add_test(t, no_llvm);
    suite_add_tcase(s, t);
    return s;
}
