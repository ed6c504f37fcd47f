/* Recipes and rules as text: every option read and printed back, every message, and what names and
 * patterns match. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/text/parse.h"
#include "ir/recipe.h"
#include "tests/shared/suite.h"

/* ---- recipes as text ---- */

/* What each recipe has, as frontend/text/README.md's table says it: options, and what they are when
 * not given. */
static const struct {
    const char *name;
    const char *format, *history, *amax, *margin, *pow2, *fake; /* NULL: no such option */
} table[] = {
    {.name = "f32"},
    {.name = "bf16"},
    {"delayed", "hybrid", "16", "max", "0", "false", "false"},
    {"current", "hybrid", NULL, NULL, "0", "false", "false"},
    {"rowwise", "e4m3", NULL, NULL, "0", "false", "false"},
    {"rowwise_gw_hp", "e4m3", NULL, NULL, "0", "false", "false"},
    {"block", "e4m3", NULL, NULL, "0", "false", "false"},
    {"mxfp8", "e4m3", NULL, NULL, NULL, NULL, "false"},
    {"fake", "hybrid", NULL, NULL, "0", "false", "true"},
    {.name = "auto"},
};

enum { RECIPES = sizeof table / sizeof *table };

static const struct {
    const char *key, *value;
} settings[] = {
    {"format", "e4m3"},  {"format", "hybrid"}, {"history", "1"},        {"history", "16"},
    {"history", "1024"}, {"amax", "max"},      {"amax", "most_recent"}, {"margin", "0"},
    {"margin", "64"},    {"pow2", "false"},    {"pow2", "true"},        {"fake", "false"},
    {"fake", "true"},
};

static const char *default_of(int recipe, const char *key)
{
    const char *const keys[] = {"format", "history", "amax", "margin", "pow2", "fake"};
    const char *const values[] = {table[recipe].format, table[recipe].history, table[recipe].amax,
                                  table[recipe].margin, table[recipe].pow2,    table[recipe].fake};
    for (int i = 0; i < 6; i++)
        if (!strcmp(keys[i], key))
            return values[i];
    ck_abort_msg("no key '%s'", key);
}

/* Every recipe with every setting: taken if the table has the option, and printed if it is not the
 * default. */
START_TEST(every_option)
{
    for (size_t k = 0; k < sizeof settings / sizeof *settings; k++) {
        char text[128], want[128], got[F8_RECIPE_TEXT];
        const char *key = settings[k].key, *value = settings[k].value, *unset = default_of(_i, key);
        f8_diag diag = {0};
        f8_recipe r, again;
        snprintf(text, sizeof text, "%s {%s = %s}", table[_i].name, key, value);
        const f8_status status = f8_recipe_parse(text, F8_NOWHERE, &r, &diag);
        if (!unset) {
            snprintf(want, sizeof want, "recipe '%s' has no option '%s': it has ", table[_i].name,
                     key);
            ck_assert_msg(status == F8_ERR_INPUT && strstr(diag.text, want) == diag.text, "%s: %s",
                          text, diag.text);
            continue;
        }
        ck_assert_msg(status == F8_OK, "%s: %s", text, diag.text);
        f8_recipe_print(&r, got, sizeof got);
        ck_assert_str_eq(got, strcmp(value, unset) ? text : table[_i].name);
        ck_assert_int_eq(f8_recipe_parse(got, F8_NOWHERE, &again, NULL), F8_OK);
        ck_assert(f8_recipe_equal(&r, &again) && !strcmp(r.name, again.name));
        ck_assert_int_eq(f8_recipe_equal(&r, f8_recipe_by_name(r.name)), !strcmp(value, unset));
    }
}
END_TEST

START_TEST(names)
{
    int i = 0;
    for (const char *name; (name = f8_recipe_name((size_t)i)); i++) {
        char word[40];
        ck_assert_int_lt(i, RECIPES);
        ck_assert_str_eq(name, table[i].name);
        ck_assert_ptr_eq(f8_recipe_by_name(name)->name, name);
        snprintf(word, sizeof word, "%s%s", name, i + 1 < RECIPES ? ", " : "");
        ck_assert_msg(strstr(f8_recipe_names(), word) != NULL, "'%s' has no %s", f8_recipe_names(),
                      name);
    }
    ck_assert_int_eq(i, RECIPES);
    ck_assert_ptr_null(f8_recipe_by_name("fp4"));
    ck_assert_ptr_null(f8_recipe_by_name("bloc"));
    ck_assert_ptr_null(f8_recipe_by_name(""));
}
END_TEST

/* What the words mean, and that spaces and order mean nothing. */
START_TEST(fields)
{
    f8_recipe r;
    char text[F8_RECIPE_TEXT];
    const char *const spellings[] = {
        "delayed {format = e4m3, history = 7, amax = most_recent, margin = 3, pow2 = true, fake = "
        "true}",
        "  delayed{fake=true,pow2=true,margin=3,amax=most_recent,history=7,format=e4m3}\n",
        "delayed\t{ margin =3 , format\n= e4m3,history= 007, fake = true,\n pow2 = true, amax = "
        "most_recent }  ",
    };
    for (int i = 0; i < 3; i++) {
        f8_diag diag = {0};
        ck_assert_msg(f8_recipe_parse(spellings[i], F8_NOWHERE, &r, &diag) == F8_OK, "%s",
                      diag.text);
        ck_assert(r.scaling == F8_SCALING_DELAYED && r.forward == F8_E4M3 && r.gradient == F8_E4M3);
        ck_assert(r.history == 7 && r.most_recent && r.margin == 3 && r.pow2 && r.fake &&
                  r.saturate);
        ck_assert_str_eq(f8_recipe_print(&r, text, sizeof text), spellings[0]);
    }
    ck_assert_int_eq(f8_recipe_parse("block {}", F8_NOWHERE, &r, NULL), F8_OK);
    ck_assert_str_eq(f8_recipe_print(&r, text, sizeof text), "block");
    ck_assert(!r.pow2 && r.gradient == F8_E4M3 && r.activation == F8_BF16);
    ck_assert_int_eq(f8_recipe_parse("fake", F8_NOWHERE, &r, NULL), F8_OK);
    ck_assert(r.scaling == F8_SCALING_CURRENT && r.fake && r.gradient == F8_E5M2);
    ck_assert_int_eq(f8_recipe_parse("rowwise_gw_hp", F8_NOWHERE, &r, NULL), F8_OK);
    ck_assert(r.scaling == F8_SCALING_ROWWISE && r.wgrad_high);
    /* any buffer: cut, terminated, nothing behind it */
    ck_assert_int_eq(f8_recipe_parse(spellings[0], F8_NOWHERE, &r, NULL), F8_OK);
    for (size_t size = 1; size < sizeof text; size++) {
        memset(text, 'z', sizeof text);
        f8_recipe_print(&r, text, size);
        const size_t length = strlen(spellings[0]) < size ? strlen(spellings[0]) : size - 1;
        ck_assert(strlen(text) == length && !memcmp(text, spellings[0], length) &&
                  text[size] == 'z');
    }
}
END_TEST

static const struct {
    const char *text, *message;
} bad_recipes[] = {
    {"", "no recipe '': there are f32, bf16, delayed, "},
    {"fp4", "no recipe 'fp4': there are f32, bf16, delayed, "},
    {"Block", "no recipe 'Block' (did you mean 'block'?): there are"},
    {"{pow2 = true}", "no recipe '': there are"},
    {"blockblockblockblockblockblockblockblockblockblock",
     "no recipe 'blockblockblockblockblockblockblockblock': there are"},
    {"block pow2", "recipe 'block': nothing may follow it, but 'pow2' does"},
    {"block {pow2 = true} x", "recipe 'block': nothing may follow it, but 'x' does"},
    {"block {pow2 = true}}", "recipe 'block': nothing may follow it, but '}' does"},
    {"block {", "recipe 'block': an option is missing at the end"},
    {"block {pow2", "recipe 'block': '=' is missing at the end"},
    {"block {pow2 true}", "recipe 'block': '=' is expected before 'true}'"},
    {"block {pow2 =", "recipe 'block': a value is missing at the end"},
    {"block {pow2 = }", "recipe 'block': a value is expected before '}'"},
    {"block {pow2 = true", "recipe 'block': ',' or '}' is missing at the end"},
    {"block {pow2 = true margin = 1}",
     "recipe 'block': ',' or '}' is expected before 'margin = 1}'"},
    {"block {pow2 = true,}", "recipe 'block': an option is expected before '}'"},
    {"block {= true}", "recipe 'block': an option is expected before '= true}'"},
    {"block {tile = 3}", "recipe 'block' has no option 'tile': it has format, margin, pow2, fake"},
    {"bf16 {pow2 = true}", "recipe 'bf16' has no option 'pow2': it has none"},
    {"auto {format = e4m3}", "recipe 'auto' has no option 'format': it has none"},
    {"mxfp8 {pow2 = true}", "recipe 'mxfp8' has no option 'pow2': it has format, fake"},
    {"current {history = 3}",
     "recipe 'current' has no option 'history': it has format, margin, pow2, fake"},
    {"delayed {x = 1}",
     "recipe 'delayed' has no option 'x': it has format, history, amax, margin, pow2, fake"},
    {"block {pow2 = true, pow2 = true}", "option 'pow2' is given twice"},
    {"block {pow2 = 1}", "pow2 = 1: false or true is expected"},
    {"block {pow2 = True}", "pow2 = True: false or true is expected"},
    {"current {format = e5m2}", "format = e5m2: e4m3 or hybrid is expected"},
    {"delayed {amax = newest}", "amax = newest: max or most_recent is expected"},
    {"delayed {history = 0}", "history = 0: a number from 1 to 1024 is expected"},
    {"delayed {history = 1025}", "history = 1025: a number from 1 to 1024 is expected"},
    {"delayed {history = -1}", "history = -1: a number from 1 to 1024 is expected"},
    {"delayed {history = 1e2}", "history = 1e2: a number from 1 to 1024 is expected"},
    {"delayed {history = 4294967312}", "history = 4294967312: a number from 1 to 1024 is expected"},
    {"delayed {history = \"8\"}", "history = \"8\": a number from 1 to 1024 is expected"},
    {"current {margin = 65}", "margin = 65: a number from 0 to 64 is expected"},
    {"current {margin = }", "recipe 'current': a value is expected before '}'"},
};

