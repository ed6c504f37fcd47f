/* The tuning database: how long each way to compute a problem took, and which was chosen.
 *
 * It is one SQLite file (version 3, loaded at run time) of three tables. A row of `timing` and of
 * `choice` is about a problem and a candidate (texts: gemm_desc.h, codegen/kernel/config.h), on a
 * device, with certain versions of the libraries. Rows of other devices and versions stay and are
 * not used. A timing has the seconds of every run by the process that made it, and `process` says
 * more of that. fp8c tune writes the file. A compile reads all choices of its device once and
 * closes it (f8_tuned_read).
 *
 * Any number of processes may use one file. Each f8_tuning_put is one transaction, so a process
 * that is killed at any moment leaves the file as it was before or after it. The journal is
 * SQLite's rollback journal. A write-ahead log is not used: network file systems can't have one,
 * and nothing would be gained by it. A file that is damaged, of a later version or no such database
 * is an error, and is left as it is. A file of schema 1 is read as it is, and gets schema 2 when it
 * is opened for writing.
 *
 * SQLite allocates its own memory; the rest goes through the allocator. */
#ifndef F8_TUNING_H
#define F8_TUNING_H

#include "ir/base/status.h"
#include "ir/base/temporary.h"

typedef struct f8_tuning f8_tuning;

enum { F8_TUNING_SCHEMA = 2 };

/* Opens the file for writing, and makes it and the folders it lies in if they are missing.
 * F8_ERR_IO: it can't be made, read or written, is locked for half a minute, is damaged, or is no
 * such database. F8_ERR_UNSUPPORTED: it is of a later version. F8_ERR_LIBRARY: there is no SQLite.
 */
f8_status f8_tuning_open(const char *path, const f8_allocator *allocator, f8_tuning **out,
                         f8_diag *diag);
void f8_tuning_close(f8_tuning *t); /* NULL is fine */
/* Exports list their temporary files there. Borrowed. */
void f8_tuning_list(f8_tuning *t, f8_temporaries *temporaries);
/* "SQLite 3.40.1" */
const char *f8_tuning_describe(const f8_tuning *t);

/* What a row is valid for, apart from its problem. */
typedef struct f8_tuning_key {
    const char
        *device; /* "cpu Intel(R) Xeon(R) Processor, 2 threads", "NVIDIA H100 80GB HBM3 sm_90" */
    const char *versions; /* "oneDNN 2.6.3 (avx512, amx_bf16)" */
} f8_tuning_key;

/* How a problem was timed: as a step of a program that was tuned. Others are texts of the caller's,
 * as "cold normal": a GEMM alone, in a cold cache, on normal operands. */
#define F8_TUNING_STEP "step"

/* The runs that one process made, in their order. */
typedef struct f8_tuning_runs {
    const char *process;   /* its id; f8_tuning_get_process may know more of it */
    int64_t at;            /* of the last of them: seconds since 1970 */
    const double *seconds; /* for computing the problem once */
    size_t n;              /* at least 1 */
} f8_tuning_runs;

typedef struct f8_timing {
    const char *candidate;
    const char *how;        /* NULL: F8_TUNING_STEP */
    double seconds, median; /* the least and the median of the runs */
    int64_t runs; /* 0: it gave other bits although its algorithm is the same, and was not timed */
    const f8_tuning_runs *samples; /* by process in alphabetical order */
    size_t n_samples;  /* 0: it was not timed, or by a version that kept no runs (schema 1): then
                          seconds and median are of all that a step computed of the problem */
    const char *facts; /* a JSON object of the caller's, "" or NULL: none */
} f8_timing;

/* The timings of a problem of one `how` (NULL: F8_TUNING_STEP), in the arena, by candidate in
 * alphabetical order. */
f8_status f8_tuning_get(f8_tuning *t, const f8_tuning_key *key, const char *problem,
                        const char *how, f8_arena *arena, f8_timing **out, size_t *n,
                        f8_diag *diag);

typedef struct f8_tuning_choice {
    const char *candidate;
    double seconds, model_seconds; /* measured in turns */
} f8_tuning_choice;

/* Stores timings, and the choice unless it is NULL. Samples are added to those that are there of
 * the same candidate and `how`, in no order that the caller has to keep, and `seconds`, `median`
 * and `runs` are made of all of them. A timing without samples replaces what is there, but for
 * samples: those go only if it has no runs. Facts replace others, compactly printed (as jansson
 * does; an object that was has the same bytes). `name` is the name of a step, by which a person
 * knows the problem. All or nothing. F8_ERR_INPUT: samples or facts are none. */
f8_status f8_tuning_put(f8_tuning *t, const f8_tuning_key *key, const char *problem,
                        const char *name, const f8_timing *timing, size_t n,
                        const f8_tuning_choice *choice, f8_diag *diag);

/* The choice for a problem: false when there is none. */
f8_status f8_tuning_chosen(f8_tuning *t, const f8_tuning_key *key, const char *problem,
                           f8_arena *arena, f8_tuning_choice *out, bool *found, f8_diag *diag);

/* ---- processes ---- */

/* A process that timed. */
typedef struct f8_tuning_process {
    const char *id;     /* unique, as f8_tuning_name_process makes it */
    const char *device; /* as in a key */
    const char *facts;  /* a JSON object of the caller's: date, load, limits, clocks; "": none */
    int64_t at;         /* when it was stored; f8_tuning_put_process sets it */
} f8_tuning_process;

enum { F8_TUNING_PROCESS_ID = 48 };
/* An id for what this process begins now: "20261128T043718.123Z-4711", date and process number. */
void f8_tuning_name_process(char out[F8_TUNING_PROCESS_ID]);
/* Replaces what is there of that id. F8_ERR_INPUT: it has no id, or its
 * facts are none. */
f8_status f8_tuning_put_process(f8_tuning *t, const f8_tuning_process *process, f8_diag *diag);
/* In the arena; *found is false when there is none. */
f8_status f8_tuning_get_process(f8_tuning *t, const char *id, f8_arena *arena,
                                f8_tuning_process *out, bool *found, f8_diag *diag);

/* ---- files ---- */

typedef struct f8_tuning_counts {
    int64_t timings, choices; /* taken over, or written */
    int64_t older;            /* left as they are, because the rows here are as new or newer */
    int64_t others; /* of all of them: rows of other devices than `device`, which are kept but not
                       used here */
    int64_t processes; /* taken over, or written; the others do not count them */
} f8_tuning_counts;

/* Writes all rows as JSON Lines: a first line {"fp8c": "tuning", "schema": 2}, then one line for
 * each row. The file is written whole or not at all. F8_ERR_INPUT if `path` is a database, this or
 * another. counts->others is about `device` (may be NULL). */
f8_status f8_tuning_export(f8_tuning *t, const char *path, const char *device,
                           f8_tuning_counts *counts, f8_diag *diag);
/* Takes over the rows of such a file, or of another database, of either schema, that are missing
 * here or newer than those here. Samples of both are kept: of a process that both have, the more.
 * All or nothing. F8_ERR_INPUT names the line that is wrong, or says that the file is
 * this database itself. */
f8_status f8_tuning_import(f8_tuning *t, const char *path, const char *device,
                           f8_tuning_counts *counts, f8_diag *diag);
f8_status f8_tuning_merge(f8_tuning *t, const char *path, const char *device,
                          f8_tuning_counts *counts, f8_diag *diag);

/* ---- for compiling ---- */

/* All choices of a device, in memory. */
typedef struct f8_tuned f8_tuned;

/* Reads the choices. If there is no file, *out is NULL and SQLite is not loaded. Waits `patience`
 * milliseconds for a writer. After a failure, which says why, *out is NULL and a compile goes on
 * without choices. The arena holds all of it. */
f8_status f8_tuned_read(const char *path, const char *device, int patience, f8_arena *arena,
                        f8_tuned **out, f8_diag *diag);
/* The table that fp8c ships: shipped.jsonl, an export, NUL-terminated. */
extern const char f8_tuned_shipped[];
/* The same of a table: an export, `size` bytes of text, of which the choices of GEMMs count.
 * `name` names it in messages. *others: how many of them are of other devices. F8_ERR_INPUT names
 * the line that is wrong. */
f8_status f8_tuned_table(const char *name, const char *text, size_t size, const char *device,
                         const f8_allocator *allocator, f8_arena *arena, f8_tuned **out,
                         size_t *others, f8_diag *diag);
/* The versions of a choice, by index; NULL ends a loop. */
const char *f8_tuned_versions(const f8_tuned *tuned, size_t index);
/* The candidate that was chosen; NULL if there is none. tuned may be NULL. */
const char *f8_tuned_find(const f8_tuned *tuned, const char *versions, const char *problem);
/* How many there are, in all; with these versions. */
size_t f8_tuned_count(const f8_tuned *tuned);
size_t f8_tuned_count_with(const f8_tuned *tuned, const char *versions);

#endif
