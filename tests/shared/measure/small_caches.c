/* A machine with small caches, for programs that are linked with
 *
 *     -Wl,--wrap=f8_measure_cache_bytes
 *
 * Before each cold turn fp8c tune sweeps twice what the last caches hold. On a server that is a
 * GiB, which takes most of the time of a test that multiplies small matrices; here it sweeps the
 * 64 MiB that it takes at least. check_machine tests the function itself. */
#include "frontend/measure/machine.h"

double __wrap_f8_measure_cache_bytes(const char *root);
double __wrap_f8_measure_cache_bytes(const char *root)
{
    (void)root;
    return 1 << 20;
}
