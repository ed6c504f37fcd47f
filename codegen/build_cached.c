/* Pieces of a build from the kernel cache: see build_cached.h. */
#include "codegen/build_cached.h"

#include <string.h>

#include "ir/clock.h"

enum { WAIT = 20 }; /* f8_build_options.cache_wait */

static f8_status begin(f8_build_cached *c, const f8_build_options *options, f8_diag *d)
{
    c->options = options;
    c->until = f8_seconds_now() + (options->cache_wait > 0 ? options->cache_wait : WAIT);
    f8_arena_end(&c->arena);
    f8_arena_init(&c->arena, options->allocator);
    c->n_missing = c->n_kernels = 0;
    c->key = F8_NEW_ARRAY(&c->arena, f8_cache_key, c->n + 1);
    c->missing = F8_NEW_ARRAY(&c->arena, uint32_t, c->n + 1);
    return f8_arena_status(&c->arena, d);
}

static f8_status find_one(f8_build_cached *c, uint32_t i, bool *found, f8_diag *d)
{
    f8_cache_value value;
    *found = false;
    if (!c->cache)
        return F8_OK;
    const char *text = c->calls->key(c->user, i, &c->arena);
    if (!text)
        return f8_arena_status(&c->arena, d);
    c->key[i] = f8_cache_key_of(text, strlen(text));
    *found =
        f8_cache_get(c->cache, &c->key[i], &c->arena, &value) && c->calls->take(c->user, i, &value);
    return f8_arena_status(&c->arena, d);
}

f8_status f8_build_cached_find(f8_build_cached *c, const f8_build_options *options, f8_diag *d)
{
    uint32_t n_kernels;
    F8_TRY(begin(c, options, d));
    for (uint32_t turn = 0; turn < c->n; turn++) {
        const uint32_t i = c->order ? c->order[turn] : turn;
        bool found;
        F8_TRY(find_one(c, i, &found, d));
        c->calls->name(c->user, i, &n_kernels);
        c->n_kernels += n_kernels;
        if (!found)
            c->missing[c->n_missing++] = i;
    }
    return F8_OK;
}

static f8_status make_one(f8_build_cached *c, uint32_t i, f8_arena *arena, f8_diag *d)
{
    uint32_t n_kernels;
    F8_TRY(c->calls->make(c->user, i, arena, d));
    c->calls->name(c->user, i, &n_kernels);
    atomic_fetch_add(&c->n_made, n_kernels);
    if (!c->cache)
        return F8_OK;
    const f8_cache_value value = c->calls->give(c->user, i, arena);
    if (value.bytes)
        f8_cache_put(c->cache, &c->key[i], value.bytes, value.size);
    return F8_OK;
}

/* Another may have made it since it was looked for, so that is asked again once it is ours to make.
 */
static f8_status compile(void *user, uint32_t i, f8_arena *arena, bool *later, f8_diag *d)
{
    f8_build_cached *c = user;
    f8_cache_value value;
    f8_cache_claim claim;
    if (!c->cache)
        return make_one(c, i, arena, d);
    if (!f8_cache_claim_key(c->cache, &c->key[i], &claim)) {
        *later = f8_seconds_now() < c->until;
        return *later ? F8_OK : make_one(c, i, arena, d);
    }
    f8_status s = F8_OK;
    if (!f8_cache_again(c->cache, &c->key[i], arena, &value) || !c->calls->take(c->user, i, &value))
        s = make_one(c, i, arena, d);
    f8_cache_release(&claim);
    return s;
}

static const char *name(void *user, uint32_t i, uint32_t *n_kernels)
{
    const f8_build_cached *c = user;
    return c->calls->name(c->user, i, n_kernels);
}

f8_status f8_build_cached_make(f8_build_cached *c, uint32_t *failed, f8_diag *d)
{
    c->threads = (f8_build_threads){.compile = compile,
                                    .name = name,
                                    .user = c,
                                    .n_batches = c->n_missing,
                                    .order = c->missing};
    F8_TRY(f8_build_threads_run(&c->threads, c->options, &c->arena, failed, d));
    if (c->cache)
        f8_log_say(c->options->log, F8_LOG_INFO, "kernels: %u compiled, %u from the cache",
                   atomic_load(&c->n_made), f8_build_cached_found(c));
    return F8_OK;
}

uint32_t f8_build_cached_found(f8_build_cached *c)
{
    return c->n_kernels - atomic_load(&c->n_made);
}

void f8_build_cached_end(f8_build_cached *c)
{
    f8_build_threads_end(&c->threads);
    f8_arena_end(&c->arena);
}
