ranks.o: frontend/run/ranks.c frontend/run/ranks.h ir/base/status.h \
  ir/base/file.h ir/base/temporary.h
frontend/run/ranks.h:
ir/base/status.h:
ir/base/file.h:
ir/base/temporary.h:
