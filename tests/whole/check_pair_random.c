/* The pair of forward and backward on random layers, under every recipe, on targets cpu and
 * reference. A layer with a loss (its results times their cotangents) must have the bits of its own
 * micro_step: results, gradients, amaxes, states. The layer itself must have the same bits whatever
 * it saves: at any share, with patterns, with one kernel per node, through a handle.
 *
 *   FP8C_SEED=S     begin with that seed
 *   FP8C_GRAPHS=N   how many layers: 30, or 1 with a seed, which is printed then */
#include "tests/shared/api/pair_case.h"
#include "tests/shared/random.h"
#include "tests/shared/say.h"
#include "tests/shared/suite.h"

enum { GRAPHS = 30, FIRST = 180, MOST_VALUES = 64, MOST_RESULTS = 4, NARROW = 128, WIDE = 256 };

static const char *const recipes[] = {
    "f32",   "bf16",  "delayed {history = 2}", "current", "rowwise", "rowwise_gw_hp",
    "block", "mxfp8", "block {pow2 = true}",   "fake"};
enum { N_RECIPES = sizeof recipes / sizeof *recipes };

/* ---- a random layer ---- */

typedef struct value {
    char name[32];
    int width;
} value;

typedef struct result {
    char value[32]; /* f32 or bf16 */
    int width;
    bool bf16;
} result;

typedef struct layer {
    uint32_t random;
    text declared, body, inputs;
    value v[MOST_VALUES];
    int n, n_params, n_inputs;
    result out[MOST_RESULTS];
    int n_out;
    bool state;          /* it replaces one, which it reads */
    bool twice;          /* two results are one value: its gradients may add up in another order */
    bool head;           /* a cross-entropy is the first result */
    char gradients[200]; /* the inputs whose gradients are asked for */
    char names[MOST_VALUES][32]; /* of named values, for patterns */
    int n_names;
} layer;

static int below(layer *l, int n)
{
    return (int)(test_random(&l->random) % (uint32_t)n);
}

/* The dtype of the next parameter: one in four is bf16. It draws no random number, so each seed
 * still makes the layer that it made before. */
static const char *dtype(const layer *l)
{
    return (l->declared.n + l->body.n) % 4 == 1 ? "bf16" : "f32";
}

static const value *any(layer *l)
{
    const int a = below(l, l->n), b = below(l, l->n);
    return &l->v[a > b ? a : b];
}

static const value *any_of(layer *l, int width)
{
    for (int i = 0; i < 20; i++) {
        const value *v = any(l);
        if (v->width == width)
            return v;
    }
    return &l->v[0]; /* the first is narrow */
}

static const char *add(layer *l, int width)
{
    ck_assert_int_lt(l->n, MOST_VALUES);
    value *v = &l->v[l->n++];
    snprintf(v->name, sizeof v->name, "%%v%d", l->n);
    v->width = width;
    return v->name;
}

static void add_input(layer *l)
{
    const bool bf16 = below(l, 4) == 0;
    const int i = l->n_inputs++;
    say(&l->inputs, "%s%%x%d: %s[2, 16, %d]", i ? ", " : "", i, bf16 ? "bf16" : "f32", NARROW);
    if (below(l, 3)) {
        const size_t n = strlen(l->gradients);
        snprintf(l->gradients + n, sizeof l->gradients - n, "%sx%d", n ? "," : "", i);
    }
    const char *name = add(l, NARROW);
    say(&l->body, bf16 ? "  %s = cast(%%x%d) {to = f32}\n" : "  %s = mul(%%x%d, 1.5)\n", name, i);
}

