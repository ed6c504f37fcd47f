/* Broadcasts of computed values, and transposes that move nothing, from text through all passes.
 * They run on the CPU, and for the GPU targets by the descriptions of their kernels. All bits are
 * the interpreter's, fused or not. */
#include "codegen/build.h"
#include "frontend/instance.h"
#include "tests/shared/graphs/compare.h"
#include "tests/shared/graphs/graphgen.h"
#include "tests/shared/passes/primitive.h"
#include "tests/shared/passes/program_check.h"
#include "tests/shared/passes/program_run.h"
#include "tests/shared/suite.h"
#include "tests/shared/passes/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEED = 7, MAX_PORTS = 8 };

static const char *const texts[] = {
    /* cast, then spread over middle axes, a leading axis, both */
    "func f(%a: bf16[2, 1, 1, 7], %b: f32[2, 5, 3, 7]) -> (%y: f32[2, 5, 3, 7]) {\n"
    "  return mul(cast(%a) {to = f32}, %b)\n}\n",
    "func f(%a: bf16[5, 1, 7], %b: f32[2, 5, 3, 7]) -> (%y: f32[2, 5, 3, 7]) {\n"
    "  return sub(%b, cast(%a) {to = f32})\n}\n",
    "func f(%a: bf16[1, 5, 3, 7], %b: f32[2, 5, 3, 7]) -> (%y: f32[2, 5, 3, 7]) {\n"
    "  return sub(%b, cast(%a) {to = f32})\n}\n",
    "func f(%a: bf16[2, 1, 3, 7], %b: f32[2, 5, 3, 7]) -> (%y: f32[2, 5, 3, 7]) {\n"
    "  return sub(%b, cast(%a) {to = f32})\n}\n",
    /* chains on the smaller shape, wanted by themselves too, and growing axis by axis */
    "func f(%a: bf16[2, 1, 1, 7], %b: f32[2, 5, 3, 7]) -> (%y: f32[2, 5, 3, 7], %z: f32[2, 1, 1, "
    "7]) {\n"
    "  %c = tanh(add(cast(%a) {to = f32}, 0.5))\n  %e = neg(%c)\n  return mul(%e, %b), %c\n}\n",
    "func f(%a: bf16[2, 1, 1, 7], %d: bf16[5, 1, 7], %b: f32[2, 5, 3, 7]) -> (%y: f32[2, 5, 3, 7]) "
    "{\n"
    "  %c = add(cast(%a) {to = f32}, exp(cast(%d) {to = f32}))\n  return mul(tanh(%c), %b)\n}\n",
    "func f(%a: bf16[2, 1, 1, 1], %d: bf16[5, 1, 1], %b: f32[2, 5, 3, 7]) -> (%y: bf16[2, 5, 3, "
    "7]) {\n"
    "  %c = mul(cast(%a) {to = f32}, cast(%d) {to = f32})\n"
    "  return cast(softmax(add(%b, %c))) {to = bf16}\n}\n",
    /* an explicit broadcast, its operand read as well */
    "func f(%a: bf16[2, 1, 1, 7], %b: f32[2, 5, 3, 7]) -> (%y: f32[2, 5, 3, 7], %z: f32[2, 5, 3]) "
    "{\n"
    "  %c = neg(cast(%a) {to = f32})\n  %w = broadcast(%c) {shape = [2, 5, 3, 7]}\n"
    "  return mul(%w, add(%b, %c)), reshape(reduce_sum(%w)) {shape = [2, 5, 3]}\n}\n",
    /* a statistic of the smaller shape */
    "func f(%a: bf16[2, 1, 3, 7], %b: f32[2, 5, 3, 7]) -> (%y: f32[2, 5, 3, 7]) {\n"
    "  %c = cast(%a) {to = f32}\n  %m = reshape(reduce_max(%c)) {shape = [2, 1, 3, 1]}\n"
    "  return mul(sub(%b, %m), exp(sub(%c, %m)))\n}\n",
    /* one vector read along the columns, and as a view along the rows */
    "func f(%a: bf16[7]) -> (%y: f32[7, 7]) {\n"
    "  %c = neg(cast(%a) {to = f32})\n  return mul(%c, reshape(%c) {shape = [7, 1]})\n}\n",
    "func f(%a: bf16[7, 1], %b: f32[7, 7]) -> (%y: f32[7, 7], %z: f32[7, 7]) {\n"
    "  %c = neg(cast(%a) {to = f32})\n  %d = reshape(%c) {shape = [7]}\n"
    "  return fma(%c, %b, %d), sub(%c, %d)\n}\n",
    "func f(%a: bf16[6], %b: f32[2, 6, 6]) -> (%y: f32[2, 6, 6]) {\n"
    "  %c = neg(cast(%a) {to = f32})\n  return sub(add(%b, %c), reshape(%c) {shape = [6, 1]})\n}\n",
    "func f(%a: bf16[7]) -> (%y: f32[7, 7]) {\n"
    "  %c = neg(cast(%a) {to = f32})\n"
    "  return mul(%c, exp(transpose(reshape(%c) {shape = [1, 7]}) {perm = [1, 0]}))\n}\n",
    "func f(%a: f32[5, 5]) -> (%y: f32[5, 5]) {\n"
    "  %i = cast(reshape(iota() {shape = [5]}) {shape = [5, 1]}) {to = f32}\n"
    "  return add(mul(%a, cast(iota() {shape = [5]}) {to = f32}), %i)\n}\n",
    /* transposes that move nothing */
    "func f(%a: f32[1, 9]) -> (%y: f32[9, 1]) {\n  return transpose(%a) {perm = [1, 0]}\n}\n",
    "func f(%a: f32[9, 1]) -> (%y: f32[1, 9]) {\n"
    "  return transpose(exp(%a)) {perm = [1, 0]}\n}\n",
    "func f(%a: bf16[1, 9]) -> (%y: f32[9, 1], %z: bf16[1, 9]) {\n"
    "  %t = transpose(%a) {perm = [1, 0]}\n"
    "  return exp(cast(%t) {to = f32}), transpose(cast(neg(cast(%t) {to = f32})) {to = bf16}) "
    "{perm = [1, 0]}\n}\n",
    "func f(%a: f32[1, 1]) -> (%y: f32[1, 1]) {\n  return neg(transpose(%a) {perm = [1, 0]})\n}\n",
    "func f(%a: f8e4m3[1, 9], %s: f32[]) -> (%y: f8e4m3[9, 1], %z: f8e4m3[9, 1]) {\n"
    "  %q = quantize(mul(cast(%a) {to = f32}, 3), %s) {format = f8e4m3}\n"
    "  return transpose(%q) {perm = [1, 0]}, transpose(%a) {perm = [1, 0]}\n}\n",
    "func f(%a: f32[4, 1, 9]) -> (%y: f32[1, 4, 9], %z: f32[9, 4, 1]) {\n"
    "  %e = exp(%a)\n  return transpose(%e) {perm = [1, 0, 2]}, transpose(%e) {perm = [2, 0, "
    "1]}\n}\n",
    "func f(%a: f32[9, 1]) -> (%y: f32[1, 1]) {\n"
    "  return reduce_amax(transpose(%a) {perm = [1, 0]})\n}\n",
    "func f(%a: f32[9, 1], %b: f32[1, 9]) -> (%y: f32[1, 1], %z: f32[1, 9]) {\n"
    "  return reduce_max(%a) {axis = 0}, reduce_amax(%b) {axis = 0}\n}\n",
    "func f(%a: f32[1, 16], %b: f32[16, 1]) -> (%y: f32[16, 1], %z: f32[1, 16]) {\n"
    "  %e = cast(exp(%a)) {to = bf16}\n  %g = cast(exp(%b)) {to = bf16}\n"
    "  return cast(transpose(%e) {perm = [1, 0]}) {to = f32}, cast(transpose(%g) {perm = [1, 0]}) "
    "{to = f32}\n}\n",
    "func f(%a: f32[4, 9, 1]) -> (%y: f32[1, 9, 1]) {\n"
    "  return add(reduce_max(neg(%a)) {axis = 0}, 0)\n}\n",
    /* six to eight axes: along every second one, moved, reduced, cut and joined */
    "func f(%a: bf16[2, 1, 3, 1, 2, 1, 2, 7], %b: f32[2, 5, 3, 2, 2, 3, 2, 7], %c: f32[5, 1, 2, 1, "
    "3, 1, 1]) -> (%y: f32[2, 5, 3, 2, 2, 3, 2, 7]) {\n"
    "  return fma(exp(cast(%a) {to = f32}), %b, neg(%c))\n}\n",
    "func f(%a: f32[3, 1, 2, 2, 5, 2, 3, 4]) -> (%y: f32[4, 3, 2, 5, 2, 2, 1, 3], %z: f32[3, 1, 1, "
    "2, 1, 2, 3, 1]) {\n"
    "  %e = exp(%a)\n  return transpose(%e) {perm = [7, 6, 5, 4, 3, 2, 1, 0]}, reduce_sum(%e) "
    "{axes = [2, 4, 7]}\n}\n",
    "func f(%a: f32[2, 8, 6, 5]) -> (%y: bf16[16, 6, 5], %z: f32[2, 8, 6, 5]) {\n"
    "  %w = transpose(reshape(exp(%a)) {shape = [2, 4, 2, 2, 3, 5]}) {perm = [0, 1, 3, 2, 4, 5]}\n"
    "  %s = softmax(%w)\n"
    "  return cast(reshape(%s) {shape = [16, 6, 5]}) {to = bf16}, reshape(transpose(%s) {perm = "
    "[0, "
    "1, 3, 2, 4, 5]}) {shape = [2, 8, 6, 5]}\n}\n",
    "func f(%a: f32[2, 1, 2, 3, 2, 4, 5], %b: f32[2, 1, 2, 1, 2, 4, 5]) -> (%y: f32[2, 1, 2, 3, 2, "
    "4, 5], %z: f32[3, 2, 2, 2, 3, 2, 2, 5]) {\n"
    "  %s = slice(%a) {axis = 3, start = 1, stop = 3}\n"
    "  %c = concat(neg(%s), %b) {axis = 3}\n"
    "  return softmax(%c), broadcast(slice(%c) {axis = 5, start = 0, stop = 2}) {shape = [3, 2, 2, "
    "2, 3, 2, 2, 5]}\n}\n",
};
enum { N_TEXTS = sizeof texts / sizeof *texts };

