/* Messages for what codegen/reference/judge.h judges: see compare.h. */
#include "tests/shared/graphs/compare.h"

#include <stdio.h>
#include <string.h>

/* Of an i64 the lower 32 bits. */
static uint32_t element(const void *data, size_t size, int64_t i)
{
    uint32_t bits = 0;
    memcpy(&bits, (const char *)data + (size_t)i * size, size < 4 ? size : 4);
    return bits;
}

bool f8_same_bits(const char *what, const char *port, const f8_type *type, const void *got,
                  const void *want, char *message)
{
    const size_t size = f8_dtype_size(type->dtype);
    char text[160];
    f8_judgement j;
    f8_judge_bits(type, got, want, &j);
    if (!j.ok)
        snprintf(message, F8_MESSAGE, "%s: %s[%lld] of %s is %#x (%g), not %#x (%g)", what, port,
                 (long long)j.at, f8_type_print(type, text, sizeof text), element(got, size, j.at),
                 j.got, element(want, size, j.at), j.want);
    return j.ok;
}

bool f8_check_node(const f8_node_check *c)
{
    f8_judgement j;
    f8_diag diag = {0};
    if (f8_judge_node(c->g, c->r, c->sums, c->operand, c->result, NULL, &j, &diag) != F8_OK) {
        snprintf(c->message, F8_MESSAGE, "reference: %s", diag.text);
        return false;
    }
    if (!j.ok)
        snprintf(c->message, F8_MESSAGE,
                 "node %u (%s), result %d[%lld]: %.9g, not %.9g; allowed %g", c->r,
                 f8_op_facts(f8_at(c->g, c->r)->op)->name, j.result, (long long)j.at, j.got, j.want,
                 j.allowed);
    return j.ok;
}
