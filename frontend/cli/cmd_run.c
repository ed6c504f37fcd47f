/* fp8c run: runs functions on tensors from files. It opens a .f8x file, or compiles a text. */
#include <inttypes.h>
#include <string.h>

#include "frontend/call/call.h"
#include "frontend/cli/auto.h"
#include "frontend/cli/checkpoint.h"

typedef struct run {
    cli_job job; /* without a module: the program was opened */
    fp8c_compile_options options;
    f8_loader weights;
    f8_stored stored; /* the recipes under which the files store them */
    f8_call call;
    double median, least; /* seconds of a repetition */
} run;

/* ---- options ---- */

static int read_options(run *r)
{
    static const char form[] = "%s '%s' is not NAME=FILE.npy or NAME=FILE.safetensors[:TENSOR]";
    const cli *c = r->job.c;
    f8_call *call = &r->call;
    *call = (f8_call){.shown = c->file,
                      .n_functions = c->functions.n ? c->functions.n : 1,
                      .function = {"eval"},
                      .n_inputs = c->inputs.n,
                      .n_outputs = c->outputs.n,
                      .save = c->save,
                      .input_option = "--input",
                      .output_option = "--output",
                      .list = cli_temporaries()};
    for (size_t i = 0; i < c->inputs.n; i++) {
        if (!f8_tensor_file_parse(c->inputs.text[i], &call->input[i]))
            return cli_usage(c, form, "--input", c->inputs.text[i]);
        for (size_t k = 0; k < i; k++)
            if (!strcmp(call->input[k].name, call->input[i].name))
                return cli_usage(c, "--input '%s' is given twice", call->input[i].name);
    }
    for (size_t i = 0; i < c->outputs.n; i++)
        if (!f8_tensor_file_parse(c->outputs.text[i], &call->output[i].file))
            return cli_usage(c, form, "--output", c->outputs.text[i]);
    if (!c->weights.n && (c->ignore.n || c->map.n || c->allow_missing.n))
        return cli_usage(c, "--ignore, --map and --allow-missing need --weights FILE");
    for (size_t i = 0; i < c->functions.n; i++)
        call->function[i] = c->functions.text[i];
    return CLI_DONE;
}

/* ---- the program ---- */

static bool compile(run *r)
{
    if (!cli_load(r->job.c, &r->job.ctx, &r->job.module))
        return false;
    r->options = cli_compile_options(r->job.c, r->job.c->recipe);
    const bool updates = cli_asks_for(r->job.c, "micro_step", "update");
    r->options.pair = cli_asks_for(r->job.c, "forward", "backward");
    r->options.train_step = r->options.pair && updates;
    r->options.inference = !r->options.pair && !updates;
    if (!r->options.inference && !r->options.pair)
        cli_note_steps(r->job.c);
    if (r->job.c->weights.n && !cli_stored_read(&r->stored, &r->weights, r->job.ctx))
        return false;
    r->options.stored_weights = r->stored.weight;
    r->options.n_stored_weights = r->stored.n;
    return cli_ok(r->job.ctx, fp8c_compile(r->job.module, &r->options, &r->call.program));
}

static bool open_package(run *r)
{
    const cli *c = r->job.c;
    const fp8c_open_options options = {.struct_size = sizeof options,
                                       .target = c->target,
                                       .threads = c->threads,
                                       .profile = c->profile,
                                       .device = c->device};
    r->job.ctx = cli_context();
    if (!r->job.ctx)
        return false;
    fp8c_status status = fp8c_program_open(r->job.ctx, c->file, &options, &r->call.program);
    for (size_t i = 0; i < c->dims.n && status == FP8C_OK; i++)
        status = fp8c_program_set_dim(r->call.program, c->dims.dim[i].name, c->dims.dim[i].value);
    return cli_ok(r->job.ctx, status);
}

static bool prepare(run *r)
{
    f8_diag diag = {0};
    const fp8c_status status = f8_call_prepare(&r->call, &diag);
    if (status != FP8C_OK && r->call.failed_input)
        cli_say(stderr, "fp8c run: --input %s: ", r->call.failed_input);
    return cli_done(r->job.ctx, status, &diag);
}

/* ---- weights ---- */

/* The batch that the program which observes sees is what --input gives. */
static f8_status fill(void *call, fp8c_program *observer, int eval, int64_t index, f8_diag *diag)
{
    (void)index;
    return f8_call_fill(call, observer, eval, diag);
}

/* Loads the weights. A program for inference takes them as `fp8c eval` does. A program that trains
 * takes everything from a checkpoint that holds states, else the parameters alone. */
