/* Running functions on tensors from files: see call.h. */
#include <stdlib.h>
#include <string.h>

#include "frontend/call/call.h"
#include "frontend/records/records.h"
#include "ir/base/clock.h"

/* ---- functions and ports ---- */

static f8_status find_functions(f8_call *call, f8_diag *diag)
{
    char names[400] = "";
    const char *name;
    for (int i = 0; (name = fp8c_program_function_name(call->program, i)); i++) {
        const size_t n = strlen(names);
        snprintf(names + n, sizeof names - n, "%s%s", i ? ", " : "", name);
    }
    for (size_t i = 0; i < call->n_functions; i++)
        if ((call->index[i] = fp8c_program_function(call->program, call->function[i])) < 0)
            return f8_file_fail(diag, F8_ERR_INPUT, call->shown,
                                "there is no function '%s'; there are: %s", call->function[i],
                                names);
    return F8_OK;
}

static const f8_tensor_file *given(const f8_call *call, const char *name)
{
    for (size_t i = 0; i < call->n_inputs; i++)
        if (!strcmp(call->input[i].name, name))
            return &call->input[i];
    return NULL;
}

static bool same_type(const fp8c_type *a, const fp8c_type *b)
{
    return a->dtype == b->dtype && a->rank == b->rank &&
           !memcmp(a->dim, b->dim, (size_t)a->rank * sizeof *a->dim);
}

/* The index of the port of that name of function `at`, or -1. Variables are not the caller's. */
static int find_port(const f8_call *call, size_t at, fp8c_side side, const char *name,
                     fp8c_port *port)
{
    const int i = fp8c_program_find_port(call->program, call->index[at], side, name);
    if (i < 0 || fp8c_program_port(call->program, call->index[at], side, i, port) != FP8C_OK)
        return -1;
    return port->variable < 0 ? i : -1;
}

/* Input i of function `at`. false ends a loop. */
static bool input_of(const f8_call *call, size_t at, int i, fp8c_port *port)
{
    return fp8c_program_port(call->program, call->index[at], FP8C_INPUT, i, port) == FP8C_OK;
}

/* The buffer of the last output, of the functions before function `at`, that has the name and the
 * type of `input`; or NULL. */
static const void *earlier_output(const f8_call *call, size_t at, const fp8c_port *input)
{
    fp8c_port port;
    while (at-- > 0) {
        const int i = find_port(call, at, FP8C_OUTPUT, input->name, &port);
        if (i >= 0 && same_type(&port.type, &input->type))
            return fp8c_program_buffer(call->program, call->index[at], FP8C_OUTPUT, i);
    }
    return NULL;
}

/* ---- dims that are bounds ---- */

/* The shape of an input, in the file that is given for it. */
typedef struct shape {
    fp8c_tensor_view view;
    int64_t dim[F8_ST_MAX_RANK];
} shape;

static fp8c_status fit_shapes(f8_call *call, size_t at, shape *shapes,
                              const fp8c_tensor_view **views, f8_diag *diag)
{
    fp8c_port port;
    size_t n = 0;
    for (int i = 0; input_of(call, at, i, &port); i++) {
        if (port.variable >= 0)
            continue;
        const f8_tensor_file *file = given(call, port.name);
        shape *s = &shapes[n];
        views[n++] = file ? &s->view : NULL;
        s->view.shape = s->dim;
        call->failed_input = file ? file->name : NULL;
        if (file && f8_tensor_file_shape(file, s->dim, &s->view.ndim, diag) != F8_OK)
            return (fp8c_status)diag->status;
    }
    call->failed_input = NULL;
    return fp8c_program_fit(call->program, call->index[at], views, n);
}

static fp8c_status fit_function(f8_call *call, size_t at, f8_diag *diag)
{
    fp8c_port port;
    int n = 0;
    while (input_of(call, at, n, &port))
        n++;
    shape *shapes = calloc((size_t)n + 1, sizeof *shapes);
    const fp8c_tensor_view **views = calloc((size_t)n + 1, sizeof *views);
    const fp8c_status status =
        shapes && views ? fit_shapes(call, at, shapes, views, diag)
                        : (fp8c_status)f8_fail(diag, F8_ERR_MEMORY, F8_NOWHERE, "out of memory");
    free(shapes);
    free(views);
    return status;
}

/* Sets the values of dims that are bounds from the shapes in the files. */
static fp8c_status fit(f8_call *call, f8_diag *diag)
{
    fp8c_program_dim dim;
    const bool bounds = fp8c_program_dims(call->program, 0, &dim) == FP8C_OK;
    fp8c_status status = FP8C_OK;
    for (size_t f = 0; bounds && f < call->n_functions && status == FP8C_OK; f++)
        status = fit_function(call, f, diag);
    return status;
}

/* ---- inputs and outputs ---- */

/* An input that no function has: likely a name mistyped. */
static const char *strange_input(const f8_call *call)
{
    fp8c_port port;
    for (size_t k = 0; k < call->n_inputs; k++) {
        bool used = false;
        for (size_t f = 0; f < call->n_functions; f++)
            used |= find_port(call, f, FP8C_INPUT, call->input[k].name, &port) >= 0;
        if (!used)
            return call->input[k].name;
    }
    return NULL;
}

