/* fp8c export: writes the weights of a checkpoint as FP8 codes with their scales, for inference. It
 * compiles a program for inference that stores weights as the recipe says (passes/scale/serve.c),
 * lets it quantize them, and writes the program's variables. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/cli/cmd_calibrate.h"
#include "frontend/cli/cmd_observe.h"

typedef struct export {
    const cli *c;
    fp8c_context *ctx;
    fp8c_module *module;
    fp8c_program *program;
    cli_weights weights;
    f8_load load;      /* load.from: of each variable; NULL: the program made the value */
    f8_data data;      /* to calibrate on */
    f8_st_dtype dtype; /* of parameters that stay out of FP8; F8_ST_N_DTYPES: the checkpoint's */
    f8_st_tensor *tensor;      /* of the file that is written */
    int *variable;             /* of each tensor */
    size_t n;
    char *names;               /* the names of states in the file */
    cli_json json;
} export;

/* ---- the tensors of the file ---- */

/* The dtype in the file: --dtype or the checkpoint's, but `own` for what the program made (is_made:
 * codes and scales). */
static f8_st_dtype dtype_of(const export *e, int i, bool is_made, f8_st_dtype own)
{
    if (is_made || own != F8_ST_F32)
        return own;
    if (e->dtype != F8_ST_N_DTYPES)
        return e->dtype;
    return e->load.from[i] ? e->load.from[i]->tensor->dtype : own;
}

static bool is_made(const export *e, int variable)
{
    fp8c_stored s;
    for (int k = 0; fp8c_program_stored(e->program, k, &s) == FP8C_OK; k++)
        if (s.variable == variable || s.scale_variable == variable)
            return true;
    return false;
}

/* Lists the parameters, and the states that eval reads. */
static bool list(export *e)
{
    fp8c_variable v;
    size_t bytes = 1, used = 0;
    int n = 0;
    for (; fp8c_program_variable(e->program, n, &v) == FP8C_OK; n++)
        bytes += v.is_param ? 0 : strlen(f8_checkpoint_prefix) + strlen(v.name) + 1;
    e->tensor = calloc((size_t)n + 1, sizeof *e->tensor);
    e->variable = calloc((size_t)n + 1, sizeof *e->variable);
    e->names = malloc(bytes);
    if (!e->tensor || !e->variable || !e->names) {
        fprintf(stderr, "%s: error: out of memory\n", e->c->output);
        return false;
    }
    for (int i = 0; fp8c_program_variable(e->program, i, &v) == FP8C_OK; i++) {
        if (!v.is_param && !f8_checkpoint_is_needed(e->program, i))
            continue;
        f8_st_tensor *t = &e->tensor[e->n];
        e->variable[e->n++] = i;
        *t = f8_checkpoint_tensor(&v);
        if (v.is_param) {
            t->dtype = dtype_of(e, i, is_made(e, i), t->dtype);
        } else {
            t->name = e->names + used;
            used += (size_t)sprintf(e->names + used, "%s%s", f8_checkpoint_prefix, v.name) + 1;
        }
    }
    return true;
}

/* Rounds to nearest, ties to even. x is never NaN. */
static uint16_t to_bf16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* Gives the bytes of a tensor: the checkpoint's own if the dtype stays, else the program's value.
 */
static f8_status fill(void *user, size_t index, void *to, f8_diag *diag)
{
    export *e = user;
    fp8c_variable v;
    const f8_st_tensor *t = &e->tensor[index];
    const int i = e->variable[index];
    fp8c_program_variable(e->program, i, &v);
    const f8_st_tensor own = f8_checkpoint_tensor(&v);
    const bool narrows = t->dtype != own.dtype;
    const f8_weight *from = narrows ? e->load.from[i] : NULL;
    if (from && from->tensor->dtype == t->dtype)
        return f8_st_read(from->file, from->tensor, to, diag);
    const uint64_t n = own.bytes / f8_st_dtype_bytes(own.dtype);
    float *wide = narrows ? malloc((size_t)own.bytes + 1) : NULL;
    f8_status status = F8_OK;
    if (narrows && !wide)
        status = f8_file_fail(diag, F8_ERR_MEMORY, e->c->output, "out of memory");
    else if (fp8c_program_read(e->program, i, narrows ? (void *)wide : to) != FP8C_OK)
        status = f8_file_fail(diag, F8_ERR_IO, e->c->output, "'%s' can't be read: %s", v.name,
                              fp8c_context_message(e->ctx));
    for (uint64_t k = 0; narrows && status == F8_OK && k < n; k++)
        ((uint16_t *)to)[k] = to_bf16(wide[k]);
    free(wide);
    return status;
}

/* ---- metadata ---- */

static json_t *stored_weights(const export *e)
{
    json_t *all = json_object();
    fp8c_stored s;
    fp8c_variable v;
    for (int k = 0; fp8c_program_stored(e->program, k, &s) == FP8C_OK; k++)
        if (fp8c_program_variable(e->program, s.variable, &v) == FP8C_OK)
            json_object_set_new(all, v.name, json_string(s.recipe));
    return all;
}

static json_t *rules(const cli *c)
{
    json_t *all = json_array();
    for (size_t i = 0; i < c->rules.n; i++)
        json_array_append_new(all, json_string(c->rules.text[i]));
    return all;
}

/* The value as text, which the caller frees. Takes over the reference. */
static char *dumped(json_t *value)
{
    char *text = json_dumps(value, JSON_COMPACT | JSON_PRESERVE_ORDER);
    json_decref(value);
    return text;
}

static bool write_file(export *e)
{
    static const char *const carried[] = {"fp8c.recipe", "fp8c.steps", "fp8c.seed"};
    fp8c_module_info info = {.struct_size = sizeof info};
    fp8c_module_report(e->module, &info);
    f8_diag diag = {0};
    char *elements = f8_checkpoint_elements(e->program, false), *stored = dumped(stored_weights(e));
    char *asked = dumped(rules(e->c)), *aliases = f8_checkpoint_aliases(e->program, false);
    f8_st_pair metadata[12] = {
        {"format", "pt"},          {"fp8c.version", f8_checkpoint_version},
        {"fp8c.model", info.name}, {"fp8c.elements", elements},
        {"fp8c.stored", stored},   {"fp8c.export", e->c->recipe},
        {"fp8c.rules", asked},     {"fp8c.library", fp8c_version()},
    };
    size_t n = 8;
    if (aliases && f8_checkpoint_has_aliases(aliases))
        metadata[n++] = (f8_st_pair){"fp8c.aliases", aliases};
    for (int i = 0; i < 3; i++)
        if (f8_weights_metadata(&e->weights.files, carried[i]))
            metadata[n++] =
                (f8_st_pair){carried[i], f8_weights_metadata(&e->weights.files, carried[i])};
    const f8_st_contents contents = {.tensor = e->tensor,
                                     .n = e->n,
                                     .metadata = metadata,
                                     .n_metadata = n,
                                     .fill = fill,
                                     .user = e,
                                     .list = cli_temporaries()};
    const f8_status status =
        elements && stored && asked && aliases
            ? f8_st_write(e->c->output, &contents, NULL, &diag)
            : f8_file_fail(&diag, F8_ERR_MEMORY, e->c->output, "out of memory");
    free(elements);
    free(stored);
    free(asked);
    free(aliases);
    return status == F8_OK || cli_file_fail(&diag);
}

/* ---- the command ---- */

/* Reports what was written, as a sentence or as a record. */
static void report(export *e)
{
    fp8c_stored s;
    int stored = 0;
    int64_t parameters = 0, bytes = 0, before = 0;
    for (size_t i = 0; i < e->n; i++) {
        const f8_st_tensor *t = &e->tensor[i];
        uint64_t size = f8_st_dtype_bytes(t->dtype);
        for (int32_t k = 0; k < t->rank; k++)
            size *= (uint64_t)t->dim[k];
        if (!strncmp(t->name, f8_checkpoint_prefix, strlen(f8_checkpoint_prefix)))
            continue;
        bytes += (int64_t)size;
        const f8_weight *from = e->load.from[e->variable[i]];
        parameters += from != NULL;
        before += from ? (int64_t)from->tensor->bytes : 0;
    }
    while (fp8c_program_stored(e->program, stored, &s) == FP8C_OK)
        stored++;
    cli_weights_report(&e->weights, e->c->recipe, &e->json);
    cli_json_record(&e->json,
                    json_pack("{ss ss ss ss sI sI sI sI}", "event", "export", "recipe",
                              e->c->recipe, "weights", e->weights.files.shown, "file", e->c->output,
                              "parameters", (json_int_t)parameters, "stored", (json_int_t)stored,
                              "checkpoint_bytes", (json_int_t)before, "bytes", (json_int_t)bytes));
    if (!cli_json_to_stdout(e->c))
        printf("%s: %d of %" PRId64
               " parameters as FP8 under %s: %.2f MiB with their scales, %.2f MiB in %s\n",
               e->c->output, stored, parameters, e->c->recipe, (double)bytes / (1 << 20),
               (double)before / (1 << 20), e->weights.files.shown);
    if (!cli_json_to_stdout(e->c))
        cli_print_calibrated(e->c->recipe, e->weights.batches, f8_data_shown(&e->data));
}

