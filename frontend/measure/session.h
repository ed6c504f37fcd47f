/* Measuring GEMMs in one process, and keeping the runs in the tuning database. Internal to
 * frontend/.
 *
 *     session.c   a session: where it measures, what came before, what is chosen
 *     keep.c      earlier runs and new ones in the database, and what is chosen
 *     turns.c     the ways of one GEMM, in turns */
#ifndef F8_MEASURE_SESSION_H
#define F8_MEASURE_SESSION_H

#include "frontend/measure/machine.h"
#include "frontend/measure/operands.h"
#include "frontend/measure/peer.h"
#include "frontend/tune/gemms.h"
#include "frontend/tune/tune.h"
#include "ir/base/clock.h"

/* How to measure. */
typedef struct f8_measure_how {
    const fp8c_compile_options *compile; /* target, threads and device count */
    const char *database;                /* NULL: the context's */
    const char *command, *commit;        /* of the call and its program, for the records */
    f8_inputs inputs;
    uint64_t seed; /* of operands */
    bool cold, warm;
    int32_t runs;    /* of a way in this process, 1 to TUNE_RUNS; 0: 7 */
    bool same_bits;  /* leave out algorithms that change bits */
    bool peers;      /* measure other libraries, too */
    int32_t ordinal; /* of this process among those of the call, from 1 on. A way that the database
                        has from so many processes is not measured again */
    int64_t since;   /* seconds since 1970: older runs of the database do not count; 0: all do */
    double seconds;  /* > 0: begin nothing after so long */
} f8_measure_how;

typedef struct f8_measure_session {
    fp8c_context *ctx;
    f8_measure_how how;
    fp8c_compile_options compile;
    fp8c_program *probe; /* a small program of the target, to ask about its machine */
    f8_peers *peers;     /* NULL: none are wanted */
    f8_measure_set *set; /* the caller's: what came of it */
    f8_measure_process process;
    f8_progress_phase progress;
    int64_t done;  /* problems */
    bool measured; /* a way had a turn: not all was known */
    double until;  /* f8_seconds_now() when the time is up; 0: never */
} f8_measure_session;

/* ---- session.c ---- */

/* Begin: say where it measures, and what the machine can do. `problems`: how many there will be,
 * for the progress. After a failure there is nothing to end. FP8C_ERR_UNSUPPORTED: no device here
 * runs the target. */
fp8c_status f8_measure_open(fp8c_context *ctx, const f8_measure_how *how, int64_t problems,
                            f8_measure_set *set, f8_measure_session *out);
/* Measure a GEMM, add it to the set with the runs that the database has from before, choose, and
 * keep all of it. What the target or the machine lacks is a result, and no failure, and so is time
 * that is up. */
fp8c_status f8_measure_gemm(f8_measure_session *s, const f8_tune_gemm *g);
/* End: see again what the machine can do, and add the process to the set. `ok`: whether all went
 * well; if not, only free what there is. */
fp8c_status f8_measure_close(f8_measure_session *s, bool ok);
static inline bool f8_measure_late(const f8_measure_session *s)
{
    return s->until > 0 && f8_seconds_now() > s->until;
}

/* ---- keep.c ---- */

/* Measure the ways of t's only problem, add them to the set with earlier runs, choose, and keep
 * what is new. copies: the products in t's module. */
f8_status f8_measure_ways(f8_measure_session *s, const f8_tune_gemm *g,
                          const f8_measure_problem *problem, fp8c_tuning *t, int copies, bool cold,
                          f8_diag *diag);
/* Keep what is known of this process. */
f8_status f8_measure_keep_process(f8_measure_session *s, f8_diag *diag);

/* ---- turns.c ---- */

/* The number of processes that a way has runs from already. */
typedef size_t f8_measure_known(void *user, const char *candidate);

/* Measure the ways of t's only problem in turns, but for those that are known from as many
 * processes as how.ordinal says; the model's way is measured beside any other. Ways that could not
 * run say why. `problem` of the measurements is left alone; texts and runs lie in the set's arena.
 * copies: as the module of t has. *n is set also after a failure. */
enum { F8_MEASURE_WAYS = TUNE_CANDIDATES + 8, F8_MEASURE_MOST_COPIES = 8 };
f8_status f8_measure_turns(f8_measure_session *s, const f8_tune_gemm *g, fp8c_tuning *t, int copies,
                           bool cold, f8_measure_known *known, void *user,
                           f8_measurement ways[F8_MEASURE_WAYS], size_t *n, f8_diag *diag);

#endif
