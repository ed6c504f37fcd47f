overlap.o: passes/memory/overlap.c passes/memory/overlap.h \
  passes/memory/order.h passes/memory/storage.h passes/unit/pass.h \
  ir/ir.h ir/base/status.h ir/base/type.h ir/ops.def ir/attrs.def \
  ir/base/log.h ir/base/progress.h ir/num/quantize.h \
  ir/num/granularity.h ir/recipe.h ir/base/pattern.h ir/target.h \
  ir/num/scale_layout.h passes/unit/index.h passes/unit/rows.h \
  ir/lowered.h ir/place.h passes/unit/cost.h
passes/memory/overlap.h:
passes/memory/order.h:
passes/memory/storage.h:
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
passes/unit/rows.h:
ir/lowered.h:
ir/place.h:
passes/unit/cost.h:
