/* The structs of a .f8x file field by field, and writing one: see package.h. read.c reads one. */
#include "frontend/f8x/parts.h"

#include <string.h>

#include "ir/base/delta.h"

/* 0x8F, F8X, CR LF, ^Z, LF: it is not text, and any conversion of line ends changes it. */
const uint64_t f8_package_magic = 0x0a1a0a0d5838468f;

enum { HASH_BYTES = 16, FIELDS_ALIGN = 8 };

/* ---- fields ---- */

static void wire_hash(f8_wire *w, f8_hash *h)
{
    f8_wire_u64(w, &h->lo);
    f8_wire_u64(w, &h->hi);
}

void f8_package_wire_header(f8_wire *w, f8_package_header *h)
{
    uint32_t zero = 0;
    f8_wire_u64(w, &h->magic);
    f8_wire_u32(w, &h->format);
    f8_wire_u32(w, &h->plan_format);
    for (int i = 0; i < F8_PACKAGE_VERSION_TEXT; i++)
        f8_wire_u8(w, (uint8_t *)&h->version[i]);
    f8_wire_u64(w, &h->size);
    f8_wire_u32(w, &h->n_sections);
    f8_wire_u32(w, &zero);
    wire_hash(w, &h->body);
    for (int i = 0; i < 10; i++)
        f8_wire_u32(w, &zero);
    wire_hash(w, &h->header);
}

void f8_package_wire_section(f8_wire *w, f8_section *s)
{
    f8_wire_u64(w, &s->offset);
    f8_wire_u64(w, &s->size);
}

static void wire_number(f8_wire *w, void *element)
{
    f8_wire_u32(w, element);
}

static void wire_variant(f8_wire *w, void *element)
{
    f8_package_variant *v = element;
    F8_WIRE_ARRAY(w, v->value, v->n_values, f8_wire_i64s);
    f8_wire_u32(w, &v->fields);
    f8_wire_u32(w, &v->constants);
    f8_wire_u32(w, &v->blob);
    f8_wire_u32(w, &v->deltas);
    F8_WIRE_ARRAY(w, v->image, v->n_images, wire_number);
}

static void wire_dim(f8_wire *w, void *element)
{
    f8_bound *d = element;
    f8_wire_name(w, &d->name);
    f8_wire_size(w, &d->most);
}

static void wire_axis(f8_wire *w, void *element)
{
    f8_bound_axis *a = element;
    f8_wire_name(w, &a->port);
    f8_wire_u32(w, (uint32_t *)&a->axis);
    f8_wire_u32(w, (uint32_t *)&a->bound);
    f8_wire_i64s(w, &a->scale);
    f8_wire_i64s(w, &a->offset);
}

static void wire_program(f8_wire *w, void *element)
{
    f8_package_program *p = element;
    f8_wire_name(w, &p->target);
    f8_plan_wire_needs(w, &p->needs);
    F8_WIRE_ARRAY(w, p->dim, p->n_dims, wire_dim);
    F8_WIRE_ARRAY(w, p->axis, p->n_axes, wire_axis);
    F8_WIRE_ARRAY(w, p->variant, p->n_variants, wire_variant);
}

void f8_package_wire_index(f8_wire *w, f8_package *p)
{
    F8_WIRE_ARRAY(w, p->program, p->n_programs, wire_program);
}

void f8_package_wire_fields(f8_wire *w, f8_plan *plan, f8_compile_report *report)
{
    f8_plan_wire(w, plan);
    f8_compile_report_wire(w, report);
}

/* ---- writing ---- */

/* A section to write. Fields are made in the arena, the rest lies where its plan has it. */
typedef struct part {
    f8_section at;
    const void *bytes;
    f8_hash hash;
    bool big;
} part;

typedef struct part_bytes {
    const uint8_t *bytes;
    size_t size;
} part_bytes;

typedef struct writer {
    f8_arena *arena;
    f8_diag *diag;
    part *part;
    size_t n_parts, room;
    f8_package index; /* a copy with the sections' numbers */
} writer;

