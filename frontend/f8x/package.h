/* The .f8x file: compiled programs with their code, for one or more targets.
 *
 *     header      128 bytes: what it is, versions, size, checksums
 *     sections    where each lies
 *     index       the first section: targets, values of dims, which sections are whose
 *     fields      of each plan and its report (runtime/plan_file.h, compile_report.h)
 *     the rest    constants, CPUs' code, GPUs' cubins: each on a page of its own, to be used
 *                 where it lies in memory; equal ones once
 *
 * Fields and code of further values of dims differ little from the first's: they are there as
 * deltas to those.
 *
 * All numbers are little-endian. Every byte of the file but the header's is under one checksum, the
 * header under another, and the file is read into memory before they are looked at: what happens to
 * it later changes no program that was opened. A file does not depend on where it was written, by
 * how many threads or when. */
#ifndef F8_PACKAGE_H
#define F8_PACKAGE_H

#include "frontend/f8x/compile_report.h"
#include "ir/base/hash.h"
#include "ir/ir.h"

/* F8_PACKAGE_FORMAT is of the header, the sections and the index, F8_PLAN_FORMAT of the fields. A
 * reader refuses a file of other numbers, or of another fp8c. Make the number one more with every
 * change that makes a reader of before take a file for another than it is: a field that is new,
 * gone, wider, elsewhere, or means something else; an enum's value that is new or moved; what a
 * section is aligned or compressed to. Not for a check more, nor for other code or figures in the
 * same fields. */
enum { F8_PACKAGE_FORMAT = 1, F8_PACKAGE_HEADER = 128, F8_PACKAGE_PAGE = 4096 };
#define F8_PACKAGE_MOST ((uint64_t)1 << 32) /* bytes: more are neither written nor read */

/* A dim of the text that is a bound: its values are 1 to `most`. */
typedef struct f8_bound {
    const char *name;
    int64_t most;
} f8_bound;

/* An axis of a caller's input, of any function that has the port: scale * value + offset. */
typedef struct f8_bound_axis {
    const char *port;
    int32_t axis;
    int32_t bound; /* index; < 0: it depends on several, or otherwise, and tells no value */
    int64_t scale, offset;
} f8_bound_axis;

/* A plan and its compile report for values of the dims. */
typedef struct f8_package_variant {
    int64_t *value; /* by dim */
    uint32_t n_values;
    const f8_plan *plan; /* written; NULL in what was read */
    const f8_compile_report *report;
    /* Sections, as they are in the file; NONE: it has none. Bits F8_PACKAGE_DELTA_*: fields, or the
     * CPU's code, are what is new beside the first variant's (ir/base/delta.h). */
    uint32_t fields, constants, blob, deltas;
    uint32_t *image;
    uint32_t n_images;
} f8_package_variant;
enum { F8_PACKAGE_NONE = INT32_MAX, F8_PACKAGE_DELTA_FIELDS = 1, F8_PACKAGE_DELTA_BLOB = 2 };

/* What one compile for one target gave. */
typedef struct f8_package_program {
    const char *target;
    f8_cpu_features needs;
    f8_bound *dim;
    f8_bound_axis *axis;         /* that tell values */
    f8_package_variant *variant; /* the first is for the largest values there are */
    uint32_t n_dims, n_axes, n_variants;
} f8_package_program;

typedef struct f8_package {
    f8_package_program *program;
    uint32_t n_programs;
    const char *version; /* of the fp8c that wrote the file */
    /* Of one that was opened: */
    const uint8_t *bytes;
    size_t size;
    f8_hash checksum; /* of all but the header */
    struct f8_section *section;
    uint32_t n_sections;
} f8_package;

/* Where a file is written to: in order, all of it. */
typedef f8_status (*f8_package_put)(void *user, const void *bytes, size_t n);
/* Targets of n programs, each with its plans and reports. */
f8_status f8_package_write(const f8_package *p, const f8_allocator *allocator, f8_package_put put,
                           void *user, f8_diag *diag);

/* What the first n bytes of a file of `size` bytes tell (F8_PACKAGE_HEADER of them, or all): so
 * that a large file of another kind need not be read. Fails as f8_package_open does. */
f8_status f8_package_check_header(const void *bytes, size_t n, uint64_t size, const char *version,
                                  f8_diag *diag);
/* Everything but the fields. The bytes are borrowed, aligned to a page, and outlive *out, which
 * lies in the arena. `version`: of this fp8c. F8_ERR_INPUT: the bytes are no such file, or a
 * damaged one; F8_ERR_UNSUPPORTED: another version of fp8c wrote them, which the message names. */
f8_status f8_package_open(const void *bytes, size_t size, const char *version, f8_arena *arena,
                          f8_package *out, f8_diag *diag);
/* A variant's plan and report, checked; what is big stays in the file's bytes, the rest lies in the
 * arena. */
f8_status f8_package_load(const f8_package *p, const f8_package_program *program, uint32_t variant,
                          f8_arena *arena, f8_plan *plan, f8_compile_report *report, f8_diag *diag);

/* Make checksums fit what is there, for tests and fuzzing: bytes that are as long as a header. */
void f8_package_seal(uint8_t *bytes, size_t size);

#endif
