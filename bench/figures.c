/* See figures.h. */
#include "bench/figures.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void give_up(const char *what)
{
    fprintf(stderr, "%s: %s\n", program_invocation_short_name, what);
    exit(1);
}

void report(bool json, double value, const char *unit, const char *format, ...)
{
    char name[160];
    va_list args;
    va_start(args, format);
    vsnprintf(name, sizeof name, format, args);
    va_end(args);
    if (json)
        printf("{\"event\":\"bench\",\"name\":\"%s\",\"value\":%.6g,\"unit\":\"%s\"}\n", name,
               value, unit);
    else
        printf("%-64s %12.5g %s\n", name, value, unit);
    fflush(stdout);
}

static int compare(const void *a, const void *b)
{
    const double d = *(const double *)a - *(const double *)b;
    return (d > 0) - (d < 0);
}

double median(double *values, int n)
{
    qsort(values, (size_t)n, sizeof *values, compare);
    return values[n / 2];
}

char *read_file(const char *path, size_t *size)
{
    FILE *f = fopen(path, "rb");
    must(f && fseek(f, 0, SEEK_END) == 0, path);
    const long end = ftell(f);
    must(end >= 0 && fseek(f, 0, SEEK_SET) == 0, path);
    *size = (size_t)end;
    char *text = malloc(*size + 1);
    must(text && fread(text, 1, *size, f) == *size, path);
    text[*size] = 0;
    fclose(f);
    return text;
}
