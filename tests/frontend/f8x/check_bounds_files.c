/* .f8x files of modules with dims that are bounds: which values a file accepts, and their results.
 */
#include <unistd.h>

#include "tests/shared/api/bounds.h"
#include "tests/shared/api/cli.h"
#include "tests/shared/suite.h"

/* ---- files ---- */

static fp8c_status write_file(fp8c_context *ctx, const char *text, const char *values,
                              const char *path)
{
    fp8c_module *m;
    ck_assert_msg(fp8c_module_parse(ctx, text, strlen(text), "t.f8", NULL, 0, &m) == FP8C_OK, "%s",
                  fp8c_context_message(ctx));
    fp8c_compile_options o = recipe("bf16");
    o.values = values;
    const fp8c_status status = fp8c_compile_file(m, &o, 1, path);
    fp8c_module_destroy(m);
    return status;
}

static void values_are(const fp8c_program *p, int index, int64_t b, int64_t s)
{
    int64_t value[2];
    ck_assert_int_eq(fp8c_program_values(p, index, value), FP8C_OK);
    ck_assert(value[0] == b && value[1] == s);
}

/* A file serves the values that it was made for, from one state, with the bits of programs compiled
 * here; and tells by shapes which. */
START_TEST(files)
{
    fp8c_context *ctx = new_context();
    char *again;
    size_t n, m;
    const char *path = f8_cli_temp("bounds.f8x"), *other = f8_cli_temp("again.f8x");
    ck_assert_msg(write_file(ctx, shapes, "B=2,8,3 S=4,2", path) == FP8C_OK, "%s",
                  fp8c_context_message(ctx));
    ck_assert_int_eq(write_file(ctx, shapes, " S=2,4,4  B=8,3,2", other), FP8C_OK);
    char *bytes = f8_cli_read(path, &n);
    again = f8_cli_read(other, &m);
    ck_assert(n == m && !memcmp(bytes, again, n));
    free(bytes);
    free(again);
    const fp8c_compile_options o = recipe("bf16");
    fp8c_program *p, *q = compile_text(ctx, shapes, NULL, 0, NULL, &o);
    ck_assert_msg(fp8c_program_open(ctx, path, NULL, &p) == FP8C_OK, "%s",
                  fp8c_context_message(ctx));
    fp8c_program_dim dim;
    ck_assert_int_eq(fp8c_program_dims(p, 0, &dim), FP8C_OK);
    ck_assert(!strcmp(dim.name, "B") && dim.bound == 8);
    dims_are(p, 8, 4);
    ck_assert_int_eq(fp8c_program_initialize(p, 3), FP8C_OK);
    ck_assert_int_eq(fp8c_program_initialize(q, 3), FP8C_OK);
    for (int64_t b = 2; b <= 8; b += b == 3 ? 5 : 1) {
        float loss, expected;
        ck_assert_msg(call(p, b, 2 * b + 1, 4 * b, &loss) == FP8C_OK, "%s",
                      fp8c_context_message(ctx));
        ck_assert_int_eq(call(q, b, 2 * b + 1, 4 * b, &expected), FP8C_OK);
        ck_assert(!memcmp(&loss, &expected, sizeof loss));
        dims_are(p, b, 4);
    }
    values_are(q, 0, 8, 4); /* of one that was compiled here: those asked for */
    values_are(q, 1, 2, 4);
    values_are(q, 2, 3, 4);
    ck_assert_int_eq(fp8c_program_values(q, 3, (int64_t[2]){0}), FP8C_ERR_INPUT);
    ck_assert_int_eq(fp8c_program_set_dim(p, "B", 4), FP8C_ERR_UNSUPPORTED);
    said(ctx,
         "the file has no plan for B = 4, S = 4: it has plans for B = 8, S = 4; B = 8, S = 2; B "
         "= 3, S = 4; "
         "B = 3, S = 2; B = 2, S = 4; B = 2, S = 2");
    dims_are(p, 8, 4);
    ck_assert_int_eq(fp8c_program_set_dim(p, "S", 2), FP8C_OK);
    fp8c_program_destroy(p);
    fp8c_program_destroy(q);
    /* the bound itself need not be there */
    ck_assert_int_eq(write_file(ctx, shapes, "S=1 B=3,5", path), FP8C_OK);
    ck_assert_int_eq(fp8c_program_open(ctx, path, NULL, &p), FP8C_OK);
    dims_are(p, 5, 1);
    values_are(p, 0, 5, 1);
    values_are(p, 1, 3, 1);
    ck_assert_int_eq(fp8c_program_values(p, 2, (int64_t[2]){0}), FP8C_ERR_INPUT);
    ck_assert_int_eq(fp8c_program_values(p, -1, (int64_t[2]){0}), FP8C_ERR_INPUT);
    fp8c_program_destroy(p);
    fp8c_context_destroy(ctx);
}
END_TEST

/* What is done to the file once it is open does not reach the program: it is cut, and all of its
 * bytes become others. */
START_TEST(changed_in_place)
{
    fp8c_context *ctx = new_context();
    const char *path = f8_cli_temp("bounds.f8x");
    float loss[2][3];
    size_t n;
    ck_assert_int_eq(write_file(ctx, shapes, "B=8,3 S=4", path), FP8C_OK);
    for (int change = 0; change < 3; change++) {
        fp8c_program *p;
        ck_assert_msg(fp8c_program_open(ctx, path, NULL, &p) == FP8C_OK, "%s",
                      fp8c_context_message(ctx));
        char *bytes = f8_cli_read(path, &n);
        for (size_t i = 0; i < n; i++)
            bytes[i] = (char)~bytes[i];
        if (change == 1) {
            FILE *f = fopen(path, "r+b"); /* the same inode, of the same size */
            ck_assert(f && fwrite(bytes, 1, n, f) == n && !fclose(f));
        } else if (change == 2) {
            ck_assert(!truncate(path, 0));
        }
        free(bytes);
        ck_assert_int_eq(fp8c_program_initialize(p, 3), FP8C_OK);
        for (int64_t b = 3; b <= 8; b += 5)
            ck_assert_msg(call(p, b, 2 * b + 1, 4 * b, &loss[b == 8][change]) == FP8C_OK, "%s",
                          fp8c_context_message(ctx));
        fp8c_program_destroy(p);
        if (change == 1)
            ck_assert_int_eq(write_file(ctx, shapes, "B=8,3 S=4", path), FP8C_OK);
    }
    for (int i = 0; i < 2; i++)
        for (int change = 1; change < 3; change++)
            ck_assert(!memcmp(&loss[i][0], &loss[i][change], sizeof(float)));
    ck_assert_int_eq(fp8c_program_open(ctx, path, NULL, &(fp8c_program *){NULL}), FP8C_ERR_INPUT);
    said(ctx, "this is not a .f8x file");
    fp8c_context_destroy(ctx);
}
END_TEST

static const struct {
    const char *values, *said;
} bad_values[] = {
    {"B=9", "values 'B=9': 'B' must be from 1 to 8"},
    {"B=0", "values 'B=0': 'B' must be from 1 to 8"},
    {"C=1", "values 'C=1': no dim 'C' is a bound"},
    {"B=1,", "values 'B=1,': a number must follow '=' and ','"},
    {"B=1;S=2", "a number must follow '=' and ','"},
    {"B", "write NAME=N,N,..., and spaces between dims"},
    {"=3", "no dim '' is a bound"},
};

START_TEST(values)
{
    fp8c_context *ctx = new_context();
    const char *path = f8_cli_temp("bounds.f8x");
    for (size_t i = 0; i < sizeof bad_values / sizeof *bad_values; i++) {
        ck_assert_int_eq(write_file(ctx, shapes, bad_values[i].values, path), FP8C_ERR_INPUT);
        said(ctx, bad_values[i].said);
    }
    char many[sizeof shapes + 8];
    snprintf(many, sizeof many, "module shapes\ndim B <= 65, S <= 2%s",
             strchr(strstr(shapes, "S <= 4"), '\n'));
    ck_assert_int_eq(write_file(ctx, many, "S=1", path), FP8C_ERR_INPUT);
    said(ctx, "a file holds at most 64 sets of values, and 'B' alone has 65: name those that it "
              "shall have (--values B=1,2,4)");
    ck_assert_int_eq(write_file(ctx, model, "B=1", path), FP8C_ERR_INPUT);
    said(ctx, "values 'B=1': the module has no dims that are bounds");
    fp8c_context_destroy(ctx);
}
END_TEST

/* ---- the command line ---- */

/* A .npy of f32 ones. */
static const char *write_ones(const char *name, const char *shape, size_t n)
{
    char file[1024] = "\x93NUMPY\1", header[118];
    const float one = 1;
    memset(header, ' ', sizeof header);
    header[snprintf(header, sizeof header,
                    "{'descr': '<f4', 'fortran_order': False, 'shape': %s, }", shape)] = ' ';
    header[sizeof header - 1] = '\n';
    file[8] = sizeof header;
    memcpy(file + 10, header, sizeof header);
    for (size_t i = 0; i < n; i++)
        memcpy(file + 10 + sizeof header + i * sizeof one, &one, sizeof one);
    return f8_cli_write(name, file, 10 + sizeof header + n * sizeof one);
}

START_TEST(command)
{
    char text[512], file[512], x[512], y[512], z[512];
    snprintf(text, sizeof text, "%s", f8_cli_write("shapes.f8", shapes, strlen(shapes)));
    snprintf(file, sizeof file, "%s", f8_cli_temp("shapes.f8x"));
    f8_cli_ok(F8_CLI("compile", text, "-o", file, "--values", "B=2,3"));
    f8_cli_result r = F8_CLI("inspect", file);
    f8_cli_ok(r);
    ck_assert_msg(
        strstr(r.out, "dims B <= 8, S <= 4: 8 plans, for\n  B = 3, S = 4; B = 3, S = 3; ") != NULL,
        "%s", r.out);
    ck_assert_msg(strstr(r.out, "B = 2, S = 2;\n  B = 2, S = 1\n\n") != NULL, "%s", r.out);
    r = F8_CLI("inspect", file, "--json", "-");
    f8_cli_ok(r);
    ck_assert_msg(
        strstr(r.out, "\"variants\":8,\"values\":[{\"B\":3,\"S\":4},{\"B\":3,\"S\":3},") != NULL,
        "%s", r.out);
    f8_cli_fails(F8_CLI("compile", text, "-o", file, "--values", "B=2:3"), 1,
                 "a number must follow");
    snprintf(x, sizeof x, "x=%s", write_ones("x.npy", "(3, 4)", 12));
    snprintf(y, sizeof y, "y=%s", write_ones("y.npy", "(7,)", 7));
    snprintf(z, sizeof z, "z=%s", write_ones("z.npy", "(6,)", 6));
    r = F8_CLI("run", file, "-D", "S=2", "--input", x, "--input", y, "--input", z);
    f8_cli_ok(r);
    ck_assert_msg(strstr(r.out, "f32[3, 4]") != NULL, "%s", r.out); /* the files tell B */
    char *out = strdup(r.out);
    r = F8_CLI("run", text, "-D", "S=2", "--input", x, "--input", y, "--input", z);
    f8_cli_ok(r);
    ck_assert_str_eq(r.out, out);
    free(out);
    snprintf(y, sizeof y, "y=%s", write_ones("y.npy", "(9,)", 9));
    f8_cli_fails(F8_CLI("run", text, "--input", x, "--input", y, "--input", z), 1,
                 "axis 0 of input 'x' makes 'B' 3, but axis 0 of 'y' makes it 4");
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("bounds files");
    TCase *t = tcase_create("bounds files");
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_unchecked_fixture(t, f8_cli_setup, f8_cli_teardown);
    tcase_add_test(t, files);
    tcase_add_test(t, changed_in_place);
    tcase_add_test(t, values);
    tcase_add_test(t, command);
    suite_add_tcase(s, t);
    return s;
}
