pack.o: passes/unit/pack.c passes/unit/pack.h ir/base/status.h
passes/unit/pack.h:
ir/base/status.h:
