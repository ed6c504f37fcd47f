/* A process that measures GEMMs, on the CPU: every format, scaling, epilogue and layout on operands
 * of each distribution; what the database has already, what is measured again, and what a compile
 * takes of it. */
#include <math.h>
#include <stdlib.h>

#include "frontend/fp8c_diagnose.h"
#include "frontend/measure/list.h"
#include "runtime/tune/tuning_db.h"
#include "tests/shared/api/api.h"
#include "tests/shared/api/cli.h"
#include "tests/shared/suite.h"

enum { RUNS = 3 };

static fp8c_context *ctx;
static fp8c_compile_options compile_options;

static void setup(void)
{
    f8_cli_setup();
    setenv("FP8C_TUNING", f8_cli_temp("tuning.db"), 1);
    setenv("FP8C_CACHE_DIR", f8_cli_temp("cache"), 1);
    ctx = new_context();
    compile_options = (fp8c_compile_options){.struct_size = sizeof compile_options, .threads = 1};
}

static void teardown(void)
{
    fp8c_context_destroy(ctx);
    f8_cli_forget(f8_cli_temp("cache"));
    f8_cli_teardown();
}

static f8_measure_how defaults(void)
{
    return (f8_measure_how){.compile = &compile_options,
                            .command = "the command",
                            .commit = "the commit",
                            .inputs = F8_INPUTS_NORMAL,
                            .seed = 7,
                            .cold = true,
                            .warm = true,
                            .runs = RUNS,
                            .ordinal = 1,
                            .processes = 1};
}

/* Measures the GEMMs of the texts, up to NULL. The caller ends the set's arena. */
static f8_measure_set measure(const f8_measure_how *how, const char *const *spec)
{
    f8_measure_set set = {0};
    f8_tune_gemms list;
    size_t n = 0;
    while (spec[n])
        n++;
    const f8_tune_sources from = {.spec = spec, .n_specs = n};
    ck_assert_msg(f8_tune_gather(ctx, &from, &list) == FP8C_OK, "%s", fp8c_context_message(ctx));
    f8_arena_init(&set.arena, NULL);
    ck_assert_msg(f8_measure_list(ctx, &list, how, &set) == FP8C_OK, "%s",
                  fp8c_context_message(ctx));
    f8_arena_end(&list.arena);
    return set;
}
#define MEASURE(how, ...) measure(how, (const char *const[]){__VA_ARGS__, NULL})

static const f8_measurement *model_of(const f8_measure_set *set, const char *problem,
                                      const char *cache)
{
    const f8_measurement *m = f8_measure_find(set, problem, cache, "model");
    ck_assert_msg(m != NULL, "%s is missing", problem);
    return m;
}

/* ---- what is known of each ---- */

/* A product of so many elements is within its bound, which is derived in operands.c; runs took some
 * time, and less than the test's. */
static void check(const f8_measure_set *set, const f8_measurement *m)
{
    const char *text = m->problem.text, *way = m->candidate;
    ck_assert_msg(m->state == F8_MEASURE_TIMED, "%s, %s: %s", text, way, m->reason);
    ck_assert_msg(m->error >= 0 && m->error <= 1, "%s, %s: error %g", text, way, m->error);
    ck_assert_msg(m->same_bits == F8_MEASURE_YES ||
                      (m->same_bits == F8_MEASURE_NO && m->kind == F8_MEASURE_CANDIDATE),
                  "%s, %s: bits %d", text, way, (int)m->same_bits);
    ck_assert_msg(m->compile_seconds > 0 && m->compile_seconds < 60, "%s, %s", text, way);
    ck_assert_uint_eq(m->n_processes, 1);
    ck_assert_ptr_nonnull(f8_measure_find_process(set, m->process->process));
    for (size_t i = 0; i < m->process->n; i++)
        ck_assert_msg(m->process->seconds[i] >= 0 && m->process->seconds[i] < 60, "%s, %s: %g s",
                      text, way, m->process->seconds[i]);
    ck_assert(*m->operands);
}

