/* What is wrong with a folder of FP8 weights: each finding names a tensor, its file, and where the
 * convention comes from that it breaks. And which loaders take the folder. Internal to frontend/.
 */
#ifndef F8_FORMATS_LINT_H
#define F8_FORMATS_LINT_H

#include "frontend/formats/folder.h"

typedef struct f8_finding {
    const char *kind;   /* one of README.md's table: "missing-scale" */
    const char *tensor; /* as it is called in the file; "": of the whole folder */
    const char *file;
    const char *text;   /* what is wrong, and what that does */
    const char *source; /* the convention's */
} f8_finding;

/* A weight beside the same weight of another folder. */
typedef struct f8_likeness {
    const char *module;
    double sqnr; /* 10 log10(sum of y^2 / sum of (x - y)^2), in dB, y being the other's */
} f8_likeness;

typedef struct f8_loader_verdict {
    const char *loader;  /* "transformers" */
    const char *why_not; /* why it does not take the folder; NULL: it does */
} f8_loader_verdict;

enum { F8_LOADERS = 4 };

typedef struct f8_lint {
    const f8_model_folder *folder, *beside; /* beside: NULL for none */
    f8_finding *finding;
    size_t n, room;
    f8_likeness *likeness; /* worst first; of weights that both folders have */
    size_t n_likeness;
    f8_loader_verdict loader[F8_LOADERS];
    int64_t scaled_bytes, plain_bytes; /* of FP8 weights with their scales; of all others */
    int64_t of_grain[F8_N_GRAINS];     /* FP8 weights of each granularity */
    f8_arena memory;                   /* of the texts */
} f8_lint;

/* Judge a folder. `beside` is the model in a wider dtype, under the same names; NULL: none. End l
 * in any case. Errors are those of reading: findings are none. */
f8_status f8_lint_run(f8_lint *l, const f8_model_folder *folder, const f8_model_folder *beside,
                      f8_diag *diag);
void f8_lint_end(f8_lint *l);

/* ---- its parts ---- */

/* Adds a finding. `format` and what follows make its text. */
void f8_lint_add(f8_lint *l, const char *kind, const f8_weight *w, const char *source,
                 const char *format, ...) __attribute__((format(printf, 5, 6)));
void f8_lint_config(f8_lint *l); /* lint_config.c, and the next one */
f8_status f8_lint_index(f8_lint *l, f8_diag *diag);
f8_status f8_lint_values(f8_lint *l, f8_diag *diag); /* lint_values.c */
void f8_lint_loaders(f8_lint *l);                    /* loaders.c */

/* Where conventions come from. */
extern const char f8_source_deepseek[], f8_source_transformers[], f8_source_compressed[],
    f8_source_modelopt[], f8_source_vllm[], f8_source_ocp[];

#endif
