/* Rows of the tuning database, to files and from files: see fp8c_tune.h. */
#include <string.h>

#include "frontend/tuned.h"
#include "ir/base/file.h"

/* Check this before anything is made: a mistyped name must not leave a new database behind. */
static f8_status check_there(const char *path, f8_diag *diag)
{
    f8_file_in in;
    F8_TRY(f8_file_open(&in, path, diag));
    f8_file_close(&in);
    return F8_OK;
}

fp8c_status fp8c_tuning_move(fp8c_context *ctx, fp8c_tuning_way way, const char *database,
                             const char *path, fp8c_tuning_rows *rows)
{
    f8_status (*const move[])(f8_tuning *, const char *, const char *, f8_tuning_counts *,
                              f8_diag *) = {[FP8C_TUNING_EXPORT] = f8_tuning_export,
                                            [FP8C_TUNING_IMPORT] = f8_tuning_import,
                                            [FP8C_TUNING_MERGE] = f8_tuning_merge};
    f8_diag diag = {0};
    f8_tuning *t = NULL;
    f8_tuning_counts counts = {0};
    f8_tuning_keys keys;
    const fp8c_program here = {
        .ctx = ctx, .target = f8_target_by_name("cpu"), .threads = ctx->threads};
    database = database ? database : ctx->settings.tuning;
    f8_tuning_device(&here, &keys);
    f8_status status =
        (unsigned)way >= sizeof move / sizeof *move
            ? f8_fail(&diag, F8_ERR_INPUT, F8_NOWHERE, "there is no way %d to move rows", (int)way)
        : database ? check_there(way == FP8C_TUNING_EXPORT ? database : path, &diag)
                   : f8_fail(&diag, F8_ERR_INPUT, F8_NOWHERE,
                             "no tuning database: none was named, and the context has none");
    if (status == F8_OK)
        status = f8_tuning_open(database, &ctx->allocator, &t, &diag);
    if (status == F8_OK)
        f8_tuning_list(t, &ctx->temporaries);
    if (status == F8_OK)
        status = move[way](t, path, keys.device, &counts, &diag);
    const fp8c_status done = f8_api_result(ctx, &diag, status);
    f8_tuning_close(t);
    if (done == FP8C_OK && rows) {
        const fp8c_tuning_rows own = {.struct_size = sizeof own,
                                      .timings = counts.timings,
                                      .choices = counts.choices,
                                      .older = counts.older,
                                      .others = counts.others};
        f8_api_give(rows, &own);
    }
    return done;
}
