collective.o: codegen/reference/collective.c codegen/reference/interp.h \
  ir/num/granularity.h ir/base/type.h ir/ir.h ir/base/status.h \
  ir/ops.def ir/attrs.def runtime/comm/comm.h
codegen/reference/interp.h:
ir/num/granularity.h:
ir/base/type.h:
ir/ir.h:
ir/base/status.h:
ir/ops.def:
ir/attrs.def:
runtime/comm/comm.h:
