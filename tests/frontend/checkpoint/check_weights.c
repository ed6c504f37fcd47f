/* fp8c_program_load_weights: files that others wrote. Their tensors have other names, lie in
 * several files, are narrower, and more or fewer than the program's. And scales of `delayed` for
 * them, from a program with `observe`. What does not fit is named, and nothing changes. */
#include <math.h>

#include "frontend/checkpoint/weights.h"
#include "tests/shared/api/checkpoint.h"

#include "tests/shared/api/api.h"
#include "tests/shared/suite.h"

typedef struct life {
    fp8c_context *ctx;
    fp8c_module *m;
    fp8c_program *p;
} life;

static life begin(const fp8c_compile_options *o)
{
    life l = {.ctx = new_context()};
    l.m = parse(l.ctx, model);
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

static fp8c_compile_options inference(const char *name)
{
    fp8c_compile_options o = recipe(name);
    o.inference = 1;
    return o;
}

/* ---- names ---- */

START_TEST(maps)
{
    static const struct {
        const char *from, *to, *name, *want;
    } cases[] = {
        {"model.*", "*", "model.h.0.w", "h.0.w"},
        {"model.*", "*", "model.", ""},
        {"model.*", "*", "amodel.w", NULL},
        {"*", "transformer.*", "h.w", "transformer.h.w"},
        {"a", "b", "a", "b"},
        {"a", "b", "ab", NULL},
        {"a", "b", "", NULL},
        {"encoder.layer.*.attention.self.*", "h.*.attn.*", "encoder.layer.10.attention.self.q.bias",
         "h.10.attn.q.bias"},
        {"*.*", "*/*", "a.b.c", "a/b.c"}, /* the first star takes as little as possible */
        {"*.weight", "*.w", "x.weight.weight", "x.weight.w"},
        {"a*a", "*", "aa", ""},
        {"a*a", "*", "a", NULL},
        {"*ab*", "*-*", "aab", "a-"},
        {"x.**.y", "*|*", "x.abc.y", "|abc"},
        {"*.a", "fixed", "q.a", "fixed"},
        {"?", "x", "a", NULL}, /* a map knows stars alone */
    };
    f8_arena memory;
    f8_arena_init(&memory, NULL);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *got = NULL;
        const bool maps = f8_weights_map(cases[i].from, cases[i].to, cases[i].name, &memory, &got);
        ck_assert_msg(maps == (cases[i].want != NULL), "%s of %s", cases[i].from, cases[i].name);
        if (maps)
            ck_assert_str_eq(got, cases[i].want);
    }
    f8_arena_end(&memory);
}
END_TEST

/* A pattern may have any number of stars. */
START_TEST(maps_of_many_stars)
{
    enum { MANY = 200 };
    char from[2 * MANY + 1] = "", to[MANY + 1] = "", name[2 * MANY + 1] = "", want[MANY + 1] = "";
    f8_arena memory;
    f8_arena_init(&memory, NULL);
    for (int i = 0; i < MANY; i++) {
        const char letter[] = {(char)('a' + i % 26), 0};
        const char *got = NULL;
        strcat(from, "*.");
        strcat(to, "*");
        strcat(strcat(name, letter), ".");
        strcat(want, letter);
        ck_assert_msg(f8_weights_map(from, to, name, &memory, &got), "%d stars", i + 1);
        ck_assert_str_eq(got, want);
    }
    f8_arena_end(&memory);
}
END_TEST

/* ---- files ---- */

/* The weights of a program as others save them, "bert." in front: bert.wte, bert.fc.weight,
 * bert.fc.bias; with a pooler. The file is `name`. */
static copy *others(const char *name)
{
    const fp8c_compile_options o = inference("f32");
    life l = begin(&o);
    OK(l, fp8c_program_initialize(l.p, 7));
    OK(l, fp8c_program_save(l.p, f8_cli_temp(name), NULL));
    end(&l);
    copy *c = read_copy(name);
    drop_states(c);
    while (c->n_metadata)
        free((char *)c->metadata[--c->n_metadata].key), free(c->value[c->n_metadata]);
    for (size_t i = 0; i < c->n; i++)
        set_name(c, i, "bert.", strdupa(c->name[i]));
    add(c, "bert.pooler.weight", F8_ST_F32, 2, (int64_t[]){32, 32});
    write_copy(c, name, false);
    return c;
}

/* What was reported: counts by fate, and the last item of each as text. */
typedef struct seen {
    int n[6], errors;
    char text[6][200];
} seen;

static void see(void *user, const fp8c_load_item *item)
{
    seen *s = user;
    s->n[item->fate]++;
    s->errors += item->error;
    snprintf(s->text[item->fate], sizeof s->text[0], "%s < %s: %s",
             item->variable ? item->variable : "-", item->tensor ? item->tensor : "-",
             item->detail);
    ck_assert((item->tensor != NULL) == (item->file != NULL));
}

enum { MOST_TEXTS = 4 };
/* Options of a load, each list ended by NULL. */
typedef struct asked {
    const char *file[MOST_TEXTS], *ignore[MOST_TEXTS], *map[MOST_TEXTS], *allow[MOST_TEXTS];
} asked;

static size_t count(const char *const *list)
{
    size_t n = 0;
    while (n < MOST_TEXTS && list[n])
        n++;
    return n;
}

static fp8c_status load(fp8c_program *p, const asked *a, fp8c_program *scales, seen *s)
{
    char path[MOST_TEXTS][300];
    const char *file[MOST_TEXTS];
    for (size_t i = 0; i < count(a->file); i++) {
        snprintf(path[i], sizeof path[i], "%s", f8_cli_temp(a->file[i]));
        file[i] = path[i];
    }
    *s = (seen){0};
    const fp8c_load_options o = {.struct_size = sizeof o,
                                 .files = file,
                                 .n_files = count(a->file),
                                 .ignore = a->ignore,
                                 .n_ignore = count(a->ignore),
                                 .map = a->map,
                                 .n_map = count(a->map),
                                 .allow_missing = a->allow,
                                 .n_allow_missing = count(a->allow),
                                 .scales = scales,
                                 .report = see,
                                 .user = s};
    return fp8c_program_load_weights(p, &o);
}

/* Whether a parameter has the value of a tensor of the copy. */
static void has_value(const life *l, const char *variable, const copy *c, const char *tensor)
{
    const size_t i = at(c, tensor);
    uint8_t *value = malloc((size_t)c->tensor[i].bytes);
    OK(*l, fp8c_program_read(l->p, fp8c_program_find_variable(l->p, variable), value));
    ck_assert_msg(!memcmp(value, c->bytes[i], (size_t)c->tensor[i].bytes), "%s", variable);
    free(value);
}

#define USUAL .file = {"w"}, .ignore = {"*.pooler.*"}, .map = {"bert.*=*"}

START_TEST(takes)
{
    const fp8c_compile_options o = inference("current");
    const asked usual = {USUAL};
    life l = begin(&o);
    copy *c = others("w");
    seen s;
    OK(l, load(l.p, &usual, NULL, &s)); /* never initialized */
    ck_assert(s.n[FP8C_LOAD_TAKEN] == 3 && s.n[FP8C_LOAD_IGNORED] == 1 && !s.errors);
    ck_assert(!s.n[FP8C_LOAD_MISSING] && !s.n[FP8C_LOAD_UNEXPECTED] && !s.n[FP8C_LOAD_CALIBRATED]);
    ck_assert_str_eq(s.text[FP8C_LOAD_IGNORED], "- < bert.pooler.weight: ignore '*.pooler.*'");
    has_value(&l, "wte", c, "bert.wte");
    has_value(&l, "fc.weight", c, "bert.fc.weight");
    fill_batch(l.p, fp8c_program_function(l.p, "eval"));
    OK(l, fp8c_program_run(l.p, fp8c_program_function(l.p, "eval")));
    /* One parameter less: it keeps its value. */
    asked fewer = {USUAL, .allow = {"fc.b*"}};
    fewer.ignore[1] = "bert.fc.bias";
    const float marked[C] = {3, 2, 1};
    OK(l, fp8c_program_write(l.p, fp8c_program_find_variable(l.p, "fc.bias"), marked));
    OK(l, load(l.p, &fewer, NULL, &s));
    ck_assert_str_eq(s.text[FP8C_LOAD_MISSING], "fc.bias < -: F32 [32]");
    ck_assert(s.n[FP8C_LOAD_MISSING] == 1 && !s.errors);
    memcpy(c->bytes[at(c, "bert.fc.bias")], marked, sizeof marked);
    has_value(&l, "fc.bias", c, "bert.fc.bias");
    life fresh = begin(&o);
    ck_assert_int_eq(load(fresh.p, &fewer, NULL, &s), FP8C_ERR_INPUT);
    said(fresh.ctx, "parameters that may be missing have no values to keep: call "
                    "fp8c_program_initialize first");
    end(&fresh);
    free_copy(c);
    end(&l);
}
END_TEST

/* A program that trains takes the parameters, here in BF16, and keeps its moments; from a
 * checkpoint of fp8c it takes all. */
START_TEST(trains_on)
{
    const fp8c_compile_options o = recipe("delayed");
    const asked usual = {USUAL}, own = {.file = {"own"}};
    life l = begin(&o);
    copy *c = others("w");
    seen s;
    for (size_t i = 0; i < c->n; i++) {
        uint16_t *narrow = c->bytes[i];
        c->tensor[i].dtype = F8_ST_BF16;
        c->tensor[i].bytes /= 2;
        for (uint64_t k = 0; k < c->tensor[i].bytes / 2; k++)
            narrow[k] = ((uint16_t *)c->bytes[i])[2 * k + 1];
    }
    write_copy(c, "w", true);
    ck_assert_int_eq(load(l.p, &usual, NULL, &s), FP8C_ERR_INPUT);
    said(l.ctx, "has no value, and only parameters are to be loaded: call fp8c_program_initialize");
    OK(l, fp8c_program_initialize(l.p, 1));
    train_step(l.p);
    OK(l, fp8c_program_save(l.p, f8_cli_temp("own"), NULL));
    OK(l, load(l.p, &usual, NULL, &s));
    ck_assert_int_eq(s.n[FP8C_LOAD_TAKEN], 3);
    copy *before = read_copy("own");
    has_value(&l, "opt.m.wte", before, "fp8c.state.opt.m.wte");
    uint32_t bits;
    fp8c_variable v;
    fp8c_program_variable(l.p, fp8c_program_find_variable(l.p, "wte"), &v);
    memcpy(&bits, v.data, sizeof bits);
    ck_assert_uint_eq(bits & 0xffff, 0); /* a value of BF16 */
    OK(l, load(l.p, &own, NULL, &s));
    has_value(&l, "wte", before, "wte");
    has_value(&l, "fp8.scale", before, "fp8c.state.fp8.scale");
    ck_assert_uint_eq((size_t)s.n[FP8C_LOAD_TAKEN], before->n);
    free_copy(before);
    end(&l);
}
END_TEST

/* Weights that the program stores as FP8 are quantized, as fp8c_program_quantize does it. */
START_TEST(quantizes)
{
    static const char *const how[] = {"block", "delayed"};
    fp8c_compile_options o = inference("bf16");
    o.stored = how[_i];
    life l = begin(&o);
    copy *c = others("w");
    const asked usual = {USUAL};
    seen s;
    fp8c_stored stored;
    OK(l, fp8c_program_stored(l.p, 0, &stored));
    OK(l, fp8c_program_initialize(l.p, 1));
    if (stored.kept) { /* the scale that training would have kept */
        ck_assert_int_eq(load(l.p, &usual, NULL, &s), FP8C_ERR_INPUT);
        said(l.ctx, "'fc.w' is missing in fp8.scale. Scales of `delayed` come from a training");
    } else {
        uint8_t want[C * C], got[C * C];
        OK(l, fp8c_program_quantize(l.p, stored.variable, c->bytes[at(c, "bert.fc.weight")], NULL));
        OK(l, fp8c_program_read(l.p, stored.variable, want));
        OK(l, fp8c_program_initialize(l.p, 1));
        OK(l, load(l.p, &usual, NULL, &s));
        OK(l, fp8c_program_read(l.p, stored.variable, got));
        ck_assert(!memcmp(want, got, sizeof got));
        asked fewer = {USUAL, .allow = {"fc.weight*"}}; /* codes have no initial values of use */
        fewer.ignore[1] = "bert.fc.weight";
        ck_assert_int_eq(load(l.p, &fewer, NULL, &s), FP8C_ERR_INPUT);
        said(l.ctx, "'fc.weight' is missing");
    }
    free_copy(c);
    end(&l);
}
END_TEST

/* ---- what does not fit ---- */

static const struct {
    asked asked;
    const char *message;
} misfits[] = {
    {{.file = {"w"}, .map = {"bert.*=*"}},
     "it does not fit the program: 'bert.pooler.weight' is not a variable of the program: F32 [32, "
     "32]"},
    {{.file = {"w"}, .ignore = {"*.pooler.*"}},
     "'wte' is missing: F32 [16, 32]; 'fc.weight' is missing: F32 [32, 32]; "},
    {{.file = {"transposed"}, .ignore = {"*.pooler.*"}, .map = {"bert.*=*"}},
     "'bert.wte' is F32 [32, 16], not F32 [16, 32]"},
    {{USUAL, .allow = {"wpe"}}, "allow_missing 'wpe': the program has no such parameter"},
    {{.file = {"w"}, .ignore = {"*.pooler.*", "poler"}, .map = {"bert.*=*"}},
     "/w: error: ignore 'poler': no tensor has such a name"},
    {{.file = {"w"}, .ignore = {"*.pooler.*"}, .map = {"bert.*=*", "bert.wte=x"}},
     "/w: error: map 'bert.wte=x': no tensor that earlier maps left has such a name"},
    {{.file = {"w"}, .map = {"bert.fc.*=fc"}}, "/w: error: the maps give the tensors 'bert.fc."},
    {{.file = {"w"}, .map = {"bert."}}, "map 'bert.' is not FROM=TO"},
    {{.file = {"w"}, .map = {"=x"}}, "map '=x' is not FROM=TO"},
    {{.file = {"w"}, .map = {"x="}}, "map 'x=' is not FROM=TO"},
    {{.file = {"w"}, .map = {"a*=*.*"}}, "map 'a*=*.*' has more stars in TO than in FROM"},
    {{.file = {"w", "w2"}}, "tensor 'bert.fc.bias' is also in "},
    {{.file = {NULL}}, "no file of weights is given"},
    {{.file = {"nothing"}}, "/nothing: error: No such file or directory"},
};

START_TEST(does_not_fit)
{
    const fp8c_compile_options o = inference("f32");
    life l = begin(&o);
    copy *c = others("w"), *before;
    seen s;
    write_copy(c, "w2", false);
    c->tensor[at(c, "bert.wte")].dim[0] = C;
    c->tensor[at(c, "bert.wte")].dim[1] = V;
    write_copy(c, "transposed", true);
    OK(l, fp8c_program_initialize(l.p, 1));
    OK(l, fp8c_program_save(l.p, f8_cli_temp("before"), NULL));
    before = read_copy("before");
    for (size_t i = 0; i < sizeof misfits / sizeof *misfits; i++) {
        ck_assert_msg(load(l.p, &misfits[i].asked, NULL, &s) != FP8C_OK, "taken, instead of: %s",
                      misfits[i].message);
        said(l.ctx, misfits[i].message);
        has_value(&l, "wte", before, "wte");
        has_value(&l, "fc.bias", before, "fc.bias");
    }
    ck_assert_int_eq(load(l.p, &misfits[2].asked, NULL, &s), FP8C_ERR_INPUT);
    ck_assert(s.errors == 1 && s.n[FP8C_LOAD_DIFFERENT] == 1 && s.n[FP8C_LOAD_TAKEN] == 2);
    ck_assert_str_eq(s.text[FP8C_LOAD_DIFFERENT], "wte < bert.wte: F32 [32, 16], not F32 [16, 32]");
    const fp8c_load_options unset = {0};
    ck_assert_int_eq(fp8c_program_load_weights(l.p, &unset), FP8C_ERR_INPUT);
    said(l.ctx, "fp8c_load_options");
    free_copy(before);
    end(&l);
}
END_TEST

/* ---- an index ---- */

#define MAP(text) "{\"metadata\": {\"total_size\": 7}, \"weight_map\": {" text "}}"
static const struct {
    const char *text, *message; /* message NULL: it loads */
} indexes[] = {
    {MAP("\"bert.wte\": \"one\", \"bert.fc.bias\": \"sub/two\", \"bert.fc.weight\": \"sub/two\""),
     NULL},
    {MAP("\"bert.wte\": \"one\", \"bert.fc.bias\": \"three\""),
     "/three: error: No such file or directory"},
    {MAP("\"bert.wte\": \"one\", \"bert.fc.bias\": \"one\""),
     "m.index.json: error: 'bert.fc.bias' is not in 'one', where 'weight_map' says it is"},
    {MAP("\"bert.wte\": \"../one\""),
     "'weight_map': the file '../one' of 'bert.wte' is not in the index's folder"},
    {MAP("\"bert.wte\": \"/etc/passwd\""), "the file '/etc/passwd' of 'bert.wte' is not in the"},
    {MAP("\"bert.wte\": \"sub/../../one\""), "is not in the index's folder"},
    {MAP("\"bert.wte\": \"sub/..\""), "is not in the index's folder"},
    {MAP("\"bert.wte\": \"\""), "is not in the index's folder"},
    {MAP("\"bert.wte\": 1"), "'weight_map': the file of 'bert.wte' is not a string"},
    {MAP("\"bert.wte\": \"one\", \"bert.wte\": \"two\""), "it is not valid JSON: duplicate"},
    {MAP(""), "it has no 'weight_map', an object of tensors and their files"},
    {"{\"weight_map\": [\"one\"]}", "it has no 'weight_map'"},
    {"[]", "it has no 'weight_map'"},
    {"", "it is not valid JSON"},
};

START_TEST(index_of_files)
{
    const fp8c_compile_options o = inference("f32");
    life l = begin(&o);
    copy *c = others("w"), *rest = read_copy("w");
    const asked asked = {.file = {"m.index.json"}, .map = {"bert.*=*"}};
    seen s;
    mkdir(f8_cli_temp("sub"), 0700);
    while (c->n > 1)
        drop(c, at(c, c->name[0]) + (!strcmp(c->name[0], "bert.wte")));
    drop(rest, at(rest, "bert.wte"));
    drop(rest, at(rest, "bert.pooler.weight"));
    write_copy(c, "one", false);
    write_copy(rest, "sub/two", false);
    for (size_t i = 0; i < sizeof indexes / sizeof *indexes; i++) {
        f8_cli_write("m.index.json", indexes[i].text, strlen(indexes[i].text));
        const fp8c_status status = load(l.p, &asked, NULL, &s);
        if (indexes[i].message) {
            ck_assert_msg(status != FP8C_OK, "taken: %s", indexes[i].text);
            said(l.ctx, indexes[i].message);
            continue;
        }
        OK(l, status);
        ck_assert_int_eq(s.n[FP8C_LOAD_TAKEN], 3);
        has_value(&l, "wte", c, "bert.wte");
        has_value(&l, "fc.weight", rest, "bert.fc.weight");
    }
    free_copy(c);
    free_copy(rest);
    end(&l);
}
END_TEST

/* ---- scales ---- */

static float eval_once(const life *l)
{
    const int f = fp8c_program_function(l->p, "eval");
    fill_batch(l->p, f);
    OK(*l, fp8c_program_run(l->p, f));
    return *(float *)fp8c_program_buffer(l->p, f, FP8C_OUTPUT, 0);
}

/* What the program that observes has seen gives the scales that a training computes from the same
 * amaxes, and its own loss is that of bf16. */
START_TEST(observes)
{
    static const char *const targets[] = {"cpu", "reference"};
    fp8c_compile_options o = inference("delayed");
    o.target = targets[_i];
    life l = begin(&o), high, observer;
    o.recipe = "bf16";
    high = begin(&o);
    o.recipe = "delayed";
    o.observe = 1;
    observer = begin(&o);
    const asked usual = {USUAL};
    copy *c = others("w");
    seen s;
    ck_assert_int_eq(load(l.p, &usual, NULL, &s), FP8C_ERR_INPUT);
    said(l.ctx, "'fp8.scale' is missing: F32 [2]. Scales of `delayed` come from a training under "
                "it, or from a program with `observe`");
    OK(high, load(high.p, &usual, NULL, &s));
    OK(observer, load(observer.p, &usual, NULL, &s));
    ck_assert_int_eq(load(l.p, &usual, observer.p, &s), FP8C_ERR_INPUT);
    said(l.ctx, "the program that is to give scales has observed nothing: run its eval");
    ck_assert_int_eq(load(l.p, &usual, high.p, &s), FP8C_ERR_INPUT);
    const float want = eval_once(&high), same = eval_once(&observer);
    ck_assert_msg(!memcmp(&want, &same, 4), "%.9g, observing %.9g", (double)want, (double)same);
    OK(l, load(l.p, &usual, observer.p, &s));
    ck_assert_int_eq(s.n[FP8C_LOAD_CALIBRATED], 1);
    const float loss = eval_once(&l);
    ck_assert_msg(fabsf(loss / want - 1) < 1e-2f && loss != want, "%.9g, bf16 %.9g", (double)loss,
                  (double)want);
    float amax[2], scale[2];
    OK(observer,
       fp8c_program_read(observer.p, fp8c_program_find_variable(observer.p, "fp8.amax"), amax));
    OK(l, fp8c_program_read(l.p, fp8c_program_find_variable(l.p, "fp8.scale"), scale));
    const int variable = fp8c_program_find_variable(l.p, "fp8.scale");
    for (int k = 0; k < 2; k++)
        if (!strcmp(fp8c_program_element(l.p, variable, k, 0), "fc.x"))
            ck_assert(scale[k] == 448 / amax[k] && amax[k] > 0);
        else { /* a weight: the largest magnitude of its values */
            float most = 0;
            const float *w = c->bytes[at(c, "bert.fc.weight")];
            for (int i = 0; i < C * C; i++)
                most = fmaxf(most, fabsf(w[i]));
            ck_assert(scale[k] == 448 / most && amax[k] == 0);
        }
    /* What it saves is a checkpoint that needs no calibration. */
    OK(l, fp8c_program_save(l.p, f8_cli_temp("own"), NULL));
    const asked own = {.file = {"own"}};
    OK(l, load(l.p, &own, NULL, &s));
    const float again = eval_once(&l);
    ck_assert(!memcmp(&loss, &again, 4));
    free_copy(c);
    end(&l);
    end(&high);
    end(&observer);
}
END_TEST

