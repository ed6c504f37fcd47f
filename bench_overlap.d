bench_overlap.o: bench/bench_overlap.c bench/figures.h frontend/fp8c.h \
  ir/base/clock.h
bench/figures.h:
frontend/fp8c.h:
ir/base/clock.h:
