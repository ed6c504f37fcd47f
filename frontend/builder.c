/* Building a module by calls: see fp8c.h. The parser uses the same builders, so it makes the same
 * graph. */
#include "frontend/api.h"

#include <string.h>

#include "frontend/text/parse.h"
#include "ir/recipe.h"

/* Start a declaration. Between func_begin and func_end the first failure stays. */
static f8_diag *begin(fp8c_module *m)
{
    if (!m->building)
        m->diag = (f8_diag){.status = F8_OK};
    return &m->diag;
}

/* Refuse calls on a module with bounds. Its text is parsed for each value, so what is not in the
 * text would be lost. */
static bool from_text(fp8c_module *m)
{
    if (m->ir->source)
        f8_fail(&m->diag, F8_ERR_INPUT, F8_NOWHERE,
                "the module's text has dims that are bounds: only rules can be added to it");
    return m->ir->source != NULL;
}

static f8_func *current(fp8c_module *m)
{
    if (m->building)
        return &m->ir->func[m->building - 1];
    m->diag = (f8_diag){.status = F8_OK};
    f8_fail(&m->diag, F8_ERR_INPUT, F8_NOWHERE, "no function is being built: call fp8c_func_begin");
    return NULL;
}

static bool type_ok(fp8c_module *m, const char *name, const fp8c_type *type)
{
    if (type->rank < 0 || type->rank > F8_MAX_RANK)
        f8_fail(&m->diag, F8_ERR_INPUT, F8_NOWHERE, "'%s': rank %d is not 0 to %d",
                name ? name : "", (int)type->rank, F8_MAX_RANK);
    else if ((unsigned)type->dtype >= F8_DTYPE_COUNT)
        f8_fail(&m->diag, F8_ERR_INPUT, F8_NOWHERE, "'%s': %d is no dtype", name ? name : "",
                (int)type->dtype);
    else
        return true;
    return false;
}

/* ---- declarations ---- */

fp8c_status fp8c_module_param(fp8c_module *m, const char *name, const fp8c_type *type,
                              fp8c_init init, double argument)
{
    f8_diag *diag = begin(m);
    if (from_text(m) || !type_ok(m, name, type))
        return f8_api_done(m, diag->status);
    if ((unsigned)init >= F8_INITS)
        return f8_api_done(m, f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                                      "'%s': %d is not an fp8c_init", name ? name : "", (int)init));
    const f8_var var = {.name = name,
                        .type = f8_api_type_in(type),
                        .kind = F8_VAR_PARAM,
                        .init = (f8_init_kind)init,
                        .init_arg = argument};
    return f8_api_done(m, f8_module_var(m->ir, &var) < 0 ? diag->status : F8_OK);
}

static bool set_field(f8_module *m, f8_optimizer *o, const fp8c_attr *a)
{
    const double value = a->kind == FP8C_ATTR_FLOAT ? a->f : (double)a->i;
    const struct {
        const char *name;
        double *to;
    } reals[] = {
        {"lr", &o->lr},
        {"beta1", &o->beta1},
        {"beta2", &o->beta2},
        {"eps", &o->eps},
        {"weight_decay", &o->weight_decay},
        {"clip", &o->clip},
        {"min_lr", &o->min_lr},
    };
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++)
        if (!strcmp(a->name, reals[i].name)) {
            *reals[i].to = value;
            return a->kind != FP8C_ATTR_STRING;
        }
    if (!strcmp(a->name, "schedule") && a->kind == FP8C_ATTR_STRING)
        return a->s && (o->schedule = f8_intern(m, a->s)) != NULL;
    int64_t *integer = !strcmp(a->name, "warmup")  ? &o->warmup
                       : !strcmp(a->name, "steps") ? &o->steps
                                                   : NULL;
    if (!integer || a->kind != FP8C_ATTR_INT)
        return false;
    *integer = a->i;
    return true;
}

fp8c_status fp8c_module_optimizer(fp8c_module *m, const fp8c_attr *fields, size_t n)
{
    f8_diag *diag = begin(m);
    f8_optimizer o = f8_optimizer_defaults();
    if (from_text(m))
        return f8_api_done(m, diag->status);
    if (!o.schedule || !(o.schedule = f8_intern(m->ir, o.schedule)))
        return f8_api_done(m, F8_ERR_MEMORY);
    o.declared = true;
    for (size_t i = 0; i < n; i++)
        if (!set_field(m->ir, &o, &fields[i]))
            return f8_api_done(m, f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                                          "optimizer adamw has no field '%s' of that kind",
                                          fields[i].name));
    const f8_status status = f8_check_optimizer(&o, diag);
    if (status == F8_OK)
        m->ir->optimizer = o;
    return f8_api_done(m, status);
}

fp8c_status fp8c_module_rule(fp8c_module *m, const char *rule, const char *origin)
{
    f8_diag *diag = begin(m);
    f8_recipe_rule parsed;
    if (diag->status != F8_OK)
        return f8_api_done(m, diag->status);
    const char *file = diag->file;
    diag->file = origin = origin ? f8_intern(m->ir, origin) : NULL;
    const f8_status status = f8_parse_rule(rule, m->ir, diag, &parsed);
    if (status != F8_OK) /* the place is in the rule's text, not in the module's */
        return f8_api_fail(m->ctx, diag, status, rule, strlen(rule));
    diag->file = file;
    parsed.origin = origin;
    parsed.added = true;
    return f8_api_done(m, f8_add_rule(m->ir, &parsed));
}

fp8c_status fp8c_module_check(fp8c_module *m)
{
    f8_diag *diag = begin(m);
    diag->file = m->ir->file;
    return f8_api_done(m, m->building ? f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                                                "function '%s' is still being built",
                                                m->ir->func[m->building - 1].name)
                                      : f8_check_recipe_rules(m->ir, diag));
}

/* ---- functions ---- */

fp8c_status fp8c_func_begin(fp8c_module *m, const char *name)
{
    f8_diag *diag = begin(m);
    if (from_text(m))
        return f8_api_done(m, diag->status);
    if (m->building)
        return f8_api_done(m, f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                                      "function '%s' is still being built",
                                      m->ir->func[m->building - 1].name));
    f8_func *f = f8_module_func(m->ir, name);
    if (!f)
        return f8_api_done(m, diag->status != F8_OK ? diag->status : F8_ERR_MEMORY);
    m->building = (size_t)(f - m->ir->func) + 1;
    return FP8C_OK;
}

fp8c_value fp8c_func_input(fp8c_module *m, const char *name, const fp8c_type *type)
{
    f8_func *f = current(m);
    if (!f)
        return 0;
    if (!type_ok(m, name, type))
        return 0;
    const f8_type t = f8_api_type_in(type);
    return f8_func_input(f, name, &t, -1);
}

fp8c_value fp8c_func_param(fp8c_module *m, const char *name)
{
    f8_func *f = current(m);
    if (!f)
        return 0;
    const int32_t var = f8_module_find_var(m->ir, name);
    if (var < 0) {
        f8_fail(&m->diag, F8_ERR_INPUT, F8_NOWHERE, "'%s' is no parameter of this module", name);
        return 0;
    }
    return f8_func_var(f, var);
}

fp8c_value fp8c_func_const(fp8c_module *m, double value)
{
    f8_func *f = current(m);
    return f ? f8_const(f->graph, value) : 0;
}

/* Convert one attribute from the caller's form to the graph's. */
static bool attr_in(fp8c_module *m, f8_op op, const fp8c_attr *a, f8_attr *out)
{
    static const fp8c_attr_kind kinds[] = {
        [F8_ATTR_INT] = FP8C_ATTR_INT,    [F8_ATTR_FLOAT] = FP8C_ATTR_FLOAT,
        [F8_ATTR_BOOL] = FP8C_ATTR_BOOL,  [F8_ATTR_DTYPE] = FP8C_ATTR_DTYPE,
        [F8_ATTR_STR] = FP8C_ATTR_STRING, [F8_ATTR_INTS] = FP8C_ATTR_INTS,
    };
    const char *op_name = f8_op_facts(op)->name;
    const f8_attr_key key = f8_attr_by_name(a->name, strlen(a->name));
    bool takes = false;
    for (int i = 0; key < F8_A_COUNT && i < f8_op_facts(op)->n_attrs; i++)
        takes |= f8_op_facts(op)->attrs[i].key == key;
    const bool ints = a->kind == FP8C_ATTR_INTS;
    if (!takes || kinds[f8_attr_kind_of(key)] != a->kind ||
        (ints && (a->n_ints < 0 || a->n_ints > F8_MAX_RANK))) {
        f8_fail(&m->diag, F8_ERR_INPUT, F8_NOWHERE, "%s: no attribute '%s' of that kind", op_name,
                a->name);
        return false;
    }
    *out = (f8_attr){.key = key, .i = a->i};
    if (a->kind == FP8C_ATTR_FLOAT)
        out->f = a->f;
    else if (a->kind == FP8C_ATTR_STRING)
        out->s = a->s;
    else if (ints && a->n_ints > 0) {
        out->ints = (f8_ints){.n = a->n_ints};
        memcpy(out->ints.v, a->ints, (size_t)a->n_ints * sizeof *a->ints);
    }
    return true;
}

fp8c_value fp8c_func_op(fp8c_module *m, const char *op, const fp8c_value *inputs, size_t n_inputs,
                        const fp8c_attr *attrs, size_t n_attrs)
{
    f8_func *f = current(m);
    if (!f || m->diag.status != F8_OK)
        return 0;
    const f8_op id = f8_op_by_name(op, strlen(op));
    if (id == F8_OP_NONE)
        f8_fail(&m->diag, F8_ERR_INPUT, F8_NOWHERE, "there is no op '%s'", op);
    else if (n_attrs > F8_MAX_ATTRS)
        f8_fail(&m->diag, F8_ERR_INPUT, F8_NOWHERE,
                "%s has %zu attributes: no op takes more than %d", op, n_attrs, F8_MAX_ATTRS);
    else if (n_inputs > INT32_MAX)
        f8_fail(&m->diag, F8_ERR_INPUT, F8_NOWHERE, "%s has too many operands: %zu", op, n_inputs);
    if (m->diag.status != F8_OK)
        return 0;
    f8_attr attr[F8_MAX_ATTRS];
    for (size_t i = 0; i < n_attrs; i++)
        if (!attr_in(m, id, &attrs[i], &attr[i]))
            return 0;
    return f8_make(f->graph, id, inputs, (int)n_inputs, attr, (int)n_attrs);
}

fp8c_status fp8c_func_result(fp8c_module *m, const char *name, fp8c_value value)
{
    f8_func *f = current(m);
    if (f && m->diag.status == F8_OK && (!value || value >= f->graph->n_nodes))
        f8_fail(&m->diag, F8_ERR_INPUT, F8_NOWHERE, "%s: %u, given for result '%s', is no value",
                f->name, (unsigned)value, name ? name : "");
    if (!f || m->diag.status != F8_OK)
        return f8_api_done(m, F8_OK); /* what failed first */
    return f8_api_done(m, f8_func_result(f, name, value, -1));
}

fp8c_status fp8c_func_end(fp8c_module *m)
{
    f8_func *f = current(m);
    m->building = 0;
    if (f && m->diag.status == F8_OK && f->n_out == 0)
        f8_fail(&m->diag, F8_ERR_INPUT, F8_NOWHERE, "function '%s' has no result", f->name);
    if (f && m->diag.status != F8_OK)
        m->ir->n_funcs--; /* half a function is useless, and its name becomes free for another
                             try */
    return f8_api_done(m, F8_OK);
}
