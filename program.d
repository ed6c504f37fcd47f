program.o: frontend/program.c frontend/program.h frontend/api.h \
  codegen/cache/cache.h ir/base/hash.h ir/base/log.h ir/base/status.h \
  ir/base/temporary.h frontend/fp8c.h frontend/settings.h \
  runtime/cuda/device.h ir/target.h ir/num/scale_layout.h \
  ir/num/granularity.h ir/base/type.h ir/ir.h ir/ops.def ir/attrs.def \
  ir/base/progress.h runtime/base/pool.h frontend/instance.h \
  runtime/cuda/exec.h runtime/cuda/nccl.h runtime/comm/comm.h \
  runtime/cuda/api.h runtime/home.h runtime/plan.h ir/place.h \
  runtime/base/attention_desc.h runtime/base/cpu.h \
  runtime/base/gemm_desc.h runtime/cpu/exec.h runtime/cpu/gemm.h \
  frontend/f8x/package.h frontend/f8x/compile_report.h codegen/build.h \
  codegen/plan/options.h codegen/kernel/kernel.h ir/lowered.h \
  ir/num/scalar.h ir/num/fp8.h ir/num/scalar.def ir/base/wire.h \
  passes/memory/report.h passes/unit/pass.h ir/num/quantize.h \
  ir/recipe.h ir/base/pattern.h passes/unit/index.h ir/base/file.h \
  frontend/variables.h frontend/variants.h passes/pipeline.h
frontend/program.h:
frontend/api.h:
codegen/cache/cache.h:
ir/base/hash.h:
ir/base/log.h:
ir/base/status.h:
ir/base/temporary.h:
frontend/fp8c.h:
frontend/settings.h:
runtime/cuda/device.h:
ir/target.h:
ir/num/scale_layout.h:
ir/num/granularity.h:
ir/base/type.h:
ir/ir.h:
ir/ops.def:
ir/attrs.def:
ir/base/progress.h:
runtime/base/pool.h:
frontend/instance.h:
runtime/cuda/exec.h:
runtime/cuda/nccl.h:
runtime/comm/comm.h:
runtime/cuda/api.h:
runtime/home.h:
runtime/plan.h:
ir/place.h:
runtime/base/attention_desc.h:
runtime/base/cpu.h:
runtime/base/gemm_desc.h:
runtime/cpu/exec.h:
runtime/cpu/gemm.h:
frontend/f8x/package.h:
frontend/f8x/compile_report.h:
codegen/build.h:
codegen/plan/options.h:
codegen/kernel/kernel.h:
ir/lowered.h:
ir/num/scalar.h:
ir/num/fp8.h:
ir/num/scalar.def:
ir/base/wire.h:
passes/memory/report.h:
passes/unit/pass.h:
ir/num/quantize.h:
ir/recipe.h:
ir/base/pattern.h:
passes/unit/index.h:
ir/base/file.h:
frontend/variables.h:
frontend/variants.h:
passes/pipeline.h:
