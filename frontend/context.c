/* Contexts: what calls on many threads share. See fp8c.h. message.c has the messages. */
#include <string.h>

#include "frontend/api.h"

#define SAME(a, b) _Static_assert((int)(a) == (int)(b), "fp8c.h and ir/ disagree")
SAME(FP8C_OK, F8_OK);
SAME(FP8C_ERR_INPUT, F8_ERR_INPUT);
SAME(FP8C_ERR_UNSUPPORTED, F8_ERR_UNSUPPORTED);
SAME(FP8C_ERR_MEMORY, F8_ERR_MEMORY);
SAME(FP8C_ERR_IO, F8_ERR_IO);
SAME(FP8C_ERR_LIBRARY, F8_ERR_LIBRARY);
SAME(FP8C_ERR_INTERNAL, F8_ERR_INTERNAL);
SAME(FP8C_ERR_CANCELLED, F8_ERR_CANCELLED);
SAME(FP8C_F32, F8_F32);
SAME(FP8C_BF16, F8_BF16);
SAME(FP8C_F16, F8_F16);
SAME(FP8C_I32, F8_I32);
SAME(FP8C_BOOL, F8_BOOL);
SAME(FP8C_F8E4M3, F8_E4M3);
SAME(FP8C_F8E5M2, F8_E5M2);
SAME(FP8C_F8E8M0, F8_E8M0);
SAME(FP8C_I64, F8_I64);
SAME(FP8C_MAX_RANK, F8_MAX_RANK);
SAME(FP8C_LOG_WARNING, F8_LOG_WARNING);
SAME(FP8C_LOG_INFO, F8_LOG_INFO);
SAME(FP8C_LOG_DEBUG, F8_LOG_DEBUG);

/* ---- structs of any version ---- */

enum { MOST_STRUCT = 1 << 16 }; /* no struct will be so large: the size was never set */

f8_status f8_api_options(void *own, const void *given, const char *what, f8_diag *diag)
{
    size_t room, size;
    if (!given)
        return F8_OK;
    memcpy(&room, own, sizeof room);
    memcpy(&size, given, sizeof size);
    if (size < sizeof size || size > MOST_STRUCT)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                       "%s has struct_size %zu: set it to the sizeof of the struct", what, size);
    memcpy(own, given, size < room ? size : room);
    memcpy(own, &room, sizeof room);
    return F8_OK;
}

void f8_api_give(void *out, const void *own)
{
    size_t room, size;
    memcpy(&room, out, sizeof room);
    memcpy(&size, own, sizeof size);
    const size_t both = room < size ? room : size;
    if (both > sizeof size)
        memcpy((char *)out + sizeof size, (const char *)own + sizeof size, both - sizeof size);
}

/* ---- types ---- */

/* Copy a type. A rank or dtype that does not exist becomes one that every check of types
 * refuses. */
f8_type f8_api_type_in(const fp8c_type *t)
{
    const bool valid =
        t->rank >= 0 && t->rank <= F8_MAX_RANK && (unsigned)t->dtype < F8_DTYPE_COUNT;
    if (!valid)
        return (f8_type){.dtype = F8_F32, .rank = 1, .dim = {-1}};
    f8_type out = {.dtype = (f8_dtype)t->dtype, .rank = (uint8_t)t->rank};
    for (int i = 0; i < t->rank && i < F8_MAX_RANK; i++)
        out.dim[i] = t->dim[i];
    return out;
}

fp8c_type f8_api_type_out(const f8_type *t)
{
    fp8c_type out = {.dtype = (fp8c_dtype)t->dtype, .rank = t->rank};
    for (int i = 0; i < t->rank; i++)
        out.dim[i] = t->dim[i];
    return out;
}

#define TEXT(x) #x
#define VERSION(a, b, c) TEXT(a) "." TEXT(b) "." TEXT(c)

const char *fp8c_version(void)
{
    return VERSION(FP8C_VERSION_MAJOR, FP8C_VERSION_MINOR, FP8C_VERSION_PATCH);
}

int64_t fp8c_type_bytes(const fp8c_type *type)
{
    const f8_type t = f8_api_type_in(type);
    const int64_t bytes = f8_type_bytes(&t);
    return bytes < 0 ? -1 : bytes;
}

/* ---- callbacks ---- */

static void say(void *user, f8_log_level level, const char *text)
{
    const fp8c_context *ctx = user;
    ctx->log_fn(ctx->log_user, (fp8c_log_level)level, text);
}

static int ask(void *user, const f8_progress_state *s)
{
    const fp8c_context *ctx = user;
    const fp8c_progress p = {.struct_size = sizeof p,
                             .phase = s->phase,
                             .item = s->item,
                             .done = s->done,
                             .total = s->total,
                             .seconds_left = s->seconds_left};
    return ctx->progress_fn(ctx->progress_user, &p);
}

/* ---- context ---- */

/* What is wrong with the options; NULL: nothing. */
static const char *check(const fp8c_context_options *o)
{
    if (!o->alloc != !o->free)
        return "alloc and free are a pair: give both or neither";
    if (o->parallel && (o->parallel_threads < 1 || o->parallel_threads > F8_POOL_MAX_THREADS))
        return "parallel_threads is not from 1 to 256";
    if (o->threads < 0 || o->threads > F8_POOL_MAX_THREADS)
        return "threads is not from 0 to 256";
    if (o->cache_bytes < 0)
        return "cache_bytes is negative";
    return NULL;
}

/* Fill the context at its final address. */
static void fill(fp8c_context *ctx, const fp8c_context_options *o,
                 const f8_settings_source *settings)
{
    ctx->settings = f8_settings_copy(settings, (char *)(ctx + 1));
    ctx->log_fn = o->log;
    ctx->log_user = o->log_user;
    ctx->log = (f8_log){o->log ? say : NULL, ctx, ctx->settings.verbose};
    ctx->progress_fn = o->progress;
    ctx->progress_user = o->progress_user;
    ctx->progress = (f8_progress){o->progress ? ask : NULL, ctx};
    ctx->parallel = (f8_parallel){o->parallel, o->parallel_user, o->parallel_threads};
    ctx->threads = o->threads;
}

/* Create the context. Its strings lie behind it in one allocation: if a second one failed, there
 * would be no context to hold the message. */
fp8c_status fp8c_context_create(const fp8c_context_options *options, fp8c_context **out)
{
    *out = NULL;
    fp8c_context_options own = {.struct_size = sizeof own};
    f8_diag diag = {0};
    const char *wrong = f8_api_options(&own, options, "fp8c_context_options", &diag) == F8_OK
                            ? check(&own)
                            : diag.text;
    if (wrong) { /* no context can hold a message */
        if (own.log)
            own.log(own.log_user, FP8C_LOG_WARNING, wrong);
        return FP8C_ERR_INPUT;
    }
    const f8_allocator allocator = own.alloc
                                       ? (f8_allocator){own.alloc, own.free, own.allocator_user}
                                       : f8_default_allocator();
    const f8_settings_source settings = f8_settings_read(&own);
    const size_t size = sizeof(fp8c_context) + settings.bytes;
    fp8c_context *ctx = allocator.alloc(allocator.user, size, 16);
    if (!ctx)
        return FP8C_ERR_MEMORY;
    *ctx = (fp8c_context){.holders = 1,
                          .allocator = allocator,
                          .size = size,
                          .lock = PTHREAD_MUTEX_INITIALIZER,
                          .cache_lock = PTHREAD_MUTEX_INITIALIZER};
    fill(ctx, &own, &settings);
    if (ctx->settings.wrong)
        f8_log_say(&ctx->log, F8_LOG_WARNING, "%s", ctx->settings.wrong);
    *out = ctx;
    return FP8C_OK;
}

static void release(fp8c_context *ctx)
{
    if (atomic_fetch_sub_explicit(&ctx->holders, 1, memory_order_acq_rel) > 1)
        return;
    const f8_allocator allocator = ctx->allocator;
    for (f8_context_gpu *g = ctx->gpu, *next; g; g = next) {
        next = g->next;
        f8_cuda_destroy(g->cuda);
        allocator.free(allocator.user, g, sizeof *g);
    }
    f8_cache_close(ctx->cache);
    f8_api_end_messages(ctx);
    pthread_mutex_destroy(&ctx->lock);
    pthread_mutex_destroy(&ctx->cache_lock);
    allocator.free(allocator.user, ctx, ctx->size);
}

void fp8c_context_destroy(fp8c_context *ctx)
{
    if (ctx && !atomic_exchange(&ctx->destroyed, true))
        release(ctx);
}

void fp8c_context_abandon_files(fp8c_context *ctx)
{
    f8_temporaries_remove(&ctx->temporaries);
}

void *f8_api_new(fp8c_context *ctx, size_t size, size_t align, f8_diag *diag)
{
    if (atomic_load(&ctx->destroyed)) {
        f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                "the context was destroyed: nothing new can be made with it");
        return NULL;
    }
    void *object = ctx->allocator.alloc(ctx->allocator.user, size, align);
    if (!object) {
        f8_fail(diag, F8_ERR_MEMORY, F8_NOWHERE, "out of memory: %zu bytes were wanted", size);
        return NULL;
    }
    memset(object, 0, size);
    atomic_fetch_add_explicit(&ctx->holders, 1, memory_order_relaxed);
    return object;
}

void f8_api_delete(fp8c_context *ctx, void *object, size_t size)
{
    ctx->allocator.free(ctx->allocator.user, object, size);
    release(ctx);
}

int32_t f8_api_threads(const fp8c_context *ctx, int32_t wanted)
{
    return ctx->parallel.run ? ctx->parallel.n_threads : wanted ? wanted : ctx->threads;
}

/* ---- GPUs ---- */

static f8_context_gpu *idle_gpu(fp8c_context *ctx, int ordinal)
{
    pthread_mutex_lock(&ctx->lock);
    f8_context_gpu *g = ctx->gpu;
    while (g && (g->lent || g->ordinal != ordinal))
        g = g->next;
    if (g)
        g->lent = true;
    pthread_mutex_unlock(&ctx->lock);
    return g;
}

f8_status f8_api_take_gpu(fp8c_context *ctx, int ordinal, f8_cuda **out, f8_diag *diag)
{
    f8_context_gpu *g = idle_gpu(ctx, ordinal);
    *out = g ? g->cuda : NULL;
    if (g)
        return F8_OK;
    g = ctx->allocator.alloc(ctx->allocator.user, sizeof *g, 16);
    if (!g)
        return f8_fail(diag, F8_ERR_MEMORY, F8_NOWHERE, "out of memory: %zu bytes were wanted",
                       sizeof *g);
    *g = (f8_context_gpu){.ordinal = ordinal, .lent = true};
    const f8_status status = f8_cuda_create(&ctx->settings.gpu, &ctx->allocator, &g->cuda, diag);
    if (status != F8_OK) {
        ctx->allocator.free(ctx->allocator.user, g, sizeof *g);
        return status;
    }
    *out = g->cuda;
    pthread_mutex_lock(&ctx->lock);
    g->next = ctx->gpu;
    ctx->gpu = g;
    pthread_mutex_unlock(&ctx->lock);
    return F8_OK;
}

void f8_api_give_gpu(fp8c_context *ctx, f8_cuda *cuda)
{
    pthread_mutex_lock(&ctx->lock);
    for (f8_context_gpu *g = ctx->gpu; cuda && g; g = g->next)
        if (g->cuda == cuda)
            g->lent = false;
    pthread_mutex_unlock(&ctx->lock);
}

/* ---- the kernel cache ---- */

/* The caller holds the lock. */
static f8_status open_cache(fp8c_context *ctx, f8_diag *diag)
{
    f8_diag why = {0};
    const f8_cache_options options = {.folder = ctx->settings.cache,
                                      .most_bytes = ctx->settings.cache_bytes,
                                      .allocator = &ctx->allocator,
                                      .log = &ctx->log,
                                      .temporaries = &ctx->temporaries};
    const f8_status status =
        ctx->settings.cache ? f8_cache_open(&options, &ctx->cache, &why) : F8_OK;
    if (status == F8_ERR_MEMORY)
        return f8_fail(diag, status, F8_NOWHERE, "%s", why.text);
    ctx->cache_tried = true;
    if (status == F8_OK)
        return F8_OK;
    _Static_assert(sizeof ctx->cache_why == sizeof why.text, "kept whole");
    memcpy(ctx->cache_why, why.text, sizeof why.text);
    f8_log_say(&ctx->log, F8_LOG_WARNING, "kernels are not cached: %s", why.text);
    return F8_OK;
}

f8_status f8_api_cache(fp8c_context *ctx, f8_cache **out, f8_diag *diag)
{
    pthread_mutex_lock(&ctx->cache_lock);
    const f8_status status = ctx->cache_tried ? F8_OK : open_cache(ctx, diag);
    *out = ctx->cache;
    pthread_mutex_unlock(&ctx->cache_lock);
    return status;
}

fp8c_status fp8c_context_cache(fp8c_context *ctx, fp8c_cache_info *out)
{
    f8_diag diag = {0};
    f8_cache *cache;
    const f8_status status = f8_api_cache(ctx, &cache, &diag);
    if (status != F8_OK)
        return f8_api_result(ctx, &diag, status);
    fp8c_cache_info own = {.struct_size = sizeof own,
                           .why_not = ctx->cache_why[0] ? ctx->cache_why : NULL,
                           .tuning = ctx->settings.tuning};
    f8_cache_facts facts;
    if (cache) {
        f8_cache_look(cache, &facts);
        own.folder = facts.folder;
        own.read_only = facts.read_only;
        own.hits = facts.hits;
        own.misses = facts.misses;
        own.stored = facts.stored;
        own.bytes = facts.bytes;
        own.entries = facts.entries;
    }
    f8_api_give(out, &own);
    return FP8C_OK;
}
