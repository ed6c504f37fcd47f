/* See rank_case.h. */
#include "frontend/fp8c_diagnose.h"
#include "frontend/fp8c_ranks.h"
#include "tests/shared/api/rank_case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/shared/api/rank_gpu.h"
#include "tests/shared/suite.h"

/* A rank's context, module and program. */
typedef struct one_rank {
    rank_case *c;
    int rank;
    fp8c_context *ctx;
    fp8c_module *module;
    fp8c_program *program;
    fp8c_nccl *nccl; /* target "cuda" */
    fp8c_comm comm;
} one_rank;

static void keep(one_rank *r, const char *function, const char *name, const fp8c_type *type,
                 int64_t rows, const void *data)
{
    rank_case *c = r->c;
    char full[256];
    const size_t bytes = (size_t)fp8c_type_bytes(type);
    snprintf(full, sizeof full, "%s%s%s", function, *function ? ":" : "", name);
    if (c->n[r->rank] == RANK_VALUES || !data)
        abort();
    rank_value *v = &c->value[r->rank][c->n[r->rank]++];
    *v = (rank_value){strdup(full), *type, rows, malloc(bytes)};
    memcpy(v->data, data, bytes);
}

static const char *op_of(const fp8c_step *s)
{
    static const char *const ops[] = {"all_gather", "all_to_all", "all_slice", "all_reduce",
                                      "reduce_scatter"};
    static const char *const kinds[] = {"kernel", "gemm", "copy", "attention", "wait"};
    if (s->collective.op)
        for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
            if (!strcmp(s->collective.op, ops[i]))
                return ops[i];
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(s->kind, kinds[i]))
            return kinds[i];
    return "another";
}

static void keep_steps(one_rank *r, const char *name)
{
    rank_case *c = r->c;
    const int function = fp8c_program_function(r->program, name);
    fp8c_step s;
    char full[256];
    for (int i = 0; fp8c_program_step(r->program, function, i, &s) == FP8C_OK; i++) {
        if (c->n_steps[r->rank] == RANK_STEPS)
            abort();
        snprintf(full, sizeof full, "%s:%s", name, s.name);
        c->step[r->rank][c->n_steps[r->rank]++] =
            (rank_step){strdup(full), op_of(&s), s.bytes_read, s.seconds};
    }
}

static void keep_all(one_rank *r)
{
    static const char *const functions[] = {"eval", "micro_step", "update"};
    fp8c_variable v;
    fp8c_port p;
    fp8c_info *info = &r->c->info[r->rank];
    *info = (fp8c_info){.struct_size = sizeof *info};
    fp8c_program_info(r->program, info);
    for (int i = 0; fp8c_program_variable(r->program, i, &v) == FP8C_OK; i++) {
        void *data = malloc((size_t)fp8c_type_bytes(&v.type) + 1);
        if (!data || fp8c_program_read(r->program, i, data) != FP8C_OK)
            abort();
        keep(r, "", v.name, &v.type, v.rows, data);
        free(data);
    }
    for (int f = 1; f < 3 && r->c->options.profile; f++)
        keep_steps(r, functions[f]);
    for (int f = 0; f < 3; f++) {
        const int function = fp8c_program_function(r->program, functions[f]);
        for (int i = 0; function >= 0 &&
                        fp8c_program_port(r->program, function, FP8C_OUTPUT, i, &p) == FP8C_OK;
             i++)
            if (p.variable < 0)
                keep(r, functions[f], p.name, &p.type, 0,
                     fp8c_program_buffer(r->program, function, FP8C_OUTPUT, i));
    }
}

static bool run_function(one_rank *r, const char *name, int batch)
{
    const int function = fp8c_program_function(r->program, name);
    fp8c_port p;
    for (int i = 0; fp8c_program_port(r->program, function, FP8C_INPUT, i, &p) == FP8C_OK; i++)
        if (p.variable < 0)
            r->c->fill(r->c, r->rank, batch, p.name, &p.type,
                       fp8c_program_buffer(r->program, function, FP8C_INPUT, i));
    return fp8c_program_run(r->program, function) == FP8C_OK;
}

static bool run_all(one_rank *r)
{
    const rank_case *c = r->c;
    const int accumulate = c->accumulate ? c->accumulate : 1;
    int batch = 0;
    if (c->options.inference)
        return run_function(r, "eval", 0);
    for (int s = 0; s < (c->steps ? c->steps : 1); s++) {
        for (int i = 0; i < accumulate; i++)
            if (!run_function(r, "micro_step", batch++))
                return false;
        if (c->steps && !run_function(r, "update", 0))
            return false;
    }
    return true;
}

/* On a GPU a rank joins the others by NCCL. */
static bool join(one_rank *r, const fp8c_comm *comm, fp8c_compile_options *o)
{
    r->comm = *comm;
    o->comm = &r->comm;
    if (!o->target || strcmp(o->target, "cuda"))
        return true;
    o->device = comm->rank;
    return rank_gpu_join(r->ctx, comm, 0, &r->nccl, &r->comm) == FP8C_OK;
}

static void body(const fp8c_comm *comm, void *user)
{
    rank_case *c = user;
    one_rank r = {.c = c, .rank = comm->rank};
    size_t dims = 0;
    while (dims < sizeof c->dim / sizeof *c->dim && c->dim[dims].name)
        dims++;
    const bool other = c->last && r.rank == c->ranks - 1;
    fp8c_compile_options options = other ? *c->last : c->options;
    options.struct_size = sizeof options;
    options.threads = options.threads ? options.threads : 1;
    const bool ok = fp8c_context_create(NULL, &r.ctx) == FP8C_OK && join(&r, comm, &options) &&
                    fp8c_module_parse(r.ctx, c->text, strlen(c->text), "ranks.f8", c->dim, dims,
                                      &r.module) == FP8C_OK &&
                    fp8c_compile(r.module, &options, &r.program) == FP8C_OK &&
                    fp8c_program_initialize(r.program, 1) == FP8C_OK && run_all(&r);
    if (!ok) {
        c->failed[r.rank] = strdup(fp8c_context_message(r.ctx));
        ranks_leave(comm);
        if (r.nccl)
            fp8c_nccl_abort(r.nccl);
    } else {
        if (c->at_end)
            c->at_end(c, comm, r.program);
        keep_all(&r);
    }
    fp8c_program_destroy(r.program);
    fp8c_nccl_close(r.nccl);
    fp8c_module_destroy(r.module);
    fp8c_context_destroy(r.ctx);
}

void rank_case_try(rank_case *c)
{
    memset(c->failed, 0, sizeof c->failed);
    memset(c->n, 0, sizeof c->n);
    memset(c->n_steps, 0, sizeof c->n_steps);
    ranks_run(c->ranks, body, c, c->traffic);
}

void rank_case_run(rank_case *c)
{
    rank_case_try(c);
    for (int r = 0; r < c->ranks; r++)
        ck_assert_msg(!c->failed[r], "rank %d of %d: %s", r, c->ranks, c->failed[r]);
}

void rank_case_end(rank_case *c)
{
    for (int r = 0; r < c->ranks; r++) {
        for (int i = 0; i < c->n[r]; i++) {
            free(c->value[r][i].name);
            free(c->value[r][i].data);
        }
        c->n[r] = 0;
        for (int i = 0; i < c->n_steps[r]; i++)
            free(c->step[r][i].name);
        c->n_steps[r] = 0;
        free(c->failed[r]);
        c->failed[r] = NULL;
    }
}

/* ---- values ---- */

const rank_value *rank_case_value(const rank_case *c, int rank, const char *name)
{
    for (int i = 0; i < c->n[rank]; i++)
        if (!strcmp(c->value[rank][i].name, name))
            return &c->value[rank][i];
    ck_abort_msg("rank %d has no value '%s'", rank, name);
    return NULL;
}

const float *rank_case_floats(const rank_case *c, int rank, const char *name, int64_t *n)
{
    const rank_value *v = rank_case_value(c, rank, name);
    ck_assert_int_eq(v->type.dtype, FP8C_F32);
    if (n)
        *n = fp8c_type_bytes(&v->type) / (int64_t)sizeof(float);
    return v->data;
}

float *rank_case_whole(const rank_case *c, const char *name, int64_t *n)
{
    int64_t part, at = 0;
    const float *first = rank_case_floats(c, 0, name, &part);
    const rank_value *v = rank_case_value(c, 0, name);
    *n = v->rows ? part / v->type.dim[0] * v->rows : part;
    float *whole = malloc((size_t)*n * sizeof *whole + 1);
    ck_assert_ptr_nonnull(whole);
    for (int r = 0; at < *n; r++) {
        const int64_t left = *n - at, taken = left < part ? left : part;
        memcpy(whole + at, r ? rank_case_floats(c, r, name, NULL) : first,
               (size_t)taken * sizeof *whole);
        at += taken;
    }
    return whole;
}

void rank_case_same(const rank_case *a, int rank, const rank_case *b, int other, const char *what)
{
    int variables = 0;
    for (int i = 0; i < a->n[rank]; i++) {
        const rank_value *v = &a->value[rank][i];
        if (strchr(v->name, ':'))
            continue;
        variables++;
        ck_assert_msg(!memcmp(v->data, rank_case_value(b, other, v->name)->data,
                              (size_t)fp8c_type_bytes(&v->type)),
                      "%s, %d ranks: '%s' of rank %d has other bits than that of rank %d", what,
                      a->ranks, v->name, rank, other);
    }
    ck_assert_int_gt(variables, 0);
}
