/* Compiles and runs a model with what the public API does not offer: a recipe that the test made.
 */
#ifndef F8_TEST_COMPILE_H
#define F8_TEST_COMPILE_H

#include "frontend/instance.h"
#include "tests/shared/passes/passes.h"
#include "tests/shared/num/operand.h"

typedef struct f8_compiled {
    f8_arena arena;
    f8_diag diag;
    f8_unit unit;
    f8_plan plan;
    f8_instance instance;
    f8_exec *exec; /* the instance's on the CPU, else NULL */
} f8_compiled;

typedef struct f8_compile_setup {
    const char *file;    /* a model, relative to the project's root */
    const char *dims;    /* "B=4 T=64": replaces dims */
    f8_recipe recipe;
    const char *keep;
    int threads;
    bool no_fuse;
    uint64_t seed;     /* of initial values; 0 is 1 */
    const char *rules; /* recipe lines, read behind the model's own; or NULL */
    f8_budget memory;  /* these as in f8_options */
    const char *checkpoint, *recompute;
    bool pair;
    int32_t ranks, zero; /* to be looked at: a program of several ranks does not run here */
    const char *drop;  /* names of functions, in spaces, that nobody runs: not compiled; or NULL */
    f8_cuda *cuda;     /* a CUDA target's; NULL: the CPU */
    const f8_target *target;
    f8_status (*after)(void *user, f8_unit *u, const char *pass); /* as in f8_options; or NULL */
    void *after_user;
} f8_compile_setup;

/* false with the message in c->diag; end it either way. */
bool f8_compile_model(f8_compiled *c, const f8_compile_setup *setup);
/* Of that, all before code: c->unit is what the passes left. */
bool f8_compile_passes(f8_compiled *c, const f8_compile_setup *setup);
void f8_compiled_end(f8_compiled *c);

/* Index of a function, or of an output port of it; -1 if there is none. */
int f8_compiled_func(const f8_compiled *c, const char *name);
int f8_compiled_output(const f8_compiled *c, int func, const char *name);

/* The operand whose codes are output `port` of a function: its name (up to size bytes) and where it
 * lies since the last run. False when that output is something else. */
bool f8_compiled_operand(f8_compiled *c, int func, uint32_t port, char *name, size_t size,
                         f8_operand_view *out);

/* Run a function and wait. */
f8_status f8_compiled_run(f8_compiled *c, int func);

/* Fill micro_step's (or eval's) tokens and targets from the bytes of a text, by seed. */
void f8_compiled_batch(f8_compiled *c, int func, const char *text, size_t size, uint64_t seed);

/* One micro_step and update; the loss. NaN when a run failed (c->diag says why). */
float f8_compiled_step(f8_compiled *c, const char *text, size_t size, uint64_t seed);

/* A text to train on: tinyshakespeare where it lies next to the project, else the project's own
 * sources. The caller frees. */
char *f8_test_text(size_t *size);
char *f8_test_read(const char *path, size_t *size); /* NULL when it can't be read */

#endif
