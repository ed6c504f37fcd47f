/* Messages, one for each thread that failed: see fp8c_context_message.
 *
 * A thread is known by its number in the kernel. The number and the message's room of a thread that
 * ended go to other threads. */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "frontend/api.h"
#include "frontend/text/diag.h"
#include "ir/base/format.h"

enum { MANY = 64 }; /* from so many on, the room of threads that ended is used again */

/* This thread's message; NULL: it has none. The caller holds the lock. */
static f8_message *find(fp8c_context *ctx, pid_t thread)
{
    for (f8_message *m = &ctx->first; m; m = m == &ctx->first ? ctx->messages : m->next)
        if (m->thread == thread && pthread_equal(m->self, pthread_self()))
            return m;
    return NULL;
}

static bool is_gone(const f8_message *m)
{
    return m->thread == 0 || (tgkill(getpid(), m->thread, 0) != 0 && errno == ESRCH);
}

/* The room of a thread that ended; NULL: there is none. The caller holds the lock. */
static f8_message *left_behind(fp8c_context *ctx, pid_t thread)
{
    f8_message *m = &ctx->first;
    while (m && m->thread != thread && !is_gone(m))
        m = m == &ctx->first ? ctx->messages : m->next;
    return m;
}

/* Room for this thread. While there is not much yet, it is new room: ThreadSanitizer sees nothing
 * that orders the last look of a thread that ended before another thread's use of its room. NULL:
 * out of memory. The caller holds the lock. */
static f8_message *add(fp8c_context *ctx, pid_t thread)
{
    f8_message *m = ctx->first.thread == 0 ? &ctx->first : NULL;
    if (!m && ctx->n_messages >= MANY)
        m = left_behind(ctx, thread);
    if (!m) {
        m = ctx->allocator.alloc(ctx->allocator.user, sizeof *m, 16);
        if (m) {
            m->next = ctx->messages;
            ctx->messages = m;
            ctx->n_messages++;
        } else if (!(m = left_behind(ctx, thread))) {
            return NULL;
        }
    }
    m->thread = thread;
    m->self = pthread_self();
    m->text[0] = 0;
    return m;
}

static void render(const f8_diag *diag, f8_status status, const char *text, size_t size,
                   f8_message *m)
{
    f8_diag wordless = {0};
    if (diag->status == F8_OK) {
        f8_fail(&wordless, status, F8_NOWHERE, "failed without a message (status %d)", (int)status);
        diag = &wordless;
    }
    f8_diag_render(diag, text, size, m->text, sizeof m->text);
    size_t n = strlen(m->text);
    while (n > 0 && m->text[n - 1] == '\n')
        m->text[--n] = 0;
}

/* The room for this thread's message. NULL: out of memory, which the context remembers. */
static f8_message *mine(fp8c_context *ctx)
{
    const pid_t thread = gettid();
    pthread_mutex_lock(&ctx->lock);
    f8_message *m = find(ctx, thread);
    if (!m)
        m = add(ctx, thread);
    ctx->lost |= !m;
    pthread_mutex_unlock(&ctx->lock);
    return m;
}

void f8_api_message(fp8c_context *ctx, const char *text)
{
    f8_message *m = mine(ctx);
    if (m && text != m->text)
        f8_format(m->text, sizeof m->text, "%s", text);
}

fp8c_status f8_api_fail(fp8c_context *ctx, const f8_diag *diag, f8_status status, const char *text,
                        size_t size)
{
    f8_message *m = mine(ctx);
    if (m) /* only this thread uses it from here on */
        render(diag, status, text, size, m);
    return (fp8c_status)status;
}

fp8c_status f8_api_result(fp8c_context *ctx, const f8_diag *diag, f8_status status)
{
    return status == F8_OK ? FP8C_OK : f8_api_fail(ctx, diag, status, NULL, 0);
}

fp8c_status f8_api_done(fp8c_module *m, f8_status status)
{
    if (status == F8_OK)
        status = m->diag.status;
    return status == F8_OK ? FP8C_OK : f8_api_fail(m->ctx, &m->diag, status, m->text, m->text_size);
}

const char *fp8c_context_message(const fp8c_context *ctx)
{
    if (!ctx)
        return "no context";
    fp8c_context *own = (fp8c_context *)ctx; /* for its lock, which may change */
    pthread_mutex_lock(&own->lock);
    const f8_message *m = find(own, gettid());
    const bool lost = own->lost;
    pthread_mutex_unlock(&own->lock);
    if (m)
        return m->text;
    return lost ? "error: out of memory: there was no room for this thread's message" : "";
}

void f8_api_end_messages(fp8c_context *ctx)
{
    for (f8_message *m = ctx->messages, *next; m; m = next) {
        next = m->next;
        ctx->allocator.free(ctx->allocator.user, m, sizeof *m);
    }
}
