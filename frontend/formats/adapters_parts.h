/* What adapters.c and adapters_peft.c share. */
#ifndef F8_ADAPTERS_PARTS_H
#define F8_ADAPTERS_PARTS_H

#include "frontend/formats/adapters.h"

void f8_adapters_begin(f8_adapters *a, const char *path, const f8_allocator *allocator);
/* Sorts the adapters and reads their factors. */
f8_status f8_adapters_finish(f8_adapters *a, f8_diag *diag);

#endif
