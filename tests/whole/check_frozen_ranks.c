/* Frozen parameters on several ranks, stored as FP8 codes or not: every stage of ZeRO has the same
 * bits, and what is frozen keeps its bytes. At stage 3 a rank has its rows of the codes alone. */
#include "frontend/fp8c_ranks.h"
#include "tests/shared/api/cli.h"
#include "tests/shared/api/lora_case.h"
#include "tests/shared/api/rank_threads.h"
#include "tests/shared/suite.h"

enum { UPDATES = 2, VALUES = 2 * UPDATES + 1 };

/* What all ranks do. */
typedef struct world {
    const char *recipe, *stored;
    const char *weights; /* a file, of the base alone */
    bool bf16;           /* the base is declared so */
    int zero;
    float value[RANKS_MOST][VALUES]; /* losses and norms */
    int64_t bytes[RANKS_MOST];       /* of the frozen parameters */
} world;

static const char *const base[] = {"wte",
                                   "base.up",
                                   "base.down",
                                   "base.up_scale",
                                   "base.down_scale",
                                   "base.up_scale_inv",
                                   "base.down_scale_inv"};
static const char *const adapters[] = {"lora.*"};
enum { N_BASE = sizeof base / sizeof *base };

static void body(const fp8c_comm *comm, void *user)
{
    world *w = user;
    float *value = w->value[comm->rank];
    fp8c_context *ctx = new_context();
    fp8c_module *m = parse(ctx, w->bf16 ? lora_text_bf16() : lora_text);
    fp8c_compile_options o = recipe(w->recipe);
    o.stored = w->stored;
    o.frozen = LORA_BASE;
    o.comm = comm;
    o.zero = w->zero;
    fp8c_program *p = compile(ctx, m, &o);
    fp8c_module_destroy(m);
    ck_assert_int_eq(fp8c_program_initialize(p, 5), FP8C_OK);
    const fp8c_load_options file = {.struct_size = sizeof file,
                                    .files = &w->weights,
                                    .n_files = 1,
                                    .ignore = adapters,
                                    .n_ignore = 1,
                                    .allow_missing = adapters,
                                    .n_allow_missing = 1};
    ck_assert_msg(fp8c_program_load_weights(p, &file) == FP8C_OK, "%s", fp8c_context_message(ctx));
    void *before[N_BASE];
    size_t n[N_BASE] = {0};
    for (int k = 0; k < N_BASE; k++) {
        before[k] = lora_read(p, base[k], &n[k]);
        w->bytes[comm->rank] += (int64_t)n[k];
    }
    for (int u = 0; u < UPDATES; u++) {
        *value++ = lora_run(p, "micro_step", 4 * u + comm->rank);
        *value++ = lora_update(p);
    }
    *value = lora_run(p, "eval", comm->rank);
    for (int k = 0; k < N_BASE; k++) {
        size_t now = 0;
        void *after = lora_read(p, base[k], &now);
        ck_assert_msg(now == n[k] && (!now || !memcmp(before[k], after, now)), "%s", base[k]);
        free(before[k]);
        free(after);
    }
    fp8c_program_destroy(p);
    fp8c_context_destroy(ctx);
}

/* Writes the values of another seed. */
static void write_weights(const char *path, bool bf16)
{
    fp8c_context *ctx = new_context();
    fp8c_module *m = parse(ctx, bf16 ? lora_text_bf16() : lora_text);
    fp8c_compile_options o = recipe("f32");
    o.inference = 1;
    fp8c_program *p = compile(ctx, m, &o);
    ck_assert_int_eq(fp8c_program_initialize(p, 7), FP8C_OK);
    ck_assert_int_eq(fp8c_program_save(p, path, NULL), FP8C_OK);
    fp8c_program_destroy(p);
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
}

static const struct {
    const char *recipe, *stored;
    int ranks;
    bool as_values; /* the program that quantizes in each step has the same bits */
    bool bf16;
} cases[] = {
    {"bf16", NULL, 2, true, false},         {"bf16", NULL, 3, true, true},
    {"delayed", "delayed", 3, true, false}, {"current", "current", 2, true, false},
    {"block", "block", 2, true, false},     {"rowwise", "rowwise", 3, false, false},
    {"mxfp8", "mxfp8", 2, false, false},    {"current", "current", 2, true, true},
};
enum { N_CASES = sizeof cases / sizeof *cases };

START_TEST(stages)
{
    float want[RANKS_MOST][VALUES] = {{0}};
    const int ranks = cases[_i].ranks;
    int64_t whole = 0;
    char path[4096];
    snprintf(path, sizeof path, "%s", f8_cli_temp("weights"));
    write_weights(path, cases[_i].bf16);
    for (int zero = cases[_i].as_values ? -1 : 0; zero < 4; zero++) {
        world w = {.recipe = cases[_i].recipe,
                   .stored = zero < 0 ? NULL : cases[_i].stored,
                   .weights = path,
                   .bf16 = cases[_i].bf16,
                   .zero = zero};
        ranks_run(ranks, body, &w, NULL);
        if (zero == (cases[_i].as_values ? -1 : 0))
            memcpy(want, w.value, sizeof want);
        whole = zero == 0 ? w.bytes[0] : whole;
        for (int r = 0; r < ranks; r++) {
            for (int i = 0; i < VALUES; i++)
                ck_assert_msg(w.value[r][i] == want[r][i] && w.value[r][i] > 0,
                              "%s, stage %d, rank %d: value %d is %.9g, not %.9g", w.recipe, zero,
                              r, i, (double)w.value[r][i], (double)want[r][i]);
            if (zero == 3)
                ck_assert_int_lt(w.bytes[r], whole / ranks + whole / 8);
        }
    }
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("frozen_ranks");
    TCase *t = tcase_create("frozen_ranks");
    tcase_set_timeout(t, 200);
    tcase_add_checked_fixture(t, f8_cli_setup, f8_cli_teardown);
    tcase_add_loop_test(t, stages, 0, N_CASES);
    suite_add_tcase(s, t);
    return s;
}
