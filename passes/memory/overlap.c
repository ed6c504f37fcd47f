/* Collectives beside other groups: see overlap.h.
 *
 * A collective starts where its group stands in the order, and the run waits for it at the first
 * group that reads its result. So the two should lie apart, but what travels takes memory at both
 * ends. There are two kinds:
 *
 * - One that sends what the function computes, such as a bucket of gradients. It starts as soon as
 *   that is there. What reads the result (sums, and collectives of these sums) has its turn so that
 *   the collectives of a bucket share the time until the next bucket is there; or before, if the
 *   next one needs the room: together these collectives hold no more than the largest of them does
 *   by itself, at both of its ends.
 * - One that sends what depends on variables alone, such as a rank's part of a weight. It starts at
 *   the latest when the one before it is needed, so that the next weight travels while this one is
 *   in use. A large one starts earlier, and so does one that would stand behind a bucket in the
 *   engine's queue. But no more than about a layer's weights travel ahead of their use.
 *
 * Behind a gate (gate.h) groups have their turn as if nothing had been received. So a bucket of new
 * parameters starts as soon as it is there, and the next one is computed beside it; `buckets` of
 * them are under way at most.
 *
 * How fast bytes travel is not known here. The second kind is planned for bytes that all together
 * take as long as all compute: slower ones could not be hidden anyway. For the first kind several
 * orders are made (`speeds`), and the one is taken that hides most where bytes take half, and three
 * quarters, as long as all compute. */
#include "passes/memory/overlap.h"

#include "passes/memory/gate.h"
#include "passes/unit/cost.h"

enum {
    AHEAD = 1 << 18, /* bytes of small parts of variables that travel before they are needed */
    LINEARS = 4,     /* a layer's, roughly: so many mean weights may travel ahead */
    NONE = UINT32_MAX
};

/* All arrays go by group, unless it says something else. */
typedef struct plan {
    f8_scheduler *s;
    uint32_t n;
    const uint32_t *base; /* the order that is given */
    uint32_t *at;         /* the group's turn in it */
    uint32_t **before;    /* the groups that must run before, as often as there are edges */
    bool *travels;        /* it is a collective that exchanges bytes */
    bool *own;            /* it depends on variables alone */
    uint32_t gate;        /* see above; NONE: there is none */
    bool *behind;         /* it runs after the gate because it must */
    uint32_t *use;        /* of such a group: the first turn that needs it for something else */
    bool *later;          /* it depends on what was received, or prepares what is sent */
    bool *lazy;        /* it prepares what is sent from nothing: it runs right before its reader */
    uint32_t *left;    /* edges from groups that have no turn yet */
    uint32_t *readers; /* of a collective: groups that read the result and have no turn yet */
    bool *waited;      /* of a collective: one of these has had its turn */
    uint32_t *depth;   /* how many collectives it waits for */
    uint32_t *height;  /* of a collective: how many wait for it in turn, and itself */
    const double *seconds; /* of all that does not travel */
    double *cost, *there;  /* seconds; when its result should be there */
    uint32_t *order, n_order;
    bool *done;
    uint32_t *ready, n_ready;    /* of `later`, those that wait for no group */
    uint32_t *fetch, n_fetch;    /* collectives of `own`, by use */
    uint32_t next_fetch, n_used; /* of these: the first without a turn; those that are in use */
    double *latest;              /* of such a collective: when it should start */
    bool even;                   /* see arrival */
    double speed;                /* seconds of a collective, over those at seconds_a_byte */
    double engine;               /* when the engine has moved all that was started, at that speed */
    double seconds_a_byte;       /* at which all that travels takes as long as all compute */
    int64_t ahead, most_ahead;   /* bytes of those that are started and not yet in use */
    uint32_t turn;               /* of the given order */
    uint32_t *due, n_due;        /* collectives of `later` that wait for no others, by time */
    double *when;                /* of these: the time at which they can start */
    double now, end;             /* seconds of the groups that are not of `later` */
    int64_t held, limit;
} plan;

/* ---- what is known of groups ---- */

static const f8_group *group_of(const plan *p, uint32_t i)
{
    return &p->s->lowered->group[i];
}

static int64_t received(const plan *p, uint32_t i)
{
    return f8_type_bytes(f8_type_of(p->s->storage.g, group_of(p, i)->out[0]));
}

/* Bytes of the arena that are sent; a variable lies elsewhere. */
static int64_t sent(const plan *p, uint32_t i)
{
    return f8_group_maker(p->s, i, 0) == F8_NO_GROUP
               ? 0
               : f8_type_bytes(f8_type_of(p->s->storage.g, group_of(p, i)->in[0]));
}

/* What a collective counts while it is under way. A result that no group reads lies in a port. */
static int64_t held_by(const plan *p, uint32_t i)
{
    return p->later[i] && p->readers[i] ? sent(p, i) + received(p, i) : 0;
}

static f8_status list_before(plan *p)
{
    uint32_t *fill = F8_NEW_ARRAY(&p->s->scratch, uint32_t, p->n);
    if (!fill)
        return f8_arena_status(&p->s->scratch, p->s->diag);
    for (uint32_t i = 0; i < p->n; i++) {
        p->before[i] = F8_NEW_ARRAY(&p->s->scratch, uint32_t, p->s->n_before[i]);
        if (!p->before[i])
            return f8_arena_status(&p->s->scratch, p->s->diag);
    }
    for (uint32_t i = 0; i < p->n; i++)
        for (uint32_t k = 0; k < p->s->next[i].n; k++) {
            const uint32_t to = p->s->next[i].to[k] / 2;
            p->before[to][fill[to]++] = i;
        }
    return F8_OK;
}

static bool reads_inputs(const plan *p, uint32_t i)
{
    const f8_storage *t = &p->s->storage;
    const f8_group *group = group_of(p, i);
    for (uint32_t k = 0; k < group->n_in; k++)
        for (size_t in = 0; in < t->func->n_in; in++)
            if (t->func->in[in].var < 0 && t->view[group->in[k]].base == t->func->in[in].ref)
                return true;
    return false;
}

static void find_own(plan *p)
{
    for (uint32_t turn = 0; turn < p->n; turn++) {
        const uint32_t i = p->base[turn];
        p->own[i] = !reads_inputs(p, i);
        for (uint32_t k = 0; k < group_of(p, i)->n_in && p->own[i]; k++) {
            const uint32_t from = f8_group_maker(p->s, i, k);
            p->own[i] = from == F8_NO_GROUP || p->own[from];
        }
    }
    for (uint32_t turn = p->n; turn-- > 0;) {
        const uint32_t i = p->base[turn];
        p->use[i] = NONE;
        for (uint32_t k = 0; k < p->s->next[i].n; k++) {
            const uint32_t to = p->s->next[i].to[k] / 2, use = p->own[to] ? p->use[to] : p->at[to];
            if (p->s->next[i].to[k] & 1 && use < p->use[i])
                p->use[i] = use;
        }
    }
}

/* Whether all groups behind i have the flag, and there are some. */
static bool all_behind(const plan *p, uint32_t i, const bool *flag)
{
    for (uint32_t k = 0; k < p->s->next[i].n; k++)
        if (!flag[p->s->next[i].to[k] / 2])
            return false;
    return p->s->next[i].n > 0;
}

static bool is_fetch(const plan *p, uint32_t i)
{
    return p->travels[i] && p->own[i] && p->use[i] != NONE;
}

static void find_later(plan *p)
{
    for (uint32_t turn = 0; turn < p->n; turn++) {
        const uint32_t i = p->base[turn];
        p->later[i] = i != p->gate && (p->later[i] || (p->travels[i] && !is_fetch(p, i)));
        for (uint32_t k = 0; k < p->s->next[i].n && p->later[i]; k++) {
            const uint32_t to = p->s->next[i].to[k] / 2;
            p->later[to] |= p->behind[i] || !p->behind[to];
        }
    }
    for (uint32_t turn = p->n; turn-- > 0;) {
        const uint32_t i = p->base[turn];
        const f8_group_kind kind = group_of(p, i)->kind;
        if (p->later[i] || p->travels[i] || !p->s->inner[i] || !all_behind(p, i, p->later))
            continue;
        p->lazy[i] = p->s->n_before[i] == 0;
        p->later[i] = !p->lazy[i] && (kind == F8_GROUP_ROWS || kind == F8_GROUP_COPY ||
                                      kind == F8_GROUP_COLLECTIVE);
    }
}

static void find_depths(plan *p)
{
    for (uint32_t turn = 0; turn < p->n; turn++) {
        const uint32_t i = p->base[turn];
        for (uint32_t k = 0; k < p->s->next[i].n; k++) {
            const uint32_t to = p->s->next[i].to[k] / 2, depth = p->depth[i] + p->travels[i];
            p->depth[to] = depth > p->depth[to] ? depth : p->depth[to];
            p->readers[i] += p->s->next[i].to[k] & 1;
            p->left[to] += !p->lazy[i];
        }
    }
}

/* Sorted by use; the lists are short and nearly sorted. */
static void list_fetches(plan *p)
{
    for (uint32_t turn = 0; turn < p->n; turn++) {
        const uint32_t i = p->base[turn];
        uint32_t k = p->n_fetch;
        if (!is_fetch(p, i))
            continue;
        for (; k > 0 && p->use[p->fetch[k - 1]] > p->use[i]; k--)
            p->fetch[k] = p->fetch[k - 1];
        p->fetch[k] = i;
        p->n_fetch++;
    }
}

/* When each collective of `later` can start, if nothing waits for bytes. */
static void find_times(plan *p)
{
    for (uint32_t turn = 0; turn < p->n; turn++) {
        const uint32_t i = p->base[turn];
        if (!p->travels[i] && !p->later[i] && !p->lazy[i]) {
            p->cost[i] = p->seconds[i];
            p->end += p->cost[i];
            p->when[i] = p->end;
        }
        for (uint32_t k = 0; k < p->s->n_before[i] && p->later[i]; k++)
            p->when[i] =
                p->when[p->before[i][k]] > p->when[i] ? p->when[p->before[i][k]] : p->when[i];
        if (held_by(p, i) > p->limit)
            p->limit = held_by(p, i);
    }
    if (p->gate != NONE)
        p->limit *= p->s->buckets;
}

static double seconds_of(const plan *p, uint32_t i)
{
    return (double)received(p, i) * p->seconds_a_byte;
}

/* When each collective of `own` should start, so that it and those behind it are there in time. */
static void find_latest(plan *p)
{
    int64_t all = 0, fetched = 0;
    double latest = p->end;
    for (uint32_t i = 0; i < p->n; i++)
        all += p->travels[i] ? received(p, i) : 0;
    p->seconds_a_byte = all ? p->end / (double)all : 0;
    p->most_ahead = AHEAD;
    for (uint32_t k = p->n_fetch; k-- > 0;) {
        const uint32_t i = p->fetch[k], user = p->base[p->use[i]];
        const double used = p->when[user] - p->cost[user];
        latest = (used < latest ? used : latest) - seconds_of(p, i);
        p->latest[i] = latest;
        fetched += received(p, i);
        if (received(p, i) > p->most_ahead)
            p->most_ahead = received(p, i);
    }
    if (p->n_fetch && LINEARS * fetched / p->n_fetch > p->most_ahead)
        p->most_ahead = LINEARS * fetched / p->n_fetch;
}

static void list_due(plan *p)
{
    for (uint32_t turn = 0; turn < p->n; turn++) {
        const uint32_t i = p->base[turn];
        uint32_t k = p->n_due;
        if (!p->travels[i] || !p->later[i] || p->depth[i])
            continue;
        for (; k > 0 && p->when[p->due[k - 1]] > p->when[i]; k--)
            p->due[k] = p->due[k - 1];
        p->due[k] = i;
        p->n_due++;
    }
    for (uint32_t turn = p->n; turn-- > 0;) {
        const uint32_t i = p->base[turn];
        for (uint32_t k = 0; k < p->s->next[i].n; k++) {
            const uint32_t height = p->height[p->s->next[i].to[k] / 2];
            p->height[i] = height > p->height[i] ? height : p->height[i];
        }
        p->height[i] += p->travels[i];
    }
}

/* ---- turns ---- */

static void note_reads(plan *p, uint32_t i)
{
    for (uint32_t k = 0; k < group_of(p, i)->n_in; k++) {
        const uint32_t from = f8_group_maker(p->s, i, k);
        if (from == F8_NO_GROUP || !p->travels[from])
            continue;
        if (p->later[from] && !p->waited[from])
            p->held -= sent(p, from);
        p->waited[from] = true;
    }
    for (uint32_t k = 0; k < p->s->n_before[i]; k++) {
        const uint32_t from = p->before[i][k];
        if (p->later[from] && p->travels[from] && p->readers[from] && --p->readers[from] == 0)
            p->held -= received(p, from);
    }
}

/* When the bytes of a collective that starts now should be there: as soon as the engine can move
 * them at the plan's speed. Under `even` not before an even share of the time until the next bucket
 * is over. */
static double arrival(plan *p, uint32_t i)
{
    double next = p->end;
    for (uint32_t k = 0; k < p->n_due; k++)
        if (p->left[p->due[k]] > 0) {
            next = p->when[p->due[k]];
            break;
        }
    const double share = next > p->now ? p->now + (next - p->now) / p->height[i] : p->now;
    p->engine = (p->engine > p->now ? p->engine : p->now) + p->speed * seconds_of(p, i);
    return p->even && share > p->engine ? share : p->engine;
}

/* Gives group i its turn, and before it what it needs that has had none. */
static void give_turn(plan *p, uint32_t i)
{
    if (p->done[i])
        return;
    p->done[i] = true;
    for (uint32_t k = 0; k < p->s->n_before[i]; k++)
        give_turn(p, p->before[i][k]);
    note_reads(p, i);
    p->order[p->n_order++] = i;
    p->now += p->cost[i];
    p->there[i] = p->now;
    if (p->later[i] && p->travels[i]) {
        p->there[i] = arrival(p, i);
        p->held += held_by(p, i);
    }
    for (uint32_t k = 0; k < p->s->next[i].n; k++) {
        const uint32_t to = p->s->next[i].to[k] / 2;
        if (!p->lazy[i] && --p->left[to] == 0 && p->later[to])
            p->ready[p->n_ready++] = to;
    }
}

/* When all is there that group i reads. */
static double when_there(const plan *p, uint32_t i)
{
    double there = 0;
    for (uint32_t k = 0; k < p->s->n_before[i]; k++)
        there = p->there[p->before[i][k]] > there ? p->there[p->before[i][k]] : there;
    return there;
}

/* Whether the group behind the gate costs nothing, as one that joins what is sent. */
static bool is_free(const plan *p, uint32_t i)
{
    return p->behind[i] && p->seconds[i] <= 0;
}

/* Of the ready groups, as an index: of collectives the one that waits for most others, else the one
 * whose operands are there first; then the first in the given order. NONE: there is none. */
static uint32_t best_ready(const plan *p, bool travels)
{
    uint32_t best = NONE;
    double least = 0;
    for (uint32_t k = 0; k < p->n_ready; k++) {
        const uint32_t i = p->ready[k];
        const double there = when_there(p, i), key = p->travels[i]    ? -(double)p->depth[i]
                                                     : is_free(p, i)  ? -1
                                                     : there > p->now ? there
                                                                      : p->now;
        if (p->travels[i] == travels &&
            (best == NONE || key < least || (key <= least && p->at[i] < p->at[p->ready[best]]))) {
            best = k;
            least = key;
        }
    }
    return best;
}

static void take(plan *p, uint32_t index)
{
    const uint32_t i = p->ready[index];
    p->ready[index] = p->ready[--p->n_ready];
    give_turn(p, i);
}

/* Whether all that fetch `i` needs and that has had no turn depends on variables alone. */
static bool can_go_ahead(const plan *p, uint32_t i)
{
    for (uint32_t k = 0; k < p->s->n_before[i]; k++) {
        const uint32_t from = p->before[i][k];
        if (!p->done[from] && (!p->own[from] || p->later[from] || !can_go_ahead(p, from)))
            return false;
    }
    return true;
}

/* Starts the next collectives of `own` whose time comes before `until`: what is needed now, then
 * what goes ahead of its use. */
static void go_ahead(plan *p, double until)
{
    for (; p->n_used < p->n_fetch && p->use[p->fetch[p->n_used]] <= p->turn; p->n_used++)
        if (p->done[p->fetch[p->n_used]])
            p->ahead -= received(p, p->fetch[p->n_used]);
    for (; p->next_fetch < p->n_fetch; p->next_fetch++) {
        const uint32_t i = p->fetch[p->next_fetch];
        const int64_t ahead = p->ahead + received(p, i);
        const bool next = p->next_fetch <= p->n_used ||
                          p->use[i] == p->use[p->fetch[p->next_fetch - 1]],
                   due = p->latest[i] <= until && ahead <= p->most_ahead;
        if (p->done[i])
            continue;
        if (!(next || due || ahead <= AHEAD) || !can_go_ahead(p, i))
            return;
        give_turn(p, i);
        p->ahead = p->use[i] > p->turn ? ahead : p->ahead;
    }
}

/* Gives turns to the groups of `later` whose time has come; `all`: to all of them. */
static void give_later(plan *p, bool all)
{
    while (p->n_ready > 0) {
        const uint32_t other = best_ready(p, false), collective = best_ready(p, true);
        const bool there = other != NONE && when_there(p, p->ready[other]) <= p->now;
        const bool room =
            collective != NONE && p->held + held_by(p, p->ready[collective]) <= p->limit;
        if (room) {
            go_ahead(p, p->now + seconds_of(p, p->ready[collective]));
            take(p, collective);
        } else if (there)
            take(p, other);
        else if (other != NONE && (all || collective != NONE))
            take(p, other); /* the run waits, for want of room or of anything else to do */
        else if (collective != NONE)
            take(p, collective);
        else
            return;
    }
}

static void make_order(plan *p)
{
    for (uint32_t i = 0; i < p->n; i++)
        if (p->later[i] && p->left[i] == 0)
            p->ready[p->n_ready++] = i;
    for (p->turn = 0; p->turn < p->n; p->turn++) {
        const uint32_t i = p->base[p->turn];
        if (p->later[i] || p->lazy[i] || is_fetch(p, i))
            continue;
        go_ahead(p, p->now);
        if (i == p->gate)
            give_later(p, true);
        give_turn(p, i);
        give_later(p, false);
    }
    give_later(p, true);
}

/* ---- the peak ---- */

static f8_status find_peak(plan *p, int64_t *peak)
{
    const f8_storage *t = &p->s->storage;
    int64_t *change = F8_NEW_ARRAY(&p->s->scratch, int64_t, p->n + 2), live = 0;
    if (!change)
        return f8_arena_status(&p->s->scratch, p->s->diag);
    for (uint32_t turn = 0; turn < p->n; turn++)
        p->at[p->order[turn]] = turn;
    F8_TRY(f8_storage_share(&p->s->storage, p->at));
    for (f8_ref r = 1; r < t->g->n_nodes; r++) {
        const f8_base *b = &t->base[r];
        if (b->def == F8_NO_GROUP || b->root != r || b->place.space != F8_SPACE_NONE)
            continue;
        change[b->start] += f8_storage_bytes(t, r);
        change[b->end + 1] -= f8_storage_bytes(t, r);
    }
    *peak = 0;
    for (uint32_t turn = 0; turn <= p->n; turn++) {
        live += change[turn];
        *peak = live > *peak ? live : *peak;
    }
    return F8_OK;
}

/* ---- the whole ---- */

