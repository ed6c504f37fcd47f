/* The functions of the LLVM 19 C API that fp8c calls: one row each, loaded by codegen/llvm.c. The
 * types come from LLVM's own headers, so a changed signature fails to compile. */
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
    X(GetVersion) X(DisposeMessage) X(GetErrorMessage) X(DisposeErrorMessage) X(ConsumeError) \
    X(InitializeX86TargetInfo) X(InitializeX86Target) X(InitializeX86TargetMC) \
    X(InitializeX86AsmPrinter) X(GetDefaultTargetTriple) X(GetTargetFromTriple) \
    X(GetHostCPUName) X(GetHostCPUFeatures) X(CreateTargetMachine) X(DisposeTargetMachine) \
    X(CreateTargetDataLayout) X(DisposeTargetData) X(TargetMachineEmitToMemoryBuffer) \
    X(GetBufferStart) X(GetBufferSize) X(DisposeMemoryBuffer) \
    X(VerifyModule) X(RunPasses) X(CreatePassBuilderOptions) X(DisposePassBuilderOptions) \
    X(PassBuilderOptionsSetVerifyEach) X(PassBuilderOptionsSetLoopVectorization) \
    X(PassBuilderOptionsSetSLPVectorization) \
    /* contexts, modules, builders */ \
    X(ContextCreate) X(ContextDispose) X(ContextSetDiagnosticHandler) X(GetDiagInfoDescription) \
    X(GetDiagInfoSeverity) X(ModuleCreateWithNameInContext) X(DisposeModule) X(SetTarget) \
    X(SetModuleDataLayout) X(PrintModuleToString) X(CreateBuilderInContext) X(DisposeBuilder) \
    X(AddModuleFlag) X(ValueAsMetadata) X(CloneModule) \
    /* types */ \
    X(VoidTypeInContext) X(Int1TypeInContext) X(Int8TypeInContext) X(Int16TypeInContext) \
    X(Int32TypeInContext) X(Int64TypeInContext) X(HalfTypeInContext) X(FloatTypeInContext) \
    X(DoubleTypeInContext) X(BFloatTypeInContext) X(PointerTypeInContext) X(IntTypeInContext) \
    X(FunctionType) X(VectorType) X(ArrayType2) X(StructTypeInContext) X(TypeOf) X(GetTypeKind) \
    X(GetElementType) X(GetVectorSize) X(GetIntTypeWidth) X(GlobalGetValueType) X(GetReturnType) \
    /* values */ \
    X(ConstInt) X(ConstReal) X(ConstNull) X(ConstAllOnes) X(GetUndef) X(GetPoison) X(ConstVector) \
    X(ConstArray2) X(ConstBitCast) X(IsConstant) X(SetValueName2) X(AddGlobal) X(SetInitializer) \
    X(SetGlobalConstant) X(SetLinkage) X(SetVisibility) X(SetUnnamedAddress) X(SetAlignment) \
    X(SetVolatile) X(GetNamedFunction) X(GetNamedGlobal) \
    /* functions, attributes, metadata */ \
    X(AddFunction) X(GetParam) X(CountParams) X(GetIntrinsicDeclaration) X(LookupIntrinsicID) \
    X(IntrinsicGetType) X(GetEnumAttributeKindForName) X(CreateEnumAttribute) \
    X(CreateStringAttribute) X(AddAttributeAtIndex) X(RemoveEnumAttributeAtIndex) \
    X(AddCallSiteAttribute) \
    X(GetMDKindIDInContext) X(SetMetadata) X(MDNodeInContext2) X(MDStringInContext2) \
    X(MetadataAsValue) \
    /* blocks */ \
    X(AppendBasicBlockInContext) X(GetInsertBlock) X(GetEntryBasicBlock) X(GetBasicBlockParent) \
    X(GetFirstInstruction) X(GetBasicBlockTerminator) X(PositionBuilderAtEnd) \
    X(PositionBuilderBefore) X(MoveBasicBlockAfter) X(InsertBasicBlockInContext) \
    X(BuildRetVoid) X(BuildRet) X(BuildBr) X(BuildCondBr) X(BuildSwitch) X(AddCase) \
    X(BuildUnreachable) X(BuildPhi) X(AddIncoming) X(BuildCall2) X(SetTailCall) \
    /* integer and float instructions */ \
    X(BuildAdd) X(BuildNSWAdd) X(BuildSub) X(BuildNSWSub) X(BuildMul) X(BuildNSWMul) X(BuildUDiv) \
    X(BuildSDiv) X(BuildURem) X(BuildSRem) X(BuildShl) X(BuildLShr) X(BuildAShr) X(BuildAnd) \
    X(BuildOr) X(BuildXor) X(BuildNot) X(BuildNeg) X(BuildFAdd) X(BuildFSub) X(BuildFMul) \
    X(BuildFDiv) X(BuildFNeg) X(BuildICmp) X(BuildFCmp) X(BuildSelect) X(BuildTrunc) X(BuildZExt) \
    X(BuildSExt) X(BuildSIToFP) X(BuildUIToFP) X(BuildFPToSI) X(BuildFPToUI) X(BuildFPTrunc) \
    X(BuildFPExt) X(BuildBitCast) X(BuildPtrToInt) X(BuildIntToPtr) X(BuildFreeze) \
    /* memory and vectors */ \
    X(BuildAlloca) X(BuildArrayAlloca) X(BuildLoad2) X(BuildStore) X(BuildGEP2) \
    X(BuildInBoundsGEP2) X(BuildExtractElement) X(BuildInsertElement) X(BuildShuffleVector) \
    X(BuildExtractValue) X(BuildInsertValue)

typedef struct f8_llvm_api {
#define X(name) __typeof__(LLVM##name) *name;
    F8_LLVM_API(X)
#undef X
} f8_llvm_api;

#endif
