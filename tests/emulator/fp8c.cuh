/* codegen/cuda/fp8c.cuh for the host: the same names, made of plain C++ and of what the driver
 * stand-in does for a thread (image.h). The NVRTC stand-in compiles the generated texts with this
 * header in place of the real one. Nothing here is shared with the library: conversions are written
 * a second time. */
#ifndef FP8C_CUH
#define FP8C_CUH

#include "image.h"

typedef unsigned char f8_u8;
typedef unsigned short f8_u16;
typedef unsigned int f8_u32;
typedef int f8_i32;
typedef unsigned long long f8_u64;
typedef long long f8_i64;

/* A member that lies where its owner begins and traps if that is misaligned: compilers check single
 * accesses (-fsanitize=alignment) but not copies of a struct. */
template <int BYTES> struct f8_emu_aligned {
    constexpr f8_emu_aligned() {}
    f8_emu_aligned(const f8_emu_aligned &from)
    {
        check(this);
        check(&from);
    }
    f8_emu_aligned &operator=(const f8_emu_aligned &from)
    {
        check(this);
        check(&from);
        return *this;
    }
    static void check(const void *p)
    {
        if ((f8_u64)p % BYTES)
            __builtin_trap();
    }
};
struct alignas(16) f8_x4 { f8_u32 v[4]; [[no_unique_address]] f8_emu_aligned<16> f8_emu; };
struct alignas(8) f8_x2 { f8_u32 v[2]; [[no_unique_address]] f8_emu_aligned<8> f8_emu; };
static_assert(sizeof(f8_x4) == 16 && sizeof(f8_x2) == 8, "what one access moves");

/* Not inlined, as NVRTC would: the compiler runs without optimization, so that takes only longer,
 * and compiling takes most of the time of most tests. */
#define F8_DEV static inline __attribute__((unused))

extern "C" {
f8_emu_context *f8_emu_self;
}

/* Lists in sections of their own, of pointers only, which no compiler pads. */
#define F8_EMU_LISTED(SECTION) __attribute__((used, section(SECTION)))

#ifdef F8_DEPENDENT_LAUNCH
#define F8_EMU_BEGIN f8_emu_self->await_before()
#else
#define F8_EMU_BEGIN (void)0
#endif

