/* Writes and loads checkpoints: see cmd_checkpoint.h. */
#include "frontend/cli/cmd_checkpoint.h"

#include "frontend/checkpoint/shared.h"
#include "frontend/cli/cmd_ranks.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

bool cli_checkpoint_save(const cli *c, const char *path, fp8c_program *program, const char *recipe,
                         int64_t n_steps)
{
    char steps[24], seed[24];
    f8_diag diag = {0};
    snprintf(steps, sizeof steps, "%" PRId64, n_steps);
    snprintf(seed, sizeof seed, "%" PRIu64, c->seed);
    const f8_st_pair more[] = {{"fp8c.recipe", recipe}, {"fp8c.steps", steps}, {"fp8c.seed", seed}};
    if (f8_ranks_follows(c->ranks) && !f8_shares(program))
        return true;
    return f8_checkpoint_write(program, path, more, sizeof more / sizeof *more, &diag) == F8_OK ||
           cli_file_fail(&diag);
}

/* ---- a state ---- */

/* Writes the bytes of a variable, whole. */
static bool put_variable(fp8c_program *program, f8_file_out *out, int index, const fp8c_variable *v)
{
    const size_t bytes = f8_shared_bytes(v);
    void *copy = malloc(bytes + 1);
    if (!copy)
        f8_file_fail(out->diag, F8_ERR_MEMORY, out->path, "out of memory: %zu bytes were wanted",
                     bytes);
    const bool ok = copy && f8_shared_read(program, index, copy, out->diag) == F8_OK &&
                    f8_file_put(out, copy, bytes) == F8_OK;
    free(copy);
    return ok;
}

/* Gives rank 0 this rank's part of all variables that the ranks share. */
static bool give_state(fp8c_program *program)
{
    f8_diag diag = {0};
    fp8c_variable v;
    bool ok = true;
    for (int i = 0; ok && fp8c_program_variable(program, i, &v) == FP8C_OK; i++) {
        void *whole = v.rows ? malloc(f8_shared_bytes(&v)) : NULL;
        if (v.rows && !whole)
            f8_fail(&diag, F8_ERR_MEMORY, F8_NOWHERE, "out of memory: %zu bytes were wanted",
                    f8_shared_bytes(&v));
        ok = !v.rows || (whole && f8_shared_read(program, i, whole, &diag) == F8_OK);
        free(whole);
    }
    return ok || cli_file_fail(&diag);
}

bool cli_state_save(const cli *c, const char *path, fp8c_program *program)
{
    if (f8_ranks_follows(c->ranks))
        return give_state(program);
    f8_file_out out;
    f8_diag diag = {0};
    fp8c_variable v;
    bool ok = f8_file_begin(&out, cli_temporaries(), path, false, &diag) == F8_OK;
    for (int i = 0; ok && fp8c_program_variable(program, i, &v) == FP8C_OK; i++)
        ok = put_variable(program, &out, i, &v);
    ok = ok && f8_file_commit(&out) == F8_OK;
    f8_file_end(&out);
    return ok || cli_file_fail(&diag);
}

bool cli_can_save(const cli *c)
{
    const char *const paths[] = {c->save, c->save_state};
    f8_diag diag = {0};
    for (int i = 0; i < 2 && !f8_ranks_follows(c->ranks); i++)
        if (paths[i] && f8_file_writable(cli_temporaries(), paths[i], &diag) != F8_OK)
            return cli_file_fail(&diag);
    return true;
}

/* ---- the files ---- */

enum { NAME_ROOM = 1024 }; /* names of a module have 511 bytes at most */

static const struct {
    const char *list, *what; /* in a record; in a line of text */
} fates[] = {
    [FP8C_LOAD_TAKEN] = {"taken", "taken"},
    [FP8C_LOAD_IGNORED] = {"ignored", "ignored"},
    [FP8C_LOAD_CALIBRATED] = {"calibrated", "calibrated"},
    [FP8C_LOAD_MISSING] = {"missing", "missing"},
    [FP8C_LOAD_UNEXPECTED] = {"unexpected", "unexpected"},
    [FP8C_LOAD_DIFFERENT] = {"different", "different"},
};

bool cli_weights_open(cli_weights *w, const cli *c)
{
    f8_diag diag = {0};
    *w = (cli_weights){.c = c,
                       .options = {.struct_size = sizeof w->options,
                                   .files = c->weights.text,
                                   .n_files = c->weights.n,
                                   .ignore = c->ignore.text,
                                   .n_ignore = c->ignore.n,
                                   .map = c->map.text,
                                   .n_map = c->map.n,
                                   .allow_missing = c->allow_missing.text,
                                   .n_allow_missing = c->allow_missing.n}};
    return f8_weights_open(&w->files, &w->options, NULL, &diag) == F8_OK || cli_file_fail(&diag);
}

void cli_weights_close(cli_weights *w)
{
    fp8c_program_destroy(w->observer);
    json_decref(w->lists);
    f8_weights_close(&w->files);
    *w = (cli_weights){0};
}

/* ---- what became of each tensor ---- */

/* Adds an item to its list, or a line to the problems. */
static void note(void *user, const fp8c_load_item *item)
{
    cli_weights *w = user;
    char shown[NAME_ROOM];
    if (item->error) {
        const char *name = item->tensor ? item->tensor : item->variable;
        fprintf(w->problems, "  %-10s  %s  %s\n", fates[item->fate].what,
                f8_st_shown(name, shown, sizeof shown), item->detail);
        return;
    }
    json_t *list = json_object_get(w->lists, fates[item->fate].list);
    json_array_append_new(list,
                          json_pack("{ss? ss? ss? ss}", "variable", item->variable, "tensor",
                                    item->tensor, "file", item->file, "detail", item->detail));
}

/* Prints the lists on stderr. */
static void print_lists(const cli_weights *w)
{
    const char *list, *separator = "";
    json_t *items, *item;
    size_t i;
    char shown[2][NAME_ROOM];
    fprintf(stderr, "%s: ", w->files.shown);
    json_object_foreach (w->lists, list, items) {
        fprintf(stderr, "%s%zu %s", separator, json_array_size(items), list);
        separator = ", ";
    }
    fputc('\n', stderr);
    json_object_foreach (w->lists, list, items) {
        json_array_foreach (items, i, item) {
            const char *variable = json_string_value(json_object_get(item, "variable")),
                       *tensor = json_string_value(json_object_get(item, "tensor"));
            const bool renamed = variable && tensor && strcmp(variable, tensor);
            fprintf(stderr, "  %-10s  %s  %s%s%s\n", list,
                    f8_st_shown(variable ? variable : tensor, shown[0], NAME_ROOM),
                    json_string_value(json_object_get(item, "detail")), renamed ? "  from " : "",
                    renamed ? f8_st_shown(tensor, shown[1], NAME_ROOM) : "");
        }
    }
}

void cli_weights_report(const cli_weights *w, const char *recipe, cli_json *json)
{
    json_t *files = json_array(), *items;
    const char *list;
    if (w->c->verbose)
        print_lists(w);
    for (size_t i = 0; i < w->files.n_files; i++)
        json_array_append_new(files, json_string(w->files.file[i].in.path));
    json_t *r = json_pack("{ss ss so}", "event", "weights", "recipe", recipe, "files", files);
    json_object_foreach (w->lists, list, items)
        json_object_set(r, list, items);
    if (w->batches)
        json_object_set_new(r, "calibration_batches", json_integer(w->batches));
    cli_json_record(json, r);
}

/* How to get the scales that the files lack. */
static const char *advice(const cli *c)
{
    if (!strcmp(c->command, "export") && !c->data.n && !c->batches.n)
        return "give --data FILE to calibrate them, or ";
    if (cli_is_package(c->file))
        return "`fp8c run` of the text calibrates them, and its --save keeps them for this; or ";
    return "";
}

static void report(const cli_weights *w, const f8_load *l, const char *recipe, const char *problems)
{
    const char *trained = f8_weights_metadata(&w->files, "fp8c.recipe");
    const bool one = w->files.n_files == 1;
    char shown[200];
    fprintf(stderr, "%s: error: the file%s not hold the weights of %s under %s:\n%s",
            w->files.shown, one ? " does" : "s do", w->c->file, recipe, problems);
    if (l->scales_missing)
        fprintf(stderr,
                "this recipe needs the scales that training under it keeps, and the file%s %s%s: "
                "%sgive a recipe that needs none, such as current\n",
                one ? "" : "s",
                trained ? one ? "was trained under " : "were trained under "
                : one   ? "has none"
                        : "have none",
                trained ? f8_st_shown(trained, shown, sizeof shown) : "", advice(w->c));
}

