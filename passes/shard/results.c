/* Results that every rank needs whole, and of which each rank computes its rows: new parameters at
 * stages 1 and 2. See parts.h.
 *
 * They are gathered in a few buckets, in the order in which they are computed. A bucket starts as
 * soon as its last shard is there, and travels while the next bucket's shards are computed: so the
 * last one alone has nothing beside it. A gather for each parameter would move the same bytes, and
 * begin and wait as often as there are parameters.
 *
 * What is in a bucket follows from the types alone, so all ranks agree. It changes no bit. */
#include "passes/shard/parts.h"

#include <stdlib.h>

/* The buckets of a function; one of less than LEAST bytes would take its time however little it
 * moves. */
enum { BUCKETS = 3, LEAST = 1 << 18 };

static int64_t bytes_of(const f8_result *r)
{
    return f8_type_bytes(&r->type);
}

static int by_turn(const void *a, const void *b)
{
    const f8_result *x = a, *y = b;
    return x->old < y->old ? -1 : x->old > y->old;
}

static f8_status gather_bucket(const f8_unit *u, f8_graph *g, f8_result *of, size_t n)
{
    f8_ref *shard = F8_NEW_ARRAY(u->arena, f8_ref, n), *whole = F8_NEW_ARRAY(u->arena, f8_ref, n);
    f8_type *type = F8_NEW_ARRAY(u->arena, f8_type, n);
    const char *name = n > 1 && of[0].name && of[n - 1].name
                           ? f8_arena_printf(u->arena, "%s .. %s", of[0].name, of[n - 1].name)
                           : of[0].name;
    if (!shard || !whole || !type)
        return f8_arena_status(u->arena, u->diag);
    for (size_t i = 0; i < n; i++) {
        shard[i] = of[i].shard;
        type[i] = of[i].type;
    }
    if (!f8_gather_stored(g, f8_unit_ranks(u), shard, type, n, name, whole))
        return u->diag->status;
    for (size_t i = 0; i < n; i++)
        of[i].whole = whole[i];
    return F8_OK;
}

/* A bucket ends at the result whose end is nearest to an even share of the bytes. None has less
 * than LEAST, unless all have. */
f8_status f8_shard_gather_results(const f8_unit *u, f8_graph *g, f8_result *of, size_t n)
{
    int64_t all = 0, held = 0, before = 0, ended = 0;
    size_t first = 0;
    for (size_t i = 0; i < n; i++)
        all += bytes_of(&of[i]);
    const int64_t room = all / LEAST, most = room < BUCKETS ? room : BUCKETS,
                  buckets = most < 1 ? 1 : most, share = all / buckets;
    qsort(of, n, sizeof *of, by_turn);
    for (size_t i = 0; i < n; i++) {
        held += bytes_of(&of[i]);
        const int64_t next = i + 1 < n ? bytes_of(&of[i + 1]) : 0, end = share * (ended + 1);
        const bool full = ended + 1 < buckets && held + next / 2 >= end && held - before >= LEAST &&
                          all - held >= LEAST;
        if (!full && i + 1 < n)
            continue;
        F8_TRY(gather_bucket(u, g, &of[first], i + 1 - first));
        first = i + 1;
        before = held;
        for (; ended + 1 < buckets && share * (ended + 1) <= held + next / 2; ended++)
            ; /* a large result has more than one share */
    }
    return F8_OK;
}
