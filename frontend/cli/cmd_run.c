/* fp8c run: runs functions on tensors from files. It opens a .f8x file, or compiles a text. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/cli/cmd_calibrate.h"
#include "frontend/cli/cmd_observe.h"
#include "frontend/checkpoint/tensor_file.h"
#include "ir/base/clock.h"

typedef struct run {
    const cli *c;
    fp8c_context *ctx;
    fp8c_program *program;
    fp8c_module *module; /* NULL: the program was opened */
    fp8c_compile_options options;
    cli_weights weights;
    cli_stored stored; /* the recipes under which the files store them */
    cli_json json;
    const char *name[CLI_MAX_TEXTS]; /* the functions, in the order in which they run */
    int function[CLI_MAX_TEXTS];
    size_t n;
    f8_tensor_file input[CLI_MAX_TEXTS];
    f8_tensor_output output[CLI_MAX_TEXTS];
    double *seconds; /* of each repetition */
} run;

static int usage(const char *format, const char *what)
{
    fprintf(stderr, "fp8c run: ");
    fprintf(stderr, format, what);
    fprintf(stderr, "; see fp8c run --help\n");
    return CLI_USAGE;
}

static bool fail(const run *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
static bool fail(const run *r, const char *format, ...)
{
    va_list args;
    fprintf(stderr, "%s: error: ", r->c->file);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    return false;
}

/* ---- options ---- */

static int read_options(run *r)
{
    const cli *c = r->c;
    for (size_t i = 0; i < c->inputs.n; i++) {
        if (!f8_tensor_file_parse(c->inputs.text[i], &r->input[i]))
            return usage("--input '%s' is not NAME=FILE.npy or NAME=FILE.safetensors[:TENSOR]",
                         c->inputs.text[i]);
        for (size_t k = 0; k < i; k++)
            if (!strcmp(r->input[k].name, r->input[i].name))
                return usage("--input '%s' is given twice", r->input[i].name);
    }
    for (size_t i = 0; i < c->outputs.n; i++)
        if (!f8_tensor_file_parse(c->outputs.text[i], &r->output[i].file))
            return usage("--output '%s' is not NAME=FILE.npy or NAME=FILE.safetensors[:TENSOR]",
                         c->outputs.text[i]);
    if (!c->weights.n && (c->ignore.n || c->map.n || c->allow_missing.n))
        return usage("--ignore, --map and --allow-missing need --weights FILE%s", "");
    r->n = c->functions.n ? c->functions.n : 1;
    for (size_t i = 0; i < r->n; i++)
        r->name[i] = c->functions.n ? c->functions.text[i] : "eval";
    return CLI_DONE;
}

/* ---- the program ---- */

static bool asks_for(const run *r, const char *a, const char *b)
{
    for (size_t i = 0; i < r->n; i++)
        if (!strcmp(r->name[i], a) || !strcmp(r->name[i], b))
            return true;
    return false;
}

static bool compile(run *r)
{
    if (!cli_load(r->c, &r->ctx, &r->module))
        return false;
    r->options = cli_compile_options(r->c, r->c->recipe);
    r->options.pair = asks_for(r, "forward", "backward");
    r->options.train_step = r->options.pair && asks_for(r, "micro_step", "update");
    r->options.inference = !r->options.pair && !asks_for(r, "micro_step", "update");
    if (!r->options.inference && !r->options.pair)
        cli_note_steps(r->c);
    if (r->c->weights.n && !cli_stored_read(&r->stored, &r->weights.files, r->ctx))
        return false;
    r->options.stored_weights = r->stored.weight;
    r->options.n_stored_weights = r->stored.n;
    return fp8c_compile(r->module, &r->options, &r->program) == FP8C_OK ||
           cli_fail(r->ctx) == CLI_DONE;
}

static bool open_package(run *r)
{
    const cli *c = r->c;
    const fp8c_open_options options = {.struct_size = sizeof options,
                                       .target = c->target,
                                       .threads = c->threads,
                                       .device = c->device};
    r->ctx = cli_context();
    if (!r->ctx)
        return false;
    bool ok = fp8c_program_open(r->ctx, c->file, &options, &r->program) == FP8C_OK;
    for (size_t i = 0; ok && i < c->dims.n; i++)
        ok = fp8c_program_set_dim(r->program, c->dims.dim[i].name, c->dims.dim[i].value) == FP8C_OK;
    return ok || cli_fail(r->ctx) == CLI_DONE;
}

static bool find_functions(run *r)
{
    char names[400] = "";
    const char *name;
    for (int i = 0; (name = fp8c_program_function_name(r->program, i)); i++)
        snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s", i ? ", " : "", name);
    for (size_t i = 0; i < r->n; i++)
        if ((r->function[i] = fp8c_program_function(r->program, r->name[i])) < 0)
            return fail(r, "there is no function '%s'; there are: %s", r->name[i], names);
    return true;
}

/* ---- inputs and outputs ---- */

static const f8_tensor_file *given(const run *r, const char *name)
{
    for (size_t i = 0; i < r->c->inputs.n; i++)
        if (!strcmp(r->input[i].name, name))
            return &r->input[i];
    return NULL;
}

static bool same_type(const fp8c_type *a, const fp8c_type *b)
{
    bool same = a->dtype == b->dtype && a->rank == b->rank;
    for (int32_t i = 0; same && i < a->rank; i++)
        same = a->dim[i] == b->dim[i];
    return same;
}

/* The index of the port of that name, or -1. Variables are not the caller's ports. */
static int find_port(const run *r, size_t at, fp8c_side side, const char *name, fp8c_port *port)
{
    const int i = fp8c_program_find_port(r->program, r->function[at], side, name);
    if (i < 0 || fp8c_program_port(r->program, r->function[at], side, i, port) != FP8C_OK)
        return -1;
    return port->variable < 0 ? i : -1;
}

/* The buffer of the last output, of the functions before function `at`, that has the name and the
 * type of `input`; or NULL. */
static const void *earlier_output(const run *r, size_t at, const fp8c_port *input)
{
    fp8c_port port;
    while (at-- > 0) {
        const int i = find_port(r, at, FP8C_OUTPUT, input->name, &port);
        if (i >= 0 && same_type(&port.type, &input->type))
            return fp8c_program_buffer(r->program, r->function[at], FP8C_OUTPUT, i);
    }
    return NULL;
}

/* The shape of an input, in the file that is given for it. */
typedef struct shape {
    fp8c_tensor_view view;
    int64_t dim[F8_ST_MAX_RANK];
} shape;

static size_t count_inputs(const run *r, size_t at)
{
    fp8c_port port;
    int n = 0;
    while (fp8c_program_port(r->program, r->function[at], FP8C_INPUT, n, &port) == FP8C_OK)
        n++;
    return (size_t)n;
}

static bool fit_shapes(const run *r, size_t at, shape *shapes, const fp8c_tensor_view **views)
{
    f8_diag diag = {0};
    fp8c_port port;
    size_t n = 0;
    for (int i = 0; fp8c_program_port(r->program, r->function[at], FP8C_INPUT, i, &port) == FP8C_OK;
         i++) {
        if (port.variable >= 0)
            continue;
        const f8_tensor_file *file = given(r, port.name);
        shape *s = &shapes[n];
        views[n++] = file ? &s->view : NULL;
        s->view.shape = s->dim;
        if (file && f8_tensor_file_shape(file, s->dim, &s->view.ndim, &diag) != F8_OK) {
            fprintf(stderr, "fp8c run: --input %s: ", port.name);
            return cli_file_fail(&diag);
        }
    }
    return fp8c_program_fit(r->program, r->function[at], views, n) == FP8C_OK ||
           cli_fail(r->ctx) == CLI_DONE;
}

/* Sets the values of dims that are bounds from the shapes in the files. */
static bool fit_function(const run *r, size_t at)
{
    const size_t n = count_inputs(r, at);
    shape *shapes = calloc(n + 1, sizeof *shapes);
    const fp8c_tensor_view **views = calloc(n + 1, sizeof *views);
    const bool ok = shapes && views && fit_shapes(r, at, shapes, views);
    if (!shapes || !views)
        fprintf(stderr, "fp8c: error: out of memory\n");
    free(shapes);
    free(views);
    return ok;
}

static bool fit(const run *r)
{
    fp8c_program_dim dim;
    const bool bounds = fp8c_program_dims(r->program, 0, &dim) == FP8C_OK;
    for (size_t f = 0; bounds && f < r->n; f++)
        if (!fit_function(r, f))
            return false;
    return true;
}

/* Checks that each input has a source. One message names all that have none. */
static bool check_inputs(const run *r)
{
    char missing[800] = "", type[CLI_TYPE_TEXT];
    fp8c_port port;
    for (size_t f = 0; f < r->n; f++)
        for (int i = 0;
             fp8c_program_port(r->program, r->function[f], FP8C_INPUT, i, &port) == FP8C_OK; i++) {
            const size_t n = strlen(missing);
            if (port.variable < 0 && !given(r, port.name) && !earlier_output(r, f, &port))
                snprintf(missing + n, sizeof missing - n, "%s%s of %s, %s", n ? "; " : "",
                         port.name, r->name[f], cli_type(&port.type, type));
        }
    const char *strange = NULL; /* an --input that no function has: likely a name mistyped */
    for (size_t k = 0; k < r->c->inputs.n && !strange; k++) {
        bool used = false;
        for (size_t f = 0; f < r->n; f++)
            used |= find_port(r, f, FP8C_INPUT, r->input[k].name, &port) >= 0;
        strange = used ? NULL : r->input[k].name;
    }
    if (*missing && strange)
        return fail(r,
                    "inputs are missing: %s (give --input NAME=FILE); and none of the functions "
                    "has an input '%s', which --input gives",
                    missing, strange);
    if (*missing)
        return fail(r, "inputs are missing: %s (give --input NAME=FILE)", missing);
    if (strange)
        return fail(r, "--input %s: none of the functions has an input of this name", strange);
    return true;
}

/* Finds the buffer of each output, which is that of the last output of its name, and checks that
 * all files can be written. */
static bool find_outputs(run *r)
{
    f8_diag diag = {0};
    for (size_t k = 0; k < r->c->outputs.n; k++) {
        f8_tensor_output *o = &r->output[k];
        fp8c_port port;
        for (size_t f = r->n; f-- > 0 && !o->bytes;) {
            const int i = find_port(r, f, FP8C_OUTPUT, o->file.name, &port);
            if (i < 0)
                continue;
            o->type = port.type;
            o->bytes = fp8c_program_buffer(r->program, r->function[f], FP8C_OUTPUT, i);
        }
        if (!o->bytes)
            return fail(r, "--output %s: none of the functions has an output of this name",
                        o->file.name);
    }
    if (f8_tensor_files_writable(cli_temporaries(), r->output, r->c->outputs.n, &diag) != F8_OK)
        return cli_file_fail(&diag);
    return !r->c->save || f8_file_writable(cli_temporaries(), r->c->save, &diag) == F8_OK ||
           cli_file_fail(&diag);
}

static bool read_inputs(const run *r)
{
    f8_diag diag = {0};
    fp8c_port port;
    for (size_t k = 0; k < r->c->inputs.n; k++)
        for (size_t f = 0; f < r->n; f++) {
            const int i = find_port(r, f, FP8C_INPUT, r->input[k].name, &port);
            if (i >= 0 &&
                f8_tensor_file_read(&r->input[k], &port.type,
                                    fp8c_program_buffer(r->program, r->function[f], FP8C_INPUT, i),
                                    &diag) != F8_OK) {
                fprintf(stderr, "fp8c run: --input %s: ", r->input[k].name);
                return cli_file_fail(&diag);
            }
        }
    return true;
}

/* ---- weights ---- */

/* Fills the inputs of the program that observes: the batch is what --input gives. */
static bool fill_given(void *user, fp8c_program *observer, int eval, int64_t index)
{
    const run *r = user;
    f8_diag diag = {0};
    fp8c_port port;
    (void)index;
    for (int i = 0; fp8c_program_port(observer, eval, FP8C_INPUT, i, &port) == FP8C_OK; i++) {
        const f8_tensor_file *file = port.variable < 0 ? given(r, port.name) : NULL;
        if (file &&
            f8_tensor_file_read(file, &port.type,
                                fp8c_program_buffer(observer, eval, FP8C_INPUT, i), &diag) != F8_OK)
            return cli_file_fail(&diag);
    }
    return true;
}

/* Loads the weights. A program for inference takes them as `fp8c eval` does. A program that trains
 * takes everything from a checkpoint that holds states, else the parameters alone. */
static bool load(run *r)
{
    if (!r->c->weights.n)
        return fp8c_program_initialize(r->program, r->c->seed) == FP8C_OK ||
               cli_fail(r->ctx) == CLI_DONE;
    if (r->module && r->options.inference &&
        !cli_observe(&r->weights, r->ctx, r->module, &r->options, r->program, 1, fill_given, r))
        return false;
    return cli_weights_load(&r->weights, r->ctx, r->program, r->c->recipe);
}

/* ---- running ---- */

static bool run_function(const run *r, size_t at)
{
    fp8c_port port;
    for (int i = 0; fp8c_program_port(r->program, r->function[at], FP8C_INPUT, i, &port) == FP8C_OK;
         i++)
        if (port.variable < 0 && !given(r, port.name))
            memcpy(fp8c_program_buffer(r->program, r->function[at], FP8C_INPUT, i),
                   earlier_output(r, at, &port), (size_t)fp8c_type_bytes(&port.type));
    return fp8c_program_run(r->program, r->function[at]) == FP8C_OK || cli_fail(r->ctx) == CLI_DONE;
}

static bool run_all(const run *r)
{
    for (int64_t k = 0; k < r->c->repeat; k++) {
        const double start = f8_seconds_now();
        for (size_t i = 0; i < r->n; i++)
            if (!run_function(r, i))
                return false;
        r->seconds[k] = f8_seconds_now() - start;
    }
    return true;
}

/* ---- the report ---- */

typedef struct figures {
    double min, max, mean;
    int64_t finite, n;
} figures;

/* Element i as a number. An FP8 code counts as its bits, 0 to 255. */
static double element(fp8c_dtype dtype, const void *bytes, int64_t i)
{
    float x;
    switch (dtype) {
    case FP8C_F32: return (double)((const float *)bytes)[i];
    case FP8C_I32: return ((const int32_t *)bytes)[i];
    case FP8C_I64: return (double)((const int64_t *)bytes)[i];
    case FP8C_BF16:
        f8_checkpoint_widen(F8_ST_BF16, (const uint16_t *)bytes + i, &x, 1);
        return (double)x;
    case FP8C_F16:
        f8_checkpoint_widen(F8_ST_F16, (const uint16_t *)bytes + i, &x, 1);
        return (double)x;
    default: return ((const uint8_t *)bytes)[i];
    }
}

static figures summarize(const fp8c_type *type, const void *bytes)
{
    figures f = {.min = INFINITY, .max = -INFINITY, .n = 1};
    for (int32_t i = 0; i < type->rank; i++)
        f.n *= type->dim[i];
    for (int64_t i = 0; i < f.n; i++) {
        const double x = element(type->dtype, bytes, i);
        if (!isfinite(x))
            continue;
        f.finite++;
        f.min = fmin(f.min, x);
        f.max = fmax(f.max, x);
        f.mean += x;
    }
    f.mean = f.finite ? f.mean / (double)f.finite : NAN;
    return f;
}

static void report_output(run *r, size_t at, const fp8c_port *port, const void *bytes)
{
    char type[CLI_TYPE_TEXT];
    const figures f = summarize(&port->type, bytes);
    const bool single = f.n == 1;
    cli_json_record(
        &r->json,
        json_pack("{ss ss ss ss so so so so sI}", "event", "output", "function", r->name[at],
                  "name", port->name, "type", cli_type(&port->type, type), "value",
                  single ? cli_json_number(element(port->type.dtype, bytes, 0)) : json_null(),
                  "min", cli_json_number(f.min), "max", cli_json_number(f.max), "mean",
                  cli_json_number(f.mean), "not_finite", (json_int_t)(f.n - f.finite)));
    if (cli_json_to_stdout(r->c))
        return;
    printf("%-12s %-20s %-20s ", r->name[at], port->name, cli_type(&port->type, type));
    if (single)
        printf("%.9g\n", element(port->type.dtype, bytes, 0));
    else if (f.finite == f.n)
        printf("min %.6g, max %.6g, mean %.6g\n", f.min, f.max, f.mean);
    else
        printf("min %.6g, max %.6g, mean %.6g; %" PRId64 " of %" PRId64 " are not finite\n", f.min,
               f.max, f.mean, f.n - f.finite, f.n);
}

static int by_size(const void *x, const void *y)
{
    const double a = *(const double *)x, b = *(const double *)y;
    return a < b ? -1 : a > b;
}

static void report(run *r)
{
    fp8c_port port;
    if (r->c->weights.n)
        cli_weights_report(&r->weights, r->c->recipe, &r->json);
    for (size_t f = 0; f < r->n; f++)
        for (int i = 0;
             fp8c_program_port(r->program, r->function[f], FP8C_OUTPUT, i, &port) == FP8C_OK; i++)
            if (port.variable < 0)
                report_output(r, f, &port,
                              fp8c_program_buffer(r->program, r->function[f], FP8C_OUTPUT, i));
    const int64_t n = r->c->repeat;
    qsort(r->seconds, (size_t)n, sizeof *r->seconds, by_size);
    cli_json_record(&r->json,
                    json_pack("{ss ss sI sf sf}", "event", "run", "target",
                              fp8c_program_target(r->program), "times", (json_int_t)n,
                              "seconds_median", r->seconds[n / 2], "seconds_min", r->seconds[0]));
    if (cli_json_to_stdout(r->c))
        return;
    cli_print_calibrated(r->c->recipe, r->weights.batches, "the inputs given");
    if (n > 1)
        printf("%" PRId64 " times on %s: median %.6g ms, least %.6g ms\n", n,
               fp8c_program_target(r->program), 1e3 * r->seconds[n / 2], 1e3 * r->seconds[0]);
}

/* ---- the command ---- */

static bool finish(run *r)
{
    f8_diag diag = {0};
    if (f8_tensor_files_write(cli_temporaries(), r->output, r->c->outputs.n, &diag) != F8_OK)
        return cli_file_fail(&diag);
    if (r->c->save && fp8c_program_save(r->program, r->c->save, NULL) != FP8C_OK)
        return cli_fail(r->ctx) == CLI_DONE;
    report(r);
    return true;
}

/* Everything that can be checked is checked before anything is computed. */
static bool run_program(run *r)
{
    r->seconds = calloc((size_t)r->c->repeat, sizeof *r->seconds);
    if (!r->seconds)
        return fail(r, "out of memory");
    if (r->c->weights.n && !cli_weights_open(&r->weights, r->c))
        return false;
    return (cli_is_package(r->c->file) ? open_package(r) : compile(r)) && find_functions(r) &&
           fit(r) && check_inputs(r) && find_outputs(r) && read_inputs(r) &&
           cli_json_open(&r->json, r->c->json) && load(r) && run_all(r) && finish(r);
}

int cmd_run(const cli *given_options)
{
    cli c = *given_options;
    run r = {.c = &c};
    c.repeat = c.repeat ? c.repeat : 1;
    if (cli_refuses_auto(&c, c.recipe))
        return CLI_USAGE;
    int code = read_options(&r);
    if (code == CLI_DONE) {
        bool ok = run_program(&r);
        ok &= cli_json_close(&r.json);
        code = ok ? CLI_DONE : CLI_FAILED;
    }
    for (size_t i = 0; i < CLI_MAX_TEXTS; i++) {
        f8_tensor_file_free(&r.input[i]);
        f8_tensor_file_free(&r.output[i].file);
    }
    free(r.seconds);
    cli_stored_free(&r.stored);
    cli_weights_close(&r.weights);
    fp8c_module_destroy(r.module);
    fp8c_program_destroy(r.program);
    fp8c_context_destroy(r.ctx);
    return code;
}
