/* Locks that exclude other processes, and other threads too. */
#ifndef F8_LOCK_H
#define F8_LOCK_H

#include <stdbool.h>
#include <stdint.h>

/* Lock the byte at `at` of a file that is open for writing, for this open file description
 * (F_OFD_SETLK, fcntl(2)). The byte need not exist. Others that hold it are not waited for: false,
 * and errno is EAGAIN or EACCES; another errno says why this file takes no locks. The system ends
 * the lock when the last descriptor of the description is closed, so also of a process that is
 * killed. */
bool f8_lock_byte(int fd, int64_t at);
/* End it at once: a child process may hold the description open, too. */
void f8_unlock_byte(int fd, int64_t at);

/* Whether somebody else holds it; `fd` may be open for reading alone. Also true where the file
 * system can't say. */
bool f8_lock_is_held(int fd, int64_t at);

#endif