static const char *const targets[] = {"cpu", "sm_89", "sm_90a", "sm_100a"};
enum { N_TARGETS = sizeof targets / sizeof *targets };

/* What follows the entry points and the recipe, which want a model. */
static f8_status (*const passes[])(f8_unit *u) = {
    f8_pass_decompose, f8_pass_canonicalize, f8_pass_split,  f8_pass_legalize,
    f8_pass_group,     f8_pass_schedule,     f8_pass_memory,
};

static const f8_func *parsed(test_unit *t, const char *text)
{
    char whole[2048];
    snprintf(whole, sizeof whole, "module m\n%s", text);
    test_unit_parse(t, whole, "bf16");
    return test_func(t, "f");
}

/* No transpose is left that moves only axes of one element. */
static void check_transposes(const f8_graph *g, const char *text)
{
    for (f8_ref r = 1; r < g->n_nodes; r++) {
        const f8_node *n = f8_at(g, r);
        int wide = 0;
        for (int i = 0; i < n->type.rank; i++)
            wide += n->type.dim[i] > 1;
        ck_assert_msg(n->op != F8_OP_TRANSPOSE || wide > 1, "a transpose that moves nothing in\n%s",
                      text);
    }
}

static void *made(test_unit *t, const f8_port *p, bool filled)
{
    void *data = f8_arena_array(&t->arena, 1, (size_t)f8_type_bytes(&p->type));
    if (filled)
        graphgen_fill(SEED, p->name, &p->type, data);
    return data;
}

