queue.o: runtime/comm/queue.c runtime/comm/queue.h runtime/comm/comm.h \
  ir/base/status.h ir/base/type.h ir/base/clock.h ir/base/format.h
runtime/comm/queue.h:
runtime/comm/comm.h:
ir/base/status.h:
ir/base/type.h:
ir/base/clock.h:
ir/base/format.h:
