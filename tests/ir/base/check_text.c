/* Texts for people: without control characters, and with a guess at what was meant. */
#include "ir/base/suggest.h"
#include "ir/base/text.h"
#include "tests/shared/suite.h"

#include <stdio.h>
#include <string.h>

static void plain(const char *from, const char *want)
{
    char text[100];
    snprintf(text, sizeof text, "%s", from);
    f8_text_make_plain(text);
    ck_assert_str_eq(text, want);
    ck_assert(strpbrk(want, "\n\t") || f8_text_is_plain(want, strlen(want)));
}

START_TEST(make_plain)
{
    plain("", "");
    plain("a line\nanother\tone", "a line\nanother\tone");
    plain("\033[31mred\033[0m\a", "?[31mred?[0m?");
    plain("\r\x7f\b", "???");
    plain("Gr\xc3\xb6\xc3\x9f"
          "e \xe2\x82\xac \xf0\x9f\x98\x80",
          "Gr\xc3\xb6\xc3\x9f"
          "e \xe2\x82\xac \xf0\x9f\x98\x80");
    plain("\xff\xc3", "??");               /* no UTF-8 */
    plain("\xc2\x9b"
          "31m",
          "?31m");                         /* the control character that ESC [ stands for */
    plain("\xed\xa0\x80", "???");          /* a surrogate */
}
END_TEST

static const char *name(const void *list, size_t i)
{
    return ((const char *const *)list)[i];
}

START_TEST(suggest)
{
    static const char *const names[] = {"train", "triage", NULL, "tune"};
    static const char list[] = "f32, bf16, delayed, current, block";
    static const struct {
        const char *given, *meant;
    } cases[] = {{"trian", "train"}, {"tiage", "triage"}, {"tunes", "tune"}, {"x", ""},
                 {"", ""},           {"explain", ""},     {"train", "train"}},
      listed[] = {{"delaid", "delayed"}, {"curent", "current"}, {"bf6", "bf16"}, {"blok", "block"},
                  {"fp4", ""},           {"mxfp8", ""},         {"f16", "bf16"}};
    char hint[80], want[80], longer[60];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        f8_suggest(cases[i].given, strlen(cases[i].given), name, names, 4, "", hint, sizeof hint);
        snprintf(want, sizeof want, *cases[i].meant ? " (did you mean '%s'?)" : "%s",
                 cases[i].meant);
        ck_assert_str_eq(hint, want);
    }
    for (size_t i = 0; i < sizeof listed / sizeof *listed; i++) {
        f8_suggest_listed(listed[i].given, strlen(listed[i].given), list, hint, sizeof hint);
        ck_assert_msg(!*listed[i].meant == !*hint && strstr(hint, listed[i].meant), "%s:%s",
                      listed[i].given, hint);
    }
    memset(longer, 't', sizeof longer);
    ck_assert_str_eq(f8_suggest_listed(longer, sizeof longer, list, hint, sizeof hint), "");
    f8_suggest("trian", 5, name, names, 4, "", hint, 8); /* cut, not written past its end */
    ck_assert_uint_eq(strlen(hint), 7);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("text");
    TCase *t = tcase_create("text");
    tcase_add_test(t, make_plain);
    tcase_add_test(t, suggest);
    suite_add_tcase(s, t);
    return s;
}
