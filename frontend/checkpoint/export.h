/* Writing a program's weights as FP8 codes with their scales, as README.md, "Exported weights",
 * describes the file. It holds only those states that `eval` reads. The codes of linears' weights
 * have their scales beside them (passes/scale/serve.c names these), and the metadata is that of a
 * checkpoint and
 *     fp8c.stored     JSON, {"WEIGHT": "block {pow2 = true}", ...}: recipe of each stored weight
 *     fp8c.export     the recipe that was given to export
 *     fp8c.rules      JSON, [RULE, ...]: the rules that were given beside the text's
 *     fp8c.library    the version of fp8c that wrote the file
 * Internal to frontend/. */
#ifndef F8_EXPORT_H
#define F8_EXPORT_H

#include "frontend/checkpoint/load.h"

typedef struct f8_export {
    const char *path, *recipe;
    const char *const *rules; /* that were given beside the text's */
    size_t n_rules;
    f8_st_dtype dtype; /* of parameters that stay out of FP8; F8_ST_N_DTYPES: that of the files */
    f8_temporaries *list;
    /* What f8_export_write finds: parameters from the files, those of them that are stored as FP8,
     * the bytes of the former in the files, and of all parameters, codes and scales now. */
    int64_t parameters, stored, bytes_before, bytes;
} f8_export;

/* Write the parameters of a program for inference, and the states that its `eval` reads. `load` is
 * the load that quantized them (f8_loader_quantize). */
f8_status f8_export_write(f8_export *e, fp8c_program *program, const f8_load *load, f8_diag *diag);
/* The record `export`. `weights`: the files they came from, for people. */
json_t *f8_export_record(const f8_export *e, const char *weights);

#endif
