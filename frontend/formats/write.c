/* Writing a folder of weights: see write.h. */
#include "frontend/formats/write.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ir/base/format.h"
#include "ir/base/text.h"

static const uint64_t usual_most = 5000000000; /* transformers' max_shard_size */

typedef struct writer {
    f8_model_folder_out *out;
    f8_diag *diag;
    char folder[PATH_MAX]; /* the new one */
    size_t *file;          /* of each tensor */
    size_t *member;        /* those of the file being written */
    size_t n_members;
    f8_arena memory;
} writer;

static f8_status fail(writer *w, const char *path)
{
    return f8_file_fail(w->diag, F8_ERR_IO, path, "%s", f8_errno_text(errno));
}

/* ---- the folder ---- */

static bool is_empty(const char *path)
{
    DIR *folder = opendir(path);
    struct dirent *entry;
    bool empty = folder != NULL;
    while (folder && (entry = readdir(folder)))
        if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, ".."))
            empty = false;
    if (folder)
        closedir(folder);
    return empty;
}

f8_status f8_model_folder_writable(const char *path, f8_diag *diag)
{
    struct stat info;
    if (stat(path, &info))
        return F8_OK;
    if (!S_ISDIR(info.st_mode))
        return f8_file_fail(diag, F8_ERR_INPUT, path,
                            "it is a file: give the name of a new folder");
    return is_empty(path) ? F8_OK
                          : f8_file_fail(diag, F8_ERR_INPUT, path,
                                         "the folder is not empty: give the name of a new one");
}

static void remove_folder(const char *path)
{
    DIR *folder = opendir(path);
    struct dirent *entry;
    while (folder && (entry = readdir(folder)))
        unlinkat(dirfd(folder), entry->d_name, 0);
    if (folder)
        closedir(folder);
    rmdir(path);
}

bool f8_model_folder_beside(const char *path, const char *end, char to[PATH_MAX])
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    return snprintf(to, PATH_MAX, "%.*s.%ld%s", (int)n, path, (long)getpid(), end) < PATH_MAX;
}

static f8_status begin(writer *w)
{
    const char *path = w->out->path;
    if (!f8_model_folder_beside(path, ".tmp", w->folder)) {
        w->folder[0] = 0; /* a name that was cut is another folder's: it is not to be removed */
        return f8_file_fail(w->diag, F8_ERR_INPUT, path, "the name is too long");
    }
    if (!mkdir(w->folder, 0777))
        return F8_OK;
    const f8_status status = fail(w, path);
    w->folder[0] = 0;
    return status;
}

/* ROOT/NAME. NULL: out of memory. */
static const char *inside(writer *w, const char *root, const char *name)
{
    return f8_arena_printf(&w->memory, "%s/%s", root, name);
}

static f8_status finish(writer *w)
{
    const int folder = open(w->folder, O_RDONLY | O_DIRECTORY);
    const bool flushed = folder >= 0 && !fsync(folder);
    if (folder >= 0)
        close(folder);
    if (!flushed || rename(w->folder, w->out->path))
        return fail(w, w->out->path);
    w->folder[0] = 0;
    return F8_OK;
}

/* ---- JSON ---- */

static f8_status put_json(writer *w, const char *name, const json_t *value)
{
    char *text = json_dumps(value, JSON_INDENT(2) | JSON_PRESERVE_ORDER);
    const char *path = inside(w, w->folder, name);
    f8_status status = f8_arena_status(&w->memory, w->diag);
    if (status == F8_OK && !text)
        status = f8_file_fail(w->diag, F8_ERR_MEMORY, path, "out of memory");
    if (status == F8_OK) {
        const size_t n = strlen(text);
        text[n] = '\n'; /* in the place of the end, which is not written */
        status = f8_file_write(w->out->list, path, text, n + 1, false, w->diag);
    }
    free(text);
    return status;
}

/* ---- files of others ---- */

/* Weights, and configs that are written anew. */
static bool is_carried(const char *name)
{
    static const char *const of_weights[] = {".safetensors", ".index.json", ".bin",     ".pt",
                                             ".pth",         ".h5",         ".msgpack", ".gguf",
                                             ".onnx",        ".ckpt"};
    for (size_t i = 0; i < sizeof of_weights / sizeof *of_weights; i++)
        if (f8_text_ends_with(name, of_weights[i]))
            return false;
    /* transformers would look for the adapters of an adapter_config.json */
    return name[0] != '.' && strcmp(name, "config.json") && strcmp(name, "hf_quant_config.json") &&
           strcmp(name, "adapter_config.json");
}

static f8_status carry_file(writer *w, const char *name)
{
    const char *from = inside(w, w->out->carry, name), *to = inside(w, w->folder, name);
    f8_file_bytes file = {0};
    struct stat info;
    F8_TRY(f8_arena_status(&w->memory, w->diag));
    if (stat(from, &info) || !S_ISREG(info.st_mode))
        return F8_OK;
    f8_status status = f8_file_read(from, UINT32_MAX, w->out->allocator, &file, w->diag);
    if (status == F8_OK)
        status = f8_file_write(w->out->list, to, file.bytes, file.size, false, w->diag);
    f8_file_release(&file);
    return status;
}

