/* Compiles a text's kernels with a C++ compiler, in a temporary folder, and caches each of them.
 *
 * The cache is in the library's folder (build/emulator/cache). A file is a kernel's piece
 * (image.h), and its name the hash of all that the piece depends on: the kernel and what it uses of
 * its text (text.h), our headers, the options, the compiler's own file, this library's code. So
 * plans whose texts differ share their equal kernels. Those that the cache lacks are compiled
 * together, in one run of the compiler. For a definition that no kernel uses a file says that it
 * compiled: NVRTC would refuse it if it did not. Files appear whole, by rename, so any number of
 * processes may share the cache. Where there are too many files, the least recently used are
 * removed. */
#include "tests/emulator/nvrtc.h"
#include "tests/emulator/object.h"
#include "tests/emulator/text.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* The stand-in headers, in this library: the files themselves; and the sources that make a piece,
 * for its key. */
extern const char f8_emu_header[], f8_emu_image_header[], f8_emu_sources[];
__asm__(".section .rodata\n"
        ".global f8_emu_header\n"
        ".hidden f8_emu_header\n"
        "f8_emu_header:\n"
        ".incbin \"tests/emulator/fp8c.cuh\"\n"
        ".byte 0\n"
        ".global f8_emu_image_header\n"
        ".hidden f8_emu_image_header\n"
        "f8_emu_image_header:\n"
        ".incbin \"tests/emulator/image.h\"\n"
        ".byte 0\n"
        ".global f8_emu_sources\n"
        ".hidden f8_emu_sources\n"
        "f8_emu_sources:\n"
        ".incbin \"tests/emulator/object.c\"\n"
        ".incbin \"tests/emulator/text.c\"\n"
        ".incbin \"tests/emulator/nvrtc_compile.c\"\n"
        ".byte 0\n"
        ".previous\n");

extern char **environ;
int64_t f8_emu_compiler_runs;

enum { FOLDER_ROOM = 512, PATH_ROOM = 1024, MOST_CACHED = 16384 };

/* What matters: no contraction, no vectors of the host's that change a result (there are none:
 * every operation is IEEE's), a trap at a misaligned access, no header but ours. */
static const char *const fixed_options[] = {"-x",
                                            "c++",
                                            "-std=c++17",
                                            "-w",
                                            "-fPIC",
                                            "-c",
                                            "-nostdinc",
                                            "-nostdinc++",
                                            "-fvisibility=hidden",
                                            "-ffp-contract=off",
                                            "-fno-strict-aliasing",
                                            "-fno-math-errno",
                                            "-fno-exceptions",
                                            "-fno-rtti",
                                            "-fno-stack-protector",
                                            "-fno-asynchronous-unwind-tables",
                                            "-fsanitize=alignment",
                                            "-fstack-clash-protection",
                                            "-ffunction-sections",
                                            "-fdata-sections"};
enum { N_FIXED = sizeof fixed_options / sizeof *fixed_options };

/* ---- files ---- */

f8_emu_bytes f8_emu_read_file(const char *path)
{
    f8_emu_bytes b = {NULL, 0};
    FILE *f = fopen(path, "rb");
    if (!f)
        return b;
    struct stat st;
    if (fstat(fileno(f), &st) == 0)
        b.p = malloc((size_t)st.st_size + 1);
    if (b.p) {
        b.n = fread(b.p, 1, (size_t)st.st_size, f);
        b.p[b.n] = '\0';
    }
    fclose(f);
    return b;
}

static bool write_file(const char *path, const char *before, const char *text)
{
    FILE *f = fopen(path, "wb");
    if (!f)
        return false;
    const bool good = fputs(before, f) >= 0 && fputs(text, f) >= 0;
    return fclose(f) == 0 && good;
}

/* ---- the compiler ---- */

typedef struct compiler {
    char path[PATH_ROOM];
    bool clang;
    uint64_t identity; /* of its file */
} compiler;

static bool find_in_path(const char *name, compiler *c)
{
    const char *path = getenv("PATH");
    struct stat st;
    while (path && *path) {
        const size_t n = strcspn(path, ":");
        snprintf(c->path, sizeof c->path, "%.*s/%s", (int)n, path, name);
        if (access(c->path, X_OK) == 0 && stat(c->path, &st) == 0) {
            const int64_t facts[] = {st.st_size, st.st_mtim.tv_sec, st.st_mtim.tv_nsec};
            c->clang = strstr(name, "clang") != NULL;
            c->identity =
                f8_emu_hash(f8_emu_hash(0, c->path, strlen(c->path)), facts, sizeof facts);
            return true;
        }
        path += n + (path[n] == ':');
    }
    return false;
}

static bool find_compiler(compiler *c)
{
    const char *asked = getenv("FP8C_EMULATOR_CXX");
    if (asked && *asked)
        return find_in_path(asked, c);
    return find_in_path("clang++-19", c) || find_in_path("clang++", c) || find_in_path("g++", c);
}

/* All options, for this compiler and this CPU. */
static size_t options(const compiler *c, const char **out)
{
    size_t n = 0;
    for (; n < N_FIXED; n++)
        out[n] = fixed_options[n];
    /* Results don't depend on it. Compiling takes most of the time of most tests: -O0 is ten times
     * faster. */
    static const char *const level[] = {"-O0", "-O1", "-O2"};
    const int64_t asked = f8_emu_setting("FP8C_EMULATOR_OPTIMIZE", 0);
    out[n++] = level[asked >= 0 && asked <= 2 ? asked : 0];
    out[n++] = c->clang ? "-fsanitize-trap=alignment" : "-fsanitize-undefined-trap-on-error";
    if (c->clang)
        out[n++] = "-fintegrated-cc1";
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        out[n++] = "-mavx2";
        out[n++] = "-mfma";
    }
    return n;
}

/* Runs a program whose output goes to `log`, and waits for it. */
static bool run_program(const char *path, const char **argv, const char *log)
{
    posix_spawn_file_actions_t files;
    pid_t pid;
    int status = 1;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&files, 1, log, O_WRONLY | O_CREAT | O_APPEND, 0600);
    posix_spawn_file_actions_adddup2(&files, 1, 2);
    if (posix_spawnp(&pid, path, &files, NULL, (char **)(uintptr_t)argv, environ) == 0)
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
        }
    posix_spawn_file_actions_destroy(&files);
    return status == 0;
}

static bool run_compiler(const compiler *c, const char *folder, const char *object, const char *log)
{
    const char *argv[N_FIXED + 16];
    char include[PATH_ROOM], source[PATH_ROOM];
    snprintf(include, sizeof include, "-I%s", folder);
    snprintf(source, sizeof source, "%s/text.cpp", folder);
    argv[0] = c->path;
    size_t n = 1 + options(c, argv + 1);
    argv[n++] = include;
    argv[n++] = "-o";
    argv[n++] = object;
    argv[n++] = source;
    argv[n] = NULL;
    __atomic_add_fetch(&f8_emu_compiler_runs, 1, __ATOMIC_RELAXED);
    return run_program(c->path, argv, log);
}

/* ---- the cache ---- */

static bool cache_folder(char out[FOLDER_ROOM])
{
    Dl_info self;
    if (!dladdr((void *)(uintptr_t)&f8_emu_compile, &self))
        return false;
    const char *slash = strrchr(self.dli_fname, '/');
    const int n = snprintf(out, FOLDER_ROOM, "%.*s/cache",
                           slash ? (int)(slash - self.dli_fname) : 1, slash ? self.dli_fname : ".");
    return n < FOLDER_ROOM && (mkdir(out, 0777) == 0 || errno == EEXIST);
}

/* Now and then: files beyond the most that are kept, oldest use first. A file that somebody else
 * has just opened or removed does no harm. */
static void prune(const char *folder)
{
    struct dirent **entry;
    const int n = scandir(folder, &entry, NULL, alphasort);
    time_t newest_to_go = 0;
    char path[PATH_ROOM];
    struct stat st;
    if (n > MOST_CACHED) { /* the first of the names are a fair sample: they are hashes */
        for (int i = 0; i < 64; i++) {
            snprintf(path, sizeof path, "%s/%s", folder, entry[i]->d_name);
            if (stat(path, &st) == 0 && S_ISREG(st.st_mode) &&
                (!newest_to_go || st.st_mtime < newest_to_go))
                newest_to_go = st.st_mtime;
        }
        newest_to_go += 24 * 3600;
    }
    for (int i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, entry[i]->d_name);
        if (newest_to_go && stat(path, &st) == 0 && S_ISREG(st.st_mode) &&
            st.st_mtime < newest_to_go)
            unlink(path);
        free(entry[i]);
    }
    if (n >= 0)
        free(entry);
}

/* The part of all keys that no text is in. */
static uint64_t key_of_compiler(const compiler *c, const char *name)
{
    const char *option[N_FIXED + 8];
    const size_t n = options(c, option);
    uint64_t key = f8_emu_hash(c->identity, name, strlen(name));
    key = f8_emu_hash(key, f8_emu_header, strlen(f8_emu_header));
    key = f8_emu_hash(key, f8_emu_image_header, strlen(f8_emu_image_header));
    key = f8_emu_hash(key, f8_emu_sources, strlen(f8_emu_sources));
    for (size_t i = 0; i < n; i++)
        key = f8_emu_hash(key, option[i], strlen(option[i]));
    return key;
}

/* Into the cache under its final name at once. */
static void publish(const char *cache, uint64_t key, const f8_emu_bytes *bytes)
{
    char path[PATH_ROOM], cached[PATH_ROOM];
    snprintf(path, sizeof path, "%s/new.XXXXXX", cache);
    snprintf(cached, sizeof cached, "%s/%016llx", cache, (unsigned long long)key);
    const int fd = mkstemp(path);
    if (fd < 0)
        return;
    const bool good = write(fd, bytes->p, bytes->n) == (ssize_t)bytes->n;
    close(fd);
    if (!good || rename(path, cached) != 0)
        unlink(path);
    if (key % 256 == 0)
        prune(cache);
}

/* ---- compiling ---- */

static nvrtcResult compile_in(const compiler *c, const char *folder, const char *text,
                              const char *name, bool has_header, f8_emu_bytes *object,
                              f8_emu_bytes *log)
{
    char path[PATH_ROOM], messages[PATH_ROOM], line[PATH_ROOM];
    snprintf(path, sizeof path, "%s/fp8c.cuh", folder);
    if (has_header && !write_file(path, "", f8_emu_header))
        return NVRTC_ERROR_INTERNAL_ERROR;
    snprintf(path, sizeof path, "%s/image.h", folder);
    if (!write_file(path, "", f8_emu_image_header))
        return NVRTC_ERROR_INTERNAL_ERROR;
    snprintf(path, sizeof path, "%s/text.cpp", folder);
    snprintf(line, sizeof line, "#line 1 \"%s\"\n", name);
    if (!write_file(path, line, text))
        return NVRTC_ERROR_INTERNAL_ERROR;
    snprintf(path, sizeof path, "%s/object", folder);
    snprintf(messages, sizeof messages, "%s/messages", folder);
    const bool good = run_compiler(c, folder, path, messages);
    *log = f8_emu_read_file(messages);
    if (!good)
        return NVRTC_ERROR_COMPILATION;
    *object = f8_emu_read_file(path);
    return object->p && object->n ? NVRTC_SUCCESS : NVRTC_ERROR_INTERNAL_ERROR;
}

static void remove_folder(const char *folder)
{
    static const char *const name[] = {"fp8c.cuh", "image.h", "text.cpp", "object", "messages"};
    char path[PATH_ROOM];
    for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, name[i]);
        unlink(path);
    }
    rmdir(folder);
}

static nvrtcResult compile(const compiler *c, const char *text, const char *name, bool has_header,
                           f8_emu_bytes *object, f8_emu_bytes *log)
{
    const char *temporary = getenv("TMPDIR");
    char folder[FOLDER_ROOM];
    snprintf(folder, sizeof folder, "%s/fp8c-emulator-XXXXXX",
             temporary && *temporary ? temporary : "/tmp");
    if (!mkdtemp(folder))
        return NVRTC_ERROR_INTERNAL_ERROR;
    const nvrtcResult r = compile_in(c, folder, text, name, has_header, object, log);
    remove_folder(folder);
    return r;
}

/* ---- kernels, from the cache or not ---- */

/* A text under way: its roots, and what the cache has of each or the compiler made. */
typedef struct request {
    const char *text;
    f8_emu_root *root;
    f8_emu_bytes *piece; /* of each root; of one that is no kernel, anything: it is compiled */
    size_t n;
    uint64_t compiler_key;
    char cache[FOLDER_ROOM]; /* empty: none */
} request;

/* Two kernels of one name are the compiler's to refuse. */
static bool has_twins(const request *q)
{
    for (size_t i = 0; i < q->n; i++)
        for (size_t k = 0; k < i; k++)
            if (q->root[i].is_kernel && q->root[k].is_kernel &&
                !strcmp(q->root[i].name, q->root[k].name))
                return true;
    return false;
}

static void look_up(request *q)
{
    for (size_t i = 0; i < q->n && q->cache[0] && !has_twins(q); i++) {
        char path[PATH_ROOM];
        snprintf(path, sizeof path, "%s/%016llx", q->cache, (unsigned long long)q->root[i].key);
        q->piece[i] = f8_emu_read_file(path);
        if (q->piece[i].p)
            utimensat(AT_FDCWD, path, NULL, 0);
    }
}

/* The text without the kernels that are there. Its lines keep their numbers. */
static char *text_of_missing(const request *q)
{
    char *text = strdup(q->text);
    for (size_t i = 0; i < q->n && text; i++)
        for (const char *at = q->root[i].begin;
             q->root[i].is_kernel && q->piece[i].p && at < q->root[i].end; at++)
            if (*at != '\n')
                text[at - q->text] = ' ';
    return text;
}

static const f8_emu_bytes compiled = {(char *)(uintptr_t)"compiled\n", 9};

/* All definitions of the text are known to compile, each as what the next text may not use. */
static void publish_definitions(const request *q)
{
    size_t n = 0;
    f8_emu_root *all = f8_emu_roots(q->text, true, &n);
    for (size_t i = 0; i < n && all; i++) {
        char path[PATH_ROOM];
        const uint64_t key = f8_emu_hash(q->compiler_key, &all[i].key, sizeof all[i].key);
        snprintf(path, sizeof path, "%s/%016llx", q->cache, (unsigned long long)key);
        if (!all[i].is_kernel && access(path, R_OK) != 0)
            publish(q->cache, key, &compiled);
    }
    free(all);
}

static nvrtcResult cut_pieces(request *q, const f8_emu_bytes *object)
{
    for (size_t i = 0; i < q->n; i++) {
        if (q->piece[i].p || !q->root[i].is_kernel)
            continue;
        if (!f8_emu_cut(object, q->root[i].name, &q->piece[i]))
            return NVRTC_ERROR_INTERNAL_ERROR;
        if (q->cache[0])
            publish(q->cache, q->root[i].key, &q->piece[i]);
    }
    if (q->cache[0])
        publish_definitions(q);
    return NVRTC_SUCCESS;
}

static nvrtcResult join_pieces(const request *q, f8_emu_bytes *image)
{
    size_t n = 0;
    for (size_t i = 0; i < q->n; i++)
        n += q->root[i].is_kernel ? q->piece[i].n : 0;
    image->p = malloc(n + 1);
    for (size_t i = 0; i < q->n && image->p; i++)
        if (q->root[i].is_kernel) {
            memcpy(image->p + image->n, q->piece[i].p, q->piece[i].n);
            image->n += q->piece[i].n;
        }
    return image->p ? NVRTC_SUCCESS : NVRTC_ERROR_OUT_OF_MEMORY;
}

static nvrtcResult make_missing(request *q, const compiler *c, const char *name, bool has_header,
                                f8_emu_bytes *log)
{
    size_t present = 0;
    f8_emu_bytes object = {NULL, 0};
    for (size_t i = 0; i < q->n; i++)
        present += q->piece[i].p != NULL;
    if (present == q->n)
        return NVRTC_SUCCESS;
    char *text = text_of_missing(q);
    nvrtcResult r =
        text ? compile(c, text, name, has_header, &object, log) : NVRTC_ERROR_OUT_OF_MEMORY;
    if (r == NVRTC_SUCCESS)
        r = cut_pieces(q, &object);
    free(text);
    free(object.p);
    return r;
}

nvrtcResult f8_emu_compile(const char *text, const char *name, bool has_header, f8_emu_bytes *image,
                           f8_emu_bytes *log)
{
    compiler c;
    request q = {.text = text};
    if (!find_compiler(&c)) {
        log->p = strdup("emulated NVRTC: no C++ compiler (clang++-19, clang++, g++) in PATH\n");
        log->n = log->p ? strlen(log->p) : 0;
        return NVRTC_ERROR_INTERNAL_ERROR;
    }
    q.root = f8_emu_roots(text, false, &q.n);
    q.piece = q.root ? calloc(q.n, sizeof *q.piece) : NULL;
    nvrtcResult r = q.piece ? NVRTC_SUCCESS : NVRTC_ERROR_OUT_OF_MEMORY;
    if (r == NVRTC_SUCCESS) {
        q.compiler_key = key_of_compiler(&c, name);
        for (size_t i = 0; i < q.n; i++)
            q.root[i].key = f8_emu_hash(q.compiler_key, &q.root[i].key, sizeof q.root[i].key);
        if (!has_header || !cache_folder(q.cache))
            q.cache[0] = '\0';
        look_up(&q);
        r = make_missing(&q, &c, name, has_header, log);
    }
    if (r == NVRTC_SUCCESS)
        r = join_pieces(&q, image);
    for (size_t i = 0; i < q.n && q.piece; i++)
        free(q.piece[i].p);
    free(q.piece);
    free(q.root);
    return r;
}
