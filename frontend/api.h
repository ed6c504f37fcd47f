/* The objects behind the opaque handles of fp8c.h. Internal to frontend/.
 *
 * Each call has a diag of its own, so that calls of several threads on one context do not meet:
 *
 *     f8_diag diag = {0};
 *     const f8_status status = ...(..., &diag);
 *     return f8_api_result(ctx, &diag, status);
 * */
#ifndef F8_API_H
#define F8_API_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "codegen/cache/cache.h"
#include "frontend/fp8c.h"
#include "frontend/fp8c_diagnose.h"
#include "frontend/fp8c_machine.h"
#include "frontend/fp8c_ranks.h"
#include "frontend/fp8c_tune.h"
#include "frontend/settings.h"
#include "ir/ir.h"
#include "ir/base/progress.h"
#include "runtime/cuda/device.h"
#include "runtime/base/pool.h"

/* The GPU's libraries and one device. An f8_cuda and what depends on it belong to one thread at a
 * time, so a program that needs them has one to itself until it is destroyed. The context then
 * keeps it for the next program: nothing is looked for twice, and the device's primary context
 * lives as long as the context. */
typedef struct f8_context_gpu {
    struct f8_context_gpu *next;
    f8_cuda *cuda;
    int ordinal;
    bool lent;
} f8_context_gpu;

/* The last failure of one thread. */
typedef struct f8_message {
    struct f8_message *next;
    pid_t thread;   /* the kernel's number of the thread; 0: nobody's yet */
    pthread_t self; /* the C library's number as well: either number may be given to a new
                       thread, but hardly both at once */
    char text[4096];
} f8_message;

struct fp8c_context {
    atomic_int holders; /* counts the owner, until it destroys the context, and every object made
                           with it. The last one frees the context */
    atomic_bool destroyed; /* the owner destroyed it */
    f8_allocator allocator;
    size_t size;          /* size of this object with the strings of `settings` behind it */
    f8_settings settings; /* the options, or the environment as it was where none was given */
    f8_log log;
    f8_progress progress;
    f8_temporaries temporaries; /* of all files that calls are writing */
    f8_parallel parallel; /* run is NULL: programs have threads of their own */
    int32_t threads;      /* for programs whose options say 0 */
    fp8c_log_fn log_fn;
    fp8c_progress_fn progress_fn;
    void *log_user, *progress_user;

    pthread_mutex_t lock; /* guards the next six; never held while a callback is called */
    f8_context_gpu *gpu;
    struct fp8c_program *programs; /* those with memory, linked by `next` */
    f8_message *messages; /* all messages but the first */
    int n_messages;
    f8_message first; /* of one thread; it exists when memory is short */
    bool lost;        /* a message was lost since memory was short */

    pthread_mutex_t cache_lock; /* guards opening the cache */
    bool cache_tried;
    f8_cache *cache;      /* NULL: no cache is used */
    char cache_why[1024]; /* why no cache is used */
};

/* Zeroed memory for a handle's object, which keeps the context alive. NULL with a diag: out of
 * memory, or the owner has destroyed the context. Free it with f8_api_delete alone, as the last
 * thing: the context may go with it. */
void *f8_api_new(fp8c_context *ctx, size_t size, size_t align, f8_diag *diag);
void f8_api_delete(fp8c_context *ctx, void *object, size_t size);

/* Copy a caller's struct of options (NULL: none) into `own`, which is all zeros but for its first
 * member, size_t struct_size. The caller's struct may be of an older or a newer fp8c: what both
 * know is copied. F8_ERR_INPUT: struct_size can't be right; most likely it was not set. `what`
 * names the struct. */
f8_status f8_api_options(void *own, const void *given, const char *what, f8_diag *diag);
/* The other way: copy as much of `own` as the caller's struct has room for. struct_size stays. */
void f8_api_give(void *out, const void *own);

/* How many threads a program gets that asks for so many; 0: the CPUs this process may run on. */
int32_t f8_api_threads(const fp8c_context *ctx, int32_t wanted);

/* Lend the libraries for device `ordinal`, which need not exist; take them back (NULL is fine). */
f8_status f8_api_take_gpu(fp8c_context *ctx, int ordinal, f8_cuda **out, f8_diag *diag);
void f8_api_give_gpu(fp8c_context *ctx, f8_cuda *cuda);

/* The kernel cache. The first call opens it. NULL: it is turned off, or can't be used, which the
 * log says once. F8_ERR_MEMORY. */
f8_status f8_api_cache(fp8c_context *ctx, f8_cache **out, f8_diag *diag);

struct fp8c_module {
    fp8c_context *ctx;
    f8_arena arena;
    f8_module *ir;
    f8_diag diag; /* the module's own: an error in building outlives calls on other modules */
    char *text;   /* the source text, for messages; NULL: the module was built by calls */
    size_t text_size;
    size_t building; /* index of the function being built, plus 1; 0: none */
};

/* End a failed call: make the diag the calling thread's message, and return the status. `text` is
 * the text that the diag's place points into; it may be NULL. */
fp8c_status f8_api_fail(fp8c_context *ctx, const f8_diag *diag, f8_status status, const char *text,
                        size_t size);
/* Make a whole text the calling thread's message. */
void f8_api_message(fp8c_context *ctx, const char *text);
/* End a call without a text: FP8C_OK, or a failure like f8_api_fail's. */
fp8c_status f8_api_result(fp8c_context *ctx, const f8_diag *diag, f8_status status);
/* End a call on a module, which is one thread's. The module's first failure, if any, becomes the
 * message. */
fp8c_status f8_api_done(fp8c_module *m, f8_status status);
/* Free all threads' messages. */
void f8_api_end_messages(fp8c_context *ctx);

f8_type f8_api_type_in(const fp8c_type *t);
fp8c_type f8_api_type_out(const f8_type *t);

#endif
