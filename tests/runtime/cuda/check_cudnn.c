/* Attention by cuDNN: values against a reference in double within derived bounds, the same bits
 * every time, which engine is taken, calls that fail. It runs on the emulator's device with the
 * stand-in (tests/emulator/cudnn), or on a GPU with the library itself. check_cudnn_library.c tests
 * what needs no device. */
#include "tests/shared/cuda/cudnn_case.h"
#include "tests/shared/cuda/gpu.h"
#include "tests/shared/suite.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/cuda/internal.h"

static cuda_device device;
static f8_cudnn cudnn;
static int64_t (*alive)(void); /* the stand-in's descriptors and handles; NULL on a GPU */

static void open_all(void)
{
    f8_diag d = {0};
    cuda_device_open(&device);
    ck_assert_msg(f8_cudnn_find(device.cuda, &cudnn, &d) == F8_OK, "%s", d.text);
    ck_assert_msg(f8_cuda_enter(device.cuda, &d) == F8_OK, "%s", d.text);
    ck_assert_msg(f8_cudnn_start(&cudnn, &d) == F8_OK, "%s", d.text);
    void *lib = dlopen("libcudnn.so.9", RTLD_LAZY | RTLD_NOLOAD);
    void *count = lib ? dlsym(lib, "f8_emulator_cudnn_count") : NULL;
    memcpy(&alive, &count, sizeof count);
}

static void close_all(void)
{
    unsetenv("FP8C_EMULATOR_FAIL");
    f8_cudnn_close(&cudnn);
    if (alive)
        ck_assert_int_eq(alive(), 0);
    f8_cuda_leave(device.cuda);
    cuda_device_close(&device);
}

static void run(cudnn_case *c, bool backward)
{
    f8_diag d = {0};
    void *pointers[CASE_TENSORS];
    f8_cudnn_ref arguments;
    f8_cudnn_attention *a = cudnn_case_prepare(&cudnn, &c->desc, backward, NULL);
    void *workspace = cudnn_case_room(c, f8_cudnn_attention_workspace(a));
    cudnn_case_pointers(c, pointers);
    ck_assert_msg(f8_cudnn_attention_bind(a, pointers, workspace, &arguments, &d) == F8_OK, "%s",
                  d.text);
    ck_assert_msg(f8_cudnn_attention_run(a, arguments, NULL, &d) == F8_OK, "%s", d.text);
    cudnn_case_fetch(c);
    cudnn_case_release(c, workspace);
    f8_cudnn_destroy(&cudnn, &arguments);
    f8_cudnn_attention_destroy(a);
}

/* ---- numbers ---- */

START_TEST(numbers)
{
    const int64_t *s = cudnn_case_shapes[_i / 2];
    f8_cudnn_attention_desc x = cudnn_case_shape(&cudnn, s[0], s[1], s[2], s[3], s[4], _i & 1);
    x.scale *= _i % 3 ? 1.0f : 0.5f;
    cudnn_case c;
    printf("seed %d\n", _i + 1);
    cudnn_case_make(&c, &device, &x, _i % 4 * 8, (uint64_t)_i + 1);
    run(&c, false);
    cudnn_case_forward(&c);
    cudnn_case_compare(&c, F8_CUDNN_O);
    cudnn_case_compare(&c, CASE_LSE);
    run(&c, true);
    cudnn_case_backward(&c);
    for (int t = F8_CUDNN_DQ; t <= F8_CUDNN_DV; t++)
        cudnn_case_compare(&c, t);
    cudnn_case_free(&c);
}
END_TEST

/* The bounds are not so wide that a wrong scale or a wrong mask would pass. */
START_TEST(bounds_see_mistakes)
{
    for (int k = 0; k < 2; k++) {
        f8_cudnn_attention_desc x = cudnn_case_shape(&cudnn, 1, 64, 2, 2, 64, true);
        cudnn_case c;
        cudnn_case_make(&c, &device, &x, 0, 99);
        if (k)
            c.desc.causal = false;
        else
            c.desc.scale *= 1.05f;
        run(&c, false);
        c.desc.causal = true;
        c.desc.scale = x.scale;
        cudnn_case_forward(&c);
        int64_t off = 0;
        for (int64_t n = 0; n < x.B * x.H * x.T; n++) {
            float lse;
            memcpy(&lse, c.t[CASE_LSE].host + n * 4, 4);
            off += fabs((double)lse - c.t[CASE_LSE].value[n]) > c.t[CASE_LSE].bound[n];
        }
        ck_assert_msg(off > x.B * x.H * x.T / 2, "mistake %d: only %lld rows off", k,
                      (long long)off);
        cudnn_case_free(&c);
    }
}
END_TEST

