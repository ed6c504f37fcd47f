/* The pass of this folder, and what later passes ask about shards. */
#ifndef F8_SHARD_H
#define F8_SHARD_H

#include "passes/unit/pass.h"

/* several ranks: collectives as nodes, and shards in place of shared variables */
f8_status f8_pass_shard(f8_unit *u);

/* The whole of n shards, in as few exchanges as their dtypes: whole[i] is of the type type[i].
 * Nodes get the clone number and the name (may be NULL). False after a failure. */
bool f8_gather(f8_graph *g, int32_t ranks, const f8_ref *shard, const f8_type *type, size_t n,
               uint64_t clone, const char *name, f8_ref *whole);
/* The shard whose gather alone gives `whole`; 0 if none does. */
f8_ref f8_gathered_shard(const f8_graph *g, f8_ref whole);

#endif
