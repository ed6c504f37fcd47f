/* GEMMs that come from no model: the forms of the command line and of files, good and bad, and that
 * their modules have the GEMM that was asked for on every target. */
#include <stdio.h>
#include <stdlib.h>

#include "frontend/fp8c_diagnose.h"
#include "frontend/tune/gemms.h"
#include "tests/shared/api/api.h"
#include "tests/shared/api/cli.h"
#include "tests/shared/suite.h"

static f8_tune_gemms fresh(void)
{
    static f8_allocator allocator;
    f8_tune_gemms list = {0};
    allocator = f8_default_allocator();
    f8_arena_init(&list.arena, &allocator);
    return list;
}

/* All GEMMs as texts, with " *COUNT" and " NAME" behind them where there are such, and "; ". */
static void print_list(const f8_tune_gemms *list, char to[4096])
{
    char text[F8_TUNE_GEMM_TEXT];
    size_t n = 0;
    to[0] = 0;
    for (size_t i = 0; i < list->n; i++) {
        const f8_tune_gemm *g = &list->gemm[i];
        n += (size_t)snprintf(to + n, 4096 - n, "%s%s", i ? "; " : "", f8_tune_gemm_text(g, text));
        if (g->count != 1)
            n += (size_t)snprintf(to + n, 4096 - n, " *%d", (int)g->count);
        if (*g->name)
            n += (size_t)snprintf(to + n, 4096 - n, " %s", g->name);
    }
}

/* ---- the command line ---- */

static const struct {
    const char *text, *gemms;
} good[] = {
    {"2048x768x3072:f8e4m3", "2048x768x3072:f8e4m3"},
    {"1x1x1:f32", "1x1x1:f32"},
    {"2147483647x1x1:bf16", "2147483647x1x1:bf16"},
    {"16x32x64:f8e5m2xf8e4m3", "16x32x64:f8e5m2xf8e4m3"},
    {"16x32x64:f8e4m3xf8e4m3", "16x32x64:f8e4m3"},
    {"16x32x64:f8e4m3:nn:bf16:dgrad:row", "16x32x64:f8e4m3:row:dgrad:bf16:nn"},
    {"16x32x64:f8e4m3:tensor", "16x32x64:f8e4m3"},
    {"16x32x64:bf16:f32", "16x32x64:bf16"},
    {"16x32x64:f32:bf16", "16x32x64:f32:bf16"},
    {"1,2x3x4,5:f32", "1x3x4:f32; 1x3x5:f32; 2x3x4:f32; 2x3x5:f32"},
    {"1..8*2x4x4:f32", "1x4x4:f32; 2x4x4:f32; 4x4x4:f32; 8x4x4:f32"},
    {"1..7*2x4x4:f32", "1x4x4:f32; 2x4x4:f32; 4x4x4:f32"},
    {"4x5..11+3,1x4:f32", "4x5x4:f32; 4x8x4:f32; 4x11x4:f32; 4x1x4:f32"},
    {"4x4x7..7*2:f32", "4x4x7:f32"},
    {"1x1x1:f32,bf16", "1x1x1:f32; 1x1x1:bf16"},
    {"1x1x1:bf16,f8e4m3:tensor,row,mx",
     "1x1x1:bf16; 1x1x1:f8e4m3; 1x1x1:f8e4m3:row; 1x1x1:f8e4m3:mx"},
    {"1x1x1:f8e5m2xf8e4m3:fprop,wgrad:f32,accumulate",
     "1x1x1:f8e5m2xf8e4m3:fprop; 1x1x1:f8e5m2xf8e4m3:fprop:accumulate; "
     "1x1x1:f8e5m2xf8e4m3:wgrad; 1x1x1:f8e5m2xf8e4m3:wgrad:accumulate"},
};

START_TEST(good_texts)
{
    char got[4096], again[4096];
    f8_diag diag = {0};
    f8_tune_gemms list = fresh(), second = fresh();
    ck_assert_msg(f8_tune_gemms_parse(&list, good[_i].text, &diag) == F8_OK, "%s: %s",
                  good[_i].text, diag.text);
    print_list(&list, got);
    ck_assert_str_eq(got, good[_i].gemms);
    for (size_t i = 0; i < list.n; i++) { /* what is printed is read as the same */
        char text[F8_TUNE_GEMM_TEXT];
        f8_tune_gemm_text(&list.gemm[i], text);
        ck_assert_int_eq(f8_tune_gemms_parse(&second, text, &diag), F8_OK);
    }
    print_list(&second, again);
    ck_assert_str_eq(again, got);
    f8_arena_end(&list.arena);
    f8_arena_end(&second.arena);
}
END_TEST

