/* The one header of generated CUDA kernels, handed to NVRTC in memory: all that is not plain C++.
 * Nothing of the toolkit is included. Every inline PTX of the project is here, so that another
 * header with the same names can stand in for it; a kernel uses no CUDA built-in by any other way.
 *
 * Compile with -fmad=false: a * b + c is two roundings unless f8_fma says otherwise. */
#ifndef FP8C_CUH
#define FP8C_CUH

typedef unsigned char f8_u8;
typedef unsigned short f8_u16;
typedef unsigned int f8_u32;
typedef int f8_i32;
typedef unsigned long long f8_u64;
typedef long long f8_i64;

/* What one 16, 8 or 4-byte access moves. */
struct __align__(16) f8_x4 { f8_u32 v[4]; };
struct __align__(8) f8_x2 { f8_u32 v[2]; };

#define F8_DEV static __device__ __forceinline__

/* A kernel NAME whose parameters are one struct NAME_params `p`, by value, of 64-bit words only.
 * Its blocks have exactly THREADS threads, one-dimensional.
 *
 * With F8_DEPENDENT_LAUNCH defined, before the header, a kernel may be launched before the one ahead
 * of it in its stream has ended (runtime/cuda/README.md, "Dependent launch"). Every thread of it
 * waits first: nothing is read or written before. */
#ifdef F8_DEPENDENT_LAUNCH
#define F8_KERNEL(NAME, THREADS, MIN_BLOCKS)                                     \
    F8_DEV void NAME##_body(const NAME##_params &p);                             \
    extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)             \
        NAME(const __grid_constant__ NAME##_params p)                             \
    {                                                                            \
        f8_await_before();                                                       \
        f8_allow_next();                                                         \
        NAME##_body(p);                                                          \
    }                                                                            \
    F8_DEV void NAME##_body(const NAME##_params &p)
#else
#define F8_KERNEL(NAME, THREADS, MIN_BLOCKS)                                     \
    extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)             \
        NAME(const __grid_constant__ NAME##_params p)
#endif

/* Inside a kernel's body, before anything else: an array in shared memory, 128-byte aligned; and
 * the dynamic shared memory as bytes. */
#define F8_SHARED(TYPE, NAME, COUNT) __shared__ __align__(128) TYPE NAME[COUNT]
#define F8_SHARED_DYNAMIC(NAME) extern __shared__ __align__(128) f8_u8 NAME[]

/* ---- the kernels before and after this one, from compute capability 9.0 on ---- */

/* Returns when the kernels that this one was launched behind have ended, and all that they wrote can
 * be seen. At once if they had ended before this one began. */
F8_DEV void f8_await_before() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
/* The next kernel may begin once every block has called this, or has ended. */
F8_DEV void f8_allow_next() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }

/* ---- where we are ---- */

F8_DEV int f8_thread() { return (int)threadIdx.x; }
/* The thread's warp in its block; all 32 threads call it. The compiler knows that it is one for all. */
F8_DEV int f8_warp() { return __shfl_sync(0xffffffffu, (int)threadIdx.x / 32, 0); }
F8_DEV int f8_threads() { return (int)blockDim.x; }
F8_DEV f8_i64 f8_block() { return (f8_i64)blockIdx.x; }
F8_DEV f8_i64 f8_blocks() { return (f8_i64)gridDim.x; }

/* ---- together ---- */

F8_DEV void f8_sync() { __syncthreads(); }       /* all threads of the block */
F8_DEV void f8_sync_warp() { __syncwarp(); }     /* the warp; all 32 threads call it */
F8_DEV f8_u32 f8_shfl_xor(f8_u32 x, int mask) { return __shfl_xor_sync(0xffffffffu, x, mask); }
F8_DEV float f8_shfl_xor(float x, int mask) { return __shfl_xor_sync(0xffffffffu, x, mask); }
F8_DEV f8_u32 f8_shfl(f8_u32 x, int lane) { return __shfl_sync(0xffffffffu, x, lane); }
F8_DEV float f8_shfl(float x, int lane) { return __shfl_sync(0xffffffffu, x, lane); }

/* True for one thread of the warp; all 32 threads call it. The compiler knows that it is one. */
F8_DEV bool f8_elect()
{
    f8_u32 chosen;
    asm volatile("{\n"
                 ".reg .pred me;\n"
                 "elect.sync _|me, 0xffffffff;\n"
                 "selp.b32 %0, 1, 0, me;\n"
                 "}" : "=r"(chosen));
    return chosen;
}

/* Stands in a branch: the compiler then does what the branch does only where it is taken. */
F8_DEV void f8_apart() { asm volatile(""); }

/* ---- blocks of a grid ---- */

/* Orders memory between blocks: what this thread stored before, and what its block's threads stored
 * before an f8_sync before it, comes before what it does next; what it loads next comes after what
 * it loaded before. */
F8_DEV void f8_fence() { __threadfence(); }
/* Adds one to *counter, or makes it 0 if it is `most`. Returns what it was. Counts of all blocks
 * have one order. */
F8_DEV f8_u32 f8_count(f8_u32 *counter, f8_u32 most) { return atomicInc(counter, most); }

/* ---- scalar operations: those of ir/scalar.def that C++ has no operator for ---- */

F8_DEV float f8_from_bits(f8_u32 u) { return __uint_as_float(u); }
F8_DEV f8_u32 f8_bits(float x) { return __float_as_uint(x); }
F8_DEV float f8_fma(float a, float b, float c) { return __fmaf_rn(a, b, c); }
F8_DEV float f8_div(float a, float b) { return __fdiv_rn(a, b); }
/* Rounded up; and approximations to 1 / a (1 ulp) and 1 / sqrt(a) (2^-22.9), Inf of 0 and 0 of Inf.
 */
F8_DEV float f8_fma_up(float a, float b, float c) { return __fmaf_ru(a, b, c); }
F8_DEV float f8_reciprocal_seed(float a)
{
    float r;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(a));
    return r;
}
F8_DEV float f8_reciprocal_root_seed(float a)
{
    float r;
    asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(a));
    return r;
}
F8_DEV float f8_rint(float a) { return rintf(a); }
F8_DEV float f8_floor(float a) { return floorf(a); }
F8_DEV float f8_abs(float a) { return f8_from_bits(f8_bits(a) & 0x7fffffffu); }
/* IEEE 754-2019 maximum and minimum: any NaN gives NaN, +0 > -0. */
F8_DEV float f8_maximum(float a, float b)
{
    float r;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
    return r;
}
F8_DEV float f8_minimum(float a, float b)
{
    float r;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
    return r;
}
/* Byte i is byte (selector >> 4 i) & 7 of a (0 to 3) and b (4 to 7). */
F8_DEV f8_u32 f8_bytes(f8_u32 a, f8_u32 b, f8_u32 selector) { return __byte_perm(a, b, selector); }
/* Towards zero; out of range saturates, NaN gives 0. */
F8_DEV f8_i32 f8_to_i32(float x) { return __float2int_rz(x); }
F8_DEV float f8_from_i32(f8_i32 x) { return __int2float_rn(x); }

/* ---- conversions: the hardware's, equal to the programs of ir/scalar.def (NaNs by class) ---- */

/* Two at a time, x0 in the low half of the result. Round to nearest even. */
F8_DEV f8_u32 f8_bf16x2(float x0, float x1)
{
    f8_u32 r;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(x1), "f"(x0));
    return r;
}
F8_DEV f8_u32 f8_f16x2(float x0, float x1)
{
    f8_u32 r;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(x1), "f"(x0));
    return r;
}
/* Saturating: what overflows, Inf too, becomes the largest finite; NaN stays NaN. */
F8_DEV f8_u32 f8_e4m3x2_sat(float x0, float x1)
{
    f8_u16 r;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(r) : "f"(x1), "f"(x0));
    return r;
}
F8_DEV f8_u32 f8_e5m2x2_sat(float x0, float x1)
{
    f8_u16 r;
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(r) : "f"(x1), "f"(x0));
    return r;
}
/* Sums of the low and of the high halves, two bf16, each rounded once: the bits of an f32 sum that is
 * then rounded (codegen/cuda/rows_words.c). a * 1 is a, so the multiply-add is a sum; sm_89 has no other. */
F8_DEV f8_u32 f8_add_bf16x2(f8_u32 a, f8_u32 b)
{
    f8_u32 r;
    asm("fma.rn.bf16x2 %0, %1, %3, %2;" : "=r"(r) : "r"(a), "r"(b), "r"(0x3f803f80u));
    return r;
}
F8_DEV float f8_from_bf16(f8_u32 code) { return f8_from_bits(code << 16); }
F8_DEV float f8_from_f16(f8_u32 code)
{
    float r;
    asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"((f8_u16)code));
    return r;
}

