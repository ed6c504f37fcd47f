/* What `fp8c explain` says of a model: the table of GEMMs under each recipe and under rules, and
 * the same as records. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "frontend/fp8c.h"
#include "tests/shared/api/cli.h"
#include "tests/shared/suite.h"

#define GPT "frontend/models/gpt.f8"
#define SMALL "-D", "B=2", "-D", "T=32", "-D", "L=1", "-D", "C=32", "-D", "H=2"

static int count(const char *text, const char *word)
{
    int n = 0;
    for (const char *p = text; (p = strstr(p, word)); p += strlen(word))
        n++;
    return n;
}

/* Lines of the table for one GEMM role. */
static int lines_of_role(const char *text, const char *role)
{
    char word[16];
    snprintf(word, sizeof word, " %-6s ", role);
    return count(text, word);
}

START_TEST(explain_recipes)
{
    /* linears of gpt.f8 with 2 blocks: 4 a block and the head, which the text keeps in bf16 */
    static const struct {
        const char *recipe;
        int fp8, excluded;
    } want[] = {{"f32", 0, 27}, {"bf16", 0, 27}, {"delayed", 24, 3}, {"current", 24, 3}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        const f8_cli_result r =
            F8_CLI("explain", GPT, "--recipe", want[i].recipe, SMALL, "-D", "L=2");
        f8_cli_ok(r);
        char counts[128];
        snprintf(counts, sizeof counts,
                 "9 linears; of their GEMMs in a micro-step %d are planned in FP8, %d not\n",
                 want[i].fp8, want[i].excluded);
        ck_assert_msg(strstr(r.out, counts) != NULL, "%s", r.out);
        ck_assert_int_eq(lines_of_role(r.out, "fprop"), 9);
        ck_assert_int_eq(lines_of_role(r.out, "dgrad"), 9);
        ck_assert_int_eq(lines_of_role(r.out, "wgrad"), 9);
        ck_assert_int_eq(count(r.out, "f8e4m3 x f8e4m3"), want[i].fp8 / 3);
        if (want[i].fp8)
            ck_assert_int_eq(count(r.out, "recipe \"lm_head\" = bf16"), 3);
    }
}
END_TEST

/* The line of the table for one GEMM, or what it lacks. */
static const char *line_of(const char *table, const char *linear, const char *role)
{
    static char line[400];
    char begin[64];
    for (const char *at = table; at; at = strchr(at, '\n') ? strchr(at, '\n') + 1 : NULL) {
        snprintf(line, sizeof line, "%.*s", (int)strcspn(at, "\n"), at);
        snprintf(begin, sizeof begin, "%s ", linear);
        const char *second = line + strcspn(line, " ");
        second += strspn(second, " ");
        if (!strncmp(line, begin, strlen(begin)) && !strncmp(second, role, strlen(role)))
            return line;
    }
    ck_abort_msg("no line of %s %s in\n%s", linear, role, table);
}

/* linear, role, and the line's end from the formats on, runs of spaces as one. */
static void decided(const char *table, const char *linear, const char *role, const char *want)
{
    char got[400], *to = got;
    const char *line = line_of(table, linear, role);
    for (const char *p = strstr(line, role) + strlen(role); *p; p++)
        if (*p != ' ' || (p[1] != ' ' && to > got))
            *to++ = *p;
    *to = 0;
    ck_assert_str_eq(got, want);
}

#define EXPLAIN(...)                                                                               \
    F8_CLI("explain", GPT, "--target", "reference", "-D", "B=2", "-D", "T=32", "-D", "C=32", "-D", \
           "H=2", "-D", "L=3", __VA_ARGS__)

/* Rules by role, by operand and by layer. The last rule that matches wins; those of the command
 * line come after those of the text, in the order given. */
START_TEST(explain_rules)
{
    f8_cli_result r = EXPLAIN("--recipe", "current", "--rule", "\"h.*\" wgrad = bf16", "--rule",
                              "\"h.1.mlp.c_fc\" wgrad = delayed{history=4}");
    f8_cli_ok(r);
    decided(r.out, "h.1.attn.c_attn", "wgrad",
            "bf16 x bf16 none 32x96x64 recipe \"h.*\" wgrad = bf16 (--rule)");
    decided(r.out, "h.1.attn.c_attn", "dgrad",
            "f8e5m2 x f8e4m3 current 64x32x96 recipe \"h.*\" = auto (line 52)");
    decided(r.out, "h.1.mlp.c_fc", "wgrad",
            "f8e4m3 x f8e5m2 delayed {history = 4} 32x128x64 "
            "recipe \"h.1.mlp.c_fc\" wgrad = delayed {history = 4} (--rule)");
    decided(r.out, "lm_head", "wgrad",
            "bf16 x bf16 none 256x32x64 recipe \"lm_head\" = bf16 (line 53)");
    ck_assert_ptr_nonnull(strstr(
        r.out, "13 linears; of their GEMMs in a micro-step 25 are planned in FP8, 14 not\n"));

    r = EXPLAIN("--recipe=current", "--rule", "\"*.c_fc\" dgrad dy = current {format = e4m3}");
    f8_cli_ok(r);
    decided(r.out, "h.0.mlp.c_fc", "dgrad",
            "f8e4m3 x f8e4m3 current {format = e4m3}; current 64x32x128 "
            "recipe \"*.c_fc\" dgrad dy = current {format = e4m3} (--rule); recipe \"h.*\" = auto "
            "(line 52)");
    decided(r.out, "h.0.mlp.c_fc", "wgrad",
            "f8e4m3 x f8e5m2 current 32x128x64 recipe \"h.*\" = auto (line 52)");

    r = EXPLAIN("--recipe=block", "--rule", "layers 1, 1 = bf16", "--rule",
                "\"h.2.mlp.*\" = rowwise");
    f8_cli_ok(r);
    decided(r.out, "h.0.mlp.c_fc", "fprop",
            "bf16 x bf16 none 64x128x32 recipe layers 1, 1 = bf16 (--rule)");
    decided(r.out, "h.1.mlp.c_fc", "fprop",
            "f8e4m3 x f8e4m3 block 64x128x32 recipe \"h.*\" = auto (line 52)");
    decided(r.out, "h.2.attn.c_proj", "dgrad",
            "bf16 x bf16 none 64x32x32 recipe layers 1, 1 = bf16 (--rule)");
    decided(r.out, "h.2.mlp.c_fc", "wgrad",
            "f8e4m3 x f8e4m3 rowwise 32x128x64 recipe \"h.2.mlp.*\" = rowwise (--rule)");

    r = EXPLAIN("--recipe=block", "--rule", "\"h.2.mlp.*\" = rowwise", "--rule=layers 0, 1 = bf16");
    f8_cli_ok(r);
    decided(r.out, "h.2.mlp.c_fc", "wgrad",
            "bf16 x bf16 none 32x128x64 recipe layers 0, 1 = bf16 (--rule)");
    decided(r.out, "h.0.mlp.c_fc", "wgrad",
            "f8e4m3 x f8e4m3 block 32x128x64 recipe \"h.*\" = auto (line 52)");

    r = EXPLAIN("--recipe=rowwise_gw_hp");
    f8_cli_ok(r);
    decided(r.out, "h.0.mlp.c_fc", "wgrad",
            "bf16 x bf16 none 32x128x64 recipe \"h.*\" = auto (line 52): rowwise_gw_hp keeps wgrad "
            "in bf16");
}
END_TEST

/* Rules on the command line print, check and fail as those of the text do. */
START_TEST(rules_on_the_command_line)
{
    const f8_cli_result r =
        F8_CLI("print", GPT, "--rule", "\"lm_head\" fprop w=block{pow2=true}", "--rule",
               "layers 2, 3 = bf16", "--rule", "\"h.{L - 1}.*\" = bf16");
    f8_cli_ok(r);
    ck_assert_ptr_nonnull(strstr(
        r.out, "\nrecipe \"lm_head\" = bf16\nrecipe \"lm_head\" fprop w = block {pow2 = true}\n"
               "recipe layers 2, 3 = bf16\nrecipe \"h.3.*\" = bf16\n"));
    f8_cli_ok(F8_CLI("check", GPT, "--rule", "\"h.*\" = mxfp8"));
    static const char *const commands[] = {"check", "print", "explain", "compile", "train"};
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        const char *c = commands[i], *data = i == 4
                                                 ? "--data=" GPT /* all others would refuse that */
                                             : i == 1 ? "--print-after=scaling"
                                                      : NULL;
        f8_cli_fails(
            F8_CLI(c, GPT, "--target=sm_90a", "--recipe=block", "--rule", "\"nope\" = bf16", data),
            1,
            "frontend/models/gpt.f8: error: --rule: recipe \"nope\" matches no linear of 'gpt'\n");
        f8_cli_fails(F8_CLI(c, GPT, "--recipe", "block {\n tile = 3}", data), 1,
                     "--recipe 'block {\n tile = 3}': error: recipe 'block' has no option 'tile': "
                     "it has format, margin, pow2, "
                     "fake\n");
        f8_cli_fails(
            F8_CLI(c, GPT, "--target=sm_90a", "--recipe=block", "--rule", "\"h.*\" wgrad w = bf16",
                   data),
            1,
            "--rule:1:1: error: wgrad has no operand w: its operands are x and dy\n    1 | "
            "\"h.*\" wgrad w = bf16\n      | ^\n");
    }
}
END_TEST

static void has(const json_t *record, const char *field, json_type type)
{
    const json_t *v = json_object_get(record, field);
    ck_assert_msg(
        v && (json_typeof(v) == type || (type == JSON_TRUE && json_typeof(v) == JSON_FALSE)),
        "no '%s' of the right type in %s", field, json_dumps(record, JSON_COMPACT));
}

/* Launches of micro_step, as its kernels' records say and as the plan's record says. */
static int launched[2];

static void explained_record(const json_t *r, int counts[3])
{
    const char *event = json_string_value(json_object_get(r, "event"));
    ck_assert_ptr_nonnull(event);
    if (!strcmp(event, "decision")) {
        static const char *const texts[] = {"gemm", "role", "scaling", "reason"};
        for (int i = 0; i < 4; i++)
            has(r, texts[i], JSON_STRING);
        ck_assert_uint_eq(json_array_size(json_object_get(r, "format")), 2);
        has(r, "m", JSON_INTEGER);
        has(r, "fp8", JSON_TRUE);
        counts[0]++;
    } else if (!strcmp(event, "kernel")) {
        has(r, "name", JSON_STRING);
        has(r, "hash", JSON_STRING);
        has(r, "seconds", JSON_REAL);
        has(r, "bytes_read", JSON_INTEGER);
        if (!strcmp(json_string_value(json_object_get(r, "function")), "micro_step"))
            launched[0] += strcmp(json_string_value(json_object_get(r, "kind")), "kernel")
                               ? 1
                               : (int)json_integer_value(json_object_get(r, "phases"));
        counts[1]++;
    } else if (!strcmp(event, "choice")) {
        has(r, "problem", JSON_STRING);
        has(r, "candidate", JSON_STRING);
        has(r, "gemm", JSON_TRUE);
        has(r, "count", JSON_INTEGER);
        has(r, "tuned", JSON_TRUE);
        counts[2]++;
    } else {
        ck_assert_str_eq(event, "plan");
        ck_assert_int_eq(json_integer_value(json_object_get(r, "linears")), 5);
        ck_assert_int_eq(json_integer_value(json_object_get(r, "fp8_gemms_planned")), 12);
        has(r, "planned_peak_bytes", JSON_INTEGER);
        static const char *const kinds[] = {"kernels", "gemms", "copies", "attention"};
        const json_t *launches = json_object_get(r, "launches");
        for (int i = 0; i < 4; i++) {
            has(launches, kinds[i], JSON_INTEGER);
            launched[1] += (int)json_integer_value(json_object_get(launches, kinds[i]));
        }
    }
}

/* The records on stdout, with nothing between them. */
START_TEST(explain_json)
{
    const f8_cli_result r =
        F8_CLI("explain", GPT, "--recipe", "current", "--kernels", "--json", "-", SMALL);
    int counts[3] = {0}, lines = 0;
    f8_cli_ok(r);
    for (char *save, *line = strtok_r(r.out, "\n", &save); line;
         line = strtok_r(NULL, "\n", &save)) {
        json_error_t error;
        json_t *record = json_loads(line, 0, &error);
        ck_assert_msg(record != NULL, "%s: %s", error.text, line);
        explained_record(record, counts);
        json_decref(record);
        lines++;
    }
    ck_assert_int_eq(counts[0], 15);
    ck_assert_int_gt(counts[1], 20);
    ck_assert_int_gt(counts[2], 20);
    ck_assert_int_eq(lines, counts[0] + counts[1] + counts[2] + 1);
    ck_assert_int_gt(launched[0], 20);
    ck_assert_int_eq(launched[0], launched[1]);
}
END_TEST

/* ---- several ranks ---- */

#define RANKS(n, stage, ...)                                                                       \
    F8_CLI("explain", GPT, "--recipe", "delayed", "--ranks", n, "--zero", stage, "-D", "B=2",      \
           "-D", "T=32", "-D", "L=2", __VA_ARGS__)

typedef struct exchanged {
    int n, beside, waits; /* records; steps beside them; those that a step waits for */
    int64_t sent;         /* in micro_step */
    bool codes, f32;
} exchanged;

