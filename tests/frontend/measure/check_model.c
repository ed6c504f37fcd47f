/* A tuned step as a set of measurements, against the plan, the tuner's own numbers and the rows of
 * the database. Nothing here asserts how fast anything is. */
#include <limits.h>
#include <math.h>
#include <unistd.h>

#include "frontend/measure/model.h"
#include "tests/shared/api/api.h"
#include "tests/shared/api/cli.h"
#include "tests/shared/cuda/gpu.h"
#include "tests/shared/suite.h"

/* A model with attention of T tokens, in heads of 8 columns. */
enum { T = 16, HEADS = 2, SIZE = 8 };
static const char attentive[] =
    "module attentive\n"
    "param wte: f32[16, 16] normal(0.5)\n"
    "param qkv.weight: f32[16, 48] normal(0.1)\n"
    "param fc.weight: f32[16, 16] normal(0.1)\n"
    "func forward(%tokens: i32[1, 16], %targets: i32[1, 16]) -> (%loss: f32[]) {\n"
    "  %p = linear(embedding(wte, %tokens), qkv.weight)\n"
    "  %q = slice(%p) {axis = -1, start = 0, stop = 16}\n"
    "  %k = slice(%p) {axis = -1, start = 16, stop = 32}\n"
    "  %v = slice(%p) {axis = -1, start = 32, stop = 48}\n"
    "  %a = attention(%q, %k, %v) {heads = 2, causal = false}\n"
    "  %y = linear(%a, fc.weight)\n"
    "  return cross_entropy(linear(%y, wte) {transpose_b = true, name = \"head\"}, %targets)\n"
    "}\n"
    "optimizer adamw {lr = 0.05}\n"
    "recipe \"fc\" = auto\n"
    "recipe \"head\" = bf16\n";

static char database[128];

static void setup(void)
{
    f8_cli_setup();
    snprintf(database, sizeof database, "%s", f8_cli_temp("tuning.db"));
    setenv("FP8C_TUNING", database, 1);
    setenv("FP8C_CACHE_DIR", f8_cli_temp("cache"), 0);
}

/* A measured model. */
typedef struct measured {
    fp8c_context *ctx;
    fp8c_module *module;
    fp8c_tuning *t;
    f8_measure_set set;
} measured;

static measured measure_on(const char *text, const char *target, const fp8c_tune_options *more)
{
    fp8c_compile_options compile_options = recipe(target ? "bf16" : "current");
    fp8c_tune_options o = *more;
    measured m = {.ctx = new_context()};
    m.module = parse(m.ctx, text);
    compile_options.target = target;
    o.struct_size = sizeof o;
    o.compile = &compile_options;
    o.runs = o.runs ? o.runs : 3;
    f8_arena_init(&m.set.arena, NULL);
    ck_assert_msg(f8_measure_model(m.ctx, m.module, &o, "fp8c tune x.f8", "abc", &m.set, &m.t) ==
                      FP8C_OK,
                  "%s", fp8c_context_message(m.ctx));
    return m;
}

static measured measure(const fp8c_tune_options *more)
{
    return measure_on(attentive, NULL, more);
}

static void end(measured *m)
{
    f8_arena_end(&m->set.arena);
    fp8c_tuning_destroy(m->t);
    fp8c_module_destroy(m->module);
    fp8c_context_destroy(m->ctx);
}

static const f8_measurement *way_of(const measured *m, const tune_problem *p, int c)
{
    const f8_measurement *way = f8_measure_find(&m->set, p->text, "step", p->candidate[c].text);
    ck_assert_msg(way != NULL, "%s: no measurement of %s", p->text, p->candidate[c].text);
    return way;
}

static bool is_attention(const tune_problem *p)
{
    return !strncmp(p->text, "attention ", 10);
}

/* ---- one process ---- */