static bool load(run *r)
{
    const cli *c = r->job.c;
    fp8c_program *program = r->call.program;
    f8_diag diag = {0};
    if (!c->weights.n)
        return cli_ok(r->job.ctx, fp8c_program_initialize(program, c->seed));
    if (r->job.module && r->options.inference) {
        const fp8c_status status = f8_loader_observe(&r->weights, r->job.module, &r->options,
                                                     program, 1, fill, &r->call, &diag);
        if (!cli_weights_done(&r->weights, &r->job, c->recipe, status, &diag))
            return false;
    }
    const fp8c_status status = f8_loader_load(&r->weights, program, &diag);
    return cli_weights_done(&r->weights, &r->job, c->recipe, status, &diag);
}

/* ---- the report ---- */

static void report_output(run *r, size_t at, const fp8c_port *port, const void *bytes)
{
    char type[F8_TYPE_TEXT];
    const f8_summary s = f8_call_summarize(&port->type, bytes);
    FILE *to = r->job.to;
    cli_json_record(&r->job.json, f8_record_output(r->call.function[at], port, bytes, &s));
    cli_say(to, "%-12s %-20s %-20s ", r->call.function[at], port->name,
            f8_type_shown(&port->type, type));
    if (s.n == 1)
        cli_say(to, "%.9g", f8_call_element(port->type.dtype, bytes, 0));
    else
        cli_say(to, "min %.6g, max %.6g, mean %.6g", s.min, s.max, s.mean);
    if (s.n > 1 && s.finite < s.n)
        cli_say(to, "; %" PRId64 " of %" PRId64 " are not finite", s.n - s.finite, s.n);
    cli_say(to, "\n");
}

static void report(run *r)
{
    fp8c_program *program = r->call.program;
    const char *target = fp8c_program_target(program);
    const int64_t n = r->job.c->repeat;
    fp8c_port port;
    if (r->job.c->weights.n)
        cli_weights_report(&r->weights, &r->job, r->job.c->recipe);
    for (size_t f = 0; f < r->call.n_functions; f++) {
        const int function = r->call.index[f];
        for (int i = 0; fp8c_program_port(program, function, FP8C_OUTPUT, i, &port) == FP8C_OK; i++)
            if (port.variable < 0)
                report_output(r, f, &port, fp8c_program_buffer(program, function, FP8C_OUTPUT, i));
    }
    cli_json_record(&r->job.json,
                    json_pack("{ss ss sI sf sf}", "event", "run", "target", target, "times",
                              (json_int_t)n, "seconds_median", r->median, "seconds_min", r->least));
    if (cli_json_to_stdout(r->job.c))
        return;
    cli_print_calibrated(r->job.c->recipe, r->weights.batches, "the inputs given");
    if (n > 1)
        cli_say(stdout, "%" PRId64 " times on %s: median %.6g ms, least %.6g ms\n", n, target,
                1e3 * r->median, 1e3 * r->least);
}

/* How often --function names it, in all repetitions. */
static double runs_of(const void *run_, int function)
{
    const run *r = run_;
    int64_t n = 0;
    for (size_t i = 0; i < r->call.n_functions; i++)
        n += r->call.index[i] == function;
    return (double)(n ? n * r->job.c->repeat : 1); /* a form for the first run is not named */
}

static bool profile(run *r)
{
    return cli_profile(r->job.c, r->call.program, runs_of, r, -1, "repetition",
                       (double)r->job.c->repeat, &r->job.json, NULL);
}

/* ---- the command ---- */

static bool run_and_write(run *r)
{
    f8_diag diag = {0};
    fp8c_status status = f8_call_repeat(&r->call, r->job.c->repeat, &r->median, &r->least, &diag);
    if (status == FP8C_OK)
        status = f8_call_write(&r->call, &diag);
    if (status == FP8C_OK)
        report(r);
    return cli_done(r->job.ctx, status, &diag) && profile(r);
}

/* Everything that can be checked is checked before anything is computed. */
static bool run_program(run *r)
{
    if (r->job.c->weights.n && !cli_weights_open(&r->weights, r->job.c))
        return false;
    return (cli_is_package(r->job.c->file) ? open_package(r) : compile(r)) && prepare(r) &&
           cli_json_open(&r->job.json, r->job.c->json) && load(r) && run_and_write(r);
}

int cmd_run(const cli *given)
{
    cli c = *given;
    run r = {.job = {.c = &c, .to = cli_table(&c)}};
    c.repeat = c.repeat ? c.repeat : 1;
    if (cli_refuses_auto(&c))
        return CLI_USAGE;
    const int code = read_options(&r);
    const bool ok = code == CLI_DONE && run_program(&r);
    f8_stored_free(&r.stored);
    f8_loader_close(&r.weights);
    f8_call_free(&r.call);
    r.job.program = r.call.program;
    const int end = cli_end(&r.job, ok);
    return code == CLI_DONE ? end : code;
}
