/* Tensors in files: see tensor_file.h. */
#include "frontend/checkpoint/tensor_file.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/checkpoint/checkpoint.h"
#include "frontend/fp8c_diagnose.h"

static const char suffix[] = ".safetensors";

bool f8_tensor_file_parse(const char *text, f8_tensor_file *out)
{
    const char *equals = strchr(text, '=');
    *out = (f8_tensor_file){0};
    if (!equals || equals == text || !equals[1])
        return false;
    out->name = strndup(text, (size_t)(equals - text));
    out->path = strdup(equals + 1);
    if (!out->name || !out->path)
        return false;
    const size_t n = strlen(out->path), k = sizeof suffix - 1;
    char *colon = strstr(out->path, ".safetensors:");
    if (colon) {
        colon += k;
        *colon = 0;
        out->tensor = colon + 1;
    } else if (n >= k && !strcmp(out->path + n - k, suffix)) {
        out->tensor = out->name;
    }
    return out->tensor ? *out->tensor != 0 : n > 4 && !strcmp(out->path + n - 4, ".npy");
}

void f8_tensor_file_free(f8_tensor_file *f)
{
    free(f->name);
    free(f->path);
    *f = (f8_tensor_file){0};
}

/* The tensor of a file that has a port's type. */
static f8_st_tensor tensor_of(const fp8c_type *type)
{
    return f8_checkpoint_tensor(&(fp8c_variable){.type = *type});
}

/* ---- reading ---- */

/* Whether elements of `from` can become those of a port. raw: they are of a .npy file, which has no
 * types for bf16 and FP8. */
static bool becomes(f8_st_dtype from, fp8c_dtype to, bool raw)
{
    if (from == F8_ST_U8)
        return to == FP8C_I32 || to == FP8C_I64 || to == FP8C_BOOL ||
               (raw && (to == FP8C_F8E4M3 || to == FP8C_F8E5M2 || to == FP8C_F8E8M0));
    return (from == F8_ST_I64 && to == FP8C_I32) || (from == F8_ST_I32 && to == FP8C_I64) ||
           (raw && from == F8_ST_U16 && to == FP8C_BF16);
}

/* Converts n elements. Returns the index of the first that does not fit into i32, or n. */
static uint64_t to_i32(f8_st_dtype from, const void *raw, int32_t *to, uint64_t n)
{
    const uint8_t *u8 = raw;
    const int64_t *i64 = raw;
    for (uint64_t i = 0; i < n; i++) {
        const int64_t x = from == F8_ST_I64 ? i64[i] : u8[i];
        if (x < INT32_MIN || x > INT32_MAX)
            return i;
        to[i] = (int32_t)x;
    }
    return n;
}

static void to_i64(f8_st_dtype from, const void *raw, int64_t *to, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        to[i] = from == F8_ST_I32 ? ((const int32_t *)raw)[i] : ((const uint8_t *)raw)[i];
}

/* Converts the n elements at `raw`, of dtype `from`, to values of a port at `to`. The first is
 * element `first` of the tensor, for the message. */
static f8_status take(const f8_tensor_in *in, const void *raw, uint64_t first, uint64_t n,
                      fp8c_dtype dtype, void *to, f8_diag *diag)
{
    const f8_st_dtype from = in->tensor.dtype;
    uint64_t good = 0;
    if (dtype == FP8C_I32 && from != F8_ST_I32) {
        good = to_i32(from, raw, to, n);
    } else if (dtype == FP8C_I64 && from != F8_ST_I64) {
        to_i64(from, raw, to, n);
        good = n;
    } else {
        memcpy(to, raw, (size_t)(n * f8_st_dtype_bytes(from)));
        while (good < n && (dtype != FP8C_BOOL || ((const uint8_t *)raw)[good] <= 1))
            good++;
    }
    return good == n
               ? F8_OK
               : f8_file_fail(diag, F8_ERR_INPUT, in->file->path,
                              "for '%s': element %" PRIu64 " does not fit into %s", in->file->name,
                              first + good, fp8c_name(FP8C_NAME_DTYPE, dtype));
}

static f8_status find_tensor(f8_tensor_in *in, f8_diag *diag)
{
    const f8_st_tensor *t = f8_st_find(&in->safetensors, in->file->tensor);
    if (!t)
        return f8_file_fail(diag, F8_ERR_INPUT, in->file->path,
                            "it has no tensor '%s'; FILE:TENSOR gives another name",
                            in->file->tensor);
    in->tensor = *t;
    in->begin = in->safetensors.data + t->begin;
    return F8_OK;
}

f8_status f8_tensor_open(f8_tensor_in *in, const f8_tensor_file *f, f8_diag *diag)
{
    *in = (f8_tensor_in){.file = f};
    if (!f->tensor) {
        F8_TRY(f8_npy_open(&in->npy, f->path, diag));
        in->tensor = in->npy.tensor;
        in->begin = in->npy.data;
        return F8_OK;
    }
    F8_TRY(f8_st_open(&in->safetensors, f->path, NULL, diag));
    const f8_status status = find_tensor(in, diag);
    if (status != F8_OK)
        f8_tensor_close(in);
    return status;
}

void f8_tensor_close(f8_tensor_in *in)
{
    if (in->file && in->file->tensor)
        f8_st_close(&in->safetensors);
    else if (in->file)
        f8_npy_close(&in->npy);
    *in = (f8_tensor_in){0};
}

f8_status f8_tensor_fits(const f8_tensor_in *in, const fp8c_type *type, f8_diag *diag)
{
    char here[128], there[128];
    const f8_tensor_file *f = in->file;
    const f8_st_tensor want = tensor_of(type), *t = &in->tensor;
    const bool right = t->dtype == want.dtype || becomes(t->dtype, type->dtype, !f->tensor);
    if (right && f8_checkpoint_same_shape(t, &want, 0))
        return F8_OK;
    return f8_file_fail(diag, F8_ERR_INPUT, f->path, "%s%s%s is %s, but '%s' needs %s",
                        f->tensor ? "tensor '" : "", f->tensor ? f->tensor : "it",
                        f->tensor ? "'" : "", f8_st_type_text(t, here, sizeof here), f->name,
                        f8_st_type_text(&want, there, sizeof there));
}

f8_status f8_tensor_read(const f8_tensor_in *in, uint64_t first, uint64_t n, fp8c_dtype dtype,
                         void *to, f8_diag *diag)
{
    const f8_file_in *file = in->file->tensor ? &in->safetensors.in : &in->npy.in;
    const uint64_t width = f8_st_dtype_bytes(in->tensor.dtype);
    void *raw = malloc((size_t)(n * width) + 1);
    if (!raw)
        return f8_file_fail(diag, F8_ERR_MEMORY, in->file->path, "out of memory");
    f8_status status = f8_file_get(file, raw, n * width, in->begin + first * width, diag);
    if (status == F8_OK)
        status = take(in, raw, first, n, dtype, to, diag);
    free(raw);
    return status;
}

f8_status f8_tensor_file_shape(const f8_tensor_file *f, int64_t dim[F8_ST_MAX_RANK], int32_t *rank,
                               f8_diag *diag)
{
    f8_tensor_in in;
    F8_TRY(f8_tensor_open(&in, f, diag));
    memcpy(dim, in.tensor.dim, sizeof in.tensor.dim);
    *rank = in.tensor.rank;
    f8_tensor_close(&in);
    return F8_OK;
}

f8_status f8_tensor_file_read(const f8_tensor_file *f, const fp8c_type *type, void *to,
                              f8_diag *diag)
{
    f8_tensor_in in;
    F8_TRY(f8_tensor_open(&in, f, diag));
    f8_status status = f8_tensor_fits(&in, type, diag);
    if (status == F8_OK)
        status = f8_tensor_read(&in, 0, in.tensor.bytes / f8_st_dtype_bytes(in.tensor.dtype),
                                type->dtype, to, diag);
    f8_tensor_close(&in);
    return status;
}

/* ---- writing ---- */

f8_status f8_tensor_files_writable(f8_temporaries *list, const f8_tensor_output *output, size_t n,
                                   f8_diag *diag)
{
    for (size_t i = 0; i < n; i++) {
        F8_TRY(f8_file_writable(list, output[i].file.path, diag));
        for (size_t k = 0; k < i; k++)
            if (!strcmp(output[i].file.path, output[k].file.path) &&
                (!output[i].file.tensor || !output[k].file.tensor ||
                 !strcmp(output[i].file.tensor, output[k].file.tensor)))
                return f8_file_fail(diag, F8_ERR_INPUT, output[i].file.path,
                                    "'%s' and '%s' would be written to the same place",
                                    output[k].file.name, output[i].file.name);
    }
    return F8_OK;
}

static f8_status fill(void *user, size_t index, void *to, f8_diag *diag)
{
    (void)diag;
    const f8_tensor_output *const *one = user;
    memcpy(to, one[index]->bytes, (size_t)fp8c_type_bytes(&one[index]->type));
    return F8_OK;
}

/* Writes those of the n outputs that have the same path as the first. */
static f8_status write_safetensors(f8_temporaries *list, const f8_tensor_output *output, size_t n,
                                   f8_diag *diag)
{
    const char *path = output->file.path;
    const f8_tensor_output **one = calloc(n, sizeof *one);
    f8_st_tensor *tensor = calloc(n, sizeof *tensor);
    f8_st_contents c = {.tensor = tensor, .fill = fill, .user = one, .list = list};
    for (size_t i = 0; i < n && one && tensor; i++)
        if (!strcmp(output[i].file.path, path)) {
            tensor[c.n] = tensor_of(&output[i].type);
            tensor[c.n].name = output[i].file.tensor;
            one[c.n++] = &output[i];
        }
    const f8_status status = one && tensor
                                 ? f8_st_write(path, &c, NULL, diag)
                                 : f8_file_fail(diag, F8_ERR_MEMORY, path, "out of memory");
    free(one);
    free(tensor);
    return status;
}

f8_status f8_tensor_files_write(f8_temporaries *list, const f8_tensor_output *output, size_t n,
                                f8_diag *diag)
{
    for (size_t i = 0; i < n; i++) {
        bool written = false;
        for (size_t k = 0; k < i; k++)
            written |= !strcmp(output[i].file.path, output[k].file.path);
        if (written)
            continue;
        F8_TRY(output[i].file.tensor
                   ? write_safetensors(list, output + i, n - i, diag)
                   : f8_npy_write(list, output[i].file.path, &output[i].type, output[i].bytes,
                                  (size_t)fp8c_type_bytes(&output[i].type), diag));
    }
    return F8_OK;
}