static const struct {
    const char *text, *why;
} bad[] = {
    {"", "at character 1, a size is missing"},
    {"1x2:f32", "at character 4, 'x' is missing"},
    {"1x2x3", "at character 6, ':' is missing"},
    {"1x2x3x4:f32", "at character 6, ':' is missing"},
    {"1 x2x3:f32", "at character 2, 'x' is missing"},
    {"0x2x3:f32", "at character 1, 0 is not a size from 1 to 2147483647"},
    {"1x2x2147483648:f32", "at character 5, 2147483648 is not a size from 1"},
    {"1x99999999999999999999x3:f32", "at character 3, 99999999999999999999 is not a size"},
    {"-1x2x3:f32", "at character 1, a size is missing"},
    {"1,x2x3:f32", "at character 3, a size is missing"},
    {"1..8x2x3:f32", "at character 5, a range needs *N or +N behind it, as 1..4096*2"},
    {"1..x2x3:f32", "at character 4, a size is missing"},
    {"1..8*1x2x3:f32", "at character 5, a range that is multiplied by 1 never ends"},
    {"1..8*0x2x3:f32", "at character 6, 0 is not a size"},
    {"1..8+0x2x3:f32", "at character 6, 0 is not a size"},
    {"9..8*2x2x3:f32", "at character 1, the range begins above its end"},
    {"1..20000+1x2x3:f32", "at character 1, there are more than 10000 sizes"},
    {"1x2x3:", "at character 7, '' is not f32, bf16, f8e4m3 or f8e5m2, or two of them"},
    {"1x2x3:f64", "at character 7, 'f64' is not f32"},
    {"1x2x3:f16", "at character 7, 'f16' is not f32"},
    {"1x2x3:f32x", "at character 7, 'f32x' is not f32"},
    {"1x2x3:f32,", "at character 11, '' is not f32"},
    {"1x2x3:f8e4m3xbf16", "at character 7, the formats of two operands are the same, or FP8 both"},
    {"1x2x3:f32xbf16", "at character 7, the formats of two operands are the same, or FP8 both"},
    {"1x2x3:bf16:row", "only FP8 formats have scales"},
    {"1x2x3:f32:rows", "at character 11, 'rows' is no scaling (tensor, row, block, mx), role"},
    {"1x2x3:f32:", "at character 11, '' is no scaling"},
    {"1x2x3:f32:fprop,bf16",
     "at character 17, 'bf16' is no role, as the words before it in this list are"},
    {"1x2x3:f32:fprop:dgrad", "at character 17, the role is given twice"},
    {"1x2x3:f32:nn,nn", "at character 14, 'nn' is given twice"},
};

/* Nothing of a bad text is in the list. */
START_TEST(bad_texts)
{
    char start[128];
    f8_diag diag = {0};
    f8_tune_gemms list = fresh();
    snprintf(start, sizeof start,
             "GEMM '%s' is not MxNxK:FORMAT, as 2048x768x3072:f8e4m3: ", bad[_i].text);
    ck_assert_int_eq(f8_tune_gemms_parse(&list, bad[_i].text, &diag), F8_ERR_INPUT);
    ck_assert_msg(!strncmp(diag.text, start, strlen(start)) && strstr(diag.text, bad[_i].why), "%s",
                  diag.text);
    ck_assert_uint_eq(list.n, 0);
    f8_arena_end(&list.arena);
}
END_TEST

START_TEST(most_gemms)
{
    f8_diag diag = {0};
    f8_tune_gemms list = fresh();
    ck_assert_int_eq(f8_tune_gemms_parse(&list, "1..10000+1x1x1:f32", &diag), F8_OK);
    ck_assert_uint_eq(list.n, F8_TUNE_MOST_GEMMS);
    ck_assert_int_eq(f8_tune_gemms_parse(&list, "1x1x1:f32", &diag), F8_ERR_INPUT);
    ck_assert_str_eq(diag.text, "more than 10000 GEMMs");
    f8_arena_end(&list.arena);
}
END_TEST

/* ---- files ---- */

