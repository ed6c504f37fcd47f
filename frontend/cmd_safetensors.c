/* Reading safetensors: see cmd_safetensors.h. Everything is checked when a file is opened, so that
 * reading a tensor can only fail with the disk. */
#include "frontend/cmd_safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "tensors' bytes are taken as they are");

enum { SHOWN = 200 };

static const struct {
    const char *name;
    uint64_t bytes;
} dtypes[] = {
#define DTYPE(name, bytes) {#name, bytes},
    ST_DTYPES(DTYPE)
#undef DTYPE
};

const char *st_dtype_name(st_dtype dtype)
{
    return dtypes[dtype].name;
}

uint64_t st_dtype_bytes(st_dtype dtype)
{
    return dtypes[dtype].bytes;
}

const char *st_type_text(const st_tensor *t, char *to, size_t size)
{
    size_t n = (size_t)snprintf(to, size, "%s [", st_dtype_name(t->dtype));
    for (int32_t i = 0; i < t->rank && n < size; i++)
        n += (size_t)snprintf(to + n, size - n, "%s%" PRId64, i ? ", " : "", t->dim[i]);
    if (n < size)
        snprintf(to + n, size - n, "]");
    return to;
}

/* ---- messages ---- */

static bool fail(st_file *f, const char *format, ...) __attribute__((format(printf, 2, 3)));
static bool fail(st_file *f, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    size_t n = (size_t)snprintf(f->message, sizeof f->message, "%s: error: ", f->path);
    if (n < sizeof f->message)
        vsnprintf(f->message + n, sizeof f->message - n, format, args);
    va_end(args);
    return false;
}

/* A name as a terminal may show it, without control characters (in UTF-8, U+0080 to U+009F are C2
 * 80 to C2 9F): whoever made the file chose it. */
const char *st_shown(const char *text, char *to, size_t size)
{
    snprintf(to, size, "%s", text);
    for (char *c = to; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = '?';
        else if (*c == '\xc2' && c[1] && (unsigned char)c[1] < 0xa0)
            c[0] = c[1] = '?';
    return to;
}

static bool fail_tensor(st_file *f, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static bool fail_tensor(st_file *f, const char *name, const char *format, ...)
{
    char quoted[SHOWN], text[ST_MESSAGE];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return fail(f, "tensor '%s': %s", st_shown(name, quoted, sizeof quoted), text);
}

/* ---- one tensor of the header ---- */

static bool read_dtype(st_file *f, st_tensor *t, const json_t *field)
{
    const char *name = json_string_value(field);
    char quoted[SHOWN];
    if (!name)
        return fail_tensor(f, t->name, "'dtype' is missing or no string");
    for (t->dtype = 0; t->dtype < ST_N_DTYPES; t->dtype++)
        if (!strcmp(name, dtypes[t->dtype].name))
            return true;
    return fail_tensor(f, t->name, "its dtype '%s' is unknown",
                       st_shown(name, quoted, sizeof quoted));
}

/* A non-negative integer that is one in the text: 1.0 and 1e3 are none. */
static bool read_integer(const json_t *value, int64_t *to)
{
    *to = json_integer_value(value);
    return json_is_integer(value) && *to >= 0;
}

static bool read_shape(st_file *f, st_tensor *t, const json_t *field)
{
    if (!json_is_array(field))
        return fail_tensor(f, t->name, "'shape' is missing or no list");
    const size_t rank = json_array_size(field);
    if (rank > ST_MAX_RANK)
        return fail_tensor(f, t->name, "has %zu axes; at most %d are read", rank, ST_MAX_RANK);
    t->rank = (int32_t)rank;
    t->bytes = st_dtype_bytes(t->dtype);
    for (size_t i = 0; i < rank; i++) {
        if (!read_integer(json_array_get(field, i), &t->dim[i]))
            return fail_tensor(f, t->name, "'shape' holds what is no size");
        if (__builtin_mul_overflow(t->bytes, (uint64_t)t->dim[i], &t->bytes))
            return fail_tensor(f, t->name, "'shape' has more bytes than can be counted");
    }
    return true;
}

static bool read_offsets(st_file *f, st_tensor *t, const json_t *field, uint64_t size)
{
    int64_t begin, end;
    char type[128];
    if (json_array_size(field) != 2 || !read_integer(json_array_get(field, 0), &begin) ||
        !read_integer(json_array_get(field, 1), &end))
        return fail_tensor(f, t->name, "'data_offsets' is missing or not two offsets");
    t->begin = (uint64_t)begin;
    if (begin > end)
        return fail_tensor(f, t->name,
                           "data_offsets [%" PRId64 ", %" PRId64 "] end before they begin", begin,
                           end);
    if ((uint64_t)end > size)
        return fail_tensor(f, t->name,
                           "data_offsets [%" PRId64 ", %" PRId64
                           "] reach beyond the file, which has %" PRIu64
                           " bytes of data: it is truncated, or its header is wrong",
                           begin, end, size);
    if ((uint64_t)(end - begin) != t->bytes)
        return fail_tensor(f, t->name,
                           "%s takes %" PRIu64 " bytes, but data_offsets [%" PRId64 ", %" PRId64
                           "] give it %" PRId64,
                           st_type_text(t, type, sizeof type), t->bytes, begin, end, end - begin);
    return true;
}

static bool read_tensor(st_file *f, const char *name, json_t *entry, uint64_t size)
{
    st_tensor *t = &f->tensor[f->n];
    const char *field;
    const json_t *value;
    char quoted[SHOWN];
    *t = (st_tensor){.name = name};
    if (!*name)
        return fail(f, "a tensor has no name");
    if (!json_is_object(entry))
        return fail_tensor(f, name, "is not described by an object");
    json_object_foreach(
        entry, field,
        value) if (strcmp(field, "dtype") && strcmp(field, "shape") &&
                   strcmp(field, "data_offsets")) return fail_tensor(f, name,
                                                                     "has the unknown field '%s'",
                                                                     st_shown(field, quoted,
                                                                              sizeof quoted));
    f->n++;
    return read_dtype(f, t, json_object_get(entry, "dtype")) &&
           read_shape(f, t, json_object_get(entry, "shape")) &&
           read_offsets(f, t, json_object_get(entry, "data_offsets"), size);
}

static bool read_metadata(st_file *f, json_t *entry)
{
    const char *key;
    json_t *value;
    char quoted[SHOWN];
    if (!json_is_object(entry))
        return fail(f, "'__metadata__' is no object");
    f->metadata = calloc(json_object_size(entry) + 1, sizeof *f->metadata);
    if (!f->metadata)
        return fail(f, "out of memory");
    json_object_foreach(entry, key, value)
    {
        if (!json_is_string(value))
            return fail(f, "'__metadata__': the value of '%s' is no string",
                        st_shown(key, quoted, sizeof quoted));
        f->metadata[f->n_metadata++] = (st_pair){key, json_string_value(value)};
    }
    return true;
}

/* ---- the whole ---- */

static int by_offset(const void *x, const void *y)
{
    const st_tensor *a = x, *b = y;
    if (a->begin != b->begin)
        return a->begin < b->begin ? -1 : 1;
    if (a->bytes != b->bytes) /* empty ones before the one that begins there too */
        return a->bytes < b->bytes ? -1 : 1;
    return strcmp(a->name, b->name);
}

/* Every byte of the data belongs to one tensor. */
static bool check_layout(st_file *f, uint64_t size)
{
    uint64_t end = 0;
    char quoted[SHOWN];
    qsort(f->tensor, f->n, sizeof *f->tensor, by_offset);
    for (size_t i = 0; i < f->n; end = f->tensor[i].begin + f->tensor[i].bytes, i++) {
        const st_tensor *t = &f->tensor[i];
        if (t->begin < end)
            return fail_tensor(f, t->name, "its bytes overlap those of '%s'",
                               st_shown(t[-1].name, quoted, sizeof quoted));
        if (t->begin > end)
            return fail_tensor(f, t->name,
                               "bytes %" PRIu64 " to %" PRIu64
                               " of the data, before it, belong to no tensor",
                               end, t->begin);
    }
    if (end != size)
        return fail(f, "the last %" PRIu64 " bytes belong to no tensor", size - end);
    return true;
}

static bool read_bytes(st_file *f, void *to, uint64_t n, uint64_t at)
{
    for (uint64_t done = 0; done < n;) {
        const size_t part = n - done < (1u << 30) ? (size_t)(n - done) : 1u << 30;
        const ssize_t got = pread(f->fd, (char *)to + done, part, (off_t)(at + done));
        if (got == 0)
            return fail(f, "the file became shorter while it was read");
        if (got < 0 && errno != EINTR)
            return fail(f, "%s", strerror(errno));
        done += got > 0 ? (uint64_t)got : 0;
    }
    return true;
}

static bool parse_header(st_file *f, const char *text, size_t n, uint64_t size)
{
    json_error_t error;
    const char *name;
    json_t *entry;
    char quoted[SHOWN];
    if (n == 0 || text[0] != '{')
        return fail(f, "the header does not begin with '{': this is no safetensors file");
    f->header = json_loadb(text, n, JSON_REJECT_DUPLICATES, &error);
    if (!f->header)
        return fail(f, "the header is no valid JSON: %s (byte %d of it)",
                    st_shown(error.text, quoted, sizeof quoted), error.position);
    f->tensor = calloc(json_object_size(f->header) + 1, sizeof *f->tensor);
    if (!f->tensor)
        return fail(f, "out of memory");
    json_object_foreach(f->header, name, entry) if (!(strcmp(name, "__metadata__")
                                                          ? read_tensor(f, name, entry, size)
                                                          : read_metadata(f, entry))) return false;
    return check_layout(f, size);
}

static bool read_header(st_file *f)
{
    struct stat s;
    unsigned char prefix[8];
    uint64_t n = 0;
    if (fstat(f->fd, &s))
        return fail(f, "%s", strerror(errno));
    if (!S_ISREG(s.st_mode))
        return fail(f, "%s", S_ISDIR(s.st_mode) ? strerror(EISDIR) : "not a regular file");
    const uint64_t size = (uint64_t)s.st_size;
    if (size < sizeof prefix)
        return fail(
            f,
            "%" PRIu64
            " bytes are too few: a safetensors file begins with the 8-byte length of its header",
            size);
    if (!read_bytes(f, prefix, sizeof prefix, 0))
        return false;
    for (int i = 8; i-- > 0;)
        n = n << 8 | prefix[i];
    if (n > ST_MAX_HEADER)
        return fail(f,
                    "a header of %" PRIu64
                    " bytes is too long: at most %d are read. Is this a safetensors file?",
                    n, ST_MAX_HEADER);
    if (n > size - sizeof prefix)
        return fail(f,
                    "the header ends at byte %" PRIu64 ", but the file at %" PRIu64
                    ": it is truncated, or no safetensors file",
                    n + sizeof prefix, size);
    f->data = n + sizeof prefix;
    char *text = malloc((size_t)n + 1);
    if (!text)
        return fail(f, "out of memory: %" PRIu64 " bytes were wanted", n);
    const bool ok =
        read_bytes(f, text, n, sizeof prefix) && parse_header(f, text, (size_t)n, size - f->data);
    free(text);
    return ok;
}

bool st_open_fd(st_file *f, const char *path, int fd)
{
    *f = (st_file){.path = path, .fd = fd};
    const bool ok = read_header(f);
    if (!ok)
        st_close(f);
    return ok;
}

bool st_open(st_file *f, const char *path)
{
    *f = (st_file){.path = path,
                   .fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)}; /* a pipe must not wait */
    return f->fd < 0 ? fail(f, "%s", strerror(errno)) : st_open_fd(f, path, f->fd);
}

void st_close(st_file *f)
{
    if (f->fd >= 0)
        close(f->fd);
    free(f->tensor);
    free(f->metadata);
    json_decref(f->header);
    f->fd = -1;
    f->tensor = NULL;
    f->metadata = NULL;
    f->header = NULL;
    f->n = f->n_metadata = 0;
}

const st_tensor *st_find(const st_file *f, const char *name)
{
    for (size_t i = 0; i < f->n; i++)
        if (!strcmp(f->tensor[i].name, name))
            return &f->tensor[i];
    return NULL;
}

const char *st_metadata(const st_file *f, const char *key)
{
    for (size_t i = 0; i < f->n_metadata; i++)
        if (!strcmp(f->metadata[i].key, key))
            return f->metadata[i].value;
    return NULL;
}

bool st_read(st_file *f, const st_tensor *t, void *to)
{
    return read_bytes(f, to, t->bytes, f->data + t->begin);
}
