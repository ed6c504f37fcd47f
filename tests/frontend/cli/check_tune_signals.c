/* fp8c tune of GEMMs alone while its processes are killed, or it is interrupted or killed itself:
 * who ends, what is said, and that what was measured stays. */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

#include "runtime/tune/tuning_db.h"
#include "tests/shared/api/tune_case.h"

/* ---- signals ---- */

/* Long enough that each process is found at work. */
#define LONG                                                                                       \
    "--gemm", "64x384x384:f8e4m3", "--gemm", "96x384x384:f8e4m3", "--runs", "20", "--cache",       \
        "warm", "--threads", "1"

/* A process has so many that it would not end within the time of a test. */
#define MANY "--gemm", "64..1063+1x384x384:f8e4m3", "--cache", "warm", "--threads", "1"

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The command, in a group of its own; its messages go to `other`. */
static pid_t start(const char *const *args)
{
    char *argv[40] = {0}, exe[PATH];
    const char *given = getenv("FP8C");
    const ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 8);
    ck_assert_int_gt(n, 0);
    exe[n] = 0;
    for (int up = 0; up < 2; up++)
        *strrchr(exe, '/') = 0;
    strcat(exe, "/fp8c");
    argv[0] = given && *given ? (char *)given : exe;
    for (int i = 0; args[i]; i++)
        argv[i + 1] = (char *)args[i];
    const pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid)
        return pid;
    const int null = open("/dev/null", O_RDWR), e = open(other, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    setpgid(0, 0);
    signal(SIGINT, SIG_DFL);
    dup2(null, 0);
    dup2(null, 1);
    dup2(e, 2);
    execv(argv[0], argv);
    _exit(126);
}

/* Its state and its parent; 0: there is none. */
static char state_of(pid_t pid, pid_t *parent)
{
    char path[64], text[512] = "", state = 0;
    int ppid = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "r");
    if (!f)
        return 0;
    const size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = 0;
    const char *end = strrchr(text, ')');
    if (!end || sscanf(end + 1, " %c %d", &state, &ppid) != 2)
        return 0;
    *parent = ppid;
    return state;
}

/* The process that it started, other than `before`, once that handles signals. */
static pid_t child_of(pid_t pid, pid_t before)
{
    for (const double begin = now(); now() - begin < 60; nap()) {
        DIR *d = opendir("/proc");
        pid_t found = 0;
        for (struct dirent *e; d && (e = readdir(d));) {
            const pid_t it = (pid_t)atoi(e->d_name);
            pid_t parent;
            if (it > 0 && it != before && state_of(it, &parent) && parent == pid)
                found = it;
        }
        closedir(d);
        char path[64], line[256];
        unsigned long long caught = 0;
        snprintf(path, sizeof path, "/proc/%d/status", (int)found);
        FILE *f = found ? fopen(path, "r") : NULL;
        while (f && fgets(line, sizeof line, f))
            sscanf(line, "SigCgt: %llx", &caught);
        if (f)
            fclose(f);
        if (caught & 1ull << (SIGTERM - 1))
            return found;
    }
    ck_abort_msg("no process was started");
    return 0;
}

static int end_of(pid_t pid)
{
    int status;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Fails unless the process, which is not ours, soon is no more. */
static void ends(pid_t pid)
{
    pid_t parent;
    char state = 1;
    for (const double begin = now(); state && state != 'Z' && now() - begin < 20; nap())
        state = state_of(pid, &parent);
    ck_assert_msg(!state || state == 'Z', "process %d goes on", (int)pid);
}

static void database_is_whole(void)
{
    f8_db db;
    f8_diag diag = {0};
    f8_arena arena;
    sqlite3_stmt *s;
    bool row;
    f8_arena_init(&arena, NULL);
    ck_assert_int_eq(f8_db_open(&db, f8_cli_temp("tuning.db"), F8_DB_WRITE, 5000, &diag), F8_OK);
    ck_assert_int_eq(f8_db_prepare(&db, "PRAGMA integrity_check", 0, NULL, &s, &diag), F8_OK);
    ck_assert_int_eq(f8_db_step(&db, s, &row, &diag), F8_OK);
    ck_assert_str_eq(f8_db_text(&db, s, 0, &arena), "ok");
    db.api.sqlite3_finalize(s);
    f8_db_close(&db);
    f8_arena_end(&arena);
}

static char *said(void)
{
    size_t n;
    return f8_cli_read(other, &n);
}

/* A process that measures is killed, the second of 3: there is a message, and what the first one
 * measured stays. */
static const int kills[] = {SIGKILL, SIGABRT, SIGHUP, SIGTERM};

START_TEST(a_process_is_killed)
{
    char message[64];
    const pid_t pid =
        start((const char *const[]){"tune", LONG, "--processes", "3", "--json", json, NULL});
    const pid_t first = child_of(pid, 0), second = child_of(pid, first);
    kill(second, kills[_i]);
    ck_assert_int_eq(end_of(pid), 1);
    char *text = said();
    snprintf(message, sizeof message, "error: process 2, which measured, was ended by signal %d ",
             kills[_i]);
    ck_assert_msg(strstr(text, message) != NULL, "%s", text);
    ck_assert_msg(strchr(text, '\n') == strrchr(text, '\n'), "%s", text);
    free(text);
    size_t n;
    free(f8_cli_read(json, &n));
    ck_assert_uint_eq(n, 0);
    database_is_whole();
    /* going on */
    f8_cli_ok(F8_CLI("tune", LONG, "--processes", "2", "--json", json));
    records a = read_file(json);
    all_have(&a, 2);
    char id[32];
    bool kept = false;
    snprintf(id, sizeof id, "Z-%d", (int)first);
    for (size_t i = 0; i < a.n; i++)
        kept |= strstr(text_of(a.record[i], "id"), id) != NULL;
    ck_assert(kept);
    forget(&a);
}
END_TEST

/* Ctrl-C, to the command alone or to its group as a terminal does. */
START_TEST(interrupted)
{
    write_all("before\n");
    const pid_t pid = start((const char *const[]){"tune", MANY, "--processes", "5", FILES, NULL});
    const pid_t child = child_of(pid, 0);
    const double begin = now();
    kill(_i ? -pid : pid, SIGINT);
    ck_assert_int_eq(end_of(pid), 130);
    ck_assert_msg(now() - begin < (f8_cli_sanitized() ? 60 : 10), "%g s", now() - begin);
    ends(child);
    char *text = said();
    ck_assert_str_eq(text, "interrupted\n"
                           "the timings so far are saved; run this again to continue\n");
    free(text);
    all_are("before\n");
    f8_cli_whole(f8_cli_temp(""));
    f8_cli_ok(F8_CLI("tune", LONG, "--processes", "1", "--json", json));
    records a = read_file(json);
    all_have(&a, 1);
    forget(&a);
}
END_TEST

/* A command that is killed leaves no process behind. */
START_TEST(killed)
{
    const pid_t pid =
        start((const char *const[]){"tune", MANY, "--processes", "5", "--json", json, NULL});
    const pid_t child = child_of(pid, 0);
    nap();
    nap();
    kill(pid, SIGKILL);
    ck_assert_int_eq(end_of(pid), 128 + SIGKILL);
    ends(child);
    f8_cli_ok(F8_CLI("tune", LONG, "--processes", "1"));
    database_is_whole();
}
END_TEST

/* Who started it ignores the ends of its processes, as some services do. */
START_TEST(ends_are_ignored)
{
    signal(SIGCHLD, SIG_IGN);
    f8_cli_write("list.csv", "m,n,k,format\n16,16,16,f32\n", 26);
    const pid_t pid = fork();
    if (!pid) {
        const pid_t command =
            start((const char *const[]){"tune", LONG, "--processes", "2", "--json", json, NULL});
        kill(child_of(command, 0), SIGKILL);
        signal(SIGCHLD, SIG_DFL);
        _exit(0);
    }
    char *text = NULL;
    for (const double begin = now(); now() - begin < 60; nap()) {
        free(text);
        text = access(other, R_OK) ? strdup("") : said();
        if (strchr(text, '\n'))
            break;
    }
    ck_assert_msg(strstr(text, "process 1, which measured, was ended by signal 9") != NULL, "%s",
                  text);
    free(text);
    signal(SIGCHLD, SIG_DFL);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("tune_signals");
    TCase *t = tcase_create("tune_signals");
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_checked_fixture(t, setup, f8_cli_teardown);
    tcase_add_loop_test(t, a_process_is_killed, 0, (int)(sizeof kills / sizeof *kills));
    tcase_add_loop_test(t, interrupted, 0, 2);
    tcase_add_test(t, killed);
    tcase_add_test(t, ends_are_ignored);
    suite_add_tcase(s, t);
    return s;
}
