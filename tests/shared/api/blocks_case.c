/* See blocks_case.h. */
#include "tests/shared/api/blocks_case.h"

#include <math.h>
#include <stdarg.h>

enum { B = 2, T = 32, WIDTH = 128, VOCABULARY = 128, ROOM = 16384 };

static const fp8c_type scalar = {FP8C_F32, 0, {0}};
static const fp8c_type ids = {FP8C_I32, 2, {B, T}};

/* ---- the text ---- */

typedef struct writer {
    char *text;
    size_t n, room;
} writer;

__attribute__((format(printf, 2, 3))) static void put(writer *w, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    w->n += (size_t)vsnprintf(w->text + w->n, w->room - w->n, format, args);
    va_end(args);
    ck_assert_uint_lt(w->n, w->room);
}

static void put_params(writer *w, int l)
{
    for (int i = 1; i <= 2; i++) {
        put(w, "param h.%d.ln_%d.weight: f32[C] ones\n", l, i);
        if (l % 2)
            put(w, "param h.%d.ln_%d.bias: f32[C] zeros\n", l, i);
    }
    static const char *const linear[][2] = {
        {"qkv", "C, 3*C"}, {"proj", "C, C"}, {"up", "C, 2*C"}, {"down", "2*C, C"}};
    for (int i = 0; i < 4; i++) {
        put(w, "param h.%d.%s.weight: f32[%s] normal(0.08)\n", l, linear[i][0], linear[i][1]);
        put(w, "param h.%d.%s.bias: f32[%s] normal(0.02)\n", l, linear[i][0],
            strchr(linear[i][1], ',') + 2);
    }
    put(w, "param h.%d.side.weight: f32[C, C] normal(0.08)\n", l);
}

static void put_norm(writer *w, const char *to, const char *from, int l, int i)
{
    if (l % 2)
        put(w, "  %%%s%d = layernorm(%%%s%d, h.%d.ln_%d.weight, h.%d.ln_%d.bias)\n", to, l, from, l,
            l, i, l, i);
    else
        put(w, "  %%%s%d = rmsnorm(%%%s%d, h.%d.ln_%d.weight)\n", to, l, from, l, l, i);
}

/* A block from %xL to %yL. A linear reads %xL itself, and two linears' results go into %yL: so
 * quantization on either side of a cut would look through it. */
static void put_block(writer *w, int l)
{
    put_norm(w, "n", "x", l, 1);
    put(w, "  %%qkv%d = linear(%%n%d, h.%d.qkv.weight, h.%d.qkv.bias)\n", l, l, l, l);
    for (int i = 0; i < 3; i++)
        put(w, "  %%%c%d = slice(%%qkv%d) {axis = -1, start = %d*C, stop = %d*C}\n", "qkv"[i], l, l,
            i, i + 1);
    put(w, "  %%a%d = attention(%%q%d, %%k%d, %%v%d) {heads = 4}\n", l, l, l, l);
    put(w, "  %%r%d = add(%%x%d, linear(%%a%d, h.%d.proj.weight, h.%d.proj.bias))\n", l, l, l, l,
        l);
    put_norm(w, "m", "r", l, 2);
    put(w, "  %%u%d = gelu(linear(%%m%d, h.%d.up.weight, h.%d.up.bias))\n", l, l, l, l);
    put(w, "  %%d%d = add(%%r%d, linear(%%u%d, h.%d.down.weight, h.%d.down.bias))\n", l, l, l, l,
        l);
    put(w, "  %%s%d = linear(%%x%d, h.%d.side.weight)\n", l, l, l);
    put(w, "  %%y%d = add(%%d%d, %%s%d)\n", l, l, l);
}

static void put_cut(writer *w, const char *dtype, int l, blocks_cut cut)
{
    if (cut == CUT_NONE)
        put(w, "  %%x%d = %%y%d\n", l, l - 1);
    else if (cut == CUT_MARKED)
        put(w, "  %%x%d = boundary(%%y%d)\n", l, l - 1);
    else if (!strcmp(dtype, "f32"))
        put(w, "  %%x%d = boundary(add(%%y%d, %%cut%d))\n", l, l - 1, l);
    else
        put(w, "  %%x%d = boundary(add(%%y%d, cast(%%cut%d) {to = f32}))\n", l, l - 1, l);
}

