/* .npy files: what is written is read back. Whatever is wrong with a file is reported before an
 * element of it is used. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "frontend/checkpoint/npy.h"
#include "frontend/checkpoint/tensor_file.h"
#include "tests/shared/api/cli.h"
#include "tests/shared/random.h"
#include "tests/shared/suite.h"

enum { TIMEOUT = 120 };

static f8_diag diag; /* of the last failure */

static bool open_bytes(f8_npy *f, const void *bytes, size_t n)
{
    const int fd = memfd_create("npy", MFD_CLOEXEC);
    ck_assert(fd >= 0 && write(fd, bytes, n) == (ssize_t)n);
    diag = (f8_diag){0};
    return f8_npy_open_fd(f, "some.npy", fd, &diag) == F8_OK;
}

/* A file of a version with this header, then `data` zeros: its size. */
static size_t make(char *to, int major, const char *header, size_t data)
{
    const size_t n = strlen(header), at = major == 1 ? 10 : 12;
    memcpy(to, "\x93NUMPY", 6);
    to[6] = (char)major;
    to[7] = 0;
    for (size_t i = 8; i < at; i++)
        to[i] = (char)(n >> 8 * (i - 8));
    memcpy(to + at, header, n);
    memset(to + at + n, 0, data);
    return at + n + data;
}

static void refused(const char *bytes, size_t n, const char *message)
{
    f8_npy f;
    ck_assert_msg(!open_bytes(&f, bytes, n), "taken, instead of: %s", message);
    ck_assert_str_eq(diag.text, message);
    ck_assert_str_eq(diag.file, "some.npy");
    ck_assert(diag.status == F8_ERR_INPUT && f.in.fd < 0 && !f.in.path);
}

/* ---- taken ---- */

static const struct {
    int major;
    const char *header;
    f8_st_dtype dtype;
    int rank;
    int64_t dim[8];
    size_t bytes;
} good[] = {
    {1,
     "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }     \n",
     F8_ST_F32,
     2,
     {2, 3},
     24},
    {2, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n", F8_ST_F32, 2, {2, 3}, 24},
    {3, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n", F8_ST_F32, 2, {2, 3}, 24},
    {1, "{\"shape\":(),\"fortran_order\":False,\"descr\":\"<f2\"}\n", F8_ST_F16, 0, {0}, 2},
    {1, "{'descr': '<i8', 'fortran_order': True, 'shape': (4,)}\n", F8_ST_I64, 1, {4}, 32},
    {1, "{'descr':'|b1','fortran_order':False,'shape':(0,5)}\n", F8_ST_BOOL, 2, {0, 5}, 0},
    {1,
     "  { 'descr' : '=i4' , 'fortran_order' : False , 'shape' : ( 1 , 1 , 2 , ) , } \n",
     F8_ST_I32,
     3,
     {1, 1, 2},
     8},
    {1,
     "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1, 2, 1, 1, 1, 1, 3), }\n",
     F8_ST_F32,
     8,
     {1, 1, 2, 1, 1, 1, 1, 3},
     24},
    {1, "{'descr': '|V2', 'fortran_order': False, 'shape': (3,), }\n", F8_ST_U16, 1, {3}, 6},
    {1, "{'descr': '|V1', 'fortran_order': False, 'shape': (3,), }\n", F8_ST_U8, 1, {3}, 3},
    {1, "{'descr': '>u1', 'fortran_order': False, 'shape': (3,), }\n", F8_ST_U8, 1, {3}, 3},
};

START_TEST(taken)
{
    char bytes[400], to[40];
    f8_npy f;
    const size_t n = make(bytes, good[_i].major, good[_i].header, good[_i].bytes);
    for (size_t i = 0; i < good[_i].bytes; i++)
        bytes[n - good[_i].bytes + i] = (char)(i + 1);
    ck_assert_msg(open_bytes(&f, bytes, n), "%s", diag.text);
    ck_assert(f.tensor.dtype == good[_i].dtype && f.tensor.rank == good[_i].rank);
    ck_assert_uint_eq(f.tensor.bytes, good[_i].bytes);
    for (int i = 0; i < good[_i].rank; i++)
        ck_assert_int_eq(f.tensor.dim[i], good[_i].dim[i]);
    ck_assert_int_eq(f8_npy_read(&f, to, NULL), F8_OK);
    ck_assert(!memcmp(to, bytes + n - good[_i].bytes, good[_i].bytes));
    f8_npy_close(&f);
    f8_npy_close(&f);
}
END_TEST

/* ---- refused ---- */

#define HEADER "the header of the .npy file: "
#define NONE "'shape' holds something that is not a size"

/* With 24 bytes of elements. */
static const struct {
    const char *header, *message;
} bad[] = {
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 4), }\n",
     "its shape takes 32 bytes, but 24 follow the header: it is truncated"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (5,), }\n",
     "its shape takes 20 bytes, but 24 follow the header: the file is too long"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 4), }\n",
     "'shape' has more bytes than 64 bits can count"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775808,), }\n",
     HEADER "a size in 'shape' is too large"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (-6,), }\n", HEADER NONE},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (06,), }\n", HEADER NONE},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (6.0,), }\n",
     HEADER "'shape' is not a tuple"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (,), }\n", HEADER NONE},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,,3), }\n", HEADER NONE},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (6), }\n", HEADER "'shape' is not a tuple"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': [2, 3], }\n",
     HEADER "'shape' is not a tuple"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3 }\n",
     HEADER "'shape' is not a tuple of sizes"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3\n",
     HEADER "'shape' is not a tuple of sizes"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (6L,), }\n",
     HEADER "'shape' is not a tuple"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,6), }\n",
     HEADER "'shape' has more than 8 axes"},
    {"{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }\n",
     HEADER "its elements are in Fortran order: save numpy.ascontiguousarray(array)"},
    {"{'descr': '<f4', 'fortran_order': 0, 'shape': (2, 3), }\n",
     HEADER "'fortran_order' is neither True nor False"},
    {"{'descr': '>f4', 'fortran_order': False, 'shape': (2, 3), }\n",
     HEADER "its elements are big-endian: save them as little-endian"},
    {"{'descr': '<c8', 'fortran_order': False, 'shape': (3,), }\n",
     "its elements are '<c8'; only f4, f2, i4, i8, b1, u1, u2, u4, bf16 (V2) and FP8 (V1) can be "
     "read"},
    {"{'descr': '|O', 'fortran_order': False, 'shape': (3,), }\n",
     "its elements are '|O'; only f4, f2, i4, i8, b1, u1, u2, u4, bf16 (V2) and FP8 (V1) can be "
     "read"},
    {"{'descr': '', 'fortran_order': False, 'shape': (3,), }\n",
     "its elements are ''; only f4, f2, i4, i8, b1, u1, u2, u4, bf16 (V2) and FP8 (V1) can be "
     "read"},
    {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2, 3), }\n",
     HEADER "'descr' describes a structure; only single elements can be read"},
    {"{'descr': '<f4\\x00', 'fortran_order': False, 'shape': (2, 3), }\n",
     HEADER "it has a string that no .npy file has"},
    {"{'descr': '0123456789abcdef', 'fortran_order': False, 'shape': (2, 3), }\n",
     HEADER "it has a string that no .npy file has"},
    {"{'descr': '<f4", HEADER "a string has no end"},
    {"{'descr': f4, 'fortran_order': False, 'shape': (2, 3), }\n", HEADER "a string was expected"},
    {"{'descr' '<f4', 'fortran_order': False, 'shape': (2, 3), }\n", HEADER "a ':' was expected"},
    {"{'descr': '<f4' 'fortran_order': False, 'shape': (2, 3), }\n",
     HEADER "a ',' or '}' was expected"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), 'more': 1}\n",
     HEADER "it has a key other than descr, fortran_order and shape"},
    {"{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)}\n",
     HEADER "a key is given twice"},
    {"{'descr': '<f4', 'fortran_order': False}\n",
     HEADER "descr, fortran_order or shape is missing"},
    {"{}\n", HEADER "descr, fortran_order or shape is missing"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }",
     HEADER "it does not end with a newline"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }; import os\n",
     HEADER "more bytes follow the dictionary"},
    {"dict()\n", HEADER "it is not a dictionary"},
    {"\n", HEADER "it is not a dictionary"},
    {"", "its header is empty"},
};

START_TEST(bad_header)
{
    char bytes[400];
    refused(bytes, make(bytes, 1 + _i % 3, bad[_i].header, 24), bad[_i].message);
}
END_TEST

START_TEST(bad_files)
{
    static const char header[] = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n";
    char bytes[400];
    const size_t n = make(bytes, 1, header, 24), whole = strlen(header) + 10;
    refused("", 0, "0 bytes are too few for a .npy file");
    refused(bytes, 9, "9 bytes are too few for a .npy file");
    refused("PK\3\4 this is .npz", 17, "it does not begin like a .npy file");
    for (size_t cut = 10; cut < n; cut++) {
        f8_npy f;
        ck_assert(!open_bytes(&f, bytes, cut) && strstr(diag.text, "is truncated"));
        ck_assert_msg(cut >= whole ||
                          strstr(diag.text, "its header ends at byte 70, the file at"),
                      "%s", diag.text);
    }
    bytes[6] = 4;
    refused(bytes, n, "its version is 4.0; only 1.0, 2.0 and 3.0 can be read");
    bytes[6] = 1, bytes[7] = 1;
    refused(bytes, n, "its version is 1.1; only 1.0, 2.0 and 3.0 can be read");
    bytes[7] = 0, bytes[8] = (char)0xff, bytes[9] = (char)0xff;
    refused(bytes, n, "a header of 65535 bytes is too long: the limit is 10000");
    bytes[6] = 2, bytes[10] = bytes[11] = (char)0xff;
    refused(bytes, n, "a header of 4294967295 bytes is too long: the limit is 10000");
    bytes[8] = bytes[9] = bytes[10] = bytes[11] = 0;
    refused(bytes, 11, "the file is truncated: its header ends at byte 12, the file at 11");
}
END_TEST

/* Each byte of a small file set to each value: no crash, a message where it is refused. */
START_TEST(damaged)
{
    char bytes[400], to[4096];
    const size_t n =
        make(bytes, 1, "{'descr': '|u1', 'fortran_order': False, 'shape': (2, 3), }\n", 6);
    int taken = 0;
    for (size_t at = 0; at < n; at++)
        for (int value = 0; value < 256; value += f8_cli_sanitized() ? 5 : 1) {
            f8_npy f;
            const char old = bytes[at];
            bytes[at] = (char)value;
            if (open_bytes(&f, bytes, n)) {
                ck_assert(f.tensor.bytes <= 6 && f8_npy_read(&f, to, NULL) == F8_OK);
                f8_npy_close(&f);
                taken++;
            } else {
                ck_assert(*diag.text);
            }
            bytes[at] = old;
        }
    ck_assert_int_gt(taken, 6 * 50); /* elements may be any */
    ck_assert_int_lt(taken, 6 * 256 + 500);
}
END_TEST

/* ---- written ---- */

START_TEST(written)
{
    static const float x[] = {1, -2, 3, 4, 5, 6};
    static const char header[] =
        "\x93NUMPY\x01\x00\x76\x00{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }";
    const fp8c_type type = {FP8C_F32, 2, {2, 3}};
    const char *path = f8_cli_temp("x.npy");
    size_t n;
    ck_assert_int_eq(f8_npy_write(NULL, path, &type, x, sizeof x, &diag), F8_OK);
    char *file = f8_cli_read(path, &n);
    ck_assert_uint_eq(n, 128 + sizeof x);
    ck_assert(!memcmp(file, header, sizeof header - 1) && file[127] == '\n' &&
              !memcmp(file + 128, x, sizeof x));
    for (size_t i = sizeof header - 1; i < 127; i++)
        ck_assert_int_eq(file[i], ' ');
    free(file);
    diag = (f8_diag){0};
    ck_assert_int_eq(f8_npy_write(NULL, "no/such/x.npy", &type, x, sizeof x, &diag), F8_ERR_IO);
    ck_assert_str_eq(diag.text, "No such file or directory");
}
END_TEST

/* Every type and rank comes back as it was. */
START_TEST(round_trip)
{
    uint32_t r = 2000 + (uint32_t)_i;
    fp8c_type type = {.dtype = (fp8c_dtype)(_i % 8), .rank = _i / 8};
    for (int i = 0; i < type.rank; i++)
        type.dim[i] = 1 + (int64_t)(test_random(&r) % 4);
    const size_t n = (size_t)fp8c_type_bytes(&type);
    uint8_t *bytes = malloc(n), *back = malloc(n);
    for (size_t i = 0; i < n; i++)
        bytes[i] = (uint8_t)(test_random(&r) % (type.dtype == FP8C_BOOL ? 2 : 256));
    f8_tensor_file f;
    char text[5000];
    const char *path = f8_cli_temp("x.npy");
    snprintf(text, sizeof text, "x=%s", path);
    diag = (f8_diag){0};
    ck_assert(f8_tensor_file_parse(text, &f) && !f.tensor);
    ck_assert_int_eq(f8_npy_write(NULL, path, &type, bytes, n, &diag), F8_OK);
    ck_assert_msg(f8_tensor_file_read(&f, &type, back, &diag) == F8_OK, "seed %d: %s", 2000 + _i,
                  diag.text);
    ck_assert(!memcmp(bytes, back, n));
    f8_tensor_file_free(&f);
    free(bytes);
    free(back);
}
END_TEST

/* ---- as a port's value ---- */

static f8_status take(const char *header, const void *bytes, size_t n, fp8c_type type, void *to)
{
    char file[400], text[5000];
    f8_tensor_file f;
    const size_t whole = make(file, 1, header, n);
    memcpy(file + whole - n, bytes, n);
    snprintf(text, sizeof text, "x=%s", f8_cli_write("x.npy", file, whole));
    ck_assert(f8_tensor_file_parse(text, &f));
    diag = (f8_diag){0};
    const f8_status status = f8_tensor_file_read(&f, &type, to, &diag);
    f8_tensor_file_free(&f);
    return status;
}

#define THREE(descr) "{'descr': '" descr "', 'fortran_order': False, 'shape': (3,)}\n"

START_TEST(conversions)
{
    static const int64_t wide[] = {-2147483648, 7, 2147483647}, high[] = {0, 2147483648, 1},
                         low[] = {0, 1, INT64_MIN};
    static const uint8_t bytes[] = {0, 1, 200};
    static const int32_t narrow[] = {-5, INT32_MAX, INT32_MIN};
    int64_t l[3];
    int32_t i[3];
    uint8_t b[3];
    uint16_t h[3];
    const fp8c_type i32 = {FP8C_I32, 1, {3}}, boolean = {FP8C_BOOL, 1, {3}},
                    i64 = {FP8C_I64, 1, {3}};
    ck_assert_int_eq(take(THREE("<i8"), wide, 24, i32, i), F8_OK);
    ck_assert(i[0] == INT32_MIN && i[1] == 7 && i[2] == INT32_MAX);
    ck_assert_int_eq(take(THREE("<i8"), high, 24, i32, i), F8_ERR_INPUT);
    ck_assert_str_eq(diag.text, "for 'x': element 1 does not fit into i32");
    ck_assert_int_eq(take(THREE("<i8"), low, 24, i32, i), F8_ERR_INPUT);
    ck_assert_str_eq(diag.text, "for 'x': element 2 does not fit into i32");
    ck_assert_int_eq(take(THREE("|u1"), bytes, 3, i32, i), F8_OK);
    ck_assert(i[0] == 0 && i[1] == 1 && i[2] == 200);
    ck_assert_int_eq(take(THREE("<i8"), low, 24, i64, l), F8_OK);
    ck_assert(!memcmp(l, low, sizeof low));
    ck_assert_int_eq(take(THREE("<i4"), narrow, 12, i64, l), F8_OK);
    ck_assert(l[0] == -5 && l[1] == INT32_MAX && l[2] == INT32_MIN);
    ck_assert_int_eq(take(THREE("|u1"), bytes, 3, i64, l), F8_OK);
    ck_assert(l[0] == 0 && l[1] == 1 && l[2] == 200);
    ck_assert_int_eq(take(THREE("|b1"), "\0\1\1", 3, boolean, b), F8_OK);
    ck_assert_int_eq(take(THREE("|b1"), bytes, 3, boolean, b), F8_ERR_INPUT);
    ck_assert_str_eq(diag.text, "for 'x': element 2 does not fit into bool");
    ck_assert_int_eq(take(THREE("|u1"), "\1\2\0", 3, boolean, b), F8_ERR_INPUT);
    ck_assert_str_eq(diag.text, "for 'x': element 1 does not fit into bool");
    ck_assert_int_eq(take(THREE("|u1"), bytes, 3, (fp8c_type){FP8C_F8E4M3, 1, {3}}, b), F8_OK);
    ck_assert(!memcmp(b, bytes, 3));
    ck_assert_int_eq(take(THREE("<u2"), "\1\2\3\4\5\6", 6, (fp8c_type){FP8C_BF16, 1, {3}}, h),
                     F8_OK);
    ck_assert(!memcmp(h, "\1\2\3\4\5\6", 6));
}
END_TEST

START_TEST(misfits)
{
    static const struct {
        const char *header;
        size_t bytes;
        fp8c_type type;
        const char *message;
    } wrong[] = {
        {THREE("<f4"), 12, {FP8C_F32, 1, {4}}, "it is F32 [3], but 'x' needs F32 [4]"},
        {THREE("<f4"), 12, {FP8C_F32, 2, {1, 3}}, "it is F32 [3], but 'x' needs F32 [1, 3]"},
        {THREE("<f8"), 24, {FP8C_F32, 1, {3}}, "it is F64 [3], but 'x' needs F32 [3]"},
        {THREE("<f4"), 12, {FP8C_I32, 1, {3}}, "it is F32 [3], but 'x' needs I32 [3]"},
        {THREE("<i4"), 12, {FP8C_F32, 1, {3}}, "it is I32 [3], but 'x' needs F32 [3]"},
        {THREE("<i4"), 12, {FP8C_BOOL, 1, {3}}, "it is I32 [3], but 'x' needs BOOL [3]"},
        {THREE("<i8"), 24, {FP8C_BOOL, 1, {3}}, "it is I64 [3], but 'x' needs BOOL [3]"},
        {THREE("<f2"), 6, {FP8C_BF16, 1, {3}}, "it is F16 [3], but 'x' needs BF16 [3]"},
        {THREE("|V2"), 6, {FP8C_F16, 1, {3}}, "it is U16 [3], but 'x' needs F16 [3]"},
        {THREE("|b1"), 3, {FP8C_F8E5M2, 1, {3}}, "it is BOOL [3], but 'x' needs F8_E5M2 [3]"},
    };
    char zeros[24] = {0}, to[64];
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        ck_assert_int_eq(take(wrong[i].header, zeros, wrong[i].bytes, wrong[i].type, to),
                         F8_ERR_INPUT);
        ck_assert_str_eq(diag.text, wrong[i].message);
    }
}
END_TEST

START_TEST(names)
{
    static const struct {
        const char *text, *name, *path, *tensor;
    } good_names[] = {{"x=a.npy", "x", "a.npy", NULL},
                      {"h.0.x=b/c.safetensors", "h.0.x", "b/c.safetensors", "h.0.x"},
                      {"x=a.safetensors:w:1", "x", "a.safetensors", "w:1"},
                      {"x=a=b.npy", "x", "a=b.npy", NULL}};
    static const char *const none[] = {
        "x", "x=", "=a.npy", "x=a.txt", "x=.npy", "x=a.safetensors:", "x=a.npz"};
    f8_tensor_file f;
    for (size_t i = 0; i < sizeof good_names / sizeof *good_names; i++) {
        ck_assert(f8_tensor_file_parse(good_names[i].text, &f));
        ck_assert_str_eq(f.name, good_names[i].name);
        ck_assert_str_eq(f.path, good_names[i].path);
        ck_assert_pstr_eq(f.tensor, good_names[i].tensor);
        f8_tensor_file_free(&f);
    }
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        ck_assert_msg(!f8_tensor_file_parse(none[i], &f), "%s", none[i]);
        f8_tensor_file_free(&f);
    }
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("npy");
    TCase *t = tcase_create("npy");
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_checked_fixture(t, f8_cli_setup, f8_cli_teardown);
    tcase_add_loop_test(t, taken, 0, sizeof good / sizeof *good);
    tcase_add_loop_test(t, bad_header, 0, sizeof bad / sizeof *bad);
    tcase_add_test(t, bad_files);
    tcase_add_test(t, damaged);
    tcase_add_test(t, written);
    tcase_add_loop_test(t, round_trip, 0, 8 * 6);
    tcase_add_test(t, conversions);
    tcase_add_test(t, misfits);
    tcase_add_test(t, names);
    suite_add_tcase(s, t);
    return s;
}
