/* Checkpoints: a program's variables as a safetensors file, and back.
 *
 * A parameter stands in the file under its own name, which is its ecosystem's; a state (scales,
 * amaxes and their histories, optimizer moments) under "fp8c.state." and its name, which loaders of
 * plain weights pass over. `__metadata__` has "format" = "pt", which Hugging Face's loaders ask
 * for, and fp8c.version   "1": what is said here fp8c.model     the module's name fp8c.recipe    as
 * it was asked for fp8c.steps, fp8c.seed fp8c.elements  JSON, {"STATE": ["h.0.attn.c_attn.x", ...],
 * ...}: what the elements of a state along its first axis stand for (fp8c_program_element).
 * Programs find their own by these names, whatever the order.
 *
 * Also read: checkpoints of others, in F32, BF16 or F16. With Hugging Face's GPT-2 in mind, all
 * names may have "transformer." in front, and tensors that are no weights are passed over: causal
 * masks ("*.attn.bias" [1, 1, N, N] and "*.attn.masked_bias") and an "lm_head.weight" equal to
 * "wte.weight". */
#ifndef F8_CMD_CHECKPOINT_H
#define F8_CMD_CHECKPOINT_H

#include "frontend/cmd.h"
#include "frontend/cmd_safetensors.h"

/* Write all variables of a program trained under `recipe` to `path`, whole or not at all. A message
 * on stderr and false on failure. */
bool cli_checkpoint_save(const cli *c, const char *path, fp8c_context *ctx,
                         const fp8c_module *module, fp8c_program *program, const char *recipe);

/* Give a program compiled for inference under `recipe` the weights of a file, and what else its
 * `eval` reads: states that `prepare` computes from the parameters alone are computed, others must
 * be in the file. Nothing is written unless all is there and fits; else a message on stderr that
 * names each tensor that is missing, unexpected or different, and false. */
bool cli_checkpoint_load(const cli *c, st_file *f, fp8c_context *ctx, fp8c_program *program,
                         const char *recipe);

#endif
