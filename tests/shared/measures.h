/* Sets of measurements for tests (frontend/measure/measure.h). */
#ifndef F8_TESTS_MEASURES_H
#define F8_TESTS_MEASURES_H

#include <check.h>
#include <math.h>

#include "frontend/measure/measure.h"
#include "tests/shared/random.h"

static inline void test_measures_begin(f8_measure_set *set)
{
    const f8_allocator allocator = f8_default_allocator();
    *set = (f8_measure_set){0};
    f8_arena_init(&set->arena, &allocator);
}

/* A way of a problem of 1,000 operations and 100 bytes. */
static inline f8_measurement test_way(const char *problem, const char *cache, const char *candidate,
                                      f8_measure_kind kind)
{
    return (f8_measurement){.problem = {.text = problem, .flops = 1000, .bytes = 100, .count = 1},
                            .cache = cache,
                            .candidate = candidate,
                            .operands = "",
                            .kind = kind,
                            .reason = "",
                            .unit = "f32",
                            .same_bits = F8_MEASURE_UNKNOWN,
                            .error = NAN,
                            .compile_seconds = NAN};
}

/* Add a way with runs of a process; NULL: without any. */
static inline void test_add(f8_measure_set *set, f8_measurement m, const char *process,
                            const double *seconds, size_t n)
{
    f8_measure_runs runs = {process, seconds, n};
    m.process = &runs;
    m.n_processes = process != NULL;
    ck_assert_int_eq(f8_measure_add(set, &m, NULL), F8_OK);
}

/* Add a way with one run in each of n (at most 9) processes, "1", "2" and so on. */
static inline void test_add_each(f8_measure_set *set, f8_measurement m, const double *seconds,
                                 size_t n)
{
    for (size_t i = 0; i < n; i++)
        test_add(set, m, (const char[]){(char)('1' + i), 0}, &seconds[i], 1);
}

/* A draw of the normal distribution (Box and Muller 1958). */
static inline double test_normal(uint32_t *random)
{
    const double u = (1 + test_random(random)) / 16777216.0, v = test_random(random) / 16777216.0;
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

#endif
