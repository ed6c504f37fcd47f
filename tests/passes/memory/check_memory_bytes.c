/* The bytes that a program takes in all: known without compiling code, the same with code, and
 * equal to what a run takes; what budgets in bytes leave; planning alone. */
#include "tests/shared/passes/compile.h"
#include "tests/shared/suite.h"

#include "codegen/build.h"
#include "frontend/fp8c.h"
#include "frontend/fp8c_diagnose.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GPT "frontend/models/gpt.f8"
#define LLAMA "frontend/models/llama_block.f8"

/* ---- in all: planned and measured ---- */

/* An allocator that remembers its blocks and fills them with one byte. Kernels compile on several
 * threads. */
enum { BLOCKS = 1 << 14 };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
typedef struct poison {
    uint8_t byte;
    int fails_at; /* the allocation that fails, counted from 1; 0: none */
    int allocated;
    struct {
        uint8_t *p;
        size_t size;
    } block[BLOCKS];
    int n;
} poison;

static void *poison_alloc(void *user, size_t size, size_t align)
{
    poison *a = user;
    align = align < 64 ? 64 : align;
    pthread_mutex_lock(&lock);
    uint8_t *p = NULL;
    if (++a->allocated != a->fails_at && a->n < BLOCKS)
        p = aligned_alloc(align, (size + align - 1) / align * align);
    if (p) {
        memset(p, a->byte, size);
        a->block[a->n].p = p;
        a->block[a->n++].size = size;
    }
    pthread_mutex_unlock(&lock);
    return p;
}

static void poison_free(void *user, void *p, size_t size)
{
    poison *a = user;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < a->n; i++)
        if (a->block[i].p == p) {
            ck_assert_uint_eq(a->block[i].size, size);
            a->block[i] = a->block[--a->n];
            break;
        }
    pthread_mutex_unlock(&lock);
    free(p);
}

typedef struct opened {
    fp8c_context *ctx;
    fp8c_module *module;
    fp8c_program *program;
} opened;

static fp8c_status compile(opened *o, poison *a, const char *file, const fp8c_dim *dims,
                           size_t n_dims, fp8c_compile_options options)
{
    size_t size;
    char *text = f8_test_read(file, &size);
    const fp8c_context_options with = {.struct_size = sizeof with,
                                       .alloc = poison_alloc,
                                       .free = poison_free,
                                       .allocator_user = a};
    *o = (opened){0};
    ck_assert(text && fp8c_context_create(a ? &with : NULL, &o->ctx) == FP8C_OK);
    ck_assert_msg(fp8c_module_parse(o->ctx, text, size, file, dims, n_dims, &o->module) == FP8C_OK,
                  "%s", fp8c_context_message(o->ctx));
    free(text);
    options.struct_size = sizeof options;
    return fp8c_compile(o->module, &options, &o->program);
}

static void end(opened *o)
{
    fp8c_program_destroy(o->program);
    fp8c_module_destroy(o->module);
    fp8c_context_destroy(o->ctx);
}

#define COMPILES(o, a, file, ...)                                                                  \
    ck_assert_msg(compile(o, a, file, dims, 3, (fp8c_compile_options){__VA_ARGS__}) == FP8C_OK,    \
                  "%s", fp8c_context_message((o)->ctx))

static const fp8c_dim dims[] = {{"L", 2}, {"B", 2}, {"T", 32}};

/* The blocks of the arena's size; there is one, or the test is worth nothing. */
static const uint8_t *find_arena(const poison *a, int64_t bytes)
{
    const uint8_t *found = NULL;
    int n = 0;
    for (int i = 0; i < a->n; i++)
        if ((int64_t)a->block[i].size == bytes) {
            found = a->block[i].p;
            n++;
        }
    ck_assert_int_eq(n, 1);
    return found;
}

/* Bytes of the arena up to the last one that a run of all functions writes over `byte`. */
static int64_t overwritten(const opened *o, const uint8_t *arena, int64_t bytes, uint8_t byte)
{
    int64_t n = bytes;
    memset((void *)arena, byte, (size_t)bytes);
    for (int f = 0; fp8c_program_function_name(o->program, f); f++)
        ck_assert_int_eq(fp8c_program_run(o->program, f), FP8C_OK);
    while (n > 0 && arena[n - 1] == byte)
        n--;
    return (n + 63) / 64 * 64;
}

/* Every category of every function is the same in both, and they add up. */
static void same_categories(const opened *plan, const opened *real, int64_t planned_bytes)
{
    for (int f = 0; fp8c_program_function_name(real->program, f); f++) {
        fp8c_memory a, b;
        int64_t sum = 0;
        for (int i = 0; fp8c_program_memory(real->program, f, i, &a) == FP8C_OK; i++) {
            ck_assert_int_eq(fp8c_program_memory(plan->program, f, i, &b), FP8C_OK);
            ck_assert_str_eq(a.category, b.category);
            ck_assert_int_eq(a.bytes, b.bytes);
            ck_assert_int_ge(a.bytes, 0);
            sum += a.bytes;
        }
        ck_assert_int_eq(sum, planned_bytes);
    }
}

static const struct {
    const char *model;
    fp8c_compile_options options;
} runs[] = {
    {GPT, {.recipe = "bf16"}},
    {GPT, {.recipe = "delayed", .threads = 2}},
    {GPT, {.recipe = "delayed", .memory_share = 0.5}},
    {LLAMA, {.recipe = "block", .pair = 1}},
    {LLAMA, {.recipe = "mxfp8", .threads = 1, .checkpoint = "x.*"}},
    {LLAMA, {.recipe = "current", .inference = 1}},
};

/* Planned without code is planned with it, in all and by category; what was allocated is that many
 * bytes; and runs use the arena to its end: of its last 64 bytes, the unit of places, some are
 * written. What is written may be what was there, so there are two things that were there. */
START_TEST(planned_is_measured)
{
    static poison a;
    opened plan, real;
    fp8c_info planned = {.struct_size = sizeof planned}, measured = planned;
    fp8c_compile_options options = runs[_i].options;
    a = (poison){.byte = 0xff};
    ck_assert_msg(compile(&real, &a, runs[_i].model, dims, 3, options) == FP8C_OK, "%s",
                  fp8c_context_message(real.ctx));
    options.plan_only = 1;
    ck_assert_int_eq(compile(&plan, NULL, runs[_i].model, dims, 3, options), FP8C_OK);
    fp8c_program_info(plan.program, &planned);
    fp8c_program_info(real.program, &measured);
    ck_assert_int_eq(planned.planned_bytes, measured.planned_bytes);
    ck_assert_int_eq(measured.peak_bytes, measured.planned_bytes);
    ck_assert_int_eq(planned.arena_bytes, measured.arena_bytes);
    ck_assert_int_eq(planned.peak_bytes, 0); /* nothing was allocated */
    same_categories(&plan, &real, measured.planned_bytes);
    const uint8_t *arena = find_arena(&a, measured.arena_bytes);
    ck_assert_int_eq(fp8c_program_initialize(real.program, 1), FP8C_OK);
    const int64_t once = overwritten(&real, arena, measured.arena_bytes, 0xa5);
    const int64_t again = overwritten(&real, arena, measured.arena_bytes, 0x5a);
    ck_assert_int_eq(once > again ? once : again, measured.arena_bytes);
    end(&plan);
    end(&real);
    ck_assert_int_eq(a.n, 0);
}
END_TEST

/* The same on a GPU's targets; merged launches take room in the arena there. */
START_TEST(planned_for_gpus)
{
    static const char *const cases[][3] = {
        {GPT, "delayed", "sm_90a"}, {LLAMA, "bf16", "sm_89"}, {LLAMA, "mxfp8", "sm_100a"}};
    opened plan, text;
    fp8c_info a = {.struct_size = sizeof a}, b = a;
    fp8c_step s, t;
    COMPILES(&plan, NULL, cases[_i][0], .recipe = cases[_i][1], .target = cases[_i][2],
             .plan_only = 1);
    COMPILES(&text, NULL, cases[_i][0], .recipe = cases[_i][1], .target = cases[_i][2],
             .text_only = 1);
    fp8c_program_info(plan.program, &a);
    fp8c_program_info(text.program, &b);
    ck_assert_int_gt(a.planned_bytes, a.arena_bytes);
    ck_assert_int_eq(a.planned_bytes, b.planned_bytes);
    ck_assert_int_eq(a.arena_bytes, b.arena_bytes);
    for (int f = 0; fp8c_program_function_name(plan.program, f); f++) {
        int i = 0;
        for (; fp8c_program_step(plan.program, f, i, &s) == FP8C_OK; i++) {
            ck_assert_int_eq(fp8c_program_step(text.program, f, i, &t), FP8C_OK);
            ck_assert_str_eq(s.name, t.name);
            ck_assert_int_eq(s.bytes_read, t.bytes_read);
        }
        ck_assert_int_eq(fp8c_program_step(text.program, f, i, &t), FP8C_ERR_INPUT);
    }
    end(&plan);
    end(&text);
}
END_TEST

/* ---- budgets ---- */

/* A budget in bytes holds for all that the program takes. If it leaves less than all of the
 * activation bytes, values are recomputed. */
START_TEST(budgets_in_bytes)
{
    static const struct {
        const char *recipe, *target;
    } cases[] = {{"delayed", "cpu"}, {"bf16", "cpu"}, {"delayed", "sm_90a"}};
    const char *recipe = cases[_i].recipe, *target = cases[_i].target;
    opened o;
    fp8c_info whole = {.struct_size = sizeof whole}, info = whole;
    fp8c_peak peak;
    COMPILES(&o, NULL, GPT, .recipe = recipe, .target = target, .requantize = 1, .plan_only = 1);
    fp8c_program_info(o.program, &whole);
    ck_assert_int_eq(
        fp8c_program_peak(o.program, fp8c_program_function(o.program, "micro_step"), &peak),
        FP8C_OK);
    end(&o);
    for (int quarter = 4; quarter >= 2; quarter--) {
        const int64_t budget = whole.planned_bytes - peak.activation_bytes * (4 - quarter) / 4;
        const bool real = quarter == 2 && !strcmp(target, "cpu");
        fp8c_remat remat = {.struct_size = sizeof remat};
        COMPILES(&o, NULL, GPT, .recipe = recipe, .target = target, .memory_bytes = budget,
                 .plan_only = !real);
        fp8c_program_info(o.program, &info);
        fp8c_program_remat(o.program, 0, 0, &remat);
        ck_assert_int_le(info.planned_bytes, budget);
        ck_assert(!real || info.peak_bytes == info.planned_bytes);
        ck_assert(quarter == 4 ? remat.recomputed == 0 : remat.recomputed > 0);
        ck_assert_int_eq(remat.arena_before, peak.arena_bytes);
        ck_assert_int_le(remat.arena_after, remat.arena_budget);
        end(&o);
    }
}
END_TEST

static fp8c_status ask(opened *o, int64_t bytes, double share, fp8c_remat *out)
{
    *out = (fp8c_remat){.struct_size = sizeof *out};
    return fp8c_program_remat(o->program, bytes, share, out);
}

/* Budgets asked of one program, up and down: each fits, and the program stays as it is. What can't
 * be met is said with the least, and what comes after it is found as before. */
START_TEST(budgets_of_a_program)
{
    static const double shares[] = {0.9, 0.5, 0.3, 0.7, 0, 0.5}; /* 0: one byte */
    enum { N = sizeof shares / sizeof *shares };
    opened o;
    fp8c_info info = {.struct_size = sizeof info};
    fp8c_remat plain = {.struct_size = sizeof plain}, x[N];
    COMPILES(&o, NULL, GPT, .target = _i ? "sm_90a" : "cpu", .plan_only = 1);
    fp8c_program_info(o.program, &info);
    const int64_t whole = info.planned_bytes;
    for (int i = 0; i < N; i++) {
        const fp8c_status status = ask(&o, shares[i] == 0, shares[i], &x[i]);
        if (shares[i] == 0) {
            ck_assert_int_eq(status, FP8C_ERR_UNSUPPORTED);
            ck_assert_ptr_nonnull(strstr(fp8c_context_message(o.ctx), "least possible budget"));
            continue;
        }
        ck_assert_msg(status == FP8C_OK, "%s", fp8c_context_message(o.ctx));
        ck_assert_int_gt(x[i].recomputed, 0);
        ck_assert_int_le(x[i].arena_after, x[i].arena_budget);
        ck_assert_int_lt(x[i].planned_bytes, whole);
        ck_assert_int_eq(x[i].arena_before, x[0].arena_before);
        ck_assert(x[i].seconds == x[0].seconds);
    }
    ck_assert_double_gt(x[2].extra_seconds, x[1].extra_seconds);
    ck_assert_double_gt(x[1].extra_seconds, x[0].extra_seconds);
    ck_assert_double_eq_tol(x[5].extra_seconds, x[1].extra_seconds, 0.02 * x[1].seconds);
    ck_assert_int_eq(ask(&o, x[1].planned_bytes, 0, &x[0]), FP8C_OK);
    ck_assert_int_le(x[0].planned_bytes, x[1].planned_bytes);
    ck_assert_int_eq(ask(&o, whole, 0, &x[0]), FP8C_OK); /* nothing is needed */
    ck_assert(x[0].recomputed == 0 && x[0].extra_seconds == 0 && x[0].planned_bytes == whole);
    fp8c_program_info(o.program, &info);
    fp8c_program_remat(o.program, 0, 0, &plain);
    ck_assert(info.planned_bytes == whole && plain.recomputed == 0 && plain.planned_bytes == whole);
    end(&o);
}
END_TEST

START_TEST(budgets_refused)
{
    static const fp8c_compile_options without[] = {{.plan_only = 0},
                                                   {.plan_only = 1, .memory_share = 0.5},
                                                   {.plan_only = 1, .checkpoint = "x.*"},
                                                   {.plan_only = 1, .inference = 1},
                                                   {.plan_only = 1, .target = "reference"}};
    static const fp8c_remat bad[] = {{.arena_budget = -1},
                                     {.seconds = 1},
                                     {.seconds = -0.5},
                                     {.arena_budget = 1 << 20, .seconds = 0.5}};
    fp8c_remat out;
    opened o;
    for (size_t i = 0; i < sizeof without / sizeof *without; i++) {
        ck_assert_int_eq(compile(&o, NULL, GPT, dims, 3, without[i]), FP8C_OK);
        ck_assert_int_eq(ask(&o, 0, 0.5, &out), FP8C_ERR_INPUT);
        ck_assert_ptr_nonnull(strstr(fp8c_context_message(o.ctx), "compiled with plan_only for"));
        end(&o);
    }
    COMPILES(&o, NULL, GPT, .plan_only = 1);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ck_assert_int_eq(ask(&o, bad[i].arena_budget, bad[i].seconds, &out), FP8C_ERR_INPUT);
        ck_assert_ptr_nonnull(strstr(fp8c_context_message(o.ctx), "a share between 0 and 1"));
    }
    end(&o);
}
END_TEST

static int64_t arena_of_step(f8_compiled *c, bool unmerged, int64_t most)
{
    const f8_build_options options = {.target = f8_target_by_name("sm_90a"),
                                      .no_code = true,
                                      .unmerged = unmerged,
                                      .arena_most = most};
    f8_plan plan;
    ck_assert_msg(f8_build_plan(c->unit.module, &options, &c->arena, &plan, &c->diag) == F8_OK,
                  "%s", c->diag.text);
    for (uint32_t i = 0; i < plan.n_funcs; i++)
        if (!strcmp(plan.func[i].name, "micro_step"))
            return plan.func[i].arena_bytes;
    ck_abort_msg("no micro_step");
}

/* Merged launches take less memory if a budget leaves less, down to none. */
START_TEST(merging_within_a_budget)
{
    f8_compiled c;
    ck_assert(f8_compile_passes(&c, &(f8_compile_setup){.file = GPT,
                                                        .dims = "L=4",
                                                        .recipe = *f8_recipe_by_name("delayed"),
                                                        .target = f8_target_by_name("sm_90a")}));
    const int64_t least = arena_of_step(&c, true, 0), most = arena_of_step(&c, false, 0);
    ck_assert_int_gt(most, least);
    for (int i = 0; i <= 4; i++) {
        const int64_t limit = least + (most - least) * i / 4,
                      arena = arena_of_step(&c, false, limit);
        ck_assert_int_le(arena, limit);
        ck_assert(i < 4 || arena > least);
    }
    f8_compiled_end(&c);
}
END_TEST

START_TEST(budgets_that_cannot_be_met)
{
    static const fp8c_compile_options bad[] = {{.memory_bytes = 1},
                                               {.memory_bytes = 1 << 20, .plan_only = 1},
                                               {.memory_share = 1e-6, .plan_only = 1},
                                               {.memory_bytes = -1},
                                               {.memory_share = 1},
                                               {.memory_share = -0.5},
                                               {.memory_bytes = 1, .memory_share = 0.5}};
    static const char *const says[] = {
        "least",
        "least",
        "least",
        "-1 bytes",
        "not between 0 and 1",
        "not between 0 and 1",
        "`memory_bytes` and `memory_share` are both given: give one of them"};
    opened o;
    ck_assert_int_ne(compile(&o, NULL, GPT, dims, 3, bad[_i]), FP8C_OK);
    ck_assert_msg(strstr(fp8c_context_message(o.ctx), says[_i]), "%s", fp8c_context_message(o.ctx));
    ck_assert_ptr_null(o.program);
    end(&o);
}
END_TEST

/* ---- a plan alone ---- */

static bool is_mapped(const char *library)
{
    char line[1024];
    bool found = false;
    FILE *f = fopen("/proc/self/maps", "r");
    while (f && fgets(line, sizeof line, f))
        found |= strstr(line, library) != NULL;
    if (f)
        fclose(f);
    return found;
}

START_TEST(a_plan_cannot_run)
{
    static const char *const needless[] = {"libLLVM", "libcuda", "libnvrtc", "libcublas",
                                           "libcudnn"};
    opened o;
    COMPILES(&o, NULL, GPT, .recipe = "delayed", .target = _i ? "sm_90a" : "cpu", .plan_only = 1);
    const int step = fp8c_program_function(o.program, "micro_step");
    fp8c_step s;
    int steps = 0;
    char want[96];
    snprintf(want, sizeof want,
             "the program was compiled with plan_only: it has no memory and can't run");
    ck_assert_int_eq(fp8c_program_initialize(o.program, 1), FP8C_ERR_INPUT);
    ck_assert_ptr_nonnull(strstr(fp8c_context_message(o.ctx), want));
    ck_assert_int_eq(fp8c_program_run(o.program, step), FP8C_ERR_INPUT);
    ck_assert_int_eq(fp8c_program_wait(o.program), FP8C_ERR_INPUT);
    ck_assert_int_eq(fp8c_program_bind(o.program, step, FP8C_INPUT, 0, NULL), FP8C_ERR_INPUT);
    ck_assert_int_eq(fp8c_program_read(o.program, 0, want), FP8C_ERR_INPUT);
    ck_assert_ptr_null(fp8c_program_buffer(o.program, step, FP8C_INPUT, 0));
    while (fp8c_program_step(o.program, step, steps, &s) == FP8C_OK) {
        ck_assert(s.bytes_read + s.bytes_written > 0);
        ck_assert(steps != 1 || !s.algorithm);
        steps++;
    }
    ck_assert_int_gt(steps, 50);
    fp8c_peak peak;
    fp8c_tensor t;
    fp8c_memory m;
    ck_assert_int_eq(fp8c_program_peak(o.program, step, &peak), FP8C_OK);
    ck_assert(peak.seconds > 0 && peak.activation_bytes > 0 && peak.position < peak.positions &&
              *peak.step);
    ck_assert_int_eq(fp8c_program_peak(o.program, 99, &peak), FP8C_ERR_INPUT);
    ck_assert_int_eq(fp8c_program_peak(o.program, -1, &peak), FP8C_ERR_INPUT);
    ck_assert_int_eq(fp8c_program_tensor(o.program, step, -1, &t), FP8C_ERR_INPUT);
    ck_assert_int_eq(fp8c_program_tensor(o.program, step, 1 << 20, &t), FP8C_ERR_INPUT);
    ck_assert_int_eq(fp8c_program_memory(o.program, step, 99, &m), FP8C_ERR_INPUT);
    for (size_t i = 0; i < sizeof needless / sizeof *needless; i++)
        ck_assert_msg(!is_mapped(needless[i]), "%s was loaded", needless[i]);
    end(&o);
}
END_TEST

/* Memory that runs out while planning within a budget, at any allocation: a message, and nothing is
 * left behind. Without a budget this model takes about 2.63 MiB, and 2.35 at the least. */
START_TEST(memory_runs_out)
{
    static poison a;
    const fp8c_compile_options options = {.struct_size = sizeof options,
                                          .recipe = "delayed",
                                          .plan_only = 1,
                                          .memory_bytes = 2650000};
    opened o;
    a = (poison){0};
    ck_assert_msg(compile(&o, &a, LLAMA, dims, 3, options) == FP8C_OK, "%s",
                  fp8c_context_message(o.ctx));
    end(&o);
    const int all = a.allocated;
    ck_assert_int_gt(all, 50);
    size_t size;
    char *text = f8_test_read(LLAMA, &size);
    ck_assert_ptr_nonnull(text);
    for (int at = 1; at <= all; at += 1 + all / 20) {
        const fp8c_context_options with = {.struct_size = sizeof with,
                                           .alloc = poison_alloc,
                                           .free = poison_free,
                                           .allocator_user = &a};
        a = (poison){.fails_at = at};
        o = (opened){0};
        fp8c_status status = fp8c_context_create(&with, &o.ctx);
        if (status == FP8C_OK)
            status = fp8c_module_parse(o.ctx, text, size, LLAMA, dims, 3, &o.module);
        if (status == FP8C_OK)
            status = fp8c_compile(o.module, &options, &o.program);
        ck_assert_msg(status == FP8C_ERR_MEMORY, "allocation %d of %d: status %d", at, all, status);
        ck_assert(!o.ctx || *fp8c_context_message(o.ctx));
        end(&o);
        ck_assert_int_eq(a.n, 0);
    }
    free(text);
}
END_TEST

/* The reference target interprets: it has no arena to report on. */
START_TEST(reference_has_none)
{
    opened o;
    fp8c_peak peak;
    fp8c_tensor t;
    COMPILES(&o, NULL, LLAMA, .target = "reference", .plan_only = _i);
    ck_assert_int_eq(fp8c_program_peak(o.program, 0, &peak), FP8C_ERR_INPUT);
    ck_assert_int_eq(fp8c_program_tensor(o.program, 0, 0, &t), FP8C_ERR_INPUT);
    end(&o);
    const fp8c_compile_options budget = {.target = "reference", .memory_share = 0.5};
    ck_assert_int_eq(compile(&o, NULL, LLAMA, dims, 3, budget), FP8C_ERR_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(fp8c_context_message(o.ctx), "target reference"));
    end(&o);
}
END_TEST

#define LENGTH(a) ((int)(sizeof(a) / sizeof *(a)))

Suite *f8_suite(void)
{
    Suite *s = suite_create("memory_bytes");
    TCase *bytes = tcase_create("bytes"), *plan = tcase_create("plans");
    tcase_set_timeout(bytes, 600);
    tcase_set_timeout(plan, 600);
    tcase_add_loop_test(bytes, planned_is_measured, 0, LENGTH(runs));
    tcase_add_loop_test(bytes, planned_for_gpus, 0, 3);
    tcase_add_loop_test(plan, budgets_in_bytes, 0, 3);
    tcase_add_loop_test(plan, budgets_of_a_program, 0, 2);
    tcase_add_test(plan, budgets_refused);
    tcase_add_test(plan, merging_within_a_budget);
    tcase_add_loop_test(plan, budgets_that_cannot_be_met, 0, 7);
    tcase_add_loop_test(plan, a_plan_cannot_run, 0, 2);
    tcase_add_test(plan, memory_runs_out);
    tcase_add_loop_test(plan, reference_has_none, 0, 2);
    suite_add_tcase(s, bytes);
    suite_add_tcase(s, plan);
    return s;
}
