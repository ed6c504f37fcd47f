/* Safetensors files: what is written is read back. Whatever is wrong with a file is reported before
 * any of its tensors is read. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "frontend/checkpoint/safetensors.h"
#include "tests/shared/api/cli.h"
#include "tests/shared/random.h"
#include "tests/shared/suite.h"

enum { TIMEOUT = 300, MOST = 9, NAME = 40 };

/* ---- files of a text and some bytes ---- */

/* A descriptor of bytes in memory, at their beginning; f8_st_close closes it. */
static int memory_file(const void *bytes, size_t n)
{
    const int fd = memfd_create("safetensors", MFD_CLOEXEC);
    ck_assert(fd >= 0 && write(fd, bytes, n) == (ssize_t)n);
    return fd;
}

/* Length, header with its " written as ', `data` bytes of zeros: the caller frees. */
static char *make_file(const char *header, size_t data, size_t *n)
{
    const uint64_t length = strlen(header);
    char *file = calloc(1, *n = 8 + length + data);
    ck_assert_ptr_nonnull(file);
    memcpy(file, &length, 8);
    for (size_t i = 0; i < length; i++)
        file[8 + i] = header[i] == '\'' ? '"' : header[i];
    return file;
}

static f8_diag diag; /* of the last failure */

static bool open_bytes(f8_st_file *f, const void *bytes, size_t n)
{
    diag = (f8_diag){0};
    return f8_st_open_fd(f, "some.safetensors", memory_file(bytes, n), NULL, &diag) == F8_OK;
}

static bool open_path(f8_st_file *f, const char *path)
{
    diag = (f8_diag){0};
    return f8_st_open(f, path, NULL, &diag) == F8_OK;
}

static bool read_tensor(const f8_st_file *f, const f8_st_tensor *t, void *to)
{
    diag = (f8_diag){0};
    return f8_st_read(f, t, to, &diag) == F8_OK;
}

/* Refused with exactly `message`; nothing is left to use. */
static void refused(const void *bytes, size_t n, const char *message)
{
    f8_st_file f;
    ck_assert_msg(!open_bytes(&f, bytes, n), "taken, instead of: %s", message);
    ck_assert_str_eq(diag.text, message);
    ck_assert_str_eq(diag.file, "some.safetensors");
    ck_assert_int_eq(diag.status, F8_ERR_INPUT);
    ck_assert(f.n == 0 && !f.tensor && !f.header && f.in.fd < 0);
}

/* ---- reading ---- */

#define TENSOR "{'dtype':'F32','shape':[2,3],'data_offsets':[0,24]}"

START_TEST(reads_a_file)
{
    static const char header[] = "{'b':{'data_offsets':[4,12],'dtype':'BF16','shape':[2,2]}, "
                                 "'__metadata__':{'format':'pt'},"
                                 "'a.\\u00e4':{'dtype':'F32','shape':[],'data_offsets':[0,4]},"
                                 "'none':{'dtype':'I64','shape':[3,0],'data_offsets':[4,4]}}\n ";
    f8_st_file f;
    char text[64];
    unsigned char four[4];
    size_t n;
    char *file = make_file(header, 12, &n);
    memcpy(file + n - 8, "\1\2\3\4\5\6\7\10", 8);
    ck_assert_msg(open_bytes(&f, file, n), "%s", diag.text);
    ck_assert_uint_eq(f.n, 3);
    const f8_st_tensor *a = f8_st_find(&f, "a.ä"), *b = f8_st_find(&f, "b"),
                       *none = f8_st_find(&f, "none");
    ck_assert(a == &f.tensor[0] && none == &f.tensor[1] && b == &f.tensor[2]);
    ck_assert_str_eq(f8_st_type_text(a, text, sizeof text), "F32 []");
    ck_assert_str_eq(f8_st_type_text(b, text, sizeof text), "BF16 [2, 2]");
    ck_assert_str_eq(f8_st_type_text(b, text, 8), "BF16 [2");
    ck_assert(none->bytes == 0 && b->bytes == 8 && b->begin == 4);
    ck_assert_str_eq(f8_st_metadata(&f, "format"), "pt");
    ck_assert_ptr_null(f8_st_metadata(&f, "b"));
    ck_assert_ptr_null(f8_st_find(&f, "__metadata__"));
    unsigned char eight[8];
    ck_assert(read_tensor(&f, b, eight) && !memcmp(eight, "\1\2\3\4\5\6\7\10", 8));
    ck_assert(read_tensor(&f, a, four) && !memcmp(four, "\0\0\0\0", 4));
    ck_assert(read_tensor(&f, none, NULL));
    f8_st_close(&f);
    free(file);
}
END_TEST

