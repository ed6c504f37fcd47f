/* What the threads that watch the ranks have in common: text that is written at once, what is known
 * of a process of this machine, and the end of a job. */
#ifndef F8_RANKS_PROCESS_H
#define F8_RANKS_PROCESS_H

#include <pthread.h>

#include "frontend/cli/cmd.h"

/* What a message is made of. */
typedef struct f8_said {
    char text[8192];
    size_t n;
} f8_said;

void f8_say(f8_said *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
void f8_say_to(int to, const f8_said *s);

typedef enum f8_life { F8_LIFE_RUNS, F8_LIFE_STOPPED, F8_LIFE_GONE, F8_LIFE_UNKNOWN } f8_life;

/* Of a process of this machine. */
f8_life f8_life_of(int64_t pid);
/* " is stopped (SIGSTOP)", " is gone" or "". */
const char *f8_life_text(f8_life l);
/* How such a message begins: "rank 1 (host n3, process 4424)". */
void f8_say_rank(f8_said *s, int rank, const char *host, int64_t pid);

/* Starts a thread that no signal goes to. false after a message on stderr. */
bool f8_start_thread(pthread_t *out, void *(*body)(void *), void *user);
/* Ends this process, and by MPI, if there is one, all of the job. */
void cli_end_job(fp8c_mpi *mpi) __attribute__((noreturn));

#endif
