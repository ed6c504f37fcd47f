/* What benchmarks print, and how: records, medians, and ending the process with a message. */
#ifndef BENCH_FIGURES_H
#define BENCH_FIGURES_H

#include <stdbool.h>
#include <stddef.h>

/* The program's name and `what` on stderr, and the end of the process. */
_Noreturn void give_up(const char *what);
/* Gives up unless ok. `what` is evaluated after it, and may ask for the message of what failed. */
#define must(ok, what) ((ok) ? (void)0 : give_up(what))

/* One figure on stdout: a line for people, or a record of bench.jsonl. */
void report(bool json, double value, const char *unit, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* The upper one of two in the middle. Sorts the values. */
double median(double *values, int n);

/* All of a file, with a NUL after its last byte; the caller's to free. */
char *read_file(const char *path, size_t *size);

#endif
