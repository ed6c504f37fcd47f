/* fp8c_program_carry: what one program has observed of its operands goes to another one, by their
 * names. With the same recipe and weights the other one has the same scales, and goes on with the
 * same bits. And `prepare`, which makes the scales anew, changes no bit between two steps. */
#include <math.h>

#include "tests/shared/api/bounds.h"
#include "tests/shared/api/cli.h"
#include "tests/shared/cuda/gpu.h"
#include "tests/shared/suite.h"

/* q, k and v share x, and the head's weight is the embedding. */
static const char net[] =
    "module net\n"
    "dim T = 16\n"
    "param wte: f32[16, 32] normal(0.5)\n"
    "param q: f32[32, 32] normal(0.2)\n"
    "param k: f32[32, 32] normal(0.3)\n"
    "param v: f32[32, 32] normal(0.1)\n"
    "param fc: f32[32, 32] normal(0.2)\n"
    "func forward(%tokens: i32[T], %targets: i32[T]) -> (%loss: f32[]) {\n"
    "  %x = embedding(wte, %tokens)\n"
    "  %h = add(mul(linear(%x, q), tanh(linear(%x, k))), linear(%x, v))\n"
    "  %y = linear(gelu(%h) {approximate = \"tanh\"}, fc)\n"
    "  return cross_entropy(linear(%y, wte) {transpose_b = true, name = \"head\"}, %targets)\n"
    "}\n"
    "optimizer adamw {lr = 0.05, clip = 1}\n";
/* Of its 13 operands x is shared by three linears. */
enum { ROWS_OF_NET = 16, OPERANDS = 13, MOST_OPERANDS = 32, MOST_HISTORY = 1024 };

static fp8c_context *ctx;

static void setup(void)
{
    f8_cli_setup();
    ctx = new_context();
}

static void teardown(void)
{
    fp8c_context_destroy(ctx);
    f8_cli_teardown();
}

/* ---- programs ---- */

static fp8c_program *start(const char *text, int64_t rows, const char *rule,
                           const fp8c_compile_options *o)
{
    const fp8c_dim dim = {"T", rows};
    fp8c_program *p = compile_text(ctx, text, &dim, rows > 0, rule, o);
    ck_assert_int_eq(fp8c_program_initialize(p, 1), FP8C_OK);
    return p;
}

static fp8c_program *begin(const char *recipe_text, const char *rule)
{
    const fp8c_compile_options o = recipe(recipe_text);
    return start(net, ROWS_OF_NET, rule, &o);
}

static void run(fp8c_program *p, const char *name)
{
    ck_assert_msg(fp8c_program_run(p, fp8c_program_function(p, name)) == FP8C_OK, "%s: %s", name,
                  fp8c_context_message(ctx));
}

static float micro_step(fp8c_program *p, const char *name, int shift)
{
    const int step = fp8c_program_function(p, name);
    fp8c_port port;
    for (int k = 0; k < 2; k++) {
        ck_assert_int_eq(fp8c_program_port(p, step, FP8C_INPUT, k, &port), FP8C_OK);
        int32_t *ids = fp8c_program_buffer(p, step, FP8C_INPUT, k);
        for (int i = 0; i < port.type.dim[0]; i++)
            ids[i] = (3 * i + 5 * k + shift * (i + 1)) % V;
    }
    run(p, name);
    return *(float *)fp8c_program_buffer(p, step, FP8C_OUTPUT,
                                         fp8c_program_find_port(p, step, FP8C_OUTPUT, "loss"));
}

static void train(fp8c_program *p, int steps)
{
    for (int i = 0; i < steps; i++) {
        micro_step(p, "micro_step", i);
        micro_step(p, "micro_step", i + 7);
        run(p, "update");
    }
}

/* ---- variables ---- */

typedef struct values {
    fp8c_type type;
    float at[MOST_OPERANDS * MOST_HISTORY];
} values;

