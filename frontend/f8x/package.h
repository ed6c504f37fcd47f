/* The .f8x file: compiled programs with their code, for one or more targets.
 *
 *     header      128 bytes: what the file is, versions, size, checksums
 *     sections    where each section lies
 *     index       the first section: targets, values of dims, which sections a plan has
 *     fields      of each plan and its compile report (runtime/plan_file.h, compile_report.h)
 *     the rest    constants, CPUs' code, GPUs' cubins: each on a page of its own, and used where
 *                 it lies in memory; equal ones are stored once
 *
 * Fields and code for further values of dims differ little from the first variant's. The file holds
 * them as deltas to those.
 *
 * All numbers are little-endian. One checksum covers every byte behind the header, another the
 * header. The file is read into memory before the checksums are compared, so later changes to it do
 * not reach a program that was opened. A file does not depend on where, when, or by how many
 * threads it was written. */
#ifndef F8_PACKAGE_H
#define F8_PACKAGE_H

#include "frontend/f8x/compile_report.h"
#include "ir/base/hash.h"
#include "ir/ir.h"

/* F8_PACKAGE_FORMAT numbers the header, the sections and the index, F8_PLAN_FORMAT the fields. A
 * reader refuses a file with other numbers, or of another fp8c. Add one to the number with every
 * change that an older reader would misread: a field that is new, gone, wider, moved, or means
 * something else; an enum's value that is new or moved; another alignment or compression of a
 * section. A new check, or other code or figures in the same fields, needs no new number. */
enum { F8_PACKAGE_FORMAT = 1, F8_PACKAGE_HEADER = 128, F8_PACKAGE_PAGE = 4096 };
#define F8_PACKAGE_MOST ((uint64_t)1 << 32) /* bytes: a larger file is neither written nor read */

/* A dim of the text that is a bound: its values are 1 to `most`. */
typedef struct f8_bound {
    const char *name;
    int64_t most;
} f8_bound;

/* An axis of a caller's input, in every function that has the port. Its size is scale * value +
 * offset. */
typedef struct f8_bound_axis {
    const char *port;
    int32_t axis;
    int32_t bound; /* index of the dim; < 0: the size is not linear in one dim, so it determines
                      no value */
    int64_t scale, offset;
} f8_bound_axis;

/* A plan and its compile report for one set of values of the dims. */
typedef struct f8_package_variant {
    int64_t *value; /* by dim */
    uint32_t n_values;
    const f8_plan *plan; /* for writing; NULL in what was read */
    const f8_compile_report *report;
    /* Numbers of sections; F8_PACKAGE_NONE: it has none. With the bit F8_PACKAGE_DELTA_FIELDS or
     * F8_PACKAGE_DELTA_BLOB the fields or the CPU's code are a delta to the first variant's
     * (ir/base/delta.h). */
    uint32_t fields, constants, blob, deltas;
    uint32_t *image;
    uint32_t n_images;
} f8_package_variant;
enum { F8_PACKAGE_NONE = INT32_MAX, F8_PACKAGE_DELTA_FIELDS = 1, F8_PACKAGE_DELTA_BLOB = 2 };

/* What one compile for one target made. */
typedef struct f8_package_program {
    const char *target;
    f8_cpu_features needs;
    f8_bound *dim;
    f8_bound_axis *axis;         /* those that determine values */
    f8_package_variant *variant; /* the first has the largest values */
    uint32_t n_dims, n_axes, n_variants;
} f8_package_program;

typedef struct f8_package {
    f8_package_program *program;
    uint32_t n_programs;
    const char *version; /* of the fp8c that wrote the file */
    /* Only for a file that was opened: */
    const uint8_t *bytes;
    size_t size;
    f8_hash checksum; /* of all but the header */
    struct f8_section *section;
    uint32_t n_sections;
} f8_package;

/* Receives all bytes of a file, in order. */
typedef f8_status (*f8_package_put)(void *user, const void *bytes, size_t n);
/* Write a file with all programs of p, each with its plans and compile reports. */
f8_status f8_package_write(const f8_package *p, const f8_allocator *allocator, f8_package_put put,
                           void *user, f8_diag *diag);

/* Check the first n bytes of a file of `size` bytes; n is F8_PACKAGE_HEADER, or all. A large file
 * of another kind need not be read then. Fails as f8_package_open does. */
f8_status f8_package_check_header(const void *bytes, size_t n, uint64_t size, const char *version,
                                  f8_diag *diag);
/* Read everything but the fields. *out borrows the bytes, which must be aligned to a page and
 * outlive it; the rest of it lies in the arena. `version` is that of this fp8c. F8_ERR_INPUT: the
 * bytes are damaged, or not such a file. F8_ERR_UNSUPPORTED: another version of fp8c wrote them,
 * and the message names it. */
f8_status f8_package_open(const void *bytes, size_t size, const char *version, f8_arena *arena,
                          f8_package *out, f8_diag *diag);
/* Read and check a variant's plan and compile report. Large parts stay in the file's bytes, the
 * rest lies in the arena. */
f8_status f8_package_load(const f8_package *p, const f8_package_program *program, uint32_t variant,
                          f8_arena *arena, f8_plan *plan, f8_compile_report *report, f8_diag *diag);

/* For tests and fuzzing: write checksums that fit the bytes. They must be at least as long as a
 * header. */
void f8_package_seal(uint8_t *bytes, size_t size);

#endif
