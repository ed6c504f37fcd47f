/* The kernel cache that the tests of one `make check` share, so that a kernel that several tests
 * or sanitizers need is compiled once. */
#ifndef F8_TEST_KERNEL_CACHE_H
#define F8_TEST_KERNEL_CACHE_H

#include "codegen/cache/cache.h"

/* The cache in the folder FP8C_CACHE_DIR, open until the process ends. NULL where the variable is
 * not set or the folder is unusable. Not for several threads at once. */
f8_cache *f8_test_kernel_cache(void);

#endif