/* Nothing but a header is a file too; and so is the reference's own empty one. */
START_TEST(reads_no_tensors)
{
    static const char empty[] = "\x8\0\0\0\0\0\0\0{}      ";
    f8_st_file f;
    ck_assert_msg(open_bytes(&f, empty, 16), "%s", diag.text);
    ck_assert(f.n == 0 && f.n_metadata == 0);
    f8_st_close(&f);
}
END_TEST

START_TEST(bad_sizes)
{
    static const char with[] = "\x2\0\0\0\0\0\0\0{}";
    refused("", 0,
            "0 bytes are too few: a safetensors file begins with the 8-byte length of its header");
    refused("\x2\0\0\0\0\0\0", 7,
            "7 bytes are too few: a safetensors file begins with the 8-byte length of its header");
    refused("\0\0\0\0\0\0\0\0", 8,
            "the header does not begin with '{': this is not a safetensors file");
    refused(with, 9,
            "the header ends at byte 10, but the file at 9: it is truncated, or it is not a "
            "safetensors file");
    refused("\x1\xe1\xf5\x5\0\0\0\0{}", 10,
            "a header of 100000001 bytes is too long: at most 100000000 are read. Is this a "
            "safetensors file?");
    refused("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10,
            "a header of 18446744073709551615 bytes is too long: "
            "at most 100000000 are read. Is this a safetensors file?");
    refused("\x0\xe1\xf5\x5\0\0\0\0{}", 10,
            "the header ends at byte 100000008, but the file at 10: it is truncated, or it is not "
            "a safetensors file");
    refused("\x2\0\0\0\0\0\0\0 {}", 11,
            "the header does not begin with '{': this is not a safetensors file");
    refused("\x2\0\0\0\0\0\0\0{}x", 11, "the last 1 bytes belong to no tensor");
}
END_TEST

