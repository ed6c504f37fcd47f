/* Weights in files: one safetensors file or several, or a folder of them, under the names that the caller gives them
 * (`ignore` and `map` of fp8c_load_options). load.h matches them with a program. Internal to
 * frontend/. */
#ifndef F8_WEIGHTS_H
#define F8_WEIGHTS_H

#include "frontend/checkpoint/safetensors.h"
#include "frontend/fp8c.h"

/* A tensor of one of the files. */
typedef struct f8_weight {
    const char *name; /* after the maps */
    const f8_st_tensor *tensor;
    const f8_st_file *file;
    const char *ignored; /* the pattern that ignores it; NULL: none */
    bool used;           /* the load in progress has found a use for it */
} f8_weight;

typedef struct f8_weights {
    f8_weight *weight; /* sorted by name; those that are ignored come last */
    size_t n, n_named; /* n_named: those that are not ignored */
    const char *shown; /* what messages call the files: "FILE", "FILE and 2 more files" */
    f8_st_file *file;
    size_t n_files;
    f8_arena memory;
} f8_weights;

/* Open the files of `o` and name their tensors. The strings of `o` must outlive w. Close w after a
 * failure too, once the diag is rendered: it may name a file that an index lists. F8_ERR_INPUT: a
 * file is not as described, two tensors have one name, or an option has no effect. */
f8_status f8_weights_open(f8_weights *w, const fp8c_load_options *o, const f8_allocator *allocator,
                          f8_diag *diag);
/* The same, with scales of FP8 weights as the files have them. */
f8_status f8_weights_open_as_they_are(f8_weights *w, const fp8c_load_options *o,
                                      const f8_allocator *allocator, f8_diag *diag);
void f8_weights_close(f8_weights *w); /* one that is all zeros, never opened, is fine */
/* The tensor of that name which is not ignored, or NULL. */
f8_weight *f8_weights_find(const f8_weights *w, const char *name);
/* The value of a metadata key in the first file that has it, or NULL. */
const char *f8_weights_metadata(const f8_weights *w, const char *key);
/* Whether a tensor is a state of fp8c: its name begins with f8_checkpoint_prefix. */
bool f8_weights_have_states(const f8_weights *w);

/* Whether `name` matches `from`, where * stands for any run of characters. If so, *name_out becomes
 * `to` with what the stars of `from` stand for in place of its own: each but the last stands for as
 * little as possible. NULL there: out of memory. (weights_map.c) */
bool f8_weights_map(const char *from, const char *to, const char *name, f8_arena *memory,
                    const char **name_out);
/* The number of stars in a side of a map. (weights_map.c) */
size_t f8_weights_stars(const char *pattern);

/* FP8 weights that others wrote get scales as fp8c's own files have them: names, shapes, dtypes. The
 * scales of inputs become ignored. The order of w->weight is lost. False: out of memory.
 * (weights_formats.c) */
bool f8_weights_as_native(f8_weights *w);
/* The recipe that each FP8 weight is stored under, by what its scales cover, as a file of fp8c's
 * own says in `fp8c.stored`: {"NAME": "block", ...}. The caller owns it. NULL: out of memory.
 * (weights_formats.c) */
json_t *f8_weights_stored(const f8_weights *w);

/* The files of weights of a folder: its index, or all its .safetensors. F8_ERR_INPUT: it has none.
 * (weights_index.c) */
f8_status f8_folder_files(const char *folder, f8_arena *memory, const char ***files, size_t *n,
                          f8_diag *diag);
bool f8_is_folder(const char *path);
/* The files that an index lists, in the order of their names, with their folder in front; and
 * `tensors`, the index's map from tensors to file names, which belongs to *owner. The index is
 * JSON, {"weight_map": {"TENSOR": "FILE", ...}}. A FILE lies in the index's folder or below it. The
 * caller releases *owner with json_decref, also after a failure. (weights_index.c) */
f8_status f8_index_read(const char *path, f8_arena *memory, const char ***files, size_t *n,
                        json_t **tensors, json_t **owner, f8_diag *diag);
/* Whether a path is that of an index: it ends in ".index.json". */
bool f8_is_index(const char *path);

#endif
