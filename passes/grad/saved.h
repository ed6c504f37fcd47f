/* What `forward` saves for `backward`: the choice that split.c carries out. */
#ifndef F8_SAVED_H
#define F8_SAVED_H

#include "passes/unit/pass.h"

/* Facts about the nodes of a joint function, by ref. */
typedef struct f8_saved {
    bool *backward; /* it depends on a cotangent, or is the backward's own copy */
    bool *needed;   /* the backward reads it: from memory if it is saved, else it computes it */
    bool *saved;
    int64_t bytes;  /* of what is saved */
} f8_saved;

/* Choose for `joint`, whose first n_results results are the forward's. Without a budget, what is
 * saved are values that cost much time to compute or take few bits. With one, or with name
 * patterns, less is saved, and unit->remat gets the figures if `report`. F8_ERR_UNSUPPORTED: the
 * budget can't be met. F8_ERR_INPUT: a pattern matches nothing. */
f8_status f8_choose_saved(f8_unit *u, const f8_func *joint, size_t n_results, bool report,
                          f8_saved *out);

/* The port that node r is; NULL: it is no port. */
const f8_port *f8_joint_port(const f8_func *joint, f8_ref r);

#endif
