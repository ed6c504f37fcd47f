/* The ways of one GEMM, in turns: see session.h. All multiply the same operands, into the same
 * memory. In a cold turn a way multiplies each of several sets of operands once. These take more
 * memory than the caches have, or else the caches are swept before. In a warm turn it multiplies
 * one set twice, and the second time counts. */
#include <math.h>
#include <string.h>

#include "frontend/measure/bench.h"
#include "runtime/base/pool.h"

/* ---- running a way ---- */

/* What the program has spent on each of its products so far. Returns how many it has. */
static int spent(const f8_bench *b, const fp8c_program *p, double seconds[F8_MEASURE_MOST_COPIES])
{
    const f8_plan *plan = &p->now->plan;
    const f8_instance *instance = &p->now->instance;
    const f8_plan_func *f = f8_bench_function(b, p);
    int n = 0;
    for (uint32_t i = 0; i < f->n_steps; i++)
        for (uint32_t k = 0; k < f->step[i].n_phases + 1 && n < F8_MEASURE_MOST_COPIES; k++) {
            const f8_step *s = &f->step[i];
            const uint32_t choice = k < s->n_phases ? s->phase[k].choice : s->choice;
            if (choice && !strcmp(plan->choice[choice - 1].problem, b->p->text))
                seconds[n++] = f8_tune_step_seconds(instance, (uint32_t)b->function, i,
                                                    k < s->n_phases ? (int)k : -1);
        }
    return n;
}

/* Run a program once; out has the seconds of each product, *n says how many. */
static f8_status run_program(const f8_bench *b, fp8c_program *p, double out[F8_MEASURE_MOST_COPIES],
                             int *n, f8_diag *diag)
{
    double before[F8_MEASURE_MOST_COPIES];
    f8_instance *i = &p->now->instance;
    spent(b, p, before);
    F8_TRY(i->kind->run(i, (uint32_t)b->function, diag));
    F8_TRY(i->kind->wait(i, diag));
    *n = spent(b, p, out);
    if (!*n)
        return f8_fail(diag, F8_ERR_INTERNAL, F8_NOWHERE, "no step of the program is the GEMM");
    for (int k = 0; k < *n; k++)
        out[k] -= before[k];
    return F8_OK;
}

static f8_status run_peer(const f8_bench *b, const f8_contestant *x,
                          double out[F8_MEASURE_MOST_COPIES], int *n, f8_diag *diag)
{
    for (*n = 0; *n < b->copies; ++*n) {
        const f8_bench_memory *of = b->decoded[x->dtype == F8_BF16][*n];
        const double start = f8_seconds_now();
        F8_TRY(f8_peer_run(x->peer, of[0].at, of[1].at, b->result[*n].at, diag));
        out[*n] = f8_seconds_now() - start;
    }
    return F8_OK;
}

static f8_status run(const f8_bench *b, const f8_contestant *x, double out[F8_MEASURE_MOST_COPIES],
                     int *n, f8_diag *diag)
{
    return x->peer ? run_peer(b, x, out, n, diag) : run_program(b, x->program, out, n, diag);
}

/* ---- the cache ---- */

enum { SWEPT = 64 << 10, THREAD_BYTES = 4 << 20 /* more than a core's own cache */ };

static void touch(void *user, int thread, int64_t begin, int64_t end)
{
    const f8_bench_memory *m = user;
    (void)thread;
    memset((char *)m->at + begin * SWEPT, 1, (size_t)(end - begin) * SWEPT);
}

static void sweep(f8_bench *b)
{
    if (b->sweep.at)
        f8_pool_run(b->t->pool, touch, &b->sweep, (int64_t)(b->sweep.bytes / SWEPT));
}

/* So many bytes that the caches of this machine don't hold them. */
static double cold_bytes(const f8_bench *b)
{
    const double shared = 2 * b->s->caches, most = 1 << 30,
                 own = (double)THREAD_BYTES * f8_pool_threads(b->t->pool);
    return fmin(most, fmax(F8_TUNE_COLD_BYTES, fmax(shared, own)));
}

/* ---- turns ---- */

/* The first turn, which does not count: it warms pages, caches and clocks, and shows the bits. */
static f8_status try_way(f8_bench *b, f8_contestant *x, f8_diag *diag)
{
    const f8_bench_memory *c;
    double seconds[F8_MEASURE_MOST_COPIES];
    int n;
    f8_product p = f8_bench_product(b, 0);
    const f8_plan_port *port = f8_bench_port(b, 1, "c", 0, &c);
    if (x->peer)
        memset(b->result[0].at, 0, b->result[0].bytes);
    F8_TRY(run(b, x, seconds, &n, diag));
    if (x->peer) {
        const f8_bench_memory *of = b->decoded[x->dtype == F8_BF16][0];
        p = (f8_product){.m = p.m,
                         .n = p.n,
                         .k = p.k,
                         .a = x->dtype,
                         .b = x->dtype,
                         .c = F8_F32,
                         .trans_a = p.trans_a,
                         .trans_b = p.trans_b,
                         .a_data = of[0].at,
                         .b_data = of[1].at};
        x->m->error = f8_product_error(&p, b->result[0].at, b->s->how.seed);
        return F8_OK;
    }
    const size_t bytes = (size_t)f8_type_bytes(&port->type);
    x->m->error = f8_product_error(&p, c->at, b->s->how.seed);
    if (x->m->kind == F8_MEASURE_MODEL) {
        F8_TRY(f8_bench_get(b, &b->expected, (int64_t)bytes, diag));
        memcpy(b->expected.at, c->at, bytes);
    }
    if (x->m->kind != F8_MEASURE_PEER)
        x->m->same_bits = memcmp(b->expected.at, c->at, bytes) ? F8_MEASURE_NO : F8_MEASURE_YES;
    return F8_OK;
}

static f8_status turn(f8_bench *b, f8_contestant *x, f8_diag *diag)
{
    double seconds[F8_MEASURE_MOST_COPIES];
    int n;
    if (b->s->peers)
        f8_peers_rest();
    if (b->cold)
        sweep(b);
    else
        F8_TRY(run(b, x, seconds, &n, diag));
    F8_TRY(run(b, x, seconds, &n, diag));
    for (int i = 0; i < n && x->n < sizeof x->sample / sizeof *x->sample; i++)
        x->sample[x->n++] = seconds[i];
    return F8_OK;
}

/* A candidate that is a tenth slower than the model's way after a few runs gets no more, nor one
 * that is half slower after fewer. */
static bool is_hopeless(const f8_contestant *x, const f8_contestant *model)
{
    if (x->m->kind != F8_MEASURE_CANDIDATE || !x->n || !model->n)
        return false;
    return f8_tune_least(x->sample, (int)x->n) >
           (x->n < TUNE_WORTH_RUNS ? 1.5 : 1.1) * f8_tune_least(model->sample, (int)model->n);
}

/* Try each way, and give it a turn at once: where the time is short, some have runs. */
static f8_status first_round(f8_bench *b, f8_diag *diag)
{
    f8_measure_session *s = b->s;
    for (size_t i = 0; i < b->n && !(i && (b->way[0].retired || f8_measure_late(s))); i++) {
        f8_contestant *x = &b->way[i];
        F8_TRY(f8_progress_at(&s->progress, s->done, x->m->candidate, diag));
        if (!x->retired)
            F8_TRY(f8_bench_note(b, x, try_way(b, x, diag), diag));
        if (!x->retired)
            F8_TRY(f8_bench_note(b, x, turn(b, x, diag), diag));
        x->retired |= is_hopeless(x, &b->way[0]);
    }
    return F8_OK;
}

static f8_status take_turns(f8_bench *b, f8_diag *diag)
{
    const size_t runs = (size_t)b->s->how.runs;
    f8_measure_session *s = b->s;
    F8_TRY(first_round(b, diag));
    if (!b->n || b->way[0].retired) /* there is nothing to compare with */
        return F8_OK;
    for (size_t round = 1; b->way[0].n < runs; round++)
        for (size_t k = 0; k < b->n; k++) { /* the first one of a round is another each time */
            f8_contestant *x = &b->way[(k + round) % b->n];
            if (x->retired || x->n >= runs)
                continue;
            if (f8_measure_late(s))
                return F8_OK;
            F8_TRY(f8_progress_at(&s->progress, s->done, x->m->candidate, diag));
            F8_TRY(f8_bench_note(b, x, turn(b, x, diag), diag));
            x->retired |= is_hopeless(x, &b->way[0]);
        }
    return F8_OK;
}

/* ---- the whole ---- */

static f8_status finish(f8_bench *b, f8_diag *diag)
{
    f8_arena *arena = &b->s->set->arena;
    for (size_t i = 0; i < b->n; i++) {
        f8_contestant *x = &b->way[i];
        f8_measurement *m = x->m;
        if (m->state == F8_MEASURE_LACKING)
            continue;
        m->state = x->n ? F8_MEASURE_TIMED : F8_MEASURE_LATE;
        if (!x->n)
            continue;
        double *seconds = F8_NEW_ARRAY(arena, double, x->n);
        m->process = F8_NEW(arena, f8_measure_runs);
        if (!seconds || !m->process)
            return f8_arena_status(arena, diag);
        memcpy(seconds, x->sample, x->n * sizeof *seconds);
        *m->process = (f8_measure_runs){b->s->process.id, seconds, x->n};
        m->n_processes = 1;
    }
    return F8_OK;
}

static f8_status measure(f8_bench *b, f8_measure_known *known, void *user, f8_measurement *ways,
                         f8_diag *diag)
{
    F8_TRY(f8_bench_fill(b, diag));
    F8_TRY(f8_bench_add_ways(b, known, user, ways, diag));
    const double all = f8_tune_gemm_bytes(b->g) * b->copies;
    if (b->cold && b->n && all < cold_bytes(b) && b->t->base->target->kind == F8_TARGET_CPU)
        F8_TRY(f8_bench_get(b, &b->sweep, (int64_t)cold_bytes(b) / SWEPT * SWEPT, diag));
    F8_TRY(take_turns(b, diag));
    return finish(b, diag);
}

f8_status f8_measure_turns(f8_measure_session *s, const f8_tune_gemm *g, fp8c_tuning *t, int copies,
                           bool cold, f8_measure_known *known, void *user,
                           f8_measurement ways[F8_MEASURE_WAYS], size_t *n, f8_diag *diag)
{
    const f8_allocator *a = &s->ctx->allocator;
    f8_bench *b = a->alloc(a->user, sizeof *b, 64);
    if (!b)
        return f8_fail(diag, F8_ERR_MEMORY, F8_NOWHERE, "no memory to measure a GEMM");
    memset(b, 0, sizeof *b);
    b->s = s;
    b->g = g;
    b->t = t;
    b->p = &t->problem[0];
    b->cold = cold;
    b->copies = copies;
    b->function = t->function[0];
    const f8_status status = measure(b, known, user, ways, diag);
    *n = b->n;
    for (size_t i = 0; i < b->n; i++) {
        fp8c_program_destroy(b->way[i].program);
        f8_peer_release(b->way[i].peer);
    }
    f8_bench_give_all(b);
    a->free(a->user, b, sizeof *b);
    return status;
}
