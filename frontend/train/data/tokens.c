/* Files of tokens as one long stream: see cmd_tokens.h.
 *
 * Files are mapped, since token files are often larger than the memory. Reading a mapped byte that
 * the file no longer has would raise SIGBUS, so the size is asked for before each read. */
#include "frontend/train/data/tokens.h"

#include <errno.h>
#include <glob.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "frontend/checkpoint/npy.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "tokens are taken as they are");

enum { HEADER = 1024, CHUNK = 1 << 20, HASHED = 4096 /* tokens at a time */ };

static bool ends_in(const char *path, const char *suffix)
{
    const size_t n = strlen(path), k = strlen(suffix);
    return n > k && !strcmp(path + n - k, suffix);
}

/* ---- a file's bytes ---- */

/* Maps a regular file. Anything else, such as a pipe, is read whole. */
static bool load(cli_shard *s)
{
    struct stat at;
    f8_file_in in;
    f8_diag diag = {0};
    if (stat(s->path, &at) || !S_ISREG(at.st_mode)) {
        s->bytes = (const uint8_t *)cli_read_file(s->path, &s->size);
        return s->bytes != NULL;
    }
    if (f8_file_open(&in, s->path, &diag) != F8_OK)
        return cli_file_fail(&diag);
    void *bytes = in.size ? mmap(NULL, (size_t)in.size, PROT_READ, MAP_SHARED, in.fd, 0) : NULL;
    const bool ok = bytes != MAP_FAILED && !fstat(in.fd, &at);
    if (!ok)
        fprintf(stderr, "%s: error: %s\n", s->path, strerror(errno));
    if (bytes != MAP_FAILED) {
        s->bytes = bytes;
        s->size = (size_t)in.size;
        s->mapped = true;
        s->device = (uint64_t)at.st_dev;
        s->inode = (uint64_t)at.st_ino;
    }
    f8_file_close(&in); /* the mapping stays: a thousand shards need no thousand descriptors */
    return ok;
}

/* Whether a mapped file still has all its bytes. A new file under the old name is no matter. */
static bool is_whole(const cli_shard *s)
{
    struct stat now;
    if (!s->mapped || stat(s->path, &now) || (uint64_t)now.st_dev != s->device ||
        (uint64_t)now.st_ino != s->inode || (uint64_t)now.st_size >= s->size)
        return true;
    fprintf(stderr, "%s: error: the file became shorter while it was read\n", s->path);
    return false;
}

/* ---- what a file holds ---- */

static bool bad(const cli_shard *s, const char *what)
{
    fprintf(stderr, "%s: error: %s\n", s->path, what);
    return false;
}

/* The tokens take the bytes from `data` on, `width` each. */
static bool set_type(cli_shard *s, size_t data, int width, bool is_signed)
{
    const size_t bytes = s->size - data;
    s->data = data;
    s->width = width;
    s->is_signed = is_signed;
    s->n = bytes / (size_t)width;
    if (bytes % (size_t)width == 0)
        return true;
    fprintf(stderr,
            "%s: error: the last token is not whole: %zu bytes of tokens, of which each takes %d\n",
            s->path, bytes, width);
    return false;
}

static bool set_npy(cli_shard *s)
{
    static const struct {
        f8_st_dtype dtype;
        int width;
        bool is_signed;
    } known[] = {{F8_ST_U8, 1, false},
                 {F8_ST_U16, 2, false},
                 {F8_ST_U32, 4, false},
                 {F8_ST_I32, 4, true},
                 {F8_ST_I64, 8, true}};
    f8_npy npy;
    f8_diag diag = {0};
    if (f8_npy_open(&npy, s->path, &diag) != F8_OK)
        return cli_file_fail(&diag);
    const size_t data = (size_t)npy.data;
    const bool same = npy.in.size == s->size, raw = strchr(npy.descr, 'V') != NULL;
    const f8_st_dtype dtype = npy.tensor.dtype;
    f8_npy_close(&npy);
    if (!same)
        return bad(s, "the file changed while it was opened");
    for (size_t i = 0; i < sizeof known / sizeof *known && !raw; i++)
        if (known[i].dtype == dtype)
            return set_type(s, data, known[i].width, known[i].is_signed);
    return bad(s, "its elements are no tokens: u1, u2, u4, i4 or i8 are needed");
}

/* The width of the tokens after an llm.c header; 0: there is no such header. */
static int llmc_width(const cli_shard *s)
{
    int32_t magic;
    if (s->size < HEADER)
        return 0;
    memcpy(&magic, s->bytes, sizeof magic);
    return magic == 20240520 ? 2 : magic == 20240801 ? 4 : 0;
}

static bool set_llmc(cli_shard *s, int width)
{
    int32_t head[3];
    memcpy(head, s->bytes, sizeof head);
    const int known = width == 2 ? 1 : 7;
    if (head[1] != known) {
        fprintf(stderr,
                "%s: error: its llm.c header has version %" PRId32 "; version %d can be read\n",
                s->path, head[1], known);
        return false;
    }
    if (!set_type(s, HEADER, width, false))
        return false;
    if ((uint64_t)head[2] == s->n)
        return true;
    fprintf(stderr, "%s: error: its header counts %" PRId32 " tokens, but %" PRIu64 " follow it\n",
            s->path, head[2], s->n);
    return false;
}

static bool find_type(cli_shard *s, const char *as)
{
    const int asked = !as ? 0 : !strcmp(as, "u16") ? 2 : !strcmp(as, "u32") ? 4 : 1;
    const int llmc = llmc_width(s);
    bool ok;
    if (asked == 1)
        return set_type(s, 0, 1, false);
    if (ends_in(s->path, ".npy") || (s->size > 6 && !memcmp(s->bytes, "\x93NUMPY", 6)))
        ok = set_npy(s);
    else if (llmc)
        ok = set_llmc(s, llmc);
    else
        return set_type(s, 0, asked ? asked : ends_in(s->path, ".bin") ? 2 : 1, false);
    if (!ok || !asked || (s->width == asked && !s->is_signed))
        return ok;
    fprintf(stderr, "%s: error: --tokens %s, but its header says %c%d\n", s->path, as,
            s->is_signed ? 'i' : 'u', 8 * s->width);
    return false;
}

/* ---- the stream ---- */

static bool add_shard(cli_tokens *t, const char *path, const char *as)
{
    cli_shard *grown = realloc(t->shard, (t->n_shards + 1) * sizeof *grown);
    if (!grown) {
        fprintf(stderr, "error: out of memory\n");
        return false;
    }
    t->shard = grown;
    cli_shard *s = &grown[t->n_shards++];
    *s = (cli_shard){.path = strdup(path), .first = t->n};
    if (!s->path) {
        fprintf(stderr, "error: out of memory\n");
        return false;
    }
    if (!load(s) || !find_type(s, as))
        return false;
    t->n += s->n;
    t->text &= s->width == 1 && s->data == 0;
    return true;
}

/* A path, or all that match a pattern. */
static bool add_files(cli_tokens *t, const char *path, const char *as)
{
    struct stat s;
    glob_t found = {0};
    if (!strchr(path, '*') || !stat(path, &s))
        return add_shard(t, path, as);
    const int status = glob(path, 0, NULL, &found);
    bool ok = status == 0;
    if (!ok)
        fprintf(stderr, "%s: error: %s\n", path,
                status == GLOB_NOMATCH ? "no file matches this pattern" : strerror(errno));
    for (size_t i = 0; ok && i < found.gl_pathc; i++)
        ok = add_shard(t, found.gl_pathv[i], as);
    globfree(&found);
    return ok;
}

bool cli_tokens_open(cli_tokens *t, const cli_TEXTS *files, const char *as)
{
    *t = (cli_tokens){.text = true};
    for (size_t i = 0; i < files->n; i++)
        if (!add_files(t, files->text[i], as))
            return false;
    for (size_t i = 0; i < t->n_shards && t->n_shards > 1; i++)
        if (!t->shard[i].n)
            return bad(&t->shard[i], "it has no tokens");
    if (t->n_shards > 1)
        snprintf(t->shown, sizeof t->shown, "%.256s and %zu more", t->shard->path,
                 t->n_shards - 1);
    else
        snprintf(t->shown, sizeof t->shown, "%s", t->shard->path);
    return true;
}

void cli_tokens_close(cli_tokens *t)
{
    for (size_t i = 0; i < t->n_shards; i++) {
        cli_shard *s = &t->shard[i];
        if (s->mapped && s->size)
            munmap((void *)s->bytes, s->size);
        else if (!s->mapped)
            free((void *)s->bytes);
        free(s->path);
    }
    free(t->shard);
    *t = (cli_tokens){0};
}

/* ---- tokens ---- */

/* The token at `from`, which need not be aligned. */
static int64_t token(const uint8_t *from, int width, bool is_signed)
{
    uint16_t u16;
    uint32_t u32;
    int64_t i64;
    switch (width) {
    case 1: return *from;
    case 2: memcpy(&u16, from, 2); return u16;
    case 4: memcpy(&u32, from, 4); return is_signed ? (int64_t)(int32_t)u32 : (int64_t)u32;
    default: memcpy(&i64, from, 8); return i64;
    }
}

/* Counts tokens [begin, end) of a shard, and adds them to the hash. */
static bool count_part(const cli_shard *s, uint64_t begin, uint64_t end, int64_t vocabulary,
                       uint64_t *count, f8_hasher *hasher)
{
    const uint8_t *from = s->bytes + s->data;
    int32_t hashed[HASHED];
    size_t n = 0;
    for (uint64_t i = begin; i < end; i++) {
        const int64_t id = token(from + i * (uint64_t)s->width, s->width, s->is_signed);
        if (id >= 0 && id < vocabulary) {
            count[id]++;
            hashed[n++] = (int32_t)id;
            if (n < HASHED && i + 1 < end)
                continue;
            f8_hasher_add(hasher, hashed, n * sizeof *hashed);
            n = 0;
            continue;
        }
        fprintf(stderr,
                "%s: error: %s %" PRId64 " at offset %" PRIu64
                " is outside the model's vocabulary of %" PRId64 "\n",
                s->path, s->width == 1 ? "byte" : "token", id, s->data + i * (uint64_t)s->width,
                vocabulary);
        return false;
    }
    return true;
}

bool cli_tokens_count(const cli_tokens *t, int64_t vocabulary, uint64_t *count, f8_hash *hash)
{
    f8_hasher hasher;
    f8_hasher_begin(&hasher);
    for (size_t i = 0; i < t->n_shards; i++) {
        const cli_shard *s = &t->shard[i];
        for (uint64_t at = 0; at < s->n; at += CHUNK) {
            const uint64_t end = s->n - at < CHUNK ? s->n : at + CHUNK;
            if (cli_interrupted() || !is_whole(s) ||
                !count_part(s, at, end, vocabulary, count, &hasher))
                return false;
        }
    }
    *hash = f8_hasher_end(&hasher);
    return true;
}

/* The shard that has token `at` of the stream. */
static size_t shard_of(const cli_tokens *t, uint64_t at)
{
    size_t low = 0, high = t->n_shards;
    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        if (t->shard[middle].first <= at)
            low = middle;
        else
            high = middle;
    }
    return low;
}

bool cli_tokens_get(const cli_tokens *t, uint64_t at, int32_t *to, uint64_t n)
{
    for (size_t i = shard_of(t, at); n > 0; i++) {
        const cli_shard *s = &t->shard[i];
        const uint64_t begin = at - s->first, part = s->n - begin < n ? s->n - begin : n;
        const uint8_t *from = s->bytes + s->data + begin * (uint64_t)s->width;
        if (!is_whole(s))
            return false;
        for (uint64_t k = 0; k < part; k++)
            to[k] = (int32_t)token(from + k * (uint64_t)s->width, s->width, s->is_signed);
        at += part;
        to += part;
        n -= part;
    }
    return true;
}
