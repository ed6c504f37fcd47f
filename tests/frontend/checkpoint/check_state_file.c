/* fp8c_program_save and fp8c_program_load. A program that is loaded continues with the bits it
 * would have had. The command line's checkpoints are the same files. What does not fit is named,
 * and nothing changes. */
#include "tests/shared/api/checkpoint.h"

#include "tests/shared/api/api.h"
#include "tests/shared/cuda/gpu.h"
#include "tests/shared/suite.h"

#define GPT "frontend/models/gpt.f8"
#define SMALL "-D", "B=2", "-D", "T=32", "-D", "L=1", "-D", "C=32", "-D", "H=2"

typedef struct life {
    fp8c_context *ctx;
    fp8c_module *m;
    fp8c_program *p;
} life;

static life begin(const char *text, const fp8c_compile_options *o)
{
    life l = {.ctx = new_context()};
    l.m = parse(l.ctx, text);
    l.p = compile(l.ctx, l.m, o);
    return l;
}

static void end(life *l)
{
    fp8c_program_destroy(l->p);
    fp8c_module_destroy(l->m);
    fp8c_context_destroy(l->ctx);
}

#define OK(l, call) ck_assert_msg((call) == FP8C_OK, "%s", fp8c_context_message((l).ctx))

/* All variables' bytes, one behind the other: the caller frees. */
static uint8_t *bytes_of(const life *l, size_t *n)
{
    fp8c_variable v;
    uint8_t *all = NULL;
    *n = 0;
    for (int i = 0; fp8c_program_variable(l->p, i, &v) == FP8C_OK; i++) {
        const size_t bytes = (size_t)fp8c_type_bytes(&v.type);
        all = realloc(all, *n + bytes);
        OK(*l, fp8c_program_read(l->p, i, all + *n));
        *n += bytes;
    }
    return all;
}

/* ---- going on ---- */

static const struct {
    const char *target, *recipe;
} kinds[] = {{"cpu", "bf16"},
             {"cpu", "delayed"},
             {"cpu", "mxfp8"},
             {"reference", "delayed"},
             {"cuda", "bf16"}};

START_TEST(goes_on)
{
    fp8c_compile_options o = recipe(kinds[_i].recipe);
    o.target = kinds[_i].target;
    life a = begin(model, &o), b = begin(model, &o);
    const char *path = f8_cli_temp("state");
    size_t n[2];
    OK(a, fp8c_program_initialize(a.p, 1));
    train_step(a.p);
    train_step(a.p);
    OK(a, fp8c_program_save(a.p, path, NULL));
    OK(b, fp8c_program_load(b.p, path, 0, NULL)); /* never initialized */
    uint8_t *x = bytes_of(&a, &n[0]), *y = bytes_of(&b, &n[1]);
    ck_assert(n[0] == n[1] && n[0] > 1000 && !memcmp(x, y, n[0]));
    free(x);
    free(y);
    for (int i = 0; i < 2; i++) {
        const float one = train_step(a.p), other = train_step(b.p);
        ck_assert(!memcmp(&one, &other, sizeof one));
    }
    x = bytes_of(&a, &n[0]);
    y = bytes_of(&b, &n[1]);
    ck_assert(!memcmp(x, y, n[0]));
    free(x);
    free(y);
    end(&a);
    end(&b);
}
END_TEST

/* What is in the file, and that it is one file for one state. */
START_TEST(the_file)
{
    const fp8c_compile_options o = recipe("delayed");
    life l = begin(model, &o);
    size_t n[2];
    OK(l, fp8c_program_initialize(l.p, 1));
    OK(l, fp8c_program_save(l.p, f8_cli_temp("one"), NULL));
    OK(l, fp8c_program_save(l.p, f8_cli_temp("two"), NULL));
    char *one = f8_cli_read(f8_cli_temp("one"), &n[0]),
         *two = f8_cli_read(f8_cli_temp("two"), &n[1]);
    ck_assert(n[0] == n[1] && !memcmp(one, two, n[0]));
    free(one);
    free(two);
    copy *c = read_copy("one");
    char type[64];
    fp8c_variable v;
    int n_variables = 0, codes = 0;
    while (fp8c_program_variable(l.p, n_variables, &v) == FP8C_OK) {
        codes += !strncmp(v.name, "fp8.codes.", 10);
        n_variables++;
    }
    ck_assert_int_gt(codes, 0); /* they follow from the weights */
    ck_assert_uint_eq(c->n, (size_t)(n_variables - codes));
    ck_assert_str_eq(f8_st_type_text(&c->tensor[at(c, "wte")], type, sizeof type), "F32 [16, 32]");
    at(c, "fp8c.state.fp8.scale");
    at(c, "fp8c.state.opt.m.wte");
    ck_assert_uint_eq(c->n_metadata, 4);
    free_copy(c);
    end(&l);
}
END_TEST

/* A program for inference takes of a training's file what it has, elements of states by their
 * names. */
START_TEST(serves_a_training)
{
    static const char *const names[] = {"delayed", "bf16", "block"};
    fp8c_compile_options o = recipe(names[_i]);
    life a = begin(model, &o);
    OK(a, fp8c_program_initialize(a.p, 1));
    for (int i = 0; i < 4; i++)
        train_step(a.p);
    OK(a, fp8c_program_save(a.p, f8_cli_temp("state"), NULL));
    o.inference = 1;
    life b = begin(model, &o);
    OK(b, fp8c_program_load(b.p, f8_cli_temp("state"), 0, NULL));
    float loss[2];
    life *const both[] = {&a, &b};
    for (int k = 0; k < 2; k++) {
        const int f = fp8c_program_function(both[k]->p, "eval");
        fill_batch(both[k]->p, f);
        OK(*both[k], fp8c_program_run(both[k]->p, f));
        loss[k] = *(float *)fp8c_program_buffer(both[k]->p, f, FP8C_OUTPUT, 0);
    }
    ck_assert_msg(!memcmp(&loss[0], &loss[1], 4), "%s: %.9g and %.9g", names[_i], (double)loss[0],
                  (double)loss[1]);
    end(&a);
    end(&b);
}
END_TEST

/* ---- shared operands ---- */

static const char qkv[] =
    "module qkv\n"
    "param wte: f32[16, 32] normal(0.5)\n"
    "param q: f32[32, 16] normal(0.2)\n"
    "param k: f32[32, 16] normal(0.3)\n"
    "param v: f32[32, 16] normal(0.1)\n"
    "func forward(%tokens: i32[8], %targets: i32[8]) -> (%loss: f32[]) {\n"
    "  %x = embedding(wte, %tokens)\n"
    "  return cross_entropy(add(mul(linear(%x, q), linear(%x, k)), linear(%x, v)), %targets)\n"
    "}\n"
    "optimizer adamw {lr = 0.05, clip = 1}\n";

static life begin_qkv(const char *rule)
{
    const fp8c_compile_options o = recipe("delayed");
    life l = {.ctx = new_context()};
    l.m = parse(l.ctx, qkv);
    if (rule)
        OK(l, fp8c_module_rule(l.m, rule, "a rule"));
    l.p = compile(l.ctx, l.m, &o);
    OK(l, fp8c_program_initialize(l.p, 1));
    return l;
}

static float scale_of(const life *l, const char *name)
{
    float scale[16];
    const char *element;
    const int variable = fp8c_program_find_variable(l->p, "fp8.scale");
    OK(*l, fp8c_program_read(l->p, variable, scale));
    for (int64_t k = 0; (element = fp8c_program_element(l->p, variable, k, 0)); k++)
        if (!strcmp(element, name))
            return scale[k];
    ck_abort_msg("no %s", name);
}

/* Linears that share an operand have one element, under the name of the first. A program in which
 * another one of them is the first, or has an element of its own, finds it. */
START_TEST(shared_operands)
{
    static const struct {
        const char *rule, *element; /* the x that k and v read, in the file */
        const char *to_rule, *to_element;
        const char *aliases; /* in the file */
    } cases[] = {
        {NULL, "q.x", "\"k\" = delayed {margin = 1}", "k.x", "{\"k.x\":\"q.x\",\"v.x\":\"q.x\"}"},
        {"\"q\" x = current", "k.x", NULL, "q.x", "{\"v.x\":\"k.x\"}"},
    };
    for (int i = 0; i < 2; i++) {
        life a = begin_qkv(cases[i].rule), b = begin_qkv(cases[i].to_rule);
        const char *path = f8_cli_temp("shared");
        train_step(a.p);
        const float scale = scale_of(&a, cases[i].element);
        ck_assert(scale != 1);
        OK(a, fp8c_program_save(a.p, path, NULL));
        OK(b, fp8c_program_load(b.p, path, 0, NULL));
        ck_assert_float_eq(scale_of(&b, cases[i].to_element), scale);
        ck_assert_float_eq(scale_of(&b, "v.w"), scale_of(&a, "v.w"));
        copy *c = read_copy("shared");
        const char *aliases = NULL;
        for (size_t k = 0; k < c->n_metadata; k++)
            if (!strcmp(c->metadata[k].key, "fp8c.aliases"))
                aliases = c->value[k];
        ck_assert_str_eq(aliases, cases[i].aliases);
        set_metadata(c, "fp8c.aliases", "[1");
        write_copy(c, "bad", false);
        ck_assert_int_eq(fp8c_program_load(b.p, f8_cli_temp("bad"), 0, NULL), FP8C_ERR_INPUT);
        said(b.ctx, "its metadata 'fp8c.aliases' is not JSON");
        set_metadata(c, "fp8c.aliases",
                     "{\"k.x\":[\"q.x\"]}"); /* no names: as if there were none */
        write_copy(c, "bad", false);
        if (i == 0) {
            ck_assert_int_eq(fp8c_program_load(b.p, f8_cli_temp("bad"), 0, NULL), FP8C_ERR_INPUT);
            said(b.ctx, "'k.x' is missing in fp8c.state.fp8.scale");
        } else {
            OK(b, fp8c_program_load(b.p, f8_cli_temp("bad"), 0, NULL));
        }
        free_copy(c);
        end(&a);
        end(&b);
    }
}
END_TEST

/* ---- the command line's files ---- */

START_TEST(command_line)
{
    size_t size;
    char *file = f8_cli_read(GPT, &size);
    const fp8c_dim dims[] = {{"B", 2}, {"T", 32}, {"L", 1}, {"C", 32}, {"H", 2}};
    ok(RUN("train", GPT, SMALL, "--steps", "3", "--recipe", "delayed", "--save",
           f8_cli_temp("cli")));
    const double trained = number("summary", 0, "heldout_loss");
    const fp8c_compile_options o = recipe("delayed");
    life l = {.ctx = new_context()};
    OK(l, fp8c_module_parse(l.ctx, file, size, GPT, dims, 5, &l.m));
    l.p = compile(l.ctx, l.m, &o);
    OK(l, fp8c_program_load(l.p, f8_cli_temp("cli"), 0, NULL));
    OK(l, fp8c_program_save(l.p, f8_cli_temp("api"), NULL));
    ok(RUN("eval", GPT, SMALL, "--recipe", "delayed", "--weights", f8_cli_temp("api")));
    ck_assert(number("eval", 0, "heldout_loss") == trained);
    copy *a = read_copy("cli"), *b = read_copy("api");
    ck_assert_uint_eq(a->n, b->n);
    for (size_t i = 0; i < a->n; i++) {
        ck_assert_str_eq(a->tensor[i].name, b->tensor[i].name);
        ck_assert(a->tensor[i].bytes == b->tensor[i].bytes &&
                  !memcmp(a->bytes[i], b->bytes[i], (size_t)a->tensor[i].bytes));
    }
    free_copy(a);
    free_copy(b);
    free(file);
    end(&l);
}
END_TEST

/* ---- parameters alone ---- */

START_TEST(parameters_alone)
{
    const fp8c_compile_options o = recipe("delayed");
    life a = begin(model, &o), b = begin(model, &o);
    const char *path = f8_cli_temp("state");
    OK(a, fp8c_program_initialize(a.p, 1));
    train_step(a.p);
    OK(a, fp8c_program_save(a.p, path, NULL));
    ck_assert_int_eq(fp8c_program_load(b.p, path, 1, NULL), FP8C_ERR_INPUT);
    said(b.ctx, "has no value, and only parameters are to be loaded: call "
                "fp8c_program_initialize first");
    OK(b, fp8c_program_initialize(b.p, 2));
    OK(b, fp8c_program_load(b.p, path, 1, NULL));
    fp8c_variable v;
    int params = 0, moments = 0;
    for (int i = 0; fp8c_program_variable(b.p, i, &v) == FP8C_OK; i++) {
        const size_t n = (size_t)fp8c_type_bytes(&v.type);
        uint8_t *x = malloc(n), *y = malloc(n);
        OK(a, fp8c_program_read(a.p, i, x));
        OK(b, fp8c_program_read(b.p, i, y));
        if (v.is_param)
            ck_assert_msg(!memcmp(x, y, n), "%s", v.name);
        for (size_t k = 0; !strncmp(v.name, "opt.m.", 6) && k < n; k++)
            ck_assert_int_eq(y[k], 0);
        params += v.is_param;
        moments += !strncmp(v.name, "opt.m.", 6);
        free(x);
        free(y);
    }
    ck_assert(params == 3 && moments == 3);
    train_step(b.p);
    copy *c = read_copy("state"); /* and of a file that has nothing else */
    drop_states(c);
    write_copy(c, "weights", true);
    OK(b, fp8c_program_load(b.p, f8_cli_temp("weights"), 1, NULL));
    ck_assert_int_eq(fp8c_program_load(b.p, f8_cli_temp("weights"), 0, NULL), FP8C_ERR_INPUT);
    said(b.ctx, "'opt.m.wte' is missing: F32 [16, 32]");
    end(&a);
    end(&b);
}
END_TEST

/* ---- what does not fit ---- */

static void a_missing(copy *c)
{
    drop(c, at(c, "wte"));
}
static void a_missing_state(copy *c)
{
    drop(c, at(c, "fp8c.state.opt.v.fc.bias"));
}
static void a_shape(copy *c)
{
    f8_st_tensor *t = &c->tensor[at(c, "fc.weight")];
    t->dim[0] = 16, t->dim[1] = 64;
}
static void a_rank(copy *c)
{
    f8_st_tensor *t = &c->tensor[at(c, "fc.bias")];
    t->rank = 2, t->dim[1] = 1;
}
static void a_dtype(copy *c)
{
    c->tensor[at(c, "wte")].dtype = F8_ST_I32;
}
static void half(copy *c)
{
    f8_st_tensor *t = &c->tensor[at(c, "wte")];
    t->dtype = F8_ST_BF16;
    t->bytes /= 2;
}
static void one_more(copy *c)
{
    add(c, "lm_head.weight", F8_ST_F32, 1, (int64_t[]){3});
}
static void elements_none(copy *c)
{
    set_metadata(c, "fp8c.elements", "{}");
}
static void elements_other(copy *c)
{
    for (size_t i = 0; i < c->n_metadata; i++)
        if (!strcmp(c->metadata[i].key, "fp8c.elements")) {
            char *text = strdup(c->value[i]), *found = strstr(text, "\"fc.x\"");
            ck_assert_ptr_nonnull(found);
            found[1] = 'F';
            set_metadata(c, "fp8c.elements", text);
            free(text);
        }
}
static void elements_no_json(copy *c)
{
    set_metadata(c, "fp8c.elements", "[");
}
static void a_version(copy *c)
{
    set_metadata(c, "fp8c.version", "2\n");
}
static void two_wrong(copy *c)
{
    a_missing(c);
    a_shape(c);
}
static void many(copy *c)
{
    char name[200];
    for (int i = 0; i < 9; i++) {
        snprintf(name, sizeof name, "%0150d", i);
        add(c, name, F8_ST_F32, 0, NULL);
    }
}

static const struct {
    void (*change)(copy *c);
    const char *message;
} misfits[] = {
    {a_missing, "it does not fit the program: 'wte' is missing: F32 [16, 32]"},
    {a_missing_state, "it does not fit the program: 'opt.v.fc.bias' is missing: F32 [32]"},
    {a_shape, "it does not fit the program: 'fc.weight' is F32 [16, 64], not F32 [32, 32]"},
    {a_rank, "it does not fit the program: 'fc.bias' is F32 [32, 1], not F32 [32]"},
    {a_dtype, "it does not fit the program: 'wte' is I32 [16, 32], not F32 [16, 32]"},
    {half, "it does not fit the program: 'wte' is BF16 [16, 32], not F32 [16, 32]"},
    {one_more,
     "it does not fit the program: 'lm_head.weight' is not a variable of the program: F32 [3]"},
    {elements_none, "'fp8c.state.fp8.scale' is F32 ["},
    {elements_other, "'fc.x' is missing in fp8c.state.fp8."},
    {elements_no_json, "its metadata 'fp8c.elements' is not JSON"},
    {a_version, "its 'fp8c.version' is '2?', and this fp8c reads only 1"},
    {two_wrong, "it does not fit the program: 'wte' is missing: F32 [16, 32]; 'fc.weight' is F32 "
                "[16, 64], not F32 [32, "
                "32]"},
    {many, "0002' is not a variable of the program: F32 []; and 6 more"},
};

START_TEST(does_not_fit)
{
    const fp8c_compile_options o = recipe("delayed");
    life l = begin(model, &o);
    size_t n[2];
    OK(l, fp8c_program_initialize(l.p, 1));
    train_step(l.p);
    OK(l, fp8c_program_save(l.p, f8_cli_temp("good"), NULL));
    train_step(l.p);
    uint8_t *before = bytes_of(&l, &n[0]);
    for (size_t i = 0; i < sizeof misfits / sizeof *misfits; i++) {
        copy *c = read_copy("good");
        misfits[i].change(c);
        write_copy(c, "bad", true);
        ck_assert_msg(fp8c_program_load(l.p, f8_cli_temp("bad"), 0, NULL) == FP8C_ERR_INPUT,
                      "taken, instead of: %s", misfits[i].message);
        said(l.ctx, "/bad: error: ");
        said(l.ctx, misfits[i].message);
        uint8_t *after = bytes_of(&l, &n[1]);
        ck_assert_msg(!memcmp(before, after, n[0]), "changed by: %s", misfits[i].message);
        free(after);
    }
    /* Cut at any place, it is no such file. */
    char *good = f8_cli_read(f8_cli_temp("good"), &n[0]);
    for (size_t cut = 0; cut < n[0]; cut += n[0] / 23 + 1) {
        f8_cli_write("bad", good, cut);
        ck_assert_int_eq(fp8c_program_load(l.p, f8_cli_temp("bad"), 0, NULL), FP8C_ERR_INPUT);
    }
    free(good);
    uint8_t *after = bytes_of(&l, &n[1]);
    ck_assert(!memcmp(before, after, n[1]));
    free(after);
    free(before);
    ck_assert_int_eq(fp8c_program_load(l.p, f8_cli_temp("none"), 0, NULL), FP8C_ERR_IO);
    said(l.ctx, "/none: error: No such file or directory");
    ck_assert_int_eq(fp8c_program_save(l.p, "no/such/folder", NULL), FP8C_ERR_IO);
    said(l.ctx, "no/such/folder: error: No such file or directory");
    end(&l);
}
END_TEST

START_TEST(nothing_to_save)
{
    fp8c_compile_options o = recipe("bf16");
    life l = begin(model, &o);
    ck_assert_int_eq(fp8c_program_save(l.p, f8_cli_temp("state"), NULL), FP8C_ERR_INPUT);
    said(l.ctx, "the variables have no values: there is nothing to save");
    end(&l);
    o.plan_only = 1;
    l = begin(model, &o);
    ck_assert_int_eq(fp8c_program_save(l.p, f8_cli_temp("state"), NULL), FP8C_ERR_INPUT);
    said(l.ctx, "compiled with plan_only");
    ck_assert_int_eq(fp8c_program_load(l.p, f8_cli_temp("state"), 0, NULL), FP8C_ERR_INPUT);
    said(l.ctx, "compiled with plan_only");
    end(&l);
}
END_TEST

/* Each allocation refused in turn: it fails, nothing is changed or left, and then it works. */
START_TEST(out_of_memory)
{
    counting count = {0};
    const fp8c_context_options co = counted_options(&count);
    const fp8c_compile_options o = recipe("delayed");
    life l = {0};
    size_t n[2];
    ck_assert_int_eq(fp8c_context_create(&co, &l.ctx), FP8C_OK);
    l.m = parse(l.ctx, model);
    l.p = compile(l.ctx, l.m, &o);
    OK(l, fp8c_program_initialize(l.p, 1));
    OK(l, fp8c_program_save(l.p, f8_cli_temp("state"), NULL));
    train_step(l.p);
    uint8_t *before = bytes_of(&l, &n[0]);
    for (int load = 0; load < 2; load++) {
        int failed = 0;
        for (long at = 1;; at++) {
            const long live = count.live;
            count.n = 0;
            count.fail_at = at;
            const fp8c_status status = load ? fp8c_program_load(l.p, f8_cli_temp("state"), 0, NULL)
                                            : fp8c_program_save(l.p, f8_cli_temp("other"), NULL);
            count.fail_at = 0;
            ck_assert_int_eq(count.live, live);
            if (status == FP8C_OK)
                break;
            failed++;
            ck_assert_int_eq(status, FP8C_ERR_MEMORY);
            uint8_t *after = bytes_of(&l, &n[1]);
            ck_assert(!memcmp(before, after, n[0]));
            free(after);
        }
        ck_assert_int_gt(failed, 1);
    }
    free(before);
    end(&l);
    ck_assert_int_eq(count.live, 0);
}
END_TEST

static const char wide[] =
    "module wide\nparam e: f32[64, 128] normal(0.1)\nparam a: f32[128, 256] normal(0.1)\n"
    "param b: f32[256, 128] normal(0.1)\n"
    "func forward(%tokens: i32[16], %targets: i32[16]) -> f32[] {\n"
    "  %y = linear(linear(embedding(e, %tokens), a), b)\n"
    "  return cross_entropy(linear(%y, e) {transpose_b = true}, %targets)\n}\n"
    "optimizer adamw {lr = 1e-3}\n";

/* Loading takes memory for one value at a time, far less than all values have. */
START_TEST(memory)
{
    counting count = {0};
    const fp8c_context_options co = counted_options(&count);
    const fp8c_compile_options o = recipe("bf16");
    life l = {0};
    fp8c_variable v;
    size_t state = 0;
    ck_assert_int_eq(fp8c_context_create(&co, &l.ctx), FP8C_OK);
    l.m = parse(l.ctx, wide);
    l.p = compile(l.ctx, l.m, &o);
    for (int i = 0; fp8c_program_variable(l.p, i, &v) == FP8C_OK; i++)
        state += (size_t)fp8c_type_bytes(&v.type);
    OK(l, fp8c_program_initialize(l.p, 1));
    OK(l, fp8c_program_save(l.p, f8_cli_temp("state"), NULL));
    const size_t before = count.most = count.bytes;
    OK(l, fp8c_program_load(l.p, f8_cli_temp("state"), 0, NULL));
    ck_assert_uint_gt(state, 900000);
    ck_assert_msg(count.most - before < state / 2, "%zu bytes for a state of %zu",
                  count.most - before, state);
    end(&l);
}
END_TEST

Suite *f8_suite(void)
{
    f8_test_gpu_emulated();
    Suite *s = suite_create("state_file");
    TCase *t = tcase_create("state_file");
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_checked_fixture(t, f8_cli_setup, f8_cli_teardown);
    tcase_add_loop_test(t, goes_on, 0, sizeof kinds / sizeof *kinds);
    tcase_add_test(t, the_file);
    tcase_add_loop_test(t, serves_a_training, 0, 3);
    tcase_add_test(t, shared_operands);
    tcase_add_test(t, command_line);
    tcase_add_test(t, parameters_alone);
    tcase_add_test(t, does_not_fit);
    tcase_add_test(t, nothing_to_save);
    tcase_add_test(t, out_of_memory);
    tcase_add_test(t, memory);
    suite_add_tcase(s, t);
    return s;
}
