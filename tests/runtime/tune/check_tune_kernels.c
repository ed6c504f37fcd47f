/* Configurations of kernels change no bit, on the CPU and on a CUDA device (the emulator, or with
 * FP8C_TEST_GPU this machine's GPU). Their texts are printed and read back. */
#include "codegen/kernel/config.h"
#include "tests/shared/kernel/kernel_device.h"
#include "tests/shared/kernel/kernel_configs.h"
#include "tests/shared/suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void plain(void)
{
    kv_use(NULL);
}

/* Against the interpreter, bit by bit, under any split into tasks. */
START_TEST(cpu)
{
    for (int v = 0; kv_config(false, v); v++) {
        kcase c;
        uint32_t marked = 0;
        kv_use(kv_config(false, v));
        kc_begin(&c);
        c.specials = (v ^ _i) & 1;
        ck_assert(kv_body(&c, _i));
        kc_check(&c);
        for (uint32_t i = 0; i < c.plan.n_choices; i++)
            marked += c.plan.choice[i].source == F8_CHOICE_DATABASE;
        ck_assert_uint_eq(marked, c.plan.n_choices);
        ck_assert_uint_gt(marked, 0);
        kc_end(&c);
    }
}
END_TEST

/* Kernels of forms for an empty amax history are compiled fast: to other code with the same
 * results. */
START_TEST(cpu_compiled_fast)
{
    kcase c[2];
    for (int fast = 0; fast < 2; fast++) {
        kc_begin(&c[fast]);
        c[fast].f->name = fast ? "f.first" : "f";
        c[fast].specials = true;
        ck_assert(kv_body(&c[fast], _i));
        kc_check(&c[fast]);
    }
    ck_assert(c[0].plan.blob_bytes != c[1].plan.blob_bytes ||
              memcmp(c[0].plan.blob, c[1].plan.blob, (size_t)c[0].plan.blob_bytes) != 0);
    kc_end(&c[0]);
    kc_end(&c[1]);
}
END_TEST

START_TEST(cuda)
{
    cuda_device device;
    cuda_device_open(&device);
    kcase c;
    kv_use(kv_config(true, _i));
    kc_begin(&c);
    for (int body = 0; body < 14; body++)
        ck_assert(kv_body(&c, body));
    for (int body = 19; body < 21; body++)
        ck_assert(kv_body(&c, body));
    kc_check_on_device(&c, &device);
    kc_end(&c);
    cuda_device_close(&device);
}
END_TEST

/* What a kernel is offered differs in text, and its kernels in theirs; the model's is unchanged. */
START_TEST(texts_and_back)
{
    kcase c;
    kc_begin(&c);
    kc_layernorm(&c, F8_BF16, 37, 300, true);
    for (int target = 0; target < 2; target++) {
        const f8_target *t = target ? f8_target_by_name("sm_90a") : NULL;
        f8_kernel *k, *with[F8_KERNEL_CONFIGS];
        f8_binding bound;
        f8_kernel_config all[F8_KERNEL_CONFIGS], back;
        char text[F8_KERNEL_CONFIGS][F8_KERNEL_CONFIG_TEXT];
        ck_assert_int_eq(f8_kernel_lower(c.f, &c.group[0], 0, t, &c.arena, &k, &bound, &c.diag),
                         F8_OK);
        const int n = f8_kernel_configs(k, t, true, all);
        ck_assert_int_ge(n, 6);
        ck_assert_int_le(n, F8_KERNEL_CONFIGS);
        for (int i = 0; i < n; i++) {
            f8_kernel_config_text(&all[i], text[i]);
            ck_assert(f8_kernel_config_parse(text[i], &back));
            ck_assert_msg(!memcmp(&back, &all[i], sizeof back), "%s", text[i]);
            ck_assert_int_eq(f8_kernel_with_config(k, &all[i], &c.arena, &with[i], &c.diag),
                             F8_OK);
            for (int j = 0; j < i; j++) {
                ck_assert_str_ne(text[i], text[j]);
                ck_assert_str_ne(with[i]->text, with[j]->text);
                ck_assert_uint_ne(with[i]->hash, with[j]->hash);
            }
        }
        ck_assert_str_eq(text[0], "model");
        ck_assert_str_eq(with[0]->text, k->text);
        ck_assert_uint_eq(with[0]->hash, k->hash);
    }
    kc_end(&c);
}
END_TEST

START_TEST(texts_that_are_none)
{
    static const char *const bad[] = {"", " ", "models", "lanes", "lanes 7", "lanes 16", "unroll 3",
                                      "unroll 2 unroll 2", "grain 0", "grain 9", "threads 100",
                                      "threads 128 ", "lanes  8 x", "lanes 8,unroll 2", "rows 4",
                                      "unroll 99999999999999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        f8_kernel_config v = {.lanes = 8, .grain = -1}, was = v;
        ck_assert_msg(!f8_kernel_config_parse(bad[i], &v), "'%s'", bad[i]);
        ck_assert(!memcmp(&v, &was, sizeof v));
    }
}
END_TEST

/* A kernel's problem: its description, and its extent to within a factor of two. */
START_TEST(problems)
{
    f8_kernel k = {.text = "kernel"}, flat = {.text = "kernel", .flat = true},
              other = {.text = "kernem"};
    char a[F8_KERNEL_PROBLEM_TEXT], b[F8_KERNEL_PROBLEM_TEXT];
    f8_kernel_problem_text(&k, 1025, a);
    f8_kernel_problem_text(&k, 2048, b);
    ck_assert_str_eq(a, b);
    f8_kernel_problem_text(&k, 1024, b);
    ck_assert_str_ne(a, b);
    f8_kernel_problem_text(&flat, 2048, b);
    ck_assert_str_ne(a, b);
    f8_kernel_problem_text(&other, 2048, b);
    ck_assert_str_ne(a, b);
    f8_kernel_problem_text(&k, INT64_MAX, b); /* and it ends */
    ck_assert_ptr_nonnull(strstr(b, "4611686018427387904"));
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("tune_kernels");
    TCase *t = tcase_create("tune_kernels");
    tcase_set_timeout(t, 300);
    tcase_add_checked_fixture(t, NULL, plain);
    tcase_add_loop_test(t, cpu, 0, 17);
    tcase_add_loop_test(t, cpu, 19, 21);
    tcase_add_loop_test(t, cpu_compiled_fast, 0, 17);
    tcase_add_loop_test(t, cpu_compiled_fast, 19, 21);
    tcase_add_loop_test(t, cuda, 0, 3);
    tcase_add_test(t, texts_and_back);
    tcase_add_test(t, texts_that_are_none);
    tcase_add_test(t, problems);
    suite_add_tcase(s, t);
    return s;
}
