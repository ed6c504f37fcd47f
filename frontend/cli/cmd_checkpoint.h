/* Checkpoints on the command line. frontend/checkpoint/checkpoint.h describes their format.
 * `fp8c train` adds to the metadata:
 *     fp8c.recipe     the recipe of the training, as it was given
 *     fp8c.steps, fp8c.seed
 *
 * A file that `fp8c export` wrote holds only those states that `eval` reads. It holds weights of
 * linears as FP8 codes, each with its scales (passes/scale/serve.c names them), and more metadata:
 *     fp8c.stored     JSON, {"WEIGHT": "block {pow2 = true}", ...}: recipe of each stored weight
 *     fp8c.export     the recipe that was given to export
 *     fp8c.rules      JSON, [RULE, ...]: what --rule and --bf16-layers gave
 *     fp8c.library    the version of fp8c that wrote the file
 *
 * Checkpoints of others are read too, in F32, BF16 or F16. For Hugging Face's GPT-2, all names may
 * begin with "transformer.". Tensors that are not weights are passed over: causal masks
 * ("*.attn.bias" [1, 1, N, N] and "*.attn.masked_bias"), and an "lm_head.weight" that is equal to
 * "wte.weight". */
#ifndef F8_CMD_CHECKPOINT_H
#define F8_CMD_CHECKPOINT_H

#include "frontend/checkpoint/checkpoint.h"
#include "frontend/cli/cmd.h"

/* Writes all variables of a program that was trained under `recipe` to `path`, whole or not at all.
 * false after a message on stderr. */
bool cli_checkpoint_save(const cli *c, const char *path, fp8c_program *program, const char *recipe,
                         int64_t n_steps);

/* Loads the weights of a file into a program that was compiled for inference under `recipe`, with
 * the states that its `eval` reads. States that `prepare` computes from the parameters alone are
 * computed; others must be in the file. If a tensor is missing, unexpected or different, nothing is
 * written: a message on stderr names each one, and the result is false. */
bool cli_checkpoint_load(const cli *c, f8_st_file *f, fp8c_context *ctx, fp8c_program *program,
                         const char *recipe);

/* The same for a program that stores weights as FP8, from values (F32, BF16, F16): it quantizes
 * them. Under `delayed` it uses the scales that training kept, which the file must hold. NaN in any
 * parameter, and Inf in a quantized one, are errors. *from gets, for each variable, the tensor it
 * came from, or NULL; the caller frees the array, also after a failure. */
bool cli_checkpoint_quantize(const cli *c, f8_st_file *f, fp8c_context *ctx, fp8c_program *program,
                             const char *recipe, const f8_st_tensor ***from);

/* The recipe under which each weight of an exported file is stored; empty for a checkpoint. */
typedef struct cli_stored {
    fp8c_stored_as *weight;
    size_t n;
    json_t *owner;
} cli_stored;
/* false after a message on stderr: the metadata is not valid. Free *s in any case. */
bool cli_stored_read(cli_stored *s, f8_st_file *f, fp8c_context *ctx);
void cli_stored_free(cli_stored *s);

/* Converts n values of F16 or BF16 at `from` to f32 at `to`. */
void cli_widen(f8_st_dtype dtype, const uint16_t *from, float *to, uint64_t n);
/* Prints the failure of a file on stderr, and returns false. */
bool cli_file_fail(const f8_diag *diag);

#endif
