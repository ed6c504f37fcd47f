/* What the sources of this folder share: see train.h. */
#include "frontend/train/train.h"

#include <stdlib.h>
#include <string.h>

#include "frontend/train/data/stream.h"
#include "ir/base/format.h"

/* ---- failures and words ---- */

enum { ROOM = 2048 };

/* Makes the text, and gives it to `say`, or with a status to `failed`. */
static void tell(f8_train *t, f8_status status, const char *format, va_list args)
{
    char few[ROOM], *text = few;
    va_list again;
    va_copy(again, args);
    const int n = f8_vformat(few, sizeof few, format, args);
    if (n >= ROOM && (text = malloc((size_t)n + 1)))
        f8_vformat(text, (size_t)n + 1, format, again);
    va_end(again);
    text = text ? text : few; /* what there is room for */
    if (status == F8_OK)
        t->call.say(t->call.user, text);
    else
        t->call.failed(t->call.user, status, text);
    if (text != few)
        free(text);
}

void f8_train_say(f8_train *t, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    tell(t, F8_OK, format, args);
    va_end(args);
}

bool f8_train_fail(f8_train *t, f8_status status, const char *format, ...)
{
    va_list args;
    t->failure = status;
    va_start(args, format);
    tell(t, status, format, args);
    va_end(args);
    return false;
}

bool f8_train_no_memory(f8_train *t)
{
    return f8_train_fail(t, F8_ERR_MEMORY, "error: out of memory");
}

bool f8_train_ok(f8_train *t, const fp8c_context *ctx, fp8c_status status)
{
    if (status == FP8C_ERR_CANCELLED)
        t->failure = F8_ERR_CANCELLED;
    else if (status != FP8C_OK)
        f8_train_fail(t, (f8_status)status, "%s", fp8c_context_message(ctx));
    return status == FP8C_OK;
}

bool f8_train_done(f8_train *t, f8_status status, const f8_diag *diag)
{
    if (status == F8_ERR_CANCELLED)
        t->failure = status;
    else if (status != F8_OK)
        f8_train_fail(t, status, "%s%serror: %s", diag->file ? diag->file : "",
                      diag->file ? ": " : "", diag->text);
    return status == F8_OK;
}

bool f8_train_record(f8_train *t, json_t *record)
{
    const bool ok = t->call.record(t->call.user, record);
    if (!ok)
        t->failure = F8_ERR_IO;
    return ok;
}

/* ---- the model ---- */

/* The dims of the options, and this rank's part of one, which wins. Returns how many. */
static size_t dims_of(const f8_train *t, fp8c_dim out[F8_MOST_DIMS + 1])
{
    size_t n = 0;
    const f8_option_DIM *dims = &t->options->dims;
    for (size_t i = 0; i < dims->n; i++)
        if (!t->part.name || strcmp(dims->dim[i].name, t->part.name))
            out[n++] = dims->dim[i];
    if (t->part.name)
        out[n++] = t->part;
    return n;
}

static fp8c_status parse(const f8_train *t, fp8c_context *ctx, const char *text, size_t size,
                         fp8c_module **module)
{
    fp8c_dim dim[F8_MOST_DIMS + 1];
    const f8_option_RULE *rules = &t->options->rules;
    const size_t n = dims_of(t, dim);
    fp8c_status status = fp8c_module_parse(ctx, text, size, t->file, dim, n, module);
    for (size_t i = 0; status == FP8C_OK && i < rules->n; i++)
        status = fp8c_module_rule(*module, rules->text[i], "--rule");
    return status == FP8C_OK ? fp8c_module_check(*module) : status;
}

fp8c_module *f8_train_parse(f8_train *t, fp8c_context *ctx)
{
    f8_diag diag = {0};
    size_t size;
    char *text;
    fp8c_module *module = NULL;
    if (!f8_train_done(t, f8_stream_read(t->file, &text, &size, &diag), &diag))
        return NULL;
    const bool ok = f8_train_ok(t, ctx, parse(t, ctx, text, size, &module));
    free(text);
    if (ok)
        return module;
    fp8c_module_destroy(module);
    return NULL;
}

bool f8_train_load(f8_train *t, fp8c_context **ctx, fp8c_module **module)
{
    *ctx = t->call.context(t->call.user);
    *module = *ctx ? f8_train_parse(t, *ctx) : NULL;
    if (*module)
        return true;
    fp8c_context_destroy(*ctx);
    *ctx = NULL;
    return false;
}

f8_data_options f8_train_data_options(const f8_train_options *o, const f8_ranks *ranks)
{
    const uint64_t n = ranks ? (uint64_t)ranks->comm.ranks : 1,
                   rank = ranks ? (uint64_t)ranks->comm.rank : 0;
    return (f8_data_options){.files = o->data.text,
                             .n_files = o->data.n,
                             .tokens = o->tokens,
                             .batches = o->batches.text,
                             .n_batches = o->batches.n,
                             .validation = o->validation.text,
                             .n_validation = o->validation.n,
                             .one = {n, rank},
                             .hashes = ranks || o->run || o->resume,
                             .batches_name = "--batch",
                             .validation_name = "--validation",
                             .tokens_name = "--tokens"};
}

int f8_write_stream(void *file, const char *text, size_t size)
{
    return fwrite(text, 1, size, file) != size;
}

char *f8_train_text(f8_train *t, const fp8c_module *module, size_t *size)
{
    char *text = NULL;
    FILE *to = open_memstream(&text, size);
    const bool printed = to && fp8c_module_print(module, f8_write_stream, to) == FP8C_OK;
    if ((!to || !fclose(to)) && printed)
        return text;
    free(text);
    f8_train_no_memory(t);
    return NULL;
}
