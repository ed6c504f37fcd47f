/* Checkpoints: a program's variables as a safetensors file, and back. fp8c_program_save
 * and fp8c_program_load are made of it, and so are the command line's files. Internal to frontend/.
 *
 * A parameter has its own name in the file, as in its ecosystem. A state (scales, amaxes and their
 * histories, optimizer moments) has the name "fp8c.state." and its own; loaders of plain weights
 * skip it. `__metadata__` has "format" = "pt", which Hugging Face's loaders demand, and
 *     fp8c.version   "1": the version of what is described here
 *     fp8c.model     the module's name
 *     fp8c.elements  JSON, {"STATE": ["h.0.attn.c_attn.x", ...], ...}: what the elements of a state
 *                    along its first axis stand for (fp8c_program_element). A program finds its own
 *                    by these names, in whatever order they are.
 *     fp8c.aliases   JSON, {"h.0.attn.k.x": "h.0.attn.q.x", ...}: other names of elements
 *                    (fp8c_program_element), each with the name that the lists have. Absent
 *                    where there are none.
 * A writer may add more (export.h). */
#ifndef F8_CHECKPOINT_H
#define F8_CHECKPOINT_H

#include "frontend/fp8c.h"
#include "frontend/checkpoint/safetensors.h"

extern const char f8_checkpoint_prefix[], f8_checkpoint_version[];

/* A variable, the whole of it, as a tensor of a file. The name is the variable's. */
f8_st_tensor f8_checkpoint_tensor(const fp8c_variable *v);
/* Whether both have the same rank, and the same sizes of the axes from `first` on. */
bool f8_checkpoint_same_shape(const f8_st_tensor *a, const f8_st_tensor *b, int32_t first);
/* Whether `prepare` computes the whole state from other variables: then a file may lack it. A state
 * that `prepare` also reads is not such a one, since it keeps a part of what it was. */
bool f8_checkpoint_is_computed(fp8c_program *program, int variable);
/* Whether evaluating needs the state's value in the file: eval reads the state, and it is neither
 * computed nor amaxes that eval itself observes. */
bool f8_checkpoint_is_needed(fp8c_program *program, int variable);
/* fp8c.elements, and fp8c.aliases, of all states that have elements, or only of those that
 * evaluating needs. Free both with free(). NULL: out of memory. Where there are no aliases, the
 * text of them is "{}". */
char *f8_checkpoint_elements(fp8c_program *program, bool all);
char *f8_checkpoint_aliases(fp8c_program *program, bool all);
/* The recipe that each weight is stored under: {"WEIGHT": "block", ...}, as text, which the caller
 * frees. *n: how many there are. */
char *f8_checkpoint_stored(fp8c_program *program, int64_t *n);
bool f8_checkpoint_has_aliases(const char *aliases);

/* Whether all variables have memory and values. F8_ERR_INPUT. */
f8_status f8_checkpoint_can_write(fp8c_program *program, f8_diag *diag);
/* Write all variables, whole or not at all, with `more` in the metadata. Where ranks share variables,
 * all of them call this together, and rank 0 writes. */
f8_status f8_checkpoint_write(fp8c_program *program, const char *path, const f8_st_pair *more,
                              size_t n_more, f8_diag *diag);

/* What elements are called in files; NULL where these have no fp8c.elements or fp8c.aliases. */
typedef struct f8_checkpoint_names {
    json_t *elements, *aliases;
} f8_checkpoint_names;
/* Read the metadata of a file: check the version, which must be this one if there is one, and take
 * the names for which no file before had any. To be released by the second function, also after a
 * failure. */
f8_status f8_checkpoint_read_metadata(const f8_st_file *f, f8_checkpoint_names *names,
                                      f8_diag *diag);
void f8_checkpoint_release_names(f8_checkpoint_names *names);
/* Whether a port of that side of a function carries a variable. */
bool f8_checkpoint_has_port(fp8c_program *program, const char *function, fp8c_side side,
                            int variable);
/* How many elements a state has in the files. */
size_t f8_checkpoint_count(const f8_checkpoint_names *names, const char *state);
/* The index of a state's element of that name, or of that alias, in the files; -1: there is none.
 * The second function looks for an element of the program's, by its name and its aliases. */
int64_t f8_checkpoint_element(const f8_checkpoint_names *names, const char *state,
                              const char *name);
int64_t f8_checkpoint_find(const f8_checkpoint_names *names, fp8c_program *program, int variable,
                           int64_t index);
/* Whether a tensor of a file can be a value of a state, apart from which elements it has. Its dtype
 * and shape must be the variable's. If the state has elements, the first axis is as long as the
 * file's list of them instead. */
bool f8_checkpoint_fits(fp8c_program *program, int variable, const f8_st_tensor *t,
                        const f8_checkpoint_names *names);
/* Convert n values of F16 or BF16 at `from` to f32 at `to`. */
void f8_checkpoint_widen(f8_st_dtype dtype, const uint16_t *from, float *to, uint64_t n);
/* Write the value of a state to `to`, from the bytes of its tensor, which has all of its
 * elements. */
void f8_checkpoint_gather(fp8c_program *program, int variable, const f8_checkpoint_names *names,
                          const void *bytes, void *to);

#endif
