/* Random graphs in the interpreter: passes that promise to change no bit change none, and printed
 * text parses to the same module. */
#include <stdlib.h>
#include <string.h>

#include "tests/shared/api/api.h"
#include "tests/shared/passes/passes.h"
#include "tests/shared/passes/primitive.h"
#include "tests/shared/roundtrip.h"
#include "tests/shared/graphs/compare.h"
#include "tests/shared/graphs/graphgen.h"
#include "tests/shared/graphs/modulegen.h"
#include "tests/shared/suite.h"

enum { GRAPHS = 400, MODULES = 64 };

/* decompose, canonicalize and legalize keep every bit. What decompose makes of a composite is what
 * the composite means, so decompose itself is judged by the graphs that have none: their reductions
 * over several axes, blocks of scales and collectives. */
START_TEST(passes_keep_bits)
{
    static f8_status (*const passes[])(f8_unit *u) = {f8_pass_ids, f8_pass_decompose,
                                                      f8_pass_canonicalize, f8_pass_legalize};
    int without_composites = 0;
    for (uint64_t seed = 1; seed <= GRAPHS; seed++) {
        f8_arena arena;
        f8_diag diag = {0};
        f8_arena_init(&arena, NULL);
        f8_module *m = graphgen_make(
            &(graphgen_options){.seed = seed, .gemms = true, .broadcasts = seed % 4 == 0}, &arena,
            &diag);
        ck_assert_msg(m, "seed %llu: %s", (unsigned long long)seed, diag.text);
        void *before[GRAPHGEN_MAX_RESULTS], *after[GRAPHGEN_MAX_RESULTS];
        without_composites += !test_has_composites(&m->func[0]);
        graphgen_run(m, seed, NULL, before);
        f8_unit u = {.module = m, .arena = &arena, .diag = &diag};
        for (int p = 0; p < 4; p++) {
            ck_assert_msg(passes[p](&u) == F8_OK, "seed %llu: %s", (unsigned long long)seed,
                          diag.text);
            graphgen_run(m, seed, NULL, after);
            char message[F8_MESSAGE];
            for (size_t i = 0; i < m->func[0].n_out; i++)
                ck_assert_msg(f8_same_bits("after a pass", m->func[0].out[i].name,
                                           &m->func[0].out[i].type, after[i], before[i], message),
                              "seed %llu, pass %d, %s", (unsigned long long)seed, p, message);
        }
        f8_arena_end(&arena);
    }
    ck_assert_int_ge(without_composites, GRAPHS / 8);
}
END_TEST

START_TEST(random_graphs_print_and_parse)
{
    int count[F8_OP_COUNT] = {0};
    for (uint64_t seed = 1; seed <= GRAPHS; seed++) {
        f8_arena arena;
        f8_diag diag = {0};
        f8_module *again = NULL;
        f8_arena_init(&arena, NULL);
        f8_module *m =
            graphgen_make(&(graphgen_options){.seed = seed, .gemms = true, .aligned_fp8 = seed % 2},
                          &arena, &diag);
        ck_assert(m && f8_func_rewrite(&m->func[0], NULL, NULL) == F8_OK);
        rt_text text = rt_print(m);
        f8_parse(text.text, text.n, "again", NULL, 0, &arena, &diag, &again);
        ck_assert_msg(again && rt_same_module(m, again, false), "seed %llu: %s\n%s",
                      (unsigned long long)seed, diag.text, text.text);
        free(text.text);
        for (f8_ref r = 1; r < m->func[0].graph->n_nodes; r++)
            count[f8_at(m->func[0].graph, r)->op]++;
        f8_arena_end(&arena);
    }
    /* All ops occur, but for linear, which is a matmul before a plan is made, tables that rope
     * makes, and collectives, which take several ranks (tests/golden/collectives.f8). */
    for (int op = F8_OP_INPUT; op < F8_OP_COUNT; op++)
        if (op != F8_OP_LINEAR && op != F8_OP_ROPE_COS && op != F8_OP_ROPE_SIN &&
            f8_op_facts((f8_op)op)->cls != F8_COLLECTIVE)
            ck_assert_msg(count[op] >= 5, "%s occurs %d times", f8_op_facts((f8_op)op)->name,
                          count[op]);
}
END_TEST

/* Legal modules have a plan: on the CPU under every recipe, for a GPU under those that take any
 * sizes. */
START_TEST(modules_have_plans)
{
    static const char *const recipes[] = {"bf16",  "delayed", "current", "rowwise",
                                          "block", "mxfp8",   "fake",    "delayed {history = 2}"};
    static text t;
    const char *seed = getenv("FP8C_SEED"), *count = getenv("FP8C_GRAPHS");
    const uint32_t first = seed ? (uint32_t)strtoul(seed, NULL, 0) : 1;
    const uint32_t n = count ? (uint32_t)strtoul(count, NULL, 0) : seed ? 1 : MODULES;
    for (uint32_t i = first; i < first + n; i++) {
        modulegen_make(i, &t);
        if (n == 1)
            printf("%s", t.s);
        fp8c_context *ctx = new_context();
        fp8c_module *m = parse(ctx, t.s);
        for (int k = 0; k < 2; k++) {
            fp8c_compile_options o = recipe(k ? i % 2 ? "bf16" : "fake" : recipes[i % 8]);
            fp8c_program *p = NULL;
            o.plan_only = 1;
            o.target = k ? "sm_90a" : "cpu";
            const fp8c_status status = fp8c_compile(m, &o, &p);
            ck_assert_msg(status == FP8C_OK, "seed %u, %s, %s: %s\n%s", i, o.recipe, o.target,
                          fp8c_context_message(ctx), t.s);
            fp8c_program_destroy(p);
        }
        fp8c_module_destroy(m);
        fp8c_context_destroy(ctx);
    }
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("random graphs");
    TCase *t = tcase_create("random graphs");
    tcase_set_timeout(t, 300);
    tcase_add_test(t, passes_keep_bits);
    tcase_add_test(t, random_graphs_print_and_parse);
    tcase_add_test(t, modules_have_plans);
    suite_add_tcase(s, t);
    return s;
}
