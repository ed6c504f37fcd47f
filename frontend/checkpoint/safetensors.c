/* Reading safetensors: see safetensors.h. Opening a file checks all of its header, so that reading
 * a tensor can fail only with the disk. */
#include "frontend/checkpoint/safetensors.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ir/base/format.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "tensors' bytes are taken as they are");

enum { SHOWN = 200 };

static const struct {
    const char *name;
    uint64_t bytes;
} dtypes[] = {
#define DTYPE(name, bytes) {#name, bytes},
    F8_ST_DTYPES(DTYPE)
#undef DTYPE
};

const char *f8_st_dtype_name(f8_st_dtype dtype)
{
    return dtypes[dtype].name;
}

uint64_t f8_st_dtype_bytes(f8_st_dtype dtype)
{
    return dtypes[dtype].bytes;
}

uint64_t f8_st_bytes(const f8_st_tensor *t)
{
    uint64_t bytes = f8_st_dtype_bytes(t->dtype);
    for (int32_t k = 0; k < t->rank; k++)
        bytes *= (uint64_t)t->dim[k];
    return bytes;
}

const char *f8_st_type_text(const f8_st_tensor *t, char *to, size_t size)
{
    size_t n = (size_t)snprintf(to, size, "%s [", f8_st_dtype_name(t->dtype));
    for (int32_t i = 0; i < t->rank && n < size; i++)
        n += (size_t)snprintf(to + n, size - n, "%s%" PRId64, i ? ", " : "", t->dim[i]);
    if (n < size)
        snprintf(to + n, size - n, "]");
    return to;
}

/* ---- messages ---- */

/* What is being read: a file, and the diag for what is wrong with it. */
typedef struct reader {
    f8_st_file *f;
    f8_diag *diag;
} reader;

#define FAIL(r, ...) f8_file_fail((r)->diag, F8_ERR_INPUT, (r)->f->in.path, __VA_ARGS__)

static f8_status out_of_memory(const reader *r)
{
    return f8_file_fail(r->diag, F8_ERR_MEMORY, r->f->in.path,
                        "out of memory: %zu bytes were wanted", r->f->memory.failed);
}

/* A name as a terminal may show it, without control characters (in UTF-8, U+0080 to U+009F are C2
 * 80 to C2 9F): whoever made the file chose it. */
