/* The exchange on which all of a function waits: see gate.h. */
#include "passes/memory/gate.h"

/* Marks the groups that must run behind i. */
static void mark_behind(f8_scheduler *s, uint32_t i, bool *behind)
{
    uint32_t depth = 0;
    for (uint32_t k = 0; k < s->lowered->n_groups; k++)
        behind[k] = false;
    s->stack[depth++] = i;
    while (depth > 0) {
        const uint32_t at = s->stack[--depth];
        for (uint32_t k = 0; k < s->next[at].n; k++) {
            const uint32_t to = s->next[at].to[k] / 2;
            if (!behind[to])
                s->stack[depth++] = to;
            behind[to] = true;
        }
    }
}

f8_status f8_find_gate(f8_scheduler *s, const bool *own, bool *behind, uint32_t *gate)
{
    const uint32_t n = s->lowered->n_groups;
    uint32_t travelling = 0;
    uint32_t *before = F8_NEW_ARRAY(&s->scratch, uint32_t, n), /* collectives, of collectives */
        *after = F8_NEW_ARRAY(&s->scratch, uint32_t, n);
    *gate = F8_NO_GROUP;
    if (!before || !after)
        return f8_arena_status(&s->scratch, s->diag);
    for (uint32_t i = 0; i < n; i++) {
        if (!own[i])
            return F8_OK;
        travelling += f8_storage_travels(&s->storage, i);
    }
    for (uint32_t i = 0; i < n; i++) {
        if (!f8_storage_travels(&s->storage, i))
            continue;
        mark_behind(s, i, behind);
        for (uint32_t k = 0; k < n; k++)
            if (behind[k] && f8_storage_travels(&s->storage, k)) {
                before[k]++;
                after[i]++;
            }
    }
    for (uint32_t i = 0; i < n; i++) {
        behind[i] = false;
        if (f8_storage_travels(&s->storage, i) && after[i] > 0 &&
            before[i] + after[i] + 1 == travelling &&
            (*gate == F8_NO_GROUP || before[i] > before[*gate]))
            *gate = i;
    }
    if (*gate != F8_NO_GROUP)
        mark_behind(s, *gate, behind);
    return F8_OK;
}
