/* Random graphs: see graphgen.h. The state is a list of values made so far; a step picks operands among
 * them, late ones more often, or makes new inputs, and adds what it made. */
#include "tests/shared/graphgen.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ir/fp8.h"

enum { MAX_VALUES = 1024, MAX_SHAPES = 16, MAX_ELEMENTS = 70000, MAX_STATES = 64 };

typedef struct gen {
    uint64_t random;
    f8_module *m;
    f8_func *f;
    f8_graph *g;
    f8_ref value[MAX_VALUES];
    int n_values;
    f8_type shape[MAX_SHAPES]; /* dtype unused */
    int n_shapes;
    int n_inputs;
    bool gemms;
    f8_ref next[MAX_STATES]; /* by state: what was made to replace it (an accumulation into it), or 0 */
} gen;

/* ---- numbers ---- */

uint64_t graphgen_next(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static int below(gen *t, int n)
{
    return (int)(graphgen_next(&t->random) % (uint64_t)n);
}

static bool chance(gen *t, int one_in)
{
    return below(t, one_in) == 0;
}

#define PICK(t, array) ((array)[below((t), (int)(sizeof(array) / sizeof(array)[0]))])

/* ---- shapes ---- */

static const int64_t sizes[] = {1,  1,  2,  3,  5,   7,   8,   16,  17,  31,  33,  48,
                                63, 64, 65, 96, 100, 127, 128, 129, 200, 255, 256, 257,
                                300, 511, 513, 1000, 1500};

static f8_type shape(int rank, int64_t a, int64_t b, int64_t c)
{
    return (f8_type){.rank = (uint8_t)rank, .dim = {a, b, c}};
}

/* A family that broadcasts and reshapes into itself in many ways. */
static void choose_shapes(gen *t)
{
    int64_t R = PICK(t, sizes), C = PICK(t, sizes), B = 1 + below(t, 3);
    while (R * C > 20000)
        *(R > C ? &R : &C) /= 3;
    const int64_t T = 1 + R / (B + 1), D = 1 + below(t, 40);
    const f8_type all[] = {
        shape(2, R, C, 0), shape(2, R, C, 0), shape(1, C, 0, 0), shape(2, R, 1, 0), shape(0, 0, 0, 0),
        shape(2, 1, C, 0), shape(3, B, T, C), shape(2, T, C, 0), shape(2, T, 1, 0), shape(3, B, 1, C),
        shape(3, B, T, 1), shape(2, C, R, 0), shape(2, C, D, 0), shape(2, R, D, 0), shape(1, R, 0, 0),
        shape(2, 1, 1, 0),
    };
    memcpy(t->shape, all, sizeof all);
    t->n_shapes = (int)(sizeof all / sizeof all[0]);
}

/* ---- values ---- */

static f8_dtype dtype_of(const gen *t, f8_ref r)
{
    return f8_type_of(t->g, r)->dtype;
}

static f8_ref add(gen *t, f8_ref r)
{
    if (r && t->n_values < MAX_VALUES)
        t->value[t->n_values++] = r;
    return r;
}

static f8_ref input(gen *t, f8_type type, f8_dtype d, const char *prefix)
{
    char name[32];
    type.dtype = d;
    snprintf(name, sizeof name, "%s%d", prefix, t->n_inputs++);
    return add(t, f8_func_input(t->f, name, &type, -1));
}

static f8_ref any_input(gen *t, f8_dtype d)
{
    return input(t, t->shape[below(t, t->n_shapes)], d, "x");
}

typedef bool (*test_fn)(const gen *t, f8_ref r, const void *arg);

/* A value of that dtype that passes, late ones more often; 0 if none of some tries does. */
static f8_ref find(gen *t, f8_dtype d, test_fn test, const void *arg)
{
    for (int i = 0; i < 24 && t->n_values; i++) {
        const int a = below(t, t->n_values), b = below(t, t->n_values);
        const f8_ref r = t->value[a > b ? a : b];
        if (dtype_of(t, r) == d && (!test || test(t, r, arg)))
            return r;
    }
    return 0;
}

/* A state of its own, read. */
static f8_ref state(gen *t, f8_type type, f8_dtype d)
{
    char name[16];
    if (t->m->n_vars >= MAX_STATES)
        return input(t, type, d, "x");
    snprintf(name, sizeof name, "s%d", (int)t->m->n_vars);
    f8_var v = {.name = name, .type = type, .kind = F8_VAR_STATE};
    v.type.dtype = d;
    const int32_t var = f8_module_var(t->m, &v);
    return add(t, f8_func_var(t->f, var));
}

/* r accumulates into acc: if that is a state, r is likely to replace it. */
static void accumulates(gen *t, f8_ref acc, f8_ref r)
{
    const f8_node *n = f8_at(t->g, acc);
    const f8_port *p = n->op == F8_OP_INPUT ? &t->f->in[f8_attr_i(t->g, acc, F8_A_INDEX)] : NULL;
    if (r && p && p->var >= 0 && p->var < MAX_STATES)
        t->next[p->var] = r;
}

static f8_ref some(gen *t, f8_dtype d)
{
    const f8_ref r = chance(t, 12) ? 0 : find(t, d, NULL, NULL);
    return r ? r : any_input(t, d);
}

static bool not_scalar(const gen *t, f8_ref r, const void *arg)
{
    (void)arg;
    return f8_type_of(t->g, r)->rank > 0;
}

static f8_ref some_tensor(gen *t, f8_dtype d)
{
    const f8_ref r = find(t, d, not_scalar, NULL);
    return r ? r : input(t, t->shape[below(t, 4)], d, "x");
}

/* The shape two operands broadcast to, if they do and it is not too large. */
static bool broadcasts(const f8_type *a, const f8_type *b, f8_type *out)
{
    *out = a->rank >= b->rank ? *a : *b;
    for (int i = 1; i <= out->rank; i++) {
        const int64_t x = i <= a->rank ? a->dim[a->rank - i] : 1, y = i <= b->rank ? b->dim[b->rank - i] : 1;
        if (x != y && x != 1 && y != 1)
            return false;
        out->dim[out->rank - i] = x > y ? x : y;
    }
    return f8_type_elements(out) <= MAX_ELEMENTS;
}

static bool fits(const gen *t, f8_ref r, const void *arg)
{
    f8_type out;
    return broadcasts(f8_type_of(t->g, r), arg, &out);
}

/* A partner that broadcasts with `type`: a value, a constant or a new input of a shape that does. */
static f8_ref partner(gen *t, const f8_type *type, f8_dtype d)
{
    static const double constants[] = {0, 1, -1, 0.5, 2, -0.0, 3, 1e-3, 448, 1e-30};
    f8_ref r = chance(t, 10) ? 0 : find(t, d, fits, type);
    if (!r && d == F8_F32 && chance(t, 2))
        return f8_const(t->g, PICK(t, constants));
    for (int i = 0; !r && i < 24; i++) {
        f8_type out;
        const f8_type *s = &t->shape[below(t, t->n_shapes)];
        if (broadcasts(s, type, &out))
            r = input(t, *s, d, "x");
    }
    return r ? r : input(t, *type, d, "x");
}

static f8_type joined(const gen *t, f8_ref a, f8_ref b)
{
    f8_type out;
    broadcasts(f8_type_of(t->g, a), f8_type_of(t->g, b), &out);
    return out;
}

/* ---- pointwise ---- */

static void unary(gen *t)
{
    static const f8_op ops[] = {F8_OP_NEG, F8_OP_ABS,  F8_OP_SQRT, F8_OP_RSQRT, F8_OP_EXP,     F8_OP_LOG,  F8_OP_TANH,
                                F8_OP_ERF, F8_OP_SIN,  F8_OP_COS,  F8_OP_SIGMOID, F8_OP_FLOOR, F8_OP_TANH, F8_OP_NEG};
    add(t, f8_unary(t->g, PICK(t, ops), some(t, F8_F32)));
}

static void binary(gen *t)
{
    static const f8_op ops[] = {F8_OP_ADD, F8_OP_SUB, F8_OP_MUL, F8_OP_DIV, F8_OP_MAX, F8_OP_MIN, F8_OP_ADD, F8_OP_MUL};
    const f8_ref a = some(t, F8_F32), b = partner(t, f8_type_of(t->g, a), F8_F32);
    add(t, chance(t, 2) ? f8_binary(t->g, PICK(t, ops), a, b) : f8_binary(t->g, PICK(t, ops), b, a));
}

static void ternary(gen *t)
{
    const f8_ref a = some(t, F8_F32), b = partner(t, f8_type_of(t->g, a), F8_F32);
    const f8_type ab = joined(t, a, b);
    const f8_ref c = partner(t, &ab, F8_F32);
    add(t, f8_make(t->g, F8_OP_FMA, (f8_ref[]){a, b, c}, 3, NULL, 0));
}

static void compare(gen *t)
{
    static const f8_op ops[] = {F8_OP_LT, F8_OP_LE, F8_OP_EQ};
    const f8_dtype d = chance(t, 4) ? F8_I32 : F8_F32;
    const f8_ref a = some(t, d);
    if (d == F8_F32 && chance(t, 4))
        add(t, f8_unary(t->g, F8_OP_ISFINITE, a));
    else
        add(t, f8_binary(t->g, PICK(t, ops), a, partner(t, f8_type_of(t->g, a), d)));
}

static void logic(gen *t)
{
    const f8_ref a = some(t, F8_BOOL);
    if (chance(t, 3))
        add(t, f8_unary(t->g, F8_OP_NOT, a));
    else
        add(t, f8_binary(t->g, chance(t, 2) ? F8_OP_AND : F8_OP_OR, a,
                         partner(t, f8_type_of(t->g, a), F8_BOOL)));
}

static void choose(gen *t)
{
    static const f8_dtype dtypes[] = {F8_F32, F8_F32, F8_F32, F8_I32, F8_BF16, F8_F16, F8_BOOL, F8_E4M3};
    const f8_dtype d = PICK(t, dtypes);
    const f8_ref a = some(t, d), b = partner(t, f8_type_of(t->g, a), d);
    const f8_type ab = joined(t, a, b);
    add(t, f8_select(t->g, partner(t, &ab, F8_BOOL), a, b));
}

static void integers(gen *t)
{
    static const f8_op ops[] = {F8_OP_ADD, F8_OP_SUB, F8_OP_MUL, F8_OP_MAX, F8_OP_MIN};
    const f8_ref a = chance(t, 6) ? f8_make(t->g, F8_OP_IOTA, NULL, 0,
                                            &F8_INTS(F8_A_SHAPE, ((f8_ints){2, {1 + below(t, 5), 1 + below(t, 70)}})), 1)
                                  : some(t, F8_I32);
    if (chance(t, 4))
        add(t, f8_unary(t->g, chance(t, 2) ? F8_OP_NEG : F8_OP_ABS, a));
    else
        add(t, f8_binary(t->g, PICK(t, ops), a, partner(t, f8_type_of(t->g, a), F8_I32)));
}

static void cast(gen *t)
{
    static const struct {
        f8_dtype from, to;
    } pairs[] = {{F8_F32, F8_BF16},  {F8_F32, F8_BF16},  {F8_F32, F8_BF16}, {F8_BF16, F8_F32}, {F8_BF16, F8_F32},
                 {F8_BF16, F8_F32},  {F8_F32, F8_F16},   {F8_F16, F8_F32},  {F8_F32, F8_I32},  {F8_I32, F8_F32},
                 {F8_BOOL, F8_F32},  {F8_BOOL, F8_I32},  {F8_E4M3, F8_F32}, {F8_E5M2, F8_F32}, {F8_E4M3, F8_BF16},
                 {F8_E8M0, F8_F32},  {F8_BF16, F8_F16},  {F8_F16, F8_BF16}, {F8_BF16, F8_I32}, {F8_E5M2, F8_F16}};
    const int i = below(t, (int)(sizeof pairs / sizeof pairs[0]));
    add(t, f8_cast(t->g, some(t, pairs[i].from), pairs[i].to));
}

/* ---- FP8 ---- */

static void quantize(gen *t)
{
    const f8_dtype from = chance(t, 3) ? F8_BF16 : F8_F32;
    const int64_t format = chance(t, 3) ? F8_E5M2 : F8_E4M3;
    const f8_ref x = some(t, from);
    f8_ref s;
    if (chance(t, 3)) {
        s = input(t, shape(0, 0, 0, 0), F8_F32, "soft");
    } else {
        const f8_attr attr[] = {F8_INT(F8_A_FORMAT, format), F8_INT(F8_A_MARGIN, below(t, 3))};
        s = add(t, f8_make(t->g, F8_OP_FP8_SCALE, (f8_ref[]){f8_unary(t->g, F8_OP_AMAX, x)}, 1, attr, 2));
    }
    const f8_attr attr[] = {F8_INT(F8_A_FORMAT, format), F8_INT(F8_A_SATURATE, !chance(t, 4))};
    const f8_ref q = add(t, f8_make(t->g, F8_OP_QUANTIZE, (f8_ref[]){x, s}, 2, attr, 2));
    if (chance(t, 2))
        add(t, f8_cast(t->g, q, F8_F32));
}

static void scales(gen *t)
{
    const f8_ref a = some_tensor(t, F8_F32);
    if (chance(t, 2)) {
        const f8_attr attr[] = {F8_INT(F8_A_FORMAT, chance(t, 2) ? F8_E4M3 : F8_E5M2)};
        const f8_ref in[] = {f8_unary(t->g, F8_OP_ABS, a), a};
        add(t, f8_make(t->g, F8_OP_FP8_SCALE, in, 1 + below(t, 2), attr, 1));
        return;
    }
    f8_type row = *f8_type_of(t->g, a);
    row.rank--;
    const f8_ref newest = input(t, row, F8_F32, "soft");
    add(t, f8_binary(t->g, F8_OP_HISTORY_PUSH, a, newest));
}

/* ---- reductions ---- */

static void reduce(gen *t)
{
    static const f8_op ops[] = {F8_OP_REDUCE_SUM, F8_OP_REDUCE_SUM, F8_OP_REDUCE_MAX, F8_OP_REDUCE_AMAX, F8_OP_MEAN};
    const f8_ref a = some_tensor(t, F8_F32);
    switch (below(t, 8)) {
    case 0: add(t, f8_sum_all(t->g, a)); break;
    case 1: add(t, f8_unary(t->g, F8_OP_AMAX, a)); break;
    case 2: case 3: add(t, f8_reduce(t->g, PICK(t, ops), a, 0)); break;
    default: add(t, f8_reduce(t->g, PICK(t, ops), a, -1)); break;
    }
}

/* ---- shapes ---- */

static const f8_dtype movable[] = {F8_F32, F8_F32, F8_F32, F8_BF16, F8_BF16, F8_I32, F8_E4M3, F8_F16, F8_BOOL};

static void transpose(gen *t)
{
    const f8_ref a = some_tensor(t, PICK(t, movable));
    f8_ints perm = {.n = f8_type_of(t->g, a)->rank};
    for (int i = 0; i < perm.n; i++)
        perm.v[i] = i;
    for (int i = perm.n - 1; i > 0; i--) {
        const int j = below(t, i + 1);
        const int64_t was = perm.v[i];
        perm.v[i] = perm.v[j];
        perm.v[j] = was;
    }
    add(t, f8_make(t->g, F8_OP_TRANSPOSE, &a, 1, &F8_INTS(F8_A_PERM, perm), 1));
}

static void reshape(gen *t)
{
    const f8_ref a = some(t, PICK(t, movable));
    int64_t n = f8_type_elements(f8_type_of(t->g, a));
    f8_type to = {.rank = (uint8_t)(1 + below(t, 3))};
    for (int i = 0; i < to.rank; i++) {
        int64_t d = n;
        if (i < to.rank - 1) {
            d = 1 + below(t, 16);
            while (n % d)
                d--;
            if (chance(t, 2))
                d = n / d;
        }
        to.dim[i] = d;
        n /= d;
    }
    add(t, f8_reshape(t->g, a, &to));
}

static f8_ref random_slice(gen *t, f8_ref a)
{
    const f8_type *s = f8_type_of(t->g, a);
    const int axis = chance(t, 2) ? s->rank - 1 : below(t, s->rank);
    const int64_t n = s->dim[axis], start = below(t, (int)n), stop = start + 1 + below(t, (int)(n - start));
    return f8_slice(t->g, a, axis, start, stop);
}

static void slice(gen *t)
{
    const f8_ref a = some_tensor(t, PICK(t, movable));
    const f8_type s = *f8_type_of(t->g, a);
    const int64_t last = s.dim[s.rank - 1];
    if (chance(t, 3) && last % 2 == 0) { /* halves */
        add(t, f8_slice(t->g, a, -1, 0, last / 2));
        add(t, f8_slice(t->g, a, -1, last / 2, last));
        return;
    }
    add(t, random_slice(t, a));
}

static void concat(gen *t)
{
    const f8_ref a = some_tensor(t, PICK(t, movable));
    const f8_type s = *f8_type_of(t->g, a);
    const int axis = below(t, s.rank), n = 2 + below(t, 2);
    if (f8_type_elements(&s) * n > MAX_ELEMENTS)
        return;
    f8_ref in[3] = {a};
    for (int i = 1; i < n; i++) {
        f8_type part = s;
        if (chance(t, 2))
            in[i] = a;
        else if (chance(t, 2) && s.dim[axis] > 1)
            in[i] = f8_slice(t->g, a, axis, 0, 1 + below(t, (int)s.dim[axis] - 1));
        else {
            part.dim[axis] = 1 + below(t, 9);
            in[i] = input(t, part, s.dtype, "x");
        }
    }
    add(t, f8_concat(t->g, in, n, axis));
}

static void broadcast(gen *t)
{
    const f8_ref a = some(t, PICK(t, movable));
    f8_type out;
    if (!broadcasts(f8_type_of(t->g, a), &t->shape[below(t, t->n_shapes)], &out))
        return;
    add(t, f8_broadcast(t->g, a, &out));
}

static void roll(gen *t)
{
    const f8_ref a = some_tensor(t, chance(t, 2) ? F8_F32 : PICK(t, movable));
    const int64_t cols = f8_type_columns(f8_type_of(t->g, a));
    int64_t group = cols;
    for (int64_t parts = 2; parts < 5; parts++)
        if (cols % parts == 0 && chance(t, 2))
            group = cols / parts;
    const f8_attr attr[] = {F8_INT(F8_A_SHIFT, below(t, (int)group)), F8_INT(F8_A_GROUP, group)};
    add(t, f8_make(t->g, F8_OP_ROLL, &a, 1, attr, 2));
}

/* ---- gathers ---- */

static void gather(gen *t)
{
    const int64_t rows = 3 + below(t, 10), cols = PICK(t, sizes) % 130 + 1, count = 1 + below(t, 80);
    const f8_ref ids = input(t, chance(t, 2) ? shape(1, count, 0, 0) : shape(2, 2, count, 0), F8_I32, "ids");
    const f8_type size = shape(2, rows, cols, 0);
    const f8_ref table = chance(t, 2) ? state(t, size, F8_F32) : input(t, size, F8_F32, "x");
    const f8_ref y = add(t, f8_binary(t->g, F8_OP_EMBEDDING, table, ids));
    if (chance(t, 2)) {
        const f8_ref dy = chance(t, 2) ? y : add(t, f8_unary(t->g, F8_OP_TANH, y));
        const f8_ref acc = chance(t, 2) ? table : state(t, size, F8_F32);
        accumulates(t, acc, add(t, f8_make(t->g, F8_OP_EMBEDDING_GRAD, (f8_ref[]){acc, ids, dy}, 3, NULL, 0)));
    }
}

/* ---- products ---- */

static bool is_matrix(const gen *t, f8_ref r, const void *arg)
{
    (void)arg;
    const f8_type *s = f8_type_of(t->g, r);
    return s->rank >= 2 && f8_type_rows(s) <= 600 && f8_type_columns(s) <= 600;
}

static f8_ref some_matrix(gen *t, f8_dtype d)
{
    const f8_ref r = find(t, d, is_matrix, NULL);
    return r ? r : input(t, shape(2, 1 + PICK(t, sizes) % 130, 1 + PICK(t, sizes) % 130, 0), d, "x");
}

static void product(gen *t)
{
    static const f8_dtype dtypes[] = {F8_F32, F8_BF16, F8_BF16, F8_BF16, F8_E4M3, F8_E4M3, F8_E5M2};
    const f8_dtype da = PICK(t, dtypes);
    const f8_dtype db = da == F8_E5M2 || (da == F8_E4M3 && chance(t, 3)) ? (da == F8_E5M2 ? F8_E4M3 : F8_E5M2) : da;
    const bool ta = chance(t, 3), tb = chance(t, 2), scaled = f8_dtype_is_fp8(da) && chance(t, 2);
    const f8_ref a = some_matrix(t, da);
    const f8_type s = *f8_type_of(t->g, a);
    const int64_t k = ta ? f8_type_rows(&s) : f8_type_columns(&s), n = 1 + PICK(t, sizes) % 270;
    const f8_type size = tb ? shape(2, n, k, 0) : shape(2, k, n, 0);
    f8_ref b;
    if (db == F8_BF16 && chance(t, 2)) /* a parameter rounded on its way in */
        b = f8_cast(t->g, state(t, size, F8_F32), db);
    else
        b = input(t, size, db, "x");
    f8_ref in[5] = {a, b}, inverse[2];
    if (scaled) {
        for (int i = 0; i < 2; i++)
            inverse[i] = input(t, shape(0, 0, 0, 0), F8_F32, "soft");
        memcpy(in, (f8_ref[]){a, inverse[0], b, inverse[1]}, 4 * sizeof *in);
    }
    const f8_op op = scaled ? F8_OP_SCALED_MATMUL : F8_OP_MATMUL;
    const f8_attr attr[] = {F8_INT(F8_A_TRANSPOSE_A, ta), F8_INT(F8_A_TRANSPOSE_B, tb)};
    int n_in = scaled ? 4 : 2;
    if (chance(t, 3)) {
        f8_type out = s;
        if (ta)
            out = shape(2, f8_type_columns(&s), 0, 0);
        out.dim[out.rank - 1] = n;
        in[n_in++] = chance(t, 2) ? state(t, out, F8_F32) : input(t, out, F8_F32, "soft");
    }
    const f8_ref y = add(t, f8_make(t->g, op, in, n_in, attr, 2));
    if (n_in % 2)
        accumulates(t, in[n_in - 1], y);
}

/* Operands stay small: tanh of values, in bf16 or f32. */
static void attention(gen *t)
{
    static const int64_t head_sizes[] = {1, 2, 4, 8, 16, 20, 32, 33, 64}, lengths[] = {1, 2, 3, 7, 17, 47, 48, 49, 65, 100};
    const int64_t D = PICK(t, head_sizes), T = PICK(t, lengths), B = 1 + below(t, 2), KH = 1 + below(t, 2),
                  H = KH * (1 + below(t, 3));
    const f8_dtype d = chance(t, 2) ? F8_BF16 : F8_F32;
    f8_ref in[6];
    for (int i = 0; i < 3; i++) {
        in[i] = input(t, shape(3, B, T, (i ? KH : H) * D), F8_F32, "soft");
        in[i] = f8_cast(t->g, chance(t, 2) ? f8_unary(t->g, F8_OP_TANH, in[i]) : in[i], d);
    }
    const f8_attr attr[] = {F8_INT(F8_A_HEADS, H), F8_INT(F8_A_KV_HEADS, KH), F8_INT(F8_A_CAUSAL, !chance(t, 3)),
                            F8_FLOAT(F8_A_SCALE, chance(t, 3) ? 0.3 : 0)};
    const f8_ref o = add(t, f8_make(t->g, F8_OP_ATTENTION, in, 3, attr, 4)), lse = f8_project(t->g, o, 1);
    add(t, lse);
    if (chance(t, 2))
        return;
    in[3] = o;
    in[4] = lse;
    in[5] = f8_cast(t->g, input(t, shape(3, B, T, H * D), F8_F32, "soft"), d);
    const f8_ref grad = add(t, f8_make(t->g, F8_OP_ATTENTION_GRAD, in, 6, attr, 4));
    for (int i = 1; i < 3; i++)
        add(t, f8_project(t->g, grad, i));
}

/* ---- composites ---- */

static void composite(gen *t)
{
    f8_graph *g = t->g;
    const f8_ref a = some_tensor(t, F8_F32);
    const f8_type s = *f8_type_of(g, a);
    const f8_type vector = shape(1, f8_type_columns(&s), 0, 0);
    f8_type rows = s;
    rows.rank--;
    switch (below(t, 8)) {
    case 0: {
        const f8_ref w = input(t, vector, F8_F32, "x"), b = input(t, vector, F8_F32, "x");
        add(t, f8_make(g, F8_OP_LAYERNORM, (f8_ref[]){a, w, b}, 3, NULL, 0));
        break;
    }
    case 1: add(t, f8_binary(g, F8_OP_RMSNORM, a, input(t, vector, F8_F32, "x"))); break;
    case 2: add(t, f8_unary(g, F8_OP_SOFTMAX, a)); break;
    case 3:
        add(t, f8_make(g, F8_OP_GELU, &a, 1, &F8_STR(F8_A_APPROXIMATE, chance(t, 2) ? "tanh" : "none"), 1));
        break;
    case 4: add(t, f8_unary(g, F8_OP_SILU, a)); break;
    case 5: {
        const f8_ref targets = input(t, rows, F8_I32, "ids");
        const f8_ref loss = add(t, f8_binary(g, F8_OP_CROSS_ENTROPY, a, targets));
        if (chance(t, 2))
            add(t, f8_make(g, F8_OP_CROSS_ENTROPY_GRAD, (f8_ref[]){a, targets, loss}, 3, NULL, 0));
        break;
    }
    default: {
        const int64_t heads = 1 + below(t, 3);
        const bool fits = s.rank >= 2 && f8_type_columns(&s) % (2 * heads) == 0;
        const f8_ref x = fits ? a : input(t, shape(3, 1 + below(t, 3), 1 + below(t, 70), heads * 2 * (1 + below(t, 20))),
                                          F8_F32, "x");
        const f8_attr attr[] = {F8_INT(F8_A_HEADS, heads), F8_INT(F8_A_INVERSE, chance(t, 3))};
        add(t, f8_make(g, F8_OP_ROPE, &x, 1, attr, 2));
    }
    }
}

/* ---- states ---- */

static void make_states(gen *t)
{
    static const f8_dtype dtypes[] = {F8_F32, F8_F32, F8_F32, F8_F32, F8_BF16, F8_I32};
    const int n = 1 + below(t, 5);
    for (int i = 0; i < n; i++)
        state(t, t->shape[below(t, t->n_shapes)], PICK(t, dtypes));
}

static void read_state(gen *t)
{
    add(t, f8_func_var(t->f, below(t, (int)t->m->n_vars)));
}

static bool same_type(const gen *t, f8_ref r, const void *arg)
{
    return f8_type_equal(f8_type_of(t->g, r), arg);
}

/* Replaced by a value made of whatever, by a simple update of itself, by another state, or not at all. */
static void write_state(gen *t, int32_t var)
{
    const f8_type type = t->m->var[var].type;
    f8_ref r = chance(t, 4) ? 0 : t->next[var] ? t->next[var] : find(t, type.dtype, same_type, &type);
    if (!r && type.dtype == F8_F32 && !chance(t, 3))
        r = f8_binary(t->g, F8_OP_ADD, f8_func_var(t->f, var), f8_const(t->g, 0.25));
    if (r)
        f8_func_result(t->f, NULL, r, var);
}

/* ---- the whole ---- */

static void step(gen *t)
{
    switch (below(t, t->gemms ? 36 : 32)) {
    case 0: case 1: case 2: case 3: unary(t); break;
    case 4: case 5: case 6: case 7: case 8: binary(t); break;
    case 9: case 10: ternary(t); break;
    case 11: compare(t); break;
    case 12: logic(t); break;
    case 13: choose(t); break;
    case 14: integers(t); break;
    case 15: case 16: cast(t); break;
    case 17: case 18: quantize(t); break;
    case 19: scales(t); break;
    case 20: case 21: reduce(t); break;
    case 22: transpose(t); break;
    case 23: reshape(t); break;
    case 24: slice(t); break;
    case 25: concat(t); break;
    case 26: broadcast(t); break;
    case 27: roll(t); break;
    case 28: gather(t); break;
    case 29: case 30: composite(t); break;
    case 31: read_state(t); break;
    case 32: case 33: case 34: product(t); break;
    default: attention(t); break;
    }
}

/* What nobody uses, and some of the rest; at least one. */
static void choose_results(gen *t, const uint8_t *drop)
{
    bool used[MAX_VALUES * 8] = {false};
    for (f8_ref r = 1; r < t->g->n_nodes; r++)
        for (uint32_t i = 0; i < f8_at(t->g, r)->n_in; i++)
            if (f8_at(t->g, r)->in[i] < sizeof used)
                used[f8_at(t->g, r)->in[i]] = true;
    int n = 0;
    for (int i = 0; i < t->n_values && n < GRAPHGEN_MAX_RESULTS; i++) {
        const f8_ref r = t->value[i];
        const bool leaf = f8_op_facts(f8_at(t->g, r)->op)->cls == F8_LEAF, keep = chance(t, 9);
        bool twice = false;
        for (int k = 0; k < i; k++)
            twice |= t->value[k] == r;
        if (twice || (leaf && !keep) || (r < sizeof used && used[r] && !keep))
            continue;
        char name[16];
        snprintf(name, sizeof name, "y%d", n);
        if (!drop || !drop[n])
            f8_func_result(t->f, name, r, -1);
        n++;
    }
    const int states = (int)t->m->n_vars;
    for (int i = 0; i < states && n < GRAPHGEN_MAX_RESULTS; i++, n++)
        if (!drop || !drop[n])
            write_state(t, i);
}

int graphgen_steps(uint64_t seed)
{
    uint64_t s = seed ^ 0x5bd1e995;
    const uint64_t x = graphgen_next(&s);
    return 2 + (int)(x % 22);
}

f8_module *graphgen_make(const graphgen_options *o, f8_arena *arena, f8_diag *diag)
{
    gen t = {.random = o->seed * 0x2545f4914f6cdd1du + 1, .gemms = o->gemms};
    t.m = f8_module_create(arena, diag, "random", "random");
    t.f = t.m ? f8_module_func(t.m, "f") : NULL;
    if (!t.f)
        return NULL;
    t.g = t.f->graph;
    choose_shapes(&t);
    make_states(&t);
    any_input(&t, F8_F32);
    const int steps = o->steps > 0 ? o->steps : graphgen_steps(o->seed);
    for (int i = 0; i < steps && diag->status == F8_OK; i++)
        step(&t);
    t.random = o->seed ^ 0x1f3d5b79; /* so that results do not depend on the number of draws before */
    if (diag->status == F8_OK)
        choose_results(&t, o->drop);
    return diag->status == F8_OK && f8_verify(t.m, diag) == F8_OK ? t.m : NULL;
}

/* ---- data ---- */

static double uniform(uint64_t *random) /* [-1, 1) */
{
    return (double)(graphgen_next(random) >> 11) / (double)(1ull << 52) - 1;
}

static float special(uint64_t *random)
{
    static const float values[] = {0.0f, -0.0f, INFINITY, -INFINITY, NAN, 1e-40f, -3e-45f, 3e38f, -1e30f, 1e-30f, 448, 464};
    return values[graphgen_next(random) % (sizeof values / sizeof values[0])];
}

static float any_float(uint64_t *random, int kind)
{
    const double u = uniform(random);
    switch (kind) {
    case 0: return (float)(u * 2);
    case 1: return graphgen_next(random) % 37 == 0 ? special(random) : (float)(u * 2);
    case 2: return (float)(u * 1e-3);
    case 3: return (float)ldexp(u, (int)(graphgen_next(random) % 60) - 30);
    case 4: return (float)rint(u * 8) / 4;
    default: return (float)(u * 30);
    }
}

static int32_t any_int(uint64_t *random, bool ids)
{
    const uint64_t x = graphgen_next(random);
    if (ids)
        return x % 29 == 0 ? (x & 64 ? -1 : 1000000) : (int32_t)(x >> 8) % 3 + (int32_t)((x >> 40) % 7) % 3;
    return x % 11 == 0 ? (int32_t)(x >> 16) : (int32_t)((x >> 16) % 41) - 20;
}

void graphgen_fill(uint64_t seed, const char *name, const f8_type *type, void *to)
{
    static const int kinds[] = {0, 0, 0, 1, 1, 2, 3, 4, 5};
    uint64_t random = seed;
    for (const char *c = name; *c; c++)
        random = (random ^ (unsigned char)*c) * 0x100000001b3u;
    const bool soft = !strncmp(name, "soft", 4), ids = !strncmp(name, "ids", 3);
    const int kind = kinds[graphgen_next(&random) % (sizeof kinds / sizeof kinds[0])];
    for (int64_t i = 0; i < f8_type_elements(type); i++) {
        const float x = any_float(&random, soft ? 0 : kind);
        switch (type->dtype) {
        case F8_F32: ((float *)to)[i] = x; break;
        case F8_I32: ((int32_t *)to)[i] = any_int(&random, ids); break;
        case F8_BOOL: ((uint8_t *)to)[i] = graphgen_next(&random) & 1; break;
        case F8_BF16: case F8_F16: ((uint16_t *)to)[i] = (uint16_t)f8_encode(type->dtype, x, false); break;
        default: ((uint8_t *)to)[i] = (uint8_t)f8_encode(type->dtype, x, true); break;
        }
    }
}
