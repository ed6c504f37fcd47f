/* Hugging Face's index of a model in several files: see weights.h. */
#include "frontend/checkpoint/weights.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "ir/base/text.h"

enum { SHOWN = 200 };

bool f8_is_index(const char *path)
{
    return f8_text_ends_with(path, ".index.json");
}

static f8_status parse(const char *path, f8_arena *memory, json_t **owner, f8_diag *diag)
{
    f8_file_in in;
    json_error_t error;
    char shown[SHOWN];
    F8_TRY(f8_file_open(&in, path, diag));
    const uint64_t size = in.size;
    char *text = size <= F8_ST_MAX_HEADER ? F8_NEW_ARRAY(memory, char, (size_t)size + 1) : NULL;
    f8_status status = F8_OK;
    if (size > F8_ST_MAX_HEADER)
        status = f8_file_fail(diag, F8_ERR_INPUT, path, "an index has at most %d bytes",
                              F8_ST_MAX_HEADER);
    else if (!text)
        status = f8_arena_status(memory, diag);
    else
        status = f8_file_get(&in, text, size, 0, diag);
    f8_file_close(&in);
    F8_TRY(status);
    *owner = json_loadb(text, (size_t)size, JSON_REJECT_DUPLICATES, &error);
    return *owner ? F8_OK
                  : f8_file_fail(diag, F8_ERR_INPUT, path, "it is not valid JSON: %s (line %d)",
                                 f8_st_shown(error.text, shown, sizeof shown), error.line);
}

/* Whether a file's name stays in the folder of the index: it is relative, and no part of it is
 * "..". */
static bool is_inside(const char *name)
{
    if (!*name || *name == '/')
        return false;
    for (const char *part = name; part; part = strchr(part, '/')) {
        part += *part == '/';
        if (!strncmp(part, "..", 2) && (part[2] == '/' || !part[2]))
            return false;
    }
    return true;
}

static int by_name(const void *x, const void *y)
{
    return strcmp(*(const char *const *)x, *(const char *const *)y);
}

/* The distinct file names of the map, sorted. */
static f8_status list_files(const char *path, json_t *tensors, f8_arena *memory,
                            const char ***files, size_t *n, f8_diag *diag)
{
    const char *tensor;
    json_t *value;
    char shown[2][SHOWN];
    const char **all = F8_NEW_ARRAY(memory, const char *, json_object_size(tensors) + 1);
    size_t used = 0;
    if (!all)
        return f8_arena_status(memory, diag);
    json_object_foreach (tensors, tensor, value) {
        const char *name = json_string_value(value);
        f8_st_shown(tensor, shown[0], SHOWN);
        if (!name)
            return f8_file_fail(diag, F8_ERR_INPUT, path,
                                "'weight_map': the file of '%s' is not a string", shown[0]);
        if (!is_inside(name))
            return f8_file_fail(diag, F8_ERR_INPUT, path,
                                "'weight_map': the file '%s' of '%s' is not in the index's folder",
                                f8_st_shown(name, shown[1], SHOWN), shown[0]);
        all[used++] = name;
    }
    qsort(all, used, sizeof *all, by_name);
    for (size_t i = *n = 0; i < used; i++)
        if (!i || strcmp(all[i], all[i - 1]))
            all[(*n)++] = all[i];
    *files = all;
    return F8_OK;
}

f8_status f8_index_read(const char *path, f8_arena *memory, const char ***files, size_t *n,
                        json_t **tensors, json_t **owner, f8_diag *diag)
{
    F8_TRY(parse(path, memory, owner, diag));
    *tensors = json_object_get(*owner, "weight_map");
    if (!json_object_size(*tensors))
        return f8_file_fail(diag, F8_ERR_INPUT, path,
                            "it has no 'weight_map', an object of tensors and their files");
    F8_TRY(list_files(path, *tensors, memory, files, n, diag));
    const char *slash = strrchr(path, '/');
    const int folder = slash ? (int)(slash + 1 - path) : 0;
    for (size_t i = 0; i < *n; i++)
        (*files)[i] = f8_arena_printf(memory, "%.*s%s", folder, path, (*files)[i]);
    return f8_arena_status(memory, diag);
}

/* ---- folders ---- */

bool f8_is_folder(const char *path)
{
    struct stat info;
    return !stat(path, &info) && S_ISDIR(info.st_mode);
}

/* Keeps the indices, if there are any: the files are theirs. */
static size_t keep_indices(const char **files, size_t n)
{
    size_t kept = 0;
    for (size_t i = 0; i < n; i++)
        if (f8_is_index(files[i]))
            files[kept++] = files[i];
    return kept ? kept : n;
}

f8_status f8_folder_files(const char *folder, f8_arena *memory, const char ***files, size_t *n,
                          f8_diag *diag)
{
    DIR *open = opendir(folder);
    struct dirent *entry;
    size_t room = 0;
    const char **all = NULL;
    *n = 0;
    if (!open)
        return f8_file_fail(diag, F8_ERR_IO, folder, "the folder can't be read");
    while ((entry = readdir(open))) {
        if (!f8_text_ends_with(entry->d_name, ".safetensors") &&
            !f8_text_ends_with(entry->d_name, ".safetensors.index.json"))
            continue;
        const char **grown = f8_arena_grow(memory, all, *n, &room, *n + 1, sizeof *grown);
        if (!grown)
            break;
        all = grown;
        all[(*n)++] = f8_arena_printf(memory, "%s/%s", folder, entry->d_name);
    }
    closedir(open);
    F8_TRY(f8_arena_status(memory, diag));
    if (!*n)
        return f8_file_fail(
            diag, F8_ERR_INPUT, folder,
            "the folder has no weights: neither a .safetensors file nor an index of them");
    qsort(all, *n, sizeof *all, by_name);
    *n = keep_indices(all, *n);
    *files = all;
    return F8_OK;
}
