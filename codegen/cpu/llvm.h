/* LLVM, loaded when the CPU target is asked for, and what the emitters share on top of it.
 *
 * The core library does not link LLVM: f8_llvm_load opens the shared library and fills one table
 * of C API functions (F8_LLVM_API, the only list of them). Call through it:
 * m->ll->BuildFAdd(m->b, ...).
 *
 * One f8_llvm serves any number of threads; one f8_llvm_module belongs to one thread at a time
 * and has its own context, so modules compile in parallel.
 *
 *     f8_llvm *llvm;
 *     f8_llvm_load(&llvm, &(f8_llvm_options){0}, diag);
 *     f8_llvm_module *m;
 *     f8_llvm_module_begin(&m, llvm, "kernel name", diag);
 *     f8_ll_phase p;
 *     f8_ll_phase_begin(m, &p, "k0_phase0");     // void k0_phase0(args, ints, begin, end, scratch)
 *     ... build with m->ll->Build*(m->b, ...) and f8_ll_* ...
 *     f8_ll_phase_end(m);
 *     f8_llvm_module_compile(m, arena, &object, diag);   // ELF relocatable, for codegen/cpu/link.h
 *     f8_llvm_module_end(m);
 *     f8_llvm_free(llvm);
 *
 * Arithmetic is strict: no fast-math flag is ever set, nothing is contracted (never emit
 * llvm.fmuladd; llvm.fma is a fused multiply-add on purpose), subnormals are kept. */
#ifndef F8_CODEGEN_LLVM_H
#define F8_CODEGEN_LLVM_H

#include <pthread.h>

#include "codegen/cpu/llvm_api.h"
#include "ir/num/scalar.h"
#include "ir/base/status.h"

/* ---- the library and the machine ---- */

typedef struct f8_llvm_options {
    const char *library;          /* path or soname of LLVM 19; NULL: the usual names, in order */
    const char *cpu;              /* "native" (or NULL), or an LLVM CPU name such as "x86-64-v3" */
    const f8_allocator *allocator; /* NULL: the default */
} f8_llvm_options;

enum { F8_LLVM_MACHINES = 16 };

typedef struct f8_llvm {
    f8_llvm_api ll;
    f8_allocator allocator;
    LLVMTargetRef target;
    pthread_mutex_t lock; /* of what follows: machines that no module uses now, which cost a
                             millisecond to make */
    LLVMTargetMachineRef machine[F8_LLVM_MACHINES];
    int n_machines;
    char *triple, *cpu, *features; /* as given to LLVM; NUL-terminated */
    char *path;                    /* of the library's file; NULL where the loader does not say */
    int64_t size;                  /* its bytes */
    char version[24];              /* "19.1.7" */
    int lanes;                     /* f32 in the widest vector register: 16 (AVX-512) or 8 (AVX2) */
    bool avx512;
} f8_llvm;

/* Open LLVM 19 and choose the machine. F8_ERR_LIBRARY when LLVM is missing, has another major
 * version or lacks a function; F8_ERR_UNSUPPORTED when the CPU has no AVX2 with FMA. The shared
 * library stays mapped when f8_llvm_free has released the handle (unloading LLVM under its
 * static state is unsafe). */
f8_status f8_llvm_load(f8_llvm **out, const f8_llvm_options *options, f8_diag *d);
void f8_llvm_free(f8_llvm *llvm); /* NULL is fine */
/* The usual names, in order; NULL-terminated. */
const char *const *f8_llvm_library_names(void);
/* All of LLVM and the machine that decides what code an emitter's IR becomes, as text for a key;
 * NULL when the arena failed. */
const char *f8_llvm_identity(const f8_llvm *llvm, f8_arena *arena);

/* ---- one module ---- */

typedef struct f8_llvm_module {
    const f8_llvm_api *ll; /* the function table, &llvm->ll */
    f8_llvm *llvm;
    LLVMContextRef context;
    LLVMModuleRef module;
    LLVMBuilderRef b;
    LLVMTypeRef void_, i1, i8, i16, i32, i64, f32, f64, ptr;
    LLVMTypeRef phase_type; /* the kernel ABI: void(ptr args, ptr ints, i64, i64, ptr scratch) */
    LLVMValueRef function;  /* the one being built */
    int lanes; /* vectors made by f8_ll_v*: llvm->lanes unless the emitter changes it */
    char message[512];      /* the first error LLVM reported on this context */
} f8_llvm_module;

f8_status f8_llvm_module_begin(f8_llvm_module **out, f8_llvm *llvm, const char *name,
                               f8_diag *d);
void f8_llvm_module_end(f8_llvm_module *m); /* NULL is fine */

typedef struct f8_object {
    const uint8_t *bytes;
    size_t size;
} f8_object;

/* Verify, optimize (a light scalar pipeline: emitters write their vectors themselves) and emit
 * an ELF relocatable into `arena`. A module that LLVM refuses is F8_ERR_INTERNAL with LLVM's
 * words. */
f8_status f8_llvm_module_compile(f8_llvm_module *m, f8_arena *arena, f8_object *out, f8_diag *d);

/* The module's IR as text in the arena. */
char *f8_llvm_module_text(f8_llvm_module *m, f8_arena *arena);

/* ---- functions ---- */

/* What the plan needs to know of a phase an emitter made. */
typedef struct f8_cpu_phase {
    char symbol[96];
    int64_t n_tasks;
    int64_t scratch; /* bytes per thread, 64-byte aligned */
} f8_cpu_phase;

/* A phase of a kernel (f8_phase_fn of runtime/base/blob.h): visible outside, does tasks [begin,
 * end). */
typedef struct f8_ll_phase {
    LLVMValueRef function, args, ints, begin, end, scratch;
} f8_ll_phase;

void f8_ll_phase_begin(f8_llvm_module *m, f8_ll_phase *p, const char *symbol);
/* args[index], ints[index], loaded where the builder stands. */
LLVMValueRef f8_ll_phase_arg(f8_llvm_module *m, const f8_ll_phase *p, int index);
LLVMValueRef f8_ll_phase_int(f8_llvm_module *m, const f8_ll_phase *p, int index);
void f8_ll_phase_end(f8_llvm_module *m); /* ret void */

/* A function inside the module (internal linkage, not inlined), entered with the builder. */
LLVMValueRef f8_ll_function_begin(f8_llvm_module *m, const char *name, LLVMTypeRef result,
                                  const LLVMTypeRef *params, int count);
LLVMValueRef f8_ll_param(f8_llvm_module *m, int index);
LLVMValueRef f8_ll_call(f8_llvm_module *m, LLVMValueRef function, const LLVMValueRef *args,
                        int count);
void f8_ll_noalias(f8_llvm_module *m, LLVMValueRef function, int param);

/* ---- constants and types; the v forms are vectors of m->lanes ---- */

LLVMValueRef f8_ll_i64(f8_llvm_module *m, int64_t v);
LLVMValueRef f8_ll_i32(f8_llvm_module *m, int32_t v);
LLVMValueRef f8_ll_f32(f8_llvm_module *m, float v); /* exact bits, NaN included */
LLVMValueRef f8_ll_vi32(f8_llvm_module *m, int32_t v);
LLVMValueRef f8_ll_vf32(f8_llvm_module *m, float v);
LLVMTypeRef f8_ll_vtype(f8_llvm_module *m, LLVMTypeRef element);
/* The splat of a constant over a type: returns the scalar itself when `like` is no vector. */
LLVMValueRef f8_ll_const_like(f8_llvm_module *m, LLVMTypeRef like, LLVMValueRef scalar);
/* `element`, or a vector of it as wide as the vector type `like`. */
LLVMTypeRef f8_ll_retype(f8_llvm_module *m, LLVMTypeRef element, LLVMTypeRef like);
LLVMValueRef f8_ll_splat(f8_llvm_module *m, LLVMValueRef scalar);
LLVMValueRef f8_ll_iota(f8_llvm_module *m); /* <0, 1, ...> as i32 */

/* ---- arithmetic: scalars or vectors alike ---- */

LLVMValueRef f8_ll_fma(f8_llvm_module *m, LLVMValueRef a, LLVMValueRef b, LLVMValueRef c);
LLVMValueRef f8_ll_sqrt(f8_llvm_module *m, LLVMValueRef a);
LLVMValueRef f8_ll_rint(f8_llvm_module *m, LLVMValueRef a); /* nearest even, not by MXCSR */
LLVMValueRef f8_ll_fabs(f8_llvm_module *m, LLVMValueRef a);
/* IEEE-754 maximum/minimum: a NaN operand gives NaN, +0 > -0. */
LLVMValueRef f8_ll_fmaximum(f8_llvm_module *m, LLVMValueRef a, LLVMValueRef b);
LLVMValueRef f8_ll_fminimum(f8_llvm_module *m, LLVMValueRef a, LLVMValueRef b);
/* Any other intrinsic overloaded on the type of its operands alone, e.g. "llvm.umax". */
LLVMValueRef f8_ll_intrinsic(f8_llvm_module *m, const char *name, LLVMValueRef *args, int count);
LLVMValueRef f8_ll_f32_to_i32(f8_llvm_module *m, LLVMValueRef a); /* saturating, NaN gives 0 */
LLVMValueRef f8_ll_bits(f8_llvm_module *m, LLVMValueRef f32);      /* f32 -> i32, same bits */
LLVMValueRef f8_ll_from_bits(f8_llvm_module *m, LLVMValueRef i32); /* i32 -> f32, same bits */
/* A scalar program (exp, encode_e4m3, ...) applied to x, and one of its operations (b, c as its
 * arity asks; none for the constants); truth values are i1. */
