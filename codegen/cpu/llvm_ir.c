/* Building IR: functions, constants, vectors, memory accesses and loops, which all emitters use
 * (llvm.h). */
#include "codegen/cpu/llvm.h"

#include <stdio.h>
#include <string.h>

/* ---- functions ---- */

static void add_enum(f8_llvm_module *m, LLVMValueRef f, unsigned index, const char *name)
{
    unsigned kind = m->ll->GetEnumAttributeKindForName(name, strlen(name));
    m->ll->AddAttributeAtIndex(f, index, m->ll->CreateEnumAttribute(m->context, kind, 0));
}

static void add_string(f8_llvm_module *m, LLVMValueRef f, const char *name, const char *value)
{
    m->ll->AddAttributeAtIndex(f, LLVMAttributeFunctionIndex,
                               m->ll->CreateStringAttribute(m->context, name, strlen(name), value,
                                                            strlen(value)));
}

static void common_attributes(f8_llvm_module *m, LLVMValueRef f)
{
    add_enum(m, f, LLVMAttributeFunctionIndex, "nounwind");
    /* no code may become a call to libc, which the blob does not have */
    add_string(m, f, "no-builtins", "true");
    add_string(m, f, "target-cpu", m->llvm->cpu);
    if (m->llvm->features[0])
        add_string(m, f, "target-features", m->llvm->features);
    /* LLVM would split 512-bit vectors on CPUs that once reduced their clock for them */
    if (m->llvm->avx512)
        add_string(m, f, "prefer-vector-width", "512");
}

static void enter(f8_llvm_module *m, LLVMValueRef f)
{
    m->function = f;
    LLVMBasicBlockRef entry = m->ll->AppendBasicBlockInContext(m->context, f, "");
    LLVMBasicBlockRef body = m->ll->AppendBasicBlockInContext(m->context, f, "");
    /* the entry block is only a branch, so no loop leads back to it */
    m->ll->PositionBuilderAtEnd(m->b, entry);
    m->ll->BuildBr(m->b, body);
    m->ll->PositionBuilderAtEnd(m->b, body);
}

void f8_ll_phase_begin(f8_llvm_module *m, f8_ll_phase *p, const char *symbol)
{
    LLVMValueRef f = m->ll->AddFunction(m->module, symbol, m->phase_type);
    common_attributes(m, f);
    /* scratch belongs to the thread; while the phase runs the tables are only read */
    add_enum(m, f, 1, "noalias");
    add_enum(m, f, 1, "readonly");
    add_enum(m, f, 2, "noalias");
    add_enum(m, f, 2, "readonly");
    add_enum(m, f, 5, "noalias");
    *p = (f8_ll_phase){f, m->ll->GetParam(f, 0), m->ll->GetParam(f, 1), m->ll->GetParam(f, 2),
                       m->ll->GetParam(f, 3), m->ll->GetParam(f, 4)};
    enter(m, f);
}

LLVMValueRef f8_ll_phase_arg(f8_llvm_module *m, const f8_ll_phase *p, int index)
{
    LLVMValueRef at = f8_ll_at(m, m->ptr, p->args, f8_ll_i64(m, index));
    return m->ll->BuildLoad2(m->b, m->ptr, at, "");
}

LLVMValueRef f8_ll_phase_int(f8_llvm_module *m, const f8_ll_phase *p, int index)
{
    return f8_ll_load(m, m->i64, f8_ll_at(m, m->i64, p->ints, f8_ll_i64(m, index)));
}

void f8_ll_phase_end(f8_llvm_module *m)
{
    m->ll->BuildRetVoid(m->b);
    m->function = NULL;
}

