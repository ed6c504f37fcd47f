/* Random functions: see random_graph.h. */
#include "tests/shared/random_graph.h"

#include "ir/fp8.h"

#include <stdio.h>
#include <string.h>

/* ---- numbers ---- */

uint64_t f8_random_bits(f8_random *r)
{
    uint64_t z = r->state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

int64_t f8_random_below(f8_random *r, int64_t n)
{
    return (int64_t)(f8_random_bits(r) % (uint64_t)n);
}

static float number(f8_random *r)
{
    static const uint32_t special[] = {0, 0x80000000u, 0x7f800000u, 0xff800000u, 0x7fc00000u,
                                       1, 0x00400000u, 0x7f7fffffu, 0x3f800000u, 0x43e80000u};
    if (f8_random_below(r, 400) == 0)
        return f8_from_bits(special[f8_random_below(r, sizeof special / sizeof *special)]);
    const float unit = (float)(int32_t)f8_random_bits(r) * 0x1p-31f;
    return unit * (f8_random_below(r, 8) ? 2.0f : 100.0f);
}

void f8_random_fill(f8_random *r, const f8_type *type, int32_t limit, void *to)
{
    const int64_t n = f8_type_elements(type);
    const size_t size = f8_dtype_size(type->dtype);
    uint8_t *at = to;
    for (int64_t i = 0; i < n; i++, at += size) {
        uint32_t bits;
        if (type->dtype == F8_I32)
            bits = (uint32_t)(f8_random_below(r, limit + 2) - (f8_random_below(r, 20) == 0));
        else if (type->dtype == F8_BOOL)
            bits = f8_random_bits(r) & 1;
        else if (type->dtype == F8_F32)
            bits = f8_bits(number(r));
        else
            bits = f8_encode(type->dtype, number(r), false);
        memcpy(at, &bits, size);
    }
}

/* ---- the generator ---- */

enum { POOL = 400 };

typedef struct maker {
    f8_random rng;
    f8_module *m;
    f8_func *f;
    f8_graph *g;
    const char *name;
    f8_ref pool[POOL];
    int n_pool, n_names;
    int64_t b, t, c;    /* the extents of this function */
    f8_ref ids;         /* i32 [b, t] */
    f8_ref whole[POOL]; /* matmuls and attentions */
    int n_whole;
} maker;

static int64_t below(maker *k, int64_t n)
{
    return f8_random_below(&k->rng, n);
}

static bool one_in(maker *k, int n)
{
    return below(k, n) == 0;
}

static void keep(maker *k, f8_ref r)
{
    if (r && k->n_pool < POOL)
        k->pool[k->n_pool++] = r;
}

static const char *fresh_name(maker *k, const char *kind)
{
    char text[64];
    snprintf(text, sizeof text, "%s.%s%d", k->name, kind, k->n_names++);
    return f8_intern(k->m, text);
}

static f8_type shape(f8_dtype d, int rank, int64_t x, int64_t y, int64_t z)
{
    return (f8_type){.dtype = d, .rank = (uint8_t)rank, .dim = {x, y, z}};
}

static f8_type some_shape(maker *k)
{
    const int64_t b = k->b, t = k->t, c = k->c;
    switch (below(k, 12)) {
    case 0: return shape(F8_F32, 1, c, 0, 0);
    case 1: return shape(F8_F32, 0, 0, 0, 0);
    case 2: return shape(F8_F32, 3, b, t, 1);
    case 3: return shape(F8_F32, 2, t, c, 0);
    case 4: return shape(F8_F32, 3, b, 1, c);
    case 5: return shape(F8_F32, 2, b * t, c, 0);
    case 6: return shape(F8_F32, 2, F8_RANDOM_TABLE, c, 0);
    case 7: return shape(F8_F32, 2, t, 1, 0);
    default: return shape(F8_F32, 3, b, t, c);
    }
}

/* A value of that dtype (F8_DTYPE_COUNT: any), recent ones more often; 0 if a few tries find none.
 */
static f8_ref pick(maker *k, f8_dtype dtype)
{
    for (int i = 0; i < 12; i++) {
        const int64_t at = one_in(k, 2) ? below(k, k->n_pool)
                                        : k->n_pool - 1 - below(k, k->n_pool < 8 ? k->n_pool : 8);
        const f8_ref r = k->pool[at];
        if (dtype == F8_DTYPE_COUNT || f8_type_of(k->g, r)->dtype == dtype)
            return r;
    }
    return 0;
}

/* As f32: narrow values are cast up, truth is selected on. */
static f8_ref pick_f32(maker *k)
{
    const f8_ref r = pick(k, F8_DTYPE_COUNT);
    const f8_dtype d = f8_type_of(k->g, r)->dtype;
    if (d == F8_BOOL)
        return f8_select(k->g, r, f8_const(k->g, 1.5), f8_const(k->g, -0.25));
    return f8_cast(k->g, r, F8_F32);
}

static bool broadcasts(const f8_type *a, const f8_type *b)
{
    for (int i = 1; i <= a->rank && i <= b->rank; i++) {
        const int64_t x = a->dim[a->rank - i], y = b->dim[b->rank - i];
        if (x != y && x != 1 && y != 1)
            return false;
    }
    return true;
}

/* An f32 value that broadcasts against a; results are kept from growing without bound. */
static f8_ref partner(maker *k, f8_ref a)
{
    for (int i = 0; i < 8; i++) {
        const f8_ref r = pick(k, F8_F32);
        if (!r || !broadcasts(f8_type_of(k->g, a), f8_type_of(k->g, r)))
            continue;
        const int64_t x = f8_type_elements(f8_type_of(k->g, a)),
                      y = f8_type_elements(f8_type_of(k->g, r));
        if (x * y <= 4000000 || x == 1 || y == 1)
            return r;
    }
    return one_in(k, 2) ? a : f8_const(k->g, (double)number(&k->rng));
}

/* ---- ops ---- */

static void make_pointwise(maker *k)
{
    static const f8_op unary[] = {F8_OP_NEG, F8_OP_ABS, F8_OP_SQRT,    F8_OP_RSQRT,
                                  F8_OP_EXP, F8_OP_LOG, F8_OP_TANH,    F8_OP_ERF,
                                  F8_OP_SIN, F8_OP_COS, F8_OP_SIGMOID, F8_OP_FLOOR};
    static const f8_op binary[] = {F8_OP_ADD, F8_OP_SUB, F8_OP_MUL,
                                   F8_OP_DIV, F8_OP_MAX, F8_OP_MIN};
    static const f8_op compare[] = {F8_OP_LT, F8_OP_LE, F8_OP_EQ};
    f8_graph *g = k->g;
    const f8_ref a = pick_f32(k), b = partner(k, a);
    switch (below(k, 8)) {
    case 0: keep(k, f8_unary(g, unary[below(k, 12)], a)); break;
    case 1: {
        const f8_ref sum = f8_binary(g, F8_OP_MUL, a, b), c = partner(k, sum);
        keep(k, f8_make(g, F8_OP_FMA, (f8_ref[]){a, b, c}, 3, NULL, 0));
        break;
    }
    case 2: keep(k, f8_binary(g, compare[below(k, 3)], a, b)); break;
    case 3: {
        const f8_ref truth =
            one_in(k, 3) ? f8_unary(g, F8_OP_ISFINITE, a) : f8_binary(g, F8_OP_LT, a, b);
        keep(k, f8_select(g, truth, a, b));
        break;
    }
    case 4: {
        const f8_ref p = f8_binary(g, F8_OP_LE, a, b), q = f8_binary(g, F8_OP_LT, b, a);
        keep(k, f8_binary(g, one_in(k, 2) ? F8_OP_AND : F8_OP_OR, p, f8_unary(g, F8_OP_NOT, q)));
        break;
    }
    default: keep(k, f8_binary(g, binary[below(k, 6)], a, b));
    }
}

static void make_rounding(maker *k)
{
    f8_graph *g = k->g;
    const f8_ref a = pick_f32(k);
    if (one_in(k, 3)) {
        const f8_attr attr[] = {F8_INT(F8_A_FORMAT, one_in(k, 2) ? F8_E4M3 : F8_E5M2),
                                F8_INT(F8_A_SATURATE, one_in(k, 2))};
        f8_ref s = one_in(k, 2) ? f8_const(g, 0.75)
                                : f8_reshape(g, f8_sum_all(g, a), &(f8_type){.dtype = F8_F32});
        keep(k, f8_make(g, F8_OP_QUANTIZE, (f8_ref[]){a, s}, 2, attr, 2));
    } else {
        keep(k, f8_cast(g, a, one_in(k, 4) ? F8_F16 : F8_BF16));
    }
}

static void make_reduction(maker *k)
{
    static const f8_op op[] = {F8_OP_REDUCE_SUM, F8_OP_REDUCE_MAX, F8_OP_REDUCE_AMAX};
    f8_graph *g = k->g;
    const f8_ref a = pick_f32(k);
    const f8_type *t = f8_type_of(g, a);
    if (t->rank == 0)
        return;
    const f8_ref r = f8_reduce(g, op[one_in(k, 2) ? 0 : below(k, 3)], a, one_in(k, 3) ? 0 : -1);
    keep(k, r);
    if (one_in(k, 3)) /* a norm: statistics of a row, used on it */
        keep(k, f8_binary(g, F8_OP_SUB, a, r));
    if (one_in(k, 4)) {
        const f8_ref all = f8_sum_all(g, a);
        keep(k, one_in(k, 2) ? f8_binary(g, F8_OP_MUL, a, all) : all);
    }
}

static void make_reshape(maker *k, f8_ref a)
{
    f8_type t = *f8_type_of(k->g, a), to = t;
    const int64_t n = f8_type_elements(&t);
    switch (below(k, 4)) {
    case 0:
        to.rank = 1;
        to.dim[0] = n;
        break;
    case 1:
        to.rank = 2;
        to.dim[1] = f8_type_columns(&t);
        to.dim[0] = n / to.dim[1];
        break;
    case 2:
        to.rank = 2;
        to.dim[0] = t.rank ? t.dim[0] : 1;
        to.dim[1] = n / to.dim[0];
        break;
    default:
        if (t.rank + 1 >= F8_MAX_RANK)
            return;
        to.rank++;
        for (int i = t.rank; i > 0; i--)
            to.dim[i] = t.dim[i - 1];
        to.dim[0] = 1;
    }
    keep(k, f8_reshape(k->g, a, &to));
}

static void make_slice(maker *k, f8_ref a)
{
    const f8_type *t = f8_type_of(k->g, a);
    const int64_t axis = below(k, t->rank), size = t->dim[axis];
    if (size < 2)
        return;
    const int64_t cut = 1 + below(k, size - 1);
    const f8_ref low = f8_slice(k->g, a, axis, 0, cut), high = f8_slice(k->g, a, axis, cut, size);
    keep(k, low);
    keep(k, high);
    if (one_in(k, 2)) /* put together again, each part computed anew */
        keep(k, f8_concat(k->g, (f8_ref[]){high, low}, 2, axis));
    else if (t->dtype == F8_F32)
        keep(k,
             f8_concat(k->g,
                       (f8_ref[]){f8_unary(k->g, F8_OP_NEG, low), f8_unary(k->g, F8_OP_ABS, high)},
                       2, axis));
}

static void make_moved(maker *k)
{
    f8_graph *g = k->g;
    const f8_ref a = pick(k, F8_DTYPE_COUNT);
    const f8_type t = *f8_type_of(g, a);
    if (t.rank == 0)
        return;
    switch (below(k, 5)) {
    case 0: make_reshape(k, a); break;
    case 1: {
        f8_ints perm = {.n = t.rank};
        for (int i = 0; i < t.rank; i++)
            perm.v[i] = i;
        const int64_t x = below(k, t.rank), y = below(k, t.rank), swap = perm.v[x];
        perm.v[x] = perm.v[y];
        perm.v[y] = swap;
        keep(k, f8_make(g, F8_OP_TRANSPOSE, &a, 1, &F8_INTS(F8_A_PERM, perm), 1));
        break;
    }
    case 2: {
        const int64_t group = f8_type_columns(&t);
        const f8_attr attr[] = {
            F8_INT(F8_A_SHIFT, below(k, group)),
            F8_INT(F8_A_GROUP, group % 2 == 0 && one_in(k, 2) ? group / 2 : group)};
        keep(k, f8_make(g, F8_OP_ROLL, &a, 1, attr, 2));
        break;
    }
    case 3: {
        f8_type to = t;
        for (int i = 0; i < t.rank; i++)
            if (to.dim[i] == 1 && one_in(k, 2))
                to.dim[i] = 1 + below(k, 4);
        keep(k, f8_broadcast(g, a, &to));
        break;
    }
    default: make_slice(k, a);
    }
}

static f8_ref new_input(maker *k, const f8_type *t, bool state)
{
    const char *name = fresh_name(k, state ? "s" : "x");
    if (!state)
        return f8_func_input(k->f, name, t, -1);
    const f8_var var = {.name = name,
                        .type = *t,
                        .kind = one_in(k, 2) ? F8_VAR_PARAM : F8_VAR_STATE,
                        .init = F8_INIT_NORMAL,
                        .init_arg = 1};
    const int32_t v = f8_module_var(k->m, &var);
    return v < 0 ? 0 : f8_func_var(k->f, v);
}

static void make_gather(maker *k)
{
    f8_graph *g = k->g;
    const f8_type table_type = shape(F8_F32, 2, F8_RANDOM_TABLE, k->c, 0);
    const f8_ref table = new_input(k, &table_type, one_in(k, 2));
    const f8_ref got = f8_make(g, F8_OP_EMBEDDING, (f8_ref[]){table, k->ids}, 2, NULL, 0);
    keep(k, got);
    if (got && one_in(k, 2)) {
        const f8_ref dy = f8_unary(g, F8_OP_TANH, got);
        const f8_ref acc = new_input(k, &table_type, true);
        keep(k, f8_make(g, F8_OP_EMBEDDING_GRAD, (f8_ref[]){acc, k->ids, dy}, 3, NULL, 0));
    }
}

static void note_whole(maker *k, f8_ref r)
{
    keep(k, r);
    if (r && k->n_whole < POOL)
        k->whole[k->n_whole++] = r;
}

static void make_matmul(maker *k)
{
    f8_graph *g = k->g;
    const int64_t n = 1 + below(k, 40), rows = k->b * k->t;
    const f8_type w_type = shape(F8_F32, 2, k->c, n, 0), x_type = shape(F8_F32, 2, rows, k->c, 0);
    f8_ref x = 0, w = new_input(k, &w_type, one_in(k, 2));
    for (int i = 0; i < 6 && !x; i++) {
        const f8_ref r = pick(k, F8_F32);
        const f8_type *t = f8_type_of(g, r);
        x = r && t->rank >= 2 && t->dim[t->rank - 1] == k->c && f8_type_rows(t) == rows ? r : 0;
    }
    x = x ? x : new_input(k, &x_type, false);
    if (one_in(k, 2)) {
        x = f8_cast(g, x, F8_BF16);
        w = f8_cast(g, w, F8_BF16);
    }
    const f8_ref y = f8_make(g, F8_OP_MATMUL, (f8_ref[]){x, w}, 2, NULL, 0);
    note_whole(k, y);
    if (y && one_in(k, 2)) { /* a weight gradient, accumulated */
        const f8_ref dy = f8_cast(g, f8_unary(g, F8_OP_SIGMOID, y), f8_type_of(g, x)->dtype);
        const f8_ref acc = new_input(k, &w_type, true);
        note_whole(k, f8_make(g, F8_OP_MATMUL, (f8_ref[]){x, dy, acc}, 3,
                              &F8_INT(F8_A_TRANSPOSE_A, 1), 1));
    }
}

static void make_attention(maker *k)
{
    f8_graph *g = k->g;
    const int64_t heads = 1 + below(k, 3), size = 8 * (1 + below(k, 3));
    const f8_type t = shape(F8_F32, 3, k->b, k->t, 3 * heads * size);
    const f8_ref x = f8_cast(g, f8_unary(g, F8_OP_TANH, new_input(k, &t, false)),
                             one_in(k, 2) ? F8_F32 : F8_BF16);
    f8_ref in[6];
    for (int i = 0; i < 3; i++)
        in[i] = f8_slice(g, x, -1, i * heads * size, (i + 1) * heads * size);
    const f8_attr attr[] = {F8_INT(F8_A_HEADS, heads), F8_INT(F8_A_CAUSAL, one_in(k, 2))};
    in[3] = f8_make(g, F8_OP_ATTENTION, in, 3, attr, 2);
    note_whole(k, in[3]);
    if (!in[3] || one_in(k, 2))
        return;
    in[4] = f8_project(g, in[3], 1);
    in[5] = in[0];
    note_whole(k, in[4]);
    f8_ref d[3];
    d[0] = f8_make(g, F8_OP_ATTENTION_GRAD, in, 6, attr, 2);
    d[1] = f8_project(g, d[0], 1);
    d[2] = f8_project(g, d[0], 2);
    for (int i = 0; i < 3; i++)
        note_whole(k, d[i]);
    keep(k, f8_concat(g, d, 3, -1));
}

/* ---- state ---- */

/* Give some variables a next value: any of their type, often one that reads the old. */
static f8_status replace_state(maker *k)
{
    for (size_t i = 0; i < k->f->n_in; i++) {
        const f8_port p = k->f->in[i];
        if (p.var < 0 || one_in(k, 3))
            continue;
        f8_ref next = 0;
        for (int try = 0; try < 40 && !next; try++) {
            const f8_ref r = pick(k, p.type.dtype);
            next = r && f8_type_equal(f8_type_of(k->g, r), &p.type) ? r : 0;
        }
        if (!next || one_in(k, 3))
            next = f8_binary(k->g, F8_OP_ADD, p.ref, next ? next : f8_const(k->g, 0.5));
        F8_TRY(f8_func_result(k->f, p.name, next, p.var));
    }
    return k->m->diag->status;
}

static f8_status add_results(maker *k)
{
    for (int i = 0; i < k->n_whole; i++)
        F8_TRY(f8_func_result(k->f, fresh_name(k, "w"), k->whole[i], -1));
    const int64_t n = 1 + below(k, 3);
    for (int64_t i = 0; i < n; i++)
        F8_TRY(f8_func_result(k->f, fresh_name(k, "y"), pick(k, F8_DTYPE_COUNT), -1));
    return k->m->diag->status;
}

static void make_node(maker *k, bool libraries)
{
    const int64_t what = below(k, 20);
    if (what < 8)
        make_pointwise(k);
    else if (what < 10)
        make_rounding(k);
    else if (what < 13)
        make_reduction(k);
    else if (what < 16)
        make_moved(k);
    else if (what == 16)
        make_gather(k);
    else if (what == 17 && libraries)
        make_matmul(k);
    else if (what == 18 && libraries && one_in(k, 2))
        make_attention(k);
    else {
        const f8_type t = some_shape(k);
        keep(k, new_input(k, &t, one_in(k, 2)));
    }
}

f8_func *f8_random_func(f8_module *m, const char *name, uint64_t seed,
                        const f8_random_options *options)
{
    static const int64_t columns[] = {1, 2, 3, 5, 8, 16, 17, 31, 64, 70, 130, 256, 300, 515};
    static const int64_t times[] = {1, 2, 3, 7, 16, 33, 64, 65, 70, 131};
    maker k = {.rng = {seed}, .m = m, .name = name};
    k.f = f8_module_func(m, name);
    if (!k.f)
        return NULL;
    k.g = k.f->graph;
    k.b = 1 + below(&k, 3);
    k.t = times[below(&k, sizeof times / sizeof *times)];
    k.c = columns[below(&k, sizeof columns / sizeof *columns)];
    const f8_type ids = shape(F8_I32, 2, k.b, k.t, 0), first = shape(F8_F32, 3, k.b, k.t, k.c);
    k.ids = f8_func_input(k.f, fresh_name(&k, "ids"), &ids, -1);
    keep(&k, new_input(&k, &first, false));
    const int64_t n = options->nodes ? options->nodes : 3 + below(&k, 30);
    for (int64_t i = 0; i < n && m->diag->status == F8_OK; i++)
        make_node(&k, options->libraries);
    if (m->diag->status != F8_OK || replace_state(&k) != F8_OK || add_results(&k) != F8_OK)
        return NULL;
    return k.f;
}
