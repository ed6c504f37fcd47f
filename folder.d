folder.o: frontend/run/folder.c frontend/run/run.h \
  frontend/checkpoint/load.h frontend/checkpoint/checkpoint.h \
  frontend/fp8c.h frontend/checkpoint/safetensors.h ir/base/file.h \
  ir/base/status.h ir/base/temporary.h frontend/checkpoint/weights.h \
  ir/base/hash.h ir/base/format.h ir/base/lock.h ir/base/text.h
frontend/run/run.h:
frontend/checkpoint/load.h:
frontend/checkpoint/checkpoint.h:
frontend/fp8c.h:
frontend/checkpoint/safetensors.h:
ir/base/file.h:
ir/base/status.h:
ir/base/temporary.h:
frontend/checkpoint/weights.h:
ir/base/hash.h:
ir/base/format.h:
ir/base/lock.h:
ir/base/text.h:
