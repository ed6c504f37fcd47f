/* The stages of ZeRO: what ranks share changes no bit of a training. Ranks are threads which
 * exchange bytes through the API's callbacks. */
#include "frontend/fp8c_diagnose.h"
#include "frontend/fp8c_ranks.h"
#include "tests/shared/api/rank_threads.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/shared/api/api_run.h"
#include "tests/shared/api/rank_case.h"
#include "tests/shared/api/weight_codes.h"
#include "tests/shared/suite.h"

enum { VOCABULARY = 67, ROWS = 4, STEPS = 2, STAGES = 4 };

#ifdef __SANITIZE_ADDRESS__
enum { SANITIZED = 1, T = 24 };
#else
enum { SANITIZED = 0, T = 48 };
#endif

/* ThreadSanitizer takes ten times as long: there two ranks will do. */
#ifdef __SANITIZE_THREAD__
enum { MOST = 2 };
#else
enum { MOST = 4 };
#endif

/* A training, and what it ended with. */
typedef struct training {
    const char *recipe, *reduce_dtype, *reduce_at;
    const char *load, *save; /* files, before the first step and after the last; NULL: none */
    bool budget;             /* of memory: values are recomputed */
    int ranks, zero, accumulate, first, steps; /* first: the number of the first step */
    char *failed[RANKS_MOST];
    unsigned char *whole[RANKS_MOST]; /* all variables, as rank r has them or joins them */
    size_t bytes[RANKS_MOST], room[RANKS_MOST];
    float result[RANKS_MOST][STEPS + 1]; /* losses, then the norm of the last step */
    rank_traffic traffic[RANKS_MOST];
    int64_t recomputed[RANKS_MOST]; /* values, with a budget */
} training;

/* Room for `more` bytes behind those there are: twice what it was, since realloc always copies
 * under AddressSanitizer. NULL: no memory. */
static unsigned char *make_room(training *t, int rank, size_t more)
{
    const size_t needed = t->bytes[rank] + more;
    if (needed <= t->room[rank])
        return t->whole[rank];
    unsigned char *p = realloc(t->whole[rank], 2 * needed);
    if (p) {
        t->whole[rank] = p;
        t->room[rank] = 2 * needed;
    }
    return p;
}

/* Appends the whole of a variable. */
static bool append_whole(f8_api_run *r, const fp8c_comm *comm, training *t, int i,
                         const fp8c_variable *v)
{
    const size_t part = (size_t)fp8c_type_bytes(&v->type),
                 whole = v->rows ? part / (size_t)v->type.dim[0] * (size_t)v->rows : part;
    unsigned char *own = malloc(part + 1), *all = malloc(part * (size_t)comm->ranks + 1),
                  *more = make_room(t, comm->rank, whole + 1);
    bool ok = own && all && more && fp8c_program_read(r->program, i, own) == FP8C_OK;
    if (ok && v->rows)
        ok = comm->all_gather(comm->user, own, all, part) == 0;
    if (ok) {
        memcpy(more + t->bytes[comm->rank], v->rows ? all : own, whole);
        t->bytes[comm->rank] += whole;
        for (size_t k = whole; v->rows && k < part * (size_t)comm->ranks; k++)
            ok &= all[k] == 0; /* behind the last row */
    }
    free(own);
    free(all);
    return ok;
}

static bool train_steps(f8_api_run *r, training *t, int rank)
{
    for (int s = 0; s < t->steps; s++) {
        for (int i = 0; i < t->accumulate; i++) {
            f8_api_batch(r, VOCABULARY, (uint64_t)((t->first + s) * t->accumulate + i));
            if (fp8c_program_run(r->program, r->step) != FP8C_OK)
                return false;
        }
        t->result[rank][s] = *(float *)f8_api_buffer(r, r->step, FP8C_OUTPUT, "loss", NULL);
        if (fp8c_program_run(r->program, r->update) != FP8C_OK)
            return false;
    }
    if (t->steps)
        t->result[rank][STEPS] =
            *(float *)f8_api_buffer(r, r->update, FP8C_OUTPUT, "grad_norm", NULL);
    return true;
}

/* Opens with the first budget that the step can keep and that makes it recompute something. Where
 * buckets are what takes memory, a checkpoint at every layer does. */
static bool open_with_budget(f8_api_run *r, f8_api_setup *setup)
{
    static const double shares[] = {0.5, 0.75};
    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++) {
        fp8c_remat remat = {.struct_size = sizeof remat};
        setup->options.memory_share = shares[i];
        if (f8_api_open(r, setup))
            fp8c_program_remat(r->program, 0, 0, &remat);
        if (remat.recomputed > 0)
            return true;
        f8_api_close(r);
    }
    setup->options.memory_share = 0;
    setup->options.checkpoint = "x.*";
    return f8_api_open(r, setup);
}

static void train(const fp8c_comm *comm, void *user)
{
    training *t = user;
    const int rank = comm->rank;
    /* 67 rows do not divide evenly. Scales of 128 x 128 need whole blocks on each of 2 ranks. */
    const bool wide = !strcmp(t->recipe, "block");
    const fp8c_dim dims[] = {{"B", ROWS / t->ranks}, {"T", T},
                             {"C", wide ? 256 : 64}, {"H", 2},
                             {"L", wide ? 1 : 2},    {"V", VOCABULARY}};
    f8_api_setup setup = {.file = "frontend/models/gpt.f8",
                          .dims = dims,
                          .n_dims = sizeof dims / sizeof *dims,
                          .options = {.recipe = t->recipe,
                                      .threads = 1,
                                      .comm = comm,
                                      .zero = t->zero,
                                      .reduce_dtype = t->reduce_dtype,
                                      .reduce_at = t->reduce_at,
                                      .optimizer_steps = STEPS}};
    f8_api_run r;
    fp8c_variable v;
    bool ok = t->budget ? open_with_budget(&r, &setup) : f8_api_open(&r, &setup);
    r.first_row = (int64_t)rank * ROWS / t->ranks;
    if (ok && t->load)
        ok = fp8c_program_load(r.program, t->load, 0, NULL) == FP8C_OK;
    if (ok && t->budget) {
        fp8c_remat remat = {.struct_size = sizeof remat};
        fp8c_program_remat(r.program, 0, 0, &remat);
        t->recomputed[rank] = remat.recomputed;
    }
    ok = ok && train_steps(&r, t, rank);
    if (ok && t->save)
        ok = fp8c_program_save(r.program, t->save, NULL) == FP8C_OK;
    for (int i = 0; ok && fp8c_program_variable(r.program, i, &v) == FP8C_OK; i++)
        ok = is_weight_codes(v.name) || append_whole(&r, comm, t, i, &v);
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
    if (!t->steps && !t->load)
        t->steps = STEPS;
    ranks_run(t->ranks, train, t, t->traffic);
    for (int r = 0; r < t->ranks; r++)
        ck_assert_msg(!t->failed[r], "%s, stage %d, rank %d of %d: %s", t->recipe, t->zero, r,
                      t->ranks, t->failed[r]);
    for (int r = 0; r < t->ranks && t->budget; r++)
        ck_assert_int_gt(t->recomputed[r], 0);
}

static void end(training *t)
{
    for (int r = 0; r < t->ranks; r++)
        free(t->whole[r]);
}

static const char *const recipes[] = {"bf16", "delayed", "current", "rowwise", "block", "mxfp8"};
enum { RECIPES = sizeof recipes / sizeof *recipes };

/* Whether every rank of t has the bits of rank 0 of `none`. */
static void same_bits(const training *t, const training *none)
{
    for (int r = 0; r < t->ranks; r++) {
        ck_assert_mem_eq(t->result[r], none->result[0], sizeof t->result[r]);
        ck_assert_uint_eq(t->bytes[r], none->bytes[0]);
        ck_assert_msg(!memcmp(t->whole[r], none->whole[0], none->bytes[0]),
                      "%s, stage %d, %d micro-steps, %s: rank %d of %d has other bits", t->recipe,
                      t->zero, t->accumulate, t->budget ? "a budget" : "no budget", r, t->ranks);
    }
}

/* What is tried of the matrix unless FP8C_RANKS=all: each stage at each number of ranks, with one
 * and with 3 micro-steps; budgets at stage 3, and under one recipe at each stage on two ranks and
 * on one. Under a sanitizer planning takes long: there one budget will do. */
static bool is_tried(const char *recipe, int ranks, int accumulate, int zero, bool budget)
{
    const char *asked = getenv("FP8C_RANKS");
    if (asked && !strcmp(asked, "all"))
        return true;
    if (accumulate != (ranks == 4 ? 3 : 1) || (SANITIZED && ranks == 1))
        return false;
    const bool chosen = !strcmp(recipe, "delayed");
    if (SANITIZED)
        return !budget || (chosen && ranks == 2 && zero == 3);
    return !budget || zero == 3 || (chosen && ranks < 4);
}

