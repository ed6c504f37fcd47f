/* See kernel_cache.h. */
#include "tests/shared/kernel_cache.h"

#include <stdio.h>
#include <stdlib.h>

f8_cache *f8_test_kernel_cache(void)
{
    static f8_cache *cache; /* never closed: a test may end by a failed assertion */
    const char *folder = getenv("FP8C_CACHE_DIR");
    f8_diag why = {0};
    if (!cache && folder && *folder &&
        f8_cache_open(&(f8_cache_options){.folder = folder}, &cache, &why) != F8_OK)
        fprintf(stderr, "tests compile without a kernel cache: %s\n", why.text);
    return cache;
}
