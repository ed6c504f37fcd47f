/* The ways of one GEMM, in turns: see session.h. All multiply the same operands, into the same
 * memory. In a cold turn a way multiplies each of several sets of operands once. These take more
 * memory than the caches have, or else the caches are swept before. In a warm turn it multiplies
 * one set twice, and the second time counts. A way that is a tenth slower than the model's after a
 * few runs gets no more. */
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "frontend/measure/session.h"
#include "runtime/base/pool.h"

enum { SIDES = 2, MOST_COPIES = F8_MEASURE_MOST_COPIES, MOST_PORTS = 6 * MOST_COPIES };

/* A way: a program, or a peer. cuBLASLt's answers are peers that have a program. */
typedef struct contestant {
    f8_measurement *m;
    fp8c_program *program;
    f8_peer_gemm *peer;
    f8_dtype dtype; /* of a peer's operands */
    bool retired;
    double sample[TUNE_RUNS + MOST_COPIES];
    size_t n;
} contestant;

/* Memory from the context's allocator. */
typedef struct memory {
    void *at;
    size_t bytes;
} memory;

typedef struct bench {
    f8_measure_session *s;
    const f8_tune_gemm *g;
    fp8c_tuning *t;
    const tune_problem *p;
    bool cold;
    int copies, function;
    memory port[SIDES][MOST_PORTS];        /* operands and results, in the order of ports */
    memory decoded[2][MOST_COPIES][SIDES]; /* f32, bf16: a peer's, of each copy */
    memory result[MOST_COPIES];            /* a peer's */
    memory expected, sweep;                /* expected: the model's result */
    contestant way[F8_MEASURE_WAYS];
    size_t n;
} bench;

/* ---- memory ---- */

static f8_status get(bench *b, memory *m, int64_t bytes, f8_diag *diag)
{
    const f8_allocator *a = &b->s->ctx->allocator;
    if (m->at)
        return F8_OK;
    m->bytes = (size_t)(bytes ? bytes : 1);
    m->at = a->alloc(a->user, m->bytes, 64);
    return m->at ? F8_OK
                 : f8_fail(diag, F8_ERR_MEMORY, F8_NOWHERE,
                           "no memory for operands of a GEMM (%zu bytes)", m->bytes);
}

static void give(bench *b, memory *m)
{
    const f8_allocator *a = &b->s->ctx->allocator;
    if (m->at)
        a->free(a->user, m->at, m->bytes);
    *m = (memory){0};
}

static void give_all(bench *b)
{
    for (int side = 0; side < SIDES; side++)
        for (int i = 0; i < MOST_PORTS; i++)
            give(b, &b->port[side][i]);
    for (int c = 0; c < MOST_COPIES; c++) {
        for (int side = 0; side < SIDES; side++) {
            give(b, &b->decoded[0][c][side]);
            give(b, &b->decoded[1][c][side]);
        }
        give(b, &b->result[c]);
    }
    give(b, &b->expected);
    give(b, &b->sweep);
}

/* ---- operands ---- */

static const f8_plan_func *function_of(const bench *b, const fp8c_program *p)
{
    return &p->now->plan.func[b->function];
}

/* The port "NAME.COPY" of the model's program; NULL: the GEMM has none. */
static const f8_plan_port *port_of(const bench *b, int side, const char *name, int copy,
                                   const memory **at)
{
    const f8_plan_func *f = function_of(b, b->t->base);
    const f8_plan_port *port = side ? f->out : f->in;
    const uint32_t n = side ? f->n_out : f->n_in;
    const size_t length = strlen(name);
    for (uint32_t i = 0; i < n; i++)
        if (!strncmp(port[i].name, name, length) && port[i].name[length] == '.' &&
            port[i].name[length + 1] == '0' + copy) {
            *at = &b->port[side][i];
            return &port[i];
        }
    *at = NULL;
    return NULL;
}

static f8_status fill(bench *b, f8_diag *diag)
{
    const f8_measure_how *how = &b->s->how;
    const f8_plan_func *f = function_of(b, b->t->base);
    for (int side = 0; side < SIDES; side++) {
        const f8_plan_port *port = side ? f->out : f->in;
        const uint32_t n = side ? f->n_out : f->n_in;
        if (n > MOST_PORTS)
            return f8_fail(diag, F8_ERR_INTERNAL, F8_NOWHERE, "%u ports of a GEMM", n);
        for (uint32_t i = 0; i < n; i++) {
            const f8_type *type = &port[i].type;
            F8_TRY(get(b, &b->port[side][i], f8_type_bytes(type), diag));
            void *to = b->port[side][i].at;
            const int64_t elements = f8_type_elements(type);
            if (side)
                memset(to, 0, b->port[side][i].bytes);
            else if (!strncmp(port[i].name, "a_scale", 7) || !strncmp(port[i].name, "b_scale", 7))
                f8_operand_fill_scales(how->inputs, *port[i].name == 'a' ? b->g->a : b->g->b,
                                       type->dtype, how->seed + i, to, elements);
            else
                f8_operand_fill(how->inputs, type->dtype, how->seed + i, to, elements);
        }
    }
    return F8_OK;
}

