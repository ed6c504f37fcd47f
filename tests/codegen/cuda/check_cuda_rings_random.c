/* Row kernels with rings (codegen/cuda/rows_ring.c) of random phases: loads of several dtypes, up
 * to two reductions of a row, sums and maxima of columns, codes along rows and columns; results in
 * place, heights, widths and configurations at random. Bit for bit against the interpreter.
 * FP8C_TEST_SEED=N begins elsewhere, FP8C_TEST_CASES=N runs so many. */
#include "tests/shared/kernel/kernel_bodies.h"
#include "tests/shared/kernel/kernel_configs.h"
#include "tests/shared/kernel/kernel_device.h"
#include "tests/shared/suite.h"

#include <stdio.h>
#include <stdlib.h>

enum { CASES = 12, OWN_CASES = 6, PHASES = 3, MOST_LOADS = 4 };

static cuda_device device;

static void load(void)
{
    cuda_device_open(&device);
}

/* A device without bulk copies: each thread copies its own vectors. */
static void load_ada(void)
{
    setenv("FP8C_EMULATOR_SM", "89", 1);
    cuda_device_open(&device);
}

static void unload(void)
{
    cuda_device_close(&device);
}

static uint64_t state;

static int draw(int n)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (int)((state >> 33) % (uint64_t)n);
}

static f8_ref any_of(const f8_ref *x, int n)
{
    return x[draw(n)];
}

static f8_ref combine(kcase *c, const f8_ref *x, int n)
{
    f8_graph *g = c->g;
    f8_ref v = any_of(x, n);
    for (int i = draw(3); i > 0; i--)
        v = f8_binary(g, draw(2) ? F8_OP_MUL : draw(2) ? F8_OP_ADD : F8_OP_SUB, v, any_of(x, n));
    switch (draw(7)) {
    case 0: return f8_unary(g, F8_OP_GELU_ERF, v);
    case 1: return f8_unary(g, F8_OP_TANH, v);
    case 2: return f8_cast(g, f8_cast(g, v, F8_BF16), F8_F32);
    case 3: return f8_binary(g, F8_OP_DIV, v, f8_const(g, draw(2) ? 8 : 3));
    default: return v;
    }
}

/* Puts a result, now and then, in the place of the first load that has its type and is still there.
 */
static void place(kcase *c, f8_ref out, f8_ref *in, int loads)
{
    if (draw(2))
        return;
    for (int i = 0; i < loads; i++)
        if (in[i] && f8_type_of(c->g, in[i])->dtype == f8_type_of(c->g, out)->dtype) {
            kc_alias(c, out, in[i]);
            in[i] = 0;
            return;
        }
}

