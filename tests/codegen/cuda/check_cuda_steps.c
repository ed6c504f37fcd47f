/* The kernels of the CUDA target that are not row kernels, on the emulator or with FP8C_TEST_GPU on
 * a GPU: copies of every kind against plain loops, and scatter bit for bit with additions in order
 * of position. The result does not depend on the order of blocks. */
#include "codegen/cuda/copy.h"
#include "codegen/cuda/scatter.h"
#include "runtime/cuda/exec.h"
#include "tests/shared/cuda/cuda_device.h"
#include "tests/shared/random.h"
#include "tests/shared/suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TIMEOUT = 600, ROOM = 1 << 20, BASE = 4096 };

static cuda_device device;
static uint8_t before[3][ROOM], after[ROOM], want[ROOM];

static void open_device(void)
{
    cuda_device_open(&device);
}

static void close_device(void)
{
    cuda_device_close(&device);
}

static void fill(uint8_t *p, uint32_t seed)
{
    for (int i = 0; i < ROOM; i++)
        p[i] = (uint8_t)test_random(&seed);
}

/* ---- one step on the device ---- */

/* Blocks in order, and in two random orders. The emulator reads it at each launch; a GPU has its
 * own. */
static const char *const orders[] = {"0", "7", "12345"};

static f8_image compile(const f8_text *t, f8_arena *arena)
{
    f8_nvrtc_result r;
    OK(f8_cuda_compile(device.cuda, t->s, "step.cu", f8_cuda_header, "fp8c.cuh",
                       device.target->name, (f8_nvrtc_options){0}, arena, &r, diag));
    return (f8_image){r.cubin, (int64_t)r.cubin_size};
}

/* Run the step on before[]; variable `read` comes back in `after`. */
static void run(f8_step *step, f8_image *image, int read)
{
    f8_plan_var var[3];
    for (int v = 0; v < 3; v++)
        var[v] = (f8_plan_var){
            .name = "bytes", .type = {F8_BOOL, 1, {ROOM}}, .offset = (int64_t)v * ROOM};
    f8_plan_func func = {.name = "run", .step = step, .n_steps = 1};
    const f8_plan plan = {.module = "check",
                          .target = device.target->name,
                          .var = var,
                          .n_vars = 3,
                          .func = &func,
                          .n_funcs = 1,
                          .state_bytes = 3 * (int64_t)ROOM,
                          .image = image,
                          .n_images = 1};
    const f8_cuda_exec_options options = {0};
    f8_cuda_exec *x;
    OK(f8_cuda_exec_create(&plan, device.cuda, &options, &x, diag));
    for (uint32_t v = 0; v < 3; v++)
        OK(f8_cuda_exec_write(x, v, before[v], diag));
    OK(f8_cuda_exec_run(x, 0, diag));
    OK(f8_cuda_exec_read(x, (uint32_t)read, after, diag));
    f8_cuda_exec_destroy(x);
}

/* ---- copies ---- */

typedef struct copy_case {
    const char *what;
    int kind;
    f8_copy_axes axes;
    int from_shift, to_shift; /* bytes past a multiple of 64 */
    bool wide;                /* force 64-bit indices */
} copy_case;

#define AXES(E, R, ...) {.rank = R, .element = E, __VA_ARGS__}
static const copy_case copies[] = {
    {"bytes", F8_COPY_RUN, AXES(1, 1, .size = {5001}, .from = {1}, .to = {1}), 3, 1, false},
    {"halves", F8_COPY_RUN, AXES(2, 1, .size = {2500}, .from = {1}, .to = {1}), 2, 6, false},
    {"one word", F8_COPY_RUN, AXES(4, 1, .size = {1}, .from = {1}, .to = {1}), 4, 8, false},
    {"words", F8_COPY_RUN, AXES(4, 1, .size = {4097}, .from = {1}, .to = {1}), 0, 4, false},
    {"rows with gaps", F8_COPY_STRIDED,
     AXES(2, 2, .size = {33, 48}, .from = {64, 1}, .to = {48, 1}), 0, 16, false},
    {"odd rows", F8_COPY_STRIDED, AXES(2, 2, .size = {33, 47}, .from = {49, 1}, .to = {53, 1}), 2,
     0, false},
    {"wide index", F8_COPY_STRIDED, AXES(4, 2, .size = {33, 47}, .from = {49, 1}, .to = {53, 1}), 4,
     0, true},
    {"heads", F8_COPY_STRIDED,
     AXES(2, 4, .size = {2, 3, 5, 16}, .from = {240, 16, 48, 1}, .to = {240, 80, 16, 1}), 0, 0,
     false},
    {"rows repeated", F8_COPY_STRIDED,
     AXES(4, 3, .size = {3, 7, 12}, .from = {0, 12, 1}, .to = {84, 12, 1}), 0, 0, false},
    {"columns repeated", F8_COPY_TRANSPOSE,
     AXES(4, 2, .size = {40, 9}, .from = {1, 0}, .to = {9, 1}), 0, 0, false},
    {"every other", F8_COPY_STRIDED, AXES(1, 1, .size = {777}, .from = {2}, .to = {1}), 1, 0,
     false},
    {"spread", F8_COPY_STRIDED, AXES(4, 1, .size = {777}, .from = {1}, .to = {3}), 0, 0, false},
    {"five axes", F8_COPY_STRIDED,
     AXES(4, 5, .size = {2, 3, 2, 3, 4}, .from = {4, 8, 72, 24, 1}, .to = {72, 24, 12, 4, 1}), 0, 0,
     false},
    {"narrow transpose", F8_COPY_STRIDED,
     AXES(4, 2, .size = {100, 4}, .from = {1, 100}, .to = {4, 1}), 0, 0, false},
    {"bytes turned", F8_COPY_TRANSPOSE,
     AXES(1, 2, .size = {256, 144}, .from = {1, 256}, .to = {144, 1}), 0, 0, false},
    {"bytes turned, ragged", F8_COPY_TRANSPOSE,
     AXES(1, 2, .size = {131, 77}, .from = {1, 133}, .to = {79, 1}), 1, 5, false},
    {"bytes turned, one side aligned", F8_COPY_TRANSPOSE,
     AXES(1, 2, .size = {160, 77}, .from = {1, 176}, .to = {79, 1}), 16, 0, false},
    {"bytes turned, other side aligned", F8_COPY_TRANSPOSE,
     AXES(1, 2, .size = {77, 160}, .from = {1, 79}, .to = {176, 1}), 1, 32, false},
    {"halves turned", F8_COPY_TRANSPOSE,
     AXES(2, 2, .size = {72, 200}, .from = {1, 72}, .to = {200, 1}), 0, 0, false},
    {"halves turned, ragged", F8_COPY_TRANSPOSE,
     AXES(2, 2, .size = {65, 9}, .from = {1, 67}, .to = {11, 1}), 2, 4, false},
    {"words turned", F8_COPY_TRANSPOSE,
     AXES(4, 2, .size = {132, 68}, .from = {1, 140}, .to = {72, 1}), 0, 16, false},
    {"words turned, ragged", F8_COPY_TRANSPOSE,
     AXES(4, 2, .size = {8, 129}, .from = {1, 9}, .to = {131, 1}), 4, 8, false},
    {"batches turned", F8_COPY_TRANSPOSE,
     AXES(2, 3, .size = {3, 40, 24}, .from = {960, 1, 40}, .to = {960, 24, 1}), 0, 0, false},
    {"five axes turned", F8_COPY_TRANSPOSE,
     AXES(1, 5, .size = {2, 3, 9, 2, 10}, .from = {540, 9, 1, 270, 27},
          .to = {540, 180, 20, 10, 1}),
     0, 0, false},
};

static void copy_by_hand(const f8_copy_axes *a, const uint8_t *from, uint8_t *to)
{
    int64_t at[F8_COPY_RANK] = {0};
    for (;;) {
        int64_t x = 0, y = 0;
        for (int i = 0; i < a->rank; i++) {
            x += at[i] * a->from[i];
            y += at[i] * a->to[i];
        }
        memcpy(to + y * a->element, from + x * a->element, (size_t)a->element);
        int i = a->rank;
        while (i-- > 0 && ++at[i] == a->size[i])
            at[i] = 0;
        if (i < 0)
            return;
    }
}

static void check_copy(const copy_case *c, const char *order)
{
    f8_arena arena;
    f8_copy_desc d;
    f8_copy_kernel k = {0};
    f8_cuda_launch l;
    f8_arena_init(&arena, NULL);
    f8_cuda_copy_describe(&c->axes, c->from_shift, c->to_shift, &d, &k);
    ck_assert_msg((int)d.kind == c->kind, "%s: kind %d", c->what, d.kind);
    ck_assert(!d.wide);
    d.wide = c->wide;
    f8_text t = {.arena = &arena};
    f8_text_add(&t, "#include \"fp8c.cuh\"\n");
    f8_cuda_copy_emit(&t, &d, false, "copy", &l);
    ck_assert_uint_eq(l.n_ints, k.n_ints);
    f8_image image = compile(&t, &arena);
    k.ints[k.n_ints] = k.n_tasks;
    f8_arg arg[2] = {{F8_SPACE_STATE, -1, BASE + c->from_shift},
                     {F8_SPACE_STATE, -1, ROOM + BASE + c->to_shift}};
    f8_step_phase phase = {.n_tasks = k.n_tasks,
                           .launch = {.symbol = l.symbol,
                                      .threads = l.threads,
                                      .shared = l.shared,
                                      .n_instances = 1,
                                      .n_args = 2,
                                      .n_ints = k.n_ints + 1}};
    f8_step step = {.kind = F8_STEP_KERNEL,
                    .name = c->what,
                    .arg = arg,
                    .n_args = 2,
                    .ints = k.ints,
                    .n_ints = k.n_ints + 1,
                    .phase = &phase,
                    .n_phases = 1};
    fill(before[0], 1);
    fill(before[1], 2);
    memcpy(want, before[1], ROOM);
    copy_by_hand(&c->axes, before[0] + BASE + c->from_shift, want + BASE + c->to_shift);
    setenv("FP8C_EMULATOR_SEED", order, 1);
    run(&step, &image, 1);
    for (int i = 0; i < ROOM; i++)
        ck_assert_msg(after[i] == want[i], "%s, order %s: byte %d is %d, not %d", c->what, order, i,
                      after[i], want[i]);
    f8_arena_end(&arena);
}

START_TEST(copies_of_every_kind)
{
    for (size_t i = 0; i < sizeof copies / sizeof *copies; i++)
        check_copy(&copies[i], orders[i % 3]);
}
END_TEST

/* Short copies, many in one launch. */
START_TEST(many_runs)
{
    enum { N = 5 };
    static const int64_t count[N] = {1, 3000, 1024, 1, 1025};
    f8_arena arena;
    f8_cuda_launch l;
    f8_arena_init(&arena, NULL);
    const f8_copy_desc d = {.kind = F8_COPY_RUN, .element = 4};
    ck_assert_uint_ge(f8_cuda_copy_most_instances(&d), N);
    f8_text t = {.arena = &arena};
    f8_text_add(&t, "#include \"fp8c.cuh\"\n");
    f8_cuda_copy_emit(&t, &d, true, "copies", &l);
    f8_image image = compile(&t, &arena);
    f8_arg arg[2 * N];
    int64_t ints[2 * N], tasks = 0, at = BASE;
    fill(before[0], 3);
    fill(before[1], 4);
    memcpy(want, before[1], ROOM);
    for (int i = 0; i < N; i++) {
        arg[2 * i] = (f8_arg){F8_SPACE_STATE, -1, at};
        arg[2 * i + 1] = (f8_arg){F8_SPACE_STATE, -1, ROOM + at + 64};
        memcpy(want + at + 64, before[0] + at, (size_t)count[i] * 4);
        tasks += (count[i] + 1023) / 1024;
        ints[2 * i] = count[i];
        ints[2 * i + 1] = tasks;
        at += count[i] * 4 + 128;
    }
    f8_step_phase phase = {.n_tasks = tasks,
                           .launch = {.symbol = l.symbol,
                                      .threads = l.threads,
                                      .n_instances = N,
                                      .n_args = 2,
                                      .n_ints = 2,
                                      .multi = true}};
    f8_step step = {.kind = F8_STEP_KERNEL,
                    .name = "copies",
                    .arg = arg,
                    .n_args = 2 * N,
                    .ints = ints,
                    .n_ints = 2 * N,
                    .phase = &phase,
                    .n_phases = 1};
    run(&step, &image, 1);
    ck_assert(!memcmp(after, want, ROOM));
    f8_arena_end(&arena);
}
END_TEST

/* ---- scatter ---- */

typedef struct scatter_case {
    f8_dtype dy;
    int n, rows, columns, table_gap, dy_gap,
        shift;    /* shift: elements of dy past an aligned place */
    bool outside; /* some ids are of no row */
} scatter_case;

static const scatter_case scatters[] = {
    {F8_F32, 1, 3, 5, 0, 0, 0, false},     {F8_F32, 300, 7, 64, 0, 0, 0, true},
    {F8_BF16, 300, 7, 64, 0, 0, 0, true},  {F8_BF16, 61, 100, 36, 4, 8, 0, false},
    {F8_F32, 61, 100, 37, 3, 1, 0, true},  {F8_BF16, 61, 20, 40, 0, 0, 1, false},
    {F8_BF16, 5000, 3, 8, 0, 0, 0, false}, /* more positions of one id than the list holds */
    {F8_F32, 3000, 1, 5, 0, 3, 0, true},   {F8_BF16, 24, 5, 1100, 0, 4, 0, false},
};

static float dy_at(const scatter_case *c, int64_t i)
{
    uint32_t bits = 0;
    float x;
    const size_t size = f8_dtype_size(c->dy);
    memcpy((uint8_t *)&bits + (4 - size), before[0] + BASE + ((size_t)i + (size_t)c->shift) * size,
           size);
    memcpy(&x, &bits, 4);
    return x;
}

static void fill_scatter(const scatter_case *c, uint32_t seed)
{
    const int64_t stride = c->columns + c->dy_gap;
    for (int64_t i = 0; i < c->n * stride + c->shift; i++) {
        const float x = (float)((int)(test_random(&seed) % 20001) - 10000) * 1e-3f;
        if (c->dy == F8_F32)
            memcpy(before[0] + BASE + i * 4, &x, 4);
        else
            memcpy(before[0] + BASE + i * 2, (const uint8_t *)&x + 2, 2);
    }
    for (int64_t i = 0; i < c->rows * (c->columns + c->table_gap); i++) {
        const float x = (float)(test_random(&seed) % 1000) * 1e-2f;
        memcpy(before[1] + BASE + i * 4, &x, 4);
    }
    for (int i = 0; i < c->n; i++) {
        int32_t id = (int32_t)(test_random(&seed) % (uint32_t)c->rows);
        if (c->outside && test_random(&seed) % 5 == 0)
            id = test_random(&seed) % 2 ? -1 : c->rows;
        memcpy(before[2] + BASE + i * 4, &id, 4);
    }
}

static void scatter_by_hand(const scatter_case *c)
{
    memcpy(want, before[1], ROOM);
    float *table = (float *)(void *)(want + BASE);
    const int32_t *ids = (const int32_t *)(const void *)(before[2] + BASE);
    for (int64_t i = 0; i < c->n; i++)
        for (int64_t k = 0; k < c->columns && ids[i] >= 0 && ids[i] < c->rows; k++)
            table[ids[i] * (c->columns + c->table_gap) + k] +=
                dy_at(c, i * (c->columns + c->dy_gap) + k);
}

static void check_scatter(const scatter_case *c, const char *order)
{
    f8_arena arena;
    f8_cuda_launch l;
    f8_arena_init(&arena, NULL);
    f8_text t = {.arena = &arena};
    f8_text_add(&t, "#include \"fp8c.cuh\"\n");
    OK(f8_cuda_scatter_emit(&t, c->dy, "scatter", &l, diag));
    f8_image image = compile(&t, &arena);
    int64_t ints[] = {c->n,
                      c->rows,
                      c->columns,
                      c->columns + c->table_gap,
                      c->columns + c->dy_gap,
                      f8_cuda_scatter_tasks(c->n)};
    ck_assert_uint_eq(l.n_ints + 1, sizeof ints / sizeof *ints);
    const int64_t at = BASE + c->shift * (int64_t)f8_dtype_size(c->dy);
    f8_arg arg[3] = {{F8_SPACE_STATE, -1, ROOM + BASE},
                     {F8_SPACE_STATE, -1, 2 * ROOM + BASE},
                     {F8_SPACE_STATE, -1, at}};
    f8_step_phase phase = {
        .n_tasks = ints[5],
        .launch = {
            .symbol = l.symbol, .threads = l.threads, .n_instances = 1, .n_args = 3, .n_ints = 6}};
    f8_step step = {.kind = F8_STEP_KERNEL,
                    .name = "scatter",
                    .arg = arg,
                    .n_args = 3,
                    .ints = ints,
                    .n_ints = 6,
                    .phase = &phase,
                    .n_phases = 1};
    fill_scatter(c, (uint32_t)(c - scatters) + 11);
    scatter_by_hand(c);
    setenv("FP8C_EMULATOR_SEED", order, 1);
    run(&step, &image, 1);
    ck_assert_msg(!memcmp(after, want, ROOM), "scatter case %td, order %s", c - scatters, order);
    f8_arena_end(&arena);
}

START_TEST(scatter_in_order)
{
    for (size_t i = 0; i < sizeof scatters / sizeof *scatters; i++)
        for (int o = 0; o < 2; o++)
            check_scatter(&scatters[i], orders[o]);
}
END_TEST

START_TEST(scatter_of_other_types)
{
    f8_arena arena;
    f8_arena_init(&arena, NULL);
    f8_text t = {.arena = &arena};
    f8_cuda_launch l;
    f8_diag d = {0};
    ck_assert_int_eq(f8_cuda_scatter_emit(&t, F8_F16, "s", &l, &d), F8_ERR_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(d.text, "f16"));
    f8_arena_end(&arena);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("cuda_steps");
    TCase *t = tcase_create("steps");
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_checked_fixture(t, open_device, close_device);
    tcase_add_test(t, copies_of_every_kind);
    tcase_add_test(t, many_runs);
    tcase_add_test(t, scatter_in_order);
    tcase_add_test(t, scatter_of_other_types);
    suite_add_tcase(s, t);
    return s;
}
