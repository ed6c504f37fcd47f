/* A CUDA target against the interpreter on random graphs: see tests/shared/graphs/differential.h.
 * On the emulator, or with FP8C_TEST_GPU on this machine's GPU. */
#include <stdlib.h>

#include "tests/shared/graphs/differential.h"
#include "tests/shared/cuda/gpu.h"
#include "tests/shared/suite.h"

/* In the emulator mostly Hopper; a share of Blackwell, whose FP8 GEMMs have MX scales and any
 * layout. */
START_TEST(targets_agree)
{
    const bool emulated = f8_test_gpu_emulated();
    const char *sm = getenv("FP8C_EMULATOR_SM");
    f8_differential d = {.target = "cuda",
                         .graphs = emulated ? sm ? 60 : 45 : 300,
                         .emulated = emulated,
                         .sums = emulated ? F8_SUMS_EMULATED : F8_SUMS_GPU};
    uint64_t n, more = 0;
    int failed = f8_differential_run(&d, &n);
    if (emulated && !sm) {
        setenv("FP8C_EMULATOR_SM", "100", 1);
        d.graphs = 15;
        failed += f8_differential_run(&d, &more);
    }
    ck_assert_msg(failed == 0, "%d of %llu graphs failed", failed, (unsigned long long)(n + more));
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("cuda differential");
    TCase *t = tcase_create("cuda differential");
    tcase_set_timeout(t, 3000);
    tcase_add_test(t, targets_agree);
    suite_add_tcase(s, t);
    setenv("CK_FORK", "no", 1);
    return s;
}
