/* Messages about names of ops that do not exist. */
#ifndef F8_OP_NAMES_H
#define F8_OP_NAMES_H

#include <stddef.h>

/* Write what follows "there is no op 'NAME'" into buf, and return it: how an op that other
 * frameworks have is written here; else the one op that the name is nearly spelled as; else "". */
const char *f8_op_name_hint(const char *name, size_t length, char *buf, size_t size);

#endif
