/* See gates.h. */
#include "tests/shared/recipe/gates.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ir/num/fp8.h"
#include "tests/shared/passes/compile.h"
#include "tests/shared/recipe/recipe_oracle.h"

/* A product of a linear as the passes before scaling had it: kept results "product.N.a", ".b",
 * ".y". */
typedef struct product {
    const char *linear;
    bool a_turned, b_turned, gradient;
} product;

enum { MAX_PRODUCTS = 96, MAX_PORTS = 512, ROWS = 4 };

/* A run and what it needs to know by name. */
typedef struct runner {
    const gates_run *run;
    f8_compiled c;
    product of[MAX_PRODUCTS];
    int n_products;
    recipe_history history[MAX_PORTS]; /* delayed: by output port */
    float scale[MAX_PORTS];            /* of the step before update made the next */
    float amax[MAX_PORTS];             /* of weights, in the step before */
} runner;

gates_recipe gates_recipe_of(const char *text)
{
    f8_diag diag = {0};
    gates_recipe g;
    ck_assert_msg(f8_recipe_parse(text, F8_NOWHERE, &g.recipe, &diag) == F8_OK, "%s", diag.text);
    switch (g.recipe.scaling) {
    case F8_SCALING_NONE: g.operands = 0; break;
    case F8_SCALING_ROWWISE: g.operands = g.recipe.wgrad_high ? 4 : 6; break;
    case F8_SCALING_BLOCK: g.operands = 5; break;
    case F8_SCALING_MX: g.operands = 6; break;
    default: g.operands = 3; break;
    }
    g.fp8 = g.recipe.fake || !g.operands ? 0 : g.recipe.wgrad_high ? 2 : 3;
    return g;
}

/* ---- compiling ---- */

/* Keep what the products of linears read and give, as they are before scaling. */
static f8_status keep_products(runner *r, f8_unit *u)
{
    f8_func *f = f8_module_find_func(u->module, "micro_step");
    const f8_graph *g = f->graph;
    char name[48];
    for (f8_ref n = 1; n < g->n_nodes; n++) {
        const char *linear = f8_attr_s(g, n, F8_A_NAME), *role = f8_attr_s(g, n, F8_A_ROLE);
        if (g->node[n].op != F8_OP_MATMUL || !*role || strncmp(linear, "h.", 2))
            continue;
        ck_assert_int_lt(r->n_products, MAX_PRODUCTS);
        r->of[r->n_products] =
            (product){linear, f8_attr_i(g, n, F8_A_TRANSPOSE_A) != 0,
                      f8_attr_i(g, n, F8_A_TRANSPOSE_B) != 0, strcmp(role, "fprop") != 0};
        const f8_ref kept[] = {g->node[n].in[0], g->node[n].in[1], n};
        for (int i = 0; i < 3; i++) {
            snprintf(name, sizeof name, "product.%d.%c", r->n_products, "aby"[i]);
            F8_TRY(f8_func_result(f, f8_intern(u->module, name), kept[i], -1));
        }
        r->n_products++;
    }
    return F8_OK;
}

static f8_status after(void *user, f8_unit *u, const char *pass)
{
    runner *r = user;
    if (!strcmp(pass, "chunk"))
        return keep_products(r, u);
    return strcmp(pass, "instrument") ? F8_OK : broken_apply(u, r->run->way, GATES_LAYERS);
}

/* ---- operands ---- */

static f8_granularity grain_of(const char *name)
{
    const char *dot = strrchr(name, '.') + 1;
    long long rows, cols;
    if (!strcmp(dot, "row"))
        return (f8_granularity){1, 0};
    if (!strcmp(dot, "column"))
        return (f8_granularity){0, 1};
    if (sscanf(dot, "%lldx%lld", &rows, &cols) == 2)
        return (f8_granularity){rows, cols};
    return f8_per_tensor;
}

/* What was asked for, of dy or of x and w. */
static recipe_oracle oracle_of(const runner *r, bool gradient)
{
    const f8_recipe *recipe = &r->run->recipe.recipe;
    return (recipe_oracle){.e5m2 = (gradient ? recipe->gradient : recipe->forward) == F8_E5M2,
                           .pow2 = recipe->pow2,
                           .margin = (int)recipe->margin};
}

typedef struct block {
    int64_t r, c, tall, wide; /* cut at the ends */
} block;

