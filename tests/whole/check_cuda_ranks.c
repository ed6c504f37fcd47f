/* Ranks with a GPU each, joined by NCCL: threads of this process, on the emulator's devices. Every
 * rank ends with the same bits, at every run, with graphs and without, and whatever order the
 * streams run in. A training without GEMMs has the bits of ranks on the CPU. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/fp8c_ranks.h"
#include "tests/shared/api/api_run.h"
#include "tests/shared/api/rank_case.h"
#include "tests/shared/api/rank_gpu.h"
#include "tests/shared/suite.h"

enum { VOCABULARY = 64, ROWS = 4, STEPS = 3 };

/* ---- a transformer ---- */

/* A training by `ranks` ranks, and what each had at its end. */
typedef struct training {
    const char *recipe, *target;
    int ranks, accumulate, zero;
    bool profile, beside; /* beside: with a branch, and dependent launches */
    const char *reduce_order;
    char *failed[RANKS_MOST];
    unsigned char *state[RANKS_MOST];
    size_t bytes[RANKS_MOST];
    float loss[RANKS_MOST][STEPS], norm[RANKS_MOST];
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

static bool steps(f8_api_run *r, training *t, int rank)
{
    r->first_row = (int64_t)rank * ROWS / t->ranks;
    for (int s = 0; s < STEPS; s++) {
        if (!micro_steps(r, t, s))
            return false;
        t->loss[rank][s] = *(float *)f8_api_buffer(r, r->step, FP8C_OUTPUT, "loss", NULL);
        if (fp8c_program_run(r->program, r->update) != FP8C_OK)
            return false;
    }
    t->norm[rank] = *(float *)f8_api_buffer(r, r->update, FP8C_OUTPUT, "grad_norm", NULL);
    t->state[rank] = f8_api_state(r, &t->bytes[rank]);
    return t->state[rank] != NULL;
}

static void train(const fp8c_comm *comm, void *user)
{
    training *t = user;
    const bool cuda = !strcmp(t->target, "cuda");
    const fp8c_dim dims[] = {{"B", ROWS / t->ranks}, {"T", 32}, {"C", 32}, {"H", 2}, {"L", 2},
                             {"V", VOCABULARY}};
    fp8c_context *ctx = NULL;
    fp8c_nccl *nccl = NULL;
    fp8c_comm own = *comm;
    f8_api_run r = {0};
    if (cuda && (fp8c_context_create(NULL, &ctx) != FP8C_OK ||
                 rank_gpu_join(ctx, comm, 0, &nccl, &own) != FP8C_OK)) {
        t->failed[comm->rank] = strdup(fp8c_context_message(ctx));
    } else {
        const f8_api_setup setup = {.file = "frontend/models/gpt.f8",
                                    .dims = dims,
                                    .n_dims = sizeof dims / sizeof *dims,
                                    .options = {.target = t->target,
                                                .recipe = t->recipe,
                                                .threads = 1,
                                                .device = cuda ? comm->rank : 0,
                                                .profile = t->profile,
                                                .zero = t->zero,
                                                .reduce_order = t->reduce_order,
                                                .wgrad_branch = t->beside,
                                                .dependent_launch = t->beside,
                                                .comm = &own,
                                                .optimizer_steps = STEPS}};
        if (!f8_api_open(&r, &setup) || !steps(&r, t, comm->rank))
            t->failed[comm->rank] = strdup(r.failed ? r.failed : fp8c_context_message(r.ctx));
    }
    if (t->failed[comm->rank]) {
        ranks_leave(comm);
        if (nccl)
            fp8c_nccl_abort(nccl);
    }
    f8_api_close(&r);
    fp8c_nccl_close(nccl);
    fp8c_context_destroy(ctx);
}

static void run(training *t)
{
    if (!t->accumulate)
        t->accumulate = 1;
    if (!t->target)
        t->target = "cuda";
    ranks_run(t->ranks, train, t, NULL);
    for (int r = 0; r < t->ranks; r++)
        ck_assert_msg(!t->failed[r], "%s, rank %d of %d: %s", t->recipe, r, t->ranks, t->failed[r]);
}

static void end(training *t)
{
    for (int r = 0; r < t->ranks; r++)
        free(t->state[r]);
}

static void same_state(const training *a, int rank, const training *b, int other, const char *what)
{
    ck_assert_uint_gt(a->bytes[rank], 0);
    ck_assert_uint_eq(a->bytes[rank], b->bytes[other]);
    ck_assert_msg(!memcmp(a->state[rank], b->state[other], a->bytes[rank]),
                  "%s, %d ranks, %s: rank %d has other bits than rank %d", a->recipe, a->ranks,
                  what, rank, other);
}

static const char *const recipes[] = {"f32", "bf16", "delayed", "current"};
enum { RECIPES = sizeof recipes / sizeof *recipes };

/* GEMMs have an order of their own on each target, so losses agree within their rounding. */
static void near_the_cpu(const training *t)
{
    training cpu = {
        .recipe = t->recipe, .ranks = t->ranks, .accumulate = t->accumulate, .target = "cpu"};
    const float near = !strcmp(t->recipe, "f32") ? 1e-5f : 5e-3f;
    run(&cpu);
    for (int s = 0; s < STEPS; s++)
        ck_assert_float_eq_tol(t->loss[0][s], cpu.loss[0][s], near);
    ck_assert_float_eq_tol(t->norm[0], cpu.norm[0], 10 * near * cpu.norm[0]);
    end(&cpu);
}

START_TEST(ranks_agree)
{
    for (int ranks = 2; ranks <= 4; ranks *= 2) {
        training t = {.recipe = recipes[_i], .ranks = ranks, .accumulate = ranks == 4 ? 2 : 1};
        run(&t);
        for (int r = 1; r < ranks; r++) {
            same_state(&t, r, &t, 0, "at the end");
            ck_assert_mem_eq(t.loss[r], t.loss[0], sizeof t.loss[0]);
        }
        ck_assert_msg(isfinite(t.norm[0]) && t.norm[0] > 0, "%s", recipes[_i]);
        near_the_cpu(&t);
        end(&t);
    }
}
END_TEST

/* Without graphs; with streams that do their work only when somebody waits for it, where a missing
 * wait between the steps' stream and NCCL's gives another result. */
START_TEST(same_bits)
{
    training t = {.recipe = "delayed", .ranks = 2}, profiled = {.recipe = "delayed", .ranks = 2},
             late = {.recipe = "delayed", .ranks = 2};
    profiled.profile = true;
    run(&t);
    run(&profiled);
    same_state(&profiled, 1, &t, 0, "without graphs");
    setenv("FP8C_EMULATOR_LAZY", "1", 1);
    run(&late);
    unsetenv("FP8C_EMULATOR_LAZY");
    same_state(&late, 1, &t, 0, "late streams");
    end(&t);
    end(&profiled);
    end(&late);
}
END_TEST

/* What the ranks share changes no bit. Streams are late, as above. */
START_TEST(stages)
{
    training none = {.recipe = recipes[_i], .ranks = 2, .accumulate = 2};
    run(&none);
    setenv("FP8C_EMULATOR_LAZY", "1", 1);
    for (int zero = 1; zero < 4; zero++) {
        training t = {.recipe = recipes[_i], .ranks = 2, .accumulate = 2, .zero = zero};
        run(&t);
        for (int r = 0; r < 2; r++) {
            ck_assert_uint_lt(t.bytes[r], none.bytes[r]);
            ck_assert_mem_eq(t.loss[r], none.loss[0], sizeof t.loss[r]);
            ck_assert_mem_eq(&t.norm[r], &none.norm[0], sizeof t.norm[r]);
        }
        end(&t);
    }
    unsetenv("FP8C_EMULATOR_LAZY");
    end(&none);
}
END_TEST

/* Collectives cut a function into graphs, each of which ends with its branch joined. A recipe has no
 * part in that: check_cuda_launches has a branch under each. */
START_TEST(beside_others)
{
    training usual = {.recipe = recipes[_i], .ranks = 2, .accumulate = 2};
    run(&usual);
    for (int zero = 0; zero < 4; zero += zero ? 1 : 2) {
        training t = usual;
        memset(t.state, 0, sizeof t.state);
        t.zero = zero;
        t.beside = true;
        setenv("FP8C_EMULATOR_LAZY", zero == 2 ? "1" : "0", 1);
        run(&t);
        for (int r = 0; r < 2; r++) {
            ck_assert_mem_eq(t.loss[r], usual.loss[0], sizeof t.loss[r]);
            ck_assert_mem_eq(&t.norm[r], &usual.norm[0], sizeof t.norm[r]);
            if (!zero)
                same_state(&t, r, &usual, 0, "a branch and dependent launches");
        }
        end(&t);
    }
    unsetenv("FP8C_EMULATOR_LAZY");
    end(&usual);
}
END_TEST

/* NCCL adds: of two numbers the order is no matter, so ranks and stages have the usual bits. */
START_TEST(added_by_nccl)
{
    training usual = {.recipe = "bf16", .ranks = 2};
    run(&usual);
    for (int zero = 0; zero < 4; zero += 2) {
        training t = {.recipe = "bf16", .ranks = 2, .zero = zero, .reduce_order = "library"};
        run(&t);
        for (int r = 0; r < 2; r++) {
            ck_assert_mem_eq(t.loss[r], usual.loss[0], sizeof t.loss[r]);
            if (!zero)
                same_state(&t, r, &usual, 0, "added by NCCL");
        }
        end(&t);
    }
    end(&usual);
}
END_TEST

/* ---- no GEMM: every target rounds alike ---- */

static const char pointwise[] =
    "module pointwise\n"
    "dim B = 12, C = 1500\n"
    "param w: f32[3, C] normal(0.5)\n"
    "param b: f32[C] normal(0.1)\n"
    "func forward(%x: f32[B, C], %t: f32[B, C]) -> (%loss: f32[]) {\n"
    "  repeat l < 3 carry %y = %x {\n"
    "    %row = slice(w) {axis = 0, start = l, stop = l + 1}\n"
    "    %u = gelu(add(mul(%y, %row), b)) {approximate = \"tanh\"}\n"
    "    %y = add(%y, %u)\n"
    "  }\n"
    "  %d = sub(%y, %t)\n"
    "  return reshape(mean(mean(mul(%d, %d)) {axis = 0})) {shape = []}\n"
    "}\n"
    "optimizer adamw {lr = 0.01, clip = 0.01, weight_decay = 0.1}\n"
    "accumulate 2\n";

static void fill(const rank_case *c, int rank, int batch, const char *port, const fp8c_type *type,
                 void *data)
{
    const int64_t n = fp8c_type_bytes(type) / (int64_t)sizeof(float);
    (void)c;
    for (int64_t i = 0; i < n; i++)
        ((float *)data)[i] = sinf((float)(i * 7 + rank * 131 + batch * 17 + *port));
}

static rank_case pointwise_case(int ranks, const char *target)
{
    return (rank_case){.text = pointwise,
                       .dim = {{"B", 12 / ranks}},
                       .options = {.recipe = "f32", .target = target},
                       .ranks = ranks,
                       .steps = 2,
                       .accumulate = 2,
                       .fill = fill};
}

START_TEST(bits_of_the_cpu)
{
    rank_case cpu = pointwise_case(_i, "cpu"), cuda = pointwise_case(_i, "cuda");
    rank_case_run(&cpu);
    rank_case_run(&cuda);
    for (int r = 0; r < _i; r++) {
        rank_case_same(&cuda, r, &cpu, 0, "CUDA");
        ck_assert_mem_eq(rank_case_floats(&cuda, r, "micro_step:loss", NULL),
                         rank_case_floats(&cpu, 0, "micro_step:loss", NULL), sizeof(float));
    }
    rank_case_end(&cpu);
    rank_case_end(&cuda);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *suite = suite_create("cuda ranks");
    TCase *c = tcase_create("ranks");
    tcase_set_timeout(c, 300);
    if (rank_gpus("ranks on CUDA")) {
        tcase_add_loop_test(c, ranks_agree, 0, RECIPES);
        tcase_add_test(c, same_bits);
        tcase_add_test(c, added_by_nccl);
        tcase_add_loop_test(c, beside_others, 2, 3); /* delayed */
        tcase_add_loop_test(c, stages, 2, 3); /* delayed */
        tcase_add_loop_test(c, bits_of_the_cpu, 2, 5);
    }
    suite_add_tcase(suite, c);
    return suite;
}
