/* Measuring a list of GEMMs in one process, and keeping the runs in the tuning database. Internal
 * to frontend/. */
#ifndef F8_MEASURE_LIST_H
#define F8_MEASURE_LIST_H

#include "frontend/measure/inputs.h"
#include "frontend/measure/measure.h"
#include "frontend/tune/gemms.h"

enum { F8_MEASURE_RUNS = 64 };

/* How to measure. */
typedef struct f8_measure_how {
    const fp8c_compile_options *compile; /* target, threads and device count */
    const char *database;                /* NULL: the context's */
    const char *command, *commit;        /* of the call and its program, for the records */
    f8_inputs inputs;
    uint64_t seed; /* of operands */
    bool cold, warm;
    int32_t runs;               /* of a way in this process, at most F8_MEASURE_RUNS; 0: 7 */
    bool same_bits;             /* leave out algorithms that change bits */
    bool peers;                 /* measure other libraries, too */
    bool model_only;            /* no other way of fp8c's, and nothing is chosen */
    int32_t ordinal, processes; /* of this process among those of the call, from 1 on; how many. A
                        way that the database has from `ordinal` processes is not measured again */
    int64_t since;  /* seconds since 1970: older runs of the database do not count; 0: all do */
    double seconds; /* > 0: begin nothing after so long */
} f8_measure_how;

/* Measure the GEMMs, and add to the set what the machine is, the process, and each way with its
 * runs, also those that the database has from before; choose, and keep all of it. A process begins
 * with another GEMM than the others, so that none is always the first. What the target or the
 * machine lacks is a result, and no failure, and so is time that is up. FP8C_ERR_UNSUPPORTED: no
 * device here runs the target. */
fp8c_status f8_measure_list(fp8c_context *ctx, const f8_tune_gemms *list, const f8_measure_how *how,
                            f8_measure_set *set);

#endif
