/* Copying nodes from one graph into another: what passes that build new functions share.
 * (f8_func_rewrite is the way to rewrite one function; this is for making others from it.) */
#ifndef F8_COPY_H
#define F8_COPY_H

#include "ir/ir.h"

/* The same op, attributes, clone number, name and place, on new operands; not for INPUT. */
f8_ref f8_copy_node(f8_graph *to, const f8_graph *from, f8_ref r, const f8_ref *in);

/* New operands of `r` through map; `buffer` holds at least f8_widest(from). */
const f8_ref *f8_map_operands(const f8_graph *from, f8_ref r, const f8_ref *map, f8_ref *buffer);
uint32_t f8_widest(const f8_graph *g); /* the most operands of any node, at least 1 */

/* Give `to` all input ports of `from`, in order, then copy what from's results need. map has
 * from->graph->n_nodes entries and receives each copied node's new ref; result ports are the
 * caller's. */
f8_status f8_copy_body(const f8_func *from, f8_func *to, f8_ref *map, f8_arena *arena);

/* Add a function `name` to `m` with the body and the results of `from`, which may be m's own. */
f8_status f8_copy_func(f8_module *m, const f8_func *from, const char *name, f8_arena *arena);

/* live[r] for every node that the roots need (themselves included); NULL when out of memory. */
bool *f8_live_nodes(const f8_graph *g, const f8_ref *root, size_t n_roots, f8_arena *arena);

#endif
