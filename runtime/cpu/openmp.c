/* Threads of OpenMP, and signals that wait: see openmp.h. */
#include "runtime/cpu/openmp.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

f8_openmp f8_openmp_find(const f8_dynlib *lib)
{
    f8_openmp openmp = {.n = 0};
    void *scopes[F8_MAX_OPENMP] = {RTLD_DEFAULT, lib->handle};
    for (int i = 0; i < F8_MAX_OPENMP; i++) {
        void *set = dlsym(scopes[i], "omp_set_num_threads");
        void *get = dlsym(scopes[i], "omp_get_max_threads");
        if (!set || !get)
            continue;
        memcpy(&openmp.runtime[openmp.n].set, &set, sizeof set);
        memcpy(&openmp.runtime[openmp.n].get, &get, sizeof get);
        if (!openmp.n || openmp.runtime[0].set != openmp.runtime[1].set)
            openmp.n++;
    }
    return openmp;
}

f8_openmp_threads f8_openmp_enter(const f8_openmp *openmp, int threads)
{
    f8_openmp_threads before = {{0}};
    for (int i = 0; i < openmp->n; i++) {
        before.was[i] = openmp->runtime[i].get();
        if (before.was[i] != threads)
            openmp->runtime[i].set(threads);
    }
    return before;
}

void f8_openmp_leave(const f8_openmp *openmp, f8_openmp_threads before, int threads)
{
    for (int i = 0; i < openmp->n; i++)
        if (before.was[i] != threads)
            openmp->runtime[i].set(before.was[i]);
}

void f8_signals_hold(sigset_t *before)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS};
    sigset_t held;
    sigfillset(&held);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        sigdelset(&held, faults[i]);
    pthread_sigmask(SIG_BLOCK, &held, before);
}

void f8_signals_release(const sigset_t *before)
{
    pthread_sigmask(SIG_SETMASK, before, NULL);
}
