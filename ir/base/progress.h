/* How far a long call is, and whether to go on with it: fp8c_context_options.progress.
 *
 *     f8_progress_phase phase = f8_progress_begin(progress, "passes", n);
 *     for (i = 0; i < n; i++) {
 *         F8_TRY(f8_progress_at(&phase, i, name[i], diag));
 *         ...
 *     }
 *     return f8_progress_at(&phase, n, "", diag);
 *
 * An item that may take long calls f8_progress_within in its loops. The callback runs between items
 * or there, and only on the thread that made the call, however many threads
 * work. */
#ifndef F8_PROGRESS_H
#define F8_PROGRESS_H

#include "ir/base/status.h"

typedef struct f8_progress_state {
    const char *phase, *item;
    int64_t done, total;
    double seconds_left; /* of the phase; negative if not known */
} f8_progress_state;

typedef struct f8_progress {
    /* Returns non-zero to stop the call; NULL if nobody listens. */
    int (*fn)(void *user, const f8_progress_state *state);
    void *user;
} f8_progress;

typedef struct f8_progress_phase {
    const f8_progress *to;
    const char *name;
    int64_t total;
    double start; /* ir/base/clock.h */
    /* what was reported last, and when */
    int64_t done;
    const char *item;
    double asked;
} f8_progress_phase;

/* `to` and `name` are borrowed for as long as the phase lasts; `to` may be NULL. */
f8_progress_phase f8_progress_begin(const f8_progress *to, const char *name, int64_t total);
/* Report that `done` items are done and `item` comes next ("" after the last). Returns F8_OK, or
 * F8_ERR_CANCELLED with a message that says where the call stopped. The time left is estimated from
 * the rate so far. */
f8_status f8_progress_at(f8_progress_phase *p, int64_t done, const char *item, f8_diag *diag);
/* Report the same again, if that was a tenth of a second ago. NULL: nobody listens. */
f8_status f8_progress_within(f8_progress_phase *p, f8_diag *diag);

#endif
