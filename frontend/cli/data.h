/* The data of train, eval, explain, export and triage (../train/data/): when reading them stops,
 * and what stderr says of a failure. */
#ifndef F8_CLI_DATA_H
#define F8_CLI_DATA_H

#include "frontend/cli/ranks.h"
#include "frontend/train/data/data.h"
#include "frontend/train/train.h"

/* Whether the options name data. */
bool cli_data_given(const cli *c);
/* The same as f8_data_open. false after a message on stderr, or a signal. `c` and its ranks must
 * live until the data are closed. */
bool cli_data_open(f8_data *d, const cli *c);

#endif
