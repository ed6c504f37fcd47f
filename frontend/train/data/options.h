/* What a caller says of the data that it trains on. */
#ifndef F8_DATA_OPTIONS_H
#define F8_DATA_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

#include "frontend/train/data/share.h"

/* Asks the caller whether to stop. All zeros: never. */
typedef struct f8_stop {
    bool (*asked)(void *user);
    void *user;
} f8_stop;

static inline bool f8_stop_asked(const f8_stop *stop)
{
    return stop->asked && stop->asked(stop->user);
}

/* All that is pointed to must live until the data are closed. Only `files` or `batches` must be
 * given; of the others, zeros are fine. */
typedef struct f8_data_options {
    const char *const *files; /* of tokens; tokens.h says what a path may be */
    size_t n_files;
    const char *tokens;         /* what these are: "bytes", "u16" or "u32"; NULL: each file tells */
    const char *const *batches; /* NAME=FILE: rows of tensors for the input NAME. With these there
                                   are no `files` */
    size_t n_batches;
    const char *const *validation; /* held-out data, of the same kind; none: a tenth is held out */
    size_t n_validation;
    f8_share one; /* of a batch that has one row for each rank: how many ranks there are, and which
                     of them this is. All zeros: this process is alone */
    bool hashes;  /* of rows, too: they are to be compared with those of other ranks or runs */
    f8_stop stop; /* asked while files are read */
    f8_stop stop_together; /* asked before each batch of the held-out data: all ranks must get the
                              same answer */
    /* words for messages */
    const char *model; /* the file of the model */
    const char *needs; /* who needs the data, as in "train needs a function ..." */
    const char *batches_name, *validation_name, *tokens_name; /* of these options */
} f8_data_options;

/* This process' share of a batch of which it has B rows. */
static inline f8_share f8_data_share(const f8_data_options *o, int64_t B)
{
    const uint64_t ranks = o->one.rows ? o->one.rows : 1;
    return (f8_share){ranks * (uint64_t)B, o->one.first * (uint64_t)B};
}

#endif
