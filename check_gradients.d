check_gradients.o: tests/passes/grad/check_gradients.c \
  tests/shared/suite.h tests/shared/passes/unit.h \
  tests/shared/passes/passes.h passes/grad/autodiff.h passes/unit/pass.h \
  ir/ir.h ir/base/status.h ir/base/type.h ir/ops.def ir/attrs.def \
  ir/base/log.h ir/base/progress.h ir/num/quantize.h \
  ir/num/granularity.h ir/recipe.h ir/base/pattern.h ir/target.h \
  ir/num/scale_layout.h passes/unit/index.h passes/fuse/group.h \
  passes/legalize/legalize.h passes/memory/memory.h passes/pipeline.h \
  passes/remat/remat.h passes/remat/plan.h passes/memory/storage.h \
  passes/unit/rows.h ir/lowered.h ir/place.h passes/scale/scaling.h
tests/shared/suite.h:
tests/shared/passes/unit.h:
tests/shared/passes/passes.h:
passes/grad/autodiff.h:
passes/unit/pass.h:
ir/ir.h:
ir/base/status.h:
ir/base/type.h:
ir/ops.def:
ir/attrs.def:
ir/base/log.h:
ir/base/progress.h:
ir/num/quantize.h:
ir/num/granularity.h:
ir/recipe.h:
ir/base/pattern.h:
ir/target.h:
ir/num/scale_layout.h:
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
ir/place.h:
passes/scale/scaling.h:
