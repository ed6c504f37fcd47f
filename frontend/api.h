/* The objects behind the opaque handles of fp8c.h. Internal to frontend/.
 *
 * A call keeps its diag to itself, so that calls of many threads on one context don't meet:
 *
 *     f8_diag diag = {0};
 *     const f8_status status = ...(..., &diag);
 *     return f8_api_result(ctx, &diag, status);
 */
#ifndef F8_API_H
#define F8_API_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "codegen/cache/cache.h"
#include "frontend/fp8c.h"
#include "frontend/settings.h"
#include "ir/ir.h"
#include "ir/base/progress.h"
#include "runtime/cuda/device.h"
#include "runtime/base/pool.h"

/* The GPU's libraries and one device of theirs. A program that needs them has one to itself until
 * it is destroyed: an f8_cuda and what hangs on it are of one thread at a time. It then stays for
 * the next program, so that nothing is looked for twice and the device's primary context lives as
 * long as the context. */
typedef struct f8_context_gpu {
    struct f8_context_gpu *next;
    f8_cuda *cuda;
    int ordinal;
    bool lent;
} f8_context_gpu;

/* The last failure of one thread. */
typedef struct f8_message {
    struct f8_message *next;
    pid_t thread;   /* the kernel's number of it; 0: nobody's yet */
    pthread_t self; /* and the library's: both are given out again, but hardly together */
    char text[4096];
} f8_message;

struct fp8c_context {
    atomic_int holders; /* the owner until it destroys it, and every object made with it: the last
                           one frees it */
    atomic_bool destroyed; /* by its owner */
    f8_allocator allocator;
    size_t size;          /* of this object with the strings of `settings` behind it */
    f8_settings settings; /* the environment as it was, or the options in its place */
    f8_log log;
    f8_progress progress;
    f8_parallel parallel; /* run NULL: programs have threads of their own */
    int32_t threads;      /* of programs whose options say 0 */
    fp8c_log_fn log_fn;
    fp8c_progress_fn progress_fn;
    void *log_user, *progress_user;

    pthread_mutex_t lock; /* over the next five; never held while a callback is called */
    f8_context_gpu *gpu;
    f8_message *messages; /* all but the first */
    int n_messages;
    f8_message first; /* some thread's: there when memory is not */
    bool lost;        /* a message, for want of memory */

    pthread_mutex_t cache_lock; /* over opening it */
    bool cache_tried;
    f8_cache *cache;      /* NULL: none is used */
    char cache_why[1024]; /* not: because */
};

/* Memory for a handle's object, zeros, which keeps the context alive; NULL with a diag when there
 * is none, or the owner has destroyed the context. Freed by f8_api_delete alone, as the last thing:
 * the context may go with it. */
void *f8_api_new(fp8c_context *ctx, size_t size, size_t align, f8_diag *diag);
void f8_api_delete(fp8c_context *ctx, void *object, size_t size);

/* A caller's struct of options (NULL: none) into `own`, which is zeros but for its first member,
 * size_t struct_size. It may be of an older or a newer fp8c: what both know is taken. F8_ERR_INPUT
 * for a struct_size that can be no such struct's, most likely one that was not set; `what` names
 * the struct. */
f8_status f8_api_options(void *own, const void *given, const char *what, f8_diag *diag);
/* The other way: as much of `own` as the caller's struct has room for, struct_size left as it is.
 */
void f8_api_give(void *out, const void *own);

/* Threads of a program whose options ask for so many; 0: the CPUs this process may run on. */
int32_t f8_api_threads(const fp8c_context *ctx, int32_t wanted);

/* Lend the libraries for device `ordinal`, which need not be there, and take them back (NULL is
 * fine). */
f8_status f8_api_take_gpu(fp8c_context *ctx, int ordinal, f8_cuda **out, f8_diag *diag);
void f8_api_give_gpu(fp8c_context *ctx, f8_cuda *cuda);

/* The kernel cache, opened at the first call; NULL: none is wanted, or none can be used, which the
 * log then says once. F8_ERR_MEMORY. */
f8_status f8_api_cache(fp8c_context *ctx, f8_cache **out, f8_diag *diag);

struct fp8c_module {
    fp8c_context *ctx;
    f8_arena arena;
    f8_module *ir;
    f8_diag diag; /* the module's own: what went wrong while building outlives calls on others */
    char *text;   /* the source, for messages; NULL when built by calls */
    size_t text_size;
    size_t building; /* index of the function being built + 1; 0 = none */
};

/* End a failed call: render the diag against the text it points into (may be NULL) as the calling
 * thread's message, and give the status. */
fp8c_status f8_api_fail(fp8c_context *ctx, const f8_diag *diag, f8_status status, const char *text,
                        size_t size);
/* End a call that no text belongs to: FP8C_OK, or a failure as f8_api_fail ends it. */
fp8c_status f8_api_result(fp8c_context *ctx, const f8_diag *diag, f8_status status);
/* End a call on a module that is one thread's: its first failure, if any, becomes the message. */
fp8c_status f8_api_done(fp8c_module *m, f8_status status);
/* Free all threads' messages. */
void f8_api_end_messages(fp8c_context *ctx);

f8_type f8_api_type_in(const fp8c_type *t);
fp8c_type f8_api_type_out(const f8_type *t);

#endif
