/* schedule and memory: orders, places in states, sharing of allocations, packing. Also the judge of
 * lowered functions that other tests trust: it finds the faults planted here. */
#include "tests/shared/passes/compile.h"
#include "tests/shared/passes/program_check.h"
#include "tests/shared/graphs/graphgen.h"
#include "tests/shared/suite.h"
#include "tests/shared/passes/unit.h"

#include "frontend/text/parse.h"
#include "ir/lowered.h"
#include "passes/unit/pack.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- setting up ---- */

static f8_func *placed(test_unit *t, const char *text)
{
    char whole[2048];
    snprintf(whole, sizeof whole, "module m\n%s", text);
    test_unit_parse(t, whole, "f32");
    test_pass(t, f8_pass_canonicalize);
    test_place(t);
    return &t->unit.module->func[0];
}

static f8_place place_of(const f8_func *f, const char *result)
{
    const f8_port *p = test_result(f, result);
    ck_assert_ptr_nonnull(p);
    return f->lowered->place[p->ref];
}

/* States are replaced by C's builder or by passes, not by the text: wrap a graph built by hand. */
typedef struct built {
    f8_arena arena;
    f8_diag diag;
    f8_module *m;
    f8_func *f;
    f8_unit unit;
} built;

static void begin(built *b)
{
    *b = (built){0};
    f8_arena_init(&b->arena, NULL);
    b->m = f8_module_create(&b->arena, &b->diag, "m", "m");
    b->f = f8_module_func(b->m, "forward");
    b->unit = (f8_unit){.arena = &b->arena, .diag = &b->diag, .module = b->m};
    b->unit.options.recipe = f8_recipe_by_name("f32");
}

static int32_t state(built *b, const char *name, int64_t rows, int64_t cols)
{
    return f8_module_var(
        b->m, &(f8_var){.name = name, .type = {F8_F32, 2, {rows, cols}}, .kind = F8_VAR_STATE});
}

static void finish(built *b)
{
    static f8_status (*const pass[])(f8_unit *) = {f8_pass_legalize, f8_pass_group,
                                                   f8_pass_schedule, f8_pass_memory};
    for (size_t i = 0; i < sizeof pass / sizeof *pass; i++)
        ck_assert_msg(pass[i](&b->unit) == F8_OK && f8_verify(b->m, &b->diag) == F8_OK, "%s",
                      b->diag.text);
    ck_assert_msg(f8_program_check(b->f, &b->diag) == F8_OK, "%s", b->diag.text);
}

/* ---- state ---- */

START_TEST(replaced_in_place)
{
    built b;
    begin(&b);
    const int32_t v = state(&b, "s", 30, 20);
    const f8_ref s = f8_func_var(b.f, v);
    f8_func_result(b.f, "s", f8_binary(b.f->graph, F8_OP_MUL, s, f8_const(b.f->graph, 0.5)), v);
    finish(&b);
    ck_assert_int_eq(place_of(b.f, "s").space, F8_SPACE_STATE);
    ck_assert_uint_eq(b.f->lowered->n_copies, 0);
    ck_assert_int_eq(b.f->lowered->arena_bytes, 0);
    f8_arena_end(&b.arena);
}
END_TEST

/* A roll reads other columns than it writes; a transpose is a copy: neither in place. */
START_TEST(moved_not_in_place)
{
    built b;
    begin(&b);
    const int32_t v = state(&b, "s", 20, 20);
    const f8_ref s = f8_func_var(b.f, v);
    const f8_ints perm = {2, {1, 0}};
    const f8_ref moved =
        _i ? f8_make(b.f->graph, F8_OP_TRANSPOSE, &s, 1, &F8_INTS(F8_A_PERM, perm), 1)
           : f8_make(b.f->graph, F8_OP_ROLL, &s, 1, &F8_INT(F8_A_SHIFT, 1), 1);
    f8_func_result(b.f, "s", moved, v);
    finish(&b);
    ck_assert_uint_eq(b.f->lowered->n_copies, 1);
    f8_arena_end(&b.arena);
}
END_TEST

/* Two states exchange their values. */
START_TEST(exchanged)
{
    built b;
    begin(&b);
    const int32_t v = state(&b, "s", 30, 20), w = state(&b, "t", 30, 20);
    const f8_ref s = f8_func_var(b.f, v), t = f8_func_var(b.f, w);
    f8_func_result(b.f, "s", t, v);
    f8_func_result(b.f, "t", s, w);
    finish(&b);
    f8_arena_end(&b.arena);
}
END_TEST

/* Who reads the old value goes first, though it stands later in the graph. */
START_TEST(readers_go_first)
{
    built b;
    begin(&b);
    const int32_t v = state(&b, "s", 30, 30);
    f8_graph *g = b.f->graph;
    const f8_ref s = f8_func_var(b.f, v);
    f8_func_result(b.f, "s", f8_unary(g, F8_OP_TANH, s), v);
    const f8_ref gram = f8_make(g, F8_OP_MATMUL, (f8_ref[]){s, s}, 2, NULL, 0);
    f8_func_result(b.f, "y", gram, -1);
    finish(&b);
    ck_assert_int_eq(place_of(b.f, "s").space, F8_SPACE_STATE);
    ck_assert_uint_eq(b.f->lowered->n_copies, 0);
    f8_arena_end(&b.arena);
}
END_TEST

/* The new value feeds a reader of the old one: no order can save the copy. */
START_TEST(old_and_new_are_read)
{
    built b;
    begin(&b);
    const int32_t v = state(&b, "s", 30, 30);
    f8_graph *g = b.f->graph;
    const f8_ref s = f8_func_var(b.f, v), next = f8_unary(g, F8_OP_TANH, s);
    f8_func_result(b.f, "s", next, v);
    f8_func_result(b.f, "y", f8_make(g, F8_OP_MATMUL, (f8_ref[]){next, s}, 2, NULL, 0), -1);
    finish(&b);
    ck_assert_uint_eq(b.f->lowered->n_copies, 1);
    f8_arena_end(&b.arena);
}
END_TEST

/* Gradients add up in their state, through a chain of GEMMs. */
START_TEST(accumulated_in_place)
{
    built b;
    begin(&b);
    const int32_t v = state(&b, "grad", 20, 20);
    f8_graph *g = b.f->graph;
    const f8_ref x = f8_func_input(b.f, "x", &(f8_type){F8_F32, 2, {20, 20}}, -1);
    f8_ref sum = f8_func_var(b.f, v);
    for (int i = 0; i < 3; i++)
        sum = f8_make(g, F8_OP_MATMUL, (f8_ref[]){x, i % 2 ? x : f8_unary(g, F8_OP_EXP, x), sum}, 3,
                      NULL, 0);
    f8_func_result(b.f, "grad", sum, v);
    finish(&b);
    for (f8_ref r = 1; r < b.f->graph->n_nodes; r++)
        if (f8_at(b.f->graph, r)->op == F8_OP_MATMUL)
            ck_assert_int_eq(b.f->lowered->place[r].space, F8_SPACE_STATE);
    f8_arena_end(&b.arena);
}
END_TEST

/* Each slice of a state vector is replaced by its own kernel, right where it lies. */
START_TEST(parts_of_a_state)
{
    built b;
    begin(&b);
    const int32_t v = state(&b, "amax", 3, 8);
    f8_graph *g = b.f->graph;
    const f8_ref s = f8_func_var(b.f, v);
    f8_ref part[3];
    for (int64_t i = 0; i < 3; i++)
        part[i] = f8_unary(g, (f8_op[]){F8_OP_TANH, F8_OP_EXP, F8_OP_ABS}[i],
                           f8_slice(g, s, 0, i, i + 1));
    f8_func_result(b.f, "amax", f8_concat(g, part, 3, 0), v);
    finish(&b);
    ck_assert_int_eq(place_of(b.f, "amax").space, F8_SPACE_STATE);
    ck_assert_int_eq(b.f->lowered->arena_bytes, 0);
    f8_arena_end(&b.arena);
}
END_TEST

/* The parts, rotated. In one kernel that is fine: it loads each column of all three before it
 * stores. In three GEMMs, whichever writes first destroys what another has yet to read. */