/* The sizes in the problem's text: "gemm 16x48x16 f8e4m3 x f8e4m3.t -> f32 ..." */
static void check_problem(const f8_measure_problem *x, const tune_problem *p)
{
    long m = 0, n = 0, k = 0;
    char a[16] = "", b[16] = "";
    ck_assert_str_eq(x->name, p->name);
    ck_assert_int_eq(x->count, p->count);
    ck_assert(x->bytes > 0);
    const bool gemm = sscanf(x->text, "gemm %ldx%ldx%ld %15[a-z0-9]%*[a-z.] x %15[a-z0-9]", &m, &n,
                             &k, a, b) >= 3;
    ck_assert_int_eq(gemm, p->gemm);
    ck_assert_int_eq(x->m, m);
    ck_assert_int_eq(x->n, n);
    ck_assert_int_eq(x->k, k);
    if (gemm)
        ck_assert(x->flops == 2. * (double)(m * n * k));
    else if (!is_attention(p))
        ck_assert(x->flops == 0);
}

static void check_way(const measured *m, const tune_problem *p, int c)
{
    const f8_measurement *way = way_of(m, p, c);
    check_problem(&way->problem, p);
    ck_assert_int_eq(way->kind, c ? F8_MEASURE_CANDIDATE : F8_MEASURE_MODEL);
    ck_assert_int_eq(way->chosen, c == (p->chosen > 0 ? p->chosen : 0));
    if (p->candidate[c].other_bits) {
        ck_assert_int_eq(way->state, F8_MEASURE_LACKING);
        return;
    }
    ck_assert_int_eq(way->state, F8_MEASURE_TIMED);
    ck_assert_uint_eq(way->n_processes, 1);
    ck_assert_str_eq(way->process->process, m->set.process->id);
    ck_assert_uint_ge(way->runs, 3);
    ck_assert(way->least <= way->quartile[0] && way->quartile[0] <= way->median &&
              way->median <= way->quartile[1]);
    /* the tuner's seconds are of all that a step computes: one division and one product, each off
     * by at most a half unit in the last place */
    ck_assert_double_le(fabs(way->least * p->count - p->candidate[c].seconds),
                        3e-16 * p->candidate[c].seconds);
    ck_assert_int_ne(way->same_bits, F8_MEASURE_UNKNOWN);
    if (!p->gemm)
        ck_assert_int_eq(way->same_bits, F8_MEASURE_YES);
}

START_TEST(a_step)
{
    measured m = measure(&(fp8c_tune_options){0});
    size_t ways = 0, gemms = 0, rows = 0, attention = 0, other_algorithms = 0, several = 0;
    ck_assert_uint_eq(m.set.n_processes, 1);
    ck_assert_str_eq(m.set.process->id, m.t->process);
    ck_assert(m.set.process->before.flops_f32 > 0 && m.set.process->after.bytes > 0);
    ck_assert_str_eq(m.set.about.command, "fp8c tune x.f8");
    ck_assert_str_eq(m.set.about.commit, "abc");
    for (size_t i = 0; i < m.t->n; i++) {
        const tune_problem *p = &m.t->problem[i];
        for (int c = 0; c < p->n; c++, ways++) {
            check_way(&m, p, c);
            other_algorithms += !strncmp(p->candidate[c].text, "onednn-", 7);
        }
        several += p->count > 1;
        gemms += p->gemm;
        attention += is_attention(p);
        rows += !p->gemm && !is_attention(p);
    }
    ck_assert_uint_eq(m.set.n_measurements, ways);
    ck_assert_uint_ge(gemms, 6);
    ck_assert_uint_ge(rows, 6);
    ck_assert_uint_eq(attention, 2); /* forward and backward */
    ck_assert_uint_ge(other_algorithms, 1);
    ck_assert_uint_ge(several, 1);
    f8_measure_headline h;
    ck_assert(f8_measure_headline_at(&m.set, 0, &h));
    ck_assert_str_eq(h.cache, "step");
    ck_assert_int_eq(h.problems, (int64_t)m.t->n);
    ck_assert_int_eq(h.timed, h.problems);
    ck_assert(h.best <= h.model && h.best <= h.best_same_bits && h.best > 0);
    end(&m);
}
END_TEST

