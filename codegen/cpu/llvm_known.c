/* The identity of LLVM without loading LLVM: see llvm_known.h. */
#include "codegen/cpu/llvm_known.h"

#include <cpuid.h>
#include <string.h>
#include <sys/stat.h>

#include "runtime/base/dynlib.h"

/* ---- the question ---- */

/* What LLVM reads to name the CPU and its features (getHostCPUName): leaves of CPUID, and of each
 * leaf the registers that are equal on every core at all times. */
static const struct {
    uint32_t leaf, sub;
    bool eax, ebx, ecx, edx;
} leaves[] = {
    {0x0, 0, true, true, true, true},        {0x1, 0, true, false, true, true},
    {0x7, 0, true, true, true, true},        {0x7, 1, true, true, true, true},
    {0xd, 1, true, false, false, false},     {0x14, 0, true, true, false, false},
    {0x19, 0, false, true, false, false},    {0x24, 0, true, true, false, false},
    {0x80000001, 0, true, true, true, true}, {0x80000008, 0, false, true, false, false},
};

static const char *add_cpuid(const char *text, f8_arena *arena)
{
    for (size_t i = 0; i < sizeof leaves / sizeof *leaves && text; i++) {
        uint32_t a = 0, b = 0, c = 0, d = 0;
        (void)__get_cpuid_count(leaves[i].leaf, leaves[i].sub, &a, &b, &c, &d);
        text = f8_arena_printf(arena, "%s %x %x %x %x", text, leaves[i].eax ? a : 0,
                               leaves[i].ebx ? b : 0, leaves[i].ecx ? c : 0, leaves[i].edx ? d : 0);
    }
    uint32_t a = 0, b = 0, c = 0, d = 0, low = 0, high = 0;
    if (__get_cpuid(1, &a, &b, &c, &d) && c & bit_OSXSAVE) /* the registers that the system saves */
        __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return text ? f8_arena_printf(arena, "%s %x %x\n", text, low, high) : NULL;
}

/* A file as it is now; "" if it does not exist. */
static const char *describe_file(const char *path, f8_arena *arena)
{
    struct stat s;
    if (stat(path, &s))
        return "";
    return f8_arena_printf(arena, "%llu %lld %lld.%ld %lld.%ld", (unsigned long long)s.st_ino,
                           (long long)s.st_size, (long long)s.st_mtim.tv_sec, s.st_mtim.tv_nsec,
                           (long long)s.st_ctim.tv_sec, s.st_ctim.tv_nsec);
}

static const char *add_files(const char *text, const char *const *names, f8_arena *arena)
{
    static const char *const loaders[] = {"", NULL};
    f8_dynlib_file *file;
    f8_diag ignored = {0};
    size_t n;
    if (f8_dynlib_files(names, loaders, arena, &file, &n, &ignored) != F8_OK)
        return NULL;
    for (size_t i = 0; i < n && text; i++)
        text = f8_arena_printf(arena, "%sfile %s %llu %lld\n", text, file[i].path,
                               (unsigned long long)file[i].inode, (long long)file[i].bytes);
    return text;
}

const char *f8_llvm_question(const f8_llvm_options *options, f8_arena *arena)
{
    const char *const given[] = {options->library, NULL};
    const char *const *names = options->library ? given : f8_llvm_library_names();
    const char *slash = options->library ? strrchr(options->library, '/') : NULL;
    if (f8_dynlib_mapped(options->library ? (slash ? slash + 1 : options->library) : "libLLVM",
                         NULL, arena))
        return NULL;
    const char *text = f8_arena_printf(arena, "which llvm\nlibrary %s\nloader's cache %s\n",
                                       options->library ? options->library : "",
                                       describe_file("/etc/ld.so.cache", arena));
    text = text ? add_files(text, names, arena) : NULL;
    text = text ? f8_arena_printf(arena, "%scpu %s", text, options->cpu ? options->cpu : "native")
                : NULL;
    return text ? add_cpuid(text, arena) : NULL;
}

/* ---- the answer ---- */

/* Reads a stored answer: the path of the file, its state, and the identity, which has several
 * lines. */
const char *f8_llvm_recall(f8_cache *cache, const char *question, f8_arena *arena)
{
    f8_cache_value v;
    if (!cache || !question)
        return NULL;
    const f8_cache_key key = f8_cache_key_of(question, strlen(question));
    if (!f8_cache_get(cache, &key, arena, &v))
        return NULL;
    char *path = f8_arena_strndup(arena, (const char *)v.bytes, v.size);
    char *file = path ? strchr(path, '\n') : NULL, *identity = file ? strchr(file + 1, '\n') : NULL;
    if (!identity)
        return NULL;
    *file++ = *identity++ = 0;
    const char *now = describe_file(path, arena);
    return now && *now && !strcmp(now, file) ? identity : NULL;
}

void f8_llvm_remember(f8_cache *cache, const char *question, const f8_llvm *llvm, f8_arena *arena)
{
    if (!cache || !question || !llvm->path)
        return;
    const f8_cache_key key = f8_cache_key_of(question, strlen(question));
    const char *file = describe_file(llvm->path, arena), *identity = f8_llvm_identity(llvm, arena);
    char *text = file && *file && identity
                     ? f8_arena_printf(arena, "%s\n%s\n%s", llvm->path, file, identity)
                     : NULL;
    if (text && !strchr(llvm->path, '\n'))
        f8_cache_put(cache, &key, text, strlen(text));
}
