/* doctor: the calls of fp8c_diagnose.h, and running a test. */
#include "frontend/diagnose/doctor/doctor.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "codegen/cuda/emit.h"
#include "frontend/program.h"
#include "ir/base/clock.h"

#define SAME(a, b)                                                                                 \
    _Static_assert((int)(a) == (int)(b), "fp8c_diagnose.h and runtime/probe/component.h disagree")
SAME(FP8C_COMPONENT_OK, F8_COMPONENT_OK);
SAME(FP8C_COMPONENT_MISSING, F8_COMPONENT_MISSING);
SAME(FP8C_COMPONENT_REFUSED, F8_COMPONENT_REFUSED);
SAME(FP8C_COMPONENT_VERSION, F8_COMPONENT_VERSION);
SAME(FP8C_COMPONENT_MISMATCHED, F8_COMPONENT_MISMATCHED);

static void add_jansson(f8_components *all)
{
    f8_component *c = f8_component_add(all, "more", "jansson", "reading and writing JSON", "");
    c->state = F8_COMPONENT_OK;
    c->version = JANSSON_VERSION;
    c->major = JANSSON_MAJOR_VERSION;
    c->problem = NULL;
    c->note = "part of the program";
}

static const f8_cuda_trial trial = {
    "#include \"fp8c.cuh\"\n"
    "struct trial_params { float *y; };\n"
    "F8_KERNEL(trial, 128, 1)\n{\n    p.y[f8_thread()] = 1.0f;\n}\n",
    f8_cuda_header, "fp8c.cuh"};

/* Only the libraries that code for a CPU needs, and no judgement. */
static f8_status look_at_cpu(fp8c_doctor *d, f8_diag *diag)
{
    f8_doctor_llvm(d);
    f8_components_onednn(&d->components, &d->ctx->allocator);
    return f8_arena_status(&d->arena, diag);
}

static f8_status look(fp8c_doctor *d, f8_diag *diag)
{
    if (d->options.cpu_only)
        return look_at_cpu(d, diag);
    F8_TRY(f8_cuda_create(&d->ctx->settings.gpu, &d->ctx->allocator, &d->cuda, diag));
    f8_doctor_llvm(d);
    f8_components_onednn(&d->components, &d->ctx->allocator);
    f8_components_cuda(&d->components, d->cuda, &trial);
    f8_components_gpus(&d->components, &d->facts, d->cuda);
    f8_components_more(&d->components);
    add_jansson(&d->components);
    f8_doctor_facts(d);
    f8_doctor_judge(d);
    return f8_arena_status(&d->arena, diag);
}

static f8_status look_at_used(fp8c_doctor *d, const fp8c_program *program, f8_diag *diag)
{
    if (program->target->kind == F8_TARGET_CPU) {
        F8_TRY(f8_doctor_llvm_known(d, diag));
        f8_components_onednn(&d->components, &d->ctx->allocator);
    } else if (program->target->kind == F8_TARGET_CUDA) {
        F8_TRY(f8_cuda_create(&d->ctx->settings.gpu, &d->ctx->allocator, &d->cuda, diag));
        f8_components_cuda(&d->components, d->cuda, &trial);
        f8_components_gpus(&d->components, &d->facts, d->cuda);
    }
    return f8_arena_status(&d->arena, diag);
}

/* `used`: look only at what this program's target uses; NULL: as the options say. */
static fp8c_status create(fp8c_context *ctx, const fp8c_doctor_options *options,
                          const fp8c_program *used, fp8c_doctor **out)
{
    f8_diag diag = {0};
    *out = NULL;
    fp8c_doctor *d = f8_api_new(ctx, sizeof *d, 16, &diag);
    if (!d)
        return f8_api_result(ctx, &diag, diag.status);
    d->ctx = ctx;
    f8_arena_init(&d->arena, &ctx->allocator);
    d->options.struct_size = sizeof d->options;
    f8_status status = f8_api_options(&d->options, options, "fp8c_doctor_options", &diag);
    d->components.arena = d->facts.arena = &d->arena;
    d->components.before = d->options.before;
    d->components.user = d->options.user;
    if (status == F8_OK)
        status = used ? look_at_used(d, used, &diag) : look(d, &diag);
    if (status != F8_OK) {
        fp8c_doctor_destroy(d);
        return f8_api_result(ctx, &diag, status);
    }
    *out = d;
    return FP8C_OK;
}

fp8c_status fp8c_doctor_create(fp8c_context *ctx, const fp8c_doctor_options *options,
                               fp8c_doctor **out)
{
    return create(ctx, options, NULL, out);
}

fp8c_status f8_doctor_used(fp8c_context *ctx, const fp8c_program *program, fp8c_doctor **out)
{
    return create(ctx, NULL, program, out);
}

void fp8c_doctor_destroy(fp8c_doctor *d)
{
    if (!d)
        return;
    f8_cuda_destroy(d->cuda);
    f8_arena_end(&d->arena);
    f8_api_delete(d->ctx, d, sizeof *d);
}

/* ---- what was found ---- */

fp8c_status fp8c_doctor_component(const fp8c_doctor *d, int index, fp8c_component *out)
{
    if (index < 0 || (size_t)index >= d->components.n)
        return FP8C_ERR_INPUT;
    const f8_component *c = d->components.item[index];
    *out = (fp8c_component){
        .name = c->name,
        .kind = c->kind,
        .state = (fp8c_component_state)c->state,
        .version = c->version,
        .major = c->major,
        .path = c->path,
        .problem = c->problem,
        .note = c->note,
        .enables = c->enables,
        .places = c->places,
        .get = c->get,
    };
    return FP8C_OK;
}

fp8c_status fp8c_doctor_fact(const fp8c_doctor *d, int index, fp8c_fact *out)
{
    if (index < 0 || (size_t)index >= d->facts.n)
        return FP8C_ERR_INPUT;
    const f8_fact *f = &d->facts.item[index];
    *out = (fp8c_fact){f->group, f->name, f->value, f->advice};
    return FP8C_OK;
}

fp8c_status fp8c_doctor_target(const fp8c_doctor *d, int index, fp8c_target_report *out)
{
    if (index < 0 || index >= d->n_targets)
        return FP8C_ERR_INPUT;
    *out = d->target[index];
    return FP8C_OK;
}

/* ---- the test ---- */

static void failed(fp8c_doctor *d, fp8c_self_test *out, const char *where)
{
    static const char prefix[] = "error: ";
    const char *message = fp8c_context_message(d->ctx);
    if (!strncmp(message, prefix, strlen(prefix)))
        message += strlen(prefix);
    out->result = FP8C_TEST_FAILED;
    out->detail = f8_arena_printf(&d->arena, "%s%s", where, message);
}

/* What every target must give. It is computed once. */
static fp8c_status expect(fp8c_doctor *d, fp8c_self_test *out)
{
    if (d->expected)
        return FP8C_OK;
    f8_probe *probe = F8_NEW(&d->arena, f8_probe);
    if (!probe)
        return FP8C_ERR_MEMORY;
    const fp8c_status status = f8_probe_run(d->ctx, "reference", 0, false, probe);
    if (status == FP8C_OK)
        d->expected = probe;
    else
        failed(d, out, "target reference, with which it is compared: ");
    return status;
}

static void test(fp8c_doctor *d, const fp8c_target_report *t, fp8c_self_test *out)
{
    f8_probe *got = F8_NEW(&d->arena, f8_probe);
    if (!got || (t->can_run && expect(d, out) == FP8C_ERR_MEMORY)) {
        out->detail = "out of memory";
        return;
    }
    if (out->detail) /* expect failed */
        return;
    const double start = f8_seconds_now();
    /* "cuda" would ask a device that is not there */
    const char *name = !t->can_run && t->is ? t->is : t->name;
    const fp8c_status status =
        f8_probe_run(d->ctx, name, d->device[t - d->target], !t->can_run, got);
    out->seconds = f8_seconds_now() - start;
    if (status != FP8C_OK) {
        failed(d, out, "");
        return;
    }
    out->result = t->can_run ? FP8C_TEST_PASSED : FP8C_TEST_COMPILED;
    out->detail = t->can_run ? f8_probe_compare(got, d->expected, strcmp(t->name, "reference") != 0,
                                                &d->arena)
                             : NULL;
    if (out->detail)
        out->result = FP8C_TEST_FAILED;
}

fp8c_status fp8c_doctor_test(fp8c_doctor *d, int target, fp8c_self_test *out)
{
    *out = (fp8c_self_test){.result = FP8C_TEST_FAILED};
    if (target < 0 || target >= d->n_targets) {
        f8_diag diag = {0};
        f8_fail(&diag, F8_ERR_INPUT, F8_NOWHERE, "there is no target %d: there are %d", target,
                d->n_targets);
        return f8_api_result(d->ctx, &diag, F8_ERR_INPUT);
    }
    const fp8c_target_report *t = &d->target[target];
    if (!t->can_compile) {
        out->result = FP8C_TEST_NOT_RUN;
        return FP8C_OK;
    }
    if (d->options.before)
        d->options.before(d->options.user, t->name);
    test(d, t, out);
    return FP8C_OK;
}
