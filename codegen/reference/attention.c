/* The reference interpreter: attention and its gradient, computed in double and rounded once. For
 * every batch b and head h, with its key head h / (heads / kv_heads):
 *     s = scale q k^T + mask (keys <= query when causal), lse = log sum exp s, p = exp(s - lse),
 *     o = p v
 *     dv = p^T do, dp = do v^T, ds = p (dp - sum(do o)), dq = scale ds k, dk = scale ds^T q
 * With an f32 mask s is rounded to f32, and lse is kept as two numbers: top = max s and
 * rest = log sum exp(s - top); p = exp((s - top) - rest).
 * With dropout, o and dv have p / (1 - dropout) or 0 in the place of p, and dp likewise. A false of
 * a bool mask makes a score -Inf. With a mask, a query whose scores are all -Inf has o = 0 and
 * lse = +Inf (top = 0, rest = +Inf), which makes every p of it 0. */
#include <math.h>
#include <string.h>

#include "codegen/reference/interp.h"

/* The sizes of the problem: T queries, K keys. Heads are handled one at a time, as arrays of
 * double, [T, D] and [K, D]. */
typedef struct heads {
    f8_interp *x;
    int64_t T, K, D, H, KH;
    double scale;
    bool causal;
    double dropout;        /* the probability; 0: none */
    uint32_t key;          /* of what is dropped: the seed's and the stream's */
    const f8_rvalue *mask; /* NULL: none */
    bool adds;             /* the mask is f32: lse is two rows, of top and of rest */
    double *row;           /* [K]: of the mask, what is added to a query's scores */
} heads;

/* Loads head h of v [B, rows, n_heads * D] into to [rows, D]; store_head does the reverse. */
static void load_head(const heads *a, const f8_rvalue *v, int64_t n_heads, int64_t b, int64_t h,
                      double *to)
{
    const int64_t rows = v->type.dim[1];
    for (int64_t t = 0; t < rows; t++)
        f8_interp_load(a->x, v, ((b * rows + t) * n_heads + h) * a->D, a->D, to + t * a->D);
}

static void store_head(const heads *a, f8_rvalue *v, int64_t n_heads, int64_t b, int64_t h,
                       const double *from)
{
    const int64_t rows = v->type.dim[1];
    for (int64_t t = 0; t < rows; t++)
        f8_interp_store(a->x, v, ((b * rows + t) * n_heads + h) * a->D, a->D, from + t * a->D);
}

/* Loads the mask's row of query i of head h: K elements, or one that stands for all. */
static void load_mask(const heads *a, int64_t b, int64_t h, int64_t i)
{
    if (!a->mask)
        return;
    const int64_t *dim = a->mask->type.dim;
    const int64_t at =
        ((dim[0] > 1 ? b : 0) * dim[1] + (dim[1] > 1 ? h : 0)) * dim[2] + (dim[2] > 1 ? i : 0);
    f8_interp_load(a->x, a->mask, at * dim[3], dim[3], a->row);
    for (int64_t j = dim[3]; j < a->K; j++)
        a->row[j] = a->row[0];
}

static double masked(const heads *a, double score, int64_t key)
{
    if (!a->mask)
        return score;
    if (a->mask->type.dtype == F8_BOOL)
        return a->row[key] != 0 ? score : -INFINITY;
    const double sum = score + a->row[key];
    return a->x->wide ? sum : (double)(float)sum;
}

/* What the probability of a query and a key is multiplied by. */
static double kept(const heads *a, int64_t b, int64_t h, int64_t query, int64_t key)
{
    const int64_t row = ((a->x->first + b) * a->H + h) * a->T + query;
    if (a->dropout == 0)
        return 1;
    return f8_interp_drops((uint32_t)key, (uint32_t)row, a->key, a->dropout) ? 0
                                                                             : 1 / (1 - a->dropout);
}

/* Adds in four sums, so that an addition need not wait for the one before. */
static double dot(const double *a, const double *b, int64_t n)
{
    double sum[4] = {0};
    int64_t i = 0;
    for (; i + 4 <= n; i += 4)
        for (int k = 0; k < 4; k++)
            sum[k] += a[i + k] * b[i + k];
    for (; i < n; i++)
        sum[0] += a[i] * b[i];
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

static void add_scaled(double *to, double c, const double *from, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] += c * from[i];
}

/* The number of keys that query i sees; they are the first ones. */
static int64_t seen(const heads *a, int64_t i)
{
    return a->causal && i < a->K ? i + 1 : a->K;
}

/* Of query i, from its largest score and the sum of exp(s - top). */
static void put_lse(const heads *a, double *lse, int64_t i, double top, double sum)
{
    const bool blind = a->mask && sum == 0;
    const double log_sum = blind ? (double)INFINITY : log(sum);
    if (!a->adds) {
        lse[i] = blind ? log_sum : top + log_sum;
        return;
    }
    lse[i] = isnan(sum) ? sum : blind ? 0 : top;
    lse[a->T + i] = log_sum;
}

/* The probability of a score. */
static double weight(const heads *a, const double *lse, int64_t i, double s)
{
    return exp(a->adds ? (s - lse[i]) - lse[a->T + i] : s - lse[i]);
}

/* f8_part's `more` of query i: over the scores whose exp, at the most, is not 0 beside the largest.
 * q is the query. */
static double more_error(const heads *a, int64_t i, const double *q, const double *k, double top)
{
    const double e = a->x->score_error;
    double more = 0;
    for (int64_t j = 0; j < seen(a, i) && a->adds && a->x->magnitudes; j++) {
        const double score = a->scale * dot(q, k + j * a->D, a->D);
        const double s = masked(a, score, j), up = masked(a, score + e, j) - s;
        const double off = fmax(up, s - masked(a, score - e, j)) - e;
        if (s + up - top > -110)
            more = fmax(more, off);
    }
    return more;
}

/* How often a probability counts, from `more`. */
static double counted(const heads *a, double p, double more)
{
    const double without_bound =
        1e120; /* 0 times it is 0, and no product of four values overflows */
    if (!a->adds || !a->x->magnitudes)
        return p;
    return more > 0.5 ? without_bound : p * (1 + 2 * more / a->x->weight_error);
}

/* Computes o [T, D] and lse of one head; p [T] is scratch. A NaN anywhere in a row makes the whole
 * row NaN. */
static void forward_head(const heads *a, int64_t b, int64_t h, const double *q, const double *k,
                         const double *v, double *p, double *o, double *lse)
{
    const int64_t D = a->D;
    memset(o, 0, (size_t)(a->T * D) * sizeof *o);
    for (int64_t i = 0; i < a->T; i++) {
        double top = -INFINITY, sum = 0;
        load_mask(a, b, h, i);
        for (int64_t j = 0; j < seen(a, i); j++) {
            p[j] = masked(a, a->scale * dot(q + i * D, k + j * D, D), j);
            top = p[j] > top ? p[j] : top;
        }
        if (a->mask && top == -INFINITY)
            top = 0;
        for (int64_t j = 0; j < seen(a, i); j++)
            sum += exp(p[j] - top);
        put_lse(a, lse, i, top, sum);
        const double more = more_error(a, i, q + i * D, k, top);
        for (int64_t j = 0; j < seen(a, i) && !(a->mask && sum == 0); j++)
            add_scaled(o + i * D, kept(a, b, h, i, j) * counted(a, exp(p[j] - top) / sum, more),
                       v + j * D, D);
        if (a->adds && a->x->magnitudes)
            lse[i] = lse[a->T + i] = more > 0.5 ? (double)INFINITY : more;
    }
}

/* Of one head; k and v of its key head. The scores have q and k of their own, because the others
 * may be magnitudes (F8_TERMS_MAGNITUDES). */
typedef struct gradient {
    const double *score_q, *score_k, *q, *k, *v, *o, *lse, *d_o;
    double *dq, *dk, *dv; /* dk and dv are added to what is there */
} gradient;

static void backward_head(const heads *a, int64_t b, int64_t h, const gradient *g)
{
    const int64_t D = a->D;
    double scale = a->scale;
    f8_interp_magnitudes(a->x, &scale, 1);
    memset(g->dq, 0, (size_t)(a->T * D) * sizeof *g->dq);
    for (int64_t i = 0; i < a->T; i++) {
        const double *q = g->q + i * D, *d_o = g->d_o + i * D;
        const double sum = dot(d_o, g->o + i * D, D), delta = a->x->magnitudes ? -sum : sum;
        const double *score_q = g->score_q + i * D;
        load_mask(a, b, h, i);
        const double more = more_error(a, i, score_q, g->score_k, g->lse[i]);
        for (int64_t j = 0; j < seen(a, i); j++) {
            const double s = masked(a, a->scale * dot(score_q, g->score_k + j * D, D), j);
            const double p = counted(a, weight(a, g->lse, i, s), more), keep = kept(a, b, h, i, j);
            const double ds = scale * p * (keep * dot(d_o, g->v + j * D, D) - delta);
            add_scaled(g->dv + j * D, keep * p, d_o, D);
            add_scaled(g->dq + i * D, ds, g->k + j * D, D);
            add_scaled(g->dk + j * D, ds, q, D);
        }
    }
}

/* ---- all heads ---- */

static void forward(const heads *a, int64_t batch, const f8_rvalue *const *in, f8_rvalue *out,
                    double *room)
{
    const int64_t n = a->T * a->D, n_keys = a->K * a->D;
    const int64_t logs = a->T * (1 + a->adds);
    double *q = room, *k = q + n, *v = k + n_keys, *o = v + n_keys, *lse = o + n, *p = lse + logs;
    for (int64_t b = 0; b < batch; b++)
        for (int64_t h = 0; h < a->H; h++) {
            const int64_t kh = h / (a->H / a->KH);
            load_head(a, in[0], a->H, b, h, q);
            load_head(a, in[1], a->KH, b, kh, k);
            load_head(a, in[2], a->KH, b, kh, v);
            f8_interp_magnitudes(a->x, v, n_keys);
            forward_head(a, b, h, q, k, v, p, o, lse);
            store_head(a, &out[0], a->H, b, h, o);
            f8_interp_store(a->x, &out[1], (b * a->H + h) * logs, logs, lse);
        }
}

/* The arrays of a gradient, which `g` points into. score_q and score_k are q and k themselves,
 * unless those are to be magnitudes. */
typedef struct arrays {
    double *q, *k, *v, *o, *d_o, *lse, *score_q, *score_k;
} arrays;

/* Loads head h of v [B, rows, n_heads * D] into `scores` as it is, and into `to`. */
static void load_scored(const heads *a, const f8_rvalue *v, int64_t n_heads, int64_t b, int64_t h,
                        double *scores, double *to)
{
    load_head(a, v, n_heads, b, h, scores);
    if (to == scores)
        return;
    memcpy(to, scores, (size_t)(v->type.dim[1] * a->D) * sizeof *to);
    f8_interp_magnitudes(a->x, to, v->type.dim[1] * a->D);
}

static void load_keys(const heads *a, const f8_rvalue *const *in, int64_t b, int64_t h,
                      const arrays *to)
{
    load_scored(a, in[1], a->KH, b, h, to->score_k, to->k);
    load_head(a, in[2], a->KH, b, h, to->v);
    f8_interp_magnitudes(a->x, to->v, a->K * a->D);
}

static void load_queries(const heads *a, const f8_rvalue *const *in, int64_t b, int64_t h,
                         const arrays *to)
{
    load_scored(a, in[0], a->H, b, h, to->score_q, to->q);
    load_head(a, in[3], a->H, b, h, to->o);
    f8_interp_magnitudes(a->x, to->o, a->T * a->D);
    const int64_t logs = a->T * (1 + a->adds);
    f8_interp_load(a->x, in[4], (b * a->H + h) * logs, logs, to->lse);
    load_head(a, in[5], a->H, b, h, to->d_o);
    f8_interp_magnitudes(a->x, to->d_o, a->T * a->D);
}

static void backward(const heads *a, int64_t batch, const f8_rvalue *const *in, f8_rvalue *out,
                     double *room)
{
    const int64_t n = a->T * a->D, n_keys = a->K * a->D, group = a->H / a->KH;
    double *q = room, *o = q + n, *d_o = o + n, *dq = d_o + n, *k = dq + n, *v = k + n_keys,
           *dk = v + n_keys, *dv = dk + n_keys, *lse = dv + n_keys,
           *more = lse + a->T * (1 + a->adds);
    const bool apart = a->x->magnitudes;
    const arrays to = {q, k, v, o, d_o, lse, apart ? more : q, apart ? more + n : k};
    const gradient g = {to.score_q, to.score_k, q, k, v, o, lse, d_o, dq, dk, dv};
    for (int64_t b = 0; b < batch; b++)
        for (int64_t kh = 0; kh < a->KH; kh++) {
            load_keys(a, in, b, kh, &to);
            memset(dk, 0, (size_t)n_keys * sizeof *dk);
            memset(dv, 0, (size_t)n_keys * sizeof *dv);
            for (int64_t h = kh * group; h < (kh + 1) * group; h++) {
                load_queries(a, in, b, h, &to);
                backward_head(a, b, h, &g);
                store_head(a, &out[0], a->H, b, h, dq);
            }
            store_head(a, &out[1], a->KH, b, kh, dk);
            store_head(a, &out[2], a->KH, b, kh, dv);
        }
}

void f8_interp_attention(f8_interp *x, const f8_graph *g, f8_ref r, const f8_rvalue *const *in,
                         f8_rvalue *out)
{
    if (x->status != F8_OK)
        return;
    const f8_type *q = &in[0]->type;
    heads a = {.x = x,
               .T = q->dim[1],
               .K = in[1]->type.dim[1],
               .H = f8_attr_i(g, r, F8_A_HEADS),
               .KH = f8_attr_i(g, r, F8_A_KV_HEADS),
               .scale = f8_attr_f(g, r, F8_A_SCALE),
               .causal = f8_attr_i(g, r, F8_A_CAUSAL),
               .adds = f8_attention_adds(g, f8_at(g, r))};
    a.D = q->dim[2] / a.H;
    if (a.scale == 0)
        a.scale = 1 / sqrt((double)a.D);
    const f8_node *n = f8_at(g, r);
    const f8_ref seed = f8_attention_seed(g, n);
    if (f8_attention_mask(g, n))
        a.mask = in[n->n_in - 1 - (seed != 0)];
    if (seed) {
        a.dropout = f8_attr_f(g, r, F8_A_DROPOUT);
        a.key = f8_interp_random(*(const uint32_t *)in[n->n_in - 1]->data,
                                 (uint32_t)f8_attr_i(g, r, F8_A_STREAM), 0);
    }
    const size_t count = (size_t)((4 + (int)x->magnitudes) * (a.T + a.K) * a.D + 2 * (a.T + a.K));
    const size_t bytes = count * sizeof(double);
    double *room = f8_interp_alloc(x, bytes);
    if (room)
        a.row = room + count - a.K;
    if (room && f8_at(g, r)->op == F8_OP_ATTENTION)
        forward(&a, q->dim[0], in, out, room);
    else if (room)
        backward(&a, q->dim[0], in, out, room);
    f8_interp_free(x, room, bytes);
}