const char *f8_st_shown(const char *text, char *to, size_t size)
{
    snprintf(to, size, "%s", text);
    for (char *c = to; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = '?';
        else if (*c == '\xc2' && c[1] && (unsigned char)c[1] < 0xa0)
            c[0] = c[1] = '?';
    return to;
}

static f8_status fail_tensor(const reader *r, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static f8_status fail_tensor(const reader *r, const char *name, const char *format, ...)
{
    char quoted[SHOWN], text[sizeof r->diag->text];
    va_list args;
    va_start(args, format);
    f8_vformat(text, sizeof text, format, args);
    va_end(args);
    return FAIL(r, "tensor '%s': %s", f8_st_shown(name, quoted, sizeof quoted), text);
}

/* ---- one tensor of the header ---- */

static f8_status read_dtype(const reader *r, f8_st_tensor *t, const json_t *field)
{
    const char *name = json_string_value(field);
    char quoted[SHOWN];
    if (!name)
        return fail_tensor(r, t->name, "'dtype' is missing or not a string");
    for (t->dtype = 0; t->dtype < F8_ST_N_DTYPES; t->dtype++)
        if (!strcmp(name, dtypes[t->dtype].name))
            return F8_OK;
    return fail_tensor(r, t->name, "its dtype '%s' is unknown",
                       f8_st_shown(name, quoted, sizeof quoted));
}

/* A non-negative number that the text writes as an integer: 1.0 and 1e3 are refused. */
static bool read_integer(const json_t *value, int64_t *to)
{
    *to = json_integer_value(value);
    return json_is_integer(value) && *to >= 0;
}

static f8_status read_shape(const reader *r, f8_st_tensor *t, const json_t *field)
{
    if (!json_is_array(field))
        return fail_tensor(r, t->name, "'shape' is missing or not a list");
    const size_t rank = json_array_size(field);
    if (rank > F8_ST_MAX_RANK)
        return fail_tensor(r, t->name, "has %zu axes; at most %d are read", rank, F8_ST_MAX_RANK);
    t->rank = (int32_t)rank;
    t->bytes = f8_st_dtype_bytes(t->dtype);
    for (size_t i = 0; i < rank; i++) {
        if (!read_integer(json_array_get(field, i), &t->dim[i]))
            return fail_tensor(r, t->name, "'shape' holds something that is not a size");
        if (__builtin_mul_overflow(t->bytes, (uint64_t)t->dim[i], &t->bytes))
            return fail_tensor(r, t->name, "'shape' has more bytes than can be counted");
    }
    return F8_OK;
}

static f8_status read_offsets(const reader *r, f8_st_tensor *t, const json_t *field, uint64_t size)
{
    int64_t begin, end;
    char type[128];
    if (json_array_size(field) != 2 || !read_integer(json_array_get(field, 0), &begin) ||
        !read_integer(json_array_get(field, 1), &end))
        return fail_tensor(r, t->name, "'data_offsets' is missing or not two offsets");
    t->begin = (uint64_t)begin;
    if (begin > end)
        return fail_tensor(r, t->name,
                           "data_offsets [%" PRId64 ", %" PRId64 "] end before they begin", begin,
                           end);
    if ((uint64_t)end > size)
        return fail_tensor(r, t->name,
                           "data_offsets [%" PRId64 ", %" PRId64
                           "] reach beyond the file, which has %" PRIu64
                           " bytes of data: it is truncated, or its header is wrong",
                           begin, end, size);
    if ((uint64_t)(end - begin) != t->bytes)
        return fail_tensor(r, t->name,
                           "%s takes %" PRIu64 " bytes, but data_offsets [%" PRId64 ", %" PRId64
                           "] give it %" PRId64,
                           f8_st_type_text(t, type, sizeof type), t->bytes, begin, end,
                           end - begin);
    return F8_OK;
}

static bool is_field(const char *name)
{
    return !strcmp(name, "dtype") || !strcmp(name, "shape") || !strcmp(name, "data_offsets");
}

static f8_status read_tensor(const reader *r, const char *name, json_t *entry, uint64_t size)
{
    f8_st_tensor *t = &r->f->tensor[r->f->n];
    const char *field;
    const json_t *value;
    char quoted[SHOWN];
    *t = (f8_st_tensor){.name = name};
    if (!*name)
        return FAIL(r, "a tensor has no name");
    if (!json_is_object(entry))
        return fail_tensor(r, name, "is not described by an object");
    json_object_foreach (entry, field, value)
        if (!is_field(field))
            return fail_tensor(r, name, "has the unknown field '%s'",
                               f8_st_shown(field, quoted, sizeof quoted));
    r->f->n++;
    F8_TRY(read_dtype(r, t, json_object_get(entry, "dtype")));
    F8_TRY(read_shape(r, t, json_object_get(entry, "shape")));
    return read_offsets(r, t, json_object_get(entry, "data_offsets"), size);
}

static f8_status read_metadata(const reader *r, json_t *entry)
{
    f8_st_file *f = r->f;
    const char *key;
    json_t *value;
    char quoted[SHOWN];
    if (!json_is_object(entry))
        return FAIL(r, "'__metadata__' is not an object");
    f->metadata = F8_NEW_ARRAY(&f->memory, f8_st_pair, json_object_size(entry) + 1);
    if (!f->metadata)
        return out_of_memory(r);
    json_object_foreach (entry, key, value) {
        if (!json_is_string(value))
            return FAIL(r, "'__metadata__': the value of '%s' is not a string",
                        f8_st_shown(key, quoted, sizeof quoted));
        f->metadata[f->n_metadata++] = (f8_st_pair){key, json_string_value(value)};
    }
    return F8_OK;
}

/* ---- the whole ---- */

static int by_offset(const void *x, const void *y)
{
    const f8_st_tensor *a = x, *b = y;
    if (a->begin != b->begin)
        return a->begin < b->begin ? -1 : 1;
    if (a->bytes != b->bytes) /* empty tensors come before the one that begins at the same place */
        return a->bytes < b->bytes ? -1 : 1;
    return strcmp(a->name, b->name);
}

/* Check that every byte of the data belongs to exactly one tensor. */
static f8_status check_layout(const reader *r, uint64_t size)
{
    const f8_st_file *f = r->f;
    uint64_t end = 0;
    char quoted[SHOWN];
    qsort(f->tensor, f->n, sizeof *f->tensor, by_offset);
    for (size_t i = 0; i < f->n; end = f->tensor[i].begin + f->tensor[i].bytes, i++) {
        const f8_st_tensor *t = &f->tensor[i];
        if (t->begin < end)
            return fail_tensor(r, t->name, "its bytes overlap those of '%s'",
                               f8_st_shown(t[-1].name, quoted, sizeof quoted));
        if (t->begin > end)
            return fail_tensor(r, t->name,
                               "bytes %" PRIu64 " to %" PRIu64
                               " of the data, before it, belong to no tensor",
                               end, t->begin);
    }
    if (end != size)
        return FAIL(r, "the last %" PRIu64 " bytes belong to no tensor", size - end);
    return F8_OK;
}

static f8_status parse_header(const reader *r, const char *text, size_t n, uint64_t size)
{
    f8_st_file *f = r->f;
    json_error_t error;
    const char *name;
    json_t *entry;
    char quoted[SHOWN];
    if (n == 0 || text[0] != '{')
        return FAIL(r, "the header does not begin with '{': this is not a safetensors file");
    f->header = json_loadb(text, n, JSON_REJECT_DUPLICATES, &error);
    if (!f->header)
        return FAIL(r, "the header is not valid JSON: %s (byte %d of it)",
                    f8_st_shown(error.text, quoted, sizeof quoted), error.position);
    f->tensor = F8_NEW_ARRAY(&f->memory, f8_st_tensor, json_object_size(f->header) + 1);
    if (!f->tensor)
        return out_of_memory(r);
    json_object_foreach (f->header, name, entry)
        F8_TRY(strcmp(name, "__metadata__") ? read_tensor(r, name, entry, size)
                                            : read_metadata(r, entry));
    return check_layout(r, size);
}

/* Read the header's length, and check it against the file's. */
static f8_status read_length(const reader *r, uint64_t *n)
{
    const uint64_t size = r->f->in.size;
    unsigned char prefix[8];
    if (size < sizeof prefix)
        return FAIL(
            r,
            "%" PRIu64
            " bytes are too few: a safetensors file begins with the 8-byte length of its header",
            size);
    F8_TRY(f8_file_get(&r->f->in, prefix, sizeof prefix, 0, r->diag));
    *n = 0;
    for (int i = 8; i-- > 0;)
        *n = *n << 8 | prefix[i];
    if (*n > F8_ST_MAX_HEADER)
        return FAIL(r,
                    "a header of %" PRIu64
                    " bytes is too long: at most %d are read. Is this a safetensors file?",
                    *n, F8_ST_MAX_HEADER);
    if (*n > size - sizeof prefix)
        return FAIL(r,
                    "the header ends at byte %" PRIu64 ", but the file at %" PRIu64
                    ": it is truncated, or it is not a safetensors file",
                    *n + sizeof prefix, size);
    r->f->data = *n + sizeof prefix;
    return F8_OK;
}

static f8_status read_header(const reader *r)
{
    uint64_t n = 0;
    F8_TRY(read_length(r, &n));
    f8_arena scratch;
    f8_arena_init(&scratch, &r->f->memory.allocator);
    char *text = F8_NEW_ARRAY(&scratch, char, (size_t)n + 1);
    f8_status status =
        text ? f8_file_get(&r->f->in, text, n, 8, r->diag) : f8_arena_status(&scratch, r->diag);
    if (status == F8_OK)
        status = parse_header(r, text, (size_t)n, r->f->in.size - r->f->data);
    f8_arena_end(&scratch);
    return status;
}

/* `status` is that of opening the file. */
static f8_status opened(f8_st_file *f, f8_status status, f8_diag *diag)
{
    if (status == F8_OK)
        status = read_header(&(reader){f, diag});
    if (status != F8_OK)
        f8_st_close(f);
    return status;
}

f8_status f8_st_open_fd(f8_st_file *f, const char *path, int fd, const f8_allocator *allocator,
                        f8_diag *diag)
{
    *f = (f8_st_file){0};
    f8_arena_init(&f->memory, allocator);
    return opened(f, f8_file_open_fd(&f->in, path, fd, diag), diag);
}

f8_status f8_st_open(f8_st_file *f, const char *path, const f8_allocator *allocator, f8_diag *diag)
{
    *f = (f8_st_file){0};
    f8_arena_init(&f->memory, allocator);
    return opened(f, f8_file_open(&f->in, path, diag), diag);
}

void f8_st_close(f8_st_file *f)
{
    if (!f->in.path)
        return;
    f8_file_close(&f->in);
    f8_arena_end(&f->memory);
    json_decref(f->header);
    *f = (f8_st_file){.in.fd = -1};
}

const f8_st_tensor *f8_st_find(const f8_st_file *f, const char *name)
{
    for (size_t i = 0; i < f->n; i++)
        if (!strcmp(f->tensor[i].name, name))
            return &f->tensor[i];
    return NULL;
}

const char *f8_st_metadata(const f8_st_file *f, const char *key)
{
    for (size_t i = 0; i < f->n_metadata; i++)
        if (!strcmp(f->metadata[i].key, key))
            return f->metadata[i].value;
    return NULL;
}

f8_status f8_st_read(const f8_st_file *f, const f8_st_tensor *t, void *to, f8_diag *diag)
{
    return f8_file_get(&f->in, to, t->bytes, f->data + t->begin, diag);
}
