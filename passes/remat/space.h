/* Arenas for plans that are carried out or sized. Most are given up soon, and the next one takes
 * their memory. All of it lies in one arena and ends with that, so a plan that is kept needs no owner. */
#ifndef F8_REMAT_SPACE_H
#define F8_REMAT_SPACE_H

#include "ir/base/status.h"

typedef struct f8_remat_spaces f8_remat_spaces;

/* NULL: out of memory. */
f8_remat_spaces *f8_remat_spaces_make(f8_arena *arena);
/* An empty arena; NULL: out of memory. f8_arena_end gives its memory to the next. */
f8_arena *f8_remat_space(f8_remat_spaces *s);

#endif
