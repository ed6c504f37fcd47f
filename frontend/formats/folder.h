/* A folder of weights as others write and load it: config.json, hf_quant_config.json, one
 * safetensors file or several with an index. Or one file. Which of its tensors are FP8, with which
 * scales, and what its config says of that. Internal to frontend/. */
#ifndef F8_FORMATS_FOLDER_H
#define F8_FORMATS_FOLDER_H

#include "frontend/checkpoint/format.h"
#include "frontend/checkpoint/values.h"

/* What a config says. */
typedef struct f8_declared {
    bool any;                   /* it says that weights are quantized */
    f8_fp8_format format;       /* F8_N_FORMATS: fp8c knows no such method */
    const char *method;         /* as it stands there: "fp8" */
    const char *file;           /* which file says so */
    const json_t *quantization; /* the object */
    f8_grain grain;             /* of the first group; F8_N_GRAINS: it does not say */
    bool static_inputs;         /* activations have scales in the files */
    bool lists;                 /* it has a list of what is not quantized, which may be empty */
} f8_declared;

/* A weight in FP8. */
typedef struct f8_scaled {
    const char *module;     /* its name in the files without ".weight" */
    const f8_weight *codes; /* F8_E4M3 or F8_E5M2, or a type that no format has */
    const f8_weight *scale; /* NULL: there is none */
    const f8_weight *input; /* the scale of the linear's input; NULL: there is none */
    bool fits;              /* the scales' shape goes with that of the codes */
    f8_grain grain;         /* where it fits */
    bool rows_are_inputs;   /* codes are [in, out] */
} f8_scaled;

typedef struct f8_model_folder {
    const char *path;  /* as it was given */
    const char *root;  /* the folder; NULL: `path` is a file, and nothing else is read */
    json_t *config;    /* config.json; NULL: there is none */
    json_t *modelopt;  /* hf_quant_config.json; NULL */
    const char *index; /* the index of its files; NULL */
    f8_weights weights;
    /* declared: config.json's, or hf_quant_config.json's if config.json says nothing or modelopt.
     * also: the other file's, where both say something. */
    f8_declared declared, also;
    f8_scaled *scaled; /* by name */
    size_t n_scaled;
    const f8_weight **stray; /* scales without codes */
    size_t n_stray;
    const f8_weight **other; /* codes that are no linear's weight, such as experts in one tensor */
    size_t n_other;
    f8_fp8_format format; /* of the FP8 weights, by the config, or by names where it says nothing */
    f8_arena memory;
} f8_model_folder;

/* Open a folder, an index or a file. `maps` and `ignore` are those of `o`, which may be NULL; its
 * files are not read. F8_ERR_INPUT: a file is not as described, there are no weights, or a method
 * that fp8c does not know (GPTQ, AWQ, bitsandbytes, ...) made them. Close f in any case, once the
 * diag is rendered. */
f8_status f8_model_folder_open(f8_model_folder *f, const char *path, const fp8c_load_options *o,
                               const f8_allocator *allocator, f8_diag *diag);
void f8_model_folder_close(f8_model_folder *f);

/* The FP8 weight of a module, or NULL. */
const f8_scaled *f8_model_folder_scaled(const f8_model_folder *f, const char *module);
/* Linears that loaders make one of: q, k and v, gate and up. Writes the name of number `i` of those
 * that `module` is one of. False: there is none. */
bool f8_model_folder_fused(const char *module, int i, char to[F8_MODULE]);
/* Whether the config says that a module stays out of FP8. */
bool f8_model_folder_skips(const f8_model_folder *f, const char *module);
/* Whether the model's linears are Conv1D, but for its head: their weights are [in, out], and no
 * loader that quantizes has them. */
bool f8_model_folder_conv1d(const f8_model_folder *f);
/* A text of the config, by one key or by two; NULL: it has none. */
const char *f8_model_folder_text(const f8_model_folder *f, const char *key);

/* Both give f32 and keep NaN and Inf. `memory` holds what is read on the way.
 *   _values   codes times scales of an FP8 weight, in the layout of its codes
 *   _scales   its scales */
f8_status f8_model_folder_values(const f8_scaled *s, f8_arena *memory, float *to, f8_diag *diag);
f8_status f8_model_folder_scales(const f8_scaled *s, f8_arena *memory, float **scales, int64_t *n,
                                 f8_diag *diag);

/* The JSON object of FOLDER/NAME, which the caller releases; *out stays NULL if there is no such
 * file. `memory` holds its path. */
f8_status f8_folder_json(const char *folder, const char *name, f8_arena *memory, json_t **out,
                         f8_diag *diag);

/* ---- declared.c ---- */

/* What a quantization_config, or hf_quant_config.json, says. `file` is for messages. */
f8_declared f8_declared_read(const json_t *quantization, bool modelopt, const char *file);
/* Whether it says that a module is not quantized. */
bool f8_declared_skips(const f8_declared *d, const char *module);

#endif
