/* Fingerprints: hashes of the values that a step of the training writes. With --fingerprint-every
 * the run's folder has them as records. `fp8c triage` compares a replay with them, and so finds the
 * first value that differs. */
#ifndef F8_TRAIN_FINGERPRINT_H
#define F8_TRAIN_FINGERPRINT_H

#include <jansson.h>
#include <stdbool.h>

#include "frontend/fp8c.h"
#include "frontend/fp8c_diagnose.h"

/* The hashes of one run of a function. All zeros: there are none. */
typedef struct f8_fingerprint {
    uint64_t *value; /* of each value that its plan wrote, in the plan's order */
    size_t n, room;
    uint64_t *variable; /* of all variables before the function ran; NULL: not asked for */
    size_t n_variables;
    bool failed; /* out of memory */
} f8_fingerprint;

void f8_fingerprint_free(f8_fingerprint *f);
/* Hashes all variables. */
void f8_fingerprint_variables(f8_fingerprint *f, fp8c_program *program);
/* An fp8c_witness_fn whose `user` is a f8_fingerprint. */
void f8_fingerprint_add(void *fingerprint, const fp8c_witnessed *value);

/* The record `fingerprint` of one function of a step. Steps and micro-steps count from 1. NULL: out
 * of memory. */
json_t *f8_fingerprint_record(const f8_fingerprint *f, const char *function, int64_t step,
                              int64_t micro_step);
/* The hashes of such a record. false: it is of another function or micro-step, or damaged. */
bool f8_fingerprint_read(f8_fingerprint *f, const json_t *record, const char *function,
                         int64_t micro_step);

#endif