/* Rules in place of `auto`: each block has another recipe, and one block has several. */
static void put_rules(writer *w, int first, int end)
{
    static const char *const rules[BLOCKS] = {
        "recipe \"h.0.*\" = delayed\n",
        ("recipe \"h.1.*\" = block\nrecipe \"h.1.up\" = mxfp8\n"
         "recipe \"h.1.down\" wgrad = bf16\n"),
        "recipe \"h.2.*\" = current\nrecipe \"h.2.q*\" = delayed {history = 4, margin = 1}\n",
        "recipe \"h.3.*\" = rowwise\nrecipe \"h.3.side\" = bf16\nrecipe \"head\" = delayed\n"};
    for (int l = first; l < end; l++)
        put(w, "%s", rules[l]);
}

static void put_head(writer *w, const char *dtype, int first, int end, blocks_cut cut,
                     const char *watch)
{
    put(w, "func forward(");
    if (first)
        put(w, "%%cut%d: %s[B, T, C]", first, dtype);
    else
        put(w, "%%tokens: i32[B, T]");
    if (end == BLOCKS)
        put(w, ", %%targets: i32[B, T]");
    for (int l = first + 1; cut == CUT_PROBED && l < end; l++)
        put(w, ", %%cut%d: %s[B, T, C]", l, dtype);
    put(w, ") -> (");
    if (end == BLOCKS)
        put(w, "%%loss: f32[]");
    else
        put(w, "%%cut%d: %s[B, T, C]", end, dtype);
    for (int l = first; l < end; l++)
        for (const char *c = watch; *c; c++)
            put(w, ", %%out.%c%d: %s[B, T, C]", *c, l, dtype);
    put(w, ") {\n");
}

static void put_return(writer *w, bool narrow, int first, int end, const char *watch)
{
    const char *value = narrow ? "cast(%%%c%d) {to = bf16}" : "%%%c%d";
    put(w, "  return ");
    if (end == BLOCKS)
        put(w, "cross_entropy(linear(rmsnorm(%%y%d, ln_f), head), %%targets)", end - 1);
    else
        put(w, value, 'y', end - 1);
    for (int l = first; l < end; l++)
        for (const char *c = watch; *c; c++) {
            put(w, ", ");
            put(w, value, *c, l);
        }
    put(w, "\n}\n");
}

void blocks_text(char *text, size_t room, const char *recipe, int first, int end, blocks_cut cut,
                 const char *watch)
{
    writer w = {text, 0, room};
    const char *dtype = strcmp(recipe, "f32") ? "bf16" : "f32";
    const bool narrow = *dtype == 'b', last = end == BLOCKS;
    put(&w, "module blocks\ndim B = %d, T = %d, C = %d, V = %d\n", B, T, WIDTH, VOCABULARY);
    if (!first)
        put(&w, "param wte: f32[V, C] normal(0.3)\nparam wpe: f32[T, C] normal(0.3)\n");
    for (int l = first; l < end; l++)
        put_params(&w, l);
    if (last)
        put(&w, "param ln_f: f32[C] ones\nparam head: f32[C, V] normal(0.05)\n");
    put_head(&w, dtype, first, end, cut, watch);
    if (!first)
        put(&w, "  %%x0 = add(embedding(wte, %%tokens), wpe)\n");
    else
        put(&w, narrow ? "  %%x%d = cast(%%cut%d) {to = f32}\n" : "  %%x%d = %%cut%d\n", first,
            first);
    for (int l = first; l < end; l++) {
        if (l > first)
            put_cut(&w, dtype, l, cut);
        put_block(&w, l);
    }
    put_return(&w, narrow, first, end, watch);
    if (!strcmp(recipe, "auto"))
        put_rules(&w, first, end);
}

/* ---- life ---- */

/* The program of blocks [first, end). */
static fp8c_program *make(fp8c_context *ctx, const blocks_how *how, int first, int end)
{
    static const double shares[BLOCKS] = {0.6, 0.05, 0.3, 0.8};
    static char text[ROOM];
    blocks_text(text, sizeof text, how->recipe, first, end, how->cut, "");
    fp8c_compile_options o = recipe(how->recipe);
    o.target = how->target;
    o.pair = o.add_gradients = 1;
    o.train_step = !how->four;
    o.memory_share = how->budgets && how->four ? shares[first] : 0;
    if (first || (how->cut == CUT_PROBED && !how->four))
        o.gradients_of = "cut*";
    fp8c_module *m = parse(ctx, text);
    fp8c_program *p = compile(ctx, m, &o);
    fp8c_module_destroy(m);
    ck_assert_int_eq(fp8c_program_initialize(p, 7), FP8C_OK);
    return p;
}

/* The parameters of all programs, in their order: the same for one and for four. */
static void find_params(blocks *b)
{
    fp8c_variable v;
    char name[80];
    for (int k = 0; k < b->n; k++)
        for (int i = 0; fp8c_program_variable(b->p[k], i, &v) == FP8C_OK; i++) {
            if (!v.is_param)
                continue;
            ck_assert_int_lt(b->n_params, BLOCKS_PARAMS);
            blocks_param *q = &b->param[b->n_params++];
            snprintf(q->name, sizeof q->name, "%s", v.name);
            snprintf(name, sizeof name, "grad.%s", v.name);
            q->program = b->p[k];
            q->variable = i;
            q->grad_variable = fp8c_program_find_variable(b->p[k], name);
            q->n = fp8c_type_bytes(&v.type) / 4;
            q->value = calloc((size_t)q->n, 4 * sizeof(float));
            ck_assert_ptr_nonnull(q->value);
            q->grad = q->value + q->n;
            q->m = q->grad + q->n;
            q->v = q->m + q->n;
            ck_assert_int_eq(fp8c_program_read(q->program, i, q->value), FP8C_OK);
        }
}

void blocks_begin(blocks *b, fp8c_context *ctx, const blocks_how *how)
{
    memset(b, 0, sizeof *b);
    b->bf16 = strcmp(how->recipe, "f32") != 0;
    b->n = how->four ? BLOCKS : 1;
    b->forgets = -1;
    for (int k = 0; k < b->n; k++) {
        b->p[k] = make(ctx, how, k, how->four ? k + 1 : BLOCKS);
        for (int m = 0; m < (how->four ? MICRO : 1); m++)
            ck_assert_int_eq(fp8c_saved_create(b->p[k], &b->saved[k][m]), FP8C_OK);
    }
    find_params(b);
}

void blocks_end(blocks *b)
{
    for (int i = 0; i < b->n_params; i++)
        free(b->param[i].value);
    for (int m = 0; m < MICRO; m++)
        pair_end(&b->micro[m]);
    for (int k = 0; k < b->n; k++) {
        for (int m = 0; m < MICRO; m++)
            fp8c_saved_destroy(b->saved[k][m]);
        fp8c_program_destroy(b->p[k]);
    }
}

/* ---- a step ---- */

/* The micro-batch of a step: a token's successor is always the same. */
static void fill(blocks *b, int m)
{
    static int32_t tokens[B * T], targets[B * T];
    static const float zeros[B * T * WIDTH], one = 1;
    uint32_t seed = (uint32_t)(b->step * MICRO + m) + 1;
    for (int i = 0; i < B * T; i++) {
        seed = seed * 1664525u + 1013904223u;
        tokens[i] = (int32_t)(seed >> 16) % VOCABULARY;
        targets[i] = (tokens[i] * 5 + 3) % VOCABULARY;
    }
    pair_set(&b->micro[m], "tokens", &ids, tokens);
    pair_set(&b->micro[m], "targets", &ids, targets);
    pair_set(&b->micro[m], "dloss", &scalar, &one);
    const fp8c_type cut = {b->bf16 ? FP8C_BF16 : FP8C_F32, 3, {B, T, WIDTH}};
    for (int l = 1; b->n == 1 && l < BLOCKS; l++) {
        char name[8];
        snprintf(name, sizeof name, "cut%d", l);
        pair_set(&b->micro[m], name, &cut, zeros);
    }
}

/* The names of values are the same on every side of a cut: forward's result cutL is the next
 * program's input, and its gradient dcutL is the cotangent here. */
static void forwards(blocks *b, int m, bool first)
{
    for (int k = 0; k < b->n; k++) {
        fp8c_saved *saved = b->saved[k][b->n > 1 ? m : 0];
        if (b->twice) {
            pair_forward(b->p[k], first, saved, &b->micro[m], &b->micro[m]);
            fp8c_saved_drop(saved);
        }
        pair_forward(b->p[k], first, saved, &b->micro[m], &b->micro[m]);
    }
}

static void backwards(blocks *b, int m)
{
    for (int k = b->n; k-- > 0;)
        pair_backward(b->p[k], b->saved[k][b->n > 1 ? m : 0], &b->micro[m], &b->micro[m]);
}

/* The first steps of `delayed` have nothing observed. */
static bool is_first(const blocks *b, int k)
{
    return !b->step && fp8c_program_function(b->p[k], "forward.first") >= 0;
}

static void by_named_ports(blocks *b, int m)
{
    static pair_values out;
    pair_step(b->p[0], is_first(b, 0), &b->micro[m], &out);
    for (int i = 0; i < out.n; i++)
        if (strncmp(out.value[i].name, "saved.", 6))
            pair_set(&b->micro[m], out.value[i].name, &out.value[i].type, out.value[i].data);
    pair_end(&out);
    pair_forget(&b->micro[m], "saved."); /* forward.first saves others */
}

/* AdamW in f32 on the mean of the gradients, clipped to norm 1. */
static void optimize(blocks *b)
{
    float sum = 0;
    for (int i = 0; i < b->n_params; i++)
        for (int64_t k = 0; k < b->param[i].n; k++) {
            const float g = b->param[i].grad[k] / MICRO;
            sum += g * g;
        }
    const float norm = sqrtf(sum), clip = norm > 1 ? 1 / norm : 1;
    const float t = (float)(b->step + 1);
    const float correct_m = 1 - powf(0.9f, t), correct_v = 1 - powf(0.95f, t), lr = 3e-3f;
    for (int i = 0; i < b->n_params; i++) {
        const blocks_param *q = &b->param[i];
        for (int64_t k = 0; k < q->n; k++) {
            const float g = q->grad[k] / MICRO * clip;
            q->m[k] = 0.9f * q->m[k] + 0.1f * g;
            q->v[k] = 0.95f * q->v[k] + 0.05f * g * g;
            const float up = q->m[k] / correct_m / (sqrtf(q->v[k] / correct_v) + 1e-8f);
            q->value[k] -= lr * (up + 0.1f * q->value[k]);
        }
    }
}

static void read_gradients(const blocks *b)
{
    for (int i = 0; i < b->n_params; i++) {
        const blocks_param *q = &b->param[i];
        ck_assert_int_eq(fp8c_program_read(q->program, q->grad_variable, q->grad), FP8C_OK);
    }
}

static void write_params(const blocks *b, bool gradients)
{
    for (int i = 0; i < b->n_params; i++) {
        const blocks_param *q = &b->param[i];
        ck_assert_int_eq(fp8c_program_write(q->program, gradients ? q->grad_variable : q->variable,
                                            gradients ? q->grad : q->value),
                         FP8C_OK);
    }
}

static void update_scales(const blocks *b)
{
    for (int k = 0; k < b->n; k++) {
        const int f = fp8c_program_function(b->p[k], "update_scales");
        if (f >= 0 && !(b->forgets == k && b->step == 1))
            ck_assert_int_eq(fp8c_program_run(b->p[k], f), FP8C_OK);
    }
}

