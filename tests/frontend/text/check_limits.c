/* The limits in the table of ir/README.md that a text or a command line can reach. fp8c takes N,
 * and refuses N + 1 with its place. tests/whole/check_many.c tests the limits that no short text
 * reaches. check_depth.c and check_kernel.c test what has no limit. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "frontend/text/diag.h"
#include "frontend/text/lex.h"
#include "frontend/text/parse.h"
#include "tests/shared/api/cli.h"
#include "tests/shared/suite.h"

/* ---- texts ---- */

/* before, n times `repeated` joined by `joint`, after. %d in `repeated` is the number, from 0 on.
 */
typedef struct text_limit {
    const char *what, *before, *repeated, *joint, *after, *message;
    int most;
} text_limit;

static const text_limit texts[] = {
    {"axes of a type", "module t\nparam w: f32[", "1", ", ", "] zeros\n",
     "2:36: a type has at most 8 axes", 8},
    {"integers of a list", "module t\nfunc f(%x: f32[1]) -> f32[1] { %y = reshape(%x) {shape = [",
     "1", ", ", "]}\n  return reshape(%y) {shape = [1]} }\n", "2:81: a list has at most 8 integers",
     8},
    {"bounds", "module t\n", "dim B%d <= 4", "\n", "\n", "10:5: a module has at most 8 bounds", 8},
    {"carried values", "module t\nfunc f(%x: f32[1]) -> f32[1] {\n  repeat i < 1 carry ",
     "%%v%d = %%x", ", ", NULL, "3:364: a repeat carries at most 32 values", 32},
    {"nested repeats", "module t\n", "repeat v%d < 1 {", "\n", NULL,
     "34:1: repeats are nested deeper than 32 levels", 32},
    {"operands", "module t\nfunc f(%x: f32[1]) -> f32[1] {\n  %y = concat(", "%%x", ",",
     ")\n  return %x\n}\n", "3:3087: a call has at most 1024 operands", 1024},
    {"levels of parentheses", "module t\ndim A = ", "(", "", NULL,
     "2:209: nested deeper than 200 levels", 199}, /* and the expression itself */
    {"bytes of a name", "module t\ndim ", "a", "", " = 1\n",
     "2:5: this name is longer than 511 bytes", 511},
    {"bytes of a string",
     "module t\nparam w: f32[4, 4] zeros\nfunc forward(%x: f32[4, 4]) -> f32[4, 4] { return "
     "linear(%x, w) {name = \"",
     "a", "", "\"} }\n", "3:73: this string is longer than 1023 bytes", 1023},
    {"characters of a number", "module t\nfunc f(%x: f32[4]) -> f32[4] {\n  return mul(%x, 0.", "1",
     "", ")\n}\n", "3:18: this number has 128 characters; the limit is 127", 125},
    {"declarations", "module t\n", "dim a%d = 1", "\n", "\n",
     "65538:5: the module has more than 65536 declarations", 65536},
};
enum { N_TEXTS = sizeof texts / sizeof *texts };

/* What closes n of what `before` and `repeated` open. */
static char *closed(char *at, const text_limit *l, int n)
{
    if (l->after)
        return stpcpy(at, l->after);
    if (strchr(l->repeated, '(')) {
        *at++ = '1';
        for (int i = 0; i < n; i++)
            *at++ = ')';
        return stpcpy(at, "\n");
    }
    if (strchr(l->repeated, '{')) {
        for (int i = 0; i < n; i++)
            *at++ = '}';
        return stpcpy(at, "\n");
    }
    at = stpcpy(at, " {\n");
    for (int i = 0; i < n; i++)
        at += sprintf(at, "    %%v%d = neg(%%v%d)\n", i, i);
    return stpcpy(at, "  }\n  return %v0\n}\n");
}

static char *text_of(const text_limit *l, int n)
{
    char *text = malloc(4096 + (size_t)n * 64), *at = stpcpy(text, l->before);
    for (int i = 0; i < n; i++) {
        at = stpcpy(at, i ? l->joint : "");
        at += snprintf(at, 64, l->repeated, i);
    }
    *closed(at, l, n) = 0;
    return text;
}

static void parse(const char *text, f8_status want, const char *what, const char *message)
{
    f8_arena arena;
    f8_diag d = {0};
    f8_module *m;
    f8_arena_init(&arena, NULL);
    const f8_status status = f8_parse(text, strlen(text), "t.f8", NULL, 0, &arena, &d, &m);
    char said[1200];
    snprintf(said, sizeof said, "%u:%u: %s", d.loc.line, d.loc.column, d.text);
    ck_assert_msg(status == want, "%s: status %d, %s", what, (int)status, said);
    if (want != F8_OK)
        ck_assert_msg(!strcmp(said, message), "%s\n  says   %s\n  wanted %s", what, said, message);
    f8_arena_end(&arena);
}

