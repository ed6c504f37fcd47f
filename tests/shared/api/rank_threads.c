/* See rank_threads.h. */
#include "frontend/fp8c_ranks.h"
#include "tests/shared/api/rank_threads.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#include "tests/shared/suite.h"

typedef struct world {
    pthread_mutex_t lock;
    pthread_cond_t turned;
    int ranks, arrived;
    unsigned turn;
    bool broken; /* a rank has left */
    const void *send[RANKS_MOST];
    size_t bytes[RANKS_MOST];
    void (*body)(const fp8c_comm *comm, void *user);
    void *user;
} world;

typedef struct member {
    world *w;
    int rank;
    rank_traffic moved;
} member;

/* Waits until all ranks are here; false: one has left. */
static bool meet(world *w)
{
    pthread_mutex_lock(&w->lock);
    const unsigned turn = w->turn;
    if (++w->arrived == w->ranks) {
        w->arrived = 0;
        w->turn++;
        pthread_cond_broadcast(&w->turned);
    }
    while (turn == w->turn && !w->broken)
        pthread_cond_wait(&w->turned, &w->lock);
    const bool whole = turn != w->turn;
    pthread_mutex_unlock(&w->lock);
    return whole;
}

/* Every rank shows what it sends; then each copies what is meant for it. */
static int exchange(member *m, const void *send, void *receive, size_t bytes, bool own_row)
{
    world *w = m->w;
    w->send[m->rank] = send;
    w->bytes[m->rank] = bytes;
    if (!meet(w))
        return 1;
    for (int r = 0; r < w->ranks; r++) {
        if (w->bytes[r] != bytes)
            return 2; /* the ranks do not make the same calls */
        const char *from = (const char *)w->send[r] + (own_row ? (size_t)m->rank * bytes : 0);
        memcpy((char *)receive + (size_t)r * bytes, from, bytes);
    }
    m->moved.calls++;
    m->moved.sent += (int64_t)bytes * (w->ranks - 1);
    m->moved.received += (int64_t)bytes * (w->ranks - 1);
    return meet(w) ? 0 : 1; /* nobody overwrites what another still reads */
}

static int all_gather(void *user, const void *send, void *receive, size_t bytes)
{
    return exchange(user, send, receive, bytes, false);
}

static int all_to_all(void *user, const void *send, void *receive, size_t bytes)
{
    return exchange(user, send, receive, bytes, true);
}

/* Sums from the last rank to the first: an order of its own. */
static int add(member *m, const float *send, float *receive, size_t n, bool own_row)
{
    world *w = m->w;
    w->send[m->rank] = send;
    w->bytes[m->rank] = n;
    if (!meet(w))
        return 1;
    for (int r = w->ranks - 1; r >= 0; r--) {
        if (w->bytes[r] != n)
            return 2;
        const float *from = (const float *)w->send[r] + (own_row ? (size_t)m->rank * n : 0);
        for (size_t i = 0; i < n; i++)
            receive[i] = r == w->ranks - 1 ? from[i] : receive[i] + from[i];
    }
    m->moved.calls++;
    m->moved.sums++;
    return meet(w) ? 0 : 1;
}

static int all_reduce(void *user, const float *send, float *receive, size_t n)
{
    return add(user, send, receive, n, false);
}

static int reduce_scatter(void *user, const float *send, float *receive, size_t n)
{
    return add(user, send, receive, n, true);
}

void ranks_leave(const fp8c_comm *comm)
{
    world *w = ((member *)comm->user)->w;
    pthread_mutex_lock(&w->lock);
    w->broken = true;
    pthread_cond_broadcast(&w->turned);
    pthread_mutex_unlock(&w->lock);
}

static void *run(void *user)
{
    member *m = user;
    const fp8c_comm comm = {.struct_size = sizeof comm,
                            .rank = m->rank,
                            .ranks = m->w->ranks,
                            .user = m,
                            .all_gather = all_gather,
                            .all_to_all = all_to_all,
                            .all_reduce = all_reduce,
                            .reduce_scatter = reduce_scatter};
    m->w->body(&comm, m->w->user);
    return NULL;
}

void ranks_run(int ranks, void (*body)(const fp8c_comm *comm, void *user), void *user,
               rank_traffic *traffic)
{
    world w = {.lock = PTHREAD_MUTEX_INITIALIZER,
               .turned = PTHREAD_COND_INITIALIZER,
               .ranks = ranks,
               .body = body,
               .user = user};
    member m[RANKS_MOST];
    pthread_t thread[RANKS_MOST];
    ck_assert_int_le(ranks, RANKS_MOST);
    for (int r = 0; r < ranks; r++) {
        m[r] = (member){.w = &w, .rank = r};
        ck_assert_int_eq(pthread_create(&thread[r], NULL, run, &m[r]), 0);
    }
    for (int r = 0; r < ranks; r++) {
        pthread_join(thread[r], NULL);
        if (traffic)
            traffic[r] = m[r].moved;
    }
}
