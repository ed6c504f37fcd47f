/* What the threads that watch the ranks have in common: text that is written at once, what is known
 * of a process of this machine, and the end of a job. */
#ifndef F8_CMD_PROCESS_H
#define F8_CMD_PROCESS_H

#include <pthread.h>

#include "frontend/cli/cmd.h"

/* What a message is made of. */
typedef struct cli_said {
    char text[8192];
    size_t n;
} cli_said;

void cli_say(cli_said *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
void cli_say_to(int to, const cli_said *s);

typedef enum cli_life { CLI_RUNS, CLI_STOPPED, CLI_GONE, CLI_UNKNOWN } cli_life;

/* Of a process of this machine. */
cli_life cli_life_of(int64_t pid);
/* " is stopped (SIGSTOP)", " is gone" or "". */
const char *cli_life_text(cli_life l);
/* How such a message begins: "rank 1 (host n3, process 4424)". */
void cli_say_rank(cli_said *s, int rank, const char *host, int64_t pid);

/* Starts a thread that no signal goes to. false after a message on stderr. */
bool cli_start_thread(pthread_t *out, void *(*body)(void *), void *user);
/* Ends this process, and by MPI, if there is one, all of the job. */
void cli_end_job(fp8c_mpi *mpi) __attribute__((noreturn));

#endif