START_TEST(of_texts)
{
    const text_limit *l = &texts[_i];
    char *most = text_of(l, l->most), *more = text_of(l, l->most + 1);
    parse(most, F8_OK, l->what, "");
    parse(more, F8_ERR_INPUT, l->what, l->message);
    free(most);
    free(more);
}
END_TEST

/* ---- numbers in texts ---- */

static const struct {
    const char *what, *text, *message; /* %lld: the number */
    long long most;
} numbers[] = {
    {"bytes of a value", "module t\nparam w: i32[%lld] zeros\n",
     "2:10: the size of i32[35184372088833] overflows", 1LL << 45},
    {"bytes of a result",
     "module t\nfunc f(%%x: f8e8m0[]) -> f32[1] {\n"
     "  %%y = broadcast(%%x) {shape = [%lld]}\n"
     "  return reshape(cast(slice(%%y) {axis = 0, start = 0, stop = 1}) {to = f32}) {shape = [1]}\n"
     "}\n",
     "3:8: broadcast: f8e8m0[] (from %x, line 2:8): the result has more than 2^47 bytes",
     1LL << 47},
    {"ranks of a collective",
     "module t\nfunc f(%%x: f32[1024, 1025]) -> f32[1024, 1025] {\n"
     "  return all_reduce(%%x) {ranks = %lld}\n}\n",
     "3:10: all_reduce: f32[1024, 1025] (from %x, line 2:8): ranks must be 1 to 1024, not 1025",
     1024},
    {"steps of a history",
     "module t\nparam w: f32[4, 4] normal(0.02)\n"
     "func forward(%%x: f32[2, 4]) -> f32[2, 4] {\n  return linear(%%x, w)\n}\n"
     "recipe \"w\" = delayed {history = %lld}\n",
     "6:33: history = 1025: a number from 1 to 1024 is expected", 1024},
};
enum { N_NUMBERS = sizeof numbers / sizeof *numbers };

START_TEST(of_numbers)
{
    char text[512];
    snprintf(text, sizeof text, numbers[_i].text, numbers[_i].most);
    parse(text, F8_OK, numbers[_i].what, "");
    snprintf(text, sizeof text, numbers[_i].text, numbers[_i].most + 1);
    parse(text, F8_ERR_INPUT, numbers[_i].what, numbers[_i].message);
}
END_TEST

/* ---- repeats ---- */

static f8_status parse_within(f8_parse_limits limits, f8_diag *d)
{
    static const char text[] = "module t\nfunc f(%x: f32[4]) -> f32[4] {\n"
                               "  repeat i < 100 carry %y = %x { %y = neg(%y) }\n  return %y\n}\n";
    f8_arena arena;
    f8_module *m;
    f8_arena_init(&arena, NULL);
    *d = (f8_diag){0};
    const f8_status status =
        f8_parse_limited(text, strlen(text), "t.f8", NULL, 0, &limits, &arena, d, &m);
    f8_arena_end(&arena);
    return status;
}

/* A text at these limits takes seconds to read, so that the test sets its own. */
START_TEST(of_repeats)
{
    f8_diag d;
    f8_parse_limits limits = f8_default_parse_limits;
    ck_assert_uint_eq(limits.nodes, 1000000);
    ck_assert_uint_eq(limits.unrolled, 1 << 28);
    limits.nodes = 101; /* and the input */
    ck_assert_msg(parse_within(limits, &d) == F8_OK, "%s", d.text);
    limits.nodes = 100;
    ck_assert_int_eq(parse_within(limits, &d), F8_ERR_INPUT);
    ck_assert_str_eq(d.text, "the module has more than 100 nodes");
    ck_assert_uint_eq(d.loc.line, 3);
    limits = f8_default_parse_limits;
    for (limits.unrolled = 99 * 10; parse_within(limits, &d) != F8_OK; limits.unrolled++)
        ck_assert_msg(strstr(d.text, "unroll to more than ") && d.loc.line == 3, "%s", d.text);
    ck_assert_uint_eq(limits.unrolled % 99, 0); /* the repeat reads its body 99 times again */
}
END_TEST

/* ---- the bytes of a text ---- */

/* A text of 1 GiB is 512 times the same 2 MiB of memory. */
START_TEST(of_bytes)
{
    if (f8_cli_sanitized())
        return; /* it takes a minute */
    const size_t most = ((size_t)1 << 30) - 1, part = (size_t)2 << 20;
    const int file = memfd_create("text", MFD_CLOEXEC);
    ck_assert_int_eq(ftruncate(file, (off_t)part), 0);
    char *text =
        mmap(NULL, most + 1, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    ck_assert_ptr_ne(text, MAP_FAILED);
    for (size_t at = 0; at <= most; at += part)
        ck_assert_ptr_eq(
            mmap(text + at, part, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0),
            text + at);
    memset(text, 'x', part);
    f8_diag d = {0};
    ck_assert_msg(f8_lex_check_text(text, most, &d) == F8_OK, "%s", d.text);
    ck_assert_int_eq(f8_lex_check_text(text, most + 1, &d), F8_ERR_INPUT);
    ck_assert_str_eq(d.text, "the text has 1073741824 bytes; the limit is 1 GiB");
    munmap(text, most + 1);
    close(file);
}
END_TEST

/* ---- command lines ---- */

/* There is no such module: a line that is read in full fails with that. */
static void reads(const char *const *args)
{
    f8_cli_fails(f8_cli_run(args), 1, "no.f8: error: ");
}

static const struct {
    const char *command, *option, *value; /* %d: a number from 1 on */
    int most;
} repeated[] = {
    {"eval", "-D", "X%d=1", 32},
    {"eval", "--compare", "f%d", 16},
    {"tune", "--merge", "f%d", 16},
    {"eval", "--rule", "\"h.%d\" = bf16", 64},
    {"eval", "--data", "f%d", 64},
    {"eval", "--batch", "x%d=f.npy", 64},
    {"eval", "--validation", "f%d", 64},
    {"eval", "--weights", "f%d", 64},
    {"eval", "--ignore", "x%d", 64},
    {"eval", "--map", "x%d=y", 64},
    {"eval", "--allow-missing", "x%d", 64},
    {"run", "--function", "x%d", 64},
    {"run", "--input", "x%d=f.npy", 64},
    {"run", "--output", "x%d=f.npy", 64},
};
enum { N_REPEATED = sizeof repeated / sizeof *repeated };

/* One more is a wrong usage that names the option. */
START_TEST(of_repeated_options)
{
    static char value[80][32], error[128];
    const char *args[200] = {repeated[_i].command, "no.f8"};
    int n = 2;
    for (int i = 1; i <= repeated[_i].most + 1; i++) {
        snprintf(value[i], sizeof value[i], repeated[_i].value, i);
        args[n++] = repeated[_i].option;
        args[n++] = value[i];
    }
    snprintf(error, sizeof error, "fp8c %s: one too many for %s: '%s'", repeated[_i].command,
             repeated[_i].option, value[repeated[_i].most + 1]);
    f8_cli_fails(f8_cli_run(args), 2, error);
    args[n - 2] = NULL;
    const f8_cli_result r = f8_cli_run(args);
    ck_assert_msg(!strstr(r.err, "one too many"), "%s", r.err);
}
END_TEST

static const struct {
    const char *args[8], *most, *more, *message;
} values[] = {
    {{"compile", "no.f8", "--target", "sm_90a", "--threads"},
     "256",
     "257",
     "bad value for --threads: '257'"},
    {{"plan", "no.f8", "--ranks"}, "1024", "1025", "bad value for --ranks: '1025'"},
    {{"train", "no.f8", "--data", "x", "--seeds"}, "1000", "1001", "--seeds 1001: at most 1000"},
};
enum { N_VALUES = sizeof values / sizeof *values };

START_TEST(of_values)
{
    const char *args[10] = {0};
    int n = 0;
    for (; values[_i].args[n]; n++)
        args[n] = values[_i].args[n];
    args[n] = values[_i].more;
    f8_cli_fails(f8_cli_run(args), 2, values[_i].message);
    args[n] = values[_i].most;
    reads(args);
}
END_TEST

static const struct {
    const char *command, *file, *option, *value; /* %d: a number from 10 on */
    int most;
    const char *message;
} lists[] = {
    {"plan", NULL, "--budgets", "0.%d", 64, "fp8c plan: one too many for --budgets: '"},
    {"compile", "x.f8x", "--target", "t%d", 16, "fp8c compile: --target takes at most 16 targets"},
};
enum { N_LISTS = sizeof lists / sizeof *lists };

START_TEST(of_lists)
{
    char list[1024];
    for (int more = 1; more >= 0; more--) {
        char *at = list;
        for (int i = 0; i < lists[_i].most + more; i++) {
            at = i ? stpcpy(at, ",") : at;
            at += snprintf(at, 32, lists[_i].value, 10 + i);
        }
        const char *const args[] = {
            lists[_i].command, "no.f8", lists[_i].option, list, lists[_i].file ? "-o" : NULL,
            lists[_i].file,    NULL};
        if (more)
            f8_cli_fails(f8_cli_run(args), 2, lists[_i].message);
        else
            reads(args);
    }
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("limits");
    TCase *t = tcase_create("limits");
    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, f8_cli_setup, f8_cli_teardown);
    tcase_add_loop_test(t, of_texts, 0, N_TEXTS);
    tcase_add_loop_test(t, of_numbers, 0, N_NUMBERS);
    tcase_add_test(t, of_repeats);
    tcase_add_test(t, of_bytes);
    tcase_add_loop_test(t, of_repeated_options, 0, N_REPEATED);
    tcase_add_loop_test(t, of_values, 0, N_VALUES);
    tcase_add_loop_test(t, of_lists, 0, N_LISTS);
    suite_add_tcase(s, t);
    return s;
}
