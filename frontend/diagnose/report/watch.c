/* Runs that go on, read again and again. */
#include <math.h>
#include <string.h>
#include <time.h>

#include "frontend/diagnose/report/parts.h"
#include "ir/base/clock.h"
#include "ir/base/file.h"

/* A long run takes a while to be read: no more than a tenth of the time goes into that. */
enum { SHARE = 10, MOST = 600 }; /* seconds */

static void rest(const f8_report_watched *w, double seconds)
{
    const struct timespec a_while = {.tv_nsec = 200000000};
    for (const double end = f8_seconds_now() + seconds;
         f8_seconds_now() < end && !w->stop(w->user);)
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
        s->used = f8_seconds_now();
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
    const double begun = f8_seconds_now();
    F8_TRY(look(s, diag));
    if (s->readable)
        F8_TRY(w->write(w->user, s->r, (int)ceil(pause_of(s)), diag));
    s->took = f8_seconds_now() - begun;
    return F8_OK;
}

/* Writes for the last time what was read just now. */
static f8_status finish(const watching *s, f8_diag *diag)
{
    const f8_report_watched *w = s->w;
    if (s->readable)
        return w->write(w->user, s->r, 0, diag);
    if (w->stop(w->user))
        return F8_ERR_CANCELLED;
    const f8_diag why = *diag;
    *diag = (f8_diag){0};
    return f8_file_fail(diag, F8_ERR_INPUT, why.file, "%s; no process has trained there for %.0f s",
                        why.text, w->patience);
}

f8_status f8_report_watch(const f8_report_watched *w, f8_report *r, f8_diag *diag)
{
    *r = (f8_report){0};
    watching s = {.w = w, .r = r, .used = f8_seconds_now()};
    f8_status status;
    for (;;) {
        status = show(&s, diag);
        if (status != F8_OK || is_done(&s) || f8_seconds_now() - s.used > w->patience ||
            w->stop(w->user))
            break;
        rest(w, pause_of(&s));
    }
    return status == F8_OK ? finish(&s, diag) : status;
}
