/* Watching a device's health: the calls of fp8c_machine.h, and the thread that waits for a GPU's
 * XIDs. */
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "frontend/api.h"
#include "ir/base/clock.h"
#include "ir/base/format.h"
#include "runtime/probe/health.h"

enum { EVENTS = 256, WAIT = 100 /* milliseconds of one wait for an XID */ };

struct fp8c_health {
    fp8c_context *ctx;
    fp8c_health_options options;
    f8_cuda *cuda;      /* its own: the context's belong to other threads */
    f8_health_gpu *gpu; /* NULL: the CPU, or a GPU of which nothing is known */
    double start;
    char source[1100], address[40];
    int64_t xids;                  /* under `lock`, as all below */
    pthread_mutex_t looking, lock; /* looking: one look at a time; taken first */
    f8_health first, now;
    fp8c_health_event event[EVENTS];
    int n_events, n_faults;
    pthread_t thread;
    bool has_thread, leave;
};

/* ---- what has changed ---- */

/* The lock is held. */
static void note(fp8c_health *h, f8_health_id id, int64_t number, const char *text)
{
    const f8_health_about *about = &f8_health_values[id];
    const bool fault = about->kind == F8_HEALTH_FAULT;
    if (h->n_events < EVENTS) {
        fp8c_health_event *e = &h->event[h->n_events];
        *e = (fp8c_health_event){.struct_size = sizeof *e,
                                 .name = about->name,
                                 .seconds = f8_seconds_now() - h->start,
                                 .number = number,
                                 .fault = fault};
        snprintf(e->text, sizeof e->text, "%s", text);
    }
    h->n_events += h->n_events < EVENTS;
    h->n_faults += fault;
}

static void note_growth(fp8c_health *h, f8_health_id id, int64_t before, int64_t now)
{
    char text[160], why[120];
    if (id == F8_HEALTH_held_down)
        snprintf(text, sizeof text, "clocks are held down by %s",
                 f8_health_held_down(now, why, sizeof why));
    else if (id == F8_HEALTH_lost)
        snprintf(text, sizeof text, "%s", f8_health_values[id].words);
    else
        snprintf(text, sizeof text, "%s: %" PRId64 ", %" PRId64 " more", f8_health_values[id].words,
                 now, now - before);
    note(h, id, now - before, text);
}

/* Whether a change is to be told: a counter grew, a new cause holds clocks down. A number that was
 * not known before tells nothing. */
static bool is_news(f8_health_id id, int64_t before, int64_t now)
{
    if (f8_health_values[id].kind == F8_HEALTH_GAUGE || id == F8_HEALTH_xids || before < 0)
        return false;
    return id == F8_HEALTH_held_down ? (now > 0 && (now & ~before) != 0) : now > before;
}

/* The lowest or the highest value seen. */
static void keep_extreme(const fp8c_health *h, f8_health *seen, f8_health_id of, f8_health_id id,
                         int sign)
{
    const int64_t before = h->now.value[id], now = seen->value[of];
    seen->value[id] = before < 0 || (now >= 0 && sign * now > sign * before) ? now : before;
}

/* The lock is held. */
static void take(fp8c_health *h, f8_health *seen)
{
    if (seen->value[F8_HEALTH_lost] == 1) /* what is known of it stays */
        for (int i = 0; i < F8_HEALTH_N; i++)
            seen->value[i] = seen->value[i] < 0 ? h->now.value[i] : seen->value[i];
    keep_extreme(h, seen, F8_HEALTH_temperature, F8_HEALTH_temperature_most, 1);
    keep_extreme(h, seen, F8_HEALTH_clock, F8_HEALTH_clock_least, -1);
    seen->value[F8_HEALTH_xids] = h->now.value[F8_HEALTH_xids] < 0 ? -1 : h->xids;
    seen->value[F8_HEALTH_earlier_xids] = h->now.value[F8_HEALTH_earlier_xids];
    for (int i = 0; i < F8_HEALTH_N; i++)
        if (is_news((f8_health_id)i, h->now.value[i], seen->value[i]))
            note_growth(h, (f8_health_id)i, h->now.value[i], seen->value[i]);
    h->now = *seen;
}

static void look(const fp8c_health *h, f8_health *out)
{
    if (h->gpu)
        f8_health_gpu_read(h->gpu, out);
    else if (!h->options.gpu)
        f8_health_cpu("", out);
}

static void look_now(fp8c_health *h)
{
    f8_health seen;
    if (h->options.gpu && !h->gpu)
        return;
    pthread_mutex_lock(&h->looking);
    look(h, &seen);
    pthread_mutex_lock(&h->lock);
    take(h, &seen);
    pthread_mutex_unlock(&h->lock);
    pthread_mutex_unlock(&h->looking);
}

/* ---- the thread ---- */

/* X(number, words): those that say most of why a run went wrong. */
#define XIDS(X)                                                                                    \
    X(13, "a kernel's error, or a broken GPU")                                                     \
    X(31, "a kernel's access to memory that is not there")                                         \
    X(43, "a kernel was stopped")                                                                  \
    X(48, "an error of memory that ECC could not correct")                                         \
    X(63, "a row of memory is to be remapped")                                                     \
    X(64, "a row of memory could not be remapped")                                                 \
    X(74, "an error of an NVLink")                                                                 \
    X(79, "the GPU has fallen off the bus")                                                        \
    X(94, "an error of memory, contained in one program")                                          \
    X(95, "an error of memory that was not contained")                                             \
    X(119, "the GPU's own processor does not answer")

static void note_xid(fp8c_health *h, int64_t xid)
{
    static const struct {
        int64_t number;
        const char *words;
    } known[] = {
#define X(number, words) {number, words},
        XIDS(X)
#undef X
    };
    char text[160];
    const char *words = NULL;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].number == xid)
            words = known[i].words;
    snprintf(text, sizeof text, "XID %" PRId64 "%s%s", xid, words ? ": " : "", words ? words : "");
    pthread_mutex_lock(&h->lock);
    h->now.value[F8_HEALTH_xids] = ++h->xids;
    note(h, F8_HEALTH_xids, xid, text);
    pthread_mutex_unlock(&h->lock);
}

static bool leaves(fp8c_health *h)
{
    pthread_mutex_lock(&h->lock);
    const bool leave = h->leave;
    pthread_mutex_unlock(&h->lock);
    return leave;
}

/* Each wait is short, so that the end of the health does not wait for it. */
static void *watch(void *user)
{
    static const struct timespec pause = {.tv_nsec = WAIT * 1000000};
    fp8c_health *h = user;
    double looked = f8_seconds_now();
    while (!leaves(h)) {
        int64_t xid = 0;
        bool waits;
        if (f8_health_gpu_xid(h->gpu, WAIT, &xid, &waits))
            note_xid(h, xid);
        if (!waits)
            nanosleep(&pause, NULL);
        if (f8_seconds_now() - looked >= h->options.seconds) {
            look_now(h);
            looked = f8_seconds_now();
        }
    }
    return NULL;
}

/* Signals of the process are for the embedder's threads. */
static f8_status start_thread(fp8c_health *h, f8_diag *diag)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int error = pthread_create(&h->thread, NULL, watch, h);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    h->has_thread = !error;
    return !error ? F8_OK
                  : f8_fail(diag, F8_ERR_IO, F8_NOWHERE, "the system refuses a thread: %s",
                            f8_errno_text(error));
}

/* ---- life ---- */

/* That NVML is missing is what `source` says then. */
static f8_status open_gpu(fp8c_health *h, f8_diag *diag)
{
    f8_diag why = {0};
    F8_TRY(f8_cuda_create(&h->ctx->settings.gpu, &h->ctx->allocator, &h->cuda, diag));
    const f8_status status = f8_health_gpu_open(h->cuda, h->options.device, &h->gpu, &why);
    if (status != F8_OK) {
        snprintf(h->source, sizeof h->source, "%s", why.text);
        return status == F8_ERR_MEMORY ? f8_fail(diag, status, F8_NOWHERE, "%s", why.text) : F8_OK;
    }
    snprintf(h->source, sizeof h->source, "NVML, driver %s", f8_health_gpu_driver(h->gpu));
    snprintf(h->address, sizeof h->address, "%s", f8_health_gpu_address(h->gpu));
    return F8_OK;
}

static f8_status begin(fp8c_health *h, const fp8c_health_options *options, f8_diag *diag)
{
    int last;
    bool waits = false;
    int64_t xid;
    h->options.struct_size = sizeof h->options;
    snprintf(h->source, sizeof h->source, "the kernel");
    F8_TRY(f8_api_options(&h->options, options, "fp8c_health_options", diag));
    h->options.seconds = h->options.seconds == 0 ? 1 : h->options.seconds;
    if (!isfinite(h->options.seconds))
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE, "seconds is no number");
    for (int i = 0; i < F8_HEALTH_N; i++)
        h->now.value[i] = -1;
    if (h->options.gpu)
        F8_TRY(open_gpu(h, diag));
    if (h->gpu) {
        h->now.value[F8_HEALTH_earlier_xids] = f8_xid_count("", h->address, &last);
        if (f8_health_gpu_xid(h->gpu, 0, &xid, &waits))
            note_xid(h, xid);
        h->now.value[F8_HEALTH_xids] = waits ? h->xids : -1;
    }
    look_now(h);
    h->first = h->now;
    return h->gpu && h->options.seconds > 0 ? start_thread(h, diag) : F8_OK;
}

fp8c_status fp8c_health_create(fp8c_context *ctx, const fp8c_health_options *options,
                               fp8c_health **out)
{
    f8_diag diag = {0};
    *out = NULL;
    fp8c_health *h = f8_api_new(ctx, sizeof *h, 16, &diag);
    if (!h)
        return f8_api_result(ctx, &diag, diag.status);
    h->ctx = ctx;
    h->start = f8_seconds_now();
    pthread_mutex_init(&h->looking, NULL);
    pthread_mutex_init(&h->lock, NULL);
    const f8_status status = begin(h, options, &diag);
    if (status != F8_OK)
        fp8c_health_destroy(h);
    else
        *out = h;
    return f8_api_result(ctx, &diag, status);
}

void fp8c_health_destroy(fp8c_health *h)
{
    if (!h)
        return;
    pthread_mutex_lock(&h->lock);
    h->leave = true;
    pthread_mutex_unlock(&h->lock);
    if (h->has_thread)
        pthread_join(h->thread, NULL);
    f8_health_gpu_close(h->gpu);
    f8_cuda_destroy(h->cuda);
    pthread_mutex_destroy(&h->looking);
    pthread_mutex_destroy(&h->lock);
    f8_api_delete(h->ctx, h, sizeof *h);
}

/* ---- what is known ---- */

void fp8c_health_report(fp8c_health *h, int32_t look, fp8c_health_info *out)
{
    if (look)
        look_now(h);
    if (!out)
        return;
    fp8c_health_info info = {
        .struct_size = sizeof info, .source = h->source, .address = h->address};
    pthread_mutex_lock(&h->lock);
    for (int i = 0; i < F8_HEALTH_N; i++)
        info.known += h->now.value[i] >= 0;
    info.events = h->n_events;
    info.faults = h->n_faults;
    pthread_mutex_unlock(&h->lock);
    f8_api_give(out, &info);
}

fp8c_status fp8c_health_value_at(fp8c_health *h, int index, fp8c_health_value *out)
{
    if (index < 0 || index >= F8_HEALTH_N)
        return FP8C_ERR_INPUT;
    const f8_health_about *about = &f8_health_values[index];
    pthread_mutex_lock(&h->lock);
    const fp8c_health_value value = {.struct_size = sizeof value,
                                     .name = about->name,
                                     .text = about->words,
                                     .first = h->first.value[index],
                                     .now = h->now.value[index],
                                     .fault = about->kind == F8_HEALTH_FAULT};
    pthread_mutex_unlock(&h->lock);
    f8_api_give(out, &value);
    return FP8C_OK;
}

fp8c_status fp8c_health_event_at(fp8c_health *h, int index, fp8c_health_event *out)
{
    fp8c_health_event event;
    pthread_mutex_lock(&h->lock);
    const bool there = index >= 0 && index < h->n_events;
    if (there)
        event = h->event[index];
    pthread_mutex_unlock(&h->lock);
    if (there)
        f8_api_give(out, &event);
    return there ? FP8C_OK : FP8C_ERR_INPUT;
}
