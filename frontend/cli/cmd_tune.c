/* fp8c tune: times the ways to compute each GEMM and kernel of a module, or GEMMs alone, and saves
 * the times and the fastest way in the database. It also moves rows of the database to and from
 * files. */
#include <inttypes.h>

#include "frontend/cli/tune.h"

static bool tune(cli_job *j)
{
    cli_interrupt_text("interrupted\nthe timings so far are saved; run this again to continue");
    return j->module ? cli_tune_model(j) : cli_tune_gemms(j);
}

/* Moves rows of the database from or to a file, and says how many. */
static bool move_file(const cli_job *j, const char *path, const char *what, fp8c_tuning_way way)
{
    fp8c_tuning_rows rows = {.struct_size = sizeof rows};
    if (!path)
        return true;
    if (!cli_ok(j->ctx, fp8c_tuning_move(j->ctx, way, j->c->database, path, &rows)))
        return false;
    cli_say(stdout,
            "%s: %" PRId64 " timings and %" PRId64 " choices %s, %" PRId64
            " skipped as the database is not older; %" PRId64 " of all are for other devices\n",
            path, rows.timings, rows.choices, what, rows.older, rows.others);
    return true;
}

static bool move_rows(cli_job *j)
{
    const cli *c = j->c;
    bool ok = move_file(j, c->rows_in, "added", FP8C_TUNING_IMPORT);
    for (size_t i = 0; ok && i < c->merge.n; i++)
        ok = move_file(j, c->merge.text[i], "added", FP8C_TUNING_MERGE);
    return ok && move_file(j, c->rows_out, "written", FP8C_TUNING_EXPORT);
}

int cmd_tune(const cli *c)
{
    const bool moves = c->rows_in || c->rows_out || c->merge.n,
               gemms = c->gemms.n || c->gemm_files.n || c->suites.n;
    if (!c->file + !gemms + !moves + !c->diffs.n != 3)
        return cli_usage(c, "give either FILE.f8, or --gemm, --gemm-file and --suite, or some of "
                            "--export, --import and --merge, or --diff twice");
    if (c->diffs.n && c->diffs.n != 2)
        return cli_usage(c, "--diff compares two files: give it twice");
    return cli_work(c, c->file != NULL, moves ? move_rows : c->diffs.n ? cli_tune_diff : tune);
}
