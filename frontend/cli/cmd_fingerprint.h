/* Fingerprints: hashes of the values that a step of the training writes. With --fingerprint-every
 * the run's folder has them as records. `fp8c triage` compares a replay with them, and so finds the
 * first value that differs. */
#ifndef F8_CMD_FINGERPRINT_H
#define F8_CMD_FINGERPRINT_H

#include "frontend/cli/cmd_folder.h"

/* The hashes of one run of a function. All zeros: there are none. */
typedef struct cli_fingerprint {
    uint64_t *value; /* of each value that its plan wrote, in the plan's order */
    size_t n, room;
    uint64_t *variable; /* of all variables before the function ran; NULL: not asked for */
    size_t n_variables;
    bool failed; /* out of memory */
} cli_fingerprint;

void cli_fingerprint_free(cli_fingerprint *f);
/* Hashes all variables. */
void cli_fingerprint_variables(cli_fingerprint *f, fp8c_program *program);
/* An fp8c_witness_fn whose `user` is a cli_fingerprint. */
void cli_fingerprint_add(void *fingerprint, const fp8c_witnessed *value);

/* The record `fingerprint` of one function of a step. Steps and micro-steps count from 1. NULL: out
 * of memory. */
json_t *cli_fingerprint_record(const cli_fingerprint *f, const char *function, int64_t step,
                               int64_t micro_step);
/* The hashes of such a record. false: it is of another function or micro-step, or damaged. */
bool cli_fingerprint_read(cli_fingerprint *f, const json_t *record, const char *function,
                          int64_t micro_step);

/* Whether the options ask for a fingerprint of this step. */
bool cli_fingerprint_wanted(const cli *c, int64_t step);

#endif
