/* See kernel_values.h. Values are arrays of 32-bit words: f32 bits (also for bf16), i32, 0 or 1,
 * encodings of narrower floats. */
#include "tests/shared/kernel/kernel_values.h"

#include "codegen/reference/reference.h"
#include "ir/num/scalar.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static float f_of(uint32_t u)
{
    return f8_from_bits(u);
}

static float decoded(f8_dtype t, uint32_t u)
{
    if (t == F8_F32 || t == F8_BF16)
        return f_of(u);
    f8_scalar_eval(f8_scalar_decode_fn(t), &u, &u, 1);
    return f_of(u);
}

static uint32_t encoded(f8_dtype t, float v)
{
    uint32_t u = f8_bits(v);
    if (t != F8_F32)
        f8_scalar_eval(t == F8_BF16 ? F8_FN_ROUND_BF16 : f8_scalar_encode_fn(t, false), &u, &u, 1);
    return u;
}

/* ---- inputs ---- */

static uint32_t next_random(uint64_t *s)
{
    *s = *s * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*s >> 33);
}

static uint32_t random_word(kcase *c, f8_dtype t)
{
    static const uint32_t odd[] = {0x7fc00000, 0x7f800000, 0xff800000, 0x80000000, 0,
                                   1,          0x80000001, 0x00400000, 0x7f7fffff, 0x3f800000};
    const uint32_t r = next_random(&c->seed);
    if (t == F8_I32)
        return r % 2001 - 1000u;
    if (t == F8_BOOL)
        return r >> 8 & 1;
    float v = ((float)(int32_t)(next_random(&c->seed) % 20001) - 10000.0f) / 3000.0f;
    if (c->specials && r % 7 == 0)
        v = f_of(odd[next_random(&c->seed) % (sizeof odd / sizeof *odd)]);
    return encoded(t, v);
}

static void need_room(kcase *c)
{
    if (!c->value)
        c->value = calloc(4 * KC_LIST, sizeof *c->value);
    ck_assert_uint_lt(c->g->n_nodes, 4 * KC_LIST);
}

void kv_fill_input(kcase *c, f8_ref r, int64_t limit)
{
    need_room(c);
    const f8_type *t = f8_type_of(c->g, r);
    const int64_t n = f8_type_elements(t);
    c->value[r] = calloc((size_t)n, sizeof **c->value);
    for (int64_t i = 0; i < n; i++)
        c->value[r][i] =
            limit
                ? (uint32_t)(int32_t)((int64_t)(next_random(&c->seed) % (uint64_t)(limit + 2)) - 1)
                : random_word(c, t->dtype);
}

/* ---- memory ---- */

/* Where the elements of a value lie: rows of `cols`, each `pitch` bytes after the one before. */
typedef struct lines {
    uint8_t *at;
    int64_t rows, cols, pitch;
    size_t size; /* of an element */
} lines;

static lines lines_of(const kcase *c, f8_ref r)
{
    const f8_type *t = f8_type_of(c->g, r);
    const f8_place *p = &c->place[r];
    const int64_t cols = f8_type_columns(t), n = f8_type_elements(t);
    const size_t size = f8_dtype_size(t->dtype);
    return (lines){c->memory + p->offset, n ? n / cols : 0, cols, p->stride * (int64_t)size, size};
}

static uint32_t in_memory(f8_dtype t, uint32_t held)
{
    return t == F8_BF16 ? held >> 16 : held;
}

static uint32_t held_at(f8_dtype t, const uint8_t *at, size_t size)
{
    uint32_t u = 0;
    memcpy(&u, at, size);
    return t == F8_BF16 ? u << 16 : u;
}

void kv_write(kcase *c, f8_ref r)
{
    const f8_dtype t = f8_type_of(c->g, r)->dtype;
    const lines l = lines_of(c, r);
    const uint32_t *held = c->value[r];
    for (int64_t i = 0; i < l.rows; i++)
        for (int64_t k = 0; k < l.cols; k++) {
            const uint32_t w = in_memory(t, *held++);
            memcpy(l.at + i * l.pitch + k * (int64_t)l.size, &w, l.size);
        }
}

static bool is_nan(f8_dtype t, uint32_t held)
{
    return f8_dtype_is_float(t) && isnan(decoded(t, held));
}

void kv_mark(kcase *c, f8_ref r, uint8_t *accessed)
{
    const lines l = lines_of(c, r);
    for (int64_t i = 0; i < l.rows; i++)
        memset(accessed + (l.at - c->memory) + i * l.pitch, 1, (size_t)l.cols * l.size);
}

void kv_compare(kcase *c, f8_ref r, const char *what, uint8_t *accessed)
{
    const f8_dtype t = f8_type_of(c->g, r)->dtype;
    const lines l = lines_of(c, r);
    for (int64_t i = 0; i < l.rows * l.cols; i++) {
        const uint32_t got =
            held_at(t, l.at + i / l.cols * l.pitch + i % l.cols * (int64_t)l.size, l.size);
        const uint32_t want = c->value[r][i];
        if (got == want || (is_nan(t, want) && is_nan(t, got)))
            continue; /* Check writes a message for every assertion, one that holds too */
        ck_abort_msg("%s: %%%u %s[%lld] is %08x (%.9g), not %08x (%.9g)", what, r,
                     f8_op_facts(c->g->node[r].op)->name, (long long)i, got, f_of(got), want,
                     f_of(want));
    }
    kv_mark(c, r, accessed);
}

/* ---- right values ---- */

static void *in_a_row(f8_dtype t, const uint32_t *held, int64_t n)
{
    const size_t size = f8_dtype_size(t);
    uint8_t *out = malloc((size_t)n * size + 1);
    ck_assert_ptr_nonnull(out);
    for (int64_t i = 0; i < n; i++) {
        const uint32_t w = in_memory(t, held[i]);
        memcpy(out + i * (int64_t)size, &w, size);
    }
    return out;
}

static void evaluate(kcase *c, f8_ref r)
{
    const f8_node *n = f8_at(c->g, r);
    const f8_dtype t = n->type.dtype;
    const int64_t count = f8_type_elements(&n->type);
    const size_t size = f8_dtype_size(t);
    void **in = calloc(n->n_in + 1, sizeof *in), *out = malloc((size_t)count * size + 1);
    ck_assert(in != NULL && out != NULL);
    for (uint32_t k = 0; k < n->n_in; k++) {
        const f8_type *from = f8_type_of(c->g, n->in[k]);
        in[k] = in_a_row(from->dtype, c->value[n->in[k]], f8_type_elements(from));
    }
    ck_assert_msg(f8_reference_node(c->g, r, (const void *const *)in, &out, NULL, &c->diag) ==
                      F8_OK,
                  "%s", c->diag.text);
    c->value[r] = calloc((size_t)count + 1, sizeof **c->value);
    ck_assert_ptr_nonnull(c->value[r]);
    for (int64_t i = 0; i < count; i++)
        c->value[r][i] = held_at(t, (const uint8_t *)out + i * (int64_t)size, size);
    for (uint32_t k = 0; k < n->n_in; k++)
        free(in[k]);
    free(in);
    free(out);
}

void kv_evaluate(kcase *c)
{
    need_room(c);
    for (f8_ref r = 1; r < c->g->n_nodes; r++)
        if (!c->value[r])
            evaluate(c, r);
}
