/* `fp8c compile --emit llvm`, as a user runs it: LLVM takes the text, and finds nothing wrong with
 * it. */
#include <llvm-c/Analysis.h>
#include <llvm-c/IRReader.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/dynlib.h"
#include "tests/shared/api/cli.h"
#include "tests/shared/kernel/llvm_case.h"
#include "tests/shared/suite.h"

#define GPT "frontend/models/gpt.f8"
#define SMALL "-D", "B=2", "-D", "T=32", "-D", "L=1", "-D", "C=32", "-D", "H=2"

/* What reads a text; the rest of LLVM's functions are the product's. */
typedef struct reader {
    __typeof__(LLVMCreateMemoryBufferWithMemoryRangeCopy) *buffer;
    __typeof__(LLVMParseIRInContext) *parse;
} reader;

static reader open_reader(void)
{
    static const char *const names[] = {"LLVMCreateMemoryBufferWithMemoryRangeCopy",
                                        "LLVMParseIRInContext"};
    reader r;
    f8_dynlib lib;
    f8_diag d = {0};
    ck_assert_msg(f8_dynlib_open("LLVM 19", f8_llvm_library_names(), &lib, &d) == F8_OK, "%s",
                  d.text);
    ck_assert_msg(f8_dynlib_symbols(&lib, names, 2, &r, &d) == F8_OK, "%s", d.text);
    f8_dynlib_close(&lib);
    return r;
}

static void check_ir(const reader *r, const char *text)
{
    const f8_llvm_api *ll = &test_llvm->ll;
    char *message = NULL;
    LLVMModuleRef module;
    LLVMContextRef context = ll->ContextCreate();
    LLVMMemoryBufferRef buffer = r->buffer(text, strlen(text), "kernels.ll");
    ck_assert_msg(!r->parse(context, buffer, &module, &message), "%s", message);
    ck_assert_msg(!ll->VerifyModule(module, LLVMReturnStatusAction, &message), "%s", message);
    ll->DisposeMessage(message);
    ll->DisposeModule(module);
    ll->ContextDispose(context);
}

static int count(const char *text, const char *what)
{
    int n = 0;
    for (; (text = strstr(text, what)); text += strlen(what))
        n++;
    return n;
}

START_TEST(llvm_takes_it)
{
    static const char *const recipes[] = {"bf16", "delayed", "block"}, *const targets[] = {
                                                                           "cpu", "cpu:x86-64-v3",
                                                                           "cpu"};
    const reader reader = open_reader();
    for (int i = 0; i < 3; i++) {
        f8_cli_result r = F8_CLI("compile", GPT, "--emit", "llvm", "--recipe", recipes[i],
                                 "--target", targets[i], SMALL);
        f8_cli_ok(r);
        check_ir(&reader, r.out);
        const int kernels = count(r.out, "; k_");
        ck_assert_int_gt(kernels, 20);
        ck_assert_int_ge(count(r.out, "define void @k_"), kernels); /* attention has more phases */
        ck_assert_ptr_nonnull(strstr(r.out, " steps: a.0\n"));
    }
}
END_TEST

/* The target is a CPU without being named, and `eval` alone has fewer kernels. */
START_TEST(usual_target)
{
    f8_cli_result r = F8_CLI("compile", GPT, "--emit", "llvm", "--inference", SMALL);
    f8_cli_ok(r);
    const int kernels = count(r.out, "define void @k_");
    const char *path = f8_cli_temp("kernels.ll");
    r = F8_CLI("compile", GPT, "--emit", "llvm", "-o", path, SMALL);
    f8_cli_ok(r);
    ck_assert_uint_eq(r.n_out, 0);
    size_t n;
    char *text = f8_cli_read(path, &n);
    ck_assert_int_gt(count(text, "define void @k_"), kernels);
    ck_assert_int_gt(kernels, 5);
    free(text);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("emit_llvm");
    TCase *t = tcase_create("emit");
    tcase_set_timeout(t, 300);
    tcase_add_unchecked_fixture(t, test_llvm_load, test_llvm_unload);
    tcase_add_checked_fixture(t, f8_cli_setup, f8_cli_teardown);
    tcase_add_test(t, llvm_takes_it);
    tcase_add_test(t, usual_target);
    suite_add_tcase(s, t);
    return s;
}
