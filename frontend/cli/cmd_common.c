/* What the commands share: the tables of commands and options, files, modules, JSON Lines. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "frontend/cli/cmd.h"
#include "frontend/train/data/stream.h"

const char cli_default_recipe[] = "bf16";

const cli_command cli_commands[] = {
#define COMMAND(name, bit, operand, help) {#name, operand, help, bit},
    CLI_COMMANDS(COMMAND)
#undef COMMAND
        {NULL, NULL, NULL, 0},
};

/* A row says how an option of train goes on and what ranks have of it, and of no other option. */
#define OPTION(field, name, argument, kind, on, sets, goes_on, ranks, unused, help)                \
    _Static_assert(((on) & ON_TRAIN) != 0                                                          \
                       ? (int)(goes_on) != NOT_TRAIN && (int)(ranks) != NOT_TRAIN                  \
                       : (int)(goes_on) == NOT_TRAIN && (int)(ranks) == NOT_TRAIN,                 \
                   "the columns of " #field " in options.def");
#define OTHER_HELP(field, name, argument, on, help)
#include "frontend/cli/options.def"
#undef OPTION
#undef OTHER_HELP

#define ALSO , .also =
const cli_option cli_options[] = {
#define OPTION(field, names, arg, kind, commands, sets, resume, between, ways, text)               \
    {.name = names,                                                                                \
     .argument = arg,                                                                              \
     .help = text,                                                                                 \
     .at = CLI_AT_##field,                                                                         \
     .on = commands,                                                                               \
     .goes_on = resume,                                                                            \
     .ranks = between,                                                                             \
     .unused = ways},
#define OTHER_HELP(field, names, arg, commands, text)
#include "frontend/cli/options.def"
#undef OPTION
#undef OTHER_HELP
#define OPTION(field, names, arg, kind, commands, sets, resume, between, ways, text)
#define OTHER_HELP(field, names, arg, commands, text)                                              \
    {.name = names, .argument = arg, .help = text, .at = CLI_AT_##field, .on = commands},
#include "frontend/cli/options.def"
#undef OPTION
#undef OTHER_HELP
    {.name = NULL},
};

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
        cli_names(FP8C_NAME_RECIPE, "", cli_default_recipe, names);
    snprintf(buf, CLI_HELP_TEXT, option->help, names);
    return buf;
}

char *cli_read_file(const char *path, size_t *size)
{
    char *text;
    f8_diag diag = {0};
    if (f8_stream_read(path, &text, size, &diag) != F8_OK)
        cli_file_fail(&diag);
    return text;
}

int cli_fail(const fp8c_context *ctx)
{
    if (!cli_interrupted())
        fprintf(stderr, "%s\n", fp8c_context_message(ctx));
    return CLI_FAILED;
}

fp8c_context *cli_context(void)
{
    fp8c_context *ctx;
    if (fp8c_context_create(cli_context_options(), &ctx) == FP8C_OK && cli_keep(ctx))
        return ctx;
    fprintf(stderr, "error: out of memory\n");
    fp8c_context_destroy(ctx);
    return NULL;
}

int cli_read_recipes(cli *c)
{
    fp8c_context *ctx = cli_context();
    int code = ctx ? CLI_DONE : CLI_FAILED;
    for (size_t i = 0; i <= c->compare.n && code == CLI_DONE; i++) {
        const char **text = i ? &c->compare.text[i - 1] : &c->recipe;
        if (*text == cli_default_recipe)
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

static fp8c_status add_rules(const cli *c, fp8c_module *module)
{
    for (size_t i = 0; i < c->rules.n; i++) {
        const fp8c_status status = fp8c_module_rule(module, c->rules.text[i], "--rule");
        if (status != FP8C_OK)
            return status;
    }
    return fp8c_module_check(module);
}

static bool needs_steps; /* the module that was loaded does */

/* The dims of -D, and this rank's part of one, which wins. Returns how many. */
static size_t dims_of(const cli *c, fp8c_dim out[CLI_MAX_DIMS + 1])
{
    size_t n = 0;
    for (size_t i = 0; i < c->dims.n; i++)
        if (!c->part.name || strcmp(c->dims.dim[i].name, c->part.name))
            out[n++] = c->dims.dim[i];
    if (c->part.name)
        out[n++] = c->part;
    return n;
}

bool cli_load(const cli *c, fp8c_context **ctx, fp8c_module **module)
{
    fp8c_dim dim[CLI_MAX_DIMS + 1];
    const size_t n = dims_of(c, dim);
    *ctx = NULL;
    *module = NULL;
    size_t size;
    char *text = cli_read_file(c->file, &size);
    if (!text)
        return false;
    *ctx = cli_context();
    bool ok = *ctx != NULL;
    if (ok && (fp8c_module_parse(*ctx, text, size, c->file, dim, n, module) != FP8C_OK ||
               add_rules(c, *module) != FP8C_OK)) {
        cli_fail(*ctx);
        fp8c_module_destroy(*module);
        fp8c_context_destroy(*ctx);
        *module = NULL;
        *ctx = NULL;
        ok = false;
    }
    fp8c_module_info info = {.struct_size = sizeof info};
    if (ok)
        fp8c_module_report(*module, &info);
    needs_steps = info.needs_steps;
    free(text);
    return ok;
}

void cli_note_steps(const cli *c)
{
    if (needs_steps && !c->steps)
        fprintf(
            stderr,
            "fp8c: warning: the optimizer's schedule has no `steps`: it gets %d; --steps N gives "
            "it others\n",
            CLI_STEPS);
}

fp8c_compile_options cli_compile_options(const cli *c, const char *recipe)
{
    fp8c_compile_options options = {.struct_size = sizeof options, .recipe = recipe};
#define SETS(field) options.field = c->field;
#define SETS_MEMORY(field)                                                                         \
    options.memory_bytes = c->field.bytes;                                                         \
    options.memory_share = c->field.share;
#define SETS_RANKS(field) options.ranks = c->field;
#define SETS_STEPS(field)                                                                          \
    options.optimizer_steps = c->field ? c->field : needs_steps ? CLI_STEPS : 0;
#define SETS_NOTHING(field)
#define OPTION(field, name, argument, kind, on, sets, goes_on, ranks, unused, help) sets(field)
#define OTHER_HELP(field, name, argument, on, help)
#include "frontend/cli/options.def"
#undef OPTION
#undef OTHER_HELP
    return options;
}

fp8c_compile_options cli_listing_options(const cli *c, const char *recipe)
{
    fp8c_compile_options options = cli_compile_options(c, recipe);
    options.no_device = 1;
    return options;
}

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

const char *cli_type(const fp8c_type *type, char text[CLI_TYPE_TEXT])
{
    int n = snprintf(text, CLI_TYPE_TEXT, "%s[", fp8c_name(FP8C_NAME_DTYPE, type->dtype));
    for (int i = 0; i < type->rank && n < CLI_TYPE_TEXT; i++)
        n += snprintf(text + n, (size_t)(CLI_TYPE_TEXT - n), "%s%" PRId64, i ? ", " : "",
                      type->dim[i]);
    if (n < CLI_TYPE_TEXT)
        snprintf(text + n, (size_t)(CLI_TYPE_TEXT - n), "]");
    return text;
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
    fprintf(stderr, "error: stdout: %s\n", errno ? strerror(errno) : "not everything was written");
    return CLI_FAILED;
}

/* ---- JSON Lines ---- */

bool cli_json_open(cli_json *j, const char *path)
{
    *j = (cli_json){.path = path};
    if (!path)
        return true;
    j->file = strcmp(path, "-") ? fopen(path, "w") : stdout;
    if (!j->file)
        fprintf(stderr, "%s: error: %s\n", path, strerror(errno));
    return j->file != NULL;
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
    if (j->failed)
        fprintf(stderr, "%s: error: the JSON records could not be written: %s\n", j->path,
                j->error ? strerror(j->error) : "a value has no JSON form");
    return !j->failed;
}

bool cli_json_to_stdout(const cli *c)
{
    return c->json && !strcmp(c->json, "-");
}

json_t *cli_json_number(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

/* ---- files ---- */

bool cli_file_fail(const f8_diag *diag)
{
    fprintf(stderr, "%s%serror: %s\n", diag->file ? diag->file : "", diag->file ? ": " : "",
            diag->text);
    return false;
}

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
        fprintf(stderr, "%s: error: %s\n", t->path ? t->path : "stdout",
                errno ? strerror(errno) : "not everything was written");
    else if (wanted && t->gathered)
        ok = f8_file_write(cli_temporaries(), t->path, t->bytes, t->size, false, &diag) == F8_OK ||
             cli_file_fail(&diag);
    free(t->bytes);
    *t = (cli_text){0};
    return ok;
}
