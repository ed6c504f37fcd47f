/* Files of weights for the programs of one command: see loader.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/fp8c_diagnose.h"
#include "frontend/checkpoint/loader.h"

enum { NAME_ROOM = 1024 }; /* names of a module have 511 bytes at most */

f8_status f8_loader_open(f8_loader *l, const fp8c_load_options *o, uint64_t seed, f8_diag *diag)
{
    *l = (f8_loader){.options = *o, .seed = seed};
    return f8_weights_open(&l->files, &l->options, NULL, diag);
}

void f8_loader_close(f8_loader *l)
{
    fp8c_program_destroy(l->observer);
    json_decref(l->lists);
    json_decref(l->problems);
    f8_weights_close(&l->files);
    *l = (f8_loader){0};
}

/* ---- what became of each tensor ---- */

static void note(void *user, const fp8c_load_item *item)
{
    static const char *const fates[] = {
        [FP8C_LOAD_TAKEN] = "taken",           [FP8C_LOAD_IGNORED] = "ignored",
        [FP8C_LOAD_CALIBRATED] = "calibrated", [FP8C_LOAD_MISSING] = "missing",
        [FP8C_LOAD_UNEXPECTED] = "unexpected", [FP8C_LOAD_DIFFERENT] = "different"};
    f8_loader *l = user;
    if (item->error)
        json_array_append_new(l->problems,
                              json_pack("{ss ss ss}", "fate", fates[item->fate], "name",
                                        item->tensor ? item->tensor : item->variable, "detail",
                                        item->detail));
    else
        json_array_append_new(json_object_get(l->lists, fates[item->fate]),
                              json_pack("{ss? ss? ss? ss}", "variable", item->variable, "tensor",
                                        item->tensor, "file", item->file, "detail", item->detail));
}

json_t *f8_loader_record(const f8_loader *l, const char *recipe)
{
    json_t *files = json_array(), *items;
    const char *list;
    for (size_t i = 0; i < l->files.n_files; i++)
        json_array_append_new(files, json_string(l->files.file[i].in.path));
    json_t *r = json_pack("{ss ss so}", "event", "weights", "recipe", recipe, "files", files);
    json_object_foreach (l->lists, list, items)
        json_object_set(r, list, items);
    if (l->batches)
        json_object_set_new(r, "calibration_batches", json_integer(l->batches));
    return r;
}

static const char *text_of(const json_t *item, const char *field)
{
    return json_string_value(json_object_get(item, field));
}

static void put_item(FILE *to, const char *fate, const char *name, const char *detail,
                     const char *from)
{
    char line[2 * NAME_ROOM + 400], shown[2][NAME_ROOM];
    snprintf(line, sizeof line, "\n  %-10s  %s  %s%s%s", fate,
             f8_st_shown(name, shown[0], NAME_ROOM), detail, from ? "  from " : "",
             from ? f8_st_shown(from, shown[1], NAME_ROOM) : "");
    fputs(line, to);
}

static void put_lists(const f8_loader *l, FILE *to)
{
    const char *list, *separator = ": ";
    json_t *items, *item;
    size_t i;
    char count[60];
    fputs(l->files.shown, to);
    json_object_foreach (l->lists, list, items) {
        snprintf(count, sizeof count, "%s%zu %s", separator, json_array_size(items), list);
        fputs(count, to);
        separator = ", ";
    }
    json_object_foreach (l->lists, list, items) {
        json_array_foreach (items, i, item) {
            const char *variable = text_of(item, "variable"), *tensor = text_of(item, "tensor");
            const bool renamed = variable && tensor && strcmp(variable, tensor);
            put_item(to, list, variable ? variable : tensor, text_of(item, "detail"),
                     renamed ? tensor : NULL);
        }
    }
}

/* Ends a stream of memory; its text, or NULL. */
static char *ended(FILE *to, char **text)
{
    if (to && !fclose(to))
        return *text;
    free(to ? *text : NULL);
    return NULL;
}

char *f8_loader_lists(const f8_loader *l)
{
    char *text = NULL;
    size_t n;
    FILE *to = open_memstream(&text, &n);
    if (to)
        put_lists(l, to);
    return ended(to, &text);
}

char *f8_loader_refusal(const f8_loader *l, const char *model, const char *recipe)
{
    char *text = NULL;
    size_t n;
    FILE *to = open_memstream(&text, &n);
    json_t *item;
    size_t i;
    if (to) {
        const char *const words[] = {l->files.shown, ": error: the file",
                                     l->files.n_files == 1 ? " does" : "s do",
                                     " not hold the weights of ", model, " under ", recipe, ":"};
        for (i = 0; i < sizeof words / sizeof *words; i++)
            fputs(words[i], to);
        json_array_foreach (l->problems, i, item)
            put_item(to, text_of(item, "fate"), text_of(item, "name"), text_of(item, "detail"),
                     NULL);
    }
    return ended(to, &text);
}

/* ---- loading ---- */

static fp8c_status load(f8_loader *l, f8_load *load, f8_diag *diag)
{
    load->weights = &l->files;
    load->o = &l->options;
    load->states = l->begins ? F8_LOAD_NO_STATES : f8_load_usual_states(load->program, &l->files);
    load->diag = diag;
    l->options.report = note;
    l->options.user = l;
    l->options.scales = l->observer;
    json_decref(l->lists);
    json_decref(l->problems);
    l->lists = json_pack("{s[] s[] s[] s[]}", "taken", "ignored", "calibrated", "missing");
    l->problems = json_array();
    const fp8c_status ready = fp8c_program_initialize(load->program, l->seed);
    if (ready != FP8C_OK)
        return ready;
    f8_status status = l->lists && l->problems
                           ? f8_load_match(load)
                           : f8_file_fail(diag, F8_ERR_MEMORY, l->files.shown, "out of memory");
    if (status == F8_OK)
        status = f8_load_values(load);
    l->scales_missing = load->scales_missing;
    fp8c_program_destroy(l->observer); /* it is as large as the program */
    l->observer = NULL;
    load->diag = NULL;
    return (fp8c_status)status;
}

fp8c_status f8_loader_load(f8_loader *l, fp8c_program *program, f8_diag *diag)
{
    f8_load one = {.program = program};
    const fp8c_status status = load(l, &one, diag);
    f8_load_end(&one);
    return status;
}

fp8c_status f8_loader_quantize(f8_loader *l, fp8c_program *program, f8_load *one, f8_diag *diag)
{
    *one = (f8_load){.program = program, .quantize = true};
    return load(l, one, diag);
}

/* ---- scales ---- */

static fp8c_status observe_batches(f8_loader *l, fp8c_program *observer, int64_t batches,
                                   f8_loader_fill fill, void *user, f8_diag *diag)
{
    const int eval = fp8c_program_function(observer, "eval");
    fp8c_status status = f8_loader_load(l, observer, diag);
    for (int64_t i = 0; status == FP8C_OK && i < batches; i++) {
        status = (fp8c_status)fill(user, observer, eval, i, diag);
        if (status == FP8C_OK)
            status = fp8c_program_run(observer, eval);
    }
    return status;
}

fp8c_status f8_loader_observe(f8_loader *l, const fp8c_module *module,
                              const fp8c_compile_options *options, fp8c_program *program,
                              int64_t batches, f8_loader_fill fill, void *user, f8_diag *diag)
{
    fp8c_compile_options own = *options;
    fp8c_program *observer;
    fp8c_program_dim dim;
    fp8c_program_destroy(l->observer); /* of another recipe */
    l->observer = NULL;
    l->batches = 0;
    if (!f8_load_needs_scales(program, &l->files))
        return FP8C_OK;
    own.observe = 1;
    fp8c_status status = fp8c_compile(module, &own, &observer);
    for (int i = 0; status == FP8C_OK && fp8c_program_dims(program, i, &dim) == FP8C_OK; i++)
        status = fp8c_program_set_dim(observer, dim.name, dim.value);
    if (status == FP8C_OK)
        status = observe_batches(l, observer, batches, fill, user, diag);
    l->observer = observer;
    l->batches = status == FP8C_OK ? batches : 0;
    return status;
}

/* ---- the recipes under which a file stores weights ---- */

static f8_status check_stored(const f8_weights *files, fp8c_context *ctx, const char *name,
                              const char *recipe, f8_diag *diag)
{
    enum { SHOWN = 600, CANONICAL = 256 };
    char shown[SHOWN], canonical[CANONICAL];
    if (recipe && fp8c_recipe_canonical(ctx, recipe, canonical, sizeof canonical) == FP8C_OK)
        return F8_OK;
    return f8_file_fail(diag, F8_ERR_INPUT, files->shown,
                        "the metadata 'fp8c.stored' of '%s': %s%s",
                        f8_st_shown(name, shown, sizeof shown), recipe ? "\n" : "",
                        recipe ? fp8c_context_message(ctx) : "it has no recipe");
}

f8_status f8_stored_read(f8_stored *s, const f8_weights *files, fp8c_context *ctx, f8_diag *diag)
{
    const char *text = f8_weights_metadata(files, "fp8c.stored"), *name;
    json_t *value;
    *s = (f8_stored){0};
    s->owner = text ? json_loads(text, JSON_REJECT_DUPLICATES, NULL) : f8_weights_stored(files);
    if (!text && s->owner && !json_object_size(s->owner))
        return F8_OK;
    if (!json_is_object(s->owner) || !json_object_size(s->owner))
        return f8_file_fail(
            diag, F8_ERR_INPUT, files->shown,
            "the metadata 'fp8c.stored' is not a JSON object of weights and recipes");
    s->weight = calloc(json_object_size(s->owner), sizeof *s->weight);
    if (!s->weight)
        return f8_file_fail(diag, F8_ERR_MEMORY, files->shown, "out of memory");
    json_object_foreach (s->owner, name, value) {
        F8_TRY(check_stored(files, ctx, name, json_string_value(value), diag));
        s->weight[s->n++] = (fp8c_stored_as){name, json_string_value(value)};
    }
    return F8_OK;
}

const char *f8_stored_under(const f8_stored *s, const f8_weights *files)
{
    const char *asked = f8_weights_metadata(files, "fp8c.export");
    return !s->n ? NULL : asked ? asked : s->weight[0].recipe;
}

void f8_stored_free(f8_stored *s)
{
    free(s->weight);
    json_decref(s->owner);
    *s = (f8_stored){0};
}