static void phase(kcase *c, int rows, int cols)
{
    static const f8_dtype types[] = {F8_BF16, F8_BF16, F8_F32, F8_F32, F8_E4M3, F8_E5M2, F8_F16};
    f8_graph *g = c->g;
    f8_ref x[MOST_LOADS + 12];
    int n = 0;
    const int loads = 1 + draw(MOST_LOADS), only = draw(4);
    f8_ref in[MOST_LOADS];
    for (int i = 0; i < loads; i++) {
        const f8_dtype t = only == 0 || cols % 8 ? F8_F32 : only == 1 ? F8_BF16 : types[draw(7)];
        in[i] = kc_input(c, t, 2, rows, cols);
    }
    const f8_ref w = kc_input(c, F8_F32, 1, cols), scale = kc_input(c, F8_F32, 0),
                 column = kc_input(c, F8_F32, 2, rows, 1);
    for (int i = 0; i < loads; i++)
        x[n++] = f8_type_of(g, in[i])->dtype == F8_F32 ? in[i] : f8_cast(g, in[i], F8_F32);
    if (draw(3) == 0)
        x[n++] = f8_binary(g, F8_OP_MUL, any_of(x, loads), w);
    if (draw(4) == 0)
        x[n++] = f8_binary(g, F8_OP_ADD, any_of(x, loads), column);
    const int reductions = draw(3);
    for (int r = 0; r < reductions; r++) {
        const f8_ref from = combine(c, x, draw(2) ? n : 1);
        const int kind = draw(3);
        const f8_ref of = kind == 0   ? kc_mean(c, from)
                          : kind == 1 ? f8_reduce(g, F8_OP_REDUCE_AMAX, from, -1)
                                      : f8_reduce(g, F8_OP_REDUCE_MAX, from, -1);
        if (draw(2))
            kc_out(c, of);
        if (draw(4)) {
            const f8_ref with = any_of(x, n);
            x[n++] = f8_binary(g, draw(2) ? F8_OP_SUB : F8_OP_MUL, with, of);
        }
    }
    for (int outs = 1 + draw(5); outs > 0; outs--) {
        const f8_ref v = combine(c, x, n);
        switch (draw(9)) {
        case 0: {
            const f8_ref out = f8_cast(g, v, F8_BF16);
            place(c, out, in, loads);
            kc_out(c, out);
            break;
        }
        case 1: kc_out(c, kc_column_amax(c, v, 1 << (3 + draw(4)))); break;
        case 2:
        case 3: kc_out(c, kc_column_sum(c, v)); break;
        case 4: kc_out(c, kc_transposed(c, f8_cast(g, v, F8_BF16))); break;
        case 5: {
            const f8_ref out = f8_binary(g, F8_OP_ADD, v, f8_const(g, 1));
            place(c, out, in, loads);
            kc_out(c, out);
            break;
        }
        default: {
            const f8_ref q = kc_quantize(c, v, scale, draw(2) ? F8_E4M3 : F8_E5M2, true);
            if (draw(3))
                kc_out(c, q);
            kc_out(c, kc_transposed(c, q));
        }
        }
    }
    kc_phase(c, rows, cols);
}

static int any_width(void)
{
    switch (draw(8)) {
    case 0: return 256 * (1 + draw(8));
    case 1: return 256 * (1 + draw(35));
    case 2: return 136 + 8 * draw(20);
    case 3: return 256 + 4 * draw(600);
    case 4: return 256 + 16 * draw(200);
    case 5: return 256 + 16 * draw(546);
    default: return 256 + 8 * draw(300);
    }
}

static int any_height(void)
{
    static const int high[] = {16, 32, 48, 64, 96, 128, 160, 192, 256, 8, 24, 40, 1, 33, 80, 112};
    return high[draw(draw(4) ? 9 : 16)];
}

START_TEST(any_phases)
{
    const char *set = getenv("FP8C_TEST_SEED");
    const uint64_t seed = (set ? (uint64_t)atoll(set) : 1) + (uint64_t)_i;
    kcase c;
    state = seed * 0x9e3779b97f4a7c15u;
    kc_begin(&c);
    c.specials = draw(2);
    kv_use(draw(2) ? kv_config(true, draw(3)) : NULL);
    printf("seed %llu:", (unsigned long long)seed);
    for (int i = 0; i < PHASES; i++) {
        int rows = any_height();
        const int cols = any_width();
        if (rows * cols > 400000)
            rows = 32;
        printf(" %dx%d", rows, cols);
        fflush(stdout);
        phase(&c, rows, cols);
    }
    const int n = kc_check_rings(&c, &device);
    printf(" rings %d\n", n);
    fflush(stdout);
    if (draw(4) == 0)
        kc_check_on_device(&c, &device);
    kc_end(&c);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("cuda rings random");
    TCase *rows = tcase_create("rings");
    const char *cases = getenv("FP8C_TEST_CASES");
    tcase_set_timeout(rows, 600);
    tcase_add_checked_fixture(rows, load, unload);
    tcase_add_loop_test(rows, any_phases, 0, cases ? atoi(cases) : CASES);
    suite_add_tcase(s, rows);
    if (!getenv("FP8C_TEST_GPU")) {
        TCase *own = tcase_create("without bulk copies");
        tcase_set_timeout(own, 600);
        tcase_add_checked_fixture(own, load_ada, unload);
        tcase_add_loop_test(own, any_phases, 5, 5 + (cases ? atoi(cases) : OWN_CASES));
        suite_add_tcase(s, own);
    }
    return s;
}
