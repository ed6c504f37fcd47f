/* Where NVIDIA's libraries are searched: README.md has the order. */
#include "runtime/cuda/internal.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_FOLDERS = 32 };

typedef struct folder_list {
    f8_arena *arena;
    const char **folder;
    int n;
} folder_list;

static bool given(const char *s)
{
    return s && *s;
}

static void add(folder_list *l, const char *root, const char *below)
{
    const char *folder = f8_arena_printf(l->arena, "%s%s", root, below);
    for (int i = 0; i < l->n && folder; i++)
        if (l->folder[i] && !strcmp(l->folder[i], folder))
            return;
    l->folder[l->n++] = folder;
}

static void add_toolkit(folder_list *l, const char *root)
{
    add(l, root, "/lib64");
    add(l, root, "/lib");
}

const char *const *f8_cuda_folders(const f8_cuda_paths *p, f8_arena *arena)
{
    folder_list l = {arena, F8_NEW_ARRAY(arena, const char *, MAX_FOLDERS + 1), 0};
    if (!l.folder)
        return NULL;
    if (given(p->fp8c_cuda_path)) {
        add(&l, p->fp8c_cuda_path, "");
        add_toolkit(&l, p->fp8c_cuda_path);
    } else {
        if (given(p->cuda_home))
            add_toolkit(&l, p->cuda_home);
        if (given(p->cuda_path))
            add_toolkit(&l, p->cuda_path);
        add(&l, "", "");
        add_toolkit(&l, "/usr/local/cuda");
        add_toolkit(&l, "/usr/local/cuda-*");
        /* Wheels put their files into nvidia/<name>/lib; of CUDA 13 on all share nvidia/cu13/lib,
         * which the same pattern finds. */
        if (given(p->virtual_env))
            add(&l, p->virtual_env, "/lib/python3*/site-packages/nvidia/*/lib");
        if (given(p->home))
            add(&l, p->home, "/.local/lib/python3*/site-packages/nvidia/*/lib");
        add(&l, "/usr/local/lib", "/python3*/site-packages/nvidia/*/lib");
        add(&l, "/usr/local/lib", "/python3*/dist-packages/nvidia/*/lib");
        add(&l, "/usr/lib", "/python3*/dist-packages/nvidia/*/lib");
        add(&l, "/usr/lib", "/python3*/site-packages/nvidia/*/lib");
    }
    return arena->failed ? NULL : l.folder;
}

f8_cuda_paths f8_cuda_paths_from_environment(void)
{
    return (f8_cuda_paths){.fp8c_cuda_path = secure_getenv("FP8C_CUDA_PATH"),
                           .cuda_home = secure_getenv("CUDA_HOME"),
                           .cuda_path = secure_getenv("CUDA_PATH"),
                           .virtual_env = secure_getenv("VIRTUAL_ENV"),
                           .home = secure_getenv("HOME")};
}
