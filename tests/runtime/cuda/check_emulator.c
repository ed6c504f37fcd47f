/* The emulator itself: what it must compute, and which mistakes it must catch, with kernels written
 * by hand. check_emulator_arithmetic.c tests conversions and f32 operations, check_emulator_gemm.c
 * GEMMs, check_emulator_api.c calls and their errors. Sums and products are exact in f32 where no
 * tolerance is named. */
#include "tests/shared/cuda/emulator.h"
#include "tests/shared/suite.h"

#include "codegen/cuda/emit.h"
#include "ir/num/fp8.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static emu e;

static void setup(void)
{
    emu_open(&e);
}

static void teardown(void)
{
    emu_close(&e);
}

/* ---- what it computes ---- */

START_TEST(vector_add)
{
    enum { N = 1000 };
    float a[N], b[N], c[N];
    for (int i = 0; i < N; i++) {
        a[i] = (float)i;
        b[i] = (float)(3 * i);
    }
    struct {
        CUdeviceptr a, b, c;
        int64_t n, tasks;
    } p = {emu_upload(&e, a, sizeof a), emu_upload(&e, b, sizeof b), emu_alloc(&e, sizeof c), N,
           (N + 63) / 64};
    ck_assert_int_eq(emu_run(&e, emu_add_text, "add", 3, 64, 0, &p), 0);
    emu_download(&e, c, p.c, sizeof c);
    for (int i = 0; i < N; i++)
        ck_assert_msg(c[i] == (float)(4 * i), "%d: %g", i, c[i]);
}
END_TEST

/* A tree in shared memory: every level needs its barrier. */
static const char reduce_text[] =
    "#include \"fp8c.cuh\"\n"
    "struct reduce_params { const f8_u32 *x; f8_u32 *sum; f8_i64 tasks; };\n"
    "F8_KERNEL(reduce, 256, 1)\n"
    "{\n"
    "    F8_SHARED(f8_u32, part, 256);\n"
    "    const int t = f8_thread();\n"
    "    for (f8_i64 task = f8_block(); task < p.tasks; task += f8_blocks()) {\n"
    "        part[t] = p.x[task * 256 + t];\n"
    "        f8_sync();\n"
    "        for (int half = 128; half; half /= 2) {\n"
    "            if (t < half)\n"
    "                part[t] += part[t + half];\n"
    "            BARRIER;\n"
    "        }\n"
    "        if (t == 0)\n"
    "            p.sum[task] = part[0];\n"
    "        f8_sync();\n"
    "    }\n"
    "}\n";

/* How many of `tasks` sums are wrong. */
static int reduce_wrong(const char *barrier, int grid)
{
    enum { TASKS = 7 };
    uint32_t x[TASKS * 256], sum[TASKS], state = 12345;
    char text[2048];
    snprintf(text, sizeof text, "#define BARRIER %s\n%s", barrier, reduce_text);
    for (int i = 0; i < TASKS * 256; i++)
        x[i] = state = state * 1664525u + 1013904223u;
    struct {
        CUdeviceptr x, sum;
        int64_t tasks;
    } p = {emu_upload(&e, x, sizeof x), emu_alloc(&e, sizeof sum), TASKS};
    ck_assert_int_eq(emu_run(&e, text, "reduce", grid, 256, 0, &p), 0);
    emu_download(&e, sum, p.sum, sizeof sum);
    int wrong = 0;
    for (int t = 0; t < TASKS; t++) {
        uint32_t want = 0;
        for (int i = 0; i < 256; i++)
            want += x[t * 256 + i];
        wrong += sum[t] != want;
    }
    return wrong;
}

START_TEST(block_reduction)
{
    for (int grid = 1; grid < 9; grid += 3)
        ck_assert_int_eq(reduce_wrong("f8_sync()", grid), 0);
    setenv("FP8C_EMULATOR_SEED", "7", 1);
    ck_assert_int_eq(reduce_wrong("f8_sync()", 4), 0);
}
END_TEST

/* Without the barrier the order decides: a random one must show it. */
START_TEST(missing_barrier)
{
    setenv("FP8C_EMULATOR_SEED", "1", 1);
    ck_assert_int_gt(reduce_wrong("(void)0", 7), 0);
}
END_TEST

/* The block that ends last adds what each block has stored. */
static const char last_text[] =
    "#include \"fp8c.cuh\"\n"
    "struct last_params { f8_u32 *part, *sum, *counter; };\n"
    "F8_KERNEL(last, 64, 1)\n"
    "{\n"
    "    F8_SHARED(f8_u32, is, 1);\n"
    "    if (f8_thread() == 0)\n"
    "        p.part[f8_block()] = (f8_u32)f8_block() + 1;\n"
    "    BEFORE;\n"
    "    MEET;\n"
    "    const f8_u32 most = (f8_u32)f8_blocks() - 1;\n"
    "    if (f8_thread() == 0) {\n"
    "        is[0] = f8_count(p.counter, most) == most;\n"
    "        AFTER;\n"
    "    }\n"
    "    f8_sync();\n"
    "    for (int i = 0; is[0] && f8_thread() == 0 && i < f8_blocks(); i++)\n"
    "        p.sum[0] += p.part[i];\n"
    "}\n";

enum { BLOCKS = 9 };

/* Three launches, each of which adds 45 to the sum; the error of the first that fails. */
static int last_block(const char *before, const char *meet, const char *after, uint32_t sum[3])
{
    char text[2048];
    uint32_t zero[BLOCKS] = {0}, counter;
    snprintf(text, sizeof text, "#define BEFORE %s\n#define MEET %s\n#define AFTER %s\n%s", before,
             meet, after, last_text);
    struct {
        CUdeviceptr part, sum, counter;
    } p = {emu_upload(&e, zero, sizeof zero), emu_upload(&e, zero, 4), emu_upload(&e, zero, 4)};
    for (int run = 0; run < 3; run++) {
        const int error = emu_run(&e, text, "last", BLOCKS, 64, 0, &p);
        if (error)
            return error;
        emu_download(&e, &sum[run], p.sum, 4);
        emu_download(&e, &counter, p.counter, 4);
        ck_assert_uint_eq(counter, 0);
    }
    return 0;
}

START_TEST(the_last_block)
{
    uint32_t sum[3];
    if (_i)
        setenv("FP8C_EMULATOR_SEED", "11", 1);
    ck_assert_int_eq(last_block("f8_fence()", "f8_sync()", "f8_fence()", sum), 0);
    for (uint32_t run = 0; run < 3; run++)
        ck_assert_uint_eq(sum[run], 45 * (run + 1));
}
END_TEST

/* Blocks do not run at the same time here, so only the rule shows that a fence is missing. */
START_TEST(missing_fence)
{
    static const char *const bad[][3] = {{"(void)0", "f8_sync()", "f8_fence()"},
                                         {"f8_fence()", "(void)0", "f8_fence()"},
                                         {"(void)0", "f8_sync(); f8_fence()", "f8_fence()"},
                                         {"if (f8_thread()) f8_fence()", "f8_sync()", "f8_fence()"},
                                         {"f8_fence()", "f8_sync()", "(void)0"}};
    uint32_t sum[3];
    ck_assert_int_eq(last_block(bad[_i][0], bad[_i][1], bad[_i][2], sum), CUDA_ERROR_LAUNCH_FAILED);
}
END_TEST

static const char shuffle_text[] =
    "#include \"fp8c.cuh\"\n"
    "struct shuffle_params { f8_u32 *out; float *sum; };\n"
    "F8_KERNEL(shuffle, 64, 1)\n"
    "{\n"
    "    const int t = f8_thread();\n"
    "    p.out[t] = f8_shfl((f8_u32)(100 + t), (t * 5 + 3) & 31);\n"
    "    float x = (float)t;\n"
    "    for (int m = 16; m; m /= 2)\n"
    "        x += f8_shfl_xor(x, m);\n"
    "    p.sum[t] = x;\n"
    "}\n";

START_TEST(shuffles)
{
    uint32_t out[64];
    float sum[64];
    struct {
        CUdeviceptr out, sum;
    } p = {emu_alloc(&e, sizeof out), emu_alloc(&e, sizeof sum)};
    if (_i)
        setenv("FP8C_EMULATOR_SEED", "3", 1);
    ck_assert_int_eq(emu_run(&e, shuffle_text, "shuffle", 1, 64, 0, &p), 0);
    emu_download(&e, out, p.out, sizeof out);
    emu_download(&e, sum, p.sum, sizeof sum);
    for (int t = 0; t < 64; t++) {
        const int warp = t / 32 * 32;
        ck_assert_uint_eq(out[t], (unsigned)(100 + warp + ((t * 5 + 3) & 31)));
        ck_assert(sum[t] == (float)(31 * 16 + 32 * warp));
    }
}
END_TEST

/* One 16 x 16 by 16 x 8 product from shared memory, through ldmatrix and through registers alone.
 */
static const char mma_text[] =
    "#include \"fp8c.cuh\"\n"
    "struct mma_params { const f8_u32 *a, *b; float *d; f8_i64 by_ldmatrix; };\n"
    "F8_KERNEL(mma, 32, 1)\n"
    "{\n"
    "    F8_SHARED(f8_u32, a, 16 * 8);\n" /* [16][16] bf16 */
    "    F8_SHARED(f8_u32, b, 16 * 8);\n" /* [16 k][16 n] bf16: of n the first 8 count */
    "    const int l = f8_thread(), g = l / 4, t = l % 4;\n"
    "    for (int i = l; i < 128; i += 32) {\n"
    "        a[i] = p.a[i];\n"
    "        b[i] = p.b[i];\n"
    "    }\n"
    "    f8_sync();\n"
    "    f8_u32 ra[4], rb[4];\n"
    "    const f8_u16 *b16 = (const f8_u16 *)b;\n"
    "    if (p.by_ldmatrix) {\n"
    "        f8_ldmatrix_x4(ra, a + (l % 16) * 8 + l / 16 * 4);\n"
    "        f8_ldmatrix_x4_trans(rb, b + (l % 16) * 8 + l / 16 * 4);\n"
    "    } else {\n"
    "        ra[0] = a[g * 8 + t];\n"
    "        ra[1] = a[(g + 8) * 8 + t];\n"
    "        ra[2] = a[g * 8 + t + 4];\n"
    "        ra[3] = a[(g + 8) * 8 + t + 4];\n"
    "        for (int i = 0; i < 2; i++)\n"
    "            rb[i] = b16[(2 * t + 8 * i) * 16 + g] | (f8_u32)b16[(2 * t + 8 * i + 1) * 16 + g] "
    "<< 16;\n"
    "    }\n"
    "    float d[4] = {1.0f, 2.0f, 3.0f, 4.0f};\n"
    "    f8_mma_bf16(d, ra, rb);\n"
    "    for (int i = 0; i < 4; i++)\n"
    "        p.d[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = d[i];\n"
    "}\n";

START_TEST(matrix_product)
{
    uint16_t a[16][16], b[16][16];
    float d[16][8];
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 16; j++) {
            a[i][j] = f8_f32_to_bf16((float)((i * 7 + j * 3) % 11 - 5));
            b[i][j] = f8_f32_to_bf16((float)((i * 5 + j * 2) % 13 - 6));
        }
    struct {
        CUdeviceptr a, b, d;
        int64_t by_ldmatrix;
    } p = {emu_upload(&e, a, sizeof a), emu_upload(&e, b, sizeof b), emu_alloc(&e, sizeof d), _i};
    ck_assert_int_eq(emu_run(&e, mma_text, "mma", 1, 32, 0, &p), 0);
    emu_download(&e, d, p.d, sizeof d);
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 8; j++) {
            float want = (float)(1 + j % 2 + i / 8 * 2);
            for (int k = 0; k < 16; k++)
                want += f8_bf16_to_f32(a[i][k]) * f8_bf16_to_f32(b[k][j]);
            ck_assert_msg(d[i][j] == want, "[%d, %d]: %g, not %g", i, j, d[i][j], want);
        }
}
END_TEST

/* 32 threads copy 16 bytes each, in two groups; the last `PENDING` groups are not waited for before
 * the bytes are read. */
static const char copy_text[] = "#include \"fp8c.cuh\"\n"
                                "struct copy_params { const f8_x4 *in; f8_x4 *out; };\n"
                                "F8_KERNEL(copy, 32, 1)\n"
                                "{\n"
                                "    F8_SHARED_DYNAMIC(bytes);\n"
                                "    f8_x4 *near = (f8_x4 *)bytes;\n"
                                "    const int t = f8_thread();\n"
                                "    f8_copy_async16(near + t, p.in + t, t != 5);\n"
                                "    f8_copy_commit();\n"
                                "    f8_copy_async16(near + 32 + t, p.in + 32 + t, true);\n"
                                "    f8_copy_commit();\n"
                                "    f8_copy_wait<PENDING>();\n"
                                "    f8_sync();\n"
                                "    p.out[t] = near[31 - t];\n"
                                "    p.out[32 + t] = near[32 + 31 - t];\n"
                                "    f8_copy_wait<0>();\n"
                                "}\n";

/* Whether the first and the second group were right. */
static void copy_right(int pending, bool right[2])
{
    uint32_t in[64][4], out[64][4];
    char text[2048];
    snprintf(text, sizeof text, "#define PENDING %d\n%s", pending, copy_text);
    for (uint32_t i = 0; i < 64; i++)
        for (uint32_t j = 0; j < 4; j++)
            in[i][j] = i * 4 + j + 1;
    struct {
        CUdeviceptr in, out;
    } p = {emu_upload(&e, in, sizeof in), emu_alloc(&e, sizeof out)};
    ck_assert_int_eq(emu_run(&e, text, "copy", 1, 32, 64 * 16, &p), 0);
    emu_download(&e, out, p.out, sizeof out);
    right[0] = right[1] = true;
    for (int i = 0; i < 64; i++)
        for (int j = 0; j < 4; j++) {
            const uint32_t from = (uint32_t)(i / 32 * 32 + 31 - i % 32);
            right[i / 32] = right[i / 32] && out[i][j] == (from == 5 ? 0 : in[from][j]);
        }
}

START_TEST(async_copies)
{
    bool right[2];
    copy_right(0, right);
    ck_assert(right[0] && right[1]);
    setenv("FP8C_EMULATOR_SEED", "5", 1);
    copy_right(0, right);
    ck_assert(right[0] && right[1]);
}
END_TEST

START_TEST(missing_wait)
{
    bool right[2];
    copy_right(1, right);
    ck_assert(right[0] && !right[1]);
    copy_right(2, right);
    ck_assert(!right[0] && !right[1]);
}
END_TEST

/* ---- what it catches ---- */

/* The body of kernel k, of 64 threads, with a u32 array p.out of 64; the error that the launch ends
 * in. */
static int body(const char *text, size_t dynamic)
{
    char whole[2048];
    snprintf(whole, sizeof whole,
             "#include \"fp8c.cuh\"\n"
             "struct k_params { f8_u32 *out; };\n"
             "F8_KERNEL(k, 64, 1)\n{\n    const int t = f8_thread();\n    %s\n}\n",
             text);
    struct {
        CUdeviceptr out;
    } p = {emu_alloc(&e, 64 * 4)};
    return emu_run(&e, whole, "k", 2, 64, dynamic, &p);
}

