/* fp8c_program_check_ranks: a bit that differs in what all ranks have is found, with the rank whose
 * it is. Ranks are threads which exchange bytes through the API's callbacks. */
#include "frontend/fp8c_ranks.h"
#include "tests/shared/api/rank_threads.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/shared/api/api_run.h"
#include "tests/shared/suite.h"

enum { VOCABULARY = 67, ROWS = 4, MOST = 4 };

/* A bit of a variable of one rank. */
typedef struct flip {
    const char *variable; /* NULL: the end of the list */
    int rank;
} flip;

/* Ranks that train a step, flip bits, and check: all get the same answer. */
typedef struct trial {
    const char *target, *recipe;
    int ranks, zero;
    const char *reduce_at;
    flip flips[4];
    int steps; /* that follow the flip */
    fp8c_status status[RANKS_MOST];
    char message[RANKS_MOST][1200];
} trial;

static bool flip_bit(fp8c_program *p, const char *name)
{
    const int index = fp8c_program_find_variable(p, name);
    fp8c_variable v;
    if (index < 0 || fp8c_program_variable(p, index, &v) != FP8C_OK)
        return false;
    const size_t n = (size_t)fp8c_type_bytes(&v.type);
    unsigned char *copy = malloc(n);
    bool ok = copy && fp8c_program_read(p, index, copy) == FP8C_OK;
    if (ok) {
        copy[n / 8 * 4 + 2] ^=
            0x40; /* of an f32, the first of the mantissa: no step rounds it away */
        ok = fp8c_program_write(p, index, copy) == FP8C_OK;
    }
    free(copy);
    return ok;
}

static bool train(f8_api_run *r, int steps, uint64_t *batch)
{
    for (int i = 0; i < steps; i++) {
        f8_api_step(r, VOCABULARY, (*batch)++);
        if (r->failed)
            return false;
    }
    return true;
}

static void body(const fp8c_comm *comm, void *user)
{
    trial *t = user;
    const int rank = comm->rank;
    const fp8c_dim dims[] = {{"B", ROWS / t->ranks ? ROWS / t->ranks : 1},
                             {"T", 16},
                             {"C", 32},
                             {"H", 2},
                             {"L", 1},
                             {"V", VOCABULARY}};
    const f8_api_setup setup = {.file = "frontend/models/gpt.f8",
                                .dims = dims,
                                .n_dims = sizeof dims / sizeof *dims,
                                .options = {.target = t->target,
                                            .recipe = t->recipe,
                                            .threads = 1,
                                            .comm = comm,
                                            .zero = t->zero,
                                            .reduce_at = t->reduce_at,
                                            .optimizer_steps = 10}};
    f8_api_run r;
    uint64_t batch = 0;
    bool ok = f8_api_open(&r, &setup);
    r.first_row = (int64_t)rank * ROWS / t->ranks;
    ok = ok && train(&r, 1, &batch) && fp8c_program_check_ranks(r.program) == FP8C_OK;
    for (const flip *f = t->flips; f->variable && ok; f++)
        ok = f->rank != rank || flip_bit(r.program, f->variable);
    ok = ok && train(&r, t->steps, &batch);
    t->status[rank] = ok ? fp8c_program_check_ranks(r.program) : FP8C_ERR_INTERNAL;
    snprintf(t->message[rank], sizeof t->message[rank], "%s",
             r.failed ? r.failed
             : r.ctx  ? fp8c_context_message(r.ctx)
                      : "no context");
    if (!ok)
        ranks_leave(comm);
    f8_api_close(&r);
}

static void try(trial *t)
{
    ranks_run(t->ranks, body, t, NULL);
}

static void alike(trial t)
{
    try(&t);
    for (int r = 0; r < t.ranks; r++)
        ck_assert_msg(t.status[r] == FP8C_OK, "rank %d of %d: %s", r, t.ranks, t.message[r]);
}

/* All ranks say the same, with these words; %H in them stands for the host. */
static void differs(trial t, const char *const *words)
{
    char host[64] = "";
    gethostname(host, sizeof host - 1);
    try(&t);
    for (int r = 0; r < t.ranks; r++) {
        ck_assert_msg(t.status[r] == FP8C_ERR_IO, "rank %d of %d: %d: %s", r, t.ranks, t.status[r],
                      t.message[r]);
        ck_assert_str_eq(t.message[r], t.message[0]);
        for (int i = 0; words[i]; i++)
            ck_assert_msg(strstr(t.message[r], words[i]) != NULL, "not '%s': %s", words[i],
                          t.message[r]);
        ck_assert_msg(strstr(t.message[r], host) != NULL, "no host: %s", t.message[r]);
    }
}

