/* Memory that ends inside oneDNN and LLVM. Each allocation of theirs is failed in a child of its
 * own, forked at that allocation. A child ends with a status, or dies inside the library, as
 * frontend/README.md says: never in fp8c's code, never with a wrong result, never by hanging. After
 * a status the same work succeeds in the same process, with the same bits.
 *
 * FP8C_EVERY=K fails every K-th allocation, 1 each; FP8C_TABLE=1 prints the table of README.md,
 * FP8C_EACH=1 each child. */
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "frontend/fp8c.h"
#include "tests/faults/no_memory.h"
#include "tests/shared/api/cli.h"
#include "tests/shared/suite.h"

enum { SECONDS = 60, CALLS = 200, BYTES = 1 << 20 };

/* ---- the work ---- */

static const char text[] =
    "module m\n"
    "dim B = 2, T = 8, C = 32, V = 48\n"
    "param wte: f32[V, C] normal(0.02)\n"
    "param qkv: f32[C, 3*C] normal(0.02)\n"
    "func forward(%tokens: i32[B, T], %targets: i32[B, T]) -> (%loss: f32[]) {\n"
    "  %x = embedding(wte, %tokens)\n"
    "  %y = linear(%x, qkv)\n"
    "  %q = slice(%y) {axis = -1, start = 0, stop = C}\n"
    "  %k = slice(%y) {axis = -1, start = C, stop = 2*C}\n"
    "  %v = slice(%y) {axis = -1, start = 2*C, stop = 3*C}\n"
    "  %a = attention(%q, %k, %v) {heads = 2}\n"
    "  return cross_entropy(linear(%a, wte) {transpose_b = true, name = \"head\"}, %targets)\n"
    "}\n"
    "optimizer adamw {lr = 0.01, clip = 1}\n";

typedef struct work {
    const char *recipe, *cache; /* the folder of kernels; "": none */
    int threads;
} work;

typedef struct result {
    size_t size;
    unsigned char bytes[BYTES];
} result;

static void keep(result *r, const void *bytes, size_t size)
{
    ck_assert(r->size + size <= BYTES);
    memcpy(r->bytes + r->size, bytes, size);
    r->size += size;
}

/* Two steps. What they leave: the losses and all variables. */
static fp8c_status train(fp8c_program *p, result *r)
{
    const int step = fp8c_program_function(p, "micro_step");
    const int update = fp8c_program_function(p, "update");
    fp8c_status s = fp8c_program_initialize(p, 3);
    for (int n = 0; n < 2 && s == FP8C_OK; n++) {
        for (int port = 0; port < 2; port++) {
            int32_t *tokens = fp8c_program_buffer(p, step, FP8C_INPUT, port);
            for (int i = 0; i < 16; i++)
                tokens[i] = (i * 7 + n + port) % 48;
        }
        s = fp8c_program_run(p, step);
        if (s == FP8C_OK)
            keep(r, fp8c_program_buffer(p, step, FP8C_OUTPUT, 0), sizeof(float));
        if (s == FP8C_OK)
            s = fp8c_program_run(p, update);
    }
    fp8c_variable v;
    for (int i = 0; s == FP8C_OK && fp8c_program_variable(p, i, &v) == FP8C_OK; i++)
        keep(r, v.data, fp8c_type_bytes(&v.type));
    return s;
}

/* With one thread, all is done by the one that calls, also compiling: a forked child has no other.
 */
static void on_caller(void *user, fp8c_task_fn task, void *job, int64_t n_tasks)
{
    (void)user;
    task(job, 0, 0, n_tasks);
}

static fp8c_status do_work(const work *w, result *r, char *message, size_t size)
{
    const fp8c_context_options co = {.struct_size = sizeof co,
                                     .cache_dir = w->cache,
                                     .tuning = "",
                                     .verbose = -1,
                                     .parallel = w->threads == 1 ? on_caller : NULL,
                                     .parallel_threads = w->threads == 1};
    const fp8c_compile_options po = {
        .struct_size = sizeof po, .recipe = w->recipe, .threads = w->threads};
    fp8c_context *ctx = NULL;
    fp8c_module *m = NULL;
    fp8c_program *p = NULL;
    r->size = 0;
    fp8c_status s = fp8c_context_create(&co, &ctx);
    if (s == FP8C_OK)
        s = fp8c_module_parse(ctx, text, strlen(text), "m.f8", NULL, 0, &m);
    if (s == FP8C_OK)
        s = fp8c_compile(m, &po, &p);
    if (s == FP8C_OK)
        s = train(p, r);
    snprintf(message, size, "%s",
             s == FP8C_OK ? ""
             : ctx        ? fp8c_context_message(ctx)
                          : "no context");
    fp8c_program_destroy(p);
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
    return s;
}

/* ---- the children ---- */

/* How a child ended. The first four are its exit codes, from FIRST on, that no library uses. */
typedef enum ending {
    NO_HARM,
    NO_MEMORY,
    OTHER_STATUS,
    WRONG,
    ABORTED,
    SEGV,
    NO_THREAD_DATA, /* libc had no memory for thread-local data: it ends the process */
    N_ENDINGS
} ending;
enum { FIRST = 70, LOADER = 127 /* the exit code that libc's loader gives */ };

typedef struct row {
    char call[80];
    int n[N_ENDINGS];
} row;

/* What a child tells its parent: memory that both have. */
typedef struct told {
    char call[80], place[80], message[400];
} told;

static const char *library; /* that allocates */
static told *tell;
static row table[CALLS];
static int n_rows;
static long every, at; /* every so manyth allocation is failed; this one */
static bool child;
static result want, got;

static void on_death(int signal)
{
    no_memory_place(tell->place, sizeof tell->place);
    struct sigaction a = {.sa_handler = SIG_DFL};
    sigaction(signal, &a, NULL);
    raise(signal);
}

static void become_child(void)
{
    static char stack[1 << 17];
    const stack_t s = {.ss_sp = stack, .ss_size = sizeof stack};
    const struct rlimit none = {0, 0};
    struct sigaction a = {.sa_handler = on_death, .sa_flags = SA_ONSTACK | SA_NODEFER};
    child = true;
    setrlimit(RLIMIT_CORE, &none);
    sigaltstack(&s, NULL);
    sigaction(SIGABRT, &a, NULL);
    sigaction(SIGSEGV, &a, NULL);
    alarm(SECONDS);
    if (!freopen("/dev/null", "w", stderr))
        _exit(1);
}

/* How the child ends whose work gave `s`. It is tried again with memory. */
static ending judge(const work *w, fp8c_status s)
{
    char again[sizeof tell->message];
    if (s != FP8C_OK && (!*tell->message || do_work(w, &got, again, sizeof again) != FP8C_OK))
        return WRONG;
    if (got.size != want.size || memcmp(got.bytes, want.bytes, want.size))
        return WRONG;
    return s == FP8C_OK ? NO_HARM : s == FP8C_ERR_MEMORY ? NO_MEMORY : OTHER_STATUS;
}

static void end_child(const work *w, fp8c_status s, const char *message)
{
    snprintf(tell->message, sizeof tell->message, "%s", message);
    _exit(FIRST + (int)judge(w, s));
}

static row *row_of(const char *call)
{
    for (int i = 0; i < n_rows; i++)
        if (!strcmp(table[i].call, call))
            return &table[i];
    ck_assert_int_lt(n_rows, CALLS);
    snprintf(table[n_rows].call, sizeof table->call, "%s", call);
    return &table[n_rows++];
}

/* The libraries that frontend/README.md names. */
static bool may_die(const char *place)
{
    return strstr(place, "libLLVM") || strstr(place, "libdnnl") || strstr(place, "libgomp");
}

/* Waits for the child and counts how it ended. */
static ending note(pid_t pid)
{
    int s;
    ck_assert_int_eq(waitpid(pid, &s, 0), pid);
    const int code = WIFEXITED(s) ? WEXITSTATUS(s) : -1;
    const int signal = WIFSIGNALED(s) ? WTERMSIG(s) : 0;
    const ending e = signal == SIGABRT   ? ABORTED
                     : signal == SIGSEGV ? SEGV
                     : code == LOADER    ? NO_THREAD_DATA
                                         : (ending)(code - FIRST);
    if (getenv("FP8C_EACH"))
        printf("%s: code %d, signal %d in %s; %s\n", tell->call, code, signal, tell->place,
               tell->message);
    ck_assert_msg(e < N_ENDINGS && e != WRONG, "%s of %s: exit code %d, signal %d; \"%s\"",
                  tell->call, library, code, signal, tell->message);
    ck_assert_msg(!signal || may_die(tell->place), "%s of %s: signal %d in %s", tell->call, library,
                  signal, tell->place);
    if (*tell->call) /* else the allocation was not the library's */
        row_of(tell->call)->n[e]++;
    return e;
}

/* Fails every `every`-th allocation, each in a child that is forked here. */
static bool in_a_child(long n, const char *call)
{
    (void)n;
    memset(tell, 0, sizeof *tell);
    snprintf(tell->call, sizeof tell->call, "%s", call);
    const pid_t pid = fork();
    ck_assert(pid >= 0);
    if (pid) {
        note(pid);
        return false;
    }
    no_memory_watch(NULL, 1, NULL);
    become_child();
    return true;
}

static int print_table(void)
{
    int total = 0;
    const bool shown = getenv("FP8C_TABLE") != NULL;
    for (int i = 0; i < n_rows; i++) {
        const int *n = table[i].n;
        for (int e = 0; e < N_ENDINGS; e++)
            total += n[e];
        if (shown)
            printf("| `%s` | %d | %d | %d | %d | %d | %d |\n", table[i].call, n[NO_HARM],
                   n[NO_MEMORY], n[OTHER_STATUS], n[ABORTED], n[SEGV], n[NO_THREAD_DATA]);
    }
    if (shown)
        printf("%s: %d allocations failed\n", library, total);
    fflush(stdout);
    return total;
}

static void begin(const char *name, int sample)
{
    const char *e = getenv("FP8C_EVERY");
    library = name;
    every = e ? atol(e) : sample;
    ck_assert_int_ge(every, 1);
    tell = mmap(NULL, sizeof *tell, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert(tell != MAP_FAILED);
}

/* The work, while allocations fail in children. Its own result is whole, and so is what comes after
 * it. `want` is from a process of its own, since a library is loaded once in each. */
static void fail_each(const work *w)
{
    char message[400];
    no_memory_watch(library, every, in_a_child);
    const fp8c_status s = do_work(w, &got, message, sizeof message);
    if (child)
        end_child(w, s, message);
    no_memory_watch(NULL, 1, NULL);
    ck_assert_msg(s == FP8C_OK, "%s", message);
    ck_assert(got.size == want.size && !memcmp(got.bytes, want.bytes, want.size));
    ck_assert_int_eq(do_work(w, &got, message, sizeof message), FP8C_OK);
    ck_assert(got.size == want.size && !memcmp(got.bytes, want.bytes, want.size));
}

/* Fills `want` in a child, so that this process has loaded no library. */
static void find_result(const work *w)
{
    result *shared =
        mmap(NULL, sizeof want, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert(shared != MAP_FAILED);
    const pid_t pid = fork();
    if (!pid) {
        char message[400];
        _exit(do_work(w, shared, message, sizeof message));
    }
    int s;
    ck_assert_int_eq(waitpid(pid, &s, 0), pid);
    ck_assert_int_eq(s, 0);
    want = *shared;
    munmap(shared, sizeof want);
    ck_assert_uint_gt(want.size, 1000);
}

/* Work with no cache, or with one in this test's folder that is full or empty. */
static work prepare(const char *recipe, int threads, const char *cache)
{
    const work none = {.recipe = recipe, .cache = "", .threads = threads};
    work w = none;
    if (strcmp(cache, "none"))
        w.cache = f8_cli_temp("kernels");
    find_result(strcmp(cache, "full") ? &none : &w);
    return w;
}

/* ---- one thread ---- */

static const char *const recipes[] = {"f32", "bf16", "delayed"};

START_TEST(onednn)
{
    const work w = prepare(recipes[_i], 1, "full");
    begin("libdnnl", 499);
    fail_each(&w);
    ck_assert_int_gt(print_table(), 20 / every);
}
END_TEST

START_TEST(llvm)
{
    const work w = prepare("f32", 1, "none");
    begin("libLLVM", 1999);
    fail_each(&w);
    ck_assert_int_gt(print_table(), 5000 / every);
}
END_TEST

/* Kernels of children that died are not half in the cache, and their claims hold nobody up: the
 * parent compiles into it, and then takes from it. */
START_TEST(llvm_cache)
{
    const work w = prepare("f32", 1, "empty");
    begin("libLLVM", 4999);
    fail_each(&w);
    ck_assert_int_gt(print_table(), 0);
}
END_TEST

/* ---- several threads: the whole work in each child ---- */

static bool the_first(long n, const char *call)
{
    if (n != at)
        return false;
    snprintf(tell->call, sizeof tell->call, "%s", call);
    return true;
}

START_TEST(onednn_threads)
{
    char message[400];
    const work w = prepare("bf16", 3, "full");
    begin("libdnnl", 97);
    no_memory_watch("no library", 1L << 40, the_first);
    ck_assert_int_eq(do_work(&w, &got, message, sizeof message), FP8C_OK);
    no_memory_watch(NULL, 1, NULL);
    ck_assert(got.size == want.size && !memcmp(got.bytes, want.bytes, want.size));
    const long n = no_memory_count();
    for (at = every; at <= n; at += every) {
        memset(tell, 0, sizeof *tell);
        const pid_t pid = fork();
        if (!pid) {
            become_child();
            no_memory_watch(library, at, the_first);
            const fp8c_status s = do_work(&w, &got, message, sizeof message);
            no_memory_watch(NULL, 1, NULL);
            end_child(&w, s, message);
        }
        note(pid);
    }
    ck_assert_int_gt(print_table(), 50 / every);
}
END_TEST

/* ---- a limit on the address space ---- */

static size_t mapped(void)
{
    unsigned long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    ck_assert(f && fscanf(f, "%lu", &pages) == 1);
    fclose(f);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

/* The work with so many bytes of address space. */
static ending within(const work *w, size_t bytes)
{
    memset(tell, 0, sizeof *tell);
    snprintf(tell->call, sizeof tell->call, "%zu MiB", bytes >> 20);
    const pid_t pid = fork();
    if (!pid) {
        char message[400];
        struct rlimit limit;
        become_child();
        getrlimit(RLIMIT_AS, &limit);
        const struct rlimit less = {mapped() + bytes, limit.rlim_max};
        setrlimit(RLIMIT_AS, &less);
        const fp8c_status s = do_work(w, &got, message, sizeof message);
        setrlimit(RLIMIT_AS, &limit);
        end_child(w, s, message);
    }
    return note(pid);
}

/* Between what does not suffice and what does, by halves. */
START_TEST(address_space)
{
    const bool full = _i > 0;
    const work w = prepare("bf16", _i > 1 ? 3 : 1, full ? "full" : "none");
    size_t low = 0, high = 4 << 20;
    begin("libdnnl", 1);
    for (; within(&w, high) != NO_HARM; high *= 4) {
        ck_assert_uint_lt(high, (size_t)1 << 36);
        low = high;
    }
    ck_assert_uint_gt(low, 0);
    for (int i = 0; i < 4; i++) {
        const size_t half = (low + high) / 2;
        *(within(&w, half) == NO_HARM ? &high : &low) = half;
    }
    print_table();
}
END_TEST

/* ---- the command ---- */

static void write_file(const char *path, const void *bytes, size_t size)
{
    FILE *f = fopen(path, "w");
    ck_assert(f && fwrite(bytes, 1, size, f) == size);
    ck_assert_int_eq(fclose(f), 0);
}

/* 0: there is no such file. */
static size_t read_file(const char *path, unsigned char *bytes)
{
    FILE *f = fopen(path, "r");
    const size_t n = f ? fread(bytes, 1, BYTES, f) : 0;
    if (f)
        fclose(f);
    return n;
}

/* `fp8c train` with ever more address space: a message and exit code 1, or a signal, and no file;
 * or success and the whole file. */
START_TEST(command)
{
    char model[4096], data[4096], saved[4096], tokens[4000];
    snprintf(model, sizeof model, "%s", f8_cli_temp("m.f8"));
    snprintf(data, sizeof data, "%s", f8_cli_temp("data.txt"));
    snprintf(saved, sizeof saved, "%s", f8_cli_temp("saved.safetensors"));
    for (size_t i = 0; i < sizeof tokens; i++)
        tokens[i] = (char)(1 + i * i % 41);
    write_file(model, text, strlen(text));
    write_file(data, tokens, sizeof tokens);
    const char *const args[] = {"train",     model, "--data", data,  "--steps", "2",
                                "--threads", "2",   "--save", saved, NULL};
    ck_assert_int_eq(f8_cli_run(args).code, 0);
    want.size = read_file(saved, want.bytes);
    ck_assert_uint_gt(want.size, 1000);
    int code = 1, failures = -1;
    for (size_t limit = (size_t)32 << 20; code; limit += limit / 16, failures++) {
        ck_assert_uint_lt(limit, (size_t)1 << 36);
        remove(saved);
        const f8_cli_result r = f8_cli_run_within(limit, args);
        code = r.code;
        if (getenv("FP8C_EACH"))
            printf("%zu MiB: %d %s\n", limit >> 20, code, r.err);
        ck_assert_msg(code == 0 || code == 128 + SIGABRT || code == 128 + SIGSEGV ||
                          (code == 1 && strstr(r.err, "error")) || code == LOADER,
                      "%zu MiB: %d %s", limit >> 20, code, r.err);
        got.size = read_file(saved, got.bytes);
        ck_assert_uint_eq(got.size, code ? 0 : want.size);
        ck_assert(!memcmp(got.bytes, want.bytes, got.size));
    }
    ck_assert_int_gt(failures, 2);
}
END_TEST

static void add(Suite *suite, const char *name, const TTest *test, int n)
{
    TCase *t = tcase_create(name);
    tcase_set_timeout(t, 3600);
    tcase_add_checked_fixture(t, f8_cli_setup, f8_cli_teardown);
    tcase_add_loop_test(t, test, 0, n);
    suite_add_tcase(suite, t);
}

Suite *f8_suite(void)
{
    Suite *suite = suite_create("no_memory");
    add(suite, "onednn", onednn, sizeof recipes / sizeof *recipes);
    add(suite, "llvm", llvm, 1);
    add(suite, "llvm_cache", llvm_cache, 1);
    add(suite, "several", onednn_threads, 1);
    add(suite, "address_space", address_space, 3);
    add(suite, "command", command, 1);
    return suite;
}
