/* The tables of commands and options as data, and texts made from them. */
#include <stdarg.h>
#include <string.h>

#include "frontend/cli/cli.h"
#include "ir/base/suggest.h"

const cli_command cli_commands[] = {
#define COMMAND(name, bit, operand, help) {#name, operand, help, bit},
#include "frontend/cli/commands.def"
    {NULL, NULL, NULL, 0},
};

/* Exactly the options of train are those of a training, of the same kinds, and alike refused
 * without a folder. */
#define TRAINS(kind, field, on, unused)                                                            \
    _Static_assert(((on) & ON_TRAIN) && F8_KIND_##kind == F8_TRAIN_KIND_##field &&                 \
                       !((unused) & NO_FOLDER) == !F8_TRAIN_FOLDER_##field,                        \
                   "the row " #field " in both options.def");
#define OWN(kind, field, on, unused) _Static_assert(!((on) & ON_TRAIN), "train takes " #field);
#define OPTION(field, name, argument, kind, on, where, unused, help) where(kind, field, on, unused)
#define OTHER_HELP(field, name, argument, on, help)
#include "frontend/cli/options.def"
#undef TRAINS
#undef OWN

#define ALSO , .also =
#define TRAINS(field) F8_TRAIN_AT_##field
#define OWN(field) -1
const cli_option cli_options[] = {
#define OPTION(field, names, arg, kind, commands, where, ways, text)                               \
    {arg, text, CLI_AT_##field, commands, where(field), ways, .name = names},
#define OTHER_HELP(field, names, arg, commands, text)                                              \
    {arg, text, CLI_AT_##field, commands, -1, USED, .name = names},
#include "frontend/cli/options.def"
    {.name = NULL},
};
#undef TRAINS
#undef OWN

const cli_command *cli_find_command(const char *name)
{
    for (const cli_command *c = cli_commands; c->name; c++)
        if (!strcmp(c->name, name))
            return c;
    return NULL;
}

static const char *command_name(const void *user, size_t i)
{
    (void)user;
    return cli_commands[i].name;
}

const char *cli_suggest_command(const char *name, char *buf, size_t size)
{
    return f8_suggest(name, strlen(name), command_name, NULL,
                      sizeof cli_commands / sizeof *cli_commands, "", buf, size);
}

const char *cli_names(fp8c_name_kind kind, const char *start, const char *usual,
                      char buf[CLI_HELP_TEXT])
{
    const char *before = NULL;
    size_t n = 0;
    for (int i = 0, more = 1; more && n < CLI_HELP_TEXT; i++) {
        const char *next = fp8c_name(kind, i);
        more = next != NULL;
        if (more && strncmp(next, start, strlen(start)))
            continue;
        if (before)
            n += (size_t)snprintf(buf + n, CLI_HELP_TEXT - n, "%s%s%s",
                                  !n     ? ""
                                  : more ? ", "
                                         : " or ",
                                  before, usual && !strcmp(before, usual) ? " (default)" : "");
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
        cli_names(FP8C_NAME_TARGET, "sm_", NULL, names);
    else
        cli_names(FP8C_NAME_RECIPE, "", f8_default_recipe, names);
    snprintf(buf, CLI_HELP_TEXT, option->help, names);
    return buf;
}

/* The text that replaces a character; NULL: none does. */
static const char *escaped(const cli_escapes *e, char c)
{
    for (int i = 0; i < CLI_ESCAPES && e->of[i]; i++)
        if (*e->of[i] == c)
            return e->of[i] + 1;
    return NULL;
}

void cli_put(const cli_escapes *e, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    for (; *format; format++) {
        const char *s = *format == '%' ? va_arg(args, const char *) : NULL;
        if (!s)
            putchar(*format);
        else if (e->first && *s && strchr(e->first, *s))
            fputs("\\&", stdout);
        for (; s && *s; s++) {
            const char *as = escaped(e, *s);
            if (as)
                fputs(as, stdout);
            else
                putchar(*s);
        }
    }
    va_end(args);
}

const cli_option *cli_next_option(const cli_option *o, int bit)
{
    for (o = o ? o + 1 : cli_options; o->name; o++)
        if (o->on & bit)
            return o;
    return NULL;
}