static f8_status add_part(writer *w, const void *bytes, size_t size, bool big, uint32_t *number)
{
    const f8_hash hash = f8_hash_bytes(bytes, size);
    *number = F8_PACKAGE_NONE;
    if (!size)
        return F8_OK;
    for (size_t i = 1; i < w->n_parts; i++) /* 0 is the index */
        if (w->part[i].big == big && w->part[i].at.size == size &&
            f8_hash_equal(w->part[i].hash, hash) && !memcmp(w->part[i].bytes, bytes, size)) {
            *number = (uint32_t)i;
            return F8_OK;
        }
    part *grown =
        f8_arena_grow(w->arena, w->part, w->n_parts, &w->room, w->n_parts + 1, sizeof *grown);
    if (!grown)
        return f8_arena_status(w->arena, w->diag);
    w->part = grown;
    *number = (uint32_t)w->n_parts;
    grown[w->n_parts++] = (part){.at.size = size, .bytes = bytes, .hash = hash, .big = big};
    return F8_OK;
}

/* Add a part whole, or as a delta to the first variant's part if that is less than half as long.
 * *delta says which. */
static f8_status add_delta(writer *w, const part_bytes *first, const void *bytes, size_t size,
                            bool big, uint32_t *number, bool *delta)
{
    uint8_t *encoded = NULL;
    size_t n = size;
    if (first && first->size)
        F8_TRY(
            f8_delta_make(first->bytes, first->size, bytes, size, w->arena, &encoded, &n, w->diag));
    *delta = n < size / 2;
    return *delta ? add_part(w, encoded, n, false, number) : add_part(w, bytes, size, big, number);
}

/* `fields` are the variant's as bytes. `first` is the first variant of its program, or NULL. */
static f8_status add_variant(writer *w, f8_package_variant *v, const f8_package_variant *first,
                             part_bytes *fields, const part_bytes *first_fields)
{
    f8_wire wire;
    f8_plan plan = *v->plan; /* writing changes nothing, but reading would */
    f8_compile_report report = *v->report;
    bool delta_fields, delta_blob;
    f8_wire_begin_write(&wire, w->arena);
    f8_package_wire_fields(&wire, &plan, &report);
    F8_TRY(f8_wire_end(&wire, w->diag));
    *fields = (part_bytes){wire.bytes, wire.size};
    const part_bytes blob = {first ? first->plan->blob : NULL,
                             first ? (size_t)first->plan->blob_bytes : 0};
    F8_TRY(add_delta(w, first_fields, wire.bytes, wire.size, false, &v->fields, &delta_fields));
    F8_TRY(add_part(w, plan.constants, (size_t)plan.constants_bytes, true, &v->constants));
    const bool same = first && blob.size == (size_t)plan.blob_bytes && blob.size &&
                      !memcmp(blob.bytes, plan.blob, blob.size);
    F8_TRY(add_delta(w, same ? NULL : &blob, plan.blob, (size_t)plan.blob_bytes, true, &v->blob,
                      &delta_blob));
    v->deltas =
        (delta_fields ? F8_PACKAGE_DELTA_FIELDS : 0u) | (delta_blob ? F8_PACKAGE_DELTA_BLOB : 0u);
    v->image = F8_NEW_ARRAY(w->arena, uint32_t, plan.n_images);
    v->n_images = plan.n_images;
    F8_TRY(f8_arena_status(w->arena, w->diag));
    for (uint32_t i = 0; i < plan.n_images; i++)
        F8_TRY(add_part(w, plan.image[i].bytes, (size_t)plan.image[i].size, true, &v->image[i]));
    return F8_OK;
}

static f8_status add_programs(writer *w, const f8_package *p)
{
    w->index.program = F8_NEW_ARRAY(w->arena, f8_package_program, p->n_programs);
    F8_TRY(f8_arena_status(w->arena, w->diag));
    for (; w->index.n_programs < p->n_programs; w->index.n_programs++) {
        const f8_package_program *from = &p->program[w->index.n_programs];
        part_bytes first;
        f8_package_program *to = &w->index.program[w->index.n_programs];
        *to = *from;
        to->variant = F8_NEW_ARRAY(w->arena, f8_package_variant, from->n_variants);
        F8_TRY(f8_arena_status(w->arena, w->diag));
        for (uint32_t i = 0; i < from->n_variants; i++) {
            part_bytes fields;
            to->variant[i] = from->variant[i];
            F8_TRY(add_variant(w, &to->variant[i], i ? &from->variant[0] : NULL,
                               i ? &fields : &first, i ? &first : NULL));
        }
    }
    return F8_OK;
}

