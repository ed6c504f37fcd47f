/* A .f8x file has at most 4 GiB. fp8c writes and reads a file of exactly that size, and refuses one
 * byte more. Nearly all of its bytes are zeros that take no memory and no disk. */
#include <sys/mman.h>
#include <unistd.h>

#include "frontend/f8x/parts.h"
#include "frontend/program.h"
#include "tests/shared/api/package_case.h"
#include "tests/shared/suite.h"

static const uint64_t most = (uint64_t)1 << 32;

static f8_arena arena;
static uint8_t *bytes; /* of a small file */
static size_t n_bytes;

static void make_file(void)
{
    setup();
    f8_arena_init(&arena, NULL);
    fp8c_module *m = parse(ctx, model);
    const fp8c_compile_options o = recipe("bf16");
    const char *path = f8_cli_temp("tiny.f8x");
    ck_assert_msg(fp8c_compile_file(m, &o, 1, path) == FP8C_OK, "%s", fp8c_context_message(ctx));
    fp8c_module_destroy(m);
    bytes = (uint8_t *)f8_cli_read(path, &n_bytes);
}

static void end_file(void)
{
    free(bytes);
    f8_arena_end(&arena);
    teardown();
}

/* ---- writing ---- */

static f8_status count(void *user, const void *some, size_t n)
{
    (void)some;
    *(uint64_t *)user += n;
    return F8_OK;
}

/* Writes the small file again, with n zeros as its code. *size: the bytes that were written. */
static f8_status write_with(uint8_t *zeros, uint64_t n, uint64_t *size, f8_diag *diag)
{
    f8_package p;
    f8_plan plan;
    f8_compile_report report;
    const size_t page = 4096;
    *size = 0;
    uint8_t *aligned = aligned_alloc(page, (n_bytes + page - 1) / page * page);
    memcpy(aligned, bytes, n_bytes);
    ck_assert_int_eq(f8_package_open(aligned, n_bytes, fp8c_version(), &arena, &p, diag), F8_OK);
    ck_assert_int_eq(f8_package_load(&p, &p.program[0], 0, &arena, &plan, &report, diag), F8_OK);
    plan.blob = zeros;
    plan.blob_bytes = (int64_t)n;
    p.program[0].variant[0].plan = &plan;
    p.program[0].variant[0].report = &report;
    p.version = fp8c_version();
    const f8_status status = f8_package_write(&p, NULL, count, size, diag);
    free(aligned);
    return status;
}

/* The code is the file's last section, so that each byte of it is one of the file. */
START_TEST(of_4_gib_is_written)
{
    if (f8_cli_sanitized())
        return; /* three hashes of 4 GiB take it too long */
    uint64_t size, small;
    f8_diag diag = {0};
    uint8_t *zeros =
        mmap(NULL, most, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    ck_assert_ptr_ne(zeros, MAP_FAILED);
    madvise(zeros, most, MADV_HUGEPAGE);
    ck_assert_int_eq(write_with(zeros, 4096, &small, &diag), F8_OK);
    ck_assert_msg(write_with(zeros, most - small + 4096, &size, &diag) == F8_OK, "%s", diag.text);
    ck_assert_uint_eq(size, most);
    ck_assert_int_eq(write_with(zeros, most - small + 4097, &size, &diag), F8_ERR_UNSUPPORTED);
    ck_assert_uint_eq(size, 0);
    ck_assert_str_eq(diag.text,
                     "the file would have 4294967297 bytes, which is more than fp8c reads");
    munmap(zeros, most);
}
END_TEST

/* ---- reading ---- */

/* The small file's header for a file of `size` bytes, and holes behind it. */
static const char *sparse(uint64_t size)
{
    f8_package_header h;
    f8_wire w;
    f8_wire_begin_read(&w, bytes, F8_PACKAGE_HEADER, NULL, "the header");
    f8_package_wire_header(&w, &h);
    h.size = size;
    for (int round = 0; round < 2; round++) { /* the second has the hash of the first */
        f8_wire_begin_write(&w, &arena);
        f8_package_wire_header(&w, &h);
        h.header = f8_hash_bytes(w.bytes, F8_PACKAGE_HEADER - sizeof h.header);
    }
    const char *path = f8_cli_write("large.f8x", w.bytes, w.size);
    ck_assert_int_eq(truncate(path, (off_t)size), 0);
    return path;
}

static void *less_than_4_gib(void *user, size_t size, size_t align)
{
    (void)user;
    return size < most ? aligned_alloc(align, (size + align - 1) / align * align) : NULL;
}

static void release(void *user, void *p, size_t size)
{
    (void)user, (void)size;
    free(p);
}

/* A file of 4 GiB is refused for want of memory alone, which is asked for after the limit. */
START_TEST(of_4_gib_is_read)
{
    const fp8c_context_options o = {
        .struct_size = sizeof o, .alloc = less_than_4_gib, .free = release};
    fp8c_context *small;
    fp8c_program *p;
    ck_assert_int_eq(fp8c_context_create(&o, &small), FP8C_OK);
    ck_assert_int_eq(fp8c_program_open(small, sparse(most), NULL, &p), FP8C_ERR_MEMORY);
    ck_assert_msg(strstr(fp8c_context_message(small), "4294967296 bytes were wanted") != NULL, "%s",
                  fp8c_context_message(small));
    ck_assert_int_eq(fp8c_program_open(small, sparse(most + 1), NULL, &p), FP8C_ERR_IO);
    ck_assert_msg(strstr(fp8c_context_message(small),
                         "large.f8x: error: it has 4294967297 bytes; at most 4294967296 are read"),
                  "%s", fp8c_context_message(small));
    fp8c_context_destroy(small);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("package_large");
    TCase *t = tcase_create("package_large");
    tcase_set_timeout(t, 120);
    tcase_add_checked_fixture(t, make_file, end_file);
    tcase_add_test(t, of_4_gib_is_written);
    tcase_add_test(t, of_4_gib_is_read);
    suite_add_tcase(s, t);
    return s;
}
