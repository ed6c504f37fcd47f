/* FP8 weights as other stacks keep them: one format as another. frontend/formats/README.md has the
 * formats. fp8c.h has what holds of all calls: failures, ownership, threads. */
#ifndef FP8C_WEIGHTS_H
#define FP8C_WEIGHTS_H

#include "fp8c.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What became of an FP8 weight. Strings live until the callback returns. */
typedef struct fp8c_converted {
    const char *weight; /* its name without ".weight" */
    const char *fate;   /* "kept": codes and scales; "spread": codes, and one scale for all blocks
                           or rows; "requantized"; "merged": requantized with an adapter;
                           "dequantized": values */
    const char *granularity; /* of the new scales */
    const char *why;         /* of "requantized" and "dequantized"; NULL */
    double sqnr;  /* of new codes to the values that were quantized, in dB; Inf: equal; NaN: there
                     are none */
    double added; /* "merged": what the adapter adds over the same noise, in dB; else NaN */
} fp8c_converted;

typedef struct fp8c_convert_options {
    size_t struct_size; /* sizeof(fp8c_convert_options) */
    const char *from;   /* a folder, an index, or a safetensors file, with weights in FP8 */
    const char *format; /* "hf-fp8", "compressed-tensors", "modelopt" or "native" */
    const char *out;    /* a new folder, or an empty one; "native": a file */
    /* The folder of the model before FP8, whose names, config.json and other files the new folder
     * gets. NULL: `from` is a folder that has them. */
    const char *model;
    const char
        *adapters; /* LoRA's, to be added: "Adapters, merged" in frontend/formats/README.md; NULL */
    int64_t most;  /* bytes of tensors in a file; 0: 5 GB */
    /* As in fp8c_load_options, of the names of `model`; without one, and only for "native", of
     * those of `from`. */
    const char *const *ignore;
    size_t n_ignore;
    const char *const *map;
    size_t n_map;
    /* Called for each FP8 weight once everything is written. May be NULL. */
    void (*report)(void *user, const fp8c_converted *weight);
    void *user;
} fp8c_convert_options;
/* Write `out`, whole or not at all. FP8C_ERR_INPUT: a file is not as described, `from` has no FP8,
 * the format has no room for these weights, or weights, model and adapters do not go together. */
FP8C_API fp8c_status fp8c_convert_weights(fp8c_context *ctx, const fp8c_convert_options *options);

#ifdef __cplusplus
}
#endif

#endif
