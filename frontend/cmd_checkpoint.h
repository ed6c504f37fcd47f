/* Checkpoints: a program's variables as a safetensors file, and back.
 *
 * A parameter stands in the file under its own name, which is its ecosystem's; a state (scales,
 * amaxes and their histories, optimizer moments) under "fp8c.state." and its name, which loaders of
 * plain weights pass over. `__metadata__` has "format" = "pt", which Hugging Face's loaders ask
 * for, and
 *     fp8c.version   "1": what is said here
 *     fp8c.model     the module's name
 *     fp8c.recipe    trained under, as it was asked for
 *     fp8c.steps, fp8c.seed
 *     fp8c.elements  JSON, {"STATE": ["h.0.attn.c_attn.x", ...], ...}: what the elements of a state
 *                    along its first axis stand for (fp8c_program_element). Programs find their own
 *                    by these names, whatever the order.
 *
 * A file that `fp8c export` wrote has of the states only what `eval` reads, and weights of linears as
 * FP8 codes, each with its scales beside it (passes/serve.c has their names). Then also
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

/* The same with values (F32, BF16, F16) for a program that stores weights in FP8: those are quantized, under
 * `delayed` with the scales that training kept, which the file must have. Refuses NaN in any parameter, and Inf in
 * a quantized one. *from, by variable, the tensor that each came from, or NULL, is the caller's to free, also
 * after a failure. */
bool cli_checkpoint_quantize(const cli *c, st_file *f, fp8c_context *ctx, fp8c_program *program,
                             const char *recipe, const st_tensor ***from);

/* How the weights of a file are stored; none of a checkpoint's. */
typedef struct cli_stored {
    fp8c_stored_as *weight;
    size_t n;
    json_t *owner;
} cli_stored;
/* A message on stderr and false: the metadata is none. Free it in any case. */
bool cli_stored_read(cli_stored *s, st_file *f, fp8c_context *ctx);
void cli_stored_free(cli_stored *s);

/* ---- for who writes a file of its own ---- */

extern const char cli_state_prefix[], cli_checkpoint_version[];
/* A variable as a tensor of a file; the name is the variable's. */
st_tensor cli_tensor_of(const fp8c_variable *v);
/* Whether a state's value must be in a file: eval reads it, and prepare does not compute it from parameters alone. */
bool cli_state_is_needed(fp8c_program *program, int variable);
/* fp8c.elements of all states that have them, or of those needed, to be freed; NULL: out of memory. */
char *cli_elements_text(fp8c_program *program, bool all);

#endif
