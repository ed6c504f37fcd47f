/* Weights of files that a training begins with: see weights.h. */
#include "frontend/train/weights.h"

#include <stdlib.h>

#include "frontend/checkpoint/loader.h"
#include "ir/base/hash.h"

f8_status f8_train_weights_check(const f8_train_options *o, f8_diag *diag)
{
    const struct {
        const char *name;
        size_t n;
    } of_weights[] = {
        {"--ignore", o->ignore.n}, {"--map", o->map.n}, {"--allow-missing", o->allow_missing.n}};
    if (o->weights.n && o->resume)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                       "--weights begins a training, and --resume goes on with one, whose weights "
                       "are in its folder: give one of the two");
    for (int i = 0; i < 3; i++)
        if (of_weights[i].n && !o->weights.n)
            return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                           "%s is of the tensors of --weights, which is not given",
                           of_weights[i].name);
    return F8_OK;
}

static fp8c_load_options load_options(const f8_train_options *o)
{
    return (fp8c_load_options){.struct_size = sizeof(fp8c_load_options),
                               .files = o->weights.text,
                               .n_files = o->weights.n,
                               .ignore = o->ignore.text,
                               .n_ignore = o->ignore.n,
                               .map = o->map.text,
                               .n_map = o->map.n,
                               .allow_missing = o->allow_missing.text,
                               .n_allow_missing = o->allow_missing.n};
}

/* ---- loading ---- */

/* Says what became of each tensor. */
static bool tell(f8_train *t, const f8_loader *l, const char *recipe)
{
    char *lists = t->options->verbose ? f8_loader_lists(l) : NULL;
    if (lists)
        f8_train_say(t, "%s", lists);
    free(lists);
    return f8_train_record(t, f8_loader_record(l, recipe));
}

static bool load(f8_train *t, fp8c_context *ctx, f8_loader *l, fp8c_program *program,
                 const char *recipe)
{
    f8_diag diag = {0};
    const fp8c_status status = f8_loader_load(l, program, &diag);
    if (status == FP8C_OK)
        return !recipe || tell(t, l, recipe);
    if (!json_array_size(l->problems))
        return diag.status != F8_OK ? f8_train_done(t, diag.status, &diag)
                                    : f8_train_ok(t, ctx, status);
    char *refusal = f8_loader_refusal(l, t->file ? t->file : "the module", t->options->recipe);
    const bool ok = refusal ? f8_train_fail(t, F8_ERR_INPUT, "%s", refusal) : f8_train_no_memory(t);
    free(refusal);
    return ok;
}

bool f8_train_initialize(f8_train *t, fp8c_context *ctx, fp8c_program *program, const char *recipe,
                         uint64_t seed)
{
    f8_loader l = {0};
    f8_diag diag = {0};
    const fp8c_load_options options = load_options(t->options);
    if (!t->options->weights.n)
        return f8_train_ok(t, ctx, fp8c_program_initialize(program, seed));
    bool ok = f8_train_done(t, f8_loader_open(&l, &options, seed, &diag), &diag);
    l.begins = true;
    ok = ok && load(t, ctx, &l, program, recipe);
    f8_loader_close(&l);
    return ok;
}

/* ---- what the files were ---- */

static f8_status hash_file(const f8_file_in *in, char text[33], f8_diag *diag)
{
    enum { PIECE = 1 << 20 };
    f8_hasher hasher;
    f8_status status = F8_OK;
    char *piece = malloc(PIECE);
    if (!piece)
        return f8_file_fail(diag, F8_ERR_MEMORY, in->path, "out of memory");
    f8_hasher_begin(&hasher);
    for (uint64_t at = 0; at < in->size && status == F8_OK; at += PIECE) {
        const uint64_t n = in->size - at < PIECE ? in->size - at : PIECE;
        status = f8_file_get(in, piece, n, at, diag);
        f8_hasher_add(&hasher, piece, status == F8_OK ? (size_t)n : 0);
    }
    free(piece);
    f8_hash_text(f8_hasher_end(&hasher), text);
    return status;
}

static json_t *facts_of(f8_train *t, const f8_weights *files, bool paths)
{
    json_t *all = json_array();
    char text[33];
    for (size_t i = 0; i < files->n_files; i++) {
        const f8_file_in *in = &files->file[i].in;
        f8_diag diag = {0};
        if (!f8_train_done(t, hash_file(in, text, &diag), &diag)) {
            json_decref(all);
            return NULL;
        }
        json_array_append_new(all, json_pack("{ss* sI ss}", "file", paths ? in->path : NULL,
                                             "bytes", (json_int_t)in->size, "hash", text));
    }
    if (json_array_size(all) != files->n_files)
        f8_train_no_memory(t);
    return all;
}

json_t *f8_train_weights_facts(f8_train *t, bool paths)
{
    f8_weights files = {0};
    f8_diag diag = {0};
    const fp8c_load_options options = load_options(t->options);
    if (!t->options->weights.n)
        return json_null();
    json_t *facts = NULL;
    if (f8_train_done(t, f8_weights_open(&files, &options, NULL, &diag), &diag))
        facts = facts_of(t, &files, paths);
    f8_weights_close(&files);
    return facts;
}
