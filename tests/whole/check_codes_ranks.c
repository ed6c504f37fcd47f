/* Codes of weights on several ranks: at every stage of ZeRO, and whether they are kept or not, each
 * rank has the same bits. At stage 3 a rank keeps the codes of its part alone. */
#include "tests/shared/api/codes_case.h"
#include "tests/shared/api/rank_threads.h"
#include "tests/shared/suite.h"

enum { VOCABULARY = 32, UPDATES = 3 };

/* What all ranks do. */
typedef struct world {
    const char *recipe;
    const fp8c_dim *dims;
    size_t n_dims;
    int ranks, zero;
    int kept[RANKS_MOST];
    float loss[RANKS_MOST];
} world;

/* One rank's twins. All ranks write their rows of a weight, and none runs `prepare`. */
static void write_rows(const codes_twins *t)
{
    for (int i = 0; i < 2; i++) {
        size_t bytes;
        float *w = codes_read(t, t->p[i], "up.weight", &bytes);
        for (size_t k = 0; k < bytes / sizeof *w; k++)
            w[k] *= 5;
        codes_must(t,
                   fp8c_program_write(t->p[i], fp8c_program_find_variable(t->p[i], "up.weight"), w),
                   "up.weight");
        free(w);
    }
}

static void body(const fp8c_comm *comm, void *user)
{
    world *w = user;
    char what[128];
    const codes_setup s = {
        .dims = w->dims,
        .n_dims = w->n_dims,
        .options = {
            .target = "cpu", .recipe = w->recipe, .threads = 1, .comm = comm, .zero = w->zero}};
    snprintf(what, sizeof what, "%s, rank %d of %d, stage %d", w->recipe, comm->rank, w->ranks,
             w->zero);
    codes_twins t = codes_open(&s);
    w->kept[comm->rank] = codes_train(&t, VOCABULARY, UPDATES, what);
    write_rows(&t);
    codes_step(&t, "eval", VOCABULARY, 7 + comm->rank, what);
    write_rows(&t);
    codes_step(&t, "micro_step", VOCABULARY, 8 + comm->rank, what);
    codes_run(&t, "update");
    codes_step(&t, "micro_step", VOCABULARY, 9 + comm->rank, what);
    codes_same_variables(&t, what);
    const int f = fp8c_program_function(t.p[0], "micro_step");
    w->loss[comm->rank] = *(const float *)fp8c_program_buffer(
        t.p[0], f, FP8C_OUTPUT, fp8c_program_find_port(t.p[0], f, FP8C_OUTPUT, "loss"));
    codes_close(&t);
}

static const fp8c_dim small[] = {{"N", 4}}, whole_blocks[] = {{"N", 4}, {"C", 256}, {"F", 256}};

START_TEST(stages)
{
    const int ranks = _i % 2 ? 3 : 2;
    const bool block = _i / 2;
    float loss = 0;
    for (int zero = 0; zero < 4; zero++) {
        world w = {.recipe = block ? "block" : "delayed",
                   .dims = block ? whole_blocks : small,
                   .n_dims = block ? 3 : 1,
                   .ranks = block ? 2 : ranks,
                   .zero = zero};
        ranks_run(w.ranks, body, &w, NULL);
        for (int r = 0; r < w.ranks; r++) {
            ck_assert_int_gt(w.kept[r], 0);
            ck_assert_int_eq(w.kept[r], w.kept[0]);
            loss = zero || r ? loss : w.loss[r];
            ck_assert_msg(w.loss[r] == loss, "stage %d, rank %d: loss %.9g, not %.9g", zero, r,
                          (double)w.loss[r], (double)loss);
        }
    }
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("codes_ranks");
    TCase *t = tcase_create("codes_ranks");
    tcase_set_timeout(t, 200);
    tcase_add_loop_test(t, stages, 0, 3);
    suite_add_tcase(s, t);
    return s;
}
