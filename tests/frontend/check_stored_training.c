/* A frozen base stored as FP8 codes (`stored` with `frozen`): the bits of a training that quantizes
 * the base in each step, with neither its values nor anything else of it in memory. */
#include <math.h>

#include "frontend/fp8c_diagnose.h"
#include "tests/shared/api/lora_case.h"
#include "tests/shared/suite.h"

/* Where fprop and dgrad scale the weight alike, codes are all that they need. */
static const char *const alike[] = {
    "current", "current {pow2 = true}", "delayed", "delayed {history = 2, amax = most_recent}",
    "block",   "block {pow2 = true}",   "fake"};
enum { N_ALIKE = sizeof alike / sizeof *alike };

/* The bytes of the base: of its parameters, or of their codes and scales, and of states of them. */
static int64_t base_bytes(fp8c_program *p)
{
    fp8c_variable v;
    int64_t sum = 0;
    for (int i = 0; fp8c_program_variable(p, i, &v) == FP8C_OK; i++)
        sum += strstr(v.name, "base.") ? fp8c_type_bytes(&v.type) : 0;
    return sum;
}

START_TEST(same_bits_as_values)
{
    const char *under = alike[_i % N_ALIKE], *target = _i < N_ALIKE ? "cpu" : "reference";
    fp8c_context *ctx = new_context();
    fp8c_program *p[2] = {
        lora_open(ctx, (fp8c_compile_options){.recipe = under, .target = target}),
        lora_open(ctx, (fp8c_compile_options){.recipe = under, .stored = under, .target = target})};
    fp8c_stored s;
    fp8c_variable v;
    size_t n[2][2] = {{0}};
    void *before[2][2];
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(fp8c_program_stored(p[1], i, &s), FP8C_OK);
        for (int k = 0; k < 2; k++) {
            fp8c_program_variable(p[1], k ? s.scale_variable : s.variable, &v);
            before[i][k] = lora_read(p[1], v.name, &n[i][k]);
        }
    }
    ck_assert_int_eq(fp8c_program_stored(p[1], 2, &s), FP8C_ERR_INPUT);
    ck_assert_int_eq(base_bytes(p[1]), 2 * 96 * 160 + (int64_t)(n[0][1] + n[1][1]));
    lora_train_both(p, under);
    for (int i = 0; i < 2; i++) {
        fp8c_program_stored(p[1], i, &s);
        for (int k = 0; k < 2; k++) {
            fp8c_program_variable(p[1], k ? s.scale_variable : s.variable, &v);
            void *after = lora_read(p[1], v.name, &n[i][k]);
            ck_assert_msg(!memcmp(before[i][k], after, n[i][k]), "%s: %s has changed", under,
                          v.name);
            free(after);
            free(before[i][k]);
        }
    }
    fp8c_program_destroy(p[0]);
    fp8c_program_destroy(p[1]);
    fp8c_context_destroy(ctx);
}
END_TEST

/* A base that is declared bf16 begins with the values that bf16 has. */
START_TEST(bf16_base)
{
    fp8c_context *ctx = new_context();
    fp8c_module *m = parse(ctx, lora_text_bf16());
    fp8c_program *p[2];
    for (int i = 0; i < 2; i++) {
        fp8c_compile_options o = recipe("current");
        o.frozen = LORA_BASE;
        o.stored = i ? "current" : NULL;
        p[i] = compile(ctx, m, &o);
        ck_assert_int_eq(fp8c_program_initialize(p[i], 5), FP8C_OK);
    }
    lora_train_both(p, "a base of bf16");
    fp8c_program_destroy(p[0]);
    fp8c_program_destroy(p[1]);
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
}
END_TEST

/* A dim that is a bound: each of its values has a plan of its own over one base. */
START_TEST(any_rows)
{
    char text[sizeof lora_text + 8];
    snprintf(text, sizeof text, "%s", lora_text);
    char *bound = strstr(text, "N = 32");
    memmove(bound + 3, bound + 2, strlen(bound + 2) + 1);
    memcpy(bound, "N <= 32", 7);
    fp8c_context *ctx = new_context();
    fp8c_module *m[2] = {parse(ctx, text)};
    const fp8c_dim dim = {"N", 17};
    ck_assert_int_eq(
        fp8c_module_parse(ctx, lora_text, strlen(lora_text), "lora.f8", &dim, 1, &m[1]), FP8C_OK);
    fp8c_program *p[2];
    for (int i = 0; i < 2; i++) {
        fp8c_compile_options o = recipe("delayed");
        o.frozen = LORA_BASE;
        o.stored = "delayed";
        p[i] = compile(ctx, m[i], &o);
        fp8c_module_destroy(m[i]);
        ck_assert_int_eq(fp8c_program_initialize(p[i], 5), FP8C_OK);
    }
    ck_assert_msg(fp8c_program_set_dim(p[0], "N", 17) == FP8C_OK, "%s", fp8c_context_message(ctx));
    lora_train_both(p, "17 rows of 32");
    fp8c_program_destroy(p[0]);
    fp8c_program_destroy(p[1]);
    fp8c_context_destroy(ctx);
}
END_TEST

static const char *const recipes[] = {"f32",   "bf16",    "current",       "delayed",
                                      "block", "rowwise", "rowwise_gw_hp", "mxfp8"};
static const char *const stored[] = {"block", "rowwise", "current", "delayed",
                                     "block", "rowwise", "rowwise", "mxfp8"};
enum { N_RECIPES = sizeof recipes / sizeof *recipes };

/* Nothing else that a compile may choose changes a bit. */
START_TEST(same_bits_however)
{
    static const fp8c_compile_options other[] = {{.threads = 2},
                                                 {.no_fuse = 1},
                                                 {.requantize = 1},
                                                 {.memory_share = 0.5},
                                                 {.recompute = "*"}};
    enum { OTHERS = sizeof other / sizeof *other };
    const int r = _i;
    fp8c_context *ctx = new_context();
    for (int i = 0; i < OTHERS; i++) {
        fp8c_compile_options o = other[i];
        char what[128];
        o.recipe = recipes[r];
        o.stored = stored[r];
        snprintf(what, sizeof what, "%s, stored under %s, variant %d", recipes[r], stored[r], i);
        fp8c_program *p[2] = {
            lora_open(ctx, (fp8c_compile_options){.recipe = recipes[r], .stored = stored[r]}),
            lora_open(ctx, o)};
        lora_train_both(p, what);
        fp8c_program_destroy(p[0]);
        fp8c_program_destroy(p[1]);
    }
    fp8c_context_destroy(ctx);
}
END_TEST

static void decision_of(fp8c_program *p, const char *linear, const char *role, fp8c_decision *d)
{
    for (int i = 0; fp8c_program_decision(p, i, d) == FP8C_OK; i++)
        if (!strcmp(d->linear, linear) && !strcmp(d->role, role))
            return;
    ck_abort_msg("no decision on %s of %s", role, linear);
}

/* Under rows and MX the codes have scales of fprop's alone. */
START_TEST(explained)
{
    fp8c_context *ctx = new_context();
    for (int r = 2; r < N_RECIPES; r++) {
        const bool values = r >= 5;
        fp8c_program *p =
            lora_open(ctx, (fp8c_compile_options){.recipe = recipes[r], .stored = stored[r]});
        fp8c_decision d;
        decision_of(p, "base.down", "fprop", &d);
        ck_assert(d.fp8);
        decision_of(p, "base.down", "dgrad", &d);
        ck_assert_msg(d.fp8 == !values, "%s: %s", recipes[r], d.reason);
        ck_assert_msg((strstr(d.reason, "multiplies its dequantized values") != NULL) == values,
                      "%s: %s", recipes[r], d.reason);
        fp8c_program_destroy(p);
    }
    fp8c_context_destroy(ctx);
}
END_TEST

/* ---- memory ---- */

static const char deep[] =
    "module deep\n"
    "dim N = 64, C = 256, V = 32, L = 2\n"
    "param wte: f32[V, C] normal(0.5)\n"
    "repeat l < L {\n"
    "  param base.{l}: f32[C, C] normal(0.1)\n"
    "  param gain.{l}: f32[C] ones\n"
    "}\n"
    "func forward(%tokens: i32[N], %targets: i32[N]) -> (%loss: f32[]) {\n"
    "  %x0 = embedding(wte, %tokens)\n"
    "  repeat l < L carry %x = %x0 {\n"
    "    %x = linear(gelu(mul(%x, gain.{l})), base.{l})\n"
    "  }\n"
    "  return cross_entropy(linear(%x, wte) {transpose_b = true, name = \"head\"}, %targets)\n"
    "}\n"
    "optimizer adamw {lr = 0.01, clip = 1}\n"
    "recipe \"head\" = bf16\n";

