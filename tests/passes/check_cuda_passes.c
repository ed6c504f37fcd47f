/* What passes do for CUDA targets: TN operands of FP8 GEMMs, bf16 results of GEMMs, transposes made
 * by the kernels that compute the codes, padded rows. None of it changes a bit. */
#include "tests/shared/graphs/compare.h"
#include "tests/shared/passes/compile.h"
#include "tests/shared/graphs/graphgen.h"
#include "tests/shared/passes/program_check.h"
#include "tests/shared/passes/program_run.h"
#include "tests/shared/suite.h"
#include "tests/shared/passes/unit.h"

#include "codegen/kernel/kernel.h"
#include "codegen/reference/reference.h"
#include "frontend/text/parse.h"
#include "ir/lowered.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const targets[] = {"sm_89", "sm_90a", "sm_100a", "sm_120a"};
static const char *const recipes[] = {"f32", "bf16", "delayed", "current"};
static const char *const models[] = {"frontend/models/gpt.f8", "frontend/models/gpt2_124m.f8",
                                     "frontend/models/llama_block.f8"};

/* ---- refused ---- */

/* A linear of other sizes: refused where its recipe is chosen, by name and place, with what to
 * write. What it says to write works. */
START_TEST(refused_linear)
{
    static const char text[] = "module m\nparam fc.weight: f32[32, 40] normal(0.02)\nparam "
                               "head.weight: f32[40, 16] normal(0.02)\n"
                               "func forward(%x: f32[48, 32]) -> (%loss: f32[]) {\n"
                               "  %h = linear(%x, fc.weight)\n"
                               "  return reshape(reduce_sum(reduce_sum(linear(tanh(%h), "
                               "head.weight)) {axis = 0})) {shape = []}\n}\n";
    static const char message[] = "'fc', fprop: FP8 GEMMs of sm_90a need multiples of 16 for n "
                                  "and k, but this one has m = "
                                  "48, n = 40, k = 32; write recipe \"fc\" = bf16";
    for (int written = 0; written < 2; written++) {
        test_unit t;
        char whole[2048];
        snprintf(whole, sizeof whole, "%s%s", text,
                 written ? "recipe \"*\" = auto\nrecipe \"fc\" = bf16\nrecipe \"head\" = bf16\n"
                         : "");
        test_unit_parse(&t, whole, "delayed");
        t.unit.options.target = f8_target_by_name("sm_90a");
        const f8_status status = f8_run_passes(&t.unit);
        ck_assert_msg(status == (written ? F8_OK : F8_ERR_UNSUPPORTED), "%s", t.diag.text);
        if (!written) {
            ck_assert_str_eq(t.diag.text, message);
            ck_assert_uint_eq(t.diag.loc.line, 5);
        }
        test_unit_end(&t);
    }
}
END_TEST

/* ---- running programs ---- */

/* FP8C_GRAPHS: how many random graphs. */
static uint64_t graphs(void)
{
    const char *n = getenv("FP8C_GRAPHS");
    return n ? strtoull(n, NULL, 10) : 150;
}

static f8_module *random_module(f8_unit *u, uint64_t seed, unsigned scalings, f8_arena *arena,
                                f8_diag *diag)
{
    f8_arena_init(arena, NULL);
    *diag = (f8_diag){0};
    f8_module *m = graphgen_make(&(graphgen_options){.seed = seed,
                                                     .gemms = true,
                                                     .aligned_fp8 = true,
                                                     .scalings = scalings,
                                                     .broadcasts = seed % 4 == 0},
                                 arena, diag);
    ck_assert_msg(m, "seed %llu: %s", (unsigned long long)seed, diag->text);
    *u = (f8_unit){.module = m, .arena = arena, .diag = diag};
    return m;
}

static f8_status (*const passes[])(f8_unit *u) = {
    f8_pass_ids,   f8_pass_decompose, f8_pass_canonicalize, f8_pass_legalize,
    f8_pass_group, f8_pass_schedule,  f8_pass_memory};

static void run_passes(f8_unit *u, uint64_t seed, int from, int to)
{
    for (int p = from; p < to; p++)
        ck_assert_msg(passes[p](u) == F8_OK && f8_verify(u->module, u->diag) == F8_OK,
                      "seed %llu, pass %d, %s: %s", (unsigned long long)seed, p,
                      f8_unit_target(u)->name, u->diag->text);
}

/* ---- rows that begin at multiples of 16 bytes ---- */

/* Values named p* are padded, values named n* are not. */
static const char *const padded[] = {
    /* a head: logits of 37 columns, their softmax, two GEMMs that read its gradient */
    "func f(%x: bf16[30, 24], %w: bf16[24, 37], %soft: f32[30, 37]) -> "
    "(%y: f32[24, 37], %z: f32[30, 24], %l: f32[30, 1]) {\n"
    "  %p1 = matmul(%x, %w)\n  %m = reduce_max(%p1)\n  %e = exp(sub(%p1, %m))\n"
    "  %s = reduce_sum(%e)\n  %p2 = cast(mul(div(%e, %s), %soft)) {to = bf16}\n"
    "  return matmul(%x, %p2) {transpose_a = true}, matmul(%p2, %w) {transpose_b = true}, add(%m, "
    "%s)\n}\n",
    /* read in one run of elements by somebody: not padded */
    "func f(%x: bf16[30, 24], %w: bf16[24, 37]) -> (%y: f32[30, 37], %z: f32[5, 222]) {\n"
    "  %n1 = matmul(%x, %w)\n  %q = reshape(%n1) {shape = [5, 222]}\n"
    "  return add(%n1, reduce_sum(%n1)), sub(%q, reduce_max(%q))\n}\n",
    /* a result lies where the caller wants it */
    "func f(%x: bf16[30, 24], %w: bf16[24, 37]) -> (%n1: f32[30, 37], %z: f32[30, 1]) {\n"
    "  %n2 = matmul(%x, %w)\n  return %n2, reduce_sum(%n2)\n}\n",
    /* added to in place */
    "func f(%x: bf16[30, 24], %w: bf16[24, 37], %v: bf16[30, 37]) -> (%z: f32[30, 1]) {\n"
    "  %n1 = mul(cast(%v) {to = f32}, reduce_sum(cast(%v) {to = f32}))\n"
    "  %n2 = matmul(%x, %w, %n1)\n  return reduce_sum(%n2)\n}\n",
    /* a bf16 result, and a transpose that a GEMM reads: rows of 30 elements */
    "func f(%x: bf16[30, 24], %w: bf16[24, 37], %v: bf16[30, 37]) -> (%y: f32[37, 37], %z: f32[30, "
    "37]) {\n"
    "  %p1 = cast(matmul(%x, %w)) {to = bf16}\n  %f = cast(%p1) {to = f32}\n"
    "  %p2 = transpose(cast(sub(%f, reduce_max(%f))) {to = bf16}) {perm = [1, 0]}\n"
    "  return matmul(%p2, %v), mul(%f, reduce_sum(%f))\n}\n",
    /* a later phase of its kernel reads it as one run of elements: not padded */
    "func f(%x: f32[130, 37], %w: f32[130, 8]) -> (%y: f32[37, 8], %z: f32[130, 37]) {\n"
    "  %n1 = exp(mul(%x, reduce_sum(%x)))\n  %r = reshape(reduce_max(%n1)) {shape = [1, 130]}\n"
    "  %m = reshape(reduce_max(%r)) {shape = []}\n"
    "  return matmul(%n1, %w) {transpose_a = true}, mul(%n1, %m)\n}\n",
    /* scales of rows: an array is an array */
    "func f(%soft: f8e4m3[16, 32], %s: f32[16, 1], %soft2: f8e4m3[48, 32], %t: f32[48, 1]) -> (%y: "
    "f32[16, 48]) {\n"
    "  %n1 = add(%s, cast(iota() {shape = [16, 1]}) {to = f32})\n"
    "  %n2 = add(%t, cast(iota() {shape = [48, 1]}) {to = f32})\n"
    "  return scaled_matmul(%soft, %n1, %soft2, %n2) {transpose_b = true, scale_a = \"row\", "
    "scale_b = \"row\"}\n}\n",
};
enum { N_PADDED = sizeof padded / sizeof *padded };

