/* The CPU as a target. Each kernel becomes an LLVM module, whose object is taken from the cache or
 * compiled. All objects are linked into one blob.
 *
 * An object depends on its kernel source and the machine alone. Its symbols depend on the text of
 * the kernel, and objects are linked in the order of kernels. So the bytes of the blob depend
 * neither on threads or timing nor on what was in the cache. */
#include "codegen/cpu/build.h"

#include "codegen/cache/cached.h"
#include "codegen/cache/code_id.h"
#include "codegen/cpu/attention.h"
#include "codegen/cpu/rows.h"
#include "codegen/cpu/scatter.h"
#include "codegen/kernel/text.h"
#include "codegen/cpu/link.h"
#include "codegen/cpu/llvm_known.h"
#include "ir/base/clock.h"
#include "runtime/cpu/gemm.h"

#include <stdio.h>
#include <string.h>

/* The phases of a kernel, which the cache keeps before its object. n_tasks of a row kernel is not
 * used: it is that of the launch. */
typedef struct phases {
    int n;
    f8_cpu_phase at[F8_ATTENTION_MAX_PHASES];
} phases;

typedef struct f8_cpu_code {
    phases phases;
    uint64_t entry[F8_ATTENTION_MAX_PHASES];
} f8_cpu_code;

typedef struct compilation {
    f8_build *b;
    f8_cache *cache;      /* NULL: no cache */
    f8_llvm *llvm;        /* NULL: not loaded */
    const char *question, *identity; /* see llvm_known.h; LLVM's and the machine's identity */
    f8_object *object;    /* by kernel */
} compilation;

static f8_status begin_codes(f8_build *b)
{
    f8_cpu_code *code = F8_NEW_ARRAY(b->arena, f8_cpu_code, b->n_sources);
    for (uint32_t i = 0; code && i < b->n_sources; i++)
        b->source[i].cpu = &code[i];
    return f8_build_memory(b);
}

/* ---- compiling ---- */

/* The symbol of a kernel: the same in every plan, and different for every kernel. */
static void make_symbol(const f8_kernel_source *u, char symbol[48])
{
    char digits[33];
    memset(symbol, 0, 48);
    snprintf(symbol, 48, "k_%s", f8_hash_text(f8_hash_bytes(u->text, strlen(u->text)), digits));
}

static f8_status emit(f8_llvm_module *m, const f8_kernel_source *u, f8_arena *arena, f8_diag *d)
{
    phases *p = &u->cpu->phases;
    char symbol[48];
    make_symbol(u, symbol);
    if (u->kind == F8_SOURCE_ATTENTION)
        return f8_cpu_attention_emit(m, &u->attention, u->backward, symbol, p->at, &p->n, d);
    *p = (phases){.n = 1};
    memcpy(p->at[0].symbol, symbol, sizeof symbol);
    if (u->kind == F8_SOURCE_SCATTER)
        return f8_cpu_scatter_emit(m, u->dtype, symbol, d);
    p->at[0].scratch = f8_cpu_rows_scratch(u->kernel);
    return f8_cpu_rows_emit(m, u->kernel, symbol, arena, d);
}

/* Gives the IR to options.dump, for people to read. */
static void dump_text(const f8_build_options *o, uint32_t source, f8_llvm_module *m,
                      f8_arena *arena)
{
    char file[40];
    snprintf(file, sizeof file, "llvm_%03u.ll", source);
    const char *text = f8_llvm_module_text(m, arena);
    if (text)
        o->dump(o->dump_user, file, text);
}

static f8_status make(void *user, uint32_t i, f8_arena *arena, f8_diag *d)
{
    const compilation *c = user;
    f8_build *b = c->b;
    const double start = f8_seconds_now();
    f8_llvm_module *m;
    F8_TRY(f8_llvm_module_begin(&m, c->llvm, "fp8c", d));
    m->fast = f8_build_compiles_fast(&b->source[i]);
    f8_status s = emit(m, &b->source[i], arena, d);
    if (s == F8_OK && b->options->dump)
        dump_text(b->options, i, m, arena);
    if (s == F8_OK)
        s = f8_llvm_module_compile(m, arena, &c->object[i], d);
    f8_llvm_module_end(m);
    b->source[i].seconds = f8_seconds_now() - start;
    return s;
}

static const char *unit_name(void *user, uint32_t i, uint32_t *n_kernels)
{
    *n_kernels = 1;
    return ((const compilation *)user)->b->source[i].name;
}

/* ---- cache entries ---- */

/* The key: the emitters, LLVM and the machine, how it is compiled, and the text of the kernel. */
static const char *key(void *user, uint32_t i, f8_arena *arena)
{
    const compilation *c = user;
    const f8_kernel_source *u = &c->b->source[i];
    return f8_arena_printf(arena, "cpu kernel\ncode %s\n%s%s%s", f8_code_id, c->identity,
                           f8_build_compiles_fast(u) ? "compiled fast\n" : "", u->text);
}

static bool take(void *user, uint32_t i, const f8_cache_value *value)
{
    const compilation *c = user;
    phases p;
    if (value->size <= sizeof p)
        return false;
    memcpy(&p, value->bytes, sizeof p);
    if (p.n < 1 || p.n > F8_ATTENTION_MAX_PHASES)
        return false;
    for (int n = 0; n < p.n; n++)
        if (!memchr(p.at[n].symbol, 0, sizeof p.at[n].symbol))
            return false;
    c->b->source[i].cpu->phases = p;
    c->object[i] = (f8_object){value->bytes + sizeof p, value->size - sizeof p};
    return true;
}

static f8_cache_value give(void *user, uint32_t i, f8_arena *arena)
{
    const compilation *c = user;
    const phases *p = &c->b->source[i].cpu->phases;
    const f8_object *o = &c->object[i];
    uint8_t *bytes = f8_arena_array(arena, sizeof *p + o->size, 1);
    if (!bytes)
        return (f8_cache_value){0};
    memcpy(bytes, p, sizeof *p);
    memcpy(bytes + sizeof *p, o->bytes, o->size);
    return (f8_cache_value){bytes, sizeof *p + o->size};
}

static const f8_build_cached_calls calls = {
    .name = unit_name, .key = key, .take = take, .make = make, .give = give};

/* ---- as text ---- */

/* Keeps the IR of all kernels, as they are given to LLVM, as one module: a kernel's comment has the
 * name of its first group. */
static f8_status list(compilation *c)
{
    f8_build *b = c->b;
    f8_llvm_module *m;
    f8_status s = F8_OK;
    f8_text names = {.arena = b->arena};
    F8_TRY(f8_llvm_module_begin(&m, c->llvm, "fp8c", b->diag));
    const int lanes = m->lanes;
    for (uint32_t i = 0; i < b->n_sources && s == F8_OK; i++) {
        const f8_kernel_source *u = &b->source[i];
        char symbol[48];
        m->lanes = lanes; /* an emitter may change it */
        s = emit(m, u, b->arena, b->diag);
        make_symbol(u, symbol);
        f8_text_add(&names, "; %s, launched by %u steps: ", symbol, u->launches);
        for (const char *at = u->name; *at; at++)
            f8_text_add(&names, "%c", (unsigned char)*at < ' ' ? ' ' : *at);
        f8_text_add(&names, "\n");
    }
    const char *text = s == F8_OK ? f8_llvm_module_text(m, b->arena) : NULL;
    f8_llvm_module_end(m);
    F8_TRY(s);
    b->image = F8_NEW(b->arena, f8_build_image);
    if (b->image && text)
        b->image->llvm = f8_arena_printf(b->arena, "%s%s", names.s ? names.s : "", text);
    b->n_images = 1;
    return f8_build_memory(b);
}

/* ---- all kernels ---- */

static f8_status link_blob(compilation *c)
{
    f8_build *b = c->b;
    f8_link_image image;
    F8_TRY(f8_link(c->object, b->n_sources, b->arena, &image, b->diag));
    b->plan->blob = image.bytes;
    b->plan->blob_bytes = (int64_t)image.size;
    b->plan->blob_code_bytes = (int64_t)image.code_size;
    for (uint32_t i = 0; i < b->n_sources; i++) {
        f8_cpu_code *code = b->source[i].cpu;
        for (int n = 0; n < code->phases.n; n++) {
            const char *symbol = code->phases.at[n].symbol;
            const f8_link_symbol *s = f8_link_find(&image, symbol);
            if (!s)
                return f8_fail(b->diag, F8_ERR_INTERNAL, F8_NOWHERE, "kernel '%s' was not linked",
                               symbol);
            code->entry[n] = s->offset;
        }
    }
    return F8_OK;
}

static f8_llvm_options llvm_options(const f8_build_options *o)
{
    return (f8_llvm_options){.library = o->llvm, .cpu = o->cpu, .allocator = o->allocator};
}

static f8_status load(compilation *c)
{
    const f8_llvm_options o = llvm_options(c->b->options);
    F8_TRY(f8_llvm_load(&c->llvm, &o, c->b->diag));
    c->identity = f8_llvm_identity(c->llvm, c->b->arena);
    f8_llvm_remember(c->cache, c->question, c->llvm, c->b->arena);
    return f8_build_memory(c->b);
}

/* Looks up all kernels, and loads LLVM if some are missing. If it is another LLVM than expected,
 * all are looked up under its identity. */
static f8_status find_all(compilation *c, f8_build_cached *pieces)
{
    const f8_build_options *o = c->b->options;
    const f8_llvm_options lo = llvm_options(o);
    if (c->cache) {
        c->question = f8_llvm_question(&lo, c->b->arena);
        c->identity = f8_llvm_recall(c->cache, c->question, c->b->arena);
    }
    if (!c->identity)
        F8_TRY(load(c));
    F8_TRY(f8_build_cached_find(pieces, o, c->b->diag));
    if (!pieces->n_missing || c->llvm)
        return F8_OK;
    const char *thought = c->identity;
    F8_TRY(load(c));
    return strcmp(thought, c->identity) ? f8_build_cached_find(pieces, o, c->b->diag) : F8_OK;
}

static f8_status compile_all(compilation *c, f8_build_cached *pieces)
{
    f8_build *b = c->b;
    f8_build_stats *stats = b->options->stats;
    c->object = F8_NEW_ARRAY(b->arena, f8_object, b->n_sources);
    F8_TRY(begin_codes(b));
    if (b->options->text_only) {
        F8_TRY(load(c));
        return list(c);
    }
    F8_TRY(find_all(c, pieces));
    F8_TRY(f8_build_cached_make(pieces, &(uint32_t){0}, b->diag));
    if (b->options->want_texts) {
        if (!c->llvm)
            F8_TRY(load(c));
        F8_TRY(list(c));
    }
    const double compiled = f8_seconds_now();
    F8_TRY(link_blob(c));
    if (stats) {
        stats->link = f8_seconds_now() - compiled;
        stats->n_cached = f8_build_cached_found(pieces);
    }
    return F8_OK;
}

static f8_status compile(f8_build *b)
{
    const f8_build_options *o = b->options;
    const double start = f8_seconds_now();
    compilation c = {.b = b, .cache = o->dump ? NULL : o->cache};
    f8_build_cached pieces = {.calls = &calls, .user = &c, .n = b->n_sources, .cache = c.cache};
    const f8_status s = compile_all(&c, &pieces);
    if (s == F8_OK && o->stats)
        o->stats->compile = f8_seconds_now() - start - o->stats->link;
    b->plan->n_kernels = b->n_sources;
    f8_build_cached_end(&pieces);
    f8_llvm_free(c.llvm);
    return s;
}

/* What compile() makes, without the code. */
static f8_status size(f8_build *b)
{
    F8_TRY(begin_codes(b));
    for (uint32_t i = 0; i < b->n_sources; i++) {
        const f8_kernel_source *u = &b->source[i];
        phases *p = &u->cpu->phases;
        p->n = 1;
        if (u->kind == F8_SOURCE_ATTENTION)
            F8_TRY(f8_cpu_attention_sizes(&u->attention, u->backward, p->at, &p->n, b->diag));
        else if (u->kind == F8_SOURCE_ROWS)
            p->at[0].scratch = f8_cpu_rows_scratch(u->kernel);
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
        return f8_build_broken(b, r, "GEMMs of the CPU write f32 only");
    if (d->m > INT32_MAX || d->n > INT32_MAX || d->k > INT32_MAX)
        return f8_fail(b->diag, F8_ERR_UNSUPPORTED, b->func->graph->loc[r],
                       "a GEMM of the CPU has m, n and k up to 2^31 - 1, not m=%lld n=%lld k=%lld",
                       (long long)d->m, (long long)d->n, (long long)d->k);
    d->algorithm = b->options->gemm_algorithm;
    if (d->algorithm == F8_GEMM_ONEDNN_F32 && f8_gemm_sums_in_f64(d))
        d->algorithm = F8_GEMM_F64; /* which every CPU has, too */
    if (d->algorithm == F8_GEMM_AUTO && b->options->gemms)
        d->algorithm = f8_gemm_choose(b->options->gemms, d);
    return F8_OK;
}

/* The phases of the launches of one step, one after another. */
static f8_status finish(f8_build *b, f8_step *s, const f8_step_builder *builder)
{
    int total = 0;
    for (uint32_t i = 0; i < builder->n_launches; i++)
        total += b->source[builder->launch[i].source].cpu->phases.n;
    s->phase = F8_NEW_ARRAY(b->arena, f8_step_phase, (size_t)total);
    if (!s->phase)
        return f8_build_memory(b);
    for (uint32_t i = 0; i < builder->n_launches; i++) {
        const f8_build_launch *l = &builder->launch[i];
        const f8_cpu_code *code = b->source[l->source].cpu;
        for (int n = 0; n < code->phases.n; n++)
            s->phase[s->n_phases++] = (f8_step_phase){
                .entry = code->entry[n],
                .n_tasks = *l->n_tasks ? *l->n_tasks : code->phases.at[n].n_tasks,
                .scratch = code->phases.at[n].scratch,
                .first_arg = l->first_arg,
                .first_int = l->first_int,
                .choice = l->choice,
                .bytes = l->bytes / code->phases.n};
    }
    return F8_OK;
}

static f8_status fill_stats(f8_build *b, f8_build_stats *s)
{
    s->kernel = F8_NEW_ARRAY(b->arena, f8_build_kernel, b->n_sources + 1);
    if (!s->kernel)
        return f8_build_memory(b);
    s->n_kernels = b->n_sources;
    for (uint32_t i = 0; i < b->n_sources; i++) {
        const f8_kernel_source *u = &b->source[i];
        s->kernel[i] = (f8_build_kernel){.name = u->name, .text = u->text, .hash = u->hash,
                                         .launches = u->launches, .seconds = u->seconds};
    }
    s->image = b->image;
    s->n_images = b->n_images;
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
