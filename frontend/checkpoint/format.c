/* The formats: see format.h. */
#include "frontend/checkpoint/format.h"

#include <stdio.h>
#include <string.h>

#include "ir/base/text.h"

static const char *const names[] = {
    [F8_NATIVE] = "native",
    [F8_HF_FP8] = "hf-fp8",
    [F8_COMPRESSED_TENSORS] = "compressed-tensors",
    [F8_MODELOPT] = "modelopt",
};

const char *f8_fp8_format_name(f8_fp8_format format)
{
    return names[format];
}

bool f8_fp8_format_parse(const char *text, f8_fp8_format *out)
{
    for (int i = 0; i < F8_N_FORMATS; i++)
        if (!strcmp(text, names[i])) {
            *out = (f8_fp8_format)i;
            return true;
        }
    return false;
}

const f8_grain_words f8_grains[] = {
    [F8_BY_TENSOR] = {"tensor", "current", "tensor", "token", "FP8"},
    [F8_BY_ROWS] = {"rows", "rowwise", "channel", "token", "FP8_PER_CHANNEL_PER_TOKEN"},
    [F8_BY_BLOCKS] = {"blocks of 128", "block", "block", "group", "FP8_PB_WO"},
    [F8_BY_MX] = {"MX", "mxfp8", "group", "group", "MXFP8"},
    [F8_N_GRAINS] = {.shown = "unknown"},
};

bool f8_fp8_format_has(f8_fp8_format format, f8_grain grain)
{
    return format != F8_HF_FP8 || grain == F8_BY_BLOCKS;
}

f8_granularity f8_grain_covers(f8_grain grain, bool rows_are_inputs)
{
    static const f8_granularity covers[] = {
        [F8_BY_TENSOR] = {0, 0},
        [F8_BY_ROWS] = {1, 0},
        [F8_BY_BLOCKS] = {F8_BLOCK, F8_BLOCK},
        [F8_BY_MX] = {1, F8_MX_RUN},
    };
    return rows_are_inputs ? f8_granularity_transposed(covers[grain]) : covers[grain];
}

f8_scale_type f8_fp8_format_scale(f8_fp8_format format, f8_grain grain, const int64_t codes[2],
                                  bool rows_are_inputs)
{
    const f8_granularity covers = f8_grain_covers(grain, rows_are_inputs);
    const int64_t rows = f8_granularity_blocks(covers.rows, codes[0]),
                  columns = f8_granularity_blocks(covers.cols, codes[1]);
    const bool inverse = format == F8_HF_FP8 || (format == F8_NATIVE && grain == F8_BY_BLOCKS);
    f8_scale_type t = {inverse ? "_scale_inv" : "_scale", F8_ST_F32, 2, {rows, columns}};
    if (grain == F8_BY_MX)
        t.dtype = format == F8_NATIVE ? F8_ST_F8_E8M0 : F8_ST_U8;
    if (grain == F8_BY_TENSOR) {
        t.rank = format == F8_COMPRESSED_TENSORS;
        t.dim[0] = 1;
    } else if (format == F8_MODELOPT && grain == F8_BY_ROWS) {
        t.rank = 1;
    } else if (format == F8_MODELOPT && grain == F8_BY_BLOCKS) {
        t = (f8_scale_type){t.suffix, t.dtype, 4, {rows, 1, columns, 1}};
    }
    return t;
}

bool f8_is_fp8(f8_st_dtype dtype)
{
    return dtype == F8_ST_F8_E4M3 || dtype == F8_ST_F8_E5M2 || dtype == F8_ST_F8_E4M3FNUZ ||
           dtype == F8_ST_F8_E5M2FNUZ;
}

/* ---- from names ---- */

/* Writes `name` without `end`; false: it has another end, or does not fit. */
static bool without(const char *name, const char *end, char module[F8_MODULE])
{
    return f8_text_ends_with(name, end) &&
           snprintf(module, F8_MODULE, "%.*s", (int)(strlen(name) - strlen(end)), name) < F8_MODULE;
}

bool f8_linear_of(const char *name, int32_t rank, char module[F8_MODULE])
{
    return rank == 2 && without(name, ".weight", module);
}

bool f8_scale_of(const char *name, char module[F8_MODULE])
{
    /* activation_scale is transformers' name, where one scale is the tensor's */
    static const char *const ends[] = {".weight_scale_inv", ".weight_scale", ".input_scale",
                                       ".activation_scale"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (without(name, ends[i], module))
            return true;
    return false;
}

/* ---- from shapes ---- */

static bool is_exponents(f8_st_dtype t)
{
    return t == F8_ST_F8_E8M0 || t == F8_ST_U8;
}

/* Scales of rank 4 as [rows, 1, columns, 1]; the others as they are. False: of no such shape. */
static bool matrix_of(const f8_st_tensor *scale, int64_t grid[2])
{
    const int64_t *d = scale->dim;
    if (scale->rank == 4 && d[1] == 1 && d[3] == 1) {
        grid[0] = d[0];
        grid[1] = d[2];
        return true;
    }
    grid[0] = scale->rank > 0 ? d[0] : 1;
    grid[1] = scale->rank > 1 ? d[1] : 1;
    return scale->rank <= 2;
}

static bool fits(f8_grain grain, bool inputs, const int64_t grid[2], const int64_t codes[2])
{
    const f8_granularity covers = f8_grain_covers(grain, inputs);
    return grid[0] == f8_granularity_blocks(covers.rows, codes[0]) &&
           grid[1] == f8_granularity_blocks(covers.cols, codes[1]);
}

bool f8_grain_of(const f8_st_tensor *scale, const int64_t codes[2], f8_grain like, f8_grain *out,
                 bool *inputs)
{
    static const f8_grain order[] = {F8_BY_TENSOR, F8_BY_ROWS, F8_BY_BLOCKS};
    int64_t grid[2];
    if (!matrix_of(scale, grid))
        return false;
    *inputs = false;
    if (is_exponents(scale->dtype)) {
        *out = F8_BY_MX;
        *inputs = !fits(F8_BY_MX, false, grid, codes);
        if (fits(F8_BY_MX, *inputs, grid, codes) || scale->dtype == F8_ST_U8)
            return fits(F8_BY_MX, *inputs, grid, codes);
        *inputs = false; /* transformers has powers of two for blocks, too */
    }
    if (like < F8_BY_MX && fits(like, false, grid, codes)) {
        *out = like;
        return true;
    }
    for (int transposed = 0; transposed < 2; transposed++)
        for (int i = 0; i < 3; i++)
            if (fits(order[i], transposed, grid, codes)) {
                *out = order[i];
                *inputs = transposed;
                return true;
            }
    return false;
}

int f8_ragged_axis(const int64_t codes[2])
{
    for (int k = 0; k < 2; k++)
        if (codes[k] > F8_BLOCK && codes[k] % F8_BLOCK)
            return k;
    return -1;
}
