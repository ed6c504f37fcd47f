/* What is wrong with an fp8c_comm, with how many ranks a program has, or with a file's: each is an
 * error that says what. And exchanges that fail in the middle of a run. */
#include <unistd.h>

#include "frontend/fp8c_ranks.h"
#include "frontend/fp8c_tune.h"
#include "tests/shared/api/api.h"
#include "tests/shared/suite.h"

/* ---- a rank that is told that others have what it has itself ---- */

/* Of `ranks` ranks that all do the same. The exchange number `fails` fails, from 1. */
typedef struct echo {
    int ranks, calls, fails;
    const char *why;
    int told, inside; /* what `observe` was told: exchanges, and of those that have not ended */
    int of_step, of_check; /* in micro_step; of checksums */
    int64_t bytes;
} echo;

static int echo_gather(void *user, const void *send, void *receive, size_t bytes)
{
    echo *e = user;
    if (++e->calls == e->fails)
        return 7;
    for (int r = 0; r < e->ranks; r++)
        memcpy((char *)receive + (size_t)r * bytes, send, bytes);
    return 0;
}

static int echo_all(void *user, const void *send, void *receive, size_t bytes)
{
    echo *e = user;
    if (++e->calls == e->fails)
        return 7;
    for (int r = 0; r < e->ranks; r++)
        memcpy((char *)receive + (size_t)r * bytes, send, bytes);
    return 0;
}

static const char *echo_message(void *user)
{
    return ((echo *)user)->why;
}

static fp8c_comm comm_of(echo *e, int rank)
{
    return (fp8c_comm){.struct_size = sizeof(fp8c_comm),
                       .rank = rank,
                       .ranks = e->ranks,
                       .user = e,
                       .all_gather = echo_gather,
                       .all_to_all = echo_all};
}

static void refused(const fp8c_compile_options *o, fp8c_status status, const char *words)
{
    fp8c_context *ctx = new_context();
    fp8c_module *m = parse(ctx, model);
    fp8c_program *p;
    const fp8c_status got = fp8c_compile(m, o, &p);
    ck_assert_msg(got == status, "%d, not %d: %s", got, status, fp8c_context_message(ctx));
    ck_assert_ptr_null(p);
    said(ctx, words);
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
}

/* ---- what a comm must have ---- */

