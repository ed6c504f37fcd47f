/* What the files of a conversion share. */
#ifndef F8_CONVERT_PARTS_H
#define F8_CONVERT_PARTS_H

#include "frontend/checkpoint/checkpoint.h"
#include "frontend/formats/convert.h"
#include "ir/num/quantize.h"

/* What a tensor of the new folder is made of. */
typedef enum f8_part { F8_PLAIN, F8_CODES, F8_SCALES, F8_INPUT_SCALE, F8_VALUES } f8_part;

typedef struct f8_convert_source {
    f8_part part;
    const f8_weight *plain;     /* F8_PLAIN */
    const f8_converted *weight; /* the others */
    const f8_adapter *adapter;  /* F8_PLAIN: added to it; NULL: none */
} f8_convert_source;

typedef struct f8_convert_work {
    f8_conversion *c;
    f8_diag *diag;
    f8_st_tensor *tensor;
    f8_convert_source *source;
    size_t n;
    f8_grain grain; /* of all weights that are FP8 */
    bool static_inputs;
    json_t *skipped;
    f8_checkpoint_names names; /* of the scales that a native file has of activations */
} f8_convert_work;

#define F8_CONVERT_FAIL(w, path, ...) f8_file_fail((w)->diag, F8_ERR_INPUT, path, __VA_ARGS__)

/* Whether the caller wants the conversion to stop; `user` is the work. */
bool f8_convert_stops(void *user);
/* Choose the granularity of the new folder, and for each weight whether it keeps its codes.
 * F8_ERR_INPUT: a weight can't be converted, or an adapter has none. (convert_fate.c) */
f8_status f8_convert_fates(f8_convert_work *w);
/* How a weight is quantized again. */
f8_quantizer f8_convert_quantizer(const f8_convert_work *w, const f8_converted *x);
/* The values of a weight with what its adapter adds, f32 as the codes lie. */
f8_status f8_convert_values(const f8_converted *x, f8_arena *memory, float **values, f8_diag *diag);
/* The bytes of tensor `index` of the new folder; `user` is the work. */
f8_status f8_convert_fill(void *user, size_t index, void *to, f8_diag *diag);

#endif
