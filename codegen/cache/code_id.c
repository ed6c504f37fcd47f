/* See code_id.h. */
#include "codegen/cache/code_id.h"

#ifndef F8_CODE_ID
#error "F8_CODE_ID is the Makefile's to give"
#endif

const char f8_code_id[] = F8_CODE_ID;
