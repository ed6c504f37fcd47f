/* Runs that go on, read again and again. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "frontend/diagnose/report/parts.h"
#include "ir/base/file.h"

/* A long run takes a while to be read: no more than a tenth of the time goes into that. */
enum { SHARE = 10, MOST = 600 }; /* seconds */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void rest(const f8_report_watched *w, double seconds)
{
    const struct timespec a_while = {.tv_nsec = 200000000};
    for (const double end = now() + seconds; now() < end && !w->stop(w->user);)
        nanosleep(&a_while, NULL);
}

typedef struct watching {
    const f8_report_watched *w;
    f8_report *r;  /* as it was read last */
    bool readable; /* there is something to write */
    bool told;     /* that it waits */
    double took;   /* seconds to read and write it */
    double used;   /* when a process was last seen in a folder */
} watching;

/* Whether all runs have all of their steps. */
static bool is_done(const watching *s)
{
    const f8_report *r = s->r;
    for (size_t i = 0; i < r->n; i++)
        if (strcmp(f8_report_state(&r->run[i]), "done"))
            return false;
    return s->readable && r->n > 0 && !r->n_unread;
}

/* Reads the folders. A run that has not begun yet is no failure. */
static f8_status look(watching *s, f8_diag *diag)
{
    const f8_report_watched *w = s->w;
    f8_report_free(s->r);
    *diag = (f8_diag){0}; /* the first message counts: it may be of the time before */
    const f8_status status = f8_report_read(s->r, w->kind, w->folders, w->n, diag);
    s->readable = status == F8_OK;
    if (s->r->used)
        s->used = now();
    if (s->r->early && !s->told)
        w->waits(w->user, diag);
    s->told |= s->r->early;
    return s->r->early ? F8_OK : status;
}

static double pause_of(const watching *s)
{
    const double pause = fmin(MOST, fmax(s->w->every, SHARE * s->took));
    return s->readable ? pause : fmin(1, pause);
}

static f8_status show(watching *s, f8_diag *diag)
{
    const f8_report_watched *w = s->w;
    const double begun = now();
    F8_TRY(look(s, diag));
    if (s->readable)
        F8_TRY(w->write(w->user, s->r, (int)ceil(pause_of(s)), diag));
    s->took = now() - begun;
    return F8_OK;
}

/* Reads once more, and writes for the last time. */
static f8_status finish(watching *s, f8_diag *diag)
{
    f8_diag why;
    F8_TRY(look(s, diag));
    if (s->readable)
        return s->w->write(s->w->user, s->r, 0, diag);
    if (s->w->stop(s->w->user))
        return F8_ERR_CANCELLED;
    why = *diag;
    *diag = (f8_diag){0};
    return f8_file_fail(diag, F8_ERR_INPUT, why.file, "%s; no process has trained there for %.0f s",
                        why.text, s->w->patience);
}

f8_status f8_report_watch(const f8_report_watched *w, f8_report *r, f8_diag *diag)
{
    *r = (f8_report){0};
    watching s = {.w = w, .r = r, .used = now()};
    f8_status status;
    for (;;) {
        status = show(&s, diag);
        if (status != F8_OK || is_done(&s) || now() - s.used > w->patience || w->stop(w->user))
            break;
        rest(w, pause_of(&s));
    }
    return status == F8_OK ? finish(&s, diag) : status;
}
