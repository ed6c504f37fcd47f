/* .npy files: see npy.h. */
#include "frontend/checkpoint/npy.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "elements are taken as they are");

static const char magic[6] = "\x93NUMPY";

/* ---- the header: a few Python literals ---- */

typedef struct parser {
    const char *at, *end;
    f8_npy *f;
    f8_diag *diag;
    bool has_descr, has_order, has_shape, fortran;
} parser;

static f8_status fail(const parser *p, const char *what)
{
    return f8_file_fail(p->diag, F8_ERR_INPUT, p->f->in.path, "the header of the .npy file: %s",
                        what);
}

static void skip_spaces(parser *p)
{
    while (p->at < p->end && (*p->at == ' ' || *p->at == '\t' || *p->at == '\n' || *p->at == '\r'))
        p->at++;
}

/* Takes this character, if it is the next one after spaces. */
static bool take(parser *p, char c)
{
    skip_spaces(p);
    if (p->at == p->end || *p->at != c)
        return false;
    p->at++;
    return true;
}

static bool take_word(parser *p, const char *word)
{
    const size_t n = strlen(word);
    skip_spaces(p);
    if ((size_t)(p->end - p->at) < n || memcmp(p->at, word, n))
        return false;
    p->at += n;
    return true;
}

/* Takes 'text' or "text": printable ASCII without a backslash, at most size - 1 bytes. */
static f8_status take_string(parser *p, char *to, size_t size)
{
    skip_spaces(p);
    const char quote = p->at < p->end ? *p->at : 0;
    size_t n = 0;
    if (quote != '\'' && quote != '"')
        return fail(p, "a string was expected");
    for (p->at++; p->at < p->end && *p->at != quote; p->at++) {
        if (*p->at < 0x20 || *p->at > 0x7e || *p->at == '\\' || n + 1 >= size)
            return fail(p, "it has a string that no .npy file has");
        to[n++] = *p->at;
    }
    if (p->at == p->end)
        return fail(p, "a string has no end");
    p->at++;
    to[n] = 0;
    return F8_OK;
}

static f8_status take_size(parser *p, int64_t *to)
{
    skip_spaces(p);
    const char *begin = p->at;
    *to = 0;
    for (; p->at < p->end && *p->at >= '0' && *p->at <= '9'; p->at++)
        if (__builtin_mul_overflow(*to, 10, to) || __builtin_add_overflow(*to, *p->at - '0', to))
            return fail(p, "a size in 'shape' is too large");
    if (p->at == begin || (*begin == '0' && p->at - begin > 1))
        return fail(p, "'shape' holds something that is not a size");
    return F8_OK;
}

/* (), (2,), (2, 3) or (2, 3,) */
static f8_status take_shape(parser *p)
{
    f8_st_tensor *t = &p->f->tensor;
    if (!take(p, '('))
        return fail(p, "'shape' is not a tuple");
    while (!take(p, ')')) {
        if (t->rank == F8_ST_MAX_RANK)
            return fail(p, "'shape' has more than 8 axes");
        F8_TRY(take_size(p, &t->dim[t->rank++]));
        const bool comma = take(p, ',');
        if (!comma && t->rank == 1)
            return fail(p, "'shape' is not a tuple");
        if (!comma && !take(p, ')'))
            return fail(p, "'shape' is not a tuple of sizes");
        if (!comma)
            break;
    }
    return F8_OK;
}

/* Known are the types of ports, and types whose values become those of a port exactly. */
static f8_status take_descr(parser *p)
{
    static const struct {
        const char *descr; /* without the byte order */
        f8_st_dtype dtype;
    } known[] = {{"f4", F8_ST_F32},  {"f2", F8_ST_F16}, {"i4", F8_ST_I32}, {"i8", F8_ST_I64},
                 {"b1", F8_ST_BOOL}, {"u1", F8_ST_U8},  {"V1", F8_ST_U8},  {"V2", F8_ST_U16},
                 {"u2", F8_ST_U16},  {"u4", F8_ST_U32}, {"f8", F8_ST_F64}};
    char *descr = p->f->descr;
    if (take(p, '['))
        return fail(p, "'descr' describes a structure; only single elements can be read");
    F8_TRY(take_string(p, descr, sizeof p->f->descr));
    const bool order = *descr && strchr("<>=|", *descr);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(descr + order, known[i].descr))
            continue;
        p->f->tensor.dtype = known[i].dtype;
        return *descr == '>' && f8_st_dtype_bytes(known[i].dtype) > 1
                   ? fail(p, "its elements are big-endian: save them as little-endian")
                   : F8_OK;
    }
    return f8_file_fail(p->diag, F8_ERR_INPUT, p->f->in.path,
                        "its elements are '%s'; only f4, f2, i4, i8, b1, u1, u2, u4, bf16 (V2) and "
                        "FP8 (V1) can be read",
                        descr);
}

static f8_status take_entry(parser *p)
{
    char key[24];
    F8_TRY(take_string(p, key, sizeof key));
    bool *has = !strcmp(key, "descr")           ? &p->has_descr
                : !strcmp(key, "fortran_order") ? &p->has_order
                : !strcmp(key, "shape")         ? &p->has_shape
                                                : NULL;
    if (!has || *has)
        return fail(p, has ? "a key is given twice"
                           : "it has a key other than descr, fortran_order and shape");
    *has = true;
    if (!take(p, ':'))
        return fail(p, "a ':' was expected");
    if (has == &p->has_descr)
        return take_descr(p);
    if (has == &p->has_shape)
        return take_shape(p);
    p->fortran = take_word(p, "True");
    return p->fortran || take_word(p, "False")
               ? F8_OK
               : fail(p, "'fortran_order' is neither True nor False");
}

static f8_status parse(parser *p)
{
    if (!take(p, '{'))
        return fail(p, "it is not a dictionary");
    while (!take(p, '}')) {
        F8_TRY(take_entry(p));
        if (take(p, ','))
            continue;
        if (!take(p, '}'))
            return fail(p, "a ',' or '}' was expected");
        break;
    }
    skip_spaces(p);
    if (p->at != p->end || p->end[-1] != '\n')
        return fail(p, p->at != p->end ? "more bytes follow the dictionary"
                                       : "it does not end with a newline");
    if (!p->has_descr || !p->has_order || !p->has_shape)
        return fail(p, "descr, fortran_order or shape is missing");
    if (p->fortran && p->f->tensor.rank > 1)
        return fail(p, "its elements are in Fortran order: save numpy.ascontiguousarray(array)");
    return F8_OK;
}

/* ---- reading ---- */

/* Reads the version and the header's length, *n. *at: where the header begins. */
static f8_status read_length(f8_npy *f, uint64_t *at, uint64_t *n, f8_diag *diag)
{
    unsigned char head[12] = {0};
    const uint64_t size = f->in.size;
    if (size < 10)
        return f8_file_fail(diag, F8_ERR_INPUT, f->in.path,
                            "%" PRIu64 " bytes are too few for a .npy file", size);
    F8_TRY(f8_file_get(&f->in, head, size < sizeof head ? size : sizeof head, 0, diag));
    if (memcmp(head, magic, sizeof magic))
        return f8_file_fail(diag, F8_ERR_INPUT, f->in.path,
                            "it does not begin like a .npy file");
    if (head[6] < 1 || head[6] > 3 || head[7] != 0)
        return f8_file_fail(diag, F8_ERR_INPUT, f->in.path,
                            "its version is %d.%d; only 1.0, 2.0 and 3.0 can be read", head[6],
                            head[7]);
    *at = head[6] == 1 ? 10 : 12;
    *n = head[8] | (uint64_t)head[9] << 8;
    if (head[6] > 1)
        *n |= (uint64_t)head[10] << 16 | (uint64_t)head[11] << 24;
    if (*n > F8_NPY_HEADER)
        return f8_file_fail(diag, F8_ERR_INPUT, f->in.path,
                            "a header of %" PRIu64 " bytes is too long: the limit is %d", *n,
                            F8_NPY_HEADER);
    if (size < *at || *n > size - *at)
        return f8_file_fail(diag, F8_ERR_INPUT, f->in.path,
                            "the file is truncated: its header ends at byte %" PRIu64
                            ", the file at %" PRIu64,
                            *at + *n, size);
    return F8_OK;
}

