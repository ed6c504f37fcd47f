/* The folder of a training run when the training begins: see folder.h. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "frontend/train/data/stream.h"
#include "frontend/train/folder.h"
#include "frontend/train/weights.h"
#include "ir/base/text.h"

static bool is_utf8(const char *text)
{
    size_t n = text ? strlen(text) : 0, at = 0, length;
    while (at < n && (length = f8_utf8_length(text + at, n - at)))
        at += length;
    return at == n;
}

/* Whether run.json can have the paths of a new run. Says so if not. */
static bool check_paths(f8_train *t)
{
    const f8_train_options *o = t->options;
    const f8_option_TEXTS *lists[] = {&o->data,   &o->batches, &o->validation,   &o->weights,
                                      &o->ignore, &o->map,     &o->allow_missing};
    const char *bad = !is_utf8(o->run) ? o->run : !is_utf8(t->file) ? t->file : NULL;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        for (size_t k = 0; k < lists[i]->n && !bad; k++)
            bad = is_utf8(lists[i]->text[k]) ? NULL : lists[i]->text[k];
    return !bad ||
           f8_train_fail(t, F8_ERR_INPUT,
                         "%s: error: the path is not UTF-8, as the files of a run are", bad);
}

bool f8_folder_open(f8_folder *f, f8_train *t)
{
    f8_diag diag = {0};
    const f8_train_options *o = t->options;
    *f = (f8_folder){
        .t = t, .path = o->run ? o->run : o->resume, .resumed = o->resume, .run = F8_RUN_CLOSED};
    if (!f->path)
        return true;
    if (o->run && !check_paths(t))
        return false;
    if (o->run && !f8_train_follows(t))
        return f8_train_done(t, f8_run_free(&f->run, f->path, &diag), &diag);
    const f8_status status = f8_train_follows(t)
                                 ? f8_run_follow(&f->run, f->path, f->resumed, &diag)
                                 : f8_run_open(&f->run, f->path, t->list, &diag);
    return f8_train_done(t, status, &diag) && (o->run || f8_folder_take_options(f));
}

bool f8_folder_look(f8_folder *f, f8_train *t, const char *path)
{
    f8_diag diag = {0};
    *f = (f8_folder){.t = t, .path = path, .resumed = true, .run = F8_RUN_CLOSED};
    return f8_train_done(t, f8_run_look(&f->run, path, &diag), &diag) && f8_folder_take_options(f);
}

/* ---- a new run ---- */

static json_t *describe(f8_folder *f, fp8c_context *ctx, fp8c_program *program, const f8_data *data)
{
    char begun[40] = "";
    const time_t now = time(NULL);
    const f8_train *t = f->t;
    struct tm utc;
    fp8c_device device = {.struct_size = sizeof device};
    json_t *components = f8_folder_versions(f, ctx, program),
           *weights = components ? f8_train_weights_facts(f->t, true) : NULL;
    if (!weights) {
        json_decref(components);
        return NULL;
    }
    fp8c_program_device(program, &device); /* fails if there is none */
    if (gmtime_r(&now, &utc))
        strftime(begun, sizeof begun, "%Y-%m-%dT%H:%M:%SZ", &utc);
    json_t *info = json_pack(
        "{ss so ss? ss ss ss ss? sI so so so so s[]}", "begun", begun, "versions", components,
        "file", t->file, "module", f->at.module, "recipe", t->options->recipe, "target",
        fp8c_program_target(program), "device", *device.name ? device.name : NULL, "ranks",
        (json_int_t)f8_train_ranks(t), "options", f8_train_options_json(t->options, true),
        "resolved", f8_train_options_json(t->options, false), "data", f8_data_facts(data),
        "weights", weights, "resumed");
    if (!info)
        f8_train_no_memory(f->t);
    return info;
}

/* The text of the model as it was given. NULL after `failed`. */
static char *source_of(f8_folder *f)
{
    f8_diag diag = {0};
    size_t size;
    char *text;
    if (f->t->source || !f->t->file) /* without either it was made by calls */
        return strdup(f->t->source ? f->t->source : f->text);
    return f8_train_done(f->t, f8_stream_read(f->t->file, &text, &size, &diag), &diag) ? text
                                                                                       : NULL;
}

static bool begin(f8_folder *f, fp8c_context *ctx, fp8c_program *program, const f8_data *data)
{
    f8_diag diag = {0};
    f8_train *t = f->t;
    f->at.seed = t->options->seed;
    if (f->run.follows)
        return f8_train_done(t, f8_run_save(&f->run, program, &f->at, &diag), &diag);
    char *source = source_of(f), *decided = NULL, *planned = NULL;
    json_t *info = NULL;
    bool ok = source && (decided = f8_folder_decisions(f, program)) &&
              (planned = f8_folder_plan(f, program)) && (info = describe(f, ctx, program, data));
    const f8_run_texts texts = {f->text, source, decided, planned};
    if (ok) {
        f8_status status = f8_run_create(&f->run, f->path, t->list, &diag);
        if (status == F8_OK)
            status = f8_run_begin(&f->run, program, &texts, json_incref(info), &f->at, &diag);
        ok = f8_train_done(t, status, &diag);
    }
    json_decref(info);
    free(source);
    free(decided);
    free(planned);
    return ok;
}

bool f8_folder_start(f8_folder *f, fp8c_context *ctx, fp8c_program *program, const f8_data *data,
                     f8_folder_each each, void *user)
{
    if (!f->path)
        return true;
    const f8_train_options *o = f->t->options;
    f->at.recipe = o->recipe;
    f->at.keep = o->keep ? o->keep : F8_DEFAULT_KEEP;
    const bool ok = f->resumed ? f8_folder_go_on(f, ctx, program, data, each, user)
                               : begin(f, ctx, program, data);
    f->failed |= !ok;
    return ok;
}
