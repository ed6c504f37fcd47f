/* The CPU target against the reference interpreter on random functions, op by op.
 *
 * What a library computes (matmul, attention) depends on its algorithm, so those results are read
 * back from the target, held to a tolerance against the reference on the target's own inputs, and
 * taken as they are from there on. Everything else must be equal to the last bit, NaNs by class. */
#include "tests/shared/program_check.h"
#include "tests/shared/random_graph.h"

#include "codegen/build.h"
#include "codegen/reference.h"
#include "ir/fp8.h"
#include "passes/pass.h"
#include "runtime/exec.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FUNCS = 10 }; /* compiled together */

/* ---- the reference, node by node ---- */

typedef struct oracle {
    f8_arena arena;
    const f8_func *f;
    void **value; /* by ref: the first result */
    void *(*further)[F8_MAX_RESULTS];
    uint64_t seed;
} oracle;

static void *buffer(oracle *o, const f8_type *t)
{
    return f8_arena_array(&o->arena, (size_t)f8_type_elements(t) + 64, f8_dtype_size(t->dtype));
}

static float decoded(const f8_type *t, const void *data, int64_t i)
{
    const size_t size = f8_dtype_size(t->dtype);
    uint32_t bits = 0;
    memcpy(&bits, (const uint8_t *)data + (size_t)i * size, size);
    return t->dtype == F8_F32 ? f8_from_bits(bits) : f8_decode(t->dtype, bits);
}

static bool same_element(const f8_type *t, const void *a, const void *b, int64_t i)
{
    const size_t size = f8_dtype_size(t->dtype);
    if (!memcmp((const uint8_t *)a + (size_t)i * size, (const uint8_t *)b + (size_t)i * size, size))
        return true;
    return f8_dtype_is_float(t->dtype) && isnan(decoded(t, a, i)) && isnan(decoded(t, b, i));
}

static void expect_same(const oracle *o, const char *name, const f8_type *t, const void *want,
                        const void *got)
{
    const int64_t n = f8_type_elements(t);
    for (int64_t i = 0; i < n; i++)
        ck_assert_msg(same_element(t, want, got, i), "seed %llu, %s[%lld]: %a, not %a",
                      (unsigned long long)o->seed, name, (long long)i,
                      (double)(f8_dtype_is_float(t->dtype) ? decoded(t, got, i) : 0),
                      (double)(f8_dtype_is_float(t->dtype) ? decoded(t, want, i) : 0));
}

/* Signs cleared: for the sum of absolute products that bounds a matmul's error. */
static void *magnitudes(oracle *o, const f8_type *t, const void *data)
{
    const int64_t n = f8_type_elements(t);
    const size_t size = f8_dtype_size(t->dtype);
    uint8_t *copy = buffer(o, t);
    memcpy(copy, data, (size_t)n * size);
    for (int64_t i = 0; i < n; i++)
        copy[(size_t)(i + 1) * size - 1] &= 0x7f;
    return copy;
}

/* Any order of adding k + 1 products in f32 errs by at most (k + 1) 2^-23 of the sum of their
 * magnitudes. */
static void expect_near_matmul(oracle *o, f8_ref r, const void *want, const void *got)
{
    const f8_graph *g = o->f->graph;
    const f8_node *n = f8_at(g, r);
    const void *in[3];
    for (uint32_t i = 0; i < n->n_in; i++)
        in[i] = magnitudes(o, f8_type_of(g, n->in[i]), o->value[n->in[i]]);
    void *sum = buffer(o, &n->type);
    f8_diag diag = {0};
    ck_assert_int_eq(f8_reference_node(g, r, in, &sum, NULL, &diag), F8_OK);
    const f8_type *a = f8_type_of(g, n->in[0]);
    const int64_t k = f8_attr_i(g, r, F8_A_TRANSPOSE_A) ? f8_type_rows(a) : f8_type_columns(a);
    for (int64_t i = 0; i < f8_type_elements(&n->type); i++) {
        const double w = (double)decoded(&n->type, want, i), t = (double)decoded(&n->type, got, i);
        const double bound = (double)(k + 2) * 0x1p-23 * (double)decoded(&n->type, sum, i) + 1e-37;
        if (isfinite(bound) && isfinite(w))
            ck_assert_msg(fabs(w - t) <= bound,
                          "seed %llu: matmul %%%u[%lld] of k %lld: %a, not %a",
                          (unsigned long long)o->seed, r, (long long)i, (long long)k, t, w);
    }
}

/* Rows of attention are averages: errors are small against the largest value.
 * tests/check_attention.c is strict. */
