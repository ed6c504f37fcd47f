/* What the commands share: the tables of commands and options, files, modules, JSON Lines. */
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "frontend/cli/cmd.h"

const cli_command cli_commands[] = {
#define COMMAND(name, bit, operand, help) {#name, operand, help, bit},
#include "frontend/cli/commands.def"
    {NULL, NULL, NULL, 0},
};

/* Exactly the options of train are those of a training, and of the same kinds. */
#define TRAINS(kind, field, on)                                                                    \
    _Static_assert(((on) & ON_TRAIN) && F8_KIND_##kind == F8_TRAIN_KIND_##field,                   \
                   "the row " #field " in both options.def");
#define OWN(kind, field, on) _Static_assert(!((on) & ON_TRAIN), "train takes " #field);
#define OPTION(field, name, argument, kind, on, where, unused, help) where(kind, field, on)
#define OTHER_HELP(field, name, argument, on, help)
#include "frontend/cli/options.def"
#undef TRAINS
#undef OWN

#define ALSO , .also =
#define TRAINS(field) F8_TRAIN_AT_##field
#define OWN(field) -1
const cli_option cli_options[] = {
#define OPTION(field, names, arg, kind, commands, where, ways, text)                               \
    {.name = names,                                                                                \
     .argument = arg,                                                                              \
     .help = text,                                                                                 \
     .at = CLI_AT_##field,                                                                         \
     .on = commands,                                                                               \
     .trains = where(field),                                                                       \
     .unused = ways},
#define OTHER_HELP(field, names, arg, commands, text)
#include "frontend/cli/options.def"
#define OPTION(field, names, arg, kind, commands, where, ways, text)
#define OTHER_HELP(field, names, arg, commands, text)                                              \
    {.name = names,                                                                                \
     .argument = arg,                                                                              \
     .help = text,                                                                                 \
     .at = CLI_AT_##field,                                                                         \
     .on = commands,                                                                               \
     .trains = -1},
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

bool cli_is_package(const char *path)
{
    const size_t n = path ? strlen(path) : 0;
    return n > 4 && !strcmp(path + n - 4, ".f8x");
}

/* ---- messages ---- */

bool cli_error(const char *where, const char *format, ...)
{
    va_list args;
    fprintf(stderr, "%s%serror: ", where ? where : "", where ? ": " : "");
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    return false;
}

int cli_usage(const cli *c, const char *format, ...)
{
    va_list args;
    fprintf(stderr, "fp8c %s: ", c->command);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fprintf(stderr, "; see fp8c %s --help\n", c->command);
    return CLI_USAGE;
}

int cli_say(FILE *to, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const int n = to ? vfprintf(to, format, args) : 0;
    va_end(args);
    return n;
}

int cli_fail(const fp8c_context *ctx)
{
    if (!cli_interrupted())
        fprintf(stderr, "%s\n", fp8c_context_message(ctx));
    return CLI_FAILED;
}

bool cli_ok(const fp8c_context *ctx, fp8c_status status)
{
    return status == FP8C_OK || cli_fail(ctx) == CLI_DONE;
}

bool cli_done(const fp8c_context *ctx, fp8c_status status, const f8_diag *diag)
{
    if (status == FP8C_OK || diag->status == F8_OK)
        return cli_ok(ctx, status);
    return diag->status != F8_ERR_CANCELLED && cli_file_fail(diag);
}

bool cli_file_fail(const f8_diag *diag)
{
    return cli_error(diag->file, "%s", diag->text);
}

/* ---- contexts, modules and programs ---- */

fp8c_context *cli_context(void)
{
    fp8c_context *ctx;
    if (fp8c_context_create(cli_context_options(), &ctx) == FP8C_OK && cli_keep(ctx))
        return ctx;
    cli_error(NULL, "out of memory");
    fp8c_context_destroy(ctx);
    return NULL;
}

bool cli_lists(const char *list, const char *name)
{
    const size_t n = strlen(name);
    for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (strcspn(at, ",") == n && !strncmp(at, name, n))
            return true;
    return false;
}

int cli_read_recipes(cli *c)
{
    fp8c_context *ctx = cli_context();
    int code = ctx ? CLI_DONE : CLI_FAILED;
    for (size_t i = 0; i <= c->compare.n && code == CLI_DONE; i++) {
        const char **text = i ? &c->compare.text[i - 1] : &c->recipe;
        if (*text == f8_default_recipe)
            continue;
        if (fp8c_recipe_canonical(ctx, *text, c->canonical[i], sizeof c->canonical[i]) == FP8C_OK) {
            *text = c->canonical[i];
        } else {
            fprintf(stderr, "%s '%s': ", i ? "--compare" : "--recipe", *text);
            code = cli_fail(ctx);
        }
    }
    fp8c_context_destroy(ctx);
    return code;
}

/* ---- recipes ---- */

const char *cli_recipe(const cli *c, size_t index)
{
    return index ? c->compare.text[index - 1] : c->recipe;
}

int cli_recipe_width(const cli *c, int least)
{
    for (size_t i = 0; i <= c->compare.n; i++)
        least = (int)strlen(cli_recipe(c, i)) > least ? (int)strlen(cli_recipe(c, i)) : least;
    return least;
}

size_t cli_baseline(const cli *c)
{
    for (size_t i = 0; i <= c->compare.n; i++)
        if (!strcmp(cli_recipe(c, i), "bf16"))
            return i;
    return c->compare.n > 0;
}

int cli_write_file(void *file, const char *text, size_t size)
{
    return fwrite(text, 1, size, file) != size;
}

int cli_flush_stdout(int code)
{
    errno = 0;
    const bool failed = fflush(stdout) || ferror(stdout);
    if (failed && !errno && fputc('\n', stdout) != EOF)
        fflush(stdout); /* an earlier write failed: another one tells why */
    if (!failed || code != CLI_DONE)
        return code;
    cli_error(NULL, "stdout: %s", errno ? strerror(errno) : "not everything was written");
    return CLI_FAILED;
}

/* ---- JSON Lines ---- */

bool cli_json_open(cli_json *j, const char *path)
{
    *j = (cli_json){.path = path};
    if (!path)
        return true;
    j->file = strcmp(path, "-") ? fopen(path, "w") : stdout;
    return j->file || cli_error(path, "%s", strerror(errno));
}

void cli_json_record(cli_json *j, json_t *record)
{
    if (j->file && !j->failed) {
        errno = record ? 0 : ENOMEM;
        j->failed = !record || json_dumpf(record, j->file, JSON_COMPACT | JSON_PRESERVE_ORDER) ||
                    fputc('\n', j->file) == EOF || fflush(j->file);
        j->error = errno;
    }
    json_decref(record);
}

bool cli_json_close(cli_json *j)
{
    if (!j->file)
        return true;
    if ((j->file == stdout ? fflush(stdout) : fclose(j->file)) && !j->failed) {
        j->failed = true;
        j->error = errno;
    }
    j->file = NULL;
    return !j->failed || cli_error(j->path, "the JSON records could not be written: %s",
                                   j->error ? strerror(j->error) : "a value has no JSON form");
}

bool cli_json_to_stdout(const cli *c)
{
    return c->json && !strcmp(c->json, "-");
}

FILE *cli_table(const cli *c)
{
    return cli_json_to_stdout(c) ? NULL : stdout;
}

/* ---- files ---- */

void cli_text_open(cli_text *t, const char *path)
{
    struct stat s;
    /* a descriptor of this process, by whatever name, is written to, never replaced */
    const bool is_open = path && (!strncmp(path, "/dev/", 5) || !strncmp(path, "/proc/", 6));
    const bool to_stdout = !path || !strcmp(path, "-") || !strcmp(path, "/dev/stdout");
    *t = (cli_text){.path = to_stdout ? NULL : path};
    errno = 0; /* the first failed write sets it */
    if (!t->path) {
        t->to = stdout;
        return;
    }
    t->gathered = !is_open && (stat(path, &s) || S_ISREG(s.st_mode));
    t->to = t->gathered ? open_memstream(&t->bytes, &t->size) : fopen(path, "wb");
}

/* Finds a failed write, also an early one that fclose does not report. errno is that of the first
 * failure. */
static bool close_stream(FILE *to, bool close)
{
    const bool whole = to && !fflush(to) && !ferror(to);
    const int error = errno;
    const bool closed = !to || !close || !fclose(to);
    if (!whole)
        errno = error;
    return whole && closed;
}

bool cli_text_end(cli_text *t, bool wanted)
{
    f8_diag diag = {0};
    bool ok = close_stream(t->to, t->path != NULL);
    if (!ok)
        cli_error(t->path ? t->path : "stdout", "%s",
                  errno ? strerror(errno) : "not everything was written");
    else if (wanted && t->gathered)
        ok = f8_file_write(cli_temporaries(), t->path, t->bytes, t->size, false, &diag) == F8_OK ||
             cli_file_fail(&diag);
    free(t->bytes);
    *t = (cli_text){0};
    return ok;
}
