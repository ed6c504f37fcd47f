/* What the tuning database has for a program: its device and libraries as the database's keys, and
 * its choices as a build asks for them. Internal to frontend/. */
#ifndef F8_TUNED_H
#define F8_TUNED_H

#include "frontend/program.h"
#include "runtime/tune/tuning.h"

/* `versions` differ between GEMMs and kernels: other libraries make them. */
typedef struct f8_tuning_keys {
    char device[256], gemm_versions[128], kernel_versions[256];
    f8_tuning_key gemm, kernel; /* into these */
} f8_tuning_keys;

/* Of this machine, for a program with a target and threads; for a CUDA one a device must be there.
 * Only `device` is set. False: there is none. */
bool f8_tuning_device(const fp8c_program *p, f8_tuning_keys *out);
/* The versions, which are asked of the libraries, so loads them. *gemms: made where it is NULL and
 * the target is the CPU. */
f8_status f8_tuning_versions(const fp8c_program *p, f8_gemm_lib **gemms, f8_tuning_keys *out,
                             f8_diag *diag);

typedef struct f8_tuned_choices {
    const f8_build_choices *use; /* NULL: the model's all */
    f8_build_choices choices;
    f8_tuning_keys keys;
    f8_tuned *tuned;
} f8_tuned_choices;

/* For a compile of p: a tuner's choices, or those of the context's database. A database that can't
 * be used is said in the log, and no failure. What is read lies in the arena. F8_ERR_MEMORY. */
f8_status f8_tuned_begin(f8_tuned_choices *t, const fp8c_program *p, f8_gemm_lib **gemms,
                         f8_arena *arena, f8_diag *diag);

#endif