static void add_linear(layer *l)
{
    const value *x = any(l);
    const int to = below(l, 3) ? NARROW : WIDE;
    const bool transpose = below(l, 2), bias = below(l, 3) == 0, input = below(l, 6) == 0;
    const int p = l->n_params++;
    const int rows = transpose ? to : x->width, columns = transpose ? x->width : to;
    char weight[32];
    snprintf(weight, sizeof weight, input ? "%%w%d" : "w%d", p);
    if (input)
        say(&l->inputs, ", %%w%d: f32[%d, %d]", p, rows, columns);
    else
        say(&l->declared, "param w%d: %s[%d, %d] normal(0.1)\n", p, dtype(l), rows, columns);
    if (input && below(l, 2)) {
        const size_t n = strlen(l->gradients);
        snprintf(l->gradients + n, sizeof l->gradients - n, "%sw%d", n ? "," : "", p);
    }
    if (bias)
        say(&l->declared, "param b%d: %s[%d] normal(0.1)\n", p, dtype(l), to);
    char from[32];
    snprintf(from, sizeof from, "%s", x->name);
    const char *name = add(l, to);
    say(&l->body, "  %s = linear(%s, %s", name, from, weight);
    if (bias)
        say(&l->body, ", b%d", p);
    say(&l->body, ") {name = \"l%d\"%s}\n", p, transpose ? ", transpose_b = true" : "");
    snprintf(l->names[l->n_names++], 32, "l%d.*", p);
    if (!input && below(l, 6) == 0 && to == x->width) { /* the same weight again */
        char first[32];
        snprintf(first, sizeof first, "%s", name);
        name = add(l, to);
        say(&l->body, "  %s = linear(%s, %s) {name = \"l%d.again\"%s}\n", name, first, weight, p,
            transpose ? ", transpose_b = true" : "");
    }
}

static void add_pointwise(layer *l)
{
    static const char *const unary[] = {"gelu", "silu", "tanh", "relu", "sigmoid", "softmax"};
    const value *x = any(l), *y = any(l);
    char a[32], b[32];
    const int width = x->width, which = below(l, 12);
    snprintf(a, sizeof a, "%s", x->name);
    snprintf(b, sizeof b, "%s", y->width == width ? y->name : a);
    const char *to = add(l, width);
    if (which < 6)
        say(&l->body, "  %s = %s(%s)\n", to, unary[which], a);
    else if (which < 8)
        say(&l->body, "  %s = add(%s, %s)\n", to, a, b);
    else if (which == 8)
        say(&l->body, "  %s = mul(%s, tanh(%s))\n", to, a, b);
    else if (which == 9)
        say(&l->body, "  %s = cast(cast(%s) {to = bf16}) {to = f32}\n", to, a);
    else if (which == 10)
        say(&l->body,
            "  %s = concat(slice(%s) {start = %d, stop = %d}, slice(%s) {start = 0, "
            "stop = %d})\n",
            to, a, width / 4, width, b, width / 4);
    else if (l->state)
        say(&l->body, "  %s = mul(%s, seen)\n", to, a);
    else
        say(&l->body, "  %s = sub(%s, mean(%s))\n", to, a, a);
    if (below(l, 2))
        snprintf(l->names[l->n_names++], 32, "%s", to + 1);
}

static void add_norm(layer *l)
{
    const value *x = any(l);
    char from[32];
    const int width = x->width, p = l->n_params++;
    const bool rms = below(l, 2);
    snprintf(from, sizeof from, "%s", x->name);
    const char *to = add(l, width);
    say(&l->declared, "param g%d: %s[%d] normal(1)\n", p, dtype(l), width);
    if (!rms)
        say(&l->declared, "param h%d: %s[%d] normal(0.1)\n", p, dtype(l), width);
    if (rms)
        say(&l->body, "  %s = rmsnorm(%s, g%d)\n", to, from, p);
    else
        say(&l->body, "  %s = layernorm(%s, g%d, h%d)\n", to, from, p, p);
}

static void add_attention(layer *l)
{
    char q[32], k[32], v[32];
    const value *x = any_of(l, NARROW);
    snprintf(q, sizeof q, "%s", x->name);
    snprintf(k, sizeof k, "%s", any_of(l, NARROW)->name);
    snprintf(v, sizeof v, "%s", any_of(l, NARROW)->name);
    const char *to = add(l, NARROW);
    if (below(l, 2))
        say(&l->body,
            "  %s = attention(rope(%s) {heads = 2}, rope(%s) {heads = 2}, %s) "
            "{heads = 2, causal = true}\n",
            to, q, k, v);
    else
        say(&l->body, "  %s = attention(%s, %s, %s) {heads = 4}\n", to, q, k, v);
}

static void add_embedding(layer *l)
{
    const int p = l->n_params++;
    say(&l->declared, "param e%d: %s[16, %d] normal(0.5)\n", p, dtype(l), NARROW);
    say(&l->inputs, ", %%i%d: i32[2, 16]", p);
    const char *to = add(l, NARROW);
    say(&l->body, "  %s = embedding(e%d, %%i%d)\n", to, p, p);
}

static void make_layer(layer *l, uint32_t seed)
{
    memset(l, 0, sizeof *l);
    l->random = seed * 2654435761u + 12345;
    test_random(&l->random);
    l->state = below(l, 4) == 0;
    l->head = below(l, 4) == 0;
    if (l->state)
        say(&l->declared, "state seen: f32[%s] ones\n", below(l, 2) ? "" : "16, 1");
    add_input(l);
    add_linear(l);
    const int steps = 2 + below(l, 14);
    for (int i = 0; i < steps; i++)
        switch (below(l, 9)) {
        case 0: add_norm(l); break;
        case 1: add_attention(l); break;
        case 2: i % 2 ? add_input(l) : add_embedding(l); break;
        case 3:
        case 4:
        case 5: add_linear(l); break;
        default: add_pointwise(l); break;
        }
    l->n_out = 1 + below(l, MOST_RESULTS);
    for (int i = 0; i < l->n_out; i++) {
        const value *v = i ? any(l) : &l->v[l->n - 1];
        result *r = &l->out[i];
        for (int k = 0; k < i; k++)
            l->twice |= !strcmp(l->out[k].value, v->name);
        r->width = v->width;
        r->bf16 = below(l, 3) == 0;
        snprintf(r->value, sizeof r->value, "%s", v->name);
    }
}

/* The module with the results, or with the loss that their cotangents make. */
static const char *write_module(const layer *l, bool loss, text *t)
{
    t->n = 0;
    say(t, "module random\n%s", l->declared.s);
    if (l->head)
        say(t, "param head: f32[64, %d] normal(0.1)\n", l->out[0].width);
    say(t, "func forward(%s", l->inputs.s);
    if (l->head)
        say(t, ", %%t: i32[2, 16]");
    for (int i = 0; i < l->n_out && loss; i++)
        say(t, ", %%dy%d: %s[2, 16, %d]", i, l->out[i].bf16 ? "bf16" : "f32", l->out[i].width);
    say(t, ") -> (%s", loss || l->head ? "%loss: f32[]" : "");
    for (int i = 0; i < l->n_out && !loss; i++)
        say(t, "%s%%y%d: %s[2, 16, %d]", i || l->head ? ", " : "", i,
            l->out[i].bf16 ? "bf16" : "f32", l->out[i].width);
    say(t, ") {\n%s", l->body.s);
    if (l->head)
        say(t,
            "  %%ce = cross_entropy(linear(%s, head) {transpose_b = true, name = \"head\"}, "
            "%%t)\n",
            l->out[0].value);
    for (int i = 0; i < l->n_out; i++) {
        if (l->out[i].bf16)
            say(t, "  %%r%d = cast(%s) {to = bf16}\n", i, l->out[i].value);
        if (!loss)
            continue;
        char cotangent[40], r[40];
        snprintf(cotangent, sizeof cotangent, l->out[i].bf16 ? "cast(%%dy%d) {to = f32}" : "%%dy%d",
                 i);
        if (l->out[i].bf16)
            snprintf(r, sizeof r, "cast(%%r%d) {to = f32}", i);
        else
            snprintf(r, sizeof r, "%s", l->out[i].value);
        say(t,
            "  %%s%d = reshape(reduce_sum(reshape(mul(%s, %s)) {shape = [%d]})) "
            "{shape = []}\n",
            i, r, cotangent, 32 * l->out[i].width);
    }
    say(t, "  return ");
    if (loss) {
        for (int i = 1; i < l->n_out; i++)
            say(t, "add(");
        say(t, "%%s0");
        for (int i = 1; i < l->n_out; i++)
            say(t, ", %%s%d)", i);
    } else {
        for (int i = 0; i < l->n_out; i++)
            if (l->out[i].bf16)
                say(t, "%s%%r%d", i ? ", " : "", i);
            else
                say(t, "%s%s", i ? ", " : "", l->out[i].value);
    }
    if (l->head) { /* the cross-entropy comes first */
        char *at = strstr(t->s, "  return ");
        char rest[4096];
        snprintf(rest, sizeof rest, "%s", at + 9);
        t->n = (size_t)(at - t->s);
        say(t, loss ? "  return add(%%ce, %s)" : "  return %%ce, %s", rest);
    }
    if (l->state)
        say(t, ", seen <- add(mul(seen, 0.5), 1)");
    say(t, "\n}\n");
    return t->s;
}

/* ---- programs ---- */

typedef struct program {
    fp8c_program *p;
    pair_values in, out; /* out: of the step so far, and variables after it */
} program;

static uint32_t seed_now;
static const char *recipe_now;
static fp8c_context *ctx;
static program whole, plain, other;
static text of_loss, of_results;

static fp8c_compile_options options(const char *target)
{
    fp8c_compile_options o = recipe(recipe_now);
    o.target = target;
    o.pair = 1;
    return o;
}

/* false: the recipe or the budget can't be had. */
static bool open_program(program *x, const char *module, const fp8c_compile_options *o,
                         const char *may_say)
{
    fp8c_module *m;
    x->in.n = x->out.n = 0;
    ck_assert_msg(fp8c_module_parse(ctx, module, strlen(module), "random.f8", NULL, 0, &m) ==
                      FP8C_OK,
                  "seed %u: %s", seed_now, fp8c_context_message(ctx));
    const fp8c_status status = fp8c_compile(m, o, &x->p);
    fp8c_module_destroy(m);
    if (status != FP8C_OK && may_say && strstr(fp8c_context_message(ctx), may_say))
        return false;
    ck_assert_msg(status == FP8C_OK, "seed %u, %s: %s\n%s", seed_now, recipe_now,
                  fp8c_context_message(ctx), module);
    return true;
}

static void close_program(program *x)
{
    pair_end(&x->in);
    pair_end(&x->out);
    fp8c_program_destroy(x->p);
}

static void initialize(program *x)
{
    pair_end(&x->out);
    ck_assert_int_eq(fp8c_program_initialize(x->p, 7), FP8C_OK);
}

static void update_scales(program *x)
{
    const int f = fp8c_program_function(x->p, "update_scales");
    if (f >= 0)
        ck_assert_int_eq(fp8c_program_run(x->p, f), FP8C_OK);
}

static void set_one(program *x)
{
    const fp8c_type scalar = {FP8C_F32, 0, {0}};
    const float one = 1;
    pair_set(&x->in, "dloss", &scalar, &one);
}

static void take_states(program *x)
{
    static const char *const prefixes[] = {"fp8.", "grad.", "seen"};
    for (int i = 0; i < 3; i++)
        pair_variables(x->p, prefixes[i], &x->out);
}

/* Forward and backward by named ports, or by a handle; saved values are not kept in `in`. */
static void step(program *x, bool first, bool handle)
{
    set_one(x);
    if (handle) {
        fp8c_saved *s;
        ck_assert_msg(fp8c_saved_create(x->p, &s) == FP8C_OK, "%s", fp8c_context_message(ctx));
        pair_forward(x->p, first, s, &x->in, &x->out);
        pair_backward(x->p, s, &x->in, &x->out);
        fp8c_saved_destroy(s);
    } else {
        pair_step(x->p, first, &x->in, &x->out);
        for (int i = 0; i < x->in.n; i++)
            if (!strncmp(x->in.value[i].name, "saved.", 6)) {
                free(x->in.value[i].data);
                x->in.value[i--] = x->in.value[--x->in.n];
            }
    }
    for (int i = 0; i < x->out.n; i++)
        if (!strncmp(x->out.value[i].name, "saved.", 6)) {
            free(x->out.value[i].data);
            x->out.value[i--] = x->out.value[--x->out.n];
        }
    take_states(x);
}

/* What both have is equal; returns how many values that are. With `gradients` x has variables
 * grad.NAME and y results NAME. */
static int compare(const program *x, const program *y, bool gradients, const char *what)
{
    int n = 0;
    for (int i = 0; i < x->out.n; i++) {
        const pair_value *a = &x->out.value[i];
        const char *name = a->name;
        if (gradients && (strncmp(name, "grad.", 5) || !pair_find(&y->out, name + 5)))
            continue;
        const pair_value *b = pair_find(&y->out, gradients ? name + 5 : name);
        if (!b)
            continue;
        n++;
        ck_assert_msg(!memcmp(a->data, b->data, (size_t)fp8c_type_bytes(&a->type)),
                      "seed %u, %s, %s: %s differs\n%s", seed_now, recipe_now, what, name,
                      gradients ? of_loss.s : of_results.s);
    }
    return n;
}

