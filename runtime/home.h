/* A home: what the executors of one program share, on the CPU and on CUDA alike.
 *
 * The executors have the same variables. They also share the memory in which a run works, since one
 * of them runs at a time; it is as large as the executor that needs most of it. If a new executor
 * needs more, the new memory is allocated before the old is freed, and the other executors then
 * resolve their places again. The home ends with its last executor (its tenant, here). */
#ifndef F8_HOME_H
#define F8_HOME_H

#include "runtime/plan.h"

/* Calls made since creation by all executors of the home. fp8_gemms: GEMMs with both operands in
 * FP8. */
typedef struct f8_exec_counts {
    int64_t gemms, fp8_gemms, kernels;
} f8_exec_counts;

/* Memory of the CPU or of the device. */
typedef struct f8_block {
    uint64_t at;
    int64_t bytes;
} f8_block;

/* Buffers of ports. */
typedef struct f8_port_block {
    f8_block block;
    uint8_t *host; /* CUDA: pinned memory of as many bytes */
} f8_port_block;

/* One port's buffer: the executor's own, and the one that is bound now. */
typedef struct f8_live_port {
    size_t bytes;
    uint64_t own, at;      /* what the steps read or write */
    void *own_host, *host; /* CUDA: what is copied to or from there; NULL: nothing */
} f8_live_port;

/* One variable's memory: in the home's block, or the caller's that is bound now. */
typedef struct f8_live_var {
    int64_t offset; /* in the plan's state, where steps name it */
    uint64_t own, at; /* own is 0 where the home has no memory for it; at is 0 while nothing is
                         bound to such a variable */
} f8_live_var;

/* What a plan needs: its variables, its largest arena, the buffers of all ports, the scratch of one
 * thread. */
typedef struct f8_sizes {
    int64_t state, arena, ports, scratch;
} f8_sizes;

/* `external`: the name pattern of variables and ports that are left out, since their memory is the
 * caller's; NULL: none. align: of each port's buffer. */
f8_sizes f8_plan_sizes(const f8_plan *plan, const char *external, int64_t align);
int64_t f8_sizes_sum(const f8_sizes *s, const f8_plan *plan, int n_threads, int64_t workspace);

typedef struct f8_home f8_home;
typedef struct f8_tenant f8_tenant;
typedef struct f8_work f8_work; /* work.h */

/* The blocks in which a run works: arena, scratch, workspace. */
enum { F8_WORK_BLOCKS = 3 };

/* How one kind of executor gets memory. */
typedef struct f8_home_kind {
    size_t size;   /* of its home, which begins with an f8_home */
    int64_t align; /* of a port's buffer */
    /* shared: a block of home->work */
    f8_status (*alloc)(f8_tenant *t, int64_t bytes, bool shared, const char *what, uint64_t *at,
                       f8_diag *diag);
    void (*free)(f8_home *home, f8_block b, bool shared);
    f8_status (*clear)(f8_tenant *t, f8_port_block *ports, f8_diag *diag); /* to zeros */
    f8_status (*settle)(f8_tenant *t, f8_diag *diag); /* what is enqueued ends; NULL: nothing is */
    void (*resolve)(f8_tenant *t, uint32_t func); /* every place of its steps: f8_home_address */
} f8_home_kind;

struct f8_home {
    const f8_home_kind *kind;
    f8_allocator allocator;
    f8_tenant *first;
    const char *external; /* as f8_plan_sizes takes it; it outlives the home */
    f8_live_var *var;     /* by the plan's variables */
    uint32_t n_vars;
    f8_work *work; /* NULL, or whose memory the three blocks below are, as of `generation` */
    uint64_t generation;
    f8_block state, arena, scratch, workspace;
    f8_port_block ports;
    int64_t bytes, peak; /* of these, and of the executors' constants and own ports */
    f8_exec_counts count;
};

/* An executor begins with this. */
struct f8_tenant {
    f8_tenant *next; /* of the home's */
    f8_home *home;
    const f8_plan *plan;
    f8_sizes sizes;
    f8_live_port *(*port)[2]; /* [function][input, output][port]; a function and its form for an
                                 empty history have them in common */
    bool *stale; /* by function: addresses have changed since its places were resolved */
    f8_block constants;
    f8_port_block ports; /* when they do not fit into the home's */
    int64_t planned;
};

/* The executor t enters the home of `like`, or a new home if `like` is NULL. t->plan is set. t's
 * ports are allocated in `memory`. `external` is for a new home. */
f8_status f8_home_enter(f8_tenant *t, f8_home *like, const f8_home_kind *kind,
                        const f8_allocator *allocator, const char *external, f8_arena *memory,
                        f8_diag *diag);

/* f8_home_allocate: the memory that executors share; the caller holds the lock of home->work.
 * f8_home_allocate_ports: the buffers of the ports; then every place is resolved. The executor sets
 * t->constants before the second call. */
f8_status f8_home_allocate(f8_tenant *t, int n_threads, int64_t workspace, f8_diag *diag);
f8_status f8_home_allocate_ports(f8_tenant *t, f8_diag *diag);

f8_status f8_block_alloc(f8_tenant *t, int64_t bytes, const char *what, f8_block *out,
                         f8_diag *diag);
void f8_block_free(f8_home *home, f8_block *b);
void f8_home_add(f8_home *home, int64_t bytes); /* counts these bytes as the home's */

uint64_t f8_home_address(const f8_tenant *t, uint32_t func, const f8_arg *a);

/* From now on the variable is at `at`; 0: in the home's own memory, if there is any. It does not
 * copy. Functions that have the variable become stale. */
void f8_home_bind_var(f8_home *home, uint32_t var, uint64_t at);
/* Another buffer is bound to a port of the function: it becomes stale, and the function that has
 * its buffers in common with it. */
void f8_home_port_moved(f8_tenant *t, uint32_t func);
/* Before a run of a function, with the lock of home->work: resolves its places if they are stale.
 * F8_ERR_INPUT names a variable or a port of the function that is external and that nothing is
 * bound to. */
f8_status f8_home_ready(f8_tenant *t, uint32_t func, f8_diag *diag);
/* That failure for a variable, and for a port of a function. */
f8_status f8_unbound_variable(const char *name, f8_diag *diag);
f8_status f8_unbound_port(bool output, const char *name, const char *func, f8_diag *diag);

/* The executor leaves. True if it was the last one: its kind then releases what it added, and ends
 * the home. */
bool f8_home_leave(f8_tenant *t);
void f8_home_end(f8_home *home);

#endif
