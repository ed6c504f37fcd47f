/* On the caller's stream a pair enqueues everything there, and the host waits for nothing. The
 * emulator says which stream each piece of work went to, and counts the host's waits; with
 * FP8C_TEST_GPU on this machine's GPU bits alone are compared. */
#include "tests/emulator/driver.h"
#include "tests/shared/api/pair_layer.h"
#include "tests/shared/api/view.h"
#include "tests/shared/cuda/embedder.h"
#include "tests/shared/cuda/gpu.h"
#include "tests/shared/suite.h"

enum { GPU = 2, HOST = 1, MOST = 64 };

static bool emulated, with_arena; /* programs share an arena */

/* ---- the emulator's record ---- */

static struct {
    void (*record)(void);
    int (*recorded)(int index, f8_emulator_work *out);
    int64_t (*waits)(const char *what);
} emulator;

static void open_record(const driver *d)
{
    if (!emulated)
        return;
    *(void **)&emulator.record = dlsym(d->library, "f8_emulator_record");
    *(void **)&emulator.recorded = dlsym(d->library, "f8_emulator_recorded");
    *(void **)&emulator.waits = dlsym(d->library, "f8_emulator_waits");
    ck_assert(emulator.record && emulator.recorded && emulator.waits);
}

static void record(void)
{
    if (emulated)
        emulator.record();
}

static bool is_order(const f8_emulator_work *w)
{
    return !strcmp(w->kind, "event") || !strcmp(w->kind, "wait");
}

/* Everything since record() went to this stream; -> how many launches, copies and sets. */
static int all_on(const void *stream, const char *what)
{
    f8_emulator_work w;
    int n = 0;
    for (int i = 0; emulated && emulator.recorded(i, &w); i++) {
        if (is_order(&w))
            continue;
        ck_assert_msg(w.stream == stream, "%s: %s number %d went to stream %p, not to %p", what,
                      w.kind, i, (void *)w.stream, stream);
        n++;
    }
    return n;
}

static void waited_never(const char *what)
{
    static const char *const kinds[] = {"cuStreamSynchronize", "cuEventSynchronize",
                                        "cuCtxSynchronize",    "synchronous copy",
                                        "pageable copy",       "free"};
    for (int i = 0; emulated && i < 6; i++)
        ck_assert_msg(emulator.waits(kinds[i]) == 0, "%s: %lld of %s", what,
                      (long long)emulator.waits(kinds[i]), kinds[i]);
}

/* ---- a program whose ports are the caller's device memory ---- */

typedef struct tensor {
    char name[96];
    fp8c_type type;
    void *at;
} tensor;

typedef struct numbers {
    int64_t scale;
    int32_t seed;
} numbers;

typedef struct life {
    driver *d;
    fp8c_context *ctx;
    fp8c_arena *arena; /* NULL, or the program's */
    fp8c_program *p;
    fp8c_saved *saved;
    tensor tensor[MOST];
    int n;
    pair_values values; /* of inputs, as pair_case.h makes them */
    numbers *host;      /* NULL, or the inputs `seed` and `scale`, in host memory */
} life;

static void start(life *l, driver *d, const char *text, fp8c_compile_options o)
{
    *l = (life){.d = d, .ctx = new_context()};
    open_record(d);
    o.target = "cuda";
    o.pair = 1;
    if (with_arena)
        ck_assert_int_eq(fp8c_arena_create(l->ctx, NULL, &l->arena), FP8C_OK);
    o.arena = l->arena;
    l->p = make(l->ctx, text, &o);
    ck_assert_int_eq(fp8c_saved_create(l->p, &l->saved), FP8C_OK);
}

static void finish(life *l)
{
    fp8c_saved_destroy(l->saved);
    fp8c_program_destroy(l->p);
    for (int i = 0; i < l->n; i++)
        device_free(l->d, l->tensor[i].at, (size_t)fp8c_type_bytes(&l->tensor[i].type));
    pair_end(&l->values);
    fp8c_arena_destroy(l->arena);
    fp8c_context_destroy(l->ctx);
}

/* Each input has the values that pair_case.h makes of its name. */
static tensor *find(life *l, const fp8c_port *port)
{
    for (int i = 0; i < l->n; i++)
        if (!strcmp(l->tensor[i].name, port->name))
            return &l->tensor[i];
    ck_assert_int_lt(l->n, MOST);
    tensor *t = &l->tensor[l->n++];
    const size_t bytes = (size_t)fp8c_type_bytes(&port->type);
    snprintf(t->name, sizeof t->name, "%s", port->name);
    t->type = port->type;
    t->at = device_alloc(l->d, bytes);
    ck_assert_ptr_nonnull(t->at);
    const void *from = pair_get(&l->values, t->name, &t->type);
    ck_assert_int_eq(l->d->cuMemcpyHtoDAsync_v2((uintptr_t)t->at, from, bytes, l->d->stream), 0);
    ck_assert_int_eq(l->d->cuStreamSynchronize(l->d->stream), 0);
    return t;
}

/* The tensor is made anew, from the present value. */
static void forget(life *l, const char *name)
{
    for (int i = 0; i < l->n; i++)
        if (!strcmp(l->tensor[i].name, name)) {
            ck_assert_int_eq(fp8c_program_wait(l->p), FP8C_OK);
            device_free(l->d, l->tensor[i].at, (size_t)fp8c_type_bytes(&l->tensor[i].type));
            l->tensor[i] = l->tensor[--l->n];
        }
}

static void *host_value(const life *l, const char *name)
{
    if (l->host && !strcmp(name, "seed"))
        return &l->host->seed;
    return l->host && !strcmp(name, "scale") ? &l->host->scale : NULL;
}

typedef struct views {
    fp8c_tensor_view view[MOST];
    const fp8c_tensor_view *list[MOST];
    size_t n;
} views;

static void take(life *l, int function, fp8c_side side, views *v)
{
    fp8c_port port;
    v->n = 0;
    for (int i = 0; fp8c_program_port(l->p, function, side, i, &port) == FP8C_OK; i++) {
        if (port.variable >= 0 || !strncmp(port.name, "saved.", 6))
            continue;
        ck_assert_uint_lt(v->n, MOST);
        tensor *t = find(l, &port);
        void *host = host_value(l, port.name);
        v->view[v->n] = view_of(&t->type, host ? host : t->at, host ? HOST : GPU);
        v->list[v->n] = &v->view[v->n];
        v->n++;
    }
}

enum { FORWARD, FIRST, BACKWARD, EVAL, OTHER };

static void call(life *l, int kind, const char *name)
{
    const int function = fp8c_program_function(l->p, name);
    static views in, out;
    ck_assert_msg(function >= 0, "no function %s", name);
    take(l, function, FP8C_INPUT, &in);
    take(l, function, FP8C_OUTPUT, &out);
    record();
    const fp8c_status status =
        kind == BACKWARD ? fp8c_program_backward(l->p, l->saved, in.list, in.n, out.list, out.n)
        : kind == EVAL   ? fp8c_program_call(l->p, function, in.list, in.n, out.list, out.n)
        : kind == OTHER  ? fp8c_program_run(l->p, function)
                         : fp8c_program_forward(l->p, kind == FIRST ? FP8C_FORWARD_FIRST : 0,
                                                l->saved, in.list, in.n, out.list, out.n);
    ck_assert_msg(status == FP8C_OK, "%s: %s", name, fp8c_context_message(l->ctx));
}

static bool has(const life *l, const char *name)
{
    return fp8c_program_function(l->p, name) >= 0;
}

/* The calls of a step, in their order; NULL: the program does not have this one. */
static const char *call_of_step(const life *l, int i, bool first, int *kind)
{
    static const struct {
        const char *name;
        int kind;
    } calls[] = {{"prepare", OTHER},
                 {"forward", FORWARD},
                 {"backward", BACKWARD},
                 {"eval", EVAL},
                 {"update_scales", OTHER}};
    *kind = calls[i].kind == FORWARD && first ? FIRST : calls[i].kind;
    return has(l, calls[i].name) ? calls[i].name : NULL;
}
enum { CALLS = 5 };

/* What a step has given: the results and the gradients. */
static void fetch(life *l, pair_values *to)
{
    ck_assert_int_eq(fp8c_program_wait(l->p), FP8C_OK);
    for (int i = 0; i < l->n; i++) {
        void *bytes = malloc((size_t)fp8c_type_bytes(&l->tensor[i].type));
        ck_assert_int_eq(copy_from_device(l->d, bytes, l->tensor[i].at,
                                          (size_t)fp8c_type_bytes(&l->tensor[i].type)),
                         0);
        pair_set(to, l->tensor[i].name, &l->tensor[i].type, bytes);
        free(bytes);
    }
}

static void same_tensors(const pair_values *a, const pair_values *b)
{
    ck_assert_int_eq(a->n, b->n);
    for (int i = 0; i < a->n; i++)
        ck_assert_msg(pair_equal(a, b, a->value[i].name), "%s", a->value[i].name);
}

static const char *const kinds_of_recipe[] = {"f32", "bf16", "current", "delayed", "rowwise"};
enum { CASES = 3 * 5 };

/* ---- where work goes ---- */

/* A stream of the caller's; the default one under its name; the default one of a thread. */
static void *stream_of(const life *l, int i)
{
    return i == 0 ? l->d->stream : (void *)(uintptr_t)i;
}

/* Every call of every step: all of its work is in the stream, and the host does not wait. The first
 * of each call may load kernels and capture graphs, but it does not wait either. With an arena the
 * same. */
START_TEST(all_in_stream)
{
    static life l;
    driver d = open_driver();
    with_arena = _i >= CASES;
    start(&l, &d, layer, recipe(kinds_of_recipe[_i % CASES / 3]));
    void *const stream = stream_of(&l, _i % 3);
    record();
    ck_assert_msg(fp8c_program_set_stream(l.p, stream) == FP8C_OK, "%s",
                  fp8c_context_message(l.ctx));
    waited_never("set_stream");
    for (int step = 0; step < 3; step++)
        for (int i = 0; i < CALLS; i++) {
            int kind;
            const char *name = call_of_step(&l, i, step == 0, &kind);
            if (!name)
                continue;
            call(&l, kind, name);
            const int n = all_on(stream, name);
            ck_assert(!emulated || n > 0 || kind == OTHER);
            waited_never(name);
        }
    finish(&l);
    close_driver(&d);
}
END_TEST

/* What copies between the program and the host waits, in the program's stream; nothing goes to
 * another stream. A carry reads and writes small states so. */
START_TEST(states_in_stream)
{
    static life l;
    driver d = open_driver();
    start(&l, &d, layer, recipe("delayed"));
    fp8c_compile_options o = recipe("delayed");
    o.target = "cuda";
    o.pair = 1;
    fp8c_program *other = make(l.ctx, layer, &o);
    void *const stream = stream_of(&l, _i);
    ck_assert_int_eq(fp8c_program_set_stream(l.p, stream), FP8C_OK);
    ck_assert_int_eq(fp8c_program_set_stream(other, stream), FP8C_OK);
    call(&l, FIRST, "forward");
    call(&l, BACKWARD, "backward");
    call(&l, OTHER, "update_scales");
    const int history = fp8c_program_find_variable(l.p, "fp8.amax_history");
    ck_assert_int_ge(history, 0);
    fp8c_variable v;
    ck_assert_int_eq(fp8c_program_variable(l.p, history, &v), FP8C_OK);
    float *values = malloc((size_t)fp8c_type_bytes(&v.type));
    record();
    ck_assert_int_eq(fp8c_program_read(l.p, history, values), FP8C_OK);
    ck_assert(values[0] > 0);
    ck_assert_int_eq(fp8c_program_write(l.p, history, values), FP8C_OK);
    ck_assert(!emulated || (all_on(stream, "read and write") == 2 && emulator.waits(NULL) > 0));
    free(values);
    record();
    ck_assert_int_eq(fp8c_program_carry(other, l.p, NULL), FP8C_OK);
    all_on(stream, "carry");
    fp8c_program_destroy(other);
    finish(&l);
    close_driver(&d);
}
END_TEST

/* ---- a seed ---- */

static const char drop[] =
    "module drop\nparam w: f32[32, 32] normal(1)\n"
    "func forward(%x: f32[32, 32], %seed: i32[], %scale: i64[]) -> (%y: f32[32, 32]) {\n"
    "  return mul(dropout(linear(%x, w), %seed) {p = 0.5}, cast(cast(%scale) {to = i32}) {to = "
    "f32})\n}\n";

/* The caller gives a new seed at each call, and overwrites its memory as soon as the call returns.
 * No copy waits for the GPU, and none reads that memory later. */
START_TEST(seed)
{
    driver d = open_driver();
    static life own, l;
    static pair_values want, got;
    static numbers host, there;
    const fp8c_type i32 = {.dtype = FP8C_I32}, i64 = {.dtype = FP8C_I64};
    if (emulated)
        setenv("FP8C_EMULATOR_LAZY", "1", 1);
    want.n = got.n = 0;
    start(&own, &d, drop, recipe("bf16"));
    start(&l, &d, drop, recipe("bf16"));
    l.host = &host;
    ck_assert_int_eq(fp8c_program_set_stream(l.p, stream_of(&l, _i)), FP8C_OK);
    for (int step = 0; step < 3; step++) {
        there.seed = 1000003 * step - 1;
        there.scale = step % 2 ? -3 : 5;
        pair_set(&own.values, "seed", &i32, &there.seed);
        pair_set(&own.values, "scale", &i64, &there.scale);
        for (int i = 0; i < 2; i++) {
            const int kind = i ? BACKWARD : FORWARD;
            const char *name = i ? "backward" : "forward";
            forget(&own, "seed");
            forget(&own, "scale");
            call(&own, kind, name);
            host = there;
            call(&l, kind, name);
            all_on(stream_of(&l, _i), name);
            waited_never(name);
            memset(&host, 0x5a, sizeof host);
        }
        fetch(&own, &want);
        fetch(&l, &got);
        ck_assert(pair_equal(&want, &got, "y") && pair_equal(&want, &got, "w"));
        const float *y = pair_find(&got, "y")->data;
        int zeros = 0;
        for (int k = 0; k < 1024; k++)
            zeros += y[k] == 0;
        ck_assert(zeros > 300 && zeros < 700);
    }
    pair_end(&want);
    pair_end(&got);
    finish(&l);
    finish(&own);
    close_driver(&d);
    unsetenv("FP8C_EMULATOR_LAZY");
}
END_TEST

/* ---- another stream from call to call ---- */

/* The streams are ordered by events: the emulator does the work of a stream as late as it may, and
 * the host waits for none. */
START_TEST(changes)
{
    static life own, l;
    driver d = open_driver();
    static pair_values want, got;
    if (emulated)
        setenv("FP8C_EMULATOR_LAZY", "1", 1);
    want.n = got.n = 0;
    start(&own, &d, layer, recipe(kinds_of_recipe[_i]));
    start(&l, &d, layer, recipe(kinds_of_recipe[_i]));
    int turn = 0;
    for (int step = 0; step < 3; step++)
        for (int i = 0; i < CALLS; i++) {
            int kind;
            const char *name = call_of_step(&l, i, step == 0, &kind);
            if (!name)
                continue;
            call(&own, kind, name);
            record();
            ck_assert_int_eq(fp8c_program_set_stream(l.p, stream_of(&l, turn % 3)), FP8C_OK);
            waited_never("set_stream");
            f8_emulator_work w;
            for (int k = 0; emulated && emulator.recorded(k, &w); k++)
                ck_assert_msg(is_order(&w), "set_stream enqueued a %s", w.kind);
            call(&l, kind, name);
            all_on(stream_of(&l, turn % 3), name);
            waited_never(name);
            turn++;
        }
    fetch(&own, &want);
    fetch(&l, &got);
    same_tensors(&want, &got);
    pair_end(&want);
    pair_end(&got);
    finish(&l);
    finish(&own);
    close_driver(&d);
    unsetenv("FP8C_EMULATOR_LAZY");
}
END_TEST

/* ---- parameters that move ---- */

enum { PARAMS_N = 4, PLACES = 12 };
static const char *const param_names[PARAMS_N] = {"ln", "up", "up.bias", "down"};

/* Parameters in device memory of the caller's, one place of several at a time. */
typedef struct places {
    fp8c_type type[PARAMS_N];
    void *at[PLACES][PARAMS_N], *value[PARAMS_N];
    int variable[PARAMS_N];
} places;

static size_t param_bytes(const places *s, int i)
{
    return (size_t)fp8c_type_bytes(&s->type[i]);
}

static void set_place(life *l, const places *s, int place, bool values)
{
    for (int i = 0; i < PARAMS_N; i++) {
        void *from = malloc(param_bytes(s, i));
        memset(from, 0xff, param_bytes(s, i)); /* NaNs */
        if (values)
            memcpy(from, s->value[i], param_bytes(s, i));
        ck_assert_int_eq(l->d->cuMemcpyHtoDAsync_v2((uintptr_t)s->at[place][i], from,
                                                    param_bytes(s, i), l->d->stream),
                         0);
        ck_assert_int_eq(l->d->cuStreamSynchronize(l->d->stream), 0);
        free(from);
    }
}

/* As a framework that gathers parameters: they are at a place during the call, and nowhere after.
 */
static void call_at(life *l, const places *s, int place, int kind, const char *name)
{
    fp8c_tensor_view view[PARAMS_N];
    const fp8c_tensor_view *list[PARAMS_N];
    set_place(l, s, place, true);
    for (int i = 0; i < PARAMS_N; i++) {
        view[i] = view_of(&s->type[i], s->at[place][i], GPU);
        list[i] = &view[i];
    }
    record();
    ck_assert_msg(fp8c_program_move_variables(l->p, s->variable, list, PARAMS_N) == FP8C_OK, "%s",
                  fp8c_context_message(l->ctx));
    waited_never("move_variables");
    call(l, kind, name);
    waited_never(name);
    ck_assert_int_eq(fp8c_program_move_variables(l->p, s->variable, NULL, PARAMS_N), FP8C_OK);
    ck_assert_int_eq(fp8c_program_wait(l->p), FP8C_OK);
    set_place(l, s, place, false);
}

static void make_places(life *l, life *own, places *s)
{
    fp8c_variable v;
    for (int i = 0; i < PARAMS_N; i++) {
        s->variable[i] = fp8c_program_find_variable(l->p, param_names[i]);
        ck_assert_int_eq(fp8c_program_variable(l->p, s->variable[i], &v), FP8C_OK);
        s->type[i] = v.type;
        s->value[i] = malloc(param_bytes(s, i));
        ck_assert_int_eq(fp8c_program_read(own->p,
                                           fp8c_program_find_variable(own->p, param_names[i]),
                                           s->value[i]),
                         FP8C_OK);
        for (int k = 0; k < PLACES; k++)
            s->at[k][i] = device_alloc(l->d, param_bytes(s, i));
    }
}

/* forward at one place and backward at another, more places than graphs are kept for, and places
 * that come back. Where the parameters were there are NaNs, so a graph with an address of another
 * call would show. */
START_TEST(moves)
{
    driver d = open_driver();
    static life own, l;
    static places s;
    static pair_values want, got;
    const char *const name = kinds_of_recipe[_i];
    fp8c_compile_options o = recipe(name);
    want.n = got.n = 0;
    start(&own, &d, layer, o);
    o.external = "ln,up,up.bias,down,saved.*"; /* handles have what is saved */
    start(&l, &d, layer, o);
    make_places(&l, &own, &s);
    ck_assert_int_eq(fp8c_program_set_stream(l.p, d.stream), FP8C_OK);
    const bool prepares = has(&l, "prepare");
    for (int step = 0, place = 0; step < 16; step++) {
        if (prepares) {
            call(&own, OTHER, "prepare");
            call_at(&l, &s, place++ % PLACES, OTHER, "prepare");
        }
        const int kind = step ? FORWARD : FIRST, back = step % 3 ? 7 * step : place;
        call(&own, kind, "forward");
        call_at(&l, &s, place++ % PLACES, kind, "forward");
        call(&own, BACKWARD, "backward");
        call_at(&l, &s, back % PLACES, BACKWARD, "backward");
        if (has(&l, "update_scales")) {
            call(&own, OTHER, "update_scales");
            call_at(&l, &s, place % PLACES, OTHER, "update_scales");
        }
        fetch(&own, &want);
        fetch(&l, &got);
        same_tensors(&want, &got);
    }
    for (int i = 0; i < PARAMS_N; i++) {
        for (int k = 0; k < PLACES; k++)
            device_free(&d, s.at[k][i], param_bytes(&s, i));
        free(s.value[i]);
    }
    pair_end(&want);
    pair_end(&got);
    finish(&l);
    finish(&own);
    close_driver(&d);
}
END_TEST

Suite *f8_suite(void)
{
    emulated = f8_test_gpu_emulated();
    Suite *s = suite_create("cuda streams");
    TCase *t = tcase_create("cuda streams");
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_loop_test(t, all_in_stream, 0, 2 * CASES);
    tcase_add_loop_test(t, states_in_stream, 0, 3);
    tcase_add_loop_test(t, seed, 0, 3);
    tcase_add_loop_test(t, changes, 0, 5);
    tcase_add_loop_test(t, moves, 0, 5);
    suite_add_tcase(s, t);
    return s;
}
