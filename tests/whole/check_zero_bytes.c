/* What the stages of ZeRO cost and save, counted where it happens: bytes at the engine, FP8 GEMMs
 * by the executor, and the variables that a rank has. Once FP8 was on, other libraries silently
 * left layers in bf16, or fell back to stage 0. */
#include <malloc.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "frontend/fp8c_diagnose.h"
#include "frontend/fp8c_ranks.h"
#include "tests/shared/api/api_run.h"
#include "tests/shared/api/rank_case.h"
#include "tests/shared/suite.h"

enum { ROWS = 8, STAGES = 4 };

static void fill(const rank_case *c, int rank, int batch, const char *port, const fp8c_type *type,
                 void *data)
{
    const int64_t n = type->dim[0] * type->dim[1];
    (void)c;
    for (int64_t i = 0; i < n; i++)
        ((float *)data)[i] = (float)((i * 37 + rank * 11 + batch + *port) % 41) / 20 - 1;
}

/* ---- two linears ---- */

static const char linears[] = "module linears\n"
                              "dim B = 8\n"
                              "param a: f32[256, 512] normal(0.05)\n"
                              "param b: f32[512, 256] normal(0.05)\n"
                              "func forward(%x: f32[B, 256], %t: f32[B, 256]) -> (%loss: f32[]) {\n"
                              "  %h = gelu(linear(%x, a)) {approximate = \"tanh\"}\n"
                              "  %d = sub(linear(%h, b), %t)\n"
                              "  return reshape(mean(mean(mul(%d, %d)) {axis = 0})) {shape = []}\n"
                              "}\n"
                              "optimizer adamw {lr = 0.01}\n";

static rank_case case_of(const char *recipe, int ranks, int zero, int steps)
{
    return (rank_case){.text = linears,
                       .dim = {{"B", ROWS}},
                       .options = {.recipe = recipe, .zero = zero, .threads = 1},
                       .ranks = ranks,
                       .steps = steps,
                       .accumulate = 1,
                       .fill = fill};
}

/* The first axis of a variable as a rank has it. */
static int64_t rows_of(const rank_case *c, int rank, const char *name)
{
    return rank_case_value(c, rank, name)->type.dim[0];
}

static const char *const fp8[] = {"delayed", "current", "rowwise", "block", "mxfp8"};
enum { FP8 = sizeof fp8 / sizeof *fp8 };

/* ---- what the trace of a run says ---- */

/* Whether this rank's run executed such a step: NAME up to its first '*', or the whole of it. */
static bool executed(const rank_case *c, int rank, const char *op, const char *name)
{
    const size_t n = strcspn(name, "*");
    bool found = false;
    for (int i = 0; i < c->n_steps[rank]; i++) {
        const rank_step *s = &c->step[rank][i];
        found |= !strcmp(s->op, op) && !strncmp(s->name, name, n) && (name[n] || !s->name[n]) &&
                 s->seconds > 0;
    }
    return found;
}

/* The GEMMs of the linears were executed, and each read less than bf16 operands are: codes have
 * half of those bytes, and at most as many again of scales where k is 8. */
static void check_gemms(const rank_case *c, int rank)
{
    static const struct {
        const char *name;
        int64_t m, n, k;
    } gemms[] = {{"micro_step:a.fprop", ROWS, 512, 256},
                 {"micro_step:b.fprop", ROWS, 256, 512},
                 {"micro_step:b.dgrad", ROWS, 512, 256},
                 {"micro_step:b.wgrad", 512, 256, ROWS},
                 {"micro_step:a.wgrad", 256, 512, ROWS}};
    enum { GEMMS = sizeof gemms / sizeof *gemms };
    int n = 0;
    for (int i = 0; i < c->n_steps[rank]; i++)
        n += !strcmp(c->step[rank][i].op, "gemm");
    ck_assert_int_eq(n, GEMMS);
    for (int g = 0; g < GEMMS; g++) {
        const int64_t elements = (gemms[g].m + gemms[g].n) * gemms[g].k;
        ck_assert_msg(executed(c, rank, "gemm", gemms[g].name), "%s, rank %d: %s did not run",
                      c->options.recipe, rank, gemms[g].name);
        for (int i = 0; i < c->n_steps[rank]; i++)
            if (!strcmp(c->step[rank][i].name, gemms[g].name))
                ck_assert_msg(c->step[rank][i].read < 2 * elements,
                              "%s, stage %d, rank %d: %s reads %lld bytes", c->options.recipe,
                              c->options.zero, rank, gemms[g].name,
                              (long long)c->step[rank][i].read);
    }
}

/* The stage whose collectives the run executed. */
static int stage_of(const rank_case *c, int rank)
{
    const bool sums = executed(c, rank, "all_to_all", "micro_step:grad.a*") &&
                      executed(c, rank, "all_to_all", "micro_step:grad.b*"),
               whole_sums = executed(c, rank, "all_gather", "micro_step:grad.a*") &&
                            executed(c, rank, "all_gather", "micro_step:grad.b*"),
               gathers_late = executed(c, rank, "all_gather", "update:a") &&
                              executed(c, rank, "all_gather", "update:b*"),
               gathers = executed(c, rank, "all_gather", "micro_step:a.w*") &&
                         executed(c, rank, "all_gather", "micro_step:b.w*");
    ck_assert(sums);
    if (gathers)
        return whole_sums || gathers_late ? -1 : 3;
    return !gathers_late ? whole_sums ? 0 : -1 : whole_sums ? 1 : 2;
}

/* What the run has allocated, other than the arena. */
static int64_t held(const rank_case *c, int rank)
{
    return c->info[rank].peak_bytes - c->info[rank].arena_bytes;
}

static bool keeps_codes(const char *recipe)
{
    return !strcmp(recipe, "delayed") || !strcmp(recipe, "block");
}

START_TEST(nothing_falls_back)
{
    enum { ELEMENTS = 2 * 256 * 512, STEPS = 2 };  /* micro_step's, and first its form for that */
    static const int saved[STAGES] = {0, 4, 6, 8}; /* bytes an element, of 16, on 2 ranks */
    int64_t whole = 0;
    rank_case alone = case_of(fp8[_i], 1, 0, STEPS);
    rank_case_run(&alone);
    ck_assert_int_ge(alone.info[0].fp8_gemms_executed,
                     STEPS * 5); /* a has no dgrad: x is an input */
    for (int zero = 0; zero < STAGES; zero++) {
        rank_case c = case_of(fp8[_i], 2, zero, STEPS);
        c.options.profile = 1;
        rank_case_run(&c);
        if (zero == 0)
            whole = held(&c, 0);
        for (int r = 0; r < 2; r++) {
            /* with stage 3 a rank also keeps the codes of its part alone */
            const int codes = keeps_codes(fp8[_i]) && zero == 3 ? ELEMENTS / 2 : 0;
            ck_assert_int_eq(whole - held(&c, r), saved[zero] * ELEMENTS + codes);
            ck_assert_int_eq(c.info[r].fp8_gemms_executed, alone.info[0].fp8_gemms_executed);
            check_gemms(&c, r);
            ck_assert_int_eq(stage_of(&c, r), zero);
            ck_assert_int_eq(rows_of(&c, r, "opt.m.a"), zero >= 1 ? 128 : 256);
            ck_assert_int_eq(rows_of(&c, r, "opt.v.b"), zero >= 1 ? 256 : 512);
            ck_assert_int_eq(rows_of(&c, r, "grad.a"), zero >= 2 ? 128 : 256);
            ck_assert_int_eq(rows_of(&c, r, "a"), zero >= 3 ? 128 : 256);
        }
        rank_case_end(&c);
    }
    rank_case_end(&alone);
}
END_TEST

/* Bytes that rank 0 sends in a micro_step to gather weights: what stage 3 sends beyond stage 2. */
static int64_t gathered(const char *recipe)
{
    int64_t sent[2];
    for (int i = 0; i < 2; i++) {
        rank_case c = case_of(recipe, 2, 2 + i, 0);
        rank_case_run(&c);
        sent[i] = c.traffic[0].sent;
        rank_case_end(&c);
    }
    return sent[1] - sent[0];
}

START_TEST(gathers_codes)
{
    /* a forward, b forward and backward, as bf16, half of them on this rank */
    const int64_t bf16 = gathered("bf16"), codes = gathered(fp8[_i]);
    ck_assert_int_eq(bf16, (256 * 512 + 2 * 512 * 256) * 2 / 2);
    ck_assert_msg((double)codes <= 0.55 * (double)bf16, "%s: %lld bytes, bf16 %lld", fp8[_i],
                  (long long)codes, (long long)bf16);
}
END_TEST

/* While histories are empty, `delayed` has the gradients of `current`: on every stage, where
 * weights travel as codes, too. */
START_TEST(first_step)
{
    static const char *const gradients[] = {"grad.a", "grad.b"};
    rank_case a = case_of("delayed", 2, _i, 0), b = case_of("current", 2, _i, 0);
    rank_case_run(&a);
    rank_case_run(&b);
    for (int i = 0; i < 2; i++) {
        int64_t n, m;
        float *x = rank_case_whole(&a, gradients[i], &n),
              *y = rank_case_whole(&b, gradients[i], &m);
        float most = 0;
        for (int64_t k = 0; k < n; k++)
            most = fmaxf(most, fabsf(x[k]));
        ck_assert(most > 0);
        ck_assert_msg(n == m && !memcmp(x, y, (size_t)n * sizeof *x), "%s", gradients[i]);
        free(x);
        free(y);
    }
    rank_case_end(&a);
    rank_case_end(&b);
}
END_TEST

/* At stage 2 a micro_step sums gradients to shards and reports the loss: what travels as bf16 is
 * half as much. With reduce_at "update" a micro_step sends the loss alone. */
START_TEST(reductions)
{
    enum { GRADIENTS = 2 * 256 * 512, DIGEST = 16, MICRO_STEPS = 1 };
    static const struct {
        const char *dtype, *at;
        int zero, bytes; /* sent for an element */
    } ways[] = {{NULL, NULL, 2, 4}, {"bf16", NULL, 2, 2}, {NULL, "update", 1, 0}};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        rank_case c = case_of("bf16", 2, ways[i].zero, 0);
        c.options.reduce_dtype = ways[i].dtype;
        c.options.reduce_at = ways[i].at;
        rank_case_run(&c);
        ck_assert_int_eq(c.traffic[0].sent,
                         DIGEST + MICRO_STEPS * (4 + GRADIENTS / 2 * ways[i].bytes));
        rank_case_end(&c);
    }
}
END_TEST

/* ---- the memory of GPT-2 124M ---- */

/* The bytes of the variables of this kind, and those that the formula gives without padding. */
static void add_bytes(const fp8c_variable *v, int ranks, double *bytes, double *wanted,
                      double *padding)
{
    const double part = (double)fp8c_type_bytes(&v->type), row = part / (double)v->type.dim[0];
    *bytes += part;
    *wanted += v->rows ? (double)v->rows * row / ranks : part;
    *padding += v->rows ? row : 0; /* less than a row */
}

START_TEST(memory)
{
    static const int worlds[] = {1, 2, 4, 8};
    const int ranks = worlds[_i];
    const fp8c_dim dims[] = {{"B", 1}, {"T", 64}};
    fp8c_variable v;
    for (int zero = 0; zero < STAGES; zero++) {
        const f8_api_setup setup = {
            .file = "frontend/models/gpt2_124m.f8",
            .dims = dims,
            .n_dims = 2,
            .options = {.no_device = 1, .plan_only = 1, .ranks = ranks, .zero = zero}};
        f8_api_run r;
        double param = 0, state = 0, wanted = 0, padding = 0, elements = 0;
        ck_assert_msg(f8_api_open(&r, &setup), "%s", r.failed);
        for (int i = 0; fp8c_program_variable(r.program, i, &v) == FP8C_OK; i++) {
            if (v.type.rank == 0) /* counters */
                continue;
            add_bytes(&v, ranks, v.is_param ? &param : &state, &wanted, &padding);
            if (v.is_param)
                elements += (double)fp8c_type_bytes(&v.type) / 4 *
                            (v.rows ? (double)v.rows / (double)v.type.dim[0] : 1);
        }
        static const double whole[] = {16, 8, 4, 0}, shared[] = {0, 8, 12, 16};
        const double formula =
            ranks == 1 ? 16 * elements : (whole[zero] + shared[zero] / ranks) * elements;
        ck_assert_double_eq_tol(elements, 124439808 - (1024 - 64) * 768, 0.5);
        ck_assert_double_eq_tol(wanted, formula, 1);
        ck_assert_double_ge(param + state, formula - 1);
        ck_assert_double_le(param + state, formula + padding);
        ck_assert_double_le(param + state, 1.0001 * formula);
        f8_api_close(&r);
    }
}
END_TEST

/* ---- what travels, beside the state ---- */

/* The largest bucket of gradients, with zeros behind its rows, and the largest gathered variable:
 * bytes of the whole. */
static void find_largest(const fp8c_program *p, int64_t *bucket, int64_t *layer)
{
    static const char *const functions[] = {"micro_step", "update"};
    fp8c_step s;
    *bucket = *layer = 0;
    for (int f = 0; f < 2; f++) {
        const int function = fp8c_program_function(p, functions[f]);
        for (int i = 0; fp8c_program_step(p, function, i, &s) == FP8C_OK; i++) {
            const fp8c_collective c = s.collective;
            if (!c.op || !c.bytes)
                continue;
            int64_t *most = strcmp(c.op, "all_to_all") ? layer : bucket;
            const int64_t bytes = c.bytes * c.ranks;
            if ((most == bucket || strncmp(s.name, "grad.", 5)) && bytes > *most)
                *most = bytes;
        }
    }
}

static void open_gpt2(f8_api_run *r, int ranks, int zero)
{
    const fp8c_dim dims[] = {{"B", 1}, {"T", 64}};
    const f8_api_setup setup = {
        .file = "frontend/models/gpt2_124m.f8",
        .dims = dims,
        .n_dims = 2,
        .options = {.no_device = 1, .plan_only = 1, .ranks = ranks, .zero = zero}};
    ck_assert_msg(f8_api_open(r, &setup), "%s", r->failed);
}

static int64_t arena_of(const f8_api_run *r)
{
    fp8c_info info = {.struct_size = sizeof info};
    fp8c_program_info(r->program, &info);
    return info.arena_bytes;
}

/* Beside what one rank has in the arena there are at most two buckets, two gathered layers and one
 * exchange buffer, which has the size of a bucket. */
START_TEST(travelling)
{
    static const int worlds[] = {2, 4, 8};
    f8_api_run alone;
    open_gpt2(&alone, 1, 0);
    const int64_t own = arena_of(&alone);
    f8_api_close(&alone);
    for (int zero = 0; zero < STAGES; zero++) {
        f8_api_run r;
        int64_t bucket, layer;
        open_gpt2(&r, worlds[_i], zero);
        find_largest(r.program, &bucket, &layer);
        ck_assert_int_gt(bucket, 0);
        ck_assert(zero == 0 || layer > 0);
        ck_assert_msg(arena_of(&r) - own <= 3 * bucket + 2 * layer,
                      "stage %d, %d ranks: %lld bytes more than one rank; bucket %lld, layer %lld",
                      zero, worlds[_i], (long long)(arena_of(&r) - own), (long long)bucket,
                      (long long)layer);
        f8_api_close(&r);
    }
}
END_TEST