/* Whether the database has a choice for the problem. */
static bool is_stored(const measured *m, const tune_problem *p)
{
    f8_arena arena;
    f8_tuning_choice choice;
    bool found;
    f8_arena_init(&arena, NULL);
    ck_assert_int_eq(
        f8_tuning_chosen(m->t->db, f8_tune_key(m->t, p), p->text, &arena, &choice, &found, NULL),
        F8_OK);
    f8_arena_end(&arena);
    return found;
}

START_TEST(choices)
{
    measured m = measure(&(fp8c_tune_options){0});
    for (size_t i = 0; i < m.t->n; i++)
        ck_assert_int_eq(is_stored(&m, &m.t->problem[i]), !is_attention(&m.t->problem[i]));
    end(&m);
}
END_TEST

/* Whether another algorithm has the model's bits is what the CPU's GEMMs say of it; later it is
 * what the database says. */
START_TEST(bits)
{
    measured m = measure(&(fp8c_tune_options){.only = "head*"});
    const tune_problem *p = m.t->problem;
    int c = 1;
    bool same;
    while (c < p->n && p->candidate[c].desc.algorithm == p->candidate[0].desc.algorithm)
        c++;
    ck_assert_int_lt(c, p->n);
    char problem[F8_GEMM_PROBLEM_TEXT], candidate[F8_CANDIDATE_TEXT];
    snprintf(problem, sizeof problem, "%s", p->text);
    snprintf(candidate, sizeof candidate, "%s", p->candidate[c].text);
    ck_assert_int_eq(f8_gemm_same_bits(m.t->gemms, &p->candidate[0].desc, &p->candidate[c].desc,
                                       m.t->pool, &m.ctx->allocator, &same, NULL),
                     F8_OK);
    f8_measurement way = *way_of(&m, p, c);
    ck_assert_int_eq(way.same_bits, same ? F8_MEASURE_YES : F8_MEASURE_NO);
    way.same_bits = same ? F8_MEASURE_NO : F8_MEASURE_YES;
    char *facts = f8_measure_way_text(&way);
    const f8_timing row = {.candidate = candidate,
                           .seconds = way.least,
                           .median = way.median,
                           .runs = (int64_t)way.runs,
                           .facts = facts};
    ck_assert_int_eq(
        f8_tuning_put(m.t->db, f8_tune_key(m.t, p), p->text, p->name, &row, 1, NULL, NULL), F8_OK);
    free(facts);
    end(&m);
    m = measure(&(fp8c_tune_options){.only = "head*"});
    const f8_measurement *later = f8_measure_find(&m.set, problem, "step", candidate);
    ck_assert_int_eq(later->same_bits, same ? F8_MEASURE_NO : F8_MEASURE_YES);
    end(&m);
}
END_TEST

/* Two products forward and five backward, of all pairs of the 16 tokens: 2 * 2 * 16 * 16 * 16. It
 * is no choice. */
START_TEST(attention_alone)
{
    measured m = measure(&(fp8c_tune_options){.kernels = "att*"});
    const double forward = 2 * 2. * T * T * HEADS * SIZE;
    ck_assert_uint_eq(m.t->n, 2);
    double sum = 0;
    for (size_t i = 0; i < 2; i++) {
        const tune_problem *p = &m.t->problem[i];
        const f8_measurement *way = way_of(&m, p, 0);
        ck_assert(is_attention(p));
        ck_assert_int_eq(p->n, 1);
        ck_assert_int_eq(p->count, 1);
        ck_assert(way->problem.flops == forward || way->problem.flops == 2.5 * forward);
        sum += way->problem.flops;
        ck_assert_uint_eq(way->runs, 3);
        ck_assert(way->chosen && way->rate > 0 && way->limit > 0 && way->share > 0);
    }
    ck_assert(sum == 3.5 * forward);
    end(&m);
    m = measure(&(fp8c_tune_options){.kernels = "att*"}); /* from the database */
    ck_assert_int_eq(m.t->timed, 0);
    ck_assert_int_eq(m.t->kept, 2);
    ck_assert_uint_eq(way_of(&m, &m.t->problem[0], 0)->runs, 3);
    ck_assert_uint_eq(m.set.n_processes, 1);
    ck_assert_str_ne(m.set.process->id, m.t->process);
    ck_assert(m.set.process->before.flops_f32 > 0); /* kept in the database, too */
    end(&m);
}
END_TEST

