/* Reading files of weights into a program, and fp8c_program_load_weights: see load.h. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "frontend/checkpoint/dequantize.h"
#include "frontend/checkpoint/shared.h"
#include "frontend/program.h"
#include "ir/num/fp8.h"

enum { SHOWN = 200 };

/* ---- the value of a variable ---- */

static f8_instance *instance_of(const f8_load *l)
{
    return &l->program->now->instance;
}

/* Read the whole value of variable i into `memory`, as f32 if it is to be quantized. */
static f8_status get_whole(const f8_load *l, int i, f8_arena *memory, void **out)
{
    fp8c_variable v;
    fp8c_stored stored;
    const f8_weight *t = l->from[i];
    fp8c_program_variable(l->program, i, &v);
    f8_st_tensor want = f8_checkpoint_tensor(&v);
    if (f8_load_quantizes(l, i, &stored)) {
        want.dtype = F8_ST_F32;
        want.bytes *= sizeof(float);
    }
    const f8_weight *scales = f8_load_dequantizes(l, t, want.dtype);
    if (scales) {
        *out = f8_arena_array(memory, 1, (size_t)want.bytes + 1);
        F8_TRY(f8_arena_status(memory, l->diag));
        return f8_dequantize(t, scales, memory, *out, l->diag);
    }
    const bool gathers = fp8c_program_element(l->program, i, 0, 0) != NULL;
    const bool same = !gathers && t->tensor->dtype == want.dtype;
    void *raw = f8_arena_array(memory, 1, (size_t)t->tensor->bytes + 1);
    void *value = same ? raw : f8_arena_array(memory, 1, (size_t)want.bytes + 1);
    F8_TRY(f8_arena_status(memory, l->diag));
    F8_TRY(f8_st_read(t->file, t->tensor, raw, l->diag));
    if (gathers)
        f8_checkpoint_gather(l->program, i, &l->names, raw, value);
    else if (!same)
        f8_checkpoint_widen(t->tensor->dtype, raw, value, want.bytes / sizeof(float));
    *out = value;
    return F8_OK;
}

/* The same, but of a variable that ranks share this rank's part. A weight is quantized whole. */
static f8_status get_value(const f8_load *l, int i, f8_arena *memory, void **out)
{
    fp8c_variable v;
    f8_arena scratch;
    void *whole;
    fp8c_program_variable(l->program, i, &v);
    if (!v.rows || f8_load_quantizes(l, i, &(fp8c_stored){0}))
        return get_whole(l, i, memory, out);
    f8_arena_init(&scratch, &memory->allocator);
    f8_status status = get_whole(l, i, &scratch, &whole);
    if (status == F8_OK)
        status = f8_shared_part(l->program, i, whole, memory, out, l->diag);
    f8_arena_end(&scratch);
    return status;
}

/* Refuse NaN in a weight, and Inf in a weight that is stored as FP8: its codes would not show which
 * values were not finite. */
static f8_status check_finite(const f8_load *l, int i, const void *value, bool is_stored)
{
    fp8c_variable v;
    char shown[SHOWN];
    fp8c_program_variable(l->program, i, &v);
    const bool narrow = v.type.dtype == FP8C_BF16 && !is_stored;
    if (!v.is_param || (v.type.dtype != FP8C_F32 && !narrow && !is_stored))
        return F8_OK;
    const f8_st_tensor *t = l->from[i]->tensor;
    const uint64_t n = t->bytes / f8_st_dtype_bytes(t->dtype);
    for (uint64_t k = 0; k < n; k++) {
        const float x = narrow ? f8_bf16_to_f32(((const uint16_t *)value)[k])
                               : ((const float *)value)[k];
        if (isnan(x) || (is_stored && isinf(x)))
            return f8_file_fail(
                l->diag, F8_ERR_INPUT, l->from[i]->file->in.path,
                "tensor '%s': element %" PRIu64 " is %s: fp8c does not export such weights",
                f8_st_shown(t->name, shown, sizeof shown), k, isnan(x) ? "NaN" : "infinite");
    }
    return F8_OK;
}

/* The scale that training kept for a weight. *scale stays as it is where no file has one. */
static f8_status get_kept(const f8_load *l, const char *element, f8_arena *memory, float *scale,
                          bool *found)
{
    int64_t index;
    const f8_weight *t = f8_load_kept(l, element, &index);
    *found = t != NULL;
    if (!t)
        return F8_OK;
    float *all = f8_arena_array(memory, 1, (size_t)t->tensor->bytes + 1);
    F8_TRY(f8_arena_status(memory, l->diag));
    F8_TRY(f8_st_read(t->file, t->tensor, all, l->diag));
    *scale = all[index];
    return F8_OK;
}

static f8_status put_value(const f8_load *l, int i, f8_arena *memory, void *value)
{
    fp8c_stored stored;
    float scale;
    bool kept = false;
    const bool quantizes = f8_load_quantizes(l, i, &stored);
    if (l->quantize)
        F8_TRY(check_finite(l, i, value, quantizes));
    if (!quantizes)
        return instance_of(l)->kind->write(instance_of(l), (uint32_t)i, value, l->diag);
    if (stored.kept && !f8_load_trains(l))
        F8_TRY(get_kept(l, stored.kept, memory, &scale, &kept));
    return f8_program_quantize(l->program, i, value, kept ? &scale : NULL, l->diag);
}

/* ---- scales ---- */

/* `prepare` sets the scale of a weight that is not finite to NaN. Keep these NaN: with the finite
 * scale of the file, the codes would saturate and hide that the weight is not finite. */
static f8_status keep_nan(const f8_load *l, int i, f8_arena *memory, float *value)
{
    fp8c_variable v;
    fp8c_program_variable(l->program, i, &v);
    const size_t n = (size_t)fp8c_type_bytes(&v.type) / sizeof *value;
    if (!fp8c_program_element(l->program, i, 0, 0) ||
        !f8_checkpoint_has_port(l->program, "prepare", FP8C_OUTPUT, i))
        return F8_OK;
    float *now = F8_NEW_ARRAY(memory, float, n + 1);
    F8_TRY(f8_arena_status(memory, l->diag));
    F8_TRY(instance_of(l)->kind->read(instance_of(l), (uint32_t)i, now, l->diag));
    for (size_t k = 0; k < n; k++)
        if (isnan(now[k]))
            value[k] = now[k];
    return F8_OK;
}

/* What the program that observes has seen must be finite, and something. */
static f8_status check_observed(const f8_load *l, fp8c_program *from, f8_arena *memory)
{
    const int amax = fp8c_program_find_variable(from, "fp8.amax");
    fp8c_variable v;
    if (amax < 0 || !f8_checkpoint_has_port(from, "eval", FP8C_OUTPUT, amax))
        return f8_fail(l->diag, F8_ERR_INPUT, F8_NOWHERE,
                       "the program that is to give scales was not compiled with `observe`");
    fp8c_program_variable(from, amax, &v);
    float *seen = F8_NEW_ARRAY(memory, float, (size_t)v.type.dim[0] + 1);
    F8_TRY(f8_arena_status(memory, l->diag));
    F8_TRY(f8_program_has_memory(from, l->diag));
    f8_instance *instance = &from->now->instance;
    F8_TRY(instance->kind->read(instance, (uint32_t)amax, seen, l->diag));
    bool any = false;
    for (int64_t k = 0; k < v.type.dim[0]; k++) {
        any |= seen[k] > 0;
        if (!isfinite(seen[k]))
            return f8_fail(l->diag, F8_ERR_INPUT, F8_NOWHERE,
                           "'%s' is not finite: no scale follows from it",
                           fp8c_program_element(from, amax, k, 0));
    }
    return any ? F8_OK
               : f8_fail(l->diag, F8_ERR_INPUT, F8_NOWHERE,
                         "the program that is to give scales has observed nothing: run its eval");
}

/* The scales that follow from what the other program has seen, in the order of variable i. */
static f8_status get_observed(const f8_load *l, int i, f8_arena *memory, float **out)
{
    fp8c_program *from = l->o->scales;
    f8_instance *instance = &from->now->instance;
    fp8c_variable v, its;
    fp8c_program_variable(l->program, i, &v);
    const int variable = fp8c_program_find_variable(from, v.name),
              prepare = fp8c_program_function(from, "prepare");
    fp8c_program_variable(from, variable, &its);
    float *all = F8_NEW_ARRAY(memory, float, (size_t)its.type.dim[0] + 1);
    *out = F8_NEW_ARRAY(memory, float, (size_t)v.type.dim[0] + 1);
    F8_TRY(f8_arena_status(memory, l->diag));
    F8_TRY(instance->kind->run(instance, (uint32_t)prepare, l->diag));
    F8_TRY(instance->kind->read(instance, (uint32_t)variable, all, l->diag));
    for (int64_t k = 0; fp8c_program_element(l->program, i, k, 0); k++) {
        const int64_t at = f8_program_match_element(l->program, i, k, from, variable);
        if (at >= 0) /* always: f8_load_match has found each */
            (*out)[k] = all[at];
    }
    return F8_OK;
}

/* ---- all variables ---- */

static f8_status run_prepare(const f8_load *l)
{
    const int prepare = fp8c_program_function(l->program, "prepare");
    return prepare < 0 ? F8_OK
                       : instance_of(l)->kind->run(instance_of(l), (uint32_t)prepare, l->diag);
}

static f8_status load_one(const f8_load *l, int i, bool is_param, f8_arena *memory)
{
    void *value;
    F8_TRY(get_value(l, i, memory, &value));
    if (!is_param)
        F8_TRY(keep_nan(l, i, memory, value));
    return put_value(l, i, memory, value);
}

static f8_status load_observed(const f8_load *l, int i, f8_arena *memory)
{
    float *value;
    F8_TRY(get_observed(l, i, memory, &value));
    F8_TRY(keep_nan(l, i, memory, value));
    return instance_of(l)->kind->write(instance_of(l), (uint32_t)i, value, l->diag);
}

/* Load the parameters or the states, one after the other. */
static f8_status load_each(const f8_load *l, bool params)
{
    fp8c_variable v;
    f8_status status = F8_OK;
    for (int i = 0; i < l->n && status == F8_OK; i++) {
        f8_arena scratch;
        fp8c_program_variable(l->program, i, &v);
        if ((v.is_param != 0) != params)
            continue;
        f8_arena_init(&scratch, &l->memory.allocator);
        if (l->from[i])
            status = load_one(l, i, params, &scratch);
        else if (!params && l->calibrated && f8_checkpoint_is_needed(l->program, i) &&
                 fp8c_program_element(l->program, i, 0, 0))
            status = load_observed(l, i, &scratch);
        f8_arena_end(&scratch);
    }
    return status;
}

/* Load the parameters, run prepare, and then load the states, of which prepare may change only a
 * part. */
static f8_status load_in_turn(f8_load *l)
{
    fp8c_program *p = l->program;
    F8_TRY(f8_sums_settle(p, l->diag));
    if (l->calibrated)
        F8_TRY(check_observed(l, l->o->scales, &l->memory));
    bool *keep = f8_variables_keep(p, &l->memory);
    F8_TRY(f8_arena_status(&l->memory, l->diag));
    if (!f8_variables_valued(p))
        F8_TRY(instance_of(l)->kind->init(instance_of(l), 0, keep, l->diag));
    f8_variables_clear(p);
    F8_TRY(load_each(l, true));
    F8_TRY(run_prepare(l));
    F8_TRY(load_each(l, false));
    f8_variables_set(p);
    return F8_OK;
}

/* Memory for reading one value after another: an allocator that keeps its blocks until the end. A
 * request takes the first block that is free, and makes it larger if need be. Each value makes the
 * same requests whenever it is read. So once all values have been read, the blocks are large enough
 * for each of them, and reading them again can't run out of memory. */
enum { BLOCKS = 8 }; /* more at once come from `from`, and are not kept */
typedef struct reused {
    f8_allocator from;
    struct {
        void *data;
        size_t size;
        bool out;
    } block[BLOCKS];
} reused;

static void *reuse(void *user, size_t size, size_t align)
{
    reused *r = user;
    for (int i = 0; i < BLOCKS; i++) {
        if (r->block[i].out)
            continue;
        if (r->block[i].size < size) {
            if (r->block[i].data)
                r->from.free(r->from.user, r->block[i].data, r->block[i].size);
            r->block[i].data = r->from.alloc(r->from.user, size, align);
            r->block[i].size = r->block[i].data ? size : 0;
        }
        r->block[i].out = r->block[i].data != NULL;
        return r->block[i].data;
    }
    return r->from.alloc(r->from.user, size, align);
}

static void keep_block(void *user, void *data, size_t size)
{
    reused *r = user;
    for (int i = 0; i < BLOCKS; i++)
        if (data && r->block[i].data == data) {
            r->block[i].out = false;
            return;
        }
    r->from.free(r->from.user, data, size);
}

static void end_reuse(reused *r)
{
    for (int i = 0; i < BLOCKS; i++)
        if (r->block[i].data)
            r->from.free(r->from.user, r->block[i].data, r->block[i].size);
}

/* Read each of the parameters, or of the states, one after the other. With `writes` each is also
 * written to its variable. */
static f8_status copy_each(const f8_load *l, reused *memory, bool params, bool writes)
{
    const f8_plan *plan = &l->program->now->plan;
    const f8_allocator a = {reuse, keep_block, memory};
    f8_status status = F8_OK;
    for (int i = 0; i < l->n && status == F8_OK; i++) {
        f8_arena scratch;
        void *value;
        if (!l->from[i] || plan->var[i].is_param != params)
            continue;
        f8_arena_init(&scratch, &a);
        status = get_value(l, i, &scratch, &value);
        if (status == F8_OK && writes)
            status = instance_of(l)->kind->write(instance_of(l), (uint32_t)i, value, l->diag);
        f8_arena_end(&scratch);
    }
    return status;
}

/* The second reading: write the parameters, run `prepare` if it is needed, write the states. */
static f8_status copy_all(const f8_load *l, reused *memory)
{
    F8_TRY(f8_sums_settle(l->program, l->diag));
    F8_TRY(copy_each(l, memory, true, true));
    f8_variables_set(l->program);
    if (l->states == F8_LOAD_NO_STATES || l->compute)
        F8_TRY(run_prepare(l));
    return copy_each(l, memory, false, true);
}

/* Load all values as they are. Each is read twice: first without writing it, so that a file that
 * can't be read, or a lack of memory, is found before anything changes. To hold all values instead
 * would take as much memory as the variables, which are most of a training's memory. If a later
 * step fails nevertheless, the variables have no values. */
static f8_status load_exactly(const f8_load *l)
{
    reused memory = {.from = l->memory.allocator};
    f8_status status = copy_each(l, &memory, true, false);
    if (status == F8_OK)
        status = copy_each(l, &memory, false, false);
    if (status == F8_OK) {
        status = copy_all(l, &memory);
        if (status != F8_OK)
            f8_variables_clear(l->program);
    }
    end_reuse(&memory);
    return status;
}

f8_status f8_load_values(f8_load *l)
{
    return l->exact ? load_exactly(l) : load_in_turn(l);
}

/* ---- the calls ---- */

f8_status f8_load_allowed(fp8c_program *p, const char *call, f8_diag *diag)
{
    F8_TRY(f8_program_has_memory(p, diag));
    F8_TRY(f8_program_may_change(p, call, diag));
    return f8_variables_bound(p, diag);
}

static f8_status load(f8_load *l)
{
    F8_TRY(f8_load_allowed(l->program, "fp8c_program_load_weights", l->diag));
    F8_TRY(f8_weights_open(l->weights, l->o, &l->program->ctx->allocator, l->diag));
    l->states = f8_load_usual_states(l->program, l->weights);
    F8_TRY(f8_load_match(l));
    return f8_load_values(l);
}

fp8c_status fp8c_program_load_weights(fp8c_program *p, const fp8c_load_options *options)
{
    f8_diag diag = {0};
    f8_weights weights = {0};
    fp8c_load_options own = {.struct_size = sizeof own};
    f8_load l = {.program = p, .weights = &weights, .o = &own, .diag = &diag};
    f8_status status = f8_api_options(&own, options, "fp8c_load_options", &diag);
    if (status == F8_OK)
        status = load(&l);
    const fp8c_status result = f8_api_result(p->ctx, &diag, status); /* it may name a file */
    f8_load_end(&l);
    f8_weights_close(&weights);
    return result;
}

f8_status f8_checkpoint_can_write(fp8c_program *p, f8_diag *diag)
{
    F8_TRY(f8_program_has_memory(p, diag));
    F8_TRY(f8_variables_bound(p, diag));
    return f8_variables_valued(p)
               ? F8_OK
               : f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                         "the variables have no values: there is nothing to save");
}
