/* Compiling a module: options, passes, plan, and what the program runs on. See fp8c.h. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "frontend/arena.h"
#include "frontend/calibration.h"
#include "frontend/compile.h"
#include "frontend/options.h"
#include "frontend/target.h"
#include "ir/base/clock.h"
#include "ir/base/suggest.h"
#include "passes/grad/untrained.h"
#include "passes/unit/copy.h"
#include "passes/unit/cost.h"
#include "passes/pipeline.h"

/* Copy the module: passes rewrite the copy, so that one module compiles many times. */
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
    for (; c->n_dims < m->n_dims; c->n_dims++) {
        c->dim[c->n_dims] = m->dim[c->n_dims];
        c->dim[c->n_dims].name = f8_intern(c, m->dim[c->n_dims].name);
    }
    c->rule_room = c->n_rules;
    c->dim_room = c->n_dims;
    c->accumulate = m->accumulate;
    c->optimizer = m->optimizer;
    c->optimizer.schedule =
        f8_intern(c, m->optimizer.schedule ? m->optimizer.schedule : "constant");
    for (size_t i = 0; i < m->n_funcs; i++)
        F8_TRY(f8_copy_func(c, &m->func[i], m->func[i].name, arena));
    return f8_arena_status(arena, diag);
}

/* ---- compiling ---- */

static f8_status read_attention(f8_compilation *c, const char *name, f8_diag *diag)
{
    static const char *const names[] = {
        [F8_ATTENTION_TABLE] = "table", [F8_ATTENTION_OWN] = "own", [F8_ATTENTION_CUDNN] = "cudnn"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!name || !strcmp(name, names[i])) {
            c->attention = (f8_attention_algorithm)i;
            return c->attention != F8_ATTENTION_CUDNN || c->program->cuda
                       ? F8_OK
                       : f8_fail(diag, F8_ERR_UNSUPPORTED, F8_NOWHERE,
                                 "attention 'cudnn' needs a CUDA target");
        }
    return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                   "no attention '%s': there are table, own and cudnn", name);
}

/* Read how a GPU's kernels are launched. */
static f8_status read_launches(f8_compilation *c, f8_diag *diag)
{
    const char *needs = c->o->dependent_launch ? "dependent_launch"
                        : c->o->wgrad_branch   ? "wgrad_branch"
                                               : NULL;
    c->unit.options.wgrad_branch = c->o->wgrad_branch;
    return !needs || c->program->target->kind == F8_TARGET_CUDA
               ? F8_OK
               : f8_fail(diag, F8_ERR_UNSUPPORTED, F8_NOWHERE, "%s needs a CUDA target", needs);
}

/* Read which weights are stored as FP8, and how. */
static f8_status read_stored(f8_compilation *c, f8_diag *diag)
{
    const fp8c_compile_options *o = c->o;
    f8_options *out = &c->unit.options;
    f8_arena *arena = c->unit.arena;
    if (!o->stored && !o->n_stored_weights)
        return F8_OK;
    if (o->stored) {
        out->stored = &c->stored;
        return f8_recipe_parse(o->stored, F8_NOWHERE, &c->stored, diag);
    }
    f8_stored_as *list = F8_NEW_ARRAY(arena, f8_stored_as, o->n_stored_weights);
    if (!list)
        return f8_arena_status(arena, diag);
    for (size_t i = 0; i < o->n_stored_weights; i++) {
        if (!o->stored_weights[i].name || !o->stored_weights[i].recipe)
            return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                           "stored_weights[%zu] has no name or no recipe", i);
        list[i].name = f8_arena_strdup(arena, o->stored_weights[i].name);
        F8_TRY(f8_recipe_parse(o->stored_weights[i].recipe, F8_NOWHERE, &list[i].recipe, diag));
    }
    out->stored_as = list;
    out->n_stored_as = o->n_stored_weights;
    return f8_arena_status(arena, diag);
}

/* Read the memory budget. */
static f8_status read_budget(f8_compilation *c, f8_diag *diag)
{
    const fp8c_compile_options *o = c->o;
    f8_options *out = &c->unit.options;
    if (o->memory_bytes < 0)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE, "memory: a budget of %lld bytes is negative",
                       (long long)o->memory_bytes);
    if (o->memory_share && !(o->memory_share > 0 && o->memory_share < 1))
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                       "memory: a share of %g is not between 0 and 1", o->memory_share);
    if (out->target->kind == F8_TARGET_REFERENCE &&
        (o->memory_bytes || o->memory_share || o->checkpoint || o->recompute))
        return f8_fail(diag, F8_ERR_UNSUPPORTED, F8_NOWHERE,
                       "memory: target reference takes no budget: it interprets node by node");
    out->memory = (f8_budget){o->memory_bytes, o->memory_share};
    out->code_bytes = f8_compilation_code_bytes;
    out->code_bytes_user = c;
    out->checkpoint = o->checkpoint;
    out->recompute = o->recompute;
    return F8_OK;
}

static f8_status read_pair(const fp8c_compile_options *o, f8_options *out, f8_diag *diag)
{
    if (o->pair && o->keep && !o->train_step)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                       "keep names operands of micro_step, which a pair has only with train_step");
    out->pair = o->pair;
    out->cotangents = o->cotangents;
    out->gradients_of = o->gradients_of;
    out->add_gradients = o->add_gradients;
    out->train_step = o->train_step;
    return F8_OK;
}

/* Read what to watch. */
static f8_status read_statistics(f8_compilation *c, f8_diag *diag)
{
    const fp8c_compile_options *o = c->o;
    f8_options *out = &c->unit.options;
    out->stats = o->stats;
    out->dump = o->dump;
    if (!o->stats_recipe)
        return F8_OK;
    F8_TRY(f8_recipe_parse(o->stats_recipe, F8_NOWHERE, &c->stats_recipe, diag));
    out->stats_recipe = &c->stats_recipe;
    const f8_scaling s = c->stats_recipe.scaling;
    if (s != F8_SCALING_CURRENT && s != F8_SCALING_ROWWISE && s != F8_SCALING_BLOCK &&
        s != F8_SCALING_MX)
        return f8_fail(diag, F8_ERR_UNSUPPORTED, F8_NOWHERE,
                       "stats_recipe '%s' does not scale a value by its own amax; current, "
                       "rowwise, block and mxfp8 do",
                       o->stats_recipe);
    return F8_OK;
}

/* An option that is one of two words; NULL: the first. */
static f8_status read_choice(const char *option, const char *given, const char *first,
                             const char *second, bool *is_second, f8_diag *diag)
{
    *is_second = given && !strcmp(given, second);
    return !given || *is_second || !strcmp(given, first)
               ? F8_OK
               : f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE, "%s: '%s' is neither %s nor %s", option,
                         given, first, second);
}

/* Read how many ranks there are, and what they share. */
static f8_status read_ranks(f8_compilation *c, f8_diag *diag)
{
    const f8_comm *comm = f8_program_comm(c->program);
    const int32_t asked = c->o->ranks, given = comm ? comm->ranks : 1;
    if (asked < 0 || asked > F8_MAX_RANKS)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE, "ranks: %d is not from 1 to %d", asked,
                       F8_MAX_RANKS);
    if (asked && asked != given && (comm || !c->program->run.no_device))
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                       comm ? "ranks: %d are asked for, but comm has %d"
                            : "ranks: to run on %d, comm must say how they exchange bytes",
                       asked, given);
    c->unit.options.ranks = asked ? asked : given;
    if (c->o->zero < -1 || c->o->zero > 3)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                       "zero: %d is no stage of ZeRO: there are 1, 2 and 3, and -1 for none",
                       c->o->zero);
    c->unit.options.zero = c->o->zero;
    F8_TRY(read_choice("reduce_dtype", c->o->reduce_dtype, "f32", "bf16",
                       &c->unit.options.reduce_bf16, diag));
    F8_TRY(read_choice("reduce_order", c->o->reduce_order, "ranks", "library",
                       &c->unit.options.library_sums, diag));
    if (c->unit.options.library_sums && comm && comm->ranks > 1 && !comm->all_reduce &&
        c->program->target->kind != F8_TARGET_CUDA)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                       "reduce_order \"library\": comm has no all_reduce and reduce_scatter of its "
                       "own");
    return read_choice("reduce_at", c->o->reduce_at, "micro_step", "update",
                       &c->unit.options.reduce_update, diag);
}

/* Fails with the names of all passes. */
static f8_status no_pass(const char *name, f8_diag *diag)
{
    char names[512] = "", hint[80];
    for (size_t i = 0, n = 0; f8_pass_name(i) && n < sizeof names; i++)
        n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", i ? ", " : "", f8_pass_name(i));
    return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE, "no pass '%s'%s: there are %s", name,
                   f8_suggest_listed(name, strlen(name), names, hint, sizeof hint), names);
}

static f8_status read_options(f8_compilation *c, f8_diag *diag)
{
    const fp8c_compile_options *o = c->o;
    f8_options *out = &c->unit.options;
    F8_TRY(f8_options_check(o, diag));
    F8_TRY(f8_recipe_parse(o->recipe ? o->recipe : "bf16", F8_NOWHERE, &c->recipe, diag));
    out->target = c->program->target;
    out->recipe = &c->recipe;
    if (c->recipe.scaling == F8_SCALING_AUTO) {
        out->chosen = c->request->chosen;
        out->n_chosen = c->request->n_chosen;
    }
    F8_TRY(read_stored(c, diag));
    F8_TRY(read_budget(c, diag));
    F8_TRY(read_attention(c, o->attention, diag));
    F8_TRY(read_launches(c, diag));
    F8_TRY(read_statistics(c, diag));
    F8_TRY(read_ranks(c, diag));
    if (o->witness && out->target->kind == F8_TARGET_REFERENCE)
        return f8_fail(diag, F8_ERR_UNSUPPORTED, F8_NOWHERE,
                       "witness: target reference is the witness: it has no plan to judge");
    out->no_fuse = o->no_fuse;
    out->requantize = o->requantize;
    out->frozen = o->frozen;
    out->inference = o->inference;
    out->observe = o->observe;
    F8_TRY(read_pair(o, out, diag));
    if (o->lr && !(o->lr > 0 && isfinite(o->lr)))
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE, "lr: %g is not a positive number", o->lr);
    if (o->optimizer_steps < 0)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE, "optimizer_steps: %lld is negative",
                       (long long)o->optimizer_steps);
    out->lr = o->lr;
    out->optimizer_steps = o->optimizer_steps;
    out->keep = o->keep;
    out->print_after = o->print_after;
    out->print_to = (f8_writer){o->write, o->write_user};
    out->log = &c->program->ctx->log;
    out->progress = &c->program->ctx->progress;
    if (!o->print_after)
        return F8_OK;
    for (size_t i = 0; f8_pass_name(i); i++)
        if (!strcmp(f8_pass_name(i), o->print_after))
            return o->write ? F8_OK
                            : f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                                      "print_after needs the callback `write`");
    return no_pass(o->print_after, diag);
}

static bool wants_listings(const fp8c_compile_options *o)
{
    return o->listings || o->text_only;
}

/* The bytes that the finished graph takes. To count them a plan is made, which may take long. The
 * passes are over, so this is a phase of its own, in which the plan can be cancelled. */
static f8_status find_bytes(f8_compilation *c, f8_code_bytes *bytes, f8_diag *diag)
{
    f8_unit *u = &c->unit;
    f8_unit_listen(u, "budget", 1);
    f8_status status = f8_progress_at(&u->phase, 0, "memory", diag);
    if (status == F8_OK)
        status = f8_compilation_code_bytes(c, u, bytes);
    return f8_unit_end(u, status);
}

static f8_status build_plan(f8_compilation *c, f8_diag *diag)
{
    const fp8c_compile_options *o = c->o;
    fp8c_context *ctx = c->program->ctx;
    f8_variant *v = c->variant;
    const f8_cpu_level *level = c->program->level;
    f8_build_options build = {.target = c->program->target,
                              .cpu = level ? level->llvm : NULL,
                              .gemm_algorithm =
                                  /* every CPU has it, and f64, which small products take */
                              level ? F8_GEMM_ONEDNN_F32 : F8_GEMM_AUTO,
                              .cuda = c->program->cuda,
                              .attention = c->attention,
                              .dependent_launch = o->dependent_launch,
                              .want_texts = wants_listings(o),
                              .text_only = o->text_only,
                              .no_code = o->plan_only,
                              .allocator = &ctx->allocator,
                              .stats = &c->stats,
                              .choices = c->tuned.use,
                              .log = &ctx->log,
                              .progress = &ctx->progress,
                              .unmerged = o->witness,
                              .dump = c->dump.folder[0] ? f8_dump_text : NULL,
                              .dump_user = &c->dump};
    if (c->program->target->kind == F8_TARGET_REFERENCE)
        return f8_build_interface(c->unit.module, c->program->target, &v->arena, &v->plan, diag);
    if (c->unit.options.memory.bytes > 0) {
        f8_code_bytes bytes;
        F8_TRY(find_bytes(c, &bytes, diag));
        build.arena_most = c->unit.options.memory.bytes - (bytes.total - bytes.arena);
    }
    if (!o->plan_only && !o->text_only)
        F8_TRY(f8_api_cache(ctx, &build.cache, diag));
    if (c->program->cuda) /* on a CPU these are for runs, and compiling has its own count */
        build.threads = c->program->threads;
    if (ctx->parallel.run) /* who lends threads wants no others; those only run programs */
        build.threads = 1;
    F8_TRY(f8_build_plan(c->unit.module, &build, &v->arena, &v->plan, diag));
    if (c->program->target->kind == F8_TARGET_CPU)
        v->plan.needs = level ? f8_cpu_level_features(level) : f8_cpu_detect();
    v->plan.target = f8_arena_strdup(&v->arena, f8_target_text(c->program));
    return f8_arena_status(&v->arena, diag);
}

static void begin_dump(f8_compilation *c, const f8_module *source)
{
    const fp8c_context *ctx = c->program->ctx;
    if (ctx->settings.dump)
        f8_dump_begin(&c->dump, ctx->settings.dump, source->name, c->program->target->name,
                      &ctx->log);
    if (c->dump.folder[0]) {
        c->unit.options.show = f8_dump_show;
        c->unit.options.show_user = &c->dump;
    }
}

static void say_summary(const f8_compilation *c)
{
    const f8_variant *v = c->variant;
    f8_log_say(&c->program->ctx->log, F8_LOG_INFO,
               "module %s for %s: %u kernels, ready in %.3f s%s%s", c->unit.module->name,
               c->program->target->name, v->plan.n_kernels, v->report.compile_seconds,
               c->dump.folder[0] ? "; dumped into " : "", c->dump.folder);
}

/* A budget that can't be met: adds how much of it cuDNN's attention takes, if a table chose that.
 * It is not given up for the budget, because that would change bits. */
static f8_status with_hint(const f8_compilation *c, f8_status status, f8_diag *diag)
{
    const size_t n = strlen(diag->text);
    if (status == F8_ERR_UNSUPPORTED && c->o->memory_bytes > 0 && c->attention_workspace > 0 &&
        c->attention == F8_ATTENTION_TABLE)
        snprintf(diag->text + n, sizeof diag->text - n,
                 "; cuDNN's attention takes a workspace of %lld bytes outside the arena, attention "
                 "'own' takes none",
                 (long long)c->attention_workspace);
    return status;
}

static void note_ranks(const f8_unit *u, f8_plan *plan)
{
    plan->ranks = f8_unit_ranks(u) > 1 ? f8_unit_ranks(u) : 0;
    for (size_t i = 0; i < u->n_shards; i++)
        plan->var[u->shard[i].var].rows = u->shard[i].rows;
}

/* Compile the source to a plan that runs, with its compile report. */
static f8_status make_variant(f8_compilation *c, const f8_module *source, f8_diag *diag)
{
    const double start = f8_seconds_now();
    f8_variant *v = c->variant;
    F8_TRY(read_options(c, diag));
    begin_dump(c, source);
    F8_TRY(clone_module(source, c->unit.arena, diag, &c->unit.module));
    F8_TRY(f8_tuned_begin(&c->tuned, c->program, &c->gemms, c->unit.arena, diag));
    const f8_status passed = f8_run_passes(&c->unit);
    if (passed != F8_OK)
        return with_hint(c, passed, diag);
    for (size_t i = 0; i < c->unit.module->n_funcs; i++)
        if (c->unit.module->func[i].lowered)
            f8_cost_note(&c->unit.module->func[i], c->program->target);
    F8_TRY(build_plan(c, diag));
    note_ranks(&c->unit, &v->plan);
    F8_TRY(f8_variant_start(c->program, v, c->unit.module, diag));
    const bool listed = wants_listings(c->o);
    F8_TRY(f8_compile_report_make(&c->unit, c->program->cuda || listed ? &c->stats : NULL, listed,
                                  &v->arena, &v->report));
    if (c->program->target->kind != F8_TARGET_REFERENCE)
        F8_TRY(f8_compilation_check_budget(c, diag));
    v->report.kernels_cached = c->stats.n_cached;
    v->report.tuning_table = f8_arena_strdup(&v->arena, c->tuned.table_says);
    v->report.compile_seconds = f8_seconds_now() - start;
    say_summary(c);
    return F8_OK;
}

/* The module goes on after the compile, whose diag ends. */
static void set_diag(f8_module *m, f8_diag *own)
{
    m->diag = own;
    for (size_t i = 0; i < m->n_funcs; i++)
        m->func[i].graph->diag = own;
}

static f8_status outlive(f8_module *m, f8_arena *arena, f8_diag *compile)
{
    f8_diag *own = F8_NEW(arena, f8_diag);
    if (!own)
        return f8_arena_status(arena, compile);
    set_diag(m, own);
    return F8_OK;
}

/* Keep what the calibration needs that c compiled for, with the options that it reads. */
static f8_status keep_unit(const f8_compilation *c, f8_diag *diag)
{
    f8_arena *graph = &c->variant->graph;
    f8_unit *u = F8_NEW(graph, f8_unit);
    f8_recipe *recipe = F8_NEW(graph, f8_recipe);
    if (!u || !recipe)
        return f8_arena_status(graph, diag);
    *u = c->unit;
    F8_TRY(outlive(u->module, graph, diag));
    u->diag = u->module->diag;
    *recipe = c->recipe;
    u->options = (f8_options){.target = c->program->target, .recipe = recipe, .calibrate = true};
    c->program->unit = u;
    return F8_OK;
}

/* Keep the lowered functions, which a witness reads. Free all else that the passes have made. */
static f8_status keep_lowered(f8_variant *v, const f8_module *m, f8_diag *diag)
{
    f8_arena kept;
    f8_arena_init(&kept, &v->graph.allocator);
    f8_diag *own = F8_NEW(&kept, f8_diag); /* that of the compilation ends before the copy */
    f8_module *copy = own ? f8_lowered_copy(m, &kept, own) : NULL;
    f8_status status = f8_arena_status(&kept, diag);
    if (status == F8_OK && !copy)
        status = f8_fail(diag, F8_ERR_MEMORY, F8_NOWHERE, "%s", own->text);
    if (status != F8_OK) {
        f8_arena_end(&kept);
        return status;
    }
    f8_arena_end(&v->graph);
    v->graph = kept;
    v->lowered = copy;
    return F8_OK;
}

/* Whether budgets can be asked for later. */
static bool takes_budgets(const f8_compilation *c)
{
    const fp8c_compile_options *o = c->o;
    return o->plan_only && !o->memory_bytes && !o->memory_share && !o->checkpoint &&
           !o->recompute && !o->pair && c->program->target->kind != F8_TARGET_REFERENCE &&
           f8_module_find_func(c->unit.module, "micro_step");
}

/* The unit goes on, too. */
static void keep_planning(f8_planning *k)
{
    f8_unit *u = &k->c.unit;
    u->diag = &k->diag;
    set_diag(u->module, &k->diag);
    k->c.variant->planning = k;
    k->c.variant->gemms = k->c.gemms;
}

f8_status f8_compile_variant(fp8c_program *p, const f8_module *source,
                             const f8_compile_request *request, f8_diag *diag)
{
    f8_variant *v = f8_program_add(p, diag);
    if (!v)
        return diag->status;
    p->now = v;
    f8_planning *planning = F8_NEW(&v->graph, f8_planning);
    if (!planning)
        return f8_arena_status(&v->graph, diag);
    f8_compilation *c = &planning->c;
    planning->request = *request;
    *c = (f8_compilation){
        .program = p, .variant = v, .request = &planning->request, .o = &planning->request.o};
    c->unit = (f8_unit){.arena = &v->graph, .diag = diag, .options.calibrate = request->calibrate};
    const f8_status status = make_variant(c, source, diag);
    if (status == F8_OK && takes_budgets(c)) {
        keep_planning(planning);
        return F8_OK;
    }
    f8_gemm_lib_destroy(c->gemms);
    if (status == F8_OK && request->calibrate)
        return keep_unit(c, diag);
    if (status == F8_OK && request->o.witness)
        return keep_lowered(v, c->unit.module, diag);
    if (p->target->kind != F8_TARGET_REFERENCE)
        f8_arena_end(&v->graph);
    return status;
}

/* A run in high precision is so everywhere, since FP8 is compared with it. Say so where the caller
 * added rules, and not only wrote them into the text, which all runs share. */
static void warn_of_rules(const f8_module *m, const char *recipe, const f8_log *log)
{
    f8_diag unread = {0};
    f8_recipe all, own;
    const f8_recipe_rule *first = NULL;
    size_t n = 0;
    if (f8_recipe_parse(recipe ? recipe : "bf16", F8_NOWHERE, &all, &unread) != F8_OK ||
        all.scaling != F8_SCALING_NONE)
        return;
    for (size_t i = 0; i < m->n_rules; i++) {
        const f8_recipe_rule *r = &m->rule[i];
        if (!r->added || (f8_recipe_parse(r->recipe, r->loc, &own, &unread) == F8_OK &&
                          !strcmp(own.name, all.name)))
            continue;
        first = first ? first : r;
        n++;
    }
    char text[512];
    if (first)
        f8_log_say(log, F8_LOG_WARNING, "recipe %s overrides %zu added rule%s, as recipe %s",
                   all.name, n, n > 1 ? "s" : "", f8_rule_print(first, text, sizeof text));
}

static f8_status build_program(fp8c_program *p, const fp8c_module *module,
                               const f8_compile_request *request, f8_diag *diag)
{
    const fp8c_compile_options *o = &request->o;
    f8_run_options run = F8_RUN_OPTIONS(o);
    run.no_device = o->no_device || o->text_only || o->plan_only;
    F8_TRY(f8_arena_of(p->ctx, o->arena, &run.work, diag));
    F8_TRY(f8_program_set_run(p, run, o->threads, diag));
    F8_TRY(f8_program_set_comm(p, o->comm, diag));
    F8_TRY(f8_program_note_module(p, module->ir, o, diag));
    F8_TRY(f8_target_choose(p, o->target ? o->target : "cpu", diag));
    p->plan_only = o->plan_only;
    /* A calibration and the tuner compile on behalf of another compile, which warns. */
    if (!o->inference && !o->pair && !request->calibrate && !p->tuner)
        F8_TRY(f8_warn_of_untrained(module->ir, o->frozen, &p->ctx->log, diag));
    if (!request->calibrate && !p->tuner)
        warn_of_rules(module->ir, o->recipe, &p->ctx->log);
    F8_TRY(f8_compile_variant(p, module->ir, request, diag));
    p->run.work = NULL; /* the first variant holds it, and those to come have its memory */
    if (!request->calibrate)
        F8_TRY(f8_source_keep(p, module, request, diag));
    return f8_variables_begin(p, diag);
}

static fp8c_status compile(const fp8c_module *module, const fp8c_compile_options *options,
                           bool calibrate, const f8_tuner_compile *tuner, fp8c_program **out)
{
    *out = NULL;
    fp8c_context *ctx = module->ctx;
    f8_diag diag = {0};
    diag.file = module->ir->file;
    f8_compile_request request = {.o.struct_size = sizeof request.o, .calibrate = calibrate};
    if (f8_api_options(&request.o, options, "fp8c_compile_options", &diag) != F8_OK)
        return f8_api_result(ctx, &diag, diag.status);
    if (calibrate || tuner) /* such a program is ours to run */
        request.o.external = NULL, request.o.arena = NULL;
    const fp8c_calibration *calibration = request.o.calibration;
    if (calibration && calibration->batches) { /* before the first batch there is no choice */
        request.chosen = calibration->trial;
        request.n_chosen = calibration->n_trials;
    }
    fp8c_program *p = f8_program_create(ctx, &diag);
    if (!p)
        return f8_api_result(ctx, &diag, diag.status);
    p->tuner = tuner;
    f8_status status = module->building ? f8_fail(&diag, F8_ERR_INPUT, F8_NOWHERE,
                                                  "a function is still being built")
                                        : f8_check_recipe_rules(module->ir, &diag);
    if (status == F8_OK)
        status = build_program(p, module, &request, &diag);
    if (status != F8_OK) {
        f8_api_fail(ctx, &diag, status, module->text, module->text_size);
        fp8c_program_destroy(p);
        return (fp8c_status)status;
    }
    p->tuner = NULL;
    *out = p;
    return FP8C_OK;
}

fp8c_status fp8c_compile(const fp8c_module *module, const fp8c_compile_options *options,
                         fp8c_program **out)
{
    return compile(module, options, false, NULL, out);
}

fp8c_status f8_compile_tuning(const fp8c_module *module, const fp8c_compile_options *options,
                              const f8_tuner_compile *tuner, fp8c_program **out)
{
    return compile(module, options, false, tuner, out);
}

fp8c_status f8_compile_calibrating(const fp8c_module *module, const fp8c_compile_options *options,
                                   fp8c_program **out)
{
    return compile(module, options, true, NULL, out);
}
