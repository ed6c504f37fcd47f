/* Rows of tensors in files as batches: see rows.h. */
#include "frontend/train/data/rows.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/api.h"
#include "frontend/train/data/mix.h"
#include "ir/base/file.h"
#include "ir/base/type.h"

enum { HASHED_BLOCK = 1 << 16 /* bytes */, HASHED_BLOCKS = 1024 };

/* ---- files ---- */

static f8_status no_memory(f8_diag *diag)
{
    return f8_fail(diag, F8_ERR_MEMORY, F8_NOWHERE, "out of memory");
}

static f8_status same_rows(const f8_row_files *f, size_t i, f8_diag *diag)
{
    const f8_st_tensor *t = &f->in[i].tensor;
    if (t->rank == 0)
        return f8_file_fail(diag, F8_ERR_INPUT, f->file[i].path, "for '%s': a scalar has no rows",
                            f->file[i].name);
    if ((uint64_t)t->dim[0] == f->rows)
        return F8_OK;
    return f8_file_fail(diag, F8_ERR_INPUT, f->file[i].path,
                        "'%s' has %" PRId64 " rows here, but '%s' has %" PRIu64 " in %s",
                        f->file[i].name, t->dim[0], f->file[0].name, f->rows, f->file[0].path);
}

/* Makes f->refused the option with its value: a message on how it is written begins so. */
static f8_status note_refused(f8_row_files *f, const char *text, f8_diag *diag)
{
    const size_t size = strlen(f->option) + strlen(text) + sizeof " ''";
    f->refused = malloc(size);
    if (!f->refused)
        return no_memory(diag);
    snprintf(f->refused, size, "%s '%s'", f->option, text);
    return F8_OK;
}

static f8_status open_one(f8_row_files *f, const char *text, f8_diag *diag)
{
    const size_t i = f->n++;
    if (!f8_tensor_file_parse(text, &f->file[i])) {
        F8_TRY(note_refused(f, text, diag));
        return f8_file_fail(diag, F8_ERR_INPUT, f->refused,
                            "not NAME=FILE.npy or NAME=FILE.safetensors[:TENSOR]");
    }
    for (size_t k = 0; k < i; k++)
        if (!strcmp(f->file[k].name, f->file[i].name)) {
            F8_TRY(note_refused(f, text, diag));
            return f8_file_fail(diag, F8_ERR_INPUT, f->refused, "'%s' is given twice",
                                f->file[i].name);
        }
    F8_TRY(f8_tensor_open(&f->in[i], &f->file[i], diag));
    if (i == 0 && f->in[0].tensor.rank > 0)
        f->rows = (uint64_t)f->in[0].tensor.dim[0];
    return same_rows(f, i, diag);
}

static f8_status open_files(f8_row_files *f, const char *option, const char *const *texts, size_t n,
                            f8_diag *diag)
{
    f->option = option;
    f->file = calloc(n + 1, sizeof *f->file);
    f->in = calloc(n + 1, sizeof *f->in);
    f->hash = calloc(n + 1, sizeof *f->hash);
    if (!f->file || !f->in || !f->hash)
        return no_memory(diag);
    for (size_t i = 0; i < n; i++)
        F8_TRY(open_one(f, texts[i], diag));
    return F8_OK;
}

static void close_files(f8_row_files *f)
{
    for (size_t i = 0; i < f->n; i++) {
        f8_tensor_close(&f->in[i]);
        f8_tensor_file_free(&f->file[i]);
    }
    free(f->file);
    free(f->in);
    free(f->hash);
    free(f->refused);
    *f = (f8_row_files){0};
}

f8_status f8_rows_open(f8_rows *r, const f8_data_options *o, f8_diag *diag)
{
    *r = (f8_rows){0};
    F8_TRY(open_files(&r->data, o->batches_name, o->batches, o->n_batches, diag));
    return open_files(&r->validation, o->validation_name, o->validation, o->n_validation, diag);
}

void f8_rows_close(f8_rows *r)
{
    close_files(&r->data);
    close_files(&r->validation);
}

/* ---- inputs ---- */

/* Input `index` of a function, if the caller fills it. Ends a loop: *more. */
static bool input(const fp8c_program *program, int function, int index, fp8c_port *port, bool *more)
{
    *more = fp8c_program_port(program, function, FP8C_INPUT, index, port) == FP8C_OK;
    return *more && port->variable < 0;
}

static size_t find(const f8_row_files *f, const char *name)
{
    size_t i = 0;
    while (i < f->n && strcmp(f->file[i].name, name))
        i++;
    return i;
}

static uint64_t row_elements(const fp8c_type *type)
{
    uint64_t n = 1;
    for (int32_t i = 1; i < type->rank; i++)
        n *= (uint64_t)type->dim[i];
    return n;
}

static f8_status cancelled(f8_diag *diag)
{
    return f8_fail(diag, F8_ERR_CANCELLED, F8_NOWHERE, "cancelled");
}

/* Reads what may not fit, row by row: i64 and u8 for i32, bool. */
static f8_status check_values(const f8_row_files *f, const f8_tensor_in *in, const fp8c_type *type,
                              const f8_stop *stop, f8_diag *diag)
{
    const uint64_t n = row_elements(type);
    if (type->dtype != FP8C_BOOL && (type->dtype != FP8C_I32 || in->tensor.dtype != F8_ST_I64))
        return F8_OK;
    void *row = malloc((size_t)n * 4 + 1);
    f8_status status = row ? F8_OK : no_memory(diag);
    for (uint64_t i = 0; i < f->rows && status == F8_OK; i++)
        status = f8_stop_asked(stop) ? cancelled(diag)
                                     : f8_tensor_read(in, i * n, n, type->dtype, row, diag);
    free(row);
    return status;
}

/* The hash of an input's values: of all, or if they are large, of blocks that lie evenly from the
 * first value to the last. How many there are is compared apart. */
static f8_status hash_values(const f8_row_files *f, size_t i, const fp8c_type *type,
                             const f8_stop *stop, f8_diag *diag)
{
    f8_hasher hasher;
    const fp8c_type one = {.dtype = type->dtype};
    const uint64_t all = f->rows * row_elements(type), bytes = (uint64_t)fp8c_type_bytes(&one),
                   block = HASHED_BLOCK / bytes, every = all > HASHED_BLOCKS * block;
    const uint64_t blocks = every ? HASHED_BLOCKS : (all + block - 1) / block;
    void *values = malloc(HASHED_BLOCK);
    f8_status status = values ? F8_OK : no_memory(diag);
    f8_hasher_begin(&hasher);
    for (uint64_t k = 0; k < blocks && status == F8_OK; k++) {
        const uint64_t at = every ? (all - block) / (blocks - 1) * k +
                                        (all - block) % (blocks - 1) * k / (blocks - 1)
                                  : k * block;
        const uint64_t n = all - at < block ? all - at : block;
        status = f8_stop_asked(stop) ? cancelled(diag)
                                     : f8_tensor_read(&f->in[i], at, n, type->dtype, values, diag);
        if (status == F8_OK)
            f8_hasher_add(&hasher, values, (size_t)(n * bytes));
    }
    free(values);
    f->hash[i] = f8_hasher_end(&hasher);
    return status;
}

static f8_status fit_port(const f8_row_files *f, size_t i, const fp8c_port *port,
                          const f8_data_options *o, f8_diag *diag)
{
    fp8c_type type = port->type;
    type.dim[0] = (int64_t)f->rows;
    F8_TRY(f8_tensor_fits(&f->in[i], &type, diag));
    F8_TRY(check_values(f, &f->in[i], &type, &o->stop, diag));
    return o->hashes ? hash_values(f, i, &type, &o->stop, diag) : F8_OK;
}

/* Says which of the inputs have no file, all of them as far as a message has room. */
static f8_status have_files(const f8_row_files *f, const f8_data_options *o,
                            const fp8c_program *program, int function, f8_diag *diag)
{
    enum { ROOM = 800 };
    char list[ROOM + 8] = "";
    fp8c_port port;
    size_t used = 0;
    bool more = true, whole = true;
    for (int i = 0; more; i++) {
        if (!input(program, function, i, &port, &more) || find(f, port.name) < f->n)
            continue;
        whole &= used + strlen(port.name) + 2 < ROOM;
        if (whole)
            used += (size_t)snprintf(list + used, ROOM - used, "%s%s", used ? ", " : "", port.name);
    }
    if (!used && whole)
        return F8_OK;
    return f8_file_fail(diag, F8_ERR_INPUT, o->model,
                        "no file for the inputs: %s%s; %s NAME=FILE gives one", list,
                        whole ? "" : ", ...", f->option);
}

/* Says which of the files has no input. */
static f8_status have_inputs(const f8_row_files *f, const f8_data_options *o,
                             const fp8c_program *program, int function, f8_diag *diag)
{
    fp8c_port port;
    for (size_t i = 0; i < f->n; i++) {
        const int at = fp8c_program_find_port(program, function, FP8C_INPUT, f->file[i].name);
        if (at < 0 || fp8c_program_port(program, function, FP8C_INPUT, at, &port) != FP8C_OK ||
            port.variable >= 0)
            return f8_file_fail(diag, F8_ERR_INPUT, o->model, "forward has no input '%s'",
                                f->file[i].name);
    }
    return F8_OK;
}

static f8_status fit_files(const f8_row_files *f, const f8_data_options *o,
                           const fp8c_program *program, int function, f8_diag *diag)
{
    fp8c_port port;
    bool more = true;
    F8_TRY(have_files(f, o, program, function, diag));
    F8_TRY(have_inputs(f, o, program, function, diag));
    for (int i = 0; more; i++)
        if (input(program, function, i, &port, &more))
            F8_TRY(fit_port(f, find(f, port.name), &port, o, diag));
    return F8_OK;
}

/* The first size of all inputs, which is the number of rows of a batch. */
static f8_status batch_rows(int64_t *out, const f8_data_options *o, const fp8c_program *program,
                            int function, f8_diag *diag)
{
    fp8c_port port;
    bool more = true;
    int64_t rows = 0;
    for (int i = 0; more; i++) {
        if (!input(program, function, i, &port, &more))
            continue;
        if (port.type.rank == 0 || (rows && port.type.dim[0] != rows)) {
            char text[160];
            const f8_type type = f8_api_type_in(&port.type);
            return f8_file_fail(diag, F8_ERR_INPUT, o->model,
                                "%s takes inputs that all have the same first size, but '%s' is %s",
                                o->batches_name, port.name,
                                f8_type_print(&type, text, sizeof text));
        }
        rows = port.type.dim[0];
    }
    *out = rows;
    return rows ? F8_OK : f8_file_fail(diag, F8_ERR_INPUT, o->model, "forward has no inputs");
}

static f8_status has_loss(const f8_data_options *o, const fp8c_program *program, int function,
                          f8_diag *diag)
{
    fp8c_port port;
    const int at = fp8c_program_find_port(program, function, FP8C_OUTPUT, "loss");
    if (at >= 0 && fp8c_program_port(program, function, FP8C_OUTPUT, at, &port) == FP8C_OK &&
        port.type.dtype == FP8C_F32 && port.type.rank == 0)
        return F8_OK;
    return f8_file_fail(diag, F8_ERR_INPUT, o->model,
                        "%s needs a function forward whose first result is the loss, f32[]",
                        o->needs);
}

static f8_status enough(const f8_rows *r, const f8_data_options *o, f8_diag *diag)
{
    const f8_row_files *last = r->validation.n ? &r->validation : &r->data;
    if (r->train > 0 && (r->validation.n ? r->validation.rows : r->data.rows - r->train) > 0)
        return F8_OK;
    if (r->data.rows == 0 || r->validation.n)
        return f8_file_fail(diag, F8_ERR_INPUT,
                            r->data.rows ? last->file->path : r->data.file->path, "it has no rows");
    return f8_file_fail(diag, F8_ERR_INPUT, r->data.file->path,
                        "it has only %" PRIu64
                        " rows: a tenth of them is held out, so at least 10 are needed without %s",
                        r->data.rows, o->validation_name);
}

