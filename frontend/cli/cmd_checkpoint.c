/* Checkpoints that are written: see cmd_checkpoint.h. */
#include "frontend/cli/cmd_checkpoint.h"

#include <inttypes.h>

bool cli_file_fail(const f8_diag *diag)
{
    fprintf(stderr, "%s%serror: %s\n", diag->file ? diag->file : "", diag->file ? ": " : "", diag->text);
    return false;
}

bool cli_checkpoint_save(const cli *c, const char *path, fp8c_program *program, const char *recipe)
{
    char steps[24], seed[24];
    f8_diag diag = {0};
    snprintf(steps, sizeof steps, "%" PRId64, c->steps);
    snprintf(seed, sizeof seed, "%" PRIu64, c->seed);
    const f8_st_pair more[] = {{"fp8c.recipe", recipe}, {"fp8c.steps", steps}, {"fp8c.seed", seed}};
    return f8_checkpoint_write(program, path, more, sizeof more / sizeof *more, &diag) == F8_OK ||
           cli_file_fail(&diag);
}