/* ---- the comparisons ---- */

/* Whether micro_step's form for an empty history runs now: the first pair has its bits. */
static bool is_first(const program *x)
{
    const int step = fp8c_program_function(x->p, "micro_step");
    int form;
    ck_assert_msg(fp8c_program_form(x->p, step, &form) == FP8C_OK, "%s", fp8c_context_message(ctx));
    return form != step;
}

/* Two steps of micro_step, and of its own pair, which adds to the same variables. */
static void check_own_pair(void)
{
    static pair_values want[2];
    for (int pair = 0; pair < 2; pair++) {
        initialize(&whole);
        for (int i = 0; i < 2; i++) {
            if (pair) {
                step(&whole, is_first(&whole), seed_now % 2);
            } else {
                pair_run(whole.p, "micro_step", &whole.in, &whole.out);
                take_states(&whole);
            }
            if (!pair) {
                want[i] = whole.out;
                whole.out.n = 0;
            } else {
                static program before;
                before.out = want[i];
                ck_assert_int_ge(compare(&before, &whole, false, i ? "second step" : "own pair"),
                                 2);
                pair_end(&want[i]);
            }
            update_scales(&whole);
        }
    }
}

/* The layer's pair against micro_step of the loss: gradients of parameters after one step. */
static void check_gradients(void)
{
    initialize(&whole);
    pair_run(whole.p, "micro_step", &whole.in, &whole.out);
    take_states(&whole);
    initialize(&plain);
    step(&plain, false, false);
    ck_assert_int_ge(compare(&whole, &plain, true, "loss"), 1);
}

static void check_variant(const fp8c_compile_options *o, bool handle, const char *what)
{
    if (!open_program(&other, of_results.s, o,
                      o->memory_share > 0 ? "the least possible share"
                                          : "no value of 'forward' has a name"))
        return;
    for (int first = 0; first < 2; first++) {
        initialize(&plain);
        initialize(&other);
        for (int i = 0; i < 2; i++) {
            step(&plain, first, false);
            step(&other, first, handle);
            compare(&plain, &other, false, what);
            update_scales(&plain);
            update_scales(&other);
        }
        if (fp8c_program_function(plain.p, "forward.first") < 0)
            break;
    }
    close_program(&other);
}

START_TEST(random_layers)
{
    static layer l;
    const char *from = getenv("FP8C_SEED"), *count = getenv("FP8C_GRAPHS");
    const uint32_t begin = from ? (uint32_t)strtoul(from, NULL, 0) : FIRST;
    const uint32_t n = count ? (uint32_t)strtoul(count, NULL, 0) : from ? 1 : GRAPHS;
    ctx = new_context();
    for (seed_now = begin; seed_now < begin + n; seed_now++) {
        make_layer(&l, seed_now);
        recipe_now = recipes[seed_now % N_RECIPES];
        const char *target = below(&l, 6) ? "cpu" : "reference";
        write_module(&l, true, &of_loss);
        write_module(&l, false, &of_results);
        if (from && n == 1)
            printf("seed %u, %s, %s\n%s", seed_now, recipe_now, target, of_results.s);
        fp8c_compile_options o = options(target);
        o.train_step = o.add_gradients = 1;
        if (!open_program(&whole, of_loss.s, &o, "the loss must depend on a parameter"))
            continue;
        o = options(target);
        o.gradients_of = *l.gradients ? l.gradients : NULL;
        ck_assert(open_program(&plain, of_results.s, &o, NULL));
        check_own_pair();
        if (!strcmp(recipe_now, "f32") &&
            !l.twice) /* elsewhere what is rounded depends on who reads it */
            check_gradients();
        if (!strcmp(target, "cpu")) { /* the interpreter takes no budget */
            o.memory_share = (1 + below(&l, 99)) / 100.0;
            check_variant(&o, false, "share");
            o.memory_share = 0;
            *(below(&l, 2) ? &o.checkpoint : &o.recompute) = l.names[below(&l, l.n_names)];
        }
        o.no_fuse = below(&l, 2);
        check_variant(&o, true, "patterns");
        close_program(&plain);
        close_program(&whole);
    }
    fp8c_context_destroy(ctx);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("pair_random");
    TCase *t = tcase_create("pair_random");
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_test(t, random_layers);
    suite_add_tcase(s, t);
    return s;
}
