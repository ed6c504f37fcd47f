/* Ranks that train together, as threads which exchange bytes through the API's callbacks: every
 * rank has the same bits, and the same bits at every run and at every budget. */
#include "frontend/fp8c_ranks.h"
#include "tests/shared/api/rank_threads.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/shared/api/api_run.h"
#include "tests/shared/suite.h"

enum { VOCABULARY = 61, ROWS = 4, STEPS = 3 };

/* ThreadSanitizer takes ten times as long: there two ranks will do. */
#ifdef __SANITIZE_THREAD__
enum { MOST = 2 };
#else
enum { MOST = 4 };
#endif

/* A training by `ranks` ranks, and what each had at its end. */
typedef struct training {
    const char *recipe, *target, *checkpoint;
    int ranks, accumulate;
    char *failed[RANKS_MOST];
    unsigned char *state[RANKS_MOST];
    size_t bytes[RANKS_MOST];
    float loss[RANKS_MOST][STEPS], norm[RANKS_MOST];
    rank_traffic traffic[RANKS_MOST];
} training;

static bool micro_steps(f8_api_run *r, const training *t, int step)
{
    for (int i = 0; i < t->accumulate; i++) {
        f8_api_batch(r, VOCABULARY, (uint64_t)(step * t->accumulate + i));
        if (fp8c_program_run(r->program, r->step) != FP8C_OK)
            return false;
    }
    return true;
}

static void train(const fp8c_comm *comm, void *user)
{
    training *t = user;
    const int rank = comm->rank;
    const fp8c_dim dims[] = {{"B", ROWS / t->ranks}, {"T", 24}, {"C", 32}, {"H", 2}, {"L", 2},
                             {"V", VOCABULARY}};
    const f8_api_setup setup = {.file = "frontend/models/gpt.f8",
                                .dims = dims,
                                .n_dims = sizeof dims / sizeof *dims,
                                .options = {.target = t->target,
                                            .recipe = t->recipe,
                                            .threads = 1,
                                            .comm = comm,
                                            .checkpoint = t->checkpoint,
                                            .optimizer_steps = STEPS}};
    f8_api_run r;
    bool ok = f8_api_open(&r, &setup);
    r.first_row = (int64_t)rank * ROWS / t->ranks;
    for (int s = 0; ok && s < STEPS; s++) {
        ok = micro_steps(&r, t, s);
        if (ok)
            t->loss[rank][s] = *(float *)f8_api_buffer(&r, r.step, FP8C_OUTPUT, "loss", NULL);
        if (ok)
            ok = fp8c_program_run(r.program, r.update) == FP8C_OK;
    }
    if (ok)
        t->norm[rank] = *(float *)f8_api_buffer(&r, r.update, FP8C_OUTPUT, "grad_norm", NULL);
    if (ok)
        t->state[rank] = f8_api_state(&r, &t->bytes[rank]);
    if (!ok) {
        t->failed[rank] = strdup(r.failed ? r.failed : fp8c_context_message(r.ctx));
        ranks_leave(comm);
    }
    f8_api_close(&r);
}

static void run(training *t)
{
    if (!t->accumulate)
        t->accumulate = 1;
    if (!t->target)
        t->target = "cpu";
    ranks_run(t->ranks, train, t, t->traffic);
    for (int r = 0; r < t->ranks; r++)
        ck_assert_msg(!t->failed[r], "%s, rank %d of %d: %s", t->recipe, r, t->ranks, t->failed[r]);
}

static void end(training *t)
{
    for (int r = 0; r < t->ranks; r++)
        free(t->state[r]);
}

static const char *const recipes[] = {"f32",     "bf16",  "delayed", "current",
                                      "rowwise", "block", "mxfp8"};
enum { RECIPES = sizeof recipes / sizeof *recipes };

static void same_state(const training *a, int rank, const training *b, int other, const char *what)
{
    ck_assert_uint_gt(a->bytes[rank], 0);
    ck_assert_uint_eq(a->bytes[rank], b->bytes[other]);
    ck_assert_msg(!memcmp(a->state[rank], b->state[other], a->bytes[rank]),
                  "%s, %d ranks, %s: rank %d has other bits than rank %d", a->recipe, a->ranks,
                  what, rank, other);
}

/* Every rank ends with the bits of rank 0, and saw the same loss. (The amaxes of a step under way
 * are each rank's own; after an update there are none.) */
START_TEST(ranks_agree)
{
    for (int ranks = 2; ranks <= MOST; ranks *= 2) {
        training t = {.recipe = recipes[_i], .ranks = ranks, .accumulate = ranks == 4 ? 3 : 1};
        run(&t);
        for (int r = 1; r < ranks; r++) {
            same_state(&t, r, &t, 0, "at the end");
            ck_assert_mem_eq(t.loss[r], t.loss[0], sizeof t.loss[0]);
        }
        ck_assert_msg(isfinite(t.norm[0]) && t.norm[0] > 0, "%s", recipes[_i]);
        ck_assert_int_gt(t.traffic[0].sent, 0);
        training again = {.recipe = t.recipe, .ranks = ranks, .accumulate = t.accumulate};
        run(&again);
        same_state(&again, 0, &t, 0, "again");
        training recomputed = {
            .recipe = t.recipe, .ranks = ranks, .accumulate = t.accumulate, .checkpoint = "x.*"};
        run(&recomputed);
        same_state(&recomputed, 0, &t, 0, "recomputing");
        end(&t);
        end(&again);
        end(&recomputed);
    }
}
END_TEST

/* The interpreter evaluates collectives by itself. GEMMs and attention have an order of their own,
 * so losses agree within their rounding. */
START_TEST(interpreted)
{
    training cpu = {.recipe = "f32", .ranks = 2}, reference = {.recipe = "f32", .ranks = 2};
    reference.target = "reference";
    run(&cpu);
    run(&reference);
    same_state(&reference, 0, &reference, 1, "interpreted");
    for (int s = 0; s < STEPS; s++)
        ck_assert_float_eq_tol(cpu.loss[0][s], reference.loss[0][s], 1e-5f);
    ck_assert_float_eq_tol(cpu.norm[0], reference.norm[0], 1e-4f * reference.norm[0]);
    end(&cpu);
    end(&reference);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *suite = suite_create("ranks");
    TCase *c = tcase_create("threads");
    tcase_set_timeout(c, 300);
    tcase_add_loop_test(c, ranks_agree, 0, RECIPES);
    tcase_add_test(c, interpreted);
    suite_add_tcase(suite, c);
    return suite;
}
