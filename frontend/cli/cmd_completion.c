/* fp8c completion: the completion scripts of bash, zsh and fish, made from the tables of commands
 * and options. All shells offer the same words for an argument; only the syntax differs. */
#include <string.h>

#include "frontend/cli/cli.h"

/* ---- what an argument may be ---- */

typedef enum values { NO_VALUES, FILES, WORDS } values;

enum { COMMANDS = -1 };

/* kind: of fp8c_name, or COMMANDS. */
static values words_of(int kind, char *words, size_t size)
{
    size_t n = 0;
    const char *name;
    *words = 0;
    for (int i = 0; n < size; i++) {
        name = kind == COMMANDS ? cli_commands[i].name : fp8c_name((fp8c_name_kind)kind, i);
        if (!name)
            break;
        n += (size_t)snprintf(words + n, size - n, "%s%s", i ? " " : "", name);
    }
    return WORDS;
}

/* What may stand for an argument, by its name in the help. For WORDS, `words` gets the words with a
 * space between two. */
static values values_of(const char *argument, char *words, size_t size)
{
    if (!argument)
        return NO_VALUES;
    if (!strncmp(argument + (*argument == '['), "FILE", 4) || !strcmp(argument, "NAME=FILE") ||
        !strncmp(argument, "DIR", 3))
        return FILES;
    if (!strcmp(argument, "RECIPE"))
        return words_of(FP8C_NAME_RECIPE, words, size);
    if (!strncmp(argument, "TARGET", 6))
        return words_of(FP8C_NAME_TARGET, words, size);
    if (!strcmp(argument, "PASS"))
        return words_of(FP8C_NAME_PASS, words, size);
    if (!strcmp(argument, "[COMMAND]"))
        return words_of(COMMANDS, words, size);
    if (!strcmp(argument, "[OP]"))
        return words_of(FP8C_NAME_OP, words, size);
    if (!strcmp(argument, "SHELL"))
        return snprintf(words, size, "bash zsh fish"), WORDS;
    return NO_VALUES;
}

enum { WORDS_ROOM = 1024 };

/* ---- bash ---- */

/* What to offer after an option that takes an argument. */
static void bash_argument(const char *name, const char *argument)
{
    char words[WORDS_ROOM];
    switch (values_of(argument, words, sizeof words)) {
    case FILES: printf("    %s) COMPREPLY=($(compgen -f -- \"$word\")); return ;;\n", name); break;
    case WORDS:
        printf("    %s) COMPREPLY=($(compgen -P \"$list\" -W '%s' -- \"${word#\"$list\"}\")); "
               "return ;;\n",
               name, words);
        break;
    case NO_VALUES: printf("    %s) COMPREPLY=(); return ;;\n", name); break;
    }
}

static void bash(void)
{
    puts("# bash completion of fp8c; written by `fp8c completion bash`\n"
         "_fp8c() {\n"
         "  local line=${COMP_LINE:0:COMP_POINT} options= operand= i\n"
         "  local -a words\n"
         "  # Words end at spaces alone: bash would cut at = and : too, and wants what is behind "
         "the last of these.\n"
         "  read -ra words <<<\"$line.\"\n"
         "  local n=${#words[@]} command=${words[1]} before word=${words[-1]%.}\n"
         "  before=${words[n-2]}\n"
         "  case $word in --*=*) before=${word%%=*} word=${word#*=} ;; *=*) word=${word#*=} ;; "
         "esac\n"
         "  local list=${word%\"${word##*,}\"} # of words with commas between, those that are "
         "there\n"
         "  _fp8c_words\n"
         "  n=${word%\"${word##*:}\"}\n"
         "  for i in \"${!COMPREPLY[@]}\"; do COMPREPLY[i]=${COMPREPLY[i]#\"$n\"}; done\n"
         "}\n"
         "_fp8c_words() {\n"
         "  COMPREPLY=()\n"
         "  if [ \"${#words[@]}\" -eq 2 ]; then\n"
         "    COMPREPLY=($(compgen -W '--help --version");
    for (const cli_command *c = cli_commands; c->name; c++)
        printf("      %s\n", c->name);
    puts("    ' -- \"$word\")); return\n"
         "  fi\n"
         "  case $before in");
    for (const cli_option *o = cli_options; o->name; o++)
        if (o->argument)
            bash_argument(o->name, o->argument); /* one with two names has none */
    puts("  esac\n"
         "  case $command in");
    for (const cli_command *c = cli_commands; c->name; c++) {
        char words[WORDS_ROOM];
        printf("    %s) options='--help", c->name);
        for (const cli_option *o = NULL; (o = cli_next_option(o, c->bit));)
            printf(" %s%s%s", o->name, o->also ? " " : "", o->also ? o->also : "");
        const values v = values_of(c->operand, words, sizeof words);
        printf("' operand='%s' ;;\n", v == FILES ? "FILE" : v == WORDS ? words : "");
    }
    puts("  esac\n"
         "  case $word in\n"
         "    -*) COMPREPLY=($(compgen -W \"$options\" -- \"$word\")) ;;\n"
         "    *) if [ \"$operand\" = FILE ]; then COMPREPLY=($(compgen -f -- \"$word\"))\n"
         "       else COMPREPLY=($(compgen -W \"$operand\" -- \"$word\")); fi ;;\n"
         "  esac\n"
         "}\n"
         "complete -o filenames -F _fp8c fp8c");
}

/* ---- zsh ---- */

/* Text inside '...' of a specification of _arguments, where colons and brackets must be escaped. */
static const cli_escapes in_zsh = {.of = {"''\\''", "[\\[", "]\\]", ":\\:", "\\\\\\"}};

/* ":message:action" of an argument. */
static void zsh_argument(const char *argument)
{
    char words[WORDS_ROOM];
    const values v = values_of(argument, words, sizeof words);
    cli_put(&in_zsh, ":%", argument);
    switch (v) {
    case FILES:
        fputs(strncmp(argument, "NAME=", 5) ? ":_files" : ":{ compset -P \"*=\"; _files }", stdout);
        break;
    case WORDS: printf(":(%s)", words); break;
    case NO_VALUES: fputs(": ", stdout); break;
    }
}

static void zsh_option(const cli_option *o, const char *name)
{
    char help[CLI_HELP_TEXT];
    printf(" \\\n  '*%s[", name);
    cli_put(&in_zsh, "%]", cli_option_help(o, help));
    if (o->argument)
        zsh_argument(o->argument);
    putchar('\'');
}

static void zsh(void)
{
    puts("#compdef fp8c\n"
         "# zsh completion of fp8c; written by `fp8c completion zsh`\n"
         "local -a commands=(");
    for (const cli_command *c = cli_commands; c->name; c++)
        cli_put(&in_zsh, "  '%:%'\n", c->name, c->help);
    puts(")\n"
         "if (( CURRENT == 2 )); then\n"
         "  _describe command commands\n"
         "  _arguments '--help[the usage]' '--version[the version]'\n"
         "  return\n"
         "fi\n"
         "local command=$words[2]\n"
         "shift words; (( CURRENT-- ))\n"
         "case $command in");
    for (const cli_command *c = cli_commands; c->name; c++) {
        printf("%s) _arguments '--help[its options]'", c->name);
        for (const cli_option *o = NULL; (o = cli_next_option(o, c->bit));) {
            zsh_option(o, o->name);
            if (o->also)
                zsh_option(o, o->also);
        }
        if (c->operand) {
            fputs(strstr(c->operand, "...") ? " \\\n  '*" : " \\\n  '1", stdout);
            zsh_argument(c->operand);
            putchar('\'');
        }
        puts(" ;;");
    }
    puts("esac");
}

/* ---- fish ---- */

/* Text inside '...'. */
static const cli_escapes in_fish = {.of = {"'\\'", "\\\\\\"}};

static void fish_name(const char *name)
{
    const bool is_long = name[1] == '-';
    printf(" -%c '%s'", is_long ? 'l' : 's', name + 1 + is_long);
}

static void fish_option(const cli_command *c, const cli_option *o)
{
    char words[WORDS_ROOM], help[CLI_HELP_TEXT];
    printf("complete -c fp8c -n '__fish_seen_subcommand_from %s'", c->name);
    fish_name(o->name);
    if (o->also)
        fish_name(o->also);
    cli_put(&in_fish, " -d '%'", cli_option_help(o, help));
    switch (values_of(o->argument, words, sizeof words)) {
    case FILES: fputs(" -rF", stdout); break;
    case WORDS: printf(" -xa '%s'", words); break;
    case NO_VALUES: fputs(o->argument ? " -x" : "", stdout); break;
    }
    putchar('\n');
}

static void fish(void)
{
    puts("# fish completion of fp8c; written by `fp8c completion fish`\n"
         "complete -c fp8c -f\n"
         "complete -c fp8c -n '__fish_use_subcommand' -l version -d 'the version'\n"
         "complete -c fp8c -l help -d 'the usage'");
    for (const cli_command *c = cli_commands; c->name; c++) {
        char words[WORDS_ROOM];
        cli_put(&in_fish, "complete -c fp8c -n '__fish_use_subcommand' -a '%' -d '%'\n", c->name,
                c->help);
        const values v = values_of(c->operand, words, sizeof words);
        if (v != NO_VALUES)
            printf("complete -c fp8c -n '__fish_seen_subcommand_from %s' %s%s%s\n", c->name,
                   v == FILES ? "-F" : "-a '", v == FILES ? "" : words, v == FILES ? "" : "'");
        for (const cli_option *o = NULL; (o = cli_next_option(o, c->bit));)
            fish_option(c, o);
    }
}

int cmd_completion(const cli *c)
{
    if (!strcmp(c->file, "bash"))
        bash();
    else if (!strcmp(c->file, "zsh"))
        zsh();
    else if (!strcmp(c->file, "fish"))
        fish();
    else
        return cli_usage(c, "no such shell '%s': give bash, zsh or fish", c->file);
    return CLI_DONE;
}
