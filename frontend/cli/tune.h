/* The parts of the command tune. */
#ifndef F8_CLI_TUNE_H
#define F8_CLI_TUNE_H

#include "frontend/cli/cli.h"
#include "frontend/measure/measure.h"

/* Measures GEMMs that come from no model (tune_gemms.c). */
bool cli_tune_gemms(cli_job *j);
/* Measures the GEMMs and kernels of a model's step (tune_model.c). */
bool cli_tune_model(cli_job *j);
/* Compares two sets of measurements: --diff (tune_diff.c). */
bool cli_tune_diff(cli_job *j);

/* ---- files (tune_files.c) ---- */

/* Whether the files of --csv, --markdown and --t4 can be there: that is told before hours of
 * measuring. False after a message. */
bool cli_tune_may_write(const cli *c);
/* Writes a text, which it frees, as a whole or not at all. NULL: there was no memory for it. */
bool cli_tune_write_text(const char *path, char *text);
/* Records as JSON Lines; NULL: no memory. Takes them over. */
char *cli_tune_lines(json_t *records);
/* Writes --json, if it was given. Takes the records over. */
bool cli_tune_write_records(const cli *c, json_t *records);
/* Writes what was measured into the files that were asked for; --json gets `more` records (taken
 * over; NULL: none), too. A file that can't be written keeps none of the others from being
 * written. */
bool cli_tune_write(const cli *c, const f8_measure_set *set, json_t *more);

#endif
