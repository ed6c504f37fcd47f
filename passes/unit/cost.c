/* Seconds of kernels: see cost.h. The figures are the target's (ir/target.c). */
#include "passes/unit/cost.h"

#include <math.h>

#include "ir/num/scalar.h"
#include "passes/unit/rows.h"

#define TERA 1e12

static double elements_of(const f8_graph *g, f8_ref r)
{
    return (double)f8_type_elements(f8_type_of(g, r));
}

static double bytes_of(const f8_graph *g, f8_ref r)
{
    return (double)f8_type_bytes(f8_type_of(g, r));
}

static double memory_seconds(const f8_target *t, double bytes)
{
    return bytes / (t->rates.memory * t->speeds.memory * TERA);
}

/* Seconds of a kernel that does `ops` seconds of arithmetic and moves `bytes` seconds of memory. */
static double kernel_seconds(const f8_target *t, double ops, double bytes)
{
    return t->speeds.overlap ? fmax(ops, bytes) : ops + bytes;
}

/* ---- scalar operations an element ---- */

enum { DIVISION = F8_WORK_DIVISION, ORDERED = 4 }; /* ORDERED: an IEEE maximum or minimum */

static double scalar_op(f8_sop op)
{
    switch (op) {
    case F8_S_CONST_F:
    case F8_S_CONST_I:
    case F8_S_BITS_F2I:
    case F8_S_BITS_I2F: return 0;
    case F8_S_FDIV:
    case F8_S_FSQRT: return DIVISION;
    case F8_S_FMAX:
    case F8_S_FMIN: return ORDERED;
    default: return 1;
    }
}

static double body_work(const f8_scalar_body *p)
{
    double work = 0;
    for (int i = 0; i < p->n_instrs; i++)
        work += scalar_op((f8_sop)p->instrs[i].op);
    return work;
}

static double function_work(f8_sfn fn)
{
    return body_work(f8_scalar_function(fn));
}

double f8_op_work(f8_op op)
{
    const f8_sform form = f8_op_facts(op)->form[F8_KIND_F];
    double dear = 0;
    if (op == F8_OP_RANDOM_BITS)
        return body_work(f8_scalar_form(F8_FORM_PCG3D));
    if (form >= F8_FORM_FUNCTIONS)
        return function_work((f8_sfn)(form - F8_FORM_FUNCTIONS));
    const f8_scalar_body *p = form ? f8_scalar_form(form) : NULL;
    for (int i = 0; p && i < p->n_instrs; i++) {
        const double work = scalar_op((f8_sop)p->instrs[i].op);
        dear += work > 1 ? work : 0;
    }
    return fmax(dear, 1);
}

/* Operations of a conversion from or to f32, of a narrower dtype. */
static double conversion_work(const f8_target *t, f8_dtype dtype, bool encode)
{
    if (!f8_dtype_is_float(dtype) || dtype == F8_F32)
        return 1;
    if (t->speeds.conversions)
        return 1;
    if (!encode)
        return function_work(f8_scalar_decode_fn(dtype));
    return function_work(dtype == F8_BF16 ? F8_FN_ROUND_BF16 : f8_scalar_encode_fn(dtype, false));
}

static double cast_work(const f8_graph *g, const f8_target *t, const f8_node *n)
{
    const f8_dtype from = f8_type_of(g, n->in[0])->dtype, to = n->type.dtype;
    return (from == F8_F32 ? 0 : conversion_work(t, from, false)) +
           (to == F8_F32 ? 0 : conversion_work(t, to, true));
}

static double op_work(const f8_graph *g, const f8_target *t, const f8_node *n)
{
    switch (n->op) {
    case F8_OP_REDUCE_MAX: return ORDERED;
    case F8_OP_CAST: return cast_work(g, t, n);
    case F8_OP_QUANTIZE: return 1 + conversion_work(t, n->type.dtype, true);
    case F8_OP_DEQUANTIZE: return 1 + conversion_work(t, f8_type_of(g, n->in[0])->dtype, false);
    case F8_OP_REDUCE_AMAX: return 2;
    case F8_OP_CONST:
    case F8_OP_IOTA:
    case F8_OP_RESHAPE:
    case F8_OP_SLICE:
    case F8_OP_BROADCAST:
    case F8_OP_PROJECT: return 0;
    default: return f8_op_work(n->op);
    }
}

/* ---- row kernels ---- */

static bool is_whole(f8_op op)
{
    switch (op) {
    case F8_OP_MATMUL:
    case F8_OP_BATCH_MATMUL:
    case F8_OP_SCALED_MATMUL:
    case F8_OP_ATTENTION:
    case F8_OP_ATTENTION_GRAD:
    case F8_OP_EMBEDDING_GRAD:
    case F8_OP_ALL_GATHER:
    case F8_OP_ALL_TO_ALL:
    case F8_OP_ALL_REDUCE: /* the library's, as the next */
    case F8_OP_REDUCE_SCATTER:
    case F8_OP_ALL_SLICE:
    case F8_OP_CONCAT: return true;
    default: return false;
    }
}

/* Whether a row kernel may compute it. */
static bool is_row_op(f8_op op)
{
    return !is_whole(op) && op != F8_OP_PROJECT;
}

/* The nodes that one row kernel computes: those of an ascending list that a row kernel may compute.
 */
typedef struct row_nodes {
    const f8_graph *g;
    const f8_ref *node;
    uint32_t n;
} row_nodes;

static bool computes(const row_nodes *p, f8_ref r)
{
    return is_row_op(f8_at(p->g, r)->op) && f8_listed_ascending(p->node, p->n, r);
}

/* The value that a reader of r reads: under reshapes. */
static f8_ref source_of(const row_nodes *p, f8_ref r)
{
    while (!computes(p, r) && f8_at(p->g, r)->op == F8_OP_RESHAPE)
        r = f8_at(p->g, r)->in[0];
    return r;
}

/* The set of values read so far. Once it is full, further values count each time they are read. */
enum { SEEN_ROOM = 4096, SEEN_MOST = SEEN_ROOM / 4 * 3 };
typedef struct seen {
    f8_ref at[SEEN_ROOM]; /* open addressing; 0 is free */
    uint32_t n;
} seen;

/* Add r. Whether it was there before. */
static bool see(seen *s, f8_ref r)
{
    uint32_t i = r * 2654435761u % SEEN_ROOM;
    while (s->at[i] && s->at[i] != r)
        i = (i + 1) % SEEN_ROOM;
    if (s->at[i] == r)
        return true;
    if (s->n < SEEN_MOST) {
        s->at[i] = r;
        s->n++;
    }
    return false;
}

/* Bytes that operand k of node i reads from memory: of a gather the rows that it picks, of a slice
 * its own. */
static double operand_bytes(const row_nodes *p, seen *before, uint32_t i, uint32_t k)
{
    const f8_node *user = f8_at(p->g, p->node[i]);
    const f8_ref r = source_of(p, user->in[k]);
    const f8_op op = f8_at(p->g, r)->op;
    if (computes(p, r) || op == F8_OP_CONST || op == F8_OP_IOTA || see(before, r))
        return 0;
    if (user->op == F8_OP_SLICE || (user->op == F8_OP_EMBEDDING && k == 0))
        return elements_of(p->g, p->node[i]) * (double)f8_dtype_size(f8_type_of(p->g, r)->dtype);
    return bytes_of(p->g, r);
}

enum { MOST_TWINS = 1024 }; /* per phase; later nodes count, twins or not */

/* Whether two nodes of a phase differ only in their clone numbers, and so do the nodes under them.
 */
static bool are_twins(const row_nodes *p, const f8_ref *twin, uint32_t i, uint32_t j)
{
    const f8_node *a = f8_at(p->g, p->node[i]), *b = f8_at(p->g, p->node[j]);
    if (a->op != b->op || a->n_in != b->n_in || a->clone == b->clone)
        return false;
    for (int k = 0; k < f8_op_facts(a->op)->n_attrs; k++)
        if (!f8_attr_equal(&a->attr[k], &b->attr[k]))
            return false;
    for (uint32_t k = 0; k < a->n_in; k++) {
        f8_ref of[2] = {a->in[k], b->in[k]};
        for (int side = 0; side < 2; side++) {
            const uint32_t at = f8_index_ascending(p->node, p->n, of[side]);
            of[side] = at < i ? twin[at] : of[side];
        }
        if (of[0] != of[1])
            return false;
    }
    return true;
}

/* A value recomputed in its original's kernel is computed once: kernels have no two equal
 * instructions. */
static void find_twins(const row_nodes *p, f8_ref *twin)
{
    bool recompute = false;
    for (uint32_t i = 0; i < p->n && i < MOST_TWINS; i++) {
        twin[i] = p->node[i];
        recompute |= f8_is_recomputed(p->g, p->node[i]);
        for (uint32_t j = 0; recompute && j < i && twin[i] == p->node[i]; j++)
            if (twin[j] == p->node[j] && are_twins(p, twin, i, j))
                twin[i] = p->node[j];
    }
}

