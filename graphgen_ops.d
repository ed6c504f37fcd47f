graphgen_ops.o: tests/shared/graphs/graphgen_ops.c \
  tests/shared/graphs/graphgen_parts.h tests/shared/graphs/graphgen.h \
  ir/ir.h ir/base/status.h ir/base/type.h ir/ops.def ir/attrs.def \
  ir/target.h ir/num/scale_layout.h ir/num/granularity.h
tests/shared/graphs/graphgen_parts.h:
tests/shared/graphs/graphgen.h:
ir/ir.h:
ir/base/status.h:
ir/base/type.h:
ir/ops.def:
ir/attrs.def:
ir/target.h:
ir/num/scale_layout.h:
ir/num/granularity.h:
