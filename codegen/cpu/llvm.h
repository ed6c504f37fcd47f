/* LLVM, loaded when the CPU target needs it, and the helpers that all emitters use.
 *
 * The core library does not link LLVM: f8_llvm_load opens the shared library and fills a table of
 * functions of its C API (F8_LLVM_API lists them all). Calls go through that table:
 * m->ll->BuildFAdd(m->b, ...).
 *
 * Any number of threads may use one f8_llvm. One f8_llvm_module belongs to one thread at a time and
 * has its own context, so modules compile in parallel.
 *
 *     f8_llvm *llvm;
 *     f8_llvm_load(&llvm, &(f8_llvm_options){0}, diag);
 *     f8_llvm_module *m;
 *     f8_llvm_module_begin(&m, llvm, "kernel name", diag);
 *     f8_ll_phase p;
 *     f8_ll_phase_begin(m, &p, "k0_phase0");     // void k0_phase0(args, ints, begin, end, scratch)
 *     ... build with m->ll->Build*(m->b, ...) and f8_ll_* ...
 *     f8_ll_phase_end(m);
 *     f8_llvm_module_compile(m, arena, &object, diag);   // ELF object, for codegen/cpu/link.h
 *     f8_llvm_module_end(m);
 *     f8_llvm_free(llvm);
 *
 * Arithmetic is strict. No fast-math flag is ever set and subnormal numbers are kept. Nothing is
 * contracted: never emit llvm.fmuladd; llvm.fma is a fused multiply-add on purpose. */
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

typedef struct f8_llvm_machines {
    LLVMTargetMachineRef at[F8_LLVM_MACHINES];
    int n;
} f8_llvm_machines;

typedef struct f8_llvm {
    f8_llvm_api ll;
    f8_allocator allocator;
    LLVMTargetRef target;
    /* guards the machines that no module uses now; making one takes a millisecond */
    pthread_mutex_t lock;
    f8_llvm_machines machines[2];  /* by f8_llvm_module.fast */
    char *triple, *cpu, *features; /* as given to LLVM, NUL-terminated */
    char *path;                    /* path of the library; NULL if the loader does not tell it */
    int64_t size;                  /* bytes of that file */
    char version[24];              /* "19.1.7" */
    int lanes;                     /* f32 in the widest vector register: 16 (AVX-512) or 8 (AVX2) */
    bool avx512;
} f8_llvm;

/* Opens LLVM 19 and chooses the machine. F8_ERR_LIBRARY: LLVM is missing, has another major
 * version, or lacks a function. F8_ERR_UNSUPPORTED: the CPU lacks AVX2, FMA or F16C. The shared
 * library stays mapped after f8_llvm_free, since unloading LLVM is not safe with its static
 * state. */
f8_status f8_llvm_load(f8_llvm **out, const f8_llvm_options *options, f8_diag *d);
void f8_llvm_free(f8_llvm *llvm); /* NULL is fine */
/* The usual names, in order; NULL-terminated. */
const char *const *f8_llvm_library_names(void);
/* What decides which code LLVM makes of IR: LLVM itself and the machine, as text for a key. NULL:
 * out of memory. */
const char *f8_llvm_identity(const f8_llvm *llvm, f8_arena *arena);
/* Of such a text: "19.1.7" and the CPU that LLVM names, in the arena. False: it is no such text, or
 * out of memory. */
bool f8_llvm_identity_read(const char *identity, f8_arena *arena, const char **version,
                           const char **cpu);

/* ---- one module ---- */

typedef struct f8_llvm_module {
    const f8_llvm_api *ll; /* the function table, &llvm->ll */
    f8_llvm *llvm;
    LLVMContextRef context;
    LLVMModuleRef module;
    LLVMBuilderRef b;
    LLVMTypeRef void_, i1, i8, i16, i32, i64, f32, f64, ptr;
    LLVMTypeRef phase_type; /* the kernel ABI: void(ptr args, ptr ints, i64, i64, ptr scratch) */
    LLVMValueRef function;  /* the function being built */
    int lanes; /* lanes of the vectors of f8_ll_v*: llvm->lanes unless the emitter changes it */
    /* Set by the caller: compile in half the time, to code of the same results that takes about
     * twice the time. */
    bool fast;
    char message[512];      /* the first error LLVM reported on this context */
} f8_llvm_module;

f8_status f8_llvm_module_begin(f8_llvm_module **out, f8_llvm *llvm, const char *name,
                               f8_diag *d);
void f8_llvm_module_end(f8_llvm_module *m); /* NULL is fine */

typedef struct f8_object {
    const uint8_t *bytes;
    size_t size;
} f8_object;

/* Verifies and optimizes the module, and emits an ELF object into `arena`. The pipeline is a light
 * scalar one, since emitters write vectors themselves. F8_ERR_INTERNAL, with the words of LLVM, if
 * LLVM refuses the module. */
f8_status f8_llvm_module_compile(f8_llvm_module *m, f8_arena *arena, f8_object *out, f8_diag *d);

/* The module's IR as text in the arena. */
char *f8_llvm_module_text(f8_llvm_module *m, f8_arena *arena);

/* ---- functions ---- */

/* What the plan needs to know of a phase. */
typedef struct f8_cpu_phase {
    char symbol[96];
    int64_t n_tasks;
    int64_t scratch; /* bytes per thread, 64-byte aligned */
} f8_cpu_phase;

/* A phase of a kernel (f8_phase_fn of runtime/base/blob.h) as a global function; it runs tasks
 * [begin, end). */
typedef struct f8_ll_phase {
    LLVMValueRef function, args, ints, begin, end, scratch;
} f8_ll_phase;

void f8_ll_phase_begin(f8_llvm_module *m, f8_ll_phase *p, const char *symbol);
/* args[index] and ints[index], loaded at the position of the builder. */
LLVMValueRef f8_ll_phase_arg(f8_llvm_module *m, const f8_ll_phase *p, int index);
LLVMValueRef f8_ll_phase_int(f8_llvm_module *m, const f8_ll_phase *p, int index);
void f8_ll_phase_end(f8_llvm_module *m); /* ret void */

/* A function inside the module (internal linkage, not inlined). The builder is moved to its
 * start. */
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
/* A constant in every lane of the type `like`, or the scalar itself if `like` is no vector. */
LLVMValueRef f8_ll_const_like(f8_llvm_module *m, LLVMTypeRef like, LLVMValueRef scalar);
/* `element`, or a vector of as many lanes as the vector type `like`. */
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
/* Applies a scalar function (exp, encode_e4m3, ...) to x; f8_ll_sop applies one primitive of scalar
 * functions (b and c as its arity asks, no operand for constants). Truth values are i1. */
LLVMValueRef f8_ll_scalar(f8_llvm_module *m, f8_sfn fn, LLVMValueRef x);
/* The same of a body with one or several arguments, which have equally many lanes. */
LLVMValueRef f8_ll_body(f8_llvm_module *m, const f8_scalar_body *body, const LLVMValueRef *args);
LLVMValueRef f8_ll_sop(f8_llvm_module *m, f8_sop op, LLVMValueRef a, LLVMValueRef b,
                       LLVMValueRef c);
/* bf16 is held as i16. Rounding is to nearest even, and a NaN keeps its sign and becomes quiet. It
 * is done with integers because the instruction VCVTNEPS2BF16 flushes subnormal numbers. */
LLVMValueRef f8_ll_bf16_to_f32(f8_llvm_module *m, LLVMValueRef bits);
LLVMValueRef f8_ll_f32_to_bf16(f8_llvm_module *m, LLVMValueRef f32);
/* f16 is held as i16; widened exactly, or rounded to nearest even by F16C. */
LLVMValueRef f8_ll_f16_to_f32(f8_llvm_module *m, LLVMValueRef bits);
LLVMValueRef f8_ll_f32_to_f16(f8_llvm_module *m, LLVMValueRef f32);

/* ---- memory: index counts elements (i64); alignment is that of the element ---- */

LLVMValueRef f8_ll_at(f8_llvm_module *m, LLVMTypeRef element, LLVMValueRef base,
                      LLVMValueRef index);
LLVMValueRef f8_ll_load(f8_llvm_module *m, LLVMTypeRef type, LLVMValueRef pointer);
void f8_ll_store(f8_llvm_module *m, LLVMValueRef value, LLVMValueRef pointer);
/* Vectors: the elements from `pointer` on. `mask` (from f8_ll_mask) may be NULL for all lanes. A
 * masked load reads nothing outside the mask and gives `other` there (NULL: zeros). A mask that is
 * no constant has lane 0 where elements of 8 or 16 bits are loaded or stored. */
LLVMValueRef f8_ll_vload(f8_llvm_module *m, LLVMTypeRef element, LLVMValueRef pointer,
                         LLVMValueRef mask, LLVMValueRef other);
void f8_ll_vstore(f8_llvm_module *m, LLVMValueRef value, LLVMValueRef pointer, LLVMValueRef mask);
/* The mask of lanes below count (i64). */
LLVMValueRef f8_ll_mask(f8_llvm_module *m, LLVMValueRef count);

/* ---- control ---- */

/* for (index = begin; index < end; index += step), all i64, with `count` values carried from one
 * iteration to the next:
 *     f8_ll_loop l = {.value = room};          room for `count` values; none: f8_ll_loop l;
 *     f8_ll_loop_begin(m, &l, begin, end, step, init, count);
 *     ... l.index and l.value[k] are those of this iteration ...
 *     f8_ll_loop_end(m, &l, next);
 * Afterwards l.value[k] are the final values. Loops nest; the body may end in another block. */
typedef struct f8_ll_loop {
    LLVMValueRef index, step, *value;
    LLVMBasicBlockRef head, exit;
    int count;
} f8_ll_loop;

void f8_ll_loop_begin(f8_llvm_module *m, f8_ll_loop *l, LLVMValueRef begin, LLVMValueRef end,
                      LLVMValueRef step, const LLVMValueRef *init, int count);
void f8_ll_loop_end(f8_llvm_module *m, f8_ll_loop *l, const LLVMValueRef *next);

/* if (condition) { ... } [else { ... }]. Results leave it through allocas or the carried values of
 * a loop, or f8_ll_select serves where both sides are cheap. */
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
