/* The options of a command as JSON, by the table in cmd.h: {"--recipe": "delayed", "-D": {"B": 2}}.
 */
#ifndef F8_CMD_OPTIONS_H
#define F8_CMD_OPTIONS_H

#include "frontend/cli/cmd.h"

/* The values of all options that a command takes, given or not: one that has none is null. With
 * `only_given` those that the command line gave. NULL: out of memory. */
json_t *cli_options_json(const cli *c, int bit, bool only_given);
/* The value of one option by its index, CLI_AT_x, and its name in the table. */
json_t *cli_option_json(const cli *c, int at);
const char *cli_option_name(int at);
/* Sets an option to a value that cli_option_json made. Texts stay in the value, which must live on.
 * false: it is no such value. */
bool cli_option_set(cli *c, int at, const json_t *value);

#endif
