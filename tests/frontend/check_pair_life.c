/* A layer in a caller's loop for 1000 steps (100 in the emulator): no step calls the caller's
 * allocator, memory in use and resident memory stay as they are, and no pointer that the caller was
 * given moves. On the CPU, and on CUDA (the emulator, or a GPU with FP8C_TEST_GPU). The
 * interpreter, target reference, allocates. */
#include <malloc.h>
#include <unistd.h>

#include "tests/shared/api/pair_case.h"
#include "tests/shared/cuda/gpu.h"
#include "tests/shared/suite.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { INSTRUMENTED = 1 };
#else
enum { INSTRUMENTED = 0 };
#endif

/* WARM steps come before: libraries make some of their memory when they are first called. Threads
 * of a pool may take a task for the first time later, and touch a stack then. */
enum { STEPS = 1000, WARM = 20, IN_FLIGHT = 2, POINTERS = 200 };

static const int64_t slack_resident = 256 << 10;

static const struct {
    const char *target, *recipe;
    int threads;
} cases[] = {{"cpu", "bf16", 1},  {"cpu", "delayed", 2}, {"cpu", "current", 1},
             {"cpu", "block", 1}, {"cpu", "mxfp8", 2},   {"cuda", "delayed", 1}};

static const char layer[] =
    "module layer\nparam ln: f32[64] ones\nparam up: f32[64, 128] normal(0.1)\n"
    "param up.bias: f32[128] zeros\nparam down: f32[128, 64] normal(0.1)\n"
    "func forward(%x: bf16[32, 64]) -> (%y: bf16[32, 64]) {\n"
    "  %h = cast(%x) {to = f32}\n"
    "  %u = gelu(linear(rmsnorm(%h, ln), up, up.bias) {name = \"up\"})\n"
    "  return cast(add(%h, linear(%u, down) {name = \"down\"})) {to = bf16}\n}\n";

typedef struct life {
    counting memory; /* the caller's allocator */
    fp8c_context *ctx;
    fp8c_program *p;
    fp8c_saved *saved[IN_FLIGHT];
    pair_values micro[IN_FLIGHT], named_in, named_out;
} life;

static life l;
static bool emulated;

static void begin(int c)
{
    const fp8c_context_options with = counted_options(&l.memory);
    ck_assert_int_eq(fp8c_context_create(&with, &l.ctx), FP8C_OK);
    fp8c_compile_options o = recipe(cases[c].recipe);
    o.target = cases[c].target;
    o.threads = cases[c].threads;
    o.pair = o.add_gradients = 1;
    o.gradients_of = "x";
    fp8c_module *m = parse(l.ctx, layer);
    l.p = compile(l.ctx, m, &o);
    fp8c_module_destroy(m);
    ck_assert_int_eq(fp8c_program_initialize(l.p, 7), FP8C_OK);
    for (int i = 0; i < IN_FLIGHT; i++)
        ck_assert_int_eq(fp8c_saved_create(l.p, &l.saved[i]), FP8C_OK);
}

static void end(void)
{
    for (int i = 0; i < IN_FLIGHT; i++) {
        fp8c_saved_destroy(l.saved[i]);
        pair_end(&l.micro[i]);
    }
    pair_end(&l.named_in);
    pair_end(&l.named_out);
    fp8c_program_destroy(l.p);
    fp8c_context_destroy(l.ctx);
    ck_assert_int_eq(l.memory.live, 0);
}

/* Two forwards with handles, their backwards, a forward whose backward never comes, one pair
 * through named ports, a write of a parameter as an optimizer does it, and update_scales. */
static void step(void)
{
    static float ln[64];
    const int update = fp8c_program_function(l.p, "update_scales");
    for (int i = 0; i < IN_FLIGHT; i++)
        pair_forward(l.p, false, l.saved[i], &l.micro[i], &l.micro[i]);
    for (int i = IN_FLIGHT; i-- > 0;)
        pair_backward(l.p, l.saved[i], &l.micro[i], &l.micro[i]);
    pair_forward(l.p, false, l.saved[0], &l.micro[0], &l.micro[0]);
    fp8c_saved_drop(l.saved[0]);
    pair_step(l.p, false, &l.named_in, &l.named_out);
    for (int i = 0; i < 64; i++)
        ln[i] = ln[i] * 0.5f + 1;
    ck_assert_int_eq(fp8c_program_write(l.p, fp8c_program_find_variable(l.p, "ln"), ln), FP8C_OK);
    if (update >= 0)
        ck_assert_int_eq(fp8c_program_run(l.p, update), FP8C_OK);
}

/* ---- pointers ---- */

typedef struct pointers {
    int n;
    const void *at[POINTERS];
    int64_t peak_bytes; /* with those of the handles */
} pointers;

static void add(pointers *s, const void *at)
{
    ck_assert_int_lt(s->n, POINTERS);
    s->at[s->n++] = at;
}

/* Where variables lie, and the buffers that ports are bound to. */
static void look(pointers *s)
{
    fp8c_tensor_view v;
    fp8c_port port;
    memset(s, 0, sizeof *s);
    for (int i = 0; fp8c_program_variable_view(l.p, i, &v) == FP8C_OK; i++)
        add(s, v.data);
    for (int f = 0; fp8c_program_function_name(l.p, f); f++)
        for (int side = 0; side < 2; side++)
            for (int i = 0; fp8c_program_port(l.p, f, (fp8c_side)side, i, &port) == FP8C_OK; i++)
                add(s, fp8c_program_buffer(l.p, f, (fp8c_side)side, i));
    fp8c_info info = {.struct_size = sizeof info};
    fp8c_program_info(l.p, &info);
    s->peak_bytes = info.peak_bytes;
}

typedef struct memory {
    long calls;               /* of the caller's allocator */
    int64_t in_use, resident; /* bytes: given out by malloc, also those mapped one by one */
} memory;

static memory measure(void)
{
    long size, pages;
    FILE *f = fopen("/proc/self/statm", "r");
    ck_assert(f && fscanf(f, "%ld %ld", &size, &pages) == 2);
    fclose(f);
    const struct mallinfo2 m = mallinfo2();
    return (memory){l.memory.n, (int64_t)(m.uordblks + m.hblkhd),
                    (int64_t)pages * sysconf(_SC_PAGESIZE)};
}

START_TEST(thousand_steps)
{
    static pointers before, after;
    begin(_i);
    measure(); /* takes some memory itself, once */
    for (int i = 0; i < WARM; i++)
        step();
    look(&before);
    const memory had = measure();
    const bool slow = emulated && !strcmp(cases[_i].target, "cuda");
    for (int i = 0; i < (slow ? STEPS / 10 : STEPS); i++)
        step();
    const memory has = measure();
    const int64_t in_use = has.in_use - had.in_use, resident = has.resident - had.resident;
    printf("%s %s: %ld calls of the allocator, %+lld bytes in use, %+lld resident\n",
           cases[_i].target, cases[_i].recipe, has.calls - had.calls, (long long)in_use,
           (long long)resident);
    ck_assert_int_eq(has.calls, had.calls);
    ck_assert(INSTRUMENTED || (in_use == 0 && resident <= slack_resident));
    look(&after);
    ck_assert_mem_eq(&after, &before, sizeof after);
    end();
}
END_TEST

Suite *f8_suite(void)
{
    emulated = f8_test_gpu_emulated();
    Suite *s = suite_create("pair_life");
    TCase *t = tcase_create("pair_life");
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_loop_test(t, thousand_steps, 0, (int)(sizeof cases / sizeof *cases));
    suite_add_tcase(s, t);
    return s;
}
