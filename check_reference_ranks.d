check_reference_ranks.o: tests/codegen/reference/check_reference_ranks.c \
  codegen/reference/reference.h ir/ir.h ir/base/status.h ir/base/type.h \
  ir/ops.def ir/attrs.def runtime/comm/comm.h frontend/text/parse.h \
  tests/shared/suite.h
codegen/reference/reference.h:
ir/ir.h:
ir/base/status.h:
ir/base/type.h:
ir/ops.def:
ir/attrs.def:
runtime/comm/comm.h:
frontend/text/parse.h:
tests/shared/suite.h:
