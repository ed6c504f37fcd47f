/* Memory budgets: what they cost, compared with other ways to recompute; the cost measured; where
 * the bytes go; how long planning takes.
 *
 *     bench_memory [--json] [--rounds N] [--threads N] [PART...]
 *
 *     cost      predicted extra time by budget, and that of other ways to recompute
 *     measured  GPT-2 124M on this machine: time against the prediction, bits, peaks
 *     bytes     what lies in memory at the peak by category, FP8 recipes and bf16
 *     quick     seconds of planning by layers
 *
 * Without PART all but `measured`, which takes 10 GB and minutes. Tables are Markdown on stdout.
 * With --json tables go to stderr and records to stdout. Bars that do not hold are reported; the
 * exit code is 0. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/figures.h"
#include "bench/memory.h"

static bool asked(char *const *part, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (!strcmp(part[i], name))
            return true;
    return n == 0 && strcmp(name, "measured");
}

int main(int argc, char **argv)
{
    static const char usage[] =
        "usage: [--json] [--rounds N] [--threads N] [cost|measured|bytes|quick ...]";
    static const char *const known[] = {"cost", "measured", "bytes", "quick"};
    output o = {.table = stdout};
    int rounds = 7, threads = (int)sysconf(_SC_NPROCESSORS_ONLN), n = 0;
    for (int i = 1; i < argc; i++)
        if (!strcmp(argv[i], "--json")) {
            o.json = true;
        } else if (!strcmp(argv[i], "--rounds") && i + 1 < argc) {
            rounds = atoi(argv[++i]);
        } else if (!strcmp(argv[i], "--threads") && i + 1 < argc) {
            threads = atoi(argv[++i]);
        } else {
            bool found = false;
            for (int k = 0; k < 4; k++)
                found |= !strcmp(argv[i], known[k]);
            must(found, usage);
            argv[n++] = argv[i];
        }
    must(rounds >= 1 && rounds <= 32 && threads >= 1, usage);
    o.table = o.json ? stderr : stdout;
    if (asked(argv, n, "cost"))
        part_cost(&o);
    if (asked(argv, n, "bytes"))
        part_bytes(&o);
    if (asked(argv, n, "quick"))
        part_quick(&o);
    if (asked(argv, n, "measured"))
        part_measured(&o, rounds, threads);
    say(&o, "\n%d bars not held\n", o.missed);
    return 0;
}
