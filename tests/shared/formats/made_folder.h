/* Small folders of FP8 weights, as transformers, compressed-tensors and ModelOpt keep them: two
 * layers of a Llama. A test makes a sound one, changes what it likes, and writes it. Every function
 * fails the running test on an error of its own. */
#ifndef F8_TESTS_MADE_FOLDER_H
#define F8_TESTS_MADE_FOLDER_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "frontend/checkpoint/safetensors.h"

/* MADE_FILE: fp8c's own file, that `fp8c weights --as native` makes of one of the others. */
typedef enum made_format { MADE_HF, MADE_CT, MADE_MODELOPT, MADE_FILE } made_format;
typedef enum made_scales { MADE_TENSOR, MADE_ROWS, MADE_BLOCKS, MADE_MX } made_scales;

/* Zero stands for what is said in parentheses. */
typedef struct made_spec {
    made_format format;
    made_scales scales;
    int64_t hidden, wide; /* width of the model, and of its MLP (256, 384) */
    int64_t kv;           /* rows of k and v (128) */
    bool tied;            /* no lm_head */
    bool router;          /* each layer has mlp.gate.weight, kept out of FP8 */
    bool inputs;          /* compressed-tensors: scales of inputs; ModelOpt's FP8 has them always */
    f8_st_dtype scale;    /* of scales (F32) */
    float rms;            /* of the weights (0.02) */
    int files;            /* (1) */
    bool tokenizer;
    const char *zero; /* the first rows of this linear are zero */
} made_spec;

enum { MADE_MOST = 80, MADE_NAME = 100 };

typedef struct made_tensor {
    char name[MADE_NAME];
    f8_st_dtype dtype;
    int32_t rank;
    int64_t dim[4];
    unsigned char *data;
    int file;
} made_tensor;

typedef struct made_folder {
    made_spec spec;
    made_tensor t[MADE_MOST];
    size_t n;
    json_t *config, *quant;  /* config.json and hf_quant_config.json; NULL: none */
    json_t *index;           /* its weight_map; NULL: as the tensors lie */
    f8_st_pair metadata[16]; /* of fp8c's own file */
    size_t n_metadata;
} made_folder;

made_folder *made_new(made_spec spec);
void made_free(made_folder *f);
/* Fails the test if there is none. */
made_tensor *made_find(made_folder *f, const char *name);
/* All zeros. Up to four dims; the first that is -1 ends them. */
made_tensor *made_add(made_folder *f, const char *name, f8_st_dtype dtype, int64_t a, int64_t b,
                      int64_t c, int64_t d);
void made_drop(made_folder *f, const char *name);
size_t made_bytes(const made_tensor *t);
int64_t made_count(const made_tensor *t);
/* The scales of a linear, "model.layers.0.mlp.up_proj". */
made_tensor *made_scale(made_folder *f, const char *linear);
/* An element of a tensor of any float dtype. */
float made_get(const made_tensor *t, int64_t i);
void made_set(made_tensor *t, int64_t i, float x);
/* Multiplies all elements. */
void made_times(made_tensor *t, float by);
json_t *made_quantization(made_folder *f); /* that of the config */
/* Puts the weight into FP8 with one scale of the folder's kind, and takes it out of FP8. */
void made_to_fp8(made_folder *f, const char *linear);
void made_to_bf16(made_folder *f, const char *linear);
/* The values of a linear's weight, FP8 or not, as they lie; the caller frees. What a scale covers
 * is told by the shapes alone. */
float *made_values(made_folder *f, const char *linear);
/* All weights of FP8 become BF16, with no scales and nothing in the config. */
void made_widen(made_folder *f);
/* Writes it to the folder `dir`, which is made; MADE_FILE: to the file `dir`. */
void made_write(made_folder *f, const char *dir);
/* The tensors and the metadata of a file. */
made_folder *made_read(const char *path);
void made_text(const char *dir, const char *name, const char *text);

#endif
