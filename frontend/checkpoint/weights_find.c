/* What is among files of weights: see weights.h. */
#include "frontend/checkpoint/weights.h"

#include <string.h>

#include "frontend/checkpoint/checkpoint.h"

f8_weight *f8_weights_find(const f8_weights *w, const char *name)
{
    size_t low = 0, high = w->n_named;
    while (low < high) {
        const size_t mid = low + (high - low) / 2;
        const int order = strcmp(name, w->weight[mid].name);
        if (!order)
            return &w->weight[mid];
        if (order < 0)
            high = mid;
        else
            low = mid + 1;
    }
    return NULL;
}

const char *f8_weights_metadata(const f8_weights *w, const char *key)
{
    const char *value = NULL;
    for (size_t i = 0; i < w->n_files && !value; i++)
        value = f8_st_metadata(&w->file[i], key);
    return value;
}

bool f8_weights_have_states(const f8_weights *w)
{
    for (size_t i = 0; i < w->n_named; i++)
        if (!strncmp(w->weight[i].name, f8_checkpoint_prefix, strlen(f8_checkpoint_prefix)))
            return true;
    return false;
}