START_TEST(observes_wrong)
{
    fp8c_compile_options o = inference("delayed");
    life l = begin(&o), observer;
    o.observe = 1;
    observer = begin(&o);
    const asked usual = {USUAL};
    copy *c = others("w");
    seen s;
    ((float *)c->bytes[at(c, "bert.wte")])[0] = INFINITY;
    write_copy(c, "w", true);
    OK(observer, load(observer.p, &usual, NULL, &s));
    eval_once(&observer);
    OK(l, fp8c_program_initialize(l.p, 1));
    const float before = eval_once(&l);
    ck_assert_int_eq(load(l.p, &usual, observer.p, &s), FP8C_ERR_INPUT);
    const float after = eval_once(&l);
    ck_assert(!memcmp(&before, &after, 4)); /* nothing has changed */
    said(l.ctx, "'fc.x' is not finite: no scale follows from it");
    fp8c_program *p;
    o.inference = 0;
    ck_assert_int_eq(fp8c_compile(l.m, &o, &p), FP8C_ERR_INPUT);
    said(l.ctx, "observe needs `inference`");
    end(&l);
    end(&observer);
}
END_TEST

/* ---- memory ---- */

/* Each allocation refused in turn: it fails and nothing leaks, and in the end it loads. */
START_TEST(out_of_memory)
{
    counting count = {0};
    const fp8c_context_options co = counted_options(&count);
    const fp8c_compile_options o = inference("current");
    const asked asked = {.file = {"m.index.json"}, .ignore = {"*.pooler.*"}, .map = {"bert.*=*"}};
    static const char index[] =
        MAP("\"bert.wte\": \"w\", \"bert.fc.bias\": \"w\", \"bert.fc.weight\": \"w\"");
    copy *c = others("w");
    life l = {0};
    seen s;
    int failed = 0;
    ck_assert_int_eq(fp8c_context_create(&co, &l.ctx), FP8C_OK);
    l.m = parse(l.ctx, model);
    l.p = compile(l.ctx, l.m, &o);
    f8_cli_write("m.index.json", index, sizeof index - 1);
    for (long at = 1;; at++, failed++) {
        const long live = count.live;
        count.n = 0;
        count.fail_at = at;
        const fp8c_status status = load(l.p, &asked, NULL, &s);
        count.fail_at = 0;
        ck_assert_int_eq(count.live, live);
        if (status == FP8C_OK)
            break;
        ck_assert_int_eq(status, FP8C_ERR_MEMORY);
    }
    ck_assert_int_gt(failed, 3);
    has_value(&l, "wte", c, "bert.wte");
    free_copy(c);
    end(&l);
    ck_assert_int_eq(count.live, 0);
}
END_TEST

Suite *f8_suite(void)
{
    Suite *s = suite_create("weights");
    TCase *t = tcase_create("weights");
    tcase_set_timeout(t, TIMEOUT);
    tcase_add_checked_fixture(t, f8_cli_setup, f8_cli_teardown);
    tcase_add_test(t, maps);
    tcase_add_test(t, maps_of_many_stars);
    tcase_add_test(t, takes);
    tcase_add_test(t, trains_on);
    tcase_add_loop_test(t, quantizes, 0, 2);
    tcase_add_test(t, does_not_fit);
    tcase_add_test(t, index_of_files);
    tcase_add_loop_test(t, observes, 0, 2);
    tcase_add_test(t, observes_wrong);
    tcase_add_test(t, out_of_memory);
    suite_add_tcase(s, t);
    return s;
}