#define F8_KERNEL(NAME, THREADS, MIN_BLOCKS)                                                         \
    static void NAME##_f8_body(const NAME##_params &p);                                              \
    static void NAME##_f8_run(const void *params)                                                    \
    {                                                                                                \
        F8_EMU_BEGIN;                                                                                \
        NAME##_f8_body(*static_cast<const NAME##_params *>(params));                                 \
    }                                                                                                \
    static_assert(sizeof(NAME##_params) % 8 == 0 && (THREADS) > 0 && (THREADS) <= 1024 &&            \
                  (MIN_BLOCKS) >= 0, "a kernel's bounds");                                           \
    static f8_emu_kernel NAME##_f8_kernel = {#NAME, #NAME "_f8_body", (THREADS),                     \
                                             sizeof(NAME##_params), NAME##_f8_run};                  \
    F8_EMU_LISTED("f8_kernels") static f8_emu_kernel *const NAME##_f8_listed = &NAME##_f8_kernel;    \
    static void NAME##_f8_body(const NAME##_params &p)

#define F8_SHARED(TYPE, NAME, COUNT)                                                                 \
    static f8_emu_array NAME##_f8_array = {__func__, sizeof(TYPE) * (COUNT), 0};                     \
    F8_EMU_LISTED("f8_arrays") static f8_emu_array *const NAME##_f8_listed = &NAME##_f8_array;       \
    TYPE(&NAME)[COUNT] = *reinterpret_cast<TYPE(*)[COUNT]>(                                          \
        static_cast<void *>(f8_emu_self->shared + NAME##_f8_array.offset))
#define F8_SHARED_DYNAMIC(NAME) f8_u8 *const NAME = f8_emu_self->dynamic

/* ---- the kernels before and after this one ---- */

F8_DEV void f8_await_before() { f8_emu_self->await_before(); }
F8_DEV void f8_allow_next() {}

/* ---- where we are ---- */

F8_DEV int f8_thread() { return f8_emu_self->thread; }
F8_DEV int f8_warp() { return (int)f8_emu_self->shfl((unsigned)f8_emu_self->thread / 32, 0); }
/* The lanes do not meet here, so it does not stand in for an f8_sync_warp that is missing. */
F8_DEV bool f8_elect() { return f8_emu_self->thread % 32 == 0; }
F8_DEV void f8_apart() {}
F8_DEV int f8_threads() { return f8_emu_self->threads; }
F8_DEV f8_i64 f8_block() { return f8_emu_self->block; }
F8_DEV f8_i64 f8_blocks() { return f8_emu_self->blocks; }

/* ---- scalar operations ---- */

F8_DEV float f8_from_bits(f8_u32 u)
{
    float x;
    __builtin_memcpy(&x, &u, 4);
    return x;
}
F8_DEV f8_u32 f8_bits(float x)
{
    f8_u32 u;
    __builtin_memcpy(&u, &x, 4);
    return u;
}
F8_DEV float f8_fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
F8_DEV float f8_div(float a, float b) { return a / b; }
/* The exact sum minus the nearest float is the sum of two doubles. Its sign says whether to go up.
 */
F8_DEV float f8_fma_up(float a, float b, float c)
{
    const float near = __builtin_fmaf(a, b, c);
    const double p = (double)a * b, s = p + c, t = s - p, rest = (p - (s - t)) + (c - t);
    return (s - near) + rest > 0 ? __builtin_nextafterf(near, __builtin_inff()) : near;
}
F8_DEV float f8_reciprocal_seed(float a) { return 1.0f / a; }
F8_DEV float f8_reciprocal_root_seed(float a) { return 1.0f / __builtin_sqrtf(a); }
F8_DEV float f8_rint(float a) { return __builtin_rintf(a); }
F8_DEV float f8_floor(float a) { return __builtin_floorf(a); }
F8_DEV float f8_abs(float a) { return f8_from_bits(f8_bits(a) & 0x7fffffffu); }
F8_DEV float f8_maximum(float a, float b)
{
    if (a != a || b != b)
        return f8_from_bits(0x7fffffffu);
    if (a == b) /* zeros of two signs */
        return f8_from_bits(f8_bits(a) & f8_bits(b));
    return a > b ? a : b;
}
F8_DEV float f8_minimum(float a, float b)
{
    if (a != a || b != b)
        return f8_from_bits(0x7fffffffu);
    if (a == b)
        return f8_from_bits(f8_bits(a) | f8_bits(b));
    return a < b ? a : b;
}
F8_DEV f8_u32 f8_bytes(f8_u32 a, f8_u32 b, f8_u32 selector)
{
    const f8_u64 bytes = (f8_u64)b << 32 | a;
    f8_u32 r = 0;
    for (int i = 0; i < 4; i++)
        r |= (f8_u32)(bytes >> (selector >> 4 * i & 7) * 8 & 0xff) << 8 * i;
    return r;
}
F8_DEV f8_i32 f8_to_i32(float x)
{
    if (x != x)
        return 0;
    if (x >= 2147483648.0f)
        return 0x7fffffff;
    if (x < -2147483648.0f)
        return -0x7fffffff - 1;
    return (f8_i32)x;
}
F8_DEV float f8_from_i32(f8_i32 x) { return (float)x; }

/* ---- conversions ---- */

/* |x| to a format of MANTISSA bits whose smallest normal is 2^LEAST, saturating at code MOST; NaN
 * gives 0x7f. Below the normals the sum with 2^(LEAST - MANTISSA + 23) rounds to the subnormals'
 * step. */
template <int MANTISSA, int LEAST, f8_u32 MOST> F8_DEV f8_u32 f8_emu_fp8(float x)
{
    const f8_u32 u = f8_bits(x) & 0x7fffffffu, sign = f8_bits(x) >> 24 & 0x80u;
    if (u > 0x7f800000u)
        return 0x7fu;
    f8_u32 code;
    if (u < (f8_u32)(LEAST + 127) << 23) {
        const float step = f8_from_bits((f8_u32)(LEAST - MANTISSA + 23 + 127) << 23);
        code = f8_bits(f8_from_bits(u) + step) - f8_bits(step);
    } else {
        const f8_u32 half = (1u << (22 - MANTISSA)) - 1 + (u >> (23 - MANTISSA) & 1);
        code = (u + half - ((f8_u32)(LEAST - 1 + 127) << 23)) >> (23 - MANTISSA);
    }
    return sign | (code > MOST ? MOST : code);
}
F8_DEV f8_u32 f8_e4m3x2_sat(float x0, float x1)
{
    return f8_emu_fp8<3, -6, 0x7e>(x0) | f8_emu_fp8<3, -6, 0x7e>(x1) << 8;
}
F8_DEV f8_u32 f8_e5m2x2_sat(float x0, float x1)
{
    return f8_emu_fp8<2, -14, 0x7b>(x0) | f8_emu_fp8<2, -14, 0x7b>(x1) << 8;
}
F8_DEV f8_u32 f8_emu_bf16(float x)
{
    const f8_u32 u = f8_bits(x);
    return x != x ? 0x7fffu : (u + 0x7fffu + (u >> 16 & 1)) >> 16;
}
F8_DEV f8_u32 f8_bf16x2(float x0, float x1) { return f8_emu_bf16(x0) | f8_emu_bf16(x1) << 16; }
F8_DEV f8_u32 f8_add_bf16x2(f8_u32 a, f8_u32 b)
{
    return f8_bf16x2(f8_from_bits(a << 16) + f8_from_bits(b << 16),
                     f8_from_bits(a & 0xffff0000u) + f8_from_bits(b & 0xffff0000u));
}
F8_DEV f8_u32 f8_emu_f16(float x)
{
    const f8_u32 u = f8_bits(x) & 0x7fffffffu, sign = f8_bits(x) >> 16 & 0x8000u;
    if (u > 0x7f800000u)
        return 0x7fffu;
    if (u < 113u << 23)
        return sign | (f8_bits(f8_from_bits(u) + 0.5f) - f8_bits(0.5f));
    const f8_u32 code = (u + 0xfffu + (u >> 13 & 1) - (112u << 23)) >> 13;
    return sign | (code > 0x7c00u ? 0x7c00u : code);
}
F8_DEV f8_u32 f8_f16x2(float x0, float x1) { return f8_emu_f16(x0) | f8_emu_f16(x1) << 16; }
F8_DEV float f8_from_bf16(f8_u32 code) { return f8_from_bits(code << 16); }
F8_DEV float f8_from_f16(f8_u32 code)
{
    const f8_u32 sign = (code & 0x8000u) << 16, rest = code & 0x7fffu;
    if (rest >= 0x7c00u)
        return f8_from_bits(sign | 0x7f800000u | (rest & 0x3ffu) << 13);
    if (rest < 0x400u) {
        const float x = (float)(f8_i32)rest * 0x1p-24f;
        return sign ? -x : x;
    }
    return f8_from_bits(sign | ((rest << 13) + (112u << 23)));
}

/* ---- together ---- */

F8_DEV void f8_sync() { f8_emu_self->sync(); }
F8_DEV void f8_sync_warp() { f8_emu_self->sync_warp(); }
F8_DEV f8_u32 f8_shfl_xor(f8_u32 x, int mask) { return f8_emu_self->shfl_xor(x, mask); }
F8_DEV float f8_shfl_xor(float x, int mask)
{
    return f8_from_bits(f8_emu_self->shfl_xor(f8_bits(x), mask));
}
F8_DEV f8_u32 f8_shfl(f8_u32 x, int lane) { return f8_emu_self->shfl(x, lane); }
F8_DEV float f8_shfl(float x, int lane) { return f8_from_bits(f8_emu_self->shfl(f8_bits(x), lane)); }

/* ---- blocks of a grid ---- */

F8_DEV void f8_fence() { f8_emu_self->fence(); }
F8_DEV f8_u32 f8_count(f8_u32 *counter, f8_u32 most) { return f8_emu_self->count(counter, most); }

/* ---- tiles ---- */

F8_DEV void f8_mma_bf16(float d[4], const f8_u32 a[4], const f8_u32 b[2])
{
    f8_emu_self->mma_bf16(d, a, b);
}
F8_DEV void f8_store16(void *global, const f8_u32 *w) { *(f8_x4 *)global = f8_x4{{w[0], w[1], w[2], w[3]}, {}}; }
F8_DEV void f8_ldmatrix_x4(f8_u32 r[4], const void *row) { f8_emu_self->ldmatrix(r, row, 0); }
F8_DEV void f8_ldmatrix_x4_trans(f8_u32 r[4], const void *row) { f8_emu_self->ldmatrix(r, row, 1); }
F8_DEV void f8_copy_async16(void *shared, const void *global, bool valid)
{
    f8_emu_self->copy(shared, global, 16, valid);
}
template <int BYTES> F8_DEV void f8_copy_vector(void *shared, const void *global)
{
    static_assert(BYTES == 8 || BYTES == 16 || BYTES == 32, "a vector of 8 columns");
    for (int at = 0; at < BYTES; at += 16)
        f8_emu_self->copy((f8_u8 *)shared + at, (const f8_u8 *)global + at, BYTES < 16 ? BYTES : 16, 1);
}
F8_DEV void f8_copy_commit() { f8_emu_self->copy_commit(); }
template <int N> F8_DEV void f8_copy_wait() { f8_emu_self->copy_wait(N); }
F8_DEV void f8_bulk_begin(f8_u64 *barrier, int n) { f8_emu_self->bulk_begin(barrier, n); }
F8_DEV void f8_bulk_expect(f8_u64 *barrier, int bytes) { f8_emu_self->bulk_expect(barrier, bytes); }
F8_DEV void f8_bulk_copy(void *shared, const void *global, int bytes, f8_u64 *barrier)
{
    f8_emu_self->bulk_copy(shared, global, bytes, barrier);
}
F8_DEV void f8_bulk_wait(f8_u64 *barrier, f8_u32 phase) { f8_emu_self->bulk_wait(barrier, phase); }

#endif
