/* Weights in files: see weights.h. */
#include "frontend/checkpoint/weights.h"

#include <stdlib.h>
#include <string.h>

#include "frontend/checkpoint/checkpoint.h"
#include "ir/recipe.h"

enum { SHOWN = 200 };

/* Files being opened. */
typedef struct opener {
    f8_weights *w;
    const fp8c_load_options *o;
    bool as_native; /* scales get the names and shapes of fp8c's own files */
    size_t room;
    f8_diag *diag;
} opener;

#define FAIL(o, path, ...) f8_file_fail((o)->diag, F8_ERR_INPUT, path, __VA_ARGS__)

/* ---- files ---- */

static f8_status open_file(opener *o, const char *path)
{
    f8_weights *w = o->w;
    f8_st_file *grown =
        f8_arena_grow(&w->memory, w->file, w->n_files, &o->room, w->n_files + 1, sizeof *grown);
    if (!grown)
        return f8_arena_status(&w->memory, o->diag);
    w->file = grown;
    F8_TRY(f8_st_open(&w->file[w->n_files], path, &w->memory.allocator, o->diag));
    w->n_files++;
    return F8_OK;
}

/* Every tensor of an index must be in the file that it names. The files are the last n. */
static f8_status check_index(opener *o, const char *path, const json_t *tensors, size_t n)
{
    const f8_weights *w = o->w;
    const char *slash = strrchr(path, '/');
    const size_t folder = slash ? (size_t)(slash + 1 - path) : 0;
    char shown[2][SHOWN];
    void *at = json_object_iter((json_t *)tensors);
    for (; at; at = json_object_iter_next((json_t *)tensors, at)) {
        const char *name = json_object_iter_key(at),
                   *file = json_string_value(json_object_iter_value(at));
        bool found = false;
        for (size_t i = w->n_files - n; i < w->n_files && !found; i++) {
            found = !strcmp(w->file[i].in.path + folder, file) && f8_st_find(&w->file[i], name);
        }
        if (!found)
            return FAIL(o, path, "'%s' is not in '%s', where 'weight_map' says it is",
                        f8_st_shown(name, shown[0], SHOWN), f8_st_shown(file, shown[1], SHOWN));
    }
    return F8_OK;
}

static f8_status open_index(opener *o, const char *path)
{
    const char **files;
    json_t *tensors, *owner = NULL;
    size_t n;
    f8_status status = f8_index_read(path, &o->w->memory, &files, &n, &tensors, &owner, o->diag);
    for (size_t i = 0; i < n && status == F8_OK; i++)
        status = open_file(o, files[i]);
    if (status == F8_OK)
        status = check_index(o, path, tensors, n);
    json_decref(owner);
    return status;
}

static f8_status open_one(opener *o, const char *path)
{
    return f8_is_index(path) ? open_index(o, path) : open_file(o, path);
}

static f8_status open_folder(opener *o, const char *path)
{
    const char **files;
    size_t n;
    F8_TRY(f8_folder_files(path, &o->w->memory, &files, &n, o->diag));
    for (size_t i = 0; i < n; i++)
        F8_TRY(open_one(o, files[i]));
    return F8_OK;
}

static f8_status open_files(opener *o)
{
    if (!o->o->n_files)
        return f8_fail(o->diag, F8_ERR_INPUT, F8_NOWHERE, "no file of weights is given");
    for (size_t i = 0; i < o->o->n_files; i++) {
        const char *path = o->o->files[i];
        F8_TRY(f8_is_folder(path) ? open_folder(o, path) : open_one(o, path));
    }
    o->w->shown = o->o->files[0];
    if (o->o->n_files > 1)
        o->w->shown = f8_arena_printf(&o->w->memory, "%s and %zu more file%s", o->o->files[0],
                                      o->o->n_files - 1, o->o->n_files > 2 ? "s" : "");
    return f8_arena_status(&o->w->memory, o->diag);
}

/* ---- names ---- */

static bool is_state(const char *name)
{
    return !strncmp(name, f8_checkpoint_prefix, strlen(f8_checkpoint_prefix));
}

/* A map as FROM and TO. F8_ERR_INPUT: it is none. */
static f8_status split(opener *o, const char *map, const char **from, const char **to)
{
    const char *equals = strchr(map, '=');
    if (!equals || equals == map || !equals[1])
        return f8_fail(o->diag, F8_ERR_INPUT, F8_NOWHERE, "map '%s' is not FROM=TO", map);
    *from = f8_arena_strndup(&o->w->memory, map, (size_t)(equals - map));
    *to = equals + 1;
    F8_TRY(f8_arena_status(&o->w->memory, o->diag));
    return f8_weights_stars(*to) <= f8_weights_stars(*from)
               ? F8_OK
               : f8_fail(o->diag, F8_ERR_INPUT, F8_NOWHERE,
                         "map '%s' has more stars in TO than in FROM", map);
}

/* Note the tensors that a pattern ignores. */
static f8_status ignore(opener *o, const char *pattern)
{
    bool any = false;
    for (size_t i = 0; i < o->w->n; i++) {
        f8_weight *t = &o->w->weight[i];
        if (!f8_pattern_match(pattern, t->tensor->name))
            continue;
        any = true;
        if (!t->ignored)
            t->ignored = pattern;
    }
    return any ? F8_OK : FAIL(o, o->w->shown, "ignore '%s': no tensor has such a name", pattern);
}

/* Rename the tensors that a map matches and no earlier one did. `mapped` notes them. fp8c's own
 * states have no other names. */
static f8_status rename_all(opener *o, const char *map, bool *mapped)
{
    const char *from = NULL, *to = NULL;
    bool any = false;
    F8_TRY(split(o, map, &from, &to));
    for (size_t i = 0; i < o->w->n; i++) {
        f8_weight *t = &o->w->weight[i];
        if (mapped[i] || t->ignored || is_state(t->tensor->name) ||
            !f8_weights_map(from, to, t->tensor->name, &o->w->memory, &t->name))
            continue;
        any = mapped[i] = true;
    }
    F8_TRY(f8_arena_status(&o->w->memory, o->diag));
    return any ? F8_OK
               : FAIL(o, o->w->shown, "map '%s': no tensor that earlier maps left has such a name",
                      map);
}

static int by_name(const void *x, const void *y)
{
    const f8_weight *a = x, *b = y;
    if (!a->ignored != !b->ignored)
        return a->ignored ? 1 : -1;
    return strcmp(a->name, b->name);
}

static f8_status check_distinct(opener *o)
{
    char shown[3][SHOWN];
    for (size_t i = 1; i < o->w->n_named; i++) {
        const f8_weight *a = &o->w->weight[i - 1], *b = &o->w->weight[i];
        if (strcmp(a->name, b->name))
            continue;
        if (a->file != b->file && !strcmp(a->tensor->name, b->tensor->name))
            return FAIL(o, b->file->in.path, "tensor '%s' is also in %s",
                        f8_st_shown(b->tensor->name, shown[0], SHOWN), a->file->in.path);
        return FAIL(o, b->file->in.path, "the maps give the tensors '%s' and '%s' one name, '%s'",
                    f8_st_shown(a->tensor->name, shown[0], SHOWN),
                    f8_st_shown(b->tensor->name, shown[1], SHOWN),
                    f8_st_shown(a->name, shown[2], SHOWN));
    }
    return F8_OK;
}

static void sort(f8_weights *w)
{
    qsort(w->weight, w->n, sizeof *w->weight, by_name);
    w->n_named = 0;
    while (w->n_named < w->n && !w->weight[w->n_named].ignored)
        w->n_named++;
}

static f8_status name_tensors(opener *o)
{
    f8_weights *w = o->w;
    for (size_t i = 0; i < w->n_files; i++)
        w->n += w->file[i].n;
    w->weight = F8_NEW_ARRAY(&w->memory, f8_weight, w->n + 1);
    bool *mapped = F8_NEW_ARRAY(&w->memory, bool, w->n + 1);
    F8_TRY(f8_arena_status(&w->memory, o->diag));
    size_t at = 0;
    for (size_t i = 0; i < w->n_files; i++)
        for (size_t k = 0; k < w->file[i].n; k++) {
            const f8_st_tensor *t = &w->file[i].tensor[k];
            w->weight[at++] = (f8_weight){.name = t->name, .tensor = t, .file = &w->file[i]};
        }
    for (size_t i = 0; i < o->o->n_ignore; i++)
        F8_TRY(ignore(o, o->o->ignore[i]));
    for (size_t i = 0; i < o->o->n_map; i++)
        F8_TRY(rename_all(o, o->o->map[i], mapped));
    sort(w);
    F8_TRY(check_distinct(o));
    if (o->as_native) {
        if (!f8_weights_as_native(w))
            return f8_arena_status(&w->memory, o->diag);
        sort(w);
    }
    return check_distinct(o);
}

/* ---- the whole ---- */

static f8_status open_as(f8_weights *w, const fp8c_load_options *o, bool as_native,
                         const f8_allocator *allocator, f8_diag *diag)
{
    const f8_allocator usual = f8_default_allocator();
    opener in = {.w = w, .o = o, .as_native = as_native, .diag = diag};
    *w = (f8_weights){0};
    f8_arena_init(&w->memory, allocator ? allocator : &usual);
    F8_TRY(open_files(&in));
    return name_tensors(&in);
}

f8_status f8_weights_open(f8_weights *w, const fp8c_load_options *o, const f8_allocator *allocator,
                          f8_diag *diag)
{
    return open_as(w, o, true, allocator, diag);
}

f8_status f8_weights_open_as_they_are(f8_weights *w, const fp8c_load_options *o,
                                      const f8_allocator *allocator, f8_diag *diag)
{
    return open_as(w, o, false, allocator, diag);
}

void f8_weights_close(f8_weights *w)
{
    for (size_t i = 0; i < w->n_files; i++)
        f8_st_close(&w->file[i]);
    if (w->memory.allocator.alloc)
        f8_arena_end(&w->memory);
    *w = (f8_weights){0};
}
