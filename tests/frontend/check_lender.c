/* Lenders: memory is lent again once its tensor was given back, and never before. It is bounded.
 * Any thread may give a tensor back at any time, also after the lender's end. The test case
 * "threads" also runs under ThreadSanitizer (`make check-sanitizers`). */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "tests/shared/api/context_case.h"
#include "tests/shared/suite.h"

enum { N = 3, AGE = 64 }; /* AGE: as fp8c.h says */

static int64_t shapes[N][2] = {{3, 5}, {0, 7}, {0, 0}};

/* f32[3, 5], bf16[7], f32[] */
static void describe(fp8c_tensor_view *v, fp8c_tensor_view **at)
{
    shapes[1][0] = 7;
    for (int i = 0; i < N; i++) {
        v[i] = (fp8c_tensor_view){.device = {1, 0}, .ndim = 2 - i, .dtype = {2, 32, 1},
                                  .shape = shapes[i]};
        at[i] = &v[i];
    }
    v[1].dtype.code = 4;
    v[1].dtype.bits = 16;
}

typedef struct lent {
    fp8c_tensor_view view[N], *at[N];
    fp8c_managed_tensor *tensor[N];
} lent;

static fp8c_status lend(fp8c_lender *l, lent *to)
{
    describe(to->view, to->at);
    return fp8c_lender_lend(l, to->at, to->tensor);
}

static void give_back(lent *from)
{
    for (int i = 0; i < N; i++)
        from->tensor[i]->deleter(from->tensor[i]);
}

static fp8c_lender *make(fp8c_context *ctx)
{
    fp8c_lender *l;
    ck_assert_int_eq(fp8c_lender_create(ctx, N, &l), FP8C_OK);
    ck_assert_int_eq(fp8c_lender_bytes(l, 0), 0);
    return l;
}

/* ---- what is lent ---- */

START_TEST(tensors)
{
    fp8c_context *ctx = create(NULL);
    fp8c_lender *l = make(ctx);
    lent a;
    ck_assert_int_eq(lend(l, &a), FP8C_OK);
    for (int i = 0; i < N; i++) {
        const fp8c_tensor_view *t = &a.tensor[i]->tensor;
        ck_assert_ptr_eq(t->data, a.view[i].data);
        ck_assert_uint_eq((uintptr_t)t->data % 64, 0);
        ck_assert_int_eq(t->ndim, 2 - i);
        ck_assert_int_eq(t->dtype.bits, i == 1 ? 16 : 32);
        ck_assert_uint_eq(a.tensor[i]->major, 1);
        ck_assert_uint_eq(a.tensor[i]->flags, 0);
        ck_assert_ptr_ne(t->shape, shapes[i]); /* the tensor's own */
        memset(t->data, i, i == 0 ? 60 : i == 1 ? 14 : 4);
    }
    ck_assert_int_eq(a.tensor[0]->tensor.shape[1], 5);
    ck_assert_int_eq(a.tensor[0]->tensor.strides[0], 5);
    ck_assert_int_eq(a.tensor[0]->tensor.strides[1], 1);
    give_back(&a);
    fp8c_lender_destroy(l);
    fp8c_lender_destroy(NULL);
    fp8c_context_destroy(ctx);
}
END_TEST

/* Memory that was given back, and no other, is lent again, to the tensor of the same number. */
START_TEST(again)
{
    fp8c_context *ctx = create(NULL);
    fp8c_lender *l = make(ctx);
    lent a, b, c;
    ck_assert_int_eq(lend(l, &a), FP8C_OK);
    const int64_t bytes = fp8c_lender_bytes(l, 0);
    ck_assert_int_eq(bytes, 3 * 64);
    for (int round = 0; round < 2 * AGE + 3; round++) {
        give_back(&a);
        ck_assert_int_eq(lend(l, &b), FP8C_OK);
        for (int i = 0; i < N; i++)
            ck_assert_ptr_eq(a.view[i].data, b.view[i].data);
        a = b;
    }
    ck_assert_int_eq(fp8c_lender_bytes(l, 0), bytes);
    a.tensor[2]->deleter(a.tensor[2]); /* the others stay lent */
    ck_assert_int_eq(lend(l, &b), FP8C_OK);
    ck_assert_ptr_ne(a.view[0].data, b.view[0].data);
    ck_assert_ptr_ne(a.view[1].data, b.view[1].data);
    ck_assert_ptr_eq(a.view[2].data, b.view[2].data);
    ck_assert_int_eq(fp8c_lender_bytes(l, 0), 5 * 64);
    ck_assert_int_eq(lend(l, &c), FP8C_OK);
    ck_assert_int_eq(fp8c_lender_bytes(l, 0), 8 * 64);
    give_back(&b);
    give_back(&c);
    a.tensor[0]->deleter(a.tensor[0]);
    a.tensor[1]->deleter(a.tensor[1]);
    fp8c_lender_destroy(l);
    fp8c_context_destroy(ctx);
}
END_TEST

