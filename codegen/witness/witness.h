/* The witness: computes what a group writes a second time, with other code, on the same inputs.
 *
 * A plan runs a function group by group (ir/lowered.h). Before a group runs, the witness keeps its
 * inputs: a copy, unless the host can read them in place afterwards. After the group has run, the
 * witness evaluates its nodes with the reference interpreter on these inputs, and compares. So each
 * group is judged by itself: a wrong value that it reads does not make it wrong. A row kernel, a
 * copy or a scatter must have the interpreter's bits. A GEMM or an attention must lie within the
 * bound of its sums (judge.h). A collective has no witness: what the other ranks sent is not known.
 *
 *     f8_witness_begin(&w, diag);
 *     f8_witness_before(&w, group, diag);   the group runs   f8_witness_after(&w, group, diag);
 *     f8_witness_end(&w);
 *
 * Groups are numbered as in f8_step.group.
 *
 * Memory: a run with a witness must not need much more memory than the run without one. README.md
 * says what is copied, and what is evaluated in parts. */
#ifndef F8_WITNESS_H
#define F8_WITNESS_H

#include "codegen/reference/judge.h"
#include "ir/lowered.h"

/* One value that a group has written. */
typedef struct f8_witnessed {
    uint32_t group;
    f8_ref ref;
    f8_type type;
    const void *bytes; /* contiguous, until the call returns */
    bool judged;       /* there is a judgement */
    f8_judgement judgement;
    int64_t nonfinite, first; /* elements that are NaN or Inf; the index of the first, or -1 */
    /* With a judgement, where the value's NaN or Inf come from. `from`: an input of the group that
     * has some; else `made`: the node that made some of finite operands. Both 0: the value has
     * none, or only the device's value has them, not the interpreter's. */
    f8_ref from, made;
} f8_witnessed;

typedef struct f8_witness {
    const f8_func *f;
    bool judges; /* false: values are only given to `report` */
    f8_sums sums;
    const f8_allocator *allocator; /* NULL: the default */
    /* Copies bytes from a place of the function's memory, as it is now. */
    f8_status (*fetch)(void *user, const f8_place *from, int64_t bytes, void *to, f8_diag *diag);
    /* Optional: the address of a place. NULL: the host can't read it. */
    const void *(*look)(void *user, const f8_place *at);
    /* Optional, all three or none: put_aside copies bytes to somewhere else than memory, such as a
     * mapped file, and returns an address where they can be read; NULL: it can't. `unload` takes
     * what was read there out of memory again, until it is read once more. `end_aside` frees it. */
    const void *(*put_aside)(void *user, const void *data, int64_t bytes);
    void (*unload)(void *user, const void *aside, int64_t bytes);
    void (*end_aside)(void *user, const void *aside, int64_t bytes);
    void (*report)(void *user, const f8_witnessed *value);
    void *user;
    struct f8_witness_state *state; /* f8_witness_begin sets it */
} f8_witness;

/* The function is lowered, and outlives the witness. F8_ERR_MEMORY. */
f8_status f8_witness_begin(f8_witness *w, f8_diag *diag);
f8_status f8_witness_before(f8_witness *w, uint32_t group, f8_diag *diag);
f8_status f8_witness_after(f8_witness *w, uint32_t group, f8_diag *diag);
void f8_witness_end(f8_witness *w); /* also after a failure */

/* Whether a later phase of the group writes over its value r, which is then not reported. */
bool f8_witness_is_overwritten(const f8_func *f, const f8_group *group, f8_ref r);

#endif
