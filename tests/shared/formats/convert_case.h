/* For tests of conversions: paths in the test's folder, and folders made, read and converted. */
#ifndef F8_TESTS_CONVERT_CASE_H
#define F8_TESTS_CONVERT_CASE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/shared/api/cli.h"
#include "tests/shared/formats/made_folder.h"
#include "tests/shared/suite.h"

enum { PATH = 400 };

static const char *const format_names[] = {"hf-fp8", "compressed-tensors", "modelopt", "native"};

/* ---- folders ---- */

/* f8_cli_temp's buffers rotate: these stay. */
typedef struct paths {
    char from[PATH], wide[PATH], own[PATH], out[PATH], back[PATH], file[PATH], under[PATH],
        nowhere[PATH];
} paths;

static paths p;

static inline void setup(void)
{
    f8_cli_setup();
    snprintf(p.from, PATH, "%s", f8_cli_temp("from"));
    snprintf(p.wide, PATH, "%s", f8_cli_temp("wide"));
    snprintf(p.own, PATH, "%s", f8_cli_temp("own.safetensors"));
    snprintf(p.out, PATH, "%s", f8_cli_temp("out"));
    snprintf(p.back, PATH, "%s", f8_cli_temp("back"));
    snprintf(p.file, PATH, "%s", f8_cli_temp("file"));
    snprintf(p.under, PATH, "%s", f8_cli_temp("file/out"));
    snprintf(p.nowhere, PATH, "%s", f8_cli_temp("nowhere/out"));
}

static inline void write_made(made_spec spec, const char *path)
{
    made_folder *f = made_new(spec);
    made_write(f, path);
    made_free(f);
}

static inline void write_wide(made_spec spec, const char *path)
{
    made_folder *f = made_new(spec);
    made_widen(f);
    made_write(f, path);
    made_free(f);
}

static inline made_folder *read_back(const char *path, made_format format)
{
    char file[PATH + 30];
    snprintf(file, sizeof file, "%s%s", path, format == MADE_FILE ? "" : "/model.safetensors");
    return made_read(file);
}

static inline json_t *read_json(const char *dir, const char *name)
{
    char path[PATH + 60];
    json_error_t error;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    json_t *j = json_load_file(path, 0, &error);
    ck_assert_msg(j, "%s: %s", path, error.text);
    return j;
}

static inline bool is_there(const char *path)
{
    struct stat s;
    return !lstat(path, &s);
}

static inline f8_cli_result run_convert(const char *from, const char *to, const char *model,
                                        const char *out)
{
    return model ? F8_CLI("weights", from, "--as", to, "--model", model, "-o", out, "--json", "-")
                 : F8_CLI("weights", from, "--as", to, "-o", out, "--json", "-");
}

static inline void runs(f8_cli_result r)
{
    ck_assert_msg(!r.code && !*r.err, "exit %d: %s%s", r.code, r.err, r.out);
}

static inline void is_sound(const char *path)
{
    const f8_cli_result r = F8_CLI("weights", path);
    ck_assert_msg(!r.code && !*r.err, "%s: exit %d\n%.1500s%s", path, r.code, r.out, r.err);
}

/* How many entries of the test's folder are not those that it made itself. */
static inline void nothing_left(int files)
{
    ck_assert_int_eq(f8_cli_files(), files);
    f8_cli_whole(f8_cli_temp("."));
}

#endif