static void expect_near(const oracle *o, f8_ref r, const f8_type *t, const void *want,
                        const void *got)
{
    double most = 0;
    for (int64_t i = 0; i < f8_type_elements(t); i++)
        most = fmax(most, fabs((double)decoded(t, want, i)));
    const double bound = most * (t->dtype == F8_F32 ? 1e-3 : 0.02) + 1e-6;
    for (int64_t i = 0; i < f8_type_elements(t); i++) {
        const double w = (double)decoded(t, want, i), g = (double)decoded(t, got, i);
        if (isfinite(w) && isfinite(most))
            ck_assert_msg(fabs(w - g) <= bound, "seed %llu: attention %%%u[%lld]: %a, not %a",
                          (unsigned long long)o->seed, r, (long long)i, g, w);
    }
}

static bool is_library(f8_op op)
{
    return op == F8_OP_MATMUL || op == F8_OP_ATTENTION || op == F8_OP_ATTENTION_GRAD;
}

/* The target's own result, where it is one of the function's. */
static const void *result_of(const oracle *o, f8_ref r, void *const *out)
{
    for (size_t i = 0; i < o->f->n_out; i++)
        if (o->f->out[i].ref == r)
            return out[i];
    return NULL;
}

static void take_results(oracle *o, f8_ref r, void *const *out, void **result)
{
    const f8_graph *g = o->f->graph;
    const f8_node *n = f8_at(g, r);
    for (f8_ref p = r; p < g->n_nodes; p++) {
        const bool mine = p == r || (f8_at(g, p)->op == F8_OP_PROJECT && f8_at(g, p)->in[0] == r);
        const void *got = mine ? result_of(o, p, out) : NULL;
        if (!got)
            continue;
        void *want = result[p == r ? 0 : f8_attr_i(g, p, F8_A_INDEX)];
        const f8_type *t = f8_type_of(g, p);
        if (n->op == F8_OP_MATMUL)
            expect_near_matmul(o, r, want, got);
        else
            expect_near(o, p, t, want, got);
        memcpy(want, got, (size_t)f8_type_bytes(t));
    }
}

static void evaluate(oracle *o, f8_ref r, void *const *out)
{
    const f8_graph *g = o->f->graph;
    const f8_node *n = f8_at(g, r);
    f8_diag diag = {0};
    if (n->op == F8_OP_INPUT)
        return;
    if (n->op == F8_OP_PROJECT) {
        o->value[r] = o->further[n->in[0]][f8_attr_i(g, r, F8_A_INDEX)];
        return;
    }
    const void *in[8];
    ck_assert_uint_le(n->n_in, 8);
    for (uint32_t i = 0; i < n->n_in; i++)
        in[i] = o->value[n->in[i]];
    for (int i = 0; i < f8_op_facts(n->op)->results; i++) {
        f8_type t;
        f8_graph scratch = *g;
        ck_assert_int_eq(f8_infer_result(&scratch, n, i, &t), F8_OK);
        o->further[r][i] = buffer(o, &t);
    }
    o->value[r] = o->further[r][0];
    ck_assert_msg(f8_reference_node(g, r, in, o->further[r], NULL, &diag) == F8_OK, "%s",
                  diag.text);
    if (is_library(n->op))
        take_results(o, r, out, o->further[r]);
}

/* Everything the function computes from `in`, and that the target's results `out` are that. */
static void check_function(const f8_func *f, uint64_t seed, void *const *in, void *const *out)
{
    oracle o = {.f = f, .seed = seed};
    f8_arena_init(&o.arena, NULL);
    o.value = f8_arena_array(&o.arena, f->graph->n_nodes, sizeof *o.value);
    o.further = f8_arena_array(&o.arena, f->graph->n_nodes, sizeof *o.further);
    for (size_t i = 0; i < f->n_in; i++)
        o.value[f->in[i].ref] = in[i];
    for (f8_ref r = 1; r < f->graph->n_nodes; r++)
        evaluate(&o, r, out);
    for (size_t i = 0; i < f->n_out; i++)
        expect_same(&o, f->out[i].name, &f->out[i].type, o.value[f->out[i].ref], out[i]);
    f8_arena_end(&o.arena);
}

/* ---- the target ---- */

typedef struct batch {
    f8_arena arena;
    f8_diag diag;
    f8_module *plain, *compiled; /* the same functions: as made, and as compiled */
    f8_plan plan;
    f8_exec *exec;
    uint64_t seed;
} batch;

static f8_module *make_module(batch *b, const f8_random_options *options)
{
    f8_module *m = f8_module_create(&b->arena, &b->diag, "random", "random");
    for (int i = 0; i < FUNCS; i++) {
        char name[16];
        snprintf(name, sizeof name, "f%d", i);
        ck_assert_msg(f8_random_func(m, f8_intern(m, name), b->seed + (uint64_t)i, options),
                      "seed %llu: %s", (unsigned long long)b->seed + (uint64_t)i, b->diag.text);
    }
    return m;
}

