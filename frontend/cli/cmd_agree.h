/* Whether the ranks were started alike. */
#ifndef F8_CMD_AGREE_H
#define F8_CMD_AGREE_H

#include "frontend/cli/cmd_ranks.h"

/* Whether all ranks have the same version of fp8c, the same model, and the same options, but for
 * those that each may have for itself. All call it together, when they are joined. false after a
 * message on stderr, which names an option, say, and a rank that has another value than rank 0. One
 * rank: true. */
bool cli_agree(const cli *c, const fp8c_module *module);

#endif
