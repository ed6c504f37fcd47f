/* Files of tokens as one long stream: see tokens.h.
 *
 * Files are mapped, since token files are often larger than the memory. Reading a mapped byte that
 * the file no longer has would raise SIGBUS, so the size is asked for before each read. */
#include "frontend/train/data/tokens.h"

#include <errno.h>
#include <glob.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "frontend/checkpoint/npy.h"
#include "frontend/train/data/stream.h"
#include "ir/base/format.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "tokens are taken as they are");

enum { HEADER = 1024, CHUNK = 1 << 20, HASHED = 4096 /* tokens at a time */ };

static bool ends_in(const char *path, const char *suffix)
{
    const size_t n = strlen(path), k = strlen(suffix);
    return n > k && !strcmp(path + n - k, suffix);
}

/* ---- a file's bytes ---- */

/* Maps a regular file. Anything else, such as a pipe, is read whole. */
static f8_status load(f8_token_shard *s, f8_diag *diag)
{
    struct stat at;
    f8_file_in in;
    if (stat(s->path, &at) || !S_ISREG(at.st_mode)) {
        char *bytes;
        const f8_status status = f8_stream_read(s->path, &bytes, &s->size, diag);
        s->bytes = (const uint8_t *)bytes;
        return status;
    }
    F8_TRY(f8_file_open(&in, s->path, diag));
    void *bytes = in.size ? mmap(NULL, (size_t)in.size, PROT_READ, MAP_SHARED, in.fd, 0) : NULL;
    const bool ok = bytes != MAP_FAILED && !fstat(in.fd, &at);
    const int error = errno;
    if (bytes != MAP_FAILED) {
        s->bytes = bytes;
        s->size = (size_t)in.size;
        s->mapped = true;
        s->device = (uint64_t)at.st_dev;
        s->inode = (uint64_t)at.st_ino;
    }
    f8_file_close(&in); /* the mapping stays: a thousand shards need no thousand descriptors */
    return ok ? F8_OK : f8_file_fail(diag, F8_ERR_IO, s->path, "%s", f8_errno_text(error));
}

/* Whether a mapped file still has all its bytes. A new file under the old name is no matter. */
static f8_status is_whole(const f8_token_shard *s, f8_diag *diag)
{
    struct stat now;
    if (!s->mapped || stat(s->path, &now) || (uint64_t)now.st_dev != s->device ||
        (uint64_t)now.st_ino != s->inode || (uint64_t)now.st_size >= s->size)
        return F8_OK;
    return f8_file_fail(diag, F8_ERR_IO, s->path, "the file became shorter while it was read");
}

/* ---- what a file holds ---- */

static f8_status bad(const f8_token_shard *s, const char *what, f8_diag *diag)
{
    return f8_file_fail(diag, F8_ERR_INPUT, s->path, "%s", what);
}

/* The tokens take the bytes from `data` on, `width` each. */
static f8_status set_type(f8_token_shard *s, size_t data, int width, bool is_signed, f8_diag *diag)
{
    const size_t bytes = s->size - data;
    s->data = data;
    s->width = width;
    s->is_signed = is_signed;
    s->n = bytes / (size_t)width;
    if (bytes % (size_t)width == 0)
        return F8_OK;
    return f8_file_fail(diag, F8_ERR_INPUT, s->path,
                        "the last token is not whole: %zu bytes of tokens, of which each takes %d",
                        bytes, width);
}

static f8_status set_npy(f8_token_shard *s, f8_diag *diag)
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
    F8_TRY(f8_npy_open(&npy, s->path, diag));
    const size_t data = (size_t)npy.data;
    const bool same = npy.in.size == s->size, raw = strchr(npy.descr, 'V') != NULL;
    const f8_st_dtype dtype = npy.tensor.dtype;
    f8_npy_close(&npy);
    if (!same)
        return bad(s, "the file changed while it was opened", diag);
    for (size_t i = 0; i < sizeof known / sizeof *known && !raw; i++)
        if (known[i].dtype == dtype)
            return set_type(s, data, known[i].width, known[i].is_signed, diag);
    return bad(s, "its elements are no tokens: u1, u2, u4, i4 or i8 are needed", diag);
}

/* The width of the tokens after an llm.c header; 0: there is no such header. */
static int llmc_width(const f8_token_shard *s)
{
    int32_t magic;
    if (s->size < HEADER)
        return 0;
    memcpy(&magic, s->bytes, sizeof magic);
    return magic == 20240520 ? 2 : magic == 20240801 ? 4 : 0;
}

static f8_status set_llmc(f8_token_shard *s, int width, f8_diag *diag)
{
    int32_t head[3];
    memcpy(head, s->bytes, sizeof head);
    const int known = width == 2 ? 1 : 7;
    if (head[1] != known)
        return f8_file_fail(diag, F8_ERR_UNSUPPORTED, s->path,
                            "its llm.c header has version %" PRId32 "; version %d can be read",
                            head[1], known);
    F8_TRY(set_type(s, HEADER, width, false, diag));
    if ((uint64_t)head[2] == s->n)
        return F8_OK;
    return f8_file_fail(diag, F8_ERR_INPUT, s->path,
                        "its header counts %" PRId32 " tokens, but %" PRIu64 " follow it", head[2],
                        s->n);
}

