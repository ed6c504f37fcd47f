/* Who may change a folder or a file whose contents are relied on: the kernel cache's code, the
 * tuning database's choices. Both must belong to this user. */
#ifndef F8_OWNER_H
#define F8_OWNER_H

#include <sys/stat.h>

#include "ir/base/status.h"

/* Of an open folder: everyone may write it only where it has the sticky bit, so that they can't
 * replace files of this user. Its group may write it: a file that a member puts there belongs to
 * that member, and f8_owner_file refuses it. F8_ERR_IO says why not; `what` and `path` are for the
 * message: "the kernel cache's folder '/x' belongs to ...". */
f8_status f8_owner_folder(int fd, const char *what, const char *path, f8_diag *diag);
/* Of a file: it is a regular one, and neither its group nor everyone may write it. */
f8_status f8_owner_file(const struct stat *s, const char *what, const char *path, f8_diag *diag);

#endif