/* The bytes of the phases of a step are those of the step. */
START_TEST(bytes_of_phases)
{
    measured m = measure(&(fp8c_tune_options){.seconds = 1e-9});
    const f8_plan *plan = &m.t->base->now->plan;
    int several = 0;
    for (uint32_t f = 0; f < plan->n_funcs; f++)
        for (uint32_t i = 0; i < plan->func[f].n_steps; i++) {
            const f8_step *s = &plan->func[f].step[i];
            int64_t bytes = 0;
            bool rows = s->kind == F8_STEP_KERNEL && s->does == F8_DOES_ROWS && s->n_phases > 1;
            for (uint32_t n = 0; n < s->n_phases; n++) {
                rows &= s->phase[n].choice > 0;
                bytes += s->phase[n].bytes;
            }
            if (!rows)
                continue;
            ck_assert_int_eq(bytes, s->bytes_read + s->bytes_written);
            several++;
        }
    ck_assert_int_gt(several, 2);
    end(&m);
}
END_TEST

/* ---- the time, and the database ---- */

START_TEST(out_of_time)
{
    measured m = measure(&(fp8c_tune_options){.seconds = 1e-9});
    ck_assert_uint_gt(m.set.n_measurements, 20);
    ck_assert_uint_eq(m.set.n_processes, 0);
    for (size_t i = 0; i < m.set.n_measurements; i++) {
        ck_assert_int_eq(m.set.measurement[i].state, F8_MEASURE_LATE);
        ck_assert_uint_eq(m.set.measurement[i].runs, 0);
    }
    char *table = f8_measure_step_table(&m.set, m.t);
    ck_assert_ptr_nonnull(strstr(table, "  out of time  "));
    free(table);
    end(&m);
}
END_TEST

/* What a call measures, a later one finds; with `again` a call has its own runs alone, and the next
 * one those of both. */
START_TEST(processes)
{
    const fp8c_tune_options some = {.only = "fc*"}, again = {.only = "fc*", .again = 1};
    measured a = measure(&some), b = measure(&again), both = measure(&some);
    ck_assert_uint_gt(a.set.n_measurements, 4);
    ck_assert_uint_eq(a.set.n_processes, 1);
    ck_assert_uint_eq(b.set.n_processes, 1);
    ck_assert_uint_eq(both.set.n_processes, 2);
    ck_assert_int_eq(both.t->timed, 0);
    for (size_t i = 0; i < both.set.n_measurements; i++) {
        const f8_measurement *m = &both.set.measurement[i];
        const f8_measurement *x = f8_measure_find(&a.set, m->problem.text, "step", m->candidate),
                             *y = f8_measure_find(&b.set, m->problem.text, "step", m->candidate);
        ck_assert(x && y);
        ck_assert_uint_eq(m->n_processes, 2);
        ck_assert_uint_eq(m->runs, x->runs + y->runs);
        ck_assert_int_eq(m->same_bits, x->same_bits); /* remembered, or found again */
    }
    end(&a);
    end(&b);
    end(&both);
}
END_TEST

/* Rows of the database that are none of ours: a candidate that gave other bits, and one that an
 * earlier version timed. */
