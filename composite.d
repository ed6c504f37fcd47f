composite.o: codegen/reference/composite.c codegen/reference/interp.h \
  ir/num/granularity.h ir/base/type.h ir/ir.h ir/base/status.h \
  ir/ops.def ir/attrs.def runtime/comm/comm.h ir/num/fp8.h ir/rope.h \
  ir/num/scalar.h ir/num/scalar.def
codegen/reference/interp.h:
ir/num/granularity.h:
ir/base/type.h:
ir/ir.h:
ir/base/status.h:
ir/ops.def:
ir/attrs.def:
runtime/comm/comm.h:
ir/num/fp8.h:
ir/rope.h:
ir/num/scalar.h:
ir/num/scalar.def:
