/* Fingerprints: a hash of each value that a step of the training writes. With --fingerprint-every
 * they are records of the run's folder, and `fp8c triage` finds by them which value a replay gives
 * differently. */
#ifndef F8_CMD_FINGERPRINT_H
#define F8_CMD_FINGERPRINT_H

#include "frontend/cli/cmd_folder.h"

/* Of one run of a function; all zeros: of none. */
typedef struct cli_fingerprint {
    uint64_t *value; /* of what its steps wrote, in their order */
    size_t n, room;
    uint64_t *variable; /* of all variables, when it began; NULL: they were not asked for */
    size_t n_variables;
    bool failed; /* out of memory */
} cli_fingerprint;

void cli_fingerprint_free(cli_fingerprint *f);
/* Hashes all variables. */
void cli_fingerprint_variables(cli_fingerprint *f, fp8c_program *program);
/* An fp8c_witness_fn whose `user` is a cli_fingerprint. */
void cli_fingerprint_add(void *fingerprint, const fp8c_witnessed *value);

/* The record `fingerprint` of one function of a step, both from 1. NULL: out of memory. */
json_t *cli_fingerprint_record(const cli_fingerprint *f, const char *function, int64_t step,
                               int64_t micro_step);
/* The hashes of such a record. false: it is of another function or micro-step, or damaged. */
bool cli_fingerprint_read(cli_fingerprint *f, const json_t *record, const char *function,
                          int64_t micro_step);

/* Whether the options ask for one of this step. */
bool cli_fingerprint_wanted(const cli *c, int64_t step);

#endif