/* Write the table of sections, once all have their places. */
static f8_status lay_out(writer *w, f8_wire *table, uint64_t *size)
{
    uint64_t at = F8_PACKAGE_HEADER + w->n_parts * 16;
    f8_wire index;
    f8_wire_begin_write(&index, w->arena);
    f8_package_wire_index(&index, &w->index);
    w->part[0].bytes = index.bytes;
    w->part[0].at.size = index.size;
    f8_wire_begin_write(table, w->arena);
    for (size_t i = 0; i < w->n_parts; i++) {
        w->part[i].at.offset = at = (uint64_t)f8_aligned(
            (int64_t)at, w->part[i].big ? F8_PACKAGE_PAGE : FIELDS_ALIGN);
        at += w->part[i].at.size;
        f8_package_wire_section(table, &w->part[i].at);
    }
    *size = at;
    return f8_arena_status(w->arena, w->diag);
}

/* All bytes go through here in order, twice: the first round hashes them, the second writes
 * them. */
typedef struct sink {
    f8_package_put put; /* NULL: only hash */
    void *user;
    f8_hasher hash;
    uint64_t at;
} sink;

static f8_status pour(sink *s, const void *bytes, size_t n)
{
    s->at += n;
    if (s->put)
        return n ? s->put(s->user, bytes, n) : F8_OK;
    f8_hasher_add(&s->hash, bytes, n);
    return F8_OK;
}

static f8_status pour_body(const writer *w, const f8_wire *table, sink *s)
{
    static const uint8_t zeros[F8_PACKAGE_PAGE];
    F8_TRY(pour(s, table->bytes, table->size));
    for (size_t i = 0; i < w->n_parts; i++) {
        F8_TRY(pour(s, zeros, (size_t)(w->part[i].at.offset - s->at)));
        F8_TRY(pour(s, w->part[i].bytes, (size_t)w->part[i].at.size));
    }
    return F8_OK;
}

static f8_status write_all(writer *w, const f8_package *p, f8_package_put put, void *user)
{
    f8_package_header h = {
        .magic = f8_package_magic, .format = F8_PACKAGE_FORMAT, .plan_format = F8_PLAN_FORMAT};
    f8_wire table, header;
    sink s = {.at = F8_PACKAGE_HEADER};
    uint32_t index;
    F8_TRY(add_part(w, "", 1, false, &index)); /* its place */
    F8_TRY(add_programs(w, p));
    F8_TRY(lay_out(w, &table, &h.size));
    if (h.size > F8_PACKAGE_MOST)
        return f8_fail(w->diag, F8_ERR_UNSUPPORTED, F8_NOWHERE,
                       "the file would have %llu bytes, which is more than fp8c reads",
                       (unsigned long long)h.size);
    h.n_sections = (uint32_t)w->n_parts;
    strncpy(h.version, p->version, sizeof h.version - 1);
    f8_hasher_begin(&s.hash);
    F8_TRY(pour_body(w, &table, &s));
    h.body = f8_hasher_end(&s.hash);
    for (int round = 0; round < 2; round++) { /* the second round knows the hash */
        f8_wire_begin_write(&header, w->arena);
        f8_package_wire_header(&header, &h);
        F8_TRY(f8_arena_status(w->arena, w->diag));
        h.header = f8_hash_bytes(header.bytes, F8_PACKAGE_HEADER - HASH_BYTES);
    }
    s = (sink){.put = put, .user = user};
    F8_TRY(pour(&s, header.bytes, header.size));
    return pour_body(w, &table, &s);
}

f8_status f8_package_write(const f8_package *p, const f8_allocator *allocator, f8_package_put put,
                           void *user, f8_diag *diag)
{
    f8_arena arena;
    f8_arena_init(&arena, allocator);
    writer w = {.arena = &arena, .diag = diag};
    const f8_status status = write_all(&w, p, put, user);
    f8_arena_end(&arena);
    return status;
}
