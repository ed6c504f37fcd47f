/* See fault.h. */
#include "tests/emulator/fault.h"

#include "tests/emulator/common.h"
#include "tests/emulator/fiber.h"

#include <pthread.h>
#include <signal.h>
#include <ucontext.h>

static const int faults[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP};
enum { N_FAULTS = sizeof faults / sizeof *faults };

static struct sigaction before[NSIG];
static stack_t stack_before;
static void *const *resume_at; /* NULL: nothing is being caught */
static void (*tell)(int error, const char *what, const void *address);
static pthread_t owner;

static void on_signal(int signal, siginfo_t *info, void *context)
{
    if (!resume_at || !pthread_equal(owner, pthread_self())) {
        sigaction(signal, &before[signal], NULL); /* not ours: let it happen again */
        return;
    }
    /* A trap of the compiler's check, or of an instruction that wants alignment (it names no
     * address). */
    if (signal == SIGILL || signal == SIGTRAP || (signal == SIGSEGV && info->si_code == SI_KERNEL))
        tell(CUDA_ERROR_MISALIGNED_ADDRESS, "made a misaligned access", info->si_addr);
    else if (signal == SIGFPE)
        tell(CUDA_ERROR_LAUNCH_FAILED, "divided by zero", info->si_addr);
    else
        tell(CUDA_ERROR_ILLEGAL_ADDRESS, "touched an address that is not its own", info->si_addr);
    ucontext_t *u = context;
    u->uc_mcontext.gregs[REG_RSP] = (greg_t)(uintptr_t)*resume_at;
    u->uc_mcontext.gregs[REG_RIP] = (greg_t)(uintptr_t)f8_emu_resume;
}

/* Handlers run on a stack of their own: a fiber's may be what overflowed. */
void f8_emu_faults_catch(void *const *resume,
                         void (*report)(int error, const char *what, const void *address))
{
    static uint8_t handler_stack[64 * 1024];
    const stack_t stack = {.ss_sp = handler_stack, .ss_size = sizeof handler_stack};
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    resume_at = resume;
    tell = report;
    owner = pthread_self();
    sigaltstack(&stack, &stack_before);
    for (int i = 0; i < N_FAULTS; i++)
        sigaction(faults[i], &action, &before[faults[i]]);
}

void f8_emu_faults_release(void)
{
    for (int i = 0; i < N_FAULTS; i++)
        sigaction(faults[i], &before[faults[i]], NULL);
    sigaltstack(&stack_before, NULL);
    resume_at = NULL;
}