static f8_status check_size(f8_npy *f, f8_diag *diag)
{
    f8_st_tensor *t = &f->tensor;
    const uint64_t has = f->in.size - f->data;
    t->bytes = f8_st_dtype_bytes(t->dtype);
    for (int32_t i = 0; i < t->rank; i++)
        if (__builtin_mul_overflow(t->bytes, (uint64_t)t->dim[i], &t->bytes))
            return f8_file_fail(diag, F8_ERR_INPUT, f->in.path,
                                "'shape' has more bytes than 64 bits can count");
    if (t->bytes == has)
        return F8_OK;
    return f8_file_fail(diag, F8_ERR_INPUT, f->in.path,
                        "its shape takes %" PRIu64 " bytes, but %" PRIu64 " follow the header: %s",
                        t->bytes, has,
                        has < t->bytes ? "it is truncated" : "the file is too long");
}

static f8_status read_header(f8_npy *f, f8_diag *diag)
{
    char text[F8_NPY_HEADER + 1];
    uint64_t at = 0, n = 0;
    F8_TRY(read_length(f, &at, &n, diag));
    F8_TRY(f8_file_get(&f->in, text, n, at, diag));
    if (n == 0)
        return f8_file_fail(diag, F8_ERR_INPUT, f->in.path, "its header is empty");
    f->data = at + n;
    parser p = {.at = text, .end = text + n, .f = f, .diag = diag};
    F8_TRY(parse(&p));
    return check_size(f, diag);
}

static f8_status opened(f8_npy *f, f8_status status, f8_diag *diag)
{
    if (status == F8_OK)
        status = read_header(f, diag);
    if (status != F8_OK)
        f8_npy_close(f);
    return status;
}

f8_status f8_npy_open(f8_npy *f, const char *path, f8_diag *diag)
{
    *f = (f8_npy){0};
    return opened(f, f8_file_open(&f->in, path, diag), diag);
}

f8_status f8_npy_open_fd(f8_npy *f, const char *path, int fd, f8_diag *diag)
{
    *f = (f8_npy){0};
    return opened(f, f8_file_open_fd(&f->in, path, fd, diag), diag);
}

void f8_npy_close(f8_npy *f)
{
    if (f->in.path)
        f8_file_close(&f->in);
    *f = (f8_npy){.in.fd = -1};
}

f8_status f8_npy_read(const f8_npy *f, void *to, f8_diag *diag)
{
    return f8_file_get(&f->in, to, f->tensor.bytes, f->data, diag);
}

/* ---- writing ---- */

/* Version 1.0; the elements begin at a multiple of 64 bytes. Returns the length. */
static size_t make_header(const fp8c_type *type, char to[256])
{
    static const char *const descr[] = {
        [FP8C_F32] = "<f4",    [FP8C_BF16] = "|V2",   [FP8C_F16] = "<f2",
        [FP8C_I32] = "<i4",    [FP8C_BOOL] = "|b1",   [FP8C_F8E4M3] = "|V1",
        [FP8C_F8E5M2] = "|V1", [FP8C_F8E8M0] = "|V1", [FP8C_I64] = "<i8",
    };
    size_t n = sizeof magic + 4;
    n += (size_t)snprintf(to + n, 256 - n, "{'descr': '%s', 'fortran_order': False, 'shape': (",
                          descr[type->dtype]);
    for (int32_t i = 0; i < type->rank; i++)
        n += (size_t)snprintf(to + n, 256 - n, "%s%" PRId64, i ? ", " : "", type->dim[i]);
    n += (size_t)snprintf(to + n, 256 - n, "%s), }", type->rank == 1 ? "," : "");
    const size_t whole = (n + 1 + 63) / 64 * 64, length = whole - sizeof magic - 4;
    memset(to + n, ' ', whole - n);
    to[whole - 1] = '\n';
    memcpy(to, magic, sizeof magic);
    to[6] = 1;
    to[7] = 0;
    to[8] = (char)(length & 255);
    to[9] = (char)(length >> 8);
    return whole;
}

f8_status f8_npy_write(f8_temporaries *list, const char *path, const fp8c_type *type,
                       const void *bytes, size_t n, f8_diag *diag)
{
    char header[256]; /* 5 sizes of at most 19 digits fit */
    f8_file_out out;
    f8_status status = f8_file_begin(&out, list, path, false, diag);
    if (status == F8_OK)
        status = f8_file_put(&out, header, make_header(type, header));
    if (status == F8_OK)
        status = f8_file_put(&out, bytes, n);
    if (status == F8_OK)
        status = f8_file_commit(&out);
    f8_file_end(&out);
    return status;
}
