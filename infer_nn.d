infer_nn.o: ir/infer_nn.c ir/internal.h ir/ir.h ir/base/status.h \
  ir/base/type.h ir/ops.def ir/attrs.def ir/num/scale_layout.h \
  ir/num/granularity.h
ir/internal.h:
ir/ir.h:
ir/base/status.h:
ir/base/type.h:
ir/ops.def:
ir/attrs.def:
ir/num/scale_layout.h:
ir/num/granularity.h:
