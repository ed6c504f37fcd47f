/* fp8c: parses the command line by the tables in cli.h and runs the command. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/cli/cli.h"
#include "frontend/checkpoint/tensor_file.h"
#include "ir/base/suggest.h"

/* ---- values of options: false if the text is not such a value ---- */

static bool set_TEXT(f8_option_TEXT *to, const char *text)
{
    *to = text;
    return *text != 0;
}

static bool set_TOKENS(f8_option_TOKENS *to, const char *text)
{
    *to = text;
    return !strcmp(text, "u16") || !strcmp(text, "u32") || !strcmp(text, "bytes");
}

/* Whether a list takes one more. If not, errno says so (E2BIG): what was given may be right. */
static bool has_room(size_t n, size_t most)
{
    if (n < most)
        return true;
    errno = E2BIG;
    return false;
}

/* Lists of texts that are not empty. */
#define LIST(kind, most)                                                                           \
    static bool set_##kind(f8_option_##kind *to, const char *text)                                 \
    {                                                                                              \
        return *text && has_room(to->n, most) && (to->text[to->n++] = text);                       \
    }
LIST(RECIPES, F8_MOST_RECIPES)
LIST(TEXTS, F8_MOST_TEXTS)

static bool set_PATTERNS(f8_option_PATTERNS *to, const char *text)
{
    return f8_train_patterns_add(to, text);
}

static bool set_TENSORS(f8_option_TENSORS *to, const char *text)
{
    f8_tensor_file f;
    const bool ok = f8_tensor_file_parse(text, &f);
    f8_tensor_file_free(&f);
    return ok && set_TEXTS(to, text);
}

static bool integer(const char *text, int64_t least, int64_t most, int64_t *to)
{
    char *end;
    errno = 0;
    *to = strtoll(text, &end, 10);
    return !errno && end != text && !*end && *to >= least && *to <= most;
}

#define INTEGER(kind, least, most)                                                                 \
    static bool set_##kind(f8_option_##kind *to, const char *text)                                 \
    {                                                                                              \
        int64_t n;                                                                                 \
        const bool ok = integer(text, least, most, &n);                                            \
        *to = (f8_option_##kind)n;                                                                 \
        return ok;                                                                                 \
    }
INTEGER(COUNT, 1, INT64_MAX)
INTEGER(THREADS, 1, F8_MOST_THREADS)
INTEGER(RANKS, 1, F8_MAX_RANKS)
INTEGER(ORDINAL, 0, INT32_MAX)
INTEGER(SEED, *text == '-', INT64_MAX) /* JSON writes it signed; -0 is none */

static bool set_STAGE(f8_option_STAGE *to, const char *text)
{
    *to = text[0] == '0' ? -1 : text[0] - '0';
    return text[0] >= '0' && text[0] <= '3' && !text[1];
}

static bool set_PERIOD(f8_option_PERIOD *to, const char *text)
{
    const bool ok = set_ORDINAL(to, text);
    *to = *to ? *to : -1;
    return ok;
}

static bool set_ROWS(f8_option_ROWS *to, const char *text)
{
    const bool all = !strcmp(text, "all"), ok = all || (set_ORDINAL(to, text) && *to > 0);
    *to = all ? -1 : *to;
    return ok;
}

static bool set_NUMBER(f8_option_NUMBER *to, const char *text)
{
    char *end;
    errno = 0;
    *to = strtod(text, &end);
    return !errno && end != text && !*end && *to > 0 && *to < 1e30;
}

/* The exponent of a size's unit: K, M, G or T, each alone or with B or iB, is 2^10, 2^20, ...
 * Returns 0 without a unit, -1 if the text is not a unit. */
static int binary_unit(const char *text)
{
    static const char units[] = "KMGT";
    const char *at = *text ? strchr(units, *text) : NULL;
    if (!*text)
        return 0;
    return at && (!text[1] || !strcmp(text + 1, "B") || !strcmp(text + 1, "iB"))
               ? 10 * (int)(at - units + 1)
               : -1;
}

/* A number of bytes, with or without a unit. Below 1 and without a unit it is a share. 1.0 is an
 * error: whoever writes it does not mean one byte. */
static bool set_MEMORY(f8_option_MEMORY *to, const char *text)
{
    char *end;
    errno = 0;
    const double x = strtod(text, &end);
    const int shift = binary_unit(end);
    const double bytes = x * (double)(1ll << (shift > 0 ? shift : 0));
    const bool number =
        !errno && end != text && shift >= 0 && (*text == '.' || (*text >= '0' && *text <= '9'));
    const bool dotted = memchr(text, '.', (size_t)(end - text)) != NULL,
               share = shift == 0 && x < 1,
               whole = bytes >= 1 && bytes <= 1e18 &&
                       (shift || (bytes == (double)(int64_t)bytes && !dotted));
    *to = (f8_option_MEMORY){share ? 0 : whole ? (int64_t)bytes : 0, share ? x : 0};
    return number && x > 0 && (share || whole);
}

/* Keeps the list in descending order, each share once. */
static void add_share(f8_option_SHARES *to, double share)
{
    size_t at = 0;
    while (at < to->n && to->share[at] > share)
        at++;
    if (at < to->n && to->share[at] == share)
        return;
    memmove(to->share + at + 1, to->share + at, (to->n++ - at) * sizeof share);
    to->share[at] = share;
}

static bool set_SHARES(f8_option_SHARES *to, const char *text)
{
    for (char *end;; text = end + 1) {
        errno = 0;
        const double x = strtod(text, &end);
        if (errno || end == text || strspn(text, "0123456789.") != (size_t)(end - text) ||
            !(x > 0 && x < 1) || !has_room(to->n, CLI_MAX_SHARES))
            return false;
        add_share(to, x);
        if (!*end)
            return true;
        if (*end != ',')
            return false;
    }
}

static bool set_FLAG(f8_option_FLAG *to, const char *text)
{
    (void)text;
    return *to = true;
}

static bool set_LEVEL(f8_option_LEVEL *to, const char *text)
{
    (void)text;
    *to += *to < FP8C_LOG_DEBUG;
    return true;
}

/* NAME=N. Ends the name in argv with a NUL. */
static bool set_DIM(f8_option_DIM *to, char *text)
{
    char *equals = strchr(text, '='), *end;
    if (!equals || equals == text || !has_room(to->n, F8_MOST_DIMS))
        return false;
    errno = 0;
    const int64_t value = strtoll(equals + 1, &end, 10);
    if (errno || end == equals + 1 || *end)
        return false;
    *equals = 0;
    to->dim[to->n++] = (fp8c_dim){text, value};
    return true;
}

#define set_RULE set_TEXTS

static bool set_option(cli *c, int at, char *text)
{
    switch (at) {
#define OPTION(field, name, argument, kind, on, where, unused, help)                               \
    case CLI_AT_##field: return set_##kind(&c->field, text);
#define OTHER_HELP(field, name, argument, on, help)
#include "frontend/cli/options.def"
    default: return false;
    }
}

/* What a value of the option is. */
static const char *expected(int at)
{
    static const int kind_of[] = {
#define OPTION(field, name, argument, kind, on, where, unused, help) F8_KIND_##kind,
#define OTHER_HELP(field, name, argument, on, help)
#include "frontend/cli/options.def"
    };
    return f8_option_expected[kind_of[at]];
}

/* ---- parsing ---- */

/* What a word has behind the name of an option: "", "=VALUE", or of a short option with an argument
 * VALUE. NULL: the word is another option, or there is no such name. */
static char *behind(char *word, const char *name, bool argument)
{
    const size_t n = name ? strlen(name) : 0;
    if (!name || strncmp(word, name, n))
        return NULL;
    const bool is_short = name[1] != '-';
    return !word[n] || (argument && (word[n] == '=' || is_short)) ? word + n : NULL;
}

/* Gives the option its value: the rest of the word, or the next word, to which *i moves then. */
static int take_value(cli *c, const cli_option *o, const char *name, char *rest, char **argv,
                      int argc, int *i)
{
    if (o->argument && !*rest && *i + 1 >= argc)
        return cli_usage(c, "an argument is missing for '%s'", name);
    char *value = !o->argument ? argv[*i] : !*rest ? argv[++*i] : rest + (*rest == '=');
    c->given[o->at] = name;
    if (o->trains >= 0)
        c->train.given[o->trains] = true;
    errno = 0;
    if (set_option(c, o->at, value))
        return CLI_DONE;
    if (errno == E2BIG)
        return cli_usage(c, "one too many for %s: '%s'", name, value);
    return cli_usage(c, "bad value for %s: '%s', which is not %s", name, value, expected(o->at));
}

static const char *option_name(const void *bit, size_t i)
{
    return cli_options[i].on & *(const int *)bit ? cli_options[i].name : NULL;
}

static int no_option(const cli *c, int bit, const char *word)
{
    char hint[80] = ": write --rule 'layers FIRST, LAST = bf16'"; /* older versions had one */
    if (strncmp(word, "--bf16-layers", 13))
        f8_suggest(word, strcspn(word, "="), option_name, &bit, CLI_N_OPTIONS, "", hint,
                   sizeof hint);
    return cli_usage(c, "no such option '%s'%s", word, hint);
}

/* Reads one option at argv[*i]. Moves *i to its argument, if that is a word of its own. */
static int parse_option(cli *c, int bit, char **argv, int argc, int *i)
{
    char *word = argv[*i], *rest;
    for (const cli_option *o = NULL; (o = cli_next_option(o, bit));) {
        if ((rest = behind(word, o->name, o->argument)))
            return take_value(c, o, o->name, rest, argv, argc, i);
        if ((rest = behind(word, o->also, o->argument)))
            return take_value(c, o, o->also, rest, argv, argc, i);
    }
    return no_option(c, bit, word);
}

static int parse_command(cli *c, const cli_command *command, char **argv, int argc)
{
    c->command = command->name;
    for (int i = 2; i < argc; i++) {
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
            cli_help_command(command);
            return -1;
        }
        if (argv[i][0] == '-' && argv[i][1]) {
            const int status = parse_option(c, command->bit, argv, argc, &i);
            if (status != CLI_DONE)
                return status;
        } else if (!command->operand) {
            return cli_usage(c, "this command takes no file, but is given '%s'", argv[i]);
        } else if (c->file && !strstr(command->operand, "...")) {
            return cli_usage(c, "this command takes one file, but is also given '%s'", argv[i]);
        } else if (!set_TEXTS(&c->files, argv[i])) {
            return cli_usage(c, "this is one too many, or no name at all: '%s'", argv[i]);
        } else {
            c->file = c->files.text[0];
        }
    }
    if (!c->file && command->operand && *command->operand != '[')
        return cli_usage(c, "an argument is missing: '%s'", command->operand);
    if (cli_refuses_unused(c, command->bit))
        return CLI_USAGE;
    if (!(command->bit & (ON_ALL | ON_TUNE)))
        return CLI_DONE;
    const bool compiles = !(command->bit & (ON_CHECK | ON_PRINT)) || c->print_after;
    if (compiles && c->rules.n && c->recipe == f8_default_recipe && !c->compare.n && !c->resume)
        return cli_usage(c,
                         "the default recipe, bf16, overrides all rules: give --recipe with '%s'",
                         c->given[CLI_AT_rules]);
    return cli_read_recipes(c);
}

static int run(const cli *c, int bit)
{
    switch (bit) {
#define COMMAND(name, bit, operand, help)                                                          \
    case bit: return cmd_##name(c);
#include "frontend/cli/commands.def"
    default: return CLI_USAGE;
    }
}

int main(int argc, char **argv)
{
    cli_signals();
    if (argc < 2) {
        cli_help(stderr);
        return CLI_USAGE;
    }
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h")) {
        cli_help(stdout);
        return cli_flush_stdout(CLI_DONE);
    }
    if (!strcmp(argv[1], "--version")) {
        printf("fp8c %s\n", fp8c_version());
        return cli_flush_stdout(CLI_DONE);
    }
    const cli_command *command = cli_find_command(argv[1]);
    if (!command) {
        char hint[80];
        cli_message("fp8c: no such command '%s'%s; see fp8c --help", argv[1],
                    cli_suggest_command(argv[1], hint, sizeof hint));
        return CLI_USAGE;
    }
    cli c = {.recipe = f8_default_recipe, .seed = 1, .seeds = 1};
    int status = parse_command(&c, command, argv, argc);
    if (status == CLI_DONE) {
        cli_watch(c.verbose, !cli_json_to_stdout(&c));
        status = run(&c, command->bit);
    }
    return cli_flush_stdout(cli_settle(status < 0 ? CLI_DONE : status));
}
