/* Instances: a compiled module with memory, on any target. A program runs on one.
 *
 * There are three kinds behind one table of functions: the CPU's executor and the GPU's, each over
 * a plan, and the reference interpreter over the module's functions. */
#ifndef F8_INSTANCE_H
#define F8_INSTANCE_H

#include "ir/ir.h"
#include "runtime/cuda/exec.h"
#include "runtime/cpu/exec.h"

typedef struct f8_instance f8_instance;

typedef struct f8_instance_info {
    int64_t planned_bytes, peak_bytes, held_bytes;
    f8_exec_counts count;
    int threads;
} f8_instance_info;

/* diag is filled where a function returns a status. */
typedef struct f8_instance_kind {
    void (*destroy)(f8_instance *i);
    void *(*var)(f8_instance *i, uint32_t var); /* NULL: it is not in host memory, or nowhere */
    void (*bind_var)(f8_instance *i, uint32_t var, void *at); /* NULL: memory of the instance */
    f8_status (*read)(f8_instance *i, uint32_t var, void *to, f8_diag *diag);
    f8_status (*write)(f8_instance *i, uint32_t var, const void *from, f8_diag *diag);
    f8_status (*clear)(f8_instance *i, uint32_t var, f8_diag *diag); /* to zero bytes */
    f8_status (*init)(f8_instance *i, uint64_t seed, const bool *keep, f8_diag *diag);
    void *(*port)(f8_instance *i, uint32_t func, int side, uint32_t port);
    f8_status (*bind)(f8_instance *i, uint32_t func, int side, uint32_t port, void *buffer,
                      f8_diag *diag);
    /* memory for saved values; as f8_exec_alloc */
    f8_status (*alloc)(f8_instance *i, int64_t bytes, f8_block *out, f8_diag *diag);
    void (*free)(f8_instance *i, f8_block *block);
    f8_status (*run)(f8_instance *i, uint32_t func, f8_diag *diag);
    f8_status (*wait)(f8_instance *i, f8_diag *diag);
    void (*info)(const f8_instance *i, f8_instance_info *out);
    /* as f8_exec_observe and f8_exec_fetch; NULL: it has no plan */
    void (*observe)(f8_instance *i, const f8_observer *observer);
    f8_status (*fetch)(f8_instance *i, uint32_t func, const f8_arg *from, int64_t bytes, void *to,
                       f8_diag *diag);
    /* as f8_exec_look; NULL: the host can't read its memory */
    const void *(*look)(f8_instance *i, uint32_t func, const f8_arg *at);
    double (*step_seconds)(const f8_instance *i, uint32_t func, uint32_t step);
    double (*step_gap)(const f8_instance *i, uint32_t func, uint32_t step); /* NULL: has none */
    /* the part of the seconds that the function's first run took, and of the gap; NULL: has none */
    double (*first_seconds)(const f8_instance *i, uint32_t func, uint32_t step, double *gap);
    const char *(*algorithm)(const f8_instance *i, uint32_t func,
                             uint32_t step); /* NULL: not known */
} f8_instance_kind;

struct f8_instance {
    const f8_instance_kind *kind; /* NULL: not created */
    const f8_plan *plan;     /* names and types of ports and variables */
    const f8_module *module; /* reference target: the module to interpret */
    const f8_comm *comm;     /* reference target: as in f8_exec_options */
    f8_allocator allocator;
    f8_exec *cpu;
    f8_cuda_exec *cuda;
    f8_arena memory; /* reference target: holds everything below */
    void **var, **own_var;       /* shared by instances with `like` */
    void ***own[2], ***bound[2]; /* [side][function][port]; of ports that carry no variable */
};

/* All borrow their arguments. After a failure there is nothing to destroy. `like` is NULL or an
 * instance that lives longer; the new one uses its variables. `external` is NULL, or the name
 * pattern of variables and ports that get no memory. The other kinds have both in their options. */
f8_status f8_instance_create_cpu(f8_instance *i, const f8_plan *plan,
                                 const f8_exec_options *options, f8_diag *diag);
f8_status f8_instance_create_cuda(f8_instance *i, const f8_plan *plan, f8_cuda *cuda,
                                  const f8_cuda_exec_options *options, f8_diag *diag);
/* The plan has only the module's interface (f8_build_interface). */
f8_status f8_instance_create_reference(f8_instance *i, const f8_module *module, const f8_plan *plan,
                                       const f8_instance *like, const f8_comm *comm,
                                       const char *external, const f8_allocator *allocator,
                                       f8_diag *diag);
void f8_instance_destroy(f8_instance *i); /* one that was never created is fine */

#endif