START_TEST(rotated_parts_of_a_state)
{
    built b;
    begin(&b);
    const int32_t v = state(&b, "s", 3, 8);
    f8_graph *g = b.f->graph;
    const f8_ref s = f8_func_var(b.f, v);
    const f8_ref w = f8_func_input(b.f, "w", &(f8_type){F8_F32, 2, {8, 8}}, -1);
    f8_ref part[3];
    for (int64_t i = 0; i < 3; i++) {
        const f8_ref next = f8_slice(g, s, 0, (i + 1) % 3, (i + 1) % 3 + 1);
        part[i] = _i ? f8_make(g, F8_OP_MATMUL, (f8_ref[]){next, w}, 2, NULL, 0)
                     : f8_unary(g, F8_OP_TANH, next);
    }
    f8_func_result(b.f, "s", f8_concat(g, part, 3, 0), v);
    finish(&b);
    ck_assert_uint_eq(b.f->lowered->n_copies, (unsigned)_i);
    f8_arena_end(&b.arena);
}
END_TEST

/* ---- sharing ---- */

START_TEST(slices_and_concatenations_are_views)
{
    test_unit t;
    const f8_func *f = placed(
        &t, "func forward(%x: f32[30, 60], %w: f32[60, 60]) -> (%y: f32[30, 60]) {\n"
            "  %h = matmul(%x, %w)\n"
            "  %a = matmul(slice(%h) {start = 0, stop = 20}, slice(%w) {axis = 0, start = 0, stop "
            "= 20})\n"
            "  %b = slice(%a) {start = 0, stop = 30}\n"
            "  %v = slice(slice(%w) {start = 0, stop = 30}) {axis = 0, start = 20, stop = 40}\n"
            "  %c = matmul(slice(%h) {start = 20, stop = 40}, %v)\n"
            "  return concat(%b, %c)\n}\n");
    for (f8_ref r = 1; r < f->graph->n_nodes; r++)
        if (f8_at(f->graph, r)->op == F8_OP_SLICE)
            ck_assert_int_ne(f->lowered->place[r].space, F8_SPACE_NONE);
    /* %c is computed inside the result, 60 columns apart */
    const f8_node *whole = f8_at(f->graph, test_result(f, "y")->ref);
    const f8_place *c = &f->lowered->place[whole->in[1]];
    ck_assert_int_eq(c->space, F8_SPACE_OUTPUT);
    ck_assert_int_eq(c->stride, 60);
    ck_assert_int_eq(c->offset, 120);
    test_unit_end(&t);
}
END_TEST

/* ---- the judge ---- */

static f8_func *two_kernels(test_unit *t)
{
    return placed(
        t, "func forward(%x: f32[30, 30]) -> (%y: f32[30, 30]) {\n"
           "  %a = matmul(exp(%x), %x)\n  %b = matmul(tanh(%a), %a)\n  return add(%b, %a)\n}\n");
}

START_TEST(judge_sees_shared_bytes)
{
    test_unit t;
    f8_func *f = two_kernels(&t);
    f8_diag diag = {0};
    f8_place *place = f->lowered->place;
    f8_ref seen = 0;
    for (f8_ref r = 1; r < f->graph->n_nodes; r++)
        if (f8_at(f->graph, r)->op == F8_OP_MATMUL) {
            if (seen && place[seen].space == F8_SPACE_ARENA && place[r].space == F8_SPACE_ARENA)
                place[r].offset = place[seen].offset;
            seen = r;
        }
    ck_assert_int_ne(f8_program_check(f, &diag), F8_OK);
    test_unit_end(&t);
}
END_TEST

START_TEST(judge_sees_a_wrong_order)
{
    test_unit t;
    f8_func *f = two_kernels(&t);
    f8_diag diag = {0};
    uint32_t *order = f->lowered->order;
    const uint32_t swap = order[1];
    order[1] = order[2];
    order[2] = swap;
    ck_assert_int_ne(f8_program_check(f, &diag), F8_OK);
    test_unit_end(&t);
}
END_TEST