START_TEST(rows_begin_aligned)
{
    test_unit t;
    void *out[2][GRAPHGEN_MAX_RESULTS];
    char whole[2048], message[F8_MESSAGE];
    snprintf(whole, sizeof whole, "module m\n%s", padded[_i]);
    test_unit_parse(&t, whole, "f32");
    t.unit.options.target = f8_target_by_name("sm_90a");
    graphgen_run(t.unit.module, 1, NULL, out[0]);
    run_passes(&t.unit, 1, 2, 7);
    const f8_func *f = &t.unit.module->func[0];
    ck_assert_msg(f8_program_check(f, &t.diag) == F8_OK, "%s", t.diag.text);
    int seen = 0;
    for (f8_ref r = 1; r < f->graph->n_nodes; r++) {
        const char *name = f->graph->name[r];
        const f8_place *p = &f->lowered->place[r];
        const f8_type *type = f8_type_of(f->graph, r);
        if (!name || (name[0] != 'p' && name[0] != 'n') || !p->space)
            continue;
        seen++;
        if (name[0] == 'n')
            ck_assert_msg(p->stride == f8_type_columns(type), "%s is padded", name);
        else
            ck_assert_msg(p->stride > f8_type_columns(type) && p->offset % 16 == 0 &&
                              p->stride * (int64_t)f8_dtype_size(type->dtype) % 16 == 0,
                          "%s: stride %lld", name, (long long)p->stride);
    }
    ck_assert_int_gt(seen, 0);
    graphgen_run(t.unit.module, 1, t.unit.options.target, out[1]);
    for (size_t i = 0; i < f->n_out; i++)
        ck_assert_msg(f8_same_bits("program", f->out[i].name, &f->out[i].type, out[1][i], out[0][i],
                                   message), "%s", message);
    test_unit_end(&t);
}
END_TEST

/* ---- random graphs ---- */

/* Legalized for a GPU, for the CPU, or not at all: the same bits. Rounding a result at once is
 * rounding it, and the reference's sums don't depend on how operands lie. Then the GPU's program,
 * run as placed with kernels as described, gives them too. */
