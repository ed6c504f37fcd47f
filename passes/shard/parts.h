/* The parts of the pass `shard`, and what they share. A shard of a value is a rank's rows of it
 * (f8_shard_rows); rows past the whole's last are zeros in variables, and anything elsewhere. */
#ifndef F8_SHARD_PARTS_H
#define F8_SHARD_PARTS_H

#include "passes/shard/shard.h"

/* ---- shards.c: nodes that make and join shards ---- */

/* The type of a rank's shard of a value; its rank is at least 1. */
f8_type f8_shard_type(const f8_type *whole, int32_t ranks);
/* This rank's shard of a value that is the same on all ranks. */
f8_ref f8_shard_of(f8_graph *g, int32_t ranks, f8_ref whole);
/* The shard with zeros in the rows past the whole's last. */
f8_ref f8_shard_clean(f8_graph *g, int32_t ranks, f8_ref shard, const f8_type *whole);
/* x as [elements], of its dtype. 0 if x is. */
f8_ref f8_as_vector(f8_graph *g, f8_ref x);
/* As f8_gather, for wholes that are stored: each is the storage of all its rows and no others. */
bool f8_gather_stored(f8_graph *g, int32_t ranks, const f8_ref *shard, const f8_type *type,
                      size_t n, const char *name, f8_ref *whole);
/* n values of the ranks, summed over them: this rank's shards of the sums, in one exchange. order:
 * the attribute. */
bool f8_reduce_to_shards(f8_graph *g, int32_t ranks, const f8_ref *x, size_t n, const char *order,
                         const char *name, f8_ref *shard);

/* ---- propagate.c ---- */

/* Which variables have shards, by variable: whole[v] is the type of the whole, or NULL. */
typedef const f8_type *const *f8_wholes;
/* Rewrites f, whose ports of these variables become their shards: nodes that can be computed shard
 * by shard are, and shards are gathered where others read them. */
f8_status f8_shard_propagate(f8_unit *u, f8_func *f, f8_wholes whole);

/* ---- results.c ---- */

/* An f32 result of which this rank has computed its shard, and of which all ranks need the whole.
 */
typedef struct f8_result {
    f8_ref old;   /* its number in the order of computing */
    f8_ref shard; /* this rank's */
    f8_type type; /* of the whole */
    const char *name;
    f8_ref whole;
} f8_result;

/* Gathers them in a few buckets; fills `whole` and sorts `of`. */
f8_status f8_shard_gather_results(const f8_unit *u, f8_graph *g, f8_result *of, size_t n);

/* ---- gradients.c ---- */

typedef struct f8_gradient {
    int32_t var;
    size_t port; /* of the function */
    f8_ref x;    /* this rank's */
    bool shard;  /* wanted is this rank's shard of the sum, else the whole */
    f8_ref sum;
} f8_gradient;

bool f8_is_gradient(const f8_unit *u, const f8_port *p);
/* Sums each x over the ranks, in buckets. */
f8_status f8_shard_sum(const f8_unit *u, f8_graph *g, f8_gradient *of, size_t n);
/* Each result grad.P of f becomes dP alone; later it becomes grad.P plus the sum of dP over the
 * ranks, or plus this rank's shard of that sum. */
f8_status f8_shard_bare_gradients(f8_unit *u, f8_func *f);
f8_status f8_shard_sum_gradients(f8_unit *u, f8_func *f, f8_wholes whole);

#endif