static const struct {
    const char *text, *gemms;
} good_files[] = {
    {"m,n,k,format\n1,2,3,f32\n", "1x2x3:f32"},
    {"# a comment\n\nk,count,format,n,m\r\n3,7,f8e5m2xf8e4m3,2,1\r\n  # another\n4,,bf16,2,1",
     "1x2x3:f8e5m2xf8e4m3 *7; 1x2x4:bf16"},
    {"m,n,k,a,b,scaling,role,epilogue,layout,name\n1,2,3,f8e4m3,f8e5m2,row,wgrad,accumulate,nt,"
     "\"a, \"\"b\"\"\"\n1,2,3,f32,f32,,,,,\n",
     "1x2x3:f8e4m3xf8e5m2:row:wgrad:accumulate:nt a, \"b\"; 1x2x3:f32"},
    {"\"m\",\"n\",\"k\",\"format\"\n\"1\",2,\"3\",\"f32\"\n", "1x2x3:f32"},
    {"{\"m\": 1, \"n\": 2, \"k\": 3, \"format\": \"f8e4m3\", \"scaling\": \"mx\", \"count\": 4, "
     "\"name\": \"x\"}\n# no\n\n{\"m\": \"5\", \"n\": 2, \"k\": 3, \"a\": \"bf16\", \"b\": "
     "\"bf16\"}\n",
     "1x2x3:f8e4m3:mx *4 x; 5x2x3:bf16"},
};

START_TEST(good_files_are_read)
{
    char got[4096];
    f8_diag diag = {0};
    f8_tune_gemms list = fresh();
    const char *path = f8_cli_write("gemms", good_files[_i].text, strlen(good_files[_i].text));
    ck_assert_msg(f8_tune_gemms_read(&list, path, &diag) == F8_OK, "%s", diag.text);
    print_list(&list, got);
    ck_assert_str_eq(got, good_files[_i].gemms);
    f8_arena_end(&list.arena);
}
END_TEST

/* Each with its line and column. */
static const struct {
    const char *text;
    uint32_t line, column;
    const char *why;
} bad_files[] = {
    {"", 0, 0, "there is no GEMM in this file"},
    {"# m,n,k\n\n", 0, 0, "there is no GEMM in this file"},
    {"m,n,k,format\n", 0, 0, "there is no GEMM in this file"},
    {"m,n,k,formt\n1,2,3,f32\n", 1, 7,
     "there is no column 'formt' (did you mean 'format'?): there are m, n, k, format, a, b"},
    {"m,n,,k\n", 1, 5, "there is no column ''"},
    {"m,n,m\n", 1, 5, "column 'm' is there twice"},
    {"m,n,k,format\n1,2,3,f32\n1,2,0,f32\n", 3, 5,
     "k: '0' is not a whole number from 1 to 2147483647"},
    {"m,n,k,format\n1,2,3.5,f32\n", 2, 5, "k: '3.5' is not a whole number"},
    {"m,n,k,format\n1, 2,3,f32\n", 2, 3, "n: ' 2' is not a whole number"},
    {"m,n,k,format\n99999999999999999999,2,3,f32\n", 2, 1, "m: '99999999999999999999' is not"},
    {"m,n,k,format\n1,2,3,fp4\n", 2, 7, "format: 'fp4' is not f32, bf16, f8e4m3 or f8e5m2"},
    {"m,n,k,a,b\n1,2,3,f8e4m3xf8e5m2,f8e4m3\n", 2, 7, "a: 'f8e4m3xf8e5m2' is not f32"},
    {"m,n,k,a,b\n1,2,3,f8e4m3,bf16\n", 2, 1, "the formats of two operands are the same"},
    {"m,n,k,a\n1,2,3,f32\n", 2, 1, "b is missing"},
    {"m,n,format\n1,2,f32\n", 2, 1, "k is missing"},
    {"m,n,k,format\n1,2,3,\n", 2, 1, "format (or a) is missing"},
    {"m,n,k,format\n1,2,3,f32,4\n", 2, 11,
     "this row has more cells than the first one, which has 4"},
    {"m,n,k,format\n1,2,3\n", 2, 1, "format (or a) is missing"},
    {"m,n,k,format,scaling\n1,2,3,f8e4m3,rows\n", 2, 14,
     "scaling: 'rows' is none of tensor, row, block, mx"},
    {"m,n,k,format,scaling\n1,2,3,bf16,mx\n", 2, 1, "only FP8 formats have scales"},
    {"m,n,k,format,role\n1,2,3,bf16,x\n", 2, 12, "role: 'x' is none of fprop, dgrad, wgrad"},
    {"m,n,k,format,count\n1,2,3,bf16,-1\n", 2, 12, "count: '-1' is not a whole number"},
    {"m,n,k,format,name\n1,2,3,bf16,\"x\n", 2, 12,
     "the quotes that begin here are not closed in this line"},
    {"m,n,k,format\n1,2,\"3\"4,f32\n", 2, 8, "a comma is missing behind the quotes"},
    {"m,n,k,format,name\n1,2,3,bf16,\x1b[31m\n", 2, 12, "name: at most 255 bytes of UTF-8"},
    {"{\"m\": 1,}\n", 1, 9, "string or '}' expected near '}'"},
    {"{\"m\": 1, \"n\": 2, \"k\": 3, \"format\": \"f32\"}\n[1]\n", 2, 1, "this line is no object"},
    {"{\"m\": 1, \"n\": 2, \"k\": 3}\n", 1, 1, "format (or a) is missing"},
    {"{\"m\": 1, \"n\": 0, \"k\": 3}\n", 1, 10, "n: '0' is not a whole number from 1"},
    {"{\"m\": 1, \"n\": [2], \"k\": 3}\n", 1, 10, "n: a whole number or a text is expected"},
    {"{\"m\": 1, \"q\": 2}\n", 1, 10, "there is no column 'q'"},
};

