steps.o: frontend/run/steps.c frontend/run/lines.h ir/base/status.h \
  frontend/run/run.h frontend/checkpoint/load.h \
  frontend/checkpoint/checkpoint.h frontend/fp8c.h \
  frontend/checkpoint/safetensors.h ir/base/file.h ir/base/temporary.h \
  frontend/checkpoint/weights.h ir/base/hash.h
frontend/run/lines.h:
ir/base/status.h:
frontend/run/run.h:
frontend/checkpoint/load.h:
frontend/checkpoint/checkpoint.h:
frontend/fp8c.h:
frontend/checkpoint/safetensors.h:
ir/base/file.h:
ir/base/temporary.h:
frontend/checkpoint/weights.h:
ir/base/hash.h:
