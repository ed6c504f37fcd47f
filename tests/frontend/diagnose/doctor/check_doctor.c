/* `doctor` through fp8c_diagnose.h, over installations that the test makes up. Each thing that can
 * be wrong with one gets its state, and a text that says what to do. check_doctor_cli.c tests what
 * it finds on this machine, and its self-tests. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/fp8c.h"
#include "frontend/fp8c_diagnose.h"
#include "frontend/fp8c_machine.h"
#include "tests/shared/stub_library.h"
#include "tests/shared/suite.h"

enum { TIMEOUT = 120 };

static fp8c_context *ctx;
static fp8c_doctor *doctor;

/* Look at the made-up folder `folder`, and nowhere else, for the GPU's libraries. */
static void look(const char *folder)
{
    const fp8c_context_options options = {
        .struct_size = sizeof options, .gpu_library_path = f8_stub_path(folder), .cache_dir = ""};
    ck_assert_int_eq(fp8c_context_create(&options, &ctx), FP8C_OK);
    ck_assert_msg(fp8c_doctor_create(ctx, NULL, &doctor) == FP8C_OK, "%s",
                  fp8c_context_message(ctx));
}

static void done(void)
{
    fp8c_doctor_destroy(doctor);
    fp8c_context_destroy(ctx);
}

static fp8c_component component(const char *name)
{
    fp8c_component c;
    for (int i = 0; fp8c_doctor_component(doctor, i, &c) == FP8C_OK; i++)
        if (!strcmp(c.name, name))
            return c;
    ck_abort_msg("there is no component %s", name);
}

static fp8c_target_report target(const char *name, int *index)
{
    fp8c_target_report t;
    for (int i = 0; fp8c_doctor_target(doctor, i, &t) == FP8C_OK; i++)
        if (!strcmp(t.name, name)) {
            if (index)
                *index = i;
            return t;
        }
    ck_abort_msg("there is no target %s", name);
}

static void contains(const char *text, const char *part)
{
    ck_assert_msg(text && strstr(text, part), "'%s' is not in: %s", part,
                  text ? text : "(nothing)");
}

static void is(const char *name, fp8c_component_state state, const char *problem)
{
    const fp8c_component c = component(name);
    ck_assert_msg(c.state == state, "%s is %s, not %s: %s", name,
                  fp8c_name(FP8C_NAME_COMPONENT_STATE, c.state),
                  fp8c_name(FP8C_NAME_COMPONENT_STATE, state),
                  c.problem ? c.problem : "no problem");
    ck_assert_msg((state == FP8C_COMPONENT_OK) == !c.problem, "%s: %s", name,
                  c.problem ? c.problem : "");
    if (problem)
        contains(c.problem, problem);
    ck_assert(c.enables && *c.enables && c.places && c.get && c.kind);
}

/* ---- nothing, and what is no library ---- */

START_TEST(an_empty_folder)
{
    static const char *const names[] = {"the CUDA driver", "NVRTC", "NVRTC builtins", "cuBLASLt",
                                        "cuDNN",           "NCCL",  "NVML",           "GPU"};
    look("nothing");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        is(names[i], FP8C_COMPONENT_MISSING, NULL);
    const fp8c_component nvrtc = component("NVRTC");
    ck_assert(!nvrtc.path && !nvrtc.version);
    contains(nvrtc.places, "libnvrtc.so.13, libnvrtc.so.12 in ");
    contains(nvrtc.places, f8_stub_path("nothing/lib64"));
    contains(nvrtc.get, "nvidia-cuda-nvrtc-cu12");
    contains(component("cuDNN").get, "nvidia-cudnn-cu13");
    const fp8c_target_report t = target("sm_90a", NULL);
    ck_assert(!t.can_compile && !t.can_run);
    contains(t.compile_missing, "NVRTC: found nowhere (pip: nvidia-cuda-nvrtc ");
    contains(t.run_missing, "the CUDA driver: found nowhere (");
    contains(t.run_missing, "cuBLASLt: found nowhere (");
    int reference;
    fp8c_self_test s;
    target("reference", &reference);
    ck_assert_int_eq(fp8c_doctor_test(doctor, reference, &s), FP8C_OK);
    ck_assert_msg(s.result == FP8C_TEST_PASSED, "%s", s.detail);
    done();
}
END_TEST

START_TEST(a_file_that_is_no_library)
{
    f8_stub_file("text/libcuda.so.1", "not a library");
    look("text");
    is("the CUDA driver", FP8C_COMPONENT_REFUSED, f8_stub_path("text/libcuda.so.1"));
    contains(component("the CUDA driver").problem, "file too short"); /* the loader's words */
    contains(target("cuda", NULL).run_missing, "file too short");
    done();
}
END_TEST

START_TEST(a_library_that_lacks_a_function)
{
    f8_stub_library("lacks", "libnvrtc.so.13", "F8_NCCL_SYMBOLS", "");
    look("lacks");
    is("NVRTC", FP8C_COMPONENT_REFUSED, "has no symbol nvrtcGetErrorString");
    ck_assert_ptr_nonnull(component("NVRTC").path);
    done();
}
END_TEST

START_TEST(a_library_whose_dependency_is_missing)
{
    f8_stub_compile("dep", "libneeded.so", "int needed(void) { return 0; }\n",
                    "-Wl,-soname,libneeded.so");
    f8_stub_compile("dep", "libnccl.so.2",
                    "int needed(void);\nint ncclGetVersion(int *v) { return *v = needed(); }\n",
                    "-L dep -l:libneeded.so");
    remove(f8_stub_path("dep/libneeded.so"));
    look("dep");
    is("NCCL", FP8C_COMPONENT_REFUSED, "libneeded.so: cannot open shared object file");
    done();
}
END_TEST

START_TEST(one_that_does_not_load_before_one_that_does)
{
    f8_stub_file("both/libnccl.so.2", "not a library");
    f8_stub_library("both/lib64", "libnccl.so.2", "F8_NCCL_SYMBOLS",
                    "int ncclGetVersion(int *v) { *v = 22809; return 0; }\n");
    look("both");
    is("NCCL", FP8C_COMPONENT_OK, NULL);
    const fp8c_component c = component("NCCL");
    ck_assert_str_eq(c.version, "2.28.9");
    ck_assert_str_eq(c.path, f8_stub_path("both/lib64/libnccl.so.2"));
    contains(c.note, "both/libnccl.so.2 does not load (");
    done();
}
END_TEST

/* ---- versions ---- */

START_TEST(other_major_versions)
{
    f8_stub_nvrtc("old", "libnvrtc.so.11.2", 11);
    f8_stub_file("old/libcudnn.so.8", "whatever");
    look("old");
    is("NVRTC", FP8C_COMPONENT_VERSION, "libnvrtc.so.13, libnvrtc.so.12 is needed; there is ");
    contains(component("NVRTC").problem, f8_stub_path("old/libnvrtc.so.11.2"));
    is("cuDNN", FP8C_COMPONENT_VERSION, "libcudnn.so.9 is needed; there is ");
    done();
}
END_TEST

static void make_cudnn(const char *folder, int version, int cuda)
{
    char extra[256];
    snprintf(extra, sizeof extra,
             "#include <stddef.h>\nsize_t cudnnGetVersion(void) { return %d; }\n"
             "size_t cudnnGetCudartVersion(void) { return %d; }\n",
             version, cuda);
    f8_stub_library(folder, "libcudnn.so.9", "F8_CUDNN_SYMBOLS", extra);
}

START_TEST(cudnn_too_old)
{
    make_cudnn("cudnn", 90501, 12060);
    look("cudnn");
    is("cuDNN", FP8C_COMPONENT_VERSION,
       "cuDNN 9.5.1 is too old for attention: 9.11 or later is needed");
    done();
}
END_TEST

START_TEST(cudnn_of_another_toolkit)
{
    make_cudnn("mixed", 91900, 12090);
    f8_stub_nvrtc("mixed", "libnvrtc.so.13", 13);
    look("mixed");
    is("cuDNN", FP8C_COMPONENT_MISMATCHED,
       "cuDNN 9.19.0 is built for CUDA 12, and the NVRTC found is 13.0");
    ck_assert_int_eq(component("NVRTC").major, 13);
    done();
}
END_TEST

static void make_cublaslt(const char *folder, const char *soname, int version)
{
    char extra[128];
    snprintf(extra, sizeof extra,
             "#include <stddef.h>\nsize_t cublasLtGetVersion(void) { return %d; }\n", version);
    f8_stub_library(folder, soname, "F8_CUBLASLT_SYMBOLS", extra);
}

START_TEST(parts_of_two_toolkits)
{
    make_cublaslt("two", "libcublasLt.so.12", 120901);
    f8_stub_nvrtc("two", "libnvrtc.so.13", 13);
    f8_stub_driver("two", 13000, 100);
    look("two");
    is("cuBLASLt", FP8C_COMPONENT_MISMATCHED, "cuBLASLt 12.9.1 (");
    contains(component("cuBLASLt").problem, "and NVRTC 13.0 (");
    contains(component("cuBLASLt").problem, "parts of two toolkits");
    ck_assert_int_eq(component("cuBLASLt").major, 12);
    /* That need not fail, so the GPU that is not there is all that is said of running. */
    is("GPU", FP8C_COMPONENT_MISSING, "CUDA_VISIBLE_DEVICES");
    const fp8c_target_report t = target("sm_90a", NULL);
    ck_assert_msg(!strstr(t.run_missing, "cuBLASLt"), "%s", t.run_missing);
    done();
}
END_TEST

START_TEST(libraries_newer_than_the_driver)
{
    f8_stub_driver("newer", 12080, 100);
    f8_stub_nvrtc("newer", "libnvrtc.so.13", 13);
    make_cublaslt("newer", "libcublasLt.so.13", 130100);
    look("newer");
    is("the CUDA driver", FP8C_COMPONENT_OK, NULL);
    is("NVRTC", FP8C_COMPONENT_MISMATCHED,
       "the driver is too old: it serves CUDA 12.8, but the NVRTC found is 13.0");
    is("cuBLASLt", FP8C_COMPONENT_MISMATCHED,
       "it serves CUDA 12.8, but the cuBLASLt found is 13.1.0");
    contains(target("sm_90a", NULL).run_missing, "NVRTC: the driver is too old");
    done();
}
END_TEST

/* ---- NVRTC that can't ---- */

START_TEST(nvrtc_without_its_builtins)
{
    f8_stub_library(
        "bare", "libnvrtc.so.13", "F8_NVRTC_SYMBOLS",
        "#include <stddef.h>\n#include <string.h>\n"
        "static const char log[] = \"nvrtc: error: failed to open libnvrtc-builtins.so.13.0\";\n"
        "int nvrtcVersion(int *a, int *b) { *a = 13; *b = 0; return 0; }\n"
        "int nvrtcGetNumSupportedArchs(int *n) { *n = 1; return 0; }\n"
        "int nvrtcGetSupportedArchs(int *a) { *a = 90; return 0; }\n"
        "int nvrtcCompileProgram(void *p, int n, const char *const *o) { return 7; }\n"
        "const char *nvrtcGetErrorString(int r) { return "
        "\"NVRTC_ERROR_BUILTIN_OPERATION_FAILURE\"; }\n"
        "int nvrtcGetProgramLogSize(void *p, size_t *n) { *n = sizeof log; return 0; }\n"
        "int nvrtcGetProgramLog(void *p, char *to) { memcpy(to, log, sizeof log); return 0; }\n");
    look("bare");
    is("NVRTC", FP8C_COMPONENT_OK, NULL);
    is("NVRTC builtins", FP8C_COMPONENT_MISSING, "NVRTC_ERROR_BUILTIN_OPERATION_FAILURE");
    contains(component("NVRTC builtins").problem, "failed to open libnvrtc-builtins.so.13.0");
    contains(component("NVRTC builtins").places, "libnvrtc-builtins.so.13.0 in ");
    const fp8c_target_report t = target("sm_90a", NULL);
    ck_assert(!t.can_compile);
    contains(t.compile_missing, "NVRTC builtins: NVRTC compiles nothing");
    done();
}
END_TEST

