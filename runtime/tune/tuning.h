/* The tuning database: how long each way to do a problem took, and which was chosen.
 *
 * One SQLite file (version 3, loaded at run time) of two tables, `timing` and `choice`. A row is
 * about a problem and a candidate (texts: gemm_desc.h, codegen/kernel/config.h) on a device, by
 * libraries of certain versions; rows of others do no harm and are not used. tune writes it; a
 * compile reads all the choices of its device once and closes it (f8_tuned_read).
 *
 * Any number of processes may use one file. Each f8_tuning_put is one transaction, so a process
 * killed at any moment leaves the file as it was before or after it. The journal is SQLite's
 * rollback journal, never a write-ahead log, which network file systems can't have; nothing is
 * gained by one here. A file that is damaged, of a later version or no such database is an error,
 * and is not touched.
 *
 * SQLite allocates its own memory; the rest goes through the allocator. */
#ifndef F8_TUNING_H
#define F8_TUNING_H

#include "ir/base/status.h"

typedef struct f8_tuning f8_tuning;

enum { F8_TUNING_SCHEMA = 1 };

/* Open for writing; the file is made, and the folders it lies in, where they are missing.
 * F8_ERR_IO: it can't be made, read or written, is locked for half a minute, is damaged or no such
 * database; F8_ERR_UNSUPPORTED: it is of a later version; F8_ERR_LIBRARY: no SQLite. */
f8_status f8_tuning_open(const char *path, const f8_allocator *allocator, f8_tuning **out,
                         f8_diag *diag);
void f8_tuning_close(f8_tuning *t); /* NULL is fine */
/* "SQLite 3.40.1" */
const char *f8_tuning_describe(const f8_tuning *t);

/* What a row holds for, beside its problem. */
typedef struct f8_tuning_key {
    const char
        *device; /* "cpu Intel(R) Xeon(R) Processor, 2 threads", "NVIDIA H100 80GB HBM3 sm_90" */
    const char *versions; /* "oneDNN 2.6.3 (avx512, amx_bf16)" */
} f8_tuning_key;

typedef struct f8_timing {
    const char *candidate;
    double seconds,
        median;   /* the least of the runs, and the one in the middle; of the problem once */
    int64_t runs; /* 0: it gave other bits though its algorithm is the same, and was not timed */
} f8_timing;

/* The timings of a problem, in the arena, by candidate in alphabetical order. */
f8_status f8_tuning_get(f8_tuning *t, const f8_tuning_key *key, const char *problem,
                        f8_arena *arena, f8_timing **out, size_t *n, f8_diag *diag);

typedef struct f8_tuning_choice {
    const char *candidate;
    double seconds, model_seconds; /* measured beside each other */
} f8_tuning_choice;

/* Keep timings, in place of those of the same candidates, and, unless choice is NULL, the choice;
 * `name` is what a person knows the problem by: a step's. All or nothing. */
f8_status f8_tuning_put(f8_tuning *t, const f8_tuning_key *key, const char *problem,
                        const char *name, const f8_timing *timing, size_t n,
                        const f8_tuning_choice *choice, f8_diag *diag);

/* The choice for a problem: false when there is none. */
f8_status f8_tuning_chosen(f8_tuning *t, const f8_tuning_key *key, const char *problem,
                           f8_arena *arena, f8_tuning_choice *out, bool *found, f8_diag *diag);

/* ---- files ---- */

typedef struct f8_tuning_counts {
    int64_t timings, choices; /* taken over, or written */
    int64_t older;            /* left as they are: those here are as new or newer */
    int64_t others; /* of them all: of other devices than `device`: kept, but of no use here */
} f8_tuning_counts;

/* All rows as JSON Lines: a first line {"fp8c": "tuning", "schema": 1}, then one for each row.
 * Written whole or not at all; F8_ERR_INPUT where `path` is a database, this or another. `device`
 * (may be NULL) is what counts->others is about. */
f8_status f8_tuning_export(f8_tuning *t, const char *path, const char *device,
                           f8_tuning_counts *counts, f8_diag *diag);
/* Take over the rows of such a file, or of another database, that are not here or newer than those
 * here. All or nothing; F8_ERR_INPUT names the line that is wrong, or the file is this database
 * itself. */
f8_status f8_tuning_import(f8_tuning *t, const char *path, const char *device,
                           f8_tuning_counts *counts, f8_diag *diag);
f8_status f8_tuning_merge(f8_tuning *t, const char *path, const char *device,
                          f8_tuning_counts *counts, f8_diag *diag);

/* ---- for compiling ---- */

/* All choices of a device, in memory. */
typedef struct f8_tuned f8_tuned;

/* Read the choices; *out is NULL, and SQLite is not loaded, where there is no file. Waits
 * `patience` milliseconds for a writer. A failure says why; then nothing is known, and whoever
 * compiles goes on without. The arena holds all of it. */
f8_status f8_tuned_read(const char *path, const char *device, int patience, f8_arena *arena,
                        f8_tuned **out, f8_diag *diag);
/* The candidate chosen; NULL: none. tuned may be NULL. */
const char *f8_tuned_find(const f8_tuned *tuned, const char *versions, const char *problem);
/* How many there are. */
size_t f8_tuned_count(const f8_tuned *tuned);

#endif
