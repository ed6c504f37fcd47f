/* Making a kernel description: shared by kernel_lower.c (graph to instructions), kernel_build.c
 * (instructions and stages) and kernel_buffer.c (buffers). Not for printers. */
#ifndef F8_CODEGEN_KERNEL_BUILD_H
#define F8_CODEGEN_KERNEL_BUILD_H

#include "codegen/kernel/kernel.h"
#include "ir/num/granularity.h"

/* A value some instruction already holds. */
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
    int64_t rows, cols; /* the domain; flat: 1 x elements */
    f8_arena *arena;
    f8_diag *diag;
    f8_status status;
    f8_kernel *k;
    f8_binding *bound;
    size_t instr_room, buffer_room, value_room, place_room, map_room, ints_room, entry_room;
    f8_kb_entry *entry;
    uint32_t n_entries;
} f8_kb;

/* Records the first failure, naming the group; returns 0 for use as an instruction. */
uint32_t f8_kb_fail(f8_kb *b, f8_ref at, const char *what);

void f8_kb_out_of_memory(f8_kb *b);

/* Run-time integer 0: rows, or the length of a flat kernel. */
void f8_kb_begin(f8_kb *b);

/* Append an instruction (or find the same one): extent and stage follow from the operands. */
uint32_t f8_kb_emit(f8_kb *b, f8_kinstr i);
uint32_t f8_kb_op(f8_kb *b, f8_sop op, uint32_t x, uint32_t y, uint32_t z);
uint32_t f8_kb_call(f8_kb *b, f8_sfn fn, uint32_t x);
uint32_t f8_kb_f32(f8_kb *b, float v);
uint32_t f8_kb_i32(f8_kb *b, uint32_t v);

/* The buffer of value `ref` at `place`; `reader` is the type it is broadcast to (NULL for stores).
 */
int32_t f8_kb_buffer(f8_kb *b, f8_ref ref, const f8_type *reader, bool write);
/* Columns of a block where values of `columns` columns have one for each block of the domain's;
 * else 0. */
int32_t f8_kb_block_of(const f8_kb *b, int64_t columns);
/* The buffer of scales in memory, one for each block of rows and columns of the domain. */
int32_t f8_kb_scales(f8_kb *b, f8_ref ref, f8_granularity grain);
/* Where `ref`, a TRANSPOSE of the whole domain, is stored. */
int32_t f8_kb_transposed(f8_kb *b, f8_ref ref);
/* What a column reduction writes, [ceil(rows / block), cols]. */
int32_t f8_kb_partials(f8_kb *b, f8_ref ref, const f8_kbuffer *buffer);
/* Rows of `table` picked by `ids`. */
int32_t f8_kb_gather(f8_kb *b, f8_ref table, f8_ref ids);

/* The same address and stride. */
bool f8_kb_same_place(const f8_place *x, const f8_place *y);

/* Once all instructions stand: where stores happen, what is kept near, how many stages. */
void f8_kb_finish(f8_kb *b);

#endif