/* All stages, with a budget of memory and without, against stage 0 without. */
static void check_world(const char *recipe, int ranks, int accumulate)
{
    training none = {.recipe = recipe, .ranks = ranks, .accumulate = accumulate};
    if (!is_tried(recipe, ranks, accumulate, 0, false))
        return;
    run(&none);
    for (int zero = 0; zero < (ranks == 1 ? 1 : STAGES); zero++)
        for (int budget = 0; budget < 2; budget++) {
            training t = {.recipe = recipe,
                          .ranks = ranks,
                          .zero = zero,
                          .accumulate = accumulate,
                          .budget = budget};
            if ((zero == 0 && !budget) || !is_tried(recipe, ranks, accumulate, zero, budget))
                continue;
            run(&t);
            same_bits(&t, &none);
            end(&t);
        }
    end(&none);
}

START_TEST(stages_agree)
{
    for (int ranks = 1; ranks <= MOST; ranks *= 2)
        for (int accumulate = 1; accumulate <= 3; accumulate += 2)
            check_world(recipes[_i], ranks, accumulate);
}
END_TEST

/* How gradients are summed changes bits, but not from stage to stage. All begin with the same
 * weights, so the first losses are the same, and the first norms but for the rounding of gradients:
 * 2^-9 of each for bf16, and for the order of f32 sums far less. */
START_TEST(reductions)
{
    static const struct {
        const char *dtype, *at, *recipe;
        int stages;
    } ways[] = {{"bf16", "micro_step", "bf16", 4},
                {NULL, "update", "delayed", 2},
                {"bf16", "update", "bf16", 2}};
    training usual = {.recipe = ways[_i].recipe, .ranks = 2, .accumulate = 3, .steps = 1}, none;
    run(&usual);
    for (int zero = 0; zero < ways[_i].stages; zero++) {
        training t = {.recipe = ways[_i].recipe,
                      .ranks = 2,
                      .zero = zero,
                      .accumulate = 3,
                      .steps = 1,
                      .reduce_dtype = ways[_i].dtype,
                      .reduce_at = ways[_i].at};
        run(&t);
        ck_assert_mem_eq(t.result[1], t.result[0], sizeof t.result[0]);
        ck_assert_float_eq(t.result[0][0], usual.result[0][0]);
        ck_assert_float_eq_tol(t.result[0][STEPS], usual.result[0][STEPS],
                               ldexpf(usual.result[0][STEPS], -9));
        ck_assert_mem_ne(t.whole[0], usual.whole[0], t.bytes[0]);
        for (int r = 0; r < 2 && zero; r++)
            ck_assert_mem_eq(t.whole[r], none.whole[0], none.bytes[0]);
        if (zero)
            end(&t);
        else
            none = t;
    }
    end(&none);
    end(&usual);
}
END_TEST

/* ---- rows that nobody has ---- */

static const char narrow[] = "module narrow\n"
                             "dim B = 4\n"
                             "param a: f32[48, 64] normal(0.2)\n"
                             "param b: f32[64, 48] normal(0.2)\n"
                             "param s: f32[] const(0.5)\n"
                             "func forward(%x: f32[B, 48], %t: f32[B, 48]) -> (%loss: f32[]) {\n"
                             "  %h = linear(gelu(linear(%x, a)) {approximate = \"tanh\"}, b)\n"
                             "  %d = sub(mul(%h, s), %t)\n"
                             "  return reshape(mean(mean(mul(%d, %d)) {axis = 0})) {shape = []}\n"
                             "}\n"
                             "optimizer adamw {lr = 0.01, eps = 1e-60, weight_decay = 0.1}\n";

static void fill(const rank_case *c, int rank, int batch, const char *port, const fp8c_type *type,
                 void *data)
{
    const int64_t n = type->dim[0] * type->dim[1];
    (void)c;
    for (int64_t i = 0; i < n; i++)
        ((float *)data)[i] = (float)((i * i * 7 + rank * 11 + batch * 3 + *port) % 43) / 20 - 1;
}

/* 5 ranks have 10 of 48 rows each: the last one has 2 that are nobody's. There AdamW divides 0 by
 * 0, as eps is 0 in f32, and no amax may see that. */
