/* Kernels for dependent launches: the real NVRTC compiles each of them without spills, and in the
 * PTX nothing of it comes before it waits for the kernel ahead but what it computes from
 * parameters. Without the option no text has a word of it. check_cuda_launches.c runs them. */
#include "codegen/cuda/emit.h"
#include "tests/shared/cuda/cuda_plan.h"
#include "tests/shared/cuda/nvrtc_cache.h"
#include "tests/shared/suite.h"

#include <stdio.h>
#include <string.h>

static const char *const architectures[] = {"sm_90a", "sm_100a", "sm_120a"};
enum { ARCHITECTURES = 3 };

static const char define[] = "#define F8_DEPENDENT_LAUNCH\n#include \"fp8c.cuh\"\n";

static void build(cuda_plan *p, const char *arch, f8_build_options o)
{
    cuda_plan_build(p, "gpt", "L=1", "delayed", arch, o);
    ck_assert_msg(p->status == F8_OK, "%s: %s", arch, p->diag.text);
    ck_assert_uint_gt(p->stats.n_kernels, 20);
}

START_TEST(texts)
{
    cuda_plan with, without;
    build(&without, "sm_90a", (f8_build_options){.text_only = true});
    build(&with, "sm_90a", (f8_build_options){.text_only = true, .dependent_launch = true});
    ck_assert(with.plan.dependent_launch && !without.plan.dependent_launch);
    ck_assert_uint_eq(with.stats.n_images, without.stats.n_images);
    for (uint32_t i = 0; i < with.stats.n_images; i++) {
        const char *own = with.stats.image[i].cuda, *usual = without.stats.image[i].cuda;
        ck_assert_ptr_null(strstr(usual, "DEPENDENT"));
        ck_assert_msg(!strncmp(own, define, sizeof define - 1), "%.80s", own);
        ck_assert_str_eq(own + strlen("#define F8_DEPENDENT_LAUNCH\n"), usual);
        const char *whole = f8_cuda_text_whole(&with.arena, own);
        const char *first = strstr(whole, "#define F8_DEPENDENT_LAUNCH\n");
        ck_assert(first && first < strstr(whole, "#ifdef F8_DEPENDENT_LAUNCH"));
        ck_assert_ptr_null(strstr(whole, "#include"));
    }
    cuda_plan_end(&with);
    cuda_plan_end(&without);
}
END_TEST

/* The first of these between two places; `end` if there is none. */
static const char *first_of(const char *at, const char *end)
{
    static const char *const accesses[] = {"ld.global", "st.global",   "cp.async",    "atom.",
                                           "red.",      "ld.volatile", "st.volatile", "prefetch"};
    const char *first = end;
    for (size_t i = 0; i < sizeof accesses / sizeof *accesses; i++) {
        const char *found = memmem(at, (size_t)(first - at), accesses[i], strlen(accesses[i]));
        first = found ? found : first;
    }
    return first;
}

static void waits_first(const char *ptx, const f8_build_kernel *k)
{
    static const char wait[] = "griddepcontrol.wait;",
                      allow[] = "griddepcontrol.launch_dependents;";
    char entry[64];
    snprintf(entry, sizeof entry, ".entry %s(", k->symbol);
    const char *at = strstr(ptx, entry);
    ck_assert_msg(at != NULL, "%s is not in the PTX", k->symbol);
    const char *next = strstr(at + 1, ".entry "), *end = next ? next : at + strlen(at);
    const char *waits = memmem(at, (size_t)(end - at), wait, sizeof wait - 1);
    const char *allows = memmem(at, (size_t)(end - at), allow, sizeof allow - 1);
    ck_assert_msg(waits && allows && waits < allows, "%s does not wait, then let the next begin",
                  k->symbol);
    ck_assert_msg(first_of(at, end) > allows && first_of(at, end) < end,
                  "%s: an access before it waits: %.60s", k->symbol, first_of(at, end));
    ck_assert_msg(!memmem(at, (size_t)(waits - at), "bra", 3) &&
                      !memmem(at, (size_t)(waits - at), "ret;", 4),
                  "%s: not every thread waits", k->symbol);
}

START_TEST(each_waits_first)
{
    cuda_plan p;
    f8_cuda *cuda;
    const char *arch = architectures[_i];
    if (!nvrtc_in_turn("check_cuda_dependent", arch, 1) || !cuda_plan_compiler(&cuda))
        return;
    build(&p, arch, (f8_build_options){.cuda = cuda, .want_texts = true, .dependent_launch = true});
    ck_assert_uint_eq(p.stats.n_images, 1);
    for (uint32_t i = 0; i < p.stats.n_kernels; i++) {
        const f8_build_kernel *k = &p.stats.kernel[i];
        waits_first(p.stats.image[0].ptx, k);
        ck_assert_msg(k->reported && !k->report.spill_stores && !k->report.spill_loads &&
                          !k->report.stack,
                      "%s (%s) spills", k->name, k->symbol);
    }
    cuda_plan_end(&p);
    f8_cuda_destroy(cuda);
}
END_TEST

START_TEST(refused)
{
    cuda_plan p;
    cuda_plan_build(&p, "gpt", "L=1", "delayed", "sm_89",
                    (f8_build_options){.text_only = true, .dependent_launch = true});
    ck_assert_int_eq(p.status, F8_ERR_UNSUPPORTED);
    ck_assert_str_eq(p.diag.text, "dependent_launch: sm_89 has no programmatic dependent launch, "
                                  "sm_90a and later have");
    cuda_plan_end(&p);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("dependent kernels");
    TCase *t = tcase_create("dependent kernels");
    tcase_set_timeout(t, 900);
    tcase_add_test(t, texts);
    tcase_add_loop_test(t, each_waits_first, 0, ARCHITECTURES);
    tcase_add_test(t, refused);
    suite_add_tcase(s, t);
    return s;
}
