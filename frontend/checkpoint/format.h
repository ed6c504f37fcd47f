/* The formats in which other stacks keep FP8 weights: what a linear's scales are called, which
 * dtype and shape they have, and which granularities a format has. In all of them a value is its
 * code times its scale. Codes are E4M3FN [out, in], as the linear's `weight`. Depends on ir/ and
 * the safetensors reader. Internal to frontend/.
 *
 *     native              what `fp8c export` writes: ../checkpoint/README.md, "Exported weights"
 *     hf-fp8              transformers' fine-grained FP8, DeepSeek-V3: `weight_scale_inv`
 *     compressed-tensors  `weight_scale`; `quantization_config` of config.json names the groups
 *     modelopt            NVIDIA's: `weight_scale`, `input_scale`; hf_quant_config.json
 *
 * ../formats/README.md has the table of shapes, and where each comes from. */
#ifndef F8_FP8_FORMAT_H
#define F8_FP8_FORMAT_H

#include "frontend/checkpoint/safetensors.h"
#include "ir/num/granularity.h"

typedef enum f8_fp8_format {
    F8_NATIVE,
    F8_HF_FP8,
    F8_COMPRESSED_TENSORS,
    F8_MODELOPT,
    F8_N_FORMATS
} f8_fp8_format;

/* What one scale of a linear's weight covers. */
typedef enum f8_grain {
    F8_BY_TENSOR, /* the tensor */
    F8_BY_ROWS,   /* an output */
    F8_BY_BLOCKS, /* 128 x 128 */
    F8_BY_MX,     /* 32 along the inputs, by a power of two */
    F8_N_GRAINS
} f8_grain;

enum { F8_BLOCK = 128, F8_MX_RUN = 32 };

const char *f8_fp8_format_name(f8_fp8_format format);
bool f8_fp8_format_parse(const char *text, f8_fp8_format *out);
/* What a granularity is called. */
typedef struct f8_grain_words {
    const char *shown;     /* "blocks of 128" */
    const char *recipe;    /* of fp8c, under which weights are stored so: "block" */
    const char *strategy;  /* compressed-tensors': "block" */
    const char *inputs;    /* the strategy of inputs that are scaled dynamically: "group" */
    const char *algorithm; /* ModelOpt's quant_algo: "FP8_PB_WO" */
} f8_grain_words;
extern const f8_grain_words f8_grains[F8_N_GRAINS + 1]; /* the last one is not known */

/* Whether a format can say of a linear that its scales have this granularity. */
bool f8_fp8_format_has(f8_fp8_format format, f8_grain grain);

/* The type of a linear's scales, [out, in] being that of its codes: what follows `weight` in the
 * name, dtype, rank and shape. `rows_are_inputs`: codes are [in, out] (native alone). */
typedef struct f8_scale_type {
    const char *suffix; /* "_scale_inv" */
    f8_st_dtype dtype;
    int32_t rank;
    int64_t dim[4];
} f8_scale_type;
f8_scale_type f8_fp8_format_scale(f8_fp8_format format, f8_grain grain, const int64_t codes[2],
                                  bool rows_are_inputs);

/* Whether a dtype is one of FP8 codes, AMD's fnuz types too. */
bool f8_is_fp8(f8_st_dtype dtype);

/* What a scale covers of codes as they lie. */
f8_granularity f8_grain_covers(f8_grain grain, bool rows_are_inputs);

/* The granularity that scales of this type have over codes [rows, columns], `like` being the one
 * that is expected where sizes leave a choice. False: their shapes do not go together. *inputs: the
 * codes are [in, out]. */
bool f8_grain_of(const f8_st_tensor *scale, const int64_t codes[2], f8_grain like, f8_grain *out,
                 bool *inputs);

/* The axis of codes that is longer than a block and no multiple of it, or -1. transformers takes
 * rows / (rows of scales) for a block's height, and places such blocks wrong. */
int f8_ragged_axis(const int64_t codes[2]);

/* Whether a tensor may be a linear's weight, by name and rank: a matrix NAME.weight. Writes NAME.
 */
enum { F8_MODULE = 1024 };
bool f8_linear_of(const char *name, int32_t rank, char module[F8_MODULE]);
/* Whether a name is that of a linear's scales, or of the scale of its input. Writes the linear's.
 */
bool f8_scale_of(const char *name, char module[F8_MODULE]);

#endif
