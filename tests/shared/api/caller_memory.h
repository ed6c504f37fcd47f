/* For tests of memory of the caller: tensors for a program's variables and ports, in host or device
 * memory. */
#ifndef TEST_CALLER_MEMORY_H
#define TEST_CALLER_MEMORY_H

#include "tests/shared/api/api.h"

/* A contiguous tensor, as DLPack has it. `shape` has the room of FP8C_MAX_RANK. */
static inline fp8c_tensor_view view_of(const fp8c_type *t, int64_t *shape, void *data,
                                       int32_t device)
{
    static const struct {
        uint8_t code, bits;
    } codes[] = {[FP8C_F32] = {2, 32},    [FP8C_BF16] = {4, 16},   [FP8C_F16] = {2, 16},
                 [FP8C_I32] = {0, 32},    [FP8C_BOOL] = {6, 8},    [FP8C_F8E4M3] = {10, 8},
                 [FP8C_F8E5M2] = {12, 8}, [FP8C_F8E8M0] = {14, 8}};
    fp8c_tensor_view v = {.data = data, .ndim = t->rank, .shape = shape};
    memcpy(shape, t->dim, sizeof t->dim);
    v.device.type = device;
    v.dtype.code = codes[t->dtype].code;
    v.dtype.bits = codes[t->dtype].bits;
    v.dtype.lanes = 1;
    return v;
}

static inline int64_t planned(const fp8c_program *p)
{
    fp8c_info info = {.struct_size = sizeof info};
    fp8c_program_info(p, &info);
    return info.planned_bytes;
}

enum { CALLER_MOST = 200 }; /* variables of a program */

/* One tensor for each variable of a program. */
typedef struct caller_tensors {
    char *block[CALLER_MOST], *at[CALLER_MOST];
    size_t bytes[CALLER_MOST];
    int n;
} caller_tensors;

/* In host memory, at addresses that are multiples of the element's size and of no more. */
static inline void caller_make(caller_tensors *t, fp8c_program *p)
{
    fp8c_variable v;
    *t = (caller_tensors){0};
    for (; fp8c_program_variable(p, t->n, &v) == FP8C_OK; t->n++) {
        const fp8c_type one = {.dtype = v.type.dtype};
        ck_assert_int_lt(t->n, CALLER_MOST);
        t->bytes[t->n] = (size_t)fp8c_type_bytes(&v.type);
        t->block[t->n] = aligned_alloc(64, (t->bytes[t->n] + 127) / 64 * 64);
        t->at[t->n] = t->block[t->n] + fp8c_type_bytes(&one);
        memset(t->block[t->n], 0x5a, t->bytes[t->n] + 64);
    }
}

static inline void caller_free(caller_tensors *t)
{
    for (int i = 0; i < t->n; i++)
        free(t->block[i]);
}

static inline fp8c_status caller_bind(fp8c_program *p, int variable, void *at, int32_t device)
{
    fp8c_variable v;
    int64_t shape[FP8C_MAX_RANK];
    ck_assert_int_eq(fp8c_program_variable(p, variable, &v), FP8C_OK);
    const fp8c_tensor_view view = view_of(&v.type, shape, at, device);
    return fp8c_program_bind_variable(p, variable, &view);
}

/* Binds all variables, whatever the tensors hold. */
static inline void caller_bind_all(fp8c_context *ctx, fp8c_program *p, const caller_tensors *t,
                                   int32_t device)
{
    for (int i = 0; i < t->n; i++)
        ck_assert_msg(caller_bind(p, i, t->at[i], device) == FP8C_OK, "%s",
                      fp8c_context_message(ctx));
}

/* Binds all variables, with the values that they have. */
static inline void caller_move_all(fp8c_context *ctx, fp8c_program *p, const caller_tensors *t,
                                   int32_t device)
{
    for (int i = 0; i < t->n; i++) {
        void *value = malloc(t->bytes[i] + 1);
        ck_assert_int_eq(fp8c_program_read(p, i, value), FP8C_OK);
        ck_assert_msg(caller_bind(p, i, t->at[i], device) == FP8C_OK, "%s",
                      fp8c_context_message(ctx));
        ck_assert_int_eq(fp8c_program_write(p, i, value), FP8C_OK);
        free(value);
    }
}

#endif
