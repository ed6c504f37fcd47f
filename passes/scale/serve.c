/* Serve: stores weights as FP8 codes with their scales: those of a program for inference, and the
 * frozen ones of a program that trains.
 *
 * The pass does something only with options.stored, the recipe that weights were quantized under,
 * or options.stored_as, a list of weights with a recipe each, as a file of them has it. A parameter
 * is stored if linears alone read it, as w, and that recipe has those linears in FP8 by the
 * module's rules. (A list asks no rules.) Its type changes: f32[N, K], or bf16, becomes
 *     NAME        f8e4m3[N, K]   the codes
 *     NAME_scale  or NAME_scale_inv
 * and its readers read dequantize(codes, scales). The scales multiply codes on the way back. Their
 * names are the ecosystem's: `weight_scale_inv` for 128 x 128 blocks (DeepSeek-V3's checkpoints),
 * `weight_scale` for a tensor, rows and MX blocks (compressed-tensors). Under the same recipe the
 * scaling pass takes codes and scales as they are. Under another one, bf16 included, the values are
 * what they dequantize to. What a program trains can't be stored: an update would have no values to
 * change.
 *
 * Requires linears as MATMULs with a name and a role, in `forward`. */
#include "passes/scale/scaling.h"

#include <string.h>

typedef struct server {
    f8_unit *u;
    f8_func *f;
    f8_uses uses;
} server;

/* ---- which parameters ---- */

/* The recipe that stores a parameter, w of a linear: the list's, or by the module's rules. */
static f8_recipe stored_recipe(const f8_unit *u, const char *param, const char *linear)
{
    for (size_t i = 0; i < u->options.n_stored_as; i++)
        if (!strcmp(u->options.stored_as[i].name, param))
            return u->options.stored_as[i].recipe;
    if (!u->options.stored)
        return *f8_recipe_by_name("bf16");
    f8_unit asking = *u;
    asking.options.recipe = u->options.stored;
    return f8_recipe_for(&asking, linear, F8_FPROP, F8_OPERAND_W).recipe;
}

/* The codes that all readers of a parameter agree on, and the first reader. */
typedef struct wish {
    const char *name, *linear; /* linear NULL: no reader yet */
    f8_recipe recipe;
    f8_granularity grain;
} wish;

/* Add node r, which reads `value`, the parameter or a cast of it. False where r is no linear, or
 * needs other codes. */
static bool add_reader(const server *s, wish *w, f8_ref value, f8_ref r)
{
    const f8_graph *g = s->f->graph;
    if (!r || f8_at(g, r)->op != F8_OP_MATMUL || f8_at(g, r)->in[1] != value ||
        f8_at(g, r)->in[0] == value || strcmp(f8_attr_s(g, r, F8_A_ROLE), f8_role_name[F8_FPROP]))
        return false;
    const char *linear = f8_attr_s(g, r, F8_A_NAME);
    const f8_recipe mine = stored_recipe(s->u, w->name, linear);
    const f8_granularity own =
        f8_recipe_granularity(&mine, F8_OPERAND_W, !f8_attr_i(g, r, F8_A_TRANSPOSE_B));
    if (w->linear)
        return f8_recipe_equal(&mine, &w->recipe) && f8_granularity_equal(own, w->grain);
    *w = (wish){w->name, linear, mine, own};
    return mine.scaling != F8_SCALING_NONE && mine.scaling != F8_SCALING_AUTO;
}

/* Whether the parameter can be stored. Under f32, linears read the parameter itself. */
static bool storable(const server *s, f8_ref param, wish *w)
{
    const f8_graph *g = s->f->graph;
    for (uint32_t i = s->uses.start[param]; i < s->uses.start[param + 1]; i++) {
        const f8_ref reader = s->uses.user[i];
        if (!reader || f8_at(g, reader)->op != F8_OP_CAST) {
            if (!add_reader(s, w, param, reader))
                return false;
            continue;
        }
        for (uint32_t k = s->uses.start[reader]; k < s->uses.start[reader + 1]; k++)
            if (!add_reader(s, w, reader, s->uses.user[k]))
                return false;
    }
    return w->linear != NULL;
}

/* ---- codes in place of values ---- */

static f8_status store(server *s, f8_port *port, const wish *w)
{
    f8_unit *u = s->u;
    f8_module *m = u->module;
    const int32_t var = port->var;
    const bool mx = w->recipe.scaling == F8_SCALING_MX;
    const char *suffix = w->recipe.scaling == F8_SCALING_BLOCK ? "_scale_inv" : "_scale";
    const char *name = f8_arena_printf(u->arena, "%s%s", m->var[var].name, suffix);
    const char *operand =
        f8_arena_printf(u->arena, "%s.%s", w->linear, f8_operand_name[F8_OPERAND_W]);
    f8_stored *grown = f8_arena_grow(u->arena, u->stored, u->n_stored, &u->stored_room,
                                     u->n_stored + 1, sizeof *grown);
    if (!name || !operand || !grown)
        return f8_arena_status(u->arena, u->diag);
    u->stored = grown;
    const f8_var scale = {.name = f8_intern(m, name),
                          .type = f8_granularity_type(w->grain, &port->type, mx ? F8_E8M0 : F8_F32),
                          .kind = F8_VAR_PARAM, .init = F8_INIT_ZEROS, .loc = m->var[var].loc};
    const int32_t scale_var = f8_module_var(m, &scale);
    if (scale_var < 0)
        return u->diag->status;
    const f8_dtype format = f8_recipe_format(&w->recipe, F8_OPERAND_W), dtype = port->type.dtype;
    const f8_init_kind init = u->options.inference ? F8_INIT_ZEROS : m->var[var].init;
    const double init_arg = m->var[var].init_arg;
    m->var[var].type.dtype = port->type.dtype = format;
    m->var[var].init = F8_INIT_ZEROS;
    u->stored[u->n_stored++] = (f8_stored){.var = var,
                                           .scale_var = scale_var,
                                           .recipe = w->recipe,
                                           .operand = operand,
                                           .quantizer = {.grain = w->grain,
                                                         .format = format,
                                                         .mx = mx,
                                                         .pow2 = w->recipe.pow2,
                                                         .margin = w->recipe.margin},
                                           .dtype = dtype,
                                           .init = init,
                                           .init_arg = init_arg};
    return F8_OK;
}

/* A program that trains stores what it does not train. */
static f8_status check_frozen(const f8_unit *u, int32_t var, const wish *w)
{
    char text[F8_RECIPE_TEXT];
    if (u->options.inference || f8_unit_is_frozen(u, var))
        return F8_OK;
    f8_recipe_print(&w->recipe, text, sizeof text);
    if (u->options.n_stored_as)
        return f8_fail(u->diag, F8_ERR_UNSUPPORTED, u->module->var[var].loc,
                       "'%s' is trained, so it can't be stored under %s: name it in `frozen`, or "
                       "do not list it",
                       w->name, text);
    return f8_fail(u->diag, F8_ERR_UNSUPPORTED, u->module->var[var].loc,
                   "'%s' is trained, so it can't be stored under %s: name it in `frozen`, or keep "
                   "its linear in high precision: recipe \"%s\" = bf16",
                   w->name, text, w->linear);
}

static const f8_stored *stored_as(const f8_unit *u, int32_t var)
{
    for (size_t i = 0; i < u->n_stored; i++)
        if (u->stored[i].var == var)
            return &u->stored[i];
    return NULL;
}

/* The values that the codes of a parameter stand for, in f32. 0: `r` is no stored parameter. */
static f8_ref values_of(const server *s, f8_graph *g, f8_ref r)
{
    char text[48];
    if (f8_at(g, r)->op != F8_OP_INPUT)
        return 0;
    const f8_port *port = &s->f->in[f8_attr_i(g, r, F8_A_INDEX)];
    const f8_stored *stored = port->var >= 0 ? stored_as(s->u, port->var) : NULL;
    if (!stored)
        return 0;
    const f8_granularity grain = stored->quantizer.grain;
    const char *spread = f8_granularity_has_blocks(grain)
                             ? f8_granularity_print(grain, text, sizeof text)
                             : "broadcast";
    const f8_ref operands[] = {r, f8_func_var(s->f, stored->scale_var)};
    const f8_attr attr[] = {F8_STR(F8_A_GRANULARITY, spread)};
    return f8_make(g, F8_OP_DEQUANTIZE, operands, 2, attr, 1);
}

/* A reader of a stored parameter, either the cast to what its GEMM reads or the GEMM itself, reads
 * the dequantized values. */
static f8_ref read_codes(void *user, f8_graph *to, const f8_graph *from, f8_ref old,
                         const f8_ref *in)
{
    const server *s = user;
    const f8_node *n = f8_at(from, old);
    const int w = n->op == F8_OP_MATMUL ? 1 : 0;
    const f8_ref values =
        n->op == F8_OP_MATMUL || n->op == F8_OP_CAST ? values_of(s, to, in[w]) : 0;
    if (!values)
        return 0;
    if (n->op == F8_OP_CAST)
        return f8_cast(to, values, n->type.dtype);
    const f8_ref b = f8_cast(to, values, f8_type_of(from, n->in[w])->dtype);
    const f8_ref operands[] = {in[0], b, n->n_in > 2 ? in[2] : 0};
    return f8_make_clone(to, n->op, operands, (int)n->n_in, n->attr, f8_op_facts(n->op)->n_attrs,
                         n->clone);
}

/* Every weight of the list must have been stored; without a list, at least one weight. */
static f8_status check_stored(const server *s)
{
    const f8_unit *u = s->u;
    if (!u->options.n_stored_as && !u->n_stored)
        return f8_fail(u->diag, F8_ERR_UNSUPPORTED, F8_NOWHERE,
                       "no weight is stored in FP8: the recipe and its rules keep all linears in "
                       "high precision");
    for (size_t i = 0; i < u->options.n_stored_as; i++) {
        const f8_stored_as *as = &u->options.stored_as[i];
        bool is_stored = false;
        for (size_t k = 0; k < u->n_stored; k++)
            is_stored |= !strcmp(u->module->var[u->stored[k].var].name, as->name);
        char text[F8_RECIPE_TEXT];
        if (!is_stored)
            return f8_fail(
                u->diag, F8_ERR_INPUT, F8_NOWHERE,
                "'%.200s' can't be stored under %s: the recipe must be an FP8 one, and the "
                "name a parameter, a matrix, that only linears read, as w and in one "
                "layout",
                as->name, f8_recipe_print(&as->recipe, text, sizeof text));
    }
    return F8_OK;
}

static f8_status serve(server *s)
{
    for (size_t i = 0, n = s->f->n_in; i < n; i++) {
        f8_port *port = &s->f->in[i];
        const bool values = port->type.dtype == F8_F32 || port->type.dtype == F8_BF16;
        if (port->var < 0 || !values || port->type.rank != 2)
            continue;
        wish w = {.name = s->u->module->var[port->var].name};
        if (!storable(s, port->ref, &w))
            continue;
        F8_TRY(check_frozen(s->u, port->var, &w));
        F8_TRY(store(s, port, &w));
    }
    F8_TRY(check_stored(s));
    return f8_func_rewrite(s->f, read_codes, s);
}

f8_status f8_pass_serve(f8_unit *u)
{
    server s = {.u = u, .f = f8_module_find_func(u->module, "forward")};
    f8_arena scratch;
    if (!u->options.stored && !u->options.n_stored_as)
        return F8_OK;
    F8_TRY(f8_unit_check_frozen(u)); /* before a parameter counts as trained */
    f8_arena_init(&scratch, &u->arena->allocator);
    f8_status status = f8_compute_uses(s.f, &scratch, &s.uses, u->diag);
    if (status == F8_OK)
        status = serve(&s);
    f8_arena_end(&scratch);
    return status;
}
