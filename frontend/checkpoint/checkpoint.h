/* Checkpoints: a program's variables as a safetensors file, and back. fp8c_program_save and
 * fp8c_program_load, and what the command line's files have in common with theirs. Internal to
 * frontend/.
 *
 * A parameter stands in the file under its own name, which is its ecosystem's; a state (scales,
 * amaxes and their histories, optimizer moments) under "fp8c.state." and its name, which loaders of
 * plain weights pass over. `__metadata__` has "format" = "pt", which Hugging Face's loaders ask
 * for, and
 *     fp8c.version   "1": what is said here
 *     fp8c.model     the module's name
 *     fp8c.elements  JSON, {"STATE": ["h.0.attn.c_attn.x", ...], ...}: what the elements of a state
 *                    along its first axis stand for (fp8c_program_element). Programs find their own
 *                    by these names, whatever the order.
 * A writer may add more (frontend/cli/cmd_checkpoint.h). */
#ifndef F8_CHECKPOINT_H
#define F8_CHECKPOINT_H

#include "frontend/fp8c.h"
#include "frontend/checkpoint/safetensors.h"

extern const char f8_checkpoint_prefix[], f8_checkpoint_version[];

/* A variable as a tensor of a file; the name is the variable's. */
f8_st_tensor f8_checkpoint_tensor(const fp8c_variable *v);
/* Of the same rank and sizes, the axes from `first` on. */
bool f8_checkpoint_same_shape(const f8_st_tensor *a, const f8_st_tensor *b, int32_t first);
/* Whether a state is one that `prepare` computes from the parameters alone. One that it reads as
 * well, it only changes in part. */
bool f8_checkpoint_is_computed(fp8c_program *program, int variable);
/* Whether a state's value must be in a file to serve: eval reads it, and it is not computed. */
bool f8_checkpoint_is_needed(fp8c_program *program, int variable);
/* fp8c.elements of all states that have them, or of those needed, to be freed with free(); NULL:
 * out of memory. */
char *f8_checkpoint_elements(fp8c_program *program, bool all);

/* All variables, whole or not at all, with `more` in the metadata. */
f8_status f8_checkpoint_write(fp8c_program *program, const char *path, const f8_st_pair *more,
                              size_t n_more, f8_diag *diag);

/* What the metadata say: the version, which must be ours where there is one, and fp8c.elements, to
 * be released by json_decref; NULL where there are none. */
f8_status f8_checkpoint_read_metadata(const f8_st_file *f, json_t **elements, f8_diag *diag);
/* Whether a port of that side of a function carries a variable. */
bool f8_checkpoint_has_port(fp8c_program *program, const char *function, fp8c_side side,
                            int variable);
/* The index in a list of fp8c.elements of the element that the program calls `name`, or -1. */
int64_t f8_checkpoint_element(const json_t *list, const char *name);
/* Whether a tensor of a file is a value of a state, but for which elements it has: dtype and shape
 * are the variable's, where it has elements but for the first axis, which is then as long as their
 * list. */
bool f8_checkpoint_fits(fp8c_program *program, int variable, const f8_st_tensor *t,
                        const json_t *list);
/* The value of a state at `to` from the bytes of its tensor, which has all of its elements. */
void f8_checkpoint_gather(fp8c_program *program, int variable, const json_t *list,
                          const void *bytes, void *to);

#endif