LLVMValueRef f8_ll_scalar(f8_llvm_module *m, f8_sfn fn, LLVMValueRef x);
LLVMValueRef f8_ll_sop(f8_llvm_module *m, f8_sop op, LLVMValueRef a, LLVMValueRef b,
                       LLVMValueRef c);
/* bf16 travels as i16. Rounding is to nearest even, a NaN keeps its sign and becomes quiet; done in
 * integers because the machine's conversion (VCVTNEPS2BF16) flushes subnormals. */
LLVMValueRef f8_ll_bf16_to_f32(f8_llvm_module *m, LLVMValueRef bits);
LLVMValueRef f8_ll_f32_to_bf16(f8_llvm_module *m, LLVMValueRef f32);
/* f16 as i16, exact or rounded to nearest even by the machine's F16C. */
LLVMValueRef f8_ll_f16_to_f32(f8_llvm_module *m, LLVMValueRef bits);
LLVMValueRef f8_ll_f32_to_f16(f8_llvm_module *m, LLVMValueRef f32);

/* ---- memory: index counts elements (i64); alignment is that of the element ---- */

LLVMValueRef f8_ll_at(f8_llvm_module *m, LLVMTypeRef element, LLVMValueRef base,
                      LLVMValueRef index);
LLVMValueRef f8_ll_load(f8_llvm_module *m, LLVMTypeRef type, LLVMValueRef pointer);
void f8_ll_store(f8_llvm_module *m, LLVMValueRef value, LLVMValueRef pointer);
/* Vectors: elements from `pointer` on; `mask` (from f8_ll_mask) may be NULL for all lanes. A masked
 * load reads nothing outside the mask and gives `other` there (NULL: zeros). */
LLVMValueRef f8_ll_vload(f8_llvm_module *m, LLVMTypeRef element, LLVMValueRef pointer,
                         LLVMValueRef mask, LLVMValueRef other);
void f8_ll_vstore(f8_llvm_module *m, LLVMValueRef value, LLVMValueRef pointer, LLVMValueRef mask);
/* <lane < count>: count i64, lanes beyond it are off. */
LLVMValueRef f8_ll_mask(f8_llvm_module *m, LLVMValueRef count);

/* ---- control ---- */

enum { F8_LL_CARRY_MAX = 64 };

/* for (index = begin; index < end; index += step), i64, with `count` values carried round:
 *     f8_ll_loop_begin(m, &l, begin, end, step, init, count);
 *     ... l.index, l.value[k] are this round's ...
 *     f8_ll_loop_end(m, &l, next);
 * and after it l.value[k] are the final ones. Loops nest; the body may end in another block. */
typedef struct f8_ll_loop {
    LLVMValueRef index, value[F8_LL_CARRY_MAX];
    LLVMValueRef step;
    LLVMBasicBlockRef head, exit;
    int count;
} f8_ll_loop;

void f8_ll_loop_begin(f8_llvm_module *m, f8_ll_loop *l, LLVMValueRef begin, LLVMValueRef end,
                      LLVMValueRef step, const LLVMValueRef *init, int count);
void f8_ll_loop_end(f8_llvm_module *m, f8_ll_loop *l, const LLVMValueRef *next);

/* if (condition) { ... } [else { ... }]; results through allocas or f8_ll_loop's carries, or
 * f8_ll_select where both sides are cheap. */
typedef struct f8_ll_if {
    LLVMBasicBlockRef otherwise, exit;
    bool has_else;
} f8_ll_if;

void f8_ll_if_begin(f8_llvm_module *m, f8_ll_if *i, LLVMValueRef condition);
void f8_ll_if_else(f8_llvm_module *m, f8_ll_if *i);
void f8_ll_if_end(f8_llvm_module *m, f8_ll_if *i);

/* Integer helpers for indices: signed i64. */
LLVMValueRef f8_ll_imin(f8_llvm_module *m, LLVMValueRef a, LLVMValueRef b);
LLVMValueRef f8_ll_imax(f8_llvm_module *m, LLVMValueRef a, LLVMValueRef b);

#endif
