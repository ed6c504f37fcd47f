/* Legalize, GEMMs: operands and results as the target's library takes and gives them.
 *
 * - target->gemm_rounds: matmul(a, cast(param, bf16)) rounds the f32 parameter as it reads it, so
 *   that no rounded copy of a weight exists. Elsewhere roundings are casts.
 * - target->gemm_bf16: cast(matmul(a, b), bf16), the product's only use, is matmul {to = bf16}, and
 *   the f32 result never lies in memory. Elsewhere, and with f32 operands, `to` is a cast.
 * - f8_target_adds_bias: so is cast(matmul(a, b) + bias, bf16) with a bf16 bias, which the GEMM
 *   adds in its epilogue. Elsewhere a row kernel adds it to the f32 result.
 * - target->fp8_tn: in a product of FP8 codes, k is the contiguous axis of both operands. Codes are
 *   transposed for that, and their scales with them: these are the operand's own numbers, and
 *   nothing is quantized twice. Hash-consing makes one transpose where two are wanted.
 * - batch_matmul: an operand that broadcasts along some axes of the batch is spread out.
 * - target->fp8_multiple: a part of a tensor of codes is copied where its first byte or its rows
 *   are not so aligned. m and k are padded by pad.c. */
#include "passes/legalize/legalizer.h"
#include "passes/unit/formulas.h"
#include "passes/unit/rows.h"

#include <string.h>

/* ---- roundings of operands ---- */

/* The f32 parameter that `r` rounds to bf16; 0 if it does not. */
static f8_ref rounded_parameter(const f8_func *f, const f8_graph *g, f8_ref r)
{
    const f8_node *n = f8_at(g, r);
    if (n->op != F8_OP_CAST || n->type.dtype != F8_BF16 || f8_type_of(g, n->in[0])->dtype != F8_F32)
        return 0;
    const f8_ref leaf = f8_below_views(g, n->in[0]);
    if (g->node[leaf].op != F8_OP_INPUT)
        return 0;
    const int64_t port = f8_attr_i(g, leaf, F8_A_INDEX);
    return f->in[port].var >= 0 ? n->in[0] : 0;
}

/* Changes an operand of a matmul, and whether the GEMM rounds it, to what the target has. */
static void round_operand(const f8_legalizer *l, f8_graph *g, f8_ref *operand, f8_attr *round)
{
    if (l->target->gemm_rounds) {
        const f8_ref param = l->unit->options.no_fuse ? 0 : rounded_parameter(l->func, g, *operand);
        if (!param)
            return;
        *operand = param;
        round->i = 1;
        return;
    }
    if (!round->i)
        return;
    *operand = f8_cast(g, *operand, F8_BF16);
    round->i = 0;
}

/* ---- FP8 operands with k contiguous ---- */

/* Rows and columns of a matrix exchanged, as a matrix of two axes. */
static f8_ref exchanged(f8_graph *g, f8_ref r)
{
    const f8_type *t = f8_type_of(g, r);
    const f8_type matrix = {
        .dtype = t->dtype, .rank = 2, .dim = {f8_type_rows(t), f8_type_columns(t)}};
    const f8_ints perm = {2, {1, 0}};
    const char *name = g->name[r];
    const f8_ref flat = f8_reshape(g, r, &matrix);
    const f8_ref turned = f8_make(g, F8_OP_TRANSPOSE, &flat, 1, &F8_INTS(F8_A_PERM, perm), 1);
    if (turned && name) {
        const char *full = f8_arena_printf(g->arena, "%s.t", name);
        f8_set_name(g, turned, full ? full : "");
    }
    return turned;
}

/* Whether r is a view that begins, or whose rows begin, where no FP8 GEMM can read them. Rows that
 * storage pads are aligned anyway, so this may ask for a copy that is not needed, but never misses
 * one. */
static bool is_misaligned(const f8_legalizer *l, const f8_graph *g, f8_ref r)
{
    const int64_t by = l->target->fp8_multiple;
    for (; g->node[r].op == F8_OP_RESHAPE || g->node[r].op == F8_OP_SLICE; r = g->node[r].in[0]) {
        if (g->node[r].op != F8_OP_SLICE)
            continue;
        const f8_type *t = f8_type_of(g, g->node[r].in[0]);
        const int64_t axis = f8_attr_i(g, r, F8_A_AXIS), at = axis < 0 ? axis + t->rank : axis;
        int64_t offset = f8_attr_i(g, r, F8_A_START) * (int64_t)f8_dtype_size(t->dtype);
        for (int64_t i = at + 1; i < t->rank; i++)
            offset *= t->dim[i];
        if (offset % by || (at == t->rank - 1 && f8_type_columns(t) % by))
            return true;
    }
    return false;
}

/* Whether the target has this FP8 GEMM at all; if not, the message is written. A linear's sizes
 * were checked where its recipe was applied (scaling), so this is for products that a text has as
 * such. */
static bool has_fp8_gemm(const f8_legalizer *l, f8_graph *to, const f8_graph *from, f8_ref old)
{
    const f8_node *n = f8_at(from, old);
    const f8_target *t = l->target;
    const f8_type *a = f8_type_of(from, n->in[0]), *b = f8_type_of(from, f8_gemm_operands_of(n).b);
    const f8_gemm_sizes size = f8_gemm_sizes_of(from, old);
    const char *names;
    if (n->op == F8_OP_SCALED_MATMUL && !f8_has_scaling(l, to, from, old))
        return false;
    if (t->kind != F8_TARGET_CUDA)
        return true;
    if (a->dtype == F8_E5M2 && b->dtype == F8_E5M2 && !t->fp8_e5m2_pair)
        f8_fail(to->diag, F8_ERR_UNSUPPORTED, from->loc[old],
                "%s: no GEMM of %s multiplies f8e5m2 by f8e5m2", f8_op_facts(n->op)->name, t->name);
    else if (!f8_fp8_takes(t, F8_ROLES, &size, &names))
        f8_fail(
            to->diag, F8_ERR_UNSUPPORTED, from->loc[old],
            "%s: FP8 GEMMs of %s need multiples of %d for %s, but the operands are [%lld, %lld] "
            "and [%lld, %lld]",
            f8_op_facts(n->op)->name, t->name, t->fp8_multiple, names, (long long)f8_type_rows(a),
            (long long)f8_type_columns(a), (long long)f8_type_rows(b),
            (long long)f8_type_columns(b));
    return to->diag->status == F8_OK;
}

/* Whether the target's GEMM of operands of this dtype can write bf16. cuBLASLt's GEMM of f32 writes
 * f32 only. */
static bool writes_bf16(const f8_legalizer *l, f8_dtype operand)
{
    return l->target->gemm_bf16 && operand != F8_F32;
}

/* Whether the target's GEMM adds a bias to this product and rounds the sum to bf16. Columns that
 * padding adds would need a padded bias, so sizes that are padded are left out. */
static bool adds_bias(const f8_legalizer *l, const f8_graph *g, f8_ref product)
{
    const f8_node *n = f8_at(g, product);
    const f8_scale_kind kind =
        n->op == F8_OP_SCALED_MATMUL ? f8_legal_scale_kind(g, product) : F8_SCALED_TENSOR;
    return writes_bf16(l, f8_type_of(g, n->in[0])->dtype) && f8_target_adds_bias(l->target, kind) &&
           f8_type_columns(&n->type) % l->target->gemm_multiple == 0;
}

/* ---- batches ---- */

/* A batch has a matrix for each product, or one for all of them: an operand that broadcasts along
 * some of its axes only is spread out. */
static void spread_batch(f8_graph *g, const f8_node *n, f8_ref *operand)
{
    f8_type one, wide = n->type, *t = &wide;
    if (!*operand)
        return;
    const f8_type *was = f8_type_of(g, *operand);
    const int64_t matrices = f8_type_batch(was, &one);
    if (matrices == 1 || matrices == f8_type_batch(&n->type, &one))
        return;
    t->dtype = was->dtype;
    t->dim[t->rank - 2] = was->dim[was->rank - 2];
    t->dim[t->rank - 1] = was->dim[was->rank - 1];
    *operand = f8_broadcast(g, *operand, t);
}

/* ---- one product ---- */

/* A product while it is rewritten: the node as it was, and what the new one will have. */
typedef struct product {
    const f8_node *was;
    f8_ref operand[F8_GEMM_MOST_OPERANDS];
    f8_attr attr[F8_MAX_ATTRS];
    int n_attrs;
} product;

static product product_of(const f8_node *n, const f8_ref *in)
{
    product p = {.was = n, .n_attrs = f8_op_facts(n->op)->n_attrs};
    memcpy(p.operand, in, n->n_in * sizeof *in);
    memcpy(p.attr, n->attr, (size_t)p.n_attrs * sizeof *p.attr);
    return p;
}

/* The first or the second matrix. */
static f8_ref *matrix_of(product *p, int which)
{
    return &p->operand[which ? f8_gemm_b(p->was->op) : 0];
}

/* NULL: the op has no such attribute. */
static f8_attr *attr_of(product *p, f8_attr_key key)
{
    for (int i = 0; i < p->n_attrs; i++)
        if (p->attr[i].key == key)
            return &p->attr[i];
    return NULL;
}

/* Whether anything is unlike the node as it was, with operands `in`. */
static bool is_changed(const product *p, const f8_ref *in)
{
    for (uint32_t i = 0; i < p->was->n_in; i++)
        if (p->operand[i] != in[i])
            return true;
    for (int i = 0; i < p->n_attrs; i++)
        if (!f8_attr_equal(&p->attr[i], &p->was->attr[i]))
            return true;
    return false;
}

static void round_operands(const f8_legalizer *l, f8_graph *to, product *p)
{
    for (int i = 0; i < 2; i++) {
        f8_attr *round = attr_of(p, i ? F8_A_ROUND_B : F8_A_ROUND_A);
        if (round)
            round_operand(l, to, matrix_of(p, i), round);
    }
}

/* Makes k the contiguous axis of both matrices of codes, if the target wants that: the first is
 * [m, k], and the second is stored [n, k]. turned: those that were transposed. */
static void make_k_contiguous(const f8_legalizer *l, f8_graph *to, product *p, bool turned[2])
{
    for (int i = 0; i < 2; i++) {
        f8_attr *transpose = attr_of(p, i ? F8_A_TRANSPOSE_B : F8_A_TRANSPOSE_A);
        const bool wanted = i == 1;
        turned[i] = l->target->fp8_tn && (transpose->i != 0) != wanted;
        if (!turned[i])
            continue;
        transpose->i = wanted;
        *matrix_of(p, i) = exchanged(to, *matrix_of(p, i));
    }
}

/* Makes the result f32 where the GEMM cannot write it narrower: a cast has to follow. Whether it
 * did. */
static bool widen_result(const f8_legalizer *l, const f8_graph *to, product *p, bool bias_apart)
{
    f8_attr *dtype = attr_of(p, F8_A_TO);
    const f8_ref a = p->operand[0]; /* 0: the graph failed */
    if (!dtype || dtype->i == F8_F32)
        return false;
    if (!bias_apart && writes_bf16(l, a ? f8_type_of(to, a)->dtype : F8_F32))
        return false;
    dtype->i = F8_F32;
    return true;
}

static void align(const f8_legalizer *l, f8_graph *to, f8_ref *operand)
{
    if (is_misaligned(l, to, *operand))
        *operand = f8_legal_copy(to, *operand);
}

/* Puts zeros in the place of acc by a select where the target's GEMM can't: on CUDA the host has to
 * know `adds` when it enqueues the GEMM. Returns how many operands are left. */
static int select_acc(const f8_legalizer *l, f8_graph *to, const f8_graph *from, product *p)
{
    const uint32_t acc = f8_gemm_added(p->was->op);
    const f8_ref adds = f8_gemm_operands_of(p->was).adds;
    if (!adds || l->target->kind != F8_TARGET_CUDA || f8_counted(l->func, from, adds))
        return (int)p->was->n_in;
    p->operand[acc] = f8_if_adds(to, p->operand[acc + 1], p->operand[acc]);
    p->operand[acc + 1] = 0;
    return (int)acc + 1;
}

f8_ref f8_legal_gemm(const f8_legalizer *l, f8_graph *to, const f8_graph *from, f8_ref old,
                     const f8_ref *in)
{
    const f8_node *n = f8_at(from, old);
    const bool fp8 = f8_dtype_is_fp8(f8_type_of(from, n->in[0])->dtype);
    if (fp8 && !has_fp8_gemm(l, to, from, old))
        return 0;
    product p = product_of(n, in);
    bool turned[2] = {false, false};
    const int last = (int)n->n_in - 1; /* the bias, if there is one */
    const bool has_bias = f8_gemm_operands_of(n).bias != 0;
    const bool bias_apart = has_bias && !adds_bias(l, from, old); /* a row kernel adds it */
    for (int i = 0; i < 2 && n->op == F8_OP_BATCH_MATMUL; i++)
        spread_batch(to, n, &p.operand[i]);
    if (fp8)
        make_k_contiguous(l, to, &p, turned);
    round_operands(l, to, &p);
    const int n_in = select_acc(l, to, from, &p);
    const bool widened = widen_result(l, to, &p, bias_apart);
    if (n->op == F8_OP_SCALED_MATMUL)
        f8_legal_scales(l, to, from, old, turned, p.operand, p.attr);
    for (int i = 0; fp8 && l->target->kind == F8_TARGET_CUDA && i < 2; i++)
        align(l, to, matrix_of(&p, i));
    if (has_bias && !bias_apart)
        align(l, to, &p.operand[last]);
    if (!is_changed(&p, in))
        return 0;
    f8_ref r =
        f8_make_clone(to, n->op, p.operand, bias_apart ? last : n_in, p.attr, p.n_attrs, n->clone);
    if (bias_apart)
        r = f8_binary(to, F8_OP_ADD, r, f8_cast(to, in[last], F8_F32));
    return widened ? f8_cast(to, r, n->type.dtype) : r;
}

/* ---- products rounded to bf16 ---- */

static bool used_once(const f8_legalizer *l, f8_ref r)
{
    return l->uses.start[r + 1] - l->uses.start[r] == 1;
}

/* The sum of a cast as the legal graph has it, if the target's GEMM can write it rounded. */
static f8_linear_parts rounded_parts(const f8_legalizer *l, const f8_graph *to,
                                     const f8_graph *from, f8_ref sum, f8_ref made)
{
    const f8_linear_parts none = {0};
    while (from->node[sum].op == F8_OP_RESHAPE && used_once(l, sum))
        sum = from->node[sum].in[0];
    const f8_linear_parts was = f8_linear_parts_of(from, sum),
                          is = f8_linear_parts_of(to, f8_below_reshapes(to, made));
    if (!was.product || !used_once(l, sum) || !used_once(l, was.product) || !is.product ||
        !is.bias != !was.bias)
        return none;
    const bool takes = is.bias ? adds_bias(l, to, is.product)
                               : writes_bf16(l, f8_type_of(to, to->node[is.product].in[0])->dtype);
    return takes ? is : none;
}

f8_ref f8_legal_gemm_rounded(const f8_legalizer *l, f8_graph *to, const f8_graph *from, f8_ref old,
                             const f8_ref *in)
{
    const f8_node *n = f8_at(from, old);
    if (l->unit->options.no_fuse || n->type.dtype != F8_BF16)
        return 0;
    const f8_linear_parts p = rounded_parts(l, to, from, n->in[0], in[0]);
    if (!p.product)
        return 0;
    const f8_node product = *f8_at(to, p.product); /* the graph grows below */
    f8_ref operand[F8_GEMM_MOST_OPERANDS];
    f8_attr attr[F8_MAX_ATTRS];
    const int n_attrs = f8_op_facts(product.op)->n_attrs;
    int n_in = (int)product.n_in;
    memcpy(operand, product.in, product.n_in * sizeof *operand);
    if (p.bias)
        operand[n_in++] = is_misaligned(l, to, p.bias) ? f8_legal_copy(to, p.bias) : p.bias;
    for (int i = 0; i < n_attrs; i++) {
        attr[i] = product.attr[i];
        if (attr[i].key == F8_A_TO)
            attr[i].i = F8_BF16;
    }
    const f8_ref rounded =
        f8_make_clone(to, product.op, operand, n_in, attr, n_attrs, product.clone);
    f8_set_name(to, rounded, to->name[p.product]);
    return f8_reshape(to, rounded, &n->type);
}
