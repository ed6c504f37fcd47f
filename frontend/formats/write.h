/* Writing a folder of weights, whole or not at all: safetensors files of up to 5 GB with an index,
 * JSON files, and files of another folder that are carried over. Internal to frontend/.
 *
 * Everything goes to a new folder beside the one that is asked for, which is renamed when it is
 * whole. A process that is killed leaves that folder behind, NAME.PID.tmp: it can be deleted. */
#ifndef F8_FORMATS_WRITE_H
#define F8_FORMATS_WRITE_H

#include "frontend/checkpoint/safetensors.h"

/* A folder to write: its tensors, its configs, and the folder whose other files it gets. */
typedef struct f8_model_folder_out {
    const char *path;           /* the folder; it does not exist, or is empty */
    const f8_st_tensor *tensor; /* in the order in which files are filled */
    size_t n;
    f8_st_fill fill;
    void *user;
    const json_t *config, *modelopt; /* config.json, hf_quant_config.json; NULL: none */
    const char *carry;               /* a folder whose other files are copied; NULL: none */
    uint64_t most;                   /* bytes of tensors in a file; 0: 5 GB */
    f8_temporaries *list;
    bool (*stop)(void *user); /* asked before each tensor; NULL: nobody asks */
    const f8_allocator *allocator;
    /* What was written. */
    size_t n_files; /* of tensors */
    uint64_t bytes;
} f8_model_folder_out;

/* F8_ERR_INPUT: the folder is there and not empty. F8_ERR_CANCELLED: `stop` said so. */
f8_status f8_model_folder_write(f8_model_folder_out *out, f8_diag *diag);
/* A name beside a folder's, NAME.PID and `end`, for what is written on the way. False: it is too
 * long. */
bool f8_model_folder_beside(const char *path, const char *end, char to[PATH_MAX]);
/* Whether it could be written, as far as that can be known before. */
f8_status f8_model_folder_writable(const char *path, f8_diag *diag);

#endif