START_TEST(bad_files_are_refused)
{
    f8_diag diag = {0};
    f8_tune_gemms list = fresh();
    const char *path = f8_cli_write("gemms", bad_files[_i].text, strlen(bad_files[_i].text));
    ck_assert_int_eq(f8_tune_gemms_read(&list, path, &diag), F8_ERR_INPUT);
    ck_assert_msg(strstr(diag.text, bad_files[_i].why) && diag.loc.line == bad_files[_i].line &&
                      diag.loc.column == bad_files[_i].column,
                  "%s: %u:%u: %s", bad_files[_i].text, diag.loc.line, diag.loc.column, diag.text);
    ck_assert_ptr_eq(diag.file, path);
    f8_arena_end(&list.arena);
}
END_TEST

START_TEST(other_files)
{
    static const char none[] = "m,n,k,format\n1,2,3,f32\0\n";
    f8_diag diag = {0};
    f8_tune_gemms list = fresh();
    ck_assert_int_eq(f8_tune_gemms_read(&list, f8_cli_temp("none"), &diag), F8_ERR_IO);
    diag = (f8_diag){0};
    ck_assert_int_eq(
        f8_tune_gemms_read(&list, f8_cli_write("binary", none, sizeof none - 1), &diag),
        F8_ERR_INPUT);
    ck_assert_str_eq(diag.text, "this is no text");
    f8_arena_end(&list.arena);
}
END_TEST

/* ---- modules ---- */

