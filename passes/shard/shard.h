/* The pass of this folder. */
#ifndef F8_SHARD_H
#define F8_SHARD_H

#include "passes/unit/pass.h"

/* several ranks: collectives as nodes, and shards in place of shared variables */
f8_status f8_pass_shard(f8_unit *u);

#endif
