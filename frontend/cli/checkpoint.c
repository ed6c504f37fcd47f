/* Writes and loads checkpoints: see checkpoint.h. */
#include "frontend/cli/checkpoint.h"

#include "frontend/checkpoint/shared.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_ROOM = 1024 }; /* names of a module have 511 bytes at most */

/* ---- what train writes ---- */

bool cli_checkpoint_save(const cli *c, const char *path, fp8c_program *program, const char *recipe,
                         int64_t n_steps)
{
    char steps[24], seed[24];
    f8_diag diag = {0};
    snprintf(steps, sizeof steps, "%" PRId64, n_steps);
    snprintf(seed, sizeof seed, "%" PRIu64, c->seed);
    const f8_st_pair more[] = {{"fp8c.recipe", recipe}, {"fp8c.steps", steps}, {"fp8c.seed", seed}};
    if (f8_ranks_follows(c->ranks) && !f8_shares(program))
        return true;
    return f8_checkpoint_write(program, path, more, sizeof more / sizeof *more, &diag) == F8_OK ||
           cli_file_fail(&diag);
}

bool cli_state_save(const cli *c, const char *path, fp8c_program *program)
{
    f8_diag diag = {0};
    return f8_shared_write_bytes(program, f8_ranks_follows(c->ranks) ? NULL : path,
                                 cli_temporaries(), &diag) == F8_OK ||
           cli_file_fail(&diag);
}

bool cli_can_save(const cli *c)
{
    const char *const paths[] = {c->save, c->save_state};
    f8_diag diag = {0};
    for (int i = 0; i < 2 && !f8_ranks_follows(c->ranks); i++)
        if (paths[i] && f8_file_writable(cli_temporaries(), paths[i], &diag) != F8_OK)
            return cli_file_fail(&diag);
    return true;
}

/* ---- what became of each tensor ---- */

void cli_weights_report(const f8_loader *l, cli_job *j, const char *recipe)
{
    char *lists = j->c->verbose ? f8_loader_lists(l) : NULL;
    if (lists)
        cli_say(stderr, "%s\n", lists);
    free(lists);
    cli_json_record(&j->json, f8_loader_record(l, recipe));
}

/* How to get the scales that the files lack. */
static const char *advice(const cli *c)
{
    if (!strcmp(c->command, "export") && !c->data.n && !c->batches.n)
        return "give --data FILE to calibrate them, or ";
    if (cli_is_package(c->file))
        return "`fp8c run` of the text calibrates them, and its --save keeps them for this; or ";
    return "";
}

static void print_problems(const f8_loader *l, const cli *c, const char *recipe)
{
    const char *trained = f8_weights_metadata(&l->files, "fp8c.recipe");
    const bool one = l->files.n_files == 1;
    char shown[NAME_ROOM], *refusal = f8_loader_refusal(l, c->file, recipe);
    cli_message("%s", refusal ? refusal : "error: out of memory");
    free(refusal);
    if (l->scales_missing)
        cli_say(stderr,
                "this recipe needs the scales that training under it keeps, and the file%s %s%s: "
                "%sgive a recipe that needs none, such as current\n",
                one ? "" : "s",
                trained ? one ? "was trained under " : "were trained under "
                : one   ? "has none"
                        : "have none",
                trained ? f8_st_shown(trained, shown, 200) : "", advice(c));
}

/* ---- loading ---- */

static bool open_weights(f8_loader *l, const cli *c, bool named)
{
    const fp8c_load_options options = {.struct_size = sizeof options,
                                       .files = c->weights.text,
                                       .n_files = c->weights.n,
                                       .ignore = c->ignore.text,
                                       .n_ignore = named ? c->ignore.n : 0,
                                       .map = c->map.text,
                                       .n_map = named ? c->map.n : 0,
                                       .allow_missing = c->allow_missing.text,
                                       .n_allow_missing = c->allow_missing.n};
    f8_diag diag = {0};
    return f8_loader_open(l, &options, c->seed, &diag) == F8_OK || cli_file_fail(&diag);
}

bool cli_weights_open(f8_loader *l, const cli *c)
{
    if (!c->model)
        return open_weights(l, c, true);
    if (!open_weights(l, c, false) || f8_weights_metadata(&l->files, "fp8c.version"))
        return l->files.n_files > 0;
    f8_loader_close(l);
    return open_weights(l, c, true);
}

bool cli_stored_read(f8_stored *s, const f8_loader *l, fp8c_context *ctx)
{
    f8_diag diag = {0};
    return f8_stored_read(s, &l->files, ctx, &diag) == F8_OK || cli_file_fail(&diag);
}

bool cli_weights_done(const f8_loader *l, const cli_job *j, const char *recipe, fp8c_status status,
                      const f8_diag *diag)
{
    if (status == FP8C_OK || !json_array_size(l->problems))
        return cli_done(j->ctx, status, diag);
    print_problems(l, j->c, recipe);
    return false;
}

void cli_print_calibrated(const char *recipe, int64_t batches, const char *what)
{
    if (batches)
        cli_say(stdout, "%s: the scales were calibrated on %" PRId64 " batch%s of %s\n", recipe,
                batches, batches == 1 ? "" : "es", what);
}
