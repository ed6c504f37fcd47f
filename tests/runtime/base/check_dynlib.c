/* Where libraries are opened from: the loader's own places, and absolute paths. Never the current
 * directory. Needs a C compiler. */
#include "runtime/base/dynlib.h"
#include "tests/shared/stub_library.h"
#include "tests/shared/suite.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char name[] = "libfp8c_nowhere.so.1";
static f8_arena arena;

/* The library lies in the current directory, and in a folder of it. */
static void setup(void)
{
    f8_stub_setup();
    f8_arena_init(&arena, NULL);
    f8_stub_compile("here", name, "int here(void) { return 7; }\n", "");
    f8_stub_compile("here/lib", name, "int here(void) { return 8; }\n", "");
    ck_assert_int_eq(chdir(f8_stub_path("here")), 0);
}

static void teardown(void)
{
    ck_assert_int_eq(chdir("/"), 0);
    f8_arena_end(&arena);
    f8_stub_teardown();
}

static f8_status open_one(const char *path, f8_diag *d)
{
    const char *const names[] = {path, NULL};
    f8_dynlib lib;
    const f8_status status = f8_dynlib_open("it", names, &lib, d);
    ck_assert_int_eq(status == F8_OK, f8_dynlib_find(&lib, "here") != NULL);
    f8_dynlib_close(&lib);
    return status;
}

START_TEST(names)
{
    static const char *const relative[] = {"./libfp8c_nowhere.so.1", "lib/libfp8c_nowhere.so.1",
                                           "../here/libfp8c_nowhere.so.1"};
    f8_diag d = {0};
    ck_assert_int_eq(open_one(name, &d), F8_ERR_LIBRARY); /* the loader's places alone */
    for (int i = 0; i < 3; i++) {
        d = (f8_diag){0};
        ck_assert_int_eq(open_one(relative[i], &d), F8_ERR_LIBRARY);
        ck_assert_msg(strstr(d.text, "is a relative path: an absolute one is needed") != NULL, "%s",
                      d.text);
    }
    ck_assert_int_eq(open_one("", &d), F8_ERR_LIBRARY); /* dlopen takes it for the program */
    ck_assert_int_eq(open_one(f8_stub_path("here/libfp8c_nowhere.so.1"), &d), F8_OK);
}
END_TEST

START_TEST(folders)
{
    static const char *const names[] = {name, NULL};
    const char *relative[] = {".", "lib", "l*", "..//here", "", NULL},
               *both[] = {"lib", f8_stub_path("here/l*"), NULL}, *why;
    f8_dynlib lib;
    f8_dynlib_file *file;
    size_t n;
    f8_diag d = {0};
    ck_assert_int_eq(f8_dynlib_search("it", names, relative, &arena, &lib, &why, &d),
                     F8_ERR_LIBRARY);
    ck_assert_msg(strstr(why, "looked in the loader's path; ") != NULL, "%s", why);
    for (int i = 0; i < 4; i++) {
        const char *passed =
            f8_arena_printf(&arena, "; %s is passed over: it is no absolute path", relative[i]);
        ck_assert_msg(strstr(why, passed) != NULL, "%s", why);
    }
    ck_assert_int_eq(f8_dynlib_files(names, relative, &arena, &file, &n, &d), F8_OK);
    ck_assert_uint_eq(n, 0);
    d = (f8_diag){0};
    ck_assert_int_eq(f8_dynlib_search("it", names, both, &arena, &lib, &why, &d), F8_OK);
    ck_assert_msg(!strncmp(lib.name, f8_stub_path("here/lib/"), strlen(f8_stub_path("here/lib/"))),
                  "%s", lib.name);
    ck_assert_msg(strstr(lib.refused, "; lib is passed over") != NULL, "%s", lib.refused);
    f8_dynlib_close(&lib);
    ck_assert_int_eq(f8_dynlib_files(names, both, &arena, &file, &n, &d), F8_OK);
    ck_assert_uint_eq(n, 1);
}
END_TEST

/* Of the program, which is somewhere else than the current directory. */
START_TEST(own_folder)
{
    char self[PATH_MAX];
    const char *own = f8_dynlib_own_folder(&arena);
    ck_assert_ptr_nonnull(own);
    ck_assert_ptr_nonnull(realpath("/proc/self/exe", self));
    *strrchr(self, '/') = 0;
    ck_assert_str_eq(own, self);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("dynlib");
    TCase *t = tcase_create("dynlib");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, names);
    tcase_add_test(t, folders);
    tcase_add_test(t, own_folder);
    suite_add_tcase(s, t);
    return s;
}
