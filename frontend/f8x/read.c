/* Reading a .f8x file: see package.h. No value of the file is used before it is checked. */
#include "frontend/f8x/parts.h"

#include <string.h>

#include "ir/base/delta.h"

enum { HASH_BYTES = 16, SECTION_BYTES = 16 };

/* ---- the header ---- */

static void read_header(const uint8_t *bytes, f8_package_header *h)
{
    f8_wire w;
    f8_wire_begin_read(&w, bytes, F8_PACKAGE_HEADER, NULL, "the header");
    f8_package_wire_header(&w, h);
    h->version[F8_PACKAGE_VERSION_TEXT - 1] = 0;
}

static f8_status damaged(f8_diag *diag, const char *what)
{
    return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE, "the file is damaged: %s", what);
}

/* `n` bytes of the file's `size` are here. */
static f8_status check_header(const uint8_t *bytes, size_t n, uint64_t size, const char *version,
                              f8_package_header *h, f8_diag *diag)
{
    uint8_t magic[8];
    for (int i = 0; i < 8; i++)
        magic[i] = (uint8_t)(f8_package_magic >> 8 * i);
    if (n < sizeof magic || memcmp(bytes, magic, sizeof magic))
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE, "this is not a .f8x file");
    if (n < F8_PACKAGE_HEADER)
        return damaged(diag, "it ends within its header");
    read_header(bytes, h);
    if (!f8_hash_equal(h->header, f8_hash_bytes(bytes, F8_PACKAGE_HEADER - HASH_BYTES)))
        return damaged(diag, "its header does not match its checksum");
    if (h->format != F8_PACKAGE_FORMAT || h->plan_format != F8_PLAN_FORMAT ||
        strcmp(h->version, version))
        return f8_fail(diag, F8_ERR_UNSUPPORTED, F8_NOWHERE,
                       "the file is of fp8c %s (format %u.%u), this is fp8c %s (format %u.%u): "
                       "compile it again",
                       h->version, h->format, h->plan_format, version, (unsigned)F8_PACKAGE_FORMAT,
                       (unsigned)F8_PLAN_FORMAT);
    if (h->size != size)
        return f8_fail(diag, F8_ERR_INPUT, F8_NOWHERE,
                       "the file is damaged: it has %llu bytes, and its header says %llu",
                       (unsigned long long)size, (unsigned long long)h->size);
    return F8_OK;
}

f8_status f8_package_check_header(const void *bytes, size_t n, uint64_t size, const char *version,
                                  f8_diag *diag)
{
    f8_package_header h;
    return check_header(bytes, n, size, version, &h, diag);
}

static f8_status check_body(const uint8_t *bytes, size_t size, const f8_package_header *h,
                            f8_diag *diag)
{
    if (!f8_hash_equal(h->body, f8_hash_bytes(bytes + F8_PACKAGE_HEADER, size - F8_PACKAGE_HEADER)))
        return damaged(diag, "its contents do not match their checksum");
    return F8_OK;
}

void f8_package_seal(uint8_t *bytes, size_t size)
{
    f8_package_header h;
    f8_arena arena;
    f8_wire w;
    read_header(bytes, &h);
    h.body = f8_hash_bytes(bytes + F8_PACKAGE_HEADER, size - F8_PACKAGE_HEADER);
    h.size = size;
    f8_arena_init(&arena, NULL);
    for (int round = 0; round < 2; round++) {
        f8_wire_begin_write(&w, &arena);
        f8_package_wire_header(&w, &h);
        if (!w.bytes)
            break;
        h.header = f8_hash_bytes(w.bytes, F8_PACKAGE_HEADER - HASH_BYTES);
    }
    if (w.bytes && w.size == F8_PACKAGE_HEADER)
        memcpy(bytes, w.bytes, F8_PACKAGE_HEADER);
    f8_arena_end(&arena);
}

/* ---- sections and the index ---- */

