/* The lives of contexts with a GPU in one process. cuBLASLt and cuDNN stay mapped, with state in
 * the device's primary context, so that context lives on: whoever else retains it, and however
 * often contexts of fp8c come and go, one retain by fp8c is left for the device. The emulator counts, and
 * its cuBLASLt fails where its context was destroyed. On a GPU the lives run uncounted. */
#include "tests/shared/api/api.h"
#include "tests/shared/cuda/embedder.h"
#include "tests/shared/cuda/gpu.h"
#include "tests/shared/suite.h"

/* The driver, loaded without a context. */
typedef struct eyes {
    void *library;
    int64_t (*count)(const char *what); /* NULL on a GPU */
    int (*reset)(int device);
} eyes;

static eyes look(void)
{
    const bool emulated = f8_test_gpu_emulated();
    char path[4096] = "libcuda.so.1";
    if (emulated)
        snprintf(path, sizeof path, "%s/libcuda.so.1", getenv("FP8C_CUDA_PATH"));
    eyes e = {.library = dlopen(path, RTLD_NOW)};
    ck_assert_msg(e.library != NULL, "%s", dlerror());
    *(void **)&e.count = dlsym(e.library, "f8_emulator_count");
    *(void **)&e.reset = dlsym(e.library, "cuDevicePrimaryCtxReset_v2");
    ck_assert(!emulated || (e.count && e.reset));
    return e;
}

static void counts(const eyes *e, int64_t retains, int64_t lost)
{
    static const char *const none[] = {"allocation", "pinned", "module",    "stream",
                                       "event",      "graph",  "graph_exec"};
    for (size_t i = 0; e->count && i < sizeof none / sizeof *none; i++)
        ck_assert_msg(e->count(none[i]) == 0, "%lld of kind %s are left",
                      (long long)e->count(none[i]), none[i]);
    ck_assert(!e->count || e->count("lost context") == lost);
    if (e->count)
        ck_assert_int_eq(e->count("context"), retains);
}

static fp8c_program *born(fp8c_context *ctx)
{
    fp8c_compile_options o = recipe("bf16");
    o.target = "cuda";
    fp8c_module *m = parse(ctx, model);
    fp8c_program *p = compile(ctx, m, &o);
    fp8c_module_destroy(m);
    ck_assert_msg(fp8c_program_initialize(p, 1) == FP8C_OK, "%s", fp8c_context_message(ctx));
    return p;
}

/* Context, program, a step with GEMMs, and the end of all. */
static float life(void)
{
    fp8c_context *ctx = new_context();
    fp8c_program *p = born(ctx);
    const float loss = train_step(p);
    fp8c_program_destroy(p);
    fp8c_context_destroy(ctx);
    return loss;
}

START_TEST(one_after_the_other)
{
    const eyes e = look();
    const float first = life();
    counts(&e, 1, 0);
    for (int i = 0; i < 20; i++) {
        const float loss = life();
        ck_assert_mem_eq(&loss, &first, sizeof loss);
        counts(&e, 1, 0);
    }
}
END_TEST

START_TEST(two_at_a_time)
{
    const eyes e = look();
    float loss[2];
    for (int i = 0; i < 3; i++) {
        fp8c_context *ctx[2] = {new_context(), new_context()};
        fp8c_program *p[2] = {born(ctx[0]), born(ctx[1])};
        const int last = i % 2;
        fp8c_program_destroy(p[!last]);
        fp8c_context_destroy(ctx[!last]);
        loss[i > 0] = train_step(p[last]);
        fp8c_program_destroy(p[last]);
        fp8c_context_destroy(ctx[last]);
        ck_assert_mem_eq(&loss[i > 0], &loss[0], sizeof *loss);
        counts(&e, 1, 0);
    }
}
END_TEST

/* An embedder retains the context first, and lets go of it while fp8c is there, or later. */
START_TEST(beside_an_embedder)
{
    const eyes e = look();
    driver d = open_driver();
    fp8c_context *ctx = new_context();
    fp8c_program *p = born(ctx);
    const float loss = train_step(p);
    if (_i == 0)
        close_driver(&d);
    fp8c_program_destroy(p);
    fp8c_context_destroy(ctx);
    if (_i == 1)
        close_driver(&d);
    counts(&e, 1, 0);
    const float again = life();
    ck_assert_mem_eq(&again, &loss, sizeof loss);
    counts(&e, 1, 0);
}
END_TEST

/* After a reset nothing of fp8c is retained, so the next life's retain is kept. The stand-in of
 * cuBLASLt serves nobody any more, which real libraries may do or not: no program is made. */
START_TEST(after_a_reset)
{
    const eyes e = look();
    if (!e.count) {
        test_skip("a reset of the device", "the emulator alone counts");
        return;
    }
    life();
    ck_assert_int_eq(e.reset(0), 0);
    counts(&e, 0, 1);
    for (int i = 0; i < 3; i++) {
        fp8c_context *ctx = new_context();
        fp8c_compile_options o = recipe("bf16");
        fp8c_program *p;
        o.target = "cuda";
        fp8c_module *m = parse(ctx, model);
        ck_assert_int_eq(fp8c_compile(m, &o, &p), FP8C_ERR_LIBRARY);
        said(ctx, "cublasLtCreate");
        fp8c_module_destroy(m);
        fp8c_context_destroy(ctx);
    }
    ck_assert_int_eq(e.count("lost context"), 1);
    ck_assert_int_eq(e.count("context"), 1);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("cuda lives");
    TCase *t = tcase_create("lives");
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_test(t, one_after_the_other);
    tcase_add_test(t, two_at_a_time);
    tcase_add_loop_test(t, beside_an_embedder, 0, 2);
    tcase_add_test(t, after_a_reset);
    suite_add_tcase(s, t);
    return s;
}
