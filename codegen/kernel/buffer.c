/* The run-time integers, maps and buffers of a kernel description under construction: where its
 * values lie in memory, and which element belongs to a row and column of the domain. */
#include "codegen/kernel/build.h"

static int32_t new_int(f8_kb *b, int64_t v)
{
    int64_t *grown = f8_arena_grow(b->arena, b->bound->ints, b->k->n_ints, &b->ints_room,
                                   b->k->n_ints + 1, sizeof *grown);
    if (!grown) {
        f8_kb_out_of_memory(b);
        return 0;
    }
    b->bound->ints = grown;
    grown[b->k->n_ints] = v;
    return (int32_t)b->k->n_ints++;
}

void f8_kb_begin(f8_kb *b)
{
    new_int(b, b->k->flat ? b->cols : b->rows);
}

/* log2 of div, if every div rows of the domain read the same row of the value, and no later row of
 * the domain reads that row; else -1. */
static int32_t run_of(const f8_kb *b, int64_t div, int64_t mod)
{
    int32_t shift = 0;
    while ((int64_t)1 << shift < div)
        shift++;
    return div > 1 && (int64_t)1 << shift == div && mod >= (b->rows + div - 1) / div ? shift : -1;
}

static bool same_map(const f8_kb *b, int32_t map, int64_t div, int64_t mod)
{
    const f8_kmap *m = &b->k->map[map];
    const int64_t *ints = b->bound->ints;
    const int32_t shift = run_of(b, div, mod);
    return m->shift == shift && (shift >= 0 || (ints[m->div] == div && ints[m->mod] == mod));
}

/* Buffers with equal maps share one map, so a printer divides once. */
static int32_t new_map(f8_kb *b, int64_t div, int64_t mod)
{
    f8_kernel *k = b->k;
    for (uint32_t i = 0; i < k->n_maps; i++)
        if (same_map(b, (int32_t)i, div, mod))
            return (int32_t)i;
    f8_kmap *grown =
        f8_arena_grow(b->arena, k->map, k->n_maps, &b->map_room, k->n_maps + 1, sizeof *grown);
    if (!grown) {
        f8_kb_out_of_memory(b);
        return -1;
    }
    k->map = grown;
    f8_kmap map = {run_of(b, div, mod), -1, -1};
    if (map.shift < 0) {
        map.div = new_int(b, div);
        map.mod = new_int(b, mod);
    }
    k->map[k->n_maps] = map;
    return (int32_t)k->n_maps++;
}

/* Whether a value of `rows` rows can be read by a consumer of type `to`, whose rows are those of
 * the domain, at row (r / div) % mod. The leading axes of the value must be ones, except for one
 * run of axes that equal those of the consumer. Axes are aligned from the right. */
static bool periodic(const f8_type *from, const f8_type *to, int64_t rows, int64_t *div,
                     int64_t *mod)
{
    *div = *mod = 1;
    int part = 0; /* 0: trailing ones, 1: the run, 2: leading ones */
    for (int axis = to->rank - 2; axis >= 0; axis--) {
        const int mine = axis - to->rank + from->rank;
        const int64_t n = to->dim[axis], have = mine >= 0 ? from->dim[mine] : 1;
        if (n == 1 && have == 1)
            continue;
        if (have != 1 && (have != n || part == 2))
            return false;
        if (have == 1)
            part = part == 1 ? 2 : part;
        else
            part = 1;
        if (part == 0)
            *div *= n;
        if (part == 1)
            *mod *= n;
    }
    return *mod == rows;
}

static int32_t add_buffer(f8_kb *b, const f8_kbuffer *buffer, f8_ref ref, const f8_place *place)
{
    f8_kernel *k = b->k;
    f8_kbuffer *buffers = f8_arena_grow(b->arena, k->buffer, k->n_buffers, &b->buffer_room,
                                        k->n_buffers + 1, sizeof *buffers);
    f8_ref *values = f8_arena_grow(b->arena, b->bound->value, k->n_buffers, &b->value_room,
                                   k->n_buffers + 1, sizeof *values);
    f8_place *places = f8_arena_grow(b->arena, b->bound->place, k->n_buffers, &b->place_room,
                                     k->n_buffers + 1, sizeof *places);
    if (!buffers || !values || !places) {
        f8_kb_out_of_memory(b);
        return 0;
    }
    k->buffer = buffers;
    b->bound->value = values;
    b->bound->place = places;
    buffers[k->n_buffers] = *buffer;
    values[k->n_buffers] = ref;
    places[k->n_buffers] = *place;
    return (int32_t)k->n_buffers++;
}

