/* New parameters at stages 1 and 2 of ZeRO travel in a few buckets. Whatever is in a bucket, every
 * rank ends with the bits of stage 0: parameters whose rows the ranks divide or not, of fewer rows
 * than ranks, vectors, scalars, tied ones, ones without a gradient; and the amaxes of weights that
 * travel with them. */
#include <stdio.h>
#include <string.h>

#include "tests/shared/api/rank_case.h"
#include "tests/shared/api/rank_gpu.h"
#include "tests/shared/suite.h"

enum { ROWS = 12, MOST_GATHERS = 4, STEPS = 2 };

static const char *const targets[] = {"cpu", "reference"};

/* -1 to 1, by the row in the batches of all ranks. */
static void fill(const rank_case *c, int rank, int batch, const char *port, const fp8c_type *type,
                 void *data)
{
    const int rows = (int)type->dim[0], columns = (int)type->dim[1];
    (void)c;
    for (int i = 0; i < rows * columns; i++) {
        const uint32_t row = (uint32_t)(batch * ROWS + rank * rows + i / columns);
        uint32_t h = (row * 7919u + (uint32_t)*port) * 0x9e3779b9u + (uint32_t)(i % columns);
        h = (h ^ (h >> 15)) * 0x846ca68bu;
        ((float *)data)[i] = (float)(int)(h >> 8) * 0x1p-23f - 1;
    }
}

/* The all_gathers that one run of update executed, and how many of the names begin so. */
static int gathers_of(const rank_case *c, int rank, const char *begin)
{
    int n = 0;
    for (int i = 0; i < c->n_steps[rank]; i++)
        n += !strcmp(c->step[rank][i].op, "all_gather") &&
             !strncmp(c->step[rank][i].name, "update:", 7) &&
             !strncmp(c->step[rank][i].name + 7, begin, strlen(begin)) &&
             c->step[rank][i].seconds > 0;
    return n;
}

static void same_as(const rank_case *c, const rank_case *none, const char *what)
{
    static const char *const results[] = {"micro_step:loss", "update:grad_norm", "update:skipped"};
    for (int r = 0; r < c->ranks; r++)
        for (int i = 0; i < none->n[0]; i++) {
            const rank_value *want = &none->value[0][i];
            if (strncmp(want->name, "opt.m.", 6) && strncmp(want->name, "opt.v.", 6) &&
                strncmp(want->name, "grad.", 5) && !strchr(want->name, ':')) {
                const rank_value *got = rank_case_value(c, r, want->name);
                ck_assert_int_eq(got->rows, 0);
                ck_assert_msg(!memcmp(got->data, want->data, (size_t)fp8c_type_bytes(&want->type)),
                              "%s, %s, stage %d, rank %d of %d: '%s' has other bits",
                              c->options.target ? c->options.target : "cpu", what, c->options.zero,
                              r, c->ranks, want->name);
            }
        }
    ck_assert(*rank_case_floats(none, 0, "update:skipped", NULL) == 0);
    for (int r = 0; r < c->ranks; r++)
        for (size_t i = 0; i < sizeof results / sizeof *results; i++)
            ck_assert_mem_eq(rank_case_floats(c, r, results[i], NULL),
                             rank_case_floats(none, 0, results[i], NULL), sizeof(float));
}

/* ---- parameters of all sorts, without a GEMM ---- */

static const char sorts[] =
    "module sorts\n"
    "dim B = 12, C = 20000\n"
    "param a: f32[7, C] normal(0.5)\n"
    "param row: f32[1, C] normal(0.5)\n"
    "param v: f32[C] normal(0.1)\n"
    "param idle: f32[5] ones\n"
    "param wide: f32[11, C] normal(0.5)\n"
    "param tied: f32[6, C] normal(0.5)\n"
    "param three: f32[3] normal(0.5)\n"
    "param s: f32[] const(0.75)\n"
    "param last: f32[2, C] normal(0.5)\n"
    "func forward(%x: f32[B, C], %t: f32[B, C]) -> (%loss: f32[]) {\n"
    "  repeat l < 6 carry %y = %x {\n"
    "    %row_a = slice(a) {axis = 0, start = l + 1, stop = l + 2}\n"
    "    %row_h = slice(wide) {axis = 0, start = l + 5, stop = l + 6}\n"
    "    %row_t = slice(tied) {axis = 0, start = l, stop = l + 1}\n"
    "    %u = gelu(add(mul(%y, %row_a), v)) {approximate = \"tanh\"}\n"
    "    %y = add(%y, mul(mul(%u, s), add(mul(%row_h, row), %row_t)))\n"
    "  }\n"
    "  %ends = mul(slice(last) {axis = 0, start = 0, stop = 1},\n"
    "              slice(tied) {axis = 0, start = 5, stop = 6})\n"
    "  %sum = reduce_sum(three)\n"
    "  %z = add(add(%y, mul(%y, %ends)), mul(%x, reshape(%sum) {shape = []}))\n"
    "  %d = sub(%z, %t)\n"
    "  return reshape(mean(mean(mul(%d, %d)) {axis = 0})) {shape = []}\n"
    "}\n"
    "optimizer adamw {lr = 0.01, clip = 0.01, weight_decay = 0.1}\n";

static rank_case case_of_sorts(int ranks, int zero)
{
    return (rank_case){.text = sorts,
                       .dim = {{"B", ROWS / ranks}},
                       .options = {.recipe = "f32", .zero = zero, .profile = 1},
                       .ranks = ranks,
                       .steps = STEPS,
                       .accumulate = 2,
                       .fill = fill};
}

START_TEST(sorts_agree)
{
    static const int worlds[] = {2, 3, 5, 8};
    const int ranks = worlds[_i];
    rank_case none = case_of_sorts(ranks, 0);
    rank_case_run(&none);
    const struct {
        const char *what;
        fp8c_compile_options options;
    } other[] = {{"plain", {0}},
                 {"interpreted", {.target = "reference"}},
                 {"unfused", {.no_fuse = 1}},
                 {"two threads", {.threads = 2}},
                 {"a budget", {.memory_share = 0.6}}};
    for (int zero = 1; zero <= 2; zero++)
        for (size_t i = 0; i < (ranks > 3 ? 1 : sizeof other / sizeof *other); i++) {
            rank_case c = case_of_sorts(ranks, zero);
            c.options = other[i].options;
            c.options.recipe = "f32";
            c.options.zero = zero;
            c.options.profile = i == 0;
            rank_case_run(&c);
            same_as(&c, &none, other[i].what);
            for (int r = 0; r < ranks && i == 0; r++) {
                ck_assert_int_eq(gathers_of(&c, r, ""), MOST_GATHERS);
                ck_assert_int_eq(gathers_of(&c, r, "grad_norm"), 1);
            }
            rank_case_end(&c);
        }
    rank_case_end(&none);
}
END_TEST

/* ---- one parameter, or one beside two that are too small for a bucket ---- */

#define ONE(PARAMS, TERM)                                                                          \
    "module one\n"                                                                                 \
    "dim B = 12, R = 3, C = 7\n" PARAMS                                                            \
    "func forward(%x: f32[B, C], %t: f32[B, C]) -> (%loss: f32[]) {\n"                             \
    "  %row = slice(w) {axis = 0, start = R - 1, stop = R}\n"                                      \
    "  %d = sub(mul(%x, " TERM "), %t)\n"                                                          \
    "  return reshape(mean(mean(mul(%d, %d)) {axis = 0})) {shape = []}\n"                          \
    "}\n"                                                                                          \
    "optimizer adamw {lr = 0.01}\n"

static const char *const alone[] = {
    ONE("param w: f32[R, C] normal(0.5)\n", "%row"),
    ONE("param head: f32[3] normal(0.5)\nparam w: f32[R, C] normal(0.5)\n"
        "param tail: f32[5] normal(0.5)\n",
        "add(%row, mul(reshape(reduce_sum(head)) {shape = []}, "
        "reshape(reduce_sum(tail)) {shape = []}))")};

