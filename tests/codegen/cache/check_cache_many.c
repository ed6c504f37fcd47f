/* The kernel cache shared by processes. Processes that compile the same kernels at the same time
 * share the work. A process killed at any moment leaves nothing that breaks another. */
#include "codegen/cache/cache.h"
#include "tests/shared/api/api_run.h"
#include "tests/shared/api/cli.h"
#include "tests/shared/random.h"
#include "tests/shared/suite.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ROOM = 4400, HEADER = 48, PROCESSES = 16, KILLS = 100 };

static char folder[ROOM];

static void clear(void)
{
    char command[ROOM + 20];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    ck_assert(system(command) == 0);
}

static void setup(void)
{
    f8_cli_setup();
    snprintf(folder, sizeof folder, "%s", f8_cli_temp("cache"));
    ck_assert(!setenv("FP8C_CACHE_DIR", folder, 1));
}

static void teardown(void)
{
    clear();
    f8_cli_teardown();
}

/* A little gpt in FP8, or what compiles sooner. */
static const fp8c_dim dims[] = {{"L", 1}, {"B", 2}, {"T", 16}, {"C", 32}};
static const f8_api_setup gpt = {.file = "frontend/models/gpt.f8",
                                 .dims = dims,
                                 .n_dims = 4,
                                 .options = {.recipe = "delayed", .threads = 1}};
static const f8_api_setup small = {.file = "tests/models/running.f8", .options = {.threads = 1}};

/* Some values for every input of micro_step, then that and update; false with r->failed. */
static bool step(f8_api_run *r)
{
    fp8c_port port;
    for (int i = 0; fp8c_program_port(r->program, r->step, FP8C_INPUT, i, &port) == FP8C_OK; i++) {
        void *to = fp8c_program_buffer(r->program, r->step, FP8C_INPUT, i);
        const int64_t n = fp8c_type_bytes(&port.type) / 4;
        for (int64_t k = 0; k < n && port.variable < 0; k++)
            if (port.type.dtype == FP8C_I32)
                ((int32_t *)to)[k] = (int32_t)(k * 7 % 13);
            else
                ((float *)to)[k] = (float)(k * 7 % 13 - 6) / 8;
    }
    if (fp8c_program_run(r->program, r->step) == FP8C_OK &&
        fp8c_program_run(r->program, r->update) == FP8C_OK)
        return true;
    r->failed = fp8c_context_message(r->ctx);
    return false;
}

/* What a process tells of itself. */
typedef struct outcome {
    int64_t kernels, cached, bytes;
    bool done;
    unsigned char state[1 << 20]; /* all variables after a step: parameters, moments, scales */
} outcome;

/* Compile, train a step, keep what came of it; false when something failed, which is printed. */
static bool train(const f8_api_setup *setup, outcome *out)
{
    f8_api_run r;
    fp8c_info info = {.struct_size = sizeof info};
    size_t n = 0;
    unsigned char *state = NULL;
    if (f8_api_open(&r, setup) && step(&r))
        state = f8_api_state(&r, &n);
    if (r.failed)
        fprintf(stderr, "process %d: %s\n", (int)getpid(), r.failed);
    if (state && n <= sizeof out->state) {
        fp8c_program_info(r.program, &info);
        out->kernels = info.distinct_kernels;
        out->cached = info.kernels_cached;
        out->bytes = (int64_t)n;
        memcpy(out->state, state, n);
        out->done = true;
    }
    free(state);
    f8_api_close(&r);
    return out->done;
}

static outcome *shared_outcomes(size_t n)
{
    void *p =
        mmap(NULL, n * sizeof(outcome), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert(p != MAP_FAILED);
    return p;
}

/* ---- what is in the folder ---- */

typedef struct content {
    int entries, torn, temporaries, removed;
} content;

/* By its own sizes and checksum. */
static bool is_whole(const char *path)
{
    size_t n;
    uint64_t size[2], sum[2];
    char *bytes = f8_cli_read(path, &n);
    bool whole = n >= HEADER && !memcmp(bytes, "fp8c\r\n\x1a", 8);
    if (whole) {
        memcpy(size, bytes + 16, sizeof size);
        memcpy(sum, bytes + 32, sizeof sum);
        whole = size[0] < n && size[1] < n && HEADER + size[0] + size[1] == n;
    }
    if (whole) {
        f8_hasher h;
        f8_hasher_begin(&h);
        f8_hasher_add(&h, bytes, 32);
        f8_hasher_add(&h, bytes + HEADER, n - HEADER);
        const f8_hash is = f8_hasher_end(&h);
        whole = is.lo == sum[0] && is.hi == sum[1];
    }
    free(bytes);
    return whole;
}

static void look_at(const char *path, uint32_t *seed, bool old, content *out)
{
    const size_t n = strlen(path);
    if (!strcmp(path + n - 4, ".tmp")) {
        const struct timespec then[2] = {{.tv_sec = 1000000000}, {.tv_sec = 1000000000}};
        out->temporaries++;
        ck_assert(!old || !utimensat(AT_FDCWD, path, then, 0));
        return;
    }
    out->entries++;
    out->torn += !is_whole(path);
    if (seed && test_random(seed) % 2 == 0) {
        ck_assert(!unlink(path));
        out->removed++;
    }
}

/* All files; with a seed half of the entries go, so that there is something to compile; with `old`
 * what was being written was so long ago. */
static content look(uint32_t *seed, bool old)
{
    content out = {0};
    for (int i = 0; i < 16; i++) {
        char shard[ROOM + 20];
        snprintf(shard, sizeof shard, "%s/kernels/%x", folder, i);
        DIR *d = opendir(shard);
        for (const struct dirent *e; d && (e = readdir(d));) {
            char path[ROOM + 300];
            snprintf(path, sizeof path, "%s/%s", shard, e->d_name);
            if (e->d_name[0] != '.')
                look_at(path, seed, old, &out);
        }
        if (d)
            closedir(d);
    }
    return out;
}

/* ---- tests ---- */

/* A claim is exclusive, and who gets it looks again, so each kernel is compiled once in all, unless
 * a process has waited for its build's 20 seconds: then it compiles what it still lacks itself. The
 * bound leaves room for that on a machine that is slow with sixteen at once. */
START_TEST(at_once)
{
    outcome *out = shared_outcomes(PROCESSES);
    pid_t pid[PROCESSES];
    int start[2];
    char byte;
    ck_assert(!pipe(start));
    fflush(NULL);
    for (int i = 0; i < PROCESSES; i++)
        if (!(pid[i] = fork())) {
            close(start[1]);
            _exit(read(start[0], &byte, 1) == 0 && train(&gpt, &out[i])
                      ? 0
                      : 1); /* all at the pipe's end */
        }
    close(start[0]);
    close(start[1]);
    int64_t compiled = 0;
    for (int i = 0; i < PROCESSES; i++) {
        int status;
        ck_assert(waitpid(pid[i], &status, 0) == pid[i]);
        ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "process %d: status %d", i,
                      status);
        ck_assert(out[i].done);
        compiled += out[i].kernels - out[i].cached;
        ck_assert_int_eq(out[i].kernels, out[0].kernels);
        ck_assert_int_eq(out[i].bytes, out[0].bytes);
        ck_assert(!memcmp(out[i].state, out[0].state, (size_t)out[0].bytes));
    }
    printf("%d processes: %lld kernels, %lld compilations\n", PROCESSES, (long long)out[0].kernels,
           (long long)compiled);
    ck_assert_int_gt(out[0].kernels, 20);
    ck_assert_int_ge(compiled, out[0].kernels);
    ck_assert_int_le(compiled, 2 * out[0].kernels);
    const content c = look(NULL, false);
    ck_assert_int_eq(c.entries, out[0].kernels + 1); /* and what LLVM it is */
    ck_assert_int_eq(c.torn, 0);
    ck_assert_int_eq(c.temporaries, 0);
    munmap(out, PROCESSES * sizeof *out);
}
END_TEST

