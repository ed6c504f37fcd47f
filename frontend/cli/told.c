/* What the command does when something happens in a training: see told.h. */
#include "frontend/cli/told.h"

#include <unistd.h>

static void say(void *user, const char *text)
{
    (void)user;
    if (isatty(STDERR_FILENO)) /* it may have a bar */
        fputs("\r\033[K", stderr);
    cli_message("%s", text);
}

static void failed(void *user, f8_status status, const char *text)
{
    (void)status;
    say(user, text);
}

static bool record(void *user, json_t *what)
{
    cli_json *json = user;
    if (json)
        cli_json_record(json, what);
    else
        json_decref(what);
    return !json || !json->failed;
}

int32_t cli_stopped(void *user)
{
    (void)user;
    return cli_interrupted();
}

static fp8c_context *context(void *user)
{
    (void)user;
    return cli_context();
}

f8_train cli_told(const cli *c, cli_json *json)
{
    return (f8_train){.options = (f8_train_options *)(uintptr_t)&c->train,
                      .call = {json, failed, say, record, cli_stopped, context},
                      .who = "fp8c train",
                      .file = c->file,
                      .part = c->part,
                      .ranks = c->ranks,
                      .list = cli_temporaries()};
}
