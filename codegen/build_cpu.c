/* The CPU as a target: batches of units become LLVM modules on a few threads, their objects one blob.
 *
 * A batch is a run of unit numbers, fixed before any thread starts, and objects are linked in batch
 * order, so the blob's bytes depend neither on threads nor on timing. */
#include "codegen/build_parts.h"

#include "codegen/cpu_rows.h"
#include "codegen/cpu_scatter.h"
#include "codegen/link.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { BATCH = 4, MOST_THREADS = 16 };

typedef struct pool {
    f8_build *b;
    const f8_llvm *llvm;
    f8_object *object; /* by batch */
    uint32_t n_batches;
    atomic_uint next;
    atomic_bool failed;
} pool;

typedef struct worker {
    pool *p;
    f8_arena arena; /* its objects, until linked */
    f8_diag diag;
    f8_status status;
    pthread_t thread;
    bool started;
} worker;

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

static f8_status compile_batch(worker *w, uint32_t batch)
{
    f8_build *b = w->p->b;
    const uint32_t begin = batch * BATCH;
    const uint32_t end = begin + BATCH < b->n_units ? begin + BATCH : b->n_units;
    const double start = f8_build_now();
    f8_llvm_module *m;
    F8_TRY(f8_llvm_module_begin(&m, w->p->llvm, "fp8c", &w->diag));
    f8_status s = F8_OK;
    for (uint32_t i = begin; i < end && s == F8_OK; i++)
        s = emit(m, &b->unit[i], i, &w->arena, &w->diag);
    if (s == F8_OK)
        s = f8_llvm_module_compile(m, &w->arena, &w->p->object[batch], &w->diag);
    f8_llvm_module_end(m);
    for (uint32_t i = begin; i < end; i++) /* LLVM compiles a module as one */
        b->unit[i].seconds = (f8_build_now() - start) / (end - begin);
    return s;
}

static void *work(void *user)
{
    worker *w = user;
    while (!atomic_load(&w->p->failed)) {
        const uint32_t batch = atomic_fetch_add(&w->p->next, 1);
        if (batch >= w->p->n_batches)
            break;
        w->status = compile_batch(w, batch);
        if (w->status != F8_OK)
            atomic_store(&w->p->failed, true);
    }
    return NULL;
}

/* The first worker is this thread; others that can't be started leave it their share. */
static f8_status run_workers(pool *p, worker *w, int n)
{
    for (int i = 1; i < n; i++)
        w[i].started = pthread_create(&w[i].thread, NULL, work, &w[i]) == 0;
    work(&w[0]);
    for (int i = 1; i < n; i++)
        if (w[i].started)
            pthread_join(w[i].thread, NULL);
    for (int i = 0; i < n; i++)
        if (w[i].status != F8_OK)
            return f8_fail(p->b->diag, w[i].status, w[i].diag.loc, "%s", w[i].diag.text);
    return F8_OK;
}

static f8_status link_blob(pool *p)
{
    f8_build *b = p->b;
    f8_link_image image;
    F8_TRY(f8_link(p->object, p->n_batches, b->arena, &image, b->diag));
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

static f8_status compile(f8_build *b)
{
    const f8_build_options *o = b->options;
    f8_llvm *llvm;
    const double start = f8_build_now();
    const f8_llvm_options lo = {.library = o->llvm, .cpu = o->cpu, .allocator = o->allocator};
    F8_TRY(f8_llvm_load(&llvm, &lo, b->diag));
    pool p = {.b = b, .llvm = llvm, .n_batches = (b->n_units + BATCH - 1) / BATCH};
    p.object = F8_NEW_ARRAY(b->arena, f8_object, p.n_batches);
    int n = o->threads > 0 ? o->threads : 2;
    n = n > MOST_THREADS ? MOST_THREADS : n;
    worker w[MOST_THREADS];
    memset(w, 0, sizeof w);
    for (int i = 0; i < n; i++) {
        w[i].p = &p;
        f8_arena_init(&w[i].arena, o->allocator);
    }
    f8_status s = p.object ? run_workers(&p, w, n) : f8_arena_status(b->arena, b->diag);
    const double compiled = f8_build_now();
    if (s == F8_OK)
        s = link_blob(&p);
    if (s == F8_OK && o->stats) {
        o->stats->compile = compiled - start;
        o->stats->link = f8_build_now() - compiled;
    }
    b->plan->n_kernels = b->n_units;
    for (int i = 0; i < n; i++)
        f8_arena_end(&w[i].arena);
    f8_llvm_free(llvm);
    return s;
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
                .scratch = u->phase[n].scratch, .first_arg = l->first_arg, .first_int = l->first_int};
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
    .finish = finish,
    .fill_stats = fill_stats,
};
