/* Rows of tensors in files as batches: see cmd_rows.h. */
#include "frontend/cli/cmd_rows.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/cli/cmd_mix.h"

enum { HASHED_BLOCK = 1 << 16 /* bytes */, HASHED_BLOCKS = 1024 };

/* ---- files ---- */

static bool same_rows(const cli_row_files *f, size_t i)
{
    const f8_st_tensor *t = &f->in[i].tensor;
    if (t->rank > 0 && (uint64_t)t->dim[0] == f->rows)
        return true;
    if (t->rank == 0)
        fprintf(stderr, "%s: error: for '%s': a scalar has no rows\n", f->file[i].path,
                f->file[i].name);
    else
        fprintf(stderr,
                "%s: error: '%s' has %" PRId64 " rows here, but '%s' has %" PRIu64 " in %s\n",
                f->file[i].path, f->file[i].name, t->dim[0], f->file[0].name, f->rows,
                f->file[0].path);
    return false;
}

static bool open_one(cli_row_files *f, const char *option, const char *text)
{
    f8_diag diag = {0};
    const size_t i = f->n++;
    if (!cli_tensor_file_parse(text, &f->file[i])) {
        fprintf(stderr, "%s '%s': error: not NAME=FILE.npy or NAME=FILE.safetensors[:TENSOR]\n",
                option, text);
        return false;
    }
    for (size_t k = 0; k < i; k++)
        if (!strcmp(f->file[k].name, f->file[i].name)) {
            fprintf(stderr, "%s '%s': error: '%s' is given twice\n", option, text,
                    f->file[i].name);
            return false;
        }
    if (cli_tensor_open(&f->in[i], &f->file[i], &diag) != F8_OK)
        return cli_file_fail(&diag);
    if (i == 0 && f->in[0].tensor.rank > 0)
        f->rows = (uint64_t)f->in[0].tensor.dim[0];
    return same_rows(f, i);
}

static bool open_files(cli_row_files *f, const char *option, const cli_TEXTS *texts)
{
    f->file = calloc(texts->n + 1, sizeof *f->file);
    f->in = calloc(texts->n + 1, sizeof *f->in);
    f->hash = calloc(texts->n + 1, sizeof *f->hash);
    if (!f->file || !f->in || !f->hash) {
        fprintf(stderr, "error: out of memory\n");
        return false;
    }
    for (size_t i = 0; i < texts->n; i++)
        if (!open_one(f, option, texts->text[i]))
            return false;
    return true;
}

static void close_files(cli_row_files *f)
{
    for (size_t i = 0; i < f->n; i++) {
        cli_tensor_close(&f->in[i]);
        cli_tensor_file_free(&f->file[i]);
    }
    free(f->file);
    free(f->in);
    free(f->hash);
    *f = (cli_row_files){0};
}

bool cli_rows_open(cli_rows *r, const cli *options)
{
    *r = (cli_rows){0};
    return open_files(&r->data, "--batch", &options->batches) &&
           open_files(&r->validation, "--validation", &options->validation);
}

void cli_rows_close(cli_rows *r)
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

static size_t find(const cli_row_files *f, const char *name)
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

/* Reads what may not fit, row by row: i64 and u8 for i32, bool. */
static bool check_values(const cli_row_files *f, const cli_tensor_in *in, const fp8c_type *type)
{
    f8_diag diag = {0};
    const uint64_t n = row_elements(type);
    if (type->dtype != FP8C_BOOL &&
        (type->dtype != FP8C_I32 || in->tensor.dtype != F8_ST_I64))
        return true;
    void *row = malloc((size_t)n * 4 + 1);
    f8_status status = row ? F8_OK : f8_file_fail(&diag, F8_ERR_MEMORY, NULL, "out of memory");
    for (uint64_t i = 0; i < f->rows && status == F8_OK && !cli_interrupted(); i++)
        status = cli_tensor_read(in, i * n, n, type->dtype, row, &diag);
    free(row);
    return status == F8_OK ? !cli_interrupted() : cli_file_fail(&diag);
}

/* The hash of an input's values: of all, or if they are large, of blocks that lie evenly from the
 * first value to the last. How many there are is compared apart. */
static bool hash_values(const cli_row_files *f, size_t i, const fp8c_type *type)
{
    f8_diag diag = {0};
    f8_hasher hasher;
    const fp8c_type one = {.dtype = type->dtype};
    const uint64_t all = f->rows * row_elements(type), bytes = (uint64_t)fp8c_type_bytes(&one),
                   block = HASHED_BLOCK / bytes, every = all > HASHED_BLOCKS * block;
    const uint64_t blocks = every ? HASHED_BLOCKS : (all + block - 1) / block;
    void *values = malloc(HASHED_BLOCK);
    f8_status status = values ? F8_OK : f8_file_fail(&diag, F8_ERR_MEMORY, NULL, "out of memory");
    f8_hasher_begin(&hasher);
    for (uint64_t k = 0; k < blocks && status == F8_OK && !cli_interrupted(); k++) {
        const uint64_t at = every ? (all - block) / (blocks - 1) * k +
                                        (all - block) % (blocks - 1) * k / (blocks - 1)
                                  : k * block;
        const uint64_t n = all - at < block ? all - at : block;
        status = cli_tensor_read(&f->in[i], at, n, type->dtype, values, &diag);
        if (status == F8_OK)
            f8_hasher_add(&hasher, values, (size_t)(n * bytes));
    }
    free(values);
    f->hash[i] = f8_hasher_end(&hasher);
    return status == F8_OK ? !cli_interrupted() : cli_file_fail(&diag);
}

static bool fit_port(const cli_row_files *f, size_t i, const fp8c_port *port, bool compared)
{
    f8_diag diag = {0};
    fp8c_type type = port->type;
    type.dim[0] = (int64_t)f->rows;
    if (cli_tensor_fits(&f->in[i], &type, &diag) != F8_OK)
        return cli_file_fail(&diag);
    return check_values(f, &f->in[i], &type) && (!compared || hash_values(f, i, &type));
}

/* Says which of the inputs have no file, and which of the files no input. */
static bool matched(const cli_row_files *f, const char *option, const cli *c,
                    const fp8c_program *program, int function)
{
    fp8c_port port;
    bool ok = true, more = true;
    for (int i = 0; more; i++)
        if (input(program, function, i, &port, &more) && find(f, port.name) == f->n) {
            fprintf(stderr, "%s%s%s", ok ? c->file : "", ok ? ": error: no file for the inputs: "
                                                            : ", ", port.name);
            ok = false;
        }
    if (!ok)
        fprintf(stderr, "; %s NAME=FILE gives one\n", option);
    for (size_t i = 0; i < f->n && ok; i++) {
        const int at = fp8c_program_find_port(program, function, FP8C_INPUT, f->file[i].name);
        if (at < 0 || fp8c_program_port(program, function, FP8C_INPUT, at, &port) != FP8C_OK ||
            port.variable >= 0) {
            fprintf(stderr, "%s: error: forward has no input '%s'\n", c->file, f->file[i].name);
            ok = false;
        }
    }
    return ok;
}

static bool fit_files(const cli_row_files *f, const char *option, const cli *c,
                      const fp8c_program *program, int function)
{
    fp8c_port port;
    bool ok = matched(f, option, c, program, function), more = ok;
    for (int i = 0; more && ok; i++)
        if (input(program, function, i, &port, &more))
            ok = fit_port(f, find(f, port.name), &port, c->ranks || c->run || c->resume);
    return ok;
}

/* The first size of all inputs, which is the number of rows of a batch; 0 after a message. */
static int64_t batch_rows(const cli *c, const fp8c_program *program, int function)
{
    fp8c_port port;
    bool more = true;
    int64_t rows = 0;
    for (int i = 0; more; i++) {
        if (!input(program, function, i, &port, &more))
            continue;
        if (port.type.rank == 0 || (rows && port.type.dim[0] != rows)) {
            char text[CLI_TYPE_TEXT];
            fprintf(stderr,
                    "%s: error: --batch takes inputs that all have the same first size, but '%s' "
                    "is %s\n",
                    c->file, port.name, cli_type(&port.type, text));
            return 0;
        }
        rows = port.type.dim[0];
    }
    if (!rows)
        fprintf(stderr, "%s: error: forward has no inputs\n", c->file);
    return rows;
}

static bool has_loss(const cli *c, const fp8c_program *program, int function)
{
    fp8c_port port;
    const int at = fp8c_program_find_port(program, function, FP8C_OUTPUT, "loss");
    if (at >= 0 && fp8c_program_port(program, function, FP8C_OUTPUT, at, &port) == FP8C_OK &&
        port.type.dtype == FP8C_F32 && port.type.rank == 0)
        return true;
    fprintf(stderr,
            "%s: error: %s needs a function forward whose first result is the loss, f32[]\n",
            c->file, c->command);
    return false;
}

