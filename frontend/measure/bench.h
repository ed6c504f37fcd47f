/* The ways of one GEMM while they are measured. Internal to this folder.
 *
 *     bench.c   operands and results: memory, ports, the product of a copy
 *     ways.c    making ways ready
 *     turns.c   running them in turns */
#ifndef F8_MEASURE_BENCH_H
#define F8_MEASURE_BENCH_H

#include "frontend/measure/session.h"

enum { F8_BENCH_SIDES = 2, F8_BENCH_PORTS = 6 * F8_MEASURE_MOST_COPIES };

/* A way: a program, or a peer. cuBLASLt's answers are peers that have a program. */
typedef struct f8_contestant {
    f8_measurement *m;
    fp8c_program *program;
    f8_peer_gemm *peer;
    f8_dtype dtype; /* of a peer's operands */
    bool retired;
    double sample[TUNE_RUNS + F8_MEASURE_MOST_COPIES];
    size_t n;
} f8_contestant;

/* Memory from the context's allocator. */
typedef struct f8_bench_memory {
    void *at;
    size_t bytes;
} f8_bench_memory;

typedef struct f8_bench {
    f8_measure_session *s;
    const f8_tune_gemm *g;
    fp8c_tuning *t;
    const tune_problem *p;
    bool cold;
    int copies, function;
    f8_bench_memory port[F8_BENCH_SIDES]
                        [F8_BENCH_PORTS]; /* operands and results, in the order of ports */
    f8_bench_memory decoded[2][F8_MEASURE_MOST_COPIES]
                           [F8_BENCH_SIDES];        /* f32, bf16: a peer's, of each copy */
    f8_bench_memory result[F8_MEASURE_MOST_COPIES]; /* a peer's */
    f8_bench_memory expected, sweep;                /* expected: the model's result */
    f8_contestant way[F8_MEASURE_WAYS];
    size_t n;
} f8_bench;

/* ---- bench.c ---- */

/* Allocate, unless that was done. */
f8_status f8_bench_get(f8_bench *b, f8_bench_memory *m, int64_t bytes, f8_diag *diag);
void f8_bench_give_all(f8_bench *b);
const f8_plan_func *f8_bench_function(const f8_bench *b, const fp8c_program *p);
/* The port "NAME.COPY" of the model's program, and its memory; NULL: the GEMM has none. */
const f8_plan_port *f8_bench_port(const f8_bench *b, int side, const char *name, int copy,
                                  const f8_bench_memory **at);
/* Allocate and fill all operands; results become zeros. */
f8_status f8_bench_fill(f8_bench *b, f8_diag *diag);
/* Bind a program's ports to them. */
f8_status f8_bench_bind(f8_bench *b, fp8c_program *p, f8_diag *diag);
/* The product of a copy, as its module has it. */
f8_product f8_bench_product(const f8_bench *b, int copy);

/* ---- ways.c ---- */

/* A failure of one way is a result, but for cancellation. */
f8_status f8_bench_note(f8_bench *b, f8_contestant *x, f8_status status, f8_diag *diag);
/* Make ready all ways that are not known well enough; none if all are. */
f8_status f8_bench_add_ways(f8_bench *b, f8_measure_known *known, void *user, f8_measurement *ways,
                            f8_diag *diag);

#endif
