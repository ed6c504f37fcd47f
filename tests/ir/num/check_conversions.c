/* Conversions of all 65,536 bf16 values to E4M3, E5M2, E8M0 and BF16 in three places, bit for bit,
 * NaNs included: the codec (ir/num/fp8.c), compiled kernels, and the interpreter. check_fp8.c
 * compares the codec with golden vectors, check_codecs.c with an independent oracle. */
#include <string.h>

#include "codegen/build.h"
#include "codegen/reference/reference.h"
#include "ir/num/fp8.h"
#include "tests/shared/passes/passes.h"
#include "runtime/cpu/exec.h"
#include "tests/shared/suite.h"

enum { N = 65536, WAYS = 6, SCALED = 2 * WAYS, WIDENED, OUTPUTS };

static const struct {
    f8_dtype format;
    bool saturate;
} ways[WAYS] = {{F8_E4M3, true},  {F8_E4M3, false}, {F8_E5M2, true},
                {F8_E5M2, false}, {F8_E8M0, true},  {F8_E8M0, false}};

/* x bf16[256, 256] -> each way's codes and those decoded, x times a number that needs rounding as
 * bf16, and x widened. */
static f8_func *make(f8_module *m)
{
    f8_func *f = f8_module_func(m, "f");
    f8_graph *g = f->graph;
    const f8_type t = {F8_BF16, 2, {256, 256}};
    const f8_ref x = f8_cast(g, f8_func_input(f, "x", &t, -1), F8_F32), one = f8_const(g, 1);
    for (int i = 0; i < WAYS; i++) {
        const f8_attr attr[] = {F8_INT(F8_A_FORMAT, ways[i].format),
                                F8_INT(F8_A_SATURATE, ways[i].saturate)};
        const f8_ref q = f8_make(g, F8_OP_QUANTIZE, (f8_ref[]){x, one}, 2, attr, 2);
        char name[16] = {'q', (char)('0' + i)}, decoded[16] = {'d', (char)('0' + i)};
        f8_func_result(f, name, q, -1);
        f8_func_result(f, decoded, f8_cast(g, q, F8_F32), -1);
    }
    const f8_ref scaled = f8_binary(g, F8_OP_MUL, x, f8_const(g, 1.00537109375));
    f8_func_result(f, "b", f8_cast(g, scaled, F8_BF16), -1);
    f8_func_result(f, "w", x, -1);
    return f;
}

static void check_all(const uint16_t *x, void *const *out)
{
    for (uint32_t i = 0; i < N; i++) {
        const float value = f8_bf16_to_f32(x[i]);
        for (int k = 0; k < WAYS; k++) {
            const uint8_t code = (uint8_t)f8_encode(ways[k].format, value, ways[k].saturate);
            ck_assert_msg(((uint8_t *)out[2 * k])[i] == code, "way %d of bf16 %04x: %02x, not %02x",
                          k, i, ((uint8_t *)out[2 * k])[i], code);
            const uint32_t got = ((uint32_t *)out[2 * k + 1])[i],
                           want = f8_bits(f8_decode(ways[k].format, code));
            const bool nan = (want & 0x7fffffff) > 0x7f800000;
            ck_assert_msg(got == want || (nan && (got & 0x7fffffff) > 0x7f800000),
                          "code %02x of way %d: %08x, not %08x", code, k, got, want);
        }
        if (value != value) { /* arithmetic may give any NaN */
            ck_assert_uint_gt(((uint16_t *)out[SCALED])[i] & 0x7fff, 0x7f80);
            continue;
        }
        ck_assert_uint_eq(((uint16_t *)out[SCALED])[i], f8_f32_to_bf16(value * 1.00537109375f));
        ck_assert_uint_eq(((uint32_t *)out[WIDENED])[i], f8_bits(value));
    }
}

START_TEST(every_bf16)
{
    f8_arena arena;
    f8_diag diag = {0};
    f8_plan plan;
    f8_exec *exec;
    f8_arena_init(&arena, NULL);
    f8_module *m = f8_module_create(&arena, &diag, "m", "");
    make(m);
    f8_unit u = {.module = m, .arena = &arena, .diag = &diag};
    u.options.no_fuse = _i;
    ck_assert_msg(f8_pass_legalize(&u) == F8_OK && f8_pass_group(&u) == F8_OK &&
                      f8_pass_schedule(&u) == F8_OK && f8_pass_memory(&u) == F8_OK &&
                      f8_build_plan(m, &(f8_build_options){0}, &arena, &plan, &diag) == F8_OK &&
                      f8_exec_create(&plan, &(f8_exec_options){.n_threads = 2}, &exec, &diag) ==
                          F8_OK,
                  "%s", diag.text);
    uint16_t *x = f8_exec_port(exec, 0, false, 0);
    for (uint32_t i = 0; i < N; i++)
        x[i] = (uint16_t)i;
    void *out[OUTPUTS], *reference[OUTPUTS];
    for (uint32_t k = 0; k < OUTPUTS; k++) {
        out[k] = f8_exec_port(exec, 0, true, k);
        reference[k] = f8_arena_array(&arena, N, 4);
    }
    ck_assert_msg(f8_exec_run(exec, 0, &diag) == F8_OK, "%s", diag.text);
    check_all(x, out);
    const void *in[] = {x};
    ck_assert_msg(f8_reference_run(&m->func[0], in, reference, NULL, &diag) == F8_OK, "%s",
                  diag.text);
    check_all(x, reference);
    f8_exec_destroy(exec);
    f8_arena_end(&arena);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("conversions");
    TCase *t = tcase_create("conversions");
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, every_bf16, 0, 2);
    suite_add_tcase(s, t);
    return s;
}
