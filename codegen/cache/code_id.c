/* See code_id.h. */
#include "codegen/cache/code_id.h"

#ifndef F8_CODE_ID
#error "F8_CODE_ID is not defined: the Makefile defines it"
#endif

const char f8_code_id[] = F8_CODE_ID;
