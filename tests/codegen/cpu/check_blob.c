/* LLVM, the linker and the loader. IR compiles, links across objects to the same bytes every time,
 * and runs. What a kernel must not contain is refused with the reason. */
#include "codegen/cpu/link.h"
#include "codegen/cpu/llvm.h"
#include "runtime/base/blob.h"
#include "tests/shared/kernel/llvm_case.h"
#include "tests/shared/suite.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* out[i] = fn(in[i]) over tasks = elements, by vectors with a masked tail. */
static f8_object map_kernel(const char *symbol, f8_sfn fn, int lanes, f8_arena *arena)
{
    f8_diag d = {0};
    f8_llvm_module *m;
    ck_assert(f8_llvm_module_begin(&m, test_llvm, symbol, &d) == F8_OK);
    m->lanes = lanes;
    f8_ll_phase p;
    f8_ll_phase_begin(m, &p, symbol);
    LLVMValueRef in = f8_ll_phase_arg(m, &p, 0), out = f8_ll_phase_arg(m, &p, 1);
    f8_ll_loop l;
    f8_ll_loop_begin(m, &l, p.begin, p.end, f8_ll_i64(m, lanes), NULL, 0);
    LLVMValueRef mask = f8_ll_mask(m, m->ll->BuildSub(m->b, p.end, l.index, ""));
    LLVMValueRef x = f8_ll_vload(m, m->f32, f8_ll_at(m, m->f32, in, l.index), mask, NULL);
    LLVMValueRef y = f8_ll_scalar(m, fn, x);
    f8_ll_vstore(m, y, f8_ll_at(m, m->f32, out, l.index), mask);
    f8_ll_loop_end(m, &l, NULL);
    f8_ll_phase_end(m);
    f8_object o;
    ck_assert_msg(f8_llvm_module_compile(m, arena, &o, &d) == F8_OK, "%s", d.text);
    f8_llvm_module_end(m);
    return o;
}

static uint32_t rng(uint32_t *s)
{
    *s ^= *s << 13, *s ^= *s >> 17, *s ^= *s << 5;
    return *s;
}

static void same_bits(const float *got, const float *want, size_t n, const char *what)
{
    for (size_t i = 0; i < n; i++)
        ck_assert_msg((isnan(got[i]) && isnan(want[i])) || !memcmp(&got[i], &want[i], 4),
                      "%s: element %zu is %a, the interpreter says %a", what, i, (double)got[i],
                      (double)want[i]);
}

START_TEST(scalar_programs_match_the_interpreter)
{
    enum { N = 4099 }; /* a ragged tail in every width */
    static const f8_sfn fns[] = {F8_FN_EXP,  F8_FN_LOG, F8_FN_TANH, F8_FN_ERF,
                                 F8_FN_SIN,  F8_FN_COS, F8_FN_SIGMOID, F8_FN_ROUND_BF16};
    f8_arena arena;
    f8_arena_init(&arena, NULL);
    float *in = malloc((N + 1) * 4), *out = malloc((N + 1) * 4), *want = malloc(N * 4);
    uint32_t seed = 12345;
    for (int i = 0; i < N; i++) { /* half of it any bits at all, half of everyday size */
        uint32_t u = rng(&seed);
        memcpy(&in[i], &u, 4);
        if (i & 1)
            in[i] = (float)(int32_t)u * 0x1p-26f;
    }
    for (size_t f = 0; f < sizeof fns / sizeof *fns; f++)
        for (int lanes = 4; lanes <= 16; lanes *= 2) {
            f8_diag d = {0};
            f8_object o = map_kernel("k", fns[f], lanes, &arena);
            f8_link_image image;
            ck_assert_msg(f8_link(&o, 1, &arena, &image, &d) == F8_OK, "%s", d.text);
            f8_blob blob;
            ck_assert(f8_blob_map(&blob, image.bytes, image.size, image.code_size, &d) == F8_OK);
            f8_phase_fn fn = f8_blob_phase(&blob, f8_link_find(&image, "k")->offset);
            memset(out, 0x5a, (N + 1) * 4);
            fn((void *[]){in, out}, NULL, 0, N, NULL);
            f8_scalar_eval(fns[f], (uint32_t *)in, (uint32_t *)want, N);
            same_bits(out, want, N, f8_scalar_function(fns[f])->name);
            ck_assert_msg(((uint32_t *)out)[N] == 0x5a5a5a5a, "written beyond the mask");
            f8_blob_unmap(&blob);
        }
    free(in), free(out), free(want);
    f8_arena_end(&arena);
}
END_TEST

START_TEST(objects_link_deterministically)
{
    f8_arena arena;
    f8_arena_init(&arena, NULL);
    f8_diag d = {0};
    f8_link_image image[2];
    for (int round = 0; round < 2; round++) {
        f8_object o[3] = {map_kernel("k_exp", F8_FN_EXP, test_llvm->lanes, &arena),
                          map_kernel("k_log", F8_FN_LOG, test_llvm->lanes, &arena),
                          map_kernel("a_erf", F8_FN_ERF, test_llvm->lanes, &arena)};
        ck_assert_msg(f8_link(o, 3, &arena, &image[round], &d) == F8_OK, "%s", d.text);
    }
    ck_assert(image[0].size == image[1].size && image[0].code_size == image[1].code_size);
    ck_assert(!memcmp(image[0].bytes, image[1].bytes, image[0].size));
    ck_assert_uint_eq(image[0].symbol_count, 3);
    ck_assert_str_eq(image[0].symbols[0].name, "a_erf"); /* sorted */
    ck_assert_ptr_null(f8_link_find(&image[0], "k"));
    f8_blob blob;
    ck_assert(f8_blob_map(&blob, image[0].bytes, image[0].size, image[0].code_size, &d) == F8_OK);
    float x = 1.0f, y = 0;
    f8_blob_phase(&blob, f8_link_find(&image[0], "k_log")->offset)((void *[]){&x, &y}, NULL, 0, 1,
                                                                   NULL);
    ck_assert(y == 0.0f && !signbit(y));
    f8_blob_phase(&blob, f8_link_find(&image[0], "k_exp")->offset)((void *[]){&y, &y}, NULL, 0, 1,
                                                                   NULL);
    ck_assert(y == 1.0f);
    ck_assert(!f8_blob_phase(&blob, blob.code_size));
    f8_blob_unmap(&blob);
    f8_arena_end(&arena);
}
END_TEST

START_TEST(undefined_and_repeated_symbols_are_named)
{
    f8_arena arena;
    f8_arena_init(&arena, NULL);
    f8_diag d = {0};
    f8_object twice[2] = {map_kernel("same", F8_FN_EXP, 8, &arena),
                          map_kernel("same", F8_FN_LOG, 8, &arena)};
    f8_link_image image;
    ck_assert(f8_link(twice, 2, &arena, &image, &d) == F8_ERR_INTERNAL);
    ck_assert_ptr_nonnull(strstr(d.text, "two functions are called 'same'"));

    f8_llvm_module *m;
    d = (f8_diag){0};
    ck_assert(f8_llvm_module_begin(&m, test_llvm, "libcall", &d) == F8_OK);
    f8_ll_phase p;
    f8_ll_phase_begin(m, &p, "uses_sinf");
    LLVMValueRef x = f8_ll_load(m, m->f32, p.scratch);
    f8_ll_store(m, f8_ll_intrinsic(m, "llvm.sin", &x, 1), p.scratch);
    f8_ll_phase_end(m);
    f8_object o;
    ck_assert(f8_llvm_module_compile(m, &arena, &o, &d) == F8_OK);
    f8_llvm_module_end(m);
    ck_assert(f8_link(&o, 1, &arena, &image, &d) == F8_ERR_INTERNAL);
    ck_assert_ptr_nonnull(strstr(d.text, "undefined symbol 'sinf'"));
    f8_arena_end(&arena);
}
END_TEST