START_TEST(rows_without_runs)
{
    measured m = measure(&(fp8c_tune_options){.only = "fc*", .seconds = 1e-9});
    const tune_problem *p = m.t->problem;
    while (p->n < 3)
        p++;
    char text[F8_GEMM_PROBLEM_TEXT], other[F8_CANDIDATE_TEXT], old[F8_CANDIDATE_TEXT];
    snprintf(text, sizeof text, "%s", p->text);
    snprintf(other, sizeof other, "%s", p->candidate[1].text);
    snprintf(old, sizeof old, "%s", p->candidate[2].text);
    const f8_timing rows[] = {{.candidate = other},
                              {.candidate = old, .seconds = 1, .median = 1, .runs = 3}};
    ck_assert_int_eq(
        f8_tuning_put(m.t->db, f8_tune_key(m.t, p), p->text, p->name, rows, 2, NULL, NULL), F8_OK);
    end(&m);
    m = measure(&(fp8c_tune_options){.only = "fc*"});
    const f8_measurement *x = f8_measure_find(&m.set, text, "step", other),
                         *y = f8_measure_find(&m.set, text, "step", old);
    ck_assert_int_eq(x->state, F8_MEASURE_LACKING);
    ck_assert_int_eq(x->same_bits, F8_MEASURE_NO);
    ck_assert_ptr_nonnull(strstr(x->reason, "changes bits"));
    ck_assert_int_eq(y->state, F8_MEASURE_LACKING);
    ck_assert_ptr_nonnull(strstr(y->reason, "kept no runs"));
    end(&m);
}
END_TEST

/* ---- failures ---- */

/* A message and a status, and nothing is left of the tuning. */
static fp8c_status try_measuring(fp8c_context *ctx)
{
    const fp8c_compile_options compile_options = recipe("current");
    const fp8c_tune_options o = {
        .struct_size = sizeof o, .compile = &compile_options, .runs = 1, .only = "fc*", .again = 1};
    fp8c_module *m;
    fp8c_status status = fp8c_module_parse(ctx, model, strlen(model), "tiny.f8", NULL, 0, &m);
    if (status != FP8C_OK)
        return status;
    f8_measure_set set = {0};
    fp8c_tuning *t = (fp8c_tuning *)m;
    f8_arena_init(&set.arena, &ctx->allocator);
    status = f8_measure_model(ctx, m, &o, "", "", &set, &t);
    ck_assert((status == FP8C_OK) == (t != NULL));
    ck_assert((status == FP8C_OK) == !*fp8c_context_message(ctx));
    f8_arena_end(&set.arena);
    fp8c_tuning_destroy(t);
    fp8c_module_destroy(m);
    return status;
}

START_TEST(no_memory)
{
    long all = 0;
    int failed = 0;
    for (long at = 0; at <= all; at += 1 + at / 4) {
        counting c = {.fail_at = at ? at : LONG_MAX};
        const fp8c_context_options o = counted_options(&c);
        fp8c_context *ctx;
        if (fp8c_context_create(&o, &ctx) == FP8C_OK) {
            const fp8c_status status = try_measuring(ctx);
            ck_assert_msg(status == FP8C_OK || status == FP8C_ERR_MEMORY, "%ld: %d: %s", at, status,
                          fp8c_context_message(ctx));
            failed += status != FP8C_OK;
            fp8c_context_destroy(ctx);
        }
        ck_assert_msg(c.live == 0, "%ld: %ld are left", at, c.live);
        all = at ? all : c.n;
    }
    ck_assert_int_gt(failed, 10);
}
END_TEST

static int asked;

static int stop(void *user, const fp8c_progress *p)
{
    (void)user;
    return !strcmp(p->phase, "tune") && ++asked > 5;
}

START_TEST(cancelled)
{
    const fp8c_context_options o = {.struct_size = sizeof o, .progress = stop};
    fp8c_context *ctx;
    asked = 0;
    ck_assert_int_eq(fp8c_context_create(&o, &ctx), FP8C_OK);
    ck_assert_int_eq(try_measuring(ctx), FP8C_ERR_CANCELLED);
    ck_assert_int_gt(asked, 5);
    fp8c_context_destroy(ctx);
}
END_TEST

/* ---- the table ---- */

