/* A made-up set of measurements: see odd_set.h. */
#include "tests/shared/measure/odd_set.h"

#include <check.h>
#include <math.h>

f8_measure_set odd_set(void)
{
    static f8_allocator allocator;
    f8_measure_set set = {0};
    allocator = f8_default_allocator();
    f8_arena_init(&set.arena, &allocator);
    set.about = (f8_measure_about){.command = "fp8c tune --suite x --csv 'a|b.csv'",
                                   .version = "1.2.3",
                                   .commit = "",
                                   .device = "cpu \"Odd, Inc.\" | 2 threads",
                                   .processor = "Zürich\n9000",
                                   .target = "cpu",
                                   .libraries = "oneDNN 2.6.3 (avx512)",
                                   .driver = NULL,
                                   .governor = "",
                                   .system = "Linux 6_1 *",
                                   .threads = 2,
                                   .inputs = "normal",
                                   .program = "fp8c"};
    return set;
}

static void add_process(f8_measure_set *set, const char *id, const char *date, double load,
                        double flops)
{
    const f8_measure_process p = {.id = id,
                                  .date = date,
                                  .load = load,
                                  .cpus = 4,
                                  .before = {.flops_f32 = flops, .bytes = 2e10},
                                  .after = {.flops_f32 = 2 * flops, .bytes = 3e10},
                                  .begin = {.sm_mhz = 1000, .watts = 50.5},
                                  .end = {.sm_mhz = 1980}};
    ck_assert_int_eq(f8_measure_add_process(set, &p, NULL), F8_OK);
}

const double odd_first_runs[] = {3e-6, 1.0 / 3, 1e30}, odd_second_runs[] = {0x1.23456789abcdep-20};

void odd_set_fill(f8_measure_set *set)
{
    f8_measure_runs runs[] = {{"first", odd_first_runs, 3}, {"second", odd_second_runs, 1}};
    f8_measurement m = {
        .problem = {.text = "64x32x128:f8e4m3:fprop:bias",
                    .name = "h.0|c_fc, \"odd\"\nname",
                    .m = 64,
                    .n = 32,
                    .k = 128,
                    .count = 12,
                    .a = "f8e4m3",
                    .b = "f8e4m3",
                    .scaling = "tensor",
                    .role = "fprop",
                    .epilogue = "bias",
                    .layout = NULL,
                    .flops = 524288,
                    .bytes = 14336},
        .cache = "cold",
        .candidate = "model",
        .operands = "f8e4m3 x f8e4m3",
        .kind = F8_MEASURE_MODEL,
        .unit = "f32",
        .chosen = true,
        .same_bits = F8_MEASURE_YES,
        .error = 0.25,
        .compile_seconds = 0.125,
        .process = runs,
        .n_processes = 2,
    };
    add_process(set, "second", "2026-11-28T04:37:19Z", NAN, 1e11);
    add_process(set, "first", "2026-11-28T04:37:18Z", 5.5, 3e11);
    ck_assert_int_eq(f8_measure_add(set, &m, NULL), F8_OK);
    m.candidate = "onednn-f32 | a\\b *c* _d_";
    m.kind = F8_MEASURE_CANDIDATE;
    m.chosen = false;
    m.same_bits = F8_MEASURE_NO;
    m.error = 1.5;
    m.process = &runs[1];
    m.n_processes = 1;
    ck_assert_int_eq(f8_measure_add(set, &m, NULL), F8_OK);
    m.candidate = "lacks \xff it\r";
    m.state = F8_MEASURE_LACKING;
    m.reason = "no \"unit\", sorry\nand | no more";
    m.same_bits = F8_MEASURE_UNKNOWN;
    m.error = m.compile_seconds = NAN;
    m.n_processes = 0;
    ck_assert_int_eq(f8_measure_add(set, &m, NULL), F8_OK);
    m.candidate = "oneDNN matmul f32";
    m.kind = F8_MEASURE_PEER;
    m.state = F8_MEASURE_LATE;
    m.reason = "";
    ck_assert_int_eq(f8_measure_add(set, &m, NULL), F8_OK);
    m = (f8_measurement){.problem = {.text = "rows gelu", .count = 1, .bytes = 4096},
                         .cache = "step",
                         .candidate = "model",
                         .same_bits = F8_MEASURE_YES,
                         .error = NAN,
                         .compile_seconds = 12,
                         .process = &runs[1],
                         .n_processes = 1};
    ck_assert_int_eq(f8_measure_add(set, &m, NULL), F8_OK);
    ck_assert_int_eq(f8_measure_figures(set, NULL), F8_OK);
}