/* ---- bounds ---- */

/* Memory that several calls held at once is freed when calls no longer need it. */
START_TEST(age)
{
    enum { AT_ONCE = 5 };
    fp8c_context *ctx = create(NULL);
    fp8c_lender *l = make(ctx);
    lent many[AT_ONCE], one;
    for (int i = 0; i < AT_ONCE; i++)
        ck_assert_int_eq(lend(l, &many[i]), FP8C_OK);
    for (int i = 0; i < AT_ONCE; i++)
        give_back(&many[i]);
    ck_assert_int_eq(fp8c_lender_bytes(l, 0), AT_ONCE * N * 64);
    for (int round = 0; round < 2 * AGE; round++) {
        ck_assert_int_eq(lend(l, &one), FP8C_OK);
        give_back(&one);
    }
    ck_assert_int_eq(fp8c_lender_bytes(l, 0), N * 64);
    fp8c_lender_bytes(l, 1);
    ck_assert_int_eq(fp8c_lender_bytes(l, 0), 0);
    ck_assert_int_eq(lend(l, &one), FP8C_OK);
    fp8c_lender_bytes(l, 1);
    ck_assert_int_eq(fp8c_lender_bytes(l, 0), N * 64);
    give_back(&one);
    fp8c_lender_destroy(l);
    fp8c_context_destroy(ctx);
}
END_TEST

/* A block serves smaller tensors; a larger one takes its place. */
START_TEST(sizes)
{
    fp8c_context *ctx = create(NULL);
    fp8c_lender *l;
    ck_assert_int_eq(fp8c_lender_create(ctx, 1, &l), FP8C_OK);
    static const int64_t rows[] = {100, 20, 100, 300, 1, 0, 300};
    static const int64_t bytes[] = {448, 448, 448, 1216, 1216, 1216, 1216};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int64_t shape[1] = {rows[i]};
        fp8c_tensor_view v = {.device = {1, 0}, .ndim = 1, .dtype = {2, 32, 1}, .shape = shape};
        fp8c_tensor_view *at[] = {&v};
        fp8c_managed_tensor *tensor;
        ck_assert_int_eq(fp8c_lender_lend(l, at, &tensor), FP8C_OK);
        ck_assert_int_eq(tensor->tensor.shape[0], rows[i]);
        ck_assert_int_eq(fp8c_lender_bytes(l, 0), bytes[i]);
        memset(v.data, 1, (size_t)rows[i] * 4);
        tensor->deleter(tensor);
    }
    fp8c_lender_destroy(l);
    fp8c_context_destroy(ctx);
}
END_TEST

/* A tensor of no elements may have any other dims. */
START_TEST(no_elements)
{
    fp8c_context *ctx = create(NULL);
    fp8c_lender *l;
    ck_assert_int_eq(fp8c_lender_create(ctx, 1, &l), FP8C_OK);
    int64_t shape[] = {3, 0, INT64_MAX, 4}, strides[] = {0, INT64_MAX, 4, 1};
    fp8c_tensor_view v = {.device = {1, 0}, .ndim = 4, .dtype = {2, 32, 1}, .shape = shape};
    fp8c_tensor_view *at[] = {&v};
    for (int i = 0; i < 2; i++) {
        fp8c_managed_tensor *tensor;
        v.strides = i ? strides : NULL;
        ck_assert_int_eq(fp8c_lender_lend(l, at, &tensor), FP8C_OK);
        ck_assert_int_eq(tensor->tensor.shape[2], INT64_MAX);
        ck_assert_int_eq(fp8c_lender_bytes(l, 0), 0);
        tensor->deleter(tensor);
    }
    fp8c_lender_destroy(l);
    fp8c_context_destroy(ctx);
}
END_TEST

/* ---- failures ---- */

START_TEST(wrong_views)
{
    fp8c_context *ctx = create(NULL);
    fp8c_lender *l = make(ctx);
    int64_t strides[] = {6, 1}, shape[] = {-1, 5}, huge[] = {INT64_MAX, 5};
    for (int i = 0; i < 7; i++) {
        lent a;
        describe(a.view, a.at);
        fp8c_tensor_view *v = &a.view[i % 2]; /* with i == 1, tensor 0 is lent by then */
        v->ndim = 2;
        v->shape = i == 2 ? shape : i == 3 ? huge : shapes[0];
        v->device.type = i == 0 ? 2 : 1;
        v->strides = i == 1 ? strides : NULL;
        v->ndim = i == 4 ? FP8C_MAX_RANK + 1 : 2;
        v->dtype.bits = i == 5 ? 4 : i == 6 ? 12 : 32; /* 12: elements would share a byte */
        ck_assert_int_eq(fp8c_lender_lend(l, a.at, a.tensor), FP8C_ERR_INPUT);
        ck_assert_ptr_nonnull(strstr(fp8c_context_message(ctx), "a lender"));
    }
    fp8c_lender_destroy(l);
    fp8c_context_destroy(ctx);
}
END_TEST

