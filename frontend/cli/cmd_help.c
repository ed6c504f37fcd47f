/* fp8c help: the tables of commands and options as data, and as people read them. */
#include <string.h>

#include "frontend/cli/cmd.h"

const cli_command cli_commands[] = {
#define COMMAND(name, bit, operand, help) {#name, operand, help, bit, cmd_##name},
    CLI_COMMANDS(COMMAND)
#undef COMMAND
        {NULL, NULL, NULL, 0, NULL},
};

const cli_option cli_options[] = {
#define OPTION(field, name, argument, kind, on, help) {name, argument, help, on},
    CLI_OPTIONS(OPTION) CLI_MORE_OPTIONS(OPTION)
#undef OPTION
        {NULL, NULL, NULL, 0},
};

const cli_command *cli_find_command(const char *name)
{
    for (const cli_command *c = cli_commands; c->name; c++)
        if (!strcmp(c->name, name))
            return c;
    return NULL;
}

const char *cli_names(const char *(*name)(int index), const char *start, const char *usual,
                      char buf[CLI_HELP_TEXT])
{
    const char *before = NULL;
    size_t n = 0;
    for (int i = 0, more = 1; more && n < CLI_HELP_TEXT; i++) {
        const char *next = name(i);
        more = next != NULL;
        if (more && strncmp(next, start, strlen(start)))
            continue;
        if (before)
            n += (size_t)snprintf(buf + n, CLI_HELP_TEXT - n, "%s%s%s",
                                  !n ? "" : more ? ", " : " or ", before,
                                  usual && !strcmp(before, usual) ? " (default)" : "");
        before = next;
    }
    return buf;
}

const char *cli_option_help(const cli_option *option, char buf[CLI_HELP_TEXT])
{
    char names[CLI_HELP_TEXT] = "";
    if (!option->argument || !strstr(option->help, "%s"))
        return option->help;
    if (!strcmp(option->argument, "TARGET"))
        cli_names(fp8c_target_name, "sm_", NULL, names);
    else
        cli_names(fp8c_recipe_name, "", cli_default_recipe, names);
    snprintf(buf, CLI_HELP_TEXT, option->help, names);
    return buf;
}

void cli_help(FILE *to)
{
    int width = 0;
    for (const cli_command *c = cli_commands; c->name; c++)
        width = (int)strlen(c->name) > width ? (int)strlen(c->name) : width;
    fputs("usage: fp8c COMMAND [FILE.f8] [OPTION ...]\n\n", to);
    for (const cli_command *c = cli_commands; c->name; c++)
        fprintf(to, "  %-*s  %s\n", width, c->name, c->help);
    fputs("\n`fp8c COMMAND --help` lists its options. `fp8c --version` prints the version.\n", to);
}

void cli_help_command(const cli_command *command)
{
    int width = 0;
    printf("usage: fp8c %s%s%s [OPTION ...]\n%s\n\n", command->name, command->operand ? " " : "",
           command->operand ? command->operand : "", command->help);
    for (const cli_option *o = cli_options; o->name; o++) {
        const int n = (int)strlen(o->name) + (o->argument ? 1 + (int)strlen(o->argument) : 0);
        if (o->on & command->bit && n > width)
            width = n;
    }
    for (const cli_option *o = cli_options; o->name; o++) {
        char left[40], help[CLI_HELP_TEXT];
        if (!(o->on & command->bit))
            continue;
        snprintf(left, sizeof left, "%s%s%s", o->name, o->argument ? " " : "",
                 o->argument ? o->argument : "");
        printf("  %-*s  %s\n", width, left, cli_option_help(o, help));
    }
}

int cmd_help(const cli *c)
{
    if (c->man)
        return cli_man();
    if (!c->file) {
        cli_help(stdout);
        return CLI_DONE;
    }
    const cli_command *command = cli_find_command(c->file);
    if (!command) {
        fprintf(stderr, "fp8c help: no such command '%s'; see fp8c help\n", c->file);
        return CLI_USAGE;
    }
    cli_help_command(command);
    return CLI_DONE;
}
