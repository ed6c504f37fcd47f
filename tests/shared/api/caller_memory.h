/* For tests of memory of the caller: tensors for a program's variables and ports, in host or device
 * memory. */
#ifndef TEST_CALLER_MEMORY_H
#define TEST_CALLER_MEMORY_H

#include "tests/shared/api/api.h"
#include "tests/shared/api/view.h"

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
    ck_assert_int_eq(fp8c_program_variable(p, variable, &v), FP8C_OK);
    const fp8c_tensor_view view = view_of(&v.type, at, device);
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