/* All programs are of one module: they have the same ports in the same order. */
static f8_status bind(bench *b, fp8c_program *p, f8_diag *diag)
{
    const f8_plan_func *f = function_of(b, p);
    f8_instance *i = &p->now->instance;
    for (uint32_t k = 0; k < f->n_in; k++)
        F8_TRY(i->kind->bind(i, (uint32_t)b->function, FP8C_INPUT, k, b->port[0][k].at, diag));
    for (uint32_t k = 0; k < f->n_out; k++)
        F8_TRY(i->kind->bind(i, (uint32_t)b->function, FP8C_OUTPUT, k, b->port[1][k].at, diag));
    return F8_OK;
}

static f8_sums sums_of(const bench *b)
{
    if (b->t->base->target->kind != F8_TARGET_CUDA)
        return F8_SUMS_F32;
    if (!f8_dtype_is_fp8(b->g->a))
        return F8_SUMS_CUT;
    return b->p->desc.fast_accumulate ? F8_SUMS_FAST : F8_SUMS_FP8;
}

/* The product of a copy, as its module has it. */
static f8_product product_of(const bench *b, int copy)
{
    const f8_tune_gemm *g = b->g;
    bool transposed[2];
    const memory *a, *w, *a_scale, *b_scale, *sum, *bias, *c;
    f8_tune_transposed(g, transposed);
    port_of(b, 0, "a", copy, &a);
    port_of(b, 0, "b", copy, &w);
    port_of(b, 0, "a_scale", copy, &a_scale);
    port_of(b, 0, "b_scale", copy, &b_scale);
    port_of(b, 0, "sum", copy, &sum);
    port_of(b, 0, "bias", copy, &bias);
    const f8_plan_port *result = port_of(b, 1, "c", copy, &c);
    return (f8_product){.m = g->m,
                        .n = g->n,
                        .k = g->k,
                        .a = g->a,
                        .b = g->b,
                        .c = result->type.dtype,
                        .trans_a = transposed[0],
                        .trans_b = transposed[1],
                        .a_data = a->at,
                        .b_data = w->at,
                        .grain_a = f8_tune_gemm_grain(g, 0),
                        .grain_b = f8_tune_gemm_grain(g, 1),
                        .scale = g->how[F8_TUNE_SCALING] == F8_TUNE_MX ? F8_E8M0 : F8_F32,
                        .a_scale = a_scale ? a_scale->at : NULL,
                        .b_scale = b_scale ? b_scale->at : NULL,
                        .bias = bias ? bias->at : NULL,
                        .sum = sum ? sum->at : NULL,
                        .sums = sums_of(b)};
}

/* ---- running a way ---- */

/* What the program has spent on each of its products so far. Returns how many it has. */
static int spent(const bench *b, const fp8c_program *p, double seconds[MOST_COPIES])
{
    const f8_plan *plan = &p->now->plan;
    const f8_instance *instance = &p->now->instance;
    const f8_plan_func *f = function_of(b, p);
    int n = 0;
    for (uint32_t i = 0; i < f->n_steps; i++)
        for (uint32_t k = 0; k < f->step[i].n_phases + 1 && n < MOST_COPIES; k++) {
            const f8_step *s = &f->step[i];
            const uint32_t choice = k < s->n_phases ? s->phase[k].choice : s->choice;
            if (choice && !strcmp(plan->choice[choice - 1].problem, b->p->text))
                seconds[n++] = f8_tune_step_seconds(instance, (uint32_t)b->function, i,
                                                    k < s->n_phases ? (int)k : -1);
        }
    return n;
}

/* Run a program once; out has the seconds of each product, *n says how many. */
static f8_status run_program(const bench *b, fp8c_program *p, double out[MOST_COPIES], int *n,
                             f8_diag *diag)
{
    double before[MOST_COPIES];
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

static f8_status run_peer(const bench *b, const contestant *x, double out[MOST_COPIES], int *n,
                          f8_diag *diag)
{
    for (*n = 0; *n < b->copies; ++*n) {
        const memory *of = b->decoded[x->dtype == F8_BF16][*n];
        const double start = f8_seconds_now();
        F8_TRY(f8_peer_run(x->peer, of[0].at, of[1].at, b->result[*n].at, diag));
        out[*n] = f8_seconds_now() - start;
    }
    return F8_OK;
}

static f8_status run(const bench *b, const contestant *x, double out[MOST_COPIES], int *n,
                     f8_diag *diag)
{
    return x->peer ? run_peer(b, x, out, n, diag) : run_program(b, x->program, out, n, diag);
}

/* ---- the cache ---- */

enum { SWEPT = 64 << 10, THREAD_BYTES = 4 << 20 /* more than a core's own cache */ };

static void touch(void *user, int thread, int64_t begin, int64_t end)
{
    const memory *m = user;
    (void)thread;
    memset((char *)m->at + begin * SWEPT, 1, (size_t)(end - begin) * SWEPT);
}

static void sweep(bench *b)
{
    if (b->sweep.at)
        f8_pool_run(b->t->pool, touch, &b->sweep, (int64_t)(b->sweep.bytes / SWEPT));
}

/* The bytes that the caches of this machine don't hold. */
static double cold_bytes(const bench *b)
{
    const double shared = 2. * (double)sysconf(_SC_LEVEL3_CACHE_SIZE), most = 1 << 30,
                 own = (double)THREAD_BYTES * f8_pool_threads(b->t->pool);
    return fmin(most, fmax(F8_TUNE_COLD_BYTES, fmax(shared, own)));
}

/* ---- ways ---- */

static contestant *add_way(bench *b, f8_measurement *ways, const char *candidate,
                           f8_measure_kind kind)
{
    contestant *x = &b->way[b->n];
    *x = (contestant){.m = &ways[b->n]};
    b->n++;
    *x->m = (f8_measurement){.cache = b->cold ? "cold" : "warm",
                             .candidate = candidate,
                             .kind = kind,
                             .reason = "",
                             .unit = "",
                             .same_bits = F8_MEASURE_UNKNOWN,
                             .error = NAN,
                             .compile_seconds = NAN};
    return x;
}

static const char *operands_text(const bench *b, const char *format, f8_dtype x, f8_dtype y)
{
    return f8_arena_printf(&b->s->set->arena, format, f8_dtype_name(x), f8_dtype_name(y));
}

/* A failure of one way is a result, but for cancellation. */
static f8_status note(bench *b, contestant *x, f8_status status, f8_diag *diag)
{
    if (status == F8_OK || status == F8_ERR_CANCELLED)
        return status;
    x->m->state = F8_MEASURE_LACKING;
    x->m->reason = f8_arena_strdup(&b->s->set->arena, diag->text);
    x->retired = true;
    *diag = (f8_diag){0};
    return F8_OK;
}

/* Compile a way's program, by the candidate number `index`. */
static f8_status open_program(bench *b, contestant *x, int index, const f8_cublaslt_config *answer,
                              f8_diag *diag)
{
    fp8c_tuning *t = b->t;
    tune_problem *p = &t->problem[0];
    p->next = index;
    const f8_status status = f8_tune_compile(t, &x->program, diag);
    p->next = 0;
    if (status != F8_OK || !answer)
        return status;
    return f8_measure_take_answer(x->program, p, b->function, answer, diag);
}

/* Add a way of fp8c's, or as a peer an answer of cuBLASLt in the model's program. */
static f8_status add_program(bench *b, int index, const char *name,
                             const f8_cublaslt_config *answer, f8_measurement *ways, f8_diag *diag)
{
    contestant *x = add_way(b, ways, f8_arena_strdup(&b->s->set->arena, name),
                            answer  ? F8_MEASURE_PEER
                            : index ? F8_MEASURE_CANDIDATE
                                    : F8_MEASURE_MODEL);
    x->m->operands = operands_text(b, "%s x %s", b->g->a, b->g->b);
    const double start = f8_seconds_now();
    F8_TRY(note(b, x, open_program(b, x, index, answer, diag), diag));
    if (x->retired)
        return F8_OK;
    x->m->compile_seconds = f8_seconds_now() - start;
    const f8_instance *i = &x->program->now->instance;
    F8_TRY(i->kind->init(&x->program->now->instance, 1, NULL, diag));
    x->m->unit =
        f8_measure_unit(x->program, b->p->candidate[index].desc.algorithm, b->g->a, b->g->b);
    return bind(b, x->program, diag);
}

static f8_status add_candidate(bench *b, int index, f8_measurement *ways, f8_diag *diag)
{
    return add_program(b, index, b->p->candidate[index].text, NULL, ways, diag);
}

/* Decode the operands of all copies for peers of this dtype. bf16 and f32 are multiplied in place
 * of the program's: they are copied, too, so that every way has pages of its own. */
static f8_status decode(bench *b, f8_dtype dtype, f8_diag *diag)
{
    const int64_t elements[SIDES] = {b->g->m * b->g->k, b->g->k * b->g->n};
    for (int copy = 0; copy < b->copies; copy++) {
        memory *to = b->decoded[dtype == F8_BF16][copy];
        const f8_product p = product_of(b, copy);
        for (int side = 0; side < SIDES; side++) {
            if (to[side].at)
                continue;
            F8_TRY(get(b, &to[side], elements[side] * (int64_t)f8_dtype_size(dtype), diag));
            f8_product_decode(&p, side == 1, dtype, to[side].at);
        }
        F8_TRY(get(b, &b->result[copy], b->g->m * b->g->n * 4, diag));
        memset(b->result[copy].at, 0, b->result[copy].bytes);
    }
    return F8_OK;
}

/* A peer takes FP8 operands decoded, f32 and bf16 ones as they are. */
static f8_status add_peer(bench *b, int index, const char *name, f8_dtype dtype,
                          f8_measurement *ways, f8_diag *diag)
{
    bool transposed[2];
    f8_tune_transposed(b->g, transposed);
    const f8_peer_product product = {.m = b->g->m,
                                     .n = b->g->n,
                                     .k = b->g->k,
                                     .trans_a = transposed[0],
                                     .trans_b = transposed[1],
                                     .accumulate =
                                         b->g->how[F8_TUNE_EPILOGUE] == F8_TUNE_ACCUMULATE};
    contestant *x = add_way(b, ways, f8_arena_strdup(&b->s->set->arena, name), F8_MEASURE_PEER);
    x->dtype = dtype;
    x->m->unit = f8_dtype_name(dtype);
    x->m->operands =
        operands_text(b, b->g->a == dtype ? "%s" : "%s, decoded from %s", dtype, b->g->a);
    const double start = f8_seconds_now();
    f8_status status = f8_peer_prepare(b->s->peers, index, &product, &x->peer, diag);
    x->m->compile_seconds = f8_seconds_now() - start;
    if (status == F8_OK)
        status = decode(b, dtype, diag);
    return note(b, x, status, diag);
}

/* Whether a peer of these operands multiplies the same numbers. */
static bool suits(const bench *b, f8_dtype dtype)
{
    return dtype == F8_F32 || b->g->a != F8_F32;
}

static f8_status add_ways(bench *b, f8_measure_known *known, void *user, f8_measurement *ways,
                          f8_diag *diag)
{
    const size_t enough = (size_t)b->s->how.ordinal;
    const int n = b->s->how.model_only ? 1 : b->p->n;
    const char *name;
    f8_dtype dtype;
    bool any = false;
    f8_measure_answers answers;
    F8_TRY(f8_measure_find_answers(b->s, b->t, &answers, diag));
    for (int i = 0; i < answers.n; i++)
        any |= known(user, answers.name[i]) < enough;
    for (int i = 1; i < n; i++)
        any |= known(user, b->p->candidate[i].text) < enough;
    for (int i = 0; b->s->peers && (name = f8_peers_way(b->s->peers, i, &dtype)); i++)
        any |= suits(b, dtype) && known(user, name) < enough;
    if (!any && known(user, "model") >= enough)
        return F8_OK;
    F8_TRY(add_candidate(b, 0, ways, diag)); /* what all others are compared with */
    for (int i = 1; i < n; i++)
        if (known(user, b->p->candidate[i].text) < enough)
            F8_TRY(add_candidate(b, i, ways, diag));
    for (int i = 0; i < answers.n; i++)
        if (b->n < F8_MEASURE_WAYS && known(user, answers.name[i]) < enough)
            F8_TRY(add_program(b, 0, answers.name[i], &answers.config[i], ways, diag));
    for (int i = 0; b->s->peers && (name = f8_peers_way(b->s->peers, i, &dtype)); i++)
        if (suits(b, dtype) && b->n < F8_MEASURE_WAYS && known(user, name) < enough)
            F8_TRY(add_peer(b, i, name, dtype, ways, diag));
    return F8_OK;
}

/* ---- turns ---- */

/* The first turn, which does not count: it warms pages, caches and clocks, and shows the bits. */
static f8_status try_way(bench *b, contestant *x, f8_diag *diag)
{
    const memory *c;
    double seconds[MOST_COPIES];
    int n;
    f8_product p = product_of(b, 0);
    const f8_plan_port *port = port_of(b, 1, "c", 0, &c);
    if (x->peer)
        memset(b->result[0].at, 0, b->result[0].bytes);
    F8_TRY(run(b, x, seconds, &n, diag));
    if (x->peer) {
        const memory *of = b->decoded[x->dtype == F8_BF16][0];
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
        F8_TRY(get(b, &b->expected, (int64_t)bytes, diag));
        memcpy(b->expected.at, c->at, bytes);
    }
    if (x->m->kind != F8_MEASURE_PEER)
        x->m->same_bits = memcmp(b->expected.at, c->at, bytes) ? F8_MEASURE_NO : F8_MEASURE_YES;
    return F8_OK;
}

static f8_status turn(bench *b, contestant *x, f8_diag *diag)
{
    double seconds[MOST_COPIES];
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
 * that is half slower after one. */
static bool is_hopeless(const contestant *x, const contestant *model)
{
    if (x->m->kind != F8_MEASURE_CANDIDATE || !x->n || !model->n)
        return false;
    return f8_tune_least(x->sample, (int)x->n) >
           (x->n < TUNE_WORTH_RUNS ? 1.5 : 1.1) * f8_tune_least(model->sample, (int)model->n);
}

/* Try each way, and give it a turn at once: where the time is short, some have runs. */
static f8_status first_round(bench *b, f8_diag *diag)
{
    f8_measure_session *s = b->s;
    for (size_t i = 0; i < b->n && !(i && (b->way[0].retired || f8_measure_late(s))); i++) {
        contestant *x = &b->way[i];
        F8_TRY(f8_progress_at(&s->progress, s->done, x->m->candidate, diag));
        if (!x->retired)
            F8_TRY(note(b, x, try_way(b, x, diag), diag));
        if (!x->retired)
            F8_TRY(note(b, x, turn(b, x, diag), diag));
        x->retired |= is_hopeless(x, &b->way[0]);
    }
    return F8_OK;
}

static f8_status take_turns(bench *b, f8_diag *diag)
{
    const size_t runs = (size_t)b->s->how.runs;
    f8_measure_session *s = b->s;
    F8_TRY(first_round(b, diag));
    if (!b->n || b->way[0].retired) /* there is nothing to compare with */
        return F8_OK;
    for (size_t round = 1; b->way[0].n < runs; round++)
        for (size_t k = 0; k < b->n; k++) { /* the first one of a round is another each time */
            contestant *x = &b->way[(k + round) % b->n];
            if (x->retired || x->n >= runs)
                continue;
            if (f8_measure_late(s))
                return F8_OK;
            F8_TRY(f8_progress_at(&s->progress, s->done, x->m->candidate, diag));
            F8_TRY(note(b, x, turn(b, x, diag), diag));
            x->retired |= is_hopeless(x, &b->way[0]);
        }
    return F8_OK;
}

/* ---- the whole ---- */

static f8_status finish(bench *b, f8_diag *diag)
{
    f8_arena *arena = &b->s->set->arena;
    for (size_t i = 0; i < b->n; i++) {
        contestant *x = &b->way[i];
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

static f8_status measure(bench *b, f8_measure_known *known, void *user, f8_measurement *ways,
                         f8_diag *diag)
{
    F8_TRY(fill(b, diag));
    F8_TRY(add_ways(b, known, user, ways, diag));
    const double all = f8_tune_gemm_bytes(b->g) * b->copies;
    if (b->cold && b->n && all < cold_bytes(b) && b->t->base->target->kind == F8_TARGET_CPU)
        F8_TRY(get(b, &b->sweep, (int64_t)cold_bytes(b) / SWEPT * SWEPT, diag));
    F8_TRY(take_turns(b, diag));
    return finish(b, diag);
}

f8_status f8_measure_turns(f8_measure_session *s, const f8_tune_gemm *g, fp8c_tuning *t, int copies,
                           bool cold, f8_measure_known *known, void *user,
                           f8_measurement ways[F8_MEASURE_WAYS], size_t *n, f8_diag *diag)
{
    const f8_allocator *a = &s->ctx->allocator;
    bench *b = a->alloc(a->user, sizeof *b, 64);
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
    give_all(b);
    a->free(a->user, b, sizeof *b);
    return status;
}
