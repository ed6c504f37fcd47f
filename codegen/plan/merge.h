/* What the files of merging share (build_merge.c says what it is): build_bytes.c knows what holds
 * which bytes at a point of the list, build_rename.c moves temporaries. Internal to codegen. */
#ifndef F8_CODEGEN_BUILD_MERGE_H
#define F8_CODEGEN_BUILD_MERGE_H

#include "codegen/plan/parts.h"

/* ---- bytes ---- */

/* A run of bytes that were last treated alike. Marks are the caller's own numbers, 0 for none. */
typedef struct f8_bytes_piece {
    f8_space space;
    int32_t port;
    int64_t begin, end;
    uint32_t writer; /* a mark: who wrote them */
    uint32_t others; /* the newest entry of a list of marks in f8_bytes.other; 0: empty */
} f8_bytes_piece;

typedef struct f8_bytes_other {
    uint32_t mark, next;
} f8_bytes_other;

/* Zeroed but for the arena. Pieces are in order and don't overlap. */
typedef struct f8_bytes {
    f8_arena *arena;
    f8_bytes_piece *piece;
    f8_bytes_other *other; /* [0] is unused */
    size_t n, room, n_others, other_room;
} f8_bytes;

/* The access's bytes as whole pieces [*first, *end), cut and made as needed. False: no memory. */
bool f8_bytes_cut(f8_bytes *m, const f8_build_access *a, size_t *first, size_t *end);
/* Pieces that lie together, [first, end), become one, without others. */
void f8_bytes_replace(f8_bytes *m, size_t first, size_t end, uint32_t writer);
bool f8_bytes_add_other(f8_bytes *m, size_t piece, uint32_t mark);

/* ---- temporaries ---- */

/* A small value of the function's own, written whole by one step and read by some, all of them row
 * or copy kernels, in memory that others use before and after it. */
typedef struct f8_build_temp {
    int64_t begin, end;   /* in the arena */
    int64_t to;           /* where it lies instead; -1: stays */
    uint32_t first, last; /* steps from which and up to which its bytes must hold it */
    bool own;             /* is to have bytes of its own */
} f8_build_temp;

/* Mark the accesses of such values (f8_build_access.temp), and list them. `tmp`: for the list. */
f8_status f8_build_find_temps(f8_build *b, f8_arena *tmp, f8_build_temp **out, uint32_t *n);
/* Bytes for those with `own` set, from `base` on, such that two lie apart if both are needed at a
 * time; *bytes is what that takes. */
f8_status f8_build_place_temps(f8_arena *tmp, f8_build_temp *temp, uint32_t n, int64_t base,
                               int64_t *bytes, f8_diag *d);
/* Move accesses and arguments to where their temporaries lie, and clear all marks. */
void f8_build_move_temps(f8_build *b, const f8_build_temp *temp);
/* An access's position is also its argument's: one launch of a row or copy kernel. */
bool f8_build_simple(const f8_build *b, const f8_step_builder *d);

#endif