/* A buffer that reads the same memory in the same way; -1: there is none. */
static int32_t find_buffer(const f8_kb *b, const f8_kbuffer *want, const f8_place *place,
                           int64_t stride, int64_t div, int64_t mod)
{
    const int64_t *ints = b->bound->ints;
    for (uint32_t i = 0; i < b->k->n_buffers; i++) {
        const f8_kbuffer *have = &b->k->buffer[i];
        if (have->write || have->ids >= 0 || have->dtype != want->dtype || have->ext != want->ext ||
            have->block != want->block || !f8_kb_same_place(&b->bound->place[i], place))
            continue;
        if (have->stride >= 0 && ints[have->stride] != stride)
            continue;
        if (have->map < 0 ? mod == 0 : mod && same_map(b, have->map, div, mod))
            return (int32_t)i;
    }
    return -1;
}

static bool contiguous(const f8_type *t, const f8_place *p)
{
    return f8_type_rows(t) <= 1 || p->stride == f8_type_columns(t);
}

/* This buffer, or an equal one that exists already. mod > 0: rows are read at (row / div) % mod. */
static int32_t have_buffer(f8_kb *b, f8_ref ref, f8_kbuffer *buffer, int64_t stride, int64_t div,
                           int64_t mod)
{
    const f8_place *place = &b->lowered->place[ref];
    const int64_t bytes = f8_type_bytes(f8_type_of(b->graph, ref));
    if (!buffer->write) {
        const int32_t found = find_buffer(b, buffer, place, stride, div, mod);
        if (found >= 0)
            return found;
    }
    if ((buffer->ext & F8_EXT_ROW) && !b->k->flat) {
        buffer->stride = new_int(b, stride);
        if (mod)
            buffer->map = new_map(b, div, mod);
    }
    *(buffer->write ? &b->bound->bytes_written : &b->bound->bytes_read) += bytes;
    return add_buffer(b, buffer, ref, place);
}

/* If there is more than one block, their number tells the size of a block. */
int32_t f8_kb_block_of(const f8_kb *b, int64_t columns)
{
    for (int32_t block = 16; f8_column_block(block) && columns > 1 && !b->k->flat; block *= 2)
        if ((b->cols + block - 1) / block == columns)
            return block;
    return 0;
}

int32_t f8_kb_buffer(f8_kb *b, f8_ref ref, const f8_type *reader, bool write)
{
    const f8_type *t = f8_type_of(b->graph, ref);
    const f8_place *place = &b->lowered->place[ref];
    const int64_t r = f8_type_rows(t), c = f8_type_columns(t), all = f8_type_elements(t);
    const int64_t wide = reader ? f8_type_columns(reader) : c;
    const int32_t block = f8_kb_block_of(b, wide);
    f8_kbuffer buffer = {
        .dtype = t->dtype, .write = write, .stride = -1, .map = -1, .ids = -1, .limit = -1};
    int64_t stride = place->stride, div = 1, mod = 0;
    if (place->space == F8_SPACE_NONE) {
        f8_kb_fail(b, ref, "this value has no place in memory:");
        return 0;
    }
    const bool blocks = block && c == wide;
    if (all == 1) {
        buffer.ext = F8_EXT_ONE;
    } else if (b->k->flat) {
        buffer.ext = F8_EXT_FULL;
    } else if (r == b->rows && c == b->cols) {
        buffer.ext = (r > 1 ? F8_EXT_ROW : 0) | (c > 1 ? F8_EXT_COL : 0);
    } else if (all == b->rows * b->cols && contiguous(t, place)) {
        /* the same elements, divided into other rows and columns */
        buffer.ext = (b->rows > 1 ? F8_EXT_ROW : 0) | (b->cols > 1 ? F8_EXT_COL : 0);
        stride = b->cols;
    } else if (c == b->cols || c == 1 || blocks) {
        buffer.ext = (r > 1 ? F8_EXT_ROW : 0) | (blocks ? F8_EXT_BLOCK : c > 1 ? F8_EXT_COL : 0);
        buffer.block = blocks ? block : 0;
        if (r > 1 && r != b->rows) {
            if (write || !reader || f8_type_rows(reader) != b->rows ||
                !periodic(t, reader, r, &div, &mod))
                f8_kb_fail(b, ref, "no map of rows reads this value:");
        }
    } else if (all == b->rows && contiguous(t, place)) {
        buffer.ext = F8_EXT_ROW; /* one element for each row, whatever its shape */
        stride = 1;
    } else {
        f8_kb_fail(b, ref, "the shape does not fit the rows and columns of the phase:");
    }
    return b->status == F8_OK ? have_buffer(b, ref, &buffer, stride, div, mod) : 0;
}

