/* doctor's burn: what its parts share. See fp8c_machine.h for what a burn is.
 *
 * A job is a program that runs in every round, on a GPU several times. An item is one of its
 * results, with the known answer.
 * Inputs repeat after F8_BURN_PERIOD rows, so the answer of a small problem is, again and again,
 * that of a problem which is large enough to load the device. */
#ifndef F8_BURN_H
#define F8_BURN_H

#include "frontend/program.h"

enum { F8_BURN_PERIOD = 48, F8_BURN_JOBS = 8, F8_BURN_ITEMS = 48, F8_BURN_FUNCTIONS = 2 };

typedef struct f8_burn_item {
    const char *name, *step, *skipped; /* as in fp8c_burn_result */
    int function, port;                /* among the job's; among its outputs */
    fp8c_type type;
    unsigned char *got;        /* what a run writes, or a copy of it */
    int variable;              /* of the job's memory program, which has the result itself; -1 */
    const unsigned char *want; /* `period` bytes, again and again */
    int64_t bytes, period;
    int64_t comparisons, wrong, first_round, first_element, first_count;
    const char *first;
} f8_burn_item;

typedef struct f8_burn_job {
    const char *name;
    fp8c_program *program;
    int function[F8_BURN_FUNCTIONS], n_functions;
    fp8c_program *memory; /* its variables are the ports' memory on a GPU; NULL: on a CPU */
    int repeats;          /* runs before a comparison */
    double flops;         /* of its GEMMs, a run */
    int first, n;         /* its items */
} f8_burn_job;

struct fp8c_burn {
    fp8c_context *ctx;
    f8_arena arena;
    f8_pool *pool; /* compares; the programs have threads of their own */
    fp8c_burn_options options;
    fp8c_burn_info info;
    int64_t rows, width; /* of what is computed */
    f8_burn_job job[F8_BURN_JOBS];
    f8_burn_item item[F8_BURN_ITEMS];
    int n_jobs, n_items;
    double gemm_flops, gemm_seconds; /* all so far */
};

/* Compile all jobs, fill their inputs and find the answers (burn_work.c). The message of a failure
 * is the context's. */
fp8c_status f8_burn_prepare(fp8c_burn *b);
/* Move the ports of a job into a GPU's memory, with what the inputs have (burn_gpu.c). */
f8_status f8_burn_to_gpu(fp8c_burn *b, f8_burn_job *j);
/* Bring the results to where they are compared, and spoiled ones to where runs write them. On a CPU
 * these are one place. */
fp8c_status f8_burn_fetch(const fp8c_burn *b, const f8_burn_job *j);
fp8c_status f8_burn_send(const fp8c_burn *b, const f8_burn_job *j);
/* Compare a result with its answer and note a difference (burn_compare.c). */
f8_status f8_burn_compare(fp8c_burn *b, f8_burn_item *item, f8_diag *diag);
/* Fill results with other bytes, so that a run which writes nothing is seen. */
void f8_burn_spoil(fp8c_burn *b, const f8_burn_item *item);

#endif