void blocks_step(blocks *b)
{
    for (int i = 0; i < b->n_params; i++)
        memset(b->param[i].grad, 0, (size_t)b->param[i].n * 4);
    write_params(b, true);
    for (int m = 0; m < MICRO; m++) {
        fill(b, m);
        if (b->train) {
            pair_run(b->p[0], "micro_step", &b->micro[m], &b->micro[m]);
            continue;
        }
        if (b->n == 1 && m == 0) {
            by_named_ports(b, m);
            continue;
        }
        forwards(b, m, !b->step);
        if (b->n == 1)
            backwards(b, m);
    }
    for (int m = 0; b->n > 1 && m < MICRO; m++)
        backwards(b, m);
    read_gradients(b);
    optimize(b);
    write_params(b, false);
    update_scales(b);
    b->step++;
}

/* ---- comparison ---- */

static char difference[200];

static const char *differ_states(const blocks *x, const blocks *y);

const char *blocks_differ(const blocks *x, const blocks *y)
{
    static const char *const passed[] = {"loss", "dcut3", "dcut2", "dcut1"};
    for (int m = 0; m < MICRO; m++)
        for (int i = 0; i < 4; i++) {
            const pair_values *a = &x->micro[m], *b = &y->micro[m];
            if (i && (!pair_find(a, passed[i]) || !pair_find(b, passed[i])))
                continue;
            snprintf(difference, sizeof difference, "%s of micro-batch %d", passed[i], m);
            if (!pair_equal(a, b, passed[i]))
                return difference;
        }
    ck_assert_int_eq(x->n_params, y->n_params);
    for (int i = x->n_params; i-- > 0;) { /* backward makes the last parameters' first */
        const blocks_param *p = &x->param[i], *q = &y->param[i];
        ck_assert_str_eq(p->name, q->name);
        snprintf(difference, sizeof difference, "the gradient of %s", p->name);
        if (memcmp(p->grad, q->grad, (size_t)p->n * 4))
            return difference;
        snprintf(difference, sizeof difference, "parameter %s", p->name);
        if (memcmp(p->value, q->value, (size_t)p->n * 4))
            return difference;
    }
    return differ_states(x, y);
}

/* The states of FP8 of all programs: element by element under "STATE of ELEMENT". */
static void list_states(const blocks *b, pair_values *out)
{
    for (int k = 0; k < b->n; k++) {
        static pair_values states;
        pair_variables(b->p[k], "fp8.", &states);
        for (int i = 0; i < states.n; i++) {
            const pair_value *s = &states.value[i];
            const int v = fp8c_program_find_variable(b->p[k], s->name);
            const int64_t columns = s->type.rank > 1 ? s->type.dim[1] : 1;
            const fp8c_type row = {FP8C_F32, 1, {columns}};
            const char *element;
            for (int64_t e = 0; (element = fp8c_program_element(b->p[k], v, e, 0)); e++) {
                char name[96];
                snprintf(name, sizeof name, "%s of %s", s->name, element);
                pair_set(out, name, &row, (const float *)s->data + e * columns);
            }
        }
        pair_end(&states);
    }
}

static const char *differ_states(const blocks *x, const blocks *y)
{
    static pair_values a, b;
    const char *found = NULL;
    list_states(x, &a);
    list_states(y, &b);
    ck_assert_int_eq(a.n, b.n);
    for (int i = 0; i < a.n && !found; i++) {
        const pair_value *p = &a.value[i], *q = pair_find(&b, p->name);
        /* a program's histories are as long as its longest rule's; the newest come first */
        const size_t n =
            q && q->type.dim[0] < p->type.dim[0] ? (size_t)q->type.dim[0] : (size_t)p->type.dim[0];
        snprintf(difference, sizeof difference, "%s", p->name);
        if (!q || memcmp(p->data, q->data, n * sizeof(float)))
            found = difference;
    }
    pair_end(&a);
    pair_end(&b);
    return found;
}
