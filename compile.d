compile.o: tests/shared/passes/compile.c tests/shared/passes/compile.h \
  frontend/instance.h ir/ir.h ir/base/status.h ir/base/type.h ir/ops.def \
  ir/attrs.def runtime/cuda/exec.h runtime/cuda/device.h ir/target.h \
  ir/num/scale_layout.h ir/num/granularity.h runtime/cuda/nccl.h \
  runtime/comm/comm.h runtime/cuda/api.h runtime/home.h runtime/plan.h \
  ir/place.h runtime/base/attention_desc.h runtime/base/cpu.h \
  runtime/base/gemm_desc.h runtime/base/pool.h runtime/cpu/exec.h \
  runtime/cpu/gemm.h tests/shared/passes/passes.h passes/grad/autodiff.h \
  passes/unit/pass.h ir/base/log.h ir/base/progress.h ir/num/quantize.h \
  ir/recipe.h ir/base/pattern.h passes/unit/index.h passes/fuse/group.h \
  passes/legalize/legalize.h passes/memory/memory.h passes/pipeline.h \
  passes/remat/remat.h passes/remat/plan.h passes/memory/storage.h \
  passes/unit/rows.h ir/lowered.h passes/scale/scaling.h \
  tests/shared/num/operand.h codegen/build.h codegen/plan/options.h \
  codegen/kernel/kernel.h ir/num/scalar.h ir/num/fp8.h ir/num/scalar.def \
  frontend/text/parse.h tests/shared/kernel_cache.h \
  codegen/cache/cache.h ir/base/hash.h ir/base/temporary.h
tests/shared/passes/compile.h:
frontend/instance.h:
ir/ir.h:
ir/base/status.h:
ir/base/type.h:
ir/ops.def:
ir/attrs.def:
runtime/cuda/exec.h:
runtime/cuda/device.h:
ir/target.h:
ir/num/scale_layout.h:
ir/num/granularity.h:
runtime/cuda/nccl.h:
runtime/comm/comm.h:
runtime/cuda/api.h:
runtime/home.h:
runtime/plan.h:
ir/place.h:
runtime/base/attention_desc.h:
runtime/base/cpu.h:
runtime/base/gemm_desc.h:
runtime/base/pool.h:
runtime/cpu/exec.h:
runtime/cpu/gemm.h:
tests/shared/passes/passes.h:
passes/grad/autodiff.h:
passes/unit/pass.h:
ir/base/log.h:
ir/base/progress.h:
ir/num/quantize.h:
ir/recipe.h:
ir/base/pattern.h:
passes/unit/index.h:
passes/fuse/group.h:
passes/legalize/legalize.h:
passes/memory/memory.h:
passes/pipeline.h:
passes/remat/remat.h:
passes/remat/plan.h:
passes/memory/storage.h:
passes/unit/rows.h:
ir/lowered.h:
passes/scale/scaling.h:
tests/shared/num/operand.h:
codegen/build.h:
codegen/plan/options.h:
codegen/kernel/kernel.h:
ir/num/scalar.h:
ir/num/fp8.h:
ir/num/scalar.def:
frontend/text/parse.h:
tests/shared/kernel_cache.h:
codegen/cache/cache.h:
ir/base/hash.h:
ir/base/temporary.h:
