/* What this machine has and lacks, whether it computes right under load, and what its devices count
 * of their own errors: doctor, burn and health. fp8c.h has what holds of all calls: failures,
 * ownership, threads. */
#ifndef FP8C_MACHINE_H
#define FP8C_MACHINE_H

#include "fp8c.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- doctor: what this machine has and can do, what is missing and how to get it ---- */

/* A doctor looks for everything the library can use, as a program would: with the context's
 * settings and environment. It loads the libraries that it finds and asks for their version. They
 * stay mapped, as those of programs do. Strings belong to the doctor. */
typedef struct fp8c_doctor fp8c_doctor;

typedef struct fp8c_doctor_options {
    size_t struct_size; /* sizeof(fp8c_doctor_options) */
    /* Called before fp8c looks at each component and tests each target. If a library kills the
     * process as it is loaded, the caller knows its name. NULL: no call. */
    void (*before)(void *user, const char *what);
    void *user;
    int32_t cpu_only; /* look only at the components that target "cpu" uses: nothing of CUDA is
                         loaded. There are then no facts and no targets */
} fp8c_doctor_options;

/* `options` may be NULL. A missing component is no failure: it is reported. FP8C_ERR_MEMORY. */
FP8C_API fp8c_status fp8c_doctor_create(fp8c_context *ctx, const fp8c_doctor_options *options,
                                        fp8c_doctor **out);
FP8C_API void fp8c_doctor_destroy(fp8c_doctor *doctor);

typedef enum fp8c_component_state {
    FP8C_COMPONENT_OK,
    FP8C_COMPONENT_MISSING, /* found nowhere */
    FP8C_COMPONENT_REFUSED, /* found, but it does not load, lacks a function, or fails when asked */
    FP8C_COMPONENT_VERSION, /* found, but too old, or of another major version */
    FP8C_COMPONENT_MISMATCHED /* good alone, but it does not fit the other components */
} fp8c_component_state;

typedef struct fp8c_component {
    const char *name;    /* "NVRTC" */
    const char *kind;    /* "cpu", "cuda" or "more": which targets use it */
    fp8c_component_state state;
    const char *version; /* as the component reports it; NULL: it could not be asked */
    int32_t major;       /* of the version: 12 or 13 for CUDA's libraries; 0: unknown, or none */
    const char *path;    /* the file that is mapped; NULL: none */
    const char *problem; /* what is wrong, in the words of the loader or the library if they have
                            any; NULL when ok */
    const char *note;    /* what does no harm, as other copies that were found; NULL: nothing */
    const char *enables; /* what it is for */
    const char *places;  /* the file names, and every folder where fp8c looked for them; "": it did
                            not look */
    const char *get;     /* the packages that have it */
} fp8c_component;
/* Ends a loop. */
FP8C_API fp8c_status fp8c_doctor_component(const fp8c_doctor *doctor, int index,
                                           fp8c_component *out);

/* Facts: the CPU, memory and their limits, the state of each GPU, the cache, and the environment
 * variables that have an effect and are set. */
typedef struct fp8c_fact {
    const char *group, *name, *value; /* "CPU", "level", "x86-64-v4" */
    const char *advice;               /* NULL: there is none */
} fp8c_fact;
/* Ends a loop. */
FP8C_API fp8c_status fp8c_doctor_fact(const fp8c_doctor *doctor, int index, fp8c_fact *out);

/* What can be done for an FP8C_NAME_TARGET; "cuda" is the first GPU of this machine. */
typedef struct fp8c_target_report {
    const char *name;
    const char *is;              /* "cuda": the architecture of that GPU; else NULL */
    int32_t can_compile, can_run;
    const char *compile_missing; /* why it can't, and what to do; NULL when it can */
    const char *run_missing;
} fp8c_target_report;
/* Ends a loop. */
FP8C_API fp8c_status fp8c_doctor_target(const fp8c_doctor *doctor, int index,
                                        fp8c_target_report *out);

typedef enum fp8c_test_result {
    FP8C_TEST_FAILED,
    FP8C_TEST_PASSED,
    FP8C_TEST_COMPILED, /* it compiled, and the code can't be run here */
    FP8C_TEST_NOT_RUN   /* nothing can be tested: the target's report says why */
} fp8c_test_result;
typedef struct fp8c_self_test {
    fp8c_test_result result;
    double seconds;
    const char *detail; /* of a failure: its message, or the first difference; NULL */
} fp8c_self_test;
/* Compile a small module for the target without a cache, and run it. It has FP8 GEMMs, quantizing
 * fused with what precedes it, and reductions. All its sums are exact, so its results must equal,
 * bit for bit, those of integer arithmetic and those of target `reference`. A test that fails is a
 * result, not an error. FP8C_ERR_INPUT: there is no such target. */
FP8C_API fp8c_status fp8c_doctor_test(fp8c_doctor *doctor, int target, fp8c_self_test *out);

/* ---- a burn: a device under load for a while, each result compared with a known answer ----
 *
 * A burn runs GEMMs, attention and kernels of every sort again and again, and counts results that
 * differ from a known answer in a bit: then the device computes wrong values, or memory loses bits
 * (frontend/diagnose/burn/README.md). */
typedef struct fp8c_burn fp8c_burn;

typedef struct fp8c_burn_options {
    size_t struct_size; /* sizeof(fp8c_burn_options) */
    const char *target; /* one that can run here: "cpu" (default), "cuda", ... */
    int32_t device;     /* of a CUDA target: the GPU's ordinal */
    int32_t threads;    /* 0: as the context says */
    double seconds;     /* how long, without preparing; 0: 10. At least one round is run */
} fp8c_burn_options;

/* Prepare and burn. A wrong result is no failure of the call. The context's progress callback is
 * called between runs (phase "burn", in seconds); if it asks to stop, the burn ends early with what
 * was counted so far, unless it was still preparing: FP8C_ERR_CANCELLED. options may be NULL. */
FP8C_API fp8c_status fp8c_doctor_burn(fp8c_context *ctx, const fp8c_burn_options *options,
                                      fp8c_burn **out);
FP8C_API void fp8c_burn_destroy(fp8c_burn *burn);

typedef struct fp8c_burn_info {
    size_t struct_size;       /* sizeof(fp8c_burn_info), set by the caller */
    const char *target, *device; /* device: its name */
    int32_t threads;          /* of the CPU */
    int32_t finished;         /* 0: it was stopped early, or a run failed */
    const char *failure;      /* why a run failed, which ends the burn; NULL: none did */
    double seconds;           /* of the burn */
    int64_t rounds;           /* whole ones. In a round everything is computed once or more */
    int64_t comparisons, wrong; /* results that were compared; how many of them differed */
    int64_t runs;             /* of programs. On a GPU results are compared after several runs, or
                                 fetching them would take longer than computing them */
    int64_t bytes;            /* compared */
    double busy;              /* seconds in which programs ran */
    double first_flops, last_flops; /* floating-point operations a second while GEMMs ran, in the
                                       first quarter of the time and in the last; 0: not known */
} fp8c_burn_info;
FP8C_API void fp8c_burn_report(const fp8c_burn *burn, fp8c_burn_info *out);

/* One result of the burn, or several that the target can't have. */
typedef struct fp8c_burn_result {
    size_t struct_size;       /* sizeof(fp8c_burn_result), set by the caller */
    const char *name;         /* "GEMM bf16 dgrad", "softmax" */
    const char *step;         /* the step that writes it, as kernels are called; "": not known */
    const char *skipped;      /* why it is not computed here; NULL: it is computed */
    int64_t comparisons, wrong; /* as in fp8c_burn_info */
    const char *first;        /* the first difference: round, element, its value, the known answer,
                                 how many elements are wrong; NULL: there was none */
    int64_t first_round;      /* of that: counted from 1; 0: there was none */
    int64_t first_element;    /* its index, row by row */
    int64_t first_count;      /* how many elements of that result were wrong */
} fp8c_burn_result;
/* Ends a loop. */
FP8C_API fp8c_status fp8c_burn_result_at(const fp8c_burn *burn, int index, fp8c_burn_result *out);

/* ---- health: what a device counts of its own errors, beside a program that runs ----
 *
 * An fp8c_health watches one device from its creation on. For a GPU it asks NVML for XIDs, errors
 * of memory and of NVLinks, remapped rows, clocks and what holds them down, and temperature. A
 * thread of fp8c's waits for XIDs, and looks at the other values every `seconds`. For the CPU it
 * reads the kernel's files: machine checks, errors of memory, heat. It reads them when it is
 * created, and where the caller asks for a look. A value that can't be had is unknown. A missing
 * NVML is no failure: then all values are unknown. Between fp8c_health_create and
 * fp8c_health_destroy any thread may make the other calls. */
typedef struct fp8c_health fp8c_health;

typedef struct fp8c_health_options {
    size_t struct_size; /* sizeof(fp8c_health_options) */
    int32_t gpu;        /* 1: GPU number `device`; 0: the CPU */
    int32_t device;
    double seconds; /* between two looks at a GPU; 0: 1. < 0: only the caller looks */
} fp8c_health_options;

/* options may be NULL. FP8C_ERR_MEMORY; FP8C_ERR_IO: the system refuses a thread. */
FP8C_API fp8c_status fp8c_health_create(fp8c_context *ctx, const fp8c_health_options *options,
                                        fp8c_health **out);
FP8C_API void fp8c_health_destroy(fp8c_health *health);

typedef struct fp8c_health_info {
    size_t struct_size;  /* sizeof(fp8c_health_info), set by the caller */
    const char *source;  /* "NVML, driver 580.65.06", "the kernel"; or why there is none */
    int32_t known;       /* how many values are known; 0: nothing is known of the device */
    int32_t events;      /* so far */
    int32_t faults;      /* how many of them mean that results may be wrong */
    const char *address; /* a GPU's, on the bus; "" */
} fp8c_health_info;
/* With `look` it looks at the device first. Then `out` may be NULL. */
FP8C_API void fp8c_health_report(fp8c_health *health, int32_t look, fp8c_health_info *out);

typedef struct fp8c_health_value {
    size_t struct_size;      /* sizeof(fp8c_health_value), set by the caller */
    const char *name, *text; /* name: in records, as "ecc_uncorrected"; text: in words */
    int64_t first, now;      /* when the health was created, and at the last look; -1: not known */
    int32_t fault;           /* 1: if it grows, results may be wrong */
} fp8c_health_value;
/* Ends a loop. */
FP8C_API fp8c_status fp8c_health_value_at(fp8c_health *health, int index, fp8c_health_value *out);

/* Something that has changed: an XID, a counter that grew, something new that holds clocks down.
 * Only the first 256 are kept. */
typedef struct fp8c_health_event {
    size_t struct_size; /* sizeof(fp8c_health_event), set by the caller */
    const char *name;   /* of the value */
    char text[160];     /* "XID 79: GPU has fallen off the bus" */
    double seconds;     /* since the health was created */
    int64_t number;     /* an XID's number; else by how much the counter grew */
    int32_t fault;      /* as in fp8c_health_value */
} fp8c_health_event;
/* In their order. Ends a loop. */
FP8C_API fp8c_status fp8c_health_event_at(fp8c_health *health, int index, fp8c_health_event *out);

#ifdef __cplusplus
}
#endif

#endif
