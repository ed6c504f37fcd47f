/* LoRA's adapters, and what they add to weights: W + FACTOR B A (Hu et al. 2021, "LoRA: Low-Rank
 * Adaptation of Large Language Models", section 4.1). Internal to frontend/. */
#ifndef F8_FORMATS_ADAPTERS_H
#define F8_FORMATS_ADAPTERS_H

#include "frontend/formats/folder.h"

/* How the factors lie. */
typedef enum f8_adapter_kind {
    F8_ADAPTER_OUT_IN, /* A [r, in], B [out, r], beside a weight [out, in] */
    F8_ADAPTER_IN_OUT, /* the same beside a weight [in, out] (peft's fan_in_fan_out) */
    F8_ADAPTER_TEXT    /* of a text of fp8c's: as the weight lies, A B or B A */
} f8_adapter_kind;

typedef struct f8_adapter {
    const char *module; /* the linear that it stands beside, without ".weight" */
    const f8_weight *a, *b;
    float *a_values, *b_values; /* all finite */
    double factor;
    f8_adapter_kind kind;
} f8_adapter;

typedef struct f8_adapters {
    const char *path;    /* what messages call them */
    f8_adapter *adapter; /* by module */
    size_t n;
    f8_weights weights; /* a folder's own */
    f8_arena memory;
} f8_adapters;

/* The adapters that `what` says, for weights of `from`: a folder that peft's save_pretrained wrote;
 * or factors among the tensors of `from`, which must outlive them: "WEIGHT=A,B" or
 * "WEIGHT=A,B,FACTOR". A * of WEIGHT stands for any text, and A and B have as many. `model`: the
 * folder whose config says what the linears are; it may be `from`. F8_ERR_INPUT: `what` has another
 * form, or names no weight with both factors; a file is not as described; or a product of two
 * factors is not all that is added to W (DoRA, biases, ...). */
f8_status f8_adapters_find(f8_adapters *a, const char *what, const f8_model_folder *from,
                           const f8_model_folder *model, const f8_allocator *allocator,
                           f8_diag *diag);
/* Close a in any case, once the diag is rendered. One that is all zeros is fine. */
void f8_adapters_close(f8_adapters *a);

const f8_adapter *f8_adapters_of(const f8_adapters *a, const char *module); /* NULL: none */
/* Whether a tensor is a factor of one. */
bool f8_adapters_have(const f8_adapters *a, const f8_weight *t);
/* Checks that the factors go with a weight [dim[0], dim[1]]; else F8_ERR_INPUT. */
f8_status f8_adapter_fits(const f8_adapter *x, const int64_t *dim, f8_diag *diag);
/* Adds FACTOR B A to the values of a weight that it fits. */
f8_status f8_adapter_add(const f8_adapter *x, const int64_t *dim, f8_arena *memory, float *values,
                         f8_diag *diag);
/* The sum of the squares of what it adds to such a weight. */
double f8_adapter_energy(const f8_adapter *x, const int64_t *dim);

#endif
