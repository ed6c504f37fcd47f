/* The reference interpreter: collectives. A reduction gathers everything and joins it in the order
 * of the ranks. */
#include "codegen/reference/interp.h"

#include <math.h>
#include <string.h>

static bool exchange(f8_interp *x, f8_collective kind, int64_t ranks, const f8_rvalue *in,
                     void *receive)
{
    const int64_t all = (int64_t)f8_interp_bytes(x, &in->type);
    const f8_collective_desc d = {.kind = kind,
                                  .ranks = (int32_t)ranks,
                                  .bytes = kind == F8_COLLECTIVE_ALL_TO_ALL ? all / ranks : all,
                                  .dtype = in->type.dtype};
    if (x->status == F8_OK)
        x->status =
            f8_comm_run(x->comm, &d, (f8_collective_label){"interpreter", f8_collective_name[kind]},
                        in->data, receive, x->diag);
    return x->status == F8_OK;
}

/* Element i of rank r's value, as it is joined to the others. */
static double joined(double sum, double next, bool amax, bool wide)
{
    if (!amax)
        return wide ? sum + next : (double)((float)sum + (float)next);
    next = fabs(next);
    return isnan(sum) || isnan(next) ? (double)NAN : fmax(sum, next);
}

/* rows [ranks, n] -> out [n] */
static void join(f8_interp *x, const f8_rvalue *rows, int64_t ranks, bool amax, f8_rvalue *out)
{
    const int64_t n = f8_type_elements(&out->type);
    for (int64_t i = 0; i < n; i++) {
        double sum, next;
        f8_interp_load(x, rows, i, 1, &sum);
        sum = amax ? fabs(sum) : sum;
        for (int64_t r = 1; r < ranks; r++) {
            f8_interp_load(x, rows, r * n + i, 1, &next);
            sum = joined(sum, next, amax, x->wide);
        }
        f8_interp_store(x, out, i, 1, &sum);
    }
}

/* What needs no more than the exchange. */
static void run(f8_interp *x, const f8_collective_desc *d, const f8_rvalue *in, f8_rvalue *out)
{
    const f8_collective_label label = {"interpreter", f8_collective_name[d->kind]};
    if (x->status == F8_OK)
        x->status = f8_comm_run(x->comm, d, label, in->data, out->data, x->diag);
}

void f8_interp_collective(f8_interp *x, const f8_graph *g, f8_ref r, const f8_rvalue *in,
                          f8_rvalue *out)
{
    const f8_op op = f8_at(g, r)->op;
    const int64_t ranks = f8_attr_i(g, r, F8_A_RANKS);
    if (op == F8_OP_ALL_SLICE) {
        const f8_collective_desc d = {.kind = F8_COLLECTIVE_ALL_SLICE,
                                      .ranks = (int32_t)ranks,
                                      .bytes = (int64_t)f8_interp_bytes(x, &out->type),
                                      .whole = (int64_t)f8_interp_bytes(x, &in->type),
                                      .dtype = in->type.dtype};
        run(x, &d, in, out);
        return;
    }
    if (f8_attr_s(g, r, F8_A_ORDER)[0] == 'l' && !x->wide) {
        const f8_collective_desc d = {.kind = op == F8_OP_ALL_REDUCE ? F8_COLLECTIVE_ALL_REDUCE
                                                                     : F8_COLLECTIVE_REDUCE_SCATTER,
                                      .ranks = (int32_t)ranks,
                                      .bytes = (int64_t)f8_interp_bytes(x, &out->type),
                                      .dtype = F8_F32};
        run(x, &d, in, out);
        return;
    }
    const f8_collective kind = op == F8_OP_ALL_TO_ALL || op == F8_OP_REDUCE_SCATTER
                                   ? F8_COLLECTIVE_ALL_TO_ALL
                                   : F8_COLLECTIVE_ALL_GATHER;
    if (op == F8_OP_ALL_GATHER || op == F8_OP_ALL_TO_ALL) {
        exchange(x, kind, ranks, in, out->data);
        return;
    }
    if (op == F8_OP_COLLECTIVE_BROADCAST) {
        f8_type types = {.dtype = in->type.dtype, .rank = 1};
        types.dim[0] = ranks * f8_type_elements(&in->type);
        f8_rvalue *of = f8_interp_temp(x, &types);
        const size_t bytes = f8_interp_bytes(x, &in->type);
        if (of && exchange(x, kind, ranks, in, of->data))
            memcpy(out->data, (uint8_t *)of->data + (size_t)f8_attr_i(g, r, F8_A_ROOT) * bytes,
                   bytes);
        return;
    }
    const f8_type all = {
        .dtype = in->type.dtype, .rank = 2, .dim = {ranks, f8_type_elements(&out->type)}};
    f8_rvalue *rows = f8_interp_temp(x, &all);
    if (rows && exchange(x, kind, ranks, in, rows->data))
        join(x, rows, ranks, f8_attr_s(g, r, F8_A_REDUCE)[0] == 'a', out);
}