START_TEST(bad_comms)
{
    echo e = {.ranks = 2};
    const fp8c_comm good = comm_of(&e, 1);
    const struct {
        size_t size;
        int rank, ranks;
        bool no_gather, no_all;
        const char *says;
    } wrong[] = {
        {sizeof good, 2, 2, 0, 0, "comm: rank 2 of 2: ranks are 1 to 1024"},
        {sizeof good, -1, 2, 0, 0, "comm: rank -1 of 2"},
        {sizeof good, 0, 0, 0, 0, "comm: rank 0 of 0"},
        {sizeof good, 0, -3, 0, 0, "comm: rank 0 of -3"},
        {sizeof good, 0, 1025, 0, 0, "comm: rank 0 of 1025"},
        {sizeof good, 0, 2000, 0, 0, "comm: rank 0 of 2000"},
        {sizeof good, 1, 2, 1, 0, "comm: all_gather and all_to_all are both needed"},
        {sizeof good, 1, 2, 0, 1, "comm: all_gather and all_to_all are both needed"},
        {offsetof(fp8c_comm, all_to_all), 1, 2, 0, 0, "all_gather and all_to_all are both needed"},
        {0, 1, 2, 0, 0, "fp8c_comm has struct_size 0"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        fp8c_comm c = good;
        c.struct_size = wrong[i].size;
        c.rank = wrong[i].rank;
        c.ranks = wrong[i].ranks;
        c.all_gather = wrong[i].no_gather ? NULL : c.all_gather;
        c.all_to_all = wrong[i].no_all ? NULL : c.all_to_all;
        fp8c_compile_options o = recipe("bf16");
        o.comm = &c;
        refused(&o, FP8C_ERR_INPUT, wrong[i].says);
    }
}
END_TEST

/* The last of 1024 ranks. */
START_TEST(most_ranks)
{
    echo e = {.ranks = 1024};
    const fp8c_comm comm = comm_of(&e, 1023);
    fp8c_context *ctx = new_context();
    fp8c_module *m = parse(ctx, model);
    fp8c_compile_options with = recipe("bf16"), without = recipe("bf16");
    with.comm = &comm;
    without.ranks = 1024;
    without.no_device = 1;
    fp8c_program_destroy(compile(ctx, m, &with));
    fp8c_program_destroy(compile(ctx, m, &without));
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
}
END_TEST

static int adds_nothing(void *user, const float *send, float *receive, size_t n)
{
    (void)user, (void)send, (void)receive, (void)n;
    return 0;
}

START_TEST(half_a_library)
{
    echo e = {.ranks = 2};
    fp8c_comm c = comm_of(&e, 1);
    fp8c_compile_options o = recipe("bf16");
    o.comm = &c;
    c.all_reduce = _i ? adds_nothing : NULL;
    c.reduce_scatter = _i ? NULL : adds_nothing;
    refused(&o, FP8C_ERR_INPUT, "comm: give both all_reduce and reduce_scatter, or neither");
}
END_TEST

START_TEST(bad_options)
{
    echo e = {.ranks = 2};
    const fp8c_comm comm = comm_of(&e, 1);
    const struct {
        fp8c_compile_options o;
        fp8c_status status;
        const char *says;
    } wrong[] = {
        {{.ranks = 2}, FP8C_ERR_INPUT, "ranks: to run on 2, comm must say how they exchange bytes"},
        {{.ranks = -1, .no_device = 1}, FP8C_ERR_INPUT, "ranks: -1 is not from 1 to 1024"},
        {{.ranks = 1025, .no_device = 1}, FP8C_ERR_INPUT, "ranks: 1025 is not from 1 to 1024"},
        {{.ranks = 3, .comm = &comm}, FP8C_ERR_INPUT, "ranks: 3 are asked for, but comm has 2"},
        {{.ranks = 1, .comm = &comm}, FP8C_ERR_INPUT, "ranks: 1 are asked for, but comm has 2"},
        {{.ranks = 3, .comm = &comm, .no_device = 1}, FP8C_ERR_INPUT, "but comm has 2"},
        {{.comm = &comm, .reduce_order = "library"},
         FP8C_ERR_INPUT,
         "reduce_order \"library\": comm has no all_reduce and reduce_scatter of its own"},
        {{.comm = &comm, .reduce_order = "any"},
         FP8C_ERR_INPUT,
         "reduce_order: 'any' is neither ranks nor library"},
        {{.ranks = 2, .no_device = 1, .reduce_order = "library", .reduce_dtype = "bf16"},
         FP8C_ERR_UNSUPPORTED,
         "reduce_order \"library\" sums f32 as it travels"},
        {{.comm = &comm, .pair = 1}, FP8C_ERR_UNSUPPORTED, "a pair of forward and backward"},
        {{.comm = &comm, .pair = 1, .train_step = 1}, FP8C_ERR_UNSUPPORTED, "a pair of forward"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        fp8c_compile_options o = wrong[i].o;
        o.struct_size = sizeof o;
        o.recipe = o.recipe ? o.recipe : "bf16";
        refused(&o, wrong[i].status, wrong[i].says);
    }
}
END_TEST

START_TEST(calibrating)
{
    echo e = {.ranks = 2};
    const fp8c_comm comm = comm_of(&e, 1);
    fp8c_context *ctx = new_context();
    fp8c_module *m = parse(ctx, model);
    fp8c_compile_options o = recipe("auto");
    o.comm = &comm;
    fp8c_calibration *c;
    ck_assert_int_eq(fp8c_calibration_create(m, &o, 0.1, &c), FP8C_ERR_UNSUPPORTED);
    ck_assert_ptr_null(c);
    said(ctx, "'auto' is chosen by one rank: compile for one, and give the rules that it chooses");
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
}
END_TEST

/* Each rank would replace a state by what its own inputs give. */
START_TEST(own_states)
{
    static const char text[] = "module counting\nparam w: f32[4] ones\nstate seen: f32[] zeros\n"
                               "func forward(%x: f32[4]) -> (%loss: f32[]) {\n"
                               "  %y = reshape(reduce_sum(mul(%x, w))) {shape = []}\n"
                               "  return %y, seen <- add(seen, %y)\n}\n";
    echo e = {.ranks = 2};
    const fp8c_comm comm = comm_of(&e, 0);
    fp8c_context *ctx = new_context();
    fp8c_module *m = parse(ctx, text);
    fp8c_compile_options o = recipe("bf16");
    o.comm = &comm;
    fp8c_program *p;
    ck_assert_int_eq(fp8c_compile(m, &o, &p), FP8C_ERR_UNSUPPORTED);
    said(ctx, "tiny.f8:3:7: error: state 'seen' would differ from rank to rank");
    o.comm = NULL;
    p = compile(ctx, m, &o);
    fp8c_program_destroy(p);
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
}
END_TEST

/* A collective of the text is for the ranks of the program, one too. */
START_TEST(other_ranks)
{
    static const char text[] = "module gather\nfunc forward(%x: f32[4]) -> (%y: f32[2, 4]) {\n"
                               "  return all_gather(%x) {ranks = 2}\n}\n";
    fp8c_context *ctx = new_context();
    fp8c_module *m = parse(ctx, text);
    fp8c_compile_options o = recipe("bf16");
    o.inference = 1;
    fp8c_program *p;
    ck_assert_int_eq(fp8c_compile(m, &o, &p), FP8C_ERR_INPUT);
    said(ctx, "tiny.f8:3:10: error: all_gather is for 2 ranks, but the program is compiled for 1");
    echo e = {.ranks = 3};
    const fp8c_comm comm = comm_of(&e, 0);
    o.comm = &comm;
    ck_assert_int_eq(fp8c_compile(m, &o, &p), FP8C_ERR_INPUT);
    said(ctx, "all_gather is for 2 ranks, but the program is compiled for 3");
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
}
END_TEST

/* ---- exchanges that fail ---- */

/* Every exchange of a step fails once: the run says which rank and call, and what the caller says.
 * The program still runs, and can be given its first variables again. */
START_TEST(failing)
{
    echo e = {.ranks = 2};
    fp8c_comm comm = comm_of(&e, 1);
    comm.message = echo_message;
    fp8c_context *ctx = new_context();
    fp8c_module *m = parse(ctx, model);
    fp8c_compile_options o = recipe("delayed");
    o.comm = &comm;
    fp8c_program *p = compile(ctx, m, &o);
    const int step = fp8c_program_function(p, "micro_step"),
              update = fp8c_program_function(p, "update");
    ck_assert_int_eq(fp8c_program_initialize(p, 1), FP8C_OK);
    e.fails = 1; /* the first one compares what the ranks run */
    fill_batch(p, step);
    ck_assert_int_eq(fp8c_program_run(p, step), FP8C_ERR_LIBRARY);
    said(ctx, "rank 1 of 2: all_gather");
    e.fails = 0;
    train_step(p);
    ck_assert_int_eq(fp8c_program_initialize(p, 1), FP8C_OK);
    e.calls = 0;
    const float loss = train_step(p);
    const int calls = e.calls;
    ck_assert_int_gt(calls, 2);
    for (int i = 1; i <= calls; i++) {
        e = (echo){.ranks = 2, .fails = i, .why = i % 2 ? "the cable is cut" : NULL};
        ck_assert_int_eq(fp8c_program_initialize(p, 1), FP8C_OK);
        fill_batch(p, step);
        fp8c_status status = fp8c_program_run(p, step);
        if (status == FP8C_OK)
            status = fp8c_program_run(p, update);
        ck_assert_int_eq(status, FP8C_ERR_LIBRARY);
        said(ctx, "rank 1 of 2: all_");
        said(ctx, i % 2 ? "the cable is cut" : "of the caller's fp8c_comm failed with 7");
        ck_assert_int_eq(e.calls, i);
        ck_assert_int_eq(fp8c_program_initialize(p, 1), FP8C_OK);
        ck_assert(train_step(p) == loss);
    }
    fp8c_program_destroy(p);
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
}
END_TEST

/* Each call is told right before and right after it, also one that fails, with what it is. */
static void count(void *user, const fp8c_exchange *x, int32_t ended)
{
    echo *e = user;
    ck_assert_int_eq(e->inside, ended);
    ck_assert_int_eq(e->calls, ended ? e->told : e->told++);
    e->inside = !ended;
    ck_assert(!strcmp(x->op, "all_gather") || !strcmp(x->op, "all_to_all"));
    ck_assert_int_gt(x->bytes, 0);
    ck_assert_uint_eq(x->enqueued, 0);
    if (ended)
        return;
    e->bytes += x->bytes;
    if (x->function)
        e->of_step += !strcmp(x->function, "micro_step.first") && !strncmp(x->name, "grad.", 5);
    else
        e->of_check += strstr(x->name, "hash") != NULL;
}

START_TEST(observed)
{
    for (int on_caller = 0; on_caller < 2; on_caller++) {
        echo e = {.ranks = 2};
        fp8c_comm comm = comm_of(&e, 1);
        comm.observe = count;
        comm.on_caller = on_caller;
        fp8c_context *ctx = new_context();
        fp8c_module *m = parse(ctx, model);
        fp8c_compile_options o = recipe("delayed");
        o.comm = &comm;
        fp8c_program *p = compile(ctx, m, &o);
        ck_assert_int_eq(fp8c_program_initialize(p, 1), FP8C_OK);
        train_step(p);
        ck_assert_int_eq(e.of_check, 1); /* of the program */
        ck_assert_int_eq(fp8c_program_check_ranks(p), FP8C_OK);
        ck_assert_int_eq(e.of_check, 2);
        ck_assert_int_ge(e.of_step, 1);
        ck_assert_int_eq(e.told, e.calls);
        ck_assert_int_gt(e.bytes, 64);
        e.fails = e.calls + 2;
        fill_batch(p, fp8c_program_function(p, "micro_step"));
        ck_assert_int_eq(fp8c_program_run(p, fp8c_program_function(p, "micro_step")),
                         FP8C_ERR_LIBRARY);
        ck_assert_int_eq(e.told, e.calls);
        ck_assert_int_eq(e.inside, 0);
        fp8c_program_destroy(p);
        fp8c_module_destroy(m);
        fp8c_context_destroy(ctx);
    }
}
END_TEST

/* What another rank runs is not what this one does: nothing is run. */
static int gather_other(void *user, const void *send, void *receive, size_t bytes)
{
    const int failed = echo_gather(user, send, receive, bytes);
    ((char *)receive)[bytes] ^= 1;
    return failed;
}

/* What a rank shows the others first: the hash of its program. */
static unsigned char shown[64];
static int gather_shown(void *user, const void *send, void *receive, size_t bytes)
{
    ck_assert_uint_le(bytes, sizeof shown);
    memcpy(shown, send, bytes);
    gather_other(user, send, receive, bytes);
    return 0;
}

static void show(fp8c_compile_options o, unsigned char out[sizeof shown])
{
    echo e = {.ranks = 2};
    fp8c_comm comm = comm_of(&e, 0);
    comm.all_gather = gather_shown;
    fp8c_context *ctx = new_context();
    fp8c_module *m = parse(ctx, model);
    o.struct_size = sizeof o;
    o.comm = &comm;
    fp8c_program *p = compile(ctx, m, &o);
    const int step = fp8c_program_function(p, "micro_step");
    ck_assert_int_eq(fp8c_program_initialize(p, 1), FP8C_OK);
    fill_batch(p, step);
    memset(shown, 0, sizeof shown);
    ck_assert_int_eq(fp8c_program_run(p, step), FP8C_ERR_INPUT);
    memcpy(out, shown, sizeof shown);
    fp8c_program_destroy(p);
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
}

/* Ranks compare the options that change bits, and no others; an option that is spelled out counts
 * as the default that it is. */
START_TEST(compared_options)
{
    static const struct {
        fp8c_compile_options o;
        bool same;
    } with[] = {{{.recipe = "bf16"}, true},
                {{.threads = 1}, true},
                {{.profile = 1}, true},
                {{.attention = "table"}, true},
                {{.reduce_at = "micro_step"}, true},
                {{.attention = "own"}, false},
                {{.recipe = "f32"}, false},
                {{.lr = 0.5}, false},
                {{.optimizer_steps = 7}, false},
                {{.zero = 1}, false},
                {{.reduce_dtype = "bf16"}, false},
                {{.reduce_at = "update"}, false}};
    unsigned char plain[sizeof shown], other[sizeof shown];
    show((fp8c_compile_options){0}, plain);
    for (size_t i = 0; i < sizeof with / sizeof *with; i++) {
        show(with[i].o, other);
        ck_assert_msg(!memcmp(plain, other, sizeof plain) == with[i].same, "%zu", i);
    }
}
END_TEST

START_TEST(another_program)
{
    echo e = {.ranks = 2};
    fp8c_comm comm = comm_of(&e, 0);
    comm.all_gather = gather_other;
    fp8c_context *ctx = new_context();
    fp8c_module *m = parse(ctx, model);
    fp8c_compile_options o = recipe("bf16");
    o.comm = &comm;
    fp8c_program *p = compile(ctx, m, &o);
    const int step = fp8c_program_function(p, "micro_step");
    ck_assert_int_eq(fp8c_program_initialize(p, 1), FP8C_OK);
    fill_batch(p, step);
    for (int i = 1; i <= 2; i++) { /* every time */
        ck_assert_int_eq(fp8c_program_run(p, step), FP8C_ERR_INPUT);
        said(ctx, "rank 1 runs another program than rank 0");
        ck_assert_int_eq(e.calls, i);
    }
    fp8c_program_destroy(p);
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
}
END_TEST

/* ---- files ---- */

static fp8c_status run_file(fp8c_context *ctx, const char *path, const fp8c_comm *comm, float *loss)
{
    const fp8c_open_options o = {.struct_size = sizeof o, .threads = 1, .comm = comm};
    fp8c_program *p;
    fp8c_status status = fp8c_program_open(ctx, path, &o, &p);
    if (status == FP8C_OK) {
        ck_assert_int_eq(fp8c_program_initialize(p, 1), FP8C_OK);
        *loss = train_step(p);
    }
    fp8c_program_destroy(p);
    return status;
}

START_TEST(files)
{
    char path[] = "/tmp/fp8c-comm-XXXXXX";
    ck_assert_int_ge(mkstemp(path), 0);
    fp8c_context *ctx = new_context();
    fp8c_module *m = parse(ctx, model);
    fp8c_compile_options o = recipe("delayed");
    o.ranks = 2;
    ck_assert_msg(fp8c_compile_file(m, &o, 1, path) == FP8C_OK, "%s", fp8c_context_message(ctx));
    echo two = {.ranks = 2}, three = {.ranks = 3};
    const fp8c_comm of_two = comm_of(&two, 1), of_three = comm_of(&three, 1);
    float loss = 0, compiled;
    ck_assert_int_eq(run_file(ctx, path, &of_two, &loss), FP8C_OK);
    o.ranks = 0;
    o.comm = &of_two;
    fp8c_program *p = compile(ctx, m, &o);
    ck_assert_int_eq(fp8c_program_initialize(p, 1), FP8C_OK);
    compiled = train_step(p);
    fp8c_program_destroy(p);
    ck_assert(loss == compiled);
    ck_assert_int_eq(run_file(ctx, path, NULL, &loss), FP8C_ERR_INPUT);
    said(ctx, "it is compiled for 2 ranks: comm must say how they exchange bytes");
    ck_assert_int_eq(run_file(ctx, path, &of_three, &loss), FP8C_ERR_INPUT);
    said(ctx, "it is compiled for 2 ranks, but comm has 3");
    o.comm = NULL; /* a file for one rank has no exchanges */
    ck_assert_int_eq(fp8c_compile_file(m, &o, 1, path), FP8C_OK);
    ck_assert_int_eq(run_file(ctx, path, &of_two, &loss), FP8C_ERR_INPUT);
    said(ctx, "it is compiled for 1 rank, but comm has 2");
    ck_assert_int_eq(run_file(ctx, path, NULL, &loss), FP8C_OK);
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
    unlink(path);
}
END_TEST

/* The tuner runs programs as often as it likes; other ranks would not. */
START_TEST(tuning)
{
    echo e = {.ranks = 2};
    const fp8c_comm comm = comm_of(&e, 0);
    fp8c_context *ctx = new_context();
    fp8c_module *m = parse(ctx, model);
    fp8c_compile_options o = recipe("bf16");
    o.comm = &comm;
    const fp8c_tune_options tune = {
        .struct_size = sizeof tune, .compile = &o, .database = "/dev/null/tuning"};
    fp8c_tuning *tuning;
    ck_assert_int_eq(fp8c_tune(ctx, m, &tune, &tuning), FP8C_ERR_UNSUPPORTED);
    said(ctx, "tune without comm and ranks");
    ck_assert_int_eq(e.calls, 0);
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
}
END_TEST

/* ---- inference ---- */

/* A loss that eval gives is the mean over the ranks, here 1 and 3 times as large. */
static int gather_thrice(void *user, const void *send, void *receive, size_t bytes)
{
    if (bytes != sizeof(float)) /* the ranks compare what they run */
        return echo_gather(user, send, receive, bytes);
    ((float *)receive)[0] = *(const float *)send;
    ((float *)receive)[1] = 3 * *(const float *)send;
    return 0;
}

START_TEST(inference)
{
    echo e = {.ranks = 2};
    fp8c_comm comm = comm_of(&e, 0);
    comm.all_gather = gather_thrice;
    float loss[2];
    for (int i = 0; i < 2; i++) {
        fp8c_context *ctx = new_context();
        fp8c_module *m = parse(ctx, model);
        fp8c_compile_options o = recipe("bf16");
        o.inference = 1;
        o.comm = i ? &comm : NULL;
        fp8c_program *p = compile(ctx, m, &o);
        const int eval = fp8c_program_function(p, "eval");
        ck_assert_int_eq(fp8c_program_initialize(p, 1), FP8C_OK);
        fill_batch(p, eval);
        ck_assert_int_eq(fp8c_program_run(p, eval), FP8C_OK);
        loss[i] = *(float *)fp8c_program_buffer(p, eval, FP8C_OUTPUT, 0);
        fp8c_program_destroy(p);
        fp8c_module_destroy(m);
        fp8c_context_destroy(ctx);
    }
    ck_assert_float_gt(loss[0], 0);
    ck_assert_float_eq_tol(loss[1], 2 * loss[0], 1e-6f * loss[0]);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *suite = suite_create("comm");
    TCase *c = tcase_create("comm");
    tcase_set_timeout(c, TIMEOUT);
    tcase_add_test(c, bad_comms);
    tcase_add_test(c, most_ranks);
    tcase_add_test(c, bad_options);
    tcase_add_loop_test(c, half_a_library, 0, 2);
    tcase_add_test(c, calibrating);
    tcase_add_test(c, own_states);
    tcase_add_test(c, other_ranks);
    tcase_add_test(c, failing);
    tcase_add_test(c, observed);
    tcase_add_test(c, compared_options);
    tcase_add_test(c, another_program);
    tcase_add_test(c, files);
    tcase_add_test(c, tuning);
    tcase_add_test(c, inference);
    suite_add_tcase(suite, c);
    return suite;
}