/* The longest problem comes first; 20 lines, and those with another choice. */
START_TEST(table)
{
    measured m = measure(&(fp8c_tune_options){0});
    const f8_measurement *longest = NULL;
    size_t lines = 0, shown = 0, others = 0;
    char want[200];
    for (size_t i = 0; i < m.set.n_measurements; i++) {
        const f8_measurement *x = &m.set.measurement[i];
        others += x->chosen && x->kind == F8_MEASURE_CANDIDATE;
        if (x->kind == F8_MEASURE_MODEL &&
            (!longest || (double)x->problem.count * x->median >
                             (double)longest->problem.count * longest->median))
            longest = x;
    }
    char *text = f8_measure_step_table(&m.set, m.t);
    snprintf(want, sizeof want, "%s\n", longest->problem.text);
    const char *second = strchr(text, '\n') + 1, *third = strchr(second, '\n') + 1;
    ck_assert_msg((size_t)(third - second) > strlen(want) &&
                      !strncmp(third - strlen(want), want, strlen(want)),
                  "%s", text);
    for (const char *at = second; *at && *at != '\n'; at = strchr(at, '\n') + 1, lines++)
        shown += strncmp(at, "... and ", 8) != 0;
    ck_assert_uint_gt(m.t->n, 20);
    ck_assert_uint_ge(shown, 20);
    ck_assert_uint_le(shown, 20 + others);
    ck_assert_uint_eq(lines, shown + (shown < m.t->n));
    ck_assert_ptr_nonnull(strstr(text, " problems timed, 0 lacking, 0 out of time\n"));
    free(text);
    end(&m);
}
END_TEST

/* ---- CUDA ---- */

/* The emulator's times mean nothing. Other answers of cuBLASLt have unknown bits. */
START_TEST(on_cuda)
{
    measured m = measure_on(attentive, "cuda", &(fp8c_tune_options){.runs = 1});
    size_t unknown = 0, attention = 0;
    for (size_t i = 0; i < m.t->n; i++) {
        attention += is_attention(&m.t->problem[i]);
        for (int c = 0; c < m.t->problem[i].n; c++) {
            const tune_problem *p = &m.t->problem[i];
            const f8_measurement *way = way_of(&m, p, c);
            check_problem(&way->problem, p);
            ck_assert_int_eq(way->state, F8_MEASURE_TIMED);
            ck_assert_int_eq(way->same_bits, p->gemm && c ? F8_MEASURE_UNKNOWN : F8_MEASURE_YES);
            unknown += p->gemm && c;
        }
    }
    ck_assert_uint_eq(attention, 2);
    ck_assert_uint_gt(unknown, 2);
    ck_assert_uint_gt(m.t->n, 8);
    end(&m);
}
END_TEST

static void setup_cuda(void)
{
    f8_test_gpu_emulated();
    setup();
}

Suite *f8_suite(void)
{
    Suite *s = suite_create("model");
    TCase *cpu = tcase_create("cpu"), *gpu = tcase_create("gpu");
    tcase_set_timeout(cpu, TIMEOUT);
    tcase_add_checked_fixture(cpu, setup, f8_cli_teardown);
    tcase_add_test(cpu, a_step);
    tcase_add_test(cpu, choices);
    tcase_add_test(cpu, bits);
    tcase_add_test(cpu, attention_alone);
    tcase_add_test(cpu, bytes_of_phases);
    tcase_add_test(cpu, out_of_time);
    tcase_add_test(cpu, processes);
    tcase_add_test(cpu, rows_without_runs);
    tcase_add_test(cpu, no_memory);
    tcase_add_test(cpu, cancelled);
    tcase_add_test(cpu, table);
    suite_add_tcase(s, cpu);
    tcase_set_timeout(gpu, TIMEOUT);
    tcase_add_checked_fixture(gpu, setup_cuda, f8_cli_teardown);
    tcase_add_test(gpu, on_cuda);
    suite_add_tcase(s, gpu);
    return s;
}
