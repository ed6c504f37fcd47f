/* Random graphs with values recomputed at random (shared/remat/recompute.h): their lowered
 * functions are valid and compute the same bits. */
#include "tests/shared/roundtrip.h"
#include "tests/shared/remat/recompute.h"
#include "tests/shared/graphs/compare.h"
#include "tests/shared/graphs/graphgen.h"
#include "tests/shared/passes/program_check.h"
#include "tests/shared/suite.h"

#include "ir/lowered.h"
#include "tests/shared/passes/passes.h"

#include <stdio.h>
#include <stdlib.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { GRAPHS = 15 };
#else
enum { GRAPHS = 60 };
#endif

/* FP8C_GRAPHS: how many random graphs. */
static uint64_t graphs(void)
{
    const char *n = getenv("FP8C_GRAPHS");
    return n ? strtoull(n, NULL, 10) : GRAPHS;
}

static void run(f8_module *m, uint64_t seed, const f8_target *target, void **out)
{
    f8_diag diag = {0};
    ck_assert_msg(recompute_run(m, seed, target, out, &diag) == F8_OK, "seed %llu: %s",
                  (unsigned long long)seed, diag.text);
}

typedef struct counts {
    uint64_t reads, fused, stored, whole;
} counts;

static void count(const f8_func *f, counts *c)
{
    for (f8_ref r = 1; r < f->graph->n_nodes; r++)
        if (f8_is_recomputed(f->graph, r)) {
            const bool stored = f->lowered->place[r].space != F8_SPACE_NONE;
            c->fused += !stored;
            c->stored += stored;
            c->whole += f8_op_facts(f8_at(f->graph, r)->op)->cls == F8_GEMM;
        }
}

static void place_again(f8_unit *u, uint64_t seed)
{
    f8_func *f = &u->module->func[0];
    ck_assert_msg(f8_group_function(u, f, seed % 7 < 3) == F8_OK &&
                      f8_schedule_function(u, f) == F8_OK && f8_place_function(u, f) == F8_OK &&
                      f8_verify(u->module, u->diag) == F8_OK &&
                      f8_program_check(f, u->diag) == F8_OK,
                  "seed %llu: %s", (unsigned long long)seed, u->diag->text);
}

/* Values are recomputed, and in the second round values made of those. The lowered functions pass
 * verification and compute the same bits. */
static void random_graph(uint64_t seed, const f8_target *target, bool no_fuse, counts *c)
{
    static f8_status (*const passes[])(f8_unit *u) = {f8_pass_ids, f8_pass_decompose,
                                                      f8_pass_canonicalize, f8_pass_legalize};
    f8_arena arena;
    f8_diag diag = {0};
    void *out[2][GRAPHGEN_MAX_RESULTS];
    char message[F8_MESSAGE];
    f8_arena_init(&arena, NULL);
    const graphgen_options options = {.seed = seed,
                                      .gemms = true,
                                      .aligned_fp8 = target->kind != F8_TARGET_CPU || seed % 2,
                                      .scalings = seed % 3 ? graphgen_scalings(target) : 0,
                                      .broadcasts = seed % 4 == 0};
    f8_module *m = graphgen_make(&options, &arena, &diag);
    ck_assert_msg(m, "seed %llu: %s", (unsigned long long)seed, diag.text);
    f8_unit u = {.module = m,
                 .arena = &arena,
                 .diag = &diag,
                 .options = {.target = target, .no_fuse = no_fuse}};
    for (int p = 0; p < 4; p++)
        ck_assert_msg(passes[p](&u) == F8_OK, "seed %llu: %s", (unsigned long long)seed, diag.text);
    run(m, seed, NULL, out[0]);
    recompute a = {.random = seed};
    for (int round = 0; round < 2; round++) {
        place_again(&u, seed);
        ck_assert_msg(recompute_some(&a, &m->func[0], round ? 12 : 5) == F8_OK, "seed %llu: %s",
                      (unsigned long long)seed, diag.text);
    }
    place_again(&u, seed);
    run(m, seed, target, out[1]);
    for (size_t i = 0; i < m->func[0].n_out; i++)
        ck_assert_msg(f8_same_bits("recomputed", m->func[0].out[i].name,
                                   &m->func[0].out[i].type, out[1][i], out[0][i], message),
                      "seed %llu, %s%s, %s", (unsigned long long)seed, target->name,
                      no_fuse ? ", not fused" : "", message);
    if (seed % 8 == 0) {
        f8_module *parsed = NULL;
        rt_text text = rt_print(m);
        f8_parse(text.text, text.n, "again", NULL, 0, &arena, &diag, &parsed);
        ck_assert_msg(parsed && rt_same_module(m, parsed, false), "seed %llu: %s\n%s",
                      (unsigned long long)seed, diag.text, text.text);
        free(text.text);
    }
    c->reads += (uint64_t)a.reads;
    count(&m->func[0], c);
    f8_arena_end(&arena);
}

START_TEST(random_graphs_keep_bits)
{
    static const char *const targets[] = {"cpu", "sm_90a", "cpu", "sm_100a", "sm_89", "sm_120a"};
    counts c = {0};
    for (uint64_t seed = 1; seed <= graphs(); seed++)
        random_graph(seed, f8_target_by_name(targets[seed % 6]), seed % 5 == 0, &c);
    printf("seeds 1 to %llu: %llu operands recomputed, %llu values inside kernels, %llu in "
           "memory, %llu GEMMs\n",
           (unsigned long long)graphs(), (unsigned long long)c.reads, (unsigned long long)c.fused,
           (unsigned long long)c.stored, (unsigned long long)c.whole);
    ck_assert_uint_gt(c.reads, 5 * graphs());
    ck_assert_uint_gt(c.fused, 5 * graphs());
    ck_assert_uint_gt(c.stored, 5 * graphs());
    ck_assert(c.whole > graphs() / 8 || graphs() < 20);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("regroup_random");
    TCase *t = tcase_create("regroup_random");
    tcase_set_timeout(t, 120 + (double)graphs());
    tcase_add_test(t, random_graphs_keep_bits);
    suite_add_tcase(s, t);
    return s;
}
