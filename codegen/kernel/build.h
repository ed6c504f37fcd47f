/* A kernel description under construction. lower.c turns the graph into instructions, build.c has
 * instructions and stages, buffer.c has buffers. Not for printers. */
#ifndef F8_CODEGEN_KERNEL_BUILD_H
#define F8_CODEGEN_KERNEL_BUILD_H

#include "codegen/kernel/kernel.h"
#include "ir/num/granularity.h"

/* A value, and the instruction that holds it. */
typedef struct f8_kb_entry {
    f8_ref ref;
    uint32_t instr;
} f8_kb_entry;

typedef struct f8_kb {
    const f8_func *func;
    const f8_graph *graph;
    const f8_lowered *lowered;
    const f8_group *group;
    const f8_phase *phase;
    const f8_target *target;
    uint32_t phase_index;
    int64_t rows, cols; /* the domain; 1 x elements in a flat kernel */
    f8_arena *arena;
    f8_diag *diag;
    f8_status status;
    f8_kernel *k;
    f8_binding *bound;
    size_t instr_room, buffer_room, value_room, place_room, map_room, ints_room, entry_room;
    f8_kb_entry *entry;
    uint32_t n_entries;
} f8_kb;

/* Records the first failure, with the name of the group. Returns 0, for use as an instruction. */
uint32_t f8_kb_fail(f8_kb *b, f8_ref at, const char *what);

void f8_kb_out_of_memory(f8_kb *b);

/* Makes run-time integer 0: the number of rows, or the length of a flat kernel. */
void f8_kb_begin(f8_kb *b);

/* Appends an instruction, or finds an equal one. Extent and stage follow from the operands. */
uint32_t f8_kb_emit(f8_kb *b, f8_kinstr i);
uint32_t f8_kb_op(f8_kb *b, f8_sop op, uint32_t x, uint32_t y, uint32_t z);
uint32_t f8_kb_call(f8_kb *b, f8_sfn fn, uint32_t x);
uint32_t f8_kb_f32(f8_kb *b, float v);
uint32_t f8_kb_i32(f8_kb *b, uint32_t v);

/* The buffer of value `ref`. `reader` is the type that the value is broadcast to; NULL for
 * stores. */
int32_t f8_kb_buffer(f8_kb *b, f8_ref ref, const f8_type *reader, bool write);
/* The columns of a block, if a value of `columns` columns has one for each block of columns of the
 * domain; else 0. */
int32_t f8_kb_block_of(const f8_kb *b, int64_t columns);
/* The buffer of scales that lie in memory, one for each block of rows and columns of the domain. */
int32_t f8_kb_scales(f8_kb *b, f8_ref ref, f8_granularity grain);
/* The buffer that stores `ref`, a TRANSPOSE of the whole domain. */
int32_t f8_kb_transposed(f8_kb *b, f8_ref ref);
/* The buffer that a column reduction writes, [ceil(rows / block), cols]. */
int32_t f8_kb_partials(f8_kb *b, f8_ref ref, const f8_kbuffer *buffer);
/* The buffer of one element behind each row of `ref`, `at` bytes from the row's first. */
int32_t f8_kb_behind(f8_kb *b, f8_ref ref, f8_dtype element, int64_t at);
/* The buffer of rows of `table` that `ids` selects. */
int32_t f8_kb_gather(f8_kb *b, f8_ref table, f8_ref ids);

/* Whether address and stride are equal. */
bool f8_kb_same_place(const f8_place *x, const f8_place *y);

/* Called when all instructions exist: decides when stores happen, which values are kept near, and
 * the number of stages. */
void f8_kb_finish(f8_kb *b);

#endif
