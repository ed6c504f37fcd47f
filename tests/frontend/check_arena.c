/* Arenas: several programs work in one block of memory, which is as large as the program that needs
 * most of it; their bits are those of programs with memory of their own. On the CPU and on CUDA. */
#include "frontend/fp8c_ranks.h"
#include "tests/shared/api/pair_layer.h"
#include "tests/shared/cuda/embedder.h"
#include "tests/shared/cuda/gpu.h"
#include "tests/shared/suite.h"

static bool emulated;
static const char *const targets[] = {"cpu", "cuda"};

/* ---- programs of one layer ---- */

typedef struct program {
    fp8c_program *p;
    pair_values in, out;
    bool first;
} program;

enum { PROGRAMS = 4 };
static const struct {
    int rows;
    bool trains;
} kinds[PROGRAMS] = {{32, true}, {16, true}, {32, false}, {64, true}};
enum { LARGEST = 3 };

/* The layer of pair_layer.h with another number of rows. */
static const char *layer_of(int rows)
{
    static char text[4 * sizeof layer];
    char *to = text;
    for (const char *at = layer; *at;) {
        const bool is = !strncmp(at, "[32", 3);
        to += is ? sprintf(to, "[%d", rows) : sprintf(to, "%c", *at);
        at += is ? 3 : 1;
    }
    return text;
}

static fp8c_compile_options options_of(int kind, const char *target, const char *name,
                                       fp8c_arena *arena)
{
    fp8c_compile_options o = recipe(name);
    o.target = target;
    o.pair = kinds[kind].trains;
    o.inference = !kinds[kind].trains;
    o.arena = arena;
    return o;
}

static program *make_kind(fp8c_context *ctx, int kind, const char *target, const char *name,
                          fp8c_arena *arena)
{
    program *x = calloc(1, sizeof *x);
    const fp8c_compile_options o = options_of(kind, target, name, arena);
    x->p = make(ctx, layer_of(kinds[kind].rows), &o);
    x->first = true;
    return x;
}

static void end_kind(program *x)
{
    fp8c_program_destroy(x->p);
    pair_end(&x->in);
    pair_end(&x->out);
    free(x);
}

static void step_kind(program *x, int kind)
{
    if (kinds[kind].trains) {
        pair_step(x->p, x->first && fp8c_program_function(x->p, "forward.first") >= 0, &x->in,
                  &x->out);
        if (fp8c_program_function(x->p, "update_scales") >= 0)
            pair_run(x->p, "update_scales", &x->in, &x->out);
        x->first = false;
    } else
        pair_run(x->p, "eval", &x->in, &x->out);
}

static void same_results(const program *a, const program *b)
{
    ck_assert_int_eq(a->out.n, b->out.n);
    ck_assert_int_gt(a->out.n, 0);
    for (int i = 0; i < a->out.n; i++)
        ck_assert_msg(pair_equal(&a->out, &b->out, a->out.value[i].name), "%s",
                      a->out.value[i].name);
}

static int64_t planned_of(const fp8c_program *p)
{
    fp8c_info info = {.struct_size = sizeof info};
    fp8c_program_info(p, &info);
    return info.planned_bytes;
}

static int64_t held_of(const fp8c_program *p)
{
    fp8c_info info = {.struct_size = sizeof info};
    fp8c_program_info(p, &info);
    return info.peak_bytes;
}

static fp8c_arena *new_arena(fp8c_context *ctx)
{
    fp8c_arena *arena;
    ck_assert_int_eq(fp8c_arena_create(ctx, NULL, &arena), FP8C_OK);
    return arena;
}

static const char *const arena_recipes[] = {"bf16", "current", "delayed", "f32"};

/* ---- bytes and bits ---- */

/* Four programs hold the arena of the largest, and what they have to themselves. In any order their
 * results are those of programs that are alone. */
START_TEST(bytes_and_bits)
{
    const char *const target = targets[_i % 2], *const name = arena_recipes[_i / 2];
    fp8c_context *ctx = new_context();
    fp8c_arena *arena = new_arena(ctx);
    program *alone[PROGRAMS], *shared[PROGRAMS];
    int64_t most = 0, sum = 0;
    ck_assert_int_eq(fp8c_arena_bytes(arena), 0);
    for (int k = 0; k < PROGRAMS; k++) { /* the largest comes last: the others' places move */
        alone[k] = make_kind(ctx, k, target, name, NULL);
        shared[k] = make_kind(ctx, k, target, name, arena);
        const int64_t own = planned_of(alone[k]->p) - planned_of(shared[k]->p);
        ck_assert_int_gt(own, 0);
        ck_assert_int_eq(held_of(alone[k]->p) - held_of(shared[k]->p), own);
        most = own > most ? own : most;
        sum += own;
        ck_assert_int_eq(fp8c_arena_bytes(arena), most);
        for (int i = 0; i <= k; i++) {
            step_kind(alone[i], i);
            step_kind(shared[i], i);
            same_results(alone[i], shared[i]);
        }
    }
    ck_assert_int_lt(2 * most, sum);
    for (int turn = 0; turn < 8; turn++) {
        const int k = (5 * turn + turn / 4) % PROGRAMS;
        step_kind(alone[k], k);
        step_kind(shared[k], k);
        same_results(alone[k], shared[k]);
    }
    fp8c_arena_destroy(arena); /* its programs live on */
    for (int k = 0; k < PROGRAMS; k++) {
        step_kind(alone[k], k);
        step_kind(shared[k], k);
        same_results(alone[k], shared[k]);
        end_kind(alone[k]);
        end_kind(shared[k]);
    }
    fp8c_context_destroy(ctx);
}
END_TEST

/* The largest goes, and the others go on in its memory; with the last program the memory goes, and
 * the arena takes programs again. */
START_TEST(destroyed)
{
    const char *const target = targets[_i];
    fp8c_context *ctx = new_context();
    fp8c_arena *arena = new_arena(ctx);
    program *alone = make_kind(ctx, 0, target, "delayed", NULL);
    for (int round = 0; round < 2; round++) {
        program *large = make_kind(ctx, LARGEST, target, "delayed", arena),
                *small = make_kind(ctx, 0, target, "delayed", arena);
        ck_assert_int_eq(fp8c_program_initialize(alone->p, 7), FP8C_OK);
        alone->first = true;
        const int64_t bytes = fp8c_arena_bytes(arena);
        step_kind(large, LARGEST);
        step_kind(small, 0);
        end_kind(large);
        ck_assert_int_eq(fp8c_arena_bytes(arena), bytes);
        step_kind(alone, 0);
        same_results(alone, small);
        step_kind(alone, 0);
        step_kind(small, 0);
        same_results(alone, small);
        end_kind(small);
        ck_assert_int_eq(fp8c_arena_bytes(arena), 0);
    }
    end_kind(alone);
    fp8c_arena_destroy(arena);
    fp8c_context_destroy(ctx);
}
END_TEST

/* ---- failures ---- */

typedef struct giver {
    driver *d;
    bool empty;
} giver;

static void *give(void *user, size_t size)
{
    giver *g = user;
    return g->empty ? NULL : device_alloc(g->d, size);
}

static void take_back(void *user, void *ptr, size_t size)
{
    device_free(((giver *)user)->d, ptr, size);
}

/* A program that can't have its memory is not made; the others keep theirs, and run. An arena asks
 * its own device_alloc for memory, not that of its programs. */
START_TEST(no_memory)
{
    driver d = open_driver();
    giver g = {.d = &d};
    fp8c_context *ctx = new_context();
    const fp8c_arena_options a = {sizeof a, give, take_back, &g};
    fp8c_arena *arena;
    fp8c_program *p;
    ck_assert_int_eq(fp8c_arena_create(ctx, &a, &arena), FP8C_OK);
    program *alone = make_kind(ctx, 0, "cuda", "bf16", NULL),
            *small = make_kind(ctx, 0, "cuda", "bf16", arena);
    const int64_t bytes = fp8c_arena_bytes(arena);
    ck_assert_int_eq((int64_t)d.bytes, bytes);
    g.empty = true;
    fp8c_module *m = parse(ctx, layer_of(kinds[LARGEST].rows));
    const fp8c_compile_options o = options_of(LARGEST, "cuda", "bf16", arena);
    ck_assert_int_eq(fp8c_compile(m, &o, &p), FP8C_ERR_MEMORY);
    said(ctx, "out of device memory");
    ck_assert_int_eq(fp8c_arena_bytes(arena), bytes);
    for (int i = 0; i < 2; i++) {
        step_kind(alone, 0);
        step_kind(small, 0);
        same_results(alone, small);
    }
    g.empty = false;
    p = compile(ctx, m, &o);
    ck_assert_int_gt(fp8c_arena_bytes(arena), bytes);
    ck_assert_int_eq((int64_t)d.bytes, fp8c_arena_bytes(arena));
    step_kind(alone, 0);
    step_kind(small, 0);
    same_results(alone, small);
    fp8c_program_destroy(p);
    fp8c_module_destroy(m);
    end_kind(alone);
    end_kind(small);
    ck_assert(d.live == 0 && d.bytes == 0);
    fp8c_arena_destroy(arena);
    fp8c_context_destroy(ctx);
    close_driver(&d);
}
END_TEST

/* Every allocation of a life with an arena may fail. */
static fp8c_status arena_life(const void *user, counting *c, char *message, size_t room)
{
    const fp8c_context_options o = counted_options(c);
    fp8c_compile_options small = recipe("bf16");
    fp8c_context *ctx;
    fp8c_module *m = NULL;
    fp8c_arena *arena = NULL;
    fp8c_program *p = NULL, *q = NULL;
    (void)user;
    snprintf(message, room, "context");
    fp8c_status status = fp8c_context_create(&o, &ctx);
    if (status != FP8C_OK)
        return status;
    status = fp8c_module_parse(ctx, model, strlen(model), "tiny.f8", NULL, 0, &m);
    if (status == FP8C_OK)
        status = fp8c_arena_create(ctx, NULL, &arena);
    small.arena = arena;
    small.inference = 1;
    if (status == FP8C_OK)
        status = fp8c_compile(m, &small, &p);
    small.inference = 0;
    if (status == FP8C_OK)
        status = fp8c_compile(m, &small, &q);
    if (status == FP8C_OK)
        status = fp8c_program_initialize(p, 1);
    if (status == FP8C_OK)
        status = fp8c_program_run(p, fp8c_program_function(p, "eval"));
    snprintf(message, room, "%s", fp8c_context_message(ctx));
    fp8c_program_destroy(p);
    fp8c_arena_destroy(arena);
    fp8c_program_destroy(q);
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
    return status;
}

START_TEST(allocations)
{
    fail_each_allocation(arena_life, NULL, 40);
}
END_TEST

START_TEST(refusals)
{
    fp8c_context *ctx = new_context(), *other = new_context();
    fp8c_arena *arena = new_arena(ctx);
    const fp8c_arena_options half = {sizeof half, give, NULL, NULL};
    fp8c_arena *none;
    fp8c_program *p;
    ck_assert_int_eq(fp8c_arena_create(ctx, &half, &none), FP8C_ERR_INPUT);
    said(ctx, "device_alloc and device_free are a pair");
    ck_assert_ptr_null(none);
    program *cpu = make_kind(ctx, 0, "cpu", "bf16", arena);
    const int64_t bytes = fp8c_arena_bytes(arena);
    fp8c_compile_options o = options_of(0, "cuda", "bf16", arena);
    refused(ctx, layer, &o, FP8C_ERR_INPUT, "arena: its programs run on another device");
    o.target = "cpu";
    refused(other, layer, &o, FP8C_ERR_INPUT, "the arena is of another context");
    const fp8c_comm comm = {.struct_size = sizeof comm, .ranks = 1};
    o.comm = &comm;
    refused(ctx, layer, &o, FP8C_ERR_INPUT, "are both given");
    o.comm = NULL;
    fp8c_module *m = parse(ctx, layer);
    ck_assert_int_eq(fp8c_compile_file(m, &o, 1, "/nowhere/x.f8x"), FP8C_ERR_INPUT);
    said(ctx, "a file can't have arena");
    fp8c_module_destroy(m);
    o.plan_only = 1; /* it does not run, so it takes nothing */
    m = parse(ctx, layer);
    p = compile(ctx, m, &o);
    fp8c_module_destroy(m);
    fp8c_program_destroy(p);
    ck_assert_int_eq(fp8c_arena_bytes(arena), bytes);
    end_kind(cpu);
    fp8c_arena_destroy(arena);
    if (emulated) {
        setenv("FP8C_EMULATOR_DEVICES", "2", 1);
        arena = new_arena(ctx);
        program *gpu = make_kind(ctx, 0, "cuda", "bf16", arena);
        o = options_of(0, "cuda", "bf16", arena);
        o.device = 1;
        refused(ctx, layer, &o, FP8C_ERR_INPUT, "arena: its programs run on another device");
        end_kind(gpu);
        p = make(ctx, layer, &o); /* the other device, once nobody is on the first */
        fp8c_program_destroy(p);
        fp8c_arena_destroy(arena);
        unsetenv("FP8C_EMULATOR_DEVICES");
    }
    fp8c_context_destroy(other);
    fp8c_context_destroy(ctx);
}
END_TEST

/* ---- at the same time ---- */

typedef struct worker {
    program *shared, *alone;
    int kind;
} worker;

static void *work(void *user)
{
    worker *w = user;
    for (int i = 0; i < 20; i++) {
        step_kind(w->alone, w->kind);
        step_kind(w->shared, w->kind);
        same_results(w->alone, w->shared);
    }
    return NULL;
}

/* Threads that run programs of one arena wait for each other, and for a compile that moves it. */
START_TEST(threads)
{
    fp8c_context *ctx = new_context();
    fp8c_arena *arena = new_arena(ctx);
    worker w[2];
    pthread_t thread[2];
    for (int i = 0; i < 2; i++) {
        w[i] = (worker){make_kind(ctx, 2 * i, targets[_i], "current", arena),
                        make_kind(ctx, 2 * i, targets[_i], "current", NULL), 2 * i};
        ck_assert_int_eq(pthread_create(&thread[i], NULL, work, &w[i]), 0);
    }
    program *large = make_kind(ctx, LARGEST, targets[_i], "current", arena);
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(pthread_join(thread[i], NULL), 0);
    for (int i = 0; i < 2; i++) {
        end_kind(w[i].shared);
        end_kind(w[i].alone);
    }
    end_kind(large);
    fp8c_arena_destroy(arena);
    fp8c_context_destroy(ctx);
}
END_TEST

/* Programs on streams of their own: each run waits for the last one of another program, by an
 * event. The emulator does a stream's work as late as it may. */
START_TEST(streams)
{
    if (emulated)
        setenv("FP8C_EMULATOR_LAZY", "1", 1);
    driver d = open_driver();
    void *second;
    ck_assert_int_eq(d.cuStreamCreate(&second, 1), 0);
    fp8c_context *ctx = new_context();
    fp8c_arena *arena = new_arena(ctx);
    fp8c_program *p[2], *own[2];
    float *loss[2], *want[2];
    fp8c_module *m = parse(ctx, model);
    for (int i = 0; i < 2; i++) {
        fp8c_compile_options o = recipe("bf16");
        o.target = "cuda";
        o.arena = arena;
        o.stream = i ? second : d.stream;
        p[i] = compile(ctx, m, &o);
        o.arena = NULL;
        o.stream = NULL;
        own[i] = compile(ctx, m, &o);
        ck_assert_int_eq(fp8c_program_initialize(p[i], (uint64_t)i + 1), FP8C_OK);
        ck_assert_int_eq(fp8c_program_initialize(own[i], (uint64_t)i + 1), FP8C_OK);
    }
    const int step = fp8c_program_function(p[0], "micro_step"),
              update = fp8c_program_function(p[0], "update"),
              port = fp8c_program_find_port(p[0], step, FP8C_OUTPUT, "loss");
    for (int turn = 0; turn < 4; turn++) {
        for (int i = 0; i < 2; i++) { /* enqueued in turns; nobody waits in between */
            fill_batch(p[i], step);
            ck_assert_int_eq(fp8c_program_run(p[i], step), FP8C_OK);
        }
        for (int i = 1; i >= 0; i--) {
            ck_assert_int_eq(fp8c_program_run(p[i], update), FP8C_OK);
            train_step(own[i]);
        }
        for (int i = 1; i >= 0; i--) {
            ck_assert_int_eq(fp8c_program_wait(p[i]), FP8C_OK);
            loss[i] = fp8c_program_buffer(p[i], step, FP8C_OUTPUT, port);
            want[i] = fp8c_program_buffer(own[i], step, FP8C_OUTPUT, port);
            ck_assert(*loss[i] > 0 && !memcmp(loss[i], want[i], sizeof(float)));
        }
    }
    for (int i = 0; i < 2; i++) {
        fp8c_program_destroy(p[i]);
        fp8c_program_destroy(own[i]);
    }
    fp8c_module_destroy(m);
    fp8c_arena_destroy(arena);
    fp8c_context_destroy(ctx);
    ck_assert_int_eq(d.cuStreamDestroy_v2(second), 0);
    close_driver(&d);
    unsetenv("FP8C_EMULATOR_LAZY");
}
END_TEST

Suite *f8_suite(void)
{
    emulated = f8_test_gpu_emulated();
    Suite *s = suite_create("arena");
    TCase *t = tcase_create("arena");
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_loop_test(t, bytes_and_bits, 0, 8);
    tcase_add_loop_test(t, destroyed, 0, 2);
    tcase_add_test(t, no_memory);
    tcase_add_test(t, allocations);
    tcase_add_test(t, refusals);
    tcase_add_loop_test(t, threads, 0, 2);
    tcase_add_test(t, streams);
    suite_add_tcase(s, t);
    return s;
}
