/* LLVM as a fixture, for tests that make code themselves. */
#ifndef F8_TEST_LLVM_CASE_H
#define F8_TEST_LLVM_CASE_H

#include "codegen/cpu/llvm.h"

extern f8_llvm *test_llvm;

void test_llvm_load(void); /* fails the test where there is none */
void test_llvm_unload(void);

#endif
