/* What is said on stderr and printed in tables: no text has control characters. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>

#include "frontend/cli/cli.h"
#include "ir/base/text.h"

int cli_say(FILE *to, const char *format, ...)
{
    char *text = NULL;
    va_list args;
    va_start(args, format);
    int n = to ? vasprintf(&text, format, args) : 0;
    va_end(args);
    if (n > 0) {
        f8_text_make_plain(text);
        n = fputs(text, to) < 0 ? -1 : n;
    }
    free(text);
    return n;
}

bool cli_error(const char *where, const char *format, ...)
{
    char *text = NULL;
    va_list args;
    va_start(args, format);
    if (vasprintf(&text, format, args) >= 0)
        cli_message("%s%serror: %s", where ? where : "", where ? ": " : "", text);
    va_end(args);
    free(text);
    return false;
}

int cli_usage(const cli *c, const char *format, ...)
{
    char *text = NULL;
    va_list args;
    va_start(args, format);
    if (vasprintf(&text, format, args) >= 0)
        cli_message("fp8c %s: %s; see fp8c %s --help", c->command, text, c->command);
    va_end(args);
    free(text);
    return CLI_USAGE;
}

void cli_message(const char *format, ...)
{
    char *text = NULL;
    va_list args;
    va_start(args, format);
    if (vasprintf(&text, format, args) >= 0)
        cli_say(stderr, "%s\n", text);
    va_end(args);
    free(text);
}

bool cli_file_fail(const f8_diag *diag)
{
    if (!diag->file || !diag->loc.line)
        return cli_error(diag->file, "%s", diag->text);
    cli_message("%s:%" PRIu32 ":%" PRIu32 ": error: %s", diag->file, diag->loc.line,
                diag->loc.column, diag->text);
    return false;
}
