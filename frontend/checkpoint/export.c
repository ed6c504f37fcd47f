/* Writing weights as FP8 codes with their scales: see export.h. A program for inference stores
 * weights as the recipe says (passes/scale/serve.c) and has quantized them; its variables are the
 * tensors of the file. */
#include <stdlib.h>
#include <string.h>

#include "frontend/checkpoint/export.h"
#include "frontend/program.h"

typedef struct work {
    f8_export *e;
    fp8c_program *program;
    const f8_load *load;  /* load->from: of each variable; NULL: the program made the value */
    f8_st_tensor *tensor; /* of the file */
    int *variable;        /* of each tensor */
    size_t n;
} work;

/* ---- the tensors of the file ---- */

/* Whether the program made a variable: codes and scales. */
static bool is_made(const work *w, int variable)
{
    fp8c_stored s;
    for (int k = 0; fp8c_program_stored(w->program, k, &s) == FP8C_OK; k++)
        if (s.variable == variable || s.scale_variable == variable)
            return true;
    return false;
}

static f8_st_dtype dtype_of(const work *w, int i, f8_st_dtype own)
{
    if (own != F8_ST_F32 || is_made(w, i))
        return own;
    if (w->e->dtype != F8_ST_N_DTYPES)
        return w->e->dtype;
    return w->load->from[i] ? w->load->from[i]->tensor->dtype : own;
}

/* Lists the parameters, and the states that eval reads. */
static f8_status list(work *w, f8_arena *memory, f8_diag *diag)
{
    fp8c_variable v;
    int n = 0;
    while (fp8c_program_variable(w->program, n, &v) == FP8C_OK)
        n++;
    w->tensor = F8_NEW_ARRAY(memory, f8_st_tensor, (size_t)n + 1);
    w->variable = F8_NEW_ARRAY(memory, int, (size_t)n + 1);
    F8_TRY(f8_arena_status(memory, diag));
    for (int i = 0; fp8c_program_variable(w->program, i, &v) == FP8C_OK; i++) {
        if (!v.is_param && !f8_checkpoint_is_needed(w->program, i))
            continue;
        f8_st_tensor *t = &w->tensor[w->n];
        w->variable[w->n++] = i;
        *t = f8_checkpoint_tensor(&v);
        if (!v.is_param) {
            t->name = f8_arena_printf(memory, "%s%s", f8_checkpoint_prefix, v.name);
            continue;
        }
        const f8_weight *from = w->load->from[i];
        t->dtype = dtype_of(w, i, t->dtype);
        w->e->bytes += (int64_t)f8_st_bytes(t);
        w->e->parameters += from != NULL;
        w->e->bytes_before += from ? (int64_t)from->tensor->bytes : 0;
    }
    return f8_arena_status(memory, diag);
}

/* Rounds to nearest, ties to even. x is never NaN. */
static uint16_t to_bf16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* Gives the bytes of a tensor: those of the files if the dtype stays, else the program's value. */
static f8_status fill(void *user, size_t index, void *to, f8_diag *diag)
{
    work *w = user;
    const char *path = w->e->path;
    fp8c_variable v;
    const f8_st_tensor *t = &w->tensor[index];
    const int i = w->variable[index];
    fp8c_program_variable(w->program, i, &v);
    const f8_st_tensor own = f8_checkpoint_tensor(&v);
    const bool narrows = t->dtype != own.dtype;
    const f8_weight *from = narrows ? w->load->from[i] : NULL;
    if (from && from->tensor->dtype == t->dtype)
        return f8_st_read(from->file, from->tensor, to, diag);
    const uint64_t n = own.bytes / f8_st_dtype_bytes(own.dtype);
    float *wide = narrows ? malloc((size_t)own.bytes + 1) : NULL;
    f8_status status = F8_OK;
    if (narrows && !wide)
        status = f8_file_fail(diag, F8_ERR_MEMORY, path, "out of memory");
    else if (fp8c_program_read(w->program, i, narrows ? (void *)wide : to) != FP8C_OK)
        status = f8_file_fail(diag, F8_ERR_IO, path, "'%s' can't be read: %s", v.name,
                              fp8c_context_message(w->program->ctx));
    for (uint64_t k = 0; narrows && status == F8_OK && k < n; k++)
        ((uint16_t *)to)[k] = to_bf16(wide[k]);
    free(wide);
    return status;
}

/* ---- metadata ---- */

static json_t *rules(const f8_export *e)
{
    json_t *all = json_array();
    for (size_t i = 0; i < e->n_rules; i++)
        json_array_append_new(all, json_string(e->rules[i]));
    return all;
}

/* The value as text, which the caller frees. Takes over the reference. */
static char *dumped(json_t *value)
{
    char *text = json_dumps(value, JSON_COMPACT | JSON_PRESERVE_ORDER);
    json_decref(value);
    return text;
}

static f8_status write_file(work *w, f8_diag *diag)
{
    static const char *const carried[] = {"fp8c.recipe", "fp8c.steps", "fp8c.seed"};
    f8_export *e = w->e;
    char *elements = f8_checkpoint_elements(w->program, false),
         *stored = f8_checkpoint_stored(w->program, &e->stored);
    char *asked = dumped(rules(e)), *aliases = f8_checkpoint_aliases(w->program, false);
    f8_st_pair metadata[12] = {
        {"format", "pt"},
        {"fp8c.version", f8_checkpoint_version},
        {"fp8c.model", w->program->now->plan.module},
        {"fp8c.elements", elements},
        {"fp8c.stored", stored},
        {"fp8c.export", e->recipe},
        {"fp8c.rules", asked},
        {"fp8c.library", fp8c_version()},
    };
    size_t n = 8;
    if (aliases && f8_checkpoint_has_aliases(aliases))
        metadata[n++] = (f8_st_pair){"fp8c.aliases", aliases};
    for (int i = 0; i < 3; i++) {
        const char *value = f8_weights_metadata(w->load->weights, carried[i]);
        if (value)
            metadata[n++] = (f8_st_pair){carried[i], value};
    }
    const f8_st_contents contents = {.tensor = w->tensor,
                                     .n = w->n,
                                     .metadata = metadata,
                                     .n_metadata = n,
                                     .fill = fill,
                                     .user = w,
                                     .list = e->list};
    const f8_status status = elements && stored && asked && aliases
                                 ? f8_st_write(e->path, &contents, NULL, diag)
                                 : f8_file_fail(diag, F8_ERR_MEMORY, e->path, "out of memory");
    free(elements);
    free(stored);
    free(asked);
    free(aliases);
    return status;
}

f8_status f8_export_write(f8_export *e, fp8c_program *program, const f8_load *load, f8_diag *diag)
{
    work w = {.e = e, .program = program, .load = load};
    f8_arena memory;
    e->parameters = e->stored = e->bytes_before = e->bytes = 0;
    f8_arena_init(&memory, &program->ctx->allocator);
    f8_status status = list(&w, &memory, diag);
    if (status == F8_OK)
        status = write_file(&w, diag);
    f8_arena_end(&memory);
    return status;
}

json_t *f8_export_record(const f8_export *e, const char *weights)
{
    return json_pack("{ss ss ss ss sI sI sI sI}", "event", "export", "recipe", e->recipe, "weights",
                     weights, "file", e->path, "parameters", (json_int_t)e->parameters, "stored",
                     (json_int_t)e->stored, "checkpoint_bytes", (json_int_t)e->bytes_before,
                     "bytes", (json_int_t)e->bytes);
}
