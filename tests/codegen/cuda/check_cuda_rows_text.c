/* The text of row kernels compiles with the real NVRTC for all CUDA targets, without spills or
 * local memory and with 16-byte accesses. check_cuda_rows.c tests what the kernels compute. By
 * default every fourth text is compiled, for one of the targets. A text that passed is remembered
 * in build/nvrtc (tests/shared/cuda/nvrtc_cache.h). */
#include "codegen/cuda/emit.h"
#include "tests/shared/cuda/cuda_plan.h"
#include "tests/shared/cuda/nvrtc_cache.h"
#include "tests/shared/kernel/kernel_bodies.h"
#include "tests/shared/kernel/kernel_device.h"
#include "tests/shared/suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EVERY = 4 }; /* one text of so many is compiled by `make check` */
static f8_cuda *toolkit;

/* NVRTC wherever it is but in the emulator's folder. */
static bool load_toolkit(void)
{
    unsetenv("FP8C_CUDA_PATH");
    if (cuda_plan_compiler(&toolkit))
        return true;
    f8_cuda_destroy(toolkit);
    return false;
}

static void unload_toolkit(void)
{
    f8_cuda_destroy(toolkit);
}

static int count(const char *text, const char *what)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, what)); at++)
        n++;
    return n;
}

/* Compiles a text of `n_kernels` row kernels, and checks it. */
static void check_text(const char *text, int n_kernels, const char *arch, int vectors)
{
    f8_arena arena;
    f8_nvrtc_result r;
    f8_diag d = {0};
    f8_arena_init(&arena, NULL);
    ck_assert_msg(f8_cuda_compile(toolkit, text, "rows", f8_cuda_header, "fp8c.cuh", arch,
                                  (f8_nvrtc_options){.want_ptx = true}, &arena, &r, &d) == F8_OK,
                  "%s: %s\n%s", arch, d.text, r.log);
    const int clean =
        count(r.log, " 0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads");
    ck_assert_msg(clean == n_kernels && count(r.log, "stack frame") == clean,
                  "%s: local memory\n%.3000s", arch, r.log);
    ck_assert_msg(!strstr(r.ptx, "ld.local") && !strstr(r.ptx, "st.local"), "%s: local memory",
                  arch);
    for (char *entry = strstr(r.ptx, ".entry"); entry && vectors;) {
        char *next = strstr(entry + 1, ".entry");
        if (next)
            *next = 0;
        ck_assert_msg(count(entry, "ld.global.v4") >= vectors &&
                          count(entry, "st.global.v4") >= vectors,
                      "%s: no 16-byte accesses\n%s", arch, entry);
        entry = next;
        if (entry)
            *entry = '.';
    }
    f8_arena_end(&arena);
}

/* Checks every kernel of the case for the CUDA targets whose turn it is: nothing in local memory.
 * `vectors`: the least number of 16-byte loads and stores in a kernel's PTX. */
static void check_compiled(kcase *c, int vectors)
{
    nvrtc_cache cache;
    char checks[32];
    nvrtc_cache_open(&cache, toolkit);
    snprintf(checks, sizeof checks, "rows, %d", vectors);
    for (size_t i = 0; f8_target_at(i); i++) {
        const f8_target *to = f8_target_at(i);
        if (to->kind != F8_TARGET_CUDA)
            continue;
        int n_kernels;
        const char *text = kc_cuda_text(c, to, &n_kernels);
        const nvrtc_entry entry = nvrtc_cache_entry(&cache, to->name, checks, text);
        /* the text itself: the kernels of all cases are called k0, k1, ... */
        if (!nvrtc_in_turn(text, to->name, EVERY) || nvrtc_cache_has(&entry))
            continue;
        check_text(text, n_kernels, to->name, vectors);
        nvrtc_cache_keep(&entry, "check_cuda_rows_text");
    }
}

START_TEST(compiled_norms)
{
    static const int wide[] = {128, 768, 1024, 1600, 4096, 11008};
    kcase c;
    kc_begin(&c);
    kc_layernorm(&c, F8_BF16, 100, wide[_i], true);
    check_compiled(&c, wide[_i] > 1024 ? 0 : 1); /* wider rows have narrower vectors */
    kc_end(&c);
}
END_TEST

START_TEST(compiled_columns)
{
    static const int wide[] = {128, 1024, 3072};
    kcase c;
    kc_begin(&c);
    kc_norm_backward(&c, 100, wide[_i], true, true, true);
    kc_norm_backward(&c, 100, wide[_i], true, false, true);
    kc_norm_backward(&c, 100, wide[_i], false, true, true);
    kc_norm_backward(&c, 100, wide[_i], true, true, false);
    check_compiled(&c, 1);
    kc_end(&c);
}
END_TEST

/* Wide rows, batch by batch, at 1024 threads and 64 registers where the target's shared memory has
 * room for their tiles. */
START_TEST(compiled_wide_columns)
{
    static const int wide[] = {2048, 4096};
    kcase c;
    kc_begin(&c);
    kc_residual_norm(&c, 100, wide[_i]);
    kc_norm_backward(&c, 100, wide[_i], true, true, true);
    kc_norm_backward(&c, 100, wide[_i], true, true, false);
    check_compiled(&c, 0);
    kc_end(&c);
}
END_TEST