/* One way of each problem is chosen under the state of the cache that chooses. */
static void check_chosen(const f8_measure_set *set, const char *cache)
{
    for (size_t i = 0; i < set->n_measurements; i++) {
        const f8_measurement *m = &set->measurement[i];
        size_t chosen = 0;
        for (size_t k = 0; k < set->n_measurements; k++)
            chosen += set->measurement[k].chosen &&
                      !strcmp(set->measurement[k].problem.text, m->problem.text) &&
                      !strcmp(set->measurement[k].cache, cache);
        ck_assert_uint_eq(chosen, 1);
        ck_assert(!m->chosen || !strcmp(m->cache, cache));
    }
}

static const char *const everything[] = {"1x1x1:f32,bf16,f8e4m3,f8e5m2,f8e5m2xf8e4m3,f8e4m3xf8e5m2",
                                         "1x768x768:f8e4m3",
                                         "17x33x65:f32,bf16,f8e4m3:f32,bf16,bias,accumulate",
                                         "17x33x65:f8e4m3:row,mx:fprop,dgrad,wgrad",
                                         "17x128x256:f8e4m3:tensor,row,block,mx",
                                         "17x33x65:bf16,f8e5m2xf8e4m3:nn,nt,tn,tt",
                                         "128x256x128:f8e4m3:block:fprop,dgrad,wgrad:bf16",
                                         NULL};

/* Of the other distributions. */
static const char *const some[] = {"17x33x65:f32,bf16,f8e4m3", "1x768x768:f8e4m3:row,mx", NULL};

START_TEST(all_ways)
{
    f8_measure_how how = defaults();
    how.inputs = (f8_inputs)_i;
    f8_measure_set set = measure(&how, _i == F8_INPUTS_NORMAL ? everything : some);
    ck_assert_uint_eq(set.n_processes, 1);
    ck_assert_str_eq(set.about.inputs, f8_inputs_name((f8_inputs)_i));
    ck_assert_str_eq(set.about.command, "the command");
    ck_assert_str_eq(set.about.commit, "the commit");
    ck_assert_int_eq(set.about.threads, 1);
    for (size_t i = 0; i < set.n_measurements; i++)
        check(&set, &set.measurement[i]);
    check_chosen(&set, "cold");
    for (size_t i = 0; i < set.n_measurements; i++) { /* the model's way in both */
        model_of(&set, set.measurement[i].problem.text, "warm");
        model_of(&set, set.measurement[i].problem.text, "cold");
    }
    ck_assert(set.process->before.bytes > 0 && set.process->after.bytes > 0);
    ck_assert(set.process->before.flops_f32 > 0 && set.process->before.flops_bf16 > 0);
    f8_arena_end(&set.arena);
}
END_TEST

/* Another level of the CPU has ways of its own. */
START_TEST(other_level)
{
    f8_measure_how how = defaults();
    compile_options.target = "cpu:x86-64-v3";
    how.warm = false;
    f8_measure_set set = MEASURE(&how, "17x33x65:f32,bf16,f8e4m3:f32,bf16", "1x768x768:f8e4m3");
    for (size_t i = 0; i < set.n_measurements; i++)
        check(&set, &set.measurement[i]);
    ck_assert_str_eq(set.about.target, "cpu:x86-64-v3");
    f8_arena_end(&set.arena);
}
END_TEST

/* Cold runs multiply several sets of operands in turns; a model's way has as many as are asked for,
 * or a few more. */
START_TEST(how_many_runs)
{
    f8_measure_how how = defaults();
    how.runs = 20;
    f8_measure_set set = MEASURE(&how, "17x33x65:f32");
    ck_assert_uint_eq(model_of(&set, "17x33x65:f32", "warm")->process->n, 20);
    const size_t n = model_of(&set, "17x33x65:f32", "cold")->process->n;
    ck_assert(n >= 20 && n <= 20 + 8);
    f8_arena_end(&set.arena);
}
END_TEST

START_TEST(same_bits_only)
{
    f8_measure_how how = defaults();
    how.same_bits = true;
    f8_measure_set set = MEASURE(&how, "17x33x65:f8e4m3", "64x64x64:f32,bf16");
    for (size_t i = 0; i < set.n_measurements; i++)
        ck_assert_int_eq(set.measurement[i].same_bits, F8_MEASURE_YES);
    f8_arena_end(&set.arena);
}
END_TEST

/* ---- what came before ---- */

static bool has_same_runs(const f8_measurement *a, const f8_measurement *b)
{
    bool same = a->n_processes == b->n_processes;
    for (size_t i = 0; same && i < a->n_processes; i++)
        same = !strcmp(a->process[i].process, b->process[i].process) &&
               a->process[i].n == b->process[i].n &&
               !memcmp(a->process[i].seconds, b->process[i].seconds,
                       a->process[i].n * sizeof *a->process[i].seconds);
    return same;
}

/* Whether both have the same ways with the same runs and facts. */
static bool is_same(const f8_measure_set *a, const f8_measure_set *b)
{
    bool same = a->n_measurements == b->n_measurements;
    for (size_t i = 0; same && i < a->n_measurements; i++) {
        const f8_measurement *x = &a->measurement[i],
                             *y = f8_measure_find(b, x->problem.text, x->cache, x->candidate);
        same = y && has_same_runs(x, y) && x->same_bits == y->same_bits && x->error == y->error &&
               x->compile_seconds == y->compile_seconds && x->chosen == y->chosen &&
               !strcmp(x->unit, y->unit) && !strcmp(x->operands, y->operands);
    }
    return same;
}

START_TEST(known_runs)
{
    f8_measure_how how = defaults();
    f8_measure_set first = MEASURE(&how, "17x33x65:f8e4m3,bf16"),
                   second = MEASURE(&how, "17x33x65:f8e4m3,bf16");
    ck_assert_uint_eq(second.n_processes, 1); /* the first one; the second one measured nothing */
    ck_assert_str_eq(second.process->id, first.process->id);
    ck_assert_double_eq(second.process->after.bytes, first.process->after.bytes);
    ck_assert(is_same(&first, &second));
    /* as the second process: all again, beside the runs of the first, but for what is a tenth
     * slower than the model's way */
    how.ordinal = how.processes = 2;
    f8_measure_set third = MEASURE(&how, "17x33x65:f8e4m3,bf16");
    ck_assert_uint_eq(third.n_processes, 2);
    for (size_t i = 0; i < third.n_measurements; i++) {
        const f8_measurement *x = &third.measurement[i],
                             *old =
                                 f8_measure_find(&first, x->problem.text, x->cache, x->candidate);
        const f8_measurement *model = model_of(&third, x->problem.text, x->cache);
        ck_assert_ptr_nonnull(old);
        ck_assert(x->n_processes == 2 || (x->n_processes == 1 && x->least > 1.1 * model->least));
        ck_assert_str_eq(x->process[0].process, first.process->id);
        ck_assert_uint_eq(x->process[0].n, old->process->n);
    }
    /* other inputs are others */
    how.ordinal = how.processes = 1;
    how.inputs = F8_INPUTS_INTEGERS;
    f8_measure_set fourth = MEASURE(&how, "17x33x65:f8e4m3");
    ck_assert_uint_eq(fourth.n_processes, 1);
    ck_assert_str_ne(fourth.process->id, first.process->id);
    /* and so is what the time has passed by */
    how.inputs = F8_INPUTS_NORMAL;
    how.since = INT64_MAX;
    f8_measure_set fifth = MEASURE(&how, "17x33x65:f8e4m3");
    ck_assert_uint_eq(fifth.n_processes, 1);
    ck_assert_str_ne(fifth.process->id, first.process->id);
    for (size_t i = 0; i < fifth.n_measurements; i++)
        ck_assert_uint_eq(fifth.measurement[i].n_processes, 1);
    f8_arena_end(&first.arena);
    f8_arena_end(&second.arena);
    f8_arena_end(&third.arena);
    f8_arena_end(&fourth.arena);
    f8_arena_end(&fifth.arena);
}
END_TEST

/* Runs from before `since` don't say that a candidate is slow. The model's way has an old one here
 * that no candidate reaches. */
START_TEST(old_runs)
{
    f8_measure_how how = defaults();
    f8_diag diag = {0};
    f8_db db;
    sqlite3_stmt *statement;
    bool row;
    f8_measure_set first = MEASURE(&how, "17x33x65:f8e4m3");
    ck_assert_int_eq(f8_db_open(&db, f8_cli_temp("tuning.db"), F8_DB_WRITE, 5000, &diag), F8_OK);
    ck_assert_int_eq(f8_db_prepare(&db,
                                   "UPDATE timing SET seconds=1e-12, samples=json_insert(samples,"
                                   "'$[#]',json('{\"process\":\"old\",\"at\":1,\"seconds\":"
                                   "[1e-12]}')) WHERE candidate='model'",
                                   0, NULL, &statement, &diag),
                     F8_OK);
    ck_assert_int_eq(f8_db_step(&db, statement, &row, &diag), F8_OK);
    db.api.sqlite3_finalize(statement);
    f8_db_close(&db);
    how.ordinal = how.processes = 2;
    how.since = 2;
    f8_measure_set second = MEASURE(&how, "17x33x65:f8e4m3");
    for (size_t i = 0; i < first.n_measurements; i++) {
        const f8_measurement *x = &first.measurement[i];
        const f8_measurement *model = model_of(&first, x->problem.text, x->cache),
                             *again =
                                 f8_measure_find(&second, x->problem.text, x->cache, x->candidate);
        ck_assert_ptr_nonnull(again);
        ck_assert_msg(again->n_processes == (x->least > 1.1 * model->least ? 1 : 2),
                      "%s: %zu processes", x->candidate, again->n_processes);
    }
    f8_arena_end(&first.arena);
    f8_arena_end(&second.arena);
}
END_TEST

/* The database says what process it was. */
START_TEST(kept_process)
{
    f8_measure_how how = defaults();
    f8_allocator allocator = f8_default_allocator();
    f8_diag diag = {0};
    f8_tuning *db;
    f8_tuning_process p;
    bool found;
    f8_measure_set set = MEASURE(&how, "1x1x1:f32"), again = {0};
    f8_arena_init(&again.arena, NULL);
    ck_assert_int_eq(f8_tuning_open(f8_cli_temp("tuning.db"), &allocator, &db, &diag), F8_OK);
    ck_assert_int_eq(f8_tuning_get_process(db, set.process->id, &set.arena, &p, &found, &diag),
                     F8_OK);
    ck_assert(found);
    ck_assert_str_eq(p.device, set.about.device);
    ck_assert_int_eq(f8_measure_read_process(&again, p.facts, &diag), F8_OK);
    ck_assert_str_eq(again.process->id, set.process->id);
    ck_assert_double_eq(again.process->before.bytes, set.process->before.bytes);
    f8_tuning_close(db);
    f8_arena_end(&set.arena);
    f8_arena_end(&again.arena);
}
END_TEST

/* A compile takes what was chosen. */
START_TEST(chosen)
{
    static const char *const gemms[] = {"17x33x65:f8e4m3", "64x96x160:bf16", "48x48x48:f32"};
    f8_measure_how how = defaults();
    f8_measure_set set = MEASURE(&how, gemms[0], gemms[1], gemms[2]);
    for (int i = 0; i < 3; i++) {
        f8_tune_gemms list = {0};
        f8_diag diag = {0};
        fp8c_module *m;
        fp8c_choice c;
        const char *expected = NULL;
        f8_arena_init(&list.arena, NULL);
        ck_assert_int_eq(f8_tune_gemms_parse(&list, gemms[i], &diag), F8_OK);
        ck_assert_int_eq(f8_tune_gemm_module(ctx, list.gemm, 1, &m), FP8C_OK);
        fp8c_compile_options o = compile_options;
        o.recipe = "f32";
        o.inference = 1;
        fp8c_program *p = compile(ctx, m, &o);
        for (size_t k = 0; k < set.n_measurements; k++)
            if (set.measurement[k].chosen && !strcmp(set.measurement[k].problem.text, gemms[i]))
                expected = set.measurement[k].candidate;
        ck_assert_ptr_nonnull(expected);
        int k = 0;
        while (fp8c_program_choice(p, k, &c) == FP8C_OK && !c.gemm)
            k++;
        ck_assert(c.gemm && c.tuned);
        ck_assert_str_eq(c.candidate, expected);
        fp8c_program_destroy(p);
        fp8c_module_destroy(m);
        f8_arena_end(&list.arena);
    }
    f8_arena_end(&set.arena);
}
END_TEST

/* ---- what was not measured ---- */

START_TEST(lacking)
{
    f8_measure_how how = defaults();
    f8_measure_set set = MEASURE(&how, "2000000000x2000000000x2:f32", "16x16x16:f32");
    const f8_measurement *m = model_of(&set, "2000000000x2000000000x2:f32", "cold");
    ck_assert_int_eq(m->state, F8_MEASURE_LACKING);
    ck_assert_ptr_nonnull(strstr(m->reason, "needs 14901161223.6 GiB for its operands"));
    ck_assert_uint_eq(m->n_processes, 0);
    ck_assert(isnan(m->error) && isnan(m->median) && !m->chosen);
    ck_assert_int_eq(model_of(&set, "16x16x16:f32", "cold")->state, F8_MEASURE_TIMED);
    f8_arena_end(&set.arena);
}
END_TEST

START_TEST(late)
{
    f8_measure_how how = defaults();
    how.seconds = 1e-9;
    f8_measure_set set = MEASURE(&how, "16x16x16:f32", "16x16x32:f32");
    ck_assert_uint_eq(set.n_measurements, 4);
    for (size_t i = 0; i < set.n_measurements; i++) {
        ck_assert_int_eq(set.measurement[i].state, F8_MEASURE_LATE);
        ck_assert_uint_eq(set.measurement[i].n_processes, 0);
    }
    ck_assert_uint_eq(set.n_processes, 0); /* it measured nothing */
    ck_assert(*set.about.device);
    f8_arena_end(&set.arena);
}
END_TEST

/* A failure's message is not lost at the end. */
START_TEST(failures)
{
    f8_measure_how how = defaults();
    f8_tune_gemms list;
    const char *const spec = "16x16x16:f32";
    const f8_tune_sources from = {.spec = &spec, .n_specs = 1};
    f8_measure_set set = {0};
    f8_arena_init(&set.arena, NULL);
    ck_assert_int_eq(f8_tune_gather(ctx, &from, &list), FP8C_OK);
    how.runs = F8_MEASURE_RUNS + 1;
    ck_assert_int_eq(f8_measure_list(ctx, &list, &how, &set), FP8C_ERR_INPUT);
    ck_assert_ptr_nonnull(strstr(fp8c_context_message(ctx), "runs: 65 is not from 0 to 64"));
    how.runs = RUNS;
    how.database = f8_cli_write("bad.db", "this is none", 12);
    ck_assert_int_eq(f8_measure_list(ctx, &list, &how, &set), FP8C_ERR_IO);
    ck_assert_ptr_nonnull(strstr(fp8c_context_message(ctx), "this is no tuning database"));
    f8_arena_end(&set.arena);
    f8_arena_end(&list.arena);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("session");
    TCase *t = tcase_create("session");
    tcase_set_timeout(t, 300);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_loop_test(t, all_ways, 0, F8_N_INPUTS);
    tcase_add_test(t, other_level);
    tcase_add_test(t, how_many_runs);
    tcase_add_test(t, same_bits_only);
    tcase_add_test(t, known_runs);
    tcase_add_test(t, old_runs);
    tcase_add_test(t, kept_process);
    tcase_add_test(t, chosen);
    tcase_add_test(t, lacking);
    tcase_add_test(t, late);
    tcase_add_test(t, failures);
    suite_add_tcase(s, t);
    return s;
}