/* A header with 24 bytes of data behind it, and what is said of it. */
static const struct {
    const char *header, *message;
} bad_headers[] = {
    {"{'a':{'dtype':'F32','shape':[2,3],'data_offsets':[0,24]},}",
     "the header is not valid JSON: string or '}' expected near '}' (byte 58 of it)"},
    {"{'a':{'dtype':'F32','shape':[2,3],'data_offsets':[0,24]}}{",
     "the header is not valid JSON: end of file expected near '{' (byte 58 of it)"},
    {"{'a':{'dtype':'F32','shape':[2,3],'data_offsets':[0,24]},'a':{'dtype':'F32','shape':[2,3],'"
     "data_offsets':[0,24]}}",
     "the header is not valid JSON: duplicate object key near '\"a\"' (byte 60 of it)"},
    {"{'a':{'dtype':'F32','dtype':'F32','shape':[2,3],'data_offsets':[0,24]}}",
     "the header is not valid JSON: duplicate object key near '\"dtype\"' (byte 27 of it)"},
    {"{'\xff':{'dtype':'F32','shape':[2,3],'data_offsets':[0,24]}}",
     "the header is not valid JSON: unable to decode byte 0xff near '\"' (byte 2 of it)"},
    {"{'a\\u0000':{'dtype':'F32','shape':[2,3],'data_offsets':[0,24]}}",
     "the header is not valid JSON: NUL byte in object key not supported near '\"a\\u0000\"' (byte "
     "10 of it)"},
    {"{}", "the last 24 bytes belong to no tensor"},
    {"{'':{'dtype':'F32','shape':[2,3],'data_offsets':[0,24]}}", "a tensor has no name"},
    {"{'a':[]}", "tensor 'a': is not described by an object"},
    {"{'a':{}}", "tensor 'a': 'dtype' is missing or not a string"},
    {"{'a':{'dtype':1,'shape':[2,3],'data_offsets':[0,24]}}",
     "tensor 'a': 'dtype' is missing or not a string"},
    {"{'a':{'dtype':'f32','shape':[2,3],'data_offsets':[0,24]}}",
     "tensor 'a': its dtype 'f32' is unknown"},
    {"{'a':{'dtype':'F4','shape':[48],'data_offsets':[0,24]}}",
     "tensor 'a': its dtype 'F4' is unknown"},
    {"{'a\\u009b2J':{'dtype':'\\u00a0','shape':[48],'data_offsets':[0,24]}}",
     "tensor 'a??2J': its dtype '\xc2\xa0' is unknown"},
    {"{'a\\u001b[2J\\n':{'dtype':'\\r','shape':[48],'data_offsets':[0,24]}}",
     "tensor 'a?[2J?': its dtype '?' is unknown"},
    {"{'a':{'dtype':'F32','data_offsets':[0,24]}}", "tensor 'a': 'shape' is missing or not a list"},
    {"{'a':{'dtype':'F32','shape':6,'data_offsets':[0,24]}}",
     "tensor 'a': 'shape' is missing or not a list"},
    {"{'a':{'dtype':'F32','shape':[2,3.0],'data_offsets':[0,24]}}",
     "tensor 'a': 'shape' holds something that is not a size"},
    {"{'a':{'dtype':'F32','shape':[-2,-3],'data_offsets':[0,24]}}",
     "tensor 'a': 'shape' holds something that is not a size"},
    {"{'a':{'dtype':'F32','shape':[true],'data_offsets':[0,24]}}",
     "tensor 'a': 'shape' holds something that is not a size"},
    {"{'a':{'dtype':'F32','shape':[1,1,1,1,1,1,1,2,3],'data_offsets':[0,24]}}",
     "tensor 'a': has 9 axes; at most 8 are read"},
    {"{'a':{'dtype':'F32','shape':[4294967296,1073741824,4],'data_offsets':[0,24]}}",
     "tensor 'a': 'shape' has more bytes than can be counted"},
    {"{'a':{'dtype':'F32','shape':[9223372036854775807,0],'data_offsets':[0,0]}}",
     "tensor 'a': 'shape' has more bytes than can be counted"},
    {"{'a':{'dtype':'F32','shape':[9223372036854775808],'data_offsets':[0,24]}}",
     "the header is not valid JSON: too big integer near '9223372036854775808' (byte 48 of it)"},
    {"{'a':{'dtype':'F32','shape':[2,3]}}",
     "tensor 'a': 'data_offsets' is missing or not two offsets"},
    {"{'a':{'dtype':'F32','shape':[2,3],'offsets':[0,24]}}",
     "tensor 'a': has the unknown field 'offsets'"},
    {"{'a':{'dtype':'F32','shape':[2,3],'data_offsets':[0]}}",
     "tensor 'a': 'data_offsets' is missing or not two offsets"},
    {"{'a':{'dtype':'F32','shape':[2,3],'data_offsets':[0,24,24]}}",
     "tensor 'a': 'data_offsets' is missing or not two offsets"},
    {"{'a':{'dtype':'F32','shape':[2,3],'data_offsets':[-24,0]}}",
     "tensor 'a': 'data_offsets' is missing or not two offsets"},
    {"{'a':{'dtype':'F32','shape':[2,3],'data_offsets':[24,0]}}",
     "tensor 'a': data_offsets [24, 0] end before they begin"},
    {"{'a':{'dtype':'F32','shape':[2,3],'data_offsets':[4,28]}}",
     "tensor 'a': data_offsets [4, 28] reach beyond the file, which has 24 bytes of data: it is "
     "truncated, or its header is wrong"},
    {"{'a':{'dtype':'F32','shape':[2,3],'data_offsets':[0,20]}}",
     "tensor 'a': F32 [2, 3] takes 24 bytes, but data_offsets [0, 20] give it 20"},
    {"{'a':{'dtype':'F16','shape':[2,3],'data_offsets':[0,24]}}",
     "tensor 'a': F16 [2, 3] takes 12 bytes, but data_offsets [0, 24] give it 24"},
    {"{'a':{'dtype':'F32','shape':[2,2],'data_offsets':[0,16]},'b':{'dtype':'U8','shape':[10],'"
     "data_offsets':[14,24]}}",
     "tensor 'b': its bytes overlap those of 'a'"},
    {"{'a':{'dtype':'F32','shape':[2,3],'data_offsets':[0,24]},'b':{'dtype':'F32','shape':[2,3],'"
     "data_offsets':[0,24]}}",
     "tensor 'b': its bytes overlap those of 'a'"},
    {"{'b':{'dtype':'U8','shape':[8],'data_offsets':[16,24]},'a':{'dtype':'U8','shape':[8],'data_"
     "offsets':[0,8]}}",
     "tensor 'b': bytes 8 to 16 of the data, before it, belong to no tensor"},
    {"{'a':{'dtype':'U8','shape':[20],'data_offsets':[4,24]}}",
     "tensor 'a': bytes 0 to 4 of the data, before it, belong to no tensor"},
    {"{'a':{'dtype':'U8','shape':[20],'data_offsets':[0,20]}}",
     "the last 4 bytes belong to no tensor"},
    {"{'a':{'dtype':'F32','shape':[2,3],'data_offsets':[0,24]},'e':{'dtype':'U8','shape':[0],'data_"
     "offsets':[5,5]}}",
     "tensor 'e': its bytes overlap those of 'a'"},
    {"{'a':{'dtype':'F32','shape':[2,3],'data_offsets':[0,24]},'__metadata__':[]}",
     "'__metadata__' is not an object"},
    {"{'a':{'dtype':'F32','shape':[2,3],'data_offsets':[0,24]},'__metadata__':{'steps':3}}",
     "'__metadata__': the value of 'steps' is not a string"},
};

