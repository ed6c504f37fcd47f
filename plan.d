plan.o: passes/remat/plan.c passes/remat/plan.h ir/base/status.h \
  passes/remat/search.h passes/remat/timeline.h passes/remat/start.h
passes/remat/plan.h:
ir/base/status.h:
passes/remat/search.h:
passes/remat/timeline.h:
passes/remat/start.h:
