/* legalize and group: which nodes share a kernel, what is stored between kernels, and the number of
 * kernels of a GPT layer. */
#include "tests/shared/passes/compile.h"
#include "tests/shared/passes/program_check.h"
#include "tests/shared/suite.h"
#include "tests/shared/passes/unit.h"

#include "codegen/kernel/kernel.h"
#include "frontend/text/parse.h"
#include "ir/lowered.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- setting up ---- */

static void place(test_unit *t)
{
    test_pass(t, f8_pass_canonicalize);
    test_place(t);
}

static void parse(test_unit *t, const char *text)
{
    char whole[2048];
    snprintf(whole, sizeof whole, "module m\n%s", text);
    test_unit_parse(t, whole, "f32");
}

/* A function of primitives, placed. */
static const f8_lowered *placed(test_unit *t, const char *text)
{
    parse(t, text);
    place(t);
    return t->unit.module->func[0].lowered;
}

/* A whole model through all passes. */
static void model(test_unit *t, const char *file, const char *recipe, int64_t layers, bool no_fuse)
{
    size_t size;
    char *text = f8_test_read(file, &size);
    ck_assert_ptr_nonnull(text);
    *t = (test_unit){0};
    f8_arena_init(&t->arena, NULL);
    f8_module *m = NULL;
    const f8_dim_override depth = {"L", layers};
    f8_parse(text, size, file, &depth, layers > 0, &t->arena, &t->diag, &m);
    ck_assert_msg(m, "%s", t->diag.text);
    t->unit = (f8_unit){.module = m, .arena = &t->arena, .diag = &t->diag};
    t->unit.options.recipe = f8_recipe_by_name(recipe);
    t->unit.options.no_fuse = no_fuse;
    ck_assert_msg(f8_run_passes(&t->unit) == F8_OK, "%s", t->diag.text);
    free(text);
}

static int count(const f8_lowered *p, f8_group_kind kind)
{
    int n = 0;
    for (uint32_t i = 0; i < p->n_groups; i++)
        n += p->group[i].kind == kind;
    return n;
}

static const f8_group *only_rows(const f8_lowered *p)
{
    const f8_group *found = NULL;
    for (uint32_t i = 0; i < p->n_groups; i++)
        if (p->group[i].kind == F8_GROUP_ROWS) {
            ck_assert_ptr_null(found);
            found = &p->group[i];
        }
    ck_assert_ptr_nonnull(found);
    return found;
}

/* ---- what shares a kernel ---- */

START_TEST(one_row_program)
{
    test_unit t;
    const f8_lowered *p =
        placed(&t, "func forward(%x: f32[30, 20], %w: f32[20]) -> (%y: f32[30, 20]) {\n"
                   "  %m = reduce_sum(%x)\n  %c = sub(%x, %m)\n  %v = reduce_sum(mul(%c, %c))\n"
                   "  return mul(mul(%c, rsqrt(%v)), %w)\n}\n");
    const f8_group *g = only_rows(p);
    ck_assert_uint_eq(g->n_phases, 1);
    ck_assert_int_eq(g->phase[0].rows, 30);
    ck_assert_int_eq(g->phase[0].cols, 20);
    ck_assert_uint_eq(g->n_in, 2);
    ck_assert_uint_eq(g->n_out, 1);
    test_unit_end(&t);
}
END_TEST

START_TEST(elementwise_is_flat)
{
    test_unit t;
    const f8_lowered *p = placed(&t, "func forward(%x: f32[30, 20]) -> (%y: f32[30, 20]) {\n"
                                     "  return tanh(add(%x, 1))\n}\n");
    ck_assert_int_eq(only_rows(p)->phase[0].rows, 1);
    ck_assert_int_eq(only_rows(p)->phase[0].cols, 600);
    test_unit_end(&t);
}
END_TEST

/* A column sum ends in further phases of its kernel: blocks of 64 rows, then the blocks. */
START_TEST(column_sum_is_phases)
{
    test_unit t;
    const f8_lowered *p =
        placed(&t, "func forward(%x: f32[300, 20]) -> (%y: f32[300, 20], %s: f32[1, 20]) {\n"
                   "  %t = tanh(%x)\n  return %t, reduce_sum(%t) {axis = 0}\n}\n");
    const f8_group *g = only_rows(p);
    ck_assert_uint_eq(g->n_phases, 2);
    ck_assert_int_eq(g->phase[0].rows, 300);
    ck_assert_int_eq(g->phase[1].rows, 5);
    test_unit_end(&t);
}
END_TEST

/* Current scaling: amax of the rows, of the rows' maxima, then the second visit, in one kernel. */
START_TEST(second_visit_is_a_phase)
{
    test_unit t;
    parse(&t, "func forward(%x: f32[30, 20]) -> (%q: f8e4m3[30, 20]) {\n"
              "  %t = tanh(%x)\n  return quantize(%t, fp8_scale(amax(%t)))\n}\n");
    test_pass(&t, f8_pass_decompose);
    place(&t);
    const f8_group *g = only_rows(t.unit.module->func[0].lowered);
    ck_assert_uint_eq(g->n_phases, 3);
    ck_assert_int_eq(g->phase[1].cols, 30);
    /* tanh is recomputed: only the row maxima, the scale and the codes are written */
    ck_assert_uint_eq(g->n_out, 3);
    test_unit_end(&t);
}
END_TEST

/* Magnitudes of rows and of columns come from the visit that makes the value; those of 128 rows are
 * taken from those of 32, by whoever wants them. */
START_TEST(column_maxima_ride_along)
{
    test_unit t;
    parse(&t, "func forward(%x: bf16[512, 64]) -> (%y: bf16[512, 64], %a: f32[4, 64], %r: f32[512, "
              "1]) {\n"
              "  %f = cast(%x)\n  %y = cast(sub(%f, reduce_sum(%f))) {to = bf16}\n"
              "  return %y, amax(%y) {granularity = \"block(128,1)\"}, amax(%y) {granularity = "
              "\"row\"}\n}\n");
    test_pass(&t, f8_pass_decompose);
    place(&t);
    const f8_group *g = only_rows(t.unit.module->func[0].lowered);
    ck_assert_uint_eq(t.unit.module->func[0].lowered->n_groups, 1);
    ck_assert_uint_eq(g->n_phases, 2);
    ck_assert_int_eq(g->phase[0].rows, 512);
    ck_assert_uint_eq(g->phase[0].n_out, 3);
    ck_assert_int_eq(g->phase[1].rows, 4);
    test_unit_end(&t);
}
END_TEST

/* Scales and codes of blocks of columns come from one visit of the value. */
START_TEST(row_blocks_are_one_visit)
{
    static const char *const sizes[] = {"128", "32"};
    char text[512];
    test_unit t;
    snprintf(
        text, sizeof text,
        "func forward(%%x: bf16[2, 40, 256]) -> (%%q: f8e4m3[2, 40, 256], %%i: f32[2, 40, %d]) {\n"
        "  %%a = amax(%%x) {granularity = \"block(1,%s)\"}\n  %%s = fp8_scale(%%a)\n"
        "  return quantize(%%x, %%s) {granularity = \"block(1,%s)\"}, add(div(1, %%s), sub(%%a, "
        "%%a))\n}\n",
        _i ? 8 : 2, sizes[_i], sizes[_i]);
    parse(&t, text);
    test_pass(&t, f8_pass_decompose);
    place(&t);
    const f8_group *g = only_rows(t.unit.module->func[0].lowered);
    ck_assert_uint_eq(t.unit.module->func[0].lowered->n_groups, 1);
    ck_assert_uint_eq(g->n_phases, 1);
    ck_assert_int_eq(g->phase[0].rows, 80);
    ck_assert_uint_eq(g->n_in, 1);
    ck_assert_uint_eq(g->n_out, 2);
    test_unit_end(&t);
}
END_TEST

/* An operand of `block` is quantized along rows and along columns. Its kernel visits it twice: once
 * for all magnitudes and for the codes along rows, once for the codes along columns. Statistics of
 * rows and sums of columns are in the same kernel. */
START_TEST(both_ways_are_two_visits)
{
    static const char *const sizes[] = {"128", "32"};
    char text[1024];
    test_unit t;
    snprintf(text, sizeof text,
             "func forward(%%x: bf16[300, 200]) -> (%%q: f8e4m3[300, 200], %%p: f8e4m3[300, 200], "
             "%%b: f32[1, 200]) {\n"
             "  %%f = cast(%%x)\n  %%y = tanh(sub(%%f, reduce_sum(%%f)))\n"
             "  %%q = quantize(%%y, fp8_scale(amax(%%y) {granularity = \"block(1,%s)\"})) "
             "{granularity = \"block(1,%s)\"}\n"
             "  %%p = quantize(%%y, fp8_scale(amax(%%y) {granularity = \"block(%s,1)\"})) "
             "{granularity = \"block(%s,1)\"}\n"
             "  return %%q, %%p, reduce_sum(%%y) {axis = 0}\n}\n",
             sizes[_i], sizes[_i], sizes[_i], sizes[_i]);
    parse(&t, text);
    test_pass(&t, f8_pass_decompose);
    place(&t);
    const f8_lowered *p = t.unit.module->func[0].lowered;
    uint32_t visits = 0, reads = 0;
    for (uint32_t i = 0; i < p->n_groups; i++) {
        ck_assert_int_eq(p->group[i].kind, F8_GROUP_ROWS);
        for (uint32_t k = 0; k < p->group[i].n_phases; k++)
            visits += p->group[i].phase[k].rows == 300 && p->group[i].phase[k].cols == 200;
        for (uint32_t k = 0; k < p->group[i].n_in; k++)
            reads += f8_at(t.unit.module->func[0].graph, p->group[i].in[k])->op == F8_OP_INPUT;
    }
    ck_assert_uint_eq(visits, 2);
    ck_assert_uint_le(reads, 2);
    test_unit_end(&t);
}
END_TEST

/* Scales of several rows lie by the rows of what they scale: that is no statistic of a wider
 * domain, and not recomputed in one. */
START_TEST(scales_of_rows_keep_their_domain)
{
    static const char *const body[] = {
        "func f(%x: f32[200, 127], %s: f32[2, 1]) -> (%q: f8e4m3[200, 1]) {\n"
        "  return quantize(reduce_sum(%x), %s) {granularity = \"block(128,1)\"}\n}\n",
        "func f(%q: f8e4m3[200, 1], %s: f32[2, 1], %x: f32[200, 127]) -> (%y: f32[200, 127]) {\n"
        "  return add(%x, dequantize(%q, %s) {granularity = \"block(128,1)\"})\n}\n",
        "func f(%q: f8e4m3[1, 300], %s: f32[1, 300], %x: f32[200, 300]) -> (%y: f32[200, 300]) {\n"
        "  return add(%x, dequantize(%q, %s) {granularity = \"block(128,1)\"})\n}\n",
    };
    test_unit t;
    const f8_lowered *p = placed(&t, body[_i]);
    const f8_func *f = &t.unit.module->func[0];
    for (uint32_t i = 0; i < p->n_groups; i++)
        for (uint32_t k = 0; k < p->group[i].n_phases; k++) {
            f8_kernel *kernel;
            f8_binding bound;
            ck_assert_msg(f8_kernel_lower(f, &p->group[i], k, f8_target_by_name("cpu"), &t.arena,
                                          &kernel, &bound, &t.diag) == F8_OK,
                          "%s", t.diag.text);
        }
    test_unit_end(&t);
}
END_TEST

/* A value computed before a GEMM and used after it too: either side of the GEMM is a kernel. */
START_TEST(nothing_fuses_around_a_gemm)
{
    test_unit t;
    const f8_lowered *p =
        placed(&t, "func forward(%x: f32[30, 20], %w: f32[20, 20]) -> (%y: f32[30, 20]) {\n"
                   "  %t = tanh(%x)\n  return add(%t, matmul(%t, %w))\n}\n");
    ck_assert_int_eq(count(p, F8_GROUP_ROWS), 2);
    ck_assert_int_eq(count(p, F8_GROUP_GEMM), 1);
    test_unit_end(&t);
}
END_TEST

/* What crosses a GEMM is the narrow value; its f32 copy is recomputed by each reader. */
START_TEST(narrow_values_cross)
{
    test_unit t;
    const f8_lowered *p =
        placed(&t, "func forward(%x: f32[30, 20], %w: f32[20, 20]) -> (%y: f32[30, 20]) {\n"
                   "  %h = cast(tanh(%x)) {to = bf16}\n  %wide = cast(%h) {to = f32}\n"
                   "  %z = mul(%wide, %wide)\n  return add(mul(%wide, 0.5), matmul(%z, %w))\n}\n");
    const f8_func *f = &t.unit.module->func[0];
    for (uint32_t i = 0; i < p->n_groups; i++)
        for (uint32_t k = 0; k < p->group[i].n_out; k++) {
            const f8_node *n = f8_at(f->graph, p->group[i].out[k]);
            ck_assert(n->op != F8_OP_CAST || n->type.dtype == F8_BF16);
        }
    test_unit_end(&t);
}
END_TEST

START_TEST(unfused_is_one_node_each)
{
    test_unit t;
    parse(&t, "func forward(%x: f32[300, 20], %w: f32[20]) -> (%y: f32[1, 20]) {\n"
              "  %m = reduce_sum(%x)\n  %c = mul(sub(%x, %m), %w)\n  return reduce_sum(%c) {axis = "
              "0}\n}\n");
    t.unit.options.no_fuse = true;
    place(&t);
    const f8_lowered *p = t.unit.module->func[0].lowered;
    ck_assert_int_eq(count(p, F8_GROUP_ROWS), 5);
    for (uint32_t i = 0; i < p->n_groups; i++) {
        ck_assert_uint_eq(p->group[i].n_phases, 1);
        ck_assert_uint_eq(p->group[i].phase[0].n_nodes, 1);
    }
    test_unit_end(&t);
}
END_TEST

/* ---- legalize ---- */

START_TEST(weights_are_rounded_on_the_way_in)
{
    test_unit t;
    parse(&t, "param w: f32[20, 8] zeros\n"
              "func forward(%x: f32[30, 20]) -> (%y: f32[30, 8]) {\n"
              "  return matmul(cast(%x) {to = bf16}, cast(w) {to = bf16})\n}\n");
    test_pass(&t, f8_pass_legalize);
    ck_assert_str_eq(
        test_print(&t, "forward"),
        "  %1 = cast(%x) {to = bf16}\n  %2 = matmul(%1, w) {round_b = true}\n  return %2\n");
    test_unit_end(&t);
}
END_TEST

