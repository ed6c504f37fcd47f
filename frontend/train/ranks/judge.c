/* The thread that watches the other ranks: see judge.h.
 *
 * It sleeps in poll: a process of this machine that ends wakes it, and else it looks from time to
 * time how long this rank has been in one collective. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "frontend/train/ranks/judge.h"
#include "frontend/train/ranks/process.h"
#include "ir/base/clock.h"

enum {
    SAID = 16,     /* ranks that a message names */
    LONGEST = 500, /* milliseconds between two looks */
    SHORTEST = 20,
    TURN = 1000, /* milliseconds that a rank waits for each rank before it, which may speak */
    TURNS = 4,
    AFTER_FAILURE = 3, /* seconds for a rank that has failed to end the job itself */
    OVERSLEPT = 1      /* seconds more than asked for: the process was stopped */
};

/* ---- what is known of a rank ---- */

/* Of a process on this machine. */
static f8_life life_of(const f8_peers *w, int rank)
{
    struct pollfd p = {.fd = w->process[rank], .events = POLLIN};
    if (w->process[rank] >= 0 && poll(&p, 1, 0) == 1)
        return F8_LIFE_GONE;
    return f8_life_of(w->peer[rank].pid);
}

static bool has_record(const f8_peers *w, int rank)
{
    return w->record[rank].bytes != NULL;
}

/* The last record of a rank: where this machine has none, that of the run's folder, which other
 * machines may see too. */
static bool read_rank(const f8_peers *w, int rank, f8_rank_at *out)
{
    char path[PATH_MAX];
    f8_rank_file file;
    f8_diag diag = {0};
    if (has_record(w, rank) || !w->in_folder)
        return f8_rank_read(&w->record[rank], out);
    snprintf(path, sizeof path, "%.4000s/%d", w->folder, rank);
    if (f8_rank_open(&file, path, &diag) != F8_OK) /* then nothing is known, and is said to be */
        return false;
    const bool found = f8_rank_read(&file, out);
    f8_rank_close(&file);
    return found;
}

static void say_rank(f8_said *s, const f8_peers *w, int rank)
{
    f8_say_rank(s, rank, w->peer[rank].host, w->peer[rank].pid);
}

/* "collective 42: all_gather of 'grad.x' in micro_step, step 3" */
static void say_at(f8_said *s, const f8_rank_at *at)
{
    f8_say(s, "collective %" PRIu64 ", %s of '%s'", at->number, at->op, at->name);
    if (strcmp(at->function, "-"))
        f8_say(s, " in %s", at->function);
    if (at->step > 0)
        f8_say(s, ", step %" PRId64, at->step);
    if (at->step > 0 && at->micro_step > 1)
        f8_say(s, ", micro-step %" PRId64, at->micro_step);
}

static void say_last(f8_said *s, const f8_peers *w, int rank)
{
    f8_rank_at at;
    if (!read_rank(w, rank, &at) || !at.number) {
        f8_say(s, "it has been in no collective yet");
        return;
    }
    f8_say(s, at.state == F8_RANK_WAITS ? "it was in " : "the last one that it finished is ");
    say_at(s, &at);
}

/* ---- who is missing ---- */

/* What a rank does that has not come to the collective, or can't go on. */
static void say_why(f8_said *s, const f8_peers *w, int rank, bool arrived, f8_life l)
{
    const bool stuck = l == F8_LIFE_STOPPED || l == F8_LIFE_GONE;
    f8_say(s, "  ");
    say_rank(s, w, rank);
    f8_say(s, "%s%s%s: ", arrived ? "" : " has not arrived", !arrived && stuck ? ", and" : "",
           f8_life_text(l));
    say_last(s, w, rank);
    f8_say(s, "\n");
}

/* What is known of a rank of another machine that is not late by its record: little. */
static void say_far(f8_said *s, const f8_peers *w, int rank, bool known)
{
    f8_say(s, known ? "  " : "  no record of ");
    say_rank(s, w, rank);
    f8_say(s, known
                  ? " has arrived, by its record in the folder; its machine knows whether it runs\n"
                  : " here\n");
}

/* A line for each rank that has not come to collective `number`, or can't go on, or of which that
 * is not known. Returns how many there are. */
static int say_missing(f8_said *s, const f8_peers *w, uint64_t number)
{
    int lines = 0;
    f8_rank_at at;
    for (int r = 0; r < w->ranks; r++) {
        if (r == w->rank)
            continue;
        const bool near = has_record(w, r), known = read_rank(w, r, &at),
                   arrived = known && at.number >= number;
        const f8_life l = near ? life_of(w, r) : F8_LIFE_UNKNOWN;
        if ((near && arrived && l != F8_LIFE_STOPPED && l != F8_LIFE_GONE) || lines++ >= SAID)
            continue;
        if (!near && (arrived || !known))
            say_far(s, w, r, known);
        else
            say_why(s, w, r, arrived, l);
    }
    if (lines > SAID)
        f8_say(s, "  and others\n");
    return lines;
}

static void say_late(f8_said *s, const f8_peers *w, double waited)
{
    f8_rank_at at = {.op = "?", .function = "-", .name = "?"};
    f8_rank_read(&w->record[w->rank], &at);
    say_rank(s, w, w->rank);
    f8_say(s, " has waited for %.1f seconds in ", waited);
    say_at(s, &at);
    f8_say(s, "; %s is %g\n", w->options->limit_name, w->options->limit);
    if (!say_missing(s, w, at.number))
        f8_say(s, "  all ranks have arrived: the exchange itself does not end\n");
}

static void say_gone(f8_said *s, const f8_peers *w, int rank)
{
    say_rank(s, w, rank);
    f8_say(s, " is gone: ");
    say_last(s, w, rank);
    f8_say(s, "\n");
}

void f8_peers_say_gone(const f8_peers *w)
{
    f8_rank_at at;
    for (int r = 0; r < w->ranks; r++) {
        f8_said s = {.n = 0};
        if (r == w->rank || !has_record(w, r))
            continue;
        if (f8_rank_read(&w->record[r], &at) && at.state >= F8_RANK_LEFT)
            continue; /* it has said why */
        const f8_life l = life_of(w, r);
        if (l == F8_LIFE_GONE) {
            say_gone(&s, w, r);
        } else if (l == F8_LIFE_STOPPED) {
            say_rank(&s, w, r);
            f8_say(&s, " is stopped (SIGSTOP): ");
            say_last(&s, w, r);
            f8_say(&s, "\n");
        }
        if (s.n)
            w->options->call.gone(w->options->call.user, s.text);
    }
}

/* ---- the end ---- */

/* Ends all processes, with this message. Returns if the process ends already. */
static void end_job(f8_peers *w, const f8_said *s)
{
    if (atomic_exchange(&w->ending, true))
        return;
    w->options->call.say(w->options->call.user, s->text);
    f8_rank_become(&w->record[w->rank], F8_RANK_FAILED);
    w->options->call.end(w->options->call.user, w->mpi);
}

/* How long this rank lets others of the machine speak first: all would say the same. */
static int turn_of(const f8_peers *w)
{
    int before = 0;
    for (int r = 0; r < w->rank; r++)
        before += has_record(w, r) && life_of(w, r) == F8_LIFE_RUNS;
    return TURN * (before < TURNS ? before : TURNS);
}

/* ---- the thread ---- */

static double waited(const f8_peers *w)
{
    const int64_t since = w->since;
    return since ? f8_seconds_now() - 1e-9 * (double)since : 0;
}

/* Whether an end of each process of this machine wakes the thread. */
static bool is_woken(const f8_peers *w)
{
    for (int r = 0; r < w->ranks; r++)
        if (has_record(w, r) && r != w->rank && w->process[r] < 0)
            return false;
    return true;
}

/* A rank whose process has ended though it had not done its work; -1: there is none. *failed: it
 * has said why. */
static int find_gone(const f8_peers *w, bool *failed)
{
    int found = -1;
    f8_rank_at at;
    for (int r = 0; r < w->ranks; r++) {
        if (r == w->rank || !has_record(w, r))
            continue;
        const bool known = f8_rank_read(&w->record[r], &at);
        if ((known && at.state == F8_RANK_LEFT) || life_of(w, r) != F8_LIFE_GONE)
            continue;
        *failed = known && at.state == F8_RANK_FAILED;
        found = r;
        if (!*failed)
            return r;
    }
    return found;
}

/* What the thread sleeps on: to be woken, and behind that the end of each process. */
typedef struct sleeper {
    struct pollfd *p;
    int n;
    bool ended; /* a process has ended since the last look */
} sleeper;

/* This process was stopped itself: the time that it has waited for others begins anew. */
static void start_anew(f8_peers *w)
{
    int64_t since = w->since;
    if (since)
        atomic_compare_exchange_strong(&w->since, &since, (int64_t)(f8_seconds_now() * 1e9));
}

/* Sleeps until something happens, or for so many milliseconds. false: the thread shall end. */
static bool rest(f8_peers *w, sleeper *s, int n, int milliseconds)
{
    const double begin = f8_seconds_now();
    const int ready = poll(s->p, (nfds_t)n, milliseconds);
    if (f8_seconds_now() - begin > 1e-3 * milliseconds + OVERSLEPT)
        start_anew(w);
    if (ready > 0 && s->p[0].revents)
        return false;
    for (int i = 1; ready > 0 && i < n; i++)
        if (s->p[i].revents) {
            s->p[i].fd = -1; /* once is enough */
            s->ended = true;
        }
    return !w->ending;
}

static int processes(const f8_peers *w, struct pollfd *p)
{
    int n = 0;
    p[n++] = (struct pollfd){.fd = w->wake, .events = POLLIN};
    for (int r = 0; r < w->ranks; r++)
        if (w->process[r] >= 0)
            p[n++] = (struct pollfd){.fd = w->process[r], .events = POLLIN};
    return n;
}

static int pause_of(const f8_peers *w)
{
    const double tenth = w->options->limit * 100; /* of the limit, in milliseconds */
    return tenth <= 0 || tenth > LONGEST ? LONGEST : tenth < SHORTEST ? SHORTEST : (int)tenth;
}

/* Lets others of the machine speak first. false: the thread shall end. */
static bool wait_for_turn(f8_peers *w, sleeper *s)
{
    f8_rank_at at;
    if (!rest(w, s, 1, turn_of(w)))
        return false;
    for (int r = 0; r < w->ranks; r++)
        if (r != w->rank && f8_rank_read(&w->record[r], &at) && at.state == F8_RANK_FAILED)
            return rest(w, s, 1, AFTER_FAILURE * 1000); /* it ends the job */
    return true;
}

/* Once a rank is gone. */
static bool end_for(f8_peers *w, int gone, bool failed, sleeper *p)
{
    f8_said s = {.n = 0};
    if (failed ? !rest(w, p, 1, AFTER_FAILURE * 1000) : !wait_for_turn(w, p))
        return false;
    if (failed) {
        say_rank(&s, w, gone);
        f8_say(&s, " has failed, and said why\n");
    } else {
        say_gone(&s, w, gone);
    }
    end_job(w, &s);
    return false;
}

static bool end_late(f8_peers *w, sleeper *p)
{
    f8_said s = {.n = 0};
    if (!wait_for_turn(w, p))
        return false;
    const double seconds = waited(w);
    if (seconds < w->options->limit)
        return true;
    say_late(&s, w, seconds);
    end_job(w, &s);
    return false;
}

/* Whether ranks on other machines may want to read this one's record in the run's folder. */
static bool has_far(const f8_peers *w)
{
    for (int r = 0; r < w->ranks; r++)
        if (!has_record(w, r))
            return true;
    return false;
}

void *f8_peers_others(void *peers)
{
    f8_peers *w = peers;
    struct pollfd one, *all = calloc((size_t)w->ranks + 1, sizeof *all);
    sleeper s = {.p = all ? all : &one, .n = 1};
    const bool woken = all && is_woken(w), far = has_far(w);
    bool failed = false, goes_on = true;
    if (all)
        s.n = processes(w, all);
    else
        one = (struct pollfd){.fd = w->wake, .events = POLLIN};
    while (goes_on && rest(w, &s, s.n, pause_of(w))) {
        const int gone = s.ended || !woken ? find_gone(w, &failed) : -1;
        s.ended = false;
        if (far && w->in_folder)
            f8_rank_flush(&w->kept);
        if (gone >= 0)
            goes_on = end_for(w, gone, failed, &s);
        else if (w->options->limit > 0 && waited(w) > w->options->limit)
            goes_on = end_late(w, &s);
    }
    free(all);
    return NULL;
}
