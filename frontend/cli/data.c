/* The data of a command: see data.h. */
#include "frontend/cli/data.h"

#include <stdlib.h>

bool cli_data_given(const cli *c)
{
    return c->data.n || c->batches.n;
}

static bool interrupted(void *user)
{
    (void)user;
    return cli_interrupted();
}

static bool ranks_stop(void *ranks)
{
    return cli_ranks_stop(ranks);
}

static f8_data_options options_of(const cli *c)
{
    f8_data_options o = f8_train_data_options(&c->train, c->ranks);
    o.stop = (f8_stop){interrupted, NULL};
    o.stop_together = (f8_stop){ranks_stop, c->ranks};
    o.model = c->file;
    o.needs = c->command;
    return o;
}

/* Prints a failure. Of a signal nothing is said here: cli_settle does. */
static bool done(f8_status status, const f8_diag *diag)
{
    return status == F8_OK || (status != F8_ERR_CANCELLED && cli_file_fail(diag));
}

bool cli_data_open(f8_data *d, const cli *c)
{
    f8_diag diag = {0};
    const f8_data_options options = options_of(c);
    return done(f8_data_open(d, &options, &diag), &diag);
}

bool cli_data_fit(f8_data *d, const fp8c_module *module, const fp8c_program *program, int function)
{
    f8_diag diag = {0};
    return done(f8_data_fit(d, module, program, function, &diag), &diag);
}

bool cli_data_fill(f8_data *d, fp8c_program *program, int function, uint64_t seed, uint64_t batch)
{
    f8_diag diag = {0};
    return done(f8_data_fill(d, program, function, seed, batch, &diag), &diag);
}

fp8c_status cli_data_held_out(f8_data *d, fp8c_program *program, int eval, double *loss,
                              int64_t *batches)
{
    f8_diag diag = {0};
    const fp8c_status status = f8_data_held_out(d, program, eval, loss, batches, &diag);
    done(diag.status, &diag);
    return status;
}