START_TEST(random_graphs_keep_bits)
{
    int rounded = 0, transposed = 0, padded = 0, laid = 0;
    for (uint64_t seed = 1; seed <= graphs(); seed++) {
        f8_arena arena[2];
        f8_diag diag[2];
        f8_unit u[2];
        void *out[4][GRAPHGEN_MAX_RESULTS];
        char message[F8_MESSAGE];
        const f8_target *target = f8_target_by_name(targets[(seed + (uint64_t)_i) % 4]);
        const unsigned scalings = seed % 3 ? graphgen_scalings(target) : 0;
        for (int i = 0; i < 2; i++) {
            random_module(&u[i], seed, scalings, &arena[i], &diag[i]);
            u[i].options.target = i ? target : f8_target_by_name("cpu");
            if (i == 0)
                graphgen_run(u[i].module, seed, NULL, out[3]);
            run_passes(&u[i], seed, 0, 4);
            graphgen_run(u[i].module, seed, NULL, out[i]);
        }
        run_passes(&u[1], seed, 4, 7);
        const f8_func *f = &u[1].module->func[0];
        ck_assert_msg(f8_program_check(f, &diag[1]) == F8_OK, "seed %llu: %s",
                      (unsigned long long)seed, diag[1].text);
        graphgen_run(u[1].module, seed, u[1].options.target, out[2]);
        static const char *const what[] = {"for the CPU", "for a GPU", "the program for a GPU"};
        for (size_t i = 0; i < f->n_out; i++)
            for (int k = 0; k < 3; k++)
                ck_assert_msg(f8_same_bits(what[k], f->out[i].name, &f->out[i].type, out[k][i],
                                           out[3][i], message),
                              "seed %llu, %s, %s", (unsigned long long)seed,
                              targets[(seed + (uint64_t)_i) % 4], message);
        for (f8_ref r = 1; r < f->graph->n_nodes; r++)
            rounded += f8_op_facts(f8_at(f->graph, r)->op)->cls == F8_GEMM &&
                       f8_type_of(f->graph, r)->dtype == F8_BF16;
        for (f8_ref r = 1; r < f->graph->n_nodes; r++)
            padded += f8_op_facts(f8_at(f->graph, r)->op)->cls == F8_GEMM &&
                      f->lowered->place[r].stride > f8_type_columns(f8_type_of(f->graph, r));
        for (f8_ref r = 1; r < f->graph->n_nodes; r++)
            laid += !strcmp(f8_attr_s(f->graph, r, F8_A_SCALE_LAYOUT), "cublaslt");
        for (uint32_t i = 0; i < f->lowered->n_groups; i++)
            for (uint32_t p = 0; p < f->lowered->group[i].n_phases; p++)
                for (uint32_t k = 0; k < f->lowered->group[i].phase[p].n_out; k++)
                    transposed += f8_at(f->graph, f->lowered->group[i].phase[p].out[k])->op ==
                                  F8_OP_TRANSPOSE;
        for (int i = 0; i < 2; i++)
            f8_arena_end(&arena[i]);
    }
    ck_assert_uint_gt(3 * (uint64_t)rounded, graphs());
    ck_assert_uint_gt(3 * (uint64_t)transposed, 2 * graphs());
    ck_assert(padded > 0 || graphs() < 100);
    ck_assert_uint_gt(2 * (uint64_t)laid, graphs());
}
END_TEST

/* ---- models ---- */

static void model(test_unit *t, const char *file, const char *recipe, const char *target,
                  int64_t layers)
{
    size_t size;
    char *text = f8_test_read(file, &size);
    ck_assert_ptr_nonnull(text);
    *t = (test_unit){0};
    f8_arena_init(&t->arena, NULL);
    f8_module *m = NULL;
    const f8_dim_override depth = {"L", layers};
    f8_parse(text, size, file, &depth, 1, &t->arena, &t->diag, &m);
    ck_assert_msg(m, "%s", t->diag.text);
    t->unit = (f8_unit){.module = m, .arena = &t->arena, .diag = &t->diag};
    t->unit.options.recipe = f8_recipe_by_name(recipe);
    t->unit.options.target = f8_target_by_name(target);
    ck_assert_msg(f8_run_passes(&t->unit) == F8_OK, "%s, %s, %s: %s", file, recipe, target,
                  t->diag.text);
    free(text);
}

/* What the target's GEMMs take, and how their operands and results lie. */
static void check_product(const f8_func *f, const f8_target *target, f8_ref r)
{
    const f8_graph *g = f->graph;
    const f8_node *n = f8_at(g, r);
    const bool scaled = n->op == F8_OP_SCALED_MATMUL;
    const f8_gemm_operands o = f8_gemm_operands_of(n);
    const f8_ref value[] = {o.a, o.b, r};
    ck_assert(!f8_attr_i(g, r, F8_A_ROUND_A) && !f8_attr_i(g, r, F8_A_ROUND_B));
    if (scaled && target->fp8_tn)
        ck_assert(!f8_attr_i(g, r, F8_A_TRANSPOSE_A) && f8_attr_i(g, r, F8_A_TRANSPOSE_B));
    for (int i = 0; i < (o.acc ? 2 : 3); i++) {
        const f8_type *t = f8_type_of(g, value[i]);
        const f8_place *p = &f->lowered->place[value[i]];
        const int64_t size = (int64_t)f8_dtype_size(t->dtype);
        ck_assert_msg(p->space != F8_SPACE_ARENA || (p->offset % target->row_bytes == 0 &&
                                                     p->stride * size % target->row_bytes == 0),
                      "%s, %s: operand %d %s of %s lies at %lld, rows %lld apart", target->name,
                      f->name, i, g->name[value[i]] ? g->name[value[i]] : "",
                      g->name[r] ? g->name[r] : "", (long long)p->offset, (long long)p->stride);
    }
}

/* No copy moves FP8 codes: a transpose is written by the kernel that makes them. */
static void check_copies(const f8_func *f)
{
    for (uint32_t i = 0; i < f->lowered->n_groups; i++) {
        const f8_group *group = &f->lowered->group[i];
        if (group->kind != F8_GROUP_COPY)
            continue;
        ck_assert_msg(!f8_dtype_is_fp8(f8_type_of(f->graph, group->out[0])->dtype),
                      "%s: %s moves codes", f->name, group->name);
        ck_assert_msg(f8_at(f->graph, group->out[0])->op != F8_OP_TRANSPOSE, "%s: %s transposes",
                      f->name, group->name);
    }
}

/* Every row kernel has a description; wide rows keep nothing near and nothing computed is rolled.
 */
static void check_kernels(const f8_func *f, const f8_target *target, f8_arena *arena)
{
    for (uint32_t i = 0; i < f->lowered->n_groups; i++) {
        const f8_group *group = &f->lowered->group[i];
        for (uint32_t p = 0; group->kind == F8_GROUP_ROWS && p < group->n_phases; p++) {
            f8_kernel *k;
            f8_binding bound;
            f8_diag diag = {0};
            ck_assert_msg(f8_kernel_lower(f, group, p, target, arena, &k, &bound, &diag) == F8_OK,
                          "%s", diag.text);
            ck_assert_msg(k->cols <= target->near_columns || k->n_near == 0, "%s", k->text);
            for (uint32_t n = 0; n < k->n_instrs; n++)
                ck_assert_msg(k->instr[n].op != F8_K_ROLL, "%s", k->text);
            for (uint32_t b = 0; b < k->n_buffers; b++)
                ck_assert_msg(!k->buffer[b].transposed ||
                                  f8_at(f->graph, bound.value[b])->op == F8_OP_TRANSPOSE,
                              "%s", k->text);
        }
    }
}

START_TEST(models_as_the_target_takes_them)
{
    const char *target = targets[_i % 4], *recipe = recipes[_i / 4 % 4], *file = models[_i / 16];
    test_unit t;
    int narrow = 0, scaled = 0;
    model(&t, file, recipe, target, 2);
    for (size_t i = 0; i < t.unit.module->n_funcs; i++) {
        const f8_func *f = &t.unit.module->func[i];
        ck_assert_msg(f8_program_check(f, &t.diag) == F8_OK, "%s", t.diag.text);
        check_copies(f);
        check_kernels(f, t.unit.options.target, &t.arena);
        for (uint32_t k = 0; k < f->lowered->n_groups; k++)
            if (f->lowered->group[k].kind == F8_GROUP_GEMM) {
                const f8_ref r = f->lowered->group[k].out[0];
                check_product(f, t.unit.options.target, r);
                narrow += f8_type_of(f->graph, r)->dtype == F8_BF16;
                scaled += f8_at(f->graph, r)->op == F8_OP_SCALED_MATMUL;
            }
    }
    ck_assert_int_eq(scaled > 0, t.unit.options.recipe->scaling != F8_SCALING_NONE);
    ck_assert_int_eq(narrow > 0, t.unit.options.recipe->activation == F8_BF16);
    test_unit_end(&t);
}
END_TEST

/* Recipes with finer scales, where their GEMMs are: arrays of scales have no gaps and begin at 16
 * bytes, blocks lie as cuBLASLt reads them. */
static const struct {
    const char *recipe, *target, *layout;
} scaled[] = {{"rowwise", "sm_90a", "grid"},
              {"block", "sm_90a", "cublaslt"},
              {"mxfp8", "sm_100a", "cublaslt"},
              {"mxfp8", "sm_120a", "cublaslt"}};

START_TEST(scales_as_the_target_takes_them)
{
    test_unit t;
    int products = 0;
    model(&t, models[_i / 4], scaled[_i % 4].recipe, scaled[_i % 4].target, 2);
    for (size_t i = 0; i < t.unit.module->n_funcs; i++) {
        const f8_func *f = &t.unit.module->func[i];
        ck_assert_msg(f8_program_check(f, &t.diag) == F8_OK, "%s", t.diag.text);
        for (uint32_t k = 0; k < f->lowered->n_groups; k++) {
            const f8_ref r = f->lowered->group[k].out[0];
            const f8_node *n = f8_at(f->graph, r);
            if (n->op != F8_OP_SCALED_MATMUL)
                continue;
            products++;
            check_product(f, t.unit.options.target, r);
            ck_assert_str_eq(f8_attr_s(f->graph, r, F8_A_SCALE_LAYOUT), scaled[_i % 4].layout);
            for (int o = 1; o < 4; o += 2) {
                const f8_place *p = &f->lowered->place[n->in[o]];
                const f8_type *type = f8_type_of(f->graph, n->in[o]);
                ck_assert_msg(p->space != F8_SPACE_NONE && p->offset % 16 == 0 &&
                                  (p->stride == f8_type_columns(type) || f8_type_rows(type) == 1),
                              "%s: scales at %lld, rows %lld apart", f->name, (long long)p->offset,
                              (long long)p->stride);
            }
        }
    }
    ck_assert_int_gt(products, 0);
    test_unit_end(&t);
}
END_TEST

/* Kernels and launches (phases) of row kernels that one layer more adds to the training step: at
 * most four more than on the CPU, where weights' codes are kernels of their own too. */
START_TEST(launches_of_a_layer)
{
    const char *recipe = recipes[_i % 4], *file = models[_i / 4];
    int kernels[2] = {0}, launches[2] = {0};
    for (int i = 0; i < 2; i++) {
        test_unit t;
        model(&t, file, recipe, "sm_90a", 3 + i);
        const f8_lowered *p = test_func(&t, "micro_step")->lowered;
        for (uint32_t k = 0; k < p->n_groups; k++) {
            const bool rows = p->group[k].kind == F8_GROUP_ROWS;
            kernels[i] += rows || p->group[k].kind == F8_GROUP_ATTENTION ||
                          p->group[k].kind == F8_GROUP_ATTENTION_GRAD;
            launches[i] += rows ? (int)p->group[k].n_phases : 0;
        }
        test_unit_end(&t);
    }
    printf("%s, %s: a layer is %d kernels, %d launches of row kernels\n", file, recipe,
           kernels[1] - kernels[0], launches[1] - launches[0]);
    ck_assert_int_le(kernels[1] - kernels[0], 24);
    ck_assert_int_le(launches[1] - launches[0], 50);
}
END_TEST

/* ---- main ---- */

Suite *f8_suite(void)
{
    Suite *s = suite_create("cuda passes");
    TCase *t = tcase_create("cuda passes");
    tcase_set_timeout(t, 120 + (double)graphs());
    tcase_add_test(t, refused_linear);
    tcase_add_loop_test(t, rows_begin_aligned, 0, N_PADDED);
    tcase_add_loop_test(t, random_graphs_keep_bits, 0, 2);
    tcase_add_loop_test(t, models_as_the_target_takes_them, 0, 48);
    tcase_add_loop_test(t, scales_as_the_target_takes_them, 0, 12);
    tcase_add_loop_test(t, launches_of_a_layer, 0, 12);
    suite_add_tcase(s, t);
    return s;
}
