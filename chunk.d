chunk.o: passes/chunk.c passes/unit/copy.h ir/ir.h ir/base/status.h \
  ir/base/type.h ir/ops.def ir/attrs.def passes/unit/formulas.h \
  ir/rope.h passes/pipeline.h passes/unit/pass.h ir/base/log.h \
  ir/base/progress.h ir/num/quantize.h ir/num/granularity.h ir/recipe.h \
  ir/base/pattern.h ir/target.h ir/num/scale_layout.h \
  passes/unit/index.h
passes/unit/copy.h:
ir/ir.h:
ir/base/status.h:
ir/base/type.h:
ir/ops.def:
ir/attrs.def:
passes/unit/formulas.h:
ir/rope.h:
passes/pipeline.h:
passes/unit/pass.h:
ir/base/log.h:
ir/base/progress.h:
ir/num/quantize.h:
ir/num/granularity.h:
ir/recipe.h:
ir/base/pattern.h:
ir/target.h:
ir/num/scale_layout.h:
passes/unit/index.h:
