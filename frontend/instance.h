/* A compiled module with memory, whatever its target: what a program runs on.
 *
 * Two kinds: `cpu` is an executor over a plan; `reference` interprets the module's functions. */
#ifndef F8_INSTANCE_H
#define F8_INSTANCE_H

#include "ir/ir.h"
#include "runtime/exec.h"

typedef struct f8_instance {
    const f8_module *module; /* after the passes: names and types of ports and variables */
    f8_allocator allocator;
    f8_exec *exec;           /* cpu; NULL for reference */
    f8_arena memory;         /* reference: everything below */
    void **var;
    void ***own[2], ***bound[2]; /* [side][function][port] */
} f8_instance;

/* plan NULL: reference. Both are borrowed. */
f8_status f8_instance_create(f8_instance *i, const f8_module *module, const f8_plan *plan,
                             const f8_exec_options *options, f8_diag *diag);
void f8_instance_destroy(f8_instance *i);

void *f8_instance_var(f8_instance *i, uint32_t var);
void *f8_instance_port(f8_instance *i, uint32_t func, int side, uint32_t port);
void f8_instance_bind(f8_instance *i, uint32_t func, int side, uint32_t port, void *buffer);
void f8_instance_init(f8_instance *i, uint64_t seed);
f8_status f8_instance_run(f8_instance *i, uint32_t func, f8_diag *diag);

#endif
