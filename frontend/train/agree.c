/* What ranks of a training tell each other, and what they must have alike: see train.h. */
#include <stdlib.h>
#include <string.h>

#include "frontend/train/train.h"
#include "ir/base/hash.h"

int f8_train_ranks(const f8_train *t)
{
    return t->ranks ? t->ranks->comm.ranks : 1;
}

bool f8_train_follows(const f8_train *t)
{
    return f8_ranks_follows(t->ranks);
}

bool f8_train_ranks_done(f8_train *t, f8_status status, const f8_diag *diag)
{
    if (diag->status != F8_OK)
        f8_train_fail(t, diag->status, "%s: error: %s", diag->file ? diag->file : "fp8c",
                      diag->text);
    return status == F8_OK;
}

bool f8_train_stops(f8_train *t, bool *flag)
{
    f8_diag diag = {0};
    if (!t->ranks)
        return t->call.stopped(t->call.user) != 0;
    const bool stops = f8_ranks_tell(t->ranks, flag, &diag);
    f8_train_ranks_done(t, F8_OK, &diag);
    return stops;
}

bool f8_train_gather(f8_train *t, const char *what, const void *mine, void *all, size_t bytes)
{
    f8_diag diag = {0};
    return f8_train_ranks_done(t, f8_ranks_gather(t->ranks, what, mine, all, bytes, &diag), &diag);
}

bool f8_train_agree(f8_train *t, const char *what, const char *text)
{
    f8_diag diag = {0};
    return f8_train_ranks_done(t, f8_ranks_agree(t->ranks, what, text, &diag), &diag);
}

/* Each option that ranks must have alike, with the hash of its value. -1: out of memory. */
static int hash_options(const f8_train_options *o, f8_ranks_fact fact[F8_TRAIN_OPTIONS])
{
    int n = 0;
    for (int at = 0; at < F8_TRAIN_OPTIONS; at++) {
        if (f8_train_option_rows[at].ranks != RANKS_ALIKE)
            continue;
        json_t *value = f8_train_option_json(o, at);
        char *text = value ? json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
        if (text)
            fact[n++] =
                (f8_ranks_fact){f8_train_option_rows[at].name, f8_hash_bytes(text, strlen(text))};
        json_decref(value);
        free(text);
        if (!text)
            return -1;
    }
    return n;
}

static bool agree_options(f8_train *t)
{
    f8_ranks_fact fact[F8_TRAIN_OPTIONS];
    f8_diag diag = {0};
    const int n = hash_options(t->options, fact);
    if (n < 0)
        return f8_train_no_memory(t);
    return f8_train_ranks_done(
        t, f8_ranks_agree_facts(t->ranks, "the options", fact, (size_t)n, &diag), &diag);
}

static bool agree_module(f8_train *t, const fp8c_module *module)
{
    size_t size;
    char *text = f8_train_text(t, module, &size);
    const bool ok = text && f8_train_agree(t, "the model", text);
    free(text);
    return ok;
}

bool f8_train_agree_all(f8_train *t, const fp8c_module *module)
{
    if (!t->ranks)
        return true;
    f8_joining *j = t->ranks->peers ? NULL : t->ranks->joining;
    f8_joining_wait(j, F8_STAGE_AGREES);
    const bool ok = f8_train_agree(t, "the version of fp8c", fp8c_version()) && agree_options(t) &&
                    agree_module(t, module);
    f8_joining_done(j);
    return ok;
}
