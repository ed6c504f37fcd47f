/* Ranks of a training without the command: what a watching thread says of another process that is
 * gone, stopped or late, and that the caller ends the job; what ranks tell each other, compare, and
 * what a failure says. */
#include <errno.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "frontend/train/ranks/ranks.h"
#include "tests/shared/suite.h"

enum { RANKS = 2, SECONDS = 20, TERM = 15 };

static struct {
    char text[4096]; /* all that was said */
    int ended, own;  /* own: calls of `gone` */
    int32_t reason;  /* of this rank to stop */
    int pair[2];     /* between the two processes; [0] is rank 0's */
    sem_t end;
} seen;

static void say(void *user, const char *text)
{
    (void)user;
    strncat(seen.text, text, sizeof seen.text - strlen(seen.text) - 1);
}

static void gone_now(void *user, const char *text)
{
    say(user, text);
    seen.own++;
}

/* A rank that waits for bytes gets none any more. */
static void end(void *user, fp8c_mpi *mpi)
{
    (void)user;
    ck_assert_ptr_null(mpi);
    seen.ended++;
    shutdown(seen.pair[0], SHUT_RDWR);
    sem_post(&seen.end);
}

static int32_t stopped(void *user)
{
    (void)user;
    return seen.reason;
}

static void stop(void *user, int32_t reason)
{
    (void)user;
    seen.reason = reason;
}

static f8_ranks_options options = {.limit_name = "the limit",
                                   .call = {NULL, say, gone_now, end, stopped, stop}};

/* ---- two processes ---- */

static int transfer(int to, const void *send, void *receive, size_t bytes)
{
    size_t done = 0;
    if (write(to, send, bytes) != (ssize_t)bytes)
        return 1;
    while (done < bytes) {
        const ssize_t n = read(to, (char *)receive + done, bytes - done);
        if (n == 0 || (n < 0 && errno != EINTR))
            return 1;
        done += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

/* `user` is this rank's number. */
static int gather(void *user, const void *send, void *receive, size_t bytes)
{
    const size_t rank = *(const int *)user;
    memcpy((char *)receive + rank * bytes, send, bytes);
    return transfer(seen.pair[rank], send, (char *)receive + (1 - rank) * bytes, bytes);
}

static int number[RANKS] = {0, 1};

/* Rank 1 joins rank 0 and then sleeps until it is killed. */
static pid_t start_other(void)
{
    const pid_t pid = fork();
    if (pid)
        return pid;
    f8_ranks_options own = {.limit_name = "the limit", .call = options.call};
    f8_ranks r = {.options = &own,
                  .comm = {.struct_size = sizeof r.comm,
                           .rank = 1,
                           .ranks = RANKS,
                           .user = &number[1],
                           .all_gather = gather}};
    f8_diag diag = {0};
    alarm(SECONDS);
    if (f8_ranks_watch(&r, &diag) != F8_OK)
        _exit(1);
    for (;;)
        pause();
}

static f8_ranks ranks;
static pid_t other;

static void begin(double limit)
{
    f8_diag diag = {0};
    memset(&seen, 0, sizeof seen);
    sem_init(&seen.end, 0, 0);
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, seen.pair), 0);
    options.limit = limit;
    other = start_other();
    ck_assert_int_gt(other, 0);
    ranks = (f8_ranks){.options = &options,
                       .comm = {.struct_size = sizeof ranks.comm,
                                .rank = 0,
                                .ranks = RANKS,
                                .user = &number[0],
                                .all_gather = gather}};
    ck_assert_msg(f8_ranks_watch(&ranks, &diag) == F8_OK, "%s", diag.text);
}

/* Waits until the thread has ended the job. */
static void await_end(void)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += SECONDS;
    ck_assert_msg(!sem_timedwait(&seen.end, &until), "nobody has ended the job");
}

static void finish(void)
{
    kill(other, SIGKILL);
    waitpid(other, NULL, 0);
    f8_peers_end(ranks.peers, true);
    close(seen.pair[0]);
    close(seen.pair[1]);
    sem_destroy(&seen.end);
}

/* The text that was said has these parts, in this order. */
static void said(const char *const part[], int n)
{
    const char *at = seen.text;
    for (int i = 0; i < n; i++) {
        const char *found = strstr(at, part[i]);
        ck_assert_msg(found, "no '%s' in: %s", part[i], seen.text);
        at = found + strlen(part[i]);
    }
}
#define SAID(...)                                                                                  \
    said((const char *const[]){__VA_ARGS__}, sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *))

START_TEST(gone)
{
    char process[32];
    begin(0);
    kill(other, SIGKILL);
    await_end();
    snprintf(process, sizeof process, ", process %d)", (int)other);
    ck_assert(!strncmp(seen.text, "rank 1 (host ", 13));
    SAID(process, " is gone: it has been in no collective yet\n");
    ck_assert_int_eq(seen.ended, 1);
    finish();
    ck_assert_int_eq(seen.ended, 1);
}
END_TEST

/* This rank waits for one that does not come. */
static void wait_in_vain(int signal)
{
    f8_diag diag = {0};
    int32_t mine = 0, all[RANKS];
    begin(0.3);
    if (signal)
        kill(other, signal);
    f8_peers_step(ranks.peers, 3, 1);
    ck_assert_int_eq(f8_ranks_gather(&ranks, "words", &mine, all, sizeof mine, &diag),
                     F8_ERR_LIBRARY);
    ck_assert_str_eq(diag.text, "the ranks can't exchange bytes");
    ck_assert(ranks.lost);
    await_end();
    ck_assert_int_eq(seen.ended, 1);
}

START_TEST(late)
{
    wait_in_vain(0);
    SAID("rank 0 (host ", " has waited for 0.", " in collective 1, all_gather of 'words', step 3",
         "; the limit is 0.3\n", "  rank 1 (host ",
         " has not arrived: it has been in no collective yet\n");
    finish();
}
END_TEST

START_TEST(is_stopped)
{
    wait_in_vain(SIGSTOP);
    SAID(" has not arrived, and is stopped (SIGSTOP): it has been in no collective yet\n");
    finish();
}
END_TEST

/* A rank that fails itself says who is stopped, and ends nothing. */
START_TEST(at_the_end)
{
    begin(0);
    kill(other, SIGSTOP);
    for (int i = 0; i < 100 && waitpid(other, NULL, WUNTRACED | WNOHANG) == 0; i++)
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    f8_peers_end(ranks.peers, true);
    ranks.peers = NULL;
    ck_assert(!strncmp(seen.text, "rank 1 (host ", 13));
    SAID(" is stopped (SIGSTOP): it has been in no collective yet\n");
    ck_assert_int_eq(seen.own, 1);
    ck_assert_int_eq(seen.ended, 0);
    finish();
}
END_TEST

/* ---- one process that plays both ---- */

/* What rank 1 sends; NULL: the same as rank 0. */
static const void *answer;
static int failing;

static int play(void *user, const void *send, void *receive, size_t bytes)
{
    (void)user;
    memcpy(receive, send, bytes);
    memcpy((char *)receive + bytes, answer ? answer : send, bytes);
    return failing;
}

static const char *why(void *user)
{
    (void)user;
    return "the wire is cut";
}

static f8_ranks played(void)
{
    memset(&seen, 0, sizeof seen);
    answer = NULL;
    failing = 0;
    return (f8_ranks){
        .options = &options,
        .comm = {
            .struct_size = sizeof(fp8c_comm), .ranks = RANKS, .all_gather = play, .message = why}};
}

START_TEST(told)
{
    f8_ranks r = played();
    f8_diag diag = {0};
    const int32_t stops[2] = {TERM, 0}, flagged[2] = {0, 1};
    bool flag = false;
    ck_assert(!f8_ranks_tell(&r, &flag, &diag) && !flag && !r.stopped);
    answer = flagged;
    ck_assert(!f8_ranks_tell(&r, &flag, &diag) && flag && !r.stopped);
    ck_assert_int_eq(seen.reason, 0);
    answer = stops;
    ck_assert(f8_ranks_tell(&r, NULL, &diag) && r.stopped);
    ck_assert_int_eq(seen.reason, TERM); /* of the other, noted here */
    ck_assert_int_eq(diag.status, F8_OK);
}
END_TEST

/* The message is one: later exchanges fail without another. */
START_TEST(lost)
{
    f8_ranks r = played();
    f8_diag diag = {0}, later = {0};
    failing = 1;
    ck_assert(f8_ranks_tell(&r, NULL, &diag) && r.lost && !r.stopped);
    ck_assert_str_eq(diag.text, "the wire is cut");
    failing = 0;
    ck_assert(f8_ranks_tell(&r, NULL, &later));
    ck_assert_int_eq(later.status, F8_OK);
}
END_TEST

START_TEST(agreed)
{
    f8_ranks r = played();
    f8_diag diag = {0};
    const f8_ranks_fact mine[3] = {{"--steps", {1, 2}}, {"--seed", {3, 4}}, {"--lr", {5, 6}}};
    const f8_hash other_hash[3] = {{1, 2}, {3, 5}, {5, 7}};
    ck_assert_int_eq(f8_ranks_agree_facts(&r, "the options", mine, 3, &diag), F8_OK);
    ck_assert_int_eq(f8_ranks_agree(&r, "the model", "module a", &diag), F8_OK);
    ck_assert_int_eq(f8_ranks_agree(NULL, "the model", "module a", &diag), F8_OK);
    ck_assert(!r.common);
    answer = other_hash;
    ck_assert_int_eq(f8_ranks_agree_facts(&r, "the options", mine, 3, &diag), F8_ERR_INPUT);
    ck_assert_str_eq(diag.text, "--seed of rank 1 differs from that of rank 0");
    ck_assert(r.common && !r.lost);
}
END_TEST

static int alone(void *user, const void *send, void *receive, size_t bytes)
{
    (void)user;
    memcpy(receive, send, bytes);
    return 0;
}

START_TEST(no_folder)
{
    f8_ranks r = played();
    f8_diag diag = {0};
    r.comm.ranks = 1;
    r.comm.all_gather = alone;
    ck_assert_msg(f8_ranks_watch(&r, &diag) == F8_OK, "%s", diag.text);
    ck_assert_int_eq(f8_peers_folder(r.peers, "/nowhere/run", &diag), F8_ERR_IO);
    f8_peers_end(r.peers, true);
    ck_assert_str_eq(diag.file, "/nowhere/run/ranks"); /* it lives on in r.path */
    ck_assert_str_eq(diag.text, "can't make the folder: No such file or directory");
    ck_assert_str_eq(seen.text, "");
    ck_assert_int_eq(f8_peers_folder(NULL, "/nowhere/run", &diag), F8_OK);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("train_ranks");
    TCase *c = tcase_create("two processes");
    tcase_set_timeout(c, 2 * SECONDS);
    tcase_add_test(c, gone);
    tcase_add_test(c, late);
    tcase_add_test(c, is_stopped);
    tcase_add_test(c, at_the_end);
    suite_add_tcase(s, c);
    c = tcase_create("exchanges");
    tcase_add_test(c, told);
    tcase_add_test(c, lost);
    tcase_add_test(c, agreed);
    tcase_add_test(c, no_folder);
    suite_add_tcase(s, c);
    return s;
}
