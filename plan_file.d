plan_file.o: runtime/plan_file.c runtime/plan_file.h ir/base/wire.h \
  ir/base/status.h ir/base/type.h runtime/plan.h ir/place.h \
  runtime/base/attention_desc.h runtime/base/cpu.h \
  runtime/base/gemm_desc.h ir/num/scale_layout.h ir/num/granularity.h \
  runtime/comm/comm.h
runtime/plan_file.h:
ir/base/wire.h:
ir/base/status.h:
ir/base/type.h:
runtime/plan.h:
ir/place.h:
runtime/base/attention_desc.h:
runtime/base/cpu.h:
runtime/base/gemm_desc.h:
ir/num/scale_layout.h:
ir/num/granularity.h:
runtime/comm/comm.h:
