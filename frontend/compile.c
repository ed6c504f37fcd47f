/* Compiling a module: options, passes, plan, and what the program runs on. See fp8c.h. */
#include <stdio.h>
#include <string.h>

#include "frontend/parse.h"
#include "frontend/program.h"
#include "ir/clock.h"
#include "passes/copy.h"

/* A copy that passes may rewrite, so that one module compiles many times. */
static f8_status clone_module(const f8_module *m, f8_arena *arena, f8_diag *diag, f8_module **out)
{
    f8_module *c = f8_module_create(arena, diag, m->name, m->file);
    if (!c)
        return diag->status;
    *out = c;
    for (size_t i = 0; i < m->n_vars; i++)
        if (f8_module_var(c, &m->var[i]) < 0)
            return diag->status;
    c->rule = F8_NEW_ARRAY(arena, f8_recipe_rule, m->n_rules);
    c->dim = F8_NEW_ARRAY(arena, f8_dim, m->n_dims);
    if (!c->rule || !c->dim)
        return f8_arena_status(arena, diag);
    for (; c->n_rules < m->n_rules; c->n_rules++) {
        const f8_recipe_rule *r = &m->rule[c->n_rules];
        c->rule[c->n_rules] = *r;
        c->rule[c->n_rules].pattern = r->pattern ? f8_intern(c, r->pattern) : NULL;
        c->rule[c->n_rules].recipe = f8_intern(c, r->recipe);
        c->rule[c->n_rules].origin = r->origin ? f8_intern(c, r->origin) : NULL;
    }
    for (; c->n_dims < m->n_dims; c->n_dims++)
        c->dim[c->n_dims] = (f8_dim){f8_intern(c, m->dim[c->n_dims].name), m->dim[c->n_dims].value,
                                     m->dim[c->n_dims].loc};
    c->rule_room = c->n_rules;
    c->dim_room = c->n_dims;
    c->accumulate = m->accumulate;
    c->optimizer = m->optimizer;
    c->optimizer.schedule = f8_intern(c, m->optimizer.schedule ? m->optimizer.schedule : "constant");
    for (size_t i = 0; i < m->n_funcs; i++) {
        const f8_func *from = &m->func[i];
        f8_func *to = f8_module_func(c, from->name);
        f8_ref *map = F8_NEW_ARRAY(arena, f8_ref, from->graph->n_nodes);
        if (!to || !map)
            return diag->status != F8_OK ? diag->status : f8_arena_status(arena, diag);
        F8_TRY(f8_copy_body(from, to, map, arena));
        for (size_t k = 0; k < from->n_out; k++)
            F8_TRY(f8_func_result(to, from->out[k].name, map[from->out[k].ref], from->out[k].var));
    }
    return f8_arena_status(arena, diag);
}

/* ---- the target ---- */

/* The names of all targets, or of those for a device, into `names`, which is returned. */
static const char *list_targets(char *names, size_t size, bool devices)
{
    size_t n = 0;
    const char *name;
    names[0] = 0;
    for (int i = 0; (name = fp8c_target_name(i)) && n < size; i++) {
        const f8_target *t = f8_target_by_name(name);
        if (!devices || (t && t->kind == F8_TARGET_CUDA))
            n += (size_t)snprintf(names + n, size - n, "%s%s", n ? ", " : "", name);
    }
    return names;
}

/* What the GPU present is, and whether it can run `wanted` (NULL: whatever it is). */
static f8_status ask_device(fp8c_program *p, int ordinal, const f8_target *wanted, const f8_target **out,
                            f8_diag *diag)
{
    f8_cuda_facts facts;
    F8_TRY(f8_cuda_device(p->cuda, ordinal, diag));
    F8_TRY(f8_cuda_device_facts(p->cuda, &facts, diag));
    *out = f8_target_for_sm(facts.sm);
    if (!*out) {
        char names[256];
        return f8_fail(diag, F8_ERR_UNSUPPORTED, F8_NOWHERE,
                       "device %d, %s, has compute capability %d.%d: there are targets for %s only", ordinal,
                       facts.name, facts.sm / 10, facts.sm % 10, list_targets(names, sizeof names, true));
    }
    if (wanted && wanted != *out)
        return f8_fail(diag, F8_ERR_UNSUPPORTED, F8_NOWHERE,
                       "code for %s can't run on device %d, %s, which is %s (no_device compiles without one)",
                       wanted->name, ordinal, facts.name, (*out)->name);
    return F8_OK;
}

/* The row of the target asked for; for a CUDA one also p->cuda. */
static f8_status choose_target(fp8c_program *p, const fp8c_compile_options *o, f8_diag *diag)
{
    const char *name = o->target ? o->target : "cpu";
    const f8_target *t = f8_target_by_name(name);
    const bool present = !strcmp(name, "cuda");
    char names[256];
    if (!t && !present)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE, "no target '%s': there are %s", name,
                       list_targets(names, sizeof names, false));
    p->unit.options.target = t;
    if (t && t->kind != F8_TARGET_CUDA)
        return F8_OK;
    if (o->device < 0)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE, "device: %d is no ordinal", o->device);
    if (!o->device_alloc != !o->device_free)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE, "device_alloc and device_free: both or none");
    F8_TRY(f8_api_gpu(p->ctx, o->device, &p->cuda, diag));
    return present || !(o->no_device || o->text_only || o->plan_only)
               ? ask_device(p, o->device, t, &p->unit.options.target, diag)
               : F8_OK;
}

const char *fp8c_target_name(int index)
{
    const f8_target *t = index < 0 ? NULL : f8_target_at((size_t)index);
    if (t)
        return t->name;
    return index > 0 && f8_target_at((size_t)index - 1) ? "cuda" : NULL;
}

/* ---- compiling ---- */

static f8_status read_attention(fp8c_program *p, const char *name, f8_diag *diag)
{
    static const char *const names[] = {
        [F8_ATTENTION_TABLE] = "table", [F8_ATTENTION_OWN] = "own", [F8_ATTENTION_CUDNN] = "cudnn"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!name || !strcmp(name, names[i])) {
            p->attention = (f8_attention_algorithm)i;
            return p->attention != F8_ATTENTION_CUDNN || p->cuda
                       ? F8_OK
                       : f8_fail(diag, F8_ERR_UNSUPPORTED, F8_NOWHERE, "attention by cuDNN is for CUDA targets");
        }
    return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE, "no attention '%s': there are table, own and cudnn", name);
}

/* What weights are stored as FP8, and how. */
static f8_status read_stored(fp8c_program *p, const fp8c_compile_options *o, f8_diag *diag)
{
    f8_options *out = &p->unit.options;
    if (!o->stored && !o->n_stored_weights)
        return F8_OK;
    if (!o->inference)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE, "weights are stored in FP8 for inference alone");
    if (o->stored && o->n_stored_weights)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE, "stored and stored_weights: one of the two");
    if (o->stored) {
        out->stored = &p->stored;
        return f8_recipe_parse(o->stored, F8_NOWHERE, &p->stored, diag);
    }
    f8_stored_as *list = F8_NEW_ARRAY(&p->arena, f8_stored_as, o->n_stored_weights);
    if (!list)
        return f8_arena_status(&p->arena, diag);
    for (size_t i = 0; i < o->n_stored_weights; i++) {
        if (!o->stored_weights[i].name || !o->stored_weights[i].recipe)
            return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE, "stored_weights[%zu] has no name or no recipe", i);
        list[i].name = f8_arena_strdup(&p->arena, o->stored_weights[i].name);
        F8_TRY(f8_recipe_parse(o->stored_weights[i].recipe, F8_NOWHERE, &list[i].recipe, diag));
    }
    out->stored_as = list;
    out->n_stored_as = o->n_stored_weights;
    return f8_arena_status(&p->arena, diag);
}

/* How much memory the program may take. */
static f8_status read_budget(fp8c_program *p, const fp8c_compile_options *o, f8_diag *diag)
{
    f8_options *out = &p->unit.options;
    if (o->memory_bytes < 0)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE, "memory: %lld bytes",
                       (long long)o->memory_bytes);
    if (o->memory_share && !(o->memory_share > 0 && o->memory_share < 1))
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                       "memory: a share of %g is not between 0 and 1", o->memory_share);
    if (o->memory_bytes && o->memory_share)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE, "memory: bytes or a share, one of the two");
    if (out->target && out->target->kind == F8_TARGET_REFERENCE &&
        (o->memory_bytes || o->memory_share || o->checkpoint || o->recompute))
        return f8_fail(diag, F8_ERR_UNSUPPORTED, F8_NOWHERE,
                       "memory: the reference target interprets node by node and plans no memory");
    out->memory = (f8_budget){o->memory_bytes, o->memory_share};
    out->code_bytes = f8_program_code_bytes;
    out->code_bytes_user = p;
    p->plan_only = o->plan_only;
    out->checkpoint = o->checkpoint ? f8_arena_strdup(&p->arena, o->checkpoint) : NULL;
    out->recompute = o->recompute ? f8_arena_strdup(&p->arena, o->recompute) : NULL;
    return f8_arena_status(&p->arena, diag);
}

static f8_status read_options(fp8c_program *p, const fp8c_compile_options *o, f8_diag *diag)
{
    f8_options *out = &p->unit.options;
    const char *recipe = o->recipe ? o->recipe : "bf16";
    F8_TRY(f8_recipe_parse(recipe, F8_NOWHERE, &p->recipe, diag));
    out->recipe = &p->recipe;
    if (p->recipe.scaling == F8_SCALING_AUTO && o->calibration)
        out->chosen = f8_calibration_trials(o->calibration, &out->n_chosen);
    F8_TRY(read_stored(p, o, diag));
    F8_TRY(read_budget(p, o, diag));
    if (o->threads < 0 || o->threads > F8_POOL_MAX_THREADS)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE, "threads: %d is not 0 to %d", o->threads,
                       F8_POOL_MAX_THREADS);
    F8_TRY(read_attention(p, o->attention, diag));
    p->threads = o->threads;
    p->listings = o->listings || o->text_only;
    p->text_only = o->text_only;
    out->no_fuse = o->no_fuse;
    out->inference = o->inference;
    out->pair = o->pair;
    out->lr = o->lr;
    out->optimizer_steps = o->optimizer_steps;
    out->keep = o->keep ? f8_arena_strdup(&p->arena, o->keep) : NULL;
    out->print_after = o->print_after;
    out->print_to = (f8_writer){o->write, o->write_user};
    if (!o->print_after)
        return F8_OK;
    for (size_t i = 0; f8_pass_name(i); i++)
        if (!strcmp(f8_pass_name(i), o->print_after))
            return o->write ? F8_OK
                            : f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE, "print_after needs `write`");
    return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE, "no pass '%s'", o->print_after);
}

static f8_status build_plan(fp8c_program *p, f8_diag *diag)
{
    f8_build_options build = {.target = p->unit.options.target,
                              .cuda = p->cuda,
                              .attention = p->attention,
                              .want_ptx = p->listings,
                              .text_only = p->text_only,
                              .no_code = p->plan_only};
    if (p->unit.options.memory.bytes > 0) {
        f8_code_bytes bytes;
        F8_TRY(f8_program_code_bytes(p, &p->unit, &bytes));
        build.arena_most = p->unit.options.memory.bytes - (bytes.total - bytes.arena);
    }
    if (p->cuda) { /* on the CPU `threads` is of runs, and the count of compiling ones its own */
        build.threads = p->threads;
        build.stats = &p->stats;
    }
    return f8_build_plan(p->unit.module, &build, &p->arena, &p->plan, diag);
}

static f8_status create_instance(fp8c_program *p, const fp8c_compile_options *o, f8_diag *diag)
{
    const f8_allocator *allocator = &p->ctx->allocator;
    const f8_target_kind kind = p->unit.options.target->kind;
    if (kind == F8_TARGET_REFERENCE)
        return f8_instance_create_reference(&p->instance, p->unit.module, allocator, diag);
    if (kind == F8_TARGET_CPU) {
        const f8_exec_options run = {.n_threads = p->threads, .allocator = allocator, .profile = o->profile};
        return f8_instance_create_cpu(&p->instance, p->unit.module, &p->plan, &run, diag);
    }
    if (o->no_device || o->text_only)
        return F8_OK;
    const f8_cuda_exec_options run = {.allocator = allocator, .device_alloc = o->device_alloc,
                                      .device_free = o->device_free, .device_user = o->device_user,
                                      .stream = o->stream, .profile = o->profile};
    return f8_instance_create_cuda(&p->instance, p->unit.module, &p->plan, p->cuda, &run, diag);
}

/* What is planned in all; on a GPU what the libraries take is known only now. */
static f8_status check_budget(fp8c_program *p, f8_diag *diag)
{
    const int64_t most = p->unit.options.memory.bytes;
    if (p->instance.kind) {
        f8_instance_info run;
        p->instance.kind->info(&p->instance, &run);
        p->planned = run.planned_bytes;
    } else {
        F8_TRY(f8_program_plan_bytes(p, &p->plan, &p->planned, diag));
    }
    if (most <= 0 || p->planned <= most)
        return F8_OK;
    return f8_fail(
        diag, F8_ERR_UNSUPPORTED, F8_NOWHERE,
        "memory: %lld bytes were asked for; with what the GPU's libraries take it is %lld",
        (long long)most, (long long)p->planned);
}

static f8_status build_program(fp8c_program *p, const f8_module *source, const fp8c_compile_options *o,
                               f8_diag *diag)
{
    const double start = f8_seconds_now();
    p->unit = (f8_unit){.arena = &p->arena, .diag = diag, .options.calibrate = p->unit.options.calibrate};
    F8_TRY(choose_target(p, o, diag));
    F8_TRY(read_options(p, o, diag));
    F8_TRY(clone_module(source, &p->arena, diag, &p->unit.module));
    F8_TRY(f8_run_passes(&p->unit));
    const bool has_plan = p->unit.options.target->kind != F8_TARGET_REFERENCE;
    if (has_plan)
        F8_TRY(build_plan(p, diag));
    if (!o->plan_only)
        F8_TRY(create_instance(p, o, diag));
    if (has_plan) {
        F8_TRY(check_budget(p, diag));
        F8_TRY(f8_program_report(p, diag));
    }
    p->compile_seconds = f8_seconds_now() - start;
    return F8_OK;
}

static fp8c_status compile(const fp8c_module *module, const fp8c_compile_options *options, bool calibrate,
                           fp8c_program **out)
{
    *out = NULL;
    fp8c_context *ctx = module->ctx;
    f8_diag *diag = f8_api_begin(ctx);
    diag->file = module->ir->file;
    fp8c_compile_options own = {.struct_size = sizeof own};
    if (options) /* an older or newer caller's struct: take what both know */
        memcpy(&own, options, options->struct_size < sizeof own ? options->struct_size : sizeof own);
    fp8c_program *p = ctx->allocator.alloc(ctx->allocator.user, sizeof *p, 64);
    if (!p) {
        f8_fail(diag, F8_ERR_MEMORY, F8_NOWHERE, "out of memory: %zu bytes were wanted", sizeof *p);
        return f8_api_fail(ctx, F8_ERR_MEMORY, NULL, 0);
    }
    *p = (fp8c_program){.ctx = ctx, .unit.options.calibrate = calibrate};
    f8_arena_init(&p->arena, &ctx->allocator);
    f8_status status = module->building
                           ? f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE, "a function is still being built")
                           : f8_check_recipe_rules(module->ir, diag);
    if (status == F8_OK)
        status = build_program(p, module->ir, &own, diag);
    f8_gemm_lib_destroy(p->gemms);
    p->gemms = NULL;
    if (status != F8_OK) {
        f8_api_fail(ctx, status, module->text, module->text_size);
        fp8c_program_destroy(p);
        return (fp8c_status)status;
    }
    *out = p;
    return FP8C_OK;
}

fp8c_status fp8c_compile(const fp8c_module *module, const fp8c_compile_options *options, fp8c_program **out)
{
    return compile(module, options, false, out);
}

fp8c_status f8_compile_calibrating(const fp8c_module *module, const fp8c_compile_options *options,
                                   fp8c_program **out)
{
    return compile(module, options, true, out);
}

void fp8c_program_destroy(fp8c_program *p)
{
    if (!p)
        return;
    f8_instance_destroy(&p->instance);
    f8_arena_end(&p->arena);
    const f8_allocator allocator = p->ctx->allocator;
    allocator.free(allocator.user, p, sizeof *p);
}
