/* Private to the differential test (differential.h): the test of one graph, and of all of them. */
#ifndef F8_TESTS_DIFFERENTIAL_PARTS_H
#define F8_TESTS_DIFFERENTIAL_PARTS_H

#include "runtime/cuda/device.h"
#include "tests/shared/graphs/differential.h"
#include "tests/shared/graphs/graphgen.h"

/* What one process needs to compare graphs. */
typedef struct f8_judge {
    const f8_differential *d;
    const f8_target *target;
    f8_cuda *cuda; /* CUDA targets: with its device */
} f8_judge;

/* Whether the target computes this graph as it must; else the message says what is off. */
bool f8_judge_graph(const f8_judge *j, const graphgen_options *options, char *message);

#endif
