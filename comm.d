comm.o: runtime/comm/comm.c runtime/comm/comm.h ir/base/status.h \
  ir/base/type.h
runtime/comm/comm.h:
ir/base/status.h:
ir/base/type.h:
