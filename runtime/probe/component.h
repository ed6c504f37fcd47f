/* What a machine has: libraries that can be loaded, GPUs, and facts of the machine itself; for
 * `fp8c doctor`.
 *
 * Everything is searched at run time, by the search that a program uses (dynlib.h,
 * runtime/cuda/device.h), and is asked for its version itself. Nothing fails but an allocation,
 * which the arena remembers: what is missing or broken is what is reported. All strings are the
 * arena's, or constants. */
#ifndef F8_COMPONENT_H
#define F8_COMPONENT_H

#include "runtime/cuda/device.h"
#include "runtime/base/dynlib.h"

typedef enum f8_component_state {
    F8_COMPONENT_OK,
    F8_COMPONENT_MISSING, /* nowhere */
    F8_COMPONENT_REFUSED, /* it exists, but does not load, lacks a function, or fails when called */
    F8_COMPONENT_VERSION, /* it exists, but is too old, or of another major version */
    F8_COMPONENT_MISMATCHED /* it works alone, but does not fit another component that is here */
} f8_component_state;

typedef struct f8_component {
    const char *name, *kind; /* kind: "cpu", "cuda", "more" */
    f8_component_state state;
    bool usable;         /* OK, or MISMATCHED in a way that may do no harm */
    const char *version; /* as the library itself says; NULL: it could not be asked */
    int major;           /* of the version; 0: unknown */
    const char *path;    /* the file that is mapped; NULL: none */
    const char *problem; /* NULL when OK */
    const char *note;    /* does no harm, but is worth knowing: other copies; or NULL */
    const char *enables; /* what it is for */
    const char *places;  /* names and folders that were searched; "" if nothing is searched */
    const char *get;     /* how to get it */
} f8_component;

typedef struct f8_components {
    f8_arena *arena;
    void (*before)(void *user,
                   const char *what); /* called with what is examined next; may be NULL */
    void *user;
    size_t n, room;
    f8_component **item; /* each stays where it is when more are added */
    f8_component lost;   /* what is added when the arena has no memory: the arena says so */
} f8_components;

/* Adds a component, MISSING so far. Never NULL. */
f8_component *f8_component_add(f8_components *all, const char *kind, const char *name,
                               const char *enables, const char *get);
void f8_component_ok(f8_component *c);
void f8_component_fail(f8_component *c, f8_component_state state, const char *problem);
/* NULL: there is none of that name. */
f8_component *f8_component_find(f8_components *all, const char *name);
/* The places of a search, as "libx.so.2, libx.so.1 in /a, the loader's path". */
const char *f8_component_places(f8_arena *arena, const char *const *names,
                                const char *const *folders);
/* Appends `more` to a text, which may be NULL, after "; ". */
const char *f8_component_also(f8_arena *arena, const char *text, const char *more);

/* Searches for a library and records its path, the places, other copies, and why it was not found.
 * True: it is loaded and its state is OK. `others` (may be NULL): patterns of its other versions,
 * so that a wrong version is not reported as missing. */
bool f8_component_search(f8_components *all, f8_component *c, const char *const *names,
                         const char *const *folders, const char *const *others, f8_dynlib *lib);
/* Records the same of a library that was loaded elsewhere; c->path is its file, `refused` as in
 * f8_dynlib. */
void f8_component_copies(f8_components *all, f8_component *c, const char *const *names,
                         const char *const *folders, const char *const *others,
                         const char *refused);

/* ---- what there is ---- */

/* The libraries from the driver to NVML, and whether they fit together. `trial` is compiled to see
 * whether NVRTC works. */
typedef struct f8_cuda_trial {
    const char *text, *header, *header_name;
} f8_cuda_trial;
void f8_components_cuda(f8_components *all, f8_cuda *cuda, const f8_cuda_trial *trial);
void f8_components_onednn(f8_components *all, const f8_allocator *allocator);
void f8_components_more(f8_components *all); /* MPI, SQLite */

/* ---- facts ---- */

typedef struct f8_fact {
    const char *group, *name, *value;
    const char *advice; /* NULL: there is no advice */
} f8_fact;

typedef struct f8_facts {
    f8_arena *arena;
    size_t n, room;
    f8_fact *item;
} f8_facts;

void f8_fact_add(f8_facts *all, const char *group, const char *name, const char *value,
                 const char *advice);
/* The value of a fact; "": there is none. */
const char *f8_fact_value(const f8_facts *all, const char *group, const char *name);

/* A component for each GPU the driver sees, and what NVML says of it. After f8_components_cuda. */
void f8_components_gpus(f8_components *all, f8_facts *facts, f8_cuda *cuda);
/* The system, CPU, threads and their limits, memory. `root` stands before /proc, /sys and /etc: "".
 */
void f8_facts_machine(f8_facts *all, const char *root);
/* Each known value of a device's health (health_facts.c), and those of the CPU. */
struct f8_health;
void f8_facts_health(f8_facts *facts, const char *group, const struct f8_health *h);
void f8_facts_cpu_health(f8_facts *facts, const char *root);

#endif
