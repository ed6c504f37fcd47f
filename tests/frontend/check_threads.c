/* What fp8c.h promises about threads: many threads on one context, each with its own program; one
 * module compiled by several threads at once; objects destroyed by any thread in any legal order.
 * check_api.c tests several contexts. It also runs under ThreadSanitizer (tests/README.md). */
#include "tests/shared/api/api.h"
#include "tests/shared/cuda/gpu.h"
#include "tests/shared/suite.h"

enum { AT_ONCE = 4, STEPS = 3 };

typedef struct worker {
    fp8c_context *ctx;         /* NULL: one of its own */
    const fp8c_module *module; /* NULL: parsed here */
    const char *recipe, *target;
    int32_t threads;
    float loss[STEPS];
    bool ok;
    char why[512];
    fp8c_program *program; /* left alive, when `keep` */
    bool keep;
} worker;

/* No Check assertions in here: they belong to the test's own thread. */
static bool run(worker *w, fp8c_context *ctx, const fp8c_module *m)
{
    fp8c_compile_options o = recipe(w->recipe);
    o.threads = w->threads;
    o.target = w->target;
    fp8c_program *p = NULL;
    bool ok = fp8c_compile(m, &o, &p) == FP8C_OK && fp8c_program_initialize(p, 3) == FP8C_OK;
    const int step = ok ? fp8c_program_function(p, "micro_step") : 0;
    for (int i = 0; ok && i < STEPS; i++) {
        for (int k = 0; k < 2; k++) {
            int32_t *ids = fp8c_program_buffer(p, step, FP8C_INPUT, k);
            for (int n = 0; n < ROWS; n++)
                ids[n] = (3 * n + 5 * k) % V;
        }
        ok = fp8c_program_run(p, step) == FP8C_OK &&
             fp8c_program_run(p, fp8c_program_function(p, "update")) == FP8C_OK;
        w->loss[i] = *(float *)fp8c_program_buffer(p, step, FP8C_OUTPUT, 0);
    }
    if (!ok)
        snprintf(w->why, sizeof w->why, "%s", fp8c_context_message(ctx));
    if (w->keep)
        w->program = p;
    else
        fp8c_program_destroy(p);
    return ok;
}

static void *work(void *user)
{
    worker *w = user;
    fp8c_context *ctx = w->ctx;
    fp8c_module *own = NULL;
    if (!ctx &&
        fp8c_context_create(
            &(fp8c_context_options){.struct_size = sizeof(fp8c_context_options), .cache_dir = ""},
            &ctx) != FP8C_OK)
        return NULL;
    if (w->module ||
        fp8c_module_parse(ctx, model, strlen(model), "tiny.f8", NULL, 0, &own) == FP8C_OK)
        w->ok = run(w, ctx, w->module ? w->module : own);
    fp8c_module_destroy(own);
    if (!w->ctx)
        fp8c_context_destroy(ctx);
    return NULL;
}

static void all_at_once(worker *w, int n)
{
    pthread_t id[16];
    for (int i = 0; i < n; i++)
        ck_assert_int_eq(pthread_create(&id[i], NULL, work, &w[i]), 0);
    for (int i = 0; i < n; i++)
        pthread_join(id[i], NULL);
    for (int i = 0; i < n; i++)
        ck_assert_msg(w[i].ok, "thread %d: %s", i, w[i].why);
}

/* Losses of one thread alone, in a context of its own. */
static void alone(worker w, float loss[STEPS])
{
    w.ctx = NULL;
    w.module = NULL;
    w.keep = false;
    work(&w);
    ck_assert_msg(w.ok, "%s", w.why);
    memcpy(loss, w.loss, sizeof w.loss);
}

static void same_losses(const worker *w, int n)
{
    float want[2][STEPS];
    alone(w[0], want[0]);
    alone(w[1], want[1]);
    for (int i = 0; i < n; i++)
        ck_assert_mem_eq(w[i].loss, want[i % 2], sizeof want[0]);
}

static fp8c_context *plain_context(const char *cache)
{
    const fp8c_context_options o = {.struct_size = sizeof o, .cache_dir = cache};
    fp8c_context *ctx;
    ck_assert_int_eq(fp8c_context_create(&o, &ctx), FP8C_OK);
    return ctx;
}

/* ---- tests ---- */

START_TEST(programs_of_one_context)
{
    fp8c_context *ctx = plain_context("");
    worker w[AT_ONCE] = {0};
    for (int i = 0; i < AT_ONCE; i++)
        w[i] = (worker){.ctx = ctx, .recipe = i % 2 ? "bf16" : "delayed", .threads = 1 + i % 3};
    all_at_once(w, AT_ONCE);
    fp8c_context_destroy(ctx);
    same_losses(w, AT_ONCE);
}
END_TEST

/* While it is compiled, it is also printed, asked, and refused. */
typedef struct reader {
    const fp8c_module *module;
    fp8c_context *ctx;
    printed text;
    bool ok;
} reader;