static values *read_values(fp8c_program *p, const char *name)
{
    fp8c_variable v;
    values *out = malloc(sizeof *out);
    const int i = fp8c_program_find_variable(p, name);
    ck_assert_msg(fp8c_program_variable(p, i, &v) == FP8C_OK, "no %s", name);
    ck_assert(fp8c_type_bytes(&v.type) <= (int64_t)sizeof out->at);
    out->type = v.type;
    ck_assert_int_eq(fp8c_program_read(p, i, out->at), FP8C_OK);
    return out;
}

static void write_values(fp8c_program *p, const char *name, const values *from)
{
    ck_assert_int_eq(fp8c_program_write(p, fp8c_program_find_variable(p, name), from->at), FP8C_OK);
}

static int64_t element(fp8c_program *p, const char *state, const char *name)
{
    const int variable = fp8c_program_find_variable(p, state);
    const char *its;
    for (int64_t i = 0; (its = fp8c_program_element(p, variable, i)); i++)
        if (!strcmp(its, name))
            return i;
    return -1;
}

static float scale_of(fp8c_program *p, const char *name)
{
    values *all = read_values(p, "fp8.scale");
    const int64_t i = element(p, "fp8.scale", name);
    ck_assert_msg(i >= 0, "no %s", name);
    const float scale = all->at[i];
    free(all);
    return scale;
}

/* The whole history of an operand; its length. */
static int64_t history_of(fp8c_program *p, const char *name, float *row)
{
    values *all = read_values(p, "fp8.amax_history");
    const int64_t i = element(p, "fp8.amax_history", name), columns = all->type.dim[1];
    ck_assert_msg(i >= 0, "no %s", name);
    memcpy(row, all->at + i * columns, (size_t)columns * sizeof *row);
    free(all);
    return columns;
}

static void write_history(fp8c_program *p, const char *name, const float *row, int64_t n)
{
    values *all = read_values(p, "fp8.amax_history");
    const int64_t i = element(p, "fp8.amax_history", name);
    ck_assert_msg(i >= 0, "no %s", name);
    memcpy(all->at + i * all->type.dim[1], row, (size_t)n * sizeof *row);
    write_values(p, "fp8.amax_history", all);
    free(all);
}

static bool is_state_of_scales(const char *name)
{
    return !strncmp(name, "fp8.", 4);
}

/* Everything but the states of scales. */
static void copy_training(fp8c_program *to, fp8c_program *from)
{
    fp8c_variable v;
    for (int i = 0; fp8c_program_variable(from, i, &v) == FP8C_OK; i++) {
        const int own = fp8c_program_find_variable(to, v.name);
        if (is_state_of_scales(v.name) || own < 0)
            continue;
        void *bytes = malloc((size_t)fp8c_type_bytes(&v.type));
        ck_assert_int_eq(fp8c_program_read(from, i, bytes), FP8C_OK);
        ck_assert_int_eq(fp8c_program_write(to, own, bytes), FP8C_OK);
        free(bytes);
    }
}

static void same_variables(fp8c_program *p, fp8c_program *q, bool of_scales)
{
    fp8c_variable v, w;
    int n = 0;
    for (int i = 0; fp8c_program_variable(p, i, &v) == FP8C_OK; i++) {
        if (of_scales && !is_state_of_scales(v.name))
            continue;
        const int k = fp8c_program_find_variable(q, v.name);
        ck_assert_int_eq(fp8c_program_variable(q, k, &w), FP8C_OK);
        const size_t bytes = (size_t)fp8c_type_bytes(&v.type);
        void *a = malloc(bytes), *b = malloc(bytes);
        ck_assert_int_eq(fp8c_program_read(p, i, a), FP8C_OK);
        ck_assert_int_eq(fp8c_program_read(q, k, b), FP8C_OK);
        ck_assert_msg(!memcmp(a, b, bytes), "%s differs", v.name);
        free(a);
        free(b);
        n++;
    }
    ck_assert_int_ge(n, 3);
}

static void carry(fp8c_program *to, const fp8c_program *from, int64_t carried, int64_t missing,
                  int64_t left)
{
    fp8c_carried c = {.struct_size = sizeof c};
    ck_assert_msg(fp8c_program_carry(to, from, &c) == FP8C_OK, "%s", fp8c_context_message(ctx));
    ck_assert_msg(c.carried == carried && c.missing == missing && c.left == left,
                  "carried %d, missing %d, left %d", (int)c.carried, (int)c.missing, (int)c.left);
}

static void refused(fp8c_program *to, const fp8c_program *from, const char *words)
{
    fp8c_carried c = {.struct_size = sizeof c, .carried = 77};
    ck_assert_int_eq(fp8c_program_carry(to, from, &c), FP8C_ERR_INPUT);
    said(ctx, words);
    ck_assert_int_eq(c.carried, 77);
}

/* ---- the same recipe ---- */

static const char *const recipes[] = {
    "delayed",
    "delayed {amax = most_recent}",
    "delayed {pow2 = true}",
    "delayed {history = 3, margin = 1}",
    "delayed {history = 1, amax = most_recent, pow2 = true}",
};
enum { RECIPES = sizeof recipes / sizeof *recipes };

/* Between two steps prepare changes no bit, however many there were. */
START_TEST(prepare_keeps_scales)
{
    fp8c_program *p = begin(recipes[_i], NULL), *q = begin(recipes[_i], NULL);
    for (int steps = 0; steps < 20; steps++) {
        train(p, 1);
        train(q, 1);
        run(q, "prepare");
        same_variables(p, q, false);
        if (steps % 3 == 0) { /* in the middle of a step */
            ck_assert(micro_step(p, "micro_step", 3) == micro_step(q, "micro_step", 3));
            run(q, "prepare");
            same_variables(p, q, true);
        }
    }
    fp8c_program_destroy(p);
    fp8c_program_destroy(q);
}
END_TEST

/* A program that takes over weights, moments and observations has the scales of the other, to the
 * bit, and trains as it does: also where histories have turned over, and in the middle of a step.
 */
START_TEST(same_bits)
{
    static const int steps[] = {1, 3, 20};
    for (int n = 0; n < 3; n++) {
        fp8c_program *p = begin(recipes[_i], NULL), *q = begin(recipes[_i], NULL);
        train(p, steps[n]);
        if (n)
            micro_step(p, "micro_step", 5);
        copy_training(q, p);
        carry(q, p, OPERANDS, 0, 0);
        same_variables(p, q, false);
        for (int more = 0; more < 3; more++) {
            const float a = micro_step(p, "micro_step", more), b = micro_step(q, "micro_step", more);
            ck_assert_msg(!memcmp(&a, &b, sizeof a), "%.9g, %.9g", (double)a, (double)b);
            run(p, "update");
            run(q, "update");
            same_variables(p, q, false);
        }
        fp8c_program_destroy(p);
        fp8c_program_destroy(q);
    }
}
END_TEST

/* Where a history shows nothing, an operand of the same recipe takes the other's scale, and one of
 * another recipe keeps its own. */
START_TEST(nothing_observed)
{
    const float zero[16] = {0};
    fp8c_program *p = begin("delayed {amax = most_recent}", NULL),
                 *same = begin("delayed {amax = most_recent}", NULL),
                 *other = begin("delayed {amax = most_recent, margin = 1}", NULL);
    train(p, 2);
    write_history(p, "fc.dy", zero, 16);
    write_history(p, "fc.x", zero, 1); /* most_recent reads no other entry */
    const float dy = scale_of(p, "fc.dy"), x = scale_of(p, "fc.x");
    ck_assert(dy != 1 && x != 1);
    carry(same, p, OPERANDS, 0, 0);
    ck_assert(scale_of(same, "fc.dy") == dy && scale_of(same, "fc.x") == x);
    carry(other, p, OPERANDS, 0, 0);
    ck_assert(scale_of(other, "fc.dy") == 1 && scale_of(other, "fc.x") == 1);
    ck_assert(scale_of(other, "v.dy") == scale_of(p, "v.dy") / 2);
    fp8c_program_destroy(p);
    fp8c_program_destroy(same);
    fp8c_program_destroy(other);
}
END_TEST

/* ---- another recipe, shape or kind of program ---- */

static float largest(const float *row, int64_t n)
{
    float most = 0;
    for (int64_t i = 0; i < n; i++)
        most = fmaxf(most, row[i]);
    return most;
}

/* Scales follow the rule of the program that takes the histories. Of a longer history it takes the
 * newest, and a shorter one is filled up with zeros. */
START_TEST(another_recipe)
{
    float own[16], its[16];
    fp8c_program *p = begin("delayed", NULL),
                 *q = begin("delayed {history = 4, margin = 2, pow2 = true}", NULL),
                 *r = begin("delayed", NULL);
    train(p, 9);
    copy_training(q, p);
    carry(q, p, OPERANDS, 0, 0);
    static const char *const names[] = {"q.x", "fc.x", "fc.w", "head.w", "k.dy", "head.dy"};
    for (int i = 0; i < 6; i++) {
        ck_assert_int_eq(history_of(p, names[i], its), 16);
        ck_assert_int_eq(history_of(q, names[i], own), 4);
        ck_assert(its[8] > 0 && its[9] == 0);
        ck_assert_msg(!memcmp(own, its, 4 * sizeof *own), "%s", names[i]);
        int exponent;
        const float most = i < 4 ? 448 : 57344, exact = most / 4 / largest(own, 4);
        frexpf(exact, &exponent);
        ck_assert_msg(scale_of(q, names[i]) == ldexpf(1, exponent - 1), "%s", names[i]);
    }
    train(r, 9); /* it had a history of its own */
    copy_training(r, q);
    carry(r, q, OPERANDS, 0, 0);
    for (int i = 0; i < 6; i++) {
        history_of(q, names[i], its);
        history_of(r, names[i], own);
        ck_assert(!memcmp(own, its, 4 * sizeof *own) && largest(own + 4, 12) == 0);
        ck_assert(scale_of(r, names[i]) == (i < 4 ? 448 : 57344) / largest(own, 4));
    }
    fp8c_program_destroy(p);
    fp8c_program_destroy(q);
    fp8c_program_destroy(r);
}
END_TEST

/* A parameter that was changed: its scale covers it as it is, and as it was. With most_recent it is
 * that of the value as it is. */
START_TEST(other_weights)
{
    fp8c_program *p = begin(recipes[_i], NULL), *q = begin(recipes[_i], NULL);
    train(p, 4);
    float row[16];
    history_of(p, "fc.w", row);
    for (int smaller = 0; smaller < 2; smaller++) {
        const float amax = smaller ? row[0] / 8 : row[0] * 8;
        values *w = read_values(q, "fc");
        memset(w->at, 0, sizeof w->at);
        w->at[5] = -amax;
        write_values(q, "fc", w);
        free(w);
        carry(q, p, OPERANDS, 0, 0);
        ck_assert_float_eq(scale_of(q, "fc.w"),
                           448 / (smaller && _i == 0 ? largest(row, 16) : amax));
        ck_assert_float_eq(scale_of(q, "fc.x"), scale_of(p, "fc.x"));
    }
    values *w = read_values(q, "fc");
    w->at[7] = NAN;
    write_values(q, "fc", w);
    free(w);
    carry(q, p, OPERANDS, 0, 0);
    ck_assert(isnan(scale_of(q, "fc.w")) && !isnan(scale_of(q, "v.w")));
    fp8c_program_destroy(p);
    fp8c_program_destroy(q);
}
END_TEST

/* From training to inference and back, also for another shape and target. */
static const char *const targets[] = {"cpu", "reference", "cuda"};

START_TEST(another_program)
{
    fp8c_compile_options o = recipe("delayed");
    fp8c_program *p = begin("delayed", NULL), *longer = start(net, 3 * ROWS_OF_NET, NULL, &o);
    o.inference = 1;
    o.target = targets[_i];
    fp8c_program *serving = start(net, ROWS_OF_NET, NULL, &o);
    train(p, 5);
    copy_training(serving, p);
    copy_training(longer, p);
    carry(serving, p, 8, 0, 5); /* dy of five linears */
    carry(longer, p, OPERANDS, 0, 0);
    same_variables(p, longer, true);
    ck_assert_float_eq(scale_of(serving, "fc.x"), scale_of(p, "fc.x"));
    ck_assert_float_eq(scale_of(serving, "k.w"), scale_of(p, "k.w"));
    const float a = micro_step(p, "eval", 3), b = micro_step(serving, "eval", 3);
    ck_assert_msg(_i ? fabsf(a - b) < 1e-4f * a : !memcmp(&a, &b, sizeof a), "%.9g, %.9g",
                  (double)a, (double)b);
    fp8c_program *back = begin("delayed", NULL);
    copy_training(back, p);
    carry(back, serving, 8, 5, 0);
    ck_assert_float_eq(scale_of(back, "fc.x"), scale_of(p, "fc.x"));
    ck_assert_float_eq(scale_of(back, "fc.dy"), 1);
    fp8c_program_destroy(p);
    fp8c_program_destroy(longer);
    fp8c_program_destroy(serving);
    fp8c_program_destroy(back);
}
END_TEST

/* A chunked head has operands for each chunk. A number that the other lacks takes nothing. */
START_TEST(chunks)
{
    static const char text[] =
        "module head\ndim T = 64\nparam wte: f32[16, 2] normal(0.5)\n"
        "param head: f32[2, 1048576] normal(0.5)\n"
        "func forward(%tokens: i32[T], %targets: i32[T]) -> (%loss: f32[]) {\n"
        "  return cross_entropy(linear(embedding(wte, %tokens), head), %targets)\n}\n"
        "optimizer adamw {lr = 0.1}\n";
    const fp8c_compile_options o = recipe("delayed");
    fp8c_program *two = start(text, 64, NULL, &o), *three = start(text, 96, NULL, &o);
    float row[16] = {0};
    static const char *const names[] = {"head.x", "head.x.1", "head.dy", "head.dy.1", "head.w"};
    for (int i = 0; i < 5; i++) {
        row[0] = (float)(i + 2);
        write_history(two, names[i], row, 16);
    }
    carry(three, two, 5, 2, 0);
    for (int i = 0; i < 5; i++) {
        history_of(three, names[i], row);
        ck_assert_float_eq(row[0], (float)(i + 2));
    }
    ck_assert_float_eq(scale_of(three, "head.x.1"), 448 / 3.0f);
    ck_assert_float_eq(scale_of(three, "head.x.2"), 1);
    ck_assert_float_eq(scale_of(three, "head.dy.2"), 1);
    carry(two, three, 5, 0, 2);
    fp8c_program_destroy(two);
    fp8c_program_destroy(three);
}
END_TEST

/* ---- names of shared operands ---- */

static void aliases_are(fp8c_program *p, const char *name, const char *first, const char *second)
{
    static const char *const states[] = {"fp8.scale", "fp8.amax", "fp8.amax_history"};
    for (int i = 0; i < 3; i++) {
        const int variable = fp8c_program_find_variable(p, states[i]);
        const int64_t k = element(p, states[i], name);
        const char *const want[] = {first, second, NULL};
        ck_assert_int_ge(k, 0);
        for (int a = 0; a < 3; a++) {
            const char *alias = fp8c_program_element_alias(p, variable, k, a);
            ck_assert_msg(!want[a] == !alias && (!alias || !strcmp(alias, want[a])), "%s: %s", name,
                          alias);
        }
        ck_assert_ptr_null(fp8c_program_element_alias(p, variable, k, -1));
        ck_assert_ptr_null(fp8c_program_element_alias(p, variable, -1, 0));
        ck_assert_ptr_null(fp8c_program_element_alias(p, variable, 1000, 0));
    }
}

/* What several linears share answers to each one's name, whichever of the programs has it shared,
 * and whichever linear is the first. */
START_TEST(shared_operands)
{
    float shared[16], own[16];
    fp8c_program *p = begin("delayed", NULL), *k_alone = begin("delayed", "\"k\" = delayed {margin = 1}"),
                 *no_q = begin("delayed", "\"q\" = bf16"), *q = begin("delayed", NULL);
    ck_assert_ptr_null(fp8c_program_element_alias(p, fp8c_program_find_variable(p, "fc"), 0, 0));
    aliases_are(p, "q.x", "k.x", "v.x");
    aliases_are(p, "fc.x", NULL, NULL);
    aliases_are(p, "q.dy", NULL, NULL);
    aliases_are(k_alone, "q.x", "v.x", NULL);
    aliases_are(k_alone, "k.x", NULL, NULL);
    aliases_are(no_q, "k.x", "v.x", NULL);
    train(p, 3);
    history_of(p, "q.x", shared);
    ck_assert(shared[2] > 0);
    carry(k_alone, p, OPERANDS + 1, 0, 0);
    history_of(k_alone, "k.x", own);
    ck_assert_mem_eq(own, shared, sizeof own);
    ck_assert_float_eq(scale_of(k_alone, "k.x"), scale_of(p, "q.x") / 2);
    ck_assert_float_eq(scale_of(k_alone, "q.x"), scale_of(p, "q.x"));
    carry(no_q, p, OPERANDS - 2, 0, 2); /* q.w and q.dy are left */
    history_of(no_q, "k.x", own);
    ck_assert_mem_eq(own, shared, sizeof own);
    carry(q, no_q, OPERANDS - 2, 2, 0);
    history_of(q, "q.x", own);
    ck_assert_mem_eq(own, shared, sizeof own);
    own[0] = 1234; /* of two that fit, the one of the first linear's name */
    write_history(k_alone, "k.x", own, 16);
    carry(q, k_alone, OPERANDS, 0, 1);
    history_of(q, "q.x", own);
    ck_assert_mem_eq(own, shared, sizeof own);
    fp8c_program_destroy(p);
    fp8c_program_destroy(q);
    fp8c_program_destroy(k_alone);
    fp8c_program_destroy(no_q);
}
END_TEST

/* Operands of one kind in one linear are numbered, whether they are shared or not. */
START_TEST(numbered_aliases)
{
    static const char rule[] = "\"*\" wgrad = delayed {margin = 1}";
    fp8c_compile_options o = recipe("delayed");
    o.pair = 1;
    fp8c_program *all = begin("delayed", rule), *pair = start(net, ROWS_OF_NET, rule, &o),
                 *one = begin("delayed", "\"k\" fprop = delayed {margin = 1}");
    aliases_are(all, "q.x", "k.x", "v.x");
    aliases_are(all, "v.x.1", "k.x.1", "q.x.1"); /* the backward begins with v */
    aliases_are(all, "q.dy.1", NULL, NULL);
    aliases_are(one, "q.x", "v.x", "k.x.1");
    aliases_are(one, "k.x", NULL, NULL);
    train(all, 2);
    copy_training(pair, all);
    carry(pair, all, OPERANDS + 8, 0, 0); /* wgrad's own: x of three values, dy of five linears */
    same_variables(all, pair, true);
    fp8c_program_destroy(pair);
    fp8c_program_destroy(all);
    fp8c_program_destroy(one);
}
END_TEST

/* A program from a file has the names and the recipes of the one that was compiled. */
START_TEST(from_a_file)
{
    fp8c_program *p = begin("delayed", NULL), *opened;
    fp8c_compile_options o = recipe("delayed");
    fp8c_module *m = parse(ctx, net);
    const char *path = f8_cli_temp("net.f8x");
    const float zero[16] = {0};
    ck_assert_msg(fp8c_module_rule(m, "\"k\" = delayed {margin = 1}", "rule") == FP8C_OK, "%s",
                  fp8c_context_message(ctx));
    o.threads = 0;
    ck_assert_msg(fp8c_compile_file(m, &o, 1, path) == FP8C_OK, "%s", fp8c_context_message(ctx));
    fp8c_module_destroy(m);
    ck_assert_int_eq(fp8c_program_open(ctx, path, NULL, &opened), FP8C_OK);
    refused(opened, p, "the variables of the program to carry to have no values");
    ck_assert_int_eq(fp8c_program_initialize(opened, 1), FP8C_OK);
    aliases_are(opened, "q.x", "v.x", NULL);
    aliases_are(opened, "k.x", NULL, NULL);
    train(p, 3);
    write_history(p, "fc.dy", zero, 16);
    copy_training(opened, p);
    carry(opened, p, OPERANDS + 1, 0, 0);
    ck_assert_float_eq(scale_of(opened, "k.x"), scale_of(p, "q.x") / 2);
    ck_assert_float_eq(scale_of(opened, "q.x"), scale_of(p, "q.x"));
    ck_assert_float_eq(scale_of(opened, "fc.dy"), scale_of(p, "fc.dy"));
    fp8c_program_destroy(p);
    fp8c_program_destroy(opened);
}
END_TEST

/* ---- programs that observe ---- */

/* What such a program has seen begins the history of one that trains. */
START_TEST(observed)
{
    fp8c_compile_options o = recipe("delayed");
    o.inference = o.observe = 1;
    fp8c_program *observer = start(net, ROWS_OF_NET, NULL, &o), *another = start(net, ROWS_OF_NET, NULL, &o);
    o.observe = 0;
    fp8c_program *serving = start(net, ROWS_OF_NET, NULL, &o), *p = begin("delayed", NULL);
    for (int i = 0; i < 3; i++)
        micro_step(observer, "eval", i);
    values *seen = read_values(observer, "fp8.amax");
    const float amax = seen->at[element(observer, "fp8.amax", "fc.x")];
    ck_assert(amax > 0);
    carry(p, observer, 8, 5, 0);
    carry(serving, observer, 8, 0, 0);
    carry(another, observer, 8, 0, 0);
    for (int i = 0; i < 2; i++) {
        fp8c_program *taker = i ? serving : p;
        float row[16];
        history_of(taker, "fc.x", row);
        ck_assert_float_eq(row[0], amax);
        ck_assert_float_eq(largest(row + 1, 15), 0);
        ck_assert_float_eq(scale_of(taker, "fc.x"), 448 / amax);
        history_of(taker, "fc.w", row); /* a weight: eval sees none of its amaxes */
        ck_assert_float_eq(largest(row, 16), 0);
        values *pending = read_values(taker, "fp8.amax");
        ck_assert_float_eq(largest(pending->at, pending->type.dim[0]), 0);
        free(pending);
    }
    run(observer, "prepare");
    same_variables(observer, another, false);
    ck_assert_float_eq(scale_of(another, "fc.x"), 448 / amax);
    const float a = micro_step(p, "eval", 4), b = micro_step(serving, "eval", 4);
    ck_assert(!memcmp(&a, &b, sizeof a));
    seen->at[element(observer, "fp8.amax", "fc.x")] = INFINITY;
    write_values(observer, "fp8.amax", seen);
    fp8c_program *before = begin("delayed", NULL);
    carry(before, p, OPERANDS, 0, 0);
    refused(p, observer, "'fc.x' is not finite: no scale follows from it");
    same_variables(before, p, true);
    free(seen);
    fp8c_program_destroy(observer);
    fp8c_program_destroy(another);
    fp8c_program_destroy(serving);
    fp8c_program_destroy(before);
    fp8c_program_destroy(p);
}
END_TEST

/* ---- other recipes ---- */

/* Where neither has histories, prepare runs: the weights' amaxes of `current` are of the weights as
 * they are. */
START_TEST(no_histories)
{
    fp8c_program *p = begin("current", NULL), *q = begin("current", NULL), *high = begin("bf16", NULL);
    train(p, 2);
    copy_training(q, p);
    carry(q, p, 0, 0, 0);
    same_variables(p, q, false);
    carry(high, p, 0, 0, 0);
    fp8c_program_destroy(p);
    fp8c_program_destroy(q);
    fp8c_program_destroy(high);
}
END_TEST

/* ---- refusals ---- */

