/* Creating, compiling, running and destroying over and over leaves nothing behind: neither the
 * memory in use nor the process's resident memory grows. 500 cycles, or FP8C_CYCLES=10000, which
 * takes a minute. Under AddressSanitizer LeakSanitizer finds a block lost in one cycle, at the end, so
 * few cycles run. */
#include <malloc.h>
#include <unistd.h>

#include "tests/shared/api/api.h"
#include "tests/shared/suite.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { INSTRUMENTED = 1 };
#else
enum { INSTRUMENTED = 0 };
#endif

/* After so many what is made once in a process is there (LLVM's tables, oneDNN's cache of
 * primitives, which holds 1024 and is full at once of one model's), and the allocator has the room
 * it reuses. */
enum { WARM = 100 };

/* By how much two readings may differ without a leak. Bytes in use may not differ: the smallest
 * block of malloc takes 32 bytes, so a slack of half of that for each cycle finds one block lost in
 * two cycles. The heap's end moves by 132 KiB at a time: the slack for mapped bytes is two such
 * steps, and still finds a page that is mapped and lost in each of 70 cycles. Resident bytes also
 * grow by pages of libraries that are read for the first time, and by reserves that are used for
 * the first time. */
static const int64_t slack_block = 16, slack_mapped = 264 << 10, slack_resident = 1 << 20;

static int cycles(void)
{
    const char *text = getenv("FP8C_CYCLES");
    return text ? atoi(text) : INSTRUMENTED ? 20 : 500;
}

typedef struct memory {
    int64_t
        in_use; /* bytes that malloc has given out, in all arenas; those mapped one by one too */
    int64_t mapped, resident; /* bytes of the process's address space, and of it in memory */
} memory;

static memory look(void)
{
    const struct mallinfo2 m = mallinfo2();
    long size, resident;
    FILE *f = fopen("/proc/self/statm", "r");
    ck_assert(f && fscanf(f, "%ld %ld", &size, &resident) == 2);
    fclose(f);
    const int64_t page = sysconf(_SC_PAGESIZE);
    return (memory){(int64_t)(m.uordblks + m.hblkhd), size * page, resident * page};
}

/* A context where kernels are kept, or compiled each time: LLVM is then part of the cycle. */
static fp8c_context *context(const char *cache)
{
    const fp8c_context_options o = {.struct_size = sizeof o, .cache_dir = cache};
    fp8c_context *ctx;
    ck_assert_int_eq(fp8c_context_create(&o, &ctx), FP8C_OK);
    return ctx;
}

typedef struct life {
    const char *name, *cache; /* "": none */
    const char *file;         /* a compiled one, which is opened; NULL: compiled from text */
    fp8c_context *shared;     /* NULL: a context each */
    fp8c_compile_options options;
    int warm, cycles;
} life;

static fp8c_program *make(const life *l, fp8c_context *ctx)
{
    if (l->file) {
        fp8c_program *p;
        const fp8c_open_options o = {.struct_size = sizeof o, .threads = l->options.threads};
        ck_assert_msg(fp8c_program_open(ctx, l->file, &o, &p) == FP8C_OK, "%s",
                      fp8c_context_message(ctx));
        return p;
    }
    fp8c_module *m = parse(ctx, model);
    fp8c_program *p = compile(ctx, m, &l->options);
    fp8c_module_destroy(m);
    return p;
}

static void cycle(const life *l, float *loss)
{
    fp8c_context *ctx = l->shared ? l->shared : context(l->cache);
    fp8c_program *p = make(l, ctx);
    ck_assert_int_eq(fp8c_program_initialize(p, 1), FP8C_OK);
    *loss = train_step(p);
    fp8c_program_destroy(p);
    if (!l->shared)
        fp8c_context_destroy(ctx);
}

/* The growth over one round of cycles, printed. */
static memory growth(const life *l, const float *first)
{
    float loss;
    const memory before = look();
    for (int i = 0; i < l->cycles; i++) {
        cycle(l, &loss);
        ck_assert_mem_eq(&loss, first, sizeof loss);
    }
    const memory after = look();
    const memory more = {after.in_use - before.in_use, after.mapped - before.mapped,
                         after.resident - before.resident};
    printf("%d cycles, %s: %+lld bytes in use, %+lld mapped, %+lld resident, of %.1f MiB\n",
           l->cycles, l->name, (long long)more.in_use, (long long)more.mapped,
           (long long)more.resident, (double)after.resident / 1048576);
    fflush(stdout);
    if (!INSTRUMENTED)
        ck_assert_msg(more.in_use <= slack_block * l->cycles, "%lld bytes more are in use",
                      (long long)more.in_use);
    return more;
}

/* Threads that compile at the same time reach a higher peak of the heap in some runs than in
 * others, once. A leak grows in every round, so the last of three rounds decides. */
static void grow_nothing(const life *l)
{
    float first, loss;
    cycle(l, &first);
    for (int i = 1; i < l->warm && !INSTRUMENTED; i++)
        cycle(l, &loss);
    memory more = growth(l, &first);
    if (INSTRUMENTED)
        return;
    for (int i = 0; i < 2 && (more.mapped > slack_mapped || more.resident > slack_resident); i++)
        more = growth(l, &first);
    ck_assert_msg(more.mapped <= slack_mapped, "%lld bytes more are mapped",
                  (long long)more.mapped);
    ck_assert_msg(more.resident <= slack_resident, "%lld bytes more are resident",
                  (long long)more.resident);
}

/* A folder for a cache: made, and removed with what is in it. */
static void make_folder(char *folder)
{
    ck_assert_ptr_nonnull(mkdtemp(folder));
}

static void remove_folder(const char *folder)
{
    char command[64];
    snprintf(command, sizeof command, "rm -r %s", folder);
    ck_assert_int_eq(system(command), 0);
}

START_TEST(from_the_cache)
{
    char folder[] = "/tmp/fp8c.cycles.XXXXXX";
    make_folder(folder);
    grow_nothing(&(life){.name = "a context each, from the cache",
                         .cache = folder,
                         .options = recipe("delayed"),
                         .warm = WARM,
                         .cycles = cycles()});
    remove_folder(folder);
}
END_TEST

/* Compiling takes most of a cycle then: seventy of them is as many as the tolerances want. */
START_TEST(compiled_each_time)
{
    grow_nothing(&(life){.name = "a context each, no cache",
                         .cache = "",
                         .options = recipe("delayed"),
                         .warm = WARM / 4,
                         .cycles = cycles() < 500 ? cycles() / 10 : 70});
}
END_TEST

START_TEST(from_a_file)
{
    char folder[] = "/tmp/fp8c.cycles.XXXXXX", file[64];
    make_folder(folder);
    snprintf(file, sizeof file, "%s/tiny.f8x", folder);
    life l = {.name = "a context each, a compiled file opened",
              .cache = "",
              .file = file,
              .options = recipe("delayed"),
              .warm = WARM,
              .cycles = cycles()};
    fp8c_context *ctx = context("");
    fp8c_module *m = parse(ctx, model);
    ck_assert_msg(fp8c_compile_file(m, &l.options, 1, file) == FP8C_OK, "%s",
                  fp8c_context_message(ctx));
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
    grow_nothing(&l);
    remove_folder(folder);
}
END_TEST

START_TEST(one_context)
{
    char folder[] = "/tmp/fp8c.cycles.XXXXXX";
    make_folder(folder);
    life l = {.name = "one context, two threads",
              .shared = context(folder),
              .options = recipe("bf16"),
              .warm = WARM,
              .cycles = cycles() / 5};
    l.options.threads = 2;
    grow_nothing(&l);
    fp8c_context_destroy(l.shared);
    remove_folder(folder);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("cycles");
    TCase *t = tcase_create("cycles");
    tcase_set_timeout(t, 10 * TIMEOUT);
    tcase_add_test(t, from_the_cache);
    tcase_add_test(t, compiled_each_time);
    tcase_add_test(t, from_a_file);
    tcase_add_test(t, one_context);
    suite_add_tcase(s, t);
    return s;
}
