/* fp8c tune of GEMMs alone: it starts processes that measure, one after the other, and shows what
 * they found together. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "frontend/cli/tune.h"
#include "frontend/measure/list.h"
#include "ir/base/clock.h"
#include "ir/base/format.h"

enum {
    PROCESSES = 5,
    MOST_WORDS = 3 * F8_MOST_TEXTS * 2 + 48,
    MOST_REASONS = 20,
    NOT_STARTED = 127 /* the exit code of a process whose exec failed, as shells have it */
};

#define LEAST_TIME 1e-9 /* which is too short for anything */

extern char **environ;

/* ---- how to measure ---- */

/* Reads "cold", "warm" or both with a comma. */
static bool read_cache(const char *text, f8_measure_how *how)
{
    how->cold = !text || cli_lists(text, "cold");
    how->warm = text && cli_lists(text, "warm");
    for (const char *at = text; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (strcspn(at, ",") != 4 || (strncmp(at, "cold", 4) && strncmp(at, "warm", 4)))
            return cli_error(NULL, "--cache: '%s' is not cold, warm, or both with a comma", text);
    return true;
}

static bool read_inputs(const char *text, f8_measure_how *how)
{
    how->inputs = text ? f8_inputs_by_name(text) : F8_INPUTS_NORMAL;
    if (how->inputs != F8_N_INPUTS)
        return true;
    cli_say(stderr, "error: --inputs: '%s' is none of", text);
    for (int i = 0; i < F8_N_INPUTS; i++)
        cli_say(stderr, "%s %s", i ? "," : "", f8_inputs_name((f8_inputs)i));
    cli_say(stderr, "\n");
    return false;
}

/* ---- command lines ---- */

/* Words of a command line, in memory that `text` has. */
typedef struct words {
    char *word[MOST_WORDS + 1];
    size_t n;
    char number[8][32];
    size_t n_numbers;
} words;

static void add(words *w, const char *option, const char *value)
{
    if (!value || w->n + 2 > MOST_WORDS)
        return;
    w->word[w->n++] = (char *)option;
    if (*value)
        w->word[w->n++] = (char *)value;
}

static void add_number(words *w, const char *option, double value)
{
    char *text = w->number[w->n_numbers];
    if (!(value > 0))
        return;
    w->n_numbers++;
    f8_format(text, sizeof w->number[0], "%.17g", value);
    add(w, option, text);
}

/* What is to be measured. */
static void add_problems(words *w, const cli *c)
{
    for (size_t i = 0; i < c->gemms.n; i++)
        add(w, "--gemm", c->gemms.text[i]);
    for (size_t i = 0; i < c->gemm_files.n; i++)
        add(w, "--gemm-file", c->gemm_files.text[i]);
    for (size_t i = 0; i < c->suites.n; i++)
        add(w, "--suite", c->suites.text[i]);
}

/* How it is to be measured, but for the time and for where results go. */
static void add_how(words *w, const cli *c)
{
    add(w, "--target", c->target);
    add_number(w, "--device", c->device);
    add_number(w, "--threads", c->threads);
    add_number(w, "--runs", (double)c->runs);
    add_number(w, "--seed", c->given[CLI_AT_seed] ? (double)c->seed : 0);
    add(w, "--cache", c->cache);
    add(w, "--inputs", c->distribution);
    add(w, "--same-bits", c->same_bits ? "" : NULL);
    add(w, "--peers", c->peers ? "" : NULL);
    add(w, "--model-only", c->model_only ? "" : NULL);
    add_number(w, "--processes", (double)(c->processes ? c->processes : PROCESSES));
}

/* The command line that says the same again, in the arena. NULL: no memory. */
static const char *command_of(const cli *c, f8_arena *arena)
{
    words w = {0};
    const char *text = "fp8c";
    add(&w, "fp8c", "tune");
    add_problems(&w, c);
    add_how(&w, c);
    for (size_t i = 1; i < w.n && text; i++) {
        const char *word = f8_measure_quote(w.word[i], arena);
        text = word ? f8_arena_printf(arena, "%s %s", text, word) : NULL;
    }
    return text;
}

/* ---- a process that measures ---- */

static sigset_t ending_signals(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    return set;
}

static bool be_process(cli_job *j, const f8_tune_gemms *list, f8_measure_how *how)
{
    f8_measure_set set = {0};
    const fp8c_compile_options compile = cli_compile_options(j->c, j->c->recipe);
    const sigset_t ends = ending_signals();
    cli_interrupt_text("");
    pthread_sigmask(SIG_UNBLOCK, &ends, NULL); /* (spawn) */
    how->compile = &compile;
    f8_arena_init(&set.arena, NULL);
    const bool ok = cli_ok(j->ctx, f8_measure_list(j->ctx, list, how, &set)) &&
                    cli_tune_write_records(j->c, f8_measure_records(&set));
    f8_arena_end(&set.arena);
    return ok;
}

/* ---- starting processes ---- */

/* Waits for a child, and passes a signal on to it, once. */
static int wait_for(pid_t child)
{
    const struct timespec pause = {.tv_nsec = 20000000};
    bool told = false;
    int status = 0;
    while (waitpid(child, &status, WNOHANG) == 0) {
        if (cli_interrupted() && !told)
            kill(child, SIGTERM);
        told = cli_interrupted();
        nanosleep(&pause, NULL);
    }
    return status;
}

/* The GEMMs of a list as --gemm-file takes them, in a file without a name, whose descriptor is
 * returned: a source of the list may be a pipe, and change while processes measure. -1: no
 * memory. */
static int list_file(const f8_tune_gemms *list)
{
    json_t *lines = json_array();
    for (size_t i = 0; i < list->n; i++) {
        const f8_tune_gemm *g = &list->gemm[i];
        json_t *line =
            json_pack("{sI sI sI ss ss sI ss}", "m", (json_int_t)g->m, "n", (json_int_t)g->n, "k",
                      (json_int_t)g->k, "a", f8_dtype_name(g->a), "b", f8_dtype_name(g->b), "count",
                      (json_int_t)g->count, "name", g->name);
        for (int kind = 0; kind < F8_TUNE_KINDS; kind++)
            json_object_set_new(line, f8_tune_how_name[kind],
                                json_string(f8_tune_word(kind, g->how[kind])));
        json_array_append_new(lines, line);
    }
    char *text = cli_tune_lines(json_array_size(lines) == list->n ? json_incref(lines) : NULL);
    int fd = text ? memfd_create("fp8c GEMMs", 0) : -1;
    if (fd >= 0 && dprintf(fd, "%s", text) != (int)strlen(text)) {
        close(fd);
        fd = -1;
    }
    json_decref(lines);
    free(text);
    return fd;
}

/* What processes are told. */
typedef struct call {
    const cli *c;
    char list[32]; /* the file of their GEMMs */
    int64_t since;
    double begin; /* f8_seconds_now() */
} call;

/* Whether a process measured; says so if it was ended by a signal, else it has said why. */
static bool is_done(int status, int ordinal)
{
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 0,
              number = WIFSIGNALED(status)    ? WTERMSIG(status)
                       : code > CLI_SIGNALLED ? code - CLI_SIGNALLED
                                              : 0;
    if (number && !cli_interrupted())
        return cli_error(NULL,
                         "process %d, which measured, was ended by signal %d (%s); what was "
                         "measured before is in the database: run this again to continue",
                         ordinal, number, strsignal(number));
    if (code == NOT_STARTED)
        return cli_error(NULL, "a process to measure in could not be started from /proc/self/exe");
    return !number && code == CLI_DONE;
}

/* Starts a process in a group of its own: what a terminal sends comes to this one alone. Until it
 * knows what it is, it takes no signals: it would say that it was interrupted. It ends when this
 * one ends, because nobody waits for its records then. Returns errno. */
static int spawn(char *const *words, pid_t *child)
{
    const sigset_t ends = ending_signals();
    const pid_t parent = getpid();
    sigset_t before;
    pthread_sigmask(SIG_BLOCK, &ends, &before);
    *child = fork();
    if (*child == 0) {
        setpgid(0, 0);
        if (cli_end_with(parent))
            execve("/proc/self/exe", words, environ);
        _exit(NOT_STARTED);
    }
    const int error = *child < 0 ? errno : 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

/* Runs a process that writes its records into `path`. false after a message, of its own or here. */
static bool start(const call *to, int ordinal, double seconds, const char *path)
{
    const cli *c = to->c;
    words w = {0};
    pid_t child;
    add(&w, "fp8c", "tune");
    add(&w, "--gemm-file", to->list);
    add_how(&w, c);
    add_number(&w, "--process", ordinal);
    add_number(&w, "--since", (double)to->since);
    add_number(&w, "--time", seconds);
    add(&w, "--database", c->database);
    add(&w, "--json", path);
    for (int i = 0; i < c->verbose; i++)
        add(&w, "-v", "");
    const int error = spawn(w.word, &child);
    if (error)
        return cli_error(NULL, "a process to measure in could not be started: %s", strerror(error));
    return is_done(wait_for(child), ordinal);
}

/* ---- putting them together ---- */

/* Adds the runs of processes that are not there: each process also says what came before it. The
 * last one's choice, which knows all runs, holds. */
static f8_status add_new(f8_measure_set *all, f8_measurement *m, f8_diag *diag)
{
    const f8_measurement *to = f8_measure_find(all, m->problem.text, m->cache, m->candidate);
    size_t n = 0;
    for (size_t i = 0; i < m->n_processes; i++) {
        bool there = false;
        for (size_t k = 0; to && k < to->n_processes; k++)
            there |= !strcmp(to->process[k].process, m->process[i].process);
        if (!there)
            m->process[n++] = m->process[i];
    }
    m->n_processes = n;
    F8_TRY(f8_measure_add(all, m, diag));
    f8_measure_find(all, m->problem.text, m->cache, m->candidate)->chosen = m->chosen;
    return F8_OK;
}

/* Adds what a process wrote. */
static f8_status merge(f8_measure_set *all, const char *path, f8_diag *diag)
{
    f8_measure_set one = {0};
    f8_arena_init(&one.arena, NULL);
    f8_status status = f8_measure_read(&one, path, diag);
    for (size_t i = 0; i < one.n_processes && status == F8_OK; i++)
        if (!f8_measure_find_process(all, one.process[i].id))
            status = f8_measure_add_process(all, &one.process[i], diag);
    for (size_t i = 0; i < one.n_measurements && status == F8_OK; i++)
        status = add_new(all, &one.measurement[i], diag);
    if (status == F8_OK)
        status = f8_measure_set_about(all, &one.about, diag);
    f8_arena_end(&one.arena);
    return status;
}

static bool measure_in_one(const call *to, int ordinal, double seconds, f8_measure_set *all)
{
    char path[64];
    f8_diag diag = {0};
    const int fd = memfd_create("fp8c records", 0);
    if (fd < 0)
        return cli_error(NULL, "no memory for records: %s", strerror(errno));
    f8_format(path, sizeof path, "/proc/self/fd/%d", fd);
    bool ok = start(to, ordinal, seconds, path);
    ok = ok && (merge(all, path, &diag) == F8_OK || cli_file_fail(&diag));
    close(fd);
    return ok;
}

static bool all_lack(const f8_measure_set *set)
{
    for (size_t i = 0; i < set->n_measurements; i++)
        if (set->measurement[i].state != F8_MEASURE_LACKING)
            return false;
    return true;
}

/* The time is shared out: each process has a part of what is left. */
static bool run_all(const call *to, f8_measure_set *all)
{
    const cli *c = to->c;
    const int n = (int)(c->processes ? c->processes : PROCESSES);
    for (int i = 0; i < n && !(i && all_lack(all)); i++) {
        const double left = to->begin + c->time - f8_seconds_now();
        if (c->time > 0 && left <= 0 && i)
            break;
        if (!measure_in_one(to, i + 1, c->time > 0 ? fmax(left / (n - i), LEAST_TIME) : 0, all))
            return false;
    }
    return !cli_interrupted();
}

/* The first second of which no earlier run is. */
static int64_t next_second(void)
{
    const struct timespec pause = {.tv_nsec = 20000000};
    const time_t now = time(NULL);
    while (time(NULL) == now && !cli_interrupted())
        nanosleep(&pause, NULL);
    return (int64_t)now + 1;
}

static bool measure_in_all(cli_job *j, const f8_tune_gemms *list, f8_measure_set *all)
{
    call to = {.c = j->c, .begin = f8_seconds_now()};
    const int fd = list_file(list);
    if (fd < 0)
        return cli_error(NULL, "no memory for a list of GEMMs: %s", strerror(errno));
    f8_format(to.list, sizeof to.list, "/proc/self/fd/%d", fd);
    cli_hold(NULL);
    signal(SIGCHLD, SIG_DFL); /* who ignores it learns nothing of how a process ended */
    to.since = j->c->again ? next_second() : 0;
    const bool ok = run_all(&to, all);
    close(fd);
    return ok;
}

/* ---- the report ---- */

/* Says what the time was too short for: each process measures the model's way of each problem that
 * it comes to. */
static void say_late(cli_job *j, const f8_measure_set *set)
{
    const size_t wanted = (size_t)(j->c->processes ? j->c->processes : PROCESSES);
    size_t all = 0, late = 0, fewer = 0;
    for (size_t i = 0; i < set->n_measurements; i++) {
        const f8_measurement *m = &set->measurement[i];
        if (m->kind != F8_MEASURE_MODEL || m->state == F8_MEASURE_LACKING)
            continue;
        all++;
        late += m->state == F8_MEASURE_LATE;
        fewer += m->state == F8_MEASURE_TIMED && m->n_processes < wanted;
    }
    if (late == all)
        cli_say(j->to, "the time was up before the first GEMM was measured: a longer --time is "
                       "needed\n");
    else if (late || fewer)
        cli_say(j->to,
                "the time was up: of %zu measurements of the model's way, %zu have no run, and %zu "
                "have runs of fewer than %zu processes; run this again to continue\n",
                all, late, fewer, wanted);
}

static bool report(cli_job *j, const f8_measure_set *set)
{
    const cli *c = j->c;
    char *table = f8_measure_table(set);
    bool ok = table || cli_error(NULL, "out of memory");
    if (table)
        cli_say(j->to, "%s", table);
    free(table);
    if (c->time > 0)
        say_late(j, set);
    return cli_tune_write(c, set, NULL) && ok;
}

/* Says why nothing could be measured, for each GEMM once. */
static bool refuse(const f8_measure_set *set)
{
    size_t said = 0;
    for (size_t i = 0; i < set->n_measurements; i++) {
        const f8_measurement *m = &set->measurement[i];
        if (i && !strcmp(m->problem.text, m[-1].problem.text))
            continue;
        if (said++ == MOST_REASONS)
            return cli_error(NULL, "and so on");
        if (strstr(m->reason, m->problem.text))
            cli_error(NULL, "%s", m->reason);
        else
            cli_error(NULL, "GEMM %s: %s", m->problem.text, m->reason);
    }
    return false;
}

/* The measurements in the order of the list. */
static f8_status arrange(const f8_tune_gemms *list, const f8_measure_set *from, f8_measure_set *to,
                         f8_diag *diag)
{
    char text[F8_TUNE_GEMM_TEXT];
    to->about = from->about;
    for (size_t i = 0; i < from->n_processes; i++)
        F8_TRY(f8_measure_add_process(to, &from->process[i], diag));
    for (size_t k = 0; k < list->n; k++) {
        f8_tune_gemm_text(&list->gemm[k], text);
        for (size_t i = 0; i < from->n_measurements; i++)
            if (!strcmp(from->measurement[i].problem.text, text))
                F8_TRY(f8_measure_add(to, &from->measurement[i], diag));
    }
    return f8_measure_figures(to, diag);
}

static bool measure_and_report(cli_job *j, const f8_tune_gemms *list)
{
    f8_measure_set all = {0}, ordered = {0};
    f8_diag diag = {0};
    f8_arena_init(&all.arena, NULL);
    f8_arena_init(&ordered.arena, NULL);
    const char *command = command_of(j->c, &all.arena);
    bool ok = (command || cli_error(NULL, "out of memory")) && measure_in_all(j, list, &all);
    all.about.command = command;
    ok = ok && (arrange(list, &all, &ordered, &diag) == F8_OK || cli_file_fail(&diag));
    if (ok && all_lack(&ordered))
        ok = refuse(&ordered);
    else
        ok = ok && report(j, &ordered);
    f8_arena_end(&ordered.arena);
    f8_arena_end(&all.arena);
    return ok;
}

bool cli_tune_gemms(cli_job *j)
{
    const cli *c = j->c;
    const f8_tune_sources from = {c->gemms.text, c->gemm_files.text, c->suites.text,
                                  c->gemms.n,    c->gemm_files.n,    c->suites.n};
    f8_tune_gemms list;
    f8_measure_how how = {.database = c->database,
                          .command = "",
                          .commit = cli_commit,
                          .seed = c->seed,
                          .runs = (int32_t)(c->runs > INT32_MAX ? INT32_MAX : c->runs),
                          .same_bits = c->same_bits,
                          .peers = c->peers,
                          .model_only = c->model_only,
                          .ordinal = (int32_t)c->process,
                          .processes = (int32_t)c->processes,
                          .since = c->since,
                          .seconds = c->time};
    if (!read_cache(c->cache, &how) || !read_inputs(c->distribution, &how) ||
        !cli_tune_may_write(c))
        return false;
    bool ok = cli_ok(j->ctx, f8_tune_gather(j->ctx, &from, &list));
    if (ok)
        ok = c->process ? be_process(j, &list, &how) : measure_and_report(j, &list);
    f8_arena_end(&list.arena);
    return ok;
}
