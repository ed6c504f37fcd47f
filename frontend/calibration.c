/* Calibrations: run a few batches in high precision, measure every recipe on what the GEMMs read,
 * and choose. See fp8c_tune.h. passes/scale/ does the sampling, measuring and weighing
 * (calibrate.c, measure.c, choose.c). */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "frontend/calibration.h"
#include "frontend/options.h"
#include "ir/num/fp8.h"

/* ---- making one ---- */

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Make room for the parts of the largest trial. */
static f8_status make_room(fp8c_calibration *c, f8_diag *diag)
{
    int64_t values[2] = {1, 1}, most_k = 1;
    for (size_t i = 0; i < c->n_trials; i++) {
        const f8_trial *t = &c->trial[i];
        const int64_t k = t->role == F8_WGRAD ? least(t->k, F8_MEASURE_MOST) : t->k;
        const int64_t rows[2] = {least(t->m, F8_MEASURE_MOST), least(t->n, F8_MEASURE_MOST)};
        for (int p = 0; p < 2; p++)
            values[p] = rows[p] * k > values[p] ? rows[p] * k : values[p];
        most_k = k > most_k ? k : most_k;
    }
    for (int p = 0; p < 2; p++) {
        c->part[p] = f8_arena_array(&c->arena, (size_t)values[p], sizeof *c->part[p]);
        c->max[p] = f8_arena_array(&c->arena, F8_MEASURE_MOST, sizeof *c->max[p]);
    }
    c->workspace = f8_arena_array(&c->arena, f8_measure_workspace(most_k), 1);
    return f8_arena_status(&c->arena, diag);
}

static f8_status prepare(fp8c_calibration *c, const f8_target *target, f8_diag *diag)
{
    f8_unit *u = c->program->unit;
    c->step = fp8c_program_function(c->program, "micro_step");
    c->trial = f8_trials(u, target, &c->n_trials);
    c->sum = f8_arena_array(&c->arena, c->n_trials, sizeof *c->sum);
    c->before = f8_arena_array(&c->arena, u->n_sampled, sizeof *c->before);
    F8_TRY(f8_arena_status(u->arena, diag));
    F8_TRY(f8_arena_status(&c->arena, diag));
    return make_room(c, diag);
}

fp8c_status fp8c_calibration_create(const fp8c_module *module, const fp8c_compile_options *options,
                                    double error_budget, fp8c_calibration **out)
{
    *out = NULL;
    fp8c_context *ctx = module->ctx;
    fp8c_compile_options own = {.struct_size = sizeof own};
    f8_diag diag = {0};
    if (f8_api_options(&own, options, "fp8c_compile_options", &diag) != F8_OK)
        return f8_api_result(ctx, &diag, diag.status);
    const f8_target *target = own.target ? f8_target_by_name(own.target) : NULL;
    if (target && target->kind == F8_TARGET_CUDA &&
        (own.no_device || own.text_only || own.plan_only))
        own = (fp8c_compile_options){.struct_size = sizeof own,
                                     .threads = own.threads}; /* there is no GPU to run on */
    if (own.no_device && own.target && f8_cpu_level_by_target(own.target))
        own.target = NULL; /* the code is for a CPU that may be another than this one */
    own = f8_options_for_calibration(&own);
    if (!(error_budget >= 0) || error_budget > 1) {
        f8_fail(&diag, F8_ERR_INPUT, F8_NOWHERE, "an error budget of %g is not a share from 0 to 1",
                error_budget);
        return f8_api_result(ctx, &diag, F8_ERR_INPUT);
    }
    fp8c_calibration *c = f8_api_new(ctx, sizeof *c, 64, &diag);
    if (!c)
        return f8_api_result(ctx, &diag, diag.status);
    *c =
        (fp8c_calibration){.ctx = ctx, .budget = error_budget > 0 ? error_budget : F8_ERROR_BUDGET};
    f8_arena_init(&c->arena, &ctx->allocator);
    fp8c_status failed = f8_compile_calibrating(module, &own, &c->program);
    if (failed == FP8C_OK) {
        const f8_status status =
            prepare(c, target ? target : c->program->target, &diag);
        failed = f8_api_result(ctx, &diag, status);
    }
    if (failed != FP8C_OK) {
        fp8c_calibration_destroy(c);
        return failed;
    }
    *out = c;
    return FP8C_OK;
}

void fp8c_calibration_destroy(fp8c_calibration *c)
{
    if (!c)
        return;
    fp8c_program_destroy(c->program);
    f8_arena_end(&c->arena);
    f8_api_delete(c->ctx, c, sizeof *c);
}

fp8c_program *fp8c_calibration_program(fp8c_calibration *c)
{
    return c->program;
}

/* ---- samples as parts of operands ---- */

/* A sampled operand, or a parameter: [rows, cols] as stored, with values of its dtype. */
typedef struct stored {
    const void *data;
    f8_dtype dtype;
    int64_t rows, cols;
    const float *column_max; /* each column's largest magnitude over all rows of the operand;
                                NULL: the rows here are all rows */
    float most;
} stored;

/* Find a result of micro_step by name, with its amaxes. */
static stored sampled(fp8c_calibration *c, const char *name)
{
    char top[1100];
    fp8c_port port;
    const int at = fp8c_program_find_port(c->program, c->step, FP8C_OUTPUT, name);
    snprintf(top, sizeof top, "%s.amax", name);
    const int max = fp8c_program_find_port(c->program, c->step, FP8C_OUTPUT, top);
    stored s = {.data = fp8c_program_buffer(c->program, c->step, FP8C_OUTPUT, at),
                .column_max = fp8c_program_buffer(c->program, c->step, FP8C_OUTPUT, max)};
    fp8c_program_port(c->program, c->step, FP8C_OUTPUT, at, &port);
    const f8_type t = f8_api_type_in(&port.type);
    s.dtype = t.dtype;
    s.rows = f8_type_rows(&t);
    s.cols = f8_type_columns(&t);
    f8_matrix_amax(f8_per_tensor, s.column_max, 1, s.cols, &s.most);
    return s;
}

/* The same values as f32: nothing is made for those that are f32. */
static f8_status widen(const f8_type *t, f8_arena *scratch, f8_diag *diag, const void **data)
{
    const int64_t n = f8_type_elements(t);
    if (t->dtype != F8_BF16)
        return F8_OK;
    float *wide = f8_arena_array(scratch, (size_t)n, sizeof *wide);
    if (!wide)
        return f8_arena_status(scratch, diag);
    for (int64_t i = 0; i < n; i++)
        wide[i] = f8_bf16_to_f32(((const uint16_t *)*data)[i]);
    *data = wide;
    return F8_OK;
}

static f8_status parameter(fp8c_calibration *c, int32_t var, f8_arena *scratch, f8_diag *diag,
                           stored *out)
{
    const f8_type *t = &c->program->now->plan.var[var].type;
    f8_instance *instance = &c->program->now->instance;
    const void *data = instance->kind->var(instance, (uint32_t)var);
    if (!data) { /* copied from a GPU */
        void *copy = f8_arena_array(scratch, 1, (size_t)f8_type_bytes(t));
        if (!copy)
            return f8_arena_status(scratch, diag);
        F8_TRY(instance->kind->read(instance, (uint32_t)var, copy, diag));
        data = copy;
    }
    F8_TRY(widen(t, scratch, diag, &data));
    *out = (stored){
        .data = data, .dtype = F8_F32, .rows = f8_type_rows(t), .cols = f8_type_columns(t)};
    f8_matrix_amax(f8_per_tensor, data, out->rows, out->cols, &out->most);
    return F8_OK;
}

static float value(const stored *s, int64_t row, int64_t col)
{
    const int64_t i = row * s->cols + col;
    return s->dtype == F8_BF16 ? f8_bf16_to_f32(((const uint16_t *)s->data)[i])
                               : ((const float *)s->data)[i];
}

/* Row `r` of a part of `rows` rows. The part consists of whole tiles, spread over an axis of `all`
 * rows. */
static int64_t spread(int64_t r, int64_t all)
{
    const int64_t tile = r / F8_SAMPLE_TILE, tiles = all / F8_SAMPLE_TILE;
    if (all <= F8_MEASURE_MOST)
        return r;
    return (2 * tile + 1) * tiles / (2 * F8_SAMPLE_TILES) * F8_SAMPLE_TILE + r % F8_SAMPLE_TILE;
}

/* Copy rows of an operand into v, and their bounds into max, with k along columns, however the
 * operand is stored. */
static f8_operand_part part_of(const stored *s, bool k_is_rows, float before, float *v, float *max)
{
    const int64_t k = k_is_rows ? s->rows : s->cols, all = k_is_rows ? s->cols : s->rows;
    const int64_t rows = least(all, F8_MEASURE_MOST);
    for (int64_t i = 0; k_is_rows && i < k; i++)
        for (int64_t r = 0; r < rows; r++)
            v[r * k + i] = value(s, i, spread(r, all));
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t i = 0; !k_is_rows && i < k; i++)
            v[r * k + i] = value(s, spread(r, all), i);
        max[r] = s->column_max && k_is_rows ? s->column_max[spread(r, all)] : 0;
    }
    return (f8_operand_part){.v = v, .rows = rows, .k = k, .most = s->most, .before = before,
                             .row_max = k_is_rows && s->column_max ? max : NULL};
}

/* ---- observing ---- */

static const f8_sampled *linear_of(const fp8c_calibration *c, const f8_trial *t, size_t *index)
{
    const f8_unit *u = c->program->unit;
    for (*index = 0; u->sampled[*index].linear != t->linear;)
        ++*index;
    return &u->sampled[*index];
}

static f8_status operands_of(fp8c_calibration *c, const f8_sampled *s, f8_arena *scratch,
                             f8_diag *diag, stored operand[F8_OPERANDS])
{
    operand[F8_OPERAND_X] = sampled(c, s->x);
    if (s->dy)
        operand[F8_OPERAND_DY] = sampled(c, s->dy);
    if (s->w)
        operand[F8_OPERAND_W] = sampled(c, s->w);
    else
        F8_TRY(parameter(c, s->w_var, scratch, diag, &operand[F8_OPERAND_W]));
    for (int i = 0; i < F8_OPERANDS; i++)
        if (!isfinite(operand[i].most))
            return f8_fail(diag, F8_ERR_INPUT, s->loc,
                           "%s of '%s' is not finite: nothing can be learned from it",
                           f8_operand_name[i], s->linear);
    return F8_OK;
}

static bool k_is_rows(const f8_sampled *s, f8_role role, f8_operand_kind kind)
{
    if (role == F8_WGRAD)
        return true;
    return kind == F8_OPERAND_W && (role == F8_FPROP) != s->w_is_nk;
}

static void observe_trial(fp8c_calibration *c, size_t i, const f8_sampled *s, size_t linear,
                          const stored operand[F8_OPERANDS])
{
    f8_trial *t = &c->trial[i];
    f8_operand_part part[2];
    f8_operand_kind kind[2];
    f8_role_operands(t->role, kind);
    for (int p = 0; p < 2; p++)
        part[p] = part_of(&operand[kind[p]], k_is_rows(s, t->role, kind[p]),
                          kind[p] == F8_OPERAND_W ? 0 : c->before[linear][kind[p]], c->part[p],
                          c->max[p]);
    for (int k = 0; k < F8_CANDIDATES; k++) /* the first batch's own amax was its history */
        if (c->batches == 1 && t->candidate[k].recipe.scaling == F8_SCALING_DELAYED)
            c->sum[i][k] = (f8_measured){0};
    f8_measure(t, part, c->workspace, c->sum[i]);
}

static f8_status observe(fp8c_calibration *c, f8_diag *diag)
{
    const f8_allocator *allocator = &c->ctx->allocator;
    for (size_t i = 0, end; i < c->n_trials; i = end) {
        size_t linear;
        f8_arena scratch;
        stored operand[F8_OPERANDS] = {0};
        const f8_sampled *s = linear_of(c, &c->trial[i], &linear);
        f8_arena_init(&scratch, allocator);
        f8_status status = operands_of(c, s, &scratch, diag, operand);
        for (end = i; end < c->n_trials && c->trial[end].linear == s->linear; end++)
            if (status == F8_OK && !c->trial[end].fixed)
                observe_trial(c, end, s, linear, operand);
        f8_arena_end(&scratch);
        F8_TRY(status);
        for (int k = 0; k < F8_OPERANDS; k++)
            c->before[linear][k] = fmaxf(c->before[linear][k], operand[k].most);
    }
    c->batches++;
    for (size_t i = 0; i < c->n_trials; i++) {
        f8_measured_errors(&c->trial[i], c->sum[i]);
        f8_choose(&c->trial[i], c->budget, &c->program->arena);
    }
    return f8_arena_status(&c->program->arena, diag);
}

fp8c_status fp8c_calibration_observe(fp8c_calibration *c)
{
    fp8c_status failed = fp8c_program_wait(c->program);
    if (failed != FP8C_OK)
        return failed;
    f8_diag diag = {0};
    f8_status status =
        c->program->now->instance.kind
            ? F8_OK
            : f8_fail(&diag, F8_ERR_INPUT, F8_NOWHERE, "a calibration needs a program that runs");
    if (status == F8_OK)
        status = observe(c, &diag);
    return f8_api_result(c->ctx, &diag, status);
}

/* ---- results ---- */

fp8c_status fp8c_calibration_trial(const fp8c_calibration *c, int index, fp8c_trial *out)
{
    if (index < 0 || (size_t)index >= c->n_trials)
        return FP8C_ERR_INPUT;
    const f8_trial *t = &c->trial[index];
    *out = (fp8c_trial){.linear = t->linear,
                        .role = f8_role_name[t->role],
                        .m = t->m,
                        .n = t->n,
                        .k = t->k,
                        .winner = t->winner,
                        .reason = t->reason ? t->reason : "",
                        .fixed = t->fixed != NULL};
    return FP8C_OK;
}

fp8c_status fp8c_calibration_candidate(const fp8c_calibration *c, int index, int candidate,
                                       fp8c_candidate *out)
{
    if (index < 0 || (size_t)index >= c->n_trials || candidate < 0 || candidate >= F8_CANDIDATES)
        return FP8C_ERR_INPUT;
    const f8_candidate *from = &c->trial[index].candidate[candidate];
    *out = (fp8c_candidate){.recipe = from->recipe.name,
                            .excluded = from->excluded,
                            .error = from->error,
                            .seconds = from->seconds,
                            .gemm_seconds = from->gemm_seconds,
                            .bytes = from->bytes};
    for (int i = 0; i < 2; i++) {
        out->sqnr[i] = from->operand[i].sqnr;
        out->underflow[i] = from->operand[i].underflow;
        out->overflow[i] = from->operand[i].overflow;
    }
    return FP8C_OK;
}

fp8c_status fp8c_calibration_rules(const fp8c_calibration *c, fp8c_write_fn write, void *user)
{
    f8_diag diag = {0};
    f8_recipe_rule *rule;
    size_t n;
    char text[1400];
    f8_status status = f8_chosen_rules(c->trial, c->batches ? c->n_trials : 0,
                                       c->program->unit->module, &rule, &n);
    for (size_t i = 0; i < n && status == F8_OK; i++) {
        const int length = snprintf(text, sizeof text, "recipe ");
        f8_rule_print(&rule[i], text + length, sizeof text - (size_t)length - 2);
        memcpy(text + strlen(text), "\n", sizeof "\n");
        if (write(user, text, strlen(text)))
            status = f8_fail(&diag, F8_ERR_IO, F8_NOWHERE, "writing the rules failed");
    }
    return f8_api_result(c->ctx, &diag, status);
}
