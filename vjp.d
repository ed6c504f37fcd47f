vjp.o: passes/grad/vjp.c passes/grad/vjp.h ir/ir.h ir/base/status.h \
  ir/base/type.h ir/ops.def ir/attrs.def passes/unit/formulas.h \
  ir/rope.h
passes/grad/vjp.h:
ir/ir.h:
ir/base/status.h:
ir/base/type.h:
ir/ops.def:
ir/attrs.def:
passes/unit/formulas.h:
ir/rope.h:
