/* GEMMs of the CPU: decoding, values against a reference in double, the same bits for any threads
 * and operand forms, bounds of the workspace, bad input. */
#include "ir/num/fp8.h"
#include "runtime/cpu/gemm_internal.h"
#include "runtime/cpu/gemm_simd.h"

#include "tests/shared/kernel/gemm_problem.h"
#include "tests/shared/random.h"
#include "tests/shared/suite.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static gemm_setup g;
static uint32_t seed = 1;

static void setup(void)
{
    gemm_setup_make(&g);
}

static void teardown(void)
{
    gemm_setup_end(&g);
}

/* Values and bits; the same bits from operands decoded beforehand. */
static void check_problem(f8_gemm_desc desc)
{
    gemm_problem p = gemm_problem_make(desc, &seed);
    gemm_problem_check(&g, &p);
    const uint32_t chosen = desc.algorithm ? desc.algorithm : f8_gemm_choose(g.lib, &desc);
    if (chosen !=
        F8_GEMM_ONEDNN_BF16) { /* what AUTO is where the CPU has AMX: it doesn't take f32 */
        gemm_problem decoded = p;
        decoded.desc.a = decoded.desc.b = F8_F32;
        decoded.desc.round_a = decoded.desc.round_b = false;
        decoded.desc.algorithm = chosen; /* for a small product of f32 AUTO takes f64 */
        decoded.a = gemm_problem_decoded(&p, true, false);
        decoded.b = gemm_problem_decoded(&p, false, false);
        float *c = gemm_problem_run(&g, &p, 1, 0), *plain = gemm_problem_run(&g, &decoded, 2, 2);
        ck_assert_msg(memcmp(c, plain, p.c_count * sizeof *c) == 0,
                      "bits differ from decoded operands");
        free(c);
        free(plain);
        free(decoded.a);
        free(decoded.b);
    }
    gemm_problem_end(&p);
}

/* ---- tests ---- */

static const int64_t shapes[][3] = {
    {1, 1, 1},       {1, 1, 300},      {1, 300, 1},    {300, 1, 1},      {3, 256, 1000},
    {256, 3, 1000},  {5, 7, 1},        {1, 513, 129},  {513, 1, 129},    {64, 64, 64},
    {16, 1000, 33},  {130, 257, 1025}, {257, 130, 70}, {300, 200, 2100}, {40, 513, 3000},
    {600, 50, 1024}, {128, 128, 1024},
};

enum { N_SHAPES = sizeof shapes / sizeof *shapes };

/* Every dtype (0..4: the sources of gemm_simd.h) on each side, in turn with all flags. */
static void set_operand(f8_gemm_desc *d, int kind, bool is_a)
{
    static const f8_dtype dtypes[] = {F8_F32, F8_F32, F8_BF16, F8_E4M3, F8_E5M2};
    *(is_a ? &d->a : &d->b) = dtypes[kind];
    *(is_a ? &d->round_a : &d->round_b) = kind == 1;
}

START_TEST(shapes_and_forms)
{
    const int64_t *s = shapes[_i];
    for (int form = 0; form < 20; form++) {
        f8_gemm_desc d = {.m = s[0], .n = s[1], .k = s[2]};
        set_operand(&d, form % 5, true);
        set_operand(&d, (form + form / 5) % 5, false);
        d.trans_a = (form ^ _i) & 1;
        d.trans_b = ((form ^ _i) >> 1) & 1;
        d.accumulate = (form >> 2) & 1;
        d.has_alpha = (form % 3) == 1;
        gemm_set_strides(&d, form % 4 ? 0 : 5);
        check_problem(d);
    }
}
END_TEST

START_TEST(weight_gradient)
{
    f8_gemm_desc d = {.m = 192,
                      .n = 320,
                      .k = 1024,
                      .a = F8_E4M3,
                      .b = F8_E5M2,
                      .trans_a = true,
                      .accumulate = true,
                      .has_alpha = true};
    gemm_set_strides(&d, 0);
    check_problem(d);
    d.m = 320, d.n = 192, d.a = F8_BF16, d.b = F8_BF16, d.has_alpha = false;
    gemm_set_strides(&d, 0);
    check_problem(d);
}
END_TEST

/* More k than is packed at a time, either side shared. */
START_TEST(several_rounds)
{
    f8_gemm_desc d = {
        .m = 256, .n = 260, .k = 20000, .a = F8_BF16, .b = F8_E4M3, .has_alpha = true};
    gemm_set_strides(&d, 0);
    check_problem(d);
    d.m = 270, d.accumulate = d.trans_b = d.trans_a = true;
    gemm_set_strides(&d, 0);
    check_problem(d);
}
END_TEST

START_TEST(bf16_algorithm)
{
    f8_gemm_desc d = {
        .m = 70, .n = 150, .k = 1100, .a = F8_BF16, .b = F8_E4M3, .algorithm = F8_GEMM_ONEDNN_BF16};
    gemm_set_strides(&d, 3);
    f8_gemm *gemm;
    f8_diag diag = {0};
    f8_status status = f8_gemm_prepare(g.lib, &d, 1, &gemm, &diag);
    if (status == F8_ERR_UNSUPPORTED) {
        test_skip("GEMMs of bf16 by oneDNN", "%s", diag.text);
        return;
    }
    ck_assert_int_eq(status, F8_OK);
    f8_gemm_release(gemm);
    for (int form = 0; form < 16; form++) {
        set_operand(&d, 1 + form % 4, true);
        set_operand(&d, 1 + form / 4, false);
        d.trans_a = form & 1, d.trans_b = (form >> 1) & 1, d.accumulate = (form >> 2) & 1;
        d.k = form & 8 ? 1100 : 64;
        gemm_set_strides(&d, form & 4 ? 3 : 0);
        check_problem(d);
        int64_t m = d.m;
        d.m = d.n, d.n = m;
    }
}
END_TEST

static float *values_of(f8_dtype dtype, bool round, const void *data, size_t n)
{
    float *out = malloc(n * sizeof *out);
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = 0;
        memcpy(&bits, (const char *)data + i * f8_dtype_size(dtype), f8_dtype_size(dtype));
        out[i] = f8_decode(dtype, bits);
        if (round)
            out[i] = f8_round_bf16(out[i]);
    }
    return out;
}

/* The vector decoders against the scalar definitions: every code, every tail. */
static void check_decoder(const f8_gemm_simd *simd, f8_gemm_source source, f8_dtype dtype,
                          const void *data, int64_t n)
{
    float *got = malloc((size_t)(n + 1) * sizeof *got);
    float *want = values_of(dtype, source == F8_SRC_ROUND, data, (size_t)n);
    for (int64_t length = n; length >= 0 && length > n - 40; length--) {
        got[length] = 12345.0f;
        simd->decode[source](got, length, data, length, 1, length);
        require(got[length] == 12345.0f, "%s source %d: too much written", simd->name, (int)source);
        for (int64_t i = 0; i < length; i++)
            require(f8_bits(got[i]) == f8_bits(want[i]) || (isnan(got[i]) && isnan(want[i])),
                    "%s source %d element %d: %08x, want %08x", simd->name, (int)source, (int)i,
                    f8_bits(got[i]), f8_bits(want[i]));
    }
    free(got);
    free(want);
}

/* Tiles of every width up to 39 between canaries, each element from its definition. */
static void check_tiles(const f8_gemm_simd *simd)
{
    enum { ROWS = 3, LD = 40, N = ROWS * LD };
    float t[N], before[N], row[ROWS], col[LD];
    for (int i = 0; i < N; i++) {
        t[i] = f8_from_bits(0x3f000000u + (test_random(&seed) << 1));
        before[i] = (float)(test_random(&seed) % 4096) * 0x1p-9f;
        row[i % ROWS] = f8_from_bits(0x3e800000u + test_random(&seed));
        col[i % LD] = f8_from_bits(0xbf000000u + test_random(&seed));
    }
    for (int cols = 1; cols < LD; cols++) {
        float stored[N], added[N];
        uint16_t narrowed[N];
        memcpy(stored, before, sizeof before);
        memcpy(added, before, sizeof before);
        memset(narrowed, 0, sizeof narrowed);
        simd->store(stored, LD, t, LD, row, col, ROWS, cols);
        simd->add(added, LD, t, LD, row, col, ROWS, cols);
        simd->narrow(narrowed, LD, t, LD, ROWS, cols);
        for (int i = 0; i < N; i++) {
            float alpha = row[i / LD] * col[i % LD], product = alpha * t[i];
            float sum = before[i] + product;
            bool in = i % LD < cols;
            require(stored[i] == (in ? product : before[i]), "%s store %d: %d", simd->name, cols,
                    i);
            require(added[i] == (in ? sum : before[i]), "%s add %d: %d", simd->name, cols, i);
            require(narrowed[i] == (in ? f8_bits(t[i]) >> 16 : 0), "%s narrow %d: %d", simd->name,
                    cols, i);
        }
    }
    float block[2 * F8_PAIR_COLS + 8];
    uint16_t paired[2 * F8_PAIR_COLS];
    for (int i = 0; i < 2 * F8_PAIR_COLS + 8; i++)
        block[i] = f8_from_bits(test_random(&seed) << 8);
    simd->pairs(paired, block, F8_PAIR_COLS + 8);
    for (int i = 0; i < 2 * F8_PAIR_COLS; i++)
        require(paired[i] == f8_bits(block[i % 2 * (F8_PAIR_COLS + 8) + i / 2]) >> 16,
                "%s pairs: %d", simd->name, i);
}

static void check_simd(const f8_gemm_simd *simd)
{
    check_tiles(simd);
    static uint8_t codes[256];
    static uint16_t halves[65536];
    static uint32_t words[131072];
    for (int i = 0; i < 256; i++)
        codes[i] = (uint8_t)i;
    for (uint32_t i = 0; i < 65536; i++) {
        halves[i] = (uint16_t)i;
        words[2 * i] = i << 16 | (i & 1 ? 0x8000u : 0x7fffu); /* ties and just below */
        words[2 * i + 1] = i << 16 | (test_random(&seed) & 0xffffu);
    }
    check_decoder(simd, F8_SRC_E4M3, F8_E4M3, codes, 256);
    check_decoder(simd, F8_SRC_E5M2, F8_E5M2, codes, 256);
    check_decoder(simd, F8_SRC_BF16, F8_BF16, halves, 65536);
    check_decoder(simd, F8_SRC_ROUND, F8_F32, words, 131072);
    check_decoder(simd, F8_SRC_F32, F8_F32, words, 131072);
    float src[16 * 40], dst[40 * 17];
    for (int i = 0; i < 16 * 40; i++)
        src[i] = (float)i;
    for (int rows = 1; rows <= 16; rows++)
        for (int cols = 1; cols <= 39; cols++) {
            for (int i = 0; i < 40 * 17; i++)
                dst[i] = -1;
            simd->transpose(dst, 17, src, 40, rows, cols);
            for (int c = 0; c < 40; c++)
                for (int r = 0; r < 17; r++)
                    require(dst[c * 17 + r] == (r < rows && c < cols ? src[r * 40 + c] : -1),
                            "%s transpose %d x %d: [%d][%d]", simd->name, rows, cols, c, r);
        }
}

START_TEST(decoders)
{
    const char *missing;
    const f8_gemm_simd *best = f8_gemm_simd_choose(&missing);
    ck_assert_ptr_nonnull(best);
    check_simd(best);
    check_simd(f8_gemm_simd_avx2());
}
END_TEST

/* NaN and Inf come through, from FP8 operands as well. */
START_TEST(special_values)
{
    f8_gemm_desc d = {.m = 4, .n = 64, .k = 32, .a = F8_E5M2, .b = F8_E4M3};
    gemm_set_strides(&d, 0);
    gemm_problem p = gemm_problem_make(d, &seed);
    memset(p.b, 0x38, p.b_count);        /* ones */
    ((uint8_t *)p.a)[0 * 32 + 3] = 0x7c; /* Inf */
    ((uint8_t *)p.a)[1 * 32 + 4] = 0x7d; /* NaN */
    ((uint8_t *)p.b)[5 * 64 + 9] = 0xff; /* NaN */
    float *c = gemm_problem_run(&g, &p, 1, 0);
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 64; j++) {
            float x = c[i * 64 + j];
            ck_assert(i == 1 || j == 9 ? isnan(x) : i == 0 ? isinf(x) : isfinite(x));
        }
    free(c);
    gemm_problem_end(&p);
}
END_TEST

START_TEST(equal_descs_share)
{
    f8_gemm_desc d = {.m = 8, .n = 8, .k = 8, .lda = 8, .ldb = 8, .ldc = 8};
    f8_gemm *x, *y, *z;
    ck_assert_int_eq(f8_gemm_prepare(g.lib, &d, 2, &x, NULL), F8_OK);
    ck_assert_int_eq(f8_gemm_prepare(g.lib, &d, 2, &y, NULL), F8_OK);
    ck_assert_ptr_eq(x, y);
    d.accumulate = true;
    ck_assert_int_eq(f8_gemm_prepare(g.lib, &d, 2, &z, NULL), F8_OK);
    ck_assert_ptr_ne(x, z);
    f8_gemm_release(x);
    f8_gemm_release(z);
    f8_gemm_release(y);
    ck_assert_str_eq(f8_gemm_algorithm_name(F8_GEMM_ONEDNN_F32), "onednn-f32");
    ck_assert_ptr_nonnull(strstr(f8_gemm_lib_describe(g.lib), "oneDNN 2."));
}
END_TEST

/* A batch has the bits of its products alone, for any number of threads, whether a product is one
 * task or many; an operand may be one matrix for all. */
START_TEST(batches)
{
    static const int64_t sizes[][4] = {
        {7, 5, 9, 3}, {70, 150, 300, 2}, {1, 64, 64, 40}, {130, 200, 64, 5}, {40, 16, 900, 64}};
    const int64_t *s = sizes[_i % 5];
    const f8_dtype dtype = _i / 5 % 2 ? F8_BF16 : F8_F32;
    f8_gemm_desc one = {.m = s[0], .n = s[1], .k = s[2], .a = dtype, .b = dtype};
    one.trans_a = _i & 1, one.trans_b = _i & 2;
    gemm_set_strides(&one, _i % 3);
    f8_gemm_desc d = one;
    d.batch = s[3];
    d.stride_a = _i % 3 == 1 ? 0 : f8_gemm_elements(&one, F8_GEMM_A) + 8;
    d.stride_b = _i % 3 == 2 ? 0 : f8_gemm_elements(&one, F8_GEMM_B);
    d.stride_c = f8_gemm_elements(&one, F8_GEMM_C) + 3;
    f8_gemm_desc all = one; /* an operand with room for all matrices: its values */
    all.m = all.n = all.k = 1 + f8_gemm_elements(&d, F8_GEMM_A) + f8_gemm_elements(&d, F8_GEMM_B);
    const size_t size = f8_dtype_size(dtype), n_c = (size_t)f8_gemm_elements(&d, F8_GEMM_C);
    const size_t n = (size_t)all.m;
    uint8_t *values = malloc(n * size);
    float *want = calloc(n_c, sizeof *want), *got = calloc(n_c, sizeof *got);
    for (size_t i = 0; i < n; i++) {
        const float x = (float)(int)(test_random(&seed) % 4097 - 2048) * 0x1p-9f;
        const uint32_t bits = dtype == F8_BF16 ? f8_bits(x) >> 16 : f8_bits(x);
        memcpy(values + i * size, &bits, size);
    }
    const uint8_t *a = values, *b = values + (size_t)f8_gemm_elements(&d, F8_GEMM_A) * size;
    for (int threads = 0; threads <= 3; threads++) {
        f8_gemm *gemm, *single;
        f8_pool *pool = g.pools[threads];
        ck_assert_int_eq(f8_gemm_prepare(g.lib, &d, 3, &gemm, NULL), F8_OK);
        ck_assert_int_eq(f8_gemm_prepare(g.lib, &one, 3, &single, NULL), F8_OK);
        const size_t bytes = f8_gemm_workspace(gemm) + f8_gemm_workspace(single);
        void *ws = aligned_alloc(64, (bytes + 64) / 64 * 64);
        for (int64_t i = 0; i < d.batch && threads == 0; i++)
            ck_assert_int_eq(f8_gemm_run(single, NULL, a + (size_t)(i * d.stride_a) * size,
                                         b + (size_t)(i * d.stride_b) * size, want + i * d.stride_c,
                                         NULL, NULL, ws),
                             F8_OK);
        memset(got, 0, n_c * sizeof *got);
        ck_assert_int_eq(f8_gemm_run(gemm, pool, a, b, got, NULL, NULL, ws), F8_OK);
        ck_assert_msg(!memcmp(got, want, n_c * sizeof *got), "%d threads", threads);
        free(ws);
        f8_gemm_release(gemm);
        f8_gemm_release(single);
    }
    free(values);
    free(want);
    free(got);
}
END_TEST

static void refused(f8_gemm_desc d, int threads, f8_status status, const char *text)
{
    f8_diag diag = {0};
    f8_gemm *gemm;
    ck_assert_int_eq(f8_gemm_prepare(g.lib, &d, threads, &gemm, &diag), status);
    ck_assert_ptr_null(gemm);
    ck_assert_msg(strstr(diag.text, text) != NULL, "%s", diag.text);
}

START_TEST(bad_input)
{
    const f8_gemm_desc good = {.m = 8, .n = 8, .k = 8, .lda = 8, .ldb = 8, .ldc = 8};
    f8_gemm_desc d = good;
    d.m = 0;
    refused(d, 1, F8_ERR_INPUT, "GEMM of m=0 n=8 k=8: each must be 1 to 2^31 - 1");
    d = good, d.lda = 7;
    refused(d, 1, F8_ERR_INPUT, "GEMM operand A: row stride 7 is less than its 8 columns");
    d = good, d.ldb = INT64_MAX / 2;
    refused(d, 1, F8_ERR_INPUT, "GEMM operand B is too large");
    d = good, d.b = F8_I32;
    refused(d, 1, F8_ERR_INPUT, "GEMM operand B can't be i32");
    d = good, d.a = F8_BF16, d.round_a = true;
    refused(d, 1, F8_ERR_INPUT, "GEMM operand A is bf16: only f32 is rounded");
    d = good, d.algorithm = 77;
    refused(d, 1, F8_ERR_UNSUPPORTED, "no GEMM algorithm has the number 77");
    d = good, d.algorithm = F8_GEMM_ONEDNN_BF16;
    refused(d, 1, F8_ERR_UNSUPPORTED, "GEMM algorithm onednn-bf16 can't do f32 x f32 on this CPU");
    d = good, d.batch = 2, d.stride_c = 63;
    refused(d, 1, F8_ERR_INPUT, "no batch of 2 has matrices 0, 0 and 63 elements apart");
    d = good, d.batch = 2, d.stride_c = 64, d.accumulate = true;
    refused(d, 1, F8_ERR_INPUT, "no batch of 2");
    refused(good, 0, F8_ERR_INPUT, "GEMM for 0 threads: must be 1 to 256");

    f8_gemm *gemm;
    float scale = 1, x[64] = {0}, y[64] = {0}, c[64];
    ck_assert_int_eq(f8_gemm_prepare(g.lib, &good, 2, &gemm, NULL), F8_OK);
    void *ws = aligned_alloc(64, f8_gemm_workspace(gemm));
    ck_assert_int_eq(f8_gemm_run(gemm, g.pools[3], x, y, c, NULL, NULL, ws), F8_ERR_INPUT);
    ck_assert_int_eq(f8_gemm_run(gemm, NULL, x, y, c, &scale, NULL, ws), F8_ERR_INPUT);
    free(ws);
    f8_gemm_release(gemm);
}
END_TEST

/* An allocator that gives out so many blocks and counts those that live. */
typedef struct rationed {
    int left, live;
} rationed;

static void *rationed_alloc(void *user, size_t size, size_t align)
{
    rationed *r = user;
    if (r->left-- <= 0)
        return NULL;
    r->live++;
    return aligned_alloc(align < 16 ? 16 : align, (size + 63) / 64 * 64);
}

static void rationed_free(void *user, void *ptr, size_t size)
{
    (void)size;
    ((rationed *)user)->live--;
    free(ptr);
}

START_TEST(out_of_memory)
{
    f8_gemm_desc d = {
        .m = 200, .n = 200, .k = 64, .lda = 64, .ldb = 200, .ldc = 200, .a = F8_BF16, .b = F8_BF16};
    f8_gemm *probe;
    d.algorithm = F8_GEMM_ONEDNN_BF16;
    if (f8_gemm_prepare(g.lib, &d, 2, &probe, NULL) == F8_OK)
        f8_gemm_release(probe);
    else
        d.algorithm = F8_GEMM_ONEDNN_F32;
    f8_status status = F8_ERR_MEMORY;
    for (int ration = 0; status != F8_OK; ration++) {
        rationed r = {.left = ration};
        f8_allocator al = {rationed_alloc, rationed_free, &r};
        f8_gemm_lib *small = NULL;
        f8_gemm *gemm = NULL;
        status = f8_gemm_lib_create(&al, &small, NULL);
        if (status == F8_OK)
            status = f8_gemm_prepare(small, &d, 2, &gemm, NULL);
        ck_assert(status == F8_OK || status == F8_ERR_MEMORY);
        f8_gemm_release(gemm);
        f8_gemm_lib_destroy(small);
        ck_assert_int_eq(r.live, 0);
    }
}
END_TEST

/* ---- the algorithm that is chosen on made-up CPUs ---- */

/* EAX of CPUID's leaf 1, of real CPUs. */
enum { MILAN = 0xa00f11, GENOA = 0xa10f11, TURIN = 0xb00f21, SAPPHIRE_RAPIDS = 0x806f8 };

static f8_cpu_identity identity(const char *vendor, uint32_t signature)
{
    uint32_t words[3];
    memcpy(words, vendor, sizeof words);
    return f8_cpu_identity_from(words, signature);
}

START_TEST(identities)
{
    static const struct {
        const char *vendor;
        uint32_t signature, family, model;
    } known[] = {{"AuthenticAMD", MILAN, 25, 0x01},
                 {"AuthenticAMD", GENOA, 25, 0x11},
                 {"AuthenticAMD", TURIN, 26, 0x02},
                 {"GenuineIntel", SAPPHIRE_RAPIDS, 6, 0x8f}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const f8_cpu_identity is = identity(known[i].vendor, known[i].signature);
        ck_assert_str_eq(is.vendor, known[i].vendor);
        ck_assert_uint_eq(is.family, known[i].family);
        ck_assert_uint_eq(is.model, known[i].model);
    }
    const f8_cpu_identity here = f8_cpu_identify();
    ck_assert_uint_eq(strlen(here.vendor), 12);
    ck_assert_uint_gt(here.family, 0);
}
END_TEST

