/* Processes that train together: see ranks.h. */
#include "frontend/cli/ranks.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include "frontend/cli/told.h"
#include "frontend/train/ranks/process.h"

enum { LAST_RESORT = 5 }; /* seconds for MPI to end the job */
/* In this time rank 0 says why all fail, and ends them by a signal. */
static const struct timespec for_rank_0 = {.tv_sec = 2};

/* ---- what happens among the ranks ---- */

/* Written at once: ranks share the descriptor. */
static void put(int to, const char *text)
{
    char all[9000];
    const int n = snprintf(all, sizeof all, "fp8c: error: %s", text);
    for (int at = 0; at < n && at < (int)sizeof all - 1;) {
        const ssize_t wrote = write(to, all + at, (size_t)(n - at));
        if (wrote < 0 && errno != EINTR)
            return; /* nobody can be told */
        at += wrote > 0 ? (int)wrote : 0;
    }
}

static void say(void *user, const char *text)
{
    const cli_ranks *r = user;
    put(r->messages >= 0 ? r->messages : STDERR_FILENO, text);
}

/* Of ranks above 0 it is kept with what else they say. */
static void gone(void *user, const char *text)
{
    (void)user;
    put(STDERR_FILENO, text);
}

static void *last_resort(void *user)
{
    (void)user;
    sleep(LAST_RESORT);
    _exit(CLI_FAILED);
}

static void end(void *user, fp8c_mpi *mpi)
{
    pthread_t thread;
    (void)user;
    f8_temporaries_remove(cli_temporaries());
    f8_wait_passed_on();
    if (mpi && !pthread_create(&thread, NULL, last_resort, NULL))
        fp8c_mpi_abort(mpi, CLI_FAILED);
    _exit(CLI_FAILED);
}

static void stop(void *user, int32_t signal)
{
    (void)user;
    cli_note_signal(signal);
}

/* ---- what rank 0 alone says ---- */

/* From here on stdout goes nowhere, and stderr is kept. */
static void be_quiet(cli_ranks *r)
{
    const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    FILE *kept = tmpfile();
    r->messages = dup(STDERR_FILENO);
    if (nowhere >= 0)
        dup2(nowhere, STDOUT_FILENO);
    if (kept && r->messages >= 0)
        dup2(fileno(kept), STDERR_FILENO);
    if (kept)
        fclose(kept);
    if (nowhere >= 0)
        close(nowhere);
}

/* Says on the real stderr what was kept, a line with the rank before each. */
static void tell(const cli_ranks *r)
{
    char line[4096];
    FILE *kept = NULL;
    const int copy = dup(STDERR_FILENO);
    fflush(stderr);
    if (copy >= 0 && lseek(copy, 0, SEEK_SET) == 0)
        kept = fdopen(copy, "r");
    while (kept && fgets(line, sizeof line, kept))
        dprintf(r->messages, "rank %d: %s", r->joined.comm.rank, line);
    if (kept)
        fclose(kept);
}

/* ---- joining ---- */

bool cli_ranks_join(cli_ranks *r, cli *c)
{
    *r = (cli_ranks){.options.call = {r, say, gone, end, cli_stopped, stop}, .messages = -1};
    f8_train t = cli_told(c, NULL);
    if (!f8_train_join(&t, &r->joined, &r->options))
        return false;
    c->ranks = t.ranks;
    if (f8_ranks_follows(c->ranks)) {
        be_quiet(r);
        c->json = c->write_rules = NULL;
    }
    return true;
}

bool cli_ranks_divide(f8_ranks *r, cli *c, const fp8c_module *module)
{
    f8_train t = cli_told(c, NULL);
    cli_ranks *own = r->options->call.user;
    const bool ok = f8_train_divide(&t, &own->options, module);
    c->part = t.part;
    return ok;
}

int cli_ranks_leave(cli_ranks *r, const cli *c, int code)
{
    f8_ranks *all = &r->joined;
    if (code == CLI_DONE && c->ranks) /* rank 0 may still be writing */
        cli_ranks_stop(c);
    if (all->lost)
        code = CLI_FAILED;
    f8_ranks_settle(all, code != CLI_DONE);
    if (code != CLI_DONE && r->messages >= 0 && (!all->common || !nanosleep(&for_rank_0, NULL)))
        tell(r);
    const int signalled = all->stopped ? 0 : cli_interrupted();
    f8_ranks_leave(all, signalled ? CLI_SIGNALLED + signalled : code);
    fp8c_context_destroy(r->options.ctx);
    return code;
}

bool cli_ranks_stop(const cli *c)
{
    f8_train t = cli_told(c, NULL);
    return f8_train_stops(&t, NULL);
}