static f8_status set_up(plan *p, f8_scheduler *s, const uint32_t *order)
{
    f8_arena *a = &s->scratch;
    const uint32_t n = s->lowered->n_groups;
    uint32_t **const numbers[] = {&p->at,    &p->use,    &p->left,  &p->readers, &p->order,
                                  &p->depth, &p->height, &p->ready, &p->fetch,   &p->due};
    bool **const flags[] = {&p->travels, &p->own,    &p->behind, &p->later,
                            &p->lazy,    &p->waited, &p->done};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        *numbers[i] = F8_NEW_ARRAY(a, uint32_t, n);
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        *flags[i] = F8_NEW_ARRAY(a, bool, n);
    p->before = F8_NEW_ARRAY(a, uint32_t *, n);
    p->when = F8_NEW_ARRAY(a, double, n);
    p->cost = F8_NEW_ARRAY(a, double, n);
    p->there = F8_NEW_ARRAY(a, double, n);
    p->latest = F8_NEW_ARRAY(a, double, n);
    F8_TRY(f8_arena_status(a, s->diag));
    p->s = s;
    p->n = n;
    p->base = order;
    for (uint32_t i = 0; i < n; i++) {
        p->at[order[i]] = i;
        p->travels[i] = f8_storage_travels(&s->storage, i);
    }
    return list_before(p);
}

/* An order for bytes of some speed. */
static f8_status order_for(f8_scheduler *s, const uint32_t *base, const double *seconds,
                           double speed, bool even, plan *p)
{
    *p = (plan){.seconds = seconds, .speed = speed, .even = even};
    F8_TRY(set_up(p, s, base));
    find_own(p);
    F8_TRY(f8_find_gate(s, p->own, p->behind, &p->gate));
    find_later(p);
    find_depths(p);
    list_fetches(p);
    find_times(p);
    find_latest(p);
    list_due(p);
    make_order(p);
    return p->n_order == p->n ? F8_OK
                              : f8_fail(s->diag, F8_ERR_INTERNAL, F8_NOWHERE,
                                        "schedule: %u of the %u groups of '%s' have a turn",
                                        p->n_order, p->n, s->storage.func->name);
}

/* The seconds of a run in this order, if what travels takes `share` of what is computed. */
static double estimate(const plan *p, double share)
{
    double now = 0, engine = 0;
    for (uint32_t turn = 0; turn < p->n; turn++) {
        const uint32_t i = p->order[turn];
        for (uint32_t k = 0; k < p->s->n_before[i]; k++) {
            const uint32_t from = p->before[i][k];
            if (p->travels[from] && p->there[from] > now)
                now = p->there[from];
        }
        if (p->travels[i])
            p->there[i] = engine = (engine > now ? engine : now) + seconds_of(p, i) * share;
        else
            now += p->seconds[i];
    }
    return engine > now ? engine : now;
}

/* Of the orders for all speeds, the one that takes least. */
static f8_status best_order(f8_scheduler *s, const uint32_t *base, const double *seconds,
                            plan *best)
{
    static const double speeds[] = {0, 0.25, 0.5, 0.75};
    enum { SPEEDS = sizeof speeds / sizeof *speeds };
    double least = 0;
    for (int k = 0; k < 2 * SPEEDS; k++) {
        plan p;
        F8_TRY(order_for(s, base, seconds, speeds[k % SPEEDS], k < SPEEDS, &p));
        const double took = estimate(&p, 0.5) + estimate(&p, 0.75);
        if (k > 0 && took >= least)
            continue;
        *best = p;
        least = took;
    }
    return F8_OK;
}

f8_status f8_order_overlap(f8_scheduler *s, uint32_t *order, int64_t *peak)
{
    const uint32_t n = s->lowered->n_groups;
    plan best = {0};
    bool any = false;
    for (uint32_t i = 0; i < n && !any; i++)
        any = f8_storage_travels(&s->storage, i);
    if (!any)
        return F8_OK;
    double *seconds = F8_NEW_ARRAY(&s->scratch, double, n);
    if (!seconds)
        return f8_arena_status(&s->scratch, s->diag);
    for (uint32_t i = 0; i < n; i++)
        if (!f8_storage_travels(&s->storage, i))
            seconds[i] = f8_cost_group(s->storage.func, s->storage.target, i);
    F8_TRY(best_order(s, order, seconds, &best));
    for (uint32_t i = 0; i < n; i++)
        order[i] = best.order[i];
    s->lowered->has_gate = best.gate != NONE;
    return find_peak(&best, peak);
}
