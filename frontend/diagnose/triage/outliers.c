/* What stands out by its size: an element of a variable, a row of a batch. See search.h. */
#include "frontend/diagnose/triage/search.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- variables ---- */

/* The largest element of a variable is out of all proportion where the next one is so many times
 * smaller. A flipped bit of an exponent gives 2^16 or more, or else harms nothing. */
static const double lone = 0x1p16;
enum { FEW = 16 }; /* of fewer elements nothing is said */

/* Notes a variable whose largest element stands alone, or is not finite. */
static void look_at_values(f8_triage *f, const char *name, const float *x, int64_t from, int64_t n)
{
    double most = 0, next = 0;
    int64_t at = 0;
    for (int64_t i = 0; i < n; i++) {
        const double size = fabs((double)x[from + i]);
        if (!(size <= most)) {
            next = most;
            most = isfinite(size) ? size : INFINITY;
            at = from + i;
        } else {
            next = fmax(next, size);
        }
    }
    const bool finite = isfinite(most);
    if (finite && (*f->state || n < FEW || !(next > 0) || most < next * lone))
        return;
    if (*f->state && !f->state_finite)
        return;
    f8_triage_copy_text(f->state, sizeof f->state, name);
    f->state_finite = finite;
    f->state_at = at;
    f->state_value = (double)x[at];
    f->state_next = next;
}

/* How many elements of a variable are alike: all; of a history of amaxes those of one operand, and
 * of what has one element of each operand none. */
static int64_t alike(const f8_replay *r, int i, const fp8c_variable *v)
{
    const int64_t n = fp8c_type_bytes(&v->type) / (int64_t)sizeof(float);
    if (!fp8c_program_element(r->program, i, 0, 0))
        return n;
    return v->type.rank > 1 ? n / v->type.dim[0] : 1;
}

bool f8_triage_look_at_state(f8_triage_search *t, const f8_replay *r)
{
    fp8c_variable v;
    bool ok = true;
    *t->found.state = 0;
    for (int i = 0; ok && fp8c_program_variable(r->program, i, &v) == FP8C_OK; i++) {
        if (v.type.dtype != FP8C_F32 || !strncmp(v.name, "grad.", 5) || !strcmp(v.name, "fp8.amax"))
            continue;
        const int64_t n = fp8c_type_bytes(&v.type) / (int64_t)sizeof(float), of = alike(r, i, &v);
        float *x = malloc((size_t)n * sizeof *x + 1);
        ok = x && fp8c_program_read(r->program, i, x) == FP8C_OK;
        for (int64_t k = 0; ok && k < n; k += of)
            look_at_values(&t->found, v.name, x, k, of);
        if (!ok)
            f8_train_fail(t->t, F8_ERR_IO, "%s: error: '%s' can't be read", t->folder.path, v.name);
        free(x);
    }
    return ok;
}

/* ---- rows ---- */

/* A row stands out where its largest element is so many times that of the median row. */
static const double outlier = 16;

/* The largest |element| of each row of an input, in `to`. */
static void sizes_of(const float *x, int64_t rows, int64_t columns, double *to)
{
    for (int64_t i = 0; i < rows; i++) {
        to[i] = 0;
        for (int64_t k = 0; k < columns; k++) {
            const double size = fabs((double)x[i * columns + k]);
            to[i] = !(size <= to[i]) ? (isnan(size) ? INFINITY : size) : to[i];
        }
    }
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* The file of an input: its name without folders. "": a text's. */
static const char *file_of(const f8_triage_search *t, const char *input)
{
    const f8_row_files *f = &t->data.rows.data;
    for (size_t i = 0; t->data.by_rows && i < f->n; i++)
        if (!input || !strcmp(f->file[i].name, input)) {
            const char *slash = strrchr(f->file[i].path, '/');
            return slash ? slash + 1 : f->file[i].path;
        }
    return "";
}

void f8_triage_note_row(f8_triage_search *t, uint64_t batch, int64_t row)
{
    f8_triage_row *to = &t->found.row;
    to->known = true;
    to->row = row;
    to->place = (int64_t)f8_data_place(&t->data, t->t->options->seed, batch, row);
    to->rank = t->t->ranks ? t->t->ranks->comm.rank : -1;
    f8_triage_copy_text(to->file, sizeof to->file, file_of(t, *to->input ? to->input : NULL));
}

/* Compares an input's rows in a batch with each other, and with those of another batch. */
static bool look_at_input(f8_triage_search *t, f8_replay *r, const fp8c_port *port, uint64_t batch,
                          double *ratio)
{
    f8_triage_row *to = &t->found.row;
    const int64_t rows = port->type.dim[0], columns = fp8c_type_bytes(&port->type) / 4 / rows;
    double *size = calloc((size_t)rows * 3, sizeof *size);
    bool ok = size || f8_train_no_memory(t->t);
    for (int i = 0; i < 2 && ok; i++) {
        ok = f8_replay_fill(r, r->micro_step, batch + (i ? 0 : F8_TRIAGE_FAR));
        const float *x = f8_data_buffer(r->program, r->micro_step, FP8C_INPUT, port->name);
        if (ok)
            sizes_of(x, rows, columns, size + i * rows);
    }
    for (int64_t i = 0; i < rows && ok; i++)
        size[2 * rows + i] = size[rows + i];
    const double *own = size + 2 * rows;
    if (ok)
        qsort(size, (size_t)rows * 2, sizeof *size, by_size);
    for (int64_t i = 0; i < rows && ok; i++) {
        const double usual = size[rows - 1], than = usual > 0 ? own[i] / usual : 0;
        if (than <= *ratio)
            continue;
        *ratio = than;
        f8_triage_copy_text(to->input, sizeof to->input, port->name);
        to->largest = own[i];
        to->usual = usual;
        f8_triage_note_row(t, batch, i);
    }
    free(size);
    return ok;
}

bool f8_triage_stands_out(const f8_triage_search *t, const f8_replay *r, int function, int64_t row)
{
    const f8_triage_row *as = &t->found.row;
    fp8c_port port;
    double size;
    const int at = fp8c_program_find_port(r->program, function, FP8C_INPUT, as->input);
    if (fp8c_program_port(r->program, function, FP8C_INPUT, at, &port) != FP8C_OK)
        return false;
    const int64_t columns = fp8c_type_bytes(&port.type) / 4 / port.type.dim[0];
    const float *x = fp8c_program_buffer(r->program, function, FP8C_INPUT, at);
    sizes_of(x + row * columns, 1, columns, &size);
    return size > outlier * as->usual;
}

bool f8_triage_find_row(f8_triage_search *t, f8_replay *r)
{
    fp8c_port port;
    double ratio = outlier;
    bool ok = true;
    t->found.row = (f8_triage_row){.rank = -1};
    for (int64_t a = 0; a < r->accumulate && ok; a++)
        for (int i = 0;
             ok && fp8c_program_port(r->program, r->micro_step, FP8C_INPUT, i, &port) == FP8C_OK;
             i++)
            if (port.variable < 0 && port.type.dtype == FP8C_F32 && port.type.rank > 0)
                ok = look_at_input(t, r, &port, (uint64_t)((t->found.step - 1) * r->accumulate + a),
                                   &ratio);
    return ok;
}

bool f8_triage_share_row(f8_triage_search *t)
{
    f8_triage_row *own = &t->found.row, *all;
    f8_ranks *ranks = t->t->ranks;
    if (!ranks)
        return true;
    all = calloc((size_t)ranks->comm.ranks, sizeof *all);
    const bool ok = all && f8_train_gather(t->t, "the rows that stand out", own, all, sizeof *all);
    if (!all)
        f8_train_no_memory(t->t);
    for (int i = 0; ok && i < ranks->comm.ranks; i++) {
        const bool more = !own->known || all[i].largest / all[i].usual > own->largest / own->usual;
        *own = all[i].known && more ? all[i] : *own;
    }
    free(all);
    return ok;
}
