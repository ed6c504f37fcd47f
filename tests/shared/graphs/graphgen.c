/* Random graphs: see graphgen.h. The state is a list of values made so far; a step picks operands
 * among them, late ones more often, or makes new inputs, and adds what it made. */
#include "tests/shared/graphs/graphgen_parts.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ir/num/fp8.h"
#include "ir/num/scalar.h"

/* ---- numbers ---- */

uint64_t graphgen_next(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

int f8_gen_below(f8_gen *t, int n)
{
    return (int)(graphgen_next(&t->random) % (uint64_t)n);
}

bool f8_gen_chance(f8_gen *t, int one_in)
{
    return f8_gen_below(t, one_in) == 0;
}

/* ---- ops ---- */

f8_op f8_gen_op_of(f8_class cls, const char *infer, int k)
{
    static const char *const rules[] = {
#define OP(ID, name, lo, hi, results, CLS, rule, ...) [F8_OP_##ID] = #rule,
#include "ir/ops.def"
#undef OP
    };
    for (int op = F8_OP_NONE + 1; op < F8_OP_COUNT; op++) {
        const f8_op_info *o = f8_op_facts((f8_op)op);
        const bool takes_f32 = cls != F8_POINTWISE || o->form[F8_KIND_F];
        if (o->cls == cls && o->max_in == 1 && takes_f32 && !strcmp(rules[op], infer) && k-- == 0)
            return (f8_op)op;
    }
    return F8_OP_NONE;
}

int f8_gen_ops_of(f8_class cls, const char *infer)
{
    int n = 0;
    while (f8_gen_op_of(cls, infer, n) != F8_OP_NONE)
        n++;
    return n;
}

/* ---- shapes ---- */

static const int64_t sizes[] = {1,   1,   2,   3,   5,   7,   8,   16,   17,  31,
                                33,  48,  63,  64,  65,  96,  100, 127,  128, 129,
                                200, 255, 256, 257, 300, 511, 513, 1000, 1500};

f8_type f8_gen_shape(int rank, int64_t a, int64_t b, int64_t c)
{
    return (f8_type){.rank = (uint8_t)rank, .dim = {a, b, c}};
}

int64_t f8_gen_size(f8_gen *t)
{
    return PICK(t, sizes);
}

/* Shapes of four to eight axes that broadcast into the first of them. New tensors have them, too.
 */
static void add_deep_shapes(f8_gen *t)
{
    f8_type s[4] = {{.rank = (uint8_t)(4 + f8_gen_below(t, F8_MAX_RANK - 3))}};
    int64_t n = 1;
    for (int i = 0; i < s->rank; i++) {
        s->dim[i] = 1 + f8_gen_below(t, i + 1 < s->rank ? 4 : 40);
        while (n * s->dim[i] > 20000)
            s->dim[i] = 1;
        n *= s->dim[i];
    }
    s[1] = s[2] = s[3] = *s;
    for (int i = 0; i < s->rank; i++) {
        if (i % 2)
            s[1].dim[i] = 1;
        if (f8_gen_chance(t, 2))
            s[2].dim[i] = 1;
    }
    const int drop = 1 + f8_gen_below(t, s->rank - 1); /* first axes that the last one lacks */
    s[3].rank = (uint8_t)(s->rank - drop);
    memmove(s[3].dim, s[3].dim + drop, s[3].rank * sizeof *s[3].dim);
    memcpy(t->shape + t->n_shapes, s, sizeof s);
    memcpy(t->shape, s, sizeof s);
    t->n_shapes += 4;
}

/* A family that broadcasts and reshapes into itself in many ways. */
static void choose_shapes(f8_gen *t)
{
    int64_t R = f8_gen_size(t), C = f8_gen_size(t), B = 1 + f8_gen_below(t, 3);
    while (R * C > 20000)
        *(R > C ? &R : &C) /= 3;
    const int64_t T = 1 + R / (B + 1), D = 1 + f8_gen_below(t, 40);
    const f8_type all[] = {
        f8_gen_shape(2, R, C, 0), f8_gen_shape(2, R, C, 0), f8_gen_shape(1, C, 0, 0),
        f8_gen_shape(2, R, 1, 0), f8_gen_shape(0, 0, 0, 0), f8_gen_shape(2, 1, C, 0),
        f8_gen_shape(3, B, T, C), f8_gen_shape(2, T, C, 0), f8_gen_shape(2, T, 1, 0),
        f8_gen_shape(3, B, 1, C), f8_gen_shape(3, B, T, 1), f8_gen_shape(2, C, R, 0),
        f8_gen_shape(2, C, D, 0), f8_gen_shape(2, R, D, 0), f8_gen_shape(1, R, 0, 0),
        f8_gen_shape(2, 1, 1, 0),
    };
    memcpy(t->shape, all, sizeof all);
    t->n_shapes = (int)(sizeof all / sizeof all[0]);
    if (f8_gen_chance(t, 3))
        add_deep_shapes(t);
}

/* ---- values ---- */

static f8_dtype dtype_of(const f8_gen *t, f8_ref r)
{
    return f8_type_of(t->g, r)->dtype;
}

f8_ref f8_gen_add(f8_gen *t, f8_ref r)
{
    if (r && t->n_values < F8_GEN_VALUES)
        t->value[t->n_values++] = r;
    return r;
}

f8_ref f8_gen_input(f8_gen *t, f8_type type, f8_dtype d, const char *prefix)
{
    char name[32];
    type.dtype = d;
    snprintf(name, sizeof name, "%s%d", prefix, t->n_inputs++);
    return f8_gen_add(t, f8_func_input(t->f, name, &type, -1));
}

f8_ref f8_gen_any_input(f8_gen *t, f8_dtype d)
{
    return f8_gen_input(t, t->shape[f8_gen_below(t, t->n_shapes)], d, "x");
}

/* A value of that dtype that passes, late ones more often; 0 if none of some tries does. */
f8_ref f8_gen_find(f8_gen *t, f8_dtype d, f8_gen_test test, const void *arg)
{
    for (int i = 0; i < 24 && t->n_values; i++) {
        const int a = f8_gen_below(t, t->n_values), b = f8_gen_below(t, t->n_values);
        const f8_ref r = t->value[a > b ? a : b];
        if (dtype_of(t, r) == d && (!test || test(t, r, arg)))
            return r;
    }
    return 0;
}

/* A state of its own, read. */
f8_ref f8_gen_state(f8_gen *t, f8_type type, f8_dtype d)
{
    char name[16];
    if (t->m->n_vars >= F8_GEN_STATES)
        return f8_gen_input(t, type, d, "x");
    snprintf(name, sizeof name, "s%d", (int)t->m->n_vars);
    f8_var v = {.name = name, .type = type, .kind = F8_VAR_STATE};
    v.type.dtype = d;
    const int32_t var = f8_module_var(t->m, &v);
    return f8_gen_add(t, f8_func_var(t->f, var));
}

/* r accumulates into acc: if that is a state, r is likely to replace it. */
void f8_gen_accumulates(f8_gen *t, f8_ref acc, f8_ref r)
{
    const f8_node *n = f8_at(t->g, acc);
    const f8_port *p = n->op == F8_OP_INPUT ? &t->f->in[f8_attr_i(t->g, acc, F8_A_INDEX)] : NULL;
    if (r && p && p->var >= 0 && p->var < F8_GEN_STATES)
        t->next[p->var] = r;
}

f8_ref f8_gen_some(f8_gen *t, f8_dtype d)
{
    const f8_ref r = f8_gen_chance(t, 12) ? 0 : f8_gen_find(t, d, NULL, NULL);
    return r ? r : f8_gen_any_input(t, d);
}

static bool not_scalar(const f8_gen *t, f8_ref r, const void *arg)
{
    (void)arg;
    return f8_type_of(t->g, r)->rank > 0;
}

f8_ref f8_gen_tensor(f8_gen *t, f8_dtype d)
{
    const f8_ref r = f8_gen_find(t, d, not_scalar, NULL);
    return r ? r : f8_gen_input(t, t->shape[f8_gen_below(t, 4)], d, "x");
}

/* The shape two operands broadcast to, if they do and it is not too large. */
bool f8_gen_broadcasts(const f8_type *a, const f8_type *b, f8_type *out)
{
    *out = a->rank >= b->rank ? *a : *b;
    for (int i = 1; i <= out->rank; i++) {
        const int64_t x = i <= a->rank ? a->dim[a->rank - i] : 1,
                      y = i <= b->rank ? b->dim[b->rank - i] : 1;
        if (x != y && x != 1 && y != 1)
            return false;
        out->dim[out->rank - i] = x > y ? x : y;
    }
    return f8_type_elements(out) <= F8_GEN_ELEMENTS;
}

static bool fits(const f8_gen *t, f8_ref r, const void *arg)
{
    f8_type out;
    return f8_gen_broadcasts(f8_type_of(t->g, r), arg, &out);
}

/* A partner that broadcasts with `type`: a value, a constant or a new input of a shape that does.
 */
f8_ref f8_gen_partner(f8_gen *t, const f8_type *type, f8_dtype d)
{
    static const double constants[] = {0, 1, -1, 0.5, 2, -0.0, 3, 1e-3, 448, 1e-30};
    f8_ref r = f8_gen_chance(t, 10) ? 0 : f8_gen_find(t, d, fits, type);
    if (!r && d == F8_F32 && f8_gen_chance(t, 2))
        return f8_const(t->g, PICK(t, constants));
    for (int i = 0; !r && i < 24; i++) {
        f8_type out;
        const f8_type *s = &t->shape[f8_gen_below(t, t->n_shapes)];
        if (f8_gen_broadcasts(s, type, &out))
            r = f8_gen_input(t, *s, d, "x");
    }
    return r ? r : f8_gen_input(t, *type, d, "x");
}

f8_type f8_gen_joined(const f8_gen *t, f8_ref a, f8_ref b)
{
    f8_type out;
    f8_gen_broadcasts(f8_type_of(t->g, a), f8_type_of(t->g, b), &out);
    return out;
}

/* ---- states ---- */

static void make_states(f8_gen *t)
{
    static const f8_dtype dtypes[] = {F8_F32, F8_F32, F8_F32, F8_F32, F8_BF16, F8_I32};
    const int n = 1 + f8_gen_below(t, 5);
    for (int i = 0; i < n; i++)
        f8_gen_state(t, t->shape[f8_gen_below(t, t->n_shapes)], PICK(t, dtypes));
}

static bool same_type(const f8_gen *t, f8_ref r, const void *arg)
{
    return f8_type_equal(f8_type_of(t->g, r), arg);
}

/* Replaced by a value made of whatever, by a simple update of itself, by another state, or not at
 * all. */
static void write_state(f8_gen *t, int32_t var)
{
    const f8_type type = t->m->var[var].type;
    f8_ref r = f8_gen_chance(t, 4) ? 0
               : t->next[var]      ? t->next[var]
                                   : f8_gen_find(t, type.dtype, same_type, &type);
    if (!r && type.dtype == F8_F32 && !f8_gen_chance(t, 3))
        r = f8_binary(t->g, F8_OP_ADD, f8_func_var(t->f, var), f8_const(t->g, 0.25));
    if (r)
        f8_func_result(t->f, NULL, r, var);
}

/* ---- the whole ---- */

/* What nobody uses, and some of the rest; at least one. */
static void choose_results(f8_gen *t, const uint8_t *drop)
{
    bool used[F8_GEN_VALUES * 8] = {false};
    for (f8_ref r = 1; r < t->g->n_nodes; r++)
        for (uint32_t i = 0; i < f8_at(t->g, r)->n_in; i++)
            if (f8_at(t->g, r)->in[i] < sizeof used)
                used[f8_at(t->g, r)->in[i]] = true;
    int n = 0;
    for (int i = 0; i < t->n_values && n < GRAPHGEN_MAX_RESULTS; i++) {
        const f8_ref r = t->value[i];
        const bool leaf = f8_op_facts(f8_at(t->g, r)->op)->cls == F8_LEAF,
                   keep = f8_gen_chance(t, 9);
        /* passes/ids.c refuses an i64 input as a result */
        bool skip = leaf && f8_type_of(t->g, r)->dtype == F8_I64;
        for (int k = 0; k < i; k++)
            skip |= t->value[k] == r;
        if (skip || (leaf && !keep) || (r < sizeof used && used[r] && !keep))
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
    f8_gen t = {.random = o->seed * 0x2545f4914f6cdd1du + 1,
                .gemms = o->gemms,
                .aligned_fp8 = o->aligned_fp8,
                .broadcasts = o->broadcasts,
                .scalings = o->scalings};
    t.m = f8_module_create(arena, diag, "random", "random");
    t.f = t.m ? f8_module_func(t.m, "f") : NULL;
    if (!t.f)
        return NULL;
    t.g = t.f->graph;
    choose_shapes(&t);
    make_states(&t);
    f8_gen_any_input(&t, F8_F32);
    const int steps = o->steps > 0 ? o->steps : graphgen_steps(o->seed);
    for (int i = 0; i < steps && diag->status == F8_OK; i++)
        f8_gen_step(&t);
    t.random =
        o->seed ^ 0x1f3d5b79; /* so that results do not depend on the number of draws before */
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
    static const float values[] = {0.0f,    -0.0f, INFINITY, -INFINITY, NAN, 1e-40f,
                                   -3e-45f, 3e38f, -1e30f,   1e-30f,    448, 464};
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
        return x % 29 == 0 ? (x & 64 ? -1 : 1000000)
                           : (int32_t)(x >> 8) % 3 + (int32_t)((x >> 40) % 7) % 3;
    return x % 11 == 0 ? (int32_t)(x >> 16) : (int32_t)((x >> 16) % 41) - 20;
}

/* Now and then beyond 32 bits, where the low half alone would be a row. */
static int64_t any_long(uint64_t *random, bool ids)
{
    const int64_t x = any_int(random, ids),
                  beyond = (int64_t)1 << (32 + graphgen_next(random) % 31);
    return graphgen_next(random) % 19 ? x : graphgen_next(random) & 1 ? x + beyond : x - beyond;
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
        case F8_I64: ((int64_t *)to)[i] = any_long(&random, ids); break;
        case F8_BOOL: ((uint8_t *)to)[i] = graphgen_next(&random) & 1; break;
        case F8_BF16:
        case F8_F16: ((uint16_t *)to)[i] = (uint16_t)f8_encode(type->dtype, x, false); break;
        default: ((uint8_t *)to)[i] = (uint8_t)f8_encode(type->dtype, x, true); break;
        }
    }
}