/* ---- what is resident ---- */

static const char wide[] = "module wide\n"
                           "dim B = 32\n"
                           "param a: f32[1024, 4096] normal(0.05)\n"
                           "param b: f32[4096, 1024] normal(0.05)\n"
                           "func forward(%x: f32[B, 1024], %t: f32[B, 1024]) -> (%loss: f32[]) {\n"
                           "  %h = gelu(linear(%x, a)) {approximate = \"tanh\"}\n"
                           "  %d = sub(linear(%h, b), %t)\n"
                           "  return reshape(mean(mean(mul(%d, %d)) {axis = 0})) {shape = []}\n"
                           "}\n"
                           "optimizer adamw {lr = 0.01}\n";

/* Bytes of the process. */
static double resident(void)
{
    long long pages = 0, all = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    ck_assert(f && fscanf(f, "%lld %lld", &all, &pages) == 2);
    fclose(f);
    return (double)pages * (double)sysconf(_SC_PAGESIZE);
}

#ifdef __SANITIZE_ADDRESS__ /* it keeps what is freed */
enum { MEASURED = 0 };
#else
enum { MEASURED = 2 };
#endif

static double at_the_end; /* what was resident while all ranks had their programs */

static void measure_resident(rank_case *c, const fp8c_comm *comm, const fp8c_program *program)
{
    char none = 0, all[RANKS_MOST];
    (void)c;
    (void)program;
    comm->all_gather(comm->user, &none, all, 1);
    if (comm->rank == 0) {
        malloc_trim(0); /* the compiler's memory is given back */
        at_the_end = resident();
    }
    comm->all_gather(comm->user, &none, all, 1);
}

/* Nothing is given back before a program ends, so the most is resident at its end. What is not
 * planned is the program's own, its plan and code: 1.5 MiB of a rank here, where 5% are 6 or more.
 * What malloc keeps of an earlier turn can hide a part, so a turn that shows too little is repeated.
 */
START_TEST(residence)
{
    double before = 0;
    bool shown = false;
    for (int turn = 0; turn < 4 && !shown; turn++) { /* the first one loads the libraries */
        rank_case c = case_of("delayed", 2, _i ? 3 : 0, 2);
        c.text = wide;
        c.dim[0].value = 32;
        c.at_end = measure_resident;
        malloc_trim(0);
        before = resident();
        rank_case_run(&c);
        const double planned = (double)(c.info[0].planned_bytes + c.info[1].planned_bytes),
                     was = at_the_end - before;
        ck_assert_double_ge(planned, 1 << 27);
        shown = turn && was >= 0.95 * planned;
        ck_assert_msg(!turn || (was <= 1.05 * planned && (shown || turn < 3)),
                      "stage %d: %.2f MiB are resident, %.2f planned", c.options.zero,
                      was / (1 << 20), planned / (1 << 20));
        rank_case_end(&c);
    }
}
END_TEST

Suite *f8_suite(void)
{
    Suite *suite = suite_create("zero bytes");
    TCase *c = tcase_create("counted");
    tcase_set_timeout(c, 300);
    tcase_add_loop_test(c, nothing_falls_back, 0, FP8);
    tcase_add_loop_test(c, gathers_codes, 0, FP8);
    tcase_add_loop_test(c, first_step, 0, STAGES);
    tcase_add_test(c, reductions);
    tcase_add_loop_test(c, memory, 0, 4);
    tcase_add_loop_test(c, travelling, 0, 3);
    tcase_add_loop_test(c, residence, 0, MEASURED);
    suite_add_tcase(suite, c);
    return suite;
}