/* An accumulator may lie where the result does; a bias, the operand at the same index, may not. */
START_TEST(judge_sees_a_bias_overwritten)
{
    test_unit t;
    f8_diag diag = {0};
    test_unit_parse(&t,
                    "module m\nfunc forward(%x: bf16[32, 32], %w: bf16[32, 32], %b: f32[32]) -> "
                    "(%y: f32[32, 32]) {\n  %c = cast(neg(%b)) {to = bf16}\n"
                    "  return neg(cast(matmul(%x, %w, %c) {to = bf16}))\n}\n",
                    "bf16");
    t.unit.options.target = f8_target_by_name("sm_90a");
    test_pass(&t, f8_pass_canonicalize);
    test_place(&t);
    f8_func *f = &t.unit.module->func[0];
    f8_ref product = 1;
    while (f8_at(f->graph, product)->op != F8_OP_MATMUL)
        product++;
    const f8_ref bias = f8_gemm_operands_of(f8_at(f->graph, product)).bias;
    f8_place *place = f->lowered->place;
    ck_assert(bias && place[bias].space == F8_SPACE_ARENA);
    ck_assert(place[product].space == F8_SPACE_ARENA);
    place[bias].offset = place[product].offset;
    ck_assert_int_ne(f8_program_check(f, &diag), F8_OK);
    ck_assert_msg(strstr(diag.text, "is overwritten before it is read") != NULL, "%s", diag.text);
    test_unit_end(&t);
}
END_TEST

/* ---- packing ---- */

START_TEST(packed_blocks_are_apart)
{
    uint64_t rng = (uint64_t)_i;
    f8_arena arena;
    f8_arena_init(&arena, NULL);
    enum { N = 200, POSITIONS = 120 };
    f8_lifetime *b = F8_NEW_ARRAY(&arena, f8_lifetime, N);
    int64_t live[POSITIONS] = {0}, most = 0;
    f8_packing packed;
    for (uint32_t i = 0; i < N; i++) {
        const uint32_t start = (uint32_t)(graphgen_next(&rng) % POSITIONS);
        b[i] = (f8_lifetime){64 * (int64_t)(1 + graphgen_next(&rng) % 50), start,
                          start + (uint32_t)(graphgen_next(&rng) % (POSITIONS - start)), i, 0};
        for (uint32_t k = b[i].start; k <= b[i].end; k++)
            live[k] += b[i].bytes;
    }
    for (int k = 0; k < POSITIONS; k++)
        most = live[k] > most ? live[k] : most;
    ck_assert(f8_pack(b, N, POSITIONS, &arena, &packed));
    ck_assert_int_eq(packed.lower_bound, most);
    ck_assert_int_ge(packed.bytes, most);
    ck_assert_int_le(10 * packed.bytes, 12 * most);
    for (uint32_t i = 0; i < N; i++)
        for (uint32_t k = 0; k < i; k++)
            if (b[i].start <= b[k].end && b[k].start <= b[i].end)
                ck_assert(b[i].offset + b[i].bytes <= b[k].offset ||
                          b[k].offset + b[k].bytes <= b[i].offset);
    f8_arena_end(&arena);
}
END_TEST

/* A training step of n layers: of each layer six values of several sizes live from the forward to
 * the backward, and at each position two for a moment. Gives the steps. */
static int64_t pack_layers(uint32_t layers)
{
    enum { KEPT = 6 };
    const uint32_t half = layers * KEPT, positions = 2 * half + 1;
    f8_arena arena;
    f8_packing packed;
    f8_arena_init(&arena, NULL);
    f8_lifetime *b = F8_NEW_ARRAY(&arena, f8_lifetime, (size_t)half + 2 * positions);
    uint32_t n = 0;
    for (uint32_t i = 0; i < half; i++, n++)
        b[n] = (f8_lifetime){64 * (1 + i % KEPT), i, positions - 1 - i, n, 0};
    for (uint32_t i = 0; i + 1 < positions; i++)
        for (int k = 0; k < 2; k++, n++)
            b[n] = (f8_lifetime){64 * (1 + (i + (uint32_t)k) % 5), i, i + 1, n, 0};
    ck_assert(f8_pack(b, n, positions, &arena, &packed));
    ck_assert_int_le(100 * packed.bytes, 101 * packed.lower_bound);
    printf("%u layers: %lld steps for %u blocks\n", layers, (long long)packed.steps, n);
    f8_arena_end(&arena);
    return packed.steps;
}

/* Steps, not time. A sweep that meets half of all blocks for each one takes 16 times the steps for
 * 4 times the layers. */
START_TEST(packing_deep_models)
{
    const int64_t few = pack_layers(50), many = pack_layers(200);
    ck_assert_int_le(many, 10 * few);
}
END_TEST

/* ---- models, random functions ---- */

static const char *const recipes[] = {"f32", "bf16", "delayed", "current"};
static const char *const models[] = {
    "frontend/models/gpt.f8", "frontend/models/gpt2_124m.f8", "frontend/models/llama_block.f8",
    "frontend/models/mpt_125m.f8", "frontend/models/llama3_8b_block.f8"};
enum { N_MODELS = sizeof models / sizeof *models };

START_TEST(arena_near_its_lower_bound)
{
    size_t size;
    char *text = f8_test_read(models[_i % N_MODELS], &size);
    ck_assert_ptr_nonnull(text);
    built b = {0};
    f8_arena_init(&b.arena, NULL);
    f8_parse(text, size, models[_i % N_MODELS], NULL, 0, &b.arena, &b.diag, &b.m);
    ck_assert_msg(b.m, "%s", b.diag.text);
    b.unit = (f8_unit){.arena = &b.arena, .diag = &b.diag, .module = b.m};
    b.unit.options.recipe = f8_recipe_by_name(recipes[_i / N_MODELS]);
    ck_assert_msg(f8_run_passes(&b.unit) == F8_OK, "%s", b.diag.text);
    for (size_t i = 0; i < b.m->n_funcs; i++) {
        const f8_lowered *p = b.m->func[i].lowered;
        /* what is smaller than a page is not worth packing tightly */
        if (p->lower_bound > 4096)
            ck_assert_int_le(100 * p->arena_bytes, 105 * p->lower_bound);
        ck_assert_uint_le(p->n_copies, 2); /* states are replaced in place */
    }
    f8_arena_end(&b.arena);
    free(text);
}
END_TEST

START_TEST(random_functions)
{
    for (uint64_t seed = 1; seed <= 250; seed++)
        for (int way = 0; way < 4; way++) {
            built b = {0};
            f8_arena_init(&b.arena, NULL);
            const graphgen_options options = {
                .seed = seed * 7919, .gemms = way % 2, .broadcasts = seed % 4 == 0};
            b.m = graphgen_make(&options, &b.arena, &b.diag);
            ck_assert_msg(b.m, "seed %llu: %s", (unsigned long long)seed, b.diag.text);
            b.unit = (f8_unit){.arena = &b.arena, .diag = &b.diag, .module = b.m};
            b.unit.options.no_fuse = way / 2;
            b.f = &b.m->func[0];
            ck_assert_msg(f8_pass_ids(&b.unit) == F8_OK && f8_pass_decompose(&b.unit) == F8_OK,
                          "%s", b.diag.text);
            finish(&b);
            f8_arena_end(&b.arena);
        }
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("memory");
    TCase *t = tcase_create("memory");
    tcase_set_timeout(t, 60);
    tcase_add_test(t, replaced_in_place);
    tcase_add_loop_test(t, moved_not_in_place, 0, 2);
    tcase_add_test(t, exchanged);
    tcase_add_test(t, readers_go_first);
    tcase_add_test(t, old_and_new_are_read);
    tcase_add_test(t, accumulated_in_place);
    tcase_add_test(t, parts_of_a_state);
    tcase_add_loop_test(t, rotated_parts_of_a_state, 0, 2);
    tcase_add_test(t, slices_and_concatenations_are_views);
    tcase_add_test(t, judge_sees_shared_bytes);
    tcase_add_test(t, judge_sees_a_wrong_order);
    tcase_add_test(t, judge_sees_a_bias_overwritten);
    tcase_add_loop_test(t, packed_blocks_are_apart, 0, 20);
    tcase_add_test(t, packing_deep_models);
    tcase_add_loop_test(t, arena_near_its_lower_bound, 0, 4 * N_MODELS);
    tcase_add_test(t, random_functions);
    suite_add_tcase(s, t);
    return s;
}
