exec.o: runtime/cpu/exec.c runtime/cpu/exec_internal.h \
  runtime/base/blob.h ir/base/status.h runtime/comm/queue.h \
  runtime/comm/comm.h ir/base/type.h runtime/cpu/exec.h \
  runtime/cpu/gemm.h runtime/base/gemm_desc.h ir/num/scale_layout.h \
  ir/num/granularity.h runtime/base/pool.h runtime/home.h runtime/plan.h \
  ir/place.h runtime/base/attention_desc.h runtime/base/cpu.h \
  ir/base/clock.h runtime/copy.h
runtime/cpu/exec_internal.h:
runtime/base/blob.h:
ir/base/status.h:
runtime/comm/queue.h:
runtime/comm/comm.h:
ir/base/type.h:
runtime/cpu/exec.h:
runtime/cpu/gemm.h:
runtime/base/gemm_desc.h:
ir/num/scale_layout.h:
ir/num/granularity.h:
runtime/base/pool.h:
runtime/home.h:
runtime/plan.h:
ir/place.h:
runtime/base/attention_desc.h:
runtime/base/cpu.h:
ir/base/clock.h:
runtime/copy.h:
