/* Includes every pass, for tests that run passes one by one. */
#ifndef TESTS_PASSES_H
#define TESTS_PASSES_H

#include "passes/grad/autodiff.h"
#include "passes/fuse/group.h"
#include "passes/legalize/legalize.h"
#include "passes/memory/memory.h"
#include "passes/pipeline.h"
#include "passes/remat/remat.h"
#include "passes/scale/scaling.h"

#endif
