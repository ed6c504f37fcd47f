/* How ranks with a GPU each join: by an id that the caller has brought to them or by the
 * environment, ranks that don't fit together, that come late or never. Ranks are threads; the GPUs
 * and NCCL are the emulator's. */
#include <dlfcn.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "frontend/fp8c_ranks.h"
#include "ir/base/clock.h"
#include "tests/shared/api/api.h"
#include "tests/shared/api/rank_gpu.h"
#include "tests/shared/api/rank_threads.h"
#include "tests/shared/suite.h"

enum { RANKS = 2 };

static void has(const char *said, const char *words)
{
    ck_assert_msg(strstr(said, words), "'%s' is not in: %s", words, said);
}

/* Ranks that have the id by other means. */
typedef struct by_id {
    char id[FP8C_NCCL_ID];
    int ranks[RANKS]; /* how many each says there are */
    bool environment;
    double seconds;
    int late[RANKS]; /* tenths of a second until each calls; -1: it never does */
    fp8c_status status[RANKS];
    char said[RANKS][1024];
    int got[RANKS];
} by_id;

static void join_by_id(const fp8c_comm *comm, void *user)
{
    by_id *b = user;
    const int r = comm->rank;
    int32_t all[RANKS] = {0}, mine = 7 + r;
    fp8c_context *ctx;
    fp8c_nccl *nccl;
    fp8c_comm own = {.struct_size = sizeof own};
    const fp8c_nccl_options o = {.struct_size = sizeof o,
                                 .device = r,
                                 .rank = r,
                                 .ranks = b->ranks[r],
                                 .id = b->environment ? NULL : b->id,
                                 .seconds = b->seconds};
    if (b->late[r] < 0)
        return;
    for (int i = 0; i < b->late[r] * 10; i++)
        usleep(10000); /* by small steps: the time for which the process is stopped is not in it */
    fp8c_context_create(NULL, &ctx);
    b->status[r] = fp8c_nccl_open(ctx, &o, &own, &nccl);
    if (b->status[r] == FP8C_OK && own.all_gather(own.user, &mine, all, sizeof mine) == 0)
        b->got[r] = all[0] * 100 + all[1];
    snprintf(b->said[r], sizeof b->said[r], "%s", fp8c_context_message(ctx));
    fp8c_nccl_close(nccl);
    fp8c_context_destroy(ctx);
}

START_TEST(joined_by_id)
{
    by_id b = {.ranks = {2, 2}};
    fp8c_context *ctx = new_context();
    ck_assert_int_eq(fp8c_nccl_id(ctx, b.id), FP8C_OK);
    fp8c_context_destroy(ctx);
    for (int i = 0; i < 2; i++) {
        ranks_run(RANKS, join_by_id, &b, NULL);
        for (int r = 0; r < RANKS; r++) {
            ck_assert_msg(b.status[r] == FP8C_OK, "%s", b.said[r]);
            ck_assert_int_eq(b.got[r], 708);
        }
        rank_gpu_nothing_left();
        b = (by_id){.ranks = {2, 2}, .environment = true};
        setenv("NCCL_COMM_ID", "127.0.0.1:29511", 1);
    }
    unsetenv("NCCL_COMM_ID");
}
END_TEST

START_TEST(other_worlds)
{
    by_id b = {.ranks = {2, 3}};
    fp8c_context *ctx = new_context();
    ck_assert_int_eq(fp8c_nccl_id(ctx, b.id), FP8C_OK);
    fp8c_context_destroy(ctx);
    ranks_run(RANKS, join_by_id, &b, NULL);
    for (int r = 0; r < RANKS; r++) {
        ck_assert_int_eq(b.status[r], FP8C_ERR_LIBRARY);
        has(b.said[r], "joining the other ranks: NCCL: invalid usage");
    }
    rank_gpu_nothing_left();
}
END_TEST

/* ---- ranks that come late, or never ---- */

/* NCCL stays loaded, so that communicators that are left are counted. */
static void make_id(by_id *b)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/libnccl.so.2", getenv("FP8C_CUDA_PATH"));
    ck_assert_msg(dlopen(path, RTLD_NOW) != NULL, "%s", dlerror());
    fp8c_context *ctx = new_context();
    ck_assert_int_eq(fp8c_nccl_id(ctx, b->id), FP8C_OK);
    fp8c_context_destroy(ctx);
}

