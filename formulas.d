formulas.o: passes/unit/formulas.c passes/unit/formulas.h ir/ir.h \
  ir/base/status.h ir/base/type.h ir/ops.def ir/attrs.def ir/rope.h \
  ir/num/fp8.h passes/unit/rows.h ir/num/granularity.h ir/lowered.h \
  ir/place.h ir/target.h ir/num/scale_layout.h
passes/unit/formulas.h:
ir/ir.h:
ir/base/status.h:
ir/base/type.h:
ir/ops.def:
ir/attrs.def:
ir/rope.h:
ir/num/fp8.h:
passes/unit/rows.h:
ir/num/granularity.h:
ir/lowered.h:
ir/place.h:
ir/target.h:
ir/num/scale_layout.h:
