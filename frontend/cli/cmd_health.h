/* The health of the device that a command uses: its records, its warnings, its lines. */
#ifndef F8_CMD_HEALTH_H
#define F8_CMD_HEALTH_H

#include "frontend/cli/cmd_folder.h"

typedef struct cli_health {
    fp8c_health *health; /* NULL: it could not be made, and nothing is told */
    char device[64];     /* "CPU", "GPU 0 (0000:17:00.0)" */
    bool gpu;
    int told; /* events that were told */
} cli_health;

/* Begins to watch GPU number `device`, or with gpu false the CPU. */
void cli_health_begin(cli_health *h, fp8c_context *ctx, bool gpu, int32_t device);
/* The same of the device that a program runs on. */
void cli_health_of(cli_health *h, fp8c_context *ctx, const fp8c_program *program, int32_t device);
void cli_health_end(cli_health *h);

/* The next event that was not told yet. false: there is none. */
bool cli_health_next(cli_health *h, fp8c_health_event *out);
/* Its record; fields of the caller's own may be added. */
json_t *cli_health_record(const cli_health *h, const fp8c_health_event *e);
/* A record of what is known of the device by now. NULL: nothing is, or nothing has changed on a
 * CPU. */
json_t *cli_health_summary(const cli_health *h);
/* "45 C, at most 88; 1700 MHz, at least 900, of 1980"; "" if nothing of that is known. */
const char *cli_health_state(const cli_health *h, char *text, size_t size);

/* Tells the events since the last call: warnings on stderr, records in `json` and in the folder.
 * `at` (the reference is taken) has the fields that the records of a step begin with. With `last`
 * the device is looked at before, and a summary follows. */
void cli_health_tell(cli_health *h, cli_json *json, cli_folder *folder, json_t *at, bool last);

#endif