/* ---- tiles: tensor cores and asynchronous copies ---- */

/* d[16 x 8] += a[16 x 16] b[16 x 8]: bf16 operands, f32 sums, in the register layout of PTX's
 * mma.m16n8k16. */
F8_DEV void f8_mma_bf16(float d[4], const f8_u32 a[4], const f8_u32 b[2])
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
/* Stores 16 bytes to aligned global memory by one access. NVRTC 13.0 makes four accesses of some stores
 * of an f8_x4. */
F8_DEV void f8_store16(void *global, const f8_u32 *w)
{
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};"
                 ::"l"(global), "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3]) : "memory");
}
/* Four 8 x 8 matrices of 16-bit elements from shared memory: thread 8 i + j of the warp gives the
 * address of row j of matrix i (16-byte aligned). The second form transposes each. */
F8_DEV void f8_ldmatrix_x4(f8_u32 r[4], const void *row)
{
    const f8_u32 at = (f8_u32)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
}
F8_DEV void f8_ldmatrix_x4_trans(f8_u32 r[4], const void *row)
{
    const f8_u32 at = (f8_u32)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
}
/* 16 bytes from global to shared memory, or zeros when not `valid` (global is then not read). */
F8_DEV void f8_copy_async16(void *shared, const void *global, bool valid)
{
    const f8_u32 at = (f8_u32)__cvta_generic_to_shared(shared);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :: "r"(at), "l"(global), "r"(valid ? 16 : 0) : "memory");
}
/* A thread's vector of BYTES bytes, 8, 16 or 32, from global to shared memory, both aligned to 8 or 16
 * bytes. Two accesses have half a sector of 32 bytes each; the first leaves the other half in L1. */
template <int BYTES> F8_DEV void f8_copy_vector(void *shared, const void *global)
{
    const f8_u32 at = (f8_u32)__cvta_generic_to_shared(shared);
    if constexpr (BYTES == 16) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(global) : "memory");
    } else if constexpr (BYTES == 8) {
        asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(at), "l"(global) : "memory");
    } else {
        static_assert(BYTES == 32, "a vector of 8 columns");
        asm volatile("cp.async.ca.shared.global [%0], [%1], 16;\n"
                     "cp.async.ca.shared.global [%0 + 16], [%1 + 16], 16;"
                     ::"r"(at), "l"(global) : "memory");
    }
}
/* Bulk copies from global to shared memory, from compute capability 9.0 on. `bytes` and both addresses
 * are multiples of 16. A barrier in shared memory counts the bytes that arrive.
 *
 * f8_bulk_begin makes `n` barriers. Other threads use them after an f8_sync_warp or f8_sync.
 * f8_bulk_expect tells a barrier how many bytes the copies of its next phase bring. Call it before
 * they begin.
 * Phases are 0, 1, 0, 1 ... f8_bulk_wait returns when phase `phase` has all its bytes; the thread then
 * sees them. All threads have read the memory, and met, before the next copy to it begins. */
F8_DEV void f8_bulk_begin(f8_u64 *barrier, int n)
{
    for (int i = 0; i < n; i++) {
        const f8_u32 at = (f8_u32)__cvta_generic_to_shared(barrier + i);
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(at) : "memory");
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
F8_DEV void f8_bulk_expect(f8_u64 *barrier, int bytes)
{
    const f8_u32 at = (f8_u32)__cvta_generic_to_shared(barrier);
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(bytes) : "memory");
}
F8_DEV void f8_bulk_copy(void *shared, const void *global, int bytes, f8_u64 *barrier)
{
    const f8_u32 to = (f8_u32)__cvta_generic_to_shared(shared);
    const f8_u32 at = (f8_u32)__cvta_generic_to_shared(barrier);
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 ::"r"(to), "l"(global), "r"(bytes), "r"(at) : "memory");
}
F8_DEV void f8_bulk_wait(f8_u64 *barrier, f8_u32 phase)
{
    const f8_u32 at = (f8_u32)__cvta_generic_to_shared(barrier);
    asm volatile("{\n"
                 ".reg .pred there;\n"
                 "WAIT:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 there, [%0], %1;\n"
                 "@!there bra WAIT;\n"
                 "}" ::"r"(at), "r"(phase) : "memory");
}
/* Close a group of copies; wait until at most N groups of this thread are under way. A thread sees
 * other threads' copies after their wait and an f8_sync. */
F8_DEV void f8_copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> F8_DEV void f8_copy_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }

#endif
