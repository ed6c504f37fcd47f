/* SIGINT (Ctrl-C) and SIGTERM.
 *
 * The first signal ends the process: it removes temporary files, says a line on stderr, and the
 * exit code is 128 + its number. There are two exceptions, in which the first signal is only noted
 * and the second one ends the process: during a call of the library that asks whether to continue,
 * and while a command holds signals. What is noted ends in good order: nothing is half done.
 *
 * The library's threads take no signals. A thread of another library may: it passes them on to the
 * main thread, so a handler never runs next to the code below. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "frontend/cli/cli.h"

/* Signals within so many nanoseconds are one: `timeout` and programs that pass signals on send two.
 */
static const int64_t together = 50000000;

static atomic_int noted; /* the number of the signal; 0: none came */
static atomic_bool asking, held, terminal;
static _Atomic int64_t at; /* when the noted one came */
static _Atomic(const char *) notice, text = "interrupted";
static f8_temporaries temporaries; /* of files that commands write */
static _Atomic(fp8c_context *) context;
static fp8c_module *keeper; /* keeps `context` alive */
static pthread_t main_thread;
/* Where the handler runs. oneDNN's f32 GEMM for AVX2 points the stack pointer at its working memory
 * in the heap: what a handler puts on that stack would damage the heap. */
static _Alignas(16) char handler_stack[1 << 16];

static int64_t now(void)
{
    struct timespec t = {0};
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* ---- the handler: what it calls is async-signal-safe ---- */

static void put(const char *words)
{
    if (write(STDERR_FILENO, words, strlen(words)) < 0)
        return; /* nobody can be told */
}

/* A terminal's line may hold a bar, and shows ^C. */
static void say(const char *words)
{
    if (!words || !*words)
        return;
    put(terminal ? "\n" : "");
    put(words);
    put("\n");
}

bool cli_end_with(pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    return getppid() == parent;
}

static _Noreturn void end(int number)
{
    f8_temporaries_remove(&temporaries);
    if (context)
        fp8c_context_abandon_files(context);
    say(noted ? "interrupted again: ended at once" : text);
    _exit(CLI_SIGNALLED + number);
}

static void on_signal(int number)
{
    const int error = errno;
    if (!pthread_equal(pthread_self(), main_thread)) {
        pthread_kill(main_thread, number);
    } else if (!noted && (asking || held)) {
        at = now();
        noted = number;
        if (!asking)
            say(notice);
    } else if (!noted || now() - at > together) {
        end(number);
    }
    errno = error;
}

void cli_signals(void)
{
    static const int number[] = {SIGINT, SIGTERM};
    struct sigaction before, ours = {.sa_handler = on_signal};
    const stack_t own = {.ss_sp = handler_stack, .ss_size = sizeof handler_stack};
    ours.sa_flags = SA_RESTART | (sigaltstack(&own, NULL) ? 0 : SA_ONSTACK);
    sigfillset(&ours.sa_mask);
    main_thread = pthread_self();
    terminal = isatty(STDERR_FILENO);
    for (int i = 0; i < 2; i++) /* one that is ignored, as by nohup, stays so */
        if (!sigaction(number[i], NULL, &before) && before.sa_handler == SIG_DFL)
            sigaction(number[i], &ours, NULL);
}

/* ---- what commands use ---- */

int cli_interrupted(void)
{
    return noted;
}

void cli_note_signal(int number)
{
    at = now();
    noted = number;
}

void cli_ask(bool now_asking)
{
    asking = now_asking;
}

void cli_hold(const char *words)
{
    notice = words;
    held = true;
}

void cli_interrupt_text(const char *words)
{
    text = words;
}

f8_temporaries *cli_temporaries(void)
{
    return &temporaries;
}

/* Commands destroy the context at their end, and a handler may need it at any time: a module that
 * nobody uses keeps it alive. */
bool cli_keep(fp8c_context *ctx)
{
    fp8c_module *before = keeper;
    const bool kept = fp8c_module_create(ctx, "kept", &keeper) == FP8C_OK;
    context = kept ? ctx : NULL;
    if (!kept)
        keeper = NULL;
    fp8c_module_destroy(before);
    return kept;
}

int cli_settle(int code)
{
    held = asking = false;
    if (noted) {
        if (*text)
            fprintf(stderr, "%s\n", text);
        code = CLI_SIGNALLED + noted;
    }
    context = NULL;
    fp8c_module_destroy(keeper);
    keeper = NULL;
    return code;
}
