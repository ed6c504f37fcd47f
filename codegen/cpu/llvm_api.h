/* The functions of the LLVM 19 C API that fp8c calls: one row each, loaded by codegen/cpu/llvm.c.
 * The types come from LLVM's own headers, so a changed signature fails to compile. */
#ifndef F8_CODEGEN_LLVM_API_H
#define F8_CODEGEN_LLVM_API_H

#include <llvm-c/Core.h>
#include <llvm-c/Analysis.h>
#include <llvm-c/Target.h>
#include <llvm-c/TargetMachine.h>
#include <llvm-c/Transforms/PassBuilder.h>

/* X(name without the LLVM prefix) */
#define F8_LLVM_API(X) \
    /* the library, targets, errors */ \
    X(GetVersion) X(DisposeMessage) X(GetErrorMessage) X(DisposeErrorMessage) \
    X(InitializeX86TargetInfo) X(InitializeX86Target) X(InitializeX86TargetMC) \
    X(InitializeX86AsmPrinter) X(GetTargetFromTriple) X(GetHostCPUName) X(GetHostCPUFeatures) \
    X(CreateTargetMachine) X(DisposeTargetMachine) X(CreateTargetDataLayout) X(DisposeTargetData) \
    X(TargetMachineEmitToMemoryBuffer) X(GetBufferStart) X(GetBufferSize) X(DisposeMemoryBuffer) \
    X(VerifyModule) X(RunPasses) X(CreatePassBuilderOptions) X(DisposePassBuilderOptions) \
    /* contexts, modules, builders */ \
    X(ContextCreate) X(ContextDispose) X(ContextSetDiagnosticHandler) X(GetDiagInfoDescription) \
    X(GetDiagInfoSeverity) X(ModuleCreateWithNameInContext) X(DisposeModule) X(SetTarget) \
    X(SetModuleDataLayout) X(PrintModuleToString) X(CreateBuilderInContext) X(DisposeBuilder) \
    /* types */ \
    X(VoidTypeInContext) X(Int1TypeInContext) X(Int8TypeInContext) X(Int16TypeInContext) \
    X(Int32TypeInContext) X(Int64TypeInContext) X(HalfTypeInContext) X(FloatTypeInContext) \
    X(DoubleTypeInContext) X(PointerTypeInContext) X(FunctionType) X(VectorType) X(TypeOf) \
    X(GetTypeKind) X(GetElementType) X(GetVectorSize) X(GetIntTypeWidth) X(GlobalGetValueType) \
    /* values */ \
    X(ConstInt) X(ConstNull) X(GetPoison) X(ConstVector) X(ConstBitCast) X(IsConstant) \
    X(SetLinkage) X(SetAlignment) \
    /* functions, attributes, metadata */ \
    X(AddFunction) X(GetParam) X(GetIntrinsicDeclaration) X(LookupIntrinsicID) \
    X(IntrinsicGetType) X(GetEnumAttributeKindForName) X(CreateEnumAttribute) \
    X(CreateStringAttribute) X(AddAttributeAtIndex) \
    /* blocks */ \
    X(AppendBasicBlockInContext) X(GetInsertBlock) X(PositionBuilderAtEnd) X(MoveBasicBlockAfter) \
    X(BuildRetVoid) X(BuildBr) X(BuildCondBr) X(BuildPhi) X(AddIncoming) X(BuildCall2) \
    /* integer and float instructions */ \
    X(BuildAdd) X(BuildNSWAdd) X(BuildSub) X(BuildNSWSub) X(BuildMul) X(BuildNSWMul) X(BuildUDiv) \
    X(BuildURem) X(BuildShl) X(BuildLShr) X(BuildAShr) X(BuildAnd) X(BuildOr) X(BuildXor) \
    X(BuildNot) X(BuildFAdd) X(BuildFSub) X(BuildFMul) X(BuildFDiv) X(BuildFNeg) X(BuildICmp) \
    X(BuildFCmp) X(BuildSelect) X(BuildTrunc) X(BuildZExt) X(BuildSExt) X(BuildSIToFP) \
    X(BuildFPTrunc) X(BuildFPExt) X(BuildBitCast) \
    /* memory and vectors */ \
    X(BuildLoad2) X(BuildStore) X(BuildInBoundsGEP2) X(BuildExtractElement) X(BuildInsertElement) \
    X(BuildShuffleVector)

typedef struct f8_llvm_api {
#define X(name) __typeof__(LLVM##name) *name;
    F8_LLVM_API(X)
#undef X
} f8_llvm_api;

#endif