int32_t f8_kb_scales(f8_kb *b, f8_ref ref, f8_granularity grain)
{
    const f8_type *t = f8_type_of(b->graph, ref);
    const f8_place *place = &b->lowered->place[ref];
    const int64_t r = f8_type_rows(t), c = f8_type_columns(t);
    if (b->k->flat || f8_type_elements(t) == 1)
        return f8_kb_buffer(b, ref, NULL, false);
    if (place->space == F8_SPACE_NONE || r != (b->rows + grain.rows - 1) / grain.rows ||
        c != (b->cols + grain.cols - 1) / grain.cols) {
        f8_kb_fail(b, ref, "the scales do not fit the blocks of the phase:");
        return 0;
    }
    const bool blocks = c > 1 && grain.cols > 1;
    f8_kbuffer buffer = {.dtype = t->dtype, .stride = -1, .map = -1, .ids = -1, .limit = -1};
    buffer.ext = (r > 1 ? F8_EXT_ROW : 0) | (blocks ? F8_EXT_BLOCK : c > 1 ? F8_EXT_COL : 0);
    buffer.block = blocks ? (int32_t)grain.cols : 0;
    return have_buffer(b, ref, &buffer, place->stride, grain.rows, r > 1 ? r : 0);
}

int32_t f8_kb_transposed(f8_kb *b, f8_ref ref)
{
    const f8_type *t = f8_type_of(b->graph, ref);
    const f8_place *place = &b->lowered->place[ref];
    if (!b->target->transposed_stores || place->space == F8_SPACE_NONE || b->k->flat ||
        f8_type_rows(t) != b->cols || f8_type_columns(t) != b->rows) {
        f8_kb_fail(b, ref, "no store of this kernel can write this transpose:");
        return 0;
    }
    f8_kbuffer buffer = {.dtype = t->dtype,
                         .ext = F8_EXT_FULL,
                         .write = true,
                         .map = -1,
                         .ids = -1,
                         .limit = -1,
                         .transposed = true};
    buffer.stride = new_int(b, place->stride);
    b->bound->bytes_written += f8_type_bytes(t);
    return add_buffer(b, &buffer, ref, place);
}

int32_t f8_kb_partials(f8_kb *b, f8_ref ref, const f8_kbuffer *buffer)
{
    f8_kbuffer out = *buffer;
    out.stride = new_int(b, b->lowered->place[ref].stride);
    b->bound->bytes_written += f8_type_bytes(f8_type_of(b->graph, ref));
    return add_buffer(b, &out, ref, &b->lowered->place[ref]);
}

int32_t f8_kb_behind(f8_kb *b, f8_ref ref, f8_dtype element, int64_t at)
{
    const int64_t size = (int64_t)f8_dtype_size(f8_type_of(b->graph, ref)->dtype);
    f8_place place = b->lowered->place[ref];
    f8_kbuffer buffer = {
        .dtype = element, .ext = F8_EXT_ROW, .write = true, .map = -1, .ids = -1, .limit = -1};
    place.offset += at;
    place.stride = place.stride * size / (int64_t)f8_dtype_size(element);
    buffer.stride = new_int(b, place.stride);
    return add_buffer(b, &buffer, ref, &place);
}

int32_t f8_kb_gather(f8_kb *b, f8_ref table, f8_ref ids)
{
    const f8_type *t = f8_type_of(b->graph, table), *ids_type = f8_type_of(b->graph, ids);
    const f8_place *place = &b->lowered->place[table], *ids_place = &b->lowered->place[ids];
    if (place->space == F8_SPACE_NONE || ids_place->space == F8_SPACE_NONE ||
        !contiguous(ids_type, ids_place) || f8_type_elements(ids_type) != b->rows ||
        f8_type_columns(t) != b->cols || b->k->flat) {
        f8_kb_fail(b, table, "the gather does not fit the rows and columns of the phase:");
        return 0;
    }
    f8_kbuffer list = {.dtype = F8_I32, .ext = F8_EXT_ROW, .map = -1, .ids = -1, .limit = -1};
    list.stride = new_int(b, 1);
    f8_kbuffer rows = {.dtype = t->dtype, .map = -1};
    rows.ext = F8_EXT_ROW | (b->cols > 1 ? F8_EXT_COL : 0);
    rows.ids = add_buffer(b, &list, ids, ids_place);
    rows.stride = new_int(b, place->stride);
    rows.limit = new_int(b, f8_type_rows(t));
    b->bound->bytes_read += 4 * b->rows + b->rows * b->cols * (int64_t)f8_dtype_size(t->dtype);
    return add_buffer(b, &rows, table, place);
}
