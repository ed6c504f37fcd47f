/* Checkpoints on the command line: frontend/checkpoint/checkpoint.h says how they look. `fp8c train` adds to the metadata
 *     fp8c.recipe    trained under, as it was asked for
 *     fp8c.steps, fp8c.seed
 *
 * A file that `fp8c export` wrote has of the states only what `eval` reads, and weights of linears as
 * FP8 codes, each with its scales beside it (passes/scale/serve.c has their names). Then also
 *     fp8c.stored    JSON, {"WEIGHT": "block {pow2 = true}", ...}: the recipe that each is stored under
 *     fp8c.export, fp8c.rules, fp8c.library: what was asked for: the recipe; JSON, [RULE, ...], what
 *                    --rule and --bf16-layers gave; and the version that wrote it
 *
 * Also read: checkpoints of others, in F32, BF16 or F16. With Hugging Face's GPT-2 in mind, all
 * names may have "transformer." in front, and tensors that are no weights are passed over: causal
 * masks ("*.attn.bias" [1, 1, N, N] and "*.attn.masked_bias") and an "lm_head.weight" equal to
 * "wte.weight". */
#ifndef F8_CMD_CHECKPOINT_H
#define F8_CMD_CHECKPOINT_H

#include "frontend/checkpoint/checkpoint.h"
#include "frontend/cli/cmd.h"

/* Write all variables of a program trained under `recipe` to `path`, whole or not at all. A message
 * on stderr and false on failure. */
bool cli_checkpoint_save(const cli *c, const char *path, fp8c_program *program, const char *recipe);

/* Give a program compiled for inference under `recipe` the weights of a file, and what else its
 * `eval` reads: states that `prepare` computes from the parameters alone are computed, others must
 * be in the file. Nothing is written unless all is there and fits; else a message on stderr that
 * names each tensor that is missing, unexpected or different, and false. */
bool cli_checkpoint_load(const cli *c, f8_st_file *f, fp8c_context *ctx, fp8c_program *program,
                         const char *recipe);

/* The same with values (F32, BF16, F16) for a program that stores weights in FP8: those are
 * quantized, under `delayed` with the scales that training kept, which the file must have. Refuses
 * NaN in any parameter, and Inf in a quantized one. *from, by variable, the tensor that each came
 * from, or NULL, is the caller's to free, also after a failure. */
bool cli_checkpoint_quantize(const cli *c, f8_st_file *f, fp8c_context *ctx, fp8c_program *program,
                             const char *recipe, const f8_st_tensor ***from);

/* How the weights of a file are stored; none of a checkpoint's. */
typedef struct cli_stored {
    fp8c_stored_as *weight;
    size_t n;
    json_t *owner;
} cli_stored;
/* A message on stderr and false: the metadata is none. Free it in any case. */
bool cli_stored_read(cli_stored *s, f8_st_file *f, fp8c_context *ctx);
void cli_stored_free(cli_stored *s);

/* n values of f32 at `to` from F16 or BF16 at `from`. */
void cli_widen(f8_st_dtype dtype, const uint16_t *from, float *to, uint64_t n);
/* A file's failure on stderr; false. */
bool cli_file_fail(const f8_diag *diag);

#endif