START_TEST(one_parameter)
{
    static const struct {
        int ranks, rows, columns;
    } shapes[] = {{2, 3, 7}, {4, 1, 9}, {3, 2, 90001}, {1, 3, 7}};
    for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++)
        for (int t = 0; t < 2; t++) { /* profiles are the CPU's */
            rank_case c[3];
            for (int zero = 0; zero < 3; zero++) {
                c[zero] = (rank_case){
                    .text = alone[_i],
                    .dim = {{"B", 4}, {"R", shapes[k].rows}, {"C", shapes[k].columns}},
                    .options = {.recipe = "f32", .zero = zero, .target = targets[t], .profile = !t},
                    .ranks = shapes[k].ranks,
                    .steps = STEPS,
                    .accumulate = 1,
                    .fill = fill};
                rank_case_run(&c[zero]);
                same_as(&c[zero], &c[0], "one parameter");
                if (!t)
                    ck_assert_int_eq(gathers_of(&c[zero], 0, ""),
                                     c->ranks > 1 ? 1 + (zero > 0) : 0); /* the norm's, and one */
            }
            for (int zero = 0; zero < 3; zero++)
                rank_case_end(&c[zero]);
        }
}
END_TEST

/* ---- amaxes of weights travel with the last bucket ---- */

static const char linears[] =
    "module linears\n"
    "dim B = 16\n"
    "param a: f32[256, 512] normal(0.05)\n"
    "param a.bias: f32[512] normal(0.05)\n"
    "param b: f32[512, 256] normal(0.05)\n"
    "param c: f32[256, 272] normal(0.05)\n"
    "param d: f32[272, 256] normal(0.05)\n"
    "func forward(%x: f32[B, 256], %t: f32[B, 256]) -> (%loss: f32[]) {\n"
    "  %h = linear(gelu(linear(%x, a, a.bias)) {approximate = \"tanh\"}, b)\n"
    "  %y = linear(gelu(linear(%h, c)) {approximate = \"tanh\"}, d)\n"
    "  %d = sub(%y, %t)\n"
    "  return reshape(mean(mean(mul(%d, %d)) {axis = 0})) {shape = []}\n"
    "}\n"
    "optimizer adamw {lr = 0.01, clip = 1}\n";

START_TEST(amaxes_agree)
{
    static const struct {
        const char *recipe, *target;
    } cases[] = {{"delayed", "cpu"},       {"current", "cpu"}, {"bf16", "cpu"},
                 {"delayed", "reference"}, {"delayed", "cuda"}};
    const char *recipe = cases[_i].recipe, *target = cases[_i].target;
    rank_case c[3];
    for (int zero = 0; zero < 3; zero++) {
        c[zero] = (rank_case){.text = linears,
                              .options = {.recipe = recipe,
                                          .zero = zero,
                                          .target = target,
                                          .threads = 1,
                                          .profile = strcmp(target, "reference") != 0},
                              .ranks = 2,
                              .steps = 3,
                              .accumulate = 1,
                              .fill = fill};
        rank_case_run(&c[zero]);
        same_as(&c[zero], &c[0], recipe);
        for (int r = 0; r < 2 && c[zero].options.profile; r++) {
            ck_assert_int_eq(gathers_of(&c[zero], r, "grad_norm"), 1);
            ck_assert_int_eq(gathers_of(&c[zero], r, ""), zero ? MOST_GATHERS : 1);
        }
    }
    for (int zero = 0; zero < 3; zero++)
        rank_case_end(&c[zero]);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *suite = suite_create("gathers of ZeRO");
    TCase *c = tcase_create("bits");
    tcase_set_timeout(c, 300);
    tcase_add_loop_test(c, sorts_agree, 0, 4);
    tcase_add_loop_test(c, one_parameter, 0, 2);
    tcase_add_loop_test(c, amaxes_agree, 0, rank_gpus("gathers of ZeRO on CUDA") ? 5 : 4);
    suite_add_tcase(suite, c);
    return suite;
}
