/* Which target a name stands for, and starting a program on it. Internal to frontend/. */
#ifndef F8_FRONTEND_TARGET_H
#define F8_FRONTEND_TARGET_H

#include "frontend/program.h"

/* The target of `name`, one of fp8c_target_name: sets p->target, p->level, and for a CUDA target
 * p->cuda, of which run.device is the device. Unless run.no_device the GPU there must be of it;
 * "cuda" asks it what it is in any case. F8_ERR_INPUT for an unknown name, F8_ERR_UNSUPPORTED for a
 * GPU of another architecture, and what runtime/cuda/device.h says of a driver or a device that is
 * not there. */
f8_status f8_target_choose(fp8c_program *p, const char *name, f8_diag *diag);

/* What plans of p->target are named: the level's name, or the target's. */
const char *f8_target_text(const fp8c_program *p);

/* Give a variant whose plan is whole what it runs on, as p->run says: nothing with run.no_device.
 * `module` is what the reference target interprets. Another than p's first shares memory and all
 * else with that. */
f8_status f8_variant_start(fp8c_program *p, f8_variant *v, const f8_module *module, f8_diag *diag);

/* open.c: the variant of that number in the file that p was opened from, the last of p and p->now.
 */
f8_status f8_open_variant(fp8c_program *p, uint32_t index, f8_diag *diag);

#endif
