/* The health of devices as facts of doctor's: see component.h. */
#include <inttypes.h>

#include "runtime/probe/component.h"
#include "runtime/probe/health.h"

/* "ecc_corrected" becomes "ecc corrected". */
static const char *spaced(f8_arena *arena, const char *name)
{
    char *text = f8_arena_strdup(arena, name);
    for (char *at = text; at && *at; at++)
        *at = *at == '_' ? ' ' : *at;
    return text ? text : name;
}

void f8_facts_health(f8_facts *facts, const char *group, const f8_health *h)
{
    for (int i = 0; i < F8_HEALTH_N; i++) {
        const f8_health_about *about = &f8_health_values[i];
        const char *value = f8_arena_printf(facts->arena, "%" PRId64, h->value[i]);
        const bool bad = about->kind != F8_HEALTH_GAUGE || i == F8_HEALTH_earlier_xids;
        if (h->value[i] >= 0)
            f8_fact_add(facts, group, spaced(facts->arena, about->name), value,
                        bad && h->value[i] > 0 ? about->words : NULL);
    }
}

void f8_facts_cpu_health(f8_facts *facts, const char *root)
{
    f8_health h;
    f8_health_cpu(root, &h);
    const size_t before = facts->n;
    f8_facts_health(facts, "CPU", &h);
    if (facts->n == before)
        f8_fact_add(facts, "CPU", "its own errors", "the kernel shows no counters of them", NULL);
}