LLVMValueRef f8_ll_function_begin(f8_llvm_module *m, const char *name, LLVMTypeRef result,
                                  const LLVMTypeRef *params, int count)
{
    LLVMTypeRef type = m->ll->FunctionType(result, (LLVMTypeRef *)params, (unsigned)count, 0);
    LLVMValueRef f = m->ll->AddFunction(m->module, name, type);
    common_attributes(m, f);
    add_enum(m, f, LLVMAttributeFunctionIndex, "noinline");
    m->ll->SetLinkage(f, LLVMInternalLinkage);
    enter(m, f);
    return f;
}

LLVMValueRef f8_ll_param(f8_llvm_module *m, int index)
{
    return m->ll->GetParam(m->function, (unsigned)index);
}

LLVMValueRef f8_ll_call(f8_llvm_module *m, LLVMValueRef function, const LLVMValueRef *args,
                        int count)
{
    return m->ll->BuildCall2(m->b, m->ll->GlobalGetValueType(function), function,
                             (LLVMValueRef *)args, (unsigned)count, "");
}

void f8_ll_noalias(f8_llvm_module *m, LLVMValueRef function, int param)
{
    add_enum(m, function, (unsigned)param + 1, "noalias");
}

/* ---- constants and types ---- */

LLVMValueRef f8_ll_i64(f8_llvm_module *m, int64_t v)
{
    return m->ll->ConstInt(m->i64, (unsigned long long)v, 1);
}

LLVMValueRef f8_ll_i32(f8_llvm_module *m, int32_t v)
{
    return m->ll->ConstInt(m->i32, (unsigned long long)(int64_t)v, 1);
}

LLVMValueRef f8_ll_f32(f8_llvm_module *m, float v)
{
    int32_t bits;
    memcpy(&bits, &v, sizeof bits);
    return m->ll->ConstBitCast(f8_ll_i32(m, bits), m->f32);
}

LLVMTypeRef f8_ll_vtype(f8_llvm_module *m, LLVMTypeRef element)
{
    return m->ll->VectorType(element, (unsigned)m->lanes);
}

static bool is_vector(f8_llvm_module *m, LLVMTypeRef type)
{
    return m->ll->GetTypeKind(type) == LLVMVectorTypeKind;
}

LLVMTypeRef f8_ll_retype(f8_llvm_module *m, LLVMTypeRef element, LLVMTypeRef like)
{
    return is_vector(m, like) ? m->ll->VectorType(element, m->ll->GetVectorSize(like)) : element;
}

enum { WIDEST = 64 };

static LLVMValueRef const_splat(f8_llvm_module *m, LLVMValueRef scalar, unsigned n)
{
    LLVMValueRef v[WIDEST];
    for (unsigned i = 0; i < n; i++)
        v[i] = scalar;
    return m->ll->ConstVector(v, n);
}

LLVMValueRef f8_ll_const_like(f8_llvm_module *m, LLVMTypeRef like, LLVMValueRef scalar)
{
    return is_vector(m, like) ? const_splat(m, scalar, m->ll->GetVectorSize(like)) : scalar;
}

LLVMValueRef f8_ll_vi32(f8_llvm_module *m, int32_t v)
{
    return const_splat(m, f8_ll_i32(m, v), (unsigned)m->lanes);
}

LLVMValueRef f8_ll_vf32(f8_llvm_module *m, float v)
{
    return const_splat(m, f8_ll_f32(m, v), (unsigned)m->lanes);
}

LLVMValueRef f8_ll_splat(f8_llvm_module *m, LLVMValueRef scalar)
{
    if (m->ll->IsConstant(scalar))
        return const_splat(m, scalar, (unsigned)m->lanes);
    LLVMValueRef none = m->ll->GetPoison(f8_ll_vtype(m, m->ll->TypeOf(scalar)));
    LLVMValueRef one = m->ll->BuildInsertElement(m->b, none, scalar, f8_ll_i64(m, 0), "");
    return m->ll->BuildShuffleVector(m->b, one, none, f8_ll_vi32(m, 0), "");
}

LLVMValueRef f8_ll_iota(f8_llvm_module *m)
{
    LLVMValueRef v[WIDEST];
    for (int i = 0; i < m->lanes; i++)
        v[i] = f8_ll_i32(m, i);
    return m->ll->ConstVector(v, (unsigned)m->lanes);
}

/* ---- arithmetic ---- */

static LLVMValueRef call_intrinsic(f8_llvm_module *m, const char *name, LLVMTypeRef *overload,
                                   int overloads, LLVMValueRef *args, int count)
{
    unsigned id = m->ll->LookupIntrinsicID(name, strlen(name));
    LLVMValueRef f = m->ll->GetIntrinsicDeclaration(m->module, id, overload, (size_t)overloads);
    LLVMTypeRef type = m->ll->IntrinsicGetType(m->context, id, overload, (size_t)overloads);
    return m->ll->BuildCall2(m->b, type, f, args, (unsigned)count, "");
}

LLVMValueRef f8_ll_intrinsic(f8_llvm_module *m, const char *name, LLVMValueRef *args, int count)
{
    LLVMTypeRef type = m->ll->TypeOf(args[0]);
    return call_intrinsic(m, name, &type, 1, args, count);
}

LLVMValueRef f8_ll_fma(f8_llvm_module *m, LLVMValueRef a, LLVMValueRef b, LLVMValueRef c)
{
    return f8_ll_intrinsic(m, "llvm.fma", (LLVMValueRef[]){a, b, c}, 3);
}

LLVMValueRef f8_ll_sqrt(f8_llvm_module *m, LLVMValueRef a)
{
    return f8_ll_intrinsic(m, "llvm.sqrt", &a, 1);
}

LLVMValueRef f8_ll_rint(f8_llvm_module *m, LLVMValueRef a)
{
    return f8_ll_intrinsic(m, "llvm.roundeven", &a, 1);
}

LLVMValueRef f8_ll_fabs(f8_llvm_module *m, LLVMValueRef a)
{
    return f8_ll_intrinsic(m, "llvm.fabs", &a, 1);
}

LLVMValueRef f8_ll_fmaximum(f8_llvm_module *m, LLVMValueRef a, LLVMValueRef b)
{
    return f8_ll_intrinsic(m, "llvm.maximum", (LLVMValueRef[]){a, b}, 2);
}

LLVMValueRef f8_ll_fminimum(f8_llvm_module *m, LLVMValueRef a, LLVMValueRef b)
{
    return f8_ll_intrinsic(m, "llvm.minimum", (LLVMValueRef[]){a, b}, 2);
}

LLVMValueRef f8_ll_f32_to_i32(f8_llvm_module *m, LLVMValueRef a)
{
    LLVMTypeRef from = m->ll->TypeOf(a), overload[] = {f8_ll_retype(m, m->i32, from), from};
    return call_intrinsic(m, "llvm.fptosi.sat", overload, 2, &a, 1);
}

LLVMValueRef f8_ll_bits(f8_llvm_module *m, LLVMValueRef f32)
{
    return m->ll->BuildBitCast(m->b, f32, f8_ll_retype(m, m->i32, m->ll->TypeOf(f32)), "");
}

LLVMValueRef f8_ll_from_bits(f8_llvm_module *m, LLVMValueRef i32)
{
    return m->ll->BuildBitCast(m->b, i32, f8_ll_retype(m, m->f32, m->ll->TypeOf(i32)), "");
}

LLVMValueRef f8_ll_bf16_to_f32(f8_llvm_module *m, LLVMValueRef bits)
{
    LLVMTypeRef wide = f8_ll_retype(m, m->i32, m->ll->TypeOf(bits));
    LLVMValueRef x = m->ll->BuildZExt(m->b, bits, wide, "");
    x = m->ll->BuildShl(m->b, x, f8_ll_const_like(m, wide, f8_ll_i32(m, 16)), "");
    return f8_ll_from_bits(m, x);
}