START_TEST(bad_header)
{
    size_t n;
    char *file = make_file(bad_headers[_i].header, 24, &n);
    refused(file, n, bad_headers[_i].message);
    free(file);
}
END_TEST

START_TEST(most_axes)
{
    size_t n;
    f8_st_file f;
    char *file =
        make_file("{'a':{'dtype':'F32','shape':[1,1,1,1,1,1,2,3],'data_offsets':[0,24]}}", 24, &n);
    ck_assert_msg(open_path(&f, f8_cli_write("axes.safetensors", file, n)), "%s", diag.text);
    ck_assert(f.n == 1 && f.tensor[0].rank == F8_ST_MAX_RANK && f.tensor[0].dim[7] == 3);
    f8_st_close(&f);
    free(file);
}
END_TEST

START_TEST(bad_paths)
{
    f8_st_file f;
    ck_assert(!open_path(&f, "no/such.safetensors"));
    ck_assert_str_eq(diag.text, "No such file or directory");
    ck_assert(!open_path(&f, "tests"));
    ck_assert_str_eq(diag.text, "Is a directory");
    const char *pipe = f8_cli_temp("pipe");
    ck_assert(!mkfifo(pipe, 0600) && !open_path(&f, pipe));
    ck_assert_str_eq(diag.text, "not a regular file");
}
END_TEST

START_TEST(shorter_while_open)
{
    f8_st_file f;
    size_t n;
    char *file = make_file("{'a':" TENSOR "}", 24, &n), to[24];
    ck_assert(open_bytes(&f, file, n) && read_tensor(&f, &f.tensor[0], to));
    ck_assert(!ftruncate(f.in.fd, (off_t)n - 1));
    ck_assert(!read_tensor(&f, &f.tensor[0], to));
    ck_assert_str_eq(diag.text,
                     "the file became shorter while it was read");
    f8_st_close(&f);
    free(file);
}
END_TEST