/* Calibrates scales on --data, on the CPU. Data that nothing uses are refused. */
static bool calibrate(export *e)
{
    fp8c_compile_options options = cli_compile_options(e->c, e->c->recipe);
    options.inference = 1;
    if (!cli_data_given(e->c))
        return true;
    if (!f8_load_needs_scales(e->program, &e->weights.files)) {
        fprintf(stderr,
                "%s: error: there are no scales to calibrate on --data: the weights have all that "
                "%s needs\n",
                e->weights.files.shown, e->c->recipe);
        return false;
    }
    return cli_data_open(&e->data, e->c) &&
           cli_observe_data(&e->weights, e->ctx, e->module, &options, e->program, &e->data);
}

/* Uses the target reference, which has every recipe and compiles nothing. */
static bool quantize(export *e)
{
    const fp8c_compile_options options = {.struct_size = sizeof options,
                                          .target = "reference",
                                          .recipe = e->c->recipe,
                                          .inference = 1,
                                          .stored = e->c->recipe};
    return (fp8c_compile(e->module, &options, &e->program) == FP8C_OK ||
            cli_fail(e->ctx) == CLI_DONE) &&
           calibrate(e) &&
           cli_weights_quantize(&e->weights, e->ctx, e->program, e->c->recipe, &e->load);
}

/* Opens both files before anything is computed. */
static bool open_files(export *e)
{
    f8_diag diag = {0};
    if (!cli_weights_open(&e->weights, e->c))
        return false;
    if (f8_weights_metadata(&e->weights.files, "fp8c.stored"))
        fprintf(stderr,
                "%s: error: the weights are already FP8: export the checkpoint they came from\n",
                e->weights.files.shown);
    else if (f8_file_writable(cli_temporaries(), e->c->output, &diag) != F8_OK)
        cli_file_fail(&diag);
    else
        return cli_json_open(&e->json, e->c->json);
    return false;
}

static int run(export *e)
{
    bool ok = open_files(e) && quantize(e) && list(e) && write_file(e);
    if (ok)
        report(e);
    ok &= cli_json_close(&e->json);
    return ok ? CLI_DONE : CLI_FAILED;
}

static int usage(const char *what)
{
    fprintf(stderr, "fp8c export: %s; see fp8c export --help\n", what);
    return CLI_USAGE;
}

int cmd_export(const cli *c)
{
    export e = {.c = c, .dtype = F8_ST_N_DTYPES};
    if (!c->weights.n || !c->output)
        return usage(c->weights.n ? "-o FILE is needed" : "--weights FILE is needed");
    if (c->recipe == cli_default_recipe)
        return usage("--recipe RECIPE is needed: the recipe under which the weights are stored");
    if (cli_refuses_auto(c, c->recipe))
        return CLI_USAGE;
    if ((c->calibrate || c->tokens) && !cli_data_given(c))
        return usage(c->tokens ? "--tokens needs --data FILE" : "--calibrate needs --data FILE");
    if (c->dtype && strcmp(c->dtype, "f32") && strcmp(c->dtype, "bf16"))
        return usage("--dtype takes f32 or bf16");
    if (c->dtype)
        e.dtype = strcmp(c->dtype, "f32") ? F8_ST_BF16 : F8_ST_F32;
    if (!cli_load(c, &e.ctx, &e.module))
        return CLI_FAILED;
    const int code = run(&e);
    f8_load_end(&e.load);
    cli_weights_close(&e.weights);
    f8_data_close(&e.data);
    free(e.tensor);
    free(e.variable);
    free(e.names);
    fp8c_program_destroy(e.program);
    fp8c_module_destroy(e.module);
    fp8c_context_destroy(e.ctx);
    return code;
}
