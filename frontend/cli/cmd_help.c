/* fp8c help: the tables of commands and options as people read them. */
#include <string.h>

#include "frontend/cli/cli.h"

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

enum { LEFT = 48 };

/* "-v, --verbose", "--steps N". */
static const char *left(const cli_option *o, char text[LEFT])
{
    snprintf(text, LEFT, "%s%s%s%s%s", o->name, o->also ? ", " : "", o->also ? o->also : "",
             o->argument ? " " : "", o->argument ? o->argument : "");
    return text;
}

void cli_help_command(const cli_command *command)
{
    int width = 0;
    char text[LEFT], help[CLI_HELP_TEXT];
    printf("usage: fp8c %s%s%s [OPTION ...]\n%s\n\n", command->name, command->operand ? " " : "",
           command->operand ? command->operand : "", command->help);
    for (const cli_option *o = NULL; (o = cli_next_option(o, command->bit));) {
        const int n = (int)strlen(left(o, text));
        width = n > width ? n : width;
    }
    for (const cli_option *o = NULL; (o = cli_next_option(o, command->bit));)
        printf("  %-*s  %s\n", width, left(o, text), cli_option_help(o, help));
}

int cmd_help(const cli *c)
{
    if (c->man)
        return cli_man();
    if (!c->file) {
        cli_help(stdout);
        return CLI_DONE;
    }
    char hint[80];
    const cli_command *command = cli_find_command(c->file);
    if (!command) {
        cli_message("fp8c help: no such command '%s'%s; see fp8c help", c->file,
                    cli_suggest_command(c->file, hint, sizeof hint));
        return CLI_USAGE;
    }
    cli_help_command(command);
    return CLI_DONE;
}
