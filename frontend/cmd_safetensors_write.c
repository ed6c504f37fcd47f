/* Writing safetensors: see cmd_safetensors.h. For one set of tensors there is one file, byte for
 * byte the one that the reference implementation writes (but for the order of metadata, which is
 * free there). */
#include "frontend/cmd_safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "tensors' bytes are written as they are");

typedef struct writer {
    const char *path;
    char target[PATH_MAX], temporary[PATH_MAX + 32]; /* path with links followed; beside it */
    int fd;
    st_tensor *tensor; /* in the file's order */
    size_t *index;     /* what the caller calls each */
    size_t n;
    char *message;
} writer;

static bool fail(writer *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
static bool fail(writer *w, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    size_t n = (size_t)snprintf(w->message, ST_MESSAGE, "%s: error: ", w->path);
    if (n < ST_MESSAGE)
        vsnprintf(w->message + n, ST_MESSAGE - n, format, args);
    va_end(args);
    return false;
}

/* ---- the file ---- */

/* A new file beside the one to replace, which is a regular one or none: a rename onto a device or a
 * pipe would leave a file in its place. */
static bool open_beside(writer *w)
{
    struct stat s;
    if (!realpath(w->path, w->target) &&
        snprintf(w->target, sizeof w->target, "%s", w->path) >= PATH_MAX)
        return fail(w, "%s", strerror(ENAMETOOLONG));
    if (!stat(w->target, &s) && !S_ISREG(s.st_mode))
        return fail(w, "%s", S_ISDIR(s.st_mode) ? strerror(EISDIR) : "not a regular file");
    for (int i = 0; i < 100; i++) { /* more than one: a process of that number may have died here */
        snprintf(w->temporary, sizeof w->temporary, "%s.%ld-%d.tmp", w->target, (long)getpid(), i);
        w->fd = open(w->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (w->fd >= 0)
            return true;
        if (errno != EEXIST)
            break;
    }
    return fail(w, "%s", strerror(errno));
}

static bool put(writer *w, const void *from, uint64_t n)
{
    for (uint64_t done = 0; done < n;) {
        const size_t part = n - done < (1u << 30) ? (size_t)(n - done) : 1u << 30;
        const ssize_t put = write(w->fd, (const char *)from + done, part);
        if (put < 0 && errno != EINTR)
            return fail(w, "%s", strerror(errno));
        done += put > 0 ? (uint64_t)put : 0;
    }
    return true;
}

/* The data before the name, the name before success is reported. */
static bool publish(writer *w)
{
    const bool flushed = !fsync(w->fd);
    const int error = errno;
    const bool closed = !close(w->fd);
    w->fd = -1;
    if (!flushed || !closed)
        return fail(w, "%s", strerror(flushed ? errno : error));
    if (rename(w->temporary, w->target))
        return fail(w, "%s", strerror(errno));
    w->temporary[0] = 0;
    const int folder = open(dirname(w->target), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0)
        return fail(w, "%s", strerror(errno));
    const bool kept =
        !fsync(folder) || errno == EINVAL; /* some file systems have none for folders */
    if (!kept)
        fail(w, "%s", strerror(errno));
    close(folder);
    return kept;
}

static void discard(writer *w)
{
    if (w->fd >= 0)
        close(w->fd);
    if (w->temporary[0])
        unlink(w->temporary);
}

/* ---- the header ---- */

static int by_dtype_and_name(const void *x, const void *y, void *tensors)
{
    const st_tensor *a = (const st_tensor *)tensors + *(const size_t *)x;
    const st_tensor *b = (const st_tensor *)tensors + *(const size_t *)y;
    if (a->dtype != b->dtype)
        return a->dtype < b->dtype ? 1 : -1;
    return strcmp(a->name, b->name);
}

/* Order, sizes and offsets. */
static bool lay_out(writer *w, const st_tensor *given, size_t n)
{
    uint64_t end = 0;
    w->n = n;
    w->index = calloc(n + 1, sizeof *w->index);
    w->tensor = calloc(n + 1, sizeof *w->tensor);
    if (!w->index || !w->tensor)
        return fail(w, "out of memory");
    for (size_t i = 0; i < n; i++)
        w->index[i] = i;
    qsort_r(w->index, n, sizeof *w->index, by_dtype_and_name, (void *)given);
    for (size_t i = 0; i < n; i++) {
        st_tensor *t = &w->tensor[i];
        *t = given[w->index[i]];
        t->begin = end;
        t->bytes = st_dtype_bytes(t->dtype);
        bool overflow = t->rank < 0 || t->rank > ST_MAX_RANK;
        for (int32_t k = 0; k < t->rank && !overflow; k++)
            overflow =
                t->dim[k] < 0 || __builtin_mul_overflow(t->bytes, (uint64_t)t->dim[k], &t->bytes);
        if (overflow || __builtin_add_overflow(end, t->bytes, &end) || end > INT64_MAX)
            return fail(w, "tensor '%s' has a shape that can't be written", t->name);
    }
    return true;
}

static json_t *describe(const st_tensor *t)
{
    json_t *shape = json_array();
    for (int32_t i = 0; i < t->rank; i++)
        json_array_append_new(shape, json_integer(t->dim[i]));
    if (json_array_size(shape) != (size_t)t->rank) {
        json_decref(shape);
        return NULL;
    }
    return json_pack("{ss so s[II]}", "dtype", st_dtype_name(t->dtype), "shape", shape,
                     "data_offsets", (json_int_t)t->begin, (json_int_t)(t->begin + t->bytes));
}

/* Fails where two have one name, and where a text is no UTF-8 or memory runs out. */
static bool set_new(json_t *object, const char *key, json_t *value)
{
    if (!json_object_get(object, key))
        return !json_object_set_new(object, key, value);
    json_decref(value);
    return false;
}

static json_t *make_header(writer *w, const st_pair *metadata, size_t n_metadata)
{
    json_t *header = json_object(), *pairs = n_metadata ? json_object() : NULL;
    for (size_t i = 0; i < n_metadata; i++)
        if (!set_new(pairs, metadata[i].key, json_string(metadata[i].value))) {
            fail(w, "metadata '%s' is given twice, or is no UTF-8", metadata[i].key);
            json_decref(pairs);
            json_decref(header);
            return NULL;
        }
    if (pairs)
        json_object_set_new(header, "__metadata__", pairs);
    for (size_t i = 0; i < w->n; i++) {
        const st_tensor *t = &w->tensor[i];
        if (*t->name && strcmp(t->name, "__metadata__") && set_new(header, t->name, describe(t)))
            continue;
        fail(w, "tensor '%s' is given twice, or has a name that can't be written", t->name);
        json_decref(header);
        return NULL;
    }
    return header;
}

static bool put_header(writer *w, const st_pair *metadata, size_t n_metadata)
{
    json_t *header = make_header(w, metadata, n_metadata);
    if (!header)
        return false;
    char *text = json_dumps(header, JSON_COMPACT | JSON_PRESERVE_ORDER);
    json_decref(header);
    if (!text)
        return fail(w, "out of memory");
    const size_t n = strlen(text), padded = (n + 7) / 8 * 8;
    unsigned char prefix[8];
    for (int i = 0; i < 8; i++)
        prefix[i] = (unsigned char)((uint64_t)padded >> 8 * i);
    const bool ok =
        padded > ST_MAX_HEADER
            ? fail(w, "a header of %zu bytes is too long: readers take %d", padded, ST_MAX_HEADER)
            : put(w, prefix, sizeof prefix) && put(w, text, n) && put(w, "       ", padded - n);
    free(text);
    return ok;
}

/* ---- the tensors ---- */

static bool put_tensors(writer *w, st_fill fill, void *user)
{
    uint64_t most = 0;
    for (size_t i = 0; i < w->n; i++)
        most = w->tensor[i].bytes > most ? w->tensor[i].bytes : most;
    void *bytes = malloc((size_t)most + 1);
    if (!bytes)
        return fail(w, "out of memory: %llu bytes were wanted", (unsigned long long)most);
    bool ok = true;
    for (size_t i = 0; i < w->n && ok; i++)
        ok = fill(user, w->index[i], bytes) && put(w, bytes, w->tensor[i].bytes);
    free(bytes);
    return ok;
}

bool st_write(const char *path, const st_tensor *tensor, size_t n, const st_pair *metadata,
              size_t n_metadata, st_fill fill, void *user, char message[ST_MESSAGE])
{
    writer w = {.path = path, .fd = -1, .message = message};
    message[0] = 0;
    const bool ok = lay_out(&w, tensor, n) && open_beside(&w) &&
                    put_header(&w, metadata, n_metadata) && put_tensors(&w, fill, user) &&
                    publish(&w);
    discard(&w);
    free(w.index);
    free(w.tensor);
    return ok;
}

bool st_writable(const char *path, char message[ST_MESSAGE])
{
    writer w = {.path = path, .fd = -1, .message = message};
    message[0] = 0;
    const bool ok = open_beside(&w);
    discard(&w);
    return ok;
}
