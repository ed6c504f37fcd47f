/* The parts of the command tune. */
#ifndef F8_CLI_TUNE_H
#define F8_CLI_TUNE_H

#include "frontend/cli/cli.h"

/* Measures GEMMs that come from no model (tune_gemms.c). */
bool cli_tune_gemms(cli_job *j);
/* Compares two measurements: --diff (tune_diff.c). */
bool cli_tune_diff(cli_job *j);

#endif