static const struct {
    const char *in, *out;
} rewrites[] = {
    {"reduce_sum(%x) {axis = 0}", /* in blocks of 64 rows, and the blocks' sums in blocks */
     "  %1 = reshape(%x) {shape = [5000, 6]}\n  %2 = reduce_sum(%1) {axis = 0, block = 64}\n"
     "  %3 = reduce_sum(%2) {axis = 0, block = 64}\n  %4 = reduce_sum(%3) {axis = 0}\n"
     "  %5 = reshape(%4) {shape = [1, 2, 3]}\n  return %5\n"},
    {"reduce_amax(%x) {axis = 0, block = 16}", /* as kernels have it */
     "  %1 = reshape(%x) {shape = [5000, 6]}\n  %2 = reduce_amax(%1) {axis = 0, block = 16}\n"
     "  %3 = reshape(%2) {shape = [313, 2, 3]}\n  return %3\n"},
    {"reduce_amax(%x) {axis = 0, block = 640}", /* in parts of 32 rows, 20 of them: 4, and 5 */
     "  %1 = reshape(%x) {shape = [5000, 6]}\n  %2 = reduce_amax(%1) {axis = 0, block = 32}\n"
     "  %3 = reduce_amax(%2) {axis = 0, block = 4}\n  %4 = reshape(%3) {shape = [8, 5, 6]}\n"
     "  %5 = slice(%4) {axis = 1, stop = 1}\n  %6 = reshape(%5) {shape = [8, 6]}\n"
     "  %7 = slice(%4) {axis = 1, start = 1, stop = 2}\n  %8 = reshape(%7) {shape = [8, 6]}\n"
     "  %9 = max(%6, %8)\n  %10 = slice(%4) {axis = 1, start = 2, stop = 3}\n"
     "  %11 = reshape(%10) {shape = [8, 6]}\n  %12 = max(%9, %11)\n"
     "  %13 = slice(%4) {axis = 1, start = 3, stop = 4}\n  %14 = reshape(%13) {shape = [8, 6]}\n"
     "  %15 = max(%12, %14)\n  %16 = slice(%4) {axis = 1, start = 4, stop = 5}\n"
     "  %17 = reshape(%16) {shape = [8, 6]}\n  %18 = max(%15, %17)\n"
     "  %19 = reshape(%18) {shape = [8, 2, 3]}\n  return %19\n"},
    {"cast(slice(cast(cast(%x) {to = bf16})) {axis = 0, start = 0, stop = 1}) {to = f16}", /* a view
                                                                                            */
     "  %1 = cast(%x) {to = bf16}\n  %2 = slice(%1) {axis = 0, stop = 1}\n"
     "  %3 = cast(%2)\n  %4 = cast(%3) {to = f16}\n  return %4\n"},
    {"reduce_sum(exp(slice(%x) {axis = 0, start = 3, stop = 4})) {axis = 0}", /* one element sums to
                                                                                 itself */
     "  %1 = slice(%x) {axis = 0, start = 3, stop = 4}\n  %2 = exp(%1)\n  return %2\n"},
    {"transpose(reduce_sum(%x)) {perm = [0, 2, 1]}", /* moves an axis of one element */
     "  %1 = reduce_sum(%x)\n  %2 = reshape(%1) {shape = [5000, 1, 2]}\n  return %2\n"},
};

START_TEST(rewritten)
{
    test_unit t;
    char text[512];
    const char *shapes[] = {"f32[1, 2, 3]",   "f32[313, 2, 3]", "f32[8, 2, 3]",
                            "f16[1, 2, 3]", "f32[1, 2, 3]",   "f32[5000, 1, 2]"};
    snprintf(text, sizeof text,
             "func forward(%%x: f32[5000, 2, 3]) -> (%%y: %s) {\n  return %s\n}\n", shapes[_i],
             rewrites[_i].in);
    parse(&t, text);
    test_pass(&t, f8_pass_legalize);
    ck_assert_str_eq(test_print(&t, "forward"), rewrites[_i].out);
    test_unit_end(&t);
}
END_TEST

/* ---- models ---- */

static const char *const recipes[] = {"f32", "bf16", "delayed", "current"};
static const char *const models[] = {
    "frontend/models/gpt.f8", "frontend/models/gpt2_124m.f8", "frontend/models/llama_block.f8",
    "frontend/models/mpt_125m.f8", "frontend/models/llama3_8b_block.f8"};