static void sleep_for(double seconds)
{
    const struct timespec t = {(time_t)seconds, (long)(1e9 * (seconds - (double)(time_t)seconds))};
    nanosleep(&t, NULL);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Let a process do `work`, and kill it after `seconds`; whether it came to its end before. */
static bool run_and_kill(bool (*work)(void), double seconds)
{
    int status;
    fflush(NULL);
    const pid_t pid = fork();
    if (!pid)
        _exit(work() ? 0 : 1);
    sleep_for(seconds);
    kill(pid, SIGKILL);
    ck_assert(waitpid(pid, &status, 0) == pid);
    ck_assert_msg(WIFSIGNALED(status) || WEXITSTATUS(status) == 0, "status %d", status);
    return WIFEXITED(status);
}

static bool compile(void)
{
    f8_api_run r;
    const bool done = f8_api_open(&r, &small);
    f8_api_close(&r);
    return done;
}

START_TEST(killed_compiling)
{
    uint32_t seed = 20261121;
    printf("seed %u\n", seed);
    outcome *out = shared_outcomes(2);
    ck_assert(train(&small, &out[0])); /* LLVM stays with this process, and is with all it forks */
    clear();
    const double start = now();
    ck_assert(compile());
    const double life = now() - start;
    int killed = 0, within = 0;
    for (int i = 0; i < KILLS; i++) {
        const content c = look(&seed, false);
        ck_assert_int_eq(c.torn, 0);
        killed += !run_and_kill(compile, 0.7 * life * (double)test_random(&seed) / (1 << 24));
        const int n = look(NULL, false).entries;
        within += n > c.entries - c.removed && n < out[0].kernels;
    }
    printf("%d of %d were killed before their end, %d with some kernels stored and some not\n",
           killed, KILLS, within);
    ck_assert_int_gt(killed, KILLS / 10);
    ck_assert(train(&small, &out[1]));
    ck_assert(!memcmp(out[1].state, out[0].state, (size_t)out[0].bytes));
    const content c = look(NULL, false);
    ck_assert_int_eq(c.entries, out[0].kernels); /* LLVM was there from the start */
    ck_assert_int_eq(c.torn, 0);
    munmap(out, 2 * sizeof *out);
}
END_TEST

enum { KEYS = 48, LONG = 200000 };

static void fill(uint8_t *value, int key)
{
    for (int i = 0; i < LONG; i++)
        value[i] = (uint8_t)(key * 31 + i);
}

static f8_cache_key key_of(int i, char text[16])
{
    snprintf(text, 16, "key %d", i);
    return f8_cache_key_of(text, strlen(text));
}

static f8_cache *open_cache(void)
{
    f8_cache *c;
    f8_diag why = {0};
    return f8_cache_open(&(f8_cache_options){.folder = folder}, &c, &why) == F8_OK ? c : NULL;
}

static bool store(void)
{
    static uint8_t value[LONG];
    char text[16];
    f8_cache *c = open_cache();
    for (int i = 0; c && i >= 0; i = (i + 1) % KEYS) { /* until it is killed */
        const f8_cache_key key = key_of(i, text);
        fill(value, i);
        f8_cache_put(c, &key, value, sizeof value);
    }
    return false;
}

/* Kill one that is writing. At random moments a process may not even have begun, where others have
 * the CPUs, so this one is stopped until a file that it has begun is there. */
static void kill_while_it_writes(uint32_t *seed)
{
    const int before = look(NULL, false).temporaries;
    int status;
    fflush(NULL);
    const pid_t pid = fork();
    if (!pid)
        _exit(store() ? 0 : 1);
    do {
        ck_assert(!kill(pid, SIGCONT));
        sleep_for(0.001 * (double)test_random(seed) / (1 << 24));
        ck_assert(!kill(pid, SIGSTOP));
        ck_assert(waitpid(pid, &status, WUNTRACED) == pid);
        ck_assert_msg(WIFSTOPPED(status), "status %d", status);
    } while (look(NULL, false).temporaries == before);
    ck_assert(!kill(pid, SIGKILL));
    ck_assert(waitpid(pid, &status, 0) == pid);
}

/* Most of the time of these goes into writing, so that is where most die. */
START_TEST(killed_storing)
{
    static uint8_t value[LONG];
    uint32_t seed = 20261122;
    char text[16];
    f8_arena arena;
    printf("seed %u\n", seed);
    for (int i = 0; i < KILLS; i++)
        run_and_kill(store, 0.01 * (double)test_random(&seed) / (1 << 24));
    kill_while_it_writes(&seed);
    const content c = look(NULL, true);
    printf("%d entries, %d files that were being written\n", c.entries, c.temporaries);
    ck_assert_int_gt(c.entries, 0);
    ck_assert_int_eq(c.torn, 0);
    ck_assert_int_gt(c.temporaries, 0);
    ck_assert_int_le(c.temporaries, KILLS + 1);
    f8_cache *cache = open_cache();
    f8_arena_init(&arena, NULL);
    for (int i = 0; i < KEYS; i++) {
        f8_cache_value v;
        const f8_cache_key key = key_of(i, text);
        fill(value, i);
        if (f8_cache_get(cache, &key, &arena, &v))
            ck_assert(v.size == LONG && !memcmp(v.bytes, value, LONG));
        f8_cache_put(cache, &key, value, LONG);
        ck_assert(f8_cache_get(cache, &key, &arena, &v));
    }
    ck_assert_int_eq(look(NULL, false).temporaries,
                     0); /* every part that a store went to had another */
    f8_arena_end(&arena);
    f8_cache_close(cache);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("cache_many");
    TCase *t = tcase_create("processes");
    tcase_set_timeout(t, 120);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, at_once);
    tcase_add_test(t, killed_compiling);
    tcase_add_test(t, killed_storing);
    suite_add_tcase(s, t);
    return s;
}