/* Allocations of one call fail one after the other. Nothing is lent then, and nothing is lost. */
typedef struct short_memory {
    int left; /* allocations that succeed; < 0: all do */
    int64_t bytes;
} short_memory;

static void *short_alloc(void *user, size_t size, size_t align)
{
    short_memory *m = user;
    void *at = m->left == 0 ? NULL : aligned_alloc(align, (size + align - 1) / align * align);
    if (at) {
        m->left -= m->left > 0;
        m->bytes += (int64_t)size;
    }
    return at;
}

static void short_free(void *user, void *at, size_t size)
{
    ((short_memory *)user)->bytes -= (int64_t)size;
    free(at);
}

START_TEST(out_of_memory)
{
    short_memory m = {.left = -1};
    fp8c_context *ctx = create(&(fp8c_context_options){.struct_size = sizeof(fp8c_context_options),
                                                       .alloc = short_alloc,
                                                       .free = short_free,
                                                       .allocator_user = &m});
    fp8c_lender *l = make(ctx), *none;
    lent a;
    for (int n = 0; n < N; n++) {
        m.left = n;
        ck_assert_int_eq(lend(l, &a), FP8C_ERR_MEMORY);
        ck_assert_ptr_nonnull(strstr(fp8c_context_message(ctx), "out of memory"));
        fp8c_lender_bytes(l, 1);
        ck_assert_int_eq(fp8c_lender_bytes(l, 0), 0);
    }
    m.left = 0;
    ck_assert_int_eq(fp8c_lender_create(ctx, N, &none), FP8C_ERR_MEMORY);
    ck_assert_int_eq(fp8c_lender_create(ctx, SIZE_MAX / 8, &none), FP8C_ERR_MEMORY);
    m.left = -1;
    ck_assert_int_eq(lend(l, &a), FP8C_OK);
    fp8c_lender_destroy(l);
    fp8c_context_destroy(ctx);
    memset(a.view[0].data, 7, 60); /* still ours */
    give_back(&a);
    ck_assert_int_eq(m.bytes, 0); /* the lender and the context went with the last tensor */
}
END_TEST

/* ---- threads ---- */

enum { CALLS = 2000, HELD = 16 };

typedef struct mailbox {
    _Atomic(fp8c_managed_tensor *) slot[HELD];
    atomic_bool over;
} mailbox;

/* Writes 0 to each tensor that it finds, then gives it back. */
static void *give_back_all(void *user)
{
    mailbox *box = user;
    for (bool last = false; !last;) {
        last = atomic_load(&box->over);
        for (int i = 0; i < HELD; i++) {
            fp8c_managed_tensor *t = atomic_exchange(&box->slot[i], NULL);
            if (t) {
                *(int32_t *)t->tensor.data = 0;
                t->deleter(t);
            }
        }
    }
    return NULL;
}

/* Two threads give tensors back while a third one lends: no memory is lent twice at a time. The
 * lender is destroyed while tensors are lent. */
START_TEST(threads)
{
    static mailbox box;
    fp8c_context *ctx = create(NULL);
    fp8c_lender *l;
    ck_assert_int_eq(fp8c_lender_create(ctx, 1, &l), FP8C_OK);
    pthread_t thread[2];
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(pthread_create(&thread[i], NULL, give_back_all, &box), 0);
    for (int call = 0; call < CALLS; call++) {
        fp8c_tensor_view v = {.device = {1, 0}, .dtype = {0, 32, 1}}, *at[] = {&v};
        fp8c_managed_tensor *tensor;
        const int64_t bytes = fp8c_lender_bytes(l, 0);
        ck_assert_int_eq(fp8c_lender_lend(l, at, &tensor), FP8C_OK);
        int32_t *data = v.data;
        if (fp8c_lender_bytes(l, 0) <= bytes) /* no new memory: it was lent before */
            ck_assert_int_eq(*data, 0);
        *data = 1;
        tensor = atomic_exchange(&box.slot[call % HELD], tensor);
        if (tensor) {
            *(int32_t *)tensor->tensor.data = 0;
            tensor->deleter(tensor);
        }
    }
    ck_assert_int_le(fp8c_lender_bytes(l, 0), (HELD + 3) * 64); /* slots, and one in each hand */
    fp8c_lender_destroy(l);
    fp8c_context_destroy(ctx);
    atomic_store(&box.over, true);
    for (int i = 0; i < 2; i++)
        pthread_join(thread[i], NULL);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("lender");
    TCase *t = tcase_create("lender");
    tcase_add_test(t, tensors);
    tcase_add_test(t, again);
    tcase_add_test(t, age);
    tcase_add_test(t, sizes);
    tcase_add_test(t, no_elements);
    tcase_add_test(t, wrong_views);
    tcase_add_test(t, out_of_memory);
    suite_add_tcase(s, t);
    TCase *threads_case = tcase_create("threads");
    tcase_add_test(threads_case, threads);
    suite_add_tcase(s, threads_case);
    return s;
}
