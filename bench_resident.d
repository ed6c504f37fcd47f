bench_resident.o: bench/bench_resident.c bench/figures.h frontend/fp8c.h
bench/figures.h:
frontend/fp8c.h:
