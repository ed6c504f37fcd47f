/* What a program takes from the tuning database: the database's keys for its device and libraries,
 * and the choices in the form that a build asks for. Internal to frontend/. */
#ifndef F8_TUNED_H
#define F8_TUNED_H

#include "frontend/program.h"
#include "runtime/tune/tuning.h"

/* GEMMs and kernels have versions of their own, since different libraries make them. */
typedef struct f8_tuning_keys {
    char device[256], gemm_versions[128], kernel_versions[256];
    f8_tuning_key gemm, kernel; /* the pointers above point into these */
} f8_tuning_keys;

/* Set only `device`, for a program with a target and threads on this machine; a CUDA target needs
 * its device. False: there is none. */
bool f8_tuning_device(const fp8c_program *p, f8_tuning_keys *out);
/* The same for code of `target` on a GPU with these facts. */
void f8_tuning_gpu(const f8_target *target, const f8_cuda_facts *facts, f8_tuning_keys *out);
/* Set the versions. This loads the libraries to ask them. *gemms is made if it is NULL and the
 * target is the CPU. */
f8_status f8_tuning_versions(const fp8c_program *p, f8_gemm_lib **gemms, f8_tuning_keys *out,
                             f8_diag *diag);

typedef struct f8_tuned_choices {
    const f8_build_choices *use; /* NULL: the model decides everything */
    f8_build_choices choices;
    f8_tuning_keys keys;
    f8_tuned *tuned, *table; /* of the database; of the table that fp8c ships */
    const char *table_says;  /* a sentence on the table; NULL: nothing to say */
} f8_tuned_choices;

/* Choices for a compile of p: a tuner's, or those of the context's database, and behind it, for
 * GEMMs of a GPU, those of the table that fp8c ships. If one of them can't be used, the log says
 * so, and that is no failure. Without a database there is no table. What is read lies in the arena.
 * F8_ERR_MEMORY. */
f8_status f8_tuned_begin(f8_tuned_choices *t, const fp8c_program *p, f8_gemm_lib **gemms,
                         f8_arena *arena, f8_diag *diag);

#endif
