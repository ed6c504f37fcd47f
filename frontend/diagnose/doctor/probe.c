/* doctor's self-test: a small module whose results are known to the bit. See doctor.h.
 *
 * Why results are exact: inputs are integers of magnitude 4 at most, and weights are -1, 0 or 1.
 * `current {pow2 = true}` scales by powers of two, so all of them are FP8 codes exactly. The first
 * GEMM sums 64 products of at most 4: an integer of at most 256. Quantizing it for the second GEMM
 * rounds it to E4M3's 4 significant bits, and it stays an integer of at most 256. So the second
 * GEMM's sums of 64 of them are integers of at most 2^14. Both are exact in any order in f32, and
 * in the 14 bits that Hopper's tensor cores keep of a partial sum. What lies between and after the
 * GEMMs has the same bits on every target (codegen/README.md). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/diagnose/doctor/doctor.h"

static const char text[] =
    "module doctor\n"
    "dim M = 32, K = 64, N = 64, V = 32\n"
    "param up: f32[K, N] zeros\n"
    "param down: f32[N, V] zeros\n"
    "param norm: f32[V] ones\n"
    "param shift: f32[V] zeros\n"
    "func forward(%x: f32[M, K], %ids: i32[M]) -> (%loss: f32[], %hidden: f32[M, N], %out: f32[M, "
    "V],\n"
    "             %activated: f32[M, V], %normed: f32[M, V], %sums: f32[M, 1]) {\n"
    "  %hidden = linear(%x, up)\n"
    "  %out = linear(max(%hidden, broadcast(0.0) {shape = [M, N]}), down)\n"
    "  return cross_entropy(%out, %ids), %hidden, %out, gelu(%out), layernorm(%out, norm, shift),\n"
    "         reduce_sum(%out)\n"
    "}\n";

/* The next of a fixed series of small integers in [-most, most], of which only one in `every` is
 * not 0. They come from a multiplicative generator (Knuth's MMIX constants). */
static int draw(uint64_t *state, int most, int every)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    const uint32_t high = (uint32_t)(*state >> 33);
    return high % (uint32_t)every
               ? 0
               : (int)(high / (uint32_t)every % (2u * (uint32_t)most + 1)) - most;
}

typedef struct probe_data {
    int x[F8_PROBE_ROWS * F8_PROBE_IN], up[F8_PROBE_IN * F8_PROBE_HIDDEN],
        down[F8_PROBE_HIDDEN * F8_PROBE_OUT];
} probe_data;

static void fill(int *to, size_t n, uint64_t seed, int most, int every)
{
    for (size_t i = 0; i < n; i++)
        to[i] = draw(&seed, most, every);
}

static void make_data(probe_data *d)
{
    fill(d->x, sizeof d->x / sizeof(int), 1, 4, 1);
    fill(d->up, sizeof d->up / sizeof(int), 2, 1, 1);
    fill(d->down, sizeof d->down / sizeof(int), 3, 1, 4);
}

/* ---- running ---- */

static fp8c_status write_weights(fp8c_program *p, const char *name, const int *from, size_t n)
{
    static const size_t most = sizeof(float) * F8_PROBE_IN * F8_PROBE_HIDDEN;
    float values[F8_PROBE_IN * F8_PROBE_HIDDEN];
    for (size_t i = 0; i < n && i < most / sizeof(float); i++)
        values[i] = (float)from[i];
    const int variable = fp8c_program_find_variable(p, name);
    return variable < 0 ? FP8C_ERR_INTERNAL : fp8c_program_write(p, variable, values);
}

static fp8c_status run(fp8c_program *p, const probe_data *data, f8_probe *out)
{
    const int eval = fp8c_program_function(p, "eval");
    const struct {
        void *to;
        size_t bytes;
    } port[] = {{&out->loss, sizeof out->loss},    {out->hidden, sizeof out->hidden},
                {out->out, sizeof out->out},       {out->activated, sizeof out->activated},
                {out->normed, sizeof out->normed}, {out->sums, sizeof out->sums}};
    fp8c_status status = fp8c_program_initialize(p, 1);
    if (status == FP8C_OK)
        status = write_weights(p, "up", data->up, sizeof data->up / sizeof(int));
    if (status == FP8C_OK)
        status = write_weights(p, "down", data->down, sizeof data->down / sizeof(int));
    float *x =
        fp8c_program_buffer(p, eval, FP8C_INPUT, fp8c_program_find_port(p, eval, FP8C_INPUT, "x"));
    int32_t *ids = fp8c_program_buffer(p, eval, FP8C_INPUT,
                                       fp8c_program_find_port(p, eval, FP8C_INPUT, "ids"));
    if (status != FP8C_OK || !x || !ids)
        return status != FP8C_OK ? status : FP8C_ERR_INTERNAL;
    for (int i = 0; i < F8_PROBE_ROWS * F8_PROBE_IN; i++)
        x[i] = (float)data->x[i];
    for (int i = 0; i < F8_PROBE_ROWS; i++)
        ids[i] = i * 7 % F8_PROBE_OUT;
    status = fp8c_program_run(p, eval);
    if (status == FP8C_OK)
        status = fp8c_program_wait(p);
    for (size_t i = 0; status == FP8C_OK && i < sizeof port / sizeof *port; i++) {
        const void *from = fp8c_program_buffer(p, eval, FP8C_OUTPUT, (int)i);
        if (!from)
            return FP8C_ERR_INTERNAL;
        memcpy(port[i].to, from, port[i].bytes);
    }
    fp8c_info info = {.struct_size = sizeof info};
    fp8c_program_info(p, &info);
    out->fp8_gemms = info.fp8_gemms_executed;
    return status;
}

/* A context with the caller's settings, but without its cache, log and callbacks: the test must
 * compile now. */
static fp8c_status private_context(const fp8c_context *ctx, fp8c_context **out)
{
    const f8_cuda_paths *paths = &ctx->settings.gpu;
#define GIVEN(field) (paths->field ? paths->field : "")
    const fp8c_context_options options = {
        .struct_size = sizeof options,
        .alloc = ctx->allocator.alloc,
        .free = ctx->allocator.free,
        .allocator_user = ctx->allocator.user,
        .gpu_library_path = GIVEN(fp8c_cuda_path),
        .cuda_home = GIVEN(cuda_home),
        .cuda_path = GIVEN(cuda_path),
        .python_env = GIVEN(virtual_env),
        .home = GIVEN(home),
        .cache_dir = "",
        .tuning = "",
        .dump = "",
        .verbose = -1,
    };
#undef GIVEN
    return fp8c_context_create(&options, out);
}

/* Pass the message of a private context, which is about to be destroyed, to ctx, without its
 * "error: ". */
static fp8c_status hand_on(fp8c_context *ctx, const fp8c_context *from, fp8c_status status)
{
    static const char prefix[] = "error: ";
    const char *message = fp8c_context_message(from);
    f8_diag d = {0};
    if (!strncmp(message, prefix, strlen(prefix)))
        message += strlen(prefix);
    f8_fail(&d, (f8_status)status, F8_NOWHERE, "%s", *message ? message : "no message");
    return f8_api_result(ctx, &d, (f8_status)status);
}

fp8c_status f8_probe_run(fp8c_context *ctx, const char *target, int device, bool compile_only,
                         f8_probe *out)
{
    fp8c_context *own;
    fp8c_module *module = NULL;
    fp8c_program *program = NULL;
    const fp8c_compile_options options = {.struct_size = sizeof options,
                                          .target = target,
                                          .recipe = "current {pow2 = true}",
                                          .inference = 1,
                                          .device = device,
                                          .no_device = compile_only};
    fp8c_status status = private_context(ctx, &own);
    probe_data *data = status == FP8C_OK ? ctx->allocator.alloc(ctx->allocator.user, sizeof *data,
                                                                _Alignof(probe_data))
                                         : NULL;
    if (!data) {
        fp8c_context_destroy(own);
        return FP8C_ERR_MEMORY;
    }
    make_data(data);
    status = fp8c_module_parse(own, text, strlen(text), "doctor", NULL, 0, &module);
    if (status == FP8C_OK)
        status = fp8c_compile(module, &options, &program);
    if (status == FP8C_OK && !compile_only)
        status = run(program, data, out);
    if (status != FP8C_OK)
        status = hand_on(ctx, own, status);
    fp8c_program_destroy(program);
    fp8c_module_destroy(module);
    fp8c_context_destroy(own);
    ctx->allocator.free(ctx->allocator.user, data, sizeof *data);
    return status;
}

/* ---- comparing ---- */

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* Compare row by row. NULL: all bits are the same. */
static const char *differs(f8_arena *arena, const char *what, const float *got,
                           const float *expected, int n, int columns, const char *whose)
{
    for (int i = 0; i < n; i++)
        if (bits_of(got[i]) != bits_of(expected[i]))
            return f8_arena_printf(arena, "%s[%d, %d] is %.9g, and %.9g %s", what, i / columns,
                                   i % columns, (double)got[i], (double)expected[i], whose);
    return NULL;
}

static const char *check_hidden(const f8_probe *got, f8_arena *arena)
{
    probe_data *data = F8_NEW(arena, probe_data);
    float *product = F8_NEW_ARRAY(arena, float, F8_PROBE_ROWS *F8_PROBE_HIDDEN);
    if (!data || !product)
        return "out of memory";
    make_data(data);
    for (int m = 0; m < F8_PROBE_ROWS; m++)
        for (int n = 0; n < F8_PROBE_HIDDEN; n++) {
            int sum = 0;
            for (int k = 0; k < F8_PROBE_IN; k++)
                sum += data->x[m * F8_PROBE_IN + k] * data->up[k * F8_PROBE_HIDDEN + n];
            product[m * F8_PROBE_HIDDEN + n] = (float)sum;
        }
    return differs(arena, "the first GEMM's result", got->hidden, product,
                   F8_PROBE_ROWS * F8_PROBE_HIDDEN, F8_PROBE_HIDDEN, "in integers");
}

const char *f8_probe_compare(const f8_probe *got, const f8_probe *expected, bool counted,
                             f8_arena *arena)
{
    enum { N = F8_PROBE_ROWS * F8_PROBE_OUT };
    static const char whose[] = "on target reference";
    const char *first = check_hidden(got, arena);
    if (!first && counted && got->fp8_gemms != 2)
        first = f8_arena_printf(arena, "%lld FP8 GEMMs ran, and the module has 2",
                                (long long)got->fp8_gemms);
    if (!first)
        first = differs(arena, "the second GEMM's result", got->out, expected->out, N, F8_PROBE_OUT,
                        whose);
    if (!first)
        first = differs(arena, "gelu", got->activated, expected->activated, N, F8_PROBE_OUT, whose);
    if (!first)
        first = differs(arena, "layernorm", got->normed, expected->normed, N, F8_PROBE_OUT, whose);
    if (!first)
        first = differs(arena, "a row's sum", got->sums, expected->sums, F8_PROBE_ROWS, 1, whose);
    if (!first)
        first = differs(arena, "the loss", &got->loss, &expected->loss, 1, 1, whose);
    return first;
}
