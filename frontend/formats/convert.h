/* FP8 weights of one format as a folder of another. A weight keeps its codes where the new folder
 * has scales that cover as much. Else it is quantized again, and the SQNR is told.
 * Internal to frontend/. */
#ifndef F8_FORMATS_CONVERT_H
#define F8_FORMATS_CONVERT_H

#include "frontend/formats/adapters.h"

/* What becomes of a weight that was FP8. */
typedef enum f8_fate {
    F8_KEPT,        /* the same codes and scales */
    F8_SPREAD,      /* the same codes; one scale stands for all blocks, or rows */
    F8_REQUANTIZED, /* other codes */
    F8_MERGED,      /* other codes: an adapter is added to the values */
    F8_DEQUANTIZED, /* values: the format, or its loaders, can't have it */
    F8_N_FATES
} f8_fate;

typedef struct f8_converted {
    const f8_scaled *from;
    f8_fate fate;
    f8_grain grain;            /* of the new scales */
    float input;               /* the scale of the linear's input; 0: no file has it */
    const f8_adapter *adapter; /* NULL: none */
    double sqnr;  /* of new codes: their values to those that were quantized, in dB; else NaN */
    double added; /* F8_MERGED: what the adapter adds to the same noise, in dB; else NaN */
    float *scale, *inverse; /* of new codes: factors, and their inverses, which a file has; NULL */
    const char *why;        /* F8_REQUANTIZED, F8_DEQUANTIZED */
} f8_converted;

typedef struct f8_conversion {
    const f8_model_folder *from;
    const char *shown; /* what messages call the weights */
    /* The folder of the model that the training began with. The new folder gets its names, its
     * dtypes where they are not FP8, its config.json and its other files. It was opened with maps
     * that give its tensors the names of `from`. NULL: `from` is that folder. */
    const f8_model_folder *model;
    const f8_adapters *adapters; /* added to weights of `from`; NULL: none */
    f8_fp8_format to;
    const char *path; /* the folder to write; native: the file */
    uint64_t most;    /* bytes of tensors in a file; 0: 5 GB */
    f8_temporaries *list;
    bool (*stop)(void *user); /* NULL: nobody asks */
    void *stop_user;
    const f8_allocator *allocator;
    /* What was done. */
    f8_converted *weight;
    size_t n, n_files;
    uint64_t bytes;
    int64_t of_fate[F8_N_FATES];
    int64_t plain_merged; /* weights out of FP8 that have an adapter added */
    int64_t inputs_lost;  /* scales of inputs that the new folder has no place for */
    f8_arena memory;
} f8_conversion;

/* What a conversion reads. */
typedef struct f8_convert_sources {
    f8_model_folder from, model;
    f8_adapters adapters;
} f8_convert_sources;

/* Opens `from`, and `model` and `adapters` unless they are NULL, and gives them to c. `named` has
 * the maps and what to ignore: of the model; without one, and where c->to is native, of `from`.
 * Close s in any case, once the diag is rendered and c has ended. */
f8_status f8_convert_open(f8_convert_sources *s, f8_conversion *c, const char *from,
                          const char *model, const char *adapters, const fp8c_load_options *named,
                          f8_diag *diag);
void f8_convert_close(f8_convert_sources *s);

/* Write the folder. F8_ERR_INPUT: the format has no room for these weights, or the model, the
 * weights and the adapters do not go together; then nothing is written. End c in any case, once the
 * diag is rendered. */
f8_status f8_convert(f8_conversion *c, f8_diag *diag);
void f8_conversion_end(f8_conversion *c);
const char *f8_fate_name(f8_fate fate);

/* ---- config.c ---- */

typedef struct f8_described {
    f8_fp8_format format;
    f8_grain grain;
    bool static_inputs;
    json_t *skipped; /* modules that stay out, an array of strings */
} f8_described;

/* config.json's quantization_config, and hf_quant_config.json or NULL. The caller owns them. */
json_t *f8_describe(const f8_described *d);
json_t *f8_describe_modelopt(const f8_described *d);
/* The head's module in models of this architecture, tied or not. A file of a model with a tied head
 * lacks its weight, so no tensor names it. NULL: not known. */
const char *f8_tied_head(const json_t *config);

#endif