static f8_status read_sections(f8_package *p, uint32_t n, f8_arena *arena, f8_diag *diag)
{
    f8_wire w;
    if (n < 1 || n > (p->size - F8_PACKAGE_HEADER) / SECTION_BYTES)
        return damaged(diag, "its header says that it has more sections than fit into it");
    p->section = F8_NEW_ARRAY(arena, f8_section, n);
    F8_TRY(f8_arena_status(arena, diag));
    uint64_t end = F8_PACKAGE_HEADER + (uint64_t)n * SECTION_BYTES;
    f8_wire_begin_read(&w, p->bytes + F8_PACKAGE_HEADER, (size_t)n * SECTION_BYTES, arena,
                       "the sections");
    for (; p->n_sections < n; p->n_sections++) {
        f8_section *s = &p->section[p->n_sections];
        f8_package_wire_section(&w, s);
        if (s->offset < end || s->offset > p->size || s->size > p->size - s->offset)
            return damaged(diag, "a section lies outside the file or overlaps another");
        end = s->offset + s->size;
    }
    return F8_OK;
}

static bool is_section(const f8_package *p, uint32_t number)
{
    return number > 0 && number < p->n_sections; /* 0 is the index */
}

static bool is_page(const f8_package *p, uint32_t number)
{
    return is_section(p, number) && p->section[number].offset % F8_PACKAGE_PAGE == 0;
}

static f8_status check_variant(const f8_package *p, const f8_package_program *program,
                               const f8_package_variant *v, f8_diag *diag)
{
    if (v->deltas && (v == &program->variant[0] ||
                      v->deltas > (F8_PACKAGE_DELTA_FIELDS | F8_PACKAGE_DELTA_BLOB)))
        return damaged(diag, "a delta has no first variant to start from");
    if (v->n_values != program->n_dims)
        return damaged(diag, "a variant does not have one value for each dim");
    for (uint32_t i = 0; i < v->n_values; i++)
        if (v->value[i] < 1 || v->value[i] > program->dim[i].most)
            return damaged(diag, "a variant has a value that its dim can't have");
    bool there = is_section(p, v->fields) &&
                 (v->constants == F8_PACKAGE_NONE || is_page(p, v->constants)) &&
                 (v->blob == F8_PACKAGE_NONE || is_page(p, v->blob) ||
                  (v->deltas & F8_PACKAGE_DELTA_BLOB && is_section(p, v->blob)));
    for (uint32_t i = 0; i < v->n_images; i++)
        there = there && is_page(p, v->image[i]);
    return there ? F8_OK : damaged(diag, "the index names a section that does not exist");
}

static f8_status check_dims(const f8_package_program *p, f8_diag *diag)
{
    if (p->n_dims > F8_MAX_BOUNDS)
        return damaged(diag, "it has more dims than a module can have");
    for (uint32_t i = 0; i < p->n_axes; i++) {
        const f8_bound_axis *a = &p->axis[i];
        if (a->axis < 0 || a->axis >= F8_MAX_RANK || a->bound >= (int32_t)p->n_dims ||
            (a->bound >= 0 && !a->scale))
            return damaged(diag, "an axis names a dim that does not exist");
    }
    return F8_OK;
}

static f8_status check_index(const f8_package *p, f8_diag *diag)
{
    if (!p->n_programs)
        return damaged(diag, "it holds no program");
    for (uint32_t i = 0; i < p->n_programs; i++) {
        const f8_package_program *program = &p->program[i];
        if (!program->n_variants)
            return damaged(diag, "it holds a target without a plan");
        F8_TRY(check_dims(program, diag));
        for (uint32_t k = 0; k < program->n_variants; k++)
            F8_TRY(check_variant(p, program, &program->variant[k], diag));
    }
    return F8_OK;
}

f8_status f8_package_open(const void *bytes, size_t size, const char *version, f8_arena *arena,
                          f8_package *out, f8_diag *diag)
{
    f8_package_header h;
    f8_wire w;
    *out = (f8_package){.version = version, .bytes = bytes, .size = size};
    F8_TRY(check_header(bytes, size, size, version, &h, diag));
    F8_TRY(check_body(bytes, size, &h, diag));
    out->checksum = h.body;
    F8_TRY(read_sections(out, h.n_sections, arena, diag));
    f8_wire_begin_read(&w, out->bytes + out->section[0].offset, (size_t)out->section[0].size, arena,
                       "the index");
    f8_package_wire_index(&w, out);
    F8_TRY(f8_wire_end(&w, diag));
    return check_index(out, diag);
}

