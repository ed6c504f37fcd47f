/* The CPU as a target: see build.c. */
#ifndef F8_CODEGEN_BUILD_CPU_H
#define F8_CODEGEN_BUILD_CPU_H

#include "codegen/plan/parts.h"

extern const f8_build_target f8_build_cpu;

#endif
