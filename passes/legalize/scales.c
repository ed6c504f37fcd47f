/* Legalize, scales of FP8 products: which scales the target's GEMM has, and arrays of them as it
 * reads them.
 *
 * - CPU: the grid.
 * - CUDA: cuBLASLt's layout (ir/num/scale_layout.h), made from the grid by transposes and by zeros
 *   that fill up an axis; the product's attribute says so. Where the codes are transposed, so that
 *   k is contiguous, the granularity is the transpose's. The layout knows only k and the other
 *   axis, so nothing more moves. Where one operand has one scale and the other a scale for each
 *   row, the one scale is spread over the rows: the numbers are the same.
 *
 * Arrays are whole values: a part of another value is copied, so that no array has gaps or begins
 * at an unaligned byte. */
#include "passes/legalize/legalizer.h"
#include "passes/unit/rows.h"

/* ---- what the target has ---- */

/* The scales of operand 0 or 1 of a scaled_matmul. */
f8_scales f8_legal_scales_of(const f8_graph *g, f8_ref r, int which)
{
    f8_scales s = {.dtype = f8_type_of(g, f8_at(g, r)->in[which ? 3 : 1])->dtype};
    s.k_is_rows =
        which ? !f8_attr_i(g, r, F8_A_TRANSPOSE_B) : f8_attr_i(g, r, F8_A_TRANSPOSE_A) != 0;
    f8_granularity_parse(f8_attr_s(g, r, which ? F8_A_SCALE_B : F8_A_SCALE_A), &s.grain);
    return s; /* shape inference has checked the texts */
}

f8_scale_kind f8_legal_scale_kind(const f8_graph *g, f8_ref r)
{
    const f8_scales s = f8_legal_scales_of(g, r, 1);
    return f8_scales_kind(&s);
}

f8_scale_layout f8_legal_layout_of(const f8_graph *g, f8_ref r)
{
    f8_scale_layout layout = F8_SCALES_GRID;
    f8_scale_layout_parse(f8_attr_s(g, r, F8_A_SCALE_LAYOUT), &layout);
    return layout;
}

/* Whether operand i has one scale and the other operand one for each row: then the one scale is
 * spread over the rows. */
static bool is_spread(const f8_scale_kind kind[2], int i)
{
    return kind[i] == F8_SCALED_TENSOR && kind[!i] == F8_SCALED_ROWS;
}

/* What the target lacks for these two kinds of scales, or NULL. */
static const char *lacking(const f8_target *t, const f8_scale_kind kind[2])
{
    const unsigned lacks = f8_target_lacks(t, is_spread(kind, 0) ? F8_SCALED_ROWS : kind[0],
                                           is_spread(kind, 1) ? F8_SCALED_ROWS : kind[1]);
    return lacks & F8_LACKS_PAIR        ? "scales of these granularities in one GEMM"
           : lacks & F8_LACKS_ROWS      ? "scales of rows and columns of the result"
           : lacks & F8_LACKS_BLOCKS    ? "scales of blocks of 128"
           : lacks & F8_LACKS_TWO_TILED ? "scales of 128 x 128 blocks for both operands"
           : lacks                      ? "f8e8m0 scales"
                                        : NULL;
}

bool f8_has_scaling(const f8_legalizer *l, f8_graph *to, const f8_graph *from, f8_ref old)
{
    const f8_scales a = f8_legal_scales_of(from, old, 0), b = f8_legal_scales_of(from, old, 1);
    const bool cuda = l->target->kind == F8_TARGET_CUDA;
    char text[2][48];
    if (!cuda && f8_legal_layout_of(from, old) != F8_SCALES_GRID)
        f8_fail(to->diag, F8_ERR_UNSUPPORTED, from->loc[old],
                "%s: GEMMs of %s read scales as a grid, not as cuBLASLt does",
                f8_op_facts(F8_OP_SCALED_MATMUL)->name, l->target->name);
    const f8_scale_kind kind[] = {f8_scales_kind(&a), f8_scales_kind(&b)};
    const char *what = cuda ? lacking(l->target, kind) : NULL;
    if (what)
        f8_fail(to->diag, F8_ERR_UNSUPPORTED, from->loc[old],
                "%s: FP8 GEMMs of %s have no %s: %s %s and %s",
                f8_op_facts(F8_OP_SCALED_MATMUL)->name, l->target->name, what,
                f8_dtype_name(a.dtype), f8_granularity_print(a.grain, text[0], sizeof text[0]),
                f8_granularity_print(b.grain, text[1], sizeof text[1]));
    return to->diag->status == F8_OK;
}

/* ---- arrays ---- */

/* The axes in another order; a reshape where that moves nothing. */
static f8_ref reordered(f8_graph *g, f8_ref x, f8_ints perm)
{
    if (!x)
        return 0;
    const f8_type t = *f8_type_of(g, x);
    f8_type out = t;
    int64_t last = -1;
    bool moves = false;
    for (int i = 0; i < t.rank; i++) {
        out.dim[i] = t.dim[perm.v[i]];
        if (out.dim[i] == 1)
            continue;
        moves |= perm.v[i] < last;
        last = perm.v[i];
    }
    return moves ? f8_make(g, F8_OP_TRANSPOSE, &x, 1, &F8_INTS(F8_A_PERM, perm), 1)
                 : f8_reshape(g, x, &out);
}

/* The grid as a matrix whose rows run along k if `wanted`, else along the other axis. */
static f8_ref grid_by(f8_graph *g, f8_ref grid, bool k_is_rows, bool wanted)
{
    return k_is_rows == wanted ? grid : reordered(g, grid, (f8_ints){2, {1, 0}});
}

/* Tiles of 128 by 4 of a matrix of E8M0 [O, L] or, where k is its rows, [L, O]. */
static f8_ref tiled(f8_graph *g, f8_ref grid, bool k_is_rows)
{
    const int o = k_is_rows, l = !k_is_rows;
    const f8_ref x =
        f8_legal_padded(g, f8_legal_padded(g, grid, o, F8_SCALE_TILE, 0), l, F8_SCALE_TILE_K, 0);
    if (!x)
        return 0;
    const f8_type *t = f8_type_of(g, x);
    const int64_t tiles_o = t->dim[o] / F8_SCALE_TILE, tiles_l = t->dim[l] / F8_SCALE_TILE_K;
    f8_type cut = {.dtype = F8_E8M0, .rank = 5, .dim = {tiles_o, 4, 32, tiles_l, 4}};
    if (k_is_rows)
        cut = (f8_type){.dtype = F8_E8M0, .rank = 5, .dim = {tiles_l, 4, tiles_o, 4, 32}};
    return reordered(g, f8_reshape(g, x, &cut),
                     k_is_rows ? (f8_ints){5, {2, 0, 4, 3, 1}} : (f8_ints){5, {0, 3, 2, 1, 4}});
}

/* cuBLASLt's array out of the grid. */
static f8_ref from_grid(f8_graph *g, f8_ref grid, const f8_scales *s, const f8_type *codes)
{
    const f8_type t = {
        .dtype = s->dtype,
        .rank = 2,
        .dim = {f8_granularity_rows(s->grain, codes), f8_granularity_columns(s->grain, codes)}};
    switch (f8_scales_kind(s)) {
    case F8_SCALED_RUNS: return grid_by(g, f8_reshape(g, grid, &t), s->k_is_rows, true);
    case F8_SCALED_TILES:
        return f8_legal_padded(g, grid_by(g, f8_reshape(g, grid, &t), s->k_is_rows, false), 1, 4,
                               0);
    case F8_SCALED_MX: return tiled(g, f8_reshape(g, grid, &t), s->k_is_rows);
    default: return grid;
    }
}

/* An array that is a part of another value is copied: its rows may lie apart, or begin at any byte.
 */
static f8_ref whole(f8_graph *g, f8_ref array)
{
    return f8_at(g, f8_below_reshapes(g, array))->op == F8_OP_SLICE ? f8_legal_copy(g, array)
                                                                    : array;
}

/* ---- one product ---- */

static f8_attr *attr_of(f8_attr *attr, f8_attr_key key)
{
    while (attr->key != key)
        attr++;
    return attr;
}

/* The scales of one operand as the target reads them. turned: its codes were transposed. */
static f8_ref legal_array(const f8_legalizer *l, f8_graph *g, f8_ref array, f8_scales s,
                          bool spread, bool turned, const f8_type *codes, f8_attr *grain, bool grid)
{
    char text[48];
    if (f8_scales_kind(&s) == F8_SCALED_TENSOR && !spread)
        return array;
    if (l->target->kind != F8_TARGET_CUDA)
        return whole(g, array);
    if (spread)
        s.grain = s.k_is_rows ? (f8_granularity){0, 1} : (f8_granularity){1, 0};
    f8_type seen = *codes, type;
    if (grid && !spread)
        array = from_grid(g, array, &s, codes);
    if (turned) {
        seen = (f8_type){
            .dtype = codes->dtype, .rank = 2, .dim = {f8_type_columns(codes), f8_type_rows(codes)}};
        s.grain = f8_granularity_transposed(s.grain);
        s.k_is_rows = !s.k_is_rows;
    }
    if (!array || !f8_scale_layout_type(F8_SCALES_CUBLASLT, &s, &seen, &type))
        return 0;
    grain->s = f8_intern(g->module, f8_granularity_print(s.grain, text, sizeof text));
    return spread ? f8_broadcast(g, array, &type) : whole(g, f8_reshape(g, array, &type));
}

void f8_legal_scales(const f8_legalizer *l, f8_graph *to, const f8_graph *from, f8_ref old,
                     const bool turned[2], f8_ref *operand, f8_attr *attr)
{
    const f8_scales s[] = {f8_legal_scales_of(from, old, 0), f8_legal_scales_of(from, old, 1)};
    const f8_scale_kind kind[] = {f8_scales_kind(&s[0]), f8_scales_kind(&s[1])};
    const bool grid = f8_legal_layout_of(from, old) == F8_SCALES_GRID;
    const bool cuda = l->target->kind == F8_TARGET_CUDA;
    for (int i = 0; i < 2; i++) {
        f8_attr *grain = attr_of(attr, i ? F8_A_SCALE_B : F8_A_SCALE_A);
        const bool spread = cuda && is_spread(kind, i);
        operand[2 * i + 1] =
            legal_array(l, to, operand[2 * i + 1], s[i], spread, turned[i],
                        f8_type_of(from, f8_at(from, old)->in[2 * i]), grain, grid);
    }
    if (cuda && grid && kind[0] > F8_SCALED_ROWS)
        attr_of(attr, F8_A_SCALE_LAYOUT)->s =
            f8_intern(to->module, f8_scale_layout_name(F8_SCALES_CUBLASLT));
}