/* Whatever a damaged file still says holds together. */
static void check_sound(f8_st_file *f)
{
    uint64_t end = 0;
    char *bytes = malloc(4096);
    for (size_t i = 0; i < f->n; i++) {
        const f8_st_tensor *t = &f->tensor[i];
        ck_assert(*t->name && t->dtype < F8_ST_N_DTYPES && t->rank <= F8_ST_MAX_RANK &&
                  t->begin == end);
        end += t->bytes;
        ck_assert(t->bytes <= 4096 && read_tensor(f, t, bytes));
    }
    free(bytes);
    f8_st_close(f);
}

/* Each byte of a small file set to each value, and the file cut at each place: no crash, a message
 * where it is refused; what is shorter or longer always is. */
START_TEST(damaged)
{
    size_t n;
    char *file = make_file("{'__metadata__':{'k':'v'},'w.x':" TENSOR ",'s':{'dtype':'F8_E4M3',"
                           "'shape':[4,1],'data_offsets':[24,28]}}",
                           28, &n);
    f8_st_file f;
    int taken = 0, changed = 0;
    const int step = f8_cli_sanitized() ? 5 : 1;
    char *one = malloc(n + 1);
    memcpy(one, file, n);
    one[n] = 0;
    for (size_t cut = 0; cut < n; cut++)
        ck_assert(!open_bytes(&f, file, cut) && diag.text[0]);
    ck_assert(!open_bytes(&f, one, n + 1) && diag.text[0]);
    for (size_t at = 0; at < n - 28; at++)
        for (int value = 0; value < 256; value += step) {
            one[at] = (char)value;
            if (open_bytes(&f, one, n)) {
                check_sound(&f);
                taken++;
                changed += file[at] != one[at];
            } else {
                ck_assert(diag.text[0]);
            }
            one[at] = file[at];
        }
    ck_assert_int_gt(changed, 0); /* another name */
    ck_assert_int_lt(taken, 256 * 20 / step);
    free(one);
    free(file);
}
END_TEST

/* ---- writing ---- */

typedef struct bytes_of {
    unsigned char *bytes[MOST];
    const f8_st_tensor *tensor; /* with `bytes` */
    int fail_at;             /* which call fails; -1: none */
} bytes_of;

static f8_status give(void *user, size_t i, void *to, f8_diag *d)
{
    bytes_of *b = user;
    if (b->fail_at-- == 0)
        return f8_fail(d, F8_ERR_IO, F8_NOWHERE, "not given");
    memcpy(to, b->bytes[i], b->tensor[i].bytes);
    return F8_OK;
}

static const f8_st_tensor two[] = {
    {.name = "w.q", .dtype = F8_ST_F8_E4M3, .rank = 2, .dim = {2, 2}, .bytes = 4},
    {.name = "w.scale", .dtype = F8_ST_F32, .rank = 0, .bytes = 4},
};
static unsigned char codes[] = {1, 2, 3, 4}, scale[] = {0, 0, 128, 63};
static const bytes_of two_bytes = {.bytes = {codes, scale}, .tensor = two, .fail_at = -1};
static const f8_st_pair format = {"format", "pt"};

/* The very bytes: the header's length is a multiple of 8, F32 stands before F8. */
static const char two_header[] =
    "{\"__metadata__\":{\"format\":\"pt\"},\"w.scale\":{\"dtype\":\"F32\",\"shape\":[],\"data_"
    "offsets\":[0,4]},"
    "\"w.q\":{\"dtype\":\"F8_E4M3\",\"shape\":[2,2],\"data_offsets\":[4,8]}}";

static void is_two(const char *path)
{
    size_t n;
    char *file = f8_cli_read(path, &n);
    const size_t length = (sizeof two_header - 1 + 7) / 8 * 8;
    ck_assert_uint_eq(n, 8 + length + 8);
    ck_assert(file[0] == (char)length && !memcmp(file + 1, "\0\0\0\0\0\0", 7));
    ck_assert(!memcmp(file + 8, two_header, sizeof two_header - 1));
    for (size_t i = 8 + sizeof two_header - 1; i < 8 + length; i++)
        ck_assert(file[i] == ' ');
    ck_assert(!memcmp(file + 8 + length, scale, 4) && !memcmp(file + 12 + length, codes, 4));
    free(file);
}

static bool write_tensors(const char *path, const f8_st_tensor *tensor, size_t n,
                          const f8_st_pair *metadata, size_t n_metadata, bytes_of *b)
{
    const f8_st_contents contents = {tensor, n, metadata, n_metadata, give, b, NULL};
    diag = (f8_diag){0};
    return f8_st_write(path, &contents, NULL, &diag) == F8_OK;
}

static bool write_two(const char *path)
{
    bytes_of b = two_bytes;
    return write_tensors(path, two, 2, &format, 1, &b);
}

START_TEST(writes_these_bytes)
{
    const char *path = f8_cli_temp("two.safetensors");
    ck_assert_msg(write_two(path), "%s", diag.text);
    is_two(path);
    ck_assert_int_eq(f8_cli_files(), 1);
}
END_TEST

/* Whatever fails, the file that was there still is, and nothing else. */
START_TEST(failed_writes)
{
    size_t n;
    const char *path = f8_cli_write("old", "old", 3);
    for (int i = 0; i < 2; i++) {
        bytes_of b = two_bytes;
        b.fail_at = i;
        ck_assert(!write_tensors(path, two, 2, NULL, 0, &b));
        ck_assert_str_eq(diag.text, "not given");
    }
    signal(SIGXFSZ, SIG_IGN);
    const struct rlimit limit = {20, 20};
    ck_assert(!setrlimit(RLIMIT_FSIZE, &limit));
    ck_assert(!write_two(path));
    ck_assert_str_eq(diag.text, "File too large");
    ck_assert_str_eq(diag.file, path);
    char *old = f8_cli_read(path, &n);
    ck_assert(n == 3 && !memcmp(old, "old", 3));
    free(old);
    ck_assert_int_eq(f8_cli_files(), 1);
}
END_TEST

START_TEST(what_is_no_file)
{
    static const struct {
        f8_st_tensor tensor[2];
        f8_st_pair metadata[2];
        const char *message;
    } bad[] = {
        {{{.name = "a"}, {.name = "a", .dtype = F8_ST_F32}},
         {{"k", "v"}, {"l", "v"}},
         "tensor 'a' is given twice"},
        {{{.name = ""}, {.name = "b"}},
         {{"k", "v"}, {"l", "v"}},
         "tensor '' is given twice, or has a name that can't"},
        {{{.name = "a"}, {.name = "__metadata__"}},
         {{"k", "v"}, {"l", "v"}},
         "tensor '__metadata__' is given twice, or has a name that can't"},
        {{{.name = "a"}, {.name = "\xff"}},
         {{"k", "v"}, {"l", "v"}},
         "or has a name that can't be written"},
        {{{.name = "a"}, {.name = "b", .rank = 1, .dim = {-1}}},
         {{"k", "v"}, {"l", "v"}},
         "tensor 'b' has a shape that can't be written"},
        {{{.name = "a"}, {.name = "b", .rank = 2, .dim = {INT64_MAX, 3}}},
         {{"k", "v"}, {"l", "v"}},
         "tensor 'b' has a shape that can't be written"},
        {{{.name = "a"}, {.name = "b"}}, {{"k", "v"}, {"k", "v"}}, "metadata 'k' is given twice"},
        {{{.name = "a"}, {.name = "b"}},
         {{"k", "v"}, {"l", "\xc0"}},
         "metadata 'l' is given twice, or is not UTF-8"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        bytes_of b = two_bytes;
        ck_assert(!write_tensors(f8_cli_temp("x"), bad[i].tensor, 2, bad[i].metadata, 2, &b));
        ck_assert_msg(strstr(diag.text, bad[i].message) != NULL, "'%s' does not say '%s'",
                      diag.text, bad[i].message);
        ck_assert_int_eq(f8_cli_files(), 0);
    }
}
END_TEST

/* ---- both ---- */

static uint32_t below(uint32_t *r, uint32_t n)
{
    return test_random(r) % n;
}

/* Random tensors of every dtype, scalars and empty ones, under names that JSON must escape. */
static size_t make_tensors(uint32_t *r, f8_st_tensor *t, char (*name)[NAME], bytes_of *b)
{
    static const char *const odd[] = {"\"", "\\", "\n", "ä", "/", ".weight", "\x7f", "𝄞"};
    const size_t n = below(r, MOST + 1);
    *b = (bytes_of){.tensor = t, .fail_at = -1};
    for (size_t i = 0; i < n; i++) {
        snprintf(name[i], NAME, "%s%zu%s", odd[below(r, 8)], i, odd[below(r, 8)]);
        t[i] = (f8_st_tensor){.name = name[i],
                           .dtype = (f8_st_dtype)below(r, F8_ST_N_DTYPES),
                           .rank = (int32_t)below(r, 5)};
        t[i].bytes = f8_st_dtype_bytes(t[i].dtype);
        for (int32_t k = 0; k < t[i].rank; k++) {
            t[i].dim[k] = (int64_t)below(r, 5);
            t[i].bytes *= (uint64_t)t[i].dim[k];
        }
        b->bytes[i] = malloc(t[i].bytes + 1);
        for (size_t k = 0; k < t[i].bytes; k++)
            b->bytes[i][k] = (unsigned char)below(r, 256);
    }
    return n;
}

static void same_tensors(const char *path, const f8_st_tensor *t, size_t n, const bytes_of *b)
{
    f8_st_file f;
    ck_assert_msg(open_path(&f, path), "%s", diag.text);
    ck_assert_uint_eq(f.n, n);
    ck_assert_str_eq(f8_st_metadata(&f, "text"), "\"\\\n");
    for (size_t i = 0; i < n; i++) {
        const f8_st_tensor *u = f8_st_find(&f, t[i].name);
        ck_assert_msg(u && u->dtype == t[i].dtype && u->rank == t[i].rank && u->bytes == t[i].bytes,
                      "%s", t[i].name);
        ck_assert(!memcmp(u->dim, t[i].dim, sizeof u->dim));
        ck_assert_uint_eq((f.data + u->begin) % f8_st_dtype_bytes(u->dtype), 0);
        unsigned char *bytes = malloc(u->bytes + 1);
        ck_assert_msg(read_tensor(&f, u, bytes), "%s", diag.text);
        ck_assert(!memcmp(bytes, b->bytes[i], u->bytes));
        free(bytes);
    }
    f8_st_close(&f);
}

START_TEST(round_trip)
{
    uint32_t seed = 1000 + (uint32_t)_i, r = seed;
    f8_st_tensor t[MOST];
    char name[MOST][NAME];
    bytes_of b;
    const f8_st_pair metadata[] = {{"text", "\"\\\n"}, {"", "ä"}};
    const size_t n = make_tensors(&r, t, name, &b);
    const char *path = f8_cli_temp("round");
    printf("seed %u: %zu tensors\n", seed, n);
    ck_assert_msg(write_tensors(path, t, n, metadata, 2, &b), "%s", diag.text);
    same_tensors(path, t, n, &b);
    for (size_t i = 0; i < n; i++)
        free(b.bytes[i]);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("safetensors");
    TCase *t = tcase_create("safetensors");
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_checked_fixture(t, f8_cli_setup, f8_cli_teardown);
    tcase_add_test(t, reads_a_file);
    tcase_add_test(t, reads_no_tensors);
    tcase_add_test(t, bad_sizes);
    tcase_add_loop_test(t, bad_header, 0, sizeof bad_headers / sizeof *bad_headers);
    tcase_add_test(t, most_axes);
    tcase_add_test(t, bad_paths);
    tcase_add_test(t, shorter_while_open);
    tcase_add_test(t, damaged);
    tcase_add_test(t, writes_these_bytes);
    tcase_add_test(t, failed_writes);
    tcase_add_test(t, what_is_no_file);
    tcase_add_loop_test(t, round_trip, 0, 25);
    suite_add_tcase(s, t);
    return s;
}
