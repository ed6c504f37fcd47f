/* What the threads that watch the ranks have in common: a text that is said at once, and what is
 * known of a process of this machine. */
#ifndef F8_RANKS_PROCESS_H
#define F8_RANKS_PROCESS_H

#include <pthread.h>
#include <stdint.h>

#include "ir/base/status.h"

/* What a message is made of. */
typedef struct f8_said {
    char text[8192];
    size_t n;
} f8_said;

void f8_say(f8_said *s, const char *format, ...) __attribute__((format(printf, 2, 3)));

typedef enum f8_life { F8_LIFE_RUNS, F8_LIFE_STOPPED, F8_LIFE_GONE, F8_LIFE_UNKNOWN } f8_life;

/* Of a process of this machine. */
f8_life f8_life_of(int64_t pid);
/* " is stopped (SIGSTOP)", " is gone" or "". */
const char *f8_life_text(f8_life l);
/* How such a message begins: "rank 1 (host n3, process 4424)". */
void f8_say_rank(f8_said *s, int rank, const char *host, int64_t pid);

/* Waits for MPICH's mpirun, which drops what it has not passed on when a process aborts. */
void f8_wait_passed_on(void);

/* Starts a thread that no signal goes to. F8_ERR_IO. */
f8_status f8_start_thread(pthread_t *out, void *(*body)(void *), void *user, f8_diag *diag);

#endif