START_TEST(nvrtc_older_than_an_architecture)
{
    f8_stub_library("few", "libnvrtc.so.12", "F8_NVRTC_SYMBOLS",
                    "int nvrtcVersion(int *a, int *b) { *a = 12; *b = 4; return 0; }\n"
                    "int nvrtcGetNumSupportedArchs(int *n) { *n = 2; return 0; }\n"
                    "int nvrtcGetSupportedArchs(int *a) { a[0] = 89; a[1] = 90; return 0; }\n");
    look("few");
    ck_assert(target("sm_90a", NULL).can_compile);
    const fp8c_target_report t = target("sm_120a", NULL);
    ck_assert(!t.can_compile);
    contains(t.compile_missing, "can't compile for sm_120a; it knows sm_89, sm_90");
    int index;
    fp8c_self_test s;
    target("sm_120a", &index);
    ck_assert_int_eq(fp8c_doctor_test(doctor, index, &s), FP8C_OK);
    ck_assert_int_eq(s.result, FP8C_TEST_NOT_RUN);
    ck_assert_int_eq(fp8c_doctor_test(doctor, 1000, &s), FP8C_ERR_INPUT);
    contains(fp8c_context_message(ctx), "there is no target 1000");
    done();
}
END_TEST

/* ---- copies ---- */

START_TEST(a_second_copy)
{
    make_cublaslt("copies", "libcublasLt.so.13", 130100);
    make_cublaslt("copies/lib64", "libcublasLt.so.13", 130200);
    look("copies");
    is("cuBLASLt", FP8C_COMPONENT_OK, NULL);
    ck_assert_str_eq(component("cuBLASLt").path, f8_stub_path("copies/libcublasLt.so.13"));
    char note[512];
    snprintf(note, sizeof note, "not used: %s", f8_stub_path("copies/lib64/libcublasLt.so.13"));
    ck_assert_str_eq(component("cuBLASLt").note, note);
    done();
}
END_TEST

START_TEST(a_copy_that_is_mapped_already)
{
    make_cublaslt("other", "libcublasLt.so.12", 120400);
    make_cublaslt("twin", "libcublasLt.so.13", 130100);
    ck_assert_ptr_nonnull(dlopen(f8_stub_path("other/libcublasLt.so.12"), RTLD_NOW | RTLD_LOCAL));
    look("twin");
    is("cuBLASLt", FP8C_COMPONENT_MISMATCHED, "another copy is in this process: ");
    contains(component("cuBLASLt").problem, f8_stub_path("other/libcublasLt.so.12"));
    done();
}
END_TEST

/* ---- told before ---- */

static char told[4096];

static void tell(void *user, const char *what)
{
    ck_assert_ptr_eq(user, told);
    strcat(strcat(told, what), ",");
}

