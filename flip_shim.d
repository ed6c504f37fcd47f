flip_shim.o: tests/faults/flip_shim.c runtime/comm/shim/shim.h
runtime/comm/shim/shim.h:
