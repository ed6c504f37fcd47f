/* Modules built by calls of the public API are the modules that text gives. A failure says what is
 * wrong and where, and leaves every object usable. */
#include <math.h>
#include <stddef.h>

#include "frontend/fp8c_diagnose.h"
#include "tests/shared/api/api.h"
#include "tests/shared/suite.h"

/* ---- text and calls build the same ---- */

static const fp8c_type ids = {FP8C_I32, 1, {ROWS}};

static void declare(fp8c_module *m)
{
    const fp8c_type wte = {FP8C_F32, 2, {V, C}}, fc = {FP8C_F32, 2, {C, C}},
                    bias = {FP8C_F32, 1, {C}};
    const fp8c_attr fields[] = {{.name = "lr", .kind = FP8C_ATTR_FLOAT, .f = 0.05},
                                {.name = "clip", .kind = FP8C_ATTR_INT, .i = 1}};
    ck_assert_int_eq(fp8c_module_param(m, "wte", &wte, FP8C_INIT_NORMAL, 0.5), FP8C_OK);
    ck_assert_int_eq(fp8c_module_param(m, "fc.weight", &fc, FP8C_INIT_NORMAL, 0.1), FP8C_OK);
    ck_assert_int_eq(fp8c_module_param(m, "fc.bias", &bias, FP8C_INIT_ZEROS, 0), FP8C_OK);
    ck_assert_int_eq(fp8c_module_optimizer(m, fields, 2), FP8C_OK);
    ck_assert_int_eq(fp8c_module_rule(m, "\"fc\" = auto", NULL), FP8C_OK);
    ck_assert_int_eq(fp8c_module_rule(m, "\"head\" = bf16", NULL), FP8C_OK);
}

static fp8c_value name_value(fp8c_module *m, const char *op, const fp8c_value *in, size_t n,
                             const fp8c_attr *attrs, size_t n_attrs)
{
    const fp8c_value v = fp8c_func_op(m, op, in, n, attrs, n_attrs);
    ck_assert_uint_ne(v, 0);
    return v;
}

static fp8c_module *build(fp8c_context *ctx)
{
    fp8c_module *m;
    ck_assert_int_eq(fp8c_module_create(ctx, "tiny", &m), FP8C_OK);
    declare(m);
    ck_assert_int_eq(fp8c_func_begin(m, "forward"), FP8C_OK);
    const fp8c_value tokens = fp8c_func_input(m, "tokens", &ids),
                     targets = fp8c_func_input(m, "targets", &ids);
    const fp8c_value wte = fp8c_func_param(m, "wte");
    const fp8c_value x = name_value(m, "embedding", (fp8c_value[]){wte, tokens}, 2, NULL, 0);
    const fp8c_value w = fp8c_func_param(m, "fc.weight"), b = fp8c_func_param(m, "fc.bias");
    const fp8c_value y = name_value(m, "linear", (fp8c_value[]){x, w, b}, 3, NULL, 0);
    const fp8c_attr tanh_form = {.name = "approximate", .kind = FP8C_ATTR_STRING, .s = "tanh"};
    const fp8c_value h = name_value(m, "gelu", &y, 1, &tanh_form, 1);
    const fp8c_attr head[] = {{.name = "transpose_b", .kind = FP8C_ATTR_BOOL, .i = 1},
                              {.name = "name", .kind = FP8C_ATTR_STRING, .s = "head"}};
    const fp8c_value logits = name_value(m, "linear", (fp8c_value[]){h, wte}, 2, head, 2);
    const fp8c_value loss =
        name_value(m, "cross_entropy", (fp8c_value[]){logits, targets}, 2, NULL, 0);
    ck_assert_int_eq(fp8c_func_result(m, "loss", loss), FP8C_OK);
    ck_assert_msg(fp8c_func_end(m) == FP8C_OK, "%s", fp8c_context_message(ctx));
    return m;
}

START_TEST(builder)
{
    static printed from_calls, from_text;
    fp8c_context *ctx = new_context();
    fp8c_module *built = build(ctx), *parsed = parse(ctx, model);
    ck_assert_int_eq(fp8c_module_print(built, collect, &from_calls), FP8C_OK);
    ck_assert_int_eq(fp8c_module_print(parsed, collect, &from_text), FP8C_OK);
    ck_assert_str_eq(from_calls.text, from_text.text);
    fp8c_compile_options o = recipe("delayed");
    fp8c_program *a = compile(ctx, built, &o), *b = compile(ctx, parsed, &o);
    fp8c_program_initialize(a, 7);
    fp8c_program_initialize(b, 7);
    for (int i = 0; i < 3; i++) {
        const float la = train_step(a), lb = train_step(b);
        ck_assert_mem_eq(&la, &lb, sizeof la);
    }
    fp8c_program_destroy(a);
    fp8c_program_destroy(b);
    fp8c_module_destroy(built);
    fp8c_module_destroy(parsed);
    fp8c_context_destroy(ctx);
}
END_TEST

/* A failure while building stays until func_end says it, whatever is called in between. */
START_TEST(builder_failures)
{
    fp8c_context *ctx = new_context();
    fp8c_module *m, *other;
    const fp8c_type t = {FP8C_F32, 2, {4, 4}}, flat = {FP8C_F32, 1, {3}};
    const fp8c_type bad_rank = {FP8C_F32, 9, {0}}, bad_dtype = {(fp8c_dtype)77, 1, {4}};
    ck_assert_int_eq(fp8c_module_create(ctx, "m", &m), FP8C_OK);
    ck_assert_int_eq(fp8c_module_param(m, "w", &bad_rank, FP8C_INIT_ZEROS, 0), FP8C_ERR_INPUT);
    said(ctx, "'w': rank 9 is not 0 to 8");
    ck_assert_int_eq(fp8c_module_param(m, "w", &bad_dtype, FP8C_INIT_ZEROS, 0), FP8C_ERR_INPUT);
    said(ctx, "'w': 77 is no dtype");
    ck_assert_int_eq(fp8c_module_param(m, "w", &t, (fp8c_init)9, 0), FP8C_ERR_INPUT);
    ck_assert_int_eq(fp8c_module_param(m, "w", &t, FP8C_INIT_ZEROS, 0), FP8C_OK);
    ck_assert_int_eq(fp8c_module_param(m, "w", &t, FP8C_INIT_ZEROS, 0), FP8C_ERR_INPUT);
    ck_assert_int_eq(fp8c_module_rule(m, "\"*\" = fp4", NULL), FP8C_ERR_INPUT);
    said(ctx, "no recipe 'fp4': there are f32, bf16, delayed, current, rowwise, rowwise_gw_hp, "
              "block, mxfp8, fake, auto");
    static const double widths[] = {NAN, INFINITY, -1};
    for (int i = 0; i < 6; i++) {
        const fp8c_init init = i < 3 ? FP8C_INIT_NORMAL : FP8C_INIT_UNIFORM;
        ck_assert_int_eq(fp8c_module_param(m, "v", &t, init, widths[i % 3]), FP8C_ERR_INPUT);
        said(ctx, i < 3 ? "'v': normal(" : "'v': uniform(");
        said(ctx, "): the width must be finite and not negative");
    }
    const fp8c_attr no_rate = {.name = "lr", .kind = FP8C_ATTR_FLOAT, .f = NAN};
    ck_assert_int_eq(fp8c_module_optimizer(m, &no_rate, 1), FP8C_ERR_INPUT);
    const fp8c_attr unknown = {.name = "momentum", .kind = FP8C_ATTR_FLOAT};
    ck_assert_int_eq(fp8c_module_optimizer(m, &unknown, 1), FP8C_ERR_INPUT);
    ck_assert_int_eq(fp8c_func_end(m), FP8C_ERR_INPUT);
    said(ctx, "no function is being built");
    ck_assert_uint_eq(fp8c_func_const(m, 1), 0);

    ck_assert_int_eq(fp8c_func_begin(m, "forward"), FP8C_OK);
    const fp8c_value x = fp8c_func_input(m, "x", &t), y = fp8c_func_input(m, "y", &flat);
    ck_assert(x && y);
    ck_assert_uint_eq(fp8c_func_op(m, "add", (fp8c_value[]){x, y}, 2, NULL, 0), 0);
    ck_assert_int_eq(fp8c_module_create(ctx, "other", &other), FP8C_OK); /* forgets nothing */
    ck_assert_int_eq(fp8c_module_param(m, "v", &t, FP8C_INIT_ZEROS, 0), FP8C_ERR_INPUT);
    ck_assert_int_eq(fp8c_func_result(m, "z", 0), FP8C_ERR_INPUT); /* of the op that failed */
    ck_assert_int_eq(fp8c_func_end(m), FP8C_ERR_INPUT);
    said(ctx, "do not broadcast");

    ck_assert_int_eq(fp8c_func_begin(m, "forward"), FP8C_OK);
    ck_assert_int_eq(fp8c_func_result(m, "z", 12345), FP8C_ERR_INPUT);
    said(ctx, "forward: 12345, given for result 'z', is no value");
    ck_assert_int_eq(fp8c_func_end(m), FP8C_ERR_INPUT);
    said(ctx, "12345");

    /* the function is gone, the module is whole */
    ck_assert_int_eq(fp8c_func_begin(m, "forward"), FP8C_OK);
    ck_assert_int_eq(fp8c_func_begin(m, "second"), FP8C_ERR_INPUT);
    said(ctx, "'forward' is still being built");
    ck_assert_int_eq(fp8c_func_end(m), FP8C_ERR_INPUT);
    fp8c_program *p;
    ck_assert_int_eq(fp8c_compile(m, NULL, &p), FP8C_ERR_INPUT);
    ck_assert_ptr_null(p);
    said(ctx, "has no function 'forward'");
    fp8c_module_destroy(other);
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
}
END_TEST

/* A module that was built has no file: no message begins with ":". Too much of something is not an
 * op that does not exist. */
START_TEST(builder_messages)
{
    fp8c_context *ctx = new_context();
    const fp8c_type t = {FP8C_F32, 2, {4, 4}};
    fp8c_attr many[9];
    for (int i = 0; i < 9; i++)
        many[i] = (fp8c_attr){.name = "axis", .kind = FP8C_ATTR_INT};
    for (int i = 0; i < 4; i++) {
        static const char *const want[] = {
            "error: there is no op 'ad'",
            "error: softmax has 9 attributes: no op takes more than 8",
            "error: softmax: no attribute 'axis' of that kind",
            "error: function 'forward' has no result"};
        fp8c_module *m;
        ck_assert_int_eq(fp8c_module_create(ctx, "m", &m), FP8C_OK);
        ck_assert_int_eq(fp8c_func_begin(m, "forward"), FP8C_OK);
        const fp8c_value x = fp8c_func_input(m, "x", &t);
        static const size_t n_attrs[] = {0, 9, 8};
        if (i < 3)
            ck_assert_uint_eq(fp8c_func_op(m, i ? "softmax" : "ad", &x, 1, many, n_attrs[i]), 0);
        ck_assert_int_eq(fp8c_func_end(m), FP8C_ERR_INPUT);
        ck_assert_msg(!strncmp(fp8c_context_message(ctx), want[i], strlen(want[i])), "%s",
                      fp8c_context_message(ctx));
        fp8c_program *p;
        ck_assert_int_eq(fp8c_compile(m, NULL, &p), FP8C_ERR_INPUT);
        ck_assert_msg(fp8c_context_message(ctx)[0] != ':', "%s", fp8c_context_message(ctx));
        fp8c_module_destroy(m);
    }
    fp8c_context_destroy(ctx);
}
END_TEST

START_TEST(builder_operands)
{
    fp8c_context *ctx = new_context();
    const fp8c_type t = {FP8C_F32, 2, {4, 4}};
    const int64_t axes[9] = {0};
    const fp8c_attr bad[] = {
        {.name = "nonsense", .kind = FP8C_ATTR_INT},
        {.name = "axis", .kind = FP8C_ATTR_STRING, .s = "x"},
        {.name = "axis", .kind = FP8C_ATTR_INT, .i = 17},
        {.name = "perm", .kind = FP8C_ATTR_INTS, .ints = axes, .n_ints = 9},
        {.name = "perm", .kind = FP8C_ATTR_INTS, .ints = axes, .n_ints = -1},
        {.name = "shape", .kind = FP8C_ATTR_INTS, .ints = axes, .n_ints = 5},
    };
    static const char *const ops[] = {"sum", "sum", "sum", "transpose", "transpose", "reshape"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad + 3; i++) {
        fp8c_module *m;
        ck_assert_int_eq(fp8c_module_create(ctx, "m", &m), FP8C_OK);
        ck_assert_int_eq(fp8c_func_begin(m, "forward"), FP8C_OK);
        const fp8c_value x = fp8c_func_input(m, "x", &t), none = 0, wild = 4711;
        if (i < sizeof bad / sizeof *bad)
            ck_assert_msg(!fp8c_func_op(m, ops[i], &x, 1, &bad[i], 1), "%zu", i);
        else if (i == sizeof bad / sizeof *bad)
            ck_assert_uint_eq(fp8c_func_op(m, "exp", &none, 1, NULL, 0), 0);
        else if (i == sizeof bad / sizeof *bad + 1)
            ck_assert_uint_eq(fp8c_func_op(m, "exp", &wild, 1, NULL, 0), 0);
        else
            ck_assert_int_ne(fp8c_func_result(m, "y", wild), FP8C_OK);
        ck_assert_int_ne(fp8c_func_end(m), FP8C_OK);
        ck_assert_str_ne(fp8c_context_message(ctx), "");
        fp8c_module_destroy(m);
    }
    fp8c_context_destroy(ctx);
}
END_TEST

/* ---- recipes and rules ---- */

static void decided(fp8c_program *p, const char *linear, const char *role, const char *scaling,
                    const char *reason)
{
    fp8c_decision d;
    for (int i = 0; fp8c_program_decision(p, i, &d) == FP8C_OK; i++)
        if (!strcmp(d.linear, linear) && !strcmp(d.role, role)) {
            ck_assert_str_eq(d.scaling, scaling);
            ck_assert_str_eq(d.reason, reason);
            return;
        }
    ck_abort_msg("no decision on %s %s", linear, role);
}

/* Behind the text's rules, in the order given, before or after the functions; each says who gave
 * it. */
START_TEST(rules)
{
    fp8c_context *ctx = new_context();
    fp8c_module *m = parse(ctx, model);
    char origin[] = "config:7";
    ck_assert_int_eq(fp8c_module_rule(m, "\"fc\" = current {margin = 1}", NULL), FP8C_OK);
    ck_assert_int_eq(fp8c_module_rule(m, "\"*\" wgrad = bf16", origin), FP8C_OK);
    ck_assert_int_eq(fp8c_module_rule(m, "\"head\" dgrad dy=current{format=e4m3}", "--rule"),
                     FP8C_OK);
    ck_assert_int_eq(fp8c_module_rule(m, "\"head\" dgrad w = delayed", "--rule"), FP8C_OK);
    ck_assert_int_eq(fp8c_module_check(m), FP8C_OK);
    memset(origin, 'x', sizeof origin - 1); /* the module has its own */
    fp8c_compile_options o = recipe("delayed");
    o.target = "reference";
    fp8c_program *p = compile(ctx, m, &o);
    fp8c_module_destroy(m); /* and the program its own */
    decided(p, "fc", "fprop", "current {margin = 1}", "recipe \"fc\" = current {margin = 1}");
    decided(p, "fc", "wgrad", "none", "recipe \"*\" wgrad = bf16 (config:7)");
    decided(p, "head", "fprop", "none", "recipe \"head\" = bf16 (line 10)");
    decided(p, "head", "dgrad", "current {format = e4m3}; delayed",
            "recipe \"head\" dgrad dy = current {format = e4m3} (--rule); recipe \"head\" dgrad w "
            "= delayed (--rule)");
    fp8c_program_destroy(p);

    m = build(ctx);
    ck_assert_int_eq(fp8c_module_rule(m, "\"fc\" dgrad = bf16", NULL), FP8C_OK);
    p = compile(ctx, m, &o);
    decided(p, "fc", "dgrad", "none", "recipe \"fc\" dgrad = bf16");
    decided(p, "fc", "fprop", "delayed", "recipe \"fc\" = auto");
    fp8c_program_destroy(p);
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
}
END_TEST

START_TEST(rules_that_fail)
{
    fp8c_context *ctx = new_context();
    fp8c_module *m = parse(ctx, model);
    fp8c_program *p;
    fp8c_compile_options o = recipe("delayed");
    ck_assert_int_eq(fp8c_module_rule(m, "\"fc\" wgrad w = bf16", NULL), FP8C_ERR_INPUT);
    ck_assert_str_eq(fp8c_context_message(ctx),
                     "1:1: error: wgrad has no operand w: its operands are x and dy\n"
                     "    1 | \"fc\" wgrad w = bf16\n      | ^");
    ck_assert_int_eq(fp8c_module_rule(m, "\"fc\" = block {\n  pow2 = 2}", "a file"),
                     FP8C_ERR_INPUT);
    ck_assert_str_eq(fp8c_context_message(ctx),
                     "a file:2:10: error: pow2 = 2: false or true is expected\n"
                     "    2 |   pow2 = 2}\n      |          ^");
    ck_assert_int_eq(fp8c_module_rule(m, "", "--rule"), FP8C_ERR_INPUT);
    said(ctx, "--rule:1:1: error: the rule is empty");
    ck_assert_int_eq(fp8c_module_rule(m, "\"fc\" = fp4", "--rule"), FP8C_ERR_INPUT);
    said(ctx, "no recipe 'fp4': there are f32");
    p = compile(ctx, m, &o); /* none of them is there */
    decided(p, "fc", "wgrad", "delayed", "recipe \"fc\" = auto (line 9)");
    fp8c_program_destroy(p);

    ck_assert_int_eq(fp8c_module_rule(m, "layers 1, 1 = bf16", "--rule"), FP8C_OK);
    ck_assert_int_eq(fp8c_module_check(m), FP8C_ERR_INPUT);
    ck_assert_str_eq(fp8c_context_message(ctx),
                     "tiny.f8: error: --rule: recipe layers: no linear of 'tiny' "
                     "has a layer's number in its name");
    ck_assert_int_eq(fp8c_compile(m, &o, &p), FP8C_ERR_INPUT);
    said(ctx, "tiny.f8: error: --rule: recipe layers: no linear of 'tiny'");
    fp8c_module_destroy(m);

    ck_assert_int_eq(fp8c_module_create(ctx, "m", &m),
                     FP8C_OK); /* a rule may come before its linears */
    ck_assert_int_eq(fp8c_module_rule(m, "\"head\" = bf16", NULL), FP8C_OK);
    ck_assert_int_eq(fp8c_func_begin(m, "forward"), FP8C_OK);
    ck_assert_int_eq(fp8c_module_check(m), FP8C_ERR_INPUT);
    said(ctx, "'forward' is still being built");
    ck_assert_int_eq(fp8c_func_end(m), FP8C_ERR_INPUT);
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
}
END_TEST

START_TEST(canonical_recipes)
{
    fp8c_context *ctx = new_context();
    char text[128] = "";
    ck_assert_int_eq(
        fp8c_recipe_canonical(ctx, " delayed{margin = 0,history=8}", text, sizeof text), FP8C_OK);
    ck_assert_str_eq(text, "delayed {history = 8}");
    ck_assert_int_eq(fp8c_recipe_canonical(ctx, "delayed {history = 8}", text, 8), FP8C_OK);
    ck_assert_str_eq(text, "delayed");
    ck_assert_int_eq(fp8c_recipe_canonical(ctx, "block {history = 8}", text, sizeof text),
                     FP8C_ERR_INPUT);
    ck_assert_str_eq(
        fp8c_context_message(ctx),
        "error: recipe 'block' has no option 'history': it has format, margin, pow2, fake");
    fp8c_context_destroy(ctx);
}
END_TEST

/* ---- messages, options, misuse ---- */

START_TEST(messages)
{
    fp8c_context *ctx = new_context();
    fp8c_module *m = (fp8c_module *)ctx;
    static const char text[] =
        "module t\nparam w: f32[2] zeros\nfunc forward(%x: f32[3]) -> (%y: f32[3]) {\n"
        "  return add(%x, w)\n}\n";
    ck_assert_int_eq(fp8c_module_parse(ctx, text, strlen(text), "dir/t.f8", NULL, 0, &m),
                     FP8C_ERR_INPUT);
    ck_assert_ptr_null(m);
    const char *said_now = fp8c_context_message(ctx);
    ck_assert_msg(!strncmp(said_now, "dir/t.f8:4:10: error: add: f32[3]", 33), "%s", said_now);
    said(ctx, "    4 |   return add(%x, w)\n      |          ^");
    ck_assert_int_ne(said_now[strlen(said_now) - 1], '\n');
    ck_assert_int_eq(fp8c_module_parse(ctx, NULL, 0, NULL, NULL, 0, &m), FP8C_ERR_INPUT);
    said(ctx, "the file is empty");
    const fp8c_dim dims[] = {{"Q", 3}};
    ck_assert_int_eq(fp8c_module_parse(ctx, model, strlen(model), "t", dims, 1, &m),
                     FP8C_ERR_INPUT);
    said(ctx, "no dim of that name");
    fp8c_module *good = parse(ctx, model); /* a failure leaves the context usable */
    ck_assert_int_eq(fp8c_module_print(good, refuse, NULL), FP8C_ERR_IO);
    fp8c_module_info info = {.struct_size = sizeof info};
    fp8c_module_report(good, &info);
    ck_assert_int_eq(info.parameters, 3);
    ck_assert_int_eq(info.elements, V * C + C * C + C);
    ck_assert_int_eq(info.accumulate, 1);
    ck_assert_int_eq(fp8c_module_dim(good, "B"), -1);
    fp8c_module_destroy(good);
    fp8c_context_destroy(ctx);
}
END_TEST

START_TEST(destroy_null)
{
    fp8c_context_destroy(NULL);
    fp8c_module_destroy(NULL);
    fp8c_program_destroy(NULL);
    ck_assert_str_ne(fp8c_context_message(NULL), "");
    fp8c_context_options o = {.struct_size = sizeof o,
                              .alloc = (void *(*)(void *, size_t, size_t))1};
    fp8c_context *ctx;
    ck_assert_int_eq(fp8c_context_create(&o, &ctx), FP8C_ERR_INPUT); /* all or none */
    ck_assert_ptr_null(ctx);
    o = (fp8c_context_options){.struct_size = sizeof(size_t),
                               .alloc = o.alloc}; /* an older caller's */
    ck_assert_int_eq(fp8c_context_create(&o, &ctx), FP8C_OK);
    fp8c_context_destroy(ctx);
}
END_TEST

START_TEST(compile_options)
{
    static const struct {
        fp8c_compile_options o;
        const char *message;
    } bad[] = {
        {{.recipe = "fp4"}, "no recipe 'fp4'"},
        {{.recipe = "block {pow2 = true"}, "recipe 'block': ',' or '}' is missing at the end"},
        {{.target = "tpu"}, "no target 'tpu'"},
        {{.lr = NAN}, "lr: nan is not a positive number"},
        {{.lr = INFINITY}, "lr: inf is not a positive number"},
        {{.lr = -1}, "lr: -1 is not a positive number"},
        {{.optimizer_steps = -1}, "optimizer_steps: -1 is negative"},
        {{.memory_share = NAN}, "memory: a share of nan is not between 0 and 1"},
        {{.threads = -1}, "threads: -1 is not from 0 to 256"},
        {{.threads = 257}, "threads: 257 is not from 0 to 256"},
        {{.print_after = "nonsense", .write = refuse}, "no pass 'nonsense'"},
        {{.print_after = "autodiff"}, "print_after needs the callback `write`"},
    };
    fp8c_context *ctx = new_context();
    fp8c_module *m = parse(ctx, model);
    fp8c_program *p;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        fp8c_compile_options o = bad[i].o;
        o.struct_size = sizeof o;
        ck_assert_int_eq(fp8c_compile(m, &o, &p), FP8C_ERR_INPUT);
        ck_assert_ptr_null(p);
        said(ctx, bad[i].message);
    }
    fp8c_compile_options o = recipe("bf16");
    o.print_after = "autodiff";
    o.write = refuse;
    ck_assert_int_eq(fp8c_compile(m, &o, &p), FP8C_ERR_IO);
    /* an older caller's struct ends before `recipe`: what lies there is not read */
    o = recipe("fp4");
    o.struct_size = offsetof(fp8c_compile_options, recipe);
    p = compile(ctx, m, &o);
    fp8c_program_destroy(p);
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
}
END_TEST

START_TEST(inference)
{
    fp8c_context *ctx = new_context();
    fp8c_module *m = parse(ctx, model);
    fp8c_compile_options o = recipe("bf16");
    o.inference = 1;
    fp8c_program *p = compile(ctx, m, &o);
    ck_assert_int_ge(fp8c_program_function(p, "eval"), 0);
    ck_assert_int_eq(fp8c_program_function(p, "micro_step"), -1);
    ck_assert_int_eq(fp8c_program_function(p, "update"), -1);
    fp8c_program_destroy(p);
    fp8c_module_destroy(m);
    fp8c_context_destroy(ctx);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("builder");
    TCase *t = tcase_create("builder");
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_test(t, builder);
    tcase_add_test(t, builder_failures);
    tcase_add_test(t, builder_messages);
    tcase_add_test(t, builder_operands);
    tcase_add_test(t, rules);
    tcase_add_test(t, rules_that_fail);
    tcase_add_test(t, canonical_recipes);
    tcase_add_test(t, messages);
    tcase_add_test(t, destroy_null);
    tcase_add_test(t, compile_options);
    tcase_add_test(t, inference);
    suite_add_tcase(s, t);
    return s;
}