START_TEST(recipe_messages)
{
    f8_recipe r;
    f8_diag diag = {0};
    const f8_loc loc = {3, 14};
    ck_assert_int_eq(f8_recipe_parse(bad_recipes[_i].text, loc, &r, &diag), F8_ERR_INPUT);
    ck_assert_msg(strstr(diag.text, bad_recipes[_i].message) == diag.text, "'%s' gives '%s'",
                  bad_recipes[_i].text, diag.text);
    ck_assert(diag.loc.line == 3 && diag.loc.column == 14);
}
END_TEST

/* ---- what a scale covers ---- */

/* As each operand is stored for its GEMM: x [M, K] and w [N, K] sum along columns, the others along
 * rows. */
START_TEST(granularities)
{
    static const struct {
        const char *recipe;
        f8_operand_kind operand;
        const char *along_columns, *along_rows;
    } rows[] = {
        {"delayed", F8_OPERAND_X, "tensor", "tensor"},
        {"current", F8_OPERAND_DY, "tensor", "tensor"},
        {"fake", F8_OPERAND_W, "tensor", "tensor"},
        {"rowwise", F8_OPERAND_X, "row", "column"},
        {"rowwise", F8_OPERAND_W, "row", "column"},
        {"rowwise_gw_hp", F8_OPERAND_DY, "row", "column"},
        {"block", F8_OPERAND_X, "block(1,128)", "block(128,1)"},
        {"block", F8_OPERAND_DY, "block(1,128)", "block(128,1)"},
        {"block", F8_OPERAND_W, "block(128,128)", "block(128,128)"},
        {"mxfp8", F8_OPERAND_X, "block(1,32)", "block(32,1)"},
        {"mxfp8", F8_OPERAND_W, "block(1,32)", "block(32,1)"},
    };
    char text[48];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const f8_recipe *r = f8_recipe_by_name(rows[i].recipe);
        for (int k_is_rows = 0; k_is_rows < 2; k_is_rows++) {
            const f8_granularity g = f8_recipe_granularity(r, rows[i].operand, k_is_rows);
            ck_assert_str_eq(f8_granularity_print(g, text, sizeof text),
                             k_is_rows ? rows[i].along_rows : rows[i].along_columns);
        }
    }
}
END_TEST

/* ---- names ---- */

