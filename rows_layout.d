rows_layout.o: codegen/cuda/rows_layout.c codegen/cuda/print.h \
  codegen/cuda/emit.h codegen/cuda/text.h codegen/kernel/kernel.h \
  ir/lowered.h ir/ir.h ir/base/status.h ir/base/type.h ir/ops.def \
  ir/attrs.def ir/place.h ir/target.h ir/num/scale_layout.h \
  ir/num/granularity.h ir/num/scalar.h ir/num/fp8.h ir/num/scalar.def \
  codegen/kernel/attention.h codegen/kernel/text.h runtime/plan.h \
  runtime/base/attention_desc.h runtime/base/cpu.h \
  runtime/base/gemm_desc.h runtime/comm/comm.h
codegen/cuda/print.h:
codegen/cuda/emit.h:
codegen/cuda/text.h:
codegen/kernel/kernel.h:
ir/lowered.h:
ir/ir.h:
ir/base/status.h:
ir/base/type.h:
ir/ops.def:
ir/attrs.def:
ir/place.h:
ir/target.h:
ir/num/scale_layout.h:
ir/num/granularity.h:
ir/num/scalar.h:
ir/num/fp8.h:
ir/num/scalar.def:
codegen/kernel/attention.h:
codegen/kernel/text.h:
runtime/plan.h:
runtime/base/attention_desc.h:
runtime/base/cpu.h:
runtime/base/gemm_desc.h:
runtime/comm/comm.h:
