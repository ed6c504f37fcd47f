/* `fp8c plan`, and the options --memory, --checkpoint and --recompute of the other commands, as a
 * user meets them. */
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/shared/api/cli.h"
#include "tests/shared/suite.h"

#define GPT "frontend/models/gpt.f8"
#define SMALL "-D", "B=2", "-D", "T=32", "-D", "L=2", "-D", "C=32", "-D", "H=2"

enum { TIMEOUT = 600, MOST = 1000 };

/* ---- records ---- */

typedef struct records {
    json_t *record[MOST];
    int n;
} records;

static void parse(records *to, char *text)
{
    to->n = 0;
    for (char *save, *line = strtok_r(text, "\n", &save); line;
         line = strtok_r(NULL, "\n", &save)) {
        json_error_t error;
        ck_assert_int_lt(to->n, MOST);
        to->record[to->n] = json_loads(line, 0, &error);
        ck_assert_msg(to->record[to->n] != NULL, "%s: %s", error.text, line);
        to->n++;
    }
}

static void drop(records *r)
{
    for (int i = 0; i < r->n; i++)
        json_decref(r->record[i]);
}

static const char *text_of(const json_t *r, const char *field)
{
    const char *text = json_string_value(json_object_get(r, field));
    ck_assert_msg(text != NULL, "no text '%s' in %s", field, json_dumps(r, JSON_COMPACT));
    return text;
}

static double number(const json_t *r, const char *field)
{
    const json_t *v = json_object_get(r, field);
    ck_assert_msg(json_is_number(v), "no number '%s' in %s", field, json_dumps(r, JSON_COMPACT));
    return json_number_value(v);
}

static bool is(const json_t *r, const char *field, const char *value)
{
    return !strcmp(text_of(r, field), value);
}

/* The record of that event, the `index`th; NULL past the last. */
static const json_t *find(const records *all, const char *event, int index)
{
    for (int i = 0; i < all->n; i++)
        if (is(all->record[i], "event", event) && index-- == 0)
            return all->record[i];
    return NULL;
}

/* ---- plan ---- */

static void check_memory_record(const json_t *r)
{
    const char *name;
    json_t *value;
    json_int_t sum = 0, arena = 0;
    int n = 0;
    json_object_foreach (json_object_get(r, "bytes"), name, value) {
        sum += json_integer_value(value);
        if (!strcmp(name, "activations") || !strcmp(name, "FP8 copies") ||
            !strcmp(name, "weight copies") || !strcmp(name, "recomputed") ||
            !strcmp(name, "workspace"))
            arena += json_integer_value(value);
        n++;
    }
    ck_assert_int_eq(n, 14);
    ck_assert_int_eq(sum, (json_int_t)number(r, "planned_bytes"));
    ck_assert_int_eq(arena, (json_int_t)number(r, "alive_bytes"));
    ck_assert_double_le(number(r, "activation_bytes"), number(r, "alive_bytes"));
    ck_assert_double_le(number(r, "alive_bytes"), number(r, "arena_bytes"));
    ck_assert_double_gt(number(r, "seconds"), 0);
    text_of(r, "step");
}

/* Each budget takes less memory than the one before; the last says what the least is. gpt.f8 has
 * one micro-step. */
static void check_budgets(const records *all)
{
    const json_t *r, *first = find(all, "budget", 0), *before = NULL;
    int n = 0;
    ck_assert_double_eq(number(first, "share"), 1);
    ck_assert_double_eq(number(first, "extra_seconds"), 0);
    for (; (r = find(all, "budget", n)) && !json_object_get(r, "error"); before = r, n++) {
        const double left = number(r, "arena_bytes"), most = number(r, "arena_budget");
        const double wish = number(first, "arena_bytes") -
                            (1 - number(r, "share")) * number(first, "activation_bytes");
        if (!before)
            continue;
        ck_assert_double_lt(number(r, "share"), number(before, "share"));
        ck_assert_double_le(left, most);
        ck_assert_double_eq_tol(most, wish, 2); /* cut to whole bytes on both sides */
        ck_assert_double_lt(left, number(first, "arena_bytes"));
        ck_assert_double_lt(number(r, "planned_bytes"), number(first, "planned_bytes"));
        ck_assert_double_gt(number(r, "recomputed"), 0);
        /* seldom less than nothing: what is recomputed may share a kernel's reads */
        ck_assert_double_eq_tol(number(r, "extra"),
                                number(r, "extra_seconds") / number(first, "seconds"), 1e-9);
        ck_assert_double_gt(number(r, "extra"), -0.05);
    }
    ck_assert_int_gt(n, 4);
    if (r) {
        ck_assert_ptr_nonnull(strstr(text_of(r, "error"), "the least possible share"));
        ck_assert_ptr_null(find(all, "budget", n + 1));
    } else {
        ck_assert_int_eq(n, 13);
    }
}

static double codes_of(const records *all)
{
    const json_t *memory = find(all, "memory", 0);
    return (double)json_integer_value(
        json_object_get(json_object_get(memory, "bytes"), "weight codes"));
}

/* Codes of weights are in the plan. With a budget none are kept: the rows of the table are those of
 * a program without. */
START_TEST(plan_of_codes)
{
    records with, without;
    f8_cli_result r =
        F8_CLI("plan", GPT, "--recipe", "delayed", "--budgets", "0.7,0.5", "--json", "-", SMALL);
    f8_cli_ok(r);
    parse(&with, r.out);
    r = F8_CLI("plan", GPT, "--recipe", "delayed", "--budgets", "0.7,0.5", "--requantize", "--json",
               "-", SMALL);
    f8_cli_ok(r);
    parse(&without, r.out);
    ck_assert_double_gt(codes_of(&with), 0);
    ck_assert_double_eq(codes_of(&without), 0);
    for (int i = 1; i < 3; i++)
        ck_assert_double_eq(number(find(&with, "budget", i), "planned_bytes"),
                            number(find(&without, "budget", i), "planned_bytes"));
    drop(&with);
    drop(&without);
}
END_TEST

START_TEST(plan_records)
{
    static const char *const targets[] = {"cpu", "sm_90a", "sm_100a"};
    records all;
    if (_i > 0 && f8_cli_sanitized()) /* a dozen plans each, of the same code */
        return;
    const f8_cli_result r = F8_CLI("plan", GPT, "--recipe", _i == 2 ? "mxfp8" : "delayed",
                                   "--target", targets[_i], "--requantize", "--json", "-", SMALL);
    f8_cli_ok(r);
    parse(&all, r.out);
    const json_t *m;
    bool micro = false;
    for (int i = 0; (m = find(&all, "memory", i)); i++) {
        check_memory_record(m);
        ck_assert(is(m, "target", targets[_i]));
        micro |= is(m, "function", "micro_step");
        ck_assert(is(m, "function", "micro_step") || is(m, "function", "micro_step.first") ||
                  number(m, "activation_bytes") == 0);
    }
    ck_assert(micro);
    double before = 1e30;
    int tensors = 0, kept = 0;
    for (const json_t *t; (t = find(&all, "tensor", tensors)); tensors++) {
        ck_assert_double_le(number(t, "bytes"), before);
        before = number(t, "bytes");
        ck_assert(*text_of(t, "name") && strchr(text_of(t, "type"), '['));
        kept += is(t, "category", "FP8 copies");
    }
    ck_assert_int_gt(tensors, 60);
    ck_assert_int_ge(kept, 8); /* four linears a layer */
    check_budgets(&all);
    drop(&all);
}
END_TEST

/* The text says the same, and names the recipe it is for. For one budget there is no table. */
START_TEST(plan_within_a_budget)
{
    const f8_cli_result r =
        F8_CLI("plan", GPT, "--recipe", "block {pow2 = true}", "--memory", "0.6", SMALL);
    static const char *const says[] = {
        "target cpu, recipe block {pow2 = true}: memory at the peak of micro_step, at '",
        "MiB  parameters\n",
        "MiB  FP8 copies (arena)\n",
        "MiB  recomputed (arena)\n",
        "MiB  in all\n",
        "the largest tensors in the arena at the peak: made by -> last read by\n",
        "the largest variables and buffers, which always take memory\n",
        "estimated: ",
        "this reduces its arena from "};
    f8_cli_ok(r);
    for (size_t i = 0; i < sizeof says / sizeof *says; i++)
        ck_assert_msg(strstr(r.out, says[i]), "no '%s' in\n%s", says[i], r.out);
    ck_assert_ptr_null(strstr(r.out, "budget costs"));
    ck_assert_ptr_null(strstr(r.out, "more time"));
}
END_TEST

/* What a run launches: of each of a layer's four linears and of the head fprop, dgrad and wgrad are
 * GEMMs. Kernels and the rest are as many as explain lists. */
START_TEST(plan_counts_launches)
{
    enum { LAYERS = 2, GEMMS = 3 * (4 * LAYERS + 1), KINDS = 4 };
    static const char *const kinds[KINDS][2] = {
        {"kernel", "kernels"}, {"gemm", "GEMMs"}, {"copy", "copies"}, {"attention", "attention"}};
    int listed[KINDS] = {0};
    char want[120];
    records all;
    f8_cli_result r = F8_CLI("explain", GPT, "--recipe", "bf16", "--kernels", "--json", "-", SMALL);
    f8_cli_ok(r);
    parse(&all, r.out);
    const json_t *k;
    for (int i = 0; (k = find(&all, "kernel", i)); i++)
        for (int j = 0; j < KINDS; j++)
            listed[j] += is(k, "function", "micro_step") && is(k, "kind", kinds[j][0]);
    drop(&all);
    r = F8_CLI("plan", GPT, "--recipe", "bf16", "--budgets", "0.9", "--json", "-", SMALL);
    f8_cli_ok(r);
    parse(&all, r.out);
    const json_t *m = NULL;
    for (int i = 0; (m = find(&all, "memory", i)) && !is(m, "function", "micro_step"); i++)
        ;
    ck_assert_ptr_nonnull(m);
    for (int j = 0; j < KINDS; j++)
        ck_assert_int_eq((int)number(json_object_get(m, "launches"), kinds[j][1]), listed[j]);
    ck_assert_int_eq(listed[1], GEMMS);
    drop(&all);
    r = F8_CLI("plan", GPT, "--recipe", "bf16", "--budgets", "0.9", SMALL);
    snprintf(want, sizeof want, "a run of micro_step launches %d kernels, %d GEMMs, ", listed[0],
             listed[1]);
    ck_assert_msg(strstr(r.out, want) != NULL, "no '%s' in\n%s", want, r.out);
}
END_TEST

#define RANKS "--recipe", "bf16", "--ranks", "2", "--zero", "2", "-D", "B=4", "-D", "T=64"

/* The record of a function's memory in the plan for one budget, or for none. */
static double update_arena(const char *memory, double *in_all)
{
    records all;
    const json_t *m;
    f8_cli_result r = memory ? F8_CLI("plan", GPT, RANKS, "--memory", memory, "--json", "-")
                             : F8_CLI("plan", GPT, RANKS, "--budgets", "0.9", "--json", "-");
    f8_cli_ok(r);
    parse(&all, r.out);
    for (int i = 0; (m = find(&all, "memory", i)) && !is(m, "function", "update"); i++)
        ;
    ck_assert_ptr_nonnull(m);
    const double bytes = number(m, "arena_bytes");
    *in_all = number(m, "planned_bytes");
    drop(&all);
    return bytes;
}

/* update exchanges bytes as often as explain lists. Two of its buckets are under way if micro_step
 * needs that much memory. It does not under this budget: then there is one, and the row of the
 * curve has what the plan for the budget has. */
START_TEST(plan_says_what_update_gathers)
{
    records all;
    const json_t *k;
    int exchanges = 0, rows = 0;
    double plain, tight, row = 0;
    char want[160];
    f8_cli_result r = F8_CLI("explain", GPT, RANKS, "--json", "-");
    f8_cli_ok(r);
    parse(&all, r.out);
    for (int i = 0; (k = find(&all, "collective", i)); i++)
        exchanges += is(k, "function", "update");
    drop(&all);
    ck_assert_int_eq(exchanges, 4);
    const double two = update_arena(NULL, &plain), one = update_arena("0.5", &tight);
    ck_assert_double_gt(two, one);
    ck_assert_double_gt(plain, tight);
    r = F8_CLI("plan", GPT, RANKS, "--budgets", "0.5", "--json", "-");
    f8_cli_ok(r);
    parse(&all, r.out);
    for (int i = 0; (k = find(&all, "budget", i)); i++)
        if (number(k, "share") < 1) {
            row = number(k, "planned_bytes");
            rows++;
        }
    drop(&all);
    ck_assert_int_eq(rows, 1);
    ck_assert_double_eq(row, tight);
    r = F8_CLI("plan", GPT, RANKS, "--budgets", "0.5");
    snprintf(want, sizeof want,
             "a run of update exchanges bytes %d times, and takes %.2f MiB of the arena\n",
             exchanges, two / (1 << 20));
    ck_assert_msg(strstr(r.out, want) != NULL, "no '%s' in\n%s", want, r.out);
    r = F8_CLI("plan", GPT, "--budgets", "0.9", SMALL); /* one rank exchanges nothing */
    ck_assert_ptr_null(strstr(r.out, "update exchanges"));
}
END_TEST

/* The number of parameters comes first: embeddings of tokens and positions, the last layernorm, and
 * in each layer two layernorms and four linears with biases. The head is the embedding. */
START_TEST(plan_counts_parameters)
{
    enum { C = 32, L = 2, T = 32, V = 256, LAYER = 12 * C * C + 13 * C };
    char want[64];
    snprintf(want, sizeof want, ": %d parameters (", V * C + T * C + L * LAYER + 2 * C);
    f8_cli_result r = F8_CLI("plan", GPT, "--budgets", "0.9", SMALL);
    f8_cli_ok(r);
    ck_assert_msg(strstr(r.out, want) && strstr(r.out, want) < strchr(r.out, '\n'),
                  "no '%s' in the first line of\n%s", want, r.out);
    records all;
    r = F8_CLI("plan", GPT, "--budgets", "0.9", "--json", "-", SMALL);
    f8_cli_ok(r);
    parse(&all, r.out);
    ck_assert_int_eq((int)number(find(&all, "memory", 0), "parameters"),
                     V * C + T * C + L * LAYER + 2 * C);
    drop(&all);
}
END_TEST

/* The table has the budgets that --budgets lists and no others, the largest first. Each row is
 * written as soon as its plan is known, and the model's own figures before the first plan. */
START_TEST(plan_of_some_budgets)
{
    static const char *const budgets[] = {"none", "0.60", "0.425", "0.30"};
    const char *const args[] = {"plan", GPT, "--budgets", "0.3,0.6,0.425,0.3", SMALL, NULL};
    const f8_cli_result r = f8_cli_run_writes(args);
    f8_cli_ok(r);
    char *at = strstr(r.out, "what a budget costs");
    const char *estimated = strstr(r.out, "estimated: ");
    ck_assert(at && estimated && memchr(estimated, F8_CLI_WRITE, (size_t)(at - estimated)));
    at = strchr(strchr(at, '\n') + 1, '\n') + 1; /* the table's head */
    for (int i = 0; i < 4; i++) {
        char name[16];
        int used = 0;
        ck_assert_msg(sscanf(at, "%15s%n", name, &used) == 1 && !strcmp(name, budgets[i]),
                      "not '%s' in '%s'", budgets[i], at);
        ck_assert_int_eq(used, 7); /* the column's width */
        at = strchr(at, '\n') + 1;
        ck_assert_msg(*at == F8_CLI_WRITE, "'%s' waits for '%s'", budgets[i], at);
        at++;
    }
    ck_assert_str_eq(at, "");
}
END_TEST

/* A row is what a compile within that budget plans, or nearly: its search starts elsewhere. */
START_TEST(plan_rows_are_plans)
{
    records table, one;
    f8_cli_result r =
        F8_CLI("plan", GPT, "--recipe", "delayed", "--json", "-", "--budgets", "0.8,0.5", SMALL);
    f8_cli_ok(r);
    parse(&table, r.out);
    static const char *const shares[] = {"0.8", "0.5"};
    for (int i = 0; i < 2; i++) {
        const json_t *row = find(&table, "budget", i + 1);
        r = F8_CLI("plan", GPT, "--recipe", "delayed", "--json", "-", "--memory", shares[i], SMALL);
        f8_cli_ok(r);
        parse(&one, r.out);
        const json_t *m = NULL;
        for (int k = 0; (m = find(&one, "memory", k)) && !is(m, "function", "micro_step"); k++)
            ;
        ck_assert_ptr_nonnull(m);
        ck_assert_ptr_null(find(&one, "budget", 0));
        ck_assert_double_le(number(m, "arena_bytes"), number(row, "arena_budget"));
        ck_assert_double_le(number(row, "arena_bytes"), number(row, "arena_budget"));
        ck_assert_double_eq_tol(number(m, "planned_bytes") - number(m, "arena_bytes"),
                                number(row, "planned_bytes") - number(row, "arena_bytes"), 4096);
        drop(&one);
    }
    drop(&table);
}
END_TEST

