cost.o: passes/unit/cost.c passes/unit/cost.h ir/lowered.h ir/ir.h \
  ir/base/status.h ir/base/type.h ir/ops.def ir/attrs.def ir/place.h \
  ir/target.h ir/num/scale_layout.h ir/num/granularity.h ir/recipe.h \
  ir/base/pattern.h ir/num/scalar.h ir/num/fp8.h ir/num/scalar.def \
  passes/unit/rows.h
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
ir/num/scalar.h:
ir/num/fp8.h:
ir/num/scalar.def:
passes/unit/rows.h:
