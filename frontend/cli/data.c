/* The data of a command: see data.h. */
#include "frontend/cli/data.h"

bool cli_data_given(const cli *c)
{
    return c->data.n || c->batches.n;
}

static bool interrupted(void *c)
{
    (void)c;
    return cli_interrupted();
}

static bool ranks_stop(void *c)
{
    return cli_ranks_stop(c);
}

static f8_data_options options_of(const cli *c)
{
    f8_data_options o = f8_train_data_options(&c->train, c->ranks);
    o.stop = (f8_stop){interrupted, NULL};
    o.stop_together = (f8_stop){ranks_stop, (void *)(uintptr_t)c};
    o.model = c->file;
    o.needs = c->command;
    return o;
}

bool cli_data_open(f8_data *d, const cli *c)
{
    f8_diag diag = {0};
    const f8_data_options options = options_of(c);
    const f8_status status = f8_data_open(d, &options, &diag);
    return status == F8_OK || (status != F8_ERR_CANCELLED && cli_file_fail(&diag));
}
