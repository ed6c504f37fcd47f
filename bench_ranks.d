bench_ranks.o: bench/bench_ranks.c bench/figures.h frontend/fp8c.h \
  ir/base/clock.h
bench/figures.h:
frontend/fp8c.h:
ir/base/clock.h:
