collectives.o: passes/unit/collectives.c passes/unit/collectives.h \
  ir/ir.h ir/base/status.h ir/base/type.h ir/ops.def ir/attrs.def
passes/unit/collectives.h:
ir/ir.h:
ir/base/status.h:
ir/base/type.h:
ir/ops.def:
ir/attrs.def:
