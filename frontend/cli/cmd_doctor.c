/* fp8c doctor: what this machine has, what each target lacks, where to get it; tests of targets.
 *
 * A child process does the work. If a library kills the process while it is loaded, or code kills
 * it while it runs, the parent can still say what the child was looking at. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "frontend/cli/cli.h"

/* What the child writes for its parent, in shared memory. */
typedef struct shared {
    char at[128]; /* what it is looking at */
    bool done;   /* the child ended by itself, so its exit code is doctor's */
} shared;

typedef struct doctor {
    cli_job job;
    const char *asked; /* targets */
    fp8c_doctor *d;
    bool colour;
    shared *shared; /* the child writes it, the parent reads it */
} doctor;

enum { WIDTH = 21 };

static void look_at(void *user, const char *what)
{
    doctor *x = user;
    snprintf(x->shared->at, sizeof x->shared->at, "%s", what);
}

/* ---- lines ---- */

typedef enum mood { GOOD, BAD, WARN } mood;

/* Prints a word in its colour and pads it to `width` columns. */
static void word(const doctor *x, mood mood, const char *text, int width)
{
    static const char *const codes[] = {
        [GOOD] = "\033[32m", [BAD] = "\033[31m", [WARN] = "\033[33m"};
    const int spaces = width - (int)strlen(text);
    if (x->colour)
        fputs(codes[mood], x->job.to);
    cli_say(x->job.to, "%s", text);
    if (x->colour)
        fputs("\033[0m", x->job.to);
    cli_say(x->job.to, "%*s", spaces > 0 ? spaces : 0, "");
}

/* Prints a text under a row, broken at spaces so that it fits a page. */
static void below(const doctor *x, const char *label, const char *text)
{
    enum { PAGE = 110, INDENT = 4 };
    int column = cli_say(x->job.to, "%*s%s%s", INDENT, "", label, *label ? ": " : "");
    bool first = true;
    while (*text) {
        const int n = (int)strcspn(text, " \n");
        if (!first && column + 1 + n > PAGE) {
            cli_say(x->job.to, "\n%*s", INDENT + 2, "");
            column = INDENT + 2;
            first = true;
        }
        column += cli_say(x->job.to, "%s%.*s", first ? "" : " ", n, text);
        first = false;
        text += n + strspn(text + n, " \n");
    }
    cli_say(x->job.to, "\n");
}

/* ---- components ---- */

/* Without -v of what is missing how to get it, where `first` is the first of its kind. */
static void print_component(const doctor *x, const fp8c_component *c, bool first)
{
    const bool brief = !x->job.c->verbose && c->state == FP8C_COMPONENT_MISSING;
    const mood mood = c->state == FP8C_COMPONENT_OK        ? GOOD
                      : c->state == FP8C_COMPONENT_MISSING ? WARN
                                                           : BAD;
    cli_say(x->job.to, "  %-*s", WIDTH, c->name);
    word(x, mood, fp8c_name(FP8C_NAME_COMPONENT_STATE, (int)c->state),
         c->version || c->path ? 15 : 0);
    cli_say(x->job.to, "%s%s%s\n", c->version ? c->version : "", c->version && c->path ? "  " : "",
            c->path ? c->path : "");
    if (c->problem && !brief)
        below(x, "", c->problem);
    if (c->note && x->job.c->verbose)
        below(x, "note", c->note);
    if (c->state == FP8C_COMPONENT_OK || (brief && !first))
        return;
    if (!brief)
        below(x, "for", c->enables);
    if (*c->places && !brief)
        below(x, "looked for", c->places);
    if (*c->get)
        below(x, "to get it", c->get);
}

static void components(doctor *x)
{
    fp8c_component c;
    const char *kind = "", *missing = "";
    for (int i = 0; fp8c_doctor_component(x->d, i, &c) == FP8C_OK; i++) {
        cli_json_record(&x->job.json, f8_record_component(json_object(), &c));
        if (!x->job.c->verbose && strcmp(c.kind, "cpu") && strcmp(c.kind, "cuda"))
            continue;
        if (strcmp(kind, c.kind) != 0)
            cli_say(x->job.to, "%s%s\n", i ? "\n" : "",
                    !strcmp(c.kind, "cpu")    ? "for target cpu"
                    : !strcmp(c.kind, "cuda") ? "for GPUs"
                                              : "more");
        kind = c.kind;
        print_component(x, &c, strcmp(missing, c.kind) != 0);
        missing = c.state == FP8C_COMPONENT_MISSING ? c.kind : missing;
    }
}

static void facts(doctor *x)
{
    fp8c_fact f;
    const char *group = "";
    for (int i = 0; fp8c_doctor_fact(x->d, i, &f) == FP8C_OK; i++) {
        cli_json_record(&x->job.json, f8_record_fact(json_object(), &f));
        if (!x->job.c->verbose)
            continue;
        if (strcmp(group, f.group) != 0)
            cli_say(x->job.to, "\n%s\n", f.group);
        group = f.group;
        cli_say(x->job.to, "  %-*s%s\n", WIDTH, f.name, f.value);
        if (f.advice)
            below(x, "", f.advice);
    }
}

/* ---- targets ---- */

/* Whether every name in the list of --target is a target. false after a message. */
static bool check_names(const doctor *x)
{
    char names[CLI_HELP_TEXT];
    for (const char *at = x->job.c->target; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        const int n = (int)strcspn(at, ",");
        fp8c_target_report t;
        bool found = false;
        for (int i = 0; !found && fp8c_doctor_target(x->d, i, &t) == FP8C_OK; i++)
            found = (int)strlen(t.name) == n && !strncmp(at, t.name, (size_t)n);
        if (!found)
            return !cli_usage(x->job.c, "no target '%.*s': there are %s", n, at,
                              cli_names(FP8C_NAME_TARGET, "", NULL, names));
    }
    return true;
}

/* Prints what a target lacks; `before`: what the one before lacks. */
static void print_missing(const doctor *x, const char *label, const char *what, const char *before)
{
    if (what)
        below(x, label, before && !strcmp(what, before) ? "the same" : what);
}

/* `before` is the target that was printed last. */
static void print_target(const doctor *x, const fp8c_target_report *t, const fp8c_self_test *s,
                         const fp8c_target_report *before)
{
    static const char *const results[] = {[FP8C_TEST_FAILED] = "self-test FAILED",
                                          [FP8C_TEST_PASSED] = "self-test passed",
                                          [FP8C_TEST_COMPILED] = "self-test compiled"};
    const bool tested = s->result != FP8C_TEST_NOT_RUN;
    cli_say(x->job.to, "  %-*s", WIDTH, t->name);
    word(x, t->can_compile ? GOOD : WARN, t->can_compile ? "compiles" : "can't compile", 15);
    word(x, t->can_run ? GOOD : WARN, t->can_run ? "runs" : "can't run", tested ? 11 : 0);
    if (tested) {
        word(x, s->result == FP8C_TEST_FAILED ? BAD : GOOD, results[s->result], 0);
        cli_say(x->job.to, ", %.2f s", s->seconds);
    }
    cli_say(x->job.to, "%s%s%s\n", t->is ? " (" : "", t->is ? t->is : "", t->is ? ")" : "");
    if (s->detail)
        below(x, "", s->detail);
    if (!x->job.c->verbose && !cli_lists(x->asked, t->name))
        return;
    print_missing(x, "can't compile", t->compile_missing, before->compile_missing);
    print_missing(x, "can't run", t->run_missing, before->run_missing);
}

/* Whether all targets that were asked for work: they compile and run, and their results are right.
 */
static bool targets(doctor *x)
{
    fp8c_target_report t, before = {0};
    bool well = true;
    cli_say(x->job.to, "\ntargets\n");
    for (int i = 0; fp8c_doctor_target(x->d, i, &t) == FP8C_OK; i++) {
        const bool asked = cli_lists(x->asked, t.name);
        fp8c_self_test s = {.result = FP8C_TEST_NOT_RUN};
        json_t *begin = json_pack("{ss ss? sb}", "name", t.name, "is", t.is, "asked", (int)asked);
        cli_json_record(&x->job.json, f8_record_ability(begin, &t));
        if (x->job.c->target && !asked)
            continue;
        fp8c_doctor_test(x->d, i, &s);
        cli_json_record(&x->job.json, f8_record_self_test(json_pack("{ss}", "target", t.name), &s));
        print_target(x, &t, &s, &before);
        before = t;
        fflush(stdout);
        well = well && (!asked || s.result == FP8C_TEST_PASSED);
    }
    return well;
}

/* ---- the command ---- */

static bool look(doctor *x)
{
    cli_say(x->job.to, "fp8c %s\n\n", fp8c_version());
    components(x);
    facts(x);
    const bool well = targets(x);
    cli_json_record(&x->job.json, json_pack("{ss ss sb}", "event", "summary", "asked", x->asked,
                                            "works", (int)well));
    cli_say(x->job.to, "\n%s: %s%s\n", x->asked, well ? "works" : "does not work",
            x->job.c->verbose ? "" : "; `fp8c doctor -v` says more of this machine");
    return well;
}

static int examine(doctor *x)
{
    const fp8c_doctor_options options = {
        .struct_size = sizeof options, .before = look_at, .user = x};
    cli_job *j = &x->job;
    const bool burns = j->c->burn > 0;
    int code = CLI_FAILED;
    /* What burns can be stopped, and shows how far it is. */
    if (fp8c_context_create(burns ? cli_context_options() : NULL, &j->ctx) != FP8C_OK) {
        cli_error(NULL, "out of memory");
        return CLI_FAILED;
    }
    cli_keep(j->ctx);
    const bool made = cli_ok(j->ctx, fp8c_doctor_create(j->ctx, &options, &x->d));
    if (made && !check_names(x)) /* before there is a file of --json */
        code = CLI_USAGE;
    else if (made && cli_json_open(&j->json, j->c->json) &&
             (burns ? cli_burn(j, x->d, look_at, x) : look(x)))
        code = CLI_DONE;
    fp8c_doctor_destroy(x->d);
    const int end = cli_end(j, true);
    return end == CLI_DONE ? code : end;
}

static int report_death(const shared *s, int status)
{
    const char *at = *s->at ? s->at : "its own start";
    if (WIFSIGNALED(status))
        cli_error(NULL, "signal %d (%s) ended the process while it looked at: %s", WTERMSIG(status),
                  strsignal(WTERMSIG(status)), at);
    else
        cli_error(NULL, "the process ended with exit code %d while it looked at: %s",
                  WEXITSTATUS(status), at);
    return CLI_FAILED;
}

/* Waits until the child has ended, and gives its status. A burn ends in good order after a signal:
 * the child hears of it, also if the signal came to this process alone. */
static int wait_for(pid_t child, bool burns)
{
    static const struct timespec pause = {.tv_nsec = 10000000};
    int status = 0;
    bool told = false;
    while (waitpid(child, &status, burns ? WNOHANG : 0) <= 0) {
        if (burns)
            nanosleep(&pause, NULL);
        if (!told && cli_interrupted())
            told = !kill(child, cli_interrupted());
    }
    return status;
}

int cmd_doctor(const cli *c)
{
    const char *no_colour = secure_getenv("NO_COLOR");
    doctor x = {.job = {.c = c, .to = cli_table(c)}, .asked = c->target ? c->target : "cpu"};
    x.colour = x.job.to && isatty(STDOUT_FILENO) && !(no_colour && *no_colour);
    void *memory =
        mmap(NULL, sizeof *x.shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    fflush(NULL);
    const pid_t parent = getpid();
    const pid_t child = memory == MAP_FAILED ? -1 : fork();
    if (child < 0) {
        cli_error(NULL, "%s", strerror(errno));
        return CLI_FAILED;
    }
    x.shared = memory;
    if (c->burn > 0)
        cli_hold(NULL); /* the one that burns ends */
    if (child == 0) {
        if (!cli_end_with(parent))
            _exit(CLI_FAILED);
        cli_interrupt_text(NULL); /* the parent says it */
        const int code = examine(&x);
        const int written = cli_flush_stdout(CLI_DONE);
        x.shared->done = true;
        exit(written == CLI_DONE ? code : written);
    }
    const int status = wait_for(child, c->burn > 0);
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGPIPE) {
        /* The reader of stdout is gone. This is no fault of a library; end as other commands do. */
        signal(SIGPIPE, SIG_DFL);
        raise(SIGPIPE);
        return CLI_FAILED;
    }
    return WIFEXITED(status) && x.shared->done ? WEXITSTATUS(status)
                                               : report_death(x.shared, status);
}
