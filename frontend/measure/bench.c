/* Operands and results of a GEMM that is measured: see bench.h. */
#include <string.h>

#include "frontend/measure/bench.h"

/* ---- memory ---- */

f8_status f8_bench_get(f8_bench *b, f8_bench_memory *m, int64_t bytes, f8_diag *diag)
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

static void give(f8_bench *b, f8_bench_memory *m)
{
    const f8_allocator *a = &b->s->ctx->allocator;
    if (m->at)
        a->free(a->user, m->at, m->bytes);
    *m = (f8_bench_memory){0};
}

void f8_bench_give_all(f8_bench *b)
{
    for (int side = 0; side < F8_BENCH_SIDES; side++)
        for (int i = 0; i < F8_BENCH_PORTS; i++)
            give(b, &b->port[side][i]);
    for (int c = 0; c < F8_MEASURE_MOST_COPIES; c++) {
        for (int side = 0; side < F8_BENCH_SIDES; side++) {
            give(b, &b->decoded[0][c][side]);
            give(b, &b->decoded[1][c][side]);
        }
        give(b, &b->result[c]);
    }
    give(b, &b->expected);
    give(b, &b->sweep);
}

/* ---- operands ---- */

const f8_plan_func *f8_bench_function(const f8_bench *b, const fp8c_program *p)
{
    return &p->now->plan.func[b->function];
}

/* The port "NAME.COPY" of the model's program; NULL: the GEMM has none. */
const f8_plan_port *f8_bench_port(const f8_bench *b, int side, const char *name, int copy,
                                  const f8_bench_memory **at)
{
    const f8_plan_func *f = f8_bench_function(b, b->t->base);
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

f8_status f8_bench_fill(f8_bench *b, f8_diag *diag)
{
    const f8_measure_how *how = &b->s->how;
    const f8_plan_func *f = f8_bench_function(b, b->t->base);
    for (int side = 0; side < F8_BENCH_SIDES; side++) {
        const f8_plan_port *port = side ? f->out : f->in;
        const uint32_t n = side ? f->n_out : f->n_in;
        if (n > F8_BENCH_PORTS)
            return f8_fail(diag, F8_ERR_INTERNAL, F8_NOWHERE, "%u ports of a GEMM", n);
        for (uint32_t i = 0; i < n; i++) {
            const f8_type *type = &port[i].type;
            F8_TRY(f8_bench_get(b, &b->port[side][i], f8_type_bytes(type), diag));
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
f8_status f8_bench_bind(f8_bench *b, fp8c_program *p, f8_diag *diag)
{
    const f8_plan_func *f = f8_bench_function(b, p);
    f8_instance *i = &p->now->instance;
    for (uint32_t k = 0; k < f->n_in; k++)
        F8_TRY(i->kind->bind(i, (uint32_t)b->function, FP8C_INPUT, k, b->port[0][k].at, diag));
    for (uint32_t k = 0; k < f->n_out; k++)
        F8_TRY(i->kind->bind(i, (uint32_t)b->function, FP8C_OUTPUT, k, b->port[1][k].at, diag));
    return F8_OK;
}

static f8_sums sums_of(const f8_bench *b)
{
    if (b->t->base->target->kind != F8_TARGET_CUDA)
        return F8_SUMS_F32;
    if (!f8_dtype_is_fp8(b->g->a))
        return F8_SUMS_CUT;
    return b->p->desc.fast_accumulate ? F8_SUMS_FAST : F8_SUMS_FP8;
}

/* The product of a copy, as its module has it. */
f8_product f8_bench_product(const f8_bench *b, int copy)
{
    const f8_tune_gemm *g = b->g;
    bool transposed[2];
    const f8_bench_memory *a, *w, *a_scale, *b_scale, *sum, *bias, *c;
    f8_tune_transposed(g, transposed);
    f8_bench_port(b, 0, "a", copy, &a);
    f8_bench_port(b, 0, "b", copy, &w);
    f8_bench_port(b, 0, "a_scale", copy, &a_scale);
    f8_bench_port(b, 0, "b_scale", copy, &b_scale);
    f8_bench_port(b, 0, "sum", copy, &sum);
    f8_bench_port(b, 0, "bias", copy, &bias);
    const f8_plan_port *result = f8_bench_port(b, 1, "c", copy, &c);
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
