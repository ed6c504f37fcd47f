/* Layouts of scales: see scale_layout.h. */
#include "ir/num/scale_layout.h"

#include <string.h>

static const char *const name[] = {[F8_SCALES_GRID] = "grid", [F8_SCALES_CUBLASLT] = "cublaslt"};

bool f8_scale_layout_parse(const char *text, f8_scale_layout *out)
{
    for (size_t i = 0; i < sizeof name / sizeof *name; i++)
        if (!strcmp(name[i], text)) {
            *out = (f8_scale_layout)i;
            return true;
        }
    return false;
}

const char *f8_scale_layout_name(f8_scale_layout layout)
{
    return name[layout];
}

/* ---- the axes of the product ---- */

int64_t f8_scales_along_k(const f8_scales *s)
{
    return s->k_is_rows ? s->grain.rows : s->grain.cols;
}

int64_t f8_scales_across(const f8_scales *s)
{
    return s->k_is_rows ? s->grain.cols : s->grain.rows;
}

f8_scale_kind f8_scales_kind(const f8_scales *s)
{
    const int64_t k = f8_scales_along_k(s), across = f8_scales_across(s);
    if (s->dtype == F8_E8M0)
        return k == 32 && across == 1 ? F8_SCALED_MX : F8_SCALED_OTHER;
    if (k == 0)
        return across == 0 ? F8_SCALED_TENSOR : across == 1 ? F8_SCALED_ROWS : F8_SCALED_OTHER;
    return k != 128        ? F8_SCALED_OTHER
           : across == 1   ? F8_SCALED_RUNS
           : across == 128 ? F8_SCALED_TILES
                           : F8_SCALED_OTHER;
}

/* How many scales there are along k, and across it. */
static int64_t blocks_of_k(const f8_scales *s, const f8_type *codes)
{
    return f8_granularity_blocks(f8_scales_along_k(s),
                                 s->k_is_rows ? f8_type_rows(codes) : f8_type_columns(codes));
}

static int64_t blocks_across(const f8_scales *s, const f8_type *codes)
{
    return f8_granularity_blocks(f8_scales_across(s),
                                 s->k_is_rows ? f8_type_columns(codes) : f8_type_rows(codes));
}

/* ---- the array ---- */

static bool runs(const f8_scales *s)
{
    return f8_scales_along_k(s) > 1 && f8_scales_across(s) == 1;
}

bool f8_scale_layout_type(f8_scale_layout layout, const f8_scales *s, const f8_type *codes,
                          f8_type *out)
{
    const int64_t l = blocks_of_k(s, codes), o = blocks_across(s, codes);
    *out = f8_granularity_type(s->grain, codes, s->dtype);
    if (layout == F8_SCALES_GRID)
        return true;
    if (s->dtype == F8_E8M0) {
        *out = (f8_type){.dtype = F8_E8M0,
                         .rank = 5,
                         .dim = {f8_granularity_blocks(F8_SCALE_TILE, o),
                                 f8_granularity_blocks(F8_SCALE_TILE_K, l), 32, 4, 4}};
        return runs(s);
    }
    if (runs(s))
        *out = (f8_type){.dtype = s->dtype, .rank = 2, .dim = {l, o}};
    else if (f8_scales_along_k(s))
        *out = (f8_type){.dtype = s->dtype, .rank = 2, .dim = {o, f8_aligned(l, 4)}};
    return true;
}

int64_t f8_scale_layout_at(f8_scale_layout layout, const f8_scales *s, const f8_type *codes,
                           int64_t outer, int64_t k)
{
    const int64_t l = f8_granularity_block(f8_scales_along_k(s), k);
    const int64_t o = f8_granularity_block(f8_scales_across(s), outer);
    const int64_t n_l = blocks_of_k(s, codes), n_o = blocks_across(s, codes);
    if (layout == F8_SCALES_GRID)
        return s->k_is_rows ? l * n_o + o : o * n_l + l;
    if (s->dtype == F8_E8M0) {
        const int64_t tiles = f8_granularity_blocks(F8_SCALE_TILE_K, n_l); /* of a row of tiles */
        const int64_t tile = o / F8_SCALE_TILE * tiles + l / F8_SCALE_TILE_K;
        return tile * F8_SCALE_TILE * F8_SCALE_TILE_K + o % 32 * 16 + o / 32 % 4 * 4 + l % 4;
    }
    if (runs(s))
        return l * n_o + o;
    return f8_scales_along_k(s) ? o * f8_aligned(n_l, 4) + l : o;
}
