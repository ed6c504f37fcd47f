/* What the command does when something happens in a training: it prints, and writes records. */
#ifndef F8_CLI_TOLD_H
#define F8_CLI_TOLD_H

#include "frontend/cli/cli.h"
#include "frontend/train/train.h"

/* What the library is told of a command line. Its failures and words go to stderr, its records to
 * `json`, unless that is NULL. `c` must live on; a run that goes on changes its options, and only
 * then. */
f8_train cli_told(const cli *c, cli_json *json);
/* cli_interrupted, as an entry of a table of callbacks. */
int32_t cli_stopped(void *user);

#endif
