/* Running the fp8c binary: see cli.h. */
#include "tests/shared/api/cli.h"

#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PATH_ROOM = 4096, MAX_ARGS = 256, ROTATING = 8 };

static char folder[PATH_ROOM];
static f8_cli_result last;

bool f8_cli_sanitized(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return true;
#else
    return false;
#endif
}

/* ---- files ---- */

void f8_cli_setup(void)
{
    const char *base = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/fp8c-check-XXXXXX", base && *base ? base : "/tmp");
    ck_assert_msg(mkdtemp(folder) != NULL, "no temporary folder: %s", folder);
}

void f8_cli_teardown(void)
{
    free(last.out);
    free(last.err);
    last = (f8_cli_result){0};
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d));)
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
            unlink(f8_cli_temp(e->d_name));
    if (d)
        closedir(d);
    rmdir(folder);
}

const char *f8_cli_temp(const char *name)
{
    static char path[ROTATING][PATH_ROOM + 300];
    static int next;
    char *to = path[next++ % ROTATING];
    snprintf(to, sizeof path[0], "%s/%s", folder, name);
    return to;
}

static int drop(const char *path, const struct stat *s, int type, struct FTW *f)
{
    (void)s;
    (void)type;
    (void)f;
    return remove(path);
}

void f8_cli_forget(const char *folder)
{
    nftw(folder, drop, 8, FTW_DEPTH | FTW_PHYS);
}

static int is_whole(const char *path, const struct stat *s, int type, struct FTW *f)
{
    const size_t n = strlen(path);
    (void)s;
    (void)type;
    (void)f;
    ck_assert_msg(n < 4 || strcmp(path + n - 4, ".tmp"), "%s was left", path);
    return 0;
}

void f8_cli_whole(const char *folder)
{
    nftw(folder, is_whole, 8, FTW_PHYS);
}

int f8_cli_files(void)
{
    DIR *d = opendir(folder);
    int n = 0;
    ck_assert_ptr_nonnull(d);
    for (struct dirent *e; (e = readdir(d));)
        n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

const char *f8_cli_write(const char *name, const void *bytes, size_t n)
{
    const char *path = f8_cli_temp(name);
    FILE *f = fopen(path, "wb");
    ck_assert_msg(f && fwrite(bytes, 1, n, f) == n && !fclose(f), "can't write %s", path);
    return path;
}

const char *f8_cli_write_words(const char *name, size_t n)
{
    static const char *const words[] = {"scale ", "tensor ", "graph\n", "of ",
                                        "the ",   "eight ",  "bits "};
    char *text = malloc(n + 16);
    ck_assert_ptr_nonnull(text);
    size_t used = 0;
    for (unsigned x = 1; used < n; x = x * 1103515245u + 12345u)
        used += (size_t)sprintf(text + used, "%s", words[(x >> 16) % 7]);
    const char *path = f8_cli_write(name, text, n);
    free(text);
    return path;
}

char *f8_cli_read(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    ck_assert_msg(f != NULL, "%s is missing", path);
    fseek(f, 0, SEEK_END);
    *n = (size_t)ftell(f);
    rewind(f);
    char *text = malloc(*n + 1);
    ck_assert_msg(text && fread(text, 1, *n, f) == *n, "can't read %s", path);
    text[*n] = 0;
    fclose(f);
    return text;
}

/* ---- running ---- */

/* This program is BUILD/tests/check_*: a file of BUILD. */
static const char *built(const char *name)
{
    static char path[PATH_ROOM];
    const ssize_t n = readlink("/proc/self/exe", path, sizeof path - strlen(name) - 1);
    ck_assert(n > 0);
    path[n] = 0;
    for (int up = 0; up < 2; up++)
        *strrchr(path, '/') = 0;
    return strcat(path, name);
}

static const char *binary(void)
{
    const char *given = getenv("FP8C");
    return given && *given ? given : built("/fp8c");
}

void f8_cli_use_small_caches(void)
{
    setenv("FP8C", built("/tests/fp8c_small_caches"), 0);
}

static int pipe_without_reader(void)
{
    int fd[2];
    if (pipe(fd))
        return -1;
    close(fd[0]);
    return fd[1];
}

/* `o` is stdout. */
static void child_to(size_t limit, char *const *argv, int o, const char *err)
{
    const int null = open("/dev/null", O_RDONLY);
    const int e = open(err, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    const struct rlimit as = {limit, limit}, no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    signal(SIGPIPE, SIG_DFL);
    if (null < 0 || o < 0 || e < 0 || dup2(null, 0) < 0 || dup2(o, 1) < 0 || dup2(e, 2) < 0 ||
        (limit && setrlimit(RLIMIT_AS, &as)))
        _exit(125);
    execv(argv[0], argv);
    _exit(126);
}

/* out NULL: nobody reads it. */
static void child(size_t limit, char *const *argv, const char *out, const char *err)
{
    child_to(limit, argv,
             out ? open(out, O_WRONLY | O_CREAT | O_TRUNC, 0600) : pipe_without_reader(), err);
}

/* LeakSanitizer's own tracer crashes now and then, whatever it looks at: that says nothing. */
static bool tool_failed(const char *err)
{
    return strstr(err, "LeakSanitizer has encountered a fatal error") != NULL;
}

static bool has_words(const char *path, const char *words)
{
    size_t n;
    char *text = access(path, R_OK) ? NULL : f8_cli_read(path, &n);
    const bool has = text && strstr(text, words);
    free(text);
    return has;
}

static bool has_temporary(const char *begin)
{
    DIR *d = opendir(folder);
    bool has = false;
    for (struct dirent *e; d && !has && (e = readdir(d));) {
        struct stat s;
        const size_t n = strlen(e->d_name);
        has = !strncmp(e->d_name, begin, strlen(begin)) && n > 4 &&
              !strcmp(e->d_name + n - 4, ".tmp") && !stat(f8_cli_temp(e->d_name), &s) && s.st_size;
    }
    if (d)
        closedir(d);
    return has;
}

static bool has_ended(pid_t pid)
{
    siginfo_t info = {0};
    return waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) || info.si_pid;
}

static bool same_program(pid_t pid)
{
    char file[64], own[PATH_ROOM], its[PATH_ROOM];
    snprintf(file, sizeof file, "/proc/%ld/exe", (long)pid);
    const ssize_t n = readlink("/proc/self/exe", own, sizeof own),
                  m = readlink(file, its, sizeof its);
    return n == m && n > 0 && !memcmp(own, its, (size_t)n);
}

/* A forked process has this one's handlers until it runs its own program. */
static bool catches(pid_t pid, int number)
{
    char file[64];
    snprintf(file, sizeof file, "/proc/%ld/status", (long)pid);
    FILE *f = same_program(pid) ? NULL : fopen(file, "r");
    char line[256];
    unsigned long long caught = 0;
    while (f && fgets(line, sizeof line, f))
        sscanf(line, "SigCgt: %llx", &caught);
    if (f)
        fclose(f);
    return caught >> (number - 1) & 1;
}

/* err: the file that is the process' stderr. */
static void send_signals(pid_t pid, const char *err, const f8_cli_signal *s)
{
    for (; s->number; s++) {
        const char *path = s->path ? s->path : err;
        while (!has_ended(pid) && (s->temporary ? !has_temporary(s->temporary)
                                                : s->words && !has_words(path, s->words)))
            if (!s->temporary) /* that one is there for a moment */
                usleep(1000);
        while (s->caught && !has_ended(pid) && !catches(pid, s->number))
            usleep(1000);
        usleep((useconds_t)s->pause);
        if (has_ended(pid))
            return;
        kill(pid, s->number);
    }
}

/* out NULL: nobody reads it. */
static f8_cli_result run_to(const char *out, const char *const *args)
{
    char *argv[MAX_ARGS] = {(char *)binary()}, err[PATH_ROOM + 300];
    for (int n = 0; args[n]; n++)
        argv[n + 1] = (char *)args[n];
    snprintf(err, sizeof err, "%s", f8_cli_temp(".stderr"));
    fflush(NULL);
    const pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0)
        child(0, argv, out, err);
    int status;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    free(last.out);
    free(last.err);
    last =
        (f8_cli_result){.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status)};
    last.out = strdup("");
    last.err = f8_cli_read(err, &last.n_err);
    return last;
}

f8_cli_result f8_cli_run_unread(const char *const *args)
{
    return run_to(NULL, args);
}

f8_cli_result f8_cli_run_full(const char *const *args)
{
    return run_to("/dev/full", args);
}

/* A pipe of packets keeps the writes apart, whoever is faster. */
f8_cli_result f8_cli_run_writes(const char *const *args)
{
    enum { ROOM = 1 << 20 };
    char *argv[MAX_ARGS] = {(char *)binary()}, err[PATH_ROOM + 300], *text = malloc(ROOM);
    int fd[2], status;
    size_t n = 0;
    for (int i = 0; args[i]; i++)
        argv[i + 1] = (char *)args[i];
    snprintf(err, sizeof err, "%s", f8_cli_temp(".stderr"));
    ck_assert(text && !pipe2(fd, O_DIRECT));
    fflush(NULL);
    const pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        close(fd[0]);
        child_to(0, argv, fd[1], err);
    }
    close(fd[1]);
    for (ssize_t got; n + 8192 < ROOM && (got = read(fd[0], text + n, 8192)) > 0;) {
        n += (size_t)got;
        text[n++] = F8_CLI_WRITE;
    }
    text[n] = 0;
    close(fd[0]);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    free(last.out);
    free(last.err);
    last = (f8_cli_result){.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
                           .out = text,
                           .n_out = n};
    last.err = f8_cli_read(err, &last.n_err);
    return last;
}

/* signals: may be NULL. */
static void run_once(size_t limit, char *const *argv, const f8_cli_signal *signals)
{
    char out[PATH_ROOM + 300], err[PATH_ROOM + 300];
    snprintf(out, sizeof out, "%s", f8_cli_temp(".stdout"));
    snprintf(err, sizeof err, "%s", f8_cli_temp(".stderr"));
    unlink(err);
    fflush(NULL);
    const pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0)
        child(limit, argv, out, err);
    if (signals)
        send_signals(pid, err, signals);
    int status;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    free(last.out);
    free(last.err);
    last.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    last.out = f8_cli_read(out, &last.n_out);
    last.err = f8_cli_read(err, &last.n_err);
}

static f8_cli_result run_file(size_t bytes, const char *const *args, const f8_cli_signal *signals)
{
    char *argv[MAX_ARGS] = {(char *)binary()};
    for (int n = 0; args[n]; n++) {
        ck_assert_int_lt(n, MAX_ARGS - 2);
        argv[n + 1] = (char *)args[n];
    }
    run_once(bytes, argv, signals);
    if (tool_failed(last.err))
        run_once(bytes, argv, signals);
    ck_assert_msg(last.code < 125 || last.code > 126, "%s can't be run", argv[0]);
    ck_assert_msg(!strstr(last.err, "ERROR: ") && !strstr(last.err, "runtime error:"), "%s",
                  last.err); /* "==PID==ERROR: AddressSanitizer: ..." */
    return last;
}

f8_cli_result f8_cli_run_within(size_t bytes, const char *const *args)
{
    return run_file(bytes, args, NULL);
}

f8_cli_result f8_cli_run_interrupted(const char *at, const char *const *args)
{
    return f8_cli_run_signals((const f8_cli_signal[]){{.number = SIGINT, .words = at}, {0}}, args);
}

f8_cli_result f8_cli_run_signals(const f8_cli_signal *signals, const char *const *args)
{
    return run_file(0, args, signals);
}

/* What the process writes is small against a terminal's buffer only if somebody reads on: the
 * reader is this process, until the last writer is gone. */
static size_t read_terminal(int terminal, char *text, size_t room)
{
    size_t n = 0;
    ssize_t got;
    while (n + 1 < room && (got = read(terminal, text + n, room - n - 1)) > 0)
        n += (size_t)got;
    text[n] = 0;
    return n;
}

/* The terminal is stdout, or stderr; the other is a file. */
static f8_cli_result run_on_terminal(const char *const *args, bool is_out)
{
    enum { ROOM = 1 << 20 };
    char *argv[MAX_ARGS] = {(char *)binary()}, *text = malloc(ROOM), file[PATH_ROOM + 300];
    for (int n = 0; args[n]; n++)
        argv[n + 1] = (char *)args[n];
    snprintf(file, sizeof file, "%s", f8_cli_temp(is_out ? ".stderr" : ".stdout"));
    const int terminal = posix_openpt(O_RDWR | O_NOCTTY);
    ck_assert(text && terminal >= 0 && !grantpt(terminal) && !unlockpt(terminal));
    char *name = ptsname(terminal);
    fflush(NULL);
    const pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        close(terminal);
        child(0, argv, is_out ? name : file, is_out ? file : name);
    }
    int status;
    const size_t n = read_terminal(terminal, text, ROOM);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    close(terminal);
    free(last.out);
    free(last.err);
    last =
        (f8_cli_result){.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status)};
    *(is_out ? &last.out : &last.err) = text;
    *(is_out ? &last.n_out : &last.n_err) = n;
    size_t n_file;
    char *filed = f8_cli_read(file, &n_file);
    *(is_out ? &last.err : &last.out) = filed;
    *(is_out ? &last.n_err : &last.n_out) = n_file;
    return last;
}

f8_cli_result f8_cli_run_on_terminal(const char *const *args)
{
    return run_on_terminal(args, false);
}

f8_cli_result f8_cli_run_to_terminal(const char *const *args)
{
    return run_on_terminal(args, true);
}

f8_cli_result f8_cli_run(const char *const *args)
{
    return f8_cli_run_within(0, args);
}

void f8_cli_ok(f8_cli_result r)
{
    ck_assert_msg(r.code == 0, "exit %d: %s", r.code, r.err);
    ck_assert_str_eq(r.err, "");
}

void f8_cli_fails(f8_cli_result r, int code, const char *message)
{
    ck_assert_msg(r.code == code, "exit %d, not %d: %s", r.code, code, r.err);
    ck_assert_msg(strstr(r.err, message) != NULL, "'%s' does not say '%s'", r.err, message);
    ck_assert_str_eq(r.out, "");
    ck_assert_msg(r.n_err < 5000 && r.n_err > 0 && r.err[r.n_err - 1] == '\n', "%s", r.err);
}
