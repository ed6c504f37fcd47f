/* Weights that a program stores as FP8 codes: which they are, and codes and scales of values. */
#include "frontend/program.h"
#include "ir/num/fp8.h"
#include "runtime/copy.h"

static const f8_stored *stored_variable(const fp8c_program *p, int variable)
{
    for (size_t i = 0; i < p->now->report.n_stored; i++)
        if (p->now->report.stored[i].var == variable)
            return &p->now->report.stored[i];
    return NULL;
}

fp8c_status fp8c_program_stored(const fp8c_program *p, int index, fp8c_stored *out)
{
    if (index < 0 || (size_t)index >= p->now->report.n_stored)
        return FP8C_ERR_INPUT;
    const f8_stored *s = &p->now->report.stored[index];
    _Static_assert(sizeof out->recipe >= F8_RECIPE_TEXT, "any recipe fits");
    *out = (fp8c_stored){.variable = s->var,
                         .scale_variable = s->scale_var,
                         .kept = s->recipe.scaling == F8_SCALING_DELAYED ? s->operand : NULL};
    f8_recipe_print(&s->recipe, out->recipe, sizeof out->recipe);
    return FP8C_OK;
}

/* ---- quantizing ---- */

/* Writes a variable, or of one that ranks share this rank's rows. `part` has room for these. */
static f8_status write(fp8c_program *p, int32_t variable, const void *whole, uint8_t *part,
                       f8_diag *diag)
{
    f8_instance *instance = &p->now->instance;
    if (p->now->plan.var[variable].rows) {
        f8_variable_part(p, (uint32_t)variable, whole, part);
        whole = part;
    }
    F8_TRY(instance->kind->write(instance, (uint32_t)variable, whole, diag));
    f8_variable_set(p, (uint32_t)variable);
    return F8_OK;
}

/* `given` is the scale of the whole weight, or NULL. */
static f8_status quantize(fp8c_program *p, const f8_stored *s, const float *from,
                          const float *given, f8_diag *diag)
{
    const f8_plan *plan = &p->now->plan;
    const f8_type t = f8_variable_whole(p, (uint32_t)s->var);
    const int64_t rows = f8_type_rows(&t), cols = f8_type_columns(&t);
    const int64_t n = f8_quantizer_scales(&s->quantizer, rows, cols);
    f8_arena scratch;
    f8_arena_init(&scratch, &p->ctx->allocator);
    float *amax = F8_NEW_ARRAY(&scratch, float, n), *scale = F8_NEW_ARRAY(&scratch, float, n);
    float *inv = F8_NEW_ARRAY(&scratch, float, n);
    uint8_t *codes = F8_NEW_ARRAY(&scratch, uint8_t, rows * cols),
            *e8m0 = F8_NEW_ARRAY(&scratch, uint8_t, n),
            *part = F8_NEW_ARRAY(&scratch, uint8_t,
                                 f8_type_bytes(&plan->var[s->var].type) +
                                     f8_type_bytes(&plan->var[s->scale_var].type));
    f8_status status = f8_arena_status(&scratch, diag);
    if (status == F8_OK) {
        f8_matrix_amax(s->quantizer.grain, from, rows, cols, amax);
        f8_scales_of(&s->quantizer, amax, n, scale, inv);
        if (given) {
            scale[0] = *given;
            inv[0] = 1 / *given + (amax[0] - amax[0]); /* NaN where a value is Inf or NaN */
        }
        f8_matrix_encode(&s->quantizer, from, rows, cols, scale, codes);
        for (int64_t i = 0; i < n; i++)
            e8m0[i] = f8_f32_to_e8m0(inv[i], false); /* this is exact: inv is a power of two, or
                                                        NaN */
        status = write(p, s->var, codes, part, diag);
    }
    if (status == F8_OK)
        status = write(p, s->scale_var, s->quantizer.mx ? (const void *)e8m0 : inv, part, diag);
    f8_arena_end(&scratch);
    return status;
}

f8_status f8_program_quantize(fp8c_program *p, int variable, const float *from, const float *scale,
                              f8_diag *diag)
{
    const f8_stored *s = stored_variable(p, variable);
    if (!s)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE, "variable %d is not stored in FP8",
                       variable);
    if (scale && s->recipe.scaling != F8_SCALING_DELAYED)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                       "variable %d takes no scale: only recipe `delayed` keeps one", variable);
    return quantize(p, s, from, scale, diag);
}

/* ---- initial values ---- */

/* A variable that has the values of a stored weight draws the same numbers. */
static f8_status initialize(fp8c_program *p, const f8_stored *s, uint64_t seed, f8_diag *diag)
{
    const f8_plan_var *codes = &p->now->plan.var[s->var];
    f8_plan_var var = {.name = codes->name,
                       .type = f8_variable_whole(p, (uint32_t)s->var),
                       .init = (int32_t)s->init,
                       .init_arg = s->init_arg};
    f8_arena scratch;
    var.type.dtype = s->dtype;
    const int64_t n = f8_type_elements(&var.type);
    f8_arena_init(&scratch, &p->ctx->allocator);
    float *values = F8_NEW_ARRAY(&scratch, float, n);
    void *own = s->dtype == F8_F32 ? (void *)values : F8_NEW_ARRAY(&scratch, uint16_t, n);
    f8_status status = f8_arena_status(&scratch, diag);
    if (status == F8_OK) {
        f8_init_var(&var, 0, seed, NULL, own);
        for (int64_t i = 0; i < n && s->dtype != F8_F32; i++)
            values[i] = f8_bf16_to_f32(((const uint16_t *)own)[i]);
        status = quantize(p, s, values, NULL, diag);
    }
    f8_arena_end(&scratch);
    return status;
}

f8_status f8_stored_initialize(fp8c_program *p, uint64_t seed, f8_diag *diag)
{
    for (size_t i = 0; i < p->now->report.n_stored; i++)
        if (p->now->report.stored[i].init != F8_INIT_ZEROS)
            F8_TRY(initialize(p, &p->now->report.stored[i], seed, diag));
    return F8_OK;
}