static void compile(batch *b, bool no_fuse, int threads)
{
    static f8_status (*const pass[])(f8_unit *) = {f8_pass_canonicalize, f8_pass_legalize,
                                                   f8_pass_group, f8_pass_schedule, f8_pass_memory};
    f8_unit u = {.arena = &b->arena, .diag = &b->diag, .module = b->compiled};
    u.options.no_fuse = no_fuse;
    u.options.recipe = f8_recipe_by_name("f32");
    for (size_t i = 0; i < sizeof pass / sizeof *pass; i++)
        ck_assert_msg(pass[i](&u) == F8_OK && f8_verify(b->compiled, &b->diag) == F8_OK,
                      "seed %llu: %s", (unsigned long long)b->seed, b->diag.text);
    for (size_t i = 0; i < b->compiled->n_funcs; i++)
        ck_assert_msg(f8_program_check(&b->compiled->func[i], &b->diag) == F8_OK, "seed %llu: %s",
                      (unsigned long long)b->seed + i, b->diag.text);
    ck_assert_msg(
        f8_build_plan(b->compiled, &(f8_build_options){0}, &b->arena, &b->plan, &b->diag) == F8_OK,
        "seed %llu: %s", (unsigned long long)b->seed, b->diag.text);
    ck_assert_msg(f8_exec_create(&b->plan, &(f8_exec_options){.n_threads = threads}, &b->exec,
                                 &b->diag) == F8_OK,
                  "%s", b->diag.text);
    f8_exec_init(b->exec, 1);
}

static void *copy_of(batch *b, const f8_type *t, const void *data)
{
    const size_t bytes = (size_t)f8_type_bytes(t);
    void *copy = f8_arena_array(&b->arena, bytes + 64, 1);
    memcpy(copy, data, bytes);
    return copy;
}

static void run_function(batch *b, uint32_t index)
{
    const f8_plan_func *pf = &b->plan.func[index];
    const f8_func *f = f8_module_find_func(b->plain, pf->name);
    f8_random rng = {b->seed * 31 + index};
    void **in = f8_arena_array(&b->arena, f->n_in, sizeof *in),
         **out = f8_arena_array(&b->arena, f->n_out, sizeof *out);
    for (uint32_t i = 0; i < pf->n_in; i++) {
        void *to = pf->in[i].var >= 0 ? f8_exec_var(b->exec, (uint32_t)pf->in[i].var)
                                      : f8_exec_port(b->exec, index, false, i);
        f8_random_fill(&rng, &pf->in[i].type, F8_RANDOM_TABLE, to);
        in[i] = copy_of(b, &pf->in[i].type, to);
    }
    ck_assert_msg(f8_exec_run(b->exec, index, &b->diag) == F8_OK, "%s", b->diag.text);
    for (uint32_t i = 0; i < pf->n_out; i++)
        out[i] = copy_of(b, &pf->out[i].type,
                         pf->out[i].var >= 0 ? f8_exec_var(b->exec, (uint32_t)pf->out[i].var)
                                             : f8_exec_port(b->exec, index, true, i));
    check_function(f, b->seed + index, in, out);
}

static void run_batch(uint64_t seed, const f8_random_options *options, bool no_fuse, int threads)
{
    batch b = {.seed = seed};
    f8_arena_init(&b.arena, NULL);
    b.plain = make_module(&b, options);
    b.compiled = make_module(&b, options);
    compile(&b, no_fuse, threads);
    for (uint32_t i = 0; i < b.plan.n_funcs; i++)
        run_function(&b, i);
    f8_exec_destroy(b.exec);
    f8_arena_end(&b.arena);
}

START_TEST(kernels)
{
    run_batch(1000 + (uint64_t)_i * FUNCS, &(f8_random_options){0}, false, 1 + _i % 3);
}
END_TEST

START_TEST(kernels_and_libraries)
{
    run_batch(100000 + (uint64_t)_i * FUNCS, &(f8_random_options){.libraries = true}, false,
              1 + _i % 3);
}
END_TEST

START_TEST(large)
{
    run_batch(200000 + (uint64_t)_i * FUNCS, &(f8_random_options){.nodes = 80, .libraries = true},
              false, 2);
}
END_TEST

START_TEST(unfused)
{
    run_batch(1000 + (uint64_t)_i * FUNCS, &(f8_random_options){.libraries = _i % 2}, true, 2);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("random");
    TCase *t = tcase_create("random");
    tcase_set_timeout(t, 120);
    tcase_add_loop_test(t, kernels, 0, 70);
    tcase_add_loop_test(t, kernels_and_libraries, 0, 30);
    tcase_add_loop_test(t, large, 0, 4);
    tcase_add_loop_test(t, unfused, 0, 6);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    const int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed ? 1 : 0;
}
