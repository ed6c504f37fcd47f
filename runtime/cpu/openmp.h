/* Libraries that run on OpenMP: how many threads they take on the calling thread, and signals that
 * must not come while they run. */
#ifndef F8_OPENMP_H
#define F8_OPENMP_H

#include <signal.h>

#include "runtime/base/dynlib.h"

enum { F8_MAX_OPENMP = 2 };

/* A library calls the OpenMP runtime that the loader bound it to: one in the global scope (the
 * embedder's own, LLVM's for instance, which stands in for GNU's) before the one it was linked
 * with. Which of the two can't be asked, so both are told. */
typedef struct f8_openmp {
    struct {
        void (*set)(int);
        int (*get)(void);
    } runtime[F8_MAX_OPENMP];
    int n; /* 0: there is none */
} f8_openmp;

f8_openmp f8_openmp_find(const f8_dynlib *lib);

/* Set the calling thread's counts of threads. What it returns puts them back. */
typedef struct f8_openmp_threads {
    int was[F8_MAX_OPENMP];
} f8_openmp_threads;
f8_openmp_threads f8_openmp_enter(const f8_openmp *openmp, int threads);
void f8_openmp_leave(const f8_openmp *openmp, f8_openmp_threads before, int threads);

/* Signals of the calling thread, and of threads that it starts, wait until the mask `before` is set
 * again. A fault can't wait: its handler runs at once, or the process ends. */
void f8_signals_hold(sigset_t *before);
void f8_signals_release(const sigset_t *before);

#endif