LLVMValueRef f8_ll_f32_to_bf16(f8_llvm_module *m, LLVMValueRef f32)
{
    const f8_llvm_api *ll = m->ll;
    LLVMValueRef x = f8_ll_bits(m, f32);
    LLVMTypeRef wide = ll->TypeOf(x);
#define K(v) f8_ll_const_like(m, wide, f8_ll_i32(m, (v)))
    LLVMValueRef high = ll->BuildLShr(m->b, x, K(16), "");
    LLVMValueRef odd = ll->BuildAnd(m->b, high, K(1), "");
    LLVMValueRef up = ll->BuildAdd(m->b, ll->BuildAdd(m->b, x, K(0x7fff), ""), odd, "");
    up = ll->BuildLShr(m->b, up, K(16), "");
    LLVMValueRef nan = ll->BuildFCmp(m->b, LLVMRealUNO, f32, f32, "");
    LLVMValueRef quiet = ll->BuildOr(m->b, high, K(0x40), "");
#undef K
    LLVMValueRef r = ll->BuildSelect(m->b, nan, quiet, up, "");
    return ll->BuildTrunc(m->b, r, f8_ll_retype(m, m->i16, wide), "");
}

LLVMValueRef f8_ll_f16_to_f32(f8_llvm_module *m, LLVMValueRef bits)
{
    LLVMTypeRef type = m->ll->TypeOf(bits);
    LLVMTypeRef half = f8_ll_retype(m, m->ll->HalfTypeInContext(m->context), type);
    LLVMValueRef h = m->ll->BuildBitCast(m->b, bits, half, "");
    return m->ll->BuildFPExt(m->b, h, f8_ll_retype(m, m->f32, type), "");
}

LLVMValueRef f8_ll_f32_to_f16(f8_llvm_module *m, LLVMValueRef f32)
{
    LLVMTypeRef type = m->ll->TypeOf(f32);
    LLVMTypeRef half = f8_ll_retype(m, m->ll->HalfTypeInContext(m->context), type);
    LLVMValueRef h = m->ll->BuildFPTrunc(m->b, f32, half, "");
    return m->ll->BuildBitCast(m->b, h, f8_ll_retype(m, m->i16, type), "");
}

/* ---- memory ---- */

LLVMValueRef f8_ll_at(f8_llvm_module *m, LLVMTypeRef element, LLVMValueRef base, LLVMValueRef index)
{
    return m->ll->BuildInBoundsGEP2(m->b, element, base, &index, 1, "");
}

static unsigned element_bytes(f8_llvm_module *m, LLVMTypeRef type)
{
    if (is_vector(m, type))
        type = m->ll->GetElementType(type);
    switch (m->ll->GetTypeKind(type)) {
    case LLVMIntegerTypeKind: return (m->ll->GetIntTypeWidth(type) + 7) / 8;
    case LLVMHalfTypeKind: case LLVMBFloatTypeKind: return 2;
    case LLVMFloatTypeKind: return 4;
    default: return 8;
    }
}

LLVMValueRef f8_ll_load(f8_llvm_module *m, LLVMTypeRef type, LLVMValueRef pointer)
{
    LLVMValueRef v = m->ll->BuildLoad2(m->b, type, pointer, "");
    m->ll->SetAlignment(v, element_bytes(m, type));
    return v;
}

void f8_ll_store(f8_llvm_module *m, LLVMValueRef value, LLVMValueRef pointer)
{
    LLVMValueRef s = m->ll->BuildStore(m->b, value, pointer);
    m->ll->SetAlignment(s, element_bytes(m, m->ll->TypeOf(value)));
}

/* AVX2 has no masked loads and stores of elements of 8 and 16 bits. LLVM makes a branch for each
 * lane of each one. A kernel with hundreds of them then has thousands of blocks, and compiles for a
 * minute. */
static bool by_lanes(f8_llvm_module *m, LLVMTypeRef element, LLVMValueRef mask)
{
    return !m->llvm->avx512 && element_bytes(m, element) < 4 && !m->ll->IsConstant(mask);
}

