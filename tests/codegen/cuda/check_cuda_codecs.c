/* Conversions from f32 to E4M3, E5M2 and E8M0 in generated CUDA kernels, saturating and not,
 * against the oracle of shared/num/codec_oracle.h. They run on the emulator, or with FP8C_TEST_GPU
 * on a GPU, whose own conversion instructions are then used. The inputs are 2^24 chosen ones, or
 * all 2^32 with FP8C_CODECS=all. On a GPU NaNs are compared by class, since PTX promises no more.
 */
#include <stdlib.h>

#include "codegen/build.h"
#include "runtime/cuda/exec.h"
#include "tests/shared/num/codec_func.h"
#include "tests/shared/num/codec_run.h"
#include "tests/shared/cuda/cuda_device.h"
#include "tests/shared/suite.h"

static bool is_nan(f8_dtype format, uint8_t code)
{
    switch (format) {
    case F8_E4M3: return (code & 0x7f) == 0x7f;
    case F8_E5M2: return (code & 0x7f) > 0x7c;
    default: return code == 0xff;
    }
}

/* Where both are NaN, want becomes got. */
static void same_class(f8_dtype format, const uint8_t *got, uint8_t *want)
{
    for (uint32_t i = 0; i < CODEC_CHUNK; i++)
        if (is_nan(format, got[i]) && is_nan(format, want[i]))
            want[i] = got[i];
}

START_TEST(kernels)
{
    static uint8_t want[CODEC_CHUNK];
    codec_tally tally[CODEC_WAYS] = {0};
    cuda_device device;
    cuda_device_open(&device);
    f8_arena arena;
    f8_diag failure = {0};
    f8_plan plan;
    f8_cuda_exec *exec;
    f8_arena_init(&arena, NULL);
    f8_unit u = {.arena = &arena, .diag = &failure};
    u.options.target = device.target;
    codec_func(&u);
    OK(f8_build_plan(u.module, &(f8_build_options){.target = device.target, .cuda = device.cuda},
                     &arena, &plan, diag));
    OK(f8_cuda_exec_create(&plan, device.cuda, &(f8_cuda_exec_options){0}, &exec, diag));
    uint32_t *in = f8_cuda_exec_port(exec, 0, false, 0);
    for (uint32_t chunk = 0; chunk < codec_chunks(); chunk++) {
        codec_inputs(chunk, in);
        OK(f8_cuda_exec_run(exec, 0, diag));
        for (uint32_t i = 0; i < CODEC_WAYS; i++) {
            const uint8_t *got = f8_cuda_exec_port(exec, 0, true, i);
            codec_of_oracle(&codec_ways[i], in, want);
            if (!device.count) /* no emulator */
                same_class(codec_ways[i].format, got, want);
            codec_tally_add(&tally[i], in, got, want, CODEC_CHUNK);
        }
    }
    f8_cuda_exec_destroy(exec);
    f8_arena_end(&arena);
    cuda_device_close(&device);
    for (int i = 0; i < CODEC_WAYS; i++)
        codec_tally_check(&tally[i], "cuda kernel", &codec_ways[i]);
}
END_TEST

Suite *f8_suite(void)
{
    setenv("FP8C_EMULATOR_OPTIMIZE", "2", 0); /* much work in one kernel */
    Suite *s = suite_create("cuda codecs");
    TCase *t = tcase_create("cuda codecs");
    tcase_add_test(t, kernels);
    return codec_suite(s, t);
}
