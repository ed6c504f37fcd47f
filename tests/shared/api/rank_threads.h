/* Ranks as threads of this process, which exchange bytes through the API's callbacks. */
#ifndef F8_TEST_RANK_THREADS_H
#define F8_TEST_RANK_THREADS_H

#include <stdint.h>

#include "frontend/fp8c.h"
#include "frontend/fp8c_ranks.h"

enum { RANKS_MOST = 8 };

/* What one rank's callbacks moved. */
typedef struct rank_traffic {
    int64_t calls, sent, received; /* bytes to and from others; not those of sums */
    int64_t sums;                  /* calls that add */
} rank_traffic;

/* Runs `body` in `ranks` threads at once and waits for all. Each gets a comm of its own, valid
 * until it returns. traffic: by rank, or NULL. A rank that fails calls ranks_leave, or the others
 * would wait for it for ever: their calls then fail. */
void ranks_run(int ranks, void (*body)(const fp8c_comm *comm, void *user), void *user,
               rank_traffic *traffic);
void ranks_leave(const fp8c_comm *comm);

#endif