START_TEST(choice_by_cpu)
{
    enum { F32 = F8_GEMM_ONEDNN_F32, BF16 = F8_GEMM_ONEDNN_BF16 };
    static const struct {
        const char *vendor;
        uint32_t signature;
        bool bf16, amx;
        uint32_t want;
        const char *says;
    } cpus[] = {
        {"AuthenticAMD", GENOA, true, false, BF16, "(avx512, avx512_bf16 by default, f64)"},
        {"AuthenticAMD", TURIN, true, false, BF16, "(avx512, avx512_bf16 by default, f64)"},
        {"AuthenticAMD", GENOA, false, false, F32, "(avx512, f64)"}, /* ONEDNN_MAX_CPU_ISA */
        {"AuthenticAMD", MILAN, false, false, F32, "(avx512, f64)"},
        {"GenuineIntel", SAPPHIRE_RAPIDS, true, true, BF16, "(avx512, amx_bf16, f64)"},
        {"GenuineIntel", SAPPHIRE_RAPIDS, true, false, F32, "(avx512, avx512_bf16, f64)"},
        {"GenuineIntel", GENOA, true, false, F32, "(avx512, avx512_bf16, f64)"},
        {"AuthenticAMD", 0x800f12, true, false, F32, "(avx512, avx512_bf16, f64)"}, /* family 23 */
        {"", 0, true, false, F32, "(avx512, avx512_bf16, f64)"},
    };
    for (size_t i = 0; i < sizeof cpus / sizeof *cpus; i++) {
        char vendor[13] = "", said[80];
        memcpy(vendor, cpus[i].vendor, strlen(cpus[i].vendor));
        f8_gemm_lib lib = {.cpu = {.is = identity(vendor, cpus[i].signature),
                                   .bf16 = cpus[i].bf16,
                                   .amx = cpus[i].amx}};
        f8_gemm_describe(&lib.cpu, 20603, "avx512", said, sizeof said);
        ck_assert_msg(!strncmp(said, "oneDNN 2.6.3 ", 13) && !strcmp(said + 13, cpus[i].says), "%s",
                      said);
        static const f8_dtype narrow[] = {F8_BF16, F8_E4M3, F8_E5M2};
        for (size_t k = 0; k < 3; k++) {
            f8_gemm_desc d = {.m = 64, .n = 64, .k = 64, .a = narrow[k], .b = narrow[k]};
            gemm_set_strides(&d, 0);
            ck_assert_msg(f8_gemm_choose(&lib, &d) == cpus[i].want, "CPU %zu", i);
            d.tuning.algorithm = F32; /* what the tuner chose counts */
            ck_assert_uint_eq(f8_gemm_choose(&lib, &d), F32);
            d.tuning.algorithm = BF16;
            ck_assert_uint_eq(f8_gemm_choose(&lib, &d), cpus[i].bf16 ? BF16 : F32);
            d.tuning.algorithm = F8_GEMM_AUTO;
            d.b = F8_F32; /* not exact in bf16, unless it is to be rounded */
            ck_assert_uint_eq(f8_gemm_choose(&lib, &d), F32);
            d.round_b = true;
            ck_assert_uint_eq(f8_gemm_choose(&lib, &d), cpus[i].want);
        }
    }
}
END_TEST

Suite *f8_suite(void)
{
    Suite *suite = suite_create("gemm");
    TCase *tc = tcase_create("gemm");
    tcase_set_timeout(tc, 300);
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, decoders);
    tcase_add_loop_test(tc, shapes_and_forms, 0, N_SHAPES);
    tcase_add_test(tc, weight_gradient);
    tcase_add_test(tc, several_rounds);
    tcase_add_test(tc, bf16_algorithm);
    tcase_add_test(tc, special_values);
    tcase_add_test(tc, equal_descs_share);
    tcase_add_test(tc, bad_input);
    tcase_add_loop_test(tc, batches, 0, 30);
    tcase_add_test(tc, out_of_memory);
    tcase_add_test(tc, identities);
    tcase_add_test(tc, choice_by_cpu);
    suite_add_tcase(suite, tc);
    return suite;
}