/* Checks that each input has a source. One message names all that have none. */
static f8_status check_inputs(const f8_call *call, f8_diag *diag)
{
    char missing[800] = "", type[F8_TYPE_TEXT];
    const char *strange = strange_input(call), *option = call->input_option;
    fp8c_port port;
    for (size_t f = 0; f < call->n_functions; f++)
        for (int i = 0; input_of(call, f, i, &port); i++) {
            const size_t n = strlen(missing);
            if (port.variable < 0 && !given(call, port.name) && !earlier_output(call, f, &port))
                snprintf(missing + n, sizeof missing - n, "%s%s of %s, %s", n ? "; " : "",
                         port.name, call->function[f], f8_type_shown(&port.type, type));
        }
    if (*missing && strange)
        return f8_file_fail(diag, F8_ERR_INPUT, call->shown,
                            "inputs are missing: %s (give %s NAME=FILE); and none of the functions "
                            "has an input '%s', which %s gives",
                            missing, option, strange, option);
    if (*missing)
        return f8_file_fail(diag, F8_ERR_INPUT, call->shown,
                            "inputs are missing: %s (give %s NAME=FILE)", missing, option);
    if (strange)
        return f8_file_fail(diag, F8_ERR_INPUT, call->shown,
                            "%s %s: none of the functions has an input of this name", option,
                            strange);
    return F8_OK;
}

/* Finds the buffer of each output, which is that of the last output of its name, and checks that
 * all files can be written. */
static f8_status find_outputs(f8_call *call, f8_diag *diag)
{
    for (size_t k = 0; k < call->n_outputs; k++) {
        f8_tensor_output *o = &call->output[k];
        fp8c_port port;
        for (size_t f = call->n_functions; f-- > 0 && !o->bytes;) {
            const int i = find_port(call, f, FP8C_OUTPUT, o->file.name, &port);
            if (i < 0)
                continue;
            o->type = port.type;
            o->bytes = fp8c_program_buffer(call->program, call->index[f], FP8C_OUTPUT, i);
        }
        if (!o->bytes)
            return f8_file_fail(diag, F8_ERR_INPUT, call->shown,
                                "%s %s: none of the functions has an output of this name",
                                call->output_option, o->file.name);
    }
    F8_TRY(f8_tensor_files_writable(call->list, call->output, call->n_outputs, diag));
    return call->save ? f8_file_writable(call->list, call->save, diag) : F8_OK;
}

f8_status f8_call_fill(const f8_call *call, fp8c_program *program, int function, f8_diag *diag)
{
    fp8c_port port;
    for (int i = 0; fp8c_program_port(program, function, FP8C_INPUT, i, &port) == FP8C_OK; i++) {
        const f8_tensor_file *file = port.variable < 0 ? given(call, port.name) : NULL;
        if (file)
            F8_TRY(f8_tensor_file_read(
                file, &port.type, fp8c_program_buffer(program, function, FP8C_INPUT, i), diag));
    }
    return F8_OK;
}

static f8_status read_inputs(f8_call *call, f8_diag *diag)
{
    fp8c_port port;
    for (size_t k = 0; k < call->n_inputs; k++)
        for (size_t f = 0; f < call->n_functions; f++) {
            const int i = find_port(call, f, FP8C_INPUT, call->input[k].name, &port);
            call->failed_input = call->input[k].name;
            if (i >= 0)
                F8_TRY(f8_tensor_file_read(
                    &call->input[k], &port.type,
                    fp8c_program_buffer(call->program, call->index[f], FP8C_INPUT, i), diag));
        }
    call->failed_input = NULL;
    return F8_OK;
}

fp8c_status f8_call_prepare(f8_call *call, f8_diag *diag)
{
    f8_status status = find_functions(call, diag);
    if (status == F8_OK)
        status = (f8_status)fit(call, diag);
    if (status == F8_OK)
        status = check_inputs(call, diag);
    if (status == F8_OK)
        status = find_outputs(call, diag);
    if (status == F8_OK)
        status = read_inputs(call, diag);
    return (fp8c_status)status;
}

/* ---- running ---- */

static fp8c_status run_function(const f8_call *call, size_t at)
{
    fp8c_port port;
    for (int i = 0; input_of(call, at, i, &port); i++)
        if (port.variable < 0 && !given(call, port.name))
            memcpy(fp8c_program_buffer(call->program, call->index[at], FP8C_INPUT, i),
                   earlier_output(call, at, &port), (size_t)fp8c_type_bytes(&port.type));
    return fp8c_program_run(call->program, call->index[at]);
}

static fp8c_status run_once(const f8_call *call)
{
    fp8c_status status = FP8C_OK;
    for (size_t i = 0; i < call->n_functions && status == FP8C_OK; i++)
        status = run_function(call, i);
    return status;
}

static int by_size(const void *x, const void *y)
{
    const double a = *(const double *)x, b = *(const double *)y;
    return a < b ? -1 : a > b;
}

fp8c_status f8_call_repeat(const f8_call *call, int64_t n, double *median, double *least,
                           f8_diag *diag)
{
    double *seconds = calloc((size_t)n, sizeof *seconds);
    fp8c_status status =
        seconds ? FP8C_OK
                : (fp8c_status)f8_file_fail(diag, F8_ERR_MEMORY, call->shown, "out of memory");
    for (int64_t k = 0; k < n && status == FP8C_OK; k++) {
        const double start = f8_seconds_now();
        status = run_once(call);
        seconds[k] = f8_seconds_now() - start;
    }
    if (status == FP8C_OK) {
        qsort(seconds, (size_t)n, sizeof *seconds, by_size);
        *median = seconds[n / 2];
        *least = seconds[0];
    }
    free(seconds);
    return status;
}

fp8c_status f8_call_write(f8_call *call, f8_diag *diag)
{
    const f8_status status = f8_tensor_files_write(call->list, call->output, call->n_outputs, diag);
    return status == F8_OK && call->save ? fp8c_program_save(call->program, call->save, NULL)
                                         : (fp8c_status)status;
}

void f8_call_free(f8_call *call)
{
    for (size_t i = 0; i < F8_CALL_MOST; i++) {
        f8_tensor_file_free(&call->input[i]);
        f8_tensor_file_free(&call->output[i].file);
    }
}