START_TEST(padding)
{
    for (int zero = 0; zero < STAGES; zero++) {
        static float loss, norm;
        rank_case c = {.text = narrow,
                       .dim = {{"B", 4}},
                       .options = {.recipe = "current",
                                   .target = _i ? "reference" : "cpu",
                                   .zero = zero,
                                   .reduce_dtype = _i ? "bf16" : NULL,
                                   .threads = 1},
                       .ranks = 5,
                       .steps = 3,
                       .accumulate = 1,
                       .fill = fill};
        rank_case_run(&c);
        for (int r = 0; r < c.ranks; r++) {
            const float l = *rank_case_floats(&c, r, "micro_step:loss", NULL),
                        n = *rank_case_floats(&c, r, "update:grad_norm", NULL);
            if (zero == 0 && r == 0) {
                loss = l;
                norm = n;
                ck_assert(isfinite(l) && isfinite(n) && n > 0);
            }
            ck_assert_mem_eq(&l, &loss, sizeof l);
            ck_assert_mem_eq(&n, &norm, sizeof n);
        }
        int64_t n;
        const float *last = rank_case_floats(&c, 4, "opt.m.a", &n);
        ck_assert_int_eq(n, zero ? 10 * 64 : 48 * 64);
        for (int64_t i = 8 * 64; zero && i < n; i++)
            ck_assert_float_eq(last[i], 0);
        rank_case_end(&c);
    }
}
END_TEST

/* ---- files ---- */

static char folder[256];

static void make_folder(void)
{
    const char *base = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/fp8c-zero-XXXXXX", base ? base : "/tmp");
    ck_assert_ptr_nonnull(mkdtemp(folder));
}

static void remove_folder(void)
{
    char file[sizeof folder + 16];
    snprintf(file, sizeof file, "%s/middle", folder);
    unlink(file);
    ck_assert_int_eq(rmdir(folder), 0);
}

/* A checkpoint has no trace of how many ranks wrote it: saved by 4 at stage 3, it goes on bit by
 * bit on 4 at any stage, and one rank and 2 read the same values. */
START_TEST(checkpoints)
{
    char middle[sizeof folder + 16];
    snprintf(middle, sizeof middle, "%s/middle", folder);
    training whole = {.recipe = recipes[_i], .ranks = MOST, .zero = 3},
             begins = {.recipe = recipes[_i], .ranks = MOST, .zero = 3, .steps = 1, .save = middle};
    run(&whole);
    run(&begins);
    for (int zero = 0; zero < STAGES; zero++) {
        training ends = {.recipe = recipes[_i],
                         .ranks = MOST,
                         .zero = zero,
                         .load = middle,
                         .first = 1,
                         .steps = 1};
        run(&ends);
        ck_assert_uint_eq(ends.bytes[0], whole.bytes[0]);
        ck_assert_msg(!memcmp(ends.whole[0], whole.whole[0], whole.bytes[0]),
                      "%s: resumed at stage %d: other bits", recipes[_i], zero);
        end(&ends);
    }
    for (int ranks = 1; ranks <= 2; ranks++) {
        training reads = {.recipe = recipes[_i], .ranks = ranks, .zero = 2, .load = middle};
        run(&reads);
        ck_assert_uint_eq(reads.bytes[0], begins.bytes[0]);
        ck_assert_msg(!memcmp(reads.whole[0], begins.whole[0], begins.bytes[0]),
                      "%s: %d ranks read other bits", recipes[_i], ranks);
        end(&reads);
    }
    end(&whole);
    end(&begins);
}
END_TEST

/* Rank 0 can't write: every rank says so, and none waits. */
START_TEST(not_saved)
{
    training t = {.recipe = "bf16", .ranks = 2, .zero = 1, .save = "build/none/x.safetensors"};
    t.accumulate = t.steps = 1;
    ranks_run(2, train, &t, NULL);
    for (int r = 0; r < 2; r++) {
        ck_assert_ptr_nonnull(t.failed[r]);
        ck_assert_msg(strstr(t.failed[r], "build/none/x.safetensors"), "rank %d: %s", r,
                      t.failed[r]);
        free(t.failed[r]);
    }
}
END_TEST

Suite *f8_suite(void)
{
    Suite *suite = suite_create("zero");
    TCase *c = tcase_create("stages");
    tcase_set_timeout(c, 300);
    tcase_add_checked_fixture(c, make_folder, remove_folder);
    tcase_add_loop_test(c, stages_agree, 0, RECIPES);
    tcase_add_loop_test(c, checkpoints, 1, 3); /* delayed and current have states of their own */
    tcase_add_loop_test(c, reductions, 0, 3);
    tcase_add_test(c, not_saved);
    tcase_add_loop_test(c, padding, 0, 2);
    suite_add_tcase(suite, c);
    return suite;
}