/* ---- a variant ---- */

/* Find a plan's part of `size` bytes; *out NULL: it has none. False: the section does not have the
 * size that the plan says. */
static bool find_part(const f8_package *p, uint32_t number, int64_t size, uint8_t **out)
{
    const bool none = number == F8_PACKAGE_NONE;
    *out = none ? NULL
                : (uint8_t *)p->bytes +
                      p->section[number].offset; /* read only, by all that use plans */
    return none ? size == 0 : size > 0 && p->section[number].size == (uint64_t)size;
}

typedef struct part_bytes {
    uint8_t *bytes; /* read only, by all that use plans */
    size_t size;
} part_bytes;

static part_bytes section_bytes(const f8_package *p, uint32_t number)
{
    const bool none = number == F8_PACKAGE_NONE;
    return none ? (part_bytes){0}
                : (part_bytes){(uint8_t *)p->bytes + p->section[number].offset,
                               (size_t)p->section[number].size};
}

/* Apply `delta` to the first variant's part. No further variant is much larger than the first, and
 * the limit holds a delta of a few bytes to little memory. */
static f8_status apply_delta(part_bytes first, part_bytes delta, f8_arena *arena, part_bytes *out,
                             f8_diag *diag)
{
    enum { LARGER = 4, MORE = 1 << 16 };
    if (!f8_delta_size(delta.bytes, delta.size, first.size * LARGER + delta.size + MORE,
                       &out->size))
        return damaged(diag, "a delta gives a part that is too large");
    out->bytes = F8_NEW_ARRAY(arena, uint8_t, out->size);
    F8_TRY(f8_arena_status(arena, diag));
    return f8_delta_apply(first.bytes, first.size, delta.bytes, delta.size, out->bytes, out->size)
               ? F8_OK
               : damaged(diag, "a delta does not fit the first variant's part");
}

/* Find the CPU's code in the file, or make it from a delta. *whole: its size is what the plan
 * says. */
static f8_status find_blob(const f8_package *p, const f8_package_program *program,
                           const f8_package_variant *v, f8_arena *arena, f8_plan *plan, bool *whole,
                           f8_diag *diag)
{
    part_bytes blob = section_bytes(p, v->blob);
    if (v->deltas & F8_PACKAGE_DELTA_BLOB)
        F8_TRY(apply_delta(section_bytes(p, program->variant[0].blob), blob, arena, &blob, diag));
    plan->blob = blob.bytes;
    *whole = (plan->blob_bytes > 0) == (blob.size > 0) && (int64_t)blob.size == plan->blob_bytes;
    return F8_OK;
}

f8_status f8_package_load(const f8_package *p, const f8_package_program *program, uint32_t variant,
                          f8_arena *arena, f8_plan *plan, f8_compile_report *report, f8_diag *diag)
{
    const f8_package_variant *v = &program->variant[variant];
    part_bytes fields = section_bytes(p, v->fields);
    f8_wire w;
    bool whole;
    *plan = (f8_plan){0};
    *report = (f8_compile_report){0};
    if (v->deltas & F8_PACKAGE_DELTA_FIELDS)
        F8_TRY(apply_delta(section_bytes(p, program->variant[0].fields), fields, arena, &fields,
                           diag));
    f8_wire_begin_read(&w, fields.bytes, fields.size, arena, "the plan");
    f8_package_wire_fields(&w, plan, report);
    F8_TRY(f8_wire_end(&w, diag));
    plan->needs = program->needs;
    F8_TRY(find_blob(p, program, v, arena, plan, &whole, diag));
    whole = whole && !strcmp(plan->target, program->target) && plan->n_images == v->n_images &&
            find_part(p, v->constants, plan->constants_bytes, &plan->constants);
    for (uint32_t i = 0; i < v->n_images && whole; i++)
        whole = find_part(p, v->image[i], plan->image[i].size, &plan->image[i].bytes);
    if (!whole)
        return damaged(diag, "a plan's sections do not have the sizes that the plan says");
    F8_TRY(f8_plan_check(plan, diag));
    return f8_compile_report_check(report, plan, diag);
}
