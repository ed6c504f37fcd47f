/* Shared variables in files: see shared.h. */
#include "frontend/checkpoint/shared.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/program.h"

int f8_file_variables(const fp8c_program *program)
{
    return (int)(program->now->plan.n_vars - program->codes.n);
}

bool f8_shares(fp8c_program *program)
{
    fp8c_variable v;
    bool shares = false;
    for (int i = 0; !shares && fp8c_program_variable(program, i, &v) == FP8C_OK; i++)
        shares = v.rows != 0;
    return shares;
}

size_t f8_shared_bytes(const fp8c_variable *v)
{
    const size_t part = (size_t)fp8c_type_bytes(&v->type);
    return v->rows ? part / (size_t)v->type.dim[0] * (size_t)v->rows : part;
}

static f8_status read_own(fp8c_program *program, int variable, void *to, f8_diag *diag)
{
    f8_instance *instance = &program->now->instance;
    F8_TRY(f8_sums_look(program, (uint32_t)variable, diag));
    return instance->kind->read(instance, (uint32_t)variable, to, diag);
}

/* ---- one variable ---- */

f8_status f8_shared_read(fp8c_program *program, int variable, void *to, f8_diag *diag)
{
    const f8_comm *comm = f8_program_comm(program);
    const f8_allocator *a = &program->ctx->allocator;
    fp8c_variable v;
    fp8c_program_variable(program, variable, &v);
    if (!v.rows || !comm)
        return read_own(program, variable, to, diag);
    const size_t part = (size_t)fp8c_type_bytes(&v.type), room = part * ((size_t)comm->ranks + 1);
    uint8_t *all = a->alloc(a->user, room, 64);
    if (!all)
        return f8_fail(diag, F8_ERR_MEMORY, F8_NOWHERE,
                       "out of memory: %zu bytes were wanted for the ranks' parts of '%s'", room,
                       v.name);
    uint8_t *own = all + part * (size_t)comm->ranks;
    f8_status status = read_own(program, variable, own, diag);
    if (status == F8_OK)
        status = f8_comm_gather(comm, v.name, own, all, (int64_t)part, diag);
    if (status == F8_OK)
        memcpy(to, all, f8_shared_bytes(&v));
    a->free(a->user, all, room);
    return status;
}

f8_status f8_shared_part(fp8c_program *program, int variable, const void *whole, f8_arena *memory,
                         void **out, f8_diag *diag)
{
    const size_t part = (size_t)f8_type_bytes(&program->now->plan.var[variable].type);
    *out = f8_arena_array(memory, 1, part + 1);
    F8_TRY(f8_arena_status(memory, diag));
    f8_variable_part(program, (uint32_t)variable, whole, *out);
    return F8_OK;
}

/* ---- a file ---- */

/* What rank 0 says to the others before each exchange: the variable that it wants, or that it has
 * ended. */
enum { WRITTEN = -1, FAILED = -2 };
typedef struct wish {
    int64_t variable;
    char why[sizeof((f8_diag *)NULL)->text]; /* FAILED: its message */
} wish;

/* All ranks learn rank 0's wish. */
static f8_status tell(fp8c_program *program, wish *w, f8_diag *diag)
{
    const f8_comm *comm = f8_program_comm(program);
    const f8_allocator *a = &program->ctx->allocator;
    const size_t room = sizeof *w * (size_t)comm->ranks;
    wish *all = a->alloc(a->user, room, 64);
    if (!all)
        return f8_fail(diag, F8_ERR_MEMORY, F8_NOWHERE, "out of memory");
    const f8_status status = f8_comm_gather(comm, "what rank 0 writes", w, all, sizeof *w, diag);
    *w = all[0];
    a->free(a->user, all, room);
    return status;
}

static f8_status read_alone(void *user, size_t index, void *to, f8_diag *diag)
{
    return read_own(user, (int)index, to, diag);
}

static f8_status read_together(void *user, size_t index, void *to, f8_diag *diag)
{
    fp8c_variable v;
    wish w = {.variable = (int64_t)index};
    fp8c_program_variable(user, (int)index, &v);
    if (v.rows)
        F8_TRY(tell(user, &w, diag));
    return f8_shared_read(user, (int)index, to, diag);
}

/* Rank 0. */
static f8_status write_and_ask(fp8c_program *program, const char *path, f8_st_contents *contents,
                               const f8_allocator *allocator, f8_diag *diag)
{
    contents->fill = read_together;
    const f8_status status = f8_st_write(path, contents, allocator, diag);
    wish w = {.variable = status == F8_OK ? WRITTEN : FAILED};
    f8_diag lost = {0};
    snprintf(w.why, sizeof w.why, "%s", status == F8_OK ? "" : diag->text);
    const f8_status told = tell(program, &w, status == F8_OK ? diag : &lost);
    return status == F8_OK ? told : status;
}

/* The others. */
static f8_status answer(fp8c_program *program, const char *path, const f8_allocator *a,
                        f8_diag *diag)
{
    fp8c_variable v;
    for (;;) {
        wish w = {.variable = WRITTEN};
        F8_TRY(tell(program, &w, diag));
        if (w.variable == WRITTEN)
            return F8_OK;
        if (w.variable == FAILED)
            return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE, "rank 0 could not write %s: %s", path,
                           w.why);
        fp8c_program_variable(program, (int)w.variable, &v);
        const size_t bytes = f8_shared_bytes(&v);
        void *whole = a->alloc(a->user, bytes, 64);
        const f8_status status =
            whole ? f8_shared_read(program, (int)w.variable, whole, diag)
                  : f8_fail(diag, F8_ERR_MEMORY, F8_NOWHERE,
                            "out of memory: %zu bytes were wanted for '%s'", bytes, v.name);
        a->free(a->user, whole, bytes);
        F8_TRY(status);
    }
}

f8_status f8_shared_write(fp8c_program *program, const char *path, f8_st_contents *contents,
                          const f8_allocator *allocator, f8_diag *diag)
{
    const f8_comm *comm = f8_program_comm(program);
    contents->user = program;
    contents->fill = read_alone;
    if (!comm || !f8_shares(program))
        return f8_st_write(path, contents, allocator, diag);
    return comm->rank == 0 ? write_and_ask(program, path, contents, allocator, diag)
                           : answer(program, path, allocator, diag);
}

/* ---- without names ---- */

/* `out` NULL: this rank only gives its part. */
static f8_status put_bytes(fp8c_program *program, int variable, const fp8c_variable *v,
                           f8_file_out *out, f8_diag *diag)
{
    const size_t bytes = f8_shared_bytes(v);
    void *whole = malloc(bytes + 1);
    if (!whole)
        return f8_file_fail(diag, F8_ERR_MEMORY, out ? out->path : NULL,
                            "out of memory: %zu bytes were wanted", bytes);
    f8_status status = f8_shared_read(program, variable, whole, diag);
    if (status == F8_OK && out)
        status = f8_file_put(out, whole, bytes);
    free(whole);
    return status;
}

f8_status f8_shared_write_bytes(fp8c_program *program, const char *path, f8_temporaries *list,
                                f8_diag *diag)
{
    f8_file_out file, *out = path ? &file : NULL;
    fp8c_variable v;
    f8_status status = out ? f8_file_begin(out, list, path, false, diag) : F8_OK;
    const int n = f8_file_variables(program);
    for (int i = 0; status == F8_OK && i < n; i++)
        if (fp8c_program_variable(program, i, &v) == FP8C_OK && (out || v.rows))
            status = put_bytes(program, i, &v, out, diag);
    if (status == F8_OK && out)
        status = f8_file_commit(out);
    if (out)
        f8_file_end(out);
    return status;
}