/* A lane in the mask, or lane 0, which is. */
static LLVMValueRef lane_within(f8_llvm_module *m, LLVMValueRef mask, int lane)
{
    LLVMValueRef i = f8_ll_i64(m, lane), in = m->ll->BuildExtractElement(m->b, mask, i, "");
    return m->ll->BuildSelect(m->b, in, i, f8_ll_i64(m, 0), "");
}

static LLVMValueRef load_lanes(f8_llvm_module *m, LLVMTypeRef element, LLVMValueRef pointer,
                               LLVMValueRef mask)
{
    LLVMValueRef v = m->ll->GetPoison(f8_ll_vtype(m, element));
    for (int i = 0; i < m->lanes; i++) {
        LLVMValueRef at = f8_ll_at(m, element, pointer, lane_within(m, mask, i));
        v = m->ll->BuildInsertElement(m->b, v, f8_ll_load(m, element, at), f8_ll_i64(m, i), "");
    }
    return v;
}

/* A lane outside the mask stores the element of lane 0 at its place once more: no bit changes. */
static void store_lanes(f8_llvm_module *m, LLVMValueRef value, LLVMValueRef pointer,
                        LLVMValueRef mask)
{
    const f8_llvm_api *ll = m->ll;
    LLVMTypeRef element = ll->GetElementType(ll->TypeOf(value));
    LLVMValueRef first = ll->BuildExtractElement(m->b, value, f8_ll_i64(m, 0), "");
    value = ll->BuildSelect(m->b, mask, value, f8_ll_splat(m, first), "");
    for (int i = 0; i < m->lanes; i++)
        f8_ll_store(m, ll->BuildExtractElement(m->b, value, f8_ll_i64(m, i), ""),
                    f8_ll_at(m, element, pointer, lane_within(m, mask, i)));
}

LLVMValueRef f8_ll_vload(f8_llvm_module *m, LLVMTypeRef element, LLVMValueRef pointer,
                         LLVMValueRef mask, LLVMValueRef other)
{
    LLVMTypeRef type = f8_ll_vtype(m, element);
    if (!mask)
        return f8_ll_load(m, type, pointer);
    if (by_lanes(m, element, mask))
        return m->ll->BuildSelect(m->b, mask, load_lanes(m, element, pointer, mask),
                                  other ? other : m->ll->ConstNull(type), "");
    LLVMTypeRef overload[] = {type, m->ptr};
    LLVMValueRef args[] = {pointer, f8_ll_i32(m, (int32_t)element_bytes(m, element)), mask,
                           other ? other : m->ll->ConstNull(type)};
    return call_intrinsic(m, "llvm.masked.load", overload, 2, args, 4);
}

void f8_ll_vstore(f8_llvm_module *m, LLVMValueRef value, LLVMValueRef pointer, LLVMValueRef mask)
{
    if (!mask) {
        f8_ll_store(m, value, pointer);
        return;
    }
    LLVMTypeRef type = m->ll->TypeOf(value), overload[] = {type, m->ptr};
    if (by_lanes(m, m->ll->GetElementType(type), mask)) {
        store_lanes(m, value, pointer, mask);
        return;
    }
    LLVMValueRef args[] = {value, pointer, f8_ll_i32(m, (int32_t)element_bytes(m, type)), mask};
    call_intrinsic(m, "llvm.masked.store", overload, 2, args, 4);
}

LLVMValueRef f8_ll_mask(f8_llvm_module *m, LLVMValueRef count)
{
    /* clamp first: a count above the range of i32 must not wrap */
    LLVMValueRef n = f8_ll_imin(m, count, f8_ll_i64(m, m->lanes));
    n = m->ll->BuildTrunc(m->b, n, m->i32, "");
    return m->ll->BuildICmp(m->b, LLVMIntSLT, f8_ll_iota(m), f8_ll_splat(m, n), "");
}

/* ---- control ---- */

static LLVMBasicBlockRef new_block(f8_llvm_module *m)
{
    return m->ll->AppendBasicBlockInContext(m->context, m->function, "");
}

void f8_ll_loop_begin(f8_llvm_module *m, f8_ll_loop *l, LLVMValueRef begin, LLVMValueRef end,
                      LLVMValueRef step, const LLVMValueRef *init, int count)
{
    const f8_llvm_api *ll = m->ll;
    LLVMBasicBlockRef before = ll->GetInsertBlock(m->b), body = new_block(m);
    l->step = step;
    l->count = count;
    l->head = new_block(m);
    l->exit = new_block(m);
    ll->MoveBasicBlockAfter(body, l->head);
    ll->BuildBr(m->b, l->head);
    ll->PositionBuilderAtEnd(m->b, l->head);
    l->index = ll->BuildPhi(m->b, m->i64, "");
    ll->AddIncoming(l->index, &begin, &before, 1);
    for (int i = 0; i < count; i++) {
        l->value[i] = ll->BuildPhi(m->b, ll->TypeOf(init[i]), "");
        ll->AddIncoming(l->value[i], (LLVMValueRef *)&init[i], &before, 1);
    }
    LLVMValueRef more = ll->BuildICmp(m->b, LLVMIntSLT, l->index, end, "");
    ll->BuildCondBr(m->b, more, body, l->exit);
    ll->PositionBuilderAtEnd(m->b, body);
}

void f8_ll_loop_end(f8_llvm_module *m, f8_ll_loop *l, const LLVMValueRef *next)
{
    const f8_llvm_api *ll = m->ll;
    LLVMBasicBlockRef last = ll->GetInsertBlock(m->b);
    LLVMValueRef index = ll->BuildNSWAdd(m->b, l->index, l->step, "");
    ll->AddIncoming(l->index, &index, &last, 1);
    for (int i = 0; i < l->count; i++)
        ll->AddIncoming(l->value[i], (LLVMValueRef *)&next[i], &last, 1);
    ll->BuildBr(m->b, l->head);
    ll->MoveBasicBlockAfter(l->exit, last);
    ll->PositionBuilderAtEnd(m->b, l->exit);
}

void f8_ll_if_begin(f8_llvm_module *m, f8_ll_if *i, LLVMValueRef condition)
{
    LLVMBasicBlockRef then = new_block(m);
    i->otherwise = new_block(m);
    i->exit = new_block(m);
    i->has_else = false;
    m->ll->BuildCondBr(m->b, condition, then, i->otherwise);
    m->ll->PositionBuilderAtEnd(m->b, then);
}

void f8_ll_if_else(f8_llvm_module *m, f8_ll_if *i)
{
    m->ll->BuildBr(m->b, i->exit);
    m->ll->PositionBuilderAtEnd(m->b, i->otherwise);
    i->has_else = true;
}

void f8_ll_if_end(f8_llvm_module *m, f8_ll_if *i)
{
    m->ll->BuildBr(m->b, i->exit);
    if (!i->has_else) {
        m->ll->PositionBuilderAtEnd(m->b, i->otherwise);
        m->ll->BuildBr(m->b, i->exit);
    }
    m->ll->MoveBasicBlockAfter(i->exit, m->ll->GetInsertBlock(m->b));
    m->ll->PositionBuilderAtEnd(m->b, i->exit);
}

LLVMValueRef f8_ll_imin(f8_llvm_module *m, LLVMValueRef a, LLVMValueRef b)
{
    return f8_ll_intrinsic(m, "llvm.smin", (LLVMValueRef[]){a, b}, 2);
}

LLVMValueRef f8_ll_imax(f8_llvm_module *m, LLVMValueRef a, LLVMValueRef b)
{
    return f8_ll_intrinsic(m, "llvm.smax", (LLVMValueRef[]){a, b}, 2);
}