/* The bytes of some categories at the peak of micro_step, of a module of `layers` layers. */
static int64_t bytes_of(const fp8c_compile_options *o, int64_t layers, const char *categories)
{
    const fp8c_dim dims[] = {{"L", layers}};
    fp8c_context *ctx = new_context();
    fp8c_module *m;
    fp8c_memory of;
    int64_t sum = 0;
    ck_assert_msg(fp8c_module_parse(ctx, deep, strlen(deep), "deep.f8", dims, 1, &m) == FP8C_OK,
                  "%s", fp8c_context_message(ctx));
    fp8c_program *p = compile(ctx, m, o);
    const int step = fp8c_program_function(p, "micro_step");
    for (int i = 0; fp8c_program_memory(p, step, i, &of) == FP8C_OK; i++)
        sum += strstr(categories, of.category) ? of.bytes : 0;
    fp8c_program_destroy(p);
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
    return sum;
}

/* A stored weight takes a byte a parameter and its scales. Whatever a target makes of it, such as
 * its transpose or bf16 values, is made a layer at a time. */
START_TEST(bytes)
{
    static const struct {
        const char *target, *recipe, *stored;
        int64_t scales; /* bytes, which are aligned to 64 */
    } of[] = {
        {"cpu", "delayed", "delayed", 64},      {"cpu", "bf16", "block", 64},
        {"cpu", "rowwise", "rowwise", 1024},    {"cpu", "f32", "mxfp8", 2048},
        {"sm_90a", "current", "current", 64},   {"sm_90a", "block", "block", 64},
        {"sm_90a", "rowwise", "rowwise", 1024}, {"sm_120a", "mxfp8", "mxfp8", 2048},
        {"sm_90a", "bf16", "block", 64},
    };
    fp8c_compile_options o = recipe(of[_i].recipe);
    o.target = of[_i].target;
    o.stored = of[_i].stored;
    o.frozen = "base.*";
    o.plan_only = 1;
    const int64_t few = bytes_of(&o, 2, "parameters"), more = bytes_of(&o, 8, "parameters");
    ck_assert_int_eq(more - few, 6 * (256 * 256 + of[_i].scales + 256 * 4)); /* and a gain */
    static const char made[] = "weight copies, FP8 copies, workspace, weight codes";
    const int64_t made_few = bytes_of(&o, 2, made), made_more = bytes_of(&o, 8, made);
    ck_assert_msg(made_more - made_few < 6 * 256 * 256 / 8,
                  "%s, %s: %lld bytes of 2 layers, %lld of 8", of[_i].target, of[_i].recipe,
                  (long long)made_few, (long long)made_more);
}
END_TEST

START_TEST(refused)
{
    static const fp8c_stored_as list[] = {{"base.up", "block"}, {"lora.up.a", "block"}};
    static const struct {
        fp8c_compile_options o;
        const char *rule, *message;
    } bad[] = {
        {{.recipe = "block", .stored = "block"}, NULL, "stored needs `inference` or `frozen`"},
        {{.recipe = "block", .stored = "block", .frozen = "wte"},
         NULL,
         "'base.up' is trained, so it can't be stored under block: name it in `frozen`, or keep "
         "its linear in high precision: recipe \"base.up\" = bf16"},
        {{.recipe = "block", .stored = "block", .frozen = LORA_BASE},
         "\"lora.up.a\" = block",
         "'lora.up.a' is trained, so it can't be stored under block"},
        {{.recipe = "block", .stored_weights = list, .n_stored_weights = 2, .frozen = LORA_BASE},
         NULL,
         "'lora.up.a' is trained, so it can't be stored under block: name it in `frozen`, "
         "or do not list it"},
        {{.recipe = "bf16", .stored = "bf16", .frozen = LORA_BASE},
         NULL,
         "no weight is stored in FP8"},
        {{.recipe = "block", .stored = "block", .frozen = "base,wte"},
         NULL,
         "frozen: no parameter matches 'base'; they are: wte, base.up"},
    };
    fp8c_context *ctx = new_context();
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        fp8c_module *m = parse(ctx, lora_text);
        fp8c_compile_options o = bad[i].o;
        fp8c_program *p = NULL;
        o.struct_size = sizeof o;
        if (bad[i].rule)
            ck_assert_int_eq(fp8c_module_rule(m, bad[i].rule, NULL), FP8C_OK);
        ck_assert_int_ne(fp8c_compile(m, &o, &p), FP8C_OK);
        said(ctx, bad[i].message);
        fp8c_module_destroy(m);
    }
    fp8c_context_destroy(ctx);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("stored_training");
    TCase *t = tcase_create("stored_training");
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_loop_test(t, same_bits_as_values, 0, 2 * N_ALIKE);
    tcase_add_test(t, bf16_base);
    tcase_add_test(t, any_rows);
    tcase_add_loop_test(t, same_bits_however, 0, N_RECIPES);
    tcase_add_test(t, explained);
    tcase_add_loop_test(t, bytes, 0, 9);
    tcase_add_test(t, refused);
    suite_add_tcase(s, t);
    return s;
}
