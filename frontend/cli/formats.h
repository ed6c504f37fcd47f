/* --as and --model: writing FP8 weights in the formats of others. `fp8c weights` and `fp8c export`
 * share it. What can fail returns false after a message on stderr. */
#ifndef F8_CLI_FORMATS_H
#define F8_CLI_FORMATS_H

#include "frontend/cli/cli.h"
#include "frontend/formats/convert.h"

/* Whether --as, --model and -o go together; *to is what --as says, native without it. CLI_USAGE
 * after a message. */
int cli_formats_check(const cli *c, f8_fp8_format *to);
/* Converts `from` (PATH of weights, or a file that export has written) to the folder of -o, and
 * says what was done. `shown`: what messages call the weights. */
bool cli_convert(const cli *c, const char *from, const char *shown, f8_fp8_format to,
                 cli_json *json);

#endif
