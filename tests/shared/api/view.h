/* Tensors as DLPack has them, for tests. */
#ifndef TEST_VIEW_H
#define TEST_VIEW_H

#include "frontend/fp8c.h"

/* A contiguous tensor. Its shape is that of `t`, which lives as long. device: 1 host, 2 GPU. */
static inline fp8c_tensor_view view_of(const fp8c_type *t, void *data, int32_t device)
{
    static const struct {
        uint8_t code, bits;
    } codes[] = {[FP8C_F32] = {2, 32},    [FP8C_BF16] = {4, 16},   [FP8C_F16] = {2, 16},
                 [FP8C_I32] = {0, 32},    [FP8C_BOOL] = {6, 8},    [FP8C_F8E4M3] = {10, 8},
                 [FP8C_F8E5M2] = {12, 8}, [FP8C_F8E8M0] = {14, 8}, [FP8C_I64] = {0, 64}};
    return (fp8c_tensor_view){.data = data,
                              .device = {device, 0},
                              .ndim = t->rank,
                              .dtype = {codes[t->dtype].code, codes[t->dtype].bits, 1},
                              .shape = (int64_t *)t->dim};
}

#endif
