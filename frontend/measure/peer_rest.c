/* Waiting for threads that look for work: see f8_peers_rest. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "frontend/measure/peer.h"
#include "ir/base/clock.h"

/* Whether a thread runs, or would if it had a CPU. "ID (NAME) STATE ...", and a name may have any
 * character. */
static bool runs(const char *thread)
{
    char path[64], line[128];
    snprintf(path, sizeof path, "/proc/self/task/%.16s/stat", thread);
    FILE *f = fopen(path, "re");
    if (!f)
        return false; /* it has ended */
    const bool read = fgets(line, sizeof line, f) != NULL;
    fclose(f);
    const char *end = read ? strrchr(line, ')') : NULL;
    return end && !strncmp(end, ") R", 3);
}

static bool others_run(void)
{
    const long self = gettid();
    DIR *tasks = opendir("/proc/self/task");
    bool any = false;
    const struct dirent *entry;
    while (tasks && !any && (entry = readdir(tasks)) != NULL)
        any =
            *entry->d_name != '.' && strtol(entry->d_name, NULL, 10) != self && runs(entry->d_name);
    if (tasks)
        closedir(tasks);
    return any;
}

void f8_peers_rest(void)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    const double start = f8_seconds_now();
    while (others_run() && f8_seconds_now() - start < 0.5)
        nanosleep(&pause, NULL);
}