START_TEST(before_each)
{
    const fp8c_context_options options = {
        .struct_size = sizeof options, .gpu_library_path = f8_stub_path("no"), .cache_dir = ""};
    const fp8c_doctor_options want = {
        .struct_size = sizeof want, .before = tell, .user = told};
    ck_assert_int_eq(fp8c_context_create(&options, &ctx), FP8C_OK);
    ck_assert_int_eq(fp8c_doctor_create(ctx, &want, &doctor), FP8C_OK);
    fp8c_component c;
    char expected[4096] = "";
    for (int i = 0; fp8c_doctor_component(doctor, i, &c) == FP8C_OK; i++)
        strcat(strcat(expected, c.name), ",");
    ck_assert_str_eq(told, expected);
    fp8c_fact f;
    fp8c_target_report t;
    ck_assert_int_eq(fp8c_doctor_component(doctor, -1, &c), FP8C_ERR_INPUT);
    ck_assert_int_eq(fp8c_doctor_fact(doctor, 10000, &f), FP8C_ERR_INPUT);
    ck_assert_int_eq(fp8c_doctor_target(doctor, -1, &t), FP8C_ERR_INPUT);
    ck_assert_ptr_null(fp8c_name(FP8C_NAME_COMPONENT_STATE, 99));
    done();
    fp8c_doctor_destroy(NULL);
}
END_TEST

/* ---- no memory ---- */

static int left; /* allocations that succeed */

static void *some(void *user, size_t size, size_t align)
{
    (void)user;
    return left-- > 0 ? aligned_alloc(align, (size + align - 1) / align * align) : NULL;
}

static void give_back(void *user, void *ptr, size_t size)
{
    (void)user;
    (void)size;
    free(ptr);
}

/* Each allocation in turn fails: a status, and nothing is lost (which ASan's build sees). */
START_TEST(out_of_memory)
{
    const fp8c_context_options options = {.struct_size = sizeof options,
                                          .alloc = some,
                                          .free = give_back,
                                          .gpu_library_path = f8_stub_path("no"),
                                          .cache_dir = ""};
    fp8c_status status = FP8C_ERR_MEMORY;
    int n = 0;
    for (; status == FP8C_ERR_MEMORY; n++) {
        left = 1 << 30;
        ck_assert_int_eq(fp8c_context_create(&options, &ctx), FP8C_OK);
        left = n;
        status = fp8c_doctor_create(ctx, NULL, &doctor);
        ck_assert_msg(status == FP8C_OK || !doctor, "a doctor, and status %d", (int)status);
        if (status == FP8C_OK) {
            fp8c_self_test s;
            int reference;
            target("reference", &reference);
            left = 1;
            ck_assert_int_eq(fp8c_doctor_test(doctor, reference, &s), FP8C_OK);
            ck_assert_int_eq(s.result, FP8C_TEST_FAILED);
            contains(s.detail, "memory");
        }
        left = 1 << 30;
        done();
        doctor = NULL;
    }
    ck_assert_msg(status == FP8C_OK, "status %d after %d allocations", (int)status, n);
    ck_assert_int_gt(n, 3);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("doctor");
    TCase *t = tcase_create("doctor");
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_checked_fixture(t, f8_stub_setup, f8_stub_teardown);
    tcase_add_test(t, an_empty_folder);
    tcase_add_test(t, a_file_that_is_no_library);
    tcase_add_test(t, a_library_that_lacks_a_function);
    tcase_add_test(t, a_library_whose_dependency_is_missing);
    tcase_add_test(t, one_that_does_not_load_before_one_that_does);
    tcase_add_test(t, other_major_versions);
    tcase_add_test(t, cudnn_too_old);
    tcase_add_test(t, cudnn_of_another_toolkit);
    tcase_add_test(t, parts_of_two_toolkits);
    tcase_add_test(t, libraries_newer_than_the_driver);
    tcase_add_test(t, nvrtc_without_its_builtins);
    tcase_add_test(t, nvrtc_older_than_an_architecture);
    tcase_add_test(t, a_second_copy);
    tcase_add_test(t, a_copy_that_is_mapped_already);
    tcase_add_test(t, before_each);
    tcase_add_test(t, out_of_memory);
    suite_add_tcase(s, t);
    return s;
}
