/* Lifetimes of objects. A context may be destroyed before the objects made with it, by any thread;
 * what those still offer is tested. Every destroy accepts NULL. Memory is counted: all of it is
 * freed, once. */
#include <unistd.h>

#include "frontend/fp8c_diagnose.h"
#include "frontend/fp8c_machine.h"
#include "frontend/fp8c_tune.h"
#include "tests/shared/api/api.h"
#include "tests/shared/suite.h"

enum { N_THREADS = 4 };

static fp8c_context *counted(counting *c)
{
    const fp8c_context_options o = {.struct_size = sizeof o,
                                    .alloc = count_alloc,
                                    .free = count_free,
                                    .allocator_user = c,
                                    .cache_dir = ""};
    fp8c_context *ctx;
    ck_assert_int_eq(fp8c_context_create(&o, &ctx), FP8C_OK);
    return ctx;
}

START_TEST(nothing_to_destroy)
{
    fp8c_program_destroy(NULL);
    fp8c_module_destroy(NULL);
    fp8c_calibration_destroy(NULL);
    fp8c_doctor_destroy(NULL);
    fp8c_tuning_destroy(NULL);
    fp8c_context_destroy(NULL);
}
END_TEST

/* A program whose context and module are gone trains on, with the same bits, and says what fails.
 */
START_TEST(context_first)
{
    counting mine = {0};
    const fp8c_compile_options o = recipe("delayed");
    fp8c_context *ctx = counted(&mine);
    fp8c_module *m = parse(ctx, model), *late;
    fp8c_program *p = compile(ctx, m, &o), *other = compile(ctx, m, &o), *never;
    ck_assert_int_eq(fp8c_program_initialize(other, 1), FP8C_OK);
    const float first = train_step(other), second = train_step(other);
    fp8c_program_destroy(other);
    fp8c_context_destroy(ctx);
    ck_assert_int_eq(fp8c_program_initialize(p, 1), FP8C_OK);
    const float loss = train_step(p);
    ck_assert_mem_eq(&loss, &first, sizeof loss);

    ck_assert_int_eq(fp8c_program_run(p, 1000), FP8C_ERR_INPUT);
    said(ctx, "no function 1000");
    ck_assert_int_eq(fp8c_module_parse(ctx, model, strlen(model), "late.f8", NULL, 0, &late),
                     FP8C_ERR_INPUT);
    ck_assert_ptr_null(late);
    said(ctx, "the context was destroyed: nothing new can be made with it");
    ck_assert_int_eq(fp8c_module_create(ctx, "late", &late), FP8C_ERR_INPUT);
    ck_assert_int_eq(fp8c_compile(m, &o, &never), FP8C_ERR_INPUT);
    ck_assert_ptr_null(never);
    fp8c_context_destroy(ctx); /* a second time, while it is there: nothing more is given up */
    fp8c_module_destroy(m);
    const float next = train_step(p);
    ck_assert_mem_eq(&next, &second, sizeof next);
    ck_assert_int_gt(mine.live, 0);
    fp8c_program_destroy(p);
    ck_assert_msg(mine.live == 0 && mine.bytes == 0, "%ld allocations are left", mine.live);
}
END_TEST

/* ---- each object alone is enough to keep the context, and gives it back ---- */

typedef struct objects {
    fp8c_module *module;
    fp8c_program *program;
    fp8c_calibration *calibration;
    fp8c_doctor *doctor;
    fp8c_tuning *tuning;
} objects;

static void one_module(fp8c_context *ctx, objects *o)
{
    o->module = parse(ctx, model);
}

static void one_program(fp8c_context *ctx, objects *o)
{
    const fp8c_compile_options how = recipe("bf16");
    fp8c_module *m = parse(ctx, model);
    o->program = compile(ctx, m, &how);
    fp8c_module_destroy(m);
}

static void one_opened(fp8c_context *ctx, objects *o)
{
    char file[] = "/tmp/fp8c.lifetime.XXXXXX";
    const int fd = mkstemp(file);
    ck_assert_int_ge(fd, 0);
    close(fd);
    const fp8c_compile_options how = recipe("bf16");
    fp8c_module *m = parse(ctx, model);
    ck_assert_msg(fp8c_compile_file(m, &how, 1, file) == FP8C_OK, "%s", fp8c_context_message(ctx));
    fp8c_module_destroy(m);
    ck_assert_msg(fp8c_program_open(ctx, file, NULL, &o->program) == FP8C_OK, "%s",
                  fp8c_context_message(ctx));
    unlink(file);
}

static void one_calibration(fp8c_context *ctx, objects *o)
{
    const fp8c_compile_options how = recipe("bf16");
    fp8c_module *m = parse(ctx, model);
    ck_assert_int_eq(fp8c_calibration_create(m, &how, 0, &o->calibration), FP8C_OK);
    fp8c_module_destroy(m);
}

static void one_doctor(fp8c_context *ctx, objects *o)
{
    ck_assert_int_eq(fp8c_doctor_create(ctx, NULL, &o->doctor), FP8C_OK);
}

static void one_tuning(fp8c_context *ctx, objects *o)
{
    char folder[] = "/tmp/fp8c.lifetime.XXXXXX", file[64];
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(file, sizeof file, "%s/tuning.db", folder);
    const fp8c_tune_options how = {
        .struct_size = sizeof how, .database = file, .gemm = "64x64x64:f32"};
    ck_assert_msg(fp8c_tune(ctx, NULL, &how, &o->tuning) == FP8C_OK, "%s",
                  fp8c_context_message(ctx));
    char command[96];
    snprintf(command, sizeof command, "rm -r %s", folder);
    ck_assert_int_eq(system(command), 0);
}

START_TEST(each_alone)
{
    static void (*const make[])(fp8c_context *, objects *) = {
        one_module, one_program, one_opened, one_calibration, one_doctor, one_tuning};
    counting mine = {0};
    objects o = {0};
    fp8c_context *ctx = counted(&mine);
    make[_i](ctx, &o);
    fp8c_context_destroy(ctx);
    ck_assert_int_gt(mine.live, 0);
    ck_assert_str_eq(fp8c_context_message(ctx), "");
    fp8c_module_destroy(o.module);
    fp8c_program_destroy(o.program);
    fp8c_calibration_destroy(o.calibration);
    fp8c_doctor_destroy(o.doctor);
    fp8c_tuning_destroy(o.tuning);
    ck_assert_msg(mine.live == 0 && mine.bytes == 0, "%ld allocations are left", mine.live);
}
END_TEST

/* ---- threads ---- */

typedef struct last {
    fp8c_program *program;
    pthread_barrier_t *all;
    float loss;
} last;

/* No Check assertions: they belong to the test's own thread. */
static void *train_and_destroy(void *user)
{
    last *l = user;
    pthread_barrier_wait(l->all);
    const int step = fp8c_program_function(l->program, "micro_step");
    if (fp8c_program_run(l->program, step) == FP8C_OK)
        l->loss = *(float *)fp8c_program_buffer(l->program, step, FP8C_OUTPUT, 0);
    fp8c_program_destroy(l->program);
    return NULL;
}

/* Its owner and every program let go of a context at once. */
START_TEST(all_at_once)
{
    counting mine = {0};
    pthread_barrier_t all;
    pthread_t thread[N_THREADS];
    last l[N_THREADS];
    fp8c_context *ctx = counted(&mine);
    fp8c_module *m = parse(ctx, model);
    ck_assert_int_eq(pthread_barrier_init(&all, NULL, N_THREADS + 1), 0);
    for (int i = 0; i < N_THREADS; i++) {
        const fp8c_compile_options o = recipe("bf16");
        l[i] = (last){compile(ctx, m, &o), &all, -1};
        ck_assert_int_eq(fp8c_program_initialize(l[i].program, 1), FP8C_OK);
        fill_batch(l[i].program, fp8c_program_function(l[i].program, "micro_step"));
        ck_assert_int_eq(pthread_create(&thread[i], NULL, train_and_destroy, &l[i]), 0);
    }
    fp8c_module_destroy(m);
    pthread_barrier_wait(&all);
    fp8c_context_destroy(ctx);
    for (int i = 0; i < N_THREADS; i++)
        pthread_join(thread[i], NULL);
    pthread_barrier_destroy(&all);
    for (int i = 0; i < N_THREADS; i++)
        ck_assert_mem_eq(&l[i].loss, &l[0].loss, sizeof l[0].loss);
    ck_assert(l[0].loss > 0 && mine.live == 0 && mine.bytes == 0);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("lifetime");
    TCase *t = tcase_create("lifetime");
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_test(t, nothing_to_destroy);
    tcase_add_test(t, context_first);
    tcase_add_loop_test(t, each_alone, 0, 6);
    suite_add_tcase(s, t);
    TCase *threads = tcase_create("threads"); /* a case of its own: TSan runs it alone */
    tcase_set_timeout(threads, TIMEOUT);
    tcase_add_test(threads, all_at_once);
    suite_add_tcase(s, threads);
    return s;
}