#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

/* ---- what is the same ---- */

START_TEST(equal_ranks)
{
    static const char *const recipes[] = {"bf16", "delayed", "block"};
    for (int i = 0; i < 3; i++)
        alike((trial){.recipe = recipes[i], .ranks = 1 + (i + 1) % 4, .steps = 1});
    for (int zero = 1; zero <= 3; zero++)
        alike((trial){.recipe = "delayed", .ranks = 2, .zero = zero, .steps = 1});
    alike((trial){.recipe = "bf16", .ranks = 2, .reduce_at = "update", .steps = 1});
}
END_TEST

/* ---- what differs ---- */

START_TEST(odd_one_out)
{
    static const char *const variables[] = {"h.0.mlp.c_fc.weight", "opt.m.wte.weight",
                                            "opt.v.ln_f.bias"};
    for (int i = 0; i < 3; i++) {
        char rank[40], name[80];
        snprintf(rank, sizeof rank, "2 ranks of 3: rank %d (host ", i);
        snprintf(name, sizeof name, ", CPU) in '%s'", variables[i]);
        differs((trial){.recipe = "bf16", .ranks = 3, .flips = {{variables[i], i}}},
                WORDS("one rank has other bits than the other ", rank, name));
    }
}
END_TEST

/* The bit spreads over the variables that follow from it, and in no rank is it lost. */
START_TEST(steps_later)
{
    differs((trial){.recipe = "delayed",
                    .ranks = 4,
                    .steps = 2,
                    .flips = {{"opt.v.h.0.attn.c_proj.weight", 2}}},
            WORDS("other 3 ranks of 4: rank 2 (host ", " more variable"));
}
END_TEST

START_TEST(several)
{
    differs((trial){.recipe = "bf16",
                    .ranks = 4,
                    .flips = {{"wte.weight", 3}, {"wpe.weight", 3}, {"ln_f.bias", 3}}},
            WORDS("rank 3 (host ", " in 'wte.weight' and 2 more variables"));
    trial t = {.recipe = "bf16", .ranks = 4, .flips = {{"wte.weight", 3}, {"wpe.weight", 1}}};
    /* two that differ from the other two, which are no majority */
    differs(t, WORDS("rank 0 (host ", "rank 3 (host ", "no bits are those of most ranks"));
}
END_TEST

START_TEST(two_ranks)
{
    differs((trial){.recipe = "bf16", .ranks = 2, .flips = {{"wpe.weight", 1}}},
            WORDS("rank 0 (host ", "rank 1 (host ", " differ in 'wpe.weight'",
                  "it is not known who is wrong"));
}
END_TEST

/* At stage 1 each rank has its own part of the moments, and all have the parameters. */
START_TEST(shared_variables)
{
    differs((trial){.recipe = "bf16", .ranks = 2, .zero = 1, .flips = {{"wpe.weight", 0}}},
            WORDS("'wpe.weight'"));
    alike((trial){.recipe = "bf16", .ranks = 2, .zero = 1, .flips = {{"opt.m.wpe.weight", 0}}});
}
END_TEST

START_TEST(interpreter)
{
    alike((trial){.target = "reference", .recipe = "f32", .ranks = 2});
    differs(
        (trial){
            .target = "reference", .recipe = "f32", .ranks = 2, .flips = {{"opt.m.wte.weight", 0}}},
        WORDS(" differ in 'opt.m.wte.weight'"));
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("replicas");
    TCase *c = tcase_create("bits"), *threads = tcase_create("threads");
    tcase_set_timeout(c, 120);
    tcase_set_timeout(threads, 120);
    tcase_add_test(c, equal_ranks);
    tcase_add_test(c, odd_one_out);
    tcase_add_test(c, steps_later);
    tcase_add_test(c, several);
    tcase_add_test(c, shared_variables);
    tcase_add_test(c, interpreter);
    tcase_add_test(threads, two_ranks);
    suite_add_tcase(s, c);
    suite_add_tcase(s, threads);
    return s;
}
