/* Targets: which one a name means, and starting a program on it. Internal to frontend/. */
#ifndef F8_FRONTEND_TARGET_H
#define F8_FRONTEND_TARGET_H

#include "frontend/program.h"

/* The names of targets; NULL past the last. */
const char *f8_target_name(int index);

/* Set p->target and p->level from `name`, one of f8_target_name, and p->cuda for a CUDA target.
 * p->run.device is its device. Unless run.no_device, the machine's GPU must be of this target;
 * "cuda" asks the GPU what it is in any case. F8_ERR_INPUT: an unknown name. F8_ERR_UNSUPPORTED: a
 * GPU of another architecture. For a driver or device that is not there: as runtime/cuda/device.h
 * says. */
f8_status f8_target_choose(fp8c_program *p, const char *name, f8_diag *diag);

/* The name in plans for p->target: the level's, or the target's. */
const char *f8_target_text(const fp8c_program *p);

/* Start a variant whose plan is whole: make its instance as p->run says, or none with
 * run.no_device. The reference target interprets `module`. A variant that is not p's first shares
 * memory and all else with the first. */
f8_status f8_variant_start(fp8c_program *p, f8_variant *v, const f8_module *module, f8_diag *diag);

/* In open.c: load the variant of that number from the file that p was opened from. It becomes the
 * last of p, and p->now. */
f8_status f8_open_variant(fp8c_program *p, uint32_t index, f8_diag *diag);

#endif
