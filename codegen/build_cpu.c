/* The CPU as a target: batches of units become LLVM modules on a few threads, their objects one blob.
 *
 * A batch is a run of unit numbers, fixed before any thread starts, and objects are linked in batch
 * order, so the blob's bytes depend neither on threads nor on timing. */
#include "codegen/build_parts.h"

#include "codegen/build_threads.h"
#include "codegen/cpu_rows.h"
#include "codegen/cpu_scatter.h"
#include "codegen/link.h"
#include "ir/clock.h"

#include <stdio.h>
#include <string.h>

enum { BATCH = 4 };

typedef struct compilation {
    f8_build *b;
    const f8_llvm *llvm;
    f8_object *object; /* by batch */
    uint32_t n_batches;
} compilation;

static f8_status emit(f8_llvm_module *m, f8_build_unit *u, uint32_t number, f8_arena *arena,
                      f8_diag *d)
{
    char symbol[32];
    snprintf(symbol, sizeof symbol, "k%u", number);
    if (u->kind == F8_UNIT_ATTENTION)
        return f8_cpu_attention_emit(m, &u->attention, u->backward, symbol, u->phase, &u->n_phases,
                                     d);
    u->n_phases = 1;
    u->phase[0] = (f8_cpu_phase){0};
    memcpy(u->phase[0].symbol, symbol, sizeof symbol);
    if (u->kind == F8_UNIT_SCATTER)
        return f8_cpu_scatter_emit(m, u->dtype, symbol, d);
    u->phase[0].scratch = f8_cpu_rows_scratch(u->kernel);
    return f8_cpu_rows_emit(m, u->kernel, symbol, arena, d);
}

static const char *batch_name(void *user, uint32_t batch, uint32_t *n_kernels)
{
    const f8_build *b = ((const compilation *)user)->b;
    const uint32_t begin = batch * BATCH;
    *n_kernels = begin + BATCH < b->n_units ? BATCH : b->n_units - begin;
    return b->unit[begin].name;
}

/* For people: options.dump. */
static void dump_text(const f8_build_options *o, uint32_t batch, f8_llvm_module *m, f8_arena *arena)
{
    char file[40];
    snprintf(file, sizeof file, "llvm_%03u.ll", batch);
    const char *text = f8_llvm_module_text(m, arena);
    if (text)
        o->dump(o->dump_user, file, text);
}

static f8_status compile_batch(void *user, uint32_t batch, f8_arena *arena, f8_diag *d)
{
    const compilation *c = user;
    f8_build *b = c->b;
    const uint32_t begin = batch * BATCH;
    const uint32_t end = begin + BATCH < b->n_units ? begin + BATCH : b->n_units;
    const double start = f8_seconds_now();
    f8_llvm_module *m;
    F8_TRY(f8_llvm_module_begin(&m, c->llvm, "fp8c", d));
    f8_status s = F8_OK;
    for (uint32_t i = begin; i < end && s == F8_OK; i++)
        s = emit(m, &b->unit[i], i, arena, d);
    if (s == F8_OK && b->options->dump)
        dump_text(b->options, batch, m, arena);
    if (s == F8_OK)
        s = f8_llvm_module_compile(m, arena, &c->object[batch], d);
    f8_llvm_module_end(m);
    for (uint32_t i = begin; i < end; i++) /* LLVM compiles a module as one */
        b->unit[i].seconds = (f8_seconds_now() - start) / (end - begin);
    return s;
}

static f8_status link_blob(compilation *c)
{
    f8_build *b = c->b;
    f8_link_image image;
    F8_TRY(f8_link(c->object, c->n_batches, b->arena, &image, b->diag));
    b->plan->blob = image.bytes;
    b->plan->blob_bytes = (int64_t)image.size;
    b->plan->blob_code_bytes = (int64_t)image.code_size;
    for (uint32_t i = 0; i < b->n_units; i++)
        for (int n = 0; n < b->unit[i].n_phases; n++) {
            const f8_link_symbol *s = f8_link_find(&image, b->unit[i].phase[n].symbol);
            if (!s)
                return f8_fail(b->diag, F8_ERR_INTERNAL, F8_NOWHERE, "kernel '%s' was not linked",
                               b->unit[i].phase[n].symbol);
            b->unit[i].entry[n] = s->offset;
        }
    return F8_OK;
}

static f8_status compile_all(compilation *c)
{
    f8_build *b = c->b;
    f8_build_stats *stats = b->options->stats;
    f8_build_threads t = {
        .compile = compile_batch, .name = batch_name, .user = c, .n_batches = c->n_batches};
    c->object = F8_NEW_ARRAY(b->arena, f8_object, c->n_batches);
    if (!c->object)
        return f8_arena_status(b->arena, b->diag);
    f8_status s = f8_build_threads_run(&t, b->options, &(uint32_t){0}, b->diag);
    const double compiled = f8_seconds_now();
    if (s == F8_OK)
        s = link_blob(c);
    if (s == F8_OK && stats)
        stats->link = f8_seconds_now() - compiled;
    f8_build_threads_end(&t);
    return s;
}

static f8_status compile(f8_build *b)
{
    const f8_build_options *o = b->options;
    f8_llvm *llvm;
    const double start = f8_seconds_now();
    const f8_llvm_options lo = {.library = o->llvm, .cpu = o->cpu, .allocator = o->allocator};
    F8_TRY(f8_llvm_load(&llvm, &lo, b->diag));
    compilation c = {.b = b, .llvm = llvm, .n_batches = (b->n_units + BATCH - 1) / BATCH};
    const f8_status s = compile_all(&c);
    if (s == F8_OK && o->stats)
        o->stats->compile = f8_seconds_now() - start - o->stats->link;
    b->plan->n_kernels = b->n_units;
    f8_llvm_free(llvm);
    return s;
}

/* What compile makes, less the code. */
static f8_status size(f8_build *b)
{
    for (uint32_t i = 0; i < b->n_units; i++) {
        f8_build_unit *u = &b->unit[i];
        u->n_phases = 1;
        if (u->kind == F8_UNIT_ATTENTION)
            F8_TRY(f8_cpu_attention_sizes(&u->attention, u->backward, u->phase, &u->n_phases,
                                          b->diag));
        else if (u->kind == F8_UNIT_ROWS)
            u->phase[0].scratch = f8_cpu_rows_scratch(u->kernel);
    }
    return F8_OK;
}

/* ---- the target ---- */

static int64_t rows_tasks(const f8_build *b, const f8_kernel *k, int64_t extent)
{
    (void)b;
    return f8_cpu_rows_tasks(k, extent);
}

static int64_t scatter_tasks(int64_t positions, int64_t columns)
{
    (void)positions;
    return f8_cpu_scatter_tasks(columns);
}

static f8_status choose_gemm(f8_build *b, f8_ref r, f8_gemm_desc *d)
{
    if (d->c != F8_F32)
        return f8_build_broken(b, r, "a GEMM of the CPU that does not write f32");
    d->algorithm = b->options->gemms ? f8_gemm_choose(b->options->gemms, d) : F8_GEMM_AUTO;
    return F8_OK;
}

/* The launches of one step: their phases in a row. */
static f8_status finish(f8_build *b, f8_step *s, const f8_build_draft *draft)
{
    int total = 0;
    for (uint32_t i = 0; i < draft->n_launches; i++)
        total += b->unit[draft->launch[i].unit].n_phases;
    s->phase = F8_NEW_ARRAY(b->arena, f8_step_phase, (size_t)total);
    if (!s->phase)
        return f8_arena_status(b->arena, b->diag);
    for (uint32_t i = 0; i < draft->n_launches; i++) {
        const f8_build_launch *l = &draft->launch[i];
        const f8_build_unit *u = &b->unit[l->unit];
        for (int n = 0; n < u->n_phases; n++)
            s->phase[s->n_phases++] = (f8_step_phase){
                .entry = u->entry[n], .n_tasks = *l->n_tasks ? *l->n_tasks : u->phase[n].n_tasks,
                .scratch = u->phase[n].scratch, .first_arg = l->first_arg, .first_int = l->first_int,
                .choice = l->choice};
    }
    return F8_OK;
}

static f8_status fill_stats(f8_build *b, f8_build_stats *s)
{
    s->kernel = F8_NEW_ARRAY(b->arena, f8_build_kernel, b->n_units + 1);
    if (!s->kernel)
        return f8_arena_status(b->arena, b->diag);
    s->n_kernels = b->n_units;
    for (uint32_t i = 0; i < b->n_units; i++) {
        const f8_build_unit *u = &b->unit[i];
        s->kernel[i] = (f8_build_kernel){.name = u->name, .text = u->text, .hash = u->hash,
                                         .launches = u->launches, .seconds = u->seconds};
    }
    s->code_bytes = b->plan->blob_code_bytes;
    return F8_OK;
}

const f8_build_target f8_build_cpu = {
    .rows_tasks = rows_tasks,
    .scatter_tasks = scatter_tasks,
    .gemm = choose_gemm,
    .compile = compile,
    .size = size,
    .finish = finish,
    .fill_stats = fill_stats,
};
