/* Recipes as text, and the rules that give each GEMM's operands theirs: every option read and printed back, every
 * message, who wins where several rules match, and what one GEMM can't have together. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/parse.h"
#include "tests/shared/unit.h"

/* ---- recipes as text ---- */

/* What each recipe has, as frontend/README.md's table says it: options, and what they are when not given. */
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
    {"format", "e4m3"}, {"format", "hybrid"}, {"history", "1"},   {"history", "16"},   {"history", "1024"},
    {"amax", "max"},    {"amax", "most_recent"}, {"margin", "0"}, {"margin", "64"},    {"pow2", "false"},
    {"pow2", "true"},   {"fake", "false"},    {"fake", "true"},
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

/* Every recipe with every setting: taken if the table has the option, and printed if it is not the default. */
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
            snprintf(want, sizeof want, "recipe '%s' has no option '%s': it has ", table[_i].name, key);
            ck_assert_msg(status == F8_ERR_INPUT && strstr(diag.text, want) == diag.text, "%s: %s", text, diag.text);
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
        ck_assert_msg(strstr(f8_recipe_names(), word) != NULL, "'%s' has no %s", f8_recipe_names(), name);
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
        "delayed {format = e4m3, history = 7, amax = most_recent, margin = 3, pow2 = true, fake = true}",
        "  delayed{fake=true,pow2=true,margin=3,amax=most_recent,history=7,format=e4m3}\n",
        "delayed\t{ margin =3 , format\n= e4m3,history= 007, fake = true,\n pow2 = true, amax = most_recent }  ",
    };
    for (int i = 0; i < 3; i++) {
        f8_diag diag = {0};
        ck_assert_msg(f8_recipe_parse(spellings[i], F8_NOWHERE, &r, &diag) == F8_OK, "%s", diag.text);
        ck_assert(r.scaling == F8_SCALING_DELAYED && r.forward == F8_E4M3 && r.gradient == F8_E4M3);
        ck_assert(r.history == 7 && r.most_recent && r.margin == 3 && r.pow2 && r.fake && r.saturate);
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
        ck_assert(strlen(text) == length && !memcmp(text, spellings[0], length) && text[size] == 'z');
    }
}
END_TEST

static const struct {
    const char *text, *message;
} bad_recipes[] = {
    {"", "no recipe '': there are f32, bf16, delayed, "},
    {"fp4", "no recipe 'fp4': there are f32, bf16, delayed, "},
    {"Block", "no recipe 'Block': there are"},
    {"{pow2 = true}", "no recipe '': there are"},
    {"blockblockblockblockblockblockblockblockblockblock",
     "no recipe 'blockblockblockblockblockblockblockblock': there are"},
    {"block pow2", "recipe 'block' ends before 'pow2'"},
    {"block {pow2 = true} x", "recipe 'block' ends before 'x'"},
    {"block {pow2 = true}}", "recipe 'block' ends before '}'"},
    {"block {", "recipe 'block': an option is missing at the end"},
    {"block {pow2", "recipe 'block': '=' is missing at the end"},
    {"block {pow2 true}", "recipe 'block': '=' is expected before 'true}'"},
    {"block {pow2 =", "recipe 'block': a value is missing at the end"},
    {"block {pow2 = }", "recipe 'block': a value is expected before '}'"},
    {"block {pow2 = true", "recipe 'block': ',' or '}' is missing at the end"},
    {"block {pow2 = true margin = 1}", "recipe 'block': ',' or '}' is expected before 'margin = 1}'"},
    {"block {pow2 = true,}", "recipe 'block': an option is expected before '}'"},
    {"block {= true}", "recipe 'block': an option is expected before '= true}'"},
    {"block {tile = 3}", "recipe 'block' has no option 'tile': it has format, margin, pow2, fake"},
    {"bf16 {pow2 = true}", "recipe 'bf16' has no option 'pow2': it has none"},
    {"auto {format = e4m3}", "recipe 'auto' has no option 'format': it has none"},
    {"mxfp8 {pow2 = true}", "recipe 'mxfp8' has no option 'pow2': it has format, fake"},
    {"current {history = 3}", "recipe 'current' has no option 'history': it has format, margin, pow2, fake"},
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

/* As each operand is stored for its GEMM: x [M, K] and w [N, K] sum along columns, the others along rows. */
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
        {"h.0.attn.c_attn", 0}, {"model.layers.17.mlp.up_proj", 17}, {"blocks.3", 3}, {"7.fc", 7},
        {"a.2.b.5", 2},         {"lm_head", -1},                     {"fc2", -1},     {"h.2a.fc", -1},
        {"h.a2.fc", -1},        {"h.2a.4.fc", 4},                    {"", -1},        {".", -1},
        {"h..1", 1},            {"h.-1.fc", -1},                     {"h.007.fc", 7},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        ck_assert_msg(f8_layer_of(rows[i].name) == rows[i].layer, "'%s' is of layer %lld", rows[i].name,
                      (long long)f8_layer_of(rows[i].name));
    ck_assert_int_ge(f8_layer_of("h.99999999999999999999999.fc"), 0); /* one layer, whatever its number */
}
END_TEST

START_TEST(patterns)
{
    static const struct {
        const char *pattern, *name;
        bool match;
    } rows[] = {
        {"*", "", true},          {"*", "h.0.fc", true},      {"", "", true},          {"", "a", false},
        {"h.*", "h.0.fc", true},  {"h.*", "lm_head", false},  {"*.fc", "h.0.fc", true}, {"*.fc", "h.0.fc2", false},
        {"h.?.fc", "h.0.fc", true}, {"h.?.fc", "h.10.fc", false}, {"*a*b*", "xaxxb", true}, {"*a*b", "ab.ab", true},
        {"*ab", "aab", true},     {"h.*.fc", "h.fc", false},  {"?", "", false},        {"**", "x", true},
        {"H.*", "h.0", false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        ck_assert_msg(f8_pattern_match(rows[i].pattern, rows[i].name) == rows[i].match, "'%s' and '%s'",
                      rows[i].pattern, rows[i].name);
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
        ck_assert_msg(f8_parse_rule(rows[i].text, r.m, &r.diag, &rule) == F8_OK, "%s: %s", rows[i].text,
                      r.diag.text);
        ck_assert(rule.loc.line == 0 && !rule.origin);
        f8_rule_print(&rule, text, sizeof text);
        ck_assert_str_eq(text, rows[i].printed ? rows[i].printed : rows[i].text);
        ck_assert_int_eq(f8_parse_rule(text, r.m, &r.diag, &again), F8_OK);
        ck_assert_str_eq(f8_rule_print(&again, twice, sizeof twice), text);
        for (size_t size = 1; size <= strlen(text) + 1; size++) { /* any buffer */
            memset(twice, 'z', sizeof twice);
            f8_rule_print(&rule, twice, size);
            ck_assert(strlen(twice) == size - 1 && !memcmp(twice, text, size - 1) && twice[size] == 'z');
        }
        f8_arena_end(&r.arena);
    }
}
END_TEST

static const struct {
    const char *text;
    uint32_t line, column;
    const char *message;
} bad_rules[] = {
    {"", 1, 1, "the rule is empty"},
    {" \n ", 1, 1, "the rule is empty"},
    {"# all", 1, 6, "expected a pattern of names, as \"h.*\", or layers, found the end of the text"},
    {"h.* = bf16", 1, 1, "expected a pattern of names"},
    {"\"h.* = bf16", 1, 1, "a string is never closed on its line"},
    {"\"h.*\"", 1, 6, "expected '=' and a recipe, found the end of the text"},
    {"\"h.*\" = fp4", 1, 9, "no recipe 'fp4': there are f32"},
    {"\"h.*\" = bf16 bf16", 1, 14, "expected the end of the rule, found 'bf16'"},
    {"\"h.*\" = block {history = 3}", 1, 16, "recipe 'block' has no option 'history'"},
    {"\"h.*\" =\n block {pow2 = 3}", 2, 16, "pow2 = 3: false or true is expected"},
    {"\"h.*\" wgrad w = bf16", 1, 1, "wgrad has no operand w: it is of x and dy"},
    {"\"h.{M}\" = bf16", 1, 5, "'M' is no dim or repeat variable"},
    {"layers 1 = bf16", 1, 10, "expected ',' and the number of last layers, found '='"},
    {"layers 0, 0 - 1 = bf16", 1, 8, "layers 0, -1: these count the first and the last ones, from 0"},
    {"recipe \"h.*\" = bf16", 1, 1, "expected a pattern of names"},
    {"\"\xff\" = bf16", 1, 2, "UTF-8"},
};

START_TEST(rule_messages)
{
    rules r;
    f8_recipe_rule rule;
    rules_begin(&r);
    ck_assert_int_eq(f8_parse_rule(bad_rules[_i].text, r.m, &r.diag, &rule), F8_ERR_INPUT);
    ck_assert_msg(strstr(r.diag.text, bad_rules[_i].message) != NULL, "'%s' gives '%s'", bad_rules[_i].text,
                  r.diag.text);
    ck_assert_uint_eq(r.diag.loc.line, bad_rules[_i].line);
    ck_assert_uint_eq(r.diag.loc.column, bad_rules[_i].column);
    f8_arena_end(&r.arena);
}
END_TEST

/* ---- who wins ---- */

/* Layers 2, 5 and 7, with a linear that shares layer 5's weight (its name is h.5.fc.2 then), and two outside of
 * layers, of which `out` is there twice: the number that tells them apart is no layer. */
static const char many[] =
    "module m\ndim B = 32, C = 32\n"
    "param h.2.fc.weight: f32[C, C] ones\nparam h.5.fc.weight: f32[C, C] ones\n"
    "param h.7.fc.weight: f32[C, C] ones\nparam h.7.up.weight: f32[C, C] ones\n"
    "param out: f32[C, C] ones\nparam head.weight: f32[C, C] ones\n"
    "func forward(%x: f32[B, C], %t: i32[B]) -> (%loss: f32[]) {\n"
    "  %a = tanh(linear(tanh(linear(%x, h.2.fc.weight)), h.5.fc.weight))\n"
    "  %b = tanh(linear(tanh(linear(%a, h.5.fc.weight)), h.7.fc.weight))\n"
    "  %c = tanh(linear(%b, h.7.up.weight))\n"
    "  %d = tanh(linear(tanh(linear(%c, out)), out))\n"
    "  return cross_entropy(linear(%d, head.weight), %t)\n}\n";

/* `many` with rules, its linears named. */
static void begin(test_unit *t, const char *rules, const char *recipe)
{
    char text[4096];
    snprintf(text, sizeof text, "%s%s", many, rules);
    test_unit_parse(t, text, "bf16");
    f8_recipe *r = f8_arena_array(&t->arena, 1, sizeof *r);
    ck_assert_msg(f8_recipe_parse(recipe, F8_NOWHERE, r, &t->diag) == F8_OK, "%s", t->diag.text);
    t->unit.options.recipe = r;
}

static const struct {
    const char *recipe, *rules;
    const char *where; /* "LINEAR ROLE OPERAND" */
    const char *want, *reason;
} precedence[] = {
    {"block", "", "h.2.fc fprop x", "block", "the recipe asked for"},
    {"delayed {margin = 1}", "", "head wgrad dy", "delayed {margin = 1}", "the recipe asked for"},
    /* the last that matches wins, however narrow the others */
    {"block", "recipe \"h.2.fc\" wgrad dy = current\nrecipe \"h.*\" = rowwise\n", "h.2.fc wgrad dy", "rowwise",
     "recipe \"h.*\" = rowwise (line 17)"},
    {"block", "recipe \"h.*\" = rowwise\nrecipe \"h.2.fc\" wgrad dy = current {pow2=true}\n", "h.2.fc wgrad dy",
     "current {pow2 = true}", "recipe \"h.2.fc\" wgrad dy = current {pow2 = true} (line 17)"},
    {"block", "recipe \"h.*\" = rowwise\nrecipe \"h.2.fc\" wgrad dy = current\n", "h.2.fc wgrad x", "rowwise",
     "recipe \"h.*\" = rowwise (line 16)"},
    {"block", "recipe \"h.*\" = rowwise\nrecipe \"h.2.fc\" wgrad dy = current\n", "h.2.fc dgrad dy", "rowwise",
     "recipe \"h.*\" = rowwise (line 16)"},
    /* a role without operands, an operand without a role */
    {"block", "recipe \"*\" wgrad = bf16\n", "h.7.up wgrad dy", "bf16", "recipe \"*\" wgrad = bf16 (line 16)"},
    {"block", "recipe \"*\" wgrad = bf16\n", "h.7.up dgrad dy", "block", "the recipe asked for"},
    {"block", "recipe \"*\" dy = current\n", "h.7.up dgrad dy", "current", "recipe \"*\" dy = current (line 16)"},
    {"block", "recipe \"*\" dy = current\n", "h.7.up dgrad w", "block", "the recipe asked for"},
    /* auto: the recipe asked for, also over a rule before */
    {"block {pow2 = true}", "recipe \"*\" = bf16\nrecipe \"h.7.*\" = auto\n", "h.7.fc fprop w",
     "block {pow2 = true}", "recipe \"h.7.*\" = auto (line 17)"},
    {"block", "recipe \"*\" = bf16\nrecipe \"h.7.*\" = auto\n", "h.5.fc fprop w", "bf16",
     "recipe \"*\" = bf16 (line 16)"},
    /* a high-precision run is so everywhere */
    {"bf16", "recipe \"*\" = block\n", "h.2.fc fprop x", "bf16", "the recipe asked for"},
    {"f32", "recipe \"*\" = block\n", "h.2.fc fprop x", "f32", "the recipe asked for"},
    /* layers, counted from either end among those the linears are in; not what is outside of all */
    {"block", "recipe layers 1, 0 = bf16\n", "h.2.fc fprop x", "bf16", "recipe layers 1, 0 = bf16 (line 16)"},
    {"block", "recipe layers 1, 0 = bf16\n", "h.5.fc fprop x", "block", "the recipe asked for"},
    {"block", "recipe layers 0, 1 = bf16\n", "h.7.up fprop x", "bf16", "recipe layers 0, 1 = bf16 (line 16)"},
    {"block", "recipe layers 0, 1 = bf16\n", "h.7.fc fprop x", "bf16", "recipe layers 0, 1 = bf16 (line 16)"},
    {"block", "recipe layers 0, 1 = bf16\n", "h.5.fc fprop x", "block", "the recipe asked for"},
    {"block", "recipe layers 1, 1 = bf16\n", "h.5.fc fprop x", "block", "the recipe asked for"},
    {"block", "recipe layers 2, 0 = bf16\n", "h.5.fc.2 dgrad dy", "bf16", "recipe layers 2, 0 = bf16 (line 16)"},
    {"block", "recipe layers 2, 0 = bf16\n", "h.7.fc fprop x", "block", "the recipe asked for"},
    {"block", "recipe layers 9, 9 = bf16\n", "h.5.fc fprop x", "bf16", "recipe layers 9, 9 = bf16 (line 16)"},
    {"block", "recipe layers 9, 9 = bf16\n", "head fprop x", "block", "the recipe asked for"},
    {"block", "recipe layers 9, 9 = bf16\n", "out.2 fprop x", "block", "the recipe asked for"},
    {"block", "recipe layers 0, 0 = bf16\n", "h.2.fc fprop x", "block", "the recipe asked for"},
    {"block", "recipe layers 1, 1 = bf16\nrecipe \"h.7.up\" = block\n", "h.7.up fprop x", "block",
     "recipe \"h.7.up\" = block (line 17)"},
    /* linears of one weight follow its rules */
    {"block", "recipe \"out\" = rowwise\n", "out.2 wgrad x", "rowwise", "recipe \"out\" = rowwise (line 16)"},
    /* rowwise_gw_hp, asked for or by a rule */
    {"rowwise_gw_hp", "", "h.2.fc wgrad x", "bf16",
     "the recipe asked for: rowwise_gw_hp keeps wgrad in bf16"},
    {"rowwise_gw_hp", "", "h.2.fc dgrad w", "rowwise_gw_hp", "the recipe asked for"},
    {"block", "recipe \"h.2.fc\" = rowwise_gw_hp {pow2 = true}\n", "h.2.fc wgrad dy", "bf16",
     "recipe \"h.2.fc\" = rowwise_gw_hp {pow2 = true} (line 16): rowwise_gw_hp keeps wgrad in bf16"},
    {"rowwise_gw_hp", "recipe \"h.2.fc\" wgrad = block\n", "h.2.fc wgrad dy", "block",
     "recipe \"h.2.fc\" wgrad = block (line 16)"},
};

START_TEST(who_wins)
{
    test_unit t;
    char linear[32], role[8], operand[8], text[F8_RECIPE_TEXT];
    begin(&t, precedence[_i].rules, precedence[_i].recipe);
    test_pass(&t, f8_pass_precision);
    ck_assert_int_eq(sscanf(precedence[_i].where, "%31s %7s %7s", linear, role, operand), 3);
    f8_operand_kind kind = F8_OPERAND_X;
    while (strcmp(f8_operand_name[kind], operand))
        kind++;
    const f8_choice c = f8_recipe_for(&t.unit, linear, f8_role_by_name(role), kind);
    ck_assert_str_eq(f8_recipe_print(&c.recipe, text, sizeof text), precedence[_i].want);
    ck_assert_str_eq(c.reason, precedence[_i].reason);
    test_unit_end(&t);
}
END_TEST

/* A rule given beside the text comes last and says who gave it. */
START_TEST(rules_beside_the_text)
{
    test_unit t;
    f8_recipe_rule rule;
    begin(&t, "recipe \"*\" = rowwise\n", "block");
    ck_assert_int_eq(f8_parse_rule("\"h.2.fc\" wgrad = bf16", t.unit.module, &t.diag, &rule), F8_OK);
    ck_assert_int_eq(f8_add_rule(t.unit.module, &rule), F8_OK);
    rule.role = f8_role_name[F8_FPROP];
    rule.origin = "--rule";
    ck_assert_int_eq(f8_add_rule(t.unit.module, &rule), F8_OK);
    test_pass(&t, f8_pass_precision);
    ck_assert_str_eq(f8_recipe_for(&t.unit, "h.2.fc", F8_WGRAD, F8_OPERAND_X).reason,
                     "recipe \"h.2.fc\" wgrad = bf16");
    ck_assert_str_eq(f8_recipe_for(&t.unit, "h.2.fc", F8_FPROP, F8_OPERAND_X).reason,
                     "recipe \"h.2.fc\" fprop = bf16 (--rule)");
    ck_assert_str_eq(f8_recipe_for(&t.unit, "h.2.fc", F8_DGRAD, F8_OPERAND_W).recipe.name, "rowwise");
    test_unit_end(&t);
}
END_TEST

START_TEST(rules_without_linears)
{
    static const struct {
        const char *rule, *origin, *message;
    } rows[] = {
        {"\"nope\" wgrad = bf16", NULL, "recipe \"nope\" matches no linear of 't'"},
        {"\"nope\" = bf16", "--rule", "--rule: recipe \"nope\" matches no linear of 't'"},
        {"layers 1, 1 = bf16", "--bf16-layers",
         "--bf16-layers: recipe layers: no linear of 't' has a layer's number in its name"},
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

/* ---- what one GEMM can have together ---- */

static const struct {
    const char *target, *recipe, *rules;
    const char *message; /* NULL: it can */
} together[] = {
    {"cpu", "current", "recipe \"head\" x = bf16\n",
     "'head', fprop: x is bf16 and w is current on cpu: a GEMM has both operands in FP8 or neither"},
    {"cpu", "current", "recipe \"head\" dgrad w = bf16\n",
     "'head', dgrad: dy is current and w is bf16 on cpu: a GEMM has both operands in FP8 or neither"},
    {"cpu", "current", "recipe \"head\" wgrad dy = rowwise\n",
     "'head', wgrad: x is current and dy is rowwise on cpu: a GEMM has operands of one kind of scaling"},
    {"cpu", "rowwise", "recipe \"head\" fprop w = block {pow2 = true}\n",
     "'head', fprop: x is rowwise and w is block {pow2 = true} on cpu: a GEMM has operands of one kind of scaling"},
    {"cpu", "mxfp8", "recipe \"head\" dgrad dy = block\n",
     "'head', dgrad: dy is block and w is mxfp8 on cpu: a GEMM has operands of one kind of scaling"},
    {"cpu", "block", "recipe \"head\" fprop w = block {pow2 = true}\n",
     "'head', fprop: x is block and w is block {pow2 = true} on cpu: a GEMM has powers of two for both operands or "
     "neither"},
    {"cpu", "current", "recipe \"head\" fprop w = fake\n",
     "'head', fprop: x is current and w is fake on cpu: beside a fake operand the other is fake too, or bf16"},
    {"cpu", "current", "recipe \"head\" wgrad = f32\n",
     "'head', wgrad: x is f32 and dy is f32 on cpu: outside of FP8 a linear's GEMMs have the dtype of its fprop's x"},
    {"cpu", "current", "recipe \"head\" fprop = f32\nrecipe \"head\" dgrad = bf16\n", "'head', dgrad: dy is bf16 "},
    {"cpu", "fake", "recipe \"head\" w = f32\n", "'head', fprop: x is fake and w is f32 on cpu: outside of FP8 "},
    {"cpu", "fake", "recipe \"head\" x = f32\n", "'head', fprop: x is f32 and w is fake on cpu: beside a fake "},
    {"cpu", "current", "recipe \"head\" = f32\n", NULL},
    {"cpu", "current", "recipe \"head\" fprop = f32\n", NULL},
    {"cpu", "auto", "", "recipe auto needs a calibration that has observed a batch"},
    /* per-tensor scales combine, whatever they come from; formats and margins are each operand's own */
    {"cpu", "current", "recipe \"head\" x = delayed\nrecipe \"head\" w = current {pow2 = true}\n", NULL},
    {"sm_89", "delayed", "recipe \"*\" dy = current {format = e4m3, margin = 2}\n", NULL},
    {"cpu", "block", "recipe \"head\" dgrad dy = block {format = hybrid, margin = 1}\n", NULL},
    {"cpu", "block", "recipe \"head\" wgrad = rowwise\n", NULL}, /* each GEMM for itself */
    {"cpu", "fake", "recipe \"head\" w = bf16\nrecipe \"h.2.fc\" x = mxfp8 {fake = true}\n", NULL},
    /* targets */
    {"sm_89", "rowwise", "", "'h.2.fc', fprop: x is rowwise and w is rowwise on sm_89: scales of rows exist on sm_90a"},
    {"sm_100a", "rowwise", "", "on sm_100a: scales of rows exist on sm_90a"},
    {"sm_120a", "rowwise_gw_hp", "", "on sm_120a: scales of rows exist on sm_90a"},
    {"sm_100a", "block", "",
     "'h.2.fc', fprop: x is block and w is block on sm_100a: scales of 128-blocks exist on sm_90a"},
    {"sm_89", "block", "", "on sm_89: scales of 128-blocks exist on sm_90a"},
    {"sm_90a", "mxfp8", "",
     "'h.2.fc', fprop: x is mxfp8 and w is mxfp8 on sm_90a: scales of MX exist on sm_100a and sm_120a"},
    {"sm_89", "mxfp8", "", "on sm_89: scales of MX exist on sm_100a and sm_120a"},
    {"sm_90a", "current", "recipe \"head\" = mxfp8\n", "'head', fprop: x is mxfp8 and w is mxfp8 on sm_90a: "},
    {"sm_90a", "rowwise", "", NULL},
    {"sm_90a", "block {pow2 = true}", "", NULL},
    {"sm_100a", "mxfp8", "", NULL},
    {"sm_120a", "mxfp8", "", NULL},
    {"sm_89", "rowwise", "recipe \"*\" = delayed\n", NULL},
    {"sm_89", "fake", "recipe \"head\" = block {fake = true}\n", NULL}, /* a GEMM of bf16 */
};

/* The passes up to scaling. */
static f8_status scale(test_unit *t)
{
    F8_TRY(f8_pass_precision(&t->unit));
    F8_TRY(f8_pass_autodiff(&t->unit));
    F8_TRY(f8_pass_chunk(&t->unit));
    return test_pass_fails(t, f8_pass_scaling);
}

START_TEST(operands_together)
{
    test_unit t;
    begin(&t, together[_i].rules, together[_i].recipe);
    t.unit.options.target = f8_target_by_name(together[_i].target);
    const f8_status status = scale(&t);
    if (together[_i].message) {
        ck_assert_int_eq(status, F8_ERR_UNSUPPORTED);
        ck_assert_msg(strstr(t.diag.text, together[_i].message) != NULL, "'%s' does not say '%s'", t.diag.text,
                      together[_i].message);
        ck_assert_uint_gt(t.diag.loc.line, 9); /* where the linear stands */
    } else {
        ck_assert_msg(status == F8_OK, "%s", t.diag.text);
    }
    test_unit_end(&t);
}
END_TEST

/* Sizes, which the CPU takes as they are: the message names the linear, the GEMM and the rule to write. */
START_TEST(sizes)
{
    static const char text[] =
        "module m\nparam a.weight: f32[32, 40] ones\nparam b.weight: f32[40, 32] ones\n"
        "func forward(%x: f32[32, 32], %t: i32[32]) -> (%loss: f32[]) {\n"
        "  return cross_entropy(linear(tanh(linear(%x, a.weight)), b.weight), %t)\n}\n";
    static const char *const recipes[] = {"delayed", "current"};
    for (int i = 0; i < 2; i++) {
        test_unit t;
        test_unit_parse(&t, text, recipes[i]);
        t.unit.options.target = f8_target_by_name("sm_90a");
        ck_assert_int_eq(scale(&t), F8_ERR_UNSUPPORTED);
        ck_assert_str_eq(t.diag.text,
                         "'a', fprop: FP8 GEMMs of sm_90a have m, n and k that are multiples of 16, but this one has "
                         "m = 32, n = 40, k = 32; write recipe \"a\" = bf16");
        test_unit_end(&t);
        test_unit_parse(&t, text, recipes[i]);
        ck_assert_msg(scale(&t) == F8_OK, "%s", t.diag.text);
        test_unit_end(&t);
    }
}
END_TEST

/* ---- decisions ---- */

static const f8_decision *decision(const test_unit *t, const char *linear, f8_role role)
{
    for (size_t i = 0; i < t->unit.n_decisions; i++)
        if (!strcmp(t->unit.decision[i].linear, linear) && !strcmp(t->unit.decision[i].role, f8_role_name[role]))
            return &t->unit.decision[i];
    ck_abort_msg("no decision on %s %s", linear, f8_role_name[role]);
}

static void decided(const test_unit *t, const char *linear, f8_role role, const char *formats,
                    const char *scaling, const char *reason)
{
    char got[40];
    const f8_decision *d = decision(t, linear, role);
    snprintf(got, sizeof got, "%s %s", d->a, d->b);
    ck_assert_str_eq(got, formats);
    ck_assert_str_eq(d->scaling, scaling);
    ck_assert_str_eq(d->reason, reason);
    ck_assert_int_eq(d->fp8, strstr(formats, "f8") != NULL);
}

START_TEST(decisions)
{
    test_unit t;
    begin(&t,
          "recipe \"head\" = bf16\nrecipe \"h.2.fc\" dy = current {format = e4m3, pow2 = true}\n"
          "recipe \"h.5.*\" wgrad = bf16\n",
          "current");
    ck_assert_msg(scale(&t) == F8_OK, "%s", t.diag.text);
    ck_assert_uint_eq(t.unit.n_decisions, 3 * 8 - 1); /* the first has no dgrad */
    decided(&t, "head", F8_FPROP, "bf16 bf16", "none", "recipe \"head\" = bf16 (line 16)");
    decided(&t, "h.7.fc", F8_FPROP, "f8e4m3 f8e4m3", "current", "the recipe asked for");
    decided(&t, "h.7.fc", F8_DGRAD, "f8e5m2 f8e4m3", "current", "the recipe asked for");
    decided(&t, "h.7.fc", F8_WGRAD, "f8e4m3 f8e5m2", "current", "the recipe asked for");
    decided(&t, "h.2.fc", F8_WGRAD, "f8e4m3 f8e4m3", "current; current {format = e4m3, pow2 = true}",
            "the recipe asked for; recipe \"h.2.fc\" dy = current {format = e4m3, pow2 = true} (line 17)");
    decided(&t, "h.5.fc", F8_WGRAD, "bf16 bf16", "none", "recipe \"h.5.*\" wgrad = bf16 (line 18)");
    decided(&t, "h.5.fc.2", F8_DGRAD, "f8e5m2 f8e4m3", "current", "the recipe asked for");
    test_unit_end(&t);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("rules");
    TCase *t = tcase_create("rules");
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, every_option, 0, RECIPES);
    tcase_add_test(t, names);
    tcase_add_test(t, fields);
    tcase_add_loop_test(t, recipe_messages, 0, sizeof bad_recipes / sizeof *bad_recipes);
    tcase_add_test(t, granularities);
    tcase_add_test(t, layers_of_names);
    tcase_add_test(t, patterns);
    tcase_add_test(t, rule_alone);
    tcase_add_loop_test(t, rule_messages, 0, sizeof bad_rules / sizeof *bad_rules);
    tcase_add_loop_test(t, who_wins, 0, sizeof precedence / sizeof *precedence);
    tcase_add_test(t, rules_beside_the_text);
    tcase_add_test(t, rules_without_linears);
    tcase_add_loop_test(t, operands_together, 0, sizeof together / sizeof *together);
    tcase_add_test(t, sizes);
    tcase_add_test(t, decisions);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    const int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}