START_TEST(layers_of_names)
{
    static const struct {
        const char *name;
        int64_t layer;
    } rows[] = {
        {"h.0.attn.c_attn", 0},
        {"model.layers.17.mlp.up_proj", 17},
        {"blocks.3", 3},
        {"7.fc", 7},
        {"a.2.b.5", 2},
        {"lm_head", -1},
        {"fc2", -1},
        {"h.2a.fc", -1},
        {"h.a2.fc", -1},
        {"h.2a.4.fc", 4},
        {"", -1},
        {".", -1},
        {"h..1", 1},
        {"h.-1.fc", -1},
        {"h.007.fc", 7},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        ck_assert_msg(f8_layer_of(rows[i].name) == rows[i].layer, "'%s' is of layer %lld",
                      rows[i].name, (long long)f8_layer_of(rows[i].name));
    ck_assert_int_ge(f8_layer_of("h.99999999999999999999999.fc"),
                     0); /* one layer, whatever its number */
}
END_TEST

START_TEST(patterns)
{
    static const struct {
        const char *pattern, *name;
        bool match;
    } rows[] = {
        {"*", "", true},
        {"*", "h.0.fc", true},
        {"", "", true},
        {"", "a", false},
        {"h.*", "h.0.fc", true},
        {"h.*", "lm_head", false},
        {"*.fc", "h.0.fc", true},
        {"*.fc", "h.0.fc2", false},
        {"h.?.fc", "h.0.fc", true},
        {"h.?.fc", "h.10.fc", false},
        {"*a*b*", "xaxxb", true},
        {"*a*b", "ab.ab", true},
        {"*ab", "aab", true},
        {"h.*.fc", "h.fc", false},
        {"?", "", false},
        {"**", "x", true},
        {"H.*", "h.0", false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        ck_assert_msg(f8_pattern_match(rows[i].pattern, rows[i].name) == rows[i].match,
                      "'%s' and '%s'", rows[i].pattern, rows[i].name);
}
END_TEST

/* ---- rules alone ---- */

typedef struct rules {
    f8_arena arena;
    f8_diag diag;
    f8_module *m;
} rules;

static void rules_begin(rules *r)
{
    *r = (rules){0};
    f8_arena_init(&r->arena, NULL);
    static const char text[] = "module t\ndim L = 12\n";
    ck_assert_int_eq(f8_parse(text, strlen(text), "t", NULL, 0, &r->arena, &r->diag, &r->m), F8_OK);
}

START_TEST(rule_alone)
{
    static const struct {
        const char *text, *printed; /* NULL: the same */
    } rows[] = {
        {"\"h.*\" = bf16", NULL},
        {"\"h.*\" wgrad = bf16", NULL},
        {"\"h.*\" dgrad dy = current {format = e4m3}", NULL},
        {"\"h.*\" x = rowwise", NULL},
        {"layers 1, 2 = block {pow2 = true}", NULL},
        {"  layers\n0,0=bf16 # none\n", "layers 0, 0 = bf16"},
        {"layers L / 4, L - 11 = bf16", "layers 3, 1 = bf16"},
        {"\"h.{L - 1}.*\" = bf16", "\"h.11.*\" = bf16"},
        {"\"a\\\"b\\\\\\{\\}\\n\" fprop w=delayed{history=16,margin=1}",
         "\"a\\\"b\\\\\\{\\}\\n\" fprop w = delayed {margin = 1}"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        rules r;
        f8_recipe_rule rule, again;
        char text[256], twice[256];
        rules_begin(&r);
        ck_assert_msg(f8_parse_rule(rows[i].text, r.m, &r.diag, &rule) == F8_OK, "%s: %s",
                      rows[i].text, r.diag.text);
        ck_assert(rule.loc.line == 0 && !rule.origin);
        f8_rule_print(&rule, text, sizeof text);
        ck_assert_str_eq(text, rows[i].printed ? rows[i].printed : rows[i].text);
        ck_assert_int_eq(f8_parse_rule(text, r.m, &r.diag, &again), F8_OK);
        ck_assert_str_eq(f8_rule_print(&again, twice, sizeof twice), text);
        for (size_t size = 1; size <= strlen(text) + 1; size++) { /* any buffer */
            memset(twice, 'z', sizeof twice);
            f8_rule_print(&rule, twice, size);
            ck_assert(strlen(twice) == size - 1 && !memcmp(twice, text, size - 1) &&
                      twice[size] == 'z');
        }
        f8_arena_end(&r.arena);
    }
}
END_TEST

/* What the README shows are rules. */
START_TEST(rules_of_the_readme)
{
    static const char begin[] = "| `recipe ";
    char line[400];
    int n = 0;
    rules r;
    FILE *f = fopen("frontend/text/README.md", "r");
    ck_assert_msg(f != NULL, "run from the top of the tree");
    rules_begin(&r);
    while (fgets(line, sizeof line, f)) {
        f8_recipe_rule rule;
        if (strncmp(line, begin, sizeof begin - 1))
            continue;
        char *text = line + sizeof begin - 1;
        text[strcspn(text, "`")] = 0;
        ck_assert_msg(f8_parse_rule(text, r.m, &r.diag, &rule) == F8_OK, "%s: %s", text,
                      r.diag.text);
        n++;
    }
    ck_assert_int_ge(n, 5);
    fclose(f);
    f8_arena_end(&r.arena);
}
END_TEST

static const struct {
    const char *text;
    uint32_t line, column;
    const char *message;
} bad_rules[] = {
    {"", 1, 1, "the rule is empty"},
    {" \n ", 1, 1, "the rule is empty"},
    {"# all", 1, 6,
     "expected a pattern of names, such as \"h.*\", or 'layers', found the end of the text"},
    {"h.* = bf16", 1, 1, "expected a pattern of names"},
    {"\"h.* = bf16", 1, 1, "this string is not closed on the same line"},
    {"\"h.*\"", 1, 6, "expected '=' and a recipe, found the end of the text"},
    {"\"h.*\" = fp4", 1, 9, "no recipe 'fp4': there are f32"},
    {"\"h.*\" = bf16 bf16", 1, 14, "expected the end of the rule, found 'bf16'"},
    {"\"h.*\" = block {history = 3}", 1, 16, "recipe 'block' has no option 'history'"},
    {"\"h.*\" =\n block {pow2 = 3}", 2, 16, "pow2 = 3: false or true is expected"},
    {"\"h.*\" wgrad w = bf16", 1, 1, "wgrad has no operand w: its operands are x and dy"},
    {"\"h.{M}\" = bf16", 1, 5, "there is no dim or repeat variable 'M'"},
    {"layers 1 = bf16", 1, 10, "expected ',' and the number of last layers, found '='"},
    {"layers 0, 0 - 1 = bf16", 1, 8,
     "layers 0, -1: the number of layers must not be negative"},
    {"recipe \"h.*\" = bf16", 1, 1, "expected a pattern of names"},
    {"\"\xff\" = bf16", 1, 2, "UTF-8"},
};

START_TEST(rule_messages)
{
    rules r;
    f8_recipe_rule rule;
    rules_begin(&r);
    ck_assert_int_eq(f8_parse_rule(bad_rules[_i].text, r.m, &r.diag, &rule), F8_ERR_INPUT);
    ck_assert_msg(strstr(r.diag.text, bad_rules[_i].message) != NULL, "'%s' gives '%s'",
                  bad_rules[_i].text, r.diag.text);
    ck_assert_uint_eq(r.diag.loc.line, bad_rules[_i].line);
    ck_assert_uint_eq(r.diag.loc.column, bad_rules[_i].column);
    f8_arena_end(&r.arena);
}
END_TEST

START_TEST(rules_without_linears)
{
    static const struct {
        const char *rule, *origin, *message;
    } rows[] = {
        {"\"nope\" wgrad = bf16", NULL, "recipe \"nope\" matches no linear of 't'"},
        {"\"nope\" = bf16", "--rule", "--rule: recipe \"nope\" matches no linear of 't'"},
        {"layers 1, 1 = bf16", "--rule",
         "--rule: recipe layers: no linear of 't' has a layer's number in its name"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        rules r;
        f8_recipe_rule rule;
        rules_begin(&r);
        ck_assert_int_eq(f8_parse_rule(rows[i].rule, r.m, &r.diag, &rule), F8_OK);
        rule.origin = rows[i].origin;
        ck_assert_int_eq(f8_add_rule(r.m, &rule), F8_OK);
        ck_assert_int_eq(f8_check_recipe_rules(r.m, &r.diag), F8_ERR_INPUT);
        ck_assert_str_eq(r.diag.text, rows[i].message);
        f8_arena_end(&r.arena);
    }
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("recipe text");
    TCase *t = tcase_create("recipe text");
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, every_option, 0, RECIPES);
    tcase_add_test(t, names);
    tcase_add_test(t, fields);
    tcase_add_loop_test(t, recipe_messages, 0, sizeof bad_recipes / sizeof *bad_recipes);
    tcase_add_test(t, granularities);
    tcase_add_test(t, layers_of_names);
    tcase_add_test(t, patterns);
    tcase_add_test(t, rule_alone);
    tcase_add_test(t, rules_of_the_readme);
    tcase_add_loop_test(t, rule_messages, 0, sizeof bad_rules / sizeof *bad_rules);
    tcase_add_test(t, rules_without_linears);
    suite_add_tcase(s, t);
    return s;
}