static void ports(test_unit *t, const f8_func *f, const void **in, void **out)
{
    ck_assert(f->n_in <= MAX_PORTS && f->n_out <= MAX_PORTS);
    for (size_t i = 0; i < f->n_in; i++)
        in[i] = made(t, &f->in[i], true);
    for (size_t i = 0; i < f->n_out; i++)
        out[i] = made(t, &f->out[i], false);
}

static void run_cpu(test_unit *t, const f8_func *f, const void *const *in, void *const *out)
{
    f8_plan plan;
    f8_instance i = {0};
    ck_assert_msg(f8_build_plan(t->unit.module, &(f8_build_options){.threads = 1}, &t->arena, &plan,
                                &t->diag) == F8_OK &&
                      f8_instance_create_cpu(&i, &plan,
                                             &(f8_exec_options){.n_threads = 2}, &t->diag) == F8_OK,
                  "%s", t->diag.text);
    for (uint32_t k = 0; k < f->n_in; k++)
        memcpy(i.kind->port(&i, 0, false, k), in[k], (size_t)f8_type_bytes(&f->in[k].type));
    ck_assert_msg(i.kind->run(&i, 0, &t->diag) == F8_OK, "%s", t->diag.text);
    for (uint32_t k = 0; k < f->n_out; k++)
        memcpy(out[k], i.kind->port(&i, 0, true, k), (size_t)f8_type_bytes(&f->out[k].type));
    f8_instance_destroy(&i);
}

static void check_target(const char *text, const char *target, bool no_fuse, void *const *want)
{
    test_unit t;
    const void *in[MAX_PORTS];
    void *out[MAX_PORTS];
    char message[F8_MESSAGE];
    parsed(&t, text);
    t.unit.options.target = f8_target_by_name(target);
    t.unit.options.no_fuse = no_fuse;
    for (size_t i = 0; i < sizeof passes / sizeof *passes; i++)
        ck_assert_msg(test_pass_fails(&t, passes[i]) == F8_OK, "%s: %s\n%s", target, t.diag.text,
                      text);
    const f8_func *f = test_func(&t, "f");
    check_transposes(f->graph, text);
    ck_assert_msg(f8_program_check(f, &t.diag) == F8_OK, "%s: %s\n%s", target, t.diag.text, text);
    ports(&t, f, in, out);
    ck_assert_msg(f8_program_run(f, t.unit.options.target, in, out, &t.diag) == F8_OK, "%s: %s\n%s",
                  target, t.diag.text, text);
    for (int way = 0; way < 2; way++) {
        for (size_t i = 0; i < f->n_out; i++)
            ck_assert_msg(f8_same_bits(way ? "compiled" : "as described", f->out[i].name,
                                       &f->out[i].type, out[i], want[i], message),
                          "%s%s, %s\n%s", target, no_fuse ? ", not fused" : "", message, text);
        if (way || strcmp(target, "cpu") != 0)
            break;
        run_cpu(&t, f, in, out);
    }
    test_unit_end(&t);
}

START_TEST(every_bit)
{
    test_unit t;
    const void *in[MAX_PORTS];
    void *want[MAX_PORTS];
    const f8_func *f = parsed(&t, texts[_i]);
    ports(&t, f, in, want);
    ck_assert_msg(test_reference_run(f, in, want, &t.diag) == F8_OK, "%s", t.diag.text);
    for (int k = 0; k < N_TARGETS; k++)
        for (int no_fuse = 0; no_fuse < 2; no_fuse++)
            check_target(texts[_i], targets[k], no_fuse, want);
    test_unit_end(&t);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("broadcasts");
    TCase *t = tcase_create("broadcasts");
    tcase_set_timeout(t, 60);
    tcase_add_loop_test(t, every_bit, 0, N_TEXTS);
    suite_add_tcase(s, t);
    setenv("CK_FORK", "no", 1); /* one check for leaks, as in check_differential */
    return s;
}