/* The limit holds long before the stand-in itself gives up. */
START_TEST(a_rank_never_comes)
{
    const int there = _i;
    by_id b = {.ranks = {2, 2}, .seconds = 1, .late = {-!!there, -!there}};
    char words[128];
    make_id(&b);
    setenv("FP8C_EMULATOR_NCCL_SECONDS", "20", 1);
    const double begin = f8_seconds_now();
    ranks_run(RANKS, join_by_id, &b, NULL);
    const double took = f8_seconds_now() - begin;
    ck_assert_int_eq(b.status[there], FP8C_ERR_LIBRARY);
    snprintf(words, sizeof words, "rank %d of 2: joining the other ranks: it has waited for 1.",
             there);
    has(b.said[there], words);
    has(b.said[there],
        " seconds for the others to join; the limit is 1: a rank is missing or stuck");
    ck_assert_msg(took < 10, "%g seconds", took);
    rank_gpu_nothing_left();
}
END_TEST

START_TEST(a_rank_comes_late)
{
    by_id b = {.ranks = {2, 2}, .seconds = 20};
    make_id(&b);
    b.late[_i] = 15;
    ranks_run(RANKS, join_by_id, &b, NULL);
    for (int r = 0; r < RANKS; r++) {
        ck_assert_msg(b.status[r] == FP8C_OK, "%s", b.said[r]);
        ck_assert_int_eq(b.got[r], 708);
    }
    rank_gpu_nothing_left();
}
END_TEST

/* All have come, but one fails before the first exchange, and NCCL does not notice that it is gone.
 */
START_TEST(stuck_in_the_first_exchange)
{
    by_id b = {.ranks = {2, 2}, .seconds = 1};
    make_id(&b);
    setenv("FP8C_EMULATOR_NCCL_SILENT", "1", 1);
    setenv("FP8C_EMULATOR_FAIL", "ncclAllGather:2", 1);
    ranks_run(RANKS, join_by_id, &b, NULL);
    const int waits = strstr(b.said[0], "fails as asked") ? 1 : 0;
    for (int r = 0; r < RANKS; r++)
        ck_assert_int_eq(b.status[r], FP8C_ERR_LIBRARY);
    has(b.said[!waits], "all_gather 'of host memory' in this process: NCCL: internal error");
    has(b.said[waits], "joining the other ranks: it has waited for 1.");
    rank_gpu_nothing_left();
}
END_TEST

/* A communicator that can't be left in order is aborted. */
START_TEST(leaving_fails)
{
    static const char *const fails[] = {"ncclCommFinalize", "ncclCommDestroy"};
    by_id b = {.ranks = {2, 2}, .seconds = 20};
    make_id(&b);
    setenv("FP8C_EMULATOR_FAIL", fails[_i], 1);
    ranks_run(RANKS, join_by_id, &b, NULL);
    for (int r = 0; r < RANKS; r++)
        ck_assert_msg(b.status[r] == FP8C_OK, "%s", b.said[r]);
    rank_gpu_nothing_left();
}
END_TEST

/* A process that is stopped for longer than the limit does not blame the others when it goes on. */
START_TEST(stopped_while_joining)
{
    const pid_t pid = fork();
    int status;
    if (pid == 0) {
        by_id b = {.ranks = {2, 2}, .seconds = 3, .late = {0, 20}};
        make_id(&b);
        ranks_run(RANKS, join_by_id, &b, NULL);
        if (b.status[0] != FP8C_OK)
            fprintf(stderr, "%s\n", b.said[0]);
        _exit(b.status[0] != FP8C_OK || b.got[0] != 708);
    }
    ck_assert_int_gt(pid, 0);
    usleep(1000000);
    ck_assert_int_eq(kill(pid, SIGSTOP), 0);
    usleep(5000000);
    ck_assert_int_eq(kill(pid, SIGCONT), 0);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *suite = suite_create("nccl joining");
    TCase *c = tcase_create("joining");
    tcase_set_timeout(c, 60);
    if (!rank_gpus("ranks with GPUs that join"))
        return NULL;
    tcase_add_test(c, joined_by_id);
    tcase_add_test(c, other_worlds);
    tcase_add_loop_test(c, a_rank_never_comes, 0, RANKS);
    tcase_add_loop_test(c, a_rank_comes_late, 0, RANKS);
    tcase_add_test(c, stuck_in_the_first_exchange);
    tcase_add_loop_test(c, leaving_fails, 0, 2);
    tcase_add_test(c, stopped_while_joining);
    suite_add_tcase(suite, c);
    return suite;
}