f8_status f8_rows_fit(f8_rows *r, const f8_data_options *o, const fp8c_program *program,
                      int function, f8_diag *diag)
{
    if (r->B != 0) /* done, for another recipe of the same module */
        return F8_OK;
    const uint64_t n = r->data.rows;
    int64_t B;
    r->train = r->validation.n ? n : n - n / 10;
    F8_TRY(has_loss(o, program, function, diag));
    F8_TRY(batch_rows(&B, o, program, function, diag));
    F8_TRY(enough(r, o, diag));
    F8_TRY(fit_files(&r->data, o, program, function, diag));
    if (r->validation.n)
        F8_TRY(fit_files(&r->validation, o, program, function, diag));
    r->share = f8_data_share(o, B);
    r->B = B;
    return F8_OK;
}

/* ---- batches ---- */

/* Element x of a permutation of [0, n) that the key chooses: a Feistel network on as many bits as
 * n needs, repeated until the result is below n. */
static uint64_t permuted(uint64_t key, uint64_t x, uint64_t n)
{
    unsigned half = 1;
    while (half < 32 && n > (uint64_t)1 << 2 * half)
        half++;
    const uint64_t mask = ((uint64_t)1 << half) - 1;
    do {
        uint64_t left = x >> half, right = x & mask;
        for (uint64_t round = 0; round < 6; round++) {
            const uint64_t next = left ^ (f8_mix(key + (round << 58) + right) & mask);
            left = right;
            right = next;
        }
        x = left << half | right;
    } while (x >= n);
    return x;
}

/* Copies row `from` of every file into row `to` of the inputs. */
static f8_status copy_row(const f8_row_files *f, fp8c_program *program, int function, uint64_t from,
                          int64_t to, f8_diag *diag)
{
    fp8c_port port;
    bool more = true;
    for (int i = 0; more; i++) {
        if (!input(program, function, i, &port, &more))
            continue;
        const uint64_t n = row_elements(&port.type);
        const size_t bytes = (size_t)(fp8c_type_bytes(&port.type) / port.type.dim[0]);
        char *buffer = fp8c_program_buffer(program, function, FP8C_INPUT, i);
        F8_TRY(f8_tensor_read(&f->in[find(f, port.name)], from * n, n, port.type.dtype,
                              buffer + (size_t)to * bytes, diag));
    }
    return F8_OK;
}

uint64_t f8_rows_place(const f8_rows *r, uint64_t seed, uint64_t batch, int64_t row)
{
    const uint64_t place = f8_share_place(&r->share, batch, row);
    const uint64_t key = f8_mix(f8_mix(seed) + place / r->train);
    return permuted(key, place % r->train, r->train);
}

f8_status f8_rows_put(const f8_rows *r, fp8c_program *program, int function, uint64_t from,
                      int64_t to, f8_diag *diag)
{
    return copy_row(&r->data, program, function, from, to, diag);
}

f8_status f8_rows_draw(const f8_rows *r, fp8c_program *program, int function, uint64_t seed,
                       uint64_t batch, f8_diag *diag)
{
    for (int64_t row = 0; row < r->B; row++)
        F8_TRY(f8_rows_put(r, program, function, f8_rows_place(r, seed, batch, row), row, diag));
    return F8_OK;
}

/* The held-out rows: where they begin in their files, and how many there are. */
static const f8_row_files *held_out(const f8_rows *r, uint64_t *begin, uint64_t *n)
{
    const f8_row_files *from = r->validation.n ? &r->validation : &r->data;
    *begin = r->validation.n ? 0 : r->train;
    *n = from->rows - *begin;
    return from;
}

f8_status f8_rows_held_out(const f8_rows *r, fp8c_program *program, int function, uint64_t batch,
                           f8_diag *diag)
{
    uint64_t begin, n;
    const f8_row_files *from = held_out(r, &begin, &n);
    for (int64_t row = 0; row < r->B; row++)
        F8_TRY(copy_row(from, program, function, begin + f8_share_place(&r->share, batch, row) % n,
                        row, diag));
    return F8_OK;
}

uint64_t f8_rows_held_out_batches(const f8_rows *r)
{
    uint64_t begin, n;
    held_out(r, &begin, &n);
    return f8_share_batches(&r->share, n);
}
