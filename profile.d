profile.o: frontend/report/profile.c frontend/report/report.h \
  frontend/fp8c.h frontend/run/run.h frontend/checkpoint/load.h \
  frontend/checkpoint/checkpoint.h frontend/checkpoint/safetensors.h \
  ir/base/file.h ir/base/status.h ir/base/temporary.h \
  frontend/checkpoint/weights.h ir/base/hash.h
frontend/report/report.h:
frontend/fp8c.h:
frontend/run/run.h:
frontend/checkpoint/load.h:
frontend/checkpoint/checkpoint.h:
frontend/checkpoint/safetensors.h:
ir/base/file.h:
ir/base/status.h:
ir/base/temporary.h:
frontend/checkpoint/weights.h:
ir/base/hash.h:
