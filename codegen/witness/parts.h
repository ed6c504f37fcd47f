/* What the files of the witness share: the values of the group that it judges. Internal to
 * codegen/witness/. */
#ifndef F8_WITNESS_PARTS_H
#define F8_WITNESS_PARTS_H

#include "codegen/witness/witness.h"

typedef struct f8_witness_value {
    void *data;     /* contiguous; NULL: not known, or dropped */
    bool listed;    /* it is in f8_witness_state.ref */
    bool inside;    /* the interpreter is to compute it; else the group reads it */
    bool nonfinite; /* an element is NaN or Inf */
    bool traced;    /* the NaN or Inf of the value that is traced pass through it */
    f8_ref last;    /* the last value to be computed that needs it; 0: none */
} f8_witness_value;

struct f8_witness_state {
    f8_allocator allocator;
    const f8_graph *g;
    f8_witness_value *value; /* by ref */
    f8_ref *ref;             /* the values of the group */
    uint32_t n_refs;
};

/* ---- values.c ---- */

/* Memory for elements of type t. NULL: out of memory, as diag says. */
void *f8_witness_room(const f8_witness *w, const f8_type *t, f8_diag *diag);
void f8_witness_free(const f8_witness *w, const f8_type *t, void *data); /* may be NULL */
/* Copies a value of type t from a place, as it is now; `to` is contiguous. */
f8_status f8_witness_fetch(const f8_witness *w, const f8_place *from, const f8_type *t, void *to,
                           f8_diag *diag);
/* How many elements are NaN or Inf; *first: the index of the first, or -1. */
int64_t f8_witness_nonfinite(const f8_type *t, const void *data, int64_t *first);

/* ---- group.c ---- */

/* Lists the values of a group, and fetches those that it reads. */
f8_status f8_witness_read(f8_witness *w, const f8_group *group, f8_diag *diag);
/* Computes the other values, except `op` and its PROJECTs (0: computes all). Those that the group
 * writes are kept. */
f8_status f8_witness_compute(f8_witness *w, const f8_group *group, f8_ref op, f8_diag *diag);
/* Finds where the NaN or Inf of r come from, as in f8_witnessed. Only values that pass them on to r
 * count: others of the group may have some that do no harm, such as the scale of a block of zeros
 * before a select. */
void f8_witness_trace(f8_witness *w, f8_ref r, f8_ref *from, f8_ref *made);
/* Forgets the group. */
void f8_witness_forget(f8_witness *w);

#endif
