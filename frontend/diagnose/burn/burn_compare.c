/* Comparing the results of a burn with their answers, on all threads: see burn.h. */
#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>

#include "frontend/diagnose/burn/burn.h"

enum { PART = 1 << 16 }; /* bytes that a thread takes at once */

typedef struct comparison {
    const f8_burn_item *item;
    int64_t element;              /* bytes */
    _Atomic int64_t first, count; /* elements that differ */
} comparison;

static void differ(comparison *c, int64_t element)
{
    int64_t first = c->first;
    c->count++;
    while ((first < 0 || element < first) &&
           !atomic_compare_exchange_weak(&c->first, &first, element))
        continue;
}

/* Bytes [at, end), which do not go beyond an end of the answer. */
static void compare_stretch(comparison *c, int64_t at, int64_t end)
{
    const unsigned char *got = c->item->got + at, *want = c->item->want + at % c->item->period;
    if (!memcmp(got, want, (size_t)(end - at)))
        return;
    for (int64_t i = 0; i < end - at; i += c->element)
        if (memcmp(got + i, want + i, (size_t)c->element) != 0)
            differ(c, (at + i) / c->element);
}

static void compare_parts(void *user, int thread, int64_t begin, int64_t end)
{
    comparison *c = user;
    const int64_t period = c->item->period, bytes = c->item->bytes;
    int64_t at = begin * PART, last = end * PART < bytes ? end * PART : bytes;
    (void)thread;
    while (at < last) {
        const int64_t next = at - at % period + period;
        compare_stretch(c, at, next < last ? next : last);
        at = next;
    }
}

/* ---- the words for a difference ---- */

static const char *index_text(fp8c_burn *b, const fp8c_type *type, int64_t element)
{
    const char *text = "";
    for (int i = type->rank; i-- > 0; element /= type->dim[i])
        text = f8_arena_printf(&b->arena, "%" PRId64 "%s%s", element % type->dim[i],
                               *text ? ", " : "", text);
    return text;
}

static const char *value_text(fp8c_burn *b, fp8c_dtype dtype, const unsigned char *at, int64_t size)
{
    float value;
    uint32_t bits = 0;
    memcpy(&bits, at, (size_t)size);
    memcpy(&value, &bits, sizeof value);
    const char *text =
        dtype == FP8C_F32
            ? f8_arena_printf(&b->arena, "%.9g (0x%08" PRIx32 ")", (double)value, bits)
            : f8_arena_printf(&b->arena, "0x%0*" PRIx32, (int)size * 2, bits);
    return text ? text : "?";
}

static void note(fp8c_burn *b, f8_burn_item *item, const comparison *c)
{
    const int64_t at = c->first * c->element;
    const fp8c_dtype dtype = item->type.dtype;
    item->wrong++;
    b->info.wrong++;
    if (item->first)
        return;
    item->first_round = b->info.rounds + 1;
    item->first_element = c->first;
    item->first_count = c->count;
    item->first = f8_arena_printf(&b->arena,
                                  "round %" PRId64 ": [%s] is %s, not %s; %" PRId64 " of %" PRId64
                                  " elements are wrong",
                                  item->first_round, index_text(b, &item->type, c->first),
                                  value_text(b, dtype, item->got + at, c->element),
                                  value_text(b, dtype, item->want + at % item->period, c->element),
                                  item->first_count, item->bytes / c->element);
}

f8_status f8_burn_compare(fp8c_burn *b, f8_burn_item *item, f8_diag *diag)
{
    fp8c_type one = {.dtype = item->type.dtype};
    comparison c = {.item = item, .element = fp8c_type_bytes(&one), .first = -1};
    f8_pool_run(b->pool, compare_parts, &c, (item->bytes + PART - 1) / PART);
    F8_TRY(f8_pool_check(b->pool, diag));
    item->comparisons++;
    b->info.comparisons++;
    b->info.bytes += item->bytes;
    if (c.count)
        note(b, item, &c);
    return f8_arena_status(&b->arena, diag);
}

/* ---- spoiling ---- */

static void spoil_parts(void *user, int thread, int64_t begin, int64_t end)
{
    const f8_burn_item *item = user;
    const int64_t last = end * PART < item->bytes ? end * PART : item->bytes;
    (void)thread;
    memset(item->got + begin * PART, 0xa5, (size_t)(last - begin * PART));
}

void f8_burn_spoil(fp8c_burn *b, const f8_burn_item *item)
{
    f8_pool_run(b->pool, spoil_parts, (void *)item, (item->bytes + PART - 1) / PART);
}
