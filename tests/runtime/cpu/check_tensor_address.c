/* The address of the caller's tensors changes no bit. Kernels, GEMMs, attention and copies run on
 * memory that is aligned to its elements only, and on memory aligned to 64 bytes. Code that needs
 * more alignment faults, which ends the test. */
#include "tests/shared/api/api.h"
#include "tests/shared/api/cli.h"
#include "tests/shared/random.h"
#include "tests/shared/suite.h"

typedef struct life {
    fp8c_context *ctx;
    fp8c_module *m;
    fp8c_program *p;
} life;

static void end(life *l)
{
    fp8c_program_destroy(l->p);
    fp8c_module_destroy(l->m);
    fp8c_context_destroy(l->ctx);
}

enum { PORTS = 400 };

/* Buffers of a function's ports that carry no variable, `off` elements from an address that is
 * 64-byte aligned, with bytes on both sides that must stay as they are. */
typedef struct buffers {
    uint8_t *base[2][PORTS];
    size_t off[2][PORTS], bytes[2][PORTS];
} buffers;

enum { AROUND = 64 };

static void bind_all(fp8c_program *p, int f, size_t off, uint32_t *seed, buffers *b)
{
    fp8c_port port;
    *b = (buffers){0};
    for (int side = 0; side < 2; side++)
        for (int i = 0; fp8c_program_port(p, f, (fp8c_side)side, i, &port) == FP8C_OK; i++) {
            if (port.variable >= 0)
                continue;
            ck_assert_int_lt(i, PORTS);
            int64_t n = 1;
            for (int k = 0; k < port.type.rank; k++)
                n *= port.type.dim[k];
            const size_t bytes = (size_t)fp8c_type_bytes(&port.type);
            b->bytes[side][i] = bytes;
            b->off[side][i] = AROUND + off * (bytes / (size_t)n);
            b->base[side][i] = aligned_alloc(64, (bytes + 3 * AROUND) / 64 * 64);
            memset(b->base[side][i], 0xa5, (bytes + 3 * AROUND) / 64 * 64);
            uint8_t *at = b->base[side][i] + b->off[side][i];
            for (int64_t k = 0; side == 0 && k < n; k++)
                if (port.type.dtype == FP8C_I32)
                    ((int32_t *)at)[k] = (int32_t)(test_random(seed) % 16);
                else if (port.type.dtype == FP8C_F32)
                    ((float *)at)[k] = (float)(test_random(seed) % 1000) / 500 - 1;
            ck_assert_msg(fp8c_program_bind(p, f, (fp8c_side)side, i, at) == FP8C_OK, "port %s",
                          port.name);
        }
}

/* Those of `from`'s outputs that `to` has as inputs, by name: what forward keeps for backward. */
static void hand_over(fp8c_program *p, int from, const buffers *a, int to, const buffers *b)
{
    fp8c_port port;
    for (int i = 0; fp8c_program_port(p, to, FP8C_INPUT, i, &port) == FP8C_OK; i++) {
        const int k = fp8c_program_find_port(p, from, FP8C_OUTPUT, port.name);
        if (port.variable < 0 && k >= 0 && a->base[1][k] && a->bytes[1][k] == b->bytes[0][i])
            memcpy(b->base[0][i] + b->off[0][i], a->base[1][k] + a->off[1][k], b->bytes[0][i]);
    }
}

static void same_outputs(fp8c_program *p, int f, const buffers *a, const buffers *b,
                         const char *what)
{
    fp8c_port port;
    for (int i = 0; fp8c_program_port(p, f, FP8C_OUTPUT, i, &port) == FP8C_OK; i++) {
        if (!a->base[1][i])
            continue;
        ck_assert_msg(
            !memcmp(a->base[1][i] + a->off[1][i], b->base[1][i] + b->off[1][i], a->bytes[1][i]),
            "%s: %s of %s has other bits at another address", what, port.name,
            fp8c_program_function_name(p, f));
    }
}

/* Bytes around the tensors are as they were. */
static void free_all(buffers *b)
{
    for (int side = 0; side < 2; side++)
        for (int i = 0; i < PORTS; i++) {
            const size_t whole = (b->bytes[side][i] + 3 * AROUND) / 64 * 64;
            for (size_t k = 0; b->base[side][i] && k < whole; k++)
                if (k < b->off[side][i] || k >= b->off[side][i] + b->bytes[side][i])
                    ck_assert(b->base[side][i][k] == 0xa5);
            free(b->base[side][i]);
        }
}

static void run_function(const life *l, int f)
{
    ck_assert_msg(fp8c_program_run(l->p, f) == FP8C_OK, "%s", fp8c_context_message(l->ctx));
}

static const char *const recipes[] = {"bf16", "current", "block", "mxfp8"};

/* The functions that a framework calls, on aligned memory and on memory that is aligned to its
 * elements alone. */
START_TEST(any_address)
{
    size_t size;
    char *text = f8_cli_read("frontend/models/gpt.f8", &size);
    const fp8c_dim dims[] = {{"B", 2}, {"T", 32}, {"C", 64}, {"H", 2}, {"L", 1}, {"V", 96}};
    fp8c_compile_options o = recipe(recipes[_i]);
    o.pair = o.train_step = 1;
    o.threads = 2;
    life l = {.ctx = new_context()};
    ck_assert_int_eq(fp8c_module_parse(l.ctx, text, size, "gpt.f8", dims, 6, &l.m), FP8C_OK);
    free(text);
    l.p = compile(l.ctx, l.m, &o);
    ck_assert_int_eq(fp8c_program_initialize(l.p, 3), FP8C_OK);
    static const char *const names[] = {"eval", "forward", "backward"};
    for (size_t off = 1; off < 16; off += off == 1 ? 2 : 4) {
        buffers a[3], b[3];
        for (int k = 0; k < 3; k++) {
            const int f = fp8c_program_function(l.p, names[k]);
            ck_assert_int_ge(f, 0);
            uint32_t seed[2] = {11, 11};
            bind_all(l.p, f, 0, &seed[0], &a[k]);
            if (k == 2)
                hand_over(l.p, fp8c_program_function(l.p, "forward"), &a[1], f, &a[2]);
            run_function(&l, f);
            bind_all(l.p, f, off, &seed[1], &b[k]);
            if (k == 2)
                hand_over(l.p, fp8c_program_function(l.p, "forward"), &b[1], f, &b[2]);
            run_function(&l, f);
            same_outputs(l.p, f, &a[k], &b[k], recipes[_i]);
        }
        for (int k = 0; k < 3; k++) {
            free_all(&a[k]);
            free_all(&b[k]);
        }
    }
    end(&l);
}
END_TEST

/* Matrices of the caller's as operands and results of GEMMs, copies, reductions and norms, of every
 * dtype. */
static const char direct[] = "module direct\n"
                             "func forward(%a: f32[48, 96], %b: f32[96, 80], %h: bf16[48, 96], %k: "
                             "bf16[96, 80], %q: f32[2, 16, 64]) -> "
                             "(%ab: f32[48, 80], %hk: f32[48, 80], %abt: f32[80, 48], %t: f32[96, "
                             "48], %n: f32[48, 96], %c: bf16[48, 96], "
                             "%o: f32[2, 16, 64], %r: f32[48], %p: bool[48, 96]) {\n"
                             "  %ab = matmul(%a, %b)\n"
                             "  %m = reshape(reduce_sum(%a)) {shape = [48]}\n"
                             "  return %ab, matmul(%h, %k), transpose(%ab) {perm = [1, 0]}, "
                             "transpose(%a) {perm = [1, 0]}, softmax(%a), "
                             "cast(%a) {to = bf16}, attention(%q, %q, %q) {heads = 2, causal = "
                             "true}, %m, lt(%a, softmax(%a))\n"
                             "}\n";

START_TEST(any_address_of_operands)
{
    fp8c_compile_options o = recipe("bf16");
    o.inference = 1;
    life l = {.ctx = new_context()};
    l.m = parse(l.ctx, direct);
    l.p = compile(l.ctx, l.m, &o);
    const int eval = fp8c_program_function(l.p, "eval");
    ck_assert_int_eq(fp8c_program_initialize(l.p, 1), FP8C_OK);
    for (size_t off = 1; off < 16; off++) {
        buffers a, b;
        uint32_t seed[2] = {5, 5};
        bind_all(l.p, eval, 0, &seed[0], &a);
        memset(a.base[0][2] + a.off[0][2], 0x3e, a.bytes[0][2]);
        memset(a.base[0][3] + a.off[0][3], 0x3f, a.bytes[0][3]);
        run_function(&l, eval);
        bind_all(l.p, eval, off, &seed[1], &b);
        memset(b.base[0][2] + b.off[0][2], 0x3e, b.bytes[0][2]);
        memset(b.base[0][3] + b.off[0][3], 0x3f, b.bytes[0][3]);
        run_function(&l, eval);
        same_outputs(l.p, eval, &a, &b, "direct");
        free_all(&a);
        free_all(&b);
    }
    end(&l);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("tensor_address");
    TCase *t = tcase_create("tensor_address");
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_loop_test(t, any_address, 0, 4);
    tcase_add_test(t, any_address_of_operands);
    suite_add_tcase(s, t);
    return s;
}