START_TEST(broken_ir_and_unknown_machines_are_errors)
{
    f8_arena arena;
    f8_arena_init(&arena, NULL);
    f8_diag d = {0};
    f8_llvm_module *m;
    ck_assert(f8_llvm_module_begin(&m, test_llvm, "broken", &d) == F8_OK);
    f8_ll_phase p;
    f8_ll_phase_begin(m, &p, "no_terminator");
    f8_object o;
    ck_assert(f8_llvm_module_compile(m, &arena, &o, &d) == F8_ERR_INTERNAL);
    ck_assert_ptr_nonnull(strstr(d.text, "malformed"));
    f8_llvm_module_end(m);

    f8_llvm *other;
    d = (f8_diag){0};
    ck_assert(f8_llvm_load(&other, &(f8_llvm_options){.cpu = "x86-64"}, &d) == F8_ERR_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(d.text, "AVX2"));
    d = (f8_diag){0};
    ck_assert(f8_llvm_load(&other, &(f8_llvm_options){.library = "libnot-there.so"}, &d) ==
              F8_ERR_LIBRARY);
    ck_assert_ptr_nonnull(strstr(d.text, "libnot-there.so"));
    f8_arena_end(&arena);
}
END_TEST

/* Every byte of an object changed in turn, and every prefix of it: an error or an image, no
 * crash. */
START_TEST(damaged_objects_do_not_crash)
{
    f8_arena arena;
    f8_arena_init(&arena, NULL);
    f8_object o = map_kernel("k", F8_FN_EXP, 8, &arena);
    uint8_t *copy = malloc(o.size);
    uint32_t seed = 99;
    for (size_t i = 0; i < o.size; i++) {
        f8_arena scratch;
        f8_arena_init(&scratch, NULL);
        f8_diag d = {0};
        f8_link_image image;
        memcpy(copy, o.bytes, o.size);
        copy[i] = (uint8_t)rng(&seed);
        (void)f8_link(&(f8_object){copy, o.size}, 1, &scratch, &image, &d);
        d = (f8_diag){0};
        uint8_t *prefix = malloc(i + 1);
        memcpy(prefix, o.bytes, i);
        (void)f8_link(&(f8_object){prefix, i}, 1, &scratch, &image, &d);
        free(prefix);
        f8_arena_end(&scratch);
    }
    free(copy);
    f8_arena_end(&arena);
}
END_TEST

static void *compile_many(void *user)
{
    f8_arena arena;
    f8_arena_init(&arena, NULL);
    for (int i = 0; i < 8; i++)
        map_kernel("k", (f8_sfn)(F8_FN_EXP + i % 4), test_llvm->lanes, &arena);
    f8_arena_end(&arena);
    return user;
}

START_TEST(modules_compile_in_parallel)
{
    pthread_t t[4];
    for (int i = 0; i < 4; i++)
        ck_assert(!pthread_create(&t[i], NULL, compile_many, NULL));
    for (int i = 0; i < 4; i++)
        pthread_join(t[i], NULL);
}
END_TEST

START_TEST(bad_images_are_refused)
{
    uint8_t bytes[64] = {0};
    f8_blob blob;
    f8_diag d = {0};
    ck_assert(f8_blob_map(&blob, bytes, 64, 64, &d) == F8_ERR_INPUT);
    ck_assert(f8_blob_map(&blob, bytes, 64, 4096, NULL) == F8_ERR_INPUT);
    ck_assert(f8_blob_map(&blob, bytes, 0, 0, NULL) == F8_OK);
    ck_assert_ptr_null(blob.base);
    f8_blob_unmap(&blob);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("blob");
    TCase *t = tcase_create("blob");
    tcase_set_timeout(t, 120);
    tcase_add_unchecked_fixture(t, test_llvm_load, test_llvm_unload);
    tcase_add_test(t, scalar_programs_match_the_interpreter);
    tcase_add_test(t, objects_link_deterministically);
    tcase_add_test(t, undefined_and_repeated_symbols_are_named);
    tcase_add_test(t, broken_ir_and_unknown_machines_are_errors);
    tcase_add_test(t, damaged_objects_do_not_crash);
    tcase_add_test(t, modules_compile_in_parallel);
    tcase_add_test(t, bad_images_are_refused);
    suite_add_tcase(s, t);
    return s;
}
