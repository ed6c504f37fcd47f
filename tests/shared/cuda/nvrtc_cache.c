/* See nvrtc_cache.h. */
#include "tests/shared/cuda/nvrtc_cache.h"

#include "codegen/cuda/emit.h"
#include "ir/base/hash.h"
#include "tests/shared/passes/compile.h"

#include <check.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FOLDER "build/nvrtc"

/* A byte that no text has ends each text, so that "ab", "c" and "a", "bc" have different hashes. */
static uint64_t hash_of(uint64_t h, const char *s)
{
    return f8_fnv(f8_fnv(h, s), "\xff");
}

/* The options are in the source file that calls NVRTC, so that file is hashed. */
void nvrtc_cache_open(nvrtc_cache *cache, f8_cuda *cuda)
{
    int version = 0;
    f8_diag d = {0};
    char number[32];
    size_t size;
    char *source = f8_test_read("runtime/cuda/nvrtc.c", &size);
    ck_assert_ptr_nonnull(source);
    source[size] = 0;
    ck_assert_int_eq(f8_cuda_nvrtc(cuda, &version, &d), F8_OK);
    snprintf(number, sizeof number, "%d", version);
    cache->compiler = hash_of(hash_of(hash_of(F8_FNV, number), source), f8_cuda_header);
    free(source);
    mkdir("build", 0777);
    mkdir(FOLDER, 0777);
}

nvrtc_entry nvrtc_cache_entry(const nvrtc_cache *cache, const char *arch, const char *checks,
                              const char *text)
{
    nvrtc_entry entry;
    const uint64_t h = hash_of(hash_of(hash_of(cache->compiler, arch), checks), text);
    snprintf(entry.path, sizeof entry.path, FOLDER "/%016" PRIx64, h);
    return entry;
}

bool nvrtc_cache_has(const nvrtc_entry *entry)
{
    return access(entry->path, R_OK) == 0;
}

void nvrtc_cache_keep(const nvrtc_entry *entry, const char *note)
{
    FILE *f = fopen(entry->path, "w");
    if (f) {
        fprintf(f, "%s\n", note);
        fclose(f);
    }
}

bool nvrtc_in_turn(const char *kernel, const char *arch, unsigned share)
{
    const char *asked = getenv("FP8C_NVRTC");
    const f8_target *t;
    size_t n = 0, own = 0;
    for (size_t i = 0; (t = f8_target_at(i)); i++) {
        if (t->kind != F8_TARGET_CUDA)
            continue;
        if (!strcmp(t->name, arch))
            own = n;
        n++;
    }
    const uint64_t hash = f8_fnv(F8_FNV, kernel);
    return (asked && !strcmp(asked, "all")) || (hash % n == own && hash / n % share == 0);
}

void nvrtc_remove_comments(char *cuda)
{
    char *to = cuda;
    for (const char *at = cuda, *end; *at;) {
        if (!strncmp(at, "/*", 2) && (end = strstr(at, "*/")))
            at = end + 2;
        else
            *to++ = *at++;
    }
    *to = 0;
}