/* The GEMM that a text asks for, as plans of targets have it; NULL: the target lacks it. */
static const struct {
    const char *gemm, *target, *problem;
} modules[] = {
    {"64x96x160:f8e4m3", "cpu",
     "gemm 64x96x160 f8e4m3 x f8e4m3.t -> f32 strides 160 160 96 scales f32 tensor tensor grid"},
    {"64x96x160:f32", "cpu", "gemm 64x96x160 f32 x f32.t -> f32 strides 160 160 96"},
    {"64x96x160:bf16:wgrad:accumulate", "cpu",
     "gemm 64x96x160 bf16.t x bf16 -> f32 add strides 64 96 96"},
    {"64x96x160:bf16:dgrad", "cpu", "gemm 64x96x160 bf16 x bf16 -> f32 strides 160 96 96"},
    {"64x96x160:bf16:dgrad:tt", "cpu", "gemm 64x96x160 bf16.t x bf16.t -> f32 strides 64 160 96"},
    {"256x384x512:f8e4m3:block", "cpu",
     "gemm 256x384x512 f8e4m3 x f8e4m3.t -> f32 strides 512 512 384 scales f32 block(1,128) "
     "block(128,128) grid"},
    {"256x384x512:f8e5m2xf8e4m3:row:wgrad", "cpu",
     "gemm 256x384x512 f8e5m2.t x f8e4m3 -> f32 strides 256 384 384 scales f32 column column "
     "grid"},
    {"256x384x512:f8e4m3:mx:dgrad", "cpu",
     "gemm 256x384x512 f8e4m3 x f8e4m3 -> f32 strides 512 384 384 scales f8e8m0 block(1,32) "
     "block(32,1) grid"},
    {"256x384x512:f8e4m3:fprop:bias", "sm_90a",
     "gemm 256x384x512 f8e4m3 x f8e4m3.t -> bf16 bias strides 512 512 384 scales f32 tensor tensor "
     "grid fast"},
    {"256x384x512:bf16:fprop:bias", "sm_90a",
     "gemm 256x384x512 bf16 x bf16.t -> bf16 bias strides 512 512 384"},
    {"256x384x512:bf16:wgrad:bf16", "sm_90a",
     "gemm 256x384x512 bf16.t x bf16 -> bf16 strides 256 384 384"},
    {"256x384x512:f8e5m2xf8e4m3:wgrad:accumulate", "sm_90a",
     "gemm 256x384x512 f8e5m2 x f8e4m3.t -> f32 add strides 512 512 384 scales f32 tensor tensor "
     "grid"},
    {"256x384x512:f8e4m3:block:wgrad:accumulate", "sm_90a",
     "gemm 256x384x512 f8e4m3 x f8e4m3.t -> f32 add strides 512 512 384 scales f32 block(1,128) "
     "block(1,128) cublaslt"},
    {"256x384x512:f8e4m3:row:bf16", "sm_90a",
     "gemm 256x384x512 f8e4m3 x f8e4m3.t -> bf16 strides 512 512 384 scales f32 row row grid"},
    {"256x384x512:f8e4m3:mx:bf16", "sm_100a",
     "gemm 256x384x512 f8e4m3 x f8e4m3.t -> bf16 strides 512 512 384 scales f8e8m0 block(1,32) "
     "block(1,32) cublaslt"},
    {"256x384x512:f8e4m3:mx", "sm_90a", NULL},
    {"256x384x512:f8e4m3:row", "sm_100a", NULL},
    {"256x384x512:f8e4m3:block", "sm_89", NULL},
    {"256x384x512:f8e5m2", "sm_90a", NULL},
    {"256x384x500:f8e4m3", "sm_90a", /* k is padded */
     "gemm 256x384x512 f8e4m3 x f8e4m3.t -> f32 strides 512 512 384 scales f32 tensor tensor grid"},
    {"256x380x512:f8e4m3", "sm_90a", NULL},
};

START_TEST(modules_have_it)
{
    f8_diag diag = {0};
    f8_tune_gemms list = fresh();
    fp8c_context *ctx = new_context();
    fp8c_module *m;
    fp8c_program *p;
    fp8c_choice c;
    const char *problem = modules[_i].problem;
    ck_assert_int_eq(f8_tune_gemms_parse(&list, modules[_i].gemm, &diag), F8_OK);
    const int copies = f8_tune_gemm_copies(list.gemm, F8_TUNE_COLD_BYTES);
    ck_assert_msg(f8_tune_gemm_module(ctx, list.gemm, copies, &m) == FP8C_OK, "%s",
                  fp8c_context_message(ctx));
    const fp8c_compile_options o = {.struct_size = sizeof o,
                                    .target = modules[_i].target,
                                    .recipe = "f32",
                                    .inference = 1,
                                    .no_device = 1,
                                    .text_only = strcmp(modules[_i].target, "cpu") != 0};
    const fp8c_status status = fp8c_compile(m, &o, &p);
    ck_assert_msg(status == (problem ? FP8C_OK : FP8C_ERR_UNSUPPORTED), "%d: %s", (int)status,
                  fp8c_context_message(ctx));
    int gemms = 0;
    for (int i = 0; problem && fp8c_program_choice(p, i, &c) == FP8C_OK; i++)
        if (c.gemm) {
            ck_assert_str_eq(c.problem, problem);
            ck_assert_int_eq(c.count, copies);
            gemms++;
        }
    ck_assert_int_eq(gemms, problem != NULL);
    fp8c_program_destroy(problem ? p : NULL);
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
    f8_arena_end(&list.arena);
}
END_TEST

#define N(table) ((int)(sizeof table / sizeof *table))

Suite *f8_suite(void)
{
    Suite *s = suite_create("gemms");
    TCase *t = tcase_create("gemms");
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_checked_fixture(t, f8_cli_setup, f8_cli_teardown);
    tcase_add_loop_test(t, good_texts, 0, N(good));
    tcase_add_loop_test(t, bad_texts, 0, N(bad));
    tcase_add_test(t, most_gemms);
    tcase_add_loop_test(t, good_files_are_read, 0, N(good_files));
    tcase_add_loop_test(t, bad_files_are_refused, 0, N(bad_files));
    tcase_add_test(t, other_files);
    tcase_add_loop_test(t, modules_have_it, 0, N(modules));
    suite_add_tcase(s, t);
    return s;
}
