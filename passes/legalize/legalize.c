/* Legalize: rewrites what the target's kernels and GEMMs can't take as it stands. No bit changes.
 *
 *   products                          gemm.c, pad.c
 *   reduce over the first axis        of a matrix only: sums in blocks of 64 rows (ir/README.md),
 *                                     magnitudes in blocks of up to 64, then those
 *   reduce over one element           is that element
 *   transpose of axes of one element  a reshape
 *   reshape, where rows change        of narrow values only: cast(reshape(x), narrow) =
 *                                     reshape(cast(x, narrow)), reshape(cast(x, wide)) =
 *                                     cast(reshape(x), wide)
 *   slice of a widening cast          the cast of a slice, which is a view
 *   broadcast no row kernel reads     an explicit broadcast
 *   result that is an input           a copy, so that state and ports never alias
 *
 * The reference target interprets any node, so only the rest of the compiler needs this. */
#include "passes/legalize/legalize.h"
#include "passes/legalize/legalizer.h"
#include "passes/unit/formulas.h"
#include "passes/unit/rows.h"

#include <string.h>

enum { BLOCK = 64, PART = 32, FEW = 8 };

/* Whether a value may lie with gaps between its rows. */
static bool has_gaps(const f8_graph *g, f8_ref r)
{
    for (; g->node[r].op == F8_OP_RESHAPE || g->node[r].op == F8_OP_SLICE; r = g->node[r].in[0])
        if (g->node[r].op == F8_OP_SLICE && f8_type_rows(&g->node[r].type) > 1)
            return true;
    return false;
}

/* ---- reductions ---- */

static f8_ref reduce(f8_graph *g, f8_op op, f8_ref x, int64_t axis, int64_t block)
{
    const f8_attr attr[] = {F8_INT(F8_A_AXIS, axis), F8_INT(F8_A_BLOCK, block)};
    return f8_make(g, op, &x, 1, attr, op == F8_OP_REDUCE_MAX ? 1 : 2);
}

/* x [R, C] summed over its rows: blocks of 64, then the blocks' sums by the same rule. */
static f8_ref sum_rows(f8_graph *g, f8_ref x)
{
    while (x && f8_type_rows(f8_type_of(g, x)) > BLOCK)
        x = reduce(g, F8_OP_REDUCE_SUM, x, 0, BLOCK);
    return x ? reduce(g, F8_OP_REDUCE_SUM, x, 0, 0) : 0;
}

/* x [R, C] with rows of -0.0 after each `block` of its rows, so that each has `rows`. They change
 * no sum: -0.0 is the identity of addition. */
static f8_ref pad_blocks(f8_graph *g, f8_ref x, int64_t block, int64_t rows)
{
    if (!x || block == rows)
        return x;
    const int64_t n = f8_type_of(g, x)->dim[0] / block, cols = f8_type_of(g, x)->dim[1];
    const f8_type fill = {.dtype = F8_F32, .rank = 3, .dim = {n, rows - block, cols}};
    const f8_ref part[] = {f8_reshape_to(g, x, 3, (int64_t[]){n, block, cols}),
                           f8_broadcast(g, f8_const(g, -0.0), &fill)};
    return f8_reshape_to(g, f8_concat(g, part, 2, 1), 2, (int64_t[]){n * rows, cols});
}

/* x [R, C] summed in blocks of rows, [blocks, C], each as all rows are: blocks of 64, then their
 * sums by the same rule. Kernels have blocks of 64 rows, so others are padded to such. */
static f8_ref sum_blocks(f8_graph *g, f8_ref x, int64_t block)
{
    while (x && block > 1) {
        const int64_t rows = f8_type_of(g, x)->dim[0], parts = (block + BLOCK - 1) / BLOCK;
        if (block >= rows)
            return sum_rows(g, x);
        x = pad_blocks(g, x, rows, (rows + block - 1) / block * block);
        x = reduce(g, F8_OP_REDUCE_SUM, pad_blocks(g, x, block, parts * BLOCK), 0, BLOCK);
        block = parts;
    }
    return x;
}

/* Maxima do not depend on order, so rows become columns. One column becomes a row by a reshape,
 * which moves nothing. */
static f8_ref max_rows(f8_graph *g, f8_op op, f8_ref x)
{
    const f8_ints perm = {2, {1, 0}};
    const f8_type t = *f8_type_of(g, x),
                  row = {.dtype = t.dtype, .rank = 2, .dim = {t.dim[1], t.dim[0]}};
    const f8_ref turned =
        row.dim[0] == 1 ? f8_reshape(g, x, &row)
                        : f8_make(g, F8_OP_TRANSPOSE, &x, 1, &F8_INTS(F8_A_PERM, perm), 1);
    return reduce(g, op, turned, -1, 0);
}

/* amax in blocks of an odd number of rows, [R, C] to [blocks, C]: rows become columns, where a
 * block is a row. */
static f8_ref amax_odd_blocks(f8_graph *g, f8_ref x, int64_t block)
{
    if (!x)
        return 0;
    const f8_type t = *f8_type_of(g, x);
    const int64_t rows = t.dim[0], cols = t.dim[1],
                  first = rows <= block ? rows : rows / block * block;
    if (first < rows) {
        const f8_ref part[] = {amax_odd_blocks(g, f8_slice(g, x, 0, 0, first), block),
                               amax_odd_blocks(g, f8_slice(g, x, 0, first, rows), block)};
        return f8_concat(g, part, 2, 0);
    }
    if (rows <= block)
        return f8_reshape(g, max_rows(g, F8_OP_REDUCE_AMAX, x),
                          &(f8_type){.dtype = F8_F32, .rank = 2, .dim = {1, cols}});
    const f8_ints perm = {2, {1, 0}};
    const f8_type runs = {.dtype = t.dtype, .rank = 3, .dim = {cols, rows / block, block}},
                  table = {.dtype = t.dtype, .rank = 2, .dim = {cols, rows / block}};
    x = f8_make(g, F8_OP_TRANSPOSE, &x, 1, &F8_INTS(F8_A_PERM, perm), 1);
    x = f8_reshape(g, reduce(g, F8_OP_REDUCE_AMAX, f8_reshape(g, x, &runs), -1, 0), &table);
    return f8_make(g, F8_OP_TRANSPOSE, &x, 1, &F8_INTS(F8_A_PERM, perm), 1);
}

/* The largest of each `count` neighbouring rows of x, magnitudes that lie in memory. It is computed
 * element by element from strided views, so that its readers can compute it themselves. */
static f8_ref larger_of_rows(f8_graph *g, f8_ref x, int64_t count)
{
    const int64_t rows = f8_type_of(g, x)->dim[0] / count, cols = f8_type_of(g, x)->dim[1];
    const f8_type split = {.dtype = F8_F32, .rank = 3, .dim = {rows, count, cols}},
                  row = {.dtype = F8_F32, .rank = 2, .dim = {rows, cols}};
    f8_ref most = 0;
    x = f8_reshape(g, x, &split);
    for (int64_t i = 0; i < count; i++) {
        const f8_ref one = f8_reshape(g, f8_slice(g, x, 1, i, i + 1), &row);
        most = i ? f8_binary(g, F8_OP_MAX, most, one) : one;
    }
    return most;
}

/* amax of x [R, C] in blocks of rows (0: one block), [blocks, C]. Kernels have blocks of powers of
 * two up to 64. A larger block is taken in such parts; the magnitudes of the parts are few, and the
 * amax of those follows. Parts of 32 rows make enough tasks. `parts`: x is such magnitudes. */
static f8_ref amax_rows(f8_graph *g, f8_ref x, int64_t block, bool parts)
{
    if (!x)
        return 0;
    const int64_t rows = f8_type_of(g, x)->dim[0], low = block & -block;
    if (block >= rows)
        block = 0;
    const int64_t one = block ? block : rows;
    if (one == 1)
        return parts ? x : f8_unary(g, F8_OP_ABS, x);
    if (parts && one <= FEW && rows % one == 0)
        return larger_of_rows(g, x, one);
    if (block ? low == block && block <= BLOCK : rows <= BLOCK)
        return reduce(g, F8_OP_REDUCE_AMAX, x, 0, block);
    if (block && low == 1)
        return amax_odd_blocks(g, x, block);
    const int64_t part = block && low < PART ? low : PART;
    return amax_rows(g, reduce(g, F8_OP_REDUCE_AMAX, x, 0, part), block / part, true);
}

static f8_ref legal_reduce(f8_graph *g, const f8_graph *from, f8_ref old, f8_ref x)
{
    const f8_op op = from->node[old].op;
    const f8_type out = from->node[old].type, in = *f8_type_of(g, x);
    const int64_t axis = f8_attr_i(from, old, F8_A_AXIS);
    const int64_t block = f8_attr_i(from, old, F8_A_BLOCK);
    if (in.rank == 0)
        return 0;
    const int at = (int)(axis < 0 ? axis + in.rank : axis);
    if (in.dim[at] == 1)
        return op == F8_OP_REDUCE_AMAX ? f8_unary(g, F8_OP_ABS, x) : x;
    if (at == in.rank - 1)
        return block < in.dim[at] ? 0 : reduce(g, op, x, -1, 0);
    const f8_type matrix = {
        .dtype = in.dtype, .rank = 2, .dim = {in.dim[0], f8_type_elements(&in) / in.dim[0]}};
    x = f8_reshape(g, x, &matrix);
    if (op == F8_OP_REDUCE_SUM)
        x = sum_blocks(g, x, block ? block : in.dim[0]);
    else if (op == F8_OP_REDUCE_MAX || (matrix.dim[1] == 1 && !block))
        x = max_rows(g, op, x);
    else
        x = amax_rows(g, x, block, false);
    return f8_reshape(g, x, &out);
}

/* ---- shapes ---- */

/* Whether r is a reshape that regroups rows and columns: only a value in memory can be read so. */
static bool regroups(const f8_graph *g, f8_ref r)
{
    const f8_node *n = f8_at(g, r);
    return n->op == F8_OP_RESHAPE && !f8_type_same_matrix(&n->type, f8_type_of(g, n->in[0]));
}

/* A transpose that moves only axes of one element: a reshape. */
static bool moves_nothing(const f8_graph *g, const f8_node *n, const f8_ref *in)
{
    const f8_type *t = f8_type_of(g, in[0]);
    int64_t last = -1;
    for (int i = 0; i < t->rank; i++) {
        const int64_t axis = n->attr[0].ints.v[i];
        if (t->dim[axis] == 1)
            continue;
        if (axis < last)
            return false;
        last = axis;
    }
    return true;
}

/* Regroup the narrower side of a cast, so that the value that must lie in memory is narrow. */
static f8_ref narrow_first(f8_graph *g, const f8_node *n, const f8_ref *in)
{
    const f8_node *below = f8_at(g, in[0]);
    if (n->op == F8_OP_SLICE)
        return below->op == F8_OP_CAST && f8_dtype_size(f8_type_of(g, below->in[0])->dtype) <
                                              f8_dtype_size(below->type.dtype)
                   ? f8_cast(g,
                             f8_make(g, n->op, below->in, 1, n->attr, f8_op_facts(n->op)->n_attrs),
                             below->type.dtype)
                   : 0;
    if (n->op == F8_OP_RESHAPE && below->op == F8_OP_CAST &&
        !f8_type_same_matrix(&n->type, &below->type) &&
        f8_dtype_size(f8_type_of(g, below->in[0])->dtype) < f8_dtype_size(below->type.dtype))
        return f8_cast(g, f8_reshape(g, below->in[0], &n->type), below->type.dtype);
    if (!regroups(g, in[0]) || f8_dtype_size(n->type.dtype) >= f8_dtype_size(below->type.dtype))
        return 0;
    if (n->op == F8_OP_CAST)
        return f8_reshape(g, f8_cast(g, below->in[0], n->type.dtype), &n->type);
    if (n->op == F8_OP_QUANTIZE && f8_type_elements(f8_type_of(g, in[1])) == 1) {
        const f8_ref q = f8_make_clone(g, n->op, (f8_ref[]){below->in[0], in[1]}, 2, n->attr,
                                       f8_op_facts(n->op)->n_attrs, n->clone);
        return q ? f8_reshape(g, q, &n->type) : 0;
    }
    return 0;
}

/* The node with explicit broadcasts for operands that no row kernel could read; 0 if there are
 * none. */
static f8_ref broadcast_operands(f8_graph *g, const f8_node *n, const f8_ref *in)
{
    f8_ref wide[3];
    bool any = false;
    for (uint32_t i = 0; i < n->n_in; i++) {
        const f8_type *t = f8_type_of(g, in[i]);
        const bool none = f8_read_of(&n->type, t).kind == F8_READ_NONE;
        wide[i] = none ? f8_broadcast(g, in[i], &n->type) : in[i];
        any |= none;
    }
    if (!any)
        return 0;
    return f8_make_clone(g, n->op, wide, (int)n->n_in, n->attr, f8_op_facts(n->op)->n_attrs,
                         n->clone);
}

/* The operand that is read as one run of bytes; -1: there is none. */
static int read_whole(f8_op op)
{
    if (op == F8_OP_EMBEDDING || op == F8_OP_EMBEDDING_GRAD)
        return 1; /* the ids */
    return f8_op_facts(op)->cls == F8_COLLECTIVE ? 0 : -1;
}

/* The node with a copy in place of operand `which`. */
static f8_ref on_copy(f8_graph *g, const f8_node *n, const f8_ref *in, int which)
{
    f8_ref operand[3] = {0};
    memcpy(operand, in, n->n_in * sizeof *operand);
    operand[which] = f8_legal_copy(g, in[which]);
    return f8_make_clone(g, n->op, operand, (int)n->n_in, n->attr, f8_op_facts(n->op)->n_attrs,
                         n->clone);
}

/* ---- the pass ---- */

static f8_ref legal(void *user, f8_graph *to, const f8_graph *from, f8_ref old, const f8_ref *in)
{
    const f8_legalizer *l = user;
    const f8_node *n = f8_at(from, old);
    if (f8_is_reduce(n->op))
        return legal_reduce(to, from, old, in[0]);
    if (f8_op_facts(n->op)->cls == F8_GEMM)
        return f8_legal_gemm(l, to, from, old, in);
    if (n->op == F8_OP_CAST) {
        const f8_ref r = f8_legal_gemm_rounded(l, to, from, old, in);
        if (r || to->diag->status != F8_OK)
            return r;
    }
    const int whole = read_whole(n->op);
    if (whole >= 0 && has_gaps(to, in[whole]))
        return on_copy(to, n, in, whole);
    if (n->op == F8_OP_TRANSPOSE && moves_nothing(to, n, in))
        return f8_reshape(to, in[0], &n->type);
    if (n->op == F8_OP_RESHAPE && f8_at(to, in[0])->op == F8_OP_RESHAPE)
        return f8_reshape(to, f8_at(to, in[0])->in[0], &n->type);
    f8_granularity grain; /* of blocks: their scales belong to this shape */
    const bool quantizes = n->op == F8_OP_QUANTIZE && !f8_has_block_scales(from, old, &grain);
    if (n->op == F8_OP_RESHAPE || n->op == F8_OP_SLICE || n->op == F8_OP_CAST || quantizes) {
        const f8_ref r = narrow_first(to, n, in);
        if (r || to->diag->status != F8_OK)
            return r;
    }
    if (f8_op_facts(n->op)->cls == F8_POINTWISE || quantizes)
        return broadcast_operands(to, n, in);
    return 0;
}

/* Whether r is a constant spread out, such as a gradient set to zero. */
static bool is_fill(const f8_graph *g, f8_ref r)
{
    return g->node[r].op == F8_OP_BROADCAST && g->node[g->node[r].in[0]].op == F8_OP_CONST;
}

enum { MOST_RESULTS = 30000 };

/* Results must be computed, each into its own storage. A result that is an input, a constant or a
 * view of one is copied, except for a variable that stays what it was. No two results share a fill.
 */
static f8_status own_results(f8_func *f)
{
    f8_graph *g = f->graph;
    _Static_assert(F8_COPY_CLONE + MOST_RESULTS <= F8_CLONE_RECOMPUTED,
                   "copies and recomputed nodes have distinct clone numbers");
    if (f->n_out > MOST_RESULTS)
        return f8_fail(g->diag, F8_ERR_UNSUPPORTED, g->loc[f->out[MOST_RESULTS].ref],
                       "%s: more than %d results", f->name, MOST_RESULTS);
    for (size_t i = 0; i < f->n_out; i++) {
        f8_port *p = &f->out[i];
        const f8_ref base = f8_below_views(g, p->ref);
        const f8_port *in = f8_input_port(f, p->ref);
        if (in && in->var >= 0 && in->var == p->var)
            continue;
        if (is_fill(g, p->ref))
            p->ref = f8_make_clone(g, F8_OP_BROADCAST, g->node[p->ref].in, 1,
                                   &F8_INTS(F8_A_SHAPE, f8_shape_of(f8_type_of(g, p->ref))), 1,
                                   F8_COPY_CLONE + (uint32_t)i);
        else if (f8_op_facts(g->node[base].op)->cls == F8_LEAF)
            p->ref = f8_legal_copy(g, p->ref);
    }
    return g->diag->status;
}

static f8_status legalize_function(f8_unit *u, f8_func *f)
{
    f8_arena scratch;
    f8_legalizer l = {.unit = u, .target = f8_unit_target(u), .func = f};
    F8_TRY(f8_func_rewrite(f, NULL, NULL)); /* so that dead users do not count */
    f8_arena_init(&scratch, &u->arena->allocator);
    f8_status status = f8_compute_uses(f, &scratch, &l.uses, u->diag);
    if (status == F8_OK)
        status = f8_func_rewrite(f, legal, &l);
    if (status == F8_OK && l.target->fp8_multiple > 1)
        status = f8_func_rewrite(f, f8_legal_pad, &l);
    f8_arena_end(&scratch);
    F8_TRY(status);
    F8_TRY(own_results(f));
    return f8_func_rewrite(f, NULL, NULL); /* drops casts that are dead now */
}

f8_status f8_pass_legalize(f8_unit *u)
{
    if (f8_unit_target(u)->kind == F8_TARGET_REFERENCE)
        return F8_OK;
    for (size_t i = 0; i < u->module->n_funcs; i++)
        F8_TRY(legalize_function(u, &u->module->func[i]));
    return F8_OK;
}
