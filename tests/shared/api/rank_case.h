/* A module of a test's own, compiled and run by several ranks, each a thread; and the values that
 * each rank had at the end. */
#ifndef F8_TEST_RANK_CASE_H
#define F8_TEST_RANK_CASE_H

#include <stdbool.h>

#include "frontend/fp8c_diagnose.h"
#include "frontend/fp8c_ranks.h"
#include "tests/shared/api/rank_threads.h"

enum { RANK_VALUES = 96, RANK_STEPS = 256 };

/* A variable, or a result of the last run of a function: eval's, micro_step's, update's. */
typedef struct rank_value {
    char *name; /* of a result: FUNCTION:NAME */
    fp8c_type type;
    int64_t rows; /* of a variable that ranks share: those of the whole; else 0 */
    void *data;
} rank_value;

/* A step of a function that ran: what a profile says of it, with options.profile. */
typedef struct rank_step {
    char *name;     /* FUNCTION:NAME */
    const char *op; /* of a collective, else its kind */
    int64_t read;   /* bytes of its operands */
    double seconds; /* more than 0: it was executed */
} rank_step;

typedef struct rank_case {
    const char *text;
    fp8c_dim dim[8];                  /* up to the first without a name */
    fp8c_compile_options options;     /* struct_size and comm are set here */
    const fp8c_compile_options *last; /* those of the last rank, or NULL: the same */
    int ranks;
    int steps, accumulate; /* 0 steps: one micro_step after the other, without an update */
    /* Fills an input of the rank's batch number `batch`. */
    void (*fill)(const struct rank_case *c, int rank, int batch, const char *port,
                 const fp8c_type *type, void *data);
    /* NULL, or called by each rank when its steps are done; its program is still there. */
    void (*at_end)(struct rank_case *c, const fp8c_comm *comm, const fp8c_program *program);
    /* What a run gave. failed: NULL, or what the rank's context says. */
    char *failed[RANKS_MOST];
    rank_value value[RANKS_MOST][RANK_VALUES];
    int n[RANKS_MOST];
    rank_step step[RANKS_MOST][RANK_STEPS]; /* with options.profile */
    int n_steps[RANKS_MOST];
    fp8c_info info[RANKS_MOST];
    rank_traffic traffic[RANKS_MOST];
} rank_case;

/* With `inference` runs eval once; else the steps. All ranks must succeed. */
void rank_case_run(rank_case *c);
/* The same, but ranks may fail. */
void rank_case_try(rank_case *c);
/* Frees what a run gave; the case can run again. */
void rank_case_end(rank_case *c);

/* A value that must be there. */
const rank_value *rank_case_value(const rank_case *c, int rank, const char *name);
const float *rank_case_floats(const rank_case *c, int rank, const char *name, int64_t *n);
/* The whole of a variable in f32, joined if the ranks share it; the caller's to free. */
float *rank_case_whole(const rank_case *c, const char *name, int64_t *n);
/* All variables of a rank must have the bytes of those of another, perhaps of another run. */
void rank_case_same(const rank_case *a, int rank, const rank_case *b, int other, const char *what);

#endif
