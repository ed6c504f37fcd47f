/* Compile reports as bytes, and the checks of one that was read: see compile_report.h. Seconds that
 * a clock measured are not written, so equal compiles give equal bytes. */
#include "frontend/f8x/compile_report.h"

#include <string.h>

static void wire_decision(f8_wire *w, void *element)
{
    f8_decision *d = element;
    const char **const texts[] = {&d->linear, &d->role, &d->a, &d->b, &d->scaling, &d->reason};
    int64_t *const sizes[] = {&d->m, &d->n, &d->k, &d->count};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        f8_wire_name(w, texts[i]);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        f8_wire_size(w, sizes[i]);
    f8_wire_bool(w, &d->fp8);
}

static void wire_recipe(f8_wire *w, void *element)
{
    f8_recipe *r = element;
    char text[F8_RECIPE_TEXT] = "";
    const char *s = text;
    if (w->mode == F8_WIRE_WRITE)
        f8_recipe_print(r, text, sizeof text);
    f8_wire_name(w, &s);
    if (f8_wire_reads(w) && !w->wrong && f8_recipe_parse(s, F8_NOWHERE, r, NULL) != F8_OK)
        f8_wire_refuse(w, "it names a recipe that does not exist");
}

static void wire_flag(f8_wire *w, void *element)
{
    f8_wire_bool(w, element);
}

static void wire_alias(f8_wire *w, void *element)
{
    f8_element_alias *a = element;
    f8_wire_size(w, &a->element);
    f8_wire_name(w, &a->name);
}

static void wire_elements(f8_wire *w, void *element)
{
    f8_elements *e = element;
    /* when reading, they are made here */
    const char **name = (const char **)e->name;
    f8_recipe *recipe = (f8_recipe *)e->recipe;
    bool *is_param = (bool *)e->is_param;
    f8_element_alias *alias = (f8_element_alias *)e->alias;
    int64_t recipes = e->n, flags = e->n;
    f8_wire_i32(w, &e->var);
    F8_WIRE_ARRAY(w, name, e->n, f8_wire_names);
    F8_WIRE_ARRAY(w, recipe, recipes, wire_recipe);
    F8_WIRE_ARRAY(w, is_param, flags, wire_flag);
    F8_WIRE_ARRAY(w, alias, e->n_aliases, wire_alias);
    e->name = name;
    e->recipe = recipe;
    e->is_param = is_param;
    e->alias = alias;
    if (f8_wire_reads(w) && (recipes != e->n || flags != e->n))
        f8_wire_refuse(w, "it has elements of a state without a recipe");
    for (int64_t i = 0; f8_wire_reads(w) && i < e->n_aliases; i++)
        if (alias[i].element >= e->n)
            f8_wire_refuse(w, "it has another name of an element that does not exist");
}

static void wire_stored(f8_wire *w, void *element)
{
    f8_stored *s = element;
    f8_wire_i32(w, &s->var);
    f8_wire_i32(w, &s->scale_var);
    wire_recipe(w, &s->recipe);
    f8_wire_text(w, &s->operand);
    f8_wire_size(w, &s->quantizer.grain.rows);
    f8_wire_size(w, &s->quantizer.grain.cols);
    F8_WIRE_ENUM(w, s->quantizer.format, F8_DTYPE_COUNT);
    f8_wire_bool(w, &s->quantizer.mx);
    f8_wire_bool(w, &s->quantizer.pow2);
    f8_wire_i64(w, &s->quantizer.margin);
    F8_WIRE_ENUM(w, s->dtype, F8_DTYPE_COUNT);
    F8_WIRE_ENUM(w, s->init, F8_INIT_UNIFORM + 1);
    f8_wire_f64(w, &s->init_arg);
}

static void wire_time(f8_wire *w, void *element)
{
    f8_pass_time *t = element;
    f8_wire_name(w, &t->name);
    f8_wire_u32(w, &t->nodes);
}

/* ---- memory ---- */

static void wire_tensor(f8_wire *w, void *element)
{
    f8_memory_tensor *t = element;
    f8_wire_name(w, &t->name);
    f8_wire_type(w, &t->type);
    f8_wire_size(w, &t->bytes);
    F8_WIRE_ENUM(w, t->category, F8_MEMORY_CATEGORIES);
    f8_wire_name(w, &t->made);
    f8_wire_name(w, &t->read);
    f8_wire_u32(w, &t->first);
    f8_wire_u32(w, &t->last);
}

static void wire_func(f8_wire *w, void *element)
{
    f8_compile_report_func *f = element;
    f8_memory_report *r = &f->memory;
    f8_wire_u32(w, &r->peak.at);
    f8_wire_size(w, &r->peak.bytes);
    f8_wire_size(w, &r->peak.activations);
    f8_wire_name(w, &r->at);
    for (int i = 0; i < F8_MEMORY_CATEGORIES; i++)
        f8_wire_size(w, &r->bytes[i]);
    F8_WIRE_ARRAY(w, r->tensor, r->n_tensors, wire_tensor);
    f8_wire_u32(w, &f->positions);
    f8_wire_size(w, &f->arena_bytes);
    f8_wire_f64(w, &f->seconds); /* estimated */
}

static void wire_remat(f8_wire *w, f8_remat_summary *r)
{
    int64_t *const sizes[] = {
        &r->before,     &r->budget,   &r->after, &r->activations_before, &r->activations_after,
        &r->recomputed, &r->fp8_gemms};
    f8_wire_bool(w, &r->ran);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        f8_wire_i64(w, sizes[i]);
    f8_wire_f64(w, &r->seconds);
    f8_wire_f64(w, &r->extra_seconds);
    int32_t rounds = r->rounds;
    f8_wire_i32(w, &rounds);
    r->rounds = rounds;
}

/* ---- code ---- */

static void wire_kernel(f8_wire *w, void *element)
{
    f8_build_kernel *k = element;
    uint32_t *const counts[] = {&k->launches, &k->image, &k->threads, &k->shared};
    int64_t *const sizes[] = {&k->report.registers, &k->report.shared, &k->report.stack,
                              &k->report.spill_stores, &k->report.spill_loads};
    f8_wire_name(w, &k->name);
    f8_wire_text(w, &k->symbol);
    f8_wire_u64(w, &k->hash);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        f8_wire_u32(w, counts[i]);
    f8_wire_bool(w, &k->multi);
    f8_wire_bool(w, &k->reported);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        f8_wire_i64(w, sizes[i]);
}

void f8_compile_report_wire(f8_wire *w, f8_compile_report *t)
{
    F8_WIRE_ARRAY(w, t->decision, t->n_decisions, wire_decision);
    F8_WIRE_ARRAY(w, t->elements, t->n_elements, wire_elements);
    F8_WIRE_ARRAY(w, t->stored, t->n_stored, wire_stored);
    F8_WIRE_ARRAY(w, t->time, t->n_times, wire_time);
    F8_WIRE_ARRAY(w, t->func, t->n_funcs, wire_func);
    F8_WIRE_ARRAY(w, t->kernel, t->n_kernels, wire_kernel);
    wire_remat(w, &t->remat);
    f8_wire_size(w, &t->linears);
    f8_wire_size(w, &t->fp8_gemms);
    f8_wire_size(w, &t->planned);
}

/* ---- what must hold ---- */

static bool is_var(const f8_plan *plan, int32_t var)
{
    return var >= 0 && (uint32_t)var < plan->n_vars;
}

/* Check that each element is a row of its variable. */
static bool has_rows(const f8_elements *e, const f8_plan *plan)
{
    const f8_type *t = &plan->var[e->var].type;
    return t->rank >= 1 && t->dim[0] == e->n;
}

/* Check that quantizing writes the variables whole and nothing else. */
static bool fits(const f8_stored *s, const f8_plan *plan)
{
    if (!is_var(plan, s->var) || !is_var(plan, s->scale_var))
        return false;
    const f8_type *codes = &plan->var[s->var].type, *scales = &plan->var[s->scale_var].type;
    const f8_quantizer *q = &s->quantizer;
    return codes->dtype == q->format && f8_dtype_is_fp8(q->format) && q->grain.rows <= INT32_MAX &&
           q->grain.cols <= INT32_MAX && scales->dtype == (q->mx ? F8_E8M0 : F8_F32) &&
           q->margin >= -127 && q->margin <= 127 &&
           (s->recipe.scaling != F8_SCALING_DELAYED || s->operand) &&
           f8_quantizer_scales(q, f8_type_rows(codes), f8_type_columns(codes)) ==
               f8_type_elements(scales);
}

/* Check that sums over a report stay within int64. */
static bool is_size(int64_t bytes)
{
    return bytes >= 0 && bytes <= (int64_t)1 << 56;
}

static bool adds_up(const f8_compile_report_func *f)
{
    bool fits = is_size(f->arena_bytes) && is_size(f->memory.peak.bytes);
    for (int i = 0; i < F8_MEMORY_CATEGORIES; i++)
        fits = fits && is_size(f->memory.bytes[i]);
    return fits;
}

f8_status f8_compile_report_check(const f8_compile_report *t, const f8_plan *plan, f8_diag *diag)
{
    for (size_t i = 0; i < t->n_elements; i++) {
        if (!is_var(plan, t->elements[i].var))
            return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                           "the compile report names elements of a variable that does not exist");
        if (!has_rows(&t->elements[i], plan))
            return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                           "the compile report names elements that a variable does not have");
    }
    for (size_t i = 0; i < t->n_stored; i++)
        if (!fits(&t->stored[i], plan))
            return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                           "the compile report names variables that can't hold a stored weight");
    if (t->n_funcs != plan->n_funcs)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                       "the compile report has %zu functions, and the plan has %u", t->n_funcs,
                       plan->n_funcs);
    bool fits = is_size(t->planned);
    for (size_t i = 0; i < t->n_funcs; i++)
        fits = fits && adds_up(&t->func[i]);
    if (!fits)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                       "the compile report has sizes that no program can have");
    return F8_OK;
}
