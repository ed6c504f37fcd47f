/* The man page fp8c(1) as roff, made from the tables of commands and options. */
#include <string.h>

#include "frontend/cli/cli.h"

/* What has a meaning in roff: backslashes, hyphens, quotes, and a dot or a quote at the beginning
 * of a line. */
static const cli_escapes roff = {"'.", {"\\\\e", "-\\-", "'\\(aq", "`\\(ga", "^\\(ha", "~\\(ti"}};

static void synopsis(void)
{
    puts(".SH SYNOPSIS");
    for (const cli_command *c = cli_commands; c->name; c++) {
        const bool optional = c->operand && *c->operand == '[';
        cli_put(&roff, c == cli_commands ? ".B fp8c %\n" : ".br\n.B fp8c %\n", c->name);
        if (c->operand)
            printf("%s\\fI%.*s\\fR%s\n", optional ? "[" : "",
                   (int)strcspn(c->operand + optional, "]"), c->operand + optional,
                   optional ? "]" : "");
        puts("[\\fIOPTION\\fR ...]");
    }
}

/* Each command with what it does and the names of its options. */
static void commands(void)
{
    puts(".SH COMMANDS");
    for (const cli_command *c = cli_commands; c->name; c++) {
        const char *before = ".br\nOptions: \\fB%\\fR";
        cli_put(&roff, ".TP\n.B %\n%\n", c->name, c->help);
        for (const cli_option *o = NULL; (o = cli_next_option(o, c->bit));) {
            cli_put(&roff, before, o->name);
            before = ", \\fB%\\fR";
        }
        fputs(*before == ',' ? ".\n" : "", stdout);
    }
}

static void options(void)
{
    puts(".SH OPTIONS\nThe argument of an option is the next word, or follows \\(lq=\\(rq.");
    for (const cli_option *o = cli_options; o->name; o++) {
        char help[CLI_HELP_TEXT];
        const char *before = ".br\nCommands: %";
        cli_put(&roff, o->argument ? ".TP\n.BI \"%" : ".TP\n.B \"%", o->name);
        if (o->also)
            cli_put(&roff, ", %", o->also);
        if (o->argument)
            cli_put(&roff, " \" \"%", o->argument);
        cli_put(&roff, "\"\n%\n", cli_option_help(o, help));
        for (const cli_command *c = cli_commands; c->name; c++)
            if (o->on & c->bit) {
                cli_put(&roff, before, c->name);
                before = ", %";
            }
        puts(".");
    }
    puts(".TP\n.BR \\-h \", \" \\-\\-help\nthe usage, or the options of a command\n"
         ".TP\n.B \\-\\-version\nthe version");
}

static const struct {
    const char *name, *help;
} environment[] = {
    {"FP8C_CACHE_DIR",
     "the folder of compiled kernels (default: $XDG_CACHE_HOME/fp8c, else ~/.cache/fp8c); "
     "empty: no cache"},
    {"FP8C_TUNING",
     "the file of the tuning database (default: tuning.db in the cache's folder); empty: none, and "
     "no table"},
    {"FP8C_TUNING_TABLE",
     "an export of a tuning database in the place of the table of cuBLASLt's algorithms that fp8c "
     "ships; empty: no table"},
    {"FP8C_VERBOSE", "0, 1 or 2: log warnings only; also what is done; also each pass and kernel"},
    {"FP8C_DUMP",
     "a folder into which each compile writes the module after each pass, and the kernels"},
    {"FP8C_CUDA_PATH",
     "the folder of the CUDA libraries: they are looked for there and nowhere else"},
    {"MKL_THREADING_LAYER",
     "of Intel's MKL, which tune --peers may measure: set, it chooses MKL's threads; else they are those that "
     "its folder has"},
    {"CUDA_HOME, CUDA_PATH, VIRTUAL_ENV, HOME",
     "where the CUDA libraries are looked for without FP8C_CUDA_PATH"},
    {"RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT",
     "train on GPUs without mpirun: as torchrun sets them, which process this is, of how many, "
     "with which GPU, and where they find each other"},
    {"NCCL_COMM_ID",
     "the same: HOST:PORT where they find each other (default: MASTER_ADDR, and the "
     "port after MASTER_PORT)"},
    {"OMPI_COMM_WORLD_LOCAL_RANK, MPI_LOCALRANKID, SLURM_LOCALID",
     "train on GPUs under mpirun: the number of this process's GPU without --device"},
    {"TMPDIR", "train with several processes: where their records are if there is no /dev/shm "
               "(default: /tmp)"},
    {"NO_COLOR", "set: output to a terminal has no colors"},
};

int cli_man(void)
{
    printf(".TH FP8C 1 \"\" \"fp8c %s\" \"User Commands\"\n", fp8c_version());
    puts(".nh\n.SH NAME\nfp8c \\- compile transformers to FP8 training steps");
    synopsis();
    puts(".SH DESCRIPTION\n"
         "fp8c reads a model as text, derives its backward pass, inserts the FP8 casts and their "
         "scales, fuses\n"
         "what lies between the matrix multiplications into kernels, and compiles and runs the "
         "step, on a CPU\n"
         "or an NVIDIA GPU.");
    commands();
    options();
    puts(".SH ENVIRONMENT");
    for (size_t i = 0; i < sizeof environment / sizeof *environment; i++)
        cli_put(&roff, ".TP\n.B %\n%\n", environment[i].name, environment[i].help);
    puts(".SH EXIT STATUS\n0: done. 1: failed; a message on stderr says why. 2: wrong usage. "
         "130, 143: ended by\nSIGINT (Ctrl-C) or SIGTERM; no file is left half written. train "
         "finishes its "
         "step and saves it;\na second signal ends it at once.");
    puts(".SH EXAMPLES\n.nf");
    cli_put(&roff, "%\n", "fp8c check gpt.f8");
    cli_put(&roff, "%\n", "fp8c explain gpt.f8 --recipe delayed");
    cli_put(&roff, "%\n", "fp8c train gpt.f8 --data FILE --recipe delayed --compare bf16");
    cli_put(&roff, "%\n", "fp8c compile gpt.f8 --recipe delayed --target cpu:x86-64-v3 -o gpt.f8x");
    cli_put(&roff, "%\n",
            "fp8c run gpt.f8x --input tokens=tokens.npy --input targets=targets.npy --output "
            "loss=loss.npy");
    puts(".fi");
    return CLI_DONE;
}
