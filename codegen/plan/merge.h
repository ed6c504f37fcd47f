/* What merge.c, tails.c, bytes.c and rename.c share. bytes.c knows which step wrote each byte and
 * which steps read it since; rename.c moves temporaries. Internal to codegen/plan. */
#ifndef F8_CODEGEN_BUILD_MERGE_H
#define F8_CODEGEN_BUILD_MERGE_H

#include "codegen/plan/parts.h"

/* ---- bytes ---- */

/* A run of bytes that the same accesses covered last. Marks are numbers of the caller's; 0 is no
 * mark. */
typedef struct f8_bytes_piece {
    f8_space space;
    int32_t port;
    int64_t begin, end;
    uint32_t writer; /* a mark: who wrote the bytes */
    uint32_t others; /* head of a list of marks in f8_bytes.other; 0: empty */
} f8_bytes_piece;

typedef struct f8_bytes_other {
    uint32_t mark, next;
} f8_bytes_other;

/* All fields start as zero, except the arena. Pieces are sorted and do not overlap. */
typedef struct f8_bytes {
    f8_arena *arena;
    f8_bytes_piece *piece;
    f8_bytes_other *other; /* [0] is unused */
    size_t n, room, n_others, other_room;
} f8_bytes;

/* Makes the access's bytes whole pieces, [*first, *end): pieces are split and added as needed.
 * False: out of memory. */
bool f8_bytes_cut(f8_bytes *m, const f8_build_access *a, size_t *first, size_t *end);
/* Joins the pieces [first, end), which must be adjacent, into one piece without other marks. */
void f8_bytes_replace(f8_bytes *m, size_t first, size_t end, uint32_t writer);
bool f8_bytes_add_other(f8_bytes *m, size_t piece, uint32_t mark);
/* For pieces whose other marks are the reads since the last write. Calls `see` with the mark of
 * each access that this one must follow: a read the write before it, a write the write and the
 * reads before it. Then notes this one under `mark`. False: out of memory, or `see` was false. */
bool f8_bytes_follow(f8_bytes *m, const f8_build_access *a, uint32_t mark,
                     bool (*see)(void *user, uint32_t mark), void *user);

/* ---- temporaries ---- */

/* A small value of the function that one step writes whole, and that only row and copy kernels
 * read, or GEMMs as scales or bias. Other values use its memory before and after. */
typedef struct f8_build_temp {
    int64_t begin, end;   /* in the arena */
    int64_t to;           /* its new offset; -1: it stays */
    uint32_t first, last; /* the first and the last step that need its bytes */
    bool own;             /* gets bytes of its own */
} f8_build_temp;

/* Finds such values, lists them in *out (memory from `tmp`), and sets f8_build_access.temp of their
 * accesses. */
f8_status f8_build_find_temps(f8_build *b, f8_arena *tmp, f8_build_temp **out, uint32_t *n);
/* Gives bytes to each temporary with `own` set, from offset `base` on. Two temporaries that are
 * needed at the same time get different bytes. *bytes is the total size. */
f8_status f8_build_place_temps(f8_arena *tmp, f8_build_temp *temp, uint32_t n, int64_t base,
                               int64_t *bytes, f8_diag *d);
/* Moves accesses and arguments to the new offsets of their temporaries, and clears all marks. */
void f8_build_move_temps(f8_build *b, const f8_build_temp *temp);
/* Whether the step is one launch of a row or copy kernel. Access i then belongs to argument i. */
bool f8_build_simple(const f8_build *b, const f8_step_builder *d);

#endif
