/* NCCL on one rank: joining, each collective behind a stream and joined again, host memory, and
 * what is refused. It is what one GPU can show of NCCL. On the emulator's stand-in, or with
 * FP8C_TEST_GPU on this machine's GPU, where libnccl may be missing. The tests of several ranks are
 * check_cuda_ranks and tests/ranks_gpu. A training of one process joins nobody, whatever torchrun
 * has set. */
#include "runtime/cuda/internal.h"
#include "runtime/cuda/nccl.h"
#include "tests/shared/cuda/cuda_device.h"
#include "tests/shared/suite.h"

#include <stdio.h>
#include <string.h>

enum { MOST = 1 << 22 };

static unsigned char sent[MOST], got[MOST];

typedef struct alone {
    cuda_device device;
    f8_nccl *nccl;
    CUstream stream;
    CUdeviceptr send, receive;
} alone;

#define CU(call, ...) ck_assert_int_eq(a->device.cuda->cu.call(__VA_ARGS__), 0)

/* False: there is no NCCL. */
static bool join(alone *a)
{
    unsigned char id[F8_NCCL_ID];
    f8_diag why = {0};
    const f8_allocator allocator = f8_default_allocator();
    *a = (alone){0};
    cuda_device_open(&a->device);
    if (f8_nccl_present(a->device.cuda, &why) != F8_OK) {
        printf("skipped: NCCL on one rank: %s\n", why.text);
        f8_cuda_destroy(a->device.cuda);
        return false;
    }
    OK(f8_cuda_device(a->device.cuda, 0, diag));
    OK(f8_nccl_id(a->device.cuda, id, diag));
    const f8_nccl_options o = {.ranks = 1, .id = id, .seconds = 60, .allocator = &allocator};
    OK(f8_nccl_create(a->device.cuda, &o, &a->nccl, diag));
    ck_assert_int_eq(f8_nccl_rank(a->nccl), 0);
    ck_assert_int_eq(f8_nccl_ranks(a->nccl), 1);
    OK(f8_cuda_enter(a->device.cuda, diag));
    CU(cuStreamCreate, &a->stream, CU_STREAM_NON_BLOCKING);
    CU(cuMemAlloc_v2, &a->send, MOST);
    CU(cuMemAlloc_v2, &a->receive, MOST);
    for (int i = 0; i < MOST; i++) /* f32 numbers of moderate size */
        sent[i] = (unsigned char)(i % 4 == 3 ? 0x3f : i * 13 + i / 256);
    return true;
}

static void leave(alone *a)
{
    CU(cuMemFree_v2, a->send);
    CU(cuMemFree_v2, a->receive);
    CU(cuStreamDestroy_v2, a->stream);
    f8_cuda_leave(a->device.cuda);
    f8_nccl_destroy(a->nccl);
    cuda_device_close(&a->device);
}

/* Each collective gives what was sent: of one rank a sum is the number itself. Twice in a row, so
 * that the second waits for the first. */
START_TEST(collectives)
{
    static const int64_t sizes[] = {4, 1000, 4096 + 12, MOST};
    alone of, *a = &of;
    if (!join(a))
        return;
    for (int kind = 0; kind < F8_COLLECTIVES; kind++)
        for (int s = 0; s < 4; s++) {
            const f8_collective_desc d = {
                .kind = (f8_collective)kind, .ranks = 1, .bytes = sizes[s], .dtype = F8_F32};
            if (!f8_collective_travels(d.kind))
                continue;
            uint64_t number[2];
            CU(cuMemcpyHtoDAsync_v2, a->send, sent, (size_t)d.bytes, a->stream);
            CU(cuMemsetD8Async, a->receive, 0xee, MOST, a->stream);
            for (int i = 0; i < 2; i++)
                OK(f8_nccl_enqueue(a->nccl, &d, a->send, a->receive, a->stream, "x", "f",
                                   &number[i], diag));
            ck_assert_uint_gt(number[1], number[0]);
            OK(f8_nccl_join(a->nccl, number[1], a->stream, "x", diag));
            CU(cuMemcpyDtoHAsync_v2, got, a->receive, MOST, a->stream);
            OK(f8_nccl_wait(a->nccl, a->stream, "the bytes", diag));
            ck_assert_msg(!memcmp(got, sent, (size_t)d.bytes), "%s of %lld bytes",
                          f8_collective_name[kind], (long long)d.bytes);
            for (int64_t i = d.bytes; i < MOST; i += 997)
                ck_assert_msg(got[i] == 0xee, "%s writes past its end", f8_collective_name[kind]);
        }
    leave(a);
}
END_TEST

START_TEST(host_memory)
{
    alone of, *a = &of;
    if (!join(a))
        return;
    const f8_comm *c = f8_nccl_comm(a->nccl);
    for (int64_t bytes = 1; bytes <= MOST; bytes = bytes * 37 + 1) {
        memset(got, 0xee, sizeof got);
        OK(c->all_gather(c->user, sent, got, bytes, diag));
        ck_assert(!memcmp(got, sent, (size_t)bytes));
        memset(got, 0xee, sizeof got);
        OK(c->all_to_all(c->user, sent, got, bytes, diag));
        ck_assert(!memcmp(got, sent, (size_t)bytes));
    }
    leave(a);
}
END_TEST

/* After an abort every call says why. */
START_TEST(aborted)
{
    alone of, *a = &of;
    if (!join(a))
        return;
    const f8_collective_desc d = {
        .kind = F8_COLLECTIVE_ALL_GATHER, .ranks = 1, .bytes = 64, .dtype = F8_F32};
    uint64_t number;
    f8_diag why = {0};
    f8_nccl_abort(a->nccl, "planted");
    ck_assert_int_ne(
        f8_nccl_enqueue(a->nccl, &d, a->send, a->receive, a->stream, "x", "f", &number, &why),
        F8_OK);
    ck_assert_msg(strstr(why.text, "planted"), "%s", why.text);
    leave(a);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("cuda_nccl");
    TCase *t = tcase_create("one rank");
    tcase_set_timeout(t, 120);
    tcase_add_test(t, collectives);
    tcase_add_test(t, host_memory);
    tcase_add_test(t, aborted);
    suite_add_tcase(s, t);
    return s;
}