static bool enough(const cli_rows *r)
{
    const cli_row_files *last = r->validation.n ? &r->validation : &r->data;
    if (r->train > 0 && (r->validation.n ? r->validation.rows : r->data.rows - r->train) > 0)
        return true;
    if (r->data.rows == 0 || r->validation.n)
        fprintf(stderr, "%s: error: it has no rows\n",
                r->data.rows ? last->file->path : r->data.file->path);
    else
        fprintf(stderr,
                "%s: error: it has only %" PRIu64
                " rows: a tenth of them is held out, so at least 10 are needed without "
                "--validation\n",
                r->data.file->path, r->data.rows);
    return false;
}

bool cli_rows_fit(cli_rows *r, const cli *options, const fp8c_program *program, int function)
{
    if (r->B != 0) /* done, for another recipe of the same module */
        return true;
    const uint64_t n = r->data.rows;
    r->train = r->validation.n ? n : n - n / 10;
    r->B = has_loss(options, program, function) ? batch_rows(options, program, function) : 0;
    r->share = cli_share_of(options, r->B);
    return r->B && enough(r) && fit_files(&r->data, "--batch", options, program, function) &&
           (!r->validation.n ||
            fit_files(&r->validation, "--validation", options, program, function));
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
            const uint64_t next = left ^ (cli_mix(key + (round << 58) + right) & mask);
            left = right;
            right = next;
        }
        x = left << half | right;
    } while (x >= n);
    return x;
}

/* Copies row `from` of every file into row `to` of the inputs. */
static bool copy_row(const cli_row_files *f, fp8c_program *program, int function, uint64_t from,
                     int64_t to)
{
    fp8c_port port;
    f8_diag diag = {0};
    bool more = true;
    for (int i = 0; more; i++) {
        if (!input(program, function, i, &port, &more))
            continue;
        const uint64_t n = row_elements(&port.type);
        const size_t bytes = (size_t)(fp8c_type_bytes(&port.type) / port.type.dim[0]);
        char *buffer = fp8c_program_buffer(program, function, FP8C_INPUT, i);
        if (cli_tensor_read(&f->in[find(f, port.name)], from * n, n, port.type.dtype,
                            buffer + (size_t)to * bytes, &diag) != F8_OK)
            return cli_file_fail(&diag);
    }
    return true;
}

uint64_t cli_rows_place(const cli_rows *r, uint64_t seed, uint64_t batch, int64_t row)
{
    const uint64_t place = cli_share_place(&r->share, batch, row);
    const uint64_t key = cli_mix(cli_mix(seed) + place / r->train);
    return permuted(key, place % r->train, r->train);
}

bool cli_rows_put(const cli_rows *r, fp8c_program *program, int function, uint64_t from, int64_t to)
{
    return copy_row(&r->data, program, function, from, to);
}

bool cli_rows_draw(const cli_rows *r, fp8c_program *program, int function, uint64_t seed,
                   uint64_t batch)
{
    bool ok = true;
    for (int64_t row = 0; row < r->B && ok; row++)
        ok = cli_rows_put(r, program, function, cli_rows_place(r, seed, batch, row), row);
    return ok;
}

/* The held-out rows: where they begin in their files, and how many there are. */
static const cli_row_files *held_out(const cli_rows *r, uint64_t *begin, uint64_t *n)
{
    const cli_row_files *from = r->validation.n ? &r->validation : &r->data;
    *begin = r->validation.n ? 0 : r->train;
    *n = from->rows - *begin;
    return from;
}

bool cli_rows_held_out(const cli_rows *r, fp8c_program *program, int function, uint64_t batch)
{
    uint64_t begin, n;
    const cli_row_files *from = held_out(r, &begin, &n);
    bool ok = true;
    for (int64_t row = 0; row < r->B && ok; row++)
        ok = copy_row(from, program, function,
                      begin + cli_share_place(&r->share, batch, row) % n, row);
    return ok;
}

uint64_t cli_rows_held_out_batches(const cli_rows *r)
{
    uint64_t begin, n;
    held_out(r, &begin, &n);
    return n < 2 * r->share.rows ? 1 : n / r->share.rows;
}