enum { N_MODELS = sizeof models / sizeof *models };

START_TEST(models_are_sound)
{
    test_unit t;
    model(&t, models[_i % N_MODELS], recipes[_i / N_MODELS % 4], 0, _i >= 4 * N_MODELS);
    for (size_t i = 0; i < t.unit.module->n_funcs; i++)
        ck_assert_msg(f8_program_check(&t.unit.module->func[i], &t.diag) == F8_OK, "%s",
                      t.diag.text);
    test_unit_end(&t);
}
END_TEST

/* Kernels of the training step, GEMMs and copies that are none aside. */
static int kernels(const f8_lowered *p)
{
    return count(p, F8_GROUP_ROWS) + count(p, F8_GROUP_ATTENTION) +
           count(p, F8_GROUP_ATTENTION_GRAD);
}

/* One layer more, forward and backward, is at most 16 kernels more, and where activations are bf16
 * one for each bias, which rounds it once for all rows; no concatenation copies. */
START_TEST(kernels_of_a_layer)
{
    enum { BIASES = 4 };
    test_unit t;
    int n[2];
    for (int i = 0; i < 2; i++) {
        model(&t, models[_i % 2], recipes[_i / 2], 3 + i, false);
        n[i] = kernels(test_func(&t, "micro_step")->lowered);
        test_unit_end(&t);
    }
    ck_assert_int_gt(n[1] - n[0], 0);
    ck_assert_int_le(n[1] - n[0], _i / 2 ? 16 + BIASES : 16);
}
END_TEST

START_TEST(bytes_of_a_layer)
{
    int64_t moved[2] = {0}, least[2] = {0};
    test_unit t;
    for (int i = 0; i < 2; i++) {
        model(&t, models[_i % 2], recipes[_i / 2], 3 + i, false);
        const f8_func *f = test_func(&t, "micro_step");
        for (uint32_t k = 0; k < f->lowered->n_groups; k++) {
            const f8_group_kind kind = f->lowered->group[k].kind;
            if (kind == F8_GROUP_GEMM || kind == F8_GROUP_COPY || kind == F8_GROUP_SCATTER)
                continue;
            const f8_traffic b = f8_group_traffic(f, k);
            moved[i] += b.read + b.written;
            least[i] += b.distinct;
        }
        test_unit_end(&t);
    }
    /* Current scaling visits every operand twice: once for amax, once with the scale. */
    const int64_t tenths = strcmp(recipes[_i / 2], "current") ? 13 : 15;
    ck_assert_int_le(10 * (moved[1] - moved[0]), tenths * (least[1] - least[0]));
}
END_TEST

/* ---- main ---- */

Suite *f8_suite(void)
{
    Suite *s = suite_create("group");
    TCase *t = tcase_create("group");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, one_row_program);
    tcase_add_test(t, elementwise_is_flat);
    tcase_add_test(t, column_sum_is_phases);
    tcase_add_test(t, second_visit_is_a_phase);
    tcase_add_test(t, column_maxima_ride_along);
    tcase_add_loop_test(t, row_blocks_are_one_visit, 0, 2);
    tcase_add_loop_test(t, both_ways_are_two_visits, 0, 2);
    tcase_add_loop_test(t, scales_of_rows_keep_their_domain, 0, 3);
    tcase_add_test(t, nothing_fuses_around_a_gemm);
    tcase_add_test(t, narrow_values_cross);
    tcase_add_test(t, unfused_is_one_node_each);
    tcase_add_test(t, weights_are_rounded_on_the_way_in);
    tcase_add_loop_test(t, rewritten, 0, 6);
    tcase_add_loop_test(t, models_are_sound, 0, 8 * N_MODELS);
    tcase_add_loop_test(t, kernels_of_a_layer, 0, 8);
    tcase_add_loop_test(t, bytes_of_a_layer, 0, 8);
    suite_add_tcase(s, t);
    return s;
}