static void add_record(exchanged *e, const json_t *record, int ranks)
{
    const char *event, *function, *op, *name, *dtype, *kind, *step_name;
    json_t *wait, *beside, *b;
    json_int_t step, of, bytes, sent;
    size_t i;
    ck_assert_int_eq(json_unpack((json_t *)record, "{ss ss sI ss ss ss sI sI sI so so}", "event",
                                 &event, "function", &function, "step", &step, "op", &op, "name",
                                 &name, "dtype", &dtype, "ranks", &of, "bytes", &bytes,
                                 "bytes_sent", &sent, "wait", &wait, "beside", &beside),
                     0);
    ck_assert_int_eq(of, ranks);
    ck_assert_int_eq(sent, bytes * (ranks - 1));
    ck_assert(!strcmp(op, "all_gather") || !strcmp(op, "all_to_all"));
    ck_assert_msg(strcmp(name, op), "%s: collective %d has no name of a tensor", function,
                  (int)step);
    ck_assert_msg(json_integer_value(wait) > step, "nothing waits for %s", name);
    json_array_foreach (beside, i, b) {
        ck_assert_int_eq(json_unpack(b, "{ss ss}", "kind", &kind, "name", &step_name), 0);
        ck_assert_str_ne(kind, "wait");
        ck_assert_str_ne(kind, "collective");
    }
    if (strcmp(function, "micro_step"))
        return;
    e->n++;
    e->beside += (int)json_array_size(beside);
    e->sent += sent;
    e->codes |= !strcmp(dtype, "f8e4m3") && !strcmp(op, "all_gather");
    e->f32 |= !strcmp(dtype, "f32") && !strcmp(op, "all_to_all");
}

static exchanged exchanged_of(char *records, int ranks)
{
    exchanged e = {0};
    for (char *save, *line = strtok_r(records, "\n", &save); line;
         line = strtok_r(NULL, "\n", &save)) {
        json_t *record = json_loads(line, 0, NULL);
        ck_assert_msg(record != NULL, "%s", line);
        if (!strcmp(json_string_value(json_object_get(record, "event")), "collective"))
            add_record(&e, record, ranks);
        json_decref(record);
    }
    return e;
}

/* A line of the table of micro_step for each collective, in columns, under their sum. */
static void same_table(const char *text, const exchanged *e, const char *ranks)
{
    char head[160];
    snprintf(head, sizeof head,
             "\nmicro_step: each of %s ranks sends %.1f KiB to the others, and receives as much, "
             "in %d collectives\n",
             ranks, (double)e->sent / 1024, e->n);
    const char *at = strstr(text, head);
    ck_assert_msg(at != NULL, "no '%s' in\n%s", head, text);
    at += strlen(head);
    const char *second = strstr(at, "goes on beside");
    ck_assert_ptr_nonnull(second);
    const size_t column = (size_t)(second - at);
    ck_assert_int_eq(strncmp(at, "op              dtype   ranks   sent KiB  name ", 46), 0);
    for (int i = 0; i < e->n; i++) {
        at = strchr(at, '\n') + 1;
        ck_assert_msg(at[column - 1] == ' ' && at[column] != ' ' && !strncmp(at, "all_", 4), "%s",
                      at);
    }
    ck_assert_int_ne(strncmp(strchr(at, '\n') + 1, "all_", 4), 0);
}

START_TEST(explain_ranks)
{
    f8_cli_result r = RANKS("4", "3", "--json", "-");
    f8_cli_ok(r);
    const exchanged all = exchanged_of(r.out, 4);
    ck_assert_int_gt(all.n, 20);
    ck_assert_int_gt(all.beside, all.n);
    ck_assert(all.codes && all.f32);
    r = RANKS("4", "3", "--kernels");
    f8_cli_ok(r);
    same_table(r.out, &all, "4");
    ck_assert_ptr_nonnull(strstr(r.out, " GEMMs: "));

    r = RANKS("2", "1", "--json", "-");
    f8_cli_ok(r);
    const exchanged two = exchanged_of(r.out, 2);
    ck_assert(!two.codes && two.f32 && two.n < all.n);
    r = RANKS("2", "1", "--recipe", "delayed");
    f8_cli_ok(r);
    same_table(r.out, &two, "2");
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("explain");
    TCase *t = tcase_create("explain");
    tcase_set_timeout(t, 600);
    tcase_add_checked_fixture(t, f8_cli_setup, f8_cli_teardown);
    tcase_add_test(t, explain_recipes);
    tcase_add_test(t, explain_rules);
    tcase_add_test(t, rules_on_the_command_line);
    tcase_add_test(t, explain_json);
    tcase_add_test(t, explain_ranks);
    suite_add_tcase(s, t);
    return s;
}
