/* A stand-in for the part of cuDNN that runtime/cuda/cudnn_attention.c uses: descriptors with the
 * real library's order of things (set, finalize, read), engines with notes and settings, and plans
 * that compute their graph operation by operation on the stream of the driver's stand-in.
 *
 * It knows nothing of attention: what a graph means is what its operations mean. As fused kernels
 * do, a matmul takes operands that never reach memory in bf16. Its list of engines begins with one
 * that is not deterministic and one that refuses every plan, so that a careless choice shows.
 *
 * FP8C_EMULATOR_FAIL=<function>[:n[:code]] makes the n-th call of a function fail, as in
 * tests/emulator; FP8C_EMULATOR_CUDNN is the version it says it is (91900),
 * FP8C_EMULATOR_CUDNN_NOTES how many harmless notes each engine has (1). */
#ifndef F8_EMU_CUDNN_H
#define F8_EMU_CUDNN_H

#include "runtime/cuda/cudnn_api.h"

#include <stdbool.h>

/* ---- exported ---- */

#pragma GCC visibility push(default)
#define F8_EMU_CUDNN_PROTOTYPE(result, name, parameters) result name parameters;
F8_CUDNN_SYMBOLS(F8_EMU_CUDNN_PROTOTYPE)
/* Descriptors and handles that live. */
int64_t f8_emulator_cudnn_count(void);
#pragma GCC visibility pop

/* A number of the environment (tests/emulator/common.c). */
int64_t f8_emu_setting(const char *name, int64_t otherwise);

/* ---- descriptors (descriptor.c) ---- */

typedef struct attribute {
    struct attribute *next;
    int name, type;
    int64_t count;
    size_t size; /* of an element */
    unsigned char data[];
} attribute;

typedef struct descriptor {
    struct descriptor *next;
    int type;
    bool final;
    attribute *attributes;
} descriptor;

/* The statuses of calls carry a reason, which cudnnGetLastErrorString gives. */
int emu_refuse(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool emu_lives(const void *d, int type); /* a finalized descriptor of this type */
const attribute *emu_find(const descriptor *d, int name);
int emu_int(const descriptor *d, int name); /* of an attribute that is there */
int64_t emu_long(const descriptor *d, int name);
bool emu_bool(const descriptor *d, int name);
descriptor *emu_part(const descriptor *d, int name); /* NULL: not set */
int emu_set(descriptor *d, int name, int type, size_t size, int64_t count, const void *elements);

/* ---- engines (engine.c): statuses ---- */

int emu_check_graph(const descriptor *graph);
int emu_check_engine(const descriptor *engine);
int emu_check_config(const descriptor *config);
int emu_check_plan(const descriptor *plan);
int emu_read(descriptor *d, int name, int type, int64_t room, int64_t *count, void *elements);
int emu_sm(void); /* of the driver's stand-in; 0: there is none */
int64_t emu_plan_workspace(const descriptor *plan);

/* ---- running (evaluate.c) ---- */

int emu_execute(cudaStream_t s, const descriptor *plan, const descriptor *pack);

#endif
