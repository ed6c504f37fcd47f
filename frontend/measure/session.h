/* What the parts share that measure GEMMs in one process. Internal to this folder.
 *
 *     session.c   a session: where it measures, what came before, what is chosen
 *     keep.c      earlier runs and new ones in the database, and what is chosen
 *     turns.c     the ways of one GEMM, in turns
 *     answers.c   cuBLASLt's answers that are not deterministic, which take turns as peers */
#ifndef F8_MEASURE_SESSION_H
#define F8_MEASURE_SESSION_H

#include "frontend/measure/list.h"
#include "frontend/measure/machine.h"
#include "frontend/measure/operands.h"
#include "frontend/measure/peer.h"
#include "frontend/tune/tune.h"
#include "ir/base/clock.h"
#include "runtime/cuda/cublaslt.h"

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
    double caches; /* bytes that they hold; 0: not known */
} f8_measure_session;

/* Whether the time is up. */
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
enum {
    F8_MEASURE_WAYS = TUNE_CANDIDATES + F8_CUBLASLT_ANSWERS, /* CPUs: fewer than 8 peers */
    F8_MEASURE_MOST_COPIES = 8
};
f8_status f8_measure_turns(f8_measure_session *s, const f8_tune_gemm *g, fp8c_tuning *t, int copies,
                           bool cold, f8_measure_known *known, void *user,
                           f8_measurement ways[F8_MEASURE_WAYS], size_t *n, f8_diag *diag);

/* ---- answers.c ---- */

typedef struct f8_measure_answers {
    f8_cublaslt_config config[F8_CUBLASLT_ANSWERS];
    const char *name[F8_CUBLASLT_ANSWERS]; /* "cublaslt 66 tile 15 ... (not deterministic)", in the
                                              set's arena */
    int n; /* 0: there are none, the target is a CPU, or peers are not wanted */
} f8_measure_answers;

/* cuBLASLt's answers for t's only problem that are not deterministic. */
f8_status f8_measure_find_answers(const f8_measure_session *s, const fp8c_tuning *t,
                                  f8_measure_answers *out, f8_diag *diag);
/* Make this program, which was compiled to be measured, run an answer in all steps of a function
 * that are the problem. */
f8_status f8_measure_take_answer(const fp8c_program *p, const tune_problem *problem, int function,
                                 const f8_cublaslt_config *answer, f8_diag *diag);

#endif
