/* Writing safetensors: see safetensors.h. One set of tensors gives one file, byte for byte the
 * reference implementation's, except for the order of metadata, which is free there. */
#include "frontend/checkpoint/safetensors.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "tensors' bytes are written as they are");

typedef struct writer {
    f8_file_out out;
    f8_arena memory;
    f8_st_tensor *tensor; /* in the file's order */
    size_t *index;        /* the caller's index of each */
    size_t n;
    f8_diag *diag;
} writer;

#define FAIL(w, ...) f8_file_fail((w)->diag, F8_ERR_INPUT, (w)->out.path, __VA_ARGS__)

/* ---- the header ---- */

static int by_dtype_and_name(const void *x, const void *y, void *tensors)
{
    const f8_st_tensor *a = (const f8_st_tensor *)tensors + *(const size_t *)x;
    const f8_st_tensor *b = (const f8_st_tensor *)tensors + *(const size_t *)y;
    if (a->dtype != b->dtype)
        return a->dtype < b->dtype ? 1 : -1;
    return strcmp(a->name, b->name);
}

/* Set order, sizes and offsets. */
static f8_status lay_out(writer *w, const f8_st_tensor *given, size_t n)
{
    uint64_t end = 0;
    w->n = n;
    w->index = F8_NEW_ARRAY(&w->memory, size_t, n + 1);
    w->tensor = F8_NEW_ARRAY(&w->memory, f8_st_tensor, n + 1);
    F8_TRY(f8_arena_status(&w->memory, w->diag));
    for (size_t i = 0; i < n; i++)
        w->index[i] = i;
    qsort_r(w->index, n, sizeof *w->index, by_dtype_and_name, (void *)given);
    for (size_t i = 0; i < n; i++) {
        f8_st_tensor *t = &w->tensor[i];
        *t = given[w->index[i]];
        t->begin = end;
        t->bytes = f8_st_dtype_bytes(t->dtype);
        bool overflow = t->rank < 0 || t->rank > F8_ST_MAX_RANK;
        for (int32_t k = 0; k < t->rank && !overflow; k++)
            overflow =
                t->dim[k] < 0 || __builtin_mul_overflow(t->bytes, (uint64_t)t->dim[k], &t->bytes);
        if (overflow || __builtin_add_overflow(end, t->bytes, &end) || end > INT64_MAX)
            return FAIL(w, "tensor '%s' has a shape that can't be written", t->name);
    }
    return F8_OK;
}

static json_t *describe(const f8_st_tensor *t)
{
    json_t *shape = json_array();
    for (int32_t i = 0; i < t->rank; i++)
        json_array_append_new(shape, json_integer(t->dim[i]));
    if (json_array_size(shape) != (size_t)t->rank) {
        json_decref(shape);
        return NULL;
    }
    return json_pack("{ss so s[II]}", "dtype", f8_st_dtype_name(t->dtype), "shape", shape,
                     "data_offsets", (json_int_t)t->begin, (json_int_t)(t->begin + t->bytes));
}

/* Set a key that must be new. Fails if it is there already, if a text is not UTF-8, or if memory
 * runs out. */
static bool set_new(json_t *object, const char *key, json_t *value)
{
    if (!json_object_get(object, key))
        return !json_object_set_new(object, key, value);
    json_decref(value);
    return false;
}

/* NULL on failure. */
static json_t *make_header(writer *w, const f8_st_pair *metadata, size_t n_metadata)
{
    json_t *header = json_object(), *pairs = n_metadata ? json_object() : NULL;
    for (size_t i = 0; i < n_metadata; i++)
        if (!set_new(pairs, metadata[i].key, json_string(metadata[i].value))) {
            FAIL(w, "metadata '%s' is given twice, or is not UTF-8", metadata[i].key);
            json_decref(pairs);
            json_decref(header);
            return NULL;
        }
    if (pairs)
        json_object_set_new(header, "__metadata__", pairs);
    for (size_t i = 0; i < w->n; i++) {
        const f8_st_tensor *t = &w->tensor[i];
        if (*t->name && strcmp(t->name, "__metadata__") && set_new(header, t->name, describe(t)))
            continue;
        FAIL(w, "tensor '%s' is given twice, or has a name that can't be written", t->name);
        json_decref(header);
        return NULL;
    }
    return header;
}

static f8_status put_header(writer *w, const f8_st_contents *c)
{
    json_t *header = make_header(w, c->metadata, c->n_metadata);
    if (!header)
        return F8_ERR_INPUT;
    char *text = json_dumps(header, JSON_COMPACT | JSON_PRESERVE_ORDER);
    json_decref(header);
    if (!text)
        return f8_file_fail(w->diag, F8_ERR_MEMORY, w->out.path, "out of memory for the header");
    const size_t n = strlen(text), padded = (n + 7) / 8 * 8;
    unsigned char prefix[8];
    for (int i = 0; i < 8; i++)
        prefix[i] = (unsigned char)((uint64_t)padded >> 8 * i);
    f8_status status = padded > F8_ST_MAX_HEADER
                           ? FAIL(w, "a header of %zu bytes is too long: readers take %d", padded,
                                  F8_ST_MAX_HEADER)
                           : f8_file_put(&w->out, prefix, sizeof prefix);
    if (status == F8_OK)
        status = f8_file_put(&w->out, text, n);
    if (status == F8_OK)
        status = f8_file_put(&w->out, "       ", padded - n);
    free(text);
    return status;
}

/* ---- the tensors ---- */

static f8_status put_tensors(writer *w, const f8_st_contents *c)
{
    const f8_allocator *a = &w->memory.allocator;
    uint64_t most = 1;
    for (size_t i = 0; i < w->n; i++)
        most = w->tensor[i].bytes > most ? w->tensor[i].bytes : most;
    void *bytes = a->alloc(a->user, (size_t)most, 64);
    if (!bytes)
        return f8_file_fail(w->diag, F8_ERR_MEMORY, w->out.path,
                            "out of memory: %" PRIu64 " bytes were wanted", most);
    f8_status status = F8_OK;
    for (size_t i = 0; i < w->n && status == F8_OK; i++) {
        status = c->fill(c->user, w->index[i], bytes, w->diag);
        if (status == F8_OK)
            status = f8_file_put(&w->out, bytes, w->tensor[i].bytes);
    }
    a->free(a->user, bytes, (size_t)most);
    return status;
}

static f8_status write_all(writer *w, const f8_st_contents *c)
{
    F8_TRY(lay_out(w, c->tensor, c->n));
    F8_TRY(put_header(w, c));
    F8_TRY(put_tensors(w, c));
    return f8_file_commit(&w->out);
}

f8_status f8_st_write(const char *path, const f8_st_contents *contents,
                      const f8_allocator *allocator, f8_diag *diag)
{
    writer w = {.diag = diag};
    f8_arena_init(&w.memory, allocator);
    f8_status status = f8_file_begin(&w.out, contents->list, path, false, diag);
    if (status == F8_OK)
        status = write_all(&w, contents);
    f8_file_end(&w.out);
    f8_arena_end(&w.memory);
    return status;
}