static f8_status find_type(f8_token_shard *s, const f8_data_options *o, f8_diag *diag)
{
    const char *as = o->tokens;
    const int asked = !as ? 0 : !strcmp(as, "u16") ? 2 : !strcmp(as, "u32") ? 4 : 1;
    const int llmc = llmc_width(s);
    if (asked == 1)
        return set_type(s, 0, 1, false, diag);
    if (ends_in(s->path, ".npy") || (s->size > 6 && !memcmp(s->bytes, "\x93NUMPY", 6)))
        F8_TRY(set_npy(s, diag));
    else if (llmc)
        F8_TRY(set_llmc(s, llmc, diag));
    else
        return set_type(s, 0, asked ? asked : ends_in(s->path, ".bin") ? 2 : 1, false, diag);
    if (!asked || (s->width == asked && !s->is_signed))
        return F8_OK;
    return f8_file_fail(diag, F8_ERR_INPUT, s->path, "%s %s, but its header says %c%d",
                        o->tokens_name, as, s->is_signed ? 'i' : 'u', 8 * s->width);
}

/* ---- the stream ---- */

static f8_status add_shard(f8_tokens *t, const char *path, const f8_data_options *o, f8_diag *diag)
{
    f8_token_shard *grown = realloc(t->shard, (t->n_shards + 1) * sizeof *grown);
    if (!grown)
        return f8_fail(diag, F8_ERR_MEMORY, F8_NOWHERE, "out of memory");
    t->shard = grown;
    f8_token_shard *s = &grown[t->n_shards++];
    *s = (f8_token_shard){.path = strdup(path), .first = t->n};
    if (!s->path)
        return f8_fail(diag, F8_ERR_MEMORY, F8_NOWHERE, "out of memory");
    F8_TRY(load(s, diag));
    F8_TRY(find_type(s, o, diag));
    t->n += s->n;
    t->text &= s->width == 1 && s->data == 0;
    return F8_OK;
}

/* A path, or all that match a pattern. */
static f8_status add_files(f8_tokens *t, const char *path, const f8_data_options *o, f8_diag *diag)
{
    struct stat s;
    glob_t found = {0};
    if (!strchr(path, '*') || !stat(path, &s))
        return add_shard(t, path, o, diag);
    const int globbed = glob(path, 0, NULL, &found);
    f8_status status = F8_OK;
    if (globbed == GLOB_NOMATCH)
        status = f8_file_fail(diag, F8_ERR_INPUT, path, "no file matches this pattern");
    else if (globbed)
        status = f8_file_fail(diag, F8_ERR_IO, path, "%s", f8_errno_text(errno));
    for (size_t i = 0; status == F8_OK && i < found.gl_pathc; i++)
        status = add_shard(t, found.gl_pathv[i], o, diag);
    globfree(&found);
    return status;
}

f8_status f8_tokens_open(f8_tokens *t, const char *const *files, size_t n, const f8_data_options *o,
                         f8_diag *diag)
{
    *t = (f8_tokens){.text = true};
    for (size_t i = 0; i < n; i++)
        F8_TRY(add_files(t, files[i], o, diag));
    for (size_t i = 0; i < t->n_shards && t->n_shards > 1; i++)
        if (!t->shard[i].n)
            return bad(&t->shard[i], "it has no tokens", diag);
    if (t->n_shards > 1)
        snprintf(t->shown, sizeof t->shown, "%.256s and %zu more", t->shard->path,
                 t->n_shards - 1);
    else
        snprintf(t->shown, sizeof t->shown, "%s", t->shard->path);
    return F8_OK;
}

void f8_tokens_close(f8_tokens *t)
{
    for (size_t i = 0; i < t->n_shards; i++) {
        f8_token_shard *s = &t->shard[i];
        if (s->mapped && s->size)
            munmap((void *)s->bytes, s->size);
        else if (!s->mapped)
            free((void *)s->bytes);
        free(s->path);
    }
    free(t->shard);
    *t = (f8_tokens){0};
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
static f8_status count_part(const f8_token_shard *s, uint64_t begin, uint64_t end,
                            int64_t vocabulary, uint64_t *count, f8_hasher *hasher, f8_diag *diag)
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
        return f8_file_fail(
            diag, F8_ERR_INPUT, s->path,
            "%s %" PRId64 " at offset %" PRIu64 " is outside the model's vocabulary of %" PRId64,
            s->width == 1 ? "byte" : "token", id, s->data + i * (uint64_t)s->width, vocabulary);
    }
    return F8_OK;
}

f8_status f8_tokens_count(const f8_tokens *t, int64_t vocabulary, const f8_stop *stop,
                          uint64_t *count, f8_hash *hash, f8_diag *diag)
{
    f8_hasher hasher;
    f8_hasher_begin(&hasher);
    for (size_t i = 0; i < t->n_shards; i++) {
        const f8_token_shard *s = &t->shard[i];
        for (uint64_t at = 0; at < s->n; at += CHUNK) {
            const uint64_t end = s->n - at < CHUNK ? s->n : at + CHUNK;
            if (f8_stop_asked(stop))
                return f8_file_fail(diag, F8_ERR_CANCELLED, s->path, "cancelled");
            F8_TRY(is_whole(s, diag));
            F8_TRY(count_part(s, at, end, vocabulary, count, &hasher, diag));
        }
    }
    *hash = f8_hasher_end(&hasher);
    return F8_OK;
}

/* The shard that has token `at` of the stream. */
static size_t shard_of(const f8_tokens *t, uint64_t at)
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

f8_status f8_tokens_get(const f8_tokens *t, uint64_t at, int32_t *to, uint64_t n, f8_diag *diag)
{
    for (size_t i = shard_of(t, at); n > 0; i++) {
        const f8_token_shard *s = &t->shard[i];
        const uint64_t begin = at - s->first, part = s->n - begin < n ? s->n - begin : n;
        const uint8_t *from = s->bytes + s->data + begin * (uint64_t)s->width;
        F8_TRY(is_whole(s, diag));
        for (uint64_t k = 0; k < part; k++)
            to[k] = (int32_t)token(from + k * (uint64_t)s->width, s->width, s->is_signed);
        at += part;
        to += part;
        n -= part;
    }
    return F8_OK;
}