static f8_status carry(writer *w)
{
    struct dirent *entry;
    f8_status status = F8_OK;
    DIR *folder = w->out->carry ? opendir(w->out->carry) : NULL;
    if (!folder)
        return w->out->carry ? fail(w, w->out->carry) : F8_OK;
    while (status == F8_OK && (entry = readdir(folder)))
        if (is_carried(entry->d_name))
            status = carry_file(w, entry->d_name);
    closedir(folder);
    return status;
}

/* ---- weights ---- */

/* Puts tensors into files in their order, as many as a file takes. */
static f8_status share_out(writer *w)
{
    const uint64_t most = w->out->most ? w->out->most : usual_most;
    uint64_t used = 0;
    w->file = F8_NEW_ARRAY(&w->memory, size_t, w->out->n + 1);
    w->member = F8_NEW_ARRAY(&w->memory, size_t, w->out->n + 1);
    F8_TRY(f8_arena_status(&w->memory, w->diag));
    w->out->bytes = 0;
    size_t file = 0;
    for (size_t i = 0; i < w->out->n; i++) {
        const uint64_t bytes = f8_st_bytes(&w->out->tensor[i]);
        if (used && used + bytes > most) {
            file++;
            used = 0;
        }
        used += bytes;
        w->file[i] = file;
        w->out->bytes += bytes;
    }
    w->out->n_files = file + 1;
    return F8_OK;
}

static const char *file_name(writer *w, size_t file)
{
    return w->out->n_files == 1 ? "model.safetensors"
                                : f8_arena_printf(&w->memory, "model-%05zu-of-%05zu.safetensors",
                                                  file + 1, w->out->n_files);
}

static f8_status fill(void *user, size_t index, void *to, f8_diag *diag)
{
    writer *w = user;
    if (w->out->stop && w->out->stop(w->out->user))
        return f8_file_fail(diag, F8_ERR_CANCELLED, w->out->path, "interrupted");
    return w->out->fill(w->out->user, w->member[index], to, diag);
}

static f8_status put_weights(writer *w, size_t file)
{
    static const f8_st_pair metadata[] = {{"format", "pt"}};
    f8_st_tensor *members = F8_NEW_ARRAY(&w->memory, f8_st_tensor, w->out->n + 1);
    const char *path = inside(w, w->folder, file_name(w, file));
    F8_TRY(f8_arena_status(&w->memory, w->diag));
    w->n_members = 0;
    for (size_t i = 0; i < w->out->n; i++)
        if (w->file[i] == file) {
            members[w->n_members] = w->out->tensor[i];
            w->member[w->n_members++] = i;
        }
    const f8_st_contents contents = {.tensor = members,
                                     .n = w->n_members,
                                     .metadata = metadata,
                                     .n_metadata = 1,
                                     .fill = fill,
                                     .user = w,
                                     .list = w->out->list};
    return f8_st_write(path, &contents, w->out->allocator, w->diag);
}

static f8_status put_index(writer *w)
{
    json_t *map = json_object(), *index = json_pack("{s{sI} so}", "metadata", "total_size",
                                                    (json_int_t)w->out->bytes, "weight_map", map);
    for (size_t i = 0; i < w->out->n; i++)
        json_object_set_new(map, w->out->tensor[i].name, json_string(file_name(w, w->file[i])));
    f8_status status = f8_arena_status(&w->memory, w->diag);
    if (status == F8_OK && (!index || json_object_size(map) != w->out->n))
        status = f8_file_fail(w->diag, F8_ERR_MEMORY, w->out->path, "out of memory");
    if (status == F8_OK)
        status = put_json(w, "model.safetensors.index.json", index);
    json_decref(index);
    return status;
}

static f8_status put_all(writer *w)
{
    F8_TRY(share_out(w));
    F8_TRY(begin(w));
    for (size_t i = 0; i < w->out->n_files; i++)
        F8_TRY(put_weights(w, i));
    if (w->out->n_files > 1)
        F8_TRY(put_index(w));
    F8_TRY(carry(w));
    if (w->out->config)
        F8_TRY(put_json(w, "config.json", w->out->config));
    if (w->out->modelopt)
        F8_TRY(put_json(w, "hf_quant_config.json", w->out->modelopt));
    return finish(w);
}

f8_status f8_model_folder_write(f8_model_folder_out *out, f8_diag *diag)
{
    const f8_allocator usual = f8_default_allocator();
    writer w = {.out = out, .diag = diag};
    F8_TRY(f8_model_folder_writable(out->path, diag));
    f8_arena_init(&w.memory, out->allocator ? out->allocator : &usual);
    const f8_status status = put_all(&w);
    if (w.folder[0])
        remove_folder(w.folder);
    if (status != F8_OK && diag->file && diag->file != out->path)
        diag->file = out->path; /* names of the new folder's files end with the arena */
    f8_arena_end(&w.memory);
    return status;
}
