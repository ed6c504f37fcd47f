/* Making the ways of a GEMM ready: see bench.h. */
#include <math.h>
#include <string.h>

#include "frontend/measure/bench.h"

/* ---- ways ---- */

static f8_contestant *add_way(f8_bench *b, f8_measurement *ways, const char *candidate,
                              f8_measure_kind kind)
{
    f8_contestant *x = &b->way[b->n];
    *x = (f8_contestant){.m = &ways[b->n]};
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

static const char *operands_text(const f8_bench *b, const char *format, f8_dtype x, f8_dtype y)
{
    return f8_arena_printf(&b->s->set->arena, format, f8_dtype_name(x), f8_dtype_name(y));
}

/* A failure of one way is a result, but for cancellation. */
f8_status f8_bench_note(f8_bench *b, f8_contestant *x, f8_status status, f8_diag *diag)
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
static f8_status open_program(f8_bench *b, f8_contestant *x, int index,
                              const f8_cublaslt_config *answer, f8_diag *diag)
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
static f8_status add_program(f8_bench *b, int index, const char *name,
                             const f8_cublaslt_config *answer, f8_measurement *ways, f8_diag *diag)
{
    f8_contestant *x = add_way(b, ways, f8_arena_strdup(&b->s->set->arena, name),
                               answer  ? F8_MEASURE_PEER
                               : index ? F8_MEASURE_CANDIDATE
                                       : F8_MEASURE_MODEL);
    x->m->operands = operands_text(b, "%s x %s", b->g->a, b->g->b);
    const double start = f8_seconds_now();
    F8_TRY(f8_bench_note(b, x, open_program(b, x, index, answer, diag), diag));
    if (x->retired)
        return F8_OK;
    x->m->compile_seconds = f8_seconds_now() - start;
    const f8_instance *i = &x->program->now->instance;
    F8_TRY(i->kind->init(&x->program->now->instance, 1, NULL, diag));
    x->m->unit =
        f8_measure_unit(x->program, b->p->candidate[index].desc.algorithm, b->g->a, b->g->b);
    return f8_bench_bind(b, x->program, diag);
}

static f8_status add_candidate(f8_bench *b, int index, f8_measurement *ways, f8_diag *diag)
{
    return add_program(b, index, b->p->candidate[index].text, NULL, ways, diag);
}

/* Decode the operands of all copies for peers of this dtype. bf16 and f32 are multiplied in place
 * of the program's: they are copied, too, so that every way has pages of its own. */
static f8_status decode(f8_bench *b, f8_dtype dtype, f8_diag *diag)
{
    const int64_t elements[F8_BENCH_SIDES] = {b->g->m * b->g->k, b->g->k * b->g->n};
    for (int copy = 0; copy < b->copies; copy++) {
        f8_bench_memory *to = b->decoded[dtype == F8_BF16][copy];
        const f8_product p = f8_bench_product(b, copy);
        for (int side = 0; side < F8_BENCH_SIDES; side++) {
            if (to[side].at)
                continue;
            F8_TRY(
                f8_bench_get(b, &to[side], elements[side] * (int64_t)f8_dtype_size(dtype), diag));
            f8_product_decode(&p, side == 1, dtype, to[side].at);
        }
        F8_TRY(f8_bench_get(b, &b->result[copy], b->g->m * b->g->n * 4, diag));
        memset(b->result[copy].at, 0, b->result[copy].bytes);
    }
    return F8_OK;
}

/* A peer takes FP8 operands decoded, f32 and bf16 ones as they are. */
static f8_status add_peer(f8_bench *b, int index, const char *name, f8_dtype dtype,
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
    f8_contestant *x = add_way(b, ways, f8_arena_strdup(&b->s->set->arena, name), F8_MEASURE_PEER);
    x->dtype = dtype;
    x->m->unit = f8_dtype_name(dtype);
    x->m->operands =
        operands_text(b, b->g->a == dtype ? "%s" : "%s, decoded from %s", dtype, b->g->a);
    const double start = f8_seconds_now();
    f8_status status = f8_peer_prepare(b->s->peers, index, &product, &x->peer, diag);
    x->m->compile_seconds = f8_seconds_now() - start;
    if (status == F8_OK)
        status = decode(b, dtype, diag);
    return f8_bench_note(b, x, status, diag);
}

/* Whether a peer of these operands multiplies the same numbers. */
static bool suits(const f8_bench *b, f8_dtype dtype)
{
    return dtype == F8_F32 || b->g->a != F8_F32;
}

f8_status f8_bench_add_ways(f8_bench *b, f8_measure_known *known, void *user, f8_measurement *ways,
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
