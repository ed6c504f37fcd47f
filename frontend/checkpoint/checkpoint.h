/* Checkpoints: a program's variables as a safetensors file, and back. This has fp8c_program_save
 * and fp8c_program_load, and what the command line's files share with theirs. Internal to
 * frontend/.
 *
 * A parameter has its own name in the file, as in its ecosystem. A state (scales, amaxes and their
 * histories, optimizer moments) has the name "fp8c.state." and its own; loaders of plain weights
 * skip it. `__metadata__` has "format" = "pt", which Hugging Face's loaders demand, and
 *     fp8c.version   "1": the version of what is described here
 *     fp8c.model     the module's name
 *     fp8c.elements  JSON, {"STATE": ["h.0.attn.c_attn.x", ...], ...}: what the elements of a state
 *                    along its first axis stand for (fp8c_program_element). A program finds its own
 *                    by these names, in whatever order they are.
 * A writer may add more (frontend/cli/cmd_checkpoint.h). */
#ifndef F8_CHECKPOINT_H
#define F8_CHECKPOINT_H

#include "frontend/fp8c.h"
#include "frontend/checkpoint/safetensors.h"

extern const char f8_checkpoint_prefix[], f8_checkpoint_version[];

/* A variable as a tensor of a file. The name is the variable's. */
f8_st_tensor f8_checkpoint_tensor(const fp8c_variable *v);
/* Whether both have the same rank, and the same sizes of the axes from `first` on. */
bool f8_checkpoint_same_shape(const f8_st_tensor *a, const f8_st_tensor *b, int32_t first);
/* Whether `prepare` computes the state from the parameters alone. A state that it also reads, it
 * changes only in part. */
bool f8_checkpoint_is_computed(fp8c_program *program, int variable);
/* Whether evaluating needs the state's value in the file: eval reads the state, and it is neither
 * computed nor amaxes that eval itself observes. */
bool f8_checkpoint_is_needed(fp8c_program *program, int variable);
/* fp8c.elements of all states that have elements, or only of those that evaluating needs. Free it
 * with free(). NULL: out of memory. */
char *f8_checkpoint_elements(fp8c_program *program, bool all);

/* Write all variables, whole or not at all, with `more` in the metadata. */
f8_status f8_checkpoint_write(fp8c_program *program, const char *path, const f8_st_pair *more,
                              size_t n_more, f8_diag *diag);

/* Read the metadata: check the version, which must be this one if there is one, and give
 * fp8c.elements, to be released by json_decref. NULL: the file has none. */
f8_status f8_checkpoint_read_metadata(const f8_st_file *f, json_t **elements, f8_diag *diag);
/* Whether a port of that side of a function carries a variable. */
bool f8_checkpoint_has_port(fp8c_program *program, const char *function, fp8c_side side,
                            int variable);
/* The index of the element that the program calls `name` in a list of fp8c.elements, or -1. */
int64_t f8_checkpoint_element(const json_t *list, const char *name);
/* Whether a tensor of a file can be a value of a state, apart from which elements it has. Its dtype
 * and shape must be the variable's. If the state has elements, the first axis is as long as the
 * file's list of them instead. */
bool f8_checkpoint_fits(fp8c_program *program, int variable, const f8_st_tensor *t,
                        const json_t *list);
/* Convert n values of F16 or BF16 at `from` to f32 at `to`. */
void f8_checkpoint_widen(f8_st_dtype dtype, const uint16_t *from, float *to, uint64_t n);
/* Write the value of a state to `to`, from the bytes of its tensor, which has all of its
 * elements. */
void f8_checkpoint_gather(fp8c_program *program, int variable, const json_t *list,
                          const void *bytes, void *to);

#endif