/* Run twice, and twice from a captured graph: the same bits in every result. */
START_TEST(same_bits_every_time)
{
    f8_diag d = {0};
    f8_cudnn_attention_desc x = cudnn_case_shape(&cudnn, 2, 96, 4, 2, 64, true);
    cudnn_case c;
    cudnn_case_make(&c, &device, &x, 8, 5);
    f8_cudnn_attention *a[2] = {cudnn_case_prepare(&cudnn, &c.desc, false, NULL),
                                cudnn_case_prepare(&cudnn, &c.desc, true, NULL)};
    void *pointers[CASE_TENSORS], *room[2];
    f8_cudnn_ref arguments[2];
    uint8_t *first[CASE_TENSORS] = {0};
    cudnn_case_pointers(&c, pointers);
    for (int k = 0; k < 2; k++) {
        room[k] = cudnn_case_room(&c, f8_cudnn_attention_workspace(a[k]));
        ck_assert_int_eq(f8_cudnn_attention_bind(a[k], pointers, room[k], &arguments[k], &d),
                         F8_OK);
    }
    const f8_cuda_api *cu = &device.cuda->cu;
    CUstream s;
    CUgraph graph;
    CUgraphExec exec;
    ck_assert_int_eq(cu->cuStreamCreate(&s, CU_STREAM_NON_BLOCKING), 0);
    ck_assert_int_eq(cu->cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), 0);
    for (int k = 0; k < 2; k++)
        ck_assert_msg(f8_cudnn_attention_run(a[k], arguments[k], s, &d) == F8_OK, "%s", d.text);
    ck_assert_int_eq(cu->cuStreamEndCapture(s, &graph), 0);
    ck_assert_int_eq(cu->cuGraphInstantiateWithFlags(&exec, graph, 0), 0);
    for (int round = 0; round < 4; round++) {
        static const int results[] = {F8_CUDNN_O, CASE_LSE, F8_CUDNN_DQ, F8_CUDNN_DK, F8_CUDNN_DV};
        for (int i = 0; i < 5; i++)
            cudnn_case_clear(&c, results[i]);
        for (int k = 0; round < 2 && k < 2; k++)
            ck_assert_int_eq(f8_cudnn_attention_run(a[k], arguments[k], s, &d), F8_OK);
        if (round >= 2)
            ck_assert_int_eq(cu->cuGraphLaunch(exec, s), 0);
        ck_assert_int_eq(cu->cuStreamSynchronize(s), 0);
        cudnn_case_fetch(&c);
        for (int i = 0; i < 5; i++) {
            const size_t bytes = (size_t)c.t[results[i]].bytes;
            if (!first[i])
                first[i] = memcpy(malloc(bytes), c.t[results[i]].host, bytes);
            ck_assert_msg(!memcmp(first[i], c.t[results[i]].host, bytes), "round %d, result %d",
                          round, i);
        }
    }
    cu->cuGraphExecDestroy(exec);
    cu->cuGraphDestroy(graph);
    cu->cuStreamDestroy_v2(s);
    for (int k = 0; k < 2; k++) {
        f8_cudnn_destroy(&cudnn, &arguments[k]);
        f8_cudnn_attention_destroy(a[k]);
        cudnn_case_release(&c, room[k]);
    }
    for (int i = 0; i < CASE_TENSORS; i++)
        free(first[i]);
    cudnn_case_free(&c);
}
END_TEST

/* ---- the engine ---- */

/* The stand-in's list begins with an engine that does not repeat and one that refuses every plan.
 */
