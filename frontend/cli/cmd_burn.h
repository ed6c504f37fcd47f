/* fp8c doctor --burn. */
#ifndef F8_CMD_BURN_H
#define F8_CMD_BURN_H

#include "frontend/cli/cmd.h"

typedef struct cli_burning {
    const cli *c;
    fp8c_context *ctx;
    fp8c_doctor *doctor;
    FILE *to; /* NULL: stdout is for the records */
    cli_json *json;
    void (*before)(void *user, const char *what); /* called before each device */
    void *user;
} cli_burning;

/* Burns each device that --target names: the CPU and all GPUs, if it names none. CLI_FAILED if
 * anything was wrong. */
int cli_burn(const cli_burning *x);

#endif
