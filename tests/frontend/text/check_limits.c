/* The limits of ir/README.md, "Limits", that a text or a command line can reach: N is taken, and
 * N + 1 is refused with its place. check_parse.c has those of whole texts (bytes, unrolled
 * repeats); tests/whole/check_depth.c and check_kernel.c have what has no limit. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/text/diag.h"
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

/* ---- command lines ---- */

static const struct {
    const char *option, *value; /* %d: a number from 1 on */
    int most;
} options[] = {
    {"-D", "X%d=1", 32},
    {"--rule", "\"h.%d\" = bf16", 64},
    {"--ignore", "x%d", 64},
};
enum { N_OPTIONS = sizeof options / sizeof *options };

/* One more is a wrong usage that names the option. As many as there may be are read: what then is
 * wrong, if anything, is something else. */
START_TEST(of_command_lines)
{
    static char value[80][32], error[128];
    const char *args[200] = {"eval", "frontend/models/gpt.f8"};
    int n = 2;
    for (int i = 1; i <= options[_i].most + 1; i++) {
        snprintf(value[i], sizeof value[i], options[_i].value, i);
        args[n++] = options[_i].option;
        args[n++] = value[i];
    }
    snprintf(error, sizeof error, "fp8c eval: one too many for %s: '%s'", options[_i].option,
             value[options[_i].most + 1]);
    f8_cli_fails(f8_cli_run(args), 2, error);
    args[n - 2] = NULL;
    const f8_cli_result r = f8_cli_run(args);
    ck_assert_msg(!strstr(r.err, "one too many"), "%s", r.err);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("limits");
    TCase *t = tcase_create("limits");
    tcase_set_timeout(t, 60);
    tcase_add_checked_fixture(t, f8_cli_setup, f8_cli_teardown);
    tcase_add_loop_test(t, of_texts, 0, N_TEXTS);
    tcase_add_loop_test(t, of_command_lines, 0, N_OPTIONS);
    suite_add_tcase(s, t);
    return s;
}
