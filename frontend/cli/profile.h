/* The time that each step of a program's plan took. */
#ifndef F8_CLI_PROFILE_H
#define F8_CLI_PROFILE_H

#include "frontend/cli/cli.h"

/* Prints a line for each step that took time, with the mean of a run. */
void cli_profile_print(FILE *to, const fp8c_program *program, f8_profile_runs runs,
                       const void *user);

#endif
