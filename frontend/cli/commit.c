/* The commit that the command was built from: see cli.h. */
#include "frontend/cli/cli.h"

#ifndef F8_COMMIT
#error "F8_COMMIT is not defined: the Makefile defines it"
#endif

const char cli_commit[] = F8_COMMIT;