static double block_sqnr(const f8_operand_view *v, int64_t columns, const block *b, double inv)
{
    double signal = 0, noise = 0;
    for (int64_t r = b->r; r < b->r + b->tall; r++)
        for (int64_t c = b->c; c < b->c + b->wide; c++) {
            const double x = (double)v->x[r * columns + c];
            const double q = (double)f8_decode(v->q_type.dtype, v->q[r * columns + c]);
            signal += x * x;
            noise += (x - q * inv) * (x - q * inv);
        }
    return noise == 0 ? (double)INFINITY : 10 * log10(signal / noise);
}

static double scale_inv_at(const f8_operand_view *v, int64_t i)
{
    return v->scale_type.dtype == F8_E8M0
               ? (double)f8_decode(F8_E8M0, ((const uint8_t *)v->scale_inv)[i])
               : (double)((const float *)v->scale_inv)[i];
}

/* Of a delayed operand what follow() noted when the step had run. */
static double scale_wanted(const runner *r, const recipe_oracle *o, uint32_t port, float amax)
{
    const f8_recipe *recipe = &r->run->recipe.recipe;
    if (recipe->scaling == F8_SCALING_MX)
        return ldexp(1, recipe_oracle_e8m0(o, amax) - 127);
    const float scale =
        recipe->scaling == F8_SCALING_DELAYED ? r->scale[port] : recipe_oracle_scale(o, amax, 1);
    return (double)(1 / scale);
}

static void measure_blocks(const runner *r, const char *name, const f8_operand_view *v,
                           uint32_t port, const recipe_oracle *o, gates *g)
{
    const f8_granularity grain = grain_of(name);
    const int64_t rows = f8_type_rows(&v->x_type), columns = f8_type_columns(&v->x_type);
    const int64_t tall = grain.rows ? grain.rows : rows, wide = grain.cols ? grain.cols : columns;
    const double least = o->e5m2 ? 18 : 24;
    int64_t i = 0;
    for (block b = {.r = 0}; b.r < rows; b.r += tall)
        for (b.c = 0; b.c < columns; b.c += wide, i++) {
            b.tall = rows - b.r < tall ? rows - b.r : tall;
            b.wide = columns - b.c < wide ? columns - b.c : wide;
            const float amax = recipe_oracle_amax(v->x, rows, columns, b.r, b.c, b.tall, b.wide);
            const double inv = scale_inv_at(v, i), db = block_sqnr(v, columns, &b, inv) - least;
            if (!(db >= g->block))
                g->block = db;
            g->wrong_scales += inv != scale_wanted(r, o, port, amax);
            g->blocks++;
        }
    ck_assert_int_eq(i, f8_type_elements(&v->scale_type));
}

static void measure_operand(const runner *r, const char *name, const f8_operand_view *v,
                            uint32_t port, gates *g)
{
    const f8_recipe *recipe = &r->run->recipe.recipe;
    f8_operand_stats e;
    f8_operand_name_parts parts;
    ck_assert_msg(f8_operand_measure(v, &e), "%s: scales of an odd shape", name);
    ck_assert_msg(f8_operand_name_split(name, &parts), "%s is no operand's name", name);
    const bool gradient = !strcmp(parts.kind, "dy");
    const recipe_oracle o = oracle_of(r, gradient);
    const double db = e.sqnr - (o.e5m2 ? 22 : 28);
    double *worst = gradient ? &g->gradient : &g->forward;
    if (!(db >= *worst))
        *worst = db;
    if (!(e.range >= g->range))
        g->range = e.range;
    g->operands++;
    g->other_format += e.format != (gradient ? recipe->gradient : recipe->forward);
    measure_blocks(r, name, v, port, &o, g);
}

/* ---- products ---- */

typedef struct matrix { /* f32 or bf16 */
    f8_type type;
    int64_t columns;
    const void *data;
} matrix;

static matrix kept(const runner *r, int n, char which)
{
    const int step = f8_compiled_func(&r->c, "micro_step");
    char name[48];
    snprintf(name, sizeof name, "product.%d.%c", n, which);
    const int port = f8_compiled_output(&r->c, step, name);
    ck_assert_msg(port >= 0, "no result %s", name);
    const f8_type type = r->c.plan.func[step].out[port].type;
    return (matrix){type, f8_type_columns(&type),
                    f8_exec_port(r->c.exec, (uint32_t)step, true, (uint32_t)port)};
}

static double at(const matrix *m, int64_t row, int64_t column, bool turned)
{
    const int64_t i = turned ? column * m->columns + row : row * m->columns + column;
    if (m->type.dtype == F8_F32)
        return (double)((const float *)m->data)[i];
    const uint32_t bits = (uint32_t)((const uint16_t *)m->data)[i] << 16;
    float v;
    memcpy(&v, &bits, sizeof v);
    return (double)v;
}

/* Some rows of it. What is in high precision has rounded to bf16 and need not pass for FP8. */
static void measure_product(const runner *r, int n, gates *g)
{
    const product *p = &r->of[n];
    const matrix a = kept(r, n, 'a'), b = kept(r, n, 'b'), y = kept(r, n, 'y');
    const int64_t k = p->a_turned ? f8_type_rows(&a.type) : f8_type_columns(&a.type);
    const int64_t rows = f8_type_rows(&y.type), columns = f8_type_columns(&y.type);
    double size = 0, error = 0;
    for (int64_t i = 0; i < ROWS; i++)
        for (int64_t c = 0, row = i * rows / ROWS + i % 3; c < columns; c++) {
            double sum = 0;
            for (int64_t j = 0; j < k; j++) {
                const double ab = at(&a, row, j, p->a_turned) * at(&b, j, c, p->b_turned);
                sum += ab;
                size += ab * ab;
            }
            error += pow(sum - at(&y, row, c, false), 2);
        }
    const double e4m3 = pow(10, -3.15), e5m2 = pow(10, -2.54);
    const bool mixed = p->gradient && r->run->recipe.recipe.gradient == F8_E5M2;
    const double least = -10 * log10(e4m3 + (mixed ? e5m2 : e4m3)) - 6;
    const double db = 10 * log10(size / error) - least;
    if (!(db >= g->product))
        g->product = db;
    g->products++;
}

/* ---- delayed scaling's memory ---- */

/* After a micro_step, before its update: x and dy have the scales their past gives, w one that it
 * has been given by the update that made it: of what that could make of the weight before. */
static void follow(runner *r, bool first)
{
    const int step = f8_compiled_func(&r->c, "micro_step");
    const int update = f8_compiled_func(&r->c, "update"),
              lr_at = f8_compiled_output(&r->c, update, "lr");
    const float lr = /* of the update before */
        *(const float *)f8_exec_port(r->c.exec, (uint32_t)update, true, (uint32_t)lr_at);
    const f8_optimizer *a = &r->c.unit.module->optimizer;
    const f8_recipe *recipe = &r->run->recipe.recipe;
    char name[128];
    f8_operand_view v;
    for (uint32_t i = 0; i < r->c.plan.func[step].n_out; i++) {
        if (!f8_compiled_operand(&r->c, step, i, name, sizeof name, &v))
            continue;
        ck_assert_uint_lt(i, MAX_PORTS);
        recipe_history *h = &r->history[i];
        const recipe_oracle o = oracle_of(r, name[strlen(name) - 1] == 'y');
        const int64_t rows = f8_type_rows(&v.x_type), columns = f8_type_columns(&v.x_type);
        const float amax = recipe_oracle_amax(v.x, rows, columns, 0, 0, rows, columns);
        const bool weight = name[strlen(name) - 1] == 'w';
        if (first)
            recipe_history_start(h, (int)recipe->history, recipe->most_recent);
        r->scale[i] = h->scale;
        if (first && weight)
            h->scale = recipe_oracle_scale(&o, amax, 1);
        if (!first || !weight) {
            recipe_history_see(h, weight ? recipe_oracle_reach(r->amax[i], lr, a->beta1, a->beta2)
                                         : amax);
            recipe_history_update(h, &o);
        }
        if (weight)
            r->scale[i] = h->scale;
        r->amax[i] = amax;
    }
}

/* ---- a run ---- */

static void train(runner *r, gates *totals)
{
    const int step = f8_compiled_func(&r->c, "micro_step"),
              update = f8_compiled_func(&r->c, "update");
    const int loss = f8_compiled_output(&r->c, step, "loss");
    for (int i = 0; i < r->run->steps; i++) {
        const int64_t before = f8_exec_count(r->c.exec).fp8_gemms;
        f8_compiled_batch(&r->c, step, r->run->text, r->run->text_size, (uint64_t)i);
        ck_assert_msg(f8_exec_run(r->c.exec, (uint32_t)step, &r->c.diag) == F8_OK, "%s",
                      r->c.diag.text);
        totals->executed = f8_exec_count(r->c.exec).fp8_gemms - before;
        ck_assert(isfinite(
            *(const float *)f8_exec_port(r->c.exec, (uint32_t)step, true, (uint32_t)loss)));
        if (r->run->recipe.recipe.scaling == F8_SCALING_DELAYED)
            follow(r, i == 0);
        ck_assert_msg(f8_exec_run(r->c.exec, (uint32_t)update, &r->c.diag) == F8_OK, "%s",
                      r->c.diag.text);
    }
    totals->planned = r->c.unit.fp8_gemms;
    totals->linears = r->c.unit.linears;
}

static bool is_of(const char *linear, int layer, int n)
{
    int i;
    return n == 1 || (sscanf(linear, "h.%d.", &i) == 1 && i == layer);
}

static unsigned closed(const gates_run *run, const gates *g, int64_t linears)
{
    const int64_t fp8 = run->recipe.fp8 * (g->linears - 1); /* lm_head is excluded */
    const bool late = run->recipe.recipe.scaling == F8_SCALING_DELAYED;
    const bool counted = g->executed == g->planned && g->planned == fp8 && !g->other_format &&
                         g->operands == run->recipe.operands * linears;
    return (counted ? 0 : GATE_COUNT) | (g->forward >= 0 && g->gradient >= 0 ? 0 : GATE_SQNR) |
           (g->range >= (late ? 0x1p-5 : 0.5) ? 0 : GATE_RANGE) |
           (g->block >= 0 || late ? 0 : GATE_BLOCK) | (g->wrong_scales == 0 ? 0 : GATE_SCALE) |
           (g->product >= 0 ? 0 : GATE_PRODUCT);
}

void gates_measure(const gates_run *run, gates *out, int n)
{
    runner *r = calloc(1, sizeof *r);
    r->run = run;
    const f8_compile_setup s = {.file = run->file,
                                .dims = run->dims,
                                .recipe = run->made ? *run->made : run->recipe.recipe,
                                .keep = "*",
                                .threads = 2,
                                .after = after,
                                .after_user = r};
    gates totals = {.forward = INFINITY,
                    .gradient = INFINITY,
                    .range = INFINITY,
                    .block = INFINITY,
                    .product = INFINITY};
    ck_assert_msg(f8_compile_model(&r->c, &s), "%s", r->c.diag.text);
    train(r, &totals);
    const int step = f8_compiled_func(&r->c, "micro_step");
    char name[128];
    f8_operand_view v;
    for (int layer = 0; layer < n; layer++) {
        gates *g = &out[layer];
        *g = totals;
        for (uint32_t i = 0; i < r->c.plan.func[step].n_out; i++)
            if (f8_compiled_operand(&r->c, step, i, name, sizeof name, &v) && is_of(name, layer, n))
                measure_operand(r, name, &v, i, g);
        for (int i = 0; i < r->n_products; i++)
            if (is_of(r->of[i].linear, layer, n))
                measure_product(r, i, g);
        g->closed = closed(run, g, g->products / 3);
    }
    f8_compiled_end(&r->c);
    free(r);
}

char *gates_show(const gates *g)
{
    static const char *const gate[] = {"count", "sqnr", "range", "block", "scale", "product"};
    char *text;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    fprintf(f,
            "x, w %+.1f dB, dy %+.1f dB, range %.3f, block %+.1f dB, %lld of %lld scales wrong, "
            "product "
            "%+.1f dB; %lld FP8 GEMMs of %lld, %lld operands; caught by:",
            g->forward, g->gradient, g->range, g->block, (long long)g->wrong_scales,
            (long long)g->blocks, g->product, (long long)g->executed, (long long)g->planned,
            (long long)g->operands);
    for (int i = 0; i < 6; i++)
        if (g->closed >> i & 1)
            fprintf(f, " %s", gate[i]);
    if (!g->closed)
        fprintf(f, " none");
    fclose(f);
    return text;
}