START_TEST(the_first_reproducible_engine_is_taken)
{
    if (!alive) {
        test_skip("the choice of an engine", "a GPU's list of engines is its own");
        return;
    }
    f8_cudnn_attention_desc x = cudnn_case_shape(&cudnn, 2, 64, 2, 2, 64, true);
    char text[F8_CUDNN_TEXT];
    f8_cudnn_attention *a = cudnn_case_prepare(&cudnn, &x, false, NULL);
    f8_cudnn_attention_text(a, text);
    ck_assert_str_eq(text, "cudnn 9.19.0 engine 2 k24=7");
    const f8_cudnn_engine taken = *f8_cudnn_attention_engine(a);
    f8_cudnn_attention_destroy(a);

    a = cudnn_case_prepare(&cudnn, &x, false,
                           &(f8_cudnn_choice){.fixed = &taken}); /* as recorded */
    f8_cudnn_attention_text(a, text);
    ck_assert_str_eq(text, "cudnn 9.19.0 engine 2 k24=7");
    f8_cudnn_attention_destroy(a);

    const struct {
        f8_cudnn_choice choice;
        bool backward;
        const char *why;
    } refused[] = {
        {{.fixed = &(f8_cudnn_engine){.id = 90}}, false, "engine 90 is not deterministic"},
        {{.fixed = &(f8_cudnn_engine){.id = 91}}, false, "engine 91 refuses"},
        {{.fixed = &(f8_cudnn_engine){.id = 2}}, false, "settings"},
        {{.fixed = &taken}, true, "engine 2"},
        {{.workspace_limit = 100},
         false,
         "none of 3 engines takes this attention: cuDNN: engine 90"},
        {{.fixed = &taken, .workspace_limit = 100},
         false,
         "engine 2 wants a workspace of 256 bytes, 100 are allowed"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        f8_diag d = {0};
        x.backward = refused[i].backward;
        ck_assert_int_eq(f8_cudnn_attention_prepare(&cudnn, &x, &refused[i].choice, NULL, &a, &d),
                         F8_ERR_UNSUPPORTED);
        ck_assert_ptr_null(a);
        cudnn_case_contains(d.text, refused[i].why);
    }
}
END_TEST

/* An engine with more notes than are read may be one that does not repeat. */
START_TEST(an_engine_of_many_notes)
{
    if (!alive) {
        test_skip("an engine of many notes", "a GPU's engines have few");
        return;
    }
    f8_cudnn_attention_desc x = cudnn_case_shape(&cudnn, 2, 64, 2, 2, 64, true);
    f8_diag d = {0};
    f8_cudnn_attention *a;
    setenv("FP8C_EMULATOR_CUDNN_NOTES", "32", 1);
    f8_cudnn_attention_destroy(cudnn_case_prepare(&cudnn, &x, false, NULL));
    setenv("FP8C_EMULATOR_CUDNN_NOTES", "33", 1);
    ck_assert_int_eq(f8_cudnn_attention_prepare(&cudnn, &x, &(f8_cudnn_choice){0}, NULL, &a, &d),
                     F8_ERR_UNSUPPORTED);
    ck_assert_ptr_null(a);
    cudnn_case_contains(d.text, "none of 3 engines takes this attention: cuDNN: engine 90 has 34 "
                                "notes: at most 32 can be read");
    unsetenv("FP8C_EMULATOR_CUDNN_NOTES");
}
END_TEST

START_TEST(backward_keeps_its_workspace_apart)
{
    f8_cudnn_attention_desc x = cudnn_case_shape(&cudnn, 2, 64, 2, 2, 64, true);
    f8_cudnn_attention *a = cudnn_case_prepare(&cudnn, &x, true, NULL);
    ck_assert_int_ge(f8_cudnn_attention_workspace(a), 2 * 2 * 64 * 4); /* delta at least */
    ck_assert_int_eq(f8_cudnn_attention_workspace(a) % 256, 0);
    if (alive) {
        char text[F8_CUDNN_TEXT];
        f8_cudnn_attention_text(a, text);
        ck_assert_str_eq(text, device.facts.sm / 10 == 10 ? "cudnn 9.19.0 engine 5 k24=31 k14=2"
                                                          : "cudnn 9.19.0 engine 6 k24=26");
    }
    f8_cudnn_attention_destroy(a);
}
END_TEST

START_TEST(arguments_are_checked)
{
    f8_diag d = {0};
    f8_cudnn_attention_desc x = cudnn_case_shape(&cudnn, 1, 64, 1, 1, 64, false);
    cudnn_case c;
    cudnn_case_make(&c, &device, &x, 0, 1);
    f8_cudnn_attention *a = cudnn_case_prepare(&cudnn, &c.desc, false, NULL);
    void *pointers[CASE_TENSORS], *room = cudnn_case_room(&c, 4096);
    cudnn_case_pointers(&c, pointers);
    f8_cudnn_ref arguments;
    ck_assert_int_eq(f8_cudnn_attention_run(a, NULL, NULL, &d), F8_ERR_INTERNAL);
    cudnn_case_contains(d.text, "before start and bind");
    for (int bad = 0; bad < 3; bad++) {
        void *p[CASE_TENSORS];
        memcpy(p, pointers, sizeof p);
        if (bad < 2)
            p[F8_CUDNN_V] = bad ? (char *)p[F8_CUDNN_V] + 2 : NULL;
        d = (f8_diag){0};
        ck_assert_int_eq(
            f8_cudnn_attention_bind(a, p, (char *)room + (bad == 2 ? 16 : 0), &arguments, &d),
            F8_ERR_INPUT);
        ck_assert_ptr_null(arguments);
        cudnn_case_contains(d.text,
                            bad == 2 ? "256-byte aligned" : "argument 2 is not 16-byte aligned");
    }
    f8_cudnn_attention_destroy(a);
    cudnn_case_release(&c, room);
    cudnn_case_free(&c);
}
END_TEST

/* ---- calls that fail ---- */

static void *fail_alloc(void *user, size_t size, size_t align)
{
    (void)user, (void)size, (void)align;
    return NULL;
}

/* Every call of the library fails once: a status, a message, nothing left behind. */
START_TEST(every_call_may_fail)
{
    static const char *const functions[] = {"cudnnBackendCreateDescriptor",
                                            "cudnnBackendSetAttribute", "cudnnBackendFinalize",
                                            "cudnnBackendGetAttribute"};
    if (!alive) {
        test_skip("failing calls of cuDNN", "a GPU's library does not fail on request");
        return;
    }
    f8_cudnn_attention_desc x = cudnn_case_shape(&cudnn, 1, 64, 2, 1, 64, true);
    x.backward = _i & 1;
    const int64_t before = alive();
    int failed = 0;
    for (int n = 1, worked = 0; !worked; n++) {
        f8_diag d = {0};
        f8_cudnn_attention *a;
        cuda_device_fail(functions[_i / 2], n);
        const f8_status s = f8_cudnn_attention_prepare(&cudnn, &x, NULL, NULL, &a, &d);
        cuda_device_fail(NULL, 0);
        worked = s == F8_OK; /* there is no call of that number */
        failed += !worked;
        if (!worked) {
            ck_assert_msg(s == F8_ERR_LIBRARY, "call %d: %s", n, d.text);
            cudnn_case_contains(d.text, "asked to fail");
        }
        f8_cudnn_attention_destroy(a);
        ck_assert_int_eq(alive(), before);
    }
    ck_assert_int_gt(failed, 3);

    f8_diag d = {0};
    f8_cudnn_attention *a;
    const f8_allocator none = {fail_alloc, NULL, NULL};
    ck_assert_int_eq(f8_cudnn_attention_prepare(&cudnn, &x, NULL, &none, &a, &d), F8_ERR_MEMORY);
    ck_assert_int_eq(alive(), before);
}
END_TEST

START_TEST(running_may_fail)
{
    if (!alive) {
        test_skip("failing runs of cuDNN", "a GPU's library does not fail on request");
        return;
    }
    f8_diag d = {0};
    f8_cudnn other = cudnn;
    cuda_device_fail("cudnnCreate", 1);
    ck_assert_int_eq(f8_cudnn_start(&other, &d), F8_ERR_LIBRARY);
    cudnn_case_contains(d.text, "cuDNN: cudnnCreate: CUDNN_STATUS_INTERNAL_ERROR: asked to fail");

    static const char *const functions[] = {"cudnnSetStream", "cudnnBackendExecute"};
    f8_cudnn_attention_desc x = cudnn_case_shape(&cudnn, 1, 64, 1, 1, 64, false);
    cudnn_case c;
    cudnn_case_make(&c, &device, &x, 0, 1);
    f8_cudnn_attention *a = cudnn_case_prepare(&cudnn, &c.desc, false, NULL);
    void *pointers[CASE_TENSORS], *room = cudnn_case_room(&c, 4096);
    cudnn_case_pointers(&c, pointers);
    f8_cudnn_ref arguments;
    ck_assert_int_eq(f8_cudnn_attention_bind(a, pointers, room, &arguments, &d), F8_OK);
    for (int i = 0; i < 2; i++) {
        d = (f8_diag){0};
        cuda_device_fail(functions[i], 1);
        ck_assert_int_eq(f8_cudnn_attention_run(a, arguments, NULL, &d), F8_ERR_LIBRARY);
        cudnn_case_contains(d.text, functions[i]);
    }
    cuda_device_fail(NULL, 0);
    ck_assert_int_eq(f8_cudnn_attention_run(a, arguments, NULL, &d), F8_OK);
    f8_cudnn_destroy(&cudnn, &arguments);
    f8_cudnn_attention_destroy(a);
    cudnn_case_release(&c, room);
    cudnn_case_free(&c);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("cudnn");
    TCase *t = tcase_create("device");
    tcase_set_timeout(t, 300);
    tcase_add_checked_fixture(t, open_all, close_all);
    tcase_add_loop_test(t, numbers, 0, 2 * CASE_SHAPES);
    tcase_add_test(t, bounds_see_mistakes);
    tcase_add_test(t, same_bits_every_time);
    tcase_add_test(t, the_first_reproducible_engine_is_taken);
    tcase_add_test(t, an_engine_of_many_notes);
    tcase_add_test(t, backward_keeps_its_workspace_apart);
    tcase_add_test(t, arguments_are_checked);
    tcase_add_loop_test(t, every_call_may_fail, 0, 8);
    tcase_add_test(t, running_may_fail);
    suite_add_tcase(s, t);
    return s;
}
