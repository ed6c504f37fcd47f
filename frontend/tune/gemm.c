/* A GEMM that comes from no model, as a module: see gemms.h. */
#include <stdio.h>
#include <string.h>

#include "frontend/api.h"
#include "frontend/tune/tune.h"
#include "ir/num/granularity.h"

enum { MOST_COPIES = 8 };

int f8_tune_gemm_copies(const f8_tune_gemm *g, double bytes)
{
    const double copies = bytes / (f8_tune_gemm_bytes(g) + 1) + 1;
    return copies > MOST_COPIES ? MOST_COPIES : (int)copies;
}

/* What one scale covers of operand i, if that is stored with k in columns. Of blocks a weight, the
 * second operand of fprop and dgrad, has tiles. */
static f8_granularity granularity(const f8_tune_gemm *g, int i)
{
    switch (g->how[F8_TUNE_SCALING]) {
    case F8_TUNE_ROW: return (f8_granularity){1, 0};
    case F8_TUNE_MX: return (f8_granularity){1, 32};
    case F8_TUNE_BLOCK:
        return (f8_granularity){i && g->how[F8_TUNE_ROLE] != F8_TUNE_WGRAD ? 128 : 1, 128};
    default: return f8_per_tensor;
    }
}

f8_granularity f8_tune_gemm_grain(const f8_tune_gemm *g, int i)
{
    bool transposed[2];
    f8_tune_transposed(g, transposed);
    const f8_granularity grain = granularity(g, i);
    return transposed[i] == (i == 1) ? grain : f8_granularity_transposed(grain);
}

/* An operand of one product, with its scales if it is FP8. */
typedef struct operand {
    fp8c_type type, scale;
    bool transposed;
    char grain[48];
} operand;

static operand operand_of(const f8_tune_gemm *g, int i)
{
    bool transposed[2];
    f8_tune_transposed(g, transposed);
    const int64_t across = i ? g->n : g->m;
    /* The first operand is stored [M, K], the second one [K, N], or transposed. */
    const bool k_in_columns = transposed[i] == (i == 1);
    const f8_type type = {.dtype = i ? g->b : g->a,
                          .rank = 2,
                          .dim = {k_in_columns ? across : g->k, k_in_columns ? g->k : across}};
    const f8_granularity grain = f8_tune_gemm_grain(g, i);
    const f8_type scale =
        f8_granularity_type(grain, &type, g->how[F8_TUNE_SCALING] == F8_TUNE_MX ? F8_E8M0 : F8_F32);
    operand o = {.type = f8_api_type_out(&type),
                 .scale = f8_api_type_out(&scale),
                 .transposed = transposed[i]};
    char text[sizeof o.grain];
    snprintf(o.grain, sizeof o.grain, "%s", f8_granularity_print(grain, text, sizeof text));
    return o;
}

static fp8c_value input(fp8c_module *m, const char *name, int copy, const fp8c_type *type)
{
    char numbered[32];
    snprintf(numbered, sizeof numbered, "%s.%d", name, copy);
    return fp8c_func_input(m, numbered, type);
}

static fp8c_value rounded(fp8c_module *m, fp8c_value x, fp8c_dtype to)
{
    const fp8c_attr attr = {.name = "to", .kind = FP8C_ATTR_DTYPE, .i = to};
    return fp8c_func_op(m, "cast", &x, 1, &attr, 1);
}

/* The result of a sum as the epilogue leaves it. */
static fp8c_value ended(fp8c_module *m, const f8_tune_gemm *g, int copy, fp8c_value sum)
{
    const fp8c_type bias = {FP8C_BF16, 1, {g->n}};
    switch (g->how[F8_TUNE_EPILOGUE]) {
    case F8_TUNE_BIAS: {
        const fp8c_value both[] = {sum, rounded(m, input(m, "bias", copy, &bias), FP8C_F32)};
        return rounded(m, fp8c_func_op(m, "add", both, 2, NULL, 0), FP8C_BF16);
    }
    case F8_TUNE_BF16: return rounded(m, sum, FP8C_BF16);
    default: return sum;
    }
}

/* Add one product to the function, with operands of its own. */
static void add_product(fp8c_module *m, const f8_tune_gemm *g, int copy)
{
    static const char *const names[] = {"a", "b"}, *const scales[] = {"a_scale", "b_scale"};
    const bool fp8 = f8_dtype_is_fp8(g->a);
    const operand of[] = {operand_of(g, 0), operand_of(g, 1)};
    const fp8c_attr attrs[] = {
        {.name = "transpose_a", .kind = FP8C_ATTR_BOOL, .i = of[0].transposed},
        {.name = "transpose_b", .kind = FP8C_ATTR_BOOL, .i = of[1].transposed},
        {.name = "scale_a", .kind = FP8C_ATTR_STRING, .s = of[0].grain},
        {.name = "scale_b", .kind = FP8C_ATTR_STRING, .s = of[1].grain},
        {.name = "role",
         .kind = FP8C_ATTR_STRING,
         .s = f8_tune_word(F8_TUNE_ROLE, g->how[F8_TUNE_ROLE])}};
    fp8c_value in[5];
    size_t n = 0;
    for (int i = 0; i < 2; i++) {
        in[n++] = input(m, names[i], copy, &of[i].type);
        if (fp8)
            in[n++] = input(m, scales[i], copy, &of[i].scale);
    }
    if (g->how[F8_TUNE_EPILOGUE] == F8_TUNE_ACCUMULATE)
        in[n++] = input(m, "sum", copy, &(fp8c_type){FP8C_F32, 2, {g->m, g->n}});
    /* The role of a product that is not FP8 changes nothing in it, but makes it a linear's. */
    const fp8c_value sum =
        fp8c_func_op(m, fp8 ? "scaled_matmul" : "matmul", in, n, attrs, fp8 ? 5 : 2);
    char result[24];
    snprintf(result, sizeof result, "c.%d", copy);
    fp8c_func_result(m, result, ended(m, g, copy, sum));
}

fp8c_status f8_tune_gemm_module(fp8c_context *ctx, const f8_tune_gemm *g, int copies,
                                fp8c_module **out)
{
    fp8c_status status = fp8c_module_create(ctx, "gemm", out);
    if (status == FP8C_OK)
        status = fp8c_func_begin(*out, "forward");
    for (int i = 0; i < copies && status == FP8C_OK; i++)
        add_product(*out, g, i);
    return status == FP8C_OK ? fp8c_func_end(*out) : status;
}
