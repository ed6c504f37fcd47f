/* Every pass, for tests that run them one by one. */
#ifndef TESTS_PASSES_H
#define TESTS_PASSES_H

#include "passes/autodiff.h"
#include "passes/group.h"
#include "passes/legalize.h"
#include "passes/memory.h"
#include "passes/pipeline.h"
#include "passes/remat.h"
#include "passes/scaling.h"

#endif