/* ---- loading ---- */

/* Matches and loads, and says what came of it. */
static bool match_and_load(cli_weights *w, f8_load *l, const char *recipe)
{
    char *problems = NULL;
    size_t size = 0;
    w->problems = open_memstream(&problems, &size);
    f8_status status = w->problems
                           ? f8_load_match(l)
                           : f8_file_fail(l->diag, F8_ERR_MEMORY, w->files.shown, "out of memory");
    if (w->problems && fclose(w->problems))
        status = f8_file_fail(l->diag, F8_ERR_MEMORY, w->files.shown, "out of memory");
    if (status == F8_OK)
        status = f8_load_values(l);
    if (l->n_wrong && problems)
        report(w, l, recipe, problems);
    else if (status != F8_OK)
        cli_file_fail(l->diag);
    free(problems);
    return status == F8_OK;
}

static bool load(cli_weights *w, fp8c_context *ctx, f8_load *l, const char *recipe)
{
    f8_diag diag = {0};
    l->weights = &w->files;
    l->o = &w->options;
    l->states = f8_load_usual_states(l->program, &w->files);
    l->diag = &diag;
    w->options.report = note;
    w->options.user = w;
    w->options.scales = w->observer;
    json_decref(w->lists);
    w->lists = json_pack("{s[] s[] s[] s[]}", "taken", "ignored", "calibrated", "missing");
    if (fp8c_program_initialize(l->program, w->c->seed) != FP8C_OK)
        return cli_fail(ctx) == CLI_DONE;
    const bool ok = match_and_load(w, l, recipe);
    fp8c_program_destroy(w->observer); /* it is as large as the program */
    w->observer = NULL;
    l->diag = NULL;
    return ok;
}

bool cli_weights_load(cli_weights *w, fp8c_context *ctx, fp8c_program *program, const char *recipe)
{
    f8_load l = {.program = program};
    const bool ok = load(w, ctx, &l, recipe);
    f8_load_end(&l);
    return ok;
}

bool cli_weights_quantize(cli_weights *w, fp8c_context *ctx, fp8c_program *program,
                          const char *recipe, f8_load *l)
{
    *l = (f8_load){.program = program, .quantize = true};
    return load(w, ctx, l, recipe);
}

/* ---- the recipes under which a file stores weights ---- */

/* Checks one weight of the list. false after a message on stderr. */
static bool read_stored(const f8_weights *files, fp8c_context *ctx, const char *name,
                        const char *recipe)
{
    char shown[NAME_ROOM], canonical[CLI_RECIPE];
    if (recipe && fp8c_recipe_canonical(ctx, recipe, canonical, sizeof canonical) == FP8C_OK)
        return true;
    fprintf(stderr, "%s: error: the metadata 'fp8c.stored' of '%s': %s\n", files->shown,
            f8_st_shown(name, shown, sizeof shown), recipe ? "" : "it has no recipe");
    return recipe ? cli_fail(ctx) == CLI_DONE : false;
}

bool cli_stored_read(cli_stored *s, const f8_weights *files, fp8c_context *ctx)
{
    const char *text = f8_weights_metadata(files, "fp8c.stored"), *name;
    json_t *value;
    *s = (cli_stored){0};
    if (!text)
        return true;
    s->owner = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    if (!json_is_object(s->owner) || !json_object_size(s->owner)) {
        fprintf(
            stderr,
            "%s: error: the metadata 'fp8c.stored' is not a JSON object of weights and recipes\n",
            files->shown);
        return false;
    }
    s->weight = calloc(json_object_size(s->owner), sizeof *s->weight);
    if (!s->weight) {
        fprintf(stderr, "%s: error: out of memory\n", files->shown);
        return false;
    }
    json_object_foreach (s->owner, name, value) {
        if (!read_stored(files, ctx, name, json_string_value(value)))
            return false;
        s->weight[s->n++] = (fp8c_stored_as){name, json_string_value(value)};
    }
    return true;
}

void cli_stored_free(cli_stored *s)
{
    free(s->weight);
    json_decref(s->owner);
    *s = (cli_stored){0};
}