static double rows_seconds(const row_nodes *p, const f8_target *t, double written)
{
    double bytes = written, work = 0;
    f8_ref twin[MOST_TWINS];
    seen before = {0};
    find_twins(p, twin);
    for (uint32_t i = 0; i < p->n; i++) {
        const f8_node *n = f8_at(p->g, p->node[i]);
        if (!is_row_op(n->op) || (i < MOST_TWINS && twin[i] != p->node[i]))
            continue;
        work +=
            op_work(p->g, t, n) * elements_of(p->g, f8_is_reduce(n->op) ? n->in[0] : p->node[i]);
        for (uint32_t k = 0; k < n->n_in; k++)
            bytes += operand_bytes(p, &before, i, k);
    }
    return kernel_seconds(t, work / (t->speeds.vector * TERA), memory_seconds(t, bytes));
}

static double phase_seconds(const f8_graph *g, const f8_target *t, const f8_phase *phase)
{
    double written = 0;
    for (uint32_t i = 0; i < phase->n_out; i++)
        written += bytes_of(g, phase->out[i]);
    return rows_seconds(&(row_nodes){g, phase->node, phase->n_nodes}, t, written);
}

/* ---- whole nodes ---- */

/* Bytes of the operands and the first result. */
static double traffic(const f8_graph *g, const f8_node *n)
{
    double bytes = (double)f8_type_bytes(&n->type);
    for (uint32_t i = 0; i < n->n_in; i++)
        bytes += bytes_of(g, n->in[i]);
    return bytes;
}

double f8_cost_rate(const f8_rates *r, f8_scaling scaling)
{
    switch (scaling) {
    case F8_SCALING_NONE: return r->bf16;
    case F8_SCALING_ROWWISE: return r->fp8_rows;
    case F8_SCALING_BLOCK: return r->fp8_blocks;
    case F8_SCALING_MX: return r->fp8_mx;
    default: return r->fp8;
    }
}

/* The rate of a product of FP8 codes with such scales, which cover `text`. Where the target has no
 * such GEMM, the rate is that of scales per tensor: earlier passes have refused it. */
static double fp8_rate(const f8_target *t, const f8_type *scale, const char *text)
{
    f8_granularity grain = f8_per_tensor;
    f8_scaling scaling = F8_SCALING_CURRENT;
    if (scale->dtype == F8_E8M0)
        scaling = F8_SCALING_MX;
    else if (f8_granularity_parse(text, &grain) && f8_granularity_has_blocks(grain))
        scaling = F8_SCALING_BLOCK;
    else if (grain.rows == 1 || grain.cols == 1)
        scaling = F8_SCALING_ROWWISE;
    const double rate = f8_cost_rate(&t->rates, scaling);
    return rate > 0 ? rate * (scaling == F8_SCALING_BLOCK ? t->speeds.blocks : 1) : t->rates.fp8;
}

static double gemm_rate(const f8_graph *g, const f8_target *t, f8_ref r)
{
    const f8_node *n = f8_at(g, r);
    const f8_gemm_operands o = f8_gemm_operands_of(n);
    if (n->op == F8_OP_SCALED_MATMUL)
        return t->speeds.gemm *
               fmin(fp8_rate(t, f8_type_of(g, o.a_scale), f8_attr_s(g, r, F8_A_SCALE_A)),
                    fp8_rate(t, f8_type_of(g, o.b_scale), f8_attr_s(g, r, F8_A_SCALE_B)));
    for (int i = 0; i < 2; i++)
        if (f8_type_of(g, n->in[i])->dtype == F8_F32 &&
            !f8_attr_i(g, r, i ? F8_A_ROUND_B : F8_A_ROUND_A))
            return t->speeds.gemm_f32;
    return t->speeds.gemm * t->rates.bf16;
}

static double gemm_flops(const f8_graph *g, f8_ref r)
{
    const f8_gemm_sizes s = f8_gemm_sizes_of(g, r);
    return 2 * (double)s.batch * (double)s.m * (double)s.n * (double)s.k;
}

static double gemm_seconds(const f8_graph *g, const f8_target *t, f8_ref r)
{
    const f8_node *n = f8_at(g, r);
    const f8_gemm_operands o = f8_gemm_operands_of(n);
    const double ops = gemm_flops(g, r),
                 unread = o.acc && !f8_gemm_reads_acc(g->module, &o) ? bytes_of(g, o.acc) : 0,
                 all = traffic(g, n) - unread;
    const double packed = t->speeds.operands > 0 ? bytes_of(g, o.a) + bytes_of(g, o.b) : 0;
    double bytes = memory_seconds(t, all - packed);
    if (packed > 0)
        bytes += packed / (t->speeds.operands * TERA);
    return kernel_seconds(t, ops / (gemm_rate(g, t, r) * TERA), bytes);
}

/* The keys that a query sees, on average. */
static double keys_seen(double queries, double keys, bool causal)
{
    if (!causal)
        return keys;
    return queries <= keys ? (queries + 1) / 2 : keys - keys * (keys - 1) / (2 * queries);
}

/* Attention does two products forward and five backward, over the pairs of a query and a key that
 * it may see. */
static double attention_pairs(const f8_graph *g, f8_ref r)
{
    const f8_node *n = f8_at(g, r);
    const f8_type *q = f8_type_of(g, n->in[0]), *k = f8_type_of(g, n->in[1]);
    const double keys = keys_seen((double)q->dim[q->rank - 2], (double)k->dim[k->rank - 2],
                                  f8_attr_i(g, r, F8_A_CAUSAL) != 0);
    return (double)f8_type_rows(q) * (double)f8_attr_i(g, r, F8_A_HEADS) * keys;
}

static double attention_flops(const f8_graph *g, f8_ref r)
{
    const f8_node *n = f8_at(g, r);
    const double size =
        (double)f8_type_columns(f8_type_of(g, n->in[0])) / (double)f8_attr_i(g, r, F8_A_HEADS);
    return (n->op == F8_OP_ATTENTION_GRAD ? 5 : 2) * 2 * attention_pairs(g, r) * size;
}

static double attention_seconds(const f8_graph *g, const f8_target *t, f8_ref r)
{
    const f8_node *n = f8_at(g, r);
    const f8_type *q = f8_type_of(g, n->in[0]), *k = f8_type_of(g, n->in[1]),
                  *v = f8_type_of(g, n->in[2]);
    const bool backward = n->op == F8_OP_ATTENTION_GRAD;
    const double heads = (double)f8_attr_i(g, r, F8_A_HEADS), pairs = attention_pairs(g, r);
    const f8_ref mask = f8_attention_mask(g, n);
    double rate = backward ? t->speeds.attention_grad : t->speeds.attention;
    if (q->dtype == F8_F32) /* without tensor cores */
        rate = fmin(rate, 2 * t->speeds.vector);
    const double ops = attention_flops(g, r) / rate + pairs * t->speeds.softmax / t->speeds.vector;
    const double dropping = f8_attr_f(g, r, F8_A_DROPOUT) > 0 /* backward: by two kernels */
                                ? (backward ? 2 : 1) * pairs * f8_op_work(F8_OP_RANDOM_BITS)
                                : 0;
    double bytes = traffic(g, n);
    if (backward)
        bytes += (double)(f8_type_bytes(k) + f8_type_bytes(v));
    else
        bytes += 4 * (double)f8_type_rows(q) * heads * (f8_attention_adds(g, n) ? 2 : 1); /* lse */
    if (mask) { /* read once for every head, not only once */
        const f8_type *t_mask = f8_type_of(g, mask);
        bytes += bytes_of(g, mask) * (heads / (double)t_mask->dim[1] - 1);
    }
    return kernel_seconds(t, (ops + dropping / t->speeds.vector) / TERA, memory_seconds(t, bytes));
}

/* A scatter reads rows of the table, adds to them and writes them. */
static double scatter_seconds(const f8_graph *g, const f8_target *t, const f8_node *n)
{
    const double ids = elements_of(g, n->in[1]), row = (double)f8_type_columns(&n->type);
    const double table = ids * row * (double)f8_dtype_size(n->type.dtype);
    return memory_seconds(t, bytes_of(g, n->in[1]) + bytes_of(g, n->in[2]) + 2 * table);
}

/* Parts that the function computes are written in place in the concatenation; other parts are
 * copied there. */
static double concat_seconds(const f8_graph *g, const f8_target *t, const f8_node *n)
{
    double bytes = 0;
    for (uint32_t i = 0; i < n->n_in; i++) {
        const f8_node *part = f8_at(g, source_of(&(row_nodes){.g = g}, n->in[i]));
        if (f8_op_facts(part->op)->cls == F8_LEAF || part->op == F8_OP_SLICE)
            bytes += 2 * bytes_of(g, n->in[i]);
    }
    return bytes > 0 ? t->speeds.launch + memory_seconds(t, bytes) : 0;
}

static double whole_seconds(const f8_graph *g, const f8_target *t, f8_ref r)
{
    const f8_node *n = f8_at(g, r);
    switch (n->op) {
    case F8_OP_MATMUL:
    case F8_OP_BATCH_MATMUL:
    case F8_OP_SCALED_MATMUL: return t->speeds.launch + gemm_seconds(g, t, r);
    case F8_OP_ATTENTION:
    case F8_OP_ATTENTION_GRAD: return t->speeds.launch + attention_seconds(g, t, r);
    case F8_OP_EMBEDDING_GRAD: return t->speeds.launch + scatter_seconds(g, t, n);
    case F8_OP_CONCAT: return concat_seconds(g, t, n);
    default: return t->speeds.launch + memory_seconds(t, traffic(g, n)); /* copies */
    }
}

/* ---- the interface ---- */

double f8_cost_group(const f8_func *f, const f8_target *target, uint32_t index)
{
    const f8_group *group = &f->lowered->group[index];
    double seconds = 0;
    if (group->kind != F8_GROUP_ROWS)
        return whole_seconds(f->graph, target, group->out[0]);
    for (uint32_t i = 0; i < group->n_phases; i++) {
        const f8_phase *phase = &group->phase[i];
        const bool merges = i > 0 || phase->rows == 1;
        seconds += target->speeds.launch / (merges ? target->speeds.merged : 1);
        seconds += phase_seconds(f->graph, target, phase);
    }
    return seconds;
}

double f8_cost_function(const f8_func *f, const f8_target *target)
{
    double sum = 0;
    for (uint32_t i = 0; i < f->lowered->n_groups; i++)
        sum += f8_cost_group(f, target, i);
    return sum;
}

double f8_cost_note(f8_func *f, const f8_target *target)
{
    double sum = 0;
    for (uint32_t i = 0; i < f->lowered->n_groups; i++) {
        f8_group *group = &f->lowered->group[i];
        const f8_ref r = group->n_out ? group->out[0] : 0;
        group->seconds = f8_cost_group(f, target, i);
        if (group->kind == F8_GROUP_GEMM)
            group->flops = gemm_flops(f->graph, r);
        else if (group->kind == F8_GROUP_ATTENTION || group->kind == F8_GROUP_ATTENTION_GRAD)
            group->flops = attention_flops(f->graph, r);
        sum += group->seconds;
    }
    return sum;
}

static bool read_by_whole(const f8_graph *g, const f8_ref *node, uint32_t n, f8_ref r)
{
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; is_whole(f8_at(g, node[i])->op) && k < f8_at(g, node[i])->n_in; k++)
            if (f8_at(g, node[i])->in[k] == r)
                return true;
    return false;
}

double f8_cost_nodes(const f8_graph *g, const f8_target *target, const f8_ref *node, uint32_t n)
{
    double seconds = 0, written = 0;
    bool rows = false, whole = false;
    for (uint32_t i = 0; i < n; i++)
        whole |= is_whole(f8_at(g, node[i])->op);
    for (uint32_t i = 0; i < n; i++) {
        const f8_op op = f8_at(g, node[i])->op;
        if (is_whole(op)) {
            seconds += whole_seconds(g, target, node[i]);
            continue;
        }
        rows |= is_row_op(op);
        if (i + 1 == n || (whole && read_by_whole(g, node, n, node[i])))
            written += bytes_of(g, node[i]);
    }
    if (rows)
        seconds += target->speeds.launch + rows_seconds(&(row_nodes){g, node, n}, target, written);
    return seconds;
}

f8_status f8_cost_added(const f8_graph *g, const f8_target *target, const f8_phase *p,
                        const f8_ref *node, uint32_t n, f8_arena *scratch, f8_diag *diag,
                        double *seconds)
{
    f8_ref *both = F8_NEW_ARRAY(scratch, f8_ref, p->n_nodes + n);
    uint32_t n_both = 0, i = 0, k = 0;
    double written = n ? bytes_of(g, node[n - 1]) : 0;
    if (!both)
        return f8_arena_status(scratch, diag);
    while (i < p->n_nodes || k < n) {
        const f8_ref a = i < p->n_nodes ? p->node[i] : UINT32_MAX, b = k < n ? node[k] : UINT32_MAX;
        both[n_both++] = a < b ? a : b;
        i += a <= b;
        k += b <= a;
    }
    for (uint32_t o = 0; o < p->n_out; o++)
        written += bytes_of(g, p->out[o]);
    *seconds =
        rows_seconds(&(row_nodes){g, both, n_both}, target, written) - phase_seconds(g, target, p);
    *seconds = *seconds > 0 ? *seconds : 0;
    return F8_OK;
}
