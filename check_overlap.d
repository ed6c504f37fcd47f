check_overlap.o: tests/passes/memory/check_overlap.c passes/unit/cost.h \
  ir/lowered.h ir/ir.h ir/base/status.h ir/base/type.h ir/ops.def \
  ir/attrs.def ir/place.h ir/target.h ir/num/scale_layout.h \
  ir/num/granularity.h ir/recipe.h ir/base/pattern.h passes/unit/pass.h \
  ir/base/log.h ir/base/progress.h ir/num/quantize.h passes/unit/index.h \
  tests/shared/passes/compile.h frontend/instance.h runtime/cuda/exec.h \
  runtime/cuda/device.h runtime/cuda/nccl.h runtime/comm/comm.h \
  runtime/cuda/api.h runtime/home.h runtime/plan.h \
  runtime/base/attention_desc.h runtime/base/cpu.h \
  runtime/base/gemm_desc.h runtime/base/pool.h runtime/cpu/exec.h \
  runtime/cpu/gemm.h tests/shared/passes/passes.h passes/grad/autodiff.h \
  passes/fuse/group.h passes/legalize/legalize.h passes/memory/memory.h \
  passes/pipeline.h passes/remat/remat.h passes/remat/plan.h \
  passes/memory/storage.h passes/unit/rows.h passes/scale/scaling.h \
  tests/shared/num/operand.h tests/shared/suite.h
passes/unit/cost.h:
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
ir/recipe.h:
ir/base/pattern.h:
passes/unit/pass.h:
ir/base/log.h:
ir/base/progress.h:
ir/num/quantize.h:
passes/unit/index.h:
tests/shared/passes/compile.h:
frontend/instance.h:
runtime/cuda/exec.h:
runtime/cuda/device.h:
runtime/cuda/nccl.h:
runtime/comm/comm.h:
runtime/cuda/api.h:
runtime/home.h:
runtime/plan.h:
runtime/base/attention_desc.h:
runtime/base/cpu.h:
runtime/base/gemm_desc.h:
runtime/base/pool.h:
runtime/cpu/exec.h:
runtime/cpu/gemm.h:
tests/shared/passes/passes.h:
passes/grad/autodiff.h:
passes/fuse/group.h:
passes/legalize/legalize.h:
passes/memory/memory.h:
passes/pipeline.h:
passes/remat/remat.h:
passes/remat/plan.h:
passes/memory/storage.h:
passes/unit/rows.h:
passes/scale/scaling.h:
tests/shared/num/operand.h:
tests/shared/suite.h:
