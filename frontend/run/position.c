/* Where in a training a checkpoint was made: its metadata, and the public calls that save and load
 * a state with its position. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/checkpoint/shared.h"
#include "frontend/program.h"
#include "frontend/run/run.h"

/* ---- the checksum ---- */

/* Adds a hash of a name and of bytes. A sum has no order: a file and a program that list their
 * variables in other orders have the same one, whatever the recipe of the program is. */
static void add(f8_hash *sum, const char *name, const void *bytes, size_t n)
{
    f8_hasher h;
    f8_hasher_begin(&h);
    f8_hasher_add(&h, name, strlen(name) + 1);
    f8_hasher_add(&h, bytes, n);
    const f8_hash one = f8_hasher_end(&h);
    sum->lo += one.lo;
    sum->hi += one.hi;
}

static f8_status no_memory(size_t n, f8_diag *diag)
{
    return f8_file_fail(diag, F8_ERR_MEMORY, NULL, "out of memory: %zu bytes were wanted", n);
}

static f8_status add_variable(fp8c_program *program, int index, const fp8c_variable *v,
                              f8_hash *sum, f8_diag *diag)
{
    const size_t n = f8_shared_bytes(v);
    void *copy = malloc(n + 1);
    if (!copy)
        return no_memory(n, diag);
    const f8_status status = f8_shared_read(program, index, copy, diag);
    if (status == F8_OK)
        add(sum, v->name, copy, n);
    free(copy);
    return status;
}

f8_status f8_run_checksum(fp8c_program *program, char text[F8_RUN_HASH], f8_diag *diag)
{
    f8_hash sum = {0, 0};
    fp8c_variable v;
    const int n = f8_file_variables(program);
    for (int i = 0; i < n && fp8c_program_variable(program, i, &v) == FP8C_OK; i++)
        F8_TRY(add_variable(program, i, &v, &sum, diag));
    f8_hash_text(sum, text);
    return F8_OK;
}

static f8_status compare(const f8_weights *files, const char *sum, const char *path, f8_diag *diag)
{
    const char *said = f8_weights_metadata(files, "fp8c.checksum");
    if (said && !strcmp(said, sum))
        return F8_OK;
    return f8_file_fail(diag, F8_ERR_INPUT, path, "its values do not have its checksum");
}

f8_status f8_run_check_sum(fp8c_program *program, const f8_weights *files, const char *path,
                           f8_diag *diag)
{
    char sum[F8_RUN_HASH];
    F8_TRY(f8_run_checksum(program, sum, diag));
    return compare(files, sum, path, diag);
}

static f8_status add_tensor(const f8_weight *w, f8_hash *sum, f8_diag *diag)
{
    const size_t n = (size_t)w->tensor->bytes, prefix = strlen(f8_checkpoint_prefix);
    const char *name = w->tensor->name;
    void *copy = malloc(n + 1);
    if (!copy)
        return no_memory(n, diag);
    const f8_status status = f8_st_read(w->file, w->tensor, copy, diag);
    if (status == F8_OK)
        add(sum, strncmp(name, f8_checkpoint_prefix, prefix) ? name : name + prefix, copy, n);
    free(copy);
    return status;
}

f8_status f8_run_check_file(const f8_weights *files, const char *path, f8_diag *diag)
{
    f8_hash sum = {0, 0};
    char text[F8_RUN_HASH];
    for (size_t i = 0; i < files->n; i++)
        F8_TRY(add_tensor(&files->weight[i], &sum, diag));
    return compare(files, f8_hash_text(sum, text), path, diag);
}

/* ---- the metadata ---- */

f8_status f8_run_mark(fp8c_program *program, int64_t step, uint64_t seed, uint64_t batch,
                      f8_run_marks *out, f8_diag *diag)
{
    snprintf(out->step, sizeof out->step, "%" PRId64, step);
    snprintf(out->seed, sizeof out->seed, "%" PRIu64, seed);
    snprintf(out->batch, sizeof out->batch, "%" PRIu64, batch);
    F8_TRY(f8_run_checksum(program, out->sum, diag));
    const f8_st_pair pair[F8_RUN_MARKS] = {{"fp8c.steps", out->step},
                                           {"fp8c.seed", out->seed},
                                           {"fp8c.batch", out->batch},
                                           {"fp8c.checksum", out->sum}};
    memcpy(out->pair, pair, sizeof pair);
    return F8_OK;
}

static bool read_number(const f8_weights *files, const char *key, uint64_t *to)
{
    const char *text = f8_weights_metadata(files, key);
    char again[24];
    *to = text ? strtoull(text, NULL, 10) : 0;
    snprintf(again, sizeof again, "%" PRIu64, *to);
    return text && !strcmp(text, again);
}

bool f8_run_read_marks(const f8_weights *files, int64_t *step, uint64_t *seed, uint64_t *batch)
{
    uint64_t steps;
    if (!read_number(files, "fp8c.steps", &steps) || steps > INT64_MAX ||
        !read_number(files, "fp8c.seed", seed) || !read_number(files, "fp8c.batch", batch))
        return false;
    *step = (int64_t)steps;
    return true;
}

/* ---- the public calls ---- */

static f8_status save_at(fp8c_program *p, const char *path, const fp8c_position *at, f8_diag *diag)
{
    fp8c_position own = {.struct_size = sizeof own};
    f8_run_marks marks;
    F8_TRY(f8_api_options(&own, at, "fp8c_position", diag));
    if (own.step < 0)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE, "step %" PRId64 " is negative", own.step);
    F8_TRY(f8_checkpoint_can_write(p, diag));
    F8_TRY(f8_run_mark(p, own.step, own.seed, own.batch, &marks, diag));
    return f8_checkpoint_write(p, path, marks.pair, F8_RUN_MARKS, diag);
}

fp8c_status fp8c_program_save(fp8c_program *p, const char *path, const fp8c_position *at)
{
    f8_diag diag = {0};
    f8_status status;
    if (at) {
        status = save_at(p, path, at, &diag);
    } else {
        status = f8_checkpoint_can_write(p, &diag);
        if (status == F8_OK)
            status = f8_checkpoint_write(p, path, NULL, 0, &diag);
    }
    return f8_api_result(p->ctx, &diag, status);
}

static f8_status load(f8_load *l, const char *path, fp8c_position *at)
{
    F8_TRY(f8_load_allowed(l->program, "fp8c_program_load", l->diag));
    F8_TRY(f8_weights_open(l->weights, l->o, &l->program->ctx->allocator, l->diag));
    if (at && !f8_run_read_marks(l->weights, &at->step, &at->seed, &at->batch))
        return f8_file_fail(l->diag, F8_ERR_INPUT, path,
                            "it has no position in a training: fp8c_program_save writes one");
    F8_TRY(f8_load_match(l));
    F8_TRY(f8_load_values(l));
    return at ? f8_run_check_sum(l->program, l->weights, path, l->diag) : F8_OK;
}

fp8c_status fp8c_program_load(fp8c_program *p, const char *path, int32_t params_only,
                              fp8c_position *out)
{
    f8_diag diag = {0};
    f8_weights files = {0};
    fp8c_position own = {.struct_size = sizeof own};
    const fp8c_load_options o = {.struct_size = sizeof o, .files = &path, .n_files = 1};
    f8_load l = {.program = p,
                 .weights = &files,
                 .o = &o,
                 .states = params_only ? F8_LOAD_NO_STATES : F8_LOAD_ALL_STATES,
                 .exact = true,
                 .diag = &diag};
    const f8_status status =
        out && params_only
            ? f8_fail(&diag, F8_ERR_INPUT, F8_NOWHERE,
                      "a position is of all variables, and params_only leaves out the states")
            : load(&l, path, out ? &own : NULL);
    f8_load_end(&l);
    const fp8c_status result = f8_api_result(p->ctx, &diag, status);
    f8_weights_close(&files); /* the message may have named it */
    if (result == FP8C_OK && out)
        f8_api_give(out, &own);
    return result;
}