static const struct {
    const char *text;
    int error;
} caught[] = {
    {"p.out[t] = 1;", CUDA_SUCCESS},
    {"if (t != 40) f8_sync();", CUDA_ERROR_LAUNCH_FAILED},
    {"if (t < 32) f8_sync(); else f8_sync_warp();", CUDA_ERROR_LAUNCH_FAILED},
    {"if (t != 3) p.out[t] = f8_shfl_xor((f8_u32)t, 1);", CUDA_ERROR_LAUNCH_FAILED},
    {"if (t % 2) f8_sync_warp(); else p.out[t] = f8_shfl((f8_u32)t, 1);", CUDA_ERROR_LAUNCH_FAILED},
    {"p.out[1024 + t] = 1;", CUDA_ERROR_ILLEGAL_ADDRESS},
    {"f8_u32 *volatile q = 0; if (t == 7) q[1] = 1;", CUDA_ERROR_ILLEGAL_ADDRESS},
    {"f8_x4 x = {{1, 2, 3, 4}}; if (t == 9) *(f8_x4 *)(p.out + 1) = x;",
     CUDA_ERROR_MISALIGNED_ADDRESS},
    {"F8_SHARED(f8_u32, s, 64); s[t] = 1; f8_sync(); s[64 + (t == 3)] = 2;",
     CUDA_ERROR_ILLEGAL_ADDRESS},
    {"F8_SHARED(f8_x2, s, 32); f8_u32 r[4]; f8_ldmatrix_x4(r, s + 1); p.out[t] = r[0];",
     CUDA_ERROR_MISALIGNED_ADDRESS},
    {"f8_u32 r[4]; f8_ldmatrix_x4(r, p.out); p.out[t] = r[0];", CUDA_ERROR_ILLEGAL_ADDRESS},
    {"f8_x2 x = {{1, 2}}; if (t == 9) *(f8_x2 *)(p.out + 1) = x;", CUDA_ERROR_MISALIGNED_ADDRESS},
    {"f8_x2 x = {{1, 2}}; if (t == 9) x = *(f8_x2 *)(p.out + 1); p.out[t] = x.v[0];",
     CUDA_ERROR_MISALIGNED_ADDRESS},
    {"if (t == 9) { const f8_x2 x = *(f8_x2 *)(p.out + 1); p.out[t] = x.v[0]; }",
     CUDA_ERROR_MISALIGNED_ADDRESS},
    {"const f8_x4 x = *(f8_x4 *)(p.out + 2); p.out[t] = x.v[0] + x.v[2];",
     CUDA_ERROR_MISALIGNED_ADDRESS},
    {"if (t == 9) p.out[t] = ((f8_x2 *)(p.out + 1))->v[1];", CUDA_ERROR_MISALIGNED_ADDRESS},
    {"F8_SHARED(f8_x4, s, 64); f8_copy_vector<16>(s + t, p.out); f8_copy_commit();",
     CUDA_ERROR_LAUNCH_FAILED}, /* still under way where the thread ends */
    {"F8_SHARED(f8_x4, s, 64); f8_copy_vector<8>((f8_u8 *)(s + t) + 4, p.out); f8_copy_commit(); "
     "f8_copy_wait<0>();",
     CUDA_ERROR_MISALIGNED_ADDRESS},
    {"F8_SHARED(f8_x4, s, 128); f8_copy_vector<32>(s + 2 * t, p.out + 2); f8_copy_commit(); "
     "f8_copy_wait<0>();",
     CUDA_ERROR_MISALIGNED_ADDRESS},
    {"volatile int zero = 0; p.out[t] = t / zero;", CUDA_ERROR_LAUNCH_FAILED},
    /* A stack that overflows. */
    {"volatile f8_u32 far[200000]; far[t] = 1; far[199999 - t] = far[t]; p.out[t] = far[199000 + "
     "t];",
     CUDA_ERROR_ILLEGAL_ADDRESS},
};

START_TEST(mistakes)
{
    if (_i >= (int)(sizeof caught / sizeof *caught))
        setenv("FP8C_EMULATOR_SEED", "11", 1);
    const int i = _i % (int)(sizeof caught / sizeof *caught);
    const int got = body(caught[i].text, 0);
    ck_assert_msg(got == caught[i].error, "%s: %d, not %d", caught[i].text, got, caught[i].error);
    /* The error sticks until the context goes. */
    size_t free_bytes, total;
    ck_assert_int_eq(e.cu.cuMemGetInfo_v2(&free_bytes, &total), caught[i].error);
    emu_close(&e);
    emu_open(&e);
    ck_assert_int_eq(body("p.out[t] = 1;", 0), 0);
}
END_TEST

START_TEST(fresh_memory_is_poison)
{
    uint32_t out[64];
    struct {
        CUdeviceptr out;
    } p = {emu_alloc(&e, sizeof out)};
    emu_download(&e, out, p.out, sizeof out);
    ck_assert(isnan(f8_from_bits(out[17])));
    ck_assert_int_eq(emu_run(&e,
                             "#include \"fp8c.cuh\"\n"
                             "struct k_params { f8_u32 *out; };\n"
                             "F8_KERNEL(k, 64, 1) {\n"
                             "    F8_SHARED(f8_u32, s, 64);\n"
                             "    F8_SHARED_DYNAMIC(more);\n"
                             "    const int t = f8_thread();\n"
                             "    p.out[t] = t < 32 ? s[t] : ((f8_u32 *)more)[t];\n"
                             "    s[t] = 0;\n" /* of the first block: not there for the second */
                             "    ((f8_u32 *)more)[t] = 0;\n"
                             "}\n",
                             "k", 2, 64, 256, &p),
                     0);
    emu_download(&e, out, p.out, sizeof out);
    for (int i = 0; i < 64; i++)
        ck_assert(isnan(f8_from_bits(out[i])));
}
END_TEST

/* ---- the two headers ---- */

/* The names a header defines for kernels: NAME( after F8_DEV, and #define F8_... of those. */
static size_t declared(const char *text, const char *names[], size_t room)
{
    size_t n = 0;
    for (const char *at = text; (at = strstr(at, "F8_DEV ")) != NULL; at++) {
        const char *end = strchr(at, '(');
        const char *name = end;
        while (name > at && (name[-1] == '_' || (name[-1] >= '0' && name[-1] <= '9') ||
                             (name[-1] >= 'a' && name[-1] <= 'z')))
            name--;
        if (strncmp(name, "f8_", 3) == 0 && strncmp(name, "f8_emu_", 7) != 0 && n < room)
            names[n++] = name;
    }
    return n;
}

static size_t name_length(const char *name)
{
    return strcspn(name, "(");
}

START_TEST(headers_agree)
{
    const char *real[128], *ours[128];
    char *text = emu_read_file("tests/emulator/fp8c.cuh");
    const size_t n_real = declared(f8_cuda_header, real, 128), n_ours = declared(text, ours, 128);
    ck_assert_uint_gt(n_real, 20);
    for (size_t i = 0; i < n_real; i++) {
        bool found = false;
        for (size_t j = 0; j < n_ours; j++)
            found = found || (name_length(real[i]) == name_length(ours[j]) &&
                              strncmp(real[i], ours[j], name_length(real[i])) == 0);
        ck_assert_msg(found, "%.*s is not in the emulator's header", (int)name_length(real[i]),
                      real[i]);
    }
    free(text);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *suite = suite_create("emulator");
    TCase *tc = tcase_create("emulator");
    suite_add_tcase(suite, tc);
    tcase_set_timeout(tc, 120);
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, vector_add);
    tcase_add_test(tc, block_reduction);
    tcase_add_test(tc, missing_barrier);
    tcase_add_loop_test(tc, the_last_block, 0, 2);
    tcase_add_loop_test(tc, missing_fence, 0, 5);
    tcase_add_loop_test(tc, shuffles, 0, 2);
    tcase_add_loop_test(tc, matrix_product, 0, 2);
    tcase_add_test(tc, async_copies);
    tcase_add_test(tc, missing_wait);
    tcase_add_loop_test(tc, mistakes, 0, 2 * (int)(sizeof caught / sizeof *caught));
    tcase_add_test(tc, fresh_memory_is_poison);
    tcase_add_test(tc, headers_agree);
    return suite;
}
