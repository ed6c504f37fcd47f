/* fp8c tune --diff A --diff B: two sets of measurements beside each other. */
#include <inttypes.h>
#include <stdlib.h>

#include "frontend/cli/tune.h"

/* Whether no problem is slower by more than --fail-slower. Names those that are. */
static bool is_fast_enough(const cli *c, const f8_measure_diff *d)
{
    size_t slower = 0;
    for (size_t i = 0; i < d->n_changes && c->fail_slower > 0; i++)
        if (f8_measure_is_slower(&d->change[i], c->fail_slower)) {
            const f8_measure_change *x = &d->change[i];
            cli_message("%s (%s) is slower by %.1f%%, at least %.1f%%", x->a->problem.text,
                        x->a->cache, 100 * (x->ratio.ratio - 1), 100 * (x->ratio.low - 1));
            slower++;
        }
    return !slower || cli_error(NULL, "%zu of %zu problems are slower by more than %g%%", slower,
                                d->n_changes, c->fail_slower);
}

static bool show(cli_job *j, const f8_measure_diff *d)
{
    char *table = f8_measure_diff_table(d);
    const bool ok = table || cli_error(NULL, "out of memory");
    if (table)
        cli_say(j->to, "%s", table);
    free(table);
    return cli_tune_write_records(j->c, f8_measure_diff_records(d)) && ok;
}

bool cli_tune_diff(cli_job *j)
{
    const cli *c = j->c;
    const f8_measure_options options = {.seed = c->seed};
    f8_measure_set set[2] = {0};
    f8_measure_diff d;
    f8_diag diag = {0};
    f8_arena arena;
    f8_status status = F8_OK;
    f8_arena_init(&arena, NULL);
    for (int i = 0; i < 2; i++) {
        f8_arena_init(&set[i].arena, NULL);
        if (status == F8_OK)
            status = f8_measure_read(&set[i], c->diffs.text[i], &diag);
    }
    if (status == F8_OK)
        status = f8_measure_compare(&set[0], &set[1], &options, &arena, &d, &diag);
    bool ok = status == F8_OK || cli_file_fail(&diag);
    ok = ok && show(j, &d) && is_fast_enough(c, &d);
    for (int i = 0; i < 2; i++)
        f8_arena_end(&set[i].arena);
    f8_arena_end(&arena);
    return ok;
}