/* Up to 1024 threads a row, which leave 64 registers each. */
START_TEST(compiled_losses)
{
    static const int wide[] = {9000, 50257, 128256};
    kcase c;
    kc_begin(&c);
    kc_loss(&c, F8_F32, 100, wide[_i]);
    kc_loss(&c, F8_BF16, 100, wide[_i]);
    check_compiled(&c, 0);
    kc_end(&c);
    for (f8_dtype dtype = F8_F32; dtype <= F8_BF16; dtype++) {
        kc_begin(&c);
        kc_wide_loss(&c, dtype, 100, wide[_i], (kc_wide){4096, 16, 1, KC_WIDE_NONE});
        check_compiled(&c, 0);
        kc_end(&c);
    }
}
END_TEST

/* Magnitudes of columns, with codes, sums and reductions. */
START_TEST(compiled_maxima)
{
    static const int wide[] = {128, 512, 768, 1024, 3072};
    kcase c;
    kc_begin(&c);
    kc_column_blocks(&c, 100, wide[_i], (kc_blocks){.block = {32}});
    kc_column_blocks(&c, 100, wide[_i], (kc_blocks){.block = {32, 64}, .codes = true});
    kc_column_blocks(&c, 100, wide[_i], (kc_blocks){.block = {64, 4}, .reduce = true});
    kc_column_blocks(&c, 100, wide[_i],
                     (kc_blocks){.block = {32, 64}, .reduce = true, .sums = true});
    check_compiled(&c, 1);
    kc_end(&c);
}
END_TEST

START_TEST(compiled_row_blocks)
{
    kcase c;
    kc_begin(&c);
    kc_row_blocks(&c, 300, 32, F8_BF16, false);
    kc_row_blocks(&c, 300, 128, F8_BF16, true);
    kc_row_blocks(&c, 300, 128, F8_F32, false);
    kc_scaled_runs(&c, 3, 32, 4096, true);
    check_compiled(&c, 0); /* eight codes are 8 bytes */
    kc_end(&c);
}
END_TEST

/* Blocks of columns, alone and with all that comes along. */
START_TEST(compiled_column_runs)
{
    static const int wide[] = {160, 768, 1024, 4096};
    kcase c;
    kc_begin(&c);
    kc_column_runs(&c, 100, wide[_i], 128, 0);
    kc_column_runs(&c, 100, wide[_i], 32, KC_REDUCED | KC_MAXIMA);
    kc_column_runs(&c, 100, wide[_i], 32, KC_MAXIMA | KC_TURNED);
    check_compiled(&c, 0);
    kc_end(&c);
}
END_TEST

/* Ragged rows; a softmax over a vocabulary; flat kernels of several dtypes. */
START_TEST(compiled_others)
{
    kcase c;
    kc_begin(&c);
    kc_layernorm(&c, F8_F32, 9, 77, true);
    kc_layernorm(&c, F8_BF16, 9, 1001, true);
    kc_norm_backward(&c, 100, 999, true, true, true);
    f8_graph *g = c.g;
    const f8_ref x = kc_input(&c, F8_F32, 2, 4, 50257), top = f8_reduce(g, F8_OP_REDUCE_MAX, x, -1);
    const f8_ref e = kc_exp_off(&c, x, top);
    kc_out(&c,
           f8_cast(g, f8_binary(g, F8_OP_DIV, e, f8_reduce(g, F8_OP_REDUCE_SUM, e, -1)), F8_BF16));
    kc_phase(&c, 4, 50257);
    check_compiled(&c, 0);
    kc_end(&c);
    kc_begin(&c);
    g = c.g;
    const f8_ref y = kc_input(&c, F8_F32, 1, 4096), b = kc_input(&c, F8_BF16, 1, 4096);
    kc_out(&c, f8_unary(g, F8_OP_TANH, y));
    kc_phase(&c, 1, 4096);
    kc_out(&c, f8_cast(g, f8_unary(g, F8_OP_SIGMOID, f8_cast(g, b, F8_F32)), F8_BF16));
    kc_phase(&c, 1, 4096);
    kc_out(&c, f8_cast(g, f8_unary(g, F8_OP_ERF, y), F8_BF16));
    kc_phase(&c, 1, 4096);
    check_compiled(&c, 1);
    kc_end(&c);
}
END_TEST

Suite *f8_suite(void)
{
    if (!load_toolkit())
        return NULL;
    Suite *s = suite_create("cuda rows text");
    TCase *compiler = tcase_create("nvrtc");
    tcase_set_timeout(compiler, 300);
    tcase_add_unchecked_fixture(compiler, NULL, unload_toolkit);
    tcase_add_loop_test(compiler, compiled_norms, 0, 6);
    tcase_add_loop_test(compiler, compiled_columns, 0, 3);
    tcase_add_loop_test(compiler, compiled_wide_columns, 0, 2);
    tcase_add_loop_test(compiler, compiled_losses, 0, 3);
    tcase_add_loop_test(compiler, compiled_maxima, 0, 5);
    tcase_add_test(compiler, compiled_row_blocks);
    tcase_add_loop_test(compiler, compiled_column_runs, 0, 4);
    tcase_add_test(compiler, compiled_others);
    suite_add_tcase(s, compiler);
    return s;
}
