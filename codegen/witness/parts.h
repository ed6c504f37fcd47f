/* What the files of the witness share: the values of the group that it judges. Internal to
 * codegen/witness/. */
#ifndef F8_WITNESS_PARTS_H
#define F8_WITNESS_PARTS_H

#include "codegen/witness/witness.h"

/* How phase.c evaluates a node in the phase that it works on. */
typedef enum f8_witness_way {
    F8_WITNESS_NOT,    /* it is not in the phase */
    F8_WITNESS_ONCE,   /* whole, before the parts */
    F8_WITNESS_ROWS,   /* part by part */
    F8_WITNESS_BLOCKS, /* part by part; each of its rows is made of a block of rows */
    F8_WITNESS_LAST,   /* whole, after the parts */
} f8_witness_way;

typedef struct f8_witness_value {
    void *data; /* row-major; NULL: not known, or dropped */
    /* Elements from one row of `data` to the next; 0: it is contiguous. Only operands of an
     * attention that are read where they are have one. */
    int64_t stride;
    void *part;     /* phase.c: the part that is evaluated; NULL: none */
    bool borrowed;  /* data is the function's own memory: it is not written or freed */
    bool aside;     /* data is what f8_witness.put_aside returned */
    bool listed;    /* it is in f8_witness_state.ref */
    bool inside;    /* the interpreter is to compute it; else the group reads it */
    bool nonfinite; /* an element is NaN or Inf */
    bool traced;    /* the NaN or Inf of the value that is traced pass through it */
    bool kept;      /* phase.c: a later phase reads it */
    bool whole;     /* phase.c: put together, for a later phase or a node that is evaluated last */
    bool owned;     /* phase.c: `part` has memory of its own; else it lies in `data` */
    f8_witness_way way;
    uint32_t phase; /* the first one that computes it, from 1; 0: none does */
    f8_ref last;    /* the last value to be computed that needs it; 0: none */
} f8_witness_value;

/* What a group has written. */
typedef struct f8_witness_seen {
    f8_type type;
    void *data;     /* row-major; NULL: it is not judged, or was overwritten by a later phase */
    int64_t stride; /* as in f8_witness_value */
    bool borrowed;  /* as in f8_witness_value */
    f8_judgement judgement;
} f8_witness_seen;

struct f8_witness_state {
    f8_allocator allocator;
    const f8_graph *g;
    f8_witness_value *value; /* by ref */
    f8_ref *ref;             /* the values of the group */
    const void **operand;    /* room for the operands of any node, and for their types */
    f8_type *operand_type;
    uint32_t n_refs;
    f8_witness_seen *seen; /* in the order of the group's `out`; NULL: there are none */
    uint32_t n_seen;
};

/* ---- values.c ---- */

/* Memory for elements of type t. NULL: out of memory, as diag says. */
void *f8_witness_room(const f8_witness *w, const f8_type *t, f8_diag *diag);
void f8_witness_free(const f8_witness *w, const f8_type *t, void *data); /* may be NULL */
/* Copies a value of type t from a place, as it is now; `to` is contiguous. */
f8_status f8_witness_fetch(const f8_witness *w, const f8_place *from, const f8_type *t, void *to,
                           f8_diag *diag);
/* The value where it is. NULL: the host can't read it, or `stride` is NULL and its rows do not
 * follow one another. *stride: elements from one row to the next; 0: the value is contiguous. */
const void *f8_witness_look(const f8_witness *w, const f8_place *at, const f8_type *t,
                            int64_t *stride);
/* The value as it is now: where it is, or a contiguous copy. With `rows` it may have a stride,
 * which saves a copy. The caller releases *out, also after a failure. */
f8_status f8_witness_see(const f8_witness *w, const f8_place *at, const f8_type *t, bool rows,
                         f8_witness_seen *out, f8_diag *diag);
/* Compares elements of `seen`, from element `first` on, with `want`, a contiguous value of type t,
 * and adds the result to seen->judgement. Parts are judged in their order. `seen` is contiguous. */
void f8_witness_judge(f8_witness_seen *seen, const f8_type *t, int64_t first, const void *want);
void f8_witness_release(const f8_witness *w, f8_witness_seen *seen);
/* How many elements of contiguous data are NaN or Inf; *first: the index of the first, or -1. */
int64_t f8_witness_nonfinite(const f8_type *t, const void *data, int64_t *first);

/* ---- group.c ---- */

/* Lists the values of a group, in a topological order. A value that the group reads is copied,
 * unless the host can read it where it is and the group does not write over it. */
f8_status f8_witness_read(f8_witness *w, const f8_group *group, f8_diag *diag);
/* Computes the other values, except `op` and its PROJECTs (0: computes all). Those that the group
 * writes are kept. */
f8_status f8_witness_compute(f8_witness *w, const f8_group *group, f8_ref op, f8_diag *diag);
/* Computes a value; the data of its operands are there. */
f8_status f8_witness_compute_one(f8_witness *w, f8_ref r, f8_diag *diag);
void f8_witness_drop(const f8_witness *w, f8_ref r);
/* Takes values that are put aside out of memory; they are read again when they are needed. */
void f8_witness_unload(const f8_witness *w);
/* Finds where the NaN or Inf of r come from, as in f8_witnessed. Only values that pass them on to r
 * count: others of the group may have some that do no harm, such as the scale of a block of zeros
 * before a select. */
void f8_witness_trace(f8_witness *w, f8_ref r, f8_ref *from, f8_ref *made);
/* Forgets the group. */
void f8_witness_forget(f8_witness *w);

/* ---- phase.c ---- */

/* Whether f8_witness_judge_rows can judge the group; else it is computed whole. Sets `phase` and
 * `kept` of the group's values. */
bool f8_witness_has_rows(f8_witness *w, const f8_group *group);
/* Computes a row kernel, phase after phase, and adds judgements to f8_witness_state.seen. Needs
 * f8_witness_has_rows. */
f8_status f8_witness_judge_rows(f8_witness *w, const f8_group *group, f8_diag *diag);

#endif
