/* Scalar functions (ir/num/scalar.h) as LLVM IR, on scalars or on vectors: see llvm.h. */
#include "codegen/cpu/llvm.h"

typedef struct printer {
    f8_llvm_module *m;
    LLVMTypeRef shape; /* all values have as many lanes as this type */
    LLVMValueRef value[F8_SCALAR_MAX_VALUES];
} printer;

static LLVMValueRef const_i(printer *p, uint32_t u)
{
    return f8_ll_const_like(p->m, p->shape, f8_ll_i32(p->m, (int32_t)u));
}

static LLVMValueRef call2(f8_llvm_module *m, const char *name, LLVMValueRef a, LLVMValueRef b)
{
    return f8_ll_intrinsic(m, name, (LLVMValueRef[]){a, b}, 2);
}

LLVMValueRef f8_ll_sop(f8_llvm_module *m, f8_sop op, LLVMValueRef a, LLVMValueRef b, LLVMValueRef c)
{
    const f8_llvm_api *ll = m->ll;
    LLVMBuilderRef k = m->b;
    LLVMTypeRef type = ll->TypeOf(a);
#define COUNT ll->BuildAnd(k, b, f8_ll_const_like(m, type, f8_ll_i32(m, 31)), "")
    switch (op) {
    case F8_S_FADD: return ll->BuildFAdd(k, a, b, "");
    case F8_S_FSUB: return ll->BuildFSub(k, a, b, "");
    case F8_S_FMUL: return ll->BuildFMul(k, a, b, "");
    case F8_S_FDIV: return ll->BuildFDiv(k, a, b, "");
    case F8_S_FMA: return f8_ll_fma(m, a, b, c);
    case F8_S_FSQRT: return f8_ll_sqrt(m, a);
    case F8_S_FNEG: return ll->BuildFNeg(k, a, "");
    case F8_S_FABS: return f8_ll_fabs(m, a);
    case F8_S_FMAX: return f8_ll_fmaximum(m, a, b);
    case F8_S_FMIN: return f8_ll_fminimum(m, a, b);
    case F8_S_FRINT: return f8_ll_rint(m, a);
    case F8_S_FFLOOR: return f8_ll_intrinsic(m, "llvm.floor", &a, 1);
    case F8_S_FLT: return ll->BuildFCmp(k, LLVMRealOLT, a, b, "");
    case F8_S_FLE: return ll->BuildFCmp(k, LLVMRealOLE, a, b, "");
    case F8_S_FEQ: return ll->BuildFCmp(k, LLVMRealOEQ, a, b, "");
    case F8_S_ISNAN: return ll->BuildFCmp(k, LLVMRealUNO, a, a, "");
    case F8_S_IADD: return ll->BuildAdd(k, a, b, "");
    case F8_S_ISUB: return ll->BuildSub(k, a, b, "");
    case F8_S_IMUL: return ll->BuildMul(k, a, b, "");
    case F8_S_IAND: case F8_S_BAND: return ll->BuildAnd(k, a, b, "");
    case F8_S_IOR: case F8_S_BOR: return ll->BuildOr(k, a, b, "");
    case F8_S_IXOR: return ll->BuildXor(k, a, b, "");
    case F8_S_ISHL: return ll->BuildShl(k, a, COUNT, "");
    case F8_S_ISHR: return ll->BuildLShr(k, a, COUNT, "");
    case F8_S_ISAR: return ll->BuildAShr(k, a, COUNT, "");
    case F8_S_ISMIN: return call2(m, "llvm.smin", a, b);
    case F8_S_ISMAX: return call2(m, "llvm.smax", a, b);
    case F8_S_IUMIN: return call2(m, "llvm.umin", a, b);
    case F8_S_IUMAX: return call2(m, "llvm.umax", a, b);
    case F8_S_IEQ: return ll->BuildICmp(k, LLVMIntEQ, a, b, "");
    case F8_S_ILT: return ll->BuildICmp(k, LLVMIntSLT, a, b, "");
    case F8_S_IULT: return ll->BuildICmp(k, LLVMIntULT, a, b, "");
    case F8_S_BNOT: return ll->BuildNot(k, a, "");
    case F8_S_SEL_F: case F8_S_SEL_I: return ll->BuildSelect(k, a, b, c, "");
    case F8_S_F2I: return f8_ll_f32_to_i32(m, a);
    case F8_S_I2F: return ll->BuildSIToFP(k, a, f8_ll_retype(m, m->f32, type), "");
    case F8_S_BITS_F2I: return f8_ll_bits(m, a);
    case F8_S_BITS_I2F: return f8_ll_from_bits(m, a);
    case F8_S_CONST_F: case F8_S_CONST_I: case F8_SOP_COUNT: break; /* no operands: handled below */
    }
#undef COUNT
    return NULL;
}

LLVMValueRef f8_ll_scalar(f8_llvm_module *m, f8_sfn fn, LLVMValueRef x)
{
    return f8_ll_body(m, f8_scalar_function(fn), &x);
}

LLVMValueRef f8_ll_body(f8_llvm_module *m, const f8_scalar_body *program, const LLVMValueRef *args)
{
    printer p = {.m = m, .shape = m->ll->TypeOf(args[0])};
    for (int i = 0; i < program->n_args; i++)
        p.value[i] = args[i];
    for (int i = 0; i < program->n_instrs; i++) {
        const f8_sinstr *s = &program->instrs[i];
        LLVMValueRef *to = &p.value[program->n_args + i];
        if (s->op == F8_S_CONST_I)
            *to = const_i(&p, s->imm.u);
        else if (s->op == F8_S_CONST_F)
            *to = m->ll->ConstBitCast(const_i(&p, s->imm.u), f8_ll_retype(m, m->f32, p.shape));
        else
            *to = f8_ll_sop(m, s->op, p.value[s->arg[0]], p.value[s->arg[1]],
                            p.value[s->arg[2]]);
    }
    return p.value[program->result];
}