static void *read_module(void *user)
{
    reader *r = user;
    const fp8c_compile_options wrong = {.struct_size = sizeof wrong, .target = "abacus"};
    fp8c_module_info info = {.struct_size = sizeof info};
    r->ok = true;
    for (int i = 0; i < 20 && r->ok; i++) {
        fp8c_program *p;
        r->text.n = 0;
        fp8c_module_report(r->module, &info);
        r->ok = fp8c_module_print(r->module, collect, &r->text) == FP8C_OK &&
                info.parameters == 3 && fp8c_module_dim(r->module, "B") == -1 &&
                fp8c_compile(r->module, &wrong, &p) == FP8C_ERR_INPUT &&
                strstr(fp8c_context_message(r->ctx), "no target 'abacus'");
    }
    return NULL;
}

static void one_module_at_once(const char *cache)
{
    fp8c_context *ctx = plain_context(cache);
    fp8c_module *m = parse(ctx, model);
    worker w[AT_ONCE] = {0};
    reader r = {.module = m, .ctx = ctx};
    pthread_t reading;
    for (int i = 0; i < AT_ONCE; i++)
        w[i] =
            (worker){.ctx = ctx, .module = m, .recipe = i % 2 ? "bf16" : "delayed", .threads = 1};
    ck_assert_int_eq(pthread_create(&reading, NULL, read_module, &r), 0);
    all_at_once(w, AT_ONCE);
    pthread_join(reading, NULL);
    ck_assert(r.ok);
    ck_assert_str_eq(fp8c_context_message(ctx), ""); /* nobody else's failures are this thread's */
    printed after = {.n = 0};
    ck_assert_int_eq(fp8c_module_print(m, collect, &after), FP8C_OK);
    ck_assert_str_eq(r.text.text, after.text);
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
    same_losses(w, AT_ONCE);
}

START_TEST(one_module)
{
    one_module_at_once("");
}
END_TEST

START_TEST(one_module_and_a_cache)
{
    char folder[] = "/tmp/fp8c-threads-XXXXXX", command[64];
    ck_assert_ptr_nonnull(mkdtemp(folder));
    one_module_at_once(folder);
    snprintf(command, sizeof command, "rm -r %s", folder);
    ck_assert_int_eq(system(command), 0);
}
END_TEST

/* A program outlives its module, is destroyed by another thread, in any order. */
START_TEST(orders_of_destruction)
{
    fp8c_context *ctx = plain_context("");
    fp8c_module *m = parse(ctx, model);
    worker w[AT_ONCE] = {0};
    for (int i = 0; i < AT_ONCE; i++)
        w[i] = (worker){.ctx = ctx,
                        .module = m,
                        .recipe = i % 2 ? "bf16" : "delayed",
                        .threads = 2,
                        .keep = true};
    all_at_once(w, AT_ONCE);
    fp8c_module_destroy(m);
    for (int i = 0; i < AT_ONCE; i++) {
        fp8c_program *p = w[(i * 3 + 1) % AT_ONCE].program;
        ck_assert_int_eq(fp8c_program_run(p, fp8c_program_function(p, "micro_step")), FP8C_OK);
        fp8c_program_destroy(p);
    }
    fp8c_context_destroy(ctx);
}
END_TEST

/* Programs of one context on one GPU, each by a thread of its own, and one after the other. */
START_TEST(programs_on_a_gpu)
{
    fp8c_context *ctx = plain_context("");
    worker w[AT_ONCE] = {0};
    for (int i = 0; i < AT_ONCE; i++)
        w[i] = (worker){.ctx = ctx, .recipe = i % 2 ? "bf16" : "f32", .target = "cuda"};
    all_at_once(w, AT_ONCE);
    for (int i = 0; i < 2; i++) {
        worker again = {.ctx = ctx, .recipe = i % 2 ? "bf16" : "f32", .target = "cuda"};
        work(&again);
        ck_assert_msg(again.ok, "%s", again.why);
        ck_assert_mem_eq(again.loss, w[i].loss, sizeof w[i].loss);
    }
    fp8c_context_destroy(ctx);
    same_losses(w, AT_ONCE);
}
END_TEST

Suite *f8_suite(void)
{
    f8_test_gpu_emulated();
    Suite *s = suite_create("threads");
    TCase *t = tcase_create(
        "threads"); /* TSan runs this case alone: the emulator's fibers are beyond it */
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_test(t, programs_of_one_context);
    tcase_add_test(t, one_module);
    tcase_add_test(t, one_module_and_a_cache);
    tcase_add_test(t, orders_of_destruction);
    suite_add_tcase(s, t);
    TCase *gpu = tcase_create("gpu");
    tcase_set_timeout(gpu, TIMEOUT);
    tcase_add_test(gpu, programs_on_a_gpu);
    suite_add_tcase(s, gpu);
    return s;
}
