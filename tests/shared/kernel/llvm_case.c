/* See llvm_case.h. */
#include "tests/shared/kernel/llvm_case.h"

#include <check.h>

f8_llvm *test_llvm;

void test_llvm_load(void)
{
    f8_diag d = {0};
    ck_assert_msg(f8_llvm_load(&test_llvm, &(f8_llvm_options){0}, &d) == F8_OK, "%s", d.text);
}

void test_llvm_unload(void)
{
    f8_llvm_free(test_llvm);
}