START_TEST(bad_budgets)
{
    static const char *const bad[] = {"",   "0",      "1",       "1.5", "-0.5",   "0.5,",
                                      ",",  "0.5,,1", "0.5;0.1", "50%", "0.5 ,1", "nan",
                                      "6G", "0.5G",   "0x0.8",   ".",   "+0.5"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        f8_cli_fails(F8_CLI("plan", GPT, "--budgets", bad[i]), 2, "bad value for --budgets: ");
    f8_cli_fails(F8_CLI("plan", GPT, "--budgets", "0.5", "--memory", "0.5"), 2,
                 "fp8c plan: --budgets asks for a table");
    f8_cli_fails(F8_CLI("plan", GPT, "--budgets", "0.5", "--checkpoint", "x.*"), 2,
                 "fp8c plan: --budgets asks for a table");
    f8_cli_fails(F8_CLI("train", GPT, "--budgets", "0.5"), 2, "no such option '--budgets'");
}
END_TEST

/* A table to read and records in a file. */
START_TEST(plan_to_a_file)
{
    records all;
    size_t n;
    const char *path = f8_cli_temp("plan.json");
    const f8_cli_result r = F8_CLI("plan", GPT, "--json", path, "--checkpoint", "x.*", SMALL);
    f8_cli_ok(r);
    ck_assert_ptr_nonnull(strstr(r.out, "each micro_step recomputes "));
    ck_assert_ptr_null(strstr(r.out, "what a budget costs")); /* the patterns say what is kept */
    char *text = f8_cli_read(path, &n);
    parse(&all, text);
    free(text);
    ck_assert_ptr_nonnull(find(&all, "memory", 1));
    ck_assert_ptr_null(find(&all, "budget", 0));
    drop(&all);
    f8_cli_fails(F8_CLI("plan", GPT, "--json", "/nowhere/x", SMALL), 1, "/nowhere/x: error: ");
}
END_TEST

START_TEST(plan_wrong_usage)
{
    f8_cli_fails(F8_CLI("plan"), 2, "an argument is missing: 'FILE.f8");
    f8_cli_fails(F8_CLI("plan", GPT, "--steps", "1"), 2, "no such option '--steps'");
    f8_cli_fails(F8_CLI("plan", GPT, "--recipe", "auto"), 2,
                 "fp8c plan: only train and explain take recipe auto");
    f8_cli_fails(F8_CLI("plan", GPT, "--target", "reference"), 2, "target reference has no plan");
    f8_cli_fails(F8_CLI("plan", GPT, "--target", "sm_1"), 1, "no target 'sm_1'");
    f8_cli_fails(F8_CLI("plan", GPT, "--memory", "0.0001", SMALL), 1,
                 "the least possible share of activation bytes is ");
    f8_cli_fails(F8_CLI("plan", GPT, "--memory", "1K", SMALL), 1, "least");
    f8_cli_ok(F8_CLI("plan", "--help"));
    ck_assert_ptr_nonnull(strstr(F8_CLI("plan", "--help").out, "--memory SIZE"));
    ck_assert_ptr_nonnull(strstr(F8_CLI("--help").out, "  plan     "));
    f8_cli_fails(F8_CLI("check", GPT, "--memory", "1G"), 2, "no such option '--memory'");
    f8_cli_fails(F8_CLI("eval", GPT, "--memory", "1G"), 2, "no such option '--memory'");
    f8_cli_fails(F8_CLI("export", GPT, "--checkpoint", "x.*"), 2, "no such option '--checkpoint'");
}
END_TEST

/* ---- sizes ---- */

START_TEST(bad_sizes)
{
    static const char *const bad[] = {"",    "x",    "0",     "-1",    "-0.5", "1.5",   "1.5x",
                                      "6Q",  "6 G",  "G",     "6GB2",  "6Gi",  "6GiBs", "nan",
                                      "inf", "1e30", "6e18T", "0.5.5", "+6G",  "0.0",   "1.0",
                                      "2.",  " 6G",  "6g",    "0x"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        static const char *const commands[] = {"plan", "train", "explain", "compile", "print"};
        const char *const c = commands[i % 5];
        f8_cli_fails(F8_CLI(c, GPT, "--memory", bad[i]), 2, "bad value for --memory: ");
    }
    f8_cli_fails(F8_CLI("plan", GPT, "--memory"), 2, "an argument is missing for '--memory'");
    f8_cli_fails(F8_CLI("plan", GPT, "--checkpoint="), 2, "bad value for --checkpoint");
    f8_cli_fails(F8_CLI("plan", GPT, "--recompute="), 2, "bad value for --recompute");
}
END_TEST

/* One budget in all its spellings: the message says what was asked for, in bytes. */
START_TEST(good_sizes)
{
    static const struct {
        const char *text, *bytes;
    } sizes[] = {{"4K", "4096"},         {"4KiB", "4096"}, {"4KB", "4096"},  {"4096", "4096"},
                 {"0.5K", "512"},        {"1", "1"},       {"1.5K", "1536"}, {".25K", "256"},
                 {"0.0078125M", "8192"}, {"4e3", "4000"}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char want[64];
        snprintf(want, sizeof want, "%s were asked for", sizes[i].bytes);
        f8_cli_fails(F8_CLI("plan", GPT, "--memory", sizes[i].text, SMALL), 1, want);
    }
    f8_cli_ok(F8_CLI("plan", GPT, "--memory", "1G", "--json", "-", SMALL)); /* more than enough */
    f8_cli_ok(F8_CLI("plan", GPT, "--memory", "1T", "--json", "-", SMALL));
}
END_TEST

/* ---- the other commands ---- */

/* A run within a budget: the losses are those without one, bit for bit, in less memory; what was
 * planned was taken. */
START_TEST(train_within_a_budget)
{
    const char *data = f8_cli_write_words("words.txt", 20000);
    records runs[2];
    const json_t *s[2];
    char state[2][256];
    for (int i = 0; i < 2; i++) {
        snprintf(state[i], sizeof state[i], "%s", f8_cli_temp(i ? "state.1" : "state.0"));
        const char *const with[] = {
            "train",        GPT,       "--recipe", "delayed",      "--data",
            data,           "--steps", "3",        "--json",       "-",
            "--save-state", state[i],  SMALL,      "--requantize", i ? "--memory" : NULL,
            "0.5",          NULL};
        const f8_cli_result r = f8_cli_run(with);
        f8_cli_ok(r);
        parse(&runs[i], r.out);
        s[i] = find(&runs[i], "summary", 0);
        ck_assert_ptr_nonnull(s[i]);
        ck_assert_double_eq(number(s[i], "peak_bytes"), number(s[i], "planned_peak_bytes"));
    }
    ck_assert_double_eq(number(s[0], "recomputed"), 0);
    ck_assert_double_eq(number(s[0], "extra_seconds"), 0);
    ck_assert_double_gt(number(s[1], "recomputed"), 0);
    ck_assert_double_ne(number(s[1], "extra_seconds"), 0);
    ck_assert_double_lt(number(s[1], "peak_bytes"), number(s[0], "peak_bytes"));
    ck_assert_double_le(number(s[1], "arena_bytes"),
                        number(s[0], "arena_bytes") - 0.5 * number(s[0], "activation_bytes") + 1);
    ck_assert_double_eq(number(s[0], "final_loss"), number(s[1], "final_loss"));
    ck_assert_double_eq(number(s[0], "heldout_loss"), number(s[1], "heldout_loss"));
    size_t n[2];
    char *bytes[2] = {f8_cli_read(state[0], &n[0]), f8_cli_read(state[1], &n[1])};
    ck_assert_uint_eq(n[0], n[1]);
    ck_assert_mem_eq(bytes[0], bytes[1], n[0]);
    for (int i = 0; i < 2; i++) {
        free(bytes[i]);
        drop(&runs[i]);
    }
}
END_TEST

START_TEST(explain_within_a_budget)
{
    f8_cli_result r = F8_CLI("explain", GPT, "--recipe", "delayed", "--memory", "0.6", SMALL);
    f8_cli_ok(r);
    ck_assert_ptr_nonnull(strstr(r.out, "MiB of activations and FP8 copies for the backward\n"));
    ck_assert_ptr_nonnull(strstr(r.out, "for the budget, micro_step recomputes "));
    r = F8_CLI("explain", GPT, "--recipe", "delayed", SMALL);
    f8_cli_ok(r);
    ck_assert_ptr_null(strstr(r.out, "for the budget, micro_step recomputes "));
    records all;
    r = F8_CLI("explain", GPT, "--recompute", "up.*", "--json", "-", SMALL);
    f8_cli_ok(r);
    parse(&all, r.out);
    const json_t *plan = find(&all, "plan", 0);
    ck_assert_ptr_nonnull(plan);
    ck_assert_double_gt(number(plan, "recomputed"), 0);
    ck_assert_double_ne(number(plan, "extra_seconds"), 0);
    ck_assert_double_gt(number(plan, "activation_bytes"), 0);
    drop(&all);
    r = F8_CLI("print", GPT, "--memory", "0.5", "--print-after", "memory", SMALL);
    f8_cli_ok(r);
    int clones = 0, number_of = 0;
    for (const char *at = r.out; (at = strchr(at, '#')); at++)
        clones +=
            sscanf(at, "#%d(", &number_of) == 1 && number_of >= 65536; /* F8_CLONE_RECOMPUTED */
    ck_assert_int_gt(clones, 0);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("plan");
    TCase *t = tcase_create("plan");
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_unchecked_fixture(t, f8_cli_setup, f8_cli_teardown);
    tcase_add_loop_test(t, plan_records, 0, 3);
    tcase_add_test(t, plan_of_codes);
    tcase_add_test(t, plan_within_a_budget);
    tcase_add_test(t, plan_counts_parameters);
    tcase_add_test(t, plan_counts_launches);
    tcase_add_test(t, plan_says_what_update_gathers);
    tcase_add_test(t, plan_of_some_budgets);
    tcase_add_test(t, plan_rows_are_plans);
    tcase_add_test(t, bad_budgets);
    tcase_add_test(t, plan_to_a_file);
    tcase_add_test(t, plan_wrong_usage);
    tcase_add_test(t, bad_sizes);
    tcase_add_test(t, good_sizes);
    tcase_add_test(t, train_within_a_budget);
    tcase_add_test(t, explain_within_a_budget);
    suite_add_tcase(s, t);
    return s;
}