START_TEST(refusals)
{
    static const char other[] =
        "module other\nparam w: f32[16, 16] normal(0.5)\n"
        "func forward(%tokens: i32[8], %targets: i32[8]) -> (%loss: f32[]) {\n"
        "  return cross_entropy(linear(embedding(w, %tokens), w) {name = \"up\"}, %targets)\n}\n";
    fp8c_compile_options o = recipe("delayed");
    fp8c_program *p = begin("delayed", NULL), *high = begin("bf16", NULL), *q;
    o.inference = 1;
    fp8c_program *unlike = start(other, 0, NULL, &o);
    train(p, 1);
    fp8c_program *before = begin("delayed", NULL);
    copy_training(before, p);
    carry(before, p, OPERANDS, 0, 0);
    refused(p, unlike,
            "nothing was carried: operands with amax histories are 'q.x' and 12 more in the program "
            "to carry to, and 'up.x' and 1 more in the one to carry from");
    refused(p, high, "are 'q.x' and 12 more in the program to carry to, and none in the one to "
                     "carry from");
    refused(high, p, "are none in the program to carry to, and 'q.x' and 12 more in the one");
    refused(p, p, "a program can't carry to itself");
    same_variables(before, p, true);
    o = recipe("delayed");
    o.no_device = 1;
    q = compile_text(ctx, net, NULL, 0, NULL, &o);
    refused(p, q, "the program to carry from was compiled with no_device: it has no memory");
    refused(q, p, "the program to carry to was compiled with no_device: it has no memory");
    fp8c_program_destroy(q);
    o.no_device = 0;
    o.plan_only = 1;
    q = compile_text(ctx, net, NULL, 0, NULL, &o);
    refused(p, q, "the program to carry from was compiled with plan_only: it has no memory");
    fp8c_program_destroy(q);
    o.plan_only = 0;
    q = compile_text(ctx, net, NULL, 0, NULL, &o);
    refused(p, q, "the variables of the program to carry from have no values: call "
                  "fp8c_program_initialize");
    refused(q, p, "the variables of the program to carry to have no values: call "
                  "fp8c_program_initialize");
    ck_assert_int_eq(fp8c_program_initialize(q, 1), FP8C_OK);
    ck_assert_int_eq(fp8c_program_carry(q, p, NULL), FP8C_OK);
    fp8c_program_destroy(q);
    fp8c_program_destroy(p);
    fp8c_program_destroy(high);
    fp8c_program_destroy(unlike);
    fp8c_program_destroy(before);
}
END_TEST

static fp8c_status one_life(const void *user, counting *c, char *message, size_t room)
{
    const fp8c_context_options options = counted_options(c);
    fp8c_context *own;
    fp8c_program *to = NULL;
    fp8c_module *m = NULL;
    fp8c_compile_options o = recipe("delayed");
    o.target = "reference";
    snprintf(message, room, "context");
    fp8c_status status = fp8c_context_create(&options, &own);
    if (status != FP8C_OK)
        return status;
    status = fp8c_module_parse(own, net, strlen(net), "net.f8", NULL, 0, &m);
    if (status == FP8C_OK)
        status = fp8c_compile(m, &o, &to);
    if (status == FP8C_OK)
        status = fp8c_program_initialize(to, 1);
    if (status == FP8C_OK)
        status = fp8c_program_carry(to, user, NULL);
    snprintf(message, room, "%s", fp8c_context_message(own));
    fp8c_program_destroy(to);
    fp8c_module_destroy(m);
    fp8c_context_destroy(own);
    return status;
}

/* The context of the program that takes the histories has no memory for them. */
START_TEST(allocations)
{
    fp8c_program *p = begin("delayed", NULL);
    fail_each_allocation(one_life, p, 200);
    fp8c_program_destroy(p);
}
END_TEST

Suite *f8_suite(void)
{
    f8_test_gpu_emulated();
    Suite *s = suite_create("carry");
    TCase *t = tcase_create("carry");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_loop_test(t, prepare_keeps_scales, 0, RECIPES);
    tcase_add_loop_test(t, same_bits, 0, RECIPES);
    tcase_add_test(t, nothing_observed);
    tcase_add_test(t, another_recipe);
    tcase_add_loop_test(t, other_weights, 0, 2);
    tcase_add_loop_test(t, another_program, 0, 3);
    tcase_add_test(t, chunks);
    tcase_add_test(t, shared_operands);
    tcase_add_test(t, numbered_aliases);
    tcase_add_test(t, from_a_file);
    tcase_add_test(t, observed);
    tcase_add_test(t, no_histories);
    tcase_add_test(t, refusals);
    tcase_add_test(t, allocations);
    suite_add_tcase(s, t);
    return s;
}
